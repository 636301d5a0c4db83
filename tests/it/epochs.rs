//! Documents that a pipeline emits several times.

use crate::support::{Folder, Numbers, Out};
use goodput::algo::novelty::value_of_copies;
use std::collections::BTreeMap;

const STAGES: &str = "inputs:\n  - { path: in.jsonl, source: web }\n  - { path: more.jsonl, source: books }\n\
                      stages:\n  - score: { estimator: ngram_excess, reference: reference.jsonl }\n";

fn folder() -> Folder {
    let folder = Folder::new();
    let mut numbers = Numbers(7);
    for (name, documents) in [
        ("in.jsonl", 30),
        ("more.jsonl", 12),
        ("reference.jsonl", 40),
    ] {
        let texts: Vec<String> = (0..documents)
            .map(|_| {
                let words = 5 + numbers.below(60);
                numbers.words(words)
            })
            .collect();
        folder.documents(name, &texts);
    }
    folder
}

fn run(folder: &Folder, order: &str, pack: &str, name: &str) -> Out {
    folder.pipeline(&format!("{STAGES}order: {order}\npack: {pack}\n"));
    folder.run(&["--out", name]);
    folder.verify(name);
    folder.out(name)
}

/// Documents as they begin, with the number of the copy, in order.
fn begun(out: &Out) -> Vec<(String, u32)> {
    let segments = out.rows().into_iter().flat_map(|row| row.segments);
    segments
        .filter(|segment| segment.doc_token_start == 0 && segment.tokens != Some(0))
        .map(|segment| (segment.doc_id, segment.copy))
        .collect()
}

#[test]
fn every_epoch_holds_every_document_and_the_ledger_counts_repeats() {
    let folder = folder();
    for (at, pack) in [
        "{ method: none }",
        "{ method: concat, sequence_tokens: 64 }",
        "{ method: best_fit, sequence_tokens: 64, window_documents: 8 }",
    ]
    .into_iter()
    .enumerate()
    {
        let once = run(&folder, "{ strategy: shuffle }", pack, &format!("once{at}"));
        let order = "{ strategy: epochs, epochs: 3, inner: { strategy: shuffle } }";
        let three = run(&folder, order, pack, &format!("three{at}"));
        assert_eq!(three.texts(), once.texts());
        let mut copies: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (id, copy) in begun(&three) {
            copies.entry(id).or_default().push(copy);
        }
        assert_eq!(copies.len(), 42);
        for (id, mut found) in copies {
            // A packer that looks for room may set a short document of the next epoch before the end of this one.
            found.sort_unstable();
            assert_eq!(found, [0, 1, 2], "{id}");
        }
        let (audit, before) = (three.audit(), once.audit());
        let kept: u64 = audit.kept.iter().map(|row| row.counts.tokens).sum();
        assert_eq!(audit.kept, before.kept);
        assert_eq!(audit.emitted.tokens, 3 * kept);
        assert_eq!(audit.emitted.repeated_tokens, 2 * kept);
        assert_eq!(audit.low_value, before.low_value);
        let (worth, one) = (
            audit.usefulness.expect("scored"),
            before.usefulness.expect("scored"),
        );
        assert_eq!(
            worth.histogram,
            one.histogram.iter().map(|n| 3 * n).collect::<Vec<_>>()
        );
        let all = |of: &goodput::audit::Usefulness| {
            let whole = of.worth.reference_equivalent_tokens.expect("has a u_ref");
            let parts = of.by_source.iter().map(|row| &row.worth);
            let parts: f64 = parts
                .filter_map(|worth| worth.reference_equivalent_tokens)
                .sum();
            assert!((whole - parts).abs() < 1e-9 * whole);
            whole
        };
        // Worth telescopes: three copies are worth v(3) first ones.
        let ratio = all(&worth) / all(&one);
        assert!((ratio - value_of_copies(3)).abs() < 1e-9, "{ratio}");
        assert!(value_of_copies(3) < 3.0);
    }
}

#[test]
fn epochs_stand_one_after_another_with_chances_of_their_own() {
    let folder = folder();
    let order = "{ strategy: epochs, epochs: 2, inner: { strategy: shuffle } }";
    let out = run(&folder, order, "{ method: none }", "out");
    let begun = begun(&out);
    let epoch = |copy: u32| -> Vec<String> {
        let places = begun[42 * copy as usize..][..42].iter();
        places
            .map(|(id, found)| {
                assert_eq!(*found, copy);
                id.clone()
            })
            .collect()
    };
    let (first, second) = (epoch(0), epoch(1));
    assert_ne!(first, second);
    let names = |mut ids: Vec<String>| {
        ids.sort();
        ids
    };
    assert_eq!(names(first.clone()), names(second));
    // The first epoch is what one epoch would be.
    let once = run(&folder, "{ strategy: shuffle }", "{ method: none }", "once");
    let once: Vec<String> = self::begun(&once).into_iter().map(|(id, _)| id).collect();
    assert_eq!(first, once);
    let table = folder.goodput(&["audit", "out"]).stdout;
    assert!(table.contains("repeated: 9,242 of"), "{table}");
    let exact = ["audit", "out", "--threshold", "0.5", "--exact"];
    assert_eq!(folder.goodput(&exact).code, Some(0));
}

#[test]
fn threads_and_memory_change_no_byte_and_many_epochs_are_warned_of() {
    let folder = folder();
    let order = "{ strategy: epochs, epochs: 6, inner: { strategy: sorted, by: score } }";
    folder.pipeline(&format!("{STAGES}order: {order}\n"));
    let warned = folder.goodput(&["check", "p.yaml"]);
    assert!(warned.stdout.contains("up to 6 times"), "{warned:?}");
    folder.run(&["--threads", "1", "--out", "one"]);
    folder.run(&["--threads", "3", "--memory", "300MiB", "--out", "three"]);
    assert_eq!(folder.out("one").files(), folder.out("three").files());
}

#[test]
fn an_inner_order_that_repeats_is_refused() {
    let folder = folder();
    let twice = "{ strategy: epochs, inner: { strategy: shuffle } }";
    folder.pipeline(&format!(
        "{STAGES}order: {{ strategy: epochs, inner: {twice} }}\n"
    ));
    folder.goodput(&["check", "p.yaml"]).refuses(&[
        "'inner'",
        "does not repeat documents",
        "epochs",
    ]);
}
