//! Joining threads within a time limit.
//!
//! After its work, a thread still runs the destructors of its thread-locals. A service may have such a thread-local, and its
//! destructor may take any time. std joins without a limit, so another thread joins.

use std::thread::Result;
use std::time::Instant;

use polyserve_core::sync::thread::JoinHandle;

/// Joins threads, at the latest until `deadline`. Leaves the others behind. Returns the results of the threads that were joined.
///
/// Cost: starts and ends a thread. If the system cannot start it, all threads are left behind.
#[cfg(not(any(polyserve_loom, polyserve_shuttle)))]
pub fn join_until(threads: Vec<JoinHandle<()>>, deadline: Instant) -> Vec<Result<()>> {
    let (count, (sender, results)) = (threads.len(), std::sync::mpsc::channel());
    let joining = std::thread::Builder::new().name("join".into()).spawn(move || {
        for thread in threads {
            let _ = sender.send(thread.join()); // an error: the deadline has passed
        }
    });
    let left = || deadline.saturating_duration_since(Instant::now());
    let results: Vec<_> = (0..count).map_while(|_| results.recv_timeout(left()).ok()).collect();
    if results.len() == count {
        let _ = joining.map(JoinHandle::join); // it has nothing left to do
    }
    results
}

/// Joins threads. A model checker has no thread that does not end.
#[cfg(any(polyserve_loom, polyserve_shuttle))]
pub fn join_until(threads: Vec<JoinHandle<()>>, _deadline: Instant) -> Vec<Result<()>> {
    threads.into_iter().map(JoinHandle::join).collect()
}
