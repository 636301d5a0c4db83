//! Usefulness estimators: token ids in, one number per token out.
//!
//! Adding one is one new file here and its line in [`TABLE`].

mod calibrated;
mod causal_lm;
mod commonness;
mod compression;
mod dsir;
mod estimator;
mod external;
mod fasttext;
mod model_file;
mod ngram_excess;
mod ngram_fit;
mod parallel;
mod prior;
mod random;
mod rho;
#[cfg(test)]
mod testing;
mod token_numbers;
mod unigram;

pub use calibrated::Calibrated;
pub use estimator::{
    DocumentScores, Estimator, EstimatorKind, Fit, FitError, FitInput, Needs, TableRequest,
    TokenDocument, TokenExplanation, TokenNumbers, TokenScores, TokenSource, TokenTable,
};
pub use model_file::{MAGIC as MODEL_MAGIC, ModelOrigin};
pub use ngram_excess::models_of_file as ngram_models_of_file;
pub use random::RANDOM;

/// Every estimator, in the order in which we would explain them.
pub const TABLE: &[&EstimatorKind] = &[
    &ngram_excess::KIND,
    &prior::KIND,
    &commonness::KIND,
    &dsir::KIND,
    &fasttext::KIND,
    &compression::KIND,
    &external::KIND,
    &rho::KIND,
    &causal_lm::KIND,
    &random::KIND,
];
