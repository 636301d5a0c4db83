//! Text to ids: loading, special tokens, fingerprint.
