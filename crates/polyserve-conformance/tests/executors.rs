//! The executor kit, tested: sound executors have every property. The test `flaws` has the faults.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::{Duration, Instant};

use polyserve_conformance::broken::executors::Faulty;
use polyserve_conformance::executor::{self, ExecutorSubject};
use polyserve_conformance::executor_conformance;
use polyserve_conformance::property::{self, PropertyVerdict};
use polyserve_core::sync::lock;
use polyserve_core::{Executor, Job, Rejected, RejectedReason, isolated};

executor_conformance!(sound, sound_pools().in_order());

executor_conformance!(
    thread_per_job,
    ExecutorSubject::new(|_workers, _queue| Box::new(ThreadPerJob::default())).unbounded_workers()
);

fn sound_pools() -> ExecutorSubject {
    ExecutorSubject::new(|workers, queue| Box::new(Faulty::new(None, workers, queue)))
}

fn verdict(name: &str, subject: &ExecutorSubject) -> PropertyVerdict {
    property::named(executor::PROPERTIES, name).verdict(subject)
}

#[test]
fn what_is_not_declared_is_reported_as_not_run() {
    assert!(matches!(verdict("one_worker_keeps_the_order", &sound_pools()), PropertyVerdict::NotRun(_)));
    assert!(matches!(verdict("room_comes_back", &sound_pools().unbounded_queue()), PropertyVerdict::NotRun(_)));
}

#[test]
fn a_bound_that_is_declared_away_must_be_away() {
    let subject = sound_pools().unbounded_queue().max_wait(Duration::from_millis(500));
    let verdict = verdict("a_full_queue_hands_the_job_back", &subject);
    assert!(matches!(verdict, PropertyVerdict::Broken(_)), "an executor that refuses passed as unbounded: {verdict:?}");
}

/// An executor that starts a thread for each job at once: no job waits, and none is refused.
#[derive(Debug, Default)]
struct ThreadPerJob {
    state: Mutex<Threads>,
    ended: Arc<Ended>,
}

#[derive(Debug, Default)]
struct Threads {
    closed: bool,
    handles: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Ended {
    threads: Mutex<Vec<ThreadId>>,
    changed: Condvar,
    panicked: AtomicU64,
}

impl Executor for ThreadPerJob {
    fn execute(&self, job: Job) -> Result<(), Rejected> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(Rejected { job, reason: RejectedReason::Closed });
        }
        let ended = Arc::clone(&self.ended);
        state.handles.push(thread::spawn(move || {
            if !isolated(|| job.run()) {
                ended.panicked.fetch_add(1, Ordering::SeqCst);
            }
            lock(&ended.threads).push(thread::current().id());
            ended.changed.notify_all();
        }));
        Ok(())
    }

    fn workers(&self) -> Option<usize> {
        None
    }

    fn close(&self, deadline: Option<Instant>) -> usize {
        let mut state = lock(&self.state);
        state.closed = true;
        let me = thread::current().id();
        let mut handles = std::mem::take(&mut state.handles);
        drop(state);
        let mut ended = lock(&self.ended.threads);
        let is_running = |ended: &[ThreadId], id: ThreadId| id != me && !ended.contains(&id);
        while handles.iter().any(|handle| is_running(&ended, handle.thread().id())) {
            let left = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break;
            }
            ended = self.ended.changed.wait_timeout(ended, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let stuck = handles.extract_if(.., |handle| !ended.contains(&handle.thread().id())).count();
        drop(ended);
        handles.into_iter().for_each(|handle| handle.join().expect("panics are caught within"));
        stuck
    }

    fn panicked(&self) -> u64 {
        self.ended.panicked.load(Ordering::SeqCst)
    }
}

impl Drop for ThreadPerJob {
    fn drop(&mut self) {
        self.close(None);
    }
}
