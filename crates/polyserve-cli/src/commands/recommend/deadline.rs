//! The end of the time: a run that is not over by then ends as if it had been interrupted, but knows why.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use polyserve::Shutdown;

/// A deadline. It is off when this is dropped.
pub(super) struct Deadline {
    was_first: Arc<AtomicBool>,
    _on: Sender<()>,
}

impl Deadline {
    /// Begins `stop` when so much time is over, if nobody has begun it before.
    ///
    /// # Errors
    ///
    /// Where there is no thread to wait.
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
        thread::Builder::new().name("deadline".into()).spawn(wait).context("no thread to wait for the time's end")?;
        Ok(Self { was_first, _on: on })
    }

    /// Whether the time was over before anybody else ended the run.
    pub(super) fn was_first(&self) -> bool {
        self.was_first.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_a_run_once_and_says_so() {
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
