//! Kills, signals, damage, full disks, folders of others: the next run ends as if nothing had happened.
#![expect(clippy::print_stdout, reason = "a test that is skipped says why")]

use super::same_bytes::{
    Numbers, assert_same, bytes_of, generated, goodput, jsonl, prose, run, run_command, stderr,
};
use super::support::byte_tokenizer;
use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take};
use goodput::shard::{Manifest, file_checksum};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn start(pipeline: &Path, out: &Path, more: &[&str]) -> Child {
    run_command(pipeline, out, more)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts")
}

/// Kills a run after a while. False where it was done before.
pub fn killed_after(pipeline: &Path, out: &Path, delay: Duration) -> bool {
    let mut child = start(pipeline, out, &[]);
    std::thread::sleep(delay);
    child.kill().expect("it is our child");
    child.wait().expect("it is our child").signal() == Some(9)
}

/// A folder with the inputs, what an uninterrupted run makes of them, and how long that took.
fn uninterrupted(
    count: usize,
) -> (
    tempfile::TempDir,
    PathBuf,
    BTreeMap<String, Vec<u8>>,
    Duration,
) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipeline = generated(folder.path(), count);
    let out = folder.path().join("uninterrupted");
    let began = Instant::now();
    run(&pipeline, &out, &[]);
    let took = began.elapsed();
    let files = bytes_of(&out);
    (folder, pipeline, files, took)
}

#[test]
fn a_run_killed_again_and_again_ends_with_the_same_bytes() {
    let (folder, pipeline, expected, took) = uninterrupted(900);
    let mut numbers = Numbers(3);
    let chain = folder.path().join("chain");
    let mut kills = 0;
    for _ in 0..8 {
        // From the loading of the tokenizer to the last file, wherever each try has come.
        let share = numbers.below(1000) as f64 / 1000.0;
        kills += u32::from(killed_after(&pipeline, &chain, took.mul_f64(share)));
    }
    run(&pipeline, &chain, &[]);
    assert_same(&expected, &chain, &format!("after {kills} kills"));
    for at in 1..8 {
        let out = folder.path().join(format!("once-{at}"));
        let killed = killed_after(&pipeline, &out, took.mul_f64(f64::from(at) / 8.0));
        run(&pipeline, &out, &["--threads", "1"]);
        assert_same(&expected, &out, &format!("killed at {at}/8: {killed}"));
        assert!(!out.join("work").exists());
    }
}

/// SIGKILL at random moments, a few in each output folder before its run is left to end: 10, with `GOODPUT_LARGE=1` 200.
/// The seed of the moments is in every message, and `GOODPUT_SEED` sets it.
#[test]
fn sigkill_at_random_moments_changes_no_byte() {
    let kills: u32 = match std::env::var_os("GOODPUT_LARGE") {
        Some(_) => 200,
        None => 10,
    };
    let seed = std::env::var("GOODPUT_SEED").ok();
    let seed = seed.map_or(0x5EED, |seed| {
        seed.parse().expect("GOODPUT_SEED is a number")
    });
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipeline = generated(folder.path(), 600);
    // A tokenizer that loads at once: else most moments would be in its loading.
    let tokenizer = folder.path().join("tokenizer.json");
    fs::write(tokenizer, byte_tokenizer().to_string()).expect("writes");
    let text = fs::read_to_string(&pipeline).expect("reads");
    let (old, new) = (
        "{ builtin: o200k, end_token: \"<|endoftext|>\" }",
        "{ file: tokenizer.json, end_token: \"<|end|>\" }",
    );
    assert!(text.contains(old));
    fs::write(&pipeline, text.replace(old, new)).expect("writes");
    let whole = folder.path().join("uninterrupted");
    let began = Instant::now();
    run(&pipeline, &whole, &[]);
    let took = began.elapsed();
    let expected = bytes_of(&whole);
    let mut numbers = Numbers(seed);
    let (mut sent, mut hit, mut round) = (0, 0, 0);
    while sent < kills {
        let out = folder.path().join(format!("round-{round}"));
        let mut moments = Vec::new();
        for _ in 0..=numbers.below(5) {
            // A run that goes on has less to do than a whole one: some moments are early, some late, some too late.
            let moment = took.mul_f64(numbers.below(1_100) as f64 / 1_000.0);
            moments.push(moment);
            sent += 1;
            hit += u32::from(killed_after(&pipeline, &out, moment));
        }
        let what = format!("seed {seed}, round {round}, killed after {moments:?}");
        let ended = run_command(&pipeline, &out, &[]).output().expect("starts");
        assert!(ended.status.success(), "{what}: {}", stderr(&ended));
        assert_same(&expected, &out, &what);
        assert!(!out.join("work").exists(), "{what}");
        fs::remove_dir_all(&out).expect("removes");
        round += 1;
    }
    assert!(
        hit > 0,
        "seed {seed}: none of {sent} moments was early enough"
    );
    println!("{hit} of {sent} kills came in time, in {round} runs");
}

#[test]
fn a_signal_ends_a_run_soon_and_the_next_one_goes_on() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipeline = generated(folder.path(), 900);
    let mut expected: Option<BTreeMap<String, Vec<u8>>> = None;
    for signal in ["-INT", "-TERM"] {
        let out = folder.path().join(signal);
        // Small slices, so that there is much to do once the first task has begun.
        let child = start(&pipeline, &out, &["--slice", "1kB", "--threads", "1"]);
        let begun = || {
            fs::read_dir(out.join("work")).is_ok_and(|mut all| {
                all.any(|e| {
                    e.is_ok_and(|e| e.file_name().to_string_lossy().starts_with("prepare-"))
                })
            })
        };
        while !begun() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(
            Command::new("kill")
                .args([signal, &child.id().to_string()])
                .status()
                .expect("sends")
                .success()
        );
        let output = child.wait_with_output().expect("ends");
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(
            stderr(&output).contains("the same command goes on"),
            "{}",
            stderr(&output)
        );
        assert!(!out.join("manifest.json").exists());
        run(&pipeline, &out, &["--slice", "1kB"]);
        match &expected {
            None => expected = Some(bytes_of(&out)),
            Some(expected) => assert_same(expected, &out, signal),
        }
    }
}

/// Files of the work folder by kind (`near-0-sets`, `rows`, ...), many of each, none empty.
fn by_kind(work: &Path) -> BTreeMap<String, Vec<PathBuf>> {
    let mut kinds: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for phase in fs::read_dir(work).expect("lists").flatten() {
        let name = phase.file_name().to_string_lossy().into_owned();
        let Some((phase_name, _)) = name.split_once('-') else {
            continue;
        };
        for task in fs::read_dir(phase.path()).expect("lists").flatten() {
            for file in fs::read_dir(task.path())
                .expect("lists")
                .flatten()
                .filter(|file| file.metadata().expect("is there").len() > 0)
            {
                let task = if task.file_name() == "fitted" {
                    "fitted "
                } else {
                    ""
                };
                let kind = format!("{phase_name} {task}{}", file.file_name().to_string_lossy());
                kinds.entry(kind).or_default().push(file.path());
            }
        }
    }
    kinds.values_mut().for_each(|files| files.sort());
    kinds
}

#[test]
fn a_damaged_intermediate_file_is_found_and_made_anew() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipeline = generated(folder.path(), 600);
    let work = folder.path().join("kept");
    let keep = [
        "--work",
        work.to_str().expect("plain"),
        "--keep-work",
        "--slice",
        "8kB",
    ];
    let out = folder.path().join("out");
    run(&pipeline, &out, &keep);
    let expected = bytes_of(&out);
    fs::remove_dir_all(&out).expect("removes");
    let kinds = by_kind(&work);
    let names: Vec<&str> = kinds.keys().map(String::as_str).collect();
    for kind in [
        "prepare docs",
        "prepare tokens",
        "prepare near-0-sets",
        "prepare done.json",
        "score rows",
        "score fitted done.json",
        "score model",
        "reference tokens",
    ] {
        assert!(names.contains(&kind), "{kind} is not among {names:?}");
    }
    type Damage = fn(&mut Vec<u8>);
    let flip: Damage = |bytes| {
        // In JSON a digit becomes another digit, so that the text stays well-formed.
        let middle = bytes.len() / 2;
        let at = (middle..bytes.len())
            .chain(0..middle)
            .find(|&at| bytes[0] != b'{' || bytes[at].is_ascii_digit())
            .expect("not empty");
        bytes[at] ^= 1;
    };
    let cut: Damage = |bytes| bytes.truncate(bytes.len() / 2);
    for (what, damage) in [("flipped", flip), ("cut", cut)] {
        // Each kind in another task, else the damage of one file would hide that of another.
        let damaged: Vec<(PathBuf, Vec<u8>)> = kinds
            .values()
            .enumerate()
            .map(|(at, files)| {
                let path = files[(at * 3 + 1) % files.len()].clone();
                let good = fs::read(&path).expect("reads");
                let mut bytes = good.clone();
                damage(&mut bytes);
                assert_ne!(bytes, good);
                fs::write(&path, bytes).expect("writes");
                (path, good)
            })
            .collect();
        run(&pipeline, &out, &keep);
        assert_same(&expected, &out, what);
        fs::remove_dir_all(&out).expect("removes");
        for (path, good) in damaged {
            // The record of a task holds the seconds it took.
            if path.ends_with("done.json") {
                continue;
            }
            assert!(
                fs::read(&path).expect("reads") == good,
                "{} was {what} and not made anew",
                path.display()
            );
        }
    }
}

/// A small pipeline without models: fast.
fn small(folder: &Path, seed: u64) -> PathBuf {
    let mut numbers = Numbers(5);
    let documents: Vec<_> = (0..80)
        .map(|n| (format!("d{n}"), prose(&mut numbers, 5 + n % 7)))
        .collect();
    fs::write(folder.join("small.jsonl"), jsonl(&documents)).expect("writes");
    let path = folder.join(format!("small-{seed}.yaml"));
    let text = format!(
        "version: 1\nname: small\nseed: {seed}\ninputs: [{{ path: small.jsonl, source: a, id: id }}]\n\
         tokenizer: {{ builtin: o200k, end_token: \"<|endoftext|>\" }}\nstages:\n  - length: {{ min_tokens: 90 }}\n  - score: {{ estimator: random }}\n\
         order: {{ strategy: shuffle }}\npack: {{ method: concat, sequence_tokens: 128 }}\noutput: {{ path: out, shard_tokens: 3_000 }}\n"
    );
    fs::write(&path, text).expect("writes");
    path
}

fn refused(pipeline: &Path, out: &Path, more: &[&str], because: &str) {
    let output = run_command(pipeline, out, more).output().expect("starts");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{more:?}: {said}");
    assert!(
        said.contains(because),
        "{more:?}: '{because}' is not in: {said}"
    );
}

#[test]
fn a_second_run_into_a_folder_in_use_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipeline = small(folder.path(), 1);
    let (out, work) = (folder.path().join("out"), folder.path().join("elsewhere"));
    for held in [out.join("work"), work.clone()] {
        fs::create_dir_all(&held).expect("creates");
        let lock = File::create(held.join("lock")).expect("creates");
        lock.lock().expect("nobody else has it");
        let elsewhere = ["--work", work.to_str().expect("plain")];
        refused(&pipeline, &out, &elsewhere, "in use by another run");
        if held == out.join("work") {
            refused(&pipeline, &out, &[], "in use by another run");
            refused(&pipeline, &out, &["--fresh"], "in use by another run");
            refused(&pipeline, &out, &["--replace"], "in use by another run");
        }
    }
    run(&pipeline, &out, &[]);
}

#[test]
fn the_output_of_another_pipeline_is_refused_or_replaced_as_a_whole() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (one, two) = (small(folder.path(), 1), small(folder.path(), 2));
    let (out, alone) = (folder.path().join("out"), folder.path().join("alone"));
    run(&two, &alone, &["--set", "output.shard_tokens=1_000_000"]);
    run(&one, &out, &[]);
    let before = bytes_of(&out);
    assert!(before.contains_key("shards/shard-00002.parquet"));
    let other = ["--set", "output.shard_tokens=1_000_000"];
    refused(&two, &out, &other, "--replace");
    refused(
        &two,
        &out,
        &["--set", "output.shard_tokens=1_000_000", "--fresh"],
        "--replace",
    );
    assert_same(&before, &out, "a refused run touches nothing");
    run(
        &two,
        &out,
        &["--set", "output.shard_tokens=1_000_000", "--replace"],
    );
    assert_same(
        &bytes_of(&alone),
        &out,
        "nothing of the other output is left",
    );
    // Begun by another pipeline, and not complete.
    fs::remove_file(out.join("manifest.json")).expect("removes");
    refused(&one, &out, &[], "--replace");
}

#[test]
fn files_that_no_run_writes_are_left_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (one, two) = (small(folder.path(), 1), small(folder.path(), 2));
    let out = folder.path().join("out");
    fs::create_dir_all(out.join("work")).expect("creates");
    fs::write(out.join("work/thesis.txt"), "years of work").expect("writes");
    for more in [&[][..], &["--replace"], &["--fresh", "--replace"]] {
        refused(&one, &out, more, "");
        assert_eq!(fs::read_dir(out.join("work")).expect("lists").count(), 1);
    }
    fs::remove_dir_all(&out).expect("removes");
    run(&one, &out, &[]);
    fs::write(out.join("notes.txt"), "mine").expect("writes");
    let before = bytes_of(&out);
    refused(&two, &out, &["--replace"], "notes.txt");
    assert_same(&before, &out, "nothing is deleted where not all may be");
    // One's own output may be made anew beside it.
    run(&one, &out, &["--fresh"]);
    assert_same(&before, &out, "made anew");
}

#[test]
fn a_complete_folder_is_left_as_it_is_unless_its_files_or_inputs_changed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipeline = small(folder.path(), 1);
    let out = folder.path().join("out");
    run(&pipeline, &out, &[]);
    let before = bytes_of(&out);
    let again = run(&pipeline, &out, &[]);
    assert!(String::from_utf8_lossy(&again.stdout).contains("complete already"));
    // What a run leaves that is killed after its manifest.
    fs::create_dir_all(out.join("work/prepare-1")).expect("creates");
    fs::write(out.join("work/owner"), "").expect("writes");
    run(&pipeline, &out, &[]);
    assert_same(&before, &out, "the leftover is removed");
    fs::remove_file(out.join("shards/shard-00001.parquet")).expect("removes");
    refused(
        &pipeline,
        &out,
        &[],
        "shards/shard-00001.parquet is missing",
    );
    run(&pipeline, &out, &["--fresh"]);
    assert_same(&before, &out, "made anew");
    let input = folder.path().join("small.jsonl");
    let text = fs::read_to_string(&input).expect("reads");
    fs::write(&input, text.replacen("the", "thy", 1)).expect("writes");
    refused(&pipeline, &out, &[], "--fresh");
    run(&pipeline, &out, &["--fresh"]);
    assert_ne!(before["manifest.json"], bytes_of(&out)["manifest.json"]);
    // An older time with the same bytes is no change, nor is a newer one.
    fs::write(&input, fs::read(&input).expect("reads")).expect("writes");
    run(&pipeline, &out, &[]);
}

#[test]
fn kept_work_stays_and_serves_another_order() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipeline = small(folder.path(), 1);
    let (out, other) = (folder.path().join("out"), folder.path().join("other"));
    run(&pipeline, &out, &["--keep-work"]);
    run(&pipeline, &out, &[]);
    assert!(
        fs::read_dir(out.join("work")).expect("is there").count() > 1,
        "a second run does not remove what was kept"
    );
    let work = out.join("work");
    run(
        &pipeline,
        &other,
        &[
            "--set",
            "order={strategy: sorted, by: score}",
            "--work",
            work.to_str().expect("plain"),
            "--keep-work",
        ],
    );
    assert!(other.join("manifest.json").exists());
}

/// A small file system in memory, unmounted when dropped.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn mount(place: &Path, size: &str) -> Option<Tmpfs> {
        fs::create_dir_all(place).expect("creates");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(place)
            .output();
        mounted
            .is_ok_and(|output| output.status.success())
            .then(|| Tmpfs(place.to_path_buf()))
    }
    fn resize(&self, size: &str) {
        let done = Command::new("mount")
            .args(["-o", &format!("remount,size={size}")])
            .arg(&self.0)
            .status();
        assert!(done.expect("starts").success());
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // The folder it is mounted on is temporary too.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_ends_a_run_with_advice_and_the_next_one_goes_on() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = folder.path().join("small-disk");
    let Some(probe) = Tmpfs::mount(&place, "1m") else {
        println!("skipped: cannot mount a tmpfs");
        return;
    };
    drop(probe);
    let pipeline = generated(folder.path(), 900);
    let whole = folder.path().join("whole");
    run(&pipeline, &whole, &[]);
    let expected = bytes_of(&whole);
    let mut full = 0;
    // Each size is enough for some more phases than the one before.
    for kibibytes in [
        200, 1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 7_000, 8_000, 9_000, 10_000,
    ] {
        let disk = Tmpfs::mount(&place, &format!("{kibibytes}k")).expect("mounted before");
        let out = place.join("out");
        let output = run_command(&pipeline, &out, &[]).output().expect("starts");
        if output.status.success() {
            assert_same(&expected, &out, "it was enough");
            break;
        }
        full += 1;
        let said = stderr(&output);
        assert_eq!(
            output.status.code(),
            Some(1),
            "{kibibytes} KiB: {:?} {said}",
            output.status
        );
        for word in [
            place.to_str().expect("plain"),
            "Free space",
            "--out",
            "--work",
            "the same command goes on",
        ] {
            assert!(
                said.contains(word),
                "{kibibytes} KiB: '{word}' is not in: {said}"
            );
        }
        assert!(!out.join("manifest.json").exists());
        disk.resize("64m");
        run(&pipeline, &out, &[]);
        assert_same(&expected, &out, &format!("{kibibytes} KiB at first"));
    }
    assert!(full >= 3, "only {full} sizes were too small");
}

fn verify(out: &Path) -> Output {
    goodput(&["verify"]).arg(out).output().expect("starts")
}

/// `verify` must fail, and name a claim that does.
fn finds(out: &Path, claim: &str) {
    let output = verify(out);
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        output.status.code(),
        Some(1),
        "{claim}: {report} {}",
        stderr(&output)
    );
    assert!(
        report
            .lines()
            .any(|line| line.starts_with("FAILS") && line.contains(claim)),
        "'{claim}' does not fail in:\n{report}"
    );
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    for (name, bytes) in bytes_of(from) {
        let path = to.join(name);
        fs::create_dir_all(path.parent().expect("below")).expect("creates");
        fs::write(path, bytes).expect("writes");
    }
    fs::copy(from.join("run.json"), to.join("run.json")).expect("copies");
}

fn change(path: &Path, change: impl Fn(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).expect("reads");
    change(&mut bytes);
    fs::write(path, bytes).expect("writes");
}

/// Reads a shard, changes its rows, writes it again and gives the manifest the new checksum: what a
/// careful forger would do.
fn reseal(out: &Path, shard: &str, change: impl Fn(RecordBatch) -> RecordBatch) {
    let path = out.join(shard);
    let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(
        File::open(&path).expect("opens"),
    )
    .expect("a shard");
    let schema = reader.schema().clone();
    let pairs = reader
        .metadata()
        .file_metadata()
        .key_value_metadata()
        .cloned();
    let batches: Vec<_> = reader
        .build()
        .expect("reads")
        .map(|batch| batch.expect("reads"))
        .collect();
    let rows = change(concat_batches(&schema, &batches).expect("one schema"));
    let properties = parquet::file::properties::WriterProperties::builder()
        .set_key_value_metadata(pairs)
        .build();
    let mut writer = parquet::arrow::ArrowWriter::try_new(
        File::create(&path).expect("creates"),
        rows.schema(),
        Some(properties),
    )
    .expect("a schema");
    writer.write(&rows).expect("writes");
    writer.close().expect("writes");
    let manifest_path = out.join("manifest.json");
    let mut manifest =
        Manifest::parse(&fs::read_to_string(&manifest_path).expect("reads")).expect("sealed");
    let entry = manifest
        .files
        .iter_mut()
        .find(|file| file.path == shard)
        .expect("named");
    (entry.bytes, entry.checksum) = file_checksum(&path).expect("reads");
    fs::write(&manifest_path, manifest.sealed().1).expect("writes");
}

fn swapped(rows: &RecordBatch, columns: impl Fn(&str) -> bool) -> RecordBatch {
    let mut order: Vec<u32> = (0..rows.num_rows() as u32).collect();
    order.swap(0, 1);
    let order = UInt32Array::from(order);
    let columns = rows
        .schema()
        .fields()
        .iter()
        .zip(rows.columns())
        .map(|(field, column)| {
            if columns(field.name()) {
                take(column, &order, None).expect("takes")
            } else {
                column.clone()
            }
        })
        .collect();
    RecordBatch::try_new(rows.schema(), columns).expect("the same columns")
}

/// The rows backwards under the old numbers.
fn reversed(rows: &RecordBatch) -> RecordBatch {
    let order: UInt32Array = (0..rows.num_rows() as u32).rev().collect();
    let schema = rows.schema();
    let turn = |(field, column): (&arrow::datatypes::FieldRef, &arrow::array::ArrayRef)| match field
        .name()
        .as_str()
    {
        "position" => column.clone(),
        _ => take(column, &order, None).expect("takes"),
    };
    RecordBatch::try_new(
        schema.clone(),
        schema
            .fields()
            .iter()
            .zip(rows.columns())
            .map(turn)
            .collect(),
    )
    .expect("the same columns")
}

#[test]
fn verify_finds_what_was_changed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipeline = small(folder.path(), 1);
    let (good, out) = (folder.path().join("good"), folder.path().join("out"));
    run(&pipeline, &good, &[]);
    let shard = "shards/shard-00001.parquet";
    let checksums = "every file has the size and checksum";
    copy(&good, &out);
    assert_eq!(
        verify(&out).status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&verify(&out).stdout)
    );
    for at in [0, 1] {
        // Its first byte makes it no Parquet file; one in the middle changes values.
        copy(&good, &out);
        change(&out.join(shard), |bytes| {
            let at = at * bytes.len() / 2;
            bytes[at] ^= 0x10;
        });
        finds(&out, checksums);
    }
    copy(&good, &out);
    fs::remove_file(out.join(shard)).expect("removes");
    finds(&out, checksums);
    for added in ["shards/shard-00099.parquet", "more.parquet", "rejects/x"] {
        copy(&good, &out);
        fs::write(out.join(added), "").expect("writes");
        finds(&out, "no file stands beside");
    }
    copy(&good, &out);
    change(&out.join("manifest.json"), |bytes| {
        *bytes = String::from_utf8_lossy(bytes)
            .replace("\"seed\": 1,", "\"seed\": 2,")
            .into_bytes();
    });
    finds(&out, "the manifest is as it was written");
    copy(&good, &out);
    change(&out.join("audit.json"), |bytes| {
        *bytes = String::from_utf8_lossy(bytes)
            .replacen("\"documents\": 80", "\"documents\": 81", 1)
            .into_bytes();
    });
    finds(&out, checksums);
    finds(&out, "documents");
    // Whole rows change places, or their contents do under the old numbers.
    copy(&good, &out);
    reseal(&out, shard, |rows| swapped(&rows, |_| true));
    finds(&out, "row numbers are consecutive");
    copy(&good, &out);
    reseal(&out, shard, |rows| {
        swapped(&rows, |name| name != "position")
    });
    finds(&out, "without gap or overlap");
    copy(&good, &out);
    // All of them under each other's numbers.
    reseal(&out, shard, |rows| reversed(&rows));
    finds(
        &out,
        "the rows are those that the packing makes of the order",
    );
    copy(&good, &out);
    reseal(&out, shard, |rows| rows.slice(0, rows.num_rows() - 1));
    finds(&out, "row numbers are consecutive");
}
