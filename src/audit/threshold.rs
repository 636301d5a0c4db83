//! What a threshold on usefulness would drop: bounds from the ledger alone, exact figures from rows.

use super::ledger::share;
use super::table::{grouped, quoted};
use super::{Audit, Identity};
use crate::algo::quantise::certain;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// Documents and their tokens, each document's once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Documents.
    pub documents: u64,
    /// Their tokens, without special tokens.
    pub tokens: u64,
}

impl Amount {
    /// Adds one document, or a stretch of one (`documents` 0).
    pub fn add(&mut self, documents: u64, tokens: u64) {
        self.documents += documents;
        self.tokens += tokens;
    }
}

/// A figure that is known up to what rounding hides; both are equal where it is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds<T> {
    /// The smallest that it can be.
    pub at_least: T,
    /// The largest that it can be.
    pub at_most: T,
}

/// What the threshold says of one source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceThreshold {
    /// Name in the pipeline file.
    pub source: String,
    /// Documents that are kept now.
    pub kept: Amount,
    /// Those of them whose score is below the threshold; absent unless the rows were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<Amount>,
    /// Emitted tokens, repeats included.
    pub emitted_tokens: u64,
    /// Those of them whose own usefulness is below the threshold.
    pub tokens_below: Bounds<u64>,
}

/// What the threshold says of documents that are rejected already.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RejectedThreshold {
    /// Name in the pipeline file.
    pub source: String,
    /// Label of the stage that rejected them.
    pub stage: String,
    /// Its reason.
    pub reason: String,
    /// Documents below the threshold: it would drop them too.
    pub below: Amount,
    /// Documents at or above it.
    pub not_below: Amount,
    /// Documents that were rejected before anything was scored.
    pub unscored: Amount,
}

/// A document on which threshold and pipeline disagree.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change<'a> {
    /// `dropped`: kept now, below the threshold. `admitted`: turned away by a selection now, at or above it.
    pub change: &'static str,
    /// Id of the document.
    pub doc_id: &'a str,
    /// Its source.
    pub source: &'a str,
    /// Its score.
    pub score: f32,
}

/// What a threshold on usefulness would drop of a finished folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Threshold {
    /// From 0 to 1. A document or token exactly at it is not below it.
    pub threshold: f64,
    /// Name of the pipeline.
    pub pipeline: String,
    /// Name of the estimator.
    pub estimator: String,
    /// Whether the rows were read; else the figures are bounds from the ledger's histograms.
    pub exact: bool,
    /// Documents that are kept now.
    pub kept: Amount,
    /// Those of them whose score, the mean of the unrounded usefulness, is below the threshold.
    pub dropped: Bounds<Amount>,
    /// Emitted tokens, repeats included.
    pub emitted_tokens: u64,
    /// Those of them whose own usefulness is below the threshold, whatever their documents are worth.
    pub tokens_below: Bounds<u64>,
    /// The same by source, in the order of the pipeline file.
    pub by_source: Vec<SourceThreshold>,
    /// Rejected documents by source, stage and reason; absent unless rejects were kept and read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Vec<RejectedThreshold>>,
    /// Documents that would be dropped, and documents that a selection turned away and that would not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,
    /// Sums that must close; empty unless the rows were read.
    pub identities: Vec<Identity>,
}

/// How many documents change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Kept now, below the threshold.
    pub dropped: u64,
    /// Turned away by a selection now, at or above the threshold.
    pub admitted: u64,
}

/// The counts of a histogram over bytes that are below the threshold.
fn below(histogram: &[u64], threshold: f64) -> Bounds<u64> {
    let (certain, end) = certain(threshold);
    let sum = |end: u16| histogram.iter().take(usize::from(end)).sum();
    Bounds {
        at_least: sum(certain),
        at_most: sum(end),
    }
}

impl Threshold {
    /// What the ledger alone says; `None` where its pipeline has no `score` stage.
    pub fn of(audit: &Audit, threshold: f64) -> Option<Threshold> {
        let usefulness = audit.usefulness.as_ref()?;
        let documents = below(&usefulness.by_score.documents, threshold);
        let tokens = below(&usefulness.by_score.tokens, threshold);
        let amount = |documents, tokens| Amount { documents, tokens };
        let kept = Audit::total(&audit.kept);
        Some(Threshold {
            threshold,
            pipeline: audit.pipeline.clone(),
            estimator: usefulness.estimator.clone(),
            exact: false,
            kept: amount(kept.documents, kept.tokens),
            dropped: Bounds {
                at_least: amount(documents.at_least, tokens.at_least),
                at_most: amount(documents.at_most, tokens.at_most),
            },
            emitted_tokens: audit.emitted.tokens,
            tokens_below: below(&usefulness.histogram, threshold),
            by_source: audit
                .kept
                .iter()
                .zip(&usefulness.by_source)
                .map(|(kept, row)| SourceThreshold {
                    source: row.source.clone(),
                    kept: amount(kept.counts.documents, kept.counts.tokens),
                    dropped: None,
                    emitted_tokens: row.tokens,
                    tokens_below: below(&row.histogram, threshold),
                })
                .collect(),
            rejected: None,
            changes: None,
            identities: Vec::new(),
        })
    }

    /// For people. `first` holds the first changes, to show what they look like.
    pub fn table(&self, first: &[String]) -> String {
        let mut out = String::new();
        let t = self.threshold;
        let _ = writeln!(
            out,
            "{}: what a threshold of {t} on the usefulness of {} would drop of what is kept\n",
            self.pipeline, self.estimator
        );
        let width = self
            .by_source
            .iter()
            .map(|row| row.source.chars().count() + 2)
            .chain([24])
            .max()
            .unwrap_or(0);
        let _ = writeln!(
            out,
            "{:<width$}  {:>12}  {:>16}  {:>7}",
            "documents", "documents", "tokens", "share"
        );
        let mut row = |label: &str, amount: Amount, whole: u64| {
            let _ = writeln!(
                out,
                "{label:<width$}  {:>12}  {:>16}  {:>7}",
                grouped(amount.documents),
                grouped(amount.tokens),
                format!("{:.2}%", 100.0 * share(amount.tokens, whole))
            );
        };
        row("kept now", self.kept, self.kept.tokens);
        if self.dropped.at_least == self.dropped.at_most {
            row("score below", self.dropped.at_least, self.kept.tokens);
        } else {
            row(
                "score below, at least",
                self.dropped.at_least,
                self.kept.tokens,
            );
            row(
                "score below, at most",
                self.dropped.at_most,
                self.kept.tokens,
            );
        }
        for source in &self.by_source {
            if let Some(dropped) = source.dropped {
                row(&format!("  {}", source.source), dropped, source.kept.tokens);
            }
        }
        let _ = writeln!(
            out,
            "\n{:<width$}  {:>16}  {:>16}  {:>16}",
            "tokens, each by itself", "emitted", "below, at least", "below, at most"
        );
        let all = (String::from("all"), self.emitted_tokens, self.tokens_below);
        for (label, emitted, below) in [all].into_iter().chain(self.by_source.iter().map(|row| {
            (
                format!("  {}", row.source),
                row.emitted_tokens,
                row.tokens_below,
            )
        })) {
            let _ = writeln!(
                out,
                "{label:<width$}  {:>16}  {:>16}  {:>16}",
                grouped(emitted),
                grouped(below.at_least),
                grouped(below.at_most)
            );
        }
        let (certain, end) = certain(t);
        if self.tokens_below.at_least < self.tokens_below.at_most || certain < end {
            let byte = f64::from(certain);
            let _ = writeln!(
                out,
                "\nUsefulness is stored in bytes. {certain} stands for {:.4} to {:.4}, on both sides of {t}.",
                ((byte - 0.5) / 255.0).max(0.0),
                ((byte + 0.5) / 255.0).min(1.0)
            );
        }
        if !self.exact {
            out.push_str("From the ledger's histograms; --exact reads shards and rejects, and names the documents.\n");
        }
        if let Some(rejected) = &self.rejected {
            self.rejected_table(rejected, &mut out);
        } else if self.exact {
            out.push_str("\nThe pipeline keeps no rejects (output.rejects: none), so of them nothing can be said.\n");
        }
        if let Some(changes) = &self.changes {
            let _ = writeln!(
                out,
                "\n{} documents that are kept now would be dropped; {} that a selection turned away are not below",
                grouped(changes.dropped),
                grouped(changes.admitted)
            );
            first.iter().for_each(|line| out.push_str(line));
            if changes.dropped + changes.admitted > first.len() as u64 {
                out.push_str("  --format csv or json lists all of them\n");
            }
        }
        if !self.identities.is_empty() {
            out.push('\n');
        }
        for identity in &self.identities {
            let _ = writeln!(out, "{}", identity.line());
        }
        out
    }

    fn rejected_table(&self, rejected: &[RejectedThreshold], out: &mut String) {
        let label =
            |row: &RejectedThreshold| format!("{}: {} / {}", row.source, row.stage, row.reason);
        let unscored: u64 = rejected.iter().map(|row| row.unscored.documents).sum();
        let rejected = || {
            let scored =
                |row: &&RejectedThreshold| row.below.documents + row.not_below.documents > 0;
            rejected.iter().filter(scored)
        };
        let width = rejected()
            .map(|row| label(row).chars().count())
            .chain([24])
            .max()
            .unwrap_or(0);
        let _ = writeln!(
            out,
            "\n{:<width$}  {:>12}  {:>12}",
            "rejected documents", "below", "not below"
        );
        for row in rejected() {
            let _ = writeln!(
                out,
                "{:<width$}  {:>12}  {:>12}",
                label(row),
                grouped(row.below.documents),
                grouped(row.not_below.documents)
            );
        }
        let _ = writeln!(
            out,
            "{} more were rejected before anything was scored",
            grouped(unscored)
        );
    }

    /// Head of [`Threshold::csv`] and of the lines of [`Change::csv`].
    pub const CSV_HEAD: &'static str = "entry,source,stage,reason,doc_id,score,documents,tokens\n";

    /// The figures as rows of CSV, without the head.
    pub fn csv(&self) -> String {
        let mut out = String::new();
        let mut row = |entry: &str,
                       source: &str,
                       [stage, reason]: [&str; 2],
                       documents: Option<u64>,
                       tokens: u64| {
            let documents = documents.map_or(String::new(), |n| n.to_string());
            let _ = writeln!(
                out,
                "{entry},{},{},{reason},,,{documents},{tokens}",
                quoted(source),
                quoted(stage)
            );
        };
        let none = ["", ""];
        let mut bounds = |entry: &str, source: &str, below: Bounds<u64>| {
            row(
                &format!("{entry}_at_least"),
                source,
                none,
                None,
                below.at_least,
            );
            row(
                &format!("{entry}_at_most"),
                source,
                none,
                None,
                below.at_most,
            );
        };
        bounds("tokens_below", "", self.tokens_below);
        for source in &self.by_source {
            bounds("tokens_below", &source.source, source.tokens_below);
        }
        let mut amount = |entry: &str, source: &str, place: [&str; 2], amount: Amount| {
            row(entry, source, place, Some(amount.documents), amount.tokens);
        };
        amount("dropped_at_least", "", none, self.dropped.at_least);
        amount("dropped_at_most", "", none, self.dropped.at_most);
        for source in &self.by_source {
            amount("kept", &source.source, none, source.kept);
            if let Some(dropped) = source.dropped {
                amount("dropped", &source.source, none, dropped);
            }
        }
        for of in self.rejected.iter().flatten() {
            let place = [of.stage.as_str(), of.reason.as_str()];
            amount("rejected_below", &of.source, place, of.below);
            amount("rejected_not_below", &of.source, place, of.not_below);
            amount("rejected_unscored", &of.source, place, of.unscored);
        }
        out
    }
}

impl Change<'_> {
    /// A row of CSV below [`Threshold::CSV_HEAD`].
    pub fn csv(&self) -> String {
        format!(
            "{},{},,,{},{},,\n",
            self.change,
            quoted(self.source),
            quoted(self.doc_id),
            self.score
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_between_two_bytes_is_exact_and_one_inside_a_byte_is_bounded() {
        let mut histogram = vec![0; 256];
        (histogram[24], histogram[25], histogram[26]) = (100, 10, 1);
        let at = |threshold: f64| {
            let Bounds { at_least, at_most } = below(&histogram, threshold);
            (at_least, at_most)
        };
        assert_eq!(at(0.0), (0, 0));
        assert_eq!(at(25.0 / 255.0), (100, 110));
        assert_eq!(at(25.5 / 255.0), (110, 110), "the border of two bytes");
        assert_eq!(at(25.5001 / 255.0), (110, 111));
        assert_eq!(at(26.6 / 255.0), (111, 111));
    }
}
