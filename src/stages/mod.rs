//! Per-document stages: each sees one document and says keep or reject, with a declared reason.
//!
//! Adding one is one new file here and its line in [`TABLE`].

mod gopher_quality;
mod gopher_repetition;
mod identify;
mod language;
mod length;
mod stage;
#[cfg(test)]
mod testing;

pub use stage::{Stage, StageKind};

/// Every per-document stage, in the order in which we would explain them.
pub const TABLE: &[&StageKind] = &[
    &length::KIND,
    &language::KIND,
    &gopher_quality::KIND,
    &gopher_repetition::KIND,
];
