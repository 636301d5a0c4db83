//! The program's own event format: JSON Lines that any trainer can write in twenty lines.

use super::json::{number, parse, whole};
use super::lines::for_each;
use super::{
    Event, EventKind, Head, Log, LogKind, Reader, RowsRead, Span, Tokens, clock, micros_of_seconds,
    spec,
};
use serde_json::{Map, Value};
use std::io::BufRead;

/// `events`.
pub static KIND: LogKind = LogKind {
    spec: spec(
        "events",
        "JSON Lines with an event a line, for trainers that can be changed.",
        "\
Keys: run (text), attempt (number of the process, from 1), ts (seconds since 1970, or a text like
2026-03-10T12:34:56Z): when the event ended; kind; step (of 'step' the optimizer step that ended; of 'ckpt_restore' the
step that training goes on from); tokens (of a step token places since the step line before, of an 'eval' those that its
loss is the mean of); flops (of the steps since the line before); loss (nats a token); split and bytes (of an 'eval':
which data, UTF-8 bytes of its text); dur_s (seconds up to ts); tag (words with spaces between); learning_rate (of a
'step'); total_steps (of 'job_start': where the schedule of the learning rate ends). Only kind is required; other keys
are left alone. Words of tag: of 'job_start' dataset=CHECKSUM names the manifest of what is read; of an 'eval'
dataset=CHECKSUM names the held-out set, source=NAME says that it is that source's part of it, and 'weighted' that the
loss is weighted, which counts for nothing.
Of 'step' also what was read since the step line before, which is compared with the shards: row (position of the first
row), rows (how many), ids_crc32 (the sum over these rows of the CRC-32 of their input_ids, as little-endian 32-bit
numbers: sum(zlib.crc32(numpy.asarray(ids, '<u4')) for ids in rows), in any order, added up over all processes).
Kinds: job_start job_end init prep compile data_wait step ckpt_save ckpt_restore eval custom failure.
Write for data_wait, ckpt_save and the like only what training waited for: an event inside the time of a step is taken
out of the step.",
        &[],
        "{}",
    ),
    sample: br#"{"run":"a","attempt":1,"ts":1000.0,"kind":"job_start"}
{"run":"a","attempt":1,"ts":1020.0,"kind":"init","dur_s":20.0}
{"run":"a","attempt":1,"ts":1030.0,"kind":"step","step":1,"tokens":4096,"loss":9.5,"dur_s":10.0}
{"run":"a","attempt":1,"ts":1040.0,"kind":"step","step":2,"tokens":4096,"loss":9.1,"dur_s":10.0}
{"run":"a","attempt":1,"ts":1042.5,"kind":"ckpt_save","step":2,"dur_s":2.5}
{"run":"a","attempt":1,"ts":1050.0,"kind":"eval","step":2,"split":"target","loss":8.8,"tokens":12000,"bytes":52000,"dur_s":7.5}
{"run":"a","attempt":1,"ts":1050.0,"kind":"job_end"}
"#,
    recognises,
    build: |_| Ok(Box::new(Events)),
};

fn recognises(head: &Head<'_>) -> bool {
    head.text.lines().any(|line| {
        let line = line.trim();
        line.starts_with('{')
            && parse(line).is_ok_and(|value| {
                value["kind"]
                    .as_str()
                    .is_some_and(|kind| EventKind::WORDS.iter().any(|(word, _)| *word == kind))
            })
    })
}

struct Events;

impl Reader for Events {
    fn read(&self, input: &mut dyn BufRead, log: &mut Log) -> Result<(), String> {
        for_each(input, log, &mut |log, line, text, ended| {
            let found = parse(text)
                .map_err(|error| match ended {
                    true => format!("is no JSON ({error})"),
                    false => "the last line is cut off".to_string(),
                })
                .and_then(|value| event(line, &value));
            match found {
                Ok(event) => log.events.push(event),
                Err(message) => log.bad_line(line, &message, text),
            }
        })
    }
}

fn event(line: u64, value: &Value) -> Result<Event, String> {
    let Some(keys) = value.as_object() else {
        return Err("is no JSON object".to_string());
    };
    let word = keys
        .get("kind")
        .and_then(Value::as_str)
        .ok_or("has no 'kind'")?;
    let kind = EventKind::WORDS
        .iter()
        .find(|(known, _)| *known == word)
        .map(|(_, kind)| *kind)
        .ok_or_else(|| {
            let words: Vec<&str> = EventKind::WORDS.iter().map(|(word, _)| *word).collect();
            format!("'kind' must be one of {}, got '{word}'", words.join(" "))
        })?;
    let mut event = Event::new(line, kind);
    event.run = text(keys, "run")?;
    event.attempt = whole_number(keys, "attempt")?;
    event.at_micros = match keys.get("ts") {
        None | Some(Value::Null) => None,
        Some(Value::String(written)) => Some(
            clock::date_time(written)
                .ok_or("'ts' must be seconds since 1970 or a time like 2026-03-10T12:34:56Z")?
                .0,
        ),
        Some(other) => Some(
            number(other)
                .and_then(micros_of_seconds)
                .ok_or("'ts' must be seconds since 1970 or a time like 2026-03-10T12:34:56Z")?,
        ),
    };
    event.span = match real(keys, "dur_s")? {
        None => Span::Unknown,
        Some(seconds) => {
            Span::Whole(micros_of_seconds(seconds).ok_or("'dur_s' must be a finite number")?)
        }
    };
    event.step = whole_number(keys, "step")?;
    event.tokens = whole_number(keys, "tokens")?.map_or(Tokens::Unknown, Tokens::Event);
    event.flops = real(keys, "flops")?;
    event.loss = real(keys, "loss")?;
    event.split = text(keys, "split")?;
    event.bytes = whole_number(keys, "bytes")?;
    event.learning_rate = real(keys, "learning_rate")?;
    event.total_steps = whole_number(keys, "total_steps")?;
    event.tag = text(keys, "tag")?;
    event.read = RowsRead {
        first: whole_number(keys, "row")?,
        rows: whole_number(keys, "rows")?,
        ids_crc32: whole_number(keys, "ids_crc32")?,
    };
    if kind == EventKind::Step && event.step.is_none() {
        return Err("a 'step' needs the number of its step".to_string());
    }
    Ok(event)
}

fn text(keys: &Map<String, Value>, key: &str) -> Result<Option<String>, String> {
    match keys.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(format!("'{key}' must be a text, got {other}")),
    }
}

fn whole_number(keys: &Map<String, Value>, key: &str) -> Result<Option<u64>, String> {
    match keys.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match whole(value) {
            Some(whole) => Ok(Some(whole)),
            None => Err(format!(
                "'{key}' must be a whole number, 0 or more, got {value}"
            )),
        },
    }
}

fn real(keys: &Map<String, Value>, key: &str) -> Result<Option<f64>, String> {
    match keys.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match number(value) {
            Some(number) => Ok(Some(number)),
            None => Err(format!("'{key}' must be a number, got {value}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Log {
        let mut log = Log::default();
        Events.read(&mut text.as_bytes(), &mut log).expect("read");
        log
    }

    #[test]
    fn every_key_is_read() {
        let log = read(
            "{\"run\":\"a\",\"attempt\":2,\"ts\":\"1970-01-01T00:00:10Z\",\"kind\":\"eval\",\"step\":7,\"tokens\":9,\
             \"flops\":1e3,\"loss\":NaN,\"split\":\"general\",\"bytes\":5,\"dur_s\":-1.5,\"learning_rate\":3e-4,\
             \"total_steps\":9,\"tag\":\"t\",\"row\":8,\"rows\":4,\"ids_crc32\":17179869180,\"other\":[]}\n",
        );
        let event = &log.events[0];
        assert_eq!((event.run.as_deref(), event.attempt), (Some("a"), Some(2)));
        assert_eq!(event.at_micros, Some(10_000_000));
        assert_eq!(event.kind, EventKind::Evaluation);
        let read = RowsRead {
            first: Some(8),
            rows: Some(4),
            ids_crc32: Some(17_179_869_180),
        };
        assert_eq!(event.read, read);
        assert_eq!((event.step, event.tokens), (Some(7), Tokens::Event(9)));
        assert_eq!(
            (event.learning_rate, event.total_steps),
            (Some(3e-4), Some(9))
        );
        assert_eq!(event.flops, Some(1e3));
        assert!(event.loss.is_some_and(f64::is_nan));
        assert_eq!(
            (event.split.as_deref(), event.bytes),
            (Some("general"), Some(5))
        );
        assert_eq!(
            (event.span, event.tag.as_deref()),
            (Span::Whole(-1_500_000), Some("t"))
        );
    }

    #[test]
    fn bad_lines_are_named_and_the_rest_is_used() {
        let log = read(
            "loading\n{\"kind\":\"setp\"}\n{\"kind\":\"step\"}\n{\"kind\":\"step\",\"step\":1.5}\n\
             {\"kind\":\"step\",\"step\":1,\"ts\":\"soon\"}\n{\"kind\":\"job_end\"}\n{\"kind\":\"st",
        );
        assert_eq!(log.events.len(), 1);
        assert_eq!(log.bad_line_count, 6);
        let messages: Vec<&str> = log
            .bad_lines
            .iter()
            .map(|bad| bad.message.as_str())
            .collect();
        for (at, (line, part)) in [
            (1, "is no JSON"),
            (2, "got 'setp'"),
            (3, "needs the number of its step"),
            (4, "'step' must be a whole number"),
            (5, "'ts' must be seconds"),
            (7, "cut off"),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(log.bad_lines[at].line, line);
            assert!(messages[at].contains(part), "{}", messages[at]);
        }
    }
}
