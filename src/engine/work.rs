//! The work folder: finished tasks, found again by their key and proved by their checksums.
//!
//! A task's files are written into a folder under a temporary name, `done.json` last, and the folder
//! is renamed. Its parent's name carries the hash of everything that shapes its content, so a task
//! of another plan is never taken for this one. On reuse every file is summed up again, `done.json`
//! too, whose second line is the checksum of its first; a damaged task is removed and done anew.

use crate::algo::hash;
use crate::shard::{ChecksumWriter, file_checksum};
use crate::spill::IoContext;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

#[derive(Serialize, Deserialize)]
struct Done<T> {
    files: BTreeMap<String, (u64, String)>,
    info: T,
}

/// A task being written.
pub struct TaskWriter {
    temporary: PathBuf,
    place: PathBuf,
    streams: BTreeMap<String, ChecksumWriter<BufWriter<File>>>,
}

impl TaskWriter {
    /// Begins the task that will stand at `place`; `streams` are its files, each empty at first.
    pub fn begin(place: &Path, streams: &[String]) -> io::Result<TaskWriter> {
        let temporary = place.with_extension("tmp");
        if temporary.exists() {
            fs::remove_dir_all(&temporary).context("write", &temporary)?;
        }
        fs::create_dir_all(&temporary).context("write", &temporary)?;
        let mut all = BTreeMap::new();
        for name in streams {
            let path = temporary.join(name);
            let file = File::create(&path).context("write", &path)?;
            all.insert(
                name.clone(),
                ChecksumWriter::new(BufWriter::with_capacity(1 << 18, file)),
            );
        }
        Ok(TaskWriter {
            temporary,
            place: place.to_path_buf(),
            streams: all,
        })
    }

    /// Appends bytes to one of the streams.
    pub fn write(&mut self, stream: &str, bytes: &[u8]) -> io::Result<()> {
        let writer = self
            .streams
            .get_mut(stream)
            .expect("streams are named when the task begins");
        writer
            .write_all(bytes)
            .context("write", &self.temporary.join(stream))
    }

    /// Ends the task and gives it its name.
    pub fn finish<T: Serialize>(self, info: &T) -> io::Result<()> {
        let mut files = BTreeMap::new();
        for (name, writer) in self.streams {
            let (buffer, bytes, checksum) = writer.finish();
            let path = self.temporary.join(&name);
            buffer
                .into_inner()
                .map_err(|e| e.into_error())
                .context("write", &path)?;
            files.insert(name, (bytes, checksum));
        }
        let path = self.temporary.join("done.json");
        let text = serde_json::to_string(&Done { files, info }).map_err(io::Error::other)?;
        fs::write(&path, format!("{text}\n{}\n", own_checksum(&text))).context("write", &path)?;
        if self.place.exists() {
            fs::remove_dir_all(&self.place).context("write", &self.place)?;
        }
        fs::rename(&self.temporary, &self.place).context("write", &self.place)
    }
}

/// What a finished task says of itself, or `None` where it must be done (again).
pub fn finished<T: DeserializeOwned>(place: &Path) -> Option<T> {
    let text = fs::read_to_string(place.join("done.json")).ok()?;
    let (text, checksum) = text.strip_suffix('\n')?.split_once('\n')?;
    if checksum != own_checksum(text) {
        return None;
    }
    let done: Done<T> = serde_json::from_str(text).ok()?;
    let whole = done.files.iter().all(|(name, expected)| {
        file_checksum(&place.join(name)).is_ok_and(|found| found == *expected)
    });
    whole.then_some(done.info)
}

fn own_checksum(text: &str) -> String {
    format!("{:032x}", hash::content(text.as_bytes()))
}

/// The lock of a work folder: one run at a time.
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock, or `None` where another run holds it.
    pub fn take(folder: &Path) -> io::Result<Option<Lock>> {
        let path = folder.join("lock");
        let file = File::create(&path).context("write", &path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error).context("write", &path),
        }
    }
}

/// Writes a file under a temporary name and renames it.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    let mut file = File::create(&temporary).context("write", &temporary)?;
    file.write_all(bytes).context("write", &temporary)?;
    file.sync_data().context("write", &temporary)?;
    fs::rename(&temporary, path).context("write", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_found_again_and_a_damaged_one_is_not() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let place = folder.path().join("task-0");
        assert_eq!(finished::<u32>(&place), None);
        let mut task = TaskWriter::begin(&place, &["a".to_string(), "b".to_string()])?;
        task.write("a", b"some bytes")?;
        assert_eq!(finished::<u32>(&place), None);
        task.finish(&7u32)?;
        assert_eq!(finished::<u32>(&place), Some(7));
        fs::write(place.join("a"), b"some bytez")?;
        assert_eq!(finished::<u32>(&place), None);
        fs::write(place.join("a"), b"some bytes")?;
        assert_eq!(finished::<u32>(&place), Some(7));
        // Still valid JSON, but no longer what was written.
        let done = place.join("done.json");
        fs::write(
            &done,
            fs::read_to_string(&done)?.replace("\"info\":7", "\"info\":8"),
        )?;
        assert_eq!(finished::<u32>(&place), None);
        Ok(())
    }

    #[test]
    fn a_folder_has_one_owner() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let first = Lock::take(folder.path())?;
        assert!(first.is_some());
        assert!(Lock::take(folder.path())?.is_none());
        drop(first);
        assert!(Lock::take(folder.path())?.is_some());
        Ok(())
    }
}
