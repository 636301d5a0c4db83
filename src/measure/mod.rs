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
//! - `account`: these together are what is told of a run.
//! - `fit`, `curve`, `paired`: power laws of the loss, the baseline's curve, what a few paired runs can tell.
//! - `progress`: bits per byte on held-out text beside the baseline: P, m, net m, G; `forecast`: g beside m.
//! - `open` reads the logs; `report`: all of it as JSON; `table` and `html`: for people.

mod account;
mod attempts;
mod curve;
mod fit;
mod forecast;
mod hardware;
mod html;
mod join;
mod model;
mod open;
mod paired;
mod progress;
mod progress_html;
mod progress_table;
mod published;
mod rate;
mod reading;
mod report;
mod report_schema;
mod request;
mod table;
mod time;

pub use attempts::{Attempt, Evaluation, Refusal, Row, Schedule, Trace};
pub use curve::{Curve, LEAST_BUDGETS, Outside};
pub use fit::{Point, PowerLaw, Term, fit};
pub use forecast::{ArmReport, MeasuredReport, SourceReport};
pub use hardware::{CHIPS, Chip, Hardware};
pub use html::html;
pub use join::{DocumentReport, JoinReport, PartReport, SpikeReport};
pub use model::{CONVENTIONS, Convention, Model};
pub use paired::{Paired, holm, minimum_detectable, paired, student_t_quantile};
pub use progress::{
    BudgetReport, ComparisonReport, CurveReport, PairReport, PointReport, ProgressReport,
    SetReport, TermReport, bits_per_byte, net_multiplier,
};
pub use published::{PUBLISHED, Published};
pub use rate::{Reliability, best_interval_days, expected_ettr, mttf_days, utilization};
pub use reading::{DifferenceKind, DifferenceReport, OrderReport, ids_crc32};
pub use report::{
    AttemptReport, BadLineReport, CostReport, DatasetReport, EvaluationReport, RateReport,
    ReliabilityReport, Report, RunReport, SelectionReport, StepReport, TimeReport, TokenReport,
    TrainingReport, measure,
};
pub use report_schema::report_schema;
pub use request::{
    Budget, CurveKind, Dataset, DatasetRequest, Forecast, HeldOut, ProgressRequest, ReaderRequest,
    Request, RunRequest, SelectionRequest,
};
pub use table::{published_table, table};
pub use time::{Category, Spent, TimeSplit, split};
