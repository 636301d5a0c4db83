//! Checksums of files: xxHash3, 128 bits, in hex.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use xxhash_rust::xxh3::Xxh3Default;

/// Passes bytes on and sums them up.
pub struct ChecksumWriter<W> {
    inner: W,
    hash: Box<Xxh3Default>,
    bytes: u64,
}

impl<W: Write> ChecksumWriter<W> {
    /// Writes to `inner`.
    pub fn new(inner: W) -> Self {
        ChecksumWriter {
            inner,
            hash: Box::new(Xxh3Default::new()),
            bytes: 0,
        }
    }
    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
    /// The writer, the number of bytes and their checksum.
    pub fn finish(self) -> (W, u64, String) {
        (self.inner, self.bytes, hex(self.hash.digest128()))
    }
}

impl<W: Write> Write for ChecksumWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Length and checksum of a file.
///
/// # Errors
/// When it cannot be read; the text names the path.
pub fn file_checksum(path: &Path) -> io::Result<(u64, String)> {
    let at = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    let mut file = File::open(path).map_err(at)?;
    let mut hash = Xxh3Default::new();
    let mut buffer = vec![0; 1 << 18];
    let mut total = 0;
    loop {
        let read = file.read(&mut buffer).map_err(at)?;
        if read == 0 {
            return Ok((total, hex(hash.digest128())));
        }
        hash.update(&buffer[..read]);
        total += read as u64;
    }
}

/// 32 hexadecimal digits.
pub(super) fn hex(hash: u128) -> String {
    format!("{hash:032x}")
}
