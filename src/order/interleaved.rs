//! Every stretch of the output holds documents of all sizes of the key.

use super::ranked::{
    BY, DIRECTION, Keyed, LR_HINT_AS_SHUFFLED, SortBy, bucket_of, items_of, own_share,
};
use super::{Items, OrderInput, Strategy, StrategyKind};
use crate::algo::hash;
use crate::record::{Kind, OptionSpec, Spec};
use std::cmp::Ordering;
use std::io;

pub(super) static KIND: StrategyKind = StrategyKind {
    spec: Spec {
        name: "interleaved",
        summary: "One document of each bucket in turn, so that every stretch spans the range of the key",
        details: "The ranks are cut into buckets of equal numbers of documents: of n documents bucket b, counted from 0, holds \
                  the ranks from floor(b n / buckets) up to floor((b + 1) n / buckets). Inside a bucket documents stand \
                  by a hash of (seed, \"interleaved\", id). Round j takes the j-th document of every bucket that has \
                  one, from the first bucket to the last.",
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
                doc: "How many buckets, and so documents in a round; 1 is a shuffle",
            },
        ],
        example: "{ by: score, buckets: 10 }",
    },
    build: |options| {
        Ok(Box::new(Interleaved {
            by: SortBy::from_options(options),
            buckets: options.integer("buckets"),
        }))
    },
};

struct Interleaved {
    by: SortBy,
    buckets: u64,
}

/// A document in its bucket, by the hash of chance, then in its round.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Placed {
    first: u64,
    second: Keyed,
}

impl Placed {
    fn order(a: &Placed, b: &Placed) -> Ordering {
        let by = |placed: &Placed| {
            (
                placed.first,
                placed.second.key,
                placed.second.item.content,
                placed.second.item.rank,
            )
        };
        by(a).cmp(&by(b))
    }
}

impl Strategy for Interleaved {
    fn arrange<'a>(&'a self, input: OrderInput<'a>) -> io::Result<Items<'a>> {
        let spill = own_share(input.spill, 2);
        let purpose = hash::purpose_key(input.seed, KIND.spec.name);
        let by_rank = self.by.sort(input.items, input.keys, &spill)?;
        let documents = by_rank.len();
        let in_buckets = by_rank.zip(0u64..).map(|(keyed, rank)| {
            let item = keyed?.item;
            let second = Keyed {
                key: hash::keyed_by(purpose, item.id_hash),
                item,
            };
            Ok(Placed {
                first: bucket_of(rank, documents, self.buckets),
                second,
            })
        });
        let in_buckets = spill.sort("order-buckets", in_buckets, Placed::order)?;
        let mut bucket_before = None;
        let mut round = 0;
        let in_rounds = in_buckets.map(|placed| {
            let Placed {
                first: bucket,
                second,
            } = placed?;
            round = if bucket_before == Some(bucket) {
                round + 1
            } else {
                0
            };
            bucket_before = Some(bucket);
            Ok(Placed {
                first: round,
                second: Keyed {
                    key: bucket,
                    ..second
                },
            })
        });
        let in_rounds = spill.sort("order-rounds", in_rounds, Placed::order)?;
        Ok(items_of(
            in_rounds.map(|placed| placed.map(|placed| placed.second)),
        ))
    }

    fn keys(&self) -> Vec<String> {
        vec![self.by.key.clone()]
    }

    fn lr_hint(&self) -> &'static str {
        LR_HINT_AS_SHUFFLED
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use crate::algo::hash;

    fn by_definition(corpus: &Corpus, buckets: usize) -> Vec<u64> {
        let n = corpus.items.len();
        let ranked = corpus.arranged(&choice("sorted", "by=score"));
        let buckets: Vec<Vec<u64>> = (0..buckets)
            .map(|bucket| {
                let mut inside = ranked[bucket * n / buckets..(bucket + 1) * n / buckets].to_vec();
                inside.sort_by_key(|&number| {
                    hash::keyed(17, "interleaved", corpus.items[number as usize].id_hash)
                });
                inside
            })
            .collect();
        (0..n)
            .flat_map(|round| buckets.iter().filter_map(move |bucket| bucket.get(round)))
            .copied()
            .collect()
    }

    #[test]
    fn is_what_the_definition_says() {
        let corpus = Corpus::new((0..100).map(|i| (f64::from(i * 37 % 50), 1)));
        for buckets in [1, 2, 7, 99, 100, 101, 300] {
            let setting = choice("interleaved", &format!("by=score buckets={buckets}"));
            assert_eq!(
                corpus.arranged(&setting),
                by_definition(&corpus, buckets),
                "{buckets}"
            );
        }
    }

    #[test]
    fn every_round_goes_through_the_buckets() {
        let order = Corpus::ranked(12).arranged(&choice("interleaved", "by=score buckets=3"));
        for round in order.chunks(3) {
            let buckets: Vec<u64> = round.iter().map(|rank| rank / 4).collect();
            assert_eq!(buckets, [0, 1, 2]);
        }
    }
}
