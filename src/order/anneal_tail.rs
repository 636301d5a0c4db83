//! At random, with the best documents kept for the end, where the learning rate falls.

use super::ranked::{BY, Keyed, SortBy, items_of, own_share, stable_order};
use super::{Items, OrderInput, Strategy, StrategyKind};
use crate::algo::hash;
use crate::algo::pacing::share_of;
use crate::record::{Kind, OptionError, OptionSpec, Spec};
use crate::spill::{Sorted, Sorter};
use std::cmp::Ordering;
use std::io;

pub(super) static KIND: StrategyKind = StrategyKind {
    spec: Spec {
        name: "anneal_tail",
        summary: "Shuffled, with documents of the highest score kept for the last part",
        details: "The tail is the last floor(share x tokens of all) tokens of the output. The top is what the documents of \
                  the highest `by` hold until their tokens reach floor(top_share x tokens of all). In the order of a \
                  hash of (seed, \"anneal_tail\", id), the tail takes documents of the top until it has \
                  floor(mix_share x tail) tokens of them, and documents outside the top until it has the rest of the \
                  tail; a side that has too few is made up for by the other. A goal is reached with a whole document, \
                  so each side may be longer by less than one document. All documents that the tail does not take, those \
                  of the top too, come before it. Both parts stand by that hash. For a top that appears in the tail \
                  only, set top_share to share x mix_share.",
        options: &[
            OptionSpec {
                name: "share",
                kind: Kind::Number { min: 0.0, max: 1.0 },
                default: Some("0.15"),
                doc: "Share of the tokens that form the tail",
            },
            OptionSpec {
                name: "top_share",
                kind: Kind::Number { min: 0.0, max: 1.0 },
                default: Some("0.1"),
                doc: "Share of the tokens, those of the highest `by`, that the tail's better side is drawn from; at least share x mix_share",
            },
            OptionSpec {
                name: "mix_share",
                kind: Kind::Number { min: 0.0, max: 1.0 },
                default: Some("0.5"),
                doc: "Share of the tail's tokens that come from the top",
            },
            OptionSpec {
                default: Some("score"),
                ..BY
            },
        ],
        example: "{ share: 0.15, top_share: 0.1, mix_share: 0.5 }",
    },
    build: |options| {
        let share = options.number("share");
        let top_share = options.number("top_share");
        let mix_share = options.number("mix_share");
        // A rounding error must not refuse shares that were meant to be equal.
        let slack = 1e-9;
        if top_share + slack < share * mix_share {
            return Err(OptionError::new(
                "top_share",
                format!(
                    "share x mix_share = {} or more, as the tail needs that much",
                    share * mix_share
                ),
                top_share,
            ));
        }
        if 1.0 - top_share + slack < share * (1.0 - mix_share) {
            return Err(OptionError::new(
                "top_share",
                format!(
                    "1 - share x (1 - mix_share) = {} or less, as the tail needs that much outside the top",
                    1.0 - share * (1.0 - mix_share)
                ),
                top_share,
            ));
        }
        let by = SortBy {
            key: options.text("by").to_string(),
            descending: true,
        };
        Ok(Box::new(AnnealTail {
            by,
            share,
            top_share,
            mix_share,
        }))
    },
};

struct AnnealTail {
    by: SortBy,
    share: f64,
    top_share: f64,
    mix_share: f64,
}

/// A document on its side.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Sided {
    /// 1 in the top, 0 outside.
    top: u64,
    chance: Keyed,
}

fn by_chance(a: &Sided, b: &Sided) -> Ordering {
    stable_order(&a.chance, &b.chance)
}

impl Strategy for AnnealTail {
    fn arrange<'a>(&'a self, input: OrderInput<'a>) -> io::Result<Items<'a>> {
        let spill = own_share(input.spill, 2);
        let purpose = hash::purpose_key(input.seed, KIND.spec.name);
        let top_goal_tokens = share_of(input.tokens, self.top_share);
        let mut best_first = self.by.sort(input.items, input.keys, &spill)?;
        let mut sides = spill.sorter("order-sides", by_chance);
        // Tokens outside and inside the top.
        let mut tokens = [0, 0];
        for keyed in &mut best_first {
            let item = keyed?.item;
            let top = usize::from(tokens[1] < top_goal_tokens);
            tokens[top] += item.tokens;
            let chance = Keyed {
                key: hash::keyed_by(purpose, item.id_hash),
                item,
            };
            sides.push(Sided {
                top: top as u64,
                chance,
            })?;
        }
        drop(best_first);
        let tail_tokens = share_of(input.tokens, self.share);
        let goal = share_of(tail_tokens, self.mix_share).min(tokens[1]);
        let goal_outside = (tail_tokens - goal).min(tokens[0]);
        let goal = (tail_tokens - goal_outside).min(tokens[1]);
        let tail = spill.sorter("order-tail", stable_order as fn(&Keyed, &Keyed) -> Ordering);
        Ok(items_of(Parts {
            sides: sides.finish()?,
            goals: [goal_outside, goal],
            part: Part::Body(Some(tail)),
        }))
    }

    fn keys(&self) -> Vec<String> {
        vec![self.by.key.clone()]
    }

    fn lr_hint(&self) -> &'static str {
        "let the decay begin where the tail begins, and end with it"
    }
}

/// The body as it comes, then the tail that was set aside meanwhile.
struct Parts {
    sides: Sorted<Sided>,
    /// Tokens that the tail still wants from outside and inside the top.
    goals: [u64; 2],
    part: Part,
}

type Tail = Sorter<Keyed, fn(&Keyed, &Keyed) -> Ordering>;

enum Part {
    Body(Option<Tail>),
    Tail(Sorted<Keyed>),
}

impl Parts {
    fn advance(&mut self) -> io::Result<Option<Keyed>> {
        loop {
            let tail = match &mut self.part {
                Part::Tail(tail) => return tail.next().transpose(),
                Part::Body(tail) => tail,
            };
            // Missing after an error only.
            let Some(set_aside) = tail.as_mut() else {
                return Ok(None);
            };
            match self.sides.next() {
                Some(Ok(sided)) => {
                    let goal = &mut self.goals[sided.top as usize];
                    if *goal == 0 {
                        return Ok(Some(sided.chance));
                    }
                    *goal = goal.saturating_sub(sided.chance.item.tokens);
                    set_aside.push(sided.chance)?;
                }
                Some(Err(error)) => {
                    *tail = None;
                    return Err(error);
                }
                None => {
                    let Some(set_aside) = tail.take() else {
                        return Ok(None);
                    };
                    self.part = Part::Tail(set_aside.finish()?);
                }
            }
        }
    }
}

impl Iterator for Parts {
    type Item = io::Result<Keyed>;

    fn next(&mut self) -> Option<io::Result<Keyed>> {
        self.advance().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use crate::algo::hash;
    use std::collections::BTreeSet;

    fn in_order_of_chance(corpus: &Corpus, numbers: &[u64]) -> bool {
        numbers.is_sorted_by_key(|&number| {
            hash::keyed(17, "anneal_tail", corpus.items[number as usize].id_hash)
        })
    }

    #[test]
    fn the_tail_mixes_the_top_with_the_rest() {
        let corpus = Corpus::ranked(1_000);
        let setting = choice("anneal_tail", "share=0.2 top_share=0.3 mix_share=0.6");
        let order = corpus.arranged(&setting);
        let (body, tail) = order.split_at(800);
        assert!(in_order_of_chance(&corpus, body) && in_order_of_chance(&corpus, tail));
        let top = |part: &[u64]| part.iter().filter(|&&rank| rank >= 700).count();
        assert_eq!(top(tail), 120);
        // What the tail does not need of the top comes before it.
        assert_eq!(top(body), 180);
    }

    #[test]
    fn a_top_of_just_the_right_size_appears_in_the_tail_only() {
        let corpus = Corpus::ranked(1_000);
        let setting = choice("anneal_tail", "share=0.15 top_share=0.09 mix_share=0.6");
        let order = corpus.arranged(&setting);
        let tail: BTreeSet<u64> = order[850..].iter().copied().collect();
        assert!((910..1_000).all(|rank| tail.contains(&rank)));
    }

    #[test]
    fn turning_a_share_up_moves_the_result_as_its_doc_says() {
        let corpus = Corpus::ranked(1_000);
        let top_in_last_100 = |options: &str| {
            let order = corpus.arranged(&choice("anneal_tail", options));
            order[900..].iter().filter(|&&rank| rank >= 900).count()
        };
        let low = top_in_last_100("share=0.1 top_share=0.1 mix_share=0.2");
        let high = top_in_last_100("share=0.1 top_share=0.1 mix_share=0.9");
        assert_eq!((low, high), (20, 90));
        // A wider top holds fewer of the very best.
        assert!(top_in_last_100("share=0.1 top_share=0.4 mix_share=0.9") < 50);
    }

    #[test]
    fn the_tail_is_measured_in_tokens_and_reached_with_whole_documents() {
        let corpus = Corpus::new((0u32..200).map(|i| (f64::from(i), 1 + u64::from(i % 9) * 5)));
        let order = corpus.arranged(&choice(
            "anneal_tail",
            "share=0.5 top_share=0.5 mix_share=0.5",
        ));
        let tokens = |number: &u64| corpus.items[*number as usize].tokens;
        let goal = corpus.tokens() / 2;
        // The tail begins where the order of chance begins anew.
        let tail = (1..200)
            .find(|&at| !in_order_of_chance(&corpus, &order[at - 1..=at]))
            .expect("two parts");
        let tail_tokens: u64 = order[tail..].iter().map(tokens).sum();
        assert!(
            tail_tokens >= goal && tail_tokens < goal + 2 * 41,
            "{tail_tokens} {goal}"
        );
    }

    #[test]
    fn one_huge_document_leaves_nothing_out() {
        let corpus = Corpus::new([(0.9, 1_000), (0.1, 1), (0.2, 1)].into_iter());
        let order = corpus.arranged(&choice(
            "anneal_tail",
            "share=0.5 top_share=0.3 mix_share=0.4",
        ));
        assert_eq!(order.len(), 3);
        // The others are too few to fill their side: the top makes up for them.
        assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 3);
    }

    #[test]
    fn shares_that_cannot_be_met_are_refused() {
        for (options, fits) in [
            ("share=0.2 top_share=0.1 mix_share=0.5", true),
            ("share=0.2 top_share=0.099 mix_share=0.5", false),
            ("share=0.5 top_share=0.75 mix_share=0.5", true),
            ("share=0.5 top_share=0.751 mix_share=0.5", false),
        ] {
            let built = super::super::build(&choice("anneal_tail", options));
            assert_eq!(built.is_ok(), fits, "{options}");
            if !fits {
                assert_eq!(refusal("anneal_tail", options).option, "top_share");
            }
        }
    }
}
