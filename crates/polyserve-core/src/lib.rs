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
//! 3. A [`Service`], for example [`EntityService`], turns a request into a [`Reply`].
//! 4. An [`EntityRepo`] stores the entities of that service.
//!
//! [`timer`] completes a promise after a delay, [`ServerConfig`] holds every limit, [`Shutdown`] begins a drain.
//!
//! # Paths
//!
//! An item has one path. The root has the main items; a public module has only items that are not at the root, and they
//! are named with their module: `timer::after`, `panics::isolate`. The modules [`files`], [`log`], [`mailbox`], [`panics`],
//! [`stack`] and [`sync`] are for authors of servers, executors and stores. They are unstable.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod answer;
mod answer_hook;
mod condition;
mod config;
mod entity;
mod executor;
pub mod figures;
pub mod files;
mod handshake_failure;
mod json;
mod listen_on;
pub mod log;
pub mod mailbox;
mod many_gets;
mod merge_patch;
#[cfg(all(test, any(polyserve_loom, polyserve_shuttle)))]
mod models;
pub mod overload;
pub mod panics;
mod repo;
mod server;
mod service;
mod shown;
mod shutdown;
pub mod stack;
pub mod sync;
#[cfg(test)]
mod test_wakers;
mod text;
pub mod timer;

pub use answer::{Answer, AnswerFuture, BoxFuture, Completer, park_until, promise};
pub use answer_hook::{AnswerHook, AnswerReport, AnswerTimes, ReportedRequest};
pub use condition::{Condition, Conditional, ETag, Tags};
pub use config::{ConfigError, InvalidProxies, ServerConfig, Supports, TrustedProxies, cores};
#[cfg(feature = "tls")]
pub use config::{PemSource, TlsConfig, TlsError};
pub use entity::{Entity, EntityId, EntityRef, Identifiable};
pub use executor::{Executor, Job, Rejected, RejectedReason, isolated};
pub use handshake_failure::HandshakeFailure;
/// The crate of [`StatusCode`](http::StatusCode), [`Method`](http::Method) and the other types of HTTP.
pub use http;
pub use json::{BodyFault, InvalidEntity};
pub use listen_on::{IntoListenOn, ListenOn, resolve_address, resolve_addresses};
pub use many_gets::get_in_turn;
pub use repo::{
    EntityRepo, EntityRepoExt, Lookup, MAX_PAGE_BYTES, MAX_STATUS_WAIT, MalformedEntity, ManyVisit, Put, Removed,
    RepoAnswer, RepoError, ScanPage, ScanVisit, Visit, Visited,
};
pub use server::{CounterSource, Counters, Drain, Running, Server, ServerExt, ServerFailed, Shape};
pub use service::{
    Body, ClientCertificate, Echo, EntityService, Head, Header, Headers, InvalidHeader, InvalidRoute, KeptFields,
    Problem, Reply, Request, RequestNotes, Routes, Service, TraceId, Unavailable, get_only, is_token, known_method,
    reason_phrase,
};
pub use shown::{Shown, StoredForm};
pub use shutdown::{Shutdown, ShutdownBegun, ThreadRegistration};
