//! Files that leave the program: shards, rejects, evidence, the manifest. Only this room names a
//! column of the output.

mod calibration;
mod checksum;
mod columns;
mod contamination;
mod index;
mod losses;
mod manifest;
mod part;
mod reader;

pub use calibration::{Calibration, CalibrationHalf, ReliabilityRow, schema as calibration_schema};
pub use checksum::{ChecksumWriter, file_checksum};
pub use columns::{
    CutEvidence, DuplicateRow, Duplicates, Edits, Order, OrderRow, RejectRow, Rejects, SegmentRow,
    ShardRow, ShardRows, ShardShape, UsefulnessType, Validation, schema,
};
pub use contamination::{Contamination, ContaminationRow};
pub use index::{INDEX_VERSION, IndexAbout, IndexBands, IndexKind, IndexRows, ReadIndex};
pub use losses::{LossesRead, ReadLosses};
pub use manifest::{
    AuxiliaryEntry, EstimatorEntry, FileEntry, InputEntry, Manifest, OrderEntry, PackEntry,
    TokenizerManifest, Totals, ValidationEntry, schema as manifest_schema,
};
pub use part::{Encoded, Part, PartEncoder, PartError};
pub use reader::{
    CutRead, ReadEdits, ReadOrder, ReadRejects, ReadSegment, ReadShard, RejectRead, RowRead,
};

/// The JSON Schema of a row of a shard (draft 2020-12).
pub fn row_schema() -> serde_json::Value {
    columns::row_schema()
}
