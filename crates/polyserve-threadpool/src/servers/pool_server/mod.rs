//! `pool_server`: the workers of any [`Executor`] share all connections; an idle connection holds no worker.
//!
//! ```text
//!             +--------- worker (a job) ----------+
//!  listener ->| poll: accept, collect events      |   one thread at a time has the poll role
//!  sockets  ->|   v                               |
//!             | ready list (first in, first out) ------> further jobs, if the list is long
//!             |   v                               |
//!             | run: read, call service, write    |
//!             |   v                               |
//!             | park, requeue or close            |
//!             +-----------------------------------+
//!  supervisor: timeouts, rejections, drain. While no worker makes progress, or the
//!              service is slow, it polls, and submits a job for each connection
//! ```
//!
//! While turns are short on average (`SLOW_TURN`), a worker polls itself, serves what is ready, and polls again (leader and
//! followers). So a request costs no switch of threads. Before a worker waits for a deferred answer, it passes the poll role
//! to the supervisor. While the service is slow, each worker does so. If a service blocks its thread, the supervisor
//! detects within 10 ms that no worker makes progress, and polls. On an executor that is shared with other work, the
//! supervisor always polls.
//!
//! # Layout
//!
//! A connection goes from accept to park in two files: `worker.rs` has the job, and `connection.rs` a turn of a connection.
//! `supervisor.rs` is the server's main thread.
//!
//! Data structures: `ready_list.rs` decides which thread does what, the slots in `connection.rs` have the connections and their
//! deadlines, and `slot_state.rs` says which thread owns each.
//!
//! The slots stand in place of a [`ConnectionTable`](polyserve_serving::ConnectionTable): its entry is marked as busy and as idle in each
//! turn, by two atomic exchanges next to those of the slot's state, and tried out, that cost more instructions for each request.
//!
//! Invariant: a connection is touched only by the thread that moved its slot's state to `RUNNING`. An event that arrives
//! meanwhile is noted in the state and never lost. A turn ends after a bounded number of requests if another connection
//! waits, and the ready list is first in, first out.
//!
//! Cost: for each request on a kept connection a read, a write and its share of one poll, and two locks.
//!
//! Source: Schmidt and others, *Leader/Followers* (2000), around the thread pool of the published servers.
//!
//! *Wins when* answers need no wait: no server of this project answers more requests over kept connections
//! (`servers-kept`), and none keeps its latencies up to a higher rate (`capacity`). *Loses when* the service defers its
//! answers, because each of them holds a worker: with few workers it answers by far fewer requests than `tokio_tcp`
//! (`page`). Records: `docs/results`.

mod connection;
mod ready_list;
mod slot_state;
mod supervisor;
mod worker;

use std::io;
use std::sync::Arc;

use polyserve_core::{Executor, Running, Shape, Supports};
use polyserve_serving::Bound;

use super::executor_server::{ExecutorServer, ExecutorStrategy};
use supervisor::Supervisor;
use worker::PoolServerState;

/// The server that multiplexes connections over an executor.
///
/// ```
/// use polyserve_core::{Reply, Request, ServerConfig, ServerExt};
/// use polyserve_threadpool::PoolServer;
///
/// let server = PoolServer::mpsc(ServerConfig::default().workers(4))?;
/// let running = server.serve("127.0.0.1:0", |_: Request<'_>| Reply::text("hello"))?;
/// assert_eq!(running.shutdown()?.answered, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type PoolServer = ExecutorServer<MultiplexedJobs>;

/// The jobs of the executor share all connections.
#[derive(Debug)]
pub struct MultiplexedJobs;

impl ExecutorStrategy for MultiplexedJobs {
    const NAME: &'static str = "PoolServer";
    const SUPPORTS: Supports = Supports::new("pool_server").queue();
    const SHAPE: Shape = Shape::Multiplexed;

    fn start(bound: Bound, executor: Arc<dyn Executor>, is_own: bool) -> io::Result<Running> {
        let Bound { listener, local_addr, server } = bound;
        let (shutdown, grace) = (server.shutdown.clone(), server.config.drain_grace);
        let shared = PoolServerState::new(server, listener, executor, !is_own)?;
        let weak = Arc::downgrade(&shared);
        shutdown.on_begin(move || {
            if let Some(shared) = weak.upgrade() {
                shared.wakeups.wake_supervisor();
            }
        });
        let supervisor = Supervisor::new(Arc::clone(&shared));
        let counters = move || {
            let mut counters = shared.server.counters(shared.slots.open());
            counters.queued = shared.ready.len() as u64;
            counters
        };
        Running::start("pool-server", local_addr, grace, shutdown, counters, move || supervisor.run())
    }
}
