//! A server and a store for a workload, measured on this machine under that workload, with the lines of Rust that use them.
//!
//! The rules of the catalog choose a few candidates that suit the workload. A definition of the mode
//! [`compare`](crate::bench::mode::closed) measures them, and its [ranking](crate::bench::ranking) is the answer. The winner has the highest
//! throughput among the candidates that meet the latency goal. Candidates with a difference within the noise
//! are ties.
//!
//! Invariant: no difference is reported that is within the noise of the first candidate against itself. Cost: the given time.
//!
//! # Layout
//!
//! * [`workload`]: the workload. `candidates`: the candidates, with reasons. `budget`: the division of the time.
//! * `choice`: the result. `lines`: the code for it. [`table`]: the text for people.

pub(crate) mod budget;
mod candidates;
mod choice;
pub mod left_out;
mod lines;
pub mod table;
pub mod workload;

pub use budget::Budget;
pub use candidates::{Candidate, CandidateSet, DURABLE_DIRECTORY};
pub use choice::{Basis, CapacityFigure, Choice, Recommendation};
pub use lines::Lines;
