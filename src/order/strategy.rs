//! The contract of a strategy.

use crate::record::{OptionError, Options, Spec};
use crate::spill::Spill;
use std::io;

/// One kept document on the index. Fixed size, so that it can be sorted beyond memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Item {
    /// Number in reading order: where its data are.
    pub number: u64,
    /// Place in the order (place in `inputs`, id): unique, the last tie-breaker.
    pub rank: u64,
    /// Hash of the token ids, high half first: the first tie-breaker.
    pub content: [u64; 2],
    /// Unkeyed hash of the id, from which keyed hashes are made.
    pub id_hash: u64,
    /// Tokens of the text.
    pub tokens: u64,
    /// How many times it stands earlier in the order.
    pub copy: u64,
}

/// A stream of items.
pub type Items<'a> = Box<dyn Iterator<Item = io::Result<Item>> + 'a>;

/// The values that documents can be sorted by.
pub trait Keys: Sync {
    /// The value of `key` (a sort key as named in the pipeline) for document `number`. Finite.
    fn value(&self, number: u64, key: &str) -> f64;
}

/// What a strategy works from.
pub struct OrderInput<'a> {
    /// The documents, in any order: a strategy must not depend on it.
    pub items: Items<'a>,
    /// How many there are.
    pub documents: u64,
    /// Their tokens in all.
    pub tokens: u64,
    /// Sort keys by document.
    pub keys: &'a dyn Keys,
    /// The pipeline's seed.
    pub seed: u64,
    /// Sorting beyond memory.
    pub spill: &'a Spill,
}

/// An order of documents.
pub trait Strategy: Send + Sync {
    /// The same items in their final order. Where it [repeats](Strategy::copies) them, each of its copies, numbered as
    /// they come; items that come in have `copy` 0.
    ///
    /// # Errors
    /// When intermediate files cannot be written or read.
    fn arrange<'a>(&'a self, input: OrderInput<'a>) -> io::Result<Items<'a>>;

    /// The sort keys that it and its inner strategies read.
    fn keys(&self) -> Vec<String>;

    /// How often a document stands in the order, at most.
    fn copies(&self) -> u64 {
        1
    }

    /// What the learning rate should do along this order; see `lr_hint` in the manifest.
    fn lr_hint(&self) -> &'static str;
}

/// What the table says of a strategy.
pub struct StrategyKind {
    /// Name, options, example.
    pub spec: Spec,
    /// Builds it from checked options.
    pub build: fn(&Options) -> Result<Box<dyn Strategy>, OptionError>,
}
