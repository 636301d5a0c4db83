//! Numbers per token that another program made, joined with the documents by id.
//!
//! The numbers are copied to a file in the order in which they come, with an index of them sorted by a
//! hash of the id: both are mapped, so that memory holds neither. A look-up is a binary search.

use super::parallel::each_part;
use super::{FitError, FitInput, TokenDocument, TokenSource};
use crate::algo::hash;
use crate::algo::histogram::Histogram;
use crate::record::{Kind, OptionError, OptionSpec, Options};
use crate::spill::{Column, IoContext, Spill};
use std::fs::File;
use std::io::{BufWriter, Write};

/// Steps of a number in the histogram that percentiles are read from.
const STEPS: f64 = 1024.0;
/// Bound of the numbers in it, on both sides.
const BOUND: i64 = 64;

/// The options that say where a scale begins and ends, and what stands for absent numbers.
pub(super) const LOW: OptionSpec = OptionSpec {
    name: "low_percentile",
    kind: Kind::Number {
        min: 0.0,
        max: 100.0,
    },
    default: Some("5"),
    doc: "where the scale begins: this percentile, to a tenth, over the tokens that reach the stage",
};
pub(super) const HIGH: OptionSpec = OptionSpec {
    name: "high_percentile",
    kind: Kind::Number {
        min: 0.0,
        max: 100.0,
    },
    default: Some("95"),
    doc: "where the scale ends, likewise; above low_percentile",
};
pub(super) const MISSING: OptionSpec = OptionSpec {
    name: "missing_usefulness",
    kind: Kind::Number { min: 0.0, max: 1.0 },
    default: Some("null"),
    doc: "usefulness, from 0 to 1, of every token of a document that the file has no row of; without it such a document \
          is an error",
};

/// Where a scale begins and ends, in thousandths of the tokens.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(super) struct Percentiles {
    #[serde(rename = "low_per_mille")]
    low: u32,
    #[serde(rename = "high_per_mille")]
    high: u32,
}

impl Percentiles {
    pub(super) fn of(options: &Options) -> Result<Self, OptionError> {
        let per_mille = |name| (options.number(name) * 10.0).round() as u32;
        let (low, high) = (per_mille(LOW.name), per_mille(HIGH.name));
        if low >= high {
            return Err(OptionError::new(
                HIGH.name,
                format!("above low_percentile, {}", options.number(LOW.name)),
                options.number(HIGH.name),
            ));
        }
        Ok(Percentiles { low, high })
    }

    /// An empty histogram of numbers, from which [`Percentiles::scale`] reads.
    pub(super) fn histogram() -> Histogram {
        let limit = BOUND * STEPS as i64;
        Histogram::new(-limit, limit)
    }

    pub(super) fn count(histogram: &mut Histogram, number: f64) {
        histogram.count((number * STEPS).round() as i64);
    }

    /// From and to these percentiles of what was counted; from 0 to 0 where nothing was.
    pub(super) fn scale(self, histogram: &Histogram) -> Scale {
        let percentile = |per_mille| histogram.quantile(per_mille).unwrap_or(0) as f64 / STEPS;
        Scale {
            low: percentile(self.low),
            high: percentile(self.high),
        }
    }
}

/// From a number to 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Scale {
    /// [`Scale::rising`], or 1 minus that.
    pub(super) fn of(&self, x: f64, falling: bool) -> f64 {
        match falling {
            true => 1.0 - self.rising(x),
            false => self.rising(x),
        }
    }

    /// clip((x - low) / (high - low), 0, 1); where low = high, 0 below, 0.5 there and 1 above.
    pub(super) fn rising(&self, x: f64) -> f64 {
        if self.low < self.high {
            return ((x - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        }
        0.5 * (f64::from(u8::from(x >= self.low)) + f64::from(u8::from(x > self.low)))
    }
}

/// A row of the file: numbers of consecutive tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Piece {
    /// Hash of the document's id.
    id: [u64; 2],
    first_token: u64,
    tokens: u64,
    /// Where its numbers begin: all of the first column, then those of the next.
    place: u64,
}

fn hash_of(id: &str) -> [u64; 2] {
    let hash = hash::content(id.as_bytes());
    [(hash >> 64) as u64, hash as u64]
}

/// All numbers, to be looked up by document.
pub(super) struct Joined {
    index: Column<Piece>,
    numbers: Column<f32>,
    columns: Vec<String>,
    /// Rows of the file.
    pub(super) rows: u64,
}

impl Joined {
    /// Reads the table of the input, which the engine has opened with these columns.
    pub(super) fn read(input: &FitInput<'_>, columns: &[&str]) -> Result<Self, FitError> {
        let table = input
            .table
            .expect("the engine opens the table that an estimator names");
        let path = |name: &str| input.work.join(name);
        let mut numbers = BufWriter::new(File::create(path("numbers"))?);
        let spill = Spill::new(&path("sort"), (input.memory_bytes / 4) as usize);
        let mut sorter = spill.sorter("rows", Piece::cmp);
        let mut place = 0;
        table.read(&mut |row| {
            let tokens = row.numbers[0].len();
            if let Some(other) = row.numbers.iter().position(|column| column.len() != tokens) {
                return Err(FitError::Data(format!(
                    "document '{}' has {tokens} numbers in column '{}' and {} in '{}'; a row needs as many in each",
                    row.doc_id,
                    columns[0],
                    row.numbers[other].len(),
                    columns[other]
                )));
            }
            for column in row.numbers {
                numbers.write_all(bytemuck::cast_slice(column))?;
            }
            sorter.push(Piece {
                id: hash_of(row.doc_id),
                first_token: row.first_token,
                tokens: tokens as u64,
                place,
            })?;
            place += (tokens * columns.len()) as u64;
            Ok(())
        })?;
        numbers.flush().context("write", &path("numbers"))?;
        let rows = sorter.len();
        let mut index = BufWriter::new(File::create(path("index"))?);
        for piece in sorter.finish()? {
            index.write_all(bytemuck::bytes_of(&piece?))?;
        }
        index.flush().context("write", &path("index"))?;
        Ok(Joined {
            index: Column::open(&path("index"))?,
            numbers: Column::open(&path("numbers"))?,
            columns: columns.iter().map(|column| column.to_string()).collect(),
            rows,
        })
    }

    /// Fills in the numbers of each token of a document, by column. `false` where the file has none.
    pub(super) fn of(
        &self,
        document: &TokenDocument<'_>,
        out: &mut [Vec<f32>],
    ) -> Result<bool, String> {
        let id = hash_of(document.id);
        let index = self.index.values();
        let first = index.partition_point(|piece| piece.id < id);
        out.iter_mut().for_each(Vec::clear);
        let mut found = false;
        for piece in index[first..].iter().take_while(|piece| piece.id == id) {
            found = true;
            let so_far = out[0].len() as u64;
            if piece.first_token < so_far {
                return Err(format!(
                    "has two rows in the file for its token {}",
                    piece.first_token
                ));
            }
            if piece.first_token > so_far {
                return Err(format!(
                    "has no row in the file for its tokens {so_far} to {}",
                    piece.first_token - 1
                ));
            }
            for (at, column) in out.iter_mut().enumerate() {
                let start = piece.place + at as u64 * piece.tokens;
                let numbers = &self.numbers.values()[start as usize..][..piece.tokens as usize];
                column.extend_from_slice(numbers);
            }
        }
        if !found {
            return Ok(false);
        }
        if out[0].len() != document.tokens.len() {
            return Err(format!(
                "has {} tokens and {} numbers in the file; both must be of the same tokens, without special ones",
                document.tokens.len(),
                out[0].len()
            ));
        }
        for (name, column) in self.columns.iter().zip(out) {
            if let Some(at) = column.iter().position(|number| !number.is_finite()) {
                return Err(format!(
                    "has {} for its token {at} in column '{name}', not a finite number",
                    column[at]
                ));
            }
        }
        Ok(true)
    }

    /// The percentiles of what `number` makes of the columns, over all tokens of a source.
    pub(super) fn scale(
        &self,
        source: &dyn TokenSource,
        percentiles: Percentiles,
        number: impl Fn(&[Vec<f32>], usize) -> f64 + Sync,
    ) -> Result<(Scale, u64), FitError> {
        let mut all = Percentiles::histogram();
        let empty = all.clone();
        let mut problem: Option<String> = None;
        each_part(
            source,
            || (empty.clone(), vec![Vec::new(); self.columns.len()], None),
            |(histogram, columns, problem), document| {
                if problem.is_some() {
                    return;
                }
                match self.of(document, columns) {
                    Ok(true) => (0..document.tokens.len()).for_each(|at| {
                        Percentiles::count(histogram, number(columns, at));
                    }),
                    Ok(false) => {}
                    Err(error) => *problem = Some(format!("document '{}' {error}", document.id)),
                }
            },
            |(histogram, _, found)| {
                all.add(&histogram);
                problem = problem.take().or(found);
            },
        )?;
        if let Some(problem) = problem {
            return Err(FitError::Data(problem));
        }
        Ok((percentiles.scale(&all), all.total()))
    }
}

/// What is said of a document without numbers where that is an error.
pub(super) const NO_ROWS: &str =
    "the file has no row of it; add it there, or set 'missing_usefulness'";

#[cfg(test)]
mod tests {
    use super::super::testing::Corpus;
    use super::super::{TokenNumbers, TokenTable};
    use super::*;

    pub(in super::super) struct Rows(pub(in super::super) Vec<(&'static str, u64, Vec<Vec<f32>>)>);

    impl TokenTable for Rows {
        fn read(
            &self,
            visit: &mut dyn FnMut(TokenNumbers<'_>) -> Result<(), FitError>,
        ) -> Result<(), FitError> {
            self.0
                .iter()
                .try_for_each(|(doc_id, first_token, numbers)| {
                    visit(TokenNumbers {
                        doc_id,
                        first_token: *first_token,
                        numbers,
                    })
                })
        }
    }

    /// Documents `0` of two tokens and `1` of three.
    fn corpus() -> Corpus {
        Corpus::of_texts(&["ab", "cde"])
    }

    fn joined(rows: &Rows, memory_bytes: u64) -> Result<(Joined, tempfile::TempDir), FitError> {
        let work = tempfile::tempdir()?;
        let columns: Vec<&str> = ["x", "y"][..rows.0[0].2.len()].to_vec();
        let joined = Joined::read(
            &FitInput {
                corpus: &corpus(),
                reference: None,
                negative: None,
                vocabulary_size: 256,
                seed: 17,
                origin: &super::super::testing::origin(),
                calibration: None,
                file_checksums: &[],
                table: Some(rows),
                work: work.path(),
                memory_bytes,
            },
            &columns,
        )?;
        Ok((joined, work))
    }

    #[test]
    fn rows_in_any_order_come_together_and_others_are_passed_by() {
        let mut rows = vec![
            ("1", 1, vec![vec![4.0, 5.0], vec![-4.0, -5.0]]),
            ("elsewhere", 0, vec![vec![9.0], vec![9.0]]),
            ("0", 0, vec![vec![1.0, 2.0], vec![-1.0, -2.0]]),
            ("1", 0, vec![vec![3.0], vec![-3.0]]),
        ];
        rows.extend((0..200).map(|at| ("many", at, vec![vec![0.0], vec![0.0]])));
        for memory_bytes in [0, 1 << 30] {
            let (joined, _work) = joined(&Rows(rows.clone()), memory_bytes).expect("reads");
            let mut columns = [Vec::new(), Vec::new()];
            assert_eq!(joined.of(&corpus().document(1), &mut columns), Ok(true));
            assert_eq!(columns, [vec![3.0, 4.0, 5.0], vec![-3.0, -4.0, -5.0]]);
            assert_eq!(joined.of(&corpus().document(0), &mut columns), Ok(true));
            assert_eq!(columns, [vec![1.0, 2.0], vec![-1.0, -2.0]]);
            assert_eq!(joined.rows, 204);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_token() {
        let found = |rows: Vec<(&'static str, u64, Vec<f32>)>| {
            let rows = rows
                .into_iter()
                .map(|(id, at, row)| (id, at, vec![row]))
                .collect();
            let (joined, _work) = joined(&Rows(rows), 1 << 20).expect("reads");
            joined.of(&corpus().document(1), &mut [Vec::new()])
        };
        let refused = |rows, word: &str| {
            let error = found(rows).expect_err(word);
            assert!(error.contains(word), "{error}");
        };
        assert_eq!(found(vec![("1", 0, vec![1.0; 3])]), Ok(true));
        assert_eq!(found(vec![("0", 0, vec![1.0; 3])]), Ok(false));
        refused(vec![("1", 0, vec![1.0; 2])], "3 tokens and 2 numbers");
        refused(vec![("1", 0, vec![1.0; 4])], "3 tokens and 4 numbers");
        refused(
            vec![("1", 0, vec![1.0; 2]), ("1", 1, vec![1.0; 2])],
            "two rows",
        );
        refused(
            vec![("1", 0, vec![1.0]), ("1", 2, vec![1.0])],
            "tokens 1 to 1",
        );
        refused(
            vec![("1", 0, vec![1.0, f32::NAN, 1.0])],
            "NaN for its token 1",
        );
        refused(
            vec![("1", 0, vec![1.0, 1.0, f32::INFINITY])],
            "inf for its token 2",
        );
        let uneven = Rows(vec![("1", 0, vec![vec![1.0; 3], vec![1.0; 2]])]);
        let error = joined(&uneven, 1 << 20).err().expect("uneven");
        assert!(
            error
                .to_string()
                .contains("document '1' has 3 numbers in column 'x' and 2"),
            "{error}"
        );
    }

    #[test]
    fn a_scale_is_clipped_at_both_ends_and_may_be_a_point() {
        let scale = Scale {
            low: 1.0,
            high: 3.0,
        };
        let found = [0.0, 1.0, 1.5, 3.0, 4.0].map(|x| scale.rising(x));
        assert_eq!(found, [0.0, 0.0, 0.25, 1.0, 1.0]);
        let point = Scale {
            low: 1.0,
            high: 1.0,
        };
        assert_eq!([0.9, 1.0, 1.1].map(|x| point.rising(x)), [0.0, 0.5, 1.0]);
    }

    /// Numbers 1 to 5: the smallest that 20 % do not exceed is 1, of 80 % it is 4.
    #[test]
    fn percentiles_are_nearest_ranks_over_the_tokens_of_the_source() {
        let rows = Rows(vec![
            ("0", 0, vec![vec![5.0, 1.0]]),
            ("1", 0, vec![vec![4.0, 2.0, 3.0]]),
            ("elsewhere", 0, vec![vec![60.0; 100]]),
        ]);
        let (joined, _work) = joined(&rows, 1 << 20).expect("reads");
        let percentiles = Percentiles {
            low: 200,
            high: 800,
        };
        let source = Corpus {
            parts: 2,
            ..corpus()
        };
        let of = |sign: f64| {
            joined
                .scale(&source, percentiles, |columns, at| {
                    sign * f64::from(columns[0][at])
                })
                .expect("fits")
        };
        assert_eq!(
            of(1.0),
            (
                Scale {
                    low: 1.0,
                    high: 4.0
                },
                5
            )
        );
        assert_eq!(
            of(-1.0),
            (
                Scale {
                    low: -5.0,
                    high: -2.0
                },
                5
            )
        );
    }
}
