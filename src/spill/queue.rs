//! A priority queue of fixed-size records that spills to disk.

use super::Spill;
use super::runs::{Merge, MergeShape, Run, RunFile, merge_into_one};
use bytemuck::Pod;
use rayon::slice::ParallelSliceMut;
use std::cmp::Ordering;
use std::io;

/// Fewest records that are held in memory, however little memory there is.
const MIN_RECORDS: usize = 16;

/// A larger heap misses the processor's caches at every step, and is slower than runs on disk, which
/// are read in order.
const MAX_HEAP_BYTES: usize = 8 << 20;

/// Gives the smallest of the records pushed so far; see [`Spill::queue`].
///
/// Half of the memory, or 8 MiB if that is less, holds a heap. When it is full, its larger half goes to disk as a sorted run;
/// the other half of the memory reads the runs. Too many runs are merged, the shortest first.
pub struct Queue<T, F> {
    spill: Spill,
    name: String,
    compare: F,
    /// A binary heap, smallest at the root. A sorted slice is one.
    heap: Vec<T>,
    max_heap_records: usize,
    shape: MergeShape,
    spilled: Option<(RunFile, Merge<T, F>)>,
    records: u64,
}

impl<T, F> Queue<T, F>
where
    T: Pod + Send + Sync,
    F: Fn(&T, &T) -> Ordering + Send + Sync + Clone,
{
    pub(super) fn new(spill: Spill, name: &str, compare: F) -> Self {
        const {
            assert!(
                size_of::<T>() > 0,
                "records without bytes cannot be written"
            )
        };
        let half = spill.memory_bytes() / 2;
        Queue {
            // As in a sorter: the last growing step holds a full block and a half one.
            max_heap_records: (half.min(MAX_HEAP_BYTES) / 3 * 2 / size_of::<T>()).max(MIN_RECORDS),
            shape: MergeShape::for_memory::<T>(half),
            spill,
            name: name.to_string(),
            compare,
            heap: Vec::new(),
            spilled: None,
            records: 0,
        }
    }

    /// How many records are in it.
    pub fn len(&self) -> u64 {
        self.records
    }

    /// Whether no record is in it.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Adds a record.
    ///
    /// # Errors
    /// When the temporary file cannot be written or read; the error names it.
    pub fn push(&mut self, record: T) -> io::Result<()> {
        if self.heap.len() == self.heap.capacity() {
            self.make_room()?;
        }
        self.heap.push(record);
        self.records += 1;
        let mut at = self.heap.len() - 1;
        while at > 0 && self.less(at, (at - 1) / 2) {
            self.heap.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        Ok(())
    }

    /// Takes the smallest record; `None` when there is none.
    ///
    /// # Errors
    /// When the temporary file cannot be read; the error names it.
    pub fn pop(&mut self) -> io::Result<Option<T>> {
        let on_disk = self.spilled.as_ref().and_then(|(_, merge)| merge.peek());
        let from_disk = match (self.heap.first(), on_disk) {
            (None, None) => return Ok(None),
            (Some(_), None) => false,
            (None, Some(_)) => true,
            (Some(in_memory), Some(on_disk)) => {
                (self.compare)(on_disk, in_memory) == Ordering::Less
            }
        };
        self.records -= 1;
        if from_disk {
            let (file, merge) = self.spilled.as_mut().expect("its smallest was just seen");
            return merge.pop(file);
        }
        let smallest = self.heap.swap_remove(0);
        let mut at = 0;
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            if left >= self.heap.len() {
                break;
            }
            let child = if right < self.heap.len() && self.less(right, left) {
                right
            } else {
                left
            };
            if !self.less(child, at) {
                break;
            }
            self.heap.swap(child, at);
            at = child;
        }
        Ok(Some(smallest))
    }

    fn less(&self, a: usize, b: usize) -> bool {
        (self.compare)(&self.heap[a], &self.heap[b]) == Ordering::Less
    }

    /// Grows the heap, or writes its larger half to disk once it may not grow any more.
    fn make_room(&mut self) -> io::Result<()> {
        let length = self.heap.len();
        if length < self.max_heap_records {
            let mut size = self.max_heap_records;
            while size / 2 > length.max(MIN_RECORDS - 1) {
                size /= 2;
            }
            self.heap.reserve_exact(size - length);
            return Ok(());
        }
        let compare = &self.compare;
        self.heap.par_sort_unstable_by(|a, b| compare(a, b));
        let kept = length / 2;
        let (mut file, mut merge) = match self.spilled.take() {
            Some(spilled) => spilled,
            None => (
                RunFile::create(&self.spill, &self.name)?,
                Merge::new(self.compare.clone()),
            ),
        };
        if merge.open_runs() + 1 > self.shape.runs {
            merge = self.merge_shortest(&mut file, merge)?;
        }
        let run = Run {
            start: file.end(),
            records: (length - kept) as u64,
        };
        file.append(&self.heap[kept..])?;
        self.heap.truncate(kept);
        merge.add(&mut file, run, self.shape.buffer_records)?;
        self.spilled = Some((file, merge));
        Ok(())
    }

    /// Makes one run of the shorter half of the runs, so that a record is rewritten about as often
    /// as the logarithm of the number of runs.
    fn merge_shortest(&self, file: &mut RunFile, merge: Merge<T, F>) -> io::Result<Merge<T, F>> {
        let mut runs = merge.into_rests();
        runs.sort_unstable_by_key(|run| (run.records, run.start));
        let shortest = (runs.len() / 2 + 1).min(runs.len());
        let merged = merge_into_one(
            file,
            runs.drain(..shortest),
            self.shape.buffer_records,
            self.compare.clone(),
        )?;
        let mut merge = Merge::new(self.compare.clone());
        for run in runs.into_iter().chain([merged]) {
            merge.add(file, run, self.shape.buffer_records)?;
        }
        Ok(merge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algo::hash;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Runs pushes (`Some`) and pops (`None`) against an ordered set.
    fn same_as_a_set(memory_bytes: usize, steps: impl Iterator<Item = Option<u64>>) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut queue = Spill::new(folder.path(), memory_bytes).queue("test", u64::cmp);
        let mut set = BTreeSet::new();
        for step in steps {
            match step {
                Some(record) => {
                    if set.insert(record) {
                        queue.push(record).expect("writes");
                    }
                }
                None => assert_eq!(queue.pop().expect("reads"), set.pop_first()),
            }
            assert_eq!(queue.len(), set.len() as u64);
            assert_eq!(queue.is_empty(), set.is_empty());
        }
        while let Some(record) = queue.pop().expect("reads") {
            assert_eq!(Some(record), set.pop_first());
        }
        assert!(set.is_empty());
    }

    #[test]
    fn an_empty_queue_gives_nothing() {
        same_as_a_set(0, [None, None, Some(1), None, None].into_iter());
    }

    #[test]
    fn many_records_with_little_memory() {
        for (memory_bytes, n) in [(0, 1_500), (500, 3_000), (5_000, 30_000), (1 << 20, 30_000)] {
            // Two pushes for each pop, so that it grows over many levels.
            let steps =
                (0..n).map(|i: u64| (!i.is_multiple_of(3)).then(|| hash::keyed(1, "test", i)));
            same_as_a_set(memory_bytes, steps);
        }
    }

    #[test]
    fn the_heap_never_outgrows_half_of_the_memory() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut queue = Spill::new(folder.path(), 10_000).queue("test", u64::cmp);
        let mut capacity_before = 0;
        for i in 0..20_000 {
            queue.push(hash::keyed(1, "test", i)).expect("writes");
            let capacity = queue.heap.capacity();
            if capacity != capacity_before {
                assert!((capacity + capacity_before) * 8 <= 5_000);
                capacity_before = capacity;
            }
            if let Some((_, merge)) = &queue.spilled {
                assert!(merge.open_runs() <= queue.shape.runs);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn equals_an_ordered_set(
            steps in prop::collection::vec(prop::option::weighted(0.6, 0u64..10_000), 0..800),
            memory_bytes in 0usize..2_000,
        ) {
            same_as_a_set(memory_bytes, steps.into_iter());
        }
    }
}
