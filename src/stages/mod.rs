//! Per-document stages: each sees one document and says keep or reject, with a declared reason.
//!
//! Adding one is one new file here and its line in [`TABLE`].

mod decontaminate;
mod gopher_quality;
mod gopher_repetition;
mod identify;
mod language;
mod learner;
mod length;
mod stage;
#[cfg(test)]
mod testing;

pub use learner::{ItemName, Learner, Learnt, WantedTexts};
pub use stage::{Stage, StageKind};

/// Every per-document stage, in the order in which we would explain them.
pub const TABLE: &[&StageKind] = &[
    &length::KIND,
    &language::KIND,
    &gopher_quality::KIND,
    &gopher_repetition::KIND,
    &decontaminate::KIND,
];

#[cfg(test)]
mod tests {
    use super::testing::value_of;
    use super::*;
    use crate::record::{Document, Notes, Options, Value, Verdict, without};
    use std::collections::HashSet;

    /// The options of a table's example, defaults filled in.
    fn example(kind: &StageKind) -> Options {
        let mut options = Options::default();
        for option in kind.spec.options {
            if let Some(default) = option.default {
                options.set(option.name, value_of(&option.kind, default));
            }
        }
        let body = kind.spec.example.trim_matches(['{', '}', ' ']);
        for pair in body.split(", ").filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once(": ").expect("name: value");
            let option = kind
                .spec
                .options
                .iter()
                .find(|option| option.name == name)
                .expect("an option of the table");
            options.set(name, value_of(&option.kind, value));
        }
        options
    }

    #[test]
    fn every_example_builds_and_every_table_is_complete() {
        let mut names = HashSet::new();
        for kind in TABLE {
            let name = kind.spec.name;
            assert!(names.insert(name), "{name} stands twice");
            assert!((kind.build)(&example(kind)).is_ok(), "{name}");
            assert!(
                !kind.spec.summary.is_empty() && !kind.reasons.is_empty(),
                "{name}"
            );
            let reasons: HashSet<&str> = kind.reasons.iter().map(|reason| reason.name).collect();
            assert_eq!(reasons.len(), kind.reasons.len(), "{name}");
            let notes: HashSet<&&str> = kind.notes.iter().collect();
            assert_eq!(notes.len(), kind.notes.len(), "{name}");
            for option in kind.spec.options {
                assert!(option.doc.ends_with('.'), "{name}.{}", option.name);
            }
        }
    }

    const TEXTS: &[&str] = &[
        "",
        " ",
        "\n",
        "\0",
        "a",
        "…",
        "#",
        "語",
        "12 34",
        "The cat and the dog have been to the end of the road.",
        "Der Hund lief durch den Wald.\n\nDer Hund lief durch den Wald.",
        "cat",
        "dog",
        "cat",
    ];

    #[test]
    fn odd_texts_are_kept_or_rejected_with_a_declared_reason_and_a_finite_value() {
        for kind in TABLE {
            let stage = (kind.build)(&example(kind)).expect("the example builds");
            for text in TEXTS {
                for text in [text.to_string(), text.repeat(1000)] {
                    let mut document = Document {
                        text: text.clone(),
                        ..Document::default()
                    };
                    let mut notes = Notes::default();
                    let verdict = stage.judge(&mut document, &mut notes).expect("no fault");
                    if let Verdict::Reject { reason, value } | Verdict::Cut { reason, value, .. } =
                        &verdict
                    {
                        assert!(
                            *reason < kind.reasons.len() && value.is_finite(),
                            "{} {verdict:?}",
                            kind.spec.name
                        );
                    }
                    if let Verdict::Cut { ranges, .. } = verdict {
                        assert!(
                            stage.edits() && without(&text, ranges.into_iter()).is_some(),
                            "{} cuts what it must not",
                            kind.spec.name
                        );
                    }
                    assert_eq!(
                        notes.get(kind.notes.len()),
                        0,
                        "{} counts an undeclared note",
                        kind.spec.name
                    );
                    assert_eq!(document.text, text, "{} changes the text", kind.spec.name);
                }
            }
        }
    }

    #[test]
    fn two_builds_and_any_order_of_documents_agree() {
        for kind in TABLE {
            let judge = |texts: &mut dyn Iterator<Item = &&str>| {
                let stage = (kind.build)(&example(kind)).expect("the example builds");
                let mut notes = Notes::default();
                let mut verdicts: Vec<(String, String)> = texts
                    .map(|text| {
                        let mut document = Document {
                            text: text.repeat(30),
                            ..Document::default()
                        };
                        let verdict = stage.judge(&mut document, &mut notes).expect("no fault");
                        (
                            text.to_string(),
                            format!("{verdict:?} {:?}", document.language),
                        )
                    })
                    .collect();
                verdicts.sort();
                (verdicts, notes)
            };
            assert_eq!(
                judge(&mut TEXTS.iter()),
                judge(&mut TEXTS.iter().rev()),
                "{}",
                kind.spec.name
            );
        }
    }

    #[test]
    fn texts_as_in_a_list_stay_apart() {
        assert_eq!(
            value_of(&crate::record::Kind::TextList, "[en, de]"),
            Value::List(vec!["en".to_string(), "de".to_string()])
        );
    }
}
