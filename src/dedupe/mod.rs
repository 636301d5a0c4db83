//! Duplicates: sketches propose, the full text decides, evidence is kept.
//!
//! Everything here works on documents by number: `number` is the place in reading order, `rank`
//! the place in the order (place in `inputs`, id).
//!
//! # What near dedupe costs
//!
//! Measured on 135 MB of mixed text (18,823 documents, 7.2 kB each) with 15 bands of 8 rows, by
//! `cargo bench --bench pipeline -- --near 1`: a core sketches 112 MB a second and tokenizes 73;
//! deciding takes 5 microseconds a document, 10 where three of four are near copies (`--near 4`).
//! Both together are 0.69 to 0.75 times the tokenizing. About one pair a document is verified.
//!
//! The index of a document is 16 bytes and 8 a band (136 with 15), its shingle set 8 a distinct
//! shingle: 1.24 a byte of text with words. While deciding, each band is a record of 16 bytes in a
//! sort (240), and a document that shares buckets has 16 bytes for each of them, and 8 more where it
//! stays.
//!
//! # What the others cost
//!
//! Exact dedupe sorts 32 bytes a document, that of paragraphs and lines 32 bytes a paragraph or line. Spans of 50 tokens
//! exchange 20 bytes a context, of which text without repeats has 0.053 a token: 1.06 bytes a token. A copied page adds to
//! that 24 bytes a mark, about one for each of its contexts; where an anchor has more than 64 contexts that held something
//! new, each stretch that none of these holds adds 24. What does not fit the memory is on disk once. Measured on 58 million
//! tokens of mixed text that stands fifteen times with a word in a hundred edited: 0.06 microseconds of a core a token,
//! 0.045 on the text alone.
//!
//! # Against an earlier release
//!
//! A release is documents that stand before all others in keep order and stay. What is known of them lies in the
//! index that their run wrote: for exact dedupe 16 bytes a document and its id; for near dedupe all shingles, 8
//! bytes each, and 8 bytes a band, unpacked. Shingles rather than places in old inputs, because a release outlives
//! its inputs, and because the similarity that decides is then the same number as in the run that made it. They are
//! read once: the bands go through the exchange that this run's go through (16 bytes each in a sort), buckets
//! without a document of this run are passed over, and only members of the others are read with their shingles. So
//! memory does not grow with the release, and the shingles that are read grow with this run.
//!
//! # Ten billion documents on many machines, on paper
//!
//! Not built. 10 billion documents of 4 kB are 40 TB of text; say on 100 machines of 32 cores with
//! 10 Gbit/s each.
//!
//! - *Sketch.* Each machine sketches the documents it holds: 100 core hours in all, 2 minutes. It
//!   keeps their shingle sets, 50 TB in all, half a terabyte a machine, and they stay there.
//! - *Exchange bands.* Each machine owns a range of band hashes. 240 bytes a document, 2.4 TB, cross the
//!   network once: 24 GB a machine, 20 seconds, and a sort of as much on its disk.
//! - *Return buckets.* The owner of a range tells the holders of the members, 16 bytes a member of a
//!   bucket of two or more; no more than was sent, and far less where few documents have copies.
//! - *Verify.* One set of a pair travels to the other one's holder. With one pair a document and 5 kB a
//!   set that is 50 TB, half a terabyte a machine: 7 minutes, the dearest part; to merge two sets takes
//!   microseconds. Sent once to each machine for all its pairs, popular documents cost less.
//! - *Decide.* What stays depends on keep order alone: a document is decided once all before it that it
//!   is similar to are. In rounds, each holder decides what it can and tells the fate of those documents
//!   to the holders of their pairs, 24 bytes each; there are as many rounds as the longest chain of
//!   similar documents in keep order. A bucket of more than `max_bucket` members waits for the fates of
//!   its first ones, since only those that stay are compared with.

mod exact;
mod guard;
mod near;
mod sketch;
mod spans;
mod units;

pub use exact::{Fingerprint, decide as decide_exact, fingerprint, normalised};
pub use guard::{Amount, Guard, Loss, Part, each_cluster};
pub use near::{
    BandHash, Documents, Keep, NearInput, NearReport, Policy, Proposals, decide as decide_near,
    propose,
};
pub use sketch::{Shingling, SketchScratch, Sketcher};
pub use spans::{RankedTokens, Span, SpanReport, SpanRule, decide as decide_spans};
pub use units::{Repeat, Unit, UnitPlace, UnitRow, UnitRule, decide as decide_units, units};

/// A document that goes, and the one because of which it goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropped {
    /// The document that goes.
    pub number: u64,
    /// The kept document that it repeats; where none is kept, one that it is similar to.
    pub kept: u64,
    /// Exact similarity of the two, from 0 to 1.
    pub similarity: f64,
}
