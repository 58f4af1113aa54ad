//! The shutdown of a server: a flag, a deadline, and wake-ups for the threads and tasks that wait.
//!
//! Invariant: a shutdown that has begun is never undone, and its deadline only moves closer.
//!
//! Cost: [`Shutdown::is_begun`] is one load. A thread that registers once, with [`Shutdown::register_thread`], takes no
//! lock when it waits. Everything else takes a lock and is rare.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use crate::answer::thread_waker;
use crate::panics::isolate;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, lock};

/// A shutdown of a server; clones share it.
///
/// ```
/// use polyserve_core::Shutdown;
/// use std::time::Instant;
///
/// let shutdown = Shutdown::new();
/// let (sender, receiver) = std::sync::mpsc::channel();
/// shutdown.on_begin(move || drop(sender.send(())));
/// let deadline = Instant::now();
/// shutdown.begin(deadline);
/// assert_eq!((shutdown.is_begun(), shutdown.deadline()), (true, Some(deadline)));
/// assert_eq!(receiver.recv(), Ok(()));
/// ```
#[derive(Clone, Default)]
pub struct Shutdown {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    begun: AtomicBool,
    state: Mutex<ShutdownState>,
}

#[derive(Default)]
struct ShutdownState {
    begun_at: Option<Instant>,
    deadline: Option<Instant>,
    hooks: Vec<Arc<dyn Fn() + Send + Sync>>,
    /// Those of threads and of futures.
    wakers: BTreeMap<u64, Waker>,
    next_key: u64,
}

impl ShutdownState {
    fn key(&mut self) -> u64 {
        self.next_key += 1;
        self.next_key
    }
}

impl Shutdown {
    /// A shutdown that has not begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins the shutdown: work may go on until `deadline`. If it has begun already, the earlier deadline holds.
    pub fn begin(&self, deadline: Instant) {
        let mut state = lock(&self.shared.state);
        state.begun_at.get_or_insert_with(Instant::now);
        state.deadline = Some(state.deadline.map_or(deadline, |earlier| earlier.min(deadline)));
        self.shared.begun.store(true, Ordering::SeqCst);
        let hooks = state.hooks.clone();
        let wakers: Vec<Waker> = state.wakers.values().cloned().collect();
        drop(state);
        // Hooks and wakers are foreign code: one that panics must not keep the others from being called.
        for waker in wakers {
            log_panic(isolate(|| waker.wake()));
        }
        for hook in hooks {
            log_panic(isolate(|| hook()));
        }
    }

    /// Whether the shutdown has begun.
    #[inline]
    pub fn is_begun(&self) -> bool {
        // Sequentially consistent with the state that a thread stores before it calls this. Servers with blocking threads
        // rely on it.
        self.shared.begun.load(Ordering::SeqCst)
    }

    /// The time at which work is cut; `None` if the shutdown has not begun.
    pub fn deadline(&self) -> Option<Instant> {
        if self.is_begun() { lock(&self.shared.state).deadline } else { None }
    }

    /// The time at which the shutdown began; `None` if it has not begun.
    pub fn begun_at(&self) -> Option<Instant> {
        if self.is_begun() { lock(&self.shared.state).begun_at } else { None }
    }

    /// Calls `hook` at every [`begin`](Self::begin) from now on, and at once if the shutdown has begun. The hook must be
    /// short, for instance wake a poller.
    pub fn on_begin(&self, hook: impl Fn() + Send + Sync + 'static) {
        let hook: Arc<dyn Fn() + Send + Sync> = Arc::new(hook);
        lock(&self.shared.state).hooks.push(Arc::clone(&hook));
        if self.is_begun() {
            hook();
        }
    }

    /// Unparks the calling thread at every [`begin`](Self::begin), for as long as the registration lives.
    ///
    /// A thread that registers, then finds that the shutdown [has not begun](Self::is_begun), and then parks, is woken by
    /// it.
    ///
    /// ```
    /// use polyserve_core::Shutdown;
    /// use std::thread;
    /// use std::time::Instant;
    ///
    /// let shutdown = Shutdown::new();
    /// let worker = thread::spawn({
    ///     let shutdown = shutdown.clone();
    ///     move || {
    ///         let _registration = shutdown.register_thread();
    ///         while !shutdown.is_begun() {
    ///             thread::park();
    ///         }
    ///     }
    /// });
    /// shutdown.begin(Instant::now());
    /// worker.join().unwrap();
    /// ```
    pub fn register_thread(&self) -> ThreadRegistration {
        let mut state = lock(&self.shared.state);
        let key = state.key();
        state.wakers.insert(key, thread_waker());
        ThreadRegistration { shared: Arc::clone(&self.shared), key }
    }

    /// Calls `act` while this thread holds the lock. For tests of what takes no lock.
    pub fn while_locked<T>(&self, act: impl FnOnce() -> T) -> T {
        let _held = lock(&self.shared.state);
        act()
    }

    /// Returns a future that is ready once the shutdown has begun.
    ///
    /// ```
    /// use polyserve_core::{Answer, Shutdown};
    /// let shutdown = Shutdown::new();
    /// let begun = Answer::later(shutdown.begun());
    /// shutdown.begin(std::time::Instant::now());
    /// begun.wait();
    /// ```
    pub fn begun(&self) -> ShutdownBegun {
        ShutdownBegun { shared: Arc::clone(&self.shared), key: None }
    }
}

fn log_panic(result: Result<(), String>) {
    if let Err(text) = result {
        let _ = isolate(|| tracing::warn!(panic = text, "a hook or waker of a shutdown panicked"));
    }
}

impl fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shutdown").field("begun", &self.is_begun()).finish_non_exhaustive()
    }
}

/// A thread that a [`Shutdown`] unparks. Dropping it ends that.
pub struct ThreadRegistration {
    shared: Arc<Shared>,
    key: u64,
}

impl ThreadRegistration {
    /// Returns whether the thread is registered with `shutdown` or with a clone of `shutdown`.
    pub fn belongs_to(&self, shutdown: &Shutdown) -> bool {
        Arc::ptr_eq(&self.shared, &shutdown.shared)
    }
}

impl Drop for ThreadRegistration {
    fn drop(&mut self) {
        lock(&self.shared.state).wakers.remove(&self.key);
    }
}

impl fmt::Debug for ThreadRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ThreadRegistration(..)")
    }
}

/// The future of [`Shutdown::begun`]. Dropping it removes its waker.
pub struct ShutdownBegun {
    shared: Arc<Shared>,
    key: Option<u64>,
}

impl Future for ShutdownBegun {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.shared.begun.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let shared = Arc::clone(&self.shared);
        let mut state = lock(&shared.state);
        if self.shared.begun.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let key = *self.key.get_or_insert_with(|| state.key());
        state.wakers.insert(key, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for ShutdownBegun {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            lock(&self.shared.state).wakers.remove(&key);
        }
    }
}

impl fmt::Debug for ShutdownBegun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShutdownBegun(..)")
    }
}

#[cfg(all(test, not(any(polyserve_loom, polyserve_shuttle))))]
mod tests {
    use super::*;
    use crate::answer::park_until;
    use crate::sync::thread;
    use crate::test_wakers::{CountingWaker, panicking};
    use std::task::Wake;
    use std::time::Duration;

    /// Adds a hook that counts its calls.
    fn counting_hook(shutdown: &Shutdown) -> Arc<CountingWaker> {
        let calls = Arc::new(CountingWaker::default());
        let counted = Arc::clone(&calls);
        shutdown.on_begin(move || counted.wake_by_ref());
        calls
    }

    #[test]
    fn the_deadline_only_moves_closer() {
        let (shutdown, now) = (Shutdown::new(), Instant::now());
        assert_eq!((shutdown.is_begun(), shutdown.begun_at(), shutdown.deadline()), (false, None, None));
        shutdown.begin(now + Duration::from_secs(10));
        let begun_at = shutdown.begun_at();
        for seconds in [5, 20] {
            shutdown.begin(now + Duration::from_secs(seconds));
        }
        assert_eq!(shutdown.deadline(), Some(now + Duration::from_secs(5)));
        assert_eq!(shutdown.begun_at(), begun_at, "it begins once");
        assert!(begun_at.is_some_and(|begun_at| begun_at >= now));
    }

    #[test]
    fn begin_calls_hooks_and_wakes_futures() {
        let shutdown = Shutdown::new();
        let calls = counting_hook(&shutdown);
        let mut begun = shutdown.begun();
        let waiter = std::thread::spawn(move || park_until(None, |cx| Pin::new(&mut begun).poll(cx)));
        shutdown.begin(Instant::now());
        assert_eq!(waiter.join().unwrap(), Some(()));
        assert_eq!(calls.get(), 1);
        assert!(lock(&shutdown.shared.state).wakers.is_empty());
    }

    #[test]
    fn a_dropped_future_leaves_no_waker() {
        let shutdown = Shutdown::new();
        let mut begun = shutdown.begun();
        assert!(park_until(Some(Instant::now()), |cx| Pin::new(&mut begun).poll(cx)).is_none());
        drop(begun);
        assert!(lock(&shutdown.shared.state).wakers.is_empty());
    }

    #[test]
    fn a_registered_thread_is_unparked_at_every_begin() {
        let shutdown = Shutdown::new();
        let registration = shutdown.register_thread();
        assert!(registration.belongs_to(&shutdown.clone()) && !registration.belongs_to(&Shutdown::new()));
        for _ in 0..2 {
            shutdown.begin(Instant::now());
            thread::park(); // returns at once
        }
        drop(registration);
        assert!(lock(&shutdown.shared.state).wakers.is_empty());
    }

    /// Regression test: a hook or a waker that panicked kept the others from being called.
    #[test]
    fn a_hook_or_waker_that_panics_does_not_keep_the_others() {
        let shutdown = Shutdown::new();
        shutdown.on_begin(|| panic!("a hook"));
        let called = counting_hook(&shutdown);
        let mut futures = [shutdown.begun(), shutdown.begun()];
        for (future, waker) in futures.iter_mut().zip([panicking(), Waker::from(Arc::clone(&called))]) {
            assert!(Pin::new(future).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        shutdown.begin(Instant::now());
        assert_eq!(called.get(), 2);
    }
}
