//! Per-token losses of a pilot run, as Parquet.

use super::part::PartError;
use super::reader::{next_batch, open};
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{Float32Type, Float64Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use parquet::errors::ParquetError;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Losses of one document.
#[derive(Debug)]
pub struct LossesRead<'a> {
    /// Number of the row, from 0.
    pub row: u64,
    /// Id of the document.
    pub doc_id: &'a str,
    /// Loss of each token early in training, in nats.
    pub early: &'a [f32],
    /// The same late in training.
    pub late: &'a [f32],
}

/// A file with the columns `doc_id` (text), `loss_early` and `loss_late` (lists of floats).
pub struct ReadLosses {
    reader: ParquetRecordBatchReader,
    path: PathBuf,
    /// Key-value metadata.
    pub metadata: BTreeMap<String, String>,
}

impl ReadLosses {
    /// Opens a file of losses.
    ///
    /// # Errors
    /// When it is not a Parquet file.
    pub fn open(path: &Path) -> Result<ReadLosses, PartError> {
        let (reader, metadata) = open(path)?;
        Ok(ReadLosses {
            reader,
            path: path.to_path_buf(),
            metadata,
        })
    }

    /// Calls `visit` for each row in order; stops early where it says `false`.
    ///
    /// # Errors
    /// When the file is damaged, lacks a column, or a value is null.
    pub fn rows(&mut self, visit: &mut dyn FnMut(LossesRead<'_>) -> bool) -> Result<(), PartError> {
        let path = &self.path;
        let wrong = |message: String| PartError::at(path, ParquetError::General(message));
        let (mut early, mut late) = (Vec::new(), Vec::new());
        let mut number = 0;
        while let Some(batch) = next_batch(&mut self.reader, path)? {
            let column = |name: &str| {
                batch.column_by_name(name).ok_or_else(|| {
                    wrong(format!(
                        "column '{name}' is missing; losses have doc_id, loss_early and loss_late"
                    ))
                })
            };
            let (ids, before, after) = (
                column("doc_id")?,
                column("loss_early")?,
                column("loss_late")?,
            );
            for row in 0..batch.num_rows() {
                let id = text(ids, row).ok_or_else(|| {
                    wrong(format!("'doc_id' of row {number} must be a text, not null"))
                })?;
                for (name, column, out) in [
                    ("loss_early", before, &mut early),
                    ("loss_late", after, &mut late),
                ] {
                    floats(column, row, out).ok_or_else(|| {
                        wrong(format!(
                            "'{name}' of row {number} ('{id}') must be a list of floats without nulls"
                        ))
                    })?;
                }
                let read = LossesRead {
                    row: number,
                    doc_id: id,
                    early: &early,
                    late: &late,
                };
                number += 1;
                if !visit(read) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The id in one row; empty where the file has changed meanwhile.
    ///
    /// # Errors
    /// As for [`ReadLosses::rows`].
    pub fn id_of_row(path: &Path, row: u64) -> Result<String, PartError> {
        let mut id = String::new();
        ReadLosses::open(path)?.rows(&mut |read| {
            if read.row == row {
                id = read.doc_id.to_string();
            }
            read.row < row
        })?;
        Ok(id)
    }
}

fn text(column: &ArrayRef, row: usize) -> Option<&str> {
    if column.is_null(row) {
        return None;
    }
    if let Some(texts) = column.as_string_opt::<i32>() {
        return Some(texts.value(row));
    }
    if let Some(texts) = column.as_string_opt::<i64>() {
        return Some(texts.value(row));
    }
    column.as_string_view_opt().map(|texts| texts.value(row))
}

fn floats(column: &ArrayRef, row: usize, out: &mut Vec<f32>) -> Option<()> {
    if column.is_null(row) {
        return None;
    }
    let values = if let Some(lists) = column.as_list_opt::<i32>() {
        lists.value(row)
    } else {
        column.as_list_opt::<i64>()?.value(row)
    };
    if values.null_count() > 0 {
        return None;
    }
    out.clear();
    if let Some(floats) = values.as_primitive_opt::<Float32Type>() {
        out.extend_from_slice(floats.values());
    } else {
        let floats = values.as_primitive_opt::<Float64Type>()?;
        out.extend(floats.values().iter().map(|&value| value as f32));
    }
    Some(())
}
