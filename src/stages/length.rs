//! Rejects documents that are too short or too long.

use super::{Stage, StageKind};
use crate::algo::words::Words;
use crate::record::{
    Document, Kind, Notes, OptionError, OptionSpec, Options, Reason, Spec, Verdict,
};

const fn bound(name: &'static str, doc: &'static str) -> OptionSpec {
    OptionSpec {
        name,
        kind: Kind::Integer {
            min: 1,
            max: u64::MAX,
        },
        default: Some("null"),
        doc,
    }
}

/// What the table says.
pub(super) const KIND: StageKind = StageKind {
    spec: Spec {
        name: "length",
        summary: "Rejects documents that are too short or too long, in tokens, bytes, characters or words",
        details: "At least one bound must be given. A document exactly at a bound stays. \
            Tokens are those of the text, without special tokens; bytes are UTF-8; characters are \
            Unicode scalar values; words are maximal runs of characters that are not white space, \
            in every language. A document that is too short counts as low value: little context for \
            each of its tokens. One that is too long counts as policy: nothing is said about its worth.",
        options: &[
            bound(
                "min_tokens",
                "Fewest tokens; a document with fewer is rejected.",
            ),
            bound(
                "max_tokens",
                "Most tokens; a document with more is rejected.",
            ),
            bound(
                "min_bytes",
                "Fewest bytes of UTF-8; a document with fewer is rejected.",
            ),
            bound(
                "max_bytes",
                "Most bytes of UTF-8; a document with more is rejected.",
            ),
            bound(
                "min_characters",
                "Fewest characters; a document with fewer is rejected.",
            ),
            bound(
                "max_characters",
                "Most characters; a document with more is rejected.",
            ),
            bound(
                "min_words",
                "Fewest words; a document with fewer is rejected.",
            ),
            bound("max_words", "Most words; a document with more is rejected."),
        ],
        example: "{ min_tokens: 16, max_tokens: 1_000_000 }",
    },
    reasons: &[
        Reason::low_value(
            "too_few_tokens",
            "Fewer tokens than min_tokens; the value is the number of tokens.",
        ),
        Reason::policy(
            "too_many_tokens",
            "More tokens than max_tokens; the value is the number of tokens.",
        ),
        Reason::low_value(
            "too_few_bytes",
            "Fewer bytes than min_bytes; the value is the number of bytes.",
        ),
        Reason::policy(
            "too_many_bytes",
            "More bytes than max_bytes; the value is the number of bytes.",
        ),
        Reason::low_value(
            "too_few_characters",
            "Fewer characters than min_characters; the value is the number of characters.",
        ),
        Reason::policy(
            "too_many_characters",
            "More characters than max_characters; the value is the number of characters.",
        ),
        Reason::low_value(
            "too_few_words",
            "Fewer words than min_words; the value is the number of words.",
        ),
        Reason::policy(
            "too_many_words",
            "More words than max_words; the value is the number of words.",
        ),
    ],
    notes: &[],
    build,
};

/// What a pair of bounds is about, in the order of the reasons.
const MEASURES: [Measure; 4] = [
    Measure {
        min: "min_tokens",
        max: "max_tokens",
        of: |document| document.tokens.len(),
    },
    Measure {
        min: "min_bytes",
        max: "max_bytes",
        of: |document| document.text.len(),
    },
    Measure {
        min: "min_characters",
        max: "max_characters",
        of: |document| document.text.chars().count(),
    },
    Measure {
        min: "min_words",
        max: "max_words",
        of: |document| Words::new(&document.text).count(),
    },
];

struct Measure {
    min: &'static str,
    max: &'static str,
    of: fn(&Document) -> usize,
}

/// Bounds of one measure; absent ones are those that nothing breaks.
struct Bounds {
    measure: usize,
    min: u64,
    max: u64,
}

struct Length {
    bounds: Vec<Bounds>,
}

fn build(options: &Options) -> Result<Box<dyn Stage>, OptionError> {
    let mut bounds = Vec::new();
    for (measure, Measure { min, max, .. }) in MEASURES.iter().enumerate() {
        let (lower, upper) = (options.integer_if_given(min), options.integer_if_given(max));
        if let (Some(lower), Some(upper)) = (lower, upper)
            && lower > upper
        {
            return Err(OptionError::new(
                min,
                format!("{max} ({upper}) or less"),
                lower,
            ));
        }
        if lower.is_some() || upper.is_some() {
            bounds.push(Bounds {
                measure,
                min: lower.unwrap_or(0),
                max: upper.unwrap_or(u64::MAX),
            });
        }
    }
    if bounds.is_empty() {
        return Err(OptionError::new(
            "min_tokens",
            "given, or another bound of this stage",
            "no bound at all",
        ));
    }
    Ok(Box::new(Length { bounds }))
}

impl Stage for Length {
    fn judge(&self, document: &mut Document, _notes: &mut Notes) -> Result<Verdict, String> {
        for &Bounds { measure, min, max } in &self.bounds {
            let length = (MEASURES[measure].of)(document) as u64;
            let reason = if length < min {
                2 * measure
            } else if length > max {
                2 * measure + 1
            } else {
                continue;
            };
            return Ok(Verdict::Reject {
                reason,
                value: length as f64,
            });
        }
        Ok(Verdict::Keep)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{outcome, refusal, stage, verdict};
    use super::*;
    use crate::record::Value;

    #[test]
    fn keeps_a_document_at_each_bound_and_rejects_one_beyond() {
        // 3 words, 5 characters and 2 spaces, 11 bytes.
        let text = "ab ёж 語";
        for (measure, exactly) in [("bytes", 11u64), ("characters", 7), ("words", 3)] {
            let reason = |direction: &str| format!("too_{direction}_{measure}");
            let options = |bound: u64| {
                let min = KIND
                    .spec
                    .options
                    .iter()
                    .find(|option| option.name == format!("min_{measure}"));
                let max = KIND
                    .spec
                    .options
                    .iter()
                    .find(|option| option.name == format!("max_{measure}"));
                let at = |option: Option<&OptionSpec>| {
                    (option.expect("in the table").name, Value::Integer(bound))
                };
                (at(min), at(max))
            };
            assert_eq!(
                verdict(&KIND, &[options(exactly).0, options(exactly).1], text),
                None,
                "{measure}"
            );
            let value = exactly as f64;
            assert_eq!(
                verdict(&KIND, &[options(exactly + 1).0], text),
                Some((reason("few").as_str(), value))
            );
            assert_eq!(verdict(&KIND, &[options(exactly - 1).0], text), None);
            assert_eq!(
                verdict(&KIND, &[options(exactly - 1).1], text),
                Some((reason("many").as_str(), value))
            );
            assert_eq!(verdict(&KIND, &[options(exactly + 1).1], text), None);
        }
    }

    #[test]
    fn counts_tokens() {
        let judge = |tokens: usize, given: &[(&str, Value)]| {
            let mut document = Document {
                tokens: vec![1; tokens],
                ..Document::default()
            };
            let verdict = stage(&KIND, given)
                .judge(&mut document, &mut Notes::default())
                .expect("no fault");
            outcome(&KIND, verdict)
        };
        let given = [
            ("min_tokens", Value::Integer(2)),
            ("max_tokens", Value::Integer(3)),
        ];
        assert_eq!(judge(1, &given), Some(("too_few_tokens", 1.0)));
        assert_eq!(judge(2, &given), None);
        assert_eq!(judge(3, &given), None);
        assert_eq!(judge(4, &given), Some(("too_many_tokens", 4.0)));
    }

    #[test]
    fn empty_texts_are_below_any_least_length() {
        assert_eq!(
            verdict(&KIND, &[("min_words", Value::Integer(1))], ""),
            Some(("too_few_words", 0.0))
        );
        assert_eq!(
            verdict(&KIND, &[("min_words", Value::Integer(1))], " \n "),
            Some(("too_few_words", 0.0))
        );
        assert_eq!(
            verdict(&KIND, &[("max_words", Value::Integer(1))], ""),
            None
        );
    }

    #[test]
    fn refuses_no_bound_and_bounds_that_cross() {
        assert_eq!(refusal(&KIND, &[]).option, "min_tokens");
        let crossed = [
            ("min_words", Value::Integer(3)),
            ("max_words", Value::Integer(2)),
        ];
        let refusal = refusal(&KIND, &crossed);
        assert_eq!(
            (
                refusal.option,
                refusal.must_be.as_str(),
                refusal.found.as_str()
            ),
            ("min_words", "max_words (2) or less", "3")
        );
    }
}
