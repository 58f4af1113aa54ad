//! The slots in which jobs wait, and one word: the number of waiting jobs, the number of running jobs, and a closed flag.
//!
//! Invariants:
//!
//! * A job is counted as waiting before it is put into a slot, until after it was taken out. So every admitted job finds a
//!   free slot.
//! * A job is taken out of its slot once.
//! * A job moves from waiting to running in one atomic step, so every snapshot of the word counts it.
//! * After the closed flag is set, no more jobs are admitted.
//!
//! When a deadline passes, the queue is *cut*: from then on jobs are dropped and not run. A submitter puts its job into
//! a slot, and then checks for the cut. The thread that cuts sets the flag, and then empties the slots. So one of the
//! two finds the job.
//!
//! Cost of a job: three atomic exchanges on the word, one on the index of the next slot, two uncontended locks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use polyserve_core::sync::lock;
use polyserve_core::{Job, RejectedReason};

/// The waiting jobs of one executor.
pub(super) struct JobQueue {
    word: CacheAligned<AtomicU64>,
    /// The slot that the next job tries first. Slots are tried in turn, so usually this slot has been free for longest.
    next: CacheAligned<AtomicUsize>,
    slots: Box<[Mutex<Option<Job>>]>,
    cut: AtomicBool,
}

/// A value on cache lines of its own.
#[repr(align(128))]
struct CacheAligned<T>(T);

const ONE_WAITING: u64 = 1;
const ONE_RUNNING: u64 = 1 << 32;
const CLOSED_BIT: u64 = 1 << 63;

/// The value of the word at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Snapshot(u64);

impl Snapshot {
    pub(super) fn waiting(self) -> usize {
        usize::try_from(self.0 % ONE_RUNNING).expect("at most the number of slots")
    }

    pub(super) fn running(self) -> usize {
        usize::try_from(self.0 % CLOSED_BIT / ONE_RUNNING).expect("at most the number of threads")
    }

    pub(super) fn is_closed(self) -> bool {
        self.0 & CLOSED_BIT != 0
    }
}

impl JobQueue {
    /// A queue with `capacity` slots, at least one.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            word: CacheAligned(AtomicU64::new(0)),
            next: CacheAligned(AtomicUsize::new(0)),
            slots: (0..capacity).map(|_| Mutex::new(None)).collect(),
            cut: AtomicBool::new(false),
        }
    }

    /// Admits one job, which must then be [`put`](Self::put) into a slot.
    ///
    /// # Errors
    ///
    /// Returns [`RejectedReason::Closed`] after the close, and [`RejectedReason::Full`] if all slots are taken.
    #[inline]
    pub(super) fn enter(&self) -> Result<(), RejectedReason> {
        let mut word = self.word.0.load(Ordering::Relaxed);
        loop {
            if Snapshot(word).is_closed() {
                return Err(RejectedReason::Closed);
            }
            if Snapshot(word).waiting() >= self.slots.len() {
                return Err(RejectedReason::Full);
            }
            match self.word.0.compare_exchange_weak(word, word + ONE_WAITING, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => word = now,
            }
        }
    }

    /// Puts an admitted job into a slot. Returns the slot's index.
    #[inline]
    pub(super) fn put(&self, job: Job) -> usize {
        let first = self.next.0.fetch_add(1, Ordering::Relaxed);
        loop {
            // A slot is free. The loop misses it only if its lock is held at that moment.
            for step in 0..self.slots.len() {
                let slot_index = first.wrapping_add(step) % self.slots.len();
                if let Ok(mut slot) = self.slots[slot_index].try_lock()
                    && slot.is_none()
                {
                    *slot = Some(job);
                    return slot_index;
                }
            }
            thread::yield_now();
        }
    }

    /// Takes a job out of its slot. The job counts as waiting until [`begin`](Self::begin) or
    /// [`discard_one`](Self::discard_one) is called for it.
    #[inline]
    pub(super) fn take(&self, slot_index: usize) -> Option<Job> {
        lock(&self.slots[slot_index]).take()
    }

    /// Counts a job that was taken as running.
    #[inline]
    pub(super) fn begin(&self) {
        self.word.0.fetch_add(ONE_RUNNING - ONE_WAITING, Ordering::SeqCst);
    }

    /// Counts a running job as ended.
    #[inline]
    pub(super) fn end(&self) -> Snapshot {
        Snapshot(self.word.0.fetch_sub(ONE_RUNNING, Ordering::SeqCst) - ONE_RUNNING)
    }

    /// Counts a job that was taken and will not run.
    pub(super) fn discard_one(&self) -> Snapshot {
        Snapshot(self.word.0.fetch_sub(ONE_WAITING, Ordering::SeqCst) - ONE_WAITING)
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot(self.word.0.load(Ordering::SeqCst))
    }

    /// Returns the word, and the number of jobs that were put into slots so far. If both are unchanged later, no job was
    /// submitted, begun or ended in between.
    #[cfg(feature = "tokio")]
    pub(super) fn progress(&self) -> (Snapshot, usize) {
        (self.snapshot(), self.next.0.load(Ordering::Relaxed))
    }

    /// Admits no more jobs.
    pub(super) fn close(&self) {
        self.word.0.fetch_or(CLOSED_BIT, Ordering::SeqCst);
    }

    pub(super) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst)
    }

    /// Marks the queue as cut, and calls `discard` for every waiting job.
    pub(super) fn cut(&self, discard: impl Fn(Job)) {
        self.cut.store(true, Ordering::SeqCst);
        (0..self.slots.len()).filter_map(|slot_index| self.take(slot_index)).for_each(discard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> Job {
        Job::new(|| {})
    }

    #[test]
    fn it_is_bounded_and_room_comes_back() {
        let queue = JobQueue::new(2);
        let indices = [0, 1].map(|_| {
            queue.enter().unwrap();
            queue.put(nothing())
        });
        assert_ne!(indices[0], indices[1]);
        assert_eq!(queue.enter(), Err(RejectedReason::Full));
        assert!(queue.take(indices[1]).is_some() && queue.take(indices[1]).is_none());
        assert_eq!(queue.enter(), Err(RejectedReason::Full), "a job that was taken waits until it begins");
        queue.begin();
        assert_eq!((queue.snapshot().waiting(), queue.snapshot().running()), (1, 1));
        queue.enter().unwrap();
        assert_eq!(queue.put(nothing()), indices[1], "the only free slot");
        assert_eq!((queue.end().running(), queue.snapshot().waiting()), (0, 2));
    }

    #[test]
    #[cfg(feature = "tokio")]
    fn a_replaced_job_is_progress() {
        let queue = JobQueue::new(2);
        queue.enter().unwrap();
        let slot_index = queue.put(nothing());
        let before = queue.progress();
        assert_eq!(queue.progress(), before);
        assert!(queue.take(slot_index).is_some());
        queue.begin();
        queue.end();
        queue.enter().unwrap();
        queue.put(nothing());
        assert_eq!(queue.snapshot(), before.0);
        assert_ne!(queue.progress(), before);
    }

    #[test]
    fn a_closed_queue_rejects_jobs_and_still_counts() {
        let queue = JobQueue::new(1);
        queue.enter().unwrap();
        queue.close();
        assert_eq!(queue.enter(), Err(RejectedReason::Closed));
        let slot_index = queue.put(nothing());
        assert_eq!((queue.snapshot().is_closed(), queue.snapshot().waiting()), (true, 1));
        assert!(queue.take(slot_index).is_some());
        queue.begin();
        assert_eq!(
            (queue.snapshot().is_closed(), queue.snapshot().waiting(), queue.snapshot().running()),
            (true, 0, 1)
        );
        assert!(queue.end().is_closed());
    }

    #[test]
    fn a_cut_finds_all_that_waits() {
        let queue = JobQueue::new(5);
        for _ in 0..4 {
            queue.enter().unwrap();
            queue.put(nothing());
        }
        let found = std::cell::Cell::new(0);
        queue.cut(|_| {
            queue.discard_one();
            found.set(found.get() + 1);
        });
        assert_eq!((found.get(), queue.snapshot().waiting(), queue.is_cut()), (4, 0, true));
    }
}
