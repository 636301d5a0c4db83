//! The sketch of a document: its shingle set, which decides, and the bands of it, which propose.

use super::normalised;
use crate::algo::minhash::{MinHasher, Scratch};
use crate::algo::{hash, words};
use crate::record::{OptionError, Options};

/// What a shingle is made of, and how many of them in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shingling {
    /// Spoken words ([`words::normalised_words`]): lower case, without punctuation; a character of a
    /// script without spaces is a word.
    Words(usize),
    /// Token ids of the pipeline's tokenizer, as they are.
    Tokens(usize),
    /// Characters (Unicode scalar values) of the text in NFC, in lower case, each run of white space
    /// one space.
    Characters(usize),
}

impl Shingling {
    /// Words in a row where the pipeline names no unit.
    pub const DEFAULT: Shingling = Shingling::Words(5);

    /// The one that a pipeline's options name.
    ///
    /// # Errors
    /// When they name two.
    pub fn of(options: &Options) -> Result<Shingling, OptionError> {
        let size = |option: &str| options.integer_if_given(option).map(|size| size as usize);
        let units = [
            ("shingle_words", size("shingle_words").map(Shingling::Words)),
            (
                "shingle_tokens",
                size("shingle_tokens").map(Shingling::Tokens),
            ),
            (
                "shingle_characters",
                size("shingle_characters").map(Shingling::Characters),
            ),
        ];
        let mut found: Option<(&str, Shingling)> = None;
        for (option, unit) in units {
            let Some(unit) = unit else { continue };
            if let Some((other, _)) = found {
                let must_be = format!("absent where '{other}' is given");
                return Err(OptionError::new(option, must_be, unit.size()));
            }
            found = Some((option, unit));
        }
        Ok(found.map_or(Shingling::DEFAULT, |(_, shingling)| shingling))
    }

    fn size(self) -> usize {
        match self {
            Shingling::Words(size) | Shingling::Tokens(size) | Shingling::Characters(size) => size,
        }
    }
}

/// Makes sketches.
#[derive(Clone, Debug)]
pub struct Sketcher {
    /// Makes the bands.
    pub hasher: MinHasher,
    /// Makes the shingles.
    pub shingling: Shingling,
}

/// Buffers of [`Sketcher::sketch`], reused between documents.
#[derive(Default)]
pub struct SketchScratch {
    units: Vec<u64>,
    /// The shingle set of the last text: sorted, distinct.
    pub shingles: Vec<u64>,
    minhash: Scratch,
}

impl Sketcher {
    /// The shingle set and the band hashes of a text and its token ids.
    ///
    /// A text of fewer units than a shingle has one shingle, the hash of them all: it is similar only
    /// to a text of the same units. A text without units has neither set nor bands.
    /// Returns whether the text was too short to shingle.
    pub fn sketch(
        &self,
        text: &str,
        tokens: &[u32],
        scratch: &mut SketchScratch,
        bands: &mut Vec<u64>,
    ) -> bool {
        // A mixed constant beside each keeps one unit's hashes away from another's.
        let units = &mut scratch.units;
        match self.shingling {
            Shingling::Words(_) => words::normalised_words(text, units),
            Shingling::Tokens(_) => {
                units.clear();
                units.extend(tokens.iter().map(|&id| words::mix(1, u64::from(id))));
            }
            Shingling::Characters(_) => {
                units.clear();
                let characters = normalised(text);
                units.extend(characters.chars().map(|c| words::mix(2, u64::from(c))));
            }
        }
        let size = self.shingling.size();
        scratch.shingles.clear();
        bands.clear();
        let short = scratch.units.len() < size;
        if !short {
            words::shingles(&scratch.units, size, &mut scratch.shingles);
        } else if !scratch.units.is_empty() {
            let whole = hash::content(bytemuck::cast_slice(&scratch.units));
            scratch.shingles.push((whole >> 64) as u64 ^ whole as u64);
        }
        if !scratch.shingles.is_empty() {
            self.hasher
                .bands_into(&scratch.shingles, &mut scratch.minhash, bands);
        }
        short
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algo::minhash::jaccard_at_least;
    use crate::record::Value;

    fn set(shingling: Shingling, text: &str, tokens: &[u32]) -> (Vec<u64>, bool, usize) {
        let sketcher = Sketcher {
            hasher: MinHasher::new(1, 3, 2),
            shingling,
        };
        let (mut scratch, mut bands) = (SketchScratch::default(), vec![7]);
        let short = sketcher.sketch(text, tokens, &mut scratch, &mut bands);
        (scratch.shingles, short, bands.len())
    }

    #[test]
    fn words_ignore_case_and_punctuation_and_characters_only_case_and_layout() {
        let words = |text: &str| set(Shingling::Words(2), text, &[]).0;
        let characters = |text: &str| set(Shingling::Characters(3), text, &[]).0;
        assert_eq!(words("It is, in FACT\n\nso"), words("it is in fact so"));
        assert_eq!(characters("It  is\tso "), characters("it is so"));
        assert_eq!(characters("cafe\u{301}s"), characters("CAFÉS"));
        assert_ne!(characters("it is, so"), characters("it is so"));
        // "ab c" has the runs "ab " and "b c".
        assert_eq!(characters("ab  c").len(), 2);
        assert_eq!(characters("語言學").len(), 1);
    }

    #[test]
    fn shingles_are_those_of_version_1_of_the_index() {
        // Indexes of earlier releases hold them: who changes them raises `shard::INDEX_VERSION`.
        let of = |shingling| set(shingling, "The Cat,\n sat down", &[5, 300]).0;
        assert_eq!(
            of(Shingling::Words(3)),
            [0x4015c5cf3ac68f4b, 0x5054a50715d1583b]
        );
        assert_eq!(
            of(Shingling::Characters(16)),
            [0x2a4b0d3d53179394, 0xcdf1738e0b8a34a3]
        );
        assert_eq!(of(Shingling::Tokens(2)), [0x36f09e7ac61a2e80]);
        // Too short for a shingle.
        assert_eq!(of(Shingling::Words(9)), [0xedf6146fbc1b8a2a]);
    }

    #[test]
    fn tokens_are_taken_as_they_are() {
        let tokens = |ids: &[u32]| set(Shingling::Tokens(2), "whatever", ids).0;
        assert_eq!(tokens(&[1, 2, 3, 4]).len(), 3);
        let (a, b) = (tokens(&[1, 2, 3, 4]), tokens(&[9, 2, 3, 4]));
        assert_eq!(jaccard_at_least(&a, &b, 0.0), Some(2.0 / 4.0));
    }

    #[test]
    fn a_text_at_the_size_has_one_shingle_and_one_below_it_is_short() {
        let of = |shingling, text: &str, ids: &[u32]| set(shingling, text, ids);
        for (shingling, at, below) in [
            (Shingling::Words(3), "a b c", "a b"),
            (Shingling::Characters(3), "abc", " ab"),
        ] {
            let (set, short, bands) = of(shingling, at, &[]);
            assert_eq!((set.len(), short, bands), (1, false, 3));
            let (set, short, bands) = of(shingling, below, &[]);
            assert_eq!((set.len(), short, bands), (1, true, 3));
            // Nothing to compare: no bands.
            let (set, short, bands) = of(shingling, " \n", &[]);
            assert_eq!((set.len(), short, bands), (0, true, 0));
        }
        assert!(!of(Shingling::Tokens(2), "", &[1, 2]).1);
        assert!(of(Shingling::Tokens(2), "", &[1]).1);
    }

    #[test]
    fn one_unit_is_named_or_none() {
        let options = |given: &[(&str, u64)]| {
            let mut options = Options::default();
            for name in ["shingle_words", "shingle_tokens", "shingle_characters"] {
                let value = given.iter().find(|(option, _)| *option == name);
                options.set(
                    name,
                    value.map_or(Value::Null, |(_, size)| Value::Integer(*size)),
                );
            }
            options
        };
        assert_eq!(Shingling::of(&options(&[])), Ok(Shingling::Words(5)));
        let tokens = options(&[("shingle_tokens", 9)]);
        assert_eq!(Shingling::of(&tokens), Ok(Shingling::Tokens(9)));
        let two = options(&[("shingle_words", 5), ("shingle_characters", 20)]);
        let error = Shingling::of(&two).expect_err("two units");
        assert_eq!(error.option, "shingle_characters");
    }
}
