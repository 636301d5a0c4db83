//! Compute in parallel, apply in order.

use super::{DocumentScores, FitError, TokenDocument, TokenScores, TokenSource};
use rayon::prelude::*;

/// Computes things `0..n`, at most `width` at a time, and applies each in order, so that the
/// result is that of a plain loop.
pub(super) fn in_order<T: Send>(
    n: usize,
    width: usize,
    compute: impl Fn(usize) -> Result<T, FitError> + Sync,
    mut apply: impl FnMut(usize, T) -> Result<(), FitError>,
) -> Result<(), FitError> {
    for start in (0..n).step_by(width.max(1)) {
        let end = (start + width.max(1)).min(n);
        let results: Vec<Result<T, FitError>> =
            (start..end).into_par_iter().map(&compute).collect();
        for (place, result) in (start..end).zip(results) {
            apply(place, result?)?;
        }
    }
    Ok(())
}

/// Reads each part of a source into a value of its own and applies the values in order.
pub(super) fn each_part<T: Send>(
    source: &dyn TokenSource,
    new: impl Fn() -> T + Sync,
    visit: impl Fn(&mut T, &TokenDocument<'_>) + Sync,
    mut apply: impl FnMut(T),
) -> Result<(), FitError> {
    let read = |part| {
        let mut value = new();
        source.read(part, &mut |document| visit(&mut value, &document))?;
        Ok(value)
    };
    let width = rayon::current_num_threads() * 2;
    in_order(source.parts(), width, read, |_, value| {
        apply(value);
        Ok(())
    })
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
