//! How surprising each token is to a causal language model that was trained elsewhere.

use super::parallel::{Sample, check};
use super::token_numbers::{HIGH, LOW, Percentiles, Scale};
use super::unigram::parameter_hash;
use super::{
    DocumentScores, Estimator, EstimatorKind, Fit, FitError, FitInput, Needs, TokenDocument,
    TokenScores,
};
use crate::algo::causal_lm::{Model, Shape, WeightFile, Window};
use crate::algo::ngram_table::Storage;
use crate::record::{Kind, OptionError, OptionSpec, Options, Spec};
use crate::spill::{Column, IoContext, read_file};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The estimator `causal_lm`.
pub(super) const KIND: EstimatorKind = EstimatorKind {
    spec: Spec {
        name: "causal_lm",
        summary: "Loss per token of a causal language model of the GPT-2 or Llama family, on a sample of the documents",
        details: "The model is a folder with `config.json` (`model_type` gpt2 or llama) and `model.safetensors`, or several \
                  files with `model.safetensors.index.json`; weights of type F32, F16 or BF16 are mapped and converted as \
                  they are used. The loss of a token is -ln of its probability after the tokens before it, in nats. A \
                  document longer than `context_tokens` is read in windows that overlap by `overlap_tokens`; each token's \
                  loss is from the first window that holds it, so after the first window it has at least `overlap_tokens` \
                  of context. A document's first token has no context: with `begin_token_id` it comes after that token, \
                  else its loss is ln of the model's vocabulary size. The model must know the ids of the pipeline's \
                  tokenizer; where a `tokenizer.json` lies beside it, the pipeline's must be the same. Of a loss l, \
                  u = clip((l - low) / (high - low), 0, 1) with `usefulness: rising` (what is hard is useful) and 1 minus \
                  that with `falling` (what is likely is useful, as in CCNet, Wenzek et al. 2020); low and high are \
                  percentiles of l over the tokens of the sample, to 1/1024, up to 64. score is the mean of u. \
                  Difficulty and excess are 0. A document is scored whether or not the model was trained on it. A model \
                  of 100 million parameters reads some hundred tokens a second and core, 100,000 times slower than they \
                  are tokenized; `goodput check` estimates the hours. A run that is interrupted before all documents of \
                  the sample have been read begins with the first of them again.",
        options: &[
            OptionSpec {
                name: "model",
                kind: Kind::Path,
                default: None,
                doc: "the folder of the model",
            },
            OptionSpec {
                name: "sample_share",
                kind: Kind::Number { min: 0.0, max: 1.0 },
                default: None,
                doc: "share of the documents that the model reads, above 0 and up to 1 for all; drawn by a hash of seed and id",
            },
            OptionSpec {
                name: "missing_usefulness",
                kind: Kind::Number { min: 0.0, max: 1.0 },
                default: Some("null"),
                doc: "usefulness, from 0 to 1, of every token of a document that is not drawn; required with a sample_share \
                      below 1",
            },
            OptionSpec {
                name: "usefulness",
                kind: Kind::Choice(&["rising", "falling"]),
                default: None,
                doc: "whether tokens of high loss are useful, or those of low loss",
            },
            OptionSpec {
                name: "begin_token_id",
                kind: Kind::Integer {
                    min: 0,
                    max: u32::MAX as u64,
                },
                default: Some("null"),
                doc: "id of the token that each document is read after, such as the model's `bos_token_id`",
            },
            OptionSpec {
                name: "context_tokens",
                kind: Kind::Integer {
                    min: 2,
                    max: u32::MAX as u64,
                },
                default: Some("null"),
                doc: "tokens of a window, the begin token among them, up to what the model was made for; that where absent, \
                      but at most 1024",
            },
            OptionSpec {
                name: "overlap_tokens",
                kind: Kind::Integer {
                    min: 1,
                    max: u32::MAX as u64,
                },
                default: Some("null"),
                doc: "tokens that a window repeats of the one before, below context_tokens; a quarter of it where absent",
            },
            LOW,
            HIGH,
        ],
        example: "{ model: models/small, sample_share: 0.1, missing_usefulness: 0.5, usefulness: falling }",
    },
    version: 1,
    needs_reference: false,
    needs_text: false,
    needs_id: false,
    has_difficulty: false,
    has_excess: false,
    load: None,
    build,
};

/// Tokens that a worker computes at once: enough that reading the weights costs little beside it.
const BATCH_TOKENS: usize = 512;
/// Batches for each worker between two writes.
const BATCHES: usize = 4;

struct Mapped(Column<u8>);

impl Storage for Mapped {
    fn bytes(&self) -> &[u8] {
        self.0.values()
    }
}

fn build(options: &Options) -> Result<Box<dyn Fit>, OptionError> {
    let folder = PathBuf::from(options.text("model"));
    let (model, files) = open(&folder).map_err(|problem| {
        let must_be = "a folder with a model of the GPT-2 or Llama family in safetensors";
        OptionError::new(
            "model",
            must_be,
            format!("'{}': {problem}", folder.display()),
        )
    })?;
    let shape = model.shape();
    let integer = |name: &str| options.integer_if_given(name).map(|n| n as usize);
    let longest = shape.context_tokens;
    let context = integer("context_tokens").unwrap_or(longest.min(1024));
    if context > longest || context < 2 {
        return Err(OptionError::new(
            "context_tokens",
            format!("from 2 to the {longest} that the model was made for"),
            context,
        ));
    }
    let overlap = integer("overlap_tokens").unwrap_or((context / 4).max(1));
    if overlap >= context {
        return Err(OptionError::new(
            "overlap_tokens",
            format!("below context_tokens, {context}"),
            overlap,
        ));
    }
    let begin = options
        .integer_if_given("begin_token_id")
        .map(|id| id as u32);
    if let Some(id) = begin
        && id as usize >= shape.vocabulary_size
    {
        return Err(OptionError::new(
            "begin_token_id",
            format!(
                "below the model's vocabulary size, {}",
                shape.vocabulary_size
            ),
            id,
        ));
    }
    let share = options.number("sample_share");
    if share <= 0.0 {
        return Err(OptionError::new("sample_share", "above 0", share));
    }
    let missing = options.number_if_given("missing_usefulness");
    if share < 1.0 && missing.is_none() {
        return Err(OptionError::new(
            "missing_usefulness",
            "from 0 to 1 where sample_share is below 1, for the documents that are not drawn",
            "none",
        ));
    }
    Ok(Box::new(CausalLm {
        model: Arc::new(model),
        files,
        tokenizer_file: Some(folder.join("tokenizer.json")).filter(|path| path.is_file()),
        share,
        missing: missing.filter(|_| share < 1.0),
        falling: options.text("usefulness") == "falling",
        windows: Windows {
            begin,
            context,
            overlap,
        },
        percentiles: Percentiles::of(options)?,
    }))
}

/// Opens the model of a folder, and says which files it is of.
fn open(folder: &Path) -> Result<(Model, Vec<PathBuf>), String> {
    let read = |name: &str| {
        read_file(&folder.join(name)).map_err(|error| format!("{name} cannot be read: {error}"))
    };
    let shape =
        Shape::parse(&read("config.json")?).map_err(|error| format!("config.json: {error}"))?;
    let mut paths = vec![folder.join("config.json")];
    const INDEX: &str = "model.safetensors.index.json";
    let mut owner = BTreeMap::new();
    let mut names = BTreeSet::from(["model.safetensors".to_string()]);
    if !folder.join("model.safetensors").exists() && folder.join(INDEX).exists() {
        #[derive(serde::Deserialize)]
        struct Index {
            weight_map: BTreeMap<String, String>,
        }
        let index: Index = serde_json::from_slice(&read(INDEX)?)
            .map_err(|error| format!("{INDEX}: is no index of tensors: {error}"))?;
        owner = index.weight_map;
        names = owner.values().cloned().collect();
        if let Some(name) = names.iter().find(|name| name.contains(['/', '\\'])) {
            return Err(format!(
                "{INDEX}: names the file '{name}', expected one in the same folder"
            ));
        }
        paths.push(folder.join(INDEX));
    }
    let mut files = Vec::new();
    for name in names {
        let path = folder.join(&name);
        let bytes = Column::<u8>::open(&path).map_err(|error| error.to_string())?;
        files.push(WeightFile {
            name,
            bytes: Box::new(Mapped(bytes)),
        });
        paths.push(path);
    }
    Ok((Model::new(shape, files, &owner)?, paths))
}

struct CausalLm {
    model: Arc<Model>,
    files: Vec<PathBuf>,
    tokenizer_file: Option<PathBuf>,
    share: f64,
    /// `None` where every document is drawn.
    missing: Option<f64>,
    falling: bool,
    windows: Windows,
    percentiles: Percentiles,
}

/// How a document is cut.
#[derive(Clone, Copy, Debug)]
struct Windows {
    begin: Option<u32>,
    context: usize,
    overlap: usize,
}

impl Windows {
    /// The document behind the begin token, where there is one.
    fn sequence(&self, tokens: &[u32]) -> Vec<u32> {
        self.begin.iter().chain(tokens).copied().collect()
    }

    /// Windows of a sequence, which predict each of its tokens but the first once, in order.
    fn of<'s>(&self, sequence: &'s [u32]) -> Vec<Window<'s>> {
        let (mut windows, mut start, mut from) = (Vec::new(), 0, 1);
        while start + from < sequence.len() {
            let end = sequence.len().min(start + self.context);
            windows.push(Window {
                tokens: &sequence[start..end],
                from,
            });
            from = self.overlap.min(end - start);
            start = end - from;
        }
        windows
    }
}

/// Documents that are drawn, read but not yet computed.
#[derive(Default)]
struct Group {
    numbers: Vec<u64>,
    sequences: Vec<Vec<u32>>,
    tokens: usize,
}

/// Losses of documents as they are written.
struct Losses {
    file: BufWriter<File>,
    path: PathBuf,
    /// Number of each document, ascending as the file, and where its losses begin.
    index: Vec<(u64, u64)>,
    tokens: u64,
}

impl CausalLm {
    fn batch_bytes(&self) -> u64 {
        let tokens = BATCH_TOKENS.max(self.windows.context);
        let shape = self.model.shape();
        shape.batch_bytes(tokens, self.windows.context)
    }

    /// The loss of every token of these documents, in their order.
    fn losses(&self, group: &Group, workers: usize) -> Result<Vec<Vec<f32>>, FitError> {
        let mut windows = Vec::new();
        for sequence in &group.sequences {
            windows.extend(self.windows.of(sequence));
        }
        let mut batches: Vec<&[Window<'_>]> = Vec::new();
        let (mut start, mut tokens) = (0, 0);
        for (at, window) in windows.iter().enumerate() {
            if at > start && tokens + window.tokens.len() > BATCH_TOKENS {
                batches.push(&windows[start..at]);
                (start, tokens) = (at, 0);
            }
            tokens += window.tokens.len();
        }
        batches.extend((start < windows.len()).then(|| &windows[start..]));
        let mut all: Vec<Vec<f32>> = Vec::with_capacity(batches.len());
        for round in batches.chunks(workers) {
            let found = round.par_iter().with_max_len(1).map(|windows| {
                let mut losses = Vec::new();
                self.model.losses(windows, &mut losses);
                losses
            });
            all.par_extend(found);
        }
        let mut flat = all.into_iter().flatten();
        let uniform = libm::log(self.model.shape().vocabulary_size as f64) as f32;
        let mut of_documents = Vec::with_capacity(group.sequences.len());
        for (sequence, number) in group.sequences.iter().zip(&group.numbers) {
            let first = self.windows.begin.is_none().then_some(uniform);
            let losses: Vec<f32> = first
                .into_iter()
                .chain(flat.by_ref().take(sequence.len() - 1))
                .collect();
            if let Some(at) = losses.iter().position(|loss| !loss.is_finite()) {
                return Err(FitError::Data(format!(
                    "the model's loss is {} for token {at} of document number {number}, not a finite number; its \
                     weights overflow 32-bit floats",
                    losses[at]
                )));
            }
            of_documents.push(losses);
        }
        Ok(of_documents)
    }

    /// Reads the documents that are drawn, in order, and writes their losses.
    fn read(&self, input: &FitInput<'_>, workers: usize) -> Result<(Losses, Scale), FitError> {
        let path = input.work.join("losses");
        let file = File::create(&path).context("write", &path)?;
        let mut losses = Losses {
            file: BufWriter::with_capacity(1 << 20, file),
            path,
            index: Vec::new(),
            tokens: 0,
        };
        let mut histogram = Percentiles::histogram();
        let sample = Sample::share(self.share);
        let full = workers * BATCHES * BATCH_TOKENS;
        let mut group = Group::default();
        let mut compute = |group: &mut Group| -> Result<(), FitError> {
            input.corpus.go_on()?;
            let group = std::mem::take(group);
            for (number, found) in group.numbers.iter().zip(self.losses(&group, workers)?) {
                found
                    .iter()
                    .for_each(|&loss| Percentiles::count(&mut histogram, f64::from(loss)));
                losses.index.push((*number, losses.tokens));
                losses.tokens += found.len() as u64;
                losses.file.write_all(bytemuck::cast_slice(&found))?;
            }
            Ok(())
        };
        for part in 0..input.corpus.parts() {
            let mut problem = None;
            input.corpus.read(part, &mut |document| {
                if problem.is_some() || !sample.draws(&document) {
                    return;
                }
                group.tokens += document.tokens.len();
                group.numbers.push(document.number);
                group.sequences.push(self.windows.sequence(document.tokens));
                if group.tokens >= full {
                    problem = compute(&mut group).err();
                }
            })?;
            if let Some(problem) = problem {
                return Err(problem);
            }
        }
        compute(&mut group)?;
        losses.file.flush().context("write", &losses.path)?;
        Ok((losses, self.percentiles.scale(&histogram)))
    }
}

impl Fit for CausalLm {
    fn files(&self) -> Vec<PathBuf> {
        self.files.clone()
    }

    fn needs(&self) -> Needs {
        let windows = &self.windows;
        let repeated = windows.context as f64 / (windows.context - windows.overlap) as f64;
        let shape = self.model.shape();
        Needs {
            tokenizer_file: self.tokenizer_file.clone(),
            vocabulary_size: Some(shape.vocabulary_size as u64),
            flops_per_token: self.share * repeated * shape.flops_per_token(),
            worker_bytes: self.batch_bytes(),
        }
    }

    fn fit(&self, input: &FitInput<'_>) -> Result<Box<dyn Estimator>, FitError> {
        let vocabulary = self.model.shape().vocabulary_size;
        if (input.vocabulary_size as usize) > vocabulary {
            return Err(FitError::Data(format!(
                "the model knows {vocabulary} ids, and the pipeline's tokenizer has {}; use the model's tokenizer",
                input.vocabulary_size
            )));
        }
        let workers = (input.memory_bytes / self.batch_bytes().max(1)) as usize;
        let workers = workers.min(rayon::current_num_threads());
        if workers == 0 {
            return Err(FitError::Data(format!(
                "the model needs {} bytes of memory for {} tokens at once, beside its mapped weights, and {} are left; \
                 raise --memory or lower 'context_tokens'",
                self.batch_bytes(),
                BATCH_TOKENS.max(self.windows.context),
                input.memory_bytes
            )));
        }
        (0..self.model.tensors())
            .into_par_iter()
            .try_for_each(|tensor| self.model.check_tensor(tensor))
            .map_err(FitError::Data)?;
        let (losses, scale) = self.read(input, workers)?;
        let mut description = serde_json::json!({
            "estimator": KIND.spec.name,
            "version": KIND.version,
            "model_checksums": input.file_checksums,
            "sample_share": self.share,
            "missing_usefulness": self.missing,
            "usefulness": if self.falling { "falling" } else { "rising" },
            "begin_token_id": self.windows.begin,
            "context_tokens": self.windows.context,
            "overlap_tokens": self.windows.overlap,
            "percentiles": self.percentiles,
            "low_nats": scale.low,
            "high_nats": scale.high,
            "documents": losses.index.len(),
            "tokens": losses.tokens,
            "calibration": "uncalibrated (loss of a language model)",
        });
        description["parameter_hash"] = parameter_hash(&description, input.seed, 0).into();
        let Losses { path, index, .. } = losses;
        Ok(Box::new(FittedCausalLm {
            losses: Column::open(&path)?,
            index,
            scale,
            falling: self.falling,
            missing: self.missing,
            vocabulary_size: input.vocabulary_size,
            description,
        }))
    }
}

struct FittedCausalLm {
    losses: Column<f32>,
    index: Vec<(u64, u64)>,
    scale: Scale,
    falling: bool,
    missing: Option<f64>,
    vocabulary_size: u32,
    description: serde_json::Value,
}

impl Estimator for FittedCausalLm {
    fn score(
        &self,
        document: &TokenDocument<'_>,
        out: &mut TokenScores,
    ) -> Result<DocumentScores, String> {
        check(document, self.vocabulary_size)?;
        let n = document.tokens.len();
        out.usefulness.clear();
        out.excess_nats.clear();
        let of = |score: f64| DocumentScores {
            score,
            excess_nats: 0.0,
            difficulty: 0.0,
        };
        let found = self
            .index
            .binary_search_by_key(&document.number, |(number, _)| *number);
        let start = match (found, self.missing) {
            (Ok(at), _) => self.index[at].1 as usize,
            (Err(_), Some(usefulness)) => {
                out.usefulness.resize(n, usefulness as f32);
                return Ok(of(usefulness));
            }
            (Err(_), None) => return Err("the model did not read it".to_string()),
        };
        let mut sum = 0.0;
        for &loss in &self.losses.values()[start..][..n] {
            let usefulness = self.scale.of(f64::from(loss), self.falling);
            sum += usefulness;
            out.usefulness.push(usefulness as f32);
        }
        Ok(of(sum / n as f64))
    }

    fn describe(&self) -> serde_json::Value {
        self.description.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Corpus, origin, score_all};
    use super::*;
    use crate::algo::causal_lm::tests::{GPT2, LLAMA, safetensors_of, shapes, weights};
    use crate::record::Value;

    fn folder_of(config: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("config.json"), config).expect("written");
        let bytes = safetensors_of(&shapes(config), "F32", weights);
        std::fs::write(folder.path().join("model.safetensors"), bytes).expect("written");
        folder
    }

    fn options(folder: &Path, given: &[(&str, Value)]) -> Options {
        let mut options = Options::default();
        for option in KIND.spec.options {
            options.set(option.name, Value::Null);
        }
        options.set("model", Value::Text(folder.display().to_string()));
        options.set("sample_share", Value::Number(1.0));
        options.set("usefulness", Value::Text("rising".to_string()));
        options.set("low_percentile", Value::Number(5.0));
        options.set("high_percentile", Value::Number(95.0));
        for (name, value) in given {
            options.set(name, value.clone());
        }
        options
    }

    fn built(folder: &Path, given: &[(&str, Value)]) -> Result<Box<dyn Fit>, OptionError> {
        build(&options(folder, given))
    }

    /// Documents of 1 to 90 tokens below `vocabulary`.
    fn corpus(vocabulary: u32, parts: usize) -> Corpus {
        let document = |n: u32| {
            (0..1 + n * n * 13 % 90)
                .map(|i| (i * i * 3 + i * n + n) % vocabulary)
                .collect()
        };
        Corpus {
            parts,
            ..Corpus::new((0..25).map(document).collect())
        }
    }

    fn fitted(
        fit: &dyn Fit,
        corpus: &Corpus,
        vocabulary_size: u32,
        memory_bytes: u64,
    ) -> Result<(Box<dyn Estimator>, tempfile::TempDir), FitError> {
        let work = tempfile::tempdir()?;
        let estimator = fit.fit(&FitInput {
            corpus,
            reference: None,
            negative: None,
            vocabulary_size,
            seed: 17,
            origin: &origin(),
            file_checksums: &[],
            table: None,
            calibration: None,
            work: work.path(),
            memory_bytes,
        })?;
        Ok((estimator, work))
    }

    #[test]
    fn windows_predict_each_token_once_with_the_overlap_as_context() {
        let sequence: Vec<u32> = (0..100).collect();
        for (context, overlap) in [(2, 1), (10, 1), (10, 3), (10, 9), (100, 25), (200, 150)] {
            let windows = Windows {
                begin: None,
                context,
                overlap,
            };
            for length in [1, 2, 3, 9, 10, 11, 17, 18, 99, 100] {
                let mut predicted: Vec<u32> = Vec::new();
                for window in windows.of(&sequence[..length]) {
                    assert!(window.tokens.len() <= context && window.from < window.tokens.len());
                    let first = window.tokens[0] == 0;
                    assert_eq!(window.from, if first { 1 } else { overlap });
                    predicted.extend(&window.tokens[window.from..]);
                }
                assert_eq!(predicted, sequence[1..length], "{context} {overlap}");
            }
        }
        let windows = Windows {
            begin: Some(7),
            context: 10,
            overlap: 3,
        };
        assert_eq!(windows.sequence(&[1, 2]), [7, 1, 2]);
    }

    #[test]
    fn threads_parts_and_memory_change_no_bit() {
        for (config, vocabulary) in [(GPT2, 61), (LLAMA, 67)] {
            let folder = folder_of(config);
            let given = [
                ("context_tokens", Value::Integer(20)),
                ("overlap_tokens", Value::Integer(6)),
                ("begin_token_id", Value::Integer(2)),
            ];
            let fit = built(folder.path(), &given).expect("builds");
            let run = |threads: usize, parts: usize, workers: u64| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
                let memory = workers * fit.needs().worker_bytes;
                pool.expect("threads").install(|| {
                    let corpus = corpus(vocabulary, parts);
                    let (estimator, _work) =
                        fitted(fit.as_ref(), &corpus, vocabulary, memory).expect("fits");
                    (score_all(estimator.as_ref(), &corpus), estimator.describe())
                })
            };
            let one = run(1, 1, 1);
            assert!(one == run(4, 3, 64) && one == run(4, 1, 2));
        }
    }

    #[test]
    fn usefulness_rises_or_falls_with_the_loss_and_a_first_token_is_uniform() {
        let folder = folder_of(GPT2);
        let corpus = corpus(61, 1);
        let of = |given: &[(&str, Value)]| {
            let fit = built(folder.path(), given).expect("builds");
            let (estimator, _work) = fitted(fit.as_ref(), &corpus, 61, 1 << 30).expect("fits");
            (score_all(estimator.as_ref(), &corpus), estimator.describe())
        };
        let falling = ("usefulness", Value::Text("falling".to_string()));
        let ((rising, about), (falling, _)) = (of(&[]), of(&[falling]));
        let tokens: usize = corpus.documents.iter().map(Vec::len).sum();
        assert_eq!(about["tokens"], tokens);
        assert_eq!(about["context_tokens"], 24);
        assert_eq!(about["overlap_tokens"], 6);
        let scale = Scale {
            low: about["low_nats"].as_f64().expect("a number"),
            high: about["high_nats"].as_f64().expect("a number"),
        };
        let (model, _) = open(folder.path()).expect("a model");
        let first = scale.rising(libm::log(61.0)) as f32;
        for (number, document) in corpus.documents.iter().enumerate() {
            // Of the first window, by the model itself.
            let mut losses = Vec::new();
            let tokens = &document[..document.len().min(24)];
            model.losses(&[Window { tokens, from: 1 }], &mut losses);
            let found = &rising[number].1.usefulness;
            assert!((found[0] - first).abs() < 1e-6);
            for (loss, found) in losses.iter().zip(&found[1..]) {
                assert_eq!(scale.rising(f64::from(*loss)) as f32, *found);
            }
            for (up, down) in found.iter().zip(&falling[number].1.usefulness) {
                assert!((up + down - 1.0).abs() < 1e-6);
            }
            let mean = found.iter().map(|&u| f64::from(u)).sum::<f64>() / found.len() as f64;
            assert!((rising[number].0.score - mean).abs() < 1e-6);
        }
    }

    #[test]
    fn documents_that_are_not_drawn_have_the_stated_usefulness() {
        let folder = folder_of(GPT2);
        let corpus = corpus(61, 2);
        let given = [
            ("sample_share", Value::Number(0.4)),
            ("missing_usefulness", Value::Number(0.25)),
        ];
        let fit = built(folder.path(), &given).expect("builds");
        let (estimator, _work) = fitted(fit.as_ref(), &corpus, 61, 1 << 30).expect("fits");
        let drawn =
            |number: usize| (corpus.document(number).sample_key as f64) < 0.4 * 2f64.powi(64);
        let scores = score_all(estimator.as_ref(), &corpus);
        let missing: Vec<bool> = scores
            .iter()
            .map(|(_, tokens)| tokens.usefulness.iter().all(|&u| u == 0.25))
            .collect();
        assert_eq!(missing, (0..25).map(|n| !drawn(n)).collect::<Vec<_>>());
        let n = (0..25).filter(|&number| drawn(number)).count();
        assert!(n > 2 && n < 23);
        assert_eq!(estimator.describe()["documents"], n);
    }

    #[test]
    fn what_cannot_be_right_is_refused_by_name() {
        let folder = folder_of(GPT2);
        let refused = |given: &[(&str, Value)], option: &str, words: &[&str]| {
            let error = built(folder.path(), given).err().expect(option);
            assert_eq!(error.option, option);
            let text = format!("{} {}", error.must_be, error.found);
            words
                .iter()
                .for_each(|word| assert!(text.contains(word), "{text}"));
        };
        let integer = |name, n| [(name, Value::Integer(n))];
        refused(
            &integer("context_tokens", 25),
            "context_tokens",
            &["2 to the 24", "25"],
        );
        refused(&integer("overlap_tokens", 24), "overlap_tokens", &["24"]);
        refused(&integer("begin_token_id", 61), "begin_token_id", &["61"]);
        refused(
            &[("sample_share", Value::Number(0.0))],
            "sample_share",
            &["above 0"],
        );
        refused(
            &[("sample_share", Value::Number(0.5))],
            "missing_usefulness",
            &["none"],
        );
        assert!(built(folder.path(), &integer("context_tokens", 24)).is_ok());
        let elsewhere = Value::Text("/nowhere".to_string());
        refused(
            &[("model", elsewhere)],
            "model",
            &["/nowhere", "config.json"],
        );

        let fit = built(folder.path(), &[]).expect("builds");
        let error = |vocabulary, memory| {
            let found = fitted(fit.as_ref(), &corpus(61, 1), vocabulary, memory);
            found.err().expect("refused").to_string()
        };
        let memory = fit.needs().worker_bytes;
        assert!(error(62, memory).contains("61 ids") && error(62, memory).contains("62"));
        assert!(error(61, memory - 1).contains("--memory"));
        assert!(fitted(fit.as_ref(), &corpus(61, 1), 61, memory).is_ok());

        let path = folder.path().join("model.safetensors");
        let bytes = std::fs::read(&path).expect("there");
        std::fs::write(&path, &bytes[..bytes.len() - 4]).expect("written");
        refused(&[], "model", &["model.safetensors", "cut off"]);
        let nan = [&bytes[..bytes.len() - 4], &f32::NAN.to_le_bytes()].concat();
        std::fs::write(&path, nan).expect("written");
        let fit = built(folder.path(), &[]).expect("builds");
        let error = fitted(fit.as_ref(), &corpus(61, 1), 61, memory);
        let error = error.err().expect("NaN").to_string();
        assert!(
            error.contains("model.safetensors") && error.contains("NaN"),
            "{error}"
        );
        std::fs::remove_file(&path).expect("there");
        refused(&[], "model", &["model.safetensors"]);
        std::fs::write(
            folder.path().join("model.safetensors.index.json"),
            r#"{"weight_map": {"wte.weight": "../other.safetensors"}}"#,
        )
        .expect("written");
        refused(&[], "model", &["index.json", "../other.safetensors"]);
    }
}
