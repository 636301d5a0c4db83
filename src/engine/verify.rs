//! Proves what an output folder can prove of itself, and says what it cannot.

mod validation;

use super::auxiliary::Auxiliary;
use super::finish::{self, read_audit};
use super::inputs::Inputs;
use super::options;
use super::progress::{Progress, Unit};
use super::releases;
use super::run::RunRecord;
use super::{EngineError, Stop};
use crate::algo::hash;
use crate::audit::{Audit, Identity};
use crate::order::{Item, Items, Keys};
use crate::pack::{Frame, Row};
use crate::plan::global::VALIDATION;
use crate::plan::{Overrides, Plan, Problems, StageRef, TokenizerSource as Named};
use crate::record::{Difference, without};
use crate::score;
use crate::shard::{
    AuxiliaryEntry, FileEntry, Manifest, ReadEdits, ReadIndex, ReadOrder, ReadRejects, ReadShard,
    RowRead, Totals, file_checksum,
};
use crate::source::{Entry, Reader, slices};
use crate::spill::{IoContext, ScratchColumn, Spill};
use crate::tokenizer::{Tokenizer, TokenizerSource};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Display;
use std::hash::Hash;
use std::path::{Component, Path, PathBuf};

/// What came of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// It holds.
    Holds,
    /// It does not.
    Fails,
    /// The folder alone cannot tell.
    CannotTell,
}

/// One check and what was found.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Check {
    /// What is claimed.
    pub claim: String,
    /// What came of it.
    pub state: CheckState,
    /// Figures, or where it fails.
    pub found: String,
}

/// How to verify.
#[derive(Clone, Debug)]
pub struct VerifyOptions {
    /// Re-read and re-tokenize the inputs.
    pub inputs: bool,
    /// The pipeline file, where it is not where the run found it.
    pub pipeline: Option<std::path::PathBuf>,
    /// Anonymous memory that may be used.
    pub memory_bytes: u64,
    /// What may be kept from run to run, such as the verdict of a tokenizer's self-check.
    pub cache: Option<std::path::PathBuf>,
}

/// A stretch of a document found in a shard or among the rejects.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Stretch {
    id: [u64; 2],
    copy: u64,
    start: u64,
    tokens: u64,
    /// 0 in a shard, 1 among the rejects.
    place: u64,
    position: u64,
}

/// Token ids of a document, summed up: from the output (0) or from the inputs (1).
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Content {
    id: [u64; 2],
    tokens: u64,
    /// Tokens of its text before any edit, where it is from the inputs.
    tokens_read: u64,
    content: [u64; 2],
    /// 0 from the output, possibly a part of a document; 1 from the inputs.
    from_inputs: u64,
    /// Reading order in the inputs; where the part begins in the output.
    at: u64,
}

struct Report(Vec<Check>);

impl Report {
    fn say(&mut self, claim: &str, state: CheckState, found: impl Into<String>) {
        self.0.push(Check {
            claim: claim.to_string(),
            state,
            found: found.into(),
        });
    }
    fn check(&mut self, claim: &str, problem: Option<String>, good: impl Into<String>) {
        match problem {
            Some(problem) => self.say(claim, CheckState::Fails, problem),
            None => self.say(claim, CheckState::Holds, good),
        }
    }
}

fn id_of(id: &str) -> [u64; 2] {
    let hash = hash::content(id.as_bytes());
    [(hash >> 64) as u64, hash as u64]
}

/// Checks the folder `out`. Every check is done, also after one that fails.
///
/// # Errors
/// When there is no manifest, or files cannot be read at all.
pub fn verify(
    out: &Path,
    options: &VerifyOptions,
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<Vec<Check>, EngineError> {
    let path = out.join("manifest.json");
    let text = std::fs::read_to_string(&path).map_err(|error| {
        EngineError::Request(format!(
            "{}: {error}; 'verify' takes the output folder of a finished run, the manifest is written last",
            path.display()
        ))
    })?;
    let mut report = Report(Vec::new());
    let manifest = match Manifest::parse(&text) {
        Ok(manifest) => manifest,
        Err(problem) => {
            report.say(
                "the manifest is as it was written",
                CheckState::Fails,
                format!("{} {problem}", path.display()),
            );
            return Ok(report.0);
        }
    };
    report.say(
        "the manifest is as it was written",
        CheckState::Holds,
        format!("dataset {}", manifest.checksum),
    );
    files(out, &manifest, &mut report, progress, stop)?;
    let audit = match read_audit(out) {
        Ok(audit) => audit,
        Err(error) => {
            report.say(
                "the ledger can be read",
                CheckState::Fails,
                error.to_string(),
            );
            return Ok(report.0);
        }
    };
    for (identity, written) in Identity::of(&audit).iter().zip(&audit.identities) {
        let problem = (!identity.holds || identity != written)
            .then(|| format!("{} against {}", identity.left, identity.right));
        report.check(
            &identity.name,
            problem,
            format!("{} = {}", identity.left, identity.right),
        );
    }
    let (said, ledger) = (
        &manifest.totals,
        Totals {
            read: Audit::total(&audit.read),
            kept: Audit::total(&audit.kept),
            rows: audit.emitted.rows,
            positions: audit.emitted.positions,
        },
    );
    report.check(
        "the totals of the manifest are those of the ledger",
        (*said != ledger).then(|| format!("{said:?} against {ledger:?}")),
        format!(
            "{} documents kept of {}",
            ledger.kept.documents, ledger.read.documents
        ),
    );
    let scratch = scratch_folder(out)?;
    let spill = Spill::new(&scratch, (options.memory_bytes / 8) as usize);
    let result = rows(
        out,
        &manifest,
        &audit,
        options,
        &spill,
        &mut report,
        progress,
        stop,
    );
    let removed = std::fs::remove_dir_all(&scratch).context("remove", &scratch);
    removed?;
    match result {
        Ok(()) => {}
        // The requests of --inputs, and Ctrl-C. What else ends the walk is a finding about the folder.
        Err(
            error @ (EngineError::Request(_) | EngineError::Problems(_) | EngineError::Interrupted),
        ) => return Err(error),
        Err(error) => {
            report.say(
                "every row can be read",
                CheckState::Fails,
                error.to_string(),
            );
            return Ok(report.0);
        }
    }
    if !options.inputs {
        report.say(
            "the tokens are those of the inputs",
            CheckState::CannotTell,
            "give --inputs to read and tokenize the inputs again",
        );
    }
    Ok(report.0)
}

/// A folder of our own beside the output, so that large sorts do not fill a small /tmp.
pub(super) fn scratch_folder(out: &Path) -> Result<std::path::PathBuf, EngineError> {
    let name = format!(".verify-{}", std::process::id());
    let near = out.join(&name);
    match std::fs::create_dir(&near) {
        Ok(()) => Ok(near),
        // The output may be read-only.
        Err(_) => {
            let far = std::env::temp_dir().join(format!("goodput{name}"));
            std::fs::create_dir_all(&far).context("create", &far)?;
            Ok(far)
        }
    }
}

/// Whether a path leads to a file below the folder that it is relative to.
fn is_below(path: &str) -> bool {
    let mut parts = Path::new(path).components();
    !path.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// The files of a folder of the output, as the manifest names them.
fn files_in<'m>(
    manifest: &'m Manifest,
    folder: &'static str,
) -> impl Iterator<Item = &'m FileEntry> {
    let mut files = manifest.files.iter();
    std::iter::from_fn(move || {
        files.find(|file| {
            let below = file.path.strip_prefix(folder);
            below.is_some_and(|name| name.starts_with('/')) && is_below(&file.path)
        })
    })
}

fn files(
    out: &Path,
    manifest: &Manifest,
    report: &mut Report,
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<(), EngineError> {
    let bytes = manifest.files.iter().map(|file| file.bytes);
    let total = bytes.fold(0, u64::saturating_add);
    progress.begin("checksums", total, Unit::Bytes);
    let mut problem = None;
    let mut seen = BTreeSet::new();
    for file in &manifest.files {
        stop.check()?;
        // A manifest made by hand must not make us read what is not of the folder.
        if !is_below(&file.path) {
            problem.get_or_insert(format!(
                "'{}' is not the path of a file in the folder",
                file.path
            ));
            continue;
        }
        if !seen.insert(&file.path) {
            problem.get_or_insert(format!("{} is named twice", file.path));
        }
        let found = file_checksum(&out.join(&file.path));
        match found {
            Ok(found) if found == (file.bytes, file.checksum.clone()) => {}
            Ok((bytes, _)) if bytes != file.bytes => {
                problem.get_or_insert(format!(
                    "{} has {bytes} bytes, the manifest says {}",
                    file.path, file.bytes
                ));
            }
            Ok(_) => {
                problem.get_or_insert(format!(
                    "{} has another checksum than the manifest says",
                    file.path
                ));
            }
            Err(error) => {
                problem.get_or_insert(error.to_string());
            }
        }
        progress.advance(file.bytes);
    }
    progress.end();
    report.check(
        "every file has the size and checksum that the manifest says",
        problem,
        format!("{} files", manifest.files.len()),
    );
    let named: BTreeSet<&str> = manifest
        .files
        .iter()
        .map(|file| file.path.as_str())
        .collect();
    let mut stranger = None;
    for entry in std::fs::read_dir(out).context("list", out)?.flatten() {
        let name = entry.file_name().to_string_lossy().to_string();
        let ours = finish::OUTPUT_NAMES.contains(&name.as_str())
            || name == "work"
            || name.starts_with(".verify-");
        if !ours {
            stranger.get_or_insert(format!("{name} is not in the manifest"));
        }
    }
    for folder in finish::OUTPUT_NAMES {
        for entry in std::fs::read_dir(out.join(folder))
            .into_iter()
            .flatten()
            .flatten()
        {
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if !named.contains(path.as_str()) {
                stranger.get_or_insert(format!("{path} is not in the manifest"));
            }
        }
    }
    report.check(
        "no file stands beside those of the manifest",
        stranger,
        "none does",
    );
    Ok(())
}

#[expect(
    clippy::too_many_arguments,
    reason = "one walk over the rows proves several claims"
)]
fn rows(
    out: &Path,
    manifest: &Manifest,
    audit: &Audit,
    options: &VerifyOptions,
    spill: &Spill,
    report: &mut Report,
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<(), EngineError> {
    let by_document = |a: &Stretch, b: &Stretch| {
        (a.id, a.copy, a.place, a.start, a.position)
            .cmp(&(b.id, b.copy, b.place, b.start, b.position))
    };
    let mut stretches = spill.sorter("stretches", by_document);
    let (mut next, mut positions, mut tokens, mut repeated, mut special, mut padding) =
        (0u64, 0u64, 0u64, 0u64, 0u64, 0u64);
    let (mut out_of_order, mut wrong_row, mut wrong_special, mut wide_id) =
        (None, None, None, None);
    let begins = u32::from(manifest.tokenizer.begin_token.is_some());
    progress.begin("rows", manifest.totals.rows, Unit::Rows);
    let mut wrong_count = None;
    for file in files_in(manifest, "shards") {
        stop.check()?;
        let mut failed = Ok(());
        let mut found = (0u64, 0u64);
        ReadShard::open(&out.join(&file.path))?.rows(&mut |row| {
            if row.position != next {
                out_of_order.get_or_insert(format!(
                    "{}: row {} where {next} is due",
                    file.path, row.position
                ));
            }
            next = row.position.wrapping_add(1);
            let length = row.input_ids.len() as u64;
            let mut in_segments = 0;
            let mut used = 0u64;
            for segment in &row.segments {
                let count = segment.tokens.unwrap_or_else(|| text_tokens(&row));
                let begin = segment
                    .row_start
                    .unwrap_or(if segment.doc_token_start == 0 {
                        begins
                    } else {
                        0
                    });
                if u64::from(begin) < used || u64::from(begin) + u64::from(count) > length {
                    wrong_row.get_or_insert(format!(
                        "{}: row {}: segments overlap or leave the row",
                        file.path, row.position
                    ));
                }
                used = u64::from(begin) + u64::from(count);
                in_segments += u64::from(count);
                if segment.copy > 0 {
                    repeated += u64::from(count);
                }
                failed = std::mem::replace(&mut failed, Ok(())).and_then(|()| {
                    stretches.push(Stretch {
                        id: id_of(segment.doc_id),
                        copy: u64::from(segment.copy),
                        start: u64::from(segment.doc_token_start),
                        tokens: u64::from(count),
                        place: 0,
                        position: row.position,
                    })
                });
            }
            if in_segments + u64::from(row.special_tokens) + u64::from(row.padding) != length {
                wrong_row.get_or_insert(format!(
                    "{}: row {}: {in_segments} + {} special + {} padding in {length} places",
                    file.path, row.position, row.special_tokens, row.padding
                ));
            }
            if row
                .usefulness
                .as_ref()
                .is_some_and(|usefulness| usefulness.len() as u64 != length)
            {
                wrong_special.get_or_insert(format!(
                    "{}: row {}: usefulness has another length",
                    file.path, row.position
                ));
            }
            if let Some(id) = row
                .input_ids
                .iter()
                .find(|id| **id >= manifest.tokenizer.vocabulary_size)
            {
                wide_id.get_or_insert(format!("{}: row {}: id {id}", file.path, row.position));
            }
            positions += length;
            found = (found.0 + 1, found.1 + length);
            tokens += in_segments;
            special += u64::from(row.special_tokens);
            padding += u64::from(row.padding);
            progress.advance(1);
            failed.is_ok()
        })?;
        failed?;
        if found != (file.rows, file.tokens) {
            wrong_count.get_or_insert(miscounted(file, found));
        }
    }
    progress.end();
    report.check(
        "row numbers are consecutive over all shards",
        out_of_order,
        format!("{next} rows"),
    );
    report.check(
        "every place of a row is text, a special token or padding",
        wrong_row,
        format!("{positions} places"),
    );
    report.check(
        "usefulness has one value for each token",
        wrong_special,
        "in every row",
    );
    report.check(
        "every id is in the vocabulary",
        wide_id,
        format!("all below {}", manifest.tokenizer.vocabulary_size),
    );
    let emitted = &audit.emitted;
    let sums = (next, positions, tokens, repeated, special, padding);
    let said = (
        emitted.rows,
        emitted.positions,
        emitted.tokens,
        emitted.repeated_tokens,
        emitted.special_tokens,
        emitted.padding,
    );
    report.check(
        "the shards hold what the ledger says was emitted",
        (sums != said).then(|| {
            format!(
                "rows, positions, tokens, repeated, special, padding: {sums:?} against {said:?}"
            )
        }),
        format!("{tokens} tokens"),
    );
    let mut rejected: BTreeMap<(String, String, String), (u64, u64)> = BTreeMap::new();
    let reject_files: Vec<_> = files_in(manifest, "rejects").collect();
    for file in &reject_files {
        stop.check()?;
        let mut failed = Ok(());
        let mut found = (0u64, 0u64);
        ReadRejects::open(&out.join(&file.path))?.rows(&mut |row| {
            found = (found.0 + 1, found.1 + u64::from(row.tokens));
            let sum = rejected
                .entry((row.source.into(), row.stage.into(), row.reason.into()))
                .or_default();
            sum.0 += 1;
            sum.1 += u64::from(row.tokens);
            failed = stretches.push(Stretch {
                id: id_of(row.doc_id),
                copy: 0,
                start: 0,
                tokens: u64::from(row.tokens),
                place: 1,
                position: 0,
            });
            failed.is_ok()
        })?;
        failed?;
        if found != (file.rows, file.tokens) {
            wrong_count.get_or_insert(miscounted(file, found));
        }
    }
    validation::rows(
        out,
        manifest,
        audit,
        &mut rejected,
        &mut |stretch| stretches.push(stretch),
        spill,
        report,
        stop,
    )?;
    report.check(
        "shards and rejects have the rows and tokens that the manifest says",
        wrong_count,
        format!("{next} rows in the shards"),
    );
    if reject_files.is_empty() {
        report.say(
            "the rejects are those of the ledger",
            CheckState::CannotTell,
            "the pipeline keeps none (rejects: none)",
        );
    } else {
        let said: BTreeMap<_, _> = audit
            .rejected
            .iter()
            .map(|row| {
                (
                    (row.source.clone(), row.stage.clone(), row.reason.clone()),
                    (row.counts.documents, row.counts.tokens),
                )
            })
            .collect();
        let problem = (rejected != said)
            .then(|| "documents and tokens by source, stage and reason differ".to_string());
        let documents: u64 = rejected.values().map(|(documents, _)| documents).sum();
        report.check(
            "the rejects are those of the ledger",
            problem,
            format!("{documents} documents"),
        );
    }
    // A packer that fits moves the rest of a long document; the others never do.
    let in_order = manifest.pack.method != "best_fit";
    documents(stretches.finish()?, audit, in_order, report)?;
    order(out, manifest, spill, report)?;
    indexes(out, manifest, report, stop)?;
    let cuts = edits(out, manifest, audit, spill, report, stop)?;
    if options.inputs {
        inputs(
            out, manifest, audit, &cuts, options, spill, report, progress, stop,
        )?;
    }
    Ok(())
}

/// That a file does not have the rows and tokens that the manifest says.
fn miscounted(file: &FileEntry, (rows, tokens): (u64, u64)) -> String {
    format!(
        "{} has {rows} rows and {tokens} tokens, the manifest says {} and {}",
        file.path, file.rows, file.tokens
    )
}

/// Tokens of text in an unpacked row.
fn text_tokens(row: &RowRead<'_>) -> u32 {
    let others = row.special_tokens.saturating_add(row.padding);
    (row.input_ids.len() as u32).saturating_sub(others)
}

/// Every document whole, once or in copies of the same length, and either kept or rejected.
fn documents(
    stretches: impl Iterator<Item = std::io::Result<Stretch>>,
    audit: &Audit,
    in_order: bool,
    report: &mut Report,
) -> Result<(), EngineError> {
    let mut last: Option<Stretch> = None;
    let (mut kept, mut gap, mut both, mut copies) = (0u64, None, None, None);
    let mut first_tokens = 0;
    let mut other_length = |end: Stretch| {
        let tokens = end.start + end.tokens;
        if end.copy == 0 {
            first_tokens = tokens;
        }
        (tokens != first_tokens).then(|| {
            format!(
                "row {}: copy {} of a document has {tokens} tokens where the first has {first_tokens}",
                end.position, end.copy
            )
        })
    };
    for stretch in stretches {
        let stretch = stretch?;
        match last {
            Some(before) if before.id == stretch.id && before.copy == stretch.copy => {
                if before.place != stretch.place || stretch.place == 1 {
                    both.get_or_insert(format!(
                        "the document in row {} stands twice",
                        before.position
                    ));
                } else if stretch.start != before.start + before.tokens {
                    gap.get_or_insert(format!(
                        "row {}: the document goes on at token {} where {} is due",
                        stretch.position,
                        stretch.start,
                        before.start + before.tokens
                    ));
                } else if in_order && stretch.position < before.position {
                    gap.get_or_insert(format!(
                        "row {}: holds token {} of a document whose earlier tokens stand in row {}",
                        stretch.position, stretch.start, before.position
                    ));
                }
            }
            _ => {
                let before = last.filter(|before| before.id == stretch.id);
                let due = before.map_or(0, |before| before.copy + 1);
                if stretch.copy != due {
                    copies.get_or_insert(format!(
                        "row {}: copy {} of a document where {due} is due",
                        stretch.position, stretch.copy
                    ));
                }
                copies = copies.or_else(|| last.and_then(&mut other_length));
                if stretch.place == 0 {
                    kept += u64::from(stretch.copy == 0);
                }
                if stretch.start != 0 {
                    gap.get_or_insert(format!(
                        "row {}: the document begins at token {}",
                        stretch.position, stretch.start
                    ));
                }
            }
        }
        last = Some(stretch);
    }
    copies = copies.or_else(|| last.and_then(&mut other_length));
    report.check(
        "copies of a document are numbered from 0 and have the same length",
        copies,
        format!("{} repeated tokens", audit.emitted.repeated_tokens),
    );
    report.check(
        "every emitted document is there from its first token on, without gap or overlap",
        gap,
        format!("{kept} documents"),
    );
    report.check(
        "no document is both kept and rejected, or twice in either",
        both,
        "none is",
    );
    let said = Audit::total(&audit.kept).documents;
    report.check(
        "the documents in the shards are as many as the ledger keeps",
        (kept != said).then(|| format!("{kept} against {said}")),
        format!("{kept} documents"),
    );
    Ok(())
}

/// Sort keys as the order file has them.
struct FileKeys {
    names: Vec<String>,
    values: ScratchColumn<f64>,
}

impl Keys for FileKeys {
    fn value(&self, number: u64, key: &str) -> f64 {
        let at = self.names.iter().position(|name| name == key);
        at.map_or(f64::NAN, |at| {
            self.values.values()[number as usize * self.names.len() + at]
        })
    }
}

/// The order file against the rule that the manifest names, and the rows against the order file.
fn order(
    out: &Path,
    manifest: &Manifest,
    spill: &Spill,
    report: &mut Report,
) -> Result<(), EngineError> {
    let (by_rule, by_packing) = (
        "the order follows the stated rule, ties included",
        "the rows are those that the packing makes of the order",
    );
    let strategy = options::from_json(
        &manifest.order.strategy,
        &manifest.order.parameters,
        &crate::order::specs(),
    )
    .and_then(|variant| crate::order::build(&variant).ok());
    let packer = options::from_json(
        &manifest.pack.method,
        &manifest.pack.parameters,
        &crate::pack::specs(),
    )
    .and_then(|variant| crate::pack::build(&variant).ok());
    let (Some(strategy), Some(packer)) = (strategy, packer) else {
        report.say(
            by_rule,
            CheckState::CannotTell,
            "this version does not know the strategy or the packing method",
        );
        return Ok(());
    };
    let files: Vec<_> = files_in(manifest, "order").collect();
    let mut documents = 0u64;
    for file in &files {
        // Room is made for every row, and no row is shorter than its hash.
        let bytes = std::fs::metadata(out.join(&file.path)).map_or(0, |found| found.len());
        if file.rows > bytes {
            let found = format!("{}: {} rows in {bytes} bytes", file.path, file.rows);
            report.say(by_rule, CheckState::Fails, found);
            return Ok(());
        }
        documents += file.rows;
    }
    let names = manifest.order.sort_keys.clone();
    let path = |name: &str| spill.folder().join(name);
    let mut items = ScratchColumn::<Item>::create(&path("items"), documents)?;
    let mut ids = ScratchColumn::<[u64; 2]>::create(&path("ids"), documents)?;
    let mut keys = FileKeys {
        values: ScratchColumn::create(&path("keys"), documents * names.len() as u64)?,
        names: names.clone(),
    };
    let mut next = 0u64;
    let mut problem = None;
    for file in &files {
        ReadOrder::open(&out.join(&file.path))?.rows(&names, &mut |place, row| {
            if place != next || place >= documents {
                problem.get_or_insert(format!("{}: place {place} where {next} is due", file.path));
                return false;
            }
            items.values_mut()[place as usize] = Item {
                number: place,
                rank: row.rank,
                content: row.content,
                id_hash: hash::id_hash(&row.doc_id),
                tokens: u64::from(row.tokens),
                copy: u64::from(row.copy),
            };
            ids.values_mut()[place as usize] = id_of(&row.doc_id);
            for (at, value) in row.keys.iter().enumerate() {
                keys.values.values_mut()[place as usize * names.len() + at] = *value;
            }
            next += 1;
            true
        })?;
    }
    let stream = || -> Items<'_> { Box::new(items.values().iter().map(|item| Ok(*item))) };
    if problem.is_none() {
        problem =
            match crate::order::prove(strategy.as_ref(), stream(), &keys, manifest.seed, spill)? {
                crate::order::Proof::Holds { .. } => None,
                crate::order::Proof::Differs { position, .. } => Some(format!(
                    "order/: another document than that in place {position} is due there"
                )),
            };
    }
    let taus: Vec<String> = manifest
        .order
        .kendall_tau_b
        .iter()
        .map(|(key, tau)| format!(", Kendall's tau-b of {key} {tau:.4}"))
        .collect();
    report.check(
        by_rule,
        problem,
        format!(
            "{documents} documents, {}{}",
            manifest.order.strategy,
            taus.concat()
        ),
    );

    let frame = Frame {
        begin_tokens: u32::from(manifest.tokenizer.begin_token.is_some()),
        end_tokens: u32::from(manifest.tokenizer.end_token.is_some()),
        shard_tokens: manifest.pack.shard_tokens,
    };
    let score = names
        .iter()
        .position(|name| name == "score" || name == "usefulness");
    let mut expected = packer.pack(stream(), frame);
    let (mut problem, mut failed) = (None, Ok(()));
    for file in files_in(manifest, "shards") {
        ReadShard::open(&out.join(&file.path))?.rows(&mut |row| {
            let due = match expected.next() {
                Some(Ok(due)) => due,
                Some(Err(error)) => {
                    failed = Err(error);
                    return false;
                }
                None => Row::default(),
            };
            let same = due.special_tokens == row.special_tokens
                && due.padding == row.padding
                && due.segments.len() == row.segments.len()
                && due.segments.iter().zip(&row.segments).all(|(due, found)| {
                    let at = due.item.number as usize;
                    let key =
                        score.map(|score| keys.values.values()[at * names.len() + score] as f32);
                    ids.values()[at] == id_of(found.doc_id)
                        && due.item.copy == u64::from(found.copy)
                        && due.doc_token_start == found.doc_token_start
                        && due.tokens == found.tokens.unwrap_or_else(|| text_tokens(&row))
                        && found.row_start.is_none_or(|start| start == due.row_start)
                        && key.is_none_or(|key| Some(key) == found.score)
                });
            if !same {
                problem.get_or_insert(format!(
                    "{}: row {} is another one",
                    file.path, row.position
                ));
            }
            same
        })?;
    }
    failed?;
    if problem.is_none() && expected.next().is_some() {
        problem = Some("rows are missing at the end".to_string());
    }
    report.check(
        by_packing,
        problem,
        format!("{} of {}", manifest.pack.method, manifest.pack.parameters),
    );
    Ok(())
}

/// The indexes for later runs against the order file.
fn indexes(
    out: &Path,
    manifest: &Manifest,
    report: &mut Report,
    stop: &Stop,
) -> Result<(), EngineError> {
    let in_index = format!("{}/", releases::INDEX_FOLDER);
    let mut found: BTreeMap<String, (u64, [u64; 2])> = BTreeMap::new();
    for file in manifest
        .files
        .iter()
        .filter(|file| file.path.starts_with(&in_index))
    {
        stop.check()?;
        let index = ReadIndex::open(&out.join(&file.path))?;
        let (documents, sum) = found.entry(index.about.stage.clone()).or_default();
        index.ids(&mut |id| {
            *documents += 1;
            *sum = add(*sum, id_of(id));
        })?;
    }
    if found.is_empty() {
        return Ok(());
    }
    let mut kept = (0, [0; 2]);
    for file in manifest
        .files
        .iter()
        .filter(|file| file.path.starts_with("order/"))
    {
        stop.check()?;
        ReadOrder::open(&out.join(&file.path))?.rows(&[], &mut |_, row| {
            kept = (kept.0 + 1, add(kept.1, id_of(&row.doc_id)));
            true
        })?;
    }
    let wrong = found.iter().find(|(_, sums)| **sums != kept);
    report.check(
        "the indexes for later runs hold the documents that were kept",
        wrong.map(|(stage, (documents, _))| {
            format!(
                "that of '{stage}' has {documents} documents, {} were kept, or others",
                kept.0
            )
        }),
        format!("{} documents in {} indexes", kept.0, found.len()),
    );
    Ok(())
}

/// Which of the files, by name and checksum, is another one than it was.
fn changed<N: Eq + Hash + Display>(now: &[(N, N)], then: &[(N, N)]) -> Option<String> {
    if now == then {
        return None;
    }
    let (have, had): (HashSet<_>, HashSet<_>) = (now.iter().collect(), then.iter().collect());
    let gone = then.iter().find(|file| !have.contains(file));
    let new = now.iter().find(|file| !had.contains(file));
    Some(match (gone, new) {
        (Some((name, _)), _) => format!("{name} was changed or removed since"),
        (None, Some((name, _))) => format!("{name} was added since"),
        (None, None) => "the same files stand in another order or number".to_string(),
    })
}

/// A sum over (place, id) of token ids that begin at place `at` of their document: parts of a
/// document add up to the whole, in any order.
fn sum_of(ids: &[u32], at: u64) -> [u64; 2] {
    let mut sum = [0u64; 2];
    for (id, place) in ids.iter().zip(at..) {
        let mixed = xxhash_rust::xxh3::xxh3_64(&(place << 32 ^ u64::from(*id)).to_le_bytes());
        sum = add(sum, [mixed, mixed.wrapping_mul(mixed | 1)]);
    }
    sum
}

fn add(a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
    [a[0].wrapping_add(b[0]), a[1].wrapping_add(b[1])]
}

/// A cut that was made in a document.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Cut {
    id: [u64; 2],
    /// Place in the file.
    place: u64,
    /// Number of the edit that it belongs to.
    edit: u64,
    start: u64,
    end: u64,
}

/// The cuts that were made, by document, those of one document as they were made.
struct Cuts(ScratchColumn<Cut>);

impl Cuts {
    /// What they leave of a text as it was read; `None` where there are none, or none that fit.
    fn rest(&self, id: [u64; 2], text: &str) -> Option<String> {
        let all = self.0.values();
        let mine = &all[all.partition_point(|cut| cut.id < id)..];
        let mine = &mine[..mine.partition_point(|cut| cut.id == id)];
        let mut rest: Option<String> = None;
        for edit in mine.chunk_by(|a, b| a.edit == b.edit) {
            let ranges = edit.iter().map(|cut| cut.start as usize..cut.end as usize);
            rest = Some(without(rest.as_deref().unwrap_or(text), ranges)?);
        }
        rest
    }

    fn documents(&self) -> u64 {
        self.0.values().chunk_by(|a, b| a.id == b.id).count() as u64
    }
}

/// The cuts against the ledger.
fn edits(
    out: &Path,
    manifest: &Manifest,
    audit: &Audit,
    spill: &Spill,
    report: &mut Report,
    stop: &Stop,
) -> Result<Cuts, EngineError> {
    let files = || files_in(manifest, "edits");
    let mut sorter = spill.sorter("cuts", |a: &Cut, b: &Cut| {
        (a.id, a.place).cmp(&(b.id, b.place))
    });
    let mut found: BTreeMap<[String; 3], Difference> = BTreeMap::new();
    let mut edit: Option<(String, String)> = None;
    let (mut number, mut place) = (0u64, 0u64);
    for file in files() {
        stop.check()?;
        let mut failed = Ok(());
        ReadEdits::open(&out.join(&file.path))?.rows(&mut |row| {
            place += 1;
            if row.nothing_left {
                return true;
            }
            let begins = edit
                .as_ref()
                .is_none_or(|(id, stage)| (id.as_str(), stage.as_str()) != (row.doc_id, row.stage));
            if begins {
                edit = Some((row.doc_id.to_string(), row.stage.to_string()));
                number += 1;
            }
            let key = [row.source, row.stage, row.reason].map(String::from);
            *found.entry(key).or_default() += Difference {
                documents: u64::from(begins),
                bytes: row.byte_end as i64 - row.byte_start as i64,
                tokens: row.tokens,
            };
            failed = sorter.push(Cut {
                id: id_of(row.doc_id),
                place,
                edit: number,
                start: row.byte_start,
                end: row.byte_end,
            });
            failed.is_ok()
        })?;
        failed?;
    }
    let said: BTreeMap<_, _> = audit
        .edited
        .iter()
        .map(|row| {
            let key = [&row.source, &row.stage, &row.reason].map(String::clone);
            (key, row.counts)
        })
        .collect();
    if files().next().is_some() || !said.is_empty() {
        report.check(
            "the cuts are those of the ledger",
            (found != said).then(|| {
                "documents, bytes and tokens by source, stage and reason differ".to_string()
            }),
            format!("{} cuts in {number} edits", sorter.len()),
        );
    }
    let mut cuts = ScratchColumn::create(&spill.folder().join("cuts-by-id"), sorter.len())?;
    for (slot, cut) in cuts.values_mut().iter_mut().zip(sorter.finish()?) {
        *slot = cut?;
    }
    Ok(Cuts(cuts))
}

/// Reads and tokenizes the inputs again and compares document by document.
#[expect(
    clippy::too_many_arguments,
    reason = "one walk over the inputs proves several claims"
)]
fn inputs(
    out: &Path,
    manifest: &Manifest,
    audit: &Audit,
    cuts: &Cuts,
    options: &VerifyOptions,
    spill: &Spill,
    report: &mut Report,
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<(), EngineError> {
    let mut plan = plan_of(out, options.pipeline.as_deref())?;
    // The run may have been given another folder than the file names.
    plan.output.path = out.to_path_buf();
    if plan.hash != manifest.pipeline_hash {
        return Err(EngineError::Request(format!(
            "{} is not the pipeline that made {}; name the right one with --pipeline",
            plan.path.display(),
            out.display()
        )));
    }
    let inputs = Inputs::find(&plan)?;
    let checksums = inputs.checksums(&|_| {}, stop)?;
    let files = inputs.files.iter().zip(&checksums);
    let now: Vec<_> = files
        .map(|(file, sum)| (file.found.name.as_str(), sum.as_str()))
        .collect();
    let entries = manifest.inputs.iter();
    let then: Vec<_> = entries
        .map(|entry| (entry.name.as_str(), entry.checksum.as_str()))
        .collect();
    report.check(
        "the input files are those of the run",
        changed(&now, &then),
        format!("{} files", now.len()),
    );
    let mut of_estimator = Vec::new();
    for stage in &plan.stages {
        if let StageRef::Score { estimator } = stage.kind
            && let Ok(fit) = (score::TABLE[estimator].build)(&stage.options)
        {
            of_estimator = fit.files();
        }
    }
    let (now, missing) = match Auxiliary::find(&plan, &of_estimator) {
        Ok(mut auxiliary) => {
            auxiliary.read_checksums(&|_| {}, stop)?;
            (auxiliary.entries(), None)
        }
        Err(EngineError::Problems(Problems(found))) => {
            (Vec::new(), found.first().map(ToString::to_string))
        }
        Err(other) => return Err(other),
    };
    let named = |entries: &[AuxiliaryEntry]| -> Vec<(String, String)> {
        let named = |entry: &AuxiliaryEntry| {
            let name = format!("{} ('{}' of {})", entry.name, entry.option, entry.stage);
            (name, entry.checksum.clone())
        };
        entries.iter().map(named).collect()
    };
    let (now, then) = (named(&now), named(&manifest.auxiliary_files));
    report.check(
        "the other files that shaped the result are those of the run",
        missing.or_else(|| changed(&now, &then)),
        format!("{} files", now.len()),
    );
    let source = match &plan.tokenizer.source {
        Named::File { resolved, .. } => TokenizerSource::File(resolved.clone()),
        Named::Builtin(name) => TokenizerSource::Builtin(name.clone()),
    };
    let tokenizer = Tokenizer::load(&source, options.cache.as_deref())?;
    let compare = |a: &Content, b: &Content| {
        (a.id, a.from_inputs, a.at, a.tokens, a.content).cmp(&(
            b.id,
            b.from_inputs,
            b.at,
            b.tokens,
            b.content,
        ))
    };
    let mut contents = spill.sorter("contents", compare);
    let begins = u32::from(manifest.tokenizer.begin_token.is_some());
    for file in files_in(manifest, "shards").chain(files_in(manifest, VALIDATION)) {
        let mut failed = Ok(());
        ReadShard::open(&out.join(&file.path))?.rows(&mut |row| {
            for segment in row.segments.iter().filter(|segment| segment.copy == 0) {
                let count = segment.tokens.unwrap_or_else(|| text_tokens(&row));
                let begin = segment
                    .row_start
                    .unwrap_or(if segment.doc_token_start == 0 {
                        begins
                    } else {
                        0
                    }) as usize;
                // What leaves the row is told by the check of its places.
                let Some(ids) = row.input_ids.get(begin..begin + count as usize) else {
                    continue;
                };
                let at = u64::from(segment.doc_token_start);
                failed = std::mem::replace(&mut failed, Ok(())).and_then(|()| {
                    contents.push(Content {
                        id: id_of(segment.doc_id),
                        tokens: ids.len() as u64,
                        tokens_read: 0,
                        content: sum_of(ids, at),
                        from_inputs: 0,
                        at,
                    })
                });
            }
            failed.is_ok()
        })?;
        failed?;
    }
    for file in files_in(manifest, "rejects") {
        let mut failed = Ok(());
        ReadRejects::open(&out.join(&file.path))?.rows(&mut |row| {
            if let Some(ids) = row.input_ids {
                failed = contents.push(Content {
                    id: id_of(row.doc_id),
                    tokens: ids.len() as u64,
                    tokens_read: 0,
                    content: sum_of(&ids, 0),
                    from_inputs: 0,
                    at: 0,
                });
            }
            failed.is_ok()
        })?;
        failed?;
    }
    progress.begin("inputs", inputs.bytes(), Unit::Bytes);
    let mut ids = Vec::new();
    let mut read = 0u64;
    let mut failed: Result<(), std::io::Error> = Ok(());
    for (number, file) in inputs.files.iter().enumerate() {
        let input = inputs.input_of(number as u32);
        for slice in slices(&file.found, &input.spec, u64::MAX)? {
            let mut reader = Reader::open(&file.found, &slice, &input.spec)?;
            while let Some(chunk) = reader.next_chunk()? {
                stop.check()?;
                chunk.decode(&input.spec, &mut |entry| {
                    let Entry::Document(document) = entry else {
                        return;
                    };
                    let id = document.id.clone().unwrap_or_else(|| {
                        super::corpus::derived_id(&file.found.name, document.place)
                    });
                    let sampled = manifest.sample_share.is_none_or(|share| {
                        hash::keyed(manifest.seed, "sample", hash::id_hash(&id))
                            < (share * u64::MAX as f64) as u64
                    });
                    if !sampled || tokenizer.encode_into(&document.text, &mut ids).is_err() {
                        return;
                    }
                    let tokens_read = ids.len() as u64;
                    if let Some(rest) = cuts.rest(id_of(&id), &document.text)
                        && tokenizer.encode_into(&rest, &mut ids).is_err()
                    {
                        ids.clear();
                    }
                    let content = Content {
                        id: id_of(&id),
                        tokens: ids.len() as u64,
                        tokens_read,
                        content: sum_of(&ids, 0),
                        from_inputs: 1,
                        at: read,
                    };
                    read += 1;
                    if failed.is_ok() {
                        failed = contents.push(content);
                    }
                });
            }
        }
        progress.advance(file.found.bytes);
    }
    failed?;
    progress.end();
    let (mut same, mut differing, mut unmatched, mut missing) = (0u64, 0u64, 0u64, 0u64);
    let (mut tokens_read, mut last_read) = (0u64, None);
    let mut output: Option<Content> = None;
    let mut matched = true;
    for content in contents.finish()? {
        let content = content?;
        // Of repeated ids the first is a document.
        let first = content.from_inputs == 1 && last_read.replace(content.id) != Some(content.id);
        if first {
            tokens_read += content.tokens_read;
        }
        if content.from_inputs == 0 {
            match &mut output {
                Some(whole) if whole.id == content.id => {
                    whole.tokens += content.tokens;
                    whole.content = add(whole.content, content.content);
                }
                _ => {
                    missing += u64::from(!matched);
                    output = Some(content);
                    matched = false;
                }
            }
        } else if let Some(found) = output.filter(|found| found.id == content.id) {
            // Of repeated ids the first is in the output, the others in quarantine.
            if !matched {
                let equal = (found.tokens, found.content) == (content.tokens, content.content);
                same += u64::from(equal);
                differing += u64::from(!equal);
                matched = true;
            }
        } else {
            unmatched += u64::from(first);
        }
    }
    missing += u64::from(!matched);
    let rejects_kept = files_in(manifest, "rejects").next().is_some();
    // Documents that a stage failed on are in quarantine.
    let failed = Audit::total_loss(&audit.failed).documents;
    let problem = if differing > 0 || missing > 0 || (rejects_kept && unmatched > failed) {
        Some(format!(
            "{differing} documents differ, {missing} are not in the inputs, {unmatched} are only in the inputs"
        ))
    } else {
        None
    };
    let after_cuts = match cuts.documents() {
        0 => String::new(),
        edited => format!(", {edited} of them as the cuts in edits/ leave them"),
    };
    report.check(
        "the tokens are those of the inputs, document by document",
        problem,
        format!("{same} documents{after_cuts}"),
    );
    let said = Audit::total(&audit.read).tokens;
    report.check(
        "the inputs have as many tokens as the ledger has read",
        (tokens_read != said).then(|| format!("{tokens_read} against {said}")),
        format!("{tokens_read} tokens"),
    );
    Ok(())
}

/// The pipeline that made a folder.
///
/// # Errors
/// When it is not found where the run found it, and no other place is given.
pub fn plan_of(out: &Path, pipeline: Option<&Path>) -> Result<Plan, EngineError> {
    let path = match pipeline {
        Some(path) => path.to_path_buf(),
        None => {
            let record = out.join("run.json");
            let text = std::fs::read(&record).context("read", &record)?;
            let record: RunRecord = serde_json::from_slice(&text).map_err(|error| {
                EngineError::Request(format!(
                    "{}: {error}; name the pipeline with --pipeline",
                    record.display()
                ))
            })?;
            let named = PathBuf::from(record.pipeline_path);
            let places = [out.join(&named), named.clone()];
            let found = places.into_iter().find(|path| path.is_file());
            found.ok_or_else(|| {
                EngineError::Request(format!(
                    "{}: its pipeline, {}, is not found from there, nor from the current folder; name it with --pipeline",
                    out.display(),
                    named.display()
                ))
            })?
        }
    };
    let set = overrides_of(out)?;
    crate::plan::load(&path, &Overrides { set, out: None })
        .map_err(|problems: Problems| EngineError::Problems(problems))
}

/// The way from the output folder to the pipeline file, by which [`plan_of`] finds it. Where they have nothing in
/// common but the root of the file system, the path as it was given, or the file's name alone where that was
/// absolute.
pub(super) fn path_from(out: &Path, pipeline: &Path) -> PathBuf {
    let way = || -> Option<PathBuf> {
        let (out, file) = (out.canonicalize().ok()?, pipeline.canonicalize().ok()?);
        let (out, file): (Vec<_>, Vec<_>) =
            (out.components().collect(), file.components().collect());
        let common = out.iter().zip(&file).take_while(|(a, b)| a == b).count();
        let up = out[common..].iter().map(|_| Component::ParentDir);
        (common > 1).then(|| up.chain(file[common..].iter().copied()).collect())
    };
    way().unwrap_or_else(|| match (pipeline.is_absolute(), pipeline.file_name()) {
        (true, Some(name)) => name.into(),
        _ => pipeline.to_path_buf(),
    })
}

/// The `--set` of the run, which the record keeps.
fn overrides_of(out: &Path) -> Result<Vec<String>, EngineError> {
    let path = out.join("run.json");
    let text = std::fs::read(&path).context("read", &path)?;
    Ok(serde_json::from_slice::<RunRecord>(&text)
        .map(|record| record.set)
        .unwrap_or_default())
}
