//! Columns of the evidence of contamination.

use arrow::array::{ArrayRef, Float64Array, StringArray, UInt32Array, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use std::sync::Arc;

/// A stretch of a document that stands in an item of an evaluation set.
#[derive(Clone, Debug, PartialEq)]
pub struct ContaminationRow {
    /// Id of the document.
    pub doc_id: String,
    /// Its source.
    pub source: String,
    /// Label of the stage that found it.
    pub stage: String,
    /// First byte, in the text as it reached the stage.
    pub byte_start: u64,
    /// The byte after the last one.
    pub byte_end: u64,
    /// File of the evaluation set.
    pub set: String,
    /// Id of the item: of the first one in the set with this text.
    pub item_id: String,
    /// Items of the set with this text, 1 or more.
    pub items: u32,
    /// Keys of the item (n-grams; the whole of a short one) that the whole document holds.
    pub keys_held: u32,
    /// Keys of the item that count.
    pub keys: u32,
}

/// The evidence on its way into a batch.
pub struct Contamination;

impl Contamination {
    /// Columns of the evidence. `overlap` is `keys_held` / `keys`.
    pub fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![
            Field::new("doc_id", DataType::Utf8, false),
            Field::new("source", DataType::Utf8, false),
            Field::new("stage", DataType::Utf8, false),
            Field::new("byte_start", DataType::UInt64, false),
            Field::new("byte_end", DataType::UInt64, false),
            Field::new("set", DataType::Utf8, false),
            Field::new("item_id", DataType::Utf8, false),
            Field::new("items", DataType::UInt32, false),
            Field::new("overlap", DataType::Float64, false),
            Field::new("keys_held", DataType::UInt32, false),
            Field::new("keys", DataType::UInt32, false),
        ]))
    }

    /// The batch.
    ///
    /// # Errors
    /// When columns do not agree in length, which only a bug can cause.
    pub fn batch(rows: &[ContaminationRow]) -> Result<RecordBatch, ArrowError> {
        let text = |of: fn(&ContaminationRow) -> &String| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(rows.iter().map(of)))
        };
        let place = |of: fn(&ContaminationRow) -> u64| -> ArrayRef {
            Arc::new(UInt64Array::from_iter_values(rows.iter().map(of)))
        };
        let number = |of: fn(&ContaminationRow) -> u32| -> ArrayRef {
            Arc::new(UInt32Array::from_iter_values(rows.iter().map(of)))
        };
        let overlap = |row: &ContaminationRow| f64::from(row.keys_held) / f64::from(row.keys);
        RecordBatch::try_new(
            Contamination::schema(),
            vec![
                text(|row| &row.doc_id),
                text(|row| &row.source),
                text(|row| &row.stage),
                place(|row| row.byte_start),
                place(|row| row.byte_end),
                text(|row| &row.set),
                text(|row| &row.item_id),
                number(|row| row.items),
                Arc::new(Float64Array::from_iter_values(rows.iter().map(overlap))),
                number(|row| row.keys_held),
                number(|row| row.keys),
            ],
        )
    }
}
