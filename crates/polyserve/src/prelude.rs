//! The items that most programs use: `use polyserve::prelude::*`.
//!
//! No name here is one of the `http` crate or of axum, except [`StatusCode`], which is the same type.
//! [`Request`](crate::Request) and [`Body`](crate::Body) are therefore left out. [`http`](crate::http) has `Method` and the types
//! of header fields.

pub use crate::catalog::Catalog;
#[cfg(feature = "futures")]
pub use crate::futures_pool::FuturesPool;
#[cfg(feature = "packed")]
pub use crate::memory::Packed;
#[cfg(feature = "memory")]
pub use crate::memory::{Sharded, StdMutex, StdRwlock};
#[cfg(feature = "signals")]
pub use crate::signals::{ServeUntilSignal, Signals};
#[cfg(feature = "threadpool")]
pub use crate::threadpool::{MpscPool, PoolServer};
pub use crate::{
    Answer, Condition, Conditional, Drain, ETag, Entity, EntityRef, EntityRepo, EntityRepoExt, EntityService, Executor,
    Identifiable, Job, Lookup, Put, Rejected, Removed, Reply, RepoAnswer, RepoError, Routes, Running, Server,
    ServerConfig, ServerExt, Service, Shape, Shown, Visit, identifiable,
};
#[cfg(feature = "smol")]
pub use polyserve_async::Smol;
#[cfg(feature = "hyper")]
pub use polyserve_async::TokioHyper;
#[cfg(feature = "tokio")]
pub use polyserve_async::{TokioPerCore, TokioTcp};
pub use polyserve_core::http::StatusCode;
#[cfg(all(feature = "percore", target_os = "linux"))]
pub use polyserve_percore::{Epoll, IoUring};
