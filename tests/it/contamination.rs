//! Items of evaluation sets in documents: found, shown, cut out or rejected with the document.

use crate::support::{Contaminated, Folder, line};
use arrow::array::{ArrayRef, ListBuilder, StringArray, StringBuilder};
use arrow::record_batch::RecordBatch;
use goodput::algo::overlap::{OverlapBuilder, OverlapRules};
use goodput::audit::Audit;
use goodput::record::Class;
use goodput::tokenizer::{Tokenizer, TokenizerSource};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// 16 words.
const ITEM: &str = "If a cat eats three of the twelve fish, how many fish are left for dogs?";
/// The same, changed in case, punctuation and lines.
const CHANGED: &str = "if a CAT eats three\nof the twelve fish how many - fish are left, for dogs";
/// 6 words: found as a whole only.
const SHORT: &str = "Who wrote the book of love?";

/// A pipeline with one stage with these options.
fn pipeline(options: &str) -> String {
    format!("stages:\n  - decontaminate: {{ {options} }}\n")
}

/// (document, set, item, stretch) of every row, the stretch as it stands in the document's text.
fn shown<'t>(
    rows: &[Contaminated],
    texts: &BTreeMap<String, &'t str>,
) -> Vec<(String, String, String, &'t str)> {
    rows.iter()
        .map(|row| {
            let text: &'t str = texts[&row.doc_id];
            (
                row.doc_id.clone(),
                row.set.clone(),
                row.item_id.clone(),
                &text[row.byte_start as usize..row.byte_end as usize],
            )
        })
        .collect()
}

/// Ids of the documents of `in.jsonl`.
fn ids(texts: &[String]) -> Vec<String> {
    let mut place = 0;
    texts
        .iter()
        .map(|text| {
            let id = format!("in.jsonl:{place}");
            place += line(text).len();
            id
        })
        .collect()
}

fn note(audit: &Audit, name: &str) -> u64 {
    let mut notes = audit.notes.iter();
    notes
        .find(|note| note.note == name)
        .map_or(0, |note| note.count)
}

/// Three documents, of which the last is clean.
fn documents() -> Vec<String> {
    vec![
        format!("Before it. {ITEM} After it."),
        format!("语言 — {CHANGED}. Then: who wrote the BOOK of love. É"),
        "If a cat eats three of the fish, how many are left? Who wrote the book?".to_string(),
    ]
}

fn folder_with_items() -> Folder {
    let folder = Folder::new();
    folder.documents("in.jsonl", &documents());
    folder.documents("eval.jsonl", &[ITEM, SHORT, "too short"]);
    folder
}

#[test]
fn a_document_with_an_item_is_rejected_and_the_evidence_says_where() {
    let folder = folder_with_items();
    folder.pipeline(&pipeline("evaluation: eval.jsonl"));
    let out = folder.run_and_verify();
    let texts = documents();
    let ids = ids(&texts);
    assert_eq!(out.kept_texts(), [texts[2].clone()]);
    let rejects = out.rejects();
    let told: Vec<_> = rejects
        .iter()
        .map(|row| {
            (
                &row.doc_id,
                row.stage.as_str(),
                row.reason.as_str(),
                row.value,
            )
        })
        .collect();
    let word = "contaminated";
    assert_eq!(
        told,
        [
            (&ids[0], "decontaminate", word, 1.0),
            (&ids[1], "decontaminate", word, 1.0)
        ]
    );
    let audit = out.audit();
    assert_eq!(audit.rejected[0].class, Some(Class::Contaminated));
    assert_eq!(note(&audit, "documents_with_an_item"), 2);
    assert_eq!(note(&audit, "evaluation_items"), 3);
    assert_eq!(note(&audit, "evaluation_items_too_short"), 1);
    let texts: BTreeMap<String, &str> = ids
        .iter()
        .cloned()
        .zip(texts.iter().map(String::as_str))
        .collect();
    let rows = out.contamination();
    let item = |place: usize| format!("eval.jsonl:{place}");
    let (first, second) = (item(0), item(line(ITEM).len()));
    let set = "eval.jsonl".to_string();
    assert_eq!(
        shown(&rows, &texts),
        [
            (ids[0].clone(), set.clone(), first.clone(), ITEM),
            (
                ids[1].clone(),
                set.clone(),
                first,
                "if a CAT eats three\nof the twelve fish how many - fish are left, for dogs."
            ),
            (ids[1].clone(), set, second, "who wrote the BOOK of love."),
        ]
    );
    let counts: Vec<_> = rows
        .iter()
        .map(|row| (row.keys_held, row.keys, row.overlap, row.items))
        .collect();
    assert_eq!(counts, [(4, 4, 1.0, 1), (4, 4, 1.0, 1), (1, 1, 1.0, 1)]);
    assert!(
        rows.iter()
            .all(|row| row.source == "web" && row.stage == "decontaminate")
    );
    let manifest = out.manifest();
    let file = manifest
        .files
        .iter()
        .find(|file| file.path == "contamination/part-00000.parquet")
        .expect("it is named");
    assert_eq!(file.rows, 3);
    let tokens: u64 = rejects.iter().map(|row| u64::from(row.tokens)).sum();
    assert_eq!(file.tokens, tokens);
}

#[test]
fn report_removes_nothing_and_remove_span_the_stretches_alone() {
    let folder = folder_with_items();
    folder.documents("in.jsonl", &[documents(), vec![ITEM.to_string()]].concat());
    folder.pipeline(&pipeline("evaluation: eval.jsonl, policy: report"));
    let out = folder.run_and_verify();
    assert_eq!((out.kept_texts().len(), out.rejects().len()), (4, 0));
    let evidence = out.contamination();
    assert_eq!(evidence.len(), 4);

    folder.pipeline(&pipeline("evaluation: eval.jsonl, policy: remove_span"));
    folder.run(&["--out", "cut"]);
    folder.verify("cut");
    let out = folder.out("cut");
    let mut left = vec![
        "Before it.  After it.".to_string(),
        "语言 —  Then:  É".to_string(),
        documents()[2].clone(),
    ];
    left.sort();
    assert_eq!(out.kept_texts(), left);
    // Nothing but the item: the document goes as a whole.
    assert_eq!(out.rejects().len(), 1);
    assert_eq!(out.contamination(), evidence);
    let audit = out.audit();
    let [edited] = audit.edited.as_slice() else {
        panic!("{:?}", audit.edited)
    };
    let bytes = ITEM.len() + CHANGED.len() + 1 + "who wrote the BOOK of love.".len();
    assert_eq!(
        (
            edited.reason.as_str(),
            edited.class,
            edited.counts.documents
        ),
        ("contaminated", Some(Class::Contaminated), 2)
    );
    assert_eq!(edited.counts.bytes, bytes as i64);
}

#[test]
fn a_part_of_an_item_counts_from_the_overlap_on() {
    let folder = folder_with_items();
    // 14 of 16 words: two of four n-grams.
    let part = ITEM.rsplit_once(" for").expect("it ends so").0;
    folder.documents("in.jsonl", &[part, "something else"]);
    let rejected = |options: &str, out: &str| {
        folder.pipeline(&pipeline(&format!("evaluation: eval.jsonl, {options}")));
        folder.run(&["--out", out]);
        folder.out(out).rejects().len()
    };
    assert_eq!(rejected("min_overlap: 0.5", "at"), 1);
    assert_eq!(rejected("min_overlap: 0.51", "above"), 0);
    // One n-gram of 14 words of the three.
    assert_eq!(rejected("ngram_words: 14, min_overlap: 0.33", "longer"), 1);
    assert_eq!(rejected("ngram_words: 15, min_overlap: 0", "too-long"), 0);
}

#[test]
fn items_in_two_sets_and_allowed_texts() {
    let folder = folder_with_items();
    folder.write("sets/a.txt", SHORT);
    folder.documents("sets/b.jsonl", &[ITEM, CHANGED, ITEM, SHORT]);
    folder.write("allow/licence.txt", format!("{ITEM} and more"));
    folder.pipeline(&pipeline("evaluation: sets/*, policy: report"));
    let rows = folder.run_and_verify().contamination();
    let named: Vec<_> = rows
        .iter()
        .map(|row| (row.set.as_str(), row.item_id.as_str(), row.items))
        .collect();
    let place = line(ITEM).len() * 2 + line(CHANGED).len();
    assert_eq!(
        named,
        [
            ("b.jsonl", "b.jsonl:0", 3),
            ("b.jsonl", "b.jsonl:0", 3),
            ("a.txt", "a.txt:0", 1),
            ("b.jsonl", &format!("b.jsonl:{place}"), 1),
        ]
    );
    folder.pipeline(&pipeline(
        "evaluation: sets/*, policy: report, allow: allow/*.txt",
    ));
    folder.run(&["--out", "allowed"]);
    let out = folder.out("allowed");
    let sets: Vec<_> = out.contamination().into_iter().map(|row| row.set).collect();
    assert_eq!(sets, ["a.txt", "b.jsonl"]);
    assert_eq!(note(&out.audit(), "ngrams_allowed"), 4);
    assert_eq!(note(&out.audit(), "evaluation_items_without_a_key"), 3);
}

#[test]
fn fields_ids_and_formats_are_those_of_the_set() {
    let folder = folder_with_items();
    let (question, answer) = ITEM.split_once(" fish,").expect("it says so");
    let answer = format!("fish,{answer}");
    let record = |id: &str, answer: Value| {
        json!({ "q": { "text": question }, "a": answer, "key": id }).to_string() + "\n"
    };
    let id = "an \"id\"\n\u{1}\u{7f}é";
    folder.write(
        "eval.jsonl",
        record(id, json!(answer)) + "\n" + &record("none", Value::Null),
    );
    let options = "text_fields: [q.text, a], id_field: key, policy: report";
    folder.pipeline(&pipeline(&format!("evaluation: eval.jsonl, {options}")));
    let rows = folder.run_and_verify().contamination();
    let found: Vec<_> = rows
        .iter()
        .map(|row| (row.item_id.as_str(), row.keys))
        .collect();
    // The second item is the question alone, short, and changed in nothing but its layout.
    assert_eq!(
        found,
        [("none", 1), (id, 4), ("none", 1), (id, 4)],
        "{rows:?}"
    );

    // Choices are a list: they are found as they follow each other, whatever stands between them.
    let (most, last) = ITEM.rsplit_once(' ').expect("words");
    folder.write(
        "choices.jsonl",
        json!({ "q": null, "stem": "", "c": { "text": [most, null, last, 12] } }).to_string()
            + "\n",
    );
    folder.pipeline(&pipeline(
        "evaluation: choices.jsonl, text_fields: c.text, policy: report",
    ));
    folder.run(&["--out", "choices"]);
    let rows = folder.out("choices").contamination();
    let shares: Vec<_> = rows.iter().map(|row| (row.keys_held, row.keys)).collect();
    assert_eq!(shares, [(4, 5), (4, 5)]);
    folder.write("choices.jsonl", "{\"c\": [[\"a\"]]}\n");
    folder.pipeline(&pipeline("evaluation: choices.jsonl, text_fields: c"));
    folder
        .goodput(&["check", "p.yaml"])
        .refuses(&["an array of other than texts and numbers", "'text_fields'"]);

    let mut lists = ListBuilder::new(StringBuilder::new());
    for words in [vec![most, last], vec![SHORT]] {
        words
            .iter()
            .for_each(|word| lists.values().append_value(word));
        lists.append(true);
    }
    let listed: ArrayRef = Arc::new(lists.finish());
    let batch = RecordBatch::try_from_iter([("choices", listed)]).expect("a column");
    folder.write("listed.parquet", "");
    let file = fs::File::create(folder.path("listed.parquet")).expect("a file");
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).expect("a writer");
    writer.write(&batch).expect("written");
    writer.close().expect("written");
    folder.pipeline(&pipeline(
        "evaluation: listed.parquet, text_fields: choices",
    ));
    folder.run(&["--out", "listed"]);
    assert_eq!(folder.out("listed").contamination().len(), 3);

    let column: ArrayRef = Arc::new(StringArray::from(vec![ITEM, SHORT]));
    let batch = RecordBatch::try_from_iter([("prompt", column)]).expect("a column");
    folder.write("eval.parquet", "");
    let file = fs::File::create(folder.path("eval.parquet")).expect("a file");
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).expect("a writer");
    writer.write(&batch).expect("written");
    writer.close().expect("written");
    folder.pipeline(&pipeline("evaluation: eval.parquet, text_fields: prompt"));
    folder.run(&["--out", "parquet"]);
    let rows = folder.out("parquet").contamination();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[0].item_id, "eval.parquet:0");
}

#[test]
fn a_set_that_cannot_be_looked_for_is_refused_before_anything_is_read() {
    let folder = folder_with_items();
    let refused = |options: &str, words: &[&str]| {
        folder.pipeline(&pipeline(options));
        for command in [["check", "p.yaml"], ["run", "p.yaml"]] {
            folder.goodput(&command).refuses(words);
        }
        assert!(!folder.path("out").exists());
    };
    refused(
        "evaluation: nothing/*.jsonl",
        &["'evaluation'", "nothing/*.jsonl", "p.yaml:"],
    );
    folder.write("empty.jsonl", "");
    refused(
        "evaluation: [eval.jsonl, empty.jsonl]",
        &["empty.jsonl", "no record", "'text_fields'"],
    );
    refused(
        "evaluation: eval.jsonl, text_fields: question",
        &[
            "eval.jsonl",
            "3 missing_text",
            "the first has the keys text",
        ],
    );
    refused(
        "evaluation: eval.jsonl, text_fields: [text, answer]",
        &["eval.jsonl", "none of its 3 records has the field 'answer'"],
    );
    refused(
        "evaluation: eval.jsonl, text_fields: []",
        &["'text_fields'", "at least one"],
    );
    refused(
        "evaluation: eval.jsonl, min_item_words: 17",
        &["eval.jsonl: none of its 3 items", "3 have fewer words"],
    );
    folder.documents("many.jsonl", &[format!("{ITEM} a"), format!("{ITEM} b")]);
    folder.write("famous.txt", format!("{ITEM} a, {ITEM} b"));
    refused(
        "evaluation: many.jsonl, allow: famous.txt",
        &["many.jsonl: none of its 2 items", "'allow'"],
    );
    folder.documents("named.jsonl", &[ITEM]);
    refused(
        "evaluation: named.jsonl, id_field: id",
        &["named.jsonl", "1 missing_id", "'id_field' must name"],
    );
    folder.write("named.txt", ITEM);
    refused(
        "evaluation: named.txt, id_field: id",
        &["named.txt", "no field 'id'", "out of 'id_field'"],
    );
    folder.write("named.bin", ITEM);
    refused(
        "evaluation: named.bin",
        &["named.bin", "let it end in .jsonl"],
    );
    let packed = zstd::encode_all(line(ITEM).repeat(500).as_bytes(), 3).expect("memory");
    folder.write("cut.jsonl.zst", &packed[..packed.len() - 8]);
    refused(
        "evaluation: cut.jsonl.zst",
        &["cut.jsonl.zst", "fetch the file again"],
    );
}

#[test]
fn what_cannot_be_read_or_found_of_a_set_is_told_and_counted() {
    let folder = folder_with_items();
    folder.write("eval.jsonl", line(ITEM) + "{ broken\n\n" + &line(SHORT));
    folder.pipeline(&pipeline("evaluation: eval.jsonl"));
    let ran = folder.run(&[]);
    assert!(
        ran.stderr.contains("1 records could not be read"),
        "{ran:?}"
    );
    let audit = folder.out("out").audit();
    assert_eq!(note(&audit, "evaluation_records_unread"), 1);
    assert_eq!(note(&audit, "evaluation_items"), 2);
}

#[test]
fn documents_that_never_reach_the_stage_have_no_evidence() {
    let folder = folder_with_items();
    let twice = [documents(), documents()].concat();
    folder.documents("in.jsonl", &twice);
    folder.pipeline(
        "stages:\n  - exact_dedupe: {}\n  - length: { min_tokens: 85 }\n  \
         - decontaminate: { evaluation: eval.jsonl }\n",
    );
    let out = folder.run_and_verify();
    let ids = ids(&twice);
    assert_eq!(documents()[2].len(), 71);
    let mut shown: Vec<String> = out
        .contamination()
        .into_iter()
        .map(|row| row.doc_id)
        .collect();
    shown.dedup();
    assert_eq!(shown, [ids[0].clone(), ids[1].clone()]);
    let stages: Vec<_> = out.rejects().into_iter().map(|row| row.stage).collect();
    let of = |name: &str| stages.iter().filter(|stage| *stage == name).count();
    assert_eq!(
        (of("exact_dedupe"), of("length"), of("decontaminate")),
        (3, 1, 2)
    );
}

#[test]
fn what_is_found_in_each_segment_of_the_chain_is_evidence() {
    let folder = folder_with_items();
    let twice = [documents(), documents()].concat();
    folder.documents("in.jsonl", &twice);
    folder.pipeline(
        "stages:\n  - decontaminate: { evaluation: eval.jsonl, policy: report }\n  - exact_dedupe: {}\n  \
         - decontaminate: { evaluation: eval.jsonl, policy: remove_span }\n",
    );
    let out = folder.run_and_verify();
    let ids = ids(&twice);
    let rows = out.contamination();
    let shown: Vec<_> = rows
        .iter()
        .map(|row| {
            let document = ids.iter().position(|id| *id == row.doc_id);
            (document.expect("one of them"), row.stage.as_str())
        })
        .collect();
    let (first, second) = ("decontaminate", "decontaminate#2");
    assert_eq!(
        shown,
        [
            (0, first),
            (0, second),
            (1, first),
            (1, first),
            (1, second),
            (1, second),
            (3, first),
            (4, first),
            (4, first)
        ]
    );
    assert_eq!(out.kept_texts().len(), 3);
    assert!(
        out.kept_texts()
            .contains(&"Before it.  After it.".to_string())
    );
}

#[test]
fn another_evaluation_set_is_not_answered_from_work_that_is_done() {
    let folder = folder_with_items();
    folder.pipeline(&pipeline("evaluation: eval.jsonl"));
    folder.run(&["--out", "a", "--work", "kept", "--keep-work"]);
    assert_eq!(folder.out("a").rejects().len(), 2);
    folder.documents("eval.jsonl", &[SHORT]);
    folder.run(&["--out", "b", "--work", "kept", "--keep-work"]);
    assert_eq!(folder.out("b").rejects().len(), 1);
}

fn shared() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data")
}

/// The text of a packed file; `None` without the shared data.
fn unpacked(name: &str) -> Option<String> {
    let file = fs::File::open(shared().join(name)).ok()?;
    Some(String::from_utf8(zstd::decode_all(file).expect("whole")).expect("UTF-8"))
}

#[test]
#[expect(clippy::print_stdout, reason = "says what was found, or why nothing")]
fn every_planted_question_is_found_and_no_clean_document_is_flagged() {
    let Some(truth) = unpacked("labelled/contaminated-truth.tsv.zst") else {
        println!("skipped: no shared data");
        return;
    };
    let documents = unpacked("labelled/contaminated.jsonl.zst").expect("beside it");
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    for line in documents.lines() {
        let record: Value = serde_json::from_str(line).expect("JSON");
        let text = |key: &str| record[key].as_str().expect("text").to_string();
        texts.insert(text("id"), text("text"));
    }
    let folder = Folder::new();
    let shared = shared().canonicalize().expect("it is there");
    let shared = shared.display();
    folder.pipeline(&format!(
        "inputs:\n  - {{ path: {shared}/labelled/contaminated.jsonl.zst, source: web, id: id }}\n{}",
        pipeline(&format!(
            "evaluation: {shared}/eval/*.jsonl.zst, id_field: id, policy: report"
        ))
    ));
    let rows = folder.run_and_verify().contamination();
    let mut by_document: BTreeMap<&str, Vec<&Contaminated>> = BTreeMap::new();
    for row in &rows {
        by_document.entry(&row.doc_id).or_default().push(row);
    }
    // (planted, found, found whole), and documents with other items than the planted one.
    let mut counts: BTreeMap<String, [u32; 3]> = BTreeMap::new();
    let mut others = 0;
    for row in truth.lines().skip(1) {
        let columns: Vec<&str> = row.split('\t').collect();
        let [id, question, how, start, end] = columns[..5] else {
            panic!("{row}")
        };
        let found = by_document.remove(id).unwrap_or_default();
        let count = counts.entry(how.to_string()).or_default();
        count[0] += 1;
        let (mine, more): (Vec<&Contaminated>, Vec<&Contaminated>) =
            found.iter().partition(|row| row.item_id == question);
        others += u32::from(!more.is_empty());
        if how == "none" {
            count[1] += u32::from(!found.is_empty());
            continue;
        }
        let place = |column: &str| -> u64 {
            let characters: usize = column.parse().expect("a number");
            let text = &texts[id];
            text.char_indices()
                .nth(characters)
                .map_or(text.len(), |(at, _)| at) as u64
        };
        let (start, end) = (place(start), place(end));
        let here = mine
            .iter()
            .filter(|row| row.byte_start < end && row.byte_end > start);
        count[1] += u32::from(here.count() > 0);
        count[2] += u32::from(mine.iter().any(|row| row.keys_held == row.keys));
    }
    println!(
        "(planted, found, found whole) by kind: {counts:?}; other items too in {others} documents"
    );
    for kind in ["verbatim", "lower_nopunct", "rewrapped"] {
        assert_eq!(counts[kind], [60; 3], "{kind}");
    }
    assert_eq!(counts["none"], [60, 0, 0]);
    // Excerpts of three fifths of a question: one of them has 12 words, fewer than an n-gram.
    assert!(counts["partial60"][1] >= 59, "{counts:?}");
    assert_eq!(by_document.len(), 0);
}

/// Seconds beside those of the tokenizer, both on one thread, texts decoded already. On a busy machine
/// the fastest of three rounds each.
#[test]
#[ignore = "measures time: cargo test --release --test it -- --ignored looking_for_items --nocapture"]
#[expect(
    clippy::print_stdout,
    reason = "says what was measured, or why nothing"
)]
fn looking_for_items_beside_tokenizing() {
    let tokenizer = shared().join("tokenizers/gpt2/tokenizer.json");
    let mut builder = OverlapBuilder::new(OverlapRules {
        ngram_words: 13,
        min_text_words: 5,
        max_texts_per_ngram: 10,
    });
    let text_of = |line: &str| -> String {
        let record: Value = serde_json::from_str(line).expect("JSON");
        record["text"].as_str().expect("text").to_string()
    };
    for (number, set) in ["bbh", "gsm8k", "humaneval"].iter().enumerate() {
        let Some(items) = unpacked(&format!("eval/{set}.jsonl.zst")) else {
            println!("skipped: no shared data");
            return;
        };
        for line in items.lines() {
            builder
                .add(number as u32, "", &text_of(line))
                .expect("few words");
        }
    }
    // As many n-grams more as the sets of a large suite have: they fill the caches of the processor.
    let mut numbers = crate::support::Numbers(3);
    for _ in 0..20_000 {
        builder.add(3, "", &numbers.words(100)).expect("few words");
    }
    let index = builder.build();
    let tokenizer = Tokenizer::load(&TokenizerSource::File(tokenizer), None).expect("a tokenizer");
    let mut files: Vec<PathBuf> = fs::read_dir(shared().join("mix"))
        .expect("beside the sets")
        .map(|entry| entry.expect("readable").path())
        .collect();
    files.sort();
    let mut texts: Vec<String> = Vec::new();
    for file in files {
        let lines = zstd::decode_all(fs::File::open(file).expect("readable")).expect("whole");
        let lines = String::from_utf8(lines).expect("UTF-8");
        texts.extend(
            lines
                .split('\n')
                .filter(|line| !line.is_empty())
                .map(text_of),
        );
    }
    let bytes: usize = texts.iter().map(String::len).sum();
    let (mut tokenizing, mut looking) = (Duration::MAX, Duration::MAX);
    let mut tokens = Vec::new();
    let (mut count, mut found) = (0, 0);
    for _ in 0..3 {
        let began = Instant::now();
        count = 0;
        for text in &texts {
            tokenizer.encode_into(text, &mut tokens).expect("tokens");
            count += tokens.len();
        }
        tokenizing = tokenizing.min(began.elapsed());
        let began = Instant::now();
        found = texts
            .iter()
            .filter(|text| !index.find(text, 0.1).is_empty())
            .count();
        looking = looking.min(began.elapsed());
    }
    let share = looking.as_secs_f64() / tokenizing.as_secs_f64();
    println!(
        "{bytes} bytes, {count} tokens, {found} documents with an item: tokenizing {tokenizing:?}, looking {looking:?}, {share:.3} of it"
    );
}
