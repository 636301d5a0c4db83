//! Inputs and events that broke other tools, and what happens here.

use crate::support::{
    BEGIN, END, Folder, Numbers, Out, byte_tokenizer, byte_tokenizer_with, line, rows_of, text_of,
};
use arrow::array::{ArrayRef, Float64Array, StringArray};
use arrow::record_batch::RecordBatch;
use goodput::audit::{Audit, LossRow};
use goodput::engine::{self, RunOptions, RunRecord, Silent, Stop};
use goodput::plan::{Overrides, load};
use goodput::shard::{
    Part, ReadShard, SegmentRow, ShardRow, ShardRows, ShardShape, UsefulnessType, schema,
};
use goodput::tokenizer::{Tokenizer, TokenizerSource};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::sync::Arc;

/// Rows as (stage, reason, documents).
fn losses(rows: &[LossRow]) -> Vec<(&str, &str, u64)> {
    rows.iter()
        .map(|row| {
            (
                row.stage.as_str(),
                row.reason.as_str(),
                row.counts.documents,
            )
        })
        .collect()
}

/// Rows as (reason, records).
fn quarantined(audit: &Audit) -> Vec<(&str, u64)> {
    audit
        .quarantined
        .iter()
        .map(|row| (row.reason.as_str(), row.records))
        .collect()
}

fn note(audit: &Audit, name: &str) -> u64 {
    audit
        .notes
        .iter()
        .find(|note| note.note == name)
        .map_or(0, |note| note.count)
}

// 1
#[test]
fn of_cat_dog_cat_the_second_cat_goes_with_the_id_of_the_first() {
    let folder = Folder::new();
    folder.documents("in.jsonl", &["cat", "dog", "cat"]);
    folder.pipeline("stages:\n  - exact_dedupe: {}\n  - near_dedupe: {}\n");
    let out = folder.run_and_verify();
    assert_eq!(out.kept_texts(), ["cat", "dog"]);
    let [duplicate] = out.duplicates().try_into().expect("one");
    assert_eq!(
        (duplicate.dropped_id.as_str(), duplicate.kept_id.as_str()),
        ("in.jsonl:30", "in.jsonl:0")
    );
    assert_eq!((duplicate.similarity, duplicate.tokens), (1.0, 3));
    let [reject] = out.rejects().try_into().expect("one");
    assert_eq!(
        (reject.stage.as_str(), reject.reason.as_str()),
        ("exact_dedupe", "exact_duplicate")
    );
    assert_eq!(reject.kept_id.as_deref(), Some("in.jsonl:0"));
}

// 1, without the exact stage before
#[test]
fn near_dedupe_alone_finds_a_copy_that_is_shorter_than_a_shingle() {
    let folder = Folder::new();
    folder.documents("in.jsonl", &["cat", "dog", "cat"]);
    folder.pipeline("stages:\n  - near_dedupe: {}\n");
    let out = folder.run_and_verify();
    assert_eq!(out.kept_texts(), ["cat", "dog"]);
    assert_eq!(out.duplicates().len(), 1);
}

// 2
#[test]
fn documents_shorter_than_a_shingle_are_no_copies_of_each_other() {
    let folder = Folder::new();
    let texts: Vec<String> = (0..100)
        .map(|n| ["one", "two", "three"][..1 + n % 3].join(" ") + &format!(" {n}"))
        .collect();
    folder.documents("in.jsonl", &texts);
    folder.pipeline("stages:\n  - near_dedupe: { shingle_words: 5 }\n");
    let out = folder.run_and_verify();
    assert_eq!(out.texts().len(), 100);
    assert_eq!(out.duplicates(), []);
    let audit = out.audit();
    assert_eq!(
        note(&audit, "compared_as_a_whole_too_short_to_shingle"),
        100
    );
    assert_eq!(note(&audit, "pairs_verified"), 0);
}

// 3
#[test]
fn texts_that_are_none_have_each_their_own_reason() {
    let folder = Folder::new();
    let records = [
        (r#"{"id":"a","text":""}"#, Some("empty_text")),
        (r#"{"id":"b","text":"first"}"#, None),
        (r#"{"id":"c","text":"   "}"#, Some("whitespace_text")),
        (r#"{"id":"d","text":"\n"}"#, Some("whitespace_text")),
        (r#"{"id":"e"}"#, Some("missing_text")),
        (r#"{"id":"f","text":null}"#, Some("null_text")),
        (r#"{"id":"g","text":5}"#, Some("text_not_string")),
        (r#"[]"#, Some("not_an_object")),
        (r#"{"text":"no id"}"#, Some("missing_id")),
        (r#"{"id":"b","text":"again"}"#, Some("duplicate_id")),
        (r#"{"id":"z","text":"last"}"#, None),
    ];
    let (mut file, mut expected) = (String::new(), Vec::new());
    for (record, reason) in records {
        expected.extend(reason.map(|reason| (reason.to_string(), Some(file.len() as u64))));
        file.push_str(record);
        file.push('\n');
    }
    folder.write("in.jsonl", &file);
    folder.pipeline("inputs:\n  - { path: in.jsonl, source: web, id: id }\n");
    let out = folder.run_and_verify();
    assert_eq!(
        out.texts(),
        BTreeMap::from([("b".into(), "first".into()), ("z".into(), "last".into())])
    );
    assert_eq!(out.quarantined(), expected);
    let audit = out.audit();
    assert_eq!(
        (audit.records_in_files, audit.quarantined_records()),
        (11, 9)
    );
}

// 4
#[test]
fn blank_lines_are_counted_and_change_no_token() {
    let folder = Folder::new();
    let mut file = String::new();
    for row in 0..1000 {
        file.push_str(&if row % 25 < 3 {
            "\n".to_string()
        } else {
            line(&format!("row {row}"))
        });
    }
    folder.write("with.jsonl", &file);
    folder.write(
        "without.jsonl",
        file.lines()
            .filter(|line| !line.is_empty())
            .map(|line| format!("{line}\n"))
            .collect::<String>(),
    );
    let input = |name: &str| {
        format!("inputs:\n  - {{ path: {name}.jsonl, source: web }}\noutput: {{ path: {name} }}\n")
    };
    for name in ["with", "without"] {
        folder.pipeline(&input(name));
        folder.run(&[]);
        folder.verify(name);
    }
    let (with, without) = (folder.out("with"), folder.out("without"));
    assert_eq!(quarantined(&with.audit()), [("blank", 120)]);
    assert_eq!(Audit::total(&with.audit().read).documents, 880);
    assert_eq!(
        Audit::total(&with.audit().read),
        Audit::total(&without.audit().read)
    );
    assert_eq!(with.kept_texts(), without.kept_texts());
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

fn zstandard(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("level 1");
    encoder.include_checksum(true).expect("it can");
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

// 5
#[test]
fn a_compressed_file_that_is_cut_off_gives_its_complete_records_and_is_flagged() {
    let mut numbers = Numbers(1);
    let texts: Vec<String> = (0..3000).map(|_| numbers.words(40)).collect();
    let file: String = texts.iter().map(|text| line(text)).collect();
    for (ending, packed) in [
        ("gz", gzip(file.as_bytes())),
        ("zst", zstandard(file.as_bytes())),
    ] {
        for keep in [packed.len() / 2, packed.len() - 20, packed.len() - 2] {
            let folder = Folder::new();
            let name = format!("in.jsonl.{ending}");
            folder.write(&name, &packed[..keep]);
            let input =
                |rest: &str| format!("inputs:\n  - {{ path: {name}, source: web{rest} }}\n");
            folder.pipeline(&input(""));
            let ran = folder.run(&[]);
            folder.verify("out");
            assert!(ran.stderr.contains(&name), "the cut is told: {ran:?}");
            let out = folder.out("out");
            let audit = out.audit();
            let kept = Audit::total(&audit.kept).documents as usize;
            assert!(
                kept > 1000 && kept <= texts.len(),
                "{name} cut at {keep}: {kept}"
            );
            let mut expected = texts[..kept].to_vec();
            expected.sort();
            assert_eq!(out.kept_texts(), expected, "{name} cut at {keep}");
            assert_eq!(audit.truncated_files.len(), 1, "{name} cut at {keep}");
            assert_eq!(audit.truncated_files[0].file, name);
            assert!(
                audit.quarantined_records() <= 1,
                "only the record in which the cut is"
            );
            assert!(
                kept == texts.len() || quarantined(&audit) == [("truncated", 1)],
                "{:?}",
                audit.quarantined
            );

            folder.pipeline(&input(", on_error: fail"));
            folder
                .goodput(&["run", "p.yaml", "--out", "other", "--progress", "off"])
                .fails(&[&name, "on_error"]);
            assert!(!folder.path("other/manifest.json").exists());
        }
    }
}

/// Ten records of which number 5 is `broken`.
fn ten_with(broken: &[u8]) -> (Vec<u8>, u64) {
    let mut file = Vec::new();
    let mut offset = 0;
    for number in 1..=10 {
        if number == 5 {
            offset = file.len() as u64;
            file.extend_from_slice(broken);
            file.push(b'\n');
        } else {
            file.extend_from_slice(line(&format!("number {number}")).as_bytes());
        }
    }
    (file, offset)
}

// 6 and 7
#[test]
fn a_broken_line_takes_none_of_its_neighbours_along() {
    for (broken, reason) in [
        (&b"{\"text\": \"number 5"[..], "invalid_json"),
        (b"{\"text\": \"number \xff5\"}", "invalid_utf8"),
    ] {
        let folder = Folder::new();
        let (file, offset) = ten_with(broken);
        folder.write("in.jsonl", &file);
        folder.pipeline("");
        let out = folder.run_and_verify();
        assert_eq!(out.quarantined(), [(reason.to_string(), Some(offset))]);
        let raw = out.quarantine()[0]["raw_base64"]
            .as_str()
            .expect("text")
            .to_string();
        assert_eq!(
            base64::Engine::decode(&base64::engine::general_purpose::STANDARD, raw)
                .expect("base64"),
            broken
        );
        for (id, text) in out.texts() {
            let place: usize = id
                .strip_prefix("in.jsonl:")
                .expect("a derived id")
                .parse()
                .expect("a number");
            assert!(
                file[place..].starts_with(line(&text).as_bytes()),
                "{id} is where its text stands"
            );
        }
        let expected: BTreeSet<String> = (1..=10)
            .filter(|n| *n != 5)
            .map(|n| format!("number {n}"))
            .collect();
        assert_eq!(out.texts().into_values().collect::<BTreeSet<_>>(), expected);

        folder.pipeline("inputs:\n  - { path: in.jsonl, source: web, on_error: fail }\n");
        let ran = folder.goodput(&["run", "p.yaml", "--out", "other", "--progress", "off"]);
        ran.fails(&["in.jsonl", &offset.to_string(), reason]);
    }
}

// 10
#[test]
fn very_long_runs_of_one_character_have_the_ids_of_the_merges() {
    let folder = Folder::new();
    let merges = [
        ("a", "a"),
        ("aa", "aa"),
        ("^", "^"),
        ("^^", "^^"),
        ("^^^^", "^^^^"),
    ];
    folder.write("tokenizer.json", byte_tokenizer_with(&merges).to_string());
    folder.documents("in.jsonl", &["a".repeat(100_000), "^".repeat(1_000_000)]);
    folder.pipeline("");
    folder.run(&["--threads", "1"]);
    folder.verify("out");
    // "aaaa" is the second merge and "^^^^^^^^" the fifth; both lengths are multiples. As runs of
    // (id, length), since a failure shows them.
    let runs = |ids: &[u32]| -> Vec<(u32, usize)> {
        ids.chunk_by(|a, b| a == b)
            .map(|run| (run[0], run.len()))
            .collect()
    };
    let ids: Vec<_> = folder
        .out("out")
        .rows()
        .iter()
        .map(|row| runs(&row.input_ids))
        .collect();
    let end = END + merges.len() as u32;
    assert_eq!(ids, [[(257, 25_000), (end, 1)], [(260, 125_000), (end, 1)]]);
}

/// A pipeline with a vocabulary that the program brings along.
const BUILTIN: &str = "tokenizer: { builtin: o200k }\n";

// 10 and 11
#[test]
fn a_long_line_has_the_ids_of_the_text_as_a_whole() {
    let folder = Folder::new();
    let text = Numbers(3).words(160_000);
    assert!(text.len() > 1_000_000);
    let texts = ["^".repeat(1_000_000), text];
    folder.documents("in.jsonl", &texts);
    folder.pipeline(BUILTIN);
    folder.run(&[]);
    folder.verify("out");
    let tokenizer = Tokenizer::load(&TokenizerSource::Builtin("o200k".into()), None)
        .expect("it is brought along");
    let mut found: Vec<Vec<u32>> = folder
        .out("out")
        .rows()
        .into_iter()
        .map(|row| row.input_ids)
        .collect();
    found.sort();
    let mut expected = Vec::new();
    for text in &texts {
        let mut ids = Vec::new();
        tokenizer.encode_into(text, &mut ids).expect("it encodes");
        assert_eq!(&tokenizer.decode(&ids), text);
        expected.push(ids);
    }
    expected.sort();
    assert!(found == expected, "other ids");
}

// 11
#[test]
fn a_line_of_50_mb_is_one_document() {
    let folder = Folder::new();
    let text = Numbers(4).words(1_000).repeat(8_000);
    let text = &text[..50_000_000];
    folder.write("in.jsonl", line(text).trim_end());
    folder.pipeline("stages:\n  - exact_dedupe: {}\n  - near_dedupe: {}\noutput: { path: out, shard_tokens: 20_000_000 }\n");
    let out = folder.run_and_verify();
    let audit = out.audit();
    assert_eq!(Audit::total(&audit.kept).documents, 1);
    assert_eq!(Audit::total(&audit.kept).tokens, 50_000_000);
    assert_eq!(out.shards().len(), 3);
    assert!(
        out.texts().into_values().next().as_deref() == Some(text),
        "another text"
    );
    let record: RunRecord = serde_json::from_value(out.json("run.json")).expect("a record");
    // The line, its text, its ids and its shingles; nothing grows faster than the line.
    assert!(
        record
            .peak_anonymous_bytes
            .is_none_or(|peak| peak < 3 << 30),
        "{:?}",
        record.peak_anonymous_bytes
    );
}

// 12
#[test]
fn packing_loses_no_token_of_documents_that_do_not_fit() {
    for method in ["concat", "best_fit"] {
        for frame in ["none", "\"<|end|>\""] {
            let folder = Folder::new();
            folder.documents("in.jsonl", &["aaaa", "bb", "ccc", "d"]);
            folder.pipeline(&format!(
                "tokenizer: {{ file: tokenizer.json, end_token: {frame} }}\npack: {{ method: {method}, sequence_tokens: 3 }}\n"
            ));
            let out = folder.run_and_verify();
            assert_eq!(out.kept_texts(), ["aaaa", "bb", "ccc", "d"]);
            let emitted = out.audit().emitted;
            let special = if frame == "none" { 0 } else { 4 };
            assert_eq!((emitted.tokens, emitted.special_tokens), (10, special));
            assert_eq!(emitted.positions, 10 + special + emitted.padding);
            assert!(
                out.rows().iter().all(|row| row.input_ids.len() == 3),
                "{method}"
            );
        }
    }
}

// 13
#[test]
fn a_document_longer_than_a_shard_goes_over_rows_and_shards() {
    let folder = Folder::new();
    let text: String = ('a'..='z').chain('0'..='8').collect();
    folder.documents("in.jsonl", &[&text]);
    folder.pipeline("output: { path: out, shard_tokens: 10 }\n");
    let out = folder.run_and_verify();
    let lengths: Vec<usize> = out.rows().iter().map(|row| row.input_ids.len()).collect();
    let starts: Vec<u32> = out
        .rows()
        .iter()
        .map(|row| row.segments[0].doc_token_start)
        .collect();
    assert_eq!(lengths, [10, 10, 10, 6]);
    assert_eq!(starts, [0, 10, 20, 30]);
    assert_eq!(out.texts().into_values().next(), Some(text));
    assert_eq!(out.shards().len(), 4);
    assert!(out.shards().iter().all(|shard| rows_of(shard).len() == 1));
    assert_eq!(out.audit().emitted.special_tokens, 1);
}

/// A vocabulary of words; others fail where it has no unknown token.
fn word_tokenizer(words: impl Iterator<Item = String>) -> Value {
    let vocab: serde_json::Map<String, Value> = words
        .enumerate()
        .map(|(id, word)| (word, json!(id)))
        .collect();
    json!({
        "version": "2.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": { "type": "Whitespace" }, "post_processor": null, "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]" }
    })
}

// 14
#[test]
fn ids_above_16_bits_survive() {
    let folder = Folder::new();
    folder.write(
        "tokenizer.json",
        word_tokenizer((0..70_000).map(|n| format!("w{n}"))).to_string(),
    );
    folder.documents("in.jsonl", &["w0 w65535 w65536 w69999"]);
    folder.pipeline("tokenizer: { file: tokenizer.json }\n");
    let out = folder.run_and_verify();
    assert_eq!(out.rows()[0].input_ids, [0, 65_535, 65_536, 69_999]);
    let manifest = out.manifest();
    assert_eq!(
        (
            manifest.tokenizer.vocabulary_size,
            manifest.tokenizer.highest_id
        ),
        (70_000, 69_999)
    );
    let metadata = ReadShard::open(&out.shards()[0]).expect("a shard").metadata;
    assert_eq!(metadata["goodput.vocabulary_size"], "70000");
    assert_eq!(metadata["goodput.highest_id"], "69999");
}

// 15
#[test]
fn begin_and_end_tokens_are_those_of_the_pipeline_whatever_the_tokenizer_would_add() {
    let mut tokenizer = byte_tokenizer();
    tokenizer["post_processor"] = json!({
        "type": "TemplateProcessing",
        "single": [{ "SpecialToken": { "id": "<|begin|>", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } },
                   { "SpecialToken": { "id": "<|end|>", "type_id": 0 } }],
        "pair": [{ "Sequence": { "id": "A", "type_id": 0 } }, { "Sequence": { "id": "B", "type_id": 1 } }],
        "special_tokens": {
            "<|begin|>": { "id": "<|begin|>", "ids": [BEGIN], "tokens": ["<|begin|>"] },
            "<|end|>": { "id": "<|end|>", "ids": [END], "tokens": ["<|end|>"] }
        }
    });
    let (h, i) = (u32::from(b'h'), u32::from(b'i'));
    let cases: [(&str, &str, Vec<u32>, u32); 4] = [
        ("none", "\"<|end|>\"", vec![h, i, END], 1),
        ("\"<|begin|>\"", "\"<|end|>\"", vec![BEGIN, h, i, END], 2),
        ("\"<|begin|>\"", "none", vec![BEGIN, h, i], 1),
        ("none", "none", vec![h, i], 0),
    ];
    for version in ["1.0", "2.0"] {
        tokenizer["version"] = json!(version);
        // One case of the older format will do: judging its file takes seconds.
        for (begin, end, ids, special) in cases.iter().skip(if version == "1.0" { 3 } else { 0 }) {
            let folder = Folder::new();
            folder.write("tokenizer.json", tokenizer.to_string());
            folder.documents("in.jsonl", &["hi"]);
            folder.pipeline(&format!(
                "tokenizer: {{ file: tokenizer.json, begin_token: {begin}, end_token: {end} }}\n"
            ));
            let out = folder.run_and_verify();
            let [row] = out.rows().try_into().expect("one");
            assert_eq!((&row.input_ids, row.special_tokens), (ids, *special));
            let audit = out.audit();
            assert_eq!(audit.emitted.special_tokens, u64::from(*special));
            assert_eq!(Audit::total(&audit.read).tokens, 2);
        }
    }
}

// 16
#[test]
fn a_marker_in_the_text_is_plain_text_and_flagged() {
    let folder = Folder::new();
    let texts = [
        "before<|end|>after",
        "<|im_start|>user hi<|im_end|>",
        "plain",
    ];
    folder.documents("in.jsonl", &texts);
    folder.pipeline("");
    let out = folder.run_and_verify();
    let mut expected: Vec<String> = texts.map(String::from).into();
    expected.sort();
    assert_eq!(out.kept_texts(), expected);
    for row in out.rows() {
        let (end, text) = row.input_ids.split_last().expect("not empty");
        assert_eq!(*end, END);
        text_of(text);
    }
    // Only the tokenizer's own special tokens are markers.
    assert_eq!(
        note(&out.audit(), "documents_that_spell_a_special_token"),
        1
    );
}

// 17
#[test]
fn pages_of_one_template_with_other_bodies_stay() {
    let folder = Folder::new();
    let mut numbers = Numbers(5);
    let (head, foot) = (numbers.words(60), numbers.words(60));
    let pages: Vec<String> = (0..500)
        .map(|_| format!("{head}\n{}\n{foot}", numbers.words(120)))
        .collect();
    folder.documents("in.jsonl", &pages);
    folder.pipeline("stages:\n  - exact_dedupe: { normalise: true }\n  - near_dedupe: {}\n");
    let out = folder.run_and_verify();
    assert_eq!(out.texts().len(), 500);
    assert_eq!(out.duplicates(), []);
}

// 18
#[test]
fn pages_that_differ_in_one_number_are_near_copies_with_their_exact_similarity() {
    let words: Vec<String> = (0..100).map(|n| format!("word{n}")).collect();
    let page = |number: &str| [&words[..50].join(" "), number, &words[51..].join(" ")].join(" ");
    // Of 96 shingles of five words, five hold the number.
    let similarity = 91.0 / 101.0;
    for (keep, kept) in [("first", "7"), ("longest", "12345")] {
        let folder = Folder::new();
        folder.documents("in.jsonl", &[page("7"), page("12345"), page("89")]);
        folder.pipeline(&format!(
            "stages:\n  - near_dedupe: {{ keep: {keep}, min_similarity: 0.85 }}\n"
        ));
        let out = folder.run_and_verify();
        assert_eq!(out.kept_texts(), [page(kept)], "{keep}");
        let kept_id = out.texts().into_keys().next().expect("one");
        let duplicates = out.duplicates();
        assert_eq!(duplicates.len(), 2);
        for duplicate in &duplicates {
            assert_eq!(duplicate.kept_id, kept_id);
            assert_eq!(duplicate.similarity, similarity as f32);
            assert_eq!(duplicate.rule, format!("near_dedupe keep {keep}"));
        }
        for reject in out.rejects() {
            assert_eq!(
                (reject.reason.as_str(), reject.value),
                ("near_duplicate", similarity)
            );
        }
    }
    let folder = Folder::new();
    folder.documents("in.jsonl", &[page("7"), page("12345")]);
    folder.pipeline("stages:\n  - near_dedupe: { min_similarity: 0.91 }\n");
    assert_eq!(
        folder.run_and_verify().texts().len(),
        2,
        "below the bound both stay"
    );
}

// 20
#[test]
fn another_runs_output_is_refused_or_replaced_as_a_whole() {
    let folder = Folder::new();
    folder.documents("in.jsonl", &["a text", "another text", "a third one"]);
    folder.pipeline("output: { path: out, shard_tokens: 13 }\n");
    folder.run(&[]);
    let before = folder.out("out").files();
    assert_eq!(folder.out("out").shards().len(), 3);
    folder.pipeline("seed: 18\norder: { strategy: shuffle }\n");
    folder
        .goodput(&["run", "p.yaml"])
        .refuses(&["out", "--out", "--replace"]);
    assert!(folder.out("out").files() == before, "other bytes");
    folder.run(&["--replace"]);
    folder.verify("out");
    folder.run(&["--out", "elsewhere"]);
    assert!(
        folder.out("out").files() == folder.out("elsewhere").files(),
        "other bytes"
    );
    assert_eq!(folder.out("out").shards().len(), 1);
}

// 20
#[test]
fn files_that_no_run_wrote_are_never_deleted() {
    let folder = Folder::new();
    folder.documents("in.jsonl", &["a text"]);
    folder.write("out/thesis.txt", "years of work");
    folder.pipeline("");
    folder.goodput(&["run", "p.yaml"]).refuses(&["out"]);
    folder
        .goodput(&["run", "p.yaml", "--replace"])
        .refuses(&["nothing was deleted"]);
    assert_eq!(folder.out("out").names(), ["thesis.txt"]);
}

// 21
#[test]
fn fields_have_their_declared_types_however_late_the_first_value_comes() {
    let folder = Folder::new();
    let mut file = String::new();
    for row in 0..1_003 {
        let fields = match row {
            0..1_000 => json!({ "text": "x", "licence": null, "stars": row }),
            1_000 => json!({ "text": "x", "licence": "mit", "stars": 2.5 }),
            1_001 => json!({ "text": "x", "licence": "gpl" }),
            _ => json!({ "text": "x", "licence": 7, "stars": 1 }),
        };
        file.push_str(&(fields.to_string() + "\n"));
    }
    folder.write("in.jsonl", file);
    folder.pipeline(
        "inputs:\n  - { path: in.jsonl, source: web, fields: { licence: string, stars: float } }\n",
    );
    let out = folder.run_and_verify();
    assert_eq!(quarantined(&out.audit()), [("field_type", 1)]);
    let licences = out.column("licence");
    assert_eq!(licences.len(), 1_002);
    assert_eq!(
        licences.iter().filter(|value| *value == "null").count(),
        1_000
    );
    assert!(
        licences.contains(&"\"mit\"".to_string()) && licences.contains(&"\"gpl\"".to_string()),
        "{licences:?}"
    );
    let stars = out.column("stars");
    let mut values: Vec<f64> = stars
        .iter()
        .filter_map(|value| value.parse().ok())
        .collect();
    values.sort_by(f64::total_cmp);
    let mut expected: Vec<f64> = (0..1_000).map(f64::from).chain([2.5]).collect();
    expected.sort_by(f64::total_cmp);
    assert_eq!(values, expected);
    assert_eq!(stars.iter().filter(|value| *value == "null").count(), 1);
}

// 23
#[test]
fn a_minimum_length_does_not_hide_long_copies() {
    for stages in [
        "length: { min_tokens: 10 }\n  - exact_dedupe: {}",
        "exact_dedupe: {}\n  - length: { min_tokens: 10 }",
    ] {
        let folder = Folder::new();
        folder.documents(
            "in.jsonl",
            &[
                "a text that is long",
                "short",
                "a text that is long",
                "short",
                "a text that is long",
            ],
        );
        folder.pipeline(&format!("stages:\n  - {stages}\n"));
        let out = folder.run_and_verify();
        assert_eq!(out.kept_texts(), ["a text that is long"]);
        let audit = out.audit();
        let mut found = losses(&audit.rejected);
        found.sort();
        let (copies, short) = if stages.starts_with("length") {
            (2, 2)
        } else {
            (3, 1)
        };
        assert_eq!(
            found,
            [
                ("exact_dedupe", "exact_duplicate", copies),
                ("length", "too_few_tokens", short)
            ]
        );
    }
}

// 24
#[test]
fn blank_lines_are_no_duplicate_lines() {
    let folder = Folder::new();
    let mut numbers = Numbers(6);
    let sentences: Vec<String> = (0..40).map(|_| numbers.words(12)).collect();
    let repeated = [&sentences[..20], &vec![sentences[0].clone(); 20]].concat();
    folder.documents(
        "in.jsonl",
        &[
            sentences.join("\n\n\n\n\n"),
            sentences.join("\n"),
            repeated.join("\n"),
        ],
    );
    folder.pipeline("stages:\n  - gopher_repetition: {}\n");
    let out = folder.run_and_verify();
    let mut expected = vec![sentences.join("\n\n\n\n\n"), sentences.join("\n")];
    expected.sort();
    assert_eq!(out.kept_texts(), expected);
    assert_eq!(
        losses(&out.audit().rejected),
        [("gopher_repetition", "duplicate_lines", 1)]
    );
}

// 25
#[test]
fn the_last_record_of_a_file_beyond_4_gib_is_found_at_its_offset() {
    let folder = Folder::new();
    folder.documents("in.jsonl", &["the first"]);
    // Holes, ended by a line end: 65 records that are too long, and none is held.
    let mut file = fs::OpenOptions::new()
        .append(false)
        .write(true)
        .open(folder.path("in.jsonl"))
        .expect("written");
    for part in 1..=65u64 {
        file.seek(SeekFrom::Start(part << 26)).expect("a hole");
        file.write_all(b"\n").expect("a line end");
    }
    let place = (65u64 << 26) + 1;
    assert!(place > 1 << 32);
    file.write_all(line("the last").as_bytes())
        .expect("a record");
    drop(file);
    folder.pipeline("inputs:\n  - { path: in.jsonl, source: web, max_document_bytes: 1000 }\n");
    folder.run(&[]);
    let out = folder.out("out");
    assert_eq!(
        out.texts(),
        BTreeMap::from([
            ("in.jsonl:0".into(), "the first".into()),
            (format!("in.jsonl:{place}"), "the last".into())
        ])
    );
    assert_eq!(quarantined(&out.audit()), [("too_long", 65)]);
    assert_eq!(out.quarantined()[64].1, Some((64 << 26) + 1));
    assert_eq!(folder.goodput(&["verify", "out"]).code, Some(0));
}

// 26
#[test]
fn a_sample_is_a_choice_of_each_document_alone() {
    let folder = Folder::new();
    let texts: Vec<String> = (0..1000).map(|n| format!("text number {n}")).collect();
    folder.documents("data/a.jsonl", &texts);
    folder.pipeline("inputs:\n  - { path: data/*.jsonl, source: web }\nstages:\n  - length: { min_tokens: 14 }\n");
    let sample = |out: &str| -> (Out, BTreeSet<String>) {
        folder.run(&["--sample", "0.1", "--out", out]);
        folder.verify(out);
        let out = folder.out(out);
        let ids = out
            .texts()
            .into_keys()
            .chain(out.rejects().into_iter().map(|reject| reject.doc_id))
            .collect();
        (out, ids)
    };
    let (first, chosen) = sample("first");
    let (again, _) = sample("again");
    assert!(first.files() == again.files(), "other bytes");
    let audit = first.audit();
    assert_eq!(
        (audit.records_in_files, audit.records_left_out),
        (1000, 1000 - chosen.len() as u64)
    );
    assert!((70..=130).contains(&chosen.len()), "{}", chosen.len());
    folder.run(&["--out", "full"]);
    let full = folder.out("full").texts();
    assert!(
        first
            .texts()
            .iter()
            .all(|(id, text)| full.get(id) == Some(text)),
        "the same verdicts as in a full run"
    );
    folder.documents("data/0-unrelated.jsonl", &texts[..500]);
    let (_, with_more) = sample("more");
    let of_a = |ids: &BTreeSet<String>| -> BTreeSet<String> {
        ids.iter()
            .filter(|id| id.starts_with("a.jsonl"))
            .cloned()
            .collect()
    };
    assert_eq!(of_a(&with_more), chosen);
}

/// Writes a Parquet file with a text and a weight for each document.
fn write_weights(path: &std::path::Path, weights: &[f64]) {
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(
        (0..weights.len()).map(|n| format!("text {n}")),
    ));
    let weights: ArrayRef = Arc::new(Float64Array::from(weights.to_vec()));
    let batch =
        RecordBatch::try_from_iter([("text", texts), ("weight", weights)]).expect("columns");
    let file = fs::File::create(path).expect("a file");
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).expect("a writer");
    writer.write(&batch).expect("written");
    writer.close().expect("written");
}

// 27
#[test]
fn a_value_that_is_no_number_is_never_sorted() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let folder = Folder::new();
        write_weights(&folder.path("in.parquet"), &[1.0, bad, 0.5]);
        let input = "inputs:\n  - { path: in.parquet, source: web, fields: { weight: float } }\n";
        // The stated policy: such a value is of no declared type, so the record is in quarantine.
        folder.pipeline(&format!(
            "{input}order: {{ strategy: sorted, by: weight }}\n"
        ));
        let out = folder.run_and_verify();
        let order: Vec<String> = out
            .rows()
            .into_iter()
            .map(|row| row.segments[0].doc_id.clone())
            .collect();
        assert_eq!(order, ["in.parquet:2", "in.parquet:0"], "{bad}");
        assert_eq!(quarantined(&out.audit()), [("field_type", 1)]);
        assert_eq!(out.quarantine()[0]["record"], 1);
    }
    let folder = Folder::new();
    folder.write(
        "in.jsonl",
        "{\"text\":\"a\",\"weight\":1}\n{\"text\":\"b\"}\n",
    );
    folder.pipeline("inputs:\n  - { path: in.jsonl, source: web, fields: { weight: float } }\norder: { strategy: sorted, by: weight }\n");
    folder
        .goodput(&["run", "p.yaml", "--progress", "off"])
        .fails(&["in.jsonl:24", "'weight'"]);
}

// 28
#[test]
fn weights_come_back_within_half_a_step() {
    let folder = Folder::new();
    let weights = [0.0f32, 0.25, 1.0];
    for packed in [false, true] {
        for kind in [UsefulnessType::U8, UsefulnessType::F32] {
            let shape = ShardShape {
                packed,
                usefulness: Some(kind),
                excess_nats: false,
                fields: Vec::new(),
            };
            let table = schema(&shape);
            let mut rows = ShardRows::new(0);
            rows.input_ids.extend([7, 8, 9]);
            match kind {
                // A byte is value / 255, rounded half to even.
                UsefulnessType::U8 => rows.usefulness_u8.extend([0, 64, 255]),
                UsefulnessType::F32 => rows.usefulness_f32.extend(weights),
            }
            let segment = SegmentRow {
                doc_id: "d".into(),
                source: "s".into(),
                row_start: 0,
                doc_token_start: 0,
                tokens: 3,
                copy: 0,
                score: Some(0.25),
            };
            rows.push(ShardRow {
                segments: vec![segment],
                special_tokens: 0,
                padding: 0,
                fields: Vec::new(),
            });
            let path = folder.path("shard.parquet");
            let mut part = Part::create(&path, table.clone(), &[]).expect("a file");
            let encoded = part
                .encoder()
                .encode(&rows.into_batch(&shape, &table).expect("a batch"))
                .expect("encoded");
            part.append(encoded).expect("written");
            part.finish().expect("written");
            let [row] = rows_of(&path).try_into().expect("one");
            let bound = if kind == UsefulnessType::U8 {
                1.0 / 510.0 + 1e-7
            } else {
                0.0
            };
            for (found, weight) in row.usefulness.expect("written").iter().zip(weights) {
                assert!((found - weight).abs() <= bound, "{found} for {weight}");
            }
            assert_eq!(row.segments[0].score, Some(0.25));
        }
    }
}

// 28, through the program
#[test]
fn usefulness_as_bytes_is_that_of_floats_within_half_a_step() {
    let folder = Folder::new();
    let mut numbers = Numbers(7);
    let texts: Vec<String> = (0..60).map(|_| numbers.words(20)).collect();
    folder.documents("in.jsonl", &texts);
    let of = |kind: &str, method: &str| -> BTreeMap<(String, u32), Vec<f32>> {
        let out = format!("{kind}-{}", &method[..4]);
        folder.pipeline(&format!(
            "stages:\n  - score: {{ estimator: random }}\npack: {{ method: {method} }}\noutput: {{ path: {out}, usefulness: {kind} }}\n"
        ));
        folder.run(&[]);
        folder.verify(&out);
        let mut values = BTreeMap::new();
        for row in folder.out(&out).rows() {
            let usefulness = row.usefulness.expect("scored");
            for segment in row.segments {
                let start = segment.row_start.unwrap_or(0) as usize;
                let tokens = segment
                    .tokens
                    .unwrap_or(row.input_ids.len() as u32 - row.special_tokens)
                    as usize;
                // Special tokens and padding have none.
                assert_eq!(usefulness.get(start + tokens).copied().unwrap_or(0.0), 0.0);
                values.insert(
                    (segment.doc_id, segment.doc_token_start),
                    usefulness[start..start + tokens].to_vec(),
                );
            }
        }
        values
    };
    let pack = "best_fit, sequence_tokens: 512";
    let exact = of("f32", "none");
    assert_eq!(exact.len(), 60);
    assert_eq!(of("f32", pack), exact);
    for bytes in [of("u8", "none"), of("u8", pack)] {
        assert_eq!(bytes.len(), 60);
        for (place, values) in bytes {
            assert_eq!(values.len(), exact[&place].len());
            assert!(
                values
                    .iter()
                    .zip(&exact[&place])
                    .all(|(byte, float)| (byte - float).abs() <= 1.0 / 510.0 + 1e-6)
            );
        }
    }
}

// 29
#[test]
fn a_document_that_cannot_be_tokenized_fails_alone() {
    let folder = Folder::new();
    // Without an unknown token, an unknown word is an error of the tokenizer.
    folder.write(
        "tokenizer.json",
        word_tokenizer((0..100).map(|n| format!("w{n}"))).to_string(),
    );
    let texts: Vec<String> = (0..100)
        .map(|n| {
            if n == 41 {
                "unheard".into()
            } else {
                format!("w{n} w{n}")
            }
        })
        .collect();
    folder.documents("in.jsonl", &texts);
    folder.pipeline("tokenizer: { file: tokenizer.json }\nstages:\n  - length: { min_tokens: 1 }\n  - exact_dedupe: {}\n");
    let out = folder.run_and_verify();
    let audit = out.audit();
    assert_eq!(Audit::total(&audit.kept).documents, 99);
    assert_eq!(losses(&audit.failed), [("tokenize", "failed", 1)]);
    let [failed] = out.quarantine().try_into().expect("one");
    assert_eq!(failed["reason"], "failed");
    assert!(
        failed["detail"]
            .as_str()
            .is_some_and(|detail| !detail.is_empty())
    );
    assert_eq!(
        failed["byte_offset"].as_u64(),
        Some(texts[..41].iter().map(|text| line(text).len() as u64).sum())
    );
    assert_eq!(
        failed["raw_base64"],
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, "unheard")
    );
}

// 33
#[test]
fn fewer_documents_than_threads_make_no_empty_shard() {
    for documents in [1, 3] {
        let folder = Folder::new();
        folder.documents("in.jsonl", &vec!["a text"; documents]);
        folder.pipeline("output: { path: out, shard_tokens: 7 }\n");
        folder.run(&["--threads", "8"]);
        folder.verify("out");
        let shards = folder.out("out").shards();
        assert_eq!(shards.len(), documents);
        assert!(shards.iter().all(|shard| rows_of(shard).len() == 1));
    }
}

// 34
#[test]
fn an_earlier_run_in_the_same_process_changes_nothing() {
    let folder = Folder::new();
    let mut numbers = Numbers(8);
    let texts: Vec<String> = (0..80).map(|_| numbers.words(60)).collect();
    folder.documents("x.jsonl", &texts[..40]);
    folder.documents("y.jsonl", &texts);
    for name in ["x", "y"] {
        folder.pipeline_at(
            &format!("{name}.yaml"),
            &format!(
                "seed: {}\ninputs:\n  - {{ path: {name}.jsonl, source: web }}\nstages:\n  - length: {{ min_tokens: 9 }}\n  \
                 - exact_dedupe: {{}}\n  - near_dedupe: {{}}\n  - score: {{ estimator: random }}\n  \
                 - select: {{ keep_share_of_tokens: 0.7, by: score }}\norder: {{ strategy: shuffle }}\noutput: {{ path: out-{name} }}\n",
                name.len() + texts.len()
            ),
        );
    }
    let options = RunOptions {
        memory_bytes: 8 << 30,
        sample_share: None,
        fresh: false,
        replace: false,
        work: None,
        keep_work: false,
        task_bytes: None,
        set: Vec::new(),
        cache: None,
    };
    let plan = |name: &str, out: Option<&str>| {
        let overrides = Overrides {
            set: Vec::new(),
            out: out.map(|out| folder.path(out)),
        };
        load(&folder.path(&format!("{name}.yaml")), &overrides).expect("it is right")
    };
    engine::prepare(&plan("x", None), None).expect("checked");
    for (name, out) in [("x", None), ("y", Some("same-process"))] {
        engine::run(&plan(name, out), &options, &Silent, &Stop::new()).expect("it runs");
    }
    let ran = folder.goodput(&[
        "run",
        "y.yaml",
        "--out",
        "fresh-process",
        "--progress",
        "off",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        folder.out("same-process").files() == folder.out("fresh-process").files(),
        "other bytes"
    );
}

// 35
#[test]
fn copies_are_counted_exactly_and_by_source() {
    let folder = Folder::new();
    for file in 0..50 {
        let input = if file < 30 { "a" } else { "b" };
        folder.documents(
            &format!("{input}/{file:02}.jsonl"),
            &[format!("text {file}"), format!("text {file}")],
        );
    }
    folder.pipeline("inputs:\n  - { path: a/*.jsonl, source: a }\n  - { path: b/*.jsonl, source: b }\nstages:\n  - exact_dedupe: {}\n");
    let out = folder.run_and_verify();
    let by_source: Vec<(String, u64)> = out
        .audit()
        .rejected
        .iter()
        .map(|row| (row.source.clone(), row.counts.documents))
        .collect();
    assert_eq!(by_source, [("a".to_string(), 30), ("b".to_string(), 20)]);
    let duplicates = out.duplicates();
    assert_eq!(duplicates.len(), 50);
    for duplicate in duplicates {
        let (file, place) = duplicate.dropped_id.split_once(':').expect("a derived id");
        let number: u32 = file.trim_end_matches(".jsonl").parse().expect("a number");
        assert_eq!(place, line(&format!("text {number}")).len().to_string());
        assert_eq!(duplicate.kept_id, format!("{file}:0"));
    }
}

// 35, over files
#[test]
fn one_text_in_50_files_is_kept_once() {
    let folder = Folder::new();
    for file in 0..50 {
        folder.documents(&format!("in/{file:02}.jsonl"), &["a text", "a text"]);
    }
    folder
        .pipeline("inputs:\n  - { path: in/*.jsonl, source: a }\nstages:\n  - exact_dedupe: {}\n");
    let out = folder.run_and_verify();
    assert_eq!(out.texts().into_keys().collect::<Vec<_>>(), ["00.jsonl:0"]);
    assert_eq!(
        losses(&out.audit().rejected),
        [("exact_dedupe", "exact_duplicate", 99)]
    );
    assert!(
        out.duplicates()
            .iter()
            .all(|duplicate| duplicate.kept_id == "00.jsonl:0")
    );
}

// 36
#[test]
fn options_that_can_never_match_are_refused_by_check() {
    let refused: [(&str, &[&str]); 8] = [
        ("stages:\n  - language: { keep: [] }\n", &["keep"]),
        (
            "stages:\n  - language: { keep: [englisch] }\n",
            &["keep", "nearest"],
        ),
        (
            "stages:\n  - near_dedupe: { keep: preferred_source, preferred_sources: [wbe] }\n",
            &["wbe", "web"],
        ),
        (
            "stages:\n  - score: { estimator: ngram_excess, reference: none/*.jsonl }\n",
            &["none/*.jsonl"],
        ),
        (
            "stages:\n  - select: { keep_share_of_tokens: 0.5, by: stars }\n",
            &["stars"],
        ),
        (
            "stages:\n  - select: { keep_share_of_tokens: 0, by: random }\n",
            &["keep_share_of_tokens"],
        ),
        ("order: { strategy: sorted, by: stars }\n", &["stars"]),
        (
            "inputs:\n  - { path: absent/*.jsonl, source: web }\n",
            &["absent/*.jsonl"],
        ),
    ];
    let folder = Folder::new();
    folder.documents("in.jsonl", &["a text"]);
    for (sections, words) in refused {
        folder.pipeline(sections);
        folder.goodput(&["check", "p.yaml"]).refuses(words);
        folder.goodput(&["run", "p.yaml"]).refuses(words);
        assert!(!folder.path("out").exists(), "{sections}");
    }
}

// 36
#[test]
fn a_table_without_the_column_is_refused_with_the_nearest_name() {
    let folder = Folder::new();
    write_weights(&folder.path("in.parquet"), &[1.0]);
    folder.pipeline("inputs:\n  - { path: in.parquet, source: web, text: txt }\n");
    folder
        .goodput(&["run", "p.yaml", "--progress", "off"])
        .says_no(&["'txt'", "'text'"]);
    assert!(!folder.path("out/manifest.json").exists());
}

// 36
#[test]
fn a_text_path_that_no_record_has_leaves_nothing_and_says_so() {
    let folder = Folder::new();
    folder.documents("in.jsonl", &["a text", "another"]);
    folder.pipeline("inputs:\n  - { path: in.jsonl, source: web, text: body }\n");
    let out = folder.run_and_verify();
    assert_eq!(quarantined(&out.audit()), [("missing_text", 2)]);
    assert_eq!(out.rows(), []);
}
