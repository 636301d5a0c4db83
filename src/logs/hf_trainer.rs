//! `trainer_state.json` of Hugging Face's Trainer: steps and losses, no clock.

use super::json::{number, parse, whole};
use super::{Event, EventKind, Log, LogKind, Reader, Span, Tokens, micros_of_seconds, spec};
use serde_json::Value;
use std::io::{BufRead, Read};

/// Largest state file, in bytes: its rows are small.
const LARGEST_FILE_BYTES: u64 = 1 << 30;

/// `hf_trainer`.
pub static KIND: LogKind = LogKind {
    spec: spec(
        "hf_trainer",
        "trainer_state.json of Hugging Face's Trainer.",
        "\
Its rows have steps and losses but no time, so time is unknown, never 100 %. Tokens are num_input_tokens_seen where the
Trainer counts them (include_num_input_tokens_seen). max_steps and learning_rate tell whether the schedule is finished.
Places are entries of log_history, from 1.",
        &[],
        "{}",
    ),
    sample: br#"{
  "best_metric": null, "epoch": 0.01, "global_step": 20, "is_local_process_zero": true,
  "log_history": [
    {"epoch": 0.005, "grad_norm": 3.1, "learning_rate": 5e-05, "loss": 9.12, "num_input_tokens_seen": 40960, "step": 10},
    {"epoch": 0.01, "grad_norm": 2.7, "learning_rate": 4.9e-05, "loss": 8.71, "num_input_tokens_seen": 81920, "step": 20},
    {"epoch": 0.01, "eval_loss": 8.65, "eval_runtime": 12.5, "eval_samples_per_second": 80.0, "step": 20}
  ],
  "max_steps": 2000, "total_flos": 1.5e+15
}
"#,
    recognises: |head| {
        head.text.trim_start().starts_with('{') && head.text.contains("\"log_history\"")
    },
    build: |_| Ok(Box::new(HfTrainer)),
};

struct HfTrainer;

impl Reader for HfTrainer {
    fn read(&self, input: &mut dyn BufRead, log: &mut Log) -> Result<(), String> {
        let mut bytes = Vec::new();
        input
            .take(LARGEST_FILE_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("cannot be read: {error}"))?;
        if bytes.len() as u64 > LARGEST_FILE_BYTES {
            return Err(
                "is larger than 1 GiB; name the trainer_state.json of a Trainer".to_string(),
            );
        }
        let state = parse(&String::from_utf8_lossy(&bytes)).map_err(|error| {
            format!("is no whole JSON document ({error}); name the trainer_state.json of an earlier checkpoint")
        })?;
        let rows = state["log_history"]
            .as_array()
            .ok_or("has no 'log_history'; name a trainer_state.json")?;
        log.line_count = rows.len() as u64;
        let total_steps = whole(&state["max_steps"]).filter(|steps| *steps > 0);
        for (at, row) in rows.iter().enumerate() {
            let line = at as u64 + 1;
            let Some(step) = whole(&row["step"]) else {
                log.bad_line(
                    line,
                    "an entry of log_history without a step",
                    &row.to_string(),
                );
                continue;
            };
            let mut event = Event::new(line, EventKind::Step);
            (event.step, event.total_steps) = (Some(step), total_steps);
            event.learning_rate = row.get("learning_rate").and_then(number);
            event.tokens =
                whole(&row["num_input_tokens_seen"]).map_or(Tokens::Unknown, Tokens::Total);
            if row.get("loss").is_some() {
                event.loss = number(&row["loss"]);
                if event.loss.is_none() {
                    log.bad_line(line, "'loss' is no number", &row.to_string());
                }
                log.events.push(event);
                continue;
            }
            let evaluated = row.as_object().and_then(|keys| {
                keys.iter()
                    .find(|(key, _)| key.starts_with("eval_") && key.ends_with("loss"))
            });
            if let Some((key, loss)) = evaluated {
                event.kind = EventKind::Evaluation;
                event.loss = number(loss);
                // eval_web_loss is that of the evaluation set 'web'.
                let name = &key["eval_".len()..key.len() - "loss".len()];
                event.split = Some(match name.trim_end_matches('_') {
                    "" => "eval".to_string(),
                    name => name.to_string(),
                });
                event.span = number(row.get("eval_runtime").unwrap_or(&Value::Null))
                    .and_then(micros_of_seconds)
                    .map_or(Span::Unknown, Span::Whole);
                event.tokens = Tokens::Unknown;
                log.events.push(event);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_no_clock() {
        let mut log = Log::default();
        HfTrainer
            .read(&mut { KIND.sample }, &mut log)
            .expect("read");
        assert!(log.events.iter().all(|event| event.at_micros.is_none()));
        assert_eq!(log.events[1].tokens, Tokens::Total(81_920));
        assert_eq!(log.events[1].learning_rate, Some(4.9e-5));
        assert_eq!(log.events[1].total_steps, Some(2000));
        let evaluation = &log.events[2];
        assert_eq!(
            (evaluation.split.as_deref(), evaluation.loss),
            (Some("eval"), Some(8.65))
        );
    }

    #[test]
    fn a_file_that_is_cut_off_says_what_to_do() {
        let error = HfTrainer
            .read(&mut &KIND.sample[..200], &mut Log::default())
            .expect_err("refused");
        assert!(
            error.contains("line") && error.contains("earlier checkpoint"),
            "{error}"
        );
    }
}
