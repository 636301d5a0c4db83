//! Documents one after another, cut where a row ends.

use super::parts::{EndToken, Filling, Rest, SEQUENCE_TOKENS, check_row_fits_shard};
use super::{Frame, PackKind, Packer, Row, Rows};
use crate::order::Items;
use crate::record::Spec;
use std::io;

pub(super) static KIND: PackKind = PackKind {
    spec: Spec {
        name: "concat",
        summary: "Fills rows in order, splitting documents where a row ends",
        details: "Only the last row has padding. A begin token may be the last position of a row and an end token the \
                  first of one; it then stands beside a segment without tokens.",
        options: &[SEQUENCE_TOKENS],
        example: "{ sequence_tokens: 2048 }",
    },
    build: |options| {
        let sequence_tokens = options.integer("sequence_tokens");
        Ok(Box::new(Concat {
            sequence_tokens: u32::try_from(sequence_tokens).expect("bounded by the options table"),
        }))
    },
};

struct Concat {
    sequence_tokens: u32,
}

impl Packer for Concat {
    fn pack<'a>(&'a self, items: Items<'a>, frame: Frame) -> Rows<'a> {
        Box::new(Concatenated {
            items,
            frame,
            sequence_tokens: self.sequence_tokens,
            row: Filling::default(),
            document: None,
            ended: false,
        })
    }

    fn row_positions(&self) -> Option<u32> {
        Some(self.sequence_tokens)
    }
}

struct Concatenated<'a> {
    items: Items<'a>,
    frame: Frame,
    sequence_tokens: u32,
    row: Filling,
    document: Option<Rest>,
    ended: bool,
}

impl Concatenated<'_> {
    fn next_row(&mut self) -> io::Result<Option<Row>> {
        check_row_fits_shard(self.sequence_tokens, self.frame)?;
        loop {
            let mut document = match self.document.take() {
                Some(document) => document,
                None => match self.items.next().transpose()? {
                    Some(item) => Rest::of(item, self.frame)?,
                    None if self.row.is_empty() => return Ok(None),
                    None => return Ok(Some(self.finish_row())),
                },
            };
            let room = self.sequence_tokens - self.row.used;
            // A full row still takes documents that need no position.
            if room == 0 && document.positions() > 0 {
                self.document = Some(document);
                return Ok(Some(self.finish_row()));
            }
            self.row.push(document.take(room, EndToken::Anywhere));
            if document.positions() > 0 {
                self.document = Some(document);
            }
        }
    }

    fn finish_row(&mut self) -> Row {
        std::mem::take(&mut self.row).finish(self.sequence_tokens)
    }
}

impl Iterator for Concatenated<'_> {
    type Item = io::Result<Row>;

    fn next(&mut self) -> Option<io::Result<Row>> {
        if self.ended {
            return None;
        }
        let row = self.next_row().transpose();
        self.ended = !matches!(row, Some(Ok(_)));
        row
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use proptest::prelude::*;

    #[test]
    fn special_tokens_may_be_cut_off_from_their_text() {
        let concat = choice("concat", &[("sequence_tokens", Some(4))]);
        // B a a E | B b b b | E B c E
        let rows = packed(&concat, &items(&[2, 3, 1]), frame(1, 1, 100));
        assert_eq!(
            outline(&rows),
            [vec![(0, 0, 2)], vec![(1, 0, 3)], vec![(1, 3, 0), (2, 0, 1)]]
        );
        let end = rows[2].segments[0];
        assert_eq!((end.row_start, end.begins, end.ends), (0, false, true));
        // a a E B | b b E
        let rows = packed(&concat, &items(&[2, 2]), frame(1, 1, 100));
        assert_eq!(outline(&rows), [vec![(0, 0, 2)], vec![(1, 0, 2)]]);
        let concat = choice("concat", &[("sequence_tokens", Some(5))]);
        let rows = packed(&concat, &items(&[2, 2]), frame(1, 1, 100));
        assert_eq!(
            outline(&rows),
            [vec![(0, 0, 2), (1, 0, 0)], vec![(1, 0, 2)]]
        );
        let begin = rows[0].segments[1];
        assert_eq!(
            (begin.row_start, begin.begins, begin.ends),
            (5, true, false)
        );
    }

    proptest! {
        #[test]
        fn only_the_last_row_has_padding_and_the_order_is_kept(
            tokens in prop::collection::vec(0u64..30, 1..60),
            sequence in 1u64..20,
            special in 0u32..2,
        ) {
            let concat = choice("concat", &[("sequence_tokens", Some(sequence))]);
            let documents = items(&tokens);
            let rows = packed(&concat, &documents, frame(special, special, 100));
            let (last, full) = rows.split_last().expect("a row");
            prop_assert!(full.iter().all(|row| row.padding == 0));
            let positions: u64 = tokens.iter().map(|n| n + 2 * u64::from(special)).sum();
            prop_assert_eq!(rows.len() as u64, positions.div_ceil(sequence).max(1));
            prop_assert!(u64::from(last.padding) < sequence || positions == 0);
            let places: Vec<(u64, u32)> = rows
                .iter()
                .flat_map(|row| &row.segments)
                .map(|segment| (segment.item.number, segment.doc_token_start))
                .collect();
            prop_assert!(places.is_sorted());
        }
    }
}
