//! The start of tokio runtimes with several threads.
//!
//! If the system refuses a worker of such a runtime, tokio panics, and then waits for ever for the workers that it has started. So
//! as many threads are tried before.
//!
//! Cost: the start and the end of each thread, once for a runtime.

use std::io;
use std::sync::Mutex;
use std::thread;

use tokio::runtime::Builder;

/// Returns the builder of a runtime with this number of workers, which the system does not refuse.
///
/// # Errors
///
/// Returns the system's error if it refuses a thread.
pub(crate) fn multi_thread(workers: usize) -> io::Result<Builder> {
    try_threads(workers)?;
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(workers).enable_all();
    Ok(builder)
}

/// Starts this number of threads, which live at the same time, and ends them.
///
/// # Errors
///
/// Returns the system's error if it refuses a thread.
pub(crate) fn try_threads(count: usize) -> io::Result<()> {
    let gate = Mutex::new(());
    thread::scope(|scope| {
        let _closed = gate.lock(); // until all have started
        (0..count).try_for_each(|_| thread::Builder::new().spawn_scoped(scope, || drop(gate.lock())).map(drop))
    })
}

#[cfg(test)]
mod tests {
    use super::try_threads;

    #[test]
    fn threads_are_tried_and_end() {
        try_threads(0).unwrap();
        try_threads(50).unwrap();
    }
}
