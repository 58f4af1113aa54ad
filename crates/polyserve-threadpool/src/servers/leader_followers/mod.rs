//! `leader_followers`: each connection has a thread, and one of the threads accepts and then serves.
//!
//! The pattern is *Leader/Followers* (Schmidt and others, 2000). A thread blocks in the kernel whenever it waits.
//!
//! There are `max_connections` at the most. Past that, the connection that has been idle for longest is closed for the
//! new one; where none is idle, the new one is answered 503.
//!
//! A thread that waits for a request is woken, for a shutdown or to make room, by closing the reading side of its
//! socket: bytes that have arrived are still read, so that no request that had come is lost.
//!
//! # Who accepts
//!
//! One thread is the leader: it waits for the
//! listener, accepts, and serves the connection itself. It stays the leader for as long as its connection does not make
//! it wait: the first byte of a new connection, on its way as a rule, may take a millisecond; before any other wait (a
//! further request, a slow reader, an answer that comes later) it makes a resting thread the leader, or a new one. So a
//! connection with one request costs no dispatch and no wake-up. Who does not lead and has finished a connection takes
//! the next one that waits; where none does it rests, for a second at the most, with at most 127 others.
//!
//! A leader that the service holds up is the supervisor's affair. Every 5 ms it looks whether connections wait, and
//! hands them to other threads: all of them where nothing was accepted for two looks; some at each look while the leader
//! is slow; and where it is fast, as many as there are cores. Where nothing happens for 100 ms it sleeps.
//!
//! # No lost wake-up
//!
//! *There is always a leader, or somebody who sees that there is none.* `led` is changed under the roll's lock alone. A
//! leader gives the role away in the same step in which another gets its order; where no thread can be started `led` is
//! false, and then the next thread that would rest leads, and the supervisor, which looks on, hands over what waits. A
//! thread that panics gives the role away when it is dropped.
//!
//! *A resting thread gets its order.* It is put among the spares, and taken out, under the roll's lock. Who takes it out
//! writes the order and then unparks it, and a permit to go on outlasts the time between its last look and its park. One
//! that wants to end takes itself out under the same lock; if it is not there any more, it has an order, or the drain.
//!
//! *The supervisor does not sleep while a leader serves.* It says that it sleeps, then looks once more whether the leader
//! waits for the listener and whether anything was accepted; a thread that has accepted counts that and then looks
//! whether the supervisor sleeps. All four are sequentially consistent: one of the two sees the other.
//!
//! *The drain finds everybody.* Waiting leaders are woken by a pipe that stays readable, resting threads by the
//! supervisor under the roll's lock, which also keeps others from resting after it. A connection says that it is idle
//! before it looks for the shutdown, and the drain looks at who is idle after the shutdown has begun.
//!
//! Cost: for a connection an accept, a read, a write and a close, two uncontended locks and a few shared counts; a read
//! and a write for each request; for a thread 32 KiB of buffer and 128 KiB of address space for a stack.
//!
//! # Layout
//!
//! `crew`: what the threads share; `member`: what one does; `seat`: its connection, as others see it; `visit`: how it
//! reads and writes; `supervisor`: who looks after them.
//!
//! *Wins when* connections are few and live long, for the kernel wakes the right thread at once and nothing is in
//! between; or are short and their requests are there when they come: more than `pool_server` answers in a
//! second of processor time, and nearly what `sequential` does. *Loses when* connections are many (memory, a switch for
//! each request); and where a service blocks without saying so, those that come meanwhile wait for up to 10 ms.

mod crew;
mod member;
mod seat;
mod supervisor;
mod visit;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crew::Crew;
use polyserve_core::serving::bind;
use polyserve_core::{ConfigError, Connections, Running, Server, ServerConfig, Service};
use supervisor::Supervisor;

/// The server whose accepting thread also serves.
#[derive(Clone, Debug)]
pub struct LeaderFollowers {
    config: ServerConfig,
}

impl LeaderFollowers {
    /// A server within the limits of `config`.
    ///
    /// # Errors
    ///
    /// Where a limit is none, or a number of workers is asked for: there are as many as connections.
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
        let supervisor = Supervisor::new(Arc::new(Crew::new(opening)?));
        Running::start("leader-followers", local_addr, self.config.drain_grace, shutdown, move || supervisor.run())
    }
}
