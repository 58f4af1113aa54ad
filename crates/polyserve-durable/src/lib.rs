//! A durable store: [`Durable<R>`] puts a checksummed log under any repo in memory.
//!
//! ```
//! use polyserve_core::{Entity, EntityRepo};
//! use polyserve_durable::Durable;
//! use polyserve_memory::Sharded;
//!
//! # let directory = std::env::temp_dir().join(format!("polyserve-doc-lib-{}", std::process::id()));
//! let store = Durable::open(&directory, Sharded::new())?;
//! store.put(Entity::new(1, "first", 60.750847)).wait()?; // after the fsync
//! # drop(store);
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it promises
//!
//! * **An answered write is kept.** A put or a remove is answered after its fsync. A crash of the process or of the machine
//!   does not take it back.
//! * **A read shows kept writes only.** A write is visible after its fsync, so no reader sees a value that a crash takes back.
//!   The store is linearizable across crashes: *durably linearizable*.
//! * **A condition is judged against the last accepted write**, also if that write still waits for its fsync. The answer, a
//!   refusal too, comes after that fsync.
//! * **A write without an answer** is kept whole or not at all.
//! * **A repo in memory that is overloaded delays writes.** A write on the disk is tried again until the repo takes it.
//! * **The first error of a write or an fsync stops all writes**, also if the disk is full. Reads go on. Later writes fail with
//!   [`RepoError::ReadOnly`](polyserve_core::RepoError::ReadOnly) and the reason, which HTTP clients see. After the cause is
//!   removed, the store is opened again.
//!
//! # What it costs
//!
//! A write is answered later: it costs an fsync, shared with all writes that arrived during the fsync before it. No server
//! blocks a thread for it. A caller that waits for each write gets at most one write for each one or two fsyncs. A read is
//! that of the repo in memory. A put is encoded and read back on the caller's thread, about a microsecond.
//!
//! Memory: all entities are in the repo in memory. A compaction needs the id of each entity and 24 bytes for a while.
//!
//! Disk: at most about four times the bytes of the entities as JSON, and at least what [`DurableOptions::compact_from`] allows.
//!
//! # Limits
//!
//! One process opens a directory at a time. An entity has at most 64 MiB as JSON. Waiting writes are bounded by
//! [`DurableOptions`]; a write beyond the limits fails with `Overloaded`. A repair needs a file system with hard links.
//!
//! A store writes and removes only files with names of its own: `lock`, `log-` and `snapshot-` with a number, and `damaged-`
//! before such a name.
//!
//! # Layout
//!
//! * [`disk`]: the file seam. Unstable.
//! * `format`: headers, frames, records. `record`: an entity as a record. `log`: the file that is written.
//! * `commit`: group commit. `compactor`, `compaction`: a snapshot takes the place of old logs.
//! * `recovery`: how a directory is read, and what a crash may have torn.
//! * [`maintenance`]: check, repair and backup.
//!
//! Source: group commit after `DeWitt` et al., "Implementation techniques for main memory database systems" (1984); the order of
//! sync and publication after "durable linearizability" (Izraelevitz, Mendes and Scott, 2016).
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod commit;
mod compaction;
mod compactor;
#[doc(hidden)]
pub mod disk;
mod durable;
mod error;
mod format;
mod log;
pub mod maintenance;
mod mistakes;
mod reader;
mod record;
mod recovery;
#[cfg(test)]
mod simulation;
mod temporary;

pub use commit::{CommitCounts, WritesStopped};
pub use durable::{Durable, DurableOptions, Recovery};
pub use error::{Damage, OpenError};
pub use recovery::TornTail;
