//! One of each executor, workers that are held up, and waiting that ends.

use std::fmt::Debug;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use polyserve_async::executors::{FuturesTasks, SmolTasks, TasksConfig, TokioBlocking, TokioTasks};
use polyserve_core::sync::lock;
use polyserve_core::{Executor, Job};

/// How long is waited for what must happen: only ever waited for in failure.
pub(super) const LONG: Duration = Duration::from_secs(30);

pub(super) fn bounded(workers: usize, queue: usize) -> TasksConfig {
    TasksConfig::new(workers).with(|c| c.queue = queue)
}

/// One of each.
pub(super) fn executors(config: &TasksConfig) -> [Arc<dyn Executor>; 4] {
    [
        Arc::new(TokioTasks::new(config.clone()).unwrap()),
        Arc::new(TokioBlocking::new(config.clone()).unwrap()),
        Arc::new(SmolTasks::new(config.clone()).unwrap()),
        Arc::new(FuturesTasks::new(config.clone()).unwrap()),
    ]
}

pub(super) fn soon<T>(receiver: &Receiver<T>, what: impl Debug) -> T {
    receiver.recv_timeout(LONG).unwrap_or_else(|error| panic!("{what:?}: {error}"))
}

/// A bar that threads wait at until it is opened, for good.
#[derive(Clone, Default)]
pub(super) struct Barred(Arc<(Mutex<bool>, Condvar)>);

impl Barred {
    pub(super) fn open(&self) {
        *lock(&self.0.0) = true;
        self.0.1.notify_all();
    }

    fn wait(&self) {
        let waited = self.0.1.wait_timeout_while(lock(&self.0.0), LONG, |open| !*open);
        assert!(*waited.unwrap_or_else(PoisonError::into_inner).0, "nobody opened");
    }
}

/// Has `number` workers wait at the bar that is answered.
pub(super) fn occupy(executor: &dyn Executor, number: usize) -> Barred {
    let bar = Barred::default();
    let (sender, started) = mpsc::channel();
    for _ in 0..number {
        let (sender, bar) = (sender.clone(), bar.clone());
        executor
            .execute(Job::new(move || {
                sender.send(()).unwrap();
                bar.wait();
            }))
            .unwrap();
    }
    (0..number).for_each(|_| soon(&started, executor));
    bar
}
