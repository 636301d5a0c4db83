//! `goodput calibrate`

use super::{CliError, STOP, default_memory_bytes, parse_bytes};
use crate::audit::grouped;
use crate::engine::{self, CalibrateOptions};
use crate::shard::Calibration;
use crate::terminal;
use std::fmt::Write;
use std::io;
use std::path::PathBuf;

/// Calibrate usefulness with the losses of a pilot run: what falls, and by how much, at which usefulness.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  goodput calibrate out/web-mix --losses pilot.parquet --pilot gpt2-124m-1B --output calibration.json
  goodput run web-mix.yaml --set stages.score.calibration=calibration.json --out out/calibrated

pilot.parquet has a row for each document: doc_id, loss_early and loss_late, lists with the loss in nats of each
token of the document's text, early and late in the pilot's training (none for special tokens). Documents may be
kept ones or rejected ones that were scored; losses on both show the whole range. A non-decreasing curve from
usefulness to the fall of the loss is fitted on half of the documents, by a keyed hash of the id, and checked on
the other half. Parquet key-value metadata `goodput.tokenizer_fingerprint` is checked where it is there.

A calibration holds for its estimator with the options of the scored folder; a pipeline with others is refused by
name. The same options fitted on other text give usefulness of the same meaning, so that a small pilot may calibrate a
large run; such a run warns that the curve was measured on another fit, and its manifest has both parameter hashes.")]
pub struct Calibrate {
    /// Output folder of a finished run with a `score` stage.
    out: PathBuf,
    /// Parquet file of per-token losses.
    #[arg(long, value_name = "FILE")]
    losses: PathBuf,
    /// Name of the pilot run, as shards made with the calibration will show it.
    #[arg(long, value_name = "NAME")]
    pilot: String,
    /// The calibration file to write.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// Anonymous memory that may be used, e.g. 8GiB; half of the machine's when absent.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory: Option<u64>,
    /// How the result is written on stdout; the file is always JSON.
    #[arg(long, value_name = "HOW", default_value = "table", value_parser = ["table", "json"])]
    format: String,
}

impl Calibrate {
    /// Writes the calibration and prints the reliability table.
    pub fn run(self) -> Result<(), CliError> {
        let manifest = super::manifest_of(&self.out, "calibrate")?;
        if !self.losses.is_file() {
            return Err(CliError::Request(format!(
                "--losses: {}: no such file",
                self.losses.display()
            )));
        }
        if std::fs::metadata(&self.losses).is_ok_and(|found| found.len() == 0) {
            return Err(CliError::Request(format!(
                "--losses: {}: is empty; it needs a row for each document of the pilot run, with doc_id, loss_early \
                 and loss_late",
                self.losses.display()
            )));
        }
        let ours = |there: &[u8]| there.starts_with(b"{\n  \"version\": 1,\n  \"pilot\"");
        super::refuse_foreign(&self.output, "no calibration", &ours)?;
        let options = CalibrateOptions {
            losses: self.losses,
            pilot: self.pilot,
            memory_bytes: self.memory.unwrap_or_else(default_memory_bytes) / 8,
        };
        let calibration = engine::calibrate(&self.out, &manifest, &options, &STOP)?;
        let text = serde_json::to_string_pretty(&calibration).map_err(io::Error::other)? + "\n";
        std::fs::write(&self.output, &text).map_err(|error| {
            CliError::Request(format!("--output: {}: {error}", self.output.display()))
        })?;
        match self.format.as_str() {
            "json" => terminal::print_data(&text)?,
            _ => terminal::print(&table(&calibration, &self.output.display().to_string()))?,
        }
        Ok(())
    }
}

fn table(calibration: &Calibration, output: &str) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "usefulness of {} against pilot run '{}'\n",
        terminal::printable_line(&calibration.estimator),
        terminal::printable_line(&calibration.pilot)
    );
    for (label, half) in [
        ("fitted on", &calibration.fitted),
        ("checked on", &calibration.checked),
    ] {
        let _ = writeln!(
            out,
            "{label:<10}  {:>10} documents  {:>14} tokens  whose loss fell by {:.4} nats a token",
            grouped(half.documents),
            grouped(half.tokens),
            half.mean_learnability_nats
        );
    }
    let _ = writeln!(
        out,
        "\n{:>18}  {:>14}  {:>10}  {:>10}   of the documents that were not fitted on",
        "usefulness", "tokens", "predicted", "measured"
    );
    for row in &calibration.reliability {
        let _ = writeln!(
            out,
            "{:>18}  {:>14}  {:>10.4}  {:>10.4}",
            format!("{:.3} to {:.3}", row.usefulness_from, row.usefulness_to),
            grouped(row.tokens),
            row.predicted_nats,
            row.measured_nats
        );
    }
    let _ = writeln!(
        out,
        "\nexpected calibration error {:.4} nats; a calibrated usefulness of 1 stands for {:.4} nats\n\n{output}\n\n\
         Next:\n  goodput run PIPELINE.yaml --set stages.score.calibration={output} --out OUT",
        calibration.expected_calibration_error_nats, calibration.scale_nats
    );
    out
}
