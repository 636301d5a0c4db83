//! Pieces of a file that can be read apart from each other.

use super::compression::{self, Compression};
use super::{Format, FoundFile, InputSpec, SourceError, parquet_rows};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A piece of a file. Its text form is short, stable and can be parsed again.
///
/// ```
/// use goodput::source::Slice;
/// let slice = Slice::Bytes { start: 0, end: 1000 };
/// assert_eq!(slice.to_string(), "bytes:0-1000");
/// assert_eq!("bytes:0-1000".parse(), Ok(slice));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Slice {
    /// The whole file.
    Whole,
    /// The records that begin in `start..end` of a plain file, counted in bytes.
    Bytes {
        /// First offset.
        start: u64,
        /// Offset after the last.
        end: u64,
    },
    /// Row groups `first..end` of a Parquet file.
    RowGroups {
        /// First row group.
        first: usize,
        /// Row group after the last.
        end: usize,
    },
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Slice::Whole => f.write_str("whole"),
            Slice::Bytes { start, end } => write!(f, "bytes:{start}-{end}"),
            Slice::RowGroups { first, end } => write!(f, "groups:{first}-{end}"),
        }
    }
}

/// A text that is not a slice's text form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a slice; a slice is whole, bytes:START-END or groups:FIRST-END")]
pub struct NotASlice(String);

impl FromStr for Slice {
    type Err = NotASlice;

    fn from_str(text: &str) -> Result<Slice, NotASlice> {
        fn range<N: FromStr + PartialOrd>(text: &str) -> Option<(N, N)> {
            let (from, to) = text.split_once('-')?;
            let (from, to) = (from.parse().ok()?, to.parse().ok()?);
            (from <= to).then_some((from, to))
        }
        let parsed = match text.split_once(':') {
            None if text == "whole" => Some(Slice::Whole),
            Some(("bytes", bounds)) => {
                range(bounds).map(|(start, end)| Slice::Bytes { start, end })
            }
            Some(("groups", bounds)) => {
                range(bounds).map(|(first, end)| Slice::RowGroups { first, end })
            }
            _ => None,
        };
        parsed.ok_or_else(|| NotASlice(text.to_string()))
    }
}

impl From<Slice> for String {
    fn from(slice: Slice) -> String {
        slice.to_string()
    }
}

impl TryFrom<String> for Slice {
    type Error = NotASlice;
    fn try_from(text: String) -> Result<Slice, NotASlice> {
        text.parse()
    }
}

/// Cuts a file into slices of about `target_bytes`, in the order of the file, at least one.
/// Together they hold every record exactly once, whatever `target_bytes` is.
///
/// Plain JSONL is cut by bytes, Parquet by row groups; a compressed stream, an Arrow file and a
/// text file stay whole.
///
/// # Errors
/// When the file cannot be read or is of a format that cannot.
pub fn slices(
    file: &FoundFile,
    spec: &InputSpec,
    target_bytes: u64,
) -> Result<Vec<Slice>, SourceError> {
    let target_bytes = target_bytes.max(1);
    match spec.format_of(file)? {
        Format::Jsonl => {
            let (_, compression) = compression::open(file)?;
            if compression != Compression::None || file.bytes <= target_bytes {
                return Ok(vec![Slice::Whole]);
            }
            let pieces = file.bytes.div_ceil(target_bytes);
            let cut = |piece: u64| {
                (u128::from(file.bytes) * u128::from(piece) / u128::from(pieces)) as u64
            };
            Ok((0..pieces)
                .map(|piece| Slice::Bytes {
                    start: cut(piece),
                    end: cut(piece + 1),
                })
                .collect())
        }
        Format::Parquet => parquet_rows::slices(file, target_bytes),
        Format::Arrow | Format::Text | Format::Csv | Format::Warc | Format::Wet => {
            Ok(vec![Slice::Whole])
        }
    }
}
