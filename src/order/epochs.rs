//! Every document several times, once in each epoch.

use super::{Item, Items, OrderInput, Strategy, StrategyKind};
use crate::algo::hash;
use crate::record::{Kind, OptionError, OptionSpec, Spec};
use crate::spill::ScratchColumn;
use std::io;
use std::sync::Arc;

pub(super) static KIND: StrategyKind = StrategyKind {
    spec: Spec {
        name: "epochs",
        summary: "Every document several times: the whole corpus in the order of `inner`, then again",
        details: "Each epoch holds every document once, in the order of `inner`; from the second epoch on what `inner` leaves \
                  to chance is decided anew, by a hash of (seed, \"epochs\", number of the epoch). Packed rows may hold the \
                  end of one epoch and the beginning of the next. The column `copy` numbers the copies of a document from \
                  0, and the ledger counts the tokens of later ones as repeated. A copy is worth less than the first: the \
                  ledger weighs copy j, from 1, with nu_j = v(j) - v(j - 1), v(k) = 1 + R (1 - exp(-(k - 1) / R)), \
                  R = 15.387756 (Muennighoff et al. 2023). That is an upper bound. Above 4 epochs a repeated token is \
                  worth clearly less than a new one.",
        options: &[
            OptionSpec {
                name: "epochs",
                kind: Kind::Integer {
                    min: 1,
                    max: MOST_EPOCHS,
                },
                default: Some("2"),
                doc: "How many times each document is emitted",
            },
            OptionSpec {
                name: "inner",
                kind: Kind::Variant {
                    tag: "strategy",
                    specs: super::specs,
                },
                default: None,
                doc: "The order inside an epoch: any strategy that does not repeat documents itself",
            },
        ],
        example: "{ epochs: 2, inner: { strategy: shuffle } }",
    },
    build: |options| {
        let inner = super::build(options.variant("inner"))?;
        if inner.copies() > 1 {
            return Err(OptionError::new(
                "inner",
                "a strategy that does not repeat documents",
                &options.variant("inner").name,
            ));
        }
        Ok(Box::new(Epochs {
            epochs: options.integer("epochs"),
            inner,
        }))
    },
};

/// A number of a copy must fit 16 bits.
const MOST_EPOCHS: u64 = 1_000;

struct Epochs {
    epochs: u64,
    inner: Box<dyn Strategy>,
}

impl Strategy for Epochs {
    fn arrange<'a>(&'a self, input: OrderInput<'a>) -> io::Result<Items<'a>> {
        // Every epoch begins from the same documents, which are set aside for it.
        let path = input.spill.folder().join("order-epochs");
        let mut items = ScratchColumn::<Item>::create(&path, input.documents)?;
        let mut given = input.items;
        for place in items.values_mut() {
            *place = match given.next() {
                Some(item) => item?,
                None => {
                    return Err(io::Error::other(
                        "fewer documents to order than were counted",
                    ));
                }
            };
        }
        if let Some(item) = given.next() {
            item?;
            return Err(io::Error::other(
                "more documents to order than were counted",
            ));
        }
        let items = Arc::new(items);
        let OrderInput {
            documents,
            tokens,
            keys,
            seed,
            spill,
            ..
        } = input;
        let epoch = move |epoch: u64| -> Items<'a> {
            let items = Arc::clone(&items);
            let again = (0..documents as usize).map(move |at| Ok(items.values()[at]));
            let arranged = self.inner.arrange(OrderInput {
                items: Box::new(again),
                documents,
                tokens,
                keys,
                seed: match epoch {
                    0 => seed,
                    _ => hash::keyed(seed, KIND.spec.name, epoch),
                },
                spill,
            });
            match arranged {
                Ok(arranged) => Box::new(arranged.map(move |item| {
                    item.map(|item| Item {
                        copy: epoch,
                        ..item
                    })
                })),
                Err(error) => Box::new(std::iter::once(Err(error))),
            }
        };
        Ok(Box::new((0..self.epochs).flat_map(epoch)))
    }

    fn keys(&self) -> Vec<String> {
        self.inner.keys()
    }

    fn copies(&self) -> u64 {
        self.epochs
    }

    fn lr_hint(&self) -> &'static str {
        match self.epochs {
            1 => self.inner.lr_hint(),
            _ => "each epoch as its inner order says; the schedule spans all of them",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::super::{Proof, build, prove};
    use super::*;
    use crate::spill::Spill;

    #[test]
    fn every_epoch_is_the_inner_order_with_chances_of_its_own() {
        let corpus = Corpus::of_scores(&[0.5; 50]);
        for inner in [choice("sorted", "by=score"), choice("shuffle", "")] {
            let strategy = build(&with_inner("epochs", "epochs=3", inner.clone())).expect("builds");
            assert_eq!(strategy.copies(), 3);
            let arranged = corpus
                .items_arranged_by(&*strategy, 17, 10_000)
                .expect("arranges");
            assert_eq!(arranged.len(), 150);
            let mut orders = Vec::new();
            for (epoch, items) in arranged.chunks(50).enumerate() {
                assert!(items.iter().all(|item| item.copy == epoch as u64));
                let order: Vec<u64> = items.iter().map(|item| item.number).collect();
                let seed = match epoch {
                    0 => 17,
                    _ => hash::keyed(17, "epochs", epoch as u64),
                };
                let due = corpus
                    .arranged_by(&*build(&inner).expect("builds"), seed, 1 << 20)
                    .expect("arranges");
                assert_eq!(order, due);
                orders.push(order);
            }
            assert_eq!(orders[0] == orders[1], inner.name == "sorted");
        }
    }

    #[test]
    fn the_proof_knows_copies() {
        let corpus = Corpus::of_scores(&[0.5; 20]);
        let strategy =
            build(&with_inner("epochs", "epochs=2", choice("shuffle", ""))).expect("builds");
        let mut items = corpus
            .items_arranged_by(&*strategy, 17, 10_000)
            .expect("arranges");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let spill = Spill::new(folder.path(), 10_000);
        let proved = |items: &[Item]| {
            let emitted = items.iter().map(|&item| Ok(item));
            prove(&*strategy, Box::new(emitted), &corpus, 17, &spill).expect("reads and writes")
        };
        assert_eq!(proved(&items), Proof::Holds { documents: 20 });
        items.swap(25, 30);
        assert!(matches!(
            proved(&items),
            Proof::Differs { position: 25, .. }
        ));
        items.swap(25, 30);
        assert!(matches!(
            proved(&items[..39]),
            Proof::Differs { position: 39, .. }
        ));
    }

    #[test]
    fn an_inner_order_that_repeats_is_refused() {
        let twice = || with_inner("epochs", "epochs=2", choice("shuffle", ""));
        let inner = with_inner("warmup", "", twice());
        assert_eq!(build(&inner).expect("builds").copies(), 2);
        for inner in [twice(), inner] {
            let nested = with_inner("epochs", "epochs=2", inner.clone());
            let error = build(&nested).err().expect("is refused");
            assert_eq!((error.option, error.found), ("inner", inner.name));
        }
    }
}
