//! Stdout of Megatron-LM: `key: value` cells between bars.

use super::lines::{after, for_each, number, whole};
use super::{Event, EventKind, Log, LogKind, Reader, Span, Tokens, clock, micros_of_seconds, spec};
use std::io::BufRead;

/// `megatron`.
pub static KIND: LogKind = LogKind {
    spec: spec(
        "megatron",
        "Stdout of Megatron-LM and what descends from it.",
        "\
Read are the iteration lines (consumed samples or tokens, milliseconds per iteration, lm loss, skipped and nan
iterations, which are lost steps), the 'datetime:' lines, saving and loading of checkpoints and their timers.
Tokens = consumed samples x sequence length, so the model needs 'sequence_tokens'. Older versions write no clock on
their lines: then time is unknown.",
        &[],
        "{}",
    ),
    sample: b"[before the start of training step] datetime: 2024-10-16 04:20:00 \n\
 [2024-10-16 04:20:20] iteration       10/  500000 | consumed samples:         1280 | elapsed time per iteration (ms): 2000.0 | learning rate: 4.000000E-07 | global batch size:   128 | lm loss: 1.177651E+01 | loss scale: 1.0 | grad norm: 0.493 | number of skipped iterations:   0 | number of nan iterations:   0 |\n\
 [2024-10-16 04:20:40] iteration       20/  500000 | consumed samples:         2560 | elapsed time per iteration (ms): 2000.0 | learning rate: 6.000000E-07 | global batch size:   128 | lm loss: 1.077523E+01 | loss scale: 1.0 | grad norm: 0.476 | number of skipped iterations:   1 | number of nan iterations:   0 |\n\
  successfully saved checkpoint from iteration      20 to /checkpoints [ t 1/1, p 1/1 ]\n\
(min, max) time across ranks (ms):\n\
    save-checkpoint ................................: (3000.10, 3001.25)\n\
 [2024-10-16 04:21:03] iteration       30/  500000 | consumed samples:         3840 | elapsed time per iteration (ms): 2000.0 | learning rate: 8.000000E-07 | global batch size:   128 | lm loss: 9.177628E+00 | loss scale: 1.0 | grad norm: 0.476 | number of skipped iterations:   0 | number of nan iterations:   0 |\n\
[exiting program at iteration 30] datetime: 2024-10-16 04:21:04 \n",
    recognises: |head| head.text.lines().any(|line| cells(line).is_some()),
    build: |_| Ok(Box::new(Megatron)),
};

/// The iteration of an iteration line.
fn cells(line: &str) -> Option<u64> {
    let rest = after(line, "iteration ")?;
    let step = whole(rest)?;
    let behind = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    (behind.starts_with('/') && line.contains("elapsed time per iteration (ms):")).then_some(step)
}

/// A cell's value.
fn cell<'t>(line: &'t str, key: &str) -> Option<&'t str> {
    line.split('|').find_map(|cell| {
        let (name, value) = cell.rsplit_once(':')?;
        // The first cell has a clock and the iteration before it.
        (name.trim() == key).then(|| value.trim())
    })
}

struct Megatron;

impl Reader for Megatron {
    fn read(&self, input: &mut dyn BufRead, log: &mut Log) -> Result<(), String> {
        let mut restored = None;
        for_each(input, log, &mut |log, line, text, ended| {
            if let Some(step) = cells(text) {
                if !text.trim_end().ends_with('|') && !ended {
                    log.bad_line(line, "the last line is cut off", text);
                    return;
                }
                match row(line, step, text) {
                    Ok(event) => log.events.push(event),
                    Err(message) => log.bad_line(line, &message, text),
                }
                return;
            }
            let push = |log: &mut Log, kind, at, step, span| {
                let mut event = Event::new(line, kind);
                (event.at_micros, event.step, event.span) = (at, step, span);
                log.events.push(event);
            };
            if let Some(rest) = after(text, "datetime:") {
                let at = clock::date_time(rest).map(|(at, _)| at);
                let kind = match () {
                    () if text.contains("before the start of training step")
                        || text.contains("megatron is initialized") =>
                    {
                        EventKind::JobStart
                    }
                    () if text.contains("exiting program") => EventKind::JobEnd,
                    () => EventKind::Mark,
                };
                let step = match kind {
                    EventKind::JobStart => restored.take(),
                    _ => None,
                };
                if at.is_some() {
                    push(log, kind, at, step, Span::Unknown);
                }
            } else if let Some(rest) = after(text, "successfully loaded checkpoint from") {
                restored = after(rest, "at iteration").and_then(whole);
                push(
                    log,
                    EventKind::CheckpointRestore,
                    None,
                    restored,
                    Span::Unknown,
                );
            } else if let Some(rest) = after(text, "successfully saved checkpoint from iteration") {
                push(
                    log,
                    EventKind::CheckpointSave,
                    None,
                    whole(rest),
                    Span::Unknown,
                );
            } else if let Some(milliseconds) = timer(text, "save-checkpoint") {
                // The line before said that it was saved; this one how long that took.
                match log.events.last_mut() {
                    Some(event)
                        if event.kind == EventKind::CheckpointSave
                            && event.span == Span::Unknown =>
                    {
                        event.span = milliseconds;
                    }
                    _ => push(log, EventKind::CheckpointSave, None, None, milliseconds),
                }
            } else if let Some(milliseconds) = timer(text, "load-checkpoint") {
                push(
                    log,
                    EventKind::CheckpointRestore,
                    None,
                    restored,
                    milliseconds,
                );
            } else if let Some(milliseconds) = timer(text, "evaluate") {
                push(log, EventKind::Evaluation, None, None, milliseconds);
            } else if let Some(rest) = after(text, "validation loss at iteration") {
                let mut event = Event::new(line, EventKind::Evaluation);
                event.step = whole(rest);
                event.loss = after(rest, "lm loss value:").and_then(number);
                log.events.push(event);
            } else if text.contains("Traceback (most recent call last)") {
                push(log, EventKind::Failure, None, None, Span::Unknown);
            }
        })
    }
}

/// The slowest rank's milliseconds of a timer.
fn timer(text: &str, name: &str) -> Option<Span> {
    let rest = text.trim_start().strip_prefix(name)?;
    let (dots, values) = rest.split_once(':')?;
    if !dots.trim().bytes().all(|byte| byte == b'.') {
        return None;
    }
    let values = values.trim().trim_start_matches('(').trim_end_matches(')');
    let slowest = values.rsplit(',').next().and_then(number)?;
    micros_of_seconds(slowest / 1e3).map(Span::Whole)
}

fn row(line: u64, step: u64, text: &str) -> Result<Event, String> {
    let mut event = Event::new(line, EventKind::Step);
    event.step = Some(step);
    // iteration 10/ 500000: the second number is where the schedule ends.
    event.total_steps = after(text, "iteration ")
        .and_then(|rest| rest.split_once('/'))
        .and_then(|(_, rest)| whole(rest));
    event.learning_rate = cell(text, "learning rate").and_then(number);
    event.at_micros = text
        .trim_start()
        .strip_prefix('[')
        .and_then(clock::date_time)
        .map(|(at, _)| at);
    let milliseconds = cell(text, "elapsed time per iteration (ms)")
        .and_then(number)
        .ok_or("'elapsed time per iteration (ms)' is no number")?;
    event.span = micros_of_seconds(milliseconds / 1e3).map_or(Span::Unknown, Span::PerStep);
    event.tokens = match (
        cell(text, "consumed tokens"),
        cell(text, "consumed samples"),
    ) {
        (Some(tokens), _) => whole(tokens).map_or(Tokens::Unknown, Tokens::Total),
        (None, Some(samples)) => whole(samples).map_or(Tokens::Unknown, Tokens::TotalSequences),
        _ => Tokens::Unknown,
    };
    event.loss = cell(text, "lm loss")
        .or_else(|| cell(text, "loss"))
        .and_then(number);
    let lost = |key| cell(text, key).and_then(whole).unwrap_or(0);
    event.lost_steps = lost("number of skipped iterations") + lost("number of nan iterations");
    Ok(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Event> {
        let mut log = Log::default();
        Megatron.read(&mut text.as_bytes(), &mut log).expect("read");
        log.events
    }

    #[test]
    fn lines_of_older_versions_have_no_clock_and_may_count_tokens() {
        let events = read(
            " iteration        1/  317892 | consumed samples:           96 | consumed tokens:       393216 | elapsed \
             time per iteration (ms): 25849.1 | global batch size:    96 | lm loss: 1.117136E+01 | number of skipped \
             iterations:   1 | number of nan iterations:   2 |\n",
        );
        let event = &events[0];
        assert_eq!((event.at_micros, event.step), (None, Some(1)));
        assert_eq!(event.tokens, Tokens::Total(393_216));
        assert_eq!(event.span, Span::PerStep(25_849_100));
        assert_eq!((event.loss, event.lost_steps), (Some(11.17136), 3));
    }

    #[test]
    fn a_timer_gives_its_seconds_to_the_checkpoint_before_it() {
        let sample = read(std::str::from_utf8(KIND.sample).expect("text"));
        let saves: Vec<_> = sample
            .iter()
            .filter(|event| event.kind == EventKind::CheckpointSave)
            .collect();
        assert_eq!(saves.len(), 1);
        assert_eq!(
            (saves[0].step, saves[0].span),
            (Some(20), Span::Whole(3_001_250))
        );
    }

    #[test]
    fn loading_names_the_iteration_to_go_on_from() {
        let events = read(
            "  successfully loaded checkpoint from /checkpoints [ t 1/1, p 1/1 ] at iteration 500\n\
             (min, max) time across ranks (ms):\n    load-checkpoint ...: (980.00, 1000.00)\n\
             [before the start of training step] datetime: 2024-10-16 04:20:00 \n",
        );
        let found: Vec<_> = events
            .iter()
            .map(|event| (event.kind, event.step, event.span))
            .collect();
        assert_eq!(
            found,
            [
                (EventKind::CheckpointRestore, Some(500), Span::Unknown),
                (
                    EventKind::CheckpointRestore,
                    Some(500),
                    Span::Whole(1_000_000)
                ),
                (EventKind::JobStart, Some(500), Span::Unknown),
            ]
        );
    }
}
