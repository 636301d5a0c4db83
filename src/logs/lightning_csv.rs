//! `metrics.csv` of Lightning's CSVLogger: sparse rows under a head.

use super::lines::{for_each, number};
use super::{Event, EventKind, Log, LogKind, Reader, Tokens, clock, micros_of_seconds, spec};
use crate::record::{Kind, OptionSpec};
use std::io::BufRead;

/// `lightning_csv`.
pub static KIND: LogKind = LogKind {
    spec: spec(
        "lightning_csv",
        "metrics.csv of Lightning's CSVLogger.",
        "\
Rows are sparse: a row with a training loss is a step, one with a validation loss an evaluation. Steps count from 0. The
logger writes no clock: where training logs one as a metric, name its column as 'time'; else time is unknown.",
        &[
            OptionSpec {
                name: "step",
                kind: Kind::Text,
                default: Some("step"),
                doc: "Column of the step",
            },
            OptionSpec {
                name: "loss",
                kind: Kind::Text,
                default: Some("train_loss"),
                doc: "Column of the training loss, in nats a token",
            },
            OptionSpec {
                name: "validation_loss",
                kind: Kind::Text,
                default: Some("null"),
                doc: "Column of the validation loss",
            },
            OptionSpec {
                name: "time",
                kind: Kind::Text,
                default: Some("null"),
                doc: "Column of the time, in seconds since 1970",
            },
            OptionSpec {
                name: "tokens",
                kind: Kind::Text,
                default: Some("null"),
                doc: "Column of the tokens since the beginning of training",
            },
        ],
        "{ loss: train_loss, validation_loss: val_loss }",
    ),
    sample: b"epoch,step,train_loss,val_loss\n0,49,7.31,\n0,99,6.42,\n0,99,,6.38\n0,149,6.01,\n",
    recognises: |head| {
        head.text.lines().next().is_some_and(|line| {
            let cells = split(line);
            !line.contains('{')
                && cells.len() > 1
                && cells.iter().any(|cell| cell == "step")
                && cells.iter().any(|cell| cell.contains("loss"))
        })
    },
    build: |options| {
        let text = |name: &str| options.text_if_given(name).map(str::to_string);
        Ok(Box::new(LightningCsv {
            step: options.text("step").to_string(),
            loss: options.text("loss").to_string(),
            validation_loss: text("validation_loss"),
            time: text("time"),
            tokens: text("tokens"),
        }))
    },
};

struct LightningCsv {
    step: String,
    loss: String,
    validation_loss: Option<String>,
    time: Option<String>,
    tokens: Option<String>,
}

/// The cells of a line of comma-separated values.
fn split(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut letters = line.trim_end().chars().peekable();
    let mut quoted = false;
    while let Some(letter) = letters.next() {
        let cell = cells.last_mut().expect("there is one from the beginning");
        match letter {
            '"' if quoted && letters.next_if_eq(&'"').is_some() => cell.push('"'),
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            letter => cell.push(letter),
        }
    }
    cells
}

impl Reader for LightningCsv {
    fn read(&self, input: &mut dyn BufRead, log: &mut Log) -> Result<(), String> {
        let mut head: Option<Vec<String>> = None;
        let mut missing = None;
        for_each(input, log, &mut |log, line, text, _| {
            let cells = split(text);
            let Some(head) = &head else {
                let wanted = [
                    Some(&self.step),
                    Some(&self.loss),
                    self.validation_loss.as_ref(),
                    self.time.as_ref(),
                    self.tokens.as_ref(),
                ];
                missing = wanted.into_iter().flatten().find(|name| !cells.contains(name)).map(|name| {
                    format!("has no column '{name}'; it has {}: name the right one as an option of the reader", cells.join(", "))
                });
                head = Some(cells);
                return;
            };
            if missing.is_some() {
                return;
            }
            if cells.len() != head.len() {
                log.bad_line(
                    line,
                    &format!(
                        "has {} cells where the head has {}",
                        cells.len(),
                        head.len()
                    ),
                    text,
                );
                return;
            }
            let cell = |name: &str| -> Option<&str> {
                let at = head.iter().position(|known| known == name)?;
                Some(cells[at].trim()).filter(|cell| !cell.is_empty())
            };
            let value = |name: &Option<String>| name.as_deref().and_then(cell);
            let Some(step) = cell(&self.step) else { return };
            let Some(step) = number(step).filter(|step| step.fract() == 0.0 && *step >= 0.0) else {
                log.bad_line(
                    line,
                    &format!("'{}' must be a whole number", self.step),
                    text,
                );
                return;
            };
            let at = match value(&self.time) {
                None => None,
                Some(time) => {
                    let at = clock::date_time(time).map(|(at, _)| at);
                    let at = at.or_else(|| number(time).and_then(micros_of_seconds));
                    if at.is_none() {
                        log.bad_line(line, "the time is no number of seconds", text);
                    }
                    at
                }
            };
            let rows = [
                (EventKind::Step, cell(&self.loss)),
                (EventKind::Evaluation, value(&self.validation_loss)),
            ];
            for (kind, loss) in rows {
                let Some(loss) = loss else { continue };
                let Some(loss) = number(loss) else {
                    log.bad_line(line, "the loss is no number", text);
                    continue;
                };
                let mut event = Event::new(line, kind);
                (event.at_micros, event.step, event.loss) = (at, Some(step as u64), Some(loss));
                match kind {
                    EventKind::Step => {
                        let tokens = value(&self.tokens).and_then(number);
                        event.tokens =
                            tokens.map_or(Tokens::Unknown, |tokens| Tokens::Total(tokens as u64));
                    }
                    _ => event.split = self.validation_loss.clone(),
                }
                log.events.push(event);
            }
        })?;
        match missing {
            Some(message) => Err(message),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(time: Option<&str>) -> LightningCsv {
        LightningCsv {
            step: "step".to_string(),
            loss: "loss".to_string(),
            validation_loss: Some("val".to_string()),
            time: time.map(str::to_string),
            tokens: None,
        }
    }

    #[test]
    fn sparse_rows_are_steps_and_evaluations() {
        let mut log = Log::default();
        let text =
            "step,loss,val,now\n9,5.5,,100.5\n19,5.1,5.2,101\n19,,,\n29,x,,102\n39,5\n,4,,\n";
        reader(Some("now"))
            .read(&mut text.as_bytes(), &mut log)
            .expect("read");
        let found: Vec<_> = log
            .events
            .iter()
            .map(|e| (e.kind, e.step, e.loss, e.at_micros))
            .collect();
        assert_eq!(
            found,
            [
                (EventKind::Step, Some(9), Some(5.5), Some(100_500_000)),
                (EventKind::Step, Some(19), Some(5.1), Some(101_000_000)),
                (
                    EventKind::Evaluation,
                    Some(19),
                    Some(5.2),
                    Some(101_000_000)
                ),
            ]
        );
        assert_eq!(
            log.bad_lines.iter().map(|bad| bad.line).collect::<Vec<_>>(),
            [5, 6]
        );
    }

    #[test]
    fn a_column_that_is_not_there_is_named_with_those_that_are() {
        let error = reader(Some("clock"))
            .read(
                &mut "step,loss,val\n1,2,3\n".as_bytes(),
                &mut Log::default(),
            )
            .expect_err("refused");
        assert_eq!(
            error,
            "has no column 'clock'; it has step, loss, val: name the right one as an option of the reader"
        );
    }

    #[test]
    fn cells_may_be_quoted() {
        assert_eq!(split("a,\"b,\"\"c\"\"\",\n"), ["a", "b,\"c\"", ""]);
    }
}
