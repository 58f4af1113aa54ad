//! [`WakeStamp`]: a waker that notes when it was woken, so that an overload policy knows how long a task has waited for its thread.
//!
//! The time that bytes spend in the kernel, until the runtime looks at its sockets, is not known.
//!
//! Cost: an allocation for each connection, and a clock read and an atomic operation for each wake. Used with an overload policy only.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

/// The waker of a task, with the time of the first wake since the task was polled.
#[derive(Debug)]
pub(crate) struct WakeStamp {
    task: Waker,
    start: Instant,
    /// In nanoseconds since the start, and at least 1. 0 if there was no wake.
    woken: AtomicU64,
}

impl WakeStamp {
    /// The waker of a task that is polled now.
    pub(crate) fn new(task: Waker) -> Arc<Self> {
        Arc::new(Self { task, start: Instant::now(), woken: AtomicU64::new(0) })
    }

    /// Returns the time of the first wake since the last call, if there was one. To be called when the task is polled.
    pub(crate) fn take(&self) -> Option<Instant> {
        // The value is all that is shared: a wake that comes later finds its own poll.
        match self.woken.swap(0, Ordering::Relaxed) {
            0 => None,
            nanos => self.start.checked_add(Duration::from_nanos(nanos)),
        }
    }
}

impl Wake for WakeStamp {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.woken.load(Ordering::Relaxed) == 0 {
            let nanos = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1);
            let _ = self.woken.compare_exchange(0, nanos, Ordering::Relaxed, Ordering::Relaxed);
        }
        self.task.wake_by_ref();
    }
}

/// The waker that the task of a connection is to be woken by, with its stamp if there is an overload policy.
#[derive(Debug, Default)]
pub(crate) struct TaskWaker {
    /// The waker that the runtime has lent. `None` before the first poll.
    task: Option<Waker>,
    stamp: Option<(Arc<WakeStamp>, Waker)>,
}

impl TaskWaker {
    /// Takes the waker of a poll. Returns whether it is another than before: [`waker`](Self::waker) is then to be used from now on.
    #[inline]
    pub(crate) fn renew(&mut self, task: &Waker, is_stamped: bool) -> bool {
        if self.task.as_ref().is_some_and(|known| known.will_wake(task)) {
            return false;
        }
        self.task = Some(task.clone());
        self.stamp = is_stamped.then(|| {
            let stamp = WakeStamp::new(task.clone());
            (Arc::clone(&stamp), stamp.into())
        });
        true
    }

    /// The waker to use in place of the runtime's. `None` before the first poll.
    #[inline]
    pub(crate) fn waker(&self) -> Option<&Waker> {
        self.stamp.as_ref().map(|(_, waker)| waker).or(self.task.as_ref())
    }

    /// Returns the time of the wake that this poll follows, if that is known.
    #[inline]
    pub(crate) fn woken(&self) -> Option<Instant> {
        self.stamp.as_ref()?.0.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoTask;

    impl Wake for NoTask {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn the_first_wake_counts_and_is_taken_once() {
        let (mut waker, task) = (TaskWaker::default(), Waker::from(Arc::new(NoTask)));
        assert!(waker.renew(&task, true) && !waker.renew(&task, true));
        assert_eq!(waker.woken(), None);
        let before = Instant::now();
        waker.waker().unwrap().wake_by_ref();
        let after = Instant::now();
        waker.waker().unwrap().wake_by_ref();
        let woken = waker.woken().unwrap();
        assert!(before <= woken && woken <= after);
        assert_eq!(waker.woken(), None);
    }

    #[test]
    fn without_a_policy_the_runtimes_own_waker_is_used() {
        let (mut waker, task) = (TaskWaker::default(), Waker::from(Arc::new(NoTask)));
        assert!(waker.waker().is_none() && waker.renew(&task, false));
        assert!(waker.waker().unwrap().will_wake(&task));
        waker.waker().unwrap().wake_by_ref();
        assert_eq!(waker.woken(), None);
    }
}
