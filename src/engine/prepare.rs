//! Prepare: bytes to documents, verdicts of the per-document stages, token ids, sketches.
//!
//! Every document that is read is tokenized, also those that a stage rejects: the ledger counts
//! their tokens. A verdict is noted, not applied: a document that stage 5 rejects still takes part in
//! a dedupe that is stage 3.
//!
//! An edit is applied at once, so the segments of the chain are cut such that no stage that sees all
//! documents comes before it in its segment. A later segment reads the inputs once more, in the same tasks,
//! and takes each document up where the segment before left it: one that was turned away is copied as it
//! was, one that goes on has its cuts made again. Only what was cut just now is tokenized again.

use super::corpus::{
    Corpus, CutRow, DocRow, EditRow, FAILED, LanguageRow, NO_DOCUMENT, NO_STAGE, OverlapRow,
    SPELLS_SPECIAL, SetRow, Sketches, TaskData, TaskInfo, UnitSet, derived_id, encode_meta,
};
use super::decide::Decisions;
use super::edit::Edit;
use super::inputs::{Inputs, Task};
use super::log;
use super::memory::LongDocuments;
use super::progress::{Flow, Progress};
use super::work::{TaskWriter, finished};
use super::{EngineError, Stop};
use crate::algo::hash;
use crate::dedupe::{self, SketchScratch, Sketcher, UnitRow, UnitRule};
use crate::plan::OnError;
use crate::record::{Document, Notes, Verdict, without};
use crate::source::{BadRecord, CHUNK_BYTES, Chunk, Entry, Reader};
use crate::spill::IoContext;
use crate::stages::Stage;
use crate::tokenizer::Tokenizer;
use base64::Engine as _;
use rayon::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// One stage of the chain, as prepare sees it.
pub enum Step {
    /// A per-document stage.
    Judge(Box<dyn Stage>),
    /// Exact dedupe: hashes are made here.
    Exact {
        /// Whether the text is normalised first.
        normalise: bool,
    },
    /// Near dedupe: shingle sets and bands are made here.
    Near(Sketcher),
    /// A dedupe by paragraph or line: hashes of those are made here.
    Units(UnitRule),
    /// Decided later, from what prepare wrote.
    Later,
}

/// What the segment before left of the documents.
#[derive(Clone, Copy)]
pub struct Earlier<'a> {
    /// The documents in it.
    pub corpus: &'a Corpus,
    /// Who was turned away.
    pub decisions: &'a Decisions<'a>,
    /// What its last stage cuts out of those that were not.
    pub edit: Option<&'a Edit>,
}

/// What prepare does.
pub struct Prepare<'a> {
    /// Files and how to read them.
    pub inputs: &'a Inputs,
    /// Text to ids.
    pub tokenizer: &'a Tokenizer,
    /// The chain of stages.
    pub chain: &'a [Step],
    /// Which of them are done here.
    pub segment: Range<usize>,
    /// What came of the segment before.
    pub earlier: Option<Earlier<'a>>,
    /// Whether another segment follows.
    pub more_follow: bool,
    /// Keep documents whose keyed hash is below this; `None` for all.
    pub sample_below: Option<u64>,
    /// Seed of the pipeline.
    pub seed: u64,
    /// Whether texts are kept for the rejects.
    pub keep_text: bool,
    /// What documents that are longer than a chunk may take.
    pub long: &'a LongDocuments,
}

/// What a chunk became.
#[derive(Default)]
struct Part {
    docs: Vec<DocRow>,
    tokens: Vec<u32>,
    meta: Vec<u8>,
    text: Vec<u8>,
    edits: Vec<EditRow>,
    cuts: Vec<CutRow>,
    overlaps: Vec<OverlapRow>,
    exact: Vec<Vec<[u64; 2]>>,
    near: Vec<NearPart>,
    units: Vec<UnitPart>,
    languages: Vec<LanguageRow>,
    /// Lines of the quarantine.
    bad: Vec<u8>,
    /// Documents that a stage failed on: place in `docs`, then the line of the quarantine.
    failed: Vec<(u64, Vec<u8>)>,
    notes: Vec<Notes>,
    info: TaskInfo,
    /// Why the run must end, where a record that must not fail has failed.
    fatal: Option<String>,
}

#[derive(Default)]
struct NearPart {
    sets: Vec<SetRow>,
    shingles: Vec<u64>,
    bands: Vec<u64>,
}

#[derive(Default)]
struct UnitPart {
    sets: Vec<UnitSet>,
    rows: Vec<UnitRow>,
}

/// How far a document came in a segment.
struct Way {
    /// The stage that turned it away, or [`NO_STAGE`].
    stage: u16,
    /// Reason of that stage, or [`FAILED`].
    reason: u16,
    /// The deciding value.
    value: f64,
    /// What failed, where a stage did.
    failure: Option<String>,
}

impl Default for Way {
    fn default() -> Way {
        Way {
            stage: NO_STAGE,
            reason: 0,
            value: 0.0,
            failure: None,
        }
    }
}

impl Way {
    fn reject(&mut self, stage: u16, reason: u16, value: f64) {
        (self.stage, self.reason, self.value) = (stage, reason, value);
    }

    fn fail(&mut self, stage: u16, error: String) {
        (self.stage, self.reason, self.failure) = (stage, FAILED, Some(error));
    }

    /// What came of [`Prepare::cut`].
    fn after_cut(
        &mut self,
        (stage, reason): (u16, u16),
        value: f64,
        something_left: Result<bool, String>,
    ) {
        match something_left {
            Ok(true) => {}
            Ok(false) => self.reject(stage, reason, value),
            Err(error) => self.fail(stage, error),
        }
    }
}

impl Part {
    /// Counts a document that reached a stage.
    fn count(&mut self, stage: u16, tokens_before: usize, way: &Way, document: &Document) {
        let kept = way.stage == NO_STAGE;
        *self.info.passed.entry(stage).or_default() += Flow {
            documents: 1,
            tokens: tokens_before as u64,
            documents_kept: u64::from(kept),
            tokens_kept: if kept {
                document.tokens.len() as u64
            } else {
                0
            },
        };
    }
}

/// Tells of a task while it is done: never more bytes than it is thought to have.
struct Told<'p> {
    progress: &'p dyn Progress,
    task_bytes: u64,
    /// Bytes of the pieces that are done.
    before: u64,
    bytes: u64,
    tokens: u64,
    passed: BTreeMap<u16, Flow>,
}

impl<'p> Told<'p> {
    fn new(progress: &'p dyn Progress, task_bytes: u64) -> Told<'p> {
        Told {
            progress,
            task_bytes,
            before: 0,
            bytes: 0,
            tokens: 0,
            passed: BTreeMap::new(),
        }
    }

    /// So many bytes of the piece have been worked on, and the task is where `info` says.
    fn tell(&mut self, piece_bytes: u64, info: &TaskInfo) {
        let bytes = self.before.saturating_add(piece_bytes).min(self.task_bytes);
        if bytes > self.bytes {
            self.progress.advance(bytes - self.bytes);
            self.bytes = bytes;
        }
        self.progress.tokens(info.tokens - self.tokens);
        self.tokens = info.tokens;
        for (&stage, &flow) in &info.passed {
            let told = self.passed.entry(stage).or_default();
            if flow != *told {
                self.progress.kept(stage, flow - *told);
                *told = flow;
            }
        }
    }

    fn piece_ends(&mut self, piece_bytes: u64) {
        self.before = self.before.saturating_add(piece_bytes);
    }
}

/// Buffers of a worker.
#[derive(Default)]
struct Scratch {
    sketch: SketchScratch,
    bands: Vec<u64>,
}

impl Prepare<'_> {
    fn sketches(&self) -> Sketches {
        let steps = &self.chain[self.segment.clone()];
        let count = |of: fn(&Step) -> bool| steps.iter().filter(|step| of(step)).count();
        Sketches {
            exact: count(|step| matches!(step, Step::Exact { .. })),
            near: count(|step| matches!(step, Step::Near(_))),
            units: count(|step| matches!(step, Step::Units(_))),
            languages: self.more_follow,
            text: self.keep_text,
        }
    }

    /// Does every task that is not done yet, below `folder`.
    pub fn run(
        &self,
        tasks: &[Task],
        folder: &Path,
        progress: &dyn Progress,
        stop: &Stop,
    ) -> Result<Vec<TaskData>, EngineError> {
        std::fs::create_dir_all(folder).context("create", folder)?;
        let place = |number: usize| folder.join(format!("task-{number:06}"));
        let reused = AtomicUsize::new(0);
        let work = |(number, task): (usize, &Task), alone: bool| -> Result<TaskInfo, EngineError> {
            stop.check()?;
            let info = match finished(&place(number)) {
                Some(info) => {
                    progress.found(task.bytes);
                    reused.fetch_add(1, Ordering::Relaxed);
                    let info: TaskInfo = info;
                    let passed = info.passed.iter();
                    passed.for_each(|(stage, flow)| progress.kept(*stage, *flow));
                    info
                }
                None => self.task((number, task), &place(number), alone, progress, stop)?,
            };
            Ok(info)
        };
        // A task of more than half a worker's share, such as a huge compressed file, would be waited
        // for in the end: all workers share its chunks. Then each worker has tasks of its own, the
        // largest first, so that what is waited for in the end is small.
        let threads = rayon::current_num_threads() as u64;
        let whole: u64 = tasks.iter().map(|task| task.bytes).sum();
        let (large, mut small): (Vec<_>, Vec<_>) = tasks
            .iter()
            .enumerate()
            .partition(|(_, task)| task.bytes.saturating_mul(2 * threads) > whole);
        small.sort_by_key(|(number, task)| (std::cmp::Reverse(task.bytes), *number));
        let mut infos: Vec<(usize, TaskInfo)> = Vec::with_capacity(tasks.len());
        for task in large {
            infos.push((task.0, work(task, false)?));
        }
        let small: Vec<_> = small
            .into_iter()
            .par_bridge()
            .map(|task| Ok((task.0, work(task, true)?)))
            .collect::<Result<_, EngineError>>()?;
        infos.extend(small);
        infos.sort_by_key(|(number, _)| *number);
        log::found("prepare", reused.into_inner(), tasks.len());
        let sketches = self.sketches();
        infos
            .into_iter()
            .map(|(number, info)| Ok(TaskData::open(&place(number), info, sketches)?))
            .collect()
    }

    fn task(
        &self,
        (number, task): (usize, &Task),
        place: &Path,
        alone: bool,
        progress: &dyn Progress,
        stop: &Stop,
    ) -> Result<TaskInfo, EngineError> {
        let sketches = self.sketches();
        let mut streams: Vec<String> = [
            "docs", "tokens", "meta", "edits", "cuts", "overlaps", "bad", "failed",
        ]
        .map(String::from)
        .to_vec();
        streams.extend(sketches.text.then(|| "text".to_string()));
        streams.extend((0..sketches.exact).map(|slot| format!("exact-{slot}")));
        for slot in 0..sketches.near {
            streams.extend(["sets", "shingles", "bands"].map(|name| format!("near-{slot}-{name}")));
        }
        for slot in 0..sketches.units {
            streams.extend(["sets", "rows"].map(|name| format!("units-{slot}-{name}")));
        }
        streams.extend(sketches.languages.then(|| "languages".to_string()));
        let mut writer = TaskWriter::begin(place, &streams)?;
        let mut sums = Sums::default();
        let mut scratch = Scratch::default();
        let mut told = Told::new(progress, task.bytes);
        for (file, slice) in &task.pieces {
            let input = self.inputs.input_of(*file);
            let found = &self.inputs.files[*file as usize].found;
            let _item = stop.at(format!("reading {} ({slice})", found.path.display()));
            let mut reader = Reader::open(found, slice, &input.spec)?;
            if alone {
                while let Some(chunk) = reader.next_chunk()? {
                    stop.check()?;
                    let bytes = chunk.bytes();
                    let _place = self.long.enter_prepare(bytes);
                    let part = self.chunk((number, *file), chunk, &mut scratch);
                    sums.append(part, &mut writer)?;
                    if bytes > CHUNK_BYTES {
                        // What has grown to it would stay as large.
                        scratch = Scratch::default();
                    }
                    told.tell(reader.file_bytes_read(), &sums.info);
                }
            } else {
                // The reader is a round of chunks ahead of the workers, the writer a round behind.
                let round = 2 * rayon::current_num_threads();
                let mut chunks = next_round(&mut reader, round)?;
                let mut made: Vec<Part> = Vec::new();
                while !chunks.is_empty() {
                    stop.check()?;
                    let read = reader.file_bytes_read();
                    let (parts, (next, written)) = rayon::join(
                        || -> Vec<Part> {
                            std::mem::take(&mut chunks)
                                .into_par_iter()
                                .with_max_len(1)
                                .map_init(Scratch::default, |scratch, chunk| {
                                    self.chunk((number, *file), chunk, scratch)
                                })
                                .collect()
                        },
                        || {
                            rayon::join(
                                || next_round(&mut reader, round),
                                || append_all(&mut made, &mut sums, &mut writer),
                            )
                        },
                    );
                    written?;
                    told.tell(read, &sums.info);
                    made = parts;
                    chunks = next?;
                }
                append_all(&mut made, &mut sums, &mut writer)?;
            }
            told.piece_ends(reader.file_bytes_read());
            if self.earlier.is_some() {
                // The first segment has counted them.
                continue;
            }
            let summary = reader.summary();
            *sums.info.records.entry(*file).or_default() += summary.records;
            if let Some(problem) = summary.truncated {
                if input.on_error == OnError::Fail {
                    return Err(EngineError::Failed(format!(
                        "{}: {problem}; repair the file, or set on_error: quarantine to use what is complete",
                        found.path.display()
                    )));
                }
                progress.warn(&format!(
                    "{}: {problem}; what was complete is used, the rest is in quarantine",
                    found.path.display()
                ));
                sums.info.truncated.insert(*file, problem);
            }
        }
        told.tell(task.bytes, &sums.info);
        writer.finish(&sums.info)?;
        Ok(sums.info)
    }

    fn chunk(&self, (task, file): (usize, u32), chunk: Chunk, scratch: &mut Scratch) -> Part {
        let began = Instant::now();
        let sketches = self.sketches();
        let mut part = Part {
            exact: vec![Vec::new(); sketches.exact],
            near: (0..sketches.near).map(|_| NearPart::default()).collect(),
            units: (0..sketches.units).map(|_| UnitPart::default()).collect(),
            notes: vec![Notes::default(); self.chain.len()],
            ..Part::default()
        };
        let input = self.inputs.input_of(file);
        chunk.decode(&input.spec, &mut |entry| match entry {
            Entry::Document(document) => self.document((task, file), document, &mut part, scratch),
            Entry::Bad(bad) if self.earlier.is_none() => self.bad(file, &bad, &mut part),
            Entry::Bad(_) => {}
        });
        part.info.busy_seconds = began.elapsed().as_secs_f64();
        part
    }

    fn bad(&self, file: u32, bad: &BadRecord, part: &mut Part) {
        let input = self.inputs.input_of(file);
        let found = &self.inputs.files[file as usize];
        if input.on_error == OnError::Fail && bad.reason != "blank" && part.fatal.is_none() {
            part.fatal = Some(format!(
                "{} at {}: {} ({}); repair the record, or set on_error: quarantine",
                found.found.path.display(),
                bad.place,
                bad.reason,
                bad.detail
            ));
        }
        let counts = part
            .info
            .quarantined
            .entry(file)
            .or_default()
            .entry(bad.reason.to_string())
            .or_default();
        counts.0 += 1;
        counts.1 += bad.raw_bytes;
        let line = self.quarantine_line(
            file,
            bad.place,
            bad.reason,
            &bad.detail,
            &bad.raw,
            bad.raw_bytes,
        );
        part.bad.extend_from_slice(&line);
    }

    fn quarantine_line(
        &self,
        file: u32,
        place: u64,
        reason: &str,
        detail: &str,
        raw: &[u8],
        raw_bytes: u64,
    ) -> Vec<u8> {
        let found = &self.inputs.files[file as usize];
        let (offset, record) = if found.places_are_rows {
            (None, Some(place))
        } else {
            (Some(place), None)
        };
        let value = json!({
            "file": found.found.name,
            "source": self.inputs.input_of(file).source,
            "byte_offset": offset,
            "record": record,
            "reason": reason,
            "detail": detail,
            "raw_bytes": raw_bytes,
            "raw_base64": base64::engine::general_purpose::STANDARD.encode(raw),
        });
        let mut line = value.to_string().into_bytes();
        line.push(b'\n');
        line
    }

    fn document(
        &self,
        (task, file): (usize, u32),
        mut document: Document,
        part: &mut Part,
        scratch: &mut Scratch,
    ) {
        let name = &self.inputs.files[file as usize].found.name;
        let id_hash = match &document.id {
            Some(id) => hash::id_hash(id),
            None => hash::id_hash(&derived_id(name, document.place)),
        };
        if self
            .sample_below
            .is_some_and(|bound| hash::keyed(self.seed, "sample", id_hash) >= bound)
        {
            if self.earlier.is_none() {
                *part.info.left_out.entry(file).or_default() += 1;
            }
            return;
        }
        let mut way = Way::default();
        let tokens_read;
        if let Some(earlier) = self.earlier {
            let number;
            match self.taken_up(earlier, (task, file), document, part) {
                Err(fatal) => {
                    part.fatal.get_or_insert(fatal);
                    return;
                }
                Ok(None) => return,
                Ok(Some(taken)) => (document, number, tokens_read) = taken,
            }
            if let Some(edit) = earlier.edit {
                let tokens_before = document.tokens.len();
                let cuts = edit.cuts_of(number);
                if !cuts.is_empty() {
                    let bytes = cuts.iter().map(|cut| cut.end - cut.start).sum::<u64>() as f64;
                    let cut = self.cut(
                        &mut document,
                        (edit.stage, edit.reason),
                        cuts.to_vec(),
                        part,
                    );
                    way.after_cut((edit.stage, edit.reason), bytes, cut);
                }
                part.count(edit.stage, tokens_before, &way, &document);
            }
        } else {
            // A failure is before every stage: nothing can be said of such a document.
            if let Err(error) = self.encode(&document.text, &mut document.tokens) {
                way.fail(0, error);
            }
            tokens_read = document.tokens.len() as u32;
        }
        let (mut exact, mut near, mut units) = (0, 0, 0);
        for at in self.segment.clone() {
            let step = &self.chain[at];
            let takes_part = way.stage == NO_STAGE;
            match step {
                Step::Judge(judge) if takes_part => {
                    let tokens_before = document.tokens.len();
                    self.judge(at as u16, judge.as_ref(), &mut document, part, &mut way);
                    part.count(at as u16, tokens_before, &way, &document);
                }
                Step::Judge(_) | Step::Later => {}
                Step::Exact { normalise } => {
                    part.exact[exact].push(if takes_part {
                        dedupe::fingerprint(&document.text, *normalise)
                    } else {
                        [0; 2]
                    });
                    exact += 1;
                }
                Step::Near(sketcher) => {
                    let into = &mut part.near[near];
                    let mut set = SetRow {
                        start: into.shingles.len() as u64,
                        ..SetRow::default()
                    };
                    if takes_part {
                        let short = sketcher.sketch(
                            &document.text,
                            &document.tokens,
                            &mut scratch.sketch,
                            &mut scratch.bands,
                        );
                        set.short = u32::from(short);
                        set.length = scratch.sketch.shingles.len() as u32;
                        into.shingles.extend_from_slice(&scratch.sketch.shingles);
                        into.bands.extend_from_slice(&scratch.bands);
                    }
                    into.sets.push(set);
                    near += 1;
                }
                Step::Units(rule) => {
                    let into = &mut part.units[units];
                    let start = into.rows.len();
                    if takes_part {
                        dedupe::units(&document.text, *rule, &mut into.rows);
                    }
                    into.sets.push(UnitSet {
                        start: start as u64,
                        units: (into.rows.len() - start) as u64,
                    });
                    units += 1;
                }
            }
        }
        if self.more_follow {
            let found = document.language;
            part.languages.push(LanguageRow {
                code: found.map_or([0; 8], |(language, _)| language.packed()),
                probability: found.map_or(0.0, |(_, probability)| probability),
            });
        }
        if let Some(error) = way.failure {
            let text = document.text.as_bytes();
            let kept = &text[..text.len().min(crate::source::RAW_BYTES_KEPT)];
            let line = self.quarantine_line(
                file,
                document.place,
                "failed",
                &error,
                kept,
                text.len() as u64,
            );
            part.failed.push((part.docs.len() as u64, line));
        }
        let content = hash::content(bytemuck::cast_slice(&document.tokens));
        let meta_start = part.meta.len();
        encode_meta(document.id.as_deref(), &document.fields, &mut part.meta);
        part.docs.push(DocRow {
            place: document.place,
            text_bytes: document.text.len() as u64,
            tokens_start: part.tokens.len() as u64,
            meta_start: meta_start as u64,
            text_start: part.text.len() as u64,
            content: [(content >> 64) as u64, content as u64],
            id_hash,
            verdict_value: way.value,
            tokens: document.tokens.len() as u32,
            meta_bytes: (part.meta.len() - meta_start) as u32,
            file,
            flags: if self.tokenizer.special_markers_in(&document.text) {
                SPELLS_SPECIAL
            } else {
                0
            },
            verdict_stage: way.stage,
            verdict_reason: way.reason,
            tokens_read,
        });
        part.tokens.extend_from_slice(&document.tokens);
        if self.keep_text {
            part.text.extend_from_slice(document.text.as_bytes());
        }
    }
}

impl Prepare<'_> {
    /// Token ids of a text; none, and why, where there are none to go on with.
    fn encode(&self, text: &str, tokens: &mut Vec<u32>) -> Result<(), String> {
        let problem = match self.tokenizer.encode_into(text, tokens) {
            Err(error) => format!("the tokenizer failed: {error}"),
            Ok(()) if tokens.is_empty() => "the tokenizer made no token of it".to_string(),
            Ok(()) if u32::try_from(tokens.len()).is_err() => {
                "more than 4,294,967,295 tokens; lower max_document_bytes".to_string()
            }
            Ok(()) => return Ok(()),
        };
        tokens.clear();
        Err(problem)
    }

    /// Lets a stage judge a document, and cuts out of it what the stage says.
    fn judge(
        &self,
        stage: u16,
        judge: &dyn Stage,
        document: &mut Document,
        part: &mut Part,
        way: &mut Way,
    ) {
        let judged = judge.judge(document, &mut part.notes[usize::from(stage)]);
        let number = part.docs.len() as u64;
        let overlaps = document.overlaps.drain(..).map(|overlap| OverlapRow {
            document: number,
            start: overlap.start,
            end: overlap.end,
            item: overlap.item,
            keys_held: overlap.keys_held,
            keys: overlap.keys,
            stage: u32::from(stage),
        });
        part.overlaps.extend(overlaps);
        match judged {
            Ok(Verdict::Keep) => {}
            Ok(Verdict::Reject { reason, value }) => way.reject(stage, reason as u16, value),
            Ok(Verdict::Cut {
                reason,
                value,
                ranges,
            }) => {
                if !judge.edits() {
                    way.fail(stage, "a stage that edits nothing cut it".to_string());
                    return;
                }
                let cuts = ranges.into_iter().map(|range| CutRow {
                    start: range.start as u64,
                    end: range.end as u64,
                    kept: NO_DOCUMENT,
                });
                let named = (stage, reason as u16);
                let cut = self.cut(document, named, cuts.collect(), part);
                way.after_cut(named, value, cut);
            }
            Err(error) => way.fail(stage, error),
        }
    }

    /// A document as the segment before left it, its number, and that of its tokens as it was read; `None`
    /// where it was turned away, and is copied as it was.
    fn taken_up(
        &self,
        earlier: Earlier<'_>,
        (task, file): (usize, u32),
        mut document: Document,
        part: &mut Part,
    ) -> Result<Option<(Document, u64, u32)>, String> {
        let place = document.place;
        let changed = || {
            format!(
                "{}: the record at {place} is not what it was when the run read it first; the file changed meanwhile. \
                 Run again when it is at rest",
                self.inputs.files[file as usize].found.path.display()
            )
        };
        let data = &earlier.corpus.tasks[task];
        let (at, row) = earlier.corpus.at(task, file, place).ok_or_else(changed)?;
        let number = earlier.corpus.bases[task] + at as u64;
        if !earlier.decisions.is_kept(number) {
            let text = data.text_of(row).unwrap_or("");
            self.copied(row, data.tokens_of(row), text, &document, part);
            return Ok(None);
        }
        let text = std::mem::take(&mut document.text);
        document.text = earlier.corpus.edited(task, at, text).ok_or_else(changed)?;
        document.tokens = data.tokens_of(row).to_vec();
        document.language = data.language_of(at);
        Ok(Some((document, number, row.tokens_read)))
    }

    /// Notes a document that was turned away before: it takes part in nothing here.
    fn copied(
        &self,
        row: &DocRow,
        tokens: &[u32],
        text: &str,
        document: &Document,
        part: &mut Part,
    ) {
        let meta_start = part.meta.len();
        encode_meta(document.id.as_deref(), &document.fields, &mut part.meta);
        part.docs.push(DocRow {
            tokens_start: part.tokens.len() as u64,
            meta_start: meta_start as u64,
            text_start: part.text.len() as u64,
            meta_bytes: (part.meta.len() - meta_start) as u32,
            ..*row
        });
        part.tokens.extend_from_slice(tokens);
        part.text.extend_from_slice(text.as_bytes());
        part.exact.iter_mut().for_each(|hashes| hashes.push([0; 2]));
        for near in &mut part.near {
            near.sets.push(SetRow::default());
        }
        for units in &mut part.units {
            units.sets.push(UnitSet::default());
        }
        if self.more_follow {
            part.languages.push(LanguageRow::default());
        }
    }

    /// Cuts stretches out of a document for a stage and a reason, tokenizes what is left and notes the edit.
    /// False where nothing but white space is left: then the document stays as it was, to be turned away.
    ///
    /// Errors where the document cannot go on; it stays as it was, too.
    fn cut(
        &self,
        document: &mut Document,
        (stage, reason): (u16, u16),
        cuts: Vec<CutRow>,
        part: &mut Part,
    ) -> Result<bool, String> {
        let rest = without(&document.text, cuts.iter().map(CutRow::range))
            .ok_or("the stretches to cut are none of its text, which is a bug")?;
        let nothing_left = rest.trim().is_empty();
        let (mut bytes, mut tokens) = (0, 0);
        if !nothing_left {
            let mut ids = Vec::with_capacity(document.tokens.len());
            self.encode(&rest, &mut ids)
                .map_err(|error| format!("of what the edit left: {error}"))?;
            bytes = document.text.len() as i64 - rest.len() as i64;
            tokens = document.tokens.len() as i64 - ids.len() as i64;
            (document.text, document.tokens) = (rest, ids);
        }
        part.edits.push(EditRow {
            document: part.docs.len() as u64,
            bytes,
            tokens,
            first_cut: part.cuts.len() as u64,
            cuts: cuts.len() as u32,
            nothing_left: u32::from(nothing_left),
            stage,
            reason,
            unused: 0,
        });
        part.cuts.extend(cuts);
        Ok(!nothing_left)
    }
}

/// The next chunks, or fewer where they are long: at most one of them is.
fn next_round(reader: &mut Reader, chunks: usize) -> Result<Vec<Chunk>, EngineError> {
    let mut round = Vec::with_capacity(chunks);
    while round.len() < chunks
        && let Some(chunk) = reader.next_chunk()?
    {
        let is_long = chunk.bytes() > CHUNK_BYTES;
        round.push(chunk);
        if is_long {
            break;
        }
    }
    Ok(round)
}

fn append_all(
    parts: &mut Vec<Part>,
    sums: &mut Sums,
    writer: &mut TaskWriter,
) -> Result<(), EngineError> {
    parts
        .drain(..)
        .try_for_each(|part| sums.append(part, writer))
}

/// What a task has written so far.
#[derive(Default)]
struct Sums {
    info: TaskInfo,
    meta: u64,
    text: u64,
    cuts: u64,
    shingles: Vec<u64>,
    units: Vec<u64>,
}

impl Sums {
    fn append(&mut self, mut part: Part, writer: &mut TaskWriter) -> Result<(), EngineError> {
        if let Some(fatal) = part.fatal {
            return Err(EngineError::Failed(fatal));
        }
        for row in &mut part.docs {
            row.tokens_start += self.info.tokens;
            row.meta_start += self.meta;
            row.text_start += self.text;
        }
        for edit in &mut part.edits {
            edit.document += self.info.documents;
            edit.first_cut += self.cuts;
        }
        for overlap in &mut part.overlaps {
            overlap.document += self.info.documents;
        }
        writer.write("docs", bytemuck::cast_slice(&part.docs))?;
        writer.write("tokens", bytemuck::cast_slice(&part.tokens))?;
        writer.write("meta", &part.meta)?;
        writer.write("edits", bytemuck::cast_slice(&part.edits))?;
        writer.write("cuts", bytemuck::cast_slice(&part.cuts))?;
        self.cuts += part.cuts.len() as u64;
        writer.write("overlaps", bytemuck::cast_slice(&part.overlaps))?;
        writer.write("bad", &part.bad)?;
        for (document, line) in &part.failed {
            let mut entry = (document + self.info.documents).to_string().into_bytes();
            entry.push(b' ');
            writer.write("failed", &entry)?;
            writer.write("failed", line)?;
        }
        if !part.text.is_empty() {
            writer.write("text", &part.text)?;
        }
        for (slot, hashes) in part.exact.iter().enumerate() {
            writer.write(&format!("exact-{slot}"), bytemuck::cast_slice(hashes))?;
        }
        self.shingles.resize(part.near.len(), 0);
        for (slot, near) in part.near.iter_mut().enumerate() {
            for set in &mut near.sets {
                set.start += self.shingles[slot];
            }
            self.shingles[slot] += near.shingles.len() as u64;
            writer.write(
                &format!("near-{slot}-sets"),
                bytemuck::cast_slice(&near.sets),
            )?;
            writer.write(
                &format!("near-{slot}-shingles"),
                bytemuck::cast_slice(&near.shingles),
            )?;
            writer.write(
                &format!("near-{slot}-bands"),
                bytemuck::cast_slice(&near.bands),
            )?;
        }
        self.units.resize(part.units.len(), 0);
        for (slot, units) in part.units.iter_mut().enumerate() {
            for set in &mut units.sets {
                set.start += self.units[slot];
            }
            self.units[slot] += units.rows.len() as u64;
            let stream = |name: &str| format!("units-{slot}-{name}");
            writer.write(&stream("sets"), bytemuck::cast_slice(&units.sets))?;
            writer.write(&stream("rows"), bytemuck::cast_slice(&units.rows))?;
        }
        if !part.languages.is_empty() {
            writer.write("languages", bytemuck::cast_slice(&part.languages))?;
        }
        self.info.documents += part.docs.len() as u64;
        self.info.tokens += part.tokens.len() as u64;
        self.meta += part.meta.len() as u64;
        self.text += part.text.len() as u64;
        self.info.busy_seconds += part.info.busy_seconds;
        for (stage, flow) in part.info.passed {
            *self.info.passed.entry(stage).or_default() += flow;
        }
        for (file, count) in part.info.left_out {
            *self.info.left_out.entry(file).or_default() += count;
        }
        for (file, reasons) in part.info.quarantined {
            for (reason, (records, bytes)) in reasons {
                let sum = self
                    .info
                    .quarantined
                    .entry(file)
                    .or_default()
                    .entry(reason)
                    .or_default();
                sum.0 += records;
                sum.1 += bytes;
            }
        }
        for (stage, notes) in part.notes.iter().enumerate() {
            let mut note = 0;
            // Notes are declared words, so a stage has few; those never counted are left out.
            while note < 64 {
                let count = notes.get(note);
                if count > 0 {
                    *self
                        .info
                        .notes
                        .entry(stage as u16)
                        .or_default()
                        .entry(note as u16)
                        .or_default() += count;
                }
                note += 1;
            }
        }
        Ok(())
    }
}
