//! Goodput measured: what was paid for, what was lost and to what, at which rate, for how much.
//!
//! [`measure`] takes a [`Request`] (made by `plan` from a measure file or from flags), reads the logs with
//! the formats of `logs` and gives a [`Report`]. The steps, each a file:
//!
//! - `attempts`: the events of a run's files become attempts: processes, one after another.
//! - `time`: each attempt's time is split, in whole microseconds: wall = productive + badput by category +
//!   unattributed, exactly.
//! - `rate`: floating-point operations by named convention, MFU, HFU, expected ETTR, MTTF, the best
//!   checkpoint interval. `published`: figures of papers, recomputed.
//! - `join`: which rows and documents of the dataset the steps read. `reading`: whether in the order of the manifest.
//! - `report`: all of it as JSON; `table`: for people.

mod attempts;
mod hardware;
mod join;
mod model;
mod published;
mod rate;
mod reading;
mod report;
mod request;
mod table;
mod time;

pub use attempts::{Attempt, Refusal, Row, Trace};
pub use hardware::{CHIPS, Chip, Hardware};
pub use join::{DocumentReport, JoinReport, PartReport, SpikeReport};
pub use model::{CONVENTIONS, Convention, Model};
pub use published::{PUBLISHED, Published};
pub use rate::{Reliability, best_interval_days, expected_ettr, mttf_days, utilization};
pub use reading::{DifferenceKind, DifferenceReport, OrderReport, ids_crc32};
pub use report::{
    AttemptReport, BadLineReport, CostReport, DatasetReport, RateReport, ReliabilityReport, Report,
    RunReport, StepReport, TimeReport, TokenReport, measure,
};
pub use request::{Dataset, DatasetRequest, ReaderRequest, Request, RunRequest};
pub use table::{published_table, table};
pub use time::{Category, Spent, TimeSplit, split};
