//! The thread pool of the futures crate, as the published comparisons used it: a connection is a task that blocks its
//! thread from its first byte to its close.
//!
//! A thread of the server accepts. A connection that has not sent a byte waits in its lobby, so that a silent one holds
//! no thread; with its first byte it becomes a task. While all threads are held and a connection waits for one, the
//! connection that has been idle for longest, between two requests, is told to leave. A request that stalls holds its
//! thread until its timeout, as does an answer that comes later: a client waits for at most that, times the connections
//! ahead of it for each thread. Its own timeouts begin when it has a thread.
//!
//! The pool's channel has no bound, so what waits is kept here: a task is a ticket for whoever waits for longest. Past
//! `queue` of them a newcomer is answered 503.
//!
//! Nobody can join the pool's threads. The server's end waits for a hook that each of them drops when it ends, a few
//! instructions before it is gone. A pool hears of its own end only when no task holds it any more; where a thread is
//! stuck, the others are ended by tasks that unwind.
//!
//! Invariants: a connection that waits for a thread finds one, or one has been told to leave for it, or none is idle;
//! there are no more connections than `max_connections`, but for those that leave for another's sake.
//!
//! Cost: for a connection an accept, a look whether its first byte is there, two passes through the pool's locks, and a
//! thread woken; for a request a `poll`, a read and a write. A look at n connections in the lobby for whatever comes
//! while they are silent.
//!
//! Source: `futures_executor::ThreadPool`; the comparison of a page that sometimes waits.
//!
//! *Wins when* nothing; it is here to be compared with. *Loses when* more connections than threads want something at
//! once: a pool of 8 answers 8 that wait, and no more.
//!
//! # Layout
//!
//! `main_loop`: who accepts, and how a run ends; `dispatcher`: who waits and who is served; `visit`: how a task reads and writes.

mod dispatcher;
mod main_loop;
mod task;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use polyserve_core::{ConfigError, Connections, Running, Server, ServerConfig, Service};

use main_loop::MainLoop;

/// The published pools' size.
const THREADS: usize = 100;

/// The threads of a pool.
fn threads(config: &ServerConfig) -> usize {
    config.workers.unwrap_or(THREADS)
}

/// A server whose connections are tasks that block, on the thread pool of the futures crate.
#[derive(Clone, Debug)]
pub struct FuturesPool {
    config: ServerConfig,
}

impl FuturesPool {
    /// A server within the limits of `config`; `workers` are the pool's threads, 100 by default. On them the futures
    /// crate refuses to run its own `block_on`, so that a service must not call it.
    ///
    /// # Errors
    ///
    /// Where a limit is none.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { config })
    }
}

impl Server for FuturesPool {
    fn connections(&self) -> Connections {
        Connections::OnePerThread
    }

    fn max_concurrent(&self) -> Option<usize> {
        Some(threads(&self.config).min(self.config.max_connections))
    }

    fn serve(&self, addr: SocketAddr, service: Arc<dyn Service>) -> io::Result<Running> {
        let (main_loop, local_addr, shutdown) = MainLoop::new(addr, &self.config, service)?;
        Running::start("futures-main", local_addr, self.config.drain_grace, shutdown, move || main_loop.run())
    }
}
