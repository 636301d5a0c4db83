//! What travels between the rooms: documents, counts, reasons, options. Plain data, no I/O.

mod counts;
mod document;
mod field;
mod options;
mod reason;

pub use counts::{Counts, Difference};
pub use document::{Document, Language, Notes, Overlap, Verdict, without};
pub use field::{FieldSpec, FieldType, FieldValue};
pub use options::{Kind, OptionError, OptionSpec, Options, Spec, Value, Variant};
pub use reason::{Class, Reason};
