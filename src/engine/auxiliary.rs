//! The files besides inputs and tokenizer that shape a result: references, losses, models, calibrations, indexes of
//! earlier releases.
//!
//! They are found by the tables of options: whatever a stage names as a path or as globs is one of them, and so is
//! what its estimator says that it reads. A folder that was made with others is not complete.

use super::corpus::TaskData;
use super::inputs::Inputs;
use super::releases::Releases;
use super::{EngineError, Stop};
use crate::plan::global::AGAINST;
use crate::plan::{Plan, Problems, StagePlan, StageRef, stage_specs};
use crate::record::{Kind, OptionSpec, Value};
use crate::score;
use crate::shard::AuxiliaryEntry;
use crate::source::{self, FoundFile, SourceError};
use crate::spill::IoContext;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Bad records that a warning names.
const NAMED_RECORDS: usize = 3;

/// What is to be said of records that tasks could not read: how many of how many, and the first of them with
/// file, place and reason. Blank lines are none. `None` where all could be read.
pub(super) fn bad_records(tasks: &[TaskData]) -> io::Result<Option<String>> {
    let mut named: Vec<String> = Vec::new();
    let (mut records, mut bad) = (0u64, 0u64);
    for task in tasks {
        records += task.info.records.values().sum::<u64>();
        for stream in ["bad", "failed"] {
            let path = task.folder.join(stream);
            let file = File::open(&path).context("read", &path)?;
            for line in BufReader::new(file).lines() {
                let line = line.context("read", &path)?;
                // A failed document's line comes after its number.
                let line = line.find('{').map_or("", |begin| &line[begin..]);
                let found: serde_json::Value =
                    serde_json::from_str(line).map_err(io::Error::other)?;
                let word = |name: &str| found[name].as_str().unwrap_or_default();
                if word("reason") == "blank" {
                    continue;
                }
                bad += 1;
                if named.len() < NAMED_RECORDS {
                    let place = match (found["byte_offset"].as_u64(), found["record"].as_u64()) {
                        (Some(byte), _) => format!("at byte {byte}"),
                        (_, row) => format!("row {}", row.unwrap_or_default()),
                    };
                    named.push(format!(
                        "{} {place}: {} ({})",
                        word("file"),
                        word("reason"),
                        word("detail")
                    ));
                }
            }
        }
    }
    let cut: Vec<&String> = tasks
        .iter()
        .flat_map(|task| task.info.truncated.values())
        .collect();
    if bad == 0 && cut.is_empty() {
        return Ok(None);
    }
    let more = bad - named.len() as u64;
    named.extend(cut.into_iter().cloned());
    named.extend((more > 0).then(|| format!("and {more} more")));
    Ok(Some(format!(
        "{bad} of {records} records could not be read and are not used: {}",
        named.join("; ")
    )))
}

/// One such file.
#[derive(Clone, Debug)]
pub struct AuxiliaryFile {
    /// What the manifest says of it. Empty of a checksum until [`Auxiliary::read_checksums`].
    pub entry: AuxiliaryEntry,
    /// Where it is, and what it was like when it was found.
    pub found: FoundFile,
    /// Whether a per-document stage or a dedupe reads it, so that it shapes what `prepare` writes.
    pub shapes_prepare: bool,
}

/// All of them, by stage, option and name.
#[derive(Clone, Debug, Default)]
pub struct Auxiliary {
    /// The files.
    pub files: Vec<AuxiliaryFile>,
}

/// The options of a stage, those of its estimator among them.
fn options_of(stage: &StagePlan) -> Vec<&'static OptionSpec> {
    let name = stage.label.split('#').next().unwrap_or_default();
    let specs = stage_specs();
    let spec = specs.iter().find(|found| found.spec.name == name);
    let mut options: Vec<_> = spec.iter().flat_map(|found| found.spec.options).collect();
    if let StageRef::Score { estimator } = stage.kind {
        options.extend(score::TABLE[estimator].spec.options);
    }
    options
}

impl Auxiliary {
    /// The files that the options of a plan's stages name, and those that its estimator reads.
    ///
    /// # Errors
    /// When a glob finds no file, or a file cannot be looked at: problems of the request.
    pub fn find(plan: &Plan, of_estimator: &[PathBuf]) -> Result<Auxiliary, EngineError> {
        let mut files = Vec::new();
        for stage in &plan.stages {
            let is_score = matches!(stage.kind, StageRef::Score { .. });
            for option in options_of(stage) {
                let refuse = |error: SourceError| {
                    let place = stage.place(&[option.name]);
                    let message = format!("'{}': {error}", option.name);
                    EngineError::Problems(Problems(vec![plan.problem(place, message)]))
                };
                let mut add = |name: String, found: FoundFile| {
                    files.push(AuxiliaryFile {
                        entry: AuxiliaryEntry {
                            stage: stage.label.clone(),
                            option: option.name.to_string(),
                            name,
                            bytes: found.bytes,
                            checksum: String::new(),
                            records: None,
                            quarantined: None,
                        },
                        found,
                        shapes_prepare: !is_score && !matches!(option.kind, Kind::Folders),
                    });
                };
                let value = stage.options.iter().find(|(name, _)| *name == option.name);
                match (&option.kind, value) {
                    (Kind::Path, Some((_, Value::Text(resolved)))) => {
                        let resolved = Path::new(resolved);
                        let written = stage.paths.get(option.name).map_or("", String::as_str);
                        if !resolved.is_dir() {
                            add(
                                written.to_string(),
                                FoundFile::at(resolved).map_err(refuse)?,
                            );
                            continue;
                        }
                        let inside = |path: &&PathBuf| is_score && path.starts_with(resolved);
                        for path in of_estimator.iter().filter(inside) {
                            let below = path.strip_prefix(resolved).unwrap_or(path);
                            let name = Path::new(written).join(below).display().to_string();
                            add(name, FoundFile::at(path).map_err(refuse)?);
                        }
                    }
                    (Kind::Globs, Some((_, Value::List(globs))))
                        if !globs.is_empty() && globs.as_slice() != ["self"] =>
                    {
                        let globs: Vec<String> = globs.iter().map(|glob| plan.glob(glob)).collect();
                        for found in source::find_files(&plan.base, &globs).map_err(refuse)? {
                            add(found.name.clone(), found);
                        }
                    }
                    (Kind::Folders, Some(_)) => {
                        let releases = Releases::find(plan, stage, None)?;
                        for file in releases.iter().flat_map(Releases::files) {
                            add(
                                file.name.clone(),
                                FoundFile::at(&file.path).map_err(refuse)?,
                            );
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(Auxiliary { files })
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.entry.bytes).sum()
    }

    /// Reads each file for its checksum.
    pub fn read_checksums(
        &mut self,
        advance: &(dyn Fn(u64) + Sync),
        stop: &Stop,
    ) -> Result<(), EngineError> {
        self.files.par_iter_mut().try_for_each(|file| {
            stop.check()?;
            let _item = stop.at(format!("reading {}", file.found.path.display()));
            let told = |bytes| {
                stop.alive();
                advance(bytes);
            };
            let checksum = source::file_checksum(&file.found.path, &told)?;
            file.entry.checksum = format!("{checksum:032x}");
            file.found.unchanged()?;
            Ok(())
        })
    }

    /// Proves that none of them was changed since it was found. One that was only written again is none.
    ///
    /// # Errors
    /// When one was, or is gone.
    pub fn unchanged(&self) -> Result<(), EngineError> {
        for file in &self.files {
            if let Err(error) = file.found.unchanged()
                && format!("{:032x}", source::file_checksum(&file.found.path, &|_| {})?)
                    != file.entry.checksum
            {
                // What was made of it lies in the work folder under the checksum of the one before.
                return Err(EngineError::Failed(format!("{error}, and give --fresh")));
            }
        }
        Ok(())
    }

    /// Has files that are found again looked at as they were the first time.
    pub fn as_found(&self, inputs: &mut Inputs) {
        let first: BTreeMap<&Path, &FoundFile> = self
            .files
            .iter()
            .map(|file| (file.found.path.as_path(), &file.found))
            .collect();
        for file in &mut inputs.files {
            if let Some(first) = first.get(file.found.path.as_path()) {
                (file.found.bytes, file.found.modified) = (first.bytes, first.modified);
            }
        }
    }

    /// The checksum of a file, read before where it is one of these.
    pub fn checksum(&self, path: &Path) -> Result<String, EngineError> {
        let known = self.files.iter().find(|file| file.found.path == path);
        match known.filter(|file| !file.entry.checksum.is_empty()) {
            Some(file) => Ok(file.entry.checksum.clone()),
            None => Ok(format!("{:032x}", source::file_checksum(path, &|_| {})?)),
        }
    }

    /// Checksums of the indexes of earlier releases: they shape what reaches the stages after a dedupe.
    pub fn of_releases(&self) -> Vec<&str> {
        let files = self.files.iter();
        let indexes = files.filter(|file| file.entry.option == AGAINST);
        indexes.map(|file| file.entry.checksum.as_str()).collect()
    }

    /// Stage, option and checksum of all that shapes what `prepare` writes.
    pub fn of_prepare(&self) -> Vec<[&str; 3]> {
        let shaping = self.files.iter().filter(|file| file.shapes_prepare);
        shaping
            .map(|file| {
                let entry = &file.entry;
                [
                    entry.stage.as_str(),
                    entry.option.as_str(),
                    entry.checksum.as_str(),
                ]
            })
            .collect()
    }

    /// Notes how many records were read of each of these inputs' files, and how many of them are not used.
    pub fn note_records(&mut self, inputs: &Inputs, tasks: &[TaskData]) {
        for (number, input) in inputs.files.iter().enumerate() {
            let number = number as u32;
            let (mut records, mut unused) = (0, 0);
            for task in tasks {
                records += task.info.records.get(&number).copied().unwrap_or(0);
                let reasons = task.info.quarantined.get(&number);
                for (_, (count, _)) in reasons.into_iter().flatten().filter(|(r, _)| *r != "blank")
                {
                    unused += count;
                }
                let docs = task.docs.values().iter();
                unused += docs
                    .filter(|row| row.file == number && row.tokens == 0)
                    .count() as u64;
            }
            let here = |file: &&mut AuxiliaryFile| file.found.path == input.found.path;
            for file in self.files.iter_mut().filter(here) {
                (file.entry.records, file.entry.quarantined) = (Some(records), Some(unused));
            }
        }
    }

    /// What the manifest says of them.
    pub fn entries(&self) -> Vec<AuxiliaryEntry> {
        self.files.iter().map(|file| file.entry.clone()).collect()
    }
}
