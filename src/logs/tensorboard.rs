//! TensorBoard event files: TFRecord around protocol buffers, a point a record, each with its wall time.

use super::{Event, EventKind, Log, LogKind, Reader, Tokens, micros_of_seconds, spec};
use crate::record::{Kind, OptionSpec};
use std::collections::BTreeSet;
use std::io::{BufRead, Read};

/// `tensorboard`.
pub static KIND: LogKind = LogKind {
    spec: spec(
        "tensorboard",
        "TensorBoard event files (events.out.tfevents.*).",
        "\
Every point has a wall time. Several files in a folder are several attempts; a last record that is cut off is normal.
Records with a wrong checksum are bad lines (records, counted from 1). Scalars are read as PyTorch's SummaryWriter and
TensorFlow 2 write them.",
        &[
            OptionSpec {
                name: "loss",
                kind: Kind::Text,
                default: Some("null"),
                doc: "Tag of the training loss, in nats a token; without it the first of train/loss, train_loss, \
                      loss/train, Loss/train, loss that is there",
            },
            OptionSpec {
                name: "validation_loss",
                kind: Kind::Text,
                default: Some("null"),
                doc: "Tag of the validation loss",
            },
            OptionSpec {
                name: "tokens",
                kind: Kind::Text,
                default: Some("null"),
                doc: "Tag of the tokens since the beginning of training; read where it stands before the loss of its step",
            },
        ],
        "{ loss: train/loss }",
    ),
    sample: SAMPLE,
    recognises: |head| {
        head.bytes.get(..12).is_some_and(|head| {
            let length = u64::from_le_bytes(head[..8].try_into().expect("eight bytes"));
            length < 1 << 20 && masked_crc(&head[..8]).to_le_bytes() == head[8..12]
        })
    },
    build: |options| {
        let text = |name: &str| options.text_if_given(name).map(str::to_string);
        Ok(Box::new(TensorBoard {
            loss: text("loss"),
            validation_loss: text("validation_loss"),
            tokens: text("tokens"),
        }))
    },
};

/// Where the loss usually stands.
const USUAL_LOSSES: &[&str] = &[
    "train/loss",
    "train_loss",
    "loss/train",
    "Loss/train",
    "loss",
];
/// Longest record that is read, in bytes; longer ones (images, graphs) are passed over.
const LONGEST_RECORD_BYTES: u64 = 1 << 20;

/// A head, then at steps 10, 20 and 30 a loss and a learning rate.
const SAMPLE: &[u8] = b"\x18\x00\x00\x00\x00\x00\x00\x00\xa3\x7fK\x22\x09\x00\x00\x00\x00\x00@\x8f@\x1a\x0dbrain.Event:2s\xae\
kV \x00\x00\x00\x00\x00\x00\x00)\xed\xa9P\x09\x00\x00\x00\x00\x00\xe0\x8f@\x10\x0a*\x13\x0a\x11\x0a\x0a\
train/loss\x15\x00\x00\x18A\xd7h\x18\xf0\x18\x00\x00\x00\x00\x00\x00\x00\xa3\x7fK\x22\x09\x00\x00\x00\
\x00\x00\xe0\x8f@\x10\x0a*\x0b\x0a\x09\x0a\x02lr\x15o\x12\x83:\x8f\xab\x98\xca \x00\x00\x00\x00\x00\x00\
\x00)\xed\xa9P\x09\x00\x00\x00\x00\x00\x18\x90@\x10\x14*\x13\x0a\x11\x0a\x0atrain/loss\x15\x00\x00\x10\
A\x98m1\xa3\x18\x00\x00\x00\x00\x00\x00\x00\xa3\x7fK\x22\x09\x00\x00\x00\x00\x00\x18\x90@\x10\x14*\x0b\
\x0a\x09\x0a\x02lr\x15o\x12\x83:E\xe0\xcfi \x00\x00\x00\x00\x00\x00\x00)\xed\xa9P\x09\x00\x00\x00\x00\
\x00@\x90@\x10\x1e*\x13\x0a\x11\x0a\x0atrain/loss\x15\x00\x00\x08A?r\x8b\xe9\x18\x00\x00\x00\x00\x00\x00\
\x00\xa3\x7fK\x22\x09\x00\x00\x00\x00\x00@\x90@\x10\x1e*\x0b\x0a\x09\x0a\x02lr\x15o\x12\x83:\xc4,\x09\
\xfc";

struct TensorBoard {
    loss: Option<String>,
    validation_loss: Option<String>,
    tokens: Option<String>,
}

/// A scalar of a record.
struct Point {
    record: u64,
    at_micros: Option<i64>,
    step: u64,
    tag: String,
    value: f64,
}

impl Reader for TensorBoard {
    fn read(&self, input: &mut dyn BufRead, log: &mut Log) -> Result<(), String> {
        let mut points = Vec::new();
        let mut first = None;
        let mut last = None;
        records(input, log, &mut |log, record, bytes| match summary(bytes) {
            None => log.bad_line(record, "the record is no event", ""),
            Some((seconds, step, scalars)) => {
                let at_micros = seconds.and_then(micros_of_seconds);
                if let Some(at) = at_micros {
                    first.get_or_insert((record, at));
                    last = Some((record, at));
                }
                // A negative step is a varint beyond what any training reaches.
                let step = step.min(u64::from(u32::MAX));
                points.extend(scalars.into_iter().map(|(tag, value)| Point {
                    record,
                    at_micros,
                    step,
                    tag,
                    value,
                }));
            }
        })?;
        let tags: BTreeSet<&str> = points.iter().map(|point| point.tag.as_str()).collect();
        let loss = match &self.loss {
            Some(tag) => Some(tag.as_str()).filter(|tag| tags.contains(tag)),
            None => USUAL_LOSSES.iter().copied().find(|tag| tags.contains(tag)),
        };
        let Some(loss) = loss else {
            if points.is_empty() {
                log.infer("a file holds no points: its process ended before the first");
                return Ok(());
            }
            let tags: Vec<&str> = tags.into_iter().collect();
            return Err(format!(
                "has no tag '{}'; it has {}: name the loss as an option of the reader",
                self.loss.as_deref().unwrap_or("train/loss"),
                tags.join(", ")
            ));
        };
        if self.loss.is_none() {
            log.infer(&format!("the loss is the tag '{loss}'"));
        }
        let mark = |kind, place: Option<(u64, i64)>| {
            place.map(|(record, at)| {
                let mut event = Event::new(record, kind);
                event.at_micros = Some(at);
                event
            })
        };
        log.events.extend(mark(EventKind::JobStart, first));
        let mut tokens = Tokens::Unknown;
        for point in &points {
            let mut event = Event::new(point.record, EventKind::Step);
            (event.at_micros, event.step, event.loss) =
                (point.at_micros, Some(point.step), Some(point.value));
            if point.tag == loss {
                event.tokens = std::mem::take(&mut tokens);
                log.events.push(event);
            } else if Some(&point.tag) == self.validation_loss.as_ref() {
                event.kind = EventKind::Evaluation;
                event.split = Some(point.tag.clone());
                log.events.push(event);
            } else if Some(&point.tag) == self.tokens.as_ref() && point.value >= 0.0 {
                tokens = Tokens::Total(point.value as u64);
            }
        }
        log.events.extend(mark(EventKind::Mark, last));
        Ok(())
    }
}

/// Calls `each` with every record whose checksums are right: its number from 1 and its bytes.
fn records(
    input: &mut dyn BufRead,
    log: &mut Log,
    each: &mut dyn FnMut(&mut Log, u64, &[u8]),
) -> Result<(), String> {
    const CUT_OFF: &str = "the last record is cut off, as is normal for a process that was stopped";
    let mut bytes = Vec::new();
    let mut number = 0;
    loop {
        let mut take = |bytes: &mut Vec<u8>, count: u64| -> Result<bool, String> {
            bytes.clear();
            let read = (&mut *input).take(count).read_to_end(bytes);
            let read = read.map_err(|error| format!("cannot be read: {error}"))?;
            Ok(read as u64 == count)
        };
        if !take(&mut bytes, 12)? {
            if !bytes.is_empty() {
                log.infer(CUT_OFF);
            }
            log.line_count = number;
            return Ok(());
        }
        number += 1;
        let length = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        if masked_crc(&bytes[..8]).to_le_bytes() != bytes[8..12] {
            // Where the next record begins stands in the damaged length.
            log.bad_line(
                number,
                "the length of the record is damaged; nothing after it can be read",
                "",
            );
            log.line_count = number;
            return Ok(());
        }
        if length > LONGEST_RECORD_BYTES {
            let skipped = std::io::copy(
                &mut (&mut *input).take(length.saturating_add(4)),
                &mut std::io::sink(),
            );
            skipped.map_err(|error| format!("cannot be read: {error}"))?;
            continue;
        }
        if !take(&mut bytes, length + 4)? {
            log.infer(CUT_OFF);
            log.line_count = number;
            return Ok(());
        }
        let (data, checksum) = bytes.split_at(length as usize);
        if masked_crc(data).to_le_bytes() != checksum {
            log.bad_line(number, "the checksum of the record is wrong", "");
            continue;
        }
        each(log, number, data);
    }
}

/// A field of a protocol buffer.
enum Field<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
    Bytes(&'a [u8]),
}

/// The fields of a message with their numbers; `None` where it is damaged.
fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Field<'_>)>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let field = match key & 7 {
            0 => Field::Varint(varint(&mut bytes)?),
            1 => Field::Fixed64(*bytes.split_off(..8)?.first_chunk()?),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                Field::Bytes(bytes.split_off(..length)?)
            }
            5 => Field::Fixed32(*bytes.split_off(..4)?.first_chunk()?),
            _ => return None,
        };
        found.push((key >> 3, field));
    }
    Some(found)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = bytes.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Wall time in seconds, step and scalars of an event.
type Summary = (Option<f64>, u64, Vec<(String, f64)>);

fn summary(bytes: &[u8]) -> Option<Summary> {
    let (mut seconds, mut step, mut scalars) = (None, 0, Vec::new());
    for (number, field) in fields(bytes)? {
        match (number, field) {
            (1, Field::Fixed64(bytes)) => seconds = Some(f64::from_le_bytes(bytes)),
            (2, Field::Varint(value)) => step = value,
            (5, Field::Bytes(values)) => {
                for (number, field) in fields(values)? {
                    if let (1, Field::Bytes(value)) = (number, field) {
                        scalars.extend(scalar(value)?);
                    }
                }
            }
            _ => {}
        }
    }
    Some((seconds, step, scalars))
}

/// Tag and number of a value that is a scalar.
fn scalar(bytes: &[u8]) -> Option<Option<(String, f64)>> {
    let (mut tag, mut value) = (None, None);
    for (number, field) in fields(bytes)? {
        match (number, field) {
            (1, Field::Bytes(text)) => tag = Some(String::from_utf8_lossy(text).into_owned()),
            (2, Field::Fixed32(bytes)) => value = Some(f64::from(f32::from_le_bytes(bytes))),
            (8, Field::Bytes(tensor)) => value = tensor_scalar(tensor)?,
            _ => {}
        }
    }
    Some(tag.zip(value))
}

/// The number of a tensor that holds one float: in its content, or as a list of floats or doubles.
fn tensor_scalar(bytes: &[u8]) -> Option<Option<f64>> {
    let mut value = None;
    for (number, field) in fields(bytes)? {
        value = match (number, field) {
            (4 | 5, Field::Bytes(content)) => match content.len() {
                4 => Some(f64::from(f32::from_le_bytes(*content.first_chunk()?))),
                _ => None,
            },
            (6, Field::Bytes(content)) if content.len() == 8 => {
                Some(f64::from_le_bytes(*content.first_chunk()?))
            }
            (5, Field::Fixed32(bytes)) => Some(f64::from(f32::from_le_bytes(bytes))),
            (6, Field::Fixed64(bytes)) => Some(f64::from_le_bytes(bytes)),
            _ => value,
        };
    }
    Some(value)
}

/// The masked CRC32C (Castagnoli) of TFRecord.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    !bytes.iter().fold(!0, |crc: u32, byte| {
        TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize] ^ (crc >> 8)
    })
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut crc = at as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ 0x82f6_3b78
            } else {
                crc >> 1
            };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut bytes: &[u8]) -> Log {
        let reader = TensorBoard {
            loss: None,
            validation_loss: None,
            tokens: None,
        };
        let mut log = Log::default();
        reader.read(&mut bytes, &mut log).expect("read");
        log
    }

    fn steps(log: &Log) -> Vec<(u64, f64, i64)> {
        let steps = log
            .events
            .iter()
            .filter(|event| event.kind == EventKind::Step);
        steps
            .map(|e| {
                (
                    e.step.expect("a step"),
                    e.loss.expect("a loss"),
                    e.at_micros.expect("a clock") / 1_000_000,
                )
            })
            .collect()
    }

    #[test]
    fn the_checksum_is_castagnolis() {
        // RFC 3720, appendix B.4, and the usual check value.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn points_have_step_loss_and_wall_time() {
        let log = read(SAMPLE);
        assert_eq!(
            steps(&log),
            [(10, 9.5, 1020), (20, 9.0, 1030), (30, 8.5, 1040)]
        );
        assert_eq!(log.events[0].kind, EventKind::JobStart);
        assert_eq!(log.events[0].at_micros, Some(1_000_000_000));
        assert_eq!((log.line_count, log.bad_line_count), (7, 0));
    }

    #[test]
    fn a_last_record_that_is_cut_off_is_said_and_is_no_bad_line() {
        let log = read(&SAMPLE[..SAMPLE.len() - 50]);
        assert_eq!(steps(&log).len(), 2);
        assert_eq!(log.bad_line_count, 0);
        assert!(log.inferred.iter().any(|said| said.contains("cut off")));
    }

    #[test]
    fn a_record_with_a_wrong_checksum_is_left_out_and_the_rest_is_read() {
        let mut bytes = SAMPLE.to_vec();
        let at = bytes
            .windows(10)
            .position(|w| w == b"train/loss")
            .expect("there");
        bytes[at] ^= 1;
        let log = read(&bytes);
        assert_eq!(steps(&log), [(20, 9.0, 1030), (30, 8.5, 1040)]);
        assert_eq!((log.bad_line_count, log.bad_lines[0].line), (1, 2));
    }

    #[test]
    fn a_damaged_length_ends_the_reading_with_a_word() {
        let mut bytes = SAMPLE.to_vec();
        let second = 12 + u64::from_le_bytes(SAMPLE[..8].try_into().expect("eight")) as usize + 4;
        bytes[second + 8] ^= 1;
        let log = read(&bytes);
        assert_eq!(log.bad_lines[0].line, 2);
        assert!(log.bad_lines[0].message.contains("nothing after it"));
    }

    #[test]
    fn scalars_of_tensorflow_are_tensors() {
        // dtype float, content 2.5.
        let tensor = [8, 1, 34, 4, 0, 0, 32, 64];
        assert_eq!(tensor_scalar(&tensor), Some(Some(2.5)));
        let mut value = vec![10, 4];
        value.extend(b"loss");
        value.extend([66, 8]);
        value.extend(tensor);
        assert_eq!(scalar(&value), Some(Some(("loss".to_string(), 2.5))));
    }

    #[test]
    fn a_tag_that_is_not_there_is_refused_with_those_that_are() {
        let reader = TensorBoard {
            loss: Some("los".to_string()),
            validation_loss: None,
            tokens: None,
        };
        let error = reader
            .read(&mut { SAMPLE }, &mut Log::default())
            .expect_err("refused");
        assert_eq!(
            error,
            "has no tag 'los'; it has lr, train/loss: name the loss as an option of the reader"
        );
    }
}
