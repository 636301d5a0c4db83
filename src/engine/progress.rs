//! What the engine tells of itself while it works. It prints nothing.

use serde::{Deserialize, Serialize};
use std::ops::{AddAssign, Sub};
use std::path::Path;

/// What a phase counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of the input files.
    Bytes,
    /// Documents.
    Documents,
    /// Tokens.
    Tokens,
    /// Rows of shards.
    Rows,
}

/// What reached a stage and what it kept, merged by addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Documents that reached it.
    pub documents: u64,
    /// Their tokens.
    pub tokens: u64,
    /// Documents that it kept.
    pub documents_kept: u64,
    /// Their tokens, after what it cut out of them.
    pub tokens_kept: u64,
}

impl AddAssign for Flow {
    fn add_assign(&mut self, more: Flow) {
        self.documents += more.documents;
        self.tokens += more.tokens;
        self.documents_kept += more.documents_kept;
        self.tokens_kept += more.tokens_kept;
    }
}

impl Sub for Flow {
    type Output = Flow;
    /// What came to it since it was `earlier`.
    fn sub(self, earlier: Flow) -> Flow {
        Flow {
            documents: self.documents - earlier.documents,
            tokens: self.tokens - earlier.tokens,
            documents_kept: self.documents_kept - earlier.documents_kept,
            tokens_kept: self.tokens_kept - earlier.tokens_kept,
        }
    }
}

/// Receives the engine's reports. Called from several threads.
pub trait Progress: Sync {
    /// A phase begins; `total` in `unit`, 0 where it is not known.
    fn begin(&self, phase: &str, total: u64, unit: Unit);
    /// So much more is done.
    fn advance(&self, amount: u64);
    /// So much more need not be done, since an earlier run did it: it says nothing of the speed.
    fn found(&self, amount: u64) {
        self.advance(amount);
    }
    /// So many more tokens went through a phase that counts something else.
    fn tokens(&self, _tokens: u64) {}
    /// The phase has ended.
    fn end(&self);
    /// The labels of the stages, by their places in the chain.
    fn chain(&self, _labels: &[&str]) {}
    /// More reached a stage, named by its place in the chain.
    fn kept(&self, _stage: u16, _more: Flow) {}
    /// The output folder is this run's own from here on, so that its log may be written there.
    fn folder(&self, _out: &Path) {}
    /// Something that a person should know, ending in what to do.
    fn warn(&self, text: &str);
}

/// Says nothing.
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _phase: &str, _total: u64, _unit: Unit) {}
    fn advance(&self, _amount: u64) {}
    fn end(&self) {}
    fn warn(&self, _text: &str) {}
}
