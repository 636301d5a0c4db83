//! Parquet files: the wanted columns of a range of row groups.

use super::columns::{MAX_CHUNK_ROWS, RowReader, wanted};
use super::compression::{self, Compression};
use super::{CHUNK_BYTES, FoundFile, InputSpec, Slice, SourceError};
use crate::contained::contained;
use arrow::datatypes::{DataType, Field, Fields, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use std::fs::File;
use std::sync::Arc;

const FORMAT: &str = "parquet";

fn damaged(file: &FoundFile, problem: impl ToString) -> SourceError {
    SourceError::Damaged {
        path: file.path.clone(),
        format: FORMAT,
        problem: problem.to_string(),
    }
}

/// Opens a file and reads its footer.
fn load(file: &FoundFile) -> Result<(File, ArrowReaderMetadata), SourceError> {
    let (handle, compression) = compression::open(file)?;
    if compression != Compression::None {
        return Err(SourceError::Wrapped {
            path: file.path.clone(),
            compression: compression.name(),
            format: FORMAT,
        });
    }
    // The types are taken from Parquet alone, so that all writers' files look alike, and texts
    // are views into their pages: a dictionary's long value is not copied once a row, and no
    // batch can overflow 32-bit offsets.
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let metadata = contained(|| {
        let metadata = ArrowReaderMetadata::load(&handle, options.clone())?;
        let schema = Schema::new(views(metadata.schema().fields()));
        ArrowReaderMetadata::try_new(
            Arc::clone(metadata.metadata()),
            options.with_schema(Arc::new(schema)),
        )
    })
    .map_err(|e| damaged(file, e))?
    .map_err(|e| damaged(file, e))?;
    let groups = metadata.metadata().row_groups();
    if let Some(group) = groups.iter().position(|group| group.num_rows() < 0) {
        return Err(damaged(
            file,
            format!("row group {group} has {} rows", groups[group].num_rows()),
        ));
    }
    Ok((handle, metadata))
}

fn views(fields: &Fields) -> Fields {
    fields
        .iter()
        .map(|field| {
            let kind = match field.data_type() {
                DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
                DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
                DataType::Struct(inner) => DataType::Struct(views(inner)),
                other => other.clone(),
            };
            Field::clone(field).with_data_type(kind)
        })
        .collect()
}

/// Row groups in pieces of about `target_bytes` on disk.
pub(super) fn slices(file: &FoundFile, target_bytes: u64) -> Result<Vec<Slice>, SourceError> {
    let (_, metadata) = load(file)?;
    let groups = metadata.metadata().row_groups();
    let mut slices = Vec::new();
    let mut first = 0;
    let mut bytes = 0u64;
    for (index, group) in groups.iter().enumerate() {
        bytes = bytes.saturating_add(u64::try_from(group.compressed_size()).unwrap_or(0));
        if bytes >= target_bytes || index + 1 == groups.len() {
            slices.push(Slice::RowGroups {
                first,
                end: index + 1,
            });
            first = index + 1;
            bytes = 0;
        }
    }
    if slices.is_empty() {
        slices.push(Slice::RowGroups { first: 0, end: 0 });
    }
    Ok(slices)
}

/// Opens a range of row groups.
pub(super) fn open(
    file: &FoundFile,
    slice: &Slice,
    spec: &InputSpec,
) -> Result<RowReader, SourceError> {
    let (handle, metadata) = load(file)?;
    let groups = metadata.metadata().row_groups();
    let (first, end) = match *slice {
        Slice::Whole => (0, groups.len()),
        Slice::RowGroups { first, end } if first <= end && end <= groups.len() => (first, end),
        _ => {
            return Err(SourceError::NoSuchSlice {
                path: file.path.clone(),
                slice: slice.to_string(),
            });
        }
    };
    let ways = wanted(metadata.schema().fields(), spec, &file.path)?;
    let names: Vec<Vec<&str>> = ways
        .iter()
        .map(|way| names_on(metadata.schema().fields(), way))
        .collect();
    let columns = metadata.parquet_schema();
    let leaves: Vec<usize> = (0..columns.num_columns())
        .filter(|&leaf| {
            let parts = columns.column(leaf).path().parts().to_vec();
            names
                .iter()
                .any(|way| way.len() <= parts.len() && way.iter().zip(&parts).all(|(a, b)| a == b))
        })
        .collect();
    let rows = |range: std::ops::Range<usize>| -> u64 {
        groups[range]
            .iter()
            .map(|group| u64::try_from(group.num_rows()).unwrap_or(0))
            .fold(0, u64::saturating_add)
    };
    let first_row = rows(0..first);
    let rows_here = rows(first..end);
    let bytes_here: u64 = groups[first..end]
        .iter()
        .flat_map(|group| {
            leaves
                .iter()
                .map(|&leaf| group.column(leaf).uncompressed_size())
        })
        .map(|bytes| u64::try_from(bytes).unwrap_or(0))
        .fold(0, u64::saturating_add);
    let batch_rows = (CHUNK_BYTES as u128 * u128::from(rows_here) / u128::from(bytes_here.max(1)))
        .clamp(1, MAX_CHUNK_ROWS as u128) as usize;
    let mask = ProjectionMask::leaves(columns, leaves);
    let mut reader = contained(|| {
        ParquetRecordBatchReaderBuilder::new_with_metadata(handle, metadata)
            .with_projection(mask)
            .with_row_groups((first..end).collect())
            .with_batch_size(batch_rows)
            .build()
    })
    .map_err(|e| damaged(file, e))?
    .map_err(|e| damaged(file, e))?;
    let file = file.clone();
    let batches = std::iter::from_fn(move || match contained(|| reader.next()) {
        Ok(batch) => batch.map(|batch| batch.map_err(|e| damaged(&file, e))),
        Err(panic) => Some(Err(damaged(&file, panic))),
    });
    Ok(RowReader::new(first_row, Box::new(batches)))
}

fn names_on<'f>(fields: &'f Fields, way: &[usize]) -> Vec<&'f str> {
    let mut names = Vec::with_capacity(way.len());
    let mut fields = fields;
    for &index in way {
        names.push(fields[index].name().as_str());
        if let DataType::Struct(inner) = fields[index].data_type() {
            fields = inner;
        }
    }
    names
}
