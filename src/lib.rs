//! `goodput` selects, scores and orders language-model training data, and keeps a ledger of tokens
//! that closes.
//!
//! **What enters:** a pipeline file (YAML) that names inputs (JSONL, Parquet, Arrow IPC, plain text),
//! a tokenizer, stages, an order and a packing method. **What leaves:** an output folder of Parquet
//! shards in curriculum order with a usefulness per token, everything that was turned away with its
//! reason, the evidence of every duplicate, a ledger and a manifest.
//!
//! # The way of the data
//!
//! A run is a chain of phases ([`engine`] says what each costs):
//!
//! - *prepare*: bytes become documents, per-document stages give their verdicts, text becomes token
//!   ids, sketches for the dedupes are made. Every document is tokenized, also a rejected one.
//! - *decide*: the stages that see all documents, one after another in the order of the pipeline file,
//!   each over the survivors of those before. `score` fits its models here and scores every token.
//!   After a stage that cut texts the documents are prepared again, so that what follows sees what is left.
//! - *arrange*: order and packing, from ids, scores and token counts alone.
//! - *emit*: the shards, the rejects, the evidence, the ledger, and the manifest last.
//!
//! # The rooms, in reading order
//!
//! - [`record`]: what travels: documents, counts, reasons, options as tables.
//! - [`algo`]: pure algorithms: hashing, words, MinHash, Kneser-Ney, quantiles, pacing, Kendall's tau.
//! - [`spill`]: sorting beyond memory, and files as slices. [`contained`]: decoders of others, whose
//!   panics on damaged files become errors.
//! - [`source`]: bytes to documents, one file per format. [`tokenizer`]: text to ids.
//! - [`stages`]: per-document stages. [`dedupe`]: exact and near duplicates, repeated paragraphs and lines. [`score`]: estimators.
//!   [`order`]: strategies. [`pack`]: documents to rows. Each has a table; a new entry is one file and
//!   one line in it.
//! - [`shard`]: the files that leave. [`audit`]: the ledger. [`page`]: parts of HTML pages.
//! - [`logs`]: training logs to events, one file per format. [`measure`]: goodput from them: time, rate, cost.
//! - [`plan`]: the pipeline file and the measure file, checked whole before any data are read.
//! - [`engine`]: phases, workers, memory, resuming, `verify`.
//! - [`cli`]: a file for each command. [`terminal`]: the only room that prints; progress, the log of a run, metrics.
//!
//! # What holds throughout
//!
//! - Every token that is read is kept or turned away once, for a named reason; a run whose sums do not
//!   close fails.
//! - The same pipeline, inputs and seed give the same bytes (but for `run.json` and `run.log`), for any
//!   number of threads, any memory, any cut of the work, after any interruption. Every random choice
//!   is a keyed hash of (seed, purpose, id); across documents only integers are summed.
//! - `record` and `algo` do no I/O, read no clock, start no thread. Only `terminal` prints. Only one
//!   file, the memory maps of `spill`, has unsafe code.
//! - Candidates are only candidates: the full shingle sets decide before a document goes.
//! - Files are written under a temporary name and renamed, the manifest last.

pub mod algo;
pub mod audit;
pub mod cli;
pub mod contained;
pub mod dedupe;
pub mod engine;
pub mod logs;
pub mod measure;
pub mod order;
pub mod pack;
pub mod page;
pub mod plan;
pub mod record;
pub mod score;
pub mod shard;
pub mod source;
pub mod spill;
pub mod stages;
pub mod terminal;
pub mod tokenizer;
