//! The probability of a label by a fastText classifier that was trained elsewhere.

use super::parallel::{broadcast, check};
use super::unigram::parameter_hash;
use super::{
    DocumentScores, Estimator, EstimatorKind, Fit, FitError, FitInput, TokenDocument, TokenScores,
};
use crate::algo::fasttext::Model;
use crate::record::{Kind, OptionError, OptionSpec, Options, Spec};
use std::path::PathBuf;
use std::sync::Arc;

/// The estimator `fasttext`.
pub(super) const KIND: EstimatorKind = EstimatorKind {
    spec: Spec {
        name: "fasttext",
        summary: "Probability of a label by a fastText classifier",
        details: "score is the probability of `label` for the whole text, from 0 to 1, as the fastText library says it \
                  of the text with its line ends made spaces; each token has its document's score. 0 where the model \
                  knows no word of the text. Difficulty and excess are 0. This is how DCLM (Li et al. 2024) and \
                  PreSelect (Shum et al. 2025) choose documents. Models are trained with the fastText library \
                  (`supervised`); quantised ones, word and character n-grams and every loss are read. The model is \
                  held in memory. A document is scored by the same model whether or not the model learned from it, so \
                  train it on other documents. The texts are kept in the work folder while the run lasts.",
        options: &[
            OptionSpec {
                name: "model",
                kind: Kind::Path,
                default: None,
                doc: "the model, a `.bin` or `.ftz` file of format version 11 or 12",
            },
            OptionSpec {
                name: "label",
                kind: Kind::Text,
                default: None,
                doc: "the label of useful text, as it stands in the model",
            },
        ],
        example: "{ model: models/quality.bin, label: __label__good }",
    },
    version: 1,
    needs_reference: false,
    needs_text: true,
    needs_id: false,
    has_difficulty: false,
    has_excess: false,
    load: None,
    build,
};

fn build(options: &Options) -> Result<Box<dyn Fit>, OptionError> {
    let path = options.text("model");
    let wrong = |problem: String| {
        let must_be = "a supervised fastText model (.bin or .ftz)";
        OptionError::new("model", must_be, format!("'{path}': {problem}"))
    };
    let bytes = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let model = Model::parse(bytes).map_err(wrong)?;
    let name = options.text("label");
    let Some(label) = model.labels().position(|label| label == name) else {
        let labels: Vec<&str> = model.labels().take(20).collect();
        let must_be = format!("a label of the model ({})", labels.join(", "));
        return Err(OptionError::new("label", must_be, format!("'{name}'")));
    };
    Ok(Box::new(FastText {
        path: PathBuf::from(path),
        model: Arc::new(model),
        label,
        label_name: name.to_string(),
    }))
}

struct FastText {
    path: PathBuf,
    model: Arc<Model>,
    label: usize,
    label_name: String,
}

impl Fit for FastText {
    fn files(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }

    fn fit(&self, input: &FitInput<'_>) -> Result<Box<dyn Estimator>, FitError> {
        let mut description = serde_json::json!({
            "estimator": KIND.spec.name,
            "version": KIND.version,
            "label": self.label_name,
            "model_checksum": input.file_checksums,
            "calibration": "uncalibrated (probability of a label)",
        });
        description["parameter_hash"] = parameter_hash(&description, input.seed, 0).into();
        Ok(Box::new(FittedFastText {
            model: Arc::clone(&self.model),
            label: self.label,
            vocabulary_size: input.vocabulary_size,
            description,
        }))
    }
}

struct FittedFastText {
    model: Arc<Model>,
    label: usize,
    vocabulary_size: u32,
    description: serde_json::Value,
}

impl Estimator for FittedFastText {
    fn score(
        &self,
        document: &TokenDocument<'_>,
        out: &mut TokenScores,
    ) -> Result<DocumentScores, String> {
        check(document, self.vocabulary_size)?;
        let probability = self.model.probability(document.text, self.label);
        let probability = probability.unwrap_or(0.0);
        if !probability.is_finite() {
            return Err(format!(
                "the model says {probability}, which is no probability"
            ));
        }
        Ok(broadcast(f64::from(probability), document, out))
    }

    fn describe(&self) -> serde_json::Value {
        self.description.clone()
    }
}
