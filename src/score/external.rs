//! Usefulness from numbers per token that another program made, such as the losses of a model.

use super::parallel::check;
use super::token_numbers::{HIGH, Joined, LOW, MISSING, NO_ROWS, Percentiles, Scale};
use super::unigram::parameter_hash;
use super::{
    DocumentScores, Estimator, EstimatorKind, Fit, FitError, FitInput, TableRequest, TokenDocument,
    TokenScores,
};
use crate::record::{Kind, OptionError, OptionSpec, Options, Spec};
use std::cell::RefCell;
use std::path::PathBuf;

/// The estimator `external`.
pub(super) const KIND: EstimatorKind = EstimatorKind {
    spec: Spec {
        name: "external",
        summary: "A number per token from a Parquet or JSONL file, such as the loss of a model of your own",
        details: "The file has rows of `doc_id`, `token_index` (of the row's first token; 0 where absent) and a column of \
                  numbers: a list for consecutive tokens, or one number. Rows of a document may stand anywhere; \
                  together they must cover its tokens once, without begin and end tokens. Rows of documents that do \
                  not reach the stage are passed by. The file names its tokenizer: Parquet in the key-value metadata, \
                  JSONL in its first record, under `goodput.tokenizer_fingerprint`, with the value that the shards of \
                  a run and its manifest carry. Another tokenizer, another number of tokens and numbers that are not \
                  finite are errors. Of a loss l, u = clip((l - low) / (high - low), 0, 1) with `usefulness: rising` \
                  (what is hard is useful) and 1 minus that with `falling` (what is likely is useful, as in CCNet, \
                  Wenzek et al. 2020); low and high are percentiles of l over the tokens that reach the stage, to \
                  1/1024, within 64 of 0. With `value` the number itself is u. score is the mean of u. Difficulty and \
                  excess are 0.",
        options: &[
            OptionSpec {
                name: "losses",
                kind: Kind::Path,
                default: None,
                doc: "the file, `.parquet` or `.jsonl` (also `.jsonl.gz`, `.jsonl.zst`)",
            },
            OptionSpec {
                name: "column",
                kind: Kind::Text,
                default: Some("loss"),
                doc: "the column of numbers",
            },
            OptionSpec {
                name: "usefulness",
                kind: Kind::Choice(&["rising", "falling", "value"]),
                default: None,
                doc: "whether tokens of high loss are useful, those of low loss, or the number is the usefulness, 0 to 1",
            },
            LOW,
            HIGH,
            MISSING,
        ],
        example: "{ losses: data/losses.jsonl, usefulness: falling }",
    },
    version: 1,
    needs_reference: false,
    needs_text: false,
    needs_id: true,
    has_difficulty: false,
    has_excess: false,
    load: None,
    build,
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mapping {
    Rising,
    Falling,
    Value,
}

struct External {
    path: PathBuf,
    column: String,
    mapping: Mapping,
    percentiles: Percentiles,
    missing: Option<f64>,
}

fn build(options: &Options) -> Result<Box<dyn Fit>, OptionError> {
    Ok(Box::new(External {
        path: PathBuf::from(options.text("losses")),
        column: options.text("column").to_string(),
        mapping: match options.text("usefulness") {
            "rising" => Mapping::Rising,
            "falling" => Mapping::Falling,
            _ => Mapping::Value,
        },
        percentiles: Percentiles::of(options)?,
        missing: options.number_if_given(MISSING.name),
    }))
}

impl Fit for External {
    fn files(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }

    fn table(&self) -> Option<TableRequest<'_>> {
        Some(TableRequest {
            path: &self.path,
            columns: vec![&self.column],
        })
    }

    fn fit(&self, input: &FitInput<'_>) -> Result<Box<dyn Estimator>, FitError> {
        let joined = Joined::read(input, &[&self.column])?;
        let mut description = serde_json::json!({
            "estimator": KIND.spec.name,
            "version": KIND.version,
            "column": self.column,
            "usefulness": format!("{:?}", self.mapping).to_lowercase(),
            "missing_usefulness": self.missing,
            "file_checksum": input.file_checksums,
            "file_rows": joined.rows,
            "calibration": "uncalibrated (numbers from outside)",
        });
        let mut scale = None;
        if self.mapping != Mapping::Value {
            let number = |columns: &[Vec<f32>], at: usize| f64::from(columns[0][at]);
            let (found, tokens) = joined.scale(input.corpus, self.percentiles, number)?;
            description["percentiles"] = serde_json::json!(self.percentiles);
            description["low"] = found.low.into();
            description["high"] = found.high.into();
            description["tokens"] = tokens.into();
            scale = Some(found);
        }
        description["parameter_hash"] = parameter_hash(&description, input.seed, 0).into();
        Ok(Box::new(FittedExternal {
            joined,
            scale,
            falling: self.mapping == Mapping::Falling,
            missing: self.missing,
            vocabulary_size: input.vocabulary_size,
            description,
        }))
    }
}

struct FittedExternal {
    joined: Joined,
    /// `None` where the numbers are the usefulness.
    scale: Option<Scale>,
    falling: bool,
    missing: Option<f64>,
    vocabulary_size: u32,
    description: serde_json::Value,
}

thread_local! {
    /// Numbers of the document in work, kept so that no document allocates.
    static NUMBERS: RefCell<[Vec<f32>; 1]> = const { RefCell::new([Vec::new()]) };
}

impl FittedExternal {
    fn usefulness(&self, number: f32) -> Result<f64, String> {
        let number = f64::from(number);
        match &self.scale {
            Some(scale) => Ok(scale.of(number, self.falling)),
            None if (0.0..=1.0).contains(&number) => Ok(number),
            None => Err(format!(
                "has {number} in the file, and 'usefulness: value' needs numbers from 0 to 1; use rising or falling"
            )),
        }
    }
}

impl Estimator for FittedExternal {
    fn score(
        &self,
        document: &TokenDocument<'_>,
        out: &mut TokenScores,
    ) -> Result<DocumentScores, String> {
        check(document, self.vocabulary_size)?;
        out.usefulness.clear();
        out.excess_nats.clear();
        let mut sum = 0.0;
        NUMBERS.with_borrow_mut(|columns| {
            match (self.joined.of(document, columns)?, self.missing) {
                (true, _) => {}
                (false, Some(usefulness)) => {
                    sum = usefulness * document.tokens.len() as f64;
                    out.usefulness
                        .resize(document.tokens.len(), usefulness as f32);
                    return Ok(());
                }
                (false, None) => return Err(NO_ROWS.to_string()),
            }
            for &number in &columns[0] {
                let usefulness = self.usefulness(number)?;
                sum += usefulness;
                out.usefulness.push(usefulness as f32);
            }
            Ok(())
        })?;
        Ok(DocumentScores {
            score: sum / document.tokens.len() as f64,
            excess_nats: 0.0,
            difficulty: 0.0,
        })
    }

    fn describe(&self) -> serde_json::Value {
        self.description.clone()
    }
}
