//! [`Durable`]: a repo in memory that answers a write after its fsync.

use std::fmt;
use std::fs;
use std::future::ready;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use polyserve_core::figures::StoreFigures;
use polyserve_core::mailbox::{Mailbox, Refused};
use polyserve_core::stack::FOR_ANY_VALUE;
use polyserve_core::sync::lock;
use polyserve_core::{
    Answer, Condition, Conditional, Entity, EntityRepo, Identifiable, Lookup, ManyVisit, Put, Removed, RepoAnswer,
    RepoError, ScanPage, ScanVisit, Visit, promise,
};

use crate::commit::{CommitCounts, Committer, Shared, VERIFY_EACH, Write, WriteReply};
use crate::compactor::Compactor;
use crate::disk::{Directory, Disk};
use crate::error::OpenError;
use crate::record::{apply, put_record, remove_record};
use crate::recovery::{TornTail, no_records, recover};
use crate::temporary;

/// The limits of a [`Durable`] store.
///
/// ```
/// use polyserve_durable::DurableOptions;
///
/// let options = DurableOptions::default().queue(1_024).queue_bytes(1 << 20).compact_from(256 << 20);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DurableOptions {
    /// The max number of writes that wait for an fsync, in addition to those that are being synced. A write beyond it fails
    /// with [`RepoError::Overloaded`]. Default: 16,384.
    pub queue: usize,
    /// The max number of bytes of the waiting writes, as records of the log. Default: 64 MiB.
    pub queue_bytes: u64,
    /// The number of bytes of logs from which they are compacted. Default: 64 MiB.
    pub compact_from: u64,
}

impl Default for DurableOptions {
    fn default() -> Self {
        Self { queue: 16 * 1024, queue_bytes: 64 << 20, compact_from: 64 << 20 }
    }
}

impl DurableOptions {
    /// Sets the max number of waiting writes.
    #[must_use]
    pub fn queue(self, writes: usize) -> Self {
        Self { queue: writes, ..self }
    }

    /// Sets the max number of bytes of the waiting writes.
    #[must_use]
    pub fn queue_bytes(self, bytes: u64) -> Self {
        Self { queue_bytes: bytes, ..self }
    }

    /// Sets the number of bytes of logs from which they are compacted.
    #[must_use]
    pub fn compact_from(self, bytes: u64) -> Self {
        Self { compact_from: bytes, ..self }
    }
}

/// What a store read when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// The number of records that were read.
    pub records: u64,
    /// The number of entities that are stored.
    pub entities: u64,
    /// The torn end of the last log, which was dropped. None of its writes was answered.
    pub torn: Option<TornTail>,
    /// The time that it took.
    pub elapsed: Duration,
}

/// A repo in memory over a log. The [crate documentation](crate) states what it promises.
///
/// ```
/// use polyserve_core::{Entity, EntityRepo, EntityRepoExt, Put};
/// use polyserve_durable::Durable;
/// use polyserve_memory::Sharded;
///
/// # let directory = std::env::temp_dir().join(format!("polyserve-doc-durable-{}", std::process::id()));
/// let store = Durable::open(&directory, Sharded::new())?;
/// assert_eq!(store.put(Entity::new(1, "first", 0.5)).wait()?, Put::Created);
/// drop(store);
///
/// let store = Durable::open(&directory, Sharded::new())?;
/// assert_eq!(store.recovery().entities, 1);
/// assert_eq!(store.fetch(&1).wait()?, Some(Entity::new(1, "first", 0.5)));
/// # drop(store);
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Durable<R, E: Identifiable = Entity> {
    memory: Arc<R>,
    mailbox: Arc<Mailbox<Write<E>>>,
    shared: Arc<Shared>,
    queue_bytes: u64,
    recovery: Recovery,
    thread: Option<JoinHandle<()>>,
    /// The directory to remove when the store is dropped.
    temporary: Option<PathBuf>,
    entity: PhantomData<fn(E)>,
}

impl<R: EntityRepo<E>, E: Identifiable> Durable<R, E> {
    /// Opens the store in `directory`, which is created if it does not exist. `memory` must be empty: it gets all stored
    /// entities.
    ///
    /// # Errors
    ///
    /// Returns [`OpenError::InUse`] if another store has the directory open, [`OpenError::Damaged`] if a file is damaged where
    /// a crash does not damage it, and other errors if a file cannot be read or is of another version or entity type.
    pub fn open(directory: impl AsRef<Path>, memory: R) -> Result<Self, OpenError> {
        Self::open_with(directory, memory, &DurableOptions::default())
    }

    /// Does the same as [`open`](Self::open), with other limits.
    ///
    /// # Errors
    ///
    /// Returns the same errors.
    pub fn open_with(directory: impl AsRef<Path>, memory: R, options: &DurableOptions) -> Result<Self, OpenError> {
        Self::open_on(&(Directory::lock(directory.as_ref())? as _), memory, options)
    }

    /// Creates an empty store in a new directory within `parent`. The directory is removed when the store is dropped; if its process
    /// is killed, when the next temporary store is created there. For measurements and tests.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`open`](Self::open).
    pub fn temporary(parent: impl AsRef<Path>, memory: R) -> Result<Self, OpenError> {
        let directory = temporary::create(parent.as_ref())?;
        let mut store = Self::open(&directory, memory)?;
        store.temporary = Some(directory);
        Ok(store)
    }

    /// Opens the store on a disk of another kind. For tests: the file seam is unstable.
    ///
    /// # Errors
    ///
    /// Returns the same errors.
    pub fn open_on(disk: &Arc<dyn Disk>, memory: R, options: &DurableOptions) -> Result<Self, OpenError> {
        let (committer, memory, shared, recovery) = load(disk, memory, options)?;
        let mailbox = Arc::new(Mailbox::new(options.queue.max(1)));
        let receiver = Arc::clone(&mailbox);
        let thread = thread::Builder::new()
            .name("log".to_owned())
            .stack_size(FOR_ANY_VALUE)
            .spawn(move || committer.run(&receiver));
        let thread = Some(thread.map_err(|source| OpenError::io("start the thread of", Path::new("the log"), source))?);
        Ok(Self {
            memory,
            mailbox,
            shared,
            queue_bytes: options.queue_bytes,
            recovery,
            thread,
            temporary: None,
            entity: PhantomData,
        })
    }

    /// Returns what was read when the store was opened.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Returns the counts of batches and writes since the store was opened.
    pub fn counts(&self) -> CommitCounts {
        self.shared.counts()
    }

    /// Returns the repo in memory. A write to it is not logged.
    pub fn memory(&self) -> &R {
        &self.memory
    }

    /// Sends a write to the thread of the log.
    fn submit<T: Send + 'static>(
        &self,
        write: impl FnOnce(WriteReply<T>) -> Result<Write<E>, RepoError>,
    ) -> RepoAnswer<Conditional<T>> {
        if let Some(stopped) = self.shared.stopped.get() {
            return Answer::Now(Err(stopped.to_repo_error()));
        }
        let (reply, answer) = promise(Err(RepoError::Closed));
        let write = match write(reply) {
            Ok(write) => write,
            Err(error) => return Answer::Now(Err(error)),
        };
        let bytes = write.bytes();
        let queued = self.shared.queued.fetch_add(bytes, Ordering::Relaxed);
        // A write that alone is larger than the limit is taken if nothing waits.
        let refused = if queued > 0 && queued + bytes > self.queue_bytes {
            Err(Refused::Full(write))
        } else {
            self.mailbox.send(write)
        };
        let Err(refused) = refused else { return answer };
        self.shared.queued.fetch_sub(bytes, Ordering::Relaxed);
        match refused {
            Refused::Full(_) => Answer::later(ready(Err(RepoError::Overloaded))),
            // This drops the write with its completer. The drop answers `Closed`.
            Refused::Closed(_) => answer,
        }
    }
}

/// A committer over the state of a disk, the repo in memory, and what was read.
type Loaded<R, E> = (Committer<R, E>, Arc<R>, Arc<Shared>, Recovery);

/// Reads the state of a disk into `memory`.
pub(crate) fn load<R: EntityRepo<E>, E: Identifiable>(
    disk: &Arc<dyn Disk>,
    memory: R,
    options: &DurableOptions,
) -> Result<Loaded<R, E>, OpenError> {
    let start = Instant::now();
    let mut records = 0;
    let recovered = recover(disk, |file, frame| {
        records += u64::from(frame.records);
        let applied = frame.for_each(|record, offset, _| apply(&memory, file, record, offset));
        applied.map_err(|error| error.unwrap_or_else(|| OpenError::Damaged(no_records(file, frame.offset))))
    })?;
    let entities = memory.len().wait().map_err(OpenError::Memory)?;
    if let Some(TornTail { file, offset, bytes }) = &recovered.torn {
        let why = match offset {
            0 => {
                "the only log has no header, so the store begins empty: its creation was interrupted, or its content was removed"
            }
            _ => "dropped the torn end of the log",
        };
        tracing::warn!(file, offset, bytes, "{why}");
    }
    let compactor = Compactor::new(disk, options.compact_from, &recovered);
    let recovery = Recovery { records, entities, torn: recovered.torn, elapsed: start.elapsed() };
    let (memory, shared) = (Arc::new(memory), Arc::new(Shared::new()));
    let committer = Committer::new(disk, Arc::clone(&memory), recovered.log, compactor, Arc::clone(&shared));
    Ok((committer, memory, shared, recovery))
}

impl<R: EntityRepo<E>, E: Identifiable> EntityRepo<E> for Durable<R, E> {
    #[inline]
    fn get(&self, id: &E::Id, visit: Visit<'_, E>) -> RepoAnswer<Lookup<E>> {
        self.memory.get(id, visit)
    }

    fn get_many(&self, ids: &[E::Id], visit: ManyVisit<'_, E>) -> RepoAnswer<Vec<(usize, E)>> {
        self.memory.get_many(ids, visit)
    }

    fn put_if(&self, entity: E, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        let condition = condition.clone();
        self.submit(|reply| {
            let record = put_record(&entity)?;
            Ok(Write::Put { entity, condition, record, reply })
        })
    }

    fn remove_if(&self, id: &E::Id, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        let (id, condition) = (id.clone(), condition.clone());
        self.submit(|reply| {
            let record = remove_record::<E>(&id)?;
            Ok(Write::Remove { id, condition, record, reply })
        })
    }

    fn len(&self) -> RepoAnswer<u64> {
        self.memory.len()
    }

    fn can_scan(&self) -> bool {
        self.memory.can_scan()
    }

    fn scan(&self, after: Option<&E::Id>, limit: usize, visit: ScanVisit<'_, E>) -> RepoAnswer<ScanPage<E>> {
        self.memory.scan(after, limit, visit)
    }

    /// If the last look is a second ago, the thread of the log looks at the directory: it must still be the store's. If the last write
    /// found no room, that thread also tries to write, at most once a second. Otherwise the answer costs no system call. While that
    /// thread waits for the disk, and has not looked for a second, no status is answered.
    fn status(&self) -> RepoAnswer<()> {
        if let Some(stopped) = self.shared.stopped.get() {
            return Answer::Now(Err(stopped.to_repo_error()));
        }
        let answered = *lock(&self.shared.answered_try);
        let is_fresh = answered.is_some_and(|answered| answered.elapsed() < VERIFY_EACH);
        if is_fresh && !self.shared.is_rejecting.load(Ordering::Relaxed) {
            return Answer::Now(Ok(()));
        }
        let (reply, answer) = promise(Err(RepoError::Closed));
        match self.mailbox.send(Write::Try { reply }) {
            Err(Refused::Full(_)) => Answer::later(ready(Err(RepoError::Overloaded))),
            // A drop of the write answers `Closed`.
            Ok(()) | Err(Refused::Closed(_)) => answer,
        }
    }

    fn version(&self, id: &E::Id) -> Option<u64> {
        self.memory.version(id)
    }

    fn figures(&self) -> Option<Arc<dyn StoreFigures>> {
        Some(Arc::clone(&self.shared) as _)
    }
}

impl<R, E: Identifiable> Drop for Durable<R, E> {
    /// Waits until all accepted writes are synced and answered.
    fn drop(&mut self) {
        self.mailbox.close();
        let Some(thread) = self.thread.take() else { return };
        // A waker may hold the last reference, so the thread of the log may be this one. It then ends by itself.
        if thread.thread().id() != thread::current().id() {
            let _ = thread.join();
        }
        if let Some(directory) = &self.temporary
            && let Err(error) = fs::remove_dir_all(directory)
        {
            tracing::warn!(%error, directory = %directory.display(), "a temporary store cannot be removed");
        }
    }
}

impl<R, E: Identifiable> fmt::Debug for Durable<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Durable").field("recovery", &self.recovery).finish_non_exhaustive()
    }
}
