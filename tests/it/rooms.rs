//! The rooms of the library: which may look into which, and what must not be found in them.
//!
//! The sources are read as text; tests inside them are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// What a room may look into. Everything else is refused.
const DIRECTIONS: &[(&str, &[&str], &str)] = &[
    ("record", &[], "plain data"),
    ("algo", &[], "pure functions on slices"),
    ("tokenizer", &[], "text to ids, for whoever needs it"),
    (
        "spill",
        &["record", "algo"],
        "sorts bytes; keyed hashing is of algo",
    ),
    ("page", &[], "texts and numbers to HTML"),
    ("contained", &[], "calls decoders of other libraries"),
    (
        "source",
        &["record", "contained"],
        "bytes to documents by decoders of others",
    ),
    (
        "shard",
        &["record", "algo", "contained"],
        "writes rows; checksums are hashes of algo",
    ),
    (
        "audit",
        &["record", "algo", "page"],
        "adds up, and shows it; knows how a byte was rounded",
    ),
    (
        "stages",
        &["record", "algo", "spill"],
        "judge one document at a time",
    ),
    (
        "dedupe",
        &["record", "algo", "spill"],
        "decides who is a copy of whom",
    ),
    (
        "score",
        &["record", "algo", "spill"],
        "estimates usefulness",
    ),
    ("order", &["record", "algo", "spill"], "sorts documents"),
    (
        "pack",
        &["record", "algo", "spill", "order"],
        "takes its documents in the order's items",
    ),
    ("logs", &["record"], "training logs to events"),
    (
        "measure",
        &["record", "algo", "source", "logs", "shard", "audit", "page"],
        "adds up what logs say; globs, manifest and ledger are read elsewhere, repeats are valued in algo",
    ),
    (
        "plan",
        &[
            "record",
            "algo",
            "source",
            "tokenizer",
            "stages",
            "dedupe",
            "score",
            "order",
            "pack",
            "logs",
            "measure",
        ],
        "knows every table of names and options",
    ),
    (
        "engine",
        &[
            "record",
            "algo",
            "spill",
            "tokenizer",
            "source",
            "stages",
            "dedupe",
            "score",
            "order",
            "pack",
            "shard",
            "audit",
            "plan",
        ],
        "does what a plan says with everything that a plan names",
    ),
    (
        "terminal",
        &["engine", "audit"],
        "shows the engine's reports, with the ledger's way of writing numbers",
    ),
    (
        "cli",
        &[
            "record",
            "algo",
            "tokenizer",
            "score",
            "order",
            "pack",
            "plan",
            "engine",
            "audit",
            "page",
            "shard",
            "logs",
            "measure",
            "terminal",
        ],
        "explains the tables of options and shows tokens as text",
    ),
    ("main", &["cli", "terminal"], "arguments to exit code"),
];

/// Path below `src` with the lines that are neither comment nor test.
struct Source {
    path: String,
    room: String,
    lines: Vec<(usize, String)>,
}

fn sources() -> Vec<Source> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    let mut sources = Vec::new();
    for entry in walkdir::WalkDir::new(root).sort_by_file_name() {
        let entry = entry.expect("readable");
        let path = entry
            .path()
            .strip_prefix(root)
            .expect("below it")
            .to_str()
            .expect("UTF-8")
            .to_string();
        let only_tests = path.ends_with("/tests.rs") || path.ends_with("/testing.rs");
        if !path.ends_with(".rs") || only_tests || path == "lib.rs" {
            continue;
        }
        let text = fs::read_to_string(entry.path()).expect("readable");
        let mut lines = Vec::new();
        let all: Vec<&str> = text.lines().collect();
        for (at, line) in all.iter().enumerate() {
            // Tests stand last in their file.
            if line.trim() == "#[cfg(test)]"
                && all
                    .get(at + 1)
                    .is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'))
            {
                break;
            }
            if !line.trim_start().starts_with("//") {
                lines.push((at + 1, line.to_string()));
            }
        }
        let room = path
            .split('/')
            .next()
            .expect("a name")
            .trim_end_matches(".rs")
            .to_string();
        sources.push(Source { path, room, lines });
    }
    assert!(sources.len() > 80, "the sources have been found");
    sources
}

/// Every place that holds one of these words, in rooms for which `wanted` says so.
fn places(words: &[&str], wanted: impl Fn(&Source) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources().iter().filter(|source| wanted(source)) {
        for (number, line) in &source.lines {
            if words.iter().any(|word| line.contains(word)) {
                found.push(format!("src/{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    found
}

/// The rooms that a text names after `crate::` or `goodput::`, also in braces and over lines.
fn named_rooms(text: &str, rooms: &BTreeSet<&str>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for prefix in ["crate::", "goodput::"] {
        for (at, _) in text.match_indices(prefix) {
            let rest = &text[at + prefix.len()..];
            let words: Vec<&str> = match rest.strip_prefix('{') {
                // Only the first word of each entry of the braces names a room.
                Some(inner) => {
                    let mut depth = 0;
                    let end = inner.find(|c| {
                        depth += i32::from(c == '{') - i32::from(c == '}');
                        depth < 0
                    });
                    let mut depth = 0;
                    inner[..end.expect("closed")]
                        .split(|c: char| {
                            depth += i32::from(c == '{') - i32::from(c == '}');
                            c == ',' && depth == 0
                        })
                        .collect()
                }
                None => vec![rest],
            };
            for word in words {
                let word = word.trim_start();
                let name = &word[..word
                    .find(|c: char| !c.is_alphanumeric() && c != '_')
                    .unwrap_or(word.len())];
                if rooms.contains(name) {
                    found.insert(name.to_string());
                }
            }
        }
    }
    found
}

#[test]
fn every_room_looks_only_where_it_may() {
    let rooms: BTreeSet<&str> = DIRECTIONS.iter().map(|(room, _, _)| *room).collect();
    let mut seen: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for source in sources() {
        let (_, allowed, reason) = DIRECTIONS
            .iter()
            .find(|(room, _, _)| *room == source.room)
            .unwrap_or_else(|| {
                panic!(
                    "src/{} is in a room that stands in no direction",
                    source.path
                )
            });
        let text = source
            .lines
            .iter()
            .map(|(_, line)| line.as_str())
            .collect::<Vec<_>>()
            .join("\n");
        for named in named_rooms(&text, &rooms) {
            if named != source.room && !allowed.contains(&named.as_str()) {
                wrong.push(format!(
                    "src/{} names {named}; {} is: {reason}",
                    source.path, source.room
                ));
            }
            seen.entry(source.room.clone()).or_default().insert(named);
        }
    }
    assert_eq!(wrong, [] as [String; 0]);
    assert_eq!(
        seen.keys()
            .map(String::as_str)
            .filter(|room| *room == "engine")
            .count(),
        1,
        "names are found at all"
    );
    assert!(seen["engine"].contains("stages") && seen["main"].contains("cli"));
}

#[test]
fn rooms_in_braces_and_over_lines_are_found() {
    let rooms: BTreeSet<&str> = DIRECTIONS.iter().map(|(room, _, _)| *room).collect();
    let text =
        "use crate::{\n    algo::{hash, plan},\n    engine,\n};\nlet x = crate::shard::schema();";
    assert_eq!(
        named_rooms(text, &rooms).into_iter().collect::<Vec<_>>(),
        ["algo", "engine", "shard"]
    );
}

#[test]
fn record_and_algo_do_no_io_read_no_clock_and_start_no_thread() {
    let words = [
        "std::fs",
        "std::io",
        "std::net",
        "std::env",
        "std::process",
        "std::thread",
        "std::time",
        "File::",
        "Instant",
        "SystemTime",
        "rayon",
        "saphyr",
        "parquet::",
        " arrow::",
        "(arrow::",
    ];
    assert_eq!(
        places(&words, |source| ["record", "algo"]
            .contains(&source.room.as_str())),
        [] as [String; 0]
    );
}

#[test]
fn no_clock_where_results_are_made() {
    let rooms = [
        "stages",
        "dedupe",
        "score",
        "order",
        "pack",
        "source",
        "shard",
        "audit",
        "spill",
        "plan",
        "tokenizer",
        "logs",
        "measure",
    ];
    let words = ["std::time", "Instant", "SystemTime"];
    // When a file was written is compared for equality alone, to know that it is the one that was found.
    let looks = |source: &Source| source.path == "source/files.rs";
    assert_eq!(
        places(&words, |source| rooms.contains(&source.room.as_str())
            && !looks(source)),
        [] as [String; 0]
    );
}

#[test]
fn arrow_and_parquet_stand_only_where_files_are_read_or_written() {
    let words = ["arrow::", "parquet::"];
    let wrong = places(&words, |source| {
        !["source", "shard"].contains(&source.room.as_str())
            && !source.path.starts_with("engine/emit")
    });
    // Names of our own modules and types end like that too.
    let wrong: Vec<String> = wrong
        .into_iter()
        .filter(|line| line.contains(" arrow::") || line.contains(" parquet::"))
        .collect();
    assert_eq!(wrong, [] as [String; 0]);
}

#[test]
fn only_the_terminal_prints() {
    let words = [
        "println!",
        "print!",
        "eprintln!",
        "eprint!",
        "dbg!",
        "io::stdout()",
        "io::stderr()",
    ];
    assert_eq!(
        places(&words, |source| source.room != "terminal"),
        [] as [String; 0]
    );
}

#[test]
fn one_file_is_unsafe_and_says_why() {
    let files: BTreeSet<String> = places(&["unsafe "], |_| true)
        .into_iter()
        .map(|place| place.split(':').next().expect("a path").to_string())
        .collect();
    assert_eq!(files.into_iter().collect::<Vec<_>>(), ["src/spill/map.rs"]);
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/spill/map.rs"))
        .expect("readable");
    assert_eq!(
        text.matches("unsafe {").count(),
        text.matches("// SAFETY:").count()
    );
}

#[test]
fn only_the_plan_knows_yaml_and_only_the_outer_rooms_the_environment() {
    assert_eq!(
        places(&["saphyr"], |source| source.room != "plan"),
        [] as [String; 0]
    );
    let asks = places(&["env::var"], |source| {
        !["plan", "terminal", "cli"].contains(&source.room.as_str())
    });
    assert_eq!(asks, [] as [String; 0]);
}

#[test]
fn only_shard_names_a_column_of_the_output() {
    let columns = [
        "\"input_ids\"",
        "\"row_start\"",
        "\"doc_token_start\"",
        "\"kept_id\"",
        "\"dropped_id\"",
    ];
    // The plan lists names that fields of the user must not have.
    let wrong = places(&columns, |source| {
        source.room != "shard" && source.path != "plan/sections.rs"
    });
    assert_eq!(wrong, [] as [String; 0]);
}

#[test]
fn no_entry_of_a_table_names_another_entry() {
    let tables: [(&str, Vec<&str>); 5] = [
        (
            "logs",
            goodput::logs::TABLE
                .iter()
                .map(|kind| kind.spec.name)
                .collect(),
        ),
        (
            "stages",
            goodput::stages::TABLE
                .iter()
                .map(|kind| kind.spec.name)
                .collect(),
        ),
        (
            "score",
            goodput::score::TABLE
                .iter()
                .map(|kind| kind.spec.name)
                .collect(),
        ),
        (
            "order",
            goodput::order::TABLE
                .iter()
                .map(|kind| kind.spec.name)
                .collect(),
        ),
        (
            "pack",
            goodput::pack::TABLE
                .iter()
                .map(|kind| kind.spec.name)
                .collect(),
        ),
    ];
    let mut wrong = Vec::new();
    for (room, entries) in tables {
        for entry in &entries {
            let path = format!("{room}/{entry}.rs");
            assert!(
                sources().iter().any(|source| source.path == path),
                "'{entry}' has a file of its own"
            );
            for other in entries.iter().filter(|other| *other != entry) {
                wrong.extend(places(
                    &[&format!("super::{other}::"), &format!("{room}::{other}::")],
                    |source| source.path == path,
                ));
            }
        }
    }
    assert_eq!(wrong, [] as [String; 0]);
}
