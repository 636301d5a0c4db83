//! `goodput check`

use super::run::PlanArguments;
use super::{CliError, Format, default_memory_bytes, parse_bytes};
use crate::algo::minhash::{Measure, candidate_probability};
use crate::audit::grouped;
use crate::engine::{self, DiskNeed, EngineError, MemoryNeed, default_task_bytes, size};
use crate::plan::{StagePlan, StageRef, global, load};
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
    /// Worker threads of the run; all cores when absent.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Memory budget of the run, e.g. 8GiB; half of the machine's when absent.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory: Option<u64>,
    /// Bytes of input that a task of the run takes, e.g. 64MiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    slice: Option<u64>,
    /// How the result is written.
    #[arg(long, value_name = "HOW", default_value = "table", value_parser = ["table", "json"])]
    format: String,
}

/// Floating-point operations a second that a language model's products run at on one core: measured on an AMD EPYC
/// core with AVX2, on a model of 135 million parameters, attention and all else included in the time.
const FLOPS_PER_CORE_SECOND: f64 = 25e9;

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
        let threads = self.threads.map_or_else(
            || std::thread::available_parallelism().map_or(1, usize::from),
            usize::from,
        );
        let files = prepared.inputs.files.len();
        let bytes = prepared.inputs.bytes();
        let curves = plan
            .stages
            .iter()
            .filter(|stage| stage.kind == StageRef::NearDedupe)
            .map(Proposals::of)
            .collect::<Result<Vec<_>, _>>()?;
        let mut warnings = prepared.warnings.clone();
        warnings.extend(curves.iter().filter_map(Proposals::warning));
        let later_segments = plan.segments().len() as u64 - 1;
        let disk = DiskNeed::of(&plan, &prepared);
        let text_bytes = disk.text_bytes;
        let against: Vec<Compared<'_>> = prepared
            .releases
            .iter()
            .flat_map(|(at, releases)| {
                let stage = &plan.stages[*at];
                let of = move |release| Compared { stage, release };
                releases.list.iter().map(of)
            })
            .collect();
        let needs = &prepared.needs;
        // What 'check' knows of tokens: about 4 bytes of text each.
        let score_hours = text_bytes as f64 / 4.0 * needs.flops_per_token
            / (FLOPS_PER_CORE_SECOND * threads as f64 * 3600.0);
        let task_bytes = self.slice.unwrap_or_else(|| default_task_bytes(bytes));
        let need = MemoryNeed::of(&plan, &prepared, threads, task_bytes, &super::STOP);
        let least_bytes = need.least_bytes();
        let budget = self.memory.unwrap_or_else(default_memory_bytes);
        warnings.extend(need.fits(budget).err().map(|error| error.to_string()));
        warnings.extend(disk.scarce(&plan.output.path.join("work"), &plan.output.path));
        let tasks = prepared.inputs.tasks(task_bytes)?.len();
        if format == Format::Json {
            let stages: Vec<_> = plan.stages.iter().map(|stage| &stage.label).collect();
            let document = json!({
                "pipeline": plan.name, "pipeline_hash": plan.hash, "files": files, "file_bytes": bytes, "tasks": tasks,
                "tokenizer": prepared.tokenizer.name(), "engine": prepared.tokenizer.engine(), "stages": stages,
                "near_dedupe": curves.iter().map(Proposals::json).collect::<Vec<_>>(),
                "against": against.iter().map(Compared::json).collect::<Vec<_>>(),
                "order": plan.order.name, "pack": plan.pack.name, "warnings": warnings,
                "estimated_memory_bytes": least_bytes, "memory_budget_bytes": budget, "estimated_model_hours": score_hours,
                "estimated_text_bytes": text_bytes, "estimated_work_bytes": disk.work_bytes,
                "estimated_output_bytes": disk.output_bytes, "free_bytes": engine::free_bytes(&plan.output.path)
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
            size(disk.work_bytes), size(disk.output_bytes), size(text_bytes)
        ));
        if let Some(free) = engine::free_bytes(&plan.output.path) {
            text.push_str(&format!(
                "            {} are free where the output goes\n",
                size(free)
            ));
        }
        text.push_str(&format!(
            "memory      at least {} MiB on {threads} threads: {}; the budget is {} MiB, sorts use what it leaves and spill \
             beyond it\n",
            least_bytes.div_ceil(1 << 20), need.parts(), budget >> 20
        ));
        if prepared.mapped_bytes > 0 {
            text.push_str(&format!(
                "            models of {} are mapped from their files, beside the budget: the system may drop them, and \
                 scoring is slow where memory has no room for them\n",
                size(prepared.mapped_bytes)
            ));
        }
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
    stage: &'a StagePlan,
    release: &'a engine::Release,
}

impl Compared<'_> {
    fn work_bytes(&self) -> u64 {
        engine::against_bytes(self.stage, self.release)
    }

    fn line(&self) -> String {
        format!(
            "against     {} compares with {}: {} documents, an index of {}; about {} of sorts, which spill beyond \
             --memory{}\n",
            printable_line(&self.stage.label),
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
            "stage": self.stage.label, "release": self.release.name, "documents": self.release.documents(),
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
        Ok(Proposals {
            label: stage.label.clone(),
            bands,
            rows,
            given: given("bands") && given("rows"),
            min_similarity: stage.options.number("min_similarity"),
            measure: global::measure(&stage.options),
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
