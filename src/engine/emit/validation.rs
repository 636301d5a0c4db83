//! What is held out of training, on its way into files.

use super::super::validation::HeldOut;
use super::super::{EngineError, options};
use super::{Emit, GROUP_POSITIONS, arrow_error, entry, fresh_folder, write_groups};
use crate::order::Item;
use crate::pack::{self, Frame, Row};
use crate::plan::global;
use crate::shard::{
    FileEntry, Part, SegmentRow, ShardRow, ShardRows, ShardShape, Validation, ValidationEntry,
};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use serde_json::json;

/// Token places of a row without padding.
fn positions(row: &Row) -> u64 {
    let tokens: u64 = row.segments.iter().map(|part| u64::from(part.tokens)).sum();
    tokens + u64::from(row.special_tokens)
}

impl Emit<'_> {
    /// Writes what is held out, a document a row in the order (input, id), with the special tokens that training has:
    /// parts of at most `shard_tokens` positions.
    ///
    /// # Errors
    /// When files cannot be written.
    pub fn validation(
        &self,
        held_out: &HeldOut,
        frame: Frame,
    ) -> Result<(Vec<FileEntry>, ValidationEntry), EngineError> {
        let folder = self.out.join(global::VALIDATION);
        fresh_folder(&folder)?;
        let shape = Validation::shape(self.fields);
        let schema = Validation::schema(&shape);
        let method = options::from_json("none", &json!({ "max_row_tokens": null }), &pack::specs());
        let packer = pack::build(&method.expect("'none' has this option alone"))
            .expect("it takes any value of it");
        let items = self
            .rejected()
            .filter(|(_, fate)| fate.stage == held_out.stage)
            .map(|(number, _)| {
                let row = self.corpus.row(number);
                Ok(Item {
                    number,
                    rank: self.decisions.rank_of(number),
                    content: row.content,
                    id_hash: row.id_hash,
                    tokens: u64::from(row.tokens),
                    copy: 0,
                })
            });
        let mut rows = packer.pack(Box::new(items), frame).peekable();
        let (mut files, mut next, mut all_positions) = (Vec::new(), 0u64, 0u64);
        // The first part is written even when nothing was drawn: the folder says so.
        while rows.peek().is_some() || files.is_empty() {
            let path = folder.join(format!("shard-{:05}.parquet", files.len()));
            let mut part = Part::create(&path, schema.clone(), &self.metadata)?;
            let mut in_part = 0;
            loop {
                let mut groups: Vec<(u64, Vec<Row>)> = Vec::new();
                let mut full = false;
                while groups.len() < rayon::current_num_threads() && !full {
                    let (mut group, mut in_group) = ((next, Vec::new()), 0);
                    while let Some(row) = rows.peek() {
                        let length = row.as_ref().map_or(0, positions);
                        full = in_part > 0 && in_part + length > frame.shard_tokens;
                        if full || (in_group > 0 && in_group + length > GROUP_POSITIONS) {
                            break;
                        }
                        group.1.extend(rows.next().transpose()?);
                        (in_part, in_group, next) = (in_part + length, in_group + length, next + 1);
                    }
                    if group.1.is_empty() {
                        break;
                    }
                    groups.push(group);
                }
                if groups.is_empty() {
                    break;
                }
                write_groups(
                    &mut part,
                    &groups,
                    self.stop,
                    |(_, rows)| rows.iter().map(positions).sum(),
                    |(first, rows), schema, batches| {
                        batches(self.held_out_rows(held_out, *first, rows, &shape, schema)?)
                    },
                    &schema,
                    |_, ()| {},
                )?;
            }
            all_positions += in_part;
            files.push(entry(self.out, &path, part.finish()?, in_part));
        }
        Ok((files, held_out.entry(next, all_positions)))
    }

    fn held_out_rows(
        &self,
        held_out: &HeldOut,
        first: u64,
        group: &[Row],
        shape: &ShardShape,
        schema: &SchemaRef,
    ) -> Result<RecordBatch, EngineError> {
        let mut rows = ShardRows::new(first);
        let mut more = Vec::with_capacity(group.len());
        for row in group {
            let segment = &row.segments[0];
            let number = segment.item.number;
            let document = self.corpus.row(number);
            let start = segment.doc_token_start as usize;
            if segment.begins {
                self.special(&mut rows, self.ids.begin);
            }
            rows.input_ids.extend_from_slice(
                &self.corpus.tokens(number)[start..start + segment.tokens as usize],
            );
            if segment.ends {
                self.special(&mut rows, self.ids.end);
            }
            rows.push(ShardRow {
                segments: vec![SegmentRow {
                    doc_id: self.corpus.id(number),
                    source: self.corpus.source(document).to_string(),
                    row_start: segment.row_start,
                    doc_token_start: segment.doc_token_start,
                    tokens: segment.tokens,
                    copy: 0,
                    score: None,
                }],
                special_tokens: row.special_tokens,
                padding: 0,
                fields: self.corpus.fields(number),
            });
            // A begin token may stand in a row alone before the first one with text.
            let is_first = start == 0 && (segment.tokens > 0 || segment.item.tokens == 0);
            let bytes = if is_first { document.text_bytes } else { 0 };
            more.push((bytes, held_out.group(number)));
        }
        Validation::batch(rows, &more, shape, schema).map_err(arrow_error)
    }
}
