//! Cuts a stream into chunks of whole lines. Only LF ends a line.

use super::compression::{End, Input};
use super::json::byte_order_mark;
use super::{
    BadRecord, Body, CHUNK_BYTES, Fault, FoundFile, InputSpec, RAW_BYTES_KEPT, ReadSummary, Slice,
    SourceError, reason,
};

/// Reads the lines that begin in a range of offsets.
pub(super) struct LineReader {
    input: Input,
    /// Bytes read and not yet handed out; the first is at offset `place` and begins a line.
    buffer: Vec<u8>,
    place: u64,
    /// Lines that begin here or later belong to the next slice.
    end: u64,
    /// The slice begins inside a line, perhaps: its first line is the one after the next LF.
    skip_to_line: bool,
    finished: bool,
    max_record_bytes: u64,
    records: u64,
    bytes: u64,
}

impl LineReader {
    pub fn open(
        file: &FoundFile,
        slice: &Slice,
        spec: &InputSpec,
    ) -> Result<LineReader, SourceError> {
        let (start, end) = match *slice {
            Slice::Whole => (0, u64::MAX),
            Slice::Bytes { start, end } if start <= end && end <= file.bytes => (start, end),
            _ => {
                return Err(SourceError::NoSuchSlice {
                    path: file.path.clone(),
                    slice: slice.to_string(),
                });
            }
        };
        // One byte earlier: a line begins at `start` exactly when an LF stands before it.
        let from = start.saturating_sub(1);
        Ok(LineReader {
            input: Input::open(file, from, *slice == Slice::Whole)?,
            buffer: Vec::new(),
            place: from,
            end,
            skip_to_line: start > 0,
            finished: start == end,
            max_record_bytes: spec.max_document_bytes,
            records: 0,
            bytes: 0,
        })
    }

    pub fn file_bytes_read(&self) -> u64 {
        self.input.file_bytes_read()
    }

    pub fn summary(&self) -> ReadSummary {
        ReadSummary {
            records: self.records,
            bytes: self.bytes,
            truncated: self.input.damage().map(str::to_string),
            checksum: self.input.checksum(),
        }
    }

    pub fn next(&mut self) -> Result<Option<Body>, SourceError> {
        if self.skip_to_line {
            self.skip_to_line = false;
            // A line that begins at `end` or later is not ours, so the search may stop there.
            self.drop_until_line_end(self.end)?;
        }
        // There is no LF in `buffer[..searched]`.
        let mut searched = 0;
        let mut target = CHUNK_BYTES;
        while !self.finished {
            if self.place >= self.end {
                self.finished = true;
                break;
            }
            self.input.fill(&mut self.buffer, target)?;
            let last = self.buffer[searched..]
                .iter()
                .rposition(|&byte| byte == b'\n')
                .map(|found| searched + found);
            if let Some(last) = last {
                return Ok(Some(self.take_lines(last + 1)));
            }
            if self.input.end().is_some() {
                self.finished = true;
                return Ok(self.take_last_line());
            }
            let mark = byte_order_mark(self.place, &self.buffer);
            if (self.buffer.len() - mark) as u64 > self.max_record_bytes {
                return self.take_long_line(mark).map(Some);
            }
            searched = self.buffer.len();
            let limit = usize::try_from(self.max_record_bytes)
                .unwrap_or(usize::MAX)
                .saturating_add(mark + 1);
            target = (searched * 2).min(limit.max(searched + 1));
        }
        Ok(None)
    }

    /// Hands out the lines in `buffer[..end]`, less those that the next slice owns.
    fn take_lines(&mut self, end: usize) -> Body {
        let mut end = end;
        if self.place + end as u64 > self.end {
            // Our last line is the one that holds offset `self.end - 1`.
            let held = (self.end - 1 - self.place) as usize;
            let line_end = self.buffer[held..end]
                .iter()
                .position(|&byte| byte == b'\n');
            end = held + line_end.expect("the byte before `end` is an LF") + 1;
        }
        let rest = self.buffer[end..].to_vec();
        let mut bytes = std::mem::replace(&mut self.buffer, rest);
        bytes.truncate(end);
        self.records += count_line_ends(&bytes);
        self.bytes += end as u64;
        let place = self.place;
        self.place += end as u64;
        Body::Lines { place, bytes }
    }

    /// What follows the stream's last LF.
    fn take_last_line(&mut self) -> Option<Body> {
        let bytes = std::mem::take(&mut self.buffer);
        let mark = byte_order_mark(self.place, &bytes);
        let place = self.place;
        self.place += bytes.len() as u64;
        self.bytes += bytes.len() as u64;
        if bytes.len() == mark {
            return None;
        }
        self.records += 1;
        Some(match self.input.damage() {
            None => Body::Lines { place, bytes },
            Some(problem) => Body::Bad(BadRecord::new(
                place + mark as u64,
                Fault::new(reason::TRUNCATED, problem),
                &bytes[mark..],
            )),
        })
    }

    /// Passes by a line that is too long to be held.
    fn take_long_line(&mut self, mark: usize) -> Result<Body, SourceError> {
        let place = self.place + mark as u64;
        let raw = self.buffer[mark..self.buffer.len().min(mark + RAW_BYTES_KEPT)].to_vec();
        let (raw_bytes, line_end) = {
            let before = self.place;
            let found = self.drop_until_line_end(u64::MAX)?;
            (self.place - before - mark as u64 - u64::from(found), found)
        };
        self.records += 1;
        self.bytes += raw_bytes + mark as u64 + u64::from(line_end);
        let fault = match self.input.damage() {
            Some(problem) if !line_end => Fault::new(reason::TRUNCATED, problem),
            _ => Fault::too_long(raw_bytes, self.max_record_bytes),
        };
        Ok(Body::Bad(BadRecord {
            place,
            reason: fault.reason,
            detail: fault.detail,
            raw,
            raw_bytes,
        }))
    }

    /// Drops bytes up to and with the next LF; whether there was one. Stops early, finished, once
    /// the next line could only begin at `give_up` or later.
    fn drop_until_line_end(&mut self, give_up: u64) -> Result<bool, SourceError> {
        loop {
            if let Some(found) = self.buffer.iter().position(|&byte| byte == b'\n') {
                self.buffer.drain(..=found);
                self.place += found as u64 + 1;
                return Ok(true);
            }
            self.place += self.buffer.len() as u64;
            self.buffer.clear();
            if self.place >= give_up
                || matches!(self.input.end(), Some(End::Clean | End::Damaged(_)))
            {
                self.finished = true;
                return Ok(false);
            }
            self.input.fill(&mut self.buffer, CHUNK_BYTES)?;
        }
    }
}

/// LFs in `bytes`.
fn count_line_ends(bytes: &[u8]) -> u64 {
    // Sums of at most 255 fit a byte, which lets the compiler count many bytes at once.
    bytes
        .chunks(255)
        .map(|piece| {
            u64::from(
                piece
                    .iter()
                    .map(|&byte| u8::from(byte == b'\n'))
                    .sum::<u8>(),
            )
        })
        .sum()
}
