//! Tests of the program as a whole: one binary, one module a subject.

mod cli;
mod contract;
mod robustness;
mod rooms;
mod support;
