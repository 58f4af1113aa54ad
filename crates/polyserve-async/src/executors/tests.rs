use std::sync::mpsc;
use std::time::{Duration, Instant};

use polyserve_core::Job;

use super::base::{Runtime, Tasks};
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
    let bars = held_up(name, tasks);
    // More than a runtime runs before it looks whether it is to end.
    (0..1000).for_each(|_| tasks.execute(Job::new(|| {})).unwrap());
    if cuts {
        assert_eq!(tasks.close(Some(Instant::now())), 2, "{name}");
    }
    drop(bars);
    assert_eq!((tasks.close(None), tasks.other_handles()), (0, 0), "{name}, after a cut: {cuts}");
}

/// Has the two workers each run a job that ends once what is answered is dropped.
fn held_up<R: Runtime>(name: &str, tasks: &Tasks<R>) -> Vec<mpsc::Sender<()>> {
    let (started, starts) = mpsc::channel();
    let bars = (0..2)
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
    bars
}

/// tokio may overlook a job that comes while others run: with more than one worker somebody watches.
#[test]
fn a_job_that_waits_for_tokio_is_watched() {
    let config = TasksConfig::new(2).with(|c| c.queue = 4);
    let tasks = TokioTasks::new(config).unwrap().0;
    let bars = held_up("tokio_tasks", &tasks);
    tasks.execute(Job::new(|| {})).unwrap();
    assert!(tasks.runtime().watch.as_ref().unwrap().is_on());
    drop(bars);
    assert_eq!(tasks.close(None), 0);
    assert!(TokioTasks::new(TasksConfig::new(1)).unwrap().0.runtime().watch.is_none(), "one worker overlooks nobody");
}
