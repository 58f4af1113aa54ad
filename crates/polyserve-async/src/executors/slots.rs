//! The slots in which the jobs of a runtime's executor wait.
//!
//! Invariants:
//!
//! * A job is admitted before it is put into a slot, and counts as waiting until it begins, after it was taken out. So every
//!   admitted job finds a free slot.
//! * A job is taken out of its slot once.
//!
//! When a deadline passes, the executor is *cut*: from then on jobs are dropped and not run. A submitter puts its job into
//! a slot, and then checks for the cut. The thread that cuts sets the flag, and then empties the slots. So one of the
//! two finds the job.
//!
//! Cost of a job: an atomic exchange to admit it, two to count it as begun and as ended, two uncontended locks. Each slot takes
//! some 32 bytes from the start.

use std::sync::Mutex;
use std::thread;

use polyserve_core::Job;
use polyserve_core::sync::lock;

/// The slots of one executor.
pub(super) struct Slots(Box<[Mutex<Option<Job>>]>);

impl Slots {
    /// Free slots: `capacity`, at least one.
    pub(super) fn new(capacity: usize) -> Self {
        Self((0..capacity).map(|_| Mutex::new(None)).collect())
    }

    /// Puts a job into a slot. `admitted`: the result of its admission. Returns the slot's index.
    ///
    /// Jobs try the slots in turn, so the first slot that a job tries has usually been free for longest.
    #[inline]
    pub(super) fn put(&self, admitted: u64, job: Job) -> usize {
        let count = self.0.len();
        let first = usize::try_from(admitted % count as u64).expect("less than the number of slots");
        loop {
            // A slot is free. The loop misses it only if its lock is held at that moment.
            for slot_index in (first..count).chain(0..first) {
                if let Ok(mut slot) = self.0[slot_index].try_lock()
                    && slot.is_none()
                {
                    *slot = Some(job);
                    return slot_index;
                }
            }
            thread::yield_now();
        }
    }

    /// Takes a job out of its slot. The job must then be run, discarded, or withdrawn.
    #[inline]
    pub(super) fn take(&self, slot_index: usize) -> Option<Job> {
        lock(&self.0[slot_index]).take()
    }

    /// Takes all jobs out of their slots.
    pub(super) fn take_all(&self) -> impl Iterator<Item = Job> {
        (0..self.0.len()).filter_map(|slot_index| self.take(slot_index))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use polyserve_core::RejectedReason;
    use polyserve_serving::executor::{JobCounts, PoolConfig, PoolShared};

    use super::*;

    fn slots(capacity: usize) -> (Arc<Slots>, Arc<PoolShared>) {
        (Arc::new(Slots::new(capacity)), PoolShared::new(PoolConfig::new(2).queue(capacity), 1).unwrap())
    }

    /// Queues a job that calls `work`. Returns the index of its slot.
    fn waits(slots: &Slots, shared: &PoolShared, work: impl FnOnce() + Send + 'static) -> usize {
        let admitted = shared.admit().unwrap();
        slots.put(admitted, Job::new(work))
    }

    fn counts(counts: JobCounts) -> (u64, u64) {
        (counts.waiting, counts.running)
    }

    #[test]
    fn it_is_bounded_and_room_comes_back() {
        let (slots, shared) = slots(2);
        let (sender, receiver) = mpsc::channel();
        let (its_slots, its_shared) = (Arc::clone(&slots), Arc::clone(&shared));
        let first = waits(&slots, &shared, || {});
        let second = waits(&slots, &shared, move || {
            sender.send((counts(its_shared.counts()), waits(&its_slots, &its_shared, || {}))).unwrap();
        });
        assert_ne!(first, second);
        assert_eq!(shared.admit(), Err(RejectedReason::Full));
        let taken = slots.take(second).unwrap();
        assert!(slots.take(second).is_none());
        assert_eq!(shared.admit(), Err(RejectedReason::Full), "a job that was taken waits until it begins");
        shared.run_shared(taken);
        assert_eq!(receiver.recv(), Ok(((1, 1), second)), "the counts, and the only free slot");
        assert_eq!(counts(shared.counts()), (2, 0));
    }

    #[test]
    fn a_replaced_job_is_progress() {
        let (slots, shared) = slots(2);
        let slot_index = waits(&slots, &shared, || {});
        let before = shared.counts();
        assert_eq!(shared.counts(), before);
        shared.run_shared(slots.take(slot_index).unwrap());
        waits(&slots, &shared, || {});
        assert_eq!(counts(shared.counts()), counts(before));
        assert_ne!(shared.counts(), before);
    }

    #[test]
    fn a_closed_queue_rejects_jobs_and_still_counts() {
        let (slots, shared) = slots(1);
        let (sender, receiver) = mpsc::channel();
        let its_shared = Arc::clone(&shared);
        let admitted = shared.admit().unwrap();
        shared.close_queue();
        assert_eq!(shared.admit(), Err(RejectedReason::Closed));
        let job = Job::new(move || sender.send(counts(its_shared.counts())).unwrap());
        let slot_index = slots.put(admitted, job);
        assert_eq!((shared.is_closed(), shared.waiting()), (true, 1));
        shared.run_shared(slots.take(slot_index).unwrap());
        assert_eq!(receiver.recv(), Ok((0, 1)));
        assert_eq!((shared.is_closed(), counts(shared.counts())), (true, (0, 0)));
    }

    #[test]
    fn a_cut_finds_all_that_waits() {
        let (slots, shared) = slots(5);
        for _ in 0..4 {
            waits(&slots, &shared, || {});
        }
        assert_eq!(slots.take_all().map(|job| shared.discard(job)).count(), 4);
        assert_eq!(shared.waiting(), 0);
    }
}
