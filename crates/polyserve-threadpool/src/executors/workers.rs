//! A pool's threads: started, joined when they have ended, or left behind.
//!
//! Invariant: a thread is joined only after it has said that it ended, so that a join is short; and a worker that
//! closes its own pool waits neither for itself nor for other workers that do the same at the time, so that no two
//! threads wait for each other.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use polyserve_core::sync::thread::{self, JoinHandle, ThreadId};
use polyserve_core::sync::{Condvar, Mutex, MutexGuard, lock, now};

/// How often a closing past its deadline looks whether the workers that are in no job have ended: the ends themselves
/// are signalled, but not that a worker has begun one last job.
const LATE_LOOK: Duration = Duration::from_millis(1);

#[derive(Default)]
pub(super) struct Workers {
    roll: Arc<Roll>,
}

#[derive(Default)]
struct Roll {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    threads: Vec<Worker>,
    left_behind: bool,
}

#[derive(Default)]
struct Worker {
    id: Option<ThreadId>,
    handle: Option<JoinHandle<()>>,
    /// It runs no more jobs.
    ended: bool,
    joined: bool,
    /// How many closings of the pool are under way on this thread, one inside the other.
    closing: usize,
}

impl Workers {
    /// Starts the next thread, called `{name}-{index}`. `main` must not panic.
    pub(super) fn start(&self, name: &str, main: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut state = lock(&self.roll.state);
        let index = state.threads.len();
        let roll = Arc::clone(&self.roll);
        let handle = thread::Builder::new().name(format!("{name}-{index}")).spawn(move || {
            let _ending = Ending { roll, index };
            main();
        })?;
        // The thread's own end waits for this lock, so that it finds its entry.
        let id = Some(handle.thread().id());
        state.threads.push(Worker { id, handle: Some(handle), ..Worker::default() });
        Ok(())
    }

    /// Waits for the threads and joins them. When `deadline` has passed, calls `cut` and waits only for those that are
    /// in no job. Answers how many were not joined; the thread that calls is one of them if it is a worker.
    pub(super) fn join(&self, deadline: Option<Instant>, cut: &dyn Fn(), in_job: &dyn Fn(usize) -> bool) -> usize {
        let mut state = lock(&self.roll.state);
        let me = state.position(thread::current().id());
        let _closing = me.map(|me| {
            state.threads[me].closing += 1;
            self.roll.changed.notify_all();
            Closing { roll: &self.roll, index: me }
        });
        let mut late = false;
        loop {
            if let Some((index, handle)) = state.take_ended(me) {
                drop(state);
                let _ = handle.join(); // `main` does not panic
                state = lock(&self.roll.state);
                state.threads[index].joined = true;
                self.roll.changed.notify_all();
                continue;
            }
            if !late && deadline.is_some_and(|deadline| deadline <= now()) {
                late = true;
                drop(state);
                cut();
                state = lock(&self.roll.state);
                continue;
            }
            if state.awaited(me.is_some()).next().is_none() {
                break;
            }
            if late && state.awaited(me.is_some()).all(|(index, worker)| !worker.ended && in_job(index)) {
                state.left_behind = true;
                break;
            }
            let most = if late { Some(LATE_LOOK) } else { deadline.map(|d| d.saturating_duration_since(now())) };
            state = self.roll.wait(state, most);
        }
        let left = state.threads.iter().filter(|worker| !worker.joined).count();
        drop(state); // `_closing` takes the lock
        left
    }

    /// Whether a closing's deadline passed with threads in a job.
    pub(super) fn were_left_behind(&self) -> bool {
        lock(&self.roll.state).left_behind
    }
}

impl Roll {
    fn wait<'a>(&self, state: MutexGuard<'a, State>, most: Option<Duration>) -> MutexGuard<'a, State> {
        match most {
            Some(most) => self.changed.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0,
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

impl State {
    fn position(&self, thread: ThreadId) -> Option<usize> {
        self.threads.iter().position(|worker| worker.id == Some(thread))
    }

    /// One that has ended and that nobody joins yet.
    fn take_ended(&mut self, me: Option<usize>) -> Option<(usize, JoinHandle<()>)> {
        let mut ended =
            self.threads.iter_mut().enumerate().filter(|(index, worker)| worker.ended && Some(*index) != me);
        ended.find_map(|(index, worker)| worker.handle.take().map(|handle| (index, handle)))
    }

    /// Those that are waited for. A worker does not wait for those that close the pool too; itself is one of them.
    fn awaited(&self, by_a_worker: bool) -> impl Iterator<Item = (usize, &Worker)> {
        let is_awaited = move |worker: &Worker| !(worker.joined || by_a_worker && worker.closing > 0);
        self.threads.iter().enumerate().filter(move |(_, worker)| is_awaited(worker))
    }
}

/// Says that a thread has ended, whatever ended it.
struct Ending {
    roll: Arc<Roll>,
    index: usize,
}

impl Drop for Ending {
    fn drop(&mut self) {
        lock(&self.roll.state).threads[self.index].ended = true;
        self.roll.changed.notify_all();
    }
}

struct Closing<'a> {
    roll: &'a Roll,
    index: usize,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        lock(&self.roll.state).threads[self.index].closing -= 1;
    }
}
