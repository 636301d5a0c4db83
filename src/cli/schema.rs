//! `goodput schema`

use super::CliError;
use crate::terminal;

/// Print a JSON Schema: of pipeline files, shard rows, the ledger, the manifest, calibrations, measure files or their reports.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  goodput schema pipeline > pipeline.schema.json     for completion in an editor
  goodput schema audit")]
pub struct Schema {
    /// Which schema.
    #[arg(value_parser = ["pipeline", "shard", "audit", "manifest", "calibration", "measure", "measure_report"])]
    name: String,
}

impl Schema {
    /// Prints the schema.
    pub fn run(self) -> Result<(), CliError> {
        let schema = schema(&self.name)
            .ok_or_else(|| CliError::Request(format!("there is no schema '{}'", self.name)))?;
        terminal::print_data(&schema)?;
        Ok(())
    }
}

/// The text of a schema, as it stands in `schemas/`.
pub fn schema(name: &str) -> Option<String> {
    let schema = match name {
        "pipeline" => crate::plan::pipeline_schema(),
        "shard" => crate::shard::row_schema(),
        "audit" => crate::audit::schema(),
        "manifest" => crate::shard::manifest_schema(),
        "calibration" => crate::shard::calibration_schema(),
        "measure" => crate::plan::measure_schema(),
        "measure_report" => crate::measure::report_schema(),
        _ => return None,
    };
    Some(format!("{schema:#}\n"))
}
