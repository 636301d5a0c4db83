//! Every document at a place that chance decides: the control arm of every other order.

use super::ranked::{LR_HINT_AS_SHUFFLED, items_of, own_share, sort_by_chance};
use super::{Items, OrderInput, Strategy, StrategyKind};
use crate::record::Spec;
use std::io;

pub(super) static KIND: StrategyKind = StrategyKind {
    spec: Spec {
        name: "shuffle",
        summary: "Documents in random order",
        details: "By a hash of (seed, \"shuffle\", id): over the whole corpus, and the same for a document whatever \
                  the others are. It is the control arm of every other order.",
        options: &[],
        example: "{}",
    },
    build: |_| Ok(Box::new(Shuffle)),
};

struct Shuffle;

impl Strategy for Shuffle {
    fn arrange<'a>(&'a self, input: OrderInput<'a>) -> io::Result<Items<'a>> {
        let spill = own_share(input.spill, 1);
        let sorted = sort_by_chance(input.items, input.seed, KIND.spec.name, &spill)?;
        Ok(items_of(sorted))
    }

    fn keys(&self) -> Vec<String> {
        Vec::new()
    }

    fn lr_hint(&self) -> &'static str {
        LR_HINT_AS_SHUFFLED
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use crate::algo::hash;

    #[test]
    fn stands_by_the_keyed_hash() {
        let corpus = Corpus::ranked(50);
        let mut expected = corpus.items.clone();
        expected.sort_by_key(|item| hash::keyed(17, "shuffle", item.id_hash));
        let expected: Vec<u64> = expected.iter().map(|item| item.number).collect();
        assert_eq!(corpus.arranged(&choice("shuffle", "")), expected);
    }

    #[test]
    fn equal_hashes_stand_by_content_then_rank() {
        let mut corpus = Corpus::ranked(4);
        for (number, (content, rank)) in [(2, 0), (1, 9), (1, 3), (0, 5)].into_iter().enumerate() {
            corpus.items[number].content = [content, 0];
            corpus.items[number].rank = rank;
            corpus.items[number].id_hash = 1;
        }
        assert_eq!(corpus.arranged(&choice("shuffle", "")), [3, 2, 1, 0]);
    }
}
