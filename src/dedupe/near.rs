//! Near duplicates: MinHash bands propose, the exact similarity of the full shingle sets decides.
//!
//! Documents are taken in keep order. One is dropped when it is verified similar to a document that
//! was kept; it never goes because of one that was dropped itself, so similarity does not chain. The
//! kept document named in the evidence is the first such one in keep order. Where nothing of what
//! is similar is to be kept ([`Keep::None`]), a document goes when it is verified similar to any other.
//!
//! Three exchanges of 16-byte records: (band hash, place in keep order) makes the buckets, those of
//! two members or more become (place in keep order, bucket), and a pass in keep order decides. The
//! pass holds the kept members of each bucket in a file-backed column, at most `max_bucket` of each.
//!
//! Documents of earlier releases stand before all others in keep order. They are settled: they stay
//! whatever they are similar to, whatever the rule, and are never compared with each other. Only those
//! that share a bucket with a document of this run are asked for their shingles.

use super::Dropped;
use crate::algo::minhash::Measure;
use crate::spill::{ScratchColumn, Sorted, Spill};
use rayon::prelude::*;
use std::collections::HashMap;
use std::io;

/// Which documents are compared and when one goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// Similarity from which a document is dropped; one exactly at it is dropped.
    pub min_similarity: f64,
    /// What similarity is.
    pub measure: Measure,
    /// What is kept of documents that are similar to each other.
    pub keep: Keep,
    /// Members of a bucket that later ones are compared with: kept ones, for [`Keep::None`] any.
    pub max_bucket: u32,
}

/// What is kept of documents that are similar to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The first one in keep order.
    First,
    /// Not one of them: whoever has a verified similar document goes, whether that one goes or not.
    None,
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

/// Which documents are to be compared, before any is.
pub struct Proposals {
    table: Table,
    candidates: Sorted<Membership>,
    /// The first one, taken out to find where the released ones end.
    first: Option<Membership>,
    /// Places before it are of documents of earlier releases.
    released: u64,
    /// Places in all.
    places: u64,
    policy: Policy,
    report: NearReport,
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

/// Documents decided at a time: enough for all workers, few enough for memory.
const BATCH: usize = 4_096;
/// Pairs of a document inside its batch that are verified before the sequential pass.
const MATES: usize = 8;

/// The members of one band hash, as they come in keep order.
#[derive(Default)]
struct Bucket {
    /// Of earlier releases, at most `max_bucket`.
    released: Vec<u64>,
    /// Of earlier releases, all.
    released_in_all: u64,
    /// The first one of this run, until there is something to compare it with.
    alone: Option<u64>,
    members: u64,
    /// Whether its members are to be compared.
    is_open: bool,
}

/// Puts documents into buckets by their bands; calls `needed` with the place of every document of an earlier
/// release that is to be compared with one of this run, in order. The first `released` places are theirs.
///
/// # Errors
/// The first one of `bands` or `needed`, and when intermediate files cannot be written or read.
pub fn propose(
    bands: impl Iterator<Item = io::Result<BandHash>>,
    released: u64,
    policy: Policy,
    spill: &Spill,
    mut needed: impl FnMut(u64) -> io::Result<()>,
) -> io::Result<Proposals> {
    let mut sorter = spill.sorter("bands", |a: &BandHash, b: &BandHash| {
        (a.hash, a.place).cmp(&(b.hash, b.place))
    });
    let mut places = released;
    for band in bands {
        let band = band?;
        places = places.max(band.place + 1);
        sorter.push(band)?;
    }
    let mut memberships = spill.sorter("memberships", |a: &Membership, b: &Membership| {
        (a.place, a.bucket).cmp(&(b.place, b.bucket))
    });
    // Capacities of the buckets become offsets as they come.
    let mut offsets = spill.sorter("offsets", |a: &u64, b: &u64| a.cmp(b));
    let (mut buckets, mut capacity, mut skipped) = (0u64, 0u64, 0u64);
    let max_bucket = u64::from(policy.max_bucket);
    {
        let mut bucket = Bucket::default();
        let mut close = |bucket: &Bucket| -> io::Result<()> {
            if bucket.is_open {
                offsets.push(capacity)?;
                capacity += bucket.members.min(max_bucket);
                skipped += bucket.released_in_all - bucket.released.len() as u64;
            }
            Ok(())
        };
        let mut hash = None;
        for band in sorter.finish()? {
            let BandHash { hash: next, place } = band?;
            if hash != Some(next) {
                close(&bucket)?;
                buckets += u64::from(bucket.is_open);
                hash = Some(next);
                bucket.released.clear();
                bucket = Bucket {
                    released: bucket.released,
                    ..Bucket::default()
                };
            }
            bucket.members += 1;
            if place < released {
                bucket.released_in_all += 1;
                if bucket.released_in_all <= max_bucket {
                    bucket.released.push(place);
                }
                continue;
            }
            if bucket.members == 1 {
                bucket.alone = Some(place);
                continue;
            }
            let mut push = |place| {
                memberships.push(Membership {
                    place,
                    bucket: buckets,
                })
            };
            if !bucket.is_open {
                bucket.is_open = true;
                let mut before = bucket.released.iter().copied().chain(bucket.alone);
                before.try_for_each(&mut push)?;
            }
            push(place)?;
        }
        close(&bucket)?;
        buckets += u64::from(bucket.is_open);
    }
    let mut table = Table::create(spill, offsets.finish()?, buckets, capacity)?;
    let mut candidates = memberships.finish()?;
    let (mut first, mut last) = (None, None);
    for membership in &mut candidates {
        let membership = membership?;
        let Membership { place, bucket } = membership;
        if place >= released {
            first = Some(membership);
            break;
        }
        // There is room: of each bucket only so many were taken.
        table.add(bucket, place);
        if last.replace(place) != Some(place) {
            needed(place)?;
        }
    }
    Ok(Proposals {
        table,
        candidates,
        first,
        released,
        places,
        policy,
        report: NearReport {
            buckets,
            skipped_full_bucket: skipped,
            ..NearReport::default()
        },
    })
}

impl Proposals {
    /// Calls `drop` once for every document that goes; in keep order, but for [`Keep::None`], where the
    /// first of two similar documents goes when the second one is met.
    ///
    /// # Errors
    /// When intermediate files cannot be written or read.
    pub fn decide(
        self,
        documents: Documents<'_>,
        spill: &Spill,
        drop: impl FnMut(Dropped),
    ) -> io::Result<NearReport> {
        let gone = match self.policy.keep {
            Keep::First => None,
            Keep::None => Some(ScratchColumn::create(
                &spill.folder().join("gone"),
                self.places - self.released,
            )?),
        };
        let mut pass = Pass {
            documents,
            policy: self.policy,
            table: self.table,
            released: self.released,
            gone,
            report: self.report,
            drop,
        };
        let mut batch: Vec<Candidate> = Vec::with_capacity(BATCH);
        for membership in self.first.map(Ok).into_iter().chain(self.candidates) {
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
}

/// [`propose`] and [`Proposals::decide`] where nothing has been released before.
///
/// # Errors
/// When intermediate files cannot be written or read.
pub fn decide(
    input: NearInput<'_>,
    policy: Policy,
    spill: &Spill,
    drop: impl FnMut(Dropped),
) -> io::Result<NearReport> {
    let NearInput { bands, documents } = input;
    propose(bands.map(Ok), 0, policy, spill, |_| Ok(()))?.decide(documents, spill, drop)
}

impl Policy {
    /// Exact similarity of two documents, by number; `None` where it is too low.
    fn similarity(&self, documents: Documents<'_>, a: u64, b: u64) -> Option<f64> {
        let (a, b) = ((documents.shingles)(a), (documents.shingles)(b));
        self.measure.at_least(a, b, self.min_similarity)
    }
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
    released: u64,
    /// For [`Keep::None`]: 1 for what has gone, by place from `released` on.
    gone: Option<ScratchColumn<u8>>,
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
        if self.gone.is_some() {
            self.decide_without_keeping(batch, start);
            return;
        }
        let (documents, table, policy) = (self.documents, &self.table, self.policy);
        let similarity = |a: u64, b: u64| policy.similarity(documents, a, b);
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

    /// [`Keep::None`]: a document is compared with those before it until one is similar, and with all
    /// of them that have not gone yet, each of which goes where it is similar.
    fn decide_without_keeping(&mut self, batch: &mut Vec<Candidate>, start: u64) {
        let Pass {
            documents,
            policy,
            table,
            released,
            gone,
            report,
            drop,
        } = self;
        let (documents, policy, released) = (*documents, *policy, *released);
        // What was released cannot go any more.
        let could_go =
            |gone: &[u8], place: u64| place >= released && gone[(place - released) as usize] == 0;
        let gone = gone.as_mut().expect("made for this rule").values_mut();
        // In parallel: with the members of earlier batches, as they were before this batch.
        let (before, had_gone) = (&*table, &*gone);
        let known: Vec<Similar> = batch
            .par_iter()
            .map_init(Vec::new, |members, candidate| {
                let mut similar = Similar::default();
                before.kept(&candidate.buckets, 0, members);
                for &place in members.iter() {
                    let stays = could_go(had_gone, place);
                    if stays || similar.first.is_none() {
                        let number = (documents.number)(place);
                        let found = policy.similarity(documents, number, candidate.number);
                        similar.add(place, stays, found);
                    }
                }
                similar
            })
            .collect();
        // In keep order: with the members of this batch.
        let mut members = Vec::new();
        for (candidate, mut similar) in batch.drain(..).zip(known) {
            table.kept(&candidate.buckets, start, &mut members);
            for &place in &members {
                let stays = could_go(gone, place);
                if stays || similar.first.is_none() {
                    let number = (documents.number)(place);
                    let found = policy.similarity(documents, number, candidate.number);
                    similar.add(place, stays, found);
                }
            }
            report.pairs_verified += similar.verified;
            for (place, similarity) in similar.staying {
                if could_go(gone, place) {
                    gone[(place - released) as usize] = 1;
                    drop(Dropped {
                        number: (documents.number)(place),
                        kept: candidate.number,
                        similarity,
                    });
                }
            }
            if let Some((place, similarity)) = similar.first {
                gone[(candidate.place - released) as usize] = 1;
                drop(Dropped {
                    number: candidate.number,
                    kept: (documents.number)(place),
                    similarity,
                });
                // Whatever is similar to it is as similar to that one, and meets it in the same buckets.
                if policy.measure == Measure::Jaccard && similarity >= 1.0 {
                    continue;
                }
            }
            for &bucket in &candidate.buckets {
                report.skipped_full_bucket += u64::from(!table.add(bucket, candidate.place));
            }
        }
    }
}

/// What a document has been found similar to, for [`Keep::None`].
#[derive(Default)]
struct Similar {
    /// The first one by place, and the similarity.
    first: Option<(u64, f64)>,
    /// Those that had not gone.
    staying: Vec<(u64, f64)>,
    verified: u64,
}

impl Similar {
    fn add(&mut self, place: u64, stays: bool, found: Option<f64>) {
        self.verified += 1;
        if let Some(similarity) = found {
            self.first.get_or_insert((place, similarity));
            if stays {
                self.staying.push((place, similarity));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algo::minhash::{MinHasher, candidate_probability};
    use crate::dedupe::{Shingling, SketchScratch, Sketcher};
    use proptest::prelude::*;

    const POLICY: Policy = Policy {
        min_similarity: 0.8,
        measure: Measure::Jaccard,
        keep: Keep::First,
        max_bucket: 1_000,
    };

    fn sketcher(seed: u64) -> Sketcher {
        Sketcher {
            hasher: MinHasher::new(seed, 14, 8),
            shingling: Shingling::DEFAULT,
        }
    }

    /// Decides over texts in keep order: (dropped, kept) by index, and the report.
    fn run(texts: &[String], policy: Policy, memory_bytes: usize) -> (Vec<(u64, u64)>, NearReport) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let spill = Spill::new(folder.path(), memory_bytes);
        let sketcher = sketcher(1);
        let mut scratch = SketchScratch::default();
        let (mut sets, mut all) = (Vec::new(), Vec::new());
        for (place, text) in texts.iter().enumerate() {
            let mut bands = Vec::new();
            sketcher.sketch(text, &[], &mut scratch, &mut bands);
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

    /// The same where `released` stand before them, whose indices come after those of the texts; and which of these
    /// were needed.
    fn run_after(
        released: &[String],
        texts: &[String],
        policy: Policy,
        memory_bytes: usize,
    ) -> (Vec<(u64, u64)>, NearReport, Vec<u64>) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let spill = Spill::new(folder.path(), memory_bytes);
        let of_releases = released.len() as u64;
        let sketches: Vec<_> = [sketches(released), sketches(texts)].concat();
        let bands = sketches.iter().zip(0..);
        let bands = bands.flat_map(|((_, bands), place)| {
            bands.iter().map(move |&hash| Ok(BandHash { hash, place }))
        });
        let mut needed = Vec::new();
        let proposals = propose(bands, of_releases, policy, &spill, |place| {
            needed.push(place);
            Ok(())
        });
        let base = texts.len() as u64;
        let number = |place: u64| match place.checked_sub(of_releases) {
            Some(place) => place,
            None => base + place,
        };
        let shingles = |number: u64| match number.checked_sub(base) {
            Some(row) => {
                assert!(needed.contains(&row), "{row} was not asked for");
                &sketches[row as usize].0[..]
            }
            None => &sketches[(of_releases + number) as usize].0,
        };
        let documents = Documents {
            number: &number,
            shingles: &shingles,
        };
        let mut dropped = Vec::new();
        let report = proposals
            .and_then(|proposals| {
                proposals.decide(documents, &spill, |d| dropped.push((d.number, d.kept)))
            })
            .expect("decided");
        (dropped, report, needed)
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
    fn a_release_of_many_copies_fills_a_bucket_and_costs_a_comparison() {
        let released = vec![page(&[]); 5_000];
        let texts = vec![page(&[]); 200];
        for keep in [Keep::First, Keep::None] {
            let policy = Policy {
                keep,
                max_bucket: 50,
                ..POLICY
            };
            let (dropped, report, needed) = run_after(&released, &texts, policy, 1 << 20);
            let expected: Vec<(u64, u64)> = (0..200).map(|n| (n, 200)).collect();
            assert_eq!(dropped, expected);
            assert_eq!(needed, (0..50).collect::<Vec<u64>>());
            assert_eq!(report.skipped_full_bucket, 14 * (5_000 - 50));
            assert_eq!((report.buckets, report.pairs_verified), (14, 200));
        }
        // Copies of each other, and of nothing here.
        let others = ["something else entirely that stands alone here".to_string()];
        let (dropped, report, needed) = run_after(&released, &others, POLICY, 1 << 20);
        assert_eq!((dropped.len(), report.buckets, needed.len()), (0, 0, 0));
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
            ..POLICY
        };
        let (dropped, report) = run(&texts, strict, 1 << 20);
        assert_eq!(dropped, []);
        assert!(
            report.buckets > 0 && report.skipped_full_bucket > 0,
            "{report:?}"
        );
    }

    /// The sketches of texts: shingle set and bands.
    fn sketches(texts: &[String]) -> Vec<(Vec<u64>, Vec<u64>)> {
        let sketcher = sketcher(1);
        let mut scratch = SketchScratch::default();
        texts
            .iter()
            .map(|text| {
                let mut bands = Vec::new();
                sketcher.sketch(text, &[], &mut scratch, &mut bands);
                (scratch.shingles.clone(), bands)
            })
            .collect()
    }

    #[test]
    fn where_nothing_is_kept_everything_goes_that_has_a_similar_one() {
        // As in the chain above: each is similar to its neighbours and theirs, the fifth to nothing.
        let texts: Vec<String> = [
            &[][..],
            &[20, 60],
            &[20, 60, 100, 140],
            &[20, 60, 100, 140, 30, 80],
            &[1, 9, 19, 29, 39, 49, 59, 69, 79, 89, 99, 109],
        ]
        .iter()
        .map(|changed| page(changed))
        .collect();
        let none = Policy {
            keep: Keep::None,
            ..POLICY
        };
        let dropped = run(&texts, none, 1 << 20).0;
        let numbers: Vec<u64> = dropped.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [0, 1, 2, 3]);
        // The first one names the second, the others the first one that they are similar to.
        assert_eq!(dropped[..2], [(0, 1), (1, 0)]);
        assert_eq!(run(&texts[..1], none, 1 << 20).0, []);
    }

    #[test]
    fn containment_finds_a_part_that_jaccard_does_not() {
        let whole: Vec<String> = (0..200).map(|i| format!("word{i}")).collect();
        // All of its 176 shingles stand in the 196 of the whole: Jaccard 0.898.
        let texts = [whole.join(" "), whole[..180].join(" ")];
        let jaccard = Policy {
            min_similarity: 0.9,
            ..POLICY
        };
        assert_eq!(run(&texts, jaccard, 1 << 20).0, []);
        let contained = Policy {
            measure: Measure::Containment,
            ..jaccard
        };
        assert_eq!(run(&texts, contained, 1 << 20).0, [(1, 0)]);
    }

    #[test]
    fn twenty_thousand_copies_cost_a_comparison_each() {
        let texts = vec![page(&[]); 20_000];
        for keep in [Keep::First, Keep::None] {
            let (dropped, report) = run(&texts, Policy { keep, ..POLICY }, 1 << 20);
            let stays = u64::from(keep == Keep::First);
            assert_eq!(dropped.len() as u64, 20_000 - stays);
            // The first few documents of a batch are compared ahead of their turn.
            assert!(
                report.pairs_verified < 20_000 + (BATCH * MATES) as u64,
                "{report:?}"
            );
            assert_eq!((report.buckets, report.skipped_full_bucket), (14, 0));
        }
    }

    #[test]
    fn pages_of_one_template_below_the_bound_cost_at_most_a_bucket_each() {
        // 160 words of template, 40 of their own: about two thirds of the shingles are the same.
        let template: Vec<String> = (0..160).map(|i| format!("word{i}")).collect();
        let texts: Vec<String> = (0..6_000)
            .map(|n| {
                let own: Vec<String> = (0..40).map(|i| format!("own{n}x{i}")).collect();
                format!("{} {}", template.join(" "), own.join(" "))
            })
            .collect();
        let bounded = Policy {
            max_bucket: 50,
            ..POLICY
        };
        for keep in [Keep::First, Keep::None] {
            let (dropped, report) = run(&texts, Policy { keep, ..bounded }, 1 << 20);
            assert_eq!(dropped, []);
            assert!(report.skipped_full_bucket > 0, "{report:?}");
            // A document is in 14 buckets, and compared with 50 members of each.
            let most = 6_000 * 14 * 50 + (BATCH * MATES) as u64;
            assert!(report.pairs_verified < most, "{report:?}");
        }
    }

    #[test]
    fn one_page_of_many_equal_shingles_has_one() {
        let page = "word ".repeat(2_000_000);
        let sketches = sketches(&[page]);
        assert_eq!((sketches[0].0.len(), sketches[0].1.len()), (1, 14));
    }

    #[test]
    fn documents_of_one_word_are_compared_with_their_like_only() {
        let texts: Vec<String> = (0..50_000).map(|n| format!("word{}", n % 5_000)).collect();
        let (dropped, report) = run(&texts, POLICY, 1 << 20);
        assert_eq!(dropped.len(), 45_000);
        assert!(dropped.iter().all(|(gone, kept)| gone % 5_000 == *kept));
        // No batch holds a word twice.
        assert_eq!(report.pairs_verified, 45_000);
    }

    #[test]
    #[expect(
        clippy::print_stdout,
        reason = "says what was measured, or why nothing was"
    )]
    fn the_measured_curve_is_the_theoretical_one_on_real_pairs() {
        let folder = std::path::Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../shared/data/labelled"
        ));
        let Ok(table) = std::fs::File::open(folder.join("neardup-pairs.tsv.zst")) else {
            println!("skipped: no shared data");
            return;
        };
        let mut numbers: HashMap<String, usize> = HashMap::new();
        let mut texts: Vec<String> = Vec::new();
        for file in ["neardup-docs-00.jsonl.zst", "neardup-docs-01.jsonl.zst"] {
            let file = std::fs::File::open(folder.join(file)).expect("beside the table");
            let lines = zstd::decode_all(file).expect("whole");
            for line in lines
                .split(|&byte| byte == b'\n')
                .filter(|line| !line.is_empty())
            {
                let document: serde_json::Value = serde_json::from_slice(line).expect("JSON");
                let of = |key: &str| document[key].as_str().expect("a text").to_string();
                numbers.insert(of("id"), texts.len());
                texts.push(of("text"));
            }
        }
        let sets: Vec<Vec<u64>> = sketches(&texts).into_iter().map(|(set, _)| set).collect();
        let table = String::from_utf8(zstd::decode_all(table).expect("whole")).expect("UTF-8");
        let pairs: Vec<(usize, usize, f64)> = table
            .lines()
            .skip(1)
            .map(|row| {
                let columns: Vec<&str> = row.split('\t').collect();
                let (a, b) = (numbers[columns[0]], numbers[columns[1]]);
                let similarity = Measure::Jaccard.at_least(&sets[a], &sets[b], 0.0);
                (a, b, similarity.unwrap_or(0.0))
            })
            .collect();
        // Pairs share documents, so their errors are not independent; those of different seeds are.
        const SEEDS: u64 = 24;
        const BINS: usize = 20;
        let (bands, rows) = (15, 8);
        let shares: Vec<[f64; BINS]> = (0..SEEDS)
            .into_par_iter()
            .map(|seed| {
                let hasher = MinHasher::new(seed, bands as usize, rows as usize);
                let mut scratch = crate::algo::minhash::Scratch::default();
                let sketches: Vec<Vec<u64>> = sets
                    .iter()
                    .map(|set| {
                        let mut bands = Vec::new();
                        hasher.bands_into(set, &mut scratch, &mut bands);
                        bands
                    })
                    .collect();
                let (mut met, mut all) = ([0.0; BINS], [0.0; BINS]);
                for &(a, b, similarity) in &pairs {
                    let bin = ((similarity * BINS as f64) as usize).min(BINS - 1);
                    all[bin] += 1.0;
                    let mut both = sketches[a].iter().zip(&sketches[b]);
                    met[bin] += f64::from(u8::from(both.any(|(x, y)| x == y)));
                }
                std::array::from_fn(|bin| met[bin] / f64::max(all[bin], 1.0))
            })
            .collect();
        println!("similarity    pairs  expected  measured  standard error");
        for bin in 0..BINS {
            let expected: Vec<f64> = pairs
                .iter()
                .filter(|pair| ((pair.2 * BINS as f64) as usize).min(BINS - 1) == bin)
                .map(|pair| candidate_probability(pair.2, bands, rows))
                .collect();
            if expected.is_empty() {
                continue;
            }
            let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
            let measured: Vec<f64> = shares.iter().map(|share| share[bin]).collect();
            let (of_theory, of_seeds) = (mean(&expected), mean(&measured));
            let squares: Vec<f64> = measured.iter().map(|m| (m - of_seeds).powi(2)).collect();
            let error = (squares.iter().sum::<f64>() / ((SEEDS - 1) * SEEDS) as f64).sqrt();
            println!(
                "{:.2} - {:.2}  {:>6}  {of_theory:>8.4}  {of_seeds:>8.4}  {error:.4}",
                bin as f64 / BINS as f64,
                (bin + 1) as f64 / BINS as f64,
                expected.len()
            );
            // Where next to all or next to nothing meets, the seeds may not have differed at all.
            let rare = of_theory.min(1.0 - of_theory);
            let least = (rare / (SEEDS * expected.len() as u64) as f64).sqrt();
            assert!(
                (of_seeds - of_theory).abs() <= 4.0 * error.max(least),
                "bin {bin}: {of_seeds} against {of_theory} +- {error}"
            );
        }
        assert!(pairs.len() > 4_000);
    }

    /// Texts that differ from one page in a few words, or are short.
    fn corpus() -> impl Strategy<Value = Vec<String>> {
        let near = proptest::collection::vec(0usize..200, 0..6).prop_map(|changed| page(&changed));
        let short = (0u8..4).prop_map(|n| format!("short {n}"));
        proptest::collection::vec(prop_oneof![8 => near, 1 => short], 1..60)
    }

    /// Whether two documents are proposed and verified similar.
    fn similar(a: &(Vec<u64>, Vec<u64>), b: &(Vec<u64>, Vec<u64>), policy: Policy) -> bool {
        a.1.iter().any(|band| b.1.contains(band))
            && policy
                .measure
                .at_least(&a.0, &b.0, policy.min_similarity)
                .is_some()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn the_kept_set_is_that_of_the_plain_definition(texts in corpus(), contained in any::<bool>()) {
            let measure = if contained { Measure::Containment } else { Measure::Jaccard };
            let policy = Policy { measure, ..POLICY };
            let (dropped, _) = run(&texts, policy, 1 << 20);
            prop_assert_eq!(&dropped, &run(&texts, policy, 4_096).0);
            // Plain definition over the same candidates: bands that meet.
            let sketches = sketches(&texts);
            let mut kept: Vec<usize> = Vec::new();
            let mut expected = Vec::new();
            for (i, sketch) in sketches.iter().enumerate() {
                match kept.iter().find(|&&k| similar(&sketches[k], sketch, policy)) {
                    Some(&k) => expected.push((i as u64, k as u64)),
                    None => kept.push(i),
                }
            }
            prop_assert_eq!(dropped, expected);
        }

        #[test]
        fn what_is_kept_holds_no_verified_pair_and_whatever_went_has_one_in_it(texts in corpus()) {
            let (dropped, report) = run(&texts, POLICY, 1 << 20);
            prop_assert_eq!(report.skipped_full_bucket, 0);
            let gone: Vec<u64> = dropped.iter().map(|(number, _)| *number).collect();
            let sketches = sketches(&texts);
            let kept: Vec<usize> = (0..texts.len()).filter(|i| !gone.contains(&(*i as u64))).collect();
            for (at, &i) in kept.iter().enumerate() {
                for &j in &kept[..at] {
                    prop_assert!(!similar(&sketches[i], &sketches[j], POLICY), "{} and {}", i, j);
                }
            }
            for &number in &gone {
                let sketch = &sketches[number as usize];
                prop_assert!(kept.iter().any(|&k| similar(&sketches[k], sketch, POLICY)), "{}", number);
            }
            // Again, over what was kept: nothing goes.
            let output: Vec<String> = kept.iter().map(|&i| texts[i].clone()).collect();
            prop_assert_eq!(run(&output, POLICY, 1 << 20).0, []);
        }

        #[test]
        fn against_a_release_goes_what_is_similar_to_it_or_to_one_kept_before(
            texts in corpus(), share in 0.0f64..1.0, contained in any::<bool>()
        ) {
            let measure = if contained { Measure::Containment } else { Measure::Jaccard };
            let policy = Policy { measure, ..POLICY };
            let cut = (texts.len() as f64 * share) as usize;
            let (earlier, later) = texts.split_at(cut);
            let gone: Vec<u64> = run(earlier, policy, 1 << 20).0.iter().map(|pair| pair.0).collect();
            let kept: Vec<u64> = (0..cut as u64).filter(|i| !gone.contains(i)).collect();
            let released: Vec<String> = kept.iter().map(|&i| earlier[i as usize].clone()).collect();
            let (dropped, _, needed) = run_after(&released, later, policy, 1 << 20);
            prop_assert_eq!(&dropped, &run_after(&released, later, policy, 4_096).0);
            // As after it in one run.
            let whole: Vec<(u64, u64)> = run(&texts, policy, 1 << 20).0;
            let base = later.len() as u64;
            let place_of = |i: u64| kept.iter().position(|&k| k == i).map(|row| base + row as u64);
            let whole: Vec<(u64, u64)> = whole
                .into_iter()
                .filter(|pair| pair.0 >= cut as u64)
                .map(|(i, k)| (i - cut as u64, place_of(k).unwrap_or_else(|| k - cut as u64)))
                .collect();
            prop_assert_eq!(&dropped, &whole);
            // As the plain definition has it.
            let (old, new) = (sketches(&released), sketches(later));
            let mut stays: Vec<usize> = Vec::new();
            let mut expected = Vec::new();
            for (i, sketch) in new.iter().enumerate() {
                let in_release = old.iter().position(|k| similar(k, sketch, policy));
                let here = || stays.iter().copied().find(|&k| similar(&new[k], sketch, policy));
                match in_release.map(|row| later.len() + row).or_else(here) {
                    Some(k) => expected.push((i as u64, k as u64)),
                    None => stays.push(i),
                }
            }
            prop_assert_eq!(dropped, expected);
            // Nothing is read of the release but what shares a band.
            let shares = |row: &u64| new.iter().any(|n| old[*row as usize].1.iter().any(|b| n.1.contains(b)));
            let sharing: Vec<u64> = (0..released.len() as u64).filter(shares).collect();
            prop_assert_eq!(needed, sharing);
        }

        #[test]
        fn where_nothing_is_kept_a_release_stays_all_the_same(texts in corpus(), share in 0.0f64..1.0) {
            let none = Policy { keep: Keep::None, ..POLICY };
            let cut = (texts.len() as f64 * share) as usize;
            // With its own near copies: they are never compared with each other.
            let (released, later) = texts.split_at(cut);
            let (mut dropped, _, _) = run_after(released, later, none, 1 << 20);
            dropped.sort_unstable();
            let (old, new) = (sketches(released), sketches(later));
            let expected: Vec<(u64, Option<u64>)> = (0..new.len())
                .filter_map(|i| {
                    let row = old.iter().position(|k| similar(k, &new[i], none));
                    let here = (0..new.len()).any(|j| j != i && similar(&new[i], &new[j], none));
                    (row.is_some() || here).then_some((i as u64, row.map(|row| row as u64)))
                })
                .collect();
            let base = later.len() as u64;
            let found: Vec<(u64, Option<u64>)> =
                dropped.iter().map(|&(i, kept)| (i, kept.checked_sub(base))).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn where_nothing_is_kept_those_without_a_similar_one_stay(texts in corpus()) {
            let none = Policy { keep: Keep::None, ..POLICY };
            let (mut dropped, _) = run(&texts, none, 1 << 20);
            prop_assert_eq!(&dropped, &run(&texts, none, 4_096).0);
            dropped.sort_unstable();
            let sketches = sketches(&texts);
            let expected: Vec<(u64, u64)> = (0..texts.len())
                .filter_map(|i| {
                    let other = (0..texts.len()).find(|&j| j != i && similar(&sketches[i], &sketches[j], none))?;
                    Some((i as u64, other as u64))
                })
                .collect();
            let numbers = |pairs: &[(u64, u64)]| pairs.iter().map(|pair| pair.0).collect::<Vec<_>>();
            prop_assert_eq!(numbers(&dropped), numbers(&expected));
            for (number, other) in dropped {
                prop_assert!(similar(&sketches[number as usize], &sketches[other as usize], none));
            }
        }
    }
}
