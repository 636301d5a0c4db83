//! Curriculum: in which order the kept documents are emitted. Works on the index alone.
//!
//! Adding a strategy is one new file here and its line in [`TABLE`].

mod strategy;

pub use strategy::{Item, Items, Keys, OrderInput, Strategy, StrategyKind};

use crate::record::Spec;

/// Every strategy, in the order in which we would explain them.
pub const TABLE: &[&StrategyKind] = &[];

/// The specs of every strategy, for nested options such as `inner`.
pub fn specs() -> Vec<&'static Spec> {
    TABLE.iter().map(|kind| &kind.spec).collect()
}
