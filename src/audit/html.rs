//! The ledger as a page.

use super::ledger::{LossRow, share};
use super::table::{grouped, grouped_signed, signed_share};
use super::{Audit, CurriculumPart, Usefulness, Worth};
use crate::page::{
    Cell, Segment, Step, bars, details, escape, number, page, percent, table, waterfall, words,
};
use crate::record::{Counts, Difference};
use std::collections::BTreeMap;
use std::fmt::Write;

/// What [`counts`] gives, after a column of names.
const COUNT_HEADS: [&str; 5] = [
    "",
    "#documents",
    "#bytes",
    "#tokens",
    "#share of tokens read",
];

fn counts(counts: impl Into<Difference>, read: Counts) -> Vec<Cell> {
    let counts: Difference = counts.into();
    vec![
        number(grouped(counts.documents)),
        number(grouped_signed(counts.bytes)),
        number(grouped_signed(counts.tokens)),
        number(format!(
            "{:.2} %",
            100.0 * signed_share(counts.tokens, read.tokens)
        )),
    ]
}

/// Bars over 0 to 1, four bytes each, as inline SVG.
fn histogram(out: &mut String, histogram: &[u64], what: &str) {
    const BYTES: usize = 4;
    let bins: Vec<u64> = histogram
        .chunks(BYTES)
        .map(|bytes| bytes.iter().sum())
        .collect();
    let highest = bins.iter().copied().max().unwrap_or(0).max(1);
    let _ = write!(
        out,
        "<svg viewBox=\"0 0 640 150\" width=\"640\" role=\"img\" aria-label=\"{what} by usefulness\">"
    );
    for (at, &n) in bins.iter().enumerate() {
        let height = 120.0 * share(n, highest);
        let (from, to) = (at * BYTES, (at + 1) * BYTES - 1);
        let _ = write!(
            out,
            "<rect class=\"bar\" x=\"{}\" y=\"{:.1}\" width=\"9\" height=\"{height:.1}\"><title>{:.3} to {:.3}: {} {what}</title></rect>",
            at * 10,
            125.0 - height,
            from as f64 / 255.0,
            to as f64 / 255.0,
            grouped(n)
        );
    }
    out.push_str("<line class=\"axis\" x1=\"0\" y1=\"125.5\" x2=\"640\" y2=\"125.5\"/><text x=\"0\" y=\"142\">0</text>");
    let _ = writeln!(
        out,
        "<text x=\"320\" y=\"142\" text-anchor=\"middle\">usefulness; highest bar {} {what}</text>\
         <text x=\"640\" y=\"142\" text-anchor=\"end\">1</text></svg>",
        grouped(highest)
    );
    let mut body = String::new();
    let tenth = |at: usize| (at * histogram.len() / 10)..((at + 1) * histogram.len() / 10);
    let rows = (0..10).map(|at| {
        let bytes = tenth(at);
        let last = bytes.end.saturating_sub(1);
        let sum = histogram[bytes.clone()].iter().sum();
        vec![
            words(&format!(
                "{:.3} to {:.3}",
                bytes.start as f64 / 255.0,
                last as f64 / 255.0
            )),
            number(grouped(sum)),
            percent(sum, histogram.iter().sum()),
        ]
    });
    let heads = ["usefulness", &format!("#{what}"), "#share"];
    table(&mut body, &heads, rows);
    details(out, &format!("{what} by usefulness as a table"), &body);
}

fn by<'a>(rows: &'a [LossRow], key: impl Fn(&'a LossRow) -> &'a str) -> BTreeMap<&'a str, Counts> {
    let mut sums: BTreeMap<&str, Counts> = BTreeMap::new();
    for row in rows {
        *sums.entry(key(row)).or_default() += row.counts;
    }
    sums
}

/// Failures or edits, where there are any.
fn losses<C: Copy + Into<Difference>>(
    out: &mut String,
    title: &str,
    rows: &[LossRow<C>],
    read: Counts,
) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(out, "<h2>{title}</h2>");
    let rows = rows.iter().map(|row| {
        let mut cells = vec![words(&row.stage), words(&row.reason), words(&row.source)];
        cells.extend(counts(row.counts, read));
        cells
    });
    let [_, documents, bytes, tokens, share] = COUNT_HEADS;
    let heads = ["stage", "reason", "source", documents, bytes, tokens, share];
    table(out, &heads, rows);
}

/// What each stage and reason took of the tokens that were read, down to what they are worth.
pub fn funnel(out: &mut String, audit: &Audit) {
    let mut steps = vec![Step::Sum(
        "read".to_string(),
        Audit::total(&audit.read).tokens as f64,
        "k1",
    )];
    // The order of first mention is that of the pipeline file.
    let mut losses: Vec<(String, f64)> = Vec::new();
    let mut lose =
        |name: String, tokens: f64| match losses.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += tokens,
            None => losses.push((name, tokens)),
        };
    for row in &audit.rejected {
        lose(
            format!("{} / {}", row.stage, row.reason),
            row.counts.tokens as f64,
        );
    }
    for row in &audit.failed {
        lose(
            format!("failed: {} / {}", row.stage, row.reason),
            row.counts.tokens as f64,
        );
    }
    for row in &audit.edited {
        lose(
            format!("cut: {} / {}", row.stage, row.reason),
            row.counts.tokens as f64,
        );
    }
    steps.extend(
        losses
            .into_iter()
            .map(|(name, tokens)| Step::Loss(name, tokens)),
    );
    steps.push(Step::Sum(
        "kept".to_string(),
        Audit::total(&audit.kept).tokens as f64,
        "k0",
    ));
    if audit.emitted.repeated_tokens > 0 {
        steps.push(Step::Sum(
            "emitted, with repeats".to_string(),
            audit.emitted.tokens as f64,
            "k4",
        ));
    }
    let worth = audit
        .usefulness
        .as_ref()
        .and_then(|usefulness| usefulness.worth.reference_equivalent_tokens);
    if let Some(worth) = worth {
        steps.push(Step::Sum(
            "worth, in tokens of reference text".to_string(),
            worth,
            "k2",
        ));
    }
    let shown = |tokens: f64| grouped(tokens.round() as u64);
    waterfall(out, "tokens", &shown, &steps);
}

/// The whole ledger as one page.
pub fn ledger(audit: &Audit) -> String {
    let mut out = String::new();
    let (read, kept) = (Audit::total(&audit.read), Audit::total(&audit.kept));
    let _ = writeln!(
        out,
        "<h1>{}</h1>\n<p class=\"soft\">token ledger of pipeline <code>{}</code>, tokenizer {} (counts are exact)</p>",
        escape(&audit.pipeline),
        escape(&audit.pipeline_hash),
        escape(&audit.tokenizer.name)
    );
    if let Some(share) = audit.sample_share {
        let _ = writeln!(
            out,
            "<p>A sample of {share}: {} records were left out.</p>",
            grouped(audit.records_left_out)
        );
    }
    let heads = COUNT_HEADS;
    let line = |label: &str, sum: Difference| {
        let mut cells = vec![words(label)];
        cells.extend(counts(sum, read));
        cells
    };
    out.push_str("<h2>Where the tokens went</h2>\n");
    let mut rows = vec![line("read", read.into()), line("kept", kept.into())];
    for (label, losses) in [("rejected", &audit.rejected), ("failed", &audit.failed)] {
        if !losses.is_empty() {
            rows.push(line(label, Audit::total_loss(losses).into()));
        }
    }
    if !audit.edited.is_empty() {
        rows.push(line("edited", Audit::total_loss(&audit.edited)));
    }
    table(&mut out, &heads, rows);

    out.push_str("<h2>By stage and reason</h2>\n");
    funnel(&mut out, audit);

    out.push_str("<h2>By source</h2>\n");
    let rejected = by(&audit.rejected, |row| &row.source);
    let rows = audit.read.iter().zip(&audit.kept).map(|(read, kept)| {
        let gone = rejected
            .get(read.source.as_str())
            .copied()
            .unwrap_or_default();
        let low = audit
            .low_value
            .by_source
            .iter()
            .find(|row| row.source == read.source)
            .map_or(0, |row| row.rejected_tokens);
        vec![
            words(&read.source),
            number(grouped(read.counts.documents)),
            number(grouped(read.counts.tokens)),
            number(grouped(kept.counts.tokens)),
            percent(kept.counts.tokens, read.counts.tokens),
            number(grouped(gone.tokens)),
            number(grouped(low)),
        ]
    });
    let heads_by_source = [
        "source",
        "#documents read",
        "#tokens read",
        "#tokens kept",
        "#share kept",
        "#tokens rejected",
        "#of them low value",
    ];
    table(&mut out, &heads_by_source, rows);

    if !audit.rejected.is_empty() {
        out.push_str("<h2>By stage</h2>\n");
        // The order of first mention is that of the pipeline file.
        let sums = by(&audit.rejected, |row| &row.stage);
        let mut stages: Vec<&str> = Vec::new();
        for row in &audit.rejected {
            if !stages.contains(&row.stage.as_str()) {
                stages.push(&row.stage);
            }
        }
        table(
            &mut out,
            &["stage", heads[1], heads[2], heads[3], heads[4]],
            stages
                .into_iter()
                .map(|stage| line(stage, sums[stage].into())),
        );
        out.push_str("<h2>By reason</h2>\n");
        let rows = audit.rejected.iter().map(|row| {
            let mut cells = vec![
                words(&row.stage),
                words(&row.reason),
                words(row.class.map_or("", |class| class.name())),
                words(&row.source),
            ];
            cells.extend(counts(row.counts, read));
            cells
        });
        let heads = [
            "stage", "reason", "class", "source", heads[1], heads[2], heads[3], heads[4],
        ];
        table(&mut out, &heads, rows);
    }
    losses(&mut out, "Failed", &audit.failed, read);
    losses(&mut out, "Edited", &audit.edited, read);
    if !audit.quarantined.is_empty() {
        out.push_str("<h2>Records that could not be read</h2>\n");
        let rows = audit.quarantined.iter().map(|row| {
            vec![
                words(&row.source),
                words(&row.reason),
                number(grouped(row.records)),
                number(grouped(row.bytes)),
            ]
        });
        table(&mut out, &["source", "reason", "#records", "#bytes"], rows);
    }
    let notes = audit.notes.iter().map(|row| {
        vec![
            words(&row.stage),
            words(&row.note),
            number(grouped(row.count)),
        ]
    });
    let truncated = audit
        .truncated_files
        .iter()
        .map(|file| vec![words(&file.file), words(&file.problem), number("")]);
    let notes: Vec<_> = notes.chain(truncated).collect();
    if !notes.is_empty() {
        out.push_str("<h2>Notes</h2>\n");
        table(&mut out, &["stage or file", "note", "#count"], notes);
    }
    let emitted = &audit.emitted;
    let _ = writeln!(
        out,
        "<h2>Emitted</h2>\n<p>{} rows, {} positions = {} tokens + {} special tokens + {} padding; {} tokens are repeats.</p>",
        grouped(emitted.rows),
        grouped(emitted.positions),
        grouped(emitted.tokens),
        grouped(emitted.special_tokens),
        grouped(emitted.padding),
        grouped(emitted.repeated_tokens)
    );
    usefulness(audit, &mut out);
    out.push_str("<h2>Sums that must close</h2>\n");
    let rows = audit.identities.iter().map(|identity| {
        vec![
            words(&identity.name),
            match identity.holds {
                true => words("holds"),
                false => words("FAILS").bad(),
            },
            number(identity.left),
            number(identity.right),
        ]
    });
    table(&mut out, &["identity", "", "#left", "#right"], rows);
    page(&format!("{}: token ledger", audit.pipeline), "", &out)
}

fn usefulness(audit: &Audit, out: &mut String) {
    let low = &audit.low_value;
    let _ = writeln!(
        out,
        "<h2>Low value</h2>\n<p>{} tokens were rejected as low value, {:.2} % of those read.",
        grouped(low.rejected_tokens),
        100.0 * low.rejected_share_of_read
    );
    if let Some(below) = &low.kept_below {
        let _ = writeln!(
            out,
            "{} kept tokens have a usefulness below {}, {:.2} % of those read.",
            grouped(below.tokens),
            below.threshold,
            100.0 * below.share_of_read
        );
    }
    out.push_str("</p>\n");
    let Some(usefulness) = &audit.usefulness else {
        return;
    };
    let mean = usefulness.sum / audit.emitted.tokens.max(1) as f64;
    let _ = writeln!(
        out,
        "<h2>Usefulness</h2>\n<p>{}, {}: mean {mean:.3}{}</p>",
        escape(&usefulness.estimator),
        escape(&usefulness.calibration),
        usefulness
            .worth
            .data_goodput
            .map_or(String::new(), |goodput| format!(
                ", data goodput {goodput:.3}"
            ))
    );
    worth(usefulness, out);
    out.push_str("<p class=\"soft\">Emitted tokens</p>\n");
    histogram(out, &usefulness.histogram, "tokens");
    out.push_str("<p class=\"soft\">Kept documents by their score</p>\n");
    histogram(out, &usefulness.by_score.documents, "documents");
}

/// Reference-equivalent tokens by source, by reason and along the curriculum, and what they are measured against.
fn worth(usefulness: &Usefulness, out: &mut String) {
    let (Some(sum), Some(u_ref)) = (
        usefulness.worth.reference_equivalent_tokens,
        usefulness.u_ref,
    ) else {
        return;
    };
    let _ = writeln!(
        out,
        "<p>The emitted tokens are worth {} tokens of reference text, whose mean usefulness is {u_ref:.3}.</p>",
        grouped(sum.round() as u64)
    );
    let cells = |tokens: u64, worth: Worth| {
        [
            number(grouped(tokens)),
            number(grouped(
                worth.reference_equivalent_tokens.unwrap_or(0.0).round() as u64,
            )),
            number(format!("{:.3}", worth.data_goodput.unwrap_or(0.0))),
        ]
    };
    let of_source = usefulness.by_source.iter().map(|row| {
        let mut line = vec![words(&row.source), words("emitted")];
        line.extend(cells(row.tokens, row.worth));
        line
    });
    let of_reason = usefulness.rejected.iter().map(|row| {
        let why = format!("rejected: {} / {}", row.stage, row.reason);
        let mut line = vec![words(&row.source), words(&why)];
        line.extend(cells(row.tokens, row.worth));
        line
    });
    table(
        out,
        &[
            "source",
            "",
            "#tokens",
            "#reference-equivalent",
            "#per token",
        ],
        of_source.chain(of_reason),
    );
    if !usefulness.u_ref_by_domain.is_empty() {
        out.push_str("<p class=\"soft\">Domains with a mean of their own</p>\n");
        table(
            out,
            &["domain of the reference", "#mean usefulness"],
            usefulness
                .u_ref_by_domain
                .iter()
                .map(|(name, u_ref)| vec![words(name), number(format!("{u_ref:.3}"))]),
        );
    }
    out.push_str("<p class=\"soft\">Data goodput along the curriculum, tenth by tenth</p>\n");
    let of = |part: &CurriculumPart| part.worth.data_goodput.unwrap_or(0.0);
    let highest = usefulness.curriculum.iter().map(of).fold(1e-9, f64::max);
    let rows = usefulness.curriculum.iter().enumerate().map(|(at, part)| {
        let bar = Segment {
            from: 0.0,
            to: of(part) / highest,
            class: "k0".to_string(),
            title: format!("{:.3}", of(part)),
        };
        vec![
            words(&format!("{} of {}", at + 1, usefulness.curriculum.len())),
            bars(&[bar]),
            number(format!("{:.3}", of(part))),
            number(grouped(part.first_position)),
            number(grouped(part.tokens)),
        ]
    });
    let heads = ["tenth", "", "#data goodput", "#first position", "#tokens"];
    table(out, &heads, rows);
}
