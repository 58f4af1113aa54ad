//! The executor kit: the requirements for every [`Executor`].
//!
//! A property waits for an event up to the subject's max wait, and fails if the event does not happen. No speed is
//! measured, and no sleep replaces an event. For events that must *not* happen (one more running job than there are
//! workers) the kit waits a tenth of a second. A correct executor cannot fail this check. A wrong one may pass it in rare
//! cases.
//!
//! An executor that hangs is left behind with its threads, so that the next property still runs.
//!
//! # For authors of executors
//!
//! One macro call in a test file makes each property a test. A subject declares how its executors differ, and the kit
//! tests the declaration:
//!
//! ```
//! use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
//! use std::sync::{Arc, Condvar, Mutex};
//! use std::time::Instant;
//!
//! use polyserve_conformance::executor::ExecutorSubject;
//! use polyserve_core::{Executor, Job, Rejected, RejectedReason};
//!
//! /// Runs each job at once, on a thread of its own.
//! #[derive(Debug, Default)]
//! struct ThreadPerJob {
//!     closed: AtomicBool,
//!     panicked: Arc<AtomicU64>,
//!     // ... and the threads, which `close` is to join
//! }
//!
//! impl Executor for ThreadPerJob {
//!     fn execute(&self, job: Job) -> Result<(), Rejected> {
//!         if self.closed.load(Ordering::SeqCst) {
//!             return Err(Rejected { job, reason: RejectedReason::Closed });
//!         }
//!         let panicked = Arc::clone(&self.panicked);
//!         std::thread::spawn(move || {
//!             if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job.run())).is_err() {
//!                 panicked.fetch_add(1, Ordering::SeqCst);
//!             }
//!         });
//!         Ok(())
//!     }
//! #   fn workers(&self) -> Option<usize> { None }
//! #   fn close(&self, _deadline: Option<Instant>) -> usize { self.closed.store(true, Ordering::SeqCst); 0 }
//! #   fn panicked(&self) -> u64 { self.panicked.load(Ordering::SeqCst) }
//!     // ...
//! }
//!
//! polyserve_conformance::executor_conformance!(
//!     thread_per_job,
//!     ExecutorSubject::new(|_workers, _queue| Box::new(ThreadPerJob::default())).unbounded_workers()
//! );
//! # use polyserve_conformance::executor;
//! # use polyserve_conformance::property::{Outcome, named};
//! # let subject = ExecutorSubject::new(|_workers, _queue| Box::new(ThreadPerJob::default())).unbounded_workers();
//! # assert_eq!((named(executor::PROPERTIES, "a_job_runs_on_another_thread").run)(&subject), Outcome::Held);
//! ```
//!
//! # Layout
//!
//! * `running`: jobs run once, in parallel and in order, and a panic affects no other job.
//! * `refusing`: a full queue, and a queue that has space again.
//! * `closing`: the effect of a close on queued jobs, threads and captured values.
//! * `close_edges`: closing after a deadline, from a worker, against submitters, and with destructors that panic.
//! * `pool`: the executor that a property tests, with a time limit for every call.

mod close_edges;
mod closing;
mod pool;
mod refusing;
mod running;

use std::time::Duration;

use polyserve_core::Executor;

use crate::property::{Opaque, kit};

kit! {
    $ executor::executor_conformance for ExecutorSubject,
    from "[`ExecutorSubject`](crate::executor::ExecutorSubject)" {
        running {
            every_job_runs_exactly_once,
            a_job_runs_on_another_thread,
            jobs_run_in_parallel,
            never_more_than_its_workers,
            one_worker_keeps_the_order,
            jobs_may_submit_jobs,
            a_panicking_job_costs_only_itself,
            no_lost_wakeup,
        }
        refusing {
            a_full_queue_hands_the_job_back,
            room_comes_back,
        }
        closing {
            close_runs_what_was_queued,
            drop_runs_what_was_queued,
            close_rejects_later_jobs,
            close_twice_is_harmless,
            concurrent_closes_lose_nothing,
            close_with_a_deadline_reports_a_stuck_thread,
            close_with_a_deadline_drops_what_is_queued,
            drop_joins_the_workers,
            captured_values_are_dropped_exactly_once,
            a_job_that_drops_the_last_handle_does_not_deadlock,
        }
        close_edges {
            captured_values_that_panic_when_a_deadline_drops_them_are_harmless,
            a_drop_does_not_wait_for_what_a_deadline_left_behind,
            a_job_that_races_with_the_close_is_run_once_or_handed_back,
            a_later_close_may_wait_longer,
            a_panic_that_panics_as_it_is_dropped_costs_no_worker,
            a_worker_that_comes_free_after_the_deadline_runs_nothing_more,
            a_workers_thread_local_may_close_the_executor,
            what_is_queued_behind_a_workers_close_still_runs,
            workers_that_close_their_own_executor_do_not_wait_for_each_other,
        }
    }
}

/// The subject of the kit: a constructor of executors, and what they declare.
#[derive(Debug)]
pub struct ExecutorSubject {
    make: Opaque<dyn Fn(usize, usize) -> Box<dyn Executor>>,
    unbounded_queue: bool,
    unbounded_workers: bool,
    in_order: bool,
    max_wait: Duration,
}

impl ExecutorSubject {
    /// An executor with a bounded number of workers and a bounded queue that promises no order.
    ///
    /// `make` takes the number of workers and the max number of queued jobs, both at least 1. It returns a new executor
    /// of that size. The executor rejects a job if its queue is full, and does not wait.
    pub fn new(make: impl Fn(usize, usize) -> Box<dyn Executor> + 'static) -> Self {
        Self {
            make: Opaque(Box::new(make)),
            unbounded_queue: false,
            unbounded_workers: false,
            in_order: false,
            max_wait: Duration::from_secs(10),
        }
    }

    /// Declares that the queue has no bound.
    #[must_use]
    pub fn unbounded_queue(self) -> Self {
        Self { unbounded_queue: true, ..self }
    }

    /// Declares that any number of jobs run at the same time, so that no job is queued.
    #[must_use]
    pub fn unbounded_workers(self) -> Self {
        Self { unbounded_workers: true, ..self }
    }

    /// Declares that with one worker jobs run in the order in which they were submitted.
    #[must_use]
    pub fn in_order(self) -> Self {
        Self { in_order: true, ..self }
    }

    /// Sets how long a property waits for an event that must happen. The default is 10 s. Only a failing property waits so
    /// long.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        Self { max_wait, ..self }
    }
}
