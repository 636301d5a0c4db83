//! What a pipeline file can name.

use super::global;
use crate::order::StrategyKind;
use crate::pack::PackKind;
use crate::record::{Reason, Spec};
use crate::score::EstimatorKind;
use crate::stages::StageKind;

/// What a pipeline file can name. Tests bring their own.
pub struct Tables {
    /// Per-document stages.
    pub stages: Vec<&'static StageKind>,
    /// Estimators.
    pub estimators: Vec<&'static EstimatorKind>,
    /// Orders.
    pub strategies: Vec<&'static StrategyKind>,
    /// Packing methods.
    pub packers: Vec<&'static PackKind>,
}

impl Tables {
    /// The tables of the program.
    pub fn program() -> Self {
        Tables {
            stages: crate::stages::TABLE.to_vec(),
            estimators: crate::score::TABLE.to_vec(),
            strategies: crate::order::TABLE.to_vec(),
            packers: crate::pack::TABLE.to_vec(),
        }
    }

    pub(super) fn estimator_specs(&self) -> Vec<&'static Spec> {
        self.estimators.iter().map(|kind| &kind.spec).collect()
    }

    pub(super) fn strategy_specs(&self) -> Vec<&'static Spec> {
        self.strategies.iter().map(|kind| &kind.spec).collect()
    }

    pub(super) fn packer_specs(&self) -> Vec<&'static Spec> {
        self.packers.iter().map(|kind| &kind.spec).collect()
    }

    /// Every stage, in the order in which one would explain them.
    pub fn stage_specs(&self) -> Vec<StageSpec> {
        let global = |spec, reasons, notes| StageSpec {
            spec,
            reasons,
            notes,
            sees_all: true,
            choices: None,
        };
        let mut specs: Vec<StageSpec> = self
            .stages
            .iter()
            .map(|kind| StageSpec {
                spec: &kind.spec,
                reasons: kind.reasons,
                notes: kind.notes,
                sees_all: false,
                choices: None,
            })
            .collect();
        specs.push(global(
            &global::EXACT_DEDUPE,
            global::EXACT_DEDUPE_REASONS,
            &[],
        ));
        specs.push(global(
            &global::PARAGRAPH_DEDUPE,
            global::PARAGRAPH_DEDUPE_REASONS,
            global::PARAGRAPH_DEDUPE_NOTES,
        ));
        specs.push(global(
            &global::LINE_DEDUPE,
            global::LINE_DEDUPE_REASONS,
            global::LINE_DEDUPE_NOTES,
        ));
        specs.push(global(
            &global::SPAN_DEDUPE,
            global::SPAN_DEDUPE_REASONS,
            global::SPAN_DEDUPE_NOTES,
        ));
        specs.push(global(
            &global::NEAR_DEDUPE,
            global::NEAR_DEDUPE_REASONS,
            global::NEAR_DEDUPE_NOTES,
        ));
        let mut score = global(&global::SCORE, &[], &[]);
        score.choices = Some((global::SCORE_TAG, self.estimator_specs()));
        specs.push(score);
        specs.push(global(&global::SELECT, global::SELECT_REASONS, &[]));
        specs
    }
}

/// What there is to say of a stage.
#[derive(Clone, Debug)]
pub struct StageSpec {
    /// Name, options, example.
    pub spec: &'static Spec,
    /// Every reason that it may reject a document for.
    pub reasons: &'static [Reason],
    /// What it counts of its work, or leaves undone, in the ledger.
    pub notes: &'static [&'static str],
    /// Whether it sees what reaches it as a whole, rather than each document alone.
    pub sees_all: bool,
    /// The key that names a choice whose options stand beside it, with what can be named.
    pub choices: Option<(&'static str, Vec<&'static Spec>)>,
}

/// Every stage of the program, in the order in which one would explain them.
pub fn stage_specs() -> Vec<StageSpec> {
    Tables::program().stage_specs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn assert_unique(names: impl IntoIterator<Item = &'static str>) {
        let mut seen = BTreeSet::new();
        for name in names {
            assert!(seen.insert(name), "'{name}' stands twice");
        }
    }

    #[test]
    fn no_name_stands_twice_in_a_table() {
        let tables = Tables::program();
        assert_unique(tables.stage_specs().iter().map(|stage| stage.spec.name));
        assert_unique(tables.estimator_specs().iter().map(|spec| spec.name));
        assert_unique(tables.strategy_specs().iter().map(|spec| spec.name));
        assert_unique(tables.packer_specs().iter().map(|spec| spec.name));
        for stage in tables.stage_specs() {
            assert_unique(stage.reasons.iter().map(|reason| reason.name));
            assert_unique(stage.spec.options.iter().map(|option| option.name));
        }
    }
}
