//! Numbers per token that another program made, such as losses: Parquet or JSON lines.
//!
//! A row holds the numbers of consecutive tokens of one document: its id under `doc_id`, the index
//! of the first token under `token_index` (0 where the column is absent), and under each wanted
//! column a list of numbers, or a single one. The file says which tokenizer the tokens are of.

use super::compression::{self, Compression};
use super::lines::LineReader;
use super::{Body, Format, FoundFile, InputSpec, Slice, SourceError};
use crate::contained::contained;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, UInt64Type};
use arrow::util::display::array_value_to_string;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;
use std::fs::File;
use std::path::Path;

/// Where the tokenizer's fingerprint stands: in the key-value metadata of a Parquet file, as in our
/// shards, or as the key of the first record of JSON lines.
pub const FINGERPRINT_KEY: &str = "goodput.tokenizer_fingerprint";

const ID: &str = "doc_id";
const INDEX: &str = "token_index";

/// Longest line of JSON, in bytes.
const MAX_LINE_BYTES: u64 = 1 << 30;
/// Rows of a Parquet file that are held at a time, where they hold lists and where they do not.
const BATCH_ROWS: [usize; 2] = [64, 8192];

/// A row.
#[derive(Clone, Copy, Debug)]
pub struct TokenNumbers<'a> {
    /// The document.
    pub doc_id: &'a str,
    /// Index of the first token in the document.
    pub first_token: u64,
    /// The numbers by column, in the order in which the columns were asked for.
    pub numbers: &'a [Vec<f32>],
}

/// An opened file.
pub struct TokenTable {
    file: FoundFile,
    format: Format,
    columns: Vec<String>,
    fingerprint: String,
}

impl TokenTable {
    /// Opens a file and reads whose tokens its numbers are of.
    ///
    /// # Errors
    /// When it cannot be read, is neither Parquet nor JSON lines, lacks a column (Parquet) or does
    /// not name its tokenizer.
    pub fn open(path: &Path, columns: &[&str]) -> Result<TokenTable, SourceError> {
        let file = FoundFile::at(path)?;
        let format = match Format::guess(&file.name) {
            Some(format @ (Format::Jsonl | Format::Parquet)) => format,
            Some(_) | None => {
                return Err(SourceError::TokenTable {
                    path: path.to_path_buf(),
                    place: "its name".to_string(),
                    problem: "must end in .parquet or .jsonl (.jsonl.gz, .jsonl.zst)".to_string(),
                });
            }
        };
        let mut table = TokenTable {
            file,
            format,
            columns: columns.iter().map(|column| column.to_string()).collect(),
            fingerprint: String::new(),
        };
        let fingerprint = match format {
            Format::Parquet => table.parquet_fingerprint()?,
            _ => table.first_record()?,
        };
        table.fingerprint = fingerprint.ok_or_else(|| match format {
            Format::Parquet => table.wrong(
                "key-value metadata",
                format!("has no '{FINGERPRINT_KEY}'; write the one of the tokenizer there"),
            ),
            _ => table.wrong(
                "first record",
                format!(
                    "must be {{\"{FINGERPRINT_KEY}\": \"...\"}}, with the one of the tokenizer"
                ),
            ),
        })?;
        Ok(table)
    }

    /// Fingerprint of the tokenizer whose tokens these are, as the file says it.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Calls `visit` for each row, in the order of the file.
    ///
    /// # Errors
    /// On a row that cannot be read, with its place; and what `visit` returns.
    pub fn read<E: From<SourceError>>(
        &self,
        visit: &mut dyn FnMut(TokenNumbers<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.format {
            Format::Parquet => self.read_parquet(visit),
            _ => self.read_lines(&mut |place, record| {
                if record.get(FINGERPRINT_KEY).is_some() {
                    return Ok(true);
                }
                let (id, first_token, numbers) = self.record(place, &record)?;
                visit(TokenNumbers {
                    doc_id: &id,
                    first_token,
                    numbers: &numbers,
                })?;
                Ok(true)
            }),
        }
    }

    fn wrong(&self, place: impl ToString, problem: impl ToString) -> SourceError {
        SourceError::TokenTable {
            path: self.file.path.clone(),
            place: place.to_string(),
            problem: problem.to_string(),
        }
    }

    /// Visits records with their byte offsets until `visit` returns `false`.
    fn read_lines<E: From<SourceError>>(
        &self,
        visit: &mut dyn FnMut(u64, Value) -> Result<bool, E>,
    ) -> Result<(), E> {
        let spec = InputSpec {
            max_document_bytes: MAX_LINE_BYTES,
            ..InputSpec::with_text("")
        };
        let mut reader = LineReader::open(&self.file, &Slice::Whole, &spec)?;
        while let Some(body) = reader.next()? {
            let (mut place, bytes) = match body {
                Body::Lines { place, bytes } => (place, bytes),
                Body::Bad(bad) => {
                    let place = format!("byte {}", bad.place);
                    return Err(self
                        .wrong(place, format!("{} ({})", bad.reason, bad.detail))
                        .into());
                }
                Body::Rows { .. } | Body::Text { .. } => {
                    unreachable!("a reader of lines gives lines")
                }
            };
            for line in bytes.split_inclusive(|&byte| byte == b'\n') {
                let at = place;
                place += line.len() as u64;
                if line.trim_ascii().is_empty() {
                    continue;
                }
                let record = serde_json::from_slice(line)
                    .map_err(|error| self.wrong(format!("byte {at}"), error))?;
                if !visit(at, record)? {
                    return Ok(());
                }
            }
        }
        match reader.summary().truncated {
            Some(problem) => Err(self.wrong("its end", problem).into()),
            None => Ok(()),
        }
    }

    fn first_record(&self) -> Result<Option<String>, SourceError> {
        let mut found = None;
        self.read_lines(&mut |_, record| {
            found = record
                .get(FINGERPRINT_KEY)
                .and_then(Value::as_str)
                .map(str::to_string);
            Ok::<bool, SourceError>(false)
        })?;
        Ok(found)
    }

    fn record(&self, at: u64, record: &Value) -> Result<(String, u64, Vec<Vec<f32>>), SourceError> {
        let place = format!("byte {at}");
        let id = match record.get(ID) {
            Some(Value::String(id)) => id.clone(),
            Some(Value::Number(id)) => id.to_string(),
            _ => return Err(self.wrong(place, format!("'{ID}' must be a string"))),
        };
        let first_token = match record.get(INDEX) {
            None => 0,
            Some(index) => index.as_u64().ok_or_else(|| {
                self.wrong(
                    &place,
                    format!("'{INDEX}' must be a whole number, 0 or more, got {index}"),
                )
            })?,
        };
        let numbers_of = |column: &String| {
            let wrong = |found: &str| {
                self.wrong(
                    &place,
                    format!(
                        "'{column}' of '{id}' must be a number or a list of numbers, got {found}"
                    ),
                )
            };
            let number = |value: &Value| match value.as_f64() {
                Some(number) => Ok(number as f32),
                None => Err(wrong(&value.to_string())),
            };
            match record.get(column) {
                Some(Value::Array(values)) => values.iter().map(number).collect(),
                Some(value) => Ok(vec![number(value)?]),
                None => Err(wrong("nothing")),
            }
        };
        let numbers = self
            .columns
            .iter()
            .map(numbers_of)
            .collect::<Result<_, _>>()?;
        Ok((id, first_token, numbers))
    }

    fn damaged(&self, problem: impl ToString) -> SourceError {
        SourceError::Damaged {
            path: self.file.path.clone(),
            format: "parquet",
            problem: problem.to_string(),
        }
    }

    fn parquet(&self) -> Result<ParquetRecordBatchReaderBuilder<File>, SourceError> {
        let (handle, found) = compression::open(&self.file)?;
        if found != Compression::None {
            return Err(SourceError::Wrapped {
                path: self.file.path.clone(),
                compression: found.name(),
                format: "parquet",
            });
        }
        let builder = contained(|| ParquetRecordBatchReaderBuilder::try_new(handle))
            .map_err(|panic| self.damaged(panic))?
            .map_err(|error| self.damaged(error))?;
        for column in [ID]
            .into_iter()
            .chain(self.columns.iter().map(String::as_str))
        {
            if builder.schema().field_with_name(column).is_err() {
                let names: Vec<&str> = builder
                    .schema()
                    .fields()
                    .iter()
                    .map(|field| field.name().as_str())
                    .collect();
                return Err(SourceError::NoColumn {
                    path: self.file.path.clone(),
                    column: column.to_string(),
                    nearest: None,
                    columns: names.join(", "),
                });
            }
        }
        Ok(builder)
    }

    fn parquet_fingerprint(&self) -> Result<Option<String>, SourceError> {
        let builder = self.parquet()?;
        let pairs = builder.metadata().file_metadata().key_value_metadata();
        let pair = pairs.and_then(|pairs| pairs.iter().find(|pair| pair.key == FINGERPRINT_KEY));
        Ok(pair.and_then(|pair| pair.value.clone()))
    }

    fn read_parquet<E: From<SourceError>>(
        &self,
        visit: &mut dyn FnMut(TokenNumbers<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let builder = self.parquet()?;
        let wanted: Vec<&str> = [ID, INDEX]
            .into_iter()
            .chain(self.columns.iter().map(String::as_str))
            .collect();
        let has_lists = self.columns.iter().any(|column| {
            builder
                .schema()
                .field_with_name(column)
                .is_ok_and(|field| is_list(field.data_type()))
        });
        let roots: Vec<usize> = (0..builder.schema().fields().len())
            .filter(|&at| wanted.contains(&builder.schema().field(at).name().as_str()))
            .collect();
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
        let builder = builder
            .with_projection(mask)
            .with_batch_size(BATCH_ROWS[usize::from(!has_lists)]);
        let mut reader = contained(|| builder.build())
            .map_err(|panic| self.damaged(panic))?
            .map_err(|error| self.damaged(error))?;
        let mut row = 0;
        let mut numbers = vec![Vec::new(); self.columns.len()];
        while let Some(batch) = contained(|| reader.next()).map_err(|panic| self.damaged(panic))? {
            let batch = batch.map_err(|error| self.damaged(error))?;
            let ids = self.column(&batch, ID, &DataType::Utf8)?;
            let ids = ids.as_string::<i32>();
            let first_tokens = match batch.column_by_name(INDEX) {
                Some(_) => Some(self.column(&batch, INDEX, &DataType::UInt64)?),
                None => None,
            };
            for at in 0..batch.num_rows() {
                let first_token = match &first_tokens {
                    Some(column) if column.is_null(at) => {
                        // As it stands in the file: what is no index becomes null on the way.
                        let found = batch
                            .column_by_name(INDEX)
                            .filter(|found| found.is_valid(at));
                        let found = found.map(|found| array_value_to_string(found, at));
                        let found = found.and_then(Result::ok).unwrap_or("null".to_string());
                        let problem =
                            format!("'{INDEX}' must be a whole number, 0 or more, got {found}");
                        return Err(self.wrong(format!("row {row}"), problem).into());
                    }
                    Some(column) => column.as_primitive::<UInt64Type>().value(at),
                    None => 0,
                };
                if ids.is_null(at) {
                    return Err(self
                        .wrong(format!("row {row}"), format!("'{ID}' is null"))
                        .into());
                }
                for (column, numbers) in self.columns.iter().zip(&mut numbers) {
                    self.row_numbers(&batch, column, at, row, numbers)?;
                }
                visit(TokenNumbers {
                    doc_id: ids.value(at),
                    first_token,
                    numbers: &numbers,
                })?;
                row += 1;
            }
        }
        Ok(())
    }

    /// A column as values of `kind`, nulls where a value does not fit.
    fn column(
        &self,
        batch: &RecordBatch,
        name: &str,
        kind: &DataType,
    ) -> Result<ArrayRef, SourceError> {
        let column = batch
            .column_by_name(name)
            .ok_or_else(|| self.damaged(format!("no '{name}'")))?;
        cast(column, kind).map_err(|error| self.wrong(format!("column '{name}'"), error))
    }

    fn row_numbers(
        &self,
        batch: &RecordBatch,
        name: &str,
        at: usize,
        row: u64,
        out: &mut Vec<f32>,
    ) -> Result<(), SourceError> {
        let place = || format!("row {row}, column '{name}'");
        let column = batch
            .column_by_name(name)
            .ok_or_else(|| self.damaged(format!("no '{name}'")))?;
        let values = if column.is_null(at) {
            return Err(self.wrong(place(), "is null"));
        } else {
            match column.data_type() {
                DataType::List(_) => column.as_list::<i32>().value(at),
                DataType::LargeList(_) => column.as_list::<i64>().value(at),
                _ => column.slice(at, 1),
            }
        };
        let values = match values.data_type().is_numeric() {
            true => {
                cast(&values, &DataType::Float32).map_err(|error| self.wrong(place(), error))?
            }
            false => {
                let problem = format!(
                    "must be numbers or lists of numbers, is {}",
                    values.data_type()
                );
                return Err(self.wrong(place(), problem));
            }
        };
        if values.null_count() > 0 {
            return Err(self.wrong(place(), "holds a null"));
        }
        out.clear();
        out.extend_from_slice(values.as_primitive::<Float32Type>().values());
        Ok(())
    }
}

fn is_list(kind: &DataType) -> bool {
    matches!(kind, DataType::List(_) | DataType::LargeList(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Float64Array, Int64Array, ListArray, StringArray};
    use parquet::arrow::ArrowWriter;
    use parquet::file::metadata::KeyValue;
    use parquet::file::properties::WriterProperties;
    use std::path::PathBuf;
    use std::sync::Arc;

    type Rows = Vec<(String, u64, Vec<Vec<f32>>)>;

    fn rows(path: &Path, columns: &[&str]) -> Result<(String, Rows), SourceError> {
        let table = TokenTable::open(path, columns)?;
        let mut rows = Vec::new();
        table.read(&mut |row| {
            rows.push((
                row.doc_id.to_string(),
                row.first_token,
                row.numbers.to_vec(),
            ));
            Ok::<(), SourceError>(())
        })?;
        Ok((table.fingerprint().to_string(), rows))
    }

    fn parquet(
        folder: &Path,
        columns: Vec<(&str, ArrayRef)>,
        fingerprint: Option<&str>,
    ) -> PathBuf {
        let path = folder.join("t.parquet");
        let batch = RecordBatch::try_from_iter(columns).expect("columns");
        let pairs = fingerprint.map(|value| {
            vec![KeyValue::new(
                FINGERPRINT_KEY.to_string(),
                value.to_string(),
            )]
        });
        let properties = WriterProperties::builder()
            .set_key_value_metadata(pairs)
            .build();
        let file = File::create(&path).expect("a file");
        let mut writer =
            ArrowWriter::try_new(file, batch.schema(), Some(properties)).expect("a writer");
        writer.write(&batch).expect("written");
        writer.close().expect("written");
        path
    }

    fn lines(folder: &Path, text: &str) -> PathBuf {
        let path = folder.join("t.jsonl");
        std::fs::write(&path, text).expect("written");
        path
    }

    fn expected() -> Rows {
        vec![
            ("a".into(), 0, vec![vec![1.5, 2.0], vec![0.5, 0.25]]),
            ("a".into(), 2, vec![vec![3.0], vec![1.0]]),
        ]
    }

    #[test]
    fn parquet_and_lines_give_the_same_rows() {
        let folder = tempfile::tempdir().expect("a folder");
        let list = |rows: [&[f64]; 2]| -> ArrayRef {
            let rows = rows.map(|row| Some(row.iter().map(|&v| Some(v)).collect::<Vec<_>>()));
            Arc::new(ListArray::from_iter_primitive::<
                arrow::datatypes::Float64Type,
                _,
                _,
            >(rows))
        };
        let path = parquet(
            folder.path(),
            vec![
                ("other", Arc::new(Int64Array::from(vec![7, 8])) as ArrayRef),
                ("reference", list([&[0.5, 0.25], &[1.0]])),
                ("doc_id", Arc::new(StringArray::from(vec!["a", "a"]))),
                ("token_index", Arc::new(Int64Array::from(vec![0, 2]))),
                ("loss", list([&[1.5, 2.0], &[3.0]])),
            ],
            Some("abc"),
        );
        let found = rows(&path, &["loss", "reference"]).expect("rows");
        assert_eq!(found, ("abc".to_string(), expected()));
        let path = lines(
            folder.path(),
            "{\"goodput.tokenizer_fingerprint\": \"abc\"}\n\
             {\"doc_id\": \"a\", \"loss\": [1.5, 2], \"reference\": [0.5, 0.25]}\n\n\
             {\"reference\": 1, \"doc_id\": \"a\", \"token_index\": 2, \"loss\": 3.0}",
        );
        assert_eq!(rows(&path, &["loss", "reference"]).expect("rows"), found);
    }

    #[test]
    fn a_row_a_token_is_read_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = parquet(
            folder.path(),
            vec![
                (
                    "doc_id",
                    Arc::new(StringArray::from(vec!["a", "a"])) as ArrayRef,
                ),
                ("token_index", Arc::new(Int64Array::from(vec![0, 1]))),
                ("loss", Arc::new(Float64Array::from(vec![1.0, f64::NAN]))),
            ],
            Some("abc"),
        );
        let (_, found) = rows(&path, &["loss"]).expect("rows");
        assert_eq!((found[0].1, &found[0].2), (0, &vec![vec![1.0]]));
        // What a number means is for others to say.
        assert!(found[1].1 == 1 && found[1].2[0][0].is_nan());
    }

    #[test]
    fn errors_name_the_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let refused = |path: &Path, words: &[&str]| {
            let error = rows(path, &["loss"]).expect_err("refused").to_string();
            assert!(
                words.iter().all(|word| error.contains(word)),
                "{words:?}: {error}"
            );
        };
        let header = "{\"goodput.tokenizer_fingerprint\": \"abc\"}\n";
        let of_lines = |text: &str, words: &[&str]| {
            refused(&lines(folder.path(), &format!("{header}{text}")), words);
        };
        refused(
            &lines(folder.path(), "{\"doc_id\": \"a\"}"),
            &["first record", FINGERPRINT_KEY],
        );
        refused(&lines(folder.path(), ""), &["first record"]);
        of_lines("{\"doc_id\": \"a\", \"loss\": [1, NaN]}", &["byte 41"]);
        of_lines(
            "{\"doc_id\": \"a\", \"loss\": [1, null]}",
            &["byte 41", "'loss' of 'a'", "null"],
        );
        of_lines("{\"doc_id\": \"a\"}", &["'loss' of 'a'", "nothing"]);
        of_lines("{\"loss\": [1]}", &["'doc_id'"]);
        of_lines(
            "{\"doc_id\": \"a\", \"loss\": 1, \"token_index\": -1}",
            &["'token_index'", "-1"],
        );
        let id = || ("doc_id", Arc::new(StringArray::from(vec!["a"])) as ArrayRef);
        for (index, found) in [(Some(-1), "got -1"), (None, "got null")] {
            let index: ArrayRef = Arc::new(Int64Array::from(vec![index]));
            let one: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
            let columns = vec![id(), ("token_index", index), ("loss", one)];
            refused(
                &parquet(folder.path(), columns, Some("abc")),
                &["row 0", "'token_index'", "0 or more", found],
            );
        }
        let path = parquet(folder.path(), vec![id()], Some("abc"));
        refused(&path, &["no column 'loss'", "doc_id"]);
        let loss = || {
            (
                "loss",
                Arc::new(Float64Array::from(vec![None::<f64>])) as ArrayRef,
            )
        };
        refused(
            &parquet(folder.path(), vec![id(), loss()], None),
            &[FINGERPRINT_KEY],
        );
        refused(
            &parquet(folder.path(), vec![id(), loss()], Some("abc")),
            &["row 0", "'loss'", "null"],
        );
        let text = ("loss", Arc::new(StringArray::from(vec!["x"])) as ArrayRef);
        refused(
            &parquet(folder.path(), vec![id(), text], Some("abc")),
            &["row 0", "numbers"],
        );
        std::fs::write(folder.path().join("t.csv"), "").expect("written");
        refused(&folder.path().join("t.csv"), &[".parquet"]);
    }
}
