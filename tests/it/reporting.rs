//! What a run tells while it works: progress as lines and JSON, the log, metrics; and that what it writes
//! tells nothing of the machine.

use crate::support::{Folder, Numbers, Ran, line};
use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;

const STAGES: &str = "stages:\n  - length: { min_tokens: 10 }\n  - exact_dedupe: {}\n  - length: { max_tokens: 5000 }\n";

/// A folder with 60 documents, ten copies and five that are too short.
fn small() -> Folder {
    let folder = Folder::new();
    let mut numbers = Numbers(71);
    let mut texts: Vec<String> = (0..60).map(|_| numbers.words(30)).collect();
    texts.extend_from_within(..10);
    texts.extend((0..5).map(|at| format!("short{at}")));
    folder.documents("in.jsonl", &texts);
    folder.pipeline(STAGES);
    folder
}

fn events(stderr: &str) -> Vec<Value> {
    let lines = stderr.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")))
        .collect()
}

// ---- Progress -----------------------------------------------------------------------------

#[test]
fn json_lines_have_all_facts_and_they_are_those_of_the_ledger() {
    let folder = small();
    let ran = folder.goodput(&["run", "p.yaml", "--progress", "json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let events = events(&ran.stderr);
    for event in &events {
        for key in [
            "event",
            "phase",
            "done",
            "total",
            "unit",
            "seconds",
            "tokens",
            "tokens_per_second",
            "seconds_left",
            "kept",
        ] {
            assert!(event.get(key).is_some(), "{key} in {event}");
        }
        // Nothing was left when a phase ended, nor known when it began.
        assert!(event["seconds_left"].is_null(), "{event}");
    }
    let audit = folder.out("out").audit();
    let read: u64 = audit.read.iter().map(|row| row.counts.tokens).sum();
    let end = |phase: &str| {
        let mut found = events
            .iter()
            .filter(|e| e["event"] == "end" && e["phase"] == phase);
        found
            .next()
            .unwrap_or_else(|| panic!("{phase} in {}", ran.stderr))
    };
    let prepare = end("prepare");
    let bytes = fs::metadata(folder.path("in.jsonl")).expect("there").len();
    assert_eq!(
        (&prepare["done"], &prepare["total"]),
        (&json!(bytes), &json!(bytes))
    );
    assert_eq!(prepare["tokens"], read);
    assert!(prepare["tokens_per_second"].as_f64().expect("a number") > 0.0);
    assert_eq!(end("emit")["tokens"], audit.emitted.tokens);
    // A phase whose whole is not known says so.
    assert!(end("arrange")["total"].is_null());
    let kept = &events.last().expect("events")["kept"];
    let kept: BTreeMap<&str, &Value> = kept
        .as_array()
        .expect("a list")
        .iter()
        .map(|row| (row["stage"].as_str().expect("a label"), row))
        .collect();
    let documents = |label: &str| {
        let row = kept[label];
        (row["documents"].as_u64(), row["documents_kept"].as_u64())
    };
    assert_eq!(documents("length"), (Some(75), Some(70)));
    assert_eq!(documents("exact_dedupe"), (Some(70), Some(60)));
    assert_eq!(
        documents("length#2"),
        (Some(70), Some(70)),
        "before the copies went"
    );
    let emitted = audit.kept.iter().map(|row| row.counts.tokens).sum::<u64>();
    assert_eq!(kept["exact_dedupe"]["tokens_kept"], emitted);
}

#[test]
fn plain_lines_say_speed_and_what_each_stage_keeps_and_are_few() {
    let folder = small();
    let ran = folder.goodput(&["run", "p.yaml", "--progress", "plain"]);
    let lines: Vec<&str> = ran.stderr.lines().collect();
    let one = |begin: &str| {
        let found: Vec<_> = lines
            .iter()
            .filter(|line| line.starts_with(begin))
            .collect();
        assert_eq!(found.len(), 1, "{begin} in {lines:?}");
        *found[0]
    };
    assert!(one("prepare").contains("tokens/s"), "{lines:?}");
    assert!(
        one("  length  ").contains("keeps 70 of 75 documents"),
        "{lines:?}"
    );
    assert!(
        one("  exact_dedupe").contains("keeps 60 of 70 documents"),
        "{lines:?}"
    );
    assert!(
        !ran.stderr.contains("left"),
        "a phase of an instant has no forecast"
    );
}

#[test]
fn what_a_stage_keeps_is_known_again_after_an_interruption_and_what_an_edit_cut_counts() {
    let folder = small();
    let text = |at: usize| {
        format!("A paragraph of its own, number {at}.\n\nThe same old paragraph for all.")
    };
    folder.documents("in.jsonl", &(0..20).map(text).collect::<Vec<_>>());
    folder.pipeline(
        "stages:\n  - length: { min_tokens: 10 }\n  - paragraph_dedupe: { min_characters: 5 }\n",
    );
    let kept = |arguments: &[&str]| -> Value {
        let run = &["run", "p.yaml", "--progress", "json", "--keep-work"];
        let ran = folder.goodput(&[run, arguments].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        events(&ran.stderr).pop().expect("events")["kept"].take()
    };
    let first = kept(&[]);
    let cut = first[1]["tokens"]
        .as_u64()
        .zip(first[1]["tokens_kept"].as_u64());
    let audit = folder.out("out").audit();
    let edited: i64 = audit.edited.iter().map(|row| row.counts.tokens).sum();
    assert!(edited > 0);
    assert_eq!(
        cut.map(|(before, after)| before - after),
        Some(edited as u64)
    );
    // The tasks of the first run are found and say what they counted.
    let again = kept(&[
        "--set",
        "order={strategy: shuffle}",
        "--out",
        "other",
        "--work",
        "out/work",
    ]);
    assert_eq!(again, first);
}

// ---- The log ------------------------------------------------------------------------------

#[test]
fn the_log_is_kept_as_it_goes_also_of_a_run_that_fails() {
    let folder = small();
    let good = fs::read_to_string(folder.path("in.jsonl")).expect("written");
    folder.write("in.jsonl", format!("{good}{{\n"));
    folder.pipeline(&format!(
        "{STAGES}inputs:\n  - {{ path: in.jsonl, source: web, on_error: fail }}\n"
    ));
    folder.goodput(&["run", "p.yaml"]).fails(&["in.jsonl"]);
    let failed = folder.out("out").text("run.log");
    assert!(
        failed.contains("error   ") && failed.contains("prepare begins"),
        "{failed}"
    );
    folder.write("in.jsonl", good);
    folder.run(&[]);
    let log = folder.out("out").text("run.log");
    assert!(log.starts_with(&failed), "{log}");
    for part in [
        "seed 17",
        "source 'web': 1 files",
        "prepare ends",
        "length ",
        "done: ",
    ] {
        assert!(log[failed.len()..].contains(part), "{part} in {log}");
    }
    for line in log.lines() {
        let time = line.split(' ').next().expect("a word");
        assert!(
            time.len() == 24 && time.starts_with("20") && time.ends_with('Z'),
            "{line}"
        );
    }
    // A folder that is complete is left as it is.
    folder.run(&[]);
    assert_eq!(folder.out("out").text("run.log"), log);
    folder.run(&["--fresh"]);
    assert!(!folder.out("out").text("run.log").contains("error   "));
}

#[test]
fn verbose_says_decisions_and_twice_verbose_files() {
    let folder = small();
    let run = |arguments: &[&str]| -> Ran {
        let ran = folder.goodput(&[&["run", "p.yaml", "--fresh"], arguments].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran
    };
    let off = ["--progress", "off"];
    assert_eq!(run(&off).stderr, "");
    let once = run(&[&off[..], &["-v"]].concat()).stderr;
    assert!(
        once.contains("info: tokenizer ") && !once.contains("debug: "),
        "{once}"
    );
    assert!(!folder.out("out").text("run.log").contains("input in.jsonl"));
    let twice = run(&[&off[..], &["-vv"]].concat()).stderr;
    assert!(
        twice.contains("debug: input in.jsonl") && twice.contains("debug: wrote shards/"),
        "{twice}"
    );
    assert!(
        folder
            .out("out")
            .text("run.log")
            .contains("debug   input in.jsonl")
    );
    let json = run(&["--progress", "json", "--verbose"]).stderr;
    assert!(
        events(&json)
            .iter()
            .any(|event| event["event"] == "log" && event["level"] == "info")
    );
}

// ---- Metrics ------------------------------------------------------------------------------

fn scrape(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")
        .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[test]
fn metrics_are_scraped_while_a_run_goes_on() {
    let folder = Folder::new();
    let mut numbers = Numbers(72);
    let texts: Vec<String> = (0..8000).map(|_| numbers.words(150)).collect();
    folder.documents("in.jsonl", &texts);
    folder.pipeline("stages:\n  - gopher_repetition: {}\n  - length: { min_tokens: 10 }\n");
    let arguments = [
        "run",
        "p.yaml",
        "--metrics",
        "0",
        "--progress",
        "json",
        "--threads",
        "1",
        "--slice",
        "100kB",
    ];
    let mut run = folder
        .command(&arguments)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(run.stderr.take().expect("piped")).lines();
    let first = lines.next().expect("a line").expect("UTF-8");
    let first: Value = serde_json::from_str(&first).expect("JSON");
    assert_eq!(first["event"], "metrics");
    let address = first["address"].as_str().expect("an address").to_string();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    // The rest is read, so that the run does not wait for it.
    let rest = std::thread::spawn(move || lines.map_while(Result::ok).count());
    let mut tokens: Vec<u64> = Vec::new();
    let mut seen = BTreeSet::new();
    while run.try_wait().expect("it runs").is_none() {
        let Some(answer) = scrape(&address) else {
            continue;
        };
        for line in answer.lines() {
            if let Some(value) = line.strip_prefix("goodput_tokens_total{phase=\"prepare\"} ") {
                tokens.push(value.parse().expect("a number"));
            }
            if let Some((name, _)) = line
                .split_once(['{', ' '])
                .filter(|_| !line.starts_with('#'))
            {
                seen.insert(name.to_string());
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(run.wait().expect("it ended").success());
    assert!(rest.join().expect("read") > 4);
    let all: u64 = folder
        .out("out")
        .audit()
        .read
        .iter()
        .map(|row| row.counts.tokens)
        .sum();
    assert!(
        tokens.is_sorted() && tokens.last().is_some_and(|last| *last <= all),
        "{tokens:?}"
    );
    assert!(
        tokens.iter().any(|tokens| (1..all).contains(tokens)),
        "in the middle of it: {tokens:?}"
    );
    for name in [
        "goodput_build_info",
        "goodput_phase_running",
        "goodput_phase_progress_ratio",
        "goodput_phase_seconds_total",
        "goodput_bytes_total",
        "goodput_stage_documents_total",
        "goodput_stage_tokens_total",
        "goodput_warnings_total",
        "process_cpu_seconds_total",
    ] {
        assert!(seen.contains(name), "{name} in {seen:?}");
    }
    assert_eq!(scrape(&address), None, "nobody listens after the run");
}

#[test]
fn a_port_in_use_is_refused_before_anything_is_done_and_a_public_address_warned_of() {
    let folder = small();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("bound").port();
    for form in [
        format!("{port}"),
        format!(":{port}"),
        format!("127.0.0.1:{port}"),
    ] {
        let ran = folder.goodput(&["run", "p.yaml", "--metrics", &form]);
        ran.refuses(&["--metrics", &port.to_string(), "in use", "another port"]);
    }
    assert!(!folder.path("out").exists());
    folder
        .goodput(&["run", "p.yaml", "--metrics", "everywhere"])
        .refuses(&["--metrics", "HOST:PORT"]);
    let quiet = folder.run(&["--metrics", "0"]);
    assert_eq!(quiet.stderr, "", "loopback is nothing to warn of");
    let loud = folder.run(&["--fresh", "--metrics", "0.0.0.0:0"]);
    assert!(
        loud.stderr
            .starts_with("warning: metrics are shown to everybody"),
        "{loud:?}"
    );
}

// ---- What is written is safe --------------------------------------------------------------

/// Every file below a folder as text; of Parquet files the rows and what stands in them uncompressed.
fn texts_below(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut texts = BTreeMap::new();
    for entry in walkdir::WalkDir::new(folder) {
        let entry = entry.expect("readable");
        if !entry.file_type().is_file() {
            continue;
        }
        let bytes = fs::read(entry.path()).expect("readable");
        let mut text = String::from_utf8_lossy(&bytes).to_string();
        if entry
            .path()
            .extension()
            .is_some_and(|name| name == "parquet")
        {
            let file = fs::File::open(entry.path()).expect("readable");
            let reader = SerializedFileReader::new(file).expect("Parquet");
            for row in reader.get_row_iter(None).expect("rows") {
                text.push_str(&row.expect("a row").to_string());
            }
        }
        texts.insert(entry.path().to_path_buf(), text);
    }
    texts
}

#[test]
fn nothing_of_the_machine_stands_in_what_is_written() {
    let folder = small();
    let good = fs::read_to_string(folder.path("in.jsonl")).expect("written");
    // Bad records and a file that is cut off, below a folder that only a variable names.
    let other = Folder::new();
    other.write("elsewhere-q7xw/a/in.jsonl", format!("{good}{{\nnot json\n"));
    let whole = zstd_of(&line("a text in a file that is cut off"));
    other.write("elsewhere-q7xw/a/cut.jsonl.zst", &whole[..whole.len() - 4]);
    folder.write("web/in2.jsonl", &good);
    let mut numbers = Numbers(74);
    let words: Vec<String> = (0..20).map(|_| numbers.words(30)).collect();
    folder.documents("good.jsonl", &words);
    folder.pipeline(
        "inputs:\n  - { path: \"${PLACE}/a/*.jsonl*\", source: a }\n  - { path: web/*.jsonl, source: web }\n\
         stages:\n  - length: { min_tokens: 10 }\n  - exact_dedupe: { write_index: true }\n  \
         - score: { estimator: ngram_excess, reference: good.jsonl }\noutput: { path: out, rejects: text }\n",
    );
    let root = folder.path("").canonicalize().expect("there");
    let root = root
        .to_str()
        .expect("UTF-8")
        .trim_end_matches('/')
        .to_string();
    let pipeline = format!("{root}/p.yaml");
    let secrets = [
        ("AWS_SECRET_ACCESS_KEY", "sk-made-up-9f3b1c"),
        ("GITHUB_TOKEN", "ghp_madeup77xyz"),
        ("HOSTNAME", "strange-host-5521"),
        ("USER", "user-zz81"),
        ("PWD_OF_NOBODY", "pw-made-up-004"),
    ];
    let work = format!("{root}/work-k3v");
    let absolute_out = format!("{root}/out");
    for arguments in [
        &["run", "p.yaml", "-vv"][..],
        &[
            "run",
            &pipeline,
            "-vv",
            "--fresh",
            "--out",
            &absolute_out,
            "--work",
            &work,
            "--keep-work",
        ],
    ] {
        let output = folder
            .command(arguments)
            .envs(secrets)
            .env("PLACE", other.path("elsewhere-q7xw"))
            .output()
            .expect("it starts");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let log = folder.out("out").text("run.log");
        assert!(
            log.contains("warning") && log.contains("cut.jsonl.zst"),
            "{log}"
        );
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let mut hidden: Vec<&str> = secrets.iter().map(|(_, value)| *value).collect();
        hidden.extend([root.as_str(), "elsewhere-q7xw", "work-k3v"]);
        // A host with a name like "ci" or "box" may stand in any text.
        hidden.extend(Some(host.trim()).filter(|host| host.len() > 6));
        let files = texts_below(&folder.path("out"));
        for name in [
            "run.json",
            "run.log",
            "manifest.json",
            "audit.json",
            "pipeline.yaml",
        ] {
            assert!(files.contains_key(&folder.path("out").join(name)), "{name}");
        }
        for kind in ["quarantine", "index", "rejects", "shards"] {
            assert!(
                files
                    .keys()
                    .any(|path| path.starts_with(folder.path("out").join(kind))),
                "{kind}"
            );
        }
        for (path, text) in &files {
            for secret in &hidden {
                assert!(
                    !text.contains(secret),
                    "{secret} stands in {}",
                    path.display()
                );
            }
        }
    }
    // The pipeline is found by the way from the output folder, from wherever one looks.
    let place = other.path("elsewhere-q7xw");
    let verified = folder
        .command(&["verify", &absolute_out, "--inputs"])
        .current_dir(folder.path("web"))
        .env("PLACE", &place)
        .output()
        .expect("it starts");
    assert!(
        verified.status.success(),
        "{}",
        String::from_utf8_lossy(&verified.stderr)
    );
    // Moved elsewhere, it says what it lacks.
    fs::create_dir(folder.path("moved")).expect("a folder");
    fs::rename(folder.path("out"), folder.path("moved/out")).expect("moved");
    folder
        .goodput(&["inspect", "moved/out"])
        .refuses(&["p.yaml", "--pipeline"]);
}

fn zstd_of(text: &str) -> Vec<u8> {
    zstd::encode_all(text.as_bytes(), 3).expect("in memory")
}

#[cfg(unix)]
#[test]
fn files_have_the_rights_that_the_users_umask_leaves() {
    use std::os::unix::fs::PermissionsExt;
    for (umask, file_mode, folder_mode) in [("077", 0o600, 0o700), ("027", 0o640, 0o750)] {
        let folder = small();
        let ran = std::process::Command::new("sh")
            .args([
                "-c",
                &format!("umask {umask}; exec \"$0\" run p.yaml --keep-work --progress off"),
            ])
            .arg(env!("CARGO_BIN_EXE_goodput"))
            .current_dir(folder.path(""))
            .output()
            .expect("a shell");
        assert!(ran.status.success(), "{ran:?}");
        let mut seen = 0;
        for entry in walkdir::WalkDir::new(folder.path("out")) {
            let entry = entry.expect("readable");
            let mode = entry.metadata().expect("there").permissions().mode() & 0o777;
            let expected = if entry.file_type().is_dir() {
                folder_mode
            } else {
                file_mode
            };
            assert_eq!(mode, expected, "{umask}: {}", entry.path().display());
            seen += 1;
        }
        assert!(seen > 20, "work and output");
    }
}

// ---- Pages and terminals ------------------------------------------------------------------

pub const NASTY: [&str; 6] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    "</script><svg/onload=alert(1)>",
    "--><!--[if]>&lt;&#60;</title></style>",
    "a\u{202e}b\u{0}\u{1b}[31m\u{2028}\u{feff}\u{9b}2J",
];

/// The elements and attributes of a page, read as a browser does: text ends at `<`, a tag at `>` outside quotes.
pub fn markup(page: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut elements, mut attributes) = (BTreeSet::new(), BTreeSet::new());
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let end = rest
            .find(|c: char| c.is_whitespace() || c == '>')
            .expect("a tag ends");
        let name = rest[..end].to_string();
        rest = rest[end..].trim_start();
        while !rest.starts_with('>') {
            let end = rest
                .find(|c: char| c.is_whitespace() || c == '=' || c == '>')
                .expect("an attribute ends");
            attributes.insert(rest[..end].to_string());
            rest = &rest[end..];
            if let Some(value) = rest.strip_prefix('=') {
                let value = value
                    .strip_prefix('"')
                    .expect("every value stands in quotes");
                rest = &value[value.find('"').expect("closed") + 1..];
                assert!(rest.starts_with([' ', '>', '/', '\n']), "{}", &rest[..20]);
            }
            rest = rest.trim_start();
        }
        rest = &rest[1..];
        // What stands in these is no markup but for their own end.
        if name == "script" || name == "style" {
            let end = rest.find(&format!("</{name}>")).expect("closed");
            rest = &rest[end..];
        }
        elements.insert(name);
    }
    (elements, attributes)
}

#[test]
fn pages_show_what_documents_say_and_run_none_of_it() {
    let folder = Folder::new();
    let mut numbers = Numbers(73);
    let mut lines = String::new();
    let mut record = |id: &str, text: &str| {
        lines.push_str(&(json!({ "id": id, "text": text }).to_string() + "\n"));
    };
    for (at, nasty) in NASTY.iter().enumerate() {
        let text = format!("{} {nasty} {}", numbers.words(20), numbers.words(20));
        record(&format!("{nasty} {at}"), &text);
        record(&format!("copy {nasty} {at}"), &text);
        record(&format!("short {nasty} {at}"), nasty);
    }
    folder.write("in.jsonl", lines);
    folder.documents(
        "good.jsonl",
        &(0..20).map(|_| numbers.words(30)).collect::<Vec<_>>(),
    );
    let quoted = |text: &str| json!(text).to_string();
    folder.pipeline(&format!(
        "name: {}\ninputs:\n  - {{ path: in.jsonl, source: {}, id: id }}\nstages:\n  - length: {{ min_tokens: 80 }}\n  \
         - near_dedupe: {{}}\n  - score: {{ estimator: ngram_excess, reference: good.jsonl }}\n",
        quoted(NASTY[0]),
        quoted(&NASTY[..5].concat()),
    ));
    folder.run(&[]);
    for (arguments, scripts) in [
        (
            &["inspect", "out", "--format", "html", "--documents", "50"][..],
            1,
        ),
        (
            &[
                "inspect",
                "out",
                "--rejects",
                "--format",
                "html",
                "--documents",
                "50",
            ],
            1,
        ),
        (&["audit", "out", "--format", "html"], 0),
        (&["audit", "out", "--duplicates", "--format", "html"], 0),
    ] {
        let ran = folder.goodput(arguments);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let page = ran.stdout;
        assert!(page.starts_with("<!doctype html>\n"), "{arguments:?}");
        assert_eq!(page.matches("<script>").count(), scripts, "{arguments:?}");
        assert_eq!(page.matches("</script>").count(), scripts, "{arguments:?}");
        let strange = |c: &char| {
            (c.is_control() && *c != '\n' && *c != '\t')
                || ['\u{202e}', '\u{2028}', '\u{feff}'].contains(c)
        };
        assert_eq!(page.chars().find(strange), None, "{arguments:?}");
        let (elements, attributes) = markup(&page);
        for element in &elements {
            let name = element.trim_start_matches('/').trim_end_matches('/');
            assert!(
                [
                    "!doctype", "html", "head", "meta", "title", "style", "body", "h1", "h2", "p",
                    "code", "table", "thead", "tbody", "tr", "th", "td", "svg", "rect", "line",
                    "text", "div", "article", "small", "b", "i", "br", "span", "script", "details",
                    "summary",
                ]
                .contains(&name),
                "<{element}> in {arguments:?}"
            );
        }
        for attribute in &attributes {
            assert!(
                !attribute.starts_with("on")
                    && !["src", "href", "srcdoc", "action"].contains(&attribute.as_str()),
                "{attribute} in {arguments:?}"
            );
        }
        // It is there as text.
        assert!(
            page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"),
            "{arguments:?}"
        );
    }
}

#[test]
fn no_name_forges_a_line_of_its_own() {
    let folder = small();
    let quoted = |text: &str| json!(text).to_string();
    folder.pipeline(&format!(
        "name: {}\ninputs:\n  - {{ path: in.jsonl, source: {} }}\n{STAGES}",
        quoted("pipe\nwarning: forged\n\u{1b}[2J"),
        quoted("web\nforged source\r\u{9b}2J\u{202e}"),
    ));
    for arguments in [
        &["check", "p.yaml"][..],
        &["run", "p.yaml", "--progress", "plain", "-vv"],
        &["run", "p.yaml"],
        &["run", "p.yaml", "--fresh", "--progress", "json", "-vv"],
        &["audit", "out"],
        &["audit", "out", "--by", "source"],
        &["audit", "out", "--duplicates"],
        &["verify", "out", "--inputs"],
        &["inspect", "out", "--colour", "never"],
    ] {
        let ran = folder.goodput(arguments);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        for text in [&ran.stdout, &ran.stderr] {
            let raw = |c: &char| (c.is_control() && *c != '\n' && *c != '\t') || *c == '\u{202e}';
            assert_eq!(text.chars().find(raw), None, "{ran:?}");
            assert!(
                !text
                    .lines()
                    .any(|line| line.starts_with("warning: forged") || line.starts_with("forged")),
                "{ran:?}"
            );
        }
    }
    let log = folder.out("out").text("run.log");
    assert!(
        log.lines()
            .all(|line| !line.starts_with("forged") && !line.starts_with("warning")),
        "{log}"
    );
}
