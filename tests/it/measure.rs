//! `goodput measure` as a user meets it: files, flags, refusals, both forms of the result.

use crate::support::{Folder, Numbers};
use serde_json::Value;

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
