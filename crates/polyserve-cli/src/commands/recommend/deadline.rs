//! The deadline: it ends a run like an interrupt, and remembers that it did.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use polyserve::Shutdown;

/// A deadline. Dropping it cancels it.
pub(super) struct Deadline {
    was_first: Arc<AtomicBool>,
    _on: Sender<()>,
}

impl Deadline {
    /// Begins `stop` after `time`, unless it has begun before.
    ///
    /// # Errors
    ///
    /// Returns an error if no thread can be started.
    pub(super) fn start(time: Duration, stop: &Shutdown) -> anyhow::Result<Self> {
        let (on, off) = channel::<()>();
        let (was_first, stop) = (Arc::new(AtomicBool::new(false)), stop.clone());
        let first = Arc::clone(&was_first);
        let wait = move || {
            if off.recv_timeout(time) == Err(RecvTimeoutError::Timeout) && !stop.is_begun() {
                first.store(true, Ordering::Release);
                stop.begin(Instant::now());
            }
        };
        thread::Builder::new().name("deadline".into()).spawn(wait).context("no thread for the deadline")?;
        Ok(Self { was_first, _on: on })
    }

    /// Returns true if the deadline ended the run.
    pub(super) fn was_first(&self) -> bool {
        self.was_first.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_a_run_and_remembers_it() {
        let stop = Shutdown::new();
        let deadline = Deadline::start(Duration::from_millis(1), &stop).unwrap();
        while !stop.is_begun() {
            thread::yield_now();
        }
        assert!(deadline.was_first());
        let long = Deadline::start(Duration::from_secs(3600), &Shutdown::new()).unwrap();
        assert!(!long.was_first());
    }
}
