//! Histories of servers and repos, recorded and checked for linearizability.
//!
//! A server of ours runs in a process of its own over an empty repo; concurrent clients put, get and remove few keys over
//! HTTP, with and without conditions, and what they saw must have an order: see [`polyserve_conformance::history`]. A repo
//! can be asked in this process too.
//!
//! Invariant: a run that was ended early is checked as far as it went; an answer that cannot be fails it at once. Cost: a
//! thread a client, and 48 bytes an operation.
//!
//! # Layout
//!
//! [`subject`]: the server or repo under test. [`run`](mod@run): one recording and its check. [`report`]: the result.

pub mod report;
pub mod run;
pub mod subject;

pub use report::{CheckReport, CheckRun, RecordingVerdict};
pub use run::{CheckPlan, check_file, run};
pub use subject::CheckSubject;
