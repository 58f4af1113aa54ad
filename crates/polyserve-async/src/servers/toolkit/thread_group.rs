//! Threads that run a server's tasks. At the end of the run each thread receives a signal, and the group joins the threads
//! within a time limit.
//!
//! Invariant: a thread that is stuck in a service's code, also in the destructor of a thread-local, and does not end in time, is left
//! behind. No thread waits for it.
//!
//! Cost: a promise for each thread, and a message at its end.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use polyserve_core::{Answer, Completer, promise};
use polyserve_serving::{SHUTDOWN_SLACK, join_until};

/// The threads of a run. Dropping the group signals them to end, and waits for none.
pub(crate) struct ThreadGroup {
    name: &'static str,
    threads: Vec<(Completer<()>, JoinHandle<()>)>,
    /// Each thread sends its number when it ends.
    end_sender: Sender<usize>,
    ends: Receiver<usize>,
}

impl ThreadGroup {
    /// An empty group. The name of a thread is `name` and the thread's number.
    pub(crate) fn new(name: &'static str) -> Self {
        let (end_sender, ends) = mpsc::channel();
        Self { name, threads: Vec::new(), end_sender, ends }
    }

    /// Starts a thread that calls `work` with an end signal. When the signal completes, `work` must return soon.
    pub(crate) fn spawn(&mut self, work: impl FnOnce(Answer<()>) + Send + 'static) -> io::Result<()> {
        let (completer, end_signal) = promise(());
        let number = self.threads.len();
        let notice = EndNotice { number, sender: self.end_sender.clone() };
        let thread = thread::Builder::new().name(format!("{}-{number}", self.name)).spawn(move || {
            let _notice = notice; // dropped also if the work panics
            work(end_signal);
        })?;
        self.threads.push((completer, thread));
        Ok(())
    }

    /// Signals the threads to end, and joins all but `stuck` of them. Waits at most [`SHUTDOWN_SLACK`].
    pub(crate) fn join(self, stuck: u64) {
        let (completers, handles): (Vec<_>, Vec<_>) = self.threads.into_iter().unzip();
        drop(completers); // this completes the promises
        let mut handles: Vec<_> = handles.into_iter().map(Some).collect();
        let deadline = Instant::now() + SHUTDOWN_SLACK;
        let mut ended = Vec::new();
        for _ in 0..handles.len().saturating_sub(usize::try_from(stuck).unwrap_or(usize::MAX)) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(number) = self.ends.recv_timeout(left) else { break };
            ended.extend(handles.get_mut(number).and_then(Option::take));
        }
        join_until(ended, deadline); // the panic of a task was reported when it happened
    }
}

/// Sends a thread's number when it is dropped.
struct EndNotice {
    number: usize,
    sender: Sender<usize>,
}

impl Drop for EndNotice {
    fn drop(&mut self) {
        let _ = self.sender.send(self.number); // fails if the group was dropped
    }
}
