//! Tables in memory to documents, for Parquet and Arrow alike.

use super::value::{Value, field_of, id_of, text_of};
use super::{BadRecord, Body, CHUNK_BYTES, Entry, Fault, InputSpec, ReadSummary, SourceError};
use crate::record::{Document, FieldValue};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StructArray};
use arrow::datatypes::{
    DataType, Fields, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use std::borrow::Cow;
use std::path::Path;

/// Most rows in a chunk.
pub(super) const MAX_CHUNK_ROWS: usize = 8192;

/// Hands out batches as chunks of about [`CHUNK_BYTES`].
pub(super) struct RowReader {
    pub batches: Box<dyn Iterator<Item = Result<RecordBatch, SourceError>> + Send>,
    /// Number of the next row in the file.
    pub next_row: u64,
    /// Rows of a batch that have not been handed out.
    pub rest: Option<RecordBatch>,
    pub records: u64,
    pub bytes: u64,
}

impl RowReader {
    pub fn new(
        first_row: u64,
        batches: Box<dyn Iterator<Item = Result<RecordBatch, SourceError>> + Send>,
    ) -> RowReader {
        RowReader {
            batches,
            next_row: first_row,
            rest: None,
            records: 0,
            bytes: 0,
        }
    }

    pub fn summary(&self) -> ReadSummary {
        ReadSummary {
            records: self.records,
            bytes: self.bytes,
            truncated: None,
            checksum: None,
        }
    }

    pub fn next(&mut self) -> Result<Option<Body>, SourceError> {
        loop {
            let batch = match self.rest.take() {
                Some(batch) => batch,
                None => match self.batches.next() {
                    Some(batch) => batch?,
                    None => return Ok(None),
                },
            };
            let rows = batch.num_rows();
            if rows == 0 {
                continue;
            }
            let bytes = bytes_of(&batch);
            // Rows are cut without copying, so a batch of any size becomes chunks of a few.
            let rows_in_chunk = ((CHUNK_BYTES as u128 * rows as u128 / bytes.max(1) as u128)
                .clamp(1, MAX_CHUNK_ROWS as u128) as usize)
                .min(rows);
            let chunk = batch.slice(0, rows_in_chunk);
            if rows_in_chunk < rows {
                self.rest = Some(batch.slice(rows_in_chunk, rows - rows_in_chunk));
            }
            let first_row = self.next_row;
            self.next_row += rows_in_chunk as u64;
            self.records += rows_in_chunk as u64;
            self.bytes += bytes_of(&chunk) as u64;
            return Ok(Some(Body::Rows {
                first_row,
                batch: chunk,
            }));
        }
    }
}

/// Bytes of a batch's values: those of its own rows, not of buffers that it shares.
pub(super) fn bytes_of(batch: &RecordBatch) -> usize {
    batch
        .columns()
        .iter()
        .map(|column| array_bytes(column))
        .sum()
}

fn array_bytes(array: &dyn Array) -> usize {
    match array.data_type() {
        DataType::Utf8View => lengths(array.as_string_view().views()),
        DataType::BinaryView => lengths(array.as_binary_view().views()),
        DataType::Struct(_) => {
            let columns = array.as_struct().columns();
            columns.iter().map(|column| array_bytes(column)).sum()
        }
        // A few distinct values for many rows: the sum over rows is what documents will hold.
        DataType::Dictionary(_, _) => {
            let values = array.as_any_dictionary().values();
            let mean = array_bytes(values) / values.len().max(1);
            (mean + 8) * array.len()
        }
        _ => array
            .to_data()
            .get_slice_memory_size()
            .unwrap_or_else(|_| array.get_array_memory_size()),
    }
}

/// Bytes that views stand for: the length is in a view's low half.
fn lengths(views: &[u128]) -> usize {
    views.iter().map(|view| 16 + (*view as u32) as usize).sum()
}

/// The way to a column: field numbers from the root inward.
pub(super) fn resolve(fields: &Fields, path: &str) -> Option<Vec<usize>> {
    for (dot, _) in path.match_indices('.') {
        let Some((index, field)) = fields.find(&path[..dot]) else {
            continue;
        };
        if let DataType::Struct(inner) = field.data_type()
            && let Some(mut way) = resolve(inner, &path[dot + 1..])
        {
            way.insert(0, index);
            return Some(way);
        }
    }
    fields.find(path).map(|(index, _)| vec![index])
}

/// The ways to all columns that `spec` reads.
///
/// # Errors
/// When the text or id column does not exist. Declared fields may be missing.
pub(super) fn wanted(
    fields: &Fields,
    spec: &InputSpec,
    path: &Path,
) -> Result<Vec<Vec<usize>>, SourceError> {
    let needed = std::iter::once(&spec.text).chain(&spec.id);
    let mut ways = needed
        .map(|column| {
            resolve(fields, column).ok_or_else(|| {
                let mut names = Vec::new();
                name_columns(fields, "", &mut names);
                SourceError::NoColumn {
                    path: path.to_path_buf(),
                    column: column.clone(),
                    nearest: nearest(column, &names),
                    columns: list(&names),
                }
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    for field in spec.fields.iter().flatten() {
        ways.extend(resolve(fields, &field.path));
    }
    Ok(ways)
}

fn name_columns(fields: &Fields, outer: &str, names: &mut Vec<String>) {
    for field in fields {
        let name = format!("{outer}{}", field.name());
        match field.data_type() {
            DataType::Struct(inner) => name_columns(inner, &format!("{name}."), names),
            _ => names.push(name),
        }
    }
}

fn list(names: &[String]) -> String {
    const SHOWN: usize = 20;
    match names {
        [] => "no columns".to_string(),
        names if names.len() <= SHOWN => names.join(", "),
        names => format!(
            "{} and {} more",
            names[..SHOWN].join(", "),
            names.len() - SHOWN
        ),
    }
}

/// The name that is fewest edits away, where that is at most half of the name.
fn nearest(wanted: &str, names: &[String]) -> Option<String> {
    names
        .iter()
        .map(|name| (edits(wanted, name), name))
        .min()
        .filter(|(edits, _)| *edits <= wanted.chars().count().div_ceil(2))
        .map(|(_, name)| name.clone())
}

/// Levenshtein distance in characters, letter case aside.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.to_lowercase().chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

/// A column, perhaps inside others: it is null where one of those is.
struct Column {
    outer: Vec<ArrayRef>,
    inner: ArrayRef,
}

impl Column {
    fn find(batch: &RecordBatch, path: &str) -> Option<Column> {
        let way = resolve(batch.schema_ref().fields(), path)?;
        let (root, inward) = way.split_first()?;
        let mut column = Column {
            outer: Vec::new(),
            inner: ArrayRef::clone(batch.column(*root)),
        };
        for index in inward {
            let structure: &StructArray = column.inner.as_struct();
            let inner = ArrayRef::clone(structure.column(*index));
            column
                .outer
                .push(std::mem::replace(&mut column.inner, inner));
        }
        Some(column)
    }

    fn value(&self, row: usize, join_lists: bool) -> Value<'_> {
        if self.outer.iter().any(|outer| outer.is_null(row)) {
            return Value::Null;
        }
        match join_lists {
            true => joined_list(&self.inner, row).unwrap_or_else(|| value(&self.inner, row)),
            false => value(&self.inner, row),
        }
    }
}

/// The values of a list, one a line, but for nulls; `None` where it is none, or one that holds others than texts and
/// numbers.
fn joined_list(array: &dyn Array, row: usize) -> Option<Value<'static>> {
    if array.is_null(row) {
        return None;
    }
    let values = match array.data_type() {
        DataType::List(_) => array.as_list::<i32>().value(row),
        DataType::LargeList(_) => array.as_list::<i64>().value(row),
        DataType::FixedSizeList(_, _) => array.as_fixed_size_list().value(row),
        _ => return None,
    };
    let mut lines = Vec::new();
    for at in 0..values.len() {
        match value(&values, at) {
            Value::Null => {}
            Value::Text(text) => lines.push(text.into_owned()),
            Value::Integer(number) => lines.push(number.to_string()),
            Value::Float(number) => lines.push(number.to_string()),
            _ => return None,
        }
    }
    Some(Value::Text(Cow::Owned(lines.join("\n"))))
}

fn value(array: &dyn Array, row: usize) -> Value<'_> {
    if array.is_null(row) {
        return Value::Null;
    }
    macro_rules! integer {
        ($of:ty) => {
            Value::Integer(array.as_primitive::<$of>().value(row).into())
        };
    }
    let text = |text| Value::Text(Cow::Borrowed(text));
    match array.data_type() {
        DataType::Null => Value::Null,
        DataType::Utf8 => text(array.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => text(array.as_string::<i64>().value(row)),
        DataType::Utf8View => text(array.as_string_view().value(row)),
        DataType::Binary => utf8(array.as_binary::<i32>().value(row)),
        DataType::LargeBinary => utf8(array.as_binary::<i64>().value(row)),
        DataType::BinaryView => utf8(array.as_binary_view().value(row)),
        DataType::Boolean => Value::Bool(array.as_boolean().value(row)),
        DataType::Int8 => integer!(Int8Type),
        DataType::Int16 => integer!(Int16Type),
        DataType::Int32 => integer!(Int32Type),
        DataType::Int64 => integer!(Int64Type),
        DataType::UInt8 => integer!(UInt8Type),
        DataType::UInt16 => integer!(UInt16Type),
        DataType::UInt32 => integer!(UInt32Type),
        DataType::UInt64 => integer!(UInt64Type),
        DataType::Float16 => Value::Float(array.as_primitive::<Float16Type>().value(row).to_f64()),
        DataType::Float32 => Value::Float(array.as_primitive::<Float32Type>().value(row).into()),
        DataType::Float64 => Value::Float(array.as_primitive::<Float64Type>().value(row)),
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            match value(dictionary.keys(), row) {
                Value::Integer(key) => match usize::try_from(key) {
                    Ok(key) if key < dictionary.values().len() => value(dictionary.values(), key),
                    _ => Value::Other("a key outside its dictionary".into()),
                },
                _ => Value::Null,
            }
        }
        other => Value::Other(Cow::Owned(format!("of the Arrow type {other}"))),
    }
}

fn utf8(bytes: &[u8]) -> Value<'_> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::Text(Cow::Borrowed(text)),
        Err(error) => Value::NotUtf8(error.valid_up_to()),
    }
}

/// Bytes of a text column's row, for the quarantine.
fn raw(array: &dyn Array, row: usize) -> &[u8] {
    if array.is_null(row) {
        return &[];
    }
    match array.data_type() {
        DataType::Binary => array.as_binary::<i32>().value(row),
        DataType::LargeBinary => array.as_binary::<i64>().value(row),
        DataType::BinaryView => array.as_binary_view().value(row),
        _ => match value(array, row) {
            Value::Text(Cow::Borrowed(text)) => text.as_bytes(),
            _ => &[],
        },
    }
}

fn value_at(column: &Option<Column>, row: usize, join_lists: bool) -> Value<'_> {
    match column {
        Some(column) => column.value(row, join_lists),
        None => Value::Missing,
    }
}

/// Turns rows, the first of which has number `first_row` in its file, into entries.
pub(super) fn decode(
    first_row: u64,
    batch: &RecordBatch,
    spec: &InputSpec,
    visit: &mut dyn FnMut(Entry),
) {
    let text = Column::find(batch, &spec.text);
    let id = spec
        .id
        .as_deref()
        .map(|path| (path, Column::find(batch, path)));
    let fields: Vec<_> = spec
        .fields
        .iter()
        .map(|field| {
            let field = field.as_ref()?;
            Column::find(batch, &field.path).map(|column| (field, column))
        })
        .collect();
    for row in 0..batch.num_rows() {
        let place = first_row + row as u64;
        let raw = text.as_ref().map_or(&[][..], |text| raw(&text.inner, row));
        let document = || -> Result<Document, Fault> {
            if raw.len() as u64 > spec.max_document_bytes {
                return Err(Fault::too_long(raw.len() as u64, spec.max_document_bytes));
            }
            let text = text_of(value_at(&text, row, spec.join_lists), &spec.text)?;
            let id = match &id {
                Some((path, column)) => Some(id_of(value_at(column, row, false), path)?),
                None => None,
            };
            let mut values = Vec::with_capacity(fields.len());
            for field in &fields {
                values.push(match field {
                    Some((field, column)) => field_of(column.value(row, spec.join_lists), field)?,
                    None => FieldValue::Null,
                });
            }
            Ok(Document {
                place,
                id,
                text,
                fields: values,
                ..Document::default()
            })
        };
        visit(match document() {
            Ok(document) => Entry::Document(document),
            Err(fault) => Entry::Bad(BadRecord::new(place, fault, raw)),
        });
    }
}
