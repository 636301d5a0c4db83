//! Pure algorithms on slices: no I/O, no clock, no threads.

pub mod excess;
pub mod hash;
pub mod kendall;
pub mod language;
pub mod minhash;
pub mod pacing;
pub mod words;
pub mod histogram;
pub mod kneser_ney;
pub mod ngram_model;
pub mod ngram_table;
pub mod unigram_prior;
