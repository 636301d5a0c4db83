//! The report as one page: for each run where tokens and time went and what was read when, progress, and the ledgers
//! of the datasets.

use super::account::duration;
use super::progress_html::progress_html;
use super::table::{count, money, percent};
use super::{Category, JoinReport, PointReport, Report, RunReport, TimeReport};
use crate::audit::{Audit, grouped, html::funnel};
use crate::page::{
    Segment, Step, bars, details, escape, figures, key, number, page, sentences, table, waterfall,
    words,
};
use std::fmt::Write;

/// Attempts with a row of their own.
const ATTEMPTS_SHOWN: usize = 40;
/// Sources with a colour of their own.
const SOURCES_SHOWN: usize = 8;
/// Documents that a loss spike lists.
const DOCUMENTS_SHOWN: usize = 5;
/// Runs up to which all are open on the screen.
const RUNS_OPEN: usize = 3;
/// Colour of what is of no other.
const REST: &str = "k11";

/// The report as a page. `ledgers` are those of the datasets of the runs, by checksum, each once.
pub fn html(report: &Report, ledgers: &[(String, Audit)]) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<header>\n<h1>{}: goodput</h1>\n<p class=\"soft\">What was paid for, what was lost and to what, which data was \
         read when, and how far the models came for it.</p>",
        escape(&report.name)
    );
    contents(&mut out, report, ledgers);
    out.push_str("</header>\n<main>\n");
    if report.runs.len() > 1 {
        out.push_str("<section id=\"runs\">\n<h2>All runs</h2>\n");
        runs_table(&mut out, report);
        out.push_str("</section>\n");
    }
    if let Some(progress) = &report.progress {
        progress_html(&mut out, progress);
    }
    for (at, run) in report.runs.iter().enumerate() {
        let open = if report.runs.len() <= RUNS_OPEN {
            " open"
        } else {
            ""
        };
        let _ = writeln!(
            out,
            "<details class=\"run\"{open}><summary><h2>Run {}</h2></summary>\n<section id=\"run-{at}\">",
            escape(&run.name)
        );
        run_html(&mut out, run, points(report, run));
        out.push_str("</section>\n</details>\n");
    }
    for (at, (checksum, ledger)) in ledgers.iter().enumerate() {
        let readers: Vec<&str> = report
            .runs
            .iter()
            .filter(|run| {
                run.dataset
                    .as_ref()
                    .is_some_and(|of| of.checksum == *checksum)
            })
            .map(|run| run.name.as_str())
            .collect();
        let _ = writeln!(
            out,
            "<section id=\"data-{at}\">\n<h2>Dataset {}</h2>\n<p>What each stage and reason took of the tokens that \
             were read, before any run. <span class=\"soft\">Read by {}; tokenizer {}; <code>{}</code></span></p>",
            escape(&ledger.pipeline),
            escape(&readers.join(", ")),
            escape(&ledger.tokenizer.name),
            escape(checksum)
        );
        funnel(&mut out, ledger);
        out.push_str("</section>\n");
    }
    out.push_str("</main>\n");
    page(&format!("{}: goodput", report.name), "", &out)
}

fn contents(out: &mut String, report: &Report, ledgers: &[(String, Audit)]) {
    let mut links = Vec::new();
    if report.runs.len() > 1 {
        links.push(("runs".to_string(), "All runs".to_string()));
    }
    if report.progress.is_some() {
        links.push(("progress".to_string(), "Progress".to_string()));
    }
    let runs = report.runs.iter().enumerate();
    links.extend(runs.map(|(at, run)| (format!("run-{at}"), format!("Run {}", run.name))));
    let data = ledgers.iter().enumerate();
    links.extend(
        data.map(|(at, (_, of))| (format!("data-{at}"), format!("Dataset {}", of.pipeline))),
    );
    if links.len() < 2 {
        return;
    }
    out.push_str("<nav aria-label=\"contents\"><ul>");
    for (id, name) in links {
        let _ = write!(out, "<li><a href=\"#{id}\">{}</a></li>", escape(&name));
    }
    out.push_str("</ul></nav>\n");
}

fn unknown(value: Option<String>) -> String {
    value.unwrap_or("unknown".to_string())
}

/// Amount x g of a run: how many tokens of reference text its good tokens are worth, by the forecast.
fn useful(run: &RunReport) -> Option<f64> {
    Some(run.dataset.as_ref()?.data_goodput? * run.tokens.good?)
}

fn runs_table(out: &mut String, report: &Report) {
    let rows = report.runs.iter().map(|run| {
        let rate = run.rate.as_ref();
        vec![
            words(&run.name),
            words(&run.group),
            number(unknown(
                run.time
                    .as_ref()
                    .map(|time| duration(time.wall_microseconds)),
            )),
            number(unknown(
                run.time.as_ref().map(|time| percent(time.productive_share)),
            )),
            number(unknown(rate.and_then(|rate| rate.mfu).map(percent))),
            number(unknown(run.tokens.processed.map(count))),
            number(unknown(run.tokens.good.map(count))),
            number(unknown(useful(run).map(count))),
            number(unknown(run.cost.as_ref().map(|cost| money(cost.total)))),
        ]
    });
    let heads = [
        "run",
        "group",
        "#wall time",
        "#productive",
        "#MFU",
        "#tokens processed",
        "#good tokens",
        "#useful tokens (forecast)",
        "#cost",
    ];
    table(out, &heads, rows);
}

/// What the run reached on the whole held-out sets: role, point.
fn points<'a>(report: &'a Report, run: &RunReport) -> Vec<(&'static str, &'a PointReport)> {
    let sets = report.progress.iter().flat_map(|progress| &progress.sets);
    sets.filter(|set| set.source.is_none())
        .filter_map(|set| {
            let point = set.runs.iter().find(|point| point.run == run.name)?;
            Some((set.role, point))
        })
        .collect()
}

fn run_html(out: &mut String, run: &RunReport, points: Vec<(&'static str, &PointReport)>) {
    let logs = match &run.logs[..] {
        [one] => one.clone(),
        several => format!("{} logs", several.len()),
    };
    let _ = writeln!(
        out,
        "<p class=\"soft\">{}, {}; {} steps count of {} done{}</p>",
        escape(&run.format),
        escape(&logs),
        grouped(run.steps.counting.max(0) as u64),
        grouped(run.steps.done.max(0) as u64),
        run.steps
            .median_seconds
            .map_or(String::new(), |seconds| format!(", median {seconds:.3} s"))
    );
    run_figures(out, run);
    out.push_str("<h3>From raw tokens to progress</h3>\n");
    tokens_html(out, run, &points);
    out.push_str("<h3>Where the time went</h3>\n");
    match (&run.time, &run.time_unknown_because) {
        (Some(time), _) => time_html(out, run, time),
        (None, because) => {
            let because = because.as_deref().unwrap_or("the log has no clock");
            let _ = writeln!(out, "<p>Unknown: {}</p>", escape(because));
        }
    }
    if let Some(curriculum) = &run.curriculum {
        curriculum_html(out, curriculum);
    }
    rate_html(out, run);
    if !run.evaluations.is_empty() {
        out.push_str("<h3>Evaluations</h3>\n");
        let rows = run.evaluations.iter().map(|(split, (step, loss))| {
            vec![
                words(split),
                number(grouped(*step)),
                number(format!("{loss:.4}")),
            ]
        });
        table(out, &["split", "#step", "#loss in nats a token"], rows);
    }
    sentences(out, "To be looked at", &run.warnings);
    sentences(out, "Inferred", &run.inferred);
    if run.bad_lines.count > 0 {
        let name = format!(
            "Lines that could not be read: {}",
            grouped(run.bad_lines.count)
        );
        sentences(out, &name, &run.bad_lines.first);
    }
}

fn run_figures(out: &mut String, run: &RunReport) {
    let mut found = Vec::new();
    if let Some(time) = &run.time {
        let note = format!("of {} wall time", duration(time.wall_microseconds));
        found.push(("productive", percent(time.productive_share), note));
    }
    if let Some(rate) = &run.rate
        && let Some(mfu) = rate.mfu
    {
        let note = rate.delivered_mfu.map_or(String::new(), |delivered| {
            format!("{} delivered, with all lost time", percent(delivered))
        });
        found.push(("MFU", percent(mfu), note));
    }
    if let (Some(good), Some(processed)) = (run.tokens.good, run.tokens.processed) {
        let share = if processed > 0.0 {
            good / processed
        } else {
            0.0
        };
        found.push((
            "good tokens",
            short(good),
            format!("{} of those processed", percent(share)),
        ));
    }
    if let Some(useful) = useful(run) {
        let note = "in tokens of reference text, by the forecast g".to_string();
        found.push(("useful tokens", short(useful), note));
    }
    if let Some(cost) = &run.cost {
        let note = format!("{} of it lost", money(cost.lost));
        found.push(("cost", money(cost.total), note));
    }
    figures(out, found);
}

/// A count in three digits.
fn short(tokens: f64) -> String {
    for (unit, name) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if tokens >= unit {
            let value = tokens / unit;
            let digits = if value < 10.0 {
                2
            } else {
                usize::from(value < 100.0)
            };
            return format!("{value:.digits$} {name}");
        }
    }
    format!("{tokens:.0}")
}

fn tokens_html(out: &mut String, run: &RunReport, points: &[(&'static str, &PointReport)]) {
    let (Some(processed), Some(good)) = (run.tokens.processed, run.tokens.good) else {
        out.push_str(
            "<p>Unknown: neither the log nor <code>tokens_per_step</code> says how many tokens a step has.</p>\n",
        );
        return;
    };
    let mut steps = vec![Step::Sum("raw: processed".to_string(), processed, "k1")];
    // Their tokens are known together; each has its share by steps.
    let parts = [
        (run.steps.replayed, "done again by a later attempt"),
        (run.steps.lost, "skipped or no number"),
        (run.steps.unsaved, "in no checkpoint"),
    ];
    let lost_steps: i64 = parts.iter().map(|(steps, _)| steps).sum();
    for (of, name) in parts.into_iter().filter(|(of, _)| *of > 0) {
        let tokens = (processed - good) * of as f64 / lost_steps as f64;
        steps.push(Step::Loss(name.to_string(), tokens));
    }
    steps.push(Step::Sum(
        "good: in steps that count".to_string(),
        good,
        "k0",
    ));
    if let Some(useful) = useful(run) {
        if useful < good {
            let name = "padding, repeats and text of less use than reference text, by the forecast";
            steps.push(Step::Loss(name.to_string(), good - useful));
        }
        let name = "useful: worth so many tokens of reference text, by the forecast";
        steps.push(Step::Sum(name.to_string(), useful, "k2"));
    }
    let trained = run.training.tokens.unwrap_or(good);
    let mut has_progress = false;
    for (role, point) in points {
        if let Some(progress) = point.progress.filter(|_| point.budget > 0.0) {
            has_progress = true;
            let name =
                format!("progress: the baseline needs so many for the same loss on {role} text");
            let tokens = trained * progress / point.budget;
            steps.push(Step::Sum(
                name,
                tokens,
                if *role == "target" { "k3" } else { "k8" },
            ));
        }
    }
    waterfall(out, "tokens", &count, &steps);
    if !has_progress {
        out.push_str(
            "<p class=\"soft\">Progress is not known for this run: it takes <code>progress</code> with a baseline of \
             three budgets in the measure file, and an evaluation that its curve reaches.</p>\n",
        );
    }
}

fn colour(category: Category) -> &'static str {
    match category {
        Category::Init => "k4",
        Category::Prep => "k1",
        Category::Compile => "k6",
        Category::DataWait => "k2",
        Category::CheckpointSave => "k10",
        Category::CheckpointRestore => "k7",
        Category::Evaluation => "k9",
        Category::WastedProgress => "k5",
        Category::Recovery => "k8",
        Category::Custom => "k3",
    }
}

/// Every part of a time that is not nothing: name, class, microseconds.
fn parts(time: &TimeReport) -> Vec<(&'static str, &'static str, i64)> {
    let lost = Category::ALL.into_iter().map(|category| {
        let micros = time.badput_microseconds.get(category.name());
        (
            words_of(category),
            colour(category),
            micros.copied().unwrap_or(0),
        )
    });
    std::iter::once(("productive", "k0", time.productive_microseconds))
        .chain(lost)
        .chain([("unattributed", REST, time.unattributed_microseconds)])
        .filter(|(_, _, micros)| *micros != 0)
        .collect()
}

fn words_of(category: Category) -> &'static str {
    match category {
        Category::Init => "initialisation",
        Category::Prep => "preparing data",
        Category::Compile => "compiling",
        Category::DataWait => "waiting for data",
        Category::CheckpointSave => "writing checkpoints",
        Category::CheckpointRestore => "reading checkpoints",
        Category::Evaluation => "evaluating",
        Category::WastedProgress => "wasted progress",
        Category::Recovery => "recovery",
        Category::Custom => "other, named by the log",
    }
}

fn time_html(out: &mut String, run: &RunReport, time: &TimeReport) {
    let mut steps = vec![Step::Sum(
        "wall time".to_string(),
        time.wall_microseconds as f64,
        "k1",
    )];
    let all = parts(time);
    let lost = all.iter().filter(|(name, ..)| *name != "productive");
    steps.extend(lost.map(|(name, _, micros)| Step::Loss((*name).to_string(), *micros as f64)));
    steps.push(Step::Sum(
        "productive".to_string(),
        time.productive_microseconds.max(0) as f64,
        "k0",
    ));
    waterfall(out, "time", &|micros| duration(micros as i64), &steps);

    let known: Vec<_> = run
        .attempts
        .iter()
        .filter_map(|attempt| Some((attempt, attempt.time.as_ref()?)))
        .collect();
    if known.len() < 2 {
        return;
    }
    let _ = writeln!(
        out,
        "<h3>Time by attempt</h3>\n<p class=\"soft\">{} attempts. The length of a bar is its wall time; the time before \
         it, since the attempt before ended, is its recovery.</p>",
        grouped(known.len() as u64)
    );
    key(
        out,
        all.iter()
            .map(|(name, class, _)| ((*class).to_string(), *name)),
    );
    let longest = known.iter().map(|(_, time)| time.wall_microseconds).max();
    let longest = longest.unwrap_or(1).max(1) as f64;
    let rows = known.iter().take(ATTEMPTS_SHOWN).map(|(attempt, time)| {
        let mut at = 0.0;
        let segments: Vec<Segment> = parts(time)
            .into_iter()
            .filter(|(_, _, micros)| *micros > 0)
            .map(|(name, class, micros)| {
                let from = at;
                at += micros as f64 / longest;
                Segment {
                    from,
                    to: at,
                    class: class.to_string(),
                    title: format!("{name}: {}", duration(micros)),
                }
            })
            .collect();
        let steps = match (attempt.first_step, attempt.last_step) {
            (Some(first), Some(last)) => format!("steps {first} to {last}"),
            _ => "no step".to_string(),
        };
        let end = match (attempt.failed, attempt.after_inferred_outage) {
            (true, true) => ", after an inferred outage, failed",
            (true, false) => ", failed",
            (false, true) => ", after an inferred outage",
            (false, false) => "",
        };
        vec![
            words(&format!("{}: {steps}{end}", attempt.number)),
            bars(&segments),
            number(duration(time.wall_microseconds)),
            number(percent(time.productive_share)),
        ]
    });
    table(out, &["attempt", "", "#wall time", "#productive"], rows);
    if known.len() > ATTEMPTS_SHOWN {
        let _ = writeln!(
            out,
            "<p>And {} more, which <code>--format json</code> has.</p>",
            grouped((known.len() - ATTEMPTS_SHOWN) as u64)
        );
    }
    let mut body = String::new();
    let heads: Vec<String> = ["attempt".to_string(), "starts at".to_string()]
        .into_iter()
        .chain(all.iter().map(|(name, ..)| format!("#{name}")))
        .collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let rows = known.iter().take(ATTEMPTS_SHOWN).map(|(attempt, time)| {
        let own = parts(time);
        let mut row = vec![
            words(&attempt.number.to_string()),
            words(&attempt.first_line),
        ];
        row.extend(all.iter().map(|(name, ..)| {
            let micros = own
                .iter()
                .find(|(other, ..)| other == name)
                .map_or(0, |part| part.2);
            number(duration(micros))
        }));
        row
    });
    table(&mut body, &heads, rows);
    details(out, "Time by attempt and category as a table", &body);
}

fn curriculum_html(out: &mut String, it: &JoinReport) {
    let _ = writeln!(
        out,
        "<h3>What the steps read</h3>\n<p class=\"soft\">If the trainer read the rows in order: {} {} a step; {} \
         positions were read again after restarts.</p>",
        grouped(it.rows_per_step),
        if it.rows_per_step == 1 { "row" } else { "rows" },
        grouped(it.positions_read_again)
    );
    // The largest sources have a colour; the order is the same in every bar.
    let mut sums: Vec<(&str, u64)> = Vec::new();
    for (source, tokens) in it.parts.iter().flat_map(|part| &part.tokens_by_source) {
        match sums.iter_mut().find(|(known, _)| known == source) {
            Some((_, sum)) => *sum += tokens,
            None => sums.push((source, *tokens)),
        }
    }
    sums.sort_by_key(|(_, tokens)| std::cmp::Reverse(*tokens));
    let has_more = sums.len() > SOURCES_SHOWN;
    sums.truncate(SOURCES_SHOWN);
    let mut names: Vec<(String, &str)> = sums
        .iter()
        .enumerate()
        .map(|(at, (source, _))| (format!("k{}", at + 1), *source))
        .collect();
    if has_more {
        names.push((REST.to_string(), "all other sources"));
    }
    key(
        out,
        names.iter().map(|(class, name)| (class.clone(), *name)),
    );
    let share = |tokens: u64, of: u64| match of {
        0 => 0.0,
        of => tokens as f64 / of as f64,
    };
    let scored = it.parts.iter().any(|part| part.mean_usefulness.is_some());
    let steps = |first: i64, last: i64| words(&format!("{first} to {last}"));
    let rows = it.parts.iter().map(|part| {
        let mut row = vec![steps(part.first_step, part.last_step)];
        if scored {
            let mean = part.mean_usefulness.unwrap_or(0.0);
            let bar = Segment {
                from: 0.0,
                to: mean,
                class: "k0".to_string(),
                title: format!("mean usefulness {mean:.4}"),
            };
            row.push(bars(&[bar]));
            row.push(number(unknown(
                part.mean_usefulness.map(|mean| format!("{mean:.4}")),
            )));
        }
        let mut at = 0.0;
        let mut segments: Vec<Segment> = Vec::new();
        for (colour, (source, _)) in sums.iter().enumerate() {
            let tokens = part.tokens_by_source.get(*source).copied().unwrap_or(0);
            let to = at + share(tokens, part.tokens);
            segments.push(Segment {
                from: at,
                to,
                class: format!("k{}", colour + 1),
                title: format!("{source}: {}", percent(share(tokens, part.tokens))),
            });
            at = to;
        }
        if has_more && part.tokens > 0 && at < 1.0 - 1e-9 {
            segments.push(Segment {
                from: at,
                to: 1.0,
                class: REST.to_string(),
                title: format!("all other sources: {}", percent(1.0 - at)),
            });
        }
        row.push(bars(&segments));
        row.push(number(grouped(part.tokens)));
        row
    });
    let heads: &[&str] = match scored {
        true => &[
            "steps",
            "mean usefulness, 0 to 1",
            "#",
            "sources",
            "#tokens",
        ],
        false => &["steps", "sources", "#tokens"],
    };
    table(out, heads, rows);

    let mut body = String::new();
    let heads: Vec<String> = ["steps", "#tokens", "#padding", "#repeated tokens"]
        .into_iter()
        .map(str::to_string)
        .chain(sums.iter().map(|(source, _)| format!("#{source}")))
        .collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let rows = it.parts.iter().map(|part| {
        let mut row = vec![
            steps(part.first_step, part.last_step),
            number(grouped(part.tokens)),
            number(percent(share(part.padding, part.positions))),
            number(percent(share(part.repeated_tokens, part.tokens))),
        ];
        row.extend(sums.iter().map(|(source, _)| {
            let tokens = part.tokens_by_source.get(*source).copied().unwrap_or(0);
            number(percent(share(tokens, part.tokens)))
        }));
        row
    });
    table(&mut body, &heads, rows);
    details(
        out,
        "What the steps read as a table, with padding and repeats",
        &body,
    );
    for spike in &it.loss_spikes {
        let _ = writeln!(
            out,
            "<h3>Loss spike at {}</h3>\n<p>{:.4} nats a token where {:.4} is usual, at {}; {} documents were \
             read, the largest:</p>",
            match spike.first_step == spike.last_step {
                true => format!("step {}", spike.last_step),
                false => format!("steps {} to {}", spike.first_step, spike.last_step),
            },
            spike.loss_nats,
            spike.usual_loss_nats,
            escape(&spike.line),
            grouped(spike.documents)
        );
        let rows = spike
            .largest_documents
            .iter()
            .take(DOCUMENTS_SHOWN)
            .map(|document| {
                vec![
                    words(&document.doc_id),
                    words(&document.source),
                    number(grouped(document.tokens)),
                ]
            });
        table(out, &["document", "source", "#tokens"], rows);
    }
}

/// Rates, reliability and cost: name, value, what to know of it.
fn rate_html(out: &mut String, run: &RunReport) {
    let mut rows: Vec<[String; 3]> = Vec::new();
    let mut add =
        |name: &str, value: String, note: String| rows.push([name.to_string(), value, note]);
    if let (Some(raw), Some(good)) = (run.tokens.per_second, run.tokens.good_per_second) {
        add(
            "tokens a wall second, R",
            count(raw),
            "processed, replays and padding included".to_string(),
        );
        add("good tokens a wall second, R_g", count(good), String::new());
    }
    if let Some(rate) = &run.rate {
        let note = format!("convention {}", rate.flop_convention);
        add(
            "FLOP a token",
            format!("{:.4e}", rate.model_flops_per_token),
            note,
        );
        if let Some(hfu) = rate.hfu.filter(|hfu| Some(*hfu) != rate.mfu) {
            add(
                "HFU",
                percent(hfu),
                "with what is computed again".to_string(),
            );
        }
    }
    if let Some(it) = &run.reliability {
        let of = if it.failures_are_measured {
            "counted"
        } else {
            "as given"
        };
        let note = format!(
            "{:.3e} failures a node and day, {of}",
            it.failures_per_node_day
        );
        let mttf = it
            .mean_hours_to_failure
            .map_or("nothing failed".to_string(), |hours| {
                format!("{hours:.2} h")
            });
        add("mean time to failure", mttf, note);
        for (name, interval, share) in [
            (
                "checkpoint interval of the log",
                it.checkpoint_interval_seconds,
                it.expected_share,
            ),
            (
                "best checkpoint interval",
                it.best_checkpoint_interval_seconds,
                it.expected_share_at_best,
            ),
        ] {
            if let (Some(interval), Some(share)) = (interval, share) {
                let note = format!("expected productive share {}", percent(share));
                add(name, duration((interval * 1e6) as i64), note);
            }
        }
    }
    if let Some(cost) = &run.cost {
        let lost = format!(
            "{} lost, {} unattributed",
            money(cost.lost),
            money(cost.unattributed)
        );
        add("cost", money(cost.total), lost);
        for (name, amount) in [
            ("cost of a productive hour", cost.per_productive_hour),
            (
                "cost of a million good tokens",
                cost.per_million_good_tokens,
            ),
            (
                "cost of a million reference-equivalent tokens",
                cost.per_million_reference_equivalent_tokens,
            ),
        ] {
            if let Some(amount) = amount {
                add(name, format!("{amount:.4}"), String::new());
            }
        }
    }
    if let Some(cost) = &run.selection {
        let note = format!(
            "{:.1} core seconds ({})",
            cost.core_seconds, cost.core_seconds_are_of
        );
        add(
            "selection of its data, FLOP",
            format!("{:.4e}", cost.flop),
            note,
        );
    }
    if rows.is_empty() {
        return;
    }
    out.push_str("<h3>Rate and cost</h3>\n");
    let rows = rows
        .iter()
        .map(|[name, value, note]| vec![words(name), number(value), words(note)]);
    table(out, &["", "#value", "note"], rows);
}
