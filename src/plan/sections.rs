//! The fixed sections of a pipeline file as tables. `fields` alone is no option but a mapping of
//! the user's own names; the sections themselves are walked by the checker.

use crate::record::{Kind, OptionSpec};

/// The keys of a pipeline file, in the order in which it is read best, with their meaning.
pub(super) const TOP_KEYS: &[(&str, &str)] = &[
    ("version", "Version of the pipeline file's format: 1"),
    ("name", "What the pipeline is called"),
    (
        "seed",
        "Every random choice is a keyed hash of (seed, purpose, id)",
    ),
    ("inputs", "The files to read, by source"),
    ("tokenizer", "How text becomes token ids"),
    (
        "stages",
        "What documents go through, one after another; 'goodput stages' lists them",
    ),
    ("order", "In which order the kept documents are emitted"),
    ("pack", "How documents become rows"),
    ("output", "Where the result goes and what it holds"),
];

/// The scalars of the top level.
pub(super) const HEAD: &[OptionSpec] = &[
    OptionSpec {
        name: "version",
        kind: Kind::Integer { min: 1, max: 1 },
        default: None,
        doc: "Version of the pipeline file's format: 1",
    },
    OptionSpec {
        name: "name",
        kind: Kind::Text,
        default: None,
        doc: "What the pipeline is called",
    },
    OptionSpec {
        name: "seed",
        kind: Kind::Integer {
            min: 0,
            max: u64::MAX,
        },
        default: None,
        doc: "Every random choice is a keyed hash of (seed, purpose, id)",
    },
];

/// Where `order` names its strategy and `pack` its method, and what stands in for them.
pub(super) const ORDER: (&str, &str) = ("strategy", "{ strategy: shuffle }");
/// See [`ORDER`].
pub(super) const PACK: (&str, &str) = ("method", "{ method: none }");

/// The key of an input that is no option: a mapping of the user's own names.
pub(super) const FIELDS: &str = "fields";
/// What [`FIELDS`] is.
pub(super) const FIELDS_DOC: &str = "Metadata carried to filters, audit, unpacked shards and rejects: a column's name \
                                     with its type, or with { path: dotted.path, type: string }";

/// The formats that can be read.
pub(super) const FORMATS: &[&str] = &["jsonl", "parquet", "arrow", "text"];
/// Formats with a fixed name that cannot be read yet, and what to do instead.
pub(super) const FORMATS_TO_COME: &[(&str, &str)] = &[
    ("csv", "convert the files to jsonl or parquet"),
    ("warc", "extract the text and write it as jsonl"),
    ("wet", "write the records as jsonl"),
];
/// How paths begin that are not local.
pub(super) const REMOTE_PREFIXES: &[&str] = &["s3://", "gs://", "az://", "http://", "https://"];

/// One entry of `inputs`, without its [`FIELDS`].
pub(super) const INPUT: &[OptionSpec] = &[
    OptionSpec {
        name: "path",
        kind: Kind::Globs,
        default: None,
        doc: "Files: a glob or a list of them, '!glob' excludes; relative to the pipeline file",
    },
    OptionSpec {
        name: "source",
        kind: Kind::Text,
        default: None,
        doc: "Name used in the ledger",
    },
    OptionSpec {
        name: "format",
        kind: Kind::Choice(FORMATS),
        default: Some("null"),
        doc: "Format of the files; guessed from their names when absent",
    },
    OptionSpec {
        name: "text",
        kind: Kind::Text,
        default: Some("text"),
        doc: "The field that holds the text; dotted paths lead into nested records",
    },
    OptionSpec {
        name: "id",
        kind: Kind::Text,
        default: Some("null"),
        doc: "The field that holds a unique id; without it ids are made from path and place",
    },
    OptionSpec {
        name: "on_error",
        kind: Kind::Choice(&["quarantine", "fail"]),
        default: Some("quarantine"),
        doc: "What a record that cannot be read does: go to the quarantine, or end the run",
    },
    OptionSpec {
        name: "max_document_bytes",
        kind: Kind::Integer {
            min: 1,
            max: 1 << 40,
        },
        default: Some("64MiB"),
        doc: "Longest record; longer ones are quarantined as too_long, one exactly as long is read",
    },
];

/// `tokenizer`.
pub(super) const TOKENIZER: &[OptionSpec] = &[
    OptionSpec {
        name: "file",
        kind: Kind::Path,
        default: Some("null"),
        doc: "A Hugging Face tokenizer.json; either this or 'builtin'",
    },
    OptionSpec {
        name: "builtin",
        kind: Kind::Text,
        default: Some("null"),
        doc: "A tokenizer that the program brings along, such as o200k; either this or 'file'",
    },
    OptionSpec {
        name: "begin_token",
        kind: Kind::Text,
        default: Some("none"),
        doc: "The special token before every document, or none",
    },
    OptionSpec {
        name: "end_token",
        kind: Kind::Text,
        default: Some("none"),
        doc: "The special token after every document, or none",
    },
];

/// `output`. `path` is required unless the command line names a folder.
pub(super) const OUTPUT: &[OptionSpec] = &[
    OptionSpec {
        name: "path",
        kind: Kind::Path,
        default: None,
        doc: "The output folder, relative to the pipeline file",
    },
    OptionSpec {
        name: "shard_tokens",
        // Offsets of list columns have 31 bits.
        kind: Kind::Integer {
            min: 1,
            max: 2_147_483_647,
        },
        default: Some("64_000_000"),
        doc: "Most positions in a shard; no row is longer",
    },
    OptionSpec {
        name: "rejects",
        kind: Kind::Choice(&["none", "tokens", "text"]),
        default: Some("tokens"),
        doc: "What is kept of rejected documents beside stage, reason and value: nothing at all (no file), their \
              tokens, or their tokens and text",
    },
    OptionSpec {
        name: "validation_share",
        kind: Kind::Number { min: 0.0, max: 0.9 },
        default: Some("0"),
        doc: "Share of the documents that is held out of training, written to 'validation/' and counted as rejected \
              (reason 'validation'); 0 for none. Similar documents stay together: what is drawn, by a keyed hash, is \
              groups of documents that a 'near_dedupe' before finds similar, directly or over others; without one, \
              documents of the same tokens. Drawn before 'score' and 'select' look, after the last 'near_dedupe'",
    },
    OptionSpec {
        name: "usefulness",
        kind: Kind::Choice(&["u8", "f32"]),
        default: Some("u8"),
        doc: "How usefulness is stored: a byte (value / 255), or a 32-bit float",
    },
    OptionSpec {
        name: "excess_nats",
        kind: Kind::Bool,
        default: Some("false"),
        doc: "Whether shards also carry the raw excess of every token, in nats; needs an estimator with excess",
    },
];

/// Column names that the output uses itself.
pub(super) const RESERVED_COLUMNS: &[&str] = &[
    "position",
    "input_ids",
    "usefulness",
    "excess_nats",
    "difficulty",
    "length_tokens",
    "byte_offsets",
    "doc_id",
    "source",
    "doc_token_start",
    "copy",
    "score",
    "special_tokens",
    "segments",
    "padding",
    "stage",
    "reason",
    "value",
    "kept_id",
    "kept_release",
    "tokens",
    "text",
    "random",
    "text_bytes",
    "group_hash",
];
