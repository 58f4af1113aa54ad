//! [`PollWaker`]: notes a wake that comes while hyper is polled.
//!
//! After 16 rounds hyper wakes its task by reference. tokio runs a task that is woken so before it looks at its sockets, 61 times in a
//! row. With this waker, the connection's loop decides when it polls again.
//!
//! Cost: an atomic store and a swap for each poll of hyper; an allocation for each connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Wake, Waker};

/// The waker that hyper is polled with. The socket wakes the task itself. A service may keep it for long, so it holds nothing of the
/// connection.
///
/// No wake is lost: both sides change the same word. A wake that finds no poll in progress wakes the task; the end of a poll finds
/// every other wake.
pub(super) struct PollWaker {
    task: Waker,
    state: AtomicU8,
}

/// The bit of a poll in progress.
const POLLING: u8 = 1;

/// The bit of a wake since the last poll began.
const WOKEN: u8 = 2;

impl PollWaker {
    /// The waker of a connection that runs in the task of `task`.
    pub(super) fn new(task: Waker) -> Arc<Self> {
        Arc::new(Self { task, state: AtomicU8::new(0) })
    }

    /// Notes that a poll begins. The caller then polls with this waker.
    pub(super) fn begin_poll(&self) {
        self.state.store(POLLING, Ordering::Release);
    }

    /// Notes that the poll has ended. Returns whether a wake came meanwhile. The caller must poll again after such a wake: the task
    /// is not woken.
    pub(super) fn end_poll(&self) -> bool {
        self.state.swap(0, Ordering::AcqRel) & WOKEN != 0
    }
}

impl Wake for PollWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.fetch_or(WOKEN, Ordering::AcqRel) & POLLING == 0 {
            self.task.wake_by_ref();
        }
    }
}
