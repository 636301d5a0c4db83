//! The contract of an estimator.

use crate::algo::isotonic::Curve;
use crate::record::{OptionError, Options, Spec};
use std::path::Path;

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
    /// The place of a document's domain among [`TokenSource::domains`], by its number.
    fn domain(&self, _number: u64) -> Option<usize> {
        None
    }
}

/// What an estimator may learn from.
pub struct FitInput<'a> {
    /// The documents that reach the `score` stage.
    pub corpus: &'a dyn TokenSource,
    /// The documents named by `reference`, tokenized; `None` where the option is absent or `self`.
    pub reference: Option<&'a dyn TokenSource>,
    /// Number of ids in the vocabulary; every id is below it.
    pub vocabulary_size: u32,
    /// The pipeline's seed.
    pub seed: u64,
    /// An empty folder of its own for models and intermediate files.
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

    /// What was fitted and its calibration, for the manifest and the shards' metadata:
    /// numbers and words only, no path, no time.
    fn describe(&self) -> serde_json::Value;
}

/// How to make a fitted estimator.
pub trait Fit: Send + Sync {
    /// Learns from `input`. Deterministic: threads, memory and the cut into parts change nothing.
    ///
    /// # Errors
    /// When reading fails or the data do not allow a fit.
    fn fit(&self, input: &FitInput<'_>) -> Result<Box<dyn Estimator>, FitError>;
}

/// What the table says of an estimator.
pub struct EstimatorKind {
    /// Name, options, example.
    pub spec: Spec,
    /// Version of the method; raised when the same input would score otherwise.
    pub version: u32,
    /// Whether the pipeline must name a `reference`.
    pub needs_reference: bool,
    /// Whether `order` and `select` may use `difficulty` and `excess_nats`.
    pub has_surprisal: bool,
    /// Builds it from checked options.
    pub build: fn(&Options) -> Result<Box<dyn Fit>, OptionError>,
}
