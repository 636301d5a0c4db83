//! YAML as typed: a small tree in which every value and every key knows its place.
//!
//! Built from the parser's events without recursion, to a bounded depth. What could make a small
//! file a huge one (anchors, aliases) or mean something else than it shows (tags, several
//! documents) is refused by name.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle};

/// Nesting that no sensible pipeline file reaches; what walks the tree may recurse.
const DEEPEST_NESTING: usize = 48;

/// Where something stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark {
    /// 0 for the pipeline file, n for the n-th `--set`.
    pub(super) origin: u32,
    /// Line from 1.
    pub(super) line: u32,
    /// Column from 1, in characters.
    pub(super) column: u32,
}

/// A value.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) mark: Mark,
    pub(super) shape: Shape,
}

/// What a value is.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    /// A word, number or text.
    Scalar {
        /// As typed, escapes resolved.
        text: String,
        /// Not in quotes and not a block, so that `5`, `true` and `null` are no texts.
        plain: bool,
    },
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in the order of the file, doubles included.
    Map(Vec<Entry>),
    /// Something that was already refused: nothing more is said of it.
    Refused,
}

/// A key with its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) mark: Mark,
    pub(super) value: Node,
}

/// A problem before its file name is known.
pub(super) type Found = (Mark, String);

const ALIASES: &str = "anchors and aliases (&name, *name) are not accepted here; write the value out, \
                       and put a text that begins with '*' or '&', such as a glob, in quotes";
const TAGS: &str = "tags (!name) are not accepted here; put a text that begins with '!', such as a \
                    glob that excludes, in quotes";
const UNPRINTABLE: &str = "an unprintable character stands here; remove it";
const TOO_DEEP: &str = "the nesting is too deep; is a bracket left open";

/// The tree of `text`; `None` where it holds nothing or breaks off, which `found` then explains.
pub(super) fn parse(text: &str, origin: u32, found: &mut Vec<Found>) -> Option<Node> {
    let mark = |marker: &Marker| Mark {
        origin,
        line: u32::try_from(marker.line()).unwrap_or(u32::MAX),
        column: u32::try_from(marker.col() + 1).unwrap_or(u32::MAX),
    };
    // The parser takes it for the end of the text.
    if let Some(nul) = text.find('\0') {
        let before = &text[..nul];
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        let at = Mark {
            origin,
            line: u32::try_from(before.matches('\n').count() + 1).unwrap_or(u32::MAX),
            column: u32::try_from(column).unwrap_or(u32::MAX),
        };
        found.push((at, UNPRINTABLE.to_string()));
        return None;
    }
    let mut builder = Builder {
        open: Vec::new(),
        root: None,
    };
    let mut documents = 0;
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = match event {
            Ok(event) => event,
            Err(error) => {
                let opened = builder
                    .open
                    .last()
                    .and_then(|open| bracket_at(text, open.mark()));
                found.push((mark(error.marker()), explain(error.info(), opened)));
                return None;
            }
        };
        let at = mark(&span.start);
        match event {
            Event::Nothing | Event::StreamStart | Event::DocumentEnd => {}
            Event::StreamEnd => break,
            Event::DocumentStart(_) => {
                documents += 1;
                if documents == 2 {
                    let message = "a second YAML document begins here; the file holds one: remove the '---', \
                                   or move what follows to a file of its own";
                    found.push((at, message.to_string()));
                    break;
                }
            }
            Event::Alias(_) => {
                found.push((at, ALIASES.to_string()));
                builder.put(
                    Node {
                        mark: at,
                        shape: Shape::Refused,
                    },
                    found,
                );
            }
            Event::Scalar(text, style, anchor, tag) => {
                refuse_properties(at, anchor, tag.is_some(), found);
                let shape = match tag {
                    Some(_) => Shape::Refused,
                    None => Shape::Scalar {
                        text: text.into_owned(),
                        plain: style == ScalarStyle::Plain,
                    },
                };
                builder.put(Node { mark: at, shape }, found);
            }
            Event::SequenceStart(anchor, tag) => {
                refuse_properties(at, anchor, tag.is_some(), found);
                builder.open.push(Open::List(at, Vec::new()));
            }
            Event::MappingStart(anchor, tag) => {
                refuse_properties(at, anchor, tag.is_some(), found);
                builder.open.push(Open::Map(at, Vec::new(), Pending::Key));
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let node = match builder.open.pop() {
                    Some(Open::List(mark, items)) => Node {
                        mark,
                        shape: Shape::List(items),
                    },
                    Some(Open::Map(mark, entries, _)) => Node {
                        mark,
                        shape: Shape::Map(entries),
                    },
                    None => continue,
                };
                builder.put(node, found);
            }
        }
        if builder.open.len() > DEEPEST_NESTING {
            found.push((at, TOO_DEEP.to_string()));
            return None;
        }
    }
    builder.root
}

fn refuse_properties(at: Mark, anchor: usize, tagged: bool, found: &mut Vec<Found>) {
    if anchor > 0 {
        found.push((at, ALIASES.to_string()));
    }
    if tagged {
        found.push((at, TAGS.to_string()));
    }
}

/// A collection whose end has not come yet.
enum Open {
    List(Mark, Vec<Node>),
    Map(Mark, Vec<Entry>, Pending),
}

impl Open {
    fn mark(&self) -> Mark {
        match self {
            Open::List(mark, _) | Open::Map(mark, _, _) => *mark,
        }
    }
}

/// What a mapping waits for.
enum Pending {
    Key,
    Value(String, Mark),
    /// The value of a key that was refused.
    Nothing,
}

struct Builder {
    open: Vec<Open>,
    root: Option<Node>,
}

impl Builder {
    fn put(&mut self, node: Node, found: &mut Vec<Found>) {
        match self.open.last_mut() {
            None => {
                self.root.get_or_insert(node);
            }
            Some(Open::List(_, items)) => items.push(node),
            Some(Open::Map(_, entries, pending)) => {
                *pending = match std::mem::replace(pending, Pending::Key) {
                    Pending::Nothing => Pending::Key,
                    Pending::Value(key, mark) => {
                        entries.push(Entry {
                            key,
                            mark,
                            value: node,
                        });
                        Pending::Key
                    }
                    Pending::Key => match node.shape {
                        Shape::Scalar { text, .. } => Pending::Value(text, node.mark),
                        Shape::Refused => Pending::Nothing,
                        Shape::List(_) | Shape::Map(_) => {
                            let message = "a key must be a text, got a list or a mapping; put a text that begins with \
                                           '[' or '{' in quotes";
                            found.push((node.mark, message.to_string()));
                            Pending::Nothing
                        }
                    },
                };
            }
        }
    }
}

/// The bracket at a place, if one stands there.
fn bracket_at(text: &str, mark: Mark) -> Option<(char, Mark)> {
    let line = text.lines().nth(mark.line as usize - 1)?;
    let letter = line.chars().nth(mark.column as usize - 1)?;
    matches!(letter, '[' | '{').then_some((letter, mark))
}

/// Our words for the parser's; `opened` is the innermost bracket that is open.
fn explain(info: &str, opened: Option<(char, Mark)>) -> String {
    let has_word = |wanted: &str| info.split(' ').any(|word| word == wanted);
    if info.contains("recursion limit") {
        return TOO_DEEP.to_string();
    }
    if has_word("tab") || has_word("tabs") {
        return "a tab stands where YAML allows only spaces; indent with spaces".to_string();
    }
    if info.contains("anchor") {
        return ALIASES.to_string();
    }
    if info.contains("the handle") || info.contains("tag") {
        return TAGS.to_string();
    }
    if info.contains("quoted scalar, found unexpected end of stream") {
        return "a quotation mark is not closed; close it".to_string();
    }
    if info.contains("unknown escape character") {
        return "a '\\' in double quotes begins no escape that YAML knows; write '\\\\', or use single quotes".to_string();
    }
    if let Some((bracket, mark)) = opened {
        let closing = if bracket == '[' { ']' } else { '}' };
        return format!(
            "the '{bracket}' of {}:{} is not closed, or a ',' is missing before this; add '{closing}' or ','",
            mark.line, mark.column
        );
    }
    if info.contains("mapping values are not allowed") {
        return "a ':' stands where no key can; check the indentation, and put a text that holds ': ' in quotes"
            .to_string();
    }
    if info.contains("unprintable") {
        return UNPRINTABLE.to_string();
    }
    if info.starts_with("unexpected character") {
        return "a text cannot begin with '%', '@' or '`'; put it in quotes".to_string();
    }
    format!(
        "not valid YAML: {info}; check indentation, brackets and quotes here and in the line above"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let mut found = Vec::new();
        parse(text, 0, &mut found);
        found
            .into_iter()
            .map(|(mark, message)| format!("{}:{}: {message}", mark.line, mark.column))
            .collect()
    }

    #[test]
    fn every_key_and_value_knows_its_place() {
        let mut found = Vec::new();
        let root = parse("a: 1\nb:\n  - 'x'\n  - { c: y }\n", 3, &mut found).expect("valid");
        assert!(found.is_empty());
        let Shape::Map(entries) = root.shape else {
            panic!("a mapping")
        };
        assert_eq!(
            (entries[1].key.as_str(), entries[1].mark),
            (
                "b",
                Mark {
                    origin: 3,
                    line: 2,
                    column: 1
                }
            )
        );
        let Shape::List(items) = &entries[1].value.shape else {
            panic!("a list")
        };
        assert_eq!((items[0].mark.line, items[0].mark.column), (3, 5));
        assert!(matches!(&items[0].shape, Shape::Scalar { text, plain: false } if text == "x"));
        let Shape::Map(inner) = &items[1].shape else {
            panic!("a mapping")
        };
        assert_eq!((inner[0].mark.line, inner[0].mark.column), (4, 7));
        assert_eq!(
            (inner[0].value.mark.line, inner[0].value.mark.column),
            (4, 10)
        );
    }

    #[test]
    fn anchors_aliases_and_tags_are_refused_by_name() {
        assert_eq!(
            problems("a: &x 1\nb: *x\n"),
            [format!("1:4: {ALIASES}"), format!("2:4: {ALIASES}")]
        );
        assert_eq!(problems("a: *.jsonl\n"), [format!("1:4: {ALIASES}")]);
        assert_eq!(problems("a: !data/x 1\n"), [format!("1:4: {TAGS}")]);
        assert_eq!(problems("- !data/*.jsonl\n"), [format!("1:3: {TAGS}")]);
        assert_eq!(problems("a: !!float 1\n"), [format!("1:4: {TAGS}")]);
        assert_eq!(problems("a: !e!x 1\n"), [format!("1:4: {TAGS}")]);
    }

    #[test]
    fn a_second_document_is_refused() {
        let found = problems("a: 1\n---\nb: 2\n");
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("2:1: a second YAML document begins here"),
            "{found:?}"
        );
    }

    #[test]
    fn deep_nesting_is_refused_without_overflowing_the_stack() {
        for text in [
            "[".repeat(10_000),
            "- ".repeat(10_000),
            "{a: ".repeat(10_000),
            "? ".repeat(10_000),
        ] {
            let found = problems(&text);
            assert_eq!(found.len(), 1);
            assert!(found[0].ends_with(TOO_DEEP), "{found:?}");
        }
        let mut block = String::new();
        for depth in 0..10_000 {
            block.push_str(&" ".repeat(depth.min(200)));
            block.push_str("a:\n");
        }
        assert!(!problems(&block).is_empty());
    }

    #[test]
    fn the_deepest_allowed_nesting_is_accepted_and_one_more_is_not() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(problems(&nested(DEEPEST_NESTING)).is_empty());
        assert_eq!(problems(&nested(DEEPEST_NESTING + 1)).len(), 1);
    }

    #[test]
    fn broken_yaml_is_explained() {
        let cases = [
            ("a: [1, 2\nb: 3\n", "the '[' of 1:4 is not closed"),
            ("a: {b: 1\nc: 3\n", "the '{' of 1:4 is not closed"),
            ("a:\n\tb: 1\n", "a tab stands where YAML allows only spaces"),
            ("a: \"x\n", "a quotation mark is not closed"),
            ("a: b: c\n", "a ':' stands where no key can"),
            ("a: \"\\q\"\n", "a '\\' in double quotes"),
            ("a: @x\n", "a text cannot begin with '%', '@' or '`'"),
            ("a: \u{0}\n", "an unprintable character"),
            ("a: \"x\u{0}y\"\n", "an unprintable character"),
            ("? [a]\n: b\n", "a key must be a text"),
            ("a: 1\n]\n", "not valid YAML: misplaced bracket"),
        ];
        for (text, expected) in cases {
            let found = problems(text);
            assert!(
                found.len() == 1 && found[0].contains(expected),
                "{text:?}: {found:?}"
            );
        }
    }

    #[test]
    fn nothing_is_no_tree_and_no_problem() {
        for text in ["", "\n\n", "# only a comment\n", "\u{feff}"] {
            let mut found = Vec::new();
            assert!(parse(text, 0, &mut found).is_none(), "{text:?}");
            assert!(found.is_empty(), "{text:?}: {found:?}");
        }
    }

    #[test]
    fn a_million_keys_are_read_in_order() {
        let mut text = String::new();
        for number in 0..1_000_000 {
            text.push_str(&format!("key_{number}: {number}\n"));
        }
        let mut found = Vec::new();
        let root = parse(&text, 0, &mut found).expect("valid");
        let Shape::Map(entries) = root.shape else {
            panic!("a mapping")
        };
        assert_eq!(entries.len(), 1_000_000);
        assert_eq!(entries[999_999].mark.line, 1_000_000);
    }
}
