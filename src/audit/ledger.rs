//! `audit.json`, field by field.

use super::Identity;
use crate::algo::novelty::novelty;
use crate::record::{Class, Counts, Difference};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Counts of one source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadRow {
    /// Name in the pipeline file.
    pub source: String,
    /// Documents, bytes and tokens.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Documents that one stage turned away, failed on or edited, for one reason. Edited ones have the counts
/// before the edit less those after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossRow<C = Counts> {
    /// Name in the pipeline file.
    pub source: String,
    /// The stage's label, e.g. `length#2`.
    pub stage: String,
    /// One of the stage's reasons.
    pub reason: String,
    /// Class of the reason; absent for failures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// Documents, bytes and tokens.
    #[serde(flatten)]
    pub counts: C,
}

/// Records that could not be read, for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuarantineRow {
    /// Name in the pipeline file.
    pub source: String,
    /// Why.
    pub reason: String,
    /// Records.
    pub records: u64,
    /// Bytes of the records as they stood in the file.
    pub bytes: u64,
}

/// Something that a stage left undone, counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NoteRow {
    /// The stage's label.
    pub stage: String,
    /// What.
    pub note: String,
    /// How often.
    pub count: u64,
}

/// An input file that ended too early.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TruncatedFile {
    /// Name of the file, below the glob's fixed part.
    pub file: String,
    /// What was found.
    pub problem: String,
}

/// What stands in the shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Emitted {
    /// Rows of all shards.
    pub rows: u64,
    /// Token places of all rows.
    pub positions: u64,
    /// Tokens of text.
    pub tokens: u64,
    /// Begin and end tokens.
    pub special_tokens: u64,
    /// Padding places.
    pub padding: u64,
    /// Tokens of second and later copies.
    pub repeated_tokens: u64,
}

/// Tokens that were judged not worth their compute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LowValue {
    /// Tokens rejected for reasons of class `low_value`.
    pub rejected_tokens: u64,
    /// Their share of the tokens read; 0 where none were read.
    pub rejected_share_of_read: f64,
    /// The same by `stage/reason`.
    pub by_reason: BTreeMap<String, u64>,
    /// Both by source, in the order of the pipeline file.
    pub by_source: Vec<SourceLowValue>,
    /// Kept tokens of low usefulness; absent without a `score` stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_below: Option<KeptBelow>,
}

/// Tokens of low value of one source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceLowValue {
    /// Name in the pipeline file.
    pub source: String,
    /// Tokens rejected for reasons of class `low_value`.
    pub rejected_tokens: u64,
    /// Kept tokens below the threshold of [`LowValue::kept_below`]; absent without a `score` stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_below_tokens: Option<u64>,
}

/// Kept tokens whose usefulness is below a threshold; copies of a document count once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptBelow {
    /// The threshold, from 0 to 1; a token exactly at it is not below.
    pub threshold: f64,
    /// Tokens below it.
    pub tokens: u64,
    /// Their share of the tokens read; 0 where none were read.
    pub share_of_read: f64,
}

/// Usefulness of the emitted tokens of one source, repeats included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceUsefulness {
    /// Name in the pipeline file.
    pub source: String,
    /// Emitted tokens.
    pub tokens: u64,
    /// Sum of their stored bytes: usefulness times 255, exact.
    pub sum_255: u64,
    /// Emitted tokens by stored byte: 256 counts, the usefulness being index / 255.
    pub histogram: Vec<u64>,
    /// What they are worth.
    #[serde(flatten)]
    pub worth: Worth,
}

/// What tokens are worth beside held-out reference text of their domain. Empty where the estimator has
/// no u_ref.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Worth {
    /// Sum of nu x u / u_ref: how many tokens of reference text are as useful together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference_equivalent_tokens: Option<f64>,
    /// That by position: of the emitted positions, special tokens and padding included, where the whole or a
    /// part of the curriculum is meant; of their tokens alone, where those of a source or a reason are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_goodput: Option<f64>,
}

impl Worth {
    /// Sums bytes of usefulness (255 x u) by what they are measured against: u_ref, and the number of the
    /// copy, 0 for the first. `places` is what the sum is divided by for the goodput; 0 gives none.
    ///
    /// ```
    /// # use goodput::audit::Worth;
    /// // Two tokens of u = 1 where reference text has 0.8, and one of u = 0.2 where it has 0.4: 2.5 + 0.5.
    /// let worth = Worth::of([(0.8, 0, 510), (0.4, 0, 51)].into_iter(), 4);
    /// assert_eq!(worth.reference_equivalent_tokens, Some(3.0));
    /// assert_eq!(worth.data_goodput, Some(0.75));
    /// ```
    pub fn of(sums: impl Iterator<Item = (f64, u32, u64)>, places: u64) -> Worth {
        let one = |(u_ref, copy, sum_255)| novelty(copy) * (sum_255 as f64 / 255.0) / u_ref;
        let sum: f64 = sums.map(one).sum();
        Worth {
            reference_equivalent_tokens: Some(sum),
            data_goodput: (places > 0).then(|| sum / places as f64),
        }
    }
}

/// Usefulness of documents that were rejected after they had been scored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RejectedUsefulness {
    /// Name in the pipeline file.
    pub source: String,
    /// The stage's label.
    pub stage: String,
    /// One of the stage's reasons.
    pub reason: String,
    /// Their tokens.
    pub tokens: u64,
    /// Sum of their bytes of usefulness: usefulness times 255, exact.
    pub sum_255: u64,
    /// What they would have been worth.
    #[serde(flatten)]
    pub worth: Worth,
}

/// Usefulness along the curriculum: one of ten parts with equally many positions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurriculumPart {
    /// Place of its first token, counting every position from 0.
    pub first_position: u64,
    /// Positions, special tokens and padding included.
    pub positions: u64,
    /// Tokens of text among them.
    pub tokens: u64,
    /// Sum of their bytes of usefulness: usefulness times 255, exact.
    pub sum_255: u64,
    /// What they are worth.
    #[serde(flatten)]
    pub worth: Worth,
}

/// Kept documents by their score, rounded to a byte like a usefulness: 256 counts each, the score being
/// index / 255. Scores outside of 0 to 1 count as the nearer bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DocumentHistogram {
    /// Documents.
    pub documents: Vec<u64>,
    /// Their tokens, each document's once.
    pub tokens: Vec<u64>,
}

/// Usefulness of what was emitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usefulness {
    /// Name of the estimator.
    pub estimator: String,
    /// What the numbers are worth.
    pub calibration: String,
    /// Emitted tokens, repeats included, by stored byte: 256 counts, the usefulness being index / 255.
    pub histogram: Vec<u64>,
    /// Kept documents by score.
    pub by_score: DocumentHistogram,
    /// Sum of the usefulness of all emitted tokens.
    pub sum: f64,
    /// Mean usefulness of held-out reference text; absent where the estimator has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub u_ref: Option<f64>,
    /// The same by domain, where the reference is tagged and has enough held-out text of it. Documents of
    /// other domains are measured against `u_ref`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub u_ref_by_domain: BTreeMap<String, f64>,
    /// What all emitted tokens are worth; by all positions, padding included.
    #[serde(flatten)]
    pub worth: Worth,
    /// The same by source.
    pub by_source: Vec<SourceUsefulness>,
    /// What was rejected after it had been scored, in the order of the pipeline file.
    pub rejected: Vec<RejectedUsefulness>,
    /// The emitted tokens along the curriculum, in ten parts.
    pub curriculum: Vec<CurriculumPart>,
}

/// Which tokenizer the counts are of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenizerEntry {
    /// File name, or name of the embedded vocabulary.
    pub name: String,
    /// Hash of its content.
    pub fingerprint: String,
    /// `exact`: every count is the number of ids, none is estimated.
    pub counts: String,
}

/// The ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Audit {
    /// Version of this format.
    pub version: u32,
    /// Name of the pipeline.
    pub pipeline: String,
    /// Hash of the pipeline.
    pub pipeline_hash: String,
    /// Records in the files, blank lines included.
    pub records_in_files: u64,
    /// Records left out by `--sample`.
    pub records_left_out: u64,
    /// The share given to `--sample`; absent in a full run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_share: Option<f64>,
    /// Documents read, by source in the order of the pipeline file.
    pub read: Vec<ReadRow>,
    /// Documents emitted at least once, by source.
    pub kept: Vec<ReadRow>,
    /// Documents turned away: by stage, reason and source, in the order of the pipeline file.
    pub rejected: Vec<LossRow>,
    /// Documents on which a stage failed.
    pub failed: Vec<LossRow>,
    /// What stages cut from documents that went on, whatever became of these later.
    pub edited: Vec<LossRow<Difference>>,
    /// Records that could not be read.
    pub quarantined: Vec<QuarantineRow>,
    /// Input files that ended too early: what was complete in them was used.
    pub truncated_files: Vec<TruncatedFile>,
    /// What stages left undone.
    pub notes: Vec<NoteRow>,
    /// What stands in the shards.
    pub emitted: Emitted,
    /// Tokens of low value.
    pub low_value: LowValue,
    /// Usefulness of what was emitted; absent without a `score` stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usefulness: Option<Usefulness>,
    /// The tokenizer.
    pub tokenizer: TokenizerEntry,
    /// The sums that must close.
    pub identities: Vec<Identity>,
}

impl Audit {
    /// Sum over rows of counts.
    pub fn total(rows: &[ReadRow]) -> Counts {
        rows.iter()
            .fold(Counts::default(), |sum, row| sum + row.counts)
    }
    /// Sum over rows of losses.
    pub fn total_loss<C>(rows: &[LossRow<C>]) -> C
    where
        C: Copy + Default + std::ops::Add<Output = C>,
    {
        rows.iter().fold(C::default(), |sum, row| sum + row.counts)
    }
    /// Records in quarantine.
    pub fn quarantined_records(&self) -> u64 {
        self.quarantined.iter().map(|row| row.records).sum()
    }
}

/// `part / whole`, 0 where there is no whole.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

impl LowValue {
    /// Sums the rejected rows of class `low_value`. `below` has the threshold and the kept tokens
    /// below it, by source in the order of `read`.
    pub fn of(read: &[ReadRow], rejected: &[LossRow], below: Option<(f64, Vec<u64>)>) -> LowValue {
        let read_tokens = Audit::total(read).tokens;
        let mut by_reason: BTreeMap<String, u64> = BTreeMap::new();
        let mut by_source: Vec<SourceLowValue> = read
            .iter()
            .enumerate()
            .map(|(at, row)| SourceLowValue {
                source: row.source.clone(),
                rejected_tokens: 0,
                kept_below_tokens: below.as_ref().map(|(_, tokens)| tokens[at]),
            })
            .collect();
        for row in rejected
            .iter()
            .filter(|row| row.class == Some(Class::LowValue))
        {
            *by_reason
                .entry(format!("{}/{}", row.stage, row.reason))
                .or_default() += row.counts.tokens;
            if let Some(of) = by_source.iter_mut().find(|of| of.source == row.source) {
                of.rejected_tokens += row.counts.tokens;
            }
        }
        let rejected_tokens = by_reason.values().sum();
        LowValue {
            rejected_tokens,
            rejected_share_of_read: share(rejected_tokens, read_tokens),
            by_reason,
            by_source,
            kept_below: below.map(|(threshold, tokens)| {
                let tokens = tokens.iter().sum();
                KeptBelow {
                    threshold,
                    tokens,
                    share_of_read: share(tokens, read_tokens),
                }
            }),
        }
    }
}

pub(super) fn schema() -> Value {
    let whole = json!({ "type": "integer", "minimum": 0 });
    let text = json!({ "type": "string" });
    let share = json!({ "type": "number", "minimum": 0, "maximum": 1 });
    let object = |properties: Value, optional: &[&str]| {
        let required: Vec<&String> = properties
            .as_object()
            .expect("written as an object")
            .keys()
            .filter(|key| !optional.contains(&key.as_str()))
            .collect();
        json!({ "type": "object", "additionalProperties": false, "required": required, "properties": properties })
    };
    let amount = json!({ "type": "number", "minimum": 0 });
    let worth = ["reference_equivalent_tokens", "data_goodput"];
    let bytes = json!({ "type": "array", "items": whole, "minItems": 256, "maxItems": 256 });
    let rows = |items: Value| json!({ "type": "array", "items": items });
    let read = object(
        json!({ "source": text, "documents": whole, "bytes": whole, "tokens": whole }),
        &[],
    );
    let classes: Vec<&str> = [
        Class::Duplicate,
        Class::LowValue,
        Class::Policy,
        Class::Contaminated,
        Class::NotDrawn,
    ]
    .map(Class::name)
    .into();
    let loss = object(
        json!({
            "source": text, "stage": text, "reason": text, "class": { "enum": classes },
            "documents": whole, "bytes": whole, "tokens": whole
        }),
        &["class"],
    );
    let number = json!({ "type": "integer" });
    let edit = object(
        json!({
            "source": text, "stage": text, "reason": text, "class": { "enum": classes },
            "documents": whole, "bytes": number, "tokens": number
        }),
        &[],
    );
    let mut schema = object(
        json!({
            "version": { "const": 1 },
            "pipeline": text,
            "pipeline_hash": text,
            "records_in_files": whole,
            "records_left_out": whole,
            "sample_share": share,
            "read": rows(read.clone()),
            "kept": rows(read),
            "rejected": rows(loss.clone()),
            "failed": rows(loss.clone()),
            "edited": rows(edit),
            "quarantined": rows(object(json!({ "source": text, "reason": text, "records": whole, "bytes": whole }), &[])),
            "truncated_files": rows(object(json!({ "file": text, "problem": text }), &[])),
            "notes": rows(object(json!({ "stage": text, "note": text, "count": whole }), &[])),
            "emitted": object(json!({
                "rows": whole, "positions": whole, "tokens": whole,
                "special_tokens": whole, "padding": whole, "repeated_tokens": whole
            }), &[]),
            "low_value": object(json!({
                "rejected_tokens": whole,
                "rejected_share_of_read": share,
                "by_reason": { "type": "object", "additionalProperties": whole },
                "by_source": rows(object(json!({
                    "source": text, "rejected_tokens": whole, "kept_below_tokens": whole
                }), &["kept_below_tokens"])),
                "kept_below": object(json!({ "threshold": share, "tokens": whole, "share_of_read": share }), &[])
            }), &["kept_below"]),
            "usefulness": object(json!({
                "estimator": text,
                "calibration": text,
                "histogram": bytes,
                "by_score": object(json!({ "documents": bytes, "tokens": bytes }), &[]),
                "sum": { "type": "number", "minimum": 0 },
                "u_ref": share,
                "u_ref_by_domain": { "type": "object", "additionalProperties": share },
                "reference_equivalent_tokens": amount,
                "data_goodput": amount,
                "by_source": rows(object(json!({
                    "source": text, "tokens": whole, "sum_255": whole, "histogram": bytes,
                    "reference_equivalent_tokens": amount, "data_goodput": amount
                }), &worth)),
                "rejected": rows(object(json!({
                    "source": text, "stage": text, "reason": text, "tokens": whole, "sum_255": whole,
                    "reference_equivalent_tokens": amount, "data_goodput": amount
                }), &worth)),
                "curriculum": rows(object(json!({
                    "first_position": whole, "positions": whole, "tokens": whole, "sum_255": whole,
                    "reference_equivalent_tokens": amount, "data_goodput": amount
                }), &worth))
            }), &["u_ref", "u_ref_by_domain", "reference_equivalent_tokens", "data_goodput"]),
            "tokenizer": object(json!({ "name": text, "fingerprint": text, "counts": { "const": "exact" } }), &[]),
            "identities": rows(object(json!({
                "name": text, "left": { "type": "integer" }, "right": { "type": "integer" }, "holds": { "type": "boolean" }
            }), &[]))
        }),
        &["sample_share", "usefulness"],
    );
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("goodput audit.json: the token ledger");
    schema
}
