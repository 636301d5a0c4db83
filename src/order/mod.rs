//! Curriculum: in which order the kept documents are emitted. Works on the index alone.
//!
//! Adding a strategy is one new file here and its line in [`TABLE`].
//!
//! Documents that tie in what a strategy sorts by stand by the hash of their content, then by their
//! place in the order of (place in `inputs`, id). Every choice by chance is
//! [`crate::algo::hash::keyed`] of (seed, name of the strategy, id). So an order depends neither on
//! the order in which documents come in, nor on memory, nor on threads.
//!
//! The sorts of one strategy use together a quarter of the memory of the [`crate::spill::Spill`]
//! they are given, and hand it on whole to an inner strategy: up to three strategies inside one
//! another stay within it.

mod anneal_tail;
mod bucketed;
mod epochs;
mod folding;
mod interleaved;
mod paced;
mod proof;
mod ranked;
mod shuffle;
mod sorted;
mod strategy;
mod warmup;

pub use proof::{Proof, prove};
pub use strategy::{Item, Items, Keys, OrderInput, Strategy, StrategyKind};

use crate::record::{OptionError, Spec, Variant};

/// Every strategy, in the order in which we would explain them.
pub const TABLE: &[&StrategyKind] = &[
    &shuffle::KIND,
    &sorted::KIND,
    &folding::KIND,
    &bucketed::KIND,
    &interleaved::KIND,
    &paced::KIND,
    &warmup::KIND,
    &anneal_tail::KIND,
    &epochs::KIND,
];

/// The specs of every strategy, for nested options such as `inner`.
pub fn specs() -> Vec<&'static Spec> {
    TABLE.iter().map(|kind| &kind.spec).collect()
}

/// The strategy that a checked choice names.
///
/// # Errors
/// When its options make no sense together.
///
/// # Panics
/// When no strategy has that name, which the reader of the pipeline has refused.
pub fn build(choice: &Variant) -> Result<Box<dyn Strategy>, OptionError> {
    match TABLE.iter().find(|kind| kind.spec.name == choice.name) {
        Some(kind) => (kind.build)(&choice.options),
        None => panic!("strategy '{}' is built but not in the table", choice.name),
    }
}

#[cfg(test)]
mod testing;

#[cfg(test)]
mod tests {
    use super::testing::*;
    use super::*;
    use proptest::prelude::*;

    /// One or more settings of each strategy in the table.
    fn settings() -> Vec<Variant> {
        let mut settings = vec![choice("shuffle", "")];
        for direction in ["ascending", "descending"] {
            settings.push(choice("sorted", &format!("by=score direction={direction}")));
            for n in [1, 2, 3, 7, 1_000] {
                for (name, option) in [
                    ("folding", "folds"),
                    ("bucketed", "buckets"),
                    ("interleaved", "buckets"),
                ] {
                    let options = format!("by=score {option}={n} direction={direction}");
                    settings.push(choice(name, &options));
                }
            }
        }
        for &(curve, _) in crate::algo::pacing::Curve::NAMES {
            for shares in [
                "full_at_share=0.8 start_share=0.2",
                "full_at_share=1.0 start_share=0.0",
                "full_at_share=0.1 start_share=1.0",
            ] {
                settings.push(choice("paced", &format!("by=score curve={curve} {shares}")));
            }
        }
        for share in ["0.0", "0.3", "1.0"] {
            for inner in [choice("sorted", "by=score"), choice("shuffle", "")] {
                let warmup = with_inner("warmup", &format!("share={share}"), inner);
                settings.push(warmup.clone());
                settings.push(with_inner("warmup", "share=0.6", warmup));
            }
        }
        for shares in [
            "",
            "share=0.0 top_share=0.0 mix_share=0.0",
            "share=1.0 top_share=0.5 mix_share=0.5",
            "share=0.5 top_share=0.9 mix_share=0.9",
            "share=0.3 top_share=0.3 mix_share=1.0",
        ] {
            settings.push(choice("anneal_tail", shares));
        }
        for inner in [choice("sorted", "by=score"), choice("shuffle", "")] {
            settings.push(with_inner("epochs", "epochs=1", inner));
        }
        settings
    }

    #[test]
    fn every_strategy_of_the_table_is_tested_and_says_what_it_needs() {
        let settings = settings();
        for kind in TABLE {
            let setting = settings
                .iter()
                .find(|s| s.name == kind.spec.name)
                .unwrap_or_else(|| panic!("{} has no setting", kind.spec.name));
            let strategy = build(setting).expect("builds");
            assert!(!strategy.lr_hint().is_empty());
            let has_by = kind.spec.options.iter().any(|option| option.name == "by");
            if has_by {
                assert_eq!(strategy.keys(), ["score"], "{}", kind.spec.name);
            }
            assert!(!kind.spec.details.is_empty());
            assert!(kind.spec.example.starts_with('{') && kind.spec.example.ends_with('}'));
        }
        assert_eq!(names().len(), TABLE.len(), "names are unique");
    }

    fn names() -> std::collections::BTreeSet<&'static str> {
        TABLE.iter().map(|kind| kind.spec.name).collect()
    }

    #[test]
    fn nothing_one_and_two_documents() {
        for setting in settings() {
            for n in 0..3 {
                let corpus = Corpus::of_scores(&[0.25, 0.75][..n]);
                assert_is_permutation(&corpus, &corpus.arranged(&setting), &setting);
            }
        }
    }

    #[test]
    fn documents_without_tokens_are_not_lost() {
        let mut corpus = Corpus::of_scores(&[0.5; 9]);
        for item in &mut corpus.items {
            item.tokens = 0;
        }
        for setting in settings() {
            assert_is_permutation(&corpus, &corpus.arranged(&setting), &setting);
        }
    }

    #[test]
    fn a_key_that_is_not_finite_is_an_error_that_names_it() {
        for setting in settings() {
            let corpus = Corpus::of_scores(&[0.5, f64::NAN, 0.7]);
            if build(&setting).expect("builds").keys().is_empty() {
                continue;
            }
            if setting.name == "warmup" {
                // The inner order sees a share only.
                continue;
            }
            let error = corpus.try_arranged(&setting, 1 << 20).expect_err("NaN");
            let message = error.to_string();
            assert!(
                message.contains("score") && message.contains("document 1"),
                "{message}"
            );
        }
    }

    #[test]
    fn an_error_of_the_input_is_handed_on() {
        for setting in settings() {
            let corpus = Corpus::of_scores(&[0.5; 4]);
            let strategy = build(&setting).expect("builds");
            let folder = tempfile::tempdir().expect("a temporary folder");
            let spill = crate::spill::Spill::new(folder.path(), 0);
            let broken = corpus.items.iter().map(|&item| Ok(item));
            let broken = broken.chain([Err(std::io::Error::other("broken"))]);
            let input = OrderInput {
                items: Box::new(broken),
                documents: 5,
                tokens: 100,
                keys: &corpus,
                seed: 1,
                spill: &spill,
            };
            let outcome = strategy
                .arrange(input)
                .and_then(|items| items.collect::<std::io::Result<Vec<Item>>>());
            assert!(outcome.is_err(), "{setting:?}");
        }
    }

    #[test]
    fn the_seed_changes_what_chance_decides_and_nothing_else() {
        let corpus = Corpus::of_scores(&[0.5; 100]);
        for (setting, by_chance) in [
            (choice("shuffle", ""), true),
            (choice("sorted", "by=score"), false),
            (choice("folding", "by=score"), false),
            (choice("bucketed", "by=score"), true),
            (choice("interleaved", "by=score"), true),
            (choice("paced", "by=score"), true),
            (choice("anneal_tail", ""), true),
            (with_inner("warmup", "", choice("sorted", "by=score")), true),
            (
                with_inner("warmup", "share=1.0", choice("sorted", "by=score")),
                false,
            ),
            (
                with_inner("epochs", "epochs=3", choice("sorted", "by=score")),
                false,
            ),
            (
                with_inner("epochs", "epochs=3", choice("shuffle", "")),
                true,
            ),
        ] {
            let strategy = build(&setting).expect("builds");
            let one = corpus.arranged_by(&*strategy, 1, 1 << 20);
            let two = corpus.arranged_by(&*strategy, 2, 1 << 20);
            let differs = one.expect("arranges") != two.expect("arranges");
            assert_eq!(differs, by_chance, "{setting:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn every_order_is_a_permutation_that_depends_on_the_documents_alone(
            documents in prop::collection::vec((0u8..20, 0u64..50), 0..120),
            memory_bytes in 0usize..60_000,
            turn in 0usize..120,
        ) {
            let corpus = Corpus::new(
                documents.iter().map(|&(score, tokens)| (f64::from(score) / 8.0, tokens)),
            );
            let mut turned = corpus.clone();
            turned.items.reverse();
            turned.items.rotate_left(turn.min(documents.len()));
            for setting in settings() {
                let order = corpus.arranged(&setting);
                assert_is_permutation(&corpus, &order, &setting);
                let again = turned.try_arranged(&setting, memory_bytes).expect("arranges");
                prop_assert_eq!(&order, &again, "{:?}", setting);
            }
        }
    }
}
