//! One run, phase by phase.

use super::arrange::arrange;
use super::auxiliary::{Auxiliary, bad_records};
use super::corpus::Corpus;
use super::decide::{Decisions, KeyValues, StageNotes};
use super::disk::DiskNeed;
use super::domains::{Domains, References, unmatched};
use super::edit::Edit;
use super::emit::{Emit, SpecialIds, StageWords};
use super::finish::{self, Finish};
use super::index::{self, IndexOf};
use super::inputs::{Inputs, default_task_bytes};
use super::log;
use super::memory::{DocumentFactors, LongDocuments, MemoryNeed, anonymous_bytes, text_bytes};
use super::near;
use super::options;
use super::prepare::{Prepare, Step};
use super::progress::{Progress, Unit};
use super::releases::{self, Releases};
use super::scores::{ScorePhase, Scores, TokenView, Wanted};
use super::segments::Segments;
use super::spans::span_dedupe;
use super::stop::core_seconds;
use super::teach::{self, Judge, Taught};
use super::validation::{Groups, HeldOut};
use super::verify::path_from;
use super::work::{Lock, write_whole};
use super::{EngineError, Stop};
use crate::algo::hash;
use crate::algo::isotonic::Curve;
use crate::algo::novelty::value_of_copies;
use crate::audit::Audit;
use crate::dedupe::{Unit as TextUnit, UnitRule};
use crate::pack::Frame;
use crate::plan::{self, Place, Plan, Problems, Rejects, StageRef, TokenizerSource as Named};
use crate::record::{FieldType, OptionError, Options, Value};
use crate::score::{self, Fit, Needs};
use crate::shard::{Calibration, Manifest, ShardShape, TokenizerManifest, UsefulnessType};
use crate::source;
use crate::spill::{IoContext, Spill, read_file};
use crate::stages;
use crate::tokenizer::{Tokenizer, TokenizerSource, file_fingerprint};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// How to run, apart from what the pipeline says. None of it changes a byte of the result but `sample`.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Anonymous memory that may be used.
    pub memory_bytes: u64,
    /// Share of the documents to read, drawn by keyed hash of the id.
    pub sample_share: Option<f64>,
    /// Redo everything, ignoring earlier work.
    pub fresh: bool,
    /// Replace another pipeline's output folder.
    pub replace: bool,
    /// The folder of intermediate files; `work` in the output folder when absent.
    pub work: Option<PathBuf>,
    /// Keep intermediate files, for other orders and control arms.
    pub keep_work: bool,
    /// Bytes of input that a task takes; by the size of the input when absent.
    pub task_bytes: Option<u64>,
    /// The `--set` of the command line, for the record.
    pub set: Vec<String>,
    /// What may be kept from run to run, such as the verdict of a tokenizer's self-check.
    pub cache: Option<PathBuf>,
}

/// What one phase cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseTime {
    /// Name of the phase.
    pub phase: String,
    /// Seconds on the clock.
    pub wall_seconds: f64,
    /// Seconds of all cores.
    pub core_seconds: f64,
}

/// `run.json`: what differs between equal runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Program and version.
    pub tool: String,
    /// The pipeline file, as a path from the output folder, or from the folder that the run was started in:
    /// `inspect` and `verify` find it so. No absolute one: it would tell of the machine.
    pub pipeline_path: String,
    /// The `--set` of the command line.
    pub set: Vec<String>,
    /// Worker threads.
    pub threads: usize,
    /// The memory budget.
    pub memory_bytes: u64,
    /// Operating system and processor architecture.
    pub machine: String,
    /// Costs by phase.
    pub phases: Vec<PhaseTime>,
    /// Seconds on the clock in all.
    pub wall_seconds: f64,
    /// Seconds of all cores in all.
    pub core_seconds: f64,
    /// Largest anonymous memory seen, in bytes, where the system tells.
    pub peak_anonymous_bytes: Option<u64>,
    /// A hash of names, sizes and times of all files that were read: where it is the same, the folder is complete
    /// without their being read again.
    #[serde(default)]
    pub files_read: String,
}

/// A finished run.
#[derive(Debug)]
pub struct Outcome {
    /// The output folder.
    pub out: PathBuf,
    /// The ledger.
    pub audit: Audit,
    /// The manifest.
    pub manifest: Manifest,
    /// Times; `None` where the folder was complete already.
    pub record: Option<RunRecord>,
}

/// Looks at the anonymous memory every 50 ms, as long as it lives.
struct PeakMemory {
    peak: Arc<AtomicU64>,
    _ends_the_thread: mpsc::Sender<()>,
}

impl PeakMemory {
    fn watch() -> PeakMemory {
        let peak = Arc::new(AtomicU64::new(0));
        let (sender, receiver) = mpsc::channel::<()>();
        let seen = Arc::clone(&peak);
        std::thread::spawn(move || {
            while let Some(bytes) = anonymous_bytes() {
                seen.fetch_max(bytes, Ordering::Relaxed);
                if receiver.recv_timeout(Duration::from_millis(50))
                    != Err(mpsc::RecvTimeoutError::Timeout)
                {
                    break;
                }
            }
        });
        PeakMemory {
            peak,
            _ends_the_thread: sender,
        }
    }
}

struct Clock {
    began: (Instant, f64),
    phase: (Instant, f64),
    phases: Vec<PhaseTime>,
    memory: PeakMemory,
}

impl Clock {
    fn start() -> Clock {
        let now = (Instant::now(), core_seconds());
        Clock {
            began: now,
            phase: now,
            phases: Vec::new(),
            memory: PeakMemory::watch(),
        }
    }
    fn end(&mut self, phase: &str) {
        let now = (Instant::now(), core_seconds());
        self.phases.push(PhaseTime {
            phase: phase.to_string(),
            wall_seconds: (now.0 - self.phase.0).as_secs_f64(),
            core_seconds: now.1 - self.phase.1,
        });
        self.phase = now;
    }
    fn peak(&self) -> Option<u64> {
        Some(self.memory.peak.load(Ordering::Relaxed)).filter(|&bytes| bytes > 0)
    }
}

/// A hash of everything that shapes something.
fn key(parts: &serde_json::Value) -> String {
    format!("{:032x}", hash::content(parts.to_string().as_bytes()))
}

/// Everything that can be known before data are read.
pub struct Prepared {
    /// Files.
    pub inputs: Inputs,
    /// The tokenizer.
    pub tokenizer: Tokenizer,
    /// Begin and end token, text and id.
    pub frame_tokens: [Option<(String, u32)>; 2],
    /// The file of numbers per token that the estimator asks for.
    pub table: Option<source::TokenTable>,
    /// What else the estimator asks for.
    pub needs: Needs,
    /// The per-document stages, built and given the texts that they want, by their places in the plan.
    pub judges: BTreeMap<usize, Judge>,
    /// The other files that shape the result.
    pub auxiliary: Auxiliary,
    /// The earlier releases that stages compare with, by their places in the plan.
    pub releases: BTreeMap<usize, Releases>,
    /// What the user should know before the run, each with something to do.
    pub warnings: Vec<String>,
    /// Bytes of text, about, that the estimator's options name besides the inputs.
    pub named_text_bytes: u64,
    /// Bytes of the files of models that the estimator maps.
    pub mapped_bytes: u64,
}

/// Finds the files and loads the tokenizer: every problem at once. Without a `cache`
/// folder a tokenizer.json is checked anew, which takes seconds.
///
/// # Errors
/// Problems of the request, none of the data.
pub fn prepare(plan: &Plan, cache: Option<&Path>) -> Result<Prepared, EngineError> {
    let mut problems = Vec::new();
    // As the files are before the first of them is read; what is wrong with them is said below.
    let before = Auxiliary::find(plan, &[]).unwrap_or_default();
    let inputs = match Inputs::find(plan) {
        Ok(inputs) => Some(inputs),
        Err(EngineError::Problems(Problems(found))) => {
            problems.extend(found);
            None
        }
        Err(other) => return Err(other),
    };
    let source = match &plan.tokenizer.source {
        Named::File { resolved, .. } => TokenizerSource::File(resolved.clone()),
        Named::Builtin(name) => TokenizerSource::Builtin(name.clone()),
    };
    let tokenizer = match Tokenizer::load(&source, cache) {
        Ok(tokenizer) => Some(tokenizer),
        Err(error) => {
            problems.push(plan.problem(plan.tokenizer.place, format!("tokenizer: {error}")));
            None
        }
    };
    let mut frame_tokens = [None, None];
    if let Some(tokenizer) = &tokenizer {
        let named = [
            (
                "begin_token",
                &plan.tokenizer.begin_token,
                plan.tokenizer.begin_place,
            ),
            (
                "end_token",
                &plan.tokenizer.end_token,
                plan.tokenizer.end_place,
            ),
        ];
        for (slot, (option, token, place)) in frame_tokens.iter_mut().zip(named) {
            if let Some(token) = token {
                match tokenizer.token_id(token) {
                    Some(id) => *slot = Some((token.clone(), id)),
                    None => {
                        let near = tokenizer.nearest_tokens(token, 3);
                        problems.push(plan.problem(
                            place,
                            format!(
                                "'{option}' must be a token of '{}', got '{token}'; near it are: {}",
                                tokenizer.name(),
                                near.join(", ")
                            ),
                        ));
                    }
                }
            }
        }
    }
    if let Ok(packer) = crate::pack::build(&plan.pack)
        && let Some(row) = packer.row_positions()
        && u64::from(row) > plan.output.shard_tokens
    {
        problems.push(plan.problem(
            Place::default(),
            format!(
                "'sequence_tokens' of 'pack' must be 'shard_tokens' of 'output' or less, {}, got {row}",
                plan.output.shard_tokens
            ),
        ));
    }
    let mut judges = BTreeMap::new();
    for (at, stage) in plan.stages.iter().enumerate() {
        match teach::judge(plan, stage) {
            Ok(judge) => judges.extend(judge.map(|judge| (at, judge))),
            Err(EngineError::Problems(Problems(found))) => problems.extend(found),
            Err(other) => return Err(other),
        }
    }
    let mut named_text_bytes = 0;
    let (mut table, mut fit): (_, Option<Box<dyn Fit>>) = (None, None);
    for stage in &plan.stages {
        if let (StageRef::Score { estimator }, Some(tokenizer)) = (stage.kind, &tokenizer) {
            match asked_by(estimator, stage, tokenizer) {
                Ok((found, its)) => (fit, table) = (Some(found), its),
                Err(problem) => {
                    let place = stage.place(&["losses", "model"]);
                    problems.push(plan.problem(place, problem));
                }
            }
        }
        if let Err(message) = domain_field(plan, &stage.options) {
            let place = stage.place(&["domain"]);
            problems.push(plan.problem(place, message));
        }
        for name in NAMED_SETS {
            let StageRef::Score { .. } = stage.kind else {
                continue;
            };
            let Some(globs) = globs_of(&stage.options, name) else {
                continue;
            };
            let place = stage.place(&[name]);
            let domain = reference_domain(&stage.options);
            let problem = |message| plan.problem(place, message);
            match Inputs::reference(plan, name, globs, domain, problem) {
                Ok(inputs) if inputs.holds_a_document()? == Some(false) => {
                    problems.push(plan.problem(
                        place,
                        format!(
                            "{name}: no document can be read of its {} files, {} bytes; a document is a record with a \
                             text under 'text'",
                            inputs.files.len(),
                            inputs.bytes()
                        ),
                    ));
                }
                Ok(inputs) => named_text_bytes += text_bytes(&inputs),
                Err(EngineError::Problems(Problems(found))) => problems.extend(found),
                Err(other) => return Err(other),
            }
        }
    }
    let mut near = false;
    for stage in &plan.stages {
        near |= stage.kind == StageRef::NearDedupe;
        let (StageRef::Score { .. }, Some(tokenizer)) = (stage.kind, &tokenizer) else {
            continue;
        };
        let about = match calibration(plan, stage, tokenizer) {
            Ok(found) => found.map(|(_, about)| about),
            Err(EngineError::Problems(Problems(found))) => {
                problems.extend(found);
                continue;
            }
            Err(other) => return Err(other),
        };
        let origin = origin(plan, tokenizer, near, about.as_ref());
        if let Some(Err(error)) = fit.as_ref().map(|fit| fit.check_model(&origin)) {
            let place = stage.place(&["model"]);
            problems.push(plan.problem(place, format!("'model': {error}")));
        }
    }
    let fingerprint = tokenizer.as_ref().map(Tokenizer::fingerprint);
    let releases = releases::find_all(plan, fingerprint.as_deref(), &mut problems)?;
    let of_estimator = fit.as_ref().map_or_else(Vec::new, |fit| fit.files());
    let mapped_bytes = of_estimator
        .iter()
        .filter_map(|path| std::fs::metadata(path).ok())
        .map(|found| found.len())
        .sum();
    let needs = fit.map_or_else(Needs::default, |fit| fit.needs());
    let auxiliary = match Auxiliary::find(plan, &of_estimator) {
        Ok(auxiliary) => auxiliary,
        // Said above, of the files that the stages open.
        Err(EngineError::Problems(_)) if !problems.is_empty() => Auxiliary::default(),
        Err(EngineError::Problems(Problems(found))) => {
            problems.extend(found);
            Auxiliary::default()
        }
        Err(other) => return Err(other),
    };
    for file in before.files {
        file.found.unchanged()?;
    }
    let taught = judges.values().filter_map(|judge| judge.taught.as_ref());
    let mut warnings: Vec<String> = taught.flat_map(|taught| taught.warnings.clone()).collect();
    warnings.extend(releases.values().flat_map(Releases::warnings));
    warnings.extend(many_copies(plan));
    warnings.extend(held_out_apart(plan));
    match (inputs, tokenizer) {
        (Some(inputs), Some(tokenizer)) if problems.is_empty() => Ok(Prepared {
            inputs,
            tokenizer,
            frame_tokens,
            table,
            needs,
            judges,
            auxiliary,
            releases,
            warnings,
            named_text_bytes,
            mapped_bytes,
        }),
        _ => Err(EngineError::Problems(Problems(problems))),
    }
}

/// Epochs up to which repeated tokens are worth nearly as much as new ones (Muennighoff et al. 2023).
const FEW_COPIES: u64 = 4;

fn many_copies(plan: &Plan) -> Option<String> {
    let copies = crate::order::build(&plan.order).ok()?.copies();
    let worth = 100.0 * value_of_copies(copies as u32) / copies as f64;
    (copies > FEW_COPIES).then(|| {
        format!(
            "documents are emitted up to {copies} times; by the published fit all copies together teach at most \
             {worth:.0} % of what as much new text would: {FEW_COPIES} epochs or fewer lose little"
        )
    })
}

/// Where held-out documents are kept apart from copies alone, or are not kept from a model.
fn held_out_apart(plan: &Plan) -> Option<String> {
    let kinds = || plan.stages.iter().map(|stage| stage.kind);
    let draw = kinds().position(|kind| kind == StageRef::Validation)?;
    if !kinds().any(|kind| kind == StageRef::NearDedupe) {
        return Some(
            "'validation_share' holds out documents without a 'near_dedupe' in the chain: only documents of the same \
             tokens stay together, similar ones may stand on both sides; add a stage 'near_dedupe'"
                .to_string(),
        );
    }
    let score = kinds().position(|kind| matches!(kind, StageRef::Score { .. }))?;
    (score < draw).then(|| {
        "'validation_share' is drawn after 'near_dedupe', which stands after 'score': models are fitted on held-out \
         documents too; put 'near_dedupe' before 'score', or compare held-out losses of runs of the same 'score' alone"
            .to_string()
    })
}

/// An estimator that is not fitted yet, and its file of numbers per token, opened, if it names one. All that it
/// names must be of the pipeline's tokenizer.
type Asked = (Box<dyn Fit>, Option<source::TokenTable>);

fn asked_by(
    estimator: usize,
    stage: &plan::StagePlan,
    tokenizer: &Tokenizer,
) -> Result<Asked, String> {
    let fit = (score::TABLE[estimator].build)(&stage.options).map_err(|error| {
        format!(
            "'{}' must be {}, got {}",
            error.option, error.must_be, error.found
        )
    })?;
    let needs = fit.needs();
    if let Some(known) = needs.vocabulary_size
        && known < u64::from(tokenizer.vocabulary_size())
    {
        return Err(format!(
            "the model knows {known} ids, and the pipeline's tokenizer '{}' has {}; use the tokenizer of the model",
            tokenizer.name(),
            tokenizer.vocabulary_size()
        ));
    }
    if let Some(path) = &needs.tokenizer_file {
        let found = file_fingerprint(path).map_err(|error| error.to_string())?;
        if found != tokenizer.fingerprint() {
            return Err(format!(
                "the model's {} is another tokenizer, fingerprint {found}, than the pipeline's '{}', {}; name the model's \
                 under 'tokenizer'",
                path.display(),
                tokenizer.name(),
                tokenizer.fingerprint()
            ));
        }
    }
    let Some(request) = fit.table() else {
        return Ok((fit, None));
    };
    let table = source::TokenTable::open(request.path, &request.columns)
        .map_err(|error| error.to_string())?;
    if table.fingerprint() != tokenizer.fingerprint() {
        return Err(format!(
            "{}: its numbers are of the tokens of another tokenizer, fingerprint {}, and the pipeline's '{}' has {}; \
             make them with this one",
            request.path.display(),
            table.fingerprint(),
            tokenizer.name(),
            tokenizer.fingerprint()
        ));
    }
    Ok((fit, Some(table)))
}

/// What models must come from to score this plan's documents.
fn origin(
    plan: &Plan,
    tokenizer: &Tokenizer,
    folds_by_component: bool,
    calibration: Option<&serde_json::Value>,
) -> score::ModelOrigin {
    score::ModelOrigin {
        tokenizer_fingerprint: tokenizer.fingerprint().to_string(),
        seed: plan.seed,
        folds_by_component,
        calibration: calibration.map(key),
    }
}

/// Options of estimators that name sets of documents to learn from, besides the corpus.
const NAMED_SETS: [&str; 2] = ["reference", "negative"];

/// The globs of such an option, where the estimator has it and it names files.
fn globs_of<'o>(options: &'o Options, name: &str) -> Option<&'o [String]> {
    let (_, value) = options.iter().find(|(found, _)| *found == name)?;
    match value {
        Value::List(globs) if globs.as_slice() != ["self"] => Some(globs),
        _ => None,
    }
}

/// The calibration that the stage names, proved to be of its estimator and tokenizer, and what the
/// description of the estimator says of it.
fn calibration(
    plan: &Plan,
    stage: &plan::StagePlan,
    tokenizer: &Tokenizer,
) -> Result<Option<(Curve, serde_json::Value)>, EngineError> {
    let StageRef::Score { estimator } = stage.kind else {
        return Ok(None);
    };
    let Some(path) = text_option(&stage.options, "calibration") else {
        return Ok(None);
    };
    let kind = score::TABLE[estimator];
    let problem = |message: String| {
        let place = stage.place(&["calibration"]);
        EngineError::Problems(Problems(vec![
            plan.problem(place, format!("'calibration': {path} {message}")),
        ]))
    };
    let read = || String::from_utf8(read_file(Path::new(path))?).map_err(io::Error::other);
    let text = read().map_err(|error| {
        problem(format!(
            "cannot be read: {error}; 'goodput calibrate' makes one"
        ))
    })?;
    let (found, curve) = Calibration::parse(&text).map_err(&problem)?;
    if (found.estimator.as_str(), found.estimator_version) != (kind.spec.name, kind.version) {
        return Err(problem(format!(
            "is of estimator {} version {}, the stage has {} version {}; calibrate with a pilot of this one",
            found.estimator, found.estimator_version, kind.spec.name, kind.version
        )));
    }
    let options = options::to_json(&stage.options);
    let other = found.estimator_parameters.iter().find(|(name, pilots)| {
        let mine = &options[name.as_str()];
        match (mine.as_f64(), pilots.as_f64()) {
            (Some(mine), Some(pilots)) => mine != pilots,
            // Absent: what the estimator makes of it is known only to itself.
            _ => !mine.is_null() && mine != *pilots,
        }
    });
    if let Some((name, pilots)) = other {
        return Err(problem(format!(
            "is of usefulness with '{name}: {pilots}', the stage has '{name}: {}', and another number for the same token; \
             calibrate with a pilot of this one, or set it as in the pilot",
            options[name.as_str()]
        )));
    }
    if found.tokenizer_fingerprint != tokenizer.fingerprint() {
        return Err(problem(format!(
            "is of the tokenizer {}, the pipeline has {}; calibrate with a pilot of this one",
            found.tokenizer_fingerprint,
            tokenizer.fingerprint()
        )));
    }
    let about = json!({
        "calibration": format!("isotonic, pilot run '{}'", found.pilot),
        "calibration_checksum": format!("{:032x}", hash::content(text.as_bytes())),
        "calibration_scale_nats": found.scale_nats,
        "calibration_error_nats": found.expected_calibration_error_nats,
        "calibration_parameter_hash": found.estimator_parameter_hash,
    });
    Ok(Some((curve, about)))
}

/// What is to be said where usefulness was computed by other models than the one that was calibrated. A
/// refit on more text is what a pilot is for: the same options give a usefulness of the same meaning, so
/// it is no error, but how well the curve holds was measured on the pilot's models alone.
fn refitted(fitted: &serde_json::Value) -> Option<String> {
    let pilots = fitted["calibration_parameter_hash"].as_str()?;
    let mine = fitted["parameter_hash"].as_str()?;
    (pilots != mine).then(|| {
        format!(
            "the calibration was measured on another fit of the estimator (parameter hash {pilots}) than this one ({mine}): \
             the same options, other text or seed; its error of {} nats is of that fit",
            fitted["calibration_error_nats"]
        )
    })
}

/// An optional text among the options, where the estimator has it.
fn text_option<'a>(options: &'a Options, name: &str) -> Option<&'a str> {
    let (_, value) = options.iter().find(|(found, _)| *found == name)?;
    match value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

/// The field of the reference that names a document's domain, where the estimator has that option.
fn reference_domain(options: &Options) -> Option<&str> {
    text_option(options, "reference_domain")
}

/// The place of the corpus' field that names a document's domain, where the options name one.
fn domain_field(plan: &Plan, options: &Options) -> Result<Option<usize>, String> {
    let Some(name) = text_option(options, "domain") else {
        return Ok(None);
    };
    let place = plan.fields.iter().position(|field| field.name == name);
    match place {
        Some(place) if plan.fields[place].kind == FieldType::String => Ok(Some(place)),
        _ => Err(format!(
            "'domain' must be a declared field of type string, got '{name}'; add it to 'fields' of the inputs, or \
             leave 'domain' out, and the source is the domain"
        )),
    }
}

/// Domains of the documents, where the estimator's options speak of domains.
fn domains_of(
    plan: &Plan,
    corpus: &Corpus,
    stage: &plan::StagePlan,
) -> Result<Domains, EngineError> {
    let is_self = matches!(
        stage.options.iter().find(|(name, _)| *name == "reference"),
        Some((_, Value::List(globs))) if globs.as_slice() == ["self"]
    );
    // A model that was fitted elsewhere knows the domains of its reference.
    let named = |option| text_option(&stage.options, option).is_some();
    if !is_self && !named("reference_domain") && !named("model") {
        return Ok(Domains::none());
    }
    match domain_field(plan, &stage.options).map_err(EngineError::Request)? {
        None => Ok(Domains::by_source(corpus)),
        Some(field) => Domains::by_field(corpus, field).map_err(|found| {
            let name = &plan.fields[field].name;
            EngineError::Failed(format!(
                "'domain: {name}' of stage '{}' must have 1000 different values or fewer, the documents have {found} or \
                 more; name a field of kinds of text",
                stage.label
            ))
        }),
    }
}

/// Where the domains of the corpus come from, for a message.
fn by_field(options: &Options) -> String {
    match text_option(options, "domain") {
        Some(field) => format!("'domain: {field}'"),
        None => "the inputs' 'source'".to_string(),
    }
}

/// Names of the domains that have a u_ref of their own.
fn fitted_domains(fitted: &serde_json::Value) -> Vec<String> {
    let own = fitted["u_ref_by_domain"].as_object();
    own.into_iter()
        .flatten()
        .map(|(name, _)| name.clone())
        .collect()
}

fn option_error(plan: &Plan, line: u32, column: u32, error: OptionError) -> EngineError {
    let message = format!(
        "'{}' must be {}, got {}",
        error.option, error.must_be, error.found
    );
    EngineError::Problems(Problems(vec![
        plan.problem(Place { line, column }, message),
    ]))
}

/// What [`claim`] found.
enum Claimed {
    /// The folder is to be made, and is ours as long as the lock lives.
    Ours(Lock),
    /// It is complete already.
    Complete(Box<Manifest>),
}

/// What the folder `out` is to this run before anybody locks it: `Some` where it is complete, else
/// whether it is empty or was begun by a run of the same plan.
fn look(
    out: &Path,
    plan: &Plan,
    options: &RunOptions,
) -> Result<(Option<Manifest>, bool), EngineError> {
    if let Some(text) = read_if_there(&out.join("manifest.json"))? {
        let Ok(manifest) = Manifest::parse(&text) else {
            return Ok((None, false));
        };
        let same =
            manifest.pipeline_hash == plan.hash && manifest.sample_share == options.sample_share;
        return Ok((same.then_some(manifest), same));
    }
    let work = out.join("work");
    let only = |folder: &Path, names: &[&str]| -> Result<bool, EngineError> {
        let found = names_in(folder)?;
        Ok(found
            .iter()
            .all(|found| names.iter().any(|name| found == *name)))
    };
    // A run that was killed at its very beginning leaves a lock without an owner.
    let empty = only(out, &["work"])? && only(&work, &["lock", "owner.tmp"])?;
    let begun = read_if_there(&work.join("owner"))? == Some(owner(plan, options));
    Ok((None, empty || begun))
}

/// A text, or `None` where there is no such file. One that is there and cannot be read is an error: without it a folder
/// would pass for somebody else's.
fn read_if_there(path: &Path) -> io::Result<Option<String>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error).context("read", path),
    }
}

/// What stands in a folder; nothing where there is none.
fn names_in(folder: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.context("list", folder)?,
    };
    entries
        .map(|entry| Ok(entry.context("list", folder)?.file_name()))
        .collect()
}

fn owner(plan: &Plan, options: &RunOptions) -> String {
    format!(
        "{} {}",
        plan.hash,
        options
            .sample_share
            .map_or(String::new(), |share| share.to_string())
    )
}

/// Makes the output folder ours, or refuses one that is not this pipeline's.
fn claim(
    out: &Path,
    plan: &Plan,
    options: &RunOptions,
    prepared: &Prepared,
) -> Result<Claimed, EngineError> {
    let (complete, mine) = look(out, plan, options)?;
    let work = out.join("work");
    if let Some(manifest) = complete
        && !options.fresh
        && !work.exists()
    {
        // Nothing is touched: the folder may be read-only.
        still_holds(out, &manifest, prepared)?;
        return Ok(Claimed::Complete(Box::new(manifest)));
    }
    if !mine && !options.replace {
        return Err(EngineError::Request(format!(
            "{} holds something else than the output of this pipeline; name another folder with --out, \
             or give --replace to delete what is there",
            out.display()
        )));
    }
    if !mine && let Some(foreign) = foreign(out)? {
        return Err(EngineError::Request(format!(
            "{} is no file that a run of goodput writes; nothing was deleted. Empty the folder, or name another one with --out",
            foreign.display()
        )));
    }
    std::fs::create_dir_all(&work).context("create", &work)?;
    let Some(lock) = Lock::take(&work)? else {
        return Err(in_use(&work));
    };
    // Only now does nobody else change it: another run may just have finished it.
    let (complete, mine) = look(out, plan, options)?;
    if let Some(manifest) = complete.filter(|_| !options.fresh) {
        still_holds(out, &manifest, prepared)?;
        // Left behind by a run that was killed after its last file; a folder that is kept has no owner.
        let left = names_in(&work)?;
        if left.iter().any(|name| name == "owner") || left.iter().all(|name| name == "lock") {
            remove_leftover(&work)?;
        }
        return Ok(Claimed::Complete(Box::new(manifest)));
    }
    if !mine && !options.replace {
        return Err(in_use(&work));
    }
    // Before anything is deleted, so that a run that is killed meanwhile goes on.
    write_whole(&work.join("owner"), owner(plan, options).as_bytes())?;
    if !mine || options.fresh {
        // The manifest first, after the owner: from then on the folder does not pass for a complete one.
        for name in finish::OUTPUT_NAMES {
            remove(&out.join(name))?;
            remove(&out.join(name).with_extension("tmp"))?;
        }
        for name in names_in(&work)? {
            if name != "lock" && name != "owner" {
                remove(&work.join(name))?;
            }
        }
    }
    Ok(Claimed::Ours(lock))
}

/// Whether a run of ours writes a file or folder of this name into a work folder.
fn is_work(name: &str) -> bool {
    ["prepare-", "reference-", "score-"]
        .iter()
        .any(|start| name.starts_with(start))
        || ["spill", "layout", "lock", "owner", "owner.tmp"].contains(&name)
}

/// Removes what runs of ours left in a work folder that the user named, which may hold other things of
/// theirs; not the lock.
fn remove_work(named: &Path) -> Result<(), EngineError> {
    for name in names_in(named)? {
        if is_work(&name.to_string_lossy()) && name != "lock" {
            remove(&named.join(name))?;
        }
    }
    Ok(())
}

/// Removes the work folder of an output. The owner goes after all else: as long as it is there, the next run knows what
/// is left for a leftover.
fn remove_leftover(work: &Path) -> Result<(), EngineError> {
    for name in names_in(work)? {
        if name != "lock" && name != "owner" {
            remove(&work.join(name))?;
        }
    }
    remove(&work.join("owner"))?;
    remove(work)
}

/// Something in the output folder that no run of ours writes: with --replace too, it is not deleted.
fn foreign(out: &Path) -> Result<Option<PathBuf>, EngineError> {
    let work = out.join("work");
    for folder in [out, &work] {
        for found in names_in(folder)? {
            let name = found.to_string_lossy();
            let ours = if folder == out {
                // A run that was killed while it wrote one leaves a temporary file.
                let named = |ours: &&str| {
                    name == **ours
                        || Path::new(ours).with_extension("tmp") == Path::new(name.as_ref())
                };
                name == "work" || finish::OUTPUT_NAMES.iter().any(named)
            } else {
                is_work(&name)
            };
            if !ours {
                return Ok(Some(folder.join(found)));
            }
        }
    }
    Ok(None)
}

/// A file that shapes a result, as it is now.
struct FileNow<'a> {
    /// What tells it from the others.
    key: [&'a str; 3],
    what: String,
    path: &'a Path,
    bytes: u64,
}

/// The same as a manifest has it: key, bytes, checksum, and what it is called.
type FileThen<'a> = ([&'a str; 3], u64, &'a str, String);

/// Refuses to call a folder complete whose files are gone, or whose inputs, or other files that shaped it,
/// are others now.
fn still_holds(out: &Path, manifest: &Manifest, prepared: &Prepared) -> Result<(), EngineError> {
    let redo = |what: String| {
        EngineError::Request(format!(
            "{} {what}; give --fresh to make it anew, or name another folder with --out",
            out.display()
        ))
    };
    for file in &manifest.files {
        match std::fs::metadata(out.join(&file.path)) {
            Ok(found) if found.len() == file.bytes => {}
            Ok(_) => {
                return Err(redo(format!(
                    "is complete but damaged: {} has another size than its manifest says",
                    file.path
                )));
            }
            Err(_) => {
                return Err(redo(format!(
                    "is complete but damaged: {} is missing",
                    file.path
                )));
            }
        }
    }
    if prepared.tokenizer.fingerprint() != manifest.tokenizer.fingerprint {
        return Err(redo(format!(
            "was made before the tokenizer {} was changed",
            prepared.tokenizer.name()
        )));
    }
    let inputs = &prepared.inputs;
    let now = inputs.files.iter().map(|file| FileNow {
        key: [
            "",
            &inputs.inputs[file.input as usize].source,
            &file.found.name,
        ],
        what: "input".to_string(),
        path: &file.found.path,
        bytes: file.found.bytes,
    });
    let auxiliary = prepared.auxiliary.files.iter().map(|file| FileNow {
        key: [&file.entry.stage, &file.entry.option, &file.entry.name],
        what: format!("'{}' file", file.entry.option),
        path: &file.found.path,
        bytes: file.entry.bytes,
    });
    let now = now.chain(auxiliary);
    let then = manifest.inputs.iter().map(|entry| -> FileThen<'_> {
        let key = ["", entry.source.as_str(), entry.name.as_str()];
        (
            key,
            entry.bytes,
            &entry.checksum,
            format!("input {}", entry.name),
        )
    });
    let then = then.chain(
        manifest
            .auxiliary_files
            .iter()
            .map(|entry| -> FileThen<'_> {
                let key = [
                    entry.stage.as_str(),
                    entry.option.as_str(),
                    entry.name.as_str(),
                ];
                let called = format!("'{}' file {}", entry.option, entry.name);
                (key, entry.bytes, &entry.checksum, called)
            }),
    );
    let mut then: BTreeMap<_, _> = then.map(|file| (file.0, file)).collect();
    // Reading all of them again only to say that nothing changed would take as long as a run. Times are compared with
    // those that the run saw, not with when it was: a clock may have been set back.
    let record = read_if_there(&out.join("run.json"))?;
    let record: Option<RunRecord> = record.and_then(|text| serde_json::from_str(&text).ok());
    let untouched = record.is_some_and(|record| {
        record.files_read == files_read(&prepared.inputs, &prepared.auxiliary)
    });
    for file in now {
        let (what, path) = (&file.what, file.path.display());
        let Some((_, bytes, checksum, _)) = then.remove(&file.key) else {
            return Err(redo(format!("was made before the {what} {path} was there")));
        };
        let same = bytes == file.bytes
            && (untouched
                || format!("{:032x}", source::file_checksum(file.path, &|_| {})?) == checksum);
        if !same {
            return Err(redo(format!(
                "was made before the {what} {path} was changed"
            )));
        }
    }
    match then.first_key_value() {
        Some((_, (_, _, _, called))) => Err(redo(format!(
            "was made from the {called} too, which is gone"
        ))),
        None => Ok(()),
    }
}

/// A hash of names, sizes and times of what a run reads.
fn files_read(inputs: &Inputs, auxiliary: &Auxiliary) -> String {
    let found = inputs.files.iter().map(|file| &file.found);
    let found = found.chain(auxiliary.files.iter().map(|file| &file.found));
    let parts: Vec<_> = found
        .map(|file| json!([file.name, file.bytes, format!("{:?}", file.modified)]))
        .collect();
    key(&parts.into())
}

fn remove(path: &Path) -> Result<(), EngineError> {
    let gone = if path.is_dir() {
        std::fs::remove_dir_all(path)
    } else {
        std::fs::remove_file(path)
    };
    match gone {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).context("remove", path).map_err(Into::into)
        }
        _ => Ok(()),
    }
}

fn in_use(work: &Path) -> EngineError {
    EngineError::Request(format!(
        "{} is in use by another run; wait until it ends, or name another folder with --out or --work",
        work.display()
    ))
}

/// Runs a plan, or finds that it has been run.
///
/// # Errors
/// See [`EngineError`]. What was finished before an error is kept, and the next run goes on from there.
pub fn run(
    plan: &Plan,
    request: &RunOptions,
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<Outcome, EngineError> {
    match go(plan, request, None, progress, stop).map_err(with_way_out)? {
        Ended::Finished(outcome) => Ok(*outcome),
        Ended::Fitted(_) => unreachable!("nobody asked for a model only"),
    }
}

/// Runs a plan up to its `score` stage and writes what that fits to the file `model`. Returns what
/// the estimator says of it. Intermediate files lie in a folder beside the file, where the request
/// names none; they are kept on request.
///
/// # Errors
/// As [`run`], and where the plan has no stage that fits a model.
pub fn fit(
    plan: &Plan,
    request: &RunOptions,
    model: &Path,
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<serde_json::Value, EngineError> {
    let mut keeps_model = false;
    for stage in &plan.stages {
        if let StageRef::Score { estimator } = stage.kind {
            let fit = (score::TABLE[estimator].build)(&stage.options)
                .map_err(|error| option_error(plan, stage.line, stage.column, error))?;
            keeps_model |= fit.keeps_model();
        }
    }
    if !keeps_model {
        return Err(EngineError::Request(
            "the pipeline has no 'score' stage that makes a model file; the estimator ngram_excess does, and fasttext \
             with 'reference' and 'negative'"
                .to_string(),
        ));
    }
    if model.is_dir() || model.file_name().is_none() {
        return Err(EngineError::Request(format!(
            "{}: the model is written to a file, and this is a folder; name a file in it",
            model.display()
        )));
    }
    let mut plan = plan.clone();
    let mut name = model.file_name().unwrap_or_default().to_os_string();
    name.push(".work");
    plan.output.path = model.with_file_name(name);
    match go(&plan, request, Some(model), progress, stop).map_err(with_way_out)? {
        Ended::Fitted(description) => {
            if !request.keep_work {
                if let Some(named) = &request.work {
                    remove_work(named)?;
                    remove(&named.join("lock"))?;
                }
                remove(&plan.output.path)?;
            }
            Ok(description)
        }
        Ended::Finished(_) => unreachable!("the plan has a stage that ends the run"),
    }
}

fn with_way_out(error: EngineError) -> EngineError {
    let Some(kind) = error.io_kind() else {
        return error;
    };
    let first = match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "Free space there, or name another folder with --out or --work"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "Give yourself the right to do that, or name another folder with --out or --work"
        }
        io::ErrorKind::NotFound => "Put back what is gone",
        _ => "See to the disk or to what is in the way",
    };
    EngineError::Failed(format!(
        "{error}. {first}; what was finished is kept, and the same command goes on from there"
    ))
}

/// How far a run went.
enum Ended {
    Finished(Box<Outcome>),
    /// As far as the model that was asked for; what the estimator says of it.
    Fitted(serde_json::Value),
}

fn go(
    plan: &Plan,
    request: &RunOptions,
    only_fit: Option<&Path>,
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<Ended, EngineError> {
    let mut clock = Clock::start();
    let out = plan.output.path.clone();
    let prepared = prepare(plan, request.cache.as_deref())?;
    let task_bytes = request
        .task_bytes
        .unwrap_or_else(|| default_task_bytes(prepared.inputs.bytes()));
    let need = MemoryNeed::of(
        plan,
        &prepared,
        rayon::current_num_threads(),
        task_bytes,
        stop,
    );
    // What is complete already takes nothing.
    if request.fresh || look(&out, plan, request)?.0.is_none() {
        need.fits(request.memory_bytes)?;
    }
    let shares = need.divide(request.memory_bytes);
    let factors = DocumentFactors::of(plan, &prepared);
    let long = LongDocuments::new(factors, shares.document_bytes);
    let disk = DiskNeed::of(plan, &prepared);
    let lock = match claim(&out, plan, request, &prepared)? {
        Claimed::Ours(lock) => lock,
        Claimed::Complete(manifest) => {
            let audit = finish::read_audit(&out)?;
            return Ok(Ended::Finished(Box::new(Outcome {
                out,
                audit,
                manifest: *manifest,
                record: None,
            })));
        }
    };
    progress.folder(&out);
    let work = request.work.clone().unwrap_or_else(|| out.join("work"));
    let mut locks = vec![lock];
    if request.work.is_some() {
        std::fs::create_dir_all(&work).context("create", &work)?;
        locks.push(Lock::take(&work)?.ok_or_else(|| in_use(&work))?);
    }
    let Prepared {
        inputs,
        tokenizer,
        frame_tokens,
        table,
        needs: _,
        mut judges,
        mut auxiliary,
        releases,
        warnings,
        named_text_bytes: _,
        mapped_bytes: _,
    } = prepared;
    log::begins(plan, request, &inputs, &tokenizer);
    warnings.iter().for_each(|warning| progress.warn(warning));
    if let Some(reason) = tokenizer.slow_because() {
        progress.warn(&format!("the slow tokenizer engine is used: {reason}"));
    }
    if let Some(warning) = disk.scarce(&work, &out) {
        progress.warn(&warning);
    }
    clock.end("load");
    let bytes = inputs.bytes() + auxiliary.bytes();
    progress.begin("checksum", bytes, Unit::Bytes);
    let checksums = inputs.checksums(&|bytes| progress.advance(bytes), stop)?;
    auxiliary.read_checksums(&|bytes| progress.advance(bytes), stop)?;
    for releases in releases.values() {
        releases.prove(&auxiliary)?;
    }
    progress.end();
    clock.end("checksum");

    // The chain: an entry for the tokenizer first, then the stages as the file has them.
    let sources: Vec<String> = inputs
        .inputs
        .iter()
        .map(|input| input.source.clone())
        .collect();
    let mut chain = vec![Step::Later];
    let mut words = vec![StageWords {
        label: "tokenize".to_string(),
        reasons: &[],
        rule: String::new(),
    }];
    let mut described = Vec::new();
    let mut taught: BTreeMap<u16, Taught> = BTreeMap::new();
    for (place, stage) in plan.stages.iter().enumerate() {
        let keep = |label: &str, keep: &str| format!("{label} keep {keep}");
        let (step, reasons, rule): (Step, &'static [crate::record::Reason], String) = match stage
            .kind
        {
            StageRef::Document(at) => {
                let judge = judges.remove(&place).expect("every one was built");
                taught.extend(judge.taught.map(|taught| (place as u16 + 1, taught)));
                (
                    Step::Judge(judge.stage),
                    stages::TABLE[at].reasons,
                    String::new(),
                )
            }
            StageRef::ExactDedupe => (
                Step::Exact {
                    normalise: stage.options.flag("normalise"),
                },
                plan::global::EXACT_DEDUPE_REASONS,
                keep(&stage.label, "first"),
            ),
            StageRef::NearDedupe => (
                Step::Near(
                    near::sketcher(plan.seed, &stage.options)
                        .map_err(|error| option_error(plan, stage.line, stage.column, error))?,
                ),
                plan::global::NEAR_DEDUPE_REASONS,
                near::rule(&stage.label, &stage.options),
            ),
            StageRef::UnitDedupe(unit) => (
                Step::Units(UnitRule {
                    unit,
                    normalise: stage.options.flag("normalise"),
                    min_characters: stage.options.integer("min_characters"),
                }),
                match unit {
                    TextUnit::Paragraph => plan::global::PARAGRAPH_DEDUPE_REASONS,
                    TextUnit::Line => plan::global::LINE_DEDUPE_REASONS,
                },
                keep(&stage.label, "first"),
            ),
            StageRef::SpanDedupe => (
                Step::Later,
                plan::global::SPAN_DEDUPE_REASONS,
                keep(&stage.label, stage.options.text("keep")),
            ),
            StageRef::Score { .. } => (Step::Later, &[], String::new()),
            StageRef::Select => (Step::Later, plan::global::SELECT_REASONS, String::new()),
            StageRef::Validation => (Step::Later, plan::global::VALIDATION_REASONS, String::new()),
        };
        described.push(json!([
            stage.label,
            format!("{:?}", stage.kind),
            options::to_json(&stage.options)
        ]));
        chain.push(step);
        words.push(StageWords {
            label: stage.label.clone(),
            reasons,
            rule,
        });
    }

    let labels: Vec<&str> = words.iter().map(|stage| stage.label.as_str()).collect();
    progress.chain(&labels);

    let scored_by_text = plan.stages.iter().any(|stage| match stage.kind {
        StageRef::Score { estimator } => score::TABLE[estimator].needs_text,
        _ => false,
    });
    let cut_by_tokens = plan
        .stages
        .iter()
        .any(|stage| stage.kind == StageRef::SpanDedupe);
    let keep_text = plan.output.rejects == Rejects::Text || scored_by_text || cut_by_tokens;
    let seen: Vec<_> = inputs
        .files
        .iter()
        .zip(&checksums)
        .map(|(file, sum)| (file.input, &file.found.name, sum))
        .collect();
    let specs: Vec<_> = inputs
        .inputs
        .iter()
        .map(|input| {
            (
                &input.source,
                format!("{:?} {:?}", input.spec, input.on_error),
            )
        })
        .collect();
    let ranges = plan.segments();
    let prepare_stages: Vec<_> = described
        .iter()
        .zip(&plan.stages)
        .take(ranges[0].end - 1)
        .filter(|(_, stage)| {
            !matches!(
                stage.kind,
                StageRef::Score { .. } | StageRef::Select | StageRef::Validation
            )
        })
        .map(|(description, stage)| match stage.kind {
            // What decides, such as a guard that let go or an earlier release, makes no sketch another one.
            StageRef::ExactDedupe => json!([stage.label, stage.options.flag("normalise")]),
            StageRef::NearDedupe => json!([stage.label, near::sketch_key(&stage.options)]),
            _ => description.clone(),
        })
        .collect();
    let tool = format!("goodput {}", env!("CARGO_PKG_VERSION"));
    let base_key = json!([tool, tokenizer.fingerprint(), tokenizer.engine()]);
    let mut prepare_key = key(&json!([
        base_key,
        plan.seed,
        seen,
        specs,
        prepare_stages,
        auxiliary.of_prepare(),
        // Places in the chain are written with the verdicts, so the whole chain's labels are part of it.
        labels,
        request.sample_share,
        keep_text,
        task_bytes
    ]));

    let tasks = inputs.tasks(task_bytes)?;
    let segments = Segments {
        inputs: &inputs,
        tasks: &tasks,
        tokenizer: &tokenizer,
        chain: &chain,
        described: &described,
        corpora: ranges.iter().map(|_| OnceCell::new()).collect(),
        ranges,
        sample_below: request
            .sample_share
            .map(|share| (share * u64::MAX as f64) as u64),
        seed: plan.seed,
        keep_text,
        long: &long,
        work: &work,
    };
    let first = segments.first(&prepare_key, progress, stop)?;
    clock.end("prepare");

    let sort_bytes = usize::try_from(shares.sort_bytes).unwrap_or(usize::MAX);
    let spill = Spill::new(&work.join("spill"), sort_bytes);
    let ids_are_given = plan.inputs.iter().any(|input| input.id.is_some());
    let mut named_sets = Vec::with_capacity(NAMED_SETS.len());
    for name in NAMED_SETS {
        let set = named_set(
            plan,
            name,
            &tokenizer,
            &base_key,
            &mut auxiliary,
            &work,
            task_bytes,
            &long,
            progress,
            stop,
        )?;
        if set.is_some() {
            clock.end(name);
        }
        named_sets.push(set);
    }
    let [reference_corpus, negative_corpus] = &named_sets[..] else {
        unreachable!("two sets have been read");
    };
    let mut decisions = Decisions::new(first, ids_are_given, spill.clone())?;
    let mut corpus = decisions.corpus();
    let mut edit: Option<Edit> = None;
    let mut scores: Option<(Scores<'_>, u16)> = None;
    let mut estimator = None;
    let mut domains = Domains::none();
    let mut notes = StageNotes::new();
    for (stage, taught) in &mut taught {
        let label = words[usize::from(*stage)].label.clone();
        notes.insert(label, std::mem::take(&mut taught.notes));
    }
    // Sketches are numbered within a segment.
    let (mut exact, mut nears, mut units) = (0, 0, 0);
    let mut near_before = false;
    let mut groups = match plan.output.validation_share > 0.0 {
        true => Some(Groups::new(corpus.len(), &spill)?),
        false => None,
    };
    let mut held_out: Option<HeldOut> = None;
    let mut indexes = Vec::new();
    for at in 0..=plan.stages.len() {
        stop.check()?;
        let number = at as u16 + 1;
        if let Some(segment) = segments.beginning_at(at + 1) {
            let edit = edit.take();
            decisions =
                segments.next(segment, decisions, edit, &mut prepare_key, progress, stop)?;
            corpus = decisions.corpus();
            (exact, nears, units) = (0, 0, 0);
            clock.end("prepare again");
        }
        let Some(stage) = plan.stages.get(at) else {
            break;
        };
        let _at_stage = stop.at(format!("stage '{}'", stage.label));
        let phase = match stage.kind {
            StageRef::Document(_) => continue,
            StageRef::UnitDedupe(unit) => {
                progress.begin(unit_phase(unit), corpus.len(), Unit::Documents);
                let (found, counts) = decisions.unit_dedupe(number, units, stop)?;
                progress.end();
                edit = Some(found);
                units += 1;
                let names = match unit {
                    TextUnit::Paragraph => plan::global::PARAGRAPH_DEDUPE_NOTES,
                    TextUnit::Line => plan::global::LINE_DEDUPE_NOTES,
                };
                notes.insert(stage.label.clone(), plan::global::noted(names, &counts));
                unit_phase(unit)
            }
            StageRef::SpanDedupe => {
                progress.begin("span_dedupe", decisions.reaching(number).0, Unit::Documents);
                let (found, report) =
                    span_dedupe(&decisions, number, &stage.options, &tokenizer, &spill, stop)?;
                progress.end();
                edit = Some(found);
                let counts = [
                    report.contexts,
                    report.stretches,
                    report.spans,
                    report.tokens,
                ];
                let names = plan::global::SPAN_DEDUPE_NOTES;
                notes.insert(stage.label.clone(), plan::global::noted(names, &counts));
                "span_dedupe"
            }
            StageRef::ExactDedupe => {
                progress.begin("exact_dedupe", corpus.len(), Unit::Documents);
                decisions.exact_dedupe(number, exact, releases.get(&at), stop)?;
                progress.kept(number, decisions.flow(number));
                progress.end();
                if releases::writes_index(stage) {
                    indexes.push(IndexOf {
                        stage,
                        corpus,
                        slot: exact,
                    });
                }
                exact += 1;
                "exact_dedupe"
            }
            StageRef::NearDedupe => {
                progress.begin("near_dedupe", corpus.len(), Unit::Documents);
                let earlier = scores.as_ref().map(|(scores, _)| scores);
                let against = match (releases.get(&at), &chain[usize::from(number)]) {
                    (Some(releases), Step::Near(sketcher)) => Some((releases, sketcher, plan.seed)),
                    _ => None,
                };
                let found = decisions
                    .near_dedupe(number, nears, stage, earlier, &sources, against, stop)?;
                progress.kept(number, decisions.flow(number));
                if let Some(groups) = &mut groups {
                    groups.join_similar(&decisions, number, nears, stage, &spill, stop)?;
                }
                progress.end();
                if releases::writes_index(stage) {
                    indexes.push(IndexOf {
                        stage,
                        corpus,
                        slot: nears,
                    });
                }
                nears += 1;
                near_before = true;
                notes.insert(stage.label.clone(), found);
                "near_dedupe"
            }
            StageRef::Score { estimator: at } => {
                let kind = score::TABLE[at];
                let fit = (kind.build)(&stage.options)
                    .map_err(|error| option_error(plan, stage.line, stage.column, error))?;
                let reference_key = reference_corpus.as_ref().map(|(_, key)| key);
                let negative_key = negative_corpus.as_ref().map(|(_, key)| key);
                let file_checksums: Vec<String> = fit
                    .files()
                    .iter()
                    .map(|path| auxiliary.checksum(path))
                    .collect::<Result<_, EngineError>>()?;
                let wanted = Wanted {
                    usefulness_f32: plan.output.usefulness == plan::UsefulnessType::F32,
                    excess_nats: plan.output.excess_nats,
                };
                let calibration = calibration(plan, stage, &tokenizer)?;
                let score_key = key(&json!([
                    calibration.as_ref().map(|(_, about)| about),
                    prepare_key,
                    described[..=at_in_chain(plan, stage)],
                    reference_key,
                    negative_key,
                    auxiliary.of_releases(),
                    file_checksums,
                    kind.version,
                    kind.spec.name,
                    wanted.usefulness_f32,
                    wanted.excess_nats
                ]));
                domains = domains_of(plan, corpus, stage)?;
                let view = TokenView::of(
                    corpus,
                    &decisions,
                    number,
                    plan.seed,
                    near_before,
                    &domains,
                    stop,
                )
                .for_kind(kind);
                let domains_of_reference = match reference_corpus {
                    Some((corpus, _)) if reference_domain(&stage.options).is_some() => {
                        Domains::by_field(corpus, 0).map_err(|found| {
                            EngineError::Failed(format!(
                                "'reference_domain' of stage '{}' must have 1000 different values or fewer, the \
                                 reference has {found} or more; name a field of kinds of text",
                                stage.label
                            ))
                        })?
                    }
                    _ => Domains::none(),
                };
                if let Some(field) = reference_domain(&stage.options)
                    && let Some(warning) = unmatched(
                        (&by_field(&stage.options), domains.names()),
                        (
                            &format!("'reference_domain: {field}'"),
                            domains_of_reference.names(),
                        ),
                    )
                {
                    progress.warn(&warning);
                }
                let reference = reference_corpus.as_ref().map(|(corpus, _)| {
                    TokenView::reference(corpus, plan.seed, &domains_of_reference, stop)
                        .for_kind(kind)
                });
                let about = calibration.as_ref().map(|(_, about)| about);
                let origin = origin(plan, &tokenizer, near_before, about);
                let no_domains = Domains::none();
                let negative = negative_corpus.as_ref().map(|(corpus, _)| {
                    TokenView::reference(corpus, plan.seed, &no_domains, stop).for_kind(kind)
                });
                let phase = ScorePhase {
                    kind,
                    fit: fit.as_ref(),
                    origin: &origin,
                    only_fit,
                    view: &view,
                    reference: reference.as_ref(),
                    negative: negative.as_ref(),
                    vocabulary_size: tokenizer.vocabulary_size(),
                    calibration: calibration.as_ref(),
                    memory_bytes: shares.fit_bytes,
                    table: table.as_ref(),
                    file_checksums: &file_checksums,
                    wanted,
                    long: &long,
                };
                let found = phase.run(
                    &work.join(format!("score-{score_key}")),
                    progress,
                    stop,
                    &mut |name| clock.end(name),
                )?;
                if only_fit.is_some() {
                    return Ok(Ended::Fitted(found.fitted));
                }
                if let Some(warning) = refitted(&found.fitted) {
                    progress.warn(&warning);
                }
                if let Some(u) = found.at_one_end() {
                    let fitted = &found.fitted;
                    let scale = ["low", "high", "low_nats", "high_nats"]
                        .iter()
                        .filter_map(|name| Some(format!(", {name} {}", fitted.get(name)?)));
                    progress.warn(&format!(
                        "every token that was scored has usefulness {u}, which orders and selects nothing: estimator '{}'{}; \
                         look at its numbers, and where they lie on its scale",
                        kind.spec.name,
                        scale.collect::<String>()
                    ));
                }
                // Those of a model that was fitted elsewhere are known from what it says of itself.
                let of_model = fitted_domains(&found.fitted);
                if text_option(&stage.options, "model").is_some()
                    && !of_model.is_empty()
                    && let Some(warning) = unmatched(
                        (&by_field(&stage.options), domains.names()),
                        ("the model", &of_model),
                    )
                {
                    progress.warn(&warning);
                }
                estimator = Some((kind, found.fitted.clone()));
                scores = Some((found, number));
                "score"
            }
            StageRef::Select => {
                let keys = KeyValues {
                    corpus,
                    scores: scores.as_ref().map(|(scores, _)| scores),
                    fields: &plan.fields,
                    seed: plan.seed,
                };
                let reaching = |number: &u64| decisions.reaches(*number, at as u16 + 1);
                keys.check(
                    stage.options.text("by"),
                    &mut (0..corpus.len()).filter(reaching),
                )?;
                progress.begin("select", corpus.len(), Unit::Documents);
                decisions.select(number, &stage.options, &keys)?;
                progress.kept(number, decisions.flow(number));
                progress.end();
                "select"
            }
            StageRef::Validation => {
                progress.begin(plan::global::VALIDATION, corpus.len(), Unit::Documents);
                let asked = (plan.output.validation_share, plan.seed);
                let groups = groups.take().expect("made for it, and it is drawn once");
                let mut found = HeldOut::draw(&mut decisions, groups, number, asked, &spill)?;
                progress.kept(number, decisions.flow(number));
                progress.end();
                notes.insert(stage.label.clone(), std::mem::take(&mut found.notes));
                held_out = Some(found);
                plan::global::VALIDATION
            }
        };
        clock.end(phase);
    }

    stop.check()?;
    progress.begin("arrange", 0, Unit::Documents);
    let strategy =
        crate::order::build(&plan.order).map_err(|error| option_error(plan, 0, 0, error))?;
    let packer = crate::pack::build(&plan.pack).map_err(|error| option_error(plan, 0, 0, error))?;
    let keys = KeyValues {
        corpus,
        scores: scores.as_ref().map(|(scores, _)| scores),
        fields: &plan.fields,
        seed: plan.seed,
    };
    let frame = Frame {
        begin_tokens: u32::from(frame_tokens[0].is_some()),
        end_tokens: u32::from(frame_tokens[1].is_some()),
        shard_tokens: plan.output.shard_tokens,
    };
    let at_arrange = stop.at("the order and packing");
    let layout = arrange(
        &decisions,
        &keys,
        strategy.as_ref(),
        packer.as_ref(),
        frame,
        &spill,
        &work.join("layout"),
    )?;
    drop(at_arrange);
    progress.end();
    clock.end("arrange");

    let [begin, end] = &frame_tokens;
    let ids = SpecialIds {
        begin: begin.as_ref().map(|(_, id)| *id),
        end: end.as_ref().map(|(_, id)| *id),
        padding: end.as_ref().map_or(0, |(_, id)| *id),
    };
    let tokenizer_manifest = TokenizerManifest {
        name: tokenizer.name(),
        fingerprint: tokenizer.fingerprint(),
        engine: tokenizer.engine().to_string(),
        vocabulary_size: tokenizer.vocabulary_size(),
        highest_id: tokenizer.highest_id(),
        begin_token: begin.clone(),
        end_token: end.clone(),
        padding_id: ids.padding,
    };
    let packed = packer.row_positions().is_some();
    let shape = ShardShape {
        packed,
        usefulness: scores.as_ref().map(|_| match plan.output.usefulness {
            plan::UsefulnessType::U8 => UsefulnessType::U8,
            plan::UsefulnessType::F32 => UsefulnessType::F32,
        }),
        excess_nats: scores.is_some() && plan.output.excess_nats,
        fields: if packed {
            Vec::new()
        } else {
            plan.fields.clone()
        },
    };
    let references = estimator
        .as_ref()
        .and_then(|(_, fitted)| References::new(corpus, &domains, fitted));
    let emit = Emit {
        references: references.as_ref(),
        corpus,
        decisions: &decisions,
        scores: scores.as_ref().map(|(scores, stage)| (scores, *stage)),
        metadata: finish::shard_metadata(plan, &tokenizer_manifest, estimator.as_ref(), &shape),
        shape,
        keys: &keys,
        held_out: held_out.as_ref(),
        ids,
        stages: &words,
        fields: &plan.fields,
        out: &out,
        stop,
        progress,
    };
    progress.begin("emit", layout.rows.values().len() as u64, Unit::Rows);
    let (mut files, sums) = emit.shards(&layout)?;
    let rejected = emit.rejected_usefulness();
    progress.end();
    clock.end("emit");
    let at_evidence = stop.at(format!("writing rejects and evidence to {}", out.display()));
    progress.begin("rejects and evidence", 0, Unit::Rows);
    files.extend(emit.order(&layout)?);
    let mut validation = None;
    if let Some(held_out) = &held_out {
        let (written, about) = emit.validation(held_out, frame)?;
        files.extend(written);
        validation = Some(about);
    }
    files.extend(emit.rejects(plan.output.rejects, plan.output.shard_tokens)?);
    files.extend(emit.duplicates()?);
    files.extend(emit.contamination(&taught)?);
    if plan.edits() {
        files.extend(emit.edits()?);
    }
    let (quarantine, repeated_ids) = emit.quarantine(&inputs, &spill)?;
    files.push(quarantine);
    progress.end();
    drop(at_evidence);
    clock.end("rejects and evidence");
    if !indexes.is_empty() {
        let fingerprint = tokenizer.fingerprint();
        files.extend(index::write(
            &out,
            &indexes,
            &decisions,
            plan.seed,
            &fingerprint,
            stop,
        )?);
        clock.end("index");
    }

    let finish = Finish {
        plan,
        inputs: &inputs,
        checksums: &checksums,
        auxiliary: &auxiliary,
        decisions: &decisions,
        stages: &words,
        notes,
        repeated_ids,
        set: &request.set,
        sums,
        rejected,
        references: references.as_ref(),
        scores: scores.as_ref().map(|(scores, _)| scores),
        tokenizer: tokenizer_manifest,
        estimator,
        order: &layout,
        lr_hint: strategy.lr_hint(),
        validation,
        sample_share: request.sample_share,
        tool: &tool,
    };
    let (audit, manifest, manifest_text) = finish.write(&out, files)?;
    clock.end("ledger");
    let record = RunRecord {
        tool,
        pipeline_path: path_from(&out, &plan.path).display().to_string(),
        set: request.set.clone(),
        threads: rayon::current_num_threads(),
        memory_bytes: request.memory_bytes,
        machine: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        wall_seconds: clock.began.0.elapsed().as_secs_f64(),
        core_seconds: core_seconds() - clock.began.1,
        peak_anonymous_bytes: clock.peak(),
        files_read: files_read(&inputs, &auxiliary),
        phases: clock.phases,
    };
    // Some of them are read in several phases.
    auxiliary.unchanged()?;
    let text = serde_json::to_string_pretty(&record).map_err(std::io::Error::other)? + "\n";
    write_whole(&out.join("run.json"), text.as_bytes())?;
    write_whole(&out.join("manifest.json"), manifest_text.as_bytes())?;
    log::ends(&manifest);
    drop(layout);
    drop(decisions);
    if let Some(named) = &request.work {
        if !request.keep_work {
            remove_work(named)?;
        }
        drop(locks);
        if !request.keep_work {
            remove(&named.join("lock"))?;
        }
        remove_leftover(&out.join("work"))?;
    } else if request.keep_work {
        // Without an owner it is no leftover of a run that was killed, and the next run leaves it alone.
        remove(&out.join("work").join("owner"))?;
    } else {
        drop(locks);
        remove_leftover(&out.join("work"))?;
    }
    Ok(Ended::Finished(Box::new(Outcome {
        out,
        audit,
        manifest,
        record: Some(record),
    })))
}

/// The phase of a dedupe by paragraph or line. What it keeps is known when the texts are cut, which is later.
fn unit_phase(unit: TextUnit) -> &'static str {
    match unit {
        TextUnit::Paragraph => "paragraph_dedupe",
        TextUnit::Line => "line_dedupe",
    }
}

fn at_in_chain(plan: &Plan, stage: &plan::StagePlan) -> usize {
    plan.stages
        .iter()
        .position(|other| other.label == stage.label)
        .expect("labels are unique")
}

/// Tokens of a reference below which a run warns: a 99.9th percentile, as `ngram_excess` takes, is then the
/// largest number itself.
const FEW_REFERENCE_TOKENS: u64 = 1000;

/// The documents that an option such as `reference` names, tokenized, and their key; `None` where the
/// pipeline names none.
#[expect(
    clippy::too_many_arguments,
    reason = "what a phase of the run needs, called in one place"
)]
fn named_set(
    plan: &Plan,
    name: &str,
    tokenizer: &Tokenizer,
    base_key: &serde_json::Value,
    auxiliary: &mut Auxiliary,
    work: &Path,
    task_bytes: u64,
    long: &LongDocuments,
    progress: &dyn Progress,
    stop: &Stop,
) -> Result<Option<(Corpus, String)>, EngineError> {
    for stage in &plan.stages {
        let StageRef::Score { estimator } = stage.kind else {
            continue;
        };
        let keep_text = score::TABLE[estimator].needs_text;
        let Some(globs) = globs_of(&stage.options, name) else {
            continue;
        };
        let place = stage.place(&[name]);
        let domain = reference_domain(&stage.options);
        let mut inputs = Inputs::reference(plan, name, globs, domain, |message| {
            plan.problem(place, message)
        })?;
        // As they were when their checksums were read.
        auxiliary.as_found(&mut inputs);
        let files = inputs.files.iter();
        let checksums = files
            .map(|file| auxiliary.checksum(&file.found.path))
            .collect::<Result<Vec<_>, _>>()?;
        let names: Vec<_> = inputs.files.iter().map(|file| &file.found.name).collect();
        let reference_key = key(&json!([
            base_key, names, checksums, plan.seed, domain, task_bytes, keep_text
        ]));
        let chain = [Step::Later];
        let phase = Prepare {
            inputs: &inputs,
            tokenizer,
            chain: &chain,
            segment: 0..chain.len(),
            earlier: None,
            more_follow: false,
            sample_below: None,
            seed: plan.seed,
            keep_text,
            long,
        };
        progress.begin(name, inputs.bytes(), Unit::Bytes);
        let tasks = phase.run(
            &inputs.tasks(task_bytes)?,
            &work.join(format!("reference-{reference_key}")),
            progress,
            stop,
        )?;
        progress.end();
        if let Some(bad) = bad_records(&tasks)? {
            progress.warn(&format!("{name}: {bad}"));
        }
        let used = tasks.iter().flat_map(|task| task.docs.values());
        let (documents, tokens) = used
            .filter(|row| row.tokens > 0)
            .fold((0u64, 0u64), |(n, sum), row| {
                (n + 1, sum + u64::from(row.tokens))
            });
        if documents == 0 {
            return Err(EngineError::Failed(format!(
                "'{name}' of stage '{}' holds no document that can be used; name files of records with a text under \
                 'text'",
                stage.label
            )));
        }
        if tokens < FEW_REFERENCE_TOKENS {
            progress.warn(&format!(
                "'{name}' has {documents} documents and {tokens} tokens; below {FEW_REFERENCE_TOKENS} tokens \
                 usefulness says more of their chance words than of the text that is wanted"
            ));
        }
        auxiliary.note_records(&inputs, &tasks);
        let corpus = Corpus::new(tasks, &inputs, None);
        // The cut of the tasks does not belong into the key of the scores.
        return Ok(Some((
            corpus,
            key(&json!([base_key, names, checksums, plan.seed, domain])),
        )));
    }
    Ok(None)
}
