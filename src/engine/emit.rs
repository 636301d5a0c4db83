//! Emit: shards, rejects, evidence and quarantine.
//!
//! Row groups are encoded by all workers and appended in order. The counts of the ledger are taken
//! here, from the rows that were written.

mod validation;

use super::arrange::{Layout, Placed};
use super::corpus::{Corpus, NO_DOCUMENT};
use super::decide::{Decisions, Fate, KeyValues};
use super::domains::References;
use super::inputs::Inputs;
use super::memory::rounds;
use super::progress::Progress;
use super::scores::Scores;
use super::validation::HeldOut;
use super::{EngineError, Stop};
use crate::audit::Emitted;
use crate::plan::Rejects as RejectsKept;
use crate::record::FieldSpec;
use crate::shard::{
    ChecksumWriter, CutEvidence, DuplicateRow, Duplicates, Edits, FileEntry, Order, OrderRow, Part,
    PartEncoder, PartError, RejectRow, Rejects, SegmentRow, ShardRow, ShardRows, ShardShape,
    UsefulnessType, schema,
};
use crate::source::{Chunk, RAW_BYTES_KEPT, Reader, slices};
use crate::spill::{IoContext, Spill};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use base64::Engine as _;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::ops::Range;
use std::path::Path;

/// Token places of a row group: large enough to compress well, small enough for memory.
const GROUP_POSITIONS: u64 = 2 << 20;
/// Documents of a row group of the order file.
const ORDER_GROUP: usize = 64 << 10;
/// Token places of a batch inside a group.
const BATCH_POSITIONS: u64 = 256 << 10;
/// Documents, or parts of them, of a batch: each has an id, a source and more, which outweigh a few tokens.
const BATCH_DOCUMENTS: usize = 16 << 10;

/// Ids that stand where no text does.
#[derive(Clone, Copy, Debug)]
pub struct SpecialIds {
    /// Begin token.
    pub begin: Option<u32>,
    /// End token.
    pub end: Option<u32>,
    /// On padding places.
    pub padding: u32,
}

/// What emit needs.
pub struct Emit<'a> {
    /// The documents.
    pub corpus: &'a Corpus,
    /// What usefulness is measured against, where the estimator says.
    pub references: Option<&'a References<'a>>,
    /// Who goes.
    pub decisions: &'a Decisions<'a>,
    /// Scores, where a `score` stage ran, and its place in the chain.
    pub scores: Option<(&'a Scores<'a>, u16)>,
    /// Columns of shards.
    pub shape: ShardShape,
    /// Key-value metadata of shards.
    pub metadata: Vec<(String, String)>,
    /// Values that documents were sorted by.
    pub keys: &'a KeyValues<'a>,
    /// What is held out of training, where the pipeline asks for it.
    pub held_out: Option<&'a HeldOut>,
    /// Special tokens.
    pub ids: SpecialIds,
    /// Label, keep rule and reasons of each stage of the chain.
    pub stages: &'a [StageWords],
    /// The declared fields.
    pub fields: &'a [FieldSpec],
    /// The output folder.
    pub out: &'a Path,
    /// Cleared between phases.
    pub stop: &'a Stop,
    /// Reports.
    pub progress: &'a dyn Progress,
}

/// What a stage is called in the output.
#[derive(Clone, Debug)]
pub struct StageWords {
    /// Label.
    pub label: String,
    /// Its reasons.
    pub reasons: &'static [crate::record::Reason],
    /// For a dedupe, how it chose, e.g. `near_dedupe keep first`.
    pub rule: String,
}

/// Sums over the shards.
#[derive(Clone, Debug, Default)]
pub struct ShardSums {
    /// For the ledger.
    pub emitted: Emitted,
    /// Emitted tokens by usefulness byte, by input and whether they were emitted before.
    pub histograms: BTreeMap<(u16, bool), Histogram>,
    /// Usefulness of the emitted tokens by all that it is shown by.
    pub usefulness: BTreeMap<UsefulnessKey, UsefulnessSum>,
}

/// Parts of the curriculum, of equal numbers of positions, that the ledger shows usefulness by.
pub const CURRICULUM_PARTS: u64 = 10;

/// Where emitted tokens stand and what they are measured against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsefulnessKey {
    /// Part of the curriculum, from 0.
    pub part: u8,
    /// Number of the input.
    pub input: u16,
    /// Place of the u_ref, see [`References`].
    pub reference: u16,
    /// 0 for the first emission of a document.
    pub copy: u32,
}

/// A sum over tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsefulnessSum {
    /// How many.
    pub tokens: u64,
    /// Sum of their bytes.
    pub sum_255: u64,
}

impl UsefulnessSum {
    fn of(bytes: &[u8]) -> UsefulnessSum {
        UsefulnessSum {
            tokens: bytes.len() as u64,
            sum_255: bytes.iter().map(|&byte| u64::from(byte)).sum(),
        }
    }
}

impl std::ops::AddAssign for UsefulnessSum {
    fn add_assign(&mut self, other: UsefulnessSum) {
        self.tokens += other.tokens;
        self.sum_255 += other.sum_255;
    }
}

/// Why documents were rejected that had been scored, and what they are measured against: stage, reason,
/// input, place of the u_ref.
pub type RejectedUsefulness = BTreeMap<(u16, u16, u16, u16), UsefulnessSum>;

/// First position of a part of the curriculum.
pub fn part_start(part: u64, positions: u64) -> u64 {
    (u128::from(positions) * u128::from(part) / u128::from(CURRICULUM_PARTS)) as u64
}

/// Tokens by usefulness byte.
pub type Histogram = [u64; 256];

impl ShardSums {
    fn add(&mut self, other: ShardSums) {
        let (mine, theirs) = (&mut self.emitted, other.emitted);
        mine.rows += theirs.rows;
        mine.positions += theirs.positions;
        mine.tokens += theirs.tokens;
        mine.special_tokens += theirs.special_tokens;
        mine.padding += theirs.padding;
        mine.repeated_tokens += theirs.repeated_tokens;
        for (key, sum) in other.usefulness {
            *self.usefulness.entry(key).or_default() += sum;
        }
        for (key, theirs) in other.histograms {
            let mine = self.histograms.entry(key).or_insert([0; 256]);
            for (sum, count) in mine.iter_mut().zip(theirs) {
                *sum += count;
            }
        }
    }
}

impl ShardSums {
    /// Adds consecutive tokens from place `start` on, cut where a part of the curriculum ends.
    fn add_parts(&mut self, key: &mut UsefulnessKey, start: u64, all: u64, mut bytes: &[u8]) {
        let mut place = start;
        let mut part = (0..CURRICULUM_PARTS)
            .rev()
            .find(|&part| part_start(part, all) <= place)
            .unwrap_or(0);
        while !bytes.is_empty() {
            let end = part_start(part + 1, all);
            let fits = bytes.len().min((end - place) as usize);
            let (here, rest) = bytes.split_at(fits);
            key.part = part as u8;
            *self.usefulness.entry(*key).or_default() += UsefulnessSum::of(here);
            (bytes, place, part) = (rest, end, part + 1);
        }
    }
}

pub(super) fn arrow_error(error: arrow::error::ArrowError) -> EngineError {
    EngineError::Failed(format!(
        "a batch could not be built, which is a bug: {error}"
    ))
}

/// Takes the batches of a row group, one after another: each is encoded before the next is built.
pub(super) type Batches<'b> = dyn FnMut(RecordBatch) -> Result<(), EngineError> + 'b;

/// Encodes groups on all workers, `threads` at a time, and appends them in order. `positions` says how many token
/// places one has: those that a long document makes large are not encoded together.
pub(super) fn write_groups<G: Send + Sync, S: Send>(
    part: &mut Part,
    groups: &[G],
    stop: &Stop,
    positions: impl Fn(&G) -> u64,
    build: impl Fn(&G, &SchemaRef, &mut Batches<'_>) -> Result<S, EngineError> + Sync,
    schema: &SchemaRef,
    mut done: impl FnMut(&G, S),
) -> Result<(), EngineError> {
    let encoder: PartEncoder = part.encoder();
    let threads = rayon::current_num_threads().max(1);
    for round in rounds(
        groups,
        threads,
        threads as u64 * 2 * GROUP_POSITIONS,
        positions,
    ) {
        stop.check()?;
        let encoded: Vec<_> = round
            .par_iter()
            .with_max_len(1)
            .map(|group| {
                let mut encoding = encoder.begin()?;
                let sums = build(group, schema, &mut |batch| Ok(encoding.write(&batch)?))?;
                Ok::<_, EngineError>((encoding.finish()?, sums))
            })
            .collect::<Result<_, _>>()?;
        for (group, (encoded, sums)) in round.iter().zip(encoded) {
            part.append(encoded)?;
            done(group, sums);
        }
    }
    Ok(())
}

pub(super) fn entry(
    out: &Path,
    path: &Path,
    written: (u64, u64, String),
    tokens: u64,
) -> FileEntry {
    let (bytes, rows, checksum) = written;
    let path = path
        .strip_prefix(out)
        .unwrap_or(path)
        .to_string_lossy()
        .replace('\\', "/");
    FileEntry {
        path,
        bytes,
        rows,
        tokens,
        checksum,
    }
}

impl Emit<'_> {
    /// Writes the shards.
    pub fn shards(&self, layout: &Layout) -> Result<(Vec<FileEntry>, ShardSums), EngineError> {
        let folder = self.out.join("shards");
        fresh_folder(&folder)?;
        let mut files = Vec::new();
        let mut sums = ShardSums::default();
        let schema = schema(&self.shape);
        let all_positions = layout.shards.iter().map(|shard| shard.positions).sum();
        let mut emitted_positions = 0;
        for (number, shard) in layout.shards.iter().enumerate() {
            let path = folder.join(format!("shard-{number:05}.parquet"));
            let mut part = Part::create(&path, schema.clone(), &self.metadata)?;
            // Groups are cut by positions from the shard's first row, so they do not depend on workers.
            let mut groups: Vec<(u64, u64, u64)> = Vec::new();
            let mut positions = 0;
            for row in shard.first_row..shard.first_row + shard.rows {
                let length = layout.rows.values()[row as usize].positions;
                match groups.last_mut() {
                    Some((_, end, _)) if positions + length <= GROUP_POSITIONS => *end = row + 1,
                    _ => {
                        groups.push((row, row + 1, emitted_positions));
                        positions = 0;
                    }
                }
                positions += length;
                emitted_positions += length;
            }
            write_groups(
                &mut part,
                &groups,
                self.stop,
                |&(first, end, _)| {
                    let rows = &layout.rows.values()[first as usize..end as usize];
                    rows.iter().map(|row| row.positions).sum()
                },
                |&(first, end, position), schema, batches| {
                    let places = (position, all_positions);
                    self.rows(layout, first..end, places, schema, batches)
                },
                &schema,
                |&(first, end, _), group| {
                    self.progress.advance(end - first);
                    self.progress.tokens(group.emitted.tokens);
                    sums.add(group);
                },
            )?;
            files.push(entry(self.out, &path, part.finish()?, shard.positions));
        }
        Ok((files, sums))
    }

    fn rows(
        &self,
        layout: &Layout,
        numbers: Range<u64>,
        (mut position, all_positions): (u64, u64),
        schema: &SchemaRef,
        batches: &mut Batches<'_>,
    ) -> Result<ShardSums, EngineError> {
        let mut sums = ShardSums::default();
        let mut rows = ShardRows::new(numbers.start);
        let mut in_batch = 0;
        for number in numbers {
            let row = &layout.rows.values()[number as usize];
            let segments =
                &layout.segments.values()[row.first_segment as usize..][..row.segments as usize];
            let begin_of_row = rows.input_ids.len();
            let mut described = Vec::with_capacity(segments.len());
            for segment in segments {
                if segment.frame & 1 == 1 {
                    self.special(&mut rows, self.ids.begin);
                }
                let stretch = segment.doc_token_start as usize
                    ..(segment.doc_token_start + segment.tokens) as usize;
                debug_assert_eq!(
                    rows.input_ids.len() - begin_of_row,
                    segment.row_start as usize
                );
                rows.input_ids
                    .extend_from_slice(&self.corpus.tokens(segment.number)[stretch.clone()]);
                let document = self.corpus.row(segment.number);
                let source = self.corpus.source(document);
                if let Some((scores, _)) = self.scores {
                    let bytes = &scores.usefulness(segment.number)[stretch.clone()];
                    let histogram = sums
                        .histograms
                        .entry((self.corpus.input(document), segment.copy > 0))
                        .or_insert([0; 256]);
                    for &byte in bytes {
                        histogram[byte as usize] += 1;
                    }
                    let mut key = UsefulnessKey {
                        part: 0,
                        input: self.corpus.input(document),
                        reference: self
                            .references
                            .map_or(0, |references| references.of(segment.number)),
                        copy: u32::from(segment.copy),
                    };
                    sums.add_parts(
                        &mut key,
                        position + u64::from(segment.row_start),
                        all_positions,
                        bytes,
                    );
                    match self.shape.usefulness {
                        Some(UsefulnessType::U8) => rows.usefulness_u8.extend_from_slice(bytes),
                        Some(UsefulnessType::F32) => {
                            rows.usefulness_f32.extend_from_slice(
                                &scores.usefulness_f32(segment.number)[stretch.clone()],
                            );
                        }
                        None => {}
                    }
                    if self.shape.excess_nats {
                        rows.excess_nats
                            .extend_from_slice(&scores.excess_nats(segment.number)[stretch]);
                    }
                }
                if segment.frame & 2 == 2 {
                    self.special(&mut rows, self.ids.end);
                }
                sums.emitted.tokens += u64::from(segment.tokens);
                if segment.copy > 0 {
                    sums.emitted.repeated_tokens += u64::from(segment.tokens);
                }
                described.push(SegmentRow {
                    doc_id: self.corpus.id(segment.number),
                    source: source.to_string(),
                    row_start: segment.row_start,
                    doc_token_start: segment.doc_token_start,
                    tokens: segment.tokens,
                    copy: u32::from(segment.copy),
                    score: self
                        .scores
                        .map(|(scores, _)| scores.of(segment.number).score),
                });
            }
            for _ in 0..row.padding {
                self.special(&mut rows, Some(self.ids.padding));
            }
            let positions = (rows.input_ids.len() - begin_of_row) as u64;
            if positions != row.positions {
                return Err(EngineError::Failed(format!(
                    "row {number} has {positions} positions where the layout says {}, which is a bug",
                    row.positions
                )));
            }
            position += positions;
            sums.emitted.rows += 1;
            sums.emitted.positions += positions;
            sums.emitted.special_tokens += u64::from(row.special_tokens);
            sums.emitted.padding += u64::from(row.padding);
            let fields = if self.shape.packed {
                Vec::new()
            } else {
                segments
                    .first()
                    .map_or_else(Vec::new, |segment| self.corpus.fields(segment.number))
            };
            rows.push(ShardRow {
                segments: described,
                special_tokens: row.special_tokens,
                padding: row.padding,
                fields,
            });
            in_batch += segments.len();
            if rows.input_ids.len() as u64 >= BATCH_POSITIONS || in_batch >= BATCH_DOCUMENTS {
                let full = std::mem::replace(&mut rows, ShardRows::new(number + 1));
                batches(full.into_batch(&self.shape, schema).map_err(arrow_error)?)?;
                in_batch = 0;
            }
        }
        if !rows.is_empty() {
            batches(rows.into_batch(&self.shape, schema).map_err(arrow_error)?)?;
        }
        Ok(sums)
    }

    fn special(&self, rows: &mut ShardRows, id: Option<u32>) {
        // A frame token stands only where the pipeline names one.
        rows.input_ids.push(id.unwrap_or(self.ids.padding));
        match self.shape.usefulness {
            Some(UsefulnessType::U8) => rows.usefulness_u8.push(0),
            Some(UsefulnessType::F32) => rows.usefulness_f32.push(0.0),
            None => {}
        }
        if self.shape.excess_nats {
            rows.excess_nats.push(0.0);
        }
    }

    /// Writes the curriculum document by document, with what its order was made from.
    pub fn order(&self, layout: &Layout) -> Result<Vec<FileEntry>, EngineError> {
        let folder = self.out.join("order");
        fresh_folder(&folder)?;
        let path = folder.join("part-00000.parquet");
        let schema = Order::schema(&layout.sort_keys, self.held_out.is_some());
        let mut part = Part::create(&path, schema.clone(), &[])?;
        let documents = layout.order.values().len();
        let groups: Vec<(usize, usize)> = (0..documents)
            .step_by(ORDER_GROUP)
            .map(|first| (first, (first + ORDER_GROUP).min(documents)))
            .collect();
        let mut tokens = 0;
        write_groups(
            &mut part,
            &groups,
            self.stop,
            |_| 0,
            |&(first, end), schema, batches| {
                let rows: Vec<OrderRow> = layout.order.values()[first..end]
                    .iter()
                    .map(|&Placed { number, copy }| {
                        let row = self.corpus.row(number);
                        OrderRow {
                            doc_id: self.corpus.id(number),
                            source: self.corpus.source(row).to_string(),
                            rank: self.decisions.rank_of(number),
                            content: row.content,
                            tokens: row.tokens,
                            copy: copy as u32,
                            keys: layout
                                .sort_keys
                                .iter()
                                .map(|key| self.keys.value(number, key, "order"))
                                .collect(),
                            group_hash: self.held_out.map(|held_out| held_out.group(number)),
                        }
                    })
                    .collect();
                let tokens: u64 = rows.iter().map(|row| u64::from(row.tokens)).sum();
                batches(Order::batch(first as u64, &rows, schema).map_err(arrow_error)?)?;
                Ok(tokens)
            },
            &schema,
            |_, group| tokens += group,
        )?;
        Ok(vec![entry(self.out, &path, part.finish()?, tokens)])
    }

    /// Usefulness of the documents that were rejected after they had been scored.
    pub fn rejected_usefulness(&self) -> RejectedUsefulness {
        let Some((scores, score_stage)) = self.scores else {
            return RejectedUsefulness::new();
        };
        let of_task = |task: usize| {
            let mut sums = RejectedUsefulness::new();
            for number in self.corpus.bases[task]..self.corpus.bases[task + 1] {
                let fate = self.decisions.fate(number);
                let gone = !self.decisions.is_kept(number) && !self.decisions.is_failed(number);
                if gone && fate.duplicate_id == 0 && fate.stage > score_stage {
                    let input = self.corpus.input(self.corpus.row(number));
                    let reference = self.references.map_or(0, |all| all.of(number));
                    *sums
                        .entry((fate.stage, fate.reason, input, reference))
                        .or_default() += UsefulnessSum::of(scores.usefulness(number));
                }
            }
            sums
        };
        let tasks: Vec<RejectedUsefulness> = (0..self.corpus.tasks.len())
            .into_par_iter()
            .map(of_task)
            .collect();
        let mut sums = RejectedUsefulness::new();
        for (key, sum) in tasks.into_iter().flatten() {
            *sums.entry(key).or_default() += sum;
        }
        sums
    }

    /// Documents that are rejected, in the order (input, id).
    fn rejected(&self) -> impl Iterator<Item = (u64, &Fate)> + '_ {
        (0..self.corpus.len())
            .map(|rank| self.decisions.number_at(rank))
            .filter_map(|number| {
                let rejected = !self.decisions.is_kept(number) && !self.decisions.is_failed(number);
                let fate = self.decisions.fate(number);
                (rejected && fate.duplicate_id == 0).then_some((number, fate))
            })
    }

    /// Writes the rejects but those that are held out, parts of about `part_tokens` tokens each.
    pub fn rejects(
        &self,
        kept: RejectsKept,
        part_tokens: u64,
    ) -> Result<Vec<FileEntry>, EngineError> {
        let folder = self.out.join("rejects");
        fresh_folder(&folder)?;
        if kept == RejectsKept::None {
            std::fs::remove_dir(&folder).context("remove", &folder)?;
            return Ok(Vec::new());
        }
        let schema = Rejects::schema(true, kept == RejectsKept::Text, self.fields);
        let mut files = Vec::new();
        let held_out = self.held_out.map(|held_out| held_out.stage);
        let mut rejected = self
            .rejected()
            .filter(|(_, fate)| Some(fate.stage) != held_out)
            .peekable();
        loop {
            // The first part is written even when nothing was rejected: the folder says so.
            if rejected.peek().is_none() && !files.is_empty() {
                break;
            }
            let path = folder.join(format!("part-{:05}.parquet", files.len()));
            let mut part = Part::create(&path, schema.clone(), &[])?;
            let mut tokens = 0u64;
            while rejected.peek().is_some() && tokens < part_tokens {
                let mut groups: Vec<Vec<u64>> = Vec::new();
                while rejected.peek().is_some()
                    && tokens < part_tokens
                    && groups.len() < rayon::current_num_threads()
                {
                    let (mut group, mut in_group) = (Vec::new(), 0);
                    while in_group < GROUP_POSITIONS && tokens < part_tokens {
                        let Some((number, _)) = rejected.next() else {
                            break;
                        };
                        let length = u64::from(self.corpus.row(number).tokens);
                        in_group += length;
                        tokens += length;
                        group.push(number);
                    }
                    groups.push(group);
                }
                write_groups(
                    &mut part,
                    &groups,
                    self.stop,
                    |group| {
                        let tokens = |&number| u64::from(self.corpus.row(number).tokens);
                        group.iter().map(tokens).sum()
                    },
                    |group, schema, batches| self.reject_batches(group, kept, schema, batches),
                    &schema,
                    |_, ()| {},
                )?;
            }
            files.push(entry(self.out, &path, part.finish()?, tokens));
        }
        Ok(files)
    }

    fn reject_batches(
        &self,
        group: &[u64],
        kept: RejectsKept,
        schema: &SchemaRef,
        batches: &mut Batches<'_>,
    ) -> Result<(), EngineError> {
        let mut rows = Rejects::default();
        for &number in group {
            let fate = self.decisions.fate(number);
            let row = self.corpus.row(number);
            let words = &self.stages[fate.stage as usize];
            let (kept_id, kept_release) = self.decisions.kept_of(fate).unzip();
            rows.input_ids.extend_from_slice(self.corpus.tokens(number));
            let score = self
                .scores
                .filter(|&(_, stage)| fate.stage > stage)
                .map(|(scores, _)| {
                    rows.usefulness.extend_from_slice(scores.usefulness(number));
                    scores.of(number).score
                });
            rows.push(RejectRow {
                doc_id: self.corpus.id(number),
                source: self.corpus.source(row).to_string(),
                stage: words.label.clone(),
                reason: words.reasons[fate.reason as usize].name.to_string(),
                value: fate.value,
                kept_id,
                kept_release: kept_release.flatten().map(str::to_string),
                tokens: row.tokens,
                score,
                text: (kept == RejectsKept::Text)
                    .then(|| self.corpus.text(number).unwrap_or("").to_string()),
                fields: self.corpus.fields(number),
                scored: score.is_some(),
            });
            if rows.input_ids.len() as u64 >= BATCH_POSITIONS || rows.len() >= BATCH_DOCUMENTS {
                let full = std::mem::take(&mut rows);
                batches(full.into_batch(self.fields, schema).map_err(arrow_error)?)?;
            }
        }
        if !rows.is_empty() {
            batches(rows.into_batch(self.fields, schema).map_err(arrow_error)?)?;
        }
        Ok(())
    }

    /// Writes the evidence of every dropped duplicate, in the order (input, id).
    pub fn duplicates(&self) -> Result<Vec<FileEntry>, EngineError> {
        let folder = self.out.join("duplicates");
        fresh_folder(&folder)?;
        let path = folder.join("part-00000.parquet");
        let mut part = Part::create(&path, Duplicates::schema(), &[])?;
        let mut tokens = 0;
        let mut rows = Vec::new();
        let flush = |rows: &mut Vec<DuplicateRow>, part: &mut Part| -> Result<(), EngineError> {
            if !rows.is_empty() {
                let encoded = part
                    .encoder()
                    .encode(&Duplicates::batch(rows).map_err(arrow_error)?)?;
                part.append(encoded)?;
                rows.clear();
            }
            Ok::<(), EngineError>(())
        };
        for (number, fate) in self.rejected() {
            let Some((kept_id, kept_release)) = self.decisions.kept_of(fate) else {
                continue;
            };
            let row = self.corpus.row(number);
            tokens += u64::from(row.tokens);
            rows.push(DuplicateRow {
                dropped_id: self.corpus.id(number),
                kept_id,
                kept_release: kept_release.map(str::to_string),
                similarity: fate.value as f32,
                rule: self.stages[fate.stage as usize].rule.clone(),
                tokens: row.tokens,
            });
            if rows.len() == 1 << 16 {
                flush(&mut rows, &mut part)?;
            }
        }
        flush(&mut rows, &mut part)?;
        let written = part
            .finish()
            .map_err(|error: PartError| EngineError::from(error))?;
        Ok(vec![entry(self.out, &path, written, tokens)])
    }

    /// Writes the evidence of every cut, in the order (input, id), then of the chain, then of the text.
    pub fn edits(&self) -> Result<Vec<FileEntry>, EngineError> {
        let folder = self.out.join("edits");
        fresh_folder(&folder)?;
        let path = folder.join("part-00000.parquet");
        let mut part = Part::create(&path, Edits::schema(), &[])?;
        let mut rows = Vec::new();
        let flush = |rows: &mut Vec<CutEvidence>, part: &mut Part| -> Result<(), EngineError> {
            let encoded = part
                .encoder()
                .encode(&Edits::batch(rows).map_err(arrow_error)?)?;
            rows.clear();
            part.append(encoded).map_err(EngineError::from)
        };
        let segments = self.corpus.segments();
        for rank in 0..self.corpus.len() {
            let number = self.decisions.number_at(rank);
            if self.decisions.fate(number).duplicate_id == 1 {
                continue;
            }
            let (task, at) = self.corpus.locate(number);
            for task in segments.iter().map(|corpus| &corpus.tasks[task]) {
                for edit in task.edits_of(at as u64) {
                    let words = &self.stages[edit.stage as usize];
                    // What an edit took in all stands with its first cut, so that sums are those of the ledger.
                    let mut tokens = edit.tokens;
                    for cut in task.cuts_of(edit) {
                        rows.push(CutEvidence {
                            doc_id: self.corpus.id(number),
                            source: self.corpus.source(self.corpus.row(number)).to_string(),
                            stage: words.label.clone(),
                            reason: words.reasons[edit.reason as usize].name.to_string(),
                            byte_start: cut.start,
                            byte_end: cut.end,
                            kept_id: (cut.kept != NO_DOCUMENT).then(|| self.corpus.id(cut.kept)),
                            tokens: std::mem::take(&mut tokens),
                            nothing_left: edit.nothing_left == 1,
                        });
                        if rows.len() == 1 << 16 {
                            self.stop.check()?;
                            flush(&mut rows, &mut part)?;
                        }
                    }
                }
            }
        }
        if !rows.is_empty() {
            flush(&mut rows, &mut part)?;
        }
        // Differences are no amount of tokens in this file.
        Ok(vec![entry(self.out, &path, part.finish()?, 0)])
    }

    /// Writes the quarantine: bad records, documents that a stage failed on, repeated ids.
    pub fn quarantine(
        &self,
        inputs: &Inputs,
        spill: &Spill,
    ) -> Result<(FileEntry, RepeatedIds), EngineError> {
        let folder = self.out.join("quarantine");
        fresh_folder(&folder)?;
        let path = folder.join("part-00000.jsonl");
        let temporary = path.with_extension("tmp");
        let file = File::create(&temporary).context("write", &temporary)?;
        let mut writer = ChecksumWriter::new(BufWriter::with_capacity(1 << 18, file));
        let mut lines = 0u64;
        let segments = self.corpus.segments();
        let tasks = || {
            segments
                .iter()
                .flat_map(|corpus| corpus.tasks.iter().zip(&corpus.bases))
        };
        for (task, _) in tasks() {
            let bad = task.folder.join("bad");
            for line in BufReader::new(File::open(&bad).context("read", &bad)?).split(b'\n') {
                writer
                    .write_all(&line.context("read", &bad)?)
                    .context("write", &temporary)?;
                writer.write_all(b"\n").context("write", &temporary)?;
                lines += 1;
            }
        }
        // Not task by task with the above: the order must not tell how the work was cut.
        for (task, &base) in tasks() {
            let failed = task.folder.join("failed");
            for line in BufReader::new(File::open(&failed).context("read", &failed)?).split(b'\n') {
                let line = line.context("read", &failed)?;
                let space = line.iter().position(|&byte| byte == b' ').unwrap_or(0);
                let at: u64 = std::str::from_utf8(&line[..space])
                    .ok()
                    .and_then(|text| text.parse().ok())
                    .unwrap_or(0);
                // A dedupe that comes before may have dropped the document first.
                if self.decisions.is_failed(base + at) {
                    writer
                        .write_all(&line[space + 1..])
                        .context("write", &temporary)?;
                    writer.write_all(b"\n").context("write", &temporary)?;
                    lines += 1;
                }
            }
        }
        let mut repeated = spill.sorter("repeated-ids", |a: &u64, b: &u64| a.cmp(b));
        for number in 0..self.corpus.len() {
            if self.decisions.fate(number).duplicate_id == 1 {
                repeated.push(number)?;
            }
        }
        let mut by_input: RepeatedIds = BTreeMap::new();
        let mut records = RawRecords::new(inputs);
        for number in repeated.finish()? {
            let number = number?;
            let row = self.corpus.row(number);
            let file = &self.corpus.files[row.file as usize];
            let place = |rows: bool| (file.places_are_rows == rows).then_some(row.place);
            let raw = records.at(row.file, row.place)?;
            let kept = &raw[..raw.len().min(RAW_BYTES_KEPT)];
            let line = serde_json::json!({
                "file": file.found.name,
                "source": self.corpus.source(row),
                "byte_offset": place(false),
                "record": place(true),
                "reason": "duplicate_id",
                "detail": format!("the id '{}' stands in an earlier record", self.corpus.id(number)),
                "raw_bytes": raw.len(),
                "raw_base64": base64::engine::general_purpose::STANDARD.encode(kept),
            });
            writeln!(writer, "{line}").context("write", &temporary)?;
            lines += 1;
            let sum = by_input.entry(file.input).or_default();
            sum.0 += 1;
            sum.1 += raw.len() as u64;
        }
        let (buffer, bytes, checksum) = writer.finish();
        buffer
            .into_inner()
            .map_err(|e| e.into_error())
            .and_then(|file| file.sync_data())
            .context("write", &temporary)?;
        std::fs::rename(&temporary, &path).context("write", &path)?;
        Ok((
            entry(self.out, &path, (bytes, lines, checksum), 0),
            by_input,
        ))
    }
}

/// Records with an id that an earlier record has, and their bytes, by input.
pub type RepeatedIds = BTreeMap<u16, (u64, u64)>;

/// Records of the input files, read once more by their places, in reading order.
struct RawRecords<'a> {
    inputs: &'a Inputs,
    /// The file that is open, and what is left of its only slice.
    open: Option<(u32, Reader)>,
    chunk: Option<Chunk>,
}

impl<'a> RawRecords<'a> {
    fn new(inputs: &'a Inputs) -> Self {
        RawRecords {
            inputs,
            open: None,
            chunk: None,
        }
    }

    fn at(&mut self, file: u32, place: u64) -> Result<Vec<u8>, EngineError> {
        let found = &self.inputs.files[file as usize].found;
        let spec = &self.inputs.input_of(file).spec;
        if self.open.as_ref().is_none_or(|(open, _)| *open != file) {
            let slice = slices(found, spec, u64::MAX)?.into_iter().next();
            let reader = slice.map(|slice| Reader::open(found, &slice, spec));
            self.open = reader.transpose()?.map(|reader| (file, reader));
            self.chunk = None;
        }
        loop {
            if let Some(raw) = self.chunk.as_ref().and_then(|c| c.raw_at(place, spec)) {
                found.unchanged()?;
                return Ok(raw);
            }
            self.chunk = match &mut self.open {
                Some((_, reader)) => reader.next_chunk()?,
                None => None,
            };
            if self.chunk.is_none() {
                return Err(EngineError::Failed(format!(
                    "{}: the record at {place} is no longer there; the file changed while the run read it",
                    found.path.display()
                )));
            }
        }
    }
}

/// An empty folder.
pub(super) fn fresh_folder(folder: &Path) -> Result<(), EngineError> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).context("empty", folder)?;
    }
    std::fs::create_dir_all(folder).context("create", folder)?;
    Ok(())
}
