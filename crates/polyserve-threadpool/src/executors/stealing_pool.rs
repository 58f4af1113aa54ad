//! [`StealingPool`]: a queue for each worker, one for jobs from outside, and theft.
//!
//! A job that a worker submits goes to that worker's own queue, any other to the *injector*. A worker takes from its
//! own queue; when that is empty it takes a batch from the injector, and when that is empty too it steals half of
//! another's queue. All queues are first in, first out. Every fourth job a worker moves a batch over from the injector
//! even though it has jobs of its own, so that workers that feed themselves do not starve the outside.
//!
//! # Why no job is left lying
//!
//! A worker is *searching* (it looks for a job), *busy* (it has found one) or *asleep*. Three steps are sequentially
//! consistent: a submitter counts its job in the gate (1), queues it, then reads the state (2); a searching worker that
//! finds nothing takes itself off the state (3), then reads the gate's count and sleeps only where every job that was
//! counted was taken. Now take any job, and what its submitter read in (2):
//!
//! * *Nobody searches and somebody sleeps.* The submitter wakes one worker, which searches.
//! * *Somebody searches.* That worker's next step on the state comes after (2), so after (1). Is it (3), the worker
//!   reads a count with this job in it, and stays up while the job is not taken. Is it that it found a job, and it was
//!   the last to search, it reads the same count, and wakes another while there is more to do.
//! * *All are awake, and busy.* Each must search before it sleeps; the same holds for its next step.
//!
//! So while a job waits, a worker searches or all are busy. A worker that is woken counts as searching from that moment
//! on, by its waker's hand, so that a burst of jobs wakes one worker, which wakes the next: as many as there is work
//! for. A closed gate never counts as quiet: nobody falls asleep after the close, and the close wakes those who are.
//!
//! A searching worker yields its core a few times, then sleeps. It stays up without a job only while a submitter is
//! between (1) and its push, or another worker between its take and its count: a few instructions.
//!
//! Invariant: a job is in one queue, or in one worker's hand; what is queued in all of them together is within the
//! bound.
//!
//! Cost of a job: a compare-and-swap on the gate, a push, a read of the state; a pop and a count at its worker, and a
//! steal for every batch of up to 32. Memory: 64 slots a worker, growing; the injector allocates a block for 63 jobs.
//!
//! *Wins when* jobs submit jobs, or many cores take short ones: workers meet at the injector once a batch. *Loses when*
//! order matters across workers; with a single submitter outside, where in the bench `executors` a job of one word
//! takes 1.5 times what it takes `CrossbeamPool` (0.8 of `rayon::spawn`); and where jobs are few and long: then any
//! queue will do, and this is the most code.
//!
//! Source: the deque of Chase and Lev and the injector, from `crossbeam-deque`; searching workers as in Go's scheduler
//! and tokio's.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use polyserve_core::sync::{thread, thread_local};
use polyserve_core::{Executor, Job, Rejected};

use super::base::{Base, Refused};
use super::gate::Gate;
use super::pool_config::{PoolConfig, Queue};
use super::sleep::Sleep;
use super::stats::{PoolStats, Queued};
use crate::sync::deque::{Injector, Steal, Stealer, Worker};

/// A fixed number of threads with a queue each, that steal from one another. See the module's source for how it works,
/// and [`executors`](crate::executors) for what it promises.
///
/// Jobs from one submitter outside the pool start in their order; so do those that one job submits, unless they are
/// stolen.
pub struct StealingPool {
    shared: Arc<Shared>,
}

struct Shared {
    base: Base,
    gate: Gate,
    sleep: Sleep,
    injector: Injector<Queued>,
    /// The thieves' ends of the workers' queues.
    stealers: Box<[Stealer<Queued>]>,
}

/// How many times a worker that finds nothing yields its core before it sleeps.
const YIELDS: u32 = 3;

/// After how many jobs a worker looks into the injector although its own queue is not empty.
const INJECTOR_TURN: u32 = 4;

thread_local! {
    /// Of which pool this thread is a worker: the address of its `Shared`, which lives as long as the worker does; or
    /// 0.
    static POOL: Cell<usize> = const { Cell::new(0) };
    /// That worker's queue.
    static LOCAL: RefCell<Option<Rc<Worker<Queued>>>> = const { RefCell::new(None) };
}

impl StealingPool {
    /// Starts the pool.
    ///
    /// # Errors
    ///
    /// Where the configuration is not valid, or a thread cannot be started; the threads that were are ended.
    pub fn new(config: PoolConfig) -> io::Result<Self> {
        let base = Base::new(config)?;
        let workers = base.config.workers;
        let gate = Gate::new(match base.config.queue {
            Queue::Bounded(most) => Some(most),
            Queue::Unbounded => None,
        });
        let locals: Vec<Worker<Queued>> = (0..workers).map(|_| Worker::new_fifo()).collect();
        let stealers = locals.iter().map(Worker::stealer).collect();
        let (sleep, injector) = (Sleep::new(workers), Injector::new());
        let pool = Self { shared: Arc::new(Shared { base, gate, sleep, injector, stealers }) };
        for (worker, local) in locals.into_iter().enumerate() {
            let shared = Arc::clone(&pool.shared);
            // On failure the drop of `pool` ends the others.
            pool.shared.base.start(move || shared.work(worker, local))?;
        }
        Ok(pool)
    }

    /// What the pool has done so far. Cost: reads every worker's counts.
    pub fn stats(&self) -> PoolStats {
        self.shared.base.tallies.stats(self.shared.waiting())
    }
}

impl Shared {
    fn work(&self, worker: usize, local: Worker<Queued>) {
        let local = Rc::new(local);
        POOL.with(|pool| pool.set(self.address()));
        LOCAL.with(|own| own.replace(Some(Rc::clone(&local))));
        let mut searching = true; // as `Sleep::new` has it
        let (mut yields, mut turn) = (0, 0);
        loop {
            if let Some(queued) = self.next(worker, &local, &mut turn) {
                if searching {
                    (searching, yields) = (false, 0);
                    // More than one: the job in hand is not counted as taken yet.
                    if self.sleep.found() && self.waiting() > 1 {
                        self.sleep.wake_one();
                    }
                }
                self.base.run(worker, queued);
                continue;
            }
            if !searching {
                searching = true;
                self.sleep.search();
            }
            if self.gate.is_spent(|| self.base.tallies.taken()) {
                break;
            }
            let sleeps =
                yields == YIELDS && self.sleep.sleep(worker, || self.gate.is_quiet(|| self.base.tallies.taken()));
            if sleeps {
                yields = 0;
            } else {
                yields = YIELDS.min(yields + 1);
                thread::yield_now();
            }
        }
        POOL.with(|pool| pool.set(0));
        LOCAL.with(RefCell::take);
    }

    /// The next job of a worker.
    #[inline]
    fn next(&self, worker: usize, local: &Worker<Queued>, turn: &mut u32) -> Option<Queued> {
        *turn += 1;
        if *turn == INJECTOR_TURN {
            *turn = 0;
            // To the end of its own queue, so that the order stays. Met by another thief, it tries in its next turn.
            let _ = self.injector.steal_batch(local);
        }
        local.pop().or_else(|| self.steal(worker, local))
    }

    /// Collecting thefts ends with the first that succeeds.
    #[cold]
    fn steal(&self, worker: usize, local: &Worker<Queued>) -> Option<Queued> {
        let (before, after) = (&self.stealers[..worker], &self.stealers[worker + 1..]);
        persist(|| {
            self.injector
                .steal_batch_and_pop(local)
                .or_else(|| after.iter().chain(before).map(|victim| victim.steal_batch_and_pop(local)).collect())
        })
    }

    #[inline]
    fn offer(&self, queued: Queued) -> Result<(), Refused> {
        if let Err(reason) = self.gate.enter(|| self.base.tallies.taken()) {
            return Err(Refused { queued, reason });
        }
        if POOL.with(Cell::get) == self.address() {
            LOCAL.with(|local| match &*local.borrow() {
                Some(local) => local.push(queued),
                None => self.injector.push(queued),
            });
        } else {
            self.injector.push(queued);
        }
        self.sleep.job_queued();
        Ok(())
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn waiting(&self) -> u64 {
        self.gate.waiting(|| self.base.tallies.taken())
    }

    /// Drops what is queued, wherever it is; a stuck worker's queue too.
    fn discard(&self) {
        // A submitter that was let in just before the close may still be about to push.
        while self.waiting() > 0 {
            let queued =
                persist(|| self.injector.steal().or_else(|| self.stealers.iter().map(Stealer::steal).collect()));
            match queued {
                Some(queued) => self.base.tallies.discard(queued),
                None => thread::yield_now(),
            }
        }
    }
}

/// Steals until it succeeds or there is nothing: `Retry` says that another was quicker.
fn persist(steal: impl Fn() -> Steal<Queued>) -> Option<Queued> {
    loop {
        match steal() {
            Steal::Success(queued) => return Some(queued),
            Steal::Empty => return None,
            Steal::Retry => std::hint::spin_loop(),
        }
    }
}

impl Executor for StealingPool {
    fn execute(&self, job: Job) -> Result<(), Rejected> {
        self.shared.base.submit(job, |queued| self.shared.offer(queued))
    }

    fn workers(&self) -> Option<usize> {
        Some(self.shared.base.config.workers)
    }

    fn close(&self, deadline: Option<Instant>) -> usize {
        self.shared.gate.close();
        self.shared.sleep.wake_all();
        self.shared.base.close(deadline, || self.shared.discard())
    }

    fn panicked(&self) -> u64 {
        self.shared.base.tallies.panicked()
    }

    fn may_wait(&self) -> bool {
        self.shared.base.config.may_wait()
    }
}

impl Drop for StealingPool {
    fn drop(&mut self) {
        self.close(self.shared.base.drop_deadline());
    }
}

impl fmt::Debug for StealingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StealingPool").field("config", &self.shared.base.config).finish_non_exhaustive()
    }
}
