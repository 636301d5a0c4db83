//! The measure file: read and checked with the same machinery as the pipeline file.

use super::check::{Checker, Known, Walked, listed};
use super::tables::Tables;
use super::walk::{Entries, way_out};
use super::yaml::{Entry, Mark, Node, Shape, parse};
use super::{Problem, Problems, base_of, read, replace_home_in_glob};
use crate::measure::{
    Budget, CurveKind, DatasetRequest, Hardware, HeldOut, Model, ProgressRequest, ReaderRequest,
    Request, RunRequest, SelectionRequest,
};
use crate::record::{Kind, OptionError, OptionSpec};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The scalars of the top level.
pub(super) const HEAD: &[OptionSpec] = &[
    OptionSpec {
        name: "version",
        kind: Kind::Integer { min: 1, max: 1 },
        default: None,
        doc: "Version of the measure file's format: 1",
    },
    OptionSpec {
        name: "name",
        kind: Kind::Text,
        default: None,
        doc: "What the measurement is called",
    },
];

/// What `runs` is.
pub(super) const RUNS_DOC: &str = "The runs: each a training from its first step to its last, over any number of \
                                   processes";

/// One entry of `runs`, without its sections.
pub(super) const RUN: &[OptionSpec] = &[
    OptionSpec {
        name: "name",
        kind: Kind::Text,
        default: None,
        doc: "What the run is called",
    },
    OptionSpec {
        name: "logs",
        kind: Kind::Globs,
        default: None,
        doc: "Its logs: a glob or a list of them, '!glob' excludes; relative to the measure file",
    },
    OptionSpec {
        name: "group",
        kind: Kind::Text,
        default: Some("null"),
        doc: "The arm that it belongs to, such as random or selected; its own name when absent",
    },
    OptionSpec {
        name: "seed",
        kind: Kind::Integer {
            min: 0,
            max: u64::MAX,
        },
        default: Some("null"),
        doc: "Seed of the run: runs of two groups with the same seed and budget are a pair",
    },
    OptionSpec {
        name: "reader",
        kind: Kind::Variant {
            tag: "format",
            specs: crate::logs::specs,
        },
        default: Some("null"),
        doc: "Format of the logs with its options; told from their contents when absent \
              ('goodput measure --formats' lists them)",
    },
    OptionSpec {
        name: "tokens_per_step",
        kind: Kind::Integer {
            min: 1,
            max: 1_000_000_000_000,
        },
        default: Some("null"),
        doc: "Token places of an optimizer step over all chips; those of the log when absent",
    },
    OptionSpec {
        name: "total_steps",
        kind: Kind::Integer {
            min: 1,
            max: 1_000_000_000_000_000,
        },
        default: Some("null"),
        doc: "Optimizer steps at which its schedule of the learning rate ends; those of the log when absent. A run that \
              ended before them is not compared",
    },
    OptionSpec {
        name: "time_between_attempts",
        kind: Kind::Choice(&["counted", "left_out"]),
        default: Some("counted"),
        doc: "Whether the time between two processes is part of the wall clock, as recovery",
    },
];

/// `dataset`.
const DATASET: &[OptionSpec] = &[
    OptionSpec {
        name: "path",
        kind: Kind::Path,
        default: None,
        doc: "Output folder of the pipeline run whose shards were read, relative to the measure file",
    },
    OptionSpec {
        name: "epochs",
        kind: Kind::Integer {
            min: 1,
            max: 1_000_000,
        },
        default: Some("1"),
        doc: "How often a run may have read it; a log with more tokens is refused",
    },
    OptionSpec {
        name: "read_shards",
        kind: Kind::Bool,
        default: Some("true"),
        doc: "Whether the shards are read, to say which documents, sources and usefulness the steps read",
    },
];

/// `selection`.
const SELECTION: &[OptionSpec] = &[
    OptionSpec {
        name: "core_seconds",
        kind: Kind::Number {
            min: 0.0,
            max: 1e15,
        },
        default: Some("null"),
        doc: "Core seconds that choosing the data took; those of the dataset's run.json when absent",
    },
    OptionSpec {
        name: "flop_per_core_second",
        kind: Kind::Number {
            min: 1.0,
            max: 1e18,
        },
        default: Some("1e11"),
        doc: "What a core second counts as, in FLOP: the peak of a core, so that selection is not counted too cheap",
    },
    OptionSpec {
        name: "flop",
        kind: Kind::Number {
            min: 0.0,
            max: 1e30,
        },
        default: Some("0"),
        doc: "Operations besides, in FLOP, such as those of scoring with a model on accelerators",
    },
];

/// What `progress` is.
pub(super) const PROGRESS_DOC: &str = "How far the model came for its compute, beside the runs of a baseline; absent: \
                                       not measured";

/// `progress`.
pub(super) const PROGRESS: &[OptionSpec] = &[
    OptionSpec {
        name: "baseline",
        kind: Kind::Text,
        default: None,
        doc: "The group that the others are measured against: its runs at three budgets or more are the curve",
    },
    OptionSpec {
        name: "curve",
        kind: Kind::Choice(&["interpolated", "power_law", "frontier"]),
        default: Some("interpolated"),
        doc: "The baseline's curve: interpolated through the means of its budgets; power_law L = E + K C^-gamma (of \
              tokens L = E + B D^-beta); frontier the compute-optimal one of L = E + A N^-alpha + B D^-beta over models \
              of several sizes",
    },
    OptionSpec {
        name: "budget",
        kind: Kind::Choice(&["flop", "tokens"]),
        default: Some("flop"),
        doc: "What a budget is counted in: flop of the model, or tokens for models of one size",
    },
    OptionSpec {
        name: "target_split",
        kind: Kind::Text,
        default: Some("target"),
        doc: "What the logs call the held-out text of the kind that is wanted",
    },
    OptionSpec {
        name: "general_split",
        kind: Kind::Text,
        default: Some("general"),
        doc: "What the logs call the held-out text of all kinds",
    },
    OptionSpec {
        name: "target_bytes_per_token",
        kind: Kind::Number {
            min: 1e-3,
            max: 1e6,
        },
        default: Some("null"),
        doc: "UTF-8 bytes of a token of the target text, where the logs do not count its tokens and bytes",
    },
    OptionSpec {
        name: "general_bytes_per_token",
        kind: Kind::Number {
            min: 1e-3,
            max: 1e6,
        },
        default: Some("null"),
        doc: "UTF-8 bytes of a token of the general text, where the logs do not count its tokens and bytes",
    },
];

/// The sections that hold for every run, or stand in a run and hold for that one instead.
pub(super) const SECTIONS: &[(&str, &str, &[OptionSpec])] = &[
    (
        "model",
        "The model that was trained, for operations per token; of all runs, or of the run that it stands in",
        Model::OPTIONS,
    ),
    (
        "hardware",
        "What was trained on, for utilization, failures and cost; of all runs, or of the run that it stands in",
        Hardware::OPTIONS,
    ),
    (
        "dataset",
        "The data that were read; of all runs, or of the run that it stands in",
        DATASET,
    ),
    (
        "selection",
        "What choosing the data cost, for the net multiplier; of all runs, or of the run that it stands in",
        SELECTION,
    ),
];

/// A flag that stands for a key of a measure file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// As the user typed it, such as `--chips 8`.
    pub shown: String,
    /// `""` for a key of the run, else the section.
    pub section: &'static str,
    /// The key.
    pub key: &'static str,
    /// The values: one, of `logs` any number.
    pub values: Vec<String>,
}

/// Reads and checks a measure file.
///
/// # Errors
/// Every problem of the file, each with its place and the way out.
pub fn load_measure(path: &Path) -> Result<Request, Problems> {
    let text = read(path, "measure").map_err(|(line, column, message)| {
        Problems(vec![Problem {
            file: path.display().to_string(),
            line,
            column,
            message,
        }])
    })?;
    let mut found = Vec::new();
    let root = parse(&text, 0, &mut found);
    if root.is_none() && found.is_empty() {
        let at = Mark {
            origin: 0,
            line: 1,
            column: 1,
        };
        let message = "the file holds nothing; a measure file begins with 'version: 1' ('goodput schema measure' \
                       describes the rest)";
        found.push((at, message.to_string()));
    }
    let variable = |name: &str| std::env::var(name).ok();
    check(path, base_of(path), root, found, &variable, &|_| None)
}

/// Checks what flags say of one run, as if it stood in a measure file of the current folder.
///
/// # Errors
/// Every problem, each with the flag at fault.
pub fn measure_of_flags(flags: &[Flag]) -> Result<Request, Problems> {
    let nowhere = Mark::default();
    let map = |entries| Node {
        mark: nowhere,
        shape: Shape::Map(entries),
    };
    let scalar = |mark: Mark, text: &str, plain: bool| Node {
        mark,
        shape: Shape::Scalar {
            // A flag is what the user typed: variables are the shell's business.
            text: text.replace('$', "$$"),
            plain,
        },
    };
    let entry = |key: &str, mark: Mark, value: Node| Entry {
        key: key.to_string(),
        mark,
        value,
    };
    let mut run = vec![entry("name", nowhere, scalar(nowhere, "run", false))];
    let mut root = vec![
        entry("version", nowhere, scalar(nowhere, "1", true)),
        entry("name", nowhere, scalar(nowhere, "run", false)),
    ];
    for (at, flag) in flags.iter().enumerate() {
        let mark = Mark {
            origin: u32::try_from(at + 1).unwrap_or(u32::MAX),
            ..nowhere
        };
        let value = match (flag.key, &flag.values[..]) {
            ("logs", values) => Node {
                mark,
                shape: Shape::List(
                    values
                        .iter()
                        .map(|text| scalar(mark, text, false))
                        .collect(),
                ),
            },
            ("reader", [format]) => Node {
                mark,
                ..map(vec![entry("format", mark, scalar(mark, format, false))])
            },
            (_, values) => scalar(mark, &values.join(" "), flag.key != "path"),
        };
        let value = entry(flag.key, mark, value);
        if flag.section.is_empty() {
            run.push(value);
            continue;
        }
        match root.iter_mut().find(|entry| entry.key == flag.section) {
            Some(Entry {
                value:
                    Node {
                        shape: Shape::Map(entries),
                        ..
                    },
                ..
            }) => entries.push(value),
            _ => {
                let section = Node {
                    mark,
                    ..map(vec![value])
                };
                root.push(entry(flag.section, mark, section));
            }
        }
    }
    let runs = Node {
        mark: nowhere,
        shape: Shape::List(vec![map(run)]),
    };
    root.push(entry("runs", nowhere, runs));
    let label = |at: usize| flags.get(at).map(|flag| flag.shown.clone());
    check(
        Path::new("the command line"),
        PathBuf::from("."),
        Some(map(root)),
        Vec::new(),
        &|_| None,
        &label,
    )
}

fn check(
    path: &Path,
    base: PathBuf,
    root: Option<Node>,
    mut found: Vec<(Mark, String)>,
    variable: &dyn Fn(&str) -> Option<String>,
    label: &dyn Fn(usize) -> Option<String>,
) -> Result<Request, Problems> {
    let tables = Tables::program();
    let mut checker = Checker {
        tables: &tables,
        variable,
        home: variable("HOME").filter(|home| !home.is_empty()),
        base,
        problems: Vec::new(),
        sort_keys: Vec::new(),
        known: Known::default(),
    };
    let request = root.and_then(|root| checker.measure(&root));
    found.append(&mut checker.problems);
    match request {
        Some(request) if found.is_empty() => Ok(request),
        _ => Err(listed(found, path, label)),
    }
}

/// The checked sections that stand at one place.
#[derive(Clone, Default)]
struct Sections {
    model: Option<Model>,
    hardware: Option<Hardware>,
    dataset: Option<DatasetRequest>,
    selection: Option<SelectionRequest>,
}

impl Checker<'_> {
    fn measure(&mut self, root: &Node) -> Option<Request> {
        let entries = self.mapping(
            root,
            "a measure file must be a mapping that begins with 'version: 1'",
        )?;
        let others: Vec<&'static str> = SECTIONS
            .iter()
            .map(|(name, ..)| *name)
            .chain(["progress", "runs"])
            .collect();
        let names = || {
            HEAD.iter()
                .map(|option| option.name)
                .chain(others.iter().copied())
        };
        for entry in &entries {
            if !names().any(|name| name == entry.key) {
                let way_out = way_out(&entry.key, names());
                let message = format!("unknown key '{}' in the measure file; {way_out}", entry.key);
                self.problem(entry.mark, message);
            }
        }
        let (head, rest): (Entries, Entries) = entries
            .into_iter()
            .partition(|entry| HEAD.iter().any(|option| option.name == entry.key));
        let head = self.options(root.mark, &head, HEAD, "the measure file");
        self.require_text(&head, "name");
        let shared = self.sections(&rest);
        let progress = rest.iter().find(|entry| entry.key == "progress");
        let progress = progress.and_then(|entry| self.progress(entry));
        let runs = match rest
            .iter()
            .find(|entry| entry.key == "runs")
            .map(|entry| &entry.value)
        {
            None => {
                let message = "the measure file needs 'runs', a list of at least one; add 'runs:' and under it \
                               '- { name: a, logs: logs/*.jsonl }'";
                self.problem(root.mark, message);
                &[][..]
            }
            Some(Node {
                shape: Shape::List(items),
                mark,
            }) => {
                if items.is_empty() {
                    let message =
                        "'runs' must be a list of at least one, got an empty list; add one";
                    self.problem(*mark, message);
                }
                items
            }
            Some(node) => {
                let way_out = match node.shape {
                    Shape::Map(_) => "; put '- ' before the first key of the run",
                    _ => "",
                };
                self.wrong(node, "runs", "a list of at least one run", way_out);
                &[][..]
            }
        };
        let mut names = BTreeSet::new();
        let mut checked = Vec::new();
        for (at, run) in runs.iter().enumerate() {
            let Some((run, mark)) = self.run(run, &format!("run {}", at + 1), &shared) else {
                continue;
            };
            if !names.insert(run.name.clone()) {
                let message = format!(
                    "'name' must be another than that of an earlier run, got '{}'",
                    run.name
                );
                self.problem(mark, message);
            }
            checked.push(run);
        }
        if let Some((progress, mark)) = &progress
            && !checked.is_empty()
            && !checked.iter().any(|run| run.group == progress.baseline)
        {
            let mut groups: Vec<&str> = checked.iter().map(|run| run.group.as_str()).collect();
            groups.sort_unstable();
            groups.dedup();
            let message = format!(
                "'baseline' must be the group of a run, got '{}'; groups are {}",
                progress.baseline,
                groups.join(", ")
            );
            self.problem(*mark, message);
        }
        if !self.problems.is_empty() || !head.complete {
            return None;
        }
        Some(Request {
            name: head.options.text("name").to_string(),
            base: self.base.clone(),
            runs: checked,
            progress: progress.map(|(progress, _)| progress),
        })
    }

    fn run(&mut self, node: &Node, owner: &str, shared: &Sections) -> Option<(RunRequest, Mark)> {
        let entries = self.mapping(
            node,
            &format!("{owner} must be a mapping with 'name' and 'logs'"),
        )?;
        let is_section = |entry: &&Entry| SECTIONS.iter().any(|(name, ..)| *name == entry.key);
        let (sections, entries): (Entries, Entries) = entries.into_iter().partition(is_section);
        let others: Vec<&'static str> = SECTIONS.iter().map(|(name, ..)| *name).collect();
        let walked = self.options_with(node.mark, &entries, RUN, owner, &others);
        self.require_text(&walked, "name");
        let own = self.sections(&sections);
        let reader = walked.nested.get("reader").and_then(|choice| {
            let options = choice.walked.options.clone();
            let kind = crate::logs::find(choice.spec.name)?;
            let error = match choice.walked.complete {
                true => (kind.build)(&options).err(),
                false => None,
            };
            Some((kind.spec.name.to_string(), options, error))
        });
        let reader = match reader {
            Some((format, options, error)) => {
                let choice = &walked.nested["reader"];
                self.judge(error, &choice.walked);
                Some(ReaderRequest { format, options })
            }
            None => None,
        };
        if !walked.complete {
            return None;
        }
        let home = self.home.as_deref();
        let name = walked.options.text("name").to_string();
        let run = RunRequest {
            group: walked
                .options
                .text_if_given("group")
                .unwrap_or(&name)
                .to_string(),
            name,
            seed: walked.options.integer_if_given("seed"),
            total_steps: walked.options.integer_if_given("total_steps"),
            logs: walked
                .options
                .list("logs")
                .iter()
                .map(|glob| replace_home_in_glob(glob, home))
                .collect(),
            reader,
            tokens_per_step: walked.options.integer_if_given("tokens_per_step"),
            counts_time_between_attempts: walked.options.text("time_between_attempts") == "counted",
            model: own.model.or_else(|| shared.model.clone()),
            hardware: own.hardware.or_else(|| shared.hardware.clone()),
            dataset: own.dataset.or_else(|| shared.dataset.clone()),
            selection: own.selection.or(shared.selection),
        };
        Some((run, walked.mark("name")))
    }

    /// The sections among these entries.
    fn sections(&mut self, entries: &Entries<'_>) -> Sections {
        let mut found = Sections::default();
        for (name, _, specs) in SECTIONS {
            let Some(entry) = entries.iter().find(|entry| entry.key == *name) else {
                continue;
            };
            let Some(walked) = self.section(entry, specs) else {
                continue;
            };
            let options = &walked.options;
            let error = match *name {
                "model" => take(Model::build(options), &mut found.model),
                "hardware" => take(Hardware::build(options), &mut found.hardware),
                "selection" => {
                    found.selection = Some(SelectionRequest {
                        core_seconds: options.number_if_given("core_seconds"),
                        flop_per_core_second: options.number("flop_per_core_second"),
                        flop: options.number("flop"),
                    });
                    None
                }
                _ => {
                    found.dataset = Some(DatasetRequest {
                        path: PathBuf::from(options.text("path")),
                        epochs: options.integer("epochs"),
                        reads_shards: options.flag("read_shards"),
                    });
                    None
                }
            };
            self.judge(error, &walked);
        }
        found
    }

    /// `progress`, with the place of its baseline.
    fn progress(&mut self, entry: &Entry) -> Option<(ProgressRequest, Mark)> {
        let walked = self.section(entry, PROGRESS)?;
        let options = &walked.options;
        let error = (options.text("curve") == "frontier" && options.text("budget") == "tokens")
            .then(|| OptionError::new("budget", "flop where 'curve' is frontier", "tokens"));
        let held_out = |split: &str, bytes: &str| HeldOut {
            split: options.text(split).to_string(),
            bytes_per_token: options.number_if_given(bytes),
        };
        let progress = ProgressRequest {
            baseline: options.text("baseline").to_string(),
            curve: match options.text("curve") {
                "power_law" => CurveKind::PowerLaw,
                "frontier" => CurveKind::Frontier,
                _ => CurveKind::Interpolated,
            },
            budget: match options.text("budget") {
                "tokens" => Budget::Tokens,
                _ => Budget::Flop,
            },
            target: held_out("target_split", "target_bytes_per_token"),
            general: held_out("general_split", "general_bytes_per_token"),
        };
        let mark = walked.mark("baseline");
        self.judge(error, &walked);
        Some((progress, mark))
    }

    /// One section with its options, if all of them are valid.
    fn section(&mut self, entry: &Entry, specs: &'static [OptionSpec]) -> Option<Walked> {
        let otherwise = format!("'{}' must be a mapping", entry.key);
        let entries = self.mapping(&entry.value, &otherwise)?;
        let walked = self.options(
            entry.value.mark,
            &entries,
            specs,
            &format!("'{}'", entry.key),
        );
        walked.complete.then_some(walked)
    }
}

/// Keeps what was built, or gives the error.
fn take<T, E>(built: Result<T, E>, into: &mut Option<T>) -> Option<E> {
    match built {
        Ok(value) => {
            *into = Some(value);
            None
        }
        Err(error) => Some(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(text: &str) -> Result<Request, Vec<String>> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("measure.yaml");
        std::fs::write(&path, text).expect("written");
        load_measure(&path).map_err(|problems| {
            let shown = |problem: &Problem| {
                format!("{}:{}: {}", problem.line, problem.column, problem.message)
            };
            problems.0.iter().map(shown).collect()
        })
    }

    const WHOLE: &str = "version: 1
name: mix
model: { parameters: 1.2e9, layers: 24, heads: 16, head_dimension: 128, sequence_tokens: 2048 }
hardware: { chips: 8, chip: h100_sxm, price_per_chip_hour: 2 }
dataset: { path: out/mix }
runs:
  - name: a
    logs: logs/a/*.jsonl
  - name: b
    logs: [logs/b.csv]
    reader: { format: lightning_csv, loss: loss }
    tokens_per_step: 1_048_576
    time_between_attempts: left_out
    hardware: { chips: 16, peak_teraflops: 100 }
";

    #[test]
    fn a_whole_file_is_a_request() {
        let request = loaded(WHOLE).expect("valid");
        let [a, b] = &request.runs[..] else {
            panic!("two runs")
        };
        assert_eq!(
            (a.name.as_str(), &a.logs[..]),
            ("a", &["logs/a/*.jsonl".to_string()][..])
        );
        assert!(
            a.reader.is_none() && a.tokens_per_step.is_none() && a.counts_time_between_attempts
        );
        let hardware = a.hardware.as_ref().expect("shared");
        assert_eq!((hardware.chips, hardware.peak_flops), (8, Some(989e12)));
        assert_eq!(
            a.model.as_ref().map(|model| model.active_parameters),
            Some(1_200_000_000)
        );
        // What stands in a run stands for itself.
        let hardware = b.hardware.as_ref().expect("own");
        assert_eq!((hardware.chips, hardware.peak_flops), (16, Some(100e12)));
        assert_eq!(hardware.price_per_chip_hour, None);
        let reader = b.reader.as_ref().expect("given");
        assert_eq!(
            (reader.format.as_str(), reader.options.text("step")),
            ("lightning_csv", "step")
        );
        assert!(!b.counts_time_between_attempts);
        assert!(
            b.dataset
                .as_ref()
                .is_some_and(|dataset| dataset.path.ends_with("out/mix"))
        );
    }

    #[test]
    fn every_problem_is_told_at_once_with_its_place_and_the_way_out() {
        let problems = loaded(
            "version: 1
nam: mix
model: { parameters: 0, layres: 2 }
hardware: { chips: 8, chip: h100, peak_teraflops: .nan }
runs:
  - name: a
    logs: x.jsonl
    reader: { format: megatorn }
  - { name: a, logs: [], tokens_per_step: '7' }
  - { logs: y.jsonl, reader: { format: wandb, los: train/loss } }
",
        )
        .expect_err("refused");
        let expected = [
            "1:1: the measure file needs 'name', a text; add it",
            "2:1: unknown key 'nam' in the measure file; did you mean 'name'?",
            "3:22: 'parameters' must be from 1 to 1_000_000_000_000_000, got 0",
            "3:25: unknown key 'layres' of 'model'; did you mean 'layers'?",
            "4:29: 'chip' must be",
            "4:51: 'peak_teraflops' must be",
            "8:23: unknown format 'megatorn'; did you mean 'megatron'?",
            "9:22: 'logs' must name at least one file",
            "9:43: 'tokens_per_step' must be a whole number",
            "10:5: run 3 needs 'name', a text; add it",
            "10:47: unknown option 'los' of format 'wandb'; did you mean 'loss'?",
        ];
        assert_eq!(problems.len(), expected.len(), "{problems:#?}");
        for (problem, expected) in problems.iter().zip(expected) {
            assert!(problem.starts_with(expected), "{problem}\n{expected}");
        }
    }

    #[test]
    fn options_are_judged_together() {
        let with = |sections: &str| {
            loaded(&format!(
                "version: 1\nname: a\n{sections}\nruns: [{{ name: a, logs: x }}]\n"
            ))
            .expect_err("refused")
        };
        assert_eq!(
            with("model: { parameters: 100 }"),
            ["3:8: 'layers' must be a whole number where flop_convention is palm, got nothing"]
        );
        assert_eq!(
            with("hardware: { chips: 2, chip: a100, peak_teraflops: 3 }"),
            ["3:51: 'peak_teraflops' must be left out where 'chip' is given (a100), got 3"]
        );
        assert_eq!(
            with("hardware: { chips: 2, nodes: 3 }"),
            ["3:30: 'nodes' must be chips (2) or less, got 3"]
        );
        assert!(
            with("dataset: { path: 's3://a/b' }")[0].contains("remote paths are not supported yet")
        );
    }

    #[test]
    fn runs_of_one_name_no_run_and_nothing_are_refused() {
        let twice =
            loaded("version: 1\nname: a\nruns: [{ name: x, logs: y }, { name: x, logs: z }]\n");
        assert_eq!(
            twice.expect_err("refused"),
            ["3:38: 'name' must be another than that of an earlier run, got 'x'"]
        );
        assert!(loaded("version: 1\nname: a\n").expect_err("refused")[0].contains("needs 'runs'"));
        assert!(
            loaded("version: 1\nname: a\nruns: []\n").expect_err("refused")[0]
                .contains("at least one")
        );
        assert!(loaded("").expect_err("refused")[0].starts_with("1:1: the file holds nothing"));
    }

    #[test]
    fn flags_are_checked_as_a_file_is() {
        let flag = |shown: &str, section, key, value: &str| Flag {
            shown: shown.to_string(),
            section,
            key,
            values: vec![value.to_string()],
        };
        let logs = flag("--log a$b.jsonl", "", "logs", "a$b.jsonl");
        let request = measure_of_flags(&[
            logs.clone(),
            flag("--chips 4_000", "hardware", "chips", "4_000"),
        ]);
        let request = request.expect("valid");
        assert_eq!(request.runs[0].logs, ["a$b.jsonl"]);
        assert_eq!(
            request.runs[0].hardware.as_ref().map(|h| h.chips),
            Some(4000)
        );
        let problems = measure_of_flags(&[
            logs,
            flag("--chips 0", "hardware", "chips", "0"),
            flag("--layers 2", "model", "layers", "2"),
            flag("--log-format wandbb", "", "reader", "wandbb"),
        ])
        .expect_err("refused");
        let shown: Vec<String> = problems.0.iter().map(ToString::to_string).collect();
        assert_eq!(shown.len(), 3, "{shown:#?}");
        assert!(
            shown[0].starts_with("--chips 0: 'chips' must be"),
            "{shown:#?}"
        );
        assert_eq!(
            shown[1],
            "--layers 2: 'model' needs 'parameters', a whole number, from 1 to 1_000_000_000_000_000; add it"
        );
        assert_eq!(
            shown[2],
            "--log-format wandbb: unknown format 'wandbb'; did you mean 'wandb'?"
        );
    }
}
