//! The configuration with defaults filled in, as YAML in a fixed key order.

use super::scalar::{Plain, plain};
use std::fmt::Write;

/// A checked value on its way into the filled configuration.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Filled {
    Null,
    Bool(bool),
    Whole(u64),
    Number(f64),
    Text(String),
    /// A value that names variables or holds `$$`: as written, and what it stands for.
    Written(String, Box<Filled>),
    List(Vec<Filled>),
    Map(Vec<(String, Filled)>),
}

/// Which side of [`Filled::Written`] is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// For people and for running again: variables stay.
    Written,
    /// For the hash: variables replaced.
    Replaced,
}

/// The YAML of a mapping, ending in a line end.
pub(super) fn to_yaml(entries: &[(String, Filled)], side: Side) -> String {
    let mut text = String::new();
    if entries.is_empty() {
        text.push_str("{}\n");
    }
    map_lines(&mut text, entries, 0, false, side);
    text
}

/// Writes the entries, each on its own line; the first one where the text stands when `inline`.
fn map_lines(
    text: &mut String,
    entries: &[(String, Filled)],
    indent: usize,
    inline: bool,
    side: Side,
) {
    for (index, (key, value)) in entries.iter().enumerate() {
        if index > 0 || !inline {
            push_spaces(text, indent);
        }
        push_text(text, key);
        text.push(':');
        value_after_key(text, value, indent + 2, side);
    }
}

fn value_after_key(text: &mut String, value: &Filled, indent: usize, side: Side) {
    match value {
        Filled::Map(entries) if !entries.is_empty() => {
            text.push('\n');
            map_lines(text, entries, indent, false, side);
        }
        Filled::List(items) if items.iter().any(|item| matches!(item, Filled::Map(_))) => {
            text.push('\n');
            for item in items {
                push_spaces(text, indent);
                text.push_str("- ");
                match item {
                    Filled::Map(entries) if !entries.is_empty() => {
                        map_lines(text, entries, indent + 2, true, side)
                    }
                    other => {
                        push_flow(text, other, side);
                        text.push('\n');
                    }
                }
            }
        }
        other => {
            text.push(' ');
            push_flow(text, other, side);
            text.push('\n');
        }
    }
}

fn push_flow(text: &mut String, value: &Filled, side: Side) {
    match value {
        Filled::Null => text.push_str("null"),
        Filled::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
        Filled::Whole(value) => write!(text, "{value}").expect("writing to a string cannot fail"),
        Filled::Number(value) => {
            write!(text, "{value:?}").expect("writing to a string cannot fail")
        }
        Filled::Text(value) => push_text(text, value),
        Filled::Written(written, value) => match side {
            // Quotes keep `{` and `}` from being read as a mapping.
            Side::Written => push_quoted(text, written),
            Side::Replaced => push_flow(text, value, side),
        },
        Filled::List(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                text.push_str(if index == 0 { "" } else { ", " });
                push_flow(text, item, side);
            }
            text.push(']');
        }
        Filled::Map(entries) => {
            text.push('{');
            for (index, (key, item)) in entries.iter().enumerate() {
                text.push_str(if index == 0 { "" } else { ", " });
                push_text(text, key);
                text.push_str(": ");
                push_flow(text, item, side);
            }
            text.push('}');
        }
    }
}

fn push_spaces(text: &mut String, count: usize) {
    text.extend(std::iter::repeat_n(' ', count));
}

/// Plain where every YAML reader takes it for the same text, else in double quotes.
fn push_text(text: &mut String, value: &str) {
    /// Not texts to readers of YAML 1.1.
    const WORDS_OF_OLD: &[&str] = &["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    let starts_plain = value
        .starts_with(|first: char| first.is_ascii_alphabetic() || first == '_' || first == '/');
    let stays_plain = value.bytes().all(|byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/' | b'*')
    });
    let is_word = WORDS_OF_OLD
        .iter()
        .any(|word| value.eq_ignore_ascii_case(word));
    if starts_plain && stays_plain && !is_word && plain(value) == Plain::Text {
        text.push_str(value);
    } else {
        push_quoted(text, value);
    }
}

fn push_quoted(text: &mut String, value: &str) {
    text.push('"');
    for letter in value.chars() {
        match letter {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            _ if letter.is_control()
                || matches!(
                    letter,
                    '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
                ) =>
            {
                write!(text, "\\u{:04x}", u32::from(letter))
                    .expect("writing to a string cannot fail");
            }
            _ => text.push(letter),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::super::yaml::{Shape, parse};
    use super::*;
    use proptest::prelude::*;

    fn read_back(value: &str) -> (String, bool) {
        let yaml = to_yaml(
            &[(
                "k".to_string(),
                Filled::List(vec![Filled::Text(value.to_string())]),
            )],
            Side::Written,
        );
        let mut found = Vec::new();
        let root = parse(&yaml, 0, &mut found).unwrap_or_else(|| panic!("{yaml:?}: {found:?}"));
        let Shape::Map(entries) = root.shape else {
            panic!("{yaml:?}")
        };
        let Shape::List(items) = &entries[0].value.shape else {
            panic!("{yaml:?}")
        };
        assert_eq!(items.len(), 1, "{yaml:?}");
        let Shape::Scalar { text, plain } = &items[0].shape else {
            panic!("{yaml:?}")
        };
        (text.clone(), *plain)
    }

    #[test]
    fn texts_that_yaml_would_take_for_something_else_are_quoted() {
        for value in [
            "", "no", "Yes", "null", "~", "5", "0.5", "1e3", ".nan", "true", "*.jsonl", "!x",
            "a: b", "a #b", "- a", "{", "[x]",
        ] {
            assert_eq!(read_back(value), (value.to_string(), false));
        }
        for value in ["web", "data/web/*.jsonl.zst", "/abs/x-1", "_x"] {
            assert_eq!(read_back(value), (value.to_string(), true));
        }
    }

    proptest! {
        #[test]
        fn every_text_is_read_back_as_it_was(value in any::<String>()) {
            prop_assert_eq!(read_back(&value).0, value);
        }
    }
}
