//! Exports of Weights & Biases: JSON Lines with a row a logging step.

use super::json::{number, parse, whole};
use super::lines::for_each;
use super::{Event, EventKind, Log, LogKind, Reader, Tokens, clock, micros_of_seconds, spec};
use crate::record::{Kind, OptionSpec};
use serde_json::Value;
use std::io::BufRead;

/// `wandb`.
pub static KIND: LogKind = LogKind {
    spec: spec(
        "wandb",
        "JSON Lines exported from Weights & Biases (a row of run.scan_history() a line).",
        "\
Rows are sparse: one with a training loss is a step, one with a validation loss an evaluation. '_step' counts calls of
wandb.log; where the trainer logs its own step (trainer/global_step, train/global_step), name that.",
        &[
            OptionSpec {
                name: "step",
                kind: Kind::Text,
                default: Some("_step"),
                doc: "Key of the optimizer step",
            },
            OptionSpec {
                name: "loss",
                kind: Kind::Text,
                default: Some("train/loss"),
                doc: "Key of the training loss, in nats a token",
            },
            OptionSpec {
                name: "validation_loss",
                kind: Kind::Text,
                default: Some("null"),
                doc: "Key of the validation loss",
            },
            OptionSpec {
                name: "time",
                kind: Kind::Text,
                default: Some("_timestamp"),
                doc: "Key of the time, in seconds since 1970 or as a text like 2026-03-10T12:34:56Z",
            },
            OptionSpec {
                name: "tokens",
                kind: Kind::Text,
                default: Some("null"),
                doc: "Key of the tokens since the beginning of training",
            },
        ],
        "{ step: trainer/global_step, loss: train/loss }",
    ),
    sample: br#"{"_step": 0, "_timestamp": 1741608000.0, "_runtime": 5.0, "train/loss": 10.9}
{"_step": 1, "_timestamp": 1741608010.0, "_runtime": 15.0, "train/loss": 10.2, "lr": 0.0001}
{"_step": 1, "_timestamp": 1741608012.0, "_runtime": 17.0, "val/loss": 10.1}
{"_step": 2, "_timestamp": 1741608022.0, "_runtime": 27.0, "train/loss": 9.7}
"#,
    recognises: |head| {
        head.text.lines().any(|line| {
            line.trim_start().starts_with('{')
                && parse(line).is_ok_and(|row| row.get("_step").is_some() && row.get("_timestamp").is_some())
        })
    },
    build: |options| {
        let text = |name: &str| options.text_if_given(name).map(str::to_string);
        Ok(Box::new(Wandb {
            step: options.text("step").to_string(),
            loss: options.text("loss").to_string(),
            validation_loss: text("validation_loss"),
            time: options.text("time").to_string(),
            tokens: text("tokens"),
        }))
    },
};

struct Wandb {
    step: String,
    loss: String,
    validation_loss: Option<String>,
    time: String,
    tokens: Option<String>,
}

impl Reader for Wandb {
    fn read(&self, input: &mut dyn BufRead, log: &mut Log) -> Result<(), String> {
        let mut keys = std::collections::BTreeSet::new();
        for_each(input, log, &mut |log, line, text, ended| {
            let row = match parse(text) {
                Ok(row) if row.is_object() => row,
                _ => {
                    let message = if ended {
                        "is no JSON object"
                    } else {
                        "the last line is cut off"
                    };
                    log.bad_line(line, message, text);
                    return;
                }
            };
            if log.events.is_empty()
                && let Some(object) = row.as_object()
            {
                keys.extend(object.keys().cloned());
            }
            let at = match row.get(&self.time) {
                Some(Value::String(text)) => clock::date_time(text).map(|(at, _)| at),
                Some(value) => number(value).and_then(micros_of_seconds),
                None => None,
            };
            let present = |key: &str| row.get(key).filter(|value| !value.is_null());
            let rows = [
                (EventKind::Step, present(&self.loss)),
                (
                    EventKind::Evaluation,
                    self.validation_loss.as_deref().and_then(present),
                ),
            ];
            for (kind, loss) in rows {
                let Some(loss) = loss else { continue };
                let Some(step) = present(&self.step).and_then(whole) else {
                    log.bad_line(
                        line,
                        &format!("'{}' must be a whole number", self.step),
                        text,
                    );
                    continue;
                };
                let Some(loss) = number(loss) else {
                    log.bad_line(line, "the loss is no number", text);
                    continue;
                };
                let mut event = Event::new(line, kind);
                (event.at_micros, event.step, event.loss) = (at, Some(step), Some(loss));
                match kind {
                    EventKind::Step => {
                        let tokens = self.tokens.as_deref().and_then(present).and_then(whole);
                        event.tokens = tokens.map_or(Tokens::Unknown, Tokens::Total);
                    }
                    _ => event.split = self.validation_loss.clone(),
                }
                log.events.push(event);
            }
        })?;
        if log.events.is_empty() {
            let keys: Vec<String> = keys.into_iter().collect();
            return Err(format!(
                "no row has a '{}'; the first rows have {}: name the right key as an option of the reader",
                self.loss,
                keys.join(", ")
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(loss: &str) -> Wandb {
        Wandb {
            step: "_step".to_string(),
            loss: loss.to_string(),
            validation_loss: Some("val/loss".to_string()),
            time: "_timestamp".to_string(),
            tokens: None,
        }
    }

    #[test]
    fn rows_are_steps_and_evaluations_and_losses_may_be_nan() {
        let mut log = Log::default();
        let text = String::from_utf8_lossy(KIND.sample).into_owned()
            + "{\"_step\": 3, \"_timestamp\": \"2025-03-10T12:00:40Z\", \"train/loss\": NaN}\n{\"_step\": 4, \"tr";
        reader("train/loss")
            .read(&mut text.as_bytes(), &mut log)
            .expect("read");
        let kinds: Vec<_> = log
            .events
            .iter()
            .map(|event| (event.kind, event.step))
            .collect();
        assert_eq!(
            kinds,
            [
                (EventKind::Step, Some(0)),
                (EventKind::Step, Some(1)),
                (EventKind::Evaluation, Some(1)),
                (EventKind::Step, Some(2)),
                (EventKind::Step, Some(3)),
            ]
        );
        assert!(log.events[4].loss.is_some_and(f64::is_nan));
        assert_eq!(log.events[4].at_micros, Some(1_741_608_040_000_000));
        assert_eq!(log.bad_lines[0].line, 6);
    }

    #[test]
    fn a_key_that_no_row_has_is_refused_with_those_that_are_there() {
        let error = reader("los").read(&mut { KIND.sample }, &mut Log::default());
        // The validation rows are there, so nothing is refused; without them it is.
        assert!(error.is_ok());
        let mut only = reader("los");
        only.validation_loss = None;
        let error = only
            .read(&mut { KIND.sample }, &mut Log::default())
            .expect_err("refused");
        assert!(
            error.contains("no row has a 'los'") && error.contains("train/loss"),
            "{error}"
        );
    }
}
