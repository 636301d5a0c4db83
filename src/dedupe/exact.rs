//! Exact duplicates: equal 128-bit hashes of the text, or of the normalised text.
//!
//! At 10 billion documents the chance that any two different texts share a hash is below 10^-18.

use super::Dropped;
use crate::algo::hash;
use crate::spill::Spill;
use std::io;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// What the exchange carries: 32 bytes a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Fingerprint {
    /// Hash of the text, high half first.
    pub hash: [u64; 2],
    /// Place in the order (place in `inputs`, id).
    pub rank: u64,
    /// Place in reading order.
    pub number: u64,
}

/// The 128-bit hash of a text, high half first.
pub fn fingerprint(text: &str, normalise: bool) -> [u64; 2] {
    let hash = if normalise {
        hash::content(normalised(text).as_bytes())
    } else {
        hash::content(text.as_bytes())
    };
    [(hash >> 64) as u64, hash as u64]
}

/// The text in Unicode form NFC, lower-cased, each run of white space one space, trimmed.
pub fn normalised(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut gap = false;
    let mut push = |c: char| {
        if c.is_whitespace() {
            gap = !out.is_empty();
        } else {
            if std::mem::take(&mut gap) {
                out.push(' ');
            }
            out.push(c);
        }
    };
    if text.is_ascii() {
        text.chars().for_each(|c| push(c.to_ascii_lowercase()));
    } else if is_nfc_quick(text.chars()) == IsNormalized::Yes {
        text.chars().flat_map(char::to_lowercase).for_each(push);
    } else {
        text.nfc().flat_map(char::to_lowercase).for_each(push);
    }
    out
}

/// Calls `drop` for every document whose hash an earlier one (by rank) has, in order of hash and rank.
///
/// The first `released` ranks are of documents that have left already, in an earlier release: they stay,
/// even where one of them repeats another.
///
/// # Errors
/// The first one of `fingerprints`, and when intermediate files cannot be written or read.
pub fn decide(
    fingerprints: impl Iterator<Item = io::Result<Fingerprint>>,
    released: u64,
    spill: &Spill,
    mut drop: impl FnMut(Dropped),
) -> io::Result<()> {
    let mut sorter = spill.sorter("exact", |a: &Fingerprint, b: &Fingerprint| {
        (a.hash, a.rank).cmp(&(b.hash, b.rank))
    });
    for fingerprint in fingerprints {
        sorter.push(fingerprint?)?;
    }
    let mut first: Option<Fingerprint> = None;
    for fingerprint in sorter.finish()? {
        let fingerprint = fingerprint?;
        match first {
            Some(kept) if kept.hash == fingerprint.hash => {
                if fingerprint.rank >= released {
                    drop(Dropped {
                        number: fingerprint.number,
                        kept: kept.number,
                        similarity: 1.0,
                    });
                }
            }
            _ => first = Some(fingerprint),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dropped(texts: &[&str], ranks: &[u64], released: u64) -> Vec<(u64, u64)> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let spill = Spill::new(folder.path(), 1 << 20);
        let mut dropped = Vec::new();
        let all = texts.iter().zip(ranks).zip(0..);
        let all = all.map(|((text, &rank), number)| {
            Ok(Fingerprint {
                hash: fingerprint(text, false),
                rank,
                number,
            })
        });
        decide(all, released, &spill, |d| dropped.push((d.number, d.kept))).expect("decided");
        dropped
    }

    #[test]
    fn the_first_by_rank_stays() {
        let (texts, ranks) = (["cat", "dog", "cat", "cat"], [2, 1, 0, 3]);
        assert_eq!(dropped(&texts, &ranks, 0), [(0, 2), (3, 2)]);
    }

    #[test]
    fn what_was_released_stays_even_where_it_repeats_itself() {
        let (texts, ranks) = (["cat", "cat", "cat", "dog"], [0, 1, 2, 3]);
        assert_eq!(dropped(&texts, &ranks, 1), [(1, 0), (2, 0)]);
        assert_eq!(dropped(&texts, &ranks, 2), [(2, 0)]);
        assert_eq!(dropped(&texts, &ranks, 4), []);
    }

    #[test]
    fn hashes_are_those_of_version_1_of_the_index() {
        // Indexes of earlier releases hold them: who changes them raises `shard::INDEX_VERSION`.
        assert_eq!(
            fingerprint("The Cat,\n sat", false),
            [0xa170db9458ae25aa, 0x2f5296a3dd66d76]
        );
        assert_eq!(
            fingerprint("The Cat,\n sat", true),
            [0x88f0c65bc9512d77, 0x426cc53867e1e923]
        );
    }

    #[test]
    fn normalising_folds_case_space_and_accents() {
        assert_eq!(normalised("  A\tB\n\nc "), "a b c");
        assert_eq!(normalised("e\u{301}"), normalised("É"));
        assert_eq!(normalised(" \n"), "");
        assert_ne!(fingerprint("A b", false), fingerprint("a  b", false));
        assert_eq!(fingerprint("A b", true), fingerprint("a  b", true));
    }
}
