//! The contract of an estimator.

use super::ModelOrigin;
use crate::algo::isotonic::Curve;
use crate::record::{OptionError, Options, Spec};
use std::path::{Path, PathBuf};

/// A document as estimators see it.
#[derive(Clone, Copy, Debug)]
pub struct TokenDocument<'a> {
    /// Its number in reading order, dense from 0 over the corpus.
    pub number: u64,
    /// A keyed hash, uniform in 64 bits, of its id: draws samples.
    pub sample_key: u64,
    /// A keyed hash, uniform in 64 bits, that near-copies share: draws folds, so that no document
    /// helps to predict its own copy.
    pub fold_key: u64,
    /// Hash of the token ids.
    pub content: u128,
    /// Token ids of the text, without special tokens. At least one.
    pub tokens: &'a [u32],
    /// Its id; empty unless the estimator's kind says `needs_id`.
    pub id: &'a str,
    /// The text that was tokenized; empty unless the estimator's kind says `needs_text`.
    pub text: &'a str,
}

/// Documents that can be read again as often as asked, in parts that workers share out.
/// The same documents may be cut into other parts: nothing may depend on the cut.
pub trait TokenSource: Sync {
    /// Number of parts.
    fn parts(&self) -> usize;
    /// Tokens in all parts.
    fn tokens(&self) -> u64;
    /// Calls `visit` for each document of a part, in reading order.
    ///
    /// # Errors
    /// When the part cannot be read.
    fn read(&self, part: usize, visit: &mut dyn FnMut(TokenDocument<'_>)) -> std::io::Result<()>;
    /// Names of the domains that documents are of; none where they are not tagged.
    fn domains(&self) -> &[String] {
        &[]
    }
    /// Whether a fit that computes for long between two reads may go on.
    ///
    /// # Errors
    /// Where the run is being stopped.
    fn go_on(&self) -> std::io::Result<()> {
        Ok(())
    }
    /// The place of a document's domain among [`TokenSource::domains`], by its number.
    fn domain(&self, _number: u64) -> Option<usize> {
        None
    }
}

/// A file of numbers per token that another program made, and the columns that are wanted of it.
/// The engine opens it and refuses one of another tokenizer.
#[derive(Clone, Debug)]
pub struct TableRequest<'a> {
    /// The file.
    pub path: &'a Path,
    /// The columns.
    pub columns: Vec<&'a str>,
}

/// A row of such a file: numbers of consecutive tokens of one document.
#[derive(Clone, Copy, Debug)]
pub struct TokenNumbers<'a> {
    /// Id of the document.
    pub doc_id: &'a str,
    /// Index of the first token in the document.
    pub first_token: u64,
    /// By column, as asked for. They may differ in length, and hold NaN.
    pub numbers: &'a [Vec<f32>],
}

/// Such a file, opened.
pub trait TokenTable: Sync {
    /// Calls `visit` for each row, in the order of the file, until it fails.
    ///
    /// # Errors
    /// On a row that cannot be read, with its place; and what `visit` returns.
    fn read(
        &self,
        visit: &mut dyn FnMut(TokenNumbers<'_>) -> Result<(), FitError>,
    ) -> Result<(), FitError>;
}

/// What an estimator may learn from.
pub struct FitInput<'a> {
    /// The documents that reach the `score` stage.
    pub corpus: &'a dyn TokenSource,
    /// The documents named by `reference`, tokenized; `None` where the option is absent or `self`.
    pub reference: Option<&'a dyn TokenSource>,
    /// Likewise those named by `negative`.
    pub negative: Option<&'a dyn TokenSource>,
    /// Number of ids in the vocabulary; every id is below it.
    pub vocabulary_size: u32,
    /// The pipeline's seed.
    pub seed: u64,
    /// What a model must come from to score these documents.
    pub origin: &'a ModelOrigin,
    /// Checksum of each of [`Fit::files`], in their order, in hexadecimal.
    pub file_checksums: &'a [String],
    /// The file that [`Fit::table`] names, opened.
    pub table: Option<&'a dyn TokenTable>,
    /// An empty folder of its own for models and intermediate files. It stays until all is scored.
    pub work: &'a Path,
    /// What every usefulness is led through afterwards, also where it is averaged in the fit; `None` where
    /// no calibration is named.
    pub calibration: Option<&'a Curve>,
    /// Anonymous memory that the fit may use. Must not change the result.
    pub memory_bytes: u64,
}

/// Why a fit or a score was impossible.
#[derive(Debug, thiserror::Error)]
pub enum FitError {
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The memory that the fit was given does not do.
    #[error(
        "{what} about {} MiB of memory and may use {} MiB; lower {lower}, or raise --memory by {}MiB or more",
        .needed_bytes.div_ceil(1 << 20),
        .given_bytes >> 20,
        (.needed_bytes - .given_bytes).div_ceil(1 << 20)
    )]
    Memory {
        /// Who needs it, with the verb.
        what: String,
        /// Options that make it smaller.
        lower: &'static str,
        /// Bytes that it needs, more than it was given.
        needed_bytes: u64,
        /// Bytes that it was given.
        given_bytes: u64,
    },
    /// The data do not allow it; says what was found and what to change.
    #[error("{0}")]
    Data(String),
}

/// Scores of the tokens of one document. Reused between documents.
#[derive(Clone, Debug, Default)]
pub struct TokenScores {
    /// u in [0, 1], one per token, before quantisation.
    pub usefulness: Vec<f32>,
    /// Raw excess in nats, one per token; empty where the estimator has none.
    pub excess_nats: Vec<f32>,
}

/// Scores of one document. All finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DocumentScores {
    /// What `by: score` sorts and selects by. For `ngram_excess` the mean of the unrounded u.
    pub score: f64,
    /// Mean excess in nats per token; 0 where the estimator has none.
    pub excess_nats: f64,
    /// Mean surprisal s_p in nats per token; 0 where the estimator has none.
    pub difficulty: f64,
}

/// Why a token got its usefulness: u = left * able * want.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct TokenExplanation {
    /// -ln of its probability by the model of the corpus, in nats, before clipping.
    pub surprisal_general_nats: f32,
    /// Likewise by the model of the reference.
    pub surprisal_target_nats: f32,
    /// Tokens of context that the model of the corpus used.
    pub context_general_tokens: u32,
    /// Likewise by the model of the reference.
    pub context_target_tokens: u32,
    /// The excess that `want` sees, in nats.
    pub mean_excess_nats: f32,
    /// What is left to learn, in [0, 1].
    pub left: f32,
    /// Whether it can be learned at all, in [0, 1].
    pub able: f32,
    /// Whether it is on target, in [0, 1].
    pub want: f32,
    /// The product, led through the calibration where there is one.
    pub usefulness: f32,
}

impl TokenExplanation {
    /// The class of Rho-1 (Lin et al. 2024) by the factor that takes most away: `known`, `noise`,
    /// `off_target`, or `learnable` where each factor is at least a half.
    pub fn class(&self) -> &'static str {
        let least = self.left.min(self.able).min(self.want);
        if least >= 0.5 {
            "learnable"
        } else if least == self.left {
            "known"
        } else if least == self.able {
            "noise"
        } else {
            "off_target"
        }
    }
}

/// A fitted estimator. Pure: the same document gives the same scores, on any thread.
pub trait Estimator: Send + Sync {
    /// Scores one document into `out` (cleared first; as long as the document).
    ///
    /// # Errors
    /// On a score that is not finite, with what happened.
    fn score(
        &self,
        document: &TokenDocument<'_>,
        out: &mut TokenScores,
    ) -> Result<DocumentScores, String>;

    /// Why each token of a document got its usefulness; `None` where the estimator has no factors.
    ///
    /// # Errors
    /// On a document that it cannot score.
    fn explain(
        &self,
        _document: &TokenDocument<'_>,
    ) -> Result<Option<Vec<TokenExplanation>>, String> {
        Ok(None)
    }

    /// Writes what was fitted to a file that the kind's `load` reads, where it has one.
    ///
    /// # Errors
    /// When writing fails.
    fn save(&self, _path: &Path, _origin: &ModelOrigin) -> std::io::Result<()> {
        Ok(())
    }

    /// What was fitted and its calibration, for the manifest and the shards' metadata:
    /// numbers and words only, no path, no time.
    fn describe(&self) -> serde_json::Value;
}

/// What an estimator asks of a run besides documents.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// The tokenizer.json that its model was trained with, where it is known; the engine refuses a pipeline of another.
    pub tokenizer_file: Option<PathBuf>,
    /// Number of ids that its model knows, where there is a bound; the engine refuses a tokenizer of more.
    pub vocabulary_size: Option<u64>,
    /// Floating-point operations for each token that reaches the stage, on average; 0 where they are too few to tell.
    pub flops_per_token: f64,
    /// Anonymous memory that one worker takes for them.
    pub worker_bytes: u64,
}

/// How to make a fitted estimator.
pub trait Fit: Send + Sync {
    /// Files that it reads besides the documents. What is in them shapes the scores.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// The file of numbers per token that it joins with the documents, if it does.
    fn table(&self) -> Option<TableRequest<'_>> {
        None
    }

    /// What it asks of the run.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// Anonymous memory in bytes that its fit and its models take, about, where there are about so many tokens of the
    /// corpus and of what it names besides. 0 where that is little.
    fn model_bytes(&self, _tokens: u64) -> u64 {
        0
    }

    /// Opens the file of fitted models that it names, if it does, and refuses one that must not score the
    /// documents of `origin`: what can be known before they are read.
    ///
    /// # Errors
    /// When the file is damaged, or of another pipeline.
    fn check_model(&self, _origin: &ModelOrigin) -> Result<(), FitError> {
        Ok(())
    }

    /// Whether what it learns can be kept as one file that [`Estimator::save`] writes.
    fn keeps_model(&self) -> bool {
        false
    }

    /// Learns from `input`. Deterministic: threads, memory and the cut into parts change nothing.
    ///
    /// # Errors
    /// When reading fails or the data do not allow a fit.
    fn fit(&self, input: &FitInput<'_>) -> Result<Box<dyn Estimator>, FitError>;
}

/// Reads a file of fitted models: where they come from, and the estimator.
pub type Load = fn(&Path) -> Result<(ModelOrigin, Box<dyn Estimator>), FitError>;

/// What the table says of an estimator.
pub struct EstimatorKind {
    /// Name, options, example.
    pub spec: Spec,
    /// Version of the method; raised when the same input would score otherwise.
    pub version: u32,
    /// Whether the pipeline must name a `reference`.
    pub needs_reference: bool,
    /// Whether it is given the texts of the documents, and of the reference. They are then kept in
    /// the work folder.
    pub needs_text: bool,
    /// Whether it is given the ids of the documents.
    pub needs_id: bool,
    /// Whether it says how hard a document is: `order` and `select` may use `difficulty`.
    pub has_difficulty: bool,
    /// Whether it compares two models: `order` and `select` may use `excess_nats` and `usefulness`, and shards
    /// may carry the excess.
    pub has_excess: bool,
    /// Reads what [`Estimator::save`] wrote, and says where it comes from.
    pub load: Option<Load>,
    /// Builds it from checked options.
    pub build: fn(&Options) -> Result<Box<dyn Fit>, OptionError>,
}
