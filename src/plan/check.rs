//! The tree against the tables: a [`Plan`], or every problem at once.

use super::filled::{Filled, Side, to_yaml};
use super::nearest::nearest;
use super::scalar::{Plain, grouped, plain};
use super::tables::Tables;
use super::walk::{Entries, default_node, one_of, shown, way_out};
use super::yaml::{Entry, Mark, Node, Shape, parse};
use super::{
    InputPlan, OnError, OutputPlan, Overrides, Place, Plan, Problem, Problems, Rejects, StagePlan,
    StageRef, TokenizerPlan, TokenizerSource, UsefulnessType, base_of, global, overrides,
    replace_home_in_glob, sections,
};
use crate::algo::hash::content;
use crate::dedupe::{Shingling, Unit};
use crate::record::{
    FieldSpec, FieldType, Kind, OptionError, OptionSpec, Options, Spec, Value, Variant,
};
use crate::score::EstimatorKind;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Checks the text of a pipeline file.
pub(super) fn check(
    path: &Path,
    text: &str,
    changes: &Overrides,
    tables: &Tables,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Plan, Problems> {
    let mut found = Vec::new();
    let tree = parse(text, 0, &mut found);
    if tree.is_none() && found.is_empty() {
        let message = "the file holds nothing; a pipeline file begins with 'version: 1' ('goodput schema pipeline' \
                       describes the rest)";
        found.push((
            Mark {
                origin: 0,
                line: 1,
                column: 1,
            },
            message.to_string(),
        ));
    }
    let mut checker = Checker {
        tables,
        variable,
        home: variable("HOME").filter(|home| !home.is_empty()),
        base: base_of(path),
        problems: Vec::new(),
        sort_keys: Vec::new(),
        known: Known::default(),
    };
    let mut plan = None;
    if let Some(mut root) = tree {
        for (index, set) in changes.set.iter().enumerate() {
            overrides::apply(
                &mut root,
                set,
                u32::try_from(index + 1).unwrap_or(u32::MAX),
                &mut found,
            );
        }
        plan = checker.pipeline(path, &root, changes);
    }
    found.append(&mut checker.problems);
    match plan {
        Some(plan) if found.is_empty() => Ok(plan),
        _ => {
            let label = |set: usize| Some(format!("--set {}", changes.set.get(set)?));
            Err(listed(found, path, &label))
        }
    }
}

/// Problems in the order of the file, each with its place. `label` names what the n-th change of the command
/// line, from 0, is called.
pub(super) fn listed(
    mut found: Vec<(Mark, String)>,
    path: &Path,
    label: &dyn Fn(usize) -> Option<String>,
) -> Problems {
    found.sort_by_key(|(mark, _)| *mark);
    let problems = found.into_iter().map(|(mark, message)| {
        let change = (mark.origin as usize).checked_sub(1).and_then(label);
        Problem {
            file: change.unwrap_or_else(|| path.display().to_string()),
            line: mark.line,
            column: mark.column,
            message,
        }
    });
    Problems(problems.collect())
}

pub(super) struct Checker<'a> {
    pub(super) tables: &'a Tables,
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
    pub(super) home: Option<String>,
    pub(super) base: PathBuf,
    pub(super) problems: Vec<(Mark, String)>,
    /// Sort keys seen and not yet judged: place, option, key.
    pub(super) sort_keys: Vec<(Mark, &'static str, String)>,
    pub(super) known: Known,
}

/// What later sections refer to.
#[derive(Default)]
pub(super) struct Known {
    fields: Vec<FieldSpec>,
    sources: Vec<String>,
    /// Whether inputs were wrong, so that names may be missing here.
    inputs_wrong: bool,
    score: Score,
}

/// The `score` stage up to here.
#[derive(Clone, Copy, Default)]
enum Score {
    #[default]
    None,
    /// There is one, but it is wrong.
    Wrong,
    Fits(&'static EstimatorKind),
}

/// Checked options, with where they stand and how they are written down again.
pub(super) struct Walked {
    pub(super) at: Mark,
    pub(super) options: Options,
    pub(super) marks: BTreeMap<&'static str, Mark>,
    pub(super) filled: Vec<(String, Filled)>,
    pub(super) nested: BTreeMap<&'static str, Choice>,
    pub(super) complete: bool,
}

/// A checked named choice.
pub(super) struct Choice {
    pub(super) tag: &'static str,
    pub(super) spec: &'static Spec,
    pub(super) walked: Walked,
}

impl Choice {
    pub(super) fn variant(&self) -> Variant {
        Variant {
            name: self.spec.name.to_string(),
            options: self.walked.options.clone(),
        }
    }

    pub(super) fn filled(&self) -> Filled {
        let mut entries = vec![(
            self.tag.to_string(),
            Filled::Text(self.spec.name.to_string()),
        )];
        entries.extend(self.walked.filled.iter().cloned());
        Filled::Map(entries)
    }
}

impl Walked {
    /// Where an option stands, or the section where it is absent.
    pub(super) fn mark(&self, option: &str) -> Mark {
        self.marks.get(option).copied().unwrap_or(self.at)
    }

    fn place(&self, option: &str) -> Place {
        place(self.mark(option))
    }
}

fn place(mark: Mark) -> Place {
    match mark.origin {
        0 => Place {
            line: mark.line,
            column: mark.column,
        },
        set => Place {
            line: 0,
            column: set,
        },
    }
}

impl Checker<'_> {
    pub(super) fn problem(&mut self, mark: Mark, message: impl Into<String>) {
        self.problems.push((mark, message.into()));
    }

    // ---- The sections

    fn pipeline(&mut self, path: &Path, root: &Node, changes: &Overrides) -> Option<Plan> {
        let entries = self.mapping(
            root,
            "a pipeline file must be a mapping that begins with 'version: 1'",
        )?;
        let section = |name: &str| {
            entries
                .iter()
                .find(|entry| entry.key == name)
                .map(|entry| &entry.value)
        };
        for entry in &entries {
            let names = || sections::TOP_KEYS.iter().map(|(name, _)| *name);
            if !names().any(|name| name == entry.key) {
                let way_out = way_out(&entry.key, names());
                self.problem(
                    entry.mark,
                    format!("unknown key '{}' in the pipeline; {way_out}", entry.key),
                );
            }
        }
        let is_head =
            |entry: &&&Entry| sections::HEAD.iter().any(|option| option.name == entry.key);
        let head: Entries = entries.iter().filter(is_head).copied().collect();
        let head = self.options(root.mark, &head, sections::HEAD, "the pipeline");
        self.require_text(&head, "name");

        let (inputs, inputs_filled) = self.inputs(section("inputs"), root.mark);
        let tokenizer = self.tokenizer(section("tokenizer"), root.mark);
        let (stages, stages_filled) = self.stages(section("stages"));
        let strategies = self.tables.strategy_specs();
        let order = self.arrangement(
            section("order"),
            "order",
            sections::ORDER,
            &strategies,
            root.mark,
        );
        self.judge_sort_keys("order", None);
        let output = self.output(section("output"), root.mark, changes);
        let packers = self.tables.packer_specs();
        let pack = self.arrangement(section("pack"), "pack", sections::PACK, &packers, root.mark);
        if let Some(order) = &order {
            self.build_order(order);
        }
        if let (Some(pack), Some((output, _))) = (&pack, &output) {
            self.build_pack(pack, output.shard_tokens);
        }
        if !self.problems.is_empty() || !head.complete {
            return None;
        }

        let (tokenizer, tokenizer_filled) = tokenizer?;
        let (output, output_filled) = output?;
        let stages = match output.validation_share > 0.0 {
            true => with_validation(stages),
            false => stages,
        };
        let (order, pack) = (order?, pack?);
        let mut filled = head.filled.clone();
        filled.push(("inputs".to_string(), Filled::List(inputs_filled)));
        filled.push(("tokenizer".to_string(), Filled::Map(tokenizer_filled)));
        filled.push(("stages".to_string(), Filled::List(stages_filled)));
        filled.push(("order".to_string(), order.filled()));
        filled.push(("pack".to_string(), pack.filled()));
        let without_path: Vec<_> = output_filled
            .iter()
            .filter(|(key, _)| key != "path")
            .cloned()
            .collect();
        let mut shaping = filled.clone();
        filled.push(("output".to_string(), Filled::Map(output_filled)));
        shaping.push(("output".to_string(), Filled::Map(without_path)));
        Some(Plan {
            path: path.to_path_buf(),
            base: self.base.clone(),
            version: head.options.integer("version"),
            name: head.options.text("name").to_string(),
            seed: head.options.integer("seed"),
            inputs,
            fields: std::mem::take(&mut self.known.fields),
            tokenizer,
            stages,
            order: order.variant(),
            pack: pack.variant(),
            output,
            filled: to_yaml(&filled, Side::Written),
            hash: format!(
                "{:032x}",
                content(to_yaml(&shaping, Side::Replaced).as_bytes())
            ),
            set: changes.set.clone(),
            home: self.home.clone(),
        })
    }

    fn inputs(&mut self, section: Option<&Node>, root: Mark) -> (Vec<InputPlan>, Vec<Filled>) {
        let mut plans = Vec::new();
        let mut filled = Vec::new();
        let problems_before = self.problems.len();
        let items = match section {
            None => {
                let message = "the pipeline needs 'inputs', a list of at least one; add 'inputs:' and under it \
                               '- { path: data/*.jsonl, source: web }'";
                self.problem(root, message);
                &[][..]
            }
            Some(Node {
                shape: Shape::List(items),
                mark,
            }) => {
                if items.is_empty() {
                    self.problem(
                        *mark,
                        "'inputs' must be a list of at least one, got an empty list; add one",
                    );
                }
                items
            }
            Some(node) => {
                let way_out = match node.shape {
                    Shape::Map(_) => "; put '- ' before the first key of the input",
                    _ => "",
                };
                self.wrong(node, "inputs", "a list of at least one input", way_out);
                &[][..]
            }
        };
        for (index, item) in items.iter().enumerate() {
            let owner = format!("input {}", index + 1);
            if let Some((plan, entry)) = self.input(item, &owner) {
                plans.push(plan);
                filled.push(Filled::Map(entry));
            }
        }
        self.known.inputs_wrong = self.problems.len() > problems_before;
        (plans, filled)
    }

    fn input(&mut self, item: &Node, owner: &str) -> Option<(InputPlan, Vec<(String, Filled)>)> {
        let entries = self.mapping(
            item,
            &format!("{owner} must be a mapping with 'path' and 'source'"),
        )?;
        let (fields_entries, entries): (Entries, Entries) = entries
            .into_iter()
            .partition(|entry| entry.key == sections::FIELDS);
        let mut unsupported = false;
        if let Some(entry) = entries.iter().find(|entry| entry.key == "format")
            && let Shape::Scalar { text, .. } = &entry.value.shape
            && let Some((format, instead)) = sections::FORMATS_TO_COME
                .iter()
                .find(|(name, _)| name == text)
        {
            unsupported = true;
            let formats = one_of(sections::FORMATS);
            let message = format!(
                "'format' must be {formats}, got '{format}', which is not supported yet; {instead}"
            );
            self.problem(entry.value.mark, message);
        }
        let entries: Entries = entries
            .into_iter()
            .filter(|entry| !(unsupported && entry.key == "format"))
            .collect();
        let walked = self.options_with(
            item.mark,
            &entries,
            sections::INPUT,
            owner,
            &[sections::FIELDS],
        );
        let (fields, fields_filled) = match fields_entries.first() {
            Some(entry) => self.fields(&entry.value),
            None => (Vec::new(), Vec::new()),
        };
        self.require_text(&walked, "source");
        self.require_field_path(&walked, "text");
        self.require_field_path(&walked, "id");
        if let Some(Value::Text(format)) = walked
            .options
            .iter()
            .find(|(name, _)| *name == "format")
            .map(|(_, v)| v)
            && format == "text"
        {
            let mark = walked.mark("format");
            let id = matches!(
                walked.options.iter().find(|(name, _)| *name == "id"),
                Some((_, Value::Text(_)))
            );
            for (given, option) in [(id, "id"), (!fields.is_empty(), sections::FIELDS)] {
                if given {
                    let message = format!(
                        "'format: text' has no fields for '{option}' to name; remove '{option}'"
                    );
                    self.problem(mark, message);
                }
            }
        }
        if let Some((_, Value::Text(source))) =
            walked.options.iter().find(|(name, _)| *name == "source")
            && !self.known.sources.contains(source)
        {
            self.known.sources.push(source.clone());
        }
        if !walked.complete {
            return None;
        }
        let options = &walked.options;
        let home = self.home.as_deref();
        let with_home = |glob: &String| replace_home_in_glob(glob, home);
        let mut filled = walked.filled.clone();
        let after_id = filled
            .iter()
            .position(|(key, _)| key == "on_error")
            .unwrap_or(filled.len());
        filled.insert(
            after_id,
            (sections::FIELDS.to_string(), Filled::Map(fields_filled)),
        );
        let plan = InputPlan {
            globs: options.list("path").iter().map(with_home).collect(),
            source: options.text("source").to_string(),
            format: options.text_if_given("format").map(str::to_string),
            text: options.text("text").to_string(),
            id: options.text_if_given("id").map(str::to_string),
            fields,
            on_error: match options.text("on_error") {
                "fail" => OnError::Fail,
                _ => OnError::Quarantine,
            },
            max_document_bytes: options.integer("max_document_bytes"),
            place: walked.place("path"),
        };
        Some((plan, filled))
    }

    fn fields(&mut self, node: &Node) -> (Vec<FieldSpec>, Vec<(String, Filled)>) {
        let mut fields = Vec::new();
        let mut filled = Vec::new();
        let message = "'fields' must be a mapping of names to types, such as { url: string }";
        let Some(entries) = self.mapping(node, message) else {
            return (fields, filled);
        };
        for entry in entries {
            let Some((path, kind, written)) = self.field(entry) else {
                continue;
            };
            let name = entry.key.clone();
            filled.push((name.clone(), written));
            let field = FieldSpec {
                name: name.clone(),
                path,
                kind,
            };
            match self.known.fields.iter().find(|known| known.name == name) {
                None => self.known.fields.push(field.clone()),
                Some(known) if known.kind != kind => {
                    let message = format!(
                        "field '{name}' must have one type in all inputs, got '{}' after '{}'; declare it alike, or \
                         under another name with {{ path: {}, type: {} }}",
                        kind.name(),
                        known.kind.name(),
                        field.path,
                        kind.name()
                    );
                    self.problem(entry.value.mark, message);
                }
                Some(_) => {}
            }
            fields.push(field);
        }
        (fields, filled)
    }

    /// Path, type and how it is written down again.
    fn field(&mut self, entry: &Entry) -> Option<(String, FieldType, Filled)> {
        const TYPE: OptionSpec = OptionSpec {
            name: "type",
            kind: Kind::Choice(&["string", "int", "float", "bool"]),
            default: None,
            doc: "",
        };
        const LONG: &[OptionSpec] = &[
            OptionSpec {
                name: "path",
                kind: Kind::Text,
                default: None,
                doc: "",
            },
            TYPE,
        ];
        let name = entry.key.as_str();
        let owner = format!("field '{name}'");
        if name.is_empty() {
            self.problem(entry.mark, "a field must have a name, got ''; name it");
            return None;
        }
        if sections::RESERVED_COLUMNS.contains(&name) {
            let message = format!(
                "the name '{name}' of a field is taken by a column of the output; take another one and say where it \
                 is read: record_{name}: {{ path: {name}, type: string }}"
            );
            self.problem(entry.mark, message);
            return None;
        }
        let (path, kind, filled) = if let Shape::Map(_) = &entry.value.shape {
            let entries = self.mapping(&entry.value, "")?;
            let walked = self.options(entry.value.mark, &entries, LONG, &owner);
            self.require_field_path(&walked, "path");
            if !walked.complete {
                return None;
            }
            let path = walked.options.text("path").to_string();
            (
                path,
                walked.options.text("type").to_string(),
                Filled::Map(walked.filled),
            )
        } else {
            let (value, filled, _) = self.value(&entry.value, entry.mark, &TYPE, name)?;
            let Value::Text(kind) = value else {
                return None;
            };
            if name.split('.').any(str::is_empty) {
                self.problem(
                    entry.mark,
                    format!("{owner} must be keys joined by single dots"),
                );
                return None;
            }
            (name.to_string(), kind, filled)
        };
        let (_, kind) = FieldType::NAMES
            .iter()
            .find(|(type_name, _)| *type_name == kind)?;
        Some((path, *kind, filled))
    }

    fn tokenizer(
        &mut self,
        section: Option<&Node>,
        root: Mark,
    ) -> Option<(TokenizerPlan, Vec<(String, Filled)>)> {
        let Some(node) = section else {
            let message = "the pipeline needs 'tokenizer'; add 'tokenizer: { file: tokenizer.json }', or name a \
                           'builtin'";
            self.problem(root, message);
            return None;
        };
        let entries = self.mapping(
            node,
            "'tokenizer' must be a mapping with 'file' or 'builtin'",
        )?;
        let mut walked = self.options(node.mark, &entries, sections::TOKENIZER, "'tokenizer'");
        for option in ["file", "builtin", "begin_token", "end_token"] {
            self.require_text(&walked, option);
        }
        if !walked.complete {
            return None;
        }
        let file = walked.options.text_if_given("file").map(PathBuf::from);
        let builtin = walked.options.text_if_given("builtin").map(str::to_string);
        let place = walked.place(if file.is_some() { "file" } else { "builtin" });
        let source = match (file, builtin) {
            (Some(resolved), None) => TokenizerSource::File {
                written: as_typed(&walked, "file")?,
                resolved,
            },
            (None, Some(name)) => TokenizerSource::Builtin(name),
            (Some(_), Some(_)) => {
                let message = "'tokenizer' must name 'file' or 'builtin', got both; remove one";
                self.problem(walked.mark("builtin"), message);
                return None;
            }
            (None, None) => {
                let message = "'tokenizer' must name 'file' or 'builtin', got neither; add one";
                self.problem(node.mark, message);
                return None;
            }
        };
        let token = |option: &str| {
            Some(walked.options.text(option))
                .filter(|token| *token != "none")
                .map(str::to_string)
        };
        let plan = TokenizerPlan {
            source,
            begin_token: token("begin_token"),
            end_token: token("end_token"),
            place,
            begin_place: walked.place("begin_token"),
            end_place: walked.place("end_token"),
        };
        // Exactly one of the two stands in the filled configuration.
        walked.filled.retain(|(key, value)| {
            !(matches!(key.as_str(), "file" | "builtin") && *value == Filled::Null)
        });
        Some((plan, walked.filled))
    }

    fn stages(&mut self, section: Option<&Node>) -> (Vec<StagePlan>, Vec<Filled>) {
        let mut plans = Vec::new();
        let mut filled = Vec::new();
        let items = match section {
            None => return (plans, filled),
            Some(Node {
                shape: Shape::List(items),
                ..
            }) => items,
            Some(Node {
                shape: Shape::Scalar { text, plain: true },
                ..
            }) if plain(text) == Plain::Null => {
                return (plans, filled);
            }
            Some(node) => {
                let way_out = match node.shape {
                    Shape::Map(_) => "; put '- ' before each stage",
                    _ => "",
                };
                self.wrong(node, "stages", "a list of stages", way_out);
                return (plans, filled);
            }
        };
        let mut times: BTreeMap<&str, usize> = BTreeMap::new();
        for item in items {
            let Some((name, mark, options)) = self.stage_entry(item) else {
                continue;
            };
            let time = times.entry(name).or_default();
            *time += 1;
            let label = overrides::label(name, *time);
            if let Some((plan, entry)) = self.stage(name, label, mark, options) {
                plans.push(plan);
                filled.push(entry);
            }
        }
        (plans, filled)
    }

    /// Name, its place and its options, of which there may be none.
    fn stage_entry<'n>(&mut self, item: &'n Node) -> Option<(&'n str, Mark, Option<&'n Node>)> {
        let message =
            "a stage must be a name with its options, such as '- length: { min_tokens: 16 }'";
        match &item.shape {
            Shape::Scalar {
                text,
                plain: is_plain,
            } if !is_plain || plain(text) == Plain::Text => Some((text, item.mark, None)),
            Shape::Map(entries) => match entries.as_slice() {
                [entry] => Some((&entry.key, entry.mark, Some(&entry.value))),
                [] => {
                    self.problem(item.mark, format!("{message}, got an empty mapping"));
                    None
                }
                [first, second, ..] => {
                    let message = format!(
                        "{message}, got several keys ('{}', '{}'); put '- ' before each stage, and indent options \
                         below their stage",
                        first.key, second.key
                    );
                    self.problem(second.mark, message);
                    None
                }
            },
            Shape::Refused => None,
            Shape::Scalar { .. } | Shape::List(_) => {
                self.problem(item.mark, format!("{message}, got {}", shown(item)));
                None
            }
        }
    }

    fn stage(
        &mut self,
        name: &str,
        label: String,
        mark: Mark,
        options: Option<&Node>,
    ) -> Option<(StagePlan, Filled)> {
        let stages = self.tables.stage_specs();
        let Some(stage) = stages.iter().find(|stage| stage.spec.name == name) else {
            let names = stages.iter().map(|stage| stage.spec.name);
            let way_out = match nearest(name, names) {
                Some(near) => format!("did you mean '{near}'? "),
                None => String::new(),
            };
            self.problem(
                mark,
                format!("unknown stage '{name}'; {way_out}'goodput stages' lists them all"),
            );
            return None;
        };
        let spec = stage.spec;
        let owner = format!("stage '{name}'");
        let nothing = Node {
            mark,
            shape: Shape::Map(Vec::new()),
        };
        let options = match options {
            Some(Node {
                shape: Shape::Scalar { text, plain: true },
                ..
            }) if plain(text) == Plain::Null => &nothing,
            Some(options) => options,
            None => &nothing,
        };
        let problems_before = self.problems.len();
        if name == global::SCORE.name {
            return self.score(label, mark, options);
        }
        let entries = self.mapping(
            options,
            &format!("the options of {owner} must be a mapping"),
        )?;
        let walked = self.options(mark, &entries, spec.options, &owner);
        self.judge_sort_keys(
            &owner,
            (name == global::SELECT.name).then_some(global::RANDOM_KEY),
        );
        let document_stage = self
            .tables
            .stages
            .iter()
            .position(|kind| kind.spec.name == name);
        let kind = match document_stage {
            Some(index) => StageRef::Document(index),
            None if name == global::EXACT_DEDUPE.name => StageRef::ExactDedupe,
            None if name == global::PARAGRAPH_DEDUPE.name => StageRef::UnitDedupe(Unit::Paragraph),
            None if name == global::LINE_DEDUPE.name => StageRef::UnitDedupe(Unit::Line),
            None if name == global::SPAN_DEDUPE.name => StageRef::SpanDedupe,
            None if name == global::NEAR_DEDUPE.name => StageRef::NearDedupe,
            None => StageRef::Select,
        };
        let mut edits = matches!(kind, StageRef::UnitDedupe(_) | StageRef::SpanDedupe);
        if walked.complete {
            match kind {
                StageRef::Document(index) => {
                    let built = (self.tables.stages[index].build)(&walked.options);
                    edits = built.as_ref().is_ok_and(|stage| stage.edits());
                    self.judge(built.err(), &walked);
                }
                StageRef::NearDedupe => {
                    self.judge(global::bands_and_rows(&walked.options).err(), &walked);
                    self.judge(Shingling::of(&walked.options).err(), &walked);
                    self.judge_near_dedupe(&walked);
                }
                StageRef::Select => self.judge_select(&walked),
                StageRef::ExactDedupe
                | StageRef::UnitDedupe(_)
                | StageRef::SpanDedupe
                | StageRef::Score { .. }
                | StageRef::Validation => {}
            }
            if edits {
                self.judge_edit(mark, name);
            }
        }
        if self.problems.len() > problems_before {
            return None;
        }
        let paths = paths_of(&walked, spec.options);
        let places = places_of(&walked);
        let Place { line, column } = place(mark);
        let filled = Filled::Map(vec![(name.to_string(), Filled::Map(walked.filled))]);
        let plan = StagePlan {
            label,
            kind,
            edits,
            paths,
            places,
            options: walked.options,
            line,
            column,
        };
        Some((plan, filled))
    }

    fn score(&mut self, label: String, mark: Mark, options: &Node) -> Option<(StagePlan, Filled)> {
        let problems_before = self.problems.len();
        let second = !matches!(self.known.score, Score::None);
        if second {
            let message = "a pipeline must have at most one stage 'score', got a second one; remove one of them";
            self.problem(mark, message);
        } else {
            self.known.score = Score::Wrong;
        }
        let specs = self.tables.estimator_specs();
        let owner = "stage 'score'";
        let shared: Vec<&'static str> = global::SCORE
            .options
            .iter()
            .map(|option| option.name)
            .collect();
        let mut choice = self.choice(options, mark, owner, global::SCORE_TAG, &specs, &shared)?;
        // The options of the stage itself stand among those of the estimator.
        let own: Entries = match &options.shape {
            Shape::Map(entries) => entries
                .iter()
                .filter(|entry| shared.contains(&entry.key.as_str()))
                .collect(),
            _ => Entries::new(),
        };
        let walked = self.options(mark, &own, global::SCORE.options, owner);
        for (name, value) in walked.options.iter() {
            choice.walked.options.set(name, value.clone());
        }
        let own_places = places_of(&walked);
        choice.walked.filled.extend(walked.filled);
        choice.walked.complete &= walked.complete;
        self.judge_sort_keys("stage 'score'", None);
        let index = self
            .tables
            .estimators
            .iter()
            .position(|kind| kind.spec.name == choice.spec.name)?;
        let kind = self.tables.estimators[index];
        if choice.walked.complete {
            let options = &choice.walked.options;
            let fitted = options
                .iter()
                .any(|(name, value)| name == "model" && *value != Value::Null);
            if kind.needs_reference && !fitted && !has_reference(options) {
                let message = format!(
                    "estimator '{}' needs 'reference'; name files of the text that the model should learn to write, \
                     such as 'reference: reference/*.jsonl'",
                    kind.spec.name
                );
                self.problem(choice.walked.mark("reference"), message);
            } else {
                let built = (kind.build)(&choice.walked.options);
                self.judge(built.err(), &choice.walked);
            }
        }
        if self.problems.len() > problems_before || !choice.walked.complete {
            return None;
        }
        self.known.score = Score::Fits(kind);
        let mut paths = paths_of(&choice.walked, choice.spec.options);
        paths.extend(paths_of(&choice.walked, global::SCORE.options));
        let mut places = places_of(&choice.walked);
        places.extend(own_places);
        let Place { line, column } = place(mark);
        let filled = Filled::Map(vec![(global::SCORE.name.to_string(), choice.filled())]);
        let kind = StageRef::Score { estimator: index };
        Some((
            StagePlan {
                label,
                kind,
                edits: false,
                paths,
                places,
                options: choice.walked.options,
                line,
                column,
            },
            filled,
        ))
    }

    /// Every token has its usefulness from 'score' on, so the texts stay as they are.
    fn judge_edit(&mut self, mark: Mark, name: &str) {
        if !matches!(self.known.score, Score::None) {
            let message = format!(
                "stage '{name}' cuts texts, so it must stand before 'score', which gives every token of a text its \
                 usefulness; move it up"
            );
            self.problem(mark, message);
        }
    }

    fn judge_near_dedupe(&mut self, walked: &Walked) {
        let keep = walked.options.text("keep");
        let preferred = walked.options.list("preferred_sources");
        if keep == "highest_score" && matches!(self.known.score, Score::None) {
            let message = "'keep: highest_score' needs a stage 'score' before 'near_dedupe'; add one there, or keep \
                           first or longest";
            self.problem(walked.mark("keep"), message);
        }
        if keep == "preferred_source" && preferred.is_empty() {
            let message = "'keep: preferred_source' needs 'preferred_sources'; list the sources, the most preferred \
                           first";
            self.problem(walked.mark("keep"), message);
        }
        if keep != "preferred_source" && !preferred.is_empty() {
            let message = format!(
                "'preferred_sources' does nothing with 'keep: {keep}'; write 'keep: preferred_source', or remove it"
            );
            self.problem(walked.mark("preferred_sources"), message);
        }
        if self.known.inputs_wrong {
            return;
        }
        for (index, source) in preferred.iter().enumerate() {
            let mark = walked.mark("preferred_sources");
            if preferred[..index].contains(source) {
                self.problem(
                    mark,
                    format!("'preferred_sources' names '{source}' twice; remove one"),
                );
            } else if !self.known.sources.contains(source) {
                let way_out = way_out(source, self.known.sources.iter().map(String::as_str));
                let message = format!(
                    "'preferred_sources' must name sources of 'inputs', got '{source}'; {way_out}"
                );
                self.problem(mark, message);
            }
        }
    }

    fn judge_select(&mut self, walked: &Walked) {
        let given = |option: &str| *walked.options.get(option) != Value::Null;
        let (share, tokens, bound) = (
            given("keep_share_of_tokens"),
            given("keep_tokens"),
            given("min_score"),
        );
        if share && tokens {
            let message =
                "'select' must have 'keep_share_of_tokens' or 'keep_tokens', got both; remove one";
            self.problem(walked.mark("keep_tokens"), message);
        }
        if !share && !tokens && !bound {
            let message = "'select' must have 'keep_share_of_tokens', 'keep_tokens' or 'min_score', got none; add one";
            self.problem(walked.at, message);
        }
        if walked.options.number_if_given("keep_share_of_tokens") == Some(0.0) {
            let message = "'keep_share_of_tokens' must be above 0, got 0, which keeps nothing";
            self.problem(walked.mark("keep_share_of_tokens"), message);
        }
        if bound && walked.options.text("by") == global::RANDOM_KEY {
            let message =
                "'min_score' means nothing with 'by: random'; remove it, or select by another key";
            self.problem(walked.mark("min_score"), message);
        }
    }

    /// Judges the sort keys collected since the last time.
    fn judge_sort_keys(&mut self, owner: &str, also: Option<&str>) {
        for (mark, option, key) in std::mem::take(&mut self.sort_keys) {
            if also != Some(&key) {
                self.judge_sort_key(mark, option, &key, owner, also);
            }
        }
    }

    fn judge_sort_key(
        &mut self,
        mark: Mark,
        option: &str,
        key: &str,
        owner: &str,
        also: Option<&str>,
    ) {
        let owner = owner
            .strip_prefix("stage ")
            .map_or_else(|| format!("'{owner}'"), str::to_string);
        let before = if owner == "'order'" {
            String::new()
        } else {
            format!(" before {owner}")
        };
        if key == "length_tokens" {
            return;
        }
        if global::SORT_KEYS.contains(&key) {
            let (what, has): (_, fn(&EstimatorKind) -> bool) = match key {
                global::DIFFICULTY_KEY => ("difficulty", |kind| kind.has_difficulty),
                key if global::EXCESS_KEYS.contains(&key) => ("excess", |kind| kind.has_excess),
                _ => ("score", |_| true),
            };
            match self.known.score {
                Score::None => {
                    let message = format!(
                        "'{option}: {key}' needs a stage 'score'{before}; add one, or use 'length_tokens' or a \
                         declared field"
                    );
                    self.problem(mark, message);
                }
                Score::Fits(kind) if !has(kind) => {
                    let able = self.tables.estimators.iter().filter(|kind| has(kind));
                    let able: Vec<&str> = able.map(|kind| kind.spec.name).collect();
                    let message = format!(
                        "'{option}: {key}' needs an estimator with {what} ({}), got '{}'; use '{option}: score'",
                        able.join(", "),
                        kind.spec.name
                    );
                    self.problem(mark, message);
                }
                Score::Wrong | Score::Fits(_) => {}
            }
        } else if let Some(field) = self.known.fields.iter().find(|field| field.name == key) {
            if !matches!(field.kind, FieldType::Int | FieldType::Float) {
                let message = format!(
                    "'{option}' must name a numeric field, got '{key}', which is declared as {}; declare it as int or \
                     float if it holds numbers",
                    field.kind.name()
                );
                self.problem(mark, message);
            }
        } else if !self.known.inputs_wrong {
            let numeric = self
                .known
                .fields
                .iter()
                .filter(|f| matches!(f.kind, FieldType::Int | FieldType::Float));
            let names: Vec<&str> = global::SORT_KEYS
                .iter()
                .copied()
                .chain(also)
                .chain(numeric.map(|field| field.name.as_str()))
                .collect();
            let near = nearest(key, names.iter().copied()).map_or_else(
                || "; declare it under 'fields' of an input as int or float".to_string(),
                |near| format!("; did you mean '{near}'?"),
            );
            let message = format!(
                "'{option}' must be {} or a declared numeric field, got '{key}'{near}",
                one_of(&names)
            );
            self.problem(mark, message);
        }
    }

    /// `order` and `pack`.
    fn arrangement(
        &mut self,
        section: Option<&Node>,
        key: &'static str,
        (tag, default): (&'static str, &'static str),
        specs: &[&'static Spec],
        root: Mark,
    ) -> Option<Choice> {
        let absent = match section {
            Some(Node {
                shape: Shape::Scalar { text, plain: true },
                ..
            }) => plain(text) == Plain::Null,
            Some(_) => false,
            None => true,
        };
        if absent {
            let node = default_node(default, root);
            return self.choice(&node, root, key, tag, specs, &[]);
        }
        let node = section?;
        self.choice(node, node.mark, key, tag, specs, &[])
    }

    fn build_order(&mut self, choice: &Choice) {
        let problems_before = self.problems.len();
        for nested in choice.walked.nested.values() {
            if nested.tag == sections::ORDER.0 {
                self.build_order(nested);
            }
        }
        if !choice.walked.complete || self.problems.len() > problems_before {
            return;
        }
        let kind = self
            .tables
            .strategies
            .iter()
            .find(|kind| kind.spec.name == choice.spec.name);
        let Some(kind) = kind else { return };
        match (kind.build)(&choice.walked.options) {
            Err(error) => self.judge(Some(error), &choice.walked),
            Ok(strategy) => {
                // Keys that no option names, such as the score that anneal_tail looks at.
                let mut seen = Vec::new();
                sort_keys_of(choice, &mut seen);
                for key in strategy.keys() {
                    if !seen.contains(&key) {
                        seen.push(key.clone());
                        self.judge_sort_key(
                            choice.walked.at,
                            sections::ORDER.0,
                            &key,
                            "order",
                            None,
                        );
                    }
                }
            }
        }
    }

    fn build_pack(&mut self, choice: &Choice, shard_tokens: u64) {
        if !choice.walked.complete {
            return;
        }
        let kind = self
            .tables
            .packers
            .iter()
            .find(|kind| kind.spec.name == choice.spec.name);
        let Some(kind) = kind else { return };
        match (kind.build)(&choice.walked.options) {
            Err(error) => self.judge(Some(error), &choice.walked),
            Ok(packer) => {
                if let Some(positions) = packer.row_positions()
                    && u64::from(positions) > shard_tokens
                {
                    let message = format!(
                        "a row of {} tokens does not fit into a shard of {}; raise 'output.shard_tokens', or make rows \
                         shorter",
                        grouped(positions.into()),
                        grouped(shard_tokens)
                    );
                    self.problem(choice.walked.mark("sequence_tokens"), message);
                }
            }
        }
    }

    fn output(
        &mut self,
        section: Option<&Node>,
        root: Mark,
        changes: &Overrides,
    ) -> Option<(OutputPlan, Vec<(String, Filled)>)> {
        let nothing = Node {
            mark: root,
            shape: Shape::Map(Vec::new()),
        };
        let node = match section {
            Some(node) => node,
            None if changes.out.is_some() => &nothing,
            None => {
                let message = "the pipeline needs 'output'; add 'output: { path: out/NAME }', or give --out DIR";
                self.problem(root, message);
                return None;
            }
        };
        let entries = self.mapping(node, "'output' must be a mapping with 'path'")?;
        let has_path = entries.iter().any(|entry| entry.key == "path");
        // The command line's folder stands in for a missing path.
        let specs = match changes.out.is_some() && !has_path {
            true => &sections::OUTPUT[1..],
            false => sections::OUTPUT,
        };
        let walked = self.options(node.mark, &entries, specs, "'output'");
        if !walked.complete {
            return None;
        }
        let options = &walked.options;
        let path = has_path.then(|| PathBuf::from(options.text("path")));
        let path = changes.out.clone().or(path)?;
        let excess_nats = options.flag("excess_nats");
        if excess_nats {
            let problem = match self.known.score {
                Score::None => Some(
                    "'excess_nats: true' needs a stage 'score'; add one, or remove it".to_string(),
                ),
                Score::Fits(kind) if !kind.has_excess => Some(format!(
                    "'excess_nats: true' needs an estimator with excess, got '{}'; name another one, or remove it",
                    kind.spec.name
                )),
                Score::Wrong | Score::Fits(_) => None,
            };
            if let Some(message) = problem {
                self.problem(walked.mark("excess_nats"), message);
            }
        }
        let plan = OutputPlan {
            path,
            shard_tokens: options.integer("shard_tokens"),
            validation_share: options.number("validation_share"),
            rejects: match options.text("rejects") {
                "none" => Rejects::None,
                "text" => Rejects::Text,
                _ => Rejects::Tokens,
            },
            usefulness: match options.text("usefulness") {
                "f32" => UsefulnessType::F32,
                _ => UsefulnessType::U8,
            },
            excess_nats,
        };
        Some((plan, walked.filled))
    }

    /// An option's own check, at the option's place.
    pub(super) fn judge(&mut self, error: Option<OptionError>, walked: &Walked) {
        if let Some(OptionError {
            option,
            must_be,
            found,
        }) = error
        {
            self.problem(
                walked.mark(option),
                format!("'{option}' must be {must_be}, got {found}"),
            );
        }
    }
}

/// The chain with the draw of what is held out: before the first stage that weighs documents, so that no model is
/// fitted on them and the same ones are held out whatever is selected; and after the last one that finds similar ones.
fn with_validation(mut stages: Vec<StagePlan>) -> Vec<StagePlan> {
    let weighs =
        |stage: &StagePlan| matches!(stage.kind, StageRef::Score { .. } | StageRef::Select);
    let first = stages.iter().position(weighs).unwrap_or(stages.len());
    let last_near = stages
        .iter()
        .rposition(|stage| stage.kind == StageRef::NearDedupe)
        .map_or(0, |at| at + 1);
    let draw = StagePlan {
        label: global::VALIDATION.to_string(),
        kind: StageRef::Validation,
        edits: false,
        options: Options::default(),
        paths: BTreeMap::new(),
        places: BTreeMap::new(),
        line: 0,
        column: 0,
    };
    stages.insert(first.max(last_near), draw);
    stages
}

/// A text option with its variables replaced; for a path, before it was resolved.
fn as_typed(walked: &Walked, option: &str) -> Option<String> {
    let (_, filled) = walked.filled.iter().find(|(name, _)| name == option)?;
    let filled = match filled {
        Filled::Written(_, value) => value,
        filled => filled,
    };
    match filled {
        Filled::Text(text) => Some(text.clone()),
        _ => None,
    }
}

/// The paths among options as they were written.
fn paths_of(walked: &Walked, options: &'static [OptionSpec]) -> BTreeMap<&'static str, String> {
    let paths = options
        .iter()
        .filter(|option| matches!(option.kind, Kind::Path));
    paths
        .filter_map(|option| Some((option.name, as_typed(walked, option.name)?)))
        .collect()
}

fn places_of(walked: &Walked) -> BTreeMap<&'static str, Place> {
    let marks = walked.marks.iter();
    marks.map(|(name, mark)| (*name, place(*mark))).collect()
}

fn has_reference(options: &Options) -> bool {
    match options.iter().find(|(name, _)| *name == "reference") {
        Some((_, Value::Null)) => false,
        Some((_, Value::List(globs))) => !globs.is_empty(),
        _ => true,
    }
}

/// The sort keys that the options of a choice and of those inside it name.
fn sort_keys_of(choice: &Choice, keys: &mut Vec<String>) {
    for option in choice.spec.options {
        if let (Kind::SortKey, Value::Text(key)) =
            (&option.kind, choice.walked.options.get(option.name))
        {
            keys.push(key.clone());
        }
    }
    for nested in choice.walked.nested.values() {
        sort_keys_of(nested, keys);
    }
}
