//! What the tests of packing methods share.

use super::{Frame, Row, TABLE, build};
use crate::algo::hash;
use crate::order::Item;
use crate::record::{Options, Value, Variant};
use std::io;

pub fn item(number: u64, tokens: u64) -> Item {
    Item {
        number,
        rank: number,
        content: [number, number],
        id_hash: hash::keyed(0, "test", number),
        tokens,
        copy: 0,
    }
}

pub fn items(tokens: &[u64]) -> Vec<Item> {
    (0..)
        .zip(tokens)
        .map(|(number, &tokens)| item(number, tokens))
        .collect()
}

pub fn frame(begin_tokens: u32, end_tokens: u32, shard_tokens: u64) -> Frame {
    Frame {
        begin_tokens,
        end_tokens,
        shard_tokens,
    }
}

/// A method with all its options.
pub fn choice(name: &str, options: &[(&str, Option<u64>)]) -> Variant {
    let kind = TABLE.iter().find(|kind| kind.spec.name == name);
    let known = kind.expect("in the table").spec.options;
    assert_eq!(known.len(), options.len());
    let mut given = Options::default();
    for (name, value) in options {
        assert!(known.iter().any(|option| option.name == *name));
        given.set(name, value.map_or(Value::Null, Value::Integer));
    }
    Variant {
        name: name.to_string(),
        options: given,
    }
}

pub fn packed(method: &Variant, documents: &[Item], frame: Frame) -> Vec<Row> {
    let packer = build(method).expect("builds");
    let items = documents.iter().map(|&item| Ok(item));
    let rows: io::Result<Vec<Row>> = packer.pack(Box::new(items), frame).collect();
    rows.expect("fits the frame")
}

/// (document, where in the document, tokens) of each segment of each row.
pub fn outline(rows: &[Row]) -> Vec<Vec<(u64, u32, u32)>> {
    rows.iter()
        .map(|row| {
            row.segments
                .iter()
                .map(|s| (s.item.number, s.doc_token_start, s.tokens))
                .collect()
        })
        .collect()
}

/// Whether the rows hold every token of every document once, special tokens where they belong, and
/// nothing else.
pub fn assert_all_tokens_once(method: &Variant, documents: &[Item], frame: Frame, rows: &[Row]) {
    let row_positions = build(method).expect("builds").row_positions();
    let mut segments = Vec::new();
    for row in rows {
        assert!(!row.segments.is_empty(), "a row of nothing");
        let (mut position, mut special_tokens) = (0, 0);
        for segment in &row.segments {
            position += u32::from(segment.begins);
            assert_eq!(segment.row_start, position);
            position += segment.tokens + u32::from(segment.ends);
            special_tokens += u32::from(segment.begins) + u32::from(segment.ends);
            segments.push(*segment);
        }
        assert_eq!(row.special_tokens, special_tokens);
        position += row.padding;
        match row_positions {
            Some(positions) => assert_eq!(position, positions),
            None => {
                assert_eq!(row.padding, 0);
                assert_eq!(row.segments.len(), 1);
            }
        }
        assert!(u64::from(position) <= frame.shard_tokens);
    }
    // A begin without text comes before, an end without text after the text at the same place.
    segments.sort_by_key(|s| (s.item.number, s.doc_token_start, !s.begins, s.tokens == 0));
    let mut parts = segments.as_slice();
    for document in documents {
        let n = parts.iter().take_while(|s| s.item == *document).count();
        assert!(n > 0, "document {} is missing", document.number);
        let (mine, others) = parts.split_at(n);
        parts = others;
        let mut next_token = 0;
        for (index, segment) in mine.iter().enumerate() {
            assert_eq!(u64::from(segment.doc_token_start), next_token);
            next_token += u64::from(segment.tokens);
            assert_eq!(segment.begins, frame.begin_tokens == 1 && index == 0);
            assert_eq!(segment.ends, frame.end_tokens == 1 && index == n - 1);
        }
        assert_eq!(next_token, document.tokens);
    }
    assert!(parts.is_empty());
}
