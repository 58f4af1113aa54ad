//! Where jobs wait: slots, and one word that counts who waits and who runs and says whether the executor is closed.
//!
//! Invariants: a job that was let in is counted as waiting from before it has a slot until after it has left it, so
//! that whoever was let in finds a slot; it leaves once. It moves from waiting to running in one step, so that no look
//! at the word finds it in neither. Once the word says *closed* nothing more is let in.
//!
//! After the *cut*, which a deadline makes, jobs are dropped and not run. Who puts a job into a slot looks for the cut
//! afterwards, and who cuts sweeps the slots afterwards: one of them finds it.
//!
//! Cost of a job: three atomic exchanges on the word, one on the number of the next slot, two uncontended locks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use polyserve_core::sync::lock;
use polyserve_core::{Job, RejectedReason};

pub(super) struct Queue {
    word: Line<AtomicU64>,
    /// Where the next job looks first: in turn, so that it mostly finds the slot that was freed the longest ago.
    next: Line<AtomicUsize>,
    slots: Box<[Mutex<Option<Job>>]>,
    cut: AtomicBool,
}

/// On cache lines of its own.
#[repr(align(128))]
struct Line<T>(T);

const WAITING: u64 = 1;
const RUNNING: u64 = 1 << 32;
const CLOSED: u64 = 1 << 63;

/// The word, as it was at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Look(u64);

impl Look {
    pub(super) fn waiting(self) -> usize {
        usize::try_from(self.0 % RUNNING).expect("at most as many as there are slots")
    }

    pub(super) fn running(self) -> usize {
        usize::try_from(self.0 % CLOSED / RUNNING).expect("at most as many as there are threads")
    }

    pub(super) fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }
}

impl Queue {
    /// Room for `most` jobs that wait, at least one.
    pub(super) fn new(most: usize) -> Self {
        Self {
            word: Line(AtomicU64::new(0)),
            next: Line(AtomicUsize::new(0)),
            slots: (0..most).map(|_| Mutex::new(None)).collect(),
            cut: AtomicBool::new(false),
        }
    }

    /// Lets one job in, which is then to be [`put`](Self::put) somewhere.
    #[inline]
    pub(super) fn enter(&self) -> Result<(), RejectedReason> {
        let mut word = self.word.0.load(Ordering::Relaxed);
        loop {
            if Look(word).is_closed() {
                return Err(RejectedReason::Closed);
            }
            if Look(word).waiting() >= self.slots.len() {
                return Err(RejectedReason::Full);
            }
            match self.word.0.compare_exchange_weak(word, word + WAITING, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => word = now,
            }
        }
    }

    /// Puts a job that was let in into a slot, and answers which.
    #[inline]
    pub(super) fn put(&self, job: Job) -> usize {
        let first = self.next.0.fetch_add(1, Ordering::Relaxed);
        loop {
            // There is a free one; if it is passed by, its lock was held for a moment.
            for step in 0..self.slots.len() {
                let place = first.wrapping_add(step) % self.slots.len();
                if let Ok(mut slot) = self.slots[place].try_lock()
                    && slot.is_none()
                {
                    *slot = Some(job);
                    return place;
                }
            }
            thread::yield_now();
        }
    }

    /// Takes a job out of its slot. It counts as waiting until it is [`begun`](Self::begin) or has
    /// [`left`](Self::leave).
    #[inline]
    pub(super) fn take(&self, place: usize) -> Option<Job> {
        lock(&self.slots[place]).take()
    }

    /// What was taken runs now.
    #[inline]
    pub(super) fn begin(&self) {
        self.word.0.fetch_add(RUNNING - WAITING, Ordering::SeqCst);
    }

    /// What ran has ended.
    #[inline]
    pub(super) fn end(&self) -> Look {
        Look(self.word.0.fetch_sub(RUNNING, Ordering::SeqCst) - RUNNING)
    }

    /// What was taken does not run.
    pub(super) fn leave(&self) -> Look {
        Look(self.word.0.fetch_sub(WAITING, Ordering::SeqCst) - WAITING)
    }

    pub(super) fn look(&self) -> Look {
        Look(self.word.0.load(Ordering::SeqCst))
    }

    /// The word, and how many jobs were put in: both the same later say that nothing was done in between.
    #[cfg(feature = "tokio")]
    pub(super) fn stand(&self) -> (Look, usize) {
        (self.look(), self.next.0.load(Ordering::Relaxed))
    }

    /// Lets nothing more in.
    pub(super) fn close(&self) {
        self.word.0.fetch_or(CLOSED, Ordering::SeqCst);
    }

    pub(super) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst)
    }

    /// Has what is taken from now on dropped unrun; `discard` is given all that waits.
    pub(super) fn cut(&self, discard: impl Fn(Job)) {
        self.cut.store(true, Ordering::SeqCst);
        (0..self.slots.len()).filter_map(|place| self.take(place)).for_each(discard);
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
        let queue = Queue::new(2);
        let places = [0, 1].map(|_| {
            queue.enter().unwrap();
            queue.put(nothing())
        });
        assert_ne!(places[0], places[1]);
        assert_eq!(queue.enter(), Err(RejectedReason::Full));
        assert!(queue.take(places[1]).is_some() && queue.take(places[1]).is_none());
        assert_eq!(queue.enter(), Err(RejectedReason::Full), "a job that was taken waits until it begins");
        queue.begin();
        assert_eq!((queue.look().waiting(), queue.look().running()), (1, 1));
        queue.enter().unwrap();
        assert_eq!(queue.put(nothing()), places[1], "the one slot that is free");
        assert_eq!((queue.end().running(), queue.look().waiting()), (0, 2));
    }

    #[test]
    #[cfg(feature = "tokio")]
    fn another_job_in_the_place_of_one_is_another_stand() {
        let queue = Queue::new(2);
        queue.enter().unwrap();
        let place = queue.put(nothing());
        let before = queue.stand();
        assert_eq!(queue.stand(), before);
        assert!(queue.take(place).is_some());
        queue.begin();
        queue.end();
        queue.enter().unwrap();
        queue.put(nothing());
        assert_eq!(queue.look(), before.0);
        assert_ne!(queue.stand(), before);
    }

    #[test]
    fn a_closed_one_says_so_and_counts_on() {
        let queue = Queue::new(1);
        queue.enter().unwrap();
        queue.close();
        assert_eq!(queue.enter(), Err(RejectedReason::Closed));
        let place = queue.put(nothing());
        assert_eq!((queue.look().is_closed(), queue.look().waiting()), (true, 1));
        assert!(queue.take(place).is_some());
        queue.begin();
        assert_eq!((queue.look().is_closed(), queue.look().waiting(), queue.look().running()), (true, 0, 1));
        assert!(queue.end().is_closed());
    }

    #[test]
    fn a_cut_finds_all_that_waits() {
        let queue = Queue::new(5);
        for _ in 0..4 {
            queue.enter().unwrap();
            queue.put(nothing());
        }
        let found = std::cell::Cell::new(0);
        queue.cut(|_| {
            queue.leave();
            found.set(found.get() + 1);
        });
        assert_eq!((found.get(), queue.look().waiting(), queue.is_cut()), (4, 0, true));
    }
}
