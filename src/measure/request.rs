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
    /// How progress is measured; `None` where it is not asked for.
    pub progress: Option<ProgressRequest>,
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
    /// The arm that it belongs to; its own name where the file does not say.
    pub group: String,
    /// What pairs it with a run of another arm.
    pub seed: Option<u64>,
    /// Optimizer steps that its schedule was made for; `None` to take them from the log.
    pub total_steps: Option<u64>,
    /// What choosing its data cost; `None` to take it from the dataset.
    pub selection: Option<SelectionRequest>,
}

/// What choosing the data cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelectionRequest {
    /// Core seconds; `None` to take those of the dataset's `run.json`.
    pub core_seconds: Option<f64>,
    /// What a core second counts as, in FLOP.
    pub flop_per_core_second: f64,
    /// Operations besides, such as those of scoring on accelerators, in FLOP.
    pub flop: f64,
}

impl Default for SelectionRequest {
    fn default() -> SelectionRequest {
        SelectionRequest {
            core_seconds: None,
            flop_per_core_second: 1e11,
            flop: 0.0,
        }
    }
}

/// How the baseline's curve is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CurveKind {
    /// A monotone curve through the means of its budgets.
    Interpolated,
    /// L = E + K C^-gamma, or L = E + B D^-beta where budgets are tokens.
    PowerLaw,
    /// L = E + A N^-alpha + B D^-beta over models of several sizes, and its compute-optimal frontier.
    Frontier,
}

/// What a budget is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Floating-point operations of the model.
    Flop,
    /// Token places, for models of one size.
    Tokens,
}

impl Budget {
    /// Its name, in the file and in the report.
    pub fn name(self) -> &'static str {
        match self {
            Budget::Flop => "flop",
            Budget::Tokens => "tokens",
        }
    }
}

/// One of the two held-out sets.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldOut {
    /// What the logs call it.
    pub split: String,
    /// UTF-8 bytes of a token of its text, where the logs do not count both.
    pub bytes_per_token: Option<f64>,
}

/// How progress is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgressRequest {
    /// The group that the others are measured against.
    pub baseline: String,
    /// How its curve is made.
    pub curve: CurveKind,
    /// What a budget is counted in.
    pub budget: Budget,
    /// Text of the kind that is wanted.
    pub target: HeldOut,
    /// Text of all kinds: what the target may have cost.
    pub general: HeldOut,
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
    /// Core seconds of the pipeline run that made it, where its `run.json` is there.
    pub core_seconds: Option<f64>,
    /// Share of its tokens that stand in second and later copies of a document.
    pub repeated_share: f64,
    /// What the ledger tells of usefulness, where documents were scored.
    pub usefulness: Option<Forecast>,
    /// How often a run may have read it.
    pub epochs: u64,
    /// Rows of all shards.
    pub rows: u64,
    /// Its shards, in the order of the curriculum; none where they are not to be read.
    pub shards: Vec<PathBuf>,
}

/// What a ledger tells of the usefulness of a dataset before anything is trained.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forecast {
    /// Data goodput g: reference-equivalent tokens of a position.
    pub data_goodput: Option<f64>,
    /// Of each source tokens, and reference-equivalent tokens where there is a reference.
    pub by_source: Vec<(String, u64, Option<f64>)>,
    /// Tokens by stored byte of usefulness: 256 counts.
    pub histogram: Vec<u64>,
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
                .as_ref()
                .and_then(|usefulness| usefulness.worth.data_goodput),
            core_seconds: core_seconds(&request.path)?,
            repeated_share: match audit.emitted.tokens {
                0 => 0.0,
                tokens => audit.emitted.repeated_tokens as f64 / tokens as f64,
            },
            usefulness: audit.usefulness.map(|usefulness| Forecast {
                data_goodput: usefulness.worth.data_goodput,
                by_source: usefulness
                    .by_source
                    .into_iter()
                    .map(|of| (of.source, of.tokens, of.worth.reference_equivalent_tokens))
                    .collect(),
                histogram: usefulness.histogram,
            }),
            epochs: request.epochs,
        })
    }
}

/// Core seconds of `run.json`, which a folder that was copied may lack.
fn core_seconds(folder: &Path) -> Result<Option<f64>, String> {
    #[derive(serde::Deserialize)]
    struct Record {
        core_seconds: f64,
    }
    let path = folder.join("run.json");
    if !path.exists() {
        return Ok(None);
    }
    serde_json::from_str(&text(folder, "run.json")?)
        .map(|record: Record| Some(record.core_seconds))
        .map_err(|error| format!("{}: is no record of a run: {error}", path.display()))
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
