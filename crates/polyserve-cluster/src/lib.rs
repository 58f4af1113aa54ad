//! Entity repos over engines that keep data when a process ends, and, if they are set up so, when a machine fails: one
//! engine in each file.
//!
//! polyserve replicates nothing itself. An engine keeps the entities, and any number of polyserve processes serve the
//! entities of one engine. All repos answer [`Answer::Later`](polyserve_core::Answer::Later) with a
//! [`Lookup::Fetched`](polyserve_core::Lookup::Fetched), and never block the caller's thread.
//!
//! # What they promise
//!
//! | repo | order of operations | an acknowledged write is lost |
//! |---|---|---|
//! | [`Etcd`] | linearizable | never, while a majority of the members keeps its disk |
//! | [`RedisCluster`] | linearizable between failovers | if a master fails or pauses before its replica has the write |
//! | [`Postgres`] | linearizable on one primary | never, while the primary keeps its disk and `fsync` is on |
//!
//! All three:
//!
//! * An operation is answered within [`StoreLimits::timeout`]. If the engine has not answered by then, the answer is
//!   [`RepoError::Unavailable`](polyserve_core::RepoError::Unavailable), over HTTP 503.
//! * What the engine refuses for now, such as a write without room, and what was not sent, was certainly not done:
//!   [`RepoError::NotDone`](polyserve_core::RepoError::NotDone), over HTTP 503. So is what an engine refuses because the password was
//!   changed while the store runs, or a certificate is not trusted any more: the store serves again when they fit. A missing
//!   permission and an unfit schema are
//!   [`RepoError::Other`](polyserve_core::RepoError::Other), over HTTP 500. An entity that is larger than the engine takes is
//!   [`RepoError::TooLarge`](polyserve_core::RepoError::TooLarge), over HTTP 413.
//! * [`EntityRepo::status`](polyserve_core::EntityRepo::status) asks for a write that changes nothing, for a fifth of the timeout.
//! * A read is repeated until its deadline. After a third of the timeout without an answer, it is also sent over
//!   another connection, and the first answer counts. A slow engine gets each read at most three times at once. A write
//!   is repeated only if the engine has certainly not done it. So after `Unavailable`, a write may have been done, and
//!   may still be done. A client that needs to know reads the entity, or sends the write with a condition.
//! * The hosts of a list are tried in turn, each next one when one has failed, or after its part of a third of the timeout. A connection
//!   is opened also if the operations that wait for it have timed out.
//! * The constructor waits for the engine up to [`StoreLimits::connect_timeout`], and then returns an error. What can never
//!   succeed, such as a wrong password, is an error at once. Later, a lost engine is connected again when it is back.
//! * A condition is evaluated on what the engine stores, and the write is done only if that is still stored.
//! * The engine stores the JSON of an entity. If that JSON does not read back, as with a NaN, the put is
//!   rejected with [`RepoError::Other`](polyserve_core::RepoError::Other).
//! * What is stored under an id and is no entity, or one with another id, is
//!   [`RepoError::Malformed`](polyserve_core::RepoError::Malformed), over HTTP 500 with the id. A put without a condition replaces it,
//!   unless it is a key of Redis that has no value, such as a list; a removal without a condition removes it. A page of a scan ends
//!   before it; the scan goes on after its id. Keys that are no ids of the type are in no page.
//! * Dropping a repo answers what is outstanding with [`RepoError::Closed`](polyserve_core::RepoError::Closed).
//!
//! Connections are encrypted if the URL asks for it (`https`, `rediss`, `sslmode=verify-full`), and are not otherwise: keep such an
//! engine in a private network. With TLS, a store trusts the authorities of [`EngineTls`] only, and no connection falls back to one
//! without TLS. A certificate that is not trusted is an error at once.
//!
//! # Layout
//!
//! * `etcd`, `redis_cluster`, `postgres`: the operations of each engine. Features `etcd`, `redis`, `postgres`.
//! * `remote`: what they share: the I/O thread, deadlines, attempts, conditions.
//! * `limits`, `error`, `tls`: [`StoreLimits`], [`ConnectError`] and [`EngineTls`]. `urls`: lists of URLs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(any(feature = "etcd", feature = "redis", feature = "postgres")),
    allow(dead_code, unused_imports, unused_macros)
)]

mod error;
#[cfg(feature = "etcd")]
mod etcd;
mod limits;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis_cluster;
mod remote;
#[cfg(any(feature = "etcd", feature = "redis", feature = "postgres"))]
mod tls;
#[cfg(any(feature = "etcd", feature = "redis"))]
mod urls;

pub use self::error::ConnectError;
#[cfg(feature = "etcd")]
pub use self::etcd::{Etcd, EtcdOptions};
pub use self::limits::StoreLimits;
#[cfg(feature = "postgres")]
pub use self::postgres::{Postgres, PostgresOptions};
#[cfg(feature = "redis")]
pub use self::redis_cluster::{RedisCluster, RedisOptions};
#[cfg(any(feature = "etcd", feature = "redis", feature = "postgres"))]
pub use self::tls::EngineTls;
