//! Keeps documents in the languages that are wanted.

use super::{Stage, StageKind};
use crate::algo::language;
use crate::record::{
    Document, Kind, Language, Notes, OptionError, OptionSpec, Options, Reason, Spec, Verdict,
};
use fasttext_pure_rs::FastText;

/// What the table says.
pub(super) const KIND: StageKind = StageKind {
    spec: Spec {
        name: "language",
        summary: "Keeps documents in the languages named, and notes each document's language",
        details: "",
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
        Some(model) => model
            .codes
            .iter()
            .map(Language::code)
            .chain([language::UNKNOWN])
            .collect(),
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
            Some(model) => model.identify(&language::sample(&document.text, self.sample_bytes))?,
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
    codes: Vec<Language>,
}

impl Model {
    fn load(path: &str) -> Result<Model, OptionError> {
        let must_be = "a readable fastText language model (.bin or .ftz)";
        let wrong =
            |found: String| OptionError::new("model", must_be, format!("'{path}': {found}"));
        let model = FastText::load(path).map_err(|error| wrong(error.to_string()))?;
        // The crate has no list of labels; the probabilities of all of them for any text are one.
        let labels = model
            .predict("a", MOST_LABELS, 0.0)
            .map_err(|error| wrong(error.to_string()))?;
        let mut codes: Vec<Language> = labels
            .iter()
            .filter_map(|label| language_of_label(&label.label))
            .collect();
        codes.sort_unstable();
        codes.dedup();
        if codes.is_empty() {
            return Err(wrong(
                "a model without labels of the form __label__en".to_string(),
            ));
        }
        Ok(Model { model, codes })
    }

    fn identify(&self, sample: &str) -> Result<(Language, f32), String> {
        let best = match self.model.predict(sample, 1, 0.0) {
            Ok(predictions) => predictions.into_iter().next(),
            Err(fasttext_pure_rs::Error::EmptyInput) => None,
            Err(error) => return Err(format!("the language model failed on this text: {error}")),
        };
        let Some(best) = best.filter(|best| best.probability.is_finite()) else {
            return Ok((Language::UNKNOWN, 0.0));
        };
        let language = language_of_label(&best.label).unwrap_or(Language::UNKNOWN);
        // Rounding inside the model can end a little above 1.
        Ok((language, best.probability.clamp(0.0, 1.0)))
    }
}

/// More labels than any language model has.
const MOST_LABELS: usize = 100_000;

/// The language of a label: `__label__en`, `__label__eng_Latn`; 639-1 where the code is known.
fn language_of_label(label: &str) -> Option<Language> {
    let code = label.strip_prefix("__label__")?;
    let code = code.split(['_', '-']).next().unwrap_or_default();
    let known = language::KNOWN
        .iter()
        .find(|known| known.code3 == code || (code.len() == 3 && known.also.contains(&code)));
    Language::new(known.map_or(code, |known| known.code))
}
