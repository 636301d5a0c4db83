//! A document on its way through the per-document stages.

use super::FieldValue;
use std::ops::Range;

/// A language, by its ISO 639 code (639-1 where there is one, else 639-3), at most 7 ASCII bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Language([u8; 8]);

impl Language {
    /// No language could be named.
    pub const UNKNOWN: Language = Language(*b"und\0\0\0\0\0");

    /// A language by its code; `None` for an empty, too long or non-ASCII one.
    pub fn new(code: &str) -> Option<Language> {
        let bytes = code.as_bytes();
        if bytes.is_empty() || bytes.len() > 7 || !code.is_ascii() {
            return None;
        }
        let mut packed = [0; 8];
        packed[..bytes.len()].copy_from_slice(bytes);
        Some(Language(packed))
    }

    /// The code with zero bytes after it.
    pub fn packed(self) -> [u8; 8] {
        self.0
    }

    /// What [`Language::packed`] gave; `None` for zeros.
    pub fn unpacked(packed: [u8; 8]) -> Option<Language> {
        let length = packed.iter().position(|&b| b == 0).unwrap_or(8);
        Language::new(std::str::from_utf8(&packed[..length]).ok()?)
    }

    /// The code.
    pub fn code(&self) -> &str {
        let length = self.0.iter().position(|&b| b == 0).unwrap_or(8);
        std::str::from_utf8(&self.0[..length]).expect("built from ASCII only")
    }
}

impl std::fmt::Debug for Language {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.code())
    }
}

/// One document, as the per-document stages see it.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// Uncompressed byte offset of the record in its file, or its row number.
    pub place: u64,
    /// The given id, where the input names an id field.
    pub id: Option<String>,
    /// The text, valid UTF-8.
    pub text: String,
    /// The declared fields, in the order of the pipeline's field list.
    pub fields: Vec<FieldValue>,
    /// Token ids of the text, without special tokens.
    pub tokens: Vec<u32>,
    /// Language and its probability from 0 to 1, once a stage has identified it.
    pub language: Option<(Language, f32)>,
    /// What the stage that has just judged it found in its text of other texts.
    pub overlaps: Vec<Overlap>,
}

/// A stretch of a document's text that stands in a text that the stage was given, such as an item of
/// an evaluation set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// First byte, in the text as the stage saw it; at a border of characters and of words.
    pub start: u64,
    /// Byte after the last, likewise.
    pub end: u64,
    /// Number of the other text among those that the stage was given.
    pub item: u32,
    /// Keys of the other text (n-grams; the whole of a short one) that the document holds, 1 or more.
    pub keys_held: u32,
    /// Keys that the other text has.
    pub keys: u32,
}

/// What a per-document stage says of a document.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It goes on.
    Keep,
    /// It is turned away.
    Reject {
        /// Index into the stage's declared reasons.
        reason: usize,
        /// The deciding value, in the unit that the reason's doc names. Finite.
        value: f64,
    },
    /// Stretches of its text are cut out, and the rest goes on. Where nothing but white space is left, the
    /// whole document is turned away for the same reason, as it was before.
    Cut {
        /// Index into the stage's declared reasons.
        reason: usize,
        /// The deciding value, in the unit that the reason's doc names. Finite.
        value: f64,
        /// Bytes of the text, half-open, none empty, ascending, apart or touching, at borders of characters. At
        /// least one.
        ranges: Vec<Range<usize>>,
    },
}

/// A text without some stretches of it; `None` where they are not as [`Verdict::Cut`] says.
///
/// ```
/// # use goodput::record::without;
/// assert_eq!(without("naïve text", [5..6, 7..11].into_iter()).as_deref(), Some("naïv "));
/// assert_eq!(without("naïve text", [3..4].into_iter()), None);
/// ```
pub fn without(text: &str, ranges: impl Iterator<Item = Range<usize>>) -> Option<String> {
    let mut rest = String::with_capacity(text.len());
    let (mut kept_from, mut any) = (0, false);
    for range in ranges {
        if range.is_empty() || range.start < kept_from || !text.is_char_boundary(range.end) {
            return None;
        }
        rest.push_str(text.get(kept_from..range.start)?);
        (kept_from, any) = (range.end, true);
    }
    rest.push_str(text.get(kept_from..)?);
    any.then_some(rest)
}

/// What a stage did not do and why, counted: indices into the stage's declared notes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    counts: Vec<u64>,
}

impl Notes {
    /// Counts one occurrence of the stage's note number `note`.
    pub fn count(&mut self, note: usize) {
        if self.counts.len() <= note {
            self.counts.resize(note + 1, 0);
        }
        self.counts[note] += 1;
    }
    /// Occurrences of note number `note`.
    pub fn get(&self, note: usize) -> u64 {
        self.counts.get(note).copied().unwrap_or(0)
    }
    /// Adds another worker's counts.
    pub fn add(&mut self, other: &Notes) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
    }
}
