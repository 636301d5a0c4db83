//! Files made to do harm: small ones that become huge, tables that lie about their sizes, links that
//! lead in circles, what was edited by hand. Each ends in a clear error or a quarantined record, in
//! bounded memory and time.

use super::same_bytes::{assert_same, bytes_of};
use crate::support::{Folder, Numbers, Ran, anonymous_bytes, byte_tokenizer, line};
use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use base64::Engine;
use goodput::shard::Manifest;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// No case here needs a tenth of it.
const LONGEST: Duration = Duration::from_secs(600);

/// Runs the program and watches it: how it ended, and its largest anonymous memory in bytes.
fn watched(folder: &Folder, arguments: &[&str]) -> (Ran, u64) {
    let mut child = folder
        .command(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let read = |mut pipe: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut text = String::new();
            pipe.read_to_string(&mut text).expect("UTF-8");
            text
        })
    };
    let stdout = read(Box::new(child.stdout.take().expect("piped")));
    let stderr = read(Box::new(child.stderr.take().expect("piped")));
    let (start, mut peak) = (Instant::now(), 0);
    let code = loop {
        if let Some(status) = child.try_wait().expect("waits") {
            break status.code();
        }
        peak = peak.max(anonymous_bytes(child.id()).unwrap_or(0));
        if start.elapsed() > LONGEST {
            child.kill().expect("kills");
            panic!("{arguments:?} did not end; {peak} bytes");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let ran = Ran {
        code,
        stdout: stdout.join().expect("read"),
        stderr: stderr.join().expect("read"),
    };
    assert!(
        code.is_some() && !ran.stderr.contains("panicked"),
        "{arguments:?}: {ran:?}"
    );
    (ran, peak)
}

/// Runs `p.yaml`, which must end well and keep within so many bytes of anonymous memory.
fn run_within(folder: &Folder, most_bytes: u64) {
    let (ran, peak) = watched(folder, &["run", "p.yaml", "--progress", "off"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(peak < most_bytes, "{peak} bytes");
}

const MIB: u64 = 1 << 20;

/// `head`, then so many MiB of one byte, then `tail`, as a few KB of zstd.
fn zstd_bomb(head: &str, byte: u8, mebibytes: usize, tail: &str) -> Vec<u8> {
    let pack = |bytes: &[u8]| zstd::encode_all(bytes, 19).expect("packed");
    let middle = pack(&vec![byte; 64 << 20]);
    assert_eq!(mebibytes % 64, 0);
    [
        pack(head.as_bytes()),
        middle.repeat(mebibytes / 64),
        pack(tail.as_bytes()),
    ]
    .concat()
}

fn gzip_bomb(head: &str, byte: u8, mebibytes: usize, tail: &str) -> Vec<u8> {
    let pack = |bytes: &[u8]| {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        writer.write_all(bytes).expect("packed");
        writer.finish().expect("packed")
    };
    let middle = pack(&vec![byte; 1 << 20]);
    [
        pack(head.as_bytes()),
        middle.repeat(mebibytes),
        pack(tail.as_bytes()),
    ]
    .concat()
}

#[test]
fn a_line_of_4_gib_in_a_few_kilobytes_is_quarantined_in_a_stream() {
    let folder = Folder::new();
    let (head, tail) = (r#"{"text":""#, "\"}\n{\"text\":\"after\"}\n");
    let zst = zstd_bomb(head, b'a', 4096, tail);
    assert!(zst.len() < 1 << 20, "{}", zst.len());
    folder.write("a.jsonl.zst", zst);
    folder.write("b.jsonl.gz", gzip_bomb(head, b'a', 512, tail));
    // The largest size that a file can have without one: a hole.
    let plain = File::create(folder.path("c.jsonl")).expect("created");
    plain.set_len(1 << 30).expect("a sparse file");
    folder.pipeline("inputs:\n  - { path: \"*.jsonl*\", source: web }\n");
    run_within(&folder, 600 * MIB);
    let out = folder.out("out");
    assert_eq!(out.kept_texts(), ["after", "after"]);
    let lines = out.quarantine();
    let found: Vec<(&str, &str, u64)> = lines
        .iter()
        .map(|line| {
            let text = |key: &str| line[key].as_str().expect("a text");
            (
                text("file"),
                text("reason"),
                line["byte_offset"].as_u64().expect("a place"),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("a.jsonl.zst", "too_long", 0),
            ("b.jsonl.gz", "too_long", 0),
            ("c.jsonl", "too_long", 0)
        ]
    );
    for line in &lines {
        let raw = line["raw_base64"].as_str().expect("a text");
        assert!(raw.len() < 100 << 10, "{} of raw bytes are kept", raw.len());
    }
    // Blank text files and texts of one line are bounded likewise.
    fs::remove_file(folder.path("c.jsonl")).expect("removed");
    folder.write("d.txt.zst", zstd_bomb("", b'x', 1024, ""));
    folder.pipeline(
        "inputs:\n  - { path: d.txt.zst, source: web, format: text }\noutput: { path: text }\n",
    );
    run_within(&folder, 600 * MIB);
    assert_eq!(folder.out("text").quarantined()[0].0, "too_long");
}

#[test]
fn a_record_of_every_broken_kind_is_quarantined_alone() {
    let folder = Folder::new();
    let nested = |depth: usize| {
        format!(
            r#"{{"a":{}{},"text":"x"}}"#,
            "[".repeat(depth),
            "]".repeat(depth)
        )
    };
    let with_bytes = |bytes: &[u8]| [br#"{"text":"a"#.as_slice(), bytes, br#"b"}"#].concat();
    let bad: Vec<(Vec<u8>, &str)> = vec![
        (nested(1_000_000).into_bytes(), "too_deep"),
        (r#"{"a":"#.repeat(1_000_000).into_bytes(), "too_deep"),
        (
            format!(r#"{{"text":{}"#, "[".repeat(1_000_000)).into_bytes(),
            "too_deep",
        ),
        (b"\0".to_vec(), "invalid_json"),
        (with_bytes(b"\0"), "invalid_json"),
        (vec![0; 1 << 20], "invalid_json"),
        // Invalid UTF-8 of every kind: alone, overlong, half a pair, above the last, cut off.
        (with_bytes(&[0x80]), "invalid_utf8"),
        (with_bytes(&[0xFF]), "invalid_utf8"),
        (with_bytes(&[0xC0, 0xAF]), "invalid_utf8"),
        (with_bytes(&[0xE0, 0x80, 0xAF]), "invalid_utf8"),
        (with_bytes(&[0xF0, 0x80, 0x80, 0xAF]), "invalid_utf8"),
        (with_bytes(&[0xED, 0xA0, 0x80]), "invalid_utf8"),
        (with_bytes(&[0xED, 0xBF, 0xBF]), "invalid_utf8"),
        (with_bytes(&[0xF4, 0x90, 0x80, 0x80]), "invalid_utf8"),
        (with_bytes(&[0xF8, 0x88, 0x80, 0x80, 0x80]), "invalid_utf8"),
        (with_bytes(&[0xE2, 0x82]), "invalid_utf8"),
        (with_bytes(&[0xC3]), "invalid_utf8"),
        (b"{\"a\":\"\xFF\",\"text\":\"x\"}".to_vec(), "invalid_utf8"),
        // In UTF-16 every other byte is NUL.
        (
            "{\"text\":\"x\"}"
                .encode_utf16()
                .flat_map(u16::to_le_bytes)
                .collect(),
            "invalid_json",
        ),
        (br#"{"text":"a\ud800b"}"#.to_vec(), "lone_surrogate"),
        (br#"{"text":"a\udfff\ud800"}"#.to_vec(), "lone_surrogate"),
        (br#"{"text":"a\ud83d\u0041"}"#.to_vec(), "lone_surrogate"),
        (br#"{"text":"a\ud83d"}"#.to_vec(), "lone_surrogate"),
        (br#"{"text":"x","text":"x"}"#.to_vec(), "duplicate_key"),
        (
            br#"{"text":"x","year":99999999999999999999}"#.to_vec(),
            "field_type",
        ),
        (
            br#"{"text":"x","year":-9223372036854775809}"#.to_vec(),
            "field_type",
        ),
        (br#"{"text":"x","year":1e400}"#.to_vec(), "field_type"),
        (br#"{"text":"x","weight":1e400}"#.to_vec(), "field_type"),
        (br#"{"text":"x","weight":-1e400}"#.to_vec(), "field_type"),
        (
            format!(r#"{{"text":"x","weight":1{}}}"#, "0".repeat(100_000)).into_bytes(),
            "field_type",
        ),
        (br#"{"text":"x","weight":NaN}"#.to_vec(), "invalid_json"),
        (
            br#"{"text":"x","weight":Infinity}"#.to_vec(),
            "invalid_json",
        ),
    ];
    let good = [
        // What is not read may be anything that is JSON.
        r#"{"text":"one","a":1e999,"b":"\ud800","c":1,"c":2}"#.to_string(),
        r#"{"text":"\u0000two","year":9223372036854775807,"weight":1e-400}"#.to_string(),
        nested(1_000),
    ];
    let (mut file, mut expected) = (Vec::new(), Vec::new());
    for (at, (record, reason)) in bad.iter().enumerate() {
        expected.push((reason.to_string(), Some(file.len() as u64)));
        file.extend_from_slice(record);
        file.extend(format!("\n{{\"text\":\"neighbour {at:02}\"}}\n").bytes());
    }
    for record in &good {
        file.extend(format!("{record}\n").bytes());
    }
    folder.write("in.jsonl", &file);
    folder.pipeline(
        "inputs:\n  - { path: in.jsonl, source: web, fields: { year: int, weight: float } }\norder: { strategy: shuffle }\n",
    );
    let out = folder.run_and_verify();
    assert_eq!(out.quarantined(), expected);
    let mut kept = out.kept_texts();
    kept.sort();
    let mut texts: Vec<String> = (0..bad.len())
        .map(|at| format!("neighbour {at:02}"))
        .collect();
    texts.extend(["one", "\0two", "x"].map(str::to_string));
    texts.sort();
    assert_eq!(kept, texts);
    let raw = |at: usize| {
        let text = out.quarantine()[at]["raw_base64"]
            .as_str()
            .map(str::to_string);
        base64::engine::general_purpose::STANDARD
            .decode(text.expect("a text"))
            .expect("base64")
    };
    assert_eq!(raw(6), bad[6].0);
}

fn batch(rows: usize) -> RecordBatch {
    let texts: Vec<String> = (0..rows).map(|row| format!("text of row {row}")).collect();
    let column: ArrayRef = Arc::new(StringArray::from(texts));
    RecordBatch::try_from_iter([("text", column)]).expect("a table")
}

fn parquet_of(batch: &RecordBatch, compression: Compression) -> Vec<u8> {
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .build();
    let mut bytes = Vec::new();
    let mut writer =
        ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).expect("a schema");
    writer.write(batch).expect("written");
    writer.close().expect("written");
    bytes
}

fn arrow_of(batch: &RecordBatch, compressed: bool) -> Vec<u8> {
    let codec = compressed.then_some(arrow::ipc::CompressionType::ZSTD);
    let options = IpcWriteOptions::default()
        .try_with_compression(codec)
        .expect("options");
    let mut bytes = Vec::new();
    let mut writer =
        FileWriter::try_new_with_options(&mut bytes, &batch.schema(), options).expect("a schema");
    writer.write(batch).expect("written");
    writer.finish().expect("written");
    drop(writer);
    bytes
}

fn arrow_stream_of(batch: &RecordBatch) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, &batch.schema()).expect("a schema");
    writer.write(batch).expect("written");
    writer.finish().expect("written");
    drop(writer);
    bytes
}

/// A table whose sizes are those of a giant: where the parts of the file say so, and what says it.
#[test]
fn tables_that_lie_about_their_sizes_are_refused() {
    let folder = Folder::new();
    folder.pipeline("inputs:\n  - { path: in.*, source: web }\n");
    let table = batch(40);
    let patched = |bytes: &[u8], at: usize, new: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[at..at + new.len()].copy_from_slice(new);
        bytes
    };
    let parquet = parquet_of(&table, Compression::ZSTD(ZstdLevel::default()));
    let file = arrow_of(&table, false);
    let packed = arrow_of(&table, true);
    let stream = arrow_stream_of(&table);
    // In an Arrow stream each message begins with its length, the second one being the batch.
    let second = 8 + u32::from_le_bytes(stream[4..8].try_into().expect("4 bytes")) as usize;
    let end = |bytes: &[u8], back: usize| bytes.len() - back;
    let cases: Vec<(&str, Vec<u8>)> = vec![
        (
            "in.parquet",
            patched(&parquet, end(&parquet, 8), &[0xFF, 0xFF, 0xFF, 0x7F]),
        ),
        (
            "in.parquet",
            patched(&parquet, end(&parquet, 8), &[0xFF; 4]),
        ),
        (
            "in.parquet",
            patched(&parquet, end(&parquet, 8), &[0, 0, 0, 0]),
        ),
        (
            "in.arrow",
            patched(&file, end(&file, 10), &[0xFF, 0xFF, 0xFF, 0x7F]),
        ),
        ("in.arrow", patched(&file, end(&file, 10), &[0xFF; 4])),
        ("in.arrow", patched(&stream, 4, &[0xFF, 0xFF, 0xFF, 0x7F])),
        (
            "in.arrow",
            patched(&stream, second + 4, &[0xF8, 0xFF, 0xFF, 0x7F]),
        ),
    ];
    for (number, (name, bytes)) in cases.into_iter().enumerate() {
        folder.write(name, bytes);
        let (ran, peak) = watched(&folder, &["run", "p.yaml", "--fresh", "--progress", "off"]);
        ran.says_no(&[name]);
        assert!(peak < 400 * MIB, "case {number}: {peak} bytes");
        fs::remove_file(folder.path(name)).expect("removed");
    }
    // Every number of a file set to extremes, at every place, read as the engine does.
    for (name, bytes) in [
        ("in.parquet", &parquet),
        ("in.parquet", &parquet_of(&table, Compression::UNCOMPRESSED)),
        ("in.arrow", &file),
        ("in.arrow", &packed),
        ("in.arrow", &stream),
    ] {
        assert!(read_table(&folder, name, bytes).is_ok());
        let mut refused = 0;
        for at in (0..bytes.len()).step_by(4) {
            for extreme in [
                &[0xFFu8; 8][..1],
                &[0x80],
                &[0xFF; 4],
                &[0, 0, 0, 0x40],
                &[0xFF; 8],
                &[0, 0, 0, 0, 0, 0x10, 0, 0],
            ] {
                if at + extreme.len() <= bytes.len() {
                    refused +=
                        u64::from(read_table(&folder, name, &patched(bytes, at, extreme)).is_err());
                }
            }
        }
        assert!(refused > bytes.len() as u64 / 16, "{name}: {refused}");
        for keep in 0..bytes.len() {
            match read_table(&folder, name, &bytes[..keep]) {
                Err(_) => {}
                // A stream may end without a mark: one that is cut between two messages is a shorter one.
                Ok(rows) => assert!(
                    std::ptr::eq(bytes, &stream)
                        && match rows {
                            0 => (second..second + 4).contains(&keep),
                            rows => rows == 40 && keep + 8 >= bytes.len(),
                        },
                    "{name}: {rows} rows of {keep} bytes"
                ),
            }
        }
    }
}

fn read_table(folder: &Folder, name: &str, bytes: &[u8]) -> Result<usize, String> {
    use goodput::source::{FoundFile, InputSpec, Reader, slices};
    let path = folder.path(name);
    fs::write(&path, bytes).expect("written");
    let spec = InputSpec::with_text("text");
    let mut rows = 0;
    let mut all = || -> Result<(), goodput::source::SourceError> {
        let file = FoundFile::at(&path)?;
        for slice in slices(&file, &spec, 1 << 20)? {
            let mut reader = Reader::open(&file, &slice, &spec)?;
            while let Some(chunk) = reader.next_chunk()? {
                chunk.decode(&spec, &mut |_| rows += 1);
            }
        }
        Ok(())
    };
    all().map_err(|error| error.to_string())?;
    Ok(rows)
}

#[test]
fn a_pipeline_made_to_grow_is_refused_soon() {
    let folder = Folder::new();
    folder.documents("in.jsonl", &["a"]);
    folder.documents("d/e/in.jsonl", &["a"]);
    let mut laughs = String::from("a: &a [x, x, x, x, x, x, x, x, x]\n");
    for (name, before) in ('b'..='i').zip('a'..) {
        laughs += &format!(
            "{name}: &{name} [{}]\n",
            vec![format!("*{before}"); 9].join(", ")
        );
    }
    let cases = [
        (laughs, "anchors and aliases"),
        (
            format!("stages: [{}]\n", "*a,".repeat(2 << 20)),
            "anchors and aliases",
        ),
        (format!("stages: [{}]\n", "!a b,".repeat(1 << 20)), "tags"),
        ("[".repeat(4 << 20), "nesting"),
        ("? ".repeat(1 << 20), "nesting"),
        ("- ".repeat(1 << 20), "nesting"),
        ("{a: ".repeat(1 << 20), "nesting"),
        ("\"".to_string() + &"a".repeat(4 << 20), "quot"),
        (format!("name: {}\n", "a".repeat(4 << 20)), ""),
        (format!("name: \"{}\"\n", "\\u0041".repeat(1 << 20)), ""),
        ("#".repeat(9 << 20), "larger than 8 MiB"),
        (
            (0..300_000).map(|n| format!("unknown_{n}: 1\n")).collect(),
            "unknown",
        ),
        ("a: 1\n".repeat(1 << 20), "more problems"),
        (
            format!(
                "inputs:\n  - {{ path: \"{}x.jsonl\", source: a }}\n",
                "{a,b}".repeat(40)
            ),
            "ways",
        ),
        (
            format!(
                "inputs:\n  - {{ path: \"{}\", source: a }}\n",
                "{a}".repeat(300_000)
            ),
            "path",
        ),
        (
            format!(
                "inputs:\n  - {{ path: \"{}x.jsonl\", source: a }}\n",
                "**/".repeat(400)
            ),
            "x.jsonl",
        ),
        (
            format!(
                "inputs:\n  - {{ path: [in.jsonl, \"!{}x\"], source: a }}\n",
                "**/".repeat(1_000)
            ),
            "",
        ),
        ("name: \"a\0b\"\n".to_string(), "unprintable"),
        (format!("seed: {}\n", "9".repeat(1 << 20)), "seed"),
        ("seed: -1\n".to_string(), "seed"),
    ];
    for (text, word) in cases {
        // Each is put before a pipeline that is right but for it.
        folder.pipeline("");
        let rest = fs::read_to_string(folder.path("p.yaml")).expect("written");
        let key = text.split(':').next().unwrap_or_default().to_string() + ":";
        let rest: String = rest
            .split_inclusive('\n')
            .filter(|line| !text.starts_with("inputs") || !line.starts_with("  - "))
            .filter(|line| !line.starts_with(&key))
            .collect();
        folder.write("p.yaml", text.clone() + &rest);
        let (ran, peak) = watched(&folder, &["check", "p.yaml"]);
        let shown = &text[..text.len().min(60)];
        if !word.is_empty() {
            assert_eq!(
                ran.code,
                Some(2),
                "{shown}: {}",
                &ran.stderr[..ran.stderr.len().min(2_000)]
            );
            assert!(
                ran.stderr.contains(word),
                "{shown}: {}",
                &ran.stderr[..ran.stderr.len().min(2_000)]
            );
        }
        assert!(
            ran.stderr.len() < 64 << 10,
            "{shown}: {} bytes are said",
            ran.stderr.len()
        );
        assert!(peak < 1 << 30, "{shown}: {peak} bytes");
    }
}

fn fifo(path: &Path) {
    let status = Command::new("mkfifo").arg(path).status().expect("mkfifo");
    assert!(status.success());
}

#[test]
fn links_and_special_files_are_followed_once_or_refused() {
    let folder = Folder::new();
    let at = |name: &str| folder.path(name);
    folder.documents("data/a.jsonl", &["a"]);
    folder.documents("elsewhere/b.jsonl", &["b"]);
    symlink(at("data"), at("data/loop")).expect("a link");
    symlink(at("data/self"), at("data/self")).expect("a link");
    symlink(at("elsewhere"), at("data/out")).expect("a link");
    symlink(at("gone.jsonl"), at("data/gone.jsonl")).expect("a link");
    symlink("/dev/zero", at("data/zero.jsonl")).expect("a link");
    symlink("a.jsonl", at("data/again.jsonl")).expect("a link");
    fs::create_dir(at("data/folder.jsonl")).expect("a folder");
    fifo(&at("data/pipe.jsonl"));
    // What a glob finds: files, those behind links too, each once; never a device, pipe or folder.
    for glob in ["data/**/*.jsonl", "data/../data/loop/../**/*.jsonl"] {
        folder.pipeline(&format!(
            "inputs:\n  - {{ path: \"{glob}\", source: web }}\noutput: {{ path: out }}\n"
        ));
        run_within(&folder, 400 * MIB);
        assert_eq!(folder.out("out").kept_texts(), ["a", "b"], "{glob}");
        fs::remove_dir_all(at("out")).expect("removed");
    }
    // What is named itself and is no file is refused, soon.
    let named = [
        "data/pipe.jsonl",
        "data/zero.jsonl",
        "data/folder.jsonl",
        "data/gone.jsonl",
        "data/self",
        "/dev/zero",
        "/dev/null",
    ];
    for path in named {
        folder.pipeline(&format!(
            "inputs:\n  - {{ path: {path}, source: web, format: jsonl }}\n"
        ));
        let (ran, _) = watched(&folder, &["check", "p.yaml"]);
        ran.refuses(&[path]);
        // The same where a tokenizer, a reference or a model is expected.
        folder.pipeline(&format!(
            "inputs:\n  - {{ path: data/a.jsonl, source: web }}\ntokenizer: {{ file: {path}, end_token: none }}\n"
        ));
        let (ran, peak) = watched(&folder, &["check", "p.yaml"]);
        ran.says_no(&[path]);
        assert!(peak < 400 * MIB, "{path}: {peak} bytes");
        for stage in [
            format!("score: {{ estimator: ngram_excess, model: {path} }}"),
            format!("score: {{ estimator: ngram_excess, reference: {path}, fit_tokens: 1000 }}"),
            format!(
                "score: {{ estimator: external, losses: {path}, column: loss, usefulness: rising }}"
            ),
            format!("score: {{ estimator: fasttext, model: {path}, label: __label__good }}"),
            format!("score: {{ estimator: commonness, calibration: {path} }}"),
            format!("language: {{ keep: [en], model: {path} }}"),
            format!("decontaminate: {{ evaluation: {path} }}"),
        ] {
            folder.pipeline(&format!(
                "inputs:\n  - {{ path: data/a.jsonl, source: web }}\nstages:\n  - {stage}\n"
            ));
            let (ran, peak) = watched(&folder, &["check", "p.yaml"]);
            ran.says_no(&[path]);
            assert!(peak < 400 * MIB, "{path} {stage}: {peak} bytes");
        }
        // A pipeline may come through a pipe.
        if path == "data/pipe.jsonl" {
            continue;
        }
        let (ran, peak) = watched(&folder, &["check", path]);
        ran.says_no(&[path]);
        assert!(peak < 400 * MIB, "{path}: {peak} bytes");
    }
}

#[test]
fn a_tokenizer_made_to_do_harm_is_refused_or_serves() {
    let folder = Folder::new();
    folder.documents("in.jsonl", &["some text", "<|added 7|> more"]);
    folder.pipeline("stages:\n  - score: { estimator: commonness }\n");
    let with = |change: &dyn Fn(&mut Value)| {
        let mut tokenizer = byte_tokenizer();
        change(&mut tokenizer);
        tokenizer.to_string()
    };
    let added = |from: usize, count: usize| -> Vec<Value> {
        (from..from + count)
            .map(|at| {
                json!({ "id": 258 + at, "content": format!("<|added {at}|>"), "single_word": false, "lstrip": false,
                        "rstrip": false, "normalized": false, "special": false })
            })
            .collect()
    };
    let many = |tokenizer: &mut Value| {
        let list = tokenizer["added_tokens"].as_array_mut().expect("a list");
        list.extend(added(0, 100_000));
    };
    type Change<'a> = &'a dyn Fn(&mut Value);
    let cases: Vec<(&str, Change<'_>)> = vec![
        ("a gap", &|t| t["model"]["vocab"]["zz"] = json!(100_000)),
        ("the last id", &|t| {
            t["model"]["vocab"]["zz"] = json!(u32::MAX)
        }),
        ("an id of 2^32", &|t| {
            t["model"]["vocab"]["zz"] = json!(1u64 << 32)
        }),
        ("an id below 0", &|t| t["model"]["vocab"]["zz"] = json!(-1)),
        ("an id that is no integer", &|t| {
            t["model"]["vocab"]["zz"] = json!(1.5)
        }),
        ("an id twice", &|t| t["model"]["vocab"]["zz"] = json!(65)),
        ("an empty token", &|t| t["model"]["vocab"][""] = json!(256)),
        ("no vocabulary", &|t| t["model"]["vocab"] = json!({})),
        ("a merge of nothing", &|t| {
            t["model"]["merges"] = json!([["", ""]])
        }),
        ("a merge of unknown tokens", &|t| {
            t["model"]["merges"] = json!([["qq", "zz"]])
        }),
        ("a merge of three", &|t| {
            t["model"]["merges"] = json!([["a", "b", "c"]])
        }),
        ("a merge that is a number", &|t| {
            t["model"]["merges"] = json!([7])
        }),
        ("a merge into itself", &|t| {
            t["model"]["merges"] = json!([["a", "a"], ["aa", "aa"], ["a", "a"]]);
        }),
        ("an added token twice", &|t| {
            let list = t["added_tokens"].as_array_mut().expect("a list");
            let first = list[0].clone();
            list.push(first);
        }),
        ("added ids in the vocabulary", &|t| {
            t["added_tokens"][0]["id"] = json!(65)
        }),
        ("an added id of 2^40", &|t| {
            t["added_tokens"][0]["id"] = json!(1u64 << 40)
        }),
        ("a pattern that takes for ever", &|t| {
            t["pre_tokenizer"] = json!({ "type": "Split", "pattern": { "Regex": "(a+)+$" }, "behavior": "Isolated", "invert": false });
        }),
        ("a pattern that is none", &|t| {
            t["pre_tokenizer"] = json!({ "type": "Split", "pattern": { "Regex": "(((" }, "behavior": "Isolated", "invert": false });
        }),
        ("100,000 added tokens", &many),
    ];
    for (what, change) in cases {
        folder.write("tokenizer.json", with(change));
        let _ = fs::remove_dir_all(folder.path("out"));
        let (ran, peak) = watched(&folder, &["run", "p.yaml", "--progress", "off"]);
        assert!(
            ran.code == Some(0) || ran.stderr.contains("tokenizer"),
            "{what}: {ran:?}"
        );
        assert!(peak < 2 << 30, "{what}: {peak} bytes");
        if ran.code == Some(0) {
            folder.verify("out");
        }
    }
    // Nested as deep as its size allows.
    let deep = format!("{{\"model\":{}", "{\"a\":".repeat(1_000_000));
    folder.write("tokenizer.json", deep);
    let (ran, _) = watched(&folder, &["check", "p.yaml"]);
    ran.refuses(&["tokenizer.json"]);
    // A few KB that would be gigabytes.
    folder.write("tokenizer.json", zstd_bomb("{", b' ', 4096, "}"));
    let (ran, peak) = watched(&folder, &["check", "p.yaml"]);
    ran.refuses(&["tokenizer.json"]);
    assert!(peak < 2200 * MIB, "{peak} bytes");
}

/// A finished folder of some documents of which one is rejected and one quarantined.
fn finished(folder: &Folder) {
    let mut numbers = Numbers(3);
    let mut texts: Vec<String> = (0..12).map(|_| numbers.words(40)).collect();
    texts.push(texts[0].clone());
    folder.documents("in.jsonl", &texts);
    let path = folder.path("in.jsonl");
    let mut bytes = fs::read(&path).expect("read");
    bytes.extend(b"{broken\n");
    fs::write(path, bytes).expect("written");
    folder.pipeline(
        "stages:\n  - exact_dedupe: {}\n  - score: { estimator: commonness }\noutput: { path: out, rejects: text, shard_tokens: 2_000 }\n",
    );
    folder.run(&[]);
}

#[test]
fn a_manifest_edited_by_hand_is_found() {
    let folder = Folder::new();
    finished(&folder);
    let path = folder.path("out/manifest.json");
    let good = fs::read_to_string(&path).expect("read");
    let said = |ran: &Ran| ran.stdout.clone() + &ran.stderr;
    // As a person would: a number, a path, a key; and things that are no manifest.
    let manifest: Value = serde_json::from_str(&good).expect("JSON");
    let edited = |change: &dyn Fn(&mut Value)| {
        let mut manifest = manifest.clone();
        change(&mut manifest);
        serde_json::to_string_pretty(&manifest).expect("JSON") + "\n"
    };
    let mut texts = vec![
        edited(&|m| m["files"][0]["rows"] = json!(1)),
        edited(&|m| m["files"][0]["tokens"] = json!(u64::MAX)),
        edited(&|m| m["files"][0]["rows"] = json!(-1)),
        edited(&|m| m["files"][0]["bytes"] = json!(1e300)),
        edited(&|m| m["files"][0]["path"] = json!("../in.jsonl")),
        edited(&|m| m["files"][0]["path"] = json!("/etc/passwd")),
        edited(&|m| m["files"] = json!([])),
        edited(&|m| m["checksum"] = json!("0")),
        edited(&|m| m["totals"]["rows"] = json!(u64::MAX)),
        edited(&|m| m["version"] = json!(2)),
        "{}".to_string(),
        "[".repeat(1_000_000),
        String::new(),
        "\0".repeat(1 << 20),
        good.replace("\n", "\r\n"),
        good[..good.len() / 2].to_string(),
    ];
    for key in manifest.as_object().expect("an object").keys() {
        texts.push(edited(&|m| {
            m.as_object_mut().expect("an object").remove(key);
        }));
    }
    for text in &texts {
        fs::write(&path, text).expect("written");
        let shown = &text[..text.len().min(300)];
        for command in [
            &["verify", "out"][..],
            &["inspect", "out"],
            &["audit", "out"],
        ] {
            let (ran, _) = watched(&folder, command);
            if command[0] != "audit" {
                assert_ne!(ran.code, Some(0), "{command:?} {shown}: {ran:?}");
                assert!(
                    said(&ran).contains("manifest.json"),
                    "{command:?} {shown}: {ran:?}"
                );
            }
        }
    }
    // As a forger would, with the checksum made anew.
    let sealed = |change: &dyn Fn(&mut Manifest)| {
        let mut manifest = Manifest::parse(&good).expect("sealed");
        change(&mut manifest);
        manifest.sealed().1
    };
    let secret = folder.path("secret");
    fs::write(&secret, "secret").expect("written");
    let outside = secret.to_str().expect("plain").to_string();
    let (bytes, checksum) = goodput::shard::file_checksum(&secret).expect("read");
    let shard = |m: &Manifest| {
        let is_shard = |file: &goodput::shard::FileEntry| file.path.starts_with("shards/");
        m.files.iter().position(is_shard).expect("a shard")
    };
    let order = |m: &Manifest| {
        let is_order = |file: &goodput::shard::FileEntry| file.path.starts_with("order/");
        m.files.iter().position(is_order).expect("an order")
    };
    type Forgery<'a> = (&'a dyn Fn(&mut Manifest), &'a str);
    // What it says of the folder must be found; what it says of how the folder was made cannot be, but
    // must do no harm.
    let counts = "rows and tokens that the manifest says";
    let forged: &[Forgery<'_>] = &[
        (
            &|m| {
                let at = shard(m);
                m.files[at].rows += 1;
            },
            counts,
        ),
        (
            &|m| {
                let at = shard(m);
                m.files[at].rows = u64::MAX;
            },
            counts,
        ),
        (
            &|m| {
                let at = shard(m);
                m.files[at].tokens = u64::MAX;
            },
            counts,
        ),
        (
            &|m| {
                let at = shard(m);
                m.files[at].bytes = u64::MAX;
            },
            "every file has the size",
        ),
        (
            &|m| {
                let at = order(m);
                m.files[at].rows += 1;
            },
            "",
        ),
        (
            &|m| {
                let at = order(m);
                m.files[at].rows = u64::MAX;
            },
            "the order follows",
        ),
        (
            &|m| {
                let at = order(m);
                m.files[at].rows = 0;
            },
            "the order follows",
        ),
        (
            &|m| m.files.iter_mut().for_each(|f| f.rows = u64::MAX),
            counts,
        ),
        (
            &|m| m.files.iter_mut().for_each(|f| f.bytes = u64::MAX),
            "every file has the size",
        ),
        (&|m| m.totals.rows = u64::MAX, "the totals"),
        (&|m| m.totals.positions = u64::MAX, "the totals"),
        (&|m| m.totals.kept.tokens = u64::MAX, "the totals"),
        (&|m| m.files.clear(), "no file stands beside"),
        (
            &|m| {
                let entry = m.files[0].clone();
                m.files.push(entry);
            },
            "named twice",
        ),
        (
            &|m| m.tokenizer.vocabulary_size = 0,
            "every id is in the vocabulary",
        ),
        (
            &|m| {
                let at = shard(m);
                (m.files[at].path, m.files[at].bytes, m.files[at].checksum) =
                    (outside.clone(), bytes, checksum.clone());
            },
            "is not the path of a file in the folder",
        ),
        (
            &|m| {
                let mut entry = m.files[0].clone();
                (entry.path, entry.bytes, entry.checksum) =
                    ("../secret".to_string(), bytes, checksum.clone());
                m.files.push(entry);
            },
            "'../secret' is not the path of a file in the folder",
        ),
        (
            &|m| {
                let mut entry = m.files[0].clone();
                entry.path = "shards/../../secret".to_string();
                m.files.push(entry);
            },
            "is not the path of a file in the folder",
        ),
        (&|m| m.pack.shard_tokens = 0, ""),
        (&|m| m.pack.shard_tokens = u64::MAX, ""),
        (&|m| m.pack.method = "nonsense".to_string(), ""),
        (
            &|m| m.pack.parameters = json!({ "sequence_tokens": -1 }),
            "",
        ),
        (&|m| m.pack.parameters = json!([]), ""),
        (&|m| m.order.strategy = "nonsense".to_string(), ""),
        (&|m| m.order.parameters = json!({ "by": 5 }), ""),
        (&|m| m.order.sort_keys = vec!["nonsense".to_string()], ""),
        (&|m| m.order.sort_keys.clear(), ""),
        (
            &|m| m.order.kendall_tau_b = vec![("nonsense".to_string(), 7.0)],
            "",
        ),
        (
            &|m| m.tokenizer.begin_token = Some(("x".to_string(), u32::MAX)),
            "",
        ),
        (&|m| m.tokenizer.end_token = None, ""),
        (&|m| m.tokenizer.padding_id = u32::MAX, ""),
        (&|m| m.tokenizer.highest_id = u32::MAX, ""),
        (&|m| m.seed = 0, ""),
        (&|m| m.sample_share = Some(-1.0), ""),
        (&|m| m.inputs.clear(), ""),
    ];
    let mut unseen = Vec::new();
    for (number, (change, word)) in forged.iter().enumerate() {
        fs::write(&path, sealed(change)).expect("written");
        let (ran, peak) = watched(&folder, &["verify", "out"]);
        let fails = |line: &str| line.starts_with("FAILS") && line.contains(word);
        if !word.is_empty() && (ran.code != Some(1) || !ran.stdout.lines().any(fails)) {
            unseen.push((number, ran));
        }
        assert!(peak < 400 * MIB, "{number}: {peak} bytes");
        watched(&folder, &["inspect", "out"]);
        watched(&folder, &["verify", "out", "--inputs"]);
    }
    assert!(unseen.is_empty(), "{unseen:?}");
    fs::write(&path, &good).expect("written");
    folder.verify("out");
}

#[test]
fn verify_finds_a_single_flipped_bit_in_any_file() {
    let folder = Folder::new();
    finished(&folder);
    assert!(flipped_bits_are_found(&folder, 12) >= 7);
}

/// Indexes for later runs, evidence of cuts, and what stands in evaluation sets.
#[test]
fn verify_finds_a_single_flipped_bit_in_indexes_and_evidence() {
    let folder = Folder::new();
    let mut numbers = Numbers(4);
    let mut texts: Vec<String> = (0..8).map(|_| numbers.words(40)).collect();
    let paragraph = numbers.words(30);
    for text in &mut texts[..2] {
        *text = format!("{text}\n\n{paragraph}");
    }
    let stands_in_a_set = numbers.words(40);
    folder.documents("evaluation.jsonl", &[&stands_in_a_set]);
    texts.push(format!(
        "{} {stands_in_a_set} {}",
        numbers.words(20),
        numbers.words(20)
    ));
    texts.push(texts[3].clone());
    folder.documents("in.jsonl", &texts);
    folder.pipeline(
        "stages:\n  - decontaminate: { evaluation: evaluation.jsonl, policy: remove_span }\n\
         \x20 - paragraph_dedupe: { min_characters: 60 }\n  - exact_dedupe: { write_index: true }\n\
         \x20 - near_dedupe: { min_similarity: 0.8, write_index: true }\noutput: { path: out }\n",
    );
    folder.run(&[]);
    for there in ["contamination", "edits", "index"] {
        assert!(folder.path("out").join(there).is_dir(), "{there}");
    }
    flipped_bits_are_found(&folder, 4);
}

/// Flips so many bits of each file of `out` but run.json and run.log, one at a time; returns the number of files.
fn flipped_bits_are_found(folder: &Folder, flips: usize) -> usize {
    let mut files = Vec::new();
    let mut folders = vec![folder.path("out")];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("lists").flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else if !["run.json", "run.log"].contains(&entry.file_name().to_str().expect("plain"))
            {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    let mut numbers = Numbers(0x5EED);
    for path in &files {
        let good = fs::read(path).expect("read");
        assert!(
            !good.is_empty() || path.ends_with("part-00000.jsonl"),
            "{}",
            path.display()
        );
        if good.is_empty() {
            continue;
        }
        for _ in 0..flips {
            let (at, bit) = (numbers.below(good.len()), numbers.below(8));
            let mut bytes = good.clone();
            bytes[at] ^= 1 << bit;
            fs::write(path, bytes).expect("written");
            let (ran, _) = watched(folder, &["verify", "out"]);
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .expect("plain");
            assert!(
                ran.code == Some(1) && ran.stdout.contains(name),
                "bit {bit} of byte {at} of {}: {ran:?}",
                path.display()
            );
            // What does not prove itself must not fall over it either.
            watched(folder, &["inspect", "out"]);
            watched(folder, &["inspect", "out", "--rejects"]);
            watched(folder, &["audit", "out"]);
        }
        fs::write(path, good).expect("written");
    }
    folder.verify("out");
    files.len()
}

#[test]
fn a_model_with_a_flipped_bit_is_refused() {
    let folder = Folder::new();
    let mut numbers = Numbers(5);
    let texts: Vec<String> = (0..60).map(|_| numbers.words(60)).collect();
    folder.documents("in.jsonl", &texts);
    let reference: Vec<String> = (0..20).map(|_| numbers.words(60)).collect();
    folder.documents("reference.jsonl", &reference);
    folder.pipeline("stages:\n  - score: { estimator: ngram_excess, reference: reference.jsonl, fit_tokens: 10_000 }\n");
    let ran = folder.goodput(&["fit", "p.yaml", "--output", "model"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    folder.pipeline(
        "stages:\n  - score: { estimator: ngram_excess, model: model, fit_tokens: 10_000 }\n",
    );
    folder.run(&[]);
    let good = fs::read(folder.path("model")).expect("read");
    for turn in 0..24 {
        fs::remove_dir_all(folder.path("out"))
            .or_else(|_| fs::create_dir(folder.path("out")))
            .expect("removed");
        // Of the first bytes, which describe the rest, each in turn.
        let at = if turn < 12 {
            turn * 5 + 2
        } else {
            numbers.below(good.len())
        };
        let mut bytes = good.clone();
        bytes[at] ^= 1 << numbers.below(8);
        folder.write("model", &bytes);
        let (ran, _) = watched(&folder, &["run", "p.yaml", "--progress", "off"]);
        // The prefix ends in zeros that say nothing.
        if ran.code != Some(0) || !(56..64).contains(&at) && !(20..24).contains(&at) {
            ran.says_no(&["model"]);
        }
    }
}

#[test]
fn kept_work_with_flipped_bits_gives_the_same_bytes() {
    let folder = Folder::new();
    let mut numbers = Numbers(11);
    let mut texts: Vec<String> = (0..80).map(|_| numbers.words(60)).collect();
    texts.push(texts[3].clone());
    folder.documents("in.jsonl", &texts);
    let reference: Vec<String> = (0..20).map(|_| numbers.words(60)).collect();
    folder.documents("reference.jsonl", &reference);
    folder.pipeline(
        "stages:\n  - near_dedupe: {}\n  - score: { estimator: ngram_excess, reference: reference.jsonl, fit_tokens: 10_000 }\n",
    );
    let kept = ["--work", "kept", "--keep-work", "--slice", "8kB"];
    folder.run(&kept);
    let expected = bytes_of(&folder.path("out"));
    for turn in 0..4 {
        fs::remove_dir_all(folder.path("out")).expect("removed");
        let mut files: Vec<_> = walkdir::WalkDir::new(folder.path("kept"))
            .into_iter()
            .flatten()
            .filter(|entry| entry.file_type().is_file())
            .map(walkdir::DirEntry::into_path)
            .filter(|path| path.metadata().is_ok_and(|found| found.len() > 0))
            .filter(|path| !path.ends_with("lock") && !path.ends_with("owner"))
            .collect();
        files.sort();
        assert!(files.len() > 20, "{files:?}");
        for _ in 0..6 {
            let path = &files[numbers.below(files.len())];
            let mut bytes = fs::read(path).expect("read");
            let at = numbers.below(bytes.len());
            bytes[at] ^= 1 << numbers.below(8);
            fs::write(path, bytes).expect("written");
        }
        let (ran, _) = watched(
            &folder,
            &[&["run", "p.yaml", "--progress", "off"], &kept[..]].concat(),
        );
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_same(&expected, &folder.path("out"), &format!("turn {turn}"));
    }
}

#[test]
fn an_output_folder_that_is_a_file_or_a_device_is_refused() {
    let folder = Folder::new();
    folder.write("in.jsonl", line("a").repeat(2));
    for out in [
        "in.jsonl",
        "p.yaml",
        "p.yaml/out",
        "/dev/null",
        "/dev/null/out",
    ] {
        folder.pipeline(&format!("output: {{ path: {out} }}\n"));
        let (ran, _) = watched(&folder, &["run", "p.yaml", "--progress", "off"]);
        ran.says_no(&[out]);
    }
    assert!(folder.path("in.jsonl").is_file());
}
