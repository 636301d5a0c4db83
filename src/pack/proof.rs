//! Whether rows are those that a packing method makes.

use super::{Frame, Packer, Row};
use crate::order::Items;
use std::io;

/// What [`prove`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The rows are those of the method.
    Holds {
        /// How many.
        rows: u64,
    },
    /// They are not.
    Differs {
        /// The first row, from 0, that is another one.
        row: u64,
        /// The row that was due there; `None` past the last.
        expected: Option<Row>,
        /// The row that stands there; `None` past the last.
        found: Option<Row>,
    },
}

/// Packs `items` anew, which come in curriculum order, and compares with the rows that were `found`:
/// where they are the same, all that the method promises holds, how far documents move included.
///
/// # Errors
/// The first error of `items` or `found`.
pub fn prove(
    packer: &dyn Packer,
    items: Items<'_>,
    frame: Frame,
    mut found: impl Iterator<Item = io::Result<Row>>,
) -> io::Result<Proof> {
    let mut expected = packer.pack(items, frame);
    let mut row = 0;
    loop {
        match (expected.next().transpose()?, found.next().transpose()?) {
            (None, None) => return Ok(Proof::Holds { rows: row }),
            (expected, found) if expected == found => row += 1,
            (expected, found) => {
                return Ok(Proof::Differs {
                    row,
                    expected,
                    found,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn equal_rows_hold_and_a_change_is_found() {
        let method = choice("concat", &[("sequence_tokens", Some(4))]);
        let packer = super::super::build(&method).expect("builds");
        let documents = items(&[3, 6, 2]);
        let frame = frame(0, 1, 100);
        let rows = packed(&method, &documents, frame);
        let proof = |rows: &[Row]| {
            let items = Box::new(documents.iter().map(|&item| Ok(item)));
            prove(&*packer, items, frame, rows.iter().cloned().map(Ok)).expect("no error")
        };
        assert_eq!(rows.len(), 4);
        assert_eq!(proof(&rows), Proof::Holds { rows: 4 });
        let mut changed = rows.clone();
        changed.swap(1, 2);
        assert!(matches!(proof(&changed), Proof::Differs { row: 1, .. }));
        let missing = proof(&rows[..3]);
        assert!(matches!(
            missing,
            Proof::Differs {
                row: 3,
                found: None,
                ..
            }
        ));
        let surplus: Vec<Row> = rows.iter().chain([&rows[3]]).cloned().collect();
        assert!(matches!(
            proof(&surplus),
            Proof::Differs {
                row: 4,
                expected: None,
                ..
            }
        ));
    }
}
