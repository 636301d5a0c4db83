//! Per-document stages: each sees one document and says keep or reject, with a declared reason.
//!
//! Adding one is one new file here and its line in [`TABLE`].

mod stage;

pub use stage::{Stage, StageKind};

/// Every per-document stage, in the order in which we would explain them.
pub const TABLE: &[&StageKind] = &[];
