//! What is held out of training: groups of similar documents, drawn by a keyed hash.
//!
//! A near dedupe keeps documents apart that are similar to dropped ones only, so what it leaves may still be related.
//! Here similarity chains: a group is a connected component of the documents that reach the near dedupes, over all
//! pairs that they propose and whose exact similarity reaches `min_similarity`, and over documents of the same tokens.
//! Without a near dedupe before the draw a group is the documents of the same tokens.
//!
//! A group is known by the smallest hash of its members' token ids, which neither ids nor the cut of the files change.

use super::corpus::Corpus;
use super::decide::{Decisions, KEPT_HERE};
use super::{EngineError, Stop, near};
use crate::algo::hash;
use crate::dedupe::BandHash;
use crate::plan::{StagePlan, global};
use crate::record::Counts;
use crate::shard::ValidationEntry;
use crate::spill::{IoContext, ScratchColumn, Spill};
use rayon::prelude::*;

/// Pairs that are compared at a time: enough for all workers, few enough to learn from.
const PAIRS: usize = 8_192;

/// The place of a group in the draw, from 0 to below 1: it is held out where that lies below the share.
pub fn draw(seed: u64, group_hash: u64) -> f64 {
    // 53 bits: the floats hold them exactly.
    (hash::keyed(seed, global::VALIDATION, group_hash) >> 11) as f64 / (1u64 << 53) as f64
}

/// Groups of similar documents while they are found: to each document one of smaller number in its group, or itself.
pub struct Groups {
    parents: ScratchColumn<u64>,
    pairs_verified: u64,
    /// The near dedupes whose similarities they are of.
    stages: Vec<String>,
}

impl Groups {
    /// Every document alone.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn new(documents: u64, spill: &Spill) -> Result<Groups, EngineError> {
        let folder = spill.folder();
        std::fs::create_dir_all(folder).context("create", folder)?;
        let mut parents = ScratchColumn::create(&folder.join("groups"), documents)?;
        for (parent, number) in parents.values_mut().iter_mut().zip(0..) {
            *parent = number;
        }
        Ok(Groups {
            parents,
            pairs_verified: 0,
            stages: Vec::new(),
        })
    }

    fn root(&mut self, mut number: u64) -> u64 {
        let parents = self.parents.values_mut();
        while parents[number as usize] != number {
            let above = parents[parents[number as usize] as usize];
            parents[number as usize] = above;
            number = above;
        }
        number
    }

    fn join(&mut self, a: u64, b: u64) {
        let (a, b) = (self.root(a), self.root(b));
        self.parents.values_mut()[a.max(b) as usize] = a.min(b);
    }

    /// Joins what the near dedupe `planned` at `stage`, which has just decided, finds similar, dropped or not.
    ///
    /// # Errors
    /// When files cannot be written or read, and when somebody asks to stop.
    pub fn join_similar(
        &mut self,
        decisions: &Decisions<'_>,
        stage: u16,
        slot: usize,
        planned: &StagePlan,
        spill: &Spill,
        stop: &Stop,
    ) -> Result<(), EngineError> {
        let corpus = decisions.corpus();
        let policy = near::policy(&planned.options);
        let (bands_of_each, _) = near::bands_and_rows(&planned.options);
        self.stages.push(planned.label.clone());
        let mut sorter = spill.sorter("similar", |a: &BandHash, b: &BandHash| {
            (a.hash, a.place).cmp(&(b.hash, b.place))
        });
        for (task, &base) in corpus.tasks.iter().zip(&corpus.bases) {
            stop.check()?;
            let sketches = &task.near[slot];
            let mut next = 0;
            for (set, number) in sketches.sets.values().iter().zip(base..) {
                if set.length == 0 {
                    continue;
                }
                let bands =
                    &sketches.bands.values()[next * bands_of_each..(next + 1) * bands_of_each];
                next += 1;
                if !decisions.reaches(number, stage) {
                    continue;
                }
                // Most of what is similar is known already.
                let fate = decisions.fate(number);
                if fate.stage == stage && fate.has_kept == KEPT_HERE {
                    self.join(number, fate.kept);
                }
                let place = decisions.rank_of(number);
                for &hash in bands {
                    sorter.push(BandHash { hash, place })?;
                }
            }
        }
        let mut pairs: Vec<(u64, u64)> = Vec::with_capacity(PAIRS);
        let mut bucket: (u64, Vec<u64>) = (0, Vec::new());
        for band in sorter.finish()? {
            let band = band?;
            if bucket.0 != band.hash {
                bucket = (band.hash, Vec::new());
            }
            let number = decisions.number_at(band.place);
            for &other in &bucket.1 {
                if self.root(other) != self.root(number) {
                    pairs.push((other.min(number), other.max(number)));
                }
                if pairs.len() == PAIRS {
                    stop.check()?;
                    self.verify(&mut pairs, corpus, slot, &policy);
                }
            }
            // As the near dedupe itself: later ones are compared with the first of a bucket.
            if bucket.1.len() < policy.max_bucket as usize {
                bucket.1.push(number);
            }
        }
        self.verify(&mut pairs, corpus, slot, &policy);
        Ok(())
    }

    /// Joins those of the pairs that are similar. What is joined does not depend on which pairs come together: a pair
    /// that is left out has been joined over others.
    fn verify(
        &mut self,
        pairs: &mut Vec<(u64, u64)>,
        corpus: &Corpus,
        slot: usize,
        policy: &crate::dedupe::Policy,
    ) {
        pairs.sort_unstable();
        pairs.dedup();
        self.pairs_verified += pairs.len() as u64;
        let similar: Vec<bool> = pairs
            .par_iter()
            .map(|&(a, b)| {
                let (a, b) = (corpus.shingles(slot, a), corpus.shingles(slot, b));
                policy
                    .measure
                    .at_least(a, b, policy.min_similarity)
                    .is_some()
            })
            .collect();
        for ((a, b), similar) in pairs.drain(..).zip(similar) {
            if similar {
                self.join(a, b);
            }
        }
    }

    /// The hash of each document's group. Where near dedupes made the groups, documents of the same tokens are joined
    /// too: those that are too short to have shingles, or that an edit made the same.
    fn hashes(mut self, corpus: &Corpus, spill: &Spill) -> Result<ScratchColumn<u64>, EngineError> {
        if !self.stages.is_empty() {
            let mut sorter = spill.sorter("same-tokens", |a: &Content, b: &Content| {
                (a.content, a.number).cmp(&(b.content, b.number))
            });
            for (number, row) in corpus.rows() {
                sorter.push(Content {
                    content: row.content,
                    number,
                })?;
            }
            let mut last: Option<Content> = None;
            for this in sorter.finish()? {
                let this = this?;
                if let Some(last) = last.filter(|last| last.content == this.content) {
                    self.join(last.number, this.number);
                }
                last = Some(this);
            }
        }
        let path = spill.folder().join("group-hashes");
        let mut hashes = ScratchColumn::create(&path, corpus.len())?;
        hashes.values_mut().fill(u64::MAX);
        for (number, row) in corpus.rows() {
            let root = self.root(number) as usize;
            let least: &mut u64 = &mut hashes.values_mut()[root];
            *least = (*least).min(row.content[0]);
        }
        for number in 0..corpus.len() {
            let root = self.root(number) as usize;
            let hashes = hashes.values_mut();
            hashes[number as usize] = hashes[root];
        }
        Ok(hashes)
    }
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Content {
    content: [u64; 2],
    number: u64,
}

/// What is held out, and the group of every document.
pub struct HeldOut {
    /// The draw's place in the chain.
    pub stage: u16,
    share: f64,
    groups: String,
    hashes: ScratchColumn<u64>,
    counts: Counts,
    /// What there is to note of it.
    pub notes: std::collections::BTreeMap<String, u64>,
}

impl HeldOut {
    /// Draws at `stage` and turns away what is drawn.
    ///
    /// # Errors
    /// When files cannot be written or read.
    pub fn draw(
        decisions: &mut Decisions<'_>,
        groups: Groups,
        stage: u16,
        (share, seed): (f64, u64),
        spill: &Spill,
    ) -> Result<HeldOut, EngineError> {
        let corpus = decisions.corpus();
        let pairs_verified = groups.pairs_verified;
        let named = match groups.stages.is_empty() {
            true => "same tokens".to_string(),
            false => groups.stages.join(", "),
        };
        let hashes = groups.hashes(corpus, spill)?;
        let mut counts = Counts::default();
        let mut drawn = spill.sorter("held-out-groups", |a: &u64, b: &u64| a.cmp(b));
        for (number, row) in corpus.rows() {
            let hash = hashes.values()[number as usize];
            let value = draw(seed, hash);
            if value < share && decisions.reaches(number, stage) {
                decisions.turn_away(number, stage, 0, value);
                counts += Counts::one(row.text_bytes, u64::from(row.tokens));
                drawn.push(hash)?;
            }
        }
        let (mut groups_held_out, mut last) = (0, None);
        for hash in drawn.finish()? {
            let hash = hash?;
            groups_held_out += u64::from(last.replace(hash) != Some(hash));
        }
        let notes = global::noted(global::VALIDATION_NOTES, &[pairs_verified, groups_held_out]);
        Ok(HeldOut {
            stage,
            share,
            groups: named,
            hashes,
            counts,
            notes,
        })
    }

    /// What the manifest says of it, of so many rows and token places.
    pub fn entry(&self, rows: u64, positions: u64) -> ValidationEntry {
        ValidationEntry {
            share: self.share,
            groups: self.groups.clone(),
            held_out: self.counts,
            rows,
            positions,
        }
    }

    /// The hash of a document's group.
    pub fn group(&self, number: u64) -> u64 {
        self.hashes.values()[number as usize]
    }
}
