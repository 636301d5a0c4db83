//! The global stages: they see what reaches them as a whole.

use crate::algo::minhash::{self, MAX_BANDS, MAX_ROWS, Measure};
use crate::dedupe::SpanRule;
use crate::record::{Kind, OptionError, OptionSpec, Options, Reason, Spec};
use std::collections::BTreeMap;

/// The option of a dedupe that names the output folders of earlier releases.
pub const AGAINST: &str = "against";
/// The option of a dedupe that has an index written.
pub const WRITE_INDEX: &str = "write_index";

const WRITES_INDEX: OptionSpec = OptionSpec {
    name: WRITE_INDEX,
    kind: Kind::Bool,
    default: Some("false"),
    doc: "Whether 'index/' of the output folder holds what later runs need to name this one in 'against': of every \
          document that is kept in the end what it was compared by, as this stage saw it, and no text",
};

/// Exact copies.
pub const EXACT_DEDUPE: Spec = Spec {
    name: "exact_dedupe",
    summary: "Rejects documents whose text stands in the corpus already",
    details: "Two documents are copies where the 128-bit xxHash3 of their text is the same. The first one stays: the \
              smallest (place in 'inputs', id). Without 'normalise' a single byte makes a difference. Documents of \
              earlier releases ('against') come before all others: a copy of one goes, and the evidence names it and \
              its release. An index takes 16 bytes a document and its packed id; while it is compared with, a document \
              of it takes 32 bytes of intermediate files.",
    options: &[
        OptionSpec {
            name: "normalise",
            kind: Kind::Bool,
            default: Some("false"),
            doc: "Whether texts are compared after NFC, lower-casing, turning every run of white space into one space \
                  and trimming. The text itself is left as it is",
        },
        OptionSpec {
            name: AGAINST,
            kind: Kind::Folders,
            default: Some("[]"),
            doc: "Output folders of earlier runs, as paths from the pipeline file, with an index of this stage \
                  ('write_index') of the same 'normalise'. \
                  An index holds the documents of its own run: of a chain of releases name each",
        },
        WRITES_INDEX,
    ],
    example: "{ normalise: true }",
};

/// Reasons of [`EXACT_DEDUPE`].
pub const EXACT_DEDUPE_REASONS: &[Reason] = &[
    Reason::duplicate(
        "exact_duplicate",
        "The text is that of the kept document; the value is their similarity, always 1",
    ),
    Reason::duplicate(
        "exact_duplicate_of_release",
        "The text is that of a document of an earlier release; the value is their similarity, always 1",
    ),
];

/// Repeated paragraphs.
pub const PARAGRAPH_DEDUPE: Spec = Spec {
    name: "paragraph_dedupe",
    summary: "Cuts paragraphs out of documents that stand in the corpus already",
    details: "A paragraph is the lines between two blank lines, or between one and an end of the text; lines of white \
              space alone are blank. Two paragraphs are repeats where the 128-bit xxHash3 of their text is the same; \
              LF and CR LF are one line end. The first one stays: that of the smallest (place in 'inputs', id), then \
              the first in the document, so repeats within a document go too. With a paragraph go the blank lines \
              after it; at the end of the text, those before it. The document keeps its id, what comes after sees the \
              text that is left, with new token ids, and 'edits/' lists every cut with the document that keeps the \
              paragraph. Of a document of which nothing is left, all is rejected. Must stand before 'score'.",
    options: &[
        OptionSpec {
            name: "min_characters",
            kind: Kind::Integer {
                min: 1,
                max: u64::MAX,
            },
            default: Some("100"),
            doc: "Fewest characters (Unicode scalar values, without white space around them) of a paragraph that is \
                  compared; one with exactly as many is. Shorter ones are headings and ordinary phrases",
        },
        UNIT_NORMALISE,
    ],
    example: "{ min_characters: 100 }",
};

/// Reasons of [`PARAGRAPH_DEDUPE`].
pub const PARAGRAPH_DEDUPE_REASONS: &[Reason] = &[Reason::duplicate(
    "repeated_paragraph",
    "Paragraphs of it stand earlier in the corpus and were cut out; the document is rejected where nothing else is in \
     it, and the value is then the number of bytes that were to be cut",
)];

/// What [`PARAGRAPH_DEDUPE`] counts of its work, in the order of its counts.
pub const PARAGRAPH_DEDUPE_NOTES: &[&str] = &["paragraphs_compared", "paragraphs_repeated"];

/// Repeated lines.
pub const LINE_DEDUPE: Spec = Spec {
    name: "line_dedupe",
    summary: "Cuts lines out of documents that stand in the corpus already",
    details: "A line is what stands before LF, CR LF or the end of the text. Two lines are repeats where the 128-bit \
              xxHash3 of their text is the same. The first one stays: that of the smallest (place in 'inputs', id), \
              then the first in the document, so repeats within a document go too. With a line goes its line end. The \
              document keeps its id, what comes after sees the text that is left, with new token ids, and 'edits/' \
              lists every cut with the document that keeps the line. Of a document of which nothing is left, all is \
              rejected. Lines of code, verse and tables repeat for good reasons: use it for web pages. Must stand \
              before 'score'.",
    options: &[
        OptionSpec {
            name: "min_characters",
            kind: Kind::Integer {
                min: 1,
                max: u64::MAX,
            },
            default: Some("50"),
            doc: "Fewest characters (Unicode scalar values, without white space around them) of a line that is \
                  compared; one with exactly as many is. Shorter ones are headings and ordinary phrases",
        },
        UNIT_NORMALISE,
    ],
    example: "{ min_characters: 50 }",
};

/// Reasons of [`LINE_DEDUPE`].
pub const LINE_DEDUPE_REASONS: &[Reason] = &[Reason::duplicate(
    "repeated_line",
    "Lines of it stand earlier in the corpus and were cut out; the document is rejected where nothing else is in it, \
     and the value is then the number of bytes that were to be cut",
)];

/// What [`LINE_DEDUPE`] counts of its work, in the order of its counts.
pub const LINE_DEDUPE_NOTES: &[&str] = &["lines_compared", "lines_repeated"];

/// Repeated stretches of tokens.
pub const SPAN_DEDUPE: Spec = Spec {
    name: "span_dedupe",
    summary: "Cuts stretches of tokens out of documents that stand elsewhere in the corpus",
    details: "Every token that lies in a stretch of 'min_tokens' tokens which stands elsewhere too, in another document \
              or in the same one, is found exactly (as with the suffix arrays of Lee et al. 2022) and goes, but for the \
              first occurrence: that of the smallest (place in 'inputs', id), then the first in the document. Of a text \
              that overlaps its own copies, such as one word said a thousand times, less than 'min_tokens' may stay. Runs of \
              tokens with the smallest hash in each stretch propose what is compared (winnowing: Schleimer et al. \
              2003), the tokens themselves decide. Cuts are made at borders of characters: of one that a stretch holds \
              only in part, nothing goes. The document keeps its id, what comes after sees the text that is left, with \
              new token ids, and 'edits/' lists every cut with the first document that holds it. Of a document of which \
              nothing is left, all is rejected. Indentation, licence headers, tables and the fixed phrases of program \
              code repeat by nature: 50 tokens of them are few, and a cut leaves code that does not run; for sources of \
              code choose a larger 'min_tokens', or leave the stage out and use 'near_dedupe'. Must stand before \
              'score'. Intermediate files take some 2 bytes a token, and text is kept for the cuts.",
    options: &[
        OptionSpec {
            name: "min_tokens",
            kind: Kind::Integer {
                min: SpanRule::MIN_TOKENS as u64,
                max: SpanRule::MAX_MIN_TOKENS as u64,
            },
            default: Some("50"),
            doc: "Fewest tokens in a row that are a repeat; exactly as many are one",
        },
        OptionSpec {
            name: "keep",
            kind: Kind::Choice(&["first", "none"]),
            default: Some("first"),
            doc: "Whether the first occurrence stays, or none does",
        },
    ],
    example: "{ min_tokens: 50 }",
};

/// Reasons of [`SPAN_DEDUPE`].
pub const SPAN_DEDUPE_REASONS: &[Reason] = &[Reason::duplicate(
    "repeated_span",
    "Stretches of it stand elsewhere in the corpus and were cut out; the document is rejected where nothing else is in \
     it, and the value is then the number of bytes that were to be cut",
)];

/// What [`SPAN_DEDUPE`] counts of its work, in the order of its counts.
pub const SPAN_DEDUPE_NOTES: &[&str] = &[
    "contexts_compared",
    "stretches_compared",
    "spans_repeated",
    "tokens_repeated",
];

const UNIT_NORMALISE: OptionSpec = OptionSpec {
    name: "normalise",
    kind: Kind::Bool,
    default: Some("false"),
    doc: "Whether they are compared after NFC, lower-casing, turning every run of white space into one space and \
          trimming. What stays is left as it is",
};

/// Near copies.
pub const NEAR_DEDUPE: Spec = Spec {
    name: "near_dedupe",
    summary: "Rejects documents that share most of their word sequences with another one",
    details: "MinHash proposes pairs (Broder 1997; Indyk & Motwani 1998), the exact similarity of their sets of shingles \
              decides. Documents are taken in keep order; one goes when it is similar to a document that stays, never \
              because of one that goes itself. A pair of Jaccard similarity s is proposed with probability \
              1 - (1 - s^rows)^bands: more bands find more pairs, more rows fewer. Without 'bands' and 'rows' they are \
              chosen so that pairs 0.05 above 'min_similarity' are proposed with probability 0.99 or more, from at most \
              128 hashes; 'goodput check' prints the curve. A document too short for one shingle is similar only to one \
              of the same words, and counted. A source or a cluster (what goes because of one document) that loses more \
              than its bound stops the run, which names it. Documents of earlier releases ('against') come first in keep \
              order and stay whatever 'keep' is, 'none' too: a document that is similar to one goes, and the evidence \
              names it and its release. An index holds all shingles, so that the old texts are not needed: 8 bytes a \
              distinct shingle (about 1.2 a byte of text with words) and 8 a band, and the packed id. A run of the same \
              seed, bands and rows reads the bands, and the shingles only of what they propose; another one reads it \
              all. While it is compared with, a document of it takes 16 bytes a band of intermediate files, and its \
              shingles where it is proposed.",
    options: &[
        OptionSpec {
            name: "min_similarity",
            kind: Kind::Number { min: 0.1, max: 1.0 },
            default: Some("0.8"),
            doc: "Similarity from which on two documents are copies; a pair exactly at it is one",
        },
        OptionSpec {
            name: "measure",
            kind: Kind::Choice(&["jaccard", "containment"]),
            default: Some("jaccard"),
            doc: "What similarity is: shingles that both documents hold, over those that either holds, or over those \
                  of the smaller one. MinHash proposes by Jaccard all the same: with 'containment' the bands are chosen \
                  for documents of about one size, and a small part of a large document is seldom proposed. With \
                  'keep: longest' the part goes, with 'first' whichever comes later",
        },
        OptionSpec {
            name: "keep",
            kind: Kind::Choice(&[
                "first",
                "longest",
                "highest_score",
                "preferred_source",
                "none",
            ]),
            default: Some("first"),
            doc: "Which of similar documents stays: the first by (place in 'inputs', id), the one with most tokens, the \
                  one with the highest score (needs a 'score' stage before), or one of the source that stands first in \
                  'preferred_sources'; the first one wherever that leaves a tie. With 'none' not one of them stays: \
                  every document that is similar to any other goes, and the evidence names that one",
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
            default: Some("null"),
            doc: "Words in a row that make one shingle, in lower case and without punctuation, and not NFC-normalised; \
                  shorter documents are compared as a whole. 5 where no shingle is given",
        },
        OptionSpec {
            name: "shingle_tokens",
            kind: Kind::Integer { min: 1, max: 64 },
            default: Some("null"),
            doc: "Token ids in a row that make one shingle, in place of words",
        },
        OptionSpec {
            name: "shingle_characters",
            kind: Kind::Integer { min: 1, max: 256 },
            default: Some("null"),
            doc: "Characters in a row that make one shingle, in place of words: of the text in NFC and lower case, each \
                  run of white space one space. Eight bytes of intermediate files for each character",
        },
        OptionSpec {
            name: "bands",
            kind: Kind::Integer {
                min: 1,
                max: MAX_BANDS as u64,
            },
            default: Some("null"),
            doc: "Groups of hashes of which one must agree for a pair to be proposed: more find more pairs. Chosen by \
                  'min_similarity' where absent",
        },
        OptionSpec {
            name: "rows",
            kind: Kind::Integer {
                min: 1,
                max: MAX_ROWS as u64,
            },
            default: Some("null"),
            doc: "Hashes in a band, all of which must agree: more find fewer pairs. Chosen by 'min_similarity' where \
                  absent",
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
        OptionSpec {
            name: "max_source_loss",
            kind: Kind::Number { min: 0.0, max: 1.0 },
            default: Some("0.9"),
            doc: "Share of a source's documents, and of its tokens, that may go, of what reaches the stage; a larger \
                  one stops the run. 1 allows all",
        },
        OptionSpec {
            name: "max_cluster_loss",
            kind: Kind::Number { min: 0.0, max: 1.0 },
            default: Some("0.1"),
            doc: "Share of all documents, and of all tokens, that may go because of one kept document, of what reaches \
                  the stage; a larger one stops the run. 1 allows all",
        },
        OptionSpec {
            name: "guard_min_documents",
            kind: Kind::Integer {
                min: 1,
                max: u64::MAX,
            },
            default: Some("1000"),
            doc: "Documents that a source must have, or that must go because of one, for those two bounds to hold",
        },
        OptionSpec {
            name: "allow",
            kind: Kind::TextList,
            default: Some("[]"),
            doc: "Sources, and ids of kept documents, for which the two bounds do not hold",
        },
        OptionSpec {
            name: AGAINST,
            kind: Kind::Folders,
            default: Some("[]"),
            doc: "Output folders of earlier runs, as paths from the pipeline file, with an index of this stage \
                  ('write_index') of the same shingles, and \
                  of 'shingle_tokens' the same tokenizer; similarity, measure, bands and seed may be others. An index \
                  holds the documents of its own run: of a chain of releases name each. The two bounds count what goes \
                  because of them too",
        },
        WRITES_INDEX,
    ],
    example: "{ min_similarity: 0.8, keep: first }",
};

/// What a near dedupe's options say similarity is.
pub fn measure(options: &Options) -> Measure {
    match options.text("measure") {
        "containment" => Measure::Containment,
        _ => Measure::Jaccard,
    }
}

/// Bands and rows of a near dedupe: as given, or chosen for its `min_similarity`.
///
/// # Errors
/// When no number of the other one would propose the pairs.
pub fn bands_and_rows(options: &Options) -> Result<(u32, u32), OptionError> {
    let given = |name: &str| options.integer_if_given(name).map(|n| n as u32);
    let aimed = minhash::aimed_similarity(options.number("min_similarity"));
    // Containment: of documents of one size, which it proposes best.
    let jaccard = measure(options).jaccard_of(aimed, 1.0);
    let refused = |option, other, found| {
        let must_be = format!(
            "such that some number of {other} proposes pairs of similarity {aimed:.3} with probability {}; name both, or \
             neither",
            minhash::PROPOSED
        );
        OptionError::new(option, must_be, found)
    };
    match (given("bands"), given("rows")) {
        (Some(bands), Some(rows)) => Ok((bands, rows)),
        (Some(bands), None) => match minhash::most_rows(jaccard, bands) {
            Some(rows) => Ok((bands, rows)),
            None => Err(refused("bands", "rows", bands)),
        },
        (None, Some(rows)) => match minhash::fewest_bands(jaccard, rows) {
            Some(bands) => Ok((bands, rows)),
            None => Err(refused("rows", "bands", rows)),
        },
        (None, None) => Ok(minhash::bands_and_rows(jaccard)),
    }
}

/// Reasons of [`NEAR_DEDUPE`].
pub const NEAR_DEDUPE_REASONS: &[Reason] = &[
    Reason::duplicate(
        "near_duplicate",
        "Its similarity to the kept document reaches 'min_similarity'; the value is that similarity, exact",
    ),
    Reason::duplicate(
        "near_duplicate_of_release",
        "Its similarity to a document of an earlier release reaches 'min_similarity'; the value is that similarity, exact",
    ),
];

/// What [`NEAR_DEDUPE`] counts of its work, in the order of its counts.
pub const NEAR_DEDUPE_NOTES: &[&str] = &[
    "compared_as_a_whole_too_short_to_shingle",
    "candidate_buckets",
    "pairs_verified",
    "skipped_full_bucket",
];

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

/// What the draw of held-out documents is called in the ledger, and its folder in the output.
pub const VALIDATION: &str = "validation";

/// The reason of [`VALIDATION`].
pub const VALIDATION_REASONS: &[Reason] = &[Reason::policy(
    VALIDATION,
    "It is held out of training and stands in 'validation/'; the value is the keyed hash of its group of similar \
     documents, from 0 to below 1, which lies below 'validation_share'",
)];

/// What [`VALIDATION`] counts of its work, in the order of its counts.
pub const VALIDATION_NOTES: &[&str] = &["pairs_verified", "groups_held_out"];

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

/// Counts of a stage by the names of its notes.
pub fn noted(names: &[&str], counts: &[u64]) -> BTreeMap<String, u64> {
    debug_assert_eq!(names.len(), counts.len());
    let names = names.iter().map(|name| name.to_string());
    names.zip(counts.iter().copied()).collect()
}
