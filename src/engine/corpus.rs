//! What prepare left behind: every document by number, mapped from files.
//!
//! `number` is the place in reading order (input, file name, place in the file), dense from 0. It
//! does not depend on how the work was cut.
//!
//! Where an edit cuts the chain of stages into segments, each segment has a corpus of its own, with the
//! same documents by the same numbers: those that went on with the text that they have in it, those that
//! were turned away before as they were then. So the last one says how each document ended, and is the
//! only one that `emit`, scores and orders look at; the earlier ones know what was read.

use super::inputs::{InputFile, Inputs};
use super::progress::Flow;
use crate::dedupe::UnitRow;
use crate::record::{FieldValue, Language, without};
use crate::spill::Column;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The document passed every per-document stage.
pub const NO_STAGE: u16 = u16::MAX;
/// The stage failed on the document, it did not reject it.
pub const FAILED: u16 = u16::MAX;
/// Flag: the text spells a special token.
pub const SPELLS_SPECIAL: u32 = 1;
/// No document is the reason for a cut.
pub const NO_DOCUMENT: u64 = u64::MAX;

/// One document on the index: 96 bytes.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct DocRow {
    /// Byte offset or row number in its file.
    pub place: u64,
    /// Bytes of the text.
    pub text_bytes: u64,
    /// First token in the task's token file.
    pub tokens_start: u64,
    /// First byte in the task's file of ids and fields.
    pub meta_start: u64,
    /// First byte in the task's text file, where texts are kept.
    pub text_start: u64,
    /// Hash of the token ids, high half first.
    pub content: [u64; 2],
    /// Unkeyed hash of the id.
    pub id_hash: u64,
    /// Deciding value of the first per-document stage that rejects it.
    pub verdict_value: f64,
    /// Number of tokens.
    pub tokens: u32,
    /// Length of its id and fields.
    pub meta_bytes: u32,
    /// Number of its file.
    pub file: u32,
    /// See [`SPELLS_SPECIAL`].
    pub flags: u32,
    /// First per-document stage that rejects it or fails, by its place in the chain; else [`NO_STAGE`].
    pub verdict_stage: u16,
    /// That stage's reason, or [`FAILED`].
    pub verdict_reason: u16,
    /// Number of tokens before any edit.
    pub tokens_read: u32,
}

/// What one stage cut out of one document: 48 bytes. The cuts of a document that was turned away because
/// nothing was left are noted too, and take nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct EditRow {
    /// Place of the document in the task.
    pub document: u64,
    /// Bytes of the text before the edit less those after it.
    pub bytes: i64,
    /// The same of its tokens.
    pub tokens: i64,
    /// First of its cuts in the task's file of cuts.
    pub first_cut: u64,
    /// Number of its cuts.
    pub cuts: u32,
    /// 1 where nothing was left, so that the stage turned the document away as it was.
    pub nothing_left: u32,
    /// Stage in the chain.
    pub stage: u16,
    /// Reason of that stage.
    pub reason: u16,
    /// Nothing.
    pub unused: u32,
}

/// A stretch of a text that was cut out: 24 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct CutRow {
    /// First byte, in the text as it reached the stage.
    pub start: u64,
    /// The byte after the last one.
    pub end: u64,
    /// Number of the document that keeps what is cut here, or [`NO_DOCUMENT`].
    pub kept: u64,
}

impl CutRow {
    /// Where it is.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// A stretch of a document's text that stands in a text that a stage was given: 40 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct OverlapRow {
    /// Place of the document in its task; in a part of a task, in the part.
    pub document: u64,
    /// First byte, in the text as it reached the stage.
    pub start: u64,
    /// The byte after the last one.
    pub end: u64,
    /// Number of the other text among those of the stage.
    pub item: u32,
    /// Its keys that the document holds.
    pub keys_held: u32,
    /// Its keys.
    pub keys: u32,
    /// Stage in the chain.
    pub stage: u32,
}

/// The shingle set of one document: where it stands in the task's file of shingles.
#[derive(Clone, Copy, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct SetRow {
    /// First shingle.
    pub start: u64,
    /// Shingles; 0 where the document does not take part.
    pub length: u32,
    /// 1 where the text had fewer words than a shingle.
    pub short: u32,
}

/// The units of one document that a dedupe by paragraph or line compares.
#[derive(Clone, Copy, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct UnitSet {
    /// First unit in the task's file of units.
    pub start: u64,
    /// Number of units; 0 where the document does not take part.
    pub units: u64,
}

/// The language of one document, as a stage found it.
#[derive(Clone, Copy, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct LanguageRow {
    /// Its code, zero where none was found.
    pub code: [u8; 8],
    /// Its probability.
    pub probability: f32,
}

/// Sums over a task, merged by addition. Those over records are of the first segment only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskInfo {
    /// Documents on the index.
    pub documents: u64,
    /// Their tokens.
    pub tokens: u64,
    /// Records read by file number.
    pub records: BTreeMap<u32, u64>,
    /// Records left out by `--sample`, by file number.
    pub left_out: BTreeMap<u32, u64>,
    /// Quarantined records and their bytes, by file number and reason.
    pub quarantined: BTreeMap<u32, BTreeMap<String, (u64, u64)>>,
    /// What stages left undone: stage in the chain, note, count.
    pub notes: BTreeMap<u16, BTreeMap<u16, u64>>,
    /// Files that ended too early, by number.
    pub truncated: BTreeMap<u32, String>,
    /// What reached the per-document stages and was kept, by stage in the chain, for whoever watches the run.
    pub passed: BTreeMap<u16, Flow>,
    /// Seconds that workers were busy.
    pub busy_seconds: f64,
}

/// A near-dedupe stage's files of one task.
pub struct NearData {
    /// By document of the task.
    pub sets: Column<SetRow>,
    /// Sorted sets, one after another.
    pub shingles: Column<u64>,
    /// Band hashes, `bands` for each document that takes part, in order.
    pub bands: Column<u64>,
}

/// The files of one task of a dedupe by paragraph or line.
pub struct UnitData {
    /// By document of the task.
    pub sets: Column<UnitSet>,
    /// Units of the documents, one after another.
    pub rows: Column<UnitRow>,
}

/// One task's files.
pub struct TaskData {
    /// The index.
    pub docs: Column<DocRow>,
    /// Token ids.
    pub tokens: Column<u32>,
    meta: Column<u8>,
    text: Option<Column<u8>>,
    /// Edits, by document, those of one document in the order of the chain.
    pub edits: Column<EditRow>,
    /// Their cuts, one edit's after another's.
    pub cuts: Column<CutRow>,
    /// What stages found of texts that they were given, by document, then stage and stretch.
    pub overlaps: Column<OverlapRow>,
    /// Languages by document, where another segment follows.
    languages: Option<Column<LanguageRow>>,
    /// Units of each dedupe by paragraph or line.
    pub units: Vec<UnitData>,
    /// Hashes of an exact-dedupe stage, by document, zero where it does not take part.
    pub exact: Vec<Column<[u64; 2]>>,
    /// Sketches of each near-dedupe stage.
    pub near: Vec<NearData>,
    /// What the task said of itself.
    pub info: TaskInfo,
    /// Where its files are.
    pub folder: PathBuf,
}

/// How many sketch stages a segment of the chain has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sketches {
    /// Exact-dedupe stages.
    pub exact: usize,
    /// Near-dedupe stages.
    pub near: usize,
    /// Dedupes by paragraph or line.
    pub units: usize,
    /// Whether languages are kept.
    pub languages: bool,
    /// Whether texts are kept.
    pub text: bool,
}

impl TaskData {
    /// Maps a finished task.
    pub fn open(folder: &Path, info: TaskInfo, sketches: Sketches) -> io::Result<TaskData> {
        let path = |name: &str| folder.join(name);
        Ok(TaskData {
            docs: Column::open(&path("docs"))?,
            tokens: Column::open(&path("tokens"))?,
            meta: Column::open(&path("meta"))?,
            text: if sketches.text {
                Some(Column::open(&path("text"))?)
            } else {
                None
            },
            edits: Column::open(&path("edits"))?,
            cuts: Column::open(&path("cuts"))?,
            overlaps: Column::open(&path("overlaps"))?,
            languages: sketches
                .languages
                .then(|| Column::open(&path("languages")))
                .transpose()?,
            units: (0..sketches.units)
                .map(|slot| {
                    Ok(UnitData {
                        sets: Column::open(&path(&format!("units-{slot}-sets")))?,
                        rows: Column::open(&path(&format!("units-{slot}-rows")))?,
                    })
                })
                .collect::<io::Result<_>>()?,
            exact: (0..sketches.exact)
                .map(|slot| Column::open(&path(&format!("exact-{slot}"))))
                .collect::<io::Result<_>>()?,
            near: (0..sketches.near)
                .map(|slot| {
                    Ok(NearData {
                        sets: Column::open(&path(&format!("near-{slot}-sets")))?,
                        shingles: Column::open(&path(&format!("near-{slot}-shingles")))?,
                        bands: Column::open(&path(&format!("near-{slot}-bands")))?,
                    })
                })
                .collect::<io::Result<_>>()?,
            info,
            folder: folder.to_path_buf(),
        })
    }

    /// Tokens of a document of this task.
    pub fn tokens_of(&self, row: &DocRow) -> &[u32] {
        &self.tokens.values()[row.tokens_start as usize..][..row.tokens as usize]
    }

    /// What stages cut out of the document at a place of this task.
    pub fn edits_of(&self, document: u64) -> &[EditRow] {
        let edits = self.edits.values();
        let first = edits.partition_point(|edit| edit.document < document);
        let rest = &edits[first..];
        &rest[..rest.partition_point(|edit| edit.document == document)]
    }

    /// What stages found in the document at a place of this task of texts that they were given.
    pub fn overlaps_of(&self, document: u64) -> &[OverlapRow] {
        let overlaps = self.overlaps.values();
        let first = overlaps.partition_point(|overlap| overlap.document < document);
        let rest = &overlaps[first..];
        &rest[..rest.partition_point(|overlap| overlap.document == document)]
    }

    /// The cuts of an edit of this task.
    pub fn cuts_of(&self, edit: &EditRow) -> &[CutRow] {
        &self.cuts.values()[edit.first_cut as usize..][..edit.cuts as usize]
    }

    /// The language of the document at a place of this task, where a stage found one and languages are kept.
    pub fn language_of(&self, at: usize) -> Option<(Language, f32)> {
        let row = self.languages.as_ref()?.values()[at];
        Some((Language::unpacked(row.code)?, row.probability))
    }

    /// Text of a document of this task, where texts are kept.
    pub fn text_of(&self, row: &DocRow) -> Option<&str> {
        let bytes = self.text.as_ref()?.values();
        std::str::from_utf8(&bytes[row.text_start as usize..][..row.text_bytes as usize]).ok()
    }
}

/// All documents, as they are in one segment of the chain.
pub struct Corpus {
    /// Tasks in reading order.
    pub tasks: Vec<TaskData>,
    /// Number of the first document of each task, and the number of all.
    pub bases: Vec<u64>,
    /// The files.
    pub files: Vec<InputFile>,
    /// Names of the inputs' sources, by input.
    pub sources: Vec<String>,
    /// The same documents in the segment before.
    earlier: Option<Arc<Corpus>>,
}

impl Corpus {
    /// Puts finished tasks together; `earlier` is what the segment before left.
    pub fn new(tasks: Vec<TaskData>, inputs: &Inputs, earlier: Option<Arc<Corpus>>) -> Corpus {
        let mut bases = vec![0];
        for task in &tasks {
            bases.push(bases[bases.len() - 1] + task.docs.values().len() as u64);
        }
        Corpus {
            tasks,
            bases,
            files: inputs.files.clone(),
            sources: inputs
                .inputs
                .iter()
                .map(|input| input.source.clone())
                .collect(),
            earlier,
        }
    }

    /// The documents in each segment, from the first to this one.
    pub fn segments(&self) -> Vec<&Corpus> {
        let mut all: Vec<&Corpus> =
            std::iter::successors(Some(self), |corpus| corpus.earlier.as_deref()).collect();
        all.reverse();
        all
    }

    /// The document at a place of a file, read by a task: its place in the task, and itself.
    pub fn at(&self, task: usize, file: u32, place: u64) -> Option<(usize, &DocRow)> {
        let docs = self.tasks[task].docs.values();
        let at = docs.partition_point(|row| (row.file, row.place) < (file, place));
        let row = docs.get(at)?;
        ((row.file, row.place) == (file, place)).then_some((at, row))
    }

    /// A text as it was read, as the stages up to the end of this segment leave it; `None` where it is not the
    /// text that they saw.
    pub fn edited(&self, task: usize, at: usize, mut text: String) -> Option<String> {
        for corpus in self.segments() {
            let task = &corpus.tasks[task];
            for edit in task.edits_of(at as u64) {
                if edit.nothing_left == 0 {
                    let cuts = task.cuts_of(edit).iter();
                    text = without(&text, cuts.map(CutRow::range))?;
                }
            }
        }
        let same = text.len() as u64 == self.tasks[task].docs.values()[at].text_bytes;
        same.then_some(text)
    }

    /// Number of documents.
    pub fn len(&self) -> u64 {
        self.bases[self.tasks.len()]
    }

    /// Task of a document and its place in it.
    pub fn locate(&self, number: u64) -> (usize, usize) {
        let task = self.bases.partition_point(|&base| base <= number) - 1;
        (task, (number - self.bases[task]) as usize)
    }

    /// A document on the index.
    pub fn row(&self, number: u64) -> &DocRow {
        let (task, at) = self.locate(number);
        &self.tasks[task].docs.values()[at]
    }

    /// Every document in reading order.
    pub fn rows(&self) -> impl Iterator<Item = (u64, &DocRow)> {
        self.tasks
            .iter()
            .flat_map(|task| task.docs.values())
            .enumerate()
            .map(|(number, row)| (number as u64, row))
    }

    /// Token ids of a document.
    pub fn tokens(&self, number: u64) -> &[u32] {
        let (task, at) = self.locate(number);
        let task = &self.tasks[task];
        task.tokens_of(&task.docs.values()[at])
    }

    /// Its text, where texts are kept.
    pub fn text(&self, number: u64) -> Option<&str> {
        let (task, at) = self.locate(number);
        let task = &self.tasks[task];
        task.text_of(&task.docs.values()[at])
    }

    fn meta(&self, number: u64) -> (&DocRow, &[u8]) {
        let (task, at) = self.locate(number);
        let row = &self.tasks[task].docs.values()[at];
        (
            row,
            &self.tasks[task].meta.values()[row.meta_start as usize..][..row.meta_bytes as usize],
        )
    }

    /// The given id, where the input names an id field.
    pub fn given_id(&self, number: u64) -> Option<&str> {
        decode_id(self.meta(number).1)
    }

    /// The id: the given one, else file name and place.
    pub fn id(&self, number: u64) -> String {
        let (row, meta) = self.meta(number);
        match decode_id(meta) {
            Some(id) => id.to_string(),
            None => derived_id(&self.files[row.file as usize].found.name, row.place),
        }
    }

    /// The shingle set of a document, as prepare wrote it in `slot` of the near dedupes.
    pub fn shingles(&self, slot: usize, number: u64) -> &[u64] {
        let (task, at) = self.locate(number);
        let sketches = &self.tasks[task].near[slot];
        let set = sketches.sets.values()[at];
        &sketches.shingles.values()[set.start as usize..][..set.length as usize]
    }

    /// The hash of a document's text, as prepare wrote it in `slot` of the exact dedupes.
    pub fn text_hash(&self, slot: usize, number: u64) -> [u64; 2] {
        let (task, at) = self.locate(number);
        self.tasks[task].exact[slot].values()[at]
    }

    /// The declared fields.
    pub fn fields(&self, number: u64) -> Vec<FieldValue> {
        decode_fields(self.meta(number).1)
    }

    /// Number of a document's input.
    pub fn input(&self, row: &DocRow) -> u16 {
        self.files[row.file as usize].input
    }

    /// Name of a document's source.
    pub fn source(&self, row: &DocRow) -> &str {
        &self.sources[self.input(row) as usize]
    }
}

/// The id of a document whose input names no id field.
pub fn derived_id(file_name: &str, place: u64) -> String {
    format!("{file_name}:{place}")
}

/// Appends an id (empty for none; given ones never are) and fields.
pub fn encode_meta(id: Option<&str>, fields: &[FieldValue], out: &mut Vec<u8>) {
    let text = |text: &str, out: &mut Vec<u8>| {
        out.extend_from_slice(&(text.len() as u32).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    };
    text(id.unwrap_or(""), out);
    for field in fields {
        match field {
            FieldValue::Null => out.push(0),
            FieldValue::String(value) => {
                out.push(1);
                text(value, out);
            }
            FieldValue::Int(value) => {
                out.push(2);
                out.extend_from_slice(&value.to_le_bytes());
            }
            FieldValue::Float(value) => {
                out.push(3);
                out.extend_from_slice(&value.to_le_bytes());
            }
            FieldValue::Bool(value) => out.extend_from_slice(&[4, u8::from(*value)]),
        }
    }
}

const WRITTEN_HERE: &str = "written by encode_meta and proved by its checksum";

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (head, rest) = bytes.split_at(length);
    *bytes = rest;
    head
}

fn take_text<'a>(bytes: &mut &'a [u8]) -> &'a str {
    let length = u32::from_le_bytes(take(bytes, 4).try_into().expect(WRITTEN_HERE));
    std::str::from_utf8(take(bytes, length as usize)).expect(WRITTEN_HERE)
}

fn decode_id(mut meta: &[u8]) -> Option<&str> {
    let id = take_text(&mut meta);
    (!id.is_empty()).then_some(id)
}

fn decode_fields(mut meta: &[u8]) -> Vec<FieldValue> {
    take_text(&mut meta);
    let mut fields = Vec::new();
    while !meta.is_empty() {
        fields.push(match take(&mut meta, 1)[0] {
            0 => FieldValue::Null,
            1 => FieldValue::String(take_text(&mut meta).to_string()),
            2 => FieldValue::Int(i64::from_le_bytes(
                take(&mut meta, 8).try_into().expect(WRITTEN_HERE),
            )),
            3 => FieldValue::Float(f64::from_le_bytes(
                take(&mut meta, 8).try_into().expect(WRITTEN_HERE),
            )),
            _ => FieldValue::Bool(take(&mut meta, 1)[0] == 1),
        });
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_and_fields_come_back() {
        let fields = [
            FieldValue::Null,
            FieldValue::String("ü".into()),
            FieldValue::Int(-3),
            FieldValue::Float(0.5),
            FieldValue::Bool(true),
        ];
        let mut meta = Vec::new();
        encode_meta(Some("an id"), &fields, &mut meta);
        assert_eq!(decode_id(&meta), Some("an id"));
        assert_eq!(decode_fields(&meta), fields);
        meta.clear();
        encode_meta(None, &[], &mut meta);
        assert_eq!(decode_id(&meta), None);
        assert_eq!(decode_fields(&meta), []);
    }
}
