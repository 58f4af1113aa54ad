//! The ready list of `pool_server`: each connection with an event is served once, one thread polls at a time, and a drain
//! ends all threads.
//!
//! The loops of the supervisor and of the workers are those of the server. Three parts are replaced: a list of ids and a
//! wake-up replace the poll, a count of jobs replaces the executor, and a function replaces the service. No time passes: a
//! supervisor that would check again within `WATCH_INTERVAL` checks again at once. All other waits have no timeout, so a lost
//! wake-up is a deadlock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Std};
use std::time::Duration;

use polyserve_core::sync::model::{Bounds, check};
use polyserve_core::sync::{Condvar, Mutex, MutexGuard, lock, thread};

use self::ready_list::{Actions, Next, ReadyEntry, ReadyList, SupervisorAction};

#[expect(dead_code, reason = "the model has no shared executor, no lost jobs and no timeouts")]
#[path = "../servers/pool_server/ready_list.rs"]
mod ready_list;

/// A value that threads wait for.
#[derive(Default)]
struct Watched<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Watched<T> {
    fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let changed = change(&mut lock(&self.value));
        self.changed.notify_all();
        changed
    }

    fn wait_until(&self, reached: impl Fn(&T) -> bool) -> MutexGuard<'_, T> {
        let mut value = lock(&self.value);
        while !reached(&value) {
            value = self.changed.wait(value).expect("no poison");
        }
        value
    }
}

/// What a poll finds.
#[derive(Default)]
struct Arrived {
    ids: Vec<usize>,
    /// The poller was woken.
    woken: bool,
}

/// The supervisor, as other threads see it.
#[derive(Default)]
struct Alert {
    alerted: bool,
    /// The supervisor is about to poll.
    polls: bool,
    /// The supervisor sleeps until it is alerted.
    sleeps: bool,
}

/// The jobs that no worker has begun.
#[derive(Default)]
struct Jobs {
    queued: usize,
    closed: bool,
}

/// The behaviour of the service for connection 0. It answers every other connection at once.
#[derive(Clone, Copy, PartialEq)]
enum ServiceModel {
    /// Answers at once.
    Quick,
    /// Blocks until connection 1 has been served.
    Blocks,
    /// Returns a deferred answer, which completes once connection 1 has been served.
    Defers,
}

struct ModelServer {
    ready: ReadyList,
    service: ServiceModel,
    poll: Watched<Arrived>,
    alert: Watched<Alert>,
    jobs: Watched<Jobs>,
    /// How often each connection was served.
    served: Watched<[usize; 3]>,
    draining: Watched<bool>,
    /// A type of std, which adds no step to the model.
    has_poller: AtomicBool,
}

impl ModelServer {
    fn new(workers: usize, turns: TakenTurns, service: ServiceModel) -> Arc<Self> {
        let ready = ReadyList::new(workers, 1, 2, false);
        (0..turns as usize).for_each(|_| ready.note_turn(Duration::MAX));
        Arc::new(Self {
            ready,
            service,
            poll: Watched::default(),
            alert: Watched::default(),
            jobs: Watched::default(),
            served: Watched::default(),
            draining: Watched::default(),
            has_poller: AtomicBool::new(false),
        })
    }

    /// An event of connection `id`.
    fn arrive(&self, id: usize) {
        self.poll.change(|arrived| arrived.ids.push(id));
    }

    /// Models `PoolServerState::poll`: polls, and then calls `dispatch` with the connections that are ready, in the poll
    /// role.
    fn poll<R>(&self, wait: bool, dispatch: impl FnOnce(&mut Vec<ReadyEntry>) -> R) -> R {
        assert!(!self.has_poller.swap(true, Std::SeqCst), "two threads poll");
        let mut arrived = self.poll.wait_until(|arrived| !wait || arrived.woken || !arrived.ids.is_empty());
        arrived.woken = false;
        let mut batch: Vec<ReadyEntry> = arrived.ids.drain(..).map(|id| ReadyEntry { id, is_new: true }).collect();
        drop(arrived);
        assert!(self.has_poller.swap(false, Std::SeqCst));
        dispatch(&mut batch)
    }

    fn wake_poller(&self) {
        self.poll.change(|arrived| arrived.woken = true);
    }

    /// Models `PoolServerState::carry_out`.
    fn carry_out(&self, actions: Actions) {
        if actions.submit_jobs > 0 {
            self.jobs.change(|jobs| jobs.queued += actions.submit_jobs);
        }
        if actions.wake_supervisor {
            self.alert();
        }
        if actions.wake_poller {
            self.wake_poller();
        }
    }

    /// Models `Wakeups::wake_supervisor`.
    fn alert(&self) {
        let polls = self.alert.change(|alert| {
            alert.alerted = true;
            alert.polls
        });
        if polls {
            self.wake_poller();
        }
    }

    /// A thread of the executor.
    fn run_jobs(&self) {
        loop {
            let mut jobs = self.jobs.wait_until(|jobs| jobs.queued > 0 || jobs.closed);
            if jobs.queued == 0 {
                return;
            }
            jobs.queued -= 1;
            drop(jobs);
            self.work();
        }
    }

    /// Models `PoolServerState::work`.
    fn work(&self) {
        let (mut next, mut actions) = self.ready.begin();
        loop {
            self.carry_out(actions);
            (next, actions) = match next {
                Next::End => return,
                Next::Poll { wait } => self.poll(wait, |batch| self.ready.polled(batch)),
                Next::Run(id) => {
                    self.serve(id);
                    self.ready.next(false)
                }
            };
        }
    }

    fn serve(&self, id: usize) {
        let waits = || drop(self.served.wait_until(|served| served[1] > 0));
        match self.service {
            ServiceModel::Blocks if id == 0 => waits(),
            ServiceModel::Defers if id == 0 => {
                self.carry_out(self.ready.begin_wait());
                waits();
                self.ready.end_wait();
            }
            _ => {}
        }
        self.served.change(|served| served[id] += 1);
    }

    /// Models `Supervisor::run`.
    fn supervise(&self) {
        loop {
            let draining = *lock(&self.draining.value);
            if draining {
                self.ready.drain();
            }
            let (action, actions) = self.ready.supervise(true);
            self.carry_out(actions);
            match action {
                SupervisorAction::Poll { .. } => {
                    if draining {
                        let served = lock(&self.served.value);
                        if served[0] > 0 && served[1] > 0 {
                            break;
                        }
                    }
                    let alerted = self.alert.change(|alert| {
                        alert.polls = true;
                        std::mem::take(&mut alert.alerted)
                    });
                    let actions = self.poll(!draining && !alerted, |batch| self.ready.dispatch(batch));
                    self.alert.change(|alert| alert.polls = false);
                    self.carry_out(actions);
                }
                SupervisorAction::Sleep if !draining => {
                    self.alert.change(|alert| alert.sleeps = true);
                    let mut alert = self.alert.wait_until(|alert| alert.alerted);
                    (alert.alerted, alert.sleeps) = (false, false);
                }
                SupervisorAction::Watch | SupervisorAction::Sleep => {
                    if draining {
                        self.wake_poller();
                    }
                }
            }
            thread::yield_now();
        }
        self.jobs.change(|jobs| jobs.closed = true);
    }
}

/// Serves connections 0 and 1, and drains. If `from_idle`, connection 2 was served before, and the supervisor sleeps or
/// polls when the two come.
fn serves_both(workers: usize, turns: TakenTurns, service: ServiceModel, from_idle: bool) {
    let server = ModelServer::new(workers, turns, service);
    let run = |run: fn(&ModelServer)| {
        let server = Arc::clone(&server);
        thread::spawn(move || run(&server))
    };
    let mut threads: Vec<_> = (0..workers).map(|_| run(ModelServer::run_jobs)).collect();
    threads.push(run(ModelServer::supervise));
    if from_idle {
        server.arrive(2);
        drop(server.served.wait_until(|served| served[2] > 0));
        drop(server.alert.wait_until(|alert| alert.sleeps || alert.polls));
    }
    server.arrive(0);
    server.arrive(1);
    drop(server.served.wait_until(|served| served[0] > 0 && served[1] > 0));
    server.draining.change(|draining| *draining = true);
    server.alert();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(*lock(&server.served.value), [1, 1, usize::from(from_idle)], "how often each connection was served");
}

/// The number of slow turns before the model begins.
#[derive(Clone, Copy)]
enum TakenTurns {
    /// The workers share the load as they do while the service is quick.
    Quick = 0,
    /// Each connection is a job of its own.
    Slow = 2,
}

#[test]
fn a_worker_that_polls_is_woken() {
    for from_idle in [false, true] {
        check("pool_server: a worker that polls", Bounds::new(1, 3), move || {
            serves_both(1, TakenTurns::Quick, ServiceModel::Quick, from_idle);
        });
    }
}

#[test]
fn the_supervisor_that_polls_is_woken() {
    check("pool_server: a supervisor that polls", Bounds::new(1, 3), || {
        serves_both(1, TakenTurns::Slow, ServiceModel::Quick, false)
    });
}

#[test]
fn a_blocked_worker_does_not_keep_the_others_asleep() {
    for (turns, from_idle, short) in
        [(TakenTurns::Quick, false, 1), (TakenTurns::Slow, false, 0), (TakenTurns::Quick, true, 0)]
    {
        check("pool_server: a blocked worker", Bounds::new(short, 2), move || {
            serves_both(2, turns, ServiceModel::Blocks, from_idle);
        });
    }
}

#[test]
fn a_worker_that_waits_for_an_answer_leaves_its_work_to_others() {
    for (turns, from_idle, short) in
        [(TakenTurns::Quick, false, 1), (TakenTurns::Slow, false, 0), (TakenTurns::Quick, true, 0)]
    {
        check("pool_server: a worker that waits for an answer", Bounds::new(short, 2), move || {
            serves_both(2, turns, ServiceModel::Defers, from_idle);
        });
    }
}
