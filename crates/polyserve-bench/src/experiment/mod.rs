//! The framework of every measurement. An experiment from a [definition](crate::bench) is data, and [`Turns`](crate::bench::mode::Turns)
//! that measure; everything else is here.
//!
//! ```text
//!   describe ──> header of the record        (an old record with another header is not overwritten)
//!   prepare  ──> facts: builds, calibrations
//!   batches  ──> the cells that are measured together, and those that cannot be measured here
//!   measure  ──> a sample or an absence for each cell that the record does not have yet
//!   report   ──> the result; the same from a run and from a recorded file
//! ```
//!
//! The framework owns resume, Ctrl-C, progress, the order of contestants, the A/A control's name, disqualification, exit
//! codes, JSON, the record and completeness (planned cells minus recorded cells).
//!
//! Invariants: a cell is recorded once it is complete, and never measured again. A contestant that did wrong or timed out is
//! not measured again, in this run or a later one. Every other absence is measured again by the next run. A result that arrives
//! after the stop signal is discarded. Cost: one line of JSON for each cell.
//!
//! # Layout
//!
//! * `plan`: cells and their order. `absence`: why a cell has no sample. `record`: what is recorded.
//! * `runner`: the one measuring loop. `command`: the shared flags, how a command runs an experiment, and how a report reads one.
//! * `rows`: CSV.

mod absence;
mod command;
mod plan;
mod record;
mod rows;
mod runner;
#[cfg(test)]
mod tests;

pub use absence::{Absence, Failed, Reason};
pub use command::{Execution, KnownExperiment, RecordArgs, Recorded, recorded};
pub use plan::{Absent, again, distinct, order, with_second_entries};
pub(crate) use plan::{first_of, interleaved};
pub use record::{End, Records, SAMPLE};
pub use rows::csv;
pub(crate) use rows::with_short_floats;
pub(crate) use runner::run_with;
pub use runner::{Notebook, run};
