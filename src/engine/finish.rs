//! The ledger, the filled pipeline and the manifest.

use super::EngineError;
use super::arrange::Layout;
use super::auxiliary::Auxiliary;
use super::corpus::SPELLS_SPECIAL;
use super::decide::{Decisions, StageNotes};
use super::domains::References;
use super::emit::{
    CURRICULUM_PARTS, RejectedUsefulness, RepeatedIds, ShardSums, StageWords, UsefulnessKey,
    UsefulnessSum, part_start,
};
use super::inputs::Inputs;
use super::options;
use super::scores::Scores;
use super::work::write_whole;
use crate::algo::quantise::byte_of;
use crate::audit::{
    self, Audit, CurriculumPart, DocumentHistogram, Identity, LossRow, LowValue, NoteRow,
    QuarantineRow, ReadRow, SourceUsefulness, TokenizerEntry, TruncatedFile, Usefulness, Worth,
};
use crate::plan::{Plan, StageRef};
use crate::record::{Counts, Difference};
use crate::score::EstimatorKind;
use crate::shard::{
    EstimatorEntry, FileEntry, InputEntry, Manifest, OrderEntry, PackEntry, ShardShape,
    TokenizerManifest, Totals, UsefulnessType, ValidationEntry,
};
use crate::spill::IoContext;
use crate::stages;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Everything that a run writes into its output folder, but for `work`.
pub const OUTPUT_NAMES: [&str; 14] = [
    "manifest.json",
    "pipeline.yaml",
    "audit.json",
    "shards",
    "order",
    "validation",
    "rejects",
    "quarantine",
    "duplicates",
    "contamination",
    "edits",
    "index",
    "run.json",
    "run.log",
];

/// Usefulness below which a kept token is counted as low: a tenth.
const LOW_USEFULNESS: f64 = 0.1;

/// What the ledger and the manifest are made from.
pub struct Finish<'a> {
    pub plan: &'a Plan,
    pub inputs: &'a Inputs,
    pub checksums: &'a [String],
    pub auxiliary: &'a Auxiliary,
    pub decisions: &'a Decisions<'a>,
    pub stages: &'a [StageWords],
    pub notes: StageNotes,
    pub repeated_ids: RepeatedIds,
    pub set: &'a [String],
    pub sums: ShardSums,
    pub rejected: RejectedUsefulness,
    pub references: Option<&'a References<'a>>,
    pub scores: Option<&'a Scores<'a>>,
    pub tokenizer: TokenizerManifest,
    pub estimator: Option<(&'static EstimatorKind, Value)>,
    pub order: &'a Layout,
    pub lr_hint: &'static str,
    pub validation: Option<ValidationEntry>,
    pub sample_share: Option<f64>,
    pub tool: &'a str,
}

/// Reads the ledger of a finished folder.
pub fn read_audit(out: &Path) -> Result<Audit, EngineError> {
    let path = out.join("audit.json");
    let text = std::fs::read(&path).context("read", &path)?;
    serde_json::from_slice(&text).map_err(|error| {
        EngineError::Failed(format!(
            "{}: is not a ledger of this version: {error}",
            path.display()
        ))
    })
}

/// Key-value metadata of every shard.
pub fn shard_metadata(
    plan: &Plan,
    tokenizer: &TokenizerManifest,
    estimator: Option<&(&'static EstimatorKind, Value)>,
    shape: &ShardShape,
) -> Vec<(String, String)> {
    let mut pairs = vec![
        (
            "goodput.tool",
            format!("goodput {}", env!("CARGO_PKG_VERSION")),
        ),
        ("goodput.pipeline_hash", plan.hash.clone()),
        ("goodput.tokenizer", tokenizer.name.clone()),
        (
            "goodput.tokenizer_fingerprint",
            tokenizer.fingerprint.clone(),
        ),
        ("goodput.tokenizer_engine", tokenizer.engine.clone()),
        (
            "goodput.vocabulary_size",
            tokenizer.vocabulary_size.to_string(),
        ),
        ("goodput.highest_id", tokenizer.highest_id.to_string()),
        ("goodput.padding_id", tokenizer.padding_id.to_string()),
    ];
    for (name, token) in [
        ("goodput.begin_token_id", &tokenizer.begin_token),
        ("goodput.end_token_id", &tokenizer.end_token),
    ] {
        if let Some((_, id)) = token {
            pairs.push((name, id.to_string()));
        }
    }
    if let Some((kind, fitted)) = estimator {
        let word = |name: &str| {
            fitted
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or("")
                .to_string()
        };
        pairs.push(("goodput.estimator", kind.spec.name.to_string()));
        pairs.push(("goodput.estimator_version", kind.version.to_string()));
        pairs.push(("goodput.estimator_parameter_hash", word("parameter_hash")));
        pairs.push(("goodput.calibration", word("calibration")));
        pairs.push(("goodput.estimator_fitted", fitted.to_string()));
        pairs.push((
            "goodput.usefulness",
            match shape.usefulness {
                Some(UsefulnessType::F32) => "f32, as computed".to_string(),
                _ => "u8: value / 255, rounded half to even; off by at most 1/510".to_string(),
            },
        ));
    }
    pairs
        .into_iter()
        .map(|(name, value)| (name.to_string(), value))
        .collect()
}

impl Finish<'_> {
    fn audit(&self) -> Audit {
        let corpus = self.decisions.corpus();
        // Sources in the order of their first input.
        let mut sources: Vec<&str> = Vec::new();
        for input in &self.inputs.inputs {
            if !sources.contains(&input.source.as_str()) {
                sources.push(&input.source);
            }
        }
        let source_of: Vec<usize> = self
            .inputs
            .inputs
            .iter()
            .map(|input| {
                sources
                    .iter()
                    .position(|name| *name == input.source)
                    .expect("collected above")
            })
            .collect();
        let mut read = vec![Counts::default(); sources.len()];
        let mut kept = vec![Counts::default(); sources.len()];
        let mut lost: BTreeMap<(bool, u16, u16, usize), Counts> = BTreeMap::new();
        let mut spelled = 0;
        let mut by_score = DocumentHistogram {
            documents: vec![0; 256],
            tokens: vec![0; 256],
        };
        for (number, row) in corpus.rows() {
            let source = source_of[corpus.input(row) as usize];
            let fate = self.decisions.fate(number);
            if fate.duplicate_id == 1 {
                continue;
            }
            let counts = Counts::one(row.text_bytes, u64::from(row.tokens));
            read[source] += Counts::one(row.text_bytes, u64::from(row.tokens_read));
            if self.decisions.is_kept(number) {
                kept[source] += counts;
                if let Some(scores) = self.scores {
                    let byte = usize::from(byte_of(scores.of(number).score));
                    by_score.documents[byte] += 1;
                    by_score.tokens[byte] += counts.tokens;
                }
            } else {
                let failed = self.decisions.is_failed(number);
                *lost
                    .entry((
                        failed,
                        fate.stage,
                        if failed { 0 } else { fate.reason },
                        source,
                    ))
                    .or_default() += counts;
            }
            spelled += u64::from(row.flags & SPELLS_SPECIAL == SPELLS_SPECIAL);
        }
        // What was cut was read. Tokens were counted before every edit, so that the sums prove something.
        let mut cut: BTreeMap<(u16, u16, usize), Difference> = BTreeMap::new();
        let segments = corpus.segments();
        let tasks = || {
            segments
                .iter()
                .flat_map(|corpus| corpus.tasks.iter().zip(&corpus.bases))
        };
        for (task, &base) in tasks() {
            for edit in task.edits.values() {
                let fate = self.decisions.fate(base + edit.document);
                if edit.nothing_left == 1 || fate.duplicate_id == 1 {
                    continue;
                }
                let row = &task.docs.values()[edit.document as usize];
                let source = source_of[corpus.input(row) as usize];
                read[source].bytes = read[source].bytes.wrapping_add_signed(edit.bytes);
                *cut.entry((edit.stage, edit.reason, source)).or_default() += Difference {
                    documents: 1,
                    bytes: edit.bytes,
                    tokens: edit.tokens,
                };
            }
        }
        let edited = cut
            .into_iter()
            .map(|((stage, reason, source), counts)| {
                let words = &self.stages[stage as usize];
                let reason = &words.reasons[reason as usize];
                LossRow {
                    source: sources[source].to_string(),
                    stage: words.label.clone(),
                    reason: reason.name.to_string(),
                    class: Some(reason.class),
                    counts,
                }
            })
            .collect();
        let rows = |counts: &[Counts]| -> Vec<ReadRow> {
            sources
                .iter()
                .zip(counts)
                .map(|(source, counts)| ReadRow {
                    source: source.to_string(),
                    counts: *counts,
                })
                .collect()
        };
        let (mut rejected, mut failed) = (Vec::new(), Vec::new());
        for ((is_failed, stage, reason, source), counts) in lost {
            let words = &self.stages[stage as usize];
            let mut row = LossRow {
                source: sources[source].to_string(),
                stage: words.label.clone(),
                reason: "failed".to_string(),
                class: None,
                counts,
            };
            if is_failed {
                failed.push(row);
            } else {
                let reason = &words.reasons[reason as usize];
                row.reason = reason.name.to_string();
                row.class = Some(reason.class);
                rejected.push(row);
            }
        }
        let mut quarantined: BTreeMap<(usize, String), (u64, u64)> = BTreeMap::new();
        let (mut records, mut left_out) = (0, 0);
        let mut truncated_files = Vec::new();
        let mut notes = Vec::new();
        let mut counted: BTreeMap<(u16, u16), u64> = BTreeMap::new();
        for (task, _) in tasks() {
            records += task.info.records.values().sum::<u64>();
            left_out += task.info.left_out.values().sum::<u64>();
            for (file, reasons) in &task.info.quarantined {
                let source = source_of[self.inputs.files[*file as usize].input as usize];
                for (reason, (records, bytes)) in reasons {
                    let sum = quarantined.entry((source, reason.clone())).or_default();
                    sum.0 += records;
                    sum.1 += bytes;
                }
            }
            for (file, problem) in &task.info.truncated {
                let file = self.inputs.files[*file as usize].found.name.clone();
                truncated_files.push(TruncatedFile {
                    file,
                    problem: problem.clone(),
                });
            }
            for (stage, stage_notes) in &task.info.notes {
                for (note, count) in stage_notes {
                    *counted.entry((*stage, *note)).or_default() += count;
                }
            }
        }
        for (&input, (records, bytes)) in &self.repeated_ids {
            let source = source_of[input as usize];
            let sum = quarantined
                .entry((source, "duplicate_id".to_string()))
                .or_default();
            sum.0 += records;
            sum.1 += bytes;
        }
        if spelled > 0 {
            notes.push(NoteRow {
                stage: "tokenize".into(),
                note: "documents_that_spell_a_special_token".into(),
                count: spelled,
            });
        }
        for (at, stage) in self.plan.stages.iter().enumerate() {
            if let StageRef::Document(kind) = stage.kind {
                for (note, name) in stages::TABLE[kind].notes.iter().enumerate() {
                    if let Some(count) = counted.get(&(at as u16 + 1, note as u16)) {
                        notes.push(NoteRow {
                            stage: stage.label.clone(),
                            note: name.to_string(),
                            count: *count,
                        });
                    }
                }
            }
            for (note, count) in self.notes.get(&stage.label).into_iter().flatten() {
                notes.push(NoteRow {
                    stage: stage.label.clone(),
                    note: note.clone(),
                    count: *count,
                });
            }
        }
        let emitted = self.sums.emitted;
        let mut histograms = vec![[0u64; 256]; sources.len()];
        let mut of_first_copies = histograms.clone();
        for ((input, repeated), counts) in &self.sums.histograms {
            let source = source_of[*input as usize];
            let mut sums = vec![&mut histograms[source]];
            if !repeated {
                sums.push(&mut of_first_copies[source]);
            }
            for sum in sums {
                sum.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
            }
        }
        let below = self.estimator.as_ref().map(|_| {
            let tokens = of_first_copies.iter().map(|histogram| {
                let bytes = histogram.iter().enumerate();
                bytes
                    .filter(|(byte, _)| (*byte as f64) < LOW_USEFULNESS * 255.0)
                    .map(|(_, n)| n)
                    .sum()
            });
            (LOW_USEFULNESS, tokens.collect())
        });
        // Whole bytes are summed, so the sums are exact until the one division.
        let sum_255 = |histogram: &[u64]| -> u64 {
            let bytes = histogram.iter().enumerate();
            bytes.map(|(byte, n)| byte as u64 * n).sum()
        };
        let usefulness = self.estimator.as_ref().map(|(kind, fitted)| {
            let mut histogram = vec![0; 256];
            for counts in &histograms {
                histogram
                    .iter_mut()
                    .zip(counts)
                    .for_each(|(sum, n)| *sum += n);
            }
            let sum = sum_255(&histogram) as f64 / 255.0;
            let u_ref = fitted
                .get("u_ref")
                .and_then(Value::as_f64)
                .filter(|u_ref| *u_ref > 0.0);
            Usefulness {
                estimator: kind.spec.name.to_string(),
                calibration: fitted
                    .get("calibration")
                    .and_then(Value::as_str)
                    .unwrap_or("uncalibrated")
                    .to_string(),
                histogram,
                by_score: by_score.clone(),
                sum,
                u_ref,
                u_ref_by_domain: fitted
                    .get("u_ref_by_domain")
                    .and_then(Value::as_object)
                    .into_iter()
                    .flatten()
                    .filter_map(|(name, u_ref)| Some((name.clone(), u_ref.as_f64()?)))
                    .collect(),
                worth: self.worth(emitted.positions, |_| true),
                by_source: sources
                    .iter()
                    .zip(&histograms)
                    .map(|(source, histogram)| SourceUsefulness {
                        source: source.to_string(),
                        tokens: histogram.iter().sum(),
                        sum_255: sum_255(histogram),
                        histogram: histogram.to_vec(),
                        worth: self.worth(histogram.iter().sum(), |key| {
                            sources[source_of[usize::from(key.input)]] == *source
                        }),
                    })
                    .collect(),
                rejected: self.rejected(&sources, &source_of),
                curriculum: self.curriculum(emitted.positions),
            }
        });
        let mut audit = Audit {
            version: 1,
            pipeline: self.plan.name.clone(),
            pipeline_hash: self.plan.hash.clone(),
            records_in_files: records,
            records_left_out: left_out,
            sample_share: self.sample_share,
            low_value: LowValue::of(&rows(&read), &rejected, below),
            read: rows(&read),
            kept: rows(&kept),
            rejected,
            failed,
            edited,
            quarantined: quarantined
                .into_iter()
                .map(|((source, reason), (records, bytes))| QuarantineRow {
                    source: sources[source].to_string(),
                    reason,
                    records,
                    bytes,
                })
                .collect(),
            truncated_files,
            notes,
            emitted,
            usefulness,
            tokenizer: TokenizerEntry {
                name: self.tokenizer.name.clone(),
                fingerprint: self.tokenizer.fingerprint.clone(),
                counts: "exact".to_string(),
            },
            identities: Vec::new(),
        };
        audit.identities = Identity::of(&audit);
        audit
    }

    /// What the emitted tokens are worth of which `wanted` says so.
    fn worth(&self, places: u64, wanted: impl Fn(&UsefulnessKey) -> bool) -> Worth {
        let Some(references) = self.references else {
            return Worth::default();
        };
        let sums = self.sums.usefulness.iter().filter(|(key, _)| wanted(key));
        Worth::of(
            sums.map(|(key, sum)| (references.value(key.reference), key.copy, sum.sum_255)),
            places,
        )
    }

    fn curriculum(&self, positions: u64) -> Vec<CurriculumPart> {
        (0..CURRICULUM_PARTS)
            .map(|part| {
                let first_position = part_start(part, positions);
                let here = part_start(part + 1, positions) - first_position;
                let mut sum = UsefulnessSum::default();
                for (key, more) in &self.sums.usefulness {
                    if u64::from(key.part) == part {
                        sum += *more;
                    }
                }
                CurriculumPart {
                    first_position,
                    positions: here,
                    tokens: sum.tokens,
                    sum_255: sum.sum_255,
                    worth: self.worth(here, |key| u64::from(key.part) == part),
                }
            })
            .collect()
    }

    /// What was rejected after it had been scored, by stage, reason and source.
    fn rejected(&self, sources: &[&str], source_of: &[usize]) -> Vec<audit::RejectedUsefulness> {
        let mut rows: BTreeMap<(u16, u16, usize), Vec<(u16, UsefulnessSum)>> = BTreeMap::new();
        for (&(stage, reason, input, reference), &sum) in &self.rejected {
            let source = source_of[usize::from(input)];
            rows.entry((stage, reason, source))
                .or_default()
                .push((reference, sum));
        }
        rows.into_iter()
            .map(|((stage, reason, source), sums)| {
                let words = &self.stages[usize::from(stage)];
                let mut total = UsefulnessSum::default();
                sums.iter().for_each(|(_, sum)| total += *sum);
                let worth = self.references.map(|references| {
                    let sums = sums
                        .iter()
                        .map(|(reference, sum)| (references.value(*reference), 0, sum.sum_255));
                    Worth::of(sums, total.tokens)
                });
                audit::RejectedUsefulness {
                    source: sources[source].to_string(),
                    stage: words.label.clone(),
                    reason: words.reasons[usize::from(reason)].name.to_string(),
                    tokens: total.tokens,
                    sum_255: total.sum_255,
                    worth: worth.unwrap_or_default(),
                }
            })
            .collect()
    }

    /// Writes `pipeline.yaml` and `audit.json`. Returns the manifest too, and its text, which is to be
    /// written last of all.
    pub fn write(
        self,
        out: &Path,
        mut files: Vec<FileEntry>,
    ) -> Result<(Audit, Manifest, String), EngineError> {
        let audit = self.audit();
        if let Some(broken) = audit.identities.iter().find(|identity| !identity.holds) {
            return Err(EngineError::Failed(format!(
                "the ledger does not close, which is a bug: {}: {} against {}",
                broken.name, broken.left, broken.right
            )));
        }
        let audit_text =
            serde_json::to_string_pretty(&audit).map_err(std::io::Error::other)? + "\n";
        for (name, text) in [
            ("pipeline.yaml", &self.plan.filled),
            ("audit.json", &audit_text),
        ] {
            write_whole(&out.join(name), text.as_bytes())?;
            let checksum = format!("{:032x}", crate::algo::hash::content(text.as_bytes()));
            files.push(FileEntry {
                path: name.to_string(),
                bytes: text.len() as u64,
                rows: 0,
                tokens: 0,
                checksum,
            });
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let mut records: BTreeMap<u32, u64> = BTreeMap::new();
        for corpus in self.decisions.corpus().segments() {
            for (file, count) in corpus.tasks.iter().flat_map(|task| &task.info.records) {
                *records.entry(*file).or_default() += count;
            }
        }
        let inputs = self
            .inputs
            .files
            .iter()
            .zip(self.checksums)
            .enumerate()
            .map(|(number, (file, checksum))| InputEntry {
                source: self.inputs.inputs[file.input as usize].source.clone(),
                name: file.found.name.clone(),
                bytes: file.found.bytes,
                checksum: checksum.clone(),
                records: records.get(&(number as u32)).copied().unwrap_or(0),
            })
            .collect();
        let file_name = self
            .plan
            .path
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().to_string());
        // The control arm differs from this run in the order alone.
        let mut as_here: String = self
            .set
            .iter()
            .filter(|set| !set.starts_with("order"))
            .map(|set| format!(" --set '{}'", set.replace('\'', "'\\''")))
            .collect();
        if let Some(share) = self.sample_share {
            as_here.push_str(&format!(" --sample {share}"));
        }
        let manifest = Manifest {
            version: 1,
            tool: self.tool.to_string(),
            pipeline: self.plan.name.clone(),
            pipeline_hash: self.plan.hash.clone(),
            seed: self.plan.seed,
            sample_share: self.sample_share,
            tokenizer: self.tokenizer,
            inputs,
            auxiliary_files: self.auxiliary.entries(),
            files,
            totals: Totals {
                read: Audit::total(&audit.read),
                kept: Audit::total(&audit.kept),
                rows: audit.emitted.rows,
                positions: audit.emitted.positions,
            },
            order: OrderEntry {
                strategy: self.plan.order.name.clone(),
                parameters: options::to_json(&self.plan.order.options),
                sort_keys: self.order.sort_keys.clone(),
                kendall_tau_b: self.order.kendall_tau_b.clone(),
                lr_hint: self.lr_hint.to_string(),
            },
            pack: PackEntry {
                method: self.plan.pack.name.clone(),
                parameters: options::to_json(&self.plan.pack.options),
                shard_tokens: self.plan.output.shard_tokens,
            },
            validation: self.validation,
            estimator: self.estimator.map(|(kind, fitted)| EstimatorEntry {
                name: kind.spec.name.to_string(),
                version: kind.version,
                fitted,
            }),
            control_command: format!(
                "goodput run {file_name}{as_here} --set 'order={{strategy: shuffle}}' --out CONTROL_FOLDER --work WORK_FOLDER_KEPT_WITH_KEEP_WORK"
            ),
            checksum: String::new(),
        };
        let (manifest, text) = manifest.sealed();
        Ok((audit, manifest, text))
    }
}
