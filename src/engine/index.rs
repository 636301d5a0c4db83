//! Writes `index/`: of every document that is kept in the end, what a dedupe compared it by, for later runs
//! to compare with.
//!
//! An index holds the documents of its own run: those that left in its shards. It has them as its stage saw
//! them, so a later pipeline whose stages before the dedupe are the same sees the same texts.

use super::corpus::Corpus;
use super::decide::Decisions;
use super::emit::{arrow_error, entry, fresh_folder, write_groups};
use super::releases::{INDEX_FOLDER, bands_of, index_path, kind_of};
use super::{EngineError, Stop};
use crate::algo::minhash::{MinHasher, Scratch};
use crate::plan::StagePlan;
use crate::shard::{FileEntry, INDEX_VERSION, IndexAbout, IndexKind, IndexRows, Part};
use std::path::Path;

/// Hashes of a row group: 8 MiB of them.
const GROUP_HASHES: u64 = 1 << 20;
/// Documents of a row group.
const GROUP_DOCUMENTS: u64 = 16 << 10;
/// Row groups of a file: 2 GiB of hashes, far below the number that the format can count.
const PART_GROUPS: usize = 256;

/// A stage whose index is to be written.
pub struct IndexOf<'a> {
    /// The stage.
    pub stage: &'a StagePlan,
    /// The documents as it saw them.
    pub corpus: &'a Corpus,
    /// Which of the sketches of its kind are its.
    pub slot: usize,
}

/// Writes the indexes of `stages`.
pub fn write(
    out: &Path,
    stages: &[IndexOf<'_>],
    decisions: &Decisions<'_>,
    seed: u64,
    fingerprint: &str,
    stop: &Stop,
) -> Result<Vec<FileEntry>, EngineError> {
    let mut files = Vec::new();
    if stages.is_empty() {
        return Ok(files);
    }
    fresh_folder(&out.join(INDEX_FOLDER))?;
    for of in stages {
        let kind = kind_of(of.stage, Some(fingerprint)).expect("only dedupes write an index");
        let bands = match kind {
            IndexKind::Near { .. } => Some(bands_of(seed, &of.stage.options)),
            IndexKind::Exact { .. } => None,
        };
        let about = IndexAbout {
            version: INDEX_VERSION,
            stage: of.stage.label.clone(),
            kind,
            bands,
        };
        let writing = Writing {
            of,
            decisions,
            hasher: bands.map(|b| MinHasher::new(b.seed, b.bands as usize, b.rows as usize)),
        };
        writing.parts(out, &about, stop, &mut files)?;
    }
    Ok(files)
}

struct Writing<'a> {
    of: &'a IndexOf<'a>,
    decisions: &'a Decisions<'a>,
    /// Of a near dedupe.
    hasher: Option<MinHasher>,
}

impl Writing<'_> {
    fn shingles(&self, number: u64) -> &[u64] {
        self.of.corpus.shingles(self.of.slot, number)
    }

    /// The documents from rank `from` on that belong into one row group: ranks, and whether any is kept.
    fn group(&self, from: u64) -> (u64, u64) {
        let (mut documents, mut hashes, mut rank) = (0, 0, from);
        while rank < self.of.corpus.len() {
            let number = self.decisions.number_at(rank);
            if self.decisions.is_kept(number) {
                let more = match &self.hasher {
                    Some(hasher) => (self.shingles(number).len() + hasher.bands()) as u64,
                    None => 2,
                };
                if documents > 0 && (hashes + more > GROUP_HASHES || documents == GROUP_DOCUMENTS) {
                    break;
                }
                documents += 1;
                hashes += more;
            }
            rank += 1;
        }
        (rank, documents)
    }

    /// Groups are cut by ranks and sizes, so they do not depend on workers. The first file is written even when
    /// nothing was kept: a later run then knows that there is nothing to compare with.
    fn parts(
        &self,
        out: &Path,
        about: &IndexAbout,
        stop: &Stop,
        files: &mut Vec<FileEntry>,
    ) -> Result<(), EngineError> {
        let schema = about.schema();
        let (mut rank, mut number) = (0, 0);
        loop {
            let mut groups = Vec::new();
            while groups.len() < PART_GROUPS && rank < self.of.corpus.len() {
                let (end, documents) = self.group(rank);
                if documents > 0 {
                    groups.push((rank, end));
                }
                rank = end;
            }
            if groups.is_empty() && number > 0 {
                return Ok(());
            }
            let path = out.join(index_path(&about.stage, number));
            let mut part = Part::create(&path, schema.clone(), &about.metadata())?;
            write_groups(
                &mut part,
                &groups,
                stop,
                |_| 0,
                |&(first, end), schema, batches| {
                    let batch = self.rows(first, end).into_batch(schema);
                    batches(batch.map_err(arrow_error)?)
                },
                &schema,
                |_, ()| {},
            )?;
            files.push(entry(out, &path, part.finish()?, 0));
            number += 1;
            if rank == self.of.corpus.len() {
                return Ok(());
            }
        }
    }

    fn rows(&self, first: u64, end: u64) -> IndexRows {
        let corpus = self.of.corpus;
        let mut rows = IndexRows::default();
        let (mut bands, mut scratch) = (Vec::new(), Scratch::default());
        let numbers = (first..end).map(|rank| self.decisions.number_at(rank));
        for number in numbers.filter(|&number| self.decisions.is_kept(number)) {
            let (id, source) = (corpus.id(number), corpus.source(corpus.row(number)));
            match &self.hasher {
                None => rows.push_exact(id, source, corpus.text_hash(self.of.slot, number)),
                Some(hasher) => {
                    let shingles = self.shingles(number);
                    bands.clear();
                    if !shingles.is_empty() {
                        hasher.bands_into(shingles, &mut scratch, &mut bands);
                    }
                    rows.push_near(id, source, &bands, shingles);
                }
            }
        }
        rows
    }
}
