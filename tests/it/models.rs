//! Fitted models as files: made apart, reused, checked.

use crate::support::{Folder, Numbers};

fn world() -> Folder {
    let folder = Folder::new();
    let mut numbers = Numbers(11);
    let texts: Vec<String> = (0..60).map(|_| numbers.words(40)).collect();
    folder.documents("in.jsonl", &texts);
    let good: Vec<String> = (0..20).map(|_| numbers.words(40)).collect();
    folder.documents("good.jsonl", &good);
    folder
}

fn stages(score: &str) -> String {
    format!("stages:\n  - near_dedupe: {{}}\n  - score: {{ estimator: ngram_excess, {score} }}\n")
}

fn fits(folder: &Folder) {
    let ran = folder.goodput(&["fit", "p.yaml", "--output", "a.model"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("parameter hash"), "{ran:?}");
}

#[test]
fn a_model_made_apart_gives_the_shards_of_a_run_that_fits() {
    let folder = world();
    folder.pipeline(&stages("reference: good.jsonl"));
    let fitted = folder.run_and_verify();
    fits(&folder);
    assert!(
        !folder.path("a.model.work").exists(),
        "nothing else is left"
    );
    folder.pipeline_at("q.yaml", &stages("model: a.model"));
    let ran = folder.goodput(&["run", "q.yaml", "--out", "again"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let again = folder.out("again");
    assert_eq!(fitted.column("usefulness"), again.column("usefulness"));
    assert_eq!(
        fitted.manifest().estimator.expect("scored").fitted,
        again.manifest().estimator.expect("scored").fitted
    );
}

#[test]
fn a_model_of_another_seed_or_a_damaged_one_is_refused() {
    let folder = world();
    folder.pipeline(&stages("reference: good.jsonl"));
    fits(&folder);
    folder.pipeline_at("q.yaml", &stages("model: a.model"));
    folder
        .goodput(&["run", "q.yaml", "--set", "seed=5", "--out", "other"])
        .refuses(&["a.model", "seed", "goodput fit"]);
    folder
        .goodput(&["check", "q.yaml", "--set", "seed=5"])
        .refuses(&["q.yaml:", "a.model", "seed"]);
    folder.write("x.model", "no model");
    folder
        .goodput(&["check", "q.yaml", "--set", "stages.score.model=x.model"])
        .refuses(&["x.model", "no model file"]);
    let mut bytes = std::fs::read(folder.path("a.model")).expect("it reads");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(folder.path("a.model"), bytes).expect("it writes");
    folder
        .goodput(&["run", "q.yaml", "--out", "damaged"])
        .refuses(&["a.model", "damaged", "checksum"]);
}

/// What `inspect --explain` says of each token, rounded as shards hold it, is what the shards hold; of
/// rejects too, and of documents that lie in several rows.
#[test]
fn explanations_give_the_usefulness_of_the_shards() {
    let folder = world();
    let pack =
        "pack: { method: concat, sequence_tokens: 64 }\noutput: { path: out, rejects: tokens }\n";
    let select = "  - select: { keep_share_of_tokens: 0.5, by: score }\n";
    folder.pipeline(&(stages("reference: good.jsonl") + select + pack));
    folder.run_and_verify();
    fits(&folder);
    for rejects in [false, true] {
        let mut arguments = vec!["inspect", "out", "--format", "json", "--documents", "1000"];
        arguments.extend(rejects.then_some("--rejects"));
        let stored = folder.goodput(&arguments);
        arguments.extend(["--explain", "a.model"]);
        let explained = folder.goodput(&arguments);
        assert_eq!(
            (stored.code, explained.code),
            (Some(0), Some(0)),
            "{explained:?}"
        );
        let tokens = |text: &str| -> Vec<serde_json::Value> {
            let all: serde_json::Value = serde_json::from_str(text).expect("JSON");
            let documents = all["documents"].as_array().expect("a list").clone();
            documents
                .iter()
                .flat_map(|document| document["tokens"].as_array().expect("tokens").clone())
                .collect()
        };
        let (stored, explained) = (tokens(&stored.stdout), tokens(&explained.stdout));
        assert!(stored.len() > 1000 && stored.len() == explained.len());
        let number = |value: &serde_json::Value| value.as_f64().expect("a number");
        for (stored, explained) in stored.iter().zip(&explained) {
            assert_eq!(stored["id"], explained["id"]);
            let product = ["left", "able", "want"].map(|name| number(&explained[name]));
            let product: f64 = product.iter().product();
            let error = (product - number(&stored["usefulness"])).abs();
            assert!(error <= 0.5 / 255.0 + 1e-6, "{stored} {explained}");
            let classes = ["known", "noise", "off_target", "learnable"];
            assert!(classes.iter().any(|class| explained["class"] == *class));
        }
        let page = folder.goodput(&["inspect", "out", "--explain", "a.model", "--format", "html"]);
        assert!(page.stdout.contains("tokens of context"), "{page:?}");
    }
    folder.goodput(&["fit", "p.yaml", "--set", "seed=3", "--output", "b.model"]);
    folder
        .goodput(&["inspect", "out", "--explain", "b.model"])
        .refuses(&["b.model", "another model"]);
}

#[test]
fn a_pipeline_without_a_model_to_fit_is_refused() {
    let folder = world();
    folder.pipeline("stages:\n  - score: { estimator: random }\n");
    folder
        .goodput(&["fit", "p.yaml", "--output", "a.model"])
        .refuses(&["score", "ngram_excess"]);
    folder.pipeline(&stages("reference: good.jsonl"));
    folder
        .goodput(&["fit", "p.yaml", "--output", "."])
        .refuses(&["folder"]);
    folder
        .goodput(&["fit", "p.yaml", "--output", "in.jsonl"])
        .refuses(&["in.jsonl", "no model"]);
    folder.pipeline(&stages("reference: good.jsonl, model: a.model"));
    folder
        .goodput(&["run", "p.yaml"])
        .refuses(&["reference", "model"]);
}
