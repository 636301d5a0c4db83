//! What a run holds in memory, seen from outside.
#![expect(clippy::print_stdout, reason = "a test that is skipped says why")]

use super::same_bytes::{Numbers, documents, jsonl, prose, run_command, shared, stderr};
use crate::support::anonymous_bytes;
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
    let settings = ["--memory", "64MiB", "--threads", "2"];
    let fit = "fit_tokens: 200_000";
    let peaks = [1, 6].map(|copies| {
        let here = folder.path().join(copies.to_string());
        fs::create_dir_all(&here).expect("creates");
        peak(&small(&here, copies, fit), &here.join("out"), &settings)
    });
    println!(
        "2 MB of text take {} MiB, 12 MB take {} MiB",
        peaks[0] >> 20,
        peaks[1] >> 20
    );
    // The tokenizer, its workers and the encoders of shards have a floor of their own: together with
    // the budget 187 MiB were measured.
    assert!(peaks[1] < FLOOR + (64 << 20), "{} MiB", peaks[1] >> 20);
}

/// What a run of this vocabulary (200,000 ids) takes beside its budget on two threads.
const FLOOR: u64 = 192 << 20;

#[test]
fn models_that_do_not_fit_are_refused_with_what_to_change() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipeline = small(folder.path(), 1, "fit_tokens: 1_000_000");
    let out = folder.path().join("out");
    let mut memory = "300kB".to_string();
    let mut refusals = 0;
    loop {
        let output = run_command(&pipeline, &out, &["--memory", &memory])
            .output()
            .expect("starts");
        if output.status.success() {
            break;
        }
        refusals += 1;
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            refusals <= 3 && said.contains("'fit_tokens'"),
            "{memory}: {said}"
        );
        // What it asks for is enough for what it speaks of; what was prepared is used again.
        let asked = said
            .split("raise --memory to ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        memory = asked.expect("it names a size").to_string();
    }
    assert!(refusals >= 1);
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
    assert!(peak < (1 << 30) * 13 / 10, "{} MiB", peak >> 20);
}
