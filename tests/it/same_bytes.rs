//! Equal runs write equal bytes: for any threads, memory, cut of the work, and cut of the inputs.
#![expect(clippy::print_stdout, reason = "a test that is skipped says why")]

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

/// Numbers that look random and are the same in every run (splitmix64).
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len() as u64) as usize]
    }
}

const WHO: &[&str] = &[
    "the old captain",
    "a young teacher",
    "the baker's daughter",
    "our neighbour",
    "the committee",
    "an engineer from the north",
    "the gardener",
    "her younger brother",
    "the night watchman",
    "a travelling doctor",
    "the librarian",
    "the mayor of the town",
    "the ferry pilot",
    "a retired judge",
    "the violin maker",
    "the first settlers",
    "two students",
    "the postmaster",
];
const DID: &[&str] = &[
    "walked slowly towards",
    "had always wondered about",
    "wrote a long letter about",
    "could not forget",
    "built a fence around",
    "painted a picture of",
    "was asked to describe",
    "kept careful records of",
    "found a curious map of",
    "spoke with affection of",
    "returned every summer to",
    "measured the depth of",
    "wanted to repair",
    "argued for an hour about",
    "had been paid to guard",
];
const WHAT: &[&str] = &[
    "the harbour",
    "the bridge that the flood had broken",
    "a garden with high walls",
    "the mill by the river",
    "the railway station",
    "the clock in the market square",
    "the road over the mountains",
    "a house with green shutters",
    "the archive",
    "the lighthouse",
    "the school behind the church",
    "the orchard",
    "that winter",
    "the price of wheat and barley",
    "the new telescope",
    "the small museum",
];
const THEN: &[&str] = &[
    "and nobody knew why",
    "before the rain came",
    "while the others were asleep",
    "with a patience that surprised everyone",
    "because there was nothing else to do",
    "and the story was told for many years",
    "until the lamps were lit",
    "although it cost a great deal of money",
    "which is what we have to thank for the present order",
    "as one does at that age",
    "and it turned out to be a good decision",
    "without a word to the people of the village",
    "after the long journey from the coast",
];
const GERMAN: &[&str] = &[
    "Der alte Mann ging langsam durch den Wald und dachte an seine Kindheit.",
    "Im Winter lag der Schnee hoch auf den Dächern.",
    "Die Lehrerin erklärte den Schülern, warum das Wasser im Fluss so kalt ist.",
    "Niemand wusste, woher der Brief gekommen war.",
    "Am Abend saßen sie zusammen und sprachen über die Ernte des vergangenen Jahres.",
    "Das Haus am Markt war schon lange verkauft.",
];

fn sentence(numbers: &mut Numbers) -> String {
    let mut text = format!(
        "{} {} {}",
        numbers.of(WHO),
        numbers.of(DID),
        numbers.of(WHAT)
    );
    if numbers.below(3) > 0 {
        text = format!("{text}, {}", numbers.of(THEN));
    }
    if numbers.below(4) == 0 {
        text = format!("in {} {text}", 1820 + numbers.below(90));
    }
    text[..1].to_uppercase() + &text[1..] + "."
}

/// Paragraphs of about `sentences` sentences.
pub fn prose(numbers: &mut Numbers, sentences: u64) -> String {
    let mut text = String::new();
    for at in 0..sentences {
        text.push_str(&sentence(numbers));
        text.push_str(if at % 5 == 4 { "\n\n" } else { " " });
    }
    text.trim_end().to_string()
}

/// Documents of many kinds: prose mostly, copies, copies with a changed word, and what filters turn away.
pub fn documents(seed: u64, count: usize) -> Vec<(String, String)> {
    let mut numbers = Numbers(seed);
    let mut texts: Vec<String> = Vec::new();
    for _ in 0..count {
        let kind = numbers.below(100);
        let earlier =
            (!texts.is_empty()).then(|| texts[numbers.below(texts.len() as u64) as usize].clone());
        let text = match (kind, earlier) {
            (0..6, Some(copy)) => copy,
            (6..16, Some(near)) => {
                let words: Vec<&str> = near.split(' ').collect();
                let at = numbers.below(words.len() as u64) as usize;
                let changed: Vec<&str> = words
                    .iter()
                    .enumerate()
                    .map(|(n, word)| if n == at { "certainly" } else { word })
                    .collect();
                changed.join(" ")
            }
            (16..20, _) => "too short to say much".to_string(),
            (20..24, _) => (0..8 + numbers.below(9))
                .map(|_| numbers.of(GERMAN))
                .collect::<Vec<_>>()
                .join(" "),
            (24..27, _) => (0..70)
                .map(|_| format!("#{} ~~ {:x}", numbers.below(99), numbers.next()))
                .collect::<Vec<_>>()
                .join(" "),
            (27..30, _) => format!("{}\n", sentence(&mut numbers)).repeat(12),
            _ => {
                let length = 6 + numbers.below(22);
                prose(&mut numbers, length)
            }
        };
        texts.push(text);
    }
    texts
        .into_iter()
        .enumerate()
        .map(|(number, text)| (format!("doc-{:05}", (number * 7919) % 100_003), text))
        .collect()
}

pub fn jsonl(documents: &[(String, String)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (id, text) in documents {
        writeln!(bytes, "{}", serde_json::json!({ "id": id, "text": text })).expect("to memory");
    }
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("to memory");
    encoder.finish().expect("to memory")
}

fn parquet(documents: &[(String, String)], path: &Path) {
    let column = |of: fn(&(String, String)) -> &str| -> ArrayRef {
        Arc::new(
            documents
                .iter()
                .map(|d| Some(of(d)))
                .collect::<StringArray>(),
        )
    };
    let batch = RecordBatch::try_from_iter([("id", column(|d| &d.0)), ("text", column(|d| &d.1))])
        .expect("equal lengths");
    let properties = parquet::file::properties::WriterProperties::builder()
        .set_max_row_group_row_count(Some(100))
        .build();
    let mut writer = parquet::arrow::ArrowWriter::try_new(
        File::create(path).expect("creates"),
        batch.schema(),
        Some(properties),
    )
    .expect("a schema");
    writer.write(&batch).expect("writes");
    writer.close().expect("writes");
}

/// The stages, order and pack of the pipeline that uses every kind of stage.
const CHAIN: &str = r#"
tokenizer: { builtin: o200k, end_token: "<|endoftext|>" }
stages:
  - length: { min_tokens: 16 }
  - exact_dedupe: {}
  - language: { keep: [en], min_probability: 0.0 }
  - gopher_quality: {}
  - gopher_repetition: {}
  - near_dedupe: { min_similarity: 0.8, keep: longest }
  - score: { estimator: ngram_excess, reference: "data/reference/*.jsonl", fit_tokens: 60_000 }
  - select: { keep_share_of_tokens: 0.7, by: score }
order: { strategy: warmup, share: 0.4, inner: { strategy: paced, by: difficulty } }
pack: { method: best_fit, sequence_tokens: 256, window_documents: 64 }
output: { path: out, shard_tokens: 8_000, rejects: text }
"#;

/// Writes a folder with inputs of every format, a reference and `pipeline.yaml`. Returns the pipeline's path.
pub fn generated(folder: &Path, count: usize) -> PathBuf {
    let data = folder.join("data");
    for name in ["given", "derived", "reference"] {
        fs::create_dir_all(data.join(name)).expect("creates");
    }
    let documents = documents(17, count);
    let quarter = count / 5;
    let mut plain = jsonl(&documents[..quarter]);
    // A blank line, a broken one, and an id that stands in another file.
    plain.extend_from_slice(b"\n{\"id\": \"broken\", \"text\": \n");
    plain.extend_from_slice(&jsonl(&[(
        documents[2 * quarter].0.clone(),
        "An id that comes again.".to_string(),
    )]));
    fs::write(data.join("given/a.jsonl"), plain).expect("writes");
    fs::write(
        data.join("given/b.jsonl.gz"),
        gzip(&jsonl(&documents[quarter..2 * quarter])),
    )
    .expect("writes");
    let packed =
        zstd::encode_all(&jsonl(&documents[2 * quarter..3 * quarter])[..], 3).expect("to memory");
    fs::write(data.join("given/c.jsonl.zst"), packed).expect("writes");
    parquet(
        &documents[3 * quarter..4 * quarter],
        &data.join("given/d.parquet"),
    );
    let rest = &documents[4 * quarter..];
    fs::write(
        data.join("derived/lines.jsonl"),
        jsonl(&rest[..rest.len() / 2]),
    )
    .expect("writes");
    for (id, text) in &rest[rest.len() / 2..] {
        fs::write(data.join(format!("derived/{id}.txt")), text).expect("writes");
    }
    let mut numbers = Numbers(99);
    let reference: Vec<_> = (0..150)
        .map(|n| (format!("r{n}"), prose(&mut numbers, 12 + n % 9)))
        .collect();
    fs::write(data.join("reference/one.jsonl"), jsonl(&reference[..70])).expect("writes");
    fs::write(data.join("reference/two.jsonl"), jsonl(&reference[70..])).expect("writes");
    let inputs = "version: 1\nname: all-stages\nseed: 17\ninputs:\n  - { path: \"data/given/*\", source: given, id: id }\n  \
                  - { path: \"data/derived/*\", source: derived }";
    let pipeline = folder.join("pipeline.yaml");
    fs::write(&pipeline, format!("{inputs}{CHAIN}")).expect("writes");
    pipeline
}

/// `goodput` with arguments.
pub fn goodput(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_goodput"));
    command.args(arguments);
    command
}

/// `goodput run PIPELINE --out OUT` with more arguments; `--memory least` is the least that `check` says.
pub fn run_command(pipeline: &Path, out: &Path, more: &[&str]) -> Command {
    let mut command = goodput(&["run", "--progress", "off"]);
    command.arg(pipeline).arg("--out").arg(out);
    for &argument in more {
        match argument {
            "least" => command.arg(format!("{}B", least_memory(pipeline, more))),
            argument => command.arg(argument),
        };
    }
    command
}

/// The least memory in bytes that `check` says a run with these arguments takes.
pub fn least_memory(pipeline: &Path, more: &[&str]) -> u64 {
    let mut command = goodput(&["check", "--format", "json"]);
    command.arg(pipeline);
    for option in ["--threads", "--slice"] {
        if let Some(at) = more.iter().position(|argument| *argument == option) {
            command.args(&more[at..at + 2]);
        }
    }
    let output = command.output().expect("starts");
    assert!(output.status.success(), "{}", stderr(&output));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("is JSON");
    said["estimated_memory_bytes"].as_u64().expect("a number")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs it to its end, which must be good.
pub fn run(pipeline: &Path, out: &Path, more: &[&str]) -> Output {
    let output = run_command(pipeline, out, more).output().expect("starts");
    assert!(output.status.success(), "{more:?}: {}", stderr(&output));
    output
}

/// Every file below a folder with its bytes, but what may differ between equal runs.
pub fn bytes_of(out: &Path) -> BTreeMap<String, Vec<u8>> {
    fn walk(root: &Path, folder: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
        for entry in fs::read_dir(folder).expect("lists").flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(root, &path, files);
            } else {
                let name = path
                    .strip_prefix(root)
                    .expect("below it")
                    .to_string_lossy()
                    .into_owned();
                files.insert(name, fs::read(&path).expect("reads"));
            }
        }
    }
    let mut files = BTreeMap::new();
    walk(out, out, &mut files);
    files.retain(|name, _| name != "run.json" && name != "run.log");
    files
}

/// Says which files differ, rather than print them.
pub fn assert_same(expected: &BTreeMap<String, Vec<u8>>, out: &Path, what: &str) {
    let found = bytes_of(out);
    let names: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    let differing: Vec<_> = names
        .into_iter()
        .filter(|name| expected.get(*name) != found.get(*name))
        .collect();
    assert!(
        differing.is_empty(),
        "{what}: these files differ: {differing:?}"
    );
}

/// Runs with one setting after another and compares all that is written with that of the first.
pub fn assert_settings_change_nothing(
    pipeline: &Path,
    folder: &Path,
    settings: &[&[&str]],
) -> BTreeMap<String, Vec<u8>> {
    let mut first: Option<BTreeMap<String, Vec<u8>>> = None;
    for more in settings {
        let out = folder.join("settings-out");
        run(pipeline, &out, more);
        match &first {
            None => first = Some(bytes_of(&out)),
            Some(first) => assert_same(first, &out, &format!("{more:?}")),
        }
        fs::remove_dir_all(&out).expect("removes");
    }
    first.expect("at least one setting")
}

fn audit(files: &BTreeMap<String, Vec<u8>>) -> serde_json::Value {
    serde_json::from_slice(&files["audit.json"]).expect("a ledger")
}

#[test]
fn threads_memory_and_slices_change_no_byte() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipeline = generated(folder.path(), 1_200);
    let files = assert_settings_change_nothing(
        &pipeline,
        folder.path(),
        &[
            &["--threads", "2"],
            &["--threads", "1", "--memory", "least"],
            &["--threads", "4", "--memory", "8GiB"],
            &["--threads", "2", "--slice", "4kB"],
            &["--threads", "3", "--slice", "100kB", "--memory", "least"],
            &["--threads", "1", "--slice", "37kB"],
        ],
    );
    // Every stage had something to do, else the comparison would prove little.
    let audit = audit(&files);
    let rejecting: BTreeSet<&str> = audit["rejected"]
        .as_array()
        .expect("rows")
        .iter()
        .filter_map(|row| row["stage"].as_str())
        .collect();
    let stages = [
        "exact_dedupe",
        "gopher_quality",
        "gopher_repetition",
        "language",
        "length",
        "near_dedupe",
        "select",
    ];
    assert_eq!(rejecting.into_iter().collect::<Vec<_>>(), stages);
    let reasons: BTreeSet<&str> = audit["quarantined"]
        .as_array()
        .expect("rows")
        .iter()
        .filter_map(|row| row["reason"].as_str())
        .collect();
    assert!(
        reasons.contains("blank") && reasons.contains("duplicate_id"),
        "{reasons:?}"
    );
    assert!(
        files
            .keys()
            .filter(|name| name.starts_with("shards/"))
            .count()
            >= 3,
        "{:?}",
        files.keys()
    );
}

#[test]
fn memory_for_a_few_records_changes_no_byte() {
    // Without models sorts alone are left, and spill.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipeline = generated(folder.path(), 600);
    let text = fs::read_to_string(&pipeline).expect("reads").replace(
        r#"{ estimator: ngram_excess, reference: "data/reference/*.jsonl", fit_tokens: 60_000 }"#,
        "{ estimator: random }",
    );
    let text = text.replace("by: difficulty", "by: score");
    fs::write(&pipeline, text).expect("writes");
    assert_settings_change_nothing(
        &pipeline,
        folder.path(),
        &[
            &[],
            &["--memory", "least"],
            &["--memory", "least", "--threads", "1"],
        ],
    );
}

/// A tokenizer of the letters a to y, without a token for anything else: it makes no token of "zzz".
fn letters(path: &Path) {
    let vocabulary: serde_json::Map<_, _> = ('a'..='y')
        .chain([' '])
        .zip(0..)
        .map(|(letter, id)| (letter.to_string(), id.into()))
        .collect();
    let text = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "decoder": null,
        "model": { "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
                   "fuse_unk": false, "byte_fallback": false, "vocab": vocabulary, "merges": [] }
    });
    fs::write(path, text.to_string()).expect("writes");
}

#[test]
fn the_quarantine_does_not_tell_how_the_work_was_cut() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    letters(&folder.path().join("letters.json"));
    let mut lines = String::new();
    for number in 0..60 {
        lines.push_str(match number % 3 {
            0 => "{\"text\": \"a text of letters\"}\n",
            1 => "{\"text\": \"zzz\"}\n",
            _ => "{\"text\": 7}\n",
        });
    }
    fs::write(folder.path().join("a.jsonl"), lines).expect("writes");
    let pipeline = folder.path().join("pipeline.yaml");
    let text = "version: 1\nname: cut\nseed: 1\ninputs: [{ path: a.jsonl, source: a }]\ntokenizer: { file: letters.json }\nstages: []\n\
                order: { strategy: shuffle }\npack: { method: none }\noutput: { path: out }\n";
    fs::write(&pipeline, text).expect("writes");
    let files = assert_settings_change_nothing(
        &pipeline,
        folder.path(),
        &[
            &[],
            &["--slice", "100B"],
            &["--slice", "333B", "--threads", "1"],
        ],
    );
    let quarantine = String::from_utf8_lossy(&files["quarantine/part-00000.jsonl"]).into_owned();
    assert_eq!(quarantine.lines().count(), 40);
    assert_eq!(audit(&files)["failed"][0]["documents"], 20);
}

#[test]
fn documents_with_ids_give_the_same_shards_from_other_files() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipeline = generated(folder.path(), 700);
    let text = fs::read_to_string(&pipeline).expect("reads");
    let text = text.replace("\n  - { path: \"data/derived/*\", source: derived }", "");
    fs::write(&pipeline, text).expect("writes");
    let given = folder.path().join("data/given");
    let documents = documents(17, 700);
    let mut of_first = None;
    // In one file; in three, dealt out in turn; backwards in two formats.
    for cut in 0..3 {
        fs::remove_dir_all(&given).expect("removes");
        fs::create_dir_all(&given).expect("creates");
        match cut {
            0 => fs::write(given.join("all.jsonl"), jsonl(&documents)).expect("writes"),
            1 => {
                for part in 0..3 {
                    let mine: Vec<_> = documents.iter().skip(part).step_by(3).cloned().collect();
                    fs::write(given.join(format!("{part}.jsonl.gz")), gzip(&jsonl(&mine)))
                        .expect("writes");
                }
            }
            _ => {
                let backwards: Vec<_> = documents.iter().rev().cloned().collect();
                parquet(&backwards[..400], &given.join("0.parquet"));
                fs::write(given.join("1.jsonl"), jsonl(&backwards[400..])).expect("writes");
            }
        }
        let out = folder.path().join(format!("out-{cut}"));
        run(&pipeline, &out, &[]);
        let mut files = bytes_of(&out);
        // The manifest names the input files; all else is about documents.
        files.remove("manifest.json");
        match &of_first {
            None => of_first = Some(files),
            Some(first) => {
                let differing: Vec<_> = first
                    .iter()
                    .filter(|(name, bytes)| files.get(*name) != Some(bytes))
                    .map(|(name, _)| name)
                    .collect();
                assert!(
                    differing.is_empty() && first.len() == files.len(),
                    "cut {cut}: {differing:?}"
                );
            }
        }
    }
}

/// The folder of real data, where it is there.
pub fn shared() -> Option<PathBuf> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared"));
    if path.join("data/mix").is_dir() {
        return Some(path.to_path_buf());
    }
    println!("skipped: no shared data");
    None
}

#[test]
fn real_text_gives_the_same_bytes_for_all_settings() {
    let Some(shared) = shared() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = shared.join("data");
    let data = data.display();
    let inputs: String = [
        "crates-text-00",
        "gnome-help-00",
        "mail-00",
        "kafka-manual-00",
    ]
    .iter()
    .map(|name| {
        format!("  - {{ path: \"{data}/mix/{name}.jsonl.zst\", source: {name}, id: id }}\n")
    })
    .collect();
    let chain = CHAIN
        .replace(
            "builtin: o200k",
            &format!("file: \"{data}/tokenizers/gpt2/tokenizer.json\""),
        )
        .replace(
            "data/reference/*.jsonl",
            &format!("{data}/reference/wikipedia-en.jsonl.zst"),
        )
        .replace("fit_tokens: 60_000", "fit_tokens: 500_000")
        .replace("shard_tokens: 60_000", "shard_tokens: 1_000_000");
    let pipeline = folder.path().join("pipeline.yaml");
    fs::write(
        &pipeline,
        format!(
            "version: 1\nname: real\nseed: 17\ninputs:\n{inputs}{}",
            chain.trim_start()
        ),
    )
    .expect("writes");
    assert_settings_change_nothing(
        &pipeline,
        folder.path(),
        &[
            &["--threads", "2"],
            &["--threads", "1", "--memory", "least"],
            &["--threads", "4", "--slice", "100kB", "--memory", "8GiB"],
        ],
    );
}
