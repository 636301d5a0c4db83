//! The global stages: they see what reaches them as a whole.

use crate::record::{Kind, OptionSpec, Reason, Spec};

/// Exact copies.
pub const EXACT_DEDUPE: Spec = Spec {
    name: "exact_dedupe",
    summary: "Rejects documents whose text stands in the corpus already",
    details: "Two documents are copies where the 128-bit xxHash3 of their text is the same. The first one stays: the \
              smallest (place in 'inputs', id). Without 'normalise' a single byte makes a difference.",
    options: &[OptionSpec {
        name: "normalise",
        kind: Kind::Bool,
        default: Some("false"),
        doc: "Whether texts are compared after NFC, lower-casing, turning every run of white space into one space and \
              trimming. The text itself is left as it is",
    }],
    example: "{ normalise: true }",
};

/// Reasons of [`EXACT_DEDUPE`].
pub const EXACT_DEDUPE_REASONS: &[Reason] = &[Reason::duplicate(
    "exact_duplicate",
    "The text is that of the kept document; the value is their similarity, always 1",
)];

/// Near copies.
pub const NEAR_DEDUPE: Spec = Spec {
    name: "near_dedupe",
    summary: "Rejects documents that share most of their word sequences with another one",
    details: "MinHash proposes pairs (Broder 1997; Indyk & Motwani 1998), the exact Jaccard similarity of their sets of \
              shingles decides, and one document of every connected group stays. A pair of similarity s is proposed \
              with probability 1 - (1 - s^rows)^bands: more bands find more pairs, more rows fewer.",
    options: &[
        OptionSpec {
            name: "min_similarity",
            kind: Kind::Number { min: 0.1, max: 1.0 },
            default: Some("0.8"),
            doc: "Jaccard similarity from which on two documents are copies; a pair exactly at it is one",
        },
        OptionSpec {
            name: "keep",
            kind: Kind::Choice(&["first", "longest", "highest_score", "preferred_source"]),
            default: Some("first"),
            doc: "Which document of a group stays: the first by (place in 'inputs', id), the one with most tokens, the \
                  one with the highest score (needs a 'score' stage before), or one of the source that stands first in \
                  'preferred_sources'; the first one wherever that leaves a tie",
        },
        OptionSpec {
            name: "preferred_sources",
            kind: Kind::TextList,
            default: Some("[]"),
            doc: "Sources from the most to the least preferred, for 'keep: preferred_source'; sources not named come \
                  last, equal to each other",
        },
        OptionSpec {
            name: "shingle_words",
            kind: Kind::Integer { min: 1, max: 64 },
            default: Some("5"),
            doc: "Words in a row that make one shingle; shorter documents are compared as a whole",
        },
        OptionSpec {
            name: "bands",
            kind: Kind::Integer { min: 1, max: 512 },
            default: Some("14"),
            doc: "Groups of hashes of which one must agree for a pair to be proposed: more find more pairs",
        },
        OptionSpec {
            name: "rows",
            kind: Kind::Integer { min: 1, max: 64 },
            default: Some("8"),
            doc: "Hashes in a band, all of which must agree: more find fewer pairs",
        },
        OptionSpec {
            name: "max_bucket",
            kind: Kind::Integer {
                min: 2,
                max: 1_000_000,
            },
            default: Some("1000"),
            doc: "Documents of one bucket that the others are compared with, its first ones; what is skipped is \
                  counted in the evidence",
        },
    ],
    example: "{ min_similarity: 0.8, keep: first }",
};

/// Reasons of [`NEAR_DEDUPE`].
pub const NEAR_DEDUPE_REASONS: &[Reason] = &[Reason::duplicate(
    "near_duplicate",
    "Its similarity to the kept document's group reaches 'min_similarity'; the value is the exact Jaccard similarity",
)];

/// Scores. Its options are these, and those of the estimator that `estimator` names.
pub const SCORE: Spec = Spec {
    name: "score",
    summary: "Estimates the usefulness of every token; rejects nothing",
    details: "The key 'estimator' names the method, the other keys are that estimator's options. It fits on what \
              reaches the stage. A pipeline has at most one.",
    options: &[OptionSpec {
        name: "calibration",
        kind: Kind::Path,
        default: Some("null"),
        doc: "A file that 'goodput calibrate' made with the losses of a pilot run: usefulness becomes what was measured \
              there, and the shards name that run",
    }],
    example: "{ estimator: random }",
};

/// The key of [`SCORE`] that names the estimator.
pub const SCORE_TAG: &str = "estimator";

/// The sort key of `select` that needs no score: the control of the same budget.
pub const RANDOM_KEY: &str = "random";

/// The budget.
pub const SELECT: Spec = Spec {
    name: "select",
    summary: "Keeps the best documents within a share or a number of tokens, or above a bound",
    details: "Documents stand by ('by' descending, id). The longest prefix within the budget stays: the first document \
              that would exceed it and all after it are rejected. Shares are of the tokens that reach the stage, rounded \
              down. 'by: random' is the control: the same budget, drawn by a keyed hash of (seed, id).",
    options: &[
        OptionSpec {
            name: "keep_share_of_tokens",
            kind: Kind::Number { min: 0.0, max: 1.0 },
            default: Some("null"),
            doc: "Share of the tokens that reach the stage that may stay, above 0 and up to 1",
        },
        OptionSpec {
            name: "keep_tokens",
            kind: Kind::Integer {
                min: 1,
                max: u64::MAX,
            },
            default: Some("null"),
            doc: "Tokens that may stay; not together with 'keep_share_of_tokens'",
        },
        OptionSpec {
            name: "min_score",
            kind: Kind::Number {
                min: f64::MIN,
                max: f64::MAX,
            },
            default: Some("null"),
            doc: "Smallest value of the key named by 'by' that stays; a document exactly at it stays. Alone, or before \
                  a budget",
        },
        OptionSpec {
            name: "by",
            kind: Kind::SortKey,
            default: Some("score"),
            doc: "What is selected by, the highest first; or 'random'",
        },
    ],
    example: "{ keep_share_of_tokens: 0.6, by: score }",
};

/// Reasons of [`SELECT`].
pub const SELECT_REASONS: &[Reason] = &[
    Reason::low_value(
        "below_min_score",
        "It is below 'min_score'; the value is the document's value of the key named by 'by'",
    ),
    Reason::low_value(
        "below_share",
        "It stands behind 'keep_share_of_tokens'; the value is the document's value of the key named by 'by'",
    ),
    Reason::low_value(
        "below_budget",
        "It stands behind 'keep_tokens'; the value is the document's value of the key named by 'by'",
    ),
];

/// The sort keys that are no declared field.
pub const SORT_KEYS: &[&str] = &[
    "score",
    "usefulness",
    "excess_nats",
    "difficulty",
    "length_tokens",
];

/// The sort key that an estimator with difficulty gives.
pub const DIFFICULTY_KEY: &str = "difficulty";

/// The sort keys that only an estimator with excess gives.
pub const EXCESS_KEYS: &[&str] = &["usefulness", "excess_nats"];
