//! The ledger for people and for spreadsheets.

use super::ledger::{LossRow, share};
use super::{Audit, Usefulness, Worth};
use crate::record::{Class, Counts, Difference};
use std::collections::BTreeMap;
use std::fmt::Write;

/// How the rejected rows are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// One row a source.
    Source,
    /// One row a stage.
    Stage,
    /// One row a stage and reason.
    Reason,
}

/// A whole number with commas between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The same of a number that may be negative.
pub fn grouped_signed(number: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", grouped(number.unsigned_abs()))
}

struct Line {
    label: String,
    note: String,
    counts: Difference,
}

fn lines_by<C: Copy + Into<Difference>>(rows: &[LossRow<C>], by: By) -> Vec<Line> {
    // First mention gives the order: that of the pipeline file.
    let mut order: Vec<String> = Vec::new();
    let mut sums: BTreeMap<String, (String, Difference)> = BTreeMap::new();
    for row in rows {
        let label = match by {
            By::Source => row.source.clone(),
            By::Stage => row.stage.clone(),
            By::Reason => format!("{} / {}", row.stage, row.reason),
        };
        let class = row
            .class
            .map_or(String::new(), |class| class.name().to_string());
        let entry = sums.entry(label.clone()).or_insert_with(|| {
            order.push(label);
            (class.clone(), Difference::default())
        });
        if entry.0 != class {
            entry.0 = "several".to_string();
        }
        entry.1 += row.counts.into();
    }
    order
        .into_iter()
        .map(|label| {
            let (note, counts) = sums[&label].clone();
            Line {
                label,
                note,
                counts,
            }
        })
        .collect()
}

/// `part / whole`, 0 where there is no whole.
pub(super) fn signed_share(part: i64, whole: u64) -> f64 {
    let size = share(part.unsigned_abs(), whole);
    if part < 0 { -size } else { size }
}

fn render(out: &mut String, lines: &[Line], read: Counts, width: usize) {
    for line in lines {
        let _ = writeln!(
            out,
            "{:<width$}  {:>12}  {:>16}  {:>16}  {:>7}  {}",
            line.label,
            grouped(line.counts.documents),
            grouped_signed(line.counts.bytes),
            grouped_signed(line.counts.tokens),
            format!(
                "{:.2}%",
                100.0 * signed_share(line.counts.tokens, read.tokens)
            ),
            line.note,
        );
    }
}

/// The whole ledger as a table for a terminal.
pub fn table(audit: &Audit, by: By) -> String {
    let read = Audit::total(&audit.read);
    let kept = Audit::total(&audit.kept);
    let signed = |label: &str, counts: Difference| Line {
        label: label.to_string(),
        note: String::new(),
        counts,
    };
    let line = |label: &str, counts: Counts| signed(label, counts.into());
    let mut head = vec![line("read", read)];
    if by == By::Source {
        head.extend(
            audit
                .read
                .iter()
                .map(|row| line(&format!("  {}", row.source), row.counts)),
        );
    }
    head.push(line("kept", kept));
    if by == By::Source {
        head.extend(
            audit
                .kept
                .iter()
                .map(|row| line(&format!("  {}", row.source), row.counts)),
        );
    }
    head.push(line("rejected", Audit::total_loss(&audit.rejected)));
    let indent = |lines: Vec<Line>| {
        lines
            .into_iter()
            .map(|l| Line {
                label: format!("  {}", l.label),
                ..l
            })
            .collect::<Vec<_>>()
    };
    head.extend(indent(lines_by(&audit.rejected, by)));
    if !audit.failed.is_empty() {
        head.push(line("failed", Audit::total_loss(&audit.failed)));
        head.extend(indent(lines_by(&audit.failed, by)));
    }
    if !audit.edited.is_empty() {
        head.push(signed("edited", Audit::total_loss(&audit.edited)));
        head.extend(indent(lines_by(&audit.edited, by)));
    }
    let width = head
        .iter()
        .map(|l| l.label.chars().count())
        .max()
        .unwrap_or(0)
        .max(24);
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{:<width$}  {:>12}  {:>16}  {:>16}  {:>7}  class",
        audit.pipeline, "documents", "bytes", "tokens", "share"
    );
    render(&mut out, &head, read, width);
    if let Some(sample) = sampled(audit) {
        let _ = writeln!(out, "\n{sample}");
    }
    let emitted = &audit.emitted;
    let _ = writeln!(
        out,
        "\nemitted: {} rows, {} positions = {} tokens + {} special + {} padding",
        grouped(emitted.rows),
        grouped(emitted.positions),
        grouped(emitted.tokens),
        grouped(emitted.special_tokens),
        grouped(emitted.padding)
    );
    if emitted.repeated_tokens > 0 {
        let _ = writeln!(
            out,
            "repeated: {} of these tokens are copies of documents emitted before; usefulness weighs them with their \
             novelty",
            grouped(emitted.repeated_tokens)
        );
    }
    if !audit.quarantined.is_empty() {
        let _ = writeln!(
            out,
            "\nquarantined records: {}",
            grouped(audit.quarantined_records())
        );
        for row in &audit.quarantined {
            let _ = writeln!(
                out,
                "  {:<24}  {:<20}  {:>12}",
                row.source,
                row.reason,
                grouped(row.records)
            );
        }
    }
    for file in &audit.truncated_files {
        let _ = writeln!(out, "ended too early: {}: {}", file.file, file.problem);
    }
    for note in &audit.notes {
        let _ = writeln!(
            out,
            "note: {}: {} x {}",
            note.stage,
            note.note,
            grouped(note.count)
        );
    }
    let low = &audit.low_value;
    let _ = writeln!(
        out,
        "\nlow value: {} tokens rejected, {:.2}% of those read",
        grouped(low.rejected_tokens),
        100.0 * low.rejected_share_of_read
    );
    if let Some(below) = &low.kept_below {
        let _ = writeln!(
            out,
            "           {} kept tokens have a usefulness below {:.2}, {:.2}% of those read",
            grouped(below.tokens),
            below.threshold,
            100.0 * below.share_of_read
        );
    }
    if let Some(usefulness) = &audit.usefulness {
        let _ = write!(
            out,
            "usefulness ({}, {}): mean {:.3}",
            usefulness.estimator,
            usefulness.calibration,
            if emitted.tokens == 0 {
                0.0
            } else {
                usefulness.sum / emitted.tokens as f64
            }
        );
        if let Some(goodput) = usefulness.worth.data_goodput {
            let _ = write!(out, ", data goodput {goodput:.3}");
        }
        out.push('\n');
        worth(usefulness, &mut out);
    }
    out.push('\n');
    for identity in &audit.identities {
        let _ = writeln!(out, "{}", identity.line());
    }
    out
}

/// Reference-equivalent tokens by source, by reason and along the curriculum.
fn worth(usefulness: &Usefulness, out: &mut String) {
    if usefulness.worth.reference_equivalent_tokens.is_none() {
        return;
    }
    let mut rows: Vec<(String, u64, Worth)> = Vec::new();
    for row in &usefulness.by_source {
        rows.push((row.source.clone(), row.tokens, row.worth));
    }
    // Rows of one reason are of its sources, one after another.
    let mut reasons: Vec<(String, u64, f64)> = Vec::new();
    for row in &usefulness.rejected {
        let label = format!("- {} / {}", row.stage, row.reason);
        let worth = row.worth.reference_equivalent_tokens.unwrap_or(0.0);
        match reasons.iter_mut().find(|sum| sum.0 == label) {
            Some(sum) => {
                sum.1 += row.tokens;
                sum.2 += worth;
            }
            None => reasons.push((label, row.tokens, worth)),
        }
    }
    for (label, tokens, worth) in reasons {
        let worth = Worth {
            reference_equivalent_tokens: Some(worth),
            data_goodput: (tokens > 0).then(|| worth / tokens as f64),
        };
        rows.push((label, tokens, worth));
    }
    let width = rows
        .iter()
        .map(|row| row.0.chars().count())
        .max()
        .unwrap_or(0)
        .max(24);
    let _ = writeln!(
        out,
        "  {:<width$}  {:>14}  {:>20}  {:>9}",
        "worth beside reference", "tokens", "reference-equivalent", "per token"
    );
    for (label, tokens, worth) in rows {
        let _ = writeln!(
            out,
            "  {label:<width$}  {:>14}  {:>20}  {:>9.3}",
            grouped(tokens),
            grouped(worth.reference_equivalent_tokens.unwrap_or(0.0).round() as u64),
            worth.data_goodput.unwrap_or(0.0)
        );
    }
    let parts: Vec<String> = usefulness
        .curriculum
        .iter()
        .map(|part| format!("{:.3}", part.worth.data_goodput.unwrap_or(0.0)))
        .collect();
    let _ = writeln!(
        out,
        "  data goodput along the curriculum, tenth by tenth: {}",
        parts.join(" ")
    );
}

/// That only a sample was read, where it was.
fn sampled(audit: &Audit) -> Option<String> {
    let share = audit.sample_share?;
    let left_out = grouped(audit.records_left_out);
    Some(format!(
        "a sample of {share}: {left_out} records were left out"
    ))
}

/// A few lines for the end of a run.
pub fn short(audit: &Audit) -> String {
    let read = Audit::total(&audit.read);
    let counted = |label: &str, note: &str, counts: Difference| Line {
        label: label.to_string(),
        note: note.to_string(),
        counts,
    };
    let mut lines = vec![counted("read", "", read.into())];
    for row in lines_by(&audit.rejected, By::Reason) {
        lines.push(counted(&format!("- {}", row.label), &row.note, row.counts));
    }
    for row in lines_by(&audit.failed, By::Reason) {
        lines.push(counted(&format!("- {}", row.label), "failed", row.counts));
    }
    for row in lines_by(&audit.edited, By::Reason) {
        lines.push(counted(&format!("- {}", row.label), "edited", row.counts));
    }
    lines.push(counted("= kept", "", Audit::total(&audit.kept).into()));
    let width = lines
        .iter()
        .map(|line| line.label.chars().count())
        .max()
        .unwrap_or(0);
    let mut out = String::new();
    for line in &lines {
        let row = format!(
            "  {:<width$} {:>10} documents {:>15} tokens {:>7.2}%  {}",
            line.label,
            grouped(line.counts.documents),
            grouped_signed(line.counts.tokens),
            100.0 * signed_share(line.counts.tokens, read.tokens),
            line.note
        );
        let _ = writeln!(out, "{}", row.trim_end());
    }
    if let Some(sample) = sampled(audit) {
        let _ = writeln!(out, "  {sample}");
    }
    let quarantined = audit.quarantined_records();
    if quarantined > 0 {
        let _ = writeln!(
            out,
            "  {quarantined} records could not be read: see quarantine/"
        );
    }
    let holding = audit
        .identities
        .iter()
        .filter(|identity| identity.holds)
        .count();
    let _ = writeln!(
        out,
        "  the ledger closes: {holding} of {} identities hold",
        audit.identities.len()
    );
    out
}

/// The rows of the ledger as CSV: `entry,source,stage,reason,class,documents,bytes,tokens`.
pub fn csv(audit: &Audit) -> String {
    let mut out = String::from("entry,source,stage,reason,class,documents,bytes,tokens\n");
    let mut row =
        |entry: &str, source: &str, stage: &str, reason: &str, class: &str, c: Difference| {
            let _ = writeln!(
                out,
                "{entry},{},{},{reason},{class},{},{},{}",
                quoted(source),
                quoted(stage),
                c.documents,
                c.bytes,
                c.tokens
            );
        };
    for (entry, rows) in [("read", &audit.read), ("kept", &audit.kept)] {
        rows.iter()
            .for_each(|r| row(entry, &r.source, "", "", "", r.counts.into()));
    }
    let class = |class: Option<Class>| class.map_or("", Class::name);
    for (entry, rows) in [("rejected", &audit.rejected), ("failed", &audit.failed)] {
        for r in rows {
            row(
                entry,
                &r.source,
                &r.stage,
                &r.reason,
                class(r.class),
                r.counts.into(),
            );
        }
    }
    for r in &audit.edited {
        row(
            "edited",
            &r.source,
            &r.stage,
            &r.reason,
            class(r.class),
            r.counts,
        );
    }
    for r in &audit.quarantined {
        row(
            "quarantined",
            &r.source,
            "",
            &r.reason,
            "",
            Counts {
                documents: r.records,
                bytes: r.bytes,
                tokens: 0,
            }
            .into(),
        );
    }
    out
}

pub(super) fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(
            [0, 999, 1_000, 1_234_567].map(grouped),
            ["0", "999", "1,000", "1,234,567"]
        );
    }

    #[test]
    fn csv_quotes_what_would_break_a_row() {
        assert_eq!(quoted("a,b\"c"), "\"a,b\"\"c\"");
        assert_eq!(quoted("plain"), "plain");
    }
}
