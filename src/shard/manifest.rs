//! `manifest.json`: what the folder holds and how it was made. Written last.

use super::checksum::hex;
use crate::record::Counts;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One input file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputEntry {
    /// Name in the pipeline file.
    pub source: String,
    /// Path below the glob's fixed part.
    pub name: String,
    /// Bytes of the file.
    pub bytes: u64,
    /// xxHash3-128 of the file.
    pub checksum: String,
    /// Records in it, blank lines included.
    pub records: u64,
}

/// A file besides inputs and tokenizer that shaped the result: a reference, losses, a model, a calibration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuxiliaryEntry {
    /// The stage that names it.
    pub stage: String,
    /// The option that names it.
    pub option: String,
    /// The path as written in the pipeline file; of a file that globs found, its path below their fixed part.
    pub name: String,
    /// Bytes of the file.
    pub bytes: u64,
    /// xxHash3-128 of the file.
    pub checksum: String,
    /// Records in it, blank lines included; absent where it is not read as documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<u64>,
    /// Records, blank lines not counted, that could not be read as documents and are not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantined: Option<u64>,
}

/// One output file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Path below the output folder.
    pub path: String,
    /// Bytes of the file.
    pub bytes: u64,
    /// Rows or lines; 0 for a file that has none.
    pub rows: u64,
    /// Token places (shards) or tokens of the documents (rejects, duplicates); 0 for other files.
    pub tokens: u64,
    /// xxHash3-128 of the file.
    pub checksum: String,
}

/// The tokenizer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenizerManifest {
    /// File name, or name of the embedded vocabulary.
    pub name: String,
    /// Hash of its content.
    pub fingerprint: String,
    /// Library and version that made the ids.
    pub engine: String,
    /// Every id is below it.
    pub vocabulary_size: u32,
    /// Highest id of the vocabulary.
    pub highest_id: u32,
    /// Text and id of the begin token.
    pub begin_token: Option<(String, u32)>,
    /// Text and id of the end token.
    pub end_token: Option<(String, u32)>,
    /// The id that stands on padding places: the end token's, else 0.
    pub padding_id: u32,
}

/// How rows are ordered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderEntry {
    /// Name of the strategy.
    pub strategy: String,
    /// Its options.
    pub parameters: Value,
    /// The keys that documents are sorted by; the order file has a column `by_KEY` for each.
    pub sort_keys: Vec<String>,
    /// Kendall's tau-b of the sort key against the place in the order, by key; empty for `shuffle`.
    pub kendall_tau_b: Vec<(String, f64)>,
    /// What the learning rate should do along this order.
    pub lr_hint: String,
}

/// How rows are packed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PackEntry {
    /// Name of the method.
    pub method: String,
    /// Its options.
    pub parameters: Value,
    /// Most token places of a shard, and so of a row.
    pub shard_tokens: u64,
}

/// What is held out of training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValidationEntry {
    /// The share that was asked for.
    pub share: f64,
    /// What a group that stays together is: the near dedupes whose similarities make them, or `same tokens` where the
    /// chain has none before the draw.
    pub groups: String,
    /// Documents, UTF-8 bytes of their texts and tokens.
    pub held_out: Counts,
    /// Rows of `validation/`.
    pub rows: u64,
    /// Token places of these rows.
    pub positions: u64,
}

/// Who computed the usefulness.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EstimatorEntry {
    /// Name of the estimator.
    pub name: String,
    /// Version of the method.
    pub version: u32,
    /// What was fitted.
    pub fitted: Value,
}

/// Sums over the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Documents, bytes and tokens read.
    pub read: Counts,
    /// Documents, bytes and tokens kept.
    pub kept: Counts,
    /// Rows of all shards.
    pub rows: u64,
    /// Token places of all rows.
    pub positions: u64,
}

/// The manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this format.
    pub version: u32,
    /// Program and version.
    pub tool: String,
    /// Name of the pipeline.
    pub pipeline: String,
    /// Hash of the pipeline.
    pub pipeline_hash: String,
    /// Seed of every random choice.
    pub seed: u64,
    /// The share given to `--sample`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_share: Option<f64>,
    /// The tokenizer.
    pub tokenizer: TokenizerManifest,
    /// Input files, in reading order.
    pub inputs: Vec<InputEntry>,
    /// Other files that shaped the result, by stage, option and name; absent where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub auxiliary_files: Vec<AuxiliaryEntry>,
    /// Every output file but this one, `run.json` and `run.log`.
    pub files: Vec<FileEntry>,
    /// Sums.
    pub totals: Totals,
    /// How rows are ordered.
    pub order: OrderEntry,
    /// How rows are packed.
    pub pack: PackEntry,
    /// What is held out of training; absent where nothing is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<ValidationEntry>,
    /// Who computed the usefulness; absent without a `score` stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimator: Option<EstimatorEntry>,
    /// The command that makes the control arm.
    pub control_command: String,
    /// xxHash3-128 of this file with this field empty. It names the dataset.
    pub checksum: String,
}

impl Manifest {
    fn text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a manifest has string keys only");
        text.push('\n');
        text
    }
    fn own_checksum(&self) -> String {
        let bare = Manifest {
            checksum: String::new(),
            ..self.clone()
        };
        hex(crate::algo::hash::content(bare.text().as_bytes()))
    }
    /// The file's text, with its checksum filled in.
    pub fn sealed(mut self) -> (Manifest, String) {
        self.checksum = self.own_checksum();
        let text = self.text();
        (self, text)
    }
    /// Reads a manifest and checks its checksum.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn parse(text: &str) -> Result<Manifest, String> {
        let manifest: Manifest = serde_json::from_str(text)
            .map_err(|e| format!("is not a manifest of this version: {e}"))?;
        // Comparing the text as a whole also refuses edits that mean the same.
        if manifest.own_checksum() != manifest.checksum || manifest.text() != text {
            return Err(
                "does not have the checksum that it carries: it was changed by hand or damaged"
                    .to_string(),
            );
        }
        Ok(manifest)
    }
}

/// The JSON Schema of `manifest.json` (draft 2020-12).
pub fn schema() -> Value {
    let whole = json!({ "type": "integer", "minimum": 0 });
    let text = json!({ "type": "string" });
    let checksum = json!({ "type": "string", "pattern": "^[0-9a-f]{32}$" });
    let counts = json!({
        "type": "object", "required": ["documents", "bytes", "tokens"],
        "properties": { "documents": whole, "bytes": whole, "tokens": whole }
    });
    let token = json!({ "type": ["array", "null"], "prefixItems": [text, whole] });
    let object = |properties: Value, optional: &[&str]| {
        let required: Vec<&String> = properties
            .as_object()
            .expect("written as an object")
            .keys()
            .filter(|key| !optional.contains(&key.as_str()))
            .collect();
        json!({ "type": "object", "additionalProperties": false, "required": required, "properties": properties })
    };
    let mut schema = object(
        json!({
            "version": { "const": 1 },
            "tool": text,
            "pipeline": text,
            "pipeline_hash": checksum,
            "seed": whole,
            "sample_share": { "type": "number" },
            "tokenizer": object(json!({
                "name": text, "fingerprint": text, "engine": text, "vocabulary_size": whole,
                "highest_id": whole, "begin_token": token, "end_token": token, "padding_id": whole
            }), &[]),
            "inputs": { "type": "array", "items": object(json!({
                "source": text, "name": text, "bytes": whole, "checksum": checksum, "records": whole
            }), &[]) },
            "auxiliary_files": { "type": "array", "items": object(json!({
                "stage": text, "option": text, "name": text, "bytes": whole, "checksum": checksum,
                "records": whole, "quarantined": whole
            }), &["records", "quarantined"]) },
            "files": { "type": "array", "items": object(json!({
                "path": text, "bytes": whole, "rows": whole, "tokens": whole, "checksum": checksum
            }), &[]) },
            "totals": object(json!({ "read": counts, "kept": counts, "rows": whole, "positions": whole }), &[]),
            "order": object(json!({
                "strategy": text, "parameters": { "type": "object" },
                "sort_keys": { "type": "array", "items": text },
                "kendall_tau_b": { "type": "array", "items": { "type": "array", "prefixItems": [text, { "type": "number" }] } },
                "lr_hint": text
            }), &[]),
            "pack": object(json!({ "method": text, "parameters": { "type": "object" }, "shard_tokens": whole }), &[]),
            "validation": object(json!({
                "share": { "type": "number" }, "groups": text, "held_out": counts, "rows": whole, "positions": whole
            }), &[]),
            "estimator": object(json!({ "name": text, "version": whole, "fitted": {} }), &[]),
            "control_command": text,
            "checksum": checksum
        }),
        &["sample_share", "auxiliary_files", "validation", "estimator"],
    );
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("goodput manifest.json");
    schema
}
