//! Bytes to documents: one file per format, compression beside them.
//!
//! The way of a file: [`find_files`] names it, [`slices`] cuts it into pieces that can be read
//! apart, a [`Reader`] turns a piece into [`Chunk`]s of whole records (reading and decompression
//! happen there), and [`Chunk::decode`] turns a chunk into documents and bad records (parsing
//! happens there, on any thread).
//!
//! What holds throughout:
//! - every record becomes exactly one [`Entry`]: a document, or a bad record with one reason;
//! - a bad record never takes its neighbours with it;
//! - what is read, and where a record stands, does not depend on how the file was cut;
//! - memory is bounded by the chunk size and `max_document_bytes` (Parquet and Arrow: by their
//!   pages and batches), never by the file.

mod arrow_ipc;
mod arrow_sizes;
mod columns;
mod compression;
mod error;
mod files;
mod format;
mod json;
mod lines;
mod parquet_rows;
mod slice;
mod text;
mod token_table;
mod value;

#[cfg(test)]
mod tests;

pub use compression::{file_checksum, window_bytes};
pub use error::SourceError;
pub use files::{FoundFile, find_files, remote_scheme};
pub use format::Format;
pub use slice::{NotASlice, Slice, slices};
pub use token_table::{FINGERPRINT_KEY, TokenNumbers, TokenTable};

use crate::record::{Document, FieldSpec};
use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};

/// Uncompressed bytes of whole records that a chunk aims at. A longer record makes a longer chunk.
pub const CHUNK_BYTES: usize = 1 << 20;

/// Bytes of a bad record that are kept for the quarantine.
pub const RAW_BYTES_KEPT: usize = 64 << 10;

/// Levels of nesting that a JSON record may have.
pub const MAX_JSON_DEPTH: usize = 1024;

/// Every reason that [`BadRecord::reason`] can have, with the sentence that explains it.
pub const QUARANTINE_REASONS: &[(&str, &str)] = &[
    (
        reason::BLANK,
        "The line is empty or holds only spaces and tabs",
    ),
    (
        reason::INVALID_JSON,
        "The line is not one JSON value from its first byte to its last",
    ),
    (
        reason::INVALID_UTF8,
        "The record holds bytes that are not UTF-8",
    ),
    (
        reason::TOO_DEEP,
        "The JSON value is nested deeper than 1,024 levels",
    ),
    (
        reason::LONE_SURROGATE,
        "A text that is read has a \\u escape that stands for half a character",
    ),
    (reason::NOT_AN_OBJECT, "The line is JSON, but not an object"),
    (
        reason::DUPLICATE_KEY,
        "A key that is read stands twice in the same object",
    ),
    (reason::MISSING_TEXT, "The record has no text field"),
    (reason::NULL_TEXT, "The text is null"),
    (reason::TEXT_NOT_STRING, "The text is not a string"),
    (reason::EMPTY_TEXT, "The text has no characters"),
    (reason::WHITESPACE_TEXT, "The text has only white space"),
    (
        reason::TOO_LONG,
        "The record (JSONL) or its text (other formats) is longer than max_document_bytes",
    ),
    (
        reason::MISSING_ID,
        "The record has no id, or a null one, although the input names an id field",
    ),
    (
        reason::INVALID_ID,
        "The id is neither an integer nor a string with at least one character",
    ),
    (
        reason::FIELD_TYPE,
        "A declared field holds a value of another type, or one that its type cannot hold",
    ),
    (
        reason::TRUNCATED,
        "The record is incomplete: the compressed file is cut off or damaged inside it",
    ),
];

/// The names of the reasons.
pub(crate) mod reason {
    pub const BLANK: &str = "blank";
    pub const INVALID_JSON: &str = "invalid_json";
    pub const INVALID_UTF8: &str = "invalid_utf8";
    pub const TOO_DEEP: &str = "too_deep";
    pub const LONE_SURROGATE: &str = "lone_surrogate";
    pub const NOT_AN_OBJECT: &str = "not_an_object";
    pub const DUPLICATE_KEY: &str = "duplicate_key";
    pub const MISSING_TEXT: &str = "missing_text";
    pub const NULL_TEXT: &str = "null_text";
    pub const TEXT_NOT_STRING: &str = "text_not_string";
    pub const EMPTY_TEXT: &str = "empty_text";
    pub const WHITESPACE_TEXT: &str = "whitespace_text";
    pub const TOO_LONG: &str = "too_long";
    pub const MISSING_ID: &str = "missing_id";
    pub const INVALID_ID: &str = "invalid_id";
    pub const FIELD_TYPE: &str = "field_type";
    pub const TRUNCATED: &str = "truncated";
}

/// How the records of an input are read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputSpec {
    /// The format; guessed from each file's name when absent.
    pub format: Option<Format>,
    /// Path of the text in a record. Dots lead into nested objects; where the nested path does
    /// not exist, a key that itself contains the dots is taken.
    pub text: String,
    /// Path of the id, likewise. Without one, documents have no given id.
    pub id: Option<String>,
    /// One entry per field of the pipeline, in the pipeline's order. `None` where this input does
    /// not declare the field: its documents have null there.
    pub fields: Vec<Option<FieldSpec>>,
    /// Longest record (JSONL, without its line end) or text (other formats) in bytes; a longer
    /// one is `too_long`.
    pub max_document_bytes: u64,
    /// Whether a list of texts and numbers is a text: its values, one a line, but for nulls. Sets of questions have
    /// their choices so.
    #[serde(skip)]
    pub join_lists: bool,
}

impl InputSpec {
    /// Text from the field `text`, no id, no further fields, documents of up to 64 MiB.
    pub fn with_text(text: &str) -> InputSpec {
        InputSpec {
            format: None,
            text: text.to_string(),
            id: None,
            fields: Vec::new(),
            max_document_bytes: 64 << 20,
            join_lists: false,
        }
    }

    /// The format of a file: the declared one, else the one that its name says.
    ///
    /// # Errors
    /// When the name says none, or the format cannot be read yet.
    pub fn format_of(&self, file: &FoundFile) -> Result<Format, SourceError> {
        let format = match self.format {
            Some(format) => format,
            None => Format::guess(&file.name).ok_or_else(|| SourceError::UnknownFormat {
                path: file.path.clone(),
            })?,
        };
        if !format.supported() {
            return Err(SourceError::NotSupported {
                path: file.path.clone(),
                format: format.name(),
            });
        }
        if format == Format::Text
            && let Some(field) = self
                .id
                .as_deref()
                .or_else(|| self.fields.iter().flatten().map(|f| f.name.as_str()).next())
        {
            return Err(SourceError::TextHasNoFields {
                path: file.path.clone(),
                field: field.to_string(),
            });
        }
        Ok(format)
    }
}

/// What a record turned out to be.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A document.
    Document(Document),
    /// A record that goes to the quarantine.
    Bad(BadRecord),
}

impl Entry {
    /// Where the record begins: uncompressed byte offset or row number in its file.
    pub fn place(&self) -> u64 {
        match self {
            Entry::Document(document) => document.place,
            Entry::Bad(bad) => bad.place,
        }
    }
}

/// A record that could not be read, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// Uncompressed byte offset of the record's first byte, or its row number, in its file.
    pub place: u64,
    /// One of [`QUARANTINE_REASONS`].
    pub reason: &'static str,
    /// What exactly was wrong, short.
    pub detail: String,
    /// The record's first bytes, at most [`RAW_BYTES_KEPT`]: of the line (JSONL), the file (text)
    /// or the text (Parquet, Arrow; empty where there is none).
    pub raw: Vec<u8>,
    /// Length in bytes of what `raw` is the beginning of.
    pub raw_bytes: u64,
}

impl BadRecord {
    pub(crate) fn new(place: u64, fault: Fault, raw: &[u8]) -> BadRecord {
        BadRecord {
            place,
            reason: fault.reason,
            detail: fault.detail,
            raw: raw[..raw.len().min(RAW_BYTES_KEPT)].to_vec(),
            raw_bytes: raw.len() as u64,
        }
    }
}

/// Why a record is bad.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub reason: &'static str,
    pub detail: String,
}

impl Fault {
    pub fn new(reason: &'static str, detail: impl Into<String>) -> Fault {
        Fault {
            reason,
            detail: detail.into(),
        }
    }

    pub fn too_long(bytes: u64, max_document_bytes: u64) -> Fault {
        Fault::new(
            reason::TOO_LONG,
            format!("{bytes} bytes, max_document_bytes is {max_document_bytes}"),
        )
    }
}

/// What a reader has read, once [`Reader::next_chunk`] has returned `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadSummary {
    /// Records in the slice, counted apart from their parsing: by line ends (JSONL), by the
    /// files' own row counts (Parquet, Arrow), one for a text file.
    pub records: u64,
    /// Uncompressed bytes of the slice's records with their line ends (JSONL, text), or bytes of
    /// the columns in memory (Parquet, Arrow).
    pub bytes: u64,
    /// For a compressed file that is cut off or damaged: what is wrong and where. The records
    /// before that place have been read.
    pub truncated: Option<String>,
    /// XXH3-128 of the file as it lies on disk, where the slice is a whole, undamaged stream.
    /// [`file_checksum`] gives it for every file.
    pub checksum: Option<u128>,
}

/// Whole records, read and decompressed but not yet parsed.
#[derive(Debug)]
pub struct Chunk {
    body: Body,
}

#[derive(Debug)]
enum Body {
    /// Records that end in LF (the last of a file need not), the first at offset `place`.
    Lines { place: u64, bytes: Vec<u8> },
    /// Rows of a table, the first with number `first_row`.
    Rows { first_row: u64, batch: RecordBatch },
    /// A text file.
    Text { bytes: Vec<u8> },
    /// A record that reading alone has shown to be bad.
    Bad(BadRecord),
}

impl Chunk {
    /// Bytes that the chunk holds in memory.
    pub fn bytes(&self) -> usize {
        match &self.body {
            Body::Lines { bytes, .. } | Body::Text { bytes } => bytes.len(),
            Body::Rows { batch, .. } => columns::bytes_of(batch),
            Body::Bad(bad) => bad.raw.len(),
        }
    }

    /// The bytes of the record at a place: the line without its end (JSONL), the file (text) or the
    /// text (Parquet, Arrow); `None` where no record of this chunk that can be read begins there.
    pub fn raw_at(&self, place: u64, spec: &InputSpec) -> Option<Vec<u8>> {
        match &self.body {
            Body::Lines {
                place: first,
                bytes,
            } => {
                let start = usize::try_from(place.checked_sub(*first)?).ok()?;
                let rest = bytes.get(start..).filter(|rest| !rest.is_empty())?;
                let line = rest.split(|&byte| byte == b'\n').next();
                line.map(<[u8]>::to_vec)
            }
            Body::Rows { first_row, batch } => {
                let row = usize::try_from(place.checked_sub(*first_row)?).ok()?;
                let mut text = None;
                if row < batch.num_rows() {
                    columns::decode(place, &batch.slice(row, 1), spec, &mut |entry| {
                        if let Entry::Document(document) = entry {
                            text = Some(document.text.into_bytes());
                        }
                    });
                }
                text
            }
            Body::Text { bytes } => (place == 0).then(|| bytes.clone()),
            Body::Bad(_) => None,
        }
    }

    /// Parses the records and hands each to `visit`, in the order of the file.
    pub fn decode(self, spec: &InputSpec, visit: &mut dyn FnMut(Entry)) {
        match self.body {
            Body::Lines { place, bytes } => json::decode(place, &bytes, spec, visit),
            Body::Rows { first_row, batch } => columns::decode(first_row, &batch, spec, visit),
            Body::Text { bytes } => visit(text::decode(bytes, spec.fields.len())),
            Body::Bad(bad) => visit(Entry::Bad(bad)),
        }
    }
}

/// Reads a slice of a file, chunk by chunk.
pub struct Reader {
    kind: Kind,
    file: FoundFile,
}

enum Kind {
    Lines(lines::LineReader),
    Rows(columns::RowReader),
    Text(text::TextReader),
}

impl Reader {
    /// Opens a slice that [`slices`] gave for the same file and spec.
    ///
    /// # Errors
    /// When the file cannot be read, has changed since it was found, is not of the format, or
    /// lacks the text or id column.
    pub fn open(file: &FoundFile, slice: &Slice, spec: &InputSpec) -> Result<Reader, SourceError> {
        let kind = match spec.format_of(file)? {
            Format::Jsonl => Kind::Lines(lines::LineReader::open(file, slice, spec)?),
            Format::Parquet => Kind::Rows(parquet_rows::open(file, slice, spec)?),
            Format::Arrow => Kind::Rows(arrow_ipc::open(file, slice, spec)?),
            Format::Text => Kind::Text(text::TextReader::open(file, slice, spec)?),
            format @ (Format::Csv | Format::Warc | Format::Wet) => {
                return Err(SourceError::NotSupported {
                    path: file.path.clone(),
                    format: format.name(),
                });
            }
        };
        Ok(Reader {
            kind,
            file: file.clone(),
        })
    }

    /// The next whole records, or `None` at the end of the slice: then all of them are of one version of the file.
    ///
    /// # Errors
    /// When the file cannot be read further, or was changed since it was found. Damage inside a gzip or zstd stream is
    /// not an error: it ends the slice and stands in the summary.
    pub fn next_chunk(&mut self) -> Result<Option<Chunk>, SourceError> {
        let body = match &mut self.kind {
            Kind::Lines(reader) => reader.next(),
            Kind::Rows(reader) => reader.next(),
            Kind::Text(reader) => reader.next(),
        };
        // A file that is being written to looks damaged.
        if !matches!(body, Ok(Some(_))) {
            self.file.unchanged()?;
        }
        Ok(body?.map(|body| Chunk { body }))
    }

    /// Bytes of the file, as they lie on disk, that have been taken from it so far, for whoever watches; 0 where
    /// the format does not tell.
    pub fn file_bytes_read(&self) -> u64 {
        match &self.kind {
            Kind::Lines(reader) => reader.file_bytes_read(),
            Kind::Rows(_) => 0,
            Kind::Text(reader) => reader.file_bytes_read(),
        }
    }

    /// What has been read so far.
    pub fn summary(&self) -> ReadSummary {
        match &self.kind {
            Kind::Lines(reader) => reader.summary(),
            Kind::Rows(reader) => reader.summary(),
            Kind::Text(reader) => reader.summary(),
        }
    }
}
