//! What can go wrong with a file as a whole.

use std::io;
use std::path::PathBuf;

/// A file or a glob that cannot be read. Bad records are not errors.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The operating system refused.
    #[error("{path}: cannot be read: {source}", path = path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not what it was when the run began.
    #[error("{path}: {what}; what a run reads must stay as it is until it ends: once it does, run the same command again", path = path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// What is other now.
        what: String,
    },
    /// A Parquet or Arrow file that does not hold together.
    #[error("{path}: is not a whole {format} file: {problem}; fetch it again or exclude it with \"!glob\"", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Name of the format.
        format: &'static str,
        /// What the reader of the format said.
        problem: String,
    },
    /// A glob that no file matches.
    #[error("no file matches '{glob}' in {base}", base = base.display())]
    NoFiles {
        /// The glob as written.
        glob: String,
        /// The folder that it is relative to.
        base: PathBuf,
    },
    /// A text that is not a glob.
    #[error("'{glob}' is not a glob: {problem}")]
    BadGlob {
        /// The text.
        glob: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A file whose name is not UTF-8, so that no id can be made from it.
    #[error("{path}: has a name that is not UTF-8; rename it, since names are part of ids", path = path.display())]
    NameNotUtf8 {
        /// The file.
        path: PathBuf,
    },
    /// A table without the column that is needed.
    #[error("{path}: has no column '{column}'{nearest}; it has {columns}", path = path.display(), nearest = nearest.as_ref().map(|n| format!(", did you mean '{n}'?")).unwrap_or_default())]
    NoColumn {
        /// The file.
        path: PathBuf,
        /// The column that was asked for.
        column: String,
        /// The column with the most similar name.
        nearest: Option<String>,
        /// The columns that exist.
        columns: String,
    },
    /// A name that says no format.
    #[error("{path}: its name says no format; add 'format:' to the input (jsonl, parquet, arrow or text)", path = path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
    },
    /// A format that has a name but no reader.
    #[error("{path}: format '{format}' is not supported yet; use jsonl, parquet, arrow or text", path = path.display())]
    NotSupported {
        /// The file.
        path: PathBuf,
        /// Name of the format.
        format: &'static str,
    },
    /// A gzip or zstd file around a format that has its own compression.
    #[error("{path}: is {compression} around a {format} file; unpack it first", path = path.display())]
    Wrapped {
        /// The file.
        path: PathBuf,
        /// Name of the compression.
        compression: &'static str,
        /// Name of the format.
        format: &'static str,
    },
    /// A field of a text file was asked for.
    #[error("{path}: a text file has no field '{field}'; leave 'id' and 'fields' out of this input", path = path.display())]
    TextHasNoFields {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
    },
    /// A file of numbers per token that does not say what it must.
    #[error("{path}: {place}: {problem}", path = path.display())]
    TokenTable {
        /// The file.
        path: PathBuf,
        /// Where in it.
        place: String,
        /// What is wrong.
        problem: String,
    },
    /// A slice that does not fit the file.
    #[error("{path}: has no slice '{slice}'; slices are those of the same file, format and settings", path = path.display())]
    NoSuchSlice {
        /// The file.
        path: PathBuf,
        /// The slice.
        slice: String,
    },
}
