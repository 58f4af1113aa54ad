//! The experiments that others published, on the servers and executors of polyserve.
//!
//! # Layout
//!
//! * [`matrix`]: the experiment of an entity server, pool size against connections.
//! * [`ladder`]: the experiment of one optimisation at a time.
//! * [`page`]: the experiment of a page that sometimes waits.
//! * [`tasks`]: the experiment of CPU tasks at once.
//! * [`stress`]: the stress scenario, its client, and how its answers are verified.
//! * [`services`]: the services of the published experiments, for the catalog.
//! * [`published`]: the published figures, as CSV.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

pub mod ladder;
pub mod matrix;
pub mod page;
pub mod published;
pub mod services;
pub mod stress;
pub mod tasks;
