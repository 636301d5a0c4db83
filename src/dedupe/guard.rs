//! Notices when duplicates take away more than copies would: a template that passes for a document,
//! a source that is wiped out.
//!
//! A *cluster* is a kept document with all that goes because of it. Small ones never trip the guard:
//! of 30 releases of one page it is right that 29 go.

use std::io;

/// Documents and their tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Documents.
    pub documents: u64,
    /// Tokens of their texts.
    pub tokens: u64,
}

impl Amount {
    /// Adds one document.
    pub fn add(&mut self, tokens: u32) {
        self.documents += 1;
        self.tokens += u64::from(tokens);
    }
}

/// The bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guard {
    /// Share of a source's documents and of its tokens that may go.
    pub max_source_loss: f64,
    /// Share of all documents and of all tokens that may go because of one kept document.
    pub max_cluster_loss: f64,
    /// Documents that a source must have, or a cluster must lose, for the guard to look at it.
    pub min_documents: u64,
}

impl Guard {
    /// Whether a source loses too much: `lost` of the `whole` of it that reaches the stage.
    pub fn source_loses_too_much(&self, lost: Amount, whole: Amount) -> bool {
        whole.documents >= self.min_documents && exceeds(lost, whole, self.max_source_loss)
    }

    /// Whether a cluster takes too much: `lost` because of one document, of the `whole` that reaches
    /// the stage.
    pub fn cluster_takes_too_much(&self, lost: Amount, whole: Amount) -> bool {
        lost.documents >= self.min_documents && exceeds(lost, whole, self.max_cluster_loss)
    }
}

/// Exactly at the share is no excess.
fn exceeds(lost: Amount, whole: Amount, share: f64) -> bool {
    lost.documents as f64 > share * whole.documents as f64
        || lost.tokens as f64 > share * whole.tokens as f64
}

/// One document that goes: 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Loss {
    /// The document because of which it goes.
    pub kept: u64,
    /// Itself.
    pub number: u64,
    /// Exact similarity of the two.
    pub similarity: f64,
    /// Its source, by number.
    pub source: u32,
    /// Tokens of its text.
    pub tokens: u32,
}

/// What one source loses because of one kept document.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The kept document.
    pub kept: u64,
    /// The source, by number.
    pub source: u32,
    /// What goes.
    pub lost: Amount,
    /// The first documents that go, each with its similarity.
    pub examples: Vec<(u64, f64)>,
}

/// Documents that a part names.
const EXAMPLES: usize = 3;

/// Calls `visit` with the parts of each cluster, by source. `losses` are sorted by (kept, source, number).
///
/// # Errors
/// When they cannot be read.
pub fn each_cluster(
    losses: impl Iterator<Item = io::Result<Loss>>,
    mut visit: impl FnMut(&[Part]),
) -> io::Result<()> {
    let mut parts: Vec<Part> = Vec::new();
    for loss in losses {
        let loss = loss?;
        if parts.first().is_some_and(|part| part.kept != loss.kept) {
            visit(&parts);
            parts.clear();
        }
        if parts.last().is_none_or(|part| part.source != loss.source) {
            parts.push(Part {
                kept: loss.kept,
                source: loss.source,
                lost: Amount::default(),
                examples: Vec::new(),
            });
        }
        let part = parts.last_mut().expect("pushed above");
        part.lost.add(loss.tokens);
        if part.examples.len() < EXAMPLES {
            part.examples.push((loss.number, loss.similarity));
        }
    }
    if !parts.is_empty() {
        visit(&parts);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUARD: Guard = Guard {
        max_source_loss: 0.9,
        max_cluster_loss: 0.1,
        min_documents: 10,
    };

    fn amount(documents: u64, tokens: u64) -> Amount {
        Amount { documents, tokens }
    }

    #[test]
    fn a_source_at_the_share_or_below_the_size_is_left_alone() {
        let whole = amount(10, 1_000);
        assert!(!GUARD.source_loses_too_much(amount(9, 900), whole));
        assert!(GUARD.source_loses_too_much(amount(9, 901), whole));
        assert!(GUARD.source_loses_too_much(amount(10, 500), whole));
        assert!(!GUARD.source_loses_too_much(amount(9, 999), amount(9, 1_000)));
    }

    #[test]
    fn a_cluster_is_measured_by_what_it_takes_of_all() {
        let whole = amount(1_000, 100_000);
        assert!(!GUARD.cluster_takes_too_much(amount(100, 10_000), whole));
        assert!(GUARD.cluster_takes_too_much(amount(101, 10), whole));
        assert!(GUARD.cluster_takes_too_much(amount(10, 10_001), whole));
        assert!(!GUARD.cluster_takes_too_much(amount(9, 90_000), whole));
    }

    #[test]
    fn clusters_come_with_their_parts_by_source() -> io::Result<()> {
        let loss = |kept, source, number| {
            Ok(Loss {
                kept,
                number,
                similarity: 0.9,
                source,
                tokens: 5,
            })
        };
        let losses = [loss(3, 0, 7), loss(3, 0, 8), loss(3, 1, 4), loss(9, 1, 10)];
        let mut seen = Vec::new();
        each_cluster(losses.into_iter(), |parts| seen.push(parts.to_vec()))?;
        let part = |kept, source, numbers: &[u64]| Part {
            kept,
            source,
            lost: amount(numbers.len() as u64, 5 * numbers.len() as u64),
            examples: numbers.iter().map(|&number| (number, 0.9)).collect(),
        };
        assert_eq!(
            seen,
            [
                vec![part(3, 0, &[7, 8]), part(3, 1, &[4])],
                vec![part(9, 1, &[10])]
            ]
        );
        each_cluster(std::iter::empty(), |_| panic!("there is no cluster"))
    }
}
