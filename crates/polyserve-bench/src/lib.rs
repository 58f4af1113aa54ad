//! The instrument of polyserve: it measures and checks any strategy of a catalog, and repeats published experiments.
//!
//! # Layout
//!
//! * [`check`]: histories of concurrent clients, checked for linearizability.
//! * [`experiment`]: the framework that every measurement is written in.
//! * [`crowd`]: many connections that do nothing useful.
//! * [`bench`](mod@bench): experiments from definitions, which are TOML files.
//! * [`data`]: the entities that all measurements use.
//! * [`turn`]: one turn of a measurement. [`bench::ranking`]: strategies side by side, with an interval for every ratio. [`bench::mode::trial`]: checks that comparisons can be trusted.
//! * [`recommend`]: a server and a store for a workload. [`delayed`]: a store that answers after a delay.
//! * [`reference`](mod@reference): null servers, the limits that servers are measured against. Linux only.
//! * [`stores`]: repos and bare maps, without a server.
//! * [`contestants`]: programs from outside the catalog, from a file. [`launch`]: starts and ends processes. [`machine`]: cores, processes and the environment, from the kernel.
//! * [`journal`]: the record of a run. [`benches`]: the lines of `cargo bench -p polyserve-benches`.
//! * [`claim`]: published claims as data, and their verdicts.
//! * [`statistics`]: ratios, intervals and verdicts; `anytime`: intervals that hold after any number of rounds.
//! * [`tasks`], `scenario`: the published experiments. [`services`]: their services, for the catalog. [`published`]: their figures, as CSV.
//! * [`report`]: tables, claims, charts, and how they are drawn.
//! * [`allocator`], [`limits`], [`output`], [`progress`], [`spin`], [`Misuse`]: shared parts of the commands.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

pub mod allocator;
mod anytime;
pub mod bench;
pub mod benches;
mod charts;
pub mod check;
pub mod claim;
pub mod contestants;
pub mod crowd;
pub mod delayed;
pub mod experiment;
#[cfg(test)]
mod fixtures;
pub mod journal;
pub mod launch;
pub mod limits;
pub mod machine;
mod misuse;
pub mod output;
pub mod progress;
pub mod published;
pub mod recommend;
#[cfg(target_os = "linux")]
pub mod reference;
pub mod report;
mod scenario;
pub mod services;
pub mod spin;
pub mod statistics;
pub mod stores;
pub mod tasks;
pub mod turn;

pub use misuse::Misuse;
pub use polyserve_load::data;
