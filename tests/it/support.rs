//! What every test here needs: a folder with a pipeline and its inputs, the program run in it, and
//! what it left behind.
//!
//! ```ignore
//! let folder = Folder::new();
//! folder.documents("in.jsonl", &["cat", "dog", "cat"]);
//! folder.pipeline("stages:\n  - exact_dedupe: {}\n");
//! let out = folder.run_and_verify();
//! assert_eq!(out.kept_texts(), ["cat", "dog"]);
//! ```

use goodput::audit::Audit;
use goodput::shard::{Manifest, ReadRejects, ReadShard};
use goodput::source::FINGERPRINT_KEY;
use goodput::tokenizer::{Tokenizer, TokenizerSource};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Row as ParquetRow, RowAccessor};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What tests need not say about a pipeline.
const DEFAULTS: &[(&str, &str)] = &[
    ("version:", "version: 1\n"),
    ("name:", "name: test\n"),
    ("seed:", "seed: 17\n"),
    ("inputs:", "inputs:\n  - { path: in.jsonl, source: web }\n"),
    (
        "tokenizer:",
        "tokenizer: { file: tokenizer.json, end_token: \"<|end|>\" }\n",
    ),
    ("stages:", "stages: []\n"),
    ("order:", "order: { strategy: sorted, by: length_tokens }\n"),
    ("output:", "output: { path: out }\n"),
];

/// Ids of [`byte_tokenizer`]'s special tokens.
pub const END: u32 = 256;
/// See [`END`].
pub const BEGIN: u32 = 257;

/// A tokenizer of single bytes: the id of a byte is its value, 256 is `<|end|>`, 257 is
/// `<|begin|>`. A text has as many tokens as bytes, and ids are text again without a decoder.
pub fn byte_tokenizer() -> Value {
    byte_tokenizer_with(&[])
}

/// The same with merges, whose ids go on from 256; the special tokens come after them.
pub fn byte_tokenizer_with(merges: &[(&str, &str)]) -> Value {
    let mut vocab = serde_json::Map::new();
    let mut beyond = 256;
    for byte in 0..=255u32 {
        let own = matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
        let code = if own { byte } else { beyond };
        beyond += u32::from(!own);
        vocab.insert(
            char::from_u32(code)
                .expect("far below the surrogates")
                .to_string(),
            json!(byte),
        );
    }
    for (at, (left, right)) in merges.iter().enumerate() {
        vocab.insert(format!("{left}{right}"), json!(256 + at));
    }
    let more = merges.len() as u32;
    let special = |id: u32, content: &str| {
        json!({ "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true })
    };
    json!({
        // The newer format loads in milliseconds: nothing judges it.
        "version": "2.0", "truncation": null, "padding": null,
        "added_tokens": [special(END + more, "<|end|>"), special(BEGIN + more, "<|begin|>")],
        "normalizer": null,
        "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true },
        "post_processor": null,
        "decoder": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true },
        "model": { "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                   "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": merges }
    })
}

/// The text of ids of [`byte_tokenizer`].
pub fn text_of(ids: &[u32]) -> String {
    String::from_utf8(
        ids.iter()
            .map(|&id| u8::try_from(id).expect("no special token"))
            .collect(),
    )
    .expect("UTF-8")
}

/// A line of JSON with this text.
pub fn line(text: &str) -> String {
    json!({ "text": text }).to_string() + "\n"
}

/// A line of a file of losses: of each of a document's tokens a current and a reference loss, in
/// steps that repeat after 7 and 5 tokens.
pub fn losses_line(id: &str, tokens: usize) -> String {
    let losses = |cycle: usize| (0..tokens).map(|at| at % cycle).collect::<Vec<_>>();
    json!({ "doc_id": id, "loss": losses(7), "reference_loss": losses(5) }).to_string() + "\n"
}

/// A fastText classifier with the labels `__label__good` and `__label__bad`, of one dimension: a good
/// word counts 4, the end of the line 0. So the probability of `__label__good` is the sigmoid of 4
/// times the share of good words among the known ones, the end of the line included.
pub fn classifier(good_words: &[&str]) -> Vec<u8> {
    let ints = |values: &[i32]| {
        values
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let longs = |values: &[i64]| {
        values
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let floats = |values: &[f32]| {
        values
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let words = good_words.len() as i32 + 1;
    let mut model = ints(&[793_712_314, 12, 1, 5, 1, 1, 5, 1, 3, 3, 0, 0, 0, 100]);
    model.extend(1e-4f64.to_le_bytes());
    model.extend(ints(&[words + 2, words, 2]));
    model.extend(longs(&[100, -1]));
    let entries = ["</s>"].iter().chain(good_words).map(|word| (*word, 0));
    for (word, kind) in entries.chain([("__label__good", 1), ("__label__bad", 1)]) {
        model.extend(word.as_bytes());
        model.push(0);
        model.extend(longs(&[1]));
        model.push(kind);
    }
    model.push(0);
    model.extend(longs(&[i64::from(words), 1]));
    model.extend(floats(&[0.0]));
    model.extend(floats(&vec![4.0; good_words.len()]));
    model.push(0);
    model.extend(longs(&[2, 1]));
    model.extend(floats(&[0.5, -0.5]));
    model
}

/// The files of a causal language model for [`byte_tokenizer`]: GPT-2 with one layer of 8 numbers and a window of 32
/// tokens. All that a token sees of others has weight 0: after every token, one whose id is even is likelier than one
/// whose id is odd by `tilt` nats.
pub fn language_model(tilt: f32) -> [(&'static str, Vec<u8>); 2] {
    let ids = BEGIN.max(END) as usize + 1;
    let config = json!({ "model_type": "gpt2", "vocab_size": ids, "n_positions": 32, "n_embd": 8, "n_layer": 1, "n_head": 2 });
    let mut tensors = vec![
        ("wte.weight".to_string(), vec![ids, 8]),
        ("wpe.weight".to_string(), vec![32, 8]),
        ("ln_f.weight".to_string(), vec![8]),
        ("ln_f.bias".to_string(), vec![8]),
    ];
    let layer: [(&str, &[usize]); 12] = [
        ("ln_1.weight", &[8]),
        ("ln_1.bias", &[8]),
        ("attn.c_attn.weight", &[8, 24]),
        ("attn.c_attn.bias", &[24]),
        ("attn.c_proj.weight", &[8, 8]),
        ("attn.c_proj.bias", &[8]),
        ("ln_2.weight", &[8]),
        ("ln_2.bias", &[8]),
        ("mlp.c_fc.weight", &[8, 32]),
        ("mlp.c_fc.bias", &[32]),
        ("mlp.c_proj.weight", &[32, 8]),
        ("mlp.c_proj.bias", &[8]),
    ];
    tensors.extend(layer.map(|(name, shape)| (format!("h.0.{name}"), shape.to_vec())));
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, shape) in tensors {
        let begin = data.len();
        for at in 0..shape.iter().product::<usize>() {
            // The last normalisation gives 1 in the first place; the embedding there is the tilt.
            let value: f32 = match name.as_str() {
                "ln_f.bias" if at == 0 => 1.0,
                "wte.weight" if at % 16 == 0 => tilt,
                _ => 0.0,
            };
            data.extend(value.to_le_bytes());
        }
        header.insert(
            name,
            json!({ "dtype": "F32", "shape": shape, "data_offsets": [begin, data.len()] }),
        );
    }
    let header = serde_json::Value::from(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.extend(data);
    [
        ("config.json", config.to_string().into_bytes()),
        ("model.safetensors", file),
    ]
}

/// A folder of one test: inputs, `p.yaml`, `tokenizer.json` ([`byte_tokenizer`]), outputs.
pub struct Folder {
    root: tempfile::TempDir,
}

impl Folder {
    /// A folder with the tokenizer in it.
    pub fn new() -> Folder {
        let folder = Folder {
            root: tempfile::tempdir().expect("a temporary folder"),
        };
        folder.write("tokenizer.json", byte_tokenizer().to_string());
        folder
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Writes a file, with its folders.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("below the folder")).expect("folders");
        fs::write(path, content).expect("written");
    }

    /// Writes a JSONL file with one document per text.
    pub fn documents(&self, name: &str, texts: &[impl AsRef<str>]) {
        self.write(
            name,
            texts
                .iter()
                .map(|text| line(text.as_ref()))
                .collect::<String>(),
        );
    }

    /// The first record of a file of losses of the folder's tokenizer.
    pub fn losses_header(&self) -> String {
        let source = TokenizerSource::File(self.path("tokenizer.json"));
        let tokenizer = Tokenizer::load(&source, None).expect("a tokenizer");
        json!({ FINGERPRINT_KEY: tokenizer.fingerprint() }).to_string() + "\n"
    }

    /// Writes `p.yaml`. Sections that are not given are those of [`DEFAULTS`]: `in.jsonl` of source
    /// `web`, the byte tokenizer with an end token, no stages, shortest first, unpacked, into `out`.
    pub fn pipeline(&self, sections: &str) {
        self.pipeline_at("p.yaml", sections);
    }

    /// The same under another name.
    pub fn pipeline_at(&self, name: &str, sections: &str) {
        let mut text = String::new();
        for (key, default) in DEFAULTS {
            if !sections.lines().any(|line| line.starts_with(key)) {
                text.push_str(default);
            }
        }
        self.write(name, text + sections);
    }

    /// Runs the program in this folder.
    pub fn goodput(&self, arguments: &[&str]) -> Ran {
        let output = self
            .command(arguments)
            .output()
            .expect("the program starts");
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }

    /// The program with these arguments, not started yet.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_goodput"));
        command
            .args(arguments)
            .current_dir(self.root.path())
            .stdin(Stdio::null());
        command
    }

    /// `goodput run p.yaml` with further arguments, which must end well.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        let ran = self.goodput(&[&["run", "p.yaml", "--progress", "off"], arguments].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran
    }

    /// Runs `p.yaml` and proves its output folder, `out`, against its inputs.
    pub fn run_and_verify(&self) -> Out {
        self.run(&[]);
        let out = self.out("out");
        self.verify("out");
        out
    }

    /// Proves a folder against its inputs; whatever cannot be told must be no failure.
    pub fn verify(&self, name: &str) {
        let ran = self.goodput(&["verify", name, "--inputs"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let audit = self.out(name).audit();
        assert_eq!(audit.identities.len(), 5);
        assert!(
            audit.identities.iter().all(|identity| identity.holds),
            "{:?}",
            audit.identities
        );
    }

    /// A finished output folder.
    pub fn out(&self, name: &str) -> Out {
        Out {
            path: self.path(name),
        }
    }
}

/// How the program ended and what it said.
#[derive(Debug)]
pub struct Ran {
    /// The exit code; `None` where a signal ended it.
    pub code: Option<i32>,
    /// The result.
    pub stdout: String,
    /// The rest.
    pub stderr: String,
}

impl Ran {
    /// Asserts that the request was refused with these words.
    pub fn refuses(&self, words: &[&str]) {
        assert_eq!(self.code, Some(2), "{self:?}");
        self.says(words);
    }

    /// Asserts that the run failed with these words.
    pub fn fails(&self, words: &[&str]) {
        assert_eq!(self.code, Some(1), "{self:?}");
        self.says(words);
    }

    /// Asserts that it ended badly with these words.
    pub fn says_no(&self, words: &[&str]) {
        assert_ne!(self.code, Some(0), "{self:?}");
        self.says(words);
    }

    fn says(&self, words: &[&str]) {
        assert!(
            words.iter().all(|word| self.stderr.contains(word)),
            "{words:?} in {}",
            self.stderr
        );
        assert_eq!(self.stdout, "");
    }
}

/// A row of a shard.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub position: u64,
    pub input_ids: Vec<u32>,
    pub usefulness: Option<Vec<f32>>,
    pub segments: Vec<Segment>,
    pub special_tokens: u32,
    pub padding: u32,
}

/// A stretch of a document in a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    pub doc_id: String,
    pub source: String,
    /// Packed rows only.
    pub row_start: Option<u32>,
    pub doc_token_start: u32,
    /// Packed rows only.
    pub tokens: Option<u32>,
    pub copy: u32,
    pub score: Option<f32>,
}

/// A rejected document.
#[derive(Clone, Debug, PartialEq)]
pub struct Reject {
    pub doc_id: String,
    pub source: String,
    pub stage: String,
    pub reason: String,
    pub value: f64,
    pub kept_id: Option<String>,
    pub tokens: u32,
    pub input_ids: Option<Vec<u32>>,
}

/// The evidence of a dropped duplicate.
#[derive(Clone, Debug, PartialEq)]
pub struct Duplicate {
    pub dropped_id: String,
    pub kept_id: String,
    pub similarity: f32,
    pub rule: String,
    pub tokens: u32,
    /// Where the kept document is none of the run.
    pub kept_release: Option<String>,
}

/// The evidence of a stretch that stands in an item of an evaluation set.
#[derive(Clone, Debug, PartialEq)]
pub struct Contaminated {
    pub doc_id: String,
    pub source: String,
    pub stage: String,
    pub byte_start: u64,
    pub byte_end: u64,
    pub set: String,
    pub item_id: String,
    pub items: u32,
    pub overlap: f64,
    pub keys_held: u32,
    pub keys: u32,
}

/// An output folder.
pub struct Out {
    pub path: PathBuf,
}

impl Out {
    /// The ledger.
    pub fn audit(&self) -> Audit {
        serde_json::from_value(self.json("audit.json")).expect("a ledger")
    }

    /// The manifest, which must prove itself.
    pub fn manifest(&self) -> Manifest {
        Manifest::parse(&self.text("manifest.json")).expect("a manifest")
    }

    /// A JSON file as it is.
    pub fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.text(name)).expect("JSON")
    }

    /// A text file.
    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path.join(name)).expect("a text file")
    }

    /// Every file below the folder, but those that may differ between equal runs.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        for name in self.names() {
            if name != "run.json" && name != "run.log" {
                files.insert(
                    name.clone(),
                    fs::read(self.path.join(&name)).expect("a file"),
                );
            }
        }
        files
    }

    /// Names of every file below the folder, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for entry in walkdir::WalkDir::new(&self.path).sort_by_file_name() {
            let entry = entry.expect("readable");
            if entry.file_type().is_file() {
                let name = entry.path().strip_prefix(&self.path).expect("below it");
                names.push(name.to_str().expect("UTF-8").to_string());
            }
        }
        names
    }

    fn parts(&self, folder: &str) -> Vec<PathBuf> {
        let below = |name: &String| name.starts_with(&format!("{folder}/"));
        self.names()
            .iter()
            .filter(|name| below(name))
            .map(|name| self.path.join(name))
            .collect()
    }

    /// The shards, in order.
    pub fn shards(&self) -> Vec<PathBuf> {
        self.parts("shards")
    }

    /// Every row of every shard, in order.
    pub fn rows(&self) -> Vec<Row> {
        self.shards()
            .iter()
            .flat_map(|path| rows_of(path))
            .collect()
    }

    /// The text of every kept document by id, put together from its segments ([`byte_tokenizer`]).
    pub fn texts(&self) -> BTreeMap<String, String> {
        let begins = usize::from(self.manifest().tokenizer.begin_token.is_some());
        let mut ids: BTreeMap<(String, u32), BTreeMap<u32, Vec<u32>>> = BTreeMap::new();
        for row in self.rows() {
            for segment in &row.segments {
                let start = match segment.row_start {
                    Some(start) => start as usize,
                    None if segment.doc_token_start == 0 => begins,
                    None => 0,
                };
                let tokens = segment
                    .tokens
                    .unwrap_or(row.input_ids.len() as u32 - row.special_tokens)
                    as usize;
                let part = row.input_ids[start..start + tokens].to_vec();
                let seen = ids
                    .entry((segment.doc_id.clone(), segment.copy))
                    .or_default()
                    .insert(segment.doc_token_start, part);
                assert_eq!(seen, None, "a part of {} stands twice", segment.doc_id);
            }
        }
        let whole = |parts: BTreeMap<u32, Vec<u32>>| {
            let mut ids = Vec::new();
            for (start, part) in parts {
                assert_eq!(start as usize, ids.len(), "parts follow each other");
                ids.extend(part);
            }
            text_of(&ids)
        };
        let mut texts = BTreeMap::new();
        for ((id, copy), parts) in ids {
            let text = whole(parts);
            match copy {
                0 => assert_eq!(texts.insert(id, text), None),
                _ => assert_eq!(texts.get(&id), Some(&text), "copy {copy} of {id}"),
            }
        }
        texts
    }

    /// The texts of the kept documents, sorted.
    pub fn kept_texts(&self) -> Vec<String> {
        let mut texts: Vec<String> = self.texts().into_values().collect();
        texts.sort();
        texts
    }

    /// A column of all shards, as Parquet's own reader shows it.
    pub fn column(&self, name: &str) -> Vec<String> {
        let mut values = Vec::new();
        for path in self.shards() {
            let reader =
                SerializedFileReader::new(fs::File::open(path).expect("a file")).expect("Parquet");
            for row in reader.get_row_iter(None).expect("rows") {
                let row = row.expect("a row");
                let (_, value) = row
                    .get_column_iter()
                    .find(|(column, _)| *column == name)
                    .expect("the column");
                values.push(value.to_string());
            }
        }
        values
    }

    /// Every rejected document.
    pub fn rejects(&self) -> Vec<Reject> {
        let mut rejects = Vec::new();
        for path in self.parts("rejects") {
            let mut file = ReadRejects::open(&path).expect("rejects");
            file.rows(&mut |row| {
                rejects.push(Reject {
                    doc_id: row.doc_id.to_string(),
                    source: row.source.to_string(),
                    stage: row.stage.to_string(),
                    reason: row.reason.to_string(),
                    value: row.value,
                    kept_id: row.kept_id.map(String::from),
                    tokens: row.tokens,
                    input_ids: row.input_ids,
                });
                true
            })
            .expect("readable");
        }
        rejects
    }

    /// The evidence of every dropped duplicate.
    pub fn duplicates(&self) -> Vec<Duplicate> {
        let names = [
            "dropped_id",
            "kept_id",
            "similarity",
            "rule",
            "tokens",
            "kept_release",
        ];
        self.evidence("duplicates", &names, |row| {
            Ok(Duplicate {
                dropped_id: row.get_string(0)?.clone(),
                kept_id: row.get_string(1)?.clone(),
                similarity: row.get_float(2)?,
                rule: row.get_string(3)?.clone(),
                tokens: row.get_uint(4)?,
                kept_release: row.get_string(5).ok().cloned(),
            })
        })
    }

    /// The evidence of contamination.
    pub fn contamination(&self) -> Vec<Contaminated> {
        let names = [
            "doc_id",
            "source",
            "stage",
            "byte_start",
            "byte_end",
            "set",
            "item_id",
            "items",
            "overlap",
            "keys_held",
            "keys",
        ];
        self.evidence("contamination", &names, |row| {
            Ok(Contaminated {
                doc_id: row.get_string(0)?.clone(),
                source: row.get_string(1)?.clone(),
                stage: row.get_string(2)?.clone(),
                byte_start: row.get_ulong(3)?,
                byte_end: row.get_ulong(4)?,
                set: row.get_string(5)?.clone(),
                item_id: row.get_string(6)?.clone(),
                items: row.get_uint(7)?,
                overlap: row.get_double(8)?,
                keys_held: row.get_uint(9)?,
                keys: row.get_uint(10)?,
            })
        })
    }

    /// Every row of a folder of evidence, whose columns have these names.
    fn evidence<T>(
        &self,
        folder: &str,
        names: &[&str],
        row_of: impl Fn(&ParquetRow) -> parquet::errors::Result<T>,
    ) -> Vec<T> {
        let mut found = Vec::new();
        for path in self.parts(folder) {
            let file = fs::File::open(path).expect("a file");
            let reader = SerializedFileReader::new(file).expect("Parquet");
            for row in reader.get_row_iter(None).expect("rows") {
                let row = row.expect("a row");
                let columns: Vec<&String> = row.get_column_iter().map(|(name, _)| name).collect();
                assert_eq!(columns, names);
                found.push(row_of(&row).expect("a value of the column's type"));
            }
        }
        found
    }

    /// Every line of the quarantine.
    pub fn quarantine(&self) -> Vec<Value> {
        let text = self.text("quarantine/part-00000.jsonl");
        text.lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    /// (reason, byte offset) of every line of the quarantine, sorted by place.
    pub fn quarantined(&self) -> Vec<(String, Option<u64>)> {
        let mut found: Vec<_> = self
            .quarantine()
            .iter()
            .map(|line| {
                (
                    line["reason"].as_str().expect("a reason").to_string(),
                    line["byte_offset"].as_u64(),
                )
            })
            .collect();
        found.sort_by_key(|(_, place)| *place);
        found
    }
}

/// Anonymous memory of a process; `None` once it has ended.
pub fn anonymous_bytes(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("RssAnon:"))?;
    let kib = line.split_whitespace().nth(1);
    let kib: u64 = kib
        .and_then(|number| number.parse().ok())
        .expect("kilobytes");
    Some(kib << 10)
}

/// Every row of one shard.
pub fn rows_of(shard: &Path) -> Vec<Row> {
    let mut rows = Vec::new();
    ReadShard::open(shard)
        .expect("a shard")
        .rows(&mut |row| {
            rows.push(Row {
                position: row.position,
                input_ids: row.input_ids.to_vec(),
                usefulness: row.usefulness,
                segments: row
                    .segments
                    .iter()
                    .map(|segment| Segment {
                        doc_id: segment.doc_id.to_string(),
                        source: segment.source.to_string(),
                        row_start: segment.row_start,
                        doc_token_start: segment.doc_token_start,
                        tokens: segment.tokens,
                        copy: segment.copy,
                        score: segment.score,
                    })
                    .collect(),
                special_tokens: row.special_tokens,
                padding: row.padding,
            });
            true
        })
        .expect("readable");
    rows
}

/// Numbers that look random and are the same every time (splitmix64).
pub struct Numbers(pub u64);

impl Numbers {
    /// The next number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    /// Words of a vocabulary of 5,000, with a full stop after every ninth.
    pub fn words(&mut self, count: usize) -> String {
        let word = |n: usize| format!("{}{}", ["ka", "lo", "mi", "ten", "sur"][n % 5], n / 5);
        let mut text = String::new();
        for at in 0..count {
            text.push_str(&word(self.below(5_000)));
            text.push_str(if at % 9 == 8 { ". " } else { " " });
        }
        text.trim_end().to_string()
    }
}
