//! What the whole pipeline costs beside reading and tokenizing alone, on one and on two threads.
//!
//! ```text
//! cargo bench --bench pipeline -- [FOLDER] [--rounds N] [--threads 1,2] [--no-fit] [--against PROGRAM]
//! cargo bench --bench pipeline -- [FOLDER] --near COPIES [--rounds N] [--threads 1,2]
//! ```
//!
//! FOLDER holds JSONL files with a field `text`; `../shared/data/mix` when absent. The runs are
//! interleaved (reading, reading and tokenizing, the whole; then the next round) and medians are
//! printed, as a machine is seldom quiet. Seconds of cores are what to compare on a busy one.
//! `--against` runs another build of the program between, on the same pipeline, and says whether
//! the two wrote the same bytes. `--no-fit` leaves the score stage away: quick, for the rest. `--near`
//! measures near dedupe alone, beside tokenizing, with the texts decoded and in memory; with 2 copies
//! and more the corpus is that many times as large, the copies with small edits.

mod near;

use goodput::audit::Audit;
use goodput::engine::RunRecord;
use goodput::source::{Entry, FoundFile, InputSpec, Reader, find_files, slices};
use goodput::tokenizer::{Tokenizer, TokenizerSource};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

// The allocator of the program, so that what runs in here costs what it costs there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Seconds on the clock and of all cores.
#[derive(Clone, Copy, Default)]
struct Cost {
    wall: f64,
    core: f64,
}

struct Options {
    folder: PathBuf,
    rounds: usize,
    threads: Vec<usize>,
    fit: bool,
    against: Option<PathBuf>,
    near: Option<usize>,
}

/// Costs of each thing that is measured, by threads and name, one per round.
type Costs = BTreeMap<(usize, String), Vec<Cost>>;

fn main() -> Result<()> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    let options = options(&shared)?;
    let tokenizer_file = shared.join("tokenizers/gpt2/tokenizer.json");
    let mut out = io::stdout().lock();
    if !options.folder.exists() || !tokenizer_file.exists() {
        writeln!(out, "skipped: no data in {}", options.folder.display())?;
        return Ok(());
    }
    let glob = format!("{}/*.jsonl*", options.folder.canonicalize()?.display());
    let reference = format!("{}/reference/*.jsonl.zst", shared.canonicalize()?.display());
    let work = std::env::temp_dir().join(format!("goodput-bench-{}", std::process::id()));
    fs::create_dir_all(&work)?;
    let pipeline = work.join("mix.yaml");
    let score = if options.fit {
        format!("\n  - score: {{ estimator: ngram_excess, reference: \"{reference}\" }}")
    } else {
        String::new()
    };
    let by = if options.fit {
        "difficulty"
    } else {
        "length_tokens"
    };
    fs::write(
        &pipeline,
        format!(
            "version: 1\nname: bench\nseed: 17\ninputs:\n  - path: \"{glob}\"\n    source: mix\n\
             tokenizer:\n  file: \"{}\"\n  end_token: \"<|endoftext|>\"\n\
             stages:\n  - gopher_quality: {{}}\n  - gopher_repetition: {{}}\n  - exact_dedupe: {{}}\n  - near_dedupe: {{}}{score}\n\
             order: {{ strategy: sorted, by: {by} }}\npack: {{ method: best_fit, sequence_tokens: 2048 }}\noutput: {{ path: out }}\n",
            tokenizer_file.canonicalize()?.display()
        ),
    )?;
    let program = PathBuf::from(env!("CARGO_BIN_EXE_goodput"));
    let tokenizer = Tokenizer::load(&TokenizerSource::File(tokenizer_file), Some(&work))?;
    let files = find_files(Path::new("/"), &[glob])?;
    if let Some(copies) = options.near {
        for &threads in &options.threads {
            near::near(
                &files,
                &tokenizer,
                &work,
                threads,
                options.rounds,
                copies,
                &mut out,
            )?;
        }
        fs::remove_dir_all(&work)?;
        return Ok(());
    }
    // Once, unmeasured: the files come into the page cache, the tokenizer's verdict into its own.
    let (text_bytes, text_tokens) = read(&files, Some(&tokenizer))?;
    let reference_tokens = if options.fit {
        read(&find_files(Path::new("/"), &[reference])?, Some(&tokenizer))?.1
    } else {
        0
    };

    let mut costs = Costs::new();
    let mut audit = None;
    let mut peak = 0u64;
    let mut same = true;
    for round in 0..options.rounds {
        for &threads in &options.threads {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()?;
            let mut note = |name: &str, cost: Cost| {
                costs
                    .entry((threads, name.to_string()))
                    .or_default()
                    .push(cost)
            };
            note(
                "read alone",
                measured(|| pool.install(|| read(&files, None)))?,
            );
            note(
                "read and tokenize alone",
                measured(|| pool.install(|| read(&files, Some(&tokenizer))))?,
            );
            let here = work.join("here");
            let record = whole(&program, &pipeline, &here, threads)?;
            for (name, cost) in by_phase(&record) {
                note(&name, cost);
            }
            peak = peak.max(record.peak_anonymous_bytes.unwrap_or(0));
            audit = Some(serde_json::from_slice::<Audit>(&fs::read(
                here.join("audit.json"),
            )?)?);
            if let Some(other) = &options.against {
                let there = work.join("there");
                for (name, cost) in by_phase(&whole(other, &pipeline, &there, threads)?) {
                    note(&format!("{name} (other)"), cost);
                }
                same &= same_bytes(&here, &there)?;
            }
            writeln!(
                io::stderr(),
                "round {} of {}, {threads} threads",
                round + 1,
                options.rounds
            )?;
        }
    }
    let audit = audit.ok_or("at least one round")?;
    let kept = Audit::total(&audit.kept);
    writeln!(
        out,
        "{}: {:.1} MB of text, {:.2} million tokens, {} documents; kept {:.2} million tokens; reference {:.2}; peak {:.0} MB",
        options.folder.display(),
        text_bytes as f64 / 1e6,
        text_tokens as f64 / 1e6,
        Audit::total(&audit.read).documents,
        kept.tokens as f64 / 1e6,
        reference_tokens as f64 / 1e6,
        peak as f64 / 1e6,
    )?;
    // What a phase handles: its own speed is over that.
    let handled = |name: &str| match name.trim_end_matches(" (other)") {
        "fit" => kept.tokens + reference_tokens,
        "reference" => reference_tokens,
        "score" | "arrange" => kept.tokens,
        "emit" => audit.emitted.positions,
        "rejects and evidence" => text_tokens - kept.tokens,
        _ => text_tokens,
    };
    writeln!(
        out,
        "\n{:<34} {:>7} {:>9} {:>9} {:>12} {:>14} {:>14}",
        "", "threads", "wall s", "core s", "MB/s/core", "Mtokens/s/core", "of its Mtokens"
    )?;
    let mut medians = BTreeMap::new();
    for ((threads, name), costs) in &costs {
        let median = Cost {
            wall: median(costs, |c| c.wall),
            core: median(costs, |c| c.core),
        };
        medians.insert((*threads, name.clone()), median);
        let tokens = handled(name) as f64;
        writeln!(
            out,
            "{name:<34} {threads:>7} {:>9.2} {:>9.2} {:>12.1} {:>14.2} {:>14.2}",
            median.wall,
            median.core,
            tokens * (text_bytes as f64 / text_tokens as f64) / median.core.max(0.01) / 1e6,
            tokens / median.core.max(0.01) / 1e6,
            tokens / 1e6,
        )?;
    }
    let of = |threads: usize, name: &str| {
        medians
            .get(&(threads, name.to_string()))
            .copied()
            .unwrap_or_default()
    };
    writeln!(out)?;
    for &threads in &options.threads {
        let (whole, alone) = (
            of(threads, "whole without fit"),
            of(threads, "read and tokenize alone"),
        );
        writeln!(
            out,
            "{threads} threads: whole without fit / (read and tokenize) = {:.2} on the clock, {:.2} in core seconds (at most 8)",
            whole.wall / alone.wall,
            whole.core / alone.core
        )?;
    }
    if let [one, .., many] = options.threads.as_slice() {
        for name in ["read and tokenize alone", "whole without fit", "whole"] {
            writeln!(
                out,
                "{name}: {many} threads / {one} thread = {:.2} on the clock (at most 0.6 for two)",
                of(*many, name).wall / of(*one, name).wall
            )?;
        }
    }
    if options.against.is_some() {
        writeln!(
            out,
            "the two programs wrote {}",
            if same {
                "the same bytes"
            } else {
                "DIFFERENT bytes"
            }
        )?;
    }
    fs::remove_dir_all(&work)?;
    Ok(())
}

fn options(shared: &Path) -> Result<Options> {
    let mut options = Options {
        folder: shared.join("mix"),
        rounds: 3,
        threads: vec![1, 2],
        fit: true,
        against: None,
        near: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            // `cargo bench` adds it.
            "--bench" => {}
            "--rounds" => options.rounds = value()?.parse()?,
            "--threads" => {
                options.threads = value()?
                    .split(',')
                    .map(str::parse)
                    .collect::<std::result::Result<_, _>>()?;
            }
            "--near" => options.near = Some(value()?.parse()?),
            "--no-fit" => options.fit = false,
            "--against" => options.against = Some(PathBuf::from(value()?)),
            folder if !folder.starts_with('-') => options.folder = PathBuf::from(folder),
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    Ok(options)
}

/// Reads all files, on the threads of the pool that this runs in; bytes of text and tokens.
fn read(
    files: &[FoundFile],
    tokenizer: Option<&Tokenizer>,
) -> std::result::Result<(u64, u64), String> {
    let spec = InputSpec::with_text("text");
    let one = |file: &FoundFile| -> std::result::Result<(u64, u64), String> {
        let (mut bytes, mut tokens) = (0, 0);
        let mut ids = Vec::new();
        for slice in slices(file, &spec, u64::MAX).map_err(|e| e.to_string())? {
            let mut reader = Reader::open(file, &slice, &spec).map_err(|e| e.to_string())?;
            while let Some(chunk) = reader.next_chunk().map_err(|e| e.to_string())? {
                chunk.decode(&spec, &mut |entry| {
                    if let Entry::Document(document) = entry {
                        bytes += document.text.len() as u64;
                        if tokenizer.is_some_and(|tokenizer| {
                            tokenizer.encode_into(&document.text, &mut ids).is_ok()
                        }) {
                            tokens += ids.len() as u64;
                        }
                    }
                });
            }
        }
        Ok((bytes, tokens))
    };
    files
        .par_iter()
        .with_max_len(1)
        .map(one)
        .try_reduce(|| (0, 0), |a, b| Ok((a.0 + b.0, a.1 + b.1)))
}

fn measured<T>(work: impl FnOnce() -> std::result::Result<T, String>) -> Result<Cost> {
    let (began, core) = (Instant::now(), core_seconds()?);
    work()?;
    Ok(Cost {
        wall: began.elapsed().as_secs_f64(),
        core: core_seconds()? - core,
    })
}

/// User and system seconds of this process: fields 14 and 15, in hundredths.
fn core_seconds() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .ok_or("no name")?
        .1
        .split_whitespace()
        .collect();
    Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) / 100.0)
}

fn whole(program: &Path, pipeline: &Path, out: &Path, threads: usize) -> Result<RunRecord> {
    if out.exists() {
        fs::remove_dir_all(out)?;
    }
    let output = Command::new(program)
        .args([
            "run",
            "--progress",
            "off",
            "--threads",
            &threads.to_string(),
            "--out",
        ])
        .args([out, pipeline])
        .output()?;
    if !output.status.success() {
        return Err(format!(
            "{}: {}",
            program.display(),
            String::from_utf8_lossy(&output.stderr)
        )
        .into());
    }
    Ok(serde_json::from_slice(&fs::read(out.join("run.json"))?)?)
}

/// The phases of a run, and their sums with and without fitting.
fn by_phase(record: &RunRecord) -> Vec<(String, Cost)> {
    let mut costs: Vec<(String, Cost)> = Vec::new();
    for phase in &record.phases {
        costs.push((
            phase.phase.clone(),
            Cost {
                wall: phase.wall_seconds,
                core: phase.core_seconds,
            },
        ));
    }
    let whole = Cost {
        wall: record.wall_seconds,
        core: record.core_seconds,
    };
    let fit = costs
        .iter()
        .find(|(name, _)| name == "fit")
        .map_or(Cost::default(), |(_, cost)| *cost);
    costs.push(("whole".to_string(), whole));
    costs.push((
        "whole without fit".to_string(),
        Cost {
            wall: whole.wall - fit.wall,
            core: whole.core - fit.core,
        },
    ));
    costs
}

fn median(costs: &[Cost], of: impl Fn(&Cost) -> f64) -> f64 {
    let mut values: Vec<f64> = costs.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        (values[middle - 1] + values[middle]) / 2.0
    }
}

/// Whether two output folders hold the same bytes, `run.json` and `run.log` apart.
fn same_bytes(one: &Path, other: &Path) -> Result<bool> {
    let list = |folder: &Path| -> Result<BTreeMap<PathBuf, Vec<u8>>> {
        let mut files = BTreeMap::new();
        for entry in walkdir::WalkDir::new(folder) {
            let entry = entry?;
            let name = entry.path().strip_prefix(folder)?.to_path_buf();
            if entry.file_type().is_file()
                && name != Path::new("run.json")
                && name != Path::new("run.log")
            {
                files.insert(name, fs::read(entry.path())?);
            }
        }
        Ok(files)
    };
    Ok(list(one)? == list(other)?)
}
