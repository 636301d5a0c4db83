//! Files as slices: the only unsafe code of the program.
//!
//! A map is file-backed memory: the kernel may drop its pages and read them again, so a column can
//! be larger than memory and costs no anonymous memory.
//!
//! Soundness: the mapped files are intermediate files of a run, which holds the lock of its work
//! folder; nothing else writes or shortens them while they are mapped. A file that a person
//! truncates meanwhile ends the process with SIGBUS; it cannot give a wrong result.
#![expect(
    unsafe_code,
    reason = "memory maps; audited here, see the module's note"
)]

use bytemuck::Pod;
use memmap2::{Mmap, MmapMut};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::marker::PhantomData;
use std::path::Path;

/// Bytes that are zeroed at a time.
const ZEROS: u64 = 1 << 20;

/// A read-only file of fixed-size values.
pub struct Column<T> {
    map: Option<Mmap>,
    kind: PhantomData<T>,
}

impl<T: Pod> Column<T> {
    /// Maps the file at `path`.
    ///
    /// # Errors
    /// When it cannot be opened, or its length is not a multiple of the value's size.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = super::open_file(path).map_err(|e| at(path, e))?;
        let bytes = file.metadata().map_err(|e| at(path, e))?.len();
        if !bytes.is_multiple_of(size_of::<T>() as u64) {
            let text = format!(
                "{bytes} bytes are not a whole number of {}-byte values",
                size_of::<T>()
            );
            return Err(at(path, io::Error::new(io::ErrorKind::InvalidData, text)));
        }
        // An empty file cannot be mapped.
        let map = if bytes == 0 {
            None
        } else {
            // SAFETY: see the module's note.
            Some(unsafe { Mmap::map(&file) }.map_err(|e| at(path, e))?)
        };
        Ok(Column {
            map,
            kind: PhantomData,
        })
    }

    /// Says that values are read at random, so that huge pages pay where the file system has them.
    pub fn read_at_random(&self) {
        // Advice: where it is not taken, reading is only slower.
        #[cfg(target_os = "linux")]
        if let Some(map) = &self.map {
            let _ = map.advise(memmap2::Advice::HugePage);
        }
    }

    /// The values.
    pub fn values(&self) -> &[T] {
        // A map begins at a page, so any alignment of a plain type is met.
        self.map
            .as_ref()
            .map_or(&[], |map| bytemuck::cast_slice(map))
    }
}

/// A writable file of fixed-size values, zero at first, removed when dropped.
pub struct ScratchColumn<T> {
    map: Option<MmapMut>,
    path: std::path::PathBuf,
    kind: PhantomData<T>,
}

impl<T: Pod> ScratchColumn<T> {
    /// Creates `length` zero values in a file at `path`, replacing it.
    ///
    /// # Errors
    /// When the file cannot be made that large.
    pub fn create(path: &Path, length: u64) -> io::Result<Self> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .map_err(|e| at(path, e))?;
        let bytes = length * size_of::<T>() as u64;
        // Zeros are written rather than a hole made: a full disk is then an error here, and not the
        // end of the process (SIGBUS) at the first write through the map.
        let zeros = vec![0u8; bytes.min(ZEROS) as usize];
        let mut left = bytes;
        while left > 0 {
            let some = left.min(ZEROS);
            file.write_all(&zeros[..some as usize])
                .map_err(|e| at(path, e))?;
            left -= some;
        }
        let map = if bytes == 0 {
            None
        } else {
            // SAFETY: see the module's note.
            Some(unsafe { MmapMut::map_mut(&file) }.map_err(|e| at(path, e))?)
        };
        Ok(ScratchColumn {
            map,
            path: path.to_path_buf(),
            kind: PhantomData,
        })
    }

    /// The values.
    pub fn values(&self) -> &[T] {
        self.map
            .as_ref()
            .map_or(&[], |map| bytemuck::cast_slice(map))
    }

    /// The values, to be changed.
    pub fn values_mut(&mut self) -> &mut [T] {
        self.map
            .as_mut()
            .map_or(&mut [], |map| bytemuck::cast_slice_mut(map))
    }
}

impl<T> Drop for ScratchColumn<T> {
    fn drop(&mut self) {
        // Left behind it only costs disk until the work folder is removed.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("cannot use {}: {error}", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("numbers");
        std::fs::write(&path, bytemuck::cast_slice(&[1u64, 2, 3]))?;
        assert_eq!(Column::<u64>::open(&path)?.values(), [1, 2, 3]);
        std::fs::write(&path, [])?;
        assert_eq!(Column::<u64>::open(&path)?.values(), [0u64; 0]);
        std::fs::write(&path, [1, 2, 3])?;
        assert!(Column::<u64>::open(&path).is_err());
        Ok(())
    }

    #[test]
    fn scratch_begins_at_zero_and_leaves_nothing() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("scratch");
        let mut column = ScratchColumn::<u32>::create(&path, 5)?;
        assert_eq!(column.values(), [0; 5]);
        column.values_mut()[3] = 7;
        assert_eq!(column.values(), [0, 0, 0, 7, 0]);
        drop(column);
        assert!(!path.exists());
        assert_eq!(ScratchColumn::<u32>::create(&path, 0)?.values(), [0u32; 0]);
        Ok(())
    }
}
