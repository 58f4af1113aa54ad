//! `leader_followers`: each connection has a thread, and one of the threads accepts and then serves.
//!
//! ```text
//!  leader: poll(listener) -> accept -> recv, service, send -> close -> accept -> ...
//!             |  before it must wait for its connection, it promotes a follower
//!             v
//!  followers: idle threads -> one becomes the leader
//!  threads that serve a kept connection: block in recv, then accept what waits, then become followers
//!  supervisor: every 5 ms, hands waiting connections to other threads if the leader is held up
//! ```
//!
//! At most `max_connections` are open. At the limit, the connection that has been idle for longest is closed for the new
//! one. If none is idle, the new one is answered 503.
//!
//! A thread that waits for a request is woken, for a shutdown or to make room, by closing the reading side of its
//! socket. Bytes that have arrived are still read, so that no request that had come is lost.
//!
//! # Which thread accepts
//!
//! One thread is the leader: it waits for the listener, accepts, and serves the connection itself. It stays the leader for
//! as long as its connection does not make it wait. The first byte of a new connection, on its way as a rule, may take a
//! millisecond. Before any other wait (a further request, a slow reader, a deferred answer) it makes an idle thread the
//! leader, or starts a new one. So a connection with one request costs no dispatch and no wake-up. A thread that does not
//! lead and has finished a connection takes the next one that waits. If none waits, it stays idle for at most a second, with
//! at most 127 others.
//!
//! The supervisor acts if the service holds the leader up. Every 5 ms it checks whether connections wait, and hands them to
//! other threads: all of them if nothing was accepted for two checks; some at each check while the leader is slow; as many as
//! there are cores if the leader is fast. If nothing happens for 100 ms, it sleeps.
//!
//! # No lost wake-up
//!
//! *There is always a leader, or a thread that sees that there is none.* `led` is changed only under the lock of the thread
//! registry. A leader gives the role away in the same step in which another thread gets its assignment. If no thread can be
//! started, `led` is false; then the next thread that would become idle leads, and the supervisor, which goes on checking,
//! hands over what waits. A thread that panics gives the role away when it is dropped.
//!
//! *An idle thread gets its assignment.* It is added to the idle threads, and removed, under the registry's lock. The thread
//! that removes it writes the assignment and then unparks it, and an unpark that comes before the park is not lost. A thread
//! that wants to end removes itself under the same lock. If it is not there any more, it has an assignment, or the drain has
//! begun.
//!
//! *The supervisor does not sleep while a leader serves.* It stores that it sleeps, then loads whether the leader waits for
//! the listener and whether anything was accepted. A thread that has accepted counts that and then loads whether the
//! supervisor sleeps. All four are sequentially consistent: one of the two sees the other.
//!
//! *The drain reaches every thread.* A leader that waits is woken by a pipe that stays readable. Idle threads are woken by the
//! supervisor under the registry's lock, which also keeps others from becoming idle after it. A connection stores that it is
//! idle before it loads the shutdown, and the drain looks for idle connections after the shutdown has begun.
//!
//! Cost: for a connection an accept, a read, a write and a close, two uncontended locks and a few shared counts; a read
//! and a write for each request; for a thread at most 16 KiB of buffers at rest and 128 KiB of address space for a stack.
//!
//! Source: D. C. Schmidt and others, *Leader/Followers*, 2000.
//!
//! # Layout
//!
//! `shared`: the state that the threads share; `worker`: the loop of a thread; `connection_slot`: a thread's connection, as other threads
//! see it; `blocking_io`: how a thread reads and writes; `supervisor`: hand-overs, joins and the drain.
//!
//! *Wins when* the server is saturated with short connections whose requests have arrived when they are accepted: 1.2 of the
//! requests of `pool_server/mpsc_pool` per second of processor time (`docs/DESIGN.md`). *Loses when* connections are many
//! (memory, a switch of threads for each request), and if a service blocks: others then wait for up to 10 ms.

mod blocking_io;
mod connection_slot;
mod shared;
mod supervisor;
mod worker;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use polyserve_core::serving::bind;
use polyserve_core::{ConfigError, Connections, Running, Server, ServerConfig, Service};
use shared::Shared;
use supervisor::Supervisor;

/// The server whose accepting thread also serves.
#[derive(Clone, Debug)]
pub struct LeaderFollowers {
    config: ServerConfig,
}

impl LeaderFollowers {
    /// Creates a server within the limits of `config`.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range, or if `workers` is set: each connection has a thread.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        config.refuse_queue("leader_followers")?;
        match config.workers {
            None => Ok(Self { config }),
            Some(_) => Err(ConfigError::unsupported(
                "workers",
                "workers cannot be set for leader_followers, which has one for each connection: set max_connections",
            )),
        }
    }
}

impl Server for LeaderFollowers {
    fn connections(&self) -> Connections {
        Connections::OnePerThread
    }

    fn max_concurrent(&self) -> Option<usize> {
        Some(self.config.max_connections)
    }

    fn serve(&self, addr: SocketAddr, service: Arc<dyn Service>) -> io::Result<Running> {
        let opening = bind(addr, &self.config, service)?;
        let (local_addr, shutdown) = (opening.local_addr, opening.server.shutdown.clone());
        let supervisor = Supervisor::new(Arc::new(Shared::new(opening)?));
        Running::start("leader-followers", local_addr, self.config.drain_grace, shutdown, move || supervisor.run())
    }
}
