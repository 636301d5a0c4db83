//! What is fuzzed: one function for each reader, from the bytes of a file to all that the program
//! makes of them.
//!
//! A target fails by panicking, by taking memory without bound, or by not ending. Where a reader has
//! a property that must hold for any bytes, such as that each record is counted once, the target
//! asserts it. The same functions are driven by libFuzzer (`tests/fuzz/README.md`) and, with a seeded
//! mutator, by `cargo test` (`tests/it/fuzz.rs`).

use goodput::algo::causal_lm::Shape;
use goodput::algo::{fasttext, safetensors};
use goodput::plan::{self, Overrides};
use goodput::record::{FieldSpec, FieldType};
use goodput::score::ngram_models_of_file;
use goodput::shard::{
    Calibration, Manifest, ReadEdits, ReadLosses, ReadOrder, ReadRejects, ReadShard,
};
use goodput::source::{Entry, FoundFile, InputSpec, Reader, SourceError, TokenTable, slices};
use goodput::tokenizer::{Tokenizer, TokenizerSource};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_128;

/// A target: its name and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[
    ("jsonl", jsonl),
    ("compressed", compressed),
    ("text", text),
    ("parquet", parquet),
    ("arrow", arrow),
    ("token_table", token_table),
    ("pipeline", pipeline),
    ("tokenizer", tokenizer),
    ("ngram_model", ngram_model),
    ("fasttext_model", fasttext_model),
    ("safetensors_model", safetensors_model),
    ("shard", shard),
    ("manifest", manifest),
];

/// Longest record: small, so that the way of records that are too long is taken too.
const MAX_DOCUMENT_BYTES: u64 = 4096;

/// Writes the bytes to a file of this name, in a folder of this thread alone.
fn with_file(name: &str, data: &[u8], run: impl FnOnce(&Path)) {
    thread_local! {
        static FOLDER: tempfile::TempDir = tempfile::Builder::new()
            .prefix("goodput-fuzz-")
            .tempdir()
            .expect("a temporary folder");
    }
    let path: PathBuf = FOLDER.with(|folder| folder.path().join(name));
    std::fs::write(&path, data).expect("written");
    run(&path);
}

/// A spec that asks for every kind of value.
fn spec() -> InputSpec {
    let field = |name: &str, kind| {
        Some(FieldSpec {
            name: name.to_string(),
            path: name.to_string(),
            kind,
        })
    };
    InputSpec {
        id: Some("id".to_string()),
        fields: vec![
            field("meta.url", FieldType::String),
            field("year", FieldType::Int),
            field("weight", FieldType::Float),
            field("good", FieldType::Bool),
        ],
        max_document_bytes: MAX_DOCUMENT_BYTES,
        ..InputSpec::with_text("text")
    }
}

/// Where each record begins and what it was: the reason of a bad one.
type Read = Vec<(u64, Option<&'static str>)>;

/// Reads a file in slices of about so many bytes. Every record must be counted, and only once.
fn read(path: &Path, spec: &InputSpec, target_bytes: u64) -> Result<Read, SourceError> {
    let file = FoundFile::at(path)?;
    let mut all = Vec::new();
    for slice in slices(&file, spec, target_bytes)? {
        let mut reader = Reader::open(&file, &slice, spec)?;
        let before = all.len();
        while let Some(chunk) = reader.next_chunk()? {
            chunk.decode(spec, &mut |entry| {
                if let Entry::Document(document) = &entry {
                    assert!(document.text.len() as u64 <= spec.max_document_bytes);
                    assert!(!document.text.trim().is_empty());
                }
                let reason = match &entry {
                    Entry::Document(_) => None,
                    Entry::Bad(bad) => Some(bad.reason),
                };
                all.push((entry.place(), reason));
            });
        }
        assert_eq!(reader.summary().records, (all.len() - before) as u64);
    }
    assert!(all.is_sorted_by(|a, b| a.0 < b.0), "{all:?}");
    Ok(all)
}

/// Lines of JSON; any cut must give the same records.
pub fn jsonl(data: &[u8]) {
    // What begins like a compressed stream is one.
    if data.starts_with(&[0x1F, 0x8B]) || data.starts_with(&[0x28, 0xB5, 0x2F, 0xFD]) {
        return;
    }
    with_file("in.jsonl", data, |path| {
        let whole = read(path, &spec(), u64::MAX).expect("lines are read to their end");
        for target_bytes in [1, 7, 64] {
            if data.len() as u64 / target_bytes <= 50 {
                let cut = read(path, &spec(), target_bytes).expect("lines are read to their end");
                assert_eq!(whole, cut, "in slices of {target_bytes} bytes");
            }
        }
    });
}

/// Lines of JSON in gzip or zstd, by the first bytes.
pub fn compressed(data: &[u8]) {
    for name in ["in.jsonl.gz", "in.jsonl.zst"] {
        with_file(name, data, |path| {
            // A small stream may be gigabytes of text, and that takes time, not memory.
            let spec = spec();
            let file = FoundFile::at(path).expect("just written");
            let slice = slices(&file, &spec, u64::MAX)
                .expect("a file of lines")
                .remove(0);
            let mut reader = Reader::open(&file, &slice, &spec).expect("a file of lines");
            for _ in 0..8 {
                let chunk = reader.next_chunk().expect("damage is no error");
                let Some(chunk) = chunk else { break };
                chunk.decode(&spec, &mut |_| {});
            }
        });
    }
}

/// A text file.
pub fn text(data: &[u8]) {
    if data.starts_with(&[0x1F, 0x8B]) || data.starts_with(&[0x28, 0xB5, 0x2F, 0xFD]) {
        return;
    }
    let spec = InputSpec {
        max_document_bytes: MAX_DOCUMENT_BYTES,
        ..InputSpec::with_text("text")
    };
    with_file("in.txt", data, |path| {
        let found = read(path, &spec, u64::MAX).expect("a text file is one record");
        assert_eq!(found.len(), 1);
    });
}

fn table(name: &str, data: &[u8]) {
    with_file(name, data, |path| {
        for target_bytes in [u64::MAX, 1] {
            let _ = read(path, &spec(), target_bytes);
        }
    });
}

/// A Parquet file.
pub fn parquet(data: &[u8]) {
    table("in.parquet", data);
}

/// An Arrow file or stream.
pub fn arrow(data: &[u8]) {
    table("in.arrow", data);
}

/// A table of numbers per token: Parquet where the bytes end like it, else lines of JSON.
pub fn token_table(data: &[u8]) {
    let name = if data.ends_with(b"PAR1") {
        "in.parquet"
    } else {
        "in.jsonl"
    };
    with_file(name, data, |path| {
        if let Ok(table) = TokenTable::open(path, &["loss", "reference_loss"]) {
            let _ = table.read::<SourceError>(&mut |row| {
                assert!(row.numbers.len() == 2);
                Ok(())
            });
        }
    });
}

/// A pipeline file. One that is accepted, filled in, must be accepted again with the same hash.
pub fn pipeline(data: &[u8]) {
    with_file("p.yaml", data, |path| {
        let Ok(plan) = plan::load(path, &Overrides::default()) else {
            return;
        };
        std::fs::write(path, &plan.filled).expect("written");
        let again = plan::load(path, &Overrides::default())
            .unwrap_or_else(|problems| panic!("{problems}\n{}", plan.filled));
        assert_eq!(plan.hash, again.hash, "{}", plan.filled);
    });
}

/// A tokenizer.json. Files of the older format are judged against a second engine on each load,
/// which takes seconds, so they are made files of the newer one.
pub fn tokenizer(data: &[u8]) {
    let text = String::from_utf8_lossy(data).replace("\"1.0\"", "\"2.0\"");
    with_file("tokenizer.json", text.as_bytes(), |path| {
        let Ok(tokenizer) = Tokenizer::load(&TokenizerSource::File(path.to_path_buf()), None)
        else {
            return;
        };
        let mut ids = Vec::new();
        for text in ["a", "the cat sat\n on the mat", "\u{0}\u{10ffff}é<|end|>"] {
            if tokenizer.encode_into(text, &mut ids).is_ok() {
                assert!(
                    ids.iter().all(|&id| id <= tokenizer.highest_id()),
                    "{ids:?}"
                );
                tokenizer.decode(&ids);
                let _ = tokenizer.byte_ranges(text, &ids);
            }
        }
    });
}

/// A file of n-gram models. The checksum is made to fit, so that what lies behind it is reached.
pub fn ngram_model(data: &[u8]) {
    let mut file = data.to_vec();
    if file.len() >= 64 {
        let bytes = file.len() as u64;
        file[32..40].copy_from_slice(&bytes.to_le_bytes());
        let sum = xxh3_128(&file[64..]).to_le_bytes();
        file[40..56].copy_from_slice(&sum);
    }
    with_file("model", &file, |path| {
        let Ok(models) = ngram_models_of_file(path) else {
            return;
        };
        let last = models.packing().vocabulary_size - 1;
        let tokens = [0, 1.min(last), last, 0, 0, 1.min(last), last];
        let mut out = [Vec::new(), Vec::new()];
        models.surprisals([0, models.models() - 1], &tokens, &mut out);
        models.contexts([0, models.models() - 1], &tokens);
    });
}

/// A fastText model, .bin or .ftz.
pub fn fasttext_model(data: &[u8]) {
    if let Ok(model) = fasttext::Model::parse(data.to_vec()) {
        let texts = [
            "good words here",
            "",
            "\u{0}é \u{10ffff}\n</s> __label__good",
        ];
        for text in texts {
            model.best_label(text);
            for label in 0..model.labels().count().min(4) {
                model.probability(text, label);
            }
        }
    }
}

/// A safetensors file; the header's JSON alone is also read as a model's configuration.
pub fn safetensors_model(data: &[u8]) {
    if let Ok(tensors) = safetensors::parse(data) {
        for place in tensors.values() {
            assert!(data.get(place.bytes.clone()).is_some());
        }
    }
    let _ = Shape::parse(data);
    if let Some(header) = data.get(8..) {
        let _ = Shape::parse(header);
    }
}

/// A Parquet file of the output folder, read as each kind that there is.
pub fn shard(data: &[u8]) {
    with_file("shard.parquet", data, |path| {
        if let Ok(mut file) = ReadShard::open(path) {
            let _ = file.rows(&mut |row| {
                for (_, range) in row.stretches() {
                    assert!(row.input_ids.get(range).is_some());
                }
                true
            });
        }
        if let Ok(mut file) = ReadRejects::open(path) {
            let _ = file.rows(&mut |_| true);
        }
        if let Ok(mut file) = ReadEdits::open(path) {
            let _ = file.rows(&mut |_| true);
        }
        if let Ok(mut file) = ReadOrder::open(path) {
            let _ = file.rows(&["length_tokens".to_string()], &mut |_, _| true);
        }
        if let Ok(mut file) = ReadLosses::open(path) {
            let _ = file.rows(&mut |_| true);
        }
    });
}

/// A manifest or a calibration.
pub fn manifest(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(manifest) = Manifest::parse(&text) {
        assert_eq!(manifest.sealed().1, text);
    }
    let _ = Calibration::parse(&text);
}
