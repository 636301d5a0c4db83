//! The unigram prior fitted on a sample of a token source, across folds.

use super::ngram_fit::Learned;
use super::parallel::{Sample, each_part, fold_of};
use super::{FitError, TokenDocument, TokenSource};
use crate::algo::unigram_prior::{CentreCounts, Centres, Moments, surprisal_steps};

/// A document is judged by the counts of the other folds.
pub(super) struct FoldedPrior {
    folds: u32,
    /// -ln p per id, by the fold that did not take part.
    steps: Vec<Vec<u32>>,
    centres: Centres,
}

impl FoldedPrior {
    /// Reads the corpus twice: counts of tokens, then where the documents lie.
    pub(super) fn fit(
        corpus: &dyn TokenSource,
        vocabulary_size: u32,
        folds: u32,
        sample: Sample,
    ) -> Result<(Self, Learned), FitError> {
        let size = vocabulary_size as usize;
        let mut counts = vec![vec![0u32; size]; folds as usize];
        let mut learned = Learned::default();
        each_part(
            corpus,
            || (vec![vec![0u32; size]; folds as usize], Learned::default()),
            |(counts, learned), document| {
                if !sample.draws(document) {
                    return;
                }
                learned.documents += 1;
                learned.tokens += document.tokens.len() as u64;
                let counts = &mut counts[fold_of(document, folds) as usize];
                for &token in document.tokens {
                    counts[token as usize] += 1;
                }
            },
            |(part, more)| {
                learned.documents += more.documents;
                learned.tokens += more.tokens;
                for (mine, theirs) in counts.iter_mut().flatten().zip(part.iter().flatten()) {
                    *mine += theirs;
                }
            },
        )?;
        let without = |fold: usize| -> Vec<u32> {
            let others = (0..counts.len()).filter(|&other| other != fold);
            let mut sum = vec![0; size];
            for other in others {
                for (sum, count) in sum.iter_mut().zip(&counts[other]) {
                    *sum += count;
                }
            }
            sum
        };
        let steps: Vec<Vec<u32>> = (0..counts.len())
            .map(|fold| surprisal_steps(&without(fold)))
            .collect();
        let mut centre_counts = CentreCounts::default();
        each_part(
            corpus,
            CentreCounts::default,
            |part, document| {
                if sample.draws(document) {
                    part.count(document.tokens, &steps[fold_of(document, folds) as usize]);
                }
            },
            |part| centre_counts.add(&part),
        )?;
        let centres = centre_counts.centres().ok_or_else(no_documents)?;
        Ok((
            FoldedPrior {
                folds,
                steps,
                centres,
            },
            learned,
        ))
    }

    fn steps(&self, document: &TokenDocument<'_>) -> &[u32] {
        &self.steps[fold_of(document, self.folds) as usize]
    }

    /// From 0 to 1, 1 for a document at the centre.
    pub(super) fn score(&self, document: &TokenDocument<'_>) -> f64 {
        self.centres
            .score(&Moments::of(document.tokens, self.steps(document)))
    }

    /// Per id and fold, how near a token is to the median token.
    pub(super) fn token_usefulness(&self) -> Vec<Vec<f32>> {
        let of_fold = |steps: &Vec<u32>| {
            steps
                .iter()
                .map(|&step| self.centres.token_usefulness(step))
                .collect()
        };
        self.steps.iter().map(of_fold).collect()
    }

    pub(super) fn centres(&self) -> &Centres {
        &self.centres
    }

    /// Hash of all that was fitted.
    pub(super) fn checksum(&self) -> u64 {
        let hash = |sum: u64, steps: &Vec<u32>| {
            xxhash_rust::xxh3::xxh3_64_with_seed(bytemuck::cast_slice(steps), sum)
        };
        self.steps.iter().fold(0, hash)
    }
}

/// No document to learn from.
pub(super) fn no_documents() -> FitError {
    FitError::Data(
        "no document to learn from: none reaches the stage, or 'fit_tokens' is too small to draw one; raise it".into(),
    )
}

/// A hash of what shapes the scores, in hexadecimal.
pub(super) fn parameter_hash(description: &serde_json::Value, seed: u64, checksum: u64) -> String {
    let bytes = [
        description.to_string().as_bytes(),
        &seed.to_le_bytes(),
        &checksum.to_le_bytes(),
    ]
    .concat();
    format!("{:032x}", crate::algo::hash::content(&bytes))
}
