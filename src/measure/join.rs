//! Steps joined with the curriculum: which rows a step read, and so which documents.
//!
//! Step k (the first is 1, or 0 where the log counts from 0) reads the k-th batch of rows in the order of the
//! manifest: `tokens_per_step / row length` rows. That is what a trainer does that reads the shards in order; whether
//! this one did, [`super::reading`] finds where the log tells. Only packed rows can be joined: all are of one length.

use super::attempts::Trace;
use super::reading::{Checksums, Due, OrderReport, compare, ids_crc32};
use super::{Dataset, Refusal};
use crate::shard::{PartError, ReadShard, RowRead};
use serde::Serialize;
use std::collections::BTreeMap;

/// Parts that the steps of a run are shown in.
const PARTS: i64 = 10;
/// Step lines before a loss that it is compared with; with fewer than half of them nothing is said.
const LINES_BEFORE: usize = 20;
/// Least rise above the usual loss, in nats a token, that is a spike.
const LEAST_RISE_NATS: f64 = 0.25;
/// A spike rises by more than so many standard deviations of the lines before it.
const DEVIATIONS: f64 = 6.0;
/// Spikes that are shown: those that rise most.
const SPIKES_SHOWN: usize = 5;
/// Documents that a spike names: those with most tokens.
const DOCUMENTS_SHOWN: usize = 10;

/// What a run read of its dataset, if it read the rows in order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JoinReport {
    /// Rows that a step reads.
    pub rows_per_step: u64,
    /// Token places of the steps that were done again: read twice.
    pub positions_read_again: u64,
    /// Whether the rows were read in this order; `null` where no step line tells.
    pub reading_order: Option<OrderReport>,
    /// The steps of the run in ten parts.
    pub parts: Vec<PartReport>,
    /// Step lines whose loss rises far above those before, those that rise most first.
    pub loss_spikes: Vec<SpikeReport>,
}

/// A part of the steps, each counted once.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PartReport {
    /// First step.
    pub first_step: i64,
    /// Last step.
    pub last_step: i64,
    /// Token places.
    pub positions: u64,
    /// Of these tokens of documents.
    pub tokens: u64,
    /// Of these begin and end tokens.
    pub special_tokens: u64,
    /// Of these padding.
    pub padding: u64,
    /// Tokens of second and later copies of a document, or read in a second epoch.
    pub repeated_tokens: u64,
    /// Mean usefulness of the tokens; `null` without a `score` stage.
    pub mean_usefulness: Option<f64>,
    /// Tokens by source.
    pub tokens_by_source: BTreeMap<String, u64>,
}

/// A loss that rises.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SpikeReport {
    /// Where it stands: `file:line`.
    pub line: String,
    /// First step that the line is about.
    pub first_step: i64,
    /// Last step that the line is about.
    pub last_step: i64,
    /// The loss, in nats a token.
    pub loss_nats: f64,
    /// Median of the lines before it, in nats a token.
    pub usual_loss_nats: f64,
    /// Documents that these steps read.
    pub documents: u64,
    /// Those with most tokens in these steps.
    pub largest_documents: Vec<DocumentReport>,
}

/// A document that steps read.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DocumentReport {
    /// Its id.
    pub doc_id: String,
    /// Its source.
    pub source: String,
    /// Its tokens in these steps.
    pub tokens: u64,
}

/// A loss that rises, before its documents are known.
struct Spike {
    report: SpikeReport,
    documents: BTreeMap<(String, String), u64>,
}

/// Joins the steps of a run with its dataset.
///
/// # Errors
/// When a shard cannot be read.
pub(super) fn join(
    trace: &Trace,
    names: &[String],
    dataset: &Dataset,
    row_positions: u64,
    tokens_per_step: u64,
    replayed_steps: i64,
) -> Result<Option<JoinReport>, Refusal> {
    let rows_per_step = tokens_per_step / row_positions;
    let rows = trace.attempts.iter().flat_map(|attempt| &attempt.rows);
    let (Some(after), Some(last)) = (
        rows.clone().map(|row| row.after).min(),
        rows.map(|row| row.step).max(),
    ) else {
        return Ok(None);
    };
    if rows_per_step == 0 || dataset.rows == 0 {
        return Ok(None);
    }
    // The step before the first of the whole training, not of this log.
    let base = after.min(0);
    let per_part = (last - after + PARTS - 1) / PARTS;
    let mut parts: Vec<PartReport> = (0..PARTS)
        .map(|at| PartReport {
            first_step: after + at * per_part + 1,
            last_step: (after + (at + 1) * per_part).min(last),
            ..PartReport::default()
        })
        .filter(|part| part.first_step <= part.last_step)
        .collect();
    let mut useful = vec![(0.0, 0u64); parts.len()];
    let mut spikes = spikes(trace, names);
    let end_row = (last - base) as u64 * rows_per_step;
    let mut checksums = Checksums::new(trace, last - base);
    // The error names the shard.
    let refuse = |error: PartError| Refusal {
        file: dataset.path.display().to_string(),
        line: 0,
        message: error.to_string(),
    };
    for path in &dataset.shards {
        let mut shard = ReadShard::open(path).map_err(refuse)?;
        let mut read = |row: RowRead<'_>| {
            // A run of several epochs reads a row several times.
            let mut place = row.position;
            let mut any = false;
            let checksum = checksums.are_wanted().then(|| ids_crc32(row.input_ids));
            while place < end_row {
                any = true;
                let step = base + 1 + (place / rows_per_step) as i64;
                if let Some(checksum) = checksum {
                    checksums.add((place / rows_per_step) as usize, checksum);
                }
                if step > after {
                    let at = ((step - after - 1) / per_part) as usize;
                    count(&row, place >= dataset.rows, &mut parts[at], &mut useful[at]);
                    for spike in &mut spikes {
                        if (spike.report.first_step..=spike.report.last_step).contains(&step) {
                            for (segment, stretch) in row.stretches() {
                                let key = (segment.doc_id.to_string(), segment.source.to_string());
                                *spike.documents.entry(key).or_default() += stretch.len() as u64;
                            }
                        }
                    }
                }
                place += dataset.rows;
            }
            any
        };
        shard.rows(&mut read).map_err(refuse)?;
    }
    for (part, (sum, tokens)) in parts.iter_mut().zip(useful) {
        part.mean_usefulness = (tokens > 0).then(|| sum / tokens as f64);
    }
    let due = Due {
        base,
        rows_per_step,
        rows: dataset.rows,
    };
    Ok(Some(JoinReport {
        rows_per_step,
        reading_order: compare(trace, names, &due, checksums),
        positions_read_again: replayed_steps.max(0) as u64 * tokens_per_step,
        parts,
        loss_spikes: spikes.into_iter().map(Spike::finish).collect(),
    }))
}

/// Counts a row into its part.
fn count(row: &RowRead<'_>, again: bool, part: &mut PartReport, useful: &mut (f64, u64)) {
    part.positions += row.input_ids.len() as u64;
    part.special_tokens += u64::from(row.special_tokens);
    part.padding += u64::from(row.padding);
    for (segment, stretch) in row.stretches() {
        let tokens = stretch.len() as u64;
        part.tokens += tokens;
        if again || segment.copy > 0 {
            part.repeated_tokens += tokens;
        }
        match part.tokens_by_source.get_mut(segment.source) {
            Some(sum) => *sum += tokens,
            None => {
                part.tokens_by_source
                    .insert(segment.source.to_string(), tokens);
            }
        }
        if let Some(values) = row
            .usefulness
            .as_ref()
            .and_then(|values| values.get(stretch))
        {
            useful.0 += values.iter().map(|&u| f64::from(u)).sum::<f64>();
            useful.1 += tokens;
        }
    }
}

/// Step lines whose loss rises far above the median of those before it, of the same attempt.
fn spikes(trace: &Trace, names: &[String]) -> Vec<Spike> {
    let mut found = Vec::new();
    for attempt in &trace.attempts {
        let mut before: Vec<f64> = Vec::new();
        for row in &attempt.rows {
            let Some(loss) = row.loss.filter(|loss| loss.is_finite()) else {
                continue;
            };
            let recent = &before[before.len().saturating_sub(LINES_BEFORE)..];
            if recent.len() >= LINES_BEFORE / 2 {
                let (usual, deviation) = middle_and_deviation(recent.to_vec());
                if loss - usual > LEAST_RISE_NATS.max(DEVIATIONS * deviation) {
                    let report = SpikeReport {
                        line: format!("{}:{}", names[row.file], row.line),
                        first_step: row.after + 1,
                        last_step: row.step,
                        loss_nats: loss,
                        usual_loss_nats: usual,
                        documents: 0,
                        largest_documents: Vec::new(),
                    };
                    found.push(Spike {
                        report,
                        documents: BTreeMap::new(),
                    });
                }
            }
            before.push(loss);
        }
    }
    let rise = |spike: &Spike| spike.report.loss_nats - spike.report.usual_loss_nats;
    found.sort_by(|a, b| {
        rise(b)
            .total_cmp(&rise(a))
            .then(a.report.first_step.cmp(&b.report.first_step))
    });
    found.truncate(SPIKES_SHOWN);
    found
}

/// Median, and standard deviation by the distance of the quartiles, as a normal distribution has it. Unlike the median
/// of distances from the median, that is not 0 where a loss goes up and down by turns.
fn middle_and_deviation(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let last = values.len() - 1;
    let quarter = |quarters: usize| values[last * quarters / 4];
    (quarter(2), (quarter(3) - quarter(1)) / 1.349)
}

impl Spike {
    fn finish(self) -> SpikeReport {
        let mut documents: Vec<DocumentReport> = self
            .documents
            .into_iter()
            .map(|((doc_id, source), tokens)| DocumentReport {
                doc_id,
                source,
                tokens,
            })
            .collect();
        let count = documents.len() as u64;
        // Ids break ties: the map was sorted by them.
        documents.sort_by_key(|document| std::cmp::Reverse(document.tokens));
        documents.truncate(DOCUMENTS_SHOWN);
        SpikeReport {
            documents: count,
            largest_documents: documents,
            ..self.report
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::attempts::{Attempt, Row};
    use super::*;
    use crate::logs::RowsRead;

    fn trace(losses: &[f64]) -> Trace {
        let row = |(at, &loss): (usize, &f64)| Row {
            file: 0,
            line: at as u64 + 1,
            at_micros: None,
            span_micros: None,
            after: at as i64,
            step: at as i64 + 1,
            lost_steps: 0,
            flop: None,
            tokens: None,
            loss: Some(loss),
            read: RowsRead::default(),
        };
        let attempt = Attempt::of_rows(losses.iter().enumerate().map(row).collect());
        Trace {
            attempts: vec![attempt],
            ..Trace::default()
        }
    }

    fn found(losses: &[f64]) -> Vec<i64> {
        let spikes = spikes(&trace(losses), &["log".to_string()]);
        spikes.iter().map(|spike| spike.report.last_step).collect()
    }

    #[test]
    fn a_loss_that_jumps_is_a_spike_and_one_that_wavers_is_none() {
        let mut losses: Vec<f64> = (0..400)
            .map(|at| 5.0 - at as f64 / 200.0 + [0.0, 0.02][at % 2])
            .collect();
        assert_eq!(found(&losses), [] as [i64; 0]);
        losses[339] += 1.5;
        losses[200] += 0.5;
        assert_eq!(found(&losses), [340, 201], "the largest rise first");
        // At the least rise, and one above.
        let flat = |rise: f64| found(&[&[2.0; 10][..], &[2.0 + rise]].concat());
        assert_eq!(flat(0.25), [] as [i64; 0]);
        assert_eq!(flat(0.26), [11]);
        // With fewer lines before it nothing is usual yet.
        assert_eq!(found(&[&[2.0; 9][..], &[9.0]].concat()), [] as [i64; 0]);
        // A noisy loss must rise further.
        let noisy: Vec<f64> = (0..20).map(|at| [2.0, 2.4][at % 2]).collect();
        assert_eq!(found(&[&noisy[..], &[3.0]].concat()), [] as [i64; 0]);
        assert_eq!(found(&[2.0, f64::NAN]), [] as [i64; 0]);
    }
}
