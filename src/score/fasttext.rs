//! The probability of a label by a fastText classifier: one trained elsewhere, or trained here to tell
//! the reference from the corpus.

use super::ngram_fit::Learned;
use super::parallel::{Sample, broadcast, check, each_part, fold_of};
use super::unigram::{no_documents, parameter_hash};
use super::{
    DocumentScores, Estimator, EstimatorKind, Fit, FitError, FitInput, ModelOrigin, TokenDocument,
    TokenScores, TokenSource,
};
use crate::algo::fasttext::Model;
use crate::algo::fasttext_training::{LABELS, Training, Words, train};
use crate::algo::hash;
use crate::record::{Kind, OptionError, OptionSpec, Options, Spec, Value};
use crate::spill::{IoContext, read_file};
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Documents with words that a model needs of each set.
const MIN_DOCUMENTS: usize = 10;

/// The estimator `fasttext`.
pub(super) const KIND: EstimatorKind = EstimatorKind {
    spec: Spec {
        name: "fasttext",
        summary: "Probability of a label by a fastText classifier, read from a file or trained on the reference against \
                  the corpus",
        details: "score is the probability of a label for the whole text, from 0 to 1, as the fastText library says it \
                  of the text with its line ends made spaces; each token has its document's score. 0 where the model \
                  knows no word of the text. Difficulty and excess are 0. This is how DCLM (Li et al. 2024) and \
                  PreSelect (Shum et al. 2025) choose documents. The texts are kept in the work folder while the run \
                  lasts.\n\
                  \n\
                  With `model` and `label` it is a label of a model of the fastText library (`supervised`): quantised \
                  ones, word and character n-grams and every loss are read. A document is scored by the same model \
                  whether or not the model learned from it, so train it on other documents.\n\
                  \n\
                  With `reference` it is the probability that a text is of the reference, not of the negative set: the \
                  files of `negative`, or the corpus itself. Training is that of the library's `supervised` with \
                  softmax and one thread (Joulin et al. 2016): mean of the rows of words and hashed n-grams, stochastic \
                  gradient descent, a learning rate that falls linearly to 0. A document is one line. Both sets weigh \
                  the same: they take turns document by document, each in an order drawn by content, the smaller from \
                  its start again when it ends, so 0.5 stands for a text as likely in either. Words are what white \
                  space divides, so a language without it needs character n-grams. No document is scored by a model \
                  that learned from it: where the corpus is the negative set there is a model for each fold, trained \
                  on the other folds; and documents of the reference, or of `negative`, that also stand in the corpus \
                  are left out and counted, as are those of the reference that stand in `negative`. Each model needs \
                  10 documents of each set. With `negative` there is one model, which `goodput fit` writes as a `.bin` \
                  file for the library, or for `model` with the label __label__reference.",
        options: &[
            OptionSpec {
                name: "reference",
                kind: Kind::Globs,
                default: Some("null"),
                doc: "files of good text, never an evaluation set: the positive set of a classifier that is trained",
            },
            OptionSpec {
                name: "negative",
                kind: Kind::Globs,
                default: Some("null"),
                doc: "files of the text to tell the reference from, read like those of `reference`; the corpus itself \
                      when absent",
            },
            OptionSpec {
                name: "model",
                kind: Kind::Path,
                default: Some("null"),
                doc: "a trained classifier in place of `reference`, a `.bin` or `.ftz` file of format version 11 or 12; \
                      held in memory",
            },
            OptionSpec {
                name: "label",
                kind: Kind::Text,
                default: Some("null"),
                doc: "the label of useful text, as it stands in `model`",
            },
            OptionSpec {
                name: "fit_tokens",
                kind: Kind::Integer {
                    min: 1,
                    max: 1_000_000_000,
                },
                default: Some("10_000_000"),
                doc: "tokens of each set that are learned from, about, drawn by document; all where there are not more. \
                      They take about 10 bytes of memory each",
            },
            OptionSpec {
                name: "folds",
                kind: Kind::Integer { min: 2, max: 16 },
                default: Some("2"),
                doc: "parts of the corpus where it is the negative set; a document is scored by the model of the other \
                      parts",
            },
            OptionSpec {
                name: "epochs",
                kind: Kind::Integer { min: 1, max: 1000 },
                default: Some("5"),
                doc: "how often the larger set is gone through",
            },
            OptionSpec {
                name: "learning_rate",
                kind: Kind::Number {
                    min: 0.0001,
                    max: 100.0,
                },
                default: Some("0.1"),
                doc: "learning rate of the first step",
            },
            OptionSpec {
                name: "dimensions",
                kind: Kind::Integer { min: 1, max: 1000 },
                default: Some("8"),
                doc: "numbers in the row of a word or n-gram",
            },
            OptionSpec {
                name: "word_ngrams",
                kind: Kind::Integer { min: 1, max: 5 },
                default: Some("2"),
                doc: "words in the longest n-gram",
            },
            OptionSpec {
                name: "min_ngram_characters",
                kind: Kind::Integer { min: 1, max: 16 },
                default: Some("3"),
                doc: "characters in the shortest character n-gram, the marks of a word's start and end included",
            },
            OptionSpec {
                name: "max_ngram_characters",
                kind: Kind::Integer { min: 0, max: 16 },
                default: Some("0"),
                doc: "characters in the longest character n-gram; 0 for none",
            },
            OptionSpec {
                name: "buckets",
                kind: Kind::Integer {
                    min: 1,
                    max: 100_000_000,
                },
                default: Some("500_000"),
                doc: "rows that n-grams share by their hash. A row takes 4 bytes for each dimension, twice while training",
            },
            OptionSpec {
                name: "min_word_count",
                kind: Kind::Integer {
                    min: 1,
                    max: 1_000_000_000,
                },
                default: Some("1"),
                doc: "occurrences in both sets that a word needs for a row of its own; one with exactly so many has it",
            },
            OptionSpec {
                name: "max_words",
                kind: Kind::Integer {
                    min: 1,
                    max: 100_000_000,
                },
                default: Some("500_000"),
                doc: "words with a row of their own at most; the most frequent have one",
            },
        ],
        example: "{ reference: data/reference/*.jsonl.zst }",
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

/// Options of training, absent with `model`.
const OF_TRAINING: [&str; 11] = [
    "fit_tokens",
    "folds",
    "epochs",
    "learning_rate",
    "dimensions",
    "word_ngrams",
    "min_ngram_characters",
    "max_ngram_characters",
    "buckets",
    "min_word_count",
    "max_words",
];

/// Whether an option of a number is what it is when absent.
fn is_default(options: &Options, name: &str) -> bool {
    let spec = KIND.spec.options.iter().find(|spec| spec.name == name);
    let default = spec
        .and_then(|spec| spec.default)
        .map(|text| text.replace('_', ""));
    let default = default.and_then(|text| text.parse::<f64>().ok());
    options.number_if_given(name) == default
}

fn build(options: &Options) -> Result<Box<dyn Fit>, OptionError> {
    match options.text_if_given("model") {
        Some(path) => build_read(path, options),
        None => build_trained(options),
    }
}

fn build_read(path: &str, options: &Options) -> Result<Box<dyn Fit>, OptionError> {
    for name in ["reference", "negative"] {
        let globs = options.list(name);
        if !globs.is_empty() {
            return Err(OptionError::new(
                name,
                "absent where 'model' names a trained classifier",
                format!("[{}]", globs.join(", ")),
            ));
        }
    }
    if let Some(name) = OF_TRAINING.iter().find(|name| !is_default(options, name)) {
        let found = match options.get(name) {
            Value::Number(number) => number.to_string(),
            _ => options.integer(name).to_string(),
        };
        return Err(OptionError::new(
            name,
            "absent where 'model' names a trained classifier",
            found,
        ));
    }
    let wrong = |problem: String| {
        let must_be = "a supervised fastText model (.bin or .ftz)";
        OptionError::new("model", must_be, format!("'{path}': {problem}"))
    };
    let bytes = read_file(Path::new(path)).map_err(|error| wrong(error.to_string()))?;
    let model = Model::parse(bytes).map_err(wrong)?;
    let labels: Vec<&str> = model.labels().take(20).collect();
    let must_be = format!("a label of the model ({})", labels.join(", "));
    let Some(name) = options.text_if_given("label") else {
        return Err(OptionError::new("label", must_be, "none"));
    };
    let Some(label) = model.labels().position(|label| label == name) else {
        return Err(OptionError::new("label", must_be, format!("'{name}'")));
    };
    Ok(Box::new(FromFile {
        path: PathBuf::from(path),
        model: Arc::new(model),
        label,
        label_name: name.to_string(),
    }))
}

fn build_trained(options: &Options) -> Result<Box<dyn Fit>, OptionError> {
    for (name, must_be) in [
        (
            "reference",
            "globs of files of good text, where no 'model' is named",
        ),
        (
            "negative",
            "globs of files of text; for the corpus itself leave it out",
        ),
    ] {
        let globs = options.list(name);
        let is_missing = name == "reference" && globs.is_empty();
        if is_missing || globs.iter().any(|glob| glob == "self") {
            return Err(OptionError::new(
                name,
                must_be,
                format!("[{}]", globs.join(", ")),
            ));
        }
    }
    if let Some(label) = options.text_if_given("label") {
        return Err(OptionError::new(
            "label",
            "absent without 'model': the score is the probability of the reference",
            format!("'{label}'"),
        ));
    }
    let names_negative = !options.list("negative").is_empty();
    if names_negative && !is_default(options, "folds") {
        return Err(OptionError::new(
            "folds",
            "absent beside 'negative', with which there is one model",
            options.integer("folds"),
        ));
    }
    let size = |name: &str| options.integer(name) as usize;
    let (min_chars, max_chars) = (size("min_ngram_characters"), size("max_ngram_characters"));
    if max_chars == 0 && !is_default(options, "min_ngram_characters") {
        return Err(OptionError::new(
            "min_ngram_characters",
            "beside 'max_ngram_characters': without it there are no character n-grams",
            min_chars,
        ));
    }
    if max_chars > 0 && max_chars < min_chars {
        return Err(OptionError::new(
            "max_ngram_characters",
            format!("min_ngram_characters ({min_chars}) or more, or 0"),
            max_chars,
        ));
    }
    if size("word_ngrams") == 1 && max_chars == 0 && !is_default(options, "buckets") {
        return Err(OptionError::new(
            "buckets",
            "absent where no n-grams are hashed; raise 'word_ngrams' or 'max_ngram_characters'",
            size("buckets"),
        ));
    }
    Ok(Box::new(Trained {
        names_negative,
        fit_tokens: options.integer("fit_tokens"),
        folds: options.integer("folds") as u32,
        training: Training {
            dimensions: size("dimensions"),
            epochs: options.integer("epochs") as u32,
            learning_rate: options.number("learning_rate") as f32,
            word_ngrams: size("word_ngrams"),
            character_ngrams: [min_chars, max_chars],
            buckets: options.integer("buckets") as u32,
            min_word_count: options.integer("min_word_count"),
            max_words: size("max_words"),
        },
    }))
}

/// A classifier of a file.
struct FromFile {
    path: PathBuf,
    model: Arc<Model>,
    label: usize,
    label_name: String,
}

impl Fit for FromFile {
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
        Ok(Box::new(Fitted {
            models: vec![Arc::clone(&self.model)],
            label: self.label,
            vocabulary_size: input.vocabulary_size,
            description,
        }))
    }
}

/// A classifier to train.
struct Trained {
    names_negative: bool,
    fit_tokens: u64,
    folds: u32,
    training: Training,
}

/// A document to learn from.
struct Example {
    /// Its place in the order of training.
    key: (u64, u64),
    fold: u32,
    tokens: u64,
    /// Its words among those of its set.
    words: std::ops::Range<usize>,
}

/// Documents to learn from, as numbers of words.
#[derive(Default)]
struct Examples {
    words: Vec<u32>,
    documents: Vec<Example>,
}

impl Examples {
    fn of(&self, example: &Example) -> &[u32] {
        &self.words[example.words.clone()]
    }

    fn learned(&self) -> Learned {
        Learned {
            documents: self.documents.len() as u64,
            tokens: self.documents.iter().map(|example| example.tokens).sum(),
        }
    }

    fn describe(&self) -> serde_json::Value {
        let learned = self.learned();
        serde_json::json!({
            "documents": learned.documents,
            "tokens": learned.tokens,
            "words": self.words.len(),
        })
    }

    /// The documents outside a fold, all without one.
    fn outside(&self, fold: Option<u32>) -> Vec<&[u32]> {
        let documents = self.documents.iter();
        documents
            .filter(|example| Some(example.fold) != fold)
            .map(|example| self.of(example))
            .collect()
    }
}

/// Gathers the documents of a source that `draws` draws, in the order of their keys, which threads and
/// the cut into parts don't change.
fn gather(
    source: &dyn TokenSource,
    folds: u32,
    seed: u64,
    all_words: &mut Words,
    draws: impl Fn(&TokenDocument<'_>) -> bool + Sync,
) -> Result<Examples, FitError> {
    let purpose = hash::purpose_key(seed, "fasttext order");
    let mut examples = Examples::default();
    each_part(
        source,
        <(Words, Examples)>::default,
        |(words, part), document| {
            if !draws(document) {
                return;
            }
            let start = part.words.len();
            words.each_of(document.text, |word| part.words.push(word));
            if part.words.len() == start {
                return;
            }
            part.documents.push(Example {
                key: (
                    hash::keyed_by(purpose, document.content as u64),
                    document.sample_key,
                ),
                fold: fold_of(document, folds),
                tokens: document.tokens.len() as u64,
                words: start..part.words.len(),
            });
        },
        |(words, part)| {
            let numbers: Vec<u32> = words
                .by_number()
                .iter()
                .map(|word| all_words.number(word))
                .collect();
            let start = examples.words.len();
            let of_part = part.words.iter().map(|&word| numbers[word as usize]);
            examples.words.extend(of_part);
            let moved = part.documents.into_iter().map(|example| Example {
                words: example.words.start + start..example.words.end + start,
                ..example
            });
            examples.documents.extend(moved);
        },
    )?;
    examples
        .documents
        .sort_unstable_by_key(|example| example.key);
    Ok(examples)
}

/// The sorted contents of a source's documents.
fn contents(source: &dyn TokenSource) -> Result<Vec<u128>, FitError> {
    let mut contents: Vec<u128> = Vec::new();
    each_part(
        source,
        Vec::new,
        |part: &mut Vec<u128>, document| part.push(document.content),
        |part| contents.extend(part),
    )?;
    contents.sort_unstable();
    contents.dedup();
    Ok(contents)
}

/// Both sets, and what was left out of them.
struct Sets {
    words: Words,
    reference: Examples,
    negative: Examples,
    left_out_reference: u64,
    left_out_negative: u64,
}

impl Trained {
    fn sets(&self, input: &FitInput<'_>) -> Result<Sets, FitError> {
        let named = |source, name: &str| match source {
            Some(source) => Ok::<&dyn TokenSource, FitError>(source),
            None => Err(FitError::Data(format!(
                "'{name}' names no documents; name files of text"
            ))),
        };
        let reference = named(input.reference, "reference")?;
        let mut words = Words::default();
        let of_reference = contents(reference)?;
        let is_in = |set: &[u128], document: &TokenDocument<'_>| {
            set.binary_search(&document.content).is_ok()
        };
        let mut shared: Vec<u128> = Vec::new();
        let mut find_shared = |sets: &[&[u128]]| {
            each_part(
                input.corpus,
                Vec::new,
                |part: &mut Vec<u128>, document| {
                    if sets.iter().any(|set| is_in(set, document)) {
                        part.push(document.content);
                    }
                },
                |part| shared.extend(part),
            )
        };
        let mut left_out_negative = 0;
        let (negative, of_negative) = if self.names_negative {
            let source = named(input.negative, "negative")?;
            let of_negative = contents(source)?;
            find_shared(&[&of_reference, &of_negative])?;
            shared.sort_unstable();
            left_out_negative = count(source, |document| is_in(&shared, document))?;
            let sample = Sample::new(self.fit_tokens, source.tokens());
            let negative = gather(source, 1, input.seed, &mut words, |document| {
                sample.draws(document) && !is_in(&shared, document)
            })?;
            (negative, of_negative)
        } else {
            find_shared(&[&of_reference])?;
            shared.sort_unstable();
            let sample = Sample::new(self.fit_tokens, input.corpus.tokens());
            let draws = |document: &TokenDocument<'_>| sample.draws(document);
            let negative = gather(input.corpus, self.folds, input.seed, &mut words, draws)?;
            (negative, Vec::new())
        };
        let is_left_out = |document: &TokenDocument<'_>| {
            is_in(&shared, document) || is_in(&of_negative, document)
        };
        let left_out_reference = count(reference, is_left_out)?;
        let sample = Sample::new(self.fit_tokens, reference.tokens());
        let reference = gather(reference, 1, input.seed, &mut words, |document| {
            sample.draws(document) && !is_left_out(document)
        })?;
        Ok(Sets {
            words,
            reference,
            negative,
            left_out_reference,
            left_out_negative,
        })
    }

    /// The fold without which each model is trained.
    fn models(&self) -> Vec<Option<u32>> {
        match self.names_negative {
            true => vec![None],
            false => (0..self.folds).map(Some).collect(),
        }
    }

    fn refuse_too_few(&self, sets: &Sets) -> Result<(), FitError> {
        if sets.negative.documents.is_empty() && !self.names_negative {
            return Err(no_documents());
        }
        let n_reference = sets.reference.documents.len();
        if n_reference < MIN_DOCUMENTS {
            return Err(FitError::Data(format!(
                "the reference has {n_reference} documents with words to learn from, training needs {MIN_DOCUMENTS} or \
                 more ({} documents of it also stand in the corpus or in 'negative' and are left out); name more \
                 reference files, or raise 'fit_tokens'",
                sets.left_out_reference
            )));
        }
        let outside = |&fold: &Option<u32>| sets.negative.outside(fold).len();
        let n_negative = self.models().iter().map(outside).min().unwrap_or(0);
        let (whose, more) = match self.names_negative {
            false if n_negative == 0 => return Err(no_documents()),
            false => (
                "the corpus outside one of its folds",
                "add documents, or name files of other text as 'negative'",
            ),
            true => ("the negative set", "name more files as 'negative'"),
        };
        if n_negative < MIN_DOCUMENTS {
            return Err(FitError::Data(format!(
                "{whose} has {n_negative} documents with words to learn from, training needs {MIN_DOCUMENTS} or more \
                 ({} documents of 'negative' also stand in the corpus and are left out); {more}, or raise 'fit_tokens'",
                sets.left_out_negative
            )));
        }
        Ok(())
    }
}

/// Documents of a source for which `holds`.
fn count(
    source: &dyn TokenSource,
    holds: impl Fn(&TokenDocument<'_>) -> bool + Sync,
) -> Result<u64, FitError> {
    let mut found = 0;
    each_part(
        source,
        || 0u64,
        |part, document| *part += u64::from(holds(document)),
        |part| found += part,
    )?;
    Ok(found)
}

impl Fit for Trained {
    fn model_bytes(&self, tokens: u64) -> u64 {
        let learned = tokens.min(self.fit_tokens.saturating_mul(2));
        // Words that are met: their spelling, in a table; a word is more than a token.
        let words = usize::try_from(learned / 8).unwrap_or(usize::MAX);
        let models = self.models().len() as u64;
        self.training.bytes(words) * models + learned * 8
    }

    fn keeps_model(&self) -> bool {
        self.names_negative
    }

    fn fit(&self, input: &FitInput<'_>) -> Result<Box<dyn Estimator>, FitError> {
        let mut sets = self.sets(input)?;
        self.refuse_too_few(&sets)?;
        let words = std::mem::take(&mut sets.words).by_number();
        let word_bytes: usize = words.iter().map(|word| word.len() + 32).sum();
        let n_words = sets.reference.words.len() + sets.negative.words.len();
        let models = self.models();
        let needed = word_bytes as u64
            + n_words as u64 * 4
            + self.training.bytes(words.len()) * models.len() as u64;
        if needed > input.memory_bytes {
            return Err(FitError::Memory {
                what: format!("training {} models needs", models.len()),
                lower: "'fit_tokens', 'buckets', 'max_words' or 'dimensions'",
                needed_bytes: needed,
                given_bytes: input.memory_bytes,
            });
        }
        let reference = sets.reference.outside(None);
        let trained = models
            .into_par_iter()
            .with_max_len(1)
            .map(|fold| {
                let negative = sets.negative.outside(fold);
                let purpose = hash::purpose_key(input.seed, "fasttext initial values");
                let key = hash::keyed_by(purpose, u64::from(fold.unwrap_or(0)));
                let go_on = || input.corpus.go_on();
                let both = [&reference[..], &negative[..]];
                let (file, report) = train(&words, both, &self.training, key, go_on)?;
                if !report.loss_nats.is_finite() {
                    return Err(FitError::Data(format!(
                        "training left the range of numbers; lower 'learning_rate', which is {}",
                        self.training.learning_rate
                    )));
                }
                let model = Model::parse(file).expect("what was trained is a model");
                let description = serde_json::json!({
                    "words": report.words,
                    "negative_documents": negative.len(),
                    "last_epoch_loss_nats": report.loss_nats,
                });
                Ok((Arc::new(model), description))
            })
            .collect::<Result<Vec<_>, FitError>>()?;
        let (models, descriptions): (Vec<_>, Vec<_>) = trained.into_iter().unzip();

        let training = &self.training;
        let mut description = serde_json::json!({
            "estimator": KIND.spec.name,
            "version": KIND.version,
            "label": LABELS[0],
            "negative": if self.names_negative { "files" } else { "corpus" },
            "fit_tokens": self.fit_tokens,
            "folds": if self.names_negative { None } else { Some(self.folds) },
            "epochs": training.epochs,
            "learning_rate": training.learning_rate,
            "dimensions": training.dimensions,
            "word_ngrams": training.word_ngrams,
            "ngram_characters": training.character_ngrams,
            "buckets": training.buckets,
            "min_word_count": training.min_word_count,
            "max_words": training.max_words,
            "target": sets.reference.describe(),
            "general": sets.negative.describe(),
            "left_out_documents": sets.left_out_reference,
            "left_out_negative_documents": sets.left_out_negative,
            "models": descriptions,
            "calibration": "uncalibrated (probability of a label)",
        });
        let checksum = models.iter().fold(0, |sum, model| {
            xxhash_rust::xxh3::xxh3_64_with_seed(model.bytes(), sum)
        });
        description["parameter_hash"] = parameter_hash(&description, input.seed, checksum).into();
        Ok(Box::new(Fitted {
            models,
            label: 0,
            vocabulary_size: input.vocabulary_size,
            description,
        }))
    }
}

struct Fitted {
    /// One, or by fold of the documents that it scores.
    models: Vec<Arc<Model>>,
    label: usize,
    vocabulary_size: u32,
    description: serde_json::Value,
}

impl Estimator for Fitted {
    fn score(
        &self,
        document: &TokenDocument<'_>,
        out: &mut TokenScores,
    ) -> Result<DocumentScores, String> {
        check(document, self.vocabulary_size)?;
        let model = &self.models[fold_of(document, self.models.len() as u32) as usize];
        let probability = model.probability(document.text, self.label);
        let probability = probability.unwrap_or(0.0);
        if !probability.is_finite() {
            return Err(format!(
                "the model says {probability}, which is no probability"
            ));
        }
        Ok(broadcast(f64::from(probability), document, out))
    }

    /// A `.bin` file, where one model scores all documents.
    fn save(&self, path: &Path, _origin: &ModelOrigin) -> std::io::Result<()> {
        let [model] = &self.models[..] else {
            return Ok(());
        };
        let temporary = path.with_extension("tmp");
        std::fs::write(&temporary, model.bytes()).context("write", &temporary)?;
        std::fs::rename(&temporary, path).context("write", path)
    }

    fn describe(&self) -> serde_json::Value {
        self.description.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Corpus, fit, fit_against, origin, score_all};
    use super::*;

    const VOCABULARY: u32 = 256;

    fn trained(names_negative: bool) -> Trained {
        Trained {
            names_negative,
            fit_tokens: 1 << 40,
            folds: 2,
            training: Training {
                dimensions: 4,
                epochs: 30,
                learning_rate: 0.5,
                word_ngrams: 2,
                character_ngrams: [3, 0],
                buckets: 1000,
                min_word_count: 1,
                max_words: 1000,
            },
        }
    }

    /// Texts of 12 words, half of them of `topic`, the others common to all.
    fn texts(n: usize, topic: &[&str], purpose: &str) -> Vec<String> {
        const COMMON: [&str; 6] = ["the", "of", "and", "a", "in", "to"];
        let text = |number: usize| {
            let word = |at: usize| {
                let draw = hash::keyed(3, purpose, (number * 100 + at) as u64) as usize;
                match draw % 2 {
                    0 => topic[draw / 2 % topic.len()],
                    _ => COMMON[draw / 2 % COMMON.len()],
                }
            };
            (0..12).map(word).collect::<Vec<_>>().join(" ")
        };
        (0..n).map(text).collect()
    }

    fn corpus_of(texts: &[String]) -> Corpus {
        Corpus::of_texts(&texts.iter().map(String::as_str).collect::<Vec<_>>())
    }

    const SOIL: [&str; 5] = ["soil", "salt", "root", "water", "field"];
    const SHOP: [&str; 5] = ["buy", "price", "cart", "offer", "now"];

    fn reference() -> Vec<String> {
        texts(40, &SOIL, "reference")
    }

    /// 20 good documents, then 60 others.
    fn mixed() -> Vec<String> {
        [texts(20, &SOIL, "good"), texts(60, &SHOP, "bad")].concat()
    }

    #[test]
    fn tells_the_reference_from_the_corpus_and_from_named_files() {
        let corpus = corpus_of(&mixed());
        let reference = corpus_of(&reference());
        let negative = corpus_of(&texts(50, &SHOP, "negative"));
        let by_corpus = fit(&trained(false), &corpus, Some(&reference), VOCABULARY);
        let by_files = fit_against(
            &trained(true),
            &corpus,
            Some(&reference),
            Some(&negative),
            VOCABULARY,
        );
        for fitted in [by_corpus.expect("fits"), by_files.expect("fits")] {
            let scores = score_all(&*fitted, &corpus);
            let (good, bad) = scores.split_at(20);
            let pairs = good.iter().flat_map(|good| {
                bad.iter()
                    .map(move |bad| f64::from(u8::from(good.0.score > bad.0.score)))
            });
            let area = pairs.sum::<f64>() / (good.len() * bad.len()) as f64;
            assert!(area > 0.97, "{area}");
            assert!(scores.iter().all(|(document, tokens)| {
                let same = |&u: &f32| u == document.score as f32;
                tokens.usefulness.iter().all(same)
            }));
        }
    }

    /// A copy in the same fold changes no score of it, a copy in the other fold lowers it.
    #[test]
    fn no_document_is_scored_by_a_model_that_learned_from_it() {
        let score = |copies: usize, fold_key: u64| {
            let mut texts = mixed();
            let mut fold_keys: Vec<u64> = (0..80).map(|n| n % 2 * u64::MAX).collect();
            texts.extend(vec![texts[0].clone(); copies]);
            fold_keys.extend(vec![fold_key; copies]);
            let corpus = Corpus {
                fold_keys: Some(fold_keys),
                ..corpus_of(&texts)
            };
            let reference = corpus_of(&reference());
            let fitted = fit(&trained(false), &corpus, Some(&reference), VOCABULARY);
            score_all(&*fitted.expect("fits"), &corpus)[0].0.score
        };
        assert_eq!(score(5, 0).to_bits(), score(0, 0).to_bits());
        assert!(score(5, u64::MAX) < score(0, 0));
    }

    #[test]
    fn documents_in_both_sets_or_in_the_corpus_are_left_out_and_counted() {
        let (texts_of_corpus, good) = (mixed(), reference());
        let negative = texts(50, &SHOP, "negative");
        let with_copies = [&good[..], &texts_of_corpus[..3], &negative[..2]].concat();
        let negative_with_copies = [&negative[..], &texts_of_corpus[40..44]].concat();
        let corpus = corpus_of(&texts_of_corpus);
        let of = |reference: &[String], negative: Option<&[String]>| {
            let negative = negative.map(corpus_of);
            let fitted = fit_against(
                &trained(negative.is_some()),
                &corpus,
                Some(&corpus_of(reference)),
                negative.as_ref(),
                VOCABULARY,
            )
            .expect("fits");
            (fitted.describe(), score_all(&*fitted, &corpus))
        };
        let (described, scores) = of(&with_copies, Some(&negative_with_copies));
        assert_eq!(described["left_out_documents"], 5);
        assert_eq!(described["left_out_negative_documents"], 4);
        let (clean, scores_of_clean) = of(&good, Some(&negative));
        assert_eq!(clean["left_out_documents"], 0);
        assert_eq!(described["target"], clean["target"]);
        assert!(scores == scores_of_clean);
        let (described, scores) = of(&with_copies[..43], None);
        assert_eq!(described["left_out_documents"], 3);
        assert!(scores == of(&good, None).1);
    }

    #[test]
    fn parts_threads_and_the_order_of_documents_change_nothing() {
        let of = |parts, threads, turned: bool| {
            let turn = |mut texts: Vec<String>| {
                if turned {
                    texts.reverse();
                }
                Corpus {
                    parts,
                    ..corpus_of(&texts)
                }
            };
            // A text that stands there twice keeps its place in the order.
            let corpus = turn([mixed(), mixed()[..5].to_vec()].concat());
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .expect("threads");
            let fitted = pool
                .install(|| {
                    let reference = turn(reference());
                    fit(&trained(false), &corpus, Some(&reference), VOCABULARY)
                })
                .expect("fits");
            let mut scores = score_all(&*fitted, &corpus);
            if turned {
                scores.reverse();
            }
            (fitted.describe(), scores)
        };
        assert!(of(1, 1, false) == of(5, 4, false));
        assert!(of(1, 1, false) == of(3, 2, true));
    }

    #[test]
    fn a_sample_is_drawn_of_each_set() {
        let half = Trained {
            fit_tokens: 1200,
            ..trained(false)
        };
        let corpus = corpus_of(&mixed());
        let fitted = fit(&half, &corpus, Some(&corpus_of(&reference())), VOCABULARY);
        let described = fitted.expect("fits").describe();
        let tokens = |set: &str| described[set]["tokens"].as_u64().expect("a number");
        for (set, whole) in [("target", 40), ("general", 80)] {
            let documents = described[set]["documents"].as_u64().expect("a number");
            assert!(documents < whole && documents >= 10, "{set}: {documents}");
            assert!((600..1900).contains(&tokens(set)), "{set}: {described}");
        }
    }

    #[test]
    fn a_model_is_saved_as_a_file_that_scores_the_same() {
        let corpus = corpus_of(&mixed());
        let reference = corpus_of(&reference());
        let negative = corpus_of(&texts(50, &SHOP, "negative"));
        let fitted = fit_against(
            &trained(true),
            &corpus,
            Some(&reference),
            Some(&negative),
            VOCABULARY,
        )
        .expect("fits");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("quality.bin");
        fitted.save(&path, &origin()).expect("it is written");
        let mut options = Options::default();
        for spec in KIND.spec.options {
            let number = spec.default.map(|text| text.replace('_', ""));
            let number = number.and_then(|text| text.parse::<f64>().ok());
            options.set(spec.name, number.map_or(Value::Null, Value::Number));
            if let (Kind::Integer { .. }, Some(number)) = (&spec.kind, number) {
                options.set(spec.name, Value::Integer(number as u64));
            }
        }
        options.set("model", Value::Text(path.to_string_lossy().into_owned()));
        options.set("label", Value::Text(LABELS[0].to_string()));
        let read = (KIND.build)(&options).expect("a model");
        let read = fit(&*read, &corpus, None, VOCABULARY).expect("nothing to learn");
        assert!(score_all(&*fitted, &corpus) == score_all(&*read, &corpus));

        options.set("epochs", Value::Integer(6));
        let refused = (KIND.build)(&options).err().expect("it is trained");
        assert_eq!((refused.option, &*refused.found), ("epochs", "6"));
    }

    #[test]
    fn too_little_to_learn_from_is_refused_with_the_least_size() {
        let message = |trained: &Trained, corpus: &[String], reference: &[String], negative| {
            let negative: Option<Vec<String>> = negative;
            let negative = negative.as_deref().map(corpus_of);
            let corpus = corpus_of(corpus);
            let reference = corpus_of(reference);
            fit_against(
                trained,
                &corpus,
                Some(&reference),
                negative.as_ref(),
                VOCABULARY,
            )
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
        };
        let (corpus, good) = (mixed(), reference());
        assert_eq!(message(&trained(false), &corpus, &good[..10], None), "");
        let error = message(&trained(false), &corpus, &good[..9], None);
        assert!(
            error.contains("9 documents") && error.contains("10 or more"),
            "{error}"
        );
        let error = message(&trained(false), &good, &good, None);
        assert!(error.contains("40 documents of it also stand"), "{error}");
        let error = message(&trained(false), &corpus[..1], &good, None);
        assert!(error.contains("no document to learn from"), "{error}");
        let error = message(&trained(false), &corpus[..12], &good, None);
        assert!(error.contains("outside one of its folds"), "{error}");
        let negative = texts(10, &SHOP, "negative");
        assert_eq!(
            message(&trained(true), &corpus, &good, Some(negative.clone())),
            ""
        );
        let error = message(&trained(true), &corpus, &good, Some(negative[..9].to_vec()));
        assert!(error.contains("the negative set has 9"), "{error}");
        let mut wild = trained(false);
        wild.training.learning_rate = 1e30;
        let error = message(&wild, &corpus, &good, None);
        assert!(error.contains("lower 'learning_rate'"), "{error}");
        let mut large = trained(false);
        large.training.buckets = 1 << 28;
        let error = message(&large, &corpus, &good, None);
        assert!(
            error.contains("'buckets'") && error.contains("--memory"),
            "{error}"
        );
    }
}
