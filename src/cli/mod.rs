//! Commands: arguments in, text and an exit code out. One file per command.

mod audit;
mod calibrate;
mod check;
mod fit;
mod inspect;
mod inspect_html;
mod measure;
mod run;
mod schema;
mod stages;
mod verify;

use crate::audit::Audit;
use crate::engine::{EngineError, Stop};
use crate::shard::Manifest;
use clap::{Parser, Subcommand};
use std::io;
use std::path::{Path, PathBuf};

/// Asked to stop by Ctrl-C or a termination signal.
pub static STOP: Stop = Stop::new();

/// Selects, scores and orders language-model training data, with a ledger of tokens that closes.
#[derive(Debug, Parser)]
#[command(name = "goodput", version, arg_required_else_help = true, after_help = AFTER)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const AFTER: &str = "\
Start here:
  goodput run pipelines/quickstart.yaml     needs no data of yours
  goodput audit pipelines/out/quickstart    where every token went
  goodput stages                            what a pipeline can do

Exit codes: 0 done, 1 the run failed, 2 the request was wrong.";

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Run),
    Check(check::Check),
    Fit(fit::Fit),
    Audit(audit::Audit),
    Verify(verify::Verify),
    Inspect(inspect::Inspect),
    Measure(measure::Measure),
    Calibrate(calibrate::Calibrate),
    Stages(stages::Stages),
    Schema(schema::Schema),
}

/// How a result is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// One JSON document.
    Json,
    /// Comma-separated values.
    Csv,
    /// One page that needs nothing else.
    Html,
}

/// Why a command ended without its result.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// From the engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The request was wrong.
    #[error("{0}")]
    Request(String),
    /// The result is that something does not hold; it has been printed.
    #[error("{0}")]
    DoesNotHold(String),
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl CliError {
    /// 1 where something failed, 2 where the request was wrong.
    pub fn exit_code(&self) -> u8 {
        match self {
            CliError::Engine(error) => error.exit_code(),
            CliError::Request(_) => 2,
            CliError::DoesNotHold(_) | CliError::Io(_) => 1,
        }
    }
}

/// Does what the arguments say.
///
/// # Errors
/// See [`CliError`]; the caller prints the error and exits with its code.
pub fn run(arguments: Arguments) -> Result<(), CliError> {
    match arguments.command {
        Command::Run(run) => run.run(),
        Command::Check(check) => check.run(),
        Command::Fit(fit) => fit.run(),
        Command::Audit(audit) => audit.run(),
        Command::Verify(verify) => verify.run(),
        Command::Inspect(inspect) => inspect.run(),
        Command::Measure(measure) => measure.run(),
        Command::Calibrate(calibrate) => calibrate.run(),
        Command::Stages(stages) => stages.run(),
        Command::Schema(schema) => schema.run(),
    }
}

/// A number of bytes with a unit, e.g. `8GiB`, `500MB`, `1000B`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')
        .unwrap_or(text.len());
    let number: f64 = text[..digits]
        .replace('_', "")
        .parse()
        .map_err(|_| "expected bytes with a unit, e.g. 8GiB".to_string())?;
    let unit = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" => return Err("needs a unit, e.g. 8GiB".to_string()),
        "b" => 1.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        "kib" => 1024.0,
        "mib" => 1024f64.powi(2),
        "gib" => 1024f64.powi(3),
        "tib" => 1024f64.powi(4),
        other => {
            return Err(format!(
                "unknown unit '{other}'; use B, kB, MB, GB, TB, KiB, MiB, GiB or TiB"
            ));
        }
    };
    let bytes = number * unit;
    if bytes < 1.0 || bytes > u64::MAX as f64 {
        Err("must be 1 byte or more".to_string())
    } else {
        Ok(bytes as u64)
    }
}

/// A share above 0 and up to 1.
pub fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("must be a number above 0 and up to 1".to_string()),
    }
}

/// The budget where nobody names one: half of the machine's memory, or 4 GiB where it does not tell.
pub fn default_memory_bytes() -> u64 {
    let total = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        });
    total.map_or(4 << 30, |kib| kib * 1024 / 2)
}

/// The manifest of the output folder that a command was given.
///
/// # Errors
/// When it is not there, or damaged.
pub fn manifest_of(out: &Path, command: &str) -> Result<Manifest, CliError> {
    let path = out.join("manifest.json");
    let text = std::fs::read_to_string(&path).map_err(|error| {
        CliError::Request(format!(
            "{}: {error}; '{command}' takes the output folder of a finished run",
            path.display()
        ))
    })?;
    Manifest::parse(&text).map_err(|error| CliError::Request(format!("{} {error}", path.display())))
}

/// The ledger of the output folder that a command was given, and its text.
///
/// # Errors
/// When it is not there, or damaged.
pub fn ledger_of(out: &Path, command: &str) -> Result<(Audit, String), CliError> {
    let path = out.join("audit.json");
    let text = std::fs::read_to_string(&path).map_err(|error| {
        CliError::Request(format!(
            "{}: {error}; '{command}' takes the output folder of a finished run",
            path.display()
        ))
    })?;
    let ledger = serde_json::from_str(&text).map_err(|error| {
        CliError::Request(format!(
            "{}: is not a ledger of this version: {error}",
            path.display()
        ))
    })?;
    Ok((ledger, text))
}

/// Refuses to write a file over anything but nothing or `what` is written, told by its first bytes.
///
/// # Errors
/// When something else of the user's is there.
pub fn refuse_foreign(
    path: &Path,
    what: &str,
    is_ours: &dyn Fn(&[u8]) -> bool,
) -> Result<(), CliError> {
    use std::io::Read;
    let Ok(file) = std::fs::File::open(path) else {
        return Ok(());
    };
    let mut begin = Vec::new();
    let read = file.take(64).read_to_end(&mut begin);
    // A folder is refused by who writes, with its own words.
    if read.is_err() || begin.is_empty() || is_ours(&begin) {
        return Ok(());
    }
    Err(CliError::Request(format!(
        "--output: {} is there and {what}; name another file",
        path.display()
    )))
}

/// The folder of what may be kept from run to run, such as the verdict of a tokenizer's self-check:
/// `$XDG_CACHE_HOME/goodput`, else `~/.cache/goodput`; `None` where neither is set. Nothing in it
/// shapes a result, and all of it may be deleted.
pub fn cache_folder() -> Option<PathBuf> {
    let of = |variable: &str| {
        std::env::var_os(variable)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let base = of("XDG_CACHE_HOME").or_else(|| Some(of("HOME")?.join(".cache")))?;
    Some(base.join("goodput"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn only_a_file_of_the_same_kind_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        let ours = |begin: &[u8]| begin.starts_with(b"ours");
        assert!(refuse_foreign(&path, "no such", &ours).is_ok());
        for (content, may) in [("", true), ("ours, older", true), ("theirs", false)] {
            std::fs::write(&path, content).expect("written");
            assert_eq!(
                refuse_foreign(&path, "no such", &ours).is_ok(),
                may,
                "{content}"
            );
        }
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!(parse_bytes("8GiB"), Ok(8 << 30));
        assert_eq!(parse_bytes("1.5MB"), Ok(1_500_000));
        assert_eq!(parse_bytes("1_000B"), Ok(1_000));
        assert!(parse_bytes("8").is_err());
        assert!(
            parse_bytes("0").is_err() && parse_bytes("8Gx").is_err() && parse_bytes("x").is_err()
        );
    }

    #[test]
    fn shares_are_above_zero_and_up_to_one() {
        assert_eq!(parse_share("1"), Ok(1.0));
        assert!(
            parse_share("0").is_err()
                && parse_share("1.01").is_err()
                && parse_share("NaN").is_err()
        );
    }
}
