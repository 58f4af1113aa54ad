//! The executor of a server: created for each run, or shared with other work.

use std::fmt;
use std::io;
use std::sync::Arc;

use polyserve_core::{ConfigError, Executor, ServerConfig};

use crate::PoolConfig;

/// Creates an executor for one run.
type Factory = Box<dyn Fn(&ServerConfig) -> io::Result<Arc<dyn Executor>> + Send + Sync>;

/// Where the executor of a run comes from.
pub(super) enum ExecutorSource {
    /// Each run creates an executor, and closes it at its end.
    Own(Factory),
    /// The executor may have other work too, and is not closed.
    Shared(Arc<dyn Executor>),
}

/// A server that waits for space in the queue cannot accept.
fn waiting_error() -> ConfigError {
    ConfigError::new("on_full", "Wait", "Reject or CallerRuns for a server, which answers 503 if the queue is full")
}

impl ExecutorSource {
    pub(super) fn new<E: Executor>(factory: impl Fn(&ServerConfig) -> io::Result<E> + Send + Sync + 'static) -> Self {
        Self::Own(Box::new(move |config| Ok(factory(config)?.into_shared())))
    }

    /// # Errors
    ///
    /// Returns an error if `workers` is set to another number than the executor has, or if `execute` may wait.
    pub(super) fn shared(config: &ServerConfig, executor: Arc<dyn Executor>) -> Result<Self, ConfigError> {
        if executor.may_wait() {
            return Err(waiting_error());
        }
        match (config.workers, executor.workers()) {
            (Some(configured), Some(actual)) if configured != actual => {
                Err(ConfigError::new("workers", configured, format!("{actual}, as the shared executor has")))
            }
            _ => Ok(Self::Shared(executor)),
        }
    }

    /// The number of jobs that run at once, as far as it is known before a run.
    pub(super) fn workers(&self, config: &ServerConfig) -> usize {
        match self {
            Self::Own(_) => PoolConfig::from(config).workers,
            Self::Shared(executor) => executor.workers().unwrap_or(usize::MAX),
        }
    }

    /// Returns the executor for a run, and whether it is to be closed at the run's end.
    ///
    /// # Errors
    ///
    /// Returns the factory's error, or an error if the executor that it creates may wait.
    pub(super) fn start(&self, config: &ServerConfig) -> io::Result<(Arc<dyn Executor>, bool)> {
        match self {
            Self::Own(factory) => {
                let executor = factory(config)?;
                if executor.may_wait() {
                    return Err(waiting_error().into());
                }
                Ok((executor, true))
            }
            Self::Shared(executor) => Ok((Arc::clone(executor), false)),
        }
    }
}

impl fmt::Debug for ExecutorSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(_) => f.write_str("Own(..)"),
            Self::Shared(executor) => f.debug_tuple("Shared").field(executor).finish(),
        }
    }
}
