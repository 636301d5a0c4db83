//! Lines of text logs: bounded, without colours, whatever ends them.

use super::Log;
use std::borrow::Cow;
use std::io::{BufRead, Read};

/// Longest line that is read, in bytes; longer ones are bad lines.
const LONGEST_LINE_BYTES: u64 = 4 << 20;

/// Calls `each` with every line: its number, its text without colours, and whether a line end follows (the
/// last line of a log that was cut off has none). Progress bars rewrite a line after a carriage return:
/// each version counts as a line of the same number.
pub(super) fn for_each(
    input: &mut dyn BufRead,
    log: &mut Log,
    each: &mut dyn FnMut(&mut Log, u64, &str, bool),
) -> Result<(), String> {
    let mut bytes = Vec::new();
    let mut number = 0;
    loop {
        bytes.clear();
        let read = (&mut *input)
            .take(LONGEST_LINE_BYTES)
            .read_until(b'\n', &mut bytes)
            .map_err(|error| format!("cannot be read: {error}"))?;
        if read == 0 {
            log.line_count = number;
            return Ok(());
        }
        number += 1;
        let ended = bytes.last() == Some(&b'\n');
        if !ended && read as u64 == LONGEST_LINE_BYTES {
            log.bad_line(number, "the line is longer than 4 MiB", "");
            skip_line(input)?;
            continue;
        }
        let text = String::from_utf8_lossy(&bytes);
        for version in text.trim_end_matches('\n').split('\r') {
            let plain = without_colours(version);
            if !plain.trim().is_empty() {
                each(log, number, &plain, ended);
            }
        }
    }
}

fn skip_line(input: &mut dyn BufRead) -> Result<(), String> {
    loop {
        let buffer = input
            .fill_buf()
            .map_err(|error| format!("cannot be read: {error}"))?;
        if buffer.is_empty() {
            return Ok(());
        }
        let line_end = buffer.iter().position(|&byte| byte == b'\n');
        let used = line_end.map_or(buffer.len(), |at| at + 1);
        input.consume(used);
        if line_end.is_some() {
            return Ok(());
        }
    }
}

/// A text without escape sequences.
pub(super) fn plain(text: &str) -> String {
    without_colours(text).into_owned()
}

/// The text without ANSI escape sequences (`ESC [ … letter`).
fn without_colours(text: &str) -> Cow<'_, str> {
    if !text.contains('\x1b') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(letter) = rest.next() {
        if letter != '\x1b' {
            out.push(letter);
        } else if rest.next_if_eq(&'[').is_some() {
            for letter in rest.by_ref() {
                if ('\x40'..='\x7e').contains(&letter) {
                    break;
                }
            }
        }
    }
    Cow::Owned(out)
}

/// The text behind the first `key`, without blanks before it.
pub(super) fn after<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let at = text.find(key)?;
    Some(text[at + key.len()..].trim_start())
}

/// The number that a text begins with, commas between its digits left out; `nan` and `inf` are numbers.
pub(super) fn number(text: &str) -> Option<f64> {
    let text = text.trim_start();
    let end = text
        .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | ',' | '+' | '-')))
        .unwrap_or(text.len());
    let mut word = text[..end].trim_end_matches([',', '.']).replace(',', "");
    loop {
        if let Ok(number) = word.parse() {
            return Some(number);
        }
        // A unit may follow at once: 12.5ms.
        match word.pop() {
            Some(last)
                if last.is_ascii_alphabetic()
                    && word.ends_with(|c: char| c.is_ascii_alphanumeric()) => {}
            _ => return None,
        }
    }
}

/// The whole number that a text begins with, commas between its digits left out.
pub(super) fn whole(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == ','))
        .unwrap_or(text.len());
    text[..end].replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_removed_and_all_else_stays() {
        assert_eq!(plain("\x1b[31mstep: \x1b[1;32m10\x1b[0m é"), "step: 10 é");
        assert_eq!(plain("cut off \x1b[3"), "cut off ");
    }

    #[test]
    fn numbers_have_commas_units_and_nan() {
        assert_eq!(number("  7,123  tflops"), Some(7123.0));
        assert_eq!(number("135.20ms, mfu"), Some(135.2));
        assert_eq!(number("1.177651E+01 |"), Some(11.77651));
        assert_eq!(number("41.69%"), Some(41.69));
        assert!(number("nan, time").is_some_and(f64::is_nan));
        assert_eq!(number("N/A"), None);
        assert_eq!(number("-"), None);
        assert_eq!(whole("491,520"), Some(491_520));
        assert_eq!(whole("10/ 500"), Some(10));
        assert_eq!(whole("x"), None);
    }

    #[test]
    fn lines_end_with_any_line_end_or_none() {
        let mut seen = Vec::new();
        let mut log = Log::default();
        let text = b"a\r\n\n10%\r20%\rb\nlast".as_slice();
        for_each(&mut { text }, &mut log, &mut |_, number, line, ended| {
            seen.push((number, line.to_string(), ended));
        })
        .expect("read");
        let expected = [
            (1, "a", true),
            (3, "10%", true),
            (3, "20%", true),
            (3, "b", true),
            (4, "last", false),
        ];
        assert_eq!(
            seen.iter()
                .map(|(n, l, e)| (*n, l.as_str(), *e))
                .collect::<Vec<_>>(),
            expected
        );
        assert_eq!(log.line_count, 4);
    }

    #[test]
    fn a_line_without_end_is_bounded() {
        let mut text = vec![b'x'; (LONGEST_LINE_BYTES + 5) as usize];
        text.extend(b"\nnext\n");
        let mut seen = Vec::new();
        let mut log = Log::default();
        for_each(&mut text.as_slice(), &mut log, &mut |_, number, line, _| {
            seen.push((number, line.len()));
        })
        .expect("read");
        assert_eq!(seen, [(2, 4)]);
        assert_eq!((log.bad_line_count, log.bad_lines[0].line), (1, 1));
    }
}
