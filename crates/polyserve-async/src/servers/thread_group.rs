//! The threads of a run that run tasks: each ends when it is told to, and all are joined within a bound.
//!
//! Invariant: a thread that does not end in time, for it is stuck in a service's code, is left behind and waited for by
//! nobody. Cost: a promise for each thread, at its start and at its end.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use polyserve_core::Completer;
use polyserve_core::answer::{Answer, promise};
use polyserve_core::serving::SHUTDOWN_SLACK;

/// Some threads. Dropping it tells them to end, and waits for none.
pub(crate) struct ThreadGroup {
    name: &'static str,
    threads: Vec<(Completer<()>, JoinHandle<()>)>,
    /// Each thread says its number as it ends.
    started: Sender<usize>,
    gone: Receiver<usize>,
}

impl ThreadGroup {
    /// Nobody yet; threads are called `name` and their number.
    pub(crate) fn new(name: &'static str) -> Self {
        let (started, gone) = mpsc::channel();
        Self { name, threads: Vec::new(), started, gone }
    }

    /// Starts a thread that does `work`, which is to return soon after its answer has come.
    pub(crate) fn start(&mut self, work: impl FnOnce(Answer<()>) + Send + 'static) -> io::Result<()> {
        let (end, told) = promise(());
        let number = self.threads.len();
        let notice = EndNotice { number, gone: self.started.clone() };
        let thread = thread::Builder::new().name(format!("{}-{number}", self.name)).spawn(move || {
            let _leaving = notice; // dropped however the work ends
            work(told);
        })?;
        self.threads.push((end, thread));
        Ok(())
    }

    /// Ends the threads and joins all but those that are stuck, which are so many; waits [`SHUTDOWN_SLACK`] at the most.
    pub(crate) fn end(self, stuck: u64) {
        let (ends, handles): (Vec<_>, Vec<_>) = self.threads.into_iter().unzip();
        drop(ends); // a promise that is dropped is kept
        let mut handles: Vec<_> = handles.into_iter().map(Some).collect();
        let deadline = Instant::now() + SHUTDOWN_SLACK;
        for _ in 0..handles.len().saturating_sub(usize::try_from(stuck).unwrap_or(usize::MAX)) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(number) = self.gone.recv_timeout(left) else { break };
            if let Some(thread) = handles.get_mut(number).and_then(Option::take) {
                let _ = thread.join(); // a panic of a task is the runtime's own
            }
        }
    }
}

/// Says that a thread ends.
struct EndNotice {
    number: usize,
    gone: Sender<usize>,
}

impl Drop for EndNotice {
    fn drop(&mut self) {
        let _ = self.gone.send(self.number); // nobody may be left to hear it
    }
}
