//! The contract of a packing method.

use crate::order::{Item, Items};
use crate::record::{OptionError, Options, Spec};
use std::io;

/// What stands around every document, and how long a row may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Special tokens before a document's first part: 0 or 1.
    pub begin_tokens: u32,
    /// Special tokens after a document's last part: 0 or 1.
    pub end_tokens: u32,
    /// Most positions that a shard holds: no row is longer.
    pub shard_tokens: u64,
}

/// A stretch of one document in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The document.
    pub item: Item,
    /// Position in the row of its first token of text (after the begin token, if one stands there).
    pub row_start: u32,
    /// Where in the document it begins, in tokens.
    pub doc_token_start: u32,
    /// Tokens of text in this segment; may be 0 where only an end token was left over.
    pub tokens: u32,
    /// Whether a begin token stands directly before it.
    pub begins: bool,
    /// Whether an end token stands directly after it.
    pub ends: bool,
}

/// One row of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Its segments in order.
    pub segments: Vec<Segment>,
    /// Begin and end tokens in it.
    pub special_tokens: u32,
    /// Padding positions at its end.
    pub padding: u32,
}

/// A stream of rows.
pub type Rows<'a> = Box<dyn Iterator<Item = io::Result<Row>> + 'a>;

/// A packing method.
pub trait Packer: Send + Sync {
    /// Rows of the documents in `items`, which come in curriculum order.
    fn pack<'a>(&'a self, items: Items<'a>, frame: Frame) -> Rows<'a>;

    /// Positions of every row where rows have one fixed length, `None` for one row a document.
    fn row_positions(&self) -> Option<u32>;
}

/// What the table says of a method.
pub struct PackKind {
    /// Name, options, example.
    pub spec: Spec,
    /// Builds it from checked options.
    pub build: fn(&Options) -> Result<Box<dyn Packer>, OptionError>,
}
