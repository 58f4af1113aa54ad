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
//! * **A write without room is rejected, and nothing else.** If the disk is full, what the log has got of the write is cut off, and
//!   the cut is synced. The write fails with [`RepoError::Full`](polyserve_core::RepoError::Full) and was not done. It shared its
//!   append with the writes that waited with it, which fail too. When there is room, writes succeed again, without a restart.
//! * **The first error of an fsync stops all writes**: it is unknown what is on the disk. The writes of that fsync fail with
//!   [`RepoError::Unavailable`](polyserve_core::RepoError::Unavailable): they may have been done, and the next start shows which.
//!   Reads go on. Later writes are not done. They fail with [`RepoError::ReadOnly`](polyserve_core::RepoError::ReadOnly) and the
//!   reason, which HTTP clients see. After the cause is removed, the store is opened again.
//! * **One directory has one writer.** The directory and its lock file are locked, so a second store cannot open it, also if the
//!   lock file is removed. (NFS cannot lock a directory. There, the lock file alone excludes others, and a store looks for it before
//!   and after each fsync: if it was removed, the store stops writing. If another machine removes it, an NFS client may show the old
//!   name for as long as it caches a directory, by default up to a minute.) Files are opened by the handle of the directory: neither
//!   a `chdir` nor a new name of the directory leads writes elsewhere.
//! * **A store that is deleted stops, and one that has lost a part of its log.** Before it writes a batch, it looks whether the name of
//!   the log is still that of its file, with the length that it has written (one system call). If the directory or the log was deleted,
//!   if another file has the name, or if another program has cut the log or added to it, all writes fail with `ReadOnly` and are not
//!   done. So no write that begins after that is answered. Bytes that another program changes and that leave the length are found by
//!   the next start or by a check.
//! * **A store that is moved stops.** It looks once a second, before a write, whether its path still names its directory, and the
//!   names in it still its files, with their lengths. If not, it stops writing. So a moved store goes on for up to a second. What it
//!   answers in that time is in the moved directory. Never copy a backup into the directory of a store in use.
//! * **A missing file is an error at the next start.** Each complete log states that another one follows, and the lock file that
//!   there was a first one. An empty file in place of the only log is damage; without the lock file, a crash at the creation of the log
//!   may have left it, so the store begins empty and logs a warning. (A directory that has lost all its files is an empty one.)
//!
//! [`EntityRepo::status`](polyserve_core::EntityRepo::status) is the error that a write would get. After a write without room, it
//! tries whether there is room again, at most once a second.
//!
//! # What it costs
//!
//! A write is answered later: it costs an fsync, shared with all writes that arrived during the fsync before it. No server
//! blocks a thread for it. A caller that waits for each write gets at most one write for each one or two fsyncs. A read is
//! that of the repo in memory. A put is encoded and read back on the caller's thread.
//!
//! Memory: all entities are in the repo in memory. A compaction needs 28 to 57 bytes for a while for each id that was written since
//! the newest snapshot, and half as much again while its table grows.
//!
//! Disk: at most about four times the bytes of the entities as JSON, and at least what [`DurableOptions::compact_from`] allows. A
//! snapshot is written next to the files that it replaces. So give a store room for twice the bytes of its entities, and for as many
//! bytes again, or for `compact_from` if that is more. With less room, an open reports a warning, and compactions begin
//! earlier and cost more. With less than about two and a half times the bytes of the entities, the disk gets full, and writes are
//! rejected. A full store also rejects removes: it needs more room, not fewer entities.
//!
//! # Limits
//!
//! One process opens a directory at a time. An entity has at most 64 MiB as JSON. Waiting writes are bounded by
//! [`DurableOptions`]; a write beyond the limits fails with `Overloaded`. A repair needs a file system with hard links.
//!
//! A store writes and removes only files with names of its own: `lock`, `log-` and `snapshot-` with a number, and `damaged-`
//! before such a name. Only their owner may read new files (0600) and new directories (0700). Files and directories that exist keep
//! their modes; a compaction replaces old logs and snapshots by new files.
//!
//! Files of format version 1 are read too, and later files of the directory are of version 2. Logs of version 1 do not state that
//! another one follows, so it is not noticed if the last one is missing.
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
//!
//! *Wins when* writes must survive a crash of the machine and come from many clients at once, because these share fsyncs.
//! Reads are those of the repo in memory. *Loses when* one client waits for each of its writes, when the entities do not fit
//! in memory, and when they must stay served while the machine is down. Figures: `docs/SCALING.md`.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod commit;
mod compaction;
mod compactor;
pub mod disk;
mod durable;
mod error;
mod failure;
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

pub use commit::CommitCounts;
pub use durable::{Durable, DurableOptions, Recovery};
pub use error::{Damage, OpenError};
pub use failure::WritesStopped;
pub use recovery::TornTail;
