//! Who repeats whom: duplicates within and between sources, and the largest clusters.

use super::ledger::share;
use super::table::{grouped, quoted};
use super::{Amount, Identity};
use crate::page::{escape, number, page, percent, table as html_table, words};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// What goes from one source because of what another one, or the same one, keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DuplicateCell {
    /// Source of the documents that went.
    pub dropped_source: String,
    /// Source of the documents because of which they went; `(release FOLDER)` for those of an earlier release.
    pub kept_source: String,
    /// What went.
    #[serde(flatten)]
    pub dropped: Amount,
}

/// What one source has and loses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceDuplicates {
    /// Name in the pipeline file.
    pub source: String,
    /// What was read of it.
    pub read: Amount,
    /// What went as duplicates.
    pub dropped: Amount,
    /// That part of it whose kept document is of another source, or of an earlier release.
    pub dropped_for_other_sources: Amount,
}

/// A document that went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DuplicateExample {
    /// Its id.
    pub doc_id: String,
    /// Its source.
    pub source: String,
    /// Label of the stage that rejected it.
    pub stage: String,
    /// Exact similarity to the document because of which it went.
    pub similarity: f64,
    /// Tokens of its text.
    pub tokens: u32,
}

/// A document and all that went because of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DuplicateCluster {
    /// Id of the document that stayed.
    pub kept_id: String,
    /// Its source, or `(release FOLDER)`.
    pub kept_source: String,
    /// What went.
    #[serde(flatten)]
    pub dropped: Amount,
    /// Smallest similarity of what went.
    pub lowest_similarity: f64,
    /// The first documents that went.
    pub examples: Vec<DuplicateExample>,
}

/// The duplicates of a finished run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DuplicateReport {
    /// Name of the pipeline.
    pub pipeline: String,
    /// What was read.
    pub read: Amount,
    /// What went as duplicates.
    pub dropped: Amount,
    /// Clusters: different documents because of which others went.
    pub clusters: u64,
    /// By source, in the order of the pipeline file.
    pub by_source: Vec<SourceDuplicates>,
    /// Pairs of sources between which there are duplicates, by (dropped, kept) in that order.
    pub matrix: Vec<DuplicateCell>,
    /// The clusters from which most tokens went, the largest first.
    pub largest_clusters: Vec<DuplicateCluster>,
    /// What the rows give against what the ledger and the evidence say.
    pub identities: Vec<Identity>,
}

impl DuplicateReport {
    /// Sources that stand in the matrix as the kept side, in its order.
    fn kept_sources(&self) -> Vec<&str> {
        let stands = |source: &&str| self.matrix.iter().any(|cell| cell.kept_source == *source);
        let named = self.by_source.iter().map(|row| row.source.as_str());
        let mut sources: Vec<&str> = named.filter(stands).collect();
        for cell in &self.matrix {
            if !sources.contains(&cell.kept_source.as_str()) {
                sources.push(&cell.kept_source);
            }
        }
        sources
    }

    fn tokens(&self, dropped: &str, kept: &str) -> u64 {
        self.matrix
            .iter()
            .filter(|cell| cell.dropped_source == dropped && cell.kept_source == kept)
            .map(|cell| cell.dropped.tokens)
            .sum()
    }

    fn losing(&self) -> impl Iterator<Item = &SourceDuplicates> {
        self.by_source
            .iter()
            .filter(|row| row.dropped.documents > 0)
    }

    /// For people. Names stand as they are in the report.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{} of {} documents and {} of {} tokens ({:.2}%) went as duplicates, because of {} documents\n",
            grouped(self.dropped.documents),
            grouped(self.read.documents),
            grouped(self.dropped.tokens),
            grouped(self.read.tokens),
            100.0 * share(self.dropped.tokens, self.read.tokens),
            grouped(self.clusters)
        );
        let width = |texts: &mut dyn Iterator<Item = &str>| {
            texts.map(|text| text.chars().count()).max().unwrap_or(0)
        };
        let name = width(&mut self.by_source.iter().map(|row| row.source.as_str())).max(8);
        let _ = writeln!(
            out,
            "{:<name$}  {:>14}  {:>14}  {:>8}  {:>18}",
            "source", "documents gone", "tokens gone", "of its", "for other sources"
        );
        for row in &self.by_source {
            let _ = writeln!(
                out,
                "{:<name$}  {:>14}  {:>14}  {:>7.2}%  {:>18}",
                row.source,
                grouped(row.dropped.documents),
                grouped(row.dropped.tokens),
                100.0 * share(row.dropped.tokens, row.read.tokens),
                grouped(row.dropped_for_other_sources.tokens),
            );
        }
        let kept = self.kept_sources();
        if !kept.is_empty() {
            let _ = writeln!(
                out,
                "\ntokens gone, by source (rows) and by the source of the document that stayed (columns)"
            );
            let _ = write!(out, "{:<name$}", "");
            for source in &kept {
                let _ = write!(out, "  {source:>14}");
            }
            out.push('\n');
            for row in self.losing() {
                let _ = write!(out, "{:<name$}", row.source);
                for source in &kept {
                    let column = source.chars().count().max(14);
                    let tokens = grouped(self.tokens(&row.source, source));
                    let _ = write!(out, "  {tokens:>column$}");
                }
                out.push('\n');
            }
        }
        if !self.largest_clusters.is_empty() {
            out.push_str("\nlargest clusters\n");
        }
        for cluster in &self.largest_clusters {
            let _ = writeln!(
                out,
                "{:>12} tokens, {} documents, similarity {:.3} or more: {} ({})",
                grouped(cluster.dropped.tokens),
                grouped(cluster.dropped.documents),
                cluster.lowest_similarity,
                cluster.kept_id,
                cluster.kept_source
            );
            for example in &cluster.examples {
                let _ = writeln!(
                    out,
                    "{:>12.3} {} ({}, {}, {} tokens)",
                    example.similarity,
                    example.doc_id,
                    example.source,
                    example.stage,
                    grouped(u64::from(example.tokens))
                );
            }
        }
        for identity in self.identities.iter().filter(|identity| !identity.holds) {
            let _ = writeln!(out, "\n{}", identity.line());
        }
        out
    }

    /// The matrix as comma-separated values.
    pub fn csv(&self) -> String {
        let mut out = "dropped_source,kept_source,documents,tokens\n".to_string();
        for cell in &self.matrix {
            let _ = writeln!(
                out,
                "{},{},{},{}",
                quoted(&cell.dropped_source),
                quoted(&cell.kept_source),
                cell.dropped.documents,
                cell.dropped.tokens
            );
        }
        out
    }

    /// One page.
    pub fn html(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "<h1>{}</h1>\n<p>{} of {} documents and {} of {} tokens went as duplicates, because of {} documents.</p>",
            escape(&self.pipeline),
            grouped(self.dropped.documents),
            grouped(self.read.documents),
            grouped(self.dropped.tokens),
            grouped(self.read.tokens),
            grouped(self.clusters)
        );
        out.push_str("<h2>By source</h2>\n");
        let heads = [
            "source",
            "#documents read",
            "#tokens read",
            "#documents gone",
            "#tokens gone",
            "#share gone",
            "#tokens gone for other sources",
        ];
        let rows = self.by_source.iter().map(|row| {
            vec![
                words(&row.source),
                number(grouped(row.read.documents)),
                number(grouped(row.read.tokens)),
                number(grouped(row.dropped.documents)),
                number(grouped(row.dropped.tokens)),
                percent(row.dropped.tokens, row.read.tokens),
                number(grouped(row.dropped_for_other_sources.tokens)),
            ]
        });
        html_table(&mut out, &heads, rows);
        let kept = self.kept_sources();
        if !kept.is_empty() {
            out.push_str(
                "<h2>Tokens gone, by source (rows) and by the source of the document that stayed (columns)</h2>\n",
            );
            let heads: Vec<String> = kept.iter().map(|source| format!("#{source}")).collect();
            let heads: Vec<&str> = std::iter::once("source")
                .chain(heads.iter().map(String::as_str))
                .collect();
            let rows = self.losing().map(|row| {
                let cells = kept
                    .iter()
                    .map(|source| number(grouped(self.tokens(&row.source, source))));
                std::iter::once(words(&row.source)).chain(cells).collect()
            });
            html_table(&mut out, &heads, rows);
        }
        if !self.largest_clusters.is_empty() {
            out.push_str("<h2>Largest clusters</h2>\n");
            let heads = [
                "stayed, or went because of it",
                "source",
                "stage",
                "#documents gone",
                "#tokens gone",
                "#similarity",
            ];
            let rows = self.largest_clusters.iter().flat_map(|cluster| {
                let head = vec![
                    words(&cluster.kept_id),
                    words(&cluster.kept_source),
                    words(""),
                    number(grouped(cluster.dropped.documents)),
                    number(grouped(cluster.dropped.tokens)),
                    number(format!("{:.3} or more", cluster.lowest_similarity)),
                ];
                let examples = cluster.examples.iter().map(|example| {
                    vec![
                        words(&format!("\u{b7} {}", example.doc_id)),
                        words(&example.source),
                        words(&example.stage),
                        number(""),
                        number(grouped(u64::from(example.tokens))),
                        number(format!("{:.3}", example.similarity)),
                    ]
                });
                std::iter::once(head).chain(examples)
            });
            html_table(&mut out, &heads, rows);
        }
        for identity in &self.identities {
            let class = if identity.holds { "soft" } else { "bad" };
            let line = escape(&identity.line());
            let _ = writeln!(out, "<p class=\"{class}\">{line}</p>");
        }
        page(&format!("duplicates of {}", self.pipeline), "", &out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> DuplicateReport {
        let amount = |documents, tokens| Amount { documents, tokens };
        let source = |source: &str, dropped, elsewhere| SourceDuplicates {
            source: source.to_string(),
            read: amount(10, 1_000),
            dropped,
            dropped_for_other_sources: elsewhere,
        };
        let cell = |dropped: &str, kept: &str, tokens| DuplicateCell {
            dropped_source: dropped.to_string(),
            kept_source: kept.to_string(),
            dropped: amount(1, tokens),
        };
        DuplicateReport {
            pipeline: "a<b".to_string(),
            read: amount(20, 2_000),
            dropped: amount(3, 330),
            clusters: 2,
            by_source: vec![
                source("web", amount(1, 30), amount(0, 0)),
                source("b,ooks", amount(2, 300), amount(1, 100)),
            ],
            matrix: vec![
                cell("web", "web", 30),
                cell("b,ooks", "web", 100),
                cell("b,ooks", "b,ooks", 200),
            ],
            largest_clusters: vec![DuplicateCluster {
                kept_id: "x\u{7}".to_string(),
                kept_source: "web".to_string(),
                dropped: amount(2, 130),
                lowest_similarity: 0.8125,
                examples: vec![DuplicateExample {
                    doc_id: "<y>".to_string(),
                    source: "b,ooks".to_string(),
                    stage: "near_dedupe".to_string(),
                    similarity: 0.8125,
                    tokens: 100,
                }],
            }],
            identities: vec![Identity::new("sums", 330, 331)],
        }
    }

    #[test]
    fn the_matrix_stands_in_the_table_and_the_csv() {
        let table = report().table();
        let row = table
            .lines()
            .find(|line| line.starts_with("b,ooks") && line.ends_with("200"));
        assert!(row.is_some_and(|row| row.contains("100")), "{table}");
        for part in [
            "x\u{7} (web)",
            "0.812 <y> (b,ooks, near_dedupe, 100 tokens)",
            "30.00%",
            "FAILS sums",
        ] {
            assert!(table.contains(part), "{part} in {table}");
        }
        assert_eq!(
            report().csv(),
            "dropped_source,kept_source,documents,tokens\nweb,web,1,30\n\"b,ooks\",web,1,100\n\"b,ooks\",\"b,ooks\",1,200\n"
        );
    }

    #[test]
    fn the_page_escapes_what_documents_say() {
        let page = report().html();
        for part in ["a&lt;b", "&lt;y&gt;", "x[U+0007]", "class=\"bad\""] {
            assert!(page.contains(part), "{part} in {page}");
        }
        assert!(!page.contains("<y>"));
    }
}
