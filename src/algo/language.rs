//! Which language a text is in, by the identifier embedded in the program, and language codes.

use super::words::{Words, is_of_unspaced_script};
use std::borrow::Cow;
use whatlang::Lang;

/// Bytes of a document that the identifier looks at, unless a caller says otherwise.
///
/// Cost is bounded by it. On texts of one language accuracy is flat from about 1 KiB on.
pub const SAMPLE_BYTES: usize = 1024;

/// Pieces that a sample is taken in, at even distances over the document, so that a header or a
/// menu in another language doesn't decide alone.
const SAMPLE_PIECES: usize = 4;

/// The code of a text whose language can't be named: no letters, or letters of an unknown script.
pub const UNKNOWN: &str = "und";

/// A language that the embedded identifier can name.
#[derive(Debug)]
pub struct Known {
    /// ISO 639-1 code, or 639-3 where there is none.
    pub code: &'static str,
    /// ISO 639-3 code.
    pub code3: &'static str,
    /// English name, lower case.
    pub name: &'static str,
    /// Other codes in use for it.
    pub also: &'static [&'static str],
}

const fn known(code: &'static str, code3: &'static str, name: &'static str) -> Known {
    Known {
        code,
        code3,
        name,
        also: &[],
    }
}

const fn known_also(
    code: &'static str,
    code3: &'static str,
    name: &'static str,
    also: &'static [&'static str],
) -> Known {
    Known {
        code,
        code3,
        name,
        also,
    }
}

/// Every language that [`identify`] can name, by code.
pub const KNOWN: &[Known] = &[
    known("af", "afr", "afrikaans"),
    known("ak", "aka", "akan"),
    known("am", "amh", "amharic"),
    known("ar", "ara", "arabic"),
    known("az", "aze", "azerbaijani"),
    known("be", "bel", "belarusian"),
    known("bg", "bul", "bulgarian"),
    known("bn", "ben", "bengali"),
    known("bo", "bod", "tibetan"),
    known("ca", "cat", "catalan"),
    known_also("cs", "ces", "czech", &["cz"]),
    known("cy", "cym", "welsh"),
    known_also("da", "dan", "danish", &["dk"]),
    known("de", "deu", "german"),
    known_also("el", "ell", "greek", &["gr"]),
    known_also("en", "eng", "english", &["us", "gb"]),
    known("eo", "epo", "esperanto"),
    known("es", "spa", "spanish"),
    known_also("et", "est", "estonian", &["ee"]),
    known_also("fa", "pes", "persian", &["ir", "fas"]),
    known("fi", "fin", "finnish"),
    known("fr", "fra", "french"),
    known("gu", "guj", "gujarati"),
    known_also("he", "heb", "hebrew", &["iw"]),
    known("hi", "hin", "hindi"),
    known("hr", "hrv", "croatian"),
    known("hu", "hun", "hungarian"),
    known("hy", "hye", "armenian"),
    known_also("id", "ind", "indonesian", &["in"]),
    known("it", "ita", "italian"),
    known_also("ja", "jpn", "japanese", &["jp"]),
    known_also("jv", "jav", "javanese", &["jw"]),
    known("ka", "kat", "georgian"),
    known("km", "khm", "khmer"),
    known("kn", "kan", "kannada"),
    known_also("ko", "kor", "korean", &["kr"]),
    known("la", "lat", "latin"),
    known("lo", "lao", "lao"),
    known("lt", "lit", "lithuanian"),
    known("lv", "lav", "latvian"),
    known("mk", "mkd", "macedonian"),
    known("ml", "mal", "malayalam"),
    known("mr", "mar", "marathi"),
    known_also("my", "mya", "burmese", &["mm"]),
    known_also("nb", "nob", "norwegian bokmal", &["no", "nor", "norwegian"]),
    known("ne", "nep", "nepali"),
    known("nl", "nld", "dutch"),
    known("or", "ori", "oriya"),
    known("pa", "pan", "punjabi"),
    known("pl", "pol", "polish"),
    known("pt", "por", "portuguese"),
    known("ro", "ron", "romanian"),
    known("ru", "rus", "russian"),
    known("si", "sin", "sinhala"),
    known("sk", "slk", "slovak"),
    known("sl", "slv", "slovene"),
    known("sn", "sna", "shona"),
    known_also("sr", "srp", "serbian", &["rs"]),
    known_also("sv", "swe", "swedish", &["se"]),
    known("ta", "tam", "tamil"),
    known("te", "tel", "telugu"),
    known("th", "tha", "thai"),
    known("tk", "tuk", "turkmen"),
    known_also("tl", "tgl", "tagalog", &["fil", "filipino"]),
    known("tr", "tur", "turkish"),
    known_also("uk", "ukr", "ukrainian", &["ua"]),
    known("ur", "urd", "urdu"),
    known("uz", "uzb", "uzbek"),
    known_also("vi", "vie", "vietnamese", &["vn"]),
    known_also("yi", "yid", "yiddish", &["ji"]),
    known_also(
        "zh",
        "cmn",
        "chinese",
        &["cn", "zho", "mandarin", "zh-cn", "zh-tw"],
    ),
    known("zu", "zul", "zulu"),
];

/// The valid code that a wrong one most likely means: the same language by another code or name,
/// else the code with the fewest differing letters (the first by alphabet among equals).
pub fn nearest_code<'a>(wrong: &str, valid: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wrong = wrong.trim().to_lowercase().replace('_', "-");
    let mut valid: Vec<&str> = valid.collect();
    valid.sort_unstable();
    let base = wrong.split('-').next().unwrap_or_default();
    let same = KNOWN.iter().find(|known| {
        let names = [known.code, known.code3, known.name];
        names.contains(&wrong.as_str())
            || known.also.contains(&wrong.as_str())
            || known.code == base
    });
    if let Some(code) = same.and_then(|known| {
        valid
            .iter()
            .find(|&&code| code == known.code || code == known.code3)
    }) {
        return Some(code);
    }
    valid.into_iter().min_by_key(|code| edits(&wrong, code))
}

/// Levenshtein distance in characters.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Whether words of a language are separated by spaces, by its code. True for unknown ones.
///
/// Not so in Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan and their kin; Korean and
/// Vietnamese use spaces.
pub fn is_written_with_spaces(code: &str) -> bool {
    !matches!(
        code,
        "zh" | "cmn"
            | "yue"
            | "wuu"
            | "zho"
            | "gan"
            | "hak"
            | "nan"
            | "lzh"
            | "ja"
            | "jpn"
            | "th"
            | "tha"
            | "lo"
            | "lao"
            | "km"
            | "khm"
            | "my"
            | "mya"
            | "shn"
            | "bo"
            | "bod"
            | "dz"
            | "dzo"
    )
}

/// Whether the [`sample`] of a text holds a character of a script that is written without spaces.
/// If not, [`identify`] names no language of which [`is_written_with_spaces`] is false.
pub fn has_unspaced_script(text: &str, sample_bytes: usize) -> bool {
    let sample = sample(text, sample_bytes);
    // Tibetan marks the ends of syllables, so it isn't among those scripts where words are compared.
    !sample.is_ascii()
        && sample.chars().any(|c| {
            is_of_unspaced_script(c)
                || matches!(c, '\u{0f00}'..='\u{0fff}' | '\u{19e0}'..='\u{19ff}')
        })
}

/// At most `bytes` bytes of a text (one space more for each cut): all of it where it is short
/// enough, else pieces at even distances, the first from the start and the last from the end.
/// Cuts are at borders of characters.
pub fn sample(text: &str, bytes: usize) -> Cow<'_, str> {
    if text.len() <= bytes {
        return Cow::Borrowed(text);
    }
    let piece_bytes = bytes / SAMPLE_PIECES;
    let mut pieces = String::with_capacity(bytes + SAMPLE_PIECES);
    for piece in 0..SAMPLE_PIECES {
        let start =
            text.ceil_char_boundary((text.len() - piece_bytes) * piece / (SAMPLE_PIECES - 1));
        let end = text.floor_char_boundary(start + piece_bytes);
        if piece > 0 {
            pieces.push(' ');
        }
        pieces.push_str(text.get(start..end).unwrap_or_default());
    }
    Cow::Owned(pieces)
}

/// The most likely language of a text, as an ISO 639 code, and how sure that is, from 0 to 1.
/// [`UNKNOWN`] and 0 where there is nothing to go by.
///
/// Looks at a [`sample`] of `sample_bytes`. Lao and Tibetan are told by their scripts, plain
/// English by its most frequent words; for all else crate `whatlang` decides by scripts, alphabets
/// and trigrams. What it returns as
/// confidence is no calibrated probability: it grows with the distance to the second language and
/// with the length of the text, and is 1 for most clean texts, and for any script that only one
/// known language uses.
pub fn identify(text: &str, sample_bytes: usize) -> (&'static str, f32) {
    let sample = sample(text, sample_bytes);
    if let Some(code) = by_script_alone(&sample) {
        return (code, 1.0);
    }
    if is_plainly_english(&sample) {
        return ("en", 1.0);
    }
    match whatlang::detect(&sample) {
        Some(info) => {
            let confidence = info.confidence();
            let confidence = if confidence.is_finite() {
                confidence.clamp(0.0, 1.0)
            } else {
                0.0
            };
            (code_of(info.lang()), confidence as f32)
        }
        None => (UNKNOWN, 0.0),
    }
}

/// English words that make up a fifth of English prose; none is as frequent in another language
/// that is written in Latin letters, and no four of them are.
const ENGLISH_WORDS: [&[u8]; 15] = [
    b"the", b"of", b"and", b"to", b"that", b"for", b"with", b"this", b"from", b"are", b"have",
    b"which", b"by", b"not", b"it",
];

/// Whether one word in seven is one of [`ENGLISH_WORDS`], of which at least four stand there, and
/// at most one byte in a hundred begins a letter outside ASCII, so that text half in English and
/// half in French or Chinese is left to the profiles.
///
/// This is tried first because comparing with the profiles of 37 languages costs ten times more,
/// and because English with names, numbers and code among it is still English.
fn is_plainly_english(sample: &str) -> bool {
    // The characters that begin with 0xc2 and 0xe2 are mostly signs and punctuation.
    let begins_letter = |byte: &u8| matches!(*byte, 0xc3..=0xe1 | 0xe3..);
    if 100 * sample.bytes().filter(begins_letter).count() > sample.len() {
        return false;
    }
    let (mut words, mut english, mut different) = (0u32, 0u32, 0u32);
    for word in Words::new(sample) {
        words += 1;
        let bytes = &sample.as_bytes()[word.start..word.end];
        if !(2..=6).contains(&bytes.len()) {
            continue;
        }
        if let Some(which) = ENGLISH_WORDS
            .iter()
            .position(|english| bytes.eq_ignore_ascii_case(english))
        {
            english += 1;
            different |= 1 << which;
        }
    }
    7 * english >= words && different.count_ones() >= 4
}

/// Lao or Tibetan, where most letters are of that script.
fn by_script_alone(sample: &str) -> Option<&'static str> {
    if sample.is_ascii() {
        return None;
    }
    let (mut lao, mut tibetan, mut letters) = (0u32, 0u32, 0u32);
    for character in sample.chars() {
        match character {
            '\u{0e80}'..='\u{0eff}' => lao += 1,
            '\u{0f00}'..='\u{0fff}' => tibetan += 1,
            _ => letters += u32::from(character.is_alphabetic()),
        }
    }
    if lao > letters + tibetan {
        Some("lo")
    } else if tibetan > letters + lao {
        Some("bo")
    } else {
        None
    }
}

/// The code of a language of `whatlang`: 639-1, as all of its languages have one.
fn code_of(lang: Lang) -> &'static str {
    let code3 = lang.code();
    KNOWN
        .iter()
        .find(|known| known.code3 == code3)
        .map_or(code3, |known| known.code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_of_the_identifier_is_in_the_table_once() {
        for lang in Lang::all() {
            assert_eq!(
                KNOWN
                    .iter()
                    .filter(|known| known.code3 == lang.code())
                    .count(),
                1,
                "{}",
                lang.code()
            );
        }
        assert_eq!(
            KNOWN.len(),
            Lang::all().len() + 2,
            "Lao and Tibetan besides"
        );
        for pair in KNOWN.windows(2) {
            assert!(
                pair[0].code < pair[1].code,
                "{} is out of order",
                pair[1].code
            );
        }
    }

    #[test]
    fn names_languages_by_their_codes() {
        for (text, code) in [
            ("The house stood at the end of a long road.", "en"),
            (
                "Das Haus stand am Ende einer langen Straße, und niemand wohnte dort.",
                "de",
            ),
            ("私たちは今日公園を散歩しました。", "ja"),
            ("ມື້ນີ້ພວກເຮົາໄປຍ່າງຫຼິ້ນ in Vientiane", "lo"),
            ("དེ་རིང་ང་ཚོ་སྤྱི་གླིང་ལ་ཕྱིན་པ་ཡིན།", "bo"),
            ("1234", UNKNOWN),
            ("", UNKNOWN),
        ] {
            assert_eq!(identify(text, SAMPLE_BYTES).0, code, "{text}");
        }
    }

    #[test]
    fn plain_english_is_told_without_the_profiles_and_half_english_is_not() {
        let english = "It was the best of times and the worst of times, which is not to say that it was long ago. ";
        assert!(is_plainly_english(english));
        // Names and numbers among it do not make it doubtful.
        assert_eq!(
            identify(&format!("{english} Xqzt 12 Łódź {english}"), SAMPLE_BYTES),
            ("en", 1.0)
        );
        assert!(!is_plainly_english(&format!(
            "{english} {}",
            "查看基本的文件信息设定权限".repeat(3)
        )));
        assert!(!is_plainly_english(&format!(
            "{english} {}",
            "Où êtes-vous allés hier après-midi? ".repeat(3)
        )));
        assert!(!is_plainly_english("the the the the of and"));
        assert!(!is_plainly_english("the of and to one two three four five six seven eight nine ten more words than these and those"
            .replace(" and those", &" word".repeat(20)).as_str()));
        assert!(!is_plainly_english(""));
    }

    #[test]
    fn probabilities_are_from_0_to_1() {
        for text in [
            "", "a", "é", "☃", "ab", "\u{300}", "ა", "א", "no", "水", "ア",
        ] {
            let (_, probability) = identify(text, SAMPLE_BYTES);
            assert!((0.0..=1.0).contains(&probability), "{text}: {probability}");
        }
    }

    #[test]
    fn samples_are_bounded_and_cut_at_characters() {
        assert_eq!(sample("abcd", 4), "abcd");
        assert_eq!(sample("abcdefghijklm", 4), "a e i m");
        assert_eq!(sample("", 64), "");
        for length in [64, 100, 1000, 100_000] {
            for text in [
                "ё".repeat(length),
                "語".repeat(length),
                "𝄞".repeat(length),
                format!("a{}", "語".repeat(length)),
            ] {
                for bytes in [64, 65, 256, 1024] {
                    assert!(sample(&text, bytes).len() <= bytes + SAMPLE_PIECES);
                    assert!(sample(&text, bytes).len() >= bytes.min(text.len()) / 2);
                }
            }
        }
    }

    #[test]
    fn the_nearest_code_is_that_of_the_same_language() {
        let valid = || KNOWN.iter().map(|known| known.code);
        for (wrong, nearest) in [
            ("eng", "en"),
            ("german", "de"),
            ("CN", "zh"),
            ("zh_TW", "zh"),
            ("no", "nb"),
            ("enn", "en"),
        ] {
            assert_eq!(nearest_code(wrong, valid()), Some(nearest), "{wrong}");
        }
        assert_eq!(nearest_code("en", std::iter::empty()), None);
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "ab"), 2);
    }

    #[test]
    fn languages_without_spaces_have_characters_that_tell() {
        for text in [
            "我们今天去公园散步",
            "私たちは",
            "วันนี้เราไป",
            "ມື້ນີ້ພວກເຮົາ",
            "ယနေ့ကျွန်တော်တို့",
            "ថ្ងៃនេះយើងទៅ",
            "དེ་རིང་ང་ཚོ",
        ] {
            assert!(
                !is_written_with_spaces(identify(text, SAMPLE_BYTES).0),
                "{text}"
            );
            assert!(has_unspaced_script(text, SAMPLE_BYTES), "{text}");
        }
        for text in ["English", "Русский", "한국어 문장", "tiếng Việt", "हिन्दी"]
        {
            assert!(
                is_written_with_spaces(identify(text, SAMPLE_BYTES).0),
                "{text}"
            );
            assert!(!has_unspaced_script(text, SAMPLE_BYTES), "{text}");
        }
    }
}
