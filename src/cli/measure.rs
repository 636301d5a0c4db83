//! `goodput measure`

use super::CliError;
use crate::audit::Audit;
use crate::logs;
use crate::measure::{self, Refusal, Request};
use crate::plan::{Flag, load_measure, measure_of_flags};
use crate::terminal;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

/// Measure goodput from training logs: where time went, at which rate, for how much, and how far the model came.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  goodput measure measure.yaml
  goodput measure --log train.jsonl                          time, steps, tokens
  goodput measure --log 'tb/events.out.*' --chips 8 --chip h100_sxm --price-per-chip-hour 2 \\
      --parameters 1.2e9 --layers 24 --heads 16 --head-dimension 128 --sequence-tokens 2048 --tokens-per-step 524288
  goodput measure measure.yaml --format json | jq '.runs[0].time'
  goodput measure measure.yaml --format html > report.html   charts and tables on one page that loads nothing
  goodput measure --formats                                  which logs are read, with a sample of each

A measure file for several runs:
  version: 1
  name: web-mix
  model: { parameters: 1.2e9, layers: 24, heads: 16, head_dimension: 128, sequence_tokens: 2048 }
  hardware: { chips: 8, chip: h100_sxm, price_per_chip_hour: 2.0 }
  dataset: { path: out/web-mix }
  runs:
    - { name: selected, logs: logs/selected/*.jsonl }
    - { name: random, logs: logs/random/*.log, reader: { format: megatron } }

Progress: give runs a group and a seed, and name the baseline:
  progress: { baseline: random }
  runs:
    - { name: r1, group: random, seed: 1, logs: logs/r1.jsonl }        three budgets of it or more are the curve
    - { name: s1, group: selected, seed: 1, logs: logs/s1.jsonl, dataset: { path: out/selected } }
The last evaluations of finished runs are compared, in bits per byte on two held-out sets, 'target' and 'general'.
Multiplier m: how many times a run's compute the baseline needs for the same loss; its 95 % interval is by pairs of the
same seed and budget, from three on. 'goodput schema measure_report' describes the JSON.

wall = productive + badput by category + unattributed, exactly, in microseconds. An attempt is a process: a new file,
a step that comes again, a word of the log, or a silence of more than ten median steps and a minute. Steps that a later
attempt does again are wasted by the one that did them first. What is inferred is said. Without a time of day on
every line of steps, time is unknown. Exit code 2 where logs cannot be measured, with every reason.")]
pub struct Measure {
    /// The measure file; or describe one run with --log and the flags below.
    #[arg(conflicts_with = "log")]
    measure: Option<PathBuf>,
    /// Logs of one run: a path or a glob; may be given several times.
    #[arg(long, value_name = "FILE")]
    log: Vec<String>,
    /// Format of the logs; told from their contents when absent.
    #[arg(long, value_name = "NAME", requires = "log")]
    log_format: Option<String>,
    /// Token places of an optimizer step over all chips.
    #[arg(long, value_name = "N", requires = "log")]
    tokens_per_step: Option<String>,
    /// Output folder of the pipeline run whose shards were read.
    #[arg(long, value_name = "OUT", requires = "log")]
    dataset: Option<String>,
    /// Accelerators that the run was paid for.
    #[arg(long, value_name = "N", requires = "log")]
    chips: Option<String>,
    /// Kind of accelerator, for its dense BF16 peak.
    #[arg(long, value_name = "NAME", requires = "log")]
    chip: Option<String>,
    /// Peak of one accelerator in TFLOP/s, where its kind is not known.
    #[arg(long, value_name = "X", requires = "log")]
    peak_teraflops: Option<String>,
    /// Price of one accelerator for an hour.
    #[arg(long, value_name = "X", requires = "log")]
    price_per_chip_hour: Option<String>,
    /// Machines, for the mean time to failure and the best checkpoint interval.
    #[arg(long, value_name = "N", requires = "log")]
    nodes: Option<String>,
    /// Parameters of the model.
    #[arg(long, value_name = "N", requires = "log")]
    parameters: Option<String>,
    /// Layers of the model.
    #[arg(long, value_name = "N", requires = "log")]
    layers: Option<String>,
    /// Attention heads of a layer.
    #[arg(long, value_name = "N", requires = "log")]
    heads: Option<String>,
    /// Dimension of a head.
    #[arg(long, value_name = "N", requires = "log")]
    head_dimension: Option<String>,
    /// Tokens of a sequence.
    #[arg(long, value_name = "N", requires = "log")]
    sequence_tokens: Option<String>,
    /// How operations are counted; palm when absent.
    #[arg(long, value_name = "NAME", requires = "log")]
    flop_convention: Option<String>,
    /// How the result is written.
    #[arg(long, value_name = "HOW", default_value = "table", value_parser = ["table", "json", "html"])]
    format: String,
    /// List the formats of logs that are read, with their options and a sample.
    #[arg(long, exclusive = true)]
    formats: bool,
    /// List MFU of published runs, recomputed.
    #[arg(long, exclusive = true)]
    published: bool,
}

impl Measure {
    /// Prints the report.
    pub fn run(self) -> Result<(), CliError> {
        if self.formats {
            return Ok(terminal::print(&formats())?);
        }
        if self.published {
            return Ok(terminal::print(&measure::published_table())?);
        }
        let request = self.request()?;
        let report =
            measure::measure(&request).map_err(|refusals| CliError::Request(refused(&refusals)))?;
        match self.format.as_str() {
            "json" => {
                let text = serde_json::to_string_pretty(&report).map_err(io::Error::other)?;
                terminal::print_data(&(text + "\n"))?;
            }
            "html" => {
                let page = measure::html(&report, &ledgers(&report)?);
                terminal::print_data(&page)?;
            }
            _ => terminal::print(&measure::table(&report, &terminal::printable_line))?,
        }
        Ok(())
    }

    fn request(&self) -> Result<Request, CliError> {
        let problems = |problems: crate::plan::Problems| CliError::Request(problems.to_string());
        if let Some(path) = &self.measure {
            return load_measure(path).map_err(problems);
        }
        if self.log.is_empty() {
            return Err(CliError::Request(
                "name a measure file, or the logs of one run with --log FILE ('goodput measure --help' has examples)"
                    .to_string(),
            ));
        }
        let mut flags = vec![Flag {
            shown: format!("--log {}", self.log.join(" --log ")),
            section: "",
            key: "logs",
            values: self.log.clone(),
        }];
        for (name, section, key, value) in [
            ("log-format", "", "reader", &self.log_format),
            (
                "tokens-per-step",
                "",
                "tokens_per_step",
                &self.tokens_per_step,
            ),
            ("dataset", "dataset", "path", &self.dataset),
            ("chips", "hardware", "chips", &self.chips),
            ("chip", "hardware", "chip", &self.chip),
            (
                "peak-teraflops",
                "hardware",
                "peak_teraflops",
                &self.peak_teraflops,
            ),
            (
                "price-per-chip-hour",
                "hardware",
                "price_per_chip_hour",
                &self.price_per_chip_hour,
            ),
            ("nodes", "hardware", "nodes", &self.nodes),
            ("parameters", "model", "parameters", &self.parameters),
            ("layers", "model", "layers", &self.layers),
            ("heads", "model", "heads", &self.heads),
            (
                "head-dimension",
                "model",
                "head_dimension",
                &self.head_dimension,
            ),
            (
                "sequence-tokens",
                "model",
                "sequence_tokens",
                &self.sequence_tokens,
            ),
            (
                "flop-convention",
                "model",
                "flop_convention",
                &self.flop_convention,
            ),
        ] {
            if let Some(value) = value {
                flags.push(Flag {
                    shown: format!("--{name} {value}"),
                    section,
                    key,
                    values: vec![value.clone()],
                });
            }
        }
        measure_of_flags(&flags).map_err(problems)
    }
}

/// The ledgers of the datasets that were read, each once.
fn ledgers(report: &measure::Report) -> Result<Vec<(String, Audit)>, CliError> {
    let mut found: Vec<(String, Audit)> = Vec::new();
    for dataset in report.runs.iter().filter_map(|run| run.dataset.as_ref()) {
        if found
            .iter()
            .all(|(checksum, _)| *checksum != dataset.checksum)
        {
            let (ledger, _) = super::ledger_of(Path::new(&dataset.path), "measure")?;
            found.push((dataset.checksum.clone(), ledger));
        }
    }
    Ok(found)
}

fn refused(refusals: &[Refusal]) -> String {
    let lines: Vec<String> = refusals.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

fn formats() -> String {
    let mut out = String::from(
        "Formats of training logs; 'reader: { format: NAME }' where contents do not tell\n",
    );
    for kind in logs::TABLE {
        let spec = &kind.spec;
        let _ = writeln!(out, "\n{}: {}", spec.name, spec.summary);
        for line in spec.details.lines() {
            let _ = writeln!(out, "  {line}");
        }
        for option in spec.options {
            let default = match option.default {
                None | Some("null") => String::new(),
                Some(default) => format!(" ({default})"),
            };
            let _ = writeln!(out, "  option {}{default}: {}", option.name, option.doc);
        }
        if !spec.options.is_empty() {
            let _ = writeln!(out, "  example: {}", spec.example);
        }
        match std::str::from_utf8(kind.sample) {
            Ok(sample) => {
                for line in sample.lines() {
                    let _ = writeln!(out, "    | {}", uncoloured(line));
                }
            }
            Err(_) => out.push_str("    | (binary)\n"),
        }
    }
    out
}

/// A line of a sample as it looks in a terminal.
fn uncoloured(line: &str) -> String {
    logs::Head::new(line.as_bytes()).text
}
