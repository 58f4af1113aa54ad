//! One executor of each strategy, and a receive with a time limit.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use polyserve_async::{FuturesTasks, SmolTasks, TokioBlocking, TokioTasks};
use polyserve_core::Executor;
use polyserve_serving::executor::PoolConfig;

/// The time limit for events that must happen. A wait reaches it only if the test fails.
pub(super) const LONG: Duration = Duration::from_secs(30);

pub(super) fn bounded(workers: usize, queue: usize) -> PoolConfig {
    PoolConfig::new(workers).queue(queue)
}

/// One executor of each strategy.
pub(super) fn executors(config: &PoolConfig) -> [Arc<dyn Executor>; 4] {
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
