//! From small to large in steps, at random inside a step.

use super::ranked::{BY, DIRECTION, Keyed, SortBy, bucket_of, items_of, own_share};
use super::{Items, OrderInput, Strategy, StrategyKind};
use crate::algo::hash;
use crate::record::{Kind, OptionSpec, Spec};
use std::cmp::Ordering;
use std::io;

pub(super) static KIND: StrategyKind = StrategyKind {
    spec: Spec {
        name: "bucketed",
        summary: "Buckets of documents from small to large, shuffled inside a bucket",
        details: "The ranks are cut into buckets of equal numbers of documents: of n documents bucket b, counted from 0, holds \
                  the ranks from floor(b n / buckets) up to floor((b + 1) n / buckets). Inside a bucket documents stand \
                  by a hash of (seed, \"bucketed\", id).",
        options: &[
            BY,
            DIRECTION,
            OptionSpec {
                name: "buckets",
                kind: Kind::Integer {
                    min: 1,
                    max: u32::MAX as u64,
                },
                default: Some("10"),
                doc: "How many buckets; 1 is a shuffle",
            },
        ],
        example: "{ by: score, buckets: 10 }",
    },
    build: |options| {
        Ok(Box::new(Bucketed {
            by: SortBy::from_options(options),
            buckets: options.integer("buckets"),
        }))
    },
};

struct Bucketed {
    by: SortBy,
    buckets: u64,
}

/// A document in its bucket.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Placed {
    bucket: u64,
    chance: Keyed,
}

impl Placed {
    fn order(a: &Placed, b: &Placed) -> Ordering {
        let by = |placed: &Placed| {
            (
                placed.bucket,
                placed.chance.key,
                placed.chance.item.content,
                placed.chance.item.rank,
            )
        };
        by(a).cmp(&by(b))
    }
}

impl Strategy for Bucketed {
    fn arrange<'a>(&'a self, input: OrderInput<'a>) -> io::Result<Items<'a>> {
        let spill = own_share(input.spill, 2);
        let purpose = hash::purpose_key(input.seed, KIND.spec.name);
        let by_rank = self.by.sort(input.items, input.keys, &spill)?;
        let documents = by_rank.len();
        let placed = by_rank.zip(0u64..).map(|(keyed, rank)| {
            let item = keyed?.item;
            let chance = Keyed {
                key: hash::keyed_by(purpose, item.id_hash),
                item,
            };
            Ok(Placed {
                bucket: bucket_of(rank, documents, self.buckets),
                chance,
            })
        });
        let sorted = spill.sort("order-buckets", placed, Placed::order)?;
        Ok(items_of(
            sorted.map(|placed| placed.map(|placed| placed.chance)),
        ))
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
    use crate::algo::hash;

    fn by_definition(corpus: &Corpus, buckets: usize) -> Vec<u64> {
        let n = corpus.items.len();
        let ranked = corpus.arranged(&choice("sorted", "by=score"));
        let mut order = Vec::new();
        for bucket in 0..buckets {
            let mut inside = ranked[bucket * n / buckets..(bucket + 1) * n / buckets].to_vec();
            inside.sort_by_key(|&number| {
                hash::keyed(17, "bucketed", corpus.items[number as usize].id_hash)
            });
            order.extend(inside);
        }
        order
    }

    #[test]
    fn is_what_the_definition_says() {
        let corpus = Corpus::new((0..100).map(|i| (f64::from(i * 37 % 50), 1)));
        for buckets in [1, 2, 7, 99, 100, 101, 300] {
            let setting = choice("bucketed", &format!("by=score buckets={buckets}"));
            assert_eq!(
                corpus.arranged(&setting),
                by_definition(&corpus, buckets),
                "{buckets}"
            );
        }
    }
}
