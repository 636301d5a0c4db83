//! The console logger of OLMo-core: a head with the step, then a line for each metric.

use super::lines::{after, for_each, number, whole};
use super::{Event, EventKind, Log, LogKind, Reader, Tokens, clock, spec};
use std::io::BufRead;

/// `olmo_core`.
pub static KIND: LogKind = LogKind {
    spec: spec(
        "olmo_core",
        "Stdout of OLMo-core.",
        "\
Read are the blocks that begin with [step=N/M,...] and hold a metric a line: train/CE loss, throughput/total tokens,
throughput/device/TPS. Durations are inferred from the clock of the lines.",
        &[],
        "{}",
    ),
    sample: b"2025-03-10 12:00:00.000\thost:0\tolmo_core.train.trainer:500\tINFO\tTraining for 1,000 steps\n\
2025-03-10 12:00:20.000\thost:0\tolmo_core.train.callbacks.console_logger:80\tINFO\t[step=1/1000,epoch=1,eta=1:20:00]\n    \
optim/total grad norm=5.210\n    throughput/total tokens=4,194,304\n    train/CE loss=10.98\n\
2025-03-10 12:00:25.000\thost:0\tolmo_core.train.callbacks.console_logger:80\tINFO\t[step=2/1000,epoch=1,eta=1:20:00]\n    \
optim/total grad norm=4.100\n    throughput/device/TPS=52,428\n    throughput/total tokens=8,388,608\n    train/CE loss=10.41\n",
    recognises: |head| {
        head.text.lines().any(|line| step_of(line).is_some())
            && head.text.lines().any(|line| line.starts_with(' ') && line.contains("train/CE loss="))
    },
    build: |_| Ok(Box::new(OlmoCore)),
};

/// The step of a block's first line.
fn step_of(line: &str) -> Option<u64> {
    let rest = after(line, "[step=")?;
    rest.contains(']').then(|| whole(rest))?
}

struct OlmoCore;

impl Reader for OlmoCore {
    fn read(&self, input: &mut dyn BufRead, log: &mut Log) -> Result<(), String> {
        let mut open = false;
        let mut last: Option<(u64, i64)> = None;
        for_each(input, log, &mut |log, line, text, ended| {
            let at = clock::date_time(text).map(|(at, _)| at);
            if let (true, None) = (open, at)
                && text.starts_with(' ')
                && let Some((key, value)) = text.trim().split_once('=')
                && let Some(event) = log.events.last_mut()
            {
                if !ended {
                    log.bad_line(line, "the last line is cut off", text);
                    return;
                }
                match key {
                    "train/CE loss" => event.loss = number(value),
                    "throughput/total tokens" => {
                        if let Some(tokens) = whole(value) {
                            event.tokens = Tokens::Total(tokens);
                        }
                    }
                    "throughput/device/TPS" if event.tokens == Tokens::Unknown => {
                        if let Some(tokens) = number(value) {
                            event.tokens = Tokens::PerSecondPerChip(tokens);
                        }
                    }
                    "optim/step skipped" => {
                        event.lost_steps =
                            number(value).map_or(0, |skipped| u64::from(skipped > 0.0));
                    }
                    _ => {}
                }
                return;
            }
            open = false;
            if at.is_some() && log.events.is_empty() {
                let mut start = Event::new(line, EventKind::JobStart);
                start.at_micros = at;
                log.events.push(start);
            }
            if let Some(step) = step_of(text) {
                let mut event = Event::new(line, EventKind::Step);
                (event.at_micros, event.step) = (at, Some(step));
                log.events.push(event);
                open = true;
            } else if text.contains("[step=") {
                log.bad_line(line, "the head of a block of metrics without a step", text);
            } else if text.contains("Traceback (most recent call last)") {
                log.events.push(Event::new(line, EventKind::Failure));
            }
            if let Some(at) = at {
                last = Some((line, at));
            }
        })?;
        let newest = log.events.iter().filter_map(|event| event.at_micros).max();
        if let (Some((line, at)), Some(newest)) = (last, newest)
            && at > newest
        {
            let mut mark = Event::new(line, EventKind::Mark);
            mark.at_micros = Some(at);
            log.events.push(mark);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_belong_to_the_block_above_them() {
        let mut log = Log::default();
        OlmoCore.read(&mut { KIND.sample }, &mut log).expect("read");
        let steps: Vec<_> = log
            .events
            .iter()
            .filter(|event| event.kind == EventKind::Step)
            .map(|event| (event.step, event.loss, event.tokens))
            .collect();
        assert_eq!(
            steps,
            [
                (Some(1), Some(10.98), Tokens::Total(4_194_304)),
                (Some(2), Some(10.41), Tokens::Total(8_388_608)),
            ]
        );
    }
}
