//! The sizes that an Arrow file claims, against the bytes that it has.
//!
//! The reader makes room for a message, and for what a compressed buffer says it unpacks to, before it
//! looks at either. A number that lies would end the process for want of memory, so all of them are
//! looked at first. Only the descriptions of messages are read, not their bodies.

use arrow::ipc::{Block, Message, root_as_footer, root_as_message};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};

/// Bytes that a batch may unpack to.
const MAX_BATCH_BYTES: u64 = 1 << 30;

/// Bytes that the description of a message, or the footer, may have.
const MAX_DESCRIPTION_BYTES: u64 = 64 << 20;

/// Rows that a batch may have without a bit for each.
const MAX_ROWS_OF_NOTHING: u64 = 1 << 20;

/// What a file's last bytes are, after the length of its footer.
const END_MAGIC: &[u8] = b"ARROW1";

/// Why the sizes are not accepted.
#[derive(Debug)]
pub(super) enum SizeProblem {
    /// The system could not read the file.
    Io(io::Error),
    /// A number that cannot be true, or that asks for too much.
    Lie(String),
}

impl From<io::Error> for SizeProblem {
    fn from(error: io::Error) -> Self {
        SizeProblem::Io(error)
    }
}

fn lie<T>(problem: String) -> Result<T, SizeProblem> {
    Err(SizeProblem::Lie(problem))
}

/// Looks at every message of a file of `bytes` bytes: one with a footer, or a stream.
pub(super) fn check(mut file: &File, bytes: u64, has_footer: bool) -> Result<(), SizeProblem> {
    if has_footer {
        return check_blocks(file, bytes);
    }
    let mut at = 0;
    while let Some((description, next)) = description_at(file, at, bytes)? {
        // The reader itself tells what is wrong with a description.
        let Ok(message) = root_as_message(&description) else {
            return Ok(());
        };
        let body = whole(message.bodyLength(), next, bytes, "a message's body")?;
        check_message(file, &message, next, body)?;
        at = next + body;
        file.seek(SeekFrom::Start(at))?;
    }
    Ok(())
}

/// A length that must lie between `at` and the file's end.
fn whole(length: i64, at: u64, bytes: u64, what: &str) -> Result<u64, SizeProblem> {
    match u64::try_from(length) {
        Ok(length) if length <= bytes.saturating_sub(at) => Ok(length),
        _ => lie(format!(
            "{what} at byte {at} has {length} bytes, and the file has {bytes}"
        )),
    }
}

/// The description of the message that begins at a place and where it ends; `None` at the end.
fn description_at(
    mut file: &File,
    at: u64,
    bytes: u64,
) -> Result<Option<(Vec<u8>, u64)>, SizeProblem> {
    file.seek(SeekFrom::Start(at))?;
    let mut word = [0; 4];
    let mut begin = at + 4;
    let ended = |error: io::Error| match error.kind() {
        ErrorKind::UnexpectedEof => Ok(None),
        _ => Err(SizeProblem::Io(error)),
    };
    if let Err(error) = file.read_exact(&mut word) {
        return ended(error);
    }
    if word == [0xFF; 4] {
        begin += 4;
        if let Err(error) = file.read_exact(&mut word) {
            return ended(error);
        }
    }
    let length = i32::from_le_bytes(word);
    if length == 0 {
        return Ok(None);
    }
    let length = whole(i64::from(length), begin, bytes, "a message's description")?;
    Ok(Some((read(file, length)?, begin + length)))
}

fn read(mut file: &File, length: u64) -> Result<Vec<u8>, SizeProblem> {
    if length > MAX_DESCRIPTION_BYTES {
        return lie(format!(
            "a description has {length} bytes, and at most {MAX_DESCRIPTION_BYTES} are read"
        ));
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The messages that a footer names.
fn check_blocks(mut file: &File, bytes: u64) -> Result<(), SizeProblem> {
    let end = END_MAGIC.len() as u64 + 4;
    let Some(footer_end) = bytes.checked_sub(end) else {
        return lie(format!("has {bytes} bytes, which hold no footer"));
    };
    file.seek(SeekFrom::Start(footer_end))?;
    let mut last = [0; 10];
    file.read_exact(&mut last)?;
    if &last[4..] != END_MAGIC {
        return lie("its end is missing; is it cut off".to_string());
    }
    let mut length = [0; 4];
    length.copy_from_slice(&last[..4]);
    let length = i64::from(i32::from_le_bytes(length));
    let length = match u64::try_from(length) {
        Ok(length) if length <= footer_end => length,
        _ => {
            return lie(format!(
                "its footer has {length} bytes, and the file has {bytes}"
            ));
        }
    };
    file.seek(SeekFrom::Start(footer_end - length))?;
    let footer = read(file, length)?;
    let Ok(footer) = root_as_footer(&footer) else {
        return Ok(());
    };
    let blocks = [footer.dictionaries(), footer.recordBatches()];
    for block in blocks.into_iter().flatten().flatten() {
        check_block(file, block, bytes)?;
    }
    Ok(())
}

fn check_block(file: &File, block: &Block, bytes: u64) -> Result<(), SizeProblem> {
    let at = whole(block.offset(), 0, bytes, "the way to a message")?;
    let described = whole(
        i64::from(block.metaDataLength()),
        at,
        bytes,
        "a message's description",
    )?;
    let begin = at + described;
    let body = whole(block.bodyLength(), begin, bytes, "a message's body")?;
    let Some((description, _)) = description_at(file, at, begin)? else {
        return Ok(());
    };
    match root_as_message(&description) {
        Ok(message) => check_message(file, &message, begin, body),
        Err(_) => Ok(()),
    }
}

/// The buffers of a batch, whose body begins at `begin`.
fn check_message(
    mut file: &File,
    message: &Message<'_>,
    begin: u64,
    body: u64,
) -> Result<(), SizeProblem> {
    let batch = match message.header_as_dictionary_batch() {
        Some(dictionary) => dictionary.data(),
        None => message.header_as_record_batch(),
    };
    let Some(batch) = batch else { return Ok(()) };
    let is_compressed = batch.compression().is_some();
    let mut unpacked = 0u64;
    for buffer in batch.buffers().into_iter().flatten() {
        let (Ok(offset), Ok(length)) = (
            u64::try_from(buffer.offset()),
            u64::try_from(buffer.length()),
        ) else {
            return lie(format!(
                "a buffer of the message at byte {begin} has {} bytes from byte {} on",
                buffer.length(),
                buffer.offset()
            ));
        };
        if offset.saturating_add(length) > body {
            return lie(format!(
                "a buffer of the message at byte {begin} ends at byte {} of its {body}",
                offset.saturating_add(length)
            ));
        }
        let mut claimed = length;
        if is_compressed && length >= 8 {
            file.seek(SeekFrom::Start(begin + offset))?;
            let mut word = [0; 8];
            file.read_exact(&mut word)?;
            // -1 stands before bytes that are not compressed.
            if let Ok(length) = u64::try_from(i64::from_le_bytes(word)) {
                claimed = length;
            }
        }
        unpacked = unpacked.saturating_add(claimed);
    }
    if unpacked > MAX_BATCH_BYTES && is_compressed {
        return lie(format!(
            "the batch at byte {begin} unpacks to {unpacked} bytes, and at most {MAX_BATCH_BYTES} are held; write it in \
             smaller batches"
        ));
    }
    let most = unpacked.saturating_mul(8).max(MAX_ROWS_OF_NOTHING);
    match u64::try_from(batch.length()) {
        Ok(rows) if rows <= most => Ok(()),
        _ => lie(format!(
            "the batch at byte {begin} has {} rows in {unpacked} bytes",
            batch.length()
        )),
    }
}
