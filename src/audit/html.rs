//! Self-contained pages: one file, no scripts but its own, nothing loaded from anywhere.

use super::ledger::{LossRow, share};
use super::table::{grouped, grouped_signed, signed_share};
use super::{Audit, CurriculumPart, Usefulness, Worth};
use crate::record::{Counts, Difference};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Text as it may stand in HTML, inside elements and quoted attributes. Characters that would not show or
/// would reorder the line (controls but line ends and tabs, marks of direction) become their code points.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control()
                || matches!(c, '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
                    | '\u{2028}' | '\u{2029}' | '\u{2066}'..='\u{2069}' | '\u{feff}') =>
            {
                let _ = write!(out, "[U+{:04X}]", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

const STYLE: &str = "\
:root{color-scheme:light dark;--paper:#fff;--ink:#1b1f24;--soft:#5c6670;--line:#d8dde2;--card:#f6f8fa;--low:#f1f3f5;--high:#37b679;--bad:#c0392b}
@media(prefers-color-scheme:dark){:root{--paper:#15181c;--ink:#e3e7ea;--soft:#98a2ab;--line:#343a41;--card:#1d2126;--low:#23282e;--high:#1d8a55;--bad:#ff7b6b}}
body{margin:0 auto;max-width:72rem;padding:1.5rem;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.4rem;margin:0 0 .3rem}h2{font-size:1.05rem;margin:2rem 0 .5rem}
.soft,small{color:var(--soft)}code{font:13px ui-monospace,monospace;overflow-wrap:anywhere}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;display:block;overflow-x:auto}
th,td{padding:.2rem .8rem .2rem 0;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
td.n,th.n{text-align:right}.bad{color:var(--bad);font-weight:600}
svg text{fill:var(--soft);font:11px system-ui,sans-serif}svg .bar{fill:var(--high)}svg .axis{stroke:var(--line)}
";

/// A whole page. `title` is escaped; `style` and `body` stand as they are.
pub fn page(title: &str, style: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>{}</title>\n<style>\n{STYLE}{style}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        escape(title)
    )
}

pub(super) struct Cell {
    pub(super) text: String,
    number: bool,
}

pub(super) fn words(text: &str) -> Cell {
    Cell {
        text: escape(text),
        number: false,
    }
}

pub(super) fn number(text: impl ToString) -> Cell {
    Cell {
        text: text.to_string(),
        number: true,
    }
}

pub(super) fn percent(part: u64, whole: u64) -> Cell {
    number(format!("{:.2}%", 100.0 * share(part, whole)))
}

/// A table; a heading that starts with `#` is one of numbers.
pub(super) fn table(out: &mut String, heads: &[&str], rows: impl IntoIterator<Item = Vec<Cell>>) {
    out.push_str("<table><thead><tr>");
    for head in heads {
        match head.strip_prefix('#') {
            Some(head) => {
                let _ = write!(out, "<th class=\"n\">{head}</th>");
            }
            None => {
                let _ = write!(out, "<th>{head}</th>");
            }
        }
    }
    out.push_str("</tr></thead><tbody>\n");
    for row in rows {
        out.push_str("<tr>");
        for cell in row {
            let class = if cell.number { " class=\"n\"" } else { "" };
            let _ = write!(out, "<td{class}>{}</td>", cell.text);
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table>\n");
}

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
            "{:.2}%",
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
        let sign = if identity.holds { "holds" } else { "FAILS" };
        vec![
            Cell {
                text: format!(
                    "<span{}>{sign}</span>",
                    if identity.holds { "" } else { " class=\"bad\"" }
                ),
                number: false,
            },
            words(&identity.name),
            number(identity.left),
            number(identity.right),
        ]
    });
    table(&mut out, &["", "identity", "#left", "#right"], rows);
    page(&format!("{}: token ledger", audit.pipeline), "", &out)
}

fn usefulness(audit: &Audit, out: &mut String) {
    let low = &audit.low_value;
    let _ = writeln!(
        out,
        "<h2>Low value</h2>\n<p>{} tokens were rejected as low value, {:.2}% of those read.",
        grouped(low.rejected_tokens),
        100.0 * low.rejected_share_of_read
    );
    if let Some(below) = &low.kept_below {
        let _ = writeln!(
            out,
            "{} kept tokens have a usefulness below {}, {:.2}% of those read.",
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
    out.push_str("<svg viewBox=\"0 0 640 140\" width=\"640\" role=\"img\" aria-label=\"data goodput along the curriculum\">");
    for (at, part) in usefulness.curriculum.iter().enumerate() {
        let height = 105.0 * of(part) / highest;
        let (x, top) = (at * 64, 125.0 - height);
        let _ = write!(
            out,
            "<rect class=\"bar\" x=\"{x}\" y=\"{top:.1}\" width=\"62\" height=\"{height:.1}\"><title>positions from {}: {} tokens of text</title></rect>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"middle\">{:.3}</text>",
            grouped(part.first_position),
            grouped(part.tokens),
            x + 31,
            top - 3.0,
            of(part)
        );
    }
    out.push_str("<line class=\"axis\" x1=\"0\" y1=\"125.5\" x2=\"640\" y2=\"125.5\"/></svg>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_invisible_characters_are_shown_not_obeyed() {
        assert_eq!(
            escape("<b a=\"x\" c='y'>&\n\t\u{1b}\u{202e}é"),
            "&lt;b a=&quot;x&quot; c=&#39;y&#39;&gt;&amp;\n\t[U+001B][U+202E]é"
        );
    }
}
