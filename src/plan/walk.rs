//! Mappings, choices and values against the tables of options.

use super::check::{Checker, Choice, Walked};
use super::filled::Filled;
use super::nearest::nearest;
use super::scalar::{Expanded, Number, Plain, expand, grouped, number, plain, size_bytes};
use super::yaml::{Entry, Mark, Node, Shape, parse};
use super::{begins_at_home, overrides, replace_home, sections};
use crate::record::{Kind, OptionSpec, Options, Spec, Value};
use std::collections::{BTreeMap, HashMap};

/// Characters of a wrong value that a message repeats.
const VALUE_CHARS_SHOWN: usize = 60;
/// Up to so many valid names a message lists where none is near.
const NAMES_LISTED: usize = 16;

/// A mapping's entries, each key once.
pub(super) type Entries<'a> = Vec<&'a Entry>;

impl Checker<'_> {
    /// The entries of a mapping, each key once; a double is a problem.
    pub(super) fn mapping<'n>(&mut self, node: &'n Node, otherwise: &str) -> Option<Entries<'n>> {
        let entries = match &node.shape {
            Shape::Map(entries) => entries,
            Shape::Refused => return None,
            Shape::Scalar { .. } | Shape::List(_) => {
                self.problem(node.mark, format!("{otherwise}, got {}", shown(node)));
                return None;
            }
        };
        let mut first: HashMap<&str, Mark> = HashMap::with_capacity(entries.len());
        let mut unique = Vec::with_capacity(entries.len());
        for entry in entries {
            match first.get(entry.key.as_str()) {
                None => {
                    first.insert(&entry.key, entry.mark);
                    unique.push(entry);
                }
                Some(earlier) => {
                    let earlier = format!("{}:{}", earlier.line, earlier.column);
                    let message = format!(
                        "key '{}' stands twice, first at {earlier}; remove one",
                        entry.key
                    );
                    self.problem(entry.mark, message);
                }
            }
        }
        Some(unique)
    }

    pub(super) fn options(
        &mut self,
        at: Mark,
        entries: &Entries<'_>,
        specs: &'static [OptionSpec],
        owner: &str,
    ) -> Walked {
        self.options_with(at, entries, specs, owner, &[])
    }

    /// Checks options against their table. `others` are valid keys that the caller looks after.
    pub(super) fn options_with(
        &mut self,
        at: Mark,
        entries: &Entries<'_>,
        specs: &'static [OptionSpec],
        owner: &str,
        others: &[&'static str],
    ) -> Walked {
        let problems_before = self.problems.len();
        let mut walked = Walked {
            at,
            options: Options::default(),
            marks: BTreeMap::new(),
            filled: Vec::new(),
            nested: BTreeMap::new(),
            complete: true,
        };
        let names = || {
            specs
                .iter()
                .map(|spec| spec.name)
                .chain(others.iter().copied())
        };
        for entry in entries {
            if !names().any(|name| name == entry.key) {
                let word = if owner.starts_with('\'') || owner.starts_with("input") {
                    "key"
                } else {
                    "option"
                };
                let way_out = match names().next() {
                    None => "it has none".to_string(),
                    Some(_) => way_out(&entry.key, names()),
                };
                self.problem(
                    entry.mark,
                    format!("unknown {word} '{}' of {owner}; {way_out}", entry.key),
                );
            }
        }
        for spec in specs {
            let given = entries.iter().find(|entry| entry.key == spec.name);
            let value = match (given, spec.default) {
                (Some(entry), _) => {
                    walked.marks.insert(spec.name, entry.value.mark);
                    self.value(&entry.value, entry.mark, spec, spec.name)
                }
                (None, Some("null")) => Some((Value::Null, Filled::Null, None)),
                (None, Some(default)) => {
                    let node = default_node(default, at);
                    self.value(&node, at, spec, spec.name)
                }
                (None, None) => {
                    let message =
                        format!("{owner} needs '{}', {}; add it", spec.name, expected(spec));
                    self.problem(at, message);
                    None
                }
            };
            if let Some((value, filled, choice)) = value {
                walked.options.set(spec.name, value);
                walked.filled.push((spec.name.to_string(), filled));
                if let Some(choice) = choice {
                    walked.complete &= choice.walked.complete;
                    walked.nested.insert(spec.name, choice);
                }
            }
        }
        walked.complete &=
            self.problems.len() == problems_before && walked.filled.len() == specs.len();
        walked
    }

    /// A named choice: `tag` names one of `specs`, the other keys are its options, but for `others`, which
    /// the caller looks after.
    pub(super) fn choice(
        &mut self,
        node: &Node,
        at: Mark,
        owner: &str,
        tag: &'static str,
        specs: &[&'static Spec],
        others: &[&'static str],
    ) -> Option<Choice> {
        let quoted = if owner.contains('\'') {
            owner.to_string()
        } else {
            format!("'{owner}'")
        };
        let names: Vec<&str> = specs.iter().map(|spec| spec.name).collect();
        let otherwise = format!(
            "{quoted} must be a mapping with '{tag}', such as {{ {tag}: {} }}",
            names.first().unwrap_or(&"NAME")
        );
        let entries = self.mapping(node, &otherwise)?;
        let Some(entry) = entries.iter().find(|entry| entry.key == tag) else {
            self.problem(
                at,
                format!("{quoted} needs '{tag}', {}; add it", one_of(&names)),
            );
            return None;
        };
        let spec = OptionSpec {
            name: tag,
            kind: Kind::Text,
            default: None,
            doc: "",
        };
        let (value, ..) = self.value(&entry.value, entry.mark, &spec, tag)?;
        let Value::Text(name) = value else {
            return None;
        };
        let Some(spec) = specs.iter().find(|spec| spec.name == name) else {
            let way_out = way_out(&name, names.iter().copied());
            self.problem(
                entry.value.mark,
                format!("unknown {tag} '{name}'; {way_out}"),
            );
            return None;
        };
        let rest: Entries = entries
            .into_iter()
            .filter(|entry| entry.key != tag)
            .collect();
        let owner = format!("{tag} '{name}'");
        let walked = self.options_with(node.mark, &rest, spec.options, &owner, others);
        Some(Choice { tag, spec, walked })
    }

    /// One value: checked, as it is written down again, and the choice if it is one.
    pub(super) fn value(
        &mut self,
        node: &Node,
        key_mark: Mark,
        spec: &OptionSpec,
        key: &str,
    ) -> Option<(Value, Filled, Option<Choice>)> {
        // A nothing from a --set is not at the key's place in the file.
        let key_mark = key_mark.max(Mark {
            origin: node.mark.origin,
            line: 0,
            column: 0,
        });
        if let Kind::Variant { tag, specs } = &spec.kind {
            let choice = self.choice(node, node.mark, key, tag, &specs(), &[])?;
            let value = Value::Variant(Box::new(choice.variant()));
            return Some((value, choice.filled(), Some(choice)));
        }
        let items = match (&spec.kind, &node.shape) {
            (_, Shape::Refused) => return None,
            (Kind::TextList | Kind::Globs | Kind::Folders, Shape::List(items)) => items,
            (Kind::TextList | Kind::Globs | Kind::Folders, Shape::Scalar { .. }) => {
                std::slice::from_ref(node)
            }
            (
                _,
                Shape::Scalar {
                    text,
                    plain: is_plain,
                },
            ) => {
                let (value, filled) = self.scalar(node, text, *is_plain, key_mark, spec, key)?;
                return Some((value, filled, None));
            }
            (_, Shape::List(_) | Shape::Map(_)) => {
                self.wrong(node, key, &expected(spec), "");
                return None;
            }
        };
        if let [
            Node {
                shape: Shape::Scalar { text, plain: true },
                ..
            },
        ] = items
            && !matches!(node.shape, Shape::List(_))
            && plain(text) == Plain::Null
        {
            if spec.default == Some("null") {
                return Some((Value::Null, Filled::Null, None));
            }
            self.wrong_null(key_mark, key, spec);
            return None;
        }
        let mut texts = Vec::new();
        let mut filled = Vec::new();
        let mut valid = true;
        for item in items {
            match &item.shape {
                Shape::Scalar {
                    text,
                    plain: is_plain,
                } => {
                    let text_spec = OptionSpec {
                        name: spec.name,
                        kind: Kind::Text,
                        default: None,
                        doc: "",
                    };
                    match self.scalar(item, text, *is_plain, item.mark, &text_spec, key) {
                        Some((Value::Text(text), written)) => {
                            valid &= match spec.kind {
                                Kind::Globs => self.judge_glob(item.mark, key, &text),
                                Kind::Folders => self.judge_path(item.mark, key, &text),
                                _ => true,
                            };
                            texts.push(text);
                            filled.push(written);
                        }
                        _ => valid = false,
                    }
                }
                Shape::Refused => valid = false,
                Shape::List(_) | Shape::Map(_) => {
                    self.wrong(item, key, &expected(spec), "");
                    valid = false;
                }
            }
        }
        if valid
            && matches!(spec.kind, Kind::Globs)
            && texts.iter().all(|glob| glob.starts_with('!'))
        {
            let message = match texts.is_empty() {
                true => format!(
                    "'{key}' must name at least one file, got an empty list; add a path or a glob"
                ),
                false => format!(
                    "'{key}' must have a glob that does not exclude, got only '!' globs; add one"
                ),
            };
            self.problem(node.mark, message);
            valid = false;
        }
        let filled = match filled.len() == 1 && !matches!(node.shape, Shape::List(_)) {
            true => filled.remove(0),
            false => Filled::List(filled),
        };
        valid.then_some((Value::List(texts), filled, None))
    }

    pub(super) fn scalar(
        &mut self,
        node: &Node,
        written: &str,
        is_plain: bool,
        key_mark: Mark,
        spec: &OptionSpec,
        key: &str,
    ) -> Option<(Value, Filled)> {
        let Expanded {
            text,
            from_variable,
        } = match expand(written, self.variable) {
            Ok(expanded) => expanded,
            Err(message) => {
                self.problem(node.mark, format!("'{key}': {message}"));
                return None;
            }
        };
        let changed = from_variable || text != written;
        // What a variable holds is taken as if it were typed without quotes, but never for no text.
        let wants_text = matches!(
            spec.kind,
            Kind::Text | Kind::Choice(_) | Kind::Path | Kind::SortKey
        );
        let meaning = match (is_plain || from_variable, from_variable && wants_text) {
            (true, false) => plain(&text),
            _ => Plain::Text,
        };
        if meaning == Plain::Null {
            if spec.default == Some("null") {
                return Some((Value::Null, Filled::Null));
            }
            self.wrong_null(key_mark, key, spec);
            return None;
        }
        let quotes = match (is_plain || from_variable, plain(&text)) {
            (false, Plain::Number(_) | Plain::Bool(_)) => "; remove the quotes",
            _ => "",
        };
        let value = match (&spec.kind, meaning) {
            (Kind::Integer { min, max }, meaning) => {
                let whole = match meaning {
                    Plain::Number(number) => number.as_whole(&text),
                    Plain::Text if spec.name.ends_with("_bytes") => size_bytes(&text),
                    _ => None,
                };
                let (negative, too_large) = match meaning {
                    Plain::Number(Number::Whole {
                        negative,
                        magnitude,
                    }) => (negative, !negative && magnitude.is_none()),
                    _ => (false, false),
                };
                match whole {
                    Some(value) if (*min..=*max).contains(&value) => {
                        (Value::Integer(value), Filled::Whole(value))
                    }
                    Some(_) => {
                        self.wrong_text(node, key, &bounds_of_whole(*min, *max), &text, "");
                        return None;
                    }
                    None if negative => {
                        self.wrong_text(node, key, &bounds_of_whole(*min, *max), &text, "");
                        return None;
                    }
                    None if too_large => {
                        self.wrong_text(
                            node,
                            key,
                            &format!("{} or less", grouped(*max)),
                            &text,
                            "",
                        );
                        return None;
                    }
                    None => {
                        self.wrong_text(node, key, &expected(spec), &text, quotes);
                        return None;
                    }
                }
            }
            (Kind::Number { min, max }, Plain::Number(number)) => {
                let value = number.as_f64();
                if !(*min..=*max).contains(&value) || !value.is_finite() {
                    self.wrong_text(node, key, &bounds_of_number(*min, *max), &text, "");
                    return None;
                }
                // 0.0 and -0.0 are the same bound and must have the same hash.
                let value = value + 0.0;
                (Value::Number(value), Filled::Number(value))
            }
            (Kind::Number { .. }, _) => {
                let percent = text
                    .strip_suffix('%')
                    .and_then(|share| number(share.trim_end()));
                let way_out = match percent {
                    Some(share) => format!("; write {}", share.as_f64() / 100.0),
                    None => quotes.to_string(),
                };
                self.wrong_text(node, key, &expected(spec), &text, &way_out);
                return None;
            }
            (Kind::Bool, Plain::Bool(value)) => (Value::Bool(value), Filled::Bool(value)),
            (Kind::Bool, _) => {
                let way_out = match text.to_lowercase().as_str() {
                    "yes" | "on" | "y" => "; write true",
                    "no" | "off" | "n" => "; write false",
                    _ => quotes,
                };
                self.wrong_text(node, key, &expected(spec), &text, way_out);
                return None;
            }
            (Kind::Choice(words), _) => {
                if !words.contains(&text.as_str()) {
                    let near = nearest(&text, words.iter().copied());
                    let way_out =
                        near.map_or_else(String::new, |near| format!("; did you mean '{near}'?"));
                    self.wrong_text(node, key, &expected(spec), &text, &way_out);
                    return None;
                }
                (Value::Text(text.clone()), Filled::Text(text))
            }
            (
                Kind::Text
                | Kind::TextList
                | Kind::Globs
                | Kind::Folders
                | Kind::SortKey
                | Kind::Path,
                Plain::Text,
            ) => {
                let value = match spec.kind {
                    Kind::Path => self.path(node.mark, key, &text)?,
                    _ => text.clone(),
                };
                if matches!(spec.kind, Kind::SortKey) {
                    self.sort_keys.push((node.mark, spec.name, text.clone()));
                }
                (Value::Text(value), Filled::Text(text))
            }
            (
                Kind::Text
                | Kind::TextList
                | Kind::Globs
                | Kind::Folders
                | Kind::SortKey
                | Kind::Path,
                _,
            ) => {
                self.wrong_text(
                    node,
                    key,
                    &expected(spec),
                    &text,
                    "; put it in quotes if it is meant as text",
                );
                return None;
            }
            (Kind::Variant { .. }, _) => return None,
        };
        let (value, filled) = value;
        let filled = match changed {
            true => Filled::Written(written.to_string(), Box::new(filled)),
            false => filled,
        };
        Some((value, filled))
    }

    pub(super) fn judge_glob(&mut self, mark: Mark, key: &str, glob: &str) -> bool {
        let pattern = glob.strip_prefix('!').unwrap_or(glob);
        if !self.judge_path(mark, key, pattern) {
            return false;
        }
        match globset::GlobBuilder::new(pattern)
            .literal_separator(true)
            .build()
        {
            Ok(_) => true,
            Err(error) => {
                let message = format!(
                    "'{key}' must be a valid glob, got '{}': {}",
                    cut(glob),
                    error.kind()
                );
                self.problem(mark, message);
                false
            }
        }
    }

    /// A path as the file system knows it: `~` replaced, relative to the pipeline file.
    fn path(&mut self, mark: Mark, key: &str, written: &str) -> Option<String> {
        if !self.judge_path(mark, key, written) {
            return None;
        }
        let path = self.base.join(replace_home(written, self.home.as_deref()));
        let path = path.into_os_string().into_string().ok();
        if path.is_none() {
            let message = "the name of this file's folder is not valid UTF-8; rename it";
            self.problem(mark, message);
        }
        path
    }

    pub(super) fn judge_path(&mut self, mark: Mark, key: &str, path: &str) -> bool {
        if path.is_empty() {
            self.problem(
                mark,
                format!("'{key}' must be a path, got ''; name a file or folder"),
            );
            return false;
        }
        let lower = path.to_ascii_lowercase();
        if sections::REMOTE_PREFIXES
            .iter()
            .any(|prefix| lower.starts_with(prefix))
        {
            let message = format!(
                "'{key}' must be a local path, got '{}'; remote paths are not supported yet: copy the files here and \
                 name the copy",
                cut(path)
            );
            self.problem(mark, message);
            return false;
        }
        if begins_at_home(path) && self.home.is_none() {
            let message = format!(
                "'{key}' begins with '~', but the environment variable 'HOME' is not set; set it"
            );
            self.problem(mark, message);
            return false;
        }
        true
    }

    /// A text that is there must not be empty.
    pub(super) fn require_text(&mut self, walked: &Walked, option: &str) {
        if let Some((_, Value::Text(text))) =
            walked.options.iter().find(|(name, _)| *name == option)
            && text.is_empty()
        {
            self.problem(
                walked.mark(option),
                format!("'{option}' must be a text of at least one character, got ''"),
            );
        }
    }

    /// A dotted path that is there must lead somewhere.
    pub(super) fn require_field_path(&mut self, walked: &Walked, option: &str) {
        if let Some((_, Value::Text(path))) =
            walked.options.iter().find(|(name, _)| *name == option)
            && path.split('.').any(str::is_empty)
        {
            let message = format!(
                "'{option}' must be a field, or keys joined by single dots, got '{}'",
                cut(path)
            );
            self.problem(walked.mark(option), message);
        }
    }

    pub(super) fn wrong(&mut self, node: &Node, key: &str, must_be: &str, way_out: &str) {
        if !matches!(node.shape, Shape::Refused) {
            self.problem(
                node.mark,
                format!("'{key}' must be {must_be}, got {}{way_out}", shown(node)),
            );
        }
    }

    pub(super) fn wrong_text(
        &mut self,
        node: &Node,
        key: &str,
        must_be: &str,
        text: &str,
        way_out: &str,
    ) {
        let is_plain = matches!(node.shape, Shape::Scalar { plain: true, .. });
        let found = shown_text(text, is_plain);
        self.problem(
            node.mark,
            format!("'{key}' must be {must_be}, got {found}{way_out}"),
        );
    }

    pub(super) fn wrong_null(&mut self, mark: Mark, key: &str, spec: &OptionSpec) {
        let way_out = match spec.default {
            Some(default) if !matches!(default, "" | "null") => {
                format!("; remove the key for the default, {default}")
            }
            _ => "; fill it in".to_string(),
        };
        self.problem(
            mark,
            format!("'{key}' must be {}, got nothing{way_out}", expected(spec)),
        );
    }
}

/// A default of a table as a tree whose places are all `at`.
pub(super) fn default_node(default: &str, at: Mark) -> Node {
    let mut found = Vec::new();
    let node = parse(default, 0, &mut found);
    let mut node = node.unwrap_or(Node {
        mark: at,
        shape: Shape::Scalar {
            text: String::new(),
            plain: true,
        },
    });
    overrides::move_to(&mut node, at);
    node
}

/// What an option may be, in words.
pub(super) fn expected(spec: &OptionSpec) -> String {
    match &spec.kind {
        Kind::Integer { min, max } if spec.name.ends_with("_bytes") => {
            format!(
                "a size such as 64MiB or a whole number of bytes, {}",
                bounds_of_whole(*min, *max)
            )
        }
        Kind::Integer { min, max } if min == max => min.to_string(),
        Kind::Integer { min, max } => format!("a whole number, {}", bounds_of_whole(*min, *max)),
        Kind::Number { min, max } => match bounds_of_number(*min, *max).as_str() {
            FINITE => FINITE.to_string(),
            bounds => format!("a number, {bounds}"),
        },
        Kind::Bool => "true or false".to_string(),
        Kind::Text => "a text".to_string(),
        Kind::Choice(words) => one_of(words),
        Kind::TextList => "a text or a list of texts".to_string(),
        Kind::Path => "a path".to_string(),
        Kind::Globs => "a path, a glob or a list of them".to_string(),
        Kind::Folders => "a folder or a list of folders".to_string(),
        Kind::SortKey => "a sort key such as score or length_tokens".to_string(),
        Kind::Variant { tag, .. } => format!("a mapping with '{tag}'"),
    }
}

const FINITE: &str = "a finite number";

fn bounds_of_whole(min: u64, max: u64) -> String {
    match (min, max) {
        (min, u64::MAX) => format!("{} or more", grouped(min)),
        (min, max) if min == max => grouped(min),
        (min, max) => format!("from {} to {}", grouped(min), grouped(max)),
    }
}

fn bounds_of_number(min: f64, max: f64) -> String {
    let (bounded_below, bounded_above) = (min > f64::MIN, max < f64::MAX);
    match (bounded_below, bounded_above) {
        (true, true) => format!("from {min} to {max}"),
        (true, false) => format!("{min} or more"),
        (false, true) => format!("{max} or less"),
        (false, false) => FINITE.to_string(),
    }
}

/// `a, b or c`.
pub(super) fn one_of<W: AsRef<str>>(words: &[W]) -> String {
    match words {
        [] => "none".to_string(),
        [word] => word.as_ref().to_string(),
        [words @ .., last] => {
            let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
            format!("{} or {}", words.join(", "), last.as_ref())
        }
    }
}

/// The nearest valid name, or the valid names.
pub(super) fn way_out<'n>(name: &str, valid: impl Iterator<Item = &'n str> + Clone) -> String {
    if let Some(near) = nearest(name, valid.clone()) {
        return format!("did you mean '{near}'?");
    }
    let listed: Vec<&str> = valid.clone().take(NAMES_LISTED).collect();
    match valid.count() - listed.len() {
        0 => format!("valid: {}", listed.join(", ")),
        more => format!("valid: {} and {more} more", listed.join(", ")),
    }
}

/// A wrong value, in words.
pub(super) fn shown(node: &Node) -> String {
    match &node.shape {
        Shape::Scalar { text, plain } => shown_text(text, *plain),
        Shape::List(_) => "a list".to_string(),
        Shape::Map(_) => "a mapping".to_string(),
        Shape::Refused => "something refused".to_string(),
    }
}

fn shown_text(text: &str, is_plain: bool) -> String {
    match (is_plain, plain(text)) {
        (true, Plain::Null) => "nothing".to_string(),
        (true, Plain::Bool(_) | Plain::Number(_) | Plain::NotFinite) => cut(text),
        _ => format!("'{}'", cut(text)),
    }
}

/// A text short enough for a message, on one line.
fn cut(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(VALUE_CHARS_SHOWN)
        .flat_map(printable)
        .collect();
    if text.chars().nth(VALUE_CHARS_SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

/// Control characters escaped, so that a message stays on its line and moves no cursor.
fn printable(letter: char) -> Vec<char> {
    match letter.is_control() {
        true => letter.escape_default().collect(),
        false => vec![letter],
    }
}
