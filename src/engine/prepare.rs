//! Prepare: bytes to documents, verdicts of the per-document stages, token ids, sketches.
//!
//! Every document that is read is tokenized, also those that a stage rejects: the ledger counts
//! their tokens. A verdict is noted, not applied: a document that stage 5 rejects still takes part in
//! a dedupe that is stage 3.

use super::corpus::{
    DocRow, FAILED, NO_STAGE, SPELLS_SPECIAL, SetRow, Sketches, TaskData, TaskInfo, derived_id,
    encode_meta,
};
use super::inputs::{Inputs, Task};
use super::progress::Progress;
use super::work::{TaskWriter, finished};
use super::{EngineError, Stop};
use crate::algo::hash;
use crate::dedupe::{self, SketchScratch, Sketcher};
use crate::plan::OnError;
use crate::record::{Document, Notes, Verdict};
use crate::source::{BadRecord, Chunk, Entry, Reader};
use crate::spill::IoContext;
use crate::stages::Stage;
use crate::tokenizer::Tokenizer;
use base64::Engine as _;
use rayon::prelude::*;
use serde_json::json;
use std::path::Path;
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
    /// Decided later, from what prepare wrote.
    Later,
}

/// What prepare does.
pub struct Prepare<'a> {
    /// Files and how to read them.
    pub inputs: &'a Inputs,
    /// Text to ids.
    pub tokenizer: &'a Tokenizer,
    /// The chain of stages.
    pub chain: &'a [Step],
    /// Keep documents whose keyed hash is below this; `None` for all.
    pub sample_below: Option<u64>,
    /// Seed of the pipeline.
    pub seed: u64,
    /// Whether texts are kept for the rejects.
    pub keep_text: bool,
}

/// What a chunk became.
#[derive(Default)]
struct Part {
    docs: Vec<DocRow>,
    tokens: Vec<u32>,
    meta: Vec<u8>,
    text: Vec<u8>,
    exact: Vec<Vec<[u64; 2]>>,
    near: Vec<NearPart>,
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

/// Buffers of a worker.
#[derive(Default)]
struct Scratch {
    sketch: SketchScratch,
    bands: Vec<u64>,
}

impl Prepare<'_> {
    fn sketches(&self) -> Sketches {
        let count = |of: fn(&Step) -> bool| self.chain.iter().filter(|step| of(step)).count();
        Sketches {
            exact: count(|step| matches!(step, Step::Exact { .. })),
            near: count(|step| matches!(step, Step::Near(_))),
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
        let work = |(number, task): (usize, &Task), alone: bool| -> Result<TaskInfo, EngineError> {
            stop.check()?;
            let info = match finished(&place(number)) {
                Some(info) => {
                    progress.advance(task.bytes);
                    info
                }
                None => self.task(task, &place(number), alone, progress, stop)?,
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
        let sketches = self.sketches();
        infos
            .into_iter()
            .map(|(number, info)| Ok(TaskData::open(&place(number), info, sketches)?))
            .collect()
    }

    fn task(
        &self,
        task: &Task,
        place: &Path,
        alone: bool,
        progress: &dyn Progress,
        stop: &Stop,
    ) -> Result<TaskInfo, EngineError> {
        let sketches = self.sketches();
        let mut streams: Vec<String> = ["docs", "tokens", "meta", "bad", "failed"]
            .map(String::from)
            .to_vec();
        streams.extend(sketches.text.then(|| "text".to_string()));
        streams.extend((0..sketches.exact).map(|slot| format!("exact-{slot}")));
        for slot in 0..sketches.near {
            streams.extend(["sets", "shingles", "bands"].map(|name| format!("near-{slot}-{name}")));
        }
        let mut writer = TaskWriter::begin(place, &streams)?;
        let mut sums = Sums::default();
        let mut scratch = Scratch::default();
        for (file, slice) in &task.pieces {
            let input = self.inputs.input_of(*file);
            let found = &self.inputs.files[*file as usize].found;
            let mut reader = Reader::open(found, slice, &input.spec)?;
            if alone {
                while let Some(chunk) = reader.next_chunk()? {
                    stop.check()?;
                    let part = self.chunk(*file, chunk, &mut scratch);
                    sums.append(part, &mut writer)?;
                }
            } else {
                // The reader is a round of chunks ahead of the workers, the writer a round behind.
                let round = 2 * rayon::current_num_threads();
                let mut chunks = next_round(&mut reader, round)?;
                let mut made: Vec<Part> = Vec::new();
                while !chunks.is_empty() {
                    stop.check()?;
                    let (parts, (next, written)) = rayon::join(
                        || -> Vec<Part> {
                            std::mem::take(&mut chunks)
                                .into_par_iter()
                                .with_max_len(1)
                                .map_init(Scratch::default, |scratch, chunk| {
                                    self.chunk(*file, chunk, scratch)
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
                    made = parts;
                    chunks = next?;
                }
                append_all(&mut made, &mut sums, &mut writer)?;
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
        progress.advance(task.bytes);
        writer.finish(&sums.info)?;
        Ok(sums.info)
    }

    fn chunk(&self, file: u32, chunk: Chunk, scratch: &mut Scratch) -> Part {
        let began = Instant::now();
        let sketches = self.sketches();
        let mut part = Part {
            exact: vec![Vec::new(); sketches.exact],
            near: (0..sketches.near).map(|_| NearPart::default()).collect(),
            notes: vec![Notes::default(); self.chain.len()],
            ..Part::default()
        };
        let input = self.inputs.input_of(file);
        chunk.decode(&input.spec, &mut |entry| match entry {
            Entry::Document(document) => self.document(file, document, &mut part, scratch),
            Entry::Bad(bad) => self.bad(file, &bad, &mut part),
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

    fn document(&self, file: u32, mut document: Document, part: &mut Part, scratch: &mut Scratch) {
        let name = &self.inputs.files[file as usize].found.name;
        let id_hash = match &document.id {
            Some(id) => hash::id_hash(id),
            None => hash::id_hash(&derived_id(name, document.place)),
        };
        if self
            .sample_below
            .is_some_and(|bound| hash::keyed(self.seed, "sample", id_hash) >= bound)
        {
            *part.info.left_out.entry(file).or_default() += 1;
            return;
        }
        let mut stage = NO_STAGE;
        let (mut reason, mut value) = (0, 0.0);
        let mut failure = None;
        if let Err(error) = self
            .tokenizer
            .encode_into(&document.text, &mut document.tokens)
        {
            document.tokens.clear();
            failure = Some(format!("the tokenizer failed: {error}"));
        } else if document.tokens.is_empty() {
            failure = Some("the tokenizer made no token of it".to_string());
        } else if u32::try_from(document.tokens.len()).is_err() {
            failure = Some("more than 4,294,967,295 tokens; lower max_document_bytes".to_string());
            document.tokens.clear();
        }
        if failure.is_some() {
            // Before every stage: nothing can be said of such a document.
            (stage, reason) = (0, FAILED);
        }
        let (mut exact, mut near) = (0, 0);
        for (at, step) in self.chain.iter().enumerate() {
            let takes_part = stage == NO_STAGE;
            match step {
                Step::Judge(judge) if takes_part => {
                    match judge.judge(&mut document, &mut part.notes[at]) {
                        Ok(Verdict::Keep) => {}
                        Ok(Verdict::Reject {
                            reason: which,
                            value: deciding,
                        }) => {
                            (stage, reason, value) = (at as u16, which as u16, deciding);
                        }
                        Err(error) => {
                            (stage, reason) = (at as u16, FAILED);
                            failure = Some(error);
                        }
                    }
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
            }
        }
        if let Some(error) = failure {
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
            verdict_value: value,
            tokens: document.tokens.len() as u32,
            meta_bytes: (part.meta.len() - meta_start) as u32,
            file,
            flags: if self.tokenizer.special_markers_in(&document.text) {
                SPELLS_SPECIAL
            } else {
                0
            },
            verdict_stage: stage,
            verdict_reason: reason,
            unused: 0,
        });
        part.tokens.extend_from_slice(&document.tokens);
        if self.keep_text {
            part.text.extend_from_slice(document.text.as_bytes());
        }
    }
}

fn next_round(reader: &mut Reader, chunks: usize) -> Result<Vec<Chunk>, EngineError> {
    let mut round = Vec::with_capacity(chunks);
    while round.len() < chunks
        && let Some(chunk) = reader.next_chunk()?
    {
        round.push(chunk);
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
    shingles: Vec<u64>,
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
        writer.write("docs", bytemuck::cast_slice(&part.docs))?;
        writer.write("tokens", bytemuck::cast_slice(&part.tokens))?;
        writer.write("meta", &part.meta)?;
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
        self.info.documents += part.docs.len() as u64;
        self.info.tokens += part.tokens.len() as u64;
        self.meta += part.meta.len() as u64;
        self.text += part.text.len() as u64;
        self.info.busy_seconds += part.info.busy_seconds;
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
