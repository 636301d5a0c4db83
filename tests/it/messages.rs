//! What the program says: to terminals that it must not command, and of arguments by their names.

use crate::support::{Folder, Numbers, Ran};

fn world() -> Folder {
    let folder = Folder::new();
    let mut numbers = Numbers(31);
    let mut texts: Vec<String> = (0..30).map(|_| numbers.words(30)).collect();
    texts.push("short".to_string());
    folder.documents("in.jsonl", &texts);
    let good: Vec<String> = (0..20).map(|_| numbers.words(30)).collect();
    folder.documents("good.jsonl", &good);
    folder
}

const SCORED: &str = "stages:\n  - length: { min_tokens: 10 }\n  \
                      - score: { estimator: ngram_excess, reference: good.jsonl }\n";

fn commands_nothing(ran: &Ran) {
    for text in [&ran.stdout, &ran.stderr] {
        let command = |c: &char| c.is_control() && *c != '\n' && *c != '\t';
        assert_eq!(text.chars().find(command), None, "{ran:?}");
    }
}

#[test]
fn names_from_files_and_arguments_cannot_command_a_terminal() {
    let folder = world();
    // Escape, bell, and the one-character form of "escape [".
    let name = |name: &str| format!("\"{name}\\x1b[31m\\x07\\x9b2J\"");
    folder.write("bad.jsonl", "{\n");
    folder.pipeline(&format!(
        "name: {}\ninputs:\n  - {{ path: in.jsonl, source: {} }}\n  \
         - {{ path: bad.jsonl, source: {} }}\n{SCORED}  - select: {{ keep_share_of_tokens: 0.5, by: score }}\n",
        name("pipe"),
        name("web"),
        name("bad"),
    ));
    for arguments in [
        &["check", "p.yaml"][..],
        &["run", "p.yaml", "--progress", "plain"],
        &["run", "p.yaml"],
        &["audit", "out"],
        &["audit", "out", "--by", "source"],
        &["audit", "out", "--threshold", "0.5", "--exact"],
        &["verify", "out", "--inputs"],
        &["inspect", "out", "--colour", "never"],
        &["inspect", "out", "--rejects", "--colour", "never"],
    ] {
        let ran = folder.goodput(arguments);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        commands_nothing(&ran);
    }
    let log = folder.out("out").text("run.log");
    assert!(!log.contains('\x1b') && !log.contains('\u{9b}'), "{log}");
    // Data for programs stay as they are: JSON spells such characters itself.
    let json = folder.goodput(&["audit", "out", "--format", "json"]).stdout;
    let ledger: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(ledger["pipeline"], "pipe\x1b[31m\x07\u{9b}2J");
    for arguments in [
        &["inspect", "out", "--source", "x\x1b[31m"][..],
        &["run", "no\x1b[31msuch.yaml"],
        &["audit", "no\x1b[31msuch"],
        &["check", "p.yaml", "--set", "inputs.0.path=\x1b[31m*.jsonl"],
    ] {
        let ran = folder.goodput(arguments);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        commands_nothing(&ran);
    }
}

#[test]
fn a_problem_of_a_set_names_the_set() {
    let folder = world();
    folder.pipeline(SCORED);
    for (set, word) in [
        ("inputs.web.path=none/*.jsonl", "none/*.jsonl"),
        ("stages.score.reference=absent/*.jsonl", "absent/*.jsonl"),
        ("stages.score.calibration=absent.json", "'calibration'"),
        ("stages.score.domain=nowhere", "'domain'"),
        ("tokenizer.end_token=<|nope|>", "<|nope|>"),
        ("tokenizer.file=absent.json", "absent.json"),
        ("stages.length.min_tokens=-1", "'min_tokens'"),
    ] {
        let ran = folder.goodput(&["check", "p.yaml", "--set", "seed=3", "--set", set]);
        ran.refuses(&[&format!("--set {set}: "), word]);
        assert!(!ran.stderr.contains("p.yaml:"), "{ran:?}");
    }
    // What the file says is named by its place there.
    folder.pipeline(&SCORED.replace("good.jsonl", "absent.jsonl"));
    folder
        .goodput(&["check", "p.yaml", "--set", "seed=3"])
        .refuses(&["p.yaml:", "absent.jsonl"]);
}

#[test]
fn arguments_that_do_not_apply_are_refused() {
    let folder = world();
    folder.pipeline(SCORED);
    folder.run(&[]);
    for format in ["csv", "json", "html"] {
        folder
            .goodput(&["audit", "out", "--by", "source", "--format", format])
            .refuses(&["--by", "table"]);
    }
    for by in ["source", "stage", "reason"] {
        assert_eq!(folder.goodput(&["audit", "out", "--by", by]).code, Some(0));
    }
    for arguments in [
        &["audit", "out", "--threshold", "-1"][..],
        &["audit", "out", "--threshold", "1.5"],
    ] {
        folder
            .goodput(arguments)
            .refuses(&["--threshold", "from 0 to 1"]);
    }
    folder
        .goodput(&["run", "p.yaml", "--sample", "-0.5"])
        .refuses(&["--sample", "above 0 and up to 1"]);
    folder
        .goodput(&["inspect", "out", "--source", "wep"])
        .refuses(&["--source", "'wep'", "it has: web"]);
    folder
        .goodput(&["inspect", "out", "--rejects", "--reason", "to_short"])
        .refuses(&["--reason", "'to_short'", "it has: too_few_tokens"]);
    let ran = folder.goodput(&["inspect", "out", "--rejects", "--reason", "too_few_tokens"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let help = folder.goodput(&["inspect", "--help"]).stdout;
    for class in ["learnable", "known", "noise", "off_target"] {
        assert!(help.lines().any(|line| line.trim().starts_with(class)));
    }
}
