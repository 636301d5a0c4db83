//! Scores by chance: the control that every claim is compared with.

use super::parallel::check;
use super::unigram::parameter_hash;
use super::{
    DocumentScores, Estimator, EstimatorKind, Fit, FitError, FitInput, TokenDocument, TokenScores,
};
use crate::algo::hash::{keyed_by, purpose_key};
use crate::record::{Kind, OptionSpec, Spec};

/// The name of the control.
pub const RANDOM: &str = "random";

/// The estimator `random`.
pub(super) const KIND: EstimatorKind = EstimatorKind {
    spec: Spec {
        name: RANDOM,
        summary: "A number drawn for each document from the pipeline's seed: the control for every other estimator",
        details: "score is uniform from 0 (included) to 1, a keyed hash of the seed, the draw and the document's id; \
                  each token has its document's score. Difficulty and excess are 0.",
        options: &[OptionSpec {
            name: "draw",
            kind: Kind::Integer {
                min: 0,
                max: u32::MAX as u64,
            },
            default: Some("0"),
            doc: "which draw; another number gives an independent control under the same seed",
        }],
        example: "{ draw: 1 }",
    },
    version: 1,
    needs_reference: false,
    needs_text: false,
    needs_id: false,
    has_difficulty: false,
    has_excess: false,
    load: None,
    build: |options| {
        Ok(Box::new(RandomFit {
            draw: options.integer("draw"),
        }))
    },
};

struct RandomFit {
    draw: u64,
}

impl Fit for RandomFit {
    fn fit(&self, input: &FitInput<'_>) -> Result<Box<dyn Estimator>, FitError> {
        let mut description = serde_json::json!({
            "estimator": KIND.spec.name,
            "version": KIND.version,
            "draw": self.draw,
            "calibration": "none (random control)",
        });
        description["parameter_hash"] = parameter_hash(&description, input.seed, 0).into();
        let key = keyed_by(purpose_key(input.seed, "score/random"), self.draw);
        Ok(Box::new(Random {
            key,
            vocabulary_size: input.vocabulary_size,
            description,
        }))
    }
}

struct Random {
    key: u64,
    vocabulary_size: u32,
    description: serde_json::Value,
}

impl Estimator for Random {
    fn score(
        &self,
        document: &TokenDocument<'_>,
        out: &mut TokenScores,
    ) -> Result<DocumentScores, String> {
        check(document, self.vocabulary_size)?;
        // 24 bits, so that the f32 of each token is the same number.
        let score = (keyed_by(self.key, document.sample_key) >> 40) as f32 / (1 << 24) as f32;
        out.excess_nats.clear();
        out.usefulness.clear();
        out.usefulness.resize(document.tokens.len(), score);
        Ok(DocumentScores {
            score: f64::from(score),
            excess_nats: 0.0,
            difficulty: 0.0,
        })
    }

    fn describe(&self) -> serde_json::Value {
        self.description.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Corpus, fit, score_all};
    use super::*;

    #[test]
    fn scores_are_uniform_and_draws_differ() {
        let corpus = Corpus::new((0..4000u32).map(|i| vec![i % 7, 1]).collect());
        let scores = |draw| {
            let estimator = fit(&RandomFit { draw }, &corpus, None, 9).expect("fits");
            score_all(&*estimator, &corpus)
                .iter()
                .map(|s| s.0.score)
                .collect::<Vec<f64>>()
        };
        let (zero, one) = (scores(0), scores(1));
        assert_eq!(zero, scores(0));
        assert!(zero.iter().zip(&one).filter(|(a, b)| a == b).count() < 5);
        for tenth in 0..10 {
            let n = zero.iter().filter(|&&s| (s * 10.0) as u32 == tenth).count();
            assert!((320..=480).contains(&n), "{n} in tenth {tenth}");
        }
    }

    #[test]
    fn refuses_an_empty_document_and_an_unknown_id() {
        let corpus = Corpus::new(vec![vec![1]]);
        let estimator = fit(&RandomFit { draw: 0 }, &corpus, None, 2).expect("fits");
        let mut out = TokenScores::default();
        let document = |tokens| TokenDocument {
            number: 0,
            sample_key: 0,
            fold_key: 0,
            content: 0,
            tokens,
            id: "",
            text: "",
        };
        assert!(estimator.score(&document(&[]), &mut out).is_err());
        assert!(
            estimator
                .score(&document(&[2]), &mut out)
                .expect_err("id 2 of 2")
                .contains("token id 2")
        );
        assert!(estimator.score(&document(&[1]), &mut out).is_ok());
    }
}
