//! What a run holds in memory, seen from outside.
#![expect(clippy::print_stdout, reason = "a test that is skipped says why")]

use super::same_bytes::{Numbers, documents, jsonl, prose, run_command, shared, stderr};
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

/// A folder with the byte tokenizer and a pipeline of dedupes over `data/`.
fn shape(write: impl Fn(&Path)) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(
        folder.path().join("tokenizer.json"),
        byte_tokenizer().to_string(),
    )
    .expect("writes");
    let data = folder.path().join("data");
    fs::create_dir_all(&data).expect("creates");
    write(&data);
    let text = "version: 1\nname: shape\nseed: 17\ninputs: [{ path: \"data/**/*.jsonl\", source: a, max_document_bytes: 8 MB }]\n\
                tokenizer: { file: tokenizer.json, end_token: \"<|end|>\" }\nstages:\n  - exact_dedupe: {}\n  - near_dedupe: { min_similarity: 0.8 }\n\
                \x20 - score: { estimator: random }\n  - select: { keep_share_of_tokens: 0.8, by: score }\norder: { strategy: sorted, by: score }\n\
                pack: { method: best_fit, sequence_tokens: 2048 }\noutput: { path: out }\n";
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

/// Memory follows neither the number of documents or files nor what they hold, as long as no document is long. With
/// `GOODPUT_LARGE=1` a million documents and 100,000 files.
#[test]
fn no_shape_of_the_input_takes_memory_beyond_the_budget() {
    let large = std::env::var_os("GOODPUT_LARGE").is_some();
    let documents = if large { 1_000_000 } else { 40_000 };
    let files = if large { 100_000 } else { 2_000 };
    let words = |n: usize| {
        let mut numbers = Numbers(n as u64);
        (0..40)
            .map(|_| format!("{:x}", numbers.below(1 << 20)))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let settings = ["--memory", "64MiB", "--threads", "2"];
    let of = |name: &str, write: &dyn Fn(&Path)| {
        let (folder, pipeline) = shape(write);
        let peak = peak(&pipeline, &folder.path().join("out"), &settings);
        println!("{name}: {} MiB", peak >> 20);
        peak
    };
    let one = of("one document", &|data| {
        texts(&data.join("a.jsonl"), std::iter::once(words(0)));
    });
    let lines = |of: &dyn Fn(usize) -> String| {
        let all: Vec<String> = (0..documents).map(of).collect();
        all
    };
    let shapes = [
        ("empty documents", lines(&|_| String::new())),
        ("one document again and again", lines(&|_| words(0))),
        ("all different", lines(&words)),
    ];
    for (name, all) in &shapes {
        let peak = of(name, &|data| {
            texts(&data.join("a.jsonl"), all.iter().cloned())
        });
        assert!(
            peak < one + BUDGET_AND_WORKERS,
            "{name}: {} MiB, one document {} MiB",
            peak >> 20,
            one >> 20
        );
    }
    let peak = of("many files", &|data| {
        for number in 0..files {
            let folder = data.join(format!("{:03}", number / 1_000));
            fs::create_dir_all(&folder).expect("creates");
            let path = folder.join(format!("{number}.jsonl"));
            texts(&path, std::iter::once(words(number)));
        }
    });
    assert!(
        peak < one + BUDGET_AND_WORKERS,
        "many files: {} MiB",
        peak >> 20
    );
    let long = of("a document of 7.9 MB", &|data| {
        let text = (0..40_000).map(words).collect::<Vec<_>>().join(" ");
        texts(
            &data.join("a.jsonl"),
            std::iter::once(text[..7_900_000].to_string()),
        );
    });
    // What a document takes grows with its length alone, and by no more than this a byte.
    assert!(
        long < one + (64 * 8_000_000),
        "a long document: {} MiB",
        long >> 20
    );
}

/// The budget of the run above, which so far is that of sorts and fits, and what two workers take beside it while they
/// are at work: 145 MiB were measured in all for documents that are all different.
const BUDGET_AND_WORKERS: u64 = (64 + 2 * 56) << 20;
