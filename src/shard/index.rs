//! `index/`: what a later run needs to tell whether its documents stand in this release. Parquet, a row for
//! each document that was kept, so that other tools read it too.
//!
//! An exact dedupe's has the columns `doc_id`, `source`, `text_hash_high`, `text_hash_low`: 16 bytes a document
//! beside the packed id. A near dedupe's has `doc_id`, `source`, `bands` and `shingles`: 8 bytes a band and 8
//! a shingle, not packed, since hashes do not compress. The shingles are all of them, so that a later run
//! decides by the exact similarity without the texts, which may be gone by then; the bands could be made from
//! them, and spare a later run of the same bands the reading of all shingles.

use super::part::PartError;
use arrow::array::{Array, ArrayRef, AsArray, ListArray, StringArray, UInt64Array};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::PageIndexPolicy;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Version of the columns and of the hashes in them. An index of another one is refused.
pub const INDEX_VERSION: u32 = 1;
/// The key of an index file's metadata that says what its hashes are of.
const ABOUT: &str = "goodput.index";
/// Documents read at a time where a row is small.
const SMALL_ROWS: usize = 4_096;
/// Documents read at a time with all their shingles.
const LARGE_ROWS: usize = 16;

/// What the hashes of an index are of: one from other texts or units cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum IndexKind {
    /// 128-bit hashes of texts.
    Exact {
        /// Whether of texts after NFC, lower-casing and folding of white space.
        normalise: bool,
    },
    /// Shingle sets and their bands.
    Near {
        /// The option that names what shingles are made of: `shingle_words`, `shingle_tokens` or
        /// `shingle_characters`.
        unit: String,
        /// How many of them in a row.
        size: u64,
        /// Fingerprint of the tokenizer, where shingles are made of tokens.
        tokenizer_fingerprint: Option<String>,
    },
}

/// What the bands of an index were made with. Others can be made from its shingles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexBands {
    /// Seed of the pipeline.
    pub seed: u64,
    /// Bands of a document.
    pub bands: u64,
    /// Rows of a band.
    pub rows: u64,
}

/// What an index file says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexAbout {
    /// Its format.
    pub version: u32,
    /// Label of the stage that it is of.
    pub stage: String,
    /// What its hashes are of.
    #[serde(flatten)]
    pub kind: IndexKind,
    /// What its bands were made with; of a near dedupe only.
    pub bands: Option<IndexBands>,
}

impl IndexAbout {
    /// The metadata of a file.
    pub fn metadata(&self) -> Vec<(String, String)> {
        let text = serde_json::to_string(self).expect("has string keys only");
        vec![(ABOUT.to_string(), text)]
    }

    /// Columns of a file.
    pub fn schema(&self) -> SchemaRef {
        let mut columns = vec![
            Field::new("doc_id", DataType::Utf8, false),
            Field::new("source", DataType::Utf8, false),
        ];
        match self.kind {
            IndexKind::Exact { .. } => columns.extend(
                ["text_hash_high", "text_hash_low"]
                    .map(|name| Field::new(name, DataType::UInt64, false)),
            ),
            IndexKind::Near { .. } => columns.extend(
                ["bands", "shingles"]
                    .map(|name| Field::new(name, DataType::List(element()), false)),
            ),
        }
        Arc::new(Schema::new(columns))
    }
}

fn element() -> Arc<Field> {
    Arc::new(Field::new("element", DataType::UInt64, false))
}

/// Documents on their way into a batch.
#[derive(Debug, Default)]
pub struct IndexRows {
    ids: Vec<String>,
    sources: Vec<String>,
    hashes: Vec<[u64; 2]>,
    bands: (Vec<u64>, Vec<i32>),
    shingles: (Vec<u64>, Vec<i32>),
}

impl IndexRows {
    /// A document of an exact dedupe: the hash of its text, high half first.
    pub fn push_exact(&mut self, id: String, source: &str, hash: [u64; 2]) {
        self.ids.push(id);
        self.sources.push(source.to_string());
        self.hashes.push(hash);
    }

    /// A document of a near dedupe: its shingles, sorted and distinct, and their bands, none where it has none.
    pub fn push_near(&mut self, id: String, source: &str, bands: &[u64], shingles: &[u64]) {
        self.ids.push(id);
        self.sources.push(source.to_string());
        for ((values, ends), more) in [(&mut self.bands, bands), (&mut self.shingles, shingles)] {
            values.extend_from_slice(more);
            ends.push(i32::try_from(values.len()).expect("a batch holds fewer than 2^31 hashes"));
        }
    }

    /// The batch.
    ///
    /// # Errors
    /// When columns do not agree in length, which only a bug can cause.
    pub fn into_batch(self, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(self.ids)),
            Arc::new(StringArray::from(self.sources)),
        ];
        if schema.field_with_name("bands").is_ok() {
            for (values, ends) in [self.bands, self.shingles] {
                let offsets: Vec<i32> = std::iter::once(0).chain(ends).collect();
                columns.push(Arc::new(ListArray::try_new(
                    element(),
                    OffsetBuffer::new(ScalarBuffer::from(offsets)),
                    Arc::new(UInt64Array::from(values)),
                    None,
                )?));
            }
        } else {
            for half in 0..2 {
                columns.push(Arc::new(UInt64Array::from_iter_values(
                    self.hashes.iter().map(|hash| hash[half]),
                )));
            }
        }
        RecordBatch::try_new(schema.clone(), columns)
    }
}

/// A file of an index. Every look at it reads it from the disk: nothing is held but a few rows.
#[derive(Clone, Debug)]
pub struct ReadIndex {
    path: PathBuf,
    metadata: ArrowReaderMetadata,
    /// What it says of itself.
    pub about: IndexAbout,
    /// Documents in it.
    pub documents: u64,
}

impl ReadIndex {
    /// Opens a file.
    ///
    /// # Errors
    /// When it is not an index, or one of another version.
    pub fn open(path: &Path) -> Result<ReadIndex, PartError> {
        let at = |e: ParquetError| PartError::at(path, e);
        let wrong = |message: String| at(ParquetError::General(message));
        let file = File::open(path).map_err(|e| PartError::at(path, e))?;
        let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional);
        let metadata = ArrowReaderMetadata::load(&file, options).map_err(at)?;
        let footer = metadata.metadata().file_metadata();
        let pairs = footer.key_value_metadata().into_iter().flatten();
        let text = pairs
            .filter(|pair| pair.key == ABOUT)
            .find_map(|pair| pair.value.as_deref())
            .ok_or_else(|| wrong(format!("is no index: its metadata has no '{ABOUT}'")))?;
        // The version first: what else stands there may have other names in another one.
        let json: serde_json::Value = serde_json::from_str(text)
            .map_err(|error| wrong(format!("its '{ABOUT}' cannot be read: {error}")))?;
        if json["version"] != INDEX_VERSION {
            return Err(wrong(format!(
                "is an index of version {}, this program reads version {INDEX_VERSION}; make the release's index again \
                 with this program, or use the one that made it",
                json["version"]
            )));
        }
        let about: IndexAbout = serde_json::from_value(json)
            .map_err(|error| wrong(format!("its '{ABOUT}' cannot be read: {error}")))?;
        let documents = u64::try_from(footer.num_rows()).unwrap_or(0);
        Ok(ReadIndex {
            path: path.to_path_buf(),
            metadata,
            about,
            documents,
        })
    }

    fn builder(
        &self,
        columns: &[&str],
        rows_at_a_time: usize,
    ) -> Result<ParquetRecordBatchReaderBuilder<File>, PartError> {
        let file = File::open(&self.path).map_err(|e| PartError::at(&self.path, e))?;
        let schema = self.metadata.parquet_schema();
        let fields = schema.root_schema().get_fields().iter().enumerate();
        let roots = fields.filter(|(_, field)| columns.contains(&field.name()));
        let mask = ProjectionMask::roots(schema, roots.map(|(at, _)| at));
        Ok(
            ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
                .with_projection(mask)
                .with_batch_size(rows_at_a_time),
        )
    }

    fn reader(
        &self,
        columns: &[&str],
        rows_at_a_time: usize,
    ) -> Result<ParquetRecordBatchReader, PartError> {
        let builder = self.builder(columns, rows_at_a_time)?;
        builder.build().map_err(|e| PartError::at(&self.path, e))
    }

    fn batch(&self, batch: Result<RecordBatch, ArrowError>) -> Result<RecordBatch, PartError> {
        batch.map_err(|e| PartError::at(&self.path, e))
    }

    /// Hashes of all texts, in order of rows.
    ///
    /// # Errors
    /// When the file is damaged or lacks a column.
    pub fn hashes(self) -> Result<impl Iterator<Item = Result<[u64; 2], PartError>>, PartError> {
        let reader = self.reader(&["text_hash_high", "text_hash_low"], SMALL_ROWS)?;
        Ok(reader.flat_map(move |batch| {
            let rows = || -> Result<Vec<[u64; 2]>, PartError> {
                let batch = self.batch(batch)?;
                let high = numbers(&batch, &self.path, "text_hash_high")?;
                let low = numbers(&batch, &self.path, "text_hash_low")?;
                Ok(high
                    .iter()
                    .zip(low)
                    .map(|(&high, &low)| [high, low])
                    .collect())
            };
            each(rows())
        }))
    }

    /// Bands of all documents, in order of rows: the row, from 0, and a hash.
    ///
    /// # Errors
    /// When the file is damaged or lacks a column.
    pub fn bands(self) -> Result<impl Iterator<Item = Result<(u64, u64), PartError>>, PartError> {
        let reader = self.reader(&["bands"], SMALL_ROWS / 16)?;
        let mut first = 0;
        Ok(reader.flat_map(move |batch| {
            let rows = || -> Result<Vec<(u64, u64)>, PartError> {
                let batch = self.batch(batch)?;
                let lists = Lists::of(&batch, &self.path, "bands")?;
                let rows = (0..batch.num_rows()).zip(first..);
                let bands = rows.flat_map(|(at, row)| lists.get(at).iter().map(move |&h| (row, h)));
                let bands = bands.collect();
                first += batch.num_rows() as u64;
                Ok(bands)
            };
            each(rows())
        }))
    }

    /// What `make` makes of the shingles of all documents, in order of rows: the row, from 0, and a number. It is
    /// called with consecutive documents at a time.
    ///
    /// # Errors
    /// When the file is damaged or lacks a column.
    pub fn from_shingles(
        self,
        make: impl Fn(&[&[u64]]) -> Vec<Vec<u64>>,
    ) -> Result<impl Iterator<Item = Result<(u64, u64), PartError>>, PartError> {
        let reader = self.reader(&["shingles"], 16 * LARGE_ROWS)?;
        let mut first = 0;
        Ok(reader.flat_map(move |batch| {
            let rows = || -> Result<Vec<(u64, u64)>, PartError> {
                let batch = self.batch(batch)?;
                let lists = Lists::of(&batch, &self.path, "shingles")?;
                let sets: Vec<&[u64]> = (0..batch.num_rows()).map(|at| lists.get(at)).collect();
                let made = make(&sets).into_iter().zip(first..);
                let made = made.flat_map(|(made, row)| made.into_iter().map(move |h| (row, h)));
                let made = made.collect();
                first += batch.num_rows() as u64;
                Ok(made)
            };
            each(rows())
        }))
    }

    /// Calls `visit` with the shingles of chosen documents. `rows` are ascending and distinct; those from
    /// `first + documents` on are left where they are, `first` being the number of the file's first row.
    ///
    /// # Errors
    /// When the file is damaged or lacks a column, and those of `rows` and `visit`.
    pub fn shingles_of(
        &self,
        first: u64,
        rows: &mut Peekable<impl Iterator<Item = io::Result<u64>>>,
        visit: &mut dyn FnMut(u64, &[u64]) -> io::Result<()>,
    ) -> Result<(), PartError> {
        self.chosen(
            &["shingles"],
            LARGE_ROWS,
            first,
            rows,
            &mut |batch, numbers| {
                let lists = Lists::of(batch, &self.path, "shingles")?;
                for (at, &number) in numbers.iter().enumerate() {
                    visit(number, lists.get(at)).map_err(|e| PartError::at(&self.path, e))?;
                }
                Ok(())
            },
        )
    }

    /// The same with their ids and sources.
    ///
    /// # Errors
    /// As for [`ReadIndex::shingles_of`].
    pub fn names_of(
        &self,
        first: u64,
        rows: &mut Peekable<impl Iterator<Item = io::Result<u64>>>,
        visit: &mut dyn FnMut(u64, &str, &str) -> io::Result<()>,
    ) -> Result<(), PartError> {
        let columns = ["doc_id", "source"];
        self.chosen(&columns, SMALL_ROWS, first, rows, &mut |batch, numbers| {
            let [ids, sources] = columns.map(|name| texts(batch, &self.path, name));
            let (ids, sources) = (ids?, sources?);
            for (at, &number) in numbers.iter().enumerate() {
                visit(number, ids.value(at), sources.value(at))
                    .map_err(|e| PartError::at(&self.path, e))?;
            }
            Ok(())
        })
    }

    /// Calls `visit` with the id of every document, in order.
    ///
    /// # Errors
    /// When the file is damaged or lacks a column.
    pub fn ids(&self, visit: &mut dyn FnMut(&str)) -> Result<(), PartError> {
        for batch in self.reader(&["doc_id"], SMALL_ROWS)? {
            let batch = self.batch(batch)?;
            let ids = texts(&batch, &self.path, "doc_id")?;
            (0..batch.num_rows()).for_each(|at| visit(ids.value(at)));
        }
        Ok(())
    }

    /// Reads chosen rows, row group by row group, so that what is held does not grow with the file.
    fn chosen(
        &self,
        columns: &[&str],
        rows_at_a_time: usize,
        first: u64,
        rows: &mut Peekable<impl Iterator<Item = io::Result<u64>>>,
        visit: &mut VisitRows<'_>,
    ) -> Result<(), PartError> {
        let mut start = first;
        for (group, metadata) in self.metadata.metadata().row_groups().iter().enumerate() {
            let end = start + u64::try_from(metadata.num_rows()).unwrap_or(0);
            let mut numbers = Vec::new();
            while let Some(row) = rows.next_if(|row| row.as_ref().map_or(true, |&row| row < end)) {
                numbers.push(row.map_err(|e| PartError::at(&self.path, e))?);
            }
            if !numbers.is_empty() {
                let mut next = start;
                let mut selectors: Vec<RowSelector> = Vec::new();
                for &number in &numbers {
                    if number > next {
                        selectors.push(RowSelector::skip((number - next) as usize));
                    }
                    selectors.push(RowSelector::select(1));
                    next = number + 1;
                }
                let reader = self
                    .builder(columns, rows_at_a_time)?
                    .with_row_groups(vec![group])
                    .with_row_selection(RowSelection::from(selectors))
                    .build()
                    .map_err(|e| PartError::at(&self.path, e))?;
                let mut left = &numbers[..];
                for batch in reader {
                    let batch = self.batch(batch)?;
                    let (here, rest) = left.split_at(batch.num_rows());
                    visit(&batch, here)?;
                    left = rest;
                }
            }
            start = end;
        }
        Ok(())
    }
}

/// Called with a batch of chosen rows and their numbers.
type VisitRows<'a> = dyn FnMut(&RecordBatch, &[u64]) -> Result<(), PartError> + 'a;

/// Each row, or the error.
fn each<T>(rows: Result<Vec<T>, PartError>) -> impl Iterator<Item = Result<T, PartError>> {
    let (rows, error) = match rows {
        Ok(rows) => (rows, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    rows.into_iter().map(Ok).chain(error.map(Err))
}

fn missing(path: &Path, column: &str) -> PartError {
    let message = format!("column '{column}' is missing or has another type");
    PartError::at(path, ParquetError::General(message))
}

fn numbers<'b>(batch: &'b RecordBatch, path: &Path, name: &str) -> Result<&'b [u64], PartError> {
    let column = batch.column_by_name(name);
    let column = column.and_then(|column| column.as_primitive_opt::<UInt64Type>());
    let column = column.filter(|column| column.null_count() == 0);
    Ok(column.ok_or_else(|| missing(path, name))?.values())
}

fn texts<'b>(
    batch: &'b RecordBatch,
    path: &Path,
    name: &str,
) -> Result<&'b StringArray, PartError> {
    let column = batch.column_by_name(name);
    let column = column.and_then(|column| column.as_string_opt::<i32>());
    let column = column.filter(|column| column.null_count() == 0);
    column.ok_or_else(|| missing(path, name))
}

/// A column of lists of numbers.
struct Lists<'b> {
    offsets: &'b [i32],
    values: &'b [u64],
}

impl<'b> Lists<'b> {
    fn of(batch: &'b RecordBatch, path: &Path, name: &str) -> Result<Lists<'b>, PartError> {
        let lists = batch.column_by_name(name);
        let lists = lists.and_then(|column| column.as_list_opt::<i32>());
        let lists = lists.filter(|lists| lists.null_count() == 0);
        let lists = lists.ok_or_else(|| missing(path, name))?;
        let values = lists.values().as_primitive_opt::<UInt64Type>();
        let values = values.filter(|values| values.null_count() == 0);
        Ok(Lists {
            offsets: lists.value_offsets(),
            values: values.ok_or_else(|| missing(path, name))?.values(),
        })
    }

    fn get(&self, at: usize) -> &'b [u64] {
        &self.values[self.offsets[at] as usize..self.offsets[at + 1] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::Part;

    fn about(kind: IndexKind) -> IndexAbout {
        IndexAbout {
            version: INDEX_VERSION,
            stage: "a_stage".into(),
            kind,
            bands: None,
        }
    }

    fn words() -> IndexKind {
        IndexKind::Near {
            unit: "shingle_words".into(),
            size: 5,
            tokenizer_fingerprint: None,
        }
    }

    /// A file of row groups of three documents: shingles of document n are n, n + 1, ..., its bands 2n.
    fn written(path: &Path, about: &IndexAbout, documents: u64) {
        let schema = about.schema();
        let mut part = Part::create(path, schema.clone(), &about.metadata()).expect("created");
        for first in (0..documents).step_by(3) {
            let mut rows = IndexRows::default();
            for n in first..(first + 3).min(documents) {
                let shingles: Vec<u64> = (n..2 * n).collect();
                match about.kind {
                    IndexKind::Exact { .. } => rows.push_exact(format!("d{n}"), "web", [n, n + 1]),
                    IndexKind::Near { .. } => {
                        rows.push_near(format!("d{n}"), "web", &[2 * n], &shingles)
                    }
                }
            }
            let batch = rows.into_batch(&schema).expect("a batch");
            let encoded = part.encoder().encode(&batch).expect("encoded");
            part.append(encoded).expect("written");
        }
        part.finish().expect("named");
    }

    #[test]
    fn rows_come_back_all_or_chosen() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("index.parquet");
        written(&path, &about(words()), 10);
        let index = ReadIndex::open(&path)?;
        assert_eq!((index.documents, &index.about), (10, &about(words())));
        let bands: Vec<_> = index.clone().bands()?.collect::<Result<_, _>>()?;
        assert_eq!(bands, (0..10).map(|n| (n, 2 * n)).collect::<Vec<_>>());
        let sums = |sets: &[&[u64]]| sets.iter().map(|set| vec![set.iter().sum()]).collect();
        let sums: Vec<_> = index
            .clone()
            .from_shingles(sums)?
            .collect::<Result<_, _>>()?;
        assert_eq!(sums[4], (4, 4 + 5 + 6 + 7));
        // The file's rows are numbered from 100 here; what comes after them is left.
        let mut rows = [101, 102, 105, 109, 110].into_iter().map(Ok).peekable();
        let mut found = Vec::new();
        index.shingles_of(100, &mut rows, &mut |number, set| {
            found.push((number, set.len()));
            Ok(())
        })?;
        assert_eq!(found, [(101, 1), (102, 2), (105, 5), (109, 9)]);
        assert_eq!(rows.next().transpose()?, Some(110));
        let mut rows = [3, 8].into_iter().map(Ok).peekable();
        let mut found = Vec::new();
        index.names_of(0, &mut rows, &mut |number, id, source| {
            found.push(format!("{number} {id} {source}"));
            Ok(())
        })?;
        assert_eq!(found, ["3 d3 web", "8 d8 web"]);
        written(&path, &about(IndexKind::Exact { normalise: true }), 4);
        let hashes: Vec<_> = ReadIndex::open(&path)?
            .hashes()?
            .collect::<Result<_, _>>()?;
        assert_eq!(hashes, [[0, 1], [1, 2], [2, 3], [3, 4]]);
        Ok(())
    }

    #[test]
    fn another_version_and_another_file_are_refused() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("index.parquet");
        let next = IndexAbout {
            version: INDEX_VERSION + 1,
            ..about(words())
        };
        written(&path, &next, 1);
        let Err(error) = ReadIndex::open(&path) else {
            panic!("another version is opened");
        };
        assert!(error.to_string().contains("version 2"), "{error}");
        let part = Part::create(&path, next.schema(), &[]).expect("created");
        part.finish().expect("named");
        let Err(error) = ReadIndex::open(&path) else {
            panic!("no index is opened");
        };
        assert!(error.to_string().contains("is no index"), "{error}");
        Ok(())
    }
}
