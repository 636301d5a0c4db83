//! Pure algorithms on slices: no I/O, no clock, no threads.

pub mod hash;
pub mod kendall;
pub mod language;
pub mod minhash;
pub mod pacing;
pub mod words;
