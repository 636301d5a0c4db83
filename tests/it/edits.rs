//! Stages that cut texts: what is left, what the ledger and the evidence say of it, and that the result is
//! that of the stages one after another.

use super::faults::killed_after;
use super::same_bytes::{
    assert_same, assert_settings_change_nothing, bytes_of, generated, run, stderr,
};
use crate::support::{Folder, Numbers, Out, byte_tokenizer_with, text_of};
use goodput::record::Class;
use goodput::shard::ReadEdits;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A cut as (document, stage, bytes, keeping document, tokens, nothing left).
pub(super) type Cut = (
    String,
    String,
    std::ops::Range<u64>,
    Option<String>,
    i64,
    bool,
);

pub(super) fn cuts(out: &Out) -> Vec<Cut> {
    let mut cuts = Vec::new();
    let mut file = ReadEdits::open(&out.path.join("edits/part-00000.parquet")).expect("cuts");
    file.rows(&mut |row| {
        cuts.push((
            row.doc_id.to_string(),
            row.stage.to_string(),
            row.byte_start..row.byte_end,
            row.kept_id.map(String::from),
            row.tokens,
            row.nothing_left,
        ));
        true
    })
    .expect("readable");
    cuts
}

/// Rows as (stage, reason, documents, bytes, tokens).
pub(super) fn edited(out: &Out) -> Vec<(String, String, u64, i64, i64)> {
    let audit = out.audit();
    let rows = audit.edited.into_iter().map(|row| {
        assert_eq!(row.class, Some(Class::Duplicate));
        let counts = row.counts;
        (
            row.stage,
            row.reason,
            counts.documents,
            counts.bytes,
            counts.tokens,
        )
    });
    rows.collect()
}

/// Writes documents with ids, `a` to `z`.
pub(super) fn with_ids(folder: &Folder, texts: &[&str]) {
    let line = |(text, id): (&&str, char)| json!({ "id": id, "text": text }).to_string() + "\n";
    let lines: String = texts.iter().zip('a'..='z').map(line).collect();
    folder.write("in.jsonl", lines);
}

const GIVEN: &str = "inputs: [{ path: in.jsonl, source: web, id: id }]\n";

#[test]
fn a_repeated_paragraph_goes_and_ledger_and_evidence_say_which() {
    let folder = Folder::new();
    with_ids(
        &folder,
        &[
            "Welcome to the harbour.\n\nThe first text.\n",
            "Welcome to the harbour.\n\nThe second text.\n",
            "The first text.\n\nWelcome to the harbour.",
            "A third one.\n\nWelcome to the harbour.\n",
            "A third one.",
        ],
    );
    folder.pipeline(&format!(
        "{GIVEN}stages:\n  - paragraph_dedupe: {{ min_characters: 13 }}\n"
    ));
    let out = folder.run_and_verify();
    assert_eq!(
        out.kept_texts(),
        [
            "A third one.",
            "A third one.\n",
            "The second text.\n",
            "Welcome to the harbour.\n\nThe first text.\n",
        ]
    );
    let (stage, reason) = (
        "paragraph_dedupe".to_string(),
        "repeated_paragraph".to_string(),
    );
    // A byte is a token here. 'A third one.' is one character too short to be compared.
    assert_eq!(edited(&out), [(stage.clone(), reason, 2, 50, 50)]);
    let a = || Some("a".to_string());
    assert_eq!(
        cuts(&out),
        [
            ("b".to_string(), stage.clone(), 0..25, a(), 25, false),
            ("c".to_string(), stage.clone(), 0..40, a(), 0, true),
            ("d".to_string(), stage, 13..38, a(), 25, false),
        ]
    );
    let [reject] = out.rejects().try_into().expect("one");
    assert_eq!(
        (reject.doc_id.as_str(), reject.value, reject.tokens),
        ("c", 40.0, 40)
    );
    let [row] = out.audit().rejected.try_into().expect("one");
    assert_eq!(
        (row.reason.as_str(), row.class, row.counts.tokens),
        ("repeated_paragraph", Some(Class::Duplicate), 40)
    );
    let notes: Vec<(String, u64)> = out
        .audit()
        .notes
        .into_iter()
        .map(|note| (note.note, note.count))
        .collect();
    assert_eq!(
        notes,
        [
            ("paragraphs_compared".to_string(), 7),
            ("paragraphs_repeated".to_string(), 4)
        ]
    );
    let csv = folder.goodput(&["audit", "out", "--format", "csv"]).stdout;
    assert!(
        csv.contains("edited,web,paragraph_dedupe,repeated_paragraph,duplicate,2,50,50"),
        "{csv}"
    );
    for format in ["table", "html"] {
        let shown = folder.goodput(&["audit", "out", "--format", format]);
        assert!(shown.stdout.contains("edited"), "{shown:?}");
    }
}

#[test]
fn cuts_that_are_not_those_of_the_run_are_found() {
    let folder = Folder::new();
    with_ids(&folder, &["one line\ntwo", "one line\nthree"]);
    folder.pipeline(&format!(
        "{GIVEN}stages:\n  - line_dedupe: {{ min_characters: 8 }}\n"
    ));
    let out = folder.run_and_verify();
    let good = out.text("audit.json");
    // Another figure in the ledger, the sums closing: what is missing here was never read.
    let mut audit: serde_json::Value = serde_json::from_str(&good).expect("JSON");
    audit["edited"][0]["tokens"] = json!(8);
    audit["read"][0]["tokens"] = json!(audit["read"][0]["tokens"].as_u64().expect("a count") - 1);
    audit["identities"][0]["left"] = audit["read"][0]["tokens"].clone();
    audit["identities"][0]["right"] = audit["read"][0]["tokens"].clone();
    folder.write("out/audit.json", audit.to_string());
    let said = folder.goodput(&["verify", "out", "--inputs"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    for claim in [
        "the cuts are those of the ledger",
        "the inputs have as many tokens as the ledger has read",
    ] {
        let line = said.stdout.lines().find(|line| line.contains(claim));
        assert!(
            line.is_some_and(|line| !line.contains("holds")),
            "{claim}: {}",
            said.stdout
        );
    }
}

#[test]
fn odd_texts_are_cut_at_their_lines() {
    let folder = Folder::new();
    let huge = "ä".repeat(1 << 20);
    let repeats = "the same line again\n".repeat(5_000);
    let texts = [
        "windows line\r\nother line\r\n",
        "other line\nwindows line\nlast",
        "",
        " \n\r\n\t",
        "最初の行です\n二番目の行です",
        "二番目の行です\n最初の行です\n三番目の行です",
        huge.as_str(),
        &format!("{huge}\nshort"),
        repeats.as_str(),
        &format!("{repeats}and an end"),
    ];
    with_ids(&folder, &texts);
    folder.pipeline(&format!(
        "{GIVEN}stages:\n  - line_dedupe: {{ min_characters: 6 }}\n"
    ));
    let out = folder.run_and_verify();
    let kept = out.texts();
    let of = |id: &str| kept.get(id).map(String::as_str);
    assert_eq!(of("a"), Some(texts[0]));
    assert_eq!(of("b"), Some("last"));
    // A text of white space alone is no document.
    assert_eq!((of("c"), of("d")), (None, None));
    assert_eq!(out.quarantine().len(), 2);
    assert_eq!(of("e"), Some(texts[4]));
    assert_eq!(of("f"), Some("三番目の行です"));
    assert_eq!(of("g"), Some(huge.as_str()));
    assert_eq!(of("h"), Some("short"));
    assert_eq!(of("i"), Some("the same line again\n"));
    assert_eq!(of("j"), Some("and an end"));
    // What touches is one cut.
    let of_j = cuts(&out).into_iter().filter(|cut| cut.0 == "j").count();
    assert_eq!(of_j, 1);
}

#[test]
fn what_an_edit_leaves_without_a_token_fails_and_is_in_quarantine() {
    let folder = Folder::new();
    let letters: serde_json::Map<String, serde_json::Value> = ('a'..='y')
        .chain([' '])
        .zip(0..)
        .map(|(letter, id)| (letter.to_string(), id.into()))
        .collect();
    let text = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": { "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                   "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": letters, "merges": [] }
    });
    folder.write("letters.json", text.to_string());
    with_ids(&folder, &["a line\nrest", "a line\nZZZ", "a line\nother"]);
    folder.pipeline(&format!(
        "{GIVEN}tokenizer: {{ file: letters.json }}\nstages:\n  - line_dedupe: {{ min_characters: 6 }}\n"
    ));
    let out = folder.run_and_verify();
    let [failed] = out.audit().failed.try_into().expect("one");
    assert_eq!(
        (
            failed.stage.as_str(),
            failed.counts.documents,
            failed.counts.tokens
        ),
        ("line_dedupe", 1, 6)
    );
    assert_eq!(edited(&out)[0].2, 1);
    let [line] = out.quarantine().try_into().expect("one");
    let detail = line["detail"].as_str().expect("a text");
    assert!(
        detail.contains("what the edit left") && line["reason"] == "failed",
        "{line}"
    );
}

#[test]
fn an_edit_may_leave_more_tokens_than_it_took() {
    // With the repeated line in it a text is two tokens, without it three.
    let folder = Folder::new();
    let merges = [("y", "y"), ("Ċ", "yy"), ("Ċyy", "Ċ"), ("x", "ĊyyĊ")];
    let mut tokenizer = byte_tokenizer_with(&merges);
    tokenizer["pre_tokenizer"]["use_regex"] = json!(false);
    folder.write("tokenizer.json", tokenizer.to_string());
    with_ids(&folder, &["yy\n", "x\nyy\nz"]);
    folder.pipeline(&format!(
        "{GIVEN}stages:\n  - line_dedupe: {{ min_characters: 2 }}\n"
    ));
    let out = folder.run_and_verify();
    assert_eq!((edited(&out)[0].3, edited(&out)[0].4), (3, -1));
    for (format, shown) in [
        ("csv", ",duplicate,1,3,-1"),
        ("json", "\"tokens\": -1"),
        ("table", " -1 "),
        ("html", ">-1<"),
    ] {
        let audit = folder.goodput(&["audit", "out", "--format", format]);
        assert!(audit.stdout.contains(shown), "{format}: {}", audit.stdout);
    }
}

/// Documents of lines that repeat, short and long, some of several paragraphs, with both line ends.
fn pages(seed: u64, count: usize) -> Vec<(String, String)> {
    let mut numbers = Numbers(seed);
    let lines: Vec<String> = (0..40)
        .map(|at| {
            let words = 1 + at % 9;
            numbers.words(words)
        })
        .collect();
    (0..count)
        .map(|at| {
            let mut text = String::new();
            for _ in 0..numbers.below(12) + 1 {
                text.push_str(&lines[numbers.below(lines.len())]);
                if numbers.below(6) == 0 {
                    text.push_str(&numbers.words(3));
                }
                text.push_str(["\n", "\n", "\r\n", "\n\n", "\n \n"][numbers.below(5)]);
            }
            if numbers.below(3) == 0 {
                text.truncate(text.trim_end().len());
            }
            (format!("d{:03}", at * 37 % 1009), text)
        })
        .collect()
}

fn write_pages(folder: &Folder, pages: &[(String, String)]) {
    let line = |(id, text): &(String, String)| json!({ "id": id, "text": text }).to_string() + "\n";
    folder.write("in.jsonl", pages.iter().map(line).collect::<String>());
}

/// What a chain of stages keeps of documents, and its ledger's rows of losses with their tokens.
fn kept_by(pages: &[(String, String)], stages: &[&str]) -> (Vec<(String, String)>, i64) {
    let folder = Folder::new();
    write_pages(&folder, pages);
    let chain: String = stages
        .iter()
        .map(|stage| format!("  - {stage}\n"))
        .collect();
    folder.pipeline(&format!("{GIVEN}stages:\n{chain}"));
    let out = folder.run_and_verify();
    let cut = edited(&out).iter().map(|row| row.4).sum();
    (out.texts().into_iter().collect(), cut)
}

#[test]
fn the_result_is_that_of_the_stages_one_after_another() {
    let chains: [&[&str]; 4] = [
        &[
            "paragraph_dedupe: { min_characters: 12 }",
            "length: { min_words: 4 }",
            "line_dedupe: { min_characters: 9 }",
            "near_dedupe: { min_similarity: 0.5, shingle_words: 2, keep: longest }",
            "length: { max_words: 60 }",
            "exact_dedupe: {}",
        ],
        &[
            "exact_dedupe: {}",
            "line_dedupe: { min_characters: 30, normalise: true }",
            "line_dedupe: { min_characters: 20 }",
            "select: { keep_share_of_tokens: 0.7, by: length_tokens }",
            "paragraph_dedupe: { min_characters: 5, normalise: true }",
        ],
        &[
            "length: { min_words: 6 }",
            "near_dedupe: { min_similarity: 0.6, shingle_words: 3 }",
            "length: { max_words: 90 }",
            "line_dedupe: { min_characters: 1 }",
            "select: { keep_tokens: 1500, by: length_tokens }",
            "length: { min_words: 2 }",
        ],
        &["paragraph_dedupe: {}"],
    ];
    for (at, chain) in chains.into_iter().enumerate() {
        let read = pages(at as u64, 150);
        let (whole, cut) = kept_by(&read, chain);
        let (mut texts, mut cut_in_turn) = (read, 0);
        for stage in chain {
            let (kept, cut) = kept_by(&texts, &[stage]);
            (texts, cut_in_turn) = (kept, cut_in_turn + cut);
        }
        assert!(!whole.is_empty());
        assert_eq!(whole, texts, "{chain:?}");
        assert_eq!(cut, cut_in_turn, "{chain:?}");
    }
}

#[test]
fn running_on_the_output_cuts_nothing() {
    for stage in [
        "line_dedupe: { min_characters: 5 }",
        "paragraph_dedupe: { min_characters: 5 }",
        "paragraph_dedupe: { min_characters: 5, normalise: true }",
    ] {
        let (once, cut) = kept_by(&pages(9, 120), &[stage]);
        assert!(cut > 0, "{stage}");
        assert_eq!(kept_by(&once, &[stage]), (once.clone(), 0), "{stage}");
    }
}

#[test]
fn ids_that_keep_their_order_change_nothing_but_the_first_stays() {
    let read = pages(4, 80);
    let stage = ["line_dedupe: { min_characters: 5 }"];
    let renamed: Vec<(String, String)> = read
        .iter()
        .map(|(id, text)| (format!("x-{id}"), text.clone()))
        .collect();
    let texts = |kept: (Vec<(String, String)>, i64)| -> Vec<String> {
        kept.0.into_iter().map(|(_, text)| text).collect()
    };
    assert_eq!(
        texts(kept_by(&read, &stage)),
        texts(kept_by(&renamed, &stage))
    );
    // Reading order is no order of ids: written backwards, the same documents keep their lines.
    let backwards: Vec<_> = read.iter().rev().cloned().collect();
    assert_eq!(kept_by(&read, &stage), kept_by(&backwards, &stage));
}

/// The pipeline of every kind of stage, with edits among them.
fn generated_with_edits(folder: &Path, count: usize) -> PathBuf {
    let pipeline = generated(folder, count);
    let text = fs::read_to_string(&pipeline).expect("reads");
    let text = text
        .replace(
            "  - language:",
            "  - line_dedupe: { min_characters: 300 }\n  - language:",
        )
        .replace(
            "  - score:",
            "  - paragraph_dedupe: { min_characters: 60 }\n  - span_dedupe: { min_tokens: 30 }\n  - length: { min_tokens: 17 }\n  - exact_dedupe: {}\n  - score:",
        );
    fs::write(&pipeline, text).expect("writes");
    pipeline
}

fn edited_stages(files: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let audit: serde_json::Value = serde_json::from_slice(&files["audit.json"]).expect("a ledger");
    let rows = audit["edited"].as_array().expect("rows");
    let mut stages: Vec<String> = rows
        .iter()
        .map(|row| row["stage"].as_str().expect("a label").to_string())
        .collect();
    stages.dedup();
    stages
}

#[test]
fn threads_memory_and_slices_change_no_byte_of_edited_documents() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipeline = generated_with_edits(folder.path(), 700);
    let files = assert_settings_change_nothing(
        &pipeline,
        folder.path(),
        &[
            &["--threads", "2"],
            &["--threads", "1", "--memory", "least"],
            &["--threads", "4", "--slice", "4kB"],
            &["--threads", "3", "--slice", "37kB", "--memory", "8GiB"],
        ],
    );
    assert_eq!(
        edited_stages(&files),
        ["line_dedupe", "paragraph_dedupe", "span_dedupe"]
    );
    // Sorts of a few records.
    let text = fs::read_to_string(&pipeline).expect("reads").replace(
        r#"{ estimator: ngram_excess, reference: "data/reference/*.jsonl", fit_tokens: 60_000 }"#,
        "{ estimator: random }",
    );
    fs::write(&pipeline, text.replace("by: difficulty", "by: score")).expect("writes");
    assert_settings_change_nothing(&pipeline, folder.path(), &[&[], &["--memory", "least"]]);
}

#[test]
fn a_run_that_edits_is_killed_anywhere_and_ends_with_the_same_bytes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipeline = generated_with_edits(folder.path(), 500);
    let out = folder.path().join("uninterrupted");
    let began = Instant::now();
    run(&pipeline, &out, &[]);
    let took = began.elapsed();
    let expected = bytes_of(&out);
    assert_eq!(
        edited_stages(&expected),
        ["line_dedupe", "paragraph_dedupe", "span_dedupe"]
    );
    let chain = folder.path().join("chain");
    for at in 1..8 {
        killed_after(&pipeline, &chain, took.mul_f64(f64::from(at) / 8.0));
    }
    run(&pipeline, &chain, &["--threads", "1"]);
    assert_same(&expected, &chain, "killed again and again");
}

#[test]
fn damaged_edits_of_an_earlier_run_are_made_anew() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipeline = generated_with_edits(folder.path(), 300);
    let (out, work) = (folder.path().join("out"), folder.path().join("work"));
    let keep = [
        "--work",
        work.to_str().expect("plain"),
        "--keep-work",
        "--slice",
        "20kB",
    ];
    run(&pipeline, &out, &keep);
    let expected = bytes_of(&out);
    let mut damaged = BTreeMap::new();
    for entry in walkdir::WalkDir::new(&work).sort_by_file_name() {
        let entry = entry.expect("readable");
        let name = entry.file_name().to_string_lossy().into_owned();
        let bytes = entry.metadata().expect("is there").len();
        let kinds = ["edits", "cuts", "units-0-sets", "units-0-rows", "languages"];
        if kinds.contains(&name.as_str()) && bytes > 0 {
            damaged.insert(name, entry.into_path());
        }
    }
    assert_eq!(damaged.len(), 5, "{damaged:?}");
    for path in damaged.values() {
        let mut bytes = fs::read(path).expect("reads");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(path, bytes).expect("writes");
    }
    fs::remove_dir_all(&out).expect("removes");
    run(&pipeline, &out, &keep);
    assert_same(&expected, &out, "damaged");
    fs::remove_dir_all(&out).expect("removes");
    let again = run(&pipeline, &out, &keep);
    assert_same(&expected, &out, "taken as it is");
    assert!(!stderr(&again).contains("damaged"));
}

#[test]
fn rejects_of_edited_documents_hold_the_text_that_the_stage_saw() {
    let folder = Folder::new();
    with_ids(
        &folder,
        &[
            "the line that comes twice\nand more words than the bound",
            "the line that comes twice\nfew",
        ],
    );
    folder.pipeline(&format!(
        "{GIVEN}stages:\n  - line_dedupe: {{ min_characters: 10 }}\n  - length: {{ min_words: 3 }}\noutput: {{ path: out, rejects: text }}\n"
    ));
    let out = folder.run_and_verify();
    let [reject] = out.rejects().try_into().expect("one");
    let ids = reject.input_ids.expect("kept");
    assert_eq!(
        (reject.stage.as_str(), text_of(&ids).as_str()),
        ("length", "few")
    );
    assert_eq!(edited(&out)[0].4, 26);
}
