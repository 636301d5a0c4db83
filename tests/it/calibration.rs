//! What usefulness is measured against: domains of the reference, pilot runs, and the pages that show it.

use crate::support::{Folder, Numbers, Ran};
use arrow::array::{ArrayRef, Float32Builder, ListBuilder, StringArray};
use arrow::record_batch::RecordBatch;
use goodput::shard::{ReadRejects, ReadShard};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Two sources of two kinds, noise in both, and a reference whose documents say which kind they are.
fn tagged(score: &str) -> Folder {
    let folder = Folder::new();
    let mut numbers = Numbers(8);
    let mut texts = |kind: &str, n: usize| -> Vec<String> {
        (0..n)
            .map(|at| match (kind, at % 4) {
                (_, 3) => (0..150)
                    .map(|_| char::from(33 + numbers.below(90) as u8))
                    .collect(),
                ("web", _) => format!("<b>see & say</b> “{}” naïve €uro", numbers.words(12)),
                _ => format!(
                    "It was in the book of the house that {} was said.",
                    numbers.words(15)
                ),
            })
            .collect()
    };
    let (web, books) = (texts("web", 24), texts("books", 24));
    let mut reference = String::new();
    for (kind, n) in [("web", 30), ("books", 30), ("laws", 3)] {
        for text in texts(kind, n) {
            reference += &(json!({ "text": text, "about": { "kind": kind } }).to_string() + "\n");
        }
    }
    reference += &(json!({ "text": "nobody says what this is about, and it is about nothing" })
        .to_string()
        + "\n");
    folder.documents("web.jsonl", &web);
    folder.documents("books.jsonl", &books);
    folder.write("reference.jsonl", reference);
    folder.pipeline(&sections(score, ""));
    folder
}

fn sections(score: &str, output: &str) -> String {
    format!(
        "inputs:\n  - {{ path: web.jsonl, source: web }}\n  - {{ path: books.jsonl, source: books }}\nstages:\n  \
         - score: {{ estimator: ngram_excess, reference: reference.jsonl{score} }}\n  \
         - select: {{ keep_share_of_tokens: 0.7, by: score }}\n\
         pack: {{ method: concat, sequence_tokens: 97 }}\noutput: {{ path: out{output} }}\n"
    )
}

const BY_KIND: &str = ", reference_domain: about.kind, min_domain_tokens: 1000";

fn near(found: &Value, expected: f64) {
    let found = found
        .as_f64()
        .unwrap_or_else(|| panic!("{found} is no number"));
    assert!(
        (found - expected).abs() <= 1e-9 * expected.abs().max(1.0),
        "{found} {expected}"
    );
}

#[test]
fn tokens_are_measured_against_reference_text_of_their_own_domain() {
    let folder = tagged(BY_KIND);
    folder.run_and_verify();
    let out = folder.out("out");
    let (audit, manifest) = (out.json("audit.json"), out.json("manifest.json"));
    let fitted = &manifest["estimator"]["fitted"];
    let own = fitted["u_ref_by_domain"].as_object().expect("by domain");
    // Laws have too few tokens, and nobody's document has no domain.
    assert_eq!(own.keys().collect::<Vec<_>>(), ["books", "web"]);
    assert_eq!(
        audit["usefulness"]["u_ref_by_domain"],
        fitted["u_ref_by_domain"]
    );
    for name in ["tau_nats", "s_nats", "c95_nats", "c999_nats", "u_ref"] {
        assert!(fitted[name].is_number(), "{name}");
    }
    let u_ref = |source: &str| own[source].as_f64().expect("a number");
    assert!(u_ref("web") != u_ref("books"));

    // The sums again, from rows as they are written.
    let (mut of_source, mut of_part) = (BTreeMap::<String, f64>::new(), vec![(0u64, 0.0); 10]);
    let all = audit["emitted"]["positions"].as_u64().expect("a count");
    let mut place = 0u64;
    for row in out.rows() {
        let usefulness = row.usefulness.expect("scored");
        for segment in &row.segments {
            let start = segment.row_start.expect("packed") as usize;
            let tokens = segment.tokens.expect("packed") as usize;
            for (at, &u) in usefulness.iter().enumerate().skip(start).take(tokens) {
                let worth = f64::from(u) / u_ref(&segment.source);
                *of_source.entry(segment.source.clone()).or_default() += worth;
                let here = place + at as u64;
                let part = (0..10)
                    .rfind(|part| all * part / 10 <= here)
                    .expect("a part") as usize;
                of_part[part].0 += 1;
                of_part[part].1 += worth;
            }
        }
        place += row.input_ids.len() as u64;
    }
    let usefulness = &audit["usefulness"];
    let near = |found: &Value, expected: f64| {
        // Bytes are read back as f32, which the ledger does not go through.
        let found = found.as_f64().expect("a number");
        assert!((found / expected - 1.0).abs() < 1e-6, "{found} {expected}");
    };
    let total: f64 = of_source.values().sum();
    near(&usefulness["reference_equivalent_tokens"], total);
    near(&usefulness["data_goodput"], total / all as f64);
    for row in usefulness["by_source"].as_array().expect("rows") {
        let worth = of_source[row["source"].as_str().expect("a name")];
        near(&row["reference_equivalent_tokens"], worth);
        near(
            &row["data_goodput"],
            worth / row["tokens"].as_f64().expect("a count"),
        );
    }
    let parts = usefulness["curriculum"].as_array().expect("rows");
    assert_eq!(parts.len(), 10);
    let mut next = 0;
    for (part, (tokens, worth)) in parts.iter().zip(of_part) {
        assert_eq!(part["first_position"], next);
        next += part["positions"].as_u64().expect("a count");
        assert_eq!(part["tokens"], tokens);
        near(&part["reference_equivalent_tokens"], worth);
        near(
            &part["data_goodput"],
            worth / part["positions"].as_f64().expect("a count"),
        );
    }
    assert_eq!(next, all);
    let mut rejected = BTreeMap::<String, f64>::new();
    ReadRejects::open(&out.path.join("rejects/part-00000.parquet"))
        .expect("rejects")
        .rows(&mut |row| {
            let sum: f64 = row
                .usefulness
                .expect("scored")
                .iter()
                .map(|&u| f64::from(u))
                .sum();
            *rejected.entry(row.source.to_string()).or_default() += sum / u_ref(row.source);
            true
        })
        .expect("readable");
    let rows = usefulness["rejected"].as_array().expect("rows");
    assert_eq!(rows.len(), rejected.len());
    for row in rows {
        assert_eq!(
            (&row["stage"], &row["reason"]),
            (&json!("select"), &json!("below_share"))
        );
        near(
            &row["reference_equivalent_tokens"],
            rejected[row["source"].as_str().expect("a name")],
        );
    }
    let table = folder.goodput(&["audit", "out"]).stdout;
    assert!(
        table.contains("reference-equivalent") && table.contains("tenth by tenth"),
        "{table}"
    );
}

#[test]
fn a_declared_field_names_the_domain_and_what_cannot_be_one_is_refused() {
    let folder = tagged("");
    folder.run(&[]);
    let plain = folder.out("out").json("audit.json");
    let usefulness = &plain["usefulness"];
    assert!(usefulness.get("u_ref_by_domain").is_none());
    let sum =
        usefulness["sum"].as_f64().expect("a sum") / usefulness["u_ref"].as_f64().expect("u_ref");
    near(&usefulness["reference_equivalent_tokens"], sum);

    let fields = |score: &str| {
        sections(score, "").replace(
            "source: web }",
            "source: web, fields: { kind: string, size: int } }",
        )
    };
    for (score, words) in [
        (", domain: books", &["'domain'", "reference_domain"][..]),
        (
            ", reference_domain: about.kind, domain: size",
            &["'domain'", "string", "'size'"],
        ),
        (
            ", reference_domain: about.kind, domain: nowhere",
            &["'domain'", "'nowhere'"],
        ),
    ] {
        folder.pipeline_at("wrong.yaml", &fields(score));
        folder.goodput(&["check", "wrong.yaml"]).refuses(words);
    }
    let itself = sections("", "").replace(
        "reference: reference.jsonl",
        "reference: self, reference_domain: kind",
    );
    folder.pipeline_at("wrong.yaml", &itself);
    folder
        .goodput(&["check", "wrong.yaml"])
        .refuses(&["'reference_domain'", "self"]);

    // Every document of one source says that it is of the other's kind.
    let text = std::fs::read_to_string(folder.path("web.jsonl")).expect("written");
    folder.write(
        "web.jsonl",
        text.replace("{\"text\"", "{\"kind\":\"books\",\"text\""),
    );
    let score = format!("{BY_KIND}, domain: kind");
    folder.pipeline(
        &sections(&score, "").replace("source: web }", "source: web, fields: { kind: string } }"),
    );
    folder.run(&["--out", "other"]);
    folder.verify("other");
    let audit = folder.out("other").json("audit.json");
    let usefulness = &audit["usefulness"];
    for row in usefulness["by_source"].as_array().expect("rows") {
        // Documents without a domain are measured against all reference text.
        let u_ref = match row["source"].as_str() {
            Some("web") => &usefulness["u_ref_by_domain"]["books"],
            _ => &usefulness["u_ref"],
        };
        let sum = row["sum_255"].as_f64().expect("a sum") / 255.0;
        near(
            &row["reference_equivalent_tokens"],
            sum / u_ref.as_f64().expect("a number"),
        );
    }
}

/// Bytes of usefulness of every scored document, kept or rejected.
fn scored(folder: &Folder) -> BTreeMap<String, Vec<u8>> {
    let byte = |u: &f32| (u * 255.0).round() as u8;
    let mut documents: BTreeMap<String, BTreeMap<u32, Vec<u8>>> = BTreeMap::new();
    let out = folder.out("out");
    for row in out.rows() {
        let usefulness = row.usefulness.expect("scored");
        for segment in row.segments {
            let start = segment.row_start.expect("packed") as usize;
            let end = start + segment.tokens.expect("packed") as usize;
            documents.entry(segment.doc_id).or_default().insert(
                segment.doc_token_start,
                usefulness[start..end].iter().map(byte).collect(),
            );
        }
    }
    ReadRejects::open(&out.path.join("rejects/part-00000.parquet"))
        .expect("rejects")
        .rows(&mut |row| {
            let bytes = row.usefulness.expect("scored").iter().map(byte).collect();
            documents
                .entry(row.doc_id.to_string())
                .or_default()
                .insert(0, bytes);
            true
        })
        .expect("readable");
    documents
        .into_iter()
        .map(|(id, parts)| (id, parts.into_values().flatten().collect()))
        .collect()
}

/// Id, early losses, late losses.
type Row = (String, Vec<f32>, Vec<f32>);
type Losses = Vec<Row>;

fn write_losses(folder: &Folder, name: &str, losses: &Losses, fingerprint: Option<&str>) {
    let lists = |of: fn(&Row) -> &Vec<f32>| -> ArrayRef {
        let mut builder = ListBuilder::new(Float32Builder::new());
        for row in losses {
            builder.values().append_slice(of(row));
            builder.append(true);
        }
        Arc::new(builder.finish())
    };
    let ids: ArrayRef = Arc::new(StringArray::from_iter_values(
        losses.iter().map(|row| &row.0),
    ));
    let batch = RecordBatch::try_from_iter([
        ("doc_id", ids),
        ("loss_early", lists(|row| &row.1)),
        ("loss_late", lists(|row| &row.2)),
    ])
    .expect("columns");
    folder.write(name, "");
    let pairs = fingerprint.map(|found| {
        vec![KeyValue::new(
            "goodput.tokenizer_fingerprint".to_string(),
            found.to_string(),
        )]
    });
    let properties = WriterProperties::builder()
        .set_key_value_metadata(pairs)
        .build();
    let file = std::fs::File::create(folder.path(name)).expect("a file");
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), Some(properties))
        .expect("a writer");
    writer.write(&batch).expect("written");
    writer.close().expect("written");
}

/// The loss falls by twice the usefulness above a fifth, and by nothing below.
fn falls_by(byte: u8) -> f32 {
    (2.0 * (f32::from(byte) / 255.0 - 0.2)).max(0.0)
}

fn losses(folder: &Folder) -> Losses {
    scored(folder)
        .into_iter()
        .map(|(id, bytes)| {
            let late: Vec<f32> = bytes.iter().map(|byte| 1.0 + f32::from(byte % 7)).collect();
            let early = late
                .iter()
                .zip(&bytes)
                .map(|(late, byte)| late + falls_by(*byte))
                .collect();
            (id, early, late)
        })
        .collect()
}

fn calibrate(folder: &Folder, file: &str) -> Ran {
    folder.goodput(&[
        "calibrate",
        "out",
        "--losses",
        file,
        "--pilot",
        "pilot-7",
        "--output",
        "calibration.json",
    ])
}

#[test]
fn a_pilot_run_calibrates_and_the_shards_name_it() {
    let folder = tagged("");
    folder.run(&[]);
    let all = losses(&folder);
    assert_eq!(all.len(), 48, "kept and rejected");
    let fingerprint = folder.out("out").manifest().tokenizer.fingerprint;
    write_losses(&folder, "pilot.parquet", &all, Some(&fingerprint));
    let ran = calibrate(&folder, "pilot.parquet");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert!(ran.stdout.contains("expected calibration error") && ran.stdout.contains("pilot-7"));
    let text = std::fs::read_to_string(folder.path("calibration.json")).expect("written");
    let found: Value = serde_json::from_str(&text).expect("JSON");
    let halves =
        ["fitted", "checked"].map(|half| found[half]["documents"].as_u64().expect("a count"));
    assert!(
        halves.iter().sum::<u64>() == 48 && halves.iter().all(|half| *half > 10),
        "{halves:?}"
    );
    let tokens: usize = all.iter().map(|row| row.1.len()).sum();
    let checked: u64 = found["reliability"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| row["tokens"].as_u64().expect("a count"))
        .sum();
    assert_eq!(
        found["fitted"]["tokens"].as_u64().expect("a count") + checked,
        tokens as u64
    );
    let error = found["expected_calibration_error_nats"]
        .as_f64()
        .expect("a number");
    assert!(error < 0.01, "{error}");
    // The curve is what the losses were made from.
    let scale = found["scale_nats"].as_f64().expect("a number");
    let curve: Vec<f64> = found["usefulness"]
        .as_array()
        .expect("a curve")
        .iter()
        .map(|v| v.as_f64().expect("a number"))
        .collect();
    let mut seen = [false; 256];
    scored(&folder)
        .values()
        .flatten()
        .for_each(|byte| seen[usize::from(*byte)] = true);
    assert!(seen.iter().filter(|seen| **seen).count() > 50);
    let far = (0..=255u8)
        .filter(|byte| seen[usize::from(*byte)])
        .filter(|byte| {
            (curve[usize::from(*byte)] * scale - f64::from(falls_by(*byte))).abs() > 0.03
        })
        .count();
    assert!(far <= 5, "{far}");

    // The other half of the losses in another order gives the same bytes.
    let mut turned = all.clone();
    turned.reverse();
    write_losses(&folder, "turned.parquet", &turned, None);
    assert_eq!(calibrate(&folder, "turned.parquet").code, Some(0));
    let again: Value = serde_json::from_str(
        &std::fs::read_to_string(folder.path("calibration.json")).expect("written"),
    )
    .expect("JSON");
    for key in [
        "usefulness",
        "scale_nats",
        "reliability",
        "fitted",
        "checked",
    ] {
        assert_eq!(found[key], again[key], "{key}");
    }

    folder.write("calibration.json", &text);
    let run = folder.goodput(&[
        "run",
        "p.yaml",
        "--out",
        "calibrated",
        "--progress",
        "off",
        "--set",
        "stages.score.calibration=calibration.json",
    ]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let out = folder.out("calibrated");
    let fitted = out.json("manifest.json")["estimator"]["fitted"].clone();
    assert_eq!(fitted["calibration"], "isotonic, pilot run 'pilot-7'");
    near(&fitted["calibration_scale_nats"], scale);
    let shard = ReadShard::open(&out.shards()[0]).expect("a shard");
    assert_eq!(
        shard.metadata["goodput.calibration"],
        "isotonic, pilot run 'pilot-7'"
    );
    assert_eq!(
        out.json("audit.json")["usefulness"]["calibration"],
        "isotonic, pilot run 'pilot-7'"
    );
    // The reference is measured by the same curve, which here takes away from everything.
    let before = folder.out("out").json("manifest.json")["estimator"]["fitted"]["u_ref"]
        .as_f64()
        .expect("a number");
    assert!(fitted["u_ref"].as_f64().expect("a number") != before);
    // Every token went through the curve.
    let uncalibrated: BTreeMap<String, Vec<u8>> = scored(&folder);
    let mut compared = 0;
    for row in out.rows() {
        let usefulness = row.usefulness.expect("scored");
        for segment in row.segments {
            let start = segment.row_start.expect("packed") as usize;
            for at in 0..segment.tokens.expect("packed") as usize {
                let byte = uncalibrated[&segment.doc_id][segment.doc_token_start as usize + at];
                // The byte stands for a little less or more, which the slope multiplies.
                let neighbours = [byte.saturating_sub(1), byte, byte.saturating_add(1)]
                    .map(|b| curve[usize::from(b)]);
                let found = f64::from(usefulness[start + at]);
                assert!(
                    found >= neighbours[0] - 0.003 && found <= neighbours[2] + 0.003,
                    "{found} {neighbours:?}"
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 1000);
    // The models are the same ones: the hash says so, and nothing is warned of.
    let uncalibrated_fit = &folder.out("out").json("manifest.json")["estimator"]["fitted"];
    assert_eq!(
        fitted["calibration_parameter_hash"],
        uncalibrated_fit["parameter_hash"]
    );
    assert_eq!(
        fitted["parameter_hash"],
        fitted["calibration_parameter_hash"]
    );
    assert_eq!(run.stderr, "");
    // A refit on other text is warned of, other options are refused by name.
    let other = |set: &str, command: &str| {
        folder.goodput(&[
            command,
            "p.yaml",
            "--out",
            "refitted",
            "--set",
            "stages.score.calibration=calibration.json",
            "--set",
            set,
        ])
    };
    let refitted = other("seed=99", "run");
    assert_eq!(refitted.code, Some(0), "{refitted:?}");
    assert!(
        refitted.stderr.contains("another fit of the estimator"),
        "{refitted:?}"
    );
    for command in ["check", "run"] {
        other("stages.score.window_tokens=4", command).refuses(&[
            "'calibration'",
            "'window_tokens: 8'",
            "'window_tokens: 4'",
        ]);
    }
    explains_both(&folder);
    // What is calibrated already is not calibrated again, and a calibration fits its estimator only.
    let again = folder.goodput(&[
        "calibrate",
        "calibrated",
        "--losses",
        "pilot.parquet",
        "--pilot",
        "x",
        "--output",
        "y.json",
    ]);
    again.refuses(&["calibrated already", "pilot-7"]);
    folder.pipeline_at("prior.yaml", "inputs:\n  - { path: web.jsonl, source: web }\nstages:\n  - score: { estimator: prior, calibration: calibration.json }\n");
    folder
        .goodput(&["check", "prior.yaml"])
        .refuses(&["ngram_excess", "prior", "prior.yaml:"]);
    folder.write(
        "broken.json",
        text.replace("\"version\": 1", "\"version\": 2"),
    );
    for (file, words) in [
        ("broken.json", "'version' must be 1"),
        ("absent.json", "absent.json"),
        ("web.jsonl", "is not a calibration"),
    ] {
        let set = format!("stages.score.calibration={file}");
        folder
            .goodput(&["check", "p.yaml", "--set", &set])
            .refuses(&[words]);
    }
}

/// `inspect --explain` shows the usefulness of the shards beside the product that the calibration was given.
fn explains_both(folder: &Folder) {
    let ran = folder.goodput(&["fit", "p.yaml", "--output", "a.model"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = folder.goodput(&[
        "inspect",
        "calibrated",
        "--explain",
        "a.model",
        "--documents",
        "3",
        "--colour",
        "never",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let (mut rows, mut moved) = (0, 0);
    for line in ran.stdout.lines() {
        let Some((before, after)) = line.rsplit_once(" = ") else {
            continue;
        };
        let numbers = |text: &str| -> Vec<f64> {
            text.split_whitespace()
                .filter_map(|word| word.parse().ok())
                .collect()
        };
        let (before, after) = (numbers(before), numbers(after));
        let [.., useful, product] = before[..] else {
            continue;
        };
        assert!(
            (product - after[..3].iter().product::<f64>()).abs() < 0.003,
            "{line}"
        );
        rows += 1;
        moved += usize::from((useful - product).abs() > 0.02);
    }
    assert!(rows > 100 && moved > 10, "{rows} {moved}");
}

#[test]
fn losses_that_do_not_fit_are_refused_by_name() {
    let folder = tagged("");
    folder.run(&[]);
    let good = losses(&folder);
    let id = good[3].0.clone();
    let refused = |change: &dyn Fn(&mut Losses), words: &[&str]| {
        let mut bad = good.clone();
        change(&mut bad);
        write_losses(&folder, "bad.parquet", &bad, None);
        let ran = calibrate(&folder, "bad.parquet");
        ran.refuses(&[words, &["bad.parquet"]].concat());
        assert!(!folder.path("calibration.json").exists());
    };
    refused(
        &|bad| bad[3].1[2] = f32::NAN,
        &["row 3", &id, "'loss_early' of token 2", "NaN"],
    );
    refused(
        &|bad| bad[3].2[0] = f32::INFINITY,
        &["row 3", "'loss_late' of token 0", "inf"],
    );
    refused(
        &|bad| bad[3].1.truncate(5),
        &["row 3", &id, "'loss_early' has"],
    );
    refused(
        &|bad| {
            bad[3].1.pop();
            bad[3].2.pop();
        },
        &["row 3", &id, "losses, its document has"],
    );
    refused(
        &|bad| {
            bad[3].1.push(1.0);
            bad[3].2.push(1.0);
        },
        &["row 3", &id, "losses, its document has"],
    );
    refused(
        &|bad| bad[3].0 = "nobody:0".to_string(),
        &["row 3", "nobody:0", "is no document"],
    );
    refused(&|bad| bad[4].0 = bad[3].0.clone(), &[&id, "rows 3 and 4"]);
    refused(&|bad| bad.truncate(1), &["half", "more documents"]);
    refused(
        &|bad| {
            bad.iter_mut()
                .for_each(|row| std::mem::swap(&mut row.1, &mut row.2))
        },
        &["exchanged"],
    );
    refused(
        &|bad| bad[3].2[1] = -0.5,
        &["row 3", "'loss_late' of token 1 is -0.5", "0 or more"],
    );
    refused(&|bad| bad.clear(), &["0 rows", "no loss"]);
    write_losses(&folder, "bad.parquet", &good, Some("0123"));
    calibrate(&folder, "bad.parquet").refuses(&["bad.parquet", "tokenizer 0123"]);
    folder.write("bad.parquet", "no Parquet");
    calibrate(&folder, "bad.parquet").says_no(&["bad.parquet"]);
    calibrate(&folder, "absent.parquet").refuses(&["absent.parquet", "no such file"]);
}

#[test]
fn what_has_no_usefulness_is_not_calibrated() {
    let folder = tagged("");
    folder.write("pilot.parquet", "never read");
    folder.pipeline("inputs:\n  - { path: web.jsonl, source: web }\nstages:\n  - score: { estimator: random }\n");
    folder.run(&[]);
    calibrate(&folder, "pilot.parquet").refuses(&["'random'", "control"]);
    folder.pipeline("inputs:\n  - { path: web.jsonl, source: web }\nstages:\n  - length: { min_tokens: 100000 }\n  - score: { estimator: prior }\n");
    folder.run(&["--replace"]);
    calibrate(&folder, "pilot.parquet").refuses(&["no document reached"]);
    folder.pipeline(
        "inputs:\n  - { path: web.jsonl, source: web }\nstages:\n  - score: { estimator: prior }\n",
    );
    folder.run(&["--replace"]);
    folder.write("pilot.parquet", "");
    calibrate(&folder, "pilot.parquet").refuses(&["--losses", "pilot.parquet", "is empty"]);
}

#[test]
fn domains_that_no_side_shares_are_warned_of_by_name() {
    let folder = tagged(BY_KIND);
    assert_eq!(folder.run(&[]).stderr, "");
    for (change, words) in [
        (
            ("source: web }", "source: crawl }"),
            ["crawl", "books, laws, web"],
        ),
        (
            (
                "reference_domain: about.kind",
                "reference_domain: about.nothing",
            ),
            ["books, web", "by 'reference_domain: about.nothing': none"],
        ),
    ] {
        let changed = sections(BY_KIND, "").replace(change.0, change.1).replace(
            "source: books }",
            if change.0.contains("source") {
                "source: press }"
            } else {
                "source: books }"
            },
        );
        folder.pipeline(&changed);
        let ran = folder.run(&["--replace"]);
        assert!(
            ran.stderr.contains("no domain of the corpus")
                && words.iter().all(|word| ran.stderr.contains(word)),
            "{words:?} {}",
            ran.stderr
        );
        folder.verify("out");
    }
}

/// A model of its own knows the domains of its reference, and gives the ledger of the run that fits.
#[test]
fn a_model_measures_by_domain_as_the_fit_does() {
    let folder = tagged(BY_KIND);
    folder.run(&[]);
    let ran = folder.goodput(&["fit", "p.yaml", "--output", "a.model"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    folder.pipeline(&sections("", "").replace(
        "reference: reference.jsonl",
        "model: a.model, min_domain_tokens: 1000",
    ));
    let ran = folder.run(&["--out", "again"]);
    assert_eq!(ran.stderr, "");
    let usefulness = |out: &str| folder.out(out).json("audit.json")["usefulness"].clone();
    assert_eq!(usefulness("out"), usefulness("again"));
}

/// No page may load anything, and what stands in a text must not become markup.
fn stands_alone(page: &str) {
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    for word in [
        "http:", "https:", "src=", "href=", "@import", "url(", "<b>see", "\u{fffd}",
    ] {
        assert!(!page.contains(word), "{word}");
    }
    for tag in ["<script", "<style", "<body", "<html"] {
        assert_eq!(
            page.matches(tag).count(),
            usize::from(page.contains(tag)),
            "{tag}"
        );
    }
}

#[test]
fn documents_and_rejects_are_one_page_each_with_whole_characters() {
    let folder = tagged("");
    folder.pipeline(&sections("", ", excess_nats: true"));
    folder.run(&[]);
    let ran = folder.goodput(&[
        "inspect",
        "out",
        "--format",
        "html",
        "--documents",
        "100",
        "--tokens",
        "1000",
    ]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    stands_alone(&ran.stdout);
    // A token of this tokenizer is a byte, and a euro sign has three: one box, three details.
    let boxes: Vec<&str> = ran
        .stdout
        .split("<b")
        .filter(|part| part.ends_with(">€</b>"))
        .collect();
    assert!(!boxes.is_empty());
    for part in boxes {
        assert!(
            part.contains("linear-gradient") && part.matches("bytes [").count() == 3,
            "{part}"
        );
        assert!(
            part.matches("usefulness 0.").count() == 3 && part.matches(" nats").count() == 3,
            "{part}"
        );
    }
    assert!(ran.stdout.contains(">&lt;</b>") && ran.stdout.contains(">&amp;</b>"));
    assert!(ran.stdout.contains("prefers-color-scheme:dark"));
    let ran = folder.goodput(&[
        "inspect",
        "out",
        "--rejects",
        "--reason",
        "below_share",
        "--source",
        "web",
        "--format",
        "html",
        "--output",
        "page.html",
    ]);
    assert_eq!(
        (ran.code, ran.stdout.as_str(), ran.stderr.as_str()),
        (Some(0), "", "")
    );
    let page = std::fs::read_to_string(folder.path("page.html")).expect("written");
    stands_alone(&page);
    assert!(
        page.contains("select: below_share")
            && page.contains("source web")
            && !page.contains("source books")
    );
    folder
        .goodput(&["inspect", "out", "--format", "html", "--id", "nobody"])
        .refuses(&["no document matches"]);
}

#[test]
fn the_ledger_is_one_page() {
    let folder = tagged(BY_KIND);
    folder.run(&[]);
    let ran = folder.goodput(&["audit", "out", "--format", "html"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    stands_alone(&ran.stdout);
    for words in [
        "By source",
        "By stage",
        "By reason",
        "below_share",
        "<svg",
        "reference-equivalent",
        "along the curriculum",
        "documents read = kept + rejected + failed",
        ">holds<",
        "Low value",
    ] {
        assert!(ran.stdout.contains(words), "{words}");
    }
    folder
        .goodput(&["audit", "out", "--format", "html", "--threshold", "0.5"])
        .refuses(&["--threshold", "csv"]);
}
