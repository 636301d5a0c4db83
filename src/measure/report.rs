//! What `goodput measure` tells: the report, and how logs become one.

use super::account::run_report;
use super::join::JoinReport;
use super::open::read;
use super::progress::{ProgressReport, progress};
use super::{Dataset, Forecast, Refusal, Request};
use serde::Serialize;
use std::collections::BTreeMap;

/// The result of `goodput measure`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Version of this format: 1.
    pub version: u32,
    /// What the measurement is called.
    pub name: String,
    /// The runs, in the order of the request.
    pub runs: Vec<RunReport>,
    /// How far the groups came beside the baseline; absent where it is not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressReport>,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunReport {
    /// What it is called.
    pub name: String,
    /// The arm that it belongs to.
    pub group: String,
    /// What pairs it with a run of another arm.
    pub seed: Option<u64>,
    /// Format of its logs.
    pub format: String,
    /// Its logs, in the order of the request.
    pub logs: Vec<String>,
    /// Time of the whole; `null` where it is unknown.
    pub time: Option<TimeReport>,
    /// Why time is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_unknown_because: Option<String>,
    /// Interruptions: attempts after the first.
    pub disruptions: u64,
    /// Its processes, in the order of time.
    pub attempts: Vec<AttemptReport>,
    /// Its steps.
    pub steps: StepReport,
    /// Its token places.
    pub tokens: TokenReport,
    /// Utilization; absent without a model, chips or known durations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateReport>,
    /// What failures cost; absent without nodes or a clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reliability: Option<ReliabilityReport>,
    /// Money; absent without a price or a clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<CostReport>,
    /// The data that it read; absent without a dataset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataset: Option<DatasetReport>,
    /// What the steps read of the dataset, if in order; absent without packed shards or tokens of a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curriculum: Option<JoinReport>,
    /// The last finite training loss of the log, in nats a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_training_loss_nats: Option<f64>,
    /// The last loss of each evaluation, in nats a token, by split: step, loss.
    pub evaluations: BTreeMap<String, (u64, f64)>,
    /// The last evaluation of each split and part.
    pub held_out: Vec<EvaluationReport>,
    /// What the training was.
    pub training: TrainingReport,
    /// What choosing its data cost; absent where nobody says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selection: Option<SelectionReport>,
    /// Lines that could not be read.
    pub bad_lines: BadLineReport,
    /// What was inferred, a sentence each.
    pub inferred: Vec<String>,
    /// What should be looked at, a sentence each.
    pub warnings: Vec<String>,
}

/// Where time went, in whole microseconds: wall = productive + sum of badput + unattributed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimeReport {
    /// From first to last.
    pub wall_microseconds: i64,
    /// In steps that count.
    pub productive_microseconds: i64,
    /// Lost, by category.
    pub badput_microseconds: BTreeMap<&'static str, i64>,
    /// Of which the log says nothing.
    pub unattributed_microseconds: i64,
    /// Productive / wall (eta, also called ETTR).
    pub productive_share: f64,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AttemptReport {
    /// From 1.
    pub number: u64,
    /// First sign of life, in microseconds since 1970.
    pub start_microseconds: Option<i64>,
    /// Where its first event stands: `file:line`.
    pub first_line: String,
    /// The first step that it did.
    pub first_step: Option<i64>,
    /// The last step that it did.
    pub last_step: Option<i64>,
    /// Steps that it did.
    pub steps: i64,
    /// Of these done again by a later attempt.
    pub replayed_steps: i64,
    /// Whether it was told from the one before by a silence alone.
    pub after_inferred_outage: bool,
    /// Whether the log says that it failed.
    pub failed: bool,
    /// Its time, the time between the attempt before and it included as recovery; `null` where unknown.
    pub time: Option<TimeReport>,
}

/// Steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepReport {
    /// Done, replays included.
    pub done: i64,
    /// Of these done again later.
    pub replayed: i64,
    /// Of these skipped or no numbers, and not done again.
    pub lost: i64,
    /// Those that count.
    pub counting: i64,
    /// Of these after the last checkpoint of a run whose log ends with a failure.
    pub unsaved: i64,
    /// Median duration in seconds; `null` where unknown.
    pub median_seconds: Option<f64>,
}

/// Token places. `null` where neither the request nor the log says how many a step has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TokenReport {
    /// Of a step.
    pub per_step: Option<f64>,
    /// Processed, replays included.
    pub processed: Option<f64>,
    /// In steps that count and survive to the last checkpoint.
    pub good: Option<f64>,
    /// R: processed / wall second.
    pub per_second: Option<f64>,
    /// R_g: good / wall second.
    pub good_per_second: Option<f64>,
}

/// Utilization.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RateReport {
    /// How operations are counted.
    pub flop_convention: &'static str,
    /// Floating-point operations of training on a token.
    pub model_flops_per_token: f64,
    /// The same with what is computed again.
    pub hardware_flops_per_token: f64,
    /// Chips.
    pub chips: u64,
    /// Peak of one, in FLOP/s.
    pub peak_flops: Option<f64>,
    /// Token places of steps that count, a second of these steps.
    pub tokens_per_productive_second: f64,
    /// Floating-point operations of the model in all steps that count.
    pub model_flops: f64,
    /// On productive time; `null` where no peak is known.
    pub mfu: Option<f64>,
    /// The same with what is computed again.
    pub hfu: Option<f64>,
    /// eta x MFU; `null` where time is unknown.
    pub delivered_mfu: Option<f64>,
}

/// What failures cost (arXiv 2410.21680).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReliabilityReport {
    /// Nodes.
    pub nodes: u64,
    /// Failures of a node in a day.
    pub failures_per_node_day: f64,
    /// Whether these were counted in the log: its disruptions.
    pub failures_are_measured: bool,
    /// Mean time to failure of the whole, in hours; `null` where nothing failed.
    pub mean_hours_to_failure: Option<f64>,
    /// Mean time from a failure to the next first step, in seconds; `null` without one.
    pub restart_seconds: Option<f64>,
    /// Mean time that training waits for a checkpoint, in seconds; `null` where the log does not say.
    pub checkpoint_seconds: Option<f64>,
    /// Mean time between checkpoints, in seconds.
    pub checkpoint_interval_seconds: Option<f64>,
    /// The interval that loses least, in seconds.
    pub best_checkpoint_interval_seconds: Option<f64>,
    /// Expected productive share at the interval of the log.
    pub expected_share: Option<f64>,
    /// Expected productive share at the best interval.
    pub expected_share_at_best: Option<f64>,
}

/// Money, in the currency of the request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostReport {
    /// Of an hour of all chips.
    pub per_hour: f64,
    /// Of the whole.
    pub total: f64,
    /// Of the time that was lost to anything known.
    pub lost: f64,
    /// Of the time of which nothing is known.
    pub unattributed: f64,
    /// Of an hour that trains: total / productive hours.
    pub per_productive_hour: Option<f64>,
    /// Of a million good tokens.
    pub per_million_good_tokens: Option<f64>,
    /// Of a million reference-equivalent tokens: total / (g x good tokens).
    pub per_million_reference_equivalent_tokens: Option<f64>,
}

/// The data that a run read.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DatasetReport {
    /// The folder.
    pub path: String,
    /// The checksum that names it.
    pub checksum: String,
    /// Token places of all its rows.
    pub positions: u64,
    /// How often the run read it: positions of its steps / positions.
    pub epochs_read: Option<f64>,
    /// D': what the token places that were read are worth in places that are read once, where some were read again
    /// (arXiv 2305.16264); `null` where it is not known how many were read.
    pub effective_positions: Option<f64>,
    /// Forecast data goodput g.
    pub data_goodput: Option<f64>,
    /// Whether the log itself names this dataset.
    pub is_named_in_log: bool,
    /// What the ledger tells of usefulness.
    #[serde(skip)]
    pub forecast: Option<Forecast>,
}

/// The last evaluation of a split, or of a source's part of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EvaluationReport {
    /// Which data.
    pub split: String,
    /// Which source's part of them; `null` for the whole.
    pub source: Option<String>,
    /// Checksum of the data, as the log has it.
    pub dataset: Option<String>,
    /// Whether the loss is weighted: then it counts for nothing.
    pub is_weighted: bool,
    /// After which optimizer step.
    pub step: u64,
    /// Mean loss in nats a token; `null` where it is no number.
    pub loss_nats: Option<f64>,
    /// Tokens that it is the mean of.
    pub tokens: Option<u64>,
    /// UTF-8 bytes of their text.
    pub bytes: Option<u64>,
    /// Where it stands: `file:line`.
    pub line: String,
}

/// What a training was.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainingReport {
    /// Token places of the steps that count; `null` where unknown.
    pub tokens: Option<f64>,
    /// C: floating-point operations of the model in these steps; `null` where unknown. Steps that were done again
    /// count once: what they cost is in the productive share.
    pub flop: Option<f64>,
    /// Where that is from: `model`, its convention times the tokens, or `log`.
    pub flop_is_of: Option<&'static str>,
    /// N: parameters that are active for a token.
    pub active_parameters: Option<u64>,
    /// The last step.
    pub last_step: i64,
    /// The step at which the schedule of the learning rate ends; `null` where nobody says.
    pub total_steps: Option<u64>,
    /// The highest learning rate of the log.
    pub peak_learning_rate: Option<f64>,
    /// The last one.
    pub last_learning_rate: Option<f64>,
    /// Whether the schedule was finished: `finished`, `unfinished`, or `unknown`.
    pub schedule: &'static str,
}

/// What choosing the data cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SelectionReport {
    /// Core seconds.
    pub core_seconds: f64,
    /// Where these are from: `request`, or `run.json` of the dataset.
    pub core_seconds_are_of: &'static str,
    /// What a core second counts as, in FLOP.
    pub flop_per_core_second: f64,
    /// All of it in FLOP: core seconds x flop_per_core_second + operations besides.
    pub flop: f64,
}

/// Lines that could not be read.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BadLineReport {
    /// How many.
    pub count: u64,
    /// The first ones: `file:line: what is wrong`.
    pub first: Vec<String>,
}
/// Measures.
///
/// # Errors
/// Every reason why logs cannot be measured, with file and line.
pub fn measure(request: &Request) -> Result<Report, Vec<Refusal>> {
    let mut runs = Vec::new();
    let mut refusals = Vec::new();
    for run in &request.runs {
        match read(&request.base, run).and_then(|(names, logs, format)| {
            let dataset = match &run.dataset {
                None => None,
                Some(dataset) => Some(Dataset::read(dataset).map_err(|message| {
                    vec![Refusal {
                        file: format!("run '{}'", run.name),
                        line: 0,
                        message,
                    }]
                })?),
            };
            run_report(run, &names, logs, format, dataset)
        }) {
            Ok(report) => runs.push(report),
            Err(found) => refusals.extend(found),
        }
    }
    match refusals.is_empty() {
        true => Ok(Report {
            version: 1,
            name: request.name.clone(),
            progress: request
                .progress
                .as_ref()
                .map(|asked| progress(asked, &runs)),
            runs,
        }),
        false => Err(refusals),
    }
}
