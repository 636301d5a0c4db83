//! Plain text: a file is a document.

use super::compression::Input;
use super::json::byte_order_mark;
use super::value::text_fault;
use super::{
    BadRecord, Body, CHUNK_BYTES, Entry, Fault, FoundFile, InputSpec, RAW_BYTES_KEPT, ReadSummary,
    Slice, SourceError, reason,
};
use crate::record::{Document, FieldValue};

/// Reads one file as one document.
pub(super) struct TextReader {
    input: Input,
    file_bytes: u64,
    max_document_bytes: u64,
    summary: ReadSummary,
    finished: bool,
}

impl TextReader {
    pub fn open(
        file: &FoundFile,
        slice: &Slice,
        spec: &InputSpec,
    ) -> Result<TextReader, SourceError> {
        if *slice != Slice::Whole {
            return Err(SourceError::NoSuchSlice {
                path: file.path.clone(),
                slice: slice.to_string(),
            });
        }
        Ok(TextReader {
            input: Input::open(file, 0, true)?,
            file_bytes: file.bytes,
            max_document_bytes: spec.max_document_bytes,
            summary: ReadSummary::default(),
            finished: false,
        })
    }

    pub fn file_bytes_read(&self) -> u64 {
        self.input.file_bytes_read()
    }

    pub fn summary(&self) -> ReadSummary {
        self.summary.clone()
    }

    pub fn next(&mut self) -> Result<Option<Body>, SourceError> {
        if self.finished {
            return Ok(None);
        }
        self.finished = true;
        let mut bytes = Vec::new();
        // One byte more than fits, and a byte order mark, show that the end has not been reached.
        let limit = usize::try_from(self.max_document_bytes)
            .unwrap_or(usize::MAX)
            .max(RAW_BYTES_KEPT)
            .saturating_add(4);
        let mut target = usize::try_from(self.file_bytes).unwrap_or(usize::MAX);
        target = target.saturating_add(1).clamp(4, CHUNK_BYTES).min(limit);
        loop {
            self.input.fill(&mut bytes, target)?;
            if self.input.end().is_some() || target >= limit {
                break;
            }
            target = target.saturating_mul(2).min(limit);
        }
        let mark = byte_order_mark(0, &bytes);
        let mut raw_bytes = (bytes.len() - mark) as u64;
        let too_long = raw_bytes > self.max_document_bytes;
        if too_long {
            bytes.truncate(mark + RAW_BYTES_KEPT);
        }
        let mut passed = Vec::new();
        while self.input.end().is_none() {
            passed.clear();
            self.input.fill(&mut passed, CHUNK_BYTES)?;
            raw_bytes += passed.len() as u64;
        }
        self.summary = ReadSummary {
            records: 1,
            bytes: raw_bytes + mark as u64,
            truncated: self.input.damage().map(str::to_string),
            checksum: self.input.checksum(),
        };
        let fault = match self.input.damage() {
            Some(problem) => Some(Fault::new(reason::TRUNCATED, problem)),
            None if too_long => Some(Fault::too_long(raw_bytes, self.max_document_bytes)),
            None => None,
        };
        bytes.drain(..mark);
        Ok(Some(match fault {
            None => Body::Text { bytes },
            Some(fault) => {
                bytes.truncate(RAW_BYTES_KEPT);
                Body::Bad(BadRecord {
                    place: 0,
                    reason: fault.reason,
                    detail: fault.detail,
                    raw: bytes,
                    raw_bytes,
                })
            }
        }))
    }
}

/// The document of a text file.
pub(super) fn decode(bytes: Vec<u8>, fields: usize) -> Entry {
    let fault = match String::from_utf8(bytes) {
        Ok(text) => match text_fault(&text, "the file") {
            None => {
                return Entry::Document(Document {
                    text,
                    fields: vec![FieldValue::Null; fields],
                    ..Document::default()
                });
            }
            Some(fault) => (fault, text.into_bytes()),
        },
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            let bytes = error.into_bytes();
            let detail = format!("byte {at} is 0x{:02X}, which is not UTF-8 there", bytes[at]);
            (Fault::new(reason::INVALID_UTF8, detail), bytes)
        }
    };
    Entry::Bad(BadRecord::new(0, fault.0, &fault.1))
}
