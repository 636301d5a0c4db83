//! One document a row.

use super::parts::{EndToken, Filling, Rest};
use super::{Frame, PackKind, Packer, Row, Rows};
use crate::order::Items;
use crate::record::{Kind, OptionSpec, Spec};
use std::io;

pub(super) static KIND: PackKind = PackKind {
    spec: Spec {
        name: "none",
        summary: "One document a row, of its own length",
        details: "A document longer than output.shard_tokens, or than max_row_tokens where that is given, is split into \
                  several rows, full ones and the rest; `doc_token_start` says where each begins. Special tokens count \
                  as positions. An end token never opens a row of its own: the row before is one token shorter instead \
                  (but for rows of one or two positions). There is no padding.",
        options: &[OptionSpec {
            name: "max_row_tokens",
            kind: Kind::Integer {
                min: 1,
                max: u32::MAX as u64,
            },
            default: Some("null"),
            doc: "Most positions of a row; longer documents are split",
        }],
        example: "{ max_row_tokens: 8192 }",
    },
    build: |options| {
        Ok(Box::new(OneEach {
            max_row_tokens: options.integer_if_given("max_row_tokens"),
        }))
    },
};

struct OneEach {
    max_row_tokens: Option<u64>,
}

impl Packer for OneEach {
    fn pack<'a>(&'a self, mut items: Items<'a>, frame: Frame) -> Rows<'a> {
        let longest = self
            .max_row_tokens
            .unwrap_or(u64::MAX)
            .min(frame.shard_tokens);
        let longest = u32::try_from(longest).unwrap_or(u32::MAX);
        let mut rest: Option<Rest> = None;
        let mut ended = false;
        let mut next_row = move || -> io::Result<Option<Row>> {
            if longest == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "output.shard_tokens must be 1 or more, is 0",
                ));
            }
            let mut document = match rest.take() {
                Some(rest) => rest,
                None => match items.next().transpose()? {
                    Some(item) => Rest::of(item, frame)?,
                    None => return Ok(None),
                },
            };
            let mut filling = Filling::default();
            filling.push(document.take(longest, EndToken::BesideText));
            if document.positions() > 0 {
                rest = Some(document);
            }
            let positions = filling.used;
            Ok(Some(filling.finish(positions)))
        };
        Box::new(std::iter::from_fn(move || {
            if ended {
                return None;
            }
            let row = next_row().transpose();
            ended = !matches!(row, Some(Ok(_)));
            row
        }))
    }

    fn row_positions(&self) -> Option<u32> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;

    /// (doc_token_start, tokens, begins, ends) of each row of one document.
    fn rows_of(tokens: u64, longest: u64, begin: u32, end: u32) -> Vec<(u32, u32, bool, bool)> {
        let none = choice("none", &[("max_row_tokens", None)]);
        packed(&none, &items(&[tokens]), frame(begin, end, longest))
            .iter()
            .map(|row| {
                let [segment] = row.segments[..] else {
                    panic!("one segment a row")
                };
                (
                    segment.doc_token_start,
                    segment.tokens,
                    segment.begins,
                    segment.ends,
                )
            })
            .collect()
    }

    #[test]
    fn a_document_as_long_as_a_shard_stays_whole_and_a_longer_one_is_split() {
        assert_eq!(rows_of(9, 10, 0, 0), [(0, 9, false, false)]);
        assert_eq!(rows_of(10, 10, 0, 0), [(0, 10, false, false)]);
        assert_eq!(
            rows_of(11, 10, 0, 0),
            [(0, 10, false, false), (10, 1, false, false)]
        );
        assert_eq!(rows_of(25, 10, 0, 0).len(), 3);
    }

    #[test]
    fn special_tokens_stand_at_the_outer_ends_only() {
        assert_eq!(rows_of(8, 10, 1, 1), [(0, 8, true, true)]);
        assert_eq!(
            rows_of(20, 10, 1, 1),
            [
                (0, 9, true, false),
                (9, 10, false, false),
                (19, 1, false, true)
            ]
        );
    }

    #[test]
    fn an_end_token_takes_a_token_of_text_with_it() {
        assert_eq!(
            rows_of(10, 10, 0, 1),
            [(0, 9, false, false), (9, 1, false, true)]
        );
        assert_eq!(
            rows_of(9, 10, 1, 1),
            [(0, 8, true, false), (8, 1, false, true)]
        );
        assert_eq!(
            rows_of(2, 2, 0, 1),
            [(0, 1, false, false), (1, 1, false, true)]
        );
        // Rows this short leave no choice.
        assert_eq!(
            rows_of(1, 1, 0, 1),
            [(0, 1, false, false), (1, 0, false, true)]
        );
    }

    #[test]
    fn a_lower_bound_cuts_into_more_rows() {
        let documents = items(&[20]);
        let rows = |bound| {
            let none = choice("none", &[("max_row_tokens", bound)]);
            packed(&none, &documents, frame(0, 0, 10)).len()
        };
        assert_eq!(
            (rows(None), rows(Some(10)), rows(Some(11)), rows(Some(5))),
            (2, 2, 2, 4)
        );
    }
}
