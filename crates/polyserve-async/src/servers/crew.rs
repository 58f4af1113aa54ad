//! The threads of a run that run tasks: each ends when it is told to, and all are joined within a bound.
//!
//! Invariant: a thread that does not end in time, for it is stuck in a service's code, is left behind and waited for by
//! nobody. Cost: a promise for each thread, at its start and at its end.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use polyserve_core::Completer;
use polyserve_core::answer::{Answer, promise};
use polyserve_core::serving::LAST_GRACE;

/// Some threads. Dropping it tells them to end, and waits for none.
pub(crate) struct Crew {
    name: &'static str,
    threads: Vec<(Completer<()>, JoinHandle<()>)>,
    /// Each thread has a clone of the sender, and drops it last.
    aboard: Sender<()>,
    gone: Receiver<()>,
}

impl Crew {
    /// Nobody yet; threads are called `name` and their number.
    pub(crate) fn new(name: &'static str) -> Self {
        let (aboard, gone) = mpsc::channel();
        Self { name, threads: Vec::new(), aboard, gone }
    }

    /// Starts a thread that does `work`, which is to return soon after its answer has come.
    pub(crate) fn start(&mut self, work: impl FnOnce(Answer<()>) + Send + 'static) -> io::Result<()> {
        let (end, told) = promise(());
        let aboard = self.aboard.clone();
        let thread = thread::Builder::new().name(format!("{}-{}", self.name, self.threads.len())).spawn(move || {
            let _aboard = aboard; // dropped however the work ends
            work(told);
        })?;
        self.threads.push((end, thread));
        Ok(())
    }

    /// Ends the threads. So many are stuck: where any is, it waits for none, otherwise for [`LAST_GRACE`] at the most.
    pub(crate) fn end(self, stuck: u64) {
        let Self { name: _, threads, aboard, gone } = self;
        drop(aboard);
        let (ends, handles): (Vec<_>, Vec<_>) = threads.into_iter().unzip();
        drop(ends); // a promise that is dropped is kept
        let left = if stuck > 0 { Duration::ZERO } else { LAST_GRACE };
        let all_gone = matches!(gone.recv_timeout(left), Err(RecvTimeoutError::Disconnected));
        for thread in handles.into_iter().filter(|thread| all_gone || thread.is_finished()) {
            let _ = thread.join(); // a panic of a task is the runtime's own
        }
    }
}
