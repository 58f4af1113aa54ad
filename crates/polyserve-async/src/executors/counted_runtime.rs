//! A tokio runtime that counts its threads, and the end of the runtime. Both executors on tokio use it.
//!
//! When a runtime is dropped, tokio joins the runtime's threads. That drop blocks, and it panics on a thread of tokio. So a drained
//! runtime is dropped on a new thread, and each close joins that thread, at the latest until its deadline. A runtime with stuck jobs ends
//! in the background, and its threads are not joined.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use polyserve_core::sync::lock;
use polyserve_serving::executor::{PoolShared, ThreadRegistry};
use polyserve_serving::join_until;
use tokio::runtime::{Builder, Handle, Runtime};

/// Joins the thread unless it was joined before, at the latest until `deadline`. Concurrent callers wait for the join too: the lock is
/// held.
pub(super) fn join_once(thread: &Mutex<Option<JoinHandle<()>>>, deadline: Option<Instant>) {
    let mut thread = lock(thread);
    match (thread.take(), deadline) {
        (Some(thread), Some(deadline)) => drop(join_until(vec![thread], deadline)),
        (Some(thread), None) => drop(thread.join()), // a panic has been reported
        (None, _) => {}
    }
}

/// A tokio runtime that reports the start and the end of its threads.
pub(super) struct CountedRuntime {
    pub(super) handle: Handle,
    /// `None` once it is stopped.
    runtime: Arc<Mutex<Option<Runtime>>>,
    /// The thread that drops the runtime.
    dropping: Mutex<Option<JoinHandle<()>>>,
    threads: Arc<ThreadRegistry>,
}

impl CountedRuntime {
    pub(super) fn start(mut builder: Builder, shared: &PoolShared) -> io::Result<Self> {
        let (threads, name, index) = (&shared.threads, shared.config.name.clone(), AtomicUsize::new(0));
        builder.thread_name_fn(move || format!("{name}-{}", index.fetch_add(1, Ordering::Relaxed)));
        let (starting, ending) = (Arc::clone(threads), Arc::clone(threads));
        builder.on_thread_start(move || {
            starting.started();
            starting.adopt();
        });
        builder.on_thread_stop(move || ending.ended());
        let runtime = builder.build()?;
        Ok(Self {
            handle: runtime.handle().clone(),
            runtime: Arc::new(Mutex::new(Some(runtime))),
            dropping: Mutex::new(None),
            threads: Arc::clone(threads),
        })
    }

    pub(super) fn stop(&self, drained: bool) {
        if drained {
            let (runtime, threads) = (Arc::clone(&self.runtime), Arc::clone(&self.threads));
            let mut dropping = lock(&self.dropping);
            let thread = thread::Builder::new().name(String::from("tokio-end")).spawn(move || {
                // A value that a job left in the runtime may close the executor in its destructor. The mark keeps that
                // close from waiting for this thread.
                threads.adopt();
                let runtime = lock(&runtime).take();
                drop(runtime);
            });
            *dropping = thread.ok();
            if dropping.is_some() {
                return;
            }
        }
        if let Some(runtime) = lock(&self.runtime).take() {
            runtime.shutdown_background();
        }
    }

    pub(super) fn join(&self, deadline: Option<Instant>) {
        join_once(&self.dropping, deadline);
    }
}
