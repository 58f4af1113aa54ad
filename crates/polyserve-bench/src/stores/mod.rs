//! Stores without a server: threads that get, put and remove directly on a repo, and on the same maps used bare.
//!
//! A store run measures a store at a point of an axis (stored entities, threads, payload) under all workloads. Each run is a
//! process, so no run shares memory with another run. The stores take turns at each point, in an order that changes from
//! round to round.
//!
//! Keys and operations are made outside the measured time. The warm-up checks every entity that it reads whole. The
//! measurement checks every answer, and of an entity the id, the version and the length: this reads only memory that the lookup
//! has already touched. After the workloads that read and replace, the stored entities are checked whole again. After churn,
//! their number is checked.
//!
//! A ratio compares two figures of the same round. The baseline is named, and entered twice.
//!
//! A repo with deferred answers is measured with one operation outstanding, and again with many. The report has both.
//!
//! Invariant: a store that did wrong, ran out of time or would not fit into memory has no figures, but a line with the
//! reason. Cost: points x workloads x rounds x the slices, and storing the entities.
//!
//! # Layout
//!
//! * [`entities`]: the stored entities and their checks. [`workload`]: operations, as chunks that are made ahead.
//! * [`store`]: the operations that the loops measure; [`bare`]: maps without the seam; [`erased`]: stores of any type.
//!   [`window`]: many operations outstanding.
//! * [`phase`](mod@phase): threads at one store, leg by leg. [`cell`]: a store run, in its own process.
//! * [`experiment`]: all store runs, in turn; [`process`]: a process for each. [`record`]: cells and samples; [`report`],
//!   [`table`], `chart`: the result.
//! * [`seam`]: the cost of the seam: bare maps and repos take turns in one process. [`store_set`]: the turns.

pub mod bare;
pub mod cell;
mod chart;
pub mod entities;
pub mod erased;
pub mod experiment;
pub mod phase;
pub mod process;
pub mod record;
pub mod report;
pub mod seam;
pub mod store;
pub mod store_set;
pub mod table;
pub mod window;
pub mod workload;

#[cfg(test)]
mod tests;

pub use experiment::Stores;
pub use workload::{StoreLoad, StoreWorkload};

/// The experiment's name.
pub const NAME: &str = "stores";
