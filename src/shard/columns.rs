//! Columns of shards, rejects and duplicates.

use crate::record::{FieldSpec, FieldType, FieldValue};
use arrow::array::{
    ArrayRef, BooleanArray, BooleanBuilder, Float32Array, Float64Array, Float64Builder, Int64Array,
    Int64Builder, ListArray, StringArray, StringBuilder, StructArray, UInt8Array, UInt32Array,
    UInt64Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use serde_json::{Value, json};
use std::sync::Arc;

/// How usefulness is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsefulnessType {
    /// One byte: value / 255, rounded half to even.
    U8,
    /// As computed.
    F32,
}

/// Which columns a pipeline's shards have.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardShape {
    /// Whether rows hold segments of several documents.
    pub packed: bool,
    /// Present where the pipeline has a `score` stage.
    pub usefulness: Option<UsefulnessType>,
    /// Whether the raw excess is emitted.
    pub excess_nats: bool,
    /// Declared fields, emitted in unpacked shards.
    pub fields: Vec<FieldSpec>,
}

/// A stretch of one document in a row.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentRow {
    /// Id of the document.
    pub doc_id: String,
    /// Its source.
    pub source: String,
    /// Position in the row of its first token of text.
    pub row_start: u32,
    /// Where in the document it begins, in tokens.
    pub doc_token_start: u32,
    /// Tokens of text.
    pub tokens: u32,
    /// 0 for the first emission of the document.
    pub copy: u32,
    /// Score of the document; `None` without a `score` stage.
    pub score: Option<f32>,
}

/// One row of a shard, without its tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardRow {
    /// Segments in order; exactly one where rows are not packed.
    pub segments: Vec<SegmentRow>,
    /// Begin and end tokens in the row.
    pub special_tokens: u32,
    /// Padding places at its end.
    pub padding: u32,
    /// Values of the declared fields; empty where rows are packed.
    pub fields: Vec<FieldValue>,
}

/// Rows on their way into a batch.
#[derive(Debug, Default)]
pub struct ShardRows {
    rows: Vec<ShardRow>,
    first_position: u64,
    ends: Vec<i32>,
    /// Token ids of all rows, one row after another. Callers append a row's ids, then call [`ShardRows::push`].
    pub input_ids: Vec<u32>,
    /// Usefulness bytes, as long as `input_ids`, or empty.
    pub usefulness_u8: Vec<u8>,
    /// Usefulness as computed, as long as `input_ids`, or empty.
    pub usefulness_f32: Vec<f32>,
    /// Excess, as long as `input_ids`, or empty.
    pub excess_nats: Vec<f32>,
}

impl ShardRows {
    /// Rows from number `first_position` on.
    pub fn new(first_position: u64) -> Self {
        ShardRows {
            first_position,
            ..ShardRows::default()
        }
    }
    /// Ends a row whose tokens have been appended.
    pub fn push(&mut self, row: ShardRow) {
        self.rows.push(row);
        self.ends.push(
            i32::try_from(self.input_ids.len()).expect("a batch holds fewer than 2^31 tokens"),
        );
    }
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
    /// The batch.
    ///
    /// # Errors
    /// When columns do not agree in length, which only a bug can cause.
    pub fn into_batch(
        self,
        shape: &ShardShape,
        schema: &SchemaRef,
    ) -> Result<RecordBatch, ArrowError> {
        let rows = &self.rows;
        let offsets = || {
            let mut all = Vec::with_capacity(self.ends.len() + 1);
            all.push(0);
            all.extend_from_slice(&self.ends);
            OffsetBuffer::new(ScalarBuffer::from(all))
        };
        let list = |kind: DataType, values: ArrayRef| -> Result<ArrayRef, ArrowError> {
            Ok(Arc::new(ListArray::try_new(
                element(kind),
                offsets(),
                values,
                None,
            )?))
        };
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(UInt64Array::from_iter_values(
                self.first_position..self.first_position + rows.len() as u64,
            )),
            list(
                DataType::UInt32,
                Arc::new(UInt32Array::from(self.input_ids)),
            )?,
        ];
        match shape.usefulness {
            Some(UsefulnessType::U8) => {
                columns.push(list(
                    DataType::UInt8,
                    Arc::new(UInt8Array::from(self.usefulness_u8)),
                )?);
            }
            Some(UsefulnessType::F32) => {
                columns.push(list(
                    DataType::Float32,
                    Arc::new(Float32Array::from(self.usefulness_f32)),
                )?);
            }
            None => {}
        }
        if shape.excess_nats {
            columns.push(list(
                DataType::Float32,
                Arc::new(Float32Array::from(self.excess_nats)),
            )?);
        }
        if shape.packed {
            let segments: Vec<&SegmentRow> = rows.iter().flat_map(|row| &row.segments).collect();
            let mut ends = vec![0i32];
            let mut end = 0;
            for row in rows {
                end += row.segments.len() as i32;
                ends.push(end);
            }
            let values =
                StructArray::try_new(segment_fields(), segment_columns(&segments, true), None)?;
            columns.push(Arc::new(ListArray::try_new(
                element(DataType::Struct(segment_fields())),
                OffsetBuffer::new(ScalarBuffer::from(ends)),
                Arc::new(values),
                None,
            )?));
            columns.push(Arc::new(UInt32Array::from_iter_values(
                rows.iter().map(|row| row.special_tokens),
            )));
            columns.push(Arc::new(UInt32Array::from_iter_values(
                rows.iter().map(|row| row.padding),
            )));
        } else {
            let segments: Vec<&SegmentRow> = rows.iter().map(|row| &row.segments[0]).collect();
            columns.extend(segment_columns(&segments, false));
            columns.push(Arc::new(UInt32Array::from_iter_values(
                rows.iter().map(|row| row.special_tokens),
            )));
            columns.extend(field_columns(
                &shape.fields,
                rows.iter().map(|row| &row.fields[..]),
            ));
        }
        RecordBatch::try_new(schema.clone(), columns)
    }
}

fn element(kind: DataType) -> Arc<Field> {
    Arc::new(Field::new("element", kind, false))
}

fn list(name: &str, kind: DataType) -> Field {
    Field::new(name, DataType::List(element(kind)), false)
}

fn segment_fields() -> Fields {
    Fields::from(vec![
        Field::new("doc_id", DataType::Utf8, false),
        Field::new("source", DataType::Utf8, false),
        Field::new("row_start", DataType::UInt32, false),
        Field::new("doc_token_start", DataType::UInt32, false),
        Field::new("tokens", DataType::UInt32, false),
        Field::new("copy", DataType::UInt32, false),
        Field::new("score", DataType::Float32, true),
    ])
}

fn segment_columns(segments: &[&SegmentRow], packed: bool) -> Vec<ArrayRef> {
    let number = |of: fn(&SegmentRow) -> u32| -> ArrayRef {
        Arc::new(UInt32Array::from_iter_values(
            segments.iter().map(|segment| of(segment)),
        ))
    };
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(
            segments.iter().map(|segment| &segment.doc_id),
        )),
        Arc::new(StringArray::from_iter_values(
            segments.iter().map(|segment| &segment.source),
        )),
    ];
    if packed {
        columns.push(number(|segment| segment.row_start));
    }
    columns.push(number(|segment| segment.doc_token_start));
    if packed {
        columns.push(number(|segment| segment.tokens));
    }
    columns.push(number(|segment| segment.copy));
    columns.push(Arc::new(
        segments
            .iter()
            .map(|segment| segment.score)
            .collect::<Float32Array>(),
    ));
    columns
}

fn field_schema(fields: &[FieldSpec]) -> Vec<Field> {
    fields
        .iter()
        .map(|field| {
            let kind = match field.kind {
                FieldType::String => DataType::Utf8,
                FieldType::Int => DataType::Int64,
                FieldType::Float => DataType::Float64,
                FieldType::Bool => DataType::Boolean,
            };
            Field::new(&field.name, kind, true)
        })
        .collect()
}

fn field_columns<'a>(
    fields: &[FieldSpec],
    rows: impl Iterator<Item = &'a [FieldValue]> + Clone,
) -> Vec<ArrayRef> {
    // The readers give only values of the declared type, so anything else is null.
    fields
        .iter()
        .enumerate()
        .map(|(at, field)| -> ArrayRef {
            let values = rows.clone().map(|row| &row[at]);
            match field.kind {
                FieldType::String => {
                    let mut builder = StringBuilder::new();
                    values.for_each(|v| {
                        builder.append_option(if let FieldValue::String(v) = v {
                            Some(v)
                        } else {
                            None
                        })
                    });
                    Arc::new(builder.finish())
                }
                FieldType::Int => {
                    let mut builder = Int64Builder::new();
                    values.for_each(|v| {
                        builder.append_option(if let FieldValue::Int(v) = v {
                            Some(*v)
                        } else {
                            None
                        })
                    });
                    Arc::new(builder.finish())
                }
                FieldType::Float => {
                    let mut builder = Float64Builder::new();
                    values.for_each(|v| {
                        builder.append_option(match v {
                            FieldValue::Float(v) => Some(*v),
                            FieldValue::Int(v) => Some(*v as f64),
                            _ => None,
                        });
                    });
                    Arc::new(builder.finish())
                }
                FieldType::Bool => {
                    let mut builder = BooleanBuilder::new();
                    values.for_each(|v| {
                        builder.append_option(if let FieldValue::Bool(v) = v {
                            Some(*v)
                        } else {
                            None
                        })
                    });
                    Arc::new(builder.finish())
                }
            }
        })
        .collect()
}

/// Columns of a shard.
pub fn schema(shape: &ShardShape) -> SchemaRef {
    let mut fields = vec![
        Field::new("position", DataType::UInt64, false),
        list("input_ids", DataType::UInt32),
    ];
    match shape.usefulness {
        Some(UsefulnessType::U8) => fields.push(list("usefulness", DataType::UInt8)),
        Some(UsefulnessType::F32) => fields.push(list("usefulness", DataType::Float32)),
        None => {}
    }
    if shape.excess_nats {
        fields.push(list("excess_nats", DataType::Float32));
    }
    if shape.packed {
        fields.push(list("segments", DataType::Struct(segment_fields())));
        fields.push(Field::new("special_tokens", DataType::UInt32, false));
        fields.push(Field::new("padding", DataType::UInt32, false));
    } else {
        fields.push(Field::new("doc_id", DataType::Utf8, false));
        fields.push(Field::new("source", DataType::Utf8, false));
        fields.push(Field::new("doc_token_start", DataType::UInt32, false));
        fields.push(Field::new("copy", DataType::UInt32, false));
        fields.push(Field::new("score", DataType::Float32, true));
        fields.push(Field::new("special_tokens", DataType::UInt32, false));
        fields.extend(field_schema(&shape.fields));
    }
    Arc::new(Schema::new(fields))
}

/// A document that was turned away.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectRow {
    /// Id of the document.
    pub doc_id: String,
    /// Its source.
    pub source: String,
    /// Label of the stage.
    pub stage: String,
    /// The stage's reason.
    pub reason: String,
    /// The deciding value, in the unit that the reason's doc names.
    pub value: f64,
    /// For duplicates, the kept document.
    pub kept_id: Option<String>,
    /// The earlier release that the kept document stands in, where it is none of this run.
    pub kept_release: Option<String>,
    /// Tokens of its text.
    pub tokens: u32,
    /// Its score, where `score` ran before.
    pub score: Option<f32>,
    /// Text, where `rejects: text`.
    pub text: Option<String>,
    /// Values of the declared fields.
    pub fields: Vec<FieldValue>,
    /// Whether usefulness was computed for it.
    pub scored: bool,
}

/// Rejects on their way into a batch.
#[derive(Debug, Default)]
pub struct Rejects {
    rows: Vec<RejectRow>,
    /// Token ids of all rows, where they are kept.
    pub input_ids: Vec<u32>,
    /// Usefulness bytes of the scored rows.
    pub usefulness: Vec<u8>,
    id_ends: Vec<i32>,
    usefulness_ends: Vec<i32>,
}

impl Rejects {
    /// Ends a row whose tokens have been appended.
    pub fn push(&mut self, row: RejectRow) {
        self.rows.push(row);
        self.id_ends.push(
            i32::try_from(self.input_ids.len()).expect("a batch holds fewer than 2^31 tokens"),
        );
        self.usefulness_ends
            .push(i32::try_from(self.usefulness.len()).expect("as many as tokens at most"));
    }
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
    /// Columns: `tokens` keeps ids, `text` keeps the text too.
    pub fn schema(tokens: bool, text: bool, fields: &[FieldSpec]) -> SchemaRef {
        let mut columns = vec![
            Field::new("doc_id", DataType::Utf8, false),
            Field::new("source", DataType::Utf8, false),
            Field::new("stage", DataType::Utf8, false),
            Field::new("reason", DataType::Utf8, false),
            Field::new("value", DataType::Float64, false),
            Field::new("kept_id", DataType::Utf8, true),
            Field::new("kept_release", DataType::Utf8, true),
            Field::new("tokens", DataType::UInt32, false),
            Field::new("score", DataType::Float32, true),
            Field::new("usefulness", DataType::List(element(DataType::UInt8)), true),
        ];
        if tokens {
            columns.push(list("input_ids", DataType::UInt32));
        }
        if text {
            columns.push(Field::new("text", DataType::Utf8, false));
        }
        columns.extend(field_schema(fields));
        Arc::new(Schema::new(columns))
    }
    /// The batch.
    ///
    /// # Errors
    /// When columns do not agree in length, which only a bug can cause.
    pub fn into_batch(
        self,
        fields: &[FieldSpec],
        schema: &SchemaRef,
    ) -> Result<RecordBatch, ArrowError> {
        let rows = &self.rows;
        let text = |of: fn(&RejectRow) -> &str| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(rows.iter().map(of)))
        };
        let offsets = |ends: &[i32]| {
            let mut all = vec![0];
            all.extend_from_slice(ends);
            OffsetBuffer::new(ScalarBuffer::from(all))
        };
        let scored: Vec<bool> = rows.iter().map(|row| row.scored).collect();
        let mut columns: Vec<ArrayRef> = vec![
            text(|row| &row.doc_id),
            text(|row| &row.source),
            text(|row| &row.stage),
            text(|row| &row.reason),
            Arc::new(Float64Array::from_iter_values(
                rows.iter().map(|row| row.value),
            )),
            Arc::new(
                rows.iter()
                    .map(|row| row.kept_id.as_deref())
                    .collect::<StringArray>(),
            ),
            Arc::new(
                rows.iter()
                    .map(|row| row.kept_release.as_deref())
                    .collect::<StringArray>(),
            ),
            Arc::new(UInt32Array::from_iter_values(
                rows.iter().map(|row| row.tokens),
            )),
            Arc::new(rows.iter().map(|row| row.score).collect::<Float32Array>()),
            Arc::new(ListArray::try_new(
                element(DataType::UInt8),
                offsets(&self.usefulness_ends),
                Arc::new(UInt8Array::from(self.usefulness)),
                Some(NullBuffer::from(scored)),
            )?),
        ];
        if schema.field_with_name("input_ids").is_ok() {
            columns.push(Arc::new(ListArray::try_new(
                element(DataType::UInt32),
                offsets(&self.id_ends),
                Arc::new(UInt32Array::from(self.input_ids)),
                None,
            )?));
        }
        if schema.field_with_name("text").is_ok() {
            columns.push(text(|row| row.text.as_deref().unwrap_or("")));
        }
        columns.extend(field_columns(
            fields,
            rows.iter().map(|row| &row.fields[..]),
        ));
        RecordBatch::try_new(schema.clone(), columns)
    }
}

/// Evidence of one duplicate.
#[derive(Clone, Debug, PartialEq)]
pub struct DuplicateRow {
    /// The document that went.
    pub dropped_id: String,
    /// The one that stayed.
    pub kept_id: String,
    /// The earlier release that it stands in, where it is none of this run.
    pub kept_release: Option<String>,
    /// Exact similarity.
    pub similarity: f32,
    /// Label of the stage and its keep rule, e.g. `near_dedupe keep first`.
    pub rule: String,
    /// Tokens of the document that went.
    pub tokens: u32,
}

/// Duplicates on their way into a batch.
pub struct Duplicates;

impl Duplicates {
    /// Columns of the evidence.
    pub fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![
            Field::new("dropped_id", DataType::Utf8, false),
            Field::new("kept_id", DataType::Utf8, false),
            Field::new("similarity", DataType::Float32, false),
            Field::new("rule", DataType::Utf8, false),
            Field::new("tokens", DataType::UInt32, false),
            Field::new("kept_release", DataType::Utf8, true),
        ]))
    }
    /// The batch.
    ///
    /// # Errors
    /// When columns do not agree in length, which only a bug can cause.
    pub fn batch(rows: &[DuplicateRow]) -> Result<RecordBatch, ArrowError> {
        RecordBatch::try_new(
            Duplicates::schema(),
            vec![
                Arc::new(StringArray::from_iter_values(
                    rows.iter().map(|row| &row.dropped_id),
                )),
                Arc::new(StringArray::from_iter_values(
                    rows.iter().map(|row| &row.kept_id),
                )),
                Arc::new(Float32Array::from_iter_values(
                    rows.iter().map(|row| row.similarity),
                )),
                Arc::new(StringArray::from_iter_values(
                    rows.iter().map(|row| &row.rule),
                )),
                Arc::new(UInt32Array::from_iter_values(
                    rows.iter().map(|row| row.tokens),
                )),
                Arc::new(
                    rows.iter()
                        .map(|row| row.kept_release.as_deref())
                        .collect::<StringArray>(),
                ),
            ],
        )
    }
}

/// One stretch that was cut out of a document.
#[derive(Clone, Debug, PartialEq)]
pub struct CutEvidence {
    /// The document.
    pub doc_id: String,
    /// Its source.
    pub source: String,
    /// Label of the stage.
    pub stage: String,
    /// The stage's reason.
    pub reason: String,
    /// First byte of the stretch, in the text as it reached the stage.
    pub byte_start: u64,
    /// The byte after its last one.
    pub byte_end: u64,
    /// The document that keeps what was cut here, where there is one.
    pub kept_id: Option<String>,
    /// With the first cut that a stage made in a document, its tokens before less those after all of them; else 0.
    pub tokens: i64,
    /// Whether nothing was left, so that the stage rejected the document as it was.
    pub nothing_left: bool,
}

/// Cuts on their way into a batch.
pub struct Edits;

impl Edits {
    /// Columns of the evidence.
    pub fn schema() -> SchemaRef {
        let column = |name: &str, kind: DataType| Field::new(name, kind, name == "kept_id");
        Arc::new(Schema::new(vec![
            column("doc_id", DataType::Utf8),
            column("source", DataType::Utf8),
            column("stage", DataType::Utf8),
            column("reason", DataType::Utf8),
            column("byte_start", DataType::UInt64),
            column("byte_end", DataType::UInt64),
            column("kept_id", DataType::Utf8),
            column("tokens", DataType::Int64),
            column("nothing_left", DataType::Boolean),
        ]))
    }
    /// The batch.
    ///
    /// # Errors
    /// When columns do not agree in length, which only a bug can cause.
    pub fn batch(rows: &[CutEvidence]) -> Result<RecordBatch, ArrowError> {
        let text = |of: fn(&CutEvidence) -> &String| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(rows.iter().map(of)))
        };
        let place = |of: fn(&CutEvidence) -> u64| -> ArrayRef {
            Arc::new(UInt64Array::from_iter_values(rows.iter().map(of)))
        };
        let kept: StringArray = rows.iter().map(|row| row.kept_id.as_deref()).collect();
        let nothing_left: Vec<bool> = rows.iter().map(|row| row.nothing_left).collect();
        RecordBatch::try_new(
            Edits::schema(),
            vec![
                text(|row| &row.doc_id),
                text(|row| &row.source),
                text(|row| &row.stage),
                text(|row| &row.reason),
                place(|row| row.byte_start),
                place(|row| row.byte_end),
                Arc::new(kept),
                Arc::new(Int64Array::from_iter_values(
                    rows.iter().map(|row| row.tokens),
                )),
                Arc::new(BooleanArray::from(nothing_left)),
            ],
        )
    }
}

/// One kept document, or a copy of it, in curriculum order: what the order was made from.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderRow {
    /// Id of the document.
    pub doc_id: String,
    /// Its source.
    pub source: String,
    /// Place in the order (place in `inputs`, id), the last tie-breaker.
    pub rank: u64,
    /// Hash of its token ids, high half first, the first tie-breaker.
    pub content: [u64; 2],
    /// Tokens of its text.
    pub tokens: u32,
    /// How many times it stands earlier in the order.
    pub copy: u32,
    /// Values of the sort keys, in the order of the file's key columns.
    pub keys: Vec<f64>,
    /// Hash of its group of similar documents, where others were held out.
    pub group_hash: Option<u64>,
}

/// The column of the hash of a group of similar documents.
pub(super) const GROUP_HASH: &str = "group_hash";
/// The column of the bytes of a document's text.
pub(super) const TEXT_BYTES: &str = "text_bytes";

/// Documents that are held out of training: rows of unpacked shards with two columns more.
pub struct Validation;

impl Validation {
    /// The shape of the columns that are those of a shard.
    pub fn shape(fields: &[FieldSpec]) -> ShardShape {
        ShardShape {
            packed: false,
            usefulness: None,
            excess_nats: false,
            fields: fields.to_vec(),
        }
    }
    /// Columns: those of a shard, the UTF-8 bytes of the text (with the first row of a document; 0 with further ones),
    /// and the hash of its group.
    pub fn schema(shape: &ShardShape) -> SchemaRef {
        let mut columns = schema(shape).fields().to_vec();
        columns.push(Arc::new(Field::new(TEXT_BYTES, DataType::UInt64, false)));
        columns.push(Arc::new(Field::new(GROUP_HASH, DataType::UInt64, false)));
        Arc::new(Schema::new(columns))
    }
    /// The batch: of each row the bytes and the hash.
    ///
    /// # Errors
    /// When columns do not agree in length, which only a bug can cause.
    pub fn batch(
        rows: ShardRows,
        more: &[(u64, u64)],
        shape: &ShardShape,
        columns: &SchemaRef,
    ) -> Result<RecordBatch, ArrowError> {
        let batch = rows.into_batch(shape, &schema(shape))?;
        let mut values = batch.columns().to_vec();
        values.push(Arc::new(UInt64Array::from_iter_values(
            more.iter().map(|(bytes, _)| *bytes),
        )));
        values.push(Arc::new(UInt64Array::from_iter_values(
            more.iter().map(|(_, hash)| *hash),
        )));
        RecordBatch::try_new(columns.clone(), values)
    }
}

/// The curriculum, document by document.
pub struct Order;

impl Order {
    /// Columns of the order file; `keys` are the sort keys of the strategy. `grouped` where documents were held out.
    pub fn schema(keys: &[String], grouped: bool) -> SchemaRef {
        let mut columns = vec![
            Field::new("place", DataType::UInt64, false),
            Field::new("doc_id", DataType::Utf8, false),
            Field::new("source", DataType::Utf8, false),
            Field::new("rank", DataType::UInt64, false),
            Field::new("content_high", DataType::UInt64, false),
            Field::new("content_low", DataType::UInt64, false),
            Field::new("tokens", DataType::UInt32, false),
            Field::new("copy", DataType::UInt32, false),
        ];
        if grouped {
            columns.push(Field::new(GROUP_HASH, DataType::UInt64, false));
        }
        // A key may have the name of a column, e.g. a declared field `source`, so it has a prefix.
        columns.extend(
            keys.iter()
                .map(|key| Field::new(format!("by_{key}"), DataType::Float64, false)),
        );
        Arc::new(Schema::new(columns))
    }
    /// The batch of the documents from `first_place` on.
    ///
    /// # Errors
    /// When columns do not agree in length, which only a bug can cause.
    pub fn batch(
        first_place: u64,
        rows: &[OrderRow],
        schema: &SchemaRef,
    ) -> Result<RecordBatch, ArrowError> {
        let number = |of: fn(&OrderRow) -> u64| -> ArrayRef {
            Arc::new(UInt64Array::from_iter_values(rows.iter().map(of)))
        };
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(UInt64Array::from_iter_values(
                first_place..first_place + rows.len() as u64,
            )),
            Arc::new(StringArray::from_iter_values(
                rows.iter().map(|row| &row.doc_id),
            )),
            Arc::new(StringArray::from_iter_values(
                rows.iter().map(|row| &row.source),
            )),
            number(|row| row.rank),
            number(|row| row.content[0]),
            number(|row| row.content[1]),
            Arc::new(UInt32Array::from_iter_values(
                rows.iter().map(|row| row.tokens),
            )),
            Arc::new(UInt32Array::from_iter_values(
                rows.iter().map(|row| row.copy),
            )),
        ];
        if schema.field_with_name(GROUP_HASH).is_ok() {
            columns.push(Arc::new(UInt64Array::from_iter_values(
                rows.iter().map(|row| row.group_hash.unwrap_or(0)),
            )));
        }
        for key in 0..schema.fields().len() - columns.len() {
            columns.push(Arc::new(Float64Array::from_iter_values(
                rows.iter().map(|row| row.keys[key]),
            )));
        }
        RecordBatch::try_new(schema.clone(), columns)
    }
}

/// The JSON Schema of a row of a shard, as any Parquet reader shows it.
pub(super) fn row_schema() -> Value {
    let u32s = json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX });
    let text = json!({ "type": "string" });
    let score = json!({ "type": ["number", "null"], "description": "score of the document; null without a score stage" });
    let common = json!({
        "position": { "type": "integer", "minimum": 0, "description": "number of the row over all shards, from 0" },
        "input_ids": { "type": "array", "items": u32s, "description": "token ids" },
        "usefulness": { "type": "array", "items": { "type": "number", "minimum": 0 },
            "description": "one value per token: a byte, value / 255 (or the number itself where output.usefulness is f32); 0 on special tokens and padding; absent without a score stage" },
        "excess_nats": { "type": "array", "items": { "type": "number" }, "description": "raw excess per token, where asked for" },
        "special_tokens": u32s
    });
    let with = |extra: Value, required: &[&str]| {
        let mut properties = common.as_object().expect("written as an object").clone();
        properties.extend(extra.as_object().expect("written as an object").clone());
        json!({ "type": "object", "required": required, "properties": properties })
    };
    let segment = json!({
        "type": "object",
        "required": ["doc_id", "source", "row_start", "doc_token_start", "tokens", "copy"],
        "properties": {
            "doc_id": text, "source": text, "row_start": u32s, "doc_token_start": u32s,
            "tokens": u32s, "copy": u32s, "score": score
        }
    });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "goodput shard: one row",
        "oneOf": [
            with(
                json!({ "segments": { "type": "array", "items": segment }, "padding": u32s }),
                &["position", "input_ids", "segments", "special_tokens", "padding"],
            ),
            with(
                json!({ "doc_id": text, "source": text, "doc_token_start": u32s, "copy": u32s, "score": score,
                    "text_bytes": { "type": "integer", "minimum": 0,
                        "description": "in validation/: UTF-8 bytes of the document's text with its first row, 0 with further ones" },
                    "group_hash": { "type": "integer", "minimum": 0,
                        "description": "in validation/: hash of its group of similar documents" } }),
                &["position", "input_ids", "doc_id", "source", "doc_token_start", "copy", "special_tokens"],
            )
        ]
    })
}
