//! Sorted runs in one temporary file, and their merge.

use super::{IoContext, Spill};
use bytemuck::Pod;
use std::cmp::Ordering;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering as Atomic};

/// A stretch of sorted records in a [`RunFile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Byte offset of its first record.
    pub start: u64,
    /// How many records.
    pub records: u64,
}

/// A temporary file that holds any number of runs, so that a sort needs one file handle only.
#[derive(Debug)]
pub(super) struct RunFile {
    file: File,
    path: PathBuf,
    end: u64,
}

/// Makes names unique inside the process. It never reaches a result.
static NEXT_FILE: AtomicU64 = AtomicU64::new(0);

impl RunFile {
    /// A new, empty file in the folder of `spill`.
    ///
    /// Where the system allows it, the name is removed at once: then not even a killed process
    /// leaves its runs behind.
    pub fn create(spill: &Spill, name: &str) -> io::Result<RunFile> {
        fs::create_dir_all(spill.folder()).context("create folder", spill.folder())?;
        loop {
            let number = NEXT_FILE.fetch_add(1, Atomic::Relaxed);
            let path = spill.folder().join(format!("{name}-{number:06}.runs"));
            let opened = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .open(&path);
            match opened {
                // Another process works in the same folder, or a killed one left it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                opened => {
                    let file = opened.context("create", &path)?;
                    #[cfg(unix)]
                    fs::remove_file(&path).context("remove", &path)?;
                    return Ok(RunFile { file, path, end: 0 });
                }
            }
        }
    }

    /// Bytes written so far: where the next append goes.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Writes records at the end.
    pub fn append<T: Pod>(&mut self, records: &[T]) -> io::Result<()> {
        let bytes: &[u8] = bytemuck::cast_slice(records);
        self.file
            .seek(SeekFrom::Start(self.end))
            .and_then(|_| self.file.write_all(bytes))
            .context("write", &self.path)?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Fills `records` from byte `offset`.
    pub fn read<T: Pod>(&mut self, offset: u64, records: &mut [T]) -> io::Result<()> {
        self.file
            .seek(SeekFrom::Start(offset))
            .and_then(|_| self.file.read_exact(bytemuck::cast_slice_mut(records)))
            .context("read", &self.path)
    }
}

impl Drop for RunFile {
    fn drop(&mut self) {
        // On unix the name is gone already. A file that cannot be removed is no reason to fail:
        // the folder of intermediate files is removed as a whole at the end of a run.
        #[cfg(not(unix))]
        let _ = fs::remove_file(&self.path);
    }
}

/// Reads one run through a bounded buffer.
#[derive(Debug)]
pub(super) struct Cursor<T> {
    offset: u64,
    unread: u64,
    buffer: Vec<T>,
    next: usize,
}

impl<T: Pod> Cursor<T> {
    /// Starts at the first record of `run`; holds at most `buffer_records` (1 or more) at a time.
    pub fn open(file: &mut RunFile, run: Run, buffer_records: usize) -> io::Result<Cursor<T>> {
        let length = run.records.min(buffer_records as u64) as usize;
        let mut cursor = Cursor {
            offset: run.start,
            unread: run.records,
            buffer: vec![T::zeroed(); length],
            next: 0,
        };
        cursor.fill(file)?;
        Ok(cursor)
    }

    /// The record it stands at; `None` past the end.
    pub fn head(&self) -> Option<&T> {
        self.buffer.get(self.next)
    }

    /// Records from the head to the end of the run.
    pub fn records_left(&self) -> u64 {
        self.unread + (self.buffer.len() - self.next) as u64
    }

    /// Goes to the next record.
    pub fn advance(&mut self, file: &mut RunFile) -> io::Result<()> {
        self.next += 1;
        if self.next >= self.buffer.len() {
            self.fill(file)?;
        }
        Ok(())
    }

    /// The part of the run that has not been passed, as a run.
    pub fn rest(&self) -> Run {
        let buffered = ((self.buffer.len() - self.next) * size_of::<T>()) as u64;
        Run {
            start: self.offset - buffered,
            records: self.records_left(),
        }
    }

    fn fill(&mut self, file: &mut RunFile) -> io::Result<()> {
        let length = self.unread.min(self.buffer.len() as u64) as usize;
        self.buffer.truncate(length);
        self.next = 0;
        file.read(self.offset, &mut self.buffer)?;
        self.offset += (length * size_of::<T>()) as u64;
        self.unread -= length as u64;
        Ok(())
    }
}

/// Gives the records of several runs, smallest first.
#[derive(Debug)]
pub(super) struct Merge<T, F> {
    cursors: Vec<Cursor<T>>,
    /// A binary heap of (head of a cursor, its index), smallest at the root.
    heap: Vec<(T, usize)>,
    compare: F,
}

impl<T: Pod, F: Fn(&T, &T) -> Ordering> Merge<T, F> {
    /// A merge of nothing.
    pub fn new(compare: F) -> Merge<T, F> {
        Merge {
            cursors: Vec::new(),
            heap: Vec::new(),
            compare,
        }
    }

    /// Adds a run.
    pub fn add(&mut self, file: &mut RunFile, run: Run, buffer_records: usize) -> io::Result<()> {
        let cursor = Cursor::open(file, run, buffer_records)?;
        if let Some(&head) = cursor.head() {
            self.heap.push((head, self.cursors.len()));
            self.cursors.push(cursor);
            self.sift_up(self.heap.len() - 1);
        }
        Ok(())
    }

    /// The smallest record left.
    pub fn peek(&self) -> Option<&T> {
        self.heap.first().map(|(head, _)| head)
    }

    /// Takes the smallest record left.
    pub fn pop(&mut self, file: &mut RunFile) -> io::Result<Option<T>> {
        let Some(&(smallest, cursor)) = self.heap.first() else {
            return Ok(None);
        };
        self.cursors[cursor].advance(file)?;
        match self.cursors[cursor].head() {
            Some(&head) => self.heap[0].0 = head,
            None => {
                self.heap.swap_remove(0);
                self.cursors[cursor].buffer = Vec::new();
            }
        }
        self.sift_down();
        Ok(Some(smallest))
    }

    /// How many runs have records left.
    pub fn open_runs(&self) -> usize {
        self.heap.len()
    }

    /// Ends the merge; what is left of each run.
    pub fn into_rests(self) -> Vec<Run> {
        self.cursors
            .iter()
            .filter(|cursor| cursor.records_left() > 0)
            .map(Cursor::rest)
            .collect()
    }

    fn less(&self, a: usize, b: usize) -> bool {
        (self.compare)(&self.heap[a].0, &self.heap[b].0) == Ordering::Less
    }

    fn sift_up(&mut self, mut at: usize) {
        while at > 0 && self.less(at, (at - 1) / 2) {
            self.heap.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    fn sift_down(&mut self) {
        let mut at = 0;
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            if left >= self.heap.len() {
                return;
            }
            let child = if right < self.heap.len() && self.less(right, left) {
                right
            } else {
                left
            };
            if !self.less(child, at) {
                return;
            }
            self.heap.swap(child, at);
            at = child;
        }
    }
}

/// Merges `runs` into one new run at the end of the file, through a buffer of `buffer_records` for
/// each run and one for what is written.
pub(super) fn merge_into_one<T: Pod, F: Fn(&T, &T) -> Ordering>(
    file: &mut RunFile,
    runs: impl IntoIterator<Item = Run>,
    buffer_records: usize,
    compare: F,
) -> io::Result<Run> {
    let mut merge = Merge::new(compare);
    for run in runs {
        merge.add(file, run, buffer_records)?;
    }
    let start = file.end();
    let mut records = 0;
    let mut buffer: Vec<T> = Vec::with_capacity(buffer_records);
    while let Some(record) = merge.pop(file)? {
        buffer.push(record);
        records += 1;
        if buffer.len() == buffer_records {
            file.append(&buffer)?;
            buffer.clear();
        }
    }
    file.append(&buffer)?;
    Ok(Run { start, records })
}

/// How a merge divides memory: how many runs at once, and how many records of each are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MergeShape {
    /// Most runs merged at once, 2 or more.
    pub runs: usize,
    /// Records held for each run, and for the output; 1 or more.
    pub buffer_records: usize,
}

impl MergeShape {
    /// Buffers of 64 KiB where the memory has room for eight of them, smaller ones otherwise.
    pub fn for_memory<T>(memory_bytes: usize) -> MergeShape {
        // A record in the heap stands beside the buffers, hence one more than the buffer holds.
        const BUFFER_BYTES: usize = 64 << 10;
        let record_bytes = size_of::<T>();
        let runs = (memory_bytes / BUFFER_BYTES)
            .max(8)
            .min((memory_bytes / (4 * record_bytes)).max(2));
        let buffer_records = (memory_bytes / (runs + 1) / record_bytes)
            .saturating_sub(2)
            .max(1);
        MergeShape {
            runs,
            buffer_records,
        }
    }
}
