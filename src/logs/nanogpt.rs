//! Stdout of nanoGPT: a line every few iterations, with milliseconds and no clock.

use super::lines::{after, for_each, number, whole};
use super::{Event, EventKind, Log, LogKind, Reader, Span, Tokens, micros_of_seconds, spec};
use std::io::BufRead;

/// `nanogpt`.
pub static KIND: LogKind = LogKind {
    spec: spec(
        "nanogpt",
        "Stdout of nanoGPT.",
        "\
Read are the iter lines (loss, milliseconds of that iteration), the evaluations, and tokens per iteration. Nothing in
such a log tells the time of day, so what lies between its lines is unknown, and with it the wall clock.",
        &[],
        "{}",
    ),
    sample: b"tokens per iteration will be: 491,520\n\
step 0: train loss 10.9898, val loss 10.9897\n\
iter 0: loss 10.9886, time 4032.12ms, mfu -100.00%\n\
iter 10: loss 9.8121, time 400.25ms, mfu 35.20%\n\
iter 20: loss 8.9023, time 400.75ms, mfu 35.18%\n",
    recognises: |head| head.text.lines().any(|line| row(line).is_some()),
    build: |_| Ok(Box::new(NanoGpt)),
};

/// Iteration, loss and milliseconds.
fn row(line: &str) -> Option<(u64, f64, f64)> {
    let rest = line.trim_start().strip_prefix("iter ")?;
    let step = whole(rest)?;
    let (_, milliseconds) = rest.split_once(", time ")?;
    milliseconds.contains("ms").then_some(())?;
    Some((step, number(after(rest, ": loss")?)?, number(milliseconds)?))
}

struct NanoGpt;

impl Reader for NanoGpt {
    fn read(&self, input: &mut dyn BufRead, log: &mut Log) -> Result<(), String> {
        let mut tokens = Tokens::Unknown;
        for_each(input, log, &mut |log, line, text, _| {
            if let Some((step, loss, milliseconds)) = row(text) {
                let mut event = Event::new(line, EventKind::Step);
                (event.step, event.loss, event.tokens) = (Some(step), Some(loss), tokens);
                event.span =
                    micros_of_seconds(milliseconds / 1e3).map_or(Span::Unknown, Span::PerStep);
                log.infer(
                    "the milliseconds of a line are taken for all iterations since the line before",
                );
                log.events.push(event);
            } else if let Some(rest) = after(text, "tokens per iteration will be:") {
                tokens = whole(rest).map_or(Tokens::Unknown, Tokens::PerStep);
                log.events.push(Event::new(line, EventKind::JobStart));
            } else if text.starts_with("step ") && text.contains("val loss") {
                let mut event = Event::new(line, EventKind::Evaluation);
                event.step = whole(&text["step ".len()..]);
                event.loss = after(text, "val loss").and_then(number);
                event.split = Some("val".to_string());
                log.events.push(event);
            } else if text.contains("Traceback (most recent call last)") {
                log.events.push(Event::new(line, EventKind::Failure));
            } else if text.starts_with("iter ") {
                log.bad_line(line, "an iter line without loss or milliseconds", text);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_cut_off_is_a_bad_line() {
        let mut log = Log::default();
        let text = "iter 10: loss 9.8121, time 400.25ms, mfu 35.20%\niter 20: loss nan, time 1.5ms, mfu 1%\niter 30: lo";
        NanoGpt.read(&mut text.as_bytes(), &mut log).expect("read");
        assert_eq!(log.events.len(), 2);
        assert_eq!(log.events[0].span, Span::PerStep(400_250));
        assert!(log.events[1].loss.is_some_and(f64::is_nan));
        assert_eq!(log.bad_lines[0].line, 3);
    }
}
