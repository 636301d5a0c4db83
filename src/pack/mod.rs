//! Packing: ordered documents into rows. Works on token counts alone.
//!
//! A document takes its tokens and, where the [`Frame`] asks for them, a begin token before its first
//! part and an end token after its last. Both take a position and belong to no segment: they stand
//! directly before and after it. Where a row has no place left for one, it stands in the row at hand
//! or the next one beside a segment without tokens.
//!
//! Adding a method is one new file here and its line in [`TABLE`].

mod best_fit;
mod concat;
mod none;
mod packer;
mod parts;
mod proof;

pub use packer::{Frame, PackKind, Packer, Row, Rows, Segment};
pub use proof::{Proof, prove};

use crate::record::{OptionError, Spec, Variant};

/// Every method, in the order in which we would explain them.
pub const TABLE: &[&PackKind] = &[&none::KIND, &concat::KIND, &best_fit::KIND];

/// The specs of every method.
pub fn specs() -> Vec<&'static Spec> {
    TABLE.iter().map(|kind| &kind.spec).collect()
}

/// The method that a checked choice names.
///
/// # Errors
/// When its options make no sense together.
///
/// # Panics
/// When no method has that name, which the reader of the pipeline has refused.
pub fn build(choice: &Variant) -> Result<Box<dyn Packer>, OptionError> {
    match TABLE.iter().find(|kind| kind.spec.name == choice.name) {
        Some(kind) => (kind.build)(&choice.options),
        None => panic!(
            "packing method '{}' is built but not in the table",
            choice.name
        ),
    }
}

#[cfg(test)]
mod testing;

#[cfg(test)]
mod tests {
    use super::testing::*;
    use super::*;
    use proptest::prelude::*;

    fn settings(sequence: u64) -> Vec<Variant> {
        vec![
            choice("none", &[("max_row_tokens", None)]),
            choice("none", &[("max_row_tokens", Some(sequence))]),
            choice("concat", &[("sequence_tokens", Some(sequence))]),
            choice(
                "best_fit",
                &[
                    ("sequence_tokens", Some(sequence)),
                    ("window_documents", Some(4096)),
                ],
            ),
            choice(
                "best_fit",
                &[
                    ("sequence_tokens", Some(sequence)),
                    ("window_documents", Some(3)),
                ],
            ),
            choice(
                "best_fit",
                &[
                    ("sequence_tokens", Some(sequence)),
                    ("window_documents", Some(1)),
                ],
            ),
        ]
    }

    #[test]
    fn every_method_of_the_table_is_tested_and_documented() {
        for kind in TABLE {
            assert!(settings(8).iter().any(|s| s.name == kind.spec.name));
            assert!(!kind.spec.details.is_empty());
            assert!(kind.spec.example.starts_with('{') && kind.spec.example.ends_with('}'));
        }
    }

    #[test]
    fn no_documents_make_no_rows() {
        for setting in settings(8) {
            assert_eq!(packed(&setting, &[], frame(1, 1, 100)), []);
        }
    }

    #[test]
    fn a_document_without_tokens_is_emitted() {
        for setting in settings(8) {
            for (begin, end) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
                for tokens in [&[0][..], &[0, 0], &[8, 0], &[0, 8], &[3, 0, 3]] {
                    let documents = items(tokens);
                    let frame = frame(begin, end, 100);
                    let rows = packed(&setting, &documents, frame);
                    assert_all_tokens_once(&setting, &documents, frame, &rows);
                }
            }
        }
    }

    #[test]
    fn four_two_three_and_one_tokens_in_rows_of_three_lose_nothing() {
        let documents = items(&[4, 2, 3, 1]);
        let frame = frame(0, 0, 100);
        let sequence = Some(3);
        let concat = choice("concat", &[("sequence_tokens", sequence)]);
        // Per row: (document, where in the document, tokens).
        assert_eq!(
            outline(&packed(&concat, &documents, frame)),
            [
                vec![(0, 0, 3)],
                vec![(0, 3, 1), (1, 0, 2)],
                vec![(2, 0, 3)],
                vec![(3, 0, 1)],
            ]
        );
        let best_fit = choice(
            "best_fit",
            &[
                ("sequence_tokens", sequence),
                ("window_documents", Some(4096)),
            ],
        );
        assert_eq!(
            outline(&packed(&best_fit, &documents, frame)),
            [
                vec![(0, 0, 3)],
                vec![(0, 3, 1), (1, 0, 2)],
                vec![(2, 0, 3)],
                vec![(3, 0, 1)],
            ]
        );
        let none = choice("none", &[("max_row_tokens", sequence)]);
        assert_eq!(
            outline(&packed(&none, &documents, frame)),
            [
                vec![(0, 0, 3)],
                vec![(0, 3, 1)],
                vec![(1, 0, 2)],
                vec![(2, 0, 3)],
                vec![(3, 0, 1)],
            ]
        );
    }

    #[test]
    fn a_row_that_no_shard_can_hold_is_refused() {
        let documents = items(&[1]);
        for setting in settings(8) {
            let packer = build(&setting).expect("builds");
            let rows = |shard_tokens| {
                let items = documents.iter().map(|&item| Ok(item));
                let rows = packer.pack(Box::new(items), frame(0, 0, shard_tokens));
                rows.collect::<std::io::Result<Vec<Row>>>()
            };
            assert!(rows(8).is_ok());
            assert!(rows(0).is_err());
            // `none` splits documents further instead.
            assert_eq!(rows(7).is_ok(), setting.name == "none", "{setting:?}");
        }
    }

    #[test]
    fn a_document_too_long_for_32_bit_places_is_an_error_that_names_it() {
        let documents = items(&[1, u64::from(u32::MAX) - 1]);
        for setting in settings(8) {
            let packer = build(&setting).expect("builds");
            let items = documents.iter().map(|&item| Ok(item));
            let rows = packer.pack(Box::new(items), frame(0, 0, 100));
            let error = rows.last().expect("some").expect_err("too long");
            assert!(error.to_string().contains("document 1"), "{error}");
        }
    }

    #[test]
    fn an_error_of_the_input_ends_the_rows() {
        for setting in settings(8) {
            let packer = build(&setting).expect("builds");
            let broken = [Ok(items(&[5])[0]), Err(std::io::Error::other("broken"))];
            let mut rows = packer.pack(Box::new(broken.into_iter()), frame(0, 0, 100));
            let last = rows.by_ref().last().expect("some");
            assert_eq!(last.expect_err("broken").to_string(), "broken");
        }
    }

    #[test]
    fn rows_come_out_while_documents_go_in() {
        for setting in settings(8) {
            let packer = build(&setting).expect("builds");
            let endless = (0..).map(|n| Ok(item(n, 1 + n % 11)));
            let rows = packer.pack(Box::new(endless), frame(1, 1, 100));
            assert_eq!(rows.take(100).filter(Result::is_ok).count(), 100);
        }
    }

    proptest! {
        #[test]
        fn every_token_stands_once_and_in_its_place(
            tokens in prop::collection::vec(prop_oneof![4 => 0u64..12, 1 => 0u64..70], 0..80),
            sequence in 1u64..20,
            begin in 0u32..2,
            end in 0u32..2,
        ) {
            let documents = items(&tokens);
            for setting in settings(sequence) {
                let frame = frame(begin, end, 20);
                let rows = packed(&setting, &documents, frame);
                assert_all_tokens_once(&setting, &documents, frame, &rows);
                prop_assert_eq!(&rows, &packed(&setting, &documents, frame));
            }
        }
    }
}
