//! Stdout of torchtitan: a line of metrics every few steps, in colours, by each rank.

use super::lines::{after, for_each, number, whole};
use super::{Event, EventKind, Log, LogKind, Reader, Span, Tokens, clock, micros_of_seconds, spec};
use std::io::BufRead;

/// `torchtitan`.
pub static KIND: LogKind = LogKind {
    spec: spec(
        "torchtitan",
        "Stdout of torchtitan.",
        "\
Read are the lines of metrics (step, loss, tps or wps, which are per device), saving and loading of checkpoints with
their seconds, and the first and last line of each process. Where several ranks write into one file, the first one that
shows metrics is followed.",
        &[],
        "{}",
    ),
    sample: b"[rank0]:[titan] 2025-03-10 12:00:00,000 - root - INFO - Starting job: debug\n\
[rank0]:[titan] 2025-03-10 12:00:30,000 - root - INFO - Training starts at step 1.\n\
[rank0]:[titan] 2025-03-10 12:00:42,000 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss: 12.2517  \x1b[33mmemory: 26.89GiB(28.31%)  \x1b[34mtps: 341  \x1b[36mtflops: 18.20  \x1b[35mmfu: N/A\x1b[39m\n\
[rank0]:[titan] 2025-03-10 12:01:00,000 - root - INFO - \x1b[31mstep: 10  \x1b[32mloss: 10.0412  \x1b[33mmemory: 32.89GiB(34.63%)  \x1b[34mtps: 2,048  \x1b[36mtflops: 109.20  \x1b[35mmfu: 11.04%\x1b[39m\n\
[rank0]:[titan] 2025-03-10 12:01:05,000 - root - INFO - Finished saving the checkpoint (or staging if async is enabled)in 5.00 seconds.\n\
[rank0]:[titan] 2025-03-10 12:01:25,000 - root - INFO - \x1b[31mstep: 20  \x1b[32mloss: 8.1102  \x1b[33mmemory: 32.89GiB(34.63%)  \x1b[34mtps: 2,048  \x1b[36mtflops: 109.20  \x1b[35mmfu: 11.04%\x1b[39m\n\
[rank0]:[titan] 2025-03-10 12:01:26,000 - root - INFO - Training completed\n",
    recognises: |head| head.text.lines().any(|line| {
        row(line).is_some() && (line.contains(" - INFO - ") || line.contains("[titan]"))
    }),
    build: |_| Ok(Box::new(Torchtitan)),
};

/// Step, loss and tokens a second and device of a line of metrics.
fn row(line: &str) -> Option<(u64, Option<f64>, f64)> {
    let at = line.find("step:")?;
    if line[..at].ends_with("validate ") {
        return None;
    }
    let metrics = &line[at..];
    let step = whole(after(metrics, "step:")?)?;
    let speed = after(metrics, " tps:").or_else(|| after(metrics, " wps:"))?;
    // The column after it must be there, else the number may be cut off.
    after(metrics, " mfu:")?;
    Some((
        step,
        after(metrics, "loss:").and_then(number),
        number(speed)?,
    ))
}

struct Torchtitan;

/// The rank that wrote a line, the clock of the line, and the message.
fn parts(line: &str) -> (Option<u64>, Option<i64>, &str) {
    let rank = after(line, "[rank").and_then(|rest| {
        let (digits, _) = rest.split_once(']')?;
        digits.parse().ok()
    });
    let clock = line.char_indices().take(64).find_map(|(at, c)| {
        let found = c.is_ascii_digit().then(|| clock::date_time(&line[at..]))?;
        found.map(|(micros, length)| (micros, at + length))
    });
    match clock {
        Some((micros, end)) => (rank, Some(micros), &line[end..]),
        None => (rank, None, line),
    }
}

impl Reader for Torchtitan {
    fn read(&self, input: &mut dyn BufRead, log: &mut Log) -> Result<(), String> {
        let mut followed: Option<u64> = None;
        let mut last: Option<(u64, i64)> = None;
        let mut restored = None;
        for_each(input, log, &mut |log, line, text, ended| {
            let (rank, at, message) = parts(text);
            if let (Some(followed), Some(rank)) = (followed, rank)
                && rank != followed
            {
                log.infer(
                    "several ranks wrote into one file: the first that shows metrics is followed",
                );
                return;
            }
            // A launcher may have written before: that belongs to the same process.
            let fresh = log
                .events
                .iter()
                .all(|event| event.kind == EventKind::JobStart);
            let begins = message.contains("Starting job:") && !fresh;
            if (log.events.is_empty() && at.is_some()) || begins {
                let mut start = Event::new(line, EventKind::JobStart);
                start.at_micros = at;
                log.events.push(start);
            }
            let push = |log: &mut Log, kind, step, span| {
                let mut event = Event::new(line, kind);
                (event.at_micros, event.step, event.span) = (at, step, span);
                log.events.push(event);
            };
            let seconds = |text: &str| -> Span {
                let found = text.rsplit_once("in ").and_then(|(_, rest)| number(rest));
                found
                    .and_then(micros_of_seconds)
                    .map_or(Span::Unknown, Span::Whole)
            };
            if let Some((step, loss, tokens)) = row(message) {
                followed = followed.or(rank);
                let mut event = Event::new(line, EventKind::Step);
                (event.at_micros, event.step, event.loss) = (at, Some(step), loss);
                event.tokens = Tokens::PerSecondPerChip(tokens);
                log.events.push(event);
            } else if message.contains("Finished saving the checkpoint") {
                push(log, EventKind::CheckpointSave, None, seconds(message));
            } else if let Some(rest) = after(message, "Loading the checkpoint at step ") {
                restored = whole(rest);
            } else if message.contains("Finished loading the checkpoint") {
                push(
                    log,
                    EventKind::CheckpointRestore,
                    restored.take(),
                    seconds(message),
                );
            } else if let Some(rest) = after(message, "Training starts at step ") {
                // Step 1 is the first: what came before it was read from a checkpoint.
                if let Some(step) =
                    whole(rest.trim_end_matches('.')).and_then(|step| step.checked_sub(1))
                    && let Some(start) = log
                        .events
                        .iter_mut()
                        .rev()
                        .find(|e| e.kind == EventKind::JobStart)
                {
                    start.step = Some(step);
                }
            } else if message.contains("Training completed") {
                push(log, EventKind::JobEnd, None, Span::Unknown);
            } else if message.contains("Traceback (most recent call last)") {
                push(log, EventKind::Failure, None, Span::Unknown);
            } else if let Some(rest) = after(message, "validate step:") {
                // How long it took is not written: from the line before.
                let span = match (at, last) {
                    (Some(at), Some((_, before))) => {
                        log.infer("validation has no seconds of its own: it is timed from the line before it");
                        Span::Whole(at - before)
                    }
                    _ => Span::Unknown,
                };
                let mut event = Event::new(line, EventKind::Evaluation);
                (event.at_micros, event.step, event.span) = (at, whole(rest), span);
                event.loss = after(message, "loss:").and_then(number);
                log.events.push(event);
            } else if message.contains("step:") && message.contains("loss:") {
                let what = if ended {
                    "a line of metrics without tps and mfu"
                } else {
                    "the last line is cut off"
                };
                log.bad_line(line, what, text);
            }
            if let Some(at) = at {
                last = Some((line, at));
            }
        })?;
        end_mark(log, last);
        Ok(())
    }
}

/// The last sign of life of a process.
fn end_mark(log: &mut Log, last: Option<(u64, i64)>) {
    if let Some((line, at)) = last
        && log
            .events
            .last()
            .is_some_and(|event| event.at_micros.is_some_and(|known| known < at))
    {
        let mut mark = Event::new(line, EventKind::Mark);
        mark.at_micros = Some(at);
        log.events.push(mark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Log {
        let mut log = Log::default();
        Torchtitan
            .read(&mut text.as_bytes(), &mut log)
            .expect("read");
        log
    }

    const HEAD: &str = "[titan] 2025-03-10 12:00:0";

    #[test]
    fn old_and_new_spellings_are_read() {
        assert_eq!(
            row(
                "step: 640/644 = 99.3789%  loss:  6.2116  memory: 87.04GiB(93.48%)  tps: 52,142  mfu: 3.09%"
            ),
            Some((640, Some(6.2116), 52_142.0))
        );
        assert_eq!(
            row("step:  1  loss:  8.2  memory: 1GiB(1%)  wps: 5  mfu: N/A"),
            Some((1, Some(8.2), 5.0))
        );
        assert_eq!(
            row("step:  1  loss:  8.2  memory: 1GiB(1%)  tps: 5,0"),
            None
        );
        assert_eq!(
            row("validate step: 10  loss:  8.2  memory: 1GiB  tps: 5  mfu: 1%"),
            None
        );
    }

    #[test]
    fn of_several_ranks_one_is_followed() {
        let row = |rank: u32| {
            format!(
                "[rank{rank}]:{HEAD}1,000 - root - INFO - step: 10  loss: 5.0  tps: 7  mfu: 1%\n"
            )
        };
        let log = read(&(row(1) + &row(0)));
        let steps = log
            .events
            .iter()
            .filter(|event| event.kind == EventKind::Step)
            .count();
        assert_eq!(steps, 1);
        assert!(log.inferred[0].contains("ranks"));
    }

    #[test]
    fn a_process_that_resumes_says_from_where() {
        let log = read(&format!(
            "{HEAD}0,000 - root - INFO - Starting job: x\n{HEAD}1,000 - root - INFO - Loading the checkpoint at step 100.\n\
             {HEAD}3,500 - root - INFO - Finished loading the checkpoint in 2.50 seconds.\n\
             {HEAD}4,000 - root - INFO - Training starts at step 101.\n"
        ));
        let kinds: Vec<_> = log
            .events
            .iter()
            .map(|event| (event.kind, event.step, event.span))
            .collect();
        assert_eq!(
            kinds,
            [
                (EventKind::JobStart, Some(100), Span::Unknown),
                (
                    EventKind::CheckpointRestore,
                    Some(100),
                    Span::Whole(2_500_000)
                ),
                (EventKind::Mark, None, Span::Unknown),
            ]
        );
    }
}
