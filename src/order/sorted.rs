//! Documents from the smallest value of a key to the largest, or the other way.

use super::ranked::{BY, DIRECTION, SortBy, items_of, own_share};
use super::{Items, OrderInput, Strategy, StrategyKind};
use crate::record::Spec;
use std::io;

pub(super) static KIND: StrategyKind = StrategyKind {
    spec: Spec {
        name: "sorted",
        summary: "Documents sorted by a key",
        details: "By (key, content hash, place in inputs, id). All orders that name a key rank documents in this way.",
        options: &[BY, DIRECTION],
        example: "{ by: difficulty }",
    },
    build: |options| {
        let by = SortBy::from_options(options);
        Ok(Box::new(ByKey { by }))
    },
};

struct ByKey {
    by: SortBy,
}

impl Strategy for ByKey {
    fn arrange<'a>(&'a self, input: OrderInput<'a>) -> io::Result<Items<'a>> {
        let spill = own_share(input.spill, 1);
        Ok(items_of(self.by.sort(input.items, input.keys, &spill)?))
    }

    fn keys(&self) -> Vec<String> {
        vec![self.by.key.clone()]
    }

    fn lr_hint(&self) -> &'static str {
        self.by.lr_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;

    #[test]
    fn ascending_is_the_default() {
        let corpus = Corpus::of_scores(&[0.5, -1.0, 3.0, 0.25]);
        assert_eq!(corpus.arranged(&choice("sorted", "by=score")), [1, 3, 0, 2]);
        let descending = choice("sorted", "by=score direction=descending");
        assert_eq!(corpus.arranged(&descending), [2, 0, 3, 1]);
    }

    #[test]
    fn sorts_by_the_key_that_is_named() {
        let corpus = Corpus::new([(0.1, 30), (0.2, 20), (0.3, 10)].into_iter());
        let by_length = choice("sorted", "by=length_tokens");
        assert_eq!(corpus.arranged(&by_length), [2, 1, 0]);
    }

    #[test]
    fn ties_stand_by_content_then_rank_in_both_directions() {
        let mut corpus = Corpus::of_scores(&[0.5, 0.5, 0.5, -0.0, 0.0]);
        for (number, (content, rank)) in [(2, 0), (1, 9), (1, 3), (7, 5), (6, 6)]
            .into_iter()
            .enumerate()
        {
            corpus.items[number].content = [content, 0];
            corpus.items[number].rank = rank;
        }
        assert_eq!(
            corpus.arranged(&choice("sorted", "by=score")),
            [4, 3, 2, 1, 0]
        );
        let descending = choice("sorted", "by=score direction=descending");
        assert_eq!(corpus.arranged(&descending), [2, 1, 0, 4, 3]);
    }
}
