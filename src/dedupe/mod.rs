//! Duplicates: sketches propose, the full text decides, evidence is kept.
//!
//! Everything here works on documents by number: `number` is the place in reading order, `rank`
//! the place in the order (place in `inputs`, id).

mod exact;
mod guard;
mod near;
mod sketch;
mod spans;
mod units;

pub use exact::{Fingerprint, decide as decide_exact, fingerprint, normalised};
pub use guard::{Amount, Guard, Loss, Part, each_cluster};
pub use near::{BandHash, Documents, Keep, NearInput, NearReport, Policy, decide as decide_near};
pub use sketch::{Shingling, SketchScratch, Sketcher};
pub use spans::{RankedTokens, Span, SpanReport, SpanRule, decide as decide_spans};
pub use units::{Repeat, Unit, UnitPlace, UnitRow, UnitRule, decide as decide_units, units};

/// A document that goes, and the one because of which it goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropped {
    /// The document that goes.
    pub number: u64,
    /// The kept document that it repeats; where none is kept, one that it is similar to.
    pub kept: u64,
    /// Exact similarity of the two, from 0 to 1.
    pub similarity: f64,
}
