//! How much more likely a document's words are in the reference than in the corpus.

use super::ngram_fit::Learned;
use super::parallel::{Sample, broadcast, check, each_part, fold_of};
use super::unigram::{no_documents, parameter_hash};
use super::{
    DocumentScores, Estimator, EstimatorKind, Fit, FitError, FitInput, TokenDocument, TokenScores,
};
use crate::algo::dsir::{SMOOTHING, each_bucket, log_ratios};
use crate::record::{Kind, OptionError, OptionSpec, Spec};

/// The estimator `dsir`.
pub(super) const KIND: EstimatorKind = EstimatorKind {
    spec: Spec {
        name: "dsir",
        summary: "Importance weight of a document's words and pairs of words: reference against corpus",
        details: "The text is lower-cased and cut into runs of word characters and runs of other characters; each run, \
                  and each pair of neighbouring ones, is counted in a bucket by its SHA-256. p of a bucket is its share \
                  of all counts. score = ln w, the sum over the document's n-grams of \
                  ln (p_reference + 1e-8) - ln (p_corpus + 1e-8): any number, and larger for longer texts. Every token's \
                  usefulness is r / (1 + r), r = w^(1 / n-grams), 0.5 where the text is as likely in both. Difficulty \
                  and excess are 0. After DSIR (Xie et al. 2023); with `folds: 1` the weights are those of the authors' \
                  package data-selection 1.0.3, whose `top_k` is `select` by score. Unless `folds` is 1, reference \
                  documents that also stand in the corpus are left out. The texts are kept in the work folder while \
                  the run lasts.",
        options: &[
            OptionSpec {
                name: "reference",
                kind: Kind::Globs,
                default: None,
                doc: "files of the text that the corpus should become like, never an evaluation set",
            },
            OptionSpec {
                name: "buckets",
                kind: Kind::Integer {
                    min: 2,
                    max: 100_000,
                },
                default: Some("10_000"),
                doc: "buckets that n-grams are counted in",
            },
            OptionSpec {
                name: "fit_tokens",
                kind: Kind::Integer {
                    min: 1,
                    max: 1_000_000_000_000,
                },
                default: Some("1_000_000_000"),
                doc: "tokens of the corpus that are counted, about, drawn by document; all where there are not more. The \
                      reference is counted as a whole",
            },
            OptionSpec {
                name: "folds",
                kind: Kind::Integer { min: 1, max: 16 },
                default: Some("2"),
                doc: "parts of the corpus; a document is scored with the counts of the other parts. With 1 its own counts \
                      take part too, as published",
            },
        ],
        example: "{ reference: data/reference/*.jsonl.zst }",
    },
    version: 1,
    needs_reference: true,
    needs_text: true,
    needs_id: false,
    has_difficulty: false,
    has_excess: false,
    load: None,
    build: |options| {
        let reference = options.list("reference");
        if reference.is_empty() || reference.iter().any(|glob| glob == "self") {
            return Err(OptionError::new(
                "reference",
                "globs of files of text",
                format!("[{}]", reference.join(", ")),
            ));
        }
        Ok(Box::new(Dsir {
            buckets: options.integer("buckets") as u32,
            fit_tokens: options.integer("fit_tokens"),
            folds: options.integer("folds") as u32,
        }))
    },
};

struct Dsir {
    buckets: u32,
    fit_tokens: u64,
    folds: u32,
}

/// Counts by bucket, and what they were made of.
#[derive(Clone)]
struct Counts {
    by_bucket: Vec<u64>,
    learned: Learned,
}

impl Counts {
    fn new(buckets: u32) -> Self {
        Counts {
            by_bucket: vec![0; buckets as usize],
            learned: Learned::default(),
        }
    }

    fn count(&mut self, document: &TokenDocument<'_>) {
        self.learned.documents += 1;
        self.learned.tokens += document.tokens.len() as u64;
        let buckets = self.by_bucket.len() as u32;
        each_bucket(document.text, buckets, |bucket| {
            self.by_bucket[bucket as usize] += 1;
        });
    }

    fn add(&mut self, other: &Counts) {
        self.learned.documents += other.learned.documents;
        self.learned.tokens += other.learned.tokens;
        for (mine, theirs) in self.by_bucket.iter_mut().zip(&other.by_bucket) {
            *mine += theirs;
        }
    }

    fn ngrams(&self) -> u64 {
        self.by_bucket.iter().sum()
    }

    fn describe(&self) -> serde_json::Value {
        serde_json::json!({
            "documents": self.learned.documents,
            "tokens": self.learned.tokens,
            "ngrams": self.ngrams(),
        })
    }
}

impl Fit for Dsir {
    fn fit(&self, input: &FitInput<'_>) -> Result<Box<dyn Estimator>, FitError> {
        let source = input.reference.ok_or_else(|| {
            FitError::Data("'reference' names no documents; name files of text".to_string())
        })?;
        let crosses = self.folds > 1;
        let mut contents: Vec<u128> = Vec::new();
        if crosses {
            let gather = |part: &mut Vec<u128>, document: &TokenDocument<'_>| {
                part.push(document.content);
            };
            each_part(source, Vec::new, gather, |part| contents.extend(part))?;
            contents.sort_unstable();
            contents.dedup();
        }

        let sample = Sample::new(self.fit_tokens, input.corpus.tokens());
        let mut raw = vec![Counts::new(self.buckets); self.folds as usize];
        let empty = raw.clone();
        let mut shared: Vec<u128> = Vec::new();
        each_part(
            input.corpus,
            || (empty.clone(), Vec::new()),
            |(counts, shared), document| {
                if contents.binary_search(&document.content).is_ok() {
                    shared.push(document.content);
                }
                if sample.draws(document) {
                    counts[fold_of(document, self.folds) as usize].count(document);
                }
            },
            |(counts, more)| {
                raw.iter_mut()
                    .zip(&counts)
                    .for_each(|(mine, theirs)| mine.add(theirs));
                shared.extend(more);
            },
        )?;
        shared.sort_unstable();
        shared.dedup();

        let mut target = Counts::new(self.buckets);
        let mut left_out = 0u64;
        each_part(
            source,
            || (Counts::new(self.buckets), 0),
            |(counts, left_out), document| match shared.binary_search(&document.content) {
                Ok(_) => *left_out += 1,
                Err(_) => counts.count(document),
            },
            |(counts, more)| {
                target.add(&counts);
                left_out += more;
            },
        )?;
        if target.ngrams() == 0 {
            return Err(FitError::Data(format!(
                "the reference has no word outside of documents that also stand in the corpus ({left_out} of its documents \
                 do); one word is the least that can be counted: name more reference files, or set 'folds: 1'"
            )));
        }

        let mut general = Counts::new(self.buckets);
        raw.iter().for_each(|fold| general.add(fold));
        let log_ratios_of = |fold: &Counts| -> Result<Vec<f64>, FitError> {
            let mut others = general.by_bucket.clone();
            if crosses {
                for (sum, own) in others.iter_mut().zip(&fold.by_bucket) {
                    *sum -= own;
                }
            }
            match others.iter().any(|&count| count > 0) {
                true => Ok(log_ratios(&target.by_bucket, &others)),
                false => Err(no_documents()),
            }
        };
        let ratios: Vec<Vec<f64>> = raw.iter().map(log_ratios_of).collect::<Result<_, _>>()?;

        let mut description = serde_json::json!({
            "estimator": KIND.spec.name,
            "version": KIND.version,
            "buckets": self.buckets,
            "fit_tokens": self.fit_tokens,
            "folds": self.folds,
            "smoothing": SMOOTHING,
            "general": general.describe(),
            "target": target.describe(),
            "left_out_documents": left_out,
            "calibration": "uncalibrated (analytic)",
        });
        let checksum = ratios.iter().fold(0, |sum, ratios| {
            xxhash_rust::xxh3::xxh3_64_with_seed(bytemuck::cast_slice(ratios), sum)
        });
        description["parameter_hash"] = parameter_hash(&description, input.seed, checksum).into();
        Ok(Box::new(FittedDsir {
            buckets: self.buckets,
            ratios,
            vocabulary_size: input.vocabulary_size,
            description,
        }))
    }
}

struct FittedDsir {
    buckets: u32,
    /// By bucket, for each fold.
    ratios: Vec<Vec<f64>>,
    vocabulary_size: u32,
    description: serde_json::Value,
}

impl Estimator for FittedDsir {
    fn score(
        &self,
        document: &TokenDocument<'_>,
        out: &mut TokenScores,
    ) -> Result<DocumentScores, String> {
        check(document, self.vocabulary_size)?;
        let ratios = &self.ratios[fold_of(document, self.ratios.len() as u32) as usize];
        let (mut log_weight, mut ngrams) = (0.0, 0u64);
        each_bucket(document.text, self.buckets, |bucket| {
            log_weight += ratios[bucket as usize];
            ngrams += 1;
        });
        let usefulness = 1.0 / (1.0 + libm::exp(-log_weight / ngrams.max(1) as f64));
        Ok(DocumentScores {
            score: log_weight,
            ..broadcast(usefulness, document, out)
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

    fn dsir(folds: u32) -> Dsir {
        Dsir {
            buckets: 10_000,
            fit_tokens: 1 << 40,
            folds,
        }
    }

    const RAW: [&str; 6] = [
        "The growth of plants depends on the salt in the soil, and on water.",
        "Click here to buy NOW! Free shipping, best price: $3.50 (limited offer).",
        "Can't stop; won't stop. E-mail us: a_b@c.example",
        "Das Straßenfest in İzmir: ΟΔΟΣ und 中文。",
        "The salt of the soil and the growth of roots.",
        "x",
    ];
    const TARGET: [&str; 2] = [
        "The growth of roots in salt soil was measured with care.",
        "Water in the soil carries the salt to the roots of plants.",
    ];

    /// `HashedNgramDSIR` of data-selection 1.0.3 with its defaults, NLTK 3.8.1, NumPy 2.4, on these
    /// documents.
    #[test]
    fn weights_are_those_of_the_authors_package() {
        let (raw, target) = (Corpus::of_texts(&RAW), Corpus::of_texts(&TARGET));
        let fitted = fit(&dsir(1), &raw, Some(&target), 256).expect("fits");
        let expected = [
            -177.4292997550878,
            -496.0843550067755,
            -489.3826287552145,
            -267.88196714749586,
            -69.49997498209889,
            -13.396801743104936,
        ];
        for ((document, tokens), expected) in score_all(&*fitted, &raw).iter().zip(expected) {
            assert!(
                (document.score - expected).abs() < 1e-9,
                "{document:?} {expected}"
            );
            assert!(tokens.usefulness.iter().all(|u| (0.0..0.5).contains(u)));
        }
    }

    /// A copy in the same fold leaves the weight as it was, one in another fold lowers it.
    #[test]
    fn no_document_is_scored_by_counts_of_itself() {
        let weight = |copies: usize, fold_key: u64| {
            let texts = [&RAW[..], &vec![RAW[4]; copies]].concat();
            let mut fold_keys = vec![u64::MAX; 4];
            fold_keys.extend([0, u64::MAX]);
            fold_keys.extend(vec![fold_key; copies]);
            let corpus = Corpus {
                fold_keys: Some(fold_keys),
                ..Corpus::of_texts(&texts)
            };
            let fitted =
                fit(&dsir(2), &corpus, Some(&Corpus::of_texts(&TARGET)), 256).expect("fits");
            score_all(&*fitted, &corpus)[4].0.score
        };
        assert_eq!(weight(3, 0).to_bits(), weight(0, 0).to_bits());
        assert!(weight(3, u64::MAX) < weight(0, 0) - 1.0);
    }

    #[test]
    fn reference_documents_of_the_corpus_are_left_out_and_counted() {
        let corpus = Corpus::of_texts(&[&RAW[..], &TARGET[..1]].concat());
        let with = fit(&dsir(2), &corpus, Some(&Corpus::of_texts(&TARGET)), 256).expect("fits");
        let without = fit(
            &dsir(2),
            &corpus,
            Some(&Corpus::of_texts(&TARGET[1..])),
            256,
        );
        let without = without.expect("fits");
        assert_eq!(with.describe()["left_out_documents"], 1);
        assert!(score_all(&*with, &corpus) == score_all(&*without, &corpus));
        let error = fit(
            &dsir(2),
            &corpus,
            Some(&Corpus::of_texts(&TARGET[..1])),
            256,
        )
        .err()
        .expect("nothing is left");
        assert!(error.to_string().contains("folds: 1"), "{error}");
    }

    #[test]
    fn parts_and_threads_change_nothing() {
        let of = |parts, threads| {
            let corpus = Corpus {
                parts,
                ..Corpus::of_texts(&RAW)
            };
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .expect("threads");
            let fitted = pool
                .install(|| fit(&dsir(2), &corpus, Some(&Corpus::of_texts(&TARGET)), 256))
                .expect("fits");
            (fitted.describe(), score_all(&*fitted, &corpus))
        };
        assert!(of(1, 1) == of(3, 4));
    }
}
