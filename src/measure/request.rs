//! What is asked for, checked.

use super::{Hardware, Model};
use crate::audit::Audit;
use crate::record::Options;
use crate::shard::Manifest;
use std::path::{Path, PathBuf};

/// What to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// What the measurement is called.
    pub name: String,
    /// The folder from which globs go.
    pub base: PathBuf,
    /// The runs, in the order of the file. At least one.
    pub runs: Vec<RunRequest>,
}

/// One run: a training from its first step to its last, over any number of processes.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRequest {
    /// What it is called.
    pub name: String,
    /// Globs of its logs, absolute or relative to [`Request::base`].
    pub logs: Vec<String>,
    /// The format of the logs; `None` to tell it from their contents.
    pub reader: Option<ReaderRequest>,
    /// Token places of an optimizer step, over all chips; `None` to take them from the log.
    pub tokens_per_step: Option<u64>,
    /// Whether the time between attempts is part of the wall clock.
    pub counts_time_between_attempts: bool,
    /// The model that was trained.
    pub model: Option<Model>,
    /// What it was trained on.
    pub hardware: Option<Hardware>,
    /// The data that it read.
    pub dataset: Option<DatasetRequest>,
}

/// A format with its options.
#[derive(Clone, Debug, PartialEq)]
pub struct ReaderRequest {
    /// A name of [`crate::logs::TABLE`].
    pub format: String,
    /// Its checked options.
    pub options: Options,
}

/// An output folder that a run read.
#[derive(Clone, Debug, PartialEq)]
pub struct DatasetRequest {
    /// The folder, absolute or relative to the current folder.
    pub path: PathBuf,
    /// How often a run may have read it.
    pub epochs: u64,
    /// Whether its shards are read, to join steps with documents.
    pub reads_shards: bool,
}

/// What is known of an output folder.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// The folder.
    pub path: PathBuf,
    /// The checksum that names it.
    pub name: String,
    /// Token places of all rows.
    pub positions: u64,
    /// Token places of a row, where all rows are of one length.
    pub row_positions: Option<u64>,
    /// Forecast data goodput g, where documents were scored against a reference.
    pub data_goodput: Option<f64>,
    /// How often a run may have read it.
    pub epochs: u64,
    /// Rows of all shards.
    pub rows: u64,
    /// Its shards, in the order of the curriculum; none where they are not to be read.
    pub shards: Vec<PathBuf>,
}

impl Dataset {
    /// Reads manifest and ledger of an output folder.
    ///
    /// # Errors
    /// When it is no output folder of a finished run, or damaged.
    pub fn read(request: &DatasetRequest) -> Result<Dataset, String> {
        let manifest = Manifest::parse(&text(&request.path, "manifest.json")?)
            .map_err(|error| format!("{} {error}", request.path.join("manifest.json").display()))?;
        let audit: Audit =
            serde_json::from_str(&text(&request.path, "audit.json")?).map_err(|error| {
                format!(
                    "{}: is not a ledger of this version: {error}",
                    request.path.join("audit.json").display()
                )
            })?;
        let row_positions = match manifest.pack.method.as_str() {
            "none" => None,
            _ => manifest.pack.parameters["sequence_tokens"].as_u64(),
        };
        let shards = manifest
            .files
            .iter()
            .filter(|file| file.path.starts_with("shards/"));
        let mut shards: Vec<PathBuf> = shards.map(|file| request.path.join(&file.path)).collect();
        shards.sort();
        if !request.reads_shards {
            shards.clear();
        }
        Ok(Dataset {
            rows: manifest.totals.rows,
            shards,
            path: request.path.clone(),
            name: manifest.checksum,
            positions: manifest.totals.positions,
            row_positions,
            data_goodput: audit
                .usefulness
                .and_then(|usefulness| usefulness.worth.data_goodput),
            epochs: request.epochs,
        })
    }
}

fn text(folder: &Path, name: &str) -> Result<String, String> {
    let path = folder.join(name);
    std::fs::read_to_string(&path).map_err(|error| {
        format!(
            "{}: {error}; 'dataset' takes the output folder of a finished run",
            path.display()
        )
    })
}
