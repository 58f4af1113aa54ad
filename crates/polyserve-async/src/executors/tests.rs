use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use polyserve_core::{Executor, Job, ServerConfig, cores};
use polyserve_serving::executor::{Pool, PoolConfig};

use super::tasks::{Runtime, Tasks};
use super::*;

/// A task in a runtime's queue keeps the executor alive, and the executor keeps the runtime alive. So after the threads have
/// ended, a task that is left in the queue is a leak, whether its job ran or was dropped.
#[test]
fn nothing_waits_in_a_runtime_that_has_ended() {
    for cuts in [false, true] {
        let config = PoolConfig::new(2).queue(1024);
        ends_empty("tokio_tasks", &TokioTasks::new(config.clone()).unwrap(), cuts);
        ends_empty("tokio_blocking", &TokioBlocking::new(config.clone()).unwrap(), cuts);
        ends_empty("smol_tasks", &SmolTasks::new(config.clone()).unwrap(), cuts);
        ends_empty("futures_tasks", &FuturesTasks::new(config).unwrap(), cuts);
    }
}

fn ends_empty<R: Runtime>(name: &str, tasks: &Pool<Tasks<R>>, cuts: bool) {
    let bars = held_up(name, tasks);
    // These are more tasks than a runtime runs before it checks whether it must end.
    (0..1000).for_each(|_| tasks.execute(Job::new(|| {})).unwrap());
    if cuts {
        assert_eq!(tasks.close(Some(Instant::now())), 2, "{name}");
    }
    drop(bars);
    assert_eq!((tasks.close(None), Arc::strong_count(tasks.inner())), (0, 1), "{name}, after a cut: {cuts}");
}

/// Makes each of the two workers run a job that ends once the returned senders are dropped.
fn held_up<R: Runtime>(name: &str, tasks: &Pool<Tasks<R>>) -> Vec<mpsc::Sender<()>> {
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

/// Regression test: the watch stayed off when one job waited and both threads were held by tasks that are not jobs: it
/// counted jobs only.
#[test]
fn a_job_that_waits_behind_other_tasks_is_watched() {
    let tasks = TokioTasks::new(PoolConfig::new(2).queue(4)).unwrap();
    let (started, starts) = mpsc::channel();
    let (open, opened) = mpsc::channel::<()>();
    let opened = Arc::new(std::sync::Mutex::new(opened));
    for _ in 0..2 {
        let (started, opened) = (started.clone(), Arc::clone(&opened));
        tasks
            .execute(Job::new(move || {
                drop(tokio::spawn(async move {
                    started.send(()).unwrap();
                    let _ = opened.lock().unwrap().recv();
                }));
            }))
            .unwrap();
    }
    (0..2).for_each(|_| starts.recv_timeout(Duration::from_secs(30)).expect("both tasks start"));
    tasks.execute(Job::new(|| {})).unwrap();
    assert!(tasks.inner().backend.runtime.watch.as_ref().unwrap().is_on());
    drop(open);
    assert_eq!(tasks.close(None), 0);
}

/// tokio may leave a submitted job in its queue while other jobs run. So a pool of more than one worker has a watch thread.
#[test]
fn a_job_that_waits_for_tokio_is_watched() {
    let config = PoolConfig::new(2).queue(4);
    let tasks = TokioTasks::new(config).unwrap();
    let bars = held_up("tokio_tasks", &tasks);
    tasks.execute(Job::new(|| {})).unwrap();
    assert!(tasks.inner().backend.runtime.watch.as_ref().unwrap().is_on());
    drop(bars);
    assert_eq!(tasks.close(None), 0);
    assert!(
        TokioTasks::new(PoolConfig::new(1)).unwrap().inner().backend.runtime.watch.is_none(),
        "one worker overlooks no job"
    );
}

/// The runtimes have one worker for each core by default.
#[test]
fn a_servers_tasks_have_its_workers_and_its_queue() {
    let config = |server| SmolTasks::for_server(&server).unwrap().inner().shared.config.clone();
    assert_eq!(config(ServerConfig::default().workers(3).queue(7)), PoolConfig::new(3).queue(7));
    assert_eq!(config(ServerConfig::default()), PoolConfig::new(cores()));
}
