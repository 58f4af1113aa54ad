//! An executor around a pool, for what a shared executor may do with the jobs of a server.

use std::fmt;
use std::time::Instant;

use polyserve_core::{Executor, Job, Rejected};
use polyserve_threadpool::MpscPool;

/// Passes each job to a function, which may submit it to the pool.
pub(crate) struct WrappedPool<F> {
    pub(crate) pool: MpscPool,
    pub(crate) execute: F,
}

impl<F: Fn(&MpscPool, Job) -> Result<(), Rejected> + Send + Sync + 'static> Executor for WrappedPool<F> {
    fn execute(&self, job: Job) -> Result<(), Rejected> {
        (self.execute)(&self.pool, job)
    }

    fn workers(&self) -> Option<usize> {
        self.pool.workers()
    }

    fn close(&self, deadline: Option<Instant>) -> usize {
        self.pool.close(deadline)
    }

    fn panicked(&self) -> u64 {
        self.pool.panicked()
    }
}

impl<F> fmt::Debug for WrappedPool<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WrappedPool").field("pool", &self.pool).finish_non_exhaustive()
    }
}
