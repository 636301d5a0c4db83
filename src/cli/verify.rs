//! `goodput verify`

use super::{CliError, STOP, default_memory_bytes, parse_bytes};
use crate::engine::{self, CheckState, VerifyOptions};
use crate::terminal::{self, Places, ProgressMode, Reporter};
use std::path::PathBuf;

/// Prove what an output folder can prove of itself, and list what it cannot.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  goodput verify out/web-mix
  goodput verify out/web-mix --inputs          reads and tokenizes the inputs again
  goodput verify out/web-mix --format json")]
pub struct Verify {
    /// Output folder of a finished run.
    out: PathBuf,
    /// Read and tokenize the inputs again, and compare document by document.
    #[arg(long)]
    inputs: bool,
    /// The pipeline file, where it is not where the run found it.
    #[arg(long, value_name = "FILE")]
    pipeline: Option<PathBuf>,
    /// Anonymous memory that may be used, e.g. 8GiB; half of the machine's when absent.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory: Option<u64>,
    /// How the result is written.
    #[arg(long, value_name = "HOW", default_value = "table", value_parser = ["table", "json"])]
    format: String,
    /// How progress is shown.
    #[arg(long, value_name = "HOW", default_value = "off")]
    progress: ProgressMode,
}

impl Verify {
    /// Prints every check; an error where one fails.
    pub fn run(self) -> Result<(), CliError> {
        let options = VerifyOptions {
            inputs: self.inputs,
            pipeline: self.pipeline,
            memory_bytes: self.memory.unwrap_or_else(default_memory_bytes),
            cache: super::cache_folder(),
        };
        let reporter = Reporter::new(self.progress, 0, Places::default());
        let checks = engine::verify(&self.out, &options, &reporter, &STOP)?;
        drop(reporter);
        let text = if self.format == "json" {
            serde_json::to_string_pretty(&checks).map_err(std::io::Error::other)? + "\n"
        } else {
            checks
                .iter()
                .map(|check| {
                    let word = match check.state {
                        CheckState::Holds => "holds       ",
                        CheckState::Fails => "FAILS       ",
                        CheckState::CannotTell => "cannot tell ",
                    };
                    format!(
                        "{word} {}: {}\n",
                        terminal::printable_line(&check.claim),
                        terminal::printable_line(&check.found)
                    )
                })
                .collect()
        };
        match self.format.as_str() {
            "json" => terminal::print_data(&text)?,
            _ => terminal::print(&text)?,
        }
        let failed = checks
            .iter()
            .filter(|check| check.state == CheckState::Fails)
            .count();
        if failed > 0 {
            return Err(CliError::DoesNotHold(format!(
                "{failed} of {} checks fail",
                checks.len()
            )));
        }
        Ok(())
    }
}
