//! What `goodput audit --threshold` says, against the rows and against a run with that threshold.

use crate::support::{Folder, Numbers, Ran};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Two sources, half of each like the reference; more than half is kept, documents are cut over rows.
fn scored(more: &str) -> Folder {
    let folder = Folder::new();
    let mut numbers = Numbers(5);
    let mut texts = |like: bool, n: usize| -> Vec<String> {
        (0..n)
            .map(|at| match (like, at % 3) {
                (true, _) => format!(
                    "{} as it is said in the book of the house",
                    numbers.words(20)
                ),
                (_, 0) => "all the same all the same ".repeat(12),
                _ => (0..200)
                    .map(|_| char::from(33 + numbers.below(90) as u8))
                    .collect(),
            })
            .collect()
    };
    let (good, bad, reference) = (texts(true, 30), texts(false, 24), texts(true, 40));
    folder.documents("web.jsonl", &[&good[..10], &bad[..16]].concat());
    folder.documents("books.jsonl", &[&good[10..], &bad[16..]].concat());
    folder.documents("reference.jsonl", &reference);
    folder.pipeline(&sections("{ keep_share_of_tokens: 0.7, by: score }", more));
    folder
}

fn sections(select: &str, more: &str) -> String {
    format!(
        "inputs:\n  - {{ path: web.jsonl, source: web }}\n  - {{ path: books.jsonl, source: books }}\n\
         stages:\n  - length: {{ min_tokens: 5 }}\n  \
         - score: {{ estimator: ngram_excess, reference: reference.jsonl }}\n  - select: {select}\n\
         pack: {{ method: concat, sequence_tokens: 100 }}\noutput: {{ path: out{more} }}\n"
    )
}

fn json(ran: &Ran) -> Value {
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    serde_json::from_str(&ran.stdout).expect("one JSON document")
}

fn ids(found: &Value, change: &str) -> BTreeSet<String> {
    found["documents"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|document| document["change"] == change)
        .map(|document| document["doc_id"].as_str().expect("an id").to_string())
        .collect()
}

#[test]
fn the_exact_answer_is_that_of_a_run_with_the_threshold() {
    let folder = scored("");
    folder.run(&[]);
    folder.verify("out");
    let out = folder.out("out");
    let kept: BTreeMap<String, f32> = out
        .rows()
        .into_iter()
        .flat_map(|row| row.segments)
        .map(|segment| (segment.doc_id, segment.score.expect("scored")))
        .collect();
    let mut scores: Vec<f32> = kept.values().copied().collect();
    scores.sort_by(f32::total_cmp);
    let median = f64::from(scores[scores.len() / 2]);
    let (mut any_dropped, mut any_admitted) = (false, false);
    // At a score, where the document stays, and beside it.
    for (at, threshold) in [0.0, 0.01, 0.05, median, median + 1e-9, 0.9, 1.0]
        .into_iter()
        .enumerate()
    {
        let text = threshold.to_string();
        let exact = json(&folder.goodput(&[
            "audit",
            "out",
            "--threshold",
            &text,
            "--exact",
            "--format",
            "json",
        ]));
        let dropped: BTreeSet<String> = kept
            .iter()
            .filter(|(_, score)| f64::from(**score) < threshold)
            .map(|(id, _)| id.clone())
            .collect();
        assert_eq!(ids(&exact, "dropped"), dropped, "{threshold}");
        // A run with that threshold in place of the selection, and nothing else changed.
        folder.pipeline_at(
            "again.yaml",
            &sections(&format!("{{ min_score: {threshold:?}, by: score }}"), ""),
        );
        let name = format!("again-{at}");
        let ran = folder.goodput(&["run", "again.yaml", "--out", &name, "--progress", "off"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let again: BTreeSet<String> = folder.out(&name).texts().into_keys().collect();
        let before: BTreeSet<String> = kept.keys().cloned().collect();
        let expected: BTreeSet<String> = again.difference(&before).cloned().collect();
        assert_eq!(ids(&exact, "admitted"), expected, "{threshold}");
        assert_eq!(dropped, before.difference(&again).cloned().collect());
        any_dropped |= !dropped.is_empty();
        any_admitted |= !expected.is_empty();

        // The bounds from the ledger hold the exact figures.
        let quick =
            json(&folder.goodput(&["audit", "out", "--threshold", &text, "--format", "json"]));
        for (path, documents) in [("/dropped", true), ("/tokens_below", false)] {
            let keys: &[&str] = if documents {
                &["/documents", "/tokens"]
            } else {
                &[""]
            };
            for key in keys {
                let of = |found: &Value, bound: &str| -> u64 {
                    found
                        .pointer(&format!("{path}/{bound}{key}"))
                        .and_then(Value::as_u64)
                        .unwrap_or_else(|| panic!("{path}/{bound}{key} in {found}"))
                };
                assert!(
                    of(&quick, "at_least") <= of(&exact, "at_least"),
                    "{threshold}"
                );
                assert!(
                    of(&quick, "at_most") >= of(&exact, "at_most"),
                    "{threshold}"
                );
            }
        }
        assert_eq!(quick["exact"], false);
        assert_eq!(exact["identities"].as_array().expect("sums").len(), 5);
        let by_source = exact["by_source"].as_array().expect("rows");
        assert_eq!(by_source.len(), 2);
        for key in ["documents", "tokens"] {
            let sum: u64 = by_source
                .iter()
                .map(|row| row["dropped"][key].as_u64().expect("a count"))
                .sum();
            assert_eq!(exact["dropped"]["at_most"][key], sum, "{threshold}");
        }
    }
    assert!(any_dropped && any_admitted, "thresholds on both sides");
}

#[test]
fn floats_have_one_answer_where_bytes_have_two() {
    let counts = |more: &str| -> (u64, u64, u64) {
        let folder = scored(more);
        folder.run(&[]);
        // Between two bytes that hold many tokens, and not on their border.
        let found = json(&folder.goodput(&[
            "audit",
            "out",
            "--threshold",
            "0.2509",
            "--exact",
            "--format",
            "json",
        ]));
        let below = folder
            .out("out")
            .rows()
            .iter()
            .flat_map(|row| {
                row.usefulness
                    .clone()
                    .expect("scored")
                    .into_iter()
                    .zip(&row.input_ids)
                    .map(|(u, id)| (u, *id))
                    .collect::<Vec<_>>()
            })
            .filter(|(u, id)| *id < 256 && f64::from(*u) < 0.2509)
            .count() as u64;
        let of = |key: &str| found["tokens_below"][key].as_u64().expect("a count");
        (of("at_least"), of("at_most"), below)
    };
    let (least, most, _) = counts("");
    let (exact, same, below) = counts(", usefulness: f32");
    assert_eq!((exact, same), (below, below));
    assert!(
        least <= exact && exact <= most && least < most,
        "{least} {exact} {most}"
    );
}

#[test]
fn tables_and_csv_say_the_same_and_wrong_requests_are_refused() {
    let folder = scored("");
    folder.run(&[]);
    let exact = ["audit", "out", "--threshold", "0.4", "--exact"];
    let found = json(&folder.goodput(&[&exact[..], &["--format", "json"]].concat()));
    let csv = folder
        .goodput(&[&exact[..], &["--format", "csv"]].concat())
        .stdout;
    let columns = csv.lines().next().expect("a head").split(',').count();
    assert!(
        csv.lines().all(|line| line.split(',').count() == columns),
        "{csv}"
    );
    let listed = |change: &str| {
        csv.lines()
            .filter(|line| line.starts_with(&format!("{change},")) && line.ends_with(",,"))
            .count()
    };
    assert_eq!(listed("dropped"), ids(&found, "dropped").len());
    assert_eq!(listed("admitted"), ids(&found, "admitted").len());
    let table = folder.goodput(&exact).stdout;
    for words in ["would be dropped", "books", "select / below_share", "holds"] {
        assert!(table.contains(words), "{words} in {table}");
    }
    let quick = folder
        .goodput(&["audit", "out", "--threshold", "0.4"])
        .stdout;
    assert!(
        quick.contains("at most") && quick.contains("--exact"),
        "{quick}"
    );
    for threshold in ["1.1", "-0.1", "NaN", "low"] {
        folder
            .goodput(&["audit", "out", &format!("--threshold={threshold}")])
            .refuses(&["--threshold"]);
    }
    folder
        .goodput(&["audit", "out", "--exact"])
        .refuses(&["--threshold"]);
    folder.pipeline_at(
        "plain.yaml",
        "inputs:\n  - { path: web.jsonl, source: web }\noutput: { path: plain }\n",
    );
    assert_eq!(folder.goodput(&["run", "plain.yaml"]).code, Some(0));
    for more in [&[][..], &["--exact"]] {
        folder
            .goodput(&[&["audit", "plain", "--threshold", "0.5"], more].concat())
            .refuses(&["no 'score' stage"]);
    }
}

#[test]
fn low_value_is_told_by_source() {
    let folder = scored("");
    folder.run(&[]);
    let audit = folder.out("out").audit();
    let low = &audit.low_value;
    assert_eq!(low.by_source.len(), 2);
    let sum: u64 = low.by_source.iter().map(|row| row.rejected_tokens).sum();
    assert!(sum > 0 && sum == low.rejected_tokens);
    let below: u64 = low
        .by_source
        .iter()
        .filter_map(|row| row.kept_below_tokens)
        .sum();
    assert_eq!(
        Some(below),
        low.kept_below.as_ref().map(|below| below.tokens)
    );
    for row in &low.by_source {
        let rejected: u64 = folder
            .out("out")
            .rejects()
            .iter()
            .filter(|reject| reject.source == row.source)
            .map(|reject| u64::from(reject.tokens))
            .sum();
        assert_eq!(row.rejected_tokens, rejected, "{}", row.source);
    }
    let usefulness = audit.usefulness.expect("scored");
    let documents: u64 = usefulness.by_score.documents.iter().sum();
    assert_eq!(
        documents,
        goodput::audit::Audit::total(&audit.kept).documents
    );
    for byte in 0..256 {
        let of_sources: u64 = usefulness
            .by_source
            .iter()
            .map(|row| row.histogram[byte])
            .sum();
        assert_eq!(usefulness.histogram[byte], of_sources);
    }
}

/// A begin token that is the last of a row has a segment without tokens, and is no document.
#[test]
fn a_begin_token_at_the_end_of_a_row_is_no_document() {
    let folder = Folder::new();
    let mut numbers = Numbers(9);
    let texts: Vec<String> = (0..20)
        .map(|_| numbers.words(60)[..98].to_string())
        .collect();
    folder.documents("in.jsonl", &texts);
    folder.pipeline(
        "tokenizer: { file: tokenizer.json, begin_token: \"<|begin|>\" }\n\
         stages:\n  - score: { estimator: random }\n\
         pack: { method: concat, sequence_tokens: 100 }\noutput: { path: out }\n",
    );
    let out = folder.run_and_verify();
    let empty = |segment: &&crate::support::Segment| segment.tokens == Some(0);
    let rows = out.rows();
    assert!(rows.iter().flat_map(|row| &row.segments).any(|s| empty(&s)));
    let found = json(&folder.goodput(&[
        "audit",
        "out",
        "--threshold",
        "1",
        "--exact",
        "--format",
        "json",
    ]));
    assert_eq!(ids(&found, "dropped").len(), 20);
    let shown =
        json(&folder.goodput(&["inspect", "out", "--documents", "100", "--format", "json"]));
    let documents = shown["documents"].as_array().expect("a list");
    assert!(
        documents
            .iter()
            .all(|document| document["tokens"] != serde_json::json!([]))
    );
}
