//! Runs a plan: phases, workers, memory, resuming. Prints nothing and never decides what is useful.
//!
//! The phases in order: prepare (bytes to token ids, verdicts, sketches), decide (global stages one
//! after another; `score` fits and scores), arrange (order and pack, on the index alone), emit
//! (shards, rejects, evidence), then the ledger and, last of all, the manifest.
//!
//! Costs on disk while a run works, below `work/`: 4 bytes a token for the ids, 1 a token for the
//! usefulness, 96 bytes a document for the index, 8 bytes a word and 112 bytes a document for each
//! near dedupe, 32 bytes a document for fates, 24 + 24 for the layout. Anonymous memory is bounded by
//! the budget: sorts spill, and everything that grows with the corpus is a mapped file.

mod arrange;
mod corpus;
mod decide;
mod emit;
mod error;
mod finish;
mod inputs;
mod options;
mod prepare;
mod progress;
mod run;
mod scores;
mod verify;
mod work;

pub use error::EngineError;
pub use inputs::{Inputs, default_task_bytes};
pub use progress::{Progress, Silent, Unit};
pub use run::{Outcome, PhaseTime, Prepared, RunOptions, RunRecord, prepare, run};
pub use verify::{Check, CheckState, VerifyOptions, plan_of, verify};

use std::sync::atomic::{AtomicBool, Ordering};

/// A request to stop, seen by all workers between two pieces of work.
#[derive(Debug, Default)]
pub struct Stop(AtomicBool);

impl Stop {
    /// Nothing asks to stop.
    pub const fn new() -> Stop {
        Stop(AtomicBool::new(false))
    }
    /// Asks all workers to stop soon.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
    /// An error where somebody asked to stop.
    ///
    /// # Errors
    /// [`EngineError::Interrupted`].
    pub fn check(&self) -> Result<(), EngineError> {
        if self.0.load(Ordering::Relaxed) {
            Err(EngineError::Interrupted)
        } else {
            Ok(())
        }
    }
}
