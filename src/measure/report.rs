//! Logs in, a report out.

use super::attempts::{Attempt, Known, Refusal, Trace, seconds, trace};
use super::join::{JoinReport, join};
use super::rate::impossible;
use super::time::{Category, Done, Spent, split};
use super::{
    Dataset, Reliability, Request, RunRequest, best_interval_days, expected_ettr, mttf_days,
    utilization,
};
use crate::logs::{self, HEAD_BYTES, Log};
use crate::record::{Kind, Options, Value};
use crate::source::find_files;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// Tokens per step of a measure file and of a log may differ by this share before they are another run's.
const TOKENS_AGREE: f64 = 1e-3;
const MICROS_PER_DAY: f64 = 86_400e6;

/// The result of `goodput measure`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Version of this format: 1.
    pub version: u32,
    /// What the measurement is called.
    pub name: String,
    /// The runs, in the order of the request.
    pub runs: Vec<RunReport>,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunReport {
    /// What it is called.
    pub name: String,
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
    /// Forecast data goodput g.
    pub data_goodput: Option<f64>,
    /// Whether the log itself names this dataset.
    pub is_named_in_log: bool,
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
            runs,
        }),
        false => Err(refusals),
    }
}

/// Names, logs and format of a run.
type LogsRead = (Vec<String>, Vec<Log>, &'static str);

/// Reads the logs of a run.
fn read(base: &Path, run: &RunRequest) -> Result<LogsRead, Vec<Refusal>> {
    let refuse = |file: String, message: String| {
        vec![Refusal {
            file,
            line: 0,
            message,
        }]
    };
    let owner = format!("run '{}'", run.name);
    let files =
        find_files(base, &run.logs).map_err(|error| refuse(owner.clone(), error.to_string()))?;
    if files.is_empty() {
        let message = format!("no file matches {}; name its logs", run.logs.join(", "));
        return Err(refuse(owner, message));
    }
    let mut opened = Vec::new();
    let mut found: BTreeSet<&'static str> = BTreeSet::new();
    for file in &files {
        let name = file.path.display().to_string();
        let unreadable =
            |error: std::io::Error| refuse(name.clone(), format!("cannot be read: {error}"));
        let mut input = File::open(&file.path).map_err(unreadable)?;
        let mut head = Vec::new();
        (&mut input)
            .take(HEAD_BYTES as u64)
            .read_to_end(&mut head)
            .map_err(unreadable)?;
        input.seek(SeekFrom::Start(0)).map_err(unreadable)?;
        if let Some(how) = logs::packed(&head) {
            return Err(refuse(name, how.to_string()));
        }
        if run.reader.is_none() {
            let formats = logs::guess(&head);
            match formats[..] {
                [kind] => {
                    found.insert(kind.spec.name);
                }
                // A process may have ended before it wrote a line that tells.
                [] => {}
                _ => {
                    let names: Vec<&str> = formats.iter().map(|kind| kind.spec.name).collect();
                    let message = format!(
                        "could be {}; say which: 'reader: {{ format: {} }}'",
                        names.join(" or "),
                        names[0]
                    );
                    return Err(refuse(name, message));
                }
            }
        }
        opened.push((name, input));
    }
    let (kind, options) = match &run.reader {
        Some(reader) => {
            let kind =
                logs::find(&reader.format).expect("the plan knows only formats of the table");
            (kind, reader.options.clone())
        }
        None => {
            let names: Vec<&str> = found.iter().copied().collect();
            let message = match names[..] {
                [name] => {
                    let kind = logs::find(name).expect("found in the table");
                    return finish(kind, &defaults(kind), opened);
                }
                [] => format!(
                    "no known format of training logs; name the right file, or its format: one of {}",
                    logs::TABLE
                        .iter()
                        .map(|kind| kind.spec.name)
                        .collect::<Vec<_>>()
                        .join(", ")
                ),
                _ => format!(
                    "its logs have several formats: {}; measure them as several runs",
                    names.join(", ")
                ),
            };
            let file = match names.is_empty() {
                true => opened[0].0.clone(),
                false => owner,
            };
            return Err(refuse(file, message));
        }
    };
    finish(kind, &options, opened)
}

fn finish(
    kind: &'static logs::LogKind,
    options: &Options,
    opened: Vec<(String, File)>,
) -> Result<LogsRead, Vec<Refusal>> {
    let refuse = |file: &str, message: String| {
        vec![Refusal {
            file: file.to_string(),
            line: 0,
            message,
        }]
    };
    let reader = (kind.build)(options).map_err(|error| {
        refuse(
            kind.spec.name,
            format!(
                "'{}' must be {}, got {}",
                error.option, error.must_be, error.found
            ),
        )
    })?;
    let (mut names, mut read) = (Vec::new(), Vec::new());
    for (name, input) in opened {
        let mut log = Log::default();
        reader
            .read(&mut BufReader::with_capacity(1 << 16, input), &mut log)
            .map_err(|message| refuse(&name, message))?;
        names.push(name);
        read.push(log);
    }
    Ok((names, read, kind.spec.name))
}

/// The options of a format that nobody named.
fn defaults(kind: &logs::LogKind) -> Options {
    let mut options = Options::default();
    for option in kind.spec.options {
        let value = match (option.default, &option.kind) {
            (None | Some("null"), _) => Value::Null,
            (Some(text), Kind::Text) => Value::Text(text.to_string()),
            _ => unreachable!("options of readers are texts, as a test of the table says"),
        };
        options.set(option.name, value);
    }
    options
}

/// The report of a run whose logs have been read.
pub(super) fn run_report(
    run: &RunRequest,
    names: &[String],
    logs: Vec<Log>,
    format: &'static str,
    dataset: Option<Dataset>,
) -> Result<RunReport, Vec<Refusal>> {
    let bad_lines = BadLineReport {
        count: logs.iter().map(|log| log.bad_line_count).sum(),
        first: names
            .iter()
            .zip(&logs)
            .flat_map(|(name, log)| {
                let line = |bad: &logs::BadLine| format!("{name}:{}: {}", bad.line, bad.message);
                log.bad_lines.iter().map(line).collect::<Vec<_>>()
            })
            .take(20)
            .collect(),
    };
    let known = Known {
        chips: run.hardware.as_ref().map(|hardware| hardware.chips),
        sequence_tokens: run
            .model
            .as_ref()
            .map(|model| model.sequence_tokens)
            .filter(|&tokens| tokens > 0),
    };
    let trace = trace(names, logs, known)?;
    let steps = trace
        .attempts
        .iter()
        .map(|attempt| attempt.rows.len())
        .sum::<usize>();
    if steps == 0 {
        let first = bad_lines
            .first
            .first()
            .map_or(String::new(), |bad| format!("; {bad}"));
        return Err(vec![Refusal {
            file: names.first().cloned().unwrap_or_default(),
            line: 0,
            message: format!("holds no training step that '{format}' can read{first}"),
        }]);
    }
    refuse_other_data(run, names, &trace, dataset.as_ref())?;
    let per_step = run
        .tokens_per_step
        .map(|tokens| tokens as f64)
        .or(trace.tokens_per_step);
    let split = split(&trace, per_step, run.counts_time_between_attempts);
    let whole = split.spent.as_ref();

    let unsaved = unsaved_steps(&trace);
    let mut inferred = trace.inferred.clone();
    inferred.extend(split.inferred.iter().cloned());
    let mut warnings = trace.warnings.clone();
    if run.tokens_per_step.is_none() && trace.tokens_per_step.is_some() && !trace.tokens_are_counts
    {
        inferred.push(
            "tokens of a step are the log's rate x chips x time; 'tokens_per_step' would be exact"
                .to_string(),
        );
    }
    if bad_lines.count > 0 {
        warnings.push(format!(
            "{} lines could not be read",
            crate::audit::grouped(bad_lines.count)
        ));
    }
    if unsaved > 0 {
        warnings.push(format!(
            "the log ends with a failure {unsaved} steps after the last checkpoint: their tokens are not good yet"
        ));
    }
    let done = &split.done;
    let curriculum = curriculum(run, names, &trace, dataset.as_ref(), done, &mut warnings)?;
    let counting = done.steps - done.replayed_steps - done.lost_steps;
    let good = done.good_tokens * (counting - unsaved) as f64 / counting.max(1) as f64;
    let per_wall_second = |tokens: f64| {
        whole
            .filter(|whole| whole.wall > 0)
            .map(|whole| tokens / (whole.wall as f64 / 1e6))
    };
    let has_tokens = done.tokens > 0.0;
    let tokens = TokenReport {
        per_step,
        processed: has_tokens.then_some(done.tokens),
        good: has_tokens.then_some(good),
        per_second: has_tokens.then(|| per_wall_second(done.tokens)).flatten(),
        good_per_second: has_tokens.then(|| per_wall_second(good)).flatten(),
    };
    let rate = rate(run, done, whole, &mut warnings);
    let time_unknown_because = whole.is_none().then(|| {
        let rows = trace.attempts.iter().flat_map(|attempt| &attempt.rows);
        let without = rows.filter(|row| row.at_micros.is_none()).count();
        match without == steps {
            true => format!("logs of '{format}' as they are here have no time of day"),
            false => format!("{without} of {steps} lines of steps have no time of day"),
        }
    });
    Ok(RunReport {
        name: run.name.clone(),
        format: format.to_string(),
        logs: names.to_vec(),
        time: whole.map(time_report),
        time_unknown_because,
        disruptions: trace.attempts.len().saturating_sub(1) as u64,
        attempts: attempts(names, &trace, &split.attempts),
        steps: StepReport {
            done: done.steps,
            replayed: done.replayed_steps,
            lost: done.lost_steps,
            counting,
            unsaved,
            median_seconds: trace.median_step_micros.map(|micros| micros as f64 / 1e6),
        },
        rate,
        reliability: reliability(run, &trace, &split.attempts, whole),
        cost: cost(run, whole, has_tokens.then_some(good), dataset.as_ref()),
        dataset: dataset.map(|dataset| {
            let read = distinct_steps(&trace) as f64;
            DatasetReport {
                path: dataset.path.display().to_string(),
                checksum: dataset.name,
                positions: dataset.positions,
                epochs_read: per_step
                    .filter(|_| dataset.positions > 0)
                    .map(|tokens| read * tokens / dataset.positions as f64),
                data_goodput: dataset.data_goodput,
                is_named_in_log: trace.dataset.is_some(),
            }
        }),
        tokens,
        curriculum,
        last_training_loss_nats: trace.last_loss,
        evaluations: trace.evaluations.clone(),
        bad_lines,
        inferred,
        warnings,
    })
}

fn time_report(spent: &Spent) -> TimeReport {
    TimeReport {
        wall_microseconds: spent.wall,
        productive_microseconds: spent.productive,
        badput_microseconds: spent
            .badput
            .iter()
            .map(|(category, micros)| (category.name(), *micros))
            .collect(),
        unattributed_microseconds: spent.unattributed,
        productive_share: match spent.wall {
            0 => 0.0,
            wall => spent.productive as f64 / wall as f64,
        },
    }
}

fn attempts(names: &[String], trace: &Trace, split: &[(Spent, Done)]) -> Vec<AttemptReport> {
    let report =
        |(at, (attempt, (spent, done))): (usize, (&Attempt, &(Spent, Done)))| AttemptReport {
            number: at as u64 + 1,
            start_microseconds: attempt.start,
            first_line: format!("{}:{}", names[attempt.first.0], attempt.first.1),
            first_step: attempt.rows.first().map(|row| row.after + 1),
            last_step: attempt.rows.last().map(|row| row.step),
            steps: done.steps,
            replayed_steps: done.replayed_steps,
            after_inferred_outage: attempt.after_silence,
            failed: attempt.failed,
            time: trace.has_clock.then(|| time_report(spent)),
        };
    trace
        .attempts
        .iter()
        .zip(split)
        .enumerate()
        .map(report)
        .collect()
}

/// Steps from the first to the last, each once.
fn distinct_steps(trace: &Trace) -> i64 {
    let first = trace
        .attempts
        .iter()
        .flat_map(|a| a.rows.first())
        .map(|row| row.after)
        .min();
    let last = trace
        .attempts
        .iter()
        .flat_map(|a| a.rows.last())
        .map(|row| row.step)
        .max();
    first.zip(last).map_or(0, |(first, last)| last - first)
}

/// Steps after the last checkpoint, where the log ends with a failure and says what was saved.
fn unsaved_steps(trace: &Trace) -> i64 {
    let Some(last) = trace.attempts.last().filter(|attempt| attempt.failed) else {
        return 0;
    };
    let (Some(reached), Some(saved)) = (last.rows.last().map(|row| row.step), last.saved_step)
    else {
        return 0;
    };
    let lost: i64 = last
        .rows
        .iter()
        .filter(|row| row.step > saved)
        .map(|row| row.lost_steps)
        .sum();
    (reached - saved - lost).max(0)
}

/// A log of other data cannot be measured with these.
fn refuse_other_data(
    run: &RunRequest,
    names: &[String],
    trace: &Trace,
    dataset: Option<&Dataset>,
) -> Result<(), Vec<Refusal>> {
    let first = trace
        .attempts
        .iter()
        .find_map(|attempt| attempt.rows.first());
    let mut refusals = Vec::new();
    let mut refuse = |(file, line): (usize, u64), message: String| {
        refusals.push(Refusal {
            file: names[file].clone(),
            line,
            message,
        });
    };
    let place = first.map_or((0, 0), |row| (row.file, row.line));
    if let (Some(asked), Some(found), true) = (
        run.tokens_per_step,
        trace.tokens_per_step,
        trace.tokens_are_counts,
    ) && (found / asked as f64 - 1.0).abs() > TOKENS_AGREE
    {
        refuse(
            place,
            format!(
                "steps of this log have {} tokens, but 'tokens_per_step' is {}; correct it, or name the right log",
                crate::audit::grouped(found.round() as u64),
                crate::audit::grouped(asked)
            ),
        );
    }
    if let Some(dataset) = dataset {
        if let Some((named, file, line)) = &trace.dataset
            && *named != dataset.name
        {
            refuse(
                (*file, *line),
                format!(
                    "reads dataset {named}, but {} is {}; name the folder that this run read",
                    dataset.path.display(),
                    dataset.name
                ),
            );
        }
        if let Some(tokens) = counted_tokens(run, trace) {
            if let Some(row) = dataset
                .row_positions
                .filter(|&row| row > 0 && tokens % row != 0)
            {
                refuse(
                    place,
                    format!(
                        "a step of {} tokens is no whole number of rows: those of {} have {} positions; name the folder \
                         that this run read",
                        crate::audit::grouped(tokens),
                        dataset.path.display(),
                        crate::audit::grouped(row)
                    ),
                );
            }
            let read = (distinct_steps(trace).max(0) as u64).saturating_mul(tokens);
            let most = dataset.positions.saturating_mul(dataset.epochs);
            // The last step may be filled up from the beginning.
            if read >= most.saturating_add(tokens) {
                let last = trace
                    .attempts
                    .iter()
                    .filter_map(|attempt| attempt.rows.last())
                    .max_by_key(|row| row.step);
                refuse(
                    last.map_or(place, |row| (row.file, row.line)),
                    format!(
                        "up to here the run read {} tokens, but {} holds {} positions; name the folder that it read, or \
                         how often it may have read it ('epochs', {})",
                        crate::audit::grouped(read),
                        dataset.path.display(),
                        crate::audit::grouped(dataset.positions),
                        dataset.epochs
                    ),
                );
            }
        }
    }
    match refusals.is_empty() {
        true => Ok(()),
        false => Err(refusals),
    }
}

/// Tokens of a step, where they are given or counted by the log.
fn counted_tokens(run: &RunRequest, trace: &Trace) -> Option<u64> {
    run.tokens_per_step.or_else(|| {
        let counted = trace.tokens_per_step.filter(|_| trace.tokens_are_counts);
        counted.map(|tokens| tokens.round() as u64)
    })
}

/// What the steps read, where rows are of one length and a step's tokens are known.
fn curriculum(
    run: &RunRequest,
    names: &[String],
    trace: &Trace,
    dataset: Option<&Dataset>,
    done: &Done,
    warnings: &mut Vec<String>,
) -> Result<Option<JoinReport>, Vec<Refusal>> {
    let Some(dataset) = dataset.filter(|dataset| !dataset.shards.is_empty()) else {
        return Ok(None);
    };
    let (Some(row), Some(tokens)) = (dataset.row_positions, counted_tokens(run, trace)) else {
        let what = match dataset.row_positions {
            None => "the rows of the dataset are not packed to one length",
            Some(_) => "neither the log nor 'tokens_per_step' counts the tokens of a step",
        };
        warnings.push(format!("steps are not joined with documents: {what}"));
        return Ok(None);
    };
    let joined = join(trace, names, dataset, row, tokens, done.replayed_steps)
        .map_err(|refusal| vec![refusal])?;
    let order = joined.as_ref().and_then(|it| it.reading_order.as_ref());
    if let Some(first) = order.and_then(|order| order.differences.first()) {
        warnings.push(format!(
            "the trainer did not read the rows in the order of the manifest: {} {}; what the steps read, and what a loss \
             spike names, is not what is shown",
            first.line,
            first.kind.words()
        ));
    }
    Ok(joined)
}

fn rate(
    run: &RunRequest,
    done: &Done,
    whole: Option<&Spent>,
    warnings: &mut Vec<String>,
) -> Option<RateReport> {
    let (model, hardware) = (run.model.as_ref()?, run.hardware.as_ref()?);
    if done.timed_micros <= 0 || done.timed_tokens <= 0.0 {
        return None;
    }
    let tokens_per_second = done.timed_tokens / (done.timed_micros as f64 / 1e6);
    let of = |flops: f64| {
        let peak = hardware.peak_flops?;
        Some(utilization(tokens_per_second, flops, hardware.chips, peak))
    };
    let mfu = of(model.flops_per_token());
    if let Some(mfu) = mfu {
        warnings.extend(impossible(mfu, model));
    }
    let eta = whole
        .filter(|whole| whole.wall > 0)
        .map(|whole| whole.productive as f64 / whole.wall as f64);
    Some(RateReport {
        flop_convention: model.convention.name(),
        model_flops_per_token: model.flops_per_token(),
        hardware_flops_per_token: model.hardware_flops_per_token(),
        chips: hardware.chips,
        peak_flops: hardware.peak_flops,
        tokens_per_productive_second: tokens_per_second,
        model_flops: done.good_tokens * model.flops_per_token(),
        mfu,
        hfu: of(model.hardware_flops_per_token()),
        delivered_mfu: mfu.zip(eta).map(|(mfu, eta)| mfu * eta),
    })
}

fn reliability(
    run: &RunRequest,
    trace: &Trace,
    split: &[(Spent, Done)],
    whole: Option<&Spent>,
) -> Option<ReliabilityReport> {
    let hardware = run.hardware.as_ref()?;
    let nodes = hardware.nodes?;
    let whole = whole.filter(|whole| whole.wall > 0)?;
    let days = whole.wall as f64 / MICROS_PER_DAY;
    let disruptions = trace.attempts.len() - 1;
    let failures = hardware
        .failures_per_node_day
        .unwrap_or(disruptions as f64 / (nodes as f64 * days));
    let restart: Option<f64> = (disruptions > 0).then(|| {
        const RESTART: [Category; 5] = [
            Category::Recovery,
            Category::Init,
            Category::Prep,
            Category::Compile,
            Category::CheckpointRestore,
        ];
        let later = split.iter().skip(1).flat_map(|(spent, _)| &spent.badput);
        let micros: i64 = later
            .filter(|(category, _)| RESTART.contains(category))
            .map(|(_, micros)| micros)
            .sum();
        micros as f64 / disruptions as f64
    });
    let saves: Vec<i64> = trace
        .attempts
        .iter()
        .flat_map(|a| a.saves.iter().copied())
        .collect();
    let write = (!saves.is_empty()).then(|| saves.iter().sum::<i64>() as f64 / saves.len() as f64);
    let interval = (!saves.is_empty()).then(|| {
        let running: i64 = trace
            .attempts
            .iter()
            .filter_map(|a| Some(a.end? - a.start?))
            .sum();
        running as f64 / saves.len() as f64
    });
    let it = write.filter(|_| failures > 0.0).map(|write| Reliability {
        nodes: nodes as f64,
        failures_per_node_day: failures,
        restart_days: restart.unwrap_or(0.0) / MICROS_PER_DAY,
        write_days: write / MICROS_PER_DAY,
    });
    let best = it.as_ref().map(best_interval_days);
    Some(ReliabilityReport {
        nodes,
        failures_per_node_day: failures,
        failures_are_measured: hardware.failures_per_node_day.is_none(),
        mean_hours_to_failure: (failures > 0.0).then(|| {
            let it = Reliability {
                nodes: nodes as f64,
                failures_per_node_day: failures,
                restart_days: 0.0,
                write_days: 0.0,
            };
            24.0 * mttf_days(&it)
        }),
        restart_seconds: restart.map(|micros| micros / 1e6),
        checkpoint_seconds: write.map(|micros| micros / 1e6),
        checkpoint_interval_seconds: interval.map(|micros| micros / 1e6),
        best_checkpoint_interval_seconds: best.map(|days| days * 86_400.0),
        expected_share: it
            .as_ref()
            .zip(interval)
            .map(|(it, interval)| expected_ettr(it, interval / MICROS_PER_DAY)),
        expected_share_at_best: it
            .as_ref()
            .zip(best)
            .map(|(it, best)| expected_ettr(it, best)),
    })
}

fn cost(
    run: &RunRequest,
    whole: Option<&Spent>,
    good_tokens: Option<f64>,
    dataset: Option<&Dataset>,
) -> Option<CostReport> {
    let hardware = run.hardware.as_ref()?;
    let per_hour = hardware.chips as f64 * hardware.price_per_chip_hour?;
    let whole = whole?;
    let of = |micros: i64| per_hour * (micros as f64 / 3.6e9);
    let total = of(whole.wall);
    let good = good_tokens.filter(|tokens| *tokens > 0.0);
    let useful = dataset
        .and_then(|dataset| dataset.data_goodput)
        .filter(|goodput| *goodput > 0.0)
        .zip(good)
        .map(|(goodput, tokens)| goodput * tokens);
    Some(CostReport {
        per_hour,
        total,
        lost: of(whole.lost()),
        unattributed: of(whole.unattributed),
        per_productive_hour: (whole.productive > 0)
            .then(|| total / (whole.productive as f64 / 3.6e9)),
        per_million_good_tokens: good.map(|tokens| 1e6 * total / tokens),
        per_million_reference_equivalent_tokens: useful.map(|tokens| 1e6 * total / tokens),
    })
}

/// A duration in microseconds for people.
pub(super) fn duration(micros: i64) -> String {
    let whole = micros / 1_000_000;
    match whole {
        ..=119 => seconds(micros),
        120..=7_199 => format!("{} min {:02} s", whole / 60, whole % 60),
        7_200..=172_799 => format!("{} h {:02} min", whole / 3_600, whole % 3_600 / 60),
        _ => format!("{} d {:02} h", whole / 86_400, whole % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::palm;
    use super::super::{Convention, Hardware, table};
    use super::*;

    fn run_of(tokens_per_step: Option<u64>) -> RunRequest {
        RunRequest {
            name: "run".to_string(),
            logs: Vec::new(),
            reader: None,
            tokens_per_step,
            counts_time_between_attempts: true,
            model: None,
            hardware: None,
            dataset: None,
        }
    }

    fn hardware(chips: u64, peak_teraflops: f64, price: f64) -> Hardware {
        Hardware {
            chips,
            chip: None,
            peak_flops: Some(peak_teraflops * 1e12),
            price_per_chip_hour: Some(price),
            nodes: None,
            failures_per_node_day: None,
        }
    }

    fn reported(
        run: &RunRequest,
        format: &'static str,
        text: &[u8],
        dataset: Option<Dataset>,
    ) -> Result<RunReport, Vec<String>> {
        let kind = logs::find(format).expect("listed");
        let reader = (kind.build)(&defaults(kind)).expect("defaults are valid");
        let mut log = Log::default();
        reader.read(&mut { text }, &mut log).expect("read");
        let report = run_report(run, &["log".to_string()], vec![log], format, dataset);
        report.map_err(|refusals| refusals.iter().map(ToString::to_string).collect())
    }

    fn step(ts: u64, step: u64, more: &str) -> String {
        format!("{{\"ts\":{ts},\"kind\":\"step\",\"step\":{step},\"dur_s\":8640{more}}}\n")
    }

    /// A day of ten steps of 1e11 tokens, of which two are done again: 20 % is lost.
    fn a_day() -> String {
        let mut text = String::new();
        for number in 1..=5 {
            text += &step(8640 * number, number, "");
        }
        text += "{\"ts\":43200,\"kind\":\"ckpt_restore\",\"step\":3}\n";
        for number in 6..=10 {
            text += &step(8640 * number, number - 2, "");
        }
        text
    }

    #[test]
    fn four_thousand_chips_that_lose_a_fifth_of_a_day() {
        let mut run = run_of(Some(100_000_000_000));
        let mut model = palm(100e9, 1, 1, 1, 1);
        model.convention = Convention::SixN;
        run.model = Some(model);
        run.hardware = Some(hardware(4000, 989.0, 2.0));
        let report = reported(&run, "events", a_day().as_bytes(), None).expect("measurable");
        assert_eq!(report.tokens.processed, Some(1e12));
        assert_eq!(report.tokens.good, Some(8e11));
        let cost = report.cost.as_ref().expect("a price");
        assert_eq!(
            (cost.per_hour, cost.total, cost.lost, cost.unattributed),
            (8000.0, 192_000.0, 38_400.0, 0.0)
        );
        assert_eq!(cost.per_million_good_tokens, Some(0.24));
        let time = report.time.as_ref().expect("a clock");
        assert_eq!(time.productive_share, 0.8);
        let rate = report.rate.as_ref().expect("a model");
        assert!((rate.mfu.expect("a peak") - 1.755).abs() < 1e-3);
        assert!((rate.delivered_mfu.expect("a clock") - 0.8 * 1.7553).abs() < 1e-3);
        assert!(
            report.warnings.iter().any(|text| text.contains("175.5 %")),
            "{:?}",
            report.warnings
        );
        let shown = table(
            &Report {
                version: 1,
                name: "x".to_string(),
                runs: vec![report],
            },
            &str::to_string,
        );
        for part in [
            "80.00 %",
            "- wasted_progress",
            "192,000 (8,000 an hour); lost 38,400",
            "2 done again",
            "warning: the implied MFU",
        ] {
            assert!(shown.contains(part), "{part} in\n{shown}");
        }
    }

    #[test]
    fn tokens_that_cannot_be_those_of_the_request_are_refused() {
        let log = step(8640, 1, ",\"tokens\":4096") + &step(17280, 2, ",\"tokens\":4096");
        let refusals =
            reported(&run_of(Some(8192)), "events", log.as_bytes(), None).expect_err("refused");
        assert!(refusals[0].starts_with(
            "log:1: steps of this log have 4,096 tokens, but 'tokens_per_step' is 8,192"
        ));
        assert!(reported(&run_of(Some(4096)), "events", log.as_bytes(), None).is_ok());
    }

    fn dataset(positions: u64, row: Option<u64>) -> Option<Dataset> {
        Some(Dataset {
            path: "out".into(),
            name: "abc".to_string(),
            positions,
            row_positions: row,
            data_goodput: Some(0.5),
            epochs: 1,
            rows: 0,
            shards: Vec::new(),
        })
    }

    #[test]
    fn a_log_of_another_dataset_is_refused_with_its_line() {
        let log = step(8640, 1, ",\"tokens\":4096") + &step(17280, 2, ",\"tokens\":4096");
        let of = |data| reported(&run_of(None), "events", log.as_bytes(), data);
        assert!(of(dataset(8192, Some(2048))).is_ok(), "exactly all of it");
        // The last step may begin again, so one step more is possible and two are not.
        assert!(of(dataset(4097, None)).is_ok());
        let refusals = of(dataset(4096, None)).expect_err("refused");
        assert!(
            refusals[0].starts_with(
                "log:2: up to here the run read 8,192 tokens, but out holds 4,096 positions"
            ),
            "{refusals:?}"
        );
        let refusals = of(dataset(100_000, Some(3000))).expect_err("refused");
        assert!(refusals[0].contains("no whole number of rows"));
        let named = |name: &str| {
            format!("{{\"ts\":0,\"kind\":\"job_start\",\"tag\":\"dataset={name}\"}}\n{log}")
        };
        let with = |name: &str| {
            reported(
                &run_of(None),
                "events",
                named(name).as_bytes(),
                dataset(100_000, None),
            )
        };
        assert!(
            with("abc")
                .expect("measurable")
                .dataset
                .is_some_and(|data| data.is_named_in_log)
        );
        assert!(
            with("abd").expect_err("refused")[0]
                .starts_with("log:1: reads dataset abd, but out is abc")
        );
    }

    #[test]
    fn a_reference_equivalent_token_costs_what_g_says() {
        let mut run = run_of(None);
        run.hardware = Some(hardware(10, 1.0, 1.0));
        let log = step(8640, 1, ",\"tokens\":4096") + &step(17280, 2, ",\"tokens\":4096");
        let report =
            reported(&run, "events", log.as_bytes(), dataset(100_000, None)).expect("measurable");
        let cost = report.cost.expect("a price");
        assert_eq!(cost.total, 48.0);
        assert_eq!(
            cost.per_million_reference_equivalent_tokens,
            Some(1e6 * 48.0 / 4096.0)
        );
        assert_eq!(
            report.dataset.and_then(|data| data.epochs_read),
            Some(0.08192)
        );
    }

    #[test]
    fn every_format_has_steps_and_time_only_with_a_clock() {
        for kind in logs::TABLE {
            let name = kind.spec.name;
            let report = reported(&run_of(None), name, kind.sample, None).expect("measurable");
            let has_clock = !["nanogpt", "hf_trainer", "lightning_csv"].contains(&name);
            assert_eq!(report.time.is_some(), has_clock, "{name}");
            assert_eq!(report.time_unknown_because.is_none(), has_clock, "{name}");
            assert!(
                report.steps.counting > 0 && report.attempts.len() == 1,
                "{name}: {report:?}"
            );
            let shown = table(
                &Report {
                    version: 1,
                    name: "x".to_string(),
                    runs: vec![report],
                },
                &str::to_string,
            );
            assert_eq!(
                shown.contains("time goodput                         unknown"),
                !has_clock,
                "{name}\n{shown}"
            );
            assert!(has_clock || !shown.contains("100.00 %"), "never 100 %");
        }
    }

    #[test]
    fn megatron_tokens_are_samples_times_sequence_length_and_skipped_steps_are_lost() {
        let mut run = run_of(None);
        run.model = Some(palm(1e9, 2, 4, 8, 2048));
        run.hardware = Some(hardware(8, 100.0, 1.0));
        let kind = logs::find("megatron").expect("listed");
        let report = reported(&run, "megatron", kind.sample, None).expect("measurable");
        assert_eq!(report.tokens.per_step, Some(128.0 * 2048.0));
        assert_eq!((report.steps.done, report.steps.lost), (30, 1));
        let time = report.time.expect("a clock");
        assert_eq!(time.badput_microseconds["wasted_progress"], 2_000_000);
        assert_eq!(time.badput_microseconds["checkpoint_save"], 3_001_250);
        assert_eq!(time.wall_microseconds, 64_000_000);
    }

    #[test]
    fn torchtitan_tokens_are_a_rate_of_each_chip() {
        let mut run = run_of(None);
        run.hardware = Some(hardware(4, 100.0, 1.0));
        let kind = logs::find("torchtitan").expect("listed");
        let report = reported(&run, "torchtitan", kind.sample, None).expect("measurable");
        // 2,048 tokens a second and chip, 18 s for 9 steps.
        assert_eq!(report.tokens.per_step, Some(2048.0 * 4.0 * 2.0));
        assert!(
            report
                .inferred
                .iter()
                .any(|said| said.contains("'tokens_per_step' would be exact"))
        );
    }

    #[test]
    fn steps_after_the_last_checkpoint_of_a_failure_are_not_good_yet() {
        let log = step(8640, 1, ",\"tokens\":10")
            + &step(17280, 2, ",\"tokens\":10")
            + "{\"ts\":17300,\"kind\":\"ckpt_save\",\"step\":2,\"dur_s\":20}\n"
            + &step(25940, 3, ",\"tokens\":10")
            + "{\"ts\":25950,\"kind\":\"failure\"}\n";
        let report = reported(&run_of(None), "events", log.as_bytes(), None).expect("measurable");
        assert_eq!((report.steps.unsaved, report.tokens.good), (1, Some(20.0)));
    }

    #[test]
    fn failures_of_the_log_give_the_best_interval() {
        let mut run = run_of(None);
        let mut cluster = hardware(16, 1.0, 1.0);
        cluster.nodes = Some(2);
        run.hardware = Some(cluster);
        let mut text = a_day();
        text += "{\"ts\":86500,\"kind\":\"ckpt_save\",\"step\":8,\"dur_s\":100}\n";
        let report = reported(&run, "events", text.as_bytes(), None).expect("measurable");
        let it = report.reliability.expect("nodes");
        let days = 86_500.0 / 86_400.0;
        assert!((it.failures_per_node_day - 1.0 / (2.0 * days)).abs() < 1e-12);
        assert!((it.mean_hours_to_failure.expect("one failed") - 24.0 * days).abs() < 1e-9);
        // sqrt(2 w MTTF)
        let best = (2.0 * 100.0 * 86_500.0_f64).sqrt();
        assert!((it.best_checkpoint_interval_seconds.expect("known") - best).abs() < 1e-6);
    }

    #[test]
    fn a_log_without_a_step_is_refused_with_its_first_bad_line() {
        let refusals = reported(&run_of(None), "events", b"hello\n", None).expect_err("refused");
        assert!(
            refusals[0].contains("holds no training step")
                && refusals[0].contains("log:1: is no JSON"),
            "{refusals:?}"
        );
    }
}
