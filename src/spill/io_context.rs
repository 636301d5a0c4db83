//! Errors of the file system that say which file they are about.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Adds to an I/O error what was being done and to which path; the kind stays.
pub trait IoContext<T> {
    /// `doing` completes "cannot ...", e.g. `write`.
    ///
    /// # Errors
    /// The error it was given, with a longer message.
    fn context(self, doing: &str, path: &Path) -> io::Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn context(self, doing: &str, path: &Path) -> io::Result<T> {
        self.map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("cannot {doing} {}: {error}", path.display()),
            )
        })
    }
}

/// Opens a file that a user names. A pipe or a device, which may never end, is refused.
///
/// # Errors
/// When there is none, it may not be read, or it is neither a file nor a folder.
pub fn open_file(path: &Path) -> io::Result<File> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() && !metadata.is_dir() {
        let text = "is a pipe or a device; name a file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    File::open(path)
}

/// All bytes of a file that a user names.
///
/// # Errors
/// As [`open_file`].
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_file(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_ends_is_not_opened() {
        let error = read_file(Path::new("/dev/zero")).expect_err("a device");
        assert!(error.to_string().contains("name a file"), "{error}");
    }

    #[test]
    fn names_the_path_and_keeps_the_kind() {
        let path = Path::new("/no/such/file");
        let error = std::fs::File::open(path)
            .context("open", path)
            .expect_err("the file does not exist");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(
            error.to_string().starts_with("cannot open /no/such/file: "),
            "{error}"
        );
    }
}
