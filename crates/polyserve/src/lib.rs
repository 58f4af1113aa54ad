//! Pluggable concurrency strategies for one small, real job: an HTTP/1.1 server that stores entities
//! `{id, description, value}`. *How connections become work* ([`Server`]) and *how data is shared* ([`EntityRepo`]) are two
//! independent axes: every server answers the same requests over every repo. Pick one of each, or bring your own.
//!
//! ```toml
//! [dependencies]
//! polyserve = { path = "../polyserve/crates/polyserve" } # a checkout next to the program; minimum Rust: 1.88
//! ```
//!
#![cfg_attr(all(feature = "threadpool", feature = "memory"), doc = "```")]
#![cfg_attr(not(all(feature = "threadpool", feature = "memory")), doc = "```ignore")]
//! use polyserve::prelude::*;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = PoolServer::mpsc(ServerConfig::default())?;
//! let running = server.serve("127.0.0.1:0", EntityService::new(Sharded::new()))?;
//! println!("{}", running.shutdown()?); // answered 0, cut 0, stuck 0
//! # Ok(())
//! # }
//! ```
//!
//! Your own type takes the place of the published entity. It needs an id and serde; every store takes it, and the service shows
//! it as JSON:
//!
#![cfg_attr(all(feature = "threadpool", feature = "memory"), doc = "```")]
#![cfg_attr(not(all(feature = "threadpool", feature = "memory")), doc = "```ignore")]
//! use polyserve::prelude::*;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Clone, Debug, Serialize, Deserialize)]
//! struct Account {
//!     name: String,
//!     balance: i64,
//! }
//!
//! identifiable!(Account, name: String);
//!
//! let published = EntityService::new(Sharded::new());
//! let accounts = EntityService::new(Sharded::of::<Account>()).at("/accounts")?; // PUT /accounts, GET /accounts/{name}
//! # let _: (&dyn Service, &dyn Service) = (&published, &accounts);
//! # Ok::<(), polyserve::InvalidRoute>(())
//! ```
//!
//! Or by name, from the [`catalog`], as the `polyserve` command does:
//!
#![cfg_attr(all(feature = "threadpool", feature = "memory"), doc = "```")]
#![cfg_attr(not(all(feature = "threadpool", feature = "memory")), doc = "```ignore")]
//! use polyserve::prelude::*;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let catalog = Catalog::builtin();
//! let server = catalog.build_server("leader_followers", &ServerConfig::default())?;
//! let repo = catalog.open_repo("std_mutex")?;
//! let running = server.serve(([127, 0, 0, 1], 0), EntityService::new(repo))?;
//! # running.shutdown()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Where to look
//!
//! * **Drain**: a server ends by [`Running::shutdown`], or by `running.drained().await`, or at Ctrl-C with
//!   [`Signals`](signals::Signals). The [contract of `Server`](Server#contract) says what a drain answers and what it cuts, and
//!   [`Drain`] counts both. `examples/examples/graceful_shutdown.rs` is a program that drains with its own signals.
//! * **Examples**, run by `cargo run --example NAME` at the root of the checkout: `threadpool_server`, `own_entity`,
//!   `conditional_update`, `custom_service`, `own_listener`. With `--features tokio`, or the feature that cargo names: on a runtime
//!   `tokio_server`, `axum_nested`, `middleware`; with kept data `durable_server`, `cluster_server`; a strategy of your own
//!   `custom_repo`, `custom_server`, `custom_event_loop`; a ranking of your own handler `rank_service`.
//! * **The seams**: [`EntityRepo`], [`Service`], [`Executor`], [`Server`], and [`Answer`], the type that joins them. The types that
//!   most programs use are in the [`prelude`], too. An item has one other path: the root, or the module that is named with it.
//! * **The strategies**: [`memory`], [`threadpool`], `durable`, `cluster`, `async_`, `percore`; the [`catalog`] has all of them by name.
//! * **Settings**: [`ServerConfig`]; from flags and variables, [`mod@env`].
//! * **For authors of servers, executors and stores**: [`serving`], the toolkit, [`panics`], [`sync`], [`mailbox`] and [`stack`]. They
//!   are unstable.
//!
//! # Features
//!
//! On by default:
//!
//! | feature | adds |
//! |---|---|
//! | `threadpool` | servers on threads and on thread pools |
//! | `memory` | stores in memory; each of the next six adds one more, and this feature |
//! | `dashmap`, `papaya`, `scc` | the store over the map of that crate |
//! | `packed` | the store that takes the least memory |
//! | `seqlock` | the store of packed entities with a version for each bucket: readers write nothing |
//! | `copy-on-write` | the store of immutable chunks: readers never wait |
//! | `env` | settings from environment variables |
//! | `signals` | drain on Ctrl-C, SIGTERM and SIGHUP (Unix) |
//!
//! Off by default:
//!
//! | feature | adds |
//! |---|---|
//! | `tokio`, `smol` | servers and executors on that runtime |
//! | `hyper`, `http2` | hyper's codec on tokio; and HTTP/2 with prior knowledge |
//! | `futures` | an executor on the thread pool of the futures crate, and a server on it |
//! | `async` | `tokio`, `hyper`, `smol` and `futures` |
//! | `tower` | a service as a `tower::Service`; with `tokio` or `hyper`, a `tower::Service` or an axum `Router` on the servers |
//! | `percore` | servers with an event loop on each core (Linux) |
//! | `durable` | a log on the disk under any store in memory |
//! | `etcd`, `redis`, `postgres` | a store over that engine; `etcd` is built with `protoc` |
//! | `metrics` | durations, counters, health and readiness on an admin address, for Prometheus |
//! | `access` | users with bearer tokens, and a list of hosts, on every server |
//! | `access-log` | a line for each answer, as JSON or in the common log format |
//! | `trace` | a span of `tracing` for each request, with the trace of the client |
//! | `tls` | TLS on every server: `ServerConfig::tls` |
//! | `queue-waits` | how long the jobs of a thread pool wait, in `PoolStats::waits` |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

/// The code of the README, as doc tests.
#[cfg(all(doctest, feature = "threadpool", feature = "memory", feature = "signals", feature = "tokio"))]
#[doc = include_str!("../README.md")]
mod readme {}

// The catalog's constructors are also printed as code for other crates, so they use this crate's name.
extern crate self as polyserve;

#[cfg(feature = "access")]
pub mod access;
#[cfg(feature = "access-log")]
pub mod access_log;
#[cfg(feature = "metrics")]
pub mod admin;
pub mod catalog;
#[cfg(feature = "env")]
pub mod env;
#[cfg(feature = "futures")]
pub mod futures_pool;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod prelude;
#[cfg(feature = "signals")]
pub mod signals;
#[cfg(feature = "trace")]
pub mod trace;

pub use polyserve_core::http;
pub use polyserve_core::{
    Answer, AnswerFuture, AnswerHook, AnswerReport, AnswerTimes, Body, BodyFault, BoxFuture, ClientCertificate,
    Completer, Condition, Conditional, ConfigError, CounterSource, Counters, Drain, ETag, Echo, Entity, EntityId,
    EntityRef, EntityRepo, EntityRepoExt, EntityService, Executor, Head, Header, Headers, Identifiable, IntoListenOn,
    InvalidEntity, InvalidHeader, InvalidProxies, InvalidRoute, Job, ListenOn, Lookup, MAX_PAGE_BYTES, MAX_STATUS_WAIT,
    MalformedEntity, ManyVisit, Problem, Put, Rejected, RejectedReason, Removed, Reply, RepoAnswer, RepoError,
    ReportedRequest, Request, Routes, Running, ScanPage, ScanVisit, Server, ServerConfig, ServerExt, ServerFailed,
    Service, Shape, Shown, Shutdown, ShutdownBegun, StoredForm, Supports, Tags, ThreadRegistration, TraceId,
    TrustedProxies, Visit, Visited, cores, get_only, identifiable, isolated, known_method, park_until, promise,
    reason_phrase, resolve_address, resolve_addresses,
};
#[cfg(feature = "tls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub use polyserve_core::{PemSource, TlsConfig, TlsError};
#[doc(inline)]
pub use polyserve_core::{figures, files, mailbox, overload, panics, stack, sync, timer};
#[doc(inline)]
pub use polyserve_serving as serving;

/// Repos in memory, one locking strategy each.
#[cfg(feature = "memory")]
pub mod memory {
    pub use polyserve_memory::*;
}

/// A durable store: a log with group commit under any repo in memory.
#[cfg(feature = "durable")]
pub mod durable {
    pub use polyserve_durable::*;
}

/// Stores over etcd, Redis Cluster and PostgreSQL.
#[cfg(any(feature = "etcd", feature = "redis", feature = "postgres"))]
pub mod cluster {
    pub use polyserve_cluster::*;
}

/// Thread pools, and the servers on threads.
#[cfg(feature = "threadpool")]
pub mod threadpool {
    pub use polyserve_threadpool::*;
}

/// Servers and executors on async runtimes: the crate `polyserve-async`. The feature is `async`, and the module has an underscore because
/// `async` is a keyword.
#[cfg(any(feature = "tokio", feature = "tower", feature = "smol", feature = "futures"))]
pub mod async_ {
    pub use polyserve_async::*;
}

/// Servers with an event loop on each core.
#[cfg(all(feature = "percore", target_os = "linux"))]
pub mod percore {
    pub use polyserve_percore::*;
}
