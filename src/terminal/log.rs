//! The run's log: lines with times, kept in the output folder as they come, and what of them is shown.
//!
//! It is an output file, so it names no place of the machine: a path below the output folder, the pipeline's
//! folder or the folder that the program was started in is written from there on, of another absolute one the
//! last part alone, unless the pipeline file itself holds it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

/// Which paths may stand in the log.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Folders, absolute, that paths are written from.
    pub folders: Vec<PathBuf>,
    /// The text of the pipeline file.
    pub pipeline: String,
}

impl Places {
    /// A text without places of the machine.
    pub fn hide(&self, text: &str) -> String {
        let mut folders: Vec<&str> = self
            .folders
            .iter()
            .filter_map(|folder| folder.to_str())
            .filter(|folder| folder.len() > 1)
            .collect();
        folders.sort_by_key(|folder| std::cmp::Reverse(folder.len()));
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        let mut before = ' ';
        while let Some(c) = rest.chars().next() {
            if c != '/' || !may_begin_after(before) {
                out.push(c);
                rest = &rest[c.len_utf8()..];
                before = c;
                continue;
            }
            let below = folders.iter().find_map(|folder| {
                let after = rest.strip_prefix(folder)?;
                (!after.starts_with(in_name)).then_some(after)
            });
            let end = |text: &str| text.find(|c| !in_name(c) && c != '/').unwrap_or(text.len());
            match below {
                Some(after) => {
                    let after = after.strip_prefix('/').unwrap_or(after);
                    let end = end(after);
                    out.push_str(if end == 0 { "." } else { &after[..end] });
                    rest = &after[end..];
                }
                None => {
                    let path = &rest[..end(rest)];
                    // A sentence may end after it.
                    let path = path.trim_end_matches('.');
                    let last = path.trim_end_matches('/').rsplit('/').next().unwrap_or("");
                    match last.is_empty() || self.pipeline.contains(path) {
                        true => out.push_str(path),
                        false => {
                            out.push_str("[...]/");
                            out.push_str(last);
                        }
                    }
                    rest = &rest[path.len()..];
                }
            }
            before = 'a';
        }
        out
    }
}

/// Whether a path may begin after this character: `/` within a word divides, as in "tokens/s".
fn may_begin_after(before: char) -> bool {
    !in_name(before) && before != '/'
}

/// Characters of names in paths; others end a path, as far as can be told in running text.
fn in_name(c: char) -> bool {
    !c.is_whitespace()
        && !matches!(
            c,
            '/' | '\'' | '"' | '`' | ':' | ',' | ';' | '(' | ')' | '<' | '>' | '='
        )
}

/// Lines, in memory until a file is named.
#[derive(Debug)]
pub(super) struct Log {
    began: SystemTime,
    places: Places,
    waiting: String,
    file: Option<File>,
}

impl Log {
    pub fn new(places: Places) -> Log {
        Log {
            began: SystemTime::now(),
            places,
            waiting: String::new(),
            file: None,
        }
    }

    /// Adds a line, `seconds` after the beginning.
    ///
    /// # Errors
    /// When the file cannot be written; what it lacks is then gone.
    pub fn line(&mut self, seconds: f64, level: &str, text: &str) -> io::Result<()> {
        let time = self.began + Duration::from_secs_f64(seconds.max(0.0));
        let text = super::one_entry(&self.places.hide(text));
        self.waiting
            .push_str(&format!("{} {level:<7} {text}\n", utc(time)));
        self.flush()
    }

    /// Keeps the log in this file from here on, after what is there of runs that were stopped.
    pub fn open(&mut self, path: &Path) -> io::Result<()> {
        self.file = Some(OpenOptions::new().create(true).append(true).open(path)?);
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let written = file.write_all(self.waiting.as_bytes());
        self.waiting.clear();
        written
    }
}

/// A time in UTC with milliseconds, as RFC 3339 has it.
fn utc(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut day) = (1970, days);
    loop {
        let length = 365 + u64::from(leap(year));
        if day < length {
            break;
        }
        day -= length;
        year += 1;
    }
    let mut month = 1;
    for length in [
        31,
        28 + u64::from(leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    format!(
        "{year:04}-{month:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        day + 1,
        second / 3600,
        second / 60 % 60,
        second % 60,
        since.subsec_millis()
    )
}

/// Receives this program's own events; there are no spans.
pub(super) struct Events {
    pub most: LevelFilter,
    pub to: fn(Level, &str),
}

impl Subscriber for Events {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && metadata.target().split("::").next() == Some(env!("CARGO_CRATE_NAME"))
            && *metadata.level() <= self.most
    }
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.most)
    }
    fn event(&self, event: &Event<'_>) {
        let mut words = Words::default();
        event.record(&mut words);
        (self.to)(*event.metadata().level(), &(words.message + &words.fields));
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Words {
    message: String,
    fields: String,
}

impl Visit for Words {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message.push_str(value),
            name => self.fields.push_str(&format!(", {name} {value}")),
        }
    }
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_machine_are_not_written() {
        let places = Places {
            folders: vec![
                "/home/anna/work".into(),
                "/home/anna/work/out".into(),
                "/".into(),
            ],
            pipeline: "path: /data/web/*.jsonl".to_string(),
        };
        for (text, hidden) in [
            ("/home/anna/work/in.jsonl: cut off", "in.jsonl: cut off"),
            (
                "'/home/anna/work/out/shards/a' of /home/anna/work/out.",
                "'shards/a' of out.",
            ),
            ("in /home/anna/work, see", "in ., see"),
            ("/home/anna/worker/x", "[...]/x"),
            (
                "cannot read /srv/secret/name.zst: gone",
                "cannot read [...]/name.zst: gone",
            ),
            ("/data/web is named", "/data/web is named"),
            (
                "12 tokens/s and and/or 1 / 2",
                "12 tokens/s and and/or 1 / 2",
            ),
            ("--work=/mnt/fast/x", "--work=[...]/x"),
            ("relative/path/x.jsonl", "relative/path/x.jsonl"),
            ("", ""),
            ("é /home/anna/é", "é [...]/é"),
        ] {
            assert_eq!(places.hide(text), hidden, "{text}");
        }
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        let at =
            |seconds: u64, millis: u64| UNIX_EPOCH + Duration::from_millis(seconds * 1000 + millis);
        assert_eq!(utc(at(0, 0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(at(951_782_400, 7)), "2000-02-29T00:00:00.007Z");
        assert_eq!(utc(at(4_107_542_399, 999)), "2100-02-28T23:59:59.999Z");
        assert_eq!(utc(at(4_107_542_400, 0)), "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn what_was_said_before_a_file_was_named_stands_first_in_it() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("run.log");
        std::fs::write(&path, "earlier\n")?;
        let mut log = Log::new(Places::default());
        log.line(0.0, "info", "one")?;
        log.open(&path)?;
        log.line(1.5, "warning", "two\nerror  three\u{1b}[2J")?;
        let text = std::fs::read_to_string(&path)?;
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(
            lines[0] == "earlier" && lines[1].ends_with("Z info    one"),
            "{text}"
        );
        assert!(lines[2].ends_with("Z warning two"), "{text}");
        // A name with a line end in it makes no entry of its own.
        assert_eq!(lines[3], "    error  three\u{fffd}[2J");
        Ok(())
    }
}
