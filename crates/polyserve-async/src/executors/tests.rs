use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use polyserve_core::Job;
use polyserve_core::sync::lock;

use super::base::{Runtime, Task, Tasks};
use super::*;

/// What waits in a runtime's queues holds the executor, which holds the runtime: once the threads have ended, whether
/// jobs ran or a deadline dropped them, nothing may wait there any more, or both stay for ever.
#[test]
fn nothing_waits_in_a_runtime_that_has_ended() {
    for cuts in [false, true] {
        let config = TasksConfig::new(2).with(|c| c.queue = 1024);
        ends_empty("tokio_tasks", &TokioTasks::new(config.clone()).unwrap().0, cuts);
        ends_empty("tokio_blocking", &TokioBlocking::new(config.clone()).unwrap().0, cuts);
        ends_empty("smol_tasks", &SmolTasks::new(config.clone()).unwrap().0, cuts);
        ends_empty("futures_tasks", &FuturesTasks::new(config).unwrap().0, cuts);
    }
}

fn ends_empty<R: Runtime>(name: &str, tasks: &Tasks<R>, cuts: bool) {
    let (started, starts) = mpsc::channel();
    let bars: Vec<_> = (0..2)
        .map(|_| {
            let (started, (open, opened)) = (started.clone(), mpsc::channel::<()>());
            let job = Job::new(move || {
                started.send(()).unwrap();
                let _ = opened.recv();
            });
            tasks.execute(job).unwrap();
            open
        })
        .collect();
    (0..2).for_each(|_| starts.recv_timeout(Duration::from_secs(30)).expect(name));
    // More than a runtime runs before it looks whether it is to end.
    (0..1000).for_each(|_| tasks.execute(Job::new(|| {})).unwrap());
    if cuts {
        assert_eq!(tasks.close(Some(Instant::now())), 2, "{name}");
    }
    drop(bars);
    assert_eq!((tasks.close(None), tasks.other_handles()), (0, 0), "{name}, after a cut: {cuts}");
}

/// A runtime whose tasks the test runs.
#[derive(Clone, Default)]
struct ByHand {
    tasks: Arc<Mutex<Vec<Task<Self>>>>,
    told: Arc<AtomicUsize>,
}

impl Runtime for ByHand {
    fn spawn(&self, task: Task<Self>) -> bool {
        lock(&self.tasks).push(task);
        true
    }

    fn others_wait(&self) {
        self.told.fetch_add(1, Ordering::SeqCst);
    }

    fn stop(&self, _: bool) {}

    fn join(&self) {}
}

/// Of two jobs the one that begins first says that the other waits, where there is a thread that it could run on.
#[test]
fn who_begins_while_others_wait_says_so() {
    for (workers, expected) in [(1, 0), (2, 1)] {
        let runtime = ByHand::default();
        let tasks = Tasks::new(TasksConfig::new(workers), |_, _| Ok(runtime.clone())).unwrap();
        (0..2).for_each(|_| tasks.execute(Job::new(|| {})).unwrap());
        let [first, second] = <[_; 2]>::try_from(std::mem::take(&mut *lock(&runtime.tasks))).ok().unwrap();
        first.run();
        assert_eq!(runtime.told.load(Ordering::SeqCst), expected, "{workers} workers, one job waits");
        second.run();
        assert_eq!(runtime.told.load(Ordering::SeqCst), expected, "{workers} workers, no job waits");
        tasks.execute(Job::new(|| {})).unwrap();
        let only = lock(&runtime.tasks).pop().unwrap();
        only.run();
        assert_eq!(runtime.told.load(Ordering::SeqCst), expected, "{workers} workers, one job in all");
    }
}
