//! What a stage that sees all documents cuts out of them, until the next segment prepares them again.

use super::corpus::CutRow;
use crate::algo::hash;
use crate::spill::{ScratchColumn, Spill};
use std::io;

/// A cut with the document that it is made in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NumberedCut {
    /// Number of the document.
    pub number: u64,
    /// Where, and because of which document.
    pub cut: CutRow,
}

/// The cuts of one stage, by document: 8 bytes a document and 24 a cut, in files.
pub struct Edit {
    /// Stage in the chain.
    pub stage: u16,
    /// Reason of that stage.
    pub reason: u16,
    /// First cut of each document, and the number of all.
    starts: ScratchColumn<u64>,
    cuts: ScratchColumn<CutRow>,
}

impl Edit {
    /// Takes cuts in the order of number and start; `most` is how many there are at most. Of cuts that overlap
    /// the later ones are made shorter; with `join`, those that touch and have one keeping document become one.
    pub fn create(
        (stage, reason): (u16, u16),
        join: bool,
        documents: u64,
        sorted: impl Iterator<Item = io::Result<NumberedCut>>,
        most: u64,
        spill: &Spill,
    ) -> io::Result<Edit> {
        let path = |name: &str| spill.folder().join(name);
        let mut starts = ScratchColumn::<u64>::create(&path("edit-starts"), documents + 1)?;
        let mut cuts = ScratchColumn::<CutRow>::create(&path("edit-cuts"), most)?;
        let (mut made, mut next) = (0u64, 0u64);
        for numbered in sorted {
            let NumberedCut { number, mut cut } = numbered?;
            while next <= number {
                starts.values_mut()[next as usize] = made;
                next += 1;
            }
            if made > starts.values()[number as usize] {
                let before = &mut cuts.values_mut()[made as usize - 1];
                if join && cut.start <= before.end && cut.kept == before.kept {
                    before.end = before.end.max(cut.end);
                    continue;
                }
                cut.start = cut.start.max(before.end);
            }
            if cut.start < cut.end {
                cuts.values_mut()[made as usize] = cut;
                made += 1;
            }
        }
        for start in &mut starts.values_mut()[next as usize..] {
            *start = made;
        }
        Ok(Edit {
            stage,
            reason,
            starts,
            cuts,
        })
    }

    /// What is cut out of a document: ascending, none empty, apart or touching.
    pub fn cuts_of(&self, number: u64) -> &[CutRow] {
        let starts = &self.starts.values()[number as usize..][..2];
        &self.cuts.values()[starts[0] as usize..starts[1] as usize]
    }

    /// A hash of all that it does.
    pub fn digest(&self) -> u128 {
        let starts = self.starts.values();
        let cuts = &self.cuts.values()[..starts[starts.len() - 1] as usize];
        let parts = [
            hash::content(bytemuck::cast_slice(starts)),
            hash::content(bytemuck::cast_slice(cuts)),
            u128::from(self.stage) << 16 | u128::from(self.reason),
        ];
        hash::content(bytemuck::cast_slice(&parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_found_by_document_and_never_overlap() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let spill = Spill::new(folder.path(), 1 << 16);
        let cut = |start, end, kept| CutRow { start, end, kept };
        let all = [
            (1, cut(0, 5, 7)),
            (1, cut(5, 9, 7)),
            (1, cut(8, 12, 3)),
            (1, cut(10, 11, 4)),
            (3, cut(2, 4, 7)),
        ];
        let sorted = all.map(|(number, cut)| Ok(NumberedCut { number, cut }));
        let edit = Edit::create((2, 0), true, 5, sorted.into_iter(), 5, &spill)?;
        assert_eq!(edit.cuts_of(0), []);
        assert_eq!(edit.cuts_of(1), [cut(0, 9, 7), cut(9, 12, 3)]);
        assert_eq!(edit.cuts_of(2), []);
        assert_eq!(edit.cuts_of(3), [cut(2, 4, 7)]);
        assert_eq!(edit.cuts_of(4), []);
        let none = Edit::create((2, 0), true, 0, std::iter::empty(), 0, &spill)?;
        assert_ne!(edit.digest(), none.digest());
        Ok(())
    }
}
