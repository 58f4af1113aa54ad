//! Shared parts of the pools' tests.

use std::fmt::Debug;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::sync::lock;
use polyserve_core::{Executor, Job};
use polyserve_serving::executor::{self, Backend};
use polyserve_threadpool::{CrossbeamPool, MpscPool, PoolConfig, PoolStats, StealingPool};

pub(super) fn bounded(workers: usize, queue: usize) -> PoolConfig {
    PoolConfig::new(workers).queue(queue)
}

/// What the three pools offer beyond the trait.
pub(super) trait Pool: Executor {
    fn stats(&self) -> PoolStats;
}

impl<B: Backend> Pool for executor::Pool<B> {
    fn stats(&self) -> PoolStats {
        Self::stats(self)
    }
}

/// Creates one pool of each kind.
pub(super) fn pools(config: &PoolConfig) -> [Arc<dyn Pool>; 3] {
    [
        Arc::new(MpscPool::new(config.clone()).unwrap()),
        Arc::new(CrossbeamPool::new(config.clone()).unwrap()),
        Arc::new(StealingPool::new(config.clone()).unwrap()),
    ]
}

/// The time limit for what must happen. Reached only in a failure.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn receive<T>(receiver: &Receiver<T>, what: impl Debug) -> T {
    receiver.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{what:?}: {error}"))
}

/// Waits for `done`, with a time limit. For counts that change after a job's end.
pub(super) fn wait_until(what: impl Debug, done: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "{what:?} did not happen");
        thread::yield_now();
    }
}

/// Blocks threads until it is opened.
#[derive(Clone, Default)]
pub(super) struct Latch(Arc<(Mutex<bool>, Condvar)>);

impl Latch {
    pub(super) fn open(&self) {
        *lock(&self.0.0) = true;
        self.0.1.notify_all();
    }

    pub(super) fn is_open(&self) -> bool {
        *lock(&self.0.0)
    }

    pub(super) fn wait(&self) {
        let waited = self.0.1.wait_timeout_while(lock(&self.0.0), PATIENCE, |open| !*open);
        assert!(*waited.unwrap_or_else(PoisonError::into_inner).0, "the latch was not opened");
    }
}

/// Makes `number` workers wait at the returned latch.
pub(super) fn occupy(pool: &dyn Executor, number: usize) -> Latch {
    let latch = Latch::default();
    let (sender, started) = mpsc::channel();
    for _ in 0..number {
        let (sender, latch) = (sender.clone(), latch.clone());
        pool.execute(Job::new(move || {
            sender.send(()).unwrap();
            latch.wait();
        }))
        .unwrap();
    }
    (0..number).for_each(|_| receive(&started, pool));
    latch
}

pub(super) fn empty_job() -> Job {
    Job::new(|| {})
}
