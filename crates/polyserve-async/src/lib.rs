//! Servers and executors on async runtimes for polyserve, one strategy a file. A strategy is built only if its feature is on.
//!
//! # Layout
//!
//! All items are at the root. The files are in four folders:
//!
//! * `servers`: how connections become tasks: `TokioTcp`, `TokioPerCore`, `TokioHyper`, `Smol`.
//! * `tower`: services of this project as `tower::Service`s, and the other way: `AsTower`, `FromTower`.
//! * `types`: between the types of the `http` crate's users and those of this project.
//! * `executors`: how CPU work becomes tasks of the same runtimes: `TokioTasks`, `TokioBlocking`, `SmolTasks`, `FuturesTasks`.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `tokio` | `tokio_tcp`, `tokio_per_core`, and executors on tokio |
//! | `hyper` | `tokio_hyper` (with `tokio`) |
//! | `http2` | HTTP/2 with prior knowledge in `tokio_hyper`, off by default |
//! | `tower` | a service as a `tower::Service`; with `tokio`, a `tower::Service` as a service; with `hyper`, one on `tokio_hyper` |
//! | `smol` | `smol`, and an executor on it |
//! | `futures` | an executor on the thread pool of the futures crate |
//!
//! # What every executor promises
//!
//! All that [`polyserve_serving::executor`] promises, and:
//!
//! * Jobs wait in slots of the executor, and the runtime's task has only the index of a slot. The slots bound the queue, and
//!   waiting jobs can be dropped while all threads are stuck. The runtimes offer neither. The runtime decides the order in
//!   which jobs run.
//! * Other tasks that a job spawns on the runtime are not counted and not waited for. They are cancelled when the runtime
//!   ends.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

#[cfg(any(feature = "tokio", feature = "smol", feature = "futures"))]
mod executors;
#[cfg(feature = "tokio")]
mod runtime_threads;
mod servers;
#[cfg(feature = "tower")]
mod tower;
#[cfg(any(feature = "hyper", feature = "tower"))]
mod types;

#[cfg(any(feature = "tokio", feature = "smol", feature = "futures"))]
pub use executors::*;
#[cfg(any(feature = "tokio", feature = "smol"))]
pub use servers::*;
#[cfg(feature = "tower")]
pub use tower::*;
