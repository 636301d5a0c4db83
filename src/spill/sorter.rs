//! A sort of fixed-size records that spills to disk.

use super::Spill;
use super::runs::{Merge, MergeShape, Run, RunFile, merge_into_one};
use bytemuck::Pod;
use rayon::slice::ParallelSliceMut;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::io;

/// Fewest records that are held in memory, however little memory there is.
const MIN_RECORDS: usize = 16;

/// Collects records to be sorted; see [`Spill::sorter`].
///
/// Its memory grows with what is pushed, up to the share of the [`Spill`] it came from; a growing
/// step counts the old and the new block. Runs go to one temporary file.
pub struct Sorter<T, F> {
    spill: Spill,
    name: String,
    compare: F,
    buffer: Vec<T>,
    max_buffer_records: usize,
    runs: VecDeque<Run>,
    file: Option<RunFile>,
    records: u64,
}

impl<T, F> Sorter<T, F>
where
    T: Pod + Send + Sync,
    F: Fn(&T, &T) -> Ordering + Send + Sync + Clone + 'static,
{
    pub(super) fn new(spill: Spill, name: &str, compare: F) -> Self {
        const {
            assert!(
                size_of::<T>() > 0,
                "records without bytes cannot be written"
            )
        };
        // The last growing step holds a full block and a half one: two thirds make the whole.
        let max_buffer_records = (spill.memory_bytes() / 3 * 2 / size_of::<T>()).max(MIN_RECORDS);
        Sorter {
            spill,
            name: name.to_string(),
            compare,
            buffer: Vec::new(),
            max_buffer_records,
            runs: VecDeque::new(),
            file: None,
            records: 0,
        }
    }

    /// Adds a record.
    ///
    /// # Errors
    /// When the temporary file cannot be created or written; the error names it.
    pub fn push(&mut self, record: T) -> io::Result<()> {
        if self.buffer.len() == self.buffer.capacity() {
            self.make_room()?;
        }
        self.buffer.push(record);
        self.records += 1;
        Ok(())
    }

    /// How many records were pushed.
    pub fn len(&self) -> u64 {
        self.records
    }

    /// Whether nothing was pushed.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The records from the smallest to the largest.
    ///
    /// # Errors
    /// When the temporary file cannot be written or read; the error names it.
    pub fn finish(mut self) -> io::Result<Sorted<T>> {
        if self.runs.is_empty() {
            self.sort_buffer();
            return Ok(Sorted {
                batch: self.buffer,
                next: 0,
                rest: None,
                records_left: self.records,
            });
        }
        self.write_run()?;
        self.buffer = Vec::new();
        let mut file = self.file.take().expect("runs were written to it");
        let shape = MergeShape::for_memory::<T>(self.spill.memory_bytes());
        while self.runs.len() > shape.runs {
            // Merge only as many as brings the number down to what one merge can take.
            let surplus = self.runs.len() - shape.runs + 1;
            let merged = merge_into_one(
                &mut file,
                self.runs.drain(..surplus.min(shape.runs)),
                shape.buffer_records,
                self.compare.clone(),
            )?;
            self.runs.push_back(merged);
        }
        let mut merge = Merge::new(self.compare);
        for run in self.runs {
            merge.add(&mut file, run, shape.buffer_records)?;
        }
        Ok(Sorted {
            batch: Vec::with_capacity(shape.buffer_records),
            next: 0,
            rest: Some(Box::new(MergeOfFile { merge, file })),
            records_left: self.records,
        })
    }

    /// Grows the buffer, or empties it into a run once it may not grow any more.
    fn make_room(&mut self) -> io::Result<()> {
        let length = self.buffer.len();
        if length >= self.max_buffer_records {
            return self.write_run();
        }
        // The sizes are halves of halves of the largest one, so that the last step holds at most
        // one and a half of it.
        let mut size = self.max_buffer_records;
        while size / 2 > length.max(MIN_RECORDS - 1) {
            size /= 2;
        }
        self.buffer.reserve_exact(size - length);
        Ok(())
    }

    fn sort_buffer(&mut self) {
        let compare = &self.compare;
        self.buffer.par_sort_unstable_by(|a, b| compare(a, b));
    }

    fn write_run(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.sort_buffer();
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(RunFile::create(&self.spill, &self.name)?),
        };
        self.runs.push_back(Run {
            start: file.end(),
            records: self.buffer.len() as u64,
        });
        file.append(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

/// Sorted records, smallest first. Ends after an error. Holds the temporary file until it is dropped.
pub struct Sorted<T> {
    batch: Vec<T>,
    next: usize,
    rest: Option<Box<dyn Batches<T> + Send>>,
    records_left: u64,
}

impl<T> Sorted<T> {
    /// How many records are still to come.
    pub fn len(&self) -> u64 {
        self.records_left
    }

    /// Whether no record is still to come.
    pub fn is_empty(&self) -> bool {
        self.records_left == 0
    }
}

impl<T: Pod> Iterator for Sorted<T> {
    type Item = io::Result<T>;

    fn next(&mut self) -> Option<io::Result<T>> {
        if self.next == self.batch.len() {
            let rest = self.rest.as_mut()?;
            self.next = 0;
            self.batch.clear();
            if let Err(error) = rest.fill(&mut self.batch) {
                self.batch.clear();
                self.rest = None;
                self.records_left = 0;
                return Some(Err(error));
            }
        }
        let record = *self.batch.get(self.next)?;
        self.next += 1;
        self.records_left -= 1;
        Some(Ok(record))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // An error may cut it short, hence the lower bound.
        (0, usize::try_from(self.records_left).ok())
    }
}

/// Fills a batch at a time, so that the type of the comparison does not show in [`Sorted`].
trait Batches<T> {
    /// Fills `batch` up to its capacity; it stays empty at the end.
    fn fill(&mut self, batch: &mut Vec<T>) -> io::Result<()>;
}

struct MergeOfFile<T, F> {
    merge: Merge<T, F>,
    file: RunFile,
}

impl<T: Pod, F: Fn(&T, &T) -> Ordering> Batches<T> for MergeOfFile<T, F> {
    fn fill(&mut self, batch: &mut Vec<T>) -> io::Result<()> {
        while batch.len() < batch.capacity() {
            match self.merge.pop(&mut self.file)? {
                Some(record) => batch.push(record),
                None => break,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algo::hash;
    use proptest::prelude::*;

    fn sorted(memory_bytes: usize, records: &[u64]) -> Vec<u64> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let spill = Spill::new(folder.path(), memory_bytes);
        let sorted = spill
            .sort("test", records.iter().map(|&r| Ok(r)), u64::cmp)
            .expect("sorts");
        assert_eq!(sorted.len(), records.len() as u64);
        sorted
            .collect::<io::Result<Vec<u64>>>()
            .expect("reads its runs")
    }

    fn numbers(n: u64) -> Vec<u64> {
        (0..n).map(|i| hash::keyed(1, "test", i)).collect()
    }

    #[test]
    fn nothing_and_one_record_come_back() {
        assert_eq!(sorted(0, &[]), Vec::<u64>::new());
        assert_eq!(sorted(0, &[7]), [7]);
        assert_eq!(sorted(1 << 20, &[7]), [7]);
    }

    #[test]
    fn exactly_one_full_buffer_and_one_more_record() {
        for n in [MIN_RECORDS - 1, MIN_RECORDS, MIN_RECORDS + 1] {
            let records = numbers(n as u64);
            let mut expected = records.clone();
            expected.sort_unstable();
            assert_eq!(sorted(0, &records), expected);
        }
    }

    #[test]
    fn many_runs_are_merged_in_levels() {
        let records = numbers(20_000);
        let mut expected = records.clone();
        expected.sort_unstable();
        for memory_bytes in [0, 100, 1_000, 100_000, 10_000_000] {
            assert_eq!(sorted(memory_bytes, &records), expected, "{memory_bytes}");
        }
        // The smallest memory above needs more than two levels.
        let shape = MergeShape::for_memory::<u64>(0);
        assert!(20_000 / MIN_RECORDS > shape.runs.pow(3), "{shape:?}");
    }

    #[test]
    fn the_buffer_never_outgrows_the_memory() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for memory_bytes in [1_000, 4_096, 99_999] {
            let mut sorter = Spill::new(folder.path(), memory_bytes).sorter("test", u64::cmp);
            let mut capacity_before = 0;
            for number in numbers(30_000) {
                sorter.push(number).expect("writes");
                let capacity = sorter.buffer.capacity();
                if capacity != capacity_before {
                    // Both blocks exist while the records move.
                    assert!((capacity + capacity_before) * 8 <= memory_bytes);
                    capacity_before = capacity;
                }
            }
            // At least half of it is used, or the sort would be needlessly slow.
            assert!(capacity_before * 8 * 2 >= memory_bytes);
            let shape = MergeShape::for_memory::<u64>(memory_bytes);
            let heap_bytes = shape.runs * size_of::<(u64, usize)>();
            assert!((shape.runs + 1) * shape.buffer_records * 8 + heap_bytes <= memory_bytes);
        }
    }

    #[test]
    fn memory_is_taken_as_records_come() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut sorter = Spill::new(folder.path(), 1 << 40).sorter("test", u64::cmp);
        sorter.push(1).expect("fits in memory");
        assert!(sorter.buffer.capacity() < 64);
    }

    #[test]
    fn leaves_no_file_behind() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let inside = folder.path().join("made/when/needed");
        let spill = Spill::new(&inside, 0);
        let files = || std::fs::read_dir(&inside).expect("made").count();
        {
            let mut sorter = spill.sorter("test", u64::cmp);
            sorter.push(1).expect("fits in memory");
            assert!(
                !inside.exists(),
                "nothing is written while memory is enough"
            );
            for number in numbers(100) {
                sorter.push(number).expect("writes");
            }
            assert!(sorter.runs.len() > 1);
            let mut sorted = sorter.finish().expect("merges");
            sorted.next();
            assert_eq!(sorted.len(), 100);
        }
        assert_eq!(files(), 0);
    }

    #[test]
    fn two_sorters_of_one_name_do_not_disturb_each_other() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let spill = Spill::new(folder.path(), 0);
        let mut one = spill.sorter("same", u64::cmp);
        let mut two = spill.sorter("same", u64::cmp);
        for number in 0..100 {
            one.push(number).expect("writes");
            two.push(1_000 + number).expect("writes");
        }
        let one: Vec<u64> = one.finish().expect("merges").map(Result::unwrap).collect();
        let two: Vec<u64> = two.finish().expect("merges").map(Result::unwrap).collect();
        assert_eq!(one, (0..100).collect::<Vec<u64>>());
        assert_eq!(two, (1_000..1_100).collect::<Vec<u64>>());
    }

    #[test]
    fn an_error_names_the_path() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let blocked = folder.path().join("a-file");
        std::fs::write(&blocked, "in the way").expect("writes");
        let spill = Spill::new(&blocked, 0);
        let error = spill
            .sort("test", (0..100).map(Ok), u64::cmp)
            .err()
            .expect("the folder cannot be made");
        assert!(error.to_string().contains("a-file"), "{error}");
    }

    #[test]
    fn an_error_of_the_input_is_handed_on() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let spill = Spill::new(folder.path(), 0);
        let records = [Ok(1), Err(io::Error::other("broken"))];
        assert!(spill.sort("test", records.into_iter(), u64::cmp).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn equals_the_sort_of_a_vector(
            records in prop::collection::vec((0u64..50, any::<u64>()), 0..600),
            memory_bytes in 0usize..4_000,
        ) {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let spill = Spill::new(folder.path(), memory_bytes);
            let records: Vec<[u64; 2]> = records.into_iter().map(|(a, b)| [a, b]).collect();
            let descending = |a: &[u64; 2], b: &[u64; 2]| b.cmp(a);
            let sorted: Vec<[u64; 2]> = spill
                .sort("test", records.iter().map(|&r| Ok(r)), descending)
                .expect("sorts")
                .map(|r| r.expect("reads its runs"))
                .collect();
            let mut expected = records;
            expected.sort_unstable_by(descending);
            prop_assert_eq!(sorted, expected);
        }
    }
}
