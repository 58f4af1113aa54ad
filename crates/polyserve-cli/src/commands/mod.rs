//! The commands, one for each module, and their shared parts: `names` of strategies, `entrants` of a comparison, the flags
//! of a `workload` and of `cores`, the bounds of `times`, `room` for all connections, and the `session` of a measurement.

mod access;
mod admin;
pub(crate) mod bench;
pub(crate) mod check;
mod client_tls;
pub(crate) mod compare;
pub(crate) mod cores;
pub(crate) mod data;
pub(crate) mod durable;
pub(crate) mod entrants;
mod foreign;
mod handover;
pub(crate) mod list;
pub(crate) mod load;
mod memory;
pub(crate) mod names;
pub(crate) mod recommend;
mod reload;
pub(crate) mod report;
pub(crate) mod room;
mod seed;
pub(crate) mod serve;
pub(crate) mod service;
pub(crate) mod session;
mod systemd;
pub(crate) mod times;
mod tls;
pub(crate) mod token;
mod watchdog;
pub(crate) mod workload;
