//! The settings of an executor on a runtime: [`TasksConfig`].

use polyserve_core::{ConfigError, ServerConfig, cores};
use polyserve_serving::executor::{PoolConfig, Queue};

/// The settings of an executor on a runtime. They are the same for all executors of this crate.
///
/// ```
/// use polyserve_async::TasksConfig;
/// let config = TasksConfig::new(4).queue(64);
/// assert!(config.validate().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TasksConfig {
    /// The number of threads.
    pub workers: usize,
    /// The number of jobs that may wait for a worker. Running jobs are not counted. Further jobs are handed back.
    /// Default 1 024. Each slot costs some 32 bytes from the start.
    pub queue: usize,
    /// The prefix of the thread names `{name}-0`, `{name}-1` and so on. Linux shows the first 15 bytes. Default `tasks`.
    pub name: String,
}

impl TasksConfig {
    /// The settings of an executor with `workers` threads and defaults for the rest.
    pub fn new(workers: usize) -> Self {
        Self { workers, queue: 1024, name: String::from("tasks") }
    }

    /// Sets [`queue`](field@Self::queue).
    #[must_use]
    pub fn queue(mut self, queue: usize) -> Self {
        self.queue = queue;
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
        PoolConfig::from(self.clone()).validate()
    }
}

impl From<TasksConfig> for PoolConfig {
    /// The same settings. A job that finds the queue full is handed back.
    fn from(config: TasksConfig) -> Self {
        Self::new(config.workers).queue(Queue::Bounded(config.queue)).name(config.name)
    }
}

impl Default for TasksConfig {
    /// One worker for each core.
    fn default() -> Self {
        Self::new(cores())
    }
}

impl From<&ServerConfig> for TasksConfig {
    /// The workers and the queue of a server. By default one worker for each core, which suits CPU work and is the default of
    /// the runtimes. A thread pool has four for each core, because its jobs may wait.
    fn from(config: &ServerConfig) -> Self {
        Self::new(config.workers_or(1)).queue(config.queue_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = [
            ("workers", TasksConfig::new(0)),
            ("workers", TasksConfig::new(ServerConfig::MAX_WORKERS + 1)),
            ("queue", TasksConfig::new(2).queue(0)),
            ("queue", TasksConfig::new(2).queue(usize::MAX)),
            ("name", TasksConfig::new(2).name("a\0b")),
        ];
        for (setting, config) in wrong {
            assert_eq!(config.validate().unwrap_err().setting(), setting);
        }
        assert_eq!(TasksConfig::default().validate(), Ok(()));
    }

    #[test]
    fn a_servers_tasks_have_its_workers_and_its_queue() {
        let server = ServerConfig::default().workers(3).queue(7);
        assert_eq!(TasksConfig::from(&server), TasksConfig::new(3).queue(7));
        assert_eq!(TasksConfig::from(&ServerConfig::default()), TasksConfig::default());
    }
}
