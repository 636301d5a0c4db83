//! Keeps documents in the languages that are wanted.

use super::{Stage, StageKind};
use crate::algo::fasttext::Model as FastText;
use crate::algo::language;
use crate::record::{
    Document, Kind, Language, Notes, OptionError, OptionSpec, Options, Reason, Spec, Verdict,
};
use crate::spill::read_file;
use std::collections::BTreeSet;
use std::path::Path;

/// What the table says.
pub(super) const KIND: StageKind = StageKind {
    spec: Spec {
        name: "language",
        summary: "Keeps documents in the languages named, and notes each document's language",
        details: "Every document is identified, and its language is there for the stages after. \
            Without `model` the embedded identifier decides among 72 languages: Lao and Tibetan by script, plain \
            English by its most frequent words, all else by the scripts, alphabets and trigrams of crate whatlang. \
            A text in a language that it doesn't know is taken for one that it \
            knows. Its probability is not calibrated: it grows with the distance between the first and the second \
            language and with the length of the text, and is 1 for most clean texts and for every script that one \
            known language has for itself. So `min_probability` is a bound on doubt, no rate of errors: on 697 \
            texts of 20 sentences in 57 languages that it knows, 99.9 % were named rightly and 97 % were above \
            0.65; of 244 texts in languages that it doesn't know, 44 % were below.\n\
            \n\
            With `model` a fastText model decides, with the probabilities of the fastText library for the text with its \
            line ends made spaces; labels such as \
            `__label__eng_Latn` are read as `en`. Codes in `keep` are then those of its labels.\n\
            \n\
            Cost is bounded by `sample_bytes`: of a longer document four pieces at even distances are looked at, \
            from start to end, cut at borders of characters. Accuracy on the same texts by bytes looked at: 64: \
            93.8 %, 128: 98.4 %, 256: 99.1 %, 512: 99.4 %, 1024 and more: 99.9 %.",
        options: &[
            OptionSpec {
                name: "keep",
                kind: Kind::TextList,
                default: None,
                doc: "Codes of the languages that stay, e.g. `[en, de]`: ISO 639-1 where there is one, else 639-3. \
                    `und` stands for texts whose language can't be named, e.g. for want of letters.",
            },
            OptionSpec {
                name: "min_probability",
                kind: Kind::Number { min: 0.0, max: 1.0 },
                default: Some("0.65"),
                doc: "Least probability of the language found, from 0 to 1; a document below is rejected.",
            },
            OptionSpec {
                name: "model",
                kind: Kind::Path,
                default: Some("null"),
                doc: "A fastText language model (`.bin` or `.ftz`, e.g. lid.176.ftz) to ask in place of the \
                    embedded identifier.",
            },
            OptionSpec {
                name: "sample_bytes",
                kind: Kind::Integer {
                    min: 64,
                    max: 1 << 30,
                },
                default: Some("1024"),
                doc: "Bytes of a document that are looked at: of a longer one four pieces at even distances, \
                    from its start to its end.",
            },
        ],
        example: "{ keep: [en], min_probability: 0.65 }",
    },
    reasons: &[
        Reason::policy(
            "language_not_kept",
            "The language is not among those of keep; the value is the probability of the language found, 0 to 1.",
        ),
        Reason::policy(
            "language_uncertain",
            "The language is kept, but its probability is below min_probability; the value is the probability, 0 to 1.",
        ),
    ],
    notes: &[],
    build,
};

const NOT_KEPT: usize = 0;
const UNCERTAIN: usize = 1;

struct LanguageStage {
    keep: Vec<Language>,
    min_probability: f64,
    sample_bytes: usize,
    model: Option<Model>,
}

fn build(options: &Options) -> Result<Box<dyn Stage>, OptionError> {
    let model = options
        .text_if_given("model")
        .map(Model::load)
        .transpose()?;
    let valid: Vec<&str> = match &model {
        Some(model) => {
            let named = model.languages.iter().flatten().map(Language::code);
            // In order, so that of equally near codes always the same is proposed.
            named
                .chain([language::UNKNOWN])
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect()
        }
        None => language::KNOWN
            .iter()
            .map(|known| known.code)
            .chain([language::UNKNOWN])
            .collect(),
    };
    let codes = options.list("keep");
    if codes.is_empty() {
        return Err(OptionError::new(
            "keep",
            "at least one language code, e.g. [en]",
            "an empty list",
        ));
    }
    let mut keep = Vec::with_capacity(codes.len());
    for code in codes {
        match Language::new(code) {
            Some(language) if valid.contains(&code.as_str()) => keep.push(language),
            _ => {
                let nearest = language::nearest_code(code, valid.iter().copied())
                    .unwrap_or(language::UNKNOWN);
                let must_be = format!(
                    "codes of languages that can be identified; the nearest is '{nearest}'"
                );
                return Err(OptionError::new("keep", must_be, format!("'{code}'")));
            }
        }
    }
    let sample_bytes = usize::try_from(options.integer("sample_bytes"))
        .map_err(|_| OptionError::new("sample_bytes", "less than the address space", "more"))?;
    Ok(Box::new(LanguageStage {
        keep,
        min_probability: options.number("min_probability"),
        sample_bytes,
        model,
    }))
}

impl Stage for LanguageStage {
    fn judge(&self, document: &mut Document, _notes: &mut Notes) -> Result<Verdict, String> {
        let (language, probability) = match &self.model {
            Some(model) => model.identify(&language::sample(&document.text, self.sample_bytes)),
            None => {
                let (code, probability) = language::identify(&document.text, self.sample_bytes);
                (
                    Language::new(code).expect("the identifier's codes are short and ASCII"),
                    probability,
                )
            }
        };
        document.language = Some((language, probability));
        // Compared as it is reported.
        let value = f64::from(probability);
        if !self.keep.contains(&language) {
            return Ok(Verdict::Reject {
                reason: NOT_KEPT,
                value,
            });
        }
        // Of `und` there is no probability to speak of.
        if language != Language::UNKNOWN && value < self.min_probability {
            return Ok(Verdict::Reject {
                reason: UNCERTAIN,
                value,
            });
        }
        Ok(Verdict::Keep)
    }
}

/// A fastText model and the languages that it can name.
struct Model {
    model: FastText,
    /// By label; `None` where a label names no language.
    languages: Vec<Option<Language>>,
}

impl Model {
    fn load(path: &str) -> Result<Model, OptionError> {
        let must_be = "a readable fastText language model (.bin or .ftz)";
        let wrong =
            |found: String| OptionError::new("model", must_be, format!("'{path}': {found}"));
        let bytes = read_file(Path::new(path)).map_err(|error| wrong(error.to_string()))?;
        let model = FastText::parse(bytes).map_err(wrong)?;
        let languages: Vec<_> = model.labels().map(language_of_label).collect();
        if languages.iter().all(Option::is_none) {
            return Err(wrong(
                "a model without labels of the form __label__en".to_string(),
            ));
        }
        Ok(Model { model, languages })
    }

    fn identify(&self, sample: &str) -> (Language, f32) {
        if sample.trim().is_empty() {
            // The model would judge by its sign for the end of the text alone.
            return (Language::UNKNOWN, 0.0);
        }
        match self.model.best_label(sample) {
            Some((label, probability)) if probability.is_finite() => (
                self.languages[label].unwrap_or(Language::UNKNOWN),
                probability,
            ),
            _ => (Language::UNKNOWN, 0.0),
        }
    }
}

/// The language of a label: `__label__en`, `__label__eng_Latn`; 639-1 where the code is known.
fn language_of_label(label: &str) -> Option<Language> {
    let code = label.strip_prefix("__label__")?;
    let code = code.split(['_', '-']).next().unwrap_or_default();
    let known = language::KNOWN
        .iter()
        .find(|known| known.code3 == code || (code.len() == 3 && known.also.contains(&code)));
    Language::new(known.map_or(code, |known| known.code))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{options, refusal, stage, verdict};
    use super::*;
    use crate::record::Value;

    const ENGLISH: &str =
        "The house stood at the end of a long road, and nobody had lived there for many years.";
    const GERMAN: &str = "Das Haus stand am Ende einer langen Straße, und seit vielen Jahren hatte dort niemand gewohnt.";

    fn keep(codes: &[&str]) -> (&'static str, Value) {
        (
            "keep",
            Value::List(codes.iter().map(|code| code.to_string()).collect()),
        )
    }

    #[test]
    fn keeps_the_languages_named_and_no_other() {
        assert_eq!(verdict(&KIND, &[keep(&["en"])], ENGLISH), None);
        assert_eq!(
            verdict(&KIND, &[keep(&["en"])], GERMAN),
            Some(("language_not_kept", 1.0))
        );
        assert_eq!(verdict(&KIND, &[keep(&["en", "de"])], GERMAN), None);
    }

    #[test]
    fn notes_the_language_of_the_document() {
        let mut document = Document {
            text: GERMAN.to_string(),
            ..Document::default()
        };
        let verdict = stage(&KIND, &[keep(&["en"])]).judge(&mut document, &mut Notes::default());
        assert_eq!(
            verdict,
            Ok(Verdict::Reject {
                reason: NOT_KEPT,
                value: 1.0
            })
        );
        assert_eq!(
            document.language,
            Language::new("de").map(|language| (language, 1.0))
        );
    }

    #[test]
    fn a_document_at_the_least_probability_stays() {
        let text = "no more data";
        let (code, probability) = language::identify(text, 1024);
        assert!(
            probability > 0.0 && probability < 0.99,
            "this test needs a text in doubt: {code} {probability}"
        );
        let at = f64::from(probability);
        let judge = |min: f64| {
            verdict(
                &KIND,
                &[keep(&[code]), ("min_probability", Value::Number(min))],
                text,
            )
        };
        assert_eq!(judge(at), None);
        assert_eq!(judge(at - 1e-9), None);
        assert_eq!(judge(at + 1e-9), Some(("language_uncertain", at)));
    }

    #[test]
    fn texts_without_letters_have_no_language() {
        for text in ["", "  ", "12345 + 678 = ?"] {
            assert_eq!(
                verdict(&KIND, &[keep(&["en"])], text),
                Some(("language_not_kept", 0.0))
            );
            assert_eq!(verdict(&KIND, &[keep(&["und"])], text), None);
        }
    }

    #[test]
    fn the_sample_decides_how_much_is_looked_at() {
        // Of this text the first and the last quarter of a small sample are English.
        let text = format!("{ENGLISH} {} {ENGLISH}", GERMAN.repeat(100));
        assert_eq!(
            verdict(
                &KIND,
                &[keep(&["de"]), ("sample_bytes", Value::Integer(1 << 20))],
                &text
            ),
            None
        );
        assert_eq!(verdict(&KIND, &[keep(&["de"])], &text), None);
        let short = format!("{} {} {}", ENGLISH, "12345 ".repeat(1000), ENGLISH);
        assert_eq!(
            verdict(
                &KIND,
                &[keep(&["en"]), ("sample_bytes", Value::Integer(256))],
                &short
            ),
            None
        );
    }

    #[test]
    fn refuses_unknown_codes_with_the_nearest_one() {
        for (wrong, nearest) in [
            ("eng", "en"),
            ("English", "en"),
            ("jp", "ja"),
            ("en-US", "en"),
            ("dee", "de"),
            ("zz", "az"),
        ] {
            let refusal = refusal(&KIND, &[keep(&["fr", wrong])]);
            assert_eq!(refusal.option, "keep");
            assert_eq!(refusal.found, format!("'{wrong}'"));
            assert!(
                refusal.must_be.ends_with(&format!("'{nearest}'")),
                "{wrong}: {}",
                refusal.must_be
            );
        }
        assert_eq!(refusal(&KIND, &[keep(&[])]).option, "keep");
    }

    #[test]
    fn refuses_a_model_that_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("model.bin");
        for content in [None, Some(&b"not a model"[..])] {
            if let Some(content) = content {
                std::fs::write(&path, content).expect("a writable folder");
            }
            let path = Value::Text(path.to_string_lossy().into_owned());
            let refusal = refusal(&KIND, &[keep(&["en"]), ("model", path)]);
            assert_eq!(refusal.option, "model");
            assert!(refusal.found.contains("model.bin"), "{}", refusal.found);
        }
    }

    /// A fastText model (version 12, softmax, three dimensions, no subwords) of three words and three
    /// labels, in which each word points to one label and the end of the text to none.
    fn small_model() -> Vec<u8> {
        let mut bytes = Vec::new();
        let int = |bytes: &mut Vec<u8>, value: i32| bytes.extend(value.to_le_bytes());
        int(&mut bytes, 793_712_314);
        int(&mut bytes, 12);
        // dim, ws, epoch, minCount, neg, wordNgrams, loss (softmax), model (supervised), bucket, minn, maxn, lrUpdateRate
        for value in [3, 5, 5, 1, 5, 1, 3, 3, 0, 0, 0, 100] {
            int(&mut bytes, value);
        }
        bytes.extend(1e-4f64.to_le_bytes());
        let entries = [
            ("</s>", 0u8),
            ("the", 0),
            ("der", 0),
            ("el", 0),
            ("__label__en", 1),
            ("__label__deu_Latn", 1),
            ("__label__es", 1),
        ];
        int(&mut bytes, 7);
        int(&mut bytes, 4);
        int(&mut bytes, 3);
        bytes.extend(7i64.to_le_bytes());
        bytes.extend((-1i64).to_le_bytes());
        for (word, kind) in entries {
            bytes.extend(word.as_bytes());
            bytes.push(0);
            bytes.extend(1i64.to_le_bytes());
            bytes.push(kind);
        }
        let one_at = |row: i64, column: i64, scale: f32| if row == column { scale } else { 0.0 };
        // Words to dimensions, the end of the text first; then labels from dimensions.
        for (rows, first, scale) in [(4i64, -1, 1.0f32), (3, 0, 4.0)] {
            bytes.push(0);
            bytes.extend(rows.to_le_bytes());
            bytes.extend(3i64.to_le_bytes());
            for row in first..first + rows {
                for column in 0..3 {
                    bytes.extend(one_at(row, column, scale).to_le_bytes());
                }
            }
        }
        bytes
    }

    #[test]
    fn asks_a_fasttext_model_where_one_is_given() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("small.bin");
        std::fs::write(&path, small_model()).expect("a writable folder");
        let model = ("model", Value::Text(path.to_string_lossy().into_owned()));
        let judge =
            |codes: &[&str], text: &str| verdict(&KIND, &[keep(codes), model.clone()], text);
        // The mean of the word and the end, four times: e^2 / (e^2 + 2).
        assert_eq!(judge(&["en"], "the"), None);
        let (reason, probability) = judge(&["en"], "der\nder").expect("it is German");
        assert_eq!(reason, "language_not_kept");
        assert!((probability - 0.878).abs() < 1e-3, "{probability}");
        assert_eq!(judge(&["de"], "der"), None);
        let (reason, probability) = judge(&["en", "de"], "the der").expect("it is in doubt");
        assert_eq!(reason, "language_uncertain");
        assert!((probability - 0.441).abs() < 1e-3, "{probability}");
        assert_eq!(judge(&["und"], ""), None);
        let refusal = refusal(&KIND, &[keep(&["fr"]), model.clone()]);
        assert_eq!(refusal.option, "keep");
    }

    #[test]
    fn options_of_the_example_are_the_defaults() {
        assert_eq!(
            options(&KIND, &[keep(&["en"])]).number("min_probability"),
            0.65
        );
    }
}
