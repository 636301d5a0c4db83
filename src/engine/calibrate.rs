//! Calibrates usefulness: joins a finished folder with the losses of a pilot run.
//!
//! Memory holds sums over 256 bytes of usefulness and one batch of rows. Differences of losses and their
//! index by document (8 words) are mapped files beside the output.

use super::verify::scratch_folder;
use super::{EngineError, Stop};
use crate::algo::hash;
use crate::algo::isotonic::{POINTS, fill_gaps, isotonic};
use crate::algo::quantise::{byte_of, value_of};
use crate::record::Kind;
use crate::score;
use crate::shard::{
    Calibration, CalibrationHalf, EstimatorEntry, LossesRead, Manifest, ReadLosses, ReadRejects,
    ReadShard, ReliabilityRow, file_checksum,
};
use crate::spill::{Column, IoContext, ScratchColumn, Spill};
use serde_json::Value;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// What to calibrate with.
#[derive(Clone, Debug)]
pub struct CalibrateOptions {
    /// Parquet with `doc_id`, `loss_early`, `loss_late`.
    pub losses: PathBuf,
    /// Name of the pilot run.
    pub pilot: String,
    /// Anonymous memory that sorting may use.
    pub memory_bytes: u64,
}

/// Sums of losses are counted in 2^-32 nat.
const UNITS: f64 = (1u64 << 32) as f64;
/// No loss of a token is as large; beyond it the file holds something else.
const LARGEST_NATS: f32 = 1e6;
/// Rows of the reliability table.
const RELIABILITY_ROWS: u64 = 10;

/// One document of the losses.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Entry {
    id: [u64; 2],
    /// Hash that draws its half.
    id_hash: u64,
    /// First difference in the file of differences.
    start: u64,
    tokens: u64,
    /// Tokens found in the folder.
    found: u64,
    row: u64,
    unused: u64,
}

/// Sums by byte of usefulness.
#[derive(Clone)]
struct Half {
    tokens: [u64; POINTS],
    /// Sum of early minus late, in 2^-32 nat.
    sums: [i128; POINTS],
    documents: u64,
}

fn id_of(id: &str) -> [u64; 2] {
    let hash = hash::content(id.as_bytes());
    [(hash >> 64) as u64, hash as u64]
}

/// Fits on half of the documents, drawn by a keyed hash of the id, and checks on the other half.
///
/// # Errors
/// When the folder has no usefulness, or the losses do not fit to it: another length than the document,
/// an id that the folder does not have or that stands twice, a value that is not finite.
pub fn calibrate(
    out: &Path,
    manifest: &Manifest,
    options: &CalibrateOptions,
    stop: &Stop,
) -> Result<Calibration, EngineError> {
    let Some(estimator) = &manifest.estimator else {
        return Err(EngineError::Request(format!(
            "{}: its pipeline has no 'score' stage, so there is no usefulness to calibrate",
            out.display()
        )));
    };
    let earlier = estimator.fitted["calibration"].as_str().unwrap_or("");
    if estimator.name == score::RANDOM {
        return Err(EngineError::Request(format!(
            "{}: it was scored by 'random', the control, whose numbers say nothing of a token; calibrate a folder of \
             another estimator",
            out.display()
        )));
    }
    if estimator.fitted["documents"] == 0 {
        return Err(EngineError::Request(format!(
            "{}: no document reached its 'score' stage, so there is no usefulness to calibrate",
            out.display()
        )));
    }
    if !earlier.starts_with("uncalibrated") {
        return Err(EngineError::Request(format!(
            "{}: its usefulness is calibrated already ({earlier}); calibrate a folder of the same pipeline without \
             'calibration'",
            out.display()
        )));
    }
    let scratch = scratch_folder(out)?;
    let halves = join(out, manifest, options, &scratch, stop);
    std::fs::remove_dir_all(&scratch).context("remove", &scratch)?;
    let [fit, check] = halves?;
    for (half, what) in [(&fit, "fitting"), (&check, "checking")] {
        if half.documents == 0 {
            return Err(EngineError::Request(format!(
                "{}: no document fell into the half for {what}; losses of more documents are needed",
                options.losses.display()
            )));
        }
    }
    let means: Vec<Option<(u64, f64)>> = (0..POINTS).map(|byte| fit.mean(byte)).collect();
    let known: Vec<(u64, f64)> = means.iter().copied().flatten().collect();
    let mut fitted = isotonic(&known).into_iter();
    let at_bytes: Vec<Option<f64>> = means
        .iter()
        .map(|mean| mean.and_then(|_| fitted.next()))
        .collect();
    let predicted = fill_gaps(&at_bytes).ok_or_else(|| {
        EngineError::Request(format!("{}: holds no token", options.losses.display()))
    })?;
    let scale_nats = predicted[POINTS - 1];
    if scale_nats <= 0.0 {
        return Err(EngineError::Request(format!(
            "{}: the loss falls at no usefulness (at best by {scale_nats} nats), so nothing was learned that could \
             calibrate it; are 'loss_early' and 'loss_late' exchanged?",
            options.losses.display()
        )));
    }
    let (reliability, error) = check.reliability(&predicted);
    Ok(Calibration {
        version: 1,
        pilot: options.pilot.clone(),
        estimator: estimator.name.clone(),
        estimator_version: estimator.version,
        estimator_parameter_hash: estimator.fitted["parameter_hash"]
            .as_str()
            .unwrap_or("")
            .to_string(),
        estimator_parameters: parameters(estimator),
        tokenizer_fingerprint: manifest.tokenizer.fingerprint.clone(),
        dataset: manifest.checksum.clone(),
        seed: manifest.seed,
        losses_checksum: file_checksum(&options.losses)?.1,
        scale_nats,
        usefulness: predicted
            .iter()
            .map(|nats| (nats / scale_nats).clamp(0.0, 1.0) as f32)
            .collect(),
        fitted: fit.described(),
        checked: check.described(),
        expected_calibration_error_nats: error,
        reliability,
    })
}

/// The options of an estimator that its description repeats under their names. Paths may differ, and
/// what they name is part of the hash.
fn parameters(estimator: &EstimatorEntry) -> serde_json::Map<String, Value> {
    let mut kinds = score::TABLE.iter();
    let options = kinds.find(|kind| kind.spec.name == estimator.name);
    let options = options.map_or(&[][..], |kind| kind.spec.options);
    let named = options
        .iter()
        .filter(|option| !matches!(option.kind, Kind::Path | Kind::Globs));
    named
        .filter_map(|option| {
            let value = estimator.fitted.get(option.name)?;
            Some((option.name.to_string(), value.clone()))
        })
        .collect()
}

fn join(
    out: &Path,
    manifest: &Manifest,
    options: &CalibrateOptions,
    scratch: &Path,
    stop: &Stop,
) -> Result<[Half; 2], EngineError> {
    let (mut entries, differences) = read_losses(manifest, options, scratch, stop)?;
    let differences = differences.values();
    let empty = Half {
        tokens: [0; POINTS],
        sums: [0; POINTS],
        documents: 0,
    };
    let mut halves = [empty.clone(), empty];
    let key = hash::purpose_key(manifest.seed, "calibration half");
    let mut failed = Ok(());
    let mut add = |doc_id: &str, first: usize, usefulness: &[f32]| -> Result<(), EngineError> {
        let id = id_of(doc_id);
        let entries = entries.values_mut();
        let Ok(at) = entries.binary_search_by(|entry| entry.id.cmp(&id)) else {
            return Ok(());
        };
        let entry = &mut entries[at];
        if (first + usefulness.len()) as u64 > entry.tokens {
            return Err(EngineError::Request(format!(
                "{}: row {} ('{doc_id}') has {} losses, its document has {} tokens or more; losses have one value for \
                 each token of the document's text, none for special tokens",
                options.losses.display(),
                entry.row,
                entry.tokens,
                first + usefulness.len()
            )));
        }
        entry.found += usefulness.len() as u64;
        let half = &mut halves[half_of(key, entry.id_hash)];
        let start = entry.start as usize + first;
        for (&u, &difference) in usefulness.iter().zip(&differences[start..]) {
            let byte = usize::from(byte_of(u));
            half.tokens[byte] += 1;
            half.sums[byte] += (f64::from(difference) * UNITS).round() as i128;
        }
        Ok(())
    };
    for file in &manifest.files {
        stop.check()?;
        if file.path.starts_with("shards/") {
            ReadShard::open(&out.join(&file.path))?.rows(&mut |row| {
                for (segment, place) in row.stretches() {
                    let Some(usefulness) = row.usefulness.as_ref().and_then(|all| all.get(place))
                    else {
                        failed = Err(EngineError::Failed(format!(
                            "{}: row {} has a segment without usefulness; 'goodput verify' says what is damaged",
                            file.path, row.position
                        )));
                        return false;
                    };
                    if segment.copy == 0 && failed.is_ok() {
                        failed = add(segment.doc_id, segment.doc_token_start as usize, usefulness);
                    }
                }
                failed.is_ok()
            })?;
        } else if file.path.starts_with("rejects/") {
            ReadRejects::open(&out.join(&file.path))?.rows(&mut |row| {
                if let Some(usefulness) = &row.usefulness {
                    failed = add(row.doc_id, 0, usefulness);
                }
                failed.is_ok()
            })?;
        }
        std::mem::replace(&mut failed, Ok(()))?;
    }
    let wrong = |entry: &&Entry| entry.found != entry.tokens || entry.tokens == 0;
    let entries = entries.values();
    if let Some(entry) = entries.iter().filter(wrong).min_by_key(|entry| entry.row) {
        let id = ReadLosses::id_of_row(&options.losses, entry.row)?;
        let place = format!("{}: row {} ('{id}')", options.losses.display(), entry.row);
        let n = entries.iter().filter(wrong).count();
        return Err(EngineError::Request(
            if entry.found == 0 && entry.tokens > 0 {
                format!(
                    "{place} is no document that {} has usefulness of; {n} rows do not fit; losses are joined by 'doc_id'",
                    out.display()
                )
            } else {
                format!(
                    "{place} has {} losses, its document has {} tokens; {n} rows do not fit; losses have one value for each \
                 token of the document's text, none for special tokens",
                    entry.tokens, entry.found
                )
            },
        ));
    }
    for entry in entries {
        halves[half_of(key, entry.id_hash)].documents += 1;
    }
    Ok(halves)
}

/// 0 to fit on, 1 to check on.
fn half_of(key: u64, id_hash: u64) -> usize {
    (hash::keyed_by(key, id_hash) >> 63) as usize
}

/// The losses by id, and their differences one document after another.
fn read_losses(
    manifest: &Manifest,
    options: &CalibrateOptions,
    scratch: &Path,
    stop: &Stop,
) -> Result<(ScratchColumn<Entry>, Column<f32>), EngineError> {
    let losses = &options.losses;
    let mut file = ReadLosses::open(losses)?;
    if let Some(found) = file.metadata.get("goodput.tokenizer_fingerprint")
        && *found != manifest.tokenizer.fingerprint
    {
        return Err(EngineError::Request(format!(
            "{}: its losses are of the tokenizer {found}, the folder was made with {}",
            losses.display(),
            manifest.tokenizer.fingerprint
        )));
    }
    let path = scratch.join("differences");
    let mut writer = BufWriter::new(File::create(&path).context("create", &path)?);
    let spill = Spill::new(scratch, options.memory_bytes as usize);
    let mut sorter = spill.sorter("losses", |a: &Entry, b: &Entry| {
        (a.id, a.row).cmp(&(b.id, b.row))
    });
    let (mut start, mut documents) = (0u64, 0u64);
    let mut failed = Ok(());
    let mut take = |row: &LossesRead<'_>| -> Result<(), EngineError> {
        stop.check()?;
        let place = || format!("{}: row {} ('{}')", losses.display(), row.row, row.doc_id);
        if row.early.len() != row.late.len() {
            return Err(EngineError::Request(format!(
                "{}: 'loss_early' has {} values and 'loss_late' {}; both need one for each token",
                place(),
                row.early.len(),
                row.late.len()
            )));
        }
        for (name, values) in [("loss_early", row.early), ("loss_late", row.late)] {
            let right = |value: &f32| (0.0..=LARGEST_NATS).contains(value);
            if let Some(token) = values.iter().position(|value| !right(value)) {
                return Err(EngineError::Request(format!(
                    "{}: '{name}' of token {token} is {}, not a loss in nats, which is -ln of a probability: 0 or more, \
                     and finite",
                    place(),
                    values[token]
                )));
            }
        }
        for (early, late) in row.early.iter().zip(row.late) {
            writer
                .write_all(&(early - late).to_ne_bytes())
                .context("write", &path)?;
        }
        sorter.push(Entry {
            id: id_of(row.doc_id),
            id_hash: hash::id_hash(row.doc_id),
            start,
            tokens: row.early.len() as u64,
            found: 0,
            row: row.row,
            unused: 0,
        })?;
        start += row.early.len() as u64;
        documents += 1;
        Ok(())
    };
    file.rows(&mut |row| {
        failed = take(&row);
        failed.is_ok()
    })?;
    failed?;
    if start == 0 {
        return Err(EngineError::Request(format!(
            "{}: has {documents} rows and no loss in them; it needs a row for each document of the pilot run, with \
             'loss_early' and 'loss_late'",
            losses.display()
        )));
    }
    writer.flush().context("write", &path)?;
    drop(writer);
    let mut entries = ScratchColumn::create(&scratch.join("entries"), documents)?;
    let mut last: Option<Entry> = None;
    for (slot, entry) in entries.values_mut().iter_mut().zip(sorter.finish()?) {
        *slot = entry?;
        if let Some(earlier) = last.filter(|earlier: &Entry| earlier.id == slot.id) {
            let id = ReadLosses::id_of_row(losses, slot.row)?;
            return Err(EngineError::Request(format!(
                "{}: '{id}' stands in rows {} and {}; each document needs one row",
                losses.display(),
                earlier.row,
                slot.row
            )));
        }
        last = Some(*slot);
    }
    Ok((entries, Column::open(&path)?))
}

impl Half {
    /// Tokens of a byte and their mean fall of the loss, in nats.
    fn mean(&self, byte: usize) -> Option<(u64, f64)> {
        let tokens = self.tokens[byte];
        (tokens > 0).then(|| (tokens, self.sums[byte] as f64 / UNITS / tokens as f64))
    }

    fn described(&self) -> CalibrationHalf {
        let tokens: u64 = self.tokens.iter().sum();
        let sum: i128 = self.sums.iter().sum();
        CalibrationHalf {
            documents: self.documents,
            tokens,
            mean_learnability_nats: if tokens == 0 {
                0.0
            } else {
                sum as f64 / UNITS / tokens as f64
            },
        }
    }

    /// Prediction against measurement by usefulness, and the mean absolute difference.
    fn reliability(&self, predicted: &[f64]) -> (Vec<ReliabilityRow>, f64) {
        let all: u64 = self.tokens.iter().sum();
        let (mut rows, mut error, mut done) = (Vec::new(), 0.0, 0);
        let (mut seen, mut first, mut tokens, mut promised, mut sum) =
            (0u64, None, 0u64, 0.0, 0i128);
        for (byte, &here) in self.tokens.iter().enumerate() {
            if here == 0 {
                continue;
            }
            first.get_or_insert(byte);
            tokens += here;
            seen += here;
            promised += here as f64 * predicted[byte];
            sum += self.sums[byte];
            // A byte is never cut, so a row may hold more than its share.
            let due = seen * RELIABILITY_ROWS / all;
            if due > done {
                done = due;
                let row = ReliabilityRow {
                    usefulness_from: f64::from(value_of(first.unwrap_or(byte) as u8)),
                    usefulness_to: f64::from(value_of(byte as u8)),
                    tokens,
                    predicted_nats: promised / tokens as f64,
                    measured_nats: sum as f64 / UNITS / tokens as f64,
                };
                let share = tokens as f64 / all as f64;
                error += share * (row.predicted_nats - row.measured_nats).abs();
                rows.push(row);
                (first, tokens, promised, sum) = (None, 0, 0.0, 0);
            }
        }
        (rows, error)
    }
}
