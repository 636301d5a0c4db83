//! Per-document stages, built and given the texts that they want before they judge, such as items of
//! evaluation sets.

use super::EngineError;
use super::corpus::derived_id;
use crate::plan::{Place, Plan, Problems, StagePlan, StageRef};
use crate::record::{FieldSpec, FieldType, FieldValue, OptionError};
use crate::source::{self, Entry, FoundFile, InputSpec, Reader, SourceError};
use crate::stages::{self, ItemName, Learner, Learnt, Stage, WantedTexts};
use std::collections::BTreeMap;

/// A stage that can judge.
pub struct Judge {
    /// The stage.
    pub stage: Box<dyn Stage>,
    /// What it was given; `None` for a stage that wants no texts.
    pub taught: Option<Taught>,
}

/// What a stage was given and what it made of that.
#[derive(Debug, Default)]
pub struct Taught {
    /// By number of the text: what it is called.
    pub items: Vec<Vec<ItemName>>,
    /// For the ledger.
    pub notes: BTreeMap<String, u64>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// The note of the ledger that counts records of a stage's files that could not be read.
const UNREAD: &str = "evaluation_records_unread";

/// Keys of a record that a message names, at most.
const KEYS_SHOWN: usize = 12;

/// Builds a per-document stage and gives it what it wants; `None` for a stage of another kind.
///
/// # Errors
/// Problems of the request, at the stage's place.
pub fn judge(plan: &Plan, stage: &StagePlan) -> Result<Option<Judge>, EngineError> {
    let StageRef::Document(kind) = stage.kind else {
        return Ok(None);
    };
    let problem = |message: String| {
        let place = Place {
            line: stage.line,
            column: stage.column,
        };
        EngineError::Problems(Problems(vec![plan.problem(place, message)]))
    };
    let wrong = |error: OptionError| {
        problem(format!(
            "'{}' must be {}, got {}",
            error.option, error.must_be, error.found
        ))
    };
    let mut built = (stages::TABLE[kind].build)(&stage.options).map_err(wrong)?;
    let taught = match built.learner() {
        Some(learner) => Some(teach(plan, learner).map_err(problem)?),
        None => None,
    };
    Ok(Some(Judge {
        stage: built,
        taught,
    }))
}

fn teach(plan: &Plan, learner: &mut dyn Learner) -> Result<Taught, String> {
    let mut taught = Taught::default();
    let mut unread = 0;
    for (list, wanted) in learner.wanted().iter().enumerate() {
        let at = |error: SourceError| format!("'{}': {error}", wanted.option);
        let globs: Vec<String> = wanted.globs.iter().map(|glob| plan.glob(glob)).collect();
        for file in source::find_files(&plan.base, &globs).map_err(at)? {
            learner.begin_file(list, &file.name);
            let bad = give(&file, wanted, learner)
                .map_err(|message| format!("'{}': {message}", wanted.option))?;
            if bad > 0 {
                taught.warnings.push(format!(
                    "{}: {bad} records could not be read and are not looked for; look at the file",
                    file.path.display()
                ));
            }
            unread += bad;
        }
    }
    let learnt: Learnt = learner.finish()?;
    taught.items = learnt.items;
    taught.warnings.extend(learnt.warnings);
    let counts = learnt.notes.into_iter().chain([(UNREAD, unread)]);
    taught.notes = counts
        .filter(|(_, count)| *count > 0)
        .map(|(note, count)| (note.to_string(), count))
        .collect();
    Ok(taught)
}

/// Gives all texts of a file. Returns how many records, blank lines apart, gave none.
fn give(file: &FoundFile, wanted: &WantedTexts, learner: &mut dyn Learner) -> Result<u64, String> {
    let (first, others) = wanted.text_fields.split_first().ok_or("no field of text")?;
    let mut spec = InputSpec::with_text(first);
    spec.id = wanted.id_field.clone();
    spec.join_lists = true;
    let field = |path: &String| {
        Some(FieldSpec {
            name: path.clone(),
            path: path.clone(),
            kind: FieldType::String,
        })
    };
    spec.fields = others.iter().map(field).collect();
    let read = |error: SourceError| match error {
        // There is no option for it here.
        SourceError::UnknownFormat { path } => format!(
            "{}: its name says no format; let it end in .jsonl, .parquet, .arrow or .txt (.jsonl.zst, .txt.gz), or \
             leave it out",
            path.display()
        ),
        SourceError::TextHasNoFields { path, field } => format!(
            "{}: a text file has no field '{field}'; leave '{field}' out of {}, or leave the file out",
            path.display(),
            match (&wanted.id_field, wanted.text_option) {
                (Some(id), _) if *id == field => "'id_field'".to_string(),
                (_, Some(option)) => format!("'{option}'"),
                (_, None) => "the fields of text".to_string(),
            }
        ),
        other => other.to_string(),
    };
    let mut texts = 0u64;
    let mut bad: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut first_bad: Option<(String, Vec<u8>)> = None;
    let mut has_field = vec![false; others.len()];
    let mut outcome = Ok(());
    for slice in source::slices(file, &spec, u64::MAX).map_err(read)? {
        let mut reader = Reader::open(file, &slice, &spec).map_err(read)?;
        while let Some(chunk) = reader.next_chunk().map_err(read)? {
            chunk.decode(&spec, &mut |entry| match entry {
                Entry::Document(document) => {
                    texts += 1;
                    let mut text = document.text;
                    for (value, has) in document.fields.iter().zip(&mut has_field) {
                        if let FieldValue::String(more) = value {
                            text.push('\n');
                            text.push_str(more);
                            *has = true;
                        }
                    }
                    let id = document
                        .id
                        .unwrap_or_else(|| derived_id(&file.name, document.place));
                    if outcome.is_ok() {
                        outcome = learner.take(&id, &text);
                    }
                }
                Entry::Bad(record) if record.reason == "blank" => {}
                Entry::Bad(record) => {
                    *bad.entry(record.reason).or_default() += 1;
                    first_bad.get_or_insert((record.detail, record.raw));
                }
            });
            outcome.clone()?;
        }
        if let Some(problem) = reader.summary().truncated {
            return Err(format!(
                "{}: {problem}; fetch the file again, since items would be missing",
                file.path.display()
            ));
        }
    }
    let no_id = bad.contains_key("missing_id") || bad.contains_key("invalid_id");
    let of_fields = match wanted.text_option {
        _ if no_id => {
            "'id_field' must name a field of texts or whole numbers that each record has; without it the place in the \
             file names an item"
                .to_string()
        }
        Some(option) => format!("'{option}' must name fields that hold text"),
        None => format!("each record needs a text under '{first}'"),
    };
    if texts == 0 {
        let counts: Vec<String> = bad
            .iter()
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        let found = match (&first_bad, counts.is_empty()) {
            (Some((detail, raw)), _) => format!(
                "{} ({detail}{})",
                counts.join(", "),
                keys_of(raw).map_or(String::new(), |keys| format!(
                    "; the first has the keys {keys}"
                ))
            ),
            (None, _) => "no record".to_string(),
        };
        return Err(format!(
            "{}: gives no text: {found}; {of_fields}, or leave the file out",
            file.path.display()
        ));
    }
    if let Some(at) = has_field.iter().position(|has| !has) {
        return Err(format!(
            "{}: none of its {texts} records has the field '{}'; {of_fields}",
            file.path.display(),
            others[at]
        ));
    }
    Ok(bad.values().sum())
}

/// The keys of a JSON record, where it is one, for a message.
fn keys_of(record: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(record).ok()?;
    let keys: Vec<String> = value
        .as_object()?
        .keys()
        .take(KEYS_SHOWN)
        .map(|key| key.escape_debug().to_string())
        .collect();
    Some(keys.join(", "))
}
