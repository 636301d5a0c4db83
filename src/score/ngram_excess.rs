//! What a model of good text knows better than a model of the corpus, per token.

use super::model_file::{self, ModelFile};
use super::ngram_fit::{
    BuildOptions, Counted, Counter, KeyWidth, Learned, ModelReport, TableMemory, model_bytes,
};
use super::parallel::{Sample, check, each_part, fold_of, share};
use super::unigram::{FoldedPrior, no_documents, parameter_hash};
use super::{
    DocumentScores, Estimator, EstimatorKind, Fit, FitError, FitInput, ModelOrigin, TokenDocument,
    TokenExplanation, TokenScores, TokenSource,
};
use crate::algo::excess::{Calibration, MAX_MEAN, Usefulness, Window, WindowQuantiles, mean_nats};
use crate::algo::histogram::Histogram;
use crate::algo::kneser_ney::{Key, Packing};
use crate::algo::ngram_model::NgramModels;
use crate::algo::ngram_table::{MAX_CODE, STEPS_PER_NAT};
use crate::record::{Kind, OptionError, OptionSpec, Options, Spec};
use serde_json::json;
use std::cell::RefCell;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// Tokens of the corpus that the scale of want is taken from, about, drawn by document.
const CALIBRATION_TOKENS: u64 = 1 << 22;

/// The estimator `ngram_excess`.
pub(super) const KIND: EstimatorKind = EstimatorKind {
    spec: Spec {
        name: "ngram_excess",
        summary: "Usefulness per token: signal left, learnable, and closer to the reference than to the corpus",
        details: "Two interpolated modified Kneser-Ney models over token ids: q of the reference, p of the corpus. \
                  s_p and s_q are the surprisals of a token in nats, clipped at c999. excess = s_p - s_q; \
                  left = 1 - exp(-s_p); able = clip((c999 - s_q) / (c999 - c95), 0, 1), 1 where c999 = c95, or the same of the \
                  mean s_q over the window where that is less: one rare word is no noise, a run of them is. \
                  want = sigmoid((mean excess over the window - tau) / s); u = left * able * want. c95 and c999 are \
                  percentiles of s_q, and of its windowed mean, on reference text that q was not fitted on. tau lies \
                  midway between the medians of the windowed excess on that text and on the corpus (about 4 million \
                  tokens of it), s is a quarter of their distance, at least the IQR / 1.35 on that text and 1/1024. \
                  A document's score is the mean of u. \
                  u_ref is the mean of u over that text, by domain where the reference is tagged and has enough of it: the \
                  ledger divides by it to count tokens that are as useful as reference text. \
                  No document is scored by a model that was fitted on it: p of the other folds scores a document, \
                  and reference documents that also stand in the corpus are left out of q. \
                  Surprisals are whole multiples of 1/2048 nat, with an error of at most order / 4096 nat. \
                  `reference: self` takes the tenth of the sampled documents with the highest `prior` score, in the \
                  folds of the corpus. Sources: Moore and Lewis 2010 (excess), Chen and Goodman 1998 (smoothing).",
        options: &[
            OptionSpec {
                name: "reference",
                kind: Kind::Globs,
                default: Some("null"),
                doc: "files of good text, never an evaluation set; or `self`: the corpus' own best tenth by `prior`",
            },
            OptionSpec {
                name: "model",
                kind: Kind::Path,
                default: Some("null"),
                doc: "a file that `goodput fit` made of a pipeline with the same seed, tokenizer and options of this \
                      stage, instead of `reference`: nothing is fitted",
            },
            OptionSpec {
                name: "reference_domain",
                kind: Kind::Text,
                default: Some("null"),
                doc: "the field of the reference that names a document's domain, a text, such as metadata.domain; u_ref is \
                      kept by domain then. With `self` the domains are those of the corpus",
            },
            OptionSpec {
                name: "domain",
                kind: Kind::Text,
                default: Some("null"),
                doc: "the declared field that names the domain of a document of the corpus; its source when absent",
            },
            OptionSpec {
                name: "min_domain_tokens",
                kind: Kind::Integer {
                    min: 1,
                    max: 2_000_000_000,
                },
                default: Some("10_000"),
                doc: "held-out tokens of the reference that a domain needs for a u_ref of its own, one with exactly so many \
                      has it; the others are measured against that of all",
            },
            OptionSpec {
                name: "order",
                kind: Kind::Integer { min: 2, max: 5 },
                default: Some("3"),
                doc: "tokens in the longest n-gram",
            },
            OptionSpec {
                name: "fit_tokens",
                kind: Kind::Integer {
                    min: 1,
                    max: 2_000_000_000,
                },
                default: Some("100_000_000"),
                doc: "tokens of the corpus, and likewise of the reference, that the models learn from, about, drawn by \
                      document; all where there are not more",
            },
            OptionSpec {
                name: "model_ngrams",
                kind: Kind::Integer {
                    min: 0,
                    max: 2_000_000_000,
                },
                default: Some("67_108_864"),
                doc: "n-grams of two tokens and more that each model keeps at most; the rarest go first, all of the same \
                      count and length together. In memory an n-gram takes about 14 to 22 bytes at 2 folds",
            },
            OptionSpec {
                name: "folds",
                kind: Kind::Integer { min: 2, max: 16 },
                default: Some("2"),
                doc: "parts of the corpus, and of the reference; a document is scored by models of the other parts",
            },
            OptionSpec {
                name: "window_tokens",
                kind: Kind::Integer { min: 0, max: 1024 },
                default: Some("8"),
                doc: "tokens on each side over which the excess is averaged; 0 takes the token alone",
            },
        ],
        example: "{ reference: data/reference/*.jsonl.zst }",
    },
    version: 2,
    needs_reference: true,
    needs_text: false,
    needs_id: false,
    has_difficulty: true,
    has_excess: true,
    load: Some(load),
    build,
};

#[derive(Clone, Debug)]
struct NgramExcess {
    model: Option<PathBuf>,
    reference_is_self: bool,
    order: u32,
    fit_tokens: u64,
    model_ngrams: u64,
    folds: u32,
    window_tokens: usize,
    min_domain_tokens: u64,
}

fn build(options: &Options) -> Result<Box<dyn Fit>, OptionError> {
    let model = options.text_if_given("model").map(PathBuf::from);
    let reference = options.list("reference");
    let reference_is_self = reference == ["self"];
    if model.is_some() && !reference.is_empty() {
        return Err(OptionError::new(
            "reference",
            "absent where 'model' names a fitted one",
            format!("[{}]", reference.join(", ")),
        ));
    }
    if (model.is_none() && reference.is_empty())
        || (reference.iter().any(|glob| glob == "self") && !reference_is_self)
    {
        return Err(OptionError::new(
            "reference",
            "globs of files of good text, or the word self alone",
            format!("[{}]", reference.join(", ")),
        ));
    }
    let reference_domain = options.text_if_given("reference_domain");
    if let Some(field) = reference_domain.filter(|_| reference_is_self || model.is_some()) {
        return Err(OptionError::new(
            "reference_domain",
            "absent with 'model', which knows its domains, and with 'reference: self', whose domains are those of the \
             corpus",
            field,
        ));
    }
    if let Some(field) = options.text_if_given("domain")
        && reference_domain.is_none()
        && !reference_is_self
        && model.is_none()
    {
        return Err(OptionError::new(
            "domain",
            "beside 'reference_domain': without it the reference has no domains",
            field,
        ));
    }
    Ok(Box::new(NgramExcess {
        model,
        reference_is_self,
        order: options.integer("order") as u32,
        fit_tokens: options.integer("fit_tokens"),
        model_ngrams: options.integer("model_ngrams"),
        folds: options.integer("folds") as u32,
        window_tokens: options.integer("window_tokens") as usize,
        min_domain_tokens: options.integer("min_domain_tokens"),
    }))
}

impl Fit for NgramExcess {
    fn files(&self) -> Vec<PathBuf> {
        self.model.iter().cloned().collect()
    }

    fn check_model(&self, origin: &ModelOrigin) -> Result<(), FitError> {
        match &self.model {
            Some(path) => self.stored(path, origin).map(|_| ()),
            None => Ok(()),
        }
    }

    fn keeps_model(&self) -> bool {
        true
    }

    fn model_bytes(&self, tokens: u64) -> u64 {
        match self.model {
            // It is mapped.
            Some(_) => 0,
            None => {
                let learned = tokens.min(self.fit_tokens.saturating_mul(2));
                let models = u64::from(self.folds) * if self.reference_is_self { 2 } else { 1 } + 1;
                model_bytes(learned, self.order, self.model_ngrams, models)
            }
        }
    }

    fn fit(&self, input: &FitInput<'_>) -> Result<Box<dyn Estimator>, FitError> {
        if let Some(path) = &self.model {
            return self.stored(path, input.origin);
        }
        let packing = Packing::new(input.vocabulary_size, self.order, 2 * self.folds);
        let folder = folder_of(input);
        std::fs::create_dir_all(&folder)?;
        let fitted = match KeyWidth::of(&packing) {
            Ok(KeyWidth::U64) => self.fit_with::<u64>(input, packing, &folder),
            Ok(KeyWidth::U128) => self.fit_with::<u128>(input, packing, &folder),
            Err(error) => Err(error),
        };
        std::fs::remove_dir_all(&folder)?;
        let fitted = fitted?;
        let description = self.describe(&fitted, input.seed);
        Ok(Box::new(FittedNgramExcess {
            models: fitted.models,
            usefulness: fitted.usefulness,
            q_is_folded: fitted.q_is_folded,
            folds: self.folds,
            window_tokens: self.window_tokens,
            vocabulary_size: input.vocabulary_size,
            description,
        }))
    }
}

/// All that scoring and its description need.
struct Fitted {
    models: NgramModels,
    reports: Vec<ModelReport>,
    usefulness: Usefulness,
    /// Models of p by fold; the model of q is after them, or the models of q by fold.
    q_is_folded: bool,
    general: Learned,
    target: Learned,
    left_out_documents: u64,
    held_out: HeldOut,
}

/// What held-out reference text scored.
#[derive(Clone, Debug, Default)]
struct HeldOut {
    /// Medians of the windowed excess on held-out reference text and on the corpus.
    median_excess_nats: f64,
    corpus_median_excess_nats: f64,
    tokens: u64,
    u_ref: f64,
    /// Of domains with enough tokens: name, tokens, mean usefulness.
    by_domain: Vec<(String, u64, f64)>,
    nats_by_target: f64,
    nats_by_general: f64,
}

/// Who is learned from as reference.
enum Target<'a> {
    /// Documents of another source, by their sorted contents.
    Apart {
        source: &'a dyn TokenSource,
        sample: Sample,
    },
    /// Documents of the corpus with at least this prior score; among equals, with at most this content.
    OfCorpus {
        prior: FoldedPrior,
        cut: (f64, u128),
    },
}

impl NgramExcess {
    /// A model of a file, which must be what this stage would have fitted for documents of this origin.
    fn stored(&self, path: &Path, wants: &ModelOrigin) -> Result<Box<dyn Estimator>, FitError> {
        let (origin, estimator) = load(path)?;
        let description = estimator.describe();
        let of = |name: &str| description[name].clone();
        let mine = &origin;
        let seed = "the same documents must fall into the same folds";
        let differences = [
            (
                "tokenizer fingerprint",
                json!(mine.tokenizer_fingerprint),
                json!(wants.tokenizer_fingerprint),
                "its ids are others",
            ),
            ("seed", json!(mine.seed), json!(wants.seed), seed),
            (
                "folds by near-duplicate component",
                json!(mine.folds_by_component),
                json!(wants.folds_by_component),
                "a near_dedupe stands before only one of the two",
            ),
            (
                "calibration",
                json!(mine.calibration),
                json!(wants.calibration),
                "u_ref is measured through it",
            ),
            ("order", of("order"), json!(self.order), "set it"),
            ("folds", of("folds"), json!(self.folds), "set it"),
            (
                "fit_tokens",
                of("fit_tokens"),
                json!(self.fit_tokens),
                "set it",
            ),
            (
                "model_ngrams",
                of("model_ngrams"),
                json!(self.model_ngrams),
                "set it",
            ),
            (
                "window_tokens",
                of("window_tokens"),
                json!(self.window_tokens),
                "set it",
            ),
        ];
        let different = differences.iter().find(|(_, has, wants, _)| has != wants);
        if let Some((name, has, wants, why)) = different {
            return Err(FitError::Data(format!(
                "{}: the model has {name} {has} and the pipeline {wants} ({why}); use a model of this pipeline, made \
                 with 'goodput fit'",
                path.display()
            )));
        }
        Ok(estimator)
    }

    fn fit_with<K: Key>(
        &self,
        input: &FitInput<'_>,
        packing: Packing,
        folder: &Path,
    ) -> Result<Fitted, FitError> {
        let sample = Sample::new(self.fit_tokens, input.corpus.tokens());
        let target = match input.reference {
            Some(source) if !self.reference_is_self => Target::Apart {
                source,
                sample: Sample::new(self.fit_tokens, source.tokens()),
            },
            _ => self.best_of_corpus(input, sample)?,
        };
        let reference_tokens = match &target {
            Target::Apart { source, .. } => source.tokens(),
            Target::OfCorpus { .. } => input.corpus.tokens() / 8,
        };
        let tokens =
            input.corpus.tokens().min(self.fit_tokens) + reference_tokens.min(self.fit_tokens);
        let counter = Counter::<K>::new(packing, tokens, folder, input.memory_bytes)?;
        match target {
            Target::Apart {
                source,
                sample: of_reference,
            } => self.fit_apart(input, counter, sample, source, of_reference),
            Target::OfCorpus { prior, cut } => {
                self.fit_of_corpus(input, counter, sample, &prior, cut)
            }
        }
    }

    fn options(&self) -> BuildOptions {
        BuildOptions {
            max_ngrams: self.model_ngrams,
            discounts: None,
        }
    }

    fn all_folds(&self) -> u32 {
        (1 << self.folds) - 1
    }

    /// Cells of p but those of one fold.
    fn without(&self, fold: u32) -> u32 {
        self.all_folds() & !(1 << fold)
    }

    fn fit_apart<K: Key>(
        &self,
        input: &FitInput<'_>,
        counter: Counter<K>,
        sample: Sample,
        source: &dyn TokenSource,
        of_reference: Sample,
    ) -> Result<Fitted, FitError> {
        let folds = self.folds;
        let mut contents: Vec<u128> = Vec::new();
        let gather = |part: &mut Vec<u128>, document: &TokenDocument<'_>| {
            if of_reference.draws(document) {
                part.push(document.content);
            }
        };
        each_part(source, Vec::new, gather, |part| contents.extend(part))?;
        contents.sort_unstable();
        contents.dedup();

        let mut left_out: Vec<u128> = Vec::new();
        let general = counter.add(
            input.corpus,
            Vec::new,
            |left_out: &mut Vec<u128>, document| {
                if contents.binary_search(&document.content).is_ok() {
                    left_out.push(document.content);
                }
                if sample.draws(document) {
                    1 << fold_of(document, folds)
                } else {
                    0
                }
            },
            |part| left_out.extend(part),
        )?;
        if general.documents == 0 {
            return Err(no_documents());
        }
        left_out.sort_unstable();
        left_out.dedup();
        let n_found = contents.len();
        contents.retain(|content| left_out.binary_search(content).is_err());
        if contents.len() < folds as usize {
            return Err(FitError::Data(format!(
                "the reference has {n_found} different documents and {} of them also stand in the corpus, which leaves \
                 {}; {folds} or more are needed, one for each of the {folds} folds: name more reference files, or use \
                 'reference: self'",
                left_out.len(),
                contents.len()
            )));
        }
        // By rank, so that no fold is empty.
        let fold_in_reference = |document: &TokenDocument<'_>| -> Option<u32> {
            let rank = contents.binary_search(&document.content).ok()?;
            of_reference
                .draws(document)
                .then_some((rank % folds as usize) as u32)
        };
        let cells = |_: &mut (), document: &TokenDocument<'_>| {
            fold_in_reference(document).map_or(0, |fold| 1 << (folds + fold))
        };
        let target = counter.add(source, || (), cells, |()| {})?;
        let counted = counter.finish()?;

        let q_cells = |cells: u32| cells << folds;
        let held_out_cells: Vec<u32> = (0..folds).map(|fold| q_cells(self.without(fold))).collect();
        let mut scoring_cells: Vec<u32> = (0..folds).map(|fold| self.without(fold)).collect();
        scoring_cells.push(q_cells(self.all_folds()));
        let (models, reports) = self.build(&counted, &scoring_cells, input, 0)?;
        let (of_held_out, _) = self.build(&counted, &held_out_cells, input, models.bytes())?;
        drop(counted);

        let surprisals = |document: &TokenDocument<'_>, codes: &mut [Vec<u16>; 2]| {
            let Some(fold) = fold_in_reference(document) else {
                return false;
            };
            // q without this document's fold, then p of its fold in place of the first q.
            let p_model = fold_of(document, folds) as usize;
            of_held_out.surprisals([fold as usize; 2], document.tokens, codes);
            let s_q = std::mem::take(&mut codes[1]);
            models.surprisals([p_model; 2], document.tokens, codes);
            codes[1] = s_q;
            true
        };
        let of_corpus = |document: &TokenDocument<'_>, codes: &mut [Vec<u16>; 2]| {
            let p_model = fold_of(document, folds) as usize;
            models.surprisals([p_model, folds as usize], document.tokens, codes);
        };
        let (usefulness, held_out) = self.calibrate(source, input, surprisals, of_corpus)?;
        let left_out_documents = left_out.len() as u64;
        Ok(Fitted {
            models,
            reports,
            usefulness,
            q_is_folded: false,
            general,
            target,
            left_out_documents,
            held_out,
        })
    }

    fn fit_of_corpus<K: Key>(
        &self,
        input: &FitInput<'_>,
        counter: Counter<K>,
        sample: Sample,
        prior: &FoldedPrior,
        cut: (f64, u128),
    ) -> Result<Fitted, FitError> {
        let folds = self.folds;
        let is_best =
            |document: &TokenDocument<'_>| sample.draws(document) && is_above(prior, document, cut);
        #[derive(Default)]
        struct Best {
            learned: Learned,
            folds: u32,
        }
        let mut best = Best::default();
        let cells = |best: &mut Best, document: &TokenDocument<'_>| {
            if !sample.draws(document) {
                return 0;
            }
            let cell = 1 << fold_of(document, folds);
            if !is_above(prior, document, cut) {
                return cell;
            }
            best.learned.documents += 1;
            best.learned.tokens += document.tokens.len() as u64;
            best.folds |= cell;
            cell | cell << folds
        };
        let general = counter.add(input.corpus, Best::default, cells, |part| {
            best.learned.documents += part.learned.documents;
            best.learned.tokens += part.learned.tokens;
            best.folds |= part.folds;
        })?;
        if best.folds.count_ones() < 2 {
            return Err(FitError::Data(format!(
                "'reference: self' takes the best tenth of {} documents by prior: {}, all in one fold of {folds}, so that \
                 no model is left to score that fold; it needs more documents, or name a reference",
                general.documents, best.learned.documents
            )));
        }
        let counted = counter.finish()?;
        let p_cells = (0..folds).map(|fold| self.without(fold));
        let cells: Vec<u32> = p_cells
            .clone()
            .chain(p_cells.map(|cells| cells << folds))
            .collect();
        let (models, reports) = self.build(&counted, &cells, input, 0)?;
        drop(counted);
        let surprisals = |document: &TokenDocument<'_>, codes: &mut [Vec<u16>; 2]| {
            let fold = fold_of(document, folds) as usize;
            let best = is_best(document);
            if best {
                models.surprisals([fold, fold + folds as usize], document.tokens, codes);
            }
            best
        };
        let of_corpus = |document: &TokenDocument<'_>, codes: &mut [Vec<u16>; 2]| {
            let fold = fold_of(document, folds) as usize;
            models.surprisals([fold, fold + folds as usize], document.tokens, codes);
        };
        let (usefulness, held_out) = self.calibrate(input.corpus, input, surprisals, of_corpus)?;
        let target = best.learned;
        Ok(Fitted {
            models,
            reports,
            usefulness,
            q_is_folded: true,
            general,
            target,
            left_out_documents: 0,
            held_out,
        })
    }

    fn build<K: Key>(
        &self,
        counted: &Counted<K>,
        cells: &[u32],
        input: &FitInput<'_>,
        taken: u64,
    ) -> Result<(NgramModels, Vec<ModelReport>), FitError> {
        let memory = TableMemory {
            of_run: input.memory_bytes,
            taken,
        };
        counted.build(cells, self.options(), memory)
    }

    /// The bound of the best tenth of the sampled documents by prior.
    fn best_of_corpus<'a>(
        &self,
        input: &FitInput<'a>,
        sample: Sample,
    ) -> Result<Target<'a>, FitError> {
        let (prior, learned) =
            FoldedPrior::fit(input.corpus, input.vocabulary_size, self.folds, sample)?;
        let mut scores: Vec<(f64, u128)> = Vec::with_capacity(learned.documents as usize);
        let gather = |part: &mut Vec<(f64, u128)>, document: &TokenDocument<'_>| {
            if sample.draws(document) {
                part.push((prior.score(document), document.content));
            }
        };
        each_part(input.corpus, Vec::new, gather, |part| scores.extend(part))?;
        scores.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let n_best = scores.len().div_ceil(10);
        let cut = *scores
            .get(n_best.saturating_sub(1))
            .ok_or_else(no_documents)?;
        Ok(Target::OfCorpus { prior, cut })
    }

    /// Scales from held-out text and from the corpus: `surprisals` fills in s_p and s_q of a document by
    /// models that were not fitted on it, or says that the document is not held-out text; `of_corpus` does
    /// so for a document of the corpus.
    fn calibrate(
        &self,
        source: &dyn TokenSource,
        input: &FitInput<'_>,
        surprisals: impl Fn(&TokenDocument<'_>, &mut [Vec<u16>; 2]) -> bool + Sync,
        of_corpus: impl Fn(&TokenDocument<'_>, &mut [Vec<u16>; 2]) + Sync,
    ) -> Result<(Usefulness, HeldOut), FitError> {
        let folder = folder_of(input);
        let held_out = HeldOutFiles::write(source, &folder, surprisals)?;
        let mut s_q = Histogram::new(0, i64::from(MAX_CODE));
        let empty = s_q.clone();
        held_out.each(
            || empty.clone(),
            |part, _, [_, q]| q.iter().for_each(|&code| part.count(i64::from(code))),
            |part| s_q.add(&part),
        )?;
        let percentile = |per_mille| {
            s_q.quantile(per_mille)
                .map(|code| code as u16)
                .ok_or_else(no_documents)
        };
        let (c95, c999) = (percentile(950)?, percentile(999)?);

        let window = Window::new(self.window_tokens);
        let mut means = [-MAX_MEAN, 0].map(|lowest| Histogram::new(lowest, MAX_MEAN));
        let empty = means.clone();
        held_out.each(
            || empty.clone(),
            |[of_excess, of_s_q], _, [p, q]| {
                window.each_mean(p, q, c999, |excess, s_q| {
                    of_excess.count(excess);
                    of_s_q.count(s_q);
                });
            },
            |part| {
                means
                    .iter_mut()
                    .zip(&part)
                    .for_each(|(mine, theirs)| mine.add(theirs))
            },
        )?;
        let [of_excess, of_s_q] = means;
        let quantile = |of: &Histogram, per_mille| of.quantile(per_mille).ok_or_else(no_documents);
        let quantiles = WindowQuantiles {
            s_q: [quantile(&of_s_q, 950)?, quantile(&of_s_q, 999)?],
            excess: [
                quantile(&of_excess, 250)?,
                quantile(&of_excess, 500)?,
                quantile(&of_excess, 750)?,
            ],
            corpus_excess: corpus_excess(input.corpus, &window, c999, of_corpus)?,
        };
        let usefulness =
            Usefulness::new(Calibration::new(c95, c999, quantiles), self.window_tokens);

        // Sums over documents are whole numbers: of u in units of 2^-32, of surprisals in steps. By domain,
        // those of documents without one last.
        let names = source.domains();
        let mut by_domain = vec![[0u128; 4]; names.len() + 1];
        let empty = by_domain.clone();
        held_out.each(
            || empty.clone(),
            |part, domain, [p, q]| {
                let sums = &mut part[domain.unwrap_or(names.len())];
                sums[0] += p.len() as u128;
                let u = match input.calibration {
                    None => usefulness.sums(p, q).usefulness,
                    Some(curve) => {
                        let factors = usefulness.factors(p, q).into_iter();
                        let calibrated = factors.map(|f| f64::from(curve.at(f.product())));
                        calibrated.sum()
                    }
                };
                sums[1] += (u * UNITS) as u128;
                for (total, codes) in sums[2..].iter_mut().zip([p, q]) {
                    *total += u128::from(codes.iter().map(|&code| u64::from(code)).sum::<u64>());
                }
            },
            |part| {
                let sums = by_domain.iter_mut().flatten();
                sums.zip(part.into_iter().flatten())
                    .for_each(|(mine, theirs)| *mine += theirs);
            },
        )?;
        let mut totals = [0u128; 4];
        for sums in &by_domain {
            totals.iter_mut().zip(sums).for_each(|(all, n)| *all += n);
        }
        let [tokens, u, p, q] = totals.map(|total| total as f64);
        let held_out = HeldOut {
            median_excess_nats: mean_nats(quantiles.excess[1]),
            corpus_median_excess_nats: mean_nats(quantiles.corpus_excess),
            tokens: totals[0] as u64,
            u_ref: u / UNITS / tokens,
            by_domain: names
                .iter()
                .zip(&by_domain)
                .filter(|(_, sums)| sums[0] >= u128::from(self.min_domain_tokens))
                .map(|(name, sums)| {
                    let mean = sums[1] as f64 / UNITS / sums[0] as f64;
                    (name.clone(), sums[0] as u64, mean)
                })
                .collect(),
            nats_by_general: p / STEPS_PER_NAT / tokens,
            nats_by_target: q / STEPS_PER_NAT / tokens,
        };
        Ok((usefulness, held_out))
    }

    fn describe(&self, fitted: &Fitted, seed: u64) -> serde_json::Value {
        let calibration = fitted.usefulness.calibration();
        let nats = |code: u16| f64::from(code) / STEPS_PER_NAT;
        let (general, target) = fitted.reports.split_at(self.folds as usize);
        let by_domain = |of: fn(&(String, u64, f64)) -> (String, serde_json::Value)| {
            let entries = fitted.held_out.by_domain.iter().map(of);
            entries.collect::<serde_json::Map<_, _>>()
        };
        let mut description = json!({
            "estimator": KIND.spec.name,
            "version": KIND.version,
            "order": self.order,
            "fit_tokens": self.fit_tokens,
            "model_ngrams": self.model_ngrams,
            "folds": self.folds,
            "window_tokens": self.window_tokens,
            "reference": if self.reference_is_self { "self" } else { "given" },
            "general": fitted.general,
            "target": fitted.target,
            "left_out_documents": fitted.left_out_documents,
            "general_models": general,
            "target_models": target,
            "model_bytes": fitted.models.bytes(),
            "surprisal_error_nats": f64::from(self.order) / 4096.0,
            "tau_nats": calibration.tau_nats,
            "s_nats": calibration.spread_nats,
            "c95_nats": nats(calibration.c95),
            "c999_nats": nats(calibration.c999),
            "window_c95_nats": calibration.window_c95_nats,
            "window_c999_nats": calibration.window_c999_nats,
            "reference_median_excess_nats": fitted.held_out.median_excess_nats,
            "corpus_median_excess_nats": fitted.held_out.corpus_median_excess_nats,
            "u_ref": fitted.held_out.u_ref,
            "u_ref_by_domain": by_domain(|(name, _, u_ref)| (name.clone(), json!(u_ref))),
            "min_domain_tokens": self.min_domain_tokens,
            "held_out_tokens_by_domain": by_domain(|(name, tokens, _)| (name.clone(), json!(tokens))),
            "held_out_tokens": fitted.held_out.tokens,
            "held_out_nats_by_target": fitted.held_out.nats_by_target,
            "held_out_nats_by_general": fitted.held_out.nats_by_general,
            "calibration": "uncalibrated (analytic)",
        });
        // What a calibration makes of the reference shapes no score before it: the same models have the same hash
        // with and without one.
        let mut shaping = description.clone();
        shaping["u_ref"] = json!(null);
        shaping["u_ref_by_domain"] = json!(null);
        let hash = parameter_hash(&shaping, seed, fitted.models.checksum());
        description["parameter_hash"] = hash.into();
        description
    }
}

/// The median of the windowed excess over a sample of the corpus, in steps of 1/8192 nat.
fn corpus_excess(
    corpus: &dyn TokenSource,
    window: &Window,
    c999: u16,
    surprisals: impl Fn(&TokenDocument<'_>, &mut [Vec<u16>; 2]) + Sync,
) -> Result<i64, FitError> {
    let median_of = |sample: Sample| -> Result<Option<i64>, FitError> {
        let mut means = Histogram::new(-MAX_MEAN, MAX_MEAN);
        let empty = means.clone();
        each_part(
            corpus,
            || (empty.clone(), [Vec::new(), Vec::new()]),
            |(part, codes), document| {
                if sample.draws(document) {
                    surprisals(document, codes);
                    window.each_mean(&codes[0], &codes[1], c999, |excess, _| part.count(excess));
                }
            },
            |(part, _)| means.add(&part),
        )?;
        Ok(means.quantile(500))
    };
    let tokens = corpus.tokens();
    // Of few and very long documents a sample may draw none.
    match median_of(Sample::new(CALIBRATION_TOKENS, tokens))? {
        Some(median) => Ok(median),
        None => median_of(Sample::new(tokens, tokens))?.ok_or_else(no_documents),
    }
}

/// Where intermediate files are; removed after the fit.
fn folder_of(input: &FitInput<'_>) -> PathBuf {
    input.work.join("ngrams")
}

/// Sums of u are counted in 2^-32.
const UNITS: f64 = (1u64 << 32) as f64;

/// Surprisals of held-out text, looked up once and read for each scale: per document the number of
/// tokens and the place of its domain plus one, 0 for none (u32 each), then s_p and s_q of each in steps.
struct HeldOutFiles<'a> {
    folder: &'a Path,
    parts: usize,
}

impl<'a> HeldOutFiles<'a> {
    fn path(folder: &Path, part: usize) -> PathBuf {
        folder.join(format!("held-out-{part}"))
    }

    fn write(
        source: &dyn TokenSource,
        folder: &'a Path,
        surprisals: impl Fn(&TokenDocument<'_>, &mut [Vec<u16>; 2]) -> bool + Sync,
    ) -> Result<Self, FitError> {
        let parts = source.parts();
        let write = |(): &mut (), part: usize| {
            let mut file = BufWriter::new(File::create(Self::path(folder, part))?);
            let mut codes = [Vec::new(), Vec::new()];
            let mut written = Ok(());
            source.read(part, &mut |document| {
                if written.is_ok() && surprisals(&document, &mut codes) {
                    let domain = source.domain(document.number).map_or(0, |place| place + 1);
                    let head = [document.tokens.len() as u32, domain as u32];
                    written = file
                        .write_all(bytemuck::cast_slice(&head))
                        .and_then(|()| file.write_all(bytemuck::cast_slice(&codes[0])))
                        .and_then(|()| file.write_all(bytemuck::cast_slice(&codes[1])));
                }
            })?;
            written?;
            file.flush()?;
            Ok(())
        };
        share(parts, usize::MAX, || (), write)?;
        Ok(HeldOutFiles { folder, parts })
    }

    /// Visits the place of its domain, and the surprisals by p and by q, of each document.
    fn each<T: Send>(
        &self,
        new: impl Fn() -> T + Sync,
        visit: impl Fn(&mut T, Option<usize>, [&[u16]; 2]) + Sync,
        apply: impl FnMut(T),
    ) -> Result<(), FitError> {
        let read = |value: &mut T, part: usize| {
            let file = File::open(Self::path(self.folder, part))?;
            let mut rest = file.metadata()?.len();
            let mut file = BufReader::new(file);
            let mut codes: Vec<u16> = Vec::new();
            while rest > 0 {
                let mut head = [0u32; 2];
                file.read_exact(bytemuck::cast_slice_mut(&mut head))?;
                let (n_tokens, domain) = (head[0] as usize, head[1] as usize);
                codes.resize(2 * n_tokens, 0);
                file.read_exact(bytemuck::cast_slice_mut(&mut codes))?;
                rest -= 8 + 4 * n_tokens as u64;
                let (p, q) = codes.split_at(n_tokens);
                visit(value, domain.checked_sub(1), [p, q]);
            }
            Ok(())
        };
        share(self.parts, usize::MAX, new, read)?
            .into_iter()
            .for_each(apply);
        Ok(())
    }
}

fn is_above(prior: &FoldedPrior, document: &TokenDocument<'_>, cut: (f64, u128)) -> bool {
    let order = prior.score(document).total_cmp(&cut.0);
    order.is_gt() || (order.is_eq() && document.content <= cut.1)
}

struct FittedNgramExcess {
    models: NgramModels,
    usefulness: Usefulness,
    q_is_folded: bool,
    folds: u32,
    window_tokens: usize,
    vocabulary_size: u32,
    description: serde_json::Value,
}

thread_local! {
    /// Surprisals of the document in work, kept so that no document allocates.
    static SURPRISALS: RefCell<[Vec<u16>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

/// What a model file holds beside the tables.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Details {
    folds: u32,
    q_is_folded: bool,
    window_tokens: usize,
    calibration: Calibration,
    description: serde_json::Value,
}

/// The models of a file that `goodput fit` made, for a measurement of look-ups alone: those of p by
/// fold, then of q.
///
/// # Errors
/// When the file is no model of this estimator, or damaged.
pub fn models_of_file(path: &Path) -> Result<NgramModels, FitError> {
    let file: ModelFile<Details> = model_file::open(path, (KIND.spec.name, KIND.version))?;
    Ok(file.models)
}

fn load(path: &Path) -> Result<(ModelOrigin, Box<dyn Estimator>), FitError> {
    let file: ModelFile<Details> = model_file::open(path, (KIND.spec.name, KIND.version))?;
    let details = file.details;
    let models = details.folds as usize
        + if details.q_is_folded {
            details.folds as usize
        } else {
            1
        };
    if !(2..=16).contains(&details.folds) || models != file.models.models() {
        return Err(FitError::Data(format!(
            "{}: {} folds do not go with {} models; make it anew with 'goodput fit'",
            path.display(),
            details.folds,
            file.models.models()
        )));
    }
    let estimator = FittedNgramExcess {
        vocabulary_size: file.models.packing().vocabulary_size,
        models: file.models,
        usefulness: Usefulness::new(details.calibration, details.window_tokens),
        q_is_folded: details.q_is_folded,
        folds: details.folds,
        window_tokens: details.window_tokens,
        description: details.description,
    };
    Ok((file.origin, Box::new(estimator)))
}

impl FittedNgramExcess {
    /// The models of p and q that were not fitted on a document.
    fn models_of(&self, document: &TokenDocument<'_>) -> [usize; 2] {
        let fold = fold_of(document, self.folds) as usize;
        let q = self.folds as usize + if self.q_is_folded { fold } else { 0 };
        [fold, q]
    }
}

impl Estimator for FittedNgramExcess {
    fn explain(
        &self,
        document: &TokenDocument<'_>,
    ) -> Result<Option<Vec<TokenExplanation>>, String> {
        check(document, self.vocabulary_size)?;
        let models = self.models_of(document);
        let mut codes = [Vec::new(), Vec::new()];
        self.models.surprisals(models, document.tokens, &mut codes);
        let [p, q] = &codes;
        let contexts = self.models.contexts(models, document.tokens);
        let means = self.usefulness.mean_excess_nats(p, q);
        let factors = self.usefulness.factors(p, q);
        let nats = |code: u16| (f64::from(code) / STEPS_PER_NAT) as f32;
        let explain = |place: usize| TokenExplanation {
            surprisal_general_nats: nats(p[place]),
            surprisal_target_nats: nats(q[place]),
            context_general_tokens: contexts[place][0],
            context_target_tokens: contexts[place][1],
            mean_excess_nats: means[place],
            left: factors[place].left,
            able: factors[place].able,
            want: factors[place].want,
            usefulness: factors[place].product(),
        };
        Ok(Some((0..document.tokens.len()).map(explain).collect()))
    }

    fn save(&self, path: &Path, origin: &ModelOrigin) -> std::io::Result<()> {
        let details = Details {
            folds: self.folds,
            q_is_folded: self.q_is_folded,
            window_tokens: self.window_tokens,
            calibration: *self.usefulness.calibration(),
            description: self.description.clone(),
        };
        let kind = (KIND.spec.name, KIND.version);
        model_file::write(path, kind, origin, &details, &self.models)
    }

    fn score(
        &self,
        document: &TokenDocument<'_>,
        out: &mut TokenScores,
    ) -> Result<DocumentScores, String> {
        check(document, self.vocabulary_size)?;
        let n_tokens = document.tokens.len();
        out.usefulness.resize(n_tokens, 0.0);
        out.excess_nats.resize(n_tokens, 0.0);
        let models = self.models_of(document);
        let sums = SURPRISALS.with_borrow_mut(|codes| {
            self.models.surprisals(models, document.tokens, codes);
            self.usefulness.score(
                &codes[0],
                &codes[1],
                &mut out.usefulness,
                &mut out.excess_nats,
            )
        });
        let n = n_tokens as f64;
        let scores = DocumentScores {
            score: sums.usefulness / n,
            excess_nats: sums.excess_nats / n,
            difficulty: sums.surprisal_nats / n,
        };
        if !scores.score.is_finite() {
            return Err(format!(
                "the score is {}, not a finite number",
                scores.score
            ));
        }
        Ok(scores)
    }

    fn describe(&self) -> serde_json::Value {
        self.description.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Corpus, fit, fit_within, origin, score_all};
    use super::*;
    use crate::algo::hash::keyed_by;
    use crate::record::Value;

    const VOCABULARY: u32 = 40;

    fn estimator() -> NgramExcess {
        NgramExcess {
            model: None,
            reference_is_self: false,
            order: 3,
            fit_tokens: 1 << 30,
            model_ngrams: 1 << 20,
            folds: 2,
            window_tokens: 8,
            min_domain_tokens: 1,
        }
    }

    /// A cycle through the ids with a step of 1 or 2; `noise` ids are drawn at random.
    fn text(n: u64, seed: u64, noise: bool) -> Vec<Vec<u32>> {
        (0..n)
            .map(|document| {
                let mut token = keyed_by(seed, document) as u32 % VOCABULARY;
                (0..60u64)
                    .map(|place| {
                        let draw = keyed_by(seed ^ 0xABCD, document * 100 + place) as u32;
                        token = if noise {
                            draw % VOCABULARY
                        } else {
                            (token + 1 + draw % 2) % VOCABULARY
                        };
                        token
                    })
                    .collect()
            })
            .collect()
    }

    fn corpus() -> Corpus {
        Corpus::new([text(30, 1, false), text(60, 2, true)].concat())
    }

    fn reference() -> Corpus {
        Corpus::new(text(40, 3, false))
    }

    #[test]
    fn text_like_the_reference_ranks_above_noise() {
        let fitted = fit(&estimator(), &corpus(), Some(&reference()), VOCABULARY).expect("fits");
        let scores = score_all(&*fitted, &corpus());
        let (good, bad) = scores.split_at(30);
        let lowest = good.iter().map(|s| s.0.score).fold(f64::INFINITY, f64::min);
        let highest = bad.iter().map(|s| s.0.score).fold(0.0, f64::max);
        assert!(lowest > highest, "{lowest} {highest}");
        for (document, tokens) in &scores {
            assert_eq!(
                (tokens.usefulness.len(), tokens.excess_nats.len()),
                (60, 60)
            );
            assert!(tokens.usefulness.iter().all(|u| (0.0..=1.0).contains(u)));
            let mean = tokens.usefulness.iter().map(|&u| f64::from(u)).sum::<f64>() / 60.0;
            assert_eq!(mean.to_bits(), document.score.to_bits());
            assert!(document.difficulty > 0.0 && document.excess_nats.is_finite());
        }
        let description = fitted.describe();
        assert!(description["u_ref"].as_f64().expect("a number") > 0.0);
        assert!(description["s_nats"].as_f64().expect("a number") > 0.0);
    }

    fn saved(fitted: &dyn Estimator) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.model");
        fitted.save(&path, &origin()).expect("it is written");
        (folder, path)
    }

    #[test]
    fn a_model_of_a_file_scores_bit_by_bit_as_the_fitted_one() {
        for reference_is_self in [false, true] {
            for order in [2, 5] {
                let method = NgramExcess {
                    reference_is_self,
                    order,
                    ..estimator()
                };
                let reference = reference();
                let reference = (!reference_is_self).then_some(&reference);
                let fitted = fit(&method, &corpus(), reference, VOCABULARY).expect("fits");
                let (_folder, path) = saved(&*fitted);
                let (from, loaded) = load(&path).expect("it is whole");
                assert_eq!(from, origin());
                assert_eq!(loaded.describe(), fitted.describe());
                assert_eq!(
                    score_all(&*loaded, &corpus()),
                    score_all(&*fitted, &corpus())
                );
                let of_file = NgramExcess {
                    model: Some(path),
                    ..method
                };
                let again = fit(&of_file, &corpus(), None, VOCABULARY).expect("it is the same");
                assert_eq!(
                    score_all(&*again, &corpus()),
                    score_all(&*fitted, &corpus())
                );
            }
        }
    }

    #[test]
    fn a_damaged_cut_or_foreign_model_is_refused_by_name() {
        let fitted = fit(&estimator(), &corpus(), Some(&reference()), VOCABULARY).expect("fits");
        let (_folder, path) = saved(&*fitted);
        let whole = std::fs::read(&path).expect("it reads");
        let refused = |bytes: &[u8]| -> String {
            std::fs::write(&path, bytes).expect("it writes");
            let error = load(&path).err().expect("it is refused").to_string();
            assert!(error.contains("a.model"), "{error}");
            error
        };
        // Every byte that counts is under the checksum, or is one of the few before it.
        for place in (0..whole.len()).step_by(97).chain(0..56) {
            let unused = (20..24).contains(&place);
            let mut bytes = whole.clone();
            bytes[place] ^= 1;
            let error = refused(&bytes);
            assert!(error.contains("goodput"), "{error}");
            assert!(!unused || error.contains("version"), "{error}");
        }
        for length in [0, 63, 64, 1000, whole.len() - 1] {
            refused(&whole[..length]);
        }
        assert!(refused(b"{\"a\": 1}").contains("is no model file"));
        let mut newer = whole.clone();
        newer[16] = 9;
        assert!(refused(&newer).contains("version 9"));
        let other = model_file::open::<Details>(&path, ("prior", 1)).err();
        assert!(other.is_some());
    }

    #[test]
    fn a_model_that_others_made_is_refused_with_the_difference() {
        let fitted = fit(&estimator(), &corpus(), Some(&reference()), VOCABULARY).expect("fits");
        let (_folder, path) = saved(&*fitted);
        let refusal = |method: NgramExcess| {
            let method = NgramExcess {
                model: Some(path.clone()),
                ..method
            };
            let error = fit(&method, &corpus(), None, VOCABULARY).err();
            error.expect("it is refused").to_string()
        };
        let cases = [
            (
                NgramExcess {
                    order: 2,
                    ..estimator()
                },
                "order 3 and the pipeline 2",
            ),
            (
                NgramExcess {
                    folds: 3,
                    ..estimator()
                },
                "folds 2",
            ),
            (
                NgramExcess {
                    fit_tokens: 5,
                    ..estimator()
                },
                "fit_tokens",
            ),
            (
                NgramExcess {
                    model_ngrams: 7,
                    ..estimator()
                },
                "model_ngrams",
            ),
            (
                NgramExcess {
                    window_tokens: 1,
                    ..estimator()
                },
                "window_tokens",
            ),
        ];
        for (method, words) in cases {
            let error = refusal(method);
            assert!(
                error.contains(words) && error.contains("a.model"),
                "{error}"
            );
        }
        for change in [
            ModelOrigin {
                seed: 18,
                ..origin()
            },
            ModelOrigin {
                folds_by_component: true,
                ..origin()
            },
            ModelOrigin {
                tokenizer_fingerprint: "another".to_string(),
                ..origin()
            },
        ] {
            fitted.save(&path, &change).expect("it is written");
            assert!(refusal(estimator()).contains("("));
        }
    }

    /// The factors of an explanation give the usefulness, and the contexts are those of the text.
    #[test]
    fn an_explanation_gives_the_usefulness_it_explains() {
        let fitted = fit(&estimator(), &corpus(), Some(&reference()), VOCABULARY).expect("fits");
        let corpus = corpus();
        let mut out = TokenScores::default();
        let mut uses_all = false;
        for number in 0..corpus.documents.len() {
            let document = corpus.document(number);
            fitted.score(&document, &mut out).expect("it scores");
            let explained = fitted.explain(&document).expect("it explains");
            let explained = explained.expect("it has factors");
            assert_eq!(explained.len(), out.usefulness.len());
            for (token, usefulness) in explained.iter().zip(&out.usefulness) {
                assert_eq!(token.usefulness.to_bits(), usefulness.to_bits());
                assert_eq!(token.left * token.able * token.want, token.usefulness);
                assert!(token.context_general_tokens <= 2 && token.context_target_tokens <= 2);
                assert!(token.surprisal_general_nats >= 0.0);
            }
            assert!(
                explained[0].context_general_tokens <= 1,
                "only the begin is before it"
            );
            uses_all |= explained
                .iter()
                .any(|token| token.context_general_tokens == 2);
        }
        assert!(uses_all);
    }

    #[test]
    fn threads_parts_and_memory_change_no_bit() {
        for reference_is_self in [false, true] {
            let of = |parts: usize, threads: usize, memory_bytes: u64| {
                let pool = rayon::ThreadPoolBuilder::new()
                    .num_threads(threads)
                    .build()
                    .expect("threads");
                let (corpus, reference) = (
                    Corpus { parts, ..corpus() },
                    Corpus {
                        parts,
                        ..reference()
                    },
                );
                let reference = (!reference_is_self).then_some(&reference);
                let method = NgramExcess {
                    reference_is_self,
                    ..estimator()
                };
                let fitted = pool
                    .install(|| fit_within(&method, &corpus, reference, VOCABULARY, memory_bytes))
                    .expect("fits");
                (fitted.describe(), score_all(&*fitted, &corpus))
            };
            let expected = of(1, 1, 1 << 30);
            for (parts, threads, memory_bytes) in
                [(1, 4, 1 << 40), (7, 1, 1 << 30), (90, 4, 64 << 20)]
            {
                let got = of(parts, threads, memory_bytes);
                assert_eq!(got.0, expected.0);
                assert!(got.1 == expected.1, "{parts} parts, {threads} threads");
            }
        }
    }

    /// A copy in the same fold leaves the surprisal of the document as it was; one in the other
    /// fold makes it well known.
    #[test]
    fn no_document_is_scored_by_a_model_fitted_on_it() {
        let rare: Vec<u32> = (0..30).map(|i| (i * i * 7 + 3) % VOCABULARY).collect();
        let mut documents = corpus().documents;
        documents.push(rare.clone());
        let mut fold_keys: Vec<u64> = (0..90)
            .map(|i| if i % 2 == 0 { 0 } else { u64::MAX })
            .collect();
        fold_keys.push(0);
        let difficulty = |copies: usize, fold_key: u64| {
            let mut corpus = Corpus {
                documents: documents.clone(),
                fold_keys: Some(fold_keys.clone()),
                parts: 3,
                ..Corpus::new(Vec::new())
            };
            corpus.documents.extend(vec![rare.clone(); copies]);
            corpus
                .fold_keys
                .as_mut()
                .expect("given")
                .extend(vec![fold_key; copies]);
            let fitted = fit(&estimator(), &corpus, Some(&reference()), VOCABULARY).expect("fits");
            let mut out = TokenScores::default();
            fitted
                .score(&corpus.document(90), &mut out)
                .expect("scores")
                .difficulty
        };
        let alone = difficulty(0, 0);
        // c999 comes from the reference's own models, so that not even the clipping moves.
        assert_eq!(difficulty(5, 0).to_bits(), alone.to_bits());
        assert!(difficulty(5, u64::MAX) < alone - 0.5);
    }

    #[test]
    fn reference_documents_of_the_corpus_are_left_out_and_counted() {
        let mut shared = corpus();
        let extra: Vec<u32> = (0..20).map(|i| 39 - i).collect();
        shared.documents.push(extra.clone());
        let with = Corpus::new([reference().documents, vec![extra]].concat());
        let of = |reference: &Corpus| {
            fit(&estimator(), &shared, Some(reference), VOCABULARY).expect("fits")
        };
        let (left_out, absent) = (of(&with), of(&reference()));
        assert_eq!(left_out.describe()["left_out_documents"], 1);
        assert_eq!(absent.describe()["left_out_documents"], 0);
        assert_eq!(left_out.describe()["target"], absent.describe()["target"]);
        assert!(score_all(&*left_out, &shared) == score_all(&*absent, &shared));
    }

    #[test]
    fn small_data_work_or_say_what_is_needed() {
        let two = Corpus::new(text(2, 9, false));
        for corpus in [Corpus::new(vec![vec![5]]), Corpus::new(text(3, 8, true))] {
            let fitted = fit(&estimator(), &corpus, Some(&two), VOCABULARY)
                .expect("two documents, two folds");
            for (document, _) in score_all(&*fitted, &corpus) {
                assert!((0.0..=1.0).contains(&document.score));
            }
        }
        let message = |result: Result<Box<dyn Estimator>, FitError>| {
            result.err().expect("refused").to_string()
        };
        let one = Corpus::new(text(1, 9, false));
        let error = message(fit(&estimator(), &corpus(), Some(&one), VOCABULARY));
        assert!(
            error.contains("1 different documents") && error.contains("2 or more"),
            "{error}"
        );
        let error = message(fit(&estimator(), &two, Some(&two), VOCABULARY));
        assert!(
            error.contains("2 of them also stand in the corpus"),
            "{error}"
        );
        let error = message(fit(
            &estimator(),
            &Corpus::new(vec![]),
            Some(&two),
            VOCABULARY,
        ));
        assert!(error.contains("no document to learn from"), "{error}");
        let of_self = NgramExcess {
            reference_is_self: true,
            ..estimator()
        };
        let error = message(fit(&of_self, &two, None, VOCABULARY));
        assert!(error.contains("all in one fold"), "{error}");
        let error = message(fit(
            &NgramExcess {
                order: 5,
                ..estimator()
            },
            &two,
            Some(&two),
            1 << 30,
        ));
        assert!(error.contains("lower 'order'"), "{error}");
    }

    #[test]
    fn a_flat_reference_gives_finite_scores() {
        let flat = Corpus::new((1..9).map(|n| vec![1; n * 50]).collect());
        let fitted = fit(&estimator(), &corpus(), Some(&flat), VOCABULARY).expect("fits");
        for (document, tokens) in score_all(&*fitted, &corpus()) {
            assert!(document.score.is_finite());
            assert!(tokens.usefulness.iter().all(|u| (0.0..=1.0).contains(u)));
        }
    }

    #[test]
    fn samples_and_prunes_as_asked() {
        let few = NgramExcess {
            fit_tokens: 2000,
            model_ngrams: 50,
            ..estimator()
        };
        let description = fit(&few, &corpus(), Some(&reference()), VOCABULARY)
            .expect("fits")
            .describe();
        let tokens = description["general"]["tokens"].as_u64().expect("a count");
        assert!((1000..3500).contains(&tokens), "{tokens} of 5400");
        for model in description["general_models"].as_array().expect("models") {
            let kept = model["ngrams_kept"].as_array().expect("counts")[1..]
                .iter()
                .map(|n| n.as_u64().expect("a count"));
            assert!(kept.sum::<u64>() <= 50);
        }
        let all = fit(&estimator(), &corpus(), Some(&reference()), VOCABULARY)
            .expect("fits")
            .describe();
        assert_eq!(all["general"]["tokens"], 5400);
        assert_ne!(all["parameter_hash"], description["parameter_hash"]);
    }

    #[test]
    fn the_word_self_stands_alone() {
        let options = |globs: &[&str]| {
            let mut options = Options::default();
            options.set(
                "reference",
                Value::List(globs.iter().map(ToString::to_string).collect()),
            );
            options.set("model", Value::Null);
            for (name, value) in [
                ("order", 3),
                ("fit_tokens", 9),
                ("model_ngrams", 9),
                ("folds", 2),
                ("window_tokens", 8),
                ("min_domain_tokens", 1),
            ] {
                options.set(name, Value::Integer(value));
            }
            options.set("reference_domain", Value::Null);
            options.set("domain", Value::Null);
            build(&options)
        };
        assert!(options(&["self"]).is_ok() && options(&["a/*.jsonl", "!a/b.jsonl"]).is_ok());
        assert_eq!(
            options(&["self", "a"]).err().expect("refused").option,
            "reference"
        );
        assert!(options(&[]).is_err());
    }
}
