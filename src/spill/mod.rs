//! Sorting fixed-size records beyond memory.

use std::path::{Path, PathBuf};

/// Where intermediate runs go and how much memory a sort may use.
#[derive(Clone, Debug)]
pub struct Spill {
    folder: PathBuf,
    memory_bytes: usize,
}

impl Spill {
    /// Sorts in `folder` (created when needed) with at most `memory_bytes` of anonymous memory each.
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
}
