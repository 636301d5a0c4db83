//! Whether a trainer read the rows in the order of the manifest: what its step lines tell, against the shards.
//!
//! A step line can tell the position of the first row that was read since the step line before (`row`), how many rows
//! these were (`rows`), and the sum of the CRC-32 of each row's token ids, as little-endian 32-bit numbers
//! (`ids_crc32`). The sum does not depend on the order of rows inside a step or on how they are dealt to processes. The
//! first two say what the trainer believes; the sum proves what it had in its hands.

use super::attempts::Trace;
use serde::Serialize;
use std::collections::BTreeMap;

/// Lines with other tokens of which other steps are searched for them.
const LINES_SEARCHED: u64 = 100;

/// What the step lines tell of the rows that they read.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OrderReport {
    /// Step lines that tell the position of their first row, or their number of rows.
    pub lines_with_rows: u64,
    /// Step lines that tell the checksum of their token ids.
    pub lines_with_checksum: u64,
    /// Step lines that tell something else than what is due there.
    pub lines_that_differ: u64,
    /// The first difference of each kind, by step.
    pub differences: Vec<DifferenceReport>,
}

/// A step line that read something else than what is due.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DifferenceReport {
    /// What it does.
    pub kind: DifferenceKind,
    /// Where it stands: `file:line`.
    pub line: String,
    /// First step that the line is about.
    pub first_step: i64,
    /// Last step that the line is about.
    pub last_step: i64,
    /// Position of the first row that is due.
    pub due_row: u64,
    /// Rows that are due.
    pub due_rows: u64,
    /// Position of the first row that it tells.
    pub told_row: Option<u64>,
    /// Rows that it tells.
    pub told_rows: Option<u64>,
    /// First of the steps that are to read the tokens that this line read, where there are some.
    pub tokens_of_step: Option<i64>,
}

/// What a step line does instead of reading what is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// It reads rows that were read before.
    ReadsAgain,
    /// It leaves rows out.
    Skips,
    /// It reads more or fewer rows.
    OtherNumberOfRows,
    /// It reads other token ids.
    OtherTokens,
}

impl DifferenceKind {
    /// For people: the step line does this.
    pub fn words(self) -> &'static str {
        match self {
            DifferenceKind::ReadsAgain => "reads rows again",
            DifferenceKind::Skips => "skips rows",
            DifferenceKind::OtherNumberOfRows => "reads another number of rows",
            DifferenceKind::OtherTokens => "reads other tokens",
        }
    }
}

/// Sums of the checksums of rows by step, for those that read in order.
pub(super) struct Checksums(Vec<u64>);

impl Checksums {
    /// Room for so many steps; for none where no line tells a checksum.
    pub(super) fn new(trace: &Trace, steps: i64) -> Checksums {
        let rows = trace.attempts.iter().flat_map(|attempt| &attempt.rows);
        let any = rows.into_iter().any(|row| row.read.ids_crc32.is_some());
        Checksums(vec![0; if any { steps.max(0) as usize } else { 0 }])
    }

    /// Whether there is something to add to.
    pub(super) fn are_wanted(&self) -> bool {
        !self.0.is_empty()
    }

    /// Adds a row to the step at a place from 0.
    pub(super) fn add(&mut self, step: usize, checksum: u32) {
        if let Some(sum) = self.0.get_mut(step) {
            *sum = sum.wrapping_add(u64::from(checksum));
        }
    }

    /// Sums up to each step.
    fn running(self) -> Vec<u64> {
        let mut sum = 0u64;
        let each = self.0.into_iter().map(|step| {
            sum = sum.wrapping_add(step);
            sum
        });
        std::iter::once(0).chain(each).collect()
    }
}

/// CRC-32 of token ids as little-endian 32-bit numbers, as `zlib.crc32` has it.
pub fn ids_crc32(ids: &[u32]) -> u32 {
    let mut crc = flate2::Crc::new();
    let mut bytes = Vec::with_capacity(4 * ids.len());
    ids.iter()
        .for_each(|id| bytes.extend_from_slice(&id.to_le_bytes()));
    crc.update(&bytes);
    crc.sum()
}

/// The rows that are due.
pub(super) struct Due {
    /// The step before the first of the training.
    pub(super) base: i64,
    /// Rows of a step.
    pub(super) rows_per_step: u64,
    /// Rows of the dataset.
    pub(super) rows: u64,
}

/// Compares what the step lines tell with what is due; `None` where none tells anything. `names` are those of the files.
pub(super) fn compare(
    trace: &Trace,
    names: &[String],
    due: &Due,
    checksums: Checksums,
) -> Option<OrderReport> {
    let running = checksums.running();
    let mut report = OrderReport::default();
    let mut first: BTreeMap<DifferenceKind, DifferenceReport> = BTreeMap::new();
    let mut searched = 0;
    for attempt in &trace.attempts {
        // The row that follows what the line before tells.
        let mut next: Option<u64> = None;
        for line in &attempt.rows {
            let told = line.read;
            let before = (line.after - due.base).max(0) as u64;
            let due_row = before.saturating_mul(due.rows_per_step) % due.rows;
            let due_rows = (line.steps().max(0) as u64).saturating_mul(due.rows_per_step);
            let expected = next.unwrap_or(due_row);
            next = None;
            let mut kinds = Vec::new();
            let mut tokens_of_step = None;
            let mut differs = false;
            if told.first.is_some() || told.rows.is_some() {
                report.lines_with_rows += 1;
            }
            if let Some(row) = told.first {
                let read = told.rows.unwrap_or(due_rows);
                next = Some(row.saturating_add(read) % due.rows);
                differs |= row != due_row;
                match row.cmp(&expected) {
                    std::cmp::Ordering::Less => kinds.push(DifferenceKind::ReadsAgain),
                    std::cmp::Ordering::Greater => kinds.push(DifferenceKind::Skips),
                    std::cmp::Ordering::Equal => {}
                }
            }
            if told.rows.is_some_and(|rows| rows != due_rows) {
                differs = true;
                kinds.push(DifferenceKind::OtherNumberOfRows);
            }
            if let Some(checksum) = told.ids_crc32 {
                report.lines_with_checksum += 1;
                let (start, length) = (before as usize, line.steps().max(0) as usize);
                let sum = |at: usize| Some(running.get(at + length)?.wrapping_sub(running[at]));
                if sum(start) != Some(checksum) {
                    differs = true;
                    if searched < LINES_SEARCHED {
                        searched += 1;
                        let found = (0..running.len()).find(|&at| sum(at) == Some(checksum));
                        tokens_of_step = found.map(|at| due.base + 1 + at as i64);
                    }
                    // Where the line tells its rows, it has told what it does.
                    if kinds.is_empty() && told.first.is_none_or(|row| row == due_row) {
                        kinds.push(match tokens_of_step {
                            Some(step) if step <= line.after => DifferenceKind::ReadsAgain,
                            Some(_) => DifferenceKind::Skips,
                            None => DifferenceKind::OtherTokens,
                        });
                    }
                }
            }
            report.lines_that_differ += u64::from(differs);
            for kind in kinds {
                let earlier = first.get(&kind).map(|known| known.first_step);
                if earlier.is_none_or(|step| line.after + 1 < step) {
                    let difference = DifferenceReport {
                        kind,
                        line: format!("{}:{}", names[line.file], line.line),
                        first_step: line.after + 1,
                        last_step: line.step,
                        due_row,
                        due_rows,
                        told_row: told.first,
                        told_rows: told.rows,
                        tokens_of_step,
                    };
                    first.insert(kind, difference);
                }
            }
        }
    }
    report.differences = first.into_values().collect();
    report
        .differences
        .sort_by_key(|difference| (difference.first_step, difference.kind));
    (report.lines_with_rows + report.lines_with_checksum > 0).then_some(report)
}

#[cfg(test)]
mod tests {
    use super::super::attempts::{Attempt, Row};
    use super::*;
    use crate::logs::RowsRead;

    const DUE: Due = Due {
        base: 0,
        rows_per_step: 4,
        rows: 1_000,
    };

    /// First row, rows, checksum.
    type Told = (Option<u64>, Option<u64>, Option<u64>);

    /// A line a step.
    fn report(lines: &[Told]) -> Option<OrderReport> {
        let row = |(at, &(first, rows, ids_crc32)): (usize, &Told)| Row {
            file: 0,
            line: at as u64 + 1,
            at_micros: None,
            span_micros: None,
            after: at as i64,
            step: at as i64 + 1,
            lost_steps: 0,
            tokens: None,
            flop: None,
            loss: None,
            read: RowsRead {
                first,
                rows,
                ids_crc32,
            },
        };
        let trace = Trace {
            attempts: vec![Attempt::of_rows(
                lines.iter().enumerate().map(row).collect(),
            )],
            ..Trace::default()
        };
        let mut checksums = Checksums::new(&trace, lines.len() as i64);
        for step in 0..lines.len() {
            checksums.add(step, 100 + step as u32);
        }
        compare(&trace, &["log".to_string()], &DUE, checksums)
    }

    fn kinds(report: &OrderReport) -> Vec<(DifferenceKind, i64)> {
        let differences = report.differences.iter();
        differences.map(|one| (one.kind, one.first_step)).collect()
    }

    #[test]
    fn a_checksum_is_that_of_zlib() {
        // zlib.crc32(struct.pack("<3I", 1, 2, 70000))
        assert_eq!(ids_crc32(&[1, 2, 70_000]), 0xCD95_D5E7);
        assert_eq!(ids_crc32(&[]), 0);
    }

    #[test]
    fn what_is_read_in_order_has_no_difference() {
        let line = |step: u64| (Some(4 * step), Some(4), Some(100 + step));
        let found = report(&[line(0), line(1), line(2)]).expect("told");
        assert_eq!(found.differences, []);
        assert_eq!(
            (
                found.lines_with_rows,
                found.lines_with_checksum,
                found.lines_that_differ
            ),
            (3, 3, 0)
        );
        assert_eq!(report(&[(None, None, None); 3]), None, "nothing is told");
    }

    #[test]
    fn the_first_step_that_skips_or_reads_again_is_named() {
        let line = |row: u64| (Some(row), Some(4), None);
        // Rows 8 to 11 are left out, and 20 to 23 come twice.
        let rows = [0, 4, 12, 16, 20, 20, 24];
        let found = report(&rows.map(line)).expect("told");
        assert_eq!(
            kinds(&found),
            [(DifferenceKind::Skips, 3), (DifferenceKind::ReadsAgain, 6)]
        );
        assert_eq!(found.lines_that_differ, 3, "from then on all is as due");
        let skip = &found.differences[0];
        assert_eq!((skip.due_row, skip.told_row), (8, Some(12)));
        let fewer = report(&[line(0), (Some(4), Some(3), None)]).expect("told");
        assert_eq!(kinds(&fewer), [(DifferenceKind::OtherNumberOfRows, 2)]);
    }

    #[test]
    fn a_checksum_tells_whose_tokens_were_read() {
        let line = |checksum: u64| (None, None, Some(checksum));
        let found = report(&[100, 101, 101, 104, 104, 7].map(line)).expect("told");
        assert_eq!(
            kinds(&found),
            [
                (DifferenceKind::ReadsAgain, 3),
                (DifferenceKind::Skips, 4),
                (DifferenceKind::OtherTokens, 6)
            ]
        );
        let steps: Vec<_> = found
            .differences
            .iter()
            .map(|one| one.tokens_of_step)
            .collect();
        assert_eq!(steps, [Some(2), Some(5), None]);
    }
}
