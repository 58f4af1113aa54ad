//! When the log is compacted: a new log begins, and a thread compacts the files before it.
//!
//! A compaction begins when the files since the newest snapshot have as many bytes as the snapshot, and at least a given
//! number. One runs at a time. So the directory has at most about four times the bytes of the stored entities, or that number.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::compaction::{Compacted, compact};
use crate::disk::Disk;
use crate::log::Log;
use crate::recovery::{Files, Recovered};

/// The files before the present log, and the thread that compacts them.
pub(crate) struct Compactor {
    disk: Arc<dyn Disk>,
    /// The least number of bytes of logs for a compaction.
    min_bytes: u64,
    files: Files,
    snapshot_bytes: u64,
    /// The bytes of the complete logs that no compaction has tried yet.
    sealed_bytes: u64,
    running: Option<Compaction>,
    /// Whether a compaction runs on the caller's thread, so that a test is deterministic.
    is_inline: bool,
}

struct Compaction {
    thread: JoinHandle<Compacted>,
    cancelled: Arc<AtomicBool>,
    next: u64,
}

impl Compactor {
    pub(crate) fn new(disk: &Arc<dyn Disk>, min_bytes: u64, recovered: &Recovered) -> Self {
        Self {
            disk: Arc::clone(disk),
            min_bytes,
            files: recovered.files.clone(),
            snapshot_bytes: recovered.snapshot_bytes,
            sealed_bytes: recovered.sealed_bytes,
            running: None,
            is_inline: false,
        }
    }

    /// Compacts on the caller's thread.
    #[cfg(test)]
    pub(crate) fn inline(mut self) -> Self {
        self.is_inline = true;
        self
    }

    /// Ends a compaction that is complete, or begins one if it is due.
    ///
    /// # Errors
    ///
    /// Returns an error if the next log cannot be created. An error of the compaction itself is logged. The files
    /// that are needed are still there: the next compaction reads them again, and removes those that are not needed.
    pub(crate) fn step(&mut self, log: &mut Log) -> io::Result<()> {
        if self.running.as_ref().is_some_and(|running| running.thread.is_finished()) {
            self.end();
        }
        let is_due = self.sealed_bytes + log.len() >= self.min_bytes.max(self.snapshot_bytes);
        if self.running.is_none() && is_due {
            self.begin(log)?;
        }
        Ok(())
    }

    fn begin(&mut self, log: &mut Log) -> io::Result<()> {
        let complete = self.files.clone();
        log.rotate()?;
        let next = log.number();
        self.files.logs.push(next);
        self.sealed_bytes = 0;
        let (disk, cancelled) = (Arc::clone(&self.disk), Arc::new(AtomicBool::new(false)));
        if self.is_inline {
            let compacted = compact(&disk, &complete, next, &cancelled);
            self.note(next, compacted);
            return Ok(());
        }
        let flag = Arc::clone(&cancelled);
        let builder = thread::Builder::new().name("log-compaction".to_owned());
        match builder.spawn(move || compact(&disk, &complete, next, &flag)) {
            Ok(thread) => self.running = Some(Compaction { thread, cancelled, next }),
            Err(error) => tracing::warn!(%error, "the thread of a compaction cannot be started"),
        }
        Ok(())
    }

    /// Joins the thread of the compaction.
    fn end(&mut self) {
        let Some(Compaction { thread, next, .. }) = self.running.take() else { return };
        match thread.join() {
            Ok(compacted) => self.note(next, compacted),
            Err(_) => tracing::warn!("a compaction panicked"),
        }
    }

    /// Makes the list of files that of the disk.
    fn note(&mut self, next: u64, compacted: Compacted) {
        if let Some(bytes) = compacted.bytes {
            self.snapshot_bytes = bytes;
            self.files.snapshot = Some(next);
            self.files.logs.retain(|number| *number >= next);
        }
        self.files.obsolete = compacted.obsolete;
        if let Some(error) = compacted.error {
            tracing::warn!(error = &error as &dyn std::error::Error, "a compaction failed");
        }
    }
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
