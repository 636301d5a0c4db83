//! The fuzz targets of `tests/fuzz`, driven by a seeded mutator from files that the program itself wrote.
//!
//! Each target runs some hundred mutations here, always the same ones. `GOODPUT_FUZZ_SECONDS` runs each
//! for that long, from `GOODPUT_FUZZ_SEED`; `GOODPUT_FUZZ_CORPUS` names a folder that gets the files to
//! begin with, for libFuzzer (`tests/fuzz/README.md`).

#[path = "../fuzz/targets.rs"]
mod targets;

use crate::support::{Folder, Numbers, byte_tokenizer, classifier, language_model};
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use goodput::source::FINGERPRINT_KEY;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, GzipLevel, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Mutations of each target where no time is given.
const MUTATIONS: usize = 400;

/// Longest file that a mutation makes.
const MAX_BYTES: usize = 64 << 10;

/// Numbers at the ends of their types, little-endian.
const EXTREMES: [u64; 10] = [
    0,
    1,
    0x7F,
    0xFF,
    0x7FFF,
    0x7FFF_FFFF,
    0xFFFF_FFFF,
    0x7FFF_FFFF_FFFF_FFFF,
    u64::MAX,
    1 << 40,
];

/// Words that mean something in one of the formats.
const WORDS: [&str; 24] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "\n",
    "\\u0000",
    "\\ud800",
    "null",
    "true",
    "-1",
    "1e999",
    "18446744073709551616",
    "*a",
    "&a ",
    "${HOME}",
    "- ",
    "\u{FEFF}",
    "\0",
    "\"text\":",
    "\"id\":",
    "PAR1",
];

fn mutated(seeds: &[Vec<u8>], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = seeds[numbers.below(seeds.len())].clone();
    for _ in 0..=numbers.below(6) {
        let at = numbers.below(bytes.len() + 1);
        let end = at
            + numbers
                .below(bytes.len() + 1 - at)
                .min(1 << numbers.below(12));
        match numbers.below(9) {
            0 if at < bytes.len() => bytes[at] ^= 1 << numbers.below(8),
            1 if at < bytes.len() => bytes[at] = numbers.below(256) as u8,
            2 => {
                let extreme = EXTREMES[numbers.below(EXTREMES.len())].to_le_bytes();
                let size = [1, 2, 4, 8][numbers.below(4)].min(bytes.len() - at);
                bytes[at..at + size].copy_from_slice(&extreme[..size]);
            }
            3 => {
                bytes.drain(at..end);
            }
            4 => {
                let copy = bytes[at..end].to_vec();
                let to = numbers.below(bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
            5 => bytes.truncate(at),
            6 => {
                let word = WORDS[numbers.below(WORDS.len())];
                bytes.splice(at..at, word.bytes());
            }
            7 => {
                // The end of another file after the begin of this one.
                let other = &seeds[numbers.below(seeds.len())];
                let from = numbers.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend(&other[from..]);
            }
            _ => {
                let word = WORDS[numbers.below(WORDS.len())];
                let end = end.min(at + word.len());
                bytes.splice(at..end, word.bytes());
            }
        }
        bytes.truncate(MAX_BYTES);
    }
    bytes
}

fn drive(name: &str) {
    let (_, target) = targets::TARGETS
        .iter()
        .find(|(found, _)| *found == name)
        .expect("a target");
    let seeds = seeds(name);
    if let Ok(folder) = std::env::var("GOODPUT_FUZZ_CORPUS") {
        let folder = Path::new(&folder).join(name);
        fs::create_dir_all(&folder).expect("created");
        for (number, seed) in seeds.iter().enumerate() {
            fs::write(folder.join(format!("seed-{number:02}")), seed).expect("written");
        }
    }
    let number = |variable: &str| {
        std::env::var(variable)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let mut numbers = Numbers(number("GOODPUT_FUZZ_SEED").unwrap_or(17));
    let limit = number("GOODPUT_FUZZ_SECONDS").map(Duration::from_secs);
    let start = Instant::now();
    let run = |bytes: &[u8]| {
        if catch_unwind(AssertUnwindSafe(|| target(bytes))).is_err() {
            let path =
                std::env::temp_dir().join(format!("goodput-fuzz-{name}-{:08x}", bytes.len()));
            fs::write(&path, bytes).expect("written");
            panic!("target {name} fails on {}", path.display());
        }
    };
    seeds.iter().for_each(|seed| run(seed));
    let mut done = 0u64;
    while match limit {
        Some(limit) => start.elapsed() < limit,
        None => done < MUTATIONS as u64,
    } {
        run(&mutated(&seeds, &mut numbers));
        done += 1;
    }
    if limit.is_some() {
        let text = format!(
            "{name}: {done} mutations in {:.0} s\n",
            start.elapsed().as_secs_f64()
        );
        std::io::stderr()
            .write_all(text.as_bytes())
            .expect("written");
    }
}

/// What the program wrote: shards and the like, a manifest, a model.
fn written() -> &'static Folder {
    static FOLDER: OnceLock<Folder> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Folder::new();
        let mut numbers = Numbers(3);
        let mut texts: Vec<String> = (0..8).map(|_| numbers.words(12)).collect();
        texts.push(texts[0].clone());
        folder.documents("in.jsonl", &texts);
        let reference: Vec<String> = (0..8).map(|_| numbers.words(12)).collect();
        folder.documents("reference.jsonl", &reference);
        let rest = "output: { path: out, rejects: tokens }\n";
        let score =
            "score: { estimator: ngram_excess, reference: reference.jsonl, fit_tokens: 1_000 }";
        folder.pipeline(&format!(
            "stages:\n  - exact_dedupe: {{}}\n  - {score}\n{rest}"
        ));
        folder.run(&[]);
        let fitted = folder.goodput(&["fit", "p.yaml", "--output", "model"]);
        assert_eq!(fitted.code, Some(0), "{fitted:?}");
        folder.pipeline(&format!(
            "stages:\n  - line_dedupe: {{}}\n{}",
            "pack: { method: concat, sequence_tokens: 64 }\noutput: { path: packed }\n"
        ));
        folder.run(&[]);
        folder
    })
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let text = |text: &str| text.as_bytes().to_vec();
    match target {
        "jsonl" => lines().into_iter().map(String::into_bytes).collect(),
        "compressed" => {
            let all = lines().concat();
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(all.as_bytes()).expect("packed");
            let gzip = gzip.finish().expect("packed");
            let zstd = zstd::encode_all(all.as_bytes(), 1).expect("packed");
            vec![gzip.repeat(2), zstd.repeat(2), gzip, zstd]
        }
        "text" => vec![
            text("plain\ntext é\u{10ffff}\0"),
            text("\u{feff}"),
            Vec::new(),
            vec![b'a'; 5000],
        ],
        "parquet" => tables()
            .iter()
            .flat_map(|table| {
                [
                    Compression::UNCOMPRESSED,
                    Compression::SNAPPY,
                    Compression::LZ4_RAW,
                    Compression::GZIP(GzipLevel::default()),
                    Compression::ZSTD(ZstdLevel::default()),
                ]
                .map(|compression| parquet_file(table, compression, None))
            })
            .collect(),
        "arrow" => tables().iter().flat_map(arrow_files).collect(),
        "token_table" => {
            let losses = arrow::array::Float32Array::from(vec![0.5, 1.0]);
            let numbers = [
                (
                    "doc_id",
                    Arc::new(StringArray::from(vec!["a", "b"])) as ArrayRef,
                ),
                ("loss", Arc::new(losses.clone())),
                ("reference_loss", Arc::new(losses)),
            ];
            let table = RecordBatch::try_from_iter(numbers).expect("a table");
            let record = r#"{"doc_id":"a","token_index":3,"loss":[1,2.5],"reference_loss":[0,1]}"#;
            vec![
                text(&format!(
                    "{{\"{FINGERPRINT_KEY}\":\"f\"}}\n{record}\n{record}\n"
                )),
                parquet_file(&table, Compression::UNCOMPRESSED, Some("f")),
            ]
        }
        "pipeline" => {
            let pipelines = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/pipelines"));
            let mut all: Vec<_> = fs::read_dir(pipelines)
                .expect("lists")
                .flatten()
                .map(|entry| entry.path())
                .collect();
            all.sort();
            all.retain(|path| path.extension().is_some_and(|ending| ending == "yaml"));
            let mut all: Vec<Vec<u8>> = all
                .iter()
                .map(|path| fs::read(path).expect("read"))
                .collect();
            all.push(fs::read(written().path("p.yaml")).expect("read"));
            all
        }
        "tokenizer" => vec![
            byte_tokenizer().to_string().into_bytes(),
            text(
                r#"{"version":"2.0","added_tokens":[],"normalizer":null,"pre_tokenizer":null,"post_processor":null,"decoder":null,"truncation":null,"padding":null,"model":{"type":"WordLevel","unk_token":"a","vocab":{"a":0,"b":1}}}"#,
            ),
            text(
                r#"{"version":"2.0","added_tokens":[],"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,"truncation":null,"padding":null,"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0.0],["a",-1.0],["cat",-2.5]],"byte_fallback":false}}"#,
            ),
        ],
        "ngram_model" => vec![fs::read(written().path("model")).expect("read")],
        "fasttext_model" => vec![classifier(&["good", "words"]), classifier(&[])],
        "safetensors_model" => language_model(1.0)
            .into_iter()
            .map(|(_, bytes)| bytes)
            .collect(),
        "shard" => {
            let mut all = Vec::new();
            for out in ["out", "packed"] {
                for folder in ["shards", "rejects", "order", "edits", "duplicates"] {
                    let files = fs::read_dir(written().path(out).join(folder));
                    for entry in files.into_iter().flatten().flatten() {
                        all.push(fs::read(entry.path()).expect("read"));
                    }
                }
            }
            assert!(all.len() >= 5, "{}", all.len());
            all
        }
        "manifest" => vec![fs::read(written().path("out/manifest.json")).expect("read")],
        other => panic!("no files to begin {other} with"),
    }
}

fn lines() -> Vec<String> {
    [
        r#"{"id":"a","text":"one é \ud83d\ude00","year":1999,"weight":-0.5e3,"good":true,"meta":{"url":"u"}}"#,
        r#"{"id":1,"text":"two\n\t\"","year":null,"weight":7,"good":false,"more":[[1,{}],null,"\u0000"]}"#,
        "",
        r#"{"text":5}"#,
        r#"{"meta.url":"flat","id":"b","text":" "}"#,
    ]
    .into_iter()
    .map(|line| line.to_string() + "\r\n")
    .chain([format!("{{\"id\":\"long\",\"text\":\"{}\"}}\n", "x".repeat(5_000))])
    .collect()
}

fn tables() -> Vec<RecordBatch> {
    let texts = vec![Some("one"), None, Some("two é"), Some("two é"), Some("")];
    let years = Int64Array::from(vec![Some(1), None, Some(3), Some(4), Some(-5)]);
    let ids: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c", "d", "e"]));
    let text: ArrayRef = Arc::new(StringArray::from(texts.clone()));
    let dictionary: ArrayRef = Arc::new(
        texts
            .into_iter()
            .collect::<arrow::array::DictionaryArray<arrow::datatypes::Int32Type>>(),
    );
    let meta: ArrayRef = Arc::new(arrow::array::StructArray::from(vec![(
        Arc::new(arrow::datatypes::Field::new(
            "url",
            arrow::datatypes::DataType::Utf8,
            true,
        )),
        text.clone(),
    )]));
    [text, dictionary]
        .into_iter()
        .map(|text| {
            let columns = [
                ("id", ids.clone()),
                ("text", text),
                ("meta", meta.clone()),
                ("year", Arc::new(years.clone()) as ArrayRef),
            ];
            RecordBatch::try_from_iter(columns).expect("a table")
        })
        .collect()
}

fn parquet_file(
    table: &RecordBatch,
    compression: Compression,
    fingerprint: Option<&str>,
) -> Vec<u8> {
    let pairs =
        fingerprint.map(|text| vec![KeyValue::new(FINGERPRINT_KEY.to_string(), text.to_string())]);
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_key_value_metadata(pairs)
        .build();
    let mut bytes = Vec::new();
    let mut writer =
        ArrowWriter::try_new(&mut bytes, table.schema(), Some(properties)).expect("a schema");
    writer.write(table).expect("written");
    writer.close().expect("written");
    bytes
}

fn arrow_files(table: &RecordBatch) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for codec in [
        None,
        Some(arrow::ipc::CompressionType::ZSTD),
        Some(arrow::ipc::CompressionType::LZ4_FRAME),
    ] {
        let options = IpcWriteOptions::default()
            .try_with_compression(codec)
            .expect("options");
        let mut bytes = Vec::new();
        let mut writer =
            FileWriter::try_new_with_options(&mut bytes, &table.schema(), options.clone())
                .expect("a schema");
        writer.write(table).expect("written");
        writer.finish().expect("written");
        drop(writer);
        all.push(bytes);
        let mut bytes = Vec::new();
        let mut writer = StreamWriter::try_new_with_options(&mut bytes, &table.schema(), options)
            .expect("a schema");
        writer.write(table).expect("written");
        writer.finish().expect("written");
        drop(writer);
        all.push(bytes);
    }
    all
}

macro_rules! tests {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                drive(stringify!($name));
            }
        )*

        #[test]
        fn every_target_is_driven() {
            let names: Vec<&str> = targets::TARGETS.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
            let manifest = include_str!("../fuzz/Cargo.toml");
            for name in names {
                assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
            }
        }
    };
}

tests! {
    jsonl compressed text parquet arrow token_table pipeline tokenizer ngram_model fasttext_model
    safetensors_model shard manifest
}
