//! What the log of a run says of it at its beginning and its end.

use super::inputs::Inputs;
use super::run::RunOptions;
use crate::plan::Plan;
use crate::shard::Manifest;
use crate::tokenizer::Tokenizer;
use tracing::{debug, info};

/// What is going to be done, and of what.
pub fn begins(plan: &Plan, request: &RunOptions, inputs: &Inputs, tokenizer: &Tokenizer) {
    info!(
        "goodput {}: pipeline '{}' ({}), seed {}, {} threads, {} bytes of memory",
        env!("CARGO_PKG_VERSION"),
        plan.name,
        plan.hash,
        plan.seed,
        rayon::current_num_threads(),
        request.memory_bytes
    );
    for set in &request.set {
        info!("set {set}");
    }
    if let Some(share) = request.sample_share {
        info!("only a sample of {share} of the documents is read");
    }
    info!(
        "tokenizer '{}' ({}), engine {}",
        tokenizer.name(),
        tokenizer.fingerprint(),
        tokenizer.engine()
    );
    for (number, input) in inputs.inputs.iter().enumerate() {
        let files = || {
            inputs
                .files
                .iter()
                .filter(|file| usize::from(file.input) == number)
        };
        let bytes: u64 = files().map(|file| file.found.bytes).sum();
        info!(
            "source '{}': {} files, {bytes} bytes",
            input.source,
            files().count()
        );
        for file in files() {
            debug!("input {}, {} bytes", file.found.name, file.found.bytes);
        }
    }
}

/// Tasks of a phase that an earlier run has done.
pub fn found(phase: &str, found: usize, all: usize) {
    if found > 0 {
        info!("{phase}: {found} of {all} tasks were done by an earlier run");
    }
}

/// What was written.
pub fn ends(manifest: &Manifest) {
    for file in &manifest.files {
        debug!(
            "wrote {}, {} bytes, {}",
            file.path, file.bytes, file.checksum
        );
    }
    let bytes: u64 = manifest.files.iter().map(|file| file.bytes).sum();
    info!(
        "done: {} files, {bytes} bytes; dataset {}",
        manifest.files.len(),
        manifest.checksum
    );
}
