//! A share of the documents in an order of their own, then the rest at random.

use super::ranked::{items_of, own_share, sort_by_chance, stable_order};
use super::{Items, OrderInput, Strategy, StrategyKind};
use crate::algo::pacing::share_of;
use crate::record::{Kind, OptionSpec, Spec};
use std::io;

pub(super) static KIND: StrategyKind = StrategyKind {
    spec: Spec {
        name: "warmup",
        summary: "A random share of the documents in the order of `inner`, then the rest shuffled",
        details: "Documents stand by a hash of (seed, \"warmup\", id). From the front they are taken until their tokens \
                  reach floor(share x tokens of all), the last one whole; these stand first, in the order of `inner`. \
                  The others follow by that hash. Of the curricula tried for pre-training this form has the best support.",
        options: &[
            OptionSpec {
                name: "share",
                kind: Kind::Number { min: 0.0, max: 1.0 },
                default: Some("0.3"),
                doc: "Share of the tokens that `inner` orders",
            },
            OptionSpec {
                name: "inner",
                kind: Kind::Variant {
                    tag: "strategy",
                    specs: super::specs,
                },
                default: None,
                doc: "The order of that share: any strategy with its options",
            },
        ],
        example: "{ share: 0.3, inner: { strategy: sorted, by: difficulty } }",
    },
    build: |options| {
        Ok(Box::new(Warmup {
            share: options.number("share"),
            inner: super::build(options.variant("inner"))?,
        }))
    },
};

struct Warmup {
    share: f64,
    inner: Box<dyn Strategy>,
}

impl Strategy for Warmup {
    fn arrange<'a>(&'a self, input: OrderInput<'a>) -> io::Result<Items<'a>> {
        let spill = own_share(input.spill, 2);
        let goal_tokens = share_of(input.tokens, self.share);
        let mut by_chance = sort_by_chance(input.items, input.seed, KIND.spec.name, &spill)?;
        // The inner order must know how many documents it gets, so they are set aside first.
        let mut first = spill.sorter("order-warmup", stable_order);
        let mut tokens = 0;
        while tokens < goal_tokens {
            let Some(keyed) = by_chance.next().transpose()? else {
                break;
            };
            tokens += keyed.item.tokens;
            first.push(keyed)?;
        }
        let documents = first.len();
        let first = self.inner.arrange(OrderInput {
            items: items_of(first.finish()?),
            documents,
            tokens,
            keys: input.keys,
            seed: input.seed,
            spill: input.spill,
        })?;
        Ok(Box::new(first.chain(items_of(by_chance))))
    }

    fn keys(&self) -> Vec<String> {
        self.inner.keys()
    }

    fn copies(&self) -> u64 {
        self.inner.copies()
    }

    fn lr_hint(&self) -> &'static str {
        "as for shuffled data: only the first part is ordered"
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use crate::algo::hash;

    fn by_chance(corpus: &Corpus) -> Vec<u64> {
        let mut items = corpus.items.clone();
        items.sort_by_key(|item| hash::keyed(17, "warmup", item.id_hash));
        items.iter().map(|item| item.number).collect()
    }

    #[test]
    fn the_first_share_is_ordered_by_inner_and_the_rest_by_chance() {
        let corpus = Corpus::ranked(100);
        let expected_by_chance = by_chance(&corpus);
        let inner = || choice("sorted", "by=score");
        for (share, n) in [
            ("0.0", 0),
            ("0.29", 29),
            ("0.299", 29),
            ("0.3", 30),
            ("1.0", 100),
        ] {
            let order = corpus.arranged(&with_inner("warmup", &format!("share={share}"), inner()));
            let mut first = expected_by_chance[..n].to_vec();
            first.sort_unstable();
            assert_eq!(order[..n], first, "{share}");
            assert_eq!(order[n..], expected_by_chance[n..], "{share}");
        }
    }

    #[test]
    fn the_share_is_of_tokens_and_its_last_document_stays_whole() {
        let corpus = Corpus::new((0u32..40).map(|i| (f64::from(i), 1 + u64::from(i % 7) * 10)));
        let chance = by_chance(&corpus);
        let tokens = |numbers: &[u64]| -> u64 {
            numbers
                .iter()
                .map(|&number| corpus.items[number as usize].tokens)
                .sum()
        };
        let goal = corpus.tokens() / 2;
        let order = corpus.arranged(&with_inner(
            "warmup",
            "share=0.5",
            choice("sorted", "by=score"),
        ));
        let n = (0..40)
            .find(|&n| tokens(&chance[..n]) >= goal)
            .expect("reached");
        assert!(order[..n].is_sorted());
        assert_eq!(order[n..], chance[n..]);
    }

    #[test]
    fn needs_the_keys_of_its_inner_order() {
        let inner = with_inner("warmup", "", choice("sorted", "by=length_tokens"));
        let outer = super::super::build(&with_inner("warmup", "", inner)).expect("builds");
        assert_eq!(outer.keys(), ["length_tokens"]);
    }
}
