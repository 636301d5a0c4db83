//! Usefulness estimators: token ids in, one number per token out.
//!
//! Adding one is one new file here and its line in [`TABLE`].

mod calibrated;
mod estimator;
mod ngram_excess;
mod ngram_fit;
mod parallel;
mod prior;
mod random;
#[cfg(test)]
mod testing;
mod unigram;

pub use calibrated::Calibrated;
pub use estimator::{
    DocumentScores, Estimator, EstimatorKind, Fit, FitError, FitInput, TokenDocument, TokenScores,
    TokenSource,
};

/// Every estimator, in the order in which we would explain them.
pub const TABLE: &[&EstimatorKind] = &[&ngram_excess::KIND, &prior::KIND, &random::KIND];
