//! Cutting a document into the parts that rows take.

use super::{Frame, Row, Segment};
use crate::order::Item;
use crate::record::{Kind, OptionSpec};
use std::io;

/// The option `sequence_tokens`.
pub(super) const SEQUENCE_TOKENS: OptionSpec = OptionSpec {
    name: "sequence_tokens",
    kind: Kind::Integer {
        min: 1,
        max: u32::MAX as u64,
    },
    default: None,
    doc: "Positions of every row, special tokens and padding included; at most output.shard_tokens",
};

/// What is still to be placed of a document.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rest {
    item: Item,
    tokens: u32,
    next_token: u32,
    begin_due: bool,
    end_due: bool,
}

/// One stretch of a document with the special tokens around it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    item: Item,
    doc_token_start: u32,
    tokens: u32,
    begins: bool,
    ends: bool,
}

/// Where an end token may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndToken {
    /// Anywhere: a row is filled to its last position, and an end token without a place goes to the
    /// next row alone.
    Anywhere,
    /// Beside a token of its document: the part before is one token shorter where need be. Only in
    /// rows of one or two positions it may still come to stand alone.
    BesideText,
}

impl Rest {
    /// All of a document.
    pub fn of(item: Item, frame: Frame) -> io::Result<Rest> {
        // Two places are left for the special tokens.
        let tokens = u32::try_from(item.tokens)
            .ok()
            .filter(|&n| n < u32::MAX - 1);
        let Some(tokens) = tokens else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "document {} (in reading order) has {} tokens, must have fewer than {}; lower max_document_bytes",
                    item.number,
                    item.tokens,
                    u32::MAX - 1
                ),
            ));
        };
        Ok(Rest {
            item,
            tokens,
            next_token: 0,
            begin_due: frame.begin_tokens > 0,
            end_due: frame.end_tokens > 0,
        })
    }

    /// Positions that it needs yet.
    pub fn positions(&self) -> u32 {
        self.tokens - self.next_token + u32::from(self.begin_due) + u32::from(self.end_due)
    }

    /// Cuts off as much as `room` positions take: all, or at least one position.
    pub fn take(&mut self, room: u32, end_token: EndToken) -> Part {
        let begins = self.begin_due && room > 0;
        let mut room = room - u32::from(begins);
        let left = self.tokens - self.next_token;
        let mut tokens = left.min(room);
        room -= tokens;
        let ends = self.end_due && tokens == left && room > 0;
        let end_left_over = self.end_due && tokens == left && room == 0;
        if end_left_over && end_token == EndToken::BesideText && tokens > 1 {
            tokens -= 1;
        }
        let part = Part {
            item: self.item,
            doc_token_start: self.next_token,
            tokens,
            begins,
            ends,
        };
        self.next_token += tokens;
        self.begin_due &= !begins;
        self.end_due &= !ends;
        part
    }
}

impl Part {
    /// Positions it takes.
    pub fn positions(&self) -> u32 {
        self.tokens + u32::from(self.begins) + u32::from(self.ends)
    }
}

/// A row that is being filled.
#[derive(Clone, Debug, Default)]
pub(super) struct Filling {
    row: Row,
    /// Positions taken.
    pub used: u32,
}

impl Filling {
    /// Whether nothing was put in, not even a document without tokens.
    pub fn is_empty(&self) -> bool {
        self.row.segments.is_empty()
    }

    /// Puts a part at the end.
    pub fn push(&mut self, part: Part) {
        self.row.segments.push(Segment {
            item: part.item,
            row_start: self.used + u32::from(part.begins),
            doc_token_start: part.doc_token_start,
            tokens: part.tokens,
            begins: part.begins,
            ends: part.ends,
        });
        self.row.special_tokens += u32::from(part.begins) + u32::from(part.ends);
        self.used += part.positions();
    }

    /// The row, padded to `positions`.
    pub fn finish(mut self, positions: u32) -> Row {
        self.row.padding = positions - self.used;
        self.row
    }
}

/// Refuses rows that no shard can hold.
pub(super) fn check_row_fits_shard(row_positions: u32, frame: Frame) -> io::Result<()> {
    if u64::from(row_positions) > frame.shard_tokens || row_positions == 0 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "pack.sequence_tokens must be from 1 to output.shard_tokens = {}, is {row_positions}",
                frame.shard_tokens
            ),
        ));
    }
    Ok(())
}
