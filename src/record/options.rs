//! Options as data: one table says what an option is called, what it may be, and what it means.
//!
//! The pipeline reader, the help texts of `goodput stages` and the JSON Schemas all walk these
//! tables, so that an option exists in one place only.

use std::collections::BTreeMap;

/// Something that a pipeline file can name and give options to: a stage, an estimator, an order.
#[derive(Debug)]
pub struct Spec {
    /// The word in the pipeline file.
    pub name: &'static str,
    /// One sentence on what it is for.
    pub summary: &'static str,
    /// More, for `goodput stages NAME`: rules, formulas, sources. May be empty.
    pub details: &'static str,
    /// Its options, in the order in which one would explain them.
    pub options: &'static [OptionSpec],
    /// Options of an example that builds, as YAML flow mapping, e.g. `{ min_tokens: 16 }`.
    pub example: &'static str,
}

/// One option.
#[derive(Debug)]
pub struct OptionSpec {
    /// The key. The unit is in the name.
    pub name: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// Default as YAML; `None` means that the option is required; `Some("null")` that it may be absent.
    pub default: Option<&'static str>,
    /// What it is, and on which side the bound lies.
    pub doc: &'static str,
}

/// What a value may be. All bounds are inclusive.
#[derive(Debug)]
pub enum Kind {
    /// A whole number.
    Integer {
        /// Smallest value allowed.
        min: u64,
        /// Largest value allowed.
        max: u64,
    },
    /// A finite number.
    Number {
        /// Smallest value allowed.
        min: f64,
        /// Largest value allowed.
        max: f64,
    },
    /// `true` or `false`.
    Bool,
    /// Any text.
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A list of texts; a single text counts as a list of one.
    TextList,
    /// The path of one file, relative to the pipeline file.
    Path,
    /// Globs of files, `!` excludes; relative to the pipeline file; a single one counts as a list of one.
    Globs,
    /// Folders, relative to the pipeline file; a single one counts as a list of one. No globs.
    Folders,
    /// A sort key: `score`, `usefulness`, `excess_nats`, `difficulty`, `length_tokens` or a declared numeric field.
    SortKey,
    /// A mapping whose key `tag` names one of `specs()`, the other keys being that one's options.
    Variant {
        /// The key that names the choice, e.g. `strategy`.
        tag: &'static str,
        /// What can be named.
        specs: fn() -> Vec<&'static Spec>,
    },
}

/// A checked value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Absent, where the default is `null`.
    Null,
    /// Of [`Kind::Integer`].
    Integer(u64),
    /// Of [`Kind::Number`].
    Number(f64),
    /// Of [`Kind::Bool`].
    Bool(bool),
    /// Of [`Kind::Text`], [`Kind::Choice`], [`Kind::SortKey`] (as written) and [`Kind::Path`] (absolute or
    /// relative to the current folder, so that it can be opened).
    Text(String),
    /// Of [`Kind::TextList`], [`Kind::Globs`] and [`Kind::Folders`] (as written).
    List(Vec<String>),
    /// Of [`Kind::Variant`].
    Variant(Box<Variant>),
}

/// A named choice with its checked options.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// Which spec.
    pub name: String,
    /// Its options.
    pub options: Options,
}

/// The options of one thing, each present and of the declared kind, defaults filled in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    values: BTreeMap<String, Value>,
}

/// A value that is of the right kind and still makes no sense, e.g. two bounds that cross.
#[derive(Clone, Debug, PartialEq)]
pub struct OptionError {
    /// The option at fault.
    pub option: &'static str,
    /// What it must be, e.g. `max_tokens or less`.
    pub must_be: String,
    /// What it was.
    pub found: String,
}

impl OptionError {
    /// An error about `option`.
    pub fn new(option: &'static str, must_be: impl Into<String>, found: impl ToString) -> Self {
        OptionError {
            option,
            must_be: must_be.into(),
            found: found.to_string(),
        }
    }
}

impl Options {
    /// Puts a value in. Only the pipeline reader and tests do that.
    pub fn set(&mut self, name: &str, value: Value) {
        self.values.insert(name.to_string(), value);
    }
    /// All values by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.values
            .iter()
            .map(|(name, value)| (name.as_str(), value))
    }
    /// The value of an option.
    ///
    /// # Panics
    /// When the option is not in the spec's table, which only a bug can cause.
    pub fn get(&self, name: &str) -> &Value {
        match self.values.get(name) {
            Some(value) => value,
            None => panic!("option '{name}' is read but not in the options table"),
        }
    }
    /// A whole number.
    pub fn integer(&self, name: &str) -> u64 {
        self.integer_if_given(name)
            .unwrap_or_else(|| wrong(name, "an integer"))
    }
    /// A whole number, or `None` where the option is null.
    pub fn integer_if_given(&self, name: &str) -> Option<u64> {
        match self.get(name) {
            Value::Integer(v) => Some(*v),
            Value::Null => None,
            _ => wrong(name, "an integer"),
        }
    }
    /// A number.
    pub fn number(&self, name: &str) -> f64 {
        self.number_if_given(name)
            .unwrap_or_else(|| wrong(name, "a number"))
    }
    /// A number, or `None` where the option is null.
    pub fn number_if_given(&self, name: &str) -> Option<f64> {
        match self.get(name) {
            Value::Number(v) => Some(*v),
            Value::Integer(v) => Some(*v as f64),
            Value::Null => None,
            _ => wrong(name, "a number"),
        }
    }
    /// A flag.
    pub fn flag(&self, name: &str) -> bool {
        match self.get(name) {
            Value::Bool(v) => *v,
            _ => wrong(name, "true or false"),
        }
    }
    /// A text, a choice, a sort key or a path.
    pub fn text(&self, name: &str) -> &str {
        self.text_if_given(name)
            .unwrap_or_else(|| wrong(name, "a text"))
    }
    /// A text, or `None` where the option is null.
    pub fn text_if_given(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Value::Text(v) => Some(v),
            Value::Null => None,
            _ => wrong(name, "a text"),
        }
    }
    /// A list of texts; empty where the option is null.
    pub fn list(&self, name: &str) -> &[String] {
        match self.get(name) {
            Value::List(v) => v,
            Value::Null => &[],
            _ => wrong(name, "a list"),
        }
    }
    /// A nested choice.
    pub fn variant(&self, name: &str) -> &Variant {
        match self.get(name) {
            Value::Variant(v) => v,
            _ => wrong(name, "a mapping"),
        }
    }
}

fn wrong<T>(name: &str, kind: &str) -> T {
    panic!("option '{name}' is read as {kind}, but its table says otherwise")
}
