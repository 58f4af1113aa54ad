//! The seams of polyserve: stores ([`EntityRepo`]), services ([`Service`]), executors ([`Executor`]) and servers
//! ([`Server`]), and the type that joins them ([`Answer`]).
//!
//! # Layout
//!
//! A request passes the following parts in this order. No part calls an earlier one:
//!
//! 1. A [`Server`] moves bytes between a socket and the session. Sibling crates implement servers with the toolkit of
//!    `polyserve-serving`.
//! 2. `http1::Session` of that crate is the sans-io HTTP/1.1 connection. It decodes requests, calls the service, and
//!    encodes the replies.
//! 3. A [`Service`], for example [`service::EntityService`], turns a request into a [`Reply`].
//! 4. An [`EntityRepo`] stores the entities of that service.
//!
//! [`timer`] completes a promise after a delay, [`config`] holds every limit, [`shutdown`] begins a drain. Hidden modules
//! are unstable: they are for the sibling crates, and `polyserve-serving` exports some of them to authors of servers.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

pub mod answer;
pub mod answer_hook;
pub mod condition;
pub mod config;
pub mod entity;
pub mod executor;
mod json;
pub mod listen_on;
#[doc(hidden)]
pub mod log;
#[doc(hidden)]
pub mod mailbox;
mod merge_patch;
#[cfg(all(test, any(polyserve_loom, polyserve_shuttle)))]
mod models;
#[doc(hidden)]
pub mod panics;
pub mod repo;
pub mod server;
pub mod service;
pub mod shown;
pub mod shutdown;
pub mod stack;
#[doc(hidden)]
pub mod sync;
mod text;
pub mod timer;

pub use answer::{Answer, BoxFuture, Completer, promise};
pub use answer_hook::{AnswerHook, AnswerReport};
pub use condition::{Condition, Conditional, ETag};
pub use config::{ConfigError, ServerConfig, Supports};
pub use entity::{Entity, EntityId, EntityRef, Identifiable};
pub use executor::{Executor, Job, Rejected, RejectedReason};
pub use json::InvalidEntity;
pub use listen_on::{IntoListenOn, ListenOn};
pub use repo::{EntityRepo, Lookup, Put, Removed, RepoAnswer, RepoError, Visit, Visited};
pub use server::{CounterSource, Counters, Drain, Running, Server, ServerExt, ServerFailed, Shape};
pub use service::{Head, Headers, Method, Reply, Request, Service, Status, Version};
pub use shown::{Shown, StoredForm};
pub use shutdown::Shutdown;
