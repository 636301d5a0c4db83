//! Who goes, stage by stage, in the order of the pipeline file.
//!
//! Each document has one [`Fate`]: the first stage that turns it away. Verdicts of per-document
//! stages are there from the start; a global stage looks at the documents whose fate lies behind it
//! and may bring their fate forward.

use super::corpus::{Corpus, CutRow, FAILED, NO_STAGE};
use super::edit::{Edit, NumberedCut};
use super::progress::Flow;
use super::releases::{ReleasedNames, Releases, Scratched, bands_of};
use super::scores::Scores;
use super::{EngineError, Stop, near};
use crate::algo::{hash, pacing};
use crate::dedupe::{self, BandHash, Documents, Dropped, Fingerprint, Sketcher, UnitPlace};
use crate::plan::StagePlan;
use crate::plan::global::SELECT_REASONS;
use crate::record::{FieldSpec, FieldType, FieldValue, Options};
use crate::spill::{Column, IoContext, ScratchColumn, Spill};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// What became of a document: 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Fate {
    /// Deciding value.
    pub value: f64,
    /// For duplicates, the number of the kept document, or its place among those of earlier releases that the
    /// stage names.
    pub kept: u64,
    /// Stage in the chain, or [`NO_STAGE`] for one that is kept.
    pub stage: u16,
    /// Reason of that stage, or [`FAILED`].
    pub reason: u16,
    /// One of [`NO_KEPT`], [`KEPT_HERE`] and [`KEPT_IN_RELEASE`].
    pub has_kept: u16,
    /// 1 where the record is no document: its id stands in another one.
    pub duplicate_id: u16,
    /// Nothing.
    pub unused: u64,
}

/// There is no document because of which it went.
pub const NO_KEPT: u16 = 0;
/// It went because of a document of this run.
pub const KEPT_HERE: u16 = 1;
/// It went because of a document of an earlier release.
pub const KEPT_IN_RELEASE: u16 = 2;

/// Places of select's reasons in its table, checked when compiled.
const BELOW_MIN_SCORE: u16 = reason("below_min_score");
const BELOW_SHARE: u16 = reason("below_share");
const BELOW_BUDGET: u16 = reason("below_budget");

const fn reason(name: &str) -> u16 {
    let mut at = 0;
    while at < SELECT_REASONS.len() {
        let (found, name) = (SELECT_REASONS[at].name.as_bytes(), name.as_bytes());
        let mut same = found.len() == name.len();
        let mut i = 0;
        while same && i < found.len() {
            same = found[i] == name[i];
            i += 1;
        }
        if same {
            return at as u16;
        }
        at += 1;
    }
    panic!("select's table has no such reason")
}

/// The fates of all documents, and their ranks.
pub struct Decisions<'a> {
    corpus: &'a Arc<Corpus>,
    fates: ScratchColumn<Fate>,
    /// Place in the order (input, id), by number; `None` where it is the number itself.
    ranks: Option<ScratchColumn<u64>>,
    by_rank: Option<ScratchColumn<u64>>,
    /// Documents of earlier releases because of which others went, by stage.
    released: BTreeMap<u16, ReleasedNames>,
    spill: Spill,
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct IdHash {
    hash: u64,
    number: u64,
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct IdPrefix {
    input: u64,
    prefix: [u64; 2],
    number: u64,
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct UnitCut {
    number: u64,
    at: u64,
    kept: u64,
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Keyed {
    /// Ascending: the bits of the key in an order of integers.
    key: u64,
    rank: u64,
    number: u64,
}

/// Bits that compare as integers in the order of the floats. NaN never comes here.
pub fn ascending_bits(value: f64) -> u64 {
    // -0 and 0 are equal keys.
    let bits = (value + 0.0).to_bits();
    if bits >> 63 == 1 {
        !bits
    } else {
        bits | 1 << 63
    }
}

impl<'a> Decisions<'a> {
    /// Begins with the verdicts of the per-document stages; finds ranks and repeated ids.
    pub fn new(
        corpus: &'a Arc<Corpus>,
        ids_are_given: bool,
        spill: Spill,
    ) -> Result<Decisions<'a>, EngineError> {
        std::fs::create_dir_all(spill.folder()).context("create", spill.folder())?;
        let mut fates = ScratchColumn::create(&spill.folder().join("fates"), corpus.len())?;
        for (fate, (_, row)) in fates.values_mut().iter_mut().zip(corpus.rows()) {
            *fate = Fate {
                value: row.verdict_value,
                kept: 0,
                stage: row.verdict_stage,
                reason: row.verdict_reason,
                has_kept: NO_KEPT,
                duplicate_id: 0,
                unused: 0,
            };
        }
        let mut decisions = Decisions {
            corpus,
            fates,
            ranks: None,
            by_rank: None,
            released: BTreeMap::new(),
            spill,
        };
        if ids_are_given {
            decisions.find_repeated_ids()?;
            decisions.rank()?;
        }
        Ok(decisions)
    }

    /// Goes on with the same documents as they are in the next segment: those that reach it have the verdicts of
    /// its per-document stages.
    pub fn next(mut self, corpus: &'a Arc<Corpus>) -> Decisions<'a> {
        for (fate, (_, row)) in self.fates.values_mut().iter_mut().zip(corpus.rows()) {
            if fate.duplicate_id == 0 && fate.stage == NO_STAGE {
                fate.value = row.verdict_value;
                fate.stage = row.verdict_stage;
                fate.reason = row.verdict_reason;
            }
        }
        self.corpus = corpus;
        self
    }

    /// A hash of what became of every document so far.
    pub fn digest(&self) -> u128 {
        hash::content(bytemuck::cast_slice(self.fates.values()))
    }

    fn find_repeated_ids(&mut self) -> io::Result<()> {
        let mut sorter = self.spill.sorter("id-hashes", |a: &IdHash, b: &IdHash| {
            (a.hash, a.number).cmp(&(b.hash, b.number))
        });
        for (number, row) in self.corpus.rows() {
            sorter.push(IdHash {
                hash: row.id_hash,
                number,
            })?;
        }
        // Documents of one hash: almost always one, so the quadratic comparison is of very few.
        let mut group: Vec<IdHash> = Vec::new();
        let fates = self.fates.values_mut();
        for entry in sorter.finish()? {
            let entry = entry?;
            if group.first().is_some_and(|first| first.hash != entry.hash) {
                group.clear();
            }
            let id = self.corpus.id(entry.number);
            if group.iter().any(|other| self.corpus.id(other.number) == id) {
                fates[entry.number as usize].duplicate_id = 1;
            } else {
                group.push(entry);
            }
        }
        Ok(())
    }

    fn rank(&mut self) -> io::Result<()> {
        let corpus = self.corpus;
        let ids = Arc::clone(corpus);
        let mut sorter = self.spill.sorter("ids", move |a: &IdPrefix, b: &IdPrefix| {
            (a.input, a.prefix).cmp(&(b.input, b.prefix)).then_with(|| {
                match (ids.given_id(a.number), ids.given_id(b.number)) {
                    (Some(x), Some(y)) => x.as_bytes().cmp(y.as_bytes()),
                    // Derived ids sort by path, then number, which is the reading order.
                    _ => Ordering::Equal,
                }
                .then(a.number.cmp(&b.number))
            })
        });
        for (number, row) in corpus.rows() {
            let mut bytes = [0; 16];
            if let Some(id) = corpus.given_id(number) {
                let length = id.len().min(16);
                bytes[..length].copy_from_slice(&id.as_bytes()[..length]);
            }
            let prefix = u128::from_be_bytes(bytes);
            sorter.push(IdPrefix {
                input: u64::from(corpus.input(row)),
                prefix: [(prefix >> 64) as u64, prefix as u64],
                number,
            })?;
        }
        let mut ranks = ScratchColumn::create(&self.spill.folder().join("ranks"), corpus.len())?;
        let mut by_rank =
            ScratchColumn::create(&self.spill.folder().join("by-rank"), corpus.len())?;
        for (rank, entry) in sorter.finish()?.enumerate() {
            let number = entry?.number;
            ranks.values_mut()[number as usize] = rank as u64;
            by_rank.values_mut()[rank] = number;
        }
        self.ranks = Some(ranks);
        self.by_rank = Some(by_rank);
        Ok(())
    }

    /// Place of a document in the order (place in `inputs`, id).
    pub fn rank_of(&self, number: u64) -> u64 {
        self.ranks
            .as_ref()
            .map_or(number, |ranks| ranks.values()[number as usize])
    }

    /// The document at a place in that order.
    pub fn number_at(&self, rank: u64) -> u64 {
        self.by_rank
            .as_ref()
            .map_or(rank, |numbers| numbers.values()[rank as usize])
    }

    /// What became of a document.
    pub fn fate(&self, number: u64) -> &Fate {
        &self.fates.values()[number as usize]
    }

    /// Whether a document reaches stage `stage`.
    pub fn reaches(&self, number: u64, stage: u16) -> bool {
        let fate = self.fate(number);
        fate.duplicate_id == 0 && fate.stage >= stage
    }

    /// Documents that reach a stage, with their tokens: (documents, tokens).
    pub fn reaching(&self, stage: u16) -> (u64, u64) {
        self.corpus
            .rows()
            .filter(|(number, _)| self.reaches(*number, stage))
            .fold((0, 0), |(documents, tokens), (_, row)| {
                (documents + 1, tokens + u64::from(row.tokens))
            })
    }

    /// What reached a stage and what it kept, once it has decided.
    pub fn flow(&self, stage: u16) -> Flow {
        let (documents, tokens) = self.reaching(stage);
        let (documents_kept, tokens_kept) = self.reaching(stage + 1);
        Flow {
            documents,
            tokens,
            documents_kept,
            tokens_kept,
        }
    }

    /// Turns away duplicates. Those because of documents of earlier releases have the second reason of the stage.
    fn apply(
        &mut self,
        stage: u16,
        drops: WrittenDrops,
        released: Option<ReleasedNames>,
    ) -> io::Result<()> {
        let base = self.corpus.len();
        let fates = self.fates.values_mut();
        drops.apply(|dropped| {
            let row = dropped.kept.checked_sub(base);
            let (kept, has_kept) = match (row, &released) {
                (Some(row), Some(names)) => (names.place(row), KEPT_IN_RELEASE),
                _ => (dropped.kept, KEPT_HERE),
            };
            fates[dropped.number as usize] = Fate {
                value: dropped.similarity,
                kept,
                stage,
                reason: u16::from(has_kept == KEPT_IN_RELEASE),
                has_kept,
                duplicate_id: 0,
                unused: 0,
            };
        })?;
        self.released.extend(released.map(|names| (stage, names)));
        Ok(())
    }

    /// Names of the documents of earlier releases because of which others go.
    fn released_names(
        &self,
        stage: u16,
        drops: &WrittenDrops,
        against: Option<&Releases>,
    ) -> Result<Option<ReleasedNames>, EngineError> {
        let Some(releases) = against else {
            return Ok(None);
        };
        let base = self.corpus.len();
        let mut sorter = self.spill.sorter("released", |a: &u64, b: &u64| a.cmp(b));
        for row in drops
            .dropped()
            .filter_map(|gone| gone.kept.checked_sub(base))
        {
            sorter.push(row)?;
        }
        let mut last = None;
        let distinct = sorter.finish()?.filter(|row| match row {
            Ok(row) => last.replace(*row) != Some(*row),
            Err(_) => true,
        });
        Ok(Some(releases.names(distinct, stage, &self.spill)?))
    }

    /// The id of the document because of which another one went, and the earlier release that it stands in, where
    /// it is none of this run.
    pub fn kept_of(&self, fate: &Fate) -> Option<(String, Option<&str>)> {
        match fate.has_kept {
            KEPT_HERE => Some((self.corpus.id(fate.kept), None)),
            KEPT_IN_RELEASE => {
                let (id, release) = self.released[&fate.stage].at(fate.kept);
                Some((id.to_string(), Some(release)))
            }
            _ => None,
        }
    }

    pub(super) fn turn_away(&mut self, number: u64, stage: u16, reason: u16, value: f64) {
        let fate = &mut self.fates.values_mut()[number as usize];
        *fate = Fate {
            value,
            kept: 0,
            stage,
            reason,
            has_kept: NO_KEPT,
            duplicate_id: 0,
            unused: 0,
        };
    }

    /// Exact dedupe at `stage`, from the hashes that prepare wrote in `slot`, also against earlier releases.
    pub fn exact_dedupe(
        &mut self,
        stage: u16,
        slot: usize,
        against: Option<&Releases>,
        stop: &Stop,
    ) -> Result<(), EngineError> {
        let released = against.map_or(0, Releases::documents);
        let of_releases = against
            .into_iter()
            .flat_map(|releases| releases.fingerprints(self.corpus.len()));
        let fingerprints = self
            .corpus
            .tasks
            .iter()
            .zip(&self.corpus.bases)
            .flat_map(|(task, &base)| task.exact[slot].values().iter().zip(base..));
        let fingerprints = fingerprints
            .filter(|&(_, number)| self.reaches(number, stage))
            .map(|(hash, number)| {
                Ok(Fingerprint {
                    hash: *hash,
                    rank: released + self.rank_of(number),
                    number,
                })
            });
        // Somebody who asks to stop does not wait for the rest; what came of it is not used then.
        let all = of_releases
            .chain(fingerprints)
            .take_while(|_| stop.check().is_ok());
        let mut drops = Drops::new(&self.spill)?;
        let mut written = Ok(());
        dedupe::decide_exact(all, released, &self.spill, |dropped| {
            if written.is_ok() {
                written = drops.push(dropped);
            }
        })?;
        written?;
        stop.check()?;
        let drops = drops.written()?;
        let names = self.released_names(stage, &drops, against)?;
        self.apply(stage, drops, names)?;
        Ok(())
    }

    /// Dedupe by paragraph or line at `stage`, from the hashes that prepare wrote in `slot`. Returns what is to be
    /// cut, how many units were compared, and how many of them go.
    pub fn unit_dedupe(
        &self,
        stage: u16,
        slot: usize,
        stop: &Stop,
    ) -> Result<(Edit, [u64; 2]), EngineError> {
        let tasks = || self.corpus.tasks.iter().zip(&self.corpus.bases);
        let places = tasks()
            .flat_map(|(task, &base)| {
                task.units[slot]
                    .sets
                    .values()
                    .iter()
                    .zip(base..)
                    .map(move |set| (task, set))
            })
            // Somebody who asks to stop does not wait for the rest; what came of it is not used then.
            .take_while(|_| stop.check().is_ok())
            .filter(|(_, (_, number))| self.reaches(*number, stage))
            .flat_map(|(task, (set, number))| {
                let rank = self.rank_of(number);
                let rows = &task.units[slot].rows.values()[set.start as usize..];
                rows[..set.units as usize]
                    .iter()
                    .zip(0..)
                    .map(move |(row, at)| UnitPlace {
                        hash: row.hash,
                        rank,
                        at,
                    })
            });
        // Two sorts at a time.
        let spill = self.spill.share(2);
        let mut sorter = spill.sorter("unit-cuts", |a: &UnitCut, b: &UnitCut| {
            (a.number, a.at, a.kept).cmp(&(b.number, b.at, b.kept))
        });
        let compared = dedupe::decide_units(places, &spill, |repeat| {
            sorter.push(UnitCut {
                number: self.number_at(repeat.rank),
                at: repeat.at,
                kept: self.number_at(repeat.kept_rank),
            })
        })?;
        stop.check()?;
        let repeats = sorter.len();
        let cuts = sorter.finish()?.map(|cut| {
            let UnitCut { number, at, kept } = cut?;
            let (task, place) = self.corpus.locate(number);
            let units = &self.corpus.tasks[task].units[slot];
            let set = units.sets.values()[place];
            let row = units.rows.values()[(set.start + at) as usize];
            let cut = CutRow {
                start: row.start,
                end: row.end,
                kept,
            };
            Ok(NumberedCut { number, cut })
        });
        let edit = Edit::create(
            (stage, 0),
            true,
            self.corpus.len(),
            cuts,
            repeats,
            &self.spill,
        )?;
        Ok((edit, [compared, repeats]))
    }

    /// Near dedupe at `stage`, from the sketches that prepare wrote in `slot`, also against earlier
    /// releases, whose bands `sketcher` makes. Returns what there is to note of it.
    ///
    /// # Errors
    /// When files cannot be written or read, and when a cluster or a source loses more than its
    /// bound ([`dedupe::Guard`]).
    #[expect(
        clippy::too_many_arguments,
        reason = "what a stage of the run needs, called in one place"
    )]
    pub fn near_dedupe(
        &mut self,
        stage: u16,
        slot: usize,
        planned: &StagePlan,
        scores: Option<&Scores<'_>>,
        sources: &[String],
        against: Option<(&Releases, &Sketcher, u64)>,
        stop: &Stop,
    ) -> Result<BTreeMap<String, u64>, EngineError> {
        stop.check()?;
        let corpus: &Corpus = self.corpus;
        let options = &planned.options;
        let keep = options.text("keep").to_string();
        let preferred = options.list("preferred_sources").to_vec();
        // Places in keep order, dense: for `first` and `none` that of the ranks, else by a sort.
        let mut order: Option<(ScratchColumn<u64>, ScratchColumn<u64>)> = None;
        if !["first", "none"].contains(&keep.as_str()) {
            let mut sorter = self.spill.sorter("keep-order", |a: &Keyed, b: &Keyed| {
                (a.key, a.rank).cmp(&(b.key, b.rank))
            });
            for (number, row) in corpus.rows() {
                let key = match keep.as_str() {
                    "longest" => u64::MAX - u64::from(row.tokens),
                    "highest_score" => {
                        let score = scores.map_or(0.0, |scores| f64::from(scores.of(number).score));
                        u64::MAX - ascending_bits(score)
                    }
                    _ => {
                        let source = &sources[corpus.input(row) as usize];
                        preferred
                            .iter()
                            .position(|name| name == source)
                            .unwrap_or(preferred.len()) as u64
                    }
                };
                sorter.push(Keyed {
                    key,
                    rank: self.rank_of(number),
                    number,
                })?;
            }
            let mut places =
                ScratchColumn::create(&self.spill.folder().join("keep-places"), corpus.len())?;
            let mut numbers =
                ScratchColumn::create(&self.spill.folder().join("keep-numbers"), corpus.len())?;
            for (place, keyed) in sorter.finish()?.enumerate() {
                let number = keyed?.number;
                places.values_mut()[number as usize] = place as u64;
                numbers.values_mut()[place] = number;
            }
            order = Some((places, numbers));
        }
        // Documents of earlier releases come first in keep order, and last by number.
        let released = against.map_or(0, |(releases, _, _)| releases.documents());
        let place_of = |number: u64| {
            released
                + match &order {
                    Some((places, _)) => places.values()[number as usize],
                    None => self.rank_of(number),
                }
        };
        let number_at = |place: u64| match (place.checked_sub(released), &order) {
            (None, _) => corpus.len() + place,
            (Some(place), Some((_, numbers))) => numbers.values()[place as usize],
            (Some(place), None) => self.number_at(place),
        };
        let of_releases = against.into_iter().flat_map(|(releases, sketcher, seed)| {
            releases.bands(bands_of(seed, options), sketcher)
        });
        let (bands_of_each, _) = near::bands_and_rows(options);
        let mut short = 0;
        let bands = corpus
            .tasks
            .iter()
            .zip(&corpus.bases)
            .flat_map(|(task, &base)| {
                let sketches = &task.near[slot];
                let mut next = 0usize;
                sketches
                    .sets
                    .values()
                    .iter()
                    .zip(base..)
                    .map(move |(set, number)| {
                        if set.length == 0 {
                            return (number, set.short, &[][..]);
                        }
                        let mine = &sketches.bands.values()
                            [next * bands_of_each..(next + 1) * bands_of_each];
                        next += 1;
                        (number, set.short, mine)
                    })
            })
            // Somebody who asks to stop does not wait for the rest; what came of it is not used then.
            .take_while(|_| stop.check().is_ok())
            .filter(|(number, _, _)| self.reaches(*number, stage))
            .inspect(|(_, is_short, _)| short += u64::from(*is_short))
            .flat_map(|(number, _, bands)| {
                let place = place_of(number);
                bands.iter().map(move |&hash| Ok(BandHash { hash, place }))
            });
        let bands = of_releases
            .take_while(|_| stop.check().is_ok())
            .chain(bands);
        let mut needed = Scratched::<u64>::create(&self.spill, "released-needed")?;
        let policy = near::policy(options);
        let proposals = dedupe::propose(bands, released, policy, &self.spill, |place| {
            needed.push(&[place])
        })?;
        stop.check()?;
        let needed = needed.finish()?;
        let sets = match against {
            Some((releases, _, _)) => {
                let rows = needed.values().iter().map(|&row| Ok(row));
                let rows = rows.take_while(|_| stop.check().is_ok());
                Some(releases.shingles(rows, &self.spill)?)
            }
            None => None,
        };
        stop.check()?;
        let shingles = |number: u64| match (number.checked_sub(corpus.len()), &sets) {
            (Some(row), Some(sets)) => sets.of(row),
            _ => corpus.shingles(slot, number),
        };
        let documents = Documents {
            number: &number_at,
            shingles: &shingles,
        };
        let mut drops = Drops::new(&self.spill)?;
        let mut failed = Ok(());
        let report = proposals.decide(documents, &self.spill, |dropped| {
            if failed.is_ok() {
                failed = drops.push(dropped);
            }
        })?;
        failed?;
        stop.check()?;
        std::mem::drop((order, sets));
        let drops = drops.written()?;
        let names = self.released_names(stage, &drops, against.map(|(releases, _, _)| releases))?;
        let name_of = |number: u64| match (number.checked_sub(corpus.len()), &names) {
            (Some(row), Some(names)) => {
                let (id, release) = names.at(names.place(row));
                (id.to_string(), Some(release.to_string()))
            }
            _ => (corpus.id(number), None),
        };
        near::guard(
            corpus,
            &self.spill,
            &|number| self.reaches(number, stage),
            &mut drops.dropped(),
            &name_of,
            planned,
            sources,
        )?;
        self.apply(stage, drops, names)?;
        Ok(near::notes(&report, short))
    }

    /// Select at `stage`.
    pub fn select(
        &mut self,
        stage: u16,
        options: &Options,
        keys: &KeyValues<'_>,
    ) -> Result<(), EngineError> {
        let by = options.text("by");
        let (_, tokens) = self.reaching(stage);
        let budget = match (
            options.number_if_given("keep_share_of_tokens"),
            options.integer_if_given("keep_tokens"),
        ) {
            (Some(share), _) => Some((pacing::share_of(tokens, share), BELOW_SHARE)),
            (None, Some(tokens)) => Some((tokens, BELOW_BUDGET)),
            (None, None) => None,
        };
        let min_score = options.number_if_given("min_score");
        let mut sorter = self.spill.sorter("select", |a: &Keyed, b: &Keyed| {
            (a.key, a.rank).cmp(&(b.key, b.rank))
        });
        for (number, _) in self.corpus.rows() {
            if self.reaches(number, stage) {
                let key = u64::MAX - ascending_bits(keys.value(number, by, "select"));
                sorter.push(Keyed {
                    key,
                    rank: self.rank_of(number),
                    number,
                })?;
            }
        }
        let (mut taken, mut open) = (0u64, true);
        for keyed in sorter.finish()? {
            let number = keyed?.number;
            let value = keys.value(number, by, "select");
            if min_score.is_some_and(|min| value < min) {
                self.turn_away(number, stage, BELOW_MIN_SCORE, value);
                continue;
            }
            if let Some((budget, reason)) = budget {
                let next = taken + u64::from(self.corpus.row(number).tokens);
                open &= next <= budget;
                if !open {
                    self.turn_away(number, stage, reason, value);
                    continue;
                }
                taken = next;
            }
        }
        Ok(())
    }

    /// Whether a document is kept in the end.
    pub fn is_kept(&self, number: u64) -> bool {
        let fate = self.fate(number);
        fate.duplicate_id == 0 && fate.stage == NO_STAGE
    }

    /// Whether a stage failed on it.
    pub fn is_failed(&self, number: u64) -> bool {
        let fate = self.fate(number);
        fate.duplicate_id == 0 && fate.stage != NO_STAGE && fate.reason == FAILED
    }

    /// The corpus.
    pub fn corpus(&self) -> &'a Corpus {
        self.corpus
    }
}

/// Drops wait on disk until nothing reads the fates any more.
struct Drops {
    path: std::path::PathBuf,
    writer: io::BufWriter<std::fs::File>,
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct DroppedRow {
    number: u64,
    kept: u64,
    similarity: f64,
}

impl Drops {
    fn new(spill: &Spill) -> io::Result<Drops> {
        let path = spill.folder().join("drops");
        let writer = io::BufWriter::new(std::fs::File::create(&path).context("write", &path)?);
        Ok(Drops { path, writer })
    }

    fn push(&mut self, dropped: Dropped) -> io::Result<()> {
        let row = DroppedRow {
            number: dropped.number,
            kept: dropped.kept,
            similarity: dropped.similarity,
        };
        io::Write::write_all(&mut self.writer, bytemuck::bytes_of(&row))
            .context("write", &self.path)
    }

    fn written(self) -> io::Result<WrittenDrops> {
        self.writer
            .into_inner()
            .map_err(|e| e.into_error())
            .context("write", &self.path)?;
        Ok(WrittenDrops {
            rows: Column::open(&self.path)?,
            path: self.path,
        })
    }
}

/// All drops of a stage, to be looked at and then applied.
struct WrittenDrops {
    path: std::path::PathBuf,
    rows: Column<DroppedRow>,
}

impl WrittenDrops {
    fn dropped(&self) -> impl Iterator<Item = Dropped> + '_ {
        self.rows.values().iter().map(|row| Dropped {
            number: row.number,
            kept: row.kept,
            similarity: row.similarity,
        })
    }

    fn apply(self, apply: impl FnMut(Dropped)) -> io::Result<()> {
        self.dropped().for_each(apply);
        std::mem::drop(self.rows);
        std::fs::remove_file(&self.path)
    }
}

/// Values that documents are sorted and selected by.
pub struct KeyValues<'a> {
    /// The documents.
    pub corpus: &'a Corpus,
    /// Scores, where a `score` stage ran.
    pub scores: Option<&'a Scores<'a>>,
    /// The declared fields.
    pub fields: &'a [FieldSpec],
    /// Seed of the pipeline.
    pub seed: u64,
}

impl KeyValues<'_> {
    /// The value of `key`; for `random` a keyed hash of the id, the purpose being the stage's name.
    pub fn value(&self, number: u64, key: &str, purpose: &str) -> f64 {
        let scored = |of: fn(&super::scores::ScoreRow) -> f32| {
            self.scores
                .map_or(0.0, |scores| f64::from(of(scores.of(number))))
        };
        match key {
            "score" | "usefulness" => scored(|row| row.score),
            "excess_nats" => scored(|row| row.excess_nats),
            "difficulty" => scored(|row| row.difficulty),
            "length_tokens" => f64::from(self.corpus.row(number).tokens),
            "random" => {
                // 53 bits: the floats hold them exactly.
                let hash = hash::keyed(self.seed, purpose, self.corpus.row(number).id_hash) >> 11;
                hash as f64 / (1u64 << 53) as f64
            }
            field => {
                let at = self.fields.iter().position(|spec| spec.name == field);
                match at.map(|at| self.corpus.fields(number).swap_remove(at)) {
                    Some(FieldValue::Int(value)) => value as f64,
                    Some(FieldValue::Float(value)) => value,
                    _ => f64::NAN,
                }
            }
        }
    }

    /// Refuses keys that some document lacks: a missing or not-a-number value is never sorted.
    pub fn check(
        &self,
        key: &str,
        numbers: &mut dyn Iterator<Item = u64>,
    ) -> Result<(), EngineError> {
        if !self.fields.iter().any(|field| {
            field.name == key && matches!(field.kind, FieldType::Int | FieldType::Float)
        }) {
            return Ok(());
        }
        for number in numbers {
            let value = self.value(number, key, "");
            if !value.is_finite() {
                return Err(EngineError::Failed(format!(
                    "document '{}' has no finite value in field '{key}', which documents are sorted by; \
                     repair it, or sort by another key",
                    self.corpus.id(number)
                )));
            }
        }
        Ok(())
    }
}

/// Sums of what stages report about themselves, by label.
pub type StageNotes = BTreeMap<String, BTreeMap<String, u64>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_compare_like_the_floats() {
        let values = [
            f64::NEG_INFINITY,
            -2.5,
            -1e-300,
            0.0,
            1e-300,
            0.5,
            7.0,
            f64::INFINITY,
        ];
        assert!(
            values
                .windows(2)
                .all(|pair| ascending_bits(pair[0]) < ascending_bits(pair[1]))
        );
        assert_eq!(ascending_bits(-0.0), ascending_bits(0.0));
    }
}
