//! `goodput audit`

use super::{CliError, Format, STOP};
use crate::audit::{Audit as Ledger, By, Change, Identity, Threshold, csv, html, table};
use crate::engine;
use crate::terminal::{self, printable_names};
use std::io;
use std::path::PathBuf;

/// Show the token ledger: what was read, kept and turned away, why, and that it adds up.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  goodput audit out/web-mix
  goodput audit out/web-mix --by source
  goodput audit out/web-mix --format json | jq .low_value
  goodput audit out/web-mix --format html > ledger.html
  goodput audit out/web-mix --duplicates               who repeats whom: sources against sources, largest clusters
  goodput audit out/web-mix --threshold 0.2            what would go below 0.2, at once, from histograms
  goodput audit out/web-mix --threshold 0.2 --exact --format csv | grep ^dropped    which documents

A document's score is the mean usefulness of its tokens, before rounding. A token's own usefulness is stored in
a byte (value / 255), so a threshold inside the range of a byte has a smallest and a largest answer; pipelines
with `output.usefulness: f32` have one. A document or token exactly at the threshold is not below it.")]
pub struct Audit {
    /// Output folder of a finished run.
    out: PathBuf,
    /// How the result is written.
    #[arg(long, value_name = "HOW", default_value = "table")]
    format: Format,
    /// What the rows of the table are; reason when absent. Every other format has a row for each of all three.
    #[arg(long, value_name = "WHAT", value_parser = ["source", "stage", "reason"])]
    by: Option<String>,
    /// Show what a threshold on usefulness would drop of what is kept, from 0 to 1.
    #[arg(long, value_name = "T", value_parser = parse_threshold, conflicts_with = "by", allow_negative_numbers = true)]
    threshold: Option<f64>,
    /// With --threshold, read shards and rejects: exact, by source, with the ids of documents that change.
    #[arg(long, requires = "threshold")]
    exact: bool,
    /// Show duplicates by source and between sources, in tokens, and the largest clusters with examples.
    #[arg(long, conflicts_with_all = ["threshold", "by"])]
    duplicates: bool,
}

fn parse_threshold(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(threshold) if (0.0..=1.0).contains(&threshold) => Ok(threshold),
        _ => Err("must be a number from 0 to 1".to_string()),
    }
}

/// Changed documents that a table shows of each kind.
const SHOWN: usize = 5;
/// Text that is held before it is printed.
const PIECE_BYTES: usize = 64 << 10;

impl Audit {
    /// Prints the ledger.
    pub fn run(self) -> Result<(), CliError> {
        let (ledger, text) = super::ledger_of(&self.out, "audit")?;
        match self.threshold {
            _ if self.duplicates => self.duplicates(&ledger),
            Some(threshold) => self.threshold(&ledger, threshold),
            None => self.ledger(ledger, text),
        }
    }

    fn ledger(self, mut ledger: Ledger, text: String) -> Result<(), CliError> {
        // From the rows that are shown, not as they were written: a ledger that was edited shows it.
        ledger.identities = Identity::of(&ledger);
        if self.by.is_some() && self.format != Format::Table {
            return Err(CliError::Request(
                "--by groups the rows of the table; csv, json and html have a row for each source, stage and reason: \
                 leave --by out, or --format"
                    .to_string(),
            ));
        }
        let by = match self.by.as_deref() {
            Some("source") => By::Source,
            Some("stage") => By::Stage,
            _ => By::Reason,
        };
        show(
            self.format,
            &match self.format {
                Format::Table => table(&printable_names(&ledger)?, by),
                Format::Json => text,
                Format::Csv => csv(&ledger),
                Format::Html => html::ledger(&ledger),
            },
        )?;
        all_hold(&ledger.identities)
    }

    fn duplicates(self, ledger: &Ledger) -> Result<(), CliError> {
        let manifest = super::manifest_of(&self.out, "audit")?;
        let memory_bytes = super::default_memory_bytes();
        let found = engine::duplicates(&self.out, &manifest, ledger, memory_bytes, &STOP)?;
        show(
            self.format,
            &match self.format {
                Format::Table => printable_names(&found)?.table(),
                Format::Json => {
                    serde_json::to_string_pretty(&found).map_err(io::Error::other)? + "\n"
                }
                Format::Csv => found.csv(),
                Format::Html => found.html(),
            },
        )?;
        all_hold(&found.identities)
    }

    fn threshold(self, ledger: &Ledger, threshold: f64) -> Result<(), CliError> {
        if self.format == Format::Html {
            return Err(CliError::Request(
                "--threshold is shown as table, json or csv, not as html; the page without it has the histograms".to_string(),
            ));
        }
        if !self.exact {
            let found = Threshold::of(ledger, threshold).ok_or_else(|| {
                CliError::Request(format!(
                    "{}: its pipeline has no 'score' stage, so no threshold applies",
                    self.out.display()
                ))
            })?;
            show(
                self.format,
                &match self.format {
                    Format::Table | Format::Html => printable_names(&found)?.table(&[]),
                    Format::Json => json(&found)? + "\n",
                    Format::Csv => format!("{}{}", Threshold::CSV_HEAD, found.csv()),
                },
            )?;
            return Ok(());
        }
        let manifest = super::manifest_of(&self.out, "audit")?;
        // Any number of documents may change, so they are printed while they are found.
        let mut piece = match self.format {
            Format::Table | Format::Html => String::new(),
            Format::Csv => Threshold::CSV_HEAD.to_string(),
            Format::Json => "{\n  \"documents\": [".to_string(),
        };
        let (mut shown, mut any) = (Vec::new(), false);
        let mut changed = |change: Change<'_>| -> io::Result<()> {
            match self.format {
                Format::Table | Format::Html => {
                    let line = format!(
                        "  {:<9} {}  source {}  score {}\n",
                        change.change,
                        terminal::printable_line(change.doc_id),
                        terminal::printable_line(change.source),
                        change.score
                    );
                    let same = |line: &&String| line.trim_start().starts_with(change.change);
                    if shown.iter().filter(same).count() < SHOWN {
                        shown.push(line);
                    }
                }
                Format::Csv => piece.push_str(&change.csv()),
                Format::Json => {
                    piece.push_str(if any { ",\n    " } else { "\n    " });
                    piece.push_str(&serde_json::to_string(&change)?);
                }
            }
            any = true;
            if piece.len() >= PIECE_BYTES {
                show(self.format, &piece)?;
                piece.clear();
            }
            Ok(())
        };
        let found =
            engine::threshold(&self.out, &manifest, ledger, threshold, &STOP, &mut changed)?;
        match self.format {
            Format::Table | Format::Html => {
                piece.push_str(&printable_names(&found)?.table(&shown));
            }
            Format::Csv => piece.push_str(&found.csv()),
            Format::Json => {
                let sums = json(&found)?;
                piece.push_str(if any { "\n  ]," } else { "]," });
                piece.push_str(sums.strip_prefix('{').expect("a mapping"));
                piece.push('\n');
            }
        }
        show(self.format, &piece)?;
        all_hold(&found.identities)
    }
}

/// Prints a result of this format.
fn show(format: Format, text: &str) -> io::Result<()> {
    match format {
        Format::Table => terminal::print(text),
        Format::Json | Format::Csv | Format::Html => terminal::print_data(text),
    }
}

fn json(found: &Threshold) -> Result<String, CliError> {
    Ok(serde_json::to_string_pretty(found).map_err(io::Error::other)?)
}

fn all_hold(identities: &[Identity]) -> Result<(), CliError> {
    match identities.iter().find(|identity| !identity.holds) {
        Some(broken) => Err(CliError::DoesNotHold(format!(
            "the ledger does not close: {}",
            broken.name
        ))),
        None => Ok(()),
    }
}
