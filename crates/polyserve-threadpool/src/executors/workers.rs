//! The threads of a pool: started, joined after they have ended, or left behind.
//!
//! Invariants: a thread is joined only after it has marked itself as ended, so a join is short. A worker that closes its
//! own pool waits neither for itself nor for other workers that close the pool at the same time. So no two threads wait
//! for each other.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use polyserve_core::sync::thread::{self, JoinHandle, ThreadId};
use polyserve_core::sync::{Condvar, Mutex, MutexGuard, lock, now};

/// How often a close past its deadline checks the workers that run no job. A worker's end is signalled, but the start of
/// its last job is not.
const LATE_CHECK: Duration = Duration::from_millis(1);

#[derive(Default)]
/// The threads of one pool.
pub(super) struct Workers {
    registry: Arc<ThreadRegistry>,
}

#[derive(Default)]
struct ThreadRegistry {
    state: Mutex<RegistryState>,
    changed: Condvar,
}

#[derive(Default)]
struct RegistryState {
    threads: Vec<ThreadEntry>,
    left_behind: bool,
}

#[derive(Default)]
struct ThreadEntry {
    id: Option<ThreadId>,
    handle: Option<JoinHandle<()>>,
    /// The thread runs no more jobs.
    ended: bool,
    joined: bool,
    /// The number of nested `close` calls that run on this thread.
    closing: usize,
}

impl Workers {
    /// Starts the next thread, named `{name}-{index}`. `main` must not panic.
    pub(super) fn start(&self, name: &str, main: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut state = lock(&self.registry.state);
        let index = state.threads.len();
        let registry = Arc::clone(&self.registry);
        let handle = thread::Builder::new().name(format!("{name}-{index}")).spawn(move || {
            let _end_guard = EndGuard { registry, index };
            main();
        })?;
        // The end guard of the new thread waits for this lock. So the entry is in the registry before the guard looks for it.
        let id = Some(handle.thread().id());
        state.threads.push(ThreadEntry { id, handle: Some(handle), ..ThreadEntry::default() });
        Ok(())
    }

    /// Waits for the threads and joins them. Once `deadline` has passed, it calls `cut` and waits only for threads that
    /// run no job. Returns the number of threads that were not joined. If a worker
    /// calls this, its own thread is counted as not joined.
    pub(super) fn join(&self, deadline: Option<Instant>, cut: &dyn Fn(), in_job: &dyn Fn(usize) -> bool) -> usize {
        let mut state = lock(&self.registry.state);
        let caller = state.position(thread::current().id());
        let _closing = caller.map(|caller| {
            state.threads[caller].closing += 1;
            self.registry.changed.notify_all();
            CloseGuard { registry: &self.registry, index: caller }
        });
        let mut is_late = false;
        loop {
            if let Some((index, handle)) = state.take_ended(caller) {
                drop(state);
                let _ = handle.join(); // `main` does not panic
                state = lock(&self.registry.state);
                state.threads[index].joined = true;
                self.registry.changed.notify_all();
                continue;
            }
            if !is_late && deadline.is_some_and(|deadline| deadline <= now()) {
                is_late = true;
                drop(state);
                cut();
                state = lock(&self.registry.state);
                continue;
            }
            if state.awaited(caller.is_some()).next().is_none() {
                break;
            }
            if is_late && state.awaited(caller.is_some()).all(|(index, worker)| !worker.ended && in_job(index)) {
                state.left_behind = true;
                break;
            }
            let timeout = if is_late { Some(LATE_CHECK) } else { deadline.map(|d| d.saturating_duration_since(now())) };
            state = self.registry.wait(state, timeout);
        }
        let not_joined = state.threads.iter().filter(|worker| !worker.joined).count();
        drop(state); // `_closing` takes the lock
        not_joined
    }

    /// Whether the deadline of a close passed while threads ran jobs.
    pub(super) fn were_left_behind(&self) -> bool {
        lock(&self.registry.state).left_behind
    }
}

impl ThreadRegistry {
    fn wait<'a>(&self, state: MutexGuard<'a, RegistryState>, limit: Option<Duration>) -> MutexGuard<'a, RegistryState> {
        match limit {
            Some(limit) => self.changed.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0,
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

impl RegistryState {
    fn position(&self, thread: ThreadId) -> Option<usize> {
        self.threads.iter().position(|worker| worker.id == Some(thread))
    }

    /// The handle of a thread that has ended and is not being joined.
    fn take_ended(&mut self, caller: Option<usize>) -> Option<(usize, JoinHandle<()>)> {
        let mut ended =
            self.threads.iter_mut().enumerate().filter(|(index, worker)| worker.ended && Some(*index) != caller);
        ended.find_map(|(index, worker)| worker.handle.take().map(|handle| (index, handle)))
    }

    /// The threads to wait for. A worker does not wait for workers that close the pool too, itself included.
    fn awaited(&self, by_worker: bool) -> impl Iterator<Item = (usize, &ThreadEntry)> {
        let is_awaited = move |worker: &ThreadEntry| !(worker.joined || by_worker && worker.closing > 0);
        self.threads.iter().enumerate().filter(move |(_, worker)| is_awaited(worker))
    }
}

/// Marks a thread as ended in its `drop`, so that an unwinding thread is marked too.
struct EndGuard {
    registry: Arc<ThreadRegistry>,
    index: usize,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        lock(&self.registry.state).threads[self.index].ended = true;
        self.registry.changed.notify_all();
    }
}

/// Counts one `close` on a worker's thread for as long as it lives.
struct CloseGuard<'a> {
    registry: &'a ThreadRegistry,
    index: usize,
}

impl Drop for CloseGuard<'_> {
    fn drop(&mut self) {
        lock(&self.registry.state).threads[self.index].closing -= 1;
    }
}
