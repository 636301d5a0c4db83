//! Whether documents stand in the order that a strategy states.

use super::{Item, Items, Keys, OrderInput, Strategy};
use crate::spill::Spill;
use std::io;

/// What [`prove`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The documents stand as the strategy states.
    Holds {
        /// How many, each counted once.
        documents: u64,
    },
    /// They do not.
    Differs {
        /// The first place, counted in documents from 0, where another one was due.
        position: u64,
        /// The document that was due there; none where the order should have ended.
        expected: Option<Item>,
        /// The document that stands there; none where the order ended too early.
        found: Option<Item>,
    },
}

/// A document and where it stands.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Emitted {
    position: u64,
    item: Item,
}

/// Arranges the `emitted` documents anew, each counted once, and compares: their order follows the rule just
/// where it is what the strategy makes of them.
///
/// `emitted` has one item for each document and copy, in the order of the output. An item needs its
/// `content`, `rank`, `id_hash`, `tokens` and `copy`, and, where `copy` is 0, a `number` that `keys` knows it by; where the rank
/// (place in `inputs`, id) is unknown, any numbers that rise in the order of (place in `inputs`, id)
/// serve, as ranks only break ties. `keys` must give the very values that the order was made from. A
/// quarter of the memory of `spill` is used beside what the strategy uses.
///
/// # Errors
/// The first error of `emitted`, or when intermediate files cannot be written or read.
pub fn prove(
    strategy: &dyn Strategy,
    emitted: Items<'_>,
    keys: &dyn Keys,
    seed: u64,
    spill: &Spill,
) -> io::Result<Proof> {
    let own = spill.share(8);
    let mut by_position = own.sorter("verify-position", |a: &Emitted, b: &Emitted| {
        a.position.cmp(&b.position)
    });
    let mut by_rank = own.sorter("verify-rank", |a: &Emitted, b: &Emitted| {
        (a.item.rank, a.position).cmp(&(b.item.rank, b.position))
    });
    let mut tokens = 0;
    for (item, position) in emitted.zip(0u64..) {
        let emitted = Emitted {
            position,
            item: item?,
        };
        by_position.push(emitted)?;
        if emitted.item.copy == 0 {
            tokens += emitted.item.tokens;
            by_rank.push(emitted)?;
        }
    }
    let places = by_position.len();
    let documents = by_rank.len();
    let by_position = by_position.finish()?;
    let by_rank = by_rank.finish()?;
    let mut arranged = strategy.arrange(OrderInput {
        items: Box::new(by_rank.map(|emitted| emitted.map(|emitted| emitted.item))),
        documents,
        tokens,
        keys,
        seed,
        spill,
    })?;
    for found in by_position {
        let found = found?;
        let expected = arranged.next().transpose()?;
        // A copy may have a number of its own.
        let number = found.item.number;
        if expected.map(|item| Item { number, ..item }) != Some(found.item) {
            return Ok(Proof::Differs {
                position: found.position,
                expected,
                found: Some(found.item),
            });
        }
    }
    Ok(match arranged.next().transpose()? {
        None => Proof::Holds { documents },
        expected => Proof::Differs {
            position: places,
            expected,
            found: None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::super::{TABLE, build};
    use super::*;

    fn proved(corpus: &Corpus, strategy: &dyn Strategy, order: &[u64], seed: u64) -> Proof {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let spill = Spill::new(folder.path(), 10_000);
        let emitted = order
            .iter()
            .map(|&number| Ok(corpus.items[number as usize]));
        prove(strategy, Box::new(emitted), corpus, seed, &spill).expect("reads and writes")
    }

    #[test]
    fn every_order_holds_and_an_exchange_is_found() {
        let corpus = Corpus::new((0u32..60).map(|i| (f64::from(i % 20), 5 + u64::from(i % 3))));
        for kind in TABLE {
            let setting = match kind.spec.name {
                "warmup" => with_inner("warmup", "", choice("sorted", "by=score")),
                "epochs" => with_inner("epochs", "epochs=1", choice("sorted", "by=score")),
                "shuffle" | "anneal_tail" => choice(kind.spec.name, ""),
                name => choice(name, "by=score"),
            };
            let strategy = build(&setting).expect("builds");
            let mut order = corpus.arranged(&setting);
            let proof = proved(&corpus, &*strategy, &order, 17);
            assert_eq!(proof, Proof::Holds { documents: 60 }, "{setting:?}");
            order.swap(20, 40);
            let proof = proved(&corpus, &*strategy, &order, 17);
            let Proof::Differs {
                position,
                expected,
                found,
            } = proof
            else {
                panic!("the exchange was not found: {setting:?}");
            };
            assert_eq!(position, 20);
            let numbers = [found, expected].map(|item| item.expect("a document").number);
            assert_eq!(numbers, [order[20], order[40]]);
        }
    }

    #[test]
    fn another_seed_or_no_documents() {
        let corpus = Corpus::of_scores(&[0.5; 30]);
        let setting = choice("shuffle", "");
        let strategy = build(&setting).expect("builds");
        let order = corpus.arranged(&setting);
        assert!(matches!(
            proved(&corpus, &*strategy, &order, 18),
            Proof::Differs { .. }
        ));
        assert_eq!(
            proved(&corpus, &*strategy, &[], 18),
            Proof::Holds { documents: 0 }
        );
    }
}
