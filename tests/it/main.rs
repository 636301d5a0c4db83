//! Tests of the program as a whole: one binary, one module a subject.

mod auxiliary;
mod calibration;
mod cli;
mod contamination;
mod contract;
mod edits;
mod epochs;
mod estimators;
mod failpoints;
mod faults;
mod fuzz;
mod hostile;
mod measure;
mod memory;
mod messages;
mod models;
mod near;
mod pipelines;
mod releases;
mod reporting;
mod robustness;
mod rooms;
mod same_bytes;
mod spans;
mod support;
mod threshold;
