//! How near a document's mix of common and rare tokens is to the corpus' centre.

use super::parallel::{Sample, check, fold_of};
use super::unigram::{FoldedPrior, parameter_hash};
use super::{
    DocumentScores, Estimator, EstimatorKind, Fit, FitError, FitInput, TokenDocument, TokenScores,
};
use crate::record::{Kind, OptionSpec, Spec};

/// The estimator `prior`.
pub(super) const KIND: EstimatorKind = EstimatorKind {
    spec: Spec {
        name: "prior",
        summary: "Nearness of a document's token frequencies to those of the corpus; needs no reference",
        details: "p is the share of a token in the corpus' sample, (count + 1) / (total + V), counted without the \
                  document's own fold. A document has the mean and the standard deviation of ln p over its tokens. \
                  score = 1 / (1 + d), d the distance of both from their medians over documents, in units of \
                  IQR / 1.35: lists and boilerplate on one side and gibberish on the other score low. \
                  A token's usefulness is exp(-z^2 / 2), z the distance of its ln p from the median token in the \
                  same unit. Difficulty and excess are 0. After the prior filter of Seo et al. 2025. Where most of \
                  the corpus is noise, the centre is noise too.",
        options: &[
            OptionSpec {
                name: "fit_tokens",
                kind: Kind::Integer {
                    min: 1,
                    max: 2_000_000_000,
                },
                default: Some("100_000_000"),
                doc: "tokens of the corpus that are counted, about, drawn by document; all where there are not more",
            },
            OptionSpec {
                name: "folds",
                kind: Kind::Integer { min: 2, max: 16 },
                default: Some("2"),
                doc: "parts of the corpus; a document is scored with the counts of the other parts",
            },
        ],
        example: "{}",
    },
    version: 1,
    needs_reference: false,
    needs_text: false,
    needs_id: false,
    has_difficulty: false,
    has_excess: false,
    load: None,
    build: |options| {
        Ok(Box::new(PriorFit {
            fit_tokens: options.integer("fit_tokens"),
            folds: options.integer("folds") as u32,
        }))
    },
};

struct PriorFit {
    fit_tokens: u64,
    folds: u32,
}

impl Fit for PriorFit {
    fn fit(&self, input: &FitInput<'_>) -> Result<Box<dyn Estimator>, FitError> {
        let sample = Sample::new(self.fit_tokens, input.corpus.tokens());
        let (prior, learned) =
            FoldedPrior::fit(input.corpus, input.vocabulary_size, self.folds, sample)?;
        let centres = prior.centres();
        let centre = |centre: &crate::algo::unigram_prior::Centre| serde_json::json!({ "median_nats": centre.median, "spread_nats": centre.spread });
        let mut description = serde_json::json!({
            "estimator": KIND.spec.name,
            "version": KIND.version,
            "fit_tokens": self.fit_tokens,
            "folds": self.folds,
            "general": learned,
            "document_mean": centre(&centres.mean),
            "document_deviation": centre(&centres.deviation),
            "token": centre(&centres.token),
            "calibration": "uncalibrated (analytic)",
        });
        let hash = parameter_hash(&description, input.seed, prior.checksum());
        description["parameter_hash"] = hash.into();
        Ok(Box::new(Prior {
            usefulness: prior.token_usefulness(),
            vocabulary_size: input.vocabulary_size,
            folds: self.folds,
            prior,
            description,
        }))
    }
}

struct Prior {
    prior: FoldedPrior,
    usefulness: Vec<Vec<f32>>,
    vocabulary_size: u32,
    folds: u32,
    description: serde_json::Value,
}

impl Estimator for Prior {
    fn score(
        &self,
        document: &TokenDocument<'_>,
        out: &mut TokenScores,
    ) -> Result<DocumentScores, String> {
        check(document, self.vocabulary_size)?;
        let usefulness = &self.usefulness[fold_of(document, self.folds) as usize];
        out.excess_nats.clear();
        out.usefulness.clear();
        out.usefulness.extend(
            document
                .tokens
                .iter()
                .map(|&token| usefulness[token as usize]),
        );
        let score = self.prior.score(document);
        if !score.is_finite() {
            return Err(format!("the prior score is {score}, not a finite number"));
        }
        Ok(DocumentScores {
            score,
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

    fn prior() -> PriorFit {
        PriorFit {
            fit_tokens: 1 << 30,
            folds: 2,
        }
    }

    /// Forty documents of the same mix, one of a single common token, one of rare tokens.
    fn corpus() -> Corpus {
        let mut documents: Vec<Vec<u32>> = (0..40u32)
            .map(|i| {
                (0..50)
                    .map(|j| [0, 1, 2, 0, 3 + (i * 7 + j * 3) % 20][j as usize % 5])
                    .collect()
            })
            .collect();
        documents.push(vec![0; 50]);
        documents.push((0..50).map(|j| 40 + j % 9).collect());
        Corpus::new(documents)
    }

    #[test]
    fn both_kinds_of_outlier_rank_last() {
        let estimator = fit(&prior(), &corpus(), None, 50).expect("fits");
        let scores = score_all(&*estimator, &corpus());
        let worst = scores[..40]
            .iter()
            .map(|s| s.0.score)
            .fold(f64::INFINITY, f64::min);
        assert!(
            scores[40].0.score < worst && scores[41].0.score < worst,
            "{worst} {:?}",
            &scores[40..]
        );
        for (document, tokens) in &scores {
            assert!((0.0..=1.0).contains(&document.score));
            assert!(
                tokens.usefulness.iter().all(|u| (0.0..=1.0).contains(u))
                    && tokens.usefulness.len() == 50
            );
        }
    }

    #[test]
    fn works_for_one_document_and_refuses_none() {
        let one = Corpus::new(vec![vec![3]]);
        let estimator = fit(&prior(), &one, None, 5).expect("fits");
        assert!(score_all(&*estimator, &one)[0].0.score.is_finite());
        let error = fit(&prior(), &Corpus::new(vec![]), None, 5)
            .err()
            .expect("no documents");
        assert!(error.to_string().contains("fit_tokens"), "{error}");
    }

    #[test]
    fn cut_and_threads_change_nothing() {
        let one = fit(&prior(), &corpus(), None, 50).expect("fits");
        let cut = Corpus {
            parts: 7,
            ..corpus()
        };
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(4)
            .build()
            .expect("threads");
        let other = pool
            .install(|| fit(&prior(), &cut, None, 50))
            .expect("fits");
        assert_eq!(one.describe(), other.describe());
        assert_eq!(score_all(&*one, &cut), score_all(&*other, &cut));
    }
}
