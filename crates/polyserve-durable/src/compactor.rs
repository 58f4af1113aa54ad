//! When the log is compacted: a new log begins, and a thread compacts the files before it.
//!
//! A compaction begins when the files since the newest snapshot have as many bytes as the snapshot, and at least a given
//! number. One runs at a time. So the directory has at most about four times the bytes of the stored entities, or that number.
//!
//! It begins earlier if the room on the disk gets short: a snapshot is written next to the files that it replaces, so a compaction
//! must begin while it still fits. It reserves its room first, because the log grows meanwhile. If the log gets no more room, writes
//! are rejected until the compaction is complete.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use polyserve_core::log::LogThrottles;

use crate::commit::report;
use crate::compaction::{Compacted, compact};
use crate::disk::{Disk, NamedFile};
use crate::log::{AppendError, Log};
use crate::recovery::{Files, Recovered};

/// The max growth of the log between two looks at the room on the disk.
const MAX_LOOK_EACH: u64 = 4 << 20;

/// The files before the present log, and the thread that compacts them.
pub(crate) struct Compactor {
    disk: Arc<dyn Disk>,
    /// The least number of bytes of logs for a compaction.
    min_bytes: u64,
    files: Files,
    /// The files before the present log that the store needs.
    complete: Vec<NamedFile>,
    snapshot_bytes: u64,
    /// The bytes of the complete logs.
    complete_bytes: u64,
    /// The bytes of all logs when a compaction was last tried.
    tried_bytes: u64,
    /// The bytes of all logs when the room on the disk was last looked at.
    looked_bytes: u64,
    running: Option<Compaction>,
    /// The throttles of what is logged.
    failures: LogThrottles,
    /// Whether a compaction runs on the caller's thread, so that a test is deterministic.
    is_inline: bool,
}

struct Compaction {
    thread: JoinHandle<Compacted>,
    cancelled: Arc<AtomicBool>,
    next: u64,
    /// The bytes of the logs that it compacts.
    bytes: u64,
}

impl Compactor {
    pub(crate) fn new(disk: &Arc<dyn Disk>, min_bytes: u64, recovered: &Recovered) -> Self {
        if let Some((available, needed)) = short_room(&**disk, min_bytes, recovered) {
            let why = "compactions begin earlier and cost more, and writes are rejected if the disk gets full";
            tracing::warn!(available, needed, why, "the disk has less room than the durable store needs");
        }
        Self {
            disk: Arc::clone(disk),
            min_bytes,
            files: recovered.files.clone(),
            complete: recovered.complete.clone(),
            snapshot_bytes: recovered.snapshot_bytes,
            complete_bytes: recovered.complete_bytes,
            tried_bytes: 0,
            looked_bytes: 0,
            running: None,
            failures: LogThrottles::default(),
            is_inline: false,
        }
    }

    /// Compacts on the caller's thread.
    #[cfg(test)]
    pub(crate) fn inline(mut self) -> Self {
        self.is_inline = true;
        self
    }

    /// Returns the files that the next start needs. While a compaction runs, which removes files, that is the log alone.
    pub(crate) fn needed<'a>(&'a self, log: &'a Log) -> impl Iterator<Item = &'a NamedFile> {
        let complete = if self.running.is_none() { &*self.complete } else { &[] };
        complete.iter().chain([log.named()])
    }

    /// Ends a compaction that is complete, or begins one if it is due.
    ///
    /// # Errors
    ///
    /// Returns an error if the log must not be used any more. An error of the compaction itself is logged. The files
    /// that are needed are still there: the next compaction reads them again, and removes those that are not needed.
    pub(crate) fn step(&mut self, log: &mut Log) -> Result<(), AppendError> {
        if self.running.as_ref().is_some_and(|running| running.thread.is_finished()) {
            self.end();
        }
        if self.running.is_none() && self.is_due(log) {
            self.begin(log)?;
        }
        Ok(())
    }

    fn is_due(&mut self, log: &Log) -> bool {
        let bytes = self.complete_bytes + log.len();
        let untried = bytes - self.tried_bytes;
        if untried >= self.min_bytes.max(self.snapshot_bytes) {
            return true;
        }
        let look_each = MAX_LOOK_EACH.min(self.min_bytes / 16).max(1);
        if bytes < self.looked_bytes + look_each {
            return false;
        }
        self.looked_bytes = bytes;
        // A compaction of few bytes costs more than it frees.
        let is_worth = untried >= look_each.max(self.snapshot_bytes / 8);
        is_worth && self.disk.room().is_ok_and(|room| room < with_reserve(self.snapshot_bytes + bytes) + look_each)
    }

    fn begin(&mut self, log: &mut Log) -> Result<(), AppendError> {
        let (complete, bytes) = (self.files.clone(), self.complete_bytes + log.len());
        self.tried_bytes = bytes;
        let named = match log.rotate() {
            Ok(named) => named,
            Err(AppendError::Undone(error)) => {
                report(
                    || polyserve_core::throttled!(of self.failures, warn, %error, "the next log cannot be created, so a compaction is put off"),
                );
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let next = log.number();
        self.files.logs.push(next);
        self.complete.push(named);
        self.complete_bytes = bytes;
        let (disk, cancelled) = (Arc::clone(&self.disk), Arc::new(AtomicBool::new(false)));
        if self.is_inline {
            let compacted = compact(&disk, &complete, next, &cancelled);
            self.note(next, bytes, compacted);
            return Ok(());
        }
        let flag = Arc::clone(&cancelled);
        let builder = thread::Builder::new().name("log-compaction".to_owned());
        match builder.spawn(move || compact(&disk, &complete, next, &flag)) {
            Ok(thread) => self.running = Some(Compaction { thread, cancelled, next, bytes }),
            Err(error) => {
                report(
                    || polyserve_core::throttled!(of self.failures, warn, %error, "the thread of a compaction cannot be started"),
                );
            }
        }
        Ok(())
    }

    /// Joins the thread of the compaction.
    fn end(&mut self) {
        let Some(Compaction { thread, next, bytes, .. }) = self.running.take() else { return };
        match thread.join() {
            Ok(compacted) => self.note(next, bytes, compacted),
            Err(_) => report(|| polyserve_core::throttled!(of self.failures, warn, "a compaction panicked")),
        }
    }

    /// Makes the list of files that of the disk. `compacted_bytes` are those of the logs.
    fn note(&mut self, next: u64, compacted_bytes: u64, compacted: Compacted) {
        if let Some(snapshot) = compacted.snapshot {
            self.snapshot_bytes = snapshot.len;
            self.complete = vec![snapshot];
            self.files.snapshot = Some(next);
            self.files.logs.retain(|number| *number >= next);
            self.complete_bytes -= compacted_bytes;
            (self.tried_bytes, self.looked_bytes) = (self.complete_bytes, self.complete_bytes);
        }
        self.files.obsolete = compacted.obsolete;
        if let Some(error) = compacted.error {
            report(|| {
                polyserve_core::throttled!(of self.failures, warn, error = &error as &dyn std::error::Error, "a compaction failed");
            });
        }
    }
}

/// Returns the bytes that the store may have on its disk, and those that it needs, if it may have less. It needs those of a snapshot
/// and of its successor, and those of the logs from which the successor is due.
pub(crate) fn short_room(disk: &dyn Disk, min_bytes: u64, recovered: &Recovered) -> Option<(u64, u64)> {
    let log_bytes = recovered.complete_bytes + recovered.log.len();
    // Without a snapshot, the logs are the next one at most.
    let snapshot = if recovered.snapshot_bytes > 0 { recovered.snapshot_bytes } else { log_bytes };
    let needed = snapshot + with_reserve(snapshot) + snapshot.max(min_bytes);
    let available = disk.room().ok()?.saturating_add(recovered.snapshot_bytes + log_bytes);
    (available < needed).then_some((available, needed))
}

/// Returns the room that a snapshot of this length should find on the disk: an eighth more, for the log meanwhile.
fn with_reserve(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 8)
}

impl Drop for Compactor {
    /// Cancels a compaction. The next start removes what it has written.
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            running.cancelled.store(true, Ordering::Relaxed);
        }
        self.end();
    }
}

impl fmt::Debug for Compactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compactor").field("files", &self.files).finish_non_exhaustive()
    }
}
