//! Earlier releases that a dedupe compares with: the indexes of finished output folders.
//!
//! A release cannot be taken back, so its documents stand before all of this run's in keep order, whatever the
//! rule, and are never compared with each other. They are numbered from 0 over all releases of a stage, in the
//! order in which it names them, then by file and row. Of a release only those rows are held that are proposed
//! to be similar to a document of this run, and these in files that are mapped.

use super::EngineError;
use super::auxiliary::Auxiliary;
use crate::algo::minhash::Scratch;
use crate::dedupe::{BandHash, Fingerprint, Shingling, Sketcher};
use crate::plan::global::{AGAINST, WRITE_INDEX};
use crate::plan::{Place, Plan, Problem, Problems, StagePlan, StageRef};
use crate::record::Options;
use crate::shard::{IndexAbout, IndexBands, IndexKind, Manifest, PartError, ReadIndex};
use crate::spill::{Column, IoContext, Spill};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::iter::Peekable;
use std::path::{Path, PathBuf};

/// Rows of a file of an index, each with the hash of one of its bands.
type RowBands = Box<dyn Iterator<Item = Result<(u64, u64), PartError>>>;

/// The folder of indexes in an output folder.
pub const INDEX_FOLDER: &str = "index";

/// Path below the output folder of a part of a stage's index.
pub fn index_path(label: &str, part: usize) -> String {
    // A second stage of a name has a `#` in its label, which paths in URLs cannot have.
    let name = label.replace('#', "-");
    format!("{INDEX_FOLDER}/{name}-part-{part:05}.parquet")
}

/// What the hashes of a stage's index are of. The tokenizer's fingerprint, where it is not known, is `None`.
pub fn kind_of(stage: &StagePlan, fingerprint: Option<&str>) -> Option<IndexKind> {
    match stage.kind {
        StageRef::ExactDedupe => Some(IndexKind::Exact {
            normalise: stage.options.flag("normalise"),
        }),
        StageRef::NearDedupe => {
            let (unit, size) = match Shingling::of(&stage.options).ok()? {
                Shingling::Words(size) => ("shingle_words", size),
                Shingling::Tokens(size) => ("shingle_tokens", size),
                Shingling::Characters(size) => ("shingle_characters", size),
            };
            Some(IndexKind::Near {
                unit: unit.to_string(),
                size: size as u64,
                tokenizer_fingerprint: fingerprint
                    .filter(|_| unit == "shingle_tokens")
                    .map(str::to_string),
            })
        }
        _ => None,
    }
}

/// What the bands of a near dedupe's index are made with.
pub fn bands_of(seed: u64, options: &Options) -> IndexBands {
    let (bands, rows) = super::near::bands_and_rows(options);
    IndexBands {
        seed,
        bands: bands as u64,
        rows: rows as u64,
    }
}

/// One file of an index.
#[derive(Clone, Debug)]
pub struct IndexFile {
    /// Where it is.
    pub path: PathBuf,
    /// The release's folder as written, and its path below it.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Documents in it.
    pub documents: u64,
    /// The checksum that the release's manifest says.
    checksum: String,
}

/// One earlier release, as one stage compares with it.
#[derive(Clone, Debug)]
pub struct Release {
    /// The folder as written in the pipeline file, variables replaced.
    pub name: String,
    /// Its index.
    pub files: Vec<IndexFile>,
    /// What the index says of itself.
    pub about: IndexAbout,
    /// What its manifest says of the indexes that it was made against itself.
    made_against: Vec<(String, String)>,
    /// The share of its documents that it was made of, where it was a sample.
    sample_share: Option<f64>,
    /// Number of its first document.
    first: u64,
}

impl Release {
    /// Documents in its index.
    pub fn documents(&self) -> u64 {
        self.files.iter().map(|file| file.documents).sum()
    }

    /// Bytes of its index.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Its files, each with the number of its first document.
    fn numbered(&self) -> impl Iterator<Item = (u64, &IndexFile)> {
        self.files.iter().scan(self.first, |next, file| {
            let first = *next;
            *next += file.documents;
            Some((first, file))
        })
    }
}

/// The earlier releases of one stage, in the order in which it names them.
#[derive(Clone, Debug)]
pub struct Releases {
    /// Label of the stage.
    stage: String,
    /// The releases.
    pub list: Vec<Release>,
}

/// `option: value` of what makes two kinds differ: of the release, and of the stage.
fn difference(theirs: &IndexKind, mine: &IndexKind) -> Option<(String, String)> {
    match (theirs, mine) {
        (IndexKind::Exact { normalise: theirs }, IndexKind::Exact { normalise: mine }) => {
            (theirs != mine).then(|| (format!("normalise: {theirs}"), format!("normalise: {mine}")))
        }
        (
            IndexKind::Near {
                unit,
                size,
                tokenizer_fingerprint: theirs,
            },
            IndexKind::Near {
                unit: my_unit,
                size: my_size,
                tokenizer_fingerprint: mine,
            },
        ) => {
            if (unit, size) != (my_unit, my_size) {
                return Some((format!("{unit}: {size}"), format!("{my_unit}: {my_size}")));
            }
            match (theirs, mine) {
                (Some(theirs), Some(mine)) if theirs != mine => Some((
                    format!("the tokenizer of fingerprint {theirs}"),
                    format!("the one of {mine}"),
                )),
                _ => None,
            }
        }
        // Indexes of another stage are left out before.
        _ => Some((String::new(), String::new())),
    }
}

fn same_stage(a: &IndexKind, b: &IndexKind) -> bool {
    matches!(
        (a, b),
        (IndexKind::Exact { .. }, IndexKind::Exact { .. })
            | (IndexKind::Near { .. }, IndexKind::Near { .. })
    )
}

impl Releases {
    /// The releases that a stage names; `None` where it names none, or is no dedupe that can. Reads their
    /// manifests and what their indexes say of themselves. Without the tokenizer's fingerprint an index of
    /// another one is not noticed.
    ///
    /// # Errors
    /// When one is no finished folder, has no index that can be compared with, is named twice, or is this
    /// run's own output folder: problems of the request.
    pub fn find(
        plan: &Plan,
        stage: &StagePlan,
        fingerprint: Option<&str>,
    ) -> Result<Option<Releases>, EngineError> {
        let Some(mine) = kind_of(stage, fingerprint) else {
            return Ok(None);
        };
        let mut problems = Vec::new();
        let mut releases = Releases {
            stage: stage.label.clone(),
            list: Vec::new(),
        };
        let mut seen: Vec<(PathBuf, String, &str)> = Vec::new();
        let own = real_path(&plan.output.path);
        for written in stage.options.list(AGAINST) {
            let folder = plan.folder(written);
            let problem = |message: String| {
                let place: Place = stage.place(&[AGAINST]);
                plan.problem(place, format!("'{AGAINST}': {written} {message}"))
            };
            let real = std::fs::canonicalize(&folder).ok();
            if real.is_some() && real == own {
                problems.push(problem(
                    "is this run's own output folder; name the folder of an earlier run, or write this one to another \
                     folder"
                        .to_string(),
                ));
                continue;
            }
            if let (Some(real), Some(own)) = (&real, &own)
                && own.starts_with(real)
            {
                problems.push(problem(format!(
                    "would hold this run's output folder, {}; write to a folder beside it",
                    plan.output.path.display()
                )));
                continue;
            }
            let (manifest, release) = match open(&folder, written, &mine, stage) {
                Ok(found) => found,
                Err(message) => {
                    problems.push(problem(message));
                    continue;
                }
            };
            let real = real.unwrap_or(folder);
            let twice = seen
                .iter()
                .find(|(path, checksum, _)| *path == real || *checksum == manifest.checksum);
            if let Some((_, _, other)) = twice {
                problems.push(problem(format!(
                    "is the same release as {other} (dataset {}); remove one of them",
                    manifest.checksum
                )));
                continue;
            }
            seen.push((real, manifest.checksum.clone(), written));
            let first = releases.documents();
            releases.list.push(Release { first, ..release });
        }
        if !problems.is_empty() {
            return Err(EngineError::Problems(Problems(problems)));
        }
        Ok((!releases.list.is_empty()).then_some(releases))
    }

    /// Documents of all of them.
    pub fn documents(&self) -> u64 {
        self.list.iter().map(Release::documents).sum()
    }

    /// Every file.
    pub fn files(&self) -> impl Iterator<Item = &IndexFile> {
        self.list.iter().flat_map(|release| &release.files)
    }

    /// What to know before the run, each with something to do.
    pub fn warnings(&self) -> Vec<String> {
        let known: Vec<&str> = self.files().map(|file| file.checksum.as_str()).collect();
        let left_out: Vec<String> = self
            .list
            .iter()
            .flat_map(|release| {
                let others = release.made_against.iter();
                let others = others.filter(|(_, checksum)| !known.contains(&checksum.as_str()));
                others.map(|(name, _)| format!("{} against {name}", release.name))
            })
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let mut warnings = Vec::new();
        if !left_out.is_empty() {
            warnings.push(format!(
                "stage '{}': an index holds the documents of its own run only, and releases named in '{AGAINST}' were made \
                 against others that are not ({}); name these too if they are still in use",
                self.stage,
                left_out.join(", ")
            ));
        }
        for release in &self.list {
            if let Some(share) = release.sample_share {
                warnings.push(format!(
                    "stage '{}': the release {} was made with '--sample {share}', and its index holds no other documents; \
                     name one of a whole run",
                    self.stage, release.name
                ));
            }
        }
        warnings
    }

    /// Proves that every file is as its release's manifest says.
    ///
    /// # Errors
    /// Names the file that is not.
    pub fn prove(&self, auxiliary: &Auxiliary) -> Result<(), EngineError> {
        for release in &self.list {
            for file in &release.files {
                if auxiliary.checksum(&file.path)? != file.checksum {
                    return Err(EngineError::Failed(format!(
                        "{} is damaged: it does not have the checksum that the manifest of its release says, and stage '{}' \
                         compares with it; restore the file, or make the release {} again",
                        file.path.display(),
                        self.stage,
                        release.name
                    )));
                }
            }
        }
        Ok(())
    }

    fn numbered(&self) -> impl Iterator<Item = (u64, &IndexFile)> {
        self.list.iter().flat_map(Release::numbered)
    }

    /// Hashes of the texts of all documents, of ranks from 0 and numbers from `base` on.
    pub fn fingerprints(&self, base: u64) -> impl Iterator<Item = io::Result<Fingerprint>> {
        self.numbered().flat_map(move |(first, file)| {
            let hashes = || -> io::Result<_> {
                let index = ReadIndex::open(&file.path)?;
                let hashes = index.hashes()?;
                Ok(hashes.zip(first..).map(move |(hash, rank)| {
                    Ok(Fingerprint {
                        hash: hash?,
                        rank,
                        number: base + rank,
                    })
                }))
            };
            or_error(hashes())
        })
    }

    /// Bands of all documents, made as `wanted`: those in the index, or others from its shingles.
    pub fn bands<'a>(
        &'a self,
        wanted: IndexBands,
        sketcher: &'a Sketcher,
    ) -> impl Iterator<Item = io::Result<BandHash>> + 'a {
        self.list.iter().flat_map(move |release| {
            let stored = release.about.bands == Some(wanted);
            release.numbered().flat_map(move |(first, file)| {
                let bands = || -> io::Result<RowBands> {
                    let index = ReadIndex::open(&file.path)?;
                    if stored {
                        return Ok(Box::new(index.bands()?));
                    }
                    let make = sketcher.hasher.clone();
                    let bands = index.from_shingles(move |sets| {
                        let of = |scratch: &mut Scratch, set: &&[u64]| {
                            let mut bands = Vec::new();
                            if !set.is_empty() {
                                make.bands_into(set, scratch, &mut bands);
                            }
                            bands
                        };
                        sets.par_iter().map_init(Scratch::default, of).collect()
                    });
                    Ok(Box::new(bands?))
                };
                or_error(bands().map(|bands| {
                    bands.map(move |band| {
                        let (row, hash) = band?;
                        Ok(BandHash {
                            hash,
                            place: first + row,
                        })
                    })
                }))
            })
        })
    }

    /// Fetches the shingles of some documents into files. `rows` are ascending and distinct.
    pub fn shingles(
        &self,
        rows: impl Iterator<Item = io::Result<u64>>,
        spill: &Spill,
    ) -> Result<ReleasedSets, EngineError> {
        let mut sets = Scratched::<SetOfRow>::create(spill, "released-sets")?;
        let mut shingles = Scratched::<u64>::create(spill, "released-shingles")?;
        let mut start = 0;
        let mut rows = rows.peekable();
        for (first, file) in self.numbered() {
            // Files of which nothing is needed are not opened.
            if !needs(&mut rows, first + file.documents) {
                continue;
            }
            let index = ReadIndex::open(&file.path)?;
            index.shingles_of(first, &mut rows, &mut |row, set| {
                shingles.push(set)?;
                let length = set.len() as u64;
                sets.push(&[SetOfRow { row, start, length }])?;
                start += length;
                Ok(())
            })?;
        }
        rows.next().transpose()?;
        Ok(ReleasedSets {
            sets: sets.finish()?,
            shingles: shingles.finish()?,
        })
    }

    /// Fetches the names of some documents into files, for stage number `stage`.
    pub fn names(
        &self,
        rows: impl Iterator<Item = io::Result<u64>>,
        stage: u16,
        spill: &Spill,
    ) -> Result<ReleasedNames, EngineError> {
        let mut names = Scratched::<NameOfRow>::create(spill, &format!("released-names-{stage}"))?;
        let mut bytes = Scratched::<u8>::create(spill, &format!("released-ids-{stage}"))?;
        let mut start = 0;
        let mut rows = rows.peekable();
        for (number, release) in self.list.iter().enumerate() {
            for (first, file) in release.numbered() {
                if !needs(&mut rows, first + file.documents) {
                    continue;
                }
                let index = ReadIndex::open(&file.path)?;
                index.names_of(first, &mut rows, &mut |row, id, _| {
                    bytes.push(id.as_bytes())?;
                    names.push(&[NameOfRow {
                        row,
                        start,
                        length: id.len() as u32,
                        release: number as u32,
                    }])?;
                    start += id.len() as u64;
                    Ok(())
                })?;
            }
        }
        rows.next().transpose()?;
        Ok(ReleasedNames {
            names: names.finish()?,
            ids: bytes.finish()?,
            releases: self
                .list
                .iter()
                .map(|release| release.name.clone())
                .collect(),
        })
    }
}

/// The path without links; of a folder that is to be made, by the nearest one that is there.
fn real_path(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    path.ancestors().find_map(|there| {
        let real = std::fs::canonicalize(there).ok()?;
        Some(real.join(path.strip_prefix(there).ok()?))
    })
}

/// Opens the folder of a release: its manifest, and what `mine` can be compared with. Else what is wrong with
/// it and the way out, to be said after its name.
fn open(
    folder: &Path,
    written: &str,
    mine: &IndexKind,
    stage: &StagePlan,
) -> Result<(Manifest, Release), String> {
    let text = std::fs::read_to_string(folder.join("manifest.json")).map_err(|error| {
        format!(
            "is no output folder of a finished run: its manifest.json cannot be read ({error}); name the folder that \
             'output: path' of an earlier run names"
        )
    })?;
    let manifest = Manifest::parse(&text).map_err(|problem| {
        format!("is damaged: its manifest.json {problem}; 'goodput verify' says more")
    })?;
    let name = stage.label.split('#').next().unwrap_or_default();
    let in_index = format!("{INDEX_FOLDER}/");
    let mut stages: Vec<Release> = Vec::new();
    for file in manifest
        .files
        .iter()
        .filter(|file| file.path.starts_with(&in_index))
    {
        let path = folder.join(&file.path);
        let damaged =
            |what: String| format!("is damaged: {what}; restore it, or make the release again");
        let found = std::fs::metadata(&path)
            .map_err(|error| damaged(format!("{} cannot be read: {error}", file.path)))?;
        if found.len() != file.bytes {
            return Err(damaged(format!(
                "{} has {} bytes, its manifest says {}",
                file.path,
                found.len(),
                file.bytes
            )));
        }
        let index = ReadIndex::open(&path).map_err(|error| format!("cannot be used: {error}"))?;
        if !same_stage(&index.about.kind, mine) {
            continue;
        }
        let part = IndexFile {
            name: Path::new(written).join(&file.path).display().to_string(),
            path,
            bytes: file.bytes,
            documents: index.documents,
            checksum: file.checksum.clone(),
        };
        match stages.iter_mut().find(|known| known.about == index.about) {
            Some(known) => known.files.push(part),
            None => stages.push(Release {
                name: written.to_string(),
                files: vec![part],
                about: index.about,
                made_against: Vec::new(),
                sample_share: manifest.sample_share,
                first: 0,
            }),
        }
    }
    if stages.is_empty() {
        return Err(format!(
            "has no index of '{name}'; give the stage '{name}' of its pipeline 'write_index: true' and run it again"
        ));
    }
    // Of several the one of the same label, else the first.
    stages.sort_by_key(|found| found.about.stage != stage.label);
    let differences: Vec<_> = stages
        .iter()
        .map(|found| difference(&found.about.kind, mine))
        .collect();
    let Some(at) = differences.iter().position(Option::is_none) else {
        let (theirs, mine): (Vec<_>, Vec<_>) = differences.into_iter().flatten().unzip();
        return Err(format!(
            "has an index of '{name}' made with '{}', and stage '{}' has '{}': their hashes cannot be compared; give the \
             stage what the release has, or make the release's index again with what the stage has",
            theirs.join("' and '"),
            stage.label,
            mine[0]
        ));
    };
    let mut release = stages.swap_remove(at);
    release.made_against = manifest
        .auxiliary_files
        .iter()
        .filter(|entry| {
            // Of this kind of dedupe: the others compare with other indexes.
            entry.option == AGAINST && entry.stage.split('#').next() == Some(name)
        })
        .map(|entry| {
            let release = entry.name.rsplit_once(&format!("/{in_index}"));
            let release = release.map_or(entry.name.as_str(), |(release, _)| release);
            (release.to_string(), entry.checksum.clone())
        })
        .collect();
    Ok((manifest, release))
}

/// Whether there is a row before `end`, or an error, to come.
fn needs(rows: &mut Peekable<impl Iterator<Item = io::Result<u64>>>, end: u64) -> bool {
    match rows.peek() {
        Some(Ok(row)) => *row < end,
        Some(Err(_)) => true,
        None => false,
    }
}

/// The items, or the error as the only one.
fn or_error<T>(
    items: io::Result<impl Iterator<Item = io::Result<T>>>,
) -> impl Iterator<Item = io::Result<T>> {
    let (items, error) = match items {
        Ok(items) => (Some(items), None),
        Err(error) => (None, Some(error)),
    };
    items.into_iter().flatten().chain(error.map(Err))
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct SetOfRow {
    row: u64,
    start: u64,
    length: u64,
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct NameOfRow {
    row: u64,
    start: u64,
    length: u32,
    release: u32,
}

/// A file of values that is written once and then mapped. Its name goes when it is mapped, where the system
/// allows it.
pub(super) struct Scratched<T> {
    path: PathBuf,
    writer: BufWriter<File>,
    kind: std::marker::PhantomData<T>,
}

impl<T: bytemuck::Pod> Scratched<T> {
    /// An empty file in the folder of `spill`.
    pub fn create(spill: &Spill, name: &str) -> io::Result<Scratched<T>> {
        let path = spill.folder().join(name);
        let file = File::create(&path).context("write", &path)?;
        Ok(Scratched {
            path,
            writer: BufWriter::with_capacity(1 << 18, file),
            kind: std::marker::PhantomData,
        })
    }

    /// Appends values.
    pub fn push(&mut self, values: &[T]) -> io::Result<()> {
        let bytes = bytemuck::cast_slice(values);
        self.writer.write_all(bytes).context("write", &self.path)
    }

    /// The values, mapped.
    pub fn finish(self) -> io::Result<Column<T>> {
        let written = self.writer.into_inner().map_err(|e| e.into_error());
        written.context("write", &self.path)?;
        let column = Column::open(&self.path)?;
        #[cfg(unix)]
        std::fs::remove_file(&self.path).context("remove", &self.path)?;
        Ok(column)
    }
}

/// Shingle sets of documents of releases.
pub struct ReleasedSets {
    sets: Column<SetOfRow>,
    shingles: Column<u64>,
}

impl ReleasedSets {
    /// The set of a document, which must have been fetched.
    pub fn of(&self, row: u64) -> &[u64] {
        let sets = self.sets.values();
        let at = sets.binary_search_by_key(&row, |set| set.row);
        let set = sets[at.expect("fetched before anything is compared with it")];
        &self.shingles.values()[set.start as usize..][..set.length as usize]
    }
}

/// Ids of documents of releases.
pub struct ReleasedNames {
    names: Column<NameOfRow>,
    ids: Column<u8>,
    releases: Vec<String>,
}

impl ReleasedNames {
    /// Place of a document among them, which must have been fetched.
    pub fn place(&self, row: u64) -> u64 {
        let at = self
            .names
            .values()
            .binary_search_by_key(&row, |name| name.row);
        at.expect("fetched because it is named") as u64
    }

    /// Id and release of the document at a place.
    pub fn at(&self, place: u64) -> (&str, &str) {
        let name = self.names.values()[place as usize];
        let id = &self.ids.values()[name.start as usize..][..name.length as usize];
        let id = std::str::from_utf8(id).expect("written from a text");
        (id, &self.releases[name.release as usize])
    }
}

/// The stages of a plan that compare with earlier releases, by their places in it, and every problem of them.
pub fn find_all(
    plan: &Plan,
    fingerprint: Option<&str>,
    problems: &mut Vec<Problem>,
) -> Result<BTreeMap<usize, Releases>, EngineError> {
    let mut all = BTreeMap::new();
    for (at, stage) in plan.stages.iter().enumerate() {
        match Releases::find(plan, stage, fingerprint) {
            Ok(found) => all.extend(found.map(|found| (at, found))),
            Err(EngineError::Problems(Problems(found))) => problems.extend(found),
            Err(other) => return Err(other),
        }
    }
    Ok(all)
}

/// Whether a stage writes an index.
pub fn writes_index(stage: &StagePlan) -> bool {
    match stage.kind {
        StageRef::ExactDedupe | StageRef::NearDedupe => stage.options.flag(WRITE_INDEX),
        _ => false,
    }
}
