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
//! Cost of a job: an atomic exchange to admit it, two to count it as begun and as ended, two uncontended locks.

use std::sync::{Arc, Mutex};
use std::thread;

use polyserve_core::RejectedReason;
use polyserve_core::sync::lock;
use polyserve_serving::executor::{Admission, PoolShared, QueuedJob};

/// The waiting jobs of one executor.
pub(super) struct JobQueue {
    admission: Admission,
    slots: Box<[Mutex<Option<QueuedJob>>]>,
    shared: Arc<PoolShared>,
}

/// The counts of the jobs at one moment. If they are unchanged later, no job was submitted, begun or ended in between.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct JobCounts {
    pub(super) waiting: u64,
    pub(super) running: u64,
    pub(super) ended: u64,
}

impl JobQueue {
    /// A queue with `capacity` slots, at least one.
    pub(super) fn new(capacity: usize, shared: &Arc<PoolShared>) -> Self {
        Self {
            admission: Admission::new(Some(capacity)),
            slots: (0..capacity).map(|_| Mutex::new(None)).collect(),
            shared: Arc::clone(shared),
        }
    }

    /// Admits one job, which must then be [`put`](Self::put) into a slot with the returned number.
    ///
    /// # Errors
    ///
    /// Returns [`RejectedReason::Closed`] after the close, and [`RejectedReason::Full`] if all slots are taken.
    #[inline]
    pub(super) fn enter(&self) -> Result<u64, RejectedReason> {
        self.admission.admit(|| self.shared.taken())
    }

    /// Puts an admitted job into a slot. Returns the slot's index.
    ///
    /// Jobs try the slots in turn, so the first slot that a job tries has usually been free for longest.
    #[inline]
    pub(super) fn put(&self, admitted: u64, queued: QueuedJob) -> usize {
        let count = self.slots.len();
        let first = usize::try_from(admitted % count as u64).expect("less than the number of slots");
        loop {
            // A slot is free. The loop misses it only if its lock is held at that moment.
            for slot_index in (first..count).chain(0..first) {
                if let Ok(mut slot) = self.slots[slot_index].try_lock()
                    && slot.is_none()
                {
                    *slot = Some(queued);
                    return slot_index;
                }
            }
            thread::yield_now();
        }
    }

    /// Takes a job out of its slot. The job must then be run, discarded, or withdrawn.
    #[inline]
    pub(super) fn take(&self, slot_index: usize) -> Option<QueuedJob> {
        lock(&self.slots[slot_index]).take()
    }

    /// Takes all jobs out of their slots.
    pub(super) fn take_all(&self) -> impl Iterator<Item = QueuedJob> {
        (0..self.slots.len()).filter_map(|slot_index| self.take(slot_index))
    }

    /// Admits no more jobs.
    pub(super) fn close(&self) {
        self.admission.close();
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.admission.is_closed()
    }

    #[inline]
    pub(super) fn waiting(&self) -> u64 {
        self.admission.waiting(|| self.shared.taken())
    }

    /// Returns the counts. Once no job waits in the closed queue, the number of running jobs is exact: it is read last.
    pub(super) fn progress(&self) -> JobCounts {
        let waiting = self.waiting();
        JobCounts { waiting, running: self.shared.running(), ended: self.shared.ended() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use polyserve_core::Job;
    use polyserve_serving::executor::PoolConfig;

    use super::*;

    /// A queue, and the function that runs a job.
    fn queue(capacity: usize) -> (Arc<JobQueue>, Arc<PoolShared>) {
        let shared = PoolShared::new(PoolConfig::new(2), 1).unwrap();
        (Arc::new(JobQueue::new(capacity, &shared)), shared)
    }

    /// Queues a job that calls `work`. Returns the index of its slot.
    fn waits(queue: &JobQueue, work: impl FnOnce() + Send + 'static) -> usize {
        let admitted = queue.enter().unwrap();
        queue.put(admitted, queue.shared.queued(Job::new(work)))
    }

    fn counts(progress: JobCounts) -> (u64, u64) {
        (progress.waiting, progress.running)
    }

    #[test]
    fn it_is_bounded_and_room_comes_back() {
        let (queue, shared) = queue(2);
        let (sender, receiver) = mpsc::channel();
        let its_queue = Arc::clone(&queue);
        let first = waits(&queue, || {});
        let second = waits(&queue, move || {
            sender.send((counts(its_queue.progress()), waits(&its_queue, || {}))).unwrap();
        });
        assert_ne!(first, second);
        assert_eq!(queue.enter(), Err(RejectedReason::Full));
        let taken = queue.take(second).unwrap();
        assert!(queue.take(second).is_none());
        assert_eq!(queue.enter(), Err(RejectedReason::Full), "a job that was taken waits until it begins");
        shared.run_shared(taken);
        assert_eq!(receiver.recv(), Ok(((1, 1), second)), "the counts, and the only free slot");
        assert_eq!(counts(queue.progress()), (2, 0));
    }

    #[test]
    fn a_replaced_job_is_progress() {
        let (queue, shared) = queue(2);
        let slot_index = waits(&queue, || {});
        let before = queue.progress();
        assert_eq!(queue.progress(), before);
        shared.run_shared(queue.take(slot_index).unwrap());
        waits(&queue, || {});
        assert_eq!(counts(queue.progress()), counts(before));
        assert_ne!(queue.progress(), before);
    }

    #[test]
    fn a_closed_queue_rejects_jobs_and_still_counts() {
        let (queue, shared) = queue(1);
        let (sender, receiver) = mpsc::channel();
        let its_queue = Arc::clone(&queue);
        let admitted = queue.enter().unwrap();
        queue.close();
        assert_eq!(queue.enter(), Err(RejectedReason::Closed));
        let job = Job::new(move || sender.send(counts(its_queue.progress())).unwrap());
        let slot_index = queue.put(admitted, shared.queued(job));
        assert_eq!((queue.is_closed(), queue.waiting()), (true, 1));
        shared.run_shared(queue.take(slot_index).unwrap());
        assert_eq!(receiver.recv(), Ok((0, 1)));
        assert_eq!((queue.is_closed(), counts(queue.progress())), (true, (0, 0)));
    }

    #[test]
    fn a_cut_finds_all_that_waits() {
        let (queue, shared) = queue(5);
        for _ in 0..4 {
            waits(&queue, || {});
        }
        assert_eq!(queue.take_all().map(|queued| shared.discard(queued)).count(), 4);
        assert_eq!(queue.waiting(), 0);
    }
}
