//! *Bare words*: what stands between white space, in lower case and without punctuation, for finding
//! a known text again where only its case, punctuation and layout were changed.
//!
//! `Don't` is `dont`, `f(x_1)` is `fx1`, and a dash alone is no word: a text with its punctuation
//! removed has the bare words of the text itself. Spoken words ([`super::words::normalised_words`])
//! are split at punctuation instead, so there `don't` is two words and `dont` is one. White space
//! that is removed or put in makes other words in both senses.

use super::words::{
    SHORT_WORD_BYTES, bits_between, hash_of_short_word, hash_of_word, is_of_unspaced_script,
    is_word_character, packed, simple_lower_case,
};
use std::ops::Range;
use std::sync::LazyLock;

/// Whether a character belongs to bare words: a letter, mark, digit or other number.
fn is_bare(c: char) -> bool {
    c != '_' && is_word_character(c)
}

/// What a character is to bare words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// It is dropped.
    Nothing,
    /// It ends a word.
    Space,
    /// It is a word of its own.
    Whole,
    /// It belongs to a word, as this character.
    Lower(char),
}

impl Part {
    fn of(c: char) -> Part {
        if is_bare(c) {
            match is_of_unspaced_script(c) {
                true => Part::Whole,
                false => Part::Lower(simple_lower_case(c)),
            }
        } else if c.is_whitespace() {
            Part::Space
        } else {
            Part::Nothing
        }
    }
}

/// In [`PARTS`]: control characters, so that they are no lower case of anything.
const NOTHING: u16 = 0;
const SPACE: u16 = 1;
const WHOLE: u16 = 2;

/// For each character below U+10000 what it is: one of the constants above, else its lower case. Looking a
/// character's properties up takes many times longer than this.
static PARTS: LazyLock<Vec<u16>> = LazyLock::new(|| {
    let part = |code| match char::from_u32(code).map_or(Part::Nothing, Part::of) {
        Part::Nothing => NOTHING,
        Part::Space => SPACE,
        Part::Whole => WHOLE,
        Part::Lower(lower) => u16::try_from(u32::from(lower))
            .expect("lower cases of characters below U+10000 are below it too"),
    };
    (0..0x1_0000).map(part).collect()
});

fn part_of(c: char, parts: &[u16]) -> Part {
    match parts.get(c as usize) {
        Some(&NOTHING) => Part::Nothing,
        Some(&SPACE) => Part::Space,
        Some(&WHOLE) => Part::Whole,
        Some(&lower) => {
            Part::Lower(char::from_u32(u32::from(lower)).expect("the code of a character"))
        }
        None => Part::of(c),
    }
}

/// Bytes that are classified at a time.
const BLOCK_BYTES: usize = 64;

/// What the bytes of a block are, one bit for each, the lowest for the first.
struct Block {
    /// ASCII letters, digits, and all that isn't ASCII.
    in_run: u64,
    not_ascii: u64,
    /// White space of ASCII.
    space: u64,
}

impl Block {
    #[inline]
    fn of(bytes: &[u8]) -> Block {
        let mut in_run = [0u8; BLOCK_BYTES];
        let mut not_ascii = [0u8; BLOCK_BYTES];
        let mut space = [0u8; BLOCK_BYTES];
        let flags = in_run.iter_mut().zip(&mut not_ascii).zip(&mut space);
        for (((in_run, not_ascii), space), &byte) in flags.zip(bytes) {
            let letter = (byte | 0x20).wrapping_sub(b'a') < 26;
            let digit = byte.wrapping_sub(b'0') < 10;
            *in_run = u8::from(letter | digit | (byte >= 0x80));
            *not_ascii = u8::from(byte >= 0x80);
            *space = u8::from((byte == b' ') | (byte.wrapping_sub(0x09) < 5));
        }
        Block {
            in_run: packed(&in_run),
            not_ascii: packed(&not_ascii),
            space: packed(&space),
        }
    }
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
    // About as many as prose has.
    hashes.reserve(text.len() / 5);
    let mut words = Hashed {
        text,
        parts: PARTS.as_slice(),
        run: 0..0,
        word: Vec::new(),
        length: 0,
        hashes,
    };
    // The run that goes on at the end of a block: its start, whether it belongs to the word before, and whether all
    // of it so far is ASCII.
    let mut open: Option<(usize, bool, bool)> = None;
    // Whether white space stands between the last run and this block.
    let mut space_before = true;
    for (number, bytes) in text.as_bytes().chunks(BLOCK_BYTES).enumerate() {
        let block = Block::of(bytes);
        let base = number * BLOCK_BYTES;
        let shifted = block.in_run << 1 | u64::from(open.is_some());
        let mut starts = block.in_run & !shifted;
        let mut ends = shifted & !block.in_run;
        // Behind the last run.
        let mut from = 0;
        while ends != 0 {
            let end = ends.trailing_zeros();
            ends &= ends - 1;
            let (start, joins, is_ascii) = match open.take() {
                Some((start, joins, is_ascii)) => {
                    // What goes on from the block before may end with it.
                    let here = block.not_ascii & !(u64::MAX << end);
                    (start, joins, is_ascii && here == 0)
                }
                None => {
                    let start = starts.trailing_zeros();
                    starts &= starts - 1;
                    let space = block.space & !(u64::MAX << start) & (u64::MAX << from) != 0;
                    let is_ascii = block.not_ascii & bits_between(start, end) == 0;
                    (base + start as usize, !(space | space_before), is_ascii)
                }
            };
            words.push(start..base + end as usize, joins, is_ascii);
            space_before = false;
            from = end;
        }
        if let Some((_, _, is_ascii)) = &mut open {
            // It fills the block.
            *is_ascii &= block.not_ascii == 0;
        } else if starts != 0 {
            let start = starts.trailing_zeros();
            let space = block.space & !(u64::MAX << start) & (u64::MAX << from) != 0;
            let is_ascii = block.not_ascii & (u64::MAX << start) == 0;
            open = Some((base + start as usize, !(space | space_before), is_ascii));
            space_before = false;
        } else {
            space_before |= block.space & (u64::MAX << from) != 0;
        }
    }
    if let Some((start, joins, is_ascii)) = open {
        words.push(start..text.len(), joins, is_ascii);
    }
    words.finish();
}

/// Runs of letters and digits of ASCII and of all characters outside ASCII, on their way into words.
struct Hashed<'a> {
    text: &'a str,
    parts: &'a [u16],
    /// The word so far, where it is one run of ASCII.
    run: Range<usize>,
    /// The word so far in lower case, where it is not, and its length. One of the two is empty.
    word: Vec<u8>,
    length: usize,
    hashes: &'a mut Vec<u64>,
}

impl Hashed<'_> {
    /// Takes the next run, which `joins` the word before where no white space of ASCII stands between.
    #[inline]
    fn push(&mut self, run: Range<usize>, joins: bool, is_ascii: bool) {
        if !joins {
            self.finish();
        }
        if is_ascii && self.run.is_empty() && self.length == 0 {
            self.run = run;
        } else {
            self.append(run, is_ascii);
        }
    }

    fn append(&mut self, run: Range<usize>, is_ascii: bool) {
        let before = std::mem::take(&mut self.run);
        // A lower case may take a byte more than the character, and a whole load must be there behind the word.
        let most = self.length + before.len() + 2 * run.len() + 2 * SHORT_WORD_BYTES;
        if self.word.len() < most {
            self.word.resize(most, 0);
        }
        self.lower(before);
        if is_ascii {
            self.lower(run);
            return;
        }
        for character in self.text[run].chars() {
            match part_of(character, self.parts) {
                Part::Lower(lower) => self.encode(lower),
                Part::Nothing => {}
                Part::Space => self.finish_word(),
                Part::Whole => {
                    self.finish_word();
                    self.encode(character);
                    self.finish_word();
                }
            }
        }
    }

    #[inline]
    fn encode(&mut self, character: char) {
        self.length += character.encode_utf8(&mut self.word[self.length..]).len();
    }

    /// Appends a run of ASCII to the word, which has room for it.
    fn lower(&mut self, run: Range<usize>) {
        let Range { start, end } = run;
        let bytes = self.text.as_bytes();
        match bytes.get(start..start + SHORT_WORD_BYTES) {
            Some(sixteen) if end - start <= SHORT_WORD_BYTES => {
                let lower = lower_case(sixteen).to_le_bytes();
                self.word[self.length..][..SHORT_WORD_BYTES].copy_from_slice(&lower);
            }
            _ => {
                let to = &mut self.word[self.length..][..end - start];
                to.copy_from_slice(&bytes[start..end]);
                to.make_ascii_lowercase();
            }
        }
        self.length += end - start;
    }

    /// Ends the word, if there is one.
    #[inline]
    fn finish(&mut self) {
        let Range { start, end } = std::mem::take(&mut self.run);
        let length = end - start;
        if length == 0 {
            self.finish_word();
            return;
        }
        match self.text.as_bytes().get(start..start + SHORT_WORD_BYTES) {
            Some(sixteen) if length <= SHORT_WORD_BYTES => {
                self.hashes
                    .push(hash_of_short_word(lower_case(sixteen), length));
            }
            _ => {
                self.append(start..end, true);
                self.finish_word();
            }
        }
    }

    fn finish_word(&mut self) {
        if self.length > 0 {
            self.hashes.push(hash_of_word(&self.word, 0, self.length));
            self.length = 0;
        }
    }
}

/// Letters and digits of ASCII in lower case; what else stands in the sixteen bytes becomes anything.
#[inline]
fn lower_case(sixteen: &[u8]) -> u128 {
    let sixteen = sixteen.try_into().expect("sixteen bytes");
    // The bit that letters and digits of ASCII have, but for upper-case letters.
    u128::from_le_bytes(sixteen) | u128::from_le_bytes([0x20; 16])
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
