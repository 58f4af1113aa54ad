//! The servers over an executor, their jobs, and the executor of a run: created for the run, or shared with other work.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;

use polyserve_core::{ConfigError, Executor, Job, ListenOn, Running, Server, ServerConfig, Service, Shape, Supports};
use polyserve_serving::executor::PoolConfig;
use polyserve_serving::{Bound, bind};

use crate::{CrossbeamPool, MpscPool, StealingPool};

/// How a server uses its executor.
pub(super) trait ExecutorStrategy: Send + Sync + 'static {
    /// The name of the server's type.
    const NAME: &'static str;

    /// The settings that it has.
    const SUPPORTS: Supports;

    /// How the server uses threads.
    const SHAPE: Shape;

    /// Adds the defaults of this server to a configuration from which executors are made.
    fn with_defaults(config: ServerConfig) -> ServerConfig {
        config
    }

    /// Serves the connections of a listener. `is_own`: the executor is to be closed at the end of the run.
    fn start(bound: Bound, executor: Arc<dyn Executor>, is_own: bool) -> io::Result<Running>;
}

/// The work of a job.
pub(super) trait ServerJob: Send + 'static {
    /// Does the work, on a thread of the executor.
    fn run(self);

    /// Handles the loss of the job. `in_submit`: it was lost in a call of [`submit`] on this thread.
    fn lost(self, in_submit: bool);
}

thread_local! {
    static IS_SUBMITTING: Cell<bool> = const { Cell::new(false) };
}

/// Submits a job. If the executor rejects the job, drops it, or calls it on this thread within the submission, the job is lost: this
/// thread owns a connection, or must not serve any.
pub(super) fn submit(executor: &dyn Executor, job: impl ServerJob) {
    let mut job = SubmittedJob(Some(job));
    let outer = IS_SUBMITTING.replace(true);
    let _ = executor.execute(Job::new(move || job.run())); // a job that is returned is dropped, and is lost
    IS_SUBMITTING.set(outer);
}

/// A job on its way through an executor.
///
/// Invariant: either [`ServerJob::run`] or [`ServerJob::lost`] is called once for it.
struct SubmittedJob<J: ServerJob>(Option<J>);

impl<J: ServerJob> SubmittedJob<J> {
    fn run(&mut self) {
        if !IS_SUBMITTING.get()
            && let Some(job) = self.0.take()
        {
            job.run();
        }
    }
}

impl<J: ServerJob> Drop for SubmittedJob<J> {
    fn drop(&mut self) {
        if let Some(job) = self.0.take() {
            job.lost(IS_SUBMITTING.get());
        }
    }
}

/// A server over an executor: [`PoolServer`](crate::PoolServer) or [`PoolClassic`](crate::PoolClassic).
pub struct ExecutorServer<S> {
    config: ServerConfig,
    executor: ExecutorSource,
    strategy: PhantomData<S>,
}

#[allow(private_bounds)] // the strategy is no seam
impl<S: ExecutorStrategy> ExecutorServer<S> {
    /// Creates a server on threads that share the standard library's channel ([`MpscPool`]).
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range, or if `config` has a setting that the server has not.
    pub fn mpsc(config: ServerConfig) -> Result<Self, ConfigError> {
        Self::with_factory(config, MpscPool::for_server)
    }

    /// Creates a server on threads that share a channel of the `crossbeam-channel` crate ([`CrossbeamPool`]).
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range, or if `config` has a setting that the server has not.
    ///
    /// ```
    /// let server = polyserve_threadpool::PoolServer::crossbeam(polyserve_core::ServerConfig::default().workers(4))?;
    /// # Ok::<(), polyserve_core::ConfigError>(())
    /// ```
    pub fn crossbeam(config: ServerConfig) -> Result<Self, ConfigError> {
        Self::with_factory(config, CrossbeamPool::for_server)
    }

    /// Creates a server on threads with a queue each, which take jobs from each other ([`StealingPool`]).
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range, or if `config` has a setting that the server has not.
    ///
    /// ```
    /// let server = polyserve_threadpool::PoolServer::stealing(polyserve_core::ServerConfig::default().workers(4))?;
    /// # Ok::<(), polyserve_core::ConfigError>(())
    /// ```
    pub fn stealing(config: ServerConfig) -> Result<Self, ConfigError> {
        Self::with_factory(config, StealingPool::for_server)
    }

    /// Creates a server on executors of your own. Each run creates an executor with `factory`, and closes it at its
    /// end.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range, or if `config` has a setting that the server has not.
    ///
    /// ```
    /// use polyserve_core::ServerConfig;
    /// use polyserve_serving::executor::PoolConfig;
    /// use polyserve_threadpool::{MpscPool, PoolServer};
    ///
    /// let pool = |config: &ServerConfig| MpscPool::new(PoolConfig::from(config).name("mine"));
    /// let server = PoolServer::with_factory(ServerConfig::default(), pool)?;
    /// # Ok::<(), polyserve_core::ConfigError>(())
    /// ```
    pub fn with_factory<E: Executor>(
        config: ServerConfig,
        factory: impl Fn(&ServerConfig) -> io::Result<E> + Send + Sync + 'static,
    ) -> Result<Self, ConfigError> {
        S::SUPPORTS.check(&config)?;
        let executor = ExecutorSource::Own(Box::new(move |config| Ok(factory(config)?.into_shared())));
        Ok(Self { config: S::with_defaults(config), executor, strategy: PhantomData })
    }

    /// Creates a server on one executor for all runs. Pass an `Arc` if the executor has other work too. It is not closed at the
    /// end of a run.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range, if `workers` is set to another number than the executor has, or
    /// if the executor's `execute` may wait.
    ///
    /// ```
    /// use polyserve_core::ServerConfig;
    /// use polyserve_serving::executor::PoolConfig;
    /// use polyserve_threadpool::{CrossbeamPool, PoolServer};
    /// use std::sync::Arc;
    ///
    /// let pool = Arc::new(CrossbeamPool::new(PoolConfig::new(4))?);
    /// let server = PoolServer::with_executor(ServerConfig::default(), Arc::clone(&pool))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_executor(config: ServerConfig, executor: impl Executor) -> Result<Self, ConfigError> {
        S::SUPPORTS.check(&config)?;
        let executor = ExecutorSource::shared(&config, executor.into_shared())?;
        Ok(Self { config, executor, strategy: PhantomData })
    }
}

impl<S: ExecutorStrategy> Server for ExecutorServer<S> {
    fn shape(&self) -> Shape {
        S::SHAPE
    }

    fn max_concurrent(&self) -> Option<usize> {
        let workers = self.executor.workers(&self.config);
        (S::SHAPE == Shape::OnePerThread).then(|| workers.min(self.config.max_connections))
    }

    fn start(&self, on: ListenOn, service: Arc<dyn Service>) -> io::Result<Running> {
        let bound = bind(on, &self.config, service)?;
        let (executor, is_own) = self.executor.start(&self.config)?;
        S::start(bound, executor, is_own)
    }
}

impl<S: ExecutorStrategy> fmt::Debug for ExecutorServer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { config, executor, .. } = self;
        f.debug_struct(S::NAME).field("config", config).field("executor", executor).finish()
    }
}

/// Creates an executor for one run.
type Factory = Box<dyn Fn(&ServerConfig) -> io::Result<Arc<dyn Executor>> + Send + Sync>;

/// Where the executor of a run comes from.
enum ExecutorSource {
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
    /// # Errors
    ///
    /// Returns an error if `workers` is set to another number than the executor has, or if `execute` may wait.
    fn shared(config: &ServerConfig, executor: Arc<dyn Executor>) -> Result<Self, ConfigError> {
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
    fn workers(&self, config: &ServerConfig) -> usize {
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
    fn start(&self, config: &ServerConfig) -> io::Result<(Arc<dyn Executor>, bool)> {
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
