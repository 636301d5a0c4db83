//! Keyed hashing: the only source of chance in the program.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed, xxh3_128};

/// Unkeyed 64-bit hash of an id (xxHash3).
pub fn id_hash(id: &str) -> u64 {
    xxh3_64(id.as_bytes())
}

/// A uniform 64-bit hash of (seed, purpose, id), the id given by its [`id_hash`].
pub fn keyed(seed: u64, purpose: &str, id_hash: u64) -> u64 {
    keyed_by(purpose_key(seed, purpose), id_hash)
}

/// The part of [`keyed`] that is the same for all ids.
pub fn purpose_key(seed: u64, purpose: &str) -> u64 {
    xxh3_64_with_seed(purpose.as_bytes(), seed)
}

/// [`keyed`] with the [`purpose_key`] already made.
pub fn keyed_by(purpose_key: u64, id_hash: u64) -> u64 {
    xxh3_64_with_seed(&id_hash.to_le_bytes(), purpose_key)
}

/// 128-bit hash of bytes (xxHash3).
pub fn content(bytes: &[u8]) -> u128 {
    xxh3_128(bytes)
}
