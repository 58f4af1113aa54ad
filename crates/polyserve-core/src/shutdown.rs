//! How a server learns that it is to end: a flag that costs one load, a deadline, and wake-ups for whoever waits.
//!
//! Invariant: once begun, a shutdown is never undone and its deadline only moves closer. Cost: [`Shutdown::is_begun`]
//! is one load; everything else takes a lock and is rare.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, lock};

/// A shutdown that may be begun; clones share it.
#[derive(Clone, Default)]
pub struct Shutdown {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    begun: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    deadline: Option<Instant>,
    hooks: Vec<Arc<dyn Fn() + Send + Sync>>,
    wakers: HashMap<u64, Waker>,
    next_key: u64,
}

impl Shutdown {
    /// One that has not begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins it: work may go on until `deadline`. Begun already, it keeps the earlier of the two deadlines.
    pub fn begin(&self, deadline: Instant) {
        let mut state = lock(&self.shared.state);
        state.deadline = Some(state.deadline.map_or(deadline, |earlier| earlier.min(deadline)));
        self.shared.begun.store(true, Ordering::SeqCst);
        let hooks = state.hooks.clone();
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        hooks.iter().for_each(|hook| hook());
        wakers.into_values().for_each(Waker::wake);
    }

    /// Whether it has begun.
    pub fn is_begun(&self) -> bool {
        // In one order with what a thread says of itself before it looks: the loop of a blocking server relies on it.
        self.shared.begun.load(Ordering::SeqCst)
    }

    /// When work is cut; `None` while it has not begun.
    pub fn deadline(&self) -> Option<Instant> {
        if self.is_begun() { lock(&self.shared.state).deadline } else { None }
    }

    /// Calls `hook` at every [`begin`](Self::begin) from now on, and at once where it has begun. The hook must be
    /// short: it wakes a poller.
    pub fn on_begin(&self, hook: impl Fn() + Send + Sync + 'static) {
        let hook: Arc<dyn Fn() + Send + Sync> = Arc::new(hook);
        lock(&self.shared.state).hooks.push(Arc::clone(&hook));
        if self.is_begun() {
            hook();
        }
    }

    /// A future that is ready once it has begun.
    pub fn begun(&self) -> Begun {
        Begun { shared: Arc::clone(&self.shared), key: None }
    }
}

impl fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shutdown").field("begun", &self.is_begun()).finish_non_exhaustive()
    }
}

/// Ready once a [`Shutdown`] has begun. Dropping it forgets its waker.
pub struct Begun {
    shared: Arc<Shared>,
    key: Option<u64>,
}

impl Future for Begun {
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
        let key = *self.key.get_or_insert_with(|| {
            state.next_key += 1;
            state.next_key
        });
        state.wakers.entry(key).and_modify(|waker| waker.clone_from(cx.waker())).or_insert_with(|| cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            lock(&self.shared.state).wakers.remove(&key);
        }
    }
}

impl fmt::Debug for Begun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Begun(..)")
    }
}

#[cfg(all(test, not(any(polyserve_loom, polyserve_shuttle))))]
mod tests {
    use super::*;
    use crate::answer::park_until;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    #[test]
    fn the_deadline_only_moves_closer() {
        let (shutdown, now) = (Shutdown::new(), Instant::now());
        assert_eq!((shutdown.is_begun(), shutdown.deadline()), (false, None));
        for seconds in [10, 5, 20] {
            shutdown.begin(now + Duration::from_secs(seconds));
        }
        assert_eq!(shutdown.deadline(), Some(now + Duration::from_secs(5)));
    }

    #[test]
    fn hooks_and_futures_hear_of_it() {
        let shutdown = Shutdown::new();
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        shutdown.on_begin(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        let mut begun = shutdown.begun();
        let waiter = std::thread::spawn(move || park_until(None, |cx| Pin::new(&mut begun).poll(cx)));
        shutdown.begin(Instant::now());
        assert_eq!(waiter.join().unwrap(), Some(()));
        assert_eq!(calls.load(Ordering::SeqCst), 1);
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
}
