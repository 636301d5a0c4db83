//! What a run takes on disk, about, known before data are read.

use super::memory::text_bytes;
use super::releases::{self, Release};
use super::run::Prepared;
use crate::plan::{Plan, Rejects, StagePlan, StageRef, global};
use crate::score;
use crate::shard::IndexKind;
use std::path::{Path, PathBuf};

/// Bytes on disk, about, and the text that they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskNeed {
    /// Text in all inputs; compressed text is about a quarter of what it holds.
    pub text_bytes: u64,
    /// Intermediate files.
    pub work_bytes: u64,
    /// Shards and all else that stays.
    pub output_bytes: u64,
}

/// Bytes of shingles that a near dedupe writes for a byte of text: eight a shingle; a word is about 6 bytes of text, a
/// token 4.
pub fn shingle_bytes_a_byte(stage: &StagePlan) -> f64 {
    let given = |name: &str| stage.options.integer_if_given(name).is_some();
    if given("shingle_characters") {
        8.0
    } else if given("shingle_tokens") {
        8.0 / 4.0
    } else {
        8.0 / 6.0
    }
}

/// Bytes of sorts that comparing a stage with an earlier release takes.
pub fn against_bytes(stage: &StagePlan, release: &Release) -> u64 {
    let row_bytes = match release.about.kind {
        IndexKind::Near { .. } => {
            global::bands_and_rows(&stage.options).map_or(32, |(bands, _)| 16 * u64::from(bands))
        }
        _ => 32,
    };
    release.documents() * row_bytes
}

impl DiskNeed {
    /// Of a plan whose files are found.
    pub fn of(plan: &Plan, prepared: &Prepared) -> DiskNeed {
        let text = text_bytes(&prepared.inputs);
        let times = |share: f64| (text as f64 * share) as u64;
        let segments = plan.segments().len() as u64;
        let (mut scored, mut texts_kept) = (false, plan.output.rejects == Rejects::Text);
        // 4 bytes a token and about 4 bytes of text a token, in each segment.
        let mut work = text.saturating_mul(segments);
        let mut indexes = 0;
        for (at, stage) in plan.stages.iter().enumerate() {
            let mut index = 0;
            match stage.kind {
                StageRef::NearDedupe => {
                    index = times(shingle_bytes_a_byte(stage));
                    work += index;
                }
                // A unit takes 32 bytes, and is at least as long as a line of text.
                StageRef::UnitDedupe(_) => work += text / 2,
                StageRef::SpanDedupe => texts_kept = true,
                StageRef::Score { estimator } => {
                    scored = true;
                    texts_kept |= score::TABLE[estimator].needs_text;
                }
                _ => {}
            }
            if releases::writes_index(stage) {
                // Of what is kept nothing is known yet, so an index is of all.
                indexes += index;
            }
            let compared = prepared.releases.get(&at);
            for release in compared.iter().flat_map(|releases| &releases.list) {
                work += against_bytes(stage, release);
            }
        }
        work += if scored { text / 4 } else { 0 };
        work += if texts_kept { text * segments } else { 0 };
        let copies = crate::order::build(&plan.order).map_or(1, |strategy| strategy.copies());
        DiskNeed {
            text_bytes: text,
            work_bytes: work,
            output_bytes: (text / 2).saturating_mul(copies).saturating_add(indexes),
        }
    }

    /// A warning where a disk has less free than is estimated; `None` where work is done already, of which the disk
    /// holds a part, or where the system does not tell. It is no error: an estimate may be wrong by half, and a run that
    /// fills the disk keeps what it did.
    pub fn scarce(&self, work: &Path, out: &Path) -> Option<String> {
        let begun = std::fs::read_dir(work).is_ok_and(|entries| {
            let names = entries.flatten().map(|entry| entry.file_name());
            names
                .into_iter()
                .any(|name| name.to_string_lossy().starts_with("prepare-"))
        });
        if begun {
            return None;
        }
        let (of_work, of_out) = (free_bytes(work)?, free_bytes(out)?);
        // Two folders with the same free space lie on one disk, as far as can be told.
        let same = of_work == of_out || work.starts_with(out);
        let places = if same {
            vec![(
                work,
                of_work,
                self.work_bytes.saturating_add(self.output_bytes),
                "files",
            )]
        } else {
            vec![
                (work, of_work, self.work_bytes, "intermediate files"),
                (out, of_out, self.output_bytes, "output"),
            ]
        };
        let (place, free, need, what) =
            places.into_iter().find(|(_, free, need, _)| free < need)?;
        Some(format!(
            "about {} of {what} are to be written and {} are free at {}; name another disk with --work or --out, or free \
             some: a run that fills the disk ends, and goes on once there is room",
            size(need),
            size(free),
            place.display()
        ))
    }
}

/// Bytes that may be written on the disk of a folder, or of the nearest one above it that is there; `None` where the
/// system does not tell.
pub fn free_bytes(folder: &Path) -> Option<u64> {
    let absolute: PathBuf = std::path::absolute(folder).ok()?;
    let there = absolute.ancestors().find(|folder| folder.exists())?;
    #[cfg(unix)]
    {
        let found = rustix::fs::statvfs(there).ok()?;
        Some(found.f_bavail.saturating_mul(found.f_frsize))
    }
    #[cfg(not(unix))]
    {
        let _ = there;
        None
    }
}

/// Bytes for people.
pub fn size(bytes: u64) -> String {
    let mut amount = bytes as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if amount < 1000.0 {
            return format!("{amount:.1} {unit}");
        }
        amount /= 1000.0;
    }
    format!("{amount:.1} TB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_with_too_little_room_is_named_and_one_with_enough_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("not/there/yet");
        let work = out.join("work");
        let need = |work_bytes| DiskNeed {
            text_bytes: 1,
            work_bytes,
            output_bytes: 1,
        };
        assert_eq!(need(1).scarce(&work, &out), None);
        if free_bytes(&out).is_none() {
            return;
        }
        let warning = need(u64::MAX / 2).scarce(&work, &out).expect("too little");
        for words in ["TB of files", "--work", "not/there/yet"] {
            assert!(warning.contains(words), "{words}: {warning}");
        }
        // Part of what the estimate counts is there.
        std::fs::create_dir_all(work.join("prepare-0")).expect("created");
        assert_eq!(need(u64::MAX / 2).scarce(&work, &out), None);
    }
}
