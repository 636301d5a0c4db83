//! A file's uncompressed bytes, whether it is plain, gzip (of several members) or zstd (of several
//! frames), and what its end was like.

use super::{FoundFile, SourceError};
use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use xxhash_rust::xxh3::Xxh3;

/// Bytes read from the disk at once.
const READ_BYTES: usize = 256 << 10;

/// Bytes of a buffer that are filled at once.
const STEP_BYTES: usize = 128 << 10;

/// Logarithm of the largest zstd window that is accepted: all that the format's `--long=31` makes.
const MAX_ZSTD_WINDOW_LOG: u32 = 31;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// By the first bytes; the name decides only where the file is too short to show them.
    fn of(first: &[u8], file: &FoundFile) -> Compression {
        const GZIP: &[u8] = &[0x1F, 0x8B];
        const ZSTD: &[u8] = &[0x28, 0xB5, 0x2F, 0xFD];
        if first.starts_with(GZIP) {
            return Compression::Gzip;
        }
        if first.starts_with(ZSTD) {
            return Compression::Zstd;
        }
        let name = file.name.to_ascii_lowercase();
        let cut_magic = |magic: &[u8]| !first.is_empty() && magic.starts_with(first);
        if (name.ends_with(".gz") || name.ends_with(".gzip")) && cut_magic(GZIP) {
            return Compression::Gzip;
        }
        let skippable = first.len() == 4 && first[0] >> 4 == 5 && first[1..] == [0x2A, 0x4D, 0x18];
        if (name.ends_with(".zst") || name.ends_with(".zstd")) && (skippable || cut_magic(ZSTD)) {
            return Compression::Zstd;
        }
        Compression::None
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Compression::None => "plain",
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
        }
    }
}

/// Opens a file, checks that it is still as it was found, and tells its compression.
pub(super) fn open(file: &FoundFile) -> Result<(File, Compression), SourceError> {
    let failed = |source| SourceError::Read {
        path: file.path.clone(),
        source,
    };
    let mut handle = File::open(&file.path).map_err(failed)?;
    file.unchanged_by(&handle.metadata().map_err(failed)?)?;
    let mut first = Vec::with_capacity(4);
    Read::by_ref(&mut handle)
        .take(4)
        .read_to_end(&mut first)
        .map_err(failed)?;
    handle.seek(SeekFrom::Start(0)).map_err(failed)?;
    let compression = Compression::of(&first, file);
    Ok((handle, compression))
}

/// Bytes of what a decoder keeps of a zstd file's text while it reads the first frame: its window (RFC 8878, 3.1.1.1);
/// 0 for any other file, and for one that cannot be read, which whoever reads it says.
pub fn window_bytes(path: &Path) -> u64 {
    let mut first = Vec::with_capacity(14);
    let read = File::open(path).and_then(|file| file.take(14).read_to_end(&mut first));
    if read.is_err() {
        return 0;
    }
    window_of(&first).unwrap_or(0)
}

fn window_of(frame: &[u8]) -> Option<u64> {
    let rest = frame.strip_prefix(&[0x28, 0xB5, 0x2F, 0xFD])?;
    let (&descriptor, rest) = rest.split_first()?;
    let single_segment = descriptor & 0x20 != 0;
    if !single_segment {
        let window = *rest.first()?;
        let base = 1u64 << (10 + (window >> 3));
        return Some(base + base / 8 * u64::from(window & 7));
    }
    // All of the content is the window; its size stands after the number of the dictionary.
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let length = [1, 2, 4, 8][usize::from(descriptor >> 6)];
    let mut size = [0; 8];
    size[..length].copy_from_slice(rest.get(dictionary..dictionary + length)?);
    Some(u64::from_le_bytes(size) + if length == 2 { 256 } else { 0 })
}

/// XXH3-128 of a file as it lies on disk. `read` is told of the bytes as they come.
///
/// # Errors
/// When the file cannot be read.
pub fn file_checksum(path: &Path, read: &dyn Fn(u64)) -> Result<u128, SourceError> {
    let failed = |source| SourceError::Read {
        path: path.to_path_buf(),
        source,
    };
    let mut reader = BufReader::with_capacity(READ_BYTES, File::open(path).map_err(failed)?);
    let mut hash = Xxh3::new();
    loop {
        let bytes = match reader.fill_buf() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(failed(error)),
        };
        if bytes.is_empty() {
            return Ok(hash.digest128());
        }
        hash.update(bytes);
        let taken = bytes.len();
        read(taken as u64);
        reader.consume(taken);
    }
}

/// The file below the decompressor: hashes what passes and keeps the error of the disk apart from
/// those of the decompressor.
struct Raw {
    file: File,
    state: Arc<Mutex<RawState>>,
    hashed: bool,
}

struct RawState {
    hash: Xxh3,
    bytes: u64,
    error: Option<io::Error>,
}

impl Read for Raw {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = loop {
            match self.file.read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => break result,
            }
        };
        let mut state = self
            .state
            .lock()
            .map_err(|_| io::Error::from(ErrorKind::Other))?;
        match read {
            Ok(read) => {
                state.bytes += read as u64;
                if self.hashed {
                    state.hash.update(&buffer[..read]);
                }
                Ok(read)
            }
            Err(error) => {
                let kind = error.kind();
                state.error = Some(error);
                Err(kind.into())
            }
        }
    }
}

/// A stream of uncompressed bytes.
pub(super) struct Input {
    stream: Stream,
    state: Arc<Mutex<RawState>>,
    path: PathBuf,
    file_bytes: u64,
    hashed: bool,
    uncompressed: u64,
    end: Option<End>,
}

enum Stream {
    Plain(Raw),
    Gzip(Box<MultiGzDecoder<BufReader<Raw>>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, BufReader<Raw>>>),
}

/// How a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// As it should.
    Clean,
    /// Cut off or damaged; the sentence says how.
    Damaged(String),
}

impl Input {
    /// The bytes from `start` on, which must be 0 for a compressed file. With `checksum`, the
    /// whole file is going to be read and is hashed on the way.
    pub fn open(file: &FoundFile, start: u64, checksum: bool) -> Result<Input, SourceError> {
        let failed = |source| SourceError::Read {
            path: file.path.clone(),
            source,
        };
        let (mut handle, compression) = open(file)?;
        if start > 0 {
            if compression != Compression::None {
                return Err(SourceError::NoSuchSlice {
                    path: file.path.clone(),
                    slice: format!("from byte {start} of a {} stream", compression.name()),
                });
            }
            handle.seek(SeekFrom::Start(start)).map_err(failed)?;
        }
        let state = Arc::new(Mutex::new(RawState {
            hash: Xxh3::new(),
            bytes: 0,
            error: None,
        }));
        let raw = Raw {
            file: handle,
            state: Arc::clone(&state),
            hashed: checksum,
        };
        let buffered = |raw| BufReader::with_capacity(READ_BYTES, raw);
        let stream = match compression {
            Compression::None => Stream::Plain(raw),
            Compression::Gzip => Stream::Gzip(Box::new(MultiGzDecoder::new(buffered(raw)))),
            Compression::Zstd => {
                let mut decoder =
                    zstd::stream::read::Decoder::with_buffer(buffered(raw)).map_err(failed)?;
                decoder
                    .window_log_max(MAX_ZSTD_WINDOW_LOG)
                    .map_err(failed)?;
                Stream::Zstd(Box::new(decoder))
            }
        };
        Ok(Input {
            stream,
            state,
            path: file.path.clone(),
            file_bytes: file.bytes,
            hashed: checksum,
            uncompressed: start,
            end: None,
        })
    }

    /// How the stream ended, once it has.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// What is wrong with the stream's end.
    pub fn damage(&self) -> Option<&str> {
        match &self.end {
            Some(End::Damaged(problem)) => Some(problem),
            _ => None,
        }
    }

    /// Bytes that have been read of the file, as they lie on disk.
    pub fn file_bytes_read(&self) -> u64 {
        self.state.lock().map_or(0, |state| state.bytes)
    }

    /// XXH3-128 of the file, where all of it has been read in one go without damage.
    pub fn checksum(&self) -> Option<u128> {
        let state = self.state.lock().ok()?;
        (self.hashed && self.end == Some(End::Clean) && state.bytes == self.file_bytes)
            .then(|| state.hash.digest128())
    }

    /// Appends bytes to `buffer` until it holds `target` or the stream has ended.
    pub fn fill(&mut self, buffer: &mut Vec<u8>, target: usize) -> Result<(), SourceError> {
        let mut filled = buffer.len();
        if filled >= target || self.end.is_some() {
            return Ok(());
        }
        buffer.reserve(target - filled);
        while filled < target {
            if filled == buffer.len() {
                // In steps, so that a small file does not touch a whole chunk's memory.
                buffer.resize(target.min(filled + STEP_BYTES), 0);
            }
            let room = &mut buffer[filled..];
            let read = match &mut self.stream {
                Stream::Plain(raw) => raw.read(room),
                Stream::Gzip(decoder) => decoder.read(room),
                Stream::Zstd(decoder) => decoder.read(room),
            };
            match read {
                Ok(0) => {
                    self.end = Some(End::Clean);
                    break;
                }
                Ok(read) => {
                    filled += read;
                    self.uncompressed += read as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.end = Some(End::Damaged(self.damage_of(error)?));
                    break;
                }
            }
        }
        buffer.truncate(filled);
        if self.end == Some(End::Clean) {
            self.check_size()?;
        }
        Ok(())
    }

    fn damage_of(&self, error: io::Error) -> Result<String, SourceError> {
        let failed = |source| SourceError::Read {
            path: self.path.clone(),
            source,
        };
        if matches!(self.stream, Stream::Plain(_)) {
            let state = self
                .state
                .lock()
                .ok()
                .and_then(|mut state| state.error.take());
            return Err(failed(state.unwrap_or(error)));
        }
        if let Some(error) = self
            .state
            .lock()
            .ok()
            .and_then(|mut state| state.error.take())
        {
            return Err(failed(error));
        }
        let what = match &self.stream {
            Stream::Gzip(_) => "gzip",
            _ => "zstd",
        };
        let at = self.uncompressed;
        Ok(if error.kind() == ErrorKind::UnexpectedEof {
            format!("the {what} stream is cut off after {at} uncompressed bytes")
        } else {
            format!("the {what} stream is damaged after {at} uncompressed bytes: {error}")
        })
    }

    /// A plain file that ends early was cut while it was read.
    fn check_size(&self) -> Result<(), SourceError> {
        if matches!(self.stream, Stream::Plain(_)) && self.uncompressed < self.file_bytes {
            return Err(SourceError::Changed {
                path: self.path.clone(),
                what: format!(
                    "had {} bytes when it was found and now has {}",
                    self.file_bytes, self.uncompressed
                ),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_of_a_frame_is_read_from_its_first_bytes() {
        let packed = |bytes: usize, log: u32| {
            let mut encoder = zstd::Encoder::new(Vec::new(), 3).expect("an encoder");
            encoder.window_log(log).expect("a window");
            std::io::Write::write_all(&mut encoder, &vec![b'x'; bytes]).expect("to memory");
            encoder.finish().expect("to memory")
        };
        // A stream of unknown length says its window.
        for log in [17, 21, 27] {
            assert_eq!(window_of(&packed(1_000, log)), Some(1 << log));
        }
        // One of known length may be its own window.
        for bytes in [10, 300, 70_000] {
            let whole = zstd::bulk::compress(&vec![b'x'; bytes], 3).expect("to memory");
            assert_eq!(window_of(&whole), Some(bytes as u64), "{bytes}");
        }
        assert_eq!(window_of(b"{\"text\": 1}"), None);
        assert_eq!(window_of(&[0x28, 0xB5, 0x2F, 0xFD]), None);
        assert_eq!(window_bytes(Path::new("/not/there")), 0);
    }
}
