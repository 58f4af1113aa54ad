//! Group commit: one thread decides, logs, syncs, publishes and answers all writes that wait.
//!
//! The thread takes every write that has arrived, in order. It decides each against the writes before it in the batch, else
//! against the repo in memory. It appends the records of all accepted writes as one frame and syncs once. Then it applies them
//! to the repo in memory, and only then it completes the answers. The writes that arrive during the fsync are the next batch.
//! It never waits for more writes.
//!
//! Invariants:
//!
//! * The repo in memory holds synced writes only, so a reader never sees what a crash can take back.
//! * An answer is completed after the fsync of every write that it depends on. That holds for a refusal too: it may be due to a
//!   write of the same batch.
//! * An append that fails is cut off, and the cut is synced. Then the writes of the batch were certainly not done, and the next
//!   batch is written as if they had not been there.
//! * After the first error of an fsync or of a cut, nothing is written any more. It is unknown what is on the disk, and a second
//!   fsync may succeed without having written anything. So the writes of that batch may have been done, and their answers say so.
//!   Later writes are certainly not done.
//! * Code of an entity's type that panics fails that operation, and no other.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::figures::{DURATION_BOUNDS, FigureValue, Histogram, StoreFigure, StoreFigures};
use polyserve_core::log::LogThrottles;
use polyserve_core::mailbox::Mailbox;
use polyserve_core::panics::drop_payload;
use polyserve_core::sync::lock;
use polyserve_core::{
    Completer, Condition, Conditional, EntityRepo, Identifiable, Lookup, Put, Removed, RepoError, Shown, Visit,
};

use crate::compactor::Compactor;
use crate::disk::Disk;
use crate::failure::{NotAppended, WritesStopped, in_general};
use crate::format::FrameBuffer;
use crate::log::{AppendError, Log};
use crate::record::read_entity;

/// The bytes of records from which a batch takes no further write: 8 MiB. The rest is the next batch.
const MAX_BATCH: usize = 8 << 20;

/// The pauses between two tries of a write to a repo in memory that is overloaded: the first, and the max. Each is twice as
/// long as the one before.
const PAUSES: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(5));

/// The pause between two looks at whether the path of the store still names its directory, and the names in it its files. A store
/// that was moved goes on for as long, and its writes go to the moved directory. The log itself is looked at before each write to it.
pub(crate) const VERIFY_EACH: Duration = Duration::from_secs(1);

/// The pause between two tries to see whether writes succeed again. Clients choose how often they ask.
const TRY_EACH: Duration = Duration::from_secs(1);

/// The bytes that are tried to see whether writes succeed again.
const TRY_BYTES: usize = 64 << 10;

/// The completer of a write's answer.
pub(crate) type WriteReply<T> = Completer<WriteResult<T>>;

/// A write that waits for its fsync.
pub(crate) enum Write<E: Identifiable> {
    Put {
        entity: E,
        condition: Condition,
        record: Vec<u8>,
        reply: WriteReply<Put>,
    },
    Remove {
        id: E::Id,
        condition: Condition,
        record: Vec<u8>,
        reply: WriteReply<Removed>,
    },
    /// Asks whether a write would succeed. It changes nothing.
    Try {
        reply: Completer<Result<(), RepoError>>,
    },
}

impl<E: Identifiable> Write<E> {
    /// Returns the number of bytes that the write holds in the queue.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Put { record, .. } | Self::Remove { record, .. } => record.len() as u64,
            Self::Try { .. } => 0,
        }
    }
}

/// A write of the batch, and its result if the batch becomes durable.
enum Decided<E: Identifiable> {
    /// `record` is the place of an accepted write's record in the frame.
    Put {
        entity: E,
        record: Range<usize>,
        result: WriteResult<Put>,
        reply: WriteReply<Put>,
    },
    Remove {
        id: E::Id,
        result: WriteResult<Removed>,
        reply: WriteReply<Removed>,
    },
}

/// An answer that waits for the end of its batch.
enum Answered {
    Put(WriteReply<Put>, WriteResult<Put>),
    Remove(WriteReply<Removed>, WriteResult<Removed>),
}

/// The result of a conditional write.
type WriteResult<T> = Result<Conditional<T>, RepoError>;

impl<E: Identifiable> Decided<E> {
    /// Whether the write changes the store.
    fn is_change(&self) -> bool {
        match self {
            Self::Put { result, .. } => matches!(result, Ok(Conditional::Done(_))),
            Self::Remove { result, .. } => matches!(result, Ok(Conditional::Done(Removed::Removed))),
        }
    }
}

/// What the thread of the log shares with the callers.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The reason why writes have stopped.
    pub(crate) stopped: OnceLock<WritesStopped>,
    /// Whether the last append failed and was undone. The next one may succeed.
    pub(crate) is_rejecting: AtomicBool,
    /// When the directory was last looked at for a status.
    pub(crate) answered_try: Mutex<Option<Instant>>,
    /// The bytes of all writes in the queue.
    pub(crate) queued: AtomicU64,
    /// The throttles of what the store logs.
    failures: LogThrottles,
    /// The nanoseconds that each batch has taken, with its fsync.
    sync_times: Histogram,
    /// The number of writes of each batch.
    batch_sizes: Histogram,
}

/// The bounds of the sizes of batches.
const SIZE_BOUNDS: [u64; 15] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384];

/// Counts of what a store has written since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommitCounts {
    /// The number of fsyncs of a batch.
    pub syncs: u64,
    /// The number of logged writes. Divided by `syncs`, it is the mean size of a batch.
    pub writes: u64,
    /// The nanoseconds that the thread of the log has spent in writing batches and in their fsyncs.
    pub sync_nanos: u64,
}

impl Shared {
    pub(crate) fn new() -> Self {
        Self {
            stopped: OnceLock::new(),
            is_rejecting: AtomicBool::new(false),
            answered_try: Mutex::new(None),
            queued: AtomicU64::new(0),
            failures: LogThrottles::default(),
            sync_times: Histogram::new(&DURATION_BOUNDS),
            batch_sizes: Histogram::new(&SIZE_BOUNDS),
        }
    }

    pub(crate) fn counts(&self) -> CommitCounts {
        let (times, sizes) = (self.sync_times.read(), self.batch_sizes.read());
        CommitCounts { syncs: times.count(), writes: sizes.sum, sync_nanos: times.sum }
    }
}

impl StoreFigures for Shared {
    fn read(&self) -> Vec<StoreFigure> {
        let queued = FigureValue::Bytes(self.queued.load(Ordering::Relaxed));
        vec![
            StoreFigure::new(
                "polyserve_durable_sync_duration",
                "From the start of a batch to the end of its fsync",
                FigureValue::Durations(self.sync_times.read()),
            ),
            StoreFigure::new(
                "polyserve_durable_batch_writes",
                "Writes of a batch, which share an fsync",
                FigureValue::Sizes(self.batch_sizes.read()),
            ),
            StoreFigure::new("polyserve_durable_queued", "Bytes of the writes that wait for the log", queued),
        ]
    }
}

/// What is known about the frame of a batch. If writes have stopped, [`Shared::stopped`] has the reason.
#[derive(Debug)]
enum FrameEnd {
    /// It is on the disk, or there was nothing to write.
    Stored,
    /// It is not on the disk. Later ones may be.
    Rejected(NotAppended),
    /// It is not on the disk, and writes have stopped.
    NotWritten,
    /// It may be on the disk, and writes have stopped.
    Unknown,
}

/// The writer of the log.
pub(crate) struct Committer<R, E: Identifiable> {
    disk: Arc<dyn Disk>,
    memory: Arc<R>,
    log: Log,
    compactor: Compactor,
    shared: Arc<Shared>,
    frame: FrameBuffer,
    decided: Vec<Decided<E>>,
    /// The position in `decided` of the last accepted write of an id.
    latest: HashMap<E::Id, usize>,
    answers: VecDeque<Answered>,
    tries: Vec<Completer<Result<(), RepoError>>>,
    /// When the place of the directory was last verified.
    verified: Instant,
    verify_each: Duration,
    /// The last append or try that was not done, and when it was. `None` if a later one was done.
    rejected: Option<(Instant, NotAppended)>,
}

impl<R: EntityRepo<E>, E: Identifiable> Committer<R, E> {
    pub(crate) fn new(
        disk: &Arc<dyn Disk>,
        memory: Arc<R>,
        log: Log,
        compactor: Compactor,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            disk: Arc::clone(disk),
            memory,
            log,
            compactor,
            shared,
            frame: FrameBuffer::new(),
            decided: Vec::new(),
            latest: HashMap::new(),
            answers: VecDeque::new(),
            tries: Vec::new(),
            verified: Instant::now(),
            verify_each: VERIFY_EACH,
            rejected: None,
        }
    }

    /// Compacts on the thread that commits, and verifies the directory before each batch.
    #[cfg(test)]
    pub(crate) fn compacting_inline(self) -> Self {
        Self { compactor: self.compactor.inline(), verify_each: Duration::ZERO, ..self }
    }

    /// The loop of the thread. It ends when the mailbox is closed and empty.
    pub(crate) fn run(mut self, mailbox: &Mailbox<Write<E>>) {
        let mut queue = WriteQueue { mailbox, batch: VecDeque::new() };
        while queue.mailbox.receive(&mut queue.batch) {
            while !queue.batch.is_empty() {
                self.commit(&mut queue.batch);
            }
        }
    }

    /// Commits the first writes of `batch`: all, if they have less than [`MAX_BATCH`] bytes.
    pub(crate) fn commit(&mut self, batch: &mut VecDeque<Write<E>>) {
        self.decide_all(batch);
        #[cfg(test)]
        if crate::mistakes::is_made(crate::mistakes::Mistake::PublishedBeforeSync) {
            self.publish(true);
        }
        let frame_end = match (self.frame.is_empty(), self.shared.stopped.get()) {
            (true, None) => FrameEnd::Stored,
            (false, None) => self.store(),
            (_, Some(_)) => FrameEnd::NotWritten,
        };
        self.publish(matches!(frame_end, FrameEnd::Stored));
        self.answer(&frame_end);
        self.answer_tries();
        if self.shared.stopped.get().is_none() {
            match self.compactor.step(&mut self.log) {
                Ok(()) => {}
                Err(AppendError::Lost(reason)) => self.stop_if_moved(Err(reason)),
                Err(AppendError::Undone(error) | AppendError::Unknown(error)) => {
                    self.stop(in_general(&error), format!("its log cannot be completed: {error}"));
                }
            }
        }
    }

    /// Moves writes from `batch` to `decided`, and the records of the accepted ones to the frame.
    fn decide_all(&mut self, batch: &mut VecDeque<Write<E>>) {
        self.frame.clear();
        let _ = catch_unwind(AssertUnwindSafe(|| self.latest.clear())).map_err(drop_payload);
        while self.frame.len() < MAX_BATCH
            && let Some(write) = batch.pop_front()
        {
            self.shared.queued.fetch_sub(write.bytes(), Ordering::Relaxed);
            // The code of the id's type may panic. If the write is not decided, its completer is dropped, and it is answered
            // with `Closed`.
            let _ = catch_unwind(AssertUnwindSafe(|| self.decide(write))).map_err(drop_payload);
        }
    }

    /// Moves a write to `decided`, and the record of an accepted one to the frame. Code of the entity's type runs before and
    /// after these two steps, not between them: a panic leaves both done or none.
    fn decide(&mut self, write: Write<E>) {
        match write {
            Write::Put { entity, condition, record, reply } => {
                let result = self.evaluate(entity.id(), &condition).map(|outcome| match outcome {
                    (_, false) => Conditional::Refused,
                    (true, true) => Conditional::Done(Put::Replaced),
                    (false, true) => Conditional::Done(Put::Created),
                });
                let is_change = matches!(result, Ok(Conditional::Done(_)));
                if is_change {
                    self.note_latest(entity.id());
                }
                let record = if is_change { self.frame.push(&record) } else { 0..0 };
                self.decided.push(Decided::Put { entity, record, result, reply });
            }
            Write::Remove { id, condition, record, reply } => {
                let result = self.evaluate(&id, &condition).map(|outcome| match outcome {
                    (false, _) => Conditional::Done(Removed::Absent),
                    (true, false) => Conditional::Refused,
                    (true, true) => Conditional::Done(Removed::Removed),
                });
                if matches!(result, Ok(Conditional::Done(Removed::Removed))) {
                    self.note_latest(&id);
                    self.frame.push(&record);
                }
                self.decided.push(Decided::Remove { id, result, reply });
            }
            Write::Try { reply } => self.tries.push(reply),
        }
    }

    /// Notes that the next decided write is the last accepted one of an id. If it panics, nothing is noted.
    fn note_latest(&mut self, id: &E::Id) {
        let position = self.decided.len();
        // An insertion would drop the id of a second write after it has noted the write, and a drop may panic.
        match self.latest.get_mut(id) {
            Some(latest) => *latest = position,
            None => {
                self.latest.insert(id.clone(), position);
            }
        }
    }

    /// Returns whether the entity is stored after all writes so far, and whether the condition allows a write.
    fn evaluate(&self, id: &E::Id, condition: &Condition) -> Result<(bool, bool), RepoError> {
        catch_unwind(AssertUnwindSafe(|| self.evaluate_inner(id, condition))).unwrap_or_else(|payload| {
            drop_payload(payload);
            Err(RepoError::Other("the evaluation of the condition panicked".into()))
        })
    }

    fn evaluate_inner(&self, id: &E::Id, condition: &Condition) -> Result<(bool, bool), RepoError> {
        let outcome_of =
            |shown: Option<Shown<'_, E>>| (shown.is_some(), condition.is_always() || condition.allows_shown(shown));
        match self.latest.get(id).and_then(|position| self.decided.get(*position)) {
            Some(Decided::Put { entity, .. }) => return Ok(outcome_of(Some(Shown::from(entity)))),
            Some(Decided::Remove { .. }) => return Ok(outcome_of(None)),
            None => {}
        }
        let mut outcome = (false, false);
        match self.memory.get(id, Visit::new(&mut |shown| outcome = outcome_of(Some(shown)))).wait()? {
            Lookup::Absent => Ok(outcome_of(None)),
            Lookup::Visited(_) => Ok(outcome),
            Lookup::Fetched(entity) => Ok(outcome_of(Some(Shown::from(&entity)))),
        }
    }

    /// Writes the frame and syncs it. Stops all writes if it is unknown what was written, or if the directory is not the store's
    /// any more.
    fn store(&mut self) -> FrameEnd {
        let start = Instant::now();
        if start.duration_since(self.verified) >= self.verify_each {
            self.verified = start;
            self.verify();
        } else {
            self.verify_lock();
        }
        if self.shared.stopped.get().is_some() {
            return FrameEnd::NotWritten;
        }
        let appended = self.log.append(&mut self.frame);
        let end = self.note_append(appended);
        if matches!(end, FrameEnd::Stored) {
            // A store that takes the lock from now on reads the frame. One that has taken it before may have missed the frame.
            self.verify_lock();
            if self.shared.stopped.get().is_some() {
                return FrameEnd::Unknown;
            }
            let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.shared.sync_times.add(nanos);
            self.shared.batch_sizes.add(u64::from(self.frame.records()));
        }
        end
    }

    /// Stops all writes if the directory, or a file that the next start needs, is not the store's any more.
    fn verify(&self) {
        let mut needed = self.compactor.needed(&self.log);
        self.stop_if_moved(self.disk.verify().and_then(|()| needed.try_for_each(|file| self.disk.verify_file(file))));
    }

    /// Stops all writes if another process may have locked the directory.
    fn verify_lock(&self) {
        self.stop_if_moved(self.disk.verify_lock());
    }

    fn stop_if_moved(&self, verified: Result<(), String>) {
        if let Err(reason) = verified {
            self.stop("the directory or a file of the store was changed, moved, removed or replaced", reason);
        }
    }

    /// Notes whether an append has succeeded.
    fn note_append(&mut self, appended: Result<(), AppendError>) -> FrameEnd {
        let was_rejecting = self.shared.is_rejecting.load(Ordering::Relaxed);
        match appended {
            Ok(()) => {
                self.rejected = None;
                if was_rejecting {
                    self.shared.is_rejecting.store(false, Ordering::Relaxed);
                    report(
                        || polyserve_core::throttled!(of self.shared.failures, info, "the durable store accepts writes again"),
                    );
                }
                FrameEnd::Stored
            }
            Err(AppendError::Undone(error)) => {
                if !was_rejecting {
                    self.shared.is_rejecting.store(true, Ordering::Relaxed);
                    report(
                        || polyserve_core::throttled!(of self.shared.failures, warn, %error, "the durable store rejects writes until its log can be written"),
                    );
                }
                let rejected = NotAppended::new(&error);
                self.rejected = Some((Instant::now(), rejected.clone()));
                FrameEnd::Rejected(rejected)
            }
            Err(AppendError::Lost(reason)) => {
                self.stop_if_moved(Err(reason));
                FrameEnd::NotWritten
            }
            Err(AppendError::Unknown(error)) => {
                self.stop(in_general(&error), format!("its log cannot be written: {error}"));
                FrameEnd::Unknown
            }
        }
    }

    /// Answers those that ask whether a write would succeed. If the last one was not done, it tries, at most once each
    /// [`TRY_EACH`]. In between, the last result is the answer.
    fn answer_tries(&mut self) {
        if self.tries.is_empty() {
            return;
        }
        if self.shared.stopped.get().is_none() {
            self.verify();
            *lock(&self.shared.answered_try) = Some(Instant::now());
        }
        let is_due = self.rejected.as_ref().is_some_and(|(at, _)| at.elapsed() >= TRY_EACH);
        if is_due && self.shared.stopped.get().is_none() {
            let tried = self.log.try_room(TRY_BYTES);
            let _ = self.note_append(tried); // it notes the result
        }
        for reply in self.tries.drain(..) {
            let result = match (self.shared.stopped.get(), &self.rejected) {
                (Some(stopped), _) => Err(stopped.to_repo_error()),
                (None, Some((_, rejected))) => Err(rejected.to_repo_error()),
                (None, None) => Ok(()),
            };
            // A waker may panic.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(reply.complete(result)))).map_err(drop_payload);
        }
    }

    /// Applies the accepted writes to the repo in memory, if they are stored.
    fn publish(&mut self, is_stored: bool) {
        let mut decided = mem::take(&mut self.decided);
        for write in decided.drain(..) {
            let apply = is_stored && write.is_change() && self.shared.stopped.get().is_none();
            let mut applied = if apply { Err(RepoError::Other("it panicked".into())) } else { Ok(()) };
            // The results leave the closure before it drops the id: if that panics, the value of a closure is leaked.
            let _ = catch_unwind(AssertUnwindSafe(|| match write {
                Decided::Put { entity, record, result, reply } => {
                    self.answers.push_back(Answered::Put(reply, result));
                    if apply {
                        applied = self.put_in_memory(entity, record);
                    }
                }
                Decided::Remove { id, result, reply } => {
                    self.answers.push_back(Answered::Remove(reply, result));
                    if apply {
                        let remove = || self.memory.remove(&id).wait().map(drop);
                        applied = retry_while_overloaded(remove(), || Some(remove()));
                    }
                }
            }))
            .map_err(drop_payload);
            if let Err(error) = applied {
                let reason = "the repo in memory did not take a logged write";
                self.stop(reason, format!("{reason}: {error}"));
            }
        }
        self.decided = decided;
    }

    /// Puts an entity into the repo in memory. If the repo is overloaded, the entity of the next try is read from its record.
    fn put_in_memory(&self, entity: E, record: Range<usize>) -> Result<(), RepoError> {
        let put = |entity| self.memory.put(entity).wait().map(drop);
        retry_while_overloaded(put(entity), || {
            let entity = self.frame.record(record.clone()).and_then(|record| read_entity(record).ok())?;
            Some(put(entity))
        })
    }

    /// Completes the answers of the batch. If it failed, a refusal fails too: it may be due to a write of the batch.
    fn answer(&mut self, frame_end: &FrameEnd) {
        let stopped = self.shared.stopped.get();
        // If the frame is stored and the repo in memory has not taken it, the next start finds it.
        let may_be_stored = matches!(frame_end, FrameEnd::Stored | FrameEnd::Unknown);
        let failure = |is_change: bool| match (frame_end, stopped) {
            (FrameEnd::Rejected(rejected), None) => Some(rejected.to_repo_error()),
            (_, Some(stopped)) if is_change && may_be_stored => Some(stopped.to_unknown()),
            (_, stopped) => stopped.map(WritesStopped::to_repo_error),
        };
        while !self.answers.is_empty() {
            // One `catch_unwind` for many answers: a waker may panic, and its answer has then left the list.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                while let Some(answered) = self.answers.pop_front() {
                    match answered {
                        Answered::Put(reply, result) => {
                            let failure = failure(matches!(result, Ok(Conditional::Done(_))));
                            complete(reply, result, failure);
                        }
                        Answered::Remove(reply, result) => {
                            let failure = failure(matches!(result, Ok(Conditional::Done(Removed::Removed))));
                            complete(reply, result, failure);
                        }
                    }
                }
            }))
            .map_err(drop_payload);
        }
    }

    /// Stops all writes. `reason` is `cause` in general words.
    fn stop(&self, reason: &'static str, cause: String) {
        let stopped = self.shared.stopped.get_or_init(|| WritesStopped::new(reason, cause));
        report(|| tracing::error!(reason = stopped.cause(), "the durable store accepts no writes any more"));
    }
}

/// Reports an event on the thread of the log. It goes on if the program's subscriber panics, for example because its own file is on
/// the full disk.
pub(crate) fn report(event: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(event)).map_err(drop_payload);
}

/// Tries a write to the repo in memory until the repo is not overloaded, with a pause before each try. The write is on the
/// disk, so it cannot be rejected. Returns the last result.
fn retry_while_overloaded(
    mut result: Result<(), RepoError>,
    mut retry: impl FnMut() -> Option<Result<(), RepoError>>,
) -> Result<(), RepoError> {
    let (mut pause, max_pause) = PAUSES;
    while matches!(result, Err(RepoError::Overloaded)) {
        thread::sleep(pause);
        pause = (2 * pause).min(max_pause);
        let Some(next) = retry() else { break };
        result = next;
    }
    result
}

/// Completes an answer. An abandoned one is dropped.
fn complete<T>(reply: WriteReply<T>, result: WriteResult<T>, failure: Option<RepoError>) {
    let result = match failure {
        Some(failure) => result.and(Err(failure)),
        None => result,
    };
    let _ = reply.complete(result);
}

/// The mailbox of the log's thread, and the writes that it has taken out. A drop answers all of them with `Closed`.
struct WriteQueue<'a, E: Identifiable> {
    mailbox: &'a Mailbox<Write<E>>,
    batch: VecDeque<Write<E>>,
}

impl<E: Identifiable> Drop for WriteQueue<'_, E> {
    fn drop(&mut self) {
        let waiting = self.mailbox.end();
        for write in self.batch.drain(..).chain(waiting) {
            let _ = catch_unwind(AssertUnwindSafe(|| drop(write))).map_err(drop_payload);
        }
    }
}
