//! Who repeats whom in a finished folder, from its rejects, its order and its evidence.
//!
//! The rejects name for each duplicate its source and the id of the document because of which it
//! went; that one's source stands in the order, or among the rejects where a later stage turned it
//! away. A document of an earlier release has the release in place of a source. The two are joined by a sort of 128-bit hashes of ids, within the memory that is given.

use super::verify::scratch_folder;
use super::{EngineError, Stop};
use crate::algo::hash;
use crate::audit::{
    Amount, Audit, DuplicateCell, DuplicateCluster, DuplicateExample, DuplicateReport, Identity,
    SourceDuplicates,
};
use crate::plan::global;
use crate::record::Class;
use crate::shard::{FileEntry, Manifest, ReadOrder, ReadRejects, RejectRead};
use crate::spill::{IoContext, Sorted, Spill};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;

/// Clusters that the report names.
const CLUSTERS: usize = 10;
/// Documents that went which it names of each.
const EXAMPLES: usize = 3;
/// Stands for the source of a document that the folder does not hold, because it failed later.
const NOT_IN_FOLDER: &str = "(failed later)";
/// The bit of a home that is a release by its number, not a source.
const RELEASE: u64 = 1 << 32;

/// One duplicate, by the document because of which it went: 24 bytes.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Gone {
    kept: [u64; 2],
    source: u32,
    tokens: u32,
}

/// Where a document is at home: 24 bytes.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Home {
    id: [u64; 2],
    source: u64,
}

fn hash_of(id: &str) -> [u64; 2] {
    let hash = hash::content(id.as_bytes());
    [(hash >> 64) as u64, hash as u64]
}

/// The hash of a document because of which others went. Releases may share ids with the run and each other.
fn hash_of_kept(row: &RejectRead<'_>) -> Option<[u64; 2]> {
    let id = row.kept_id?;
    Some(match row.kept_release {
        // No id holds a NUL before a folder's name by chance.
        Some(release) => hash_of(&format!("{release}\0{id}")),
        None => hash_of(id),
    })
}

/// Sources by name, in order of first mention.
#[derive(Default)]
struct Sources {
    names: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Sources {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_string());
        self.numbers.insert(name.to_string(), number);
        number
    }
}

/// Sums up the duplicates of `out`. Sorts hold at most `memory_bytes`.
///
/// # Errors
/// When the folder has no rejects because its pipeline keeps none, or a file is damaged.
pub fn duplicates(
    out: &Path,
    manifest: &Manifest,
    audit: &Audit,
    memory_bytes: u64,
    stop: &Stop,
) -> Result<DuplicateReport, EngineError> {
    // What cuts left nothing of repeats many documents and names none: `edits/` says which.
    let of_cuts = [
        global::PARAGRAPH_DEDUPE_REASONS,
        global::LINE_DEDUPE_REASONS,
        global::SPAN_DEDUPE_REASONS,
    ]
    .concat();
    let duplicate_rows = audit.rejected.iter().filter(|row| {
        row.class == Some(Class::Duplicate)
            && !of_cuts.iter().any(|reason| reason.name == row.reason)
    });
    let said = duplicate_rows.fold(Amount::default(), |mut sum, row| {
        sum.add(row.counts.documents, row.counts.tokens);
        sum
    });
    let below = |folder: &'static str| -> Vec<&FileEntry> {
        let of = |file: &&FileEntry| file.path.starts_with(folder);
        manifest.files.iter().filter(of).collect()
    };
    let rejects = below("rejects/");
    if rejects.is_empty() && said.documents > 0 {
        return Err(EngineError::Request(format!(
            "{}: its pipeline keeps no rejects, which name the sources of duplicates; run it with 'rejects: tokens' in \
             'output'",
            out.display()
        )));
    }
    let scratch = scratch_folder(out)?;
    let spill = Spill::new(&scratch, (memory_bytes / 4) as usize);
    let report = Reading {
        out,
        rejects: &rejects,
        order: &below("order/"),
        audit,
        spill: &spill,
        stop,
    }
    .report(said, below("duplicates/"));
    std::fs::remove_dir_all(&scratch).context("remove", &scratch)?;
    report
}

struct Reading<'a> {
    out: &'a Path,
    rejects: &'a [&'a FileEntry],
    order: &'a [&'a FileEntry],
    audit: &'a Audit,
    spill: &'a Spill,
    stop: &'a Stop,
}

/// A cluster while only the hash of its document is known.
struct Large {
    kept: [u64; 2],
    kept_source: u32,
    dropped: Amount,
}

impl Reading<'_> {
    fn each_reject(
        &self,
        visit: &mut dyn FnMut(&RejectRead<'_>) -> io::Result<()>,
    ) -> Result<(), EngineError> {
        let mut failed = Ok(());
        for file in self.rejects {
            self.stop.check()?;
            ReadRejects::open(&self.out.join(&file.path))?.rows(&mut |row| {
                failed = visit(&row);
                failed.is_ok()
            })?;
            std::mem::replace(&mut failed, Ok(()))?;
        }
        Ok(())
    }

    fn report(
        &self,
        said: Amount,
        evidence: Vec<&FileEntry>,
    ) -> Result<DuplicateReport, EngineError> {
        let mut sources = Sources::default();
        let mut read = Amount::default();
        let mut by_source: Vec<SourceDuplicates> = Vec::new();
        for row in &self.audit.read {
            read.add(row.counts.documents, row.counts.tokens);
            let number = sources.number(&row.source) as usize;
            if number == by_source.len() {
                by_source.push(SourceDuplicates {
                    source: row.source.clone(),
                    read: Amount::default(),
                    dropped: Amount::default(),
                    dropped_for_other_sources: Amount::default(),
                });
            }
            by_source[number]
                .read
                .add(row.counts.documents, row.counts.tokens);
        }
        let known = by_source.len();
        let mut gone = self
            .spill
            .sorter("gone", |a: &Gone, b: &Gone| a.kept.cmp(&b.kept));
        let mut homes = self
            .spill
            .sorter("homes", |a: &Home, b: &Home| a.id.cmp(&b.id));
        let mut releases = Sources::default();
        self.each_reject(&mut |row| {
            let source = sources.number(row.source);
            if let Some(kept) = hash_of_kept(row) {
                gone.push(Gone {
                    kept,
                    source,
                    tokens: row.tokens,
                })?;
                if let Some(release) = row.kept_release {
                    homes.push(Home {
                        id: kept,
                        source: RELEASE | u64::from(releases.number(release)),
                    })?;
                }
            }
            homes.push(Home {
                id: hash_of(row.doc_id),
                source: u64::from(source),
            })
        })?;
        let mut failed = Ok(());
        for file in self.order {
            self.stop.check()?;
            ReadOrder::open(&self.out.join(&file.path))?.rows(&[], &mut |_, row| {
                failed = homes.push(Home {
                    id: hash_of(&row.doc_id),
                    source: u64::from(sources.number(&row.source)),
                });
                failed.is_ok()
            })?;
            std::mem::replace(&mut failed, Ok(()))?;
        }
        if sources.names.len() > known {
            return Err(EngineError::Failed(format!(
                "{}: source '{}' stands in a document and not in the ledger; 'goodput verify' says what else is damaged",
                self.out.display(),
                sources.names[known]
            )));
        }
        let nowhere = sources.number(NOT_IN_FOLDER);
        let releases: Vec<u32> = releases
            .names
            .iter()
            .map(|name| sources.number(&format!("(release {name})")))
            .collect();
        let place_of = |home: Option<u64>| match home {
            Some(home) if home & RELEASE != 0 => releases[(home & !RELEASE) as usize],
            Some(source) => source as u32,
            None => nowhere,
        };
        let mut cells: BTreeMap<(u32, u32), Amount> = BTreeMap::new();
        let mut large: Vec<Large> = Vec::new();
        let mut clusters = 0;
        each_cluster(gone.finish()?, homes.finish()?, &mut |cluster| {
            clusters += 1;
            let kept_source = place_of(cluster.home);
            let mut dropped = Amount::default();
            for (&source, amount) in cluster.dropped {
                dropped.add(amount.documents, amount.tokens);
                let cell = cells.entry((source, kept_source)).or_default();
                cell.add(amount.documents, amount.tokens);
            }
            large.push(Large {
                kept: cluster.kept,
                kept_source,
                dropped,
            });
            if large.len() >= 64 * CLUSTERS {
                only_largest(&mut large);
            }
        })?;
        only_largest(&mut large);
        let mut dropped = Amount::default();
        for (&(source, kept), cell) in &cells {
            dropped.add(cell.documents, cell.tokens);
            let row = &mut by_source[source as usize];
            row.dropped.add(cell.documents, cell.tokens);
            if source != kept {
                row.dropped_for_other_sources
                    .add(cell.documents, cell.tokens);
            }
        }
        let matrix = cells
            .into_iter()
            .map(|((source, kept), dropped)| DuplicateCell {
                dropped_source: sources.names[source as usize].clone(),
                kept_source: sources.names[kept as usize].clone(),
                dropped,
            })
            .collect();
        let sum = |of: fn(&FileEntry) -> u64| evidence.iter().map(|file| of(file)).sum::<u64>();
        let identities = vec![
            Identity::new(
                "documents rejected as duplicates = those among the rejects",
                said.documents,
                dropped.documents as i64,
            ),
            Identity::new(
                "tokens rejected as duplicates = those among the rejects",
                said.tokens,
                dropped.tokens as i64,
            ),
            Identity::new(
                "rows of the evidence = documents rejected as duplicates",
                sum(|file| file.rows),
                said.documents as i64,
            ),
        ];
        Ok(DuplicateReport {
            pipeline: self.audit.pipeline.clone(),
            read,
            dropped,
            clusters,
            by_source,
            matrix,
            largest_clusters: self.name(large, &sources)?,
            identities,
        })
    }

    /// Reads the rejects again for what is to be said of the largest clusters.
    fn name(
        &self,
        large: Vec<Large>,
        sources: &Sources,
    ) -> Result<Vec<DuplicateCluster>, EngineError> {
        let places: HashMap<[u64; 2], usize> = large
            .iter()
            .enumerate()
            .map(|(at, cluster)| (cluster.kept, at))
            .collect();
        let mut named: Vec<DuplicateCluster> = large
            .iter()
            .map(|cluster| DuplicateCluster {
                kept_id: String::new(),
                kept_source: sources.names[cluster.kept_source as usize].clone(),
                dropped: cluster.dropped,
                lowest_similarity: 1.0,
                examples: Vec::new(),
            })
            .collect();
        if named.is_empty() {
            return Ok(named);
        }
        self.each_reject(&mut |row| {
            if let Some(kept) = row.kept_id
                && let Some(&at) = hash_of_kept(row).and_then(|kept| places.get(&kept))
            {
                let cluster = &mut named[at];
                if cluster.kept_id.is_empty() {
                    cluster.kept_id = kept.to_string();
                }
                cluster.lowest_similarity = cluster.lowest_similarity.min(row.value);
                if cluster.examples.len() < EXAMPLES {
                    cluster.examples.push(DuplicateExample {
                        doc_id: row.doc_id.to_string(),
                        source: row.source.to_string(),
                        stage: row.stage.to_string(),
                        similarity: row.value,
                        tokens: row.tokens,
                    });
                }
            }
            Ok(())
        })?;
        Ok(named)
    }
}

/// Most tokens first; among equals more documents, then the smaller hash.
fn only_largest(large: &mut Vec<Large>) {
    large.sort_by_key(|cluster| {
        let Amount { documents, tokens } = cluster.dropped;
        (
            std::cmp::Reverse(tokens),
            std::cmp::Reverse(documents),
            cluster.kept,
        )
    });
    large.truncate(CLUSTERS);
}

/// A document because of which others went.
struct Cluster<'a> {
    /// Its hash.
    kept: [u64; 2],
    /// Its source, or [`RELEASE`] and the number of its release; `None` where the folder does not hold it.
    home: Option<u64>,
    /// What went, by source.
    dropped: &'a BTreeMap<u32, Amount>,
}

/// Calls `visit` for each document because of which others went, by its hash.
fn each_cluster(
    gone: Sorted<Gone>,
    homes: Sorted<Home>,
    visit: &mut dyn FnMut(Cluster<'_>),
) -> io::Result<()> {
    let mut homes = homes.peekable();
    let mut home_of = |id: [u64; 2]| -> io::Result<Option<u64>> {
        loop {
            match homes.peek() {
                Some(Ok(home)) if home.id < id => {
                    homes.next();
                }
                Some(Ok(home)) => return Ok((home.id == id).then_some(home.source)),
                Some(Err(_)) => {
                    homes.next().transpose()?;
                }
                None => return Ok(None),
            }
        }
    };
    let mut dropped: BTreeMap<u32, Amount> = BTreeMap::new();
    let mut last: Option<[u64; 2]> = None;
    for row in gone {
        let row = row?;
        if let Some(kept) = last.filter(|&kept| kept != row.kept) {
            let home = home_of(kept)?;
            visit(Cluster {
                kept,
                home,
                dropped: &dropped,
            });
            dropped.clear();
        }
        last = Some(row.kept);
        dropped
            .entry(row.source)
            .or_default()
            .add(1, u64::from(row.tokens));
    }
    if let Some(kept) = last {
        let home = home_of(kept)?;
        visit(Cluster {
            kept,
            home,
            dropped: &dropped,
        });
    }
    Ok(())
}
