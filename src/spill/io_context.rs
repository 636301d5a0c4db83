//! Errors of the file system that say which file they are about.

use std::io;
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

#[cfg(test)]
mod tests {
    use super::*;

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
