//! Bytes to documents: one file per format, compression beside them.
