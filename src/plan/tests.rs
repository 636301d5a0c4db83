//! The whole way: a file's text, overrides and an environment to a plan or to every problem.

use super::*;
use crate::order::{Items, OrderInput, Strategy, StrategyKind};
use crate::pack::{Frame, PackKind, Packer, Rows};
use crate::record::{
    Document, FieldType, Kind, Notes, OptionError, OptionSpec, Reason, Spec, Verdict,
};
use crate::score::{Estimator, EstimatorKind, Fit, FitError, FitInput};
use crate::stages::{Stage, StageKind};
use proptest::prelude::*;

// ---- Small tables, so that these tests hold whatever the program's tables say

struct Inert {
    keys: Vec<String>,
    row_positions: Option<u32>,
}

const INERT: Inert = Inert {
    keys: Vec::new(),
    row_positions: None,
};

impl Stage for Inert {
    fn judge(&self, _: &mut Document, _: &mut Notes) -> Result<Verdict, String> {
        Ok(Verdict::Keep)
    }
}
impl Fit for Inert {
    fn fit(&self, _: &FitInput<'_>) -> Result<Box<dyn Estimator>, FitError> {
        Err(FitError::Data("these tests fit nothing".to_string()))
    }
}
impl Strategy for Inert {
    fn arrange<'a>(&'a self, input: OrderInput<'a>) -> std::io::Result<Items<'a>> {
        Ok(input.items)
    }
    fn keys(&self) -> Vec<String> {
        self.keys.clone()
    }
    fn lr_hint(&self) -> &'static str {
        "any"
    }
}
impl Packer for Inert {
    fn pack<'a>(&'a self, _: Items<'a>, _: Frame) -> Rows<'a> {
        Box::new(std::iter::empty())
    }
    fn row_positions(&self) -> Option<u32> {
        self.row_positions
    }
}

const fn option(name: &'static str, kind: Kind, default: Option<&'static str>) -> OptionSpec {
    OptionSpec {
        name,
        kind,
        default,
        doc: "An option",
    }
}

const fn spec(name: &'static str, options: &'static [OptionSpec]) -> Spec {
    Spec {
        name,
        summary: "A choice.",
        details: "",
        options,
        example: "{}",
    }
}

static LENGTH: StageKind = StageKind {
    spec: spec(
        "length",
        &[
            option(
                "min_tokens",
                Kind::Integer {
                    min: 1,
                    max: u64::MAX,
                },
                Some("1"),
            ),
            option(
                "max_tokens",
                Kind::Integer {
                    min: 1,
                    max: 1_000_000,
                },
                Some("null"),
            ),
        ],
    ),
    reasons: &[Reason::policy("too_short", "The value is its tokens")],
    notes: &[],
    build: |options| {
        let (min, max) = (
            options.integer("min_tokens"),
            options.integer_if_given("max_tokens"),
        );
        match max {
            Some(max) if max < min => Err(OptionError::new(
                "max_tokens",
                format!("min_tokens ({min}) or more"),
                max,
            )),
            _ => Ok(Box::new(INERT)),
        }
    },
};

static LANGUAGE: StageKind = StageKind {
    spec: spec(
        "language",
        &[
            option("keep", Kind::TextList, None),
            option(
                "min_probability",
                Kind::Number { min: 0.0, max: 1.0 },
                Some("0.65"),
            ),
            option("strict", Kind::Bool, Some("false")),
            option("model", Kind::Path, Some("null")),
        ],
    ),
    reasons: &[],
    notes: &[],
    build: |_| Ok(Box::new(INERT)),
};

static RANDOM: EstimatorKind = EstimatorKind {
    spec: spec("random", &[]),
    version: 1,
    needs_reference: false,
    needs_text: false,
    needs_id: false,
    has_difficulty: false,
    has_excess: false,
    load: None,
    build: |_| Ok(Box::new(INERT)),
};

static NGRAM_EXCESS: EstimatorKind = EstimatorKind {
    spec: spec(
        "ngram_excess",
        &[
            option("reference", Kind::Globs, Some("null")),
            option(
                "fit_tokens",
                Kind::Integer {
                    min: 1,
                    max: u64::MAX,
                },
                Some("100_000_000"),
            ),
            option(
                "model_bytes",
                Kind::Integer {
                    min: 1024,
                    max: 1 << 40,
                },
                Some("1GiB"),
            ),
        ],
    ),
    version: 1,
    needs_reference: true,
    needs_text: false,
    needs_id: false,
    has_difficulty: true,
    has_excess: true,
    load: None,
    build: |_| Ok(Box::new(INERT)),
};

fn strategy_specs() -> Vec<&'static Spec> {
    [&SHUFFLE, &SORTED, &WARMUP, &TAIL]
        .map(|kind| &kind.spec)
        .to_vec()
}

static SHUFFLE: StrategyKind = StrategyKind {
    spec: spec("shuffle", &[]),
    build: |_| Ok(Box::new(INERT)),
};
static SORTED: StrategyKind = StrategyKind {
    spec: spec(
        "sorted",
        &[
            option("by", Kind::SortKey, Some("score")),
            option(
                "direction",
                Kind::Choice(&["ascending", "descending"]),
                Some("ascending"),
            ),
        ],
    ),
    build: |options| {
        Ok(Box::new(Inert {
            keys: vec![options.text("by").to_string()],
            row_positions: None,
        }))
    },
};
static WARMUP: StrategyKind = StrategyKind {
    spec: spec(
        "warmup",
        &[
            option("share", Kind::Number { min: 0.0, max: 1.0 }, None),
            option(
                "inner",
                Kind::Variant {
                    tag: "strategy",
                    specs: strategy_specs,
                },
                Some("{ strategy: sorted, by: score }"),
            ),
        ],
    ),
    build: |options| match options.number("share") {
        share if share > 0.9 => Err(OptionError::new("share", "0.9 or less here", share)),
        _ => Ok(Box::new(INERT)),
    },
};
static TAIL: StrategyKind = StrategyKind {
    spec: spec("tail", &[]),
    build: |_| {
        Ok(Box::new(Inert {
            keys: vec!["score".to_string()],
            row_positions: None,
        }))
    },
};

static NONE: PackKind = PackKind {
    spec: spec("none", &[]),
    build: |_| Ok(Box::new(INERT)),
};
static BEST_FIT: PackKind = PackKind {
    spec: spec(
        "best_fit",
        &[option(
            "sequence_tokens",
            Kind::Integer {
                min: 1,
                max: 1 << 20,
            },
            None,
        )],
    ),
    build: |options| {
        let positions = u32::try_from(options.integer("sequence_tokens")).ok();
        Ok(Box::new(Inert {
            keys: Vec::new(),
            row_positions: positions,
        }))
    },
};

pub(super) fn tables() -> Tables {
    Tables {
        stages: vec![&LENGTH, &LANGUAGE],
        estimators: vec![&RANDOM, &NGRAM_EXCESS],
        strategies: vec![&SHUFFLE, &SORTED, &WARMUP, &TAIL],
        packers: vec![&NONE, &BEST_FIT],
    }
}

// ---- Helpers

fn environment(name: &str) -> Option<String> {
    match name {
        "HOME" => Some("/home/me".to_string()),
        "DATA" => Some("/data".to_string()),
        "SEED" => Some("23".to_string()),
        "WORD" => Some("true".to_string()),
        _ => None,
    }
}

fn load_text_with(text: &str, overrides: &Overrides) -> Result<Plan, Problems> {
    check::check(
        "dir/p.yaml".as_ref(),
        text,
        overrides,
        &tables(),
        &environment,
    )
}

fn load_text(text: &str) -> Result<Plan, Problems> {
    load_text_with(text, &Overrides::default())
}

fn set(text: &str, sets: &[&str]) -> Result<Plan, Problems> {
    let overrides = Overrides {
        set: sets.iter().map(|set| set.to_string()).collect(),
        out: None,
    };
    load_text_with(text, &overrides)
}

#[track_caller]
fn problems(result: Result<Plan, Problems>) -> Vec<String> {
    match result {
        Ok(plan) => panic!("accepted:\n{}", plan.filled),
        Err(problems) => problems
            .0
            .iter()
            .map(|p| p.to_string().replace("dir/p.yaml:", ""))
            .collect(),
    }
}

/// The problems of a small pipeline with `more` at its end, from line 6 on.
#[track_caller]
fn refused(more: &str, expected: &[&str]) {
    assert_eq!(
        problems(load_text(&format!("{SMALL}{more}"))),
        expected,
        "{more}"
    );
}

const SMALL: &str = "\
version: 1
name: small
seed: 17
tokenizer: { builtin: o200k }
output: { path: out/small }
inputs: [ { path: a.jsonl, source: web, fields: { url: string, stars: int } } ]
";

const HEAD: &str =
    "version: 1\nname: n\nseed: 1\ntokenizer: { builtin: o200k }\noutput: { path: out }\n";

const FULL: &str = r#"
version: 1
name: web-mix
seed: 17
inputs:
  - path: [data/web/*.jsonl.zst, "!data/web/bad*", ~/more.jsonl, "${DATA}/x.jsonl"]
    source: web
    format: jsonl
    text: body.text
    id: id
    fields: { url: string, stars: { path: repo.stars, type: int }, lang.p: float }
    on_error: fail
    max_document_bytes: 2 MB
  - path: b.parquet
    source: "no"
    fields: { url: string, ok: bool }
tokenizer:
  file: ${TOKENIZERS:-tokenizers}/gpt2.json
  begin_token: none
  end_token: "<|endoftext|>"
stages:
  - length: { min_tokens: 5 }
  - language: { keep: en, min_probability: 0.5, strict: true, model: m.bin }
  - exact_dedupe
  - near_dedupe: { min_similarity: 0.75, keep: preferred_source, preferred_sources: ["no", web] }
  - length:
      max_tokens: 1_000
  - score: { estimator: ngram_excess, reference: data/reference/*.jsonl.zst, fit_tokens: 1e8, model_bytes: 64MiB }
  - select: { keep_share_of_tokens: 0.6, by: score }
  - select: { keep_tokens: 1_000_000, by: random }
order: { strategy: warmup, share: 0.3, inner: { strategy: sorted, by: difficulty } }
pack: { sequence_tokens: 2048, method: best_fit }
output:
  path: out/$$web
  shard_tokens: 64_000
  rejects: text
  excess_nats: true
  usefulness: f32
"#;

fn without_places(mut plan: Plan) -> Plan {
    for input in &mut plan.inputs {
        input.place = Place::default();
    }
    for stage in &mut plan.stages {
        (stage.line, stage.column) = (0, 0);
        stage.places.clear();
    }
    plan.set.clear();
    plan.tokenizer.place = Place::default();
    plan.tokenizer.begin_place = Place::default();
    plan.tokenizer.end_place = Place::default();
    plan
}

// ---- What is accepted

#[test]
fn a_full_pipeline_is_read_as_written() {
    let plan = load_text(FULL).expect("valid");
    assert_eq!(
        (plan.version, plan.name.as_str(), plan.seed),
        (1, "web-mix", 17)
    );
    assert_eq!(plan.base, PathBuf::from("dir"));
    let web = &plan.inputs[0];
    assert_eq!(
        web.globs,
        [
            "data/web/*.jsonl.zst",
            "!data/web/bad*",
            "/home/me/more.jsonl",
            "/data/x.jsonl"
        ]
    );
    assert_eq!(
        (web.format.as_deref(), web.text.as_str(), web.id.as_deref()),
        (Some("jsonl"), "body.text", Some("id"))
    );
    assert_eq!(
        (web.on_error, web.max_document_bytes),
        (OnError::Fail, 2_000_000)
    );
    assert_eq!(
        web.place,
        Place {
            line: 6,
            column: 11
        }
    );
    let field = |name: &str, path: &str, kind| FieldSpec {
        name: name.to_string(),
        path: path.to_string(),
        kind,
    };
    assert_eq!(plan.inputs[1].source, "no");
    assert_eq!(
        plan.inputs[1].fields,
        [
            field("url", "url", FieldType::String),
            field("ok", "ok", FieldType::Bool)
        ]
    );
    assert_eq!(plan.inputs[1].on_error, OnError::Quarantine);
    assert_eq!(
        plan.fields,
        [
            field("url", "url", FieldType::String),
            field("stars", "repo.stars", FieldType::Int),
            field("lang.p", "lang.p", FieldType::Float),
            field("ok", "ok", FieldType::Bool)
        ]
    );
    assert_eq!(
        plan.tokenizer.source,
        TokenizerSource::File {
            written: "tokenizers/gpt2.json".to_string(),
            resolved: PathBuf::from("dir/tokenizers/gpt2.json")
        }
    );
    assert_eq!(
        (
            plan.tokenizer.begin_token.as_deref(),
            plan.tokenizer.end_token.as_deref()
        ),
        (None, Some("<|endoftext|>"))
    );
    let labels: Vec<&str> = plan
        .stages
        .iter()
        .map(|stage| stage.label.as_str())
        .collect();
    assert_eq!(
        labels,
        [
            "length",
            "language",
            "exact_dedupe",
            "near_dedupe",
            "length#2",
            "score",
            "select",
            "select#2"
        ]
    );
    let kinds: Vec<StageRef> = plan.stages.iter().map(|stage| stage.kind).collect();
    assert_eq!(
        kinds[..4],
        [
            StageRef::Document(0),
            StageRef::Document(1),
            StageRef::ExactDedupe,
            StageRef::NearDedupe
        ]
    );
    assert_eq!(
        kinds[4..6],
        [StageRef::Document(0), StageRef::Score { estimator: 1 }]
    );
    assert_eq!((plan.stages[4].line, plan.stages[4].column), (26, 5));
    assert_eq!(plan.stages[1].options.list("keep"), ["en"]);
    assert_eq!(plan.stages[1].options.text("model"), "dir/m.bin");
    assert_eq!(
        plan.stages[5].options.list("reference"),
        ["data/reference/*.jsonl.zst"]
    );
    assert_eq!(
        plan.stages[4].options.integer_if_given("max_tokens"),
        Some(1000)
    );
    assert_eq!(plan.stages[5].options.integer("fit_tokens"), 100_000_000);
    assert_eq!(plan.stages[5].options.integer("model_bytes"), 64 << 20);
    assert_eq!(plan.order.name, "warmup");
    assert_eq!(
        plan.order.options.variant("inner").options.text("by"),
        "difficulty"
    );
    assert_eq!(
        plan.order
            .options
            .variant("inner")
            .options
            .text("direction"),
        "ascending"
    );
    assert_eq!(
        (
            plan.pack.name.as_str(),
            plan.pack.options.integer("sequence_tokens")
        ),
        ("best_fit", 2048)
    );
    assert_eq!(plan.output.path, PathBuf::from("dir/out/$web"));
    assert_eq!(
        (plan.output.shard_tokens, plan.output.rejects),
        (64_000, Rejects::Text)
    );
    assert_eq!(
        (plan.output.usefulness, plan.output.excess_nats),
        (UsefulnessType::F32, true)
    );
    assert_eq!(plan.glob("~/x"), "/home/me/x");
    assert_eq!(plan.glob("!~/x"), "!/home/me/x");
    assert_eq!(plan.glob("x/y"), "x/y");
}

#[test]
fn what_is_held_out_is_drawn_before_documents_are_weighed_and_after_similar_ones_are_found() {
    let held_out = SMALL.replace("out/small }", "out/small, validation_share: 0.1 }");
    let labels = |stages: &str| -> Vec<String> {
        let plan = load_text(&format!("{held_out}stages: [{stages}]\n")).expect("valid");
        // It stands in the chain, and not in the file.
        assert!(!plan.filled.contains("- validation"));
        plan.stages.into_iter().map(|stage| stage.label).collect()
    };
    assert_eq!(labels(""), ["validation"]);
    let (near, score) = ("near_dedupe: {}", "score: { estimator: random }");
    let select = "select: { min_score: 0.5 }";
    assert_eq!(
        labels(&format!("{near}, {score}, {select}")),
        ["near_dedupe", "validation", "score", "select"]
    );
    assert_eq!(
        labels(&format!("{score}, {near}, {select}")),
        ["score", "near_dedupe", "validation", "select"]
    );
    assert_eq!(
        labels(&format!("{near}, length: {{}}")),
        ["near_dedupe", "length", "validation"]
    );
}

#[test]
fn what_is_left_out_has_its_default() {
    let plan = load_text(SMALL).expect("valid");
    assert!(plan.stages.is_empty());
    assert_eq!(
        (plan.order.name.as_str(), plan.pack.name.as_str()),
        ("shuffle", "none")
    );
    assert_eq!(
        (plan.output.shard_tokens, plan.output.rejects),
        (64_000_000, Rejects::Tokens)
    );
    assert_eq!(
        (plan.output.usefulness, plan.output.excess_nats),
        (UsefulnessType::U8, false)
    );
    assert_eq!(
        (
            plan.inputs[0].text.as_str(),
            plan.inputs[0].max_document_bytes
        ),
        ("text", 64 << 20)
    );
    assert_eq!((&plan.inputs[0].format, &plan.inputs[0].id), (&None, &None));
    assert_eq!(
        plan.filled,
        "\
version: 1
name: small
seed: 17
inputs:
  - path: a.jsonl
    source: web
    format: null
    text: text
    id: null
    fields:
      url: string
      stars: int
    on_error: quarantine
    max_document_bytes: 67108864
tokenizer:
  builtin: o200k
  begin_token: none
  end_token: none
stages: []
order:
  strategy: shuffle
pack:
  method: none
output:
  path: out/small
  shard_tokens: 64000000
  rejects: tokens
  validation_share: 0.0
  usefulness: u8
  excess_nats: false
"
    );
    assert_eq!(
        load_text(&format!("{SMALL}stages:\n"))
            .expect("valid")
            .stages,
        []
    );
}

#[test]
fn the_filled_configuration_loads_again_to_the_same_plan() {
    let odd = format!(
        "{SMALL}stages: [language: {{ keep: ['no', \"5\", 'a: b', '{{x}}', \"line\\nend\", '*', ''] }}, \
         length: {{ min_tokens: '${{SEED}}' }}, score: {{ estimator: random }}, select: {{ min_score: -1.5e-7 }}]\n"
    );
    let with_out = Overrides {
        set: Vec::new(),
        out: Some("elsewhere".into()),
    };
    let without_path = SMALL.replace("output: { path: out/small }\n", "");
    for (text, overrides) in [
        (FULL, &Overrides::default()),
        (SMALL, &Overrides::default()),
        (&odd, &Overrides::default()),
        (SMALL, &with_out),
        (&without_path, &with_out),
    ] {
        let first = load_text_with(text, overrides).unwrap_or_else(|problems| panic!("{problems}"));
        let second = load_text_with(&first.filled, overrides)
            .unwrap_or_else(|problems| panic!("{problems}\n{}", first.filled));
        assert_eq!(without_places(first), without_places(second));
    }
}

#[test]
fn variables_and_relative_paths_stay_as_written_in_the_filled_configuration() {
    let plan = load_text(FULL).expect("valid");
    assert!(plan.filled.contains(
        "path: [data/web/*.jsonl.zst, \"!data/web/bad*\", \"~/more.jsonl\", \"${DATA}/x.jsonl\"]\n"
    ));
    assert!(
        plan.filled
            .contains("file: \"${TOKENIZERS:-tokenizers}/gpt2.json\"\n"),
        "{}",
        plan.filled
    );
    assert!(plan.filled.contains("path: \"out/$$web\"\n"));
    assert!(!plan.filled.contains("/home/me") && !plan.filled.contains("/data/x"));
}

#[test]
fn the_hash_follows_what_shapes_the_result_and_nothing_else() {
    let hash = |text: &str| {
        load_text(text)
            .unwrap_or_else(|problems| panic!("{problems}"))
            .hash
    };
    let first = hash(SMALL);
    assert_eq!(first.len(), 32);
    assert!(first.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_eq!(hash(&SMALL.replace("out/small", "out/other")), first);
    assert_eq!(
        hash(&SMALL.replace("seed: 17", "# a comment\nseed:    17")),
        first
    );
    assert_eq!(
        hash(&format!("{SMALL}order: {{ strategy: shuffle }}\n")),
        first
    );
    assert_eq!(
        hash(&SMALL.replace("seed: 17", "seed: ${SEED}")),
        hash(&SMALL.replace("seed: 17", "seed: 23"))
    );
    assert_ne!(hash(&SMALL.replace("seed: 17", "seed: 18")), first);
    assert_ne!(
        hash(&SMALL.replace("out/small", "out/small, rejects: none")),
        first
    );
    assert_ne!(
        hash(&SMALL.replace("url: string, stars: int", "stars: int, url: string")),
        first
    );
    let out = Overrides {
        set: Vec::new(),
        out: Some("x".into()),
    };
    let elsewhere = load_text_with(SMALL, &out).expect("valid");
    assert_eq!(
        (elsewhere.hash, elsewhere.output.path),
        (first, PathBuf::from("x"))
    );
    assert_eq!(elsewhere.filled, load_text(SMALL).expect("valid").filled);
}

#[test]
fn the_order_of_keys_in_the_file_does_not_matter() {
    let mut lines: Vec<&str> = SMALL.lines().collect();
    lines.reverse();
    let turned = load_text(&lines.join("\n")).expect("valid");
    assert_eq!(
        without_places(turned),
        without_places(load_text(SMALL).expect("valid"))
    );
}

#[test]
fn variables_stand_for_numbers_too_and_never_turn_a_text_into_one() {
    let plan = load_text(
        &SMALL
            .replace("17", "${SEED}")
            .replace("small\nseed", "${WORD}\nseed"),
    )
    .expect("valid");
    assert_eq!((plan.seed, plan.name.as_str()), (23, "true"));
    assert!(
        plan.filled
            .contains("name: \"${WORD}\"\nseed: \"${SEED}\"\n")
    );
    let plan = load_text(&SMALL.replace("17", "'${SEED}'")).expect("valid");
    assert_eq!(plan.seed, 23);
}

// ---- --set

#[test]
fn set_changes_adds_and_replaces() {
    let plan = set(
        FULL,
        &[
            "seed=99",
            "stages.length#2.min_tokens=5",
            "stages.exact_dedupe.normalise=true",
            "stages.select={keep_tokens: 7}",
            "inputs.web.id=key",
            "inputs.1.path=[x.jsonl, y.jsonl]",
            "output.rejects=none",
            "order={strategy: sorted, by: stars}",
            "order.direction=descending",
        ],
    )
    .unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(plan.seed, 99);
    assert_eq!(plan.stages[0].options.integer("min_tokens"), 5);
    assert_eq!(plan.stages[4].options.integer("min_tokens"), 5);
    assert_eq!(
        plan.stages[4].options.integer_if_given("max_tokens"),
        Some(1000)
    );
    assert!(plan.stages[2].options.flag("normalise"));
    assert_eq!(
        plan.stages[6].options.integer_if_given("keep_tokens"),
        Some(7)
    );
    assert_eq!(
        plan.stages[6]
            .options
            .number_if_given("keep_share_of_tokens"),
        None
    );
    assert_eq!(plan.inputs[0].id.as_deref(), Some("key"));
    assert_eq!(plan.inputs[1].globs, ["x.jsonl", "y.jsonl"]);
    // The sixth of them, which a problem found later names.
    let place = plan.inputs[1].place;
    assert_eq!(place, Place { line: 0, column: 6 });
    assert_eq!(
        plan.problem(place, "no such file").to_string(),
        "--set inputs.1.path=[x.jsonl, y.jsonl]: no such file"
    );
    assert_eq!(
        plan.stages[4].place(&["min_tokens"]),
        Place { line: 0, column: 2 }
    );
    assert_eq!(plan.output.rejects, Rejects::None);
    assert_eq!(plan.order.options.text("direction"), "descending");
    assert!(plan.filled.contains("seed: 99\n"));
    // A section that the file lacks, and the last of two.
    let plan = set(
        SMALL,
        &[
            "pack.method=best_fit",
            "pack.sequence_tokens=4",
            "pack.sequence_tokens=8",
        ],
    )
    .expect("valid");
    assert_eq!(plan.pack.options.integer("sequence_tokens"), 8);
}

#[test]
fn set_gives_what_the_file_lacks() {
    let plan = set(&SMALL.replace("seed: 17\n", ""), &["seed=3"]).expect("valid");
    assert_eq!(plan.seed, 3);
}

#[test]
fn a_wrong_set_is_named_with_the_way_out() {
    let wrong = |set_text: &str| {
        let found = problems(set(FULL, &[set_text]));
        assert_eq!(found.len(), 1, "{found:?}");
        found.into_iter().next().expect("one")
    };
    assert_eq!(
        wrong("seed"),
        "--set seed: must be KEY.PATH=VALUE, such as seed=5 or stages.length.min_tokens=16"
    );
    assert_eq!(
        wrong("stages..x=1"),
        "--set stages..x=1: 'stages..x' must be keys joined by single dots, such as stages.length.min_tokens"
    );
    assert_eq!(
        wrong("sed=5"),
        "--set sed=5: unknown key 'sed' in the pipeline; did you mean 'seed'?"
    );
    assert_eq!(
        wrong("seed=-5"),
        "--set seed=-5: 'seed' must be 0 or more, got -5"
    );
    assert_eq!(
        wrong("seed="),
        "--set seed=: 'seed' must be a whole number, 0 or more, got nothing; fill it in"
    );
    assert_eq!(
        wrong("stages.lenght.min_tokens=5"),
        "--set stages.lenght.min_tokens=5: no 'lenght' in 'stages'; did you mean 'length'?"
    );
    assert_eq!(
        wrong("stages.length#3.min_tokens=5"),
        "--set stages.length#3.min_tokens=5: no 'length#3' in 'stages'; did you mean 'length#2'?"
    );
    assert_eq!(
        wrong("stages.length.min_token=5"),
        "--set stages.length.min_token=5: unknown option 'min_token' of stage 'length'; did you mean 'min_tokens'?"
    );
    assert_eq!(
        wrong("inputs.book.id=5"),
        "--set inputs.book.id=5: no 'book' in 'inputs'; it has web, no"
    );
    assert_eq!(
        wrong("inputs.0.path.9=x"),
        "--set inputs.0.path.9=x: no '9' in 'inputs.0.path'; its entries are numbered, from 0, and it has 4"
    );
    assert_eq!(
        wrong("seed.x=5"),
        "--set seed.x=5: 'seed' is a single value and has no 'x'; set 'seed' itself"
    );
    assert_eq!(
        wrong("name=[a"),
        "--set name=[a: the '[' of 1:1 is not closed, or a ',' is missing before this; add ']' or ','"
    );
}

// ---- What is refused, each with its message

#[test]
fn every_problem_is_reported_at_once_in_the_order_of_the_file() {
    let text = "\
version: 2
name: x
sed: 5
inputs:
  - path: a.jsonl
    sorce: web
    on_error: ignore
tokenizer: { file: t.json, builtin: o200k }
stages:
  - lenght: {}
  - length: { min_tokens: 0, max_tokens: many }
  - select: { keep_share_of_tokens: 60%, by: scor }
order: { strategy: sortd }
pack: { method: best_fit }
output: { path: out, shard_tokens: 1.5, path: b }
";
    assert_eq!(
        problems(load_text(text)),
        [
            "1:1: the pipeline needs 'seed', a whole number, 0 or more; add it",
            "1:10: 'version' must be 1, got 2",
            "3:1: unknown key 'sed' in the pipeline; did you mean 'seed'?",
            "5:5: input 1 needs 'source', a text; add it",
            "6:5: unknown key 'sorce' of input 1; did you mean 'source'?",
            "7:15: 'on_error' must be quarantine or fail, got 'ignore'",
            "8:37: 'tokenizer' must name 'file' or 'builtin', got both; remove one",
            "10:5: unknown stage 'lenght'; did you mean 'length'? 'goodput stages' lists them all",
            "11:27: 'min_tokens' must be 1 or more, got 0",
            "11:42: 'max_tokens' must be a whole number, from 1 to 1_000_000, got 'many'",
            "12:37: 'keep_share_of_tokens' must be a number, from 0 to 1, got '60%'; write 0.6",
            "13:20: unknown strategy 'sortd'; did you mean 'sorted'?",
            "14:7: method 'best_fit' needs 'sequence_tokens', a whole number, from 1 to 1_048_576; add it",
            "15:36: 'shard_tokens' must be a whole number, from 1 to 2_147_483_647, got 1.5",
            "15:41: key 'path' stands twice, first at 15:11; remove one",
        ]
    );
}

#[test]
fn wrong_types_and_bounds_are_refused() {
    refused(
        "stages: [length: { max_tokens: 1_000_001 }]",
        &["7:32: 'max_tokens' must be from 1 to 1_000_000, got 1_000_001"],
    );
    refused(
        "stages: [length: { max_tokens: '5' }]",
        &[
            "7:32: 'max_tokens' must be a whole number, from 1 to 1_000_000, got '5'; remove the quotes",
        ],
    );
    refused(
        "stages: [length: { min_tokens: 99999999999999999999 }]",
        &[
            "7:32: 'min_tokens' must be 18_446_744_073_709_551_615 or less, got 99999999999999999999",
        ],
    );
    refused(
        "stages: [length: { min_tokens: null }]",
        &[
            "7:20: 'min_tokens' must be a whole number, 1 or more, got nothing; remove the key for the default, 1",
        ],
    );
    refused(
        "stages: [length: { min_tokens: [1] }]",
        &["7:32: 'min_tokens' must be a whole number, 1 or more, got a list"],
    );
    refused(
        "stages: [length: { min_tokens: 64MiB }]",
        &["7:32: 'min_tokens' must be a whole number, 1 or more, got '64MiB'"],
    );
    for (value, shown) in [
        (".nan", ".nan"),
        (".inf", ".inf"),
        ("nan", "'nan'"),
        ("{}", "a mapping"),
        ("'0.5'", "'0.5'; remove the quotes"),
    ] {
        refused(
            &format!("stages: [language: {{ keep: en, min_probability: {value} }}]"),
            &[&format!(
                "7:49: 'min_probability' must be a number, from 0 to 1, got {shown}"
            )],
        );
    }
    for value in ["1.0000001", "-0.1", "1e999"] {
        refused(
            &format!("stages: [language: {{ keep: en, min_probability: {value} }}]"),
            &[&format!(
                "7:49: 'min_probability' must be from 0 to 1, got {value}"
            )],
        );
    }
    refused(
        "stages: [language: { keep: en, strict: yes }]",
        &["7:40: 'strict' must be true or false, got 'yes'; write true"],
    );
    refused(
        "stages: [language: { keep: en, strict: 1 }]",
        &["7:40: 'strict' must be true or false, got 1"],
    );
    refused(
        "stages: [language: { keep: [en, 5] }]",
        &["7:33: 'keep' must be a text, got 5; put it in quotes if it is meant as text"],
    );
    refused(
        "stages: [language: { keep: { en: 1 } }]",
        &["7:28: 'keep' must be a text or a list of texts, got a mapping"],
    );
    refused(
        "stages: [language: {}]",
        &["7:10: stage 'language' needs 'keep', a text or a list of texts; add it"],
    );
    refused(
        "stages: [language]",
        &["7:10: stage 'language' needs 'keep', a text or a list of texts; add it"],
    );
    refused(
        "stages: [near_dedupe: { keep: frist }]",
        &[
            "7:31: 'keep' must be first, longest, highest_score, preferred_source or none, got 'frist'; did you mean 'first'?",
        ],
    );
    refused(
        "stages: [score: { estimator: ngram_excess, reference: a, model_bytes: 12 MiBs }]",
        &[
            "7:71: 'model_bytes' must be a size such as 64MiB or a whole number of bytes, from 1024 to 1_099_511_627_776, \
         got '12 MiBs'",
        ],
    );
    refused(
        "stages: [score: { estimator: ngram_excess, reference: a, model_bytes: 1kB }]",
        &["7:71: 'model_bytes' must be from 1024 to 1_099_511_627_776, got '1kB'"],
    );
}

#[test]
fn bounds_are_inclusive() {
    for share in ["0", "0.0", "1", "1.0"] {
        load_text(&format!(
            "{SMALL}stages: [language: {{ keep: en, min_probability: {share} }}]"
        ))
        .expect("valid");
    }
    for tokens in ["1", "1_000_000"] {
        load_text(&format!(
            "{SMALL}stages: [length: {{ max_tokens: {tokens} }}]"
        ))
        .expect("valid");
    }
}

#[test]
fn wrong_shapes_of_sections_are_refused() {
    refused(
        "stages: { length: {} }",
        &["7:9: 'stages' must be a list of stages, got a mapping; put '- ' before each stage"],
    );
    refused(
        "stages: length",
        &["7:9: 'stages' must be a list of stages, got 'length'"],
    );
    refused(
        "stages: [5]",
        &[
            "7:10: a stage must be a name with its options, such as '- length: { min_tokens: 16 }', got 5",
        ],
    );
    refused(
        "stages: [{}]",
        &[
            "7:10: a stage must be a name with its options, such as '- length: { min_tokens: 16 }', got an empty mapping",
        ],
    );
    refused(
        "stages:\n  - length:\n    min_tokens: 5\n",
        &[
            "9:5: a stage must be a name with its options, such as '- length: { min_tokens: 16 }', got several keys \
         ('length', 'min_tokens'); put '- ' before each stage, and indent options below their stage",
        ],
    );
    refused(
        "stages: [length: 5]",
        &["7:18: the options of stage 'length' must be a mapping, got 5"],
    );
    refused(
        "order: shuffle",
        &[
            "7:8: 'order' must be a mapping with 'strategy', such as { strategy: shuffle }, got 'shuffle'",
        ],
    );
    refused(
        "order: {}",
        &["7:8: 'order' needs 'strategy', shuffle, sorted, warmup or tail; add it"],
    );
    refused(
        "pack: { method: nope }",
        &["7:17: unknown method 'nope'; did you mean 'none'?"],
    );
    refused(
        "pack: { method: something }",
        &["7:17: unknown method 'something'; valid: none, best_fit"],
    );
    refused(
        "stages: [score]",
        &["7:10: stage 'score' needs 'estimator', random or ngram_excess; add it"],
    );
    refused(
        "stages: [score: { estimator: random, x: 1 }]",
        &["7:38: unknown option 'x' of estimator 'random'; valid: calibration"],
    );
    refused(
        "stages: [length: { colour: red }]",
        &["7:20: unknown option 'colour' of stage 'length'; valid: min_tokens, max_tokens"],
    );
    refused(
        "stages: [wurst]",
        &["7:10: unknown stage 'wurst'; 'goodput stages' lists them all"],
    );
    refused(
        "output: { path: x }",
        &["7:1: key 'output' stands twice, first at 5:1; remove one"],
    );
    refused(
        "order: { strategy: warmup, share: 0.5, inner: { strategy: sorted, by: stars, dir: up } }",
        &["7:78: unknown option 'dir' of strategy 'sorted'; valid: by, direction"],
    );
    assert_eq!(
        problems(load_text("[1]")),
        ["1:1: a pipeline file must be a mapping that begins with 'version: 1', got a list"]
    );
}

#[test]
fn missing_sections_are_named_with_an_example() {
    assert_eq!(
        problems(load_text("version: 1\nname: n\nseed: 1\n")),
        [
            "1:1: the pipeline needs 'inputs', a list of at least one; add 'inputs:' and under it '- { path: \
             data/*.jsonl, source: web }'",
            "1:1: the pipeline needs 'tokenizer'; add 'tokenizer: { file: tokenizer.json }', or name a 'builtin'",
            "1:1: the pipeline needs 'output'; add 'output: { path: out/NAME }', or give --out DIR",
        ]
    );
}

#[test]
fn what_is_wrong_with_inputs_is_refused() {
    let input = |input: &str, expected: &[&str]| {
        assert_eq!(
            problems(load_text(&format!("{HEAD}inputs: [ {input} ]"))),
            expected,
            "{input}"
        );
    };
    assert_eq!(
        problems(load_text(&format!("{HEAD}inputs: []"))),
        ["6:9: 'inputs' must be a list of at least one, got an empty list; add one"]
    );
    assert_eq!(
        problems(load_text(&format!(
            "{HEAD}inputs: {{ path: a, source: b }}"
        ))),
        [
            "6:9: 'inputs' must be a list of at least one input, got a mapping; put '- ' before the first key of the input"
        ]
    );
    input(
        "{ path: [], source: a }",
        &["6:19: 'path' must name at least one file, got an empty list; add a path or a glob"],
    );
    input(
        "{ path: ['!x'], source: a }",
        &["6:19: 'path' must have a glob that does not exclude, got only '!' globs; add one"],
    );
    input(
        "{ path: '', source: a }",
        &["6:19: 'path' must be a path, got ''; name a file or folder"],
    );
    input(
        "{ path: 'a[', source: a }",
        &["6:19: 'path' must be a valid glob, got 'a[': unclosed character class; missing ']'"],
    );
    for remote in [
        "s3://b/x",
        "gs://b/x",
        "az://b/x",
        "http://b/x",
        "https://b/x",
        "S3://b/x",
    ] {
        input(
            &format!("{{ path: '{remote}', source: a }}"),
            &[&format!(
                "6:19: 'path' must be a local path, got '{remote}'; remote paths are not supported yet: copy the files \
             here and name the copy"
            )],
        );
    }
    input(
        "{ path: a, source: a, format: csv }",
        &[
            "6:41: 'format' must be jsonl, parquet, arrow or text, got 'csv', which is not supported yet; convert the \
         files to jsonl or parquet",
        ],
    );
    for format in ["warc", "wet"] {
        let found = problems(load_text(&format!(
            "{HEAD}inputs: [ {{ path: a, source: a, format: {format} }} ]"
        )));
        assert!(
            found.len() == 1 && found[0].contains("not supported yet; "),
            "{found:?}"
        );
    }
    input(
        "{ path: a, source: a, format: josnl }",
        &[
            "6:41: 'format' must be jsonl, parquet, arrow or text, got 'josnl'; did you mean 'jsonl'?",
        ],
    );
    input(
        "{ path: a, source: a, format: text, id: x, fields: { y: int } }",
        &[
            "6:41: 'format: text' has no fields for 'id' to name; remove 'id'",
            "6:41: 'format: text' has no fields for 'fields' to name; remove 'fields'",
        ],
    );
    input(
        "{ path: a, source: '' }",
        &["6:30: 'source' must be a text of at least one character, got ''"],
    );
    input(
        "{ path: a, source: 2024 }",
        &["6:30: 'source' must be a text, got 2024; put it in quotes if it is meant as text"],
    );
    input(
        "{ path: a, source: a, text: a..b }",
        &["6:39: 'text' must be a field, or keys joined by single dots, got 'a..b'"],
    );
    input(
        "{ path: a, source: a, max_document_bytes: 0 }",
        &["6:53: 'max_document_bytes' must be from 1 to 1_099_511_627_776, got 0"],
    );
    input(
        "{ path: a, source: a, fields: { x: strin } }",
        &["6:46: 'x' must be string, int, float or bool, got 'strin'; did you mean 'string'?"],
    );
    input(
        "{ path: a, source: a, fields: { x: { type: int } } }",
        &["6:46: field 'x' needs 'path', a text; add it"],
    );
    input(
        "{ path: a, source: a, fields: { score: float } }",
        &[
            "6:43: the name 'score' of a field is taken by a column of the output; take another one and say where it is \
         read: record_score: { path: score, type: string }",
        ],
    );
    input(
        "{ path: a, source: a, fields: [x] }",
        &[
            "6:41: 'fields' must be a mapping of names to types, such as { url: string }, got a list",
        ],
    );
    input(
        "{ path: a, source: a, fields: { x: int } }, { path: b, source: a, fields: { x: float } }",
        &[
            "6:90: field 'x' must have one type in all inputs, got 'float' after 'int'; declare it alike, or under another \
         name with { path: x, type: float }",
        ],
    );
    input(
        "'a.jsonl'",
        &["6:11: input 1 must be a mapping with 'path' and 'source', got 'a.jsonl'"],
    );
}

#[test]
fn what_is_wrong_with_the_tokenizer_is_refused() {
    let tokenizer = |section: &str, expected: &[&str]| {
        let text = SMALL.replace("{ builtin: o200k }", section);
        assert_eq!(problems(load_text(&text)), expected, "{section}");
    };
    tokenizer(
        "{}",
        &["4:12: 'tokenizer' must name 'file' or 'builtin', got neither; add one"],
    );
    tokenizer(
        "gpt2",
        &["4:12: 'tokenizer' must be a mapping with 'file' or 'builtin', got 'gpt2'"],
    );
    tokenizer(
        "{ file: a, end_token: '' }",
        &["4:34: 'end_token' must be a text of at least one character, got ''"],
    );
    tokenizer(
        "{ file: a, end_token: null }",
        &["4:23: 'end_token' must be a text, got nothing; remove the key for the default, none"],
    );
    tokenizer(
        "{ file: https://x/y.json }",
        &[
            "4:20: 'file' must be a local path, got 'https://x/y.json'; remote paths are not supported yet: copy the files \
         here and name the copy",
        ],
    );
}

#[test]
fn what_needs_a_score_is_refused_without_one_before_it() {
    let needs = |place: &str, what: &str, before: &str| {
        format!(
            "{place}: '{what}' needs a stage 'score'{before}; add one, or use 'length_tokens' or a declared field"
        )
    };
    refused(
        "stages: [select: { keep_tokens: 5 }, score: { estimator: random }]",
        &[&needs("7:10", "by: score", " before 'select'")],
    );
    refused(
        "stages: [select: { keep_tokens: 5, by: usefulness }]",
        &[&needs("7:40", "by: usefulness", " before 'select'")],
    );
    refused(
        "order: { strategy: sorted, by: difficulty }",
        &[&needs("7:32", "by: difficulty", "")],
    );
    refused(
        "order: { strategy: sorted }",
        &[&needs("7:8", "by: score", "")],
    );
    refused(
        "order: { strategy: warmup, share: 0.5 }",
        &[&needs("7:8", "by: score", "")],
    );
    refused(
        "order: { strategy: tail }",
        &[&needs("7:8", "strategy: score", "")],
    );
    refused(
        "stages: [near_dedupe: { keep: highest_score }, score: { estimator: random }]",
        &[
            "7:31: 'keep: highest_score' needs a stage 'score' before 'near_dedupe'; add one there, or keep first or longest",
        ],
    );
    let text = SMALL.replace("path: out/small", "path: out, excess_nats: true");
    assert_eq!(
        problems(load_text(&text)),
        ["5:35: 'excess_nats: true' needs a stage 'score'; add one, or remove it"]
    );
    for valid in [
        "stages: [score: { estimator: random }, near_dedupe: { keep: highest_score }, select: { min_score: 0.5 }]",
        "stages: [select: { keep_tokens: 5, by: length_tokens }]",
        "stages: [select: { keep_tokens: 5, by: stars }]",
        "stages: [select: { keep_share_of_tokens: 0.5, by: random }]",
        "stages: [score: { estimator: random }]\norder: { strategy: tail }",
    ] {
        load_text(&format!("{SMALL}{valid}"))
            .unwrap_or_else(|problems| panic!("{valid}: {problems}"));
    }
}

#[test]
fn what_needs_excess_or_difficulty_is_refused_with_an_estimator_without() {
    let score = "stages: [score: { estimator: random }]\n";
    for (key, what) in [("excess_nats", "excess"), ("difficulty", "difficulty")] {
        let told = format!(
            "8:32: 'by: {key}' needs an estimator with {what} (ngram_excess), got 'random'; use 'by: score'"
        );
        refused(
            &format!("{score}order: {{ strategy: sorted, by: {key} }}"),
            &[&told],
        );
    }
    let text = SMALL.replace("path: out/small", "path: out, excess_nats: true");
    assert_eq!(
        problems(load_text(&format!("{text}{score}"))),
        [
            "5:35: 'excess_nats: true' needs an estimator with excess, got 'random'; name another one, or remove it"
        ]
    );
}

#[test]
fn sort_keys_must_be_known_or_numeric_fields() {
    refused(
        "stages: [select: { keep_tokens: 5, by: scor }]",
        &[
            "7:40: 'by' must be score, usefulness, excess_nats, difficulty, length_tokens, random or stars or a declared \
         numeric field, got 'scor'; did you mean 'score'?",
        ],
    );
    refused(
        "order: { strategy: sorted, by: random }",
        &[
            "7:32: 'by' must be score, usefulness, excess_nats, difficulty, length_tokens or stars or a declared numeric \
         field, got 'random'; declare it under 'fields' of an input as int or float",
        ],
    );
    refused(
        "order: { strategy: sorted, by: url }",
        &[
            "7:32: 'by' must name a numeric field, got 'url', which is declared as string; declare it as int or float if it \
         holds numbers",
        ],
    );
}

#[test]
fn options_that_make_no_sense_together_are_refused() {
    refused(
        "stages: [length: { min_tokens: 9, max_tokens: 8 }]",
        &["7:47: 'max_tokens' must be min_tokens (9) or more, got 8"],
    );
    refused(
        "stages: [select: {}]",
        &[
            "7:10: 'by: score' needs a stage 'score' before 'select'; add one, or use 'length_tokens' or a declared field",
            "7:10: 'select' must have 'keep_share_of_tokens', 'keep_tokens' or 'min_score', got none; add one",
        ],
    );
    refused(
        "stages: [select: { by: stars }]",
        &[
            "7:10: 'select' must have 'keep_share_of_tokens', 'keep_tokens' or 'min_score', got none; add one",
        ],
    );
    refused(
        "stages: [select: { by: stars, keep_tokens: 1, keep_share_of_tokens: 0.1 }]",
        &["7:44: 'select' must have 'keep_share_of_tokens' or 'keep_tokens', got both; remove one"],
    );
    refused(
        "stages: [select: { by: random, keep_tokens: 1, min_score: 1 }]",
        &["7:59: 'min_score' means nothing with 'by: random'; remove it, or select by another key"],
    );
    refused(
        "stages: [near_dedupe: { keep: preferred_source }]",
        &[
            "7:31: 'keep: preferred_source' needs 'preferred_sources'; list the sources, the most preferred first",
        ],
    );
    refused(
        "stages: [near_dedupe: { preferred_sources: [web] }]",
        &[
            "7:44: 'preferred_sources' does nothing with 'keep: first'; write 'keep: preferred_source', or remove it",
        ],
    );
    refused(
        "stages: [near_dedupe: { keep: preferred_source, preferred_sources: [wbe, web, web] }]",
        &[
            "7:68: 'preferred_sources' must name sources of 'inputs', got 'wbe'; did you mean 'web'?",
            "7:68: 'preferred_sources' names 'web' twice; remove one",
        ],
    );
    refused(
        "stages: [score: { estimator: random }, line_dedupe: {}, paragraph_dedupe: {}]",
        &[
            "7:40: stage 'line_dedupe' cuts texts, so it must stand before 'score', which gives every token of a text its \
             usefulness; move it up",
            "7:57: stage 'paragraph_dedupe' cuts texts, so it must stand before 'score', which gives every token of a text \
             its usefulness; move it up",
        ],
    );
    refused(
        "stages: [score: { estimator: random }, score: { estimator: random }]",
        &[
            "7:40: a pipeline must have at most one stage 'score', got a second one; remove one of them",
        ],
    );
    refused(
        "stages: [select: { by: random, keep_share_of_tokens: 0.0 }]",
        &["7:54: 'keep_share_of_tokens' must be above 0, got 0, which keeps nothing"],
    );
    refused(
        "stages: [select: { by: random, keep_tokens: 0 }]",
        &["7:45: 'keep_tokens' must be 1 or more, got 0"],
    );
    for reference in ["", ", reference: null"] {
        let found = problems(load_text(&format!(
            "{SMALL}stages: [score: {{ estimator: ngram_excess{reference} }}]"
        )));
        assert!(
            found.len() == 1
                && found[0].contains("estimator 'ngram_excess' needs 'reference'; name files"),
            "{found:?}"
        );
    }
    refused(
        "order: { strategy: warmup, share: 0.95, inner: { strategy: shuffle } }",
        &["7:35: 'share' must be 0.9 or less here, got 0.95"],
    );
    refused(
        "order: { strategy: warmup, share: 0.5, inner: { strategy: warmup, share: 1, inner: { strategy: shuffle } } }",
        &["7:74: 'share' must be 0.9 or less here, got 1"],
    );
    let text = SMALL.replace("path: out/small", "path: out, shard_tokens: 100");
    load_text(&format!(
        "{text}pack: {{ method: best_fit, sequence_tokens: 100 }}"
    ))
    .expect("a row may fill a shard");
    assert_eq!(
        problems(load_text(&format!(
            "{text}pack: {{ method: best_fit, sequence_tokens: 101 }}"
        ))),
        [
            "7:44: a row of 101 tokens does not fit into a shard of 100; raise 'output.shard_tokens', or make rows shorter"
        ]
    );
}

#[test]
fn a_wrong_part_causes_no_problems_elsewhere() {
    // The unknown estimator and the unreadable fields are not blamed on those who need them.
    refused(
        "stages: [score: { estimator: ngram }, select: { keep_tokens: 5 }]\norder: { strategy: sorted, by: difficulty }",
        &["7:30: unknown estimator 'ngram'; valid: random, ngram_excess"],
    );
    let text = SMALL.replace("stars: int", "stars: integer");
    assert_eq!(
        problems(load_text(&format!(
            "{text}order: {{ strategy: sorted, by: stars }}"
        ))),
        ["6:71: 'stars' must be string, int, float or bool, got 'integer'"]
    );
}

#[test]
fn missing_variables_and_a_missing_home_are_refused() {
    refused(
        "stages: [language: { keep: '${NONE}' }]",
        &[
            "7:28: 'keep': the environment variable 'NONE' is not set; set it, or give a default: ${NONE:-default}",
        ],
    );
    let homeless = |_: &str| None;
    let text = SMALL.replace("a.jsonl", "~/a.jsonl");
    let found = check::check(
        "p.yaml".as_ref(),
        &text,
        &Overrides::default(),
        &tables(),
        &homeless,
    );
    assert_eq!(
        found.expect_err("refused").to_string(),
        "p.yaml:6:19: 'path' begins with '~', but the environment variable 'HOME' is not set; set it"
    );
}

#[test]
fn yaml_that_hides_something_is_refused_once() {
    let found = problems(load_text(
        &SMALL
            .replace("17", "&seed 17")
            .replace("name: small", "name: !x small"),
    ));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].starts_with("2:7: tags (!name)")
            && found[1].starts_with("3:7: anchors and aliases")
    );
    let bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n";
    assert!(
        problems(load_text(bomb))
            .iter()
            .filter(|problem| problem.contains("anchors and aliases"))
            .count()
            >= 3
    );
}

#[test]
fn control_characters_and_long_values_do_not_reach_the_terminal_as_they_are() {
    let found = problems(load_text(&format!(
        "{SMALL}stages: [length: {{ min_tokens: \"\\e[31m{}\" }}]",
        "x".repeat(1000)
    )));
    assert!(
        found[0].contains("got '\\u{1b}[31mxxx") && found[0].ends_with("…'"),
        "{found:?}"
    );
    assert!(found[0].chars().count() < 200);
}

#[test]
fn a_hundred_thousand_unknown_keys_are_as_many_problems() {
    let mut text = String::from(SMALL);
    for number in 0..100_000 {
        text.push_str(&format!("k{number}: 1\n"));
    }
    let found = load_text(&text).expect_err("refused");
    assert_eq!(found.0.len(), 100_000);
    assert!(found.to_string().ends_with("and 99900 more problems"));
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "version", "inputs", "stages", "order", "path", ": ", ":", "- ", "\n", "\n  ", "[", "]", "{", "}", ", ",
                "\"", "'", "&a ", "*a", "!t ", "? ", "|", ">", "#", "%", "\t", "---\n", "...\n", "1", ".nan", "null",
                "length", "score", "${SEED}", "${", "$$", "\u{feff}", "\u{0}", "é", "\r\n", "<<", "@",
            ]),
            0..40,
        )
    ) {
        let text: String = words.concat();
        let _ = load_text(&text);
        let _ = load_text(&format!("{SMALL}{text}"));
        let _ = set(SMALL, &[&text, &format!("stages={text}"), &format!("{text}=1")]);
    }
}

// ---- Files

fn load_bytes(bytes: &[u8]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("p.yaml");
    std::fs::write(&path, bytes).expect("written");
    let found =
        load_with(&path, &Overrides::default(), &tables(), &environment).expect_err("refused");
    let prefix = format!("{}:", path.display());
    found
        .0
        .iter()
        .map(|problem| problem.to_string().replace(&prefix, ""))
        .collect()
}

#[test]
fn files_that_hold_no_pipeline_are_refused() {
    const NOTHING: &str = "1:1: the file holds nothing; a pipeline file begins with 'version: 1' ('goodput schema \
                           pipeline' describes the rest)";
    for empty in [&b""[..], b"\n", b"# only a comment\n", b"\xef\xbb\xbf"] {
        assert_eq!(load_bytes(empty), [NOTHING]);
    }
    assert_eq!(
        load_bytes(b"version: 1\nname: \xc3\xa9\xff\n"),
        ["2:8: byte 0xFF is not valid UTF-8; save the file as UTF-8"]
    );
    assert!(load_bytes(b"--- \n")[0].contains("a pipeline file must be a mapping"));
    assert!(load_bytes(&b"[".repeat(10_000))[0].contains("the nesting is too deep"));
}

#[test]
fn a_missing_file_and_a_folder_are_refused_with_the_way_out() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let missing = folder.path().join("none.yaml");
    let message = load(&missing, &Overrides::default())
        .expect_err("refused")
        .to_string();
    assert_eq!(
        message,
        format!(
            "{}: no such file; name an existing pipeline file ('goodput schema pipeline' describes what stands in one)",
            missing.display()
        )
    );
    let message = load(folder.path(), &Overrides::default())
        .expect_err("refused")
        .to_string();
    assert!(
        message.ends_with(": is a folder; name the pipeline file in it"),
        "{message}"
    );
}

#[test]
fn a_file_is_read_from_its_own_folder() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("p.yaml");
    std::fs::write(&path, SMALL).expect("written");
    let plan = load_with(&path, &Overrides::default(), &tables(), &environment).expect("valid");
    assert_eq!(plan.base, folder.path());
    assert_eq!(plan.output.path, folder.path().join("out/small"));
    let place = plan.inputs[0].place;
    assert_eq!(
        plan.problem(place, "no file matches").to_string(),
        format!("{}:6:19: no file matches", path.display())
    );
}

#[test]
fn a_bare_file_name_has_the_current_folder_as_base() {
    assert_eq!(base_of("p.yaml".as_ref()), PathBuf::from("."));
    assert_eq!(base_of("a/p.yaml".as_ref()), PathBuf::from("a"));
    assert_eq!(base_of("/p.yaml".as_ref()), PathBuf::from("/"));
}

// ---- The program's own tables

/// A pipeline around one stage, with what its example may refer to.
fn around(stage: &str, example: &str) -> String {
    // Stages that cut texts stand before it, and 'select' after it.
    let score = "  - score: { estimator: random }\n";
    let (before, after) = match stage {
        "score" => ("", ""),
        "select" => (score, ""),
        _ => ("", score),
    };
    format!(
        "{HEAD}inputs: [ {{ path: a.jsonl, source: web, fields: {{ stars: int }} }} ]\nstages:\n{before}  - {stage}: {example}\n{after}"
    )
}

#[test]
fn the_examples_of_the_global_stages_load() {
    for stage in [
        &global::EXACT_DEDUPE,
        &global::PARAGRAPH_DEDUPE,
        &global::LINE_DEDUPE,
        &global::NEAR_DEDUPE,
        &global::SCORE,
        &global::SELECT,
    ] {
        let plan = load_text(&around(stage.name, stage.example));
        let plan = plan.unwrap_or_else(|problems| panic!("{}: {problems}", stage.name));
        assert!(
            plan.stages.iter().any(|found| found.label == stage.name),
            "{}",
            stage.name
        );
    }
}

#[test]
fn every_example_of_the_programs_tables_loads() {
    let program = Tables::program();
    let test = tables();
    let mut examples: Vec<String> = Vec::new();
    for stage in &program.stages {
        examples.push(around(stage.spec.name, stage.spec.example));
    }
    let tagged = |tag: &str, spec: &Spec| {
        let options = spec.example.trim();
        let options = options
            .strip_prefix('{')
            .and_then(|options| options.strip_suffix('}'));
        let options = options.expect("an example is a flow mapping").trim();
        let comma = if options.is_empty() { "" } else { ", " };
        format!("{{ {tag}: {}{comma}{options} }}", spec.name)
    };
    for kind in &program.estimators {
        examples.push(around("score", &tagged("estimator", &kind.spec)));
    }
    let with_all = program
        .estimators
        .iter()
        .find(|kind| kind.has_excess && kind.has_difficulty);
    let score = with_all.map_or_else(
        || "{ estimator: random }".to_string(),
        |kind| tagged("estimator", &kind.spec),
    );
    for kind in &program.strategies {
        examples.push(format!(
            "{}order: {}\n",
            around("score", &score),
            tagged("strategy", &kind.spec)
        ));
    }
    for kind in &program.packers {
        examples.push(format!(
            "{}pack: {}\n",
            around("score", &score),
            tagged("method", &kind.spec)
        ));
    }
    // What the program lacks so far, the small tables give.
    let mixed = Tables {
        stages: program.stages.clone(),
        estimators: if program.estimators.is_empty() {
            test.estimators
        } else {
            program.estimators
        },
        strategies: if program.strategies.is_empty() {
            test.strategies
        } else {
            program.strategies
        },
        packers: if program.packers.is_empty() {
            test.packers
        } else {
            program.packers
        },
    };
    for text in examples {
        let plan = check::check(
            "p.yaml".as_ref(),
            &text,
            &Overrides::default(),
            &mixed,
            &environment,
        );
        if let Err(problems) = plan {
            // The examples name files of the user, and an estimator may read its model when it is built.
            let said = problems.to_string();
            assert!(said.contains("No such file"), "{text}\n{said}");
        }
    }
}
