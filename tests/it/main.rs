//! Tests of the program as a whole: one binary, one module a subject.

mod auxiliary;
mod calibration;
mod cli;
mod contract;
mod estimators;
mod faults;
mod memory;
mod messages;
mod models;
mod pipelines;
mod robustness;
mod rooms;
mod same_bytes;
mod support;
mod threshold;
