//! The commands as a user meets them: exit codes, what goes to which stream, what each option of
//! `run` does, and the schemas.

use crate::support::{Folder, Numbers, Ran, line};
use goodput::audit::Audit;
use goodput::engine::RunRecord;
use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const COMMANDS: [&str; 9] = [
    "run",
    "check",
    "audit",
    "verify",
    "inspect",
    "measure",
    "calibrate",
    "stages",
    "schema",
];

/// A folder with twenty documents, one copy and one that is too short.
fn small() -> Folder {
    let folder = Folder::new();
    let mut numbers = Numbers(21);
    let mut texts: Vec<String> = (0..18).map(|_| numbers.words(30)).collect();
    texts.push(texts[3].clone());
    texts.push("short".to_string());
    folder.documents("in.jsonl", &texts);
    folder.documents(
        "reference.jsonl",
        &(0..20).map(|_| numbers.words(30)).collect::<Vec<_>>(),
    );
    folder.pipeline("stages:\n  - length: { min_tokens: 10 }\n  - exact_dedupe: {}\n");
    folder
}

fn record(folder: &Folder, out: &str) -> RunRecord {
    serde_json::from_value(folder.out(out).json("run.json")).expect("a record")
}

// ---- Exit codes and streams ---------------------------------------------------------------

#[test]
fn a_run_that_is_done_exits_with_0_one_that_failed_with_1_a_wrong_request_with_2() {
    let folder = small();
    assert_eq!(folder.goodput(&["run", "p.yaml"]).code, Some(0));
    assert_eq!(folder.goodput(&["verify", "out"]).code, Some(0));
    assert_eq!(folder.goodput(&["check", "p.yaml"]).code, Some(0));

    folder.write("bad.jsonl", "{\n");
    folder.pipeline_at(
        "fails.yaml",
        "inputs:\n  - { path: bad.jsonl, source: web, on_error: fail }\noutput: { path: failed }\n",
    );
    folder
        .goodput(&["run", "fails.yaml", "--progress", "off"])
        .fails(&["error: ", "bad.jsonl", "invalid_json"]);

    folder.pipeline_at("wrong.yaml", "sed: 1\n");
    let wrong: [&[&str]; 10] = [
        &["run", "absent.yaml"],
        &["run", "wrong.yaml"],
        &["check", "wrong.yaml"],
        &["run", "p.yaml", "--treads", "2"],
        &["walk", "p.yaml"],
        &["audit", "absent"],
        &["inspect", "absent"],
        &["verify", "absent"],
        &["schema", "pipelin"],
        &["stages", "lenght"],
    ];
    for arguments in wrong {
        folder.goodput(arguments).refuses(&["error: "]);
    }
}

#[test]
fn a_damaged_folder_is_found_by_verify_and_exits_with_1() {
    let folder = small();
    folder.pipeline("stages:\n  - length: { min_tokens: 10 }\n  - exact_dedupe: {}\noutput: { path: out, rejects: text }\n");
    folder.run(&[]);
    let files = folder.out("out").names();
    for name in files.iter().filter(|name| !name.starts_with("run.")) {
        let path = folder.path("out").join(name);
        let whole = fs::read(&path).expect("a file");
        let mut flipped = whole.clone();
        if let Some(byte) = flipped.get_mut(whole.len() / 2) {
            *byte ^= 1;
        }
        for damaged in [
            Some(flipped),
            Some(whole[..whole.len() / 2].to_vec()),
            Some([&whole[..], b"x"].concat()),
            None,
        ] {
            // The quarantine is empty: only what makes it longer or takes it away is damage.
            if damaged.as_ref() == Some(&whole) || (name == "manifest.json" && damaged.is_none()) {
                continue;
            }
            match &damaged {
                Some(bytes) => fs::write(&path, bytes).expect("written"),
                None => fs::remove_file(&path).expect("removed"),
            }
            let ran = folder.goodput(&["verify", "out"]);
            assert_eq!(ran.code, Some(1), "{name}: {ran:?}");
            assert!(
                ran.stdout.contains("FAILS") && ran.stderr.contains("error: "),
                "{name}: {ran:?}"
            );
            fs::write(&path, &whole).expect("written");
        }
    }
    folder.write("out/shards/shard-00001.parquet", "a stranger");
    assert_eq!(folder.goodput(&["verify", "out"]).code, Some(1));
    fs::remove_file(folder.path("out/shards/shard-00001.parquet")).expect("removed");
    folder.verify("out");
}

#[test]
fn every_problem_of_a_pipeline_is_told_at_once_with_its_place() {
    let folder = small();
    folder.pipeline("sed: 1\nstages:\n  - lenght: {}\n  - length: { min_tokens: -1 }\n");
    let ran = folder.goodput(&["check", "p.yaml"]);
    ran.refuses(&[
        "'sed'",
        "did you mean 'seed'",
        "'lenght'",
        "did you mean 'length'",
        "'min_tokens'",
    ]);
    assert!(ran.stderr.matches("p.yaml:").count() >= 3, "{}", ran.stderr);
}

#[test]
fn the_help_of_every_command_has_an_example() {
    let folder = Folder::new();
    let help = folder.goodput(&["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    for command in COMMANDS {
        assert!(help.stdout.contains(command), "{command}");
        let ran = folder.goodput(&[command, "--help"]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{command}");
        assert!(
            ran.stdout.contains("Example") && ran.stdout.contains(&format!("goodput {command}")),
            "{}",
            ran.stdout
        );
    }
}

#[test]
fn results_go_to_stdout_and_the_rest_to_stderr() {
    let folder = small();
    let ran = folder.goodput(&["run", "p.yaml", "--progress", "plain"]);
    assert!(
        ran.stdout.contains("the ledger closes") && !ran.stdout.contains("prepare"),
        "{ran:?}"
    );
    assert!(
        ran.stderr.contains("prepare") && !ran.stderr.contains("the ledger closes"),
        "{ran:?}"
    );
    for arguments in [
        &["audit", "out", "--format", "json"][..],
        &["verify", "out", "--format", "json"],
        &["check", "p.yaml", "--format", "json"],
        &["schema", "audit"],
    ] {
        let ran = folder.goodput(arguments);
        assert_eq!(
            (ran.code, ran.stderr.as_str()),
            (Some(0), ""),
            "{arguments:?}"
        );
        serde_json::from_str::<Value>(&ran.stdout)
            .unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
    }
    let ledger = folder.goodput(&["audit", "out", "--format", "json"]).stdout;
    assert_eq!(
        serde_json::from_str::<Value>(&ledger).expect("JSON"),
        folder.out("out").json("audit.json")
    );
    for by in ["source", "stage", "reason"] {
        let ran = folder.goodput(&["audit", "out", "--by", by]);
        assert!(
            ran.code == Some(0) && ran.stderr.is_empty() && ran.stdout.contains("kept"),
            "{ran:?}"
        );
    }
    let csv = folder.goodput(&["audit", "out", "--format", "csv"]).stdout;
    let columns = csv.lines().next().expect("a head").split(',').count();
    assert!(
        csv.lines().count() > 3 && csv.lines().all(|line| line.split(',').count() == columns),
        "{csv}"
    );
}

#[test]
fn a_reader_that_has_gone_away_is_no_error() {
    let folder = small();
    folder.run(&[]);
    for arguments in [
        &["audit", "out"][..],
        &["verify", "out"],
        &["inspect", "out"],
        &["stages"],
        &["schema", "pipeline"],
        &["check", "p.yaml"],
        &["run", "p.yaml", "--out", "again", "--progress", "off"],
        &["--help"],
        &["run", "--help"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = folder
            .command(arguments)
            .stdout(writer)
            .output()
            .expect("it starts");
        assert_eq!(
            output.status.code(),
            Some(0),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
    }
    folder.verify("again");
}

#[test]
fn inspect_shows_documents_and_rejects() {
    let folder = small();
    folder.run(&[]);
    let ran = folder.goodput(&["inspect", "out", "--documents", "2"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert_eq!(
        ran.stdout.matches("source web").count(),
        2,
        "{}",
        ran.stdout
    );
    let ran = folder.goodput(&["inspect", "out", "--rejects", "--reason", "too_few_tokens"]);
    assert!(
        ran.code == Some(0)
            && ran.stdout.contains("short")
            && !ran.stdout.contains("exact_duplicate"),
        "{ran:?}"
    );
    folder
        .goodput(&["inspect", "out", "--id", "nobody"])
        .refuses(&["no document matches"]);
}

#[test]
fn paths_in_a_pipeline_are_relative_to_its_file() {
    let folder = small();
    let pipeline = "inputs:\n  - { path: \"*.jsonl\", source: web }\ntokenizer: { file: ../tokenizer.json }\n\
                    stages:\n  - score: { estimator: ngram_excess, reference: [good/*.jsonl, \"!good/not*\"] }\n";
    folder.pipeline_at("sub/p.yaml", pipeline);
    folder.write("sub/in.jsonl", folder_text(&folder));
    folder.write(
        "sub/good/a.jsonl",
        fs::read(folder.path("reference.jsonl")).expect("written"),
    );
    folder.write("sub/good/not.jsonl", "{}\n");
    let ran = folder.goodput(&["run", "sub/p.yaml", "--progress", "off"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    folder.verify("sub/out");
    let absolute = folder.path("sub/p.yaml");
    let ran = folder.goodput(&[
        "run",
        absolute.to_str().expect("UTF-8"),
        "--out",
        "again",
        "--progress",
        "off",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        folder.out("again").files() == folder.out("sub/out").files(),
        "other bytes"
    );
    folder.write(
        "sub/p.yaml",
        fs::read_to_string(&absolute)
            .expect("written")
            .replace("good/*", "absent/*"),
    );
    folder
        .goodput(&["check", "sub/p.yaml"])
        .refuses(&["absent/*.jsonl", "sub/p.yaml:"]);
}

// ---- Options of run -----------------------------------------------------------------------

#[test]
fn sample_reads_a_share_and_the_manifest_says_so() {
    let folder = small();
    folder.run(&["--sample", "0.5"]);
    folder.verify("out");
    let out = folder.out("out");
    assert_eq!(out.manifest().sample_share, Some(0.5));
    let audit = out.audit();
    assert_eq!(audit.sample_share, Some(0.5));
    assert!(
        audit.records_left_out > 0 && audit.records_left_out < 20,
        "{}",
        audit.records_left_out
    );
    for share in ["0", "1.5", "-0.1", "NaN", "half"] {
        folder
            .goodput(&[
                "run",
                "p.yaml",
                "--out",
                "other",
                &format!("--sample={share}"),
            ])
            .refuses(&["--sample"]);
    }
    // A sample is not taken for the whole.
    folder.goodput(&["run", "p.yaml"]).refuses(&["--replace"]);
    folder.run(&["--sample", "1", "--out", "all"]);
    assert_eq!(folder.out("all").audit().records_left_out, 0);
}

#[test]
fn set_changes_the_pipeline_and_nothing_else() {
    let folder = small();
    folder.pipeline(
        "stages:\n  - length: { min_tokens: 10 }\n  - exact_dedupe: {}\n  - length: {}\n",
    );
    folder.run(&[
        "--set",
        "stages.length#2.min_tokens=1_000_000",
        "--set",
        "seed=5",
    ]);
    let out = folder.out("out");
    assert_eq!(Audit::total(&out.audit().kept).documents, 0);
    assert!(
        out.rejects()
            .iter()
            .any(|reject| reject.stage == "length#2")
    );
    assert_eq!(out.manifest().seed, 5);
    assert!(out.text("pipeline.yaml").contains("seed: 5"));
    assert_eq!(
        record(&folder, "out").set,
        ["stages.length#2.min_tokens=1_000_000", "seed=5"]
    );
    // The same written into the file is the same pipeline.
    folder.pipeline("seed: 5\nstages:\n  - length: { min_tokens: 10 }\n  - exact_dedupe: {}\n  - length: { min_tokens: 1000000 }\n");
    assert!(folder.run(&[]).stdout.contains("complete already"));
    for (set, words) in [
        ("sed=5", &["'sed'", "did you mean 'seed'"][..]),
        (
            "stages.lenght.min_tokens=5",
            &["'lenght'", "did you mean 'length'"],
        ),
        (
            "stages.length.min_token=5",
            &["'min_token'", "did you mean 'min_tokens'"],
        ),
        ("seed=x", &["'seed'", "x"]),
        ("seed", &["--set"]),
    ] {
        folder
            .goodput(&["run", "p.yaml", "--set", set])
            .refuses(words);
    }
}

#[test]
fn out_names_another_folder_for_the_same_dataset() {
    let folder = small();
    folder.run(&[]);
    folder.run(&["--out", "deep/er/out"]);
    assert!(
        folder.out("out").files() == folder.out("deep/er/out").files(),
        "other bytes"
    );
    // Relative to the current folder, not to the pipeline's.
    fs::create_dir(folder.path("sub")).expect("a folder");
    let output = folder
        .command(&["run", "../p.yaml", "--out", "here", "--progress", "off"])
        .current_dir(folder.path("sub"))
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{output:?}");
    assert!(
        folder.out("sub/here").files() == folder.out("out").files(),
        "other bytes"
    );
    assert_eq!(
        folder
            .out("out")
            .names()
            .iter()
            .filter(|name| name.starts_with("work"))
            .count(),
        0
    );
}

#[test]
fn a_complete_run_does_nothing_again_and_fresh_redoes_it() {
    let folder = small();
    folder.run(&[]);
    let written = |name: &str| {
        fs::metadata(folder.path(name))
            .expect("a file")
            .modified()
            .expect("a time")
    };
    let (before, files) = (written("out/manifest.json"), folder.out("out").files());
    let again = folder.run(&[]);
    assert!(
        again.stdout.contains("complete already") && again.stdout.contains("--fresh"),
        "{again:?}"
    );
    assert_eq!(written("out/manifest.json"), before);
    let fresh = folder.run(&["--fresh"]);
    assert!(!fresh.stdout.contains("complete already"), "{fresh:?}");
    assert!(written("out/manifest.json") > before);
    assert!(folder.out("out").files() == files, "other bytes");
    // Another pipeline's folder is not a matter of freshness.
    folder.pipeline("seed: 99\n");
    folder
        .goodput(&["run", "p.yaml", "--fresh"])
        .refuses(&["--replace"]);
    assert!(folder.out("out").files() == files, "other bytes");
}

#[test]
fn work_goes_to_the_folder_named_and_leaves_what_is_not_its_own() {
    let folder = small();
    folder.write("scratch/mine.txt", "mine");
    folder.run(&["--work", "scratch", "--keep-work"]);
    assert!(
        folder
            .out("scratch")
            .names()
            .iter()
            .any(|name| name.ends_with("done.json")),
        "the work was there"
    );
    assert!(
        folder
            .out("out")
            .names()
            .iter()
            .all(|name| !name.ends_with("done.json")),
        "and nowhere else"
    );
    folder.run(&["--work", "scratch", "--out", "other"]);
    assert_eq!(folder.out("scratch").names(), ["mine.txt"]);
    assert_eq!(folder.out("out").names(), folder.out("other").names());
    folder.verify("other");
}

#[test]
fn kept_work_is_used_by_another_order() {
    let folder = small();
    folder.run(&["--work", "scratch", "--keep-work"]);
    let tasks = || -> BTreeSet<(String, std::time::SystemTime)> {
        let done = |name: &String| name.starts_with("prepare-") && name.ends_with("done.json");
        let names = folder.out("scratch").names().into_iter().filter(done);
        names
            .map(|name| {
                (
                    name.clone(),
                    fs::metadata(folder.path("scratch").join(name))
                        .expect("a file")
                        .modified()
                        .expect("a time"),
                )
            })
            .collect()
    };
    let before = tasks();
    assert!(!before.is_empty());
    folder.run(&[
        "--work",
        "scratch",
        "--keep-work",
        "--out",
        "shuffled",
        "--set",
        "order={strategy: shuffle}",
    ]);
    assert_eq!(tasks(), before, "what was prepared is taken as it is");
    folder.run(&[
        "--out",
        "shuffled-anew",
        "--set",
        "order={strategy: shuffle}",
    ]);
    assert!(folder.out("shuffled").files() == folder.out("shuffled-anew").files());
    assert_eq!(
        folder.out("shuffled").names(),
        folder.out("shuffled-anew").names()
    );
    assert!(folder.out("shuffled").files() != folder.out("out").files());
    assert!(!folder.path("shuffled-anew/work").exists());
}

#[test]
fn threads_and_memory_change_times_only() {
    let folder = small();
    folder.run(&["--threads", "1", "--memory", "8GiB"]);
    folder.run(&["--threads", "3", "--memory", "400MiB", "--out", "other"]);
    assert!(
        folder.out("out").files() == folder.out("other").files(),
        "other bytes"
    );
    let (one, three) = (record(&folder, "out"), record(&folder, "other"));
    assert_eq!((one.threads, one.memory_bytes), (1, 8 << 30));
    assert_eq!((three.threads, three.memory_bytes), (3, 400 << 20));
    folder
        .goodput(&["run", "p.yaml", "--threads", "0"])
        .refuses(&["--threads"]);
    for size in ["0", "8Gx", "much"] {
        folder
            .goodput(&["run", "p.yaml", "--memory", size])
            .refuses(&["--memory"]);
    }
}

#[test]
fn progress_is_json_or_plain_or_nothing() {
    let folder = small();
    folder.write("in.jsonl", folder_text(&folder) + "{\n");
    let run = |how: &str| -> Ran {
        let ran = folder.goodput(&["run", "p.yaml", "--out", how, "--progress", how]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran
    };
    let json = run("json").stderr;
    let events: Vec<Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object a line"))
        .collect();
    let phases = |event: &str| -> Vec<&str> {
        events
            .iter()
            .filter(|line| line["event"] == event)
            .filter_map(|line| line["phase"].as_str())
            .collect()
    };
    assert!(
        phases("begin").contains(&"prepare") && phases("begin") == phases("end"),
        "{json}"
    );
    let plain = run("plain").stderr;
    assert!(
        plain.lines().any(|line| line.starts_with("prepare")),
        "{plain}"
    );
    assert!(
        plain
            .lines()
            .all(|line| serde_json::from_str::<Value>(line).is_err())
    );
    assert_eq!(run("off").stderr, "");
    // Without a terminal, auto is plain.
    assert!(
        run("auto")
            .stderr
            .lines()
            .any(|line| line.starts_with("prepare"))
    );
    let log = folder.out("off").text("run.log");
    assert!(
        log.contains("prepare begins") && log.contains("prepare ends"),
        "{log}"
    );
}

fn folder_text(folder: &Folder) -> String {
    fs::read_to_string(folder.path("in.jsonl")).expect("written")
}

// ---- Schemas ------------------------------------------------------------------------------

const SCHEMAS: [&str; 7] = [
    "pipeline",
    "shard",
    "audit",
    "manifest",
    "calibration",
    "measure",
    "measure_report",
];

#[test]
fn the_schemas_in_the_repository_are_those_of_the_program() {
    let folder = Folder::new();
    for name in SCHEMAS {
        let printed = folder.goodput(&["schema", name]).stdout;
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("schemas/{name}.schema.json"));
        let kept = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == printed,
            "renew it: cargo run --release -- schema {name} > schemas/{name}.schema.json"
        );
    }
    let named: BTreeSet<String> =
        fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas"))
            .expect("the folder")
            .map(|entry| {
                entry
                    .expect("readable")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
    assert_eq!(
        named,
        SCHEMAS
            .iter()
            .map(|name| format!("{name}.schema.json"))
            .collect()
    );
}

/// The part of JSON Schema that our schemas use; a word that is not known here fails the test.
/// Adds the path of every property that was there to `seen`.
pub fn check(schema: &Value, value: &Value, at: &str, seen: &mut BTreeSet<String>) {
    let words = schema
        .as_object()
        .unwrap_or_else(|| panic!("{at}: the schema is no object"));
    let is = |kind: &str| match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("{at}: type {other}"),
    };
    for (word, says) in words {
        let holds = match word.as_str() {
            "$schema" | "title" | "description" => true,
            "type" => match says {
                Value::Array(kinds) => kinds.iter().any(|kind| is(kind.as_str().expect("a name"))),
                kind => is(kind.as_str().expect("a name")),
            },
            "const" => value == says,
            "enum" => says.as_array().expect("a list").contains(value),
            "minimum" => value
                .as_f64()
                .is_none_or(|number| number >= says.as_f64().expect("a number")),
            "maximum" => value
                .as_f64()
                .is_none_or(|number| number <= says.as_f64().expect("a number")),
            "minItems" => value
                .as_array()
                .is_none_or(|items| items.len() as u64 >= says.as_u64().expect("a number")),
            "maxItems" => value
                .as_array()
                .is_none_or(|items| items.len() as u64 <= says.as_u64().expect("a number")),
            "pattern" => {
                assert_eq!(says, "^[0-9a-f]{32}$", "{at}: the only pattern known here");
                value.as_str().is_none_or(|text| {
                    text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
                })
            }
            "required" => says
                .as_array()
                .expect("a list")
                .iter()
                .all(|key| value.get(key.as_str().expect("a name")).is_some()),
            "properties" => {
                for (key, schema) in says.as_object().expect("a mapping") {
                    if let Some(value) = value.get(key) {
                        seen.insert(format!("{at}.{key}"));
                        check(schema, value, &format!("{at}.{key}"), seen);
                    }
                }
                true
            }
            "additionalProperties" => {
                let known = words.get("properties").and_then(Value::as_object);
                let others = value
                    .as_object()
                    .into_iter()
                    .flatten()
                    .filter(|(key, _)| known.is_none_or(|known| !known.contains_key(*key)));
                for (key, value) in others {
                    assert_ne!(
                        says,
                        &Value::Bool(false),
                        "{at}: '{key}' stands in no schema"
                    );
                    check(says, value, &format!("{at}.*"), seen);
                }
                true
            }
            "items" => {
                value
                    .as_array()
                    .into_iter()
                    .flatten()
                    .for_each(|value| check(says, value, &format!("{at}[]"), seen));
                true
            }
            "prefixItems" => {
                let schemas = says.as_array().expect("a list");
                for (schema, value) in schemas.iter().zip(value.as_array().into_iter().flatten()) {
                    check(schema, value, &format!("{at}[]"), seen);
                }
                true
            }
            other => panic!("{at}: the word '{other}' is not known here"),
        };
        assert!(holds, "{at}: {value} is not {word}: {says}");
    }
}

/// The path of every property of a schema.
fn properties(schema: &Value, at: &str, all: &mut BTreeSet<String>) {
    for (key, schema) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        all.insert(format!("{at}.{key}"));
        properties(schema, &format!("{at}.{key}"), all);
    }
    if let Some(items) = schema.get("items") {
        properties(items, &format!("{at}[]"), all);
    }
}

#[test]
fn ledger_and_manifest_have_exactly_the_keys_of_their_schemas() {
    let folder = small();
    // Whatever can stand in a ledger, over three runs: scores, a sample, bad and failed records, a cut file.
    let text = folder_text(&folder);
    folder.write(
        "more/bad.jsonl",
        format!("{{\n\n{}", line("a text that spells <|end|> in it")),
    );
    let packed = zstd::encode_all(text.as_bytes(), 3).expect("memory");
    folder.write("more/cut.jsonl.zst", &packed[..packed.len() - 9]);
    let tagged = |line: &str| line.replace("{\"text\"", "{\"kind\":\"web\",\"text\"") + "\n";
    let reference = fs::read_to_string(folder.path("reference.jsonl")).expect("written");
    folder.write(
        "tagged.jsonl",
        reference.lines().map(tagged).collect::<String>(),
    );
    let tail = "stages:\n  - length: { min_tokens: 10 }\n  - near_dedupe: {}\n  \
                - score: { estimator: ngram_excess, reference: tagged.jsonl, reference_domain: kind, min_domain_tokens: 1 }\n  \
                - select: { keep_share_of_tokens: 0.8, by: score }\norder: { strategy: sorted, by: score }\noutput: { path: full, validation_share: 0.1 }\n";
    folder.pipeline(&format!("inputs:\n  - {{ path: in.jsonl, source: web }}\n  - {{ path: more/*, source: more }}\n{tail}"));
    folder.run(&["--sample", "0.99"]);
    folder.verify("full");
    folder.pipeline("tokenizer: { file: tokenizer.json, begin_token: \"<|begin|>\" }\noutput: { path: plain }\n");
    folder.run(&[]);
    folder.verify("plain");
    folder.write("words.json", word_tokenizer());
    folder.pipeline("tokenizer: { file: words.json }\noutput: { path: failing }\n");
    folder.run(&[]);
    folder.verify("failing");
    folder.documents(
        "lines.jsonl",
        &[
            "a line that comes twice\none",
            "a line that comes twice\ntwo",
        ],
    );
    folder.pipeline("inputs: [{ path: lines.jsonl, source: web }]\nstages:\n  - line_dedupe: { min_characters: 9 }\noutput: { path: edited }\n");
    folder.run(&[]);
    folder.verify("edited");
    for name in ["audit", "manifest"] {
        let schema = serde_json::from_str(&folder.goodput(&["schema", name]).stdout).expect("JSON");
        let (mut seen, mut all) = (BTreeSet::new(), BTreeSet::new());
        for out in ["full", "plain", "failing", "edited"] {
            check(
                &schema,
                &folder.out(out).json(&format!("{name}.json")),
                name,
                &mut seen,
            );
        }
        properties(&schema, name, &mut all);
        // A failure is of no class.
        all.remove("audit.failed[].class");
        let never: Vec<&String> = all.difference(&seen).collect();
        assert_eq!(never, [] as [&String; 0], "properties that no run wrote");
    }
}

/// A vocabulary without an unknown token: every other word is an error.
fn word_tokenizer() -> String {
    serde_json::json!({
        "version": "2.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": { "type": "Whitespace" }, "post_processor": null, "decoder": null,
        "model": { "type": "WordLevel", "vocab": { "short": 0 }, "unk_token": "[UNK]" }
    })
    .to_string()
}

#[test]
fn the_columns_of_a_shard_are_those_of_its_schema() {
    let folder = small();
    let schema: Value =
        serde_json::from_str(&folder.goodput(&["schema", "shard"]).stdout).expect("JSON");
    let shapes = schema["oneOf"].as_array().expect("two shapes");
    assert_eq!(shapes.len(), 2);
    for (shape, pack) in shapes.iter().zip([
        "{ method: best_fit, sequence_tokens: 512 }",
        "{ method: none }",
    ]) {
        for scored in [true, false] {
            let (stages, output) = match scored {
                true => (
                    "[{ score: { estimator: ngram_excess, reference: reference.jsonl } }]",
                    "{ path: out, excess_nats: true }",
                ),
                false => ("[]", "{ path: out }"),
            };
            folder.pipeline(&format!(
                "stages: {stages}\npack: {pack}\noutput: {output}\n"
            ));
            folder.run(&["--replace"]);
            let shard = folder.out("out").shards().remove(0);
            let reader =
                SerializedFileReader::new(fs::File::open(shard).expect("a file")).expect("Parquet");
            let schema = reader.metadata().file_metadata().schema().clone();
            let columns: BTreeSet<&str> = schema
                .get_fields()
                .iter()
                .map(|field| field.name())
                .collect();
            let required: BTreeSet<&str> = shape["required"]
                .as_array()
                .expect("a list")
                .iter()
                .filter_map(Value::as_str)
                .collect();
            let all: BTreeSet<&str> = shape["properties"]
                .as_object()
                .expect("a mapping")
                .keys()
                .map(String::as_str)
                .collect();
            assert!(required.is_subset(&columns), "{required:?} of {columns:?}");
            let expected: BTreeSet<&str> = all
                .into_iter()
                .filter(|name| scored || !["usefulness", "excess_nats"].contains(name))
                // Of held-out rows.
                .filter(|name| !["text_bytes", "group_hash"].contains(name))
                .collect();
            assert_eq!(columns, expected, "{pack}");
        }
    }
}
