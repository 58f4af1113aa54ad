//! The settings of an executor: [`PoolConfig`].

use std::time::Duration;

use polyserve_core::{ConfigError, ServerConfig};

/// The size and the overload behaviour of an executor. Thread pools and the executors on runtimes take the same settings.
///
/// ```
/// use polyserve_serving::executor::{OnFull, PoolConfig};
/// let config = PoolConfig::new(4).queue(64).on_full(OnFull::CallerRuns);
/// assert!(config.validate().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolConfig {
    /// The number of threads.
    pub workers: usize,
    /// The number of jobs that may wait for a worker. Default `Bounded(1024)`.
    pub queue: Queue,
    /// What `execute` does if the queue is full. Default `Reject`.
    pub on_full: OnFull,
    /// A runtime looks for events after each job, rather than after many. An overload policy then knows how long requests have waited;
    /// costs a system call for each job. Thread pools do not read it. Default false.
    pub polls_after_each_job: bool,
    /// The prefix of the thread names `{name}-0`, `{name}-1` and so on. Linux shows the first 15 bytes. Default `pool`.
    pub name: String,
}

/// The number of jobs that may wait for a worker. Running jobs are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Queue {
    /// At most this number of jobs.
    Bounded(usize),
    /// As many as memory holds, as in published thread pools. A burst that is too fast for the workers ends the process. The
    /// executors on runtimes do not support it.
    Unbounded,
}

impl Queue {
    /// The max number of jobs; `None` if nothing bounds it.
    pub fn bound(self) -> Option<usize> {
        match self {
            Self::Bounded(jobs) => Some(jobs),
            Self::Unbounded => None,
        }
    }
}

impl From<usize> for Queue {
    /// A bounded queue.
    fn from(jobs: usize) -> Self {
        Self::Bounded(jobs)
    }
}

/// What `execute` does if the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFull {
    /// Hands the job back at once.
    Reject,
    /// Waits for space for at most this time. If there is still no space, hands the job back. Costs the workers a fence
    /// for each job. A job that submits to its own pool also waits, and occupies its worker during the wait.
    Wait(Duration),
    /// Runs the job on the submitter's thread, so that more than `workers` jobs may run at a time. A panic is caught and
    /// counted as on a worker. Jobs that submit jobs nest on the submitter's stack.
    CallerRuns,
}

impl PoolConfig {
    /// The default number of threads for each core, for jobs that may wait.
    pub(super) const WORKERS_PER_CORE: usize = 4;

    /// Whether submitters may wait for space.
    #[inline]
    pub(super) fn may_wait(&self) -> bool {
        matches!(self.on_full, OnFull::Wait(_))
    }

    /// The settings of a pool with `workers` threads and defaults for the rest.
    pub fn new(workers: usize) -> Self {
        let (queue, on_full, name) = (Queue::Bounded(1024), OnFull::Reject, String::from("pool"));
        Self { workers, queue, on_full, polls_after_each_job: false, name }
    }

    /// Sets [`queue`](field@Self::queue).
    #[must_use]
    pub fn queue(mut self, queue: impl Into<Queue>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Sets [`on_full`](field@Self::on_full).
    #[must_use]
    pub fn on_full(mut self, on_full: OnFull) -> Self {
        self.on_full = on_full;
        self
    }

    /// Sets [`polls_after_each_job`](field@Self::polls_after_each_job).
    #[must_use]
    pub fn polls_after_each_job(mut self, polls: bool) -> Self {
        self.polls_after_each_job = polls;
        self
    }

    /// Sets [`name`](field@Self::name).
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// Returns an error that names the first invalid setting and its valid range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let queue = self.queue.bound().unwrap_or(1);
        for (name, value, max) in
            [("workers", self.workers, ServerConfig::MAX_WORKERS), ("queue", queue, ServerConfig::MAX_CONNECTIONS)]
        {
            if value == 0 || value > max {
                return Err(ConfigError::new(name, value, format!("from 1 to {max}")));
            }
        }
        if self.name.contains('\0') {
            let name = format!("{:?}", self.name);
            return Err(ConfigError::new("name", name, "free of NUL bytes, as a thread's name"));
        }
        Ok(())
    }
}

impl From<&ServerConfig> for PoolConfig {
    /// The pool of a server: its workers and its queue. If `workers` is not set, four for each core. It looks for events after each job
    /// if the server has an overload policy.
    fn from(config: &ServerConfig) -> Self {
        let pool = Self::new(config.workers_or(Self::WORKERS_PER_CORE)).queue(config.queue_or_default());
        pool.polls_after_each_job(config.overload.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = [
            ("workers", PoolConfig::new(0)),
            ("workers", PoolConfig::new(ServerConfig::MAX_WORKERS + 1)),
            ("queue", PoolConfig::new(2).queue(Queue::Bounded(0))),
            ("queue", PoolConfig::new(2).queue(Queue::Bounded(usize::MAX))),
            ("name", PoolConfig::new(2).name("a\0b")),
        ];
        for (setting, config) in wrong {
            assert_eq!(config.validate().unwrap_err().setting(), setting);
        }
        assert_eq!(PoolConfig::new(2).queue(Queue::Unbounded).validate(), Ok(()));
    }

    #[test]
    fn a_servers_pool_has_its_workers_and_its_queue() {
        let server = ServerConfig::default().workers(3).queue(7);
        let expected = PoolConfig::new(3).queue(Queue::Bounded(7));
        assert_eq!(PoolConfig::from(&server), expected);
        let overload = polyserve_core::overload::Overload::gradient();
        assert_eq!(PoolConfig::from(&server.overload(overload)), expected.polls_after_each_job(true));
        assert_eq!(PoolConfig::from(&ServerConfig::default()).workers, polyserve_core::cores() * 4);
    }
}
