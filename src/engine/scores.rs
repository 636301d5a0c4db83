//! The score phase: fits an estimator on what reaches it, then scores each task.

use super::corpus::{Corpus, DocRow};
use super::decide::Decisions;
use super::domains::Domains;
use super::log;
use super::memory::{LongDocuments, rounds};
use super::progress::{Progress, Unit};
use super::work::{TaskWriter, finished};
use super::{EngineError, Stop};
use crate::algo::hash;
use crate::algo::isotonic::Curve;
use crate::algo::quantise::byte_of;
use crate::score::{
    self, Calibrated, Estimator, EstimatorKind, Fit, FitError, FitInput, ModelOrigin,
    TokenDocument, TokenScores, TokenSource,
};
use crate::source;
use crate::spill::{Column, IoContext};
use rayon::prelude::*;
use serde_json::Value;
use std::io;
use std::ops::Range;
use std::path::Path;

/// Scores of one document.
#[derive(Clone, Copy, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct ScoreRow {
    /// What `by: score` means.
    pub score: f32,
    /// Mean excess in nats.
    pub excess_nats: f32,
    /// Mean surprisal in nats.
    pub difficulty: f32,
    /// 1 where it was scored.
    pub scored: u32,
}

/// Which columns of tokens are kept beside the bytes of usefulness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Usefulness as computed.
    pub usefulness_f32: bool,
    /// Raw excess.
    pub excess_nats: bool,
}

/// Tokens of a block: what a worker scores before it is written.
const BLOCK_TOKENS: u64 = 1 << 20;

/// Scores of consecutive documents of a task.
struct Block {
    rows: Vec<ScoreRow>,
    usefulness: Vec<u8>,
    usefulness_f32: Vec<f32>,
    excess_nats: Vec<f32>,
}

struct ScoredTask {
    rows: Column<ScoreRow>,
    usefulness: Column<u8>,
    usefulness_f32: Option<Column<f32>>,
    excess_nats: Option<Column<f32>>,
}

/// Scores of all documents that reached the stage.
pub struct Scores<'a> {
    corpus: &'a Corpus,
    tasks: Vec<ScoredTask>,
    /// What was fitted.
    pub fitted: Value,
}

/// The documents of a corpus as an estimator reads them.
pub struct TokenView<'d, 'a> {
    corpus: &'a Corpus,
    decisions: Option<(&'d Decisions<'a>, u16)>,
    seed: u64,
    fold_by_id: bool,
    tokens: u64,
    needs_text: bool,
    needs_id: bool,
    domains: &'d Domains,
    /// Documents of a task, by their places in it.
    parts: Vec<(usize, Range<usize>)>,
    stop: &'d Stop,
}

/// Tokens of a part from which it is cut: a huge compressed file is one task, and must neither keep
/// one worker busy alone nor be held in memory as a whole.
const PART_TOKENS: u64 = 64 << 20;

/// Cuts documents, in order, wherever `part_tokens` are reached.
fn cut(docs: &[DocRow], part_tokens: u64) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let (mut start, mut tokens) = (0, 0);
    for (at, row) in docs.iter().enumerate() {
        tokens += u64::from(row.tokens);
        if tokens >= part_tokens {
            ranges.push(start..at + 1);
            (start, tokens) = (at + 1, 0);
        }
    }
    if start < docs.len() {
        ranges.push(start..docs.len());
    }
    ranges
}

fn parts_of(corpus: &Corpus) -> Vec<(usize, Range<usize>)> {
    let mut parts = Vec::with_capacity(corpus.tasks.len());
    for (number, task) in corpus.tasks.iter().enumerate() {
        let docs = task.docs.values();
        if task.info.tokens < PART_TOKENS {
            parts.push((number, 0..docs.len()));
        } else {
            parts.extend(
                cut(docs, PART_TOKENS)
                    .into_iter()
                    .map(|part| (number, part)),
            );
        }
    }
    parts
}

impl<'d, 'a> TokenView<'d, 'a> {
    /// The documents that reach `stage`. Folds are drawn by id where a near dedupe went before, so
    /// that no other document is a near copy, else by content.
    pub fn of(
        corpus: &'a Corpus,
        decisions: &'d Decisions<'a>,
        stage: u16,
        seed: u64,
        fold_by_id: bool,
        domains: &'d Domains,
        stop: &'d Stop,
    ) -> Self {
        let (_, tokens) = decisions.reaching(stage);
        TokenView {
            corpus,
            decisions: Some((decisions, stage)),
            seed,
            fold_by_id,
            tokens,
            needs_text: false,
            needs_id: false,
            domains,
            parts: parts_of(corpus),
            stop,
        }
    }

    /// All documents of a reference, folds by content.
    pub fn reference(corpus: &'a Corpus, seed: u64, domains: &'d Domains, stop: &'d Stop) -> Self {
        let tokens = corpus.rows().map(|(_, row)| u64::from(row.tokens)).sum();
        TokenView {
            corpus,
            decisions: None,
            seed,
            fold_by_id: false,
            tokens,
            needs_text: false,
            needs_id: false,
            domains,
            parts: parts_of(corpus),
            stop,
        }
    }

    /// The same with what an estimator of this kind asks for.
    pub fn for_kind(mut self, kind: &EstimatorKind) -> Self {
        (self.needs_text, self.needs_id) = (kind.needs_text, kind.needs_id);
        self
    }

    fn visit(&self, task: usize, range: Range<usize>, visit: &mut dyn FnMut(TokenDocument<'_>)) {
        let first = self.corpus.bases[task] + range.start as u64;
        let task = &self.corpus.tasks[task];
        let (sample, fold) = (
            hash::purpose_key(self.seed, "fit sample"),
            fold_purpose(self.seed),
        );
        let mut id = String::new();
        for (row, number) in task.docs.values()[range].iter().zip(first..) {
            let reaches = match self.decisions {
                Some((decisions, stage)) => decisions.reaches(number, stage),
                None => row.tokens > 0,
            };
            if reaches {
                if self.needs_id {
                    id = self.corpus.id(number);
                }
                let text = match self.needs_text {
                    true => task
                        .text_of(row)
                        .expect("prepare keeps what estimators ask for"),
                    false => "",
                };
                visit(TokenDocument {
                    number,
                    sample_key: hash::keyed_by(sample, row.id_hash),
                    fold_key: fold_key(fold, self.fold_by_id, row.id_hash, row.content[0]),
                    content: u128::from(row.content[0]) << 64 | u128::from(row.content[1]),
                    tokens: task.tokens_of(row),
                    id: &id,
                    text,
                });
            }
        }
    }
}

impl TokenSource for TokenView<'_, '_> {
    fn parts(&self) -> usize {
        self.parts.len()
    }
    fn tokens(&self) -> u64 {
        self.tokens
    }
    fn read(&self, part: usize, visit: &mut dyn FnMut(TokenDocument<'_>)) -> io::Result<()> {
        // A fit reads its parts several times; between two of them it can be stopped.
        self.stop.check().map_err(io::Error::other)?;
        let (task, range) = &self.parts[part];
        self.visit(*task, range.clone(), visit);
        Ok(())
    }
    fn go_on(&self) -> io::Result<()> {
        self.stop.check().map_err(io::Error::other)
    }
    fn domains(&self) -> &[String] {
        self.domains.names()
    }
    fn domain(&self, number: u64) -> Option<usize> {
        self.domains.of(self.corpus, number)
    }
}

/// The key that draws folds.
pub(super) fn fold_purpose(seed: u64) -> u64 {
    hash::purpose_key(seed, "fold")
}

/// What draws the fold of a document: its id, where that stands for its near-duplicate component, else
/// the high half of its content. Explanations must draw as the scores did.
pub(super) fn fold_key(purpose: u64, by_id: bool, id_hash: u64, content_high: u64) -> u64 {
    hash::keyed_by(purpose, if by_id { id_hash } else { content_high })
}

fn remove_folder(folder: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).context("remove", folder)
        }
        _ => Ok(()),
    }
}

/// A file of numbers per token as an estimator reads it.
struct OpenTable<'p>(&'p source::TokenTable);

impl score::TokenTable for OpenTable<'_> {
    fn read(
        &self,
        visit: &mut dyn FnMut(score::TokenNumbers<'_>) -> Result<(), FitError>,
    ) -> Result<(), FitError> {
        /// Either the file's fault or the estimator's.
        struct Fault(FitError);
        impl From<source::SourceError> for Fault {
            fn from(error: source::SourceError) -> Self {
                Fault(FitError::Data(error.to_string()))
            }
        }
        let mut visit_row = |row: source::TokenNumbers<'_>| {
            visit(score::TokenNumbers {
                doc_id: row.doc_id,
                first_token: row.first_token,
                numbers: row.numbers,
            })
            .map_err(Fault)
        };
        self.0.read(&mut visit_row).map_err(|Fault(error)| error)
    }
}

/// Stands for the estimator where no document reaches the stage: there is nothing to learn from, and
/// nothing to score.
struct NoDocument;

impl Estimator for NoDocument {
    fn score(
        &self,
        _document: &TokenDocument<'_>,
        _out: &mut TokenScores,
    ) -> Result<crate::score::DocumentScores, String> {
        Err("no document reaches the score stage".to_string())
    }
    fn describe(&self) -> Value {
        serde_json::json!({ "documents": 0, "calibration": "nothing was scored" })
    }
}

/// What the phase needs besides the documents.
pub struct ScorePhase<'p, 'd, 'a> {
    /// The kind of the estimator.
    pub kind: &'static EstimatorKind,
    /// The estimator, not fitted yet.
    pub fit: &'p dyn Fit,
    /// What tells its models from those that must not score these documents.
    pub origin: &'p ModelOrigin,
    /// End when this file holds the fitted model, without scoring.
    pub only_fit: Option<&'p Path>,
    /// The documents that reach the stage.
    pub view: &'p TokenView<'d, 'a>,
    /// The reference.
    pub reference: Option<&'p TokenView<'d, 'p>>,
    /// The documents that `negative` names.
    pub negative: Option<&'p TokenView<'d, 'p>>,
    /// Every id is below it.
    pub vocabulary_size: u32,
    /// What usefulness is led through, and what the description says of it.
    pub calibration: Option<&'p (Curve, Value)>,
    /// Anonymous memory for the fit.
    pub memory_bytes: u64,
    /// The file of numbers per token that the estimator asks for.
    pub table: Option<&'p source::TokenTable>,
    /// Checksums of the files that the estimator reads.
    pub file_checksums: &'p [String],
    /// Columns to keep.
    pub wanted: Wanted,
    /// What documents that are longer than a block may take.
    pub long: &'p LongDocuments,
}

impl<'a> ScorePhase<'_, '_, 'a> {
    /// Scores every task that is not scored yet, below `folder`, whose name carries all that shapes
    /// the scores.
    pub fn run(
        &self,
        folder: &Path,
        progress: &dyn Progress,
        stop: &Stop,
        phase_ended: &mut dyn FnMut(&str),
    ) -> Result<Scores<'a>, EngineError> {
        let corpus = self.view.corpus;
        let place = |number: usize| folder.join(format!("task-{number:06}"));
        let model = folder.join("fitted");
        let mut todo: Vec<usize> = (0..corpus.tasks.len())
            .filter(|&n| finished::<()>(&place(n)).is_none())
            .collect();
        let mut fitted = finished::<Value>(&model);
        log::found("score", corpus.tasks.len() - todo.len(), corpus.tasks.len());
        if fitted.is_none() {
            todo = (0..corpus.tasks.len()).collect();
        }
        if !todo.is_empty() || self.only_fit.is_some() {
            let models = folder.join("models").join("model");
            let fit_folder = folder.join("fit.tmp");
            let estimator = match (&fitted, self.kind.load) {
                // Fitted by a run that was stopped; what the file says of itself is checked whole.
                (Some(described), Some(load)) => load(&models)
                    .ok()
                    .map(|(_, estimator)| self.calibrated(estimator))
                    .filter(|estimator| estimator.describe() == *described),
                _ => None,
            };
            let estimator = match estimator {
                Some(estimator) => {
                    tracing::info!("score: the models that an earlier run fitted are used");
                    estimator
                }
                None => {
                    progress.begin("fit", self.view.tokens, Unit::Tokens);
                    let fitting = stop.at(format!("the fit in {}", fit_folder.display()));
                    let estimator = self.fitted(&fit_folder, stop)?;
                    drop(fitting);
                    progress.end();
                    phase_ended("fit");
                    stop.check()?;
                    std::fs::create_dir_all(folder.join("models")).context("create", folder)?;
                    if self.kind.load.is_some() {
                        estimator.save(&models, self.origin)?;
                    }
                    let description = estimator.describe();
                    TaskWriter::begin(&model, &[])?.finish(&description)?;
                    phase_ended("write model");
                    fitted = Some(description);
                    estimator
                }
            };
            stop.check()?;
            if let Some(path) = self.only_fit {
                estimator.save(path, self.origin)?;
                todo.clear();
            }
            // As in prepare: workers share what one of them would have to be waited for.
            let tokens = |number: usize| corpus.tasks[number].info.tokens;
            let threads = rayon::current_num_threads();
            let whole: u64 = todo.iter().map(|&number| tokens(number)).sum();
            progress.begin("score", whole, Unit::Tokens);
            let (large, mut small): (Vec<usize>, Vec<usize>) = todo
                .into_iter()
                .partition(|&n| tokens(n).saturating_mul(2 * threads as u64) > whole);
            small.sort_by_key(|&number| (std::cmp::Reverse(tokens(number)), number));
            let work = |number: usize, workers: usize| {
                stop.check()?;
                let _item = stop.at(format!("scoring {}", place(number).display()));
                self.task(number, &place(number), estimator.as_ref(), workers)?;
                progress.advance(tokens(number));
                Ok::<(), EngineError>(())
            };
            for number in large {
                work(number, threads)?;
            }
            small
                .into_iter()
                .par_bridge()
                .try_for_each(|number| work(number, 1))?;
            progress.end();
            drop(estimator);
            remove_folder(&fit_folder)?;
        }
        if self.only_fit.is_some() {
            return Ok(Scores {
                corpus,
                tasks: Vec::new(),
                fitted: fitted.unwrap_or(Value::Null),
            });
        }
        let tasks = (0..corpus.tasks.len())
            .map(|number| {
                let folder = place(number);
                Ok(ScoredTask {
                    rows: Column::open(&folder.join("rows"))?,
                    usefulness: Column::open(&folder.join("usefulness"))?,
                    usefulness_f32: self
                        .wanted
                        .usefulness_f32
                        .then(|| Column::open(&folder.join("usefulness-f32")))
                        .transpose()?,
                    excess_nats: self
                        .wanted
                        .excess_nats
                        .then(|| Column::open(&folder.join("excess-nats")))
                        .transpose()?,
                })
            })
            .collect::<io::Result<_>>()?;
        Ok(Scores {
            corpus,
            tasks,
            fitted: fitted.unwrap_or(Value::Null),
        })
    }

    /// Fits the estimator, which may have files in an empty folder of its own as long as it lives.
    fn fitted(&self, fit_folder: &Path, stop: &Stop) -> Result<Box<dyn Estimator>, EngineError> {
        remove_folder(fit_folder)?;
        std::fs::create_dir_all(fit_folder).context("create", fit_folder)?;
        let table = self.table.map(OpenTable);
        let input = FitInput {
            corpus: self.view,
            reference: self.reference.map(|view| view as &dyn TokenSource),
            negative: self.negative.map(|view| view as &dyn TokenSource),
            vocabulary_size: self.vocabulary_size,
            seed: self.view.seed,
            origin: self.origin,
            file_checksums: self.file_checksums,
            calibration: self.calibration.map(|(curve, _)| curve),
            table: table.as_ref().map(|table| table as &dyn score::TokenTable),
            work: fit_folder,
            memory_bytes: self.memory_bytes,
        };
        let estimator = match self.view.tokens {
            0 => Ok(Box::new(NoDocument) as Box<dyn Estimator>),
            _ => self.fit.fit(&input),
        };
        stop.check()?;
        // Its files have no names that say anything; their folder does.
        let estimator = estimator.map_err(|error| match error {
            FitError::Io(error) => FitError::Io(io::Error::new(
                error.kind(),
                format!("cannot fit the models in {}: {error}", fit_folder.display()),
            )),
            other => other,
        })?;
        Ok(self.calibrated(estimator))
    }

    /// Leads what an estimator says through the calibration, where there is one.
    fn calibrated(&self, estimator: Box<dyn Estimator>) -> Box<dyn Estimator> {
        match self.calibration {
            Some((curve, about)) if self.view.tokens > 0 => {
                Box::new(Calibrated::new(estimator, curve.clone(), about.clone()))
            }
            _ => estimator,
        }
    }

    fn task(
        &self,
        number: usize,
        place: &Path,
        estimator: &dyn Estimator,
        workers: usize,
    ) -> Result<(), EngineError> {
        let mut streams = vec!["rows".to_string(), "usefulness".to_string()];
        streams.extend(
            self.wanted
                .usefulness_f32
                .then(|| "usefulness-f32".to_string()),
        );
        streams.extend(self.wanted.excess_nats.then(|| "excess-nats".to_string()));
        let mut writer = TaskWriter::begin(place, &streams)?;
        let docs = self.view.corpus.tasks[number].docs.values();
        let blocks = cut(docs, BLOCK_TOKENS);
        let tokens = |block: &Range<usize>| -> u64 {
            let rows = docs[block.clone()].iter();
            rows.map(|row| u64::from(row.tokens)).sum()
        };
        let mut write = |block: Result<Block, EngineError>| -> Result<(), EngineError> {
            let block = block?;
            writer.write("rows", bytemuck::cast_slice(&block.rows))?;
            writer.write("usefulness", &block.usefulness)?;
            if self.wanted.usefulness_f32 {
                writer.write(
                    "usefulness-f32",
                    bytemuck::cast_slice(&block.usefulness_f32),
                )?;
            }
            if self.wanted.excess_nats {
                writer.write("excess-nats", bytemuck::cast_slice(&block.excess_nats))?;
            }
            Ok(())
        };
        if workers == 1 {
            for block in blocks {
                let _place = self.long.enter_score(tokens(&block), BLOCK_TOKENS);
                write(self.block(number, block, estimator))?;
            }
        } else {
            let most = 2 * workers;
            for round in rounds(&blocks, most, most as u64 * 2 * BLOCK_TOKENS, tokens) {
                let scored: Vec<_> = round
                    .par_iter()
                    .with_max_len(1)
                    .map(|block| self.block(number, block.clone(), estimator))
                    .collect();
                scored.into_iter().try_for_each(&mut write)?;
            }
        }
        writer.finish(&())?;
        Ok(())
    }

    fn block(
        &self,
        task: usize,
        range: Range<usize>,
        estimator: &dyn Estimator,
    ) -> Result<Block, EngineError> {
        self.view.stop.check()?;
        let corpus = self.view.corpus;
        let base = corpus.bases[task];
        let docs = &corpus.tasks[task].docs.values()[range.clone()];
        // Tokens stand in the order of the documents; those of documents that are not scored are 0.
        let first = docs.first().map_or(0, |row| row.tokens_start);
        let tokens: usize = docs.iter().map(|row| row.tokens as usize).sum();
        let floats = |wanted: bool| vec![0.0f32; if wanted { tokens } else { 0 }];
        let mut block = Block {
            rows: vec![ScoreRow::default(); docs.len()],
            usefulness: vec![0; tokens],
            usefulness_f32: floats(self.wanted.usefulness_f32),
            excess_nats: floats(self.wanted.excess_nats),
        };
        let mut scores = TokenScores::default();
        let mut problem: Option<EngineError> = None;
        self.view.visit(task, range.clone(), &mut |document| {
            if problem.is_some() {
                return;
            }
            let fail = |what: String| {
                EngineError::Failed(format!("document '{}' {what}", corpus.id(document.number)))
            };
            let found = match estimator.score(&document, &mut scores) {
                Ok(found) => found,
                Err(error) => {
                    problem = Some(fail(format!("could not be scored: {error}")));
                    return;
                }
            };
            if ![found.score, found.excess_nats, found.difficulty]
                .iter()
                .all(|value| (*value as f32).is_finite())
            {
                problem = Some(fail(format!(
                    "has a score that is not a finite 32-bit number: {found:?}"
                )));
                return;
            }
            let (usefulness, excess) = (&scores.usefulness, &scores.excess_nats);
            if let Some(at) = usefulness.iter().position(|u| !(0.0..=1.0).contains(u)) {
                let u = usefulness[at];
                problem = Some(fail(format!(
                    "has usefulness {u} at its token {at}, not a number from 0 to 1"
                )));
                return;
            }
            if let Some(at) = excess.iter().position(|nats| !nats.is_finite()) {
                let nats = excess[at];
                problem = Some(fail(format!(
                    "has an excess of {nats} nats at its token {at}, not a finite number"
                )));
                return;
            }
            let at = (document.number - base) as usize - range.start;
            block.rows[at] = ScoreRow {
                score: found.score as f32,
                excess_nats: found.excess_nats as f32,
                difficulty: found.difficulty as f32,
                scored: 1,
            };
            let start = (docs[at].tokens_start - first) as usize;
            let place = start..start + document.tokens.len();
            for (byte, &usefulness) in block.usefulness[place.clone()]
                .iter_mut()
                .zip(&scores.usefulness)
            {
                *byte = byte_of(usefulness);
            }
            if self.wanted.usefulness_f32 {
                block.usefulness_f32[place.clone()].copy_from_slice(&scores.usefulness);
            }
            if self.wanted.excess_nats {
                block.excess_nats[place].copy_from_slice(&scores.excess_nats);
            }
        });
        problem.map_or(Ok(block), Err)
    }
}

impl Scores<'_> {
    /// Scores of a document.
    pub fn of(&self, number: u64) -> &ScoreRow {
        let (task, at) = self.corpus.locate(number);
        &self.tasks[task].rows.values()[at]
    }

    fn tokens<T: bytemuck::Pod>(
        &self,
        number: u64,
        of: impl Fn(&ScoredTask) -> Option<&Column<T>>,
    ) -> &[T] {
        let (task, at) = self.corpus.locate(number);
        let row = &self.corpus.tasks[task].docs.values()[at];
        match of(&self.tasks[task]) {
            Some(column) => &column.values()[row.tokens_start as usize..][..row.tokens as usize],
            None => &[],
        }
    }

    /// Bytes of usefulness of a document, one per token; zero where it was not scored.
    pub fn usefulness(&self, number: u64) -> &[u8] {
        self.tokens(number, |task| Some(&task.usefulness))
    }

    /// 0 or 1, where that is the usefulness, as a byte, of every token that was scored.
    pub fn at_one_end(&self) -> Option<u8> {
        let mut end = None;
        for (number, row) in self.corpus.rows() {
            if self.of(number).scored == 0 || row.tokens == 0 {
                continue;
            }
            for &byte in self.usefulness(number) {
                if *end.get_or_insert(byte) != byte {
                    return None;
                }
            }
        }
        match end {
            Some(0) => Some(0),
            Some(u8::MAX) => Some(1),
            _ => None,
        }
    }

    /// Usefulness as computed; empty where it is not wanted.
    pub fn usefulness_f32(&self, number: u64) -> &[f32] {
        self.tokens(number, |task| task.usefulness_f32.as_ref())
    }

    /// Excess; empty where it is not wanted.
    pub fn excess_nats(&self, number: u64) -> &[f32] {
        self.tokens(number, |task| task.excess_nats.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_leaves_no_document_out_and_comes_where_the_tokens_are_reached() {
        let docs = |tokens: &[u32]| -> Vec<DocRow> {
            let row = |&tokens| DocRow {
                tokens,
                ..bytemuck::Zeroable::zeroed()
            };
            tokens.iter().map(row).collect()
        };
        assert!(cut(&docs(&[]), 10).is_empty());
        assert_eq!(cut(&docs(&[9]), 10).first(), Some(&(0..1)));
        assert_eq!(cut(&docs(&[10, 0]), 10), [0..1, 1..2]);
        assert_eq!(cut(&docs(&[4, 5, 1, 25, 9, 3]), 10), [0..3, 3..4, 4..6]);
    }
}
