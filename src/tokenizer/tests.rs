//! Whole-tokenizer tests; the oracle is tokenizers 0.23.2, called directly.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rayon::prelude::*;
use serde_json::{Value, json};

use super::*;

type Oracle = tokenizers_reference::Tokenizer;

/// Every tokenizer.json among the shared data.
const SHARED_TOKENIZERS: [&str; 3] = [
    "gpt2/tokenizer.json",
    "gpt-neox-olmo/tokenizer.json.zst",
    "qwen3/tokenizer.json.zst",
];

#[expect(clippy::print_stdout, reason = "says why a test did nothing")]
fn shared_data() -> Option<PathBuf> {
    let data = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/data"));
    if data.is_dir() {
        return Some(data.to_owned());
    }
    println!("skipped: no shared data");
    None
}

/// Loads with a folder of verdicts that all tests share, so that each file is checked once.
fn load(path: &Path) -> Tokenizer {
    static VERDICTS: OnceLock<tempfile::TempDir> = OnceLock::new();
    // One at a time, or tests that need the same file would all check it.
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let verdicts = VERDICTS.get_or_init(|| tempfile::tempdir().expect("a temporary folder"));
    load_with(path, Some(verdicts.path())).expect("this file loads")
}

fn load_with(path: &Path, cache: Option<&Path>) -> Result<Tokenizer, TokenizerError> {
    Tokenizer::load(&TokenizerSource::File(path.to_owned()), cache)
}

fn builtin(name: &str) -> Tokenizer {
    Tokenizer::load(&TokenizerSource::Builtin(name.to_owned()), None).expect("a builtin loads")
}

fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let mut ids = vec![7, 7, 7];
    tokenizer.encode_into(text, &mut ids).expect("it encodes");
    ids
}

/// The oracle on the bytes of a tokenizer.json. Its own truncation and padding are taken out; the
/// post-processor stays, told to add nothing.
fn oracle(bytes: &[u8]) -> Oracle {
    let mut oracle = Oracle::from_bytes(bytes).expect("the oracle loads it");
    oracle.set_encode_special_tokens(true);
    oracle
        .with_truncation(None)
        .expect("no truncation is valid");
    oracle.with_padding(None);
    oracle
}

fn oracle_ids(oracle: &Oracle, text: &str) -> Vec<u32> {
    let encoding = oracle.encode(text, false).expect("the oracle encodes");
    encoding.get_ids().to_vec()
}

/// A tokenizer.json written to a folder of its own, with the oracle on it.
struct Made {
    folder: tempfile::TempDir,
    bytes: Vec<u8>,
}

impl Made {
    fn new(json: &Value) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let bytes = serde_json::to_vec(json).expect("JSON prints");
        fs::write(folder.path().join("tokenizer.json"), &bytes).expect("it is written");
        Self { folder, bytes }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("tokenizer.json")
    }

    fn tokenizer(&self) -> Tokenizer {
        load(&self.path())
    }

    fn oracle(&self) -> Oracle {
        oracle(&self.bytes)
    }
}

fn special(id: u32, content: &str) -> Value {
    added(id, content, true)
}

fn added(id: u32, content: &str, special: bool) -> Value {
    json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
           "normalized": false, "special": special})
}

/// GPT-2's character for a byte, by the rule of its makers (not by the code under test).
fn byte_characters() -> Vec<String> {
    let mut next = 0x100;
    (0..=255u32)
        .map(|byte| {
            let code = match byte {
                0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => byte,
                _ => {
                    next += 1;
                    next - 1
                }
            };
            String::from(char::from_u32(code).expect("below the surrogates"))
        })
        .collect()
}

/// A byte-level BPE: 256 bytes, then the given merges, then `<|end|>`.
fn byte_level(merges: &[(&str, &str)]) -> Value {
    let mut vocab: BTreeMap<String, u32> = BTreeMap::new();
    for (id, character) in byte_characters().into_iter().enumerate() {
        vocab.insert(character, id as u32);
    }
    for (left, right) in merges {
        let id = vocab.len() as u32;
        vocab.insert(format!("{left}{right}"), id);
    }
    let end = vocab.len() as u32;
    let merges: Vec<String> = merges.iter().map(|(a, b)| format!("{a} {b}")).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [special(end, "<|end|>")],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                          "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                    "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
                  "continuing_subword_prefix": null, "end_of_word_suffix": null,
                  "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": merges}
    })
}

const SOME_MERGES: [(&str, &str); 8] = [
    ("t", "h"),
    ("th", "e"),
    ("\u{120}", "the"),
    ("a", "a"),
    ("aa", "aa"),
    ("\u{120}", "\u{120}"),
    ("\u{C3}", "\u{A9}"),
    ("i", "n"),
];

/// A SentencePiece-style BPE as Llama 2 has it: `▁` for spaces, bytes for unknown characters.
fn byte_fallback() -> Value {
    let mut vocab: BTreeMap<String, u32> = BTreeMap::new();
    let push = |vocab: &mut BTreeMap<String, u32>, token: String| {
        let id = vocab.len() as u32;
        vocab.entry(token).or_insert(id);
    };
    for token in ["<unk>", "<s>", "</s>"] {
        push(&mut vocab, token.to_owned());
    }
    for byte in 0..=255 {
        push(&mut vocab, format!("<0x{byte:02X}>"));
    }
    for letter in "▁etaoinshrdlué".chars() {
        push(&mut vocab, letter.to_string());
    }
    let merges = [
        "▁ t",
        "h e",
        "▁t he",
        "▁ ▁",
        "▁▁ ▁▁",
        "i n",
        "e r",
        "▁ a",
        "a a",
    ];
    for merge in merges {
        push(&mut vocab, merge.replace(' ', ""));
    }
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": null,
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                     {"Sequence": {"id": "A", "type_id": 0}},
                     {"SpecialToken": {"id": "<s>", "type_id": 1}},
                     {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>",
                  "continuing_subword_prefix": null, "end_of_word_suffix": null,
                  "fuse_unk": true, "byte_fallback": true, "vocab": vocab, "merges": merges}
    })
}

fn unigram() -> Value {
    let mut vocab = vec![
        json!(["<unk>", 0.0]),
        json!(["<s>", 0.0]),
        json!(["</s>", 0.0]),
    ];
    let pieces = [
        "▁", "▁the", "▁t", "he", "t", "h", "e", "a", "i", "n", "in", "ing", "s", "▁a", "o", "r",
        "er", "é", "ing▁", "aa", "aaaa", "1", "12", "漢",
    ];
    for (place, piece) in pieces.iter().enumerate() {
        vocab.push(json!([piece, -2.0 - 0.37 * place as f64]));
    }
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFKC"},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always",
                          "split": true},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": "</s>", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                     {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}},
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always",
                    "split": true},
        "model": {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": false}
    })
}

fn wordpiece() -> Value {
    let tokens = [
        "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "un", "##want", "##ed", "runn",
        "##ing", "a", "b", "##a", "##b", ",", ".", "[", "]", "漢", "##字", "cafe", "1", "##1",
    ];
    let vocab: BTreeMap<&str, usize> = tokens.iter().enumerate().map(|(id, t)| (*t, id)).collect();
    json!({
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst",
                       "stride": 0},
        "padding": {"strategy": {"Fixed": 16}, "direction": "Right", "pad_to_multiple_of": null,
                    "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"},
        "added_tokens": [special(0, "[PAD]"), special(1, "[UNK]"), special(2, "[CLS]"),
                         special(3, "[SEP]"), special(4, "[MASK]")],
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                       "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                     {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
                               "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}}},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": vocab}
    })
}

/// The verdict that the fast engine is right on every character.
fn all_fast() -> Verdict {
    Verdict::Fast(CharacterSet::new(Vec::new()))
}

/// The texts that every made tokenizer is held against the oracle with.
fn hard_texts() -> Vec<String> {
    let mut texts: Vec<String> = check::fixed_probes().into_iter().map(|(_, t)| t).collect();
    texts.extend(
        [
            "",
            "the",
            " the theatre in  the   inn",
            "unwanted running, Café a.b",
            "aaaaaaaa",
            "[CLS] the [SEP]",
            "<s>the</s>",
            "<|end|>the<|end|>",
            "漢字12 1",
        ]
        .map(str::to_owned),
    );
    texts
}

fn equals_the_oracle(tokenizer: &Tokenizer, oracle: &Oracle) {
    for text in hard_texts() {
        assert_eq!(
            ids(tokenizer, &text),
            oracle_ids(oracle, &text),
            "on {text:?}"
        );
    }
}

// ---- Each kind of model -------------------------------------------------------------------

#[test]
fn byte_level_bpe_gives_the_oracles_ids_on_the_fast_engine() {
    let made = Made::new(&byte_level(&SOME_MERGES));
    let tokenizer = made.tokenizer();
    assert_eq!(tokenizer.engine(), engine::FAST);
    assert_eq!(tokenizer.slow_because(), None);
    equals_the_oracle(&tokenizer, &made.oracle());
    // " the" is byte-level token 256 + 2, "a" is byte 97.
    assert_eq!(ids(&tokenizer, "a the"), [97, 258]);
}

#[test]
fn bpe_with_byte_fallback_gives_the_oracles_ids() {
    let made = Made::new(&byte_fallback());
    let tokenizer = made.tokenizer();
    equals_the_oracle(&tokenizer, &made.oracle());
    // No begin token, although the file's post-processor would add one. U+20AC has no token, so
    // its three bytes (from id 3 on) stand for it.
    let bytes: Vec<u32> = "€".bytes().map(|byte| 3 + u32::from(byte)).collect();
    let space = tokenizer.token_id("▁").expect("it is in the vocabulary");
    assert_eq!(ids(&tokenizer, "€"), [vec![space], bytes].concat());
}

#[test]
fn unigram_gives_the_oracles_ids() {
    let made = Made::new(&unigram());
    let tokenizer = made.tokenizer();
    equals_the_oracle(&tokenizer, &made.oracle());
    assert_eq!(
        ids(&tokenizer, "the"),
        [tokenizer.token_id("▁the").expect("in the vocabulary")]
    );
}

#[test]
fn wordpiece_gives_the_oracles_ids_without_truncation_padding_or_added_tokens() {
    let made = Made::new(&wordpiece());
    let tokenizer = made.tokenizer();
    equals_the_oracle(&tokenizer, &made.oracle());
    assert_eq!(
        ids(&tokenizer, "The unwanted, running"),
        [5, 6, 7, 8, 15, 9, 10],
        "seven ids: more than the file's truncation to 4, fewer than its padding to 16"
    );
}

#[test]
fn ids_above_65535_survive() {
    // Ten letters each, so that the pre-tokenizer leaves each in one piece.
    let word = |number: u32| -> String {
        let mut hash = xxhash_rust::xxh3::xxh3_64(&number.to_le_bytes());
        let mut letter = || {
            hash = hash.rotate_right(6);
            char::from(b'a' + (hash % 26) as u8)
        };
        (0..10).map(|_| letter()).collect()
    };
    let last = word(69_999);
    let mut json = byte_level(&[]);
    let vocab = json["model"]["vocab"].as_object_mut().expect("an object");
    for number in 0..70_000 {
        vocab.insert(word(number), json!(256 + number));
    }
    json["model"]["ignore_merges"] = json!(true);
    json["added_tokens"] = json!([special(70_256, "<|end|>")]);
    let made = Made::new(&json);
    let tokenizer = made.tokenizer();
    assert_eq!(ids(&tokenizer, &last), [70_255]);
    assert_eq!(oracle_ids(&made.oracle(), &last), [70_255]);
    assert_eq!(tokenizer.token_id("<|end|>"), Some(70_256));
    assert_eq!(tokenizer.highest_id(), 70_256);
    assert_eq!(tokenizer.vocabulary_size(), 70_257);
    assert_eq!(tokenizer.token_text(70_255), last);
    assert_eq!(tokenizer.decode(&[70_255]), last);
}

#[test]
fn a_byte_level_vocabulary_without_a_byte_is_encoded_by_the_reference() {
    let mut json = byte_level(&SOME_MERGES);
    let vocab = json["model"]["vocab"].as_object_mut().expect("an object");
    vocab.remove("!");
    let made = Made::new(&json);
    let tokenizer = made.tokenizer();
    assert_eq!(tokenizer.engine(), engine::REFERENCE);
    let reason = tokenizer.slow_because().expect("there is a reason");
    assert!(reason.contains("0x21"), "{reason}");
    equals_the_oracle(&tokenizer, &made.oracle());
}

#[test]
fn a_token_that_no_merge_makes_is_encoded_as_the_oracle_does() {
    for ignore_merges in [false, true] {
        let mut json = byte_level(&SOME_MERGES);
        json["model"]["vocab"]["word"] = json!(300);
        json["model"]["ignore_merges"] = json!(ignore_merges);
        let made = Made::new(&json);
        let expected = if ignore_merges { 1 } else { 4 };
        assert_eq!(ids(&made.tokenizer(), "word").len(), expected);
        equals_the_oracle(&made.tokenizer(), &made.oracle());
    }
}

#[test]
fn a_file_in_the_newer_format_loads_although_the_oracle_cannot_read_it() {
    let mut json = byte_level(&SOME_MERGES);
    tokenizers::canonicalize_value(&mut json).expect("it converts");
    let made = Made::new(&json);
    let old = Made::new(&byte_level(&SOME_MERGES));
    assert!(Oracle::from_bytes(&made.bytes).is_err());
    let tokenizer = made.tokenizer();
    assert_eq!(tokenizer.engine(), engine::FAST);
    equals_the_oracle(&tokenizer, &old.oracle());
    assert_eq!(tokenizer.token_text(258), " the");
}

// ---- Special and added tokens -------------------------------------------------------------

#[test]
fn a_special_token_in_the_text_is_plain_text_on_both_engines() {
    let json = byte_level(&SOME_MERGES);
    let bytes = serde_json::to_vec(&json).expect("JSON prints");
    let fast = Engine::fast(&json).expect("it loads");
    let reference = Engine::reference(&bytes).expect("it loads");
    let expected: Vec<u32> = "<|end|>".bytes().map(u32::from).collect();
    let mut found = Vec::new();
    // Only single bytes merge here, and the ids of bytes are the bytes in GPT-2's order.
    for engine in [&fast, &reference] {
        engine
            .encode_into("<|end|>", &mut found)
            .expect("it encodes");
        assert_eq!(found.len(), expected.len(), "{}", engine.name());
        assert!(!found.contains(&264), "{}: the special id", engine.name());
        assert_eq!(engine.decode(&found).as_deref(), Some("<|end|>"));
    }
}

#[test]
fn gpt2_end_of_text_in_the_text_is_plain_text() {
    let Some(data) = shared_data() else { return };
    let path = data.join("tokenizers").join(SHARED_TOKENIZERS[0]);
    let tokenizer = load(&path);
    let file = file::read(&path).expect("it reads");
    let reference = Engine::reference(&file.bytes).expect("it loads");
    let text = "before<|endoftext|>after <|endoftext|>";
    let mut theirs = Vec::new();
    reference
        .encode_into(text, &mut theirs)
        .expect("it encodes");
    let ours = ids(&tokenizer, text);
    assert!(!ours.contains(&50256));
    assert_eq!(ours, theirs);
    assert_eq!(tokenizer.decode(&ours), text);
    assert_eq!(tokenizer.token_id("<|endoftext|>"), Some(50256));
    assert_eq!(
        tokenizer.special_tokens(),
        [("<|endoftext|>".to_owned(), 50256)]
    );
    assert_eq!(
        (tokenizer.vocabulary_size(), tokenizer.highest_id()),
        (50257, 50256)
    );
}

#[test]
fn added_tokens_that_are_not_special_are_matched() {
    let Some(data) = shared_data() else { return };
    let olmo = load(&data.join("tokenizers").join(SHARED_TOKENIZERS[1]));
    assert_eq!(ids(&olmo, "|||EMAIL_ADDRESS|||"), [50277]);
    let eight_spaces = olmo.token_id("        ").expect("an added token");
    assert!(ids(&olmo, "x\n        y").contains(&eight_spaces));
    assert!(!ids(&olmo, "<|endoftext|>").contains(&50279));
    let qwen = load(&data.join("tokenizers").join(SHARED_TOKENIZERS[2]));
    assert_eq!(
        ids(&qwen, "<think>"),
        [151667],
        "the file does not call it special"
    );
    assert!(!ids(&qwen, "<|im_start|>").contains(&151644));
}

#[test]
fn finds_spelled_special_tokens_and_only_those() {
    let mut json = byte_level(&SOME_MERGES);
    json["added_tokens"] = json!([special(264, "<|end|>"), added(265, "<think>", false)]);
    let tokenizer = Made::new(&json).tokenizer();
    assert!(tokenizer.special_markers_in("a<|end|>"));
    assert!(tokenizer.special_markers_in("<|end|>"));
    assert!(!tokenizer.special_markers_in("<|end|"));
    assert!(
        !tokenizer.special_markers_in("<think>"),
        "it is not special"
    );
    assert!(!tokenizer.special_markers_in(""));
    json["added_tokens"] = json!([]);
    let without = Made::new(&json).tokenizer();
    assert!(!without.special_markers_in("<|end|>"));
    assert_eq!(without.special_tokens(), []);
}

#[test]
fn added_tokens_get_the_ids_that_encoding_gives_them() {
    let mut json = byte_level(&SOME_MERGES);
    // Declared ids that the reference does not follow, and one token that the model has already.
    json["added_tokens"] = json!([
        added(999, "<b>", false),
        special(998, "<a>"),
        added(997, "the", false)
    ]);
    let made = Made::new(&json);
    let tokenizer = made.tokenizer();
    let oracle = made.oracle();
    for token in ["<a>", "<b>", "the"] {
        assert_eq!(
            tokenizer.token_id(token),
            oracle.token_to_id(token),
            "{token}"
        );
    }
    equals_the_oracle(&tokenizer, &oracle);
    assert_eq!(ids(&tokenizer, "x<b>"), oracle_ids(&oracle, "x<b>"));
}

#[test]
fn tokens_are_found_by_name_and_shown() {
    let tokenizer = Made::new(&byte_level(&SOME_MERGES)).tokenizer();
    assert_eq!(tokenizer.token_id("<|end|>"), Some(264));
    assert_eq!(
        tokenizer.token_id("\u{120}the"),
        Some(258),
        "as the file spells it"
    );
    assert_eq!(tokenizer.token_id(" the"), Some(258), "as text");
    assert_eq!(tokenizer.token_id("<|eos|>"), None);
    assert_eq!(tokenizer.nearest_tokens("<|eos|>", 3), ["<|end|>"]);
    assert_eq!(tokenizer.token_text(258), " the");
    assert_eq!(tokenizer.token_text(0xC3), "<0xC3>");
    assert_eq!(tokenizer.token_text(264), "<|end|>");
    assert_eq!(tokenizer.token_text(265), "<id 265>");
    assert_eq!(tokenizer.decode(&[258, 97]), " thea");
    assert_eq!(tokenizer.decode(&[]), "");
}

// ---- Loading ------------------------------------------------------------------------------

#[test]
fn the_fingerprint_is_of_the_content() {
    let made = Made::new(&byte_level(&SOME_MERGES));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let packed = folder.path().join("other-name.json.zst");
    let bytes = zstd::encode_all(made.bytes.as_slice(), 3).expect("it packs");
    fs::write(&packed, bytes).expect("it is written");
    let (plain, packed) = (made.tokenizer(), load(&packed));
    assert_eq!(plain.fingerprint(), packed.fingerprint());
    assert_eq!(plain.fingerprint().len(), 32);
    assert_eq!(packed.name(), "other-name.json.zst");
    assert_eq!(ids(&plain, "the the"), ids(&packed, "the the"));
    let other = Made::new(&byte_level(&SOME_MERGES[..7])).tokenizer();
    assert_ne!(other.fingerprint(), plain.fingerprint());
}

#[test]
fn a_verdict_is_kept_and_used() {
    let made = Made::new(&byte_level(&SOME_MERGES));
    let cache = tempfile::tempdir().expect("a temporary folder");
    let folder = cache.path().join("made").join("here");
    let first = load_with(&made.path(), Some(&folder)).expect("it loads");
    let fingerprint = first.fingerprint();
    assert_eq!(check::read_verdict(&folder, &fingerprint), Some(all_fast()));
    let names: Vec<_> = fs::read_dir(&folder)
        .expect("the folder is there")
        .map(|entry| entry.expect("it reads").file_name())
        .collect();
    assert_eq!(names, [format!("tokenizer-{fingerprint}.verdict").as_str()]);
    // A kept verdict decides without another check.
    let verdict = Verdict::Reference("kept\nearlier".to_owned());
    check::write_verdict(&folder, &fingerprint, &verdict).expect("it is written");
    let second = load_with(&made.path(), Some(&folder)).expect("it loads");
    assert_eq!(second.engine(), engine::REFERENCE);
    assert_eq!(second.slow_because(), Some("kept earlier"));
}

#[test]
fn a_damaged_verdict_is_ignored_and_replaced() {
    let made = Made::new(&byte_level(&SOME_MERGES));
    let cache = tempfile::tempdir().expect("a temporary folder");
    let fingerprint = made.tokenizer().fingerprint();
    let path = check::verdict_path(cache.path(), &fingerprint);
    let verdict = Verdict::Reference("a reason".to_owned());
    check::write_verdict(cache.path(), &fingerprint, &verdict).expect("it is written");
    let good = fs::read_to_string(&path).expect("it reads");
    let damaged = [
        String::new(),
        good[..good.len() / 2].to_owned(),
        good.replace("a reason", "b reason"),
        good.replace("tokenizers", "tokenizerz"),
        format!("{good}\n"),
        "\u{FFFD}\nchecksum 0\n".to_owned(),
    ];
    for text in damaged {
        fs::write(&path, &text).expect("it is written");
        let read = check::read_verdict(cache.path(), &fingerprint);
        assert_eq!(read, None, "{text:?}");
    }
    let tokenizer = load_with(&made.path(), Some(cache.path())).expect("it loads");
    assert_eq!(tokenizer.engine(), engine::FAST);
    let replaced = check::read_verdict(cache.path(), &fingerprint);
    assert_eq!(replaced, Some(all_fast()));
    assert_eq!(check::read_verdict(cache.path(), "another"), None);
}

#[test]
fn a_cache_that_cannot_be_written_costs_only_the_check() {
    let made = Made::new(&byte_level(&SOME_MERGES));
    let not_a_folder = made.path();
    let tokenizer = load_with(&made.path(), Some(&not_a_folder)).expect("it loads");
    assert_eq!(tokenizer.engine(), engine::FAST);
}

#[test]
fn other_files_are_refused_with_the_way_out() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let message = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).expect("it is written");
        let text = load_with(&path, None)
            .expect_err("it is refused")
            .to_string();
        assert!(text.starts_with(&path.display().to_string()), "{text}");
        text
    };
    let model = message("tokenizer.model", b"\n\x0e\n\x05<unk>");
    assert!(model.contains("save_pretrained"), "{model}");
    let ranks = message("x.tiktoken", b"IQ== 0\nIg== 1\n");
    assert!(ranks.contains("builtin: cl100k"), "{ranks}");
    assert_eq!(
        ranks.replace("x.tiktoken", "y"),
        message("y", b"IQ== 0\nIg== 1\n")
    );
    assert!(message("a.json", b"").contains("an empty file"));
    assert!(message("b.json", b"{\"model\": ").contains("does not parse"));
    let config = message("tokenizer_config.json", b"{\"bos_token\": \"<s>\"}");
    assert!(config.contains("`bos_token`"), "{config}");
    assert!(message("c.json", b"\x1f\x8bxx").contains("gzip"));
    assert!(message("d.json", b"\n\x0e\n\x05<unk>").contains("SentencePiece"));
    assert!(message("e.json", b"hello").contains("starts with \"hello\""));
    assert!(message("f.json", b"[1]").contains("starts with"));
    let unknown = message(
        "g.json",
        b"{\"model\": {\"type\": \"X\", \"vocab\": {\"a\": 0}}}",
    );
    assert!(unknown.contains("no engine"), "{unknown}");
    let bad_id = message("h.json", b"{\"model\": {\"vocab\": {\"a\": -1}}}");
    assert!(
        bad_id.contains("`model.vocab` gives \"a\" the id -1"),
        "{bad_id}"
    );
    let twice = message("h2.json", b"{\"model\": {\"vocab\": {\"a\": 7, \"b\": 7}}}");
    assert!(
        twice.contains("`model.vocab` gives \"a\" and \"b\" the same id 7"),
        "{twice}"
    );
    let none = message("i.json", b"{\"model\": {\"vocab\": {}}}");
    assert!(none.contains("without any token"), "{none}");
    let mut zst = zstd::encode_all(&b"{}"[..], 3).expect("it packs");
    zst.truncate(zst.len() - 1);
    assert!(message("j.json.zst", &zst).contains("cannot be read"));

    let missing = load_with(&folder.path().join("missing.json"), None);
    assert!(matches!(missing, Err(TokenizerError::Unreadable { .. })));
    let a_folder = load_with(folder.path(), None);
    assert!(matches!(a_folder, Err(TokenizerError::IsAFolder { .. })));
}

#[test]
fn dropout_is_refused_and_zero_dropout_is_not() {
    let mut json = byte_level(&SOME_MERGES);
    json["model"]["dropout"] = json!(0.1);
    let refused = load_with(&Made::new(&json).path(), None);
    assert!(matches!(refused, Err(TokenizerError::Dropout { dropout, .. }) if dropout == 0.1));
    json["model"]["dropout"] = json!(0.0);
    assert_eq!(ids(&Made::new(&json).tokenizer(), "the"), [257]);
}

#[test]
fn the_engine_names_carry_the_locked_versions() {
    let lock = include_str!("../../Cargo.lock");
    for name in [engine::FAST, engine::REFERENCE, engine::BUILTIN] {
        let (package, version) = name.split_once(' ').expect("name and version");
        let entry = format!("name = \"{package}\"\nversion = \"{version}\"\n");
        assert!(lock.contains(&entry), "{name}");
    }
}

#[test]
fn the_callers_memory_is_kept_and_old_ids_are_replaced() {
    let tokenizer = Made::new(&byte_level(&SOME_MERGES)).tokenizer();
    let mut found = Vec::with_capacity(4096);
    found.push(1);
    let place = found.as_ptr();
    tokenizer
        .encode_into("the the", &mut found)
        .expect("it encodes");
    assert_eq!(found, [257, 258]);
    assert_eq!((found.as_ptr(), found.capacity()), (place, 4096));
    tokenizer.encode_into("", &mut found).expect("it encodes");
    assert!(found.is_empty());
    assert_eq!((found.as_ptr(), found.capacity()), (place, 4096));
}

#[test]
fn one_tokenizer_serves_many_threads() {
    let made = Made::new(&byte_level(&SOME_MERGES));
    let tokenizer = made.tokenizer();
    let texts: Vec<String> = (0..400)
        .map(|n| format!("the {n} theatre in {}", n * n))
        .collect();
    let one: Vec<Vec<u32>> = texts.iter().map(|text| ids(&tokenizer, text)).collect();
    let many: Vec<Vec<u32>> = texts
        .par_iter()
        .map(|text| ids(&tokenizer.clone(), text))
        .collect();
    assert_eq!(one, many);
}

/// One of each kind, checked once.
fn made_kinds() -> &'static [(Tokenizer, Oracle)] {
    static KINDS: OnceLock<Vec<(Tokenizer, Oracle)>> = OnceLock::new();
    KINDS.get_or_init(|| {
        [
            byte_level(&SOME_MERGES),
            byte_fallback(),
            unigram(),
            wordpiece(),
        ]
        .iter()
        .map(Made::new)
        .map(|made| (made.tokenizer(), made.oracle()))
        .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_texts_get_the_oracles_ids(text in "([\\PC]|[theainér▁ 漢1<s>\n]){0,60}") {
        for (tokenizer, oracle) in made_kinds() {
            prop_assert_eq!(ids(tokenizer, &text), oracle_ids(oracle, &text));
        }
    }
}

#[test]
fn characters_that_the_engines_see_differently_go_to_the_reference() {
    let (tokenizer, oracle) = &made_kinds()[3];
    assert_eq!(tokenizer.engine(), engine::FAST);
    assert_eq!(tokenizer.slow_because(), None);
    // A punctuation mark of Unicode 15, which the oracle takes for a letter.
    let mark = '\u{11F43}';
    assert!(tokenizer.slow_characters().contains(&mark));
    for text in [format!("a{mark}a"), format!("{} {mark}b", "a ".repeat(500))] {
        let mut fast = Vec::new();
        tokenizer
            .inner
            .engine
            .encode_into(&text, &mut fast)
            .expect("it encodes");
        assert_ne!(fast, oracle_ids(oracle, &text));
        assert_eq!(ids(tokenizer, &text), oracle_ids(oracle, &text));
    }
    let n_slow = tokenizer.slow_characters().len();
    assert!((1..500).contains(&n_slow), "{n_slow}");
    assert!(made_kinds()[0].0.slow_characters().is_empty());
}

#[test]
fn slow_characters_are_kept_with_the_verdict() {
    let cache = tempfile::tempdir().expect("a temporary folder");
    let verdict = Verdict::Fast(CharacterSet::new(vec!['\u{11F43}', 'é']));
    check::write_verdict(cache.path(), "0", &verdict).expect("it is written");
    assert_eq!(check::read_verdict(cache.path(), "0"), Some(verdict));
}

#[test]
fn new_combining_marks_get_the_oracles_ids() {
    let Some(data) = shared_data() else { return };
    let path = data.join("tokenizers").join(SHARED_TOKENIZERS[1]);
    let tokenizer = load(&path);
    let oracle = oracle(&file::read(&path).expect("it reads").bytes);
    assert!(tokenizer.slow_characters().contains(&'\u{1DF6}'));
    // Marks that only the fast engine reorders; parts that only it puts together.
    for text in [
        "e\u{1DF6}\u{323}",
        "\u{11382}\u{113C9}",
        "\u{16121}\u{1611F}",
        "\u{105D2}\u{307}",
        "\u{105C9}",
    ] {
        assert_eq!(ids(&tokenizer, text), oracle_ids(&oracle, text), "{text:?}");
    }
    // A mark that a new letter takes is no reason to leave the fast engine where that letter is not.
    for text in ["e\u{301}\u{323}", "e\u{307}", "plain"] {
        assert!(!CharacterSet::new(tokenizer.slow_characters().to_vec()).any_in(text));
    }
}

// ---- Builtins -----------------------------------------------------------------------------

#[test]
fn builtins_load_by_both_names_with_tiktokens_ids() {
    for entry in BUILTINS {
        let tokenizer = builtin(entry.name);
        assert_eq!(
            tokenizer.fingerprint(),
            builtin(entry.makers_name).fingerprint()
        );
        assert_eq!(tokenizer.name(), entry.name);
        assert_eq!(tokenizer.engine(), engine::BUILTIN);
        let size = entry
            .about
            .rsplit_once(" ids;")
            .expect("it says the size")
            .0;
        let size: String = size.rsplit(' ').next().unwrap_or_default().replace(',', "");
        assert_eq!(size, tokenizer.vocabulary_size().to_string());
    }
    // Published by the makers of tiktoken.
    assert_eq!(ids(&builtin("cl100k"), "hello world"), [15339, 1917]);
    assert_eq!(ids(&builtin("o200k"), "hello world"), [24912, 2375]);
    assert_eq!(builtin("cl100k").token_id("<|endoftext|>"), Some(100_257));
    assert_eq!(builtin("o200k").token_id("<|endoftext|>"), Some(199_999));
    assert_eq!(
        builtin("o200k_harmony").token_id("<|start|>"),
        Some(200_006)
    );
    let prints: std::collections::HashSet<String> = BUILTINS
        .iter()
        .map(|entry| builtin(entry.name).fingerprint())
        .collect();
    assert_eq!(prints.len(), BUILTINS.len());
}

#[test]
fn a_builtin_takes_special_tokens_as_plain_text() {
    let tokenizer = builtin("o200k");
    let text = "a<|endoftext|>b";
    let found = ids(&tokenizer, text);
    assert!(!found.contains(&199_999));
    assert_eq!(tokenizer.decode(&found), text);
    assert!(tokenizer.special_markers_in(text));
    assert!(!tokenizer.special_markers_in("a<|endoftext>b"));
    assert_eq!(tokenizer.token_text(199_999), "<|endoftext|>");
    assert_eq!(tokenizer.token_text(24912), "hello");
    assert_eq!(tokenizer.token_text(u32::MAX), format!("<id {}>", u32::MAX));
    assert_eq!(tokenizer.token_id("hello"), Some(24912));
    assert_eq!(tokenizer.nearest_tokens("<|eot|>", 1), ["<|endoftext|>"]);
}

#[test]
fn an_unknown_builtin_names_the_nearest() {
    let source = TokenizerSource::Builtin("o200".to_owned());
    let message = Tokenizer::load(&source, None)
        .expect_err("there is none")
        .to_string();
    assert_eq!(
        message,
        "no builtin tokenizer 'o200'; did you mean 'o200k'? there are: o200k, o200k_harmony, cl100k"
    );
}

/// The patterns that tiktoken splits with, as its makers publish them.
const CL100K_PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const O200K_PATTERN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The oracle for a rank file: each token of two or more bytes is the merge of the two tokens
/// that its bytes reduce to under the lower ranks.
fn oracle_of_ranks(ranks: &[Vec<u8>], pattern: &str) -> Oracle {
    let by_bytes: std::collections::HashMap<&[u8], usize> = ranks
        .iter()
        .enumerate()
        .map(|(rank, bytes)| (bytes.as_slice(), rank))
        .collect();
    let characters = byte_characters();
    let spell = |bytes: &[u8]| -> String {
        bytes
            .iter()
            .map(|&byte| characters[usize::from(byte)].as_str())
            .collect()
    };
    let mut merges: Vec<[String; 2]> = Vec::new();
    for (rank, bytes) in ranks
        .iter()
        .enumerate()
        .filter(|(_, bytes)| bytes.len() > 1)
    {
        let mut cuts: Vec<usize> = (0..=bytes.len()).collect();
        while cuts.len() > 3 {
            let (lowest, place) = (0..cuts.len() - 2)
                .filter_map(|i| Some((*by_bytes.get(&bytes[cuts[i]..cuts[i + 2]])?, i)))
                .min()
                .expect("every token is made by merges");
            assert!(lowest < rank);
            cuts.remove(place + 1);
        }
        merges.push([spell(&bytes[..cuts[1]]), spell(&bytes[cuts[1]..])]);
    }
    let vocab: BTreeMap<String, usize> = ranks
        .iter()
        .enumerate()
        .map(|(rank, bytes)| (spell(bytes), rank))
        .collect();
    let json = json!({
        "version": "1.0", "added_tokens": [], "normalizer": null, "post_processor": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
             "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
             "use_regex": false}]},
        "decoder": null,
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
                  "continuing_subword_prefix": null, "end_of_word_suffix": null,
                  "fuse_unk": false, "byte_fallback": false, "ignore_merges": true,
                  "vocab": vocab, "merges": merges}
    });
    oracle(&serde_json::to_vec(&json).expect("JSON prints"))
}

fn ranks_of(builtin: &Tokenizer) -> Vec<Vec<u8>> {
    let Engine::Builtin(tokenizer) = &builtin.inner.engine else {
        panic!("a builtin");
    };
    (0..tokenizer.vocab_size() as u32)
        .map(|id| tokenizer.token_bytes(id).unwrap_or_default().to_vec())
        .collect()
}

#[test]
fn cl100k_holds_the_tokens_of_the_published_rank_file() {
    use base64::Engine as _;
    let Some(data) = shared_data() else { return };
    let packed = fs::read(data.join("tokenizers/cl100k_base.tiktoken.zst")).expect("it reads");
    let text = zstd::decode_all(packed.as_slice()).expect("it unpacks");
    let ours = ranks_of(&builtin("cl100k"));
    let mut n_ranks = 0;
    for line in String::from_utf8(text).expect("it is text").lines() {
        let (bytes, rank) = line.split_once(' ').expect("token and rank");
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(bytes)
            .expect("base64");
        assert_eq!(ours[rank.parse::<usize>().expect("a rank")], bytes);
        n_ranks += 1;
    }
    assert_eq!(n_ranks, ours.len());
}

#[test]
fn builtins_give_the_oracles_ids_on_the_shared_data() {
    let Some(data) = shared_data() else { return };
    for (name, pattern) in [("cl100k", CL100K_PATTERN), ("o200k", O200K_PATTERN)] {
        let tokenizer = builtin(name);
        let oracle = oracle_of_ranks(&ranks_of(&tokenizer), pattern);
        equals_the_oracle(&tokenizer, &oracle);
        long_words_equal_the_oracle(&tokenizer, &oracle);
        let tally = compare_documents(&data, &tokenizer, &oracle, 60);
        report(name, &tally);
        assert_eq!(tally.different, Vec::<String>::new());
    }
}

// ---- Shared data --------------------------------------------------------------------------

/// Every text of the shared data files, with a name for each: `text` of each line, or the whole
/// line where there is none.
fn shared_texts(data: &Path) -> Vec<(String, String)> {
    let mut files: Vec<PathBuf> = ["mix", "reference", "validation", "labelled", "eval"]
        .iter()
        .flat_map(|folder| fs::read_dir(data.join(folder)).expect("the folder is there"))
        .map(|entry| entry.expect("it reads").path())
        .filter(|path| path.to_string_lossy().ends_with(".zst"))
        .collect();
    files.sort();
    let texts: Vec<Vec<(String, String)>> = files
        .par_iter()
        .map(|path| {
            let file = fs::File::open(path).expect("it opens");
            let lines = BufReader::new(zstd::Decoder::new(file).expect("it unpacks")).lines();
            lines
                .enumerate()
                .map(|(number, line)| {
                    let line = line.expect("it is text");
                    let json: Option<Value> = serde_json::from_str(&line).ok();
                    let text = json.as_ref().and_then(|json| json["text"].as_str());
                    let text = text.map_or_else(|| line.clone(), str::to_owned);
                    (format!("{}:{}", path.display(), number + 1), text)
                })
                .collect()
        })
        .collect();
    texts.into_iter().flatten().collect()
}

struct Tally {
    documents: usize,
    bytes: usize,
    tokens: usize,
    different: Vec<String>,
}

/// Compares document by document: each `every`-th, or all with GOODPUT_ALL_DOCUMENTS=1.
fn compare_documents(data: &Path, tokenizer: &Tokenizer, oracle: &Oracle, every: usize) -> Tally {
    let all = std::env::var_os("GOODPUT_ALL_DOCUMENTS").is_some_and(|value| value == "1");
    let every = if all { 1 } else { every };
    let texts = shared_texts(data);
    let compared: Vec<(usize, usize, Option<String>)> = texts
        .par_iter()
        .enumerate()
        .filter(|(place, _)| place % every == 0)
        .map(|(_, (name, text))| {
            let ours = ids(tokenizer, text);
            let same = ours == oracle_ids(oracle, text);
            (text.len(), ours.len(), (!same).then(|| name.clone()))
        })
        .collect();
    Tally {
        documents: compared.len(),
        bytes: compared.iter().map(|row| row.0).sum(),
        tokens: compared.iter().map(|row| row.1).sum(),
        different: compared.into_iter().filter_map(|row| row.2).collect(),
    }
}

#[expect(
    clippy::print_stdout,
    reason = "the figures are wanted when run by hand"
)]
fn report(name: &str, tally: &Tally) {
    println!(
        "{name}: {} documents, {} bytes, {} tokens, {} differ",
        tally.documents,
        tally.bytes,
        tally.tokens,
        tally.different.len()
    );
}

#[test]
fn the_shared_tokenizers_give_the_oracles_ids_on_the_shared_data() {
    let Some(data) = shared_data() else { return };
    for name in SHARED_TOKENIZERS {
        let path = data.join("tokenizers").join(name);
        let tokenizer = load(&path);
        assert_eq!(tokenizer.slow_because(), None, "{name}");
        assert_eq!(tokenizer.engine(), engine::FAST, "{name}");
        let oracle = oracle(&file::read(&path).expect("it reads").bytes);
        let tally = compare_documents(&data, &tokenizer, &oracle, 40);
        report(name, &tally);
        assert_eq!(tally.different, Vec::<String>::new());
    }
}

#[test]
fn a_word_at_the_bound_for_long_words_keeps_its_ids() {
    let (tokenizer, _) = &made_kinds()[0];
    // One short of the bound, at it, above it; a repeated word that merges into fours.
    for length in [LONG_WORD_BYTES - 1, LONG_WORD_BYTES, LONG_WORD_BYTES + 1] {
        let found = ids(tokenizer, &"a".repeat(length));
        let four = tokenizer.token_id("aaaa").expect("in the vocabulary");
        assert!(found[..length / 4].iter().all(|&id| id == four));
        let rest = &found[length / 4..];
        let two = tokenizer.token_id("aa").expect("in the vocabulary");
        let expected: &[u32] = match length % 4 {
            0 => &[],
            1 => &[97],
            2 => &[two],
            _ => &[two, 97],
        };
        assert_eq!(rest, expected);
    }
    let engine = &tokenizer.inner.engine;
    assert_eq!(engine.longest_word_bytes("ab abc\td\n"), 3);
    assert_eq!(engine.longest_word_bytes(""), 0);
    let without_pre_tokenizer = &made_kinds()[1].0.inner.engine;
    assert_eq!(without_pre_tokenizer.longest_word_bytes("ab abc"), 6);
}

fn long_words_equal_the_oracle(tokenizer: &Tokenizer, oracle: &Oracle) {
    for text in [
        "a".repeat(100_000),
        "^".repeat(100_000),
        "a1 ".repeat(30_000),
    ] {
        let same = ids(tokenizer, &text) == oracle_ids(oracle, &text);
        assert!(same, "{} {}", tokenizer.name(), &text[..3]);
    }
}

#[test]
fn very_long_words_need_little_stack_and_give_the_oracles_ids() {
    let Some(data) = shared_data() else { return };
    // A thread with a small stack: an engine that recursed would end the process here.
    let worker = std::thread::Builder::new().stack_size(256 * 1024);
    let work = move || {
        for name in SHARED_TOKENIZERS {
            let path = data.join("tokenizers").join(name);
            let tokenizer = load(&path);
            let oracle = oracle(&file::read(&path).expect("it reads").bytes);
            long_words_equal_the_oracle(&tokenizer, &oracle);
            let tokens = ids(&tokenizer, &"^".repeat(1_000_000)).len();
            assert!((1..=1_000_000).contains(&tokens));
        }
        for entry in BUILTINS {
            let tokenizer = builtin(entry.name);
            let text = "^".repeat(1_000_000);
            assert_eq!(tokenizer.decode(&ids(&tokenizer, &text)), text);
        }
    };
    worker
        .spawn(work)
        .expect("it starts")
        .join()
        .expect("it ends well");
}

/// `cargo test --release --lib tokenizer::tests::speed -- --ignored --nocapture --test-threads 1`
#[test]
#[ignore = "a measurement, run by hand"]
#[expect(clippy::print_stdout, reason = "the figures are the point")]
fn speed_beside_the_library_called_directly() {
    use tokenizers::pipeline::{EncodeOptions, PipelineToken};

    let Some(data) = shared_data() else { return };
    let texts: Vec<String> = shared_texts(&data)
        .into_iter()
        .filter(|(name, _)| name.contains("/mix/"))
        .map(|(_, text)| text)
        .collect();
    let megabytes = texts.iter().map(String::len).sum::<usize>() as f64 / 1e6;
    for name in SHARED_TOKENIZERS {
        let tokenizer = load(&data.join("tokenizers").join(name));
        let Engine::Fast(library) = &tokenizer.inner.engine else {
            panic!("the fast engine");
        };
        let options = EncodeOptions {
            add_special_tokens: false,
            encode_special_tokens: true,
            ..EncodeOptions::default()
        };
        let mut ids = Vec::new();
        let mut tokens: Vec<PipelineToken> = Vec::new();
        // In turn over pieces of the corpus, the first of each pair changing with the round; the
        // fastest time of each piece counts. A neighbour's load lasts longer than a piece, so
        // that both meet it or neither does.
        let pieces = pieces_of(&texts, 1 << 18);
        let mut fastest = vec![[f64::MAX; 2]; pieces.len()];
        let mut n_tokens = [0, 0];
        for round in 0..16 {
            n_tokens = [0, 0];
            for (piece, fastest) in pieces.iter().zip(&mut fastest) {
                for turn in 0..2 {
                    let side = (round + turn) % 2;
                    let start = std::time::Instant::now();
                    for text in *piece {
                        if side == 0 {
                            tokenizer.encode_into(text, &mut ids).expect("it encodes");
                            n_tokens[0] += ids.len();
                        } else {
                            tokens.clear();
                            library
                                .encode_into(text, &options, &mut tokens)
                                .expect("it encodes");
                            n_tokens[1] += tokens.len();
                        }
                    }
                    fastest[side] = fastest[side].min(start.elapsed().as_secs_f64());
                }
            }
        }
        let seconds = |side: usize| fastest.iter().map(|piece| piece[side]).sum::<f64>();
        let mut ratios: Vec<f64> = fastest
            .iter()
            .map(|[ours, library]| ours / library)
            .collect();
        ratios.sort_by(f64::total_cmp);
        println!(
            "{name}: {megabytes:.0} MB in {} pieces, ours {:.1} MB/s, the library {:.1} MB/s, time \
             {:.3} of the library's (median piece {:.3}), tokens {n_tokens:?}",
            pieces.len(),
            megabytes / seconds(0),
            megabytes / seconds(1),
            seconds(0) / seconds(1),
            ratios[ratios.len() / 2],
        );
    }
}

/// Consecutive texts in pieces of at least `bytes`, but for the last.
fn pieces_of(texts: &[String], bytes: usize) -> Vec<&[String]> {
    let mut pieces = Vec::new();
    let (mut start, mut size) = (0, 0);
    for (at, text) in texts.iter().enumerate() {
        size += text.len();
        if size >= bytes {
            pieces.push(&texts[start..=at]);
            (start, size) = (at + 1, 0);
        }
    }
    if start < texts.len() {
        pieces.push(&texts[start..]);
    }
    pieces
}
