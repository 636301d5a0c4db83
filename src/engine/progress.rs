//! What the engine tells of itself while it works. It prints nothing.

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

/// Receives the engine's reports. Called from several threads.
pub trait Progress: Sync {
    /// A phase begins; `total` in `unit`, 0 where it is not known.
    fn begin(&self, phase: &str, total: u64, unit: Unit);
    /// So much more is done.
    fn advance(&self, amount: u64);
    /// The phase has ended.
    fn end(&self);
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
