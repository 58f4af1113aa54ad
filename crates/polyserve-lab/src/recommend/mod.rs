//! Which server and which repo for a workload: measured here, under that workload, and answered with the lines of Rust
//! that use the winner.
//!
//! What is measured is a comparison as [`compare`](mod@crate::compare) makes it, of a few candidates that make sense for the
//! workload: every answer verified, interleaved, the first candidate beside itself for the noise. A winner is the one of the
//! most requests a second among those that meet the latency goal; whoever cannot be told from it is named as a tie.
//!
//! Invariant: no difference is claimed that the same candidate shows beside itself. Cost: the time that was asked for.
//!
//! # Layout
//!
//! * [`workload`]: what is asked for. [`candidates`]: who takes part, and why. [`budget`]: how the time is spent.
//! * [`choice`]: what came of it. [`lines`]: how to use it. [`table`]: for people.

pub mod budget;
pub mod candidates;
pub mod choice;
pub mod lines;
pub mod table;
pub mod workload;

pub use budget::Budget;
pub use candidates::{Candidate, Field};
pub use choice::Recommendation;
pub use workload::Workload;
