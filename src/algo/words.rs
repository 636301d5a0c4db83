//! What a word is, in two senses, and hashes of words.
//!
//! * [`Words`]: *written words*, maximal runs of characters that are not white space, for rules on
//!   how a text looks. Punctuation stays with its word.
//! * [`normalised_words`]: *spoken words*, maximal runs of letters, marks, digits and underscores
//!   in lower case, for comparing texts. Punctuation and layout are ignored; in scripts that are
//!   written without spaces every character is a word of its own.
//!
//! A third sense, which drops punctuation inside a written word too, is in [`super::bare_words`].

use std::sync::LazyLock;
use unicode_normalization::char::is_combining_mark;
use xxhash_rust::xxh3::xxh3_64;

/// Holds a byte of a character outside ASCII.
pub const NON_ASCII: u8 = 1;
/// Holds an ASCII letter.
pub const ASCII_LETTER: u8 = 2;
/// Holds `#`.
pub const HASH_SIGN: u8 = 4;
/// Holds `.`.
pub const DOT: u8 = 8;

/// Holds a character of U+2000 to U+2FFF, where `…` and most bullets are.
pub const PUNCTUATION_BLOCK: u8 = 16;

const SPACE: u8 = 32;
const LINE_FEED: u8 = 64;

/// What each byte is. White space of ASCII as in [`char::is_whitespace`].
const BYTE_CLASS: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            b'\n' => SPACE | LINE_FEED,
            b' ' | 0x09 | 0x0b..=0x0d => SPACE,
            b'a'..=b'z' | b'A'..=b'Z' => ASCII_LETTER,
            b'#' => HASH_SIGN,
            b'.' => DOT,
            0xe2 => NON_ASCII | PUNCTUATION_BLOCK,
            0x80..=0xff => NON_ASCII,
            _ => 0,
        };
        byte += 1;
    }
    table
};

/// A maximal run of characters that are not white space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Byte offset of its first byte.
    pub start: usize,
    /// Byte offset after its last byte.
    pub end: usize,
    /// Its characters (Unicode scalar values), 1 or more.
    pub characters: usize,
    /// Line feeds in the white space before it: 0 on the same line as the word before, 2 or more
    /// after a blank line. What stands before the first word counts as well.
    pub line_feeds_before: usize,
    /// What is in it: [`NON_ASCII`], [`ASCII_LETTER`], [`HASH_SIGN`], [`DOT`],
    /// [`PUNCTUATION_BLOCK`], or-ed.
    pub holds: u8,
}

impl Word {
    /// Whether it is the first word of its line, given that it isn't the first of the text.
    pub fn starts_line(&self) -> bool {
        self.line_feeds_before > 0
    }
    /// Whether a blank line stands before it. Lines of white space only are blank.
    pub fn starts_paragraph(&self) -> bool {
        self.line_feeds_before > 1
    }
}

/// The written words of a text, in order, with all that is needed to tell lines and paragraphs.
///
/// A line is what stands between two line feeds, a paragraph what stands between two blank lines;
/// both reach from their first word to their last, so that blank lines, carriage returns and
/// indentation belong to none.
pub struct Words<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Words<'a> {
    /// The words of `text`.
    pub fn new(text: &'a str) -> Self {
        Words { text, at: 0 }
    }
}

fn character_at(text: &str, at: usize) -> char {
    text[at..]
        .chars()
        .next()
        .expect("only called before the end, on a character's first byte")
}

impl Iterator for Words<'_> {
    type Item = Word;

    #[inline]
    fn next(&mut self) -> Option<Word> {
        let bytes = self.text.as_bytes();
        let mut at = self.at;
        let mut line_feeds_before = 0;
        loop {
            let Some(&byte) = bytes.get(at) else {
                self.at = at;
                return None;
            };
            let class = BYTE_CLASS[byte as usize];
            if class & SPACE != 0 {
                line_feeds_before += usize::from(class & LINE_FEED != 0);
                at += 1;
            } else if class & NON_ASCII != 0 {
                let character = character_at(self.text, at);
                if !character.is_whitespace() {
                    break;
                }
                at += character.len_utf8();
            } else {
                break;
            }
        }
        let start = at;
        let mut holds = 0;
        // Bytes that only continue a character are counted, to be taken off at the end.
        let mut continuation_bytes = 0;
        while let Some(&byte) = bytes.get(at) {
            let class = BYTE_CLASS[byte as usize];
            if class & (SPACE | NON_ASCII) == 0 {
                holds |= class;
                at += 1;
            } else if class & SPACE != 0 {
                break;
            } else {
                // White space outside ASCII begins with one of these four bytes.
                let length = match byte {
                    0xc2 | 0xe1 | 0xe2 | 0xe3 => {
                        let character = character_at(self.text, at);
                        if character.is_whitespace() {
                            break;
                        }
                        character.len_utf8()
                    }
                    0xf0.. => 4,
                    0xe0.. => 3,
                    _ => 2,
                };
                holds |= class;
                continuation_bytes += length - 1;
                at += length;
            }
        }
        self.at = at;
        Some(Word {
            start,
            end: at,
            characters: at - start - continuation_bytes,
            line_feeds_before,
            holds,
        })
    }
}

/// Whether a character belongs to spoken words: a letter, mark, digit, number or underscore.
pub(super) fn is_word_character(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || (c >= '\u{300}' && is_combining_mark(c))
}

/// Whether a character's script is written without spaces between words: Han, Hiragana, Katakana,
/// Thai, Lao, Khmer, Myanmar, by their blocks.
pub fn is_of_unspaced_script(c: char) -> bool {
    matches!(u32::from(c),
        0x0e00..=0x0eff | 0x1000..=0x109f | 0x1780..=0x17ff
        | 0x2e80..=0x2fdf | 0x3005..=0x3007 | 0x3021..=0x302f | 0x3031..=0x303c | 0x3040..=0x30ff
        | 0x31f0..=0x31ff | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xa9e0..=0xa9ff | 0xaa60..=0xaa7f
        | 0xf900..=0xfaff | 0xff66..=0xff9f | 0x1aff0..=0x1b16f | 0x20000..=0x3ffff)
}

/// Unicode's simple lower case: one character for one.
pub(super) fn simple_lower_case(c: char) -> char {
    // U+0130 is the only character whose full lower case is longer than one character.
    c.to_lowercase()
        .next()
        .expect("a lower case has at least one character")
}

/// For each character below U+0800, which is what two bytes of UTF-8 hold, its lower-case form
/// where it belongs to spoken words, else 0.
static LOWER_CASE_OF_SHORT: LazyLock<Vec<u16>> = LazyLock::new(|| {
    (0..0x800)
        .map(|code| {
            let character = char::from_u32(code).expect("below the surrogates");
            let lower = if is_word_character(character) {
                u32::from(simple_lower_case(character))
            } else {
                0
            };
            u16::try_from(lower).expect("lower cases of characters below U+0800 are below U+10000")
        })
        .collect()
});

/// Fills `hashes` with one 64-bit hash for each spoken word of `text`, in order.
///
/// A spoken word is a maximal run of letters, marks, digits, other numbers and underscores, in
/// lower case (simple, one character for one). A character of a script written without spaces
/// (Han, Hiragana, Katakana, Thai, Lao, Khmer, Myanmar) is a word of its own. Texts aren't
/// normalised: an accent that is a character of its own makes another word than a composed one.
pub fn normalised_words(text: &str, hashes: &mut Vec<u64>) {
    hashes.clear();
    // Lowering and classifying whole blocks is many times faster than byte by byte, and a jump that
    // depends on each word's length would cost more than its hash.
    let mut lowered = Vec::with_capacity(text.len() + SHORT_WORD_BYTES);
    lowered.extend_from_slice(text.as_bytes());
    lowered.make_ascii_lowercase();
    lowered.extend_from_slice(&[0; SHORT_WORD_BYTES]);
    let mut scratch = Vec::new();
    let mut run_start = None;
    let mut run_is_ascii = true;
    for (block, bytes) in lowered.chunks(64).enumerate() {
        let (in_run, not_ascii) = run_bits(bytes);
        let before = u64::from(run_start.is_some());
        // Bits at which a run begins or ends. The zeros at the end are in no run.
        let mut changes = in_run ^ (in_run << 1 | before);
        let mut first = 0;
        while changes != 0 {
            let bit = changes.trailing_zeros();
            changes &= changes - 1;
            let at = block * 64 + bit as usize;
            run_start = match run_start {
                None => {
                    first = bit;
                    Some(at)
                }
                Some(start) => {
                    if run_is_ascii && not_ascii & bits_between(first, bit) == 0 {
                        hashes.push(hash_of_word(&lowered, start, at));
                    } else {
                        // What ends a run is ASCII, so it begins and ends at borders of characters.
                        words_of_run(&text[start..at], &mut scratch, hashes);
                    }
                    run_is_ascii = true;
                    first = 0;
                    None
                }
            };
        }
        if run_start.is_some() {
            run_is_ascii &= not_ascii & bits_between(first, 64) == 0;
        }
    }
}

/// The bits from number `first` on and before number `end`, which is larger.
#[inline]
pub(super) fn bits_between(first: u32, end: u32) -> u64 {
    (u64::MAX >> (64 - (end - first))) << first
}

/// Words up to this length are hashed by a load and two multiplications.
pub(super) const SHORT_WORD_BYTES: usize = 16;

/// 64-bit hash of the bytes from `start` on and before `end`, of which there is at least one; there
/// must be [`SHORT_WORD_BYTES`] bytes from `start` on. xxHash3 for longer words.
#[inline]
pub(super) fn hash_of_word(bytes: &[u8], start: usize, end: usize) -> u64 {
    let length = end - start;
    if length > SHORT_WORD_BYTES {
        return xxh3_64(&bytes[start..end]);
    }
    let sixteen = bytes[start..start + SHORT_WORD_BYTES]
        .try_into()
        .expect("sixteen bytes");
    hash_of_short_word(u128::from_le_bytes(sixteen), length)
}

/// [`hash_of_word`] of a word of 1 to [`SHORT_WORD_BYTES`] bytes, which are the lowest of `word`; what is above them
/// doesn't count.
#[inline]
pub(super) fn hash_of_short_word(word: u128, length: usize) -> u64 {
    let word = word & (u128::MAX >> (8 * (SHORT_WORD_BYTES - length)));
    mix(mix(word as u64, (word >> 64) as u64), length as u64)
}

/// One bit for each of up to 64 bytes, the lowest for the first: set for lower-case ASCII letters,
/// digits, underscores and all that isn't ASCII; and set for what isn't ASCII.
#[inline]
fn run_bits(bytes: &[u8]) -> (u64, u64) {
    let mut in_run = [0u8; 64];
    let mut not_ascii = [0u8; 64];
    for ((in_run, not_ascii), &byte) in in_run.iter_mut().zip(&mut not_ascii).zip(bytes) {
        let letter = byte.wrapping_sub(b'a') < 26;
        let digit = byte.wrapping_sub(b'0') < 10;
        *in_run = u8::from(letter | digit | (byte == b'_') | (byte >= 0x80));
        *not_ascii = u8::from(byte >= 0x80);
    }
    (packed(&in_run), packed(&not_ascii))
}

/// The lowest bits of 64 bytes, which are 0 or 1.
#[inline]
pub(super) fn packed(flags: &[u8; 64]) -> u64 {
    let mut bits = 0;
    for (number, eight) in flags.chunks_exact(8).enumerate() {
        let eight = u64::from_le_bytes(eight.try_into().expect("chunks of eight"));
        // Moves the lowest bit of byte k to bit 56 + k; nothing else reaches those bits.
        bits |= (eight.wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * number);
    }
    bits
}

/// The words of a run of word characters and characters outside ASCII.
fn words_of_run(run: &str, lowered: &mut Vec<u8>, hashes: &mut Vec<u64>) {
    let mut encoded = [0; 4];
    let lower_case_of_short = LOWER_CASE_OF_SHORT.as_slice();
    for character in run.chars() {
        if let Some(&lower) = lower_case_of_short.get(character as usize) {
            match char::from_u32(u32::from(lower)) {
                Some(lower) if lower.is_ascii() && lower != '\0' => lowered.push(lower as u8),
                Some(lower) if lower != '\0' => {
                    lowered.extend_from_slice(lower.encode_utf8(&mut encoded).as_bytes());
                }
                _ => finish_word(lowered, hashes),
            }
        } else if is_of_unspaced_script(character) {
            finish_word(lowered, hashes);
            if is_word_character(character) {
                lowered.extend_from_slice(character.encode_utf8(&mut encoded).as_bytes());
                finish_word(lowered, hashes);
            }
        } else if is_word_character(character) {
            let lower = simple_lower_case(character);
            lowered.extend_from_slice(lower.encode_utf8(&mut encoded).as_bytes());
        } else {
            finish_word(lowered, hashes);
        }
    }
    finish_word(lowered, hashes);
}

fn finish_word(lowered: &mut Vec<u8>, hashes: &mut Vec<u64>) {
    let length = lowered.len();
    if length > 0 {
        lowered.resize(length + SHORT_WORD_BYTES, 0);
        hashes.push(hash_of_word(lowered, 0, length));
        lowered.clear();
    }
}

/// Mixes a word's hash into the hash of the words before it (folded multiplication).
#[inline]
pub fn mix(before: u64, word_hash: u64) -> u64 {
    // Odd constants with mixed bits: fractions of the golden ratio and of the square root of 3.
    let product =
        u128::from(before ^ 0x9e37_79b9_7f4a_7c15) * u128::from(word_hash ^ 0xbb67_ae85_84ca_a73b);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Fills `shingles` with one 64-bit hash for each different run of `n` words, sorted ascending,
/// each once. Fewer than `n` words give none: the caller needs a rule for short documents.
///
/// The hash depends on the order of the words. Two different runs share a hash with a chance of
/// about 2^-64.
///
/// # Panics
/// When `n` is 0.
pub fn shingles(word_hashes: &[u64], n: usize, shingles: &mut Vec<u64>) {
    assert!(n > 0, "a shingle has at least one word");
    shingles.clear();
    shingles.extend(
        word_hashes
            .windows(n)
            .map(|run| run.iter().fold(n as u64, |hash, &word| mix(hash, word))),
    );
    shingles.sort_unstable();
    shingles.dedup();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algo::minhash::jaccard_at_least;
    use std::collections::HashMap;

    fn jaccard(a: &[u64], b: &[u64]) -> f64 {
        jaccard_at_least(a, b, 0.0).unwrap_or(0.0)
    }

    fn written(text: &str) -> Vec<(&str, usize, usize)> {
        Words::new(text)
            .map(|word| {
                (
                    &text[word.start..word.end],
                    word.characters,
                    word.line_feeds_before,
                )
            })
            .collect()
    }

    #[test]
    fn written_words_stand_between_white_space_of_any_kind() {
        assert_eq!(
            written("a, bc\u{a0}d\u{3000}é\u{2028}語"),
            [
                ("a,", 2, 0),
                ("bc", 2, 0),
                ("d", 1, 0),
                ("é", 1, 0),
                ("語", 1, 0)
            ]
        );
        assert_eq!(written(""), []);
        assert_eq!(written(" \n\t"), []);
        assert_eq!(written("\u{85}x\u{1680}"), [("x", 1, 0)]);
    }

    #[test]
    fn written_words_tell_lines_and_paragraphs() {
        assert_eq!(
            written("\na\r\nb \n \n\t c d\n"),
            [("a", 1, 1), ("b", 1, 1), ("c", 1, 2), ("d", 1, 0)]
        );
    }

    proptest::proptest! {
        #[test]
        fn written_words_are_those_of_the_standard_library(text in "(?s).{0,60}") {
            let ours: Vec<(&str, usize)> = written(&text).into_iter().map(|(word, n, _)| (word, n)).collect();
            let theirs: Vec<(&str, usize)> = text.split_whitespace().map(|word| (word, word.chars().count())).collect();
            proptest::prop_assert_eq!(ours, theirs);
        }

        #[test]
        fn spoken_words_agree_with_the_definition(text in "[a-dA-DéÉжЖ語のก_0-3 ,.\\u{300}\\u{2019}ßİ]{0,200}") {
            proptest::prop_assert_eq!(hashes(&text), by_definition(&text));
        }

        #[test]
        fn spoken_words_agree_with_the_definition_on_any_text(text in "(?s).{0,200}") {
            proptest::prop_assert_eq!(hashes(&text), by_definition(&text));
        }
    }

    fn hashes(text: &str) -> Vec<u64> {
        let mut hashes = vec![1, 2, 3];
        normalised_words(text, &mut hashes);
        hashes
    }

    /// Character by character, as the documentation says.
    fn by_definition(text: &str) -> Vec<u64> {
        let mut hashes = Vec::new();
        let mut word = String::new();
        for character in text.chars().chain([' ']) {
            let belongs = is_word_character(character);
            let alone = is_of_unspaced_script(character);
            if (!belongs || alone) && !word.is_empty() {
                hashes.push(hash_alone(&word));
                word.clear();
            }
            if belongs && alone {
                hashes.push(hash_alone(&character.to_string()));
            } else if belongs {
                word.push(simple_lower_case(character));
            }
        }
        hashes
    }

    fn hash_alone(word: &str) -> u64 {
        let mut padded = word.as_bytes().to_vec();
        padded.resize(word.len() + SHORT_WORD_BYTES, 0);
        hash_of_word(&padded, 0, word.len())
    }

    #[test]
    fn punctuation_and_case_make_no_difference() {
        assert_eq!(
            hashes("Don't STOP, \u{201c}now\u{201d}"),
            hashes("don t stop now")
        );
        assert_eq!(hashes("ÉCOLE Straße ЖУК"), hashes("école straße жук"));
        assert_ne!(hashes("snake_case"), hashes("snake case"));
        assert!(hashes("").is_empty());
        assert!(hashes(" ,.- ").is_empty());
    }

    #[test]
    fn scripts_without_spaces_have_a_word_for_each_character() {
        assert_eq!(hashes("abc語言def").len(), 4);
        assert_eq!(hashes("語。言").len(), 2);
        assert_eq!(hashes("ひらカタ").len(), 4);
        assert_eq!(hashes("ไทย").len(), 3);
        assert_eq!(hashes("한국어").len(), 1);
        assert_eq!(hashes("語言"), [hashes("語")[0], hashes("言")[0]]);
    }

    #[test]
    fn words_at_every_length_and_place_are_told_apart() {
        // Across the borders of blocks of 64 bytes and of 16-byte loads.
        let mut seen = HashMap::new();
        for length in 1..200 {
            let word = "abcdefghij".repeat(20)[..length].to_string();
            for before in [0, 1, 15, 47, 63, 64] {
                let text = format!("{}{word}", " ".repeat(before));
                assert_eq!(
                    hashes(&text),
                    [hash_alone(&word)],
                    "{before} before {length}"
                );
            }
            assert_eq!(seen.insert(hash_alone(&word), length), None);
        }
        assert_eq!(hashes("it is in it").len(), 4);
        assert_eq!(hashes("it is in it")[0], hashes("it is in it")[3]);
    }

    #[test]
    fn shingles_depend_on_order_and_are_a_sorted_set() {
        let of = |text: &str, n: usize| {
            let mut set = vec![7];
            shingles(&hashes(text), n, &mut set);
            set
        };
        assert!(of("a b c", 4).is_empty());
        assert_eq!(of("a b c d", 4).len(), 1);
        assert_eq!(of("a b a b a b", 2).len(), 2);
        assert_ne!(of("a b", 2), of("b a", 2));
        assert_ne!(of("a b", 2), of("a", 1));
        let many = of(&(0..1000).map(|n| format!("w{n} ")).collect::<String>(), 5);
        assert_eq!(many.len(), 996);
        assert!(many.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn jaccard_is_what_is_shared_over_what_is_in_either() {
        assert_eq!(jaccard(&[], &[]), 0.0);
        assert_eq!(jaccard(&[1], &[]), 0.0);
        assert_eq!(jaccard(&[1, 2, 3], &[2, 3, 4]), 0.5);
        assert_eq!(jaccard(&[1, 2], &[1, 2]), 1.0);
        // Two shared of five in either.
        assert_eq!(jaccard(&[1, 3, 5], &[2, 3, 4, 5]), 2.0 / 5.0);
    }

    #[test]
    #[expect(clippy::print_stdout, reason = "says why it did nothing")]
    fn jaccard_agrees_with_the_table_of_known_pairs() {
        let folder = std::path::Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../shared/data/labelled"
        ));
        let Ok(table) = std::fs::File::open(folder.join("neardup-pairs.tsv.zst")) else {
            println!("skipped: no shared data");
            return;
        };
        let mut sets: HashMap<String, Vec<u64>> = HashMap::new();
        for file in ["neardup-docs-00.jsonl.zst", "neardup-docs-01.jsonl.zst"] {
            let file = std::fs::File::open(folder.join(file)).expect("beside the table");
            let lines = zstd::decode_all(file).expect("whole");
            for line in lines
                .split(|&byte| byte == b'\n')
                .filter(|line| !line.is_empty())
            {
                let document: serde_json::Value = serde_json::from_slice(line).expect("JSON");
                let mut set = Vec::new();
                shingles(
                    &hashes(document["text"].as_str().expect("a text")),
                    5,
                    &mut set,
                );
                sets.insert(document["id"].as_str().expect("an id").to_string(), set);
            }
        }
        let table = String::from_utf8(zstd::decode_all(table).expect("whole")).expect("UTF-8");
        let (mut pairs, mut close, mut largest) = (0, 0, (0.0, String::new()));
        for row in table.lines().skip(1) {
            let columns: Vec<&str> = row.split('\t').collect();
            let expected: f64 = columns[3].parse().expect("a number");
            let difference = (jaccard(&sets[columns[0]], &sets[columns[1]]) - expected).abs();
            pairs += 1;
            // The table has four digits.
            close += usize::from(difference <= 0.000_051);
            if difference > largest.0 {
                largest = (difference, row.to_string());
            }
        }
        println!(
            "{close} of {pairs} pairs agree to four digits; the largest difference is {} in {}",
            largest.0, largest.1
        );
        assert!(pairs > 4000);
        assert!(largest.0 < 0.02, "{largest:?}");
        assert!(close * 100 >= pairs * 95, "{close} of {pairs}");
    }
}
