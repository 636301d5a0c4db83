//! Sorting fixed-size records beyond memory.
//!
//! A [`Sorter`] collects records in memory up to its share, writes sorted runs to one temporary
//! file when they are more, and merges the runs when it is finished. A [`Queue`] is a priority
//! queue that does the same. [`Parts`] groups records without sorting them. Nothing here knows what a record means.

mod io_context;
mod map;
mod parts;
mod queue;
mod runs;
mod sorter;

pub use io_context::{IoContext, open_file, read_file};
pub use map::{Column, ScratchColumn};
pub use parts::Parts;
pub use queue::Queue;
pub use sorter::{Sorted, Sorter};

use std::cmp::Ordering;
use std::io;
use std::path::{Path, PathBuf};

/// Where intermediate runs go and how much memory a sort may use.
#[derive(Clone, Debug)]
pub struct Spill {
    folder: PathBuf,
    memory_bytes: usize,
}

impl Spill {
    /// Sorts in `folder` (created when needed) with at most `memory_bytes` of anonymous memory each.
    ///
    /// Below what 16 records need, 16 records are held all the same.
    pub fn new(folder: &Path, memory_bytes: usize) -> Self {
        Spill {
            folder: folder.to_path_buf(),
            memory_bytes,
        }
    }

    /// The folder of the runs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Bytes a sort may use.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// The same folder with one of `parts` equal shares of the memory, for sorts that live at the
    /// same time.
    pub fn share(&self, parts: usize) -> Spill {
        Spill {
            folder: self.folder.clone(),
            memory_bytes: self.memory_bytes / parts.max(1),
        }
    }

    /// An empty sorter of records of type `T`.
    ///
    /// `compare` must be a total order in which only records of the same bytes are equal: then the
    /// result depends on the records alone, never on how many were sorted at a time. `name` appears
    /// in the name of the temporary file, and so in errors.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// let spill = goodput::spill::Spill::new(folder.path(), 1 << 20);
    /// let mut sorter = spill.sorter("numbers", u64::cmp);
    /// for number in [3, 1, 2] {
    ///     sorter.push(number)?;
    /// }
    /// let sorted: Vec<u64> = sorter.finish()?.collect::<Result<_, _>>()?;
    /// assert_eq!(sorted, [1, 2, 3]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn sorter<T, F>(&self, name: &str, compare: F) -> Sorter<T, F>
    where
        T: bytemuck::Pod + Send + Sync,
        F: Fn(&T, &T) -> Ordering + Send + Sync + Clone + 'static,
    {
        Sorter::new(self.clone(), name, compare)
    }

    /// An empty priority queue of records of type `T` that gives the smallest first; `compare` and
    /// `name` as for [`Spill::sorter`].
    pub fn queue<T, F>(&self, name: &str, compare: F) -> Queue<T, F>
    where
        T: bytemuck::Pod + Send + Sync,
        F: Fn(&T, &T) -> Ordering + Send + Sync + Clone,
    {
        Queue::new(self.clone(), name, compare)
    }

    /// Records of type `T` by parts, at most 256: fewer where there is little memory.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// let spill = goodput::spill::Spill::new(folder.path(), 1 << 20);
    /// let mut parts = spill.parts::<u64>("numbers");
    /// let of = |number: u64, parts: usize| (number % parts as u64) as usize;
    /// for number in 0..10 {
    ///     parts.push(of(number, parts.parts()), number)?;
    /// }
    /// let mut found = Vec::new();
    /// parts.take(1, |some| Ok(found.extend_from_slice(some)))?;
    /// assert_eq!(found, [1, 5, 9]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn parts<T: bytemuck::Pod>(&self, name: &str) -> Parts<T> {
        Parts::new(self.clone(), name)
    }

    /// Records in their sorted order; see [`Spill::sorter`].
    ///
    /// # Errors
    /// The first error of `records`, or when the temporary file cannot be written.
    pub fn sort<T, F>(
        &self,
        name: &str,
        records: impl Iterator<Item = io::Result<T>>,
        compare: F,
    ) -> io::Result<Sorted<T>>
    where
        T: bytemuck::Pod + Send + Sync,
        F: Fn(&T, &T) -> Ordering + Send + Sync + Clone + 'static,
    {
        let mut sorter = self.sorter(name, compare);
        for record in records {
            sorter.push(record?)?;
        }
        sorter.finish()
    }
}
