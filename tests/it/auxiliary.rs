//! Files besides the inputs that shape a result: listed in the manifest, and a change in them is noticed.

use crate::support::{Folder, Numbers, classifier, language_model, losses_line};
use std::time::{Duration, SystemTime};

fn texts(seed: u64, count: usize) -> Vec<String> {
    let mut numbers = Numbers(seed);
    (0..count).map(|_| numbers.words(40)).collect()
}

fn world() -> Folder {
    let folder = Folder::new();
    folder.documents("in.jsonl", &texts(11, 40));
    folder.documents("good/a.jsonl", &texts(12, 20));
    folder
}

/// Writes as many bytes as there were, another last but one, and a later time.
fn change_one_byte(folder: &Folder, name: &str) {
    let path = folder.path(name);
    let mut bytes = std::fs::read(&path).expect("it reads");
    let at = bytes.len() - 2;
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).expect("it writes");
    touch(folder, name);
}

fn touch(folder: &Folder, name: &str) {
    let later = SystemTime::now() + Duration::from_secs(60);
    std::fs::File::options()
        .append(true)
        .open(folder.path(name))
        .and_then(|file| file.set_modified(later))
        .expect("a time is set");
}

fn listed(folder: &Folder) -> Vec<(String, String, String)> {
    let files = folder.out("out").manifest().auxiliary_files;
    let names = files
        .into_iter()
        .map(|file| (file.stage, file.option, file.name));
    names.collect()
}

fn entry(stage: &str, option: &str, name: &str) -> (String, String, String) {
    (stage.to_string(), option.to_string(), name.to_string())
}

fn complete(folder: &Folder) {
    let ran = folder.run(&[]);
    assert!(ran.stdout.contains("complete already"), "{ran:?}");
}

#[test]
fn a_reference_that_changed_grew_or_shrank_is_noticed() {
    let folder = world();
    folder
        .pipeline("stages:\n  - score: { estimator: ngram_excess, reference: \"good/*.jsonl\" }\n");
    folder.run_and_verify();
    assert_eq!(listed(&folder), [entry("score", "reference", "a.jsonl")]);
    let file = folder.out("out").manifest().auxiliary_files.remove(0);
    assert_eq!((file.records, file.quarantined), (Some(20), Some(0)));
    complete(&folder);
    // Written again with the same bytes: nothing changed.
    touch(&folder, "good/a.jsonl");
    complete(&folder);

    folder.documents("good/b.jsonl", &texts(13, 3));
    folder.goodput(&["run", "p.yaml"]).refuses(&[
        "'reference' file",
        "b.jsonl",
        "was there",
        "--fresh",
    ]);
    std::fs::remove_file(folder.path("good/b.jsonl")).expect("it was there");
    complete(&folder);

    change_one_byte(&folder, "good/a.jsonl");
    folder.goodput(&["run", "p.yaml"]).refuses(&[
        "'reference' file",
        "a.jsonl",
        "was changed",
        "--fresh",
    ]);
    let ran = folder.goodput(&["verify", "out", "--inputs"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("other files"), "{ran:?}");

    std::fs::rename(folder.path("good/a.jsonl"), folder.path("good/c.jsonl")).expect("moved");
    folder
        .goodput(&["run", "p.yaml"])
        .refuses(&["'reference' file", "c.jsonl", "was there"]);
    folder.run(&["--fresh"]);
    assert_eq!(listed(&folder), [entry("score", "reference", "c.jsonl")]);
    folder.verify("out");
}

#[test]
fn bad_records_of_a_reference_are_named_and_counted_in_the_manifest() {
    let folder = world();
    let good = std::fs::read_to_string(folder.path("good/a.jsonl")).expect("it reads");
    folder.write("good/a.jsonl", format!("{good}{{\"text\": 7}}\n\n{{\n"));
    folder.pipeline("stages:\n  - score: { estimator: dsir, reference: good/a.jsonl }\n");
    let ran = folder.run(&["--work", "w", "--keep-work"]);
    let first = format!("a.jsonl at byte {}: text_not_string", good.len());
    let said = |stderr: &str| {
        assert!(
            stderr.contains("2 of 23 records could not be read")
                && stderr.contains(&first)
                && stderr.contains("invalid_json"),
            "{stderr}"
        );
    };
    said(&ran.stderr);
    folder.verify("out");
    let file = folder.out("out").manifest().auxiliary_files.remove(0);
    assert_eq!((file.records, file.quarantined), (Some(23), Some(2)));
    // Also where the work of an earlier run is used, and of a file that is cut off.
    said(
        &folder
            .run(&["--work", "w", "--keep-work", "--fresh"])
            .stderr,
    );
    let many: String = texts(15, 1500)
        .iter()
        .map(|text| crate::support::line(text))
        .collect();
    let packed = zstd::encode_all(many.as_bytes(), 3).expect("memory");
    folder.write("good/a.jsonl.zst", &packed[..packed.len() - 9]);
    folder.pipeline("stages:\n  - score: { estimator: dsir, reference: good/a.jsonl.zst }\n");
    let ran = folder.run(&["--out", "cut"]);
    assert!(
        ran.stderr.contains("warning: reference: ") && ran.stderr.contains("a.jsonl.zst"),
        "{ran:?}"
    );
}

#[test]
fn a_reference_without_documents_is_refused_and_a_tiny_one_warned_of() {
    let folder = world();
    folder.write("empty.jsonl", "");
    folder.write("other.jsonl", "{\"content\": \"good text\"}\n");
    for reference in ["empty.jsonl", "other.jsonl", "[empty.jsonl, other.jsonl]"] {
        for estimator in ["ngram_excess", "dsir"] {
            folder.pipeline(&format!(
                "stages:\n  - score: {{ estimator: {estimator}, reference: {reference} }}\n"
            ));
            for command in ["check", "run"] {
                folder.goodput(&[command, "p.yaml"]).refuses(&[
                    "reference",
                    "no document",
                    "'text'",
                ]);
            }
        }
    }
    folder.documents("one.jsonl", &["one short text alone"]);
    folder.pipeline("stages:\n  - score: { estimator: ngram_excess, reference: one.jsonl }\n");
    folder
        .goodput(&["run", "p.yaml"])
        .fails(&["1 different documents", "2 or more are needed"]);
    folder.documents("two.jsonl", &["one short text alone", "and another one"]);
    folder.pipeline("stages:\n  - score: { estimator: ngram_excess, reference: two.jsonl }\n");
    let ran = folder.run(&["--replace"]);
    assert!(
        ran.stderr.contains("2 documents and 35 tokens"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_changed_file_of_losses_is_noticed() {
    let folder = world();
    let mut losses = folder.losses_header();
    let text = std::fs::read_to_string(folder.path("in.jsonl")).expect("it reads");
    let mut at = 0;
    for line in text.lines() {
        let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let tokens = value["text"].as_str().expect("a text").len();
        losses.push_str(&losses_line(&format!("in.jsonl:{at}"), tokens));
        at += line.len() + 1;
    }
    folder.write("l/losses.jsonl", &losses);
    for estimator in ["external, usefulness: rising", "rho"] {
        folder.pipeline(&format!(
            "stages:\n  - score: {{ estimator: {estimator}, losses: ./l/losses.jsonl }}\n"
        ));
        folder.run(&["--replace"]);
        folder.verify("out");
        assert_eq!(
            listed(&folder),
            [entry("score", "losses", "./l/losses.jsonl")],
            "as written"
        );
        complete(&folder);
        folder.write("l/losses.jsonl", losses.replacen("[0,1,2", "[0,1,3", 1));
        touch(&folder, "l/losses.jsonl");
        folder.goodput(&["run", "p.yaml"]).refuses(&[
            "'losses' file",
            "losses.jsonl",
            "was changed",
        ]);
        folder.write("l/losses.jsonl", &losses);
    }
}

#[test]
fn changed_models_and_calibrations_are_noticed() {
    let folder = world();
    folder.write("quality.bin", classifier(&["ka1", "lo2"]));
    folder.pipeline(
        "stages:\n  - score: { estimator: fasttext, model: quality.bin, label: __label__good }\n",
    );
    folder.run_and_verify();
    assert_eq!(listed(&folder), [entry("score", "model", "quality.bin")]);
    folder.write("quality.bin", classifier(&["ka1", "lo3"]));
    touch(&folder, "quality.bin");
    folder
        .goodput(&["run", "p.yaml"])
        .refuses(&["'model' file", "quality.bin", "was changed"]);

    for (name, bytes) in language_model(1.0) {
        folder.write(&format!("lm/{name}"), bytes);
    }
    folder.pipeline(
        "stages:\n  - score: { estimator: causal_lm, model: lm, sample_share: 1, usefulness: rising }\n",
    );
    folder.run(&["--replace"]);
    folder.verify("out");
    assert_eq!(
        listed(&folder),
        ["lm/config.json", "lm/model.safetensors"].map(|name| entry("score", "model", name))
    );
    for (name, bytes) in language_model(1.5) {
        folder.write(&format!("lm/{name}"), bytes);
    }
    touch(&folder, "lm/model.safetensors");
    folder.goodput(&["run", "p.yaml"]).refuses(&[
        "'model' file",
        "model.safetensors",
        "was changed",
    ]);

    folder.documents("good/b.jsonl", &texts(14, 20));
    let fit = |reference: &str| {
        folder.pipeline_at(
            "fit.yaml",
            &format!(
                "stages:\n  - score: {{ estimator: ngram_excess, reference: {reference}, order: 2 }}\n"
            ),
        );
        let ran = folder.goodput(&["fit", "fit.yaml", "--output", "a.model"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    };
    fit("good/a.jsonl");
    folder.pipeline("stages:\n  - score: { estimator: ngram_excess, model: a.model, order: 2 }\n");
    folder.run(&["--replace"]);
    folder.verify("out");
    assert_eq!(listed(&folder), [entry("score", "model", "a.model")]);
    fit("good/b.jsonl");
    touch(&folder, "a.model");
    folder
        .goodput(&["run", "p.yaml"])
        .refuses(&["'model' file", "a.model", "was changed"]);
}

/// The model of the language stage is part of what prepare is found again by.
#[test]
fn a_changed_language_model_is_noticed_and_no_work_of_the_old_one_is_used() {
    let folder = Folder::new();
    folder.documents("in.jsonl", &["aa bb aa bb", "cc dd cc dd"]);
    let model = |words: &[&str]| {
        let mut bytes = classifier(words);
        for (label, language) in [("good", "en"), ("bad", "de")] {
            let label = format!("__label__{label}\0").into_bytes();
            let at = bytes
                .windows(label.len())
                .position(|window| window == label)
                .expect("the label");
            let language = format!("__label__{language}\0").into_bytes();
            bytes.splice(at..at + label.len(), language);
        }
        folder.write("lid.bin", bytes);
        touch(&folder, "lid.bin");
    };
    model(&["aa", "bb"]);
    folder
        .pipeline("stages:\n  - language: { keep: [en], min_probability: 0.9, model: lid.bin }\n");
    folder.run(&["--work", "w", "--keep-work"]);
    assert_eq!(listed(&folder), [entry("language", "model", "lid.bin")]);
    assert_eq!(folder.out("out").kept_texts(), ["aa bb aa bb"]);
    model(&["cc", "dd"]);
    folder
        .goodput(&["run", "p.yaml"])
        .refuses(&["'model' file", "lid.bin", "was changed"]);
    folder.run(&["--work", "w", "--keep-work", "--out", "other"]);
    assert_eq!(folder.out("other").kept_texts(), ["cc dd cc dd"]);
}

#[test]
fn a_changed_tokenizer_is_noticed() {
    let folder = world();
    folder.pipeline("");
    folder.run_and_verify();
    let tokenizer = crate::support::byte_tokenizer_with(&[("a", "b")]);
    folder.write("tokenizer.json", tokenizer.to_string());
    folder
        .goodput(&["run", "p.yaml"])
        .refuses(&["tokenizer", "was changed", "--fresh"]);
}
