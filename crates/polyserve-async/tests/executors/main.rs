//! What only the executors on runtimes promise. The crate `polyserve` runs the executor kit on them, and tests what all executors
//! promise beyond it.
#![cfg(all(feature = "tokio", feature = "smol", feature = "futures"))]

mod closing;
mod support;

use std::sync::{Arc, mpsc};

use polyserve_core::Job;

use support::{bounded, executors, soon};

/// Regression test: a job that waited for a job of its own waited for ever, although another thread was idle: tokio
/// reserves a task for the thread that spawned it.
#[test]
fn a_job_may_wait_for_a_job_of_its_own_if_another_worker_is_idle() {
    for executor in executors(&bounded(2, 8)) {
        let (sender, done) = mpsc::channel();
        let handle = Arc::clone(&executor);
        executor
            .execute(Job::new(move || {
                let (its_sender, its_done) = mpsc::channel();
                handle.execute(Job::new(move || its_sender.send(()).unwrap())).unwrap();
                soon(&its_done, "a job's own job");
                sender.send(()).unwrap();
            }))
            .unwrap();
        soon(&done, &executor);
    }
}

/// On a thread of tokio's, waiting for a runtime's end panics. `close` and drop must work there too.
#[test]
fn an_executor_may_be_closed_and_dropped_by_a_task_of_a_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for executor in executors(&bounded(2, 8)) {
        let (sender, ran) = mpsc::channel();
        executor.execute(Job::new(move || sender.send(()).unwrap())).unwrap();
        let left = runtime.block_on(async {
            let left = executor.close(None);
            drop(executor);
            left
        });
        soon(&ran, "the job");
        assert_eq!(left, 0);
    }
}
