//! Helpers of the stages' tests.

use super::{Stage, StageKind};
use crate::record::{Document, Kind, Notes, OptionError, Options, Value, Verdict};

/// The options of a stage: defaults, with `given` put in.
pub(super) fn options(kind: &StageKind, given: &[(&str, Value)]) -> Options {
    let mut options = Options::default();
    for option in kind.spec.options {
        let Some(default) = option.default else {
            continue;
        };
        options.set(option.name, value_of(&option.kind, default));
    }
    for (name, value) in given {
        assert!(
            kind.spec.options.iter().any(|option| option.name == *name),
            "no option {name}"
        );
        options.set(name, value.clone());
    }
    options
}

/// A value as it stands in a table or an example.
pub(super) fn value_of(kind: &Kind, written: &str) -> Value {
    if written == "null" {
        return Value::Null;
    }
    let digits = written.replace('_', "");
    match kind {
        Kind::Integer { min, max } => {
            let value = digits.parse().expect("an integer");
            assert!((*min..=*max).contains(&value), "{written} is out of bounds");
            Value::Integer(value)
        }
        Kind::Number { min, max } => {
            let value: f64 = digits.parse().expect("a number");
            assert!((*min..=*max).contains(&value), "{written} is out of bounds");
            Value::Number(value)
        }
        Kind::Bool => Value::Bool(written == "true"),
        Kind::TextList | Kind::Globs => Value::List(
            written
                .trim_matches(['[', ']'])
                .split(',')
                .map(|text| text.trim().to_string())
                .collect(),
        ),
        _ => Value::Text(written.to_string()),
    }
}

/// A built stage.
pub(super) fn stage(kind: &StageKind, given: &[(&str, Value)]) -> Box<dyn Stage> {
    (kind.build)(&options(kind, given)).expect("these options make sense")
}

/// Why a stage is refused.
pub(super) fn refusal(kind: &StageKind, given: &[(&str, Value)]) -> OptionError {
    (kind.build)(&options(kind, given))
        .err()
        .expect("these options make no sense")
}

/// What a stage says of a text: the name of the reason and the value, or `None` where it stays.
pub(super) fn verdict(
    kind: &StageKind,
    given: &[(&str, Value)],
    text: &str,
) -> Option<(&'static str, f64)> {
    judged(kind, given, text).0
}

/// As [`verdict`], with the names of the notes.
pub(super) fn judged(
    kind: &StageKind,
    given: &[(&str, Value)],
    text: &str,
) -> (Option<(&'static str, f64)>, Vec<&'static str>) {
    let mut document = Document {
        text: text.to_string(),
        ..Document::default()
    };
    let mut notes = Notes::default();
    let verdict = stage(kind, given)
        .judge(&mut document, &mut notes)
        .expect("no fault");
    let named = kind
        .notes
        .iter()
        .enumerate()
        .filter(|&(number, _)| notes.get(number) > 0)
        .map(|(_, name)| *name);
    (outcome(kind, verdict), named.collect())
}

/// A verdict with the name of its reason.
pub(super) fn outcome(kind: &StageKind, verdict: Verdict) -> Option<(&'static str, f64)> {
    match verdict {
        Verdict::Keep => None,
        Verdict::Reject { reason, value } | Verdict::Cut { reason, value, .. } => {
            Some((kind.reasons[reason].name, value))
        }
    }
}
