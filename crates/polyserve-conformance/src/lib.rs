//! The conformance kit: named properties that every strategy of polyserve must have before it enters a speed table.
//!
//! A strategy's author adds one line to a test file, and each property becomes a test of its own:
//!
//! ```
//! # use polyserve_conformance::repo::Reference as MyRepo;
//! use polyserve_conformance::repo::RepoSubject;
//!
//! polyserve_conformance::repo_conformance!(my_repo, RepoSubject::new(MyRepo::default));
//! ```
//!
//! The same properties run outside a test harness, from any `main`, with [`property::check`].
//!
//! # Layout
//!
//! * [`property`]: what a property is, how a list of them runs, and how one runs in a process of its own.
//! * [`repo`], [`executor`], [`server`]: the three kits.
//! * [`address`]: properties of anything that listens at an address, ours or not.
//! * [`history`]: what concurrent clients did, recorded and checked for linearizability.
//! * [`client`]: a plain HTTP client that shows every byte, and shares no code with the servers' codec.
//! * [`broken`]: strategies that are wrong in one way each; the kit's own tests show that a named property catches each.
#![forbid(unsafe_code)]

pub mod address;
pub mod broken;
pub mod client;
pub mod executor;
pub mod history;
pub mod property;
pub mod repo;
pub mod server;
