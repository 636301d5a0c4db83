//! What is known of a run at one moment, and how it is said. Reads no clock: seconds are given.

use crate::audit::grouped;
use crate::engine::{Flow, Unit};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Seconds of a phase below which its speed says nothing of what is left.
const SECONDS_BEFORE_A_FORECAST: f64 = 1.0;

/// The phase that is going on.
#[derive(Clone, Debug)]
pub(super) struct Phase {
    pub name: String,
    pub unit: Unit,
    /// 0 where it is not known.
    pub total: u64,
    pub done: u64,
    /// The part of `done` that an earlier run did.
    pub found: u64,
    pub tokens: u64,
    /// Seconds after the run's beginning.
    pub began: f64,
}

impl Phase {
    /// Tokens a second since it began; none where it handles no tokens.
    pub fn tokens_per_second(&self, now: f64) -> Option<f64> {
        let seconds = now - self.began;
        (self.tokens > 0 && seconds > 0.0).then(|| self.tokens as f64 / seconds)
    }

    /// Seconds until `total`, at the mean speed of what this run has done of it. None where the total is not
    /// known or reached, or where nothing is done yet, or all of it by an earlier run.
    pub fn seconds_left(&self, now: f64) -> Option<f64> {
        let seconds = now - self.began;
        let own = self.done.saturating_sub(self.found);
        let left = self.total.saturating_sub(self.done);
        (left > 0 && own > 0 && seconds >= SECONDS_BEFORE_A_FORECAST)
            .then(|| left as f64 * seconds / own as f64)
    }

    /// How far it is, in words.
    pub fn words(&self, now: f64) -> String {
        let mut parts = vec![match (self.done, self.total) {
            (0, 0) => format!("{:.0} s so far", now - self.began),
            (done, 0) => format!(
                "{} after {:.0} s",
                amount(done, self.unit),
                now - self.began
            ),
            (done, total) => format!(
                "{} of {}",
                figure(done, self.unit),
                amount(total, self.unit)
            ),
        }];
        parts.extend(self.tokens_per_second(now).map(speed));
        parts.extend(
            self.seconds_left(now)
                .map(|left| format!("{} left", duration(left))),
        );
        parts.join(", ")
    }

    /// What it came to, in words.
    pub fn end_words(&self, now: f64) -> String {
        let seconds = now - self.began;
        let mut text = match self.done {
            // A phase that counts nothing.
            0 => format!("{seconds:.1} s"),
            done => format!("{} in {seconds:.1} s", amount(done, self.unit)),
        };
        if let Some(tokens) = self.tokens_per_second(now) {
            text.push_str(", ");
            text.push_str(&speed(tokens));
        }
        text
    }
}

/// A phase that has ended, or several of one name.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ended {
    pub seconds: f64,
    pub tokens: u64,
    /// Bytes, documents and rows; tokens are above.
    pub done: [u64; 3],
}

/// Where a unit stands in [`Ended::done`].
pub(super) fn place_of(unit: Unit) -> Option<usize> {
    match unit {
        Unit::Bytes => Some(0),
        Unit::Documents => Some(1),
        Unit::Rows => Some(2),
        Unit::Tokens => None,
    }
}

/// All that has been reported.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub phase: Option<Phase>,
    pub ended: BTreeMap<String, Ended>,
    pub labels: Vec<String>,
    pub flows: BTreeMap<u16, Flow>,
    /// Stages of which there is something new since it was last asked.
    news: BTreeSet<u16>,
    pub warnings: u64,
}

impl Facts {
    pub fn begin(&mut self, name: &str, total: u64, unit: Unit, now: f64) {
        self.phase = Some(Phase {
            name: name.to_string(),
            unit,
            total,
            done: 0,
            found: 0,
            tokens: 0,
            began: now,
        });
    }

    pub fn advance(&mut self, by: u64, found: bool) {
        if let Some(phase) = &mut self.phase {
            phase.done += by;
            if found {
                phase.found += by;
            } else if phase.unit == Unit::Tokens {
                phase.tokens += by;
            }
        }
    }

    pub fn tokens(&mut self, tokens: u64) {
        if let Some(phase) = &mut self.phase {
            phase.tokens += tokens;
        }
    }

    pub fn end(&mut self, now: f64) -> Option<Phase> {
        let phase = self.phase.take()?;
        let sum = self.ended.entry(phase.name.clone()).or_default();
        sum.seconds += now - phase.began;
        sum.tokens += phase.tokens;
        if let Some(place) = place_of(phase.unit) {
            sum.done[place] += phase.done;
        }
        Some(phase)
    }

    pub fn kept(&mut self, stage: u16, more: Flow) {
        *self.flows.entry(stage).or_default() += more;
        self.news.insert(stage);
    }

    pub fn label(&self, stage: u16) -> String {
        let label = self.labels.get(usize::from(stage)).cloned();
        label.unwrap_or_else(|| format!("stage {stage}"))
    }

    /// A line for each stage that has kept more since this was last asked.
    pub fn news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
            .into_iter()
            .map(|stage| {
                let flow = self.flows[&stage];
                format!(
                    "{:<20} keeps {} of {} documents, {} of {} tokens ({})",
                    self.label(stage),
                    grouped(flow.documents_kept),
                    grouped(flow.documents),
                    grouped(flow.tokens_kept),
                    grouped(flow.tokens),
                    percent(flow)
                )
            })
            .collect()
    }

    /// What each stage of this phase keeps, in a few words; nothing where there are none.
    pub fn kept_words(&self) -> String {
        let stages = self.news.iter();
        let words: Vec<String> = stages
            .map(|stage| format!("{} {}", self.label(*stage), percent(self.flows[stage])))
            .collect();
        match words.is_empty() {
            true => String::new(),
            false => format!("; kept: {}", words.join(", ")),
        }
    }

    /// An event for programs: how far a phase is, and what the stages have kept so far.
    pub fn event(&self, event: &str, phase: &Phase, now: f64) -> Value {
        let kept = self.flows.iter().map(|(stage, flow)| {
            json!({ "stage": self.label(*stage), "documents": flow.documents, "documents_kept": flow.documents_kept,
                "tokens": flow.tokens, "tokens_kept": flow.tokens_kept })
        });
        json!({
            "event": event,
            "phase": phase.name,
            "done": phase.done,
            "total": (phase.total > 0).then_some(phase.total),
            "unit": unit_name(phase.unit),
            "seconds": now - phase.began,
            "tokens": phase.tokens,
            "tokens_per_second": phase.tokens_per_second(now),
            "seconds_left": phase.seconds_left(now),
            "kept": kept.collect::<Vec<_>>(),
        })
    }
}

pub(super) fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Bytes => "bytes",
        Unit::Documents => "documents",
        Unit::Tokens => "tokens",
        Unit::Rows => "rows",
    }
}

fn figure(number: u64, unit: Unit) -> String {
    match unit {
        Unit::Bytes => format!("{:.1}", number as f64 / 1e6),
        _ => grouped(number),
    }
}

fn amount(number: u64, unit: Unit) -> String {
    let name = match unit {
        Unit::Bytes => "MB",
        other => unit_name(other),
    };
    format!("{} {name}", figure(number, unit))
}

fn percent(flow: Flow) -> String {
    match flow.tokens {
        0 => "no tokens".to_string(),
        tokens => format!("{:.1} %", 100.0 * flow.tokens_kept as f64 / tokens as f64),
    }
}

fn speed(tokens_per_second: f64) -> String {
    match tokens_per_second {
        fast if fast >= 1e6 => format!("{:.2} M tokens/s", fast / 1e6),
        slow => format!("{} tokens/s", grouped(slow.round() as u64)),
    }
}

/// Seconds as a person says them, rounded so as not to promise more than is known.
fn duration(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 99.5 => format!("{:.0} s", seconds.ceil()),
        seconds if seconds < 99.5 * 60.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(total: u64, done: u64, found: u64) -> Phase {
        Phase {
            name: "prepare".to_string(),
            unit: Unit::Bytes,
            total,
            done,
            found,
            tokens: 0,
            began: 10.0,
        }
    }

    #[test]
    fn the_time_left_is_that_of_what_is_left() {
        // 30 of 100 in 6 seconds: 70 take 14.
        assert_eq!(phase(100, 30, 0).seconds_left(16.0), Some(14.0));
        // Of them 20 were there already: 10 in 6 seconds.
        assert_eq!(phase(100, 30, 20).seconds_left(16.0), Some(42.0));
    }

    #[test]
    fn no_time_left_is_shown_where_it_is_not_known() {
        for (unknown, now) in [
            (phase(0, 30, 0), 16.0),
            (phase(100, 0, 0), 16.0),
            (phase(100, 30, 30), 16.0),
            (phase(100, 100, 0), 16.0),
            (phase(100, 120, 0), 16.0),
            (phase(100, 30, 0), 10.5),
        ] {
            assert_eq!(unknown.seconds_left(now), None, "{unknown:?}");
            assert!(!unknown.words(now).contains("left"));
        }
    }

    #[test]
    fn a_phase_says_how_far_it_is() {
        let mut facts = Facts {
            labels: vec!["tokenize".to_string(), "length".to_string()],
            ..Facts::default()
        };
        facts.begin("prepare", 400_000_000, Unit::Bytes, 0.0);
        facts.advance(100_000_000, false);
        facts.tokens(25_000_000);
        let flow = |documents, documents_kept| Flow {
            documents,
            tokens: 10 * documents,
            documents_kept,
            tokens_kept: 10 * documents_kept,
        };
        facts.kept(1, flow(1500, 1200));
        facts.kept(1, flow(500, 300));
        let phase = facts.phase.clone().expect("it has begun");
        assert_eq!(
            phase.words(10.0) + &facts.kept_words(),
            "100.0 of 400.0 MB, 2.50 M tokens/s, 30 s left; kept: length 75.0 %"
        );
        assert_eq!(phase.end_words(10.0), "100.0 MB in 10.0 s, 2.50 M tokens/s");
        let event = facts.event("progress", &phase, 10.0);
        assert_eq!(event["tokens_per_second"], 2.5e6);
        assert_eq!(event["seconds_left"], 30.0);
        assert_eq!(event["kept"][0]["tokens_kept"], 15_000);
        assert_eq!(
            facts.news(),
            [
                "length               keeps 1,500 of 2,000 documents, 15,000 of 20,000 tokens (75.0 %)"
            ]
        );
        assert!(facts.news().is_empty() && facts.kept_words().is_empty());
    }

    #[test]
    fn a_phase_that_counts_tokens_has_a_speed_in_them() {
        let mut facts = Facts::default();
        facts.begin("score", 1000, Unit::Tokens, 0.0);
        facts.advance(400, true);
        facts.advance(100, false);
        let phase = facts.end(2.0).expect("it has begun");
        assert_eq!(phase.tokens_per_second(2.0), Some(50.0));
        assert_eq!(phase.seconds_left(2.0), Some(10.0));
        assert_eq!(facts.ended["score"].tokens, 100);
        // Nobody runs: nothing is counted.
        facts.advance(1, false);
        assert!(facts.end(3.0).is_none());
    }

    #[test]
    fn durations_are_said_as_people_say_them() {
        for (seconds, words) in [
            (0.2, "1 s"),
            (98.6, "99 s"),
            (120.0, "2 min"),
            (7200.0, "2.0 h"),
        ] {
            assert_eq!(duration(seconds), words);
        }
    }
}
