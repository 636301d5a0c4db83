//! The repetition rules of MassiveText: texts that say the same again and again.

use super::{Stage, StageKind, identify};
use crate::algo::words::{Words, mix};
use crate::record::{
    Document, Kind, Notes, OptionError, OptionSpec, Options, Reason, Spec, Verdict,
};
use std::cell::RefCell;
use xxhash_rust::xxh3::xxh3_64;

const fn fraction(name: &'static str, default: &'static str, doc: &'static str) -> OptionSpec {
    OptionSpec {
        name,
        kind: Kind::Number { min: 0.0, max: 1.0 },
        default: Some(default),
        doc,
    }
}

/// What the table says.
pub(super) const KIND: StageKind = StageKind {
    spec: Spec {
        name: "gopher_repetition",
        summary: "Rejects texts that repeat themselves, by the repetition rules of MassiveText",
        details: "Rules and defaults are those of Rae et al. 2021, Scaling Language Models: Methods, Analysis & \
            Insights from Training Gopher (arXiv 2112.11446), appendix A.1.1, table A1. A document exactly at a \
            bound stays. Rules are tried in the order of the reasons; the first that is broken decides. A bound of 1 \
            switches a rule off.\n\
            \n\
            Words are maximal runs of characters that are not white space, punctuation and letter case included. \
            Lines end at line feeds, paragraphs at blank lines (of white space only); both reach from their first \
            word to their last, so blank lines are never duplicates and indentation makes no difference. A duplicate \
            is what has stood in the document before: of three equal lines two are duplicates. Characters are Unicode \
            scalar values that are not white space; every share of characters is one of the document's.\n\
            \n\
            The top n-gram (n = 2, 3, 4) is the run of n words that stands most often, of several the one with most \
            characters, then the earliest. Its share is of the characters covered by its places; one that stands \
            once only has the share 0. The share of duplicate n-grams (n = 5 to 10) is of the characters covered by \
            any run of n words that has stood before, overlapping it or not. Characters covered twice count once. \
            Runs go across line ends.\n\
            \n\
            Rules on n-grams hold for languages that put spaces between words (not for Chinese, Japanese, Thai, Lao, \
            Khmer, Burmese, Tibetan and their kin). The language is the one that a `language` stage before has \
            found, else the embedded identifier's. A rule that a document breaks and that does not hold for its \
            language is skipped and counted in a note, e.g. `top_2gram_skipped_language`.\n\
            \n\
            The paper doesn't say whether the first of several equal lines is a duplicate. Here, as in datatrove, it \
            is not; in dolma it is. The paper counts no character of overlapping n-grams twice, and so do we; \
            datatrove jumps over the words of each duplicate n-gram and so misses some, and multiplies length by \
            count for the top n-gram, as dolma does, which takes shares of all n-grams' characters. Words and runs \
            are compared by 64-bit hashes: two different ones are taken for equal with a chance of about 2^-64.",
        options: &[
            fraction(
                "max_duplicate_line_fraction",
                "0.30",
                "Largest share of lines that are duplicates; a document above is rejected.",
            ),
            fraction(
                "max_duplicate_paragraph_fraction",
                "0.30",
                "Largest share of paragraphs that are duplicates; a document above is rejected.",
            ),
            fraction(
                "max_duplicate_line_character_fraction",
                "0.20",
                "Largest share of characters in duplicate lines; a document above is rejected.",
            ),
            fraction(
                "max_duplicate_paragraph_character_fraction",
                "0.20",
                "Largest share of characters in duplicate paragraphs; a document above is rejected.",
            ),
            fraction(
                "max_top_2gram_character_fraction",
                "0.20",
                "Largest share of characters in the most frequent run of 2 words; a document above is rejected.",
            ),
            fraction(
                "max_top_3gram_character_fraction",
                "0.18",
                "Largest share of characters in the most frequent run of 3 words; a document above is rejected.",
            ),
            fraction(
                "max_top_4gram_character_fraction",
                "0.16",
                "Largest share of characters in the most frequent run of 4 words; a document above is rejected.",
            ),
            fraction(
                "max_duplicate_5gram_character_fraction",
                "0.15",
                "Largest share of characters in duplicate runs of 5 words; a document above is rejected.",
            ),
            fraction(
                "max_duplicate_6gram_character_fraction",
                "0.14",
                "Largest share of characters in duplicate runs of 6 words; a document above is rejected.",
            ),
            fraction(
                "max_duplicate_7gram_character_fraction",
                "0.13",
                "Largest share of characters in duplicate runs of 7 words; a document above is rejected.",
            ),
            fraction(
                "max_duplicate_8gram_character_fraction",
                "0.12",
                "Largest share of characters in duplicate runs of 8 words; a document above is rejected.",
            ),
            fraction(
                "max_duplicate_9gram_character_fraction",
                "0.11",
                "Largest share of characters in duplicate runs of 9 words; a document above is rejected.",
            ),
            fraction(
                "max_duplicate_10gram_character_fraction",
                "0.10",
                "Largest share of characters in duplicate runs of 10 words; a document above is rejected.",
            ),
        ],
        example: "{ max_duplicate_line_fraction: 0.3 }",
    },
    reasons: &[
        Reason::low_value(
            "duplicate_lines",
            "The value is the share of lines that are duplicates, 0 to 1.",
        ),
        Reason::low_value(
            "duplicate_paragraphs",
            "The value is the share of paragraphs that are duplicates, 0 to 1.",
        ),
        Reason::low_value(
            "duplicate_line_characters",
            "The value is the share of characters in duplicate lines, 0 to 1.",
        ),
        Reason::low_value(
            "duplicate_paragraph_characters",
            "The value is the share of characters in duplicate paragraphs, 0 to 1.",
        ),
        Reason::low_value(
            "top_2gram",
            "The value is the share of characters in the most frequent run of 2 words, 0 to 1.",
        ),
        Reason::low_value(
            "top_3gram",
            "The value is the share of characters in the most frequent run of 3 words, 0 to 1.",
        ),
        Reason::low_value(
            "top_4gram",
            "The value is the share of characters in the most frequent run of 4 words, 0 to 1.",
        ),
        Reason::low_value(
            "duplicate_5grams",
            "The value is the share of characters in duplicate runs of 5 words, 0 to 1.",
        ),
        Reason::low_value(
            "duplicate_6grams",
            "The value is the share of characters in duplicate runs of 6 words, 0 to 1.",
        ),
        Reason::low_value(
            "duplicate_7grams",
            "The value is the share of characters in duplicate runs of 7 words, 0 to 1.",
        ),
        Reason::low_value(
            "duplicate_8grams",
            "The value is the share of characters in duplicate runs of 8 words, 0 to 1.",
        ),
        Reason::low_value(
            "duplicate_9grams",
            "The value is the share of characters in duplicate runs of 9 words, 0 to 1.",
        ),
        Reason::low_value(
            "duplicate_10grams",
            "The value is the share of characters in duplicate runs of 10 words, 0 to 1.",
        ),
    ],
    notes: &[
        "top_2gram_skipped_language",
        "top_3gram_skipped_language",
        "top_4gram_skipped_language",
        "duplicate_5grams_skipped_language",
        "duplicate_6grams_skipped_language",
        "duplicate_7grams_skipped_language",
        "duplicate_8grams_skipped_language",
        "duplicate_9grams_skipped_language",
        "duplicate_10grams_skipped_language",
    ],
    build,
};

/// Reasons before those of n-grams, which begin with n = 2.
const LINE_RULES: usize = 4;
const RULES: usize = 13;
/// Up to this n the most frequent n-gram counts, beyond it all duplicate ones.
const LARGEST_TOP_N: usize = 4;
const LARGEST_N: usize = 10;

struct Repetition {
    /// One for each reason, in their order.
    max_fractions: [f64; RULES],
}

fn build(options: &Options) -> Result<Box<dyn Stage>, OptionError> {
    let mut max_fractions = [0.0; RULES];
    for (max, option) in max_fractions.iter_mut().zip(KIND.spec.options) {
        *max = options.number(option.name);
    }
    Ok(Box::new(Repetition { max_fractions }))
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::default());
}

impl Stage for Repetition {
    fn judge(&self, document: &mut Document, notes: &mut Notes) -> Result<Verdict, String> {
        SCRATCH.with_borrow_mut(|scratch| {
            let verdict = self.judge_with(scratch, document, notes);
            scratch.shrink();
            verdict
        })
    }
}

impl Repetition {
    fn judge_with(
        &self,
        scratch: &mut Scratch,
        document: &mut Document,
        notes: &mut Notes,
    ) -> Result<Verdict, String> {
        scratch.read(&document.text)?;
        let Scratch {
            table,
            lines,
            paragraphs,
            ..
        } = &mut *scratch;
        let (line_fraction, line_character_fraction) = duplicate_fractions(lines, table);
        let (paragraph_fraction, paragraph_character_fraction) =
            duplicate_fractions(paragraphs, table);
        let fractions = [
            line_fraction,
            paragraph_fraction,
            line_character_fraction,
            paragraph_character_fraction,
        ];
        for (reason, value) in fractions.into_iter().enumerate() {
            if value > self.max_fractions[reason] {
                return Ok(Verdict::Reject { reason, value });
            }
        }
        for n in 2..=LARGEST_N {
            let fraction = scratch.ngram_fraction(n);
            let rule = LINE_RULES + n - 2;
            if fraction > self.max_fractions[rule] {
                // Identified only where it decides something: most documents break no rule.
                if identify::is_written_with_spaces(document) {
                    return Ok(Verdict::Reject {
                        reason: rule,
                        value: fraction,
                    });
                }
                notes.count(n - 2);
            }
            if scratch.runs.is_empty() {
                break;
            }
        }
        Ok(Verdict::Keep)
    }
}

/// A line or a paragraph.
struct Unit {
    hash: u64,
    characters: u64,
}

/// The shares of units, and of their characters, that have stood before; 0 where there are none.
fn duplicate_fractions(units: &[Unit], table: &mut Table) -> (f64, f64) {
    if units.len() < 2 {
        return (0.0, 0.0);
    }
    table.start(units.len());
    let (mut duplicates, mut duplicate_characters, mut characters) = (0u64, 0, 0);
    for unit in units {
        let slot = table.add(unit.hash);
        if table.count(slot) > 1 {
            duplicates += 1;
            duplicate_characters += unit.characters;
        }
        characters += unit.characters;
    }
    (
        duplicates as f64 / units.len() as f64,
        duplicate_characters as f64 / characters as f64,
    )
}

/// A run of n words that starts at `word`; only those that may stand more than once are followed.
struct Run {
    hash: u64,
    word: u32,
    slot: u32,
}

/// Buffers that one document leaves to the next.
#[derive(Default)]
struct Scratch {
    table: Table,
    lines: Vec<Unit>,
    paragraphs: Vec<Unit>,
    word_hashes: Vec<u64>,
    /// Characters of all words before each word, and, at the end, of all.
    characters_before: Vec<u64>,
    runs: Vec<Run>,
}

/// Words of a text and slots of its table are numbered by 32 bits.
const MOST_WORDS: usize = 1 << 30;
/// Buffers larger than this many words are given back after a document.
const KEPT_WORDS: usize = 1 << 18;

impl Scratch {
    fn read(&mut self, text: &str) -> Result<(), String> {
        self.lines.clear();
        self.paragraphs.clear();
        self.word_hashes.clear();
        self.characters_before.clear();
        self.runs.clear();
        let bytes = text.as_bytes();
        let mut characters = 0;
        let (mut line_start, mut paragraph_start) = (Mark::default(), Mark::default());
        let mut end = 0;
        for word in Words::new(text) {
            if !self.word_hashes.is_empty() && word.starts_line() {
                self.lines.push(line_start.unit(bytes, end, characters));
                line_start = Mark {
                    byte: word.start,
                    characters,
                };
                if word.starts_paragraph() {
                    self.paragraphs
                        .push(paragraph_start.unit(bytes, end, characters));
                    paragraph_start = line_start;
                }
            } else if self.word_hashes.is_empty() {
                line_start.byte = word.start;
                paragraph_start.byte = word.start;
            }
            self.word_hashes.push(xxh3_64(&bytes[word.start..word.end]));
            self.characters_before.push(characters);
            characters += word.characters as u64;
            end = word.end;
        }
        self.characters_before.push(characters);
        if !self.word_hashes.is_empty() {
            self.lines.push(line_start.unit(bytes, end, characters));
            self.paragraphs
                .push(paragraph_start.unit(bytes, end, characters));
        }
        if self.word_hashes.len() > MOST_WORDS {
            let words = self.word_hashes.len();
            return Err(format!(
                "repetition is looked for in up to {MOST_WORDS} words, the text has {words}"
            ));
        }
        Ok(())
    }

    /// The share of characters that the rule for `n` looks at. To be called for n = 2, 3, 4 ... in
    /// order: a run of n words that repeats goes on from one of n - 1 words that does.
    fn ngram_fraction(&mut self, n: usize) -> f64 {
        let words = self.word_hashes.len();
        if n == 2 {
            self.runs.extend(
                self.word_hashes
                    .windows(2)
                    .enumerate()
                    .map(|(word, pair)| Run {
                        hash: mix(pair[0], pair[1]),
                        word: word as u32,
                        slot: 0,
                    }),
            );
        } else {
            let next = &self.word_hashes;
            self.runs
                .retain_mut(|run| match next.get(run.word as usize + n - 1) {
                    Some(&hash) => {
                        run.hash = mix(run.hash, hash);
                        true
                    }
                    None => false,
                });
        }
        if self.runs.is_empty() {
            return 0.0;
        }
        self.table.start(self.runs.len());
        let mut duplicates = Covered::default();
        for run in &mut self.runs {
            run.slot = self.table.add(run.hash);
            if n > LARGEST_TOP_N && self.table.count(run.slot) > 1 {
                duplicates.add(&self.characters_before, run.word as usize, n);
            }
        }
        let table = &self.table;
        self.runs.retain(|run| table.count(run.slot) > 1);
        let covered = if n > LARGEST_TOP_N {
            duplicates.characters
        } else {
            self.characters_of_top(n)
        };
        // There are words here, and each has a character.
        covered as f64 / self.characters_before[words] as f64
    }

    /// Characters that the places of the most frequent run cover.
    fn characters_of_top(&self, n: usize) -> u64 {
        let characters = |word: u32| {
            self.characters_before[word as usize + n] - self.characters_before[word as usize]
        };
        let mut top: Option<((u32, u64), &Run)> = None;
        for run in &self.runs {
            let key = (self.table.count(run.slot), characters(run.word));
            if top.is_none_or(|(top_key, _)| key > top_key) {
                top = Some((key, run));
            }
        }
        let Some((_, top)) = top else { return 0 };
        let mut covered = Covered::default();
        for run in self.runs.iter().filter(|run| run.slot == top.slot) {
            covered.add(&self.characters_before, run.word as usize, n);
        }
        covered.characters
    }

    fn shrink(&mut self) {
        if self.word_hashes.capacity() > KEPT_WORDS || self.table.slots.capacity() > 4 * KEPT_WORDS
        {
            *self = Scratch::default();
        }
    }
}

/// Characters covered by runs of words that come in order, each counted once.
#[derive(Default)]
struct Covered {
    characters: u64,
    /// The word after the last covered one.
    end: usize,
}

impl Covered {
    fn add(&mut self, characters_before: &[u64], word: usize, n: usize) {
        let start = self.end.max(word);
        self.end = word + n;
        self.characters += characters_before[self.end] - characters_before[start];
    }
}

/// Where a line or paragraph starts.
#[derive(Clone, Copy, Default)]
struct Mark {
    byte: usize,
    characters: u64,
}

impl Mark {
    fn unit(self, bytes: &[u8], end: usize, characters: u64) -> Unit {
        Unit {
            hash: xxh3_64(&bytes[self.byte..end]),
            characters: characters - self.characters,
        }
    }
}

/// Counts of 64-bit hashes, with open addressing. Emptied in constant time.
#[derive(Default)]
struct Table {
    slots: Vec<Slot>,
    /// Slots of another round are empty.
    round: u32,
    /// What a hash is shifted by to find its first slot.
    shift: u32,
    mask: usize,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    hash: u64,
    round: u32,
    count: u32,
}

impl Table {
    /// Empties it, and makes room for `hashes` different ones.
    fn start(&mut self, hashes: usize) {
        let size = (hashes * 2).next_power_of_two().max(16);
        if self.slots.len() < size || self.round == u32::MAX {
            self.slots.clear();
            self.slots.resize(size, Slot::default());
            self.round = 0;
        }
        self.round += 1;
        self.mask = size - 1;
        self.shift = 64 - size.trailing_zeros();
    }

    /// Counts a hash, and says in which slot.
    #[inline]
    fn add(&mut self, hash: u64) -> u32 {
        // The high bits of a product depend on all bits of the hash.
        let mut at = (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize;
        loop {
            let slot = &mut self.slots[at];
            if slot.round != self.round {
                *slot = Slot {
                    hash,
                    round: self.round,
                    count: 1,
                };
                return at as u32;
            }
            if slot.hash == hash {
                slot.count += 1;
                return at as u32;
            }
            at = (at + 1) & self.mask;
        }
    }

    #[inline]
    fn count(&self, slot: u32) -> u32 {
        self.slots[slot as usize].count
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{judged, verdict};
    use super::*;
    use crate::record::Value;
    use std::collections::{HashMap, HashSet};

    /// A text of different words, `n` of them, each of `length` characters.
    fn different_words(from: usize, n: usize, length: usize) -> String {
        (from..from + n)
            .map(|word| format!("{word:0length$}"))
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// All rules off but one.
    fn only(option: &'static str, max: f64, text: &str) -> Option<(&'static str, f64)> {
        let given: Vec<(&str, Value)> = KIND
            .spec
            .options
            .iter()
            .map(|spec| {
                (
                    spec.name,
                    Value::Number(if spec.name == option { max } else { 1.0 }),
                )
            })
            .collect();
        verdict(&KIND, &given, text)
    }

    #[test]
    fn the_bound_is_inclusive_for_lines() {
        let seven: String = (0..7).map(|line| format!("line number {line}\n")).collect();
        let at = format!("{seven}{}", "line number 0\n".repeat(3));
        assert_eq!(only("max_duplicate_line_fraction", 0.3, &at), None);
        let above = format!("{at}line number 1");
        assert_eq!(
            only("max_duplicate_line_fraction", 0.3, &above),
            Some(("duplicate_lines", 4.0 / 11.0))
        );
        assert_eq!(only("max_duplicate_line_fraction", 0.4, &above), None);
    }

    #[test]
    fn blank_lines_are_not_duplicate_lines() {
        let text = format!("first\n\n\n  \n\t\n\r\n\nsecond\n{}third", "\n".repeat(500));
        for option in KIND.spec.options {
            assert_eq!(only(option.name, 0.0, &text), None, "{}", option.name);
        }
    }

    #[test]
    fn indentation_and_carriage_returns_make_no_difference() {
        let text = "same line\r\n   same line  \nsame line";
        assert_eq!(
            only("max_duplicate_line_fraction", 0.3, text),
            Some(("duplicate_lines", 2.0 / 3.0))
        );
    }

    #[test]
    fn characters_of_duplicate_lines_are_counted_without_white_space() {
        // 4 of 4 + 4 + 8 characters.
        let text = "ab cd\nab cd\nabcdefgh";
        assert_eq!(
            only("max_duplicate_line_character_fraction", 0.2, text),
            Some(("duplicate_line_characters", 0.25))
        );
        assert_eq!(
            only("max_duplicate_line_character_fraction", 0.25, text),
            None
        );
    }

    #[test]
    fn paragraphs_end_at_blank_lines() {
        let text = "one\ntwo\n \none\ntwo\n\n\nthree";
        assert_eq!(
            only("max_duplicate_paragraph_fraction", 0.3, text),
            Some(("duplicate_paragraphs", 1.0 / 3.0))
        );
        assert_eq!(
            only("max_duplicate_paragraph_character_fraction", 0.2, text),
            Some(("duplicate_paragraph_characters", 6.0 / 17.0))
        );
        assert_eq!(
            only("max_duplicate_paragraph_fraction", 0.3, "one\none\none"),
            None
        );
    }

    #[test]
    fn the_top_ngram_is_the_most_frequent_and_covers_characters_once() {
        // "aa bb" three times, 12 characters of 12 + 14.
        let text = "aa bb xx1 aa bb yy2 aa bb zzzzzzz1";
        assert_eq!(
            only("max_top_2gram_character_fraction", 0.2, text),
            Some(("top_2gram", 12.0 / 26.0))
        );
        assert_eq!(
            only("max_top_2gram_character_fraction", 12.0 / 26.0, text),
            None
        );
        // The five places of "a a" overlap and cover 6 characters, not 10.
        assert_eq!(
            only(
                "max_top_2gram_character_fraction",
                0.5,
                "a a a a a a bbbbbb"
            ),
            None
        );
        assert_eq!(
            only(
                "max_top_2gram_character_fraction",
                0.4,
                "a a a a a a bbbbbb"
            ),
            Some(("top_2gram", 0.5))
        );
    }

    #[test]
    fn of_equally_frequent_ngrams_the_longer_counts() {
        let text = "aa bb 1 cccc dddd 2 aa bb 3 cccc dddd 4";
        assert_eq!(
            only("max_top_2gram_character_fraction", 0.2, text),
            Some(("top_2gram", 16.0 / 28.0))
        );
    }

    #[test]
    fn an_ngram_that_stands_once_is_no_repetition() {
        for option in KIND.spec.options {
            assert_eq!(
                only(option.name, 0.0, "only three words"),
                None,
                "{}",
                option.name
            );
        }
    }

    #[test]
    fn duplicate_ngrams_are_those_after_the_first_and_overlaps_count_once() {
        // 20 words of 3 characters; the last 6 repeat the first 6.
        let text = format!(
            "{} {}",
            different_words(100, 14, 3),
            different_words(100, 6, 3)
        );
        assert_eq!(
            only("max_duplicate_5gram_character_fraction", 0.0, &text),
            Some(("duplicate_5grams", 0.3))
        );
        assert_eq!(
            only("max_duplicate_6gram_character_fraction", 0.0, &text),
            Some(("duplicate_6grams", 0.3))
        );
        assert_eq!(
            only("max_duplicate_7gram_character_fraction", 0.0, &text),
            None
        );
        assert_eq!(
            only("max_duplicate_5gram_character_fraction", 0.3, &text),
            None
        );
    }

    /// The shares by the definition in the table, without hashes and without pruning.
    fn by_definition(text: &str, n: usize) -> f64 {
        let words: Vec<&str> = text.split_whitespace().collect();
        let characters: Vec<usize> = words.iter().map(|word| word.chars().count()).collect();
        let mut covered = HashSet::new();
        if n > LARGEST_TOP_N {
            let mut seen = HashSet::new();
            for (at, ngram) in words.windows(n).enumerate() {
                if !seen.insert(ngram) {
                    covered.extend(at..at + n);
                }
            }
        } else {
            let mut places: HashMap<&[&str], Vec<usize>> = HashMap::new();
            for (at, ngram) in words.windows(n).enumerate() {
                places.entry(ngram).or_default().push(at);
            }
            let length = |at: usize| characters[at..at + n].iter().sum::<usize>();
            let top = places
                .values()
                .filter(|places| places.len() > 1)
                .max_by_key(|places| {
                    (
                        places.len(),
                        length(places[0]),
                        std::cmp::Reverse(places[0]),
                    )
                });
            covered.extend(top.into_iter().flatten().flat_map(|&at| at..at + n));
        }
        let covered: usize = covered
            .into_iter()
            .map(|word: usize| characters[word])
            .sum();
        covered as f64 / characters.iter().sum::<usize>().max(1) as f64
    }

    proptest::proptest! {
        #[test]
        fn agrees_with_the_definition(numbers in proptest::collection::vec(0u8..6, 0..120)) {
            let text: Vec<String> = numbers.iter().map(|&number| "é".repeat(usize::from(number) + 1)).collect();
            let text = text.join(" ");
            let mut scratch = Scratch::default();
            scratch.read(&text).expect("few words");
            for n in 2..=LARGEST_N {
                proptest::prop_assert_eq!(scratch.ngram_fraction(n), by_definition(&text, n), "n = {}", n);
            }
        }
    }

    #[test]
    fn text_that_says_one_thing_again_and_again_goes() {
        assert_eq!(
            verdict(&KIND, &[], &"buy now ".repeat(100)),
            Some(("top_2gram", 1.0))
        );
        let line = "a line that stands here often\n";
        assert_eq!(
            verdict(&KIND, &[], &line.repeat(10)),
            Some(("duplicate_lines", 0.9))
        );
    }

    #[test]
    fn rules_on_words_are_skipped_where_words_have_no_spaces() {
        let text = "今日は とても 良い 天気 です ".repeat(20);
        let (verdict, notes) = judged(&KIND, &[], &text);
        assert_eq!(verdict, None);
        assert_eq!(notes.len(), 9, "{notes:?}");
        let lines = "今日はとても良い天気です\n".repeat(20);
        assert_eq!(
            judged(&KIND, &[], &lines).0,
            Some(("duplicate_lines", 0.95))
        );
    }

    #[test]
    fn empty_and_blank_texts_repeat_nothing() {
        for text in ["", " ", "\n\n\n", "word"] {
            assert_eq!(verdict(&KIND, &[], text), None);
        }
    }

    #[test]
    fn a_document_leaves_nothing_to_the_next() {
        let stage = super::super::testing::stage(&KIND, &[]);
        let mut notes = Notes::default();
        let texts = [
            "buy now ".repeat(300_000),
            different_words(0, 2000, 5),
            "a b\n".repeat(9),
            String::new(),
        ];
        let verdicts = |order: &[usize]| -> Vec<(usize, Verdict)> {
            let mut notes = Notes::default();
            let mut verdicts: Vec<(usize, Verdict)> = order
                .iter()
                .map(|&which| {
                    let mut document = Document {
                        text: texts[which].clone(),
                        ..Document::default()
                    };
                    (
                        which,
                        stage.judge(&mut document, &mut notes).expect("no fault"),
                    )
                })
                .collect();
            verdicts.sort_by_key(|(which, _)| *which);
            verdicts
        };
        assert_eq!(verdicts(&[0, 1, 2, 3]), verdicts(&[3, 2, 1, 0]));
        let mut document = Document {
            text: texts[1].clone(),
            ..Document::default()
        };
        assert_eq!(stage.judge(&mut document, &mut notes), Ok(Verdict::Keep));
    }

    #[test]
    fn every_option_has_its_reason_in_the_same_place() {
        assert_eq!(KIND.spec.options.len(), RULES);
        assert_eq!(KIND.reasons.len(), RULES);
        assert_eq!(KIND.notes.len(), RULES - LINE_RULES);
        for (note, reason) in KIND.notes.iter().zip(&KIND.reasons[LINE_RULES..]) {
            assert_eq!(*note, format!("{}_skipped_language", reason.name));
        }
    }
}
