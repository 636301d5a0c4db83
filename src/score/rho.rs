//! How much a model still has to learn of a token that a reference model already knows.

use super::parallel::check;
use super::token_numbers::{HIGH, Joined, LOW, MISSING, NO_ROWS, Percentiles, Scale};
use super::unigram::parameter_hash;
use super::{
    DocumentScores, Estimator, EstimatorKind, Fit, FitError, FitInput, TableRequest, TokenDocument,
    TokenScores,
};
use crate::record::{Kind, OptionError, OptionSpec, Options, Spec};
use std::cell::RefCell;
use std::path::PathBuf;

/// The estimator `rho`.
pub(super) const KIND: EstimatorKind = EstimatorKind {
    spec: Spec {
        name: "rho",
        summary: "Excess loss per token: that of the model to be trained less that of a reference model",
        details: "excess = current loss - reference loss, in nats, from a file of both, which has the form that \
                  `goodput stages external` tells. After Rho-1 (Lin et al. 2024), which trains on the tokens of highest \
                  excess. u = clip((excess - low) / (high - low), 0, 1); low and high are percentiles of the excess over \
                  the tokens that reach the stage, to 1/1024 nat, within 64 nats of 0. score is the mean of u, \
                  excess_nats the mean excess, difficulty the mean current loss; both are 0 for a document that \
                  `missing_usefulness` stands for.",
        options: &[
            OptionSpec {
                name: "losses",
                kind: Kind::Path,
                default: None,
                doc: "the file, `.parquet` or `.jsonl` (also `.jsonl.gz`, `.jsonl.zst`)",
            },
            OptionSpec {
                name: "current_column",
                kind: Kind::Text,
                default: Some("loss"),
                doc: "the column of losses of the model to be trained, in nats",
            },
            OptionSpec {
                name: "reference_column",
                kind: Kind::Text,
                default: Some("reference_loss"),
                doc: "the column of losses of the model of good text, in nats",
            },
            LOW,
            HIGH,
            MISSING,
        ],
        example: "{ losses: data/losses.jsonl }",
    },
    version: 1,
    needs_reference: false,
    needs_text: false,
    needs_id: true,
    has_difficulty: true,
    has_excess: true,
    load: None,
    build,
};

struct Rho {
    path: PathBuf,
    current: String,
    reference: String,
    percentiles: Percentiles,
    missing: Option<f64>,
}

fn build(options: &Options) -> Result<Box<dyn Fit>, OptionError> {
    let (current, reference) = (
        options.text("current_column"),
        options.text("reference_column"),
    );
    if current == reference {
        return Err(OptionError::new(
            "reference_column",
            "another column than current_column",
            format!("'{reference}'"),
        ));
    }
    Ok(Box::new(Rho {
        path: PathBuf::from(options.text("losses")),
        current: current.to_string(),
        reference: reference.to_string(),
        percentiles: Percentiles::of(options)?,
        missing: options.number_if_given(MISSING.name),
    }))
}

/// Of a token, in nats; of two `f32` it is exact in `f64`.
fn excess(columns: &[Vec<f32>], at: usize) -> f64 {
    f64::from(columns[0][at]) - f64::from(columns[1][at])
}

impl Fit for Rho {
    fn files(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }

    fn table(&self) -> Option<TableRequest<'_>> {
        Some(TableRequest {
            path: &self.path,
            columns: vec![&self.current, &self.reference],
        })
    }

    fn fit(&self, input: &FitInput<'_>) -> Result<Box<dyn Estimator>, FitError> {
        let joined = Joined::read(input, &[&self.current, &self.reference])?;
        let (scale, tokens) = joined.scale(input.corpus, self.percentiles, excess)?;
        let mut description = serde_json::json!({
            "estimator": KIND.spec.name,
            "version": KIND.version,
            "current_column": self.current,
            "reference_column": self.reference,
            "percentiles": self.percentiles,
            "low_nats": scale.low,
            "high_nats": scale.high,
            "tokens": tokens,
            "missing_usefulness": self.missing,
            "file_checksum": input.file_checksums,
            "file_rows": joined.rows,
            "calibration": "uncalibrated (numbers from outside)",
        });
        description["parameter_hash"] = parameter_hash(&description, input.seed, 0).into();
        Ok(Box::new(FittedRho {
            joined,
            scale,
            missing: self.missing,
            vocabulary_size: input.vocabulary_size,
            description,
        }))
    }
}

struct FittedRho {
    joined: Joined,
    scale: Scale,
    missing: Option<f64>,
    vocabulary_size: u32,
    description: serde_json::Value,
}

thread_local! {
    /// Losses of the document in work, kept so that no document allocates.
    static LOSSES: RefCell<[Vec<f32>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

impl Estimator for FittedRho {
    fn score(
        &self,
        document: &TokenDocument<'_>,
        out: &mut TokenScores,
    ) -> Result<DocumentScores, String> {
        check(document, self.vocabulary_size)?;
        let n = document.tokens.len();
        out.usefulness.clear();
        out.excess_nats.clear();
        LOSSES.with_borrow_mut(|columns| {
            match (self.joined.of(document, columns)?, self.missing) {
                (true, _) => {}
                (false, Some(usefulness)) => {
                    out.usefulness.resize(n, usefulness as f32);
                    out.excess_nats.resize(n, 0.0);
                    return Ok(DocumentScores {
                        score: usefulness,
                        excess_nats: 0.0,
                        difficulty: 0.0,
                    });
                }
                (false, None) => return Err(NO_ROWS.to_string()),
            }
            let (mut usefulness_sum, mut excess_sum, mut loss_sum) = (0.0, 0.0, 0.0);
            for at in 0..n {
                let excess = excess(columns, at);
                let usefulness = self.scale.rising(excess);
                usefulness_sum += usefulness;
                excess_sum += excess;
                loss_sum += f64::from(columns[0][at]);
                out.usefulness.push(usefulness as f32);
                out.excess_nats.push(excess as f32);
            }
            Ok(DocumentScores {
                score: usefulness_sum / n as f64,
                excess_nats: excess_sum / n as f64,
                difficulty: loss_sum / n as f64,
            })
        })
    }

    fn describe(&self) -> serde_json::Value {
        self.description.clone()
    }
}
