//! Tests of the program as a whole: one binary, one module a subject.

mod faults;
mod memory;
mod same_bytes;
