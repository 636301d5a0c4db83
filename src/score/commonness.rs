//! How unexpected a document is to an n-gram model of the rest of the corpus.

use super::ngram_fit::{
    BuildOptions, Counter, KeyWidth, Learned, ModelReport, TableMemory, model_bytes,
};
use super::parallel::{Sample, check, fold_of};
use super::unigram::{no_documents, parameter_hash};
use super::{
    DocumentScores, Estimator, EstimatorKind, Fit, FitError, FitInput, TokenDocument, TokenScores,
};
use crate::algo::kneser_ney::{Key, Packing};
use crate::algo::ngram_model::NgramModels;
use crate::algo::ngram_table::STEPS_PER_NAT;
use crate::record::{Kind, OptionSpec, Spec};
use std::cell::RefCell;
use std::path::Path;

/// The estimator `commonness`.
pub(super) const KIND: EstimatorKind = EstimatorKind {
    spec: Spec {
        name: "commonness",
        summary: "Rarity by an n-gram model of the corpus: text that the rest of the corpus predicts well scores low",
        details: "p is an interpolated modified Kneser-Ney model over token ids, fitted on the corpus without the \
                  document's own fold. A document's commonness is the geometric mean of p over its tokens, as in \
                  SoftDedup (He et al. 2024, 4-grams). Their weight is proportional to 1 / commonness, which has no \
                  upper bound; here score = 1 - commonness, which puts documents in the same order and is in [0, 1]. \
                  A token's usefulness is 1 - p. Difficulty is the mean of -ln p in nats, excess is 0. \
                  Surprisals are whole multiples of 1/2048 nat, with an error of at most order / 4096 nat, and at \
                  most 32 nats. Noise is the rarest of all, so filter it out before.",
        options: &[
            OptionSpec {
                name: "order",
                kind: Kind::Integer { min: 2, max: 5 },
                default: Some("4"),
                doc: "tokens in the longest n-gram",
            },
            OptionSpec {
                name: "fit_tokens",
                kind: Kind::Integer {
                    min: 1,
                    max: 2_000_000_000,
                },
                default: Some("100_000_000"),
                doc: "tokens of the corpus that the model learns from, about, drawn by document; all where there are \
                      not more",
            },
            OptionSpec {
                name: "model_ngrams",
                kind: Kind::Integer {
                    min: 0,
                    max: 2_000_000_000,
                },
                default: Some("67_108_864"),
                doc: "n-grams of two tokens and more that each model keeps at most; the rarest go first, all of the same \
                      count and length together",
            },
            OptionSpec {
                name: "folds",
                kind: Kind::Integer { min: 2, max: 16 },
                default: Some("2"),
                doc: "parts of the corpus; a document is scored by the model of the other parts",
            },
        ],
        example: "{ fit_tokens: 20_000_000 }",
    },
    version: 1,
    needs_reference: false,
    needs_text: false,
    needs_id: false,
    has_difficulty: true,
    has_excess: false,
    load: None,
    build: |options| {
        Ok(Box::new(Commonness {
            order: options.integer("order") as u32,
            fit_tokens: options.integer("fit_tokens"),
            model_ngrams: options.integer("model_ngrams"),
            folds: options.integer("folds") as u32,
        }))
    },
};

struct Commonness {
    order: u32,
    fit_tokens: u64,
    model_ngrams: u64,
    folds: u32,
}

struct Fitted {
    models: NgramModels,
    reports: Vec<ModelReport>,
    learned: Learned,
}

impl Fit for Commonness {
    fn model_bytes(&self, tokens: u64) -> u64 {
        let learned = tokens.min(self.fit_tokens);
        let models = u64::from(self.folds);
        model_bytes(learned, self.order, self.model_ngrams, models)
    }

    fn fit(&self, input: &FitInput<'_>) -> Result<Box<dyn Estimator>, FitError> {
        let packing = Packing::new(input.vocabulary_size, self.order, self.folds);
        let folder = input.work.join("ngrams");
        std::fs::create_dir_all(&folder)?;
        let fitted = match KeyWidth::of(&packing) {
            Ok(KeyWidth::U64) => self.fit_with::<u64>(input, packing, &folder),
            Ok(KeyWidth::U128) => self.fit_with::<u128>(input, packing, &folder),
            Err(error) => Err(error),
        };
        std::fs::remove_dir_all(&folder)?;
        let fitted = fitted?;
        let mut description = serde_json::json!({
            "estimator": KIND.spec.name,
            "version": KIND.version,
            "order": self.order,
            "fit_tokens": self.fit_tokens,
            "model_ngrams": self.model_ngrams,
            "folds": self.folds,
            "general": fitted.learned,
            "general_models": fitted.reports,
            "model_bytes": fitted.models.bytes(),
            "surprisal_error_nats": f64::from(self.order) / 4096.0,
            "calibration": "uncalibrated (analytic)",
        });
        let hash = parameter_hash(&description, input.seed, fitted.models.checksum());
        description["parameter_hash"] = hash.into();
        Ok(Box::new(FittedCommonness {
            models: fitted.models,
            folds: self.folds,
            vocabulary_size: input.vocabulary_size,
            description,
        }))
    }
}

impl Commonness {
    fn fit_with<K: Key>(
        &self,
        input: &FitInput<'_>,
        packing: Packing,
        folder: &Path,
    ) -> Result<Fitted, FitError> {
        let sample = Sample::new(self.fit_tokens, input.corpus.tokens());
        let tokens = input.corpus.tokens().min(self.fit_tokens);
        let counter = Counter::<K>::new(packing, tokens, folder, input.memory_bytes)?;
        let cells = |_: &mut (), document: &TokenDocument<'_>| match sample.draws(document) {
            true => 1 << fold_of(document, self.folds),
            false => 0,
        };
        let learned = counter.add(input.corpus, || (), cells, |()| {})?;
        if learned.documents == 0 {
            return Err(no_documents());
        }
        let all_folds = (1u32 << self.folds) - 1;
        let without: Vec<u32> = (0..self.folds)
            .map(|fold| all_folds & !(1 << fold))
            .collect();
        let options = BuildOptions {
            max_ngrams: self.model_ngrams,
            discounts: None,
        };
        let memory = TableMemory {
            of_run: input.memory_bytes,
            taken: 0,
        };
        let (models, reports) = counter.finish()?.build(&without, options, memory)?;
        Ok(Fitted {
            models,
            reports,
            learned,
        })
    }
}

struct FittedCommonness {
    models: NgramModels,
    folds: u32,
    vocabulary_size: u32,
    description: serde_json::Value,
}

thread_local! {
    /// Surprisals of the document in work, kept so that no document allocates.
    static SURPRISALS: RefCell<[Vec<u16>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

impl Estimator for FittedCommonness {
    fn score(
        &self,
        document: &TokenDocument<'_>,
        out: &mut TokenScores,
    ) -> Result<DocumentScores, String> {
        check(document, self.vocabulary_size)?;
        let fold = fold_of(document, self.folds) as usize;
        out.excess_nats.clear();
        out.usefulness.clear();
        let steps: u64 = SURPRISALS.with_borrow_mut(|codes| {
            self.models.surprisals([fold, fold], document.tokens, codes);
            let rarity = |&code: &u16| -libm::expm1(-f64::from(code) / STEPS_PER_NAT) as f32;
            out.usefulness.extend(codes[0].iter().map(rarity));
            codes[0].iter().map(|&code| u64::from(code)).sum()
        });
        let nats = steps as f64 / STEPS_PER_NAT / document.tokens.len() as f64;
        Ok(DocumentScores {
            score: -libm::expm1(-nats),
            excess_nats: 0.0,
            difficulty: nats,
        })
    }

    fn describe(&self) -> serde_json::Value {
        self.description.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Corpus, fit, fit_within, score_all};
    use super::*;
    use crate::algo::hash::keyed;

    fn commonness(order: u32) -> Commonness {
        Commonness {
            order,
            fit_tokens: 1 << 30,
            model_ngrams: 1 << 20,
            folds: 2,
        }
    }

    fn draw(n: u64, seed: u64) -> Vec<u32> {
        (0..n).map(|i| keyed(seed, "draw", i) as u32 % 40).collect()
    }

    /// Two copies each of 30 documents, one in each fold, and 20 documents that stand once.
    fn corpus() -> Corpus {
        let copied = (0..60).map(|n| draw(40, n / 2));
        let single = (0..20).map(|n| draw(40, 1000 + n));
        Corpus {
            fold_keys: Some((0..80u64).map(|n| n % 2 * u64::MAX).collect()),
            ..Corpus::new(copied.chain(single).collect())
        }
    }

    /// One document `0 1` in each fold, V = 4, order 2: the model of either fold knows `0 1` with begin B
    /// and end E. Pairs B0, 01, 1E, once each, so no count of 2 and the discounts are 0.5, 1, 1.5.
    /// Continuations: 0, 1 and E have one context each, t = 3, gamma = 3 * 0.5 / 3 = 0.5:
    /// p(0) = p(1) = 0.5/3 + 0.5/4 = 0.291667. p(0 | B) = p(1 | 0) = 0.5/1 + 0.5 * 0.291667 = 0.645833.
    /// The geometric mean of two equal numbers is that number.
    #[test]
    fn golden_by_hand() {
        let corpus = Corpus {
            fold_keys: Some(vec![0, u64::MAX]),
            ..Corpus::new(vec![vec![0, 1], vec![0, 1]])
        };
        let fitted = fit(&commonness(2), &corpus, None, 4).expect("fits");
        let p: f64 = 0.5 + 0.5 * (0.5 / 3.0 + 0.5 / 4.0);
        for (document, tokens) in score_all(&*fitted, &corpus) {
            assert!((document.score - (1.0 - p)).abs() < 1e-3, "{document:?}");
            assert!((document.difficulty + p.ln()).abs() < 1e-3);
            assert!(
                tokens
                    .usefulness
                    .iter()
                    .all(|&u| (f64::from(u) - (1.0 - p)).abs() < 1e-3)
            );
        }
    }

    #[test]
    fn what_stands_elsewhere_too_scores_below_what_stands_once() {
        let fitted = fit(&commonness(4), &corpus(), None, 40).expect("fits");
        let scores = score_all(&*fitted, &corpus());
        let score = |(document, _): &(DocumentScores, _)| document.score;
        let copied = scores[..60].iter().map(score).fold(0.0, f64::max);
        let single = scores[60..].iter().map(score).fold(1.0, f64::min);
        assert!(copied < single, "{copied} {single}");
    }

    #[test]
    fn threads_parts_and_memory_change_no_bit() {
        let of = |parts, threads, memory_bytes| {
            let corpus = Corpus { parts, ..corpus() };
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .expect("threads");
            let fitted = pool
                .install(|| fit_within(&commonness(3), &corpus, None, 40, memory_bytes))
                .expect("fits");
            (fitted.describe(), score_all(&*fitted, &corpus))
        };
        assert!(of(1, 1, 1 << 30) == of(7, 4, 64 << 20));
    }

    #[test]
    fn refuses_to_learn_from_nothing() {
        let error = fit(&commonness(3), &Corpus::new(Vec::new()), None, 5)
            .err()
            .expect("no documents");
        assert!(
            error.to_string().contains("no document to learn from"),
            "{error}"
        );
    }
}
