//! Pluggable concurrency strategies for one small, real job: an HTTP/1.1 server that stores entities
//! `{id, description, value}`. *How connections become work* ([`Server`]) and *how data is shared* ([`EntityRepo`]) are two
//! independent axes: every server answers the same requests over every repo. Pick one of each, or bring your own.
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
//! impl Identifiable for Account {
//!     type Id = String;
//!     type View<'a> = &'a Self;
//!
//!     fn id(&self) -> &String {
//!         &self.name
//!     }
//!     fn view(&self) -> &Self {
//!         self
//!     }
//!     fn from_view(view: &Self) -> Self {
//!         view.clone()
//!     }
//! }
//!
//! let published = EntityService::new(Sharded::new());
//! let accounts = EntityService::new(Sharded::of::<Account>()).at("/accounts"); // PUT /accounts, GET /accounts/{name}
//! # let _: (&dyn Service, &dyn Service) = (&published, &accounts);
//! ```
//!
//! Or by name, from the [`catalog`], as the `polyserve` command does:
//!
#![cfg_attr(all(feature = "threadpool", feature = "memory"), doc = "```")]
#![cfg_attr(not(all(feature = "threadpool", feature = "memory")), doc = "```ignore")]
//! use polyserve::prelude::*;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let catalog = Catalog::builtin();
//! let server = (catalog.server("leader_followers")?.make)(&ServerConfig::default())?;
//! let repo = (catalog.repo("std_mutex")?.make)()?;
//! let running = server.serve(([127, 0, 0, 1], 0), EntityService::new(repo))?;
//! # running.shutdown()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Layout
//!
//! * The modules of `polyserve-core`, with the four seams (repo, service, executor, server): [`answer`], [`condition`],
//!   [`config`], [`entity`], [`executor`], [`repo`], [`server`], [`service`], [`shutdown`], [`timer`]. Their main types are
//!   here at the root.
//! * `polyserve-serving`: [`net`], the sockets of servers; and [`serving`], the toolkit for authors of servers, which is
//!   unstable.
//! * The strategies, by feature: [`memory`], `durable`, `cluster`, [`threadpool`] and `runtimes`.
//! * [`catalog`]: all of them by name. [`mod@env`]: configuration from flags and variables. [`signals`]: drain on Ctrl-C.
//! * [`prelude`]: what most programs use.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `threadpool` | yes | three thread pools, and five servers on threads, two of them on any executor |
//! | `memory` | yes, through the next three | the repos without another crate's map |
//! | `dashmap` | yes | the repo over the sharded map of the `dashmap` crate |
//! | `papaya` | yes | the repo over the lock-free map of the `papaya` crate |
//! | `scc` | yes | the repo over the bucket-locked map of the `scc` crate |
//! | `durable` | no | a durable store over any repo in memory, in `durable` |
//! | `etcd`, `redis`, `postgres` | no | a store over that engine, in `cluster`; `etcd` is built with `protoc` |
//! | `tokio` | no | servers and executors on tokio, in `runtimes` |
//! | `hyper` | no | hyper's codec on tokio; and `http2`, with prior knowledge |
//! | `tower` | no | a service as a `tower::Service`; with `tokio`, a `tower::Service` as a service; with `hyper`, one as a server |
//! | `smol` | no | servers and executors on async-executor and async-io |
//! | `futures` | no | an executor on the thread pool of the futures crate, and a server on it; with it `threadpool` |
//! | `async` | no | `tokio`, `hyper`, `smol` and `futures` |
//! | `queue-waits` | no | how long the jobs of a thread pool wait in its queue, in `PoolStats::waits` |
//! | `env` | yes | [`mod@env`] |
//! | `signals` | yes | [`signals`] (Unix) |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

/// The code of the README, as doc tests.
#[cfg(all(doctest, feature = "threadpool", feature = "memory", feature = "signals", feature = "tokio"))]
#[doc = include_str!("../README.md")]
mod readme {}

// The catalog's constructors are also printed as code for other crates, so they use this crate's name.
extern crate self as polyserve;

pub mod catalog;
#[cfg(feature = "env")]
pub mod env;
#[cfg(feature = "futures")]
pub mod futures_pool;
pub mod prelude;
#[cfg(feature = "signals")]
pub mod signals;

pub use polyserve_core::service::Body;
pub use polyserve_core::{
    Answer, AnswerHook, AnswerReport, BoxFuture, Completer, Condition, Conditional, ConfigError, Connections,
    CounterSource, Counters, Drain, ETag, Entity, EntityId, EntityRef, EntityRepo, Executor, Head, Headers,
    Identifiable, IntoListenOn, InvalidEntity, Job, ListenOn, Lookup, Method, Put, Rejected, RejectedReason, Removed,
    Reply, RepoError, Request, Running, Server, ServerConfig, ServerExt, Service, Shutdown, Status, Version, promise,
};
pub use polyserve_core::{
    answer, answer_hook, condition, config, entity, executor, identifiable, repo, server, service, shutdown, timer,
};
#[doc(inline)]
pub use polyserve_serving::net;
#[cfg(feature = "signals")]
pub use signals::ServeUntilSignal;

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

/// Servers and executors on async runtimes.
#[cfg(any(feature = "tokio", feature = "tower", feature = "smol", feature = "futures"))]
pub mod runtimes {
    pub use polyserve_async::*;
}
