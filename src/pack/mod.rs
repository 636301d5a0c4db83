//! Packing: ordered documents into rows. Works on token counts alone.

mod packer;

pub use packer::{Frame, PackKind, Packer, Row, Rows, Segment};

use crate::record::Spec;

/// Every method, in the order in which we would explain them.
pub const TABLE: &[&PackKind] = &[];

/// The specs of every method.
pub fn specs() -> Vec<&'static Spec> {
    TABLE.iter().map(|kind| &kind.spec).collect()
}
