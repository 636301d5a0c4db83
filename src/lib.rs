//! `goodput` selects, scores and orders language-model training data.

pub mod algo;
pub mod audit;
pub mod cli;
pub mod dedupe;
pub mod engine;
pub mod order;
pub mod pack;
pub mod plan;
pub mod record;
pub mod score;
pub mod shard;
pub mod source;
pub mod spill;
pub mod stages;
pub mod terminal;
pub mod tokenizer;
