//! Fitted n-gram models as a file: written once, then mapped.
//!
//! ```text
//! bytes 0..64   magic, version, length of the header, length of the file, XXH3-128 of all that follows
//! from 64       the header as JSON, then zeros up to a multiple of 64
//! then          rows of single tokens; the table of each length from 2, each at a multiple of 64
//! ```
//!
//! All numbers are little-endian. The file is checked whole before it is used: a damaged one gives
//! an error, never a score.

use super::FitError;
use crate::algo::kneser_ney::Packing;
use crate::algo::ngram_model::NgramModels;
use crate::algo::ngram_table::Storage;
use crate::spill::{Column, IoContext};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_128};

/// What a model file begins with.
pub const MAGIC: &[u8; 16] = b"goodput n-grams\n";
/// Raised when the bytes mean something else.
const VERSION: u32 = 1;
const PREFIX_BYTES: usize = 64;
/// Models of one file: those of p and of q by fold, of at most 16 folds each.
const MAX_MODELS: usize = 32;

/// Where models come from. Those of another tokenizer, seed or way to draw folds would score
/// documents that they were fitted on, so they are refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelOrigin {
    /// Fingerprint of the tokenizer whose ids the models know.
    pub tokenizer_fingerprint: String,
    /// The seed that drew folds.
    pub seed: u64,
    /// Whether folds were drawn by near-duplicate component, else by content.
    pub folds_by_component: bool,
    /// Hash of the calibration through which the mean usefulness of the reference was led.
    pub calibration: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header<D> {
    tool: String,
    estimator: String,
    estimator_version: u32,
    origin: ModelOrigin,
    vocabulary_size: u32,
    order: u32,
    models: usize,
    details: D,
    tables: Vec<TablePlace>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TablePlace {
    buckets: Vec<u32>,
    bytes: u64,
}

/// Models and what an estimator needs beside them.
pub(super) struct ModelFile<D> {
    pub(super) origin: ModelOrigin,
    pub(super) details: D,
    pub(super) models: NgramModels,
}

struct Mapped(Column<u8>);

impl Storage for Mapped {
    fn bytes(&self) -> &[u8] {
        self.0.values()
    }
}

fn padded(bytes: u64) -> u64 {
    bytes.next_multiple_of(64)
}

/// Writes all of the file and its checksum.
struct Body {
    file: BufWriter<File>,
    hash: Xxh3Default,
    bytes: u64,
}

impl Body {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes)
    }

    /// Bytes, then zeros up to a multiple of 64.
    fn write_padded(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.write(bytes)?;
        let zeros = padded(self.bytes) - self.bytes;
        self.write(&[0; 64][..zeros as usize])
    }
}

/// Writes models to `path`, replacing what is there only when the file is whole.
pub(super) fn write<D: Serialize>(
    path: &Path,
    estimator: (&str, u32),
    origin: &ModelOrigin,
    details: &D,
    models: &NgramModels,
) -> std::io::Result<()> {
    let lengths = 2..=models.packing().order;
    let header = Header {
        tool: format!("goodput {}", env!("CARGO_PKG_VERSION")),
        estimator: estimator.0.to_string(),
        estimator_version: estimator.1,
        origin: origin.clone(),
        vocabulary_size: models.packing().vocabulary_size,
        order: models.packing().order,
        models: models.models(),
        details,
        tables: lengths
            .clone()
            .map(|length| TablePlace {
                buckets: models.table(length).buckets(),
                bytes: models.table(length).bytes(),
            })
            .collect(),
    };
    let header = serde_json::to_vec(&header).map_err(std::io::Error::other)?;
    let temporary = path.with_extension("tmp");
    let file = File::create(&temporary).context("write", &temporary)?;
    let mut body = Body {
        file: BufWriter::with_capacity(1 << 20, file),
        hash: Xxh3Default::new(),
        bytes: 0,
    };
    let all = |body: &mut Body| -> std::io::Result<()> {
        body.file.write_all(&[0; PREFIX_BYTES])?;
        body.write_padded(&header)?;
        body.write_padded(bytemuck::cast_slice(models.first()))?;
        for length in lengths {
            body.write_padded(models.table(length).as_bytes())?;
        }
        let mut prefix = Vec::with_capacity(PREFIX_BYTES);
        prefix.extend_from_slice(MAGIC);
        prefix.extend_from_slice(&VERSION.to_le_bytes());
        prefix.extend_from_slice(&[0; 4]);
        prefix.extend_from_slice(&(header.len() as u64).to_le_bytes());
        prefix.extend_from_slice(&(PREFIX_BYTES as u64 + body.bytes).to_le_bytes());
        prefix.extend_from_slice(&body.hash.digest128().to_le_bytes());
        body.file.seek(SeekFrom::Start(0))?;
        body.file.write_all(&prefix)?;
        body.file.flush()
    };
    all(&mut body).context("write", &temporary)?;
    drop(body);
    std::fs::rename(&temporary, path).context("write", path)
}

/// Maps the models of a file that [`write()`] wrote for the same estimator.
///
/// # Errors
/// When it cannot be read, is damaged or cut off, or of another kind, version or estimator.
pub(super) fn open<D: for<'d> Deserialize<'d>>(
    path: &Path,
    estimator: (&str, u32),
) -> Result<ModelFile<D>, FitError> {
    let refuse = |what: String| FitError::Data(format!("{}: {what}", path.display()));
    let damaged = |what: &str| {
        refuse(format!(
            "the model is damaged ({what}); make it anew with 'goodput fit'"
        ))
    };
    let map = Column::<u8>::open(path)?;
    map.read_at_random();
    let bytes = map.values();
    if bytes.len() < PREFIX_BYTES || &bytes[..16] != MAGIC {
        return Err(refuse(
            "is no model file of goodput; one is made with 'goodput fit PIPELINE.yaml --output FILE'"
                .to_string(),
        ));
    }
    let number = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    };
    let version = number(16);
    if version != u64::from(VERSION) {
        return Err(refuse(format!(
            "is a model file of version {version}, and this program reads version {VERSION}; make it anew with 'goodput fit'"
        )));
    }
    let (header_bytes, file_bytes) = (number(24), number(32));
    if file_bytes != bytes.len() as u64 {
        return Err(damaged(&format!("{} bytes, not {file_bytes}", bytes.len())));
    }
    if xxh3_128(&bytes[PREFIX_BYTES..]).to_le_bytes() != bytes[40..56] {
        return Err(damaged("its checksum is another one"));
    }
    let start = PREFIX_BYTES as u64;
    let header = usize::try_from(header_bytes)
        .ok()
        .and_then(|length| bytes.get(PREFIX_BYTES..PREFIX_BYTES.checked_add(length)?))
        .ok_or_else(|| damaged("its header is longer than the file"))?;
    let kind: serde_json::Value =
        serde_json::from_slice(header).map_err(|error| damaged(&error.to_string()))?;
    let found = (
        kind["estimator"].as_str().unwrap_or(""),
        kind["estimator_version"].as_u64().unwrap_or(0),
    );
    if found != (estimator.0, u64::from(estimator.1)) {
        return Err(refuse(format!(
            "is a model of {} version {}, and {} version {} is asked for; make it anew with 'goodput fit'",
            found.0, found.1, estimator.0, estimator.1
        )));
    }
    let header: Header<D> =
        serde_json::from_slice(header).map_err(|error| damaged(&error.to_string()))?;
    if !(2..=5).contains(&header.order)
        || !(1..=MAX_MODELS).contains(&header.models)
        || !(1..=u32::MAX - 3).contains(&header.vocabulary_size)
    {
        return Err(damaged(&format!(
            "{} models of order {} over {} ids",
            header.models, header.order, header.vocabulary_size
        )));
    }
    let mut at = start + padded(header_bytes);
    let mut next = |length: u64| {
        let range = at as usize..at.saturating_add(length) as usize;
        // What is longer than the file is found out of it.
        at = at.saturating_add(padded(length.min(file_bytes)));
        range
    };
    let packing = Packing::new(header.vocabulary_size, header.order, 2);
    let first_bytes = (u64::from(header.vocabulary_size) + 1) * 4 * header.models as u64;
    let first = bytes
        .get(next(first_bytes))
        .map(|found| bytemuck::cast_slice(found).to_vec())
        .ok_or_else(|| damaged("its single tokens are cut off"))?;
    let tables: Vec<_> = header
        .tables
        .iter()
        .map(|table| (table.buckets.clone(), next(table.bytes)))
        .collect();
    let storage: Arc<dyn Storage> = Arc::new(Mapped(map));
    let models = NgramModels::stored(packing, header.models, first, &tables, &storage)
        .map_err(|what| damaged(&what))?;
    Ok(ModelFile {
        origin: header.origin,
        details: header.details,
        models,
    })
}
