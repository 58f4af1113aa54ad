//! Histories of servers and repos, recorded and checked for linearizability.
//!
//! A server of this project runs in its own process over an empty repo. Concurrent clients put, get and remove few keys over
//! HTTP, with and without conditions. The answers must have a sequential order: see [`polyserve_conformance::history`]. A repo
//! can also be tested in this process.
//!
//! Invariant: the recorded part of an interrupted run is checked. An impossible answer fails the run at once. Cost: a thread
//! for each client, and 48 bytes for each operation.
//!
//! # Layout
//!
//! `subject`: the server or repo under test. `run`: one recording and its check. `report`: the result.

mod report;
mod run;
mod subject;

pub use report::{CheckReport, CheckRun, RecordingVerdict};
pub use run::{CheckPlan, check_file, run};
pub use subject::CheckSubject;
