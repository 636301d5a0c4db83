//! The quality rules of MassiveText: cheap signs that a text is not prose.

use super::{Stage, StageKind, identify};
use crate::algo::words::{ASCII_LETTER, DOT, HASH_SIGN, NON_ASCII, PUNCTUATION_BLOCK, Word, Words};
use crate::record::{
    Document, Kind, Notes, OptionError, OptionSpec, Options, Reason, Spec, Verdict,
};

const fn count(name: &'static str, default: &'static str, doc: &'static str) -> OptionSpec {
    OptionSpec {
        name,
        kind: Kind::Integer {
            min: 0,
            max: u64::MAX,
        },
        default: Some(default),
        doc,
    }
}

const fn ratio(
    name: &'static str,
    max: f64,
    default: &'static str,
    doc: &'static str,
) -> OptionSpec {
    OptionSpec {
        name,
        kind: Kind::Number { min: 0.0, max },
        default: Some(default),
        doc,
    }
}

/// Larger than any ratio to words that a text can have, for switching a rule off.
const ANY_RATIO: f64 = 1e12;

/// What the table says.
pub(super) const KIND: StageKind = StageKind {
    spec: Spec {
        name: "gopher_quality",
        summary: "Rejects texts that do not look like prose, by the quality rules of MassiveText",
        details: "Rules and defaults are those of Rae et al. 2021, Scaling Language Models: Methods, Analysis & \
            Insights from Training Gopher (arXiv 2112.11446), appendix A.1.1. A document exactly at a bound stays. \
            Rules are tried in the order of the reasons; the first that is broken decides.\n\
            \n\
            Words are maximal runs of characters that are not white space, punctuation included; word length is in \
            characters (Unicode scalar values). Lines end at line feeds; blank ones, of white space only, do not \
            count. An ellipsis is `…` or a run of three or more full stops, counted once. A line starts with a \
            bullet point when its first word is `*`, `-`, `+` or a dash, or begins with a typographic bullet such \
            as `•`. An alphabetic character is one of Unicode's property Alphabetic. Stop words are the, be, to, \
            of, and, that, have, with; different ones count, in any letter case, with punctuation around them cut \
            off.\n\
            \n\
            Rules that count words hold for languages that put spaces between words (not for Chinese, Japanese, \
            Thai, Lao, Khmer, Burmese, Tibetan and their kin); the least mean length does not hold for Korean either, \
            whose characters are syllables; the stop words hold for English. The language is the \
            one that a `language` stage before has found, else the embedded identifier's. A rule that a document \
            breaks and that does not hold for its language is skipped and counted in a note, e.g. \
            `stop_words_skipped_language`. So to turn away broken English that no longer looks like any language, \
            put `language` before this stage.\n\
            \n\
            The paper leaves open what a word, a bullet point and an ellipsis is, and other programs differ: \
            datatrove splits words with a tokenizer for the language, leaves out those of punctuation only, knows \
            `•` and `-` as bullets and counts every three full stops; dolma takes the median for the mean word \
            length, knows `*` and `-` and no ellipsis of full stops, and counts blank lines.",
        options: &[
            count(
                "min_words",
                "50",
                "Fewest words; a document with fewer is rejected.",
            ),
            count(
                "max_words",
                "100000",
                "Most words; a document with more is rejected.",
            ),
            ratio(
                "min_mean_word_characters",
                ANY_RATIO,
                "3",
                "Least mean length of its words in characters; a document below is rejected.",
            ),
            ratio(
                "max_mean_word_characters",
                ANY_RATIO,
                "10",
                "Largest mean length of its words in characters; a document above is rejected.",
            ),
            ratio(
                "max_hashes_per_word",
                ANY_RATIO,
                "0.1",
                "Most `#` characters per word; a document above is rejected.",
            ),
            ratio(
                "max_ellipses_per_word",
                ANY_RATIO,
                "0.1",
                "Most ellipses per word; a document above is rejected.",
            ),
            ratio(
                "max_bullet_line_fraction",
                1.0,
                "0.9",
                "Largest share of lines that start with a bullet point; a document above is rejected.",
            ),
            ratio(
                "max_ellipsis_line_fraction",
                1.0,
                "0.3",
                "Largest share of lines that end with an ellipsis; a document above is rejected.",
            ),
            ratio(
                "min_alphabetic_word_fraction",
                1.0,
                "0.8",
                "Least share of words with an alphabetic character; a document below is rejected.",
            ),
            OptionSpec {
                name: "min_stop_words",
                kind: Kind::Integer { min: 0, max: 8 },
                default: Some("2"),
                doc: "Fewest different stop words out of eight, in English; a document with fewer is rejected.",
            },
        ],
        example: "{ min_words: 50 }",
    },
    reasons: &[
        Reason::low_value(
            "too_few_words",
            "Fewer words than min_words; the value is the number of words.",
        ),
        Reason::low_value(
            "too_many_words",
            "More words than max_words; the value is the number of words.",
        ),
        Reason::low_value(
            "mean_word_too_short",
            "Mean word length below min_mean_word_characters; the value is that mean, in characters.",
        ),
        Reason::low_value(
            "mean_word_too_long",
            "Mean word length above max_mean_word_characters; the value is that mean, in characters.",
        ),
        Reason::low_value(
            "too_many_hashes",
            "More `#` characters per word than max_hashes_per_word; the value is that ratio.",
        ),
        Reason::low_value(
            "too_many_ellipses",
            "More ellipses per word than max_ellipses_per_word; the value is that ratio.",
        ),
        Reason::low_value(
            "too_many_bullet_lines",
            "Share of lines starting with a bullet point above max_bullet_line_fraction; the value is that share, 0 to 1.",
        ),
        Reason::low_value(
            "too_many_ellipsis_lines",
            "Share of lines ending with an ellipsis above max_ellipsis_line_fraction; the value is that share, 0 to 1.",
        ),
        Reason::low_value(
            "too_few_alphabetic_words",
            "Share of words with an alphabetic character below min_alphabetic_word_fraction; the value is that share, \
             0 to 1.",
        ),
        Reason::low_value(
            "too_few_stop_words",
            "Fewer different stop words than min_stop_words in an English text; the value is their number, 0 to 8.",
        ),
    ],
    notes: &[
        "min_words_skipped_language",
        "max_words_skipped_language",
        "min_mean_word_skipped_language",
        "max_mean_word_skipped_language",
        "hashes_skipped_language",
        "ellipses_skipped_language",
        "alphabetic_words_skipped_language",
        "stop_words_skipped_language",
    ],
    build,
};

/// For which documents a rule holds, and the number of the note where it does not.
#[derive(Clone, Copy)]
enum Holds {
    Always,
    WhereWordsAreSpaced(usize),
    /// Where, besides, a character is about a sound: a Korean one is a syllable of two or three.
    WhereWordsAreSpelt(usize),
    InEnglish(usize),
}

const STOP_WORDS: [&str; 8] = ["the", "be", "to", "of", "and", "that", "have", "with"];
const LONGEST_STOP_WORD_BYTES: usize = 4;

struct Quality {
    min_words: u64,
    max_words: u64,
    min_mean_word_characters: f64,
    max_mean_word_characters: f64,
    max_hashes_per_word: f64,
    max_ellipses_per_word: f64,
    max_bullet_line_fraction: f64,
    max_ellipsis_line_fraction: f64,
    min_alphabetic_word_fraction: f64,
    min_stop_words: u32,
}

fn build(options: &Options) -> Result<Box<dyn Stage>, OptionError> {
    let quality = Quality {
        min_words: options.integer("min_words"),
        max_words: options.integer("max_words"),
        min_mean_word_characters: options.number("min_mean_word_characters"),
        max_mean_word_characters: options.number("max_mean_word_characters"),
        max_hashes_per_word: options.number("max_hashes_per_word"),
        max_ellipses_per_word: options.number("max_ellipses_per_word"),
        max_bullet_line_fraction: options.number("max_bullet_line_fraction"),
        max_ellipsis_line_fraction: options.number("max_ellipsis_line_fraction"),
        min_alphabetic_word_fraction: options.number("min_alphabetic_word_fraction"),
        min_stop_words: u32::try_from(options.integer("min_stop_words")).map_err(|_| {
            OptionError::new(
                "min_stop_words",
                "8 or less",
                options.integer("min_stop_words"),
            )
        })?,
    };
    if quality.min_words > quality.max_words {
        let must_be = format!("max_words ({}) or less", quality.max_words);
        return Err(OptionError::new("min_words", must_be, quality.min_words));
    }
    if quality.min_mean_word_characters > quality.max_mean_word_characters {
        let must_be = format!(
            "max_mean_word_characters ({}) or less",
            quality.max_mean_word_characters
        );
        return Err(OptionError::new(
            "min_mean_word_characters",
            must_be,
            quality.min_mean_word_characters,
        ));
    }
    Ok(Box::new(quality))
}

impl Stage for Quality {
    fn judge(&self, document: &mut Document, notes: &mut Notes) -> Result<Verdict, String> {
        let signs = Signs::of(&document.text, self.min_stop_words);
        let words = signs.words as f64;
        // Where there are no words there are no lines either, and no ratio is broken.
        let per_word = |count: u64| {
            if signs.words == 0 {
                None
            } else {
                Some(count as f64 / words)
            }
        };
        let per_line = |count: u64| {
            if signs.lines == 0 {
                None
            } else {
                Some(count as f64 / signs.lines as f64)
            }
        };
        let below = |value: Option<f64>, min: f64| value.filter(|&value| value < min);
        let above = |value: Option<f64>, max: f64| value.filter(|&value| value > max);
        use Holds::{Always, InEnglish, WhereWordsAreSpaced, WhereWordsAreSpelt};
        // In the order of the reasons: the value where the rule is broken, and where the rule holds.
        let rules = [
            (
                (signs.words < self.min_words).then_some(words),
                WhereWordsAreSpaced(0),
            ),
            (
                (signs.words > self.max_words).then_some(words),
                WhereWordsAreSpaced(1),
            ),
            (
                below(per_word(signs.characters), self.min_mean_word_characters),
                WhereWordsAreSpelt(2),
            ),
            (
                above(per_word(signs.characters), self.max_mean_word_characters),
                WhereWordsAreSpaced(3),
            ),
            (
                above(per_word(signs.hashes), self.max_hashes_per_word),
                WhereWordsAreSpaced(4),
            ),
            (
                above(per_word(signs.ellipses), self.max_ellipses_per_word),
                WhereWordsAreSpaced(5),
            ),
            (
                above(per_line(signs.bullet_lines), self.max_bullet_line_fraction),
                Always,
            ),
            (
                above(
                    per_line(signs.ellipsis_lines),
                    self.max_ellipsis_line_fraction,
                ),
                Always,
            ),
            (
                below(
                    per_word(signs.alphabetic_words),
                    self.min_alphabetic_word_fraction,
                ),
                WhereWordsAreSpaced(6),
            ),
            (
                (signs.stop_words < self.min_stop_words).then_some(f64::from(signs.stop_words)),
                InEnglish(7),
            ),
        ];
        for (rule, (broken, holds)) in rules.into_iter().enumerate() {
            let Some(value) = broken else { continue };
            // Identified only where it decides something: most documents break no rule.
            let note = match holds {
                Always => None,
                WhereWordsAreSpaced(note) => {
                    (!identify::is_written_with_spaces(document)).then_some(note)
                }
                WhereWordsAreSpelt(note) => {
                    let spelt = identify::is_written_with_spaces(document)
                        && identify::language_of(document).code() != "ko";
                    (!spelt).then_some(note)
                }
                InEnglish(note) => (identify::language_of(document).code() != "en").then_some(note),
            };
            match note {
                None => {
                    return Ok(Verdict::Reject {
                        reason: rule,
                        value,
                    });
                }
                Some(note) => notes.count(note),
            }
        }
        Ok(Verdict::Keep)
    }
}

/// What the rules look at, counted in one pass.
#[derive(Debug, Default, PartialEq)]
struct Signs {
    words: u64,
    /// In words, so without white space.
    characters: u64,
    hashes: u64,
    ellipses: u64,
    alphabetic_words: u64,
    lines: u64,
    bullet_lines: u64,
    ellipsis_lines: u64,
    /// Different ones; not looked for beyond those that are needed.
    stop_words: u32,
}

impl Signs {
    fn of(text: &str, stop_words_needed: u32) -> Signs {
        let bytes = text.as_bytes();
        let mut signs = Signs::default();
        let mut stop_words_found = 0u8;
        let mut last: Option<Word> = None;
        for word in Words::new(text) {
            signs.words += 1;
            signs.characters += word.characters as u64;
            if last.is_none() || word.starts_line() {
                signs.lines += 1;
                signs.bullet_lines += u64::from(is_bullet(&text[word.start..word.end]));
                signs.ellipsis_lines +=
                    u64::from(last.is_some_and(|last| ends_with_ellipsis(text, last)));
            }
            if word.holds & ASCII_LETTER != 0 {
                signs.alphabetic_words += 1;
                if stop_words_found.count_ones() < stop_words_needed {
                    stop_words_found |= stop_word_bit(&text[word.start..word.end]);
                }
            } else if word.holds & NON_ASCII != 0 {
                let alphabetic = text[word.start..word.end].chars().any(char::is_alphabetic);
                signs.alphabetic_words += u64::from(alphabetic);
            }
            if word.holds & (HASH_SIGN | DOT | PUNCTUATION_BLOCK) != 0 {
                let word_bytes = &bytes[word.start..word.end];
                if word.holds & HASH_SIGN != 0 {
                    signs.hashes += word_bytes.iter().filter(|&&byte| byte == b'#').count() as u64;
                }
                if word_bytes.len() >= 3 {
                    signs.ellipses += ellipses(word_bytes);
                }
            }
            last = Some(word);
        }
        signs.ellipsis_lines += u64::from(last.is_some_and(|last| ends_with_ellipsis(text, last)));
        signs.stop_words = stop_words_found.count_ones();
        signs
    }
}

/// Ellipses in a word: `…` each, and runs of three or more full stops.
fn ellipses(word: &[u8]) -> u64 {
    let mut ellipses = 0;
    let mut dots = 0;
    for (at, &byte) in word.iter().enumerate() {
        dots = if byte == b'.' { dots + 1 } else { 0 };
        // U+2026 in UTF-8 is e2 80 a6; no other character holds these three bytes in a row.
        ellipses += u64::from(dots == 3 || word[at..].starts_with(b"\xe2\x80\xa6"));
    }
    ellipses
}

fn ends_with_ellipsis(text: &str, word: Word) -> bool {
    let word = &text[word.start..word.end];
    word.ends_with("...") || word.ends_with('…')
}

/// Whether a line whose first word is `word` starts with a bullet point.
fn is_bullet(word: &str) -> bool {
    // A hyphen or star that more follows without a space is a number's sign or a mark-up.
    matches!(word, "*" | "-" | "+" | "–" | "—" | "·")
        || word.starts_with([
            '•', '‣', '⁃', '◦', '∙', '●', '○', '◉', '■', '□', '▪', '▫', '◆', '◇', '►', '▶', '➢',
            '➤',
        ])
}

/// The bit of the stop word that a word is, or 0.
fn stop_word_bit(word: &str) -> u8 {
    let word = word.trim_matches(|c: char| !c.is_alphanumeric());
    if word.len() > LONGEST_STOP_WORD_BYTES {
        return 0;
    }
    match STOP_WORDS
        .iter()
        .position(|stop_word| word.eq_ignore_ascii_case(stop_word))
    {
        Some(which) => 1 << which,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{judged, refusal, verdict};
    use super::*;
    use crate::record::Value;

    /// `words` English words in lines of ten, which break no rule but that on their number.
    fn prose(words: usize) -> String {
        let sentence = [
            "the", "river", "ran", "down", "to", "a", "village", "of", "old", "stones",
        ];
        let words: Vec<&str> = (0..words)
            .map(|word| sentence[word % sentence.len()])
            .collect();
        words
            .chunks(10)
            .map(|line| line.join(" "))
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn keeps_documents_at_the_bounds_of_words_and_rejects_one_word_beyond() {
        assert_eq!(verdict(&KIND, &[], &prose(50)), None);
        assert_eq!(
            verdict(&KIND, &[], &prose(49)),
            Some(("too_few_words", 49.0))
        );
        assert_eq!(verdict(&KIND, &[], &prose(100_000)), None);
        assert_eq!(
            verdict(&KIND, &[], &prose(100_001)),
            Some(("too_many_words", 100_001.0))
        );
        assert_eq!(
            verdict(&KIND, &[("min_words", Value::Integer(49))], &prose(49)),
            None
        );
        assert_eq!(
            verdict(&KIND, &[("max_words", Value::Integer(59))], &prose(60)),
            Some(("too_many_words", 60.0))
        );
    }

    /// Without the rules on words' number and stop words, so that short texts show the others.
    fn short(text: &str) -> Option<(&'static str, f64)> {
        short_with(&[], text)
    }

    fn short_with(given: &[(&str, Value)], text: &str) -> Option<(&'static str, f64)> {
        let mut all = vec![
            ("min_words", Value::Integer(0)),
            ("min_stop_words", Value::Integer(0)),
        ];
        all.extend_from_slice(given);
        verdict(&KIND, &all, text)
    }

    #[test]
    fn keeps_documents_at_the_bounds_of_mean_word_length() {
        assert_eq!(short("abc ab abcd"), None);
        assert_eq!(
            short("abc ab abc"),
            Some(("mean_word_too_short", 8.0 / 3.0))
        );
        assert_eq!(short("abcdefghij abcdefghi abcdefghijk"), None);
        assert_eq!(
            short("abcdefghij abcdefghijk"),
            Some(("mean_word_too_long", 10.5))
        );
        assert_eq!(
            short_with(
                &[("min_mean_word_characters", Value::Number(2.5))],
                "abc ab abc"
            ),
            None
        );
        let higher = [("max_mean_word_characters", Value::Number(10.5))];
        assert_eq!(short_with(&higher, "abcdefghij abcdefghijk"), None);
    }

    #[test]
    fn word_length_is_in_characters_not_bytes() {
        assert_eq!(short("тысячелетие слово"), None);
        assert_eq!(short("ёё ёё ёё ёё"), Some(("mean_word_too_short", 2.0)));
    }

    #[test]
    fn counts_hashes_and_ellipses_per_word() {
        let nine = "word ".repeat(9);
        assert_eq!(short(&format!("{nine}#one")), None);
        assert_eq!(
            short(&format!("{nine}##one")),
            Some(("too_many_hashes", 0.2))
        );
        assert_eq!(short(&format!("{nine}one... end")), None);
        assert_eq!(
            short(&format!("{nine}one...two... end")),
            Some(("too_many_ellipses", 2.0 / 11.0))
        );
        assert_eq!(
            short(&format!("{nine}one…two… end")),
            Some(("too_many_ellipses", 2.0 / 11.0))
        );
        assert_eq!(short(&format!("{nine}one.......... end")), None);
        assert_eq!(
            short_with(
                &[("max_hashes_per_word", Value::Number(0.2))],
                &format!("{nine}##one")
            ),
            None
        );
        let lower = [("max_ellipses_per_word", Value::Number(0.05))];
        assert_eq!(
            short_with(&lower, &format!("{nine}one... end")),
            Some(("too_many_ellipses", 1.0 / 11.0))
        );
    }

    #[test]
    fn counts_lines_that_start_with_a_bullet_and_no_blank_ones() {
        let bullets = "- items of note here\n\n  \n".repeat(9);
        assert_eq!(short(&format!("{bullets}plain")), None);
        assert_eq!(short(&bullets), Some(("too_many_bullet_lines", 1.0)));
        assert_eq!(
            short(&"•item\n".repeat(3)),
            Some(("too_many_bullet_lines", 1.0))
        );
        assert_eq!(short(&"-item\n**bold**\n-5C degrees\n".repeat(3)), None);
        let lower = [("max_bullet_line_fraction", Value::Number(0.8))];
        assert_eq!(
            short_with(&lower, &format!("{bullets}plain")),
            Some(("too_many_bullet_lines", 0.9))
        );
    }

    #[test]
    fn counts_lines_that_end_with_an_ellipsis() {
        let seven = "a line of several words here now it is\n".repeat(7);
        let three = "a line of several words here now it...  \r\n\n".repeat(3);
        assert_eq!(short(&format!("{three}{seven}")), None);
        let four = format!("{three}and one line more of these words it is…");
        assert_eq!(
            short(&format!("{seven}{four}")),
            Some(("too_many_ellipsis_lines", 4.0 / 11.0))
        );
        let higher = [("max_ellipsis_line_fraction", Value::Number(0.4))];
        assert_eq!(short_with(&higher, &format!("{seven}{four}")), None);
    }

    #[test]
    fn asks_for_words_with_an_alphabetic_character() {
        let four = "word été слово a1b2 ";
        assert_eq!(short(&format!("{four} 12345")), None);
        assert_eq!(
            short(&format!("{four} 12345 67890")),
            Some(("too_few_alphabetic_words", 4.0 / 6.0))
        );
        let lower = [("min_alphabetic_word_fraction", Value::Number(0.6))];
        assert_eq!(short_with(&lower, &format!("{four} 12345 67890")), None);
    }

    #[test]
    fn asks_for_two_different_stop_words_of_english_texts() {
        let none = "Several people walked home after dinner, talking about music; nobody knew where everyone \
            would sleep during this cold winter night. ";
        let given = [("min_words", Value::Integer(0))];
        assert_eq!(
            verdict(&KIND, &given, none),
            Some(("too_few_stop_words", 0.0))
        );
        assert_eq!(
            verdict(&KIND, &given, &format!("{none} The the THE")),
            Some(("too_few_stop_words", 1.0))
        );
        assert_eq!(verdict(&KIND, &given, &format!("{none} The (of).")), None);
        let three = [
            ("min_words", Value::Integer(0)),
            ("min_stop_words", Value::Integer(3)),
        ];
        assert_eq!(
            verdict(&KIND, &three, &format!("{none} The of")),
            Some(("too_few_stop_words", 2.0))
        );
    }

    #[test]
    fn english_rules_turn_away_no_other_language() {
        let german = "Der Hund lief durch den Wald und suchte seinen Herrn, der schon lange nach Hause gegangen war. ";
        let (verdict, notes) = judged(&KIND, &[], &german.repeat(4));
        assert_eq!(
            (verdict, notes),
            (None, vec!["stop_words_skipped_language"])
        );
        for text in [
            "\u{6211}\u{4eec}\u{4eca}\u{5929}\u{53bb}\u{516c}\u{56ed}\u{6563}\u{6b65}\u{ff0c}\u{5929}\u{6c14}\u{5f88}\u{597d}\u{3002}",
            "私たちは今日公園を散歩しました。天気がとても良かったです。",
            "วันนี้เราไปเดินเล่นที่สวนสาธารณะ อากาศดีมาก",
            "ມື້ນີ້ພວກເຮົາໄປຍ່າງຫຼິ້ນຢູ່ສວນສາທາລະນະ",
            "དེ་རིང་ང་ཚོ་སྤྱི་གླིང་ལ་ཕྱིན་པ་ཡིན།",
        ] {
            let (verdict, notes) = judged(&KIND, &[], &text.repeat(20));
            assert_eq!(verdict, None, "{text}");
            assert!(
                notes.contains(&"min_words_skipped_language"),
                "{text}: {notes:?}"
            );
            assert!(
                notes.contains(&"stop_words_skipped_language"),
                "{text}: {notes:?}"
            );
        }
    }

    #[test]
    fn short_korean_words_are_not_too_short() {
        let korean = "그는 집에 갔다 또 왔다 그 날 밤 비가 왔다 ".repeat(10);
        let (verdict, notes) = judged(&KIND, &[], &korean);
        assert_eq!(verdict, None);
        assert!(notes.contains(&"min_mean_word_skipped_language"));
    }

    #[test]
    fn the_language_found_before_decides() {
        let english =
            "Several people walked home after dinner, talking about music all night. ".repeat(6);
        let stage = super::super::testing::stage(&KIND, &[]);
        let mut document = Document {
            text: english,
            ..Document::default()
        };
        document.language = crate::record::Language::new("fr").map(|language| (language, 1.0));
        let mut notes = Notes::default();
        assert_eq!(stage.judge(&mut document, &mut notes), Ok(Verdict::Keep));
        document.language = None;
        let verdict = stage.judge(&mut document, &mut notes).expect("no fault");
        assert!(
            matches!(verdict, Verdict::Reject { reason: 9, .. }),
            "{verdict:?}"
        );
        assert_eq!(document.language.expect("it was identified").0.code(), "en");
    }

    #[test]
    fn empty_and_blank_texts_have_too_few_words_and_no_ratios() {
        for text in ["", "   ", "\n\n"] {
            assert_eq!(verdict(&KIND, &[], text), Some(("too_few_words", 0.0)));
            assert_eq!(short(text), None);
        }
    }

    #[test]
    fn refuses_bounds_that_cross() {
        let crossed = [
            ("min_words", Value::Integer(10)),
            ("max_words", Value::Integer(9)),
        ];
        assert_eq!(refusal(&KIND, &crossed).option, "min_words");
        let crossed = [("min_mean_word_characters", Value::Number(11.0))];
        assert_eq!(refusal(&KIND, &crossed).option, "min_mean_word_characters");
    }
}
