//! Whole documents in the rows that they fill best.

use super::parts::{EndToken, Filling, Rest, SEQUENCE_TOKENS, check_row_fits_shard};
use super::{Frame, PackKind, Packer, Row, Rows};
use crate::order::{Item, Items};
use crate::record::{Kind, OptionSpec, Spec};
use std::collections::{BTreeSet, VecDeque};
use std::io;

pub(super) static KIND: PackKind = PackKind {
    spec: Spec {
        name: "best_fit",
        summary: "Places each document whole in the fullest row that takes it",
        details: "Documents come in order, and each goes into the row with the least room that is enough for it, of equal ones the \
                  earliest; where there is none it opens a row. A row takes documents only from the window_documents \
                  consecutive ones that begin with its first. Rows stand by the place in the order of their first \
                  segment. So two documents that are window_documents or more apart never change places, and no \
                  document moves by window_documents places or more. A document longer than a row is first split into full rows, \
                  which take nothing else, and a remainder, which is placed like a document and may so stand in \
                  an earlier row than they. An end token stays with a token of its document: the full row before \
                  is one token shorter where need be (but for rows of one or two positions).",
        options: &[
            SEQUENCE_TOKENS,
            OptionSpec {
                name: "window_documents",
                kind: Kind::Integer {
                    min: 1,
                    max: u32::MAX as u64,
                },
                default: Some("4096"),
                doc: "How many consecutive documents a row may draw from: more means less padding and more movement",
            },
        ],
        example: "{ sequence_tokens: 2048, window_documents: 4096 }",
    },
    build: |options| {
        let sequence_tokens = options.integer("sequence_tokens");
        Ok(Box::new(BestFit {
            sequence_tokens: u32::try_from(sequence_tokens).expect("bounded by the options table"),
            window_documents: options.integer("window_documents"),
        }))
    },
};

struct BestFit {
    sequence_tokens: u32,
    window_documents: u64,
}

impl Packer for BestFit {
    fn pack<'a>(&'a self, items: Items<'a>, frame: Frame) -> Rows<'a> {
        Box::new(Fitted {
            items,
            frame,
            sequence_tokens: self.sequence_tokens,
            window_documents: self.window_documents,
            documents: 0,
            waiting: VecDeque::new(),
            first_waiting: 0,
            first_in_window: 0,
            open: BTreeSet::new(),
            ended: false,
        })
    }

    fn row_positions(&self) -> Option<u32> {
        Some(self.sequence_tokens)
    }
}

/// The rows of one pass. Rows get numbers as they are opened, which is the order of their first
/// documents; they wait for those before them.
struct Fitted<'a> {
    items: Items<'a>,
    frame: Frame,
    sequence_tokens: u32,
    window_documents: u64,
    /// Documents placed so far.
    documents: u64,
    /// Rows not yet given out, by number.
    waiting: VecDeque<Waiting>,
    /// The number of the first of them.
    first_waiting: u64,
    /// No row below this number takes documents any more.
    first_in_window: u64,
    /// (room, number) of the rows that take more; at most one for each document of the window.
    open: BTreeSet<(u32, u64)>,
    ended: bool,
}

struct Waiting {
    /// Place in the order of the document that opened it.
    first_document: u64,
    rows: WaitingRows,
}

enum WaitingRows {
    One(Filling),
    /// The full rows of a long document, cut when they are due, so that it takes no more memory than
    /// a short one.
    Full {
        from: Rest,
        rows: u32,
    },
}

impl Fitted<'_> {
    fn next_row(&mut self) -> io::Result<Option<Row>> {
        check_row_fits_shard(self.sequence_tokens, self.frame)?;
        loop {
            if let Some(row) = self.row_in_turn() {
                return Ok(Some(row));
            }
            match self.items.next().transpose()? {
                Some(item) => self.place(item)?,
                None if self.waiting.is_empty() => return Ok(None),
                None => self.open.clear(),
            }
        }
    }

    /// The first waiting row, if it takes no more.
    fn row_in_turn(&mut self) -> Option<Row> {
        let number = self.first_waiting;
        match &mut self.waiting.front_mut()?.rows {
            WaitingRows::One(filling) => {
                let filling = &*filling;
                if self
                    .open
                    .contains(&(self.sequence_tokens - filling.used, number))
                {
                    return None;
                }
            }
            WaitingRows::Full { from, rows } => {
                let row = full_row(from, self.sequence_tokens);
                *rows -= 1;
                if *rows == 0 {
                    self.waiting.pop_front();
                    self.first_waiting += 1;
                }
                return Some(row);
            }
        }
        self.first_waiting += 1;
        match self.waiting.pop_front()?.rows {
            WaitingRows::One(filling) => Some(filling.finish(self.sequence_tokens)),
            WaitingRows::Full { .. } => None,
        }
    }

    fn place(&mut self, item: Item) -> io::Result<()> {
        let mut document = Rest::of(item, self.frame)?;
        self.close_rows_before_window();
        if document.positions() > self.sequence_tokens {
            let from = document;
            let mut rows = 0;
            while document.positions() > self.sequence_tokens {
                document.take(self.sequence_tokens, EndToken::BesideText);
                rows += 1;
            }
            self.wait(WaitingRows::Full { from, rows });
        }
        let part = document.take(self.sequence_tokens, EndToken::BesideText);
        let fullest = self.open.range((part.positions(), 0)..).next().copied();
        let number = match fullest {
            Some((room, number)) => {
                self.open.remove(&(room, number));
                number
            }
            None => self.wait(WaitingRows::One(Filling::default())),
        };
        let index = usize::try_from(number - self.first_waiting).expect("it is in memory");
        if let WaitingRows::One(filling) = &mut self.waiting[index].rows {
            filling.push(part);
            let room = self.sequence_tokens - filling.used;
            if room > 0 {
                self.open.insert((room, number));
            }
        }
        self.documents += 1;
        Ok(())
    }

    fn wait(&mut self, rows: WaitingRows) -> u64 {
        self.waiting.push_back(Waiting {
            first_document: self.documents,
            rows,
        });
        self.first_waiting + self.waiting.len() as u64 - 1
    }

    /// Closes the rows whose window ends before the document that comes next.
    fn close_rows_before_window(&mut self) {
        self.first_in_window = self.first_in_window.max(self.first_waiting);
        loop {
            let index = (self.first_in_window - self.first_waiting) as usize;
            let Some(waiting) = self.waiting.get(index) else {
                return;
            };
            if self.documents - waiting.first_document < self.window_documents {
                return;
            }
            if let WaitingRows::One(filling) = &waiting.rows {
                self.open
                    .remove(&(self.sequence_tokens - filling.used, self.first_in_window));
            }
            self.first_in_window += 1;
        }
    }
}

fn full_row(document: &mut Rest, sequence_tokens: u32) -> Row {
    let mut filling = Filling::default();
    filling.push(document.take(sequence_tokens, EndToken::BesideText));
    filling.finish(sequence_tokens)
}

impl Iterator for Fitted<'_> {
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
    use super::*;
    use crate::algo::hash;
    use crate::record::Variant;
    use proptest::prelude::*;

    fn best_fit(sequence: u64, window: u64) -> Variant {
        choice(
            "best_fit",
            &[
                ("sequence_tokens", Some(sequence)),
                ("window_documents", Some(window)),
            ],
        )
    }

    /// Place of the first document, room, whether it takes more, (document, tokens) of its segments.
    type SlowRow = (usize, u64, bool, Vec<(u64, u32)>);

    /// (document, tokens) of the rows, by the rule alone: looks at every row for every document.
    fn by_definition(tokens: &[u64], sequence: u64, window: usize) -> Vec<Vec<(u64, u32)>> {
        let mut rows: Vec<SlowRow> = Vec::new();
        for (place, &tokens) in tokens.iter().enumerate() {
            let mut left = tokens;
            while left > sequence {
                rows.push((place, 0, false, vec![(place as u64, sequence as u32)]));
                left -= sequence;
            }
            let fits =
                |row: &&mut SlowRow| row.2 && row.1 > 0 && row.1 >= left && place - row.0 < window;
            let segment = (place as u64, left as u32);
            match rows.iter_mut().filter(fits).min_by_key(|row| row.1) {
                Some(row) => {
                    row.1 -= left;
                    row.3.push(segment);
                }
                None => rows.push((place, sequence - left, true, vec![segment])),
            }
        }
        rows.into_iter().map(|row| row.3).collect()
    }

    #[test]
    fn the_fullest_row_takes_a_document_and_the_earliest_of_equals() {
        let rows = |tokens: &[u64]| -> Vec<Vec<u64>> {
            packed(&best_fit(10, 100), &items(tokens), frame(0, 0, 100))
                .iter()
                .map(|row| row.segments.iter().map(|s| s.item.number).collect())
                .collect()
        };
        assert_eq!(rows(&[6, 7, 3]), [vec![0], vec![1, 2]]);
        assert_eq!(rows(&[6, 6, 3]), [vec![0, 2], vec![1]]);
        assert_eq!(rows(&[6, 6, 4, 4]), [vec![0, 2], vec![1, 3]]);
        assert_eq!(rows(&[6, 5]), [vec![0], vec![1]]);
    }

    #[test]
    fn a_row_closes_when_its_window_ends() {
        let rows = |window| {
            outline(&packed(
                &best_fit(4, window),
                &items(&[3, 4, 4, 1]),
                frame(0, 0, 9),
            ))
        };
        assert_eq!(
            rows(4),
            [vec![(0, 0, 3), (3, 0, 1)], vec![(1, 0, 4)], vec![(2, 0, 4)]]
        );
        assert_eq!(
            rows(3),
            [
                vec![(0, 0, 3)],
                vec![(1, 0, 4)],
                vec![(2, 0, 4)],
                vec![(3, 0, 1)]
            ]
        );
    }

    #[test]
    fn a_long_document_waits_in_little_memory() {
        let documents = items(&[1, 40_000_000, 1]);
        let method = best_fit(2, 2);
        let packer = super::super::build(&method).expect("builds");
        let items = documents.iter().map(|&item| Ok(item));
        let mut rows = packer.pack(Box::new(items), frame(0, 0, 100));
        // The first row closes only after all full rows are known of.
        let first = rows.next().expect("a row").expect("no error");
        assert_eq!(first.segments.len(), 1);
        let second = rows.next().expect("a row").expect("no error");
        assert_eq!(
            (second.segments[0].item.number, second.segments[0].tokens),
            (1, 2)
        );
    }

    #[test]
    fn pads_little_where_documents_are_short() {
        // Lengths as of web text: the logarithm is about normal, median 500, a tenth above 2,000.
        let tokens: Vec<u64> = (0..20_000)
            .map(|n| {
                let uniform = |k: u64| hash::keyed(k, "length", n) as f64 / u64::MAX as f64;
                let normal = (0..12).map(uniform).sum::<f64>() - 6.0;
                libm::exp(500f64.ln() + 1.1 * normal) as u64
            })
            .collect();
        let padding_share = |window| {
            let rows = packed(
                &best_fit(2048, window),
                &items(&tokens),
                frame(0, 1, 1 << 20),
            );
            let padding: u64 = rows.iter().map(|row| u64::from(row.padding)).sum();
            padding as f64 / (rows.len() as f64 * 2048.0)
        };
        let (small, large) = (padding_share(64), padding_share(4_096));
        assert!(
            large < 0.01 && small < 0.1 && large < small,
            "{small} {large}"
        );
    }

    proptest! {
        #[test]
        fn equals_the_rule(
            tokens in prop::collection::vec(prop_oneof![5 => 1u64..12, 1 => 1u64..50], 0..120),
            sequence in 1u64..20,
            window in 1u64..40,
        ) {
            let rows = packed(&best_fit(sequence, window), &items(&tokens), frame(0, 0, 100));
            let found: Vec<Vec<(u64, u32)>> = rows
                .iter()
                .map(|row| row.segments.iter().map(|s| (s.item.number, s.tokens)).collect())
                .collect();
            prop_assert_eq!(found, by_definition(&tokens, sequence, window as usize));
        }

        #[test]
        fn no_document_moves_as_far_as_the_window(
            tokens in prop::collection::vec(1u64..30, 0..150),
            sequence in 1u64..20,
            window in 1u64..40,
            special in 0u32..2,
        ) {
            let frame = frame(special, special, 100);
            let rows = packed(&best_fit(sequence, window), &items(&tokens), frame);
            let numbers: Vec<u64> = rows
                .iter()
                .flat_map(|row| row.segments.iter().map(|segment| segment.item.number))
                .collect();
            for (at, &earlier) in numbers.iter().enumerate() {
                for &later in &numbers[at..] {
                    prop_assert!(later >= earlier || earlier - later < window);
                }
            }
            let firsts: Vec<u64> = rows.iter().map(|row| row.segments[0].item.number).collect();
            prop_assert!(firsts.is_sorted());
            // The places of documents, by their first segment, and by their last.
            for from_back in [false, true] {
                let mut order = numbers.clone();
                if from_back {
                    order.reverse();
                }
                let mut seen = std::collections::BTreeSet::new();
                order.retain(|number| seen.insert(*number));
                if from_back {
                    order.reverse();
                }
                for (place, &number) in order.iter().enumerate() {
                    prop_assert!(number.abs_diff(place as u64) < window);
                }
            }
        }

        #[test]
        fn holds_no_more_than_the_window(
            tokens in prop::collection::vec(1u64..30, 0..150),
            sequence in 1u32..20,
            window in 1u64..20,
        ) {
            let packer = BestFit { sequence_tokens: sequence, window_documents: window };
            let documents = items(&tokens);
            let mut rows = Fitted {
                items: Box::new(documents.iter().map(|&item| Ok(item))),
                frame: frame(0, 1, 100),
                sequence_tokens: packer.sequence_tokens,
                window_documents: packer.window_documents,
                documents: 0,
                waiting: VecDeque::new(),
                first_waiting: 0,
                first_in_window: 0,
                open: BTreeSet::new(),
                ended: false,
            };
            while let Some(row) = rows.next() {
                row.expect("no error");
                prop_assert!(rows.open.len() as u64 <= window);
                prop_assert!(rows.waiting.len() as u64 <= 2 * (window + 1));
            }
        }
    }
}
