//! Pure algorithms on slices: no I/O, no clock, no threads.

pub mod hash;
pub mod language;
pub mod minhash;
pub mod words;
