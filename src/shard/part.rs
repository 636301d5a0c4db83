//! Parquet files written row group by row group. Encoding a group is pure and can run on any
//! thread; appending is in order, so the bytes do not depend on threads.

use super::checksum::ChecksumWriter;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves,
};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a Parquet file could not be written or read.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}")]
pub struct PartError {
    path: String,
    source: ParquetError,
}

impl PartError {
    pub(super) fn at(path: &Path, source: impl Into<ParquetError>) -> PartError {
        PartError {
            path: path.display().to_string(),
            source: source.into(),
        }
    }
}

impl From<PartError> for io::Error {
    fn from(error: PartError) -> io::Error {
        io::Error::other(error)
    }
}

/// A row group, encoded and compressed.
pub struct Encoded {
    chunks: Vec<ArrowColumnChunk>,
    rows: u64,
}

/// Encodes row groups of one file.
#[derive(Clone)]
pub struct PartEncoder {
    factory: Arc<ArrowRowGroupWriterFactory>,
    schema: SchemaRef,
    path: PathBuf,
}

impl PartEncoder {
    /// Begins a row group. Its batches are encoded as they come, so none of them is held.
    ///
    /// # Errors
    /// When the columns have no encoders, which only a bug can cause.
    pub fn begin(&self) -> Result<GroupEncoder<'_>, PartError> {
        let writers = self.factory.create_column_writers(0);
        Ok(GroupEncoder {
            of: self,
            writers: writers.map_err(|e| PartError::at(&self.path, e))?,
            rows: 0,
        })
    }

    /// Encodes one batch as a row group.
    ///
    /// # Errors
    /// When the batch does not have the file's schema.
    pub fn encode(&self, batch: &RecordBatch) -> Result<Encoded, PartError> {
        let mut group = self.begin()?;
        group.write(batch)?;
        group.finish()
    }
}

/// A row group while it is encoded.
pub struct GroupEncoder<'e> {
    of: &'e PartEncoder,
    writers: Vec<ArrowColumnWriter>,
    rows: u64,
}

impl GroupEncoder<'_> {
    /// Encodes the next rows.
    ///
    /// # Errors
    /// When the batch does not have the file's schema.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), PartError> {
        let at = |e: ParquetError| PartError::at(&self.of.path, e);
        self.rows += batch.num_rows() as u64;
        let mut next = self.writers.iter_mut();
        for (field, column) in self.of.schema.fields().iter().zip(batch.columns()) {
            for leaf in compute_leaves(field, column).map_err(at)? {
                next.next()
                    .expect("a writer for each leaf of the schema")
                    .write(&leaf)
                    .map_err(at)?;
            }
        }
        Ok(())
    }

    /// Ends the group.
    ///
    /// # Errors
    /// When a column cannot be compressed.
    pub fn finish(self) -> Result<Encoded, PartError> {
        let chunks = self
            .writers
            .into_iter()
            .map(|writer| writer.close())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| PartError::at(&self.of.path, e))?;
        Ok(Encoded {
            chunks,
            rows: self.rows,
        })
    }
}

/// A Parquet file being written under a temporary name.
pub struct Part {
    writer: SerializedFileWriter<ChecksumWriter<BufWriter<File>>>,
    encoder: PartEncoder,
    path: PathBuf,
    temporary: PathBuf,
    rows: u64,
}

impl Part {
    /// Begins the file that will stand at `path`.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(
        path: &Path,
        schema: SchemaRef,
        metadata: &[(String, String)],
    ) -> Result<Part, PartError> {
        let at = |e: ParquetError| PartError::at(path, e);
        let temporary = path.with_extension("parquet.tmp");
        let file = File::create(&temporary).map_err(|e| PartError::at(path, e))?;
        let properties = Arc::new(properties(&schema, metadata));
        let parquet_schema = ArrowSchemaConverter::new().convert(&schema).map_err(at)?;
        // No Arrow schema is embedded: Parquet's own types say all of it, and pyarrow shows the key-value
        // metadata of a file only where there is none.
        let writer = SerializedFileWriter::new(
            ChecksumWriter::new(BufWriter::with_capacity(1 << 20, file)),
            parquet_schema.root_schema_ptr(),
            properties.clone(),
        )
        .map_err(at)?;
        let factory = Arc::new(ArrowRowGroupWriterFactory::new(&writer, schema.clone()));
        let encoder = PartEncoder {
            factory,
            schema,
            path: path.to_path_buf(),
        };
        Ok(Part {
            writer,
            encoder,
            path: path.to_path_buf(),
            temporary,
            rows: 0,
        })
    }

    /// What encodes this file's row groups.
    pub fn encoder(&self) -> PartEncoder {
        self.encoder.clone()
    }

    /// Appends a row group.
    ///
    /// # Errors
    /// When writing fails.
    pub fn append(&mut self, encoded: Encoded) -> Result<(), PartError> {
        let at = |e: ParquetError| PartError::at(&self.path, e);
        let mut group = self.writer.next_row_group().map_err(at)?;
        for chunk in encoded.chunks {
            chunk.append_to_row_group(&mut group).map_err(at)?;
        }
        group.close().map_err(at)?;
        self.rows += encoded.rows;
        Ok(())
    }

    /// Writes the footer and gives the file its name. Returns bytes, rows and checksum.
    ///
    /// # Errors
    /// When writing or renaming fails.
    pub fn finish(self) -> Result<(u64, u64, String), PartError> {
        let path = self.path;
        let mut inner = self
            .writer
            .into_inner()
            .map_err(|e| PartError::at(&path, e))?;
        inner.flush().map_err(|e| PartError::at(&path, e))?;
        let (buffer, bytes, checksum) = inner.finish();
        let file = buffer
            .into_inner()
            .map_err(|e| PartError::at(&path, e.into_error()))?;
        file.sync_data().map_err(|e| PartError::at(&path, e))?;
        std::fs::rename(&self.temporary, &path).map_err(|e| PartError::at(&path, e))?;
        Ok((bytes, self.rows, checksum))
    }
}

/// Encodings as measured: ids plain with zstd 3 (a dictionary of ids is larger than its gain), one
/// byte of usefulness by dictionary; no statistics where they say nothing.
fn properties(schema: &SchemaRef, metadata: &[(String, String)]) -> WriterProperties {
    let zstd = Compression::ZSTD(ZstdLevel::try_new(3).expect("3 is a zstd level"));
    let pairs = metadata
        .iter()
        .map(|(key, value)| KeyValue::new(key.clone(), value.clone()))
        .collect();
    let mut builder = WriterProperties::builder()
        .set_compression(zstd)
        .set_created_by(format!("goodput {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(pairs));
    for field in schema.fields() {
        for (name, dictionary) in [
            ("input_ids", false),
            ("usefulness", true),
            ("excess_nats", false),
        ] {
            if field.name() == name {
                let path = ColumnPath::from(vec![
                    name.to_string(),
                    "list".to_string(),
                    "element".to_string(),
                ]);
                builder = builder
                    .set_column_dictionary_enabled(path.clone(), dictionary)
                    .set_column_statistics_enabled(path, EnabledStatistics::None);
            }
        }
        // Hashes are as good as random: packing them takes time and gives nothing.
        for (name, path) in [
            ("text_hash_high", &[][..]),
            ("text_hash_low", &[]),
            ("bands", &["list", "element"]),
            ("shingles", &["list", "element"]),
        ] {
            if field.name() == name {
                let parts = std::iter::once(name).chain(path.iter().copied());
                let path = ColumnPath::from(parts.map(str::to_string).collect::<Vec<_>>());
                builder = builder
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_compression(path.clone(), Compression::UNCOMPRESSED)
                    .set_column_statistics_enabled(path, EnabledStatistics::None);
            }
        }
        if field.name() == "segments" || field.name() == "text" {
            builder = builder.set_column_statistics_enabled(
                ColumnPath::from(field.name().clone()),
                EnabledStatistics::None,
            );
        }
    }
    builder.build()
}
