//! `goodput run`

use super::{CliError, STOP, default_memory_bytes, parse_bytes, parse_share};
use crate::audit;
use crate::engine::{self, EngineError, RunOptions};
use crate::plan::{Overrides, Plan, load};
use crate::terminal::{self, MetricsAddress, Places, ProgressMode, Reporter};
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
    /// How progress is shown: at most a line in 30 seconds where there is no bar.
    #[arg(long, value_name = "HOW", default_value = "auto")]
    progress: ProgressMode,
    /// Say what is decided and found on the way, as run.log has it; twice: each file as well, in run.log too.
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Serve metrics for Prometheus at http://ADDR/metrics while the work goes on: PORT, :PORT or HOST:PORT; on
    /// loopback where no host is named, port 0 is any that is free.
    #[arg(long, value_name = "ADDR")]
    metrics: Option<MetricsAddress>,
}

impl WorkArguments {
    /// Starts the workers and what shows their progress, and has Ctrl-C and a termination signal stop them soon.
    ///
    /// # Errors
    /// When threads cannot be started, or metrics not be served where they should.
    pub fn start(&self, plan: &Plan) -> Result<Reporter, CliError> {
        let metrics = self.metrics.as_ref().map(terminal::listen);
        let metrics = metrics
            .transpose()
            .map_err(|error| CliError::Request(format!("--metrics: {error}")))?;
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
        let mut reporter = Reporter::new(self.progress, self.verbose, self.places(plan));
        if let Some(listener) = metrics {
            reporter.serve(listener)?;
        }
        Ok(reporter)
    }

    /// What the log may name: paths from the output folder, the pipeline's folder and the current one on.
    fn places(&self, plan: &Plan) -> Places {
        let folders = [
            Some(&plan.output.path),
            Some(&plan.base),
            self.work.as_ref(),
        ];
        let folders = folders.into_iter().flatten();
        Places {
            folders: folders
                .filter_map(|folder| std::path::absolute(folder).ok())
                .chain(std::env::current_dir())
                .collect(),
            pipeline: std::fs::read_to_string(&plan.path).unwrap_or_default(),
        }
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
        let reporter = self.work.start(&plan)?;
        let options = RunOptions {
            sample_share: self.sample,
            fresh: self.fresh,
            replace: self.replace,
            ..self.work.options(self.plan.set.clone())
        };
        let outcome = engine::run(&plan, &options, &reporter, &STOP)
            .inspect_err(|error| reporter.note_error(error))?;
        drop(reporter);
        let ledger = terminal::printable_names(&outcome.audit)?;
        let out = outcome.out.display();
        let mut text = match &outcome.record {
            Some(record) => {
                let read = audit::Audit::total(&ledger.read);
                format!(
                    "{}: {:.1} MB of text in {:.1} s on {} threads\n",
                    ledger.pipeline,
                    read.bytes as f64 / 1e6,
                    record.wall_seconds,
                    record.threads
                )
            }
            None => format!(
                "{}: complete already, nothing was done (--fresh redoes it)\n",
                ledger.pipeline
            ),
        };
        text.push_str(&audit::short(&ledger));
        text.push_str(&format!(
            "\n{out}\n\nNext:\n  goodput audit {out}\n  goodput verify {out} --inputs\n  goodput inspect {out}\n  goodput inspect {out} --rejects\n"
        ));
        terminal::print(&text)?;
        Ok(())
    }
}
