//! The conformance kit: named properties that a strategy of polyserve must have before it enters a speed table.
//!
//! The author of a strategy adds one line to a test file. Each property then becomes a test:
//!
//! ```
//! # use polyserve_conformance::repo::Reference as MyRepo;
//! use polyserve_conformance::repo::RepoSubject;
//!
//! polyserve_conformance::repo_conformance!(my_repo, RepoSubject::new(MyRepo::default));
//! ```
//!
//! [`property::check`] runs the same properties outside a test harness, from any `main`.
//!
//! # Layout
//!
//! * [`property`]: properties, lists of properties, and properties that need a child process.
//! * [`repo`], [`executor`], [`server`]: the three kits. [`service`]: what the entity service answers, without a server.
//! * [`engine`]: the kit for stores over an engine or a disk, which may be slow, or gone.
//! * [`address`]: properties of any server that listens at an address.
//! * [`wire`]: the corpus of requests, as data.
//! * [`history`]: recorded operations of concurrent clients, and the check for linearizability.
//! * [`log`]: the messages of the process of a test.
//! * [`client`]: a plain HTTP client that shows every byte. It parses with code of its own.
//! * `tls`, a feature: certificates for tests, and the kit over TLS.
//! * [`broken`]: strategies with one flaw each. The kit's own tests show that a named property catches each flaw.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

pub mod address;
pub mod broken;
pub mod client;
pub mod engine;
mod event_count;
pub mod executor;
pub mod history;
pub mod log;
mod named_entity;
pub mod property;
pub mod repo;
pub mod server;
pub mod service;
#[cfg(feature = "tls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub mod tls;
pub mod wire;

pub use named_entity::{Content, NamedEntity};
