//! A walk over the table: every format keeps one contract.

use super::*;
use crate::record::{Kind, OptionSpec, Value};
use std::collections::BTreeSet;

/// The options with their defaults.
fn defaults(specs: &[OptionSpec]) -> Options {
    let mut options = Options::default();
    for spec in specs {
        assert!(matches!(spec.kind, Kind::Text), "'{}' is a text", spec.name);
        let value = match spec
            .default
            .expect("every option of a reader has a default")
        {
            "null" => Value::Null,
            text => Value::Text(text.to_string()),
        };
        options.set(spec.name, value);
    }
    options
}

fn read(kind: &LogKind, bytes: &[u8]) -> (Log, Result<(), String>) {
    let reader = (kind.build)(&defaults(kind.spec.options)).expect("defaults are valid");
    let mut log = Log::default();
    let result = reader.read(&mut { bytes }, &mut log);
    (log, result)
}

/// The events without the places where they stand.
fn told(log: &Log) -> Vec<Event> {
    let bare = |event: &Event| Event {
        line: 0,
        ..event.clone()
    };
    log.events.iter().map(bare).collect()
}

fn is_binary(kind: &LogKind) -> bool {
    std::str::from_utf8(kind.sample).is_err()
}

/// Whether a line alone says something.
fn is_lines(kind: &LogKind) -> bool {
    !is_binary(kind) && kind.spec.name != "hf_trainer"
}

#[test]
fn every_sample_is_read_and_recognised_by_its_format_alone() {
    let mut names = BTreeSet::new();
    for kind in TABLE {
        let name = kind.spec.name;
        assert!(names.insert(name), "'{name}' stands twice");
        assert!(!kind.spec.summary.is_empty() && !kind.spec.details.is_empty());
        let recognised: Vec<&str> = guess(kind.sample)
            .iter()
            .map(|kind| kind.spec.name)
            .collect();
        assert_eq!(recognised, [name]);
        let (log, result) = read(kind, kind.sample);
        assert_eq!(
            (result, log.bad_line_count),
            (Ok(()), 0),
            "{name}: {:?}",
            log.bad_lines
        );
        let steps: Vec<u64> = log
            .events
            .iter()
            .filter(|event| event.kind == EventKind::Step)
            .map(|event| event.step.expect("a step has a number"))
            .collect();
        assert!(steps.len() >= 2 && steps.is_sorted(), "{name}: {steps:?}");
        assert!(
            log.events.iter().any(|event| event.loss.is_some()),
            "{name}"
        );
        assert!(
            log.events
                .iter()
                .all(|event| event.line > 0 && event.line <= log.line_count),
            "{name}"
        );
        assert_eq!(read(kind, kind.sample).0, log, "{name}: two readings agree");
    }
}

#[test]
fn a_log_that_is_cut_off_anywhere_is_read_up_to_there() {
    for kind in TABLE {
        let whole = told(&read(kind, kind.sample).0);
        for end in 0..kind.sample.len() {
            let (log, result) = read(kind, &kind.sample[..end]);
            // One JSON document is nothing before its end; of files with options the head must be whole.
            let partial = told(&log);
            if result.is_ok() && is_lines(kind) {
                let steps = |events: &[Event]| -> Vec<(Option<u64>, Option<i64>)> {
                    let steps = events.iter().filter(|event| event.kind == EventKind::Step);
                    steps.map(|event| (event.step, event.at_micros)).collect()
                };
                let (found, all) = (steps(&partial), steps(&whole));
                assert!(found.len() <= all.len(), "{} at {end}", kind.spec.name);
                assert_eq!(found[..], all[..found.len()], "{} at {end}", kind.spec.name);
            }
        }
    }
}

#[test]
fn colours_line_ends_and_foreign_lines_change_nothing() {
    for kind in TABLE.iter().filter(|kind| is_lines(kind)) {
        let name = kind.spec.name;
        let text = std::str::from_utf8(kind.sample).expect("text");
        let (log, _) = read(kind, kind.sample);
        let windows = text.replace('\n', "\r\n");
        assert_eq!(
            told(&read(kind, windows.as_bytes()).0),
            told(&log),
            "{name}"
        );
        let coloured: String = text
            .lines()
            .map(|line| format!("\x1b[32m{line}\x1b[0m\n"))
            .collect();
        assert_eq!(
            told(&read(kind, coloured.as_bytes()).0),
            told(&log),
            "{name}"
        );
        // Behind each step, so that no block of lines is torn.
        let foreign = text.to_string() + "NCCL warning: \u{fffd} something else\n\0\0\0\n";
        let (with, result) = read(kind, foreign.as_bytes());
        assert_eq!((result, told(&with)), (Ok(()), told(&log)), "{name}");
    }
}

#[test]
fn nothing_and_noise_are_no_panic() {
    let noise: Vec<u8> = (0..20_000u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    for kind in TABLE {
        for bytes in [&b""[..], b"\n\n", b"{", b"{}\n[]\nnull\n", &noise] {
            let (log, _) = read(kind, bytes);
            assert!(log.events.is_empty(), "{}", kind.spec.name);
        }
        for at in (0..kind.sample.len()).step_by(3) {
            let mut damaged = kind.sample.to_vec();
            damaged[at] ^= 0x15;
            let _ = read(kind, &damaged);
        }
    }
    assert!(guess(&noise).is_empty() && guess(b"").is_empty());
}

#[test]
fn packed_files_are_named() {
    assert!(packed(&[0x1f, 0x8b, 8]).is_some_and(|text| text.contains("gunzip")));
    assert!(packed(&[0x28, 0xb5, 0x2f, 0xfd]).is_some_and(|text| text.contains("unzstd")));
    assert!(packed(b"{}").is_none());
}
