//! What the logs of one run come to: time, tokens, rate, failures, cost.

use super::attempts::{Attempt, Known, Refusal, Trace, seconds, trace};
use super::join::{JoinReport, join};
use super::rate::impossible;
use super::report::{
    AttemptReport, BadLineReport, CostReport, DatasetReport, EvaluationReport, RateReport,
    ReliabilityReport, RunReport, SelectionReport, StepReport, TimeReport, TokenReport,
    TrainingReport,
};
use super::time::{Category, Done, Spent, split};
use super::{
    Dataset, Reliability, RunRequest, best_interval_days, expected_ettr, mttf_days, utilization,
};
use crate::algo::novelty::effective_tokens;
use crate::logs::{self, Log};
use std::collections::BTreeMap;

/// Tokens per step of a measure file and of a log may differ by this share before they are another run's.
const TOKENS_AGREE: f64 = 1e-3;
/// Where nothing but the learning rate tells, a schedule that ends above this share of its peak, and below the peak,
/// is unfinished. One that never falls has nothing to finish.
const LARGEST_LAST_RATE: f64 = 0.5;
const MICROS_PER_DAY: f64 = 86_400e6;

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
        group: run.group.clone(),
        seed: run.seed,
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
        held_out: held_out(names, &trace),
        training: training(run, &trace, done, &mut inferred, &mut warnings),
        selection: selection(run, dataset.as_ref()),
        dataset: dataset.map(|dataset| {
            let read = distinct_steps(&trace) as f64;
            let unique = dataset.positions as f64 * (1.0 - dataset.repeated_share);
            DatasetReport {
                path: dataset.path.display().to_string(),
                checksum: dataset.name,
                positions: dataset.positions,
                epochs_read: per_step
                    .filter(|_| dataset.positions > 0)
                    .map(|tokens| read * tokens / dataset.positions as f64),
                effective_positions: per_step.map(|tokens| effective_tokens(unique, read * tokens)),
                data_goodput: dataset.data_goodput,
                forecast: dataset.usefulness,
                is_named_in_log: trace.dataset.is_some(),
            }
        }),
        tokens,
        curriculum,
        last_training_loss_nats: trace.last_loss,
        evaluations: losses(&trace),
        bad_lines,
        inferred,
        warnings,
    })
}

/// The last unweighted loss of each split as a whole.
fn losses(trace: &Trace) -> BTreeMap<String, (u64, f64)> {
    let whole = trace.evaluations.iter().filter(|evaluation| {
        evaluation.source.is_none() && !evaluation.is_weighted && evaluation.loss.is_finite()
    });
    whole
        .map(|evaluation| (evaluation.split.clone(), (evaluation.step, evaluation.loss)))
        .collect()
}

fn held_out(names: &[String], trace: &Trace) -> Vec<EvaluationReport> {
    let report = |evaluation: &super::Evaluation| EvaluationReport {
        split: evaluation.split.clone(),
        source: evaluation.source.clone(),
        dataset: evaluation.dataset.clone(),
        is_weighted: evaluation.is_weighted,
        step: evaluation.step,
        loss_nats: Some(evaluation.loss).filter(|loss| loss.is_finite()),
        tokens: evaluation.tokens,
        bytes: evaluation.bytes,
        line: format!("{}:{}", names[evaluation.file], evaluation.line),
    };
    trace.evaluations.iter().map(report).collect()
}

/// What the training was: its compute, and whether its schedule was finished.
fn training(
    run: &RunRequest,
    trace: &Trace,
    done: &Done,
    inferred: &mut Vec<String>,
    warnings: &mut Vec<String>,
) -> TrainingReport {
    let tokens = Some(done.good_tokens).filter(|tokens| *tokens > 0.0);
    let by_model = tokens
        .zip(run.model.as_ref())
        .map(|(tokens, model)| tokens * model.flops_per_token());
    let counted = Some(done.good_flop).filter(|flop| *flop > 0.0);
    if counted.is_some() && by_model.is_none() && done.steps_without_flop > 0 {
        warnings.push(format!(
            "{} steps that count have no 'flops' on their line: the compute of the run is unknown; name the model",
            done.steps_without_flop
        ));
    }
    let by_log = counted.filter(|_| done.steps_without_flop == 0);
    let last_step = trace
        .attempts
        .iter()
        .filter_map(|attempt| attempt.rows.last())
        .map(|row| row.step)
        .max()
        .unwrap_or(0);
    let total_steps = run.total_steps.or(trace.schedule.total_steps);
    let (peak, last) = (trace.schedule.peak, trace.schedule.last);
    let schedule = match (total_steps, peak, last) {
        // Logs that count from 0 end a step earlier.
        (Some(total), ..) => match last_step + 1 >= i64::try_from(total).unwrap_or(i64::MAX) {
            true => "finished",
            false => "unfinished",
        },
        (None, Some(peak), Some(last)) if peak > 0.0 => {
            inferred.push(format!(
                "whether the schedule was finished is told by the learning rate, {last:.3e} at the end of {peak:.3e} at \
                 its peak; 'total_steps' would be exact"
            ));
            match last > LARGEST_LAST_RATE * peak && last < peak {
                true => "unfinished",
                false => "finished",
            }
        }
        _ => "unknown",
    };
    TrainingReport {
        tokens,
        flop: by_model.or(by_log),
        flop_is_of: match (by_model, by_log) {
            (Some(_), _) => Some("model"),
            (None, Some(_)) => Some("log"),
            _ => None,
        },
        active_parameters: run.model.as_ref().map(|model| model.active_parameters),
        last_step,
        total_steps,
        peak_learning_rate: peak,
        last_learning_rate: last,
        schedule,
    }
}

/// What choosing the data cost, where anybody says.
fn selection(run: &RunRequest, dataset: Option<&Dataset>) -> Option<SelectionReport> {
    let recorded = dataset.and_then(|dataset| dataset.core_seconds);
    if run.selection.is_none() && recorded.is_none() {
        return None;
    }
    let asked = run.selection.unwrap_or_default();
    let core_seconds = asked.core_seconds.or(recorded).unwrap_or(0.0);
    Some(SelectionReport {
        core_seconds,
        core_seconds_are_of: match (asked.core_seconds, recorded) {
            (None, Some(_)) => "run.json",
            _ => "request",
        },
        flop_per_core_second: asked.flop_per_core_second,
        flop: core_seconds * asked.flop_per_core_second + asked.flop,
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
    use super::super::open::defaults;
    use super::super::{Convention, Hardware, Report, table};
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
            group: "run".to_string(),
            seed: None,
            total_steps: None,
            selection: None,
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
                progress: None,
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
            core_seconds: None,
            repeated_share: 0.0,
            usefulness: None,
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
                    progress: None,
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
