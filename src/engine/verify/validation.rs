//! What is held out of training against ledger, manifest and order.

use super::super::validation::draw;
use super::{EngineError, Report, Stop, Stretch, files_in, id_of, miscounted, text_tokens};
use crate::audit::Audit;
use crate::plan::global::VALIDATION;
use crate::record::Counts;
use crate::shard::{Manifest, ReadOrder, ReadShard};
use crate::spill::Spill;
use std::collections::BTreeMap;
use std::path::Path;

/// Documents and tokens of rejects by source, stage and reason.
type Rejected = BTreeMap<(String, String, String), (u64, u64)>;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Side {
    id: [u64; 2],
    /// 0 in training, 1 held out.
    held_out: u64,
}

/// Reads `validation/`: its documents are rejects of the ledger, which are added to `rejected` and, as such, to
/// `stretches`.
///
/// # Errors
/// When files cannot be read or written.
#[expect(
    clippy::too_many_arguments,
    reason = "one walk over the rows proves several claims"
)]
pub(super) fn rows(
    out: &Path,
    manifest: &Manifest,
    audit: &Audit,
    rejected: &mut Rejected,
    stretches: &mut dyn FnMut(Stretch) -> std::io::Result<()>,
    spill: &Spill,
    report: &mut Report,
    stop: &Stop,
) -> Result<(), EngineError> {
    let files: Vec<_> = files_in(manifest, VALIDATION).collect();
    let said: BTreeMap<String, Counts> = audit
        .rejected
        .iter()
        .filter(|row| row.stage == VALIDATION)
        .map(|row| (row.source.clone(), row.counts))
        .collect();
    if files.is_empty() && said.is_empty() && manifest.validation.is_none() {
        return Ok(());
    }
    let share = manifest.validation.as_ref().map_or(0.0, |held| held.share);
    let mut sides = spill.sorter("sides", |a: &Side, b: &Side| {
        (a.id, a.held_out).cmp(&(b.id, b.held_out))
    });
    let (mut wrong_row, mut wrong_group) = (None, None);
    let mut found: BTreeMap<String, Counts> = BTreeMap::new();
    let (mut next, mut positions) = (0u64, 0u64);
    // The document at hand, and where it goes on.
    let mut at: Option<(String, u64)> = None;
    for file in &files {
        stop.check()?;
        let mut failed = Ok(());
        let mut counted = (0u64, 0u64);
        ReadShard::open(&out.join(&file.path))?.rows(&mut |row| {
            let place = || format!("{}: row {}", file.path, row.position);
            if row.position != next {
                wrong_row.get_or_insert(format!("{} where {next} is due", place()));
            }
            next = row.position.wrapping_add(1);
            counted = (counted.0 + 1, counted.1 + row.input_ids.len() as u64);
            let (Some(segment), Some((bytes, group_hash))) = (row.segments.first(), row.held_out)
            else {
                wrong_row.get_or_insert(format!("{}: has no text_bytes and group_hash", place()));
                return true;
            };
            let tokens = u64::from(text_tokens(&row));
            let start = u64::from(segment.doc_token_start);
            let goes_on = at
                .as_ref()
                .is_some_and(|(id, due)| id == segment.doc_id && *due == start);
            let begins = start == 0 && at.as_ref().is_none_or(|(id, _)| id != segment.doc_id);
            if !goes_on && !begins {
                wrong_row.get_or_insert(format!("{}: begins at token {start}", place()));
            }
            if row
                .input_ids
                .iter()
                .any(|id| *id >= manifest.tokenizer.vocabulary_size)
            {
                wrong_row.get_or_insert(format!("{}: an id out of the vocabulary", place()));
            }
            at = Some((segment.doc_id.to_string(), start + tokens));
            let sum = found.entry(segment.source.to_string()).or_default();
            *sum += Counts {
                documents: u64::from(begins),
                bytes,
                tokens,
            };
            let key = [segment.source, VALIDATION, VALIDATION].map(String::from);
            let sum = rejected.entry(key.into()).or_default();
            *sum = (sum.0 + u64::from(begins), sum.1 + tokens);
            if draw(manifest.seed, group_hash) >= share {
                wrong_group.get_or_insert(format!("{}: its group was not drawn", place()));
            }
            if begins {
                let id = id_of(segment.doc_id);
                failed = sides.push(Side { id, held_out: 1 }).and_then(|()| {
                    stretches(Stretch {
                        id,
                        copy: 0,
                        start: 0,
                        tokens,
                        place: 1,
                        position: 0,
                    })
                });
            }
            failed.is_ok()
        })?;
        failed?;
        positions += counted.1;
        if counted != (file.rows, file.tokens) {
            wrong_row.get_or_insert(miscounted(file, counted));
        }
    }
    report.check(
        "the rows of the held-out documents are numbered, whole and in the vocabulary",
        wrong_row,
        format!("{next} rows"),
    );
    let mut total = Counts::default();
    found.values().for_each(|counts| total += *counts);
    let problem = match &manifest.validation {
        _ if found != said => Some(format!(
            "documents, bytes and tokens by source: {found:?} against {said:?}"
        )),
        Some(held) if (held.held_out, held.rows, held.positions) == (total, next, positions) => {
            None
        }
        about => Some(format!(
            "{total:?}, {next} rows, {positions} places against {about:?} of the manifest"
        )),
    };
    report.check(
        "the held-out documents are those of the ledger and the manifest",
        problem,
        format!("{} documents, {} bytes", total.documents, total.bytes),
    );
    let mut trained = 0u64;
    for file in files_in(manifest, "order") {
        stop.check()?;
        let mut failed = Ok(());
        ReadOrder::open(&out.join(&file.path))?.rows(&[], &mut |place, row| {
            trained += u64::from(row.copy == 0);
            let id = id_of(&row.doc_id);
            match row.group_hash {
                Some(hash) if draw(manifest.seed, hash) >= share => {}
                Some(_) => {
                    wrong_group.get_or_insert(format!(
                        "{}: the group of the document in place {place} was drawn",
                        file.path
                    ));
                }
                None => {
                    wrong_group.get_or_insert(format!("{}: has no group_hash", file.path));
                }
            }
            failed = sides.push(Side { id, held_out: 0 });
            failed.is_ok()
        })?;
        failed?;
    }
    let mut both = None;
    let mut last: Option<Side> = None;
    for side in sides.finish()? {
        let side = side?;
        if last.is_some_and(|last| last.id == side.id && last.held_out != side.held_out) {
            both.get_or_insert("a document is held out and trained on".to_string());
        }
        last = Some(side);
    }
    report.check(
        "whole groups of similar documents are held out, by the keyed hash of the manifest's seed",
        wrong_group.or(both),
        format!(
            "{} documents below the share of {share}, {trained} of training above",
            total.documents
        ),
    );
    let groups = manifest.validation.as_ref().map_or("", |held| &held.groups);
    report.say(
        "no document of training is similar to a held-out one",
        super::CheckState::CannotTell,
        format!("the groups ({groups}) are those that the run found; the output does not hold the similarities"),
    );
    Ok(())
}
