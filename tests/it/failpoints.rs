//! Every operation on files that a run makes goes wrong once: the process dies before it, in the middle of it, or is
//! told of an error. The next run ends with the bytes of one that nothing happened to.
//!
//! Faults are made where the program meets the system, by `failpoints.c`, which the tests compile and preload: so no
//! operation is forgotten, and what is tested is what is shipped. With `GOODPUT_LARGE=1` every operation is
//! tried, else a sample of them.

use super::same_bytes::{Numbers, assert_same, bytes_of, generated, run_command, stderr};
use super::support::byte_tokenizer;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// `EIO`, `EACCES` and `ENOSPC` of Linux.
const READ_ERROR: &str = "5";
const NO_PERMISSION: &str = "13";
const NO_SPACE: &str = "28";

/// The library that makes faults, compiled once.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("failpoints.so");
        // Another process may be using the one that is there.
        let made = path.with_extension(std::process::id().to_string());
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/failpoints.c");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
            .arg(&made)
            .arg(source)
            .output()
            .expect("a C compiler, which links Rust too");
        assert!(compiled.status.success(), "{}", stderr(&compiled));
        fs::rename(&made, &path).expect("renames");
        path
    })
}

/// A folder with a pipeline, inputs and what an undisturbed run makes of them.
struct Scene {
    folder: tempfile::TempDir,
    pipeline: PathBuf,
    more: Vec<String>,
    expected: BTreeMap<String, Vec<u8>>,
}

/// One operation of a run.
#[derive(Clone, Debug)]
struct Operation {
    number: u64,
    /// `create`, `open`, `read`, `write`, `flush`, `rename`, `remove`, `list`, `look`, `map`, `lock`, `mkdir`, `truncate`.
    name: String,
    /// Below the folder.
    path: String,
}

impl Scene {
    /// Every kind of stage, all formats, `count` documents.
    fn new(count: usize, more: &[&str]) -> Scene {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let pipeline = generated(folder.path(), count);
        fs::write(
            folder.path().join("tokenizer.json"),
            byte_tokenizer().to_string(),
        )
        .expect("writes");
        let evaluation = "{\"text\": \"the postmaster had always wondered about the price of wheat and barley\"}\n";
        fs::write(folder.path().join("evaluation.jsonl"), evaluation).expect("writes");
        let text = fs::read_to_string(&pipeline).expect("reads");
        let text = [
            (
                "{ builtin: o200k, end_token: \"<|endoftext|>\" }",
                "{ file: tokenizer.json, end_token: \"<|end|>\" }",
            ),
            ("exact_dedupe: {}", "exact_dedupe: { write_index: true }"),
            (
                "  - near_dedupe:",
                "  - decontaminate: { evaluation: evaluation.jsonl, policy: remove_span }\n  - paragraph_dedupe: { min_characters: 60 }\n  \
                 - span_dedupe: { min_tokens: 120 }\n  - near_dedupe:",
            ),
            ("shard_tokens: 8_000", "shard_tokens: 40_000"),
            ("fit_tokens: 60_000", "fit_tokens: 20_000"),
        ]
        .iter()
        .fold(text, |text, (old, new)| {
            assert!(text.contains(old), "{old}");
            text.replace(old, new)
        });
        fs::write(&pipeline, text).expect("writes");
        let mut scene = Scene {
            folder,
            pipeline,
            more: more.iter().map(|text| text.to_string()).collect(),
            expected: BTreeMap::new(),
        };
        let out = scene.folder.path().join("expected");
        let output = scene.command(&out).output().expect("starts");
        assert!(output.status.success(), "{}", stderr(&output));
        scene.expected = bytes_of(&out);
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A run on one thread, in which operations come in the same order every time.
    fn command(&self, out: &Path) -> Command {
        let more: Vec<&str> = self.more.iter().map(String::as_str).collect();
        let settings = ["--threads", "1", "--memory", "64MiB"];
        run_command(&self.pipeline, out, &[&settings[..], &more].concat())
    }

    /// The same with a fault at operation `at` of those whose name and path contain `names`.
    fn faulty(&self, out: &Path, names: &str, at: u64, action: &str) -> Command {
        let mut command = self.command(out);
        let below = fs::canonicalize(self.folder.path()).expect("it is there");
        command
            .env("LD_PRELOAD", library())
            .env("FAILPOINT_BELOW", below)
            .env("FAILPOINT_NAMES", names)
            .env("FAILPOINT_AT", at.to_string())
            .env("FAILPOINT_DO", action)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    /// What an undisturbed run does with files.
    fn operations(&self) -> Vec<Operation> {
        let log = tempfile::NamedTempFile::new().expect("a temporary file");
        let out = self.path("counted");
        let output = self
            .faulty(&out, "", 0, "")
            .env("FAILPOINT_LOG", log.path())
            .output()
            .expect("starts");
        assert!(output.status.success(), "{}", stderr(&output));
        assert_same(&self.expected, &out, "while operations are counted");
        fs::remove_dir_all(&out).expect("removes");
        let below = fs::canonicalize(self.folder.path()).expect("it is there");
        let below = format!("{}/", below.display());
        let text = fs::read_to_string(log.path()).expect("reads");
        let operations: Vec<_> = text
            .lines()
            .map(|line| {
                let (number, rest) = line.split_once(' ').expect("three words");
                let (name, path) = rest.split_once(' ').expect("three words");
                Operation {
                    number: number.parse().expect("a number"),
                    name: name.to_string(),
                    path: path.strip_prefix(&below).unwrap_or(path).to_string(),
                }
            })
            .collect();
        let names: BTreeSet<&str> = operations.iter().map(|o| o.name.as_str()).collect();
        for name in [
            "create", "open", "read", "write", "flush", "rename", "remove", "list", "look", "map",
            "lock", "mkdir",
        ] {
            assert!(names.contains(name), "no '{name}' in {names:?}");
        }
        operations
    }

    /// Runs undisturbed into `out`, and finds what was expected; then nothing is there.
    fn recovers(&self, out: &Path, after: &str) {
        let output = self.command(out).output().expect("starts");
        assert!(output.status.success(), "{after}: {}", stderr(&output));
        assert_same(&self.expected, out, after);
        assert!(!out.join("work").exists(), "{after}: work is left");
        fs::remove_dir_all(out).expect("removes");
    }
}

fn all() -> bool {
    std::env::var_os("GOODPUT_LARGE").is_some()
}

/// All operations, or about `count` of them: each name is there, and each sort of file as far as it goes.
fn sample(operations: &[Operation], count: usize) -> Vec<Operation> {
    if all() {
        return operations.to_vec();
    }
    let kind = |o: &Operation| {
        let path: String = o
            .path
            .chars()
            .filter(|c| !c.is_ascii_digit() && !('a'..='f').contains(c))
            .collect();
        format!("{} {path}", o.name)
    };
    let mut kinds: BTreeMap<String, Vec<&Operation>> = BTreeMap::new();
    for operation in operations {
        kinds.entry(kind(operation)).or_default().push(operation);
    }
    let mut numbers = Numbers(41);
    let of_each: Vec<Operation> = kinds
        .values()
        .map(|all| all[numbers.below(all.len() as u64) as usize].clone())
        .collect();
    let step = of_each.len().div_ceil(count).max(1);
    of_each.into_iter().step_by(step).collect()
}

/// Both ways of packing, which write other rows.
const PACKINGS: [&[&str]; 2] = [&[], &["--set", "pack={method: none}"]];

#[test]
fn a_run_that_dies_at_any_operation_is_taken_up() {
    for (at, more) in PACKINGS.into_iter().enumerate() {
        let scene = Scene::new(60, more);
        let out = scene.path("out");
        let operations = scene.operations();
        let mut numbers = Numbers(7);
        for operation in sample(&operations, 12) {
            let action = ["kill", "torn"][(operation.number as usize + at) % 2];
            let mut what = format!("{action} at {operation:?} of {}", operations.len());
            let output = scene
                .faulty(&out, "", operation.number, action)
                .output()
                .expect("starts");
            assert_eq!(output.status.code(), None, "{what}: {}", stderr(&output));
            // The run that takes it up dies too, or ends before it comes so far.
            let again = 1 + numbers.below(operations.len() as u64);
            scene
                .faulty(&out, "", again, "torn")
                .status()
                .expect("starts");
            what.push_str(&format!(", then torn at {again}"));
            scene.recovers(&out, &what);
        }
    }
}

/// What the system may say of an operation.
fn error_of(operation: &Operation) -> &'static [&'static str] {
    match operation.name.as_str() {
        "open" | "list" | "look" | "remove" => &[READ_ERROR, NO_PERMISSION],
        "create" | "mkdir" | "rename" => &[NO_SPACE, NO_PERMISSION, READ_ERROR],
        "write" | "flush" | "truncate" => &[NO_SPACE, READ_ERROR],
        _ => &[READ_ERROR],
    }
}

#[test]
fn an_error_of_any_operation_names_the_path_and_the_way_out() {
    let mut failed = 0;
    for (at, more) in PACKINGS.into_iter().enumerate() {
        let scene = Scene::new(60, more);
        let out = scene.path("out");
        let operations = scene.operations();
        let mut wrong = Vec::new();
        for operation in sample(&operations, 16) {
            let errors = error_of(&operation);
            let error = errors[(operation.number as usize + at) % errors.len()];
            let what = format!("error {error} at {operation:?} of {}", operations.len());
            let output = scene
                .faulty(&out, "", operation.number, error)
                .output()
                .expect("starts");
            let said = stderr(&output);
            match output.status.code() {
                // What only tidies up, or can be done anew, may fail unheard.
                Some(0) => assert_same(&scene.expected, &out, &what),
                Some(1 | 2) => {
                    failed += 1;
                    let root = scene.folder.path().to_str().expect("plain");
                    // A wrong request names the line of the pipeline and what stands there.
                    let way_out = output.status.code() == Some(2) || said.contains(WAY_OUT);
                    if !said.contains(root) || !way_out {
                        wrong.push(format!("{what}: {said}"));
                    }
                }
                other => wrong.push(format!("{what}: {other:?} {said}")),
            }
            scene.recovers(&out, &what);
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
    assert!(failed > 10, "only {failed} errors were seen");
}

/// What every message of a failed run ends in.
const WAY_OUT: &str = "the same command";

/// Starts a run that stops at an operation, and waits until it stands there, or has ended.
fn stopped(scene: &Scene, out: &Path, names: &str, at: u64) -> Child {
    let child = scene
        .faulty(out, names, at, "stop")
        .spawn()
        .expect("starts");
    let stat = format!("/proc/{}/stat", child.id());
    let running = || {
        let stat = fs::read_to_string(&stat).unwrap_or_default();
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest.chars().next());
        !matches!(state, None | Some(Some('T' | 'Z')))
    };
    while running() {
        std::thread::sleep(Duration::from_millis(2));
    }
    child
}

fn goes_on(child: Child) -> Output {
    let told = Command::new("kill")
        .args(["-CONT", &child.id().to_string()])
        .status();
    assert!(told.expect("starts").success());
    child.wait_with_output().expect("ends")
}

#[test]
fn a_file_that_changes_while_a_run_reads_it_is_an_error_and_leaves_nothing_behind() {
    let scene = Scene::new(60, &[]);
    let operations = scene.operations();
    let out = scene.path("out");
    type Change = fn(&Path);
    let letters: Change = |path| {
        let mut bytes = fs::read(path).expect("reads");
        let middle = bytes.len() / 2;
        let at = (middle..bytes.len()).find(|&at| bytes[at] == b'e');
        bytes[at.expect("prose")] = b'o';
        fs::write(path, bytes).expect("writes");
    };
    let shorter: Change = |path| {
        let bytes = fs::read(path).expect("reads");
        fs::write(path, &bytes[..bytes.len() / 2]).expect("writes");
    };
    let gone: Change = |path| fs::remove_file(path).expect("removes");
    let changes = [("written to", letters), ("cut", shorter), ("removed", gone)];
    let mut refused = 0;
    for name in [
        "data/given/a.jsonl",
        "data/reference/one.jsonl",
        "evaluation.jsonl",
    ] {
        let path = scene.path(name);
        let good = fs::read(&path).expect("reads");
        // It has been found by then: what is changed earlier is simply what the run reads.
        let names = format!(
            "read {}",
            fs::canonicalize(&path).expect("is there").display()
        );
        let reads = operations
            .iter()
            .filter(|o| o.name == "read" && o.path == name)
            .count() as u64;
        assert!(reads >= 4, "{name} is read {reads} times");
        let moments = match all() {
            true => (1..=reads).collect(),
            false => vec![1, reads / 2, reads - 1],
        };
        for (number, at) in moments.into_iter().enumerate() {
            for (sort, (what, change)) in changes.into_iter().enumerate() {
                if !all() && sort != number % changes.len() {
                    continue;
                }
                let what = format!("{name} is {what} at read {at} of {reads}");
                let child = stopped(&scene, &out, &names, at);
                change(&path);
                let output = goes_on(child);
                let said = stderr(&output);
                if output.status.success() {
                    assert_same(
                        &scene.expected,
                        &out,
                        &format!("{what}, and is read no more"),
                    );
                } else {
                    refused += 1;
                    assert!(said.contains(name), "{what}: {said}");
                    assert!(!out.join("manifest.json").exists(), "{what}");
                }
                fs::write(&path, &good).expect("writes");
                // As it was before: nothing of the other text lies in the work folder under its checksum.
                let advised = said.contains("give --fresh");
                let more: &[&str] = if advised { &["--fresh"] } else { &[] };
                let output = scene.command(&out).args(more).output().expect("starts");
                assert!(output.status.success(), "{what}: {}", stderr(&output));
                assert_same(&scene.expected, &out, &what);
                fs::remove_dir_all(&out).expect("removes");
            }
        }
    }
    assert!(refused >= 5, "only {refused} changes were refused");
}

#[test]
fn what_does_not_answer_ends_a_run_that_shall_not_wait() {
    let scene = Scene::new(60, &["--stall-timeout", "2s"]);
    let out = scene.path("out");
    let path = fs::canonicalize(scene.path("data/given/b.jsonl.gz")).expect("is there");
    let names = format!("read {}", path.display());
    let output = scene
        .faulty(&out, &names, 1, "hang")
        .output()
        .expect("starts");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for words in [
        "no progress for 2 s",
        "data/given/b.jsonl.gz (for ",
        WAY_OUT,
        "--stall-timeout",
    ] {
        assert!(said.contains(words), "'{words}' is not in: {said}");
    }
    scene.recovers(&out, "after it hung");
    for time in ["0s", "10", "ten minutes", "1.5h"] {
        let output = run_command(&scene.pipeline, &out, &["--stall-timeout", time])
            .output()
            .expect("starts");
        assert_eq!(output.status.code(), Some(2), "{time}");
        assert!(stderr(&output).contains("e.g. 90s"), "{}", stderr(&output));
    }
}

#[test]
fn a_clock_that_jumps_changes_no_byte_and_hides_no_change() {
    let scene = Scene::new(60, &[]);
    let out = scene.path("out");
    for seconds in ["-400000000", "4000000"] {
        let output = scene
            .faulty(&out, "", 0, "")
            .env("FAILPOINT_CLOCK", seconds)
            .output()
            .expect("starts");
        assert!(output.status.success(), "{}", stderr(&output));
        assert_same(&scene.expected, &out, &format!("{seconds} s"));
        fs::remove_dir_all(&out).expect("removes");
    }
    let output = scene.command(&out).output().expect("starts");
    assert!(output.status.success(), "{}", stderr(&output));
    // Written by a clock that was set back: older than the output, and another text of the same size.
    let path = scene.path("data/given/a.jsonl");
    let text = fs::read_to_string(&path).expect("reads");
    fs::write(&path, text.replacen("the ", "thy ", 1)).expect("writes");
    let past = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(86_400);
    let file = fs::File::options().write(true).open(&path).expect("opens");
    file.set_modified(past).expect("its owner may");
    drop(file);
    let output = scene.command(&out).output().expect("starts");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("a.jsonl was changed"),
        "{}",
        stderr(&output)
    );
}
