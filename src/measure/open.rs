//! The logs of a run: found, their format told, read.

use super::{Refusal, RunRequest};
use crate::logs::{self, HEAD_BYTES, Log};
use crate::record::{Kind, Options, Value};
use crate::source::find_files;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

/// Names, logs and format of a run.
pub(super) type LogsRead = (Vec<String>, Vec<Log>, &'static str);

/// Reads the logs of a run.
pub(super) fn read(base: &Path, run: &RunRequest) -> Result<LogsRead, Vec<Refusal>> {
    let refuse = |file: String, message: String| {
        vec![Refusal {
            file,
            line: 0,
            message,
        }]
    };
    let owner = format!("run '{}'", run.name);
    let files =
        find_files(base, &run.logs).map_err(|error| refuse(owner.clone(), error.to_string()))?;
    if files.is_empty() {
        let message = format!("no file matches {}; name its logs", run.logs.join(", "));
        return Err(refuse(owner, message));
    }
    let mut opened = Vec::new();
    let mut found: BTreeSet<&'static str> = BTreeSet::new();
    for file in &files {
        let name = file.path.display().to_string();
        let unreadable =
            |error: std::io::Error| refuse(name.clone(), format!("cannot be read: {error}"));
        let mut input = File::open(&file.path).map_err(unreadable)?;
        let mut head = Vec::new();
        (&mut input)
            .take(HEAD_BYTES as u64)
            .read_to_end(&mut head)
            .map_err(unreadable)?;
        input.seek(SeekFrom::Start(0)).map_err(unreadable)?;
        if let Some(how) = logs::packed(&head) {
            return Err(refuse(name, how.to_string()));
        }
        if run.reader.is_none() {
            let formats = logs::guess(&head);
            match formats[..] {
                [kind] => {
                    found.insert(kind.spec.name);
                }
                // A process may have ended before it wrote a line that tells.
                [] => {}
                _ => {
                    let names: Vec<&str> = formats.iter().map(|kind| kind.spec.name).collect();
                    let message = format!(
                        "could be {}; say which: 'reader: {{ format: {} }}'",
                        names.join(" or "),
                        names[0]
                    );
                    return Err(refuse(name, message));
                }
            }
        }
        opened.push((name, input));
    }
    let (kind, options) = match &run.reader {
        Some(reader) => {
            let kind =
                logs::find(&reader.format).expect("the plan knows only formats of the table");
            (kind, reader.options.clone())
        }
        None => {
            let names: Vec<&str> = found.iter().copied().collect();
            let message = match names[..] {
                [name] => {
                    let kind = logs::find(name).expect("found in the table");
                    return finish(kind, &defaults(kind), opened);
                }
                [] => format!(
                    "no known format of training logs; name the right file, or its format: one of {}",
                    logs::TABLE
                        .iter()
                        .map(|kind| kind.spec.name)
                        .collect::<Vec<_>>()
                        .join(", ")
                ),
                _ => format!(
                    "its logs have several formats: {}; measure them as several runs",
                    names.join(", ")
                ),
            };
            let file = match names.is_empty() {
                true => opened[0].0.clone(),
                false => owner,
            };
            return Err(refuse(file, message));
        }
    };
    finish(kind, &options, opened)
}

fn finish(
    kind: &'static logs::LogKind,
    options: &Options,
    opened: Vec<(String, File)>,
) -> Result<LogsRead, Vec<Refusal>> {
    let refuse = |file: &str, message: String| {
        vec![Refusal {
            file: file.to_string(),
            line: 0,
            message,
        }]
    };
    let reader = (kind.build)(options).map_err(|error| {
        refuse(
            kind.spec.name,
            format!(
                "'{}' must be {}, got {}",
                error.option, error.must_be, error.found
            ),
        )
    })?;
    let (mut names, mut read) = (Vec::new(), Vec::new());
    for (name, input) in opened {
        let mut log = Log::default();
        reader
            .read(&mut BufReader::with_capacity(1 << 16, input), &mut log)
            .map_err(|message| refuse(&name, message))?;
        names.push(name);
        read.push(log);
    }
    Ok((names, read, kind.spec.name))
}

/// The options of a format that nobody named.
pub(super) fn defaults(kind: &logs::LogKind) -> Options {
    let mut options = Options::default();
    for option in kind.spec.options {
        let value = match (option.default, &option.kind) {
            (None | Some("null"), _) => Value::Null,
            (Some(text), Kind::Text) => Value::Text(text.to_string()),
            _ => unreachable!("options of readers are texts, as a test of the table says"),
        };
        options.set(option.name, value);
    }
    options
}
