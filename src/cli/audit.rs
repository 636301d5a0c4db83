//! `goodput audit`

use super::{CliError, Format};
use crate::audit::{Audit as Ledger, By, Identity, csv, table};
use crate::terminal;
use std::path::PathBuf;

/// Show the token ledger: what was read, kept and turned away, why, and that it adds up.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  goodput audit out/web-mix
  goodput audit out/web-mix --by source
  goodput audit out/web-mix --format json | jq .low_value")]
pub struct Audit {
    /// Output folder of a finished run.
    out: PathBuf,
    /// How the result is written.
    #[arg(long, value_name = "HOW", default_value = "table")]
    format: Format,
    /// What the rows of the table are.
    #[arg(long, value_name = "WHAT", default_value = "reason", value_parser = ["source", "stage", "reason"])]
    by: String,
}

impl Audit {
    /// Prints the ledger.
    pub fn run(self) -> Result<(), CliError> {
        let path = self.out.join("audit.json");
        let text = std::fs::read_to_string(&path).map_err(|error| {
            CliError::Request(format!(
                "{}: {error}; 'audit' takes the output folder of a finished run",
                path.display()
            ))
        })?;
        let mut ledger: Ledger = serde_json::from_str(&text).map_err(|error| {
            CliError::Request(format!(
                "{}: is not a ledger of this version: {error}",
                path.display()
            ))
        })?;
        // From the rows that are shown, not as they were written: a ledger that was edited shows it.
        ledger.identities = Identity::of(&ledger);
        let by = match self.by.as_str() {
            "source" => By::Source,
            "stage" => By::Stage,
            _ => By::Reason,
        };
        terminal::print(&match self.format {
            Format::Table => table(&ledger, by),
            Format::Json => text,
            Format::Csv => csv(&ledger),
        })?;
        match ledger.identities.iter().find(|identity| !identity.holds) {
            Some(broken) => Err(CliError::DoesNotHold(format!(
                "the ledger does not close: {}",
                broken.name
            ))),
            None => Ok(()),
        }
    }
}
