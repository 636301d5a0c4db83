//! Each estimator in a pipeline: what it says of documents whose worth is known.

use crate::support::{
    Folder, Numbers, Out, byte_tokenizer, classifier, language_model, losses_line,
};
use serde_json::json;
use std::collections::BTreeMap;

/// Scores of the kept documents by text.
fn scores(out: &Out) -> BTreeMap<String, f32> {
    let texts = out.texts();
    out.rows()
        .iter()
        .flat_map(|row| &row.segments)
        .map(|segment| {
            (
                texts[&segment.doc_id].clone(),
                segment.score.expect("scored"),
            )
        })
        .collect()
}

fn stages(score: &str, then: &str) -> String {
    format!("stages:\n  - score: {{ {score} }}\n{then}")
}

#[test]
fn compression_selects_what_does_not_repeat_itself() {
    let folder = Folder::new();
    let varied = Numbers(3).words(300);
    let repeated = "The same words again. ".repeat(90);
    folder.documents("in.jsonl", &[&repeated, &varied]);
    folder.pipeline(&stages(
        "estimator: compression",
        "  - select: { keep_share_of_tokens: 0.6, by: score }\n",
    ));
    let out = folder.run_and_verify();
    assert_eq!(out.kept_texts(), [varied]);
    assert_eq!(out.rejects()[0].reason, "below_share");
}

#[test]
fn commonness_ranks_text_that_stands_elsewhere_below_text_that_stands_once() {
    let folder = Folder::new();
    let mut numbers = Numbers(5);
    let page = numbers.words(60);
    // Different endings, so that these are no copies of each other and fall into both folds.
    let mut texts: Vec<String> = (0..20).map(|n| format!("{page} {n}")).collect();
    let single: Vec<String> = (0..5).map(|_| numbers.words(60)).collect();
    texts.extend(single.clone());
    folder.documents("in.jsonl", &texts);
    folder.pipeline(&stages("estimator: commonness", ""));
    let scores = scores(&folder.run_and_verify());
    let highest = texts[..20]
        .iter()
        .map(|text| scores[text])
        .fold(0.0, f32::max);
    assert!(
        single.iter().all(|text| scores[text] > highest),
        "{scores:?}"
    );
    assert!(scores.values().all(|score| (0.0..=1.0).contains(score)));
}

/// The documents and weights of the unit test of the estimator: package data-selection 1.0.3.
#[test]
fn dsir_gives_the_weights_of_its_authors() {
    let folder = Folder::new();
    let raw = [
        (
            "The growth of plants depends on the salt in the soil, and on water.",
            -177.4293,
        ),
        (
            "Click here to buy NOW! Free shipping, best price: $3.50 (limited offer).",
            -496.08436,
        ),
        (
            "Can't stop; won't stop. E-mail us: a_b@c.example",
            -489.38263,
        ),
        ("Das Straßenfest in İzmir: ΟΔΟΣ und 中文。", -267.88197),
        ("The salt of the soil and the growth of roots.", -69.49997),
        ("x", -13.396802),
    ];
    folder.documents("in.jsonl", &raw.map(|(text, _)| text));
    folder.documents(
        "reference.jsonl",
        &[
            "The growth of roots in salt soil was measured with care.",
            "Water in the soil carries the salt to the roots of plants.",
        ],
    );
    folder.pipeline(&stages(
        "estimator: dsir, reference: reference.jsonl, folds: 1",
        "",
    ));
    let out = folder.run_and_verify();
    let found = scores(&out);
    for (text, weight) in raw {
        assert!(
            (found[text] - weight).abs() < 1e-4,
            "{text}: {}",
            found[text]
        );
    }
    assert_eq!(
        out.json("manifest.json")["estimator"]["fitted"]["target"]["documents"],
        2
    );
}

#[test]
fn fasttext_scores_by_the_label_and_refuses_another_one() {
    let folder = Folder::new();
    folder.write("quality.bin", classifier(&["soil", "salt"]));
    folder.documents("in.jsonl", &["buy now", "salt\nsoil", "soil and more"]);
    let of = |label: &str| {
        stages(
            &format!("estimator: fasttext, model: quality.bin, label: {label}"),
            "",
        )
    };
    folder.pipeline(&of("__label__good"));
    let found = scores(&folder.run_and_verify());
    // Shares of good words, the end of the line included: 0, 2 of 3, 1 of 2.
    for (text, share) in [
        ("buy now", 0.0),
        ("salt\nsoil", 2.0 / 3.0),
        ("soil and more", 0.5),
    ] {
        let expected = 1.0 / (1.0 + (-4.0f32 * share).exp());
        assert!(
            (found[text] - expected).abs() < 1e-4,
            "{text}: {} {expected}",
            found[text]
        );
    }
    folder.pipeline(&of("__label__god"));
    folder.goodput(&["check", "p.yaml"]).refuses(&[
        "p.yaml:",
        "'label'",
        "__label__good, __label__bad",
        "'__label__god'",
    ]);
    folder.write("quality.bin", "no model");
    folder.pipeline(&of("__label__good"));
    folder
        .goodput(&["check", "p.yaml"])
        .refuses(&["'model'", "quality.bin", "begin"]);
}

/// Texts of ten words, of these and of common ones.
fn about(words: &[&str], n: usize, numbers: &mut Numbers) -> Vec<String> {
    let text = |_| {
        let mut word = |_| match numbers.below(2) {
            0 => words[numbers.below(words.len())],
            _ => ["the", "of", "and"][numbers.below(3)],
        };
        (0..10).map(&mut word).collect::<Vec<_>>().join(" ")
    };
    (0..n).map(text).collect()
}

#[test]
fn fasttext_trains_on_two_sets_and_its_file_scores_alike() {
    let folder = Folder::new();
    let mut numbers = Numbers(23);
    let (soil, shop) = (["soil", "salt", "root"], ["buy", "cart", "offer"]);
    let good = about(&soil, 30, &mut numbers);
    let bad = about(&shop, 30, &mut numbers);
    let corpus = [&good[..], &bad].concat();
    folder.documents("in.jsonl", &corpus);
    folder.documents("reference.jsonl", &about(&soil, 40, &mut numbers));
    let mut negative = about(&shop, 40, &mut numbers);
    negative.push(bad[0].clone());
    folder.documents("negative.jsonl", &negative);
    let options = "dimensions: 4, buckets: 1_000, epochs: 30, learning_rate: 0.5";
    let reference = format!("estimator: fasttext, reference: reference.jsonl, {options}");
    let files = format!("{reference}, negative: negative.jsonl");
    let run = || {
        folder.run(&["--replace"]);
        folder.verify("out");
        folder.out("out")
    };
    let mut of_files = None;
    for stage in [&reference, &files] {
        folder.pipeline(&stages(stage, ""));
        let out = run();
        let found = scores(&out);
        let of = |texts: &[String]| texts.iter().map(|text| found[text]).collect::<Vec<f32>>();
        let (good, bad) = (of(&good), of(&bad));
        let above = |good: &f32| bad.iter().filter(|&bad| good > bad).count();
        let area = good.iter().map(above).sum::<usize>() as f32 / (good.len() * bad.len()) as f32;
        assert!(area > 0.97, "{stage}: {area}");
        let fitted = &out.json("manifest.json")["estimator"]["fitted"];
        let left_out = u64::from(stage == &files);
        assert_eq!(fitted["left_out_negative_documents"], left_out);
        assert_eq!(fitted["target"]["documents"], 40);
        of_files = Some(found);
    }
    let fitted = folder.goodput(&["fit", "p.yaml", "--output", "quality.bin"]);
    assert_eq!(fitted.code, Some(0), "{fitted:?}");
    assert!(!folder.path("quality.bin.work").exists());
    folder.pipeline(&stages(
        "estimator: fasttext, model: quality.bin, label: __label__reference",
        "",
    ));
    assert_eq!(Some(scores(&run())), of_files);

    folder.pipeline(&stages(&reference, ""));
    folder
        .goodput(&["fit", "p.yaml", "--output", "other.bin"])
        .refuses(&["fasttext", "'negative'"]);
    for (stage, words) in [
        (
            "model: quality.bin, label: __label__reference, epochs: 6",
            ["'epochs'", "absent"],
        ),
        (
            "model: quality.bin, reference: reference.jsonl",
            ["'reference'", "absent"],
        ),
        ("model: quality.bin", ["'label'", "__label__negative"]),
        ("label: __label__reference", ["'reference'", "'model'"]),
        (
            "reference: reference.jsonl, label: a",
            ["'label'", "absent"],
        ),
        ("reference: self", ["'reference'", "[self]"]),
        (
            "reference: reference.jsonl, negative: no.jsonl",
            ["negative", "no.jsonl"],
        ),
        (
            "reference: reference.jsonl, negative: negative.jsonl, folds: 3",
            ["'folds'", "one model"],
        ),
        (
            "reference: reference.jsonl, max_ngram_characters: 2",
            ["'max_ngram_characters'", "(3)"],
        ),
        (
            "reference: reference.jsonl, min_ngram_characters: 2",
            ["'max_ngram_characters'", "without"],
        ),
        (
            "reference: reference.jsonl, word_ngrams: 1, buckets: 9",
            ["'buckets'", "'word_ngrams'"],
        ),
    ] {
        folder.pipeline(&stages(&format!("estimator: fasttext, {stage}"), ""));
        folder.goodput(&["check", "p.yaml"]).refuses(&words);
    }
}

/// Three documents of 2, 3 and 1 tokens.
fn with_losses(rows: &[serde_json::Value]) -> Folder {
    let folder = Folder::new();
    folder.documents("in.jsonl", &["ab", "cde", "f"]);
    write_losses(&folder, rows);
    folder
}

fn write_losses(folder: &Folder, rows: &[serde_json::Value]) {
    let lines: String = rows.iter().map(|row| row.to_string() + "\n").collect();
    folder.write("losses.jsonl", folder.losses_header() + &lines);
}

fn id(text: &str) -> String {
    // {"text":"ab"} and a line end before the second, one letter more before the third.
    let place = match text {
        "ab" => 0,
        "cde" => 14,
        _ => 29,
    };
    format!("in.jsonl:{place}")
}

fn good_rows() -> Vec<serde_json::Value> {
    vec![
        json!({ "doc_id": id("cde"), "token_index": 1, "loss": [0.75, 1], "reference_loss": [0.75, 3] }),
        json!({ "doc_id": id("ab"), "loss": [0, 0.25], "reference_loss": [1, 0.25] }),
        json!({ "doc_id": id("cde"), "loss": 0.5, "reference_loss": 0 }),
        json!({ "doc_id": "somewhere else", "loss": [9], "reference_loss": [9] }),
        json!({ "doc_id": id("f"), "loss": [0.5], "reference_loss": [0.5] }),
    ]
}

/// Usefulness of the tokens of each kept document.
fn usefulness(out: &Out) -> BTreeMap<String, Vec<f32>> {
    let texts = out.texts();
    let rows = out.rows().into_iter();
    rows.map(|row| {
        let mut usefulness = row.usefulness.expect("scored");
        usefulness.truncate(usefulness.len() - row.special_tokens as usize);
        (texts[&row.segments[0].doc_id].clone(), usefulness)
    })
    .collect()
}

#[test]
fn commonness_has_difficulty_and_no_excess() {
    let folder = Folder::new();
    let mut numbers = Numbers(5);
    let texts: Vec<String> = (0..30).map(|at| numbers.words(20 + at)).collect();
    folder.documents("in.jsonl", &texts);
    let by = |key: &str| {
        let order = format!("order: {{ strategy: sorted, by: {key} }}\n");
        folder.pipeline(&stages("estimator: commonness", &order));
    };
    by("difficulty");
    let out = folder.run_and_verify();
    // The easiest first: 1 - exp(-difficulty) is the score of this estimator.
    let found = scores(&out);
    let order: Vec<f32> = out
        .rows()
        .iter()
        .map(|row| row.segments[0].score.expect("scored"))
        .collect();
    assert!(order.is_sorted() && order[0] < order[29] && found.len() == 30);
    by("excess_nats");
    folder.goodput(&["check", "p.yaml"]).refuses(&[
        "'by: excess_nats'",
        "ngram_excess, rho",
        "'commonness'",
    ]);
}

#[test]
fn external_numbers_become_usefulness_in_each_of_the_three_ways() {
    let folder = with_losses(&good_rows());
    let run = |mapping: &str| {
        folder.pipeline(&(stages(
            &format!("estimator: external, losses: losses.jsonl, usefulness: {mapping}, low_percentile: 0, high_percentile: 100"),
            "",
        ) + "output: { path: out, usefulness: f32 }\n"));
        folder.run(&["--replace"]);
        folder.verify("out");
        usefulness(&folder.out("out"))
    };
    let value = run("value");
    assert_eq!(value["ab"], [0.0, 0.25]);
    assert_eq!(value["cde"], [0.5, 0.75, 1.0]);
    assert_eq!(value["f"], [0.5]);
    // From 0 to 1 already, so that rising changes nothing and falling turns it round.
    assert_eq!(run("rising"), value);
    assert_eq!(run("falling")["cde"], [0.5, 0.25, 0.0]);
    let found = scores(&folder.out("out"));
    assert_eq!((found["ab"], found["cde"], found["f"]), (0.875, 0.25, 0.5));
}

#[test]
fn external_numbers_that_do_not_fit_are_errors_that_name_the_document() {
    let folder = with_losses(&good_rows());
    let pipeline = |more: &str| {
        folder.pipeline(&stages(
            &format!("estimator: external, losses: losses.jsonl, usefulness: value{more}"),
            "",
        ));
    };
    let fails = |words: &[&str]| {
        folder
            .goodput(&["run", "p.yaml", "--progress", "off"])
            .fails(words)
    };
    pipeline("");
    let without_f = &good_rows()[..4];
    write_losses(&folder, without_f);
    fails(&[&id("f"), "has no row", "missing_usefulness"]);
    let with = |row: serde_json::Value| write_losses(&folder, &[without_f, &[row]].concat());
    with(json!({ "doc_id": id("f"), "loss": [0.5, 0.5] }));
    fails(&[&id("f"), "1 tokens and 2 numbers"]);
    with(json!({ "doc_id": id("f"), "token_index": 3, "loss": [0.5] }));
    fails(&[&id("f"), "tokens 0 to 2"]);
    with(json!({ "doc_id": id("f"), "loss": [1e300] }));
    fails(&[&id("f"), "inf for its token 0"]);
    with(json!({ "doc_id": id("f"), "loss": [1.5] }));
    fails(&[&id("f"), "1.5", "from 0 to 1"]);
    with(json!({ "doc_id": id("f"), "loss": ["x"] }));
    fails(&["losses.jsonl", "'loss'", "\"x\""]);
    write_losses(&folder, without_f);
    pipeline(", missing_usefulness: 0.25");
    folder.run(&["--replace"]);
    folder.verify("out");
    assert_eq!(scores(&folder.out("out"))["f"], 0.25);
}

#[test]
fn numbers_beyond_the_scale_are_warned_of_and_what_overflows_is_an_error() {
    let rows = |loss: f64, reference: f64| -> Vec<serde_json::Value> {
        let all = |tokens: usize, number: f64| vec![number; tokens];
        [("ab", 2), ("cde", 3), ("f", 1)]
            .map(|(text, tokens)| {
                json!({ "doc_id": id(text), "loss": all(tokens, loss), "reference_loss": all(tokens, reference) })
            })
            .to_vec()
    };
    let folder = with_losses(&rows(100.0, 1.0));
    for (usefulness, u) in [("rising", 1), ("falling", 0)] {
        folder.pipeline(&stages(
            &format!("estimator: external, losses: losses.jsonl, usefulness: {usefulness}"),
            "",
        ));
        let ran = folder.run(&["--replace"]);
        let told = format!("every token that was scored has usefulness {u}");
        assert!(
            ran.stderr.contains(&told) && ran.stderr.contains("low 64.0, high 64.0"),
            "{}",
            ran.stderr
        );
    }
    write_losses(&folder, &rows(3e38, -3e38));
    folder.pipeline(&stages("estimator: rho, losses: losses.jsonl", ""));
    folder
        .goodput(&["run", "p.yaml", "--out", "overflow"])
        .fails(&["document 'in.jsonl:", "finite"]);
}

#[test]
fn external_numbers_of_another_tokenizer_are_refused_before_the_run() {
    let folder = with_losses(&good_rows());
    folder.write(
        "losses.jsonl",
        "{\"goodput.tokenizer_fingerprint\": \"0123\"}\n",
    );
    folder.pipeline(&stages("estimator: rho, losses: losses.jsonl", ""));
    let words = ["p.yaml:", "another tokenizer", "0123"];
    folder.goodput(&["check", "p.yaml"]).refuses(&words);
    folder.goodput(&["run", "p.yaml"]).refuses(&words);
    folder.pipeline(&stages(
        "estimator: rho, losses: losses.jsonl, low_percentile: 50, high_percentile: 50",
        "",
    ));
    folder
        .goodput(&["check", "p.yaml"])
        .refuses(&["'high_percentile'", "above low_percentile"]);
}

#[test]
fn rho_gives_the_excess_of_two_losses() {
    let folder = with_losses(&good_rows());
    folder.pipeline(
        &(stages(
            "estimator: rho, losses: losses.jsonl, low_percentile: 0, high_percentile: 100",
            "",
        ) + "order: { strategy: sorted, by: difficulty }\n\
             output: { path: out, usefulness: f32, excess_nats: true }\n"),
    );
    let out = folder.run_and_verify();
    // Excess: ab -1 0, cde 0.5 0 -2, f 0; from -2 to 0.5.
    let found = usefulness(&out);
    let close = |found: &[f32], expected: &[f32]| {
        found.len() == expected.len()
            && found
                .iter()
                .zip(expected)
                .all(|(a, b)| (a - b).abs() < 1e-6)
    };
    assert!(close(&found["ab"], &[0.4, 0.8]), "{found:?}");
    assert!(close(&found["cde"], &[1.0, 0.8, 0.0]), "{found:?}");
    assert!(close(&found["f"], &[0.8]), "{found:?}");
    // The lowest mean of the current loss first: 0.125, 0.5, 0.75.
    let order: Vec<String> = out
        .rows()
        .iter()
        .map(|row| row.segments[0].doc_id.clone())
        .collect();
    assert_eq!(order, [id("ab"), id("f"), id("cde")]);
    let excess: Vec<f32> = out.column("excess_nats")[2]
        .trim_matches(['[', ']'])
        .split(", ")
        .map(|number| number.parse().expect("a number"))
        .collect();
    assert_eq!(excess[..3], [0.5, 0.0, -2.0]);
}

#[test]
fn a_changed_file_of_losses_is_read_again_from_a_kept_work_folder() {
    let folder = with_losses(&good_rows());
    folder.pipeline(&stages(
        "estimator: external, losses: losses.jsonl, usefulness: value",
        "",
    ));
    folder.run(&["--out", "one", "--work", "work", "--keep-work"]);
    let mut rows = good_rows();
    rows[4] = json!({ "doc_id": id("f"), "loss": [1.0] });
    write_losses(&folder, &rows);
    folder.run(&["--out", "two", "--work", "work", "--keep-work"]);
    let of = |out: &str| scores(&folder.out(out))["f"];
    assert_eq!((of("one"), of("two")), (0.5, 1.0));
}

/// More rows than the sort holds in memory, in an order of their own.
#[test]
fn losses_beyond_memory_give_the_same_bytes() {
    let folder = Folder::new();
    let texts: Vec<String> = (0..2_000).map(|n| format!("text {n}")).collect();
    folder.documents("in.jsonl", &texts);
    let mut place = 0;
    let mut lines = Vec::new();
    for text in &texts {
        lines.push(losses_line(&format!("in.jsonl:{place}"), text.len()));
        place += crate::support::line(text).len();
    }
    lines.reverse();
    folder.write("losses.jsonl", folder.losses_header() + &lines.concat());
    folder.pipeline(&stages("estimator: rho, losses: losses.jsonl", ""));
    folder.run(&["--out", "one", "--threads", "1"]);
    folder.run(&[
        "--out",
        "many",
        "--threads",
        "4",
        "--slice",
        "5kB",
        "--memory",
        "200MiB",
    ]);
    let (one, many) = (folder.out("one").files(), folder.out("many").files());
    assert!(one == many);
}

/// A model to which every even byte is likelier than every odd one by 2 nats, whatever went before.
#[test]
fn causal_lm_scores_a_sample_by_its_losses_and_refuses_another_tokenizer() {
    let folder = Folder::new();
    for (name, bytes) in language_model(2.0) {
        folder.write(&format!("small/{name}"), bytes);
    }
    // Bytes b and d are even, a and c odd; longer than a window.
    let texts = [
        "b".repeat(100),
        "a".repeat(100),
        "bddb".to_string(),
        "ac".to_string(),
        "bcda".to_string(),
    ];
    folder.documents("in.jsonl", &texts);
    let of = |more: &str| {
        stages(
            &format!(
                "estimator: causal_lm, model: small, begin_token_id: 256, low_percentile: 0, high_percentile: 100, {more}"
            ),
            "",
        )
    };
    folder.pipeline(&of("sample_share: 1, usefulness: rising"));
    let out = folder.run_and_verify();
    let found = scores(&out);
    for (text, score) in texts.iter().zip([0.0, 1.0, 0.0, 1.0, 0.5]) {
        // The ends of the scale are known to 1/1024 nat.
        assert!(
            (found[text] - score).abs() < 1e-3,
            "{text}: {}",
            found[text]
        );
    }
    let fitted = out.json("manifest.json")["estimator"]["fitted"].clone();
    assert_eq!(fitted["tokens"], 210);
    // 129 of the 258 ids are even: ln(129 e^2 + 129) - 2, to 1/1024.
    let low = (129.0 * 2f64.exp() + 129.0).ln() - 2.0;
    let number = |key: &str| fitted[key].as_f64().expect("a number");
    assert!((number("low_nats") - low).abs() < 1e-3, "{fitted}");
    assert!((number("high_nats") - low - 2.0).abs() < 1e-3, "{fitted}");

    // What is not drawn has the stated value; the draw is by id.
    folder.pipeline(&of(
        "sample_share: 0.5, missing_usefulness: 0.25, usefulness: falling",
    ));
    folder.run(&["--replace"]);
    folder.verify("out");
    let found = scores(&folder.out("out"));
    let missing = found.values().filter(|&&score| score == 0.25).count();
    assert!(missing > 0 && missing < 5, "{found:?}");

    let checked = folder.goodput(&["check", "p.yaml"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.stdout.contains("an estimate") && checked.stdout.contains("hours"));
    folder.write("small/tokenizer.json", byte_tokenizer().to_string());
    assert_eq!(folder.goodput(&["check", "p.yaml"]).code, Some(0));
    let other = byte_tokenizer().to_string() + "\n";
    folder.write("small/tokenizer.json", other);
    folder.goodput(&["check", "p.yaml"]).refuses(&[
        "p.yaml:",
        "small/tokenizer.json",
        "fingerprint",
    ]);
}
