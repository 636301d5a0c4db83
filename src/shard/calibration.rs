//! A calibration file: what usefulness is worth, as measured in a pilot run.

use crate::algo::isotonic::{Curve, POINTS};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What a half of the documents holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CalibrationHalf {
    /// Documents.
    pub documents: u64,
    /// Their tokens.
    pub tokens: u64,
    /// Mean fall of the loss, early minus late, in nats per token.
    pub mean_learnability_nats: f64,
}

/// Tokens of about the same usefulness: what was predicted for them and what was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReliabilityRow {
    /// Smallest uncalibrated usefulness in it, as stored.
    pub usefulness_from: f64,
    /// Largest.
    pub usefulness_to: f64,
    /// Tokens of the half that was not fitted on.
    pub tokens: u64,
    /// Mean predicted fall of the loss, in nats.
    pub predicted_nats: f64,
    /// Mean measured fall of the loss, in nats.
    pub measured_nats: f64,
}

/// The file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Version of this format.
    pub version: u32,
    /// Name of the pilot run.
    pub pilot: String,
    /// Name of the estimator whose usefulness was calibrated.
    pub estimator: String,
    /// Version of its method.
    pub estimator_version: u32,
    /// Hash of what it was fitted with.
    pub estimator_parameter_hash: String,
    /// The estimator's options by name, as far as its description repeats them: a stage with others
    /// computes another usefulness.
    #[serde(default)]
    pub estimator_parameters: serde_json::Map<String, Value>,
    /// Fingerprint of the tokenizer.
    pub tokenizer_fingerprint: String,
    /// Checksum of the manifest of the folder that was scored.
    pub dataset: String,
    /// Seed that drew the halves.
    pub seed: u64,
    /// Checksum of the file of losses.
    pub losses_checksum: String,
    /// Fall of the loss in nats that a calibrated usefulness of 1 stands for.
    pub scale_nats: f64,
    /// Calibrated usefulness at each stored byte, 256 numbers from 0 to 1, non-decreasing.
    pub usefulness: Vec<f32>,
    /// The half that was fitted on.
    pub fitted: CalibrationHalf,
    /// The half that was not.
    pub checked: CalibrationHalf,
    /// Mean absolute difference of prediction and measurement over the rows of the table, weighted by
    /// tokens, in nats.
    pub expected_calibration_error_nats: f64,
    /// The half that was not fitted on, in rows of about equally many tokens.
    pub reliability: Vec<ReliabilityRow>,
}

impl Calibration {
    /// Reads a calibration file's text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<(Calibration, Curve), String> {
        let found: Calibration = serde_json::from_str(text)
            .map_err(|error| format!("is not a calibration of this version: {error}"))?;
        if found.version != 1 {
            return Err(format!(
                "'version' must be 1, got {}; make it anew with 'goodput calibrate'",
                found.version
            ));
        }
        let curve = Curve::new(found.usefulness.clone()).ok_or(
            "'usefulness' must be 256 numbers from 0 to 1 that do not fall; make it anew with 'goodput calibrate'",
        )?;
        Ok((found, curve))
    }
}

/// The JSON Schema of a calibration file (draft 2020-12).
pub fn schema() -> Value {
    let whole = json!({ "type": "integer", "minimum": 0 });
    let text = json!({ "type": "string" });
    let number = json!({ "type": "number" });
    let share = json!({ "type": "number", "minimum": 0, "maximum": 1 });
    let checksum = json!({ "type": "string", "pattern": "^[0-9a-f]{32}$" });
    let object = |properties: Value| {
        let required: Vec<&String> = properties
            .as_object()
            .expect("written as an object")
            .keys()
            .collect();
        json!({ "type": "object", "additionalProperties": false, "required": required, "properties": properties })
    };
    let half =
        object(json!({ "documents": whole, "tokens": whole, "mean_learnability_nats": number }));
    let mut schema = object(json!({
        "version": { "const": 1 },
        "pilot": text,
        "estimator": text,
        "estimator_version": whole,
        "estimator_parameter_hash": text,
        "estimator_parameters": { "type": "object" },
        "tokenizer_fingerprint": text,
        "dataset": checksum,
        "seed": whole,
        "losses_checksum": checksum,
        "scale_nats": { "type": "number", "minimum": 0 },
        "usefulness": { "type": "array", "items": share, "minItems": POINTS, "maxItems": POINTS },
        "fitted": half,
        "checked": half,
        "expected_calibration_error_nats": { "type": "number", "minimum": 0 },
        "reliability": { "type": "array", "items": object(json!({
            "usefulness_from": share, "usefulness_to": share, "tokens": whole,
            "predicted_nats": number, "measured_nats": number
        })) }
    }));
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("goodput calibration: usefulness as measured in a pilot run");
    schema
}
