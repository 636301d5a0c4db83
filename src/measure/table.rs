//! The report for people.

use super::account::duration;
use super::progress_table::progress_table;
use super::{Category, JoinReport, PUBLISHED, Report, RunReport, TimeReport};
use crate::audit::grouped;
use std::fmt::Write;

/// Attempts that a table lists.
const ATTEMPTS_SHOWN: usize = 20;
/// Sources that a part of the steps lists.
const SOURCES_SHOWN: usize = 4;
/// Documents that a loss spike lists.
const DOCUMENTS_SHOWN: usize = 5;
/// Bad lines that a table lists.
const BAD_LINES_SHOWN: usize = 5;

/// The report as text. `shown` makes names printable on one line.
pub fn table(report: &Report, shown: &dyn Fn(&str) -> String) -> String {
    let mut out = String::new();
    for (at, run) in report.runs.iter().enumerate() {
        if at > 0 {
            out.push('\n');
        }
        run_table(&mut out, run, shown);
    }
    if let Some(progress) = &report.progress {
        out.push('\n');
        progress_table(&mut out, progress, shown);
    }
    out
}

pub(super) fn count(tokens: f64) -> String {
    grouped(tokens.round() as u64)
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

pub(super) fn money(amount: f64) -> String {
    let whole = grouped(amount.trunc().max(0.0) as u64);
    let hundredths = (amount.fract() * 100.0).round() as u64;
    match hundredths {
        0 => whole,
        100.. => grouped(amount.round() as u64),
        _ => format!("{whole}.{hundredths:02}"),
    }
}

pub(super) fn line(out: &mut String, label: &str, value: &str) {
    let _ = writeln!(out, "  {label:<36} {value}");
}

fn run_table(out: &mut String, run: &RunReport, shown: &dyn Fn(&str) -> String) {
    let logs = match run.logs.len() {
        1 => shown(&run.logs[0]),
        many => format!("{many} logs"),
    };
    let _ = writeln!(out, "{}: {} ({logs})", shown(&run.name), run.format);
    match (&run.time, &run.time_unknown_because) {
        (Some(time), _) => time_table(out, time),
        (None, because) => {
            let because = because.as_deref().unwrap_or("the log has no clock");
            line(out, "time goodput", &format!("unknown: {because}"));
        }
    }
    attempts_table(out, run, shown);

    let steps = &run.steps;
    let mut parts = vec![format!("{} count", grouped(steps.counting.max(0) as u64))];
    for (number, what) in [
        (steps.replayed, "done again"),
        (steps.lost, "skipped or no number"),
        (steps.unsaved, "not in a checkpoint"),
    ] {
        if number > 0 {
            parts.push(format!("{} {what}", grouped(number as u64)));
        }
    }
    let median = steps
        .median_seconds
        .map_or(String::new(), |s| format!("; median {s:.3} s"));
    line(
        out,
        "steps",
        &format!(
            "{} done: {}{median}",
            grouped(steps.done.max(0) as u64),
            parts.join(", ")
        ),
    );
    let tokens = &run.tokens;
    match (tokens.processed, tokens.good) {
        (Some(processed), Some(good)) => {
            line(
                out,
                "tokens",
                &format!("{} processed, {} good", count(processed), count(good)),
            );
        }
        _ => line(
            out,
            "tokens",
            "unknown: neither the log nor 'tokens_per_step' says how many a step has",
        ),
    }
    if let (Some(raw), Some(good)) = (tokens.per_second, tokens.good_per_second) {
        line(
            out,
            "tokens a wall second",
            &format!("{} processed (R), {} good (R_g)", count(raw), count(good)),
        );
    }
    if let Some(rate) = &run.rate {
        let mut parts = vec![format!(
            "{:.4e} FLOP a token by '{}'",
            rate.model_flops_per_token, rate.flop_convention
        )];
        if let Some(mfu) = rate.mfu {
            parts.insert(0, percent(mfu));
        } else {
            parts.insert(0, "unknown: 'hardware' has no chip or peak".to_string());
        }
        line(out, "MFU on productive time", &parts.join(", "));
        if let Some(hfu) = rate.hfu.filter(|hfu| Some(*hfu) != rate.mfu) {
            line(out, "HFU", &percent(hfu));
        }
        if let (Some(delivered), Some(time)) = (rate.delivered_mfu, &run.time) {
            line(
                out,
                "delivered MFU",
                &format!(
                    "{} = {} x MFU",
                    percent(delivered),
                    percent(time.productive_share)
                ),
            );
        }
    }
    if let Some(it) = &run.reliability {
        let source = if it.failures_are_measured {
            "counted"
        } else {
            "as given"
        };
        let mttf = it
            .mean_hours_to_failure
            .map_or("nothing failed".to_string(), |hours| {
                format!("{hours:.2} h")
            });
        line(
            out,
            "mean time to failure",
            &format!(
                "{mttf} ({:.3e} failures a node and day, {source})",
                it.failures_per_node_day
            ),
        );
        if let (Some(best), Some(share), Some(write)) = (
            it.best_checkpoint_interval_seconds,
            it.expected_share_at_best,
            it.checkpoint_seconds,
        ) {
            line(
                out,
                "best checkpoint interval",
                &format!(
                    "{} (a checkpoint takes {write:.2} s); expected productive share {}",
                    duration((best * 1e6) as i64),
                    percent(share)
                ),
            );
        }
        if let (Some(interval), Some(share)) = (it.checkpoint_interval_seconds, it.expected_share) {
            line(
                out,
                "interval of the log",
                &format!(
                    "{}; expected productive share {}",
                    duration((interval * 1e6) as i64),
                    percent(share)
                ),
            );
        }
    }
    if let Some(cost) = &run.cost {
        line(
            out,
            "cost",
            &format!(
                "{} ({} an hour); lost {}, unattributed {}",
                money(cost.total),
                money(cost.per_hour),
                money(cost.lost),
                money(cost.unattributed)
            ),
        );
        let mut parts = Vec::new();
        for (amount, what) in [
            (cost.per_productive_hour, "a productive hour"),
            (cost.per_million_good_tokens, "a million good tokens"),
            (
                cost.per_million_reference_equivalent_tokens,
                "a million reference-equivalent tokens",
            ),
        ] {
            if let Some(amount) = amount {
                parts.push(format!("{amount:.4} {what}"));
            }
        }
        line(out, "cost of", &parts.join(", "));
    }
    if let Some(dataset) = &run.dataset {
        let read = dataset
            .epochs_read
            .map_or(String::new(), |epochs| format!("; read {epochs:.4} times"));
        let effective = dataset
            .effective_positions
            .filter(|_| dataset.epochs_read.is_some_and(|epochs| epochs > 1.0))
            .map_or(String::new(), |tokens| {
                format!(", worth {} read once (D')", count(tokens))
            });
        let goodput = dataset.data_goodput.map_or(String::new(), |g| {
            format!("; data goodput g {g:.4} (forecast)")
        });
        line(
            out,
            "dataset",
            &format!(
                "{}, {} positions{read}{effective}{goodput}",
                shown(&dataset.path),
                grouped(dataset.positions)
            ),
        );
    }
    if let Some(curriculum) = &run.curriculum {
        curriculum_table(out, curriculum, shown);
    }
    if let Some(cost) = &run.selection {
        line(
            out,
            "selection of its data",
            &format!(
                "{:.4e} FLOP: {:.1} core seconds ({}) at {:.1e} FLOP each, and operations besides",
                cost.flop, cost.core_seconds, cost.core_seconds_are_of, cost.flop_per_core_second
            ),
        );
    }
    for (split, (step, loss)) in &run.evaluations {
        line(
            out,
            &format!("loss on {}", shown(split)),
            &format!("{loss:.4} nats a token at step {step}"),
        );
    }
    for (label, sentences) in [("inferred", &run.inferred), ("warning", &run.warnings)] {
        for sentence in sentences {
            let _ = writeln!(out, "  {label}: {}", shown(sentence));
        }
    }
    for bad in run.bad_lines.first.iter().take(BAD_LINES_SHOWN) {
        let _ = writeln!(out, "    {}", shown(bad));
    }
    let more = run.bad_lines.count.saturating_sub(BAD_LINES_SHOWN as u64);
    if more > 0 {
        let _ = writeln!(out, "    and {more} more");
    }
}

fn time_table(out: &mut String, time: &TimeReport) {
    let mut row = |label: &str, micros: i64| {
        let share = match time.wall_microseconds {
            0 => 0.0,
            wall => 100.0 * micros as f64 / wall as f64,
        };
        let _ = writeln!(
            out,
            "  {label:<24} {:>16}  {share:>6.2} %",
            duration(micros)
        );
    };
    row("wall", time.wall_microseconds);
    row("productive", time.productive_microseconds);
    for category in Category::ALL {
        if let Some(micros) = time.badput_microseconds.get(category.name()) {
            row(&format!("- {}", category.name()), *micros);
        }
    }
    row("- unattributed", time.unattributed_microseconds);
}

fn curriculum_table(out: &mut String, it: &JoinReport, shown: &dyn Fn(&str) -> String) {
    let rows = if it.rows_per_step == 1 { "row" } else { "rows" };
    line(
        out,
        "what the steps read, if in order",
        &format!(
            "{} {rows} a step; {} positions read again after restarts",
            grouped(it.rows_per_step),
            grouped(it.positions_read_again)
        ),
    );
    line(out, "read in that order", &in_order(it, shown));
    for part in &it.parts {
        let share = |tokens: u64, of: u64| match of {
            0 => 0.0,
            of => 100.0 * tokens as f64 / of as f64,
        };
        let useful = part
            .mean_usefulness
            .map_or(String::new(), |mean| format!("  usefulness {mean:.4}"));
        let mut sources: Vec<(&String, &u64)> = part.tokens_by_source.iter().collect();
        sources.sort_by_key(|(_, tokens)| std::cmp::Reverse(**tokens));
        let named: Vec<String> = sources
            .iter()
            .take(SOURCES_SHOWN)
            .map(|(source, tokens)| {
                format!("{} {:.1} %", shown(source), share(**tokens, part.tokens))
            })
            .collect();
        let more = match sources.len().saturating_sub(SOURCES_SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let _ = writeln!(
            out,
            "    steps {} to {}: {} tokens  {:.2} % padding  {:.2} % repeated{useful}  {}{more}",
            part.first_step,
            part.last_step,
            grouped(part.tokens),
            share(part.padding, part.positions),
            share(part.repeated_tokens, part.tokens),
            named.join(", ")
        );
    }
    for spike in &it.loss_spikes {
        let _ = writeln!(
            out,
            "  loss spike at {} (steps {} to {}): {:.4} where {:.4} is usual; {} documents were read, the largest:",
            shown(&spike.line),
            spike.first_step,
            spike.last_step,
            spike.loss_nats,
            spike.usual_loss_nats,
            grouped(spike.documents)
        );
        for document in spike.largest_documents.iter().take(DOCUMENTS_SHOWN) {
            let _ = writeln!(
                out,
                "    {}  source {}  {} tokens",
                shown(&document.doc_id),
                shown(&document.source),
                grouped(document.tokens)
            );
        }
    }
}

/// Whether the trainer read what is due.
fn in_order(it: &JoinReport, shown: &dyn Fn(&str) -> String) -> String {
    let Some(order) = &it.reading_order else {
        return "unknown: no step line tells what it read (keys row, rows, ids_crc32)".to_string();
    };
    let told = format!(
        "{} step lines by their rows, {} by a checksum of the token ids",
        grouped(order.lines_with_rows),
        grouped(order.lines_with_checksum)
    );
    if order.lines_that_differ == 0 {
        return format!("yes: {told}");
    }
    let mut text = format!(
        "no: {} step lines read something else ({told})",
        grouped(order.lines_that_differ)
    );
    for one in &order.differences {
        let rows = match (one.told_row, one.told_rows) {
            (None, None) => String::new(),
            (row, rows) => {
                let of = |number: Option<u64>| number.map_or("unknown".to_string(), grouped);
                format!("; it tells {} rows from {} on", of(rows), of(row))
            }
        };
        let tokens = one.tokens_of_step.map_or(String::new(), |step| {
            format!("; its tokens are those of step {step}")
        });
        let _ = write!(
            text,
            "\n    first that {}: {} (steps {} to {}), where {} rows from {} on are due{rows}{tokens}",
            one.kind.words(),
            shown(&one.line),
            one.first_step,
            one.last_step,
            grouped(one.due_rows),
            grouped(one.due_row)
        );
    }
    text
}

fn attempts_table(out: &mut String, run: &RunReport, shown: &dyn Fn(&str) -> String) {
    let many = if run.disruptions == 1 {
        "disruption"
    } else {
        "disruptions"
    };
    line(
        out,
        "attempts",
        &format!("{} ({} {many})", run.attempts.len(), run.disruptions),
    );
    if run.attempts.len() < 2 {
        return;
    }
    for attempt in run.attempts.iter().take(ATTEMPTS_SHOWN) {
        let steps = match (attempt.first_step, attempt.last_step) {
            (Some(first), Some(last)) => format!("steps {first} to {last}"),
            _ => "no step".to_string(),
        };
        let replayed = match attempt.replayed_steps {
            0 => String::new(),
            replayed => format!(", {replayed} done again later"),
        };
        let time = attempt.time.as_ref().map_or(String::new(), |time| {
            format!(
                "  {} productive of {}",
                duration(time.productive_microseconds),
                duration(time.wall_microseconds)
            )
        });
        let how = match (attempt.failed, attempt.after_inferred_outage) {
            (true, _) => "  failed",
            (_, true) => "  after an inferred outage",
            _ => "",
        };
        let _ = writeln!(
            out,
            "    {:>3}  {steps}{replayed}{time}{how}  ({})",
            attempt.number,
            shown(&attempt.first_line)
        );
    }
    let more = run.attempts.len().saturating_sub(ATTEMPTS_SHOWN);
    if more > 0 {
        let _ = writeln!(out, "    and {more} more");
    }
}

/// MFU of published runs, printed and recomputed.
pub fn published_table() -> String {
    let mut out = String::from("MFU of published runs, by the palm convention\n\n");
    let _ = writeln!(
        out,
        "  {:<28} {:>8}  {:>10}  source",
        "run", "printed", "recomputed"
    );
    for run in PUBLISHED {
        let recomputed = match run.recomputed() {
            Some(mfu) => percent(mfu),
            None => "-".to_string(),
        };
        let note = match run.recomputed() {
            Some(_) => "",
            None => "; published, not recomputable",
        };
        let _ = writeln!(
            out,
            "  {:<28} {:>6.1} %  {recomputed:>10}  {}{note}",
            run.name, run.printed_percent, run.source
        );
    }
    out
}
