//! What a run takes of anonymous memory, known before data are read, and how `--memory` is divided.
//!
//! Whatever grows with the corpus lies in mapped files, which the system may drop. The rest is counted here, as
//! what the largest phase holds at a time:
//!
//! - *fixed*: the program, the tokenizer, what the stages hold, measured where all of it is loaded, and the tables by
//!   file;
//! - *workers*: for each a chunk of text with its tokens and sketches, or a row group that is encoded, and its buffers;
//! - then, one after another, each in what these leave: *long documents* in prepare, score and emit, where one that is
//!   longer than a chunk waits until what it takes is free; *models* while they are fitted and score; *sorts*, which
//!   spill beyond their share.
//!
//! So the least memory of a run is the fixed part, the workers, and the largest of the last three; what is given beyond
//! it makes sorts and fits faster. No result depends on any of it.

use super::inputs::Inputs;
use super::run::Prepared;
use super::{EngineError, Stop};
use crate::plan::{Plan, Rejects, StagePlan, StageRef};
use crate::score;
use crate::source::{self, CHUNK_BYTES};
use std::sync::{Condvar, Mutex};

/// Anonymous memory of the program and a tokenizer where the system does not tell.
const PROGRAM_BYTES: u64 = 120 << 20;
/// Buffers of a worker, whatever it reads: the streams of a task, a reader.
const WORKER_BUFFER_BYTES: u64 = 4 << 20;
/// A worker with large inputs, beside its buffers. Measured: 45 MiB in prepare and 60 while row groups are encoded, where
/// all documents differ and make a token of each byte.
const WORKER_AT_WORK_BYTES: u64 = 56 << 20;
/// The same for a byte of text, where there is less text than that.
const WORKER_BYTES_A_BYTE: u64 = 40;
/// A worker with any inputs, beside its buffers. Measured: 10 to 30 MiB with documents of a word or less.
const LEAST_WORKER_AT_WORK_BYTES: u64 = 32 << 20;
/// Of a file: its path and name in several tables, checksum, records.
const FILE_BYTES: u64 = 8 << 10;
/// Of a task: its maps and sums.
const TASK_BYTES: u64 = 8 << 10;
/// Least that all sorts together hold, beyond which they spill: a 64th of the text, in these bounds. A larger part
/// makes them no faster.
const LEAST_SORT_BYTES: std::ops::RangeInclusive<u64> = 16 << 10..=16 << 20;
/// Parts of models and documents below this are not worth a word.
const LITTLE_BYTES: u64 = 1 << 20;
/// Sorts that are alive at a time, at most: their buffers share what is left.
const SORTS_AT_ONCE: u64 = 4;
/// Of a byte of a document's text in prepare: the record and its text, twice where they grow, its tokens (up to one
/// a byte), the tokenizer's own, shingles of words. Measured: 20 for bytes as tokens, 14 for a vocabulary of 50,000; more for what an allocator keeps.
const PREPARE_BYTES_A_BYTE: u64 = 36;
/// More with shingles of characters or tokens, of which there is one at each place: 8 bytes, in two places, and grown.
const SHINGLE_BYTES_A_BYTE: u64 = 24;
/// More with a dedupe by paragraph or line: 32 bytes a unit, which may be of two bytes, and grown.
const UNIT_BYTES_A_BYTE: u64 = 32;
/// More with the engine of the reference release, which keeps offsets and more for each token.
const SLOW_ENGINE_BYTES_A_BYTE: u64 = 120;
/// Of a token in a row that is written whole: the batch, levels and places of the encoder, pages, and what an allocator keeps. Measured: 31 to 48.
const ROW_BYTES_A_TOKEN: u64 = 56;
/// Of a token of a document that is scored.
const SCORE_BYTES_A_TOKEN: u64 = 24;
/// How much a compressed file holds at most for a byte of it, where it does not say.
const MOST_COMPRESSION: u64 = 16;
/// The estimate is as good as this share, one over it: so much more may be missing before a run is refused.
const TOLERANCE: u64 = 7;

/// Anonymous memory of this process now, in bytes, where the system tells; `VmHWM` would count mapped files too.
pub fn anonymous_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("RssAnon:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
}

/// Bytes of text that a file holds, about: compressed text is about a quarter of what it holds, measured on web text,
/// prose and code.
fn text_of_file(name: &str, bytes: u64) -> u64 {
    bytes.saturating_mul(if is_packed(name) { 4 } else { 1 })
}

fn is_packed(name: &str) -> bool {
    let ends = [".zst", ".zstd", ".gz", ".gzip", ".parquet", ".arrow"];
    ends.iter().any(|end| name.ends_with(end))
}

/// Bytes of text in all files, about.
pub fn text_bytes(inputs: &Inputs) -> u64 {
    let files = inputs.files.iter();
    files
        .map(|file| text_of_file(&file.found.name, file.found.bytes))
        .fold(0, u64::saturating_add)
}

/// The longest document that the inputs can hold: no file holds one that is longer than itself.
fn longest_document_bytes(inputs: &Inputs) -> u64 {
    let files = inputs.files.iter().map(|file| {
        let most = if is_packed(&file.found.name) {
            MOST_COMPRESSION
        } else {
            1
        };
        let bound = inputs.inputs[usize::from(file.input)]
            .spec
            .max_document_bytes;
        file.found.bytes.saturating_mul(most).min(bound)
    });
    files.max().unwrap_or(0)
}

/// What a decoder of the inputs keeps of the text, at most: `zstd --ultra` and `--long` make windows up to 2 GiB.
fn largest_window_bytes(inputs: &Inputs, stop: &Stop) -> u64 {
    let windows = inputs.files.iter().map(|file| {
        let _item = stop.at(format!("reading {}", file.found.path.display()));
        let most = file.found.bytes.saturating_mul(MOST_COMPRESSION);
        source::window_bytes(&file.found.path).min(most)
    });
    windows.max().unwrap_or(0)
}

/// Anonymous memory that a run cannot do without, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryNeed {
    /// The program, the tokenizer and what the stages hold, measured where all of it is loaded, and tables by file.
    pub fixed_bytes: u64,
    /// Workers.
    pub threads: u64,
    /// One worker: a chunk, its tokens and sketches, buffers, and what the estimator asks for.
    pub worker_bytes: u64,
    /// The longest document that the inputs can hold.
    pub longest_document_bytes: u64,
    /// What it takes at most, beyond what a worker has.
    pub document_bytes: u64,
    /// Models that are fitted, while they are made and score.
    pub model_bytes: u64,
    /// All sorts that live at a time.
    pub sort_bytes: u64,
}

impl MemoryNeed {
    /// Of a plan whose files and models are loaded, for `threads` workers and tasks of `task_bytes`.
    pub fn of(
        plan: &Plan,
        prepared: &Prepared,
        threads: usize,
        task_bytes: u64,
        stop: &Stop,
    ) -> MemoryNeed {
        let threads = threads.max(1) as u64;
        let text = text_bytes(&prepared.inputs);
        let named = prepared.named_text_bytes;
        let at_work = (text.max(named) / threads)
            .saturating_mul(WORKER_BYTES_A_BYTE)
            .clamp(LEAST_WORKER_AT_WORK_BYTES, WORKER_AT_WORK_BYTES);
        let files = prepared.inputs.files.len() as u64;
        let tasks = prepared.inputs.bytes() / task_bytes.max(1) + 1;
        let longest = longest_document_bytes(&prepared.inputs);
        let beyond_chunk = longest.saturating_sub(CHUNK_BYTES as u64);
        // Each other reader may hold one too, and grows into it; only one is worked on at a time.
        let waiting = beyond_chunk.saturating_mul(2 * (threads - 1));
        let document_bytes = beyond_chunk
            .saturating_mul(DocumentFactors::of(plan, prepared).largest())
            .saturating_add(waiting);
        let tokens = text.saturating_add(named) / 4;
        let models = plan.stages.iter().filter_map(|stage| match stage.kind {
            StageRef::Score { estimator } => {
                let fit = (score::TABLE[estimator].build)(&stage.options).ok()?;
                Some(fit.model_bytes(tokens))
            }
            _ => None,
        });
        MemoryNeed {
            fixed_bytes: anonymous_bytes().unwrap_or(PROGRAM_BYTES)
                + files * FILE_BYTES
                + tasks * TASK_BYTES,
            threads,
            worker_bytes: WORKER_BUFFER_BYTES
                + at_work
                + largest_window_bytes(&prepared.inputs, stop)
                + prepared.needs.worker_bytes,
            longest_document_bytes: longest,
            document_bytes,
            model_bytes: models.max().unwrap_or(0),
            sort_bytes: (text / 64).clamp(*LEAST_SORT_BYTES.start(), *LEAST_SORT_BYTES.end()),
        }
    }

    /// All workers, and what is loaded.
    fn base(&self) -> u64 {
        let workers = self.threads.saturating_mul(self.worker_bytes);
        self.fixed_bytes.saturating_add(workers)
    }

    /// The least budget that it fits in.
    pub fn least_bytes(&self) -> u64 {
        let then = self.document_bytes.max(self.model_bytes);
        self.base().saturating_add(then.max(self.sort_bytes))
    }

    /// Refuses a budget that is too small, before anything is done.
    ///
    /// # Errors
    /// With what to change, where more than 15 % are missing: an estimate is not better than that.
    pub fn fits(&self, memory_bytes: u64) -> Result<(), EngineError> {
        let least = self.least_bytes();
        if least <= memory_bytes.saturating_add(memory_bytes / TOLERANCE) {
            return Ok(());
        }
        let mut ways = vec![format!("raise --memory to {}MiB or more", mebibytes(least))];
        if self.threads > 1 {
            ways.push("lower --threads".to_string());
        }
        if self.document_bytes >= self.model_bytes && self.document_bytes > LITTLE_BYTES {
            let left = memory_bytes.saturating_sub(self.base());
            let bytes_a_byte = self
                .document_bytes
                .div_ceil(self.longest_document_bytes.max(1));
            let fits = left / bytes_a_byte.max(1) + CHUNK_BYTES as u64;
            ways.push(format!(
                "lower 'max_document_bytes' of the inputs to {}MiB",
                (fits >> 20).max(1)
            ));
        } else if self.model_bytes > LITTLE_BYTES {
            ways.push(
                "make smaller models, as with 'model_ngrams' or 'fit_tokens' of 'score'"
                    .to_string(),
            );
        }
        Err(EngineError::Request(format!(
            "--memory is the budget of the whole process, and {} MiB do not hold this run: {}; {}",
            memory_bytes >> 20,
            self.parts(),
            ways.join(", or ")
        )))
    }

    /// What it is made of, in words.
    pub fn parts(&self) -> String {
        let mut parts = vec![
            format!(
                "{} MiB for the program and what it has loaded",
                mebibytes(self.fixed_bytes)
            ),
            format!(
                "{} MiB for {} worker{}",
                mebibytes(self.threads.saturating_mul(self.worker_bytes)),
                self.threads,
                if self.threads == 1 { "" } else { "s" }
            ),
        ];
        if self.model_bytes > 0 {
            parts.push(format!(
                "{} MiB for making models",
                mebibytes(self.model_bytes)
            ));
        }
        if self.document_bytes > 0 {
            parts.push(format!(
                "{} MiB for a document of {} MiB, the longest that may come",
                mebibytes(self.document_bytes),
                mebibytes(self.longest_document_bytes)
            ));
        }
        if self.model_bytes > 0 && self.document_bytes > 0 {
            parts.push("the larger of these two counts".to_string());
        }
        parts.join(", ")
    }

    /// Divides a budget.
    pub fn divide(&self, memory_bytes: u64) -> Shares {
        let left = memory_bytes.saturating_sub(self.base());
        Shares {
            sort_bytes: left.max(self.sort_bytes) / SORTS_AT_ONCE,
            fit_bytes: left.max(self.model_bytes).max(LITTLE_BYTES),
            document_bytes: left,
        }
    }
}

/// What the parts of a run may take at a time, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// One sort or queue.
    pub sort_bytes: u64,
    /// A fit, with the models that it makes.
    pub fit_bytes: u64,
    /// All long documents that are worked on.
    pub document_bytes: u64,
}

fn mebibytes(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

/// What phases take for each byte of a document; a token is a byte at least.
#[derive(Clone, Copy, Debug)]
pub struct DocumentFactors {
    /// In prepare.
    pub prepare: u64,
    /// Where it is scored.
    pub score: u64,
    /// Where it is written whole, in a row of a shard or of the rejects.
    pub emit: u64,
}

/// Whether a near dedupe has a shingle at each place of a text, or each of its tokens, rather than at each word.
fn shingles_at_each_place(stage: &StagePlan) -> bool {
    ["shingle_characters", "shingle_tokens"]
        .iter()
        .any(|name| stage.options.integer_if_given(name).is_some())
}

impl DocumentFactors {
    /// Of a plan.
    pub fn of(plan: &Plan, prepared: &Prepared) -> DocumentFactors {
        let mut prepare = PREPARE_BYTES_A_BYTE;
        let (mut scored, mut units, mut dense) = (false, false, false);
        for stage in &plan.stages {
            match stage.kind {
                StageRef::UnitDedupe(_) => units = true,
                StageRef::Score { .. } => scored = true,
                StageRef::NearDedupe => dense |= shingles_at_each_place(stage),
                _ => {}
            }
        }
        for (holds, more) in [
            (units, UNIT_BYTES_A_BYTE),
            (dense, SHINGLE_BYTES_A_BYTE),
            (
                prepared.tokenizer.slow_because().is_some(),
                SLOW_ENGINE_BYTES_A_BYTE,
            ),
        ] {
            prepare += if holds { more } else { 0 };
        }
        let whole_rows =
            crate::pack::build(&plan.pack).map_or(true, |packer| packer.row_positions().is_none());
        let whole = whole_rows || plan.output.rejects != Rejects::None;
        DocumentFactors {
            prepare,
            score: if scored { SCORE_BYTES_A_TOKEN } else { 0 },
            emit: if whole { ROW_BYTES_A_TOKEN } else { 0 },
        }
    }

    fn largest(&self) -> u64 {
        self.prepare.max(self.score).max(self.emit)
    }
}

/// Bounds what documents that are longer than a chunk take at a time: who comes with one waits until it fits beside
/// those that are worked on, or until there is none. Nobody may wait here for another worker while it holds a place.
#[derive(Debug)]
pub struct LongDocuments {
    factors: DocumentFactors,
    may_bytes: u64,
    taken: Mutex<u64>,
    freed: Condvar,
}

/// A place among the long documents that are worked on, as long as it lives.
#[must_use]
pub struct Place<'a> {
    of: &'a LongDocuments,
    bytes: u64,
}

impl LongDocuments {
    /// Up to `may_bytes` at a time, or one document.
    pub const fn new(factors: DocumentFactors, may_bytes: u64) -> LongDocuments {
        LongDocuments {
            factors,
            may_bytes,
            taken: Mutex::new(0),
            freed: Condvar::new(),
        }
    }

    /// No bound.
    #[cfg(test)]
    pub const fn unbounded() -> LongDocuments {
        let factors = DocumentFactors {
            prepare: 0,
            score: 0,
            emit: 0,
        };
        LongDocuments::new(factors, u64::MAX)
    }

    /// Waits until a chunk of so many bytes may be prepared; one of the usual size may at once.
    pub fn enter_prepare(&self, chunk_bytes: usize) -> Option<Place<'_>> {
        let bytes = chunk_bytes as u64;
        (chunk_bytes > CHUNK_BYTES).then(|| self.enter(bytes.saturating_mul(self.factors.prepare)))
    }

    /// Waits until documents of so many tokens may be scored; those of a block of `usual` ones may at once.
    pub fn enter_score(&self, tokens: u64, usual: u64) -> Option<Place<'_>> {
        (tokens > 2 * usual).then(|| self.enter(tokens.saturating_mul(self.factors.score)))
    }

    /// Waits until work that takes `bytes` fits.
    fn enter(&self, bytes: u64) -> Place<'_> {
        let mut taken = self.taken.lock().expect("no holder of the lock panics");
        while *taken > 0 && taken.saturating_add(bytes) > self.may_bytes {
            taken = self
                .freed
                .wait(taken)
                .expect("no holder of the lock panics");
        }
        *taken = taken.saturating_add(bytes);
        Place { of: self, bytes }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Ok(mut taken) = self.of.taken.lock() {
            *taken = taken.saturating_sub(self.bytes);
        }
        self.of.freed.notify_all();
    }
}

/// Cuts pieces of work into rounds of at most `pieces` that are done at a time, together at most `bound` large; a piece
/// that is larger makes a round alone.
pub fn rounds<P>(
    all: &[P],
    pieces: usize,
    bound: u64,
    size: impl Fn(&P) -> u64,
) -> impl Iterator<Item = &[P]> {
    let mut rest = all;
    std::iter::from_fn(move || {
        let mut sum = 0u64;
        let fits = rest
            .iter()
            .take(pieces.max(1))
            .take_while(|piece| {
                sum = sum.saturating_add(size(piece));
                sum <= bound
            })
            .count();
        let (round, after) = rest.split_at(fits.max(1).min(rest.len()));
        rest = after;
        (!round.is_empty()).then_some(round)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    const MIB: u64 = 1 << 20;
    const NEED: MemoryNeed = MemoryNeed {
        fixed_bytes: 100 * MIB,
        threads: 2,
        worker_bytes: 40 * MIB,
        longest_document_bytes: 2 * MIB,
        document_bytes: 40 * MIB,
        model_bytes: 60 * MIB,
        sort_bytes: MIB,
    };

    #[test]
    fn a_budget_is_refused_where_more_than_the_tolerance_is_missing() {
        assert_eq!(NEED.least_bytes(), 240 * MIB);
        NEED.fits(240 * MIB).expect("what it needs");
        NEED.fits(210 * MIB).expect("within the tolerance");
        let error = NEED.fits(209 * MIB).expect_err("too little").to_string();
        for words in [
            "209 MiB do not hold",
            "'model_ngrams'",
            "lower --threads",
            "raise --memory to 240MiB",
        ] {
            assert!(error.contains(words), "{words}: {error}");
        }
        assert!(!error.contains("lower 'max_document_bytes'"), "{error}");
    }

    #[test]
    fn who_is_refused_for_long_documents_is_told_how_long_they_may_be() {
        let need = MemoryNeed {
            longest_document_bytes: 64 * MIB,
            document_bytes: 64 * 40 * MIB,
            ..NEED
        };
        let error = need.fits(580 * MIB).expect_err("too little").to_string();
        // 400 MiB are left, and a byte takes 40.
        assert!(
            error.contains("lower 'max_document_bytes' of the inputs to 11MiB"),
            "{error}"
        );
        assert!(!error.contains("'model_ngrams'"), "{error}");
    }

    #[test]
    fn what_is_left_is_never_below_nothing() {
        let shares = NEED.divide(110 * MIB);
        assert_eq!(shares.sort_bytes, MIB / SORTS_AT_ONCE);
        assert_eq!((shares.fit_bytes, shares.document_bytes), (60 * MIB, 0));
        let shares = NEED.divide(260 * MIB);
        assert_eq!(shares.sort_bytes, 20 * MIB);
        assert_eq!(
            (shares.fit_bytes, shares.document_bytes),
            (80 * MIB, 80 * MIB)
        );
    }

    #[test]
    fn rounds_are_bounded_and_hold_everything_in_order() {
        let sizes = [1u64, 2, 3, 9, 1, 1, 1, 1];
        let of = |pieces, bound| -> Vec<Vec<u64>> {
            let found = rounds(&sizes, pieces, bound, |&size| size);
            found.map(<[u64]>::to_vec).collect()
        };
        assert_eq!(of(3, 6), [vec![1, 2, 3], vec![9], vec![1, 1, 1], vec![1]]);
        assert_eq!(of(1, 0).len(), sizes.len());
        assert_eq!(of(100, 100), [sizes.to_vec()]);
        assert_eq!(rounds(&[0u64; 0], 3, 6, |&size| size).count(), 0);
    }

    #[test]
    fn long_documents_wait_for_each_other_and_one_always_enters() {
        let factors = DocumentFactors {
            prepare: 2,
            score: 3,
            emit: 4,
        };
        let long = LongDocuments::new(factors, 10);
        assert!(long.enter_prepare(CHUNK_BYTES).is_none());
        assert!(long.enter_score(200, 100).is_none());
        let (now, most) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for bytes in [6u64, 4, 6, 100, 4, 6] {
                let (long, now, most) = (&long, &now, &most);
                scope.spawn(move || {
                    let _place = long.enter(bytes);
                    let all = now.fetch_add(bytes, Ordering::SeqCst) + bytes;
                    // The one that is too long is alone.
                    most.fetch_max(if all > 100 { u64::MAX } else { all }, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(5));
                    now.fetch_sub(bytes, Ordering::SeqCst);
                });
            }
        });
        assert_eq!(most.into_inner(), 100);
        let place = long.enter_score(201, 100).expect("a long one");
        assert_eq!(place.bytes, 603);
        drop(place);
        assert_eq!(*long.taken.lock().expect("whole"), 0);
    }
}
