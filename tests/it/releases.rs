//! Dedupe against earlier releases: what goes, because of what, and what is refused.

use crate::support::{Folder, Numbers, Out, Ran};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Pages of 120 words of which some are changed, so that some are near copies and some are none; some short
/// documents, and some texts that stand more than once. With ids in their order.
fn corpus(seed: u64, documents: usize) -> Vec<(String, String)> {
    let mut numbers = Numbers(seed);
    let mut texts: Vec<String> = Vec::new();
    for n in 0..documents {
        let text = match numbers.below(10) {
            0 => format!("short {}", numbers.below(4)),
            1 if n > 0 => texts[numbers.below(n)].clone(),
            2 if n > 0 => texts[numbers.below(n)].to_uppercase(),
            _ => {
                let page = numbers.below(6);
                let changed: Vec<usize> =
                    (0..numbers.below(7)).map(|_| numbers.below(120)).collect();
                let word = |i: usize| match changed.contains(&i) {
                    true => format!("changed{page}x{i}x{n}"),
                    false => format!("page{page}word{i}"),
                };
                (0..120).map(word).collect::<Vec<_>>().join(" ")
            }
        };
        texts.push(text);
    }
    (0..documents)
        .map(|n| format!("d{n:04}"))
        .zip(texts)
        .collect()
}

/// Writes the input NAME.jsonl.
fn write(folder: &Folder, name: &str, documents: &[(String, String)]) {
    let lines: String = documents
        .iter()
        .map(|(id, text)| json!({ "id": id, "text": text }).to_string() + "\n")
        .collect();
    folder.write(&format!("{name}.jsonl"), lines);
}

fn input(name: &str) -> String {
    format!("  - {{ path: {name}.jsonl, source: {name}, id: id }}\n")
}

/// A pipeline `NAME.yaml` that reads these inputs and writes the folder NAME.
fn pipeline(folder: &Folder, name: &str, inputs: &[&str], stages: &str) {
    let inputs: String = inputs.iter().map(|name| input(name)).collect();
    folder.pipeline_at(
        &format!("{name}.yaml"),
        &format!("inputs:\n{inputs}stages:\n{stages}output: {{ path: {name} }}\n"),
    );
}

fn go(folder: &Folder, name: &str, more: &[&str]) -> Ran {
    let file = format!("{name}.yaml");
    let ran = folder.goodput(&[&["run", &file, "--progress", "off"], more].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran
}

fn made(folder: &Folder, name: &str, inputs: &[&str], stages: &str) -> Out {
    pipeline(folder, name, inputs, stages);
    go(folder, name, &[]);
    folder.verify(name);
    folder.out(name)
}

fn ids(out: &Out) -> BTreeSet<String> {
    out.texts().into_keys().collect()
}

/// (dropped, kept, release) of all that went.
fn gone(out: &Out) -> Vec<(String, String, Option<String>)> {
    let rows = out.duplicates().into_iter();
    rows.map(|row| (row.dropped_id, row.kept_id, row.kept_release))
        .collect()
}

/// The beginning of a near dedupe's options; the guard does not look at so few documents.
const NEAR: &str = "near_dedupe: { bands: 20, rows: 4, guard_min_documents: 100000";

#[test]
fn against_a_release_goes_what_goes_after_it_in_one_run() {
    let folder = Folder::new();
    let documents = corpus(5, 400);
    write(&folder, "a", &documents[..200]);
    write(&folder, "b", &documents[200..]);
    for (stage, close, of_release) in [
        (
            "exact_dedupe: { normalise: true",
            " }",
            "exact_duplicate_of_release",
        ),
        (NEAR, " }", "near_duplicate_of_release"),
        (
            NEAR,
            ", measure: containment }",
            "near_duplicate_of_release",
        ),
    ] {
        let with = |more: &str| format!("  - {stage}{more}{close}\n");
        let whole = made(&folder, "whole", &["a", "b"], &with(""));
        let one = made(&folder, "one", &["a"], &with(", write_index: true"));
        let two = made(&folder, "two", &["b"], &with(", against: [one]"));
        let both: BTreeSet<String> = ids(&one).union(&ids(&two)).cloned().collect();
        assert_eq!(both, ids(&whole), "{stage}");
        // The same document is named, and where it stands.
        let of_b: Vec<_> = gone(&whole)
            .into_iter()
            .filter(|(dropped, ..)| dropped.as_str() >= "d0200")
            .map(|(dropped, kept, _)| {
                let release = (kept.as_str() < "d0200").then(|| "one".to_string());
                (dropped, kept, release)
            })
            .collect();
        assert_eq!(gone(&two), of_b, "{stage}");
        let from_release = of_b
            .iter()
            .filter(|(.., release)| release.is_some())
            .count();
        assert!(from_release > 20 && from_release < of_b.len(), "{stage}");
        // The ledger has them apart, all as duplicates.
        let audit = two.audit();
        let documents = |reason: &str| -> u64 {
            let rows = audit.rejected.iter().filter(|row| row.reason == reason);
            rows.map(|row| row.counts.documents).sum()
        };
        assert_eq!(documents(of_release), from_release as u64);
        let classes: BTreeSet<_> = audit.rejected.iter().map(|row| row.class).collect();
        assert_eq!(classes.len(), 1);
        for name in ["whole", "one", "two"] {
            fs::remove_dir_all(folder.path(name)).expect("removed");
        }
    }
}

#[test]
fn a_corpus_against_itself_is_gone() {
    let folder = Folder::new();
    write(&folder, "a", &corpus(6, 150));
    made(
        &folder,
        "one",
        &["a"],
        "  - exact_dedupe: { write_index: true }\n",
    );
    let out = made(
        &folder,
        "two",
        &["a"],
        "  - exact_dedupe: { against: one }\n",
    );
    assert_eq!(ids(&out).len(), 0);
    assert_eq!(out.duplicates().len(), 150);
    assert!(
        out.duplicates()
            .iter()
            .all(|row| row.kept_release.as_deref() == Some("one") && row.similarity == 1.0)
    );
    // What was kept stands there under its own id; what was no text of its own, under that of the one kept.
    let kept = ids(&folder.out("one"));
    for row in out.duplicates() {
        assert!(kept.contains(&row.kept_id));
        assert!(!kept.contains(&row.dropped_id) || row.dropped_id == row.kept_id);
    }
}

#[test]
fn a_release_stays_whatever_the_keep_rule() {
    let folder = Folder::new();
    let documents = corpus(7, 300);
    write(&folder, "a", &documents[..100]);
    write(&folder, "b", &documents[100..200]);
    write(&folder, "c", &documents[200..]);
    made(
        &folder,
        "one",
        &["a"],
        &format!("  - {NEAR}, write_index: true }}\n"),
    );
    let because_of_it = |stages: &str| -> BTreeSet<String> {
        let rows = gone(&made(&folder, "two", &["b", "c"], stages));
        fs::remove_dir_all(folder.path("two")).expect("removed");
        let rows = rows.into_iter();
        rows.filter(|row| row.2.is_some())
            .map(|row| row.0)
            .collect()
    };
    // Its documents stand before all others, so the same ones go because of it, also what is longer or better.
    let expected = because_of_it(&format!("  - {NEAR}, against: [one] }}\n"));
    assert!(expected.len() > 20, "{}", expected.len());
    for keep in [
        "longest",
        "preferred_source, preferred_sources: [c]",
        "none",
    ] {
        let stages = format!("  - {NEAR}, keep: {keep}, against: [one] }}\n");
        assert_eq!(because_of_it(&stages), expected, "{keep}");
    }
    let stages = format!(
        "  - score: {{ estimator: compression }}\n  - {NEAR}, keep: highest_score, against: [one] }}\n"
    );
    assert_eq!(because_of_it(&stages), expected);
}

#[test]
fn equal_bytes_for_any_threads_memory_and_cut_and_a_changed_index_is_noticed() {
    let folder = Folder::new();
    let documents = corpus(8, 600);
    write(&folder, "a", &documents[..300]);
    write(&folder, "b", &documents[300..]);
    let stages = |more: &str| format!("  - exact_dedupe: {{ {more} }}\n  - {NEAR}, {more} }}\n");
    pipeline(&folder, "one", &["a"], &stages("write_index: true"));
    pipeline(
        &folder,
        "two",
        &["b"],
        &stages("write_index: true, against: [one]"),
    );
    let ways: [&[&str]; 3] = [
        &["--threads", "1"],
        &["--threads", "3", "--slice", "9kB"],
        &["--threads", "2", "--memory", "200MiB", "--slice", "30kB"],
    ];
    let mut first: Option<[BTreeMap<String, Vec<u8>>; 2]> = None;
    for way in ways {
        let found = ["one", "two"].map(|name| {
            go(&folder, name, way);
            folder.verify(name);
            folder.out(name).files()
        });
        match &first {
            None => first = Some(found),
            Some(first) => assert!(*first == found, "{way:?}"),
        }
        for name in ["one", "two"] {
            fs::remove_dir_all(folder.path(name)).expect("removed");
        }
    }
    // Files of the index stand in the manifests of both.
    go(&folder, "one", &[]);
    go(&folder, "two", &[]);
    // Complete, and nothing has changed.
    go(&folder, "two", &[]);
    let manifest = folder.out("two").manifest();
    let named: Vec<_> = manifest
        .auxiliary_files
        .iter()
        .map(|entry| {
            (
                entry.stage.as_str(),
                entry.option.as_str(),
                entry.name.as_str(),
            )
        })
        .collect();
    assert_eq!(
        named,
        [
            (
                "exact_dedupe",
                "against",
                "one/index/exact_dedupe-part-00000.parquet"
            ),
            (
                "near_dedupe",
                "against",
                "one/index/near_dedupe-part-00000.parquet"
            ),
        ]
    );
    let names: Vec<_> = manifest
        .files
        .iter()
        .filter(|file| file.path.starts_with("index/"))
        .map(|file| (file.path.as_str(), file.rows))
        .collect();
    let kept = ids(&folder.out("two")).len() as u64;
    assert_eq!(
        names,
        [
            ("index/exact_dedupe-part-00000.parquet", kept),
            ("index/near_dedupe-part-00000.parquet", kept)
        ]
    );
    // Another release under the same name.
    write(&folder, "a", &documents[..200]);
    go(&folder, "one", &["--fresh"]);
    let ran = folder.goodput(&["run", "two.yaml"]);
    ran.refuses(&["'against' file", "one/index/", "changed", "--fresh"]);
    // A bit of it, which its own manifest does not know of.
    let path = folder.path("one/index/near_dedupe-part-00000.parquet");
    let mut bytes = fs::read(&path).expect("read");
    bytes[1_000] ^= 1;
    fs::write(&path, &bytes).expect("written");
    let ran = folder.goodput(&["run", "two.yaml", "--fresh"]);
    ran.fails(&["near_dedupe-part-00000.parquet", "is damaged", "restore"]);
    bytes.pop();
    fs::write(&path, &bytes).expect("written");
    folder.goodput(&["check", "two.yaml"]).refuses(&[
        "'against'",
        "one is damaged",
        "bytes",
        "its manifest says",
    ]);
}

#[test]
fn another_seed_bands_measure_or_similarity_is_no_hindrance() {
    let folder = Folder::new();
    let documents = corpus(9, 400);
    write(&folder, "a", &documents[..200]);
    write(&folder, "b", &documents[200..]);
    // So many bands that whatever is similar is proposed, whatever the seed.
    let stage = |bands: &str, more: &str| {
        format!("  - near_dedupe: {{ {bands}, guard_min_documents: 100000, {more} }}\n")
    };
    made(
        &folder,
        "one",
        &["a"],
        &stage("bands: 40, rows: 2", "write_index: true"),
    );
    let two = made(
        &folder,
        "two",
        &["b"],
        &stage("bands: 40, rows: 2", "against: one"),
    );
    let expected = gone(&two);
    assert!(expected.iter().filter(|row| row.2.is_some()).count() > 20);
    let other = stage("bands: 60, rows: 2", "against: one");
    assert_eq!(gone(&made(&folder, "three", &["b"], &other)), expected);
    let text = fs::read_to_string(folder.path("two.yaml")).expect("read");
    folder.write(
        "four.yaml",
        text.replace("seed: 17", "seed: 18")
            .replace("path: two", "path: four"),
    );
    go(&folder, "four", &[]);
    assert_eq!(gone(&folder.out("four")), expected);
    let strict = stage("bands: 40, rows: 2", "min_similarity: 1.0, against: one");
    let strict = made(&folder, "five", &["b"], &strict);
    assert!(strict.duplicates().iter().all(|row| row.similarity == 1.0));
    assert!(strict.duplicates().len() < expected.len());
}

#[test]
fn of_a_chain_each_release_is_named() {
    let folder = Folder::new();
    let documents = corpus(10, 300);
    for (name, range) in [("a", 0..100), ("b", 100..200), ("c", 200..300)] {
        write(&folder, name, &documents[range]);
    }
    let stage = |more: &str| format!("  - exact_dedupe: {{ normalise: true, {more} }}\n");
    let whole = made(&folder, "whole", &["a", "b", "c"], &stage(""));
    made(&folder, "one", &["a"], &stage("write_index: true"));
    let two = made(
        &folder,
        "two",
        &["b"],
        &stage("write_index: true, against: one"),
    );
    let three = made(&folder, "three", &["c"], &stage("against: [one, two]"));
    let releases: BTreeSet<_> = gone(&three).into_iter().map(|row| row.2).collect();
    assert!(
        releases.contains(&Some("one".to_string())) && releases.contains(&Some("two".to_string()))
    );
    let of_c = |out: &Out| -> BTreeSet<String> {
        ids(out)
            .into_iter()
            .filter(|id| id.as_str() >= "d0200")
            .collect()
    };
    assert_eq!(ids(&three), of_c(&whole));
    // The index of the second one holds what it kept itself, and nothing of the first.
    let rows = two.manifest().files.into_iter();
    let rows: u64 = rows
        .filter(|file| file.path.starts_with("index/"))
        .map(|file| file.rows)
        .sum();
    assert_eq!(rows, ids(&two).len() as u64);
    // Who names only the last one is told.
    pipeline(&folder, "four", &["c"], &stage("against: two"));
    let check = folder.goodput(&["check", "four.yaml"]);
    assert_eq!(check.code, Some(0), "{check:?}");
    assert!(
        check.stdout.contains("(two against one)"),
        "{}",
        check.stdout
    );
    let ran = folder.goodput(&["run", "four.yaml"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("name these too"), "{}", ran.stderr);
    assert!(
        !folder
            .goodput(&["check", "three.yaml"])
            .stdout
            .contains("name these too")
    );
    // A sample of a release is no whole one.
    pipeline(&folder, "part", &["a"], &stage("write_index: true"));
    go(&folder, "part", &["--sample", "0.5"]);
    pipeline(&folder, "five", &["c"], &stage("against: part"));
    let check = folder.goodput(&["check", "five.yaml"]);
    assert!(check.stdout.contains("'--sample 0.5'"), "{}", check.stdout);
    // The audit has a column for each release.
    let audit = folder.goodput(&["audit", "three", "--duplicates"]);
    assert_eq!(audit.code, Some(0), "{audit:?}");
    for part in ["(release one)", "(release two)"] {
        assert!(audit.stdout.contains(part), "{part} in {}", audit.stdout);
    }
    assert!(!audit.stdout.contains("FAILS"));
    let audit = folder.goodput(&["audit", "three", "--duplicates", "--format", "json"]);
    let report: Value = serde_json::from_str(&audit.stdout).expect("JSON");
    let of = |release: &str| -> u64 {
        let cells = report["matrix"].as_array().expect("a list").iter();
        let cells = cells.filter(|cell| cell["kept_source"] == format!("(release {release})"));
        cells
            .map(|cell| cell["documents"].as_u64().expect("a number"))
            .sum()
    };
    for release in ["one", "two"] {
        let said = gone(&three)
            .iter()
            .filter(|row| row.2.as_deref() == Some(release))
            .count();
        assert_eq!(of(release), said as u64, "{release}");
    }
}

/// A pipeline file that stays as it is from month to month: folders and releases are named on the command line.
#[test]
fn two_stages_and_folders_named_by_the_command_are_proved_and_a_changed_release_is_named() {
    let folder = Folder::new();
    let documents = corpus(15, 180);
    for (name, range) in [("a", 0..60), ("b", 60..120), ("c", 120..180)] {
        write(&folder, name, &documents[range]);
    }
    let stages = |against: &str| {
        let more = format!("write_index: true, against: {against}");
        format!("  - exact_dedupe: {{ {more} }}\n  - {NEAR}, {more} }}\n")
    };
    made(&folder, "one", &["a"], &stages("[]"));
    made(&folder, "two", &["b"], &stages("[one]"));
    // Each stage of the second release was made against an index of its own kind, which is named here.
    pipeline(&folder, "three", &["c"], &stages("[one, two]"));
    let check = folder.goodput(&["check", "three.yaml"]);
    assert_eq!(check.code, Some(0), "{check:?}");
    assert!(!check.stdout.contains("warning"), "{}", check.stdout);
    // The folder that the file names is a release where the command names another.
    let set = ["exact_dedupe", "near_dedupe"].map(|stage| format!("stages.{stage}.against=[one]"));
    go(
        &folder,
        "one",
        &["--out", "again", "--set", &set[0], "--set", &set[1]],
    );
    folder.verify("again");
    let path = folder.path("one/index/near_dedupe-part-00000.parquet");
    let mut bytes = fs::read(&path).expect("read");
    bytes[100] ^= 1;
    fs::write(&path, bytes).expect("written");
    let ran = folder.goodput(&["verify", "again", "--inputs"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.stdout
            .contains("near_dedupe-part-00000.parquet ('against' of near_dedupe) was changed"),
        "{ran:?}"
    );
    fs::rename(folder.path("one"), folder.path("elsewhere")).expect("moved");
    let ran = folder.goodput(&["verify", "again", "--inputs"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("is no output folder"), "{ran:?}");
    assert!(
        ran.stdout
            .contains("holds        the tokens are those of the inputs"),
        "{ran:?}"
    );
}

#[test]
fn what_cannot_be_compared_with_is_refused_with_the_way_out() {
    let folder = Folder::new();
    write(&folder, "a", &corpus(11, 40));
    let near = |more: &str| format!("  - near_dedupe: {{ {more} }}\n");
    made(&folder, "plain", &["a"], &near(""));
    made(&folder, "words", &["a"], &near("write_index: true"));
    made(
        &folder,
        "tokens",
        &["a"],
        &near("shingle_tokens: 9, write_index: true"),
    );
    made(
        &folder,
        "exact",
        &["a"],
        "  - exact_dedupe: { normalise: true, write_index: true }\n",
    );
    let refused = |stages: &str, words: &[&str]| {
        pipeline(&folder, "next", &["a"], stages);
        for command in ["check", "run"] {
            let words = [&["next.yaml:", "'against'"], words].concat();
            folder.goodput(&[command, "next.yaml"]).refuses(&words);
        }
    };
    refused(
        &near("against: nowhere"),
        &["nowhere is no output folder", "manifest.json"],
    );
    refused(
        &near("against: plain"),
        &["plain has no index of 'near_dedupe'", "'write_index: true'"],
    );
    refused(
        &near("against: exact"),
        &["exact has no index of 'near_dedupe'"],
    );
    refused(
        &near("against: words, shingle_words: 8"),
        &[
            "'shingle_words: 5'",
            "'shingle_words: 8'",
            "cannot be compared",
        ],
    );
    refused(
        &near("against: tokens, shingle_characters: 9"),
        &["'shingle_tokens: 9'", "'shingle_characters: 9'"],
    );
    refused(
        "  - exact_dedupe: { against: exact }\n",
        &["'normalise: true'", "'normalise: false'"],
    );
    refused(
        &near("against: [words, ./words]"),
        &["./words is the same release as words", "remove one"],
    );
    refused(
        &near("against: s3://bucket/words"),
        &["a local path", "copy"],
    );
    refused(&near("against: ''"), &["must be a path"]);
    // All of them at once, each by its place.
    pipeline(
        &folder,
        "next",
        &["a"],
        &format!("{}{}", near("against: plain"), near("against: nowhere")),
    );
    folder
        .goodput(&["check", "next.yaml"])
        .refuses(&["plain has no index", "nowhere is no output folder"]);
    // Its own output.
    pipeline(&folder, "words", &["a"], &near("against: words"));
    folder
        .goodput(&["run", "words.yaml", "--replace"])
        .refuses(&["this run's own output folder"]);
    pipeline(&folder, "inside", &["a"], &near("against: words"));
    folder
        .goodput(&["run", "inside.yaml", "--out", "words/inside"])
        .refuses(&["would hold this run's output folder", "beside it"]);
    assert!(!folder.path("words/inside").exists());
    // Shingles of tokens are those of one tokenizer.
    let other = crate::support::byte_tokenizer_with(&[("t", "h")]);
    folder.write("other.json", other.to_string());
    pipeline(
        &folder,
        "next",
        &["a"],
        &near("shingle_tokens: 9, against: tokens"),
    );
    go(&folder, "next", &[]);
    let text = fs::read_to_string(folder.path("next.yaml")).expect("read");
    folder.write("next.yaml", text.replace("tokenizer.json", "other.json"));
    folder
        .goodput(&["check", "next.yaml"])
        .refuses(&["the tokenizer of fingerprint", "cannot be compared"]);
    // A damaged manifest.
    let path = folder.path("words/manifest.json");
    let text = fs::read_to_string(&path).expect("read");
    fs::write(&path, text.replacen("\"seed\": 17", "\"seed\": 18", 1)).expect("written");
    refused(
        &near("against: words"),
        &["words is damaged", "goodput verify"],
    );
}

#[test]
fn check_says_what_is_read_and_an_empty_release_takes_nothing() {
    let folder = Folder::new();
    write(&folder, "a", &corpus(12, 60));
    write(&folder, "nothing", &[]);
    let stage = |more: &str| format!("  - {NEAR}, {more} }}\n");
    made(&folder, "one", &["a"], &stage("write_index: true"));
    made(&folder, "empty", &["nothing"], &stage("write_index: true"));
    let kept = ids(&folder.out("one")).len();
    pipeline(&folder, "two", &["a"], &stage("against: [empty, one]"));
    let check = folder.goodput(&["check", "two.yaml"]);
    assert_eq!(check.code, Some(0), "{check:?}");
    assert!(
        check
            .stdout
            .contains(&format!("compares with one: {kept} documents")),
        "{}",
        check.stdout
    );
    assert!(check.stdout.contains("compares with empty: 0 documents"));
    let check = folder.goodput(&["check", "two.yaml", "--format", "json"]);
    let plan: Value = serde_json::from_str(&check.stdout).expect("JSON");
    let bytes = fs::metadata(folder.path("one/index/near_dedupe-part-00000.parquet"))
        .expect("there")
        .len();
    assert_eq!(plan["against"][1]["index_bytes"], bytes);
    assert_eq!(plan["against"][1]["estimated_work_bytes"], kept * 20 * 16);
    go(&folder, "two", &[]);
    assert_eq!(ids(&folder.out("two")).len(), 0);
    let out = made(&folder, "three", &["a"], &stage("against: empty"));
    assert_eq!(ids(&out).len(), kept);
}

#[test]
fn what_a_later_stage_turns_away_is_in_no_index_and_texts_are_those_of_the_stage() {
    let folder = Folder::new();
    let text = |n: usize| {
        format!("A line that stands in every one of the documents here\nand one more, number {n}")
    };
    let documents: Vec<(String, String)> = (0..20).map(|n| (format!("d{n:04}"), text(n))).collect();
    write(&folder, "a", &documents);
    let first = made(
        &folder,
        "one",
        &["a"],
        "  - exact_dedupe: { write_index: true }\n  - line_dedupe: { min_characters: 30 }\n  - length: { min_tokens: 40 }\n",
    );
    let kept = ids(&first);
    assert_eq!(kept.len(), 1);
    // The rest was read and not kept: it may come again. What was kept is known as it was before the cut.
    let second = made(
        &folder,
        "two",
        &["a"],
        "  - exact_dedupe: { against: one }\n",
    );
    assert_eq!(ids(&second).len(), 19);
    assert_eq!(
        gone(&second),
        [(
            "d0000".to_string(),
            "d0000".to_string(),
            Some("one".to_string())
        )]
    );
}

#[test]
fn a_guarded_stage_names_the_release_whose_page_takes_too_much() {
    let folder = Folder::new();
    let page = |own: usize| {
        let words: Vec<String> = (0..200).map(|i| format!("word{i}")).collect();
        format!("{} own{own}", words.join(" "))
    };
    let documents = |range: std::ops::Range<usize>| -> Vec<(String, String)> {
        range.map(|n| (format!("d{n:04}"), page(n))).collect()
    };
    write(&folder, "a", &documents(0..1));
    write(&folder, "b", &documents(1..60));
    made(
        &folder,
        "one",
        &["a"],
        "  - near_dedupe: { write_index: true }\n",
    );
    pipeline(
        &folder,
        "two",
        &["b"],
        "  - near_dedupe: { against: one, guard_min_documents: 10 }\n",
    );
    folder.goodput(&["run", "two.yaml"]).fails(&[
        "'d0000' of the earlier release one",
        "'max_cluster_loss'",
        "'max_source_loss'",
        "'allow'",
    ]);
}

#[test]
#[expect(clippy::print_stdout, reason = "says what was measured")]
fn the_labelled_documents_in_two_releases_are_as_in_one_run() {
    let folder = Folder::new();
    let shared = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../shared/data/labelled"
    ));
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    for file in ["neardup-docs-00.jsonl.zst", "neardup-docs-01.jsonl.zst"] {
        let Ok(file) = fs::File::open(shared.join(file)) else {
            println!("skipped: no shared data");
            return;
        };
        let lines = String::from_utf8(zstd::decode_all(file).expect("whole")).expect("UTF-8");
        for line in lines.split('\n').filter(|line| !line.is_empty()) {
            let document: Value = serde_json::from_str(line).expect("JSON");
            let of = |key: &str| document[key].as_str().expect("a text").to_string();
            texts.insert(of("id"), of("text"));
        }
    }
    // Every second document is of the first release.
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for (n, document) in texts.into_iter().enumerate() {
        if n % 2 == 0 { &mut a } else { &mut b }.push(document);
    }
    write(&folder, "a", &a);
    write(&folder, "b", &b);
    pipeline(&folder, "whole", &["a", "b"], "  - near_dedupe: {}\n");
    pipeline(
        &folder,
        "one",
        &["a"],
        "  - near_dedupe: { write_index: true }\n",
    );
    pipeline(
        &folder,
        "two",
        &["b"],
        "  - near_dedupe: { against: one }\n",
    );
    for name in ["whole", "one", "two"] {
        go(&folder, name, &["--threads", "2"]);
    }
    let released: BTreeSet<&String> = a.iter().map(|(id, _)| id).collect();
    let whole: Vec<_> = folder
        .out("whole")
        .duplicates()
        .into_iter()
        .filter(|row| !released.contains(&row.dropped_id))
        .map(|mut row| {
            row.kept_release = released.contains(&row.kept_id).then(|| "one".to_string());
            row
        })
        .collect();
    let two = folder.out("two").duplicates();
    assert_eq!(two, whole);
    let from_release = two.iter().filter(|row| row.kept_release.is_some()).count();
    let manifest = folder.out("one").manifest();
    let index = manifest
        .files
        .iter()
        .find(|file| file.path.starts_with("index/"))
        .expect("written");
    println!(
        "{} of {} documents of the second release went, {from_release} of them because of the first; its index has {} documents \
         and {} bytes, {} a document and {:.2} a byte of text",
        two.len(),
        b.len(),
        index.rows,
        index.bytes,
        index.bytes / index.rows,
        index.bytes as f64 / manifest.totals.kept.bytes as f64
    );
    assert!(from_release > 50);
}
