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
        .fails(&["a.model", "seed", "goodput fit"]);
    let mut bytes = std::fs::read(folder.path("a.model")).expect("it reads");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(folder.path("a.model"), bytes).expect("it writes");
    folder
        .goodput(&["run", "q.yaml", "--out", "damaged"])
        .fails(&["a.model", "damaged", "checksum"]);
}

#[test]
fn a_pipeline_without_a_model_to_fit_is_refused() {
    let folder = world();
    folder.pipeline("stages:\n  - score: { estimator: random }\n");
    folder
        .goodput(&["fit", "p.yaml", "--output", "a.model"])
        .refuses(&["score", "ngram_excess"]);
    folder.pipeline(&stages("reference: good.jsonl, model: a.model"));
    folder
        .goodput(&["run", "p.yaml"])
        .refuses(&["reference", "model"]);
}
