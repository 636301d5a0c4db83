//! The token ledger: what was read, what was kept, where the rest went, and that it adds up.

mod duplicates;
pub mod html;
mod identities;
mod ledger;
mod table;
mod threshold;

pub use duplicates::{
    DuplicateCell, DuplicateCluster, DuplicateExample, DuplicateReport, SourceDuplicates,
};
pub use identities::Identity;
pub use ledger::{
    Audit, CurriculumPart, DocumentHistogram, Emitted, KeptBelow, LossRow, LowValue, NoteRow,
    QuarantineRow, ReadRow, RejectedUsefulness, SourceLowValue, SourceUsefulness, TokenizerEntry,
    TruncatedFile, Usefulness, Worth,
};
pub use table::{By, csv, grouped, short, table};
pub use threshold::{
    Amount, Bounds, Change, Changes, RejectedThreshold, SourceThreshold, Threshold,
};

/// The JSON Schema of `audit.json` (draft 2020-12).
pub fn schema() -> serde_json::Value {
    ledger::schema()
}
