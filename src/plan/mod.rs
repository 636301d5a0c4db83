//! The pipeline file: YAML as typed becomes a checked [`Plan`], or every problem at once.
//!
//! Two steps. `yaml` reads the file into a tree in which each key and value knows its line and
//! column; `check` walks that tree with the tables of options (those of the stages, estimators,
//! strategies and packing methods, and the fixed `sections` here) and collects all that is wrong.
//! Nothing past this room sees unchecked options. No data is read.

mod check;
mod filled;
pub mod global;
mod measure;
mod nearest;
mod overrides;
mod problem;
mod scalar;
mod schema;
mod sections;
mod segments;
mod tables;
mod walk;
mod yaml;

#[cfg(test)]
mod tests;

pub use measure::{Flag, load_measure, measure_of_flags};
pub use nearest::nearest;
pub use problem::{Problem, Problems};
pub use schema::{measure_schema, pipeline_schema};
pub use tables::{StageSpec, Tables, stage_specs};

use crate::dedupe::Unit;
use crate::record::{FieldSpec, Options, Variant};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Largest pipeline file, in bytes: far above any real one, far below what memory holds.
const LARGEST_FILE_BYTES: u64 = 8 << 20;

/// What the command line changes in a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `key.path=value`, the value being YAML. An entry of a list is named by its number from 0, a
    /// stage by its name and an input by its source, the second of the same name as `length#2`.
    pub set: Vec<String>,
    /// The output folder, relative to the current folder. Not part of the pipeline: neither
    /// [`Plan::filled`] nor [`Plan::hash`] knows it.
    pub out: Option<PathBuf>,
}

/// A checked pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The pipeline file, as the user named it.
    pub path: PathBuf,
    /// Its folder, from which relative paths go.
    pub base: PathBuf,
    /// Version of the file's format: 1.
    pub version: u64,
    /// What the pipeline is called.
    pub name: String,
    /// Every random choice is a keyed hash of (seed, purpose, id).
    pub seed: u64,
    /// The inputs in the order of the file. At least one.
    pub inputs: Vec<InputPlan>,
    /// The declared fields of all inputs, in the order of first mention; names are unique. The path
    /// is that of the first mention: read records with [`InputPlan::fields`].
    pub fields: Vec<FieldSpec>,
    /// How text becomes token ids.
    pub tokenizer: TokenizerPlan,
    /// The stages in the order of the file.
    pub stages: Vec<StagePlan>,
    /// The order and its options: a name of [`crate::order::TABLE`].
    pub order: Variant,
    /// The packing method and its options: a name of [`crate::pack::TABLE`].
    pub pack: Variant,
    /// Where the result goes and what it holds.
    pub output: OutputPlan,
    /// The configuration with defaults filled in, as YAML in a fixed key order; `${NAME}` and
    /// relative paths are left as written. Loads again to the same plan.
    pub filled: String,
    /// Hexadecimal 128-bit xxHash3 of what shapes the result: the filled configuration with
    /// variables replaced and without `output.path`.
    pub hash: String,
    /// The `--set` that changed it, in order.
    set: Vec<String>,
    /// The home folder, for `~` in paths among the options.
    home: Option<String>,
}

/// A place in the pipeline file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Line from 1; 0 where the value came from a `--set`.
    pub line: u32,
    /// Column from 1, in characters; where the value came from a `--set`, the number of that one, from 1.
    pub column: u32,
}

/// One entry of `inputs`.
#[derive(Clone, Debug, PartialEq)]
pub struct InputPlan {
    /// Globs with variables and `~` replaced, absolute or relative to [`Plan::base`]; `!` excludes.
    /// At least one does not exclude.
    pub globs: Vec<String>,
    /// Name used in the ledger. Two inputs may share one.
    pub source: String,
    /// `jsonl`, `parquet`, `arrow` or `text`; `None` to guess it from the file's name.
    pub format: Option<String>,
    /// Dotted path of the field that holds the text.
    pub text: String,
    /// Dotted path of the field that holds the id, where ids are given.
    pub id: Option<String>,
    /// The declared fields of this input, with their paths in its records.
    pub fields: Vec<FieldSpec>,
    /// What a record that cannot be read does.
    pub on_error: OnError,
    /// Longest record in bytes; one exactly as long is read.
    pub max_document_bytes: u64,
    /// Where `path` stands, for problems found later such as a glob that no file matches.
    pub place: Place,
}

/// What a record that cannot be read does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// It goes to the quarantine and is counted.
    Quarantine,
    /// It ends the run.
    Fail,
}

/// How text becomes token ids.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenizerPlan {
    /// Which tokenizer.
    pub source: TokenizerSource,
    /// The special token before every document.
    pub begin_token: Option<String>,
    /// The special token after every document.
    pub end_token: Option<String>,
    /// Where the tokenizer is named.
    pub place: Place,
    /// Where the begin token is named.
    pub begin_place: Place,
    /// Where the end token is named.
    pub end_place: Place,
}

/// Which tokenizer.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenizerSource {
    /// A Hugging Face tokenizer.json.
    File {
        /// As written, variables replaced.
        written: String,
        /// Absolute or relative to the current folder.
        resolved: PathBuf,
    },
    /// One that the program brings along, by its name.
    Builtin(String),
}

/// Which table a stage stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageRef {
    /// A per-document stage: index into [`crate::stages::TABLE`].
    Document(usize),
    /// [`global::EXACT_DEDUPE`].
    ExactDedupe,
    /// [`global::PARAGRAPH_DEDUPE`] or [`global::LINE_DEDUPE`].
    UnitDedupe(Unit),
    /// [`global::SPAN_DEDUPE`].
    SpanDedupe,
    /// [`global::NEAR_DEDUPE`].
    NearDedupe,
    /// [`global::SCORE`].
    Score {
        /// Index into [`crate::score::TABLE`].
        estimator: usize,
    },
    /// [`global::SELECT`].
    Select,
    /// The draw of what is held out: no stage that a pipeline names, [`OutputPlan::validation_share`] puts it into the
    /// chain.
    Validation,
}

/// One entry of `stages`.
#[derive(Clone, Debug, PartialEq)]
pub struct StagePlan {
    /// Its name, unique in the pipeline: the second `length` is `length#2`.
    pub label: String,
    /// Which stage it is.
    pub kind: StageRef,
    /// Whether it may cut texts.
    pub edits: bool,
    /// Its checked options; those of the estimator for `score`.
    pub options: Options,
    /// Its options that are paths ([`crate::record::Kind::Path`]), as written, variables replaced.
    pub paths: BTreeMap<&'static str, String>,
    /// Where the options stand that are given.
    pub places: BTreeMap<&'static str, Place>,
    /// Line of its name as in [`Place`].
    pub line: u32,
    /// Column of its name as in [`Place`].
    pub column: u32,
}

impl StagePlan {
    /// Where the first of these options that is given stands; where none is, the stage.
    pub fn place(&self, options: &[&str]) -> Place {
        let given = options.iter().find_map(|name| self.places.get(name));
        given.copied().unwrap_or(Place {
            line: self.line,
            column: self.column,
        })
    }
}

/// Where the result goes and what it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputPlan {
    /// The output folder, absolute or relative to the current folder.
    pub path: PathBuf,
    /// Most positions in a shard.
    pub shard_tokens: u64,
    /// What is kept of rejected documents.
    pub rejects: Rejects,
    /// Share of the documents that is held out of training, from 0.
    pub validation_share: f64,
    /// How usefulness is stored.
    pub usefulness: UsefulnessType,
    /// Whether shards carry the raw excess of every token.
    pub excess_nats: bool,
}

/// What is kept of rejected documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejects {
    /// Nothing.
    None,
    /// Their token ids.
    Tokens,
    /// Their token ids and text.
    Text,
}

/// How usefulness is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsefulnessType {
    /// A byte, value / 255.
    U8,
    /// A 32-bit float.
    F32,
}

impl Plan {
    /// A glob among the options ([`crate::record::Kind::Globs`]) with `~` replaced, absolute or
    /// relative to [`Plan::base`] like [`InputPlan::globs`]; a `!` stays. Single paths among the
    /// options ([`crate::record::Kind::Path`]) can be opened as they are.
    pub fn glob(&self, written: &str) -> String {
        replace_home_in_glob(written, self.home.as_deref())
    }

    /// A folder among the options ([`crate::record::Kind::Folders`]) as the file system knows it.
    pub fn folder(&self, written: &str) -> PathBuf {
        self.base.join(replace_home(written, self.home.as_deref()))
    }

    /// A problem at a place of the pipeline file or of a `--set`, found after loading.
    pub fn problem(&self, place: Place, message: impl Into<String>) -> Problem {
        let set = match (place.line, place.column.checked_sub(1)) {
            (0, Some(number)) => self.set.get(number as usize),
            _ => None,
        };
        Problem {
            file: set.map_or_else(
                || self.path.display().to_string(),
                |set| format!("--set {set}"),
            ),
            line: place.line,
            column: place.column,
            message: message.into(),
        }
    }
}

/// Reads and checks a pipeline file.
///
/// Reads nothing but that file, the environment variables that it names (and `HOME` for `~`), and
/// what a stage, estimator or order opens while it is built from its options, such as a model.
///
/// # Errors
/// Every problem of the file and of `overrides`, each with its place and the way out.
///
/// ```
/// use goodput::plan::{Overrides, load};
/// let problems = load("no-such-file.yaml".as_ref(), &Overrides::default()).unwrap_err();
/// assert!(problems.to_string().starts_with("no-such-file.yaml: no such file"));
/// ```
pub fn load(path: &Path, overrides: &Overrides) -> Result<Plan, Problems> {
    load_with(path, overrides, &Tables::program(), &|name| {
        std::env::var(name).ok()
    })
}

/// [`load`] with other tables and another environment.
fn load_with(
    path: &Path,
    overrides: &Overrides,
    tables: &Tables,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Plan, Problems> {
    let text = read(path, "pipeline").map_err(|(line, column, message)| {
        Problems(vec![Problem {
            file: path.display().to_string(),
            line,
            column,
            message,
        }])
    })?;
    check::check(path, &text, overrides, tables, variable)
}

/// The file's text; else line, column and what is wrong. `what` is the schema that describes such a file.
fn read(path: &Path, what: &str) -> Result<String, (u32, u32, String)> {
    let unreadable = |error: std::io::Error| {
        let message = match error.kind() {
            std::io::ErrorKind::NotFound => format!(
                "no such file; name an existing {what} file ('goodput schema {what}' describes what stands in one)"
            ),
            std::io::ErrorKind::IsADirectory => format!("is a folder; name the {what} file in it"),
            std::io::ErrorKind::PermissionDenied => {
                "may not be read; give yourself the right to read it".to_string()
            }
            _ => format!("cannot be read: {error}"),
        };
        (0, 0, message)
    };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(LARGEST_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > LARGEST_FILE_BYTES {
        let message = format!(
            "is larger than {} MiB; is it a {what} file",
            LARGEST_FILE_BYTES >> 20
        );
        return Err((0, 0, message));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let bytes = error.as_bytes();
        let before = String::from_utf8_lossy(&bytes[..valid]);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        let message = format!(
            "byte 0x{:02X} is not valid UTF-8; save the file as UTF-8",
            bytes[valid]
        );
        (
            u32::try_from(line).unwrap_or(u32::MAX),
            u32::try_from(column).unwrap_or(u32::MAX),
            message,
        )
    })
}

/// The folder of a pipeline file.
fn base_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

/// Whether a path begins with the home folder.
fn begins_at_home(path: &str) -> bool {
    path == "~" || path.starts_with("~/")
}

/// [`replace_home`] behind the `!` of a glob that excludes.
fn replace_home_in_glob(glob: &str, home: Option<&str>) -> String {
    match glob.strip_prefix('!') {
        Some(excluded) => format!("!{}", replace_home(excluded, home)),
        None => replace_home(glob, home),
    }
}

/// The path with a leading `~` replaced, where the home folder is known.
fn replace_home(path: &str, home: Option<&str>) -> String {
    match home {
        Some(home) if begins_at_home(path) => format!("{home}{}", &path[1..]),
        _ => path.to_string(),
    }
}
