//! `goodput measure` as a user meets it: files, flags, refusals, both forms of the result.

use crate::cli::check;
use crate::support::{Folder, Numbers};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write;

fn step(ts: u64, step: u64, tokens: u64) -> String {
    format!(
        "{{\"ts\":{ts},\"kind\":\"step\",\"step\":{step},\"tokens\":{tokens},\"loss\":2.5,\"dur_s\":10}}\n"
    )
}

/// 20 s of initialisation, 200 steps of 10 s, an outage of an hour in the middle.
fn with_outage() -> String {
    let mut text =
        "{\"ts\":1000,\"kind\":\"job_start\"}\n{\"ts\":1020,\"kind\":\"init\",\"dur_s\":20}\n"
            .to_string();
    for number in 1..=200 {
        let outage = if number > 100 { 3600 } else { 0 };
        text += &step(1020 + 10 * number + outage, number, 4096);
    }
    text
}

fn measured(folder: &Folder, arguments: &[&str]) -> Value {
    let mut all = vec!["measure"];
    all.extend(arguments);
    all.extend(["--format", "json"]);
    let ran = folder.goodput(&all);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    serde_json::from_str(&ran.stdout).expect("one JSON document")
}

#[test]
fn an_outage_without_replayed_steps_is_found_by_file_and_by_flags() {
    let folder = Folder::new();
    folder.write("train.jsonl", with_outage());
    folder.write(
        "measure.yaml",
        "version: 1\nname: golden\nmodel: { parameters: 1e9, flop_convention: six_n }\n\
         hardware: { chips: 4, peak_teraflops: 1, price_per_chip_hour: 2 }\nruns: [{ name: a, logs: '*.jsonl' }]\n",
    );
    let by_file = measured(&folder, &["measure.yaml"]);
    let run = &by_file["runs"][0];
    let time = &run["time"];
    assert_eq!(time["wall_microseconds"], 5_620_000_000_i64);
    assert_eq!(time["productive_microseconds"], 2_000_000_000_i64);
    assert_eq!(time["badput_microseconds"]["recovery"], 3_600_000_000_i64);
    assert_eq!(time["badput_microseconds"]["init"], 20_000_000);
    assert_eq!(time["unattributed_microseconds"], 0);
    assert!((time["productive_share"].as_f64().expect("a share") - 0.3559).abs() < 1e-3);
    assert_eq!(
        (&run["disruptions"], &run["format"]),
        (&Value::from(1), &Value::from("events"))
    );
    assert!(run["attempts"][1]["after_inferred_outage"].as_bool() == Some(true));
    // 409.6 tokens a second x 6e9 of 4e12.
    assert!((run["rate"]["mfu"].as_f64().expect("a peak") - 0.6144).abs() < 1e-9);
    assert!((run["cost"]["total"].as_f64().expect("a price") - 8.0 * 5620.0 / 3600.0).abs() < 1e-9);

    let flags = [
        "--log",
        "train.jsonl",
        "--chips",
        "4",
        "--peak-teraflops",
        "1",
        "--price-per-chip-hour",
        "2",
        "--parameters",
        "1e9",
        "--flop-convention",
        "six_n",
    ];
    let by_flags = measured(&folder, &flags);
    assert_eq!(by_flags["runs"][0]["rate"], run["rate"]);
    assert_eq!(by_flags["runs"][0]["time"], run["time"]);

    let table = folder.goodput(&["measure", "measure.yaml"]);
    assert_eq!(table.code, Some(0));
    for part in [
        "35.59 %",
        "(1 disruption)",
        "- recovery",
        "after an inferred outage",
        "MFU on productive time",
        "inferred:",
    ] {
        assert!(table.stdout.contains(part), "{part} in\n{}", table.stdout);
    }
}

#[test]
fn wrong_requests_and_logs_exit_with_2_and_say_all_of_it() {
    let folder = Folder::new();
    folder.write("measure.yaml", "version: 1\nname: a\nrunz: []\nhardware: { chips: 0 }\nruns: [{ name: a, logs: none.jsonl }]\n");
    folder.goodput(&["measure", "measure.yaml"]).refuses(&[
        "measure.yaml:3:1: unknown key 'runz'",
        "did you mean 'runs'?",
        "measure.yaml:4:20: 'chips' must be",
    ]);
    folder
        .goodput(&["measure", "absent.yaml"])
        .refuses(&["absent.yaml: no such file", "goodput schema measure"]);
    folder
        .goodput(&["measure", "--log", "none.jsonl"])
        .refuses(&["none.jsonl"]);
    folder.goodput(&["measure"]).refuses(&["--log"]);
    folder
        .goodput(&["measure", "--chips", "4"])
        .refuses(&["--log"]);
    folder.write("train.jsonl", &(step(10, 1, 5) + &step(20, 2, 5)));
    folder
        .goodput(&[
            "measure",
            "--log",
            "train.jsonl",
            "--chips",
            "none",
            "--log-format",
            "event",
        ])
        .refuses(&[
            "--chips none: 'chips' must be a whole number",
            "unknown format 'event'; did you mean 'events'?",
        ]);
    folder.write("prose.txt", "nothing of a training\n");
    folder
        .goodput(&["measure", "--log", "prose.txt"])
        .refuses(&["prose.txt", "no known format", "torchtitan"]);
    folder.write("packed.gz", [0x1f, 0x8b, 8, 0]);
    folder
        .goodput(&["measure", "--log", "packed.gz"])
        .refuses(&["packed.gz", "gunzip"]);
    folder.write("other.jsonl", &(step(15, 2, 5) + &step(25, 3, 5)));
    folder
        .goodput(&["measure", "--log", "train.jsonl", "--log", "other.jsonl"])
        .refuses(&["other.jsonl:1: attempts overlap", "train.jsonl:2"]);
}

#[test]
fn a_log_of_another_dataset_is_refused() {
    let folder = Folder::new();
    let mut numbers = Numbers(5);
    let texts: Vec<String> = (0..20).map(|_| numbers.words(30)).collect();
    folder.documents("in.jsonl", &texts);
    folder.pipeline("pack: { method: concat, sequence_tokens: 64 }\n");
    assert_eq!(
        folder.goodput(&["run", "p.yaml", "--progress", "off"]).code,
        Some(0)
    );
    let manifest: Value = serde_json::from_str(
        &std::fs::read_to_string(folder.path("out/manifest.json")).expect("written"),
    )
    .expect("JSON");
    let name = manifest["checksum"].as_str().expect("a checksum");
    let start =
        |name: &str| format!("{{\"ts\":0,\"kind\":\"job_start\",\"tag\":\"dataset={name}\"}}\n");
    let steps = step(10, 1, 128) + &step(20, 2, 128);
    folder.write("right.jsonl", &(start(name) + &steps));
    let report = measured(&folder, &["--log", "right.jsonl", "--dataset", "out"]);
    let dataset = &report["runs"][0]["dataset"];
    assert_eq!(dataset["checksum"], name);
    assert_eq!(dataset["is_named_in_log"], true);
    assert_eq!(dataset["positions"], manifest["totals"]["positions"]);
    folder.write("wrong.jsonl", &(start("0123") + &steps));
    folder
        .goodput(&["measure", "--log", "wrong.jsonl", "--dataset", "out"])
        .refuses(&["wrong.jsonl:1: reads dataset 0123, but ./out is", name]);
    folder.write("odd.jsonl", &(step(10, 1, 100) + &step(20, 2, 100)));
    folder
        .goodput(&["measure", "--log", "odd.jsonl", "--dataset", "out"])
        .refuses(&[
            "odd.jsonl:1: a step of 100 tokens is no whole number of rows",
            "64 positions",
        ]);
    folder.write(
        "long.jsonl",
        &(step(10, 1, 64_000) + &step(20, 2, 64_000) + &step(30, 3, 64_000)),
    );
    folder
        .goodput(&["measure", "--log", "long.jsonl", "--dataset", "out"])
        .refuses(&[
            "long.jsonl:3: up to here the run read 192,000 tokens",
            "'epochs'",
        ]);
    folder
        .goodput(&["measure", "--log", "odd.jsonl", "--dataset", "absent"])
        .refuses(&["absent/manifest.json"]);
}

#[test]
fn steps_are_joined_with_the_documents_they_read() {
    let folder = Folder::new();
    let mut numbers = Numbers(7);
    let texts: Vec<String> = (0..60).map(|_| numbers.words(20)).collect();
    folder.documents("in.jsonl", &texts);
    folder.documents(
        "more.jsonl",
        &texts[..10]
            .iter()
            .map(|text| format!("{text} more"))
            .collect::<Vec<_>>(),
    );
    folder.pipeline(
        "inputs:\n  - { path: in.jsonl, source: web }\n  - { path: more.jsonl, source: docs }\n\
         order: { strategy: shuffle }\npack: { method: concat, sequence_tokens: 64 }\n",
    );
    assert_eq!(
        folder.goodput(&["run", "p.yaml", "--progress", "off"]).code,
        Some(0)
    );
    let rows = folder.out("out").rows();
    assert!(rows.len() > 60, "{}", rows.len());
    // Two rows a step; 24 steps, of which 21 to 24 are done again; the loss jumps at step 20.
    let line = |ts: u64, number: u64| {
        step(ts, number, 128).replace("2.5", if number == 20 { "7.5" } else { "2.5" })
    };
    let mut log: String = (1..=24).map(|number| line(10 * number, number)).collect();
    log += "{\"ts\":240,\"kind\":\"ckpt_restore\",\"step\":20}\n";
    log.extend((21..=30).map(|number| line(250 + 10 * (number - 21), number)));
    folder.write("train.jsonl", &log);
    let report = measured(&folder, &["--log", "train.jsonl", "--dataset", "out"]);
    let joined = &report["runs"][0]["curriculum"];
    assert_eq!(
        (&joined["rows_per_step"], &joined["positions_read_again"]),
        (&Value::from(2), &Value::from(4 * 128))
    );
    let parts = joined["parts"].as_array().expect("parts");
    assert_eq!(parts.len(), 10);
    for (at, part) in parts.iter().enumerate() {
        assert_eq!(part["first_step"], 3 * at + 1);
        // Three steps of two rows.
        let read = &rows[6 * at..6 * at + 6];
        let mut by_source = std::collections::BTreeMap::<&str, u64>::new();
        for segment in read.iter().flat_map(|row| &row.segments) {
            *by_source.entry(&segment.source).or_default() +=
                u64::from(segment.tokens.expect("packed"));
        }
        assert_eq!(part["tokens_by_source"], serde_json::json!(by_source));
        let special: u32 = read.iter().map(|row| row.special_tokens).sum();
        assert_eq!(
            (&part["positions"], &part["special_tokens"]),
            (&Value::from(384), &Value::from(special))
        );
    }
    // Step 20 reads rows 38 and 39.
    let spikes = joined["loss_spikes"].as_array().expect("spikes");
    assert_eq!(spikes.len(), 1, "{spikes:?}");
    assert_eq!(
        (&spikes[0]["line"], &spikes[0]["first_step"]),
        (&Value::from("train.jsonl:20"), &Value::from(20))
    );
    let mut expected: Vec<&str> = rows[38..40]
        .iter()
        .flat_map(|row| &row.segments)
        .map(|s| s.doc_id.as_str())
        .collect();
    expected.sort_unstable();
    expected.dedup();
    let documents = spikes[0]["largest_documents"]
        .as_array()
        .expect("documents");
    let mut named: Vec<&str> = documents
        .iter()
        .map(|d| d["doc_id"].as_str().expect("an id"))
        .collect();
    named.sort_unstable();
    assert_eq!(named, expected);
    let table = folder.goodput(&["measure", "--log", "train.jsonl", "--dataset", "out"]);
    for part in [
        "what the steps read",
        "steps 1 to 3:",
        "loss spike at",
        expected[0],
    ] {
        assert!(table.stdout.contains(part), "{part} in\n{}", table.stdout);
    }
}

#[test]
fn a_trainer_that_does_not_read_in_the_order_of_the_manifest_is_found() {
    let folder = Folder::new();
    let mut numbers = Numbers(9);
    let texts: Vec<String> = (0..60).map(|_| numbers.words(20)).collect();
    folder.documents("in.jsonl", &texts);
    folder.pipeline(
        "order: { strategy: shuffle }\npack: { method: concat, sequence_tokens: 64 }\noutput: { path: out, shard_tokens: 2000 }\n",
    );
    folder.run(&[]);
    let out = folder.out("out");
    assert!(out.shards().len() > 2);
    let rows = out.rows();
    // Two rows a step, a line every other step: rows from `first` on, by `told` also said which.
    let line = |at: usize, first: usize, told: bool| {
        let read = &rows[first..first + 4];
        let sum: u64 = read
            .iter()
            .map(|row| u64::from(goodput::measure::ids_crc32(&row.input_ids)))
            .sum();
        let mut event = serde_json::json!({
            "ts": 20 * at, "kind": "step", "step": 2 * at + 2, "tokens": 4 * 64, "ids_crc32": sum
        });
        if told {
            event["row"] = read[0].position.into();
            event["rows"] = 4.into();
        }
        event.to_string() + "\n"
    };
    let order = |log: String| {
        folder.write("train.jsonl", log);
        let report = measured(
            &folder,
            &[
                "--log",
                "train.jsonl",
                "--dataset",
                "out",
                "--tokens-per-step",
                "128",
            ],
        );
        let run = &report["runs"][0];
        (
            run["curriculum"]["reading_order"].clone(),
            run["warnings"].clone(),
        )
    };
    let table = || {
        folder.goodput(&[
            "measure",
            "--log",
            "train.jsonl",
            "--dataset",
            "out",
            "--tokens-per-step",
            "128",
        ])
    };
    let (found, _) = order((0..10).map(|at| line(at, 4 * at, true)).collect());
    assert_eq!(
        found,
        serde_json::json!({
            "lines_with_rows": 10, "lines_with_checksum": 10, "lines_that_differ": 0, "differences": []
        })
    );
    assert!(table().stdout.contains("yes: 10 step lines by their rows"));
    // A trainer that begins anew after a restart at its sixth line, without saying so.
    let (found, warnings) = order(
        (0..10)
            .map(|at| line(at, 4 * if at < 5 { at } else { at - 5 }, false))
            .collect(),
    );
    let first = &found["differences"][0];
    assert_eq!(
        (
            &first["kind"],
            &first["first_step"],
            &first["line"],
            &first["tokens_of_step"]
        ),
        (
            &Value::from("reads_again"),
            &Value::from(11),
            &Value::from("train.jsonl:6"),
            &Value::from(1)
        )
    );
    assert_eq!(found["lines_that_differ"], 5);
    assert!(
        warnings
            .to_string()
            .contains("did not read the rows in the order")
    );
    let shown = table().stdout;
    for part in [
        "no: 5 step lines",
        "first that reads rows again: train.jsonl:6 (steps 11 to 12)",
        "those of step 1",
    ] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    // One that leaves a shard out and says which rows it reads.
    let (found, _) = order(
        (0..5)
            .map(|at| line(at, 4 * at + if at < 2 { 0 } else { 32 }, true))
            .collect(),
    );
    let first = &found["differences"][0];
    assert_eq!(
        (
            &first["kind"],
            &first["first_step"],
            &first["due_row"],
            &first["told_row"]
        ),
        (
            &Value::from("skips"),
            &Value::from(5),
            &Value::from(8),
            &Value::from(40)
        )
    );
    // A log that tells nothing is not called ordered.
    let (found, _) = order((1..9).map(|at| step(10 * at, at, 128)).collect());
    assert_eq!(found, Value::Null);
    assert!(
        table()
            .stdout
            .contains("unknown: no step line tells what it read")
    );
}

#[test]
fn formats_and_published_figures_are_listed() {
    let folder = Folder::new();
    let formats = folder.goodput(&["measure", "--formats"]);
    assert_eq!(formats.code, Some(0));
    for kind in goodput::logs::TABLE {
        assert!(
            formats.stdout.contains(&format!("\n{}: ", kind.spec.name)),
            "{}",
            kind.spec.name
        );
    }
    assert!(!formats.stdout.contains('\u{fffd}') && !formats.stdout.contains('\u{1b}'));
    let published = folder.goodput(&["measure", "--published"]);
    assert!(published.stdout.contains("46.23 %") && published.stdout.contains("30.26 %"));
    let flagged = published
        .stdout
        .lines()
        .filter(|line| line.contains("published, not recomputable"));
    assert_eq!(flagged.count(), 2);
}

/// A training of ten steps of a model of a million parameters, with evaluations at its end.
struct Training {
    group: &'static str,
    seed: u64,
    /// Of a step.
    tokens: u64,
    /// Bits per byte.
    target: f64,
    general: f64,
}

/// UTF-8 bytes and tokens of both held-out texts.
const HELD_OUT: (u64, u64) = (420_000, 100_000);

impl Training {
    fn name(&self) -> String {
        format!("{}-{}-{}", self.group, self.tokens, self.seed)
    }

    /// Mean loss in nats a token.
    fn nats(bits_per_byte: f64) -> f64 {
        bits_per_byte * std::f64::consts::LN_2 * HELD_OUT.0 as f64 / HELD_OUT.1 as f64
    }

    fn log(&self) -> String {
        let mut log = "{\"ts\":0,\"kind\":\"job_start\",\"total_steps\":10}\n".to_string();
        for number in 1..=10 {
            let rate = 1e-3 * (11 - number) as f64 / 10.0;
            writeln!(
                log,
                "{}",
                json!({ "ts": 10 * number, "kind": "step", "step": number, "tokens": self.tokens, "loss": 3.0,
                        "dur_s": 10, "learning_rate": rate })
            )
            .expect("memory");
        }
        for (split, loss) in [("target", self.target), ("general", self.general)] {
            writeln!(
                log,
                "{}",
                json!({ "ts": 101, "kind": "eval", "step": 10, "split": split, "loss": Training::nats(loss),
                        "bytes": HELD_OUT.0, "tokens": HELD_OUT.1, "dur_s": 0.5 })
            )
            .expect("memory");
        }
        log
    }
}

/// The law of the baseline, in bits per byte, of compute in FLOP.
fn law(compute: f64) -> f64 {
    0.8 + 400.0 * compute.powf(-0.2)
}

/// What a seed does to a loss, and what is left of it between two runs of the same seed.
fn noise(seed: u64, run: u64) -> f64 {
    [0.004, -0.006, 0.002][seed as usize - 1]
        + [0.0004, -0.0003, -0.0001][((seed + run) % 3) as usize]
}

/// FLOP of a run with so many tokens a step.
fn compute(tokens: u64) -> f64 {
    6e6 * 10.0 * tokens as f64
}

/// Random at three budgets and three seeds, an arm that is worth 1.5 times the compute on the target and .8 times on
/// general text, and one that is worth no more.
fn arms() -> Vec<Training> {
    let mut runs = Vec::new();
    for tokens in [100_000, 200_000, 400_000] {
        for seed in 1..=3 {
            let general = law(compute(tokens)) + 0.3;
            runs.push(Training {
                group: "random",
                seed,
                tokens,
                target: law(compute(tokens)) + noise(seed, 0),
                general: general + noise(seed, 1),
            });
        }
    }
    for seed in 1..=3 {
        let tokens = 200_000;
        let at = |multiplier: f64| law(multiplier * compute(tokens));
        runs.push(Training {
            group: "selected",
            seed,
            tokens,
            target: at(1.5) + noise(seed, 1),
            general: at(0.8) + 0.3 + noise(seed, 2),
        });
        runs.push(Training {
            group: "same",
            seed,
            tokens,
            target: at(1.0) + noise(seed, 2),
            general: at(1.0) + 0.3 + noise(seed, 3),
        });
    }
    runs
}

/// Writes logs and a measure file with these sections and, of each run, more keys.
fn write_arms(
    folder: &Folder,
    runs: &[Training],
    sections: &str,
    more: &dyn Fn(&Training) -> String,
) {
    let mut file = format!(
        "version: 1\nname: arms\nmodel: {{ parameters: 1_000_000, flop_convention: six_n }}\n{sections}\nruns:\n"
    );
    for run in runs {
        let name = run.name();
        folder.write(&format!("{name}.jsonl"), run.log());
        writeln!(
            file,
            "  - {{ name: {name}, group: {}, seed: {}, logs: {name}.jsonl{} }}",
            run.group,
            run.seed,
            more(run)
        )
        .expect("memory");
    }
    folder.write("measure.yaml", file);
}

fn comparison<'a>(report: &'a Value, role: &str, group: &str) -> &'a Value {
    let sets = report["progress"]["sets"].as_array().expect("sets");
    let set = sets
        .iter()
        .find(|set| set["role"] == role && set["source"].is_null())
        .expect("always both");
    let comparisons = set["comparisons"].as_array().expect("a list");
    comparisons
        .iter()
        .find(|found| found["group"] == group)
        .unwrap_or_else(|| panic!("'{group}' on {role}: {}", report["progress"]))
}

fn interval(comparison: &Value) -> (f64, f64) {
    let end = |at: usize| comparison["interval"][at].as_f64().expect("an interval");
    (end(0), end(1))
}

fn sentences(report: &Value, kind: &str) -> String {
    let found = report["progress"][kind].as_array().expect("a list");
    let texts: Vec<&str> = found
        .iter()
        .map(|text| text.as_str().expect("a sentence"))
        .collect();
    texts.join("\n")
}

const PROGRESS: &str = "progress: { baseline: random }";

#[test]
fn an_arm_of_known_worth_is_found_and_one_without_says_what_it_could_have_seen() {
    let folder = Folder::new();
    // A tenth of the 1.2e13 FLOP of training went into the selection.
    let selection = |run: &Training| match run.group {
        "selected" => {
            ", selection: { core_seconds: 4, flop_per_core_second: 2.5e11, flop: 2e11 }".to_string()
        }
        _ => String::new(),
    };
    let sections = format!(
        "{PROGRESS}\nhardware: {{ chips: 1, peak_teraflops: 0.4, price_per_chip_hour: 2 }}"
    );
    write_arms(&folder, &arms(), &sections, &selection);
    let report = measured(&folder, &["measure.yaml"]);
    let mut seen = BTreeSet::new();
    check(
        &goodput::measure::report_schema(),
        &report,
        "report",
        &mut seen,
    );
    assert!(
        seen.contains("report.progress.sets[].comparisons[].interval"),
        "{seen:?}"
    );

    let selected = comparison(&report, "target", "selected");
    let (lower, upper) = interval(selected);
    assert!(
        lower < 1.5 && 1.5 < upper && lower > 1.3 && upper < 1.7,
        "{selected}"
    );
    assert_eq!(selected["verdict"], "more");
    assert_eq!(selected["pairs"].as_array().map(Vec::len), Some(3));
    let multiplier = selected["multiplier"].as_f64().expect("m");
    let net = selected["net_multiplier"].as_f64().expect("net");
    assert!(
        (net / multiplier - 1.2e13 / 1.32e13).abs() < 1e-12,
        "{selected}"
    );
    // 2e5 tokens in 10 s of 6e6 FLOP: .3 of the peak; 100 of 101 s are productive.
    let delivered = selected["delivered_mfu"].as_f64().expect("a peak");
    assert!((delivered - 0.3 * 100.0 / 101.0).abs() < 1e-9, "{selected}");
    let overall = selected["overall_goodput"].as_f64().expect("G");
    assert!((overall - delivered * net).abs() < 1e-12);
    let general = comparison(&report, "general", "selected");
    let (lower, upper) = interval(general);
    assert!(lower < 0.8 && 0.8 < upper, "{general}");
    assert_eq!(general["verdict"], "less");

    for role in ["target", "general"] {
        let same = comparison(&report, role, "same");
        let (lower, upper) = interval(same);
        assert!(lower < 1.0 && 1.0 < upper, "{same}");
        assert_eq!(same["verdict"], "cannot_tell");
        let least = same["minimum_detectable_multiplier"]
            .as_f64()
            .expect("given");
        assert!(least > 1.0 && least < 1.1, "{same}");
    }
    // Two comparisons of the set: the smaller p-value counts twice.
    let p = |of: &Value, key: &str| of[key].as_f64().expect("a p-value");
    assert!((p(selected, "holm_p_value") / p(selected, "p_value") - 2.0).abs() < 1e-9);
    let same = comparison(&report, "target", "same");
    assert_eq!(p(same, "holm_p_value"), p(same, "p_value"));

    // A run of the baseline stands on its own curve: 1.2e13 FLOP, and 101 s at 2 an hour for it.
    let runs = report["progress"]["sets"][0]["runs"]
        .as_array()
        .expect("runs");
    let base = runs
        .iter()
        .find(|run| run["run"] == "random-200000-1")
        .expect("used");
    let progress = base["progress"].as_f64().expect("on the curve");
    assert!((progress / 1.2e13 - 1.0).abs() < 0.05, "{base}");
    let cost = base["cost_per_exaflop_of_progress"]
        .as_f64()
        .expect("a price");
    assert!((cost - 2.0 * 101.0 / 3600.0 / (progress / 1e18)).abs() < 1e-6 * cost);

    let table = folder.goodput(&["measure", "measure.yaml"]);
    for part in [
        "progress beside 'random', by flop; curve: interpolated",
        "target ('target', 420,000 bytes)",
        "baseline at 1.2000e13",
        "concluded: 'selected' at 1.2000e13 FLOP on target text came as far as 'random' does with 1.",
        "not concluded: 'same' at 1.2000e13 FLOP on target text: no difference from 'random' is shown",
        "least m that would be found",
        "overall goodput G",
        "with the cost of selection",
    ] {
        assert!(table.stdout.contains(part), "{part} in\n{}", table.stdout);
    }
    let again = folder.goodput(&["measure", "measure.yaml"]);
    assert_eq!(again.stdout, table.stdout);
}

#[test]
fn laws_and_tokens_give_the_same_multiplier_as_the_curve() {
    let folder = Folder::new();
    let mut runs = arms();
    for tokens in [50_000, 800_000] {
        let loss = law(compute(tokens));
        let one = |seed| Training {
            group: "random",
            seed,
            tokens,
            target: loss + noise(seed, 0),
            general: loss + 0.3 + noise(seed, 1),
        };
        runs.extend((1..=3).map(one));
    }
    for sections in [
        "progress: { baseline: random, curve: power_law }",
        "progress: { baseline: random, curve: power_law, budget: tokens }",
        "progress: { baseline: random, budget: tokens }",
    ] {
        write_arms(&folder, &runs, sections, &|_| String::new());
        let report = measured(&folder, &["measure.yaml"]);
        let selected = comparison(&report, "target", "selected");
        let multiplier = selected["multiplier"].as_f64().expect("m");
        // A law that is fitted to noise has a slope of its own.
        assert!(
            (multiplier / 1.5 - 1.0).abs() < 0.03,
            "{sections}: {selected}"
        );
        assert_eq!(selected["verdict"], "more");
        let curve = &report["progress"]["sets"][0]["curve"];
        if sections.contains("power_law") {
            let exponent = curve["exponent"].as_f64().expect("a law");
            assert!((exponent - 0.2).abs() < 0.05, "{curve}");
            let floor = curve["floor"].as_f64().expect("a law");
            assert!((floor - 0.8).abs() < 0.2, "{curve}");
        }
    }
    write_arms(
        &folder,
        &runs,
        "progress: { baseline: random, curve: frontier }",
        &|_| String::new(),
    );
    let report = measured(&folder, &["measure.yaml"]);
    assert!(
        sentences(&report, "not_concluded").contains("a frontier needs 6 runs with three sizes"),
        "{}",
        report["progress"]
    );
}

#[test]
fn a_frontier_over_models_of_several_sizes_is_the_golden_one() {
    let folder = Folder::new();
    let mut file =
        "version: 1\nname: sizes\nprogress: { baseline: base, curve: frontier }\nruns:\n"
            .to_string();
    let mut write = |name: &str, group: &str, size: f64, tokens: f64, lower: f64| {
        let loss = 1.8172 + 482.01 * size.powf(-0.3478) + 2085.43 * tokens.powf(-0.3658) - lower;
        let log = Training {
            group: "base",
            seed: 1,
            tokens: (tokens / 10.0) as u64,
            target: loss,
            general: loss,
        }
        .log();
        folder.write(&format!("{name}.jsonl"), log);
        writeln!(
            file,
            "  - {{ name: {name}, group: {group}, logs: {name}.jsonl, \
             model: {{ parameters: {size}, flop_convention: six_n }} }}"
        )
        .expect("memory");
    };
    let mut number = 0;
    for size in [50_000_000.0, 200_000_000.0, 800_000_000.0, 3_200_000_000.0] {
        for ratio in [5.0, 20.0, 80.0] {
            number += 1;
            write(&format!("b{number}"), "base", size, ratio * size, 0.0);
        }
    }
    write("c", "better", 800_000_000.0, 16_000_000_000.0, 0.02);
    folder.write("measure.yaml", file);
    let report = measured(&folder, &["measure.yaml"]);
    let curve = &report["progress"]["sets"][0]["curve"];
    let near = |value: &Value, expected: f64| {
        let found = value.as_f64().expect("a number");
        assert!(
            (found / expected - 1.0).abs() < 1e-3,
            "{found} is not {expected} in {curve}"
        );
    };
    near(&curve["floor"], 1.8172);
    near(&curve["exponent"], 0.178286);
    near(&curve["coefficient"], 2708.4975);
    near(&curve["terms"][0]["coefficient"], 482.01);
    near(&curve["terms"][1]["exponent"], 0.3658);
    assert_eq!(
        comparison(&report, "target", "better")["verdict"],
        "no_interval"
    );
}

#[test]
fn what_cannot_be_compared_is_refused_with_the_way_out() {
    let folder = Folder::new();
    let told = |runs: &[Training], change: &dyn Fn(&Training, String) -> String| {
        write_arms(&folder, runs, PROGRESS, &|_| String::new());
        for run in runs {
            folder.write(&format!("{}.jsonl", run.name()), change(run, run.log()));
        }
        let report = measured(&folder, &["measure.yaml"]);
        (sentences(&report, "not_concluded"), report)
    };
    let of_selected = |run: &Training| run.group == "selected" && run.seed == 1;
    type Change<'a> = &'a dyn Fn(&Training, String) -> String;
    let cases: [(Change<'_>, &[&str]); 7] = [
        (
            &|run, log| match of_selected(run) {
                true => log.replace("\"total_steps\":10", "\"total_steps\":2000"),
                false => log,
            },
            &[
                "run 'selected-200000-1' is not compared on target: it ends at step 10 of 2000",
                "train it to its end",
            ],
        ),
        (
            &|run, log| match of_selected(run) {
                true => log.replace(
                    "\"kind\":\"eval\"",
                    "\"kind\":\"eval\",\"tag\":\"weighted\"",
                ),
                false => log,
            },
            &[
                "its loss on 'target' is weighted (selected-200000-1.jsonl:12), and only unweighted loss counts",
            ],
        ),
        (
            &|run, log| match of_selected(run) {
                true => log.replace("420000", "410000"),
                false => log,
            },
            &[
                "evaluated on other text than run 'random-100000-1': 410000 bytes where that has 420000",
            ],
        ),
        (
            &|run, log| {
                let set = if of_selected(run) { "beef" } else { "cafe" };
                log.replace(
                    "\"kind\":\"eval\"",
                    &format!("\"kind\":\"eval\",\"tag\":\"dataset={set}\""),
                )
            },
            &["dataset beef where that has cafe; evaluate both on the same text"],
        ),
        (
            &|run, log| match of_selected(run) {
                true => log.replace("\"learning_rate\":0.001,", "\"learning_rate\":0.002,"),
                false => log,
            },
            &[
                "have different schedules (peak learning rate 2.0000e-3 and 1.0000e-3)",
                "2 pairs say little",
            ],
        ),
        (
            &|run, log| match of_selected(run) {
                true => log.replace(
                    "\"kind\":\"eval\",\"loss\":",
                    "\"kind\":\"eval\",\"loss\":NaN,\"was\":",
                ),
                false => log,
            },
            &["its loss on 'target' is no number (selected-200000-1.jsonl:12)"],
        ),
        (
            &|_, log| log.replace("\"general\"", "\"web\""),
            &[
                "nothing is known on the general set: no run evaluates on 'general' (the logs have target, web)",
            ],
        ),
    ];
    for (change, expected) in cases {
        let (said, _) = told(&arms(), change);
        for part in expected {
            assert!(said.contains(part), "{part} in\n{said}");
        }
    }
    let none = |_: &Training, log: String| log;
    let one_seed: Vec<Training> = arms().into_iter().filter(|run| run.seed == 1).collect();
    let (said, report) = told(&one_seed, &none);
    assert!(
        said.contains(
            "without an interval, which shows nothing: one pair says nothing of the spread"
        ),
        "{said}"
    );
    assert!(said.contains("train 3 or more seeds of both"), "{said}");
    assert!(comparison(&report, "target", "selected")["interval"].is_null());
    assert_eq!(sentences(&report, "concluded"), "");

    let two_budgets: Vec<Training> = arms()
        .into_iter()
        .filter(|run| run.tokens != 100_000)
        .collect();
    let (said, _) = told(&two_budgets, &none);
    assert!(
        said.contains("the curve of 'random' needs 3 budgets, but 2 can be used"),
        "{said}"
    );

    let mut far = arms();
    far.iter_mut().for_each(|run| {
        if run.group == "selected" {
            run.target = law(2.2 * compute(400_000));
        }
    });
    let (said, _) = told(&far, &none);
    assert!(
        said.contains(
            "more than 2 times its largest budget, 2.4000e13; train the baseline further"
        ),
        "{said}"
    );
}

#[test]
fn lower_weighted_loss_is_no_progress() {
    let folder = Folder::new();
    let mut runs = arms();
    runs.iter_mut()
        .filter(|run| run.group == "selected")
        .for_each(|run| run.target += 0.1);
    write_arms(&folder, &runs, PROGRESS, &|_| String::new());
    for run in runs.iter().filter(|run| run.group == "selected") {
        let weighted = json!({ "ts": 101, "kind": "eval", "step": 10, "split": "target", "loss": 0.5, "bytes": 420_000,
                               "tokens": 100_000, "tag": "weighted" });
        folder.write(
            &format!("{}.jsonl", run.name()),
            run.log() + &format!("{weighted}\n"),
        );
    }
    let report = measured(&folder, &["measure.yaml"]);
    assert_eq!(comparison(&report, "target", "selected")["verdict"], "less");
}

#[test]
fn parts_of_a_held_out_set_by_source_add_up_and_are_compared_alone() {
    let folder = Folder::new();
    let runs = arms();
    write_arms(&folder, &runs, PROGRESS, &|_| String::new());
    for run in &runs {
        let mut log = run
            .log()
            .replace("\"split\":\"target\"", "\"split\":\"other\"");
        // Two parts around the whole, of which the larger is the easier one.
        for (source, bytes, tokens, more) in [
            ("web", 300_000, 70_000, -0.04),
            ("code", 120_000, 30_000, 0.1),
        ] {
            let nats =
                (run.target + more) * std::f64::consts::LN_2 * f64::from(bytes) / f64::from(tokens);
            let line = json!({ "ts": 101, "kind": "eval", "step": 10, "split": "target", "loss": nats, "bytes": bytes,
                               "tokens": tokens, "tag": format!("source={source}") });
            writeln!(log, "{line}").expect("memory");
        }
        folder.write(&format!("{}.jsonl", run.name()), log);
    }
    let report = measured(&folder, &["measure.yaml"]);
    let sets = report["progress"]["sets"].as_array().expect("sets");
    let sources: Vec<&Value> = sets.iter().map(|set| &set["source"]).collect();
    assert_eq!(
        sources,
        [&Value::Null, &json!("code"), &json!("web"), &Value::Null]
    );
    assert_eq!(sets[0]["bytes"], 420_000);
    let run = &sets[0]["runs"][0];
    // (300,000 x -.04 + 120,000 x .1) / 420,000 = 0
    let found = run["bits_per_byte"].as_f64().expect("a loss");
    assert!((found - runs[0].target).abs() < 1e-9, "{run}");
    for set in &sets[1..3] {
        let selected = set["comparisons"].as_array().expect("a list");
        assert!(
            selected
                .iter()
                .any(|found| found["group"] == "selected" && found["verdict"] == "more"),
            "{set}"
        );
    }
}

#[test]
fn a_state_file_without_times_still_gives_progress() {
    let folder = Folder::new();
    let runs = arms();
    write_arms(
        &folder,
        &runs,
        "progress: { baseline: random, target_bytes_per_token: 4.2, general_bytes_per_token: 4.2 }",
        &|run| format!(", tokens_per_step: {}", run.tokens),
    );
    for run in &runs {
        let mut history: Vec<Value> = (1..=10)
            .map(|step| json!({ "step": step, "loss": 3.0, "learning_rate": 1e-3 * (10 - step) as f64 / 10.0 }))
            .collect();
        history.push(json!({ "step": 10, "eval_target_loss": Training::nats(run.target), "eval_runtime": 1.0 }));
        history.push(json!({ "step": 10, "eval_general_loss": Training::nats(run.general), "eval_runtime": 1.0 }));
        let state = json!({ "log_history": history, "max_steps": 10 });
        folder.write(&format!("{}.jsonl", run.name()), state.to_string());
    }
    let report = measured(&folder, &["measure.yaml"]);
    assert!(report["runs"][0]["time"].is_null());
    assert_eq!(report["runs"][0]["training"]["schedule"], "finished");
    let (lower, upper) = interval(comparison(&report, "target", "selected"));
    assert!(lower < 1.5 && 1.5 < upper, "{lower} to {upper}");
    write_arms(&folder, &[], PROGRESS, &|_| String::new());
    let text = std::fs::read_to_string(folder.path("measure.yaml")).expect("written");
    folder.write(
        "measure.yaml",
        text.replace(
            "runs:\n",
            "runs: [{ name: random, logs: random-100000-1.jsonl }]\n",
        ),
    );
    folder.write("random-100000-1.jsonl", json!({ "log_history": [
        { "step": 1, "loss": 3.0 }, { "step": 2, "loss": 2.9 }, { "step": 2, "eval_target_loss": 2.8 }
    ] }).to_string());
    let report = measured(&folder, &["measure.yaml"]);
    let said = sentences(&report, "not_concluded");
    assert!(
        said.contains(
            "nats a token cannot become bits per byte; write both, or give 'target_bytes_per_token'"
        ),
        "{said}"
    );
}

#[test]
fn a_dataset_that_is_read_again_is_worth_less_and_its_making_is_charged() {
    let folder = Folder::new();
    let mut numbers = Numbers(11);
    let texts: Vec<String> = (0..40).map(|_| numbers.words(30)).collect();
    folder.documents("in.jsonl", &texts);
    folder.pipeline("pack: { method: concat, sequence_tokens: 64 }\n");
    assert_eq!(
        folder.goodput(&["run", "p.yaml", "--progress", "off"]).code,
        Some(0)
    );
    let positions = folder.out("out").rows().len() as u64 * 64;
    // Four epochs in four steps.
    let log: String = (1..=4)
        .map(|number| step(10 * number, number, positions))
        .collect();
    folder.write("train.jsonl", log);
    folder.write(
        "measure.yaml",
        "version: 1\nname: a\ndataset: { path: out, epochs: 4 }\nselection: { flop_per_core_second: 1e10, flop: 7 }\n\
         runs: [{ name: a, logs: train.jsonl }]\n",
    );
    let report = measured(&folder, &["measure.yaml"]);
    let run = &report["runs"][0];
    let effective = run["dataset"]["effective_positions"]
        .as_f64()
        .expect("known");
    assert!(
        (effective / positions as f64 - 3.725673).abs() < 1e-6,
        "{run}"
    );
    let record: Value = serde_json::from_str(
        &std::fs::read_to_string(folder.path("out/run.json")).expect("written"),
    )
    .expect("JSON");
    let core_seconds = record["core_seconds"].as_f64().expect("a time");
    assert_eq!(
        run["selection"],
        json!({ "core_seconds": core_seconds, "core_seconds_are_of": "run.json", "flop_per_core_second": 1e10,
                "flop": core_seconds * 1e10 + 7.0 })
    );
    let table = folder.goodput(&["measure", "measure.yaml"]);
    assert!(
        table.stdout.contains("read 4.0000 times, worth"),
        "{}",
        table.stdout
    );
}

#[test]
fn wrong_words_about_progress_are_refused_with_their_place() {
    let folder = Folder::new();
    let with = |progress: &str| {
        folder.write(
            "measure.yaml",
            format!("version: 1\nname: a\nprogress: {progress}\nruns: [{{ name: x, group: b, logs: y }}]\n"),
        );
        folder.goodput(&["measure", "measure.yaml"])
    };
    with("{ baseline: random }").refuses(&[
        "measure.yaml:3:",
        "'baseline' must be the group of a run, got 'random'; groups are b",
    ]);
    with("{ curve: power_law }").refuses(&["'progress' needs 'baseline'"]);
    with("{ baseline: b, curve: frontier, budget: tokens }")
        .refuses(&["'budget' must be flop where 'curve' is frontier"]);
    with("{ baseline: b, curve: spline }").refuses(&["'curve' must be"]);
    with("{ baseline: b, target_bytes_per_token: .nan }")
        .refuses(&["'target_bytes_per_token' must be"]);
}
