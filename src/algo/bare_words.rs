//! *Bare words*: what stands between white space, in lower case and without punctuation, for finding
//! a known text again where only its case, punctuation and layout were changed.
//!
//! `Don't` is `dont`, `f(x_1)` is `fx1`, and a dash alone is no word: a text with its punctuation
//! removed has the bare words of the text itself. Spoken words ([`super::words::normalised_words`])
//! are split at punctuation instead, so there `don't` is two words and `dont` is one. White space
//! that is removed or put in makes other words in both senses.

use super::words::{
    LOWER_CASE_OF_SHORT, SHORT_WORD_BYTES, hash_of_word, is_of_unspaced_script, is_word_character,
    simple_lower_case,
};
use std::ops::Range;

const DROPPED: u8 = 0;

/// What becomes of each ASCII character: a lower-case letter or a digit, a space for white space,
/// else [`DROPPED`].
const BARE: [u8; 128] = {
    let mut table = [DROPPED; 128];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = match byte as u8 {
            letter @ (b'a'..=b'z' | b'0'..=b'9') => letter,
            letter @ b'A'..=b'Z' => letter.to_ascii_lowercase(),
            b' ' | 0x09..=0x0d => b' ',
            _ => DROPPED,
        };
        byte += 1;
    }
    table
};

/// Whether a character belongs to bare words: a letter, mark, digit or other number.
fn is_bare(c: char) -> bool {
    c != '_' && is_word_character(c)
}

/// Fills `hashes` with one 64-bit hash for each bare word of `text`, in order.
///
/// A bare word is what is left of a maximal run of characters that are not white space when all but
/// letters, marks, digits and other numbers are dropped, in lower case (simple, one character for
/// one); where nothing is left there is no word. A character of a script written without spaces
/// (see [`is_of_unspaced_script`]) is a word of its own. Texts aren't normalised: an accent that is
/// a character of its own makes another word than a composed one.
pub fn bare_words(text: &str, hashes: &mut Vec<u64>) {
    hashes.clear();
    let bytes = text.as_bytes();
    // The word so far; room for the longest one, and for a whole load behind it.
    let mut word = vec![0; bytes.len() + SHORT_WORD_BYTES];
    let mut length = 0;
    let mut finish = |word: &[u8], length: &mut usize| {
        if *length > 0 {
            hashes.push(hash_of_word(word, 0, *length));
            *length = 0;
        }
    };
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte < 0x80 {
            at += 1;
            let bare = BARE[usize::from(byte)];
            if bare == b' ' {
                finish(&word, &mut length);
            } else {
                // Written in any case, kept where it stays: no jump depends on punctuation.
                word[length] = bare;
                length += usize::from(bare != DROPPED);
            }
            continue;
        }
        let character = text[at..]
            .chars()
            .next()
            .expect("before the end, on a border");
        at += character.len_utf8();
        let lower = match LOWER_CASE_OF_SHORT.get(character as usize) {
            Some(&lower) => char::from_u32(u32::from(lower)).filter(|&lower| lower != '\0'),
            None if !is_bare(character) => None,
            None if is_of_unspaced_script(character) => {
                finish(&word, &mut length);
                length = character.encode_utf8(&mut word).len();
                finish(&word, &mut length);
                continue;
            }
            None => Some(simple_lower_case(character)),
        };
        match lower {
            Some(lower) => {
                // A lower case may take a byte more than the character.
                if word.len() < length + 4 + SHORT_WORD_BYTES {
                    word.resize(word.len() * 2 + 4, 0);
                }
                length += lower.encode_utf8(&mut word[length..]).len();
            }
            None if character.is_whitespace() => finish(&word, &mut length),
            None => {}
        }
    }
    finish(&word, &mut length);
}

/// Calls `visit` for each bare word of `text`, in order, as long as it says `true`: with its bytes
/// in the text and the word itself.
///
/// The bytes take in the punctuation before the first word of its run of characters that are not
/// white space, and the punctuation after each word, so they begin and end at borders of characters
/// and of words.
pub fn each_bare_word(text: &str, mut visit: impl FnMut(Range<usize>, &str) -> bool) {
    let mut word = String::new();
    let mut span = 0..0;
    // Whether a run has begun, and whether the word in it is whole for its script has no spaces.
    let (mut in_run, mut whole) = (false, false);
    for (at, character) in text.char_indices() {
        if character.is_whitespace() {
            if !word.is_empty() && !visit(span.clone(), &word) {
                return;
            }
            word.clear();
            in_run = false;
            continue;
        }
        if !in_run {
            span.start = at;
            (in_run, whole) = (true, false);
        }
        if is_bare(character) {
            let alone = is_of_unspaced_script(character);
            if !word.is_empty() && (alone || whole) {
                if !visit(span.clone(), &word) {
                    return;
                }
                word.clear();
                span.start = at;
            }
            word.push(if alone {
                character
            } else {
                simple_lower_case(character)
            });
            whole = alone;
        }
        span.end = at + character.len_utf8();
    }
    if !word.is_empty() {
        visit(span, &word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<(&str, String)> {
        let mut found = Vec::new();
        each_bare_word(text, |span, word| {
            found.push((&text[span], word.to_string()));
            true
        });
        found
    }

    fn hashes(text: &str) -> Vec<u64> {
        let mut hashes = vec![1, 2, 3];
        bare_words(text, &mut hashes);
        hashes
    }

    #[test]
    fn punctuation_is_dropped_inside_words_too_and_belongs_to_their_bytes() {
        let expected = [
            ("\"Don't", "dont"),
            ("pay", "pay"),
            ("$6,000!\"", "6000"),
            ("f(x_1)", "fx1"),
            ("ÉTÉ…", "été"),
        ];
        let text = "\"Don't — pay\u{3000}$6,000!\" ... f(x_1)\n_ ÉTÉ…";
        let found = words(text);
        let found: Vec<(&str, &str)> = found.iter().map(|(a, b)| (*a, b.as_str())).collect();
        assert_eq!(found, expected);
        assert_eq!(hashes(text), hashes("dont pay 6000 fx1 été"));
        assert_ne!(hashes("pay"), hashes("pa y"));
        assert!(words("").is_empty() && words(" —_ \n").is_empty());
        assert!(hashes("").is_empty() && hashes(" —_ \n").is_empty());
    }

    #[test]
    fn characters_of_scripts_without_spaces_are_words() {
        let found = words("「語言。」abc語, ไทย 한국어");
        let found: Vec<(&str, &str)> = found.iter().map(|(a, b)| (*a, b.as_str())).collect();
        let expected = [
            ("「語", "語"),
            ("言。」", "言"),
            ("abc", "abc"),
            ("語,", "語"),
            ("ไ", "ไ"),
            ("ท", "ท"),
            ("ย", "ย"),
            ("한국어", "한국어"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_visitor_that_has_enough_is_asked_no_more() {
        let mut seen = 0;
        each_bare_word("a b c", |_, _| {
            seen += 1;
            seen < 2
        });
        assert_eq!(seen, 2);
    }

    /// The hashes of words that [`each_bare_word`] finds, each hashed alone.
    fn one_by_one(text: &str) -> Vec<u64> {
        words(text)
            .iter()
            .flat_map(|(_, word)| hashes(word))
            .collect()
    }

    proptest::proptest! {
        #[test]
        fn both_ways_find_the_same_words(text in "[a-cA-CéÉжЖ語のไ_0-3 ,.'\\u{300}\\u{2019}\\u{85}\\u{3000}ßİ฿—]{0,200}") {
            proptest::prop_assert_eq!(hashes(&text), one_by_one(&text));
        }

        #[test]
        fn both_ways_find_the_same_words_on_any_text(text in "(?s).{0,200}") {
            proptest::prop_assert_eq!(hashes(&text), one_by_one(&text));
        }

        #[test]
        fn spans_do_not_meet_white_space_and_follow_each_other(text in "[ab語,. \\n—]{0,80}") {
            let mut end = 0;
            each_bare_word(&text, |span, word| {
                assert!(span.start >= end && span.start < span.end && !word.is_empty());
                assert!(!text[span.clone()].contains(char::is_whitespace));
                end = span.end;
                true
            });
        }
    }
}
