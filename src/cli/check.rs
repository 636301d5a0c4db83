//! `goodput check`

use super::run::PlanArguments;
use super::{CliError, Format};
use crate::algo::minhash::{Measure, candidate_probability};
use crate::audit::grouped;
use crate::engine::{self, EngineError, default_task_bytes};
use crate::plan::{Rejects, StagePlan, StageRef, global, load};
use crate::shard::IndexKind;
use crate::terminal::{self, printable_line};
use serde_json::json;
use std::path::PathBuf;

/// Say everything that can be known without reading data: every problem at once, files, plan, needs.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  goodput check web.yaml
  goodput check web.yaml --set seed=7 --format json")]
pub struct Check {
    /// The pipeline file.
    pipeline: PathBuf,
    #[command(flatten)]
    plan: PlanArguments,
    /// How the result is written.
    #[arg(long, value_name = "HOW", default_value = "table", value_parser = ["table", "json"])]
    format: String,
}

/// Anonymous memory of a run besides models and workers: the program, a tokenizer, buffers.
const FLOOR_BYTES: u64 = 120 << 20;
/// Floating-point operations a second that a language model's products run at on one core: measured on an AMD EPYC
/// core with AVX2, on a model of 135 million parameters, attention and all else included in the time.
const FLOPS_PER_CORE_SECOND: f64 = 25e9;
/// Anonymous memory of one worker: a chunk of text, its tokens, sketches and buffers.
const WORKER_BYTES: u64 = 40 << 20;

impl Check {
    /// Checks the pipeline and prints the plan.
    pub fn run(self) -> Result<(), CliError> {
        let format = if self.format == "json" {
            Format::Json
        } else {
            Format::Table
        };
        let plan = load(&self.pipeline, &self.plan.overrides()).map_err(EngineError::Problems)?;
        let prepared = engine::prepare(&plan, super::cache_folder().as_deref())?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let files = prepared.inputs.files.len();
        let bytes = prepared.inputs.bytes();
        // Compressed text is about a quarter of what it holds; measured on web text, prose and code.
        let text_bytes: u64 = prepared
            .inputs
            .files
            .iter()
            .map(|file| {
                let name = file.found.name.as_str();
                let packed =
                    name.ends_with(".zst") || name.ends_with(".gz") || name.ends_with(".parquet");
                if packed {
                    4 * file.found.bytes
                } else {
                    file.found.bytes
                }
            })
            .sum();
        let curves = plan
            .stages
            .iter()
            .filter(|stage| stage.kind == StageRef::NearDedupe)
            .map(Proposals::of)
            .collect::<Result<Vec<_>, _>>()?;
        let mut warnings = prepared.warnings.clone();
        warnings.extend(curves.iter().filter_map(Proposals::warning));
        let later_segments = plan.segments().len() as u64 - 1;
        // A unit takes 32 bytes, and is at least as long as a line of text.
        let units = plan
            .stages
            .iter()
            .filter(|stage| matches!(stage.kind, StageRef::UnitDedupe(_)))
            .count() as u64;
        let scored = plan
            .stages
            .iter()
            .any(|stage| matches!(stage.kind, StageRef::Score { .. }));
        let texts_kept = plan.output.rejects == Rejects::Text
            || plan.stages.iter().any(|stage| match stage.kind {
                StageRef::Score { estimator } => crate::score::TABLE[estimator].needs_text,
                StageRef::SpanDedupe => true,
                _ => false,
            });
        // 4 bytes a token and about 4 bytes of text a token.
        let work_bytes = text_bytes * (1 + later_segments)
            + units * text_bytes / 2
            + curves
                .iter()
                .map(|near| (text_bytes as f64 * near.bytes_a_byte) as u64)
                .sum::<u64>()
            + if scored { text_bytes / 4 } else { 0 }
            + if texts_kept {
                text_bytes * (1 + later_segments)
            } else {
                0
            };
        let copies = crate::order::build(&plan.order).map_or(1, |strategy| strategy.copies());
        // Of what is kept nothing is known yet, so an index is of all.
        let indexes: f64 = plan
            .stages
            .iter()
            .filter(|stage| engine::writes_index(stage))
            .map(
                |stage| match curves.iter().find(|near| near.label == stage.label) {
                    Some(near) => text_bytes as f64 * near.bytes_a_byte,
                    None => 0.0,
                },
            )
            .sum();
        let output_bytes = text_bytes / 2 * copies + indexes as u64;
        let against: Vec<Compared<'_>> = prepared
            .releases
            .iter()
            .flat_map(|(at, releases)| {
                let stage = &plan.stages[*at];
                let near = curves.iter().find(|near| near.label == stage.label);
                let of = move |release| Compared {
                    stage: &stage.label,
                    release,
                    row_bytes: near.map_or(32, |near| 16 * u64::from(near.bands)),
                };
                releases.list.iter().map(of)
            })
            .collect();
        let work_bytes = work_bytes + against.iter().map(Compared::work_bytes).sum::<u64>();
        // An n-gram takes at most 22 bytes, and there are not more of them than tokens times orders.
        let models: u64 = plan
            .stages
            .iter()
            .filter(|stage| matches!(stage.kind, StageRef::Score { .. }))
            .filter(|stage| stage.options.iter().any(|(name, _)| name == "model_ngrams"))
            .map(|stage| {
                let of = |name: &str| stage.options.integer(name);
                let seen = of("fit_tokens").min(text_bytes / 4) * (of("order") - 1);
                of("model_ngrams").min(seen) * 22 * of("folds")
            })
            .sum();
        let needs = &prepared.needs;
        // What 'check' knows of tokens: about 4 bytes of text each.
        let score_hours = text_bytes as f64 / 4.0 * needs.flops_per_token
            / (FLOPS_PER_CORE_SECOND * threads as f64 * 3600.0);
        let memory_bytes =
            models + FLOOR_BYTES + threads as u64 * (WORKER_BYTES + needs.worker_bytes);
        let task_bytes = default_task_bytes(bytes);
        let tasks = prepared.inputs.tasks(task_bytes)?.len();
        if format == Format::Json {
            let stages: Vec<_> = plan.stages.iter().map(|stage| &stage.label).collect();
            let document = json!({
                "pipeline": plan.name, "pipeline_hash": plan.hash, "files": files, "file_bytes": bytes, "tasks": tasks,
                "tokenizer": prepared.tokenizer.name(), "engine": prepared.tokenizer.engine(), "stages": stages,
                "near_dedupe": curves.iter().map(Proposals::json).collect::<Vec<_>>(),
                "against": against.iter().map(Compared::json).collect::<Vec<_>>(),
                "order": plan.order.name, "pack": plan.pack.name, "warnings": warnings,
                "estimated_memory_bytes": memory_bytes, "estimated_model_hours": score_hours,
                "estimated_text_bytes": text_bytes, "estimated_work_bytes": work_bytes, "estimated_output_bytes": output_bytes
            });
            terminal::print_data(&format!("{document:#}\n"))?;
            return Ok(());
        }
        let mut text = format!("{}: no problems\n\n", printable_line(&plan.name));
        text.push_str(&format!(
            "inputs      {} files, {} bytes\n",
            grouped(files as u64),
            grouped(bytes)
        ));
        for input in &prepared.inputs.inputs {
            let mine =
                prepared.inputs.files.iter().filter(|file| {
                    prepared.inputs.inputs[file.input as usize].source == input.source
                });
            let (count, size) =
                mine.fold((0, 0), |(n, size), file| (n + 1, size + file.found.bytes));
            text.push_str(&format!(
                "            {:<20} {:>10} files {:>18} bytes\n",
                printable_line(&input.source),
                grouped(count),
                grouped(size)
            ));
        }
        text.push_str(&format!(
            "tokenizer   {} ({}), {} ids\n",
            printable_line(&prepared.tokenizer.name()),
            prepared.tokenizer.engine(),
            grouped(u64::from(prepared.tokenizer.vocabulary_size()))
        ));
        for (at, stage) in plan.stages.iter().enumerate() {
            text.push_str(&format!(
                "{} {}\n",
                if at == 0 {
                    "stages     "
                } else {
                    "           "
                },
                printable_line(&stage.label)
            ));
        }
        text.push_str(&format!(
            "order       {}\npack        {}\noutput      {}\n",
            plan.order.name,
            plan.pack.name,
            plan.output.path.display()
        ));
        text.push_str(&format!(
            "work        {tasks} tasks; about {} of intermediate files and {} of output for about {} of text\n",
            size(work_bytes), size(output_bytes), size(text_bytes)
        ));
        text.push_str(&format!(
            "memory      at least about {} on {threads} threads, of which models {}; sorts use what --memory leaves and spill beyond it\n",
            size(memory_bytes), size(models)
        ));
        against
            .iter()
            .for_each(|compared| text.push_str(&compared.line()));
        if needs.flops_per_token > 0.0 {
            text.push_str(&format!(
                "model       about {score_hours:.1} hours on {threads} threads: an estimate, from {} tokens in the text, {:.3} GFLOP for \
                 each (the sample's share counted) and {:.0} GFLOP a second and core\n",
                grouped(text_bytes / 4),
                needs.flops_per_token / 1e9,
                FLOPS_PER_CORE_SECOND / 1e9
            ));
        }
        for warning in &warnings {
            text.push_str(&format!("warning     {}\n", printable_line(warning)));
        }
        if later_segments > 0 {
            text.push_str(&format!(
                "            the inputs are read {} times: what comes after a cut sees the text that it leaves\n",
                later_segments + 1
            ));
        }
        if tasks < files {
            text.push_str("            small files share tasks\n");
        }
        if prepared.inputs.files.iter().any(|file| {
            (file.found.name.ends_with(".gz") || file.found.name.ends_with(".zst"))
                && file.found.bytes > task_bytes
        }) {
            text.push_str("            a single gzip or zstd file cannot be cut: one reader feeds all workers\n");
        }
        for curve in &curves {
            text.push_str(&curve.table());
        }
        terminal::print(&text)?;
        Ok(())
    }
}

/// A share of the pairs at the threshold below which bands are warned of.
const FEW_FOUND: f64 = 0.5;

/// An earlier release that a stage compares with.
struct Compared<'a> {
    stage: &'a str,
    release: &'a engine::Release,
    /// Bytes of sorts that one of its documents takes.
    row_bytes: u64,
}

impl Compared<'_> {
    fn work_bytes(&self) -> u64 {
        self.release.documents() * self.row_bytes
    }

    fn line(&self) -> String {
        format!(
            "against     {} compares with {}: {} documents, an index of {}; about {} of sorts, which spill beyond \
             --memory{}\n",
            printable_line(self.stage),
            printable_line(&self.release.name),
            grouped(self.release.documents()),
            size(self.release.bytes()),
            size(self.work_bytes()),
            match self.release.about.kind {
                IndexKind::Exact { .. } => "",
                IndexKind::Near { .. } => ", and the shingles of what is proposed in files",
            }
        )
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "stage": self.stage, "release": self.release.name, "documents": self.release.documents(),
            "index_bytes": self.release.bytes(), "estimated_work_bytes": self.work_bytes()
        })
    }
}

/// Which pairs a near dedupe compares.
struct Proposals {
    label: String,
    bands: u32,
    rows: u32,
    /// Whether the pipeline names them both.
    given: bool,
    min_similarity: f64,
    measure: Measure,
    /// Bytes of shingles for a byte of text.
    bytes_a_byte: f64,
}

impl Proposals {
    fn of(stage: &StagePlan) -> Result<Proposals, CliError> {
        let (bands, rows) = global::bands_and_rows(&stage.options).map_err(|error| {
            CliError::Request(format!(
                "stage '{}': '{}' must be {}, got {}",
                stage.label, error.option, error.must_be, error.found
            ))
        })?;
        let given = |name: &str| stage.options.integer_if_given(name).is_some();
        // Eight bytes a shingle; a word is about 6 bytes of text, a token 4.
        let bytes_a_byte = if given("shingle_characters") {
            8.0
        } else if given("shingle_tokens") {
            8.0 / 4.0
        } else {
            8.0 / 6.0
        };
        Ok(Proposals {
            label: stage.label.clone(),
            bands,
            rows,
            given: given("bands") && given("rows"),
            min_similarity: stage.options.number("min_similarity"),
            measure: global::measure(&stage.options),
            bytes_a_byte,
        })
    }

    /// The size ratios of documents whose curves are shown: by Jaccard there is one for all.
    fn ratios(&self) -> &'static [(f64, &'static str)] {
        match self.measure {
            Measure::Jaccard => &[(1.0, "compared")],
            Measure::Containment => &[
                (1.0, "of one size"),
                (0.8, "0.8 of its size"),
                (0.5, "half of it"),
            ],
        }
    }

    fn probability(&self, similarity: f64, ratio: f64) -> f64 {
        let jaccard = self.measure.jaccard_of(similarity, ratio);
        candidate_probability(jaccard, self.bands, self.rows)
    }

    /// Similarities up to 1 in steps of 0.05, from 0.5 on or from two steps below the threshold.
    fn similarities(&self) -> impl Iterator<Item = f64> + use<> {
        let threshold = (self.min_similarity * 20.0).floor() as u32;
        (threshold.saturating_sub(2).min(10)..=20).map(|twentieths| f64::from(twentieths) / 20.0)
    }

    /// Where the bands and rows that the pipeline names miss much of what it asks for.
    fn warning(&self) -> Option<String> {
        let found = self.probability(self.min_similarity, 1.0);
        (self.given && found < FEW_FOUND).then(|| {
            format!(
                "{}: {} bands of {} rows compare {:.1} % of the pairs whose similarity is 'min_similarity' ({}); the \
                 others stay, though they are similar; leave out 'bands' and 'rows' to have them chosen",
                self.label,
                self.bands,
                self.rows,
                100.0 * found,
                self.min_similarity
            )
        })
    }

    fn table(&self) -> String {
        let mut text = format!(
            "\n{}: chance that a pair is compared, {} bands of {} rows{}\n  {:<16}",
            self.label,
            self.bands,
            self.rows,
            if self.given {
                ""
            } else {
                " (chosen by min_similarity)"
            },
            match self.measure {
                Measure::Jaccard => "similarity",
                Measure::Containment => "containment",
            }
        );
        self.similarities()
            .for_each(|s| text.push_str(&format!("{s:>7.2}")));
        for (ratio, name) in self.ratios() {
            text.push_str(&format!("\n  {name:<16}"));
            self.similarities()
                .for_each(|s| text.push_str(&format!("{:>7.3}", self.probability(s, *ratio))));
        }
        text.push('\n');
        text
    }

    fn json(&self) -> serde_json::Value {
        let curves: Vec<_> = self
            .ratios()
            .iter()
            .map(|(ratio, _)| {
                let points: Vec<_> = self
                    .similarities()
                    .map(|s| json!({ "similarity": s, "probability": self.probability(s, *ratio) }))
                    .collect();
                json!({ "size_ratio": ratio, "points": points })
            })
            .collect();
        json!({ "stage": self.label, "bands": self.bands, "rows": self.rows, "curves": curves })
    }
}

fn size(bytes: u64) -> String {
    let mut amount = bytes as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if amount < 1000.0 {
            return format!("{amount:.1} {unit}");
        }
        amount /= 1000.0;
    }
    format!("{amount:.1} TB")
}
