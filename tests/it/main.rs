//! Tests of the program as a whole: one binary, one module a subject.
#![expect(clippy::print_stderr, reason = "a skipped test must say so")]

mod cli;
mod contract;
mod robustness;
mod rooms;
mod support;
