//! `goodput stages`

use super::CliError;
use crate::plan::stage_specs;
use crate::record::{Kind, OptionSpec, Spec};
use crate::terminal;
use std::fmt::Write;

/// List the stages, or explain one: options with units and defaults, reasons, an example that runs.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  goodput stages
  goodput stages near_dedupe
  goodput stages ngram_excess       estimators, orders and packing methods too")]
pub struct Stages {
    /// A stage, estimator, order or packing method.
    name: Option<String>,
}

impl Stages {
    /// Prints the list or the explanation.
    pub fn run(self) -> Result<(), CliError> {
        let mut text = String::new();
        let groups: [(&str, Vec<&'static Spec>); 4] = [
            (
                "stages",
                stage_specs().into_iter().map(|stage| stage.spec).collect(),
            ),
            (
                "estimators, for the stage 'score'",
                crate::score::TABLE.iter().map(|kind| &kind.spec).collect(),
            ),
            (
                "orders, for 'order: { strategy: NAME }'",
                crate::order::specs(),
            ),
            (
                "packing methods, for 'pack: { method: NAME }'",
                crate::pack::specs(),
            ),
        ];
        match &self.name {
            None => {
                for (title, specs) in &groups {
                    let _ = writeln!(text, "{title}");
                    for spec in specs {
                        let _ = writeln!(text, "  {:<18} {}", spec.name, spec.summary);
                    }
                    text.push('\n');
                }
                text.push_str("goodput stages NAME explains one.\n");
            }
            Some(name) => {
                let all: Vec<&Spec> = groups
                    .iter()
                    .flat_map(|(_, specs)| specs.iter().copied())
                    .collect();
                let found: Vec<&Spec> = all
                    .iter()
                    .copied()
                    .filter(|spec| spec.name == name)
                    .collect();
                if found.is_empty() {
                    let known: Vec<&str> = all.iter().map(|spec| spec.name).collect();
                    let near = crate::plan::nearest(name, known.iter().copied());
                    let hint = near.map_or_else(
                        || format!("known are: {}", known.join(", ")),
                        |near| format!("did you mean '{near}'?"),
                    );
                    return Err(CliError::Request(format!(
                        "there is no stage '{name}'; {hint}"
                    )));
                }
                for spec in found {
                    explain(spec, &mut text);
                }
                if let Some(stage) = stage_specs()
                    .into_iter()
                    .find(|stage| stage.spec.name == name)
                {
                    if !stage.reasons.is_empty() {
                        text.push_str("\nReasons\n");
                        for reason in stage.reasons {
                            let _ = writeln!(
                                text,
                                "  {:<36} {:<10} {}",
                                reason.name,
                                reason.class.name(),
                                reason.doc
                            );
                        }
                    }
                    if let Some((tag, choices)) = &stage.choices {
                        let names: Vec<&str> = choices.iter().map(|spec| spec.name).collect();
                        let _ = writeln!(
                            text,
                            "\n'{tag}' is one of: {}. `goodput stages NAME` explains each.",
                            names.join(", ")
                        );
                    }
                }
            }
        }
        terminal::print(&text)?;
        Ok(())
    }
}

fn explain(spec: &Spec, text: &mut String) {
    let _ = writeln!(text, "{}: {}", spec.name, spec.summary);
    if !spec.details.is_empty() {
        let _ = writeln!(text, "\n{}", spec.details.trim());
    }
    if !spec.options.is_empty() {
        text.push_str("\nOptions\n");
    }
    for option in spec.options {
        let default = match option.default {
            None => "required".to_string(),
            Some("null") => "optional".to_string(),
            Some(default) => format!("default {default}"),
        };
        let _ = writeln!(
            text,
            "  {} ({}; {default})\n      {}",
            option.name,
            kind(option),
            option.doc
        );
    }
    let _ = writeln!(text, "\nExample\n  {}: {}", spec.name, spec.example);
}

fn kind(option: &OptionSpec) -> String {
    match &option.kind {
        Kind::Integer { min, max: u64::MAX } => format!("whole number, {min} or more"),
        Kind::Integer { min, max } => format!("whole number, {min} to {max}"),
        // Bounds beyond any sensible value stand for none.
        Kind::Number { min, max } if *max >= 1e12 && *min <= -1e12 => "number".to_string(),
        Kind::Number { min, max } if *max >= 1e12 => format!("number, {min} or more"),
        Kind::Number { min, max } => format!("number, {min} to {max}"),
        Kind::Bool => "true or false".to_string(),
        Kind::Text => "text".to_string(),
        Kind::Choice(words) => words.join(" or "),
        Kind::TextList => "list of texts".to_string(),
        Kind::Path => "path of a file".to_string(),
        Kind::Globs => "globs of files".to_string(),
        Kind::Folders => "list of folders".to_string(),
        Kind::SortKey => {
            "score, usefulness, excess_nats, difficulty, length_tokens or a numeric field"
                .to_string()
        }
        Kind::Variant { tag, .. } => format!("mapping with '{tag}'"),
    }
}
