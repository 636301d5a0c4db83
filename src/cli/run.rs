//! `goodput run`

use super::{CliError, STOP, default_memory_bytes, parse_bytes, parse_share};
use crate::audit;
use crate::engine::{self, EngineError, RunOptions};
use crate::plan::{Overrides, load};
use crate::spill::IoContext;
use crate::terminal::{self, ProgressMode, Reporter};
use std::path::PathBuf;
use std::time::Duration;

/// Run a pipeline; an interrupted run of the same plan continues by itself.
///
/// The output folder holds the shards, what was turned away and why, the evidence of every duplicate,
/// a ledger of all tokens and a manifest. The same pipeline, inputs and seed give the same bytes,
/// for any number of threads and any memory.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  goodput run pipelines/quickstart.yaml
  goodput run web.yaml --sample 0.01 --out /tmp/try
  goodput run web.yaml --set stages.length.min_tokens=64 --set 'order={strategy: shuffle}'")]
pub struct Run {
    /// The pipeline file.
    pipeline: PathBuf,
    #[command(flatten)]
    plan: PlanArguments,
    #[command(flatten)]
    work: WorkArguments,
    /// Read only this share of the documents, drawn by a keyed hash of the id: they get the verdicts
    /// that per-document stages give them in a full run.
    #[arg(long, value_name = "SHARE", value_parser = parse_share, allow_negative_numbers = true)]
    sample: Option<f64>,
    /// Redo everything, ignoring earlier work.
    #[arg(long)]
    fresh: bool,
    /// Replace another pipeline's output folder.
    #[arg(long)]
    replace: bool,
}

/// How the work is done. No result depends on it.
#[derive(Debug, clap::Args)]
pub struct WorkArguments {
    /// Worker threads; all cores when absent.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Anonymous memory that may be used, e.g. 8GiB; half of the machine's when absent.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory: Option<u64>,
    /// Folder of intermediate files; one beside the output when absent.
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// Keep intermediate files: another order, selection or control arm then reuses them.
    #[arg(long)]
    keep_work: bool,
    /// Bytes of input that a task takes, e.g. 64MiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    slice: Option<u64>,
    /// End with an error that names what is stuck where nothing was read, written or computed for this
    /// long, e.g. 10m; wait for ever when absent.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    stall_timeout: Option<Duration>,
    /// How progress is shown.
    #[arg(long, value_name = "HOW", default_value = "auto")]
    progress: ProgressMode,
}

impl WorkArguments {
    /// Starts the workers, and has Ctrl-C and a termination signal stop them soon.
    ///
    /// # Errors
    /// When threads cannot be started.
    pub fn start(&self) -> Result<Reporter, CliError> {
        let mut pool = rayon::ThreadPoolBuilder::new();
        if let Some(threads) = self.threads {
            pool = pool.num_threads(usize::from(threads));
        }
        pool.build_global()
            .map_err(|error| CliError::Request(format!("threads cannot be started: {error}")))?;
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            let mut signals = signal_hook::iterator::Signals::new([signal])?;
            std::thread::spawn(move || {
                for (count, _) in signals.forever().enumerate() {
                    if count > 0 {
                        // Asked twice: what is finished is on disk anyway.
                        std::process::exit(130);
                    }
                    STOP.request();
                }
            });
        }
        if let Some(timeout) = self.stall_timeout {
            std::thread::spawn(move || {
                let stuck = STOP.stalled(timeout);
                terminal::say(&format!("error: {stuck}"));
                // Who waits for the disk sees no request to stop.
                std::process::exit(1);
            });
        }
        Ok(Reporter::new(self.progress))
    }

    /// Options of a run that reads everything and goes on from what is there.
    pub fn options(self, set: Vec<String>) -> RunOptions {
        RunOptions {
            memory_bytes: self.memory.unwrap_or_else(default_memory_bytes),
            sample_share: None,
            fresh: false,
            replace: false,
            work: self.work,
            keep_work: self.keep_work,
            task_bytes: self.slice,
            set,
            cache: super::cache_folder(),
        }
    }
}

/// A time with a unit, e.g. `90s`, `10m`, `2h`.
fn parse_time(text: &str) -> Result<Duration, String> {
    let seconds = [("s", 1), ("m", 60), ("h", 3600)]
        .iter()
        .find_map(|(unit, seconds)| {
            let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
            number.checked_mul(*seconds)
        });
    match seconds {
        Some(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
        _ => Err("must be a whole number above 0 with a unit, e.g. 90s, 10m or 2h".to_string()),
    }
}

/// What changes a pipeline from the command line.
#[derive(Debug, clap::Args)]
pub struct PlanArguments {
    /// Output folder, instead of the pipeline's `output.path`.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Change a value of the pipeline, e.g. `seed=7` or `stages.length#2.min_tokens=64`. Repeatable.
    #[arg(long, value_name = "KEY.PATH=VALUE")]
    set: Vec<String>,
}

impl PlanArguments {
    /// The overrides that they stand for.
    pub fn overrides(&self) -> Overrides {
        Overrides {
            set: self.set.clone(),
            out: self.out.clone(),
        }
    }
}

impl Run {
    /// Runs the pipeline and prints a short ledger.
    pub fn run(self) -> Result<(), CliError> {
        let plan = load(&self.pipeline, &self.plan.overrides()).map_err(EngineError::Problems)?;
        let reporter = self.work.start()?;
        let options = RunOptions {
            sample_share: self.sample,
            fresh: self.fresh,
            replace: self.replace,
            ..self.work.options(self.plan.set.clone())
        };
        let outcome = engine::run(&plan, &options, &reporter, &STOP)?;
        if outcome.record.is_some() {
            let log = outcome.out.join("run.log");
            std::fs::write(&log, reporter.log()).context("write", &log)?;
        }
        let out = outcome.out.display();
        let mut text = match &outcome.record {
            Some(record) => {
                let read = audit::Audit::total(&outcome.audit.read);
                format!(
                    "{}: {:.1} MB of text in {:.1} s on {} threads\n",
                    outcome.audit.pipeline,
                    read.bytes as f64 / 1e6,
                    record.wall_seconds,
                    record.threads
                )
            }
            None => format!(
                "{}: complete already, nothing was done (--fresh redoes it)\n",
                outcome.audit.pipeline
            ),
        };
        text.push_str(&audit::short(&outcome.audit));
        text.push_str(&format!(
            "\n{out}\n\nNext:\n  goodput audit {out}\n  goodput verify {out} --inputs\n  goodput inspect {out}\n  goodput inspect {out} --rejects\n"
        ));
        terminal::print(&text)?;
        Ok(())
    }
}
