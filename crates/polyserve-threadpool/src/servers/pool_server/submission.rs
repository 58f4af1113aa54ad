//! Submitting jobs to an executor that may reject them, drop them, or run them on the submitting thread.
//!
//! Invariant: for each submitted job, either [`PoolServerState::work`] or [`PoolServerState::job_lost`] is called once, as long as
//! the state exists. Cost: one allocation for each job.

use std::cell::Cell;
use std::sync::Weak;

use polyserve_core::{Executor, Job};

use super::worker::PoolServerState;

/// Submits a job of a server. If the executor calls the job on this thread, the job is lost: the thread owns a connection,
/// or must not serve any.
pub(super) fn submit(executor: &dyn Executor, server: Weak<PoolServerState>) {
    let mut job = SubmittedJob { server, has_begun: false };
    let outer = IS_SUBMITTING.replace(true);
    let _ = executor.execute(Job::new(move || job.run())); // a job that is returned is dropped, and is lost
    IS_SUBMITTING.set(outer);
}

thread_local! {
    static IS_SUBMITTING: Cell<bool> = const { Cell::new(false) };
}

struct SubmittedJob {
    server: Weak<PoolServerState>,
    has_begun: bool,
}

impl SubmittedJob {
    fn run(&mut self) {
        if IS_SUBMITTING.get() {
            return;
        }
        if let Some(server) = self.server.upgrade() {
            self.has_begun = true;
            server.work();
        }
    }
}

impl Drop for SubmittedJob {
    fn drop(&mut self) {
        if !self.has_begun
            && let Some(server) = self.server.upgrade()
        {
            server.job_lost();
        }
    }
}
