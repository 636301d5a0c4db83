//! The only room that prints. Results go to stdout, all else to stderr.
mod facts;
mod log;
mod metrics;
mod reporter;

pub use log::Places;
pub use metrics::{MetricsAddress, listen};
pub use reporter::Reporter;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::{self, IsTerminal, Write};

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ProgressMode {
    /// A bar where stderr is a terminal, else plain lines.
    Auto,
    /// A bar.
    Bar,
    /// A line now and then.
    Plain,
    /// One JSON object a line.
    Json,
    /// Nothing but warnings and errors.
    Off,
}

/// Writes a result for people to stdout: whatever stands in it, names from files among them, cannot
/// command the terminal. A reader that has gone away is no error.
///
/// # Errors
/// When stdout cannot be written for another reason.
pub fn print(text: &str) -> io::Result<()> {
    write(&printable(text))
}

/// Writes a result for programs to stdout: byte by byte as it is, but for a terminal as [`print()`] does.
///
/// # Errors
/// As [`print()`].
pub fn print_data(text: &str) -> io::Result<()> {
    match io::stdout().is_terminal() {
        true => print(text),
        false => write(text),
    }
}

/// Writes a result with colours to stdout. Its parts must have gone through [`printable`].
///
/// # Errors
/// As [`print()`].
pub fn print_coloured(text: &str) -> io::Result<()> {
    write(text)
}

/// Text that cannot command a terminal: control characters would move the cursor or worse, and marks of
/// direction reorder the line, so U+FFFD stands for each. Line ends and tabs stay.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if is_command(c) { '\u{fffd}' } else { c })
        .collect()
}

/// A name, an id or the like, [`printable`] and on one line.
pub fn printable_line(text: &str) -> String {
    printable(text).replace(['\n', '\t'], "\u{fffd}")
}

/// The same value with every name in it, also those of keys, as [`printable_line`] gives it: what tables are made
/// of that show names as they stand in files.
///
/// # Errors
/// When the value is none that JSON can hold.
pub fn printable_names<T: Serialize + DeserializeOwned>(value: &T) -> io::Result<T> {
    fn names(value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(printable_line(&text)),
            Value::Array(values) => values.into_iter().map(names).collect(),
            Value::Object(entries) => entries
                .into_iter()
                .map(|(key, value)| (printable_line(&key), names(value)))
                .collect(),
            other => other,
        }
    }
    let value = serde_json::to_value(value).map_err(io::Error::other)?;
    serde_json::from_value(names(value)).map_err(io::Error::other)
}

/// An entry of a log or a warning, [`printable`]: later lines are indented, so that none passes for an entry.
fn one_entry(text: &str) -> String {
    printable(text).trim_end().replace('\n', "\n    ")
}

/// An object on a line: JSON whose strings cannot command a terminal either.
fn json_line(value: &Value) -> String {
    let mut line = String::new();
    for c in value.to_string().chars() {
        match is_command(c) {
            // All of them are in the Basic Multilingual Plane and stand in strings.
            true => line.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => line.push(c),
        }
    }
    line
}

fn is_command(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Says something beside the result. A reader that has gone away is no error.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{}", printable(text));
}

/// Whether stdout shows colours: a terminal, and nobody set `NO_COLOR`.
pub fn stdout_has_colour() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_command_the_terminal() {
        assert_eq!(printable("a\x1b[2J\nb\tc\r"), "a\u{fffd}[2J\nb\tc\u{fffd}");
        assert_eq!(printable("\u{9b}31m\u{7f}"), "\u{fffd}31m\u{fffd}");
        assert_eq!(printable_line("a\nb\u{202e}"), "a\u{fffd}b\u{fffd}");
    }

    #[test]
    fn json_cannot_command_the_terminal_and_stays_what_it_is() {
        let value = serde_json::json!({ "a\u{9b}2J": "\u{7f}\u{202e}\n\t\u{1b}[2J é" });
        let line = json_line(&value);
        assert_eq!(line.chars().find(|c| is_command(*c) || *c == '\n'), None);
        assert_eq!(serde_json::from_str::<Value>(&line).expect("JSON"), value);
    }

    #[test]
    fn names_of_a_value_are_printable_and_the_rest_stays() {
        let value =
            serde_json::json!({ "a\u{1b}": ["x\ny", 0.1, 18446744073709551615u64, null, true] });
        let found = printable_names(&value).expect("JSON");
        let same = serde_json::json!({ "a\u{fffd}": ["x\u{fffd}y", 0.1, 18446744073709551615u64, null, true] });
        assert_eq!(found, same);
    }

    #[test]
    fn no_line_of_an_entry_passes_for_another_entry() {
        assert_eq!(one_entry("a\nwarning: b\n"), "a\n    warning: b");
    }
}
