//! What a run holds in memory, seen from outside.
#![expect(clippy::print_stdout, reason = "a test that is skipped says why")]

use super::same_bytes::{
    Numbers, documents, goodput, jsonl, least_memory, prose, run_command, shared, stderr,
};
use super::support::{anonymous_bytes, byte_tokenizer};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Runs to the end and looks every few milliseconds: the largest anonymous memory in bytes.
fn peak(pipeline: &Path, out: &Path, more: &[&str]) -> u64 {
    let child = run_command(pipeline, out, more)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut peak = 0;
    while let Some(bytes) = anonymous_bytes(child.id()) {
        peak = peak.max(bytes);
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().expect("ends");
    assert!(output.status.success(), "{}", stderr(&output));
    peak
}

fn pipeline(folder: &Path, input: &str, reference: &str, fit: &str, tokenizer: &str) -> PathBuf {
    let text = format!(
        "version: 1\nname: memory\nseed: 17\ninputs: [{{ path: \"{input}\", source: a, id: id }}]\n\
         tokenizer: {{ {tokenizer}, end_token: \"<|endoftext|>\" }}\nstages:\n  - length: {{ min_tokens: 16 }}\n  - exact_dedupe: {{}}\n\
         \x20 - near_dedupe: {{ min_similarity: 0.8 }}\n  - score: {{ estimator: ngram_excess, reference: \"{reference}\", {fit} }}\n\
         \x20 - select: {{ keep_share_of_tokens: 0.8, by: score }}\n\
         order: {{ strategy: warmup, share: 0.3, inner: {{ strategy: sorted, by: difficulty }} }}\n\
         pack: {{ method: best_fit, sequence_tokens: 2048 }}\noutput: {{ path: out }}\n"
    );
    let path = folder.join("pipeline.yaml");
    fs::write(&path, text).expect("writes");
    path
}

fn small(folder: &Path, copies: u64, fit: &str) -> PathBuf {
    fs::create_dir_all(folder.join("data")).expect("creates");
    for copy in 0..copies {
        let mut documents = documents(copy + 1, 2_000);
        documents
            .iter_mut()
            .for_each(|(id, _)| *id = format!("{copy}-{id}"));
        fs::write(folder.join(format!("data/{copy}.jsonl")), jsonl(&documents)).expect("writes");
    }
    let mut numbers = Numbers(99);
    let reference: Vec<_> = (0..300)
        .map(|n| (format!("r{n}"), prose(&mut numbers, 20)))
        .collect();
    fs::write(folder.join("reference.jsonl"), jsonl(&reference)).expect("writes");
    pipeline(
        folder,
        "data/*.jsonl",
        "reference.jsonl",
        fit,
        "builtin: o200k",
    )
}

#[test]
fn more_documents_take_no_more_memory() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let fit = "fit_tokens: 200_000";
    let budget = "300MiB";
    let peaks = [1, 6].map(|copies| {
        let here = folder.path().join(copies.to_string());
        fs::create_dir_all(&here).expect("creates");
        let settings = ["--memory", budget, "--threads", "2"];
        peak(&small(&here, copies, fit), &here.join("out"), &settings)
    });
    println!(
        "2 MB of text take {} MiB, 12 MB take {} MiB",
        peaks[0] >> 20,
        peaks[1] >> 20
    );
    assert!(peaks[1] < 345 << 20, "{} MiB", peaks[1] >> 20);
}

#[test]
fn models_that_do_not_fit_are_refused_at_the_start_with_what_to_change() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipeline = small(folder.path(), 8, "fit_tokens: 4_000_000");
    let out = folder.path().join("out");
    let threads = ["--threads", "1"];
    let least = least_memory(&pipeline, &threads);
    let memory = format!("{}B", least / 100 * 70);
    let output = run_command(&pipeline, &out, &["--threads", "1", "--memory", &memory]).output();
    let output = output.expect("starts");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("'fit_tokens'"), "{said}");
    let peak = peak(&pipeline, &out, &["--threads", "1", "--memory", "least"]);
    assert!(
        peak < least / 100 * 115,
        "{} of {}",
        peak >> 20,
        least >> 20
    );
}

/// The real texts of `mix`, again and again with distinct ids until there are `target` bytes. Every
/// other round only a prefix differs, so that near copies abound; in the rest every fifth word is
/// another one, so that the documents stay.
fn grown(shared: &Path, folder: &Path, target: u64) -> u64 {
    fs::create_dir_all(folder).expect("creates");
    let mut written = 0;
    let mut round = 0;
    while written < target {
        let mut names: Vec<PathBuf> = fs::read_dir(shared.join("data/mix"))
            .expect("lists")
            .flatten()
            .map(|file| file.path())
            .collect();
        names.sort();
        let path = folder.join(format!("{round:03}.jsonl"));
        let mut file = BufWriter::new(File::create(path).expect("creates"));
        for name in names {
            let reader = BufReader::new(
                zstd::Decoder::new(File::open(name).expect("opens")).expect("is zstd"),
            );
            for line in reader.lines() {
                let value: serde_json::Value =
                    serde_json::from_str(&line.expect("reads")).expect("is JSON");
                let (id, text) = (
                    value["id"].as_str().unwrap_or(""),
                    value["text"].as_str().unwrap_or(""),
                );
                let text = if round % 2 == 0 {
                    format!("Copy {round}. {text}")
                } else {
                    let words: Vec<&str> = text.split(' ').collect();
                    let other = |at: usize| words[(at * 7 + round * 13) % words.len()];
                    let changed: Vec<&str> = words
                        .iter()
                        .enumerate()
                        .map(|(at, word)| if at % 5 == 0 { other(at) } else { word })
                        .collect();
                    changed.join(" ")
                };
                written += text.len() as u64;
                writeln!(
                    file,
                    "{}",
                    serde_json::json!({ "id": format!("{round}/{id}"), "text": text })
                )
                .expect("writes");
            }
        }
        file.flush().expect("writes");
        round += 1;
    }
    written
}

#[test]
fn two_gigabytes_fit_into_one() {
    if std::env::var_os("GOODPUT_LARGE").is_none() {
        println!("skipped: takes many minutes and 10 GB of disk; set GOODPUT_LARGE=1");
        return;
    }
    let Some(shared) = shared() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let bytes = grown(&shared, &folder.path().join("data"), 2_000_000_000);
    let data = shared.join("data");
    let pipeline = pipeline(
        folder.path(),
        "data/*.jsonl",
        &format!("{}/reference/*.jsonl.zst", data.display()),
        "fit_tokens: 20_000_000, model_ngrams: 6_000_000",
        &format!(
            "file: \"{}/tokenizers/gpt2/tokenizer.json\"",
            data.display()
        ),
    );
    let out = folder.path().join("out");
    let began = Instant::now();
    let peak = peak(&pipeline, &out, &["--memory", "1GiB"]);
    println!(
        "{bytes} bytes of text in {:.0} s, {} MiB at most",
        began.elapsed().as_secs_f64(),
        peak >> 20
    );
    println!(
        "{}",
        fs::read_to_string(out.join("run.json")).expect("reads")
    );
    assert!(peak < (1 << 30) / 100 * 115, "{} MiB", peak >> 20);
}

/// A folder with the byte tokenizer, which makes a token of each byte, and a pipeline of dedupes over `data/`.
fn shape(bounds: &str, write: impl Fn(&Path)) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(
        folder.path().join("tokenizer.json"),
        byte_tokenizer().to_string(),
    )
    .expect("writes");
    let data = folder.path().join("data");
    fs::create_dir_all(&data).expect("creates");
    write(&data);
    let text = format!(
        "version: 1\nname: shape\nseed: 17\ninputs: [{{ path: \"data/**/*.jsonl*\", source: a, {bounds} }}]\n\
         tokenizer: {{ file: tokenizer.json, end_token: \"<|end|>\" }}\nstages:\n  - exact_dedupe: {{}}\n  - near_dedupe: {{ min_similarity: 0.8 }}\n\
         \x20 - score: {{ estimator: random }}\n  - select: {{ keep_share_of_tokens: 0.8, by: score }}\norder: {{ strategy: sorted, by: score }}\n\
         pack: {{ method: best_fit, sequence_tokens: 2048 }}\noutput: {{ path: out, rejects: text }}\n"
    );
    let pipeline = folder.path().join("pipeline.yaml");
    fs::write(&pipeline, text).expect("writes");
    (folder, pipeline)
}

/// Writes lines of JSON with these texts.
fn texts(path: &Path, texts: impl Iterator<Item = String>) {
    let mut file = BufWriter::new(File::create(path).expect("creates"));
    for text in texts {
        writeln!(file, "{}", serde_json::json!({ "text": text })).expect("writes");
    }
    file.flush().expect("writes");
}

/// Forty words that hardly another document has.
fn words(number: usize) -> String {
    let mut numbers = Numbers(number as u64);
    let word = |_| format!("{:x}", numbers.below(1 << 20));
    (0..40).map(word).collect::<Vec<_>>().join(" ")
}

/// One text of so many bytes.
fn long(number: usize, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 400);
    let mut part = number * 1_000_000;
    while text.len() < bytes {
        text.push_str(&words(part));
        text.push(' ');
        part += 1;
    }
    text.truncate(bytes);
    text
}

/// An input, and the bound of its documents where it has one.
type Shape = (&'static str, &'static str, Box<dyn Fn(&Path)>);

fn shapes(large: bool) -> Vec<Shape> {
    let documents = if large { 1_000_000 } else { 20_000 };
    let files = if large { 100_000 } else { 1_000 };
    let long_documents = if large { 40 } else { 5 };
    let lines = move |of: fn(usize) -> String| -> Box<dyn Fn(&Path)> {
        Box::new(move |data| texts(&data.join("a.jsonl"), (0..documents).map(of)))
    };
    vec![
        ("empty documents", "", lines(|_| String::new())),
        ("one document again and again", "", lines(|_| words(0))),
        ("all different", "", lines(words)),
        ("a word each", "", lines(|number| format!("w{number}"))),
        (
            "many files",
            "",
            Box::new(move |data| {
                for number in 0..files {
                    let folder = data.join(format!("{:03}", number / 1_000));
                    fs::create_dir_all(&folder).expect("creates");
                    let path = folder.join(format!("{number}.jsonl"));
                    texts(&path, std::iter::once(words(number)));
                }
            }),
        ),
        (
            "documents as long as may be",
            "max_document_bytes: 2 MB",
            Box::new(move |data| {
                for file in 0..2 {
                    let of_file = (0..long_documents).map(|n| long(2 * n + file, 1_990_000));
                    texts(&data.join(format!("{file}.jsonl")), of_file);
                }
            }),
        ),
        (
            "the same in one compressed file",
            "max_document_bytes: 2 MB",
            Box::new(move |data| {
                let path = data.join("plain");
                texts(&path, (0..2 * long_documents).map(|n| long(n, 1_990_000)));
                let plain = fs::read(&path).expect("reads");
                fs::remove_file(&path).expect("removes");
                let packed = zstd::encode_all(&plain[..], 1).expect("to memory");
                fs::write(data.join("a.jsonl.zst"), packed).expect("writes");
            }),
        ),
        (
            "a line that is too long among others",
            "max_document_bytes: 1 MB",
            Box::new(move |data| {
                let mut file = BufWriter::new(File::create(data.join("a.jsonl")).expect("creates"));
                let pieces = if large { 2_000 } else { 60 };
                let piece = "x".repeat(1_000_000);
                for number in 0..3 {
                    writeln!(file, "{{\"text\": \"{}\"}}", words(number)).expect("writes");
                    write!(file, "{{\"text\": \"").expect("writes");
                    (0..pieces).for_each(|_| file.write_all(piece.as_bytes()).expect("writes"));
                    writeln!(file, "\"}}").expect("writes");
                }
                file.flush().expect("writes");
            }),
        ),
    ]
}

/// `--memory` holds for every shape of the input, and the least that `check` says is enough. With `GOODPUT_LARGE=1` a
/// million documents, 100,000 files, lines of 2 GB, and 1 GiB too.
#[test]
fn no_shape_of_the_input_takes_memory_beyond_the_budget() {
    let large = std::env::var_os("GOODPUT_LARGE").is_some();
    let mut over = Vec::new();
    for (name, bounds, write) in shapes(large) {
        let (folder, pipeline) = shape(bounds, write);
        let least = least_memory(&pipeline, &["--threads", "2"]);
        let mut budgets = vec![least];
        if large {
            budgets.extend([(256u64 << 20).max(least), 1 << 30]);
        }
        for (at, budget) in budgets.into_iter().enumerate() {
            let memory = format!("{budget}B");
            let out = folder.path().join(format!("out-{at}"));
            let peak = peak(&pipeline, &out, &["--threads", "2", "--memory", &memory]);
            println!("{name}: {} MiB of {} MiB", peak >> 20, budget >> 20);
            if peak > budget / 100 * 115 {
                over.push(format!("{name}: {} MiB of {}", peak >> 20, budget >> 20));
            }
        }
    }
    assert!(over.is_empty(), "{over:#?}");
}

#[test]
fn a_budget_that_cannot_do_is_refused_at_once_with_what_to_change() {
    let (folder, pipeline) = shape("", |data| {
        let some = (0..4).map(|number| long(number, 3_000_000));
        texts(&data.join("a.jsonl"), some);
    });
    let out = folder.path().join("out");
    let refused = |more: &[&str]| {
        let output = run_command(&pipeline, &out, more).output().expect("starts");
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(!out.exists(), "something was begun");
        said
    };
    let said = refused(&["--memory", "100MiB", "--threads", "2"]);
    for words in [
        "100 MiB do not hold",
        "raise --memory to ",
        "--threads",
        "'max_document_bytes'",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    // With one thread that cannot be lower.
    let said = refused(&["--memory", "1MiB", "--threads", "1"]);
    assert!(!said.contains("lower --threads"), "{said}");
    // What check says is what a run takes, and says what is missing, without failing.
    let check = |more: &[&str]| {
        let output = goodput(&[&["check"], more].concat())
            .arg(&pipeline)
            .output();
        let output = output.expect("starts");
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).expect("is text")
    };
    let said = check(&["--memory", "100MiB"]);
    for words in [
        "memory      at least ",
        "the budget is 100 MiB",
        "100 MiB do not hold",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!check(&["--memory", "8GiB"]).contains("do not hold"));
    let shorter = fs::read_to_string(&pipeline)
        .expect("reads")
        .replace("source: a, ", "source: a, max_document_bytes: 1 MB, ");
    let least = least_memory(&pipeline, &["--threads", "2"]);
    fs::write(&pipeline, shorter).expect("writes");
    assert!(least_memory(&pipeline, &["--threads", "2"]) + (64 << 20) < least);
}
