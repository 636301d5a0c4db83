//! Work that the workers share, whose results don't depend on who does what.

use super::{DocumentScores, FitError, TokenDocument, TokenScores, TokenSource};
use rayon::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Does `work` for each number below `n`, on at most `width` workers at a time. Each worker takes
/// the next number when it is free and gathers in a value of its own. Returns these values: what
/// is made of them must not depend on how the numbers were shared out.
pub(super) fn share<T: Send>(
    n: usize,
    width: usize,
    new: impl Fn() -> T + Sync,
    work: impl Fn(&mut T, usize) -> Result<(), FitError> + Sync,
) -> Result<Vec<T>, FitError> {
    let next = AtomicUsize::new(0);
    let worker = |_| {
        let mut value = new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= n {
                return Ok(value);
            }
            if let Err(error) = work(&mut value, number) {
                next.store(n, Ordering::Relaxed);
                return Err(error);
            }
        }
    };
    (0..width.clamp(1, rayon::current_num_threads()))
        .into_par_iter()
        .with_max_len(1)
        .map(worker)
        .collect()
}

/// Reads the parts of a source. Each worker gathers in a value of its own, and `apply` gets these
/// values: what it makes of them must not depend on how the documents were shared out.
pub(super) fn each_part<T: Send>(
    source: &dyn TokenSource,
    new: impl Fn() -> T + Sync,
    visit: impl Fn(&mut T, &TokenDocument<'_>) + Sync,
    apply: impl FnMut(T),
) -> Result<(), FitError> {
    let read = |value: &mut T, part| {
        source.read(part, &mut |document| visit(value, &document))?;
        Ok(())
    };
    share(source.parts(), usize::MAX, new, read)?
        .into_iter()
        .for_each(apply);
    Ok(())
}

/// Which documents are learned from: those whose sample key is below a bound, so that about
/// `tokens_wanted` of the `tokens` are drawn; all of them where there are not more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    below: Option<u64>,
}

impl Sample {
    pub(super) fn new(tokens_wanted: u64, tokens: u64) -> Self {
        if tokens <= tokens_wanted {
            return Sample { below: None };
        }
        let bound = (u128::from(tokens_wanted) << 64) / u128::from(tokens);
        Sample {
            below: Some(bound as u64),
        }
    }
    /// About this share of the documents, from 0 to 1.
    pub(super) fn share(share: f64) -> Self {
        // 2^64 times the share; a product that reaches it stands for all.
        let bound = share * 18_446_744_073_709_551_616.0;
        Sample {
            below: (share < 1.0).then_some(bound as u64),
        }
    }
    #[inline]
    pub(super) fn draws(&self, document: &TokenDocument<'_>) -> bool {
        self.below.is_none_or(|bound| document.sample_key < bound)
    }
}

/// The fold of a document, from 0 to `folds - 1`.
#[inline]
pub(super) fn fold_of(document: &TokenDocument<'_>, folds: u32) -> u32 {
    ((u128::from(document.fold_key) * u128::from(folds)) >> 64) as u32
}

/// Gives every token its document's score, from 0 to 1.
pub(super) fn broadcast(
    score: f64,
    document: &TokenDocument<'_>,
    out: &mut TokenScores,
) -> DocumentScores {
    out.usefulness.clear();
    out.usefulness.resize(document.tokens.len(), score as f32);
    out.excess_nats.clear();
    DocumentScores {
        score,
        excess_nats: 0.0,
        difficulty: 0.0,
    }
}

/// Refuses a document that no model can score: without tokens, or with an unknown id.
pub(super) fn check(document: &TokenDocument<'_>, vocabulary_size: u32) -> Result<(), String> {
    match document.tokens.iter().max() {
        None => Err("the document has no tokens".to_string()),
        Some(&highest) if highest >= vocabulary_size => Err(format!(
            "token id {highest} is not below the vocabulary's size {vocabulary_size}"
        )),
        Some(_) => Ok(()),
    }
}
