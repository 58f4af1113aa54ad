//! What both executors on tokio do alike: a runtime whose threads are counted, and its end.
//!
//! tokio joins a runtime's threads where the runtime is dropped, which waits, and is a panic on a thread of tokio's. So
//! a drained runtime is dropped on a thread made for it, which closings then join; one with stuck jobs is told to end in
//! the background, and nobody joins its threads.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use polyserve_core::sync::lock;
use tokio::runtime::{Builder, Handle, Runtime};

use super::tasks_config::TasksConfig;
use super::threads::{Threads, join_once};

pub(super) struct TokioRuntime {
    pub(super) handle: Handle,
    /// Until it is stopped.
    runtime: Arc<Mutex<Option<Runtime>>>,
    /// Who drops it.
    dropping: Mutex<Option<JoinHandle<()>>>,
    threads: Arc<Threads>,
}

impl TokioRuntime {
    pub(super) fn start(mut builder: Builder, config: &TasksConfig, threads: &Arc<Threads>) -> io::Result<Self> {
        let (name, index) = (config.name.clone(), AtomicUsize::new(0));
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
                // What a job has left in the runtime may close the executor as it is dropped: from within.
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

    pub(super) fn join(&self) {
        join_once(&self.dropping);
    }
}
