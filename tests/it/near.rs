//! Near duplicates: against pairs whose similarity is known, the rules for what stays, the guard, and
//! what the ledger says of them.

use crate::support::{Duplicate, Folder, Numbers, Out, line};
use goodput::algo::words;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The labelled documents by id, and the pairs of the table: (a, b, exact Jaccard similarity to four
/// digits).
struct Labelled {
    texts: BTreeMap<String, String>,
    pairs: Vec<(String, String, f64)>,
}

#[expect(clippy::print_stdout, reason = "says why it did nothing")]
fn labelled() -> Option<Labelled> {
    let folder = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../shared/data/labelled"
    ));
    let Ok(table) = fs::File::open(folder.join("neardup-pairs.tsv.zst")) else {
        println!("skipped: no shared data");
        return None;
    };
    let mut texts = BTreeMap::new();
    for file in ["neardup-docs-00.jsonl.zst", "neardup-docs-01.jsonl.zst"] {
        let file = fs::File::open(folder.join(file)).expect("beside the table");
        let lines = String::from_utf8(zstd::decode_all(file).expect("whole")).expect("UTF-8");
        for line in lines.split('\n').filter(|line| !line.is_empty()) {
            let document: Value = serde_json::from_str(line).expect("JSON");
            let of = |key: &str| document[key].as_str().expect("a text").to_string();
            texts.insert(of("id"), of("text"));
        }
    }
    let table = String::from_utf8(zstd::decode_all(table).expect("whole")).expect("UTF-8");
    let pair = |row: &str| {
        let columns: Vec<&str> = row.split('\t').collect();
        let similarity = columns[3].parse().expect("a number");
        (columns[0].to_string(), columns[1].to_string(), similarity)
    };
    Some(Labelled {
        texts,
        pairs: table.lines().skip(1).map(pair).collect(),
    })
}

/// Documents with ids, in this order.
fn write_documents<'a>(
    folder: &Folder,
    name: &str,
    documents: impl Iterator<Item = (&'a String, &'a String)>,
) {
    let lines: String = documents
        .map(|(id, text)| json!({ "id": id, "text": text }).to_string() + "\n")
        .collect();
    folder.write(name, lines);
}

/// A set of runs of five words, made with the library's words and the standard library's sets.
fn shingles(text: &str) -> BTreeSet<Vec<u64>> {
    let mut hashes = Vec::new();
    words::normalised_words(text, &mut hashes);
    hashes.windows(5).map(<[u64]>::to_vec).collect()
}

const WITH_IDS: &str = "inputs:\n  - { path: in.jsonl, source: web, id: id }\n";

#[test]
#[expect(clippy::print_stdout, reason = "says what was measured")]
fn of_the_labelled_pairs_all_that_goes_is_similar_and_what_is_similar_goes() {
    let Some(Labelled { texts, pairs }) = labelled() else {
        return;
    };
    let folder = Folder::new();
    write_documents(&folder, "in.jsonl", texts.iter());
    folder.pipeline(&format!("{WITH_IDS}stages:\n  - near_dedupe: {{}}\n"));
    folder.run(&["--threads", "1"]);
    let out = folder.out("out");
    let duplicates = out.duplicates();

    // Every similarity in the evidence is exact, and reaches the bound.
    let sets: BTreeMap<&String, BTreeSet<Vec<u64>>> = texts
        .iter()
        .map(|(id, text)| (id, shingles(text)))
        .collect();
    for duplicate in &duplicates {
        let (a, b) = (&sets[&duplicate.dropped_id], &sets[&duplicate.kept_id]);
        let shared = a.intersection(b).count();
        let exact = shared as f64 / (a.len() + b.len() - shared) as f64;
        assert_eq!(duplicate.similarity, exact as f32, "{duplicate:?}");
        assert!(exact >= 0.8, "{duplicate:?}");
    }
    let dropped: BTreeSet<&str> = duplicates
        .iter()
        .map(|row| row.dropped_id.as_str())
        .collect();
    assert!(
        duplicates
            .iter()
            .all(|row| !dropped.contains(row.kept_id.as_str()))
    );

    // Against the table, whose words differ a little in some scripts.
    let known: BTreeMap<(&str, &str), f64> = pairs
        .iter()
        .flat_map(|(a, b, similarity)| {
            [
                ((a.as_str(), b.as_str()), *similarity),
                ((b.as_str(), a.as_str()), *similarity),
            ]
        })
        .collect();
    let (mut in_table, mut largest) = (0, 0.0);
    for duplicate in &duplicates {
        let pair = (duplicate.dropped_id.as_str(), duplicate.kept_id.as_str());
        if let Some(&similarity) = known.get(&pair) {
            in_table += 1;
            largest = f64::max(
                largest,
                (f64::from(duplicate.similarity) - similarity).abs(),
            );
            assert!(
                similarity >= 0.8,
                "{duplicate:?} has {similarity} in the table"
            );
        }
    }
    let similar: Vec<_> = pairs
        .iter()
        .filter(|(_, _, similarity)| *similarity > 0.85)
        .collect();
    let found = similar
        .iter()
        .filter(|(a, b, _)| dropped.contains(a.as_str()) || dropped.contains(b.as_str()))
        .count();
    println!(
        "{} of {} documents went, {in_table} of these pairs stand in the table, where similarities differ by {largest:.6} at \
         most; of {} pairs above 0.85 {found} were found",
        duplicates.len(),
        texts.len(),
        similar.len()
    );
    assert!(in_table > 20 && similar.len() > 200);
    assert!(
        found * 100 >= similar.len() * 99,
        "{found} of {}",
        similar.len()
    );

    // The same for other threads, another cut, another order in the file.
    let mut numbers = Numbers(3);
    let mut shuffled: Vec<_> = texts
        .iter()
        .map(|pair| (numbers.below(1 << 30), pair))
        .collect();
    shuffled.sort();
    write_documents(
        &folder,
        "shuffled.jsonl",
        shuffled.into_iter().map(|(_, pair)| pair),
    );
    folder.run(&["--threads", "2", "--slice", "3MB", "--out", "two"]);
    folder.pipeline(&format!(
        "{}stages:\n  - near_dedupe: {{}}\n",
        WITH_IDS.replace("in.jsonl", "shuffled.jsonl")
    ));
    folder.run(&["--threads", "4", "--slice", "1MB", "--out", "four"]);
    for other in ["two", "four"] {
        assert!(folder.out(other).duplicates() == duplicates, "{other}");
    }
}

/// Pages of 100 words of which some are changed: of 96 shingles a changed word in the middle takes 5.
fn page(changed: &[usize]) -> String {
    let word = |i: usize| {
        let kind = if changed.contains(&i) {
            "changed"
        } else {
            "word"
        };
        format!("{kind}{i}")
    };
    (0..100).map(word).collect::<Vec<_>>().join(" ")
}

fn kept_ids(out: &Out) -> Vec<String> {
    out.texts().into_keys().collect()
}

fn run(folder: &Folder, sections: &str) -> Out {
    folder.pipeline(sections);
    folder.run(&["--replace", "--fresh"]);
    folder.verify("out");
    folder.out("out")
}

#[test]
fn where_none_is_kept_all_that_is_similar_goes_and_the_rest_stays() {
    let folder = Folder::new();
    let mut texts = vec![
        page(&[]),
        "one of a kind".to_string(),
        page(&[50]),
        page(&[]),
    ];
    texts.push(Numbers(4).words(80));
    folder.documents("in.jsonl", &texts);
    let out = run(&folder, "stages:\n  - near_dedupe: { keep: none }\n");
    let mut others = vec![texts[1].clone(), texts[4].clone()];
    others.sort();
    assert_eq!(out.kept_texts(), others);
    let duplicates = out.duplicates();
    assert_eq!(duplicates.len(), 3);
    let id_of = |text: usize| {
        let place: usize = texts[..text].iter().map(|text| line(text).len()).sum();
        format!("in.jsonl:{place}")
    };
    // The first one goes because of the next one that is similar, the others because of the first.
    let of = |duplicate: &Duplicate| (duplicate.dropped_id.clone(), duplicate.kept_id.clone());
    assert_eq!(
        duplicates.iter().map(of).collect::<Vec<_>>(),
        [
            (id_of(0), id_of(2)),
            (id_of(2), id_of(0)),
            (id_of(3), id_of(0))
        ]
    );
    assert!(
        duplicates
            .iter()
            .all(|row| row.rule == "near_dedupe keep none")
    );
    // What a run keeps has nothing similar in it.
    folder.documents("in.jsonl", &out.kept_texts());
    assert_eq!(
        run(&folder, "stages:\n  - near_dedupe: { keep: none }\n").duplicates(),
        []
    );
}

#[test]
fn shingles_are_of_words_tokens_or_characters() {
    let folder = Folder::new();
    // The same words in other letters, and with other punctuation.
    let words = page(&[]);
    let (loud, listed) = (words.to_uppercase(), words.replace(' ', ", "));
    folder.documents("in.jsonl", &[&words, &loud, &listed]);
    let kept = |options: &str| {
        let out = run(
            &folder,
            &format!("stages:\n  - near_dedupe: {{ {options} }}\n"),
        );
        let dropped: Vec<f32> = out.duplicates().iter().map(|row| row.similarity).collect();
        (out.texts().len(), dropped)
    };
    assert_eq!(kept("shingle_words: 5"), (1, vec![1.0, 1.0]));
    assert_eq!(kept(""), kept("shingle_words: 5"));
    // Punctuation makes a difference, case does not.
    assert_eq!(kept("shingle_characters: 5"), (2, vec![1.0]));
    // The tokens of the test's tokenizer are bytes: both make one.
    assert_eq!(kept("shingle_tokens: 5"), (3, vec![]));
    folder.pipeline("stages:\n  - near_dedupe: { shingle_words: 5, shingle_tokens: 5 }\n");
    folder.goodput(&["check", "p.yaml"]).refuses(&[
        "p.yaml:",
        "'shingle_tokens'",
        "'shingle_words'",
    ]);
}

#[test]
fn containment_takes_the_part_where_the_longest_stays() {
    let folder = Folder::new();
    let whole: Vec<String> = (0..200).map(|i| format!("word{i}")).collect();
    let (whole, part) = (whole.join(" "), whole[10..180].join(" "));
    folder.documents("in.jsonl", &[&part, &whole]);
    let options = "min_similarity: 0.95, keep: longest, bands: 20, rows: 4";
    let stage = |more: &str| format!("stages:\n  - near_dedupe: {{ {options}{more} }}\n");
    assert_eq!(run(&folder, &stage("")).texts().len(), 2);
    let out = run(&folder, &stage(", measure: containment"));
    assert_eq!(out.kept_texts(), [whole]);
    let [duplicate] = out.duplicates().try_into().expect("one");
    assert_eq!(duplicate.similarity, 1.0);
    assert_eq!(duplicate.rule, "near_dedupe keep longest by containment");
}

#[test]
fn names_that_keep_their_order_change_nothing_and_a_second_run_takes_nothing() {
    let mut numbers = Numbers(9);
    let texts: Vec<String> = (0..300)
        .map(|_| {
            let changed: Vec<usize> = (0..numbers.below(6)).map(|_| numbers.below(100)).collect();
            page(&changed)
        })
        .collect();
    let folder = Folder::new();
    let mut kept: Vec<Vec<usize>> = Vec::new();
    for name in ["a{}", "z-other-{}"] {
        let ids: Vec<String> = (0..texts.len())
            .map(|n| name.replace("{}", &format!("{n:04}")))
            .collect();
        write_documents(&folder, "in.jsonl", ids.iter().zip(&texts));
        let out = run(
            &folder,
            &format!("{WITH_IDS}stages:\n  - near_dedupe: {{}}\n"),
        );
        let of = |id: &String| {
            ids.iter()
                .position(|other| other == id)
                .expect("one of them")
        };
        kept.push(kept_ids(&out).iter().map(of).collect());
    }
    assert_eq!(kept[0], kept[1]);
    assert!(
        kept[0].len() > 10 && kept[0].len() < 290,
        "{}",
        kept[0].len()
    );
    let output: Vec<&String> = kept[0].iter().map(|&n| &texts[n]).collect();
    folder.documents("in.jsonl", &output);
    assert_eq!(
        run(&folder, "stages:\n  - near_dedupe: {}\n").duplicates(),
        []
    );
}

/// 150 pages that are a template and ten words of their own, and 30 pages of another source. Also the
/// share of all tokens that is in the pages but the first.
fn templates() -> (Folder, f64) {
    let folder = Folder::new();
    let mut numbers = Numbers(5);
    let head = numbers.words(120);
    let pages: Vec<String> = (0..150)
        .map(|_| format!("{head} {}", numbers.words(10)))
        .collect();
    folder.documents("in.jsonl", &pages);
    let others: Vec<String> = (0..30).map(|_| numbers.words(60)).collect();
    folder.documents("other.jsonl", &others);
    let tokens = |texts: &[String]| texts.iter().map(String::len).sum::<usize>() as f64;
    let share = tokens(&pages[1..]) / (tokens(&pages) + tokens(&others));
    (folder, share)
}

const TWO_SOURCES: &str =
    "inputs:\n  - { path: in.jsonl, source: web }\n  - { path: other.jsonl, source: other }\n";

#[test]
fn a_template_that_takes_a_source_away_stops_the_run_with_its_name() {
    let (folder, share) = templates();
    let try_with = |options: &str| {
        folder.pipeline(&format!(
            "{TWO_SOURCES}stages:\n  - near_dedupe: {{ min_similarity: 0.7{options} }}\n"
        ));
        folder.goodput(&["run", "p.yaml", "--progress", "off", "--replace"])
    };
    let bounded = ", guard_min_documents: 100";
    let ran = try_with(bounded);
    ran.fails(&[
        "'near_dedupe'",
        "source 'web' would lose 149 of 150 documents (99.3 %)",
        "because of 'in.jsonl:0'",
        "because of document 'in.jsonl:0' would go 149 of 180 documents (82.8 %)",
        "'max_cluster_loss' (0.1)",
        "add 'web' to 'allow'",
        "add 'in.jsonl:0' to 'allow'",
    ]);
    assert!(!ran.stderr.contains("source 'other'"), "{ran:?}");
    assert!(!folder.path("out/manifest.json").exists());
    // Each of the two bounds alone.
    let source = try_with(&format!("{bounded}, allow: [\"in.jsonl:0\"]"));
    source.fails(&["source 'web' would lose"]);
    assert!(!source.stderr.contains("because of document"), "{source:?}");
    let cluster = try_with(&format!("{bounded}, allow: [web]"));
    cluster.fails(&["because of document 'in.jsonl:0' would go"]);
    assert!(
        !cluster.stderr.contains("source 'web' would"),
        "{cluster:?}"
    );
    // What lets it pass: a name, a bound, a size.
    for options in [
        format!("{bounded}, allow: [web, \"in.jsonl:0\"]"),
        format!("{bounded}, max_source_loss: 0.995, max_cluster_loss: 0.92"),
        ", guard_min_documents: 151".to_string(),
        String::new(),
    ] {
        let ran = try_with(&options);
        assert_eq!(ran.code, Some(0), "{options}: {ran:?}");
        folder.verify("out");
        assert_eq!(folder.out("out").texts().len(), 31);
    }
    // Of tokens it is more than of documents, and that counts too.
    assert!(share > 149.0 / 180.0 + 0.01);
    for (bound, code) in [(share + 1e-9, 0), (share - 1e-9, 1)] {
        let ran = try_with(&format!(
            "{bounded}, max_source_loss: 1, max_cluster_loss: {bound}"
        ));
        assert_eq!(ran.code, Some(code), "{bound}: {ran:?}");
    }
}

#[test]
fn the_duplicates_are_audited_by_source_and_between_sources() {
    let folder = Folder::new();
    let (one, two) = (page(&[]), Numbers(6).words(60));
    // web: the page, a near copy, a text; other: the page again twice, the text, something of its own.
    folder.documents("in.jsonl", &[&one, &page(&[40]), &two]);
    folder.documents("other.jsonl", &[&one, &one, &two, &Numbers(7).words(50)]);
    let out = run(
        &folder,
        &format!(
            "{TWO_SOURCES}stages:\n  - exact_dedupe: {{}}\n  - near_dedupe: {{}}\n  - length: {{ min_tokens: 600 }}\n"
        ),
    );
    // The text is kept by the dedupes and goes for its length: its source is found all the same.
    assert_eq!(kept_ids(&out), ["in.jsonl:0"]);
    let ask = |arguments: &[&str]| {
        folder.goodput(&[&["audit", "out", "--duplicates"], arguments].concat())
    };
    let ran = ask(&["--format", "json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let report: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let (one, near, two) = (one.len(), page(&[40]).len(), two.len());
    assert_eq!(
        report["matrix"],
        json!([
            { "dropped_source": "web", "kept_source": "web", "documents": 1, "tokens": near },
            { "dropped_source": "other", "kept_source": "web", "documents": 3, "tokens": 2 * one + two },
        ])
    );
    assert_eq!(
        report["dropped"],
        json!({ "documents": 4, "tokens": near + 2 * one + two })
    );
    assert_eq!(report["clusters"], json!(2));
    let by_source = report["by_source"].as_array().expect("a list");
    assert_eq!(
        by_source[0]["dropped_for_other_sources"]["tokens"],
        json!(0)
    );
    assert_eq!(
        by_source[1]["dropped_for_other_sources"]["tokens"],
        json!(2 * one + two)
    );
    let largest = &report["largest_clusters"][0];
    assert_eq!(largest["kept_id"], json!("in.jsonl:0"));
    assert_eq!(
        (&largest["documents"], &largest["tokens"]),
        (&json!(3), &json!(near + 2 * one))
    );
    assert_eq!(largest["lowest_similarity"], json!(91.0 / 101.0));
    assert_eq!(largest["examples"].as_array().map(Vec::len), Some(3));
    assert_eq!(report["largest_clusters"][1]["kept_source"], json!("web"));
    let holds = report["identities"].as_array().expect("a list");
    assert!(
        holds.len() == 3
            && holds
                .iter()
                .all(|identity| identity["holds"] == json!(true))
    );

    let table = ask(&[]).stdout;
    assert!(
        table.contains("in.jsonl:0 (web)") && table.contains("exact_dedupe"),
        "{table}"
    );
    let csv = ask(&["--format", "csv"]).stdout;
    assert_eq!(
        csv,
        format!(
            "dropped_source,kept_source,documents,tokens\nweb,web,1,{near}\nother,web,3,{}\n",
            2 * one + two
        )
    );
    let html = ask(&["--format", "html"]).stdout;
    assert!(html.starts_with("<!doctype html>"));
    assert!(html.contains("in.jsonl:0"), "{html}");
    assert_eq!(
        out.names(),
        folder.out("out").names(),
        "nothing is left in the folder"
    );

    run(
        &folder,
        &format!(
            "{TWO_SOURCES}stages:\n  - near_dedupe: {{}}\noutput: {{ path: out, rejects: none }}\n"
        ),
    );
    ask(&[]).refuses(&["rejects: tokens"]);
    ask(&["--by", "source"]).refuses(&["--duplicates", "--by"]);
}

#[test]
fn check_prints_the_curve_of_what_was_chosen() {
    let folder = Folder::new();
    folder.documents("in.jsonl", &["a text"]);
    let check = |options: &str| -> (Value, String) {
        folder.pipeline(&format!("stages:\n  - near_dedupe: {{ {options} }}\n"));
        let ran = folder.goodput(&["check", "p.yaml", "--format", "json"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let json: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        (
            json["near_dedupe"][0].clone(),
            folder.goodput(&["check", "p.yaml"]).stdout,
        )
    };
    let shape = |near: &Value| (near["bands"].as_u64(), near["rows"].as_u64());
    let probability = |near: &Value, similarity: f64| {
        let points = near["curves"][0]["points"].as_array().expect("points");
        let at = |point: &&Value| {
            (point["similarity"].as_f64().expect("a number") - similarity).abs() < 1e-9
        };
        points.iter().find(at).expect("on the curve")["probability"]
            .as_f64()
            .expect("a number")
    };
    for (options, similarity) in [
        ("", 0.85),
        ("min_similarity: 0.6", 0.65),
        ("min_similarity: 0.9", 0.95),
    ] {
        let (near, _) = check(options);
        assert!(probability(&near, similarity) >= 0.99, "{near}");
        assert!(shape(&near).0 > Some(1), "{near}");
    }
    let (near, table) = check("");
    assert_eq!(shape(&near), (Some(15), Some(8)));
    assert!(
        table.contains("15 bands of 8 rows (chosen by min_similarity)"),
        "{table}"
    );
    assert!(table.contains("1.00") && table.contains("0.992"), "{table}");
    // Given ones are taken, and one of them chooses the other.
    let (near, table) = check("bands: 14, rows: 8");
    assert_eq!(shape(&near), (Some(14), Some(8)));
    assert!(!table.contains("chosen"), "{table}");
    assert_eq!(shape(&check("rows: 6").0), (Some(10), Some(6)));
    assert_eq!(shape(&check("bands: 15").0), (Some(15), Some(8)));
    // By containment, documents of one size are meant; smaller parts are proposed less often.
    let (near, table) = check("measure: containment");
    assert!(probability(&near, 0.85) >= 0.99, "{near}");
    let half = near["curves"][2]["points"][7]["probability"]
        .as_f64()
        .expect("a number");
    assert!(half < probability(&near, 0.85), "{near}");
    assert!(table.contains("half of it"), "{table}");
    // Bands that would leave most of what is asked for where it is are warned of, and the curve shows it.
    let (near, table) = check("min_similarity: 0.3, bands: 5, rows: 4");
    assert!((probability(&near, 0.3) - 0.0399).abs() < 1e-3, "{near}");
    assert!(
        table.contains("warning") && table.contains("4.0 % of the pairs"),
        "{table}"
    );
    assert!(!check("min_similarity: 0.3").1.contains("warning"));
    folder.pipeline("stages:\n  - near_dedupe: { min_similarity: 0.2, rows: 9 }\n");
    folder
        .goodput(&["check", "p.yaml"])
        .refuses(&["'rows'", "bands", "got 9"]);
}

#[test]
fn a_full_bucket_stands_in_the_ledger() {
    let (folder, _) = templates();
    let out = run(
        &folder,
        "stages:\n  - near_dedupe: { min_similarity: 0.99, bands: 40, rows: 2, max_bucket: 2 }\n",
    );
    let notes = out.audit().notes;
    let skipped = notes
        .iter()
        .find(|note| note.note == "skipped_full_bucket")
        .expect("a note");
    assert!(
        skipped.count > 0 && skipped.stage == "near_dedupe",
        "{notes:?}"
    );
    assert_eq!(out.duplicates(), []);
}
