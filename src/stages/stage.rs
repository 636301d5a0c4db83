//! The contract of a per-document stage.

use super::Learner;
use crate::record::{Document, Notes, OptionError, Options, Reason, Spec, Verdict};

/// A stage that judges one document at a time and knows of no other.
pub trait Stage: Send + Sync {
    /// Judges `document`. Pure but for what it adds to the document (its language, overlaps) and to
    /// `notes`.
    ///
    /// # Errors
    /// A fault on this document (not a rejection): the text goes to the quarantine as `failed`.
    fn judge(&self, document: &mut Document, notes: &mut Notes) -> Result<Verdict, String>;

    /// Whether it may say [`Verdict::Cut`]. What comes after such a stage sees the text that it leaves, with new
    /// token ids, and the ledger has a row of what it took.
    fn edits(&self) -> bool {
        false
    }

    /// The stage as one that must be given texts before it judges; `None` for most.
    fn learner(&mut self) -> Option<&mut dyn Learner> {
        None
    }
}

/// What the table says of a stage.
pub struct StageKind {
    /// Name, options, example.
    pub spec: Spec,
    /// Every reason it may give, in the order in which its rules are tried.
    pub reasons: &'static [Reason],
    /// What it may leave undone, counted in the ledger, e.g. `stop_words_skipped_language`.
    pub notes: &'static [&'static str],
    /// Builds it from checked options; refuses those that make no sense together.
    pub build: fn(&Options) -> Result<Box<dyn Stage>, OptionError>,
}
