//! `goodput fit`

use super::run::WorkArguments;
use super::{CliError, STOP};
use crate::algo::fasttext;
use crate::engine::{self, EngineError};
use crate::plan::{Overrides, load};
use crate::score;
use crate::terminal;
use std::path::PathBuf;

/// Fit the models of a pipeline's `score` stage and write them to a file.
///
/// The file is what `run` would have fitted on the way: the documents that reach the stage, the same
/// folds. `inspect --explain` reads it, and a pipeline with the same seed, tokenizer and options of the
/// stage that names it as `model:` in place of `reference:` scores with it without fitting. Of the estimator
/// `fasttext` with `negative` it is a `.bin` file of the fastText library.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  goodput fit pipelines/quickstart.yaml --output quickstart.model
  goodput inspect pipelines/out/quickstart --explain quickstart.model")]
pub struct Fit {
    /// The pipeline file.
    pipeline: PathBuf,
    /// The file to write; replaced when the fit is done.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// Change a value of the pipeline, e.g. `seed=7`. Repeatable.
    #[arg(long, value_name = "KEY.PATH=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    work: WorkArguments,
}

impl Fit {
    /// Fits and prints what was fitted.
    pub fn run(self) -> Result<(), CliError> {
        let overrides = Overrides {
            set: self.set.clone(),
            out: None,
        };
        let ours = |there: &[u8]| {
            there.starts_with(score::MODEL_MAGIC)
                || there.starts_with(&fasttext::MAGIC.to_le_bytes())
        };
        super::refuse_foreign(&self.output, "no model", &ours)?;
        let plan = load(&self.pipeline, &overrides).map_err(EngineError::Problems)?;
        let reporter = self.work.start(&plan)?;
        let options = self.work.options(self.set);
        let fitted = engine::fit(&plan, &options, &self.output, &reporter, &STOP)?;
        drop(reporter);
        let words = |name: &str| fitted[name].to_string().replace('"', "");
        let bytes = std::fs::metadata(&self.output)?.len();
        terminal::print(&format!(
            "{}: {} version {}, {:.1} MB\n  general model of {} tokens, target model of {} tokens\n  parameter hash {}\n",
            self.output.display(),
            words("estimator"),
            words("version"),
            bytes as f64 / 1e6,
            fitted["general"]["tokens"],
            fitted["target"]["tokens"],
            words("parameter_hash"),
        ))?;
        Ok(())
    }
}
