//! `futures_pool`: [`PoolClassic`] over the thread pool of the futures crate, as the published comparisons used it.
//!
//! ```text
//!   PoolClassic's main thread             FuturesTasks: futures_executor::ThreadPool
//!   accept -> queue -> a task  ------->   a thread serves the connection until it closes
//!     ^    \-> 503 if full                     |
//!     +--- silent connections, lingering ones -+
//! ```
//!
//! [`PoolClassic`] has the accept loop and the job of a connection. The channel of the pool has no bound, so [`FuturesTasks`]
//! bounds the number of waiting tasks. It also ends the threads. This file only joins the two.
//!
//! Invariant: as [`PoolClassic`]'s. While a connection waits for a thread, answers say `Connection: close`, and idle
//! connections are closed.
//!
//! Cost: as [`PoolClassic`]'s, and for a connection the three allocations of a task.
//!
//! Source: the published comparison of a page that sometimes waits, with `futures_executor::ThreadPool` of 100 threads.
//!
//! *Wins when* nothing: it is here to be compared with. *Loses when* connections are kept: it answers fewer requests
//! than `tokio_tcp` (`servers-kept`). It also loses if answers are deferred, because each of them holds a thread.
//! Records: `docs/results`.

use std::io;
use std::sync::Arc;

use polyserve_async::FuturesTasks;
use polyserve_core::{ConfigError, ListenOn, Running, Server, ServerConfig, Service, Shape};
use polyserve_serving::executor::PoolConfig;
use polyserve_threadpool::PoolClassic;

/// The number of threads of the published pool.
const PUBLISHED_THREADS: usize = 100;

/// A server that runs each connection as a task that blocks, on the thread pool of the futures crate.
///
/// ```
/// use polyserve::prelude::*;
///
/// let server = FuturesPool::new(ServerConfig::default().workers(4))?;
/// let running = server.serve("127.0.0.1:0", polyserve::Echo)?;
/// assert_eq!(running.shutdown()?.answered, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FuturesPool(PoolClassic);

impl FuturesPool {
    /// Creates a server within the limits of `config`. `workers` is the number of the pool's threads, by default 100.
    ///
    /// A service must not call `futures::executor::block_on`: the futures crate refuses it on the threads of its own pool.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        let workers = config.workers.unwrap_or(PUBLISHED_THREADS);
        let config = config.workers(workers);
        let pool =
            PoolClassic::with_factory(config, |config| FuturesTasks::new(PoolConfig::from(config).name("futures")))?;
        Ok(Self(pool))
    }
}

#[deny(clippy::missing_trait_methods)]
impl Server for FuturesPool {
    fn shape(&self) -> Shape {
        self.0.shape()
    }

    fn max_concurrent(&self) -> Option<usize> {
        self.0.max_concurrent()
    }

    fn start(&self, on: ListenOn, service: Arc<dyn Service>) -> io::Result<Running> {
        self.0.start(on, service)
    }
}
