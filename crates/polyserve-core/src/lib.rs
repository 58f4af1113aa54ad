//! The seams of polyserve: what is stored ([`EntityRepo`]), what is answered ([`Service`]), who runs work ([`Executor`])
//! and how connections become work ([`Server`]), with the vocabulary type that lets them meet ([`Answer`]).
//!
//! # Layout
//!
//! A request walks the modules in this order; each knows the next by its seam alone, and nothing goes back up:
//!
//! 1. a [`Server`] (sibling crates implement it, [`net`] helps) moves bytes between a socket and
//! 2. [`http1::Session`], the sans-io HTTP/1.1 connection: [`http1::decode`] in, [`http1::encode`] out; it calls
//! 3. a [`Service`] such as [`service::EntityService`], which asks
//! 4. an [`EntityRepo`] and answers with a [`Reply`].
//!
//! [`timer`] completes promises later, [`config`] holds every limit, [`shutdown`] ends things, [`serving`] is what servers
//! share.
#![forbid(unsafe_code)]

pub mod answer;
pub mod config;
pub mod entity;
pub mod executor;
pub mod http1;
#[cfg(all(test, any(polyserve_loom, polyserve_shuttle)))]
mod models;
pub mod net;
pub mod panics;
pub mod repo;
pub mod server;
pub mod service;
pub mod serving;
pub mod shutdown;
pub mod sync;
pub mod timer;

pub use answer::{Answer, BoxFuture, Completer, promise};
pub use config::{ConfigError, ServerConfig};
pub use entity::{Entity, EntityRef};
pub use executor::{Executor, Job, Rejected, RejectedReason};
pub use repo::{EntityRepo, Lookup, Put, Removed, RepoError};
pub use server::{Connections, Drain, Running, Server};
pub use service::{Head, Headers, Method, Reply, Request, Service, Status, Version};
pub use shutdown::Shutdown;
