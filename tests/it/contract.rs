//! Walks over the tables: every stage, estimator, order, packing method and format keeps one
//! contract. A new entry of a table is tested here without a line of its own.

use crate::support::{Folder, Numbers, language_model, line, losses_line};
use arrow::array::{ArrayRef, StringArray};
use arrow::record_batch::RecordBatch;
use goodput::audit::Audit;
use goodput::plan::{Overrides, StageSpec, load, stage_specs};
use goodput::record::Spec;
use goodput::source::Format;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::sync::Arc;

/// Something that a pipeline can name.
struct Entry {
    /// What `goodput stages` explains.
    spec: &'static Spec,
    /// The stage's entry, where it is one.
    stage: Option<StageSpec>,
    /// Sections of a pipeline, up to where the options stand.
    head: String,
}

impl Entry {
    /// The sections with these options, as they stand in a flow mapping.
    fn sections(&self, options: &str) -> String {
        format!("{}{options} }}\n", self.head)
    }

    /// The example's options, with files that exist.
    fn example(&self) -> String {
        let example = self
            .spec
            .example
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'));
        example
            .expect("a flow mapping")
            .trim()
            .replace("data/reference/*.jsonl.zst", "reference.jsonl")
            .replace("data/losses.jsonl", "losses.jsonl")
            .replace("data/eval/*.jsonl.zst", "eval.jsonl")
            .replace("models/small", "small")
    }
}

/// What gives the keys that orders and selections sort by.
const SCORE: &str = "  - score: { estimator: ngram_excess, reference: reference.jsonl }\n";

fn entries() -> Vec<Entry> {
    let mut entries = Vec::new();
    for stage in stage_specs() {
        let before = if stage.spec.name == "select" {
            SCORE
        } else {
            ""
        };
        let head = format!("stages:\n{before}  - {}: {{ ", stage.spec.name);
        entries.push(Entry {
            spec: stage.spec,
            stage: Some(stage),
            head,
        });
    }
    // The options of these stand beside their names.
    for kind in goodput::score::TABLE {
        let head = format!("stages:\n  - score: {{ estimator: {}, ", kind.spec.name);
        entries.push(Entry {
            spec: &kind.spec,
            stage: None,
            head,
        });
    }
    for spec in goodput::order::specs() {
        let head = format!("stages:\n{SCORE}order: {{ strategy: {}, ", spec.name);
        entries.push(Entry {
            spec,
            stage: None,
            head,
        });
    }
    for spec in goodput::pack::specs() {
        entries.push(Entry {
            spec,
            stage: None,
            head: format!("pack: {{ method: {}, ", spec.name),
        });
    }
    assert!(
        entries.len() >= 8 + 3 + 8 + 3,
        "the tables have been walked"
    );
    entries
}

/// 200 documents: copies, near copies, of one word to 1,500, some in German, some of one line over and over.
fn corpus() -> Vec<String> {
    let mut numbers = Numbers(11);
    let mut texts: Vec<String> = Vec::new();
    for number in 0..200 {
        let words = [1, 3, 8, 40, 150, 600, 1_500][numbers.below(7)];
        texts.push(match number % 8 {
            0 if number > 0 => texts[numbers.below(texts.len())].clone(),
            1 if number > 8 => format!("{} and {number}", texts[numbers.below(texts.len())]),
            2 => "The cat and the dog have been to the end of the road with all of them. "
                .repeat(1 + words / 15),
            3 => "Der Hund lief durch den Wald und fand dort keine Katze.\n".repeat(1 + words / 10),
            _ => numbers.words(words),
        });
    }
    texts
}

fn folder_with_corpus() -> Folder {
    let folder = Folder::new();
    folder.documents("in.jsonl", &corpus());
    let mut numbers = Numbers(12);
    folder.documents(
        "reference.jsonl",
        &(0..60).map(|_| numbers.words(80)).collect::<Vec<_>>(),
    );
    // An item that stands in many of the documents, and one that stands in none.
    let item = "The cat and the dog have been to the end of the road, with ALL of them!";
    folder.documents("eval.jsonl", &[item, "What is the answer to this?"]);
    // What estimators read besides documents.
    for (name, bytes) in language_model(1.0) {
        folder.write(&format!("small/{name}"), bytes);
    }
    let mut losses = folder.losses_header();
    let mut place = 0;
    for text in corpus() {
        losses += &losses_line(&format!("in.jsonl:{place}"), text.len());
        place += line(&text).len();
    }
    losses += &losses_line("single.jsonl:0", corpus()[5].len());
    folder.write("losses.jsonl", losses);
    folder
}

#[test]
fn every_example_builds() {
    let folder = folder_with_corpus();
    for entry in entries() {
        folder.pipeline(&entry.sections(&entry.example()));
        if let Err(problems) = load(&folder.path("p.yaml"), &Overrides::default()) {
            panic!("{}: {problems}", entry.spec.name);
        }
    }
}

#[test]
fn an_unknown_option_is_refused_by_name_with_the_nearest_one() {
    let folder = folder_with_corpus();
    for entry in entries() {
        let name = entry.spec.name;
        let (wrong, nearest) = match entry
            .spec
            .options
            .iter()
            .find(|option| option.name.len() > 4)
        {
            // The last letter but one is left out.
            Some(option) => {
                let mut wrong = option.name.to_string();
                wrong.remove(wrong.len() - 2);
                (wrong, Some(option.name))
            }
            None => ("nonsense".to_string(), None),
        };
        folder.pipeline(&entry.sections(&format!("{wrong}: 1, {}", entry.example())));
        let problems = load(&folder.path("p.yaml"), &Overrides::default())
            .expect_err(name)
            .to_string();
        assert!(
            problems.contains(&format!("'{wrong}'")),
            "{name}: {problems}"
        );
        if let Some(nearest) = nearest {
            assert!(
                problems.contains(&format!("did you mean '{nearest}'")),
                "{name}: {problems}"
            );
        }
        assert!(problems.contains("p.yaml:"), "{name}: {problems}");
    }
}

#[test]
fn every_entry_is_explained() {
    let folder = Folder::new();
    let list = folder.goodput(&["stages"]);
    assert_eq!((list.code, list.stderr.as_str()), (Some(0), ""));
    for entry in entries() {
        let name = entry.spec.name;
        assert!(list.stdout.contains(name), "{name} is not in the list");
        let ran = folder.goodput(&["stages", name]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{name}");
        assert!(
            ran.stdout.contains(entry.spec.example),
            "{name}: {}",
            ran.stdout
        );
        for option in entry.spec.options {
            assert!(ran.stdout.contains(option.name), "{name}: {}", option.name);
        }
        for reason in entry.stage.iter().flat_map(|stage| stage.reasons) {
            assert!(ran.stdout.contains(reason.name), "{name}: {}", reason.name);
        }
    }
    folder
        .goodput(&["stages", "lenght"])
        .refuses(&["'lenght'", "length"]);
}

#[test]
fn nothing_and_a_single_document_are_inputs_too() {
    let folder = folder_with_corpus();
    folder.write("empty.jsonl", "");
    folder.documents("single.jsonl", &[&corpus()[5]]);
    for entry in entries() {
        let name = entry.spec.name;
        // What is not about estimators gets its scores from one that learns nothing.
        let learns = entry
            .spec
            .options
            .iter()
            .any(|option| option.name == "fit_tokens");
        let sections = entry.sections(&entry.example());
        let sections = if learns {
            sections
        } else {
            sections
                .replace(SCORE, "  - score: { estimator: random }\n")
                .replace("difficulty", "length_tokens")
        };
        for input in ["empty", "single"] {
            let out = format!("{name}-{input}");
            folder.pipeline(&format!(
                "inputs:\n  - {{ path: {input}.jsonl, source: web }}\n{sections}"
            ));
            let ran = folder.goodput(&["run", "p.yaml", "--out", &out, "--progress", "off"]);
            if learns && input == "single" && ran.code == Some(1) {
                // There is nothing to learn from, and no output with made-up scores. Whether one
                // document is enough is for the estimator to say.
                ran.fails(&["no document to learn from"]);
                assert!(!folder.path(&out).join("manifest.json").exists(), "{name}");
                continue;
            }
            assert_eq!(ran.code, Some(0), "{name} on {input}: {ran:?}");
            folder.verify(&out);
            let out = folder.out(&out);
            let read = Audit::total(&out.audit().read);
            assert_eq!(read.documents, u64::from(input == "single"), "{name}");
            assert_eq!(
                out.texts().len() + out.rejects().len(),
                read.documents as usize,
                "{name}"
            );
            assert!(input == "single" || out.rows().is_empty(), "{name}");
        }
    }
}

#[test]
fn runs_agree_and_every_document_is_kept_or_rejected_for_a_declared_reason() {
    let folder = folder_with_corpus();
    let all: BTreeSet<String> = {
        let mut place = 0;
        let mut id = |text: &String| {
            let id = format!("in.jsonl:{place}");
            place += line(text).len();
            id
        };
        corpus().iter().map(&mut id).collect()
    };
    assert_eq!(all.len(), 200);
    let declared: BTreeMap<&str, StageSpec> = stage_specs()
        .into_iter()
        .map(|stage| (stage.spec.name, stage))
        .collect();
    let mut reasons_seen = BTreeSet::new();
    for entry in entries() {
        let name = entry.spec.name;
        folder.pipeline(&entry.sections(&entry.example()));
        let run = |out: &str, arguments: &[&str]| {
            folder.run(&[&["--out", out], arguments].concat());
            folder.out(out)
        };
        let one = run(&format!("{name}-one"), &["--threads", "1"]);
        // Other workers, another cut of the input, less memory.
        let many = run(
            &format!("{name}-many"),
            &["--threads", "4", "--slice", "20kB", "--memory", "300MiB"],
        );
        assert_eq!(
            one.files().keys().collect::<Vec<_>>(),
            many.files().keys().collect::<Vec<_>>(),
            "{name}"
        );
        for (file, bytes) in one.files() {
            assert!(many.files()[&file] == bytes, "{name}: {file} differs");
        }
        folder.verify(&format!("{name}-one"));
        let kept: BTreeSet<String> = one.texts().into_keys().collect();
        let rejects = one.rejects();
        let rejected: BTreeSet<String> =
            rejects.iter().map(|reject| reject.doc_id.clone()).collect();
        assert_eq!(
            rejected.len(),
            rejects.len(),
            "{name} rejects a document twice"
        );
        assert!(kept.is_disjoint(&rejected), "{name}");
        assert_eq!(
            kept.union(&rejected).cloned().collect::<BTreeSet<_>>(),
            all,
            "{name}"
        );
        for reject in rejects {
            let stage = &declared[reject.stage.as_str()];
            assert!(
                stage
                    .reasons
                    .iter()
                    .any(|reason| reason.name == reject.reason),
                "{reject:?}"
            );
            assert!(reject.value.is_finite(), "{reject:?}");
            reasons_seen.insert(reject.reason);
        }
        for note in one.audit().notes {
            let of_engine = note.stage == "tokenize";
            let stage = declared.get(note.stage.as_str());
            assert!(
                of_engine || stage.is_some_and(|stage| stage.notes.contains(&note.note.as_str())),
                "{note:?}"
            );
        }
        if entry
            .stage
            .as_ref()
            .is_some_and(|stage| !stage.reasons.is_empty())
        {
            assert!(
                !rejected.is_empty(),
                "the corpus has nothing that {name} turns away"
            );
        } else if entry.stage.is_none() {
            assert!(rejected.is_empty(), "{name} is no filter");
        }
    }
    for reason in [
        "exact_duplicate",
        "near_duplicate",
        "below_share",
        "too_few_tokens",
        "language_not_kept",
    ] {
        assert!(
            reasons_seen.contains(reason),
            "{reason} of {reasons_seen:?}"
        );
    }
}

#[test]
fn every_format_that_can_be_read_gives_the_same_documents() {
    let folder = Folder::new();
    let texts: Vec<String> = corpus().into_iter().take(40).collect();
    let lines: String = texts.iter().map(|text| line(text)).collect();
    let column: ArrayRef = Arc::new(StringArray::from(texts.clone()));
    let batch = RecordBatch::try_from_iter([("text", column)]).expect("a column");
    for (name, format) in Format::NAMES {
        let path = match format {
            Format::Jsonl => {
                folder.write("jsonl/in.data", &lines);
                "in.data"
            }
            Format::Parquet => {
                folder.write("parquet/in.data", "");
                let file = File::create(folder.path("parquet/in.data")).expect("a file");
                let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None)
                    .expect("a writer");
                writer.write(&batch).expect("written");
                writer.close().expect("written");
                "in.data"
            }
            Format::Arrow => {
                folder.write("arrow/in.data", "");
                let file = File::create(folder.path("arrow/in.data")).expect("a file");
                let mut writer = arrow::ipc::writer::FileWriter::try_new(file, &batch.schema())
                    .expect("a writer");
                writer.write(&batch).expect("written");
                writer.finish().expect("written");
                "in.data"
            }
            Format::Text => {
                for (number, text) in texts.iter().enumerate() {
                    folder.write(&format!("text/{number:03}.data"), text);
                }
                "*.data"
            }
            Format::Csv | Format::Warc | Format::Wet => "in.data",
        };
        folder.pipeline(&format!(
            "inputs:\n  - {{ path: {name}/{path}, source: web, format: {name} }}\n"
        ));
        if !format.supported() {
            folder
                .goodput(&["check", "p.yaml"])
                .refuses(&[name, "jsonl"]);
            continue;
        }
        folder.run(&["--out", &format!("out-{name}")]);
        folder.verify(&format!("out-{name}"));
        let mut expected = texts.clone();
        expected.sort();
        assert!(
            folder.out(&format!("out-{name}")).kept_texts() == expected,
            "{name}: other documents"
        );
    }
    folder.pipeline("inputs:\n  - { path: in.jsonl, source: web, format: jsnl }\n");
    folder
        .goodput(&["check", "p.yaml"])
        .refuses(&["'jsnl'", "jsonl"]);
}

#[test]
fn a_packed_file_is_read_like_a_plain_one() {
    let folder = Folder::new();
    let texts: Vec<String> = corpus().into_iter().take(40).collect();
    let lines: String = texts.iter().map(|text| line(text)).collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(lines.as_bytes()).expect("memory");
    folder.write("plain/in.jsonl", &lines);
    folder.write("gz/in.jsonl.gz", gzip.finish().expect("memory"));
    folder.write(
        "zst/in.jsonl.zst",
        zstd::encode_all(lines.as_bytes(), 3).expect("memory"),
    );
    let rows = |name: &str| {
        folder.pipeline(&format!("inputs:\n  - {{ path: {name}/*, source: web }}\n"));
        folder.run(&["--out", &format!("out-{name}")]);
        folder.verify(&format!("out-{name}"));
        let rows = folder.out(&format!("out-{name}")).rows();
        rows.into_iter()
            .map(|row| {
                (
                    row.input_ids,
                    row.segments[0]
                        .doc_id
                        .rsplit_once(':')
                        .map(|(_, place)| place.to_string()),
                )
            })
            .collect::<Vec<_>>()
    };
    let plain = rows("plain");
    assert_eq!(plain.len(), 40);
    // Places are offsets in the unpacked text.
    assert!(rows("gz") == plain && rows("zst") == plain);
}
