//! The evidence of contamination: what `decontaminate` found, in `contamination/`.
//!
//! Not in `duplicates/`, whose rows name a kept document of the corpus for each dropped one, once: here
//! the other text is no document, a document has a row for each stretch, and it may have been kept.

use super::EngineError;
use super::emit::{Emit, arrow_error, entry, fresh_folder};
use super::teach::Taught;
use crate::shard::{Contamination, ContaminationRow, FileEntry, Part};
use std::collections::BTreeMap;

/// Rows of a row group.
const GROUP_ROWS: usize = 1 << 16;

impl Emit<'_> {
    /// Writes a row for each stretch that a stage found in a document that reached it, and each set that
    /// has the item; documents in the order (input, id). No file where no stage was given texts.
    pub fn contamination(
        &self,
        taught: &BTreeMap<u16, Taught>,
    ) -> Result<Vec<FileEntry>, EngineError> {
        if taught.is_empty() {
            return Ok(Vec::new());
        }
        let folder = self.out.join("contamination");
        fresh_folder(&folder)?;
        let path = folder.join("part-00000.parquet");
        let mut part = Part::create(&path, Contamination::schema(), &[])?;
        let mut rows: Vec<ContaminationRow> = Vec::new();
        let flush = |rows: &mut Vec<ContaminationRow>, part: &mut Part| {
            if !rows.is_empty() {
                let batch = Contamination::batch(rows).map_err(arrow_error)?;
                part.append(part.encoder().encode(&batch)?)?;
                rows.clear();
            }
            Ok::<(), EngineError>(())
        };
        let mut tokens = 0;
        let segments = self.corpus.segments();
        for rank in 0..self.corpus.len() {
            let number = self.decisions.number_at(rank);
            let (task, at) = self.corpus.locate(number);
            let mut any = false;
            let found = segments.iter().map(|corpus| &corpus.tasks[task]);
            for overlap in found.flat_map(|task| task.overlaps_of(at as u64)) {
                // A dedupe before the stage may have dropped the document first.
                let stage = overlap.stage as u16;
                if !self.decisions.reaches(number, stage) {
                    continue;
                }
                any = true;
                let document = self.corpus.row(number);
                for name in &taught[&stage].items[overlap.item as usize] {
                    rows.push(ContaminationRow {
                        doc_id: self.corpus.id(number),
                        source: self.corpus.source(document).to_string(),
                        stage: self.stages[usize::from(stage)].label.clone(),
                        byte_start: overlap.start,
                        byte_end: overlap.end,
                        set: name.set.clone(),
                        item_id: name.id.clone(),
                        items: name.items,
                        keys_held: overlap.keys_held,
                        keys: overlap.keys,
                    });
                    if rows.len() == GROUP_ROWS {
                        flush(&mut rows, &mut part)?;
                    }
                }
            }
            if any {
                tokens += u64::from(self.corpus.row(number).tokens);
            }
        }
        flush(&mut rows, &mut part)?;
        Ok(vec![entry(self.out, &path, part.finish()?, tokens)])
    }
}
