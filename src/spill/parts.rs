//! Records that are grouped by part and not sorted: an exchange by key range.

use super::Spill;
use super::runs::{Run, RunFile};
use bytemuck::Pod;
use std::io;

/// Most parts: each holds one block of records in memory.
const MAX_PARTS: usize = 256;
/// Bytes of a block where the memory has room for four times one for every part.
const BLOCK_BYTES: usize = 64 << 10;

/// Collects records by part, and gives those of a part back in the order they came; see [`Spill::parts`].
///
/// Three quarters of the memory hold blocks of records, and the last quarter those that are being filled. Further blocks
/// go to one temporary file.
pub struct Parts<T> {
    spill: Spill,
    name: String,
    block_records: usize,
    blocks_left: usize,
    parts: Vec<Part<T>>,
    file: Option<RunFile>,
    records: u64,
}

struct Part<T> {
    /// The first blocks, in memory.
    held: Vec<Vec<T>>,
    /// Those after them, in the file.
    runs: Vec<Run>,
    /// The last one, which is not full.
    open: Vec<T>,
}

impl<T: Pod> Parts<T> {
    pub(super) fn new(spill: Spill, name: &str) -> Self {
        const {
            assert!(
                size_of::<T>() > 0,
                "records without bytes cannot be written"
            )
        };
        let open_bytes = spill.memory_bytes() / 4;
        let parts = (open_bytes / BLOCK_BYTES).clamp(1, MAX_PARTS);
        let block_records = (open_bytes / parts).min(BLOCK_BYTES) / size_of::<T>();
        let block_records = block_records.max(1);
        let block_bytes = block_records * size_of::<T>();
        Parts {
            blocks_left: (spill.memory_bytes() - open_bytes) / block_bytes,
            spill,
            name: name.to_string(),
            block_records,
            parts: (0..parts).map(|_| Part::default()).collect(),
            file: None,
            records: 0,
        }
    }

    /// How many parts there are, which depends on the memory.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// How many records were added to all of them.
    pub fn len(&self) -> u64 {
        self.records
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Adds a record to a part, by its number.
    ///
    /// # Errors
    /// When the temporary file cannot be created or written; the error names it.
    pub fn push(&mut self, part: usize, record: T) -> io::Result<()> {
        let open = &mut self.parts[part].open;
        if open.capacity() == 0 {
            open.reserve_exact(self.block_records);
        }
        open.push(record);
        self.records += 1;
        if open.len() == self.block_records {
            self.close(part)?;
        }
        Ok(())
    }

    fn close(&mut self, part: usize) -> io::Result<()> {
        let part = &mut self.parts[part];
        // A part's blocks are in memory first and in the file then.
        if self.blocks_left > 0 && part.runs.is_empty() {
            self.blocks_left -= 1;
            part.held.push(std::mem::take(&mut part.open));
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(RunFile::create(&self.spill, &self.name)?),
        };
        part.runs.push(Run {
            start: file.end(),
            records: part.open.len() as u64,
        });
        file.append(&part.open)?;
        part.open.clear();
        Ok(())
    }

    /// Records of a part that were not taken.
    pub fn len_of(&self, part: usize) -> u64 {
        let Part { held, runs, open } = &self.parts[part];
        let held: usize = held.iter().map(Vec::len).sum();
        let on_disk: u64 = runs.iter().map(|run| run.records).sum();
        held as u64 + on_disk + open.len() as u64
    }

    /// Takes the records of a part, some at a time, in the order they came.
    ///
    /// # Errors
    /// When the temporary file cannot be read, which the error names, or `visit` fails.
    pub fn take(
        &mut self,
        part: usize,
        mut visit: impl FnMut(&[T]) -> io::Result<()>,
    ) -> io::Result<()> {
        let Part { held, runs, open } = std::mem::take(&mut self.parts[part]);
        for block in held {
            visit(&block)?;
        }
        let mut block = Vec::new();
        for run in runs {
            let file = self.file.as_mut().expect("runs were written to it");
            block.resize(run.records as usize, T::zeroed());
            file.read(run.start, &mut block)?;
            visit(&block)?;
        }
        visit(&open)
    }
}

impl<T> Default for Part<T> {
    fn default() -> Self {
        Part {
            held: Vec::new(),
            runs: Vec::new(),
            open: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_fit_the_memory() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for memory_bytes in [0, 1_000, 1 << 20, 100 << 20] {
            let parts = Spill::new(folder.path(), memory_bytes).parts::<[u64; 3]>("test");
            let block = parts.block_records * size_of::<[u64; 3]>();
            let most = (parts.parts() + parts.blocks_left) * block;
            assert!(most <= memory_bytes.max(block), "{memory_bytes}");
            assert!(parts.parts() <= MAX_PARTS);
        }
        assert_eq!(
            Spill::new(folder.path(), 100 << 20)
                .parts::<u8>("test")
                .parts(),
            MAX_PARTS
        );
    }

    #[test]
    fn leaves_no_file_behind_and_writes_none_while_memory_is_enough() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let inside = folder.path().join("made/when/needed");
        let mut parts = Spill::new(&inside, 10_000).parts::<u64>("test");
        parts.push(0, 1).expect("fits in memory");
        assert!(!inside.exists());
        for number in 0..10_000 {
            parts.push(0, number).expect("writes");
        }
        assert!(parts.file.is_some());
        assert_eq!((parts.len(), parts.len_of(0)), (10_001, 10_001));
        drop(parts);
        assert_eq!(std::fs::read_dir(&inside).expect("made").count(), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn each_part_comes_back_in_order(
            records in prop::collection::vec((0usize..300, any::<u32>()), 0..2_000),
            memory_bytes in prop::sample::select(vec![0, 100, 3_000, 1 << 19, 1 << 22]),
        ) {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let mut parts = Spill::new(folder.path(), memory_bytes).parts::<u32>("test");
            let mut expected = vec![Vec::new(); parts.parts()];
            for (part, record) in records {
                let part = part % parts.parts();
                parts.push(part, record).expect("writes");
                expected[part].push(record);
            }
            for (part, expected) in expected.iter().enumerate() {
                prop_assert_eq!(parts.len_of(part), expected.len() as u64);
                let mut found = Vec::new();
                parts.take(part, |some| {
                    found.extend_from_slice(some);
                    Ok(())
                }).expect("reads");
                prop_assert_eq!(&found, expected);
                prop_assert_eq!(parts.len_of(part), 0);
            }
        }
    }
}
