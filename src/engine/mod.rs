//! Runs a plan: phases, workers, memory, resuming. Prints nothing and never decides what is useful.
//!
//! The phases in order: prepare (bytes to token ids, verdicts, sketches), decide (global stages one
//! after another; `score` fits and scores), arrange (order and pack, on the index alone), emit
//! (shards, rejects, evidence), then the ledger and, last of all, the manifest.
//!
//! A stage that cuts texts by what other documents hold ends a *segment* of the chain. Prepare and
//! decide are then done once more for the stages after it: each document that is still there is read
//! again, all cuts so far are made in it, and what was cut just now is tokenized again. A document's
//! fate, tokens and text are those of the last segment; one that was turned away before is copied
//! as it was then. So the rest of a run knows nothing of segments, but for the ledger, which takes what
//! was read from the first one, and what was cut from each.
//!
//! # What a run writes below `work/`
//!
//! Measured on 135 MB of mixed text (18,823 documents, 50.7 million tokens, 2.67 bytes a token; half
//! of the text reaches the dedupes), with `goodput run --keep-work`:
//!
//! | file | phase | bytes |
//! |---|---|---|
//! | index | prepare | 96 a document |
//! | ids and fields | prepare | 4 a document, and what the fields hold |
//! | token ids | prepare | 4 a token |
//! | hashes of an exact dedupe | prepare | 16 a document |
//! | sets and bands of a near dedupe | prepare | 16 a document, and 8 a band (120 for 15) for one that takes part |
//! | units of a dedupe by paragraph or line | prepare | 16 a document, 32 a unit that is long enough |
//! | shingles of a near dedupe | prepare | 8 a distinct shingle: of words 1.24 a byte of text that takes part, of characters 8 at most |
//! | text, where `rejects: text` | prepare | 1 a byte of text |
//! | stretches that `decontaminate` found | prepare | 40 each |
//! | edits and cuts | prepare | 48 a document that a stage edited, 24 a cut |
//! | a later segment | prepare again | index, fields, token ids and text once more; 12 a document for languages |
//! | the reference's index and ids | reference | as above |
//! | fates | decide | 32 a document; 16 more for ranks where ids are given |
//! | contexts of a dedupe by spans | decide | 32 each, about 1.8 a token; 24 a stretch and 32 a mark of what may repeat; removed after it |
//! | cuts of a dedupe by paragraph, line or span | decide | 8 a document, 24 a cut |
//! | n-grams of `ngram_excess` | fit | 8.2 a token that is learned from, at most 2 x `fit_tokens`; removed after scoring |
//! | scores | score | 16 a document, 1 a token; 4 a token more for each of f32 usefulness and `excess_nats` |
//! | sorts that outgrow memory | decide | 16 a band (240 a document for 15), 16 to 32 a document for each other sort; removed after it |
//! | buckets of a near dedupe | decide | 12 a bucket of two documents or more, 8 a member up to `max_bucket`; removed after it |
//! | groups of similar documents, with `validation_share` | decide | 16 a document; while they are found 16 a band, and 24 a document |
//! | sorts of earlier releases | decide | of a document in their indexes 32 for an exact dedupe, 16 a band for a near one; removed after it |
//! | what is proposed of earlier releases | decide | 32 a document and 8 a shingle; removed after it. The ids that the evidence names stay: 24 and the id |
//! | layout | arrange | 32 a row, 24 a segment |
//!
//! An index for later runs (`write_index`) is output: 16 bytes a kept document and its id for an exact dedupe; 8 a
//! shingle and 8 a band for a near one.
//!
//! In all 7.6 bytes a token, 11.7 while it fits on all of such a small corpus. The output is smaller:
//! 1.5 bytes a position in the shards, 0.6 a token in the rejects.
//!
//! | text | documents | token ids | shingles | usefulness | by document | all of `work/` |
//! |---|---|---|---|---|---|---|
//! | 1 TB | 139 million | 1.5 TB | 0.64 TB (1.24 where all takes part) | 0.37 TB | 34 GB | 2.6 TB (3.2) |
//! | 10 TB | 1,390 million | 15 TB | 6.4 TB (12.4) | 3.7 TB | 340 GB | 26 TB (32) |
//!
//! English prose has 4 bytes a token and more: a third less for ids and usefulness.
//!
//! # What it holds in memory
//!
//! Everything that grows with the corpus is a mapped file, which the kernel may drop, so anonymous memory grows with
//! threads, the longest document and the models that are fitted, not with the corpus. `memory.rs` counts these before
//! data are read, divides `--memory` among them, and refuses one that cannot do. It counts generously: what the system
//! counts for a process is what the allocator keeps, which is more than what is used. A document that is longer than a
//! chunk (1 MiB) takes up to 36 bytes a byte of its text where it is written in one row, and waits for others of its
//! kind; so the least memory follows `max_document_bytes`, as far as files are as large. `decontaminate` holds about 20
//! bytes for each word of its evaluation sets, which is measured with the program where all of it is loaded. Kendall's
//! tau sorts in mapped files.
//!
//! Reads of mapped files are in order but for two: `emit` reads each document's ids and usefulness
//! in curriculum order, a near dedupe the sets of its candidate pairs. Where `work/` is larger than
//! memory that is a random read a document: 139 million at 1 TB, some 12 minutes for a solid-state
//! disk of 200,000 reads a second, and too much for a spinning one.
//!
//! # What it takes of a core
//!
//! Medians of `cargo bench --bench pipeline` on the same text, in core seconds, on a busy machine of
//! two cores; the whole is 4.5 times what reading and tokenizing alone takes.
//!
//! | phase | MB of text a second | million tokens a second | bound by |
//! |---|---|---|---|
//! | reading alone | 318 | 119 | zstd (half), JSON strings (half) |
//! | reading and tokenizing alone | 59 | 22 | merges of the tokenizer |
//! | prepare | 24 | 9.0 | tokenizer 43 %, Gopher rules 29 % (a third of it naming languages), sketches 12 %, reading 11 % |
//! | fit | 5.9 | 2.2 | random reads of the n-gram table; a quarter of it runs on one worker |
//! | score | 26 | 9.8 | random reads of the n-gram table |
//! | emit | 53 | 20 | zstd at level 3 |
//! | rejects | 140 | 53 | zstd at level 3 |
//! | dedupes, order, packing, ledger | above 4,000 | | |
//! | whole without fit | 13 | 4.9 | |
//!
//! So 1 TB takes 21 core hours and 10 TB 210; the fit is bounded by `fit_tokens`, at most 2 minutes of
//! a core for 100 million tokens of corpus and as many of reference. Inputs are read twice, once for
//! their checksums, which finished tasks are found by: at 10 TB in 3 TB of zstd another 25 minutes of
//! a disk of 2 GB/s.

mod arrange;
mod auxiliary;
mod calibrate;
mod contamination;
mod corpus;
mod decide;
mod disk;
mod domains;
mod duplicates;
mod edit;
mod emit;
mod error;
mod explain;
mod finish;
mod index;
mod inputs;
mod log;
mod memory;
mod near;
mod options;
mod prepare;
mod progress;
mod releases;
mod run;
mod scores;
mod segments;
mod spans;
mod stop;
mod teach;
mod threshold;
mod validation;
mod verify;
mod work;

pub use auxiliary::{Auxiliary, AuxiliaryFile};
pub use calibrate::{CalibrateOptions, calibrate};
pub use disk::{DiskNeed, against_bytes, free_bytes, shingle_bytes_a_byte, size};
pub use duplicates::duplicates;
pub use error::EngineError;
pub use explain::{Explainer, whole_documents};
pub use inputs::{Inputs, default_task_bytes};
pub use memory::{MemoryNeed, anonymous_bytes};
pub use progress::{Flow, Progress, Silent, Unit};
pub use releases::{IndexFile, Release, Releases, writes_index};
pub use run::{Outcome, PhaseTime, Prepared, RunOptions, RunRecord, fit, prepare, run};
pub use stop::{Item, Stop, core_seconds};
pub use teach::{Judge, Taught};
pub use threshold::threshold;
pub use verify::{Check, CheckState, VerifyOptions, plan_of, verify};
