//! Several passes from small to large, each over its own part of the documents.

use super::ranked::{BY, DIRECTION, Keyed, SortBy, items_of, own_share, stable_order};
use super::{Items, OrderInput, Strategy, StrategyKind};
use crate::record::{Kind, OptionSpec, Spec};
use std::io;

pub(super) static KIND: StrategyKind = StrategyKind {
    spec: Spec {
        name: "folding",
        summary: "Goes through the sorted documents several times, with every n-th document each time",
        details: "Fold l holds the ranks r with r mod folds = l, in their order; the folds stand one after another. \
                  10 documents in 3 folds: 0 3 6 9, 1 4 7, 2 5 8. One fold is `sorted`.",
        options: &[
            BY,
            DIRECTION,
            OptionSpec {
                name: "folds",
                kind: Kind::Integer {
                    min: 1,
                    max: u32::MAX as u64,
                },
                default: Some("3"),
                doc: "How many passes",
            },
        ],
        example: "{ by: score, folds: 3 }",
    },
    build: |options| {
        Ok(Box::new(Folding {
            by: SortBy::from_options(options),
            folds: options.integer("folds"),
        }))
    },
};

struct Folding {
    by: SortBy,
    folds: u64,
}

impl Strategy for Folding {
    fn arrange<'a>(&'a self, input: OrderInput<'a>) -> io::Result<Items<'a>> {
        let spill = own_share(input.spill, 2);
        let by_rank = self.by.sort(input.items, input.keys, &spill)?;
        let documents = by_rank.len();
        let placed = by_rank.zip(0u64..).map(|(keyed, rank)| {
            keyed.map(|keyed| Keyed {
                key: self.position(rank, documents),
                item: keyed.item,
            })
        });
        Ok(items_of(spill.sort("order-folds", placed, stable_order)?))
    }

    fn keys(&self) -> Vec<String> {
        vec![self.by.key.clone()]
    }

    fn lr_hint(&self) -> &'static str {
        self.by.lr_hint()
    }
}

impl Folding {
    /// Where rank `rank` of `documents` stands: past the folds before its own, of which the first
    /// `documents` mod `folds` hold one document more than the others.
    fn position(&self, rank: u64, documents: u64) -> u64 {
        let fold = rank % self.folds;
        fold * (documents / self.folds) + fold.min(documents % self.folds) + rank / self.folds
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;

    #[test]
    fn ten_documents_in_three_folds() {
        let order = Corpus::ranked(10).arranged(&choice("folding", "by=score folds=3"));
        assert_eq!(order, [0, 3, 6, 9, 1, 4, 7, 2, 5, 8]);
    }

    #[test]
    fn one_fold_is_sorted_and_more_folds_than_documents_too() {
        let corpus = Corpus::of_scores(&[0.5, 0.1, 0.9, 0.3]);
        let sorted = corpus.arranged(&choice("sorted", "by=score"));
        for folds in [1, 4, 5] {
            let folding = choice("folding", &format!("by=score folds={folds}"));
            assert_eq!(corpus.arranged(&folding), sorted);
        }
    }

    #[test]
    fn descending_folds_fall() {
        let folding = choice("folding", "by=score folds=2 direction=descending");
        assert_eq!(Corpus::ranked(5).arranged(&folding), [4, 2, 0, 3, 1]);
    }
}
