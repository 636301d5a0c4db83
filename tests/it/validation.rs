//! What `output.validation_share` holds out: whole groups of similar documents, the same ones whatever is selected.

use crate::support::{Folder, Numbers, Out, text_of};
use goodput::record::Class;
use goodput::shard::ReadShard;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Texts by id, and the bytes that `validation/` says they have.
fn held_out(out: &Out) -> BTreeMap<String, (String, u64)> {
    let mut found: BTreeMap<String, (Vec<u32>, u64)> = BTreeMap::new();
    for name in out.names() {
        if name.starts_with("validation/") {
            let mut shard = ReadShard::open(&out.path.join(&name)).expect("a shard");
            shard
                .rows(&mut |row| {
                    let (segment, stretch) = row.stretches().next().expect("one segment a row");
                    let (ids, bytes) = found.entry(segment.doc_id.to_string()).or_default();
                    assert_eq!(ids.len(), segment.doc_token_start as usize);
                    ids.extend(&row.input_ids[stretch]);
                    *bytes += row.held_out.expect("the two columns").0;
                    true
                })
                .expect("readable");
        }
    }
    let texts = found.into_iter();
    texts
        .map(|(id, (ids, bytes))| (id, (text_of(&ids), bytes)))
        .collect()
}

fn ids_of(out: &Out) -> (BTreeSet<String>, BTreeSet<String>) {
    let kept = out.texts().into_keys().collect();
    (kept, held_out(out).into_keys().collect())
}

/// A page with words changed.
fn page(family: usize, changed: &[usize]) -> String {
    let word = |at: usize| match changed.contains(&at) {
        true => format!("other{family}x{at}"),
        false => format!("word{family}x{at}"),
    };
    (0..200).map(word).collect::<Vec<_>>().join(" ")
}

/// Families of four pages, each of which is similar to the one before alone, and pages that stand alone.
fn families(folder: &Folder) {
    let chain: [&[usize]; 4] = [
        &[],
        &[20, 60],
        &[20, 60, 100, 140],
        &[20, 60, 100, 140, 30, 80],
    ];
    let mut lines = String::new();
    let mut add = |id: String, text: String| {
        lines += &(json!({ "id": id, "text": text }).to_string() + "\n");
    };
    for (step, changed) in chain.into_iter().enumerate() {
        for family in 0..40 {
            add(format!("f{family}-{step}"), page(family, changed));
        }
    }
    for alone in 40..100 {
        add(format!("a{alone}"), page(alone, &[]));
    }
    folder.write("in.jsonl", lines);
}

const INPUT: &str = "inputs:\n  - { path: in.jsonl, source: web, id: id }\n";

#[test]
fn no_document_that_is_related_to_a_held_out_one_stays_in_training() {
    let folder = Folder::new();
    families(&folder);
    // With so many bands every one of these pairs is compared.
    folder.pipeline(&format!(
        "{INPUT}stages:\n  - near_dedupe: {{ min_similarity: 0.8, bands: 40, rows: 4 }}\noutput: {{ path: out, validation_share: 0.4 }}\n"
    ));
    let out = folder.run_and_verify();
    let (kept, held) = ids_of(&out);
    assert!(kept.is_disjoint(&held));
    let (mut out_of, mut stayed) = (0, 0);
    for family in 0..40 {
        // The second and third went as similar to the first. The last one is similar to the third alone, so it stays.
        let ends = [format!("f{family}-0"), format!("f{family}-3")];
        let sides: Vec<bool> = ends.iter().map(|id| held.contains(id)).collect();
        assert!(ends.iter().all(|id| kept.contains(id) || held.contains(id)));
        assert_eq!(sides[0], sides[1], "family {family}");
        out_of += usize::from(sides[0]);
        stayed += usize::from(!sides[0]);
    }
    assert!(out_of > 5 && stayed > 5, "{out_of} and {stayed}");
    // The ledger has them as rejected, and the rejects leave them out.
    let audit = out.audit();
    let row = audit
        .rejected
        .iter()
        .find(|row| row.stage == "validation")
        .expect("in the ledger");
    assert_eq!(
        (row.reason.as_str(), row.class),
        ("validation", Some(Class::Policy))
    );
    assert_eq!(row.counts.documents, held.len() as u64);
    let rejects: BTreeSet<String> = out.rejects().into_iter().map(|row| row.doc_id).collect();
    assert_eq!(rejects.len(), 80);
    assert!(rejects.is_disjoint(&held));
    // Texts and bytes are those of the input, and the manifest sums them up.
    let mut bytes = 0;
    for (id, (text, its_bytes)) in held_out(&out) {
        assert_eq!(its_bytes, text.len() as u64);
        bytes += its_bytes;
        if let Some(family) = id.strip_prefix('a') {
            assert_eq!(text, page(family.parse().expect("a number"), &[]));
        }
    }
    let about = out.manifest().validation.expect("in the manifest");
    assert_eq!(
        (about.share, about.groups.as_str(), about.held_out.bytes),
        (0.4, "near_dedupe", bytes)
    );
}

#[test]
fn the_same_documents_are_held_out_for_any_work_and_whatever_is_selected() {
    let folder = Folder::new();
    families(&folder);
    let stages =
        "stages:\n  - exact_dedupe: {}\n  - near_dedupe: {}\n  - score: { estimator: random }\n";
    let output =
        "output: { path: out, validation_share: 0.3, shard_tokens: 4000, rejects: none }\n";
    folder.pipeline(&format!(
        "{INPUT}{stages}  - select: {{ keep_share_of_tokens: 0.5, by: score }}\n{output}"
    ));
    folder.run(&["--threads", "1"]);
    folder.verify("out");
    let check = folder.goodput(&["check", "p.yaml", "--format", "json"]);
    let check: Value = serde_json::from_str(&check.stdout).expect("JSON");
    assert_eq!(
        check["stages"],
        json!([
            "exact_dedupe",
            "near_dedupe",
            "validation",
            "score",
            "select"
        ])
    );
    assert_eq!(check["warnings"], json!([]));
    let more = ["--threads", "4", "--slice", "20kB", "--memory", "256MiB"];
    folder.run(&[&more[..], &["--out", "other"]].concat());
    let files = |name: &str| {
        let mut files = folder.out(name).files();
        files.retain(|name, _| !name.starts_with("run."));
        files
    };
    let first = files("out");
    assert!(first == files("other"), "the bytes differ");
    let parts = first.keys().filter(|name| name.starts_with("validation/"));
    assert!(parts.count() > 3, "several parts");
    folder.pipeline(&format!("{INPUT}{stages}{output}"));
    folder.run(&["--out", "all"]);
    let (kept, held) = ids_of(&folder.out("out"));
    let (all, also_held) = ids_of(&folder.out("all"));
    assert_eq!(held, also_held);
    assert!(kept.len() < all.len());
    // Another seed holds out others.
    folder.run(&["--set", "seed=18", "--out", "seed"]);
    assert_ne!(ids_of(&folder.out("seed")).1, held);
}

#[test]
fn without_a_near_dedupe_copies_stay_together_and_the_user_is_told() {
    let folder = Folder::new();
    let mut numbers = Numbers(3);
    let texts: Vec<String> = (0..60).map(|_| numbers.words(12)).collect();
    folder.documents("in.jsonl", &[&texts[..], &texts[..]].concat());
    folder.pipeline("output: { path: out, validation_share: 0.5 }\n");
    let out = folder.run_and_verify();
    let held: Vec<String> = held_out(&out).into_values().map(|(text, _)| text).collect();
    let kept: BTreeSet<String> = out.texts().into_values().collect();
    assert!(
        held.len() > 20 && held.len().is_multiple_of(2),
        "{}",
        held.len()
    );
    assert!(held.iter().all(|text| !kept.contains(text)));
    assert_eq!(
        out.manifest().validation.expect("in the manifest").groups,
        "same tokens"
    );
    let check = folder.goodput(&["check", "p.yaml"]);
    assert!(
        check.stdout.contains("add a stage 'near_dedupe'"),
        "{}",
        check.stdout
    );
}

#[test]
fn a_share_is_from_0_to_9_tenths_and_0_holds_nothing_out() {
    let folder = Folder::new();
    folder.documents("in.jsonl", &["cat", "dog"]);
    folder.pipeline("output: { path: out, validation_share: 0 }\n");
    let out = folder.run_and_verify();
    assert!(!out.names().iter().any(|name| name.contains("validation")));
    assert_eq!(out.manifest().validation, None);
    folder.pipeline("output: { path: new, validation_share: 0.91 }\n");
    folder
        .goodput(&["run", "p.yaml"])
        .refuses(&["'validation_share' must be from 0 to 0.9, got 0.91"]);
    folder.pipeline("output: { path: new, validation_share: 0.9 }\n");
    folder.run(&[]);
    folder.verify("new");
}

#[test]
fn verify_finds_a_held_out_document_that_is_not_the_one_drawn() {
    let folder = Folder::new();
    families(&folder);
    folder.pipeline(&format!(
        "{INPUT}stages:\n  - near_dedupe: {{}}\noutput: {{ path: out, validation_share: 0.4 }}\n"
    ));
    folder.run(&[]);
    // A manifest that was made for another share: the draw no longer holds.
    let out = folder.out("out");
    let mut manifest = out.manifest();
    manifest.validation.as_mut().expect("there").share = 0.2;
    let (_, text) = manifest.sealed();
    folder.write("out/manifest.json", text);
    let ran = folder.goodput(&["verify", "out"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("its group was not drawn"), "{ran:?}");
}
