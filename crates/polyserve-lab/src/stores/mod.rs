//! Stores without a server: threads that get, put and remove straight on a repo, and on the same maps used bare.
//!
//! A point is a store at a place of an axis (stored entities, threads, payload), under every workload that was asked for.
//! It is a process of its own in every round, so that its memory is its own, and the points of a place are taken in turn
//! over all stores, in an order that changes. Keys and operations are made outside the counted time. While a workload
//! warms up, every entity that is read is checked whole; while it counts, every answer is checked, with the id, the
//! version and the length of what was shown, which asks for no memory that a lookup has not touched; after the workloads that
//! read and replace, what is stored is checked whole again, and after churn how many there are. Ratios are taken within rounds to a named baseline, and that one is entered twice.
//!
//! A store that answers later is waited for one by one, and measured again with many operations outstanding: both are
//! shown, and named so.
//!
//! Invariant: a store that did wrong, ran out of time or would not fit into memory has no figures, but a line that says
//! so. Cost: points x workloads x rounds x the slices, and what it takes to store the entities.
//!
//! # Layout
//!
//! * [`entities`]: what is stored, and how it is known again. [`workload`]: what is asked, as chunks that are made ahead.
//! * [`store`]: a store as the loops see it; [`bare`]: maps without the seam. [`window`]: many operations outstanding.
//! * [`phase`](mod@phase): threads at one store, leg by leg. [`cell`]: a point, in its own process.
//! * [`run`]: all points, in turn; [`process`]: a process for each. [`record`]: what is written down; [`report`], [`table`]: what came of it.
//! * [`seam`]: what the seam costs: bare maps and repos alternating in one process. [`twins`]: its turns.

pub mod bare;
pub mod cell;
pub mod entities;
pub mod phase;
pub mod process;
pub mod record;
pub mod report;
pub mod run;
pub mod seam;
pub mod store;
pub mod table;
pub mod twins;
pub mod window;
pub mod workload;

#[cfg(test)]
mod tests;

pub use workload::{Load, Workload};

/// The experiment's name.
pub const NAME: &str = "stores";
