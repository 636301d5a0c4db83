//! From small to large by a pacing function, at random among what is open.

use super::ranked::{BY, DIRECTION, Keyed, SortBy, items_of, own_share, stable_order};
use super::{Items, OrderInput, Strategy, StrategyKind};
use crate::algo::hash;
use crate::algo::pacing::{Curve, open_items};
use crate::record::{Kind, OptionError, OptionSpec, Spec};
use crate::spill::{Queue, Sorted};
use std::cmp::Ordering;
use std::io;

pub(super) static KIND: StrategyKind = StrategyKind {
    spec: Spec {
        name: "paced",
        summary: "Opens the sorted documents by a curve and draws at random among those open",
        details: "At output position t of n documents the ranks below floor(g(t)) are open: of those not yet used the one \
                  with the lowest hash of (seed, \"paced\", id) comes next; when none is left, the next rank in \
                  order. g(t) = n b + n (1 - b) f(s), at most n, with s = t / (a n), a = full_at_share, b = \
                  start_share, and f: linear s; quad s^2; root sqrt(s); exp (e^(10 s) - 1) / (e^10 - 1); log \
                  1 + ln(s + e^-10) / 10; step floor(s). (Wu, Dyer & Neyshabur 2021)",
        options: &[
            BY,
            DIRECTION,
            OptionSpec {
                name: "curve",
                kind: Kind::Choice(&["linear", "quad", "root", "exp", "log", "step"]),
                default: Some("linear"),
                doc: "How the open part grows",
            },
            OptionSpec {
                name: "full_at_share",
                kind: Kind::Number { min: 0.0, max: 1.0 },
                default: Some("0.8"),
                doc: "Share of the output after which every document is open; above 0",
            },
            OptionSpec {
                name: "start_share",
                kind: Kind::Number { min: 0.0, max: 1.0 },
                default: Some("0.2"),
                doc: "Share of the documents that is open from the start",
            },
        ],
        example: "{ by: difficulty, curve: root, full_at_share: 0.8, start_share: 0.2 }",
    },
    build: |options| {
        let name = options.text("curve");
        let curve = Curve::NAMES.iter().find(|(known, _)| *known == name);
        let Some(&(_, curve)) = curve else {
            return Err(OptionError::new(
                "curve",
                "linear, quad, root, exp, log or step",
                name,
            ));
        };
        let full_at_share = options.number("full_at_share");
        if full_at_share <= 0.0 {
            return Err(OptionError::new("full_at_share", "above 0", full_at_share));
        }
        Ok(Box::new(Paced {
            by: SortBy::from_options(options),
            curve,
            full_at_share,
            start_share: options.number("start_share"),
        }))
    },
};

struct Paced {
    by: SortBy,
    curve: Curve,
    full_at_share: f64,
    start_share: f64,
}

impl Strategy for Paced {
    fn arrange<'a>(&'a self, input: OrderInput<'a>) -> io::Result<Items<'a>> {
        let spill = own_share(input.spill, 2);
        let by_rank = self.by.sort(input.items, input.keys, &spill)?;
        let documents = by_rank.len();
        Ok(items_of(Draws {
            strategy: self,
            purpose: hash::purpose_key(input.seed, KIND.spec.name),
            by_rank,
            next_rank: 0,
            open: spill.queue("order-open", stable_order as fn(&Keyed, &Keyed) -> Ordering),
            position: 0,
            documents,
        }))
    }

    fn keys(&self) -> Vec<String> {
        vec![self.by.key.clone()]
    }

    fn lr_hint(&self) -> &'static str {
        self.by.lr_hint()
    }
}

/// One pass over the ranks: every one below `next_rank` is used or in the queue.
struct Draws<'a> {
    strategy: &'a Paced,
    purpose: u64,
    by_rank: Sorted<Keyed>,
    next_rank: u64,
    open: Queue<Keyed, fn(&Keyed, &Keyed) -> Ordering>,
    position: u64,
    documents: u64,
}

impl Draws<'_> {
    fn draw(&mut self) -> io::Result<Option<Keyed>> {
        let paced = self.strategy;
        let open = open_items(
            paced.curve,
            self.documents,
            self.position,
            self.documents,
            paced.full_at_share,
            paced.start_share,
        );
        self.position += 1;
        while self.next_rank < open {
            let Some(keyed) = self.by_rank.next() else {
                break;
            };
            let item = keyed?.item;
            self.open.push(Keyed {
                key: hash::keyed_by(self.purpose, item.id_hash),
                item,
            })?;
            self.next_rank += 1;
        }
        if let Some(drawn) = self.open.pop()? {
            return Ok(Some(drawn));
        }
        self.next_rank += 1;
        self.by_rank.next().transpose()
    }
}

impl Iterator for Draws<'_> {
    type Item = io::Result<Keyed>;

    fn next(&mut self) -> Option<io::Result<Keyed>> {
        if self.position > self.documents {
            return None;
        }
        let drawn = self.draw();
        if drawn.is_err() {
            // Ends after an error: what follows would be an order with a hole.
            self.position = u64::MAX;
        }
        drawn.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    /// The definition, one position after another, by looking at everything.
    fn by_definition(corpus: &Corpus, curve: Curve, a: f64, b: f64) -> Vec<u64> {
        let mut unused = corpus.arranged(&choice("sorted", "by=score"));
        let ranked = unused.clone();
        let n = unused.len() as u64;
        let mut order = Vec::new();
        for t in 0..n {
            let open = &ranked[..open_items(curve, n, t, n, a, b) as usize];
            let chance =
                |number: u64| hash::keyed(17, "paced", corpus.items[number as usize].id_hash);
            let drawn = open
                .iter()
                .copied()
                .filter(|number| unused.contains(number))
                .min_by_key(|&number| chance(number))
                .unwrap_or(unused[0]);
            unused.retain(|&number| number != drawn);
            order.push(drawn);
        }
        order
    }

    #[test]
    fn is_what_the_definition_says_with_much_and_with_little_memory() {
        let corpus = Corpus::new((0..300).map(|i| (f64::from(i * 37 % 150), 1)));
        for &(name, curve) in Curve::NAMES {
            for (a, b) in [(0.8, 0.2), (1.0, 0.0), (0.2, 0.9), (0.5, 0.0), (0.01, 1.0)] {
                let options = format!("by=score curve={name} full_at_share={a} start_share={b}");
                let setting = choice("paced", &options);
                let expected = by_definition(&corpus, curve, a, b);
                for memory_bytes in [0, 20_000, 1 << 20] {
                    let order = corpus
                        .try_arranged(&setting, memory_bytes)
                        .expect("arranges");
                    assert_eq!(order, expected, "{options} {memory_bytes}");
                }
            }
        }
    }

    #[test]
    fn a_later_full_share_keeps_large_values_for_later() {
        let corpus = Corpus::ranked(1_000);
        let first_half_mean = |a: &str| {
            let options = format!("by=score full_at_share={a} start_share=0.1");
            let order = corpus.arranged(&choice("paced", &options));
            order[..500].iter().sum::<u64>() / 500
        };
        assert!(first_half_mean("1.0") < first_half_mean("0.5"));
        assert!(first_half_mean("0.5") < first_half_mean("0.01"));
    }

    #[test]
    fn full_at_share_must_be_above_zero() {
        let error = refusal("paced", "by=score full_at_share=0.0");
        assert_eq!(error.option, "full_at_share");
        assert_eq!(error.must_be, "above 0");
    }
}
