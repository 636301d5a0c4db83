//! Reading shards and rejects back, for `verify` and `inspect`.

use super::columns::{GROUP_HASH, OrderRow, TEXT_BYTES};
use super::part::PartError;
use crate::algo::quantise::value_of;
use crate::contained::contained;
use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float32Type, Float64Type, Int64Type, UInt8Type, UInt32Type, UInt64Type};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::errors::ParquetError;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Rows read at a time: few, since a row can hold a whole document.
const ROWS_AT_A_TIME: usize = 256;

/// A stretch of one document in a row.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadSegment<'a> {
    /// Id of the document.
    pub doc_id: &'a str,
    /// Its source.
    pub source: &'a str,
    /// Position in the row of its first token; `None` in unpacked rows, where the begin token decides.
    pub row_start: Option<u32>,
    /// Where in the document it begins, in tokens.
    pub doc_token_start: u32,
    /// Tokens of text; `None` in unpacked rows: the row's length less its special tokens.
    pub tokens: Option<u32>,
    /// 0 for the first emission.
    pub copy: u32,
    /// Score of the document.
    pub score: Option<f32>,
}

/// One row of a shard.
#[derive(Debug)]
pub struct RowRead<'a> {
    /// Number over all shards.
    pub position: u64,
    /// Token ids.
    pub input_ids: &'a [u32],
    /// Usefulness from 0 to 1; `None` without a `score` stage.
    pub usefulness: Option<Vec<f32>>,
    /// Whether usefulness is stored as computed, not rounded to a byte.
    pub usefulness_is_exact: bool,
    /// Raw excess in nats, where the pipeline keeps it.
    pub excess_nats: Option<Vec<f32>>,
    /// Begin tokens before a document: where text begins in an unpacked row that starts one.
    pub begin_tokens: u32,
    /// Segments in order.
    pub segments: Vec<ReadSegment<'a>>,
    /// Begin and end tokens.
    pub special_tokens: u32,
    /// Padding places.
    pub padding: u32,
    /// In `validation/`: UTF-8 bytes of the document's text, 0 with further rows of it, and the hash of its group.
    pub held_out: Option<(u64, u64)>,
}

impl RowRead<'_> {
    /// Each segment with the positions of its tokens in the row; of one that leaves the row, those that
    /// are in it.
    pub fn stretches(&self) -> impl Iterator<Item = (&ReadSegment<'_>, std::ops::Range<usize>)> {
        let length = self.input_ids.len();
        self.segments.iter().map(move |segment| {
            let text = (length as u32).saturating_sub(self.special_tokens);
            let tokens = segment.tokens.unwrap_or(text);
            let begins = if segment.doc_token_start == 0 {
                self.begin_tokens
            } else {
                0
            };
            let start = (segment.row_start.unwrap_or(begins) as usize).min(length);
            (segment, start..(start + tokens as usize).min(length))
        })
    }
}

/// A shard.
pub struct ReadShard {
    reader: ParquetRecordBatchReader,
    path: PathBuf,
    /// Key-value metadata.
    pub metadata: BTreeMap<String, String>,
}

pub(super) fn open(
    path: &Path,
) -> Result<(ParquetRecordBatchReader, BTreeMap<String, String>), PartError> {
    let at = |e: ParquetError| PartError::at(path, e);
    let file = File::open(path).map_err(|e| PartError::at(path, e))?;
    let opened = contained(|| {
        let builder = ParquetRecordBatchReaderBuilder::try_new(file)?;
        let metadata = builder
            .metadata()
            .file_metadata()
            .key_value_metadata()
            .into_iter()
            .flatten()
            .filter_map(|pair| Some((pair.key.clone(), pair.value.clone()?)))
            .collect();
        let reader = builder.with_batch_size(ROWS_AT_A_TIME).build()?;
        Ok((reader, metadata))
    });
    opened
        .map_err(|panic| at(ParquetError::General(panic)))?
        .map_err(at)
}

/// The next rows of a file. After an error nothing more is to be read.
pub(super) fn next_batch(
    reader: &mut ParquetRecordBatchReader,
    path: &Path,
) -> Result<Option<RecordBatch>, PartError> {
    match contained(|| reader.next()) {
        Ok(batch) => batch
            .transpose()
            .map_err(|error: ArrowError| PartError::at(path, error)),
        Err(panic) => Err(PartError::at(path, ParquetError::General(panic))),
    }
}

fn missing(path: &Path, column: &str) -> PartError {
    PartError::at(
        path,
        ParquetError::General(format!("column '{column}' is missing or has another type")),
    )
}

/// A column of a known type.
macro_rules! column {
    ($batch:expr, $path:expr, $name:expr, $as:ident $(::<$kind:ty>)?) => {
        $batch
            .column_by_name($name)
            .and_then(|column| column.$as$(::<$kind>)?())
            .ok_or_else(|| missing($path, $name))
    };
}

impl ReadShard {
    /// Opens a shard.
    ///
    /// # Errors
    /// When it is not a Parquet file.
    pub fn open(path: &Path) -> Result<ReadShard, PartError> {
        let (reader, metadata) = open(path)?;
        Ok(ReadShard {
            reader,
            path: path.to_path_buf(),
            metadata,
        })
    }

    /// Calls `visit` for each row in order; stops early where it says `false`.
    ///
    /// # Errors
    /// When the file is damaged or lacks a column.
    pub fn rows(&mut self, visit: &mut dyn FnMut(RowRead<'_>) -> bool) -> Result<(), PartError> {
        let path = self.path.clone();
        let begin_tokens = u32::from(self.metadata.contains_key("goodput.begin_token_id"));
        while let Some(batch) = next_batch(&mut self.reader, &path)? {
            if !visit_batch(&batch, &path, begin_tokens, visit)? {
                break;
            }
        }
        Ok(())
    }
}

fn visit_batch(
    batch: &RecordBatch,
    path: &Path,
    begin_tokens: u32,
    visit: &mut dyn FnMut(RowRead<'_>) -> bool,
) -> Result<bool, PartError> {
    let positions = column!(batch, path, "position", as_primitive_opt::<UInt64Type>)?;
    let ids = column!(batch, path, "input_ids", as_list_opt::<i32>)?;
    let id_values = ids
        .values()
        .as_primitive_opt::<UInt32Type>()
        .ok_or_else(|| missing(path, "input_ids"))?;
    let special = column!(
        batch,
        path,
        "special_tokens",
        as_primitive_opt::<UInt32Type>
    )?;
    let packed = batch.column_by_name("segments").is_some();
    let padding = if packed {
        Some(column!(
            batch,
            path,
            "padding",
            as_primitive_opt::<UInt32Type>
        )?)
    } else {
        None
    };
    let floats = |name: &str, row: usize| -> Result<Option<Vec<f32>>, PartError> {
        let Some(column) = batch.column_by_name(name) else {
            return Ok(None);
        };
        let list = column
            .as_list_opt::<i32>()
            .ok_or_else(|| missing(path, name))?;
        let values = list.value(row);
        let floats = values
            .as_primitive_opt::<Float32Type>()
            .ok_or_else(|| missing(path, name))?;
        Ok(Some(floats.values().to_vec()))
    };
    let held_out = match batch.column_by_name(GROUP_HASH) {
        Some(_) => Some((
            column!(batch, path, TEXT_BYTES, as_primitive_opt::<UInt64Type>)?,
            column!(batch, path, GROUP_HASH, as_primitive_opt::<UInt64Type>)?,
        )),
        None => None,
    };
    for row in 0..batch.num_rows() {
        let (start, end) = (
            ids.value_offsets()[row] as usize,
            ids.value_offsets()[row + 1] as usize,
        );
        let mut usefulness_is_exact = false;
        let usefulness = match batch.column_by_name("usefulness") {
            None => None,
            Some(column) => {
                let list = column
                    .as_list_opt::<i32>()
                    .ok_or_else(|| missing(path, "usefulness"))?;
                let values = list.value(row);
                if let Some(bytes) = values.as_primitive_opt::<UInt8Type>() {
                    Some(bytes.values().iter().map(|&byte| value_of(byte)).collect())
                } else {
                    let floats = values
                        .as_primitive_opt::<Float32Type>()
                        .ok_or_else(|| missing(path, "usefulness"))?;
                    usefulness_is_exact = true;
                    Some(floats.values().to_vec())
                }
            }
        };
        let mut segments = Vec::new();
        if packed {
            let list = column!(batch, path, "segments", as_list_opt::<i32>)?;
            let values = list
                .values()
                .as_struct_opt()
                .ok_or_else(|| missing(path, "segments"))?;
            let field = |name: &str| {
                values
                    .column_by_name(name)
                    .ok_or_else(|| missing(path, name))
            };
            let number = |name: &str, at: usize| -> Result<u32, PartError> {
                let column = field(name)?;
                Ok(column
                    .as_primitive_opt::<UInt32Type>()
                    .ok_or_else(|| missing(path, name))?
                    .value(at))
            };
            let ids = field("doc_id")?
                .as_string_opt::<i32>()
                .ok_or_else(|| missing(path, "doc_id"))?;
            let sources = field("source")?
                .as_string_opt::<i32>()
                .ok_or_else(|| missing(path, "source"))?;
            let scores = field("score")?
                .as_primitive_opt::<Float32Type>()
                .ok_or_else(|| missing(path, "score"))?;
            for at in list.value_offsets()[row] as usize..list.value_offsets()[row + 1] as usize {
                segments.push(ReadSegment {
                    doc_id: ids.value(at),
                    source: sources.value(at),
                    row_start: Some(number("row_start", at)?),
                    doc_token_start: number("doc_token_start", at)?,
                    tokens: Some(number("tokens", at)?),
                    copy: number("copy", at)?,
                    score: scores.is_valid(at).then(|| scores.value(at)),
                });
            }
        } else {
            let scores = column!(batch, path, "score", as_primitive_opt::<Float32Type>)?;
            segments.push(ReadSegment {
                doc_id: column!(batch, path, "doc_id", as_string_opt::<i32>)?.value(row),
                source: column!(batch, path, "source", as_string_opt::<i32>)?.value(row),
                row_start: None,
                doc_token_start: column!(
                    batch,
                    path,
                    "doc_token_start",
                    as_primitive_opt::<UInt32Type>
                )?
                .value(row),
                tokens: None,
                copy: column!(batch, path, "copy", as_primitive_opt::<UInt32Type>)?.value(row),
                score: scores.is_valid(row).then(|| scores.value(row)),
            });
        }
        let read = RowRead {
            position: positions.value(row),
            input_ids: &id_values.values()[start..end],
            usefulness,
            usefulness_is_exact,
            excess_nats: floats("excess_nats", row)?,
            begin_tokens,
            segments,
            special_tokens: special.value(row),
            padding: padding.map_or(0, |padding| padding.value(row)),
            held_out: held_out.map(|(bytes, hashes)| (bytes.value(row), hashes.value(row))),
        };
        if !visit(read) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A file of rejects.
pub struct ReadRejects {
    reader: ParquetRecordBatchReader,
    path: PathBuf,
}

/// One reject.
#[derive(Debug)]
pub struct RejectRead<'a> {
    /// Id of the document.
    pub doc_id: &'a str,
    /// Its source.
    pub source: &'a str,
    /// Label of the stage.
    pub stage: &'a str,
    /// The stage's reason.
    pub reason: &'a str,
    /// The deciding value.
    pub value: f64,
    /// For duplicates, the kept document.
    pub kept_id: Option<&'a str>,
    /// The earlier release that the kept document stands in, where it is none of the folder's run.
    pub kept_release: Option<&'a str>,
    /// Tokens of its text.
    pub tokens: u32,
    /// Its score, where `score` ran before.
    pub score: Option<f32>,
    /// Usefulness from 0 to 1, where `score` ran before.
    pub usefulness: Option<Vec<f32>>,
    /// Token ids, where they were kept.
    pub input_ids: Option<Vec<u32>>,
}

impl ReadRejects {
    /// Opens a file of rejects.
    ///
    /// # Errors
    /// When it is not a Parquet file.
    pub fn open(path: &Path) -> Result<ReadRejects, PartError> {
        Ok(ReadRejects {
            reader: open(path)?.0,
            path: path.to_path_buf(),
        })
    }

    /// Calls `visit` for each row in order; stops early where it says `false`.
    ///
    /// # Errors
    /// When the file is damaged or lacks a column.
    pub fn rows(&mut self, visit: &mut dyn FnMut(RejectRead<'_>) -> bool) -> Result<(), PartError> {
        let path = &self.path;
        while let Some(batch) = next_batch(&mut self.reader, path)? {
            let values = column!(batch, path, "value", as_primitive_opt::<Float64Type>)?;
            let tokens = column!(batch, path, "tokens", as_primitive_opt::<UInt32Type>)?;
            let scores = column!(batch, path, "score", as_primitive_opt::<Float32Type>)?;
            let kept = column!(batch, path, "kept_id", as_string_opt::<i32>)?;
            // Absent from folders that were written before there were releases to compare with.
            let releases = batch
                .column_by_name("kept_release")
                .and_then(|column| column.as_string_opt::<i32>());
            let usefulness = column!(batch, path, "usefulness", as_list_opt::<i32>)?;
            let ids = batch
                .column_by_name("input_ids")
                .and_then(|column| column.as_list_opt::<i32>());
            for row in 0..batch.num_rows() {
                let text = |name: &str| -> Result<&str, PartError> {
                    Ok(column!(batch, path, name, as_string_opt::<i32>)?.value(row))
                };
                let read = RejectRead {
                    doc_id: text("doc_id")?,
                    source: text("source")?,
                    stage: text("stage")?,
                    reason: text("reason")?,
                    value: values.value(row),
                    kept_id: kept.is_valid(row).then(|| kept.value(row)),
                    kept_release: releases
                        .filter(|releases| releases.is_valid(row))
                        .map(|releases| releases.value(row)),
                    tokens: tokens.value(row),
                    score: scores.is_valid(row).then(|| scores.value(row)),
                    usefulness: match usefulness.is_valid(row) {
                        true => Some(usefulness_of(&usefulness.value(row), path)?),
                        false => None,
                    },
                    input_ids: match ids {
                        Some(ids) => Some(ids_of(&ids.value(row), path)?),
                        None => None,
                    },
                };
                if !visit(read) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

fn usefulness_of(list: &dyn Array, path: &Path) -> Result<Vec<f32>, PartError> {
    let bytes = list
        .as_primitive_opt::<UInt8Type>()
        .ok_or_else(|| missing(path, "usefulness"))?;
    Ok(bytes.values().iter().map(|&byte| value_of(byte)).collect())
}

fn ids_of(list: &dyn Array, path: &Path) -> Result<Vec<u32>, PartError> {
    let ids = list
        .as_primitive_opt::<UInt32Type>()
        .ok_or_else(|| missing(path, "input_ids"))?;
    Ok(ids.values().to_vec())
}

/// A file of cuts.
pub struct ReadEdits {
    reader: ParquetRecordBatchReader,
    path: PathBuf,
}

/// One stretch that was cut out of a document.
#[derive(Clone, Copy, Debug)]
pub struct CutRead<'a> {
    /// Id of the document.
    pub doc_id: &'a str,
    /// Its source.
    pub source: &'a str,
    /// Label of the stage.
    pub stage: &'a str,
    /// The stage's reason.
    pub reason: &'a str,
    /// First byte, in the text as it reached the stage.
    pub byte_start: u64,
    /// The byte after the last one.
    pub byte_end: u64,
    /// The document that keeps what was cut here, where there is one.
    pub kept_id: Option<&'a str>,
    /// Tokens before less those after all cuts of the stage in the document, with the first of them; else 0.
    pub tokens: i64,
    /// Whether nothing was left, so that the stage rejected the document as it was.
    pub nothing_left: bool,
}

impl ReadEdits {
    /// Opens a file of cuts.
    ///
    /// # Errors
    /// When it is not a Parquet file.
    pub fn open(path: &Path) -> Result<ReadEdits, PartError> {
        Ok(ReadEdits {
            reader: open(path)?.0,
            path: path.to_path_buf(),
        })
    }

    /// Calls `visit` for each row in order; stops early where it says `false`.
    ///
    /// # Errors
    /// When the file is damaged or lacks a column.
    pub fn rows(&mut self, visit: &mut dyn FnMut(CutRead<'_>) -> bool) -> Result<(), PartError> {
        let path = &self.path;
        while let Some(batch) = next_batch(&mut self.reader, path)? {
            let doc_ids = column!(batch, path, "doc_id", as_string_opt::<i32>)?;
            let sources = column!(batch, path, "source", as_string_opt::<i32>)?;
            let stages = column!(batch, path, "stage", as_string_opt::<i32>)?;
            let reasons = column!(batch, path, "reason", as_string_opt::<i32>)?;
            let starts = column!(batch, path, "byte_start", as_primitive_opt::<UInt64Type>)?;
            let ends = column!(batch, path, "byte_end", as_primitive_opt::<UInt64Type>)?;
            let kept = column!(batch, path, "kept_id", as_string_opt::<i32>)?;
            let tokens = column!(batch, path, "tokens", as_primitive_opt::<Int64Type>)?;
            let nothing_left = column!(batch, path, "nothing_left", as_boolean_opt)?;
            for row in 0..batch.num_rows() {
                let read = CutRead {
                    doc_id: doc_ids.value(row),
                    source: sources.value(row),
                    stage: stages.value(row),
                    reason: reasons.value(row),
                    byte_start: starts.value(row),
                    byte_end: ends.value(row),
                    kept_id: kept.is_valid(row).then(|| kept.value(row)),
                    tokens: tokens.value(row),
                    nothing_left: nothing_left.value(row),
                };
                if !visit(read) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// A file of the curriculum, document by document.
pub struct ReadOrder {
    reader: ParquetRecordBatchReader,
    path: PathBuf,
}

impl ReadOrder {
    /// Opens an order file.
    ///
    /// # Errors
    /// When it is not a Parquet file.
    pub fn open(path: &Path) -> Result<ReadOrder, PartError> {
        Ok(ReadOrder {
            reader: open(path)?.0,
            path: path.to_path_buf(),
        })
    }

    /// Calls `visit` for each document in order with its place; `keys` names the key columns to read.
    ///
    /// # Errors
    /// When the file is damaged or lacks a column.
    pub fn rows(
        &mut self,
        keys: &[String],
        visit: &mut dyn FnMut(u64, OrderRow) -> bool,
    ) -> Result<(), PartError> {
        let path = &self.path;
        while let Some(batch) = next_batch(&mut self.reader, path)? {
            let number = |name: &str, row: usize| -> Result<u64, PartError> {
                Ok(column!(batch, path, name, as_primitive_opt::<UInt64Type>)?.value(row))
            };
            let text = |name: &str, row: usize| -> Result<String, PartError> {
                Ok(column!(batch, path, name, as_string_opt::<i32>)?
                    .value(row)
                    .to_string())
            };
            for row in 0..batch.num_rows() {
                let read = OrderRow {
                    doc_id: text("doc_id", row)?,
                    source: text("source", row)?,
                    rank: number("rank", row)?,
                    content: [number("content_high", row)?, number("content_low", row)?],
                    tokens: column!(batch, path, "tokens", as_primitive_opt::<UInt32Type>)?
                        .value(row),
                    copy: column!(batch, path, "copy", as_primitive_opt::<UInt32Type>)?.value(row),
                    keys: keys
                        .iter()
                        .map(|key| {
                            Ok(column!(
                                batch,
                                path,
                                &format!("by_{key}"),
                                as_primitive_opt::<Float64Type>
                            )?
                            .value(row))
                        })
                        .collect::<Result<_, PartError>>()?,
                    // Absent where nothing was held out.
                    group_hash: match batch.column_by_name(GROUP_HASH) {
                        Some(_) => Some(number(GROUP_HASH, row)?),
                        None => None,
                    },
                };
                if !visit(number("place", row)?, read) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
