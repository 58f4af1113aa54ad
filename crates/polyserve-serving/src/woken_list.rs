//! The connections that other threads have woken, for an event loop.

use std::fmt;
use std::sync::Arc;
use std::task::{Wake, Waker};

use polyserve_core::sync::{Mutex, lock};

/// The numbers of the connections that an event loop has to serve, because their answers are there, or because the table of
/// connections has woken them. Clones share the list.
///
/// Cost: an uncontended lock for each entry; a wake-up of the event loop for the first entry since it took the list; an allocation for
/// each waker.
#[derive(Clone, Debug)]
pub struct WokenList(Arc<WakeState>);

struct WakeState {
    woken: Mutex<Vec<usize>>,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for WakeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WakeState").field("woken", &self.woken).finish_non_exhaustive()
    }
}

/// Wakes one connection.
struct NumberedWaker(WokenList, usize);

impl WokenList {
    /// An empty list. `wake` ends the event loop's wait.
    ///
    /// ```
    /// use polyserve_serving::WokenList;
    /// let thread = std::thread::current();
    /// let list = WokenList::new(move || thread.unpark());
    /// list.waker(7).wake();
    /// std::thread::park();
    /// let mut woken = Vec::new();
    /// list.take(&mut woken);
    /// assert_eq!(woken, [7]);
    /// ```
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(WakeState { woken: Mutex::default(), wake: Box::new(wake) }))
    }

    /// Adds a connection, and wakes the event loop unless it is woken already.
    pub fn wake(&self, number: usize) {
        let is_first = {
            let mut woken = lock(&self.0.woken);
            woken.push(number);
            woken.len() == 1
        };
        if is_first {
            (self.0.wake)();
        }
    }

    /// Returns a waker that adds a connection.
    pub fn waker(&self, number: usize) -> Waker {
        Waker::from(Arc::new(NumberedWaker(self.clone(), number)))
    }

    /// Moves the connections to `ready`. To be called after each wake-up.
    pub fn take(&self, ready: &mut impl Extend<usize>) {
        ready.extend(lock(&self.0.woken).drain(..));
    }
}

impl Wake for NumberedWaker {
    fn wake(self: Arc<Self>) {
        self.0.wake(self.1);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.wake(self.1);
    }
}
