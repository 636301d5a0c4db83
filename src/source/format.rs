//! The formats of input files, by name.

use serde::{Deserialize, Serialize};

/// A format of input files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// One JSON object a line; plain, gzip or zstd.
    Jsonl,
    /// Apache Parquet.
    Parquet,
    /// Arrow IPC, file or stream.
    Arrow,
    /// Plain text, a document a file; plain, gzip or zstd.
    Text,
    /// Comma-separated values.
    Csv,
    /// Web archives with HTML.
    Warc,
    /// Web archives with extracted text.
    Wet,
}

impl Format {
    /// Every format by the name that a pipeline file uses.
    pub const NAMES: &'static [(&'static str, Format)] = &[
        ("jsonl", Format::Jsonl),
        ("parquet", Format::Parquet),
        ("arrow", Format::Arrow),
        ("text", Format::Text),
        ("csv", Format::Csv),
        ("warc", Format::Warc),
        ("wet", Format::Wet),
    ];

    /// The name that a pipeline file uses.
    pub fn name(self) -> &'static str {
        match self {
            Format::Jsonl => "jsonl",
            Format::Parquet => "parquet",
            Format::Arrow => "arrow",
            Format::Text => "text",
            Format::Csv => "csv",
            Format::Warc => "warc",
            Format::Wet => "wet",
        }
    }

    /// The format of that name.
    pub fn by_name(name: &str) -> Option<Format> {
        Format::NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, format)| *format)
    }

    /// Whether files of this format can be read.
    pub fn supported(self) -> bool {
        match self {
            Format::Jsonl | Format::Parquet | Format::Arrow | Format::Text => true,
            Format::Csv | Format::Warc | Format::Wet => false,
        }
    }

    /// The format that a file's name says, whatever its letter case and compression.
    ///
    /// ```
    /// use goodput::source::Format;
    /// assert_eq!(Format::guess("web/part-0.jsonl.zst"), Some(Format::Jsonl));
    /// assert_eq!(Format::guess("crawl.warc.wet.gz"), Some(Format::Wet));
    /// assert_eq!(Format::guess("notes"), None);
    /// ```
    pub fn guess(file_name: &str) -> Option<Format> {
        let name = file_name.to_ascii_lowercase();
        let name = [".gz", ".gzip", ".zst", ".zstd"]
            .iter()
            .find_map(|ending| name.strip_suffix(ending))
            .unwrap_or(&name);
        let (_, ending) = name.rsplit_once('.')?;
        match ending {
            "jsonl" | "ndjson" | "json" => Some(Format::Jsonl),
            "parquet" | "pq" => Some(Format::Parquet),
            "arrow" | "arrows" | "ipc" | "feather" => Some(Format::Arrow),
            "txt" | "text" | "md" => Some(Format::Text),
            "csv" => Some(Format::Csv),
            "warc" => Some(Format::Warc),
            "wet" => Some(Format::Wet),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_found_by_its_name() {
        for (name, format) in Format::NAMES {
            assert_eq!(format.name(), *name);
            assert_eq!(Format::by_name(name), Some(*format));
        }
        assert_eq!(Format::by_name("JSONL"), None);
    }

    #[test]
    fn names_say_formats_whatever_the_compression() {
        for (name, format) in [
            ("a.jsonl", Some(Format::Jsonl)),
            ("a.JSONL.GZ", Some(Format::Jsonl)),
            ("a.b/c.json.gz", Some(Format::Jsonl)),
            ("a.ndjson.zstd", Some(Format::Jsonl)),
            ("a.parquet", Some(Format::Parquet)),
            ("a.arrow", Some(Format::Arrow)),
            ("a.txt.zst", Some(Format::Text)),
            ("a.csv.gz", Some(Format::Csv)),
            ("a.warc.gz", Some(Format::Warc)),
            ("a.warc.wet.gz", Some(Format::Wet)),
            ("a.warc.wat.gz", None),
            ("jsonl", None),
            ("a.gz", None),
            ("", None),
        ] {
            assert_eq!(Format::guess(name), format, "{name}");
        }
    }
}
