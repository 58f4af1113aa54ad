//! Submitting jobs to an executor that may reject them, drop them, or run them on the submitting thread.
//!
//! Invariant: for each submitted job, either [`JobOwner::work`] or [`JobOwner::job_lost`] is called once, as long as the owner
//! exists. Cost: one allocation for each job.

use std::cell::Cell;
use std::sync::Weak;

use polyserve_core::{Executor, Job};

/// The state that jobs work on.
pub(super) trait JobOwner: Send + Sync + 'static {
    /// The work of a job.
    fn work(&self);

    /// A job did not begin: the executor rejected it, dropped it, or called it inside [`submit`].
    fn job_lost(&self);
}

/// Submits a job for `owner`. If the executor calls the job on this thread, the job is lost: the thread owns a connection,
/// or must not serve any.
pub(super) fn submit<O: JobOwner>(executor: &dyn Executor, owner: Weak<O>) {
    let mut job = SubmittedJob { owner, has_begun: false };
    let outer = IS_SUBMITTING.replace(true);
    let _ = executor.execute(Job::new(move || job.run())); // a job that is returned is dropped, and is lost
    IS_SUBMITTING.set(outer);
}

thread_local! {
    static IS_SUBMITTING: Cell<bool> = const { Cell::new(false) };
}

struct SubmittedJob<O: JobOwner> {
    owner: Weak<O>,
    has_begun: bool,
}

impl<O: JobOwner> SubmittedJob<O> {
    fn run(&mut self) {
        if IS_SUBMITTING.get() {
            return;
        }
        if let Some(owner) = self.owner.upgrade() {
            self.has_begun = true;
            owner.work();
        }
    }
}

impl<O: JobOwner> Drop for SubmittedJob<O> {
    fn drop(&mut self) {
        if !self.has_begun
            && let Some(owner) = self.owner.upgrade()
        {
            owner.job_lost();
        }
    }
}
