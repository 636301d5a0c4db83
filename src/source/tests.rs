//! The room as a whole: every format, every reason, every cut.

use super::*;
use crate::record::{FieldType, FieldValue};
use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, DictionaryArray, Float16Array, Float32Array, Float64Array,
    Int8Array, Int64Array, LargeStringArray, NullArray, StringArray, StringViewArray, StructArray,
    UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Int32Type, Schema};
use arrow::ipc::writer::{FileWriter, StreamWriter};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a temporary folder"))
    }
    fn file(&self, name: &str, bytes: &[u8]) -> FoundFile {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        FoundFile::at(&path).expect("just written")
    }
}

fn spec() -> InputSpec {
    InputSpec::with_text("text")
}

fn field(name: &str, kind: FieldType) -> Option<FieldSpec> {
    Some(FieldSpec {
        name: name.to_string(),
        path: name.to_string(),
        kind,
    })
}

fn read_slice(file: &FoundFile, slice: &Slice, spec: &InputSpec) -> (Vec<Entry>, ReadSummary) {
    let mut reader = Reader::open(file, slice, spec).expect("opens");
    let mut entries = Vec::new();
    while let Some(chunk) = reader.next_chunk().expect("reads") {
        chunk.decode(spec, &mut |entry| entries.push(entry));
    }
    assert!(reader.next_chunk().expect("stays at its end").is_none());
    let summary = reader.summary();
    assert_eq!(summary.records, entries.len() as u64, "{slice}");
    (entries, summary)
}

fn read(file: &FoundFile, spec: &InputSpec) -> (Vec<Entry>, ReadSummary) {
    read_slice(file, &Slice::Whole, spec)
}

fn read_bytes(name: &str, bytes: &[u8], spec: &InputSpec) -> (Vec<Entry>, ReadSummary) {
    let folder = Folder::new();
    read(&folder.file(name, bytes), spec)
}

/// `place:text` or `place:!reason`.
fn show(entries: &[Entry]) -> Vec<String> {
    entries
        .iter()
        .map(|entry| match entry {
            Entry::Document(document) => format!("{}:{}", document.place, document.text),
            Entry::Bad(bad) => format!("{}:!{}", bad.place, bad.reason),
        })
        .collect()
}

fn jsonl(bytes: impl AsRef<[u8]>, spec: &InputSpec) -> Vec<Entry> {
    read_bytes("a.jsonl", bytes.as_ref(), spec).0
}

fn one(line: impl AsRef<[u8]>, spec: &InputSpec) -> Result<Document, BadRecord> {
    let mut entries = jsonl(line, spec);
    assert_eq!(entries.len(), 1);
    match entries.remove(0) {
        Entry::Document(document) => Ok(document),
        Entry::Bad(bad) => {
            assert!(
                QUARANTINE_REASONS
                    .iter()
                    .any(|(name, _)| *name == bad.reason),
                "{}",
                bad.reason
            );
            assert!(!bad.detail.is_empty());
            Err(bad)
        }
    }
}

fn reason_of(line: impl AsRef<[u8]>, spec: &InputSpec) -> &'static str {
    one(line, spec).expect_err("a bad record").reason
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).expect("to memory");
    encoder.finish().expect("to memory")
}

fn zst(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).expect("to memory")
}

#[test]
fn readers_and_chunks_can_change_threads() {
    fn moves<T: Send>() {}
    moves::<Reader>();
    moves::<Chunk>();
    moves::<Entry>();
}

#[test]
fn reasons_have_unique_names_and_sentences() {
    let mut names: Vec<_> = QUARANTINE_REASONS.iter().map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), QUARANTINE_REASONS.len());
    assert!(
        QUARANTINE_REASONS
            .iter()
            .all(|(_, sentence)| sentence.len() > 10)
    );
}

#[test]
fn each_fault_has_its_own_reason_and_neighbours_stay() {
    let mut spec = spec();
    spec.id = Some("id".into());
    spec.fields = vec![field("n", FieldType::Int)];
    let faults: &[(&[u8], &str)] = &[
        (b"", "blank"),
        (b" \t\r", "blank"),
        (b"{", "invalid_json"),
        (br#"{"id":1,"text":"x"} x"#, "invalid_json"),
        (br#"{"id":1,"text":"x","later":tru}"#, "invalid_json"),
        (br#"{"id":1,"text":"x",}"#, "invalid_json"),
        (b"{\"id\":1,\"text\":\"a\tb\"}", "invalid_json"),
        (b"{\"id\":1,\"text\":\"a\xFFb\"}", "invalid_utf8"),
        (b"[1]", "not_an_object"),
        (b"\"text\"", "not_an_object"),
        (b"null", "not_an_object"),
        (br#"{"id":1}"#, "missing_text"),
        (br#"{"id":1,"text":null}"#, "null_text"),
        (br#"{"id":1,"text":7}"#, "text_not_string"),
        (br#"{"id":1,"text":["x"]}"#, "text_not_string"),
        (br#"{"id":1,"text":""}"#, "empty_text"),
        (br#"{"id":1,"text":" \n\u00a0\u2028"}"#, "whitespace_text"),
        (br#"{"text":"x"}"#, "missing_id"),
        (br#"{"id":null,"text":"x"}"#, "missing_id"),
        (br#"{"id":1.5,"text":"x"}"#, "invalid_id"),
        (br#"{"id":true,"text":"x"}"#, "invalid_id"),
        (br#"{"id":"","text":"x"}"#, "invalid_id"),
        (br#"{"id":1,"text":"x","n":"1"}"#, "field_type"),
        (br#"{"id":1,"text":"x","n":1.0}"#, "field_type"),
        (br#"{"id":1,"text":"x","text":"y"}"#, "duplicate_key"),
        (br#"{"id":1,"text":"x","\u0074ext":"y"}"#, "duplicate_key"),
        (br#"{"id":1,"text":"\ud800"}"#, "lone_surrogate"),
        (br#"{"id":1,"text":"\udc00\ud800"}"#, "lone_surrogate"),
        (br#"{"id":"\ud800\u0041","text":"x"}"#, "lone_surrogate"),
    ];
    let mut file = Vec::new();
    let mut expected = Vec::new();
    for (line, reason) in faults {
        expected.push(format!("{}:!{reason}", file.len()));
        file.extend_from_slice(line);
        file.push(b'\n');
        expected.push(format!("{}:good", file.len()));
        file.extend_from_slice(b"{\"id\":\"i\",\"text\":\"good\"}\n");
    }
    let entries = jsonl(&file, &spec);
    assert_eq!(show(&entries), expected);
    for (pair, (line, _)) in entries.chunks(2).zip(faults) {
        let Entry::Bad(bad) = &pair[0] else {
            panic!("bad first")
        };
        assert_eq!(
            (bad.raw.as_slice(), bad.raw_bytes),
            (*line, line.len() as u64)
        );
    }
}

#[test]
fn only_lf_ends_a_record() {
    let text = "a\u{2028}b\u{85}c\u{2029}";
    let file = format!("{{\"text\":\"{text}\"}}\r\n{{\"text\":\"d\\f\"}}");
    let entries = jsonl(&file, &spec());
    assert_eq!(
        show(&entries),
        [format!("0:{text}"), format!("{}:d\u{c}", text.len() + 13)]
    );
    assert_eq!(
        show(&jsonl("{\"text\":\"a\"}\r{\"text\":\"b\"}", &spec())),
        ["0:!invalid_json"]
    );
}

#[test]
fn a_last_line_needs_no_line_end_and_an_empty_file_has_no_records() {
    assert_eq!(show(&jsonl("", &spec())), [""; 0]);
    assert_eq!(show(&jsonl("\u{feff}", &spec())), [""; 0]);
    assert_eq!(show(&jsonl("\n", &spec())), ["0:!blank"]);
    assert_eq!(show(&jsonl("{\"text\":\"a\"}", &spec())), ["0:a"]);
    assert_eq!(show(&jsonl("{\"text\":\"a\"}\n", &spec())), ["0:a"]);
    assert_eq!(
        show(&jsonl("{\"text\":\"a\"}\n\n", &spec())),
        ["0:a", "13:!blank"]
    );
}

#[test]
fn a_byte_order_mark_is_skipped_at_the_start_only() {
    let file = "\u{feff}{\"text\":\"a\"}\n\u{feff}{\"text\":\"b\"}";
    assert_eq!(show(&jsonl(file, &spec())), ["3:a", "16:!invalid_json"]);
}

#[test]
fn escapes_become_characters() {
    let line = r#"{"text":"\"\\\/\b\f\n\r\t\u0041\u00e9\u20AC\ud83d\ude00\u0000é"}"#;
    let text = one(line, &spec()).expect("good").text;
    assert_eq!(text, "\"\\/\u{8}\u{c}\n\r\tAé€😀\0é");
}

#[test]
fn faults_in_values_that_are_not_read_do_not_matter() {
    let line = r#"{"a":"\ud800","b":1,"b":2,"c":1e999,"text":"x"}"#;
    assert_eq!(one(line, &spec()).expect("good").text, "x");
}

#[test]
fn nesting_is_bounded_and_the_stack_is_too() {
    let nested = |levels: usize| {
        format!(
            "{{\"a\":{}{},\"text\":\"x\"}}",
            "[".repeat(levels),
            "]".repeat(levels)
        )
    };
    assert!(one(nested(MAX_JSON_DEPTH - 1), &spec()).is_ok());
    assert_eq!(reason_of(nested(MAX_JSON_DEPTH), &spec()), "too_deep");
    assert_eq!(reason_of(nested(1_000_000), &spec()), "too_deep");
    assert_eq!(reason_of("{\"a\":".repeat(1_000_000), &spec()), "too_deep");
    let mut deep = spec();
    deep.text = vec!["a"; 2000].join(".");
    assert_eq!(reason_of("{\"a\":".repeat(1_000_000), &deep), "too_deep");
}

#[test]
fn dotted_paths_lead_inward_and_fall_back_on_keys_with_dots() {
    let mut spec = InputSpec::with_text("a.b.c");
    spec.id = Some("a.id".into());
    let text = |line: &str| {
        one(line, &spec)
            .map(|d| (d.text, d.id.unwrap_or_default()))
            .map_err(|b| b.reason)
    };
    let found = |text: &str| Ok((text.to_string(), "1".to_string()));
    assert_eq!(text(r#"{"a":{"b":{"c":"x"},"id":1}}"#), found("x"));
    assert_eq!(text(r#"{"a":{"b.c":"x"},"a.id":"1"}"#), found("x"));
    assert_eq!(text(r#"{"a.b":{"c":"x"},"a":{"id":1}}"#), found("x"));
    assert_eq!(text(r#"{"a.b.c":"x","a.id":1}"#), found("x"));
    // Nested wins, whatever the order.
    assert_eq!(
        text(r#"{"a.b.c":"y","a.b":{"c":"z"},"a":{"b":{"c":"x"},"b.c":"w","id":1}}"#),
        found("x")
    );
    assert_eq!(
        text(r#"{"a":{"b":{"c":"x"},"b.c":"w","id":1},"a.b":{"c":"z"},"a.b.c":"y"}"#),
        found("x")
    );
    // A nested path that ends early does not exist.
    assert_eq!(text(r#"{"a":5,"a.b.c":"x","a.id":1}"#), found("x"));
    assert_eq!(
        text(r#"{"a":{"b":{"c":null},"id":1},"a.b.c":"x"}"#),
        Err("null_text")
    );
    assert_eq!(text(r#"{"a":{"id":1}}"#), Err("missing_text"));
    assert_eq!(
        text(r#"{"a":{"b":{"c":"x"}},"a":{"id":1}}"#),
        Err("duplicate_key")
    );
    // The same value can be wanted twice, and an object that holds a wanted value too.
    let mut both = InputSpec::with_text("a.b");
    both.id = Some("a.b".into());
    both.fields = vec![field("a", FieldType::String), None];
    assert_eq!(reason_of(r#"{"a":{"b":"x"}}"#, &both), "field_type");
    let long = ["k"; 12].join(".");
    let line = format!("{{\"{long}\":\"x\"}}");
    assert_eq!(
        one(line, &InputSpec::with_text(&long))
            .expect("literal")
            .text,
        "x"
    );
    let line = format!("{}\"x\"{}", "{\"k\":".repeat(12), "}".repeat(12));
    assert_eq!(
        one(line, &InputSpec::with_text(&long))
            .expect("nested")
            .text,
        "x"
    );
}

#[test]
fn ids_are_strings_or_integers_of_any_size() {
    let mut spec = spec();
    spec.id = Some("id".into());
    for (written, id) in [
        (r#""a/b""#, "a/b"),
        ("7", "7"),
        ("-7", "-7"),
        ("-0", "0"),
        ("18446744073709551616", "18446744073709551616"),
        (
            "1000000000000000000000000000000000000000000",
            "1000000000000000000000000000000000000000000",
        ),
    ] {
        let document = one(format!("{{\"id\":{written},\"text\":\"x\"}}"), &spec).expect("good");
        assert_eq!(document.id.as_deref(), Some(id));
    }
}

#[test]
fn fields_are_as_declared_whatever_came_first() {
    let mut spec = spec();
    spec.fields = vec![
        field("s", FieldType::String),
        None,
        field("i", FieldType::Int),
        field("f", FieldType::Float),
        field("b", FieldType::Bool),
    ];
    let fields = |values: &str| {
        one(format!("{{\"text\":\"x\",{values}}}"), &spec)
            .map(|document| document.fields)
            .map_err(|bad| (bad.reason, bad.detail))
    };
    use FieldValue::{Bool, Float, Int, Null, String};
    assert_eq!(
        fields(r#""s":"\u0041","i":-5,"f":2,"b":false"#),
        Ok(vec![
            String("A".into()),
            Null,
            Int(-5),
            Float(2.0),
            Bool(false)
        ])
    );
    assert_eq!(fields(r#""s":null,"z":1"#), Ok(vec![Null; 5]));
    assert_eq!(
        fields(r#""i":9223372036854775807,"f":-1.5e3"#),
        Ok(vec![Null, Null, Int(i64::MAX), Float(-1500.0), Null])
    );
    for wrong in [
        r#""s":1"#,
        r#""s":{}"#,
        r#""i":"1""#,
        r#""i":1.0"#,
        r#""i":1e2"#,
        r#""i":9223372036854775808"#,
        r#""i":-9223372036854775809"#,
        r#""i":true"#,
        r#""f":"1""#,
        r#""f":1e999"#,
        r#""b":0"#,
        r#""b":"true""#,
    ] {
        assert_eq!(
            fields(wrong).map_err(|fault| fault.0),
            Err("field_type"),
            "{wrong}"
        );
    }
    // An int in the first thousand rows, then a float: the declaration decides.
    let mut file = "{\"text\":\"x\",\"i\":1,\"f\":1,\"s\":null}\n".repeat(1000);
    file.push_str("{\"text\":\"y\",\"f\":1.5,\"s\":\"t\"}\n{\"text\":\"z\",\"i\":1.5}\n");
    let entries = jsonl(file, &spec);
    let Entry::Document(y) = &entries[1000] else {
        panic!("accepted")
    };
    assert_eq!(y.fields, [String("t".into()), Null, Null, Float(1.5), Null]);
    assert!(matches!(&entries[1001], Entry::Bad(bad) if bad.reason == "field_type"));
}

#[test]
fn a_record_at_the_bound_is_read_and_one_above_is_too_long() {
    for padding in [1, 10, 3 * CHUNK_BYTES] {
        let line = format!("{{\"text\":\"{}\"}}", "x".repeat(padding + 1));
        let file = format!("{{\"text\":\"a\"}}\n{line}\n{{\"text\":\"b\"}}\n");
        let mut spec = spec();
        for (bound, good) in [
            (line.len() as u64, true),
            (line.len() as u64 + 1, true),
            (line.len() as u64 - 1, false),
        ] {
            spec.max_document_bytes = bound;
            for (name, bytes) in [
                ("a.jsonl", file.clone().into_bytes()),
                ("a.jsonl.gz", gz(file.as_bytes())),
                ("a.jsonl.zst", zst(file.as_bytes())),
            ] {
                let (entries, _) = read_bytes(name, &bytes, &spec);
                assert_eq!(entries.len(), 3, "{name} {padding} {bound}");
                assert_eq!(entries[2].place(), 13 + line.len() as u64 + 1);
                match &entries[1] {
                    Entry::Document(_) => assert!(good),
                    Entry::Bad(bad) => {
                        assert!(!good);
                        assert_eq!(bad.reason, "too_long");
                        assert_eq!(bad.raw_bytes, line.len() as u64);
                        assert_eq!(bad.raw, line.as_bytes()[..line.len().min(RAW_BYTES_KEPT)]);
                    }
                }
            }
        }
    }
}

#[test]
fn a_long_last_line_without_a_line_end_is_one_record() {
    let mut spec = spec();
    spec.max_document_bytes = 100;
    let file = format!("{{\"text\":\"a\"}}\n{}", "y".repeat(5 * CHUNK_BYTES));
    let entries = jsonl(&file, &spec);
    assert_eq!(show(&entries), ["0:a", "13:!too_long"]);
    let marked = format!("\u{feff}{}", "y".repeat(5 * CHUNK_BYTES));
    let Entry::Bad(bad) = &jsonl(&marked, &spec)[0] else {
        panic!("too long")
    };
    assert_eq!((bad.place, bad.raw_bytes), (3, 5 * CHUNK_BYTES as u64));
}

#[test]
fn a_record_of_many_chunks_is_whole() {
    let text = "0123456789".repeat(CHUNK_BYTES / 2);
    let file = format!("{{\"text\":\"{text}\"}}\n{{\"text\":\"b\"}}\n");
    let entries = jsonl(&file, &spec());
    let Entry::Document(document) = &entries[0] else {
        panic!("good")
    };
    assert!(document.text == text);
    assert_eq!(entries[1].place(), text.len() as u64 + 12);
}

fn ragged_file() -> String {
    let mut file = String::from("\u{feff}");
    for n in 0..40 {
        match n % 7 {
            3 => file.push('\n'),
            5 => file.push_str("{broken\n"),
            _ => file.push_str(&format!("{{\"text\":\"{}é{n}\"}}\n", "x".repeat(n % 11))),
        }
    }
    file.push_str("{\"text\":\"last\"}");
    file
}

#[test]
fn every_cut_of_a_file_gives_the_same_entries() {
    let folder = Folder::new();
    for ending in ["", "\n", "\n\n"] {
        let file = folder.file("a.jsonl", (ragged_file() + ending).as_bytes());
        let (whole, whole_summary) = read(&file, &spec());
        for target in 1..=file.bytes + 1 {
            let mut entries = Vec::new();
            let mut bytes = 0;
            let pieces = slices(&file, &spec(), target).expect("cuts");
            assert_eq!(pieces.len() as u64, file.bytes.div_ceil(target));
            for slice in pieces {
                let (more, summary) = read_slice(&file, &slice, &spec());
                entries.extend(more);
                bytes += summary.bytes;
            }
            assert_eq!(
                format!("{entries:?}"),
                format!("{whole:?}"),
                "target {target}"
            );
            assert_eq!(bytes, whole_summary.bytes);
        }
    }
}

#[test]
fn cuts_inside_records_longer_than_a_chunk_lose_nothing() {
    let folder = Folder::new();
    let long = "z".repeat(2 * CHUNK_BYTES + 7);
    let file = format!("{{\"text\":\"{long}\"}}\n{{\"text\":\"b\"}}\n{{\"text\":\"{long}\"}}");
    let file = folder.file("a.jsonl", file.as_bytes());
    for max in [u64::MAX, 1000] {
        let mut spec = spec();
        spec.max_document_bytes = max;
        let whole = format!("{:?}", read(&file, &spec).0);
        for target in [file.bytes / 9, CHUNK_BYTES as u64, file.bytes - 1] {
            let entries: Vec<_> = slices(&file, &spec, target)
                .expect("cuts")
                .iter()
                .flat_map(|slice| read_slice(&file, slice, &spec).0)
                .collect();
            assert!(format!("{entries:?}") == whole, "target {target}");
        }
    }
}

#[test]
fn a_chunk_gives_the_bytes_of_a_record_by_its_place() {
    let folder = Folder::new();
    let found = |file: &FoundFile, place: u64| -> Vec<Vec<u8>> {
        let mut reader = Reader::open(file, &Slice::Whole, &spec()).expect("opens");
        let mut found = Vec::new();
        while let Some(chunk) = reader.next_chunk().expect("reads") {
            found.extend(chunk.raw_at(place, &spec()));
        }
        found
    };
    let lines = [
        r#"{"text":"one"}"#,
        "",
        "{\"text\": 2}\r",
        r#"{"text":"last"}"#,
    ];
    let file = folder.file("a.jsonl", lines.join("\n").as_bytes());
    let mut place = 0;
    for line in lines {
        assert_eq!(found(&file, place), [line.as_bytes()]);
        place += line.len() as u64 + 1;
    }
    assert!(found(&file, place).is_empty());
    let file = folder.file("a.txt", b"whole\nfile");
    assert_eq!(found(&file, 0), [b"whole\nfile"]);
    assert!(found(&file, 1).is_empty());
}

#[test]
fn slices_are_written_and_parsed() {
    for slice in [
        Slice::Whole,
        Slice::Bytes {
            start: 5,
            end: u64::MAX,
        },
        Slice::RowGroups { first: 0, end: 0 },
    ] {
        assert_eq!(slice.to_string().parse(), Ok(slice));
    }
    for text in [
        "",
        "bytes",
        "bytes:1",
        "bytes:2-1",
        "groups:-1-2",
        "whole:",
        "lines:1-2",
    ] {
        assert!(text.parse::<Slice>().is_err(), "{text}");
    }
}

#[cfg(unix)]
#[test]
fn a_record_beyond_four_gib_is_found_at_its_offset() {
    use std::io::{Seek, SeekFrom};
    let folder = Folder::new();
    let file = folder.file("a.jsonl", b"{\"text\":\"a\"}\n");
    let far = (4u64 << 30) + 11;
    // A hole in the file: it takes no room on the disk.
    let mut handle = std::fs::File::options()
        .write(true)
        .open(&file.path)
        .expect("opens");
    handle.seek(SeekFrom::Start(far)).expect("seeks");
    handle.write_all(b"\n{\"text\":\"b\"}\n").expect("writes");
    drop(handle);
    let file = FoundFile::at(&file.path).expect("there");
    let slice = Slice::Bytes {
        start: far - 5,
        end: file.bytes,
    };
    assert_eq!(
        show(&read_slice(&file, &slice, &spec()).0),
        [format!("{}:b", far + 1)]
    );
}

#[test]
fn members_and_frames_follow_each_other() {
    let (a, b, c) = (
        "{\"text\":\"a\"}\n{\"te",
        "xt\":\"b\"}\n",
        "{\"text\":\"c\"}",
    );
    let expected = ["0:a", "13:b", "26:c"];
    for (name, pack) in [
        ("a.jsonl.gz", gz as fn(&[u8]) -> Vec<u8>),
        ("a.jsonl.zst", zst),
    ] {
        let packed = [
            pack(a.as_bytes()),
            pack(b.as_bytes()),
            pack(b""),
            pack(c.as_bytes()),
        ];
        // The content decides, not the name.
        for name in [name, "a.jsonl"] {
            let (entries, summary) = read_bytes(name, &packed.concat(), &spec());
            assert_eq!(show(&entries), expected, "{name}");
            assert_eq!(summary.truncated, None);
            assert_eq!(summary.bytes, (a.len() + b.len() + c.len()) as u64);
        }
    }
    let (entries, _) = read_bytes("a.jsonl.gz", (a.to_string() + b + c).as_bytes(), &spec());
    assert_eq!(show(&entries), expected);
    for name in ["a.jsonl.gz", "a.jsonl.zst", "a.jsonl"] {
        assert_eq!(read_bytes(name, b"", &spec()).0.len(), 0);
    }
}

#[test]
fn a_stream_cut_at_any_byte_gives_whole_records_and_says_so() {
    let lines: Vec<String> = (0..60)
        .map(|n| format!("{{\"text\":\"{n} {}\"}}\n", n * 7919))
        .collect();
    let whole = lines.concat();
    let (head, tail) = (&whole.as_bytes()[..500], &whole.as_bytes()[500..]);
    for (name, pack) in [
        ("a.jsonl.gz", gz as fn(&[u8]) -> Vec<u8>),
        ("a.jsonl.zst", zst),
    ] {
        let first = pack(head);
        let packed = [first.clone(), pack(tail)].concat();
        let expected = show(&read_bytes(name, &packed, &spec()).0);
        assert_eq!(expected.len(), 60);
        for cut in 1..packed.len() {
            let (entries, summary) = read_bytes(name, &packed[..cut], &spec());
            // A cut between two members cannot be told from a shorter file.
            assert_eq!(
                summary.truncated.is_none(),
                cut == first.len(),
                "{name} cut at {cut}"
            );
            assert_eq!(summary.checksum.is_some(), cut == first.len());
            let shown = show(&entries);
            let (last, before) = match shown.split_last() {
                Some((last, before)) if last.contains('!') => (Some(last), before),
                _ => (None, &shown[..]),
            };
            assert_eq!(before, &expected[..before.len()], "{name} cut at {cut}");
            if let Some(last) = last {
                let reason = if cut == first.len() {
                    "invalid_json"
                } else {
                    "truncated"
                };
                let place = expected[before.len()].split(':').next().expect("a place");
                assert_eq!(*last, format!("{place}:!{reason}"), "{name} cut at {cut}");
            }
        }
    }
}

#[test]
fn a_stream_cut_far_in_keeps_the_records_before() {
    // Noise does not compress, so the cut is far from the end of what can be unpacked.
    let mut state = 1u64;
    let whole: String = (0..20_000)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            format!("{{\"text\":\"{:x}\"}}\n", state)
        })
        .collect();
    for (name, pack) in [
        ("a.jsonl.gz", gz as fn(&[u8]) -> Vec<u8>),
        ("a.jsonl.zst", zst),
    ] {
        let packed = pack(whole.as_bytes());
        let (entries, summary) = read_bytes(name, &packed[..packed.len() * 9 / 10], &spec());
        assert!(
            summary.truncated.expect("cut").contains("cut off"),
            "{name}"
        );
        let good = entries
            .iter()
            .filter(|e| matches!(e, Entry::Document(_)))
            .count();
        assert!(good > 10_000 && good < 20_000, "{name} {good}");
        assert!(entries.len() - good <= 1);
    }
}

#[test]
fn what_follows_a_stream_is_never_ignored() {
    let line = b"{\"text\":\"a\"}\n";
    for (name, pack) in [
        ("a.jsonl.gz", gz as fn(&[u8]) -> Vec<u8>),
        ("a.jsonl.zst", zst),
    ] {
        for garbage in [&b"garbage and more"[..], b"x", &[0; 600]] {
            let (entries, summary) = read_bytes(name, &[&pack(line), garbage].concat(), &spec());
            assert_eq!(show(&entries), ["0:a"], "{name}");
            assert!(summary.truncated.is_some(), "{name}");
        }
    }
}

#[test]
fn a_flipped_bit_never_passes_unseen() {
    let lines: String = (0..30)
        .map(|n| format!("{{\"text\":\"{n} {}\"}}\n", n * 7919))
        .collect();
    let packed = gz(lines.as_bytes());
    for at in 10..packed.len() {
        let mut damaged = packed.clone();
        damaged[at] ^= 0x10;
        assert!(
            read_bytes("a.jsonl.gz", &damaged, &spec())
                .1
                .truncated
                .is_some(),
            "byte {at}"
        );
    }
}

#[test]
fn zstd_windows_of_any_size_are_read() {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("an encoder");
    encoder.window_log(28).expect("a window");
    encoder.write_all(b"{\"text\":\"a\"}\n").expect("to memory");
    let packed = encoder.finish().expect("to memory");
    assert_eq!(
        show(&read_bytes("a.jsonl.zst", &packed, &spec()).0),
        ["0:a"]
    );
}

#[test]
fn checksums_are_those_of_the_file_on_disk() {
    let folder = Folder::new();
    for (name, bytes) in [
        ("a.jsonl", b"{\"text\":\"a\"}\n".to_vec()),
        ("a.jsonl.gz", gz(b"{\"text\":\"a\"}\n")),
        ("a.txt.zst", zst(b"a")),
        ("b.jsonl", Vec::new()),
    ] {
        let file = folder.file(name, &bytes);
        let sum = xxhash_rust::xxh3::xxh3_128(&bytes);
        assert_eq!(file_checksum(&file.path, &|_| {}).expect("reads"), sum);
        assert_eq!(read(&file, &spec()).1.checksum, Some(sum), "{name}");
    }
    let file = folder.file("c.jsonl", b"{}\n{}\n");
    let half = Slice::Bytes { start: 0, end: 3 };
    assert_eq!(read_slice(&file, &half, &spec()).1.checksum, None);
}

#[test]
fn a_text_file_is_one_document() {
    let texts = |name: &str, bytes: &[u8]| show(&read_bytes(name, bytes, &spec()).0);
    let text = "Zeile\r\nzwei\n\u{2028}";
    assert_eq!(texts("a.txt", text.as_bytes()), [format!("0:{text}")]);
    assert_eq!(
        texts("a.txt.gz", &gz(text.as_bytes())),
        [format!("0:{text}")]
    );
    assert_eq!(
        texts("a.txt.zst", &zst(text.as_bytes())),
        [format!("0:{text}")]
    );
    assert_eq!(texts("a.txt", "\u{feff}a".as_bytes()), ["0:a"]);
    assert_eq!(texts("a.txt", b""), ["0:!empty_text"]);
    assert_eq!(texts("a.txt", b" \n"), ["0:!whitespace_text"]);
    assert_eq!(texts("a.txt", b"a\xC3"), ["0:!invalid_utf8"]);
    let packed = gz(text.as_bytes());
    assert_eq!(
        texts("a.txt.gz", &packed[..packed.len() - 1]),
        ["0:!truncated"]
    );
    let mut spec = spec();
    for (bytes, good) in [(100, true), (101, false), (4 * CHUNK_BYTES, false)] {
        spec.max_document_bytes = 100;
        let text = vec![b'x'; bytes];
        for (name, packed) in [("a.txt", text.clone()), ("a.txt.gz", gz(&text))] {
            let (entries, summary) = read_bytes(name, &packed, &spec);
            assert_eq!(summary.bytes, bytes as u64);
            match &entries[0] {
                Entry::Document(document) => assert!(good && document.text.len() == bytes),
                Entry::Bad(bad) => {
                    assert!(!good && bad.reason == "too_long" && bad.raw_bytes == bytes as u64);
                    assert_eq!(bad.raw.len(), bytes.min(RAW_BYTES_KEPT));
                }
            }
        }
    }
    let folder = Folder::new();
    let file = folder.file("a.txt", b"a");
    spec.id = Some("id".into());
    assert!(matches!(
        slices(&file, &spec, 1),
        Err(SourceError::TextHasNoFields { .. })
    ));
    assert!(matches!(
        Reader::open(&file, &Slice::Whole, &spec),
        Err(SourceError::TextHasNoFields { .. })
    ));
}

#[test]
fn errors_name_the_file_and_the_way_out() {
    let folder = Folder::new();
    let error = |file: &FoundFile, spec: &InputSpec| match Reader::open(file, &Slice::Whole, spec) {
        Ok(_) => panic!("{} opened", file.name),
        Err(error) => error,
    };
    let warc = folder.file("a.warc.gz", b"x");
    assert!(matches!(
        error(&warc, &spec()),
        SourceError::NotSupported { format: "warc", .. }
    ));
    assert!(matches!(
        error(&folder.file("a", b"x"), &spec()),
        SourceError::UnknownFormat { .. }
    ));
    for name in ["a.parquet", "a.arrow"] {
        for bytes in [
            &b""[..],
            b"PAR1",
            b"ARROW1\0\0",
            b"no table at all, only text",
        ] {
            let error = error(&folder.file(name, bytes), &spec());
            assert!(matches!(error, SourceError::Damaged { .. }), "{error}");
            assert!(error.to_string().contains(name));
        }
        let wrapped = error(&folder.file(name, &gz(b"x")), &spec());
        assert!(matches!(
            wrapped,
            SourceError::Wrapped {
                compression: "gzip",
                ..
            }
        ));
    }
    let mut changed = folder.file("c.jsonl", b"{}\n");
    changed.bytes = 2;
    assert!(
        error(&changed, &spec())
            .to_string()
            .contains("had 2 bytes when it was found and now has 3")
    );
    // Of the same size, and written to.
    changed.bytes = 3;
    changed.modified = Some(std::time::SystemTime::UNIX_EPOCH);
    assert!(matches!(
        error(&changed, &spec()),
        SourceError::Changed { .. }
    ));
    changed.path = folder.0.path().join("gone.jsonl");
    assert!(matches!(error(&changed, &spec()), SourceError::Read { .. }));
    let file = folder.file("d.jsonl", b"{}\n");
    for slice in [
        Slice::Bytes { start: 0, end: 4 },
        Slice::RowGroups { first: 0, end: 1 },
    ] {
        assert!(matches!(
            Reader::open(&file, &slice, &spec()),
            Err(SourceError::NoSuchSlice { .. })
        ));
    }
}

fn table(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
        .expect("columns of one length")
}

fn parquet_bytes(batches: &[RecordBatch], group_rows: usize) -> Vec<u8> {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(group_rows))
        .build();
    let mut writer =
        ArrowWriter::try_new(Vec::new(), batches[0].schema(), Some(properties)).expect("a writer");
    for batch in batches {
        writer.write(batch).expect("to memory");
    }
    writer.into_inner().expect("to memory")
}

fn arrow_file_bytes(batches: &[RecordBatch]) -> Vec<u8> {
    let mut writer = FileWriter::try_new(Vec::new(), batches[0].schema_ref()).expect("a writer");
    for batch in batches {
        writer.write(batch).expect("to memory");
    }
    writer.finish().expect("to memory");
    writer.into_inner().expect("to memory")
}

fn arrow_stream_bytes(batches: &[RecordBatch]) -> Vec<u8> {
    let mut writer = StreamWriter::try_new(Vec::new(), batches[0].schema_ref()).expect("a writer");
    for batch in batches {
        writer.write(batch).expect("to memory");
    }
    writer.finish().expect("to memory");
    writer.into_inner().expect("to memory")
}

/// The batches as each of the table formats.
fn as_tables(folder: &Folder, batches: &[RecordBatch]) -> Vec<FoundFile> {
    vec![
        folder.file("a.parquet", &parquet_bytes(batches, 2)),
        folder.file("a.arrow", &arrow_file_bytes(batches)),
        folder.file("stream.arrow", &arrow_stream_bytes(batches)),
    ]
}

#[test]
fn tables_of_every_text_type_are_read_by_row() {
    let folder = Folder::new();
    let texts = vec![
        Some("a"),
        None,
        Some(""),
        Some(" "),
        Some("é"),
        Some("long enough for a view"),
    ];
    let dictionary: DictionaryArray<Int32Type> = texts.iter().copied().collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(texts.clone())),
        Arc::new(LargeStringArray::from(texts.clone())),
        Arc::new(StringViewArray::from(texts.clone())),
        Arc::new(BinaryArray::from(
            texts
                .iter()
                .map(|t| t.map(str::as_bytes))
                .collect::<Vec<_>>(),
        )),
        Arc::new(dictionary),
    ];
    for column in columns {
        let kind = column.data_type().clone();
        let batch = table(vec![("text", column)]);
        for file in as_tables(&folder, &[batch.clone(), batch]) {
            let (entries, _) = read(&file, &spec());
            let rows = |first: u64| {
                [
                    format!("{first}:a"),
                    format!("{}:!null_text", first + 1),
                    format!("{}:!empty_text", first + 2),
                    format!("{}:!whitespace_text", first + 3),
                    format!("{}:é", first + 4),
                    format!("{}:long enough for a view", first + 5),
                ]
            };
            assert_eq!(
                show(&entries),
                [rows(0), rows(6)].concat(),
                "{kind} {}",
                file.name
            );
        }
    }
}

#[test]
fn tables_give_fields_as_declared() {
    let folder = Folder::new();
    let inner = StructArray::from(vec![
        (
            Arc::new(Field::new("url", DataType::Utf8, true)),
            Arc::new(StringArray::from(vec![Some("u0"), Some("u1"), None])) as ArrayRef,
        ),
        (
            Arc::new(Field::new("n", DataType::Int8, true)),
            Arc::new(Int8Array::from(vec![1, 2, 3])) as ArrayRef,
        ),
    ]);
    let (fields, arrays, _) = inner.into_parts();
    // Row 1 of the struct is null, although its children have values.
    let inner = StructArray::new(
        fields,
        arrays,
        Some(NullBuffer::from(vec![true, false, true])),
    );
    let batch = table(vec![
        ("text", Arc::new(StringArray::from(vec!["a", "b", "c"]))),
        ("id", Arc::new(Int64Array::from(vec![7, 8, -9]))),
        ("meta", Arc::new(inner)),
        (
            "dot.ted",
            Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])),
        ),
        ("f32", Arc::new(Float32Array::from(vec![0.5, 1.0, -2.0]))),
        ("u64", Arc::new(UInt64Array::from(vec![1, 2, 3]))),
        ("unread", Arc::new(StringArray::from(vec!["x", "y", "z"]))),
    ]);
    let mut spec = spec();
    spec.id = Some("id".into());
    spec.fields = vec![
        field("meta.url", FieldType::String),
        field("meta.n", FieldType::Int),
        field("dot.ted", FieldType::Bool),
        field("f32", FieldType::Float),
        field("u64", FieldType::Float),
        field("absent", FieldType::String),
        None,
    ];
    use FieldValue::{Bool, Float, Int, Null, String};
    for file in as_tables(&folder, &[batch]) {
        let (entries, _) = read(&file, &spec);
        let rows: Vec<_> = entries
            .into_iter()
            .map(|entry| match entry {
                Entry::Document(d) => (d.place, d.id.expect("an id"), d.fields),
                Entry::Bad(bad) => panic!("{bad:?}"),
            })
            .collect();
        let expected = [
            (
                0,
                "7",
                vec![
                    String("u0".into()),
                    Int(1),
                    Bool(true),
                    Float(0.5),
                    Float(1.0),
                ],
            ),
            (1, "8", vec![Null, Null, Null, Float(1.0), Float(2.0)]),
            (
                2,
                "-9",
                vec![Null, Int(3), Bool(false), Float(-2.0), Float(3.0)],
            ),
        ]
        .map(|(place, id, fields)| (place, id.to_string(), [fields, vec![Null, Null]].concat()));
        assert_eq!(rows, expected, "{}", file.name);
    }
}

#[test]
fn table_values_that_do_not_fit_are_bad_rows_only() {
    let folder = Folder::new();
    let batch = table(vec![
        (
            "text",
            Arc::new(BinaryArray::from(vec![
                &b"a"[..],
                b"\xFF",
                b"c",
                b"d",
                b"e",
            ])),
        ),
        (
            "id",
            Arc::new(StringArray::from(vec![
                Some("i"),
                Some("j"),
                None,
                Some(""),
                Some("k"),
            ])),
        ),
        (
            "f",
            Arc::new(Float64Array::from(vec![
                Some(1.0),
                None,
                None,
                None,
                Some(f64::NAN),
            ])),
        ),
    ]);
    let mut spec = spec();
    spec.id = Some("id".into());
    spec.fields = vec![field("f", FieldType::Float)];
    let expected = [
        "0:a",
        "1:!invalid_utf8",
        "2:!missing_id",
        "3:!invalid_id",
        "4:!field_type",
    ];
    for file in as_tables(&folder, std::slice::from_ref(&batch)) {
        let (entries, _) = read(&file, &spec);
        assert_eq!(show(&entries), expected);
        assert!(matches!(&entries[1], Entry::Bad(bad) if bad.raw == b"\xFF"));
        let mut int = spec.clone();
        int.fields = vec![field("f", FieldType::Int)];
        assert_eq!(show(&read(&file, &int).0)[0], "0:!field_type");
        let mut other = super::tests::spec();
        other.text = "f".into();
        assert_eq!(
            show(&read(&file, &other).0),
            [
                "0:!text_not_string",
                "1:!null_text",
                "2:!null_text",
                "3:!null_text",
                "4:!text_not_string"
            ]
        );
        let mut short = super::tests::spec();
        short.max_document_bytes = 0;
        assert_eq!(show(&read(&file, &short).0)[0], "0:!too_long");
    }
    let halves = Float16Array::from_iter_values([1.5f32, 2.0].map(half_of));
    let batch = table(vec![
        ("text", Arc::new(StringArray::from(vec!["a", "b"]))),
        ("h", Arc::new(halves)),
        ("z", Arc::new(NullArray::new(2))),
    ]);
    let mut spec = super::tests::spec();
    spec.fields = vec![field("h", FieldType::Float), field("z", FieldType::String)];
    for file in as_tables(&folder, std::slice::from_ref(&batch)) {
        let (entries, _) = read(&file, &spec);
        let Entry::Document(first) = &entries[0] else {
            panic!("good")
        };
        assert_eq!(
            first.fields,
            [FieldValue::Float(1.5), FieldValue::Null],
            "{}",
            file.name
        );
    }
}

fn half_of(
    value: f32,
) -> <arrow::datatypes::Float16Type as arrow::array::ArrowPrimitiveType>::Native {
    <arrow::datatypes::Float16Type as arrow::array::ArrowPrimitiveType>::Native::from_f32(value)
}

#[test]
fn a_missing_column_is_named_with_its_nearest() {
    let folder = Folder::new();
    let batch = table(vec![
        ("content", Arc::new(StringArray::from(vec!["a"]))),
        ("url", Arc::new(StringArray::from(vec!["u"]))),
    ]);
    for file in as_tables(&folder, &[batch]) {
        let error =
            |text: &str| match Reader::open(&file, &Slice::Whole, &InputSpec::with_text(text)) {
                Ok(_) => panic!("no such column"),
                Err(error) => error.to_string(),
            };
        let said = error("contents");
        assert!(
            said.contains("'contents', did you mean 'content'?; it has content, url"),
            "{said}"
        );
        assert!(!error("zzzzzz").contains("did you mean"));
        let mut spec = InputSpec::with_text("content");
        spec.id = Some("id".into());
        assert!(matches!(
            Reader::open(&file, &Slice::Whole, &spec),
            Err(SourceError::NoColumn { .. })
        ));
    }
}

#[test]
fn row_groups_can_be_read_apart() {
    let folder = Folder::new();
    let texts: Vec<String> = (0..23).map(|n| format!("text {n}")).collect();
    let batch = table(vec![("text", Arc::new(StringArray::from(texts)))]);
    let file = folder.file("a.parquet", &parquet_bytes(&[batch], 3));
    let whole = show(&read(&file, &spec()).0);
    assert_eq!(whole.len(), 23);
    assert_eq!(whole[22], "22:text 22");
    for target in [0, 1, 100, 200, 1000, 1 << 30] {
        let pieces = slices(&file, &spec(), target).expect("cuts");
        let cut: Vec<_> = pieces
            .iter()
            .flat_map(|slice| show(&read_slice(&file, slice, &spec()).0))
            .collect();
        assert_eq!(cut, whole, "target {target}");
        if target == 1 {
            assert_eq!(pieces.len(), 8);
        }
    }
    let none = RecordBatch::new_empty(Arc::new(Schema::new(vec![Field::new(
        "text",
        DataType::Utf8,
        true,
    )])));
    for file in as_tables(&folder, &[none]) {
        let pieces = slices(&file, &spec(), 1).expect("cuts");
        assert_eq!(pieces.len(), 1);
        assert_eq!(read_slice(&file, &pieces[0], &spec()).0.len(), 0);
    }
}

#[test]
fn chunks_of_tables_stay_small_whatever_the_batch() {
    let folder = Folder::new();
    // One long value for every row: small as a dictionary, long as documents.
    let long = "y".repeat(100_000);
    let texts = StringArray::from(vec![long.as_str(); 500]);
    let dictionary: DictionaryArray<Int32Type> = vec![long.as_str(); 500].into_iter().collect();
    for (name, bytes) in [
        (
            "a.parquet",
            parquet_bytes(&[table(vec![("text", Arc::new(texts.clone()))])], 1000),
        ),
        (
            "a.arrow",
            arrow_file_bytes(&[table(vec![("text", Arc::new(texts))])]),
        ),
        (
            "b.arrow",
            arrow_file_bytes(&[table(vec![("text", Arc::new(dictionary))])]),
        ),
    ] {
        let file = folder.file(name, &bytes);
        let mut reader = Reader::open(&file, &Slice::Whole, &spec()).expect("opens");
        let mut rows = 0;
        while let Some(chunk) = reader.next_chunk().expect("reads") {
            assert!(chunk.bytes() <= 2 * CHUNK_BYTES, "{name} {}", chunk.bytes());
            chunk.decode(&spec(), &mut |entry| {
                assert_eq!(entry.place(), rows);
                rows += 1;
            });
        }
        assert_eq!(rows, 500, "{name}");
    }
}

#[test]
fn a_damaged_table_is_an_error_not_a_shorter_one() {
    let folder = Folder::new();
    let texts: Vec<String> = (0..50).map(|n| format!("text {n}")).collect();
    let batch = table(vec![("text", Arc::new(StringArray::from(texts)))]);
    let cut = |bytes: &[u8], name: &str, keep: usize| {
        let file = folder.file(name, &bytes[..keep]);
        let mut reader = Reader::open(&file, &Slice::Whole, &spec())?;
        while reader.next_chunk()?.is_some() {}
        Ok::<_, SourceError>(())
    };
    let parquet = parquet_bytes(std::slice::from_ref(&batch), 10);
    let arrow = arrow_file_bytes(std::slice::from_ref(&batch));
    let stream = arrow_stream_bytes(std::slice::from_ref(&batch));
    for (name, bytes, ends) in [
        ("a.parquet", parquet, 1),
        ("a.arrow", arrow, 1),
        ("b.arrow", stream, 300),
    ] {
        assert!(cut(&bytes, name, bytes.len()).is_ok());
        for keep in [bytes.len() - ends, bytes.len() / 2, 10, 0] {
            assert!(
                matches!(cut(&bytes, name, keep), Err(SourceError::Damaged { .. })),
                "{name} {keep}"
            );
        }
    }
}

/// The only line of a chunk, without a file.
fn parsed(line: impl AsRef<[u8]>, spec: &InputSpec) -> Result<Document, BadRecord> {
    let bytes = line.as_ref().to_vec();
    let mut found = None;
    let chunk = Chunk {
        body: Body::Lines { place: 0, bytes },
    };
    chunk.decode(spec, &mut |entry| {
        assert!(found.replace(entry).is_none(), "one line, one entry");
    });
    match found.expect("one line, one entry") {
        Entry::Document(document) => Ok(document),
        Entry::Bad(bad) => Err(bad),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn what_is_json_is_what_a_reference_parser_accepts(
        parts in proptest::collection::vec(proptest::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"", "\"a\"", "\"text\":", "\"text\":\"x\"", "\"b\":1,", "1", "-", "0",
            "01", "1.", "1.5", "e5", "1e+5", "-0", "true", "null", "fals", "\\", "\\u12", "\"\\u00e9\"", "\"\\n\"",
            " ", "\t", "\r", "é", "{}", "[]", "[1,2]", "{\"a\":{\"b\":[]}}", "\u{1}", "\u{feff}",
        ]), 1..9)
    ) {
        let line = parts.concat();
        let spec = InputSpec::with_text("text.a");
        prop_assume!(!line.starts_with('\u{feff}'));
        let accepted = serde_json::from_str::<serde::de::IgnoredAny>(&line).is_ok();
        let reason = parsed(&line, &spec).map_err(|bad| bad.reason);
        let blank = line.trim_matches([' ', '\t', '\r']).is_empty();
        prop_assert_eq!(accepted, !matches!(reason, Err("invalid_json" | "blank")), "{}", &line);
        prop_assert_eq!(blank, reason.err() == Some("blank"));
    }

    #[test]
    fn a_broken_byte_is_judged_like_a_reference_parser(
        at in 0usize..80, byte in 0u8..128,
    ) {
        let mut line = br#"{"id": 12, "meta": {"a": [1.5e3, {"x": null}], "b": "\u00e9\n"}, "text": "hello"}"#.to_vec();
        line[at] = byte;
        prop_assume!(byte != b'\n');
        let accepted = serde_json::from_slice::<serde::de::IgnoredAny>(&line).is_ok();
        let reason = parsed(&line, &spec()).map_err(|bad| bad.reason);
        prop_assert_eq!(accepted, !matches!(reason, Err("invalid_json")), "{}", String::from_utf8_lossy(&line));
    }

    #[test]
    fn any_text_survives_any_way_of_escaping(text in "\\PC*|[\\x00-\\x7f]{0,40}", escape_all: bool) {
        prop_assume!(!text.trim().is_empty());
        let written = if escape_all {
            let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
            format!("\"{units}\"")
        } else {
            serde_json::to_string(&text).expect("a string")
        };
        let document = parsed(format!("{{\"text\":{written}}}"), &spec());
        prop_assert_eq!(document.map(|d| d.text), Ok(text));
    }
}

#[expect(clippy::print_stdout, reason = "a skipped test must say so")]
fn shared_data() -> Option<&'static Path> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/data"));
    if path.join("README.md").is_file() {
        return Some(path);
    }
    println!("skipped: no shared data");
    None
}

/// Name and documents, from the table of the data's README.
fn readme_rows(path: &Path) -> Vec<(String, u64)> {
    let readme = std::fs::read_to_string(path.join("README.md")).expect("a README");
    readme
        .lines()
        .filter_map(|line| {
            let mut cells = line.split('|').map(str::trim).skip(1);
            let name = cells.next()?;
            Some((name.to_string(), cells.next()?.parse().ok()?))
        })
        .collect()
}

#[test]
fn every_file_of_the_sample_is_read_as_its_readme_says() {
    let Some(data) = shared_data() else { return };
    let rows = readme_rows(data);
    assert_eq!(rows.len(), 81);
    assert_eq!(
        rows.iter().map(|(_, documents)| documents).sum::<u64>(),
        35_706
    );
    for (name, documents) in rows {
        let file = FoundFile::at(&data.join(&name)).expect("a file of the table");
        let packed = std::fs::read(&file.path).expect("reads");
        let unpacked = match name.rsplit_once('.') {
            Some((_, "zst")) => zstd::decode_all(packed.as_slice()).expect("unpacks"),
            Some((_, "gz")) => {
                let mut unpacked = Vec::new();
                flate2::read::MultiGzDecoder::new(packed.as_slice())
                    .read_to_end(&mut unpacked)
                    .expect("unpacks");
                unpacked
            }
            _ => packed,
        };
        let mut spec = spec();
        let is_jsonl = name.ends_with(".jsonl.zst");
        if is_jsonl {
            spec.id = Some("id".into());
        } else {
            // Other formats show that the bytes arrive, whatever is in them.
            spec.format = Some(Format::Text);
        }
        let (entries, summary) = read(&file, &spec);
        assert_eq!(summary.truncated, None, "{name}");
        assert_eq!(summary.bytes, unpacked.len() as u64, "{name}");
        if !is_jsonl {
            assert_eq!(entries.len(), 1, "{name}");
            continue;
        }
        assert_eq!(entries.len() as u64, documents, "{name}");
        let lines = unpacked.split(|&byte| byte == b'\n');
        for (entry, line) in entries.iter().zip(lines) {
            let Entry::Document(document) = entry else {
                panic!("{name}: {entry:?}");
            };
            let reference: serde_json::Value = serde_json::from_slice(line).expect("JSON");
            assert_eq!(
                Some(document.text.as_str()),
                reference["text"].as_str(),
                "{name}"
            );
            assert_eq!(document.id.as_deref(), reference["id"].as_str(), "{name}");
        }
    }
}
