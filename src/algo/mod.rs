//! Pure algorithms on slices: no I/O, no clock, no threads.

pub mod bare_words;
pub mod causal_lm;
pub mod dsir;
pub mod excess;
pub mod fasttext;
pub mod fasttext_training;
pub mod hash;
pub mod histogram;
pub mod isotonic;
pub mod kendall;
pub mod kneser_ney;
pub mod language;
pub mod matrix;
pub mod minhash;
pub mod ngram_model;
pub mod ngram_table;
pub mod novelty;
pub mod overlap;
pub mod pacing;
pub mod quantise;
pub mod safetensors;
pub mod sha256;
pub mod unigram_prior;
pub mod words;
