//! What the executors promise beyond the executor kit. The crate `polyserve` runs the kit on them.
#![cfg(all(feature = "tokio", feature = "smol", feature = "futures"))]

mod closing;
mod support;

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::thread;

use polyserve_async::{FuturesTasks, SmolTasks, TasksConfig, TokioBlocking, TokioTasks};
use polyserve_core::Job;

use support::{bounded, executors, soon};

#[test]
fn an_invalid_configuration_is_refused() {
    let config = TasksConfig::new(0);
    let errors = [
        TokioTasks::new(config.clone()).unwrap_err(),
        TokioBlocking::new(config.clone()).unwrap_err(),
        SmolTasks::new(config.clone()).unwrap_err(),
        FuturesTasks::new(config).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("workers"), "{error}");
    }
}

#[test]
fn threads_are_named() {
    let config = bounded(3, 8).name("hand");
    for executor in executors(&config) {
        let (sender, names) = mpsc::channel();
        let all_here = Arc::new(Barrier::new(3));
        for _ in 0..3 {
            let (sender, all_here) = (sender.clone(), Arc::clone(&all_here));
            executor
                .execute(Job::new(move || {
                    all_here.wait();
                    sender.send(thread::current().name().map(str::to_owned)).unwrap();
                }))
                .unwrap();
        }
        let names: BTreeSet<_> = (0..3).filter_map(|_| soon(&names, &executor)).collect();
        assert!(names.iter().eq(["hand-0", "hand-1", "hand-2"]), "{names:?} in {executor:?}");
    }
}

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
