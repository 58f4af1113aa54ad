//! Executors that are wrong in one way each. Each is the same small pool around a lock, with one [`Fault`].

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use polyserve_core::panics::drop_payload;
use polyserve_core::sync::lock;
use polyserve_core::{Executor, Job, Rejected, RejectedReason};

use super::flaws;

flaws! {
    /// The fault of an executor. No fault runs a job twice, because running a job consumes it.
    Fault;

    /// Every 100th job is dropped.
    LosesJobs, caught by every_job_runs_exactly_once;
    /// The submitter runs the job.
    RunsOnCaller, caught by a_job_runs_on_another_thread;
    /// It starts one worker less than it reports.
    OneWorkerShort, caught by jobs_run_in_parallel;
    /// It starts one worker more than it reports.
    OneWorkerTooMany, caught by never_more_than_its_workers;
    /// The latest job runs first.
    ReordersJobs, caught by one_worker_keeps_the_order;
    /// A job runs under the queue's lock.
    RunsUnderLock, caught by jobs_may_submit_jobs;
    /// Every 50th job wakes no worker.
    LosesWakeups, caught by no_lost_wakeup;
    /// A panic ends the worker.
    PanicEndsWorker, caught by a_panicking_job_costs_only_itself;
    /// A panic is not counted.
    DoesNotCountPanics, caught by a_panicking_job_costs_only_itself;
    /// The queue accepts more jobs than its bound.
    IgnoresQueueBound, caught by a_full_queue_hands_the_job_back;
    /// A submitter waits for room.
    WaitsForRoom, caught by a_full_queue_hands_the_job_back;
    /// A full queue drops the rejected job, and returns another job to the submitter.
    DropsRejectedJob, caught by a_full_queue_hands_the_job_back;
    /// The bound of the queue counts all jobs that were ever submitted.
    BoundsAllJobsEverSubmitted, caught by room_comes_back;
    /// Closing drops what was queued.
    DropsQueueOnClose, caught by close_runs_what_was_queued, drop_runs_what_was_queued;
    /// A closed executor accepts jobs.
    TakesJobsAfterClose, caught by close_rejects_later_jobs;
    /// A close may come between a submitter's check and its push.
    ChecksThenPushes, caught by concurrent_closes_lose_nothing,
        a_job_that_races_with_the_close_is_run_once_or_handed_back;
    /// A second close panics.
    SecondClosePanics, caught by close_twice_is_harmless;
    /// A close does not keep its deadline.
    IgnoresDeadline, caught by close_with_a_deadline_reports_a_stuck_thread;
    /// A close does not count a thread that it left behind.
    DoesNotCountStuckThreads, caught by close_with_a_deadline_reports_a_stuck_thread;
    /// Queued jobs still run after the deadline of a close.
    RunsAfterDeadline, caught by close_with_a_deadline_drops_what_is_queued,
        a_worker_that_comes_free_after_the_deadline_runs_nothing_more;
    /// Queued jobs are leaked at the deadline of a close.
    LeaksQueuedJobs, caught by captured_values_are_dropped_exactly_once;
    /// Workers stay when the executor is closed.
    LeaksThreads, caught by drop_joins_the_workers;
    /// A worker that drops its own executor waits for itself.
    JoinsItself, caught by a_job_that_drops_the_last_handle_does_not_deadlock;
    /// A drop waits for threads that a deadline left behind.
    DropsWaitForStuck, caught by a_drop_does_not_wait_for_what_a_deadline_left_behind;
    /// A close after a deadline does not wait for the threads that were left behind.
    ForgetsStuckThreads, caught by a_later_close_may_wait_longer;
    /// A worker that closes its executor waits for another worker that does the same.
    WorkersAwaitEachOther, caught by workers_that_close_their_own_executor_do_not_wait_for_each_other;
    /// A close by a worker drops the queued jobs.
    DropsQueueOnCloseByWorker, caught by what_is_queued_behind_a_workers_close_still_runs;
    /// A panic in the destructor of a panic's payload ends the worker.
    DoesNotCatchPanicsOfPayloads, caught by a_panic_that_panics_as_it_is_dropped_costs_no_worker;
    /// A close drops the queued jobs at its deadline, and does not catch a panic in their destructors.
    DoesNotCatchPanicsOfDroppedJobs, caught by captured_values_that_panic_when_a_deadline_drops_them_are_harmless;
}

/// A small pool, correct or with one fault. With one worker, it runs jobs in order.
pub struct Faulty {
    shared: Arc<Shared>,
}

struct Shared {
    fault: Option<Fault>,
    workers: usize,
    max_queue: usize,
    state: Mutex<FaultyState>,
    /// A job was queued, or the pool closed.
    queued: Condvar,
    /// A worker took a job, ended, or began a close of its own.
    changed: Condvar,
}

#[derive(Default)]
struct FaultyState {
    queue: VecDeque<Job>,
    submitted: usize,
    panicked: u64,
    closed: bool,
    left_behind: bool,
    threads: Vec<FaultyThread>,
}

#[derive(Default)]
struct FaultyThread {
    handle: Option<JoinHandle<()>>,
    is_busy: bool,
    has_ended: bool,
    is_joined: bool,
    is_closing: bool,
}

impl Faulty {
    /// A pool with a fault, or without.
    pub fn new(fault: impl Into<Option<Fault>>, workers: usize, max_queue: usize) -> Self {
        let fault = fault.into();
        let (state, queued, changed) = (Mutex::default(), Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { fault, workers, max_queue, state, queued, changed });
        let number = match fault {
            Some(Fault::OneWorkerShort) => workers - 1,
            Some(Fault::OneWorkerTooMany) => workers + 1,
            _ => workers,
        };
        for index in 0..number {
            let pool = Arc::clone(&shared);
            let mut state = lock(&shared.state);
            let handle = thread::spawn(move || pool.work(index));
            state.threads.push(FaultyThread { handle: Some(handle), ..FaultyThread::default() });
        }
        Self { shared }
    }
}

impl Shared {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn wait<'a>(
        &self,
        condvar: &Condvar,
        state: MutexGuard<'a, FaultyState>,
        timeout: Option<Duration>,
    ) -> MutexGuard<'a, FaultyState> {
        match timeout {
            Some(timeout) => condvar.wait_timeout(state, timeout).unwrap_or_else(PoisonError::into_inner).0,
            None => condvar.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }

    fn work(&self, index: usize) {
        let mut state = lock(&self.state);
        loop {
            let next = if self.has(Fault::ReordersJobs) { state.queue.pop_back() } else { state.queue.pop_front() };
            let Some(job) = next else {
                if state.closed && !self.has(Fault::LeaksThreads) {
                    break;
                }
                state = self.wait(&self.queued, state, None);
                continue;
            };
            state.threads[index].is_busy = true;
            self.changed.notify_all();
            let held = self.has(Fault::RunsUnderLock).then_some(state);
            let result = catch_unwind(AssertUnwindSafe(|| job.run()));
            let has_panicked = result.is_err();
            let payload_panicked = catch_unwind(AssertUnwindSafe(|| drop(result))).map_err(drop_payload).is_err();
            state = held.unwrap_or_else(|| lock(&self.state));
            state.threads[index].is_busy = false;
            if payload_panicked && self.has(Fault::DoesNotCatchPanicsOfPayloads) {
                break;
            }
            if has_panicked {
                state.panicked += u64::from(!self.has(Fault::DoesNotCountPanics));
                if self.has(Fault::PanicEndsWorker) {
                    break;
                }
            }
        }
        state.threads[index].has_ended = true;
        self.changed.notify_all();
    }

    /// Queues a job, or hands it back.
    fn enqueue(&self, job: Job) -> Result<(), Rejected> {
        let mut state = lock(&self.state);
        while self.has(Fault::WaitsForRoom) && state.queue.len() >= self.max_queue && !state.closed {
            state = self.wait(&self.changed, state, None);
        }
        if state.closed && !self.has(Fault::TakesJobsAfterClose) {
            return Err(Rejected { job, reason: RejectedReason::Closed });
        }
        let is_full = match self.fault {
            Some(Fault::IgnoresQueueBound) => false,
            Some(Fault::BoundsAllJobsEverSubmitted) => state.submitted >= self.max_queue + self.workers,
            _ => state.queue.len() >= self.max_queue,
        };
        if is_full {
            let job = if self.has(Fault::DropsRejectedJob) { Job::new(|| {}) } else { job };
            return Err(Rejected { job, reason: RejectedReason::Full });
        }
        state.submitted += 1;
        if self.has(Fault::ChecksThenPushes) && state.submitted.is_multiple_of(16) {
            state = self.simulate_preemption(state);
        }
        if !(self.has(Fault::LosesJobs) && state.submitted.is_multiple_of(100)) {
            state.queue.push_back(job);
        }
        if !(self.has(Fault::LosesWakeups) && state.submitted.is_multiple_of(50)) {
            self.queued.notify_one();
        }
        Ok(())
    }

    /// Waits until the workers have ended, for at most 50 ms. This simulates a submitter that is preempted.
    fn simulate_preemption<'a>(&self, mut state: MutexGuard<'a, FaultyState>) -> MutexGuard<'a, FaultyState> {
        let deadline = Instant::now() + Duration::from_millis(50);
        while Instant::now() < deadline && !state.threads.iter().all(|thread| thread.has_ended) {
            state = self.wait(&self.changed, state, Some(Duration::from_millis(10)));
        }
        state
    }

    fn close(&self, deadline: Option<Instant>) -> usize {
        let deadline = deadline.filter(|_| !self.has(Fault::IgnoresDeadline));
        let mut state = lock(&self.state);
        assert!(!(state.closed && self.has(Fault::SecondClosePanics)), "closed twice");
        state.closed = true;
        self.queued.notify_all();
        self.changed.notify_all();
        if self.has(Fault::DropsQueueOnClose) {
            state.queue.clear();
        }
        if self.has(Fault::LeaksThreads) {
            return 0;
        }
        // The handle of a thread that runs is there.
        let is_me = |handle: &JoinHandle<()>| handle.thread().id() == thread::current().id();
        let me = state.threads.iter().position(|thread| thread.handle.as_ref().is_some_and(is_me));
        let me = me.filter(|_| !self.has(Fault::JoinsItself));
        if me.is_some() && self.has(Fault::DropsQueueOnCloseByWorker) {
            state.queue.clear();
        }
        if state.left_behind && self.has(Fault::ForgetsStuckThreads) {
            return 1;
        }
        self.set_closing(&mut state, me, true);
        let mut is_late = false;
        loop {
            if let Some((index, handle)) = state.take_ended(me) {
                drop(state);
                let _ = handle.join();
                state = lock(&self.state);
                state.threads[index].is_joined = true;
                self.changed.notify_all();
                continue;
            }
            if !is_late && deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                is_late = true;
                state = self.drop_queued(state);
                continue;
            }
            let awaits = |index: usize, thread: &FaultyThread| {
                let waits_for_me =
                    Some(index) == me || (me.is_some() && thread.is_closing && !self.has(Fault::WorkersAwaitEachOther));
                !(thread.is_joined || waits_for_me || (is_late && thread.is_busy))
            };
            if !state.threads.iter().enumerate().any(|(index, thread)| awaits(index, thread)) {
                break;
            }
            let timeout = deadline.filter(|_| !is_late).map(|d| d.saturating_duration_since(Instant::now()));
            state = self.wait(&self.changed, state, timeout);
        }
        self.set_closing(&mut state, me, false);
        state.left_behind |= is_late;
        let left = state.threads.iter().filter(|thread| !thread.is_joined).count();
        if self.has(Fault::DoesNotCountStuckThreads) { 0 } else { left }
    }

    /// Drops the queued jobs after the deadline, without the lock.
    fn drop_queued<'a>(&'a self, mut state: MutexGuard<'a, FaultyState>) -> MutexGuard<'a, FaultyState> {
        if self.has(Fault::RunsAfterDeadline) {
            return state;
        }
        let queued = std::mem::take(&mut state.queue);
        drop(state);
        if self.has(Fault::LeaksQueuedJobs) {
            std::mem::forget(queued);
        } else if self.has(Fault::DoesNotCatchPanicsOfDroppedJobs) {
            queued.into_iter().for_each(drop);
        } else {
            for job in queued {
                let _ = catch_unwind(AssertUnwindSafe(|| drop(job))).map_err(drop_payload);
            }
        }
        lock(&self.state)
    }

    fn set_closing(&self, state: &mut FaultyState, me: Option<usize>, is_closing: bool) {
        if let Some(me) = me {
            state.threads[me].is_closing = is_closing;
            self.changed.notify_all();
        }
    }
}

impl FaultyState {
    fn take_ended(&mut self, me: Option<usize>) -> Option<(usize, JoinHandle<()>)> {
        let mut ended =
            self.threads.iter_mut().enumerate().filter(|(index, thread)| thread.has_ended && Some(*index) != me);
        ended.find_map(|(index, thread)| thread.handle.take().map(|handle| (index, handle)))
    }
}

impl Executor for Faulty {
    fn execute(&self, job: Job) -> Result<(), Rejected> {
        if self.shared.has(Fault::RunsOnCaller) {
            job.run();
            return Ok(());
        }
        self.shared.enqueue(job)
    }

    fn workers(&self) -> Option<usize> {
        Some(self.shared.workers)
    }

    fn close(&self, deadline: Option<Instant>) -> usize {
        self.shared.close(deadline)
    }

    fn panicked(&self) -> u64 {
        lock(&self.shared.state).panicked
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        let left_behind = lock(&self.shared.state).left_behind && !self.shared.has(Fault::DropsWaitForStuck);
        self.shared.close(left_behind.then(Instant::now));
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty").field("fault", &self.shared.fault).finish_non_exhaustive()
    }
}
