//! `span_dedupe`: stretches of tokens that stand elsewhere are cut out of texts.

use super::edits::{cuts, edited, with_ids};
use crate::support::{Folder, Numbers};
use goodput::tokenizer::{Tokenizer, TokenizerSource};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs;
use std::path::Path;

const GIVEN: &str = "inputs: [{ path: in.jsonl, source: web, id: id }]\n";

#[test]
fn a_repeated_span_goes_and_evidence_says_where_it_stands() {
    let folder = Folder::new();
    with_ids(
        &folder,
        &[
            "The harbour opens at six in the morning.",
            "Note: the harbour opens at six, and closes at ten.",
            "e harbour opens at six i",
            "Nothing of it.",
        ],
    );
    folder.pipeline(&format!(
        "{GIVEN}stages:\n  - span_dedupe: {{ min_tokens: 20 }}\n"
    ));
    let out = folder.run_and_verify();
    assert_eq!(
        out.kept_texts(),
        [
            "Note: t, and closes at ten.",
            "Nothing of it.",
            "The harbour opens at six in the morning.",
        ]
    );
    let (stage, reason) = ("span_dedupe".to_string(), "repeated_span".to_string());
    // A byte is a token here.
    assert_eq!(edited(&out), [(stage.clone(), reason, 1, 23, 23)]);
    let a = || Some("a".to_string());
    assert_eq!(
        cuts(&out),
        [
            ("b".to_string(), stage.clone(), 7..30, a(), 23, false),
            ("c".to_string(), stage, 0..24, a(), 0, true),
        ]
    );
    let [reject] = out.rejects().try_into().expect("one");
    assert_eq!((reject.doc_id.as_str(), reject.value), ("c", 24.0));
    // What repeats many documents is no duplicate of one.
    let ran = folder.goodput(&["audit", "out", "--duplicates"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn no_occurrence_stays_on_request() {
    let folder = Folder::new();
    with_ids(
        &folder,
        &["one: abcdefghijkl, two", "three abcdefghijkl. four"],
    );
    folder.pipeline(&format!(
        "{GIVEN}stages:\n  - span_dedupe: {{ min_tokens: 12, keep: none }}\n"
    ));
    let out = folder.run_and_verify();
    assert_eq!(out.kept_texts(), ["one:, two", "three. four"]);
}

#[test]
fn a_character_that_a_span_holds_only_in_part_stays() {
    let folder = Folder::new();
    // The bytes of 'é' and 'è' begin with the same one, those of 'ä' and 'Ĥ' end with the same one.
    with_ids(&folder, &["xäabcdefghijé.", "yĤabcdefghijè!"]);
    folder.pipeline(&format!(
        "{GIVEN}stages:\n  - span_dedupe: {{ min_tokens: 12 }}\n"
    ));
    let out = folder.run_and_verify();
    assert_eq!(out.kept_texts(), ["xäabcdefghijé.", "yĤè!"]);
    folder.goodput(&[
        "run",
        "p.yaml",
        "--out",
        "longer",
        "--set",
        "stages.span_dedupe.min_tokens=13",
    ]);
    assert_eq!(folder.out("longer").kept_texts().len(), 2);
    assert!(edited(&folder.out("longer")).is_empty());
}

#[test]
fn a_character_that_two_spans_share_goes_with_them() {
    let folder = Folder::new();
    // Of the last one, 'ä' begins in a stretch of the first text and ends in one of the second: its bytes are C3 A4,
    // those of 'ö' C3 B6, those of 'Ĥ' C4 A4.
    with_ids(
        &folder,
        &[
            "x abcdefghijklö",
            "y Ĥmnopqrstuvwx",
            "z abcdefghijklämnopqrstuvwx!",
        ],
    );
    folder.pipeline(&format!(
        "{GIVEN}stages:\n  - span_dedupe: {{ min_tokens: 12 }}\n"
    ));
    let out = folder.run_and_verify();
    assert_eq!(
        out.kept_texts(),
        ["x abcdefghijklö", "y Ĥmnopqrstuvwx", "z!"]
    );
    let rows: Vec<_> = cuts(&out)
        .into_iter()
        .map(|(_, _, bytes, kept, _, _)| (bytes, kept.expect("kept")))
        .collect();
    assert_eq!(rows, [(1..14, "a".to_string()), (14..28, "b".to_string())]);
}

#[test]
fn an_edit_after_the_score_is_refused_and_so_is_a_span_too_short_to_tell() {
    let folder = Folder::new();
    with_ids(&folder, &["a", "b"]);
    folder.pipeline(&format!(
        "{GIVEN}stages:\n  - score: {{ estimator: random }}\n  - span_dedupe: {{}}\n"
    ));
    folder
        .goodput(&["check", "p.yaml"])
        .refuses(&["span_dedupe", "before 'score'"]);
    folder.pipeline(&format!(
        "{GIVEN}stages:\n  - span_dedupe: {{ min_tokens: 7 }}\n"
    ));
    folder
        .goodput(&["check", "p.yaml"])
        .refuses(&["'min_tokens' must be from 8 to 10_000, got 7"]);
}

/// Tokens that lie in a stretch of `n` which stands earlier, by a table of all stretches.
fn repeated(documents: &[Vec<u32>], n: usize) -> u64 {
    let mut first: HashMap<&[u32], ()> = HashMap::new();
    let mut repeated = 0;
    for ids in documents {
        let mut open_until = 0;
        for (start, stretch) in ids.windows(n).enumerate() {
            if first.insert(stretch, ()).is_some() {
                repeated += (start + n - open_until.max(start)) as u64;
                open_until = start + n;
            }
        }
    }
    repeated
}

/// Ids of the documents of a packed file, in order of their own ids.
fn tokenized(file: &Path, tokenizer: &Tokenizer) -> Vec<Vec<u32>> {
    let packed = fs::File::open(file).expect("a file");
    let lines = zstd::decode_all(packed).expect("unpacks");
    let mut documents: Vec<(String, Vec<u32>)> = lines
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| {
            let record: Value = serde_json::from_slice(line).expect("a record");
            let text = |field: &str| record[field].as_str().expect("a text").to_string();
            let mut ids = Vec::new();
            tokenizer
                .encode_into(&text("text"), &mut ids)
                .expect("encodes");
            (text("id"), ids)
        })
        .collect();
    documents.sort();
    documents.into_iter().map(|(_, ids)| ids).collect()
}

#[test]
#[expect(clippy::print_stdout, reason = "says that nothing was tested")]
fn shared_pages_lose_exactly_what_stands_earlier() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    if !data.exists() {
        println!("skipped: no shared data");
        return;
    }
    let data = data.canonicalize().expect("a folder");
    for (file, tokenizer) in [
        (
            "mix/kafka-manual-00.jsonl.zst",
            "tokenizers/gpt2/tokenizer.json",
        ),
        (
            "mix/gnome-help-00.jsonl.zst",
            "tokenizers/qwen3/tokenizer.json.zst",
        ),
    ] {
        let (file, tokenizer) = (data.join(file), data.join(tokenizer));
        let folder = Folder::new();
        folder.write(
            "p.yaml",
            format!(
                "version: 1\nname: spans\nseed: 1\n\
                 inputs: [{{ path: '{}', source: web, id: id }}]\n\
                 tokenizer: {{ file: '{}' }}\n\
                 stages:\n  - span_dedupe: {{}}\n\
                 order: {{ strategy: shuffle }}\npack: {{ method: none }}\noutput: {{ path: out }}\n",
                file.display(),
                tokenizer.display()
            ),
        );
        let out = folder.run_and_verify();
        let loaded = Tokenizer::load(&TokenizerSource::File(tokenizer), None).expect("loads");
        let documents = tokenized(&file, &loaded);
        let expected = repeated(&documents, 50);
        let audit = out.audit();
        let note = |name: &str| {
            let note = audit.notes.iter().find(|note| note.note == name);
            note.expect("counted").count
        };
        assert_eq!(note("tokens_repeated"), expected, "{}", file.display());
        assert!(expected > 50_000, "{expected}");
    }
}

/// Documents of words with copied stretches.
pub(super) fn with_copies(seed: u64, count: usize) -> String {
    let mut numbers = Numbers(seed);
    let stock: Vec<String> = (0..6).map(|_| numbers.words(30)).collect();
    (0..count)
        .map(|at| {
            let mut text = numbers.words(12);
            for _ in 0..numbers.below(3) {
                text.push(' ');
                text.push_str(&stock[numbers.below(stock.len())]);
                text.push(' ');
                text.push_str(&numbers.words(5));
            }
            json!({ "id": format!("c{at:03}"), "text": text }).to_string() + "\n"
        })
        .collect()
}

#[test]
fn running_on_the_output_finds_little_and_order_of_reading_changes_nothing() {
    let folder = Folder::new();
    let lines = with_copies(3, 120);
    folder.write("in.jsonl", &lines);
    let stage = format!("{GIVEN}stages:\n  - span_dedupe: {{ min_tokens: 40 }}\n");
    folder.pipeline(&stage);
    let out = folder.run_and_verify();
    let kept = out.texts();
    assert!(edited(&out)[0].4 > 1_000);
    // Written backwards, the same documents keep what they kept: the first is by id.
    let backwards: String = lines
        .lines()
        .rev()
        .map(|line| line.to_string() + "\n")
        .collect();
    folder.write("in.jsonl", backwards);
    folder.goodput(&["run", "p.yaml", "--out", "backwards"]);
    assert_eq!(folder.out("backwards").texts(), kept);
}
