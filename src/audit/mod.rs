//! The token ledger: what was read, what was kept, where the rest went, and that it adds up.

mod identities;
mod ledger;
mod table;

pub use identities::Identity;
pub use ledger::{
    Audit, Emitted, KeptBelow, LossRow, LowValue, NoteRow, QuarantineRow, ReadRow,
    SourceUsefulness, TokenizerEntry, TruncatedFile, Usefulness,
};
pub use table::{By, csv, grouped, short, table};

/// The JSON Schema of `audit.json` (draft 2020-12).
pub fn schema() -> serde_json::Value {
    ledger::schema()
}
