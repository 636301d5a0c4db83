//! The self-check at load: does the fast engine give the reference's ids for this tokenizer?
//!
//! Both engines encode a fixed set of hard texts, every special and added token's spelling, every
//! token of the vocabulary as a word of its own, and every assigned character in a few contexts.
//! The engines know different versions of Unicode, so some tokenizers differ on single rare
//! characters; documents with such a character go to the reference. The verdict is kept in a small file named
//! by the tokenizer's fingerprint, so that the slow reference is loaded once, not in each run.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use unicode_normalization::char::decompose_canonical;
use xxhash_rust::xxh3::xxh3_128;

use super::characters::CharacterSet;
use super::engine::{Engine, FAST, REFERENCE};
use super::vocabulary::Vocabulary;

/// Vocabulary tokens in one text of the sweep.
const TOKENS_PER_TEXT: usize = 256;
/// Characters in one text of the sweep.
const CHARACTERS_PER_TEXT: usize = 64;

/// First line of a verdict file; the number grows when the sweep changes.
const FORMAT: &str = "goodput tokenizer check 2";

/// Which engine encodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The fast engine: its ids were equal on every probe, save those with these characters.
    Fast(CharacterSet),
    /// The reference engine, and why.
    Reference(String),
}

/// Encodes all probes with both engines. The first difference decides.
pub(super) fn judge(fast: &Engine, reference: &Engine, vocabulary: &Vocabulary) -> Verdict {
    let differs = |text: &str| differs(fast, reference, text);
    for (name, text) in fixed_probes() {
        if differs(&text) {
            return Verdict::Reference(format!("ids differ on the probe '{name}'"));
        }
    }
    for token in vocabulary.added() {
        for text in [
            token.text.clone(),
            format!("a{0}b {0} {0}{0}\n{0}", token.text),
        ] {
            if differs(&text) {
                return Verdict::Reference(format!(
                    "ids differ around the added token {:?}",
                    token.text
                ));
            }
        }
    }
    // Whole words that are tokens: here a merge rule that was left out, or a token that no merge
    // makes, shows.
    let words: Vec<String> = vocabulary
        .model_tokens()
        .filter_map(|(spelled, _)| String::from_utf8(vocabulary.meaning(spelled)).ok())
        .collect();
    let words_differ = words
        .par_chunks(TOKENS_PER_TEXT)
        .any(|words| differs(&words.join("\n")));
    if words_differ {
        return Verdict::Reference("ids differ on words taken from the vocabulary".to_owned());
    }
    let exceptions = sweep_characters(fast, reference);
    if let Some(character) = exceptions.iter().find(|character| character.is_ascii()) {
        return Verdict::Reference(format!("ids differ on the character {character:?}"));
    }
    Verdict::Fast(CharacterSet::new(exceptions))
}

fn differs(fast: &Engine, reference: &Engine, text: &str) -> bool {
    let mut fast_ids = Vec::new();
    let mut reference_ids = Vec::new();
    let ours = fast.encode_into(text, &mut fast_ids);
    let theirs = reference.encode_into(text, &mut reference_ids);
    match (ours, theirs) {
        (Ok(()), Ok(())) => fast_ids != reference_ids,
        // Both refusing is agreement: the document fails either way.
        (Err(_), Err(_)) => false,
        _ => true,
    }
}

/// All characters on which the ids differ.
fn sweep_characters(fast: &Engine, reference: &Engine) -> Vec<char> {
    let swept: Vec<char> = (0..0x4_0000)
        .chain(0xE_0000..0xE_0200)
        .filter_map(char::from_u32)
        .collect();
    let in_contexts = |characters: &[char]| -> Vec<char> {
        let all: String = characters.iter().map(|&c| contexts(c)).collect();
        if !differs(fast, reference, &all) {
            return Vec::new();
        }
        let alone = characters.iter().copied();
        alone
            .filter(|&c| differs(fast, reference, &contexts(c)))
            .collect()
    };
    // A precomposed character may be unknown to one engine, which shows only where its parts meet.
    let from_parts = |characters: &[char]| -> Vec<char> {
        let mut found = Vec::new();
        for &character in characters {
            let Some(parts) = parts_of(character) else {
                continue;
            };
            let text: String = parts.iter().collect();
            if differs(fast, reference, &text) {
                found.push(character);
                // The difference needs every part, so that one of them stands for all: the highest
                // code point, which is the rarest as a rule, not the mark that many letters take.
                found.extend(parts.into_iter().max());
            }
        }
        found
    };
    let mut exceptions: Vec<char> = swept
        .par_chunks(CHARACTERS_PER_TEXT)
        .flat_map_iter(|characters| {
            let mut found = in_contexts(characters);
            found.extend(from_parts(characters));
            found
        })
        .collect();
    exceptions.sort_unstable();
    // A part may also come into a text inside another precomposed character.
    let holds_one = |&character: &char| {
        parts_of(character).is_some_and(|parts| {
            let mut parts = parts.iter();
            parts.any(|part| exceptions.binary_search(part).is_ok())
        })
    };
    let holders: Vec<char> = swept.into_iter().filter(holds_one).collect();
    exceptions.extend(holders);
    exceptions
}

/// What a precomposed character is made of; `None` for one that is not, or that is made by rule.
fn parts_of(character: char) -> Option<Vec<char>> {
    let mut parts = Vec::new();
    decompose_canonical(character, |part| parts.push(part));
    (parts != [character] && !is_uniform(character)).then_some(parts)
}

/// A character beside letters, digits, marks, spaces and signs.
fn contexts(character: char) -> String {
    let c = character;
    if is_uniform(c) {
        return format!("{c}a ");
    }
    // U+0345 has a high and U+0334 the lowest combining class: a mark between them moves, unless
    // the engine doesn't know it for one.
    format!("a{c}a {c}1{c}{c}!{c}\n{c} '{c} e\u{345}{c}\u{334}{c}\n")
}

/// Ideographs, Hangul syllables, private use and planes without other characters: most of the
/// code points, of few kinds, so one short context each.
fn is_uniform(character: char) -> bool {
    matches!(u32::from(character), 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xAC00..=0xD7A3
        | 0xE000..=0xF8FF | 0x2_0000..=0x2_F7FF | 0x2_FA20..)
}

/// The kept verdict on the tokenizer with this fingerprint. `None` where there is none, where it
/// is damaged, or where it was reached with other engines or probes.
pub(super) fn read_verdict(cache: &Path, fingerprint: &str) -> Option<Verdict> {
    let kept = fs::read_to_string(verdict_path(cache, fingerprint)).ok()?;
    let (body, checksum) = kept.strip_suffix('\n')?.rsplit_once("\nchecksum ")?;
    if checksum != checksum_of(body) {
        return None;
    }
    let rest = body.strip_prefix(&header(fingerprint))?;
    match rest.strip_prefix("verdict ")? {
        "fast" => Some(Verdict::Fast(CharacterSet::new(Vec::new()))),
        other => {
            if let Some(reason) = other.strip_prefix("reference: ") {
                return Some(Verdict::Reference(reason.to_owned()));
            }
            let characters = other.strip_prefix("fast except ")?.split(' ');
            let characters: Option<Vec<char>> = characters
                .map(|code| char::from_u32(u32::from_str_radix(code, 16).ok()?))
                .collect();
            Some(Verdict::Fast(CharacterSet::new(characters?)))
        }
    }
}

/// Keeps a verdict: written under a temporary name, then renamed.
pub(super) fn write_verdict(
    cache: &Path,
    fingerprint: &str,
    verdict: &Verdict,
) -> std::io::Result<()> {
    static WRITES: AtomicU64 = AtomicU64::new(0);

    let line = match verdict {
        Verdict::Fast(except) if except.characters().is_empty() => "fast".to_owned(),
        Verdict::Fast(except) => {
            let codes = except.characters().iter();
            let codes: Vec<String> = codes.map(|&c| format!("{:X}", u32::from(c))).collect();
            format!("fast except {}", codes.join(" "))
        }
        Verdict::Reference(reason) => format!("reference: {}", reason.replace(['\n', '\r'], " ")),
    };
    let body = format!("{}verdict {line}", header(fingerprint));
    let checksum = checksum_of(&body);
    fs::create_dir_all(cache)?;
    let path = verdict_path(cache, fingerprint);
    let unique = WRITES.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_extension(format!("{}-{unique}.tmp", std::process::id()));
    let written = fs::File::create(&temporary)
        .and_then(|mut file| {
            file.write_all(format!("{body}\nchecksum {checksum}\n").as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        // Best effort: the error that matters is the one returned.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// The file that keeps the verdict on a fingerprint.
pub(super) fn verdict_path(cache: &Path, fingerprint: &str) -> PathBuf {
    cache.join(format!("tokenizer-{fingerprint}.verdict"))
}

/// Everything a verdict depends on besides the tokenizer's content.
fn header(fingerprint: &str) -> String {
    let mut probes = String::new();
    for (name, text) in fixed_probes() {
        probes.push_str(name);
        probes.push('\0');
        probes.push_str(&text);
        probes.push('\0');
    }
    let probes = xxh3_128(probes.as_bytes());
    format!(
        "{FORMAT}\ntokenizer {fingerprint}\nengines {FAST} against {REFERENCE}\nprobes {probes:032x}\n"
    )
}

fn checksum_of(body: &str) -> String {
    format!("{:032x}", xxh3_128(body.as_bytes()))
}

/// The fixed probes, each with the name that a verdict gives it.
pub(super) fn fixed_probes() -> Vec<(&'static str, String)> {
    let mut probes: Vec<(&'static str, String)> = Vec::new();
    let mut add = |name: &'static str, text: &str| probes.push((name, text.to_owned()));
    add("one letter", "a");
    add("one space", " ");
    add("one newline", "\n");
    add(
        "english",
        "The river rose overnight; by seven o'clock they'd moved 1,204 sandbags. I'm sure \
         we've done what we could, it's late, she'll wait, you're right: don't DON'T I'M WE'LL.",
    );
    add(
        "latin scripts",
        "Größe und Maß – Übung. L’élève était déçu, où çà ? ¿Qué año? Żółć, łódź, İstanbul, \
         ığdır, đường phố Việt Nam, naïve coöperation, straße STRASSE, ﬁne ﬂow, ʼnʻokina.",
    );
    add(
        "greek and cyrillic",
        "Ο ποταμός ανέβηκε τη νύχτα· ΣΊΣΥΦΟΣ ς. Река поднялась за ночь, ёлка, Їжак, ђак, Қазақ.",
    );
    add(
        "semitic",
        "\u{5E9}\u{5DC}\u{5D5}\u{5DD} \u{5E2}\u{5B4}\u{5D1}\u{5B0}\u{5E8}\u{5B4}\u{5D9}\u{5EA} \
         \u{627}\u{644}\u{633}\u{651}\u{644}\u{627}\u{645}\u{64F} \u{639}\u{644}\u{64A}\u{643}\u{645} \
         \u{661}\u{662}\u{663}\u{60C} \u{200F}\u{202B}abc\u{202C}",
    );
    add(
        "south asia",
        "नमस्ते दुनिया क्षत्रिय १२३ বাংলা ভাষা தமிழ் மொழி తెలుగు ಕನ್ನಡ മലയാളം ਪੰਜਾਬੀ සිංහල",
    );
    add(
        "south-east asia",
        "สวัสดีชาวโลก๑๒๓ ພາສາລາວ ភាសាខ្មែរ မြန်မာဘာသာ བོད་ཡིག",
    );
    add(
        "east asia",
        "昨夜、川の水位が上がった。カタカナ ｶﾀｶﾅ ﾞ ひらがな。河水一夜之间上涨了3米，１２３ＡＢＣ。강물이 밤새 불어났다. \
         \u{1112}\u{1161}\u{11AB}\u{1100}\u{1173}\u{11AF} 𠮷野家 々〆〤",
    );
    add(
        "other scripts",
        "ქართული Հայերեն አማርኛ ᏣᎳᎩ ᐃᓄᒃᑎᑐᑦ ⵜⴰⵎⴰⵣⵉⵖⵜ 𐍈𐌰 𝒜𝓫𝟘𝟙 Ⓐⓑ ⅷ ² ½ ªº ᴬ ǅ ǆ",
    );
    add(
        "digits",
        "0 7 42 123 1234 12345 1234567890 3.14159 -1e-9 0xFF 1_000 1st 2nd v2.0.1 ٣٤ ४५ ௧௨ ²³ ①②③ \
         12ab34 a1b2 007",
    );
    add(
        "white space",
        "a  b   c    d\te\t\tf \t g\n\nh\n \n i\r\nj\r\rk \u{A0}l\u{A0}\u{A0}m\u{2003}n\u{3000}o\u{2028}p\
         \u{2029}q\u{85}r\u{B}s\u{C}t\u{200B}u\u{FEFF}v\u{1680}w\u{202F}x   ",
    );
    add("leading white space", "   three\n\n\n  two\n one");
    add(
        "code",
        "fn main() -> Result<(), Box<dyn Error>> {\n    let x: Vec<_> = a.iter().map(|&b| b * 2).collect();\n\
         \tif x != y && !z { return Err(\"no\"); } // done\n}\n\n#include <stdio.h>\nint a[10]={0};\n\
         for(i=0;i<10;++i){printf(\"%d\\n\",a[i]);}\n<div class=\"a b\" id='c'>&nbsp;</div>\n\
         def f(self, *args, **kwargs):\n        return {**self.d, 'k': args[0]}\n$x = @{$y}; `ls -la`",
    );
    add(
        "addresses",
        "https://example.org/a-b_c/d.html?e=1&f=%20#g user@example.com C:\\Temp\\x.txt /usr/lib64 \
         #tag @name $5.00 50% ~/.x a/b//c",
    );
    add(
        "punctuation",
        "!!! ... ?!? --- === *** ((([[[{{{ }}}]]]))) <<>> «quoted» “curly” ‘single’ … — – • § ¶ † ° \
         a.b,c;d:e!f?g 'tis 's 't ''s ' s \u{2019}s \u{2019}t",
    );
    add(
        "symbols and emoji",
        "→ ∑ ∀x∈ℝ: x²≥0 ≠ € £ ¥ ₹ ▁ ▁▁ Ġ Ċ ☺ ☺\u{FE0F} 👍🏽 👩\u{200D}👩\u{200D}👧\u{200D}👦 🏳\u{FE0F}\u{200D}🌈 \
         🇩🇪🇫🇷 🧑🏿\u{200D}🚀 1\u{FE0F}\u{20E3} 😀😀😀",
    );
    add(
        "combining marks",
        "e\u{301} é a\u{323}\u{302} a\u{302}\u{323} o\u{308}\u{304} \u{1E69} s\u{323}\u{307} s\u{307}\u{323} \
         \u{301}alone Z\u{351}\u{36B}\u{343}a\u{329}\u{321}l\u{325}g\u{336} \u{212B} \u{2126} \u{F900} \
         \u{FB1D} \u{9CB}\u{9BE} \u{AC00}\u{11A8}",
    );
    add(
        "control characters",
        "\0a\u{1}b\u{2}\u{7}c\u{8}d\u{1B}[0me\u{7F}f\u{80}g\u{9F}h\u{AD}i\u{FFFD}j\u{FFFE}k\u{FFFF}l\u{E000}m\
         \u{F0000}n\u{10FFFF}o\u{378}p",
    );
    add(
        "special token spellings",
        "<|endoftext|> <|im_start|>user\nhi<|im_end|> <s>[INST] a [/INST]</s> <unk> <pad> [CLS] [SEP] [MASK] \
         [UNK] <bos><eos> <|begin_of_text|><|eot_id|> <0x0A> <0xFF> ##ing <think>x</think> <|endoftext|><|endoftext",
    );
    add(
        "mixed",
        "abcАБВ123中文한글עברית😀\u{301}x\u{300}_-тест42тест",
    );
    // Long runs: each engine has a path of its own for long words.
    let long: [(&'static str, &str, usize); 9] = [
        ("long run of a letter", "a", 3_000),
        ("long run of a caret", "^", 3_000),
        ("long run of spaces", " ", 1_500),
        ("long run of newlines", "\n", 1_500),
        ("long run of digits", "7", 1_500),
        ("long run of tabs and spaces", "\t ", 700),
        ("long run of a word", "banana", 500),
        ("long run of ideographs", "漢字", 400),
        ("long run of emoji", "😀", 300),
    ];
    for (name, unit, times) in long {
        probes.push((name, unit.repeat(times)));
    }
    // Words of every length up to 300, from a small fixed alphabet: the switch between the
    // engines' paths for short and for long words.
    let mut words = String::new();
    for length in 1..=300usize {
        for place in 0..length {
            let letters = b"etaoinshrdlu";
            words.push(char::from(
                letters[(place * place + 7 * length) % letters.len()],
            ));
        }
        words.push(' ');
    }
    probes.push(("words of every length", words));
    probes
}
