//! The score phase: fits an estimator on what reaches it, then scores each task.

use super::corpus::Corpus;
use super::decide::Decisions;
use super::progress::{Progress, Unit};
use super::work::{TaskWriter, finished};
use super::{EngineError, Stop};
use crate::algo::hash;
use crate::score::{Estimator, Fit, FitError, FitInput, TokenDocument, TokenScores, TokenSource};
use crate::spill::{Column, IoContext};
use rayon::prelude::*;
use serde_json::Value;
use std::io;
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
    stop: &'d Stop,
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
        stop: &'d Stop,
    ) -> Self {
        let (_, tokens) = decisions.reaching(stage);
        TokenView {
            corpus,
            decisions: Some((decisions, stage)),
            seed,
            fold_by_id,
            tokens,
            stop,
        }
    }

    /// All documents of a reference, folds by content.
    pub fn reference(corpus: &'a Corpus, seed: u64, stop: &'d Stop) -> Self {
        let tokens = corpus.rows().map(|(_, row)| u64::from(row.tokens)).sum();
        TokenView {
            corpus,
            decisions: None,
            seed,
            fold_by_id: false,
            tokens,
            stop,
        }
    }

    fn visit(&self, part: usize, visit: &mut dyn FnMut(TokenDocument<'_>)) {
        let task = &self.corpus.tasks[part];
        let (sample, fold) = (
            hash::purpose_key(self.seed, "fit sample"),
            hash::purpose_key(self.seed, "fold"),
        );
        for (row, number) in task.docs.values().iter().zip(self.corpus.bases[part]..) {
            let reaches = match self.decisions {
                Some((decisions, stage)) => decisions.reaches(number, stage),
                None => row.tokens > 0,
            };
            if reaches {
                visit(TokenDocument {
                    number,
                    sample_key: hash::keyed_by(sample, row.id_hash),
                    fold_key: hash::keyed_by(
                        fold,
                        if self.fold_by_id {
                            row.id_hash
                        } else {
                            row.content[0]
                        },
                    ),
                    content: u128::from(row.content[0]) << 64 | u128::from(row.content[1]),
                    tokens: task.tokens_of(row),
                });
            }
        }
    }
}

impl TokenSource for TokenView<'_, '_> {
    fn parts(&self) -> usize {
        self.corpus.tasks.len()
    }
    fn tokens(&self) -> u64 {
        self.tokens
    }
    fn read(&self, part: usize, visit: &mut dyn FnMut(TokenDocument<'_>)) -> io::Result<()> {
        // A fit reads its parts several times; between two of them it can be stopped.
        self.stop.check().map_err(io::Error::other)?;
        self.visit(part, visit);
        Ok(())
    }
}

/// The byte that stands for a usefulness: value times 255, rounded half to even.
pub fn quantised(usefulness: f32) -> u8 {
    (usefulness.clamp(0.0, 1.0) * 255.0).round_ties_even() as u8
}

/// What the phase needs besides the documents.
pub struct ScorePhase<'p, 'd, 'a> {
    /// The estimator, not fitted yet.
    pub fit: &'p dyn Fit,
    /// The documents that reach the stage.
    pub view: &'p TokenView<'d, 'a>,
    /// The reference.
    pub reference: Option<&'p TokenView<'d, 'p>>,
    /// Every id is below it.
    pub vocabulary_size: u32,
    /// Anonymous memory for the fit.
    pub memory_bytes: u64,
    /// Columns to keep.
    pub wanted: Wanted,
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
        if fitted.is_none() {
            todo = (0..corpus.tasks.len()).collect();
        }
        if !todo.is_empty() {
            progress.begin("fit", self.view.tokens, Unit::Tokens);
            let work = folder.join("fit.tmp");
            if work.exists() {
                std::fs::remove_dir_all(&work)?;
            }
            std::fs::create_dir_all(&work).context("create", &work)?;
            let estimator = self.fit.fit(&FitInput {
                corpus: self.view,
                reference: self
                    .reference
                    .map(|reference| reference as &dyn TokenSource),
                vocabulary_size: self.vocabulary_size,
                seed: self.view.seed,
                work: &work,
                memory_bytes: self.memory_bytes,
            });
            stop.check()?;
            // Its files have no names that say anything; their folder does.
            let estimator = estimator.map_err(|error| match error {
                FitError::Io(error) => FitError::Io(io::Error::new(
                    error.kind(),
                    format!("cannot fit the models in {}: {error}", work.display()),
                )),
                other => other,
            })?;
            progress.end();
            phase_ended("fit");
            stop.check()?;
            let description = estimator.describe();
            TaskWriter::begin(&model, &[])?.finish(&description)?;
            fitted = Some(description);
            progress.begin("score", self.view.tokens, Unit::Tokens);
            todo.into_par_iter()
                .with_max_len(1)
                .try_for_each(|number| {
                    stop.check()?;
                    self.task(number, &place(number), estimator.as_ref())?;
                    progress.advance(corpus.tasks[number].info.tokens);
                    Ok::<(), EngineError>(())
                })?;
            progress.end();
            drop(estimator);
            std::fs::remove_dir_all(&work)?;
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

    fn task(
        &self,
        number: usize,
        place: &Path,
        estimator: &dyn Estimator,
    ) -> Result<(), EngineError> {
        let corpus = self.view.corpus;
        let task = &corpus.tasks[number];
        let mut streams = vec!["rows".to_string(), "usefulness".to_string()];
        streams.extend(
            self.wanted
                .usefulness_f32
                .then(|| "usefulness-f32".to_string()),
        );
        streams.extend(self.wanted.excess_nats.then(|| "excess-nats".to_string()));
        let mut writer = TaskWriter::begin(place, &streams)?;
        let mut rows = vec![ScoreRow::default(); task.docs.values().len()];
        let mut scores = TokenScores::default();
        let mut bytes = Vec::new();
        let zeros = vec![0u8; 1 << 16];
        // Tokens stand in the order of the documents, so a gap is a document that was not scored.
        let mut next = 0u64;
        let mut problem: Option<EngineError> = None;
        let base = corpus.bases[number];
        let fill = |writer: &mut TaskWriter, tokens: u64| -> io::Result<()> {
            let mut left = tokens as usize;
            while left > 0 {
                let some = left.min(zeros.len());
                writer.write("usefulness", &zeros[..some])?;
                for (wanted, stream) in [
                    (self.wanted.usefulness_f32, "usefulness-f32"),
                    (self.wanted.excess_nats, "excess-nats"),
                ] {
                    if wanted {
                        for _ in 0..4 {
                            writer.write(stream, &zeros[..some])?;
                        }
                    }
                }
                left -= some;
            }
            Ok(())
        };
        self.view.visit(number, &mut |document| {
            if problem.is_some() {
                return;
            }
            let at = (document.number - base) as usize;
            let start = task.docs.values()[at].tokens_start;
            let mut write = || -> Result<(), EngineError> {
                let found = estimator.score(&document, &mut scores).map_err(|error| {
                    EngineError::Failed(format!(
                        "document '{}' could not be scored: {error}",
                        corpus.id(document.number)
                    ))
                })?;
                if ![found.score, found.excess_nats, found.difficulty]
                    .iter()
                    .all(|value| value.is_finite())
                {
                    return Err(EngineError::Failed(format!(
                        "document '{}' has a score that is not finite: {found:?}",
                        corpus.id(document.number)
                    )));
                }
                rows[at] = ScoreRow {
                    score: found.score as f32,
                    excess_nats: found.excess_nats as f32,
                    difficulty: found.difficulty as f32,
                    scored: 1,
                };
                fill(&mut writer, start - next)?;
                bytes.clear();
                bytes.extend(
                    scores
                        .usefulness
                        .iter()
                        .map(|&usefulness| quantised(usefulness)),
                );
                writer.write("usefulness", &bytes)?;
                if self.wanted.usefulness_f32 {
                    writer.write("usefulness-f32", bytemuck::cast_slice(&scores.usefulness))?;
                }
                if self.wanted.excess_nats {
                    writer.write("excess-nats", bytemuck::cast_slice(&scores.excess_nats))?;
                }
                next = start + document.tokens.len() as u64;
                Ok(())
            };
            if let Err(error) = write() {
                problem = Some(error);
            }
        });
        if let Some(error) = problem {
            return Err(error);
        }
        fill(&mut writer, task.info.tokens - next)?;
        writer.write("rows", bytemuck::cast_slice(&rows))?;
        writer.finish(&())?;
        Ok(())
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

    /// Usefulness as computed; empty where it is not wanted.
    pub fn usefulness_f32(&self, number: u64) -> &[f32] {
        self.tokens(number, |task| task.usefulness_f32.as_ref())
    }

    /// Excess; empty where it is not wanted.
    pub fn excess_nats(&self, number: u64) -> &[f32] {
        self.tokens(number, |task| task.excess_nats.as_ref())
    }
}
