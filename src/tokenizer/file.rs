//! Reading a tokenizer's file: which kind it is, and refusing the kinds that need converting.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use super::TokenizerError;

/// Largest tokenizer file read, after decompression. The largest published ones are near 40 MB.
const MAX_FILE_BYTES: u64 = 1 << 29;

/// First bytes of a zstd frame.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// A tokenizer.json in memory.
pub(super) struct TokenizerFile {
    /// The file's bytes after decompression: what the fingerprint covers.
    pub(super) bytes: Vec<u8>,
    /// The same, parsed.
    pub(super) json: Value,
}

/// Reads `path`, a tokenizer.json or a zstd-packed one, and says what it is where it is neither.
pub(super) fn read(path: &Path) -> Result<TokenizerFile, TokenizerError> {
    let bytes = read_bytes(path)?;
    let shown = path.display().to_string();
    let name = file_name_without_zst(path);
    if name.ends_with(".tiktoken") || looks_like_tiktoken(&bytes) {
        return Err(TokenizerError::TiktokenRanks { path: shown });
    }
    if name.ends_with(".model") {
        return Err(TokenizerError::SentencePieceModel { path: shown });
    }
    let not_one = |found: String| TokenizerError::NotATokenizerJson {
        path: shown.clone(),
        found,
    };
    if bytes.is_empty() {
        return Err(not_one("an empty file".into()));
    }
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    if first != Some(&b'{') {
        return Err(not_one(describe_start(&bytes)));
    }
    let json: Value = serde_json::from_slice(&bytes)
        .map_err(|error| not_one(format!("JSON that does not parse ({error})")))?;
    if !json.get("model").is_some_and(Value::is_object) {
        return Err(not_one(describe_object(&json)));
    }
    if let Some(dropout) = json["model"].get("dropout").and_then(Value::as_f64)
        && dropout != 0.0
    {
        return Err(TokenizerError::Dropout {
            path: shown,
            dropout,
        });
    }
    Ok(TokenizerFile { bytes, json })
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, TokenizerError> {
    let unreadable = |source| TokenizerError::Unreadable {
        path: path.display().to_string(),
        source,
    };
    if path.is_dir() {
        return Err(TokenizerError::IsAFolder {
            path: path.display().to_string(),
        });
    }
    // A pipe or a device may never end.
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(TokenizerError::NotATokenizerJson {
            path: path.display().to_string(),
            found: "a pipe or a device".into(),
        });
    }
    let mut packed = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut packed))
        .map_err(unreadable)?;
    let bytes = if packed.starts_with(&ZSTD_MAGIC) {
        let mut bytes = Vec::new();
        zstd::stream::read::Decoder::new(packed.as_slice())
            .and_then(|decoder| decoder.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
            .map_err(unreadable)?;
        bytes
    } else {
        packed
    };
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(TokenizerError::TooLarge {
            path: path.display().to_string(),
            max_bytes: MAX_FILE_BYTES,
        });
    }
    Ok(bytes)
}

fn file_name_without_zst(path: &Path) -> String {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().to_ascii_lowercase())
        .unwrap_or_default();
    name.strip_suffix(".zst").unwrap_or(&name).to_owned()
}

/// A rank file's first line is base64, a space and a number.
fn looks_like_tiktoken(bytes: &[u8]) -> bool {
    let line = bytes
        .split(|&byte| byte == b'\n')
        .next()
        .unwrap_or_default();
    let mut parts = line.trim_ascii_end().split(|&byte| byte == b' ');
    let (Some(token), Some(rank), None) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    !token.is_empty()
        && token.len().is_multiple_of(4)
        && token.iter().all(is_base64)
        && !rank.is_empty()
        && rank.iter().all(u8::is_ascii_digit)
}

fn describe_start(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(16)];
    match start {
        [0x1F, 0x8B, ..] => "a gzip file".into(),
        [b'P', b'K', 3, 4, ..] => "a zip file".into(),
        // Field 1 (pieces) of a SentencePiece ModelProto.
        [0x0A, _, 0x0A, ..] => "what looks like a SentencePiece model".into(),
        _ => format!("a file that starts with \"{}\"", start.escape_ascii()),
    }
}

fn describe_object(json: &Value) -> String {
    let Some(object) = json.as_object() else {
        return "JSON that is not an object".into();
    };
    if object.len() > 100 && object.values().all(Value::is_u64) {
        return "a bare vocabulary (as in vocab.json), which has no merges".into();
    }
    let keys: Vec<String> = object
        .keys()
        .take(5)
        .map(|key| format!("`{key}`"))
        .collect();
    if keys.is_empty() {
        return "an empty JSON object".into();
    }
    format!("JSON without `model`, with the keys {}", keys.join(", "))
}
