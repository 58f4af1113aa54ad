//! [`StealingPool`]: a queue for each worker, one queue for jobs from outside, and work stealing.
//!
//! A job that a worker submits goes to that worker's own queue. Any other job goes to the *injector*. A worker takes from
//! its own queue. If that is empty, it takes a batch from the injector. If that is empty too, it steals half of another
//! worker's queue. All queues are first in, first out. Before every fourth job a worker moves a batch from the injector
//! to its own queue, even if it has jobs of its own. So jobs that submit further jobs do not starve jobs from
//! outside.
//!
//! # Why no job stays in a queue while a worker sleeps
//!
//! A worker is *searching* (it looks for a job), *busy* (it has found one) or *asleep*. These steps are sequentially
//! consistent:
//!
//! * A submitter counts its job in the admission count (1), queues it, and then reads the state (2).
//! * A searching worker that finds nothing removes itself from the state (3). Then it reads the admission count, and
//!   sleeps only if every counted job was taken.
//!
//! Take any job, and what its submitter read in (2):
//!
//! * *No worker searches and one sleeps.* The submitter wakes one worker, which searches.
//! * *A worker searches.* That worker's next step on the state comes after (2), so after (1). If that step is (3), the
//!   worker reads a count that includes this job, and stays awake until the job is taken. If it has found a job and was
//!   the last to search, it reads the same count, and wakes another worker if there are more jobs.
//! * *All workers are awake and busy.* Each must search before it sleeps. The previous case applies to its next step.
//!
//! So while a job waits, a worker searches or all workers are busy. The thread that wakes a worker counts it as searching
//! at that moment. So a burst of jobs wakes one worker, which wakes the next, up to the number of jobs. A closed pool
//! never counts as open and empty: no worker falls asleep after the close, and the close wakes those that sleep.
//!
//! A searching worker yields its core a few times, then sleeps. It stays awake without a job only while a submitter is
//! between (1) and its push, or another worker between its take and its count: a few instructions.
//!
//! Invariants: a job is in one queue or held by one worker. All queues together hold at most the bound.
//!
//! Cost of a job: a compare-and-swap on the admission count, a push and a read of the state by its submitter; a pop and a
//! count by its worker, and a steal for every batch of up to 32 jobs. Memory: 64 slots for each worker, growing; the
//! injector allocates a block for 63 jobs.
//!
//! Source: the deque of Chase and Lev and the injector, from `crossbeam-deque`; searching workers as in Go's scheduler
//! and tokio's.
//!
//! *Wins when* jobs submit jobs, or many cores take short jobs, because workers meet at the injector once a batch. No
//! record measures that. From one submitter outside, on one core, a job of one word takes less time than on rayon,
//! which steals too. *Loses when* the only submitter is outside: such a job takes longer than on `CrossbeamPool`. With
//! tasks of a second all executors are close (`docs/EXPERIMENTS.md`). Record: `docs/STRATEGIES.md`, "Executors for CPU
//! work".

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use polyserve_core::sync::{thread, thread_local};
use polyserve_core::{Job, Rejected};
use polyserve_serving::executor::{Backend, Pool, PoolInner, PoolShared};

use super::sleep::Sleep;
use crate::sync::deque::{Injector, Steal, Stealer, Worker};

/// A pool with a fixed number of threads. Each has a queue, and steals from the others' queues.
///
/// Jobs from one submitter outside the pool start in order. Jobs that one job submits do too, unless they are stolen. The
/// module's source explains how it works. The [crate](crate#what-every-pool-promises) lists what it promises.
pub type StealingPool = Pool<StealingQueues>;

/// The queues of all workers, and that of jobs from outside.
pub struct StealingQueues {
    sleep: Sleep,
    injector: Injector<Job>,
    /// The stealing ends of the workers' queues.
    stealers: Box<[Stealer<Job>]>,
}

/// How many times a worker without a job yields its core before it sleeps.
const YIELDS_BEFORE_SLEEP: u32 = 3;

/// A worker takes a batch from the injector before every job of this number, even if its own queue is not empty.
const INJECTOR_INTERVAL: u32 = 4;

thread_local! {
    /// The queue of this worker thread.
    static LOCAL: RefCell<Option<Rc<Worker<Job>>>> = const { RefCell::new(None) };
}

impl Backend for StealingQueues {
    const NAME: &'static str = "StealingPool";

    type Own = Worker<Job>;

    fn new(shared: &Arc<PoolShared>) -> io::Result<(Self, Vec<Self::Own>)> {
        let locals: Vec<Self::Own> = (0..shared.config.workers).map(|_| Worker::new_fifo()).collect();
        let stealers = locals.iter().map(Worker::stealer).collect();
        Ok((Self { sleep: Sleep::new(locals.len()), injector: Injector::new(), stealers }, locals))
    }

    fn work(&self, shared: &PoolShared, worker: usize, local: Self::Own) {
        let local = Rc::new(local);
        LOCAL.with(|own| own.replace(Some(Rc::clone(&local))));
        let mut searching = true; // `Sleep::new` counts it so
        let (mut yields, mut job_count) = (0, 0);
        loop {
            if let Some(job) = self.next(worker, &local, &mut job_count) {
                if searching {
                    (searching, yields) = (false, 0);
                    // This worker's job is not counted as taken yet, so more than one must be waiting.
                    if self.sleep.found_job() && shared.waiting() > 1 {
                        self.sleep.wake_one();
                    }
                }
                shared.run(worker, job);
                continue;
            }
            if !searching {
                searching = true;
                self.sleep.begin_search();
            }
            if shared.is_closed_and_empty() {
                break;
            }
            let slept = yields == YIELDS_BEFORE_SLEEP && self.sleep.sleep(worker, || shared.is_open_and_empty());
            if slept {
                yields = 0;
            } else {
                yields = YIELDS_BEFORE_SLEEP.min(yields + 1);
                thread::yield_now();
            }
        }
        LOCAL.with(RefCell::take);
    }

    #[inline]
    fn offer(pool: &Arc<PoolInner<Self>>, job: Job) -> Result<(), Rejected> {
        let PoolInner { shared, backend: Self { sleep, injector, .. } } = &**pool;
        if let Err(reason) = shared.admit() {
            return Err(Rejected { job, reason });
        }
        if shared.threads.is_own() {
            LOCAL.with(|local| match &*local.borrow() {
                Some(local) => local.push(job),
                None => injector.push(job),
            });
        } else {
            injector.push(job);
        }
        sleep.job_queued();
        Ok(())
    }

    fn close(&self, _: &PoolShared) {
        self.sleep.wake_all();
    }

    /// Drops all queued jobs, including those in the queue of a stuck worker.
    fn discard(&self, shared: &PoolShared) {
        // A submitter that was admitted just before the close may not have pushed yet.
        while shared.waiting() > 0 {
            let job =
                retry_steal(|| self.injector.steal().or_else(|| self.stealers.iter().map(Stealer::steal).collect()));
            match job {
                Some(job) => shared.discard(job),
                None => thread::yield_now(),
            }
        }
    }
}

impl StealingQueues {
    /// The next job of a worker.
    #[inline]
    fn next(&self, worker: usize, local: &Worker<Job>, job_count: &mut u32) -> Option<Job> {
        *job_count += 1;
        if *job_count == INJECTOR_INTERVAL {
            *job_count = 0;
            // Moves a batch to the end of this worker's queue, which keeps the order. If another thief interferes, the
            // worker tries again next time.
            let _ = self.injector.steal_batch(local);
        }
        local.pop().or_else(|| self.steal(worker, local))
    }

    /// Steals from the injector, then from the other workers, until a theft succeeds.
    #[cold]
    fn steal(&self, worker: usize, local: &Worker<Job>) -> Option<Job> {
        let (before, after) = (&self.stealers[..worker], &self.stealers[worker + 1..]);
        retry_steal(|| {
            self.injector
                .steal_batch_and_pop(local)
                .or_else(|| after.iter().chain(before).map(|victim| victim.steal_batch_and_pop(local)).collect())
        })
    }
}

/// Repeats `steal` while it returns `Retry`, which means that another thief interfered.
fn retry_steal(steal: impl Fn() -> Steal<Job>) -> Option<Job> {
    loop {
        match steal() {
            Steal::Success(job) => return Some(job),
            Steal::Empty => return None,
            Steal::Retry => std::hint::spin_loop(),
        }
    }
}
