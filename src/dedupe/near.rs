//! Near duplicates: MinHash bands propose, the exact similarity of the full shingle sets decides.
//!
//! Documents are taken in keep order. One is dropped when it is verified similar to a document that
//! was kept; it never goes because of one that was dropped itself, so similarity does not chain. The
//! kept document named in the evidence is the first such one in keep order.
//!
//! Three exchanges of 16-byte records: (band hash, place in keep order) makes the buckets, those of
//! two members or more become (place in keep order, bucket), and a pass in keep order decides. The
//! pass holds the kept members of each bucket in a file-backed column, at most `max_bucket` of each.

use super::Dropped;
use crate::algo::minhash::{MinHasher, Scratch, jaccard_at_least};
use crate::algo::{hash, words};
use crate::spill::{ScratchColumn, Spill};
use rayon::prelude::*;
use std::collections::HashMap;
use std::io;

/// Which documents are compared and when one goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// Jaccard similarity from which a document is dropped; one exactly at it is dropped.
    pub min_similarity: f64,
    /// Kept members of a bucket that later ones are compared with.
    pub max_bucket: u32,
}

/// One band of one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct BandHash {
    /// Hash of the band's rows; different bands never share one by design.
    pub hash: u64,
    /// Place in keep order: unique, dense from 0.
    pub place: u64,
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Membership {
    place: u64,
    bucket: u64,
}

/// Documents to be compared.
#[derive(Clone, Copy)]
pub struct Documents<'a> {
    /// Document number by place in keep order.
    pub number: &'a (dyn Fn(u64) -> u64 + Sync),
    /// The shingle set of a document by number: sorted, distinct.
    pub shingles: &'a (dyn Fn(u64) -> &'a [u64] + Sync),
}

/// What the decision works from.
pub struct NearInput<'a> {
    /// Every band of every document.
    pub bands: &'a mut dyn Iterator<Item = BandHash>,
    /// The documents.
    pub documents: Documents<'a>,
}

/// What happened besides the drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NearReport {
    /// Buckets of two documents or more.
    pub buckets: u64,
    /// Pairs whose exact similarity was computed.
    pub pairs_verified: u64,
    /// Times that a kept document found a bucket full: later members of that bucket were not
    /// compared with it through that bucket.
    pub skipped_full_bucket: u64,
}

/// The shingle set and the band hashes of a text.
///
/// A text of fewer words than a shingle has one shingle, the hash of all its words: it is similar
/// only to a text of the same words. A text without words has neither set nor bands.
/// Returns whether the text was too short to shingle.
pub fn sketch(
    text: &str,
    shingle_words: usize,
    hasher: &MinHasher,
    scratch: &mut SketchScratch,
    bands: &mut Vec<u64>,
) -> bool {
    words::normalised_words(text, &mut scratch.words);
    scratch.shingles.clear();
    bands.clear();
    let short = scratch.words.len() < shingle_words;
    if !short {
        words::shingles(&scratch.words, shingle_words, &mut scratch.shingles);
    } else if !scratch.words.is_empty() {
        let whole = hash::content(bytemuck::cast_slice(&scratch.words));
        scratch.shingles.push((whole >> 64) as u64 ^ whole as u64);
    }
    if !scratch.shingles.is_empty() {
        hasher.bands_into(&scratch.shingles, &mut scratch.minhash, bands);
    }
    short
}

/// Buffers of [`sketch`], reused between documents.
#[derive(Default)]
pub struct SketchScratch {
    words: Vec<u64>,
    /// The shingle set of the last text: sorted, distinct.
    pub shingles: Vec<u64>,
    minhash: Scratch,
}

/// Documents decided at a time: enough for all workers, few enough for memory.
const BATCH: usize = 4_096;
/// Pairs of a document inside its batch that are verified before the sequential pass.
const MATES: usize = 8;

/// Calls `drop` for every document that goes, in keep order.
///
/// # Errors
/// When intermediate files cannot be written or read.
pub fn decide(
    input: NearInput<'_>,
    policy: Policy,
    spill: &Spill,
    drop: impl FnMut(Dropped),
) -> io::Result<NearReport> {
    let mut bands = spill.sorter("bands", |a: &BandHash, b: &BandHash| {
        (a.hash, a.place).cmp(&(b.hash, b.place))
    });
    let NearInput {
        bands: all,
        documents,
    } = input;
    for band in all {
        bands.push(band)?;
    }
    let mut memberships = spill.sorter("memberships", |a: &Membership, b: &Membership| {
        (a.place, a.bucket).cmp(&(b.place, b.bucket))
    });
    // Capacities of the buckets become offsets as they come.
    let mut offsets = spill.sorter("offsets", |a: &u64, b: &u64| a.cmp(b));
    let (mut buckets, mut capacity) = (0u64, 0u64);
    {
        let mut first: Option<BandHash> = None;
        let mut members = 1u64;
        for band in bands.finish()? {
            let band = band?;
            match first {
                Some(head) if head.hash == band.hash => {
                    if members == 1 {
                        memberships.push(Membership {
                            place: head.place,
                            bucket: buckets,
                        })?;
                    }
                    memberships.push(Membership {
                        place: band.place,
                        bucket: buckets,
                    })?;
                    members += 1;
                }
                _ => {
                    if members > 1 {
                        offsets.push(capacity)?;
                        capacity += members.min(u64::from(policy.max_bucket));
                        buckets += 1;
                    }
                    first = Some(band);
                    members = 1;
                }
            }
        }
        if members > 1 {
            offsets.push(capacity)?;
            capacity += members.min(u64::from(policy.max_bucket));
            buckets += 1;
        }
    }
    let table = Table::create(spill, offsets.finish()?, buckets, capacity)?;
    let mut pass = Pass {
        documents,
        policy,
        table,
        report: NearReport {
            buckets,
            ..NearReport::default()
        },
        drop,
    };
    let mut batch: Vec<Candidate> = Vec::with_capacity(BATCH);
    for membership in memberships.finish()? {
        let Membership { place, bucket } = membership?;
        match batch.last_mut() {
            Some(last) if last.place == place => last.buckets.push(bucket),
            _ => {
                if batch.len() == BATCH {
                    pass.decide(&mut batch);
                }
                batch.push(Candidate {
                    place,
                    number: (documents.number)(place),
                    buckets: vec![bucket],
                });
            }
        }
    }
    pass.decide(&mut batch);
    Ok(pass.report)
}

struct Candidate {
    place: u64,
    number: u64,
    buckets: Vec<u64>,
}

/// The kept members of each bucket, by place, ascending.
struct Table {
    offsets: ScratchColumn<u64>,
    filled: ScratchColumn<u32>,
    members: ScratchColumn<u64>,
}

impl Table {
    fn create(
        spill: &Spill,
        offsets: impl Iterator<Item = io::Result<u64>>,
        buckets: u64,
        capacity: u64,
    ) -> io::Result<Table> {
        let path = |name: &str| spill.folder().join(name);
        let mut starts = ScratchColumn::create(&path("bucket-offsets"), buckets + 1)?;
        for (slot, offset) in starts.values_mut().iter_mut().zip(offsets) {
            *slot = offset?;
        }
        starts.values_mut()[buckets as usize] = capacity;
        Ok(Table {
            offsets: starts,
            filled: ScratchColumn::create(&path("bucket-filled"), buckets)?,
            members: ScratchColumn::create(&path("bucket-members"), capacity)?,
        })
    }

    fn members(&self, bucket: u64) -> &[u64] {
        let start = self.offsets.values()[bucket as usize] as usize;
        &self.members.values()[start..start + self.filled.values()[bucket as usize] as usize]
    }

    /// Adds a kept member; false where the bucket is full.
    fn add(&mut self, bucket: u64, place: u64) -> bool {
        let (start, end) = (
            self.offsets.values()[bucket as usize],
            self.offsets.values()[bucket as usize + 1],
        );
        let filled = &mut self.filled.values_mut()[bucket as usize];
        if start + u64::from(*filled) == end {
            return false;
        }
        self.members.values_mut()[start as usize + *filled as usize] = place;
        *filled += 1;
        true
    }

    /// Kept documents in any of `buckets` from place `from` on: ascending, distinct.
    fn kept(&self, buckets: &[u64], from: u64, out: &mut Vec<u64>) {
        out.clear();
        for &bucket in buckets {
            let members = self.members(bucket);
            out.extend_from_slice(&members[members.partition_point(|&place| place < from)..]);
        }
        out.sort_unstable();
        out.dedup();
    }
}

struct Pass<'a, D> {
    documents: Documents<'a>,
    policy: Policy,
    table: Table,
    report: NearReport,
    drop: D,
}

/// What is known of a document before the sequential pass.
#[derive(Default)]
struct Known {
    /// Similar to a document kept before this batch: its place and the similarity.
    earlier: Option<(u64, f64)>,
    /// Similarity with some documents of this batch, by index; `None` where it is too low.
    mates: Vec<(u32, Option<f64>)>,
    verified: u64,
}

impl<D: FnMut(Dropped)> Pass<'_, D> {
    fn decide(&mut self, batch: &mut Vec<Candidate>) {
        let Some(start) = batch.first().map(|candidate| candidate.place) else {
            return;
        };
        let (documents, table, at_least) =
            (self.documents, &self.table, self.policy.min_similarity);
        let similarity = |a: u64, b: u64| {
            jaccard_at_least((documents.shingles)(a), (documents.shingles)(b), at_least)
        };
        // In parallel: against what was kept before this batch.
        let mut known: Vec<Known> = batch
            .par_iter()
            .map_init(Vec::new, |kept, candidate| {
                let mut known = Known::default();
                table.kept(&candidate.buckets, 0, kept);
                for &place in kept.iter() {
                    known.verified += 1;
                    if let Some(similarity) =
                        similarity((documents.number)(place), candidate.number)
                    {
                        known.earlier = Some((place, similarity));
                        break;
                    }
                }
                known
            })
            .collect();
        // In parallel: the first few documents of this batch that a document may have to yield to.
        let mut mates: HashMap<u64, Vec<u32>> = HashMap::new();
        for (index, candidate) in batch.iter().enumerate() {
            if known[index].earlier.is_none() {
                for &bucket in &candidate.buckets {
                    let first = mates.entry(bucket).or_default();
                    if first.len() < MATES {
                        first.push(index as u32);
                    }
                }
            }
        }
        let verified: Vec<Vec<(u32, Option<f64>)>> = batch
            .par_iter()
            .enumerate()
            .map(|(index, candidate)| {
                if known[index].earlier.is_some() {
                    return Vec::new();
                }
                let mut before: Vec<u32> = candidate
                    .buckets
                    .iter()
                    .filter_map(|bucket| mates.get(bucket))
                    .flatten()
                    .copied()
                    .filter(|&mate| (mate as usize) < index)
                    .collect();
                before.sort_unstable();
                before.dedup();
                before.truncate(MATES);
                before
                    .into_iter()
                    .map(|mate| {
                        (
                            mate,
                            similarity(batch[mate as usize].number, candidate.number),
                        )
                    })
                    .collect()
            })
            .collect();
        for (known, mates) in known.iter_mut().zip(verified) {
            known.verified += mates.len() as u64;
            known.mates = mates;
        }
        // In keep order: what was decided in this batch.
        let mut kept = Vec::new();
        let index_of: HashMap<u64, u32> = batch
            .iter()
            .enumerate()
            .map(|(index, candidate)| (candidate.place, index as u32))
            .collect();
        for (index, candidate) in batch.iter().enumerate() {
            self.report.pairs_verified += known[index].verified;
            let mut found = known[index].earlier;
            if found.is_none() {
                self.table.kept(&candidate.buckets, start, &mut kept);
                for &place in &kept {
                    let mate = index_of[&place];
                    let similarity = match known[index]
                        .mates
                        .binary_search_by_key(&mate, |&(mate, _)| mate)
                    {
                        Ok(at) => known[index].mates[at].1,
                        Err(_) => {
                            self.report.pairs_verified += 1;
                            similarity(batch[mate as usize].number, candidate.number)
                        }
                    };
                    if let Some(similarity) = similarity {
                        found = Some((place, similarity));
                        break;
                    }
                }
            }
            match found {
                Some((place, similarity)) => (self.drop)(Dropped {
                    number: candidate.number,
                    kept: (documents.number)(place),
                    similarity,
                }),
                None => {
                    for &bucket in &candidate.buckets {
                        self.report.skipped_full_bucket +=
                            u64::from(!self.table.add(bucket, candidate.place));
                    }
                }
            }
        }
        batch.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POLICY: Policy = Policy {
        min_similarity: 0.8,
        max_bucket: 1_000,
    };

    /// Decides over texts in keep order: (dropped, kept) by index, and the report.
    fn run(texts: &[String], policy: Policy, memory_bytes: usize) -> (Vec<(u64, u64)>, NearReport) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let spill = Spill::new(folder.path(), memory_bytes);
        let hasher = MinHasher::new(1, 14, 8);
        let mut scratch = SketchScratch::default();
        let (mut sets, mut all) = (Vec::new(), Vec::new());
        for (place, text) in texts.iter().enumerate() {
            let mut bands = Vec::new();
            sketch(text, 5, &hasher, &mut scratch, &mut bands);
            sets.push(scratch.shingles.clone());
            all.extend(bands.into_iter().map(|hash| BandHash {
                hash,
                place: place as u64,
            }));
        }
        let mut dropped = Vec::new();
        let input = NearInput {
            bands: &mut all.into_iter(),
            documents: Documents {
                number: &|place| place,
                shingles: &|number| &sets[number as usize],
            },
        };
        let report =
            decide(input, policy, &spill, |d| dropped.push((d.number, d.kept))).expect("decided");
        (dropped, report)
    }

    fn page(changed: &[usize]) -> String {
        (0..200)
            .map(|i| {
                if changed.contains(&i) {
                    format!("changed{i}")
                } else {
                    format!("word{i}")
                }
            })
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn a_similar_page_goes_and_names_the_kept_one() {
        let texts = [
            page(&[]),
            "something else entirely that stands alone here".into(),
            page(&[100]),
        ];
        assert_eq!(run(&texts, POLICY, 1 << 20).0, [(2, 0)]);
    }

    #[test]
    fn similarity_does_not_chain() {
        // Each differs from the one before by two words (ten shingles of 196): .90; two steps: .81;
        // three steps: .73. The fourth is similar to dropped ones only, so it stays.
        let texts: Vec<String> = [
            &[][..],
            &[20, 60],
            &[20, 60, 100, 140],
            &[20, 60, 100, 140, 30, 80],
        ]
        .iter()
        .map(|changed| page(changed))
        .collect();
        assert_eq!(run(&texts, POLICY, 1 << 20).0, [(1, 0), (2, 0)]);
    }

    #[test]
    fn documents_of_two_to_four_words_are_compared_as_a_whole() {
        let mut texts: Vec<String> = (0..100)
            .map(|i| {
                format!(
                    "alpha{i} beta{}",
                    (0..i % 3).map(|j| format!(" w{j}")).collect::<String>()
                )
            })
            .collect();
        assert_eq!(run(&texts, POLICY, 1 << 20).0, []);
        texts.push("Alpha7, beta w0".into());
        assert_eq!(run(&texts, POLICY, 1 << 20).0, [(100, 7)]);
    }

    #[test]
    fn documents_without_words_are_never_similar() {
        assert_eq!(
            run(&["!!!".into(), "???".into(), "!!!".into()], POLICY, 1 << 20).0,
            []
        );
    }

    #[test]
    fn a_full_bucket_is_counted() {
        // One bucket of pages that share half their shingles: candidates through some band, never similar.
        let texts: Vec<String> = (0..40)
            .map(|i| page(&[3 + i, 60 + i, 120 + i, 150, 170]))
            .collect();
        let strict = Policy {
            min_similarity: 0.99,
            max_bucket: 1,
        };
        let (dropped, report) = run(&texts, strict, 1 << 20);
        assert_eq!(dropped, []);
        assert!(
            report.buckets > 0 && report.skipped_full_bucket > 0,
            "{report:?}"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn the_kept_set_is_that_of_the_plain_definition(
            edits in proptest::collection::vec(proptest::collection::vec(0usize..200, 0..6), 1..60),
        ) {
            let texts: Vec<String> = edits.iter().map(|changed| page(changed)).collect();
            let (dropped, _) = run(&texts, POLICY, 1 << 20);
            prop_assert_eq!(&dropped, &run(&texts, POLICY, 4_096).0);
            // Plain definition over the same candidates: bands that meet.
            let hasher = MinHasher::new(1, 14, 8);
            let mut scratch = SketchScratch::default();
            let sketches: Vec<(Vec<u64>, Vec<u64>)> = texts.iter().map(|text| {
                let mut bands = Vec::new();
                sketch(text, 5, &hasher, &mut scratch, &mut bands);
                (scratch.shingles.clone(), bands)
            }).collect();
            let mut kept: Vec<usize> = Vec::new();
            let mut expected = Vec::new();
            for (i, (set, bands)) in sketches.iter().enumerate() {
                let similar = kept.iter().find(|&&k| {
                    sketches[k].1.iter().any(|band| bands.contains(band))
                        && jaccard_at_least(&sketches[k].0, set, 0.8).is_some()
                });
                match similar {
                    Some(&k) => expected.push((i as u64, k as u64)),
                    None => kept.push(i),
                }
            }
            prop_assert_eq!(dropped, expected);
        }
    }
}
