//! Our codec on a single-threaded tokio runtime for each core, each with a listener of its own: the kernel spreads
//! connections, and no task ever moves to another thread.
//!
//! Invariant: a connection is served by the thread that accepted it. Cost: for a request a read and a write, and a wake-up
//! without a lock; for a connection an accept, a task, and a registration with the kernel where its first request was not
//! there when it came.
//!
//! Source: `SO_REUSEPORT` as of `socket(7)`; one runtime a core as actix-web and ntex have it.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use polyserve_core::answer::{Answer, promise};
use polyserve_core::serving::{House, LAST_GRACE};
use polyserve_core::{Completer, ConfigError, Connections, Running, Server, ServerConfig, Service, net};
use tokio::runtime::{Builder, Runtime};

use super::accepting::{self, Accepting, Serve};
use super::roll::Roll;
use super::tokio_runtime::Tokio;

/// A server with a tokio runtime for each core.
#[derive(Clone, Debug)]
pub struct TokioPerCore {
    config: ServerConfig,
}

impl TokioPerCore {
    /// A server within the limits of `config`; `workers` are its threads, the available cores by default.
    ///
    /// # Errors
    ///
    /// Where a limit is none.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { config })
    }
}

impl Server for TokioPerCore {
    fn connections(&self) -> Connections {
        Connections::Multiplexed
    }

    fn serve(&self, addr: SocketAddr, service: Arc<dyn Service>) -> io::Result<Running> {
        let listeners = net::listen_together(addr, self.config.workers_or(1), &self.config)?;
        let local_addr = listeners[0].local_addr()?;
        let roll = Roll::new(House::new(service, &self.config), listeners.len());
        let crew = Crew::of(&roll, listeners).inspect_err(|_| roll.house.shutdown.begin(Instant::now()))?;
        let (grace, shutdown) = (self.config.drain_grace, roll.house.shutdown.clone());
        Running::start("per-core-main", local_addr, grace, shutdown, move || {
            let drain = roll.supervise();
            crew.end(drain.stuck);
            drain
        })
    }
}

/// The threads of a run. Each runs its tasks until it is told to end.
struct Crew {
    threads: Vec<(Completer<()>, JoinHandle<()>)>,
    gone: (Sender<()>, Receiver<()>),
}

impl Crew {
    /// A thread for each listener. After an error the shutdown ends those that were started.
    fn of(roll: &Arc<Roll<Tokio>>, listeners: Vec<TcpListener>) -> io::Result<Self> {
        let mut crew = Self { threads: Vec::new(), gone: mpsc::channel() };
        for (shard, listener) in listeners.into_iter().enumerate() {
            listener.set_nonblocking(true)?;
            let runtime = Builder::new_current_thread().enable_io().build()?;
            let accepting = {
                let _context = runtime.enter();
                Accepting::new(roll, &Tokio(runtime.handle().clone()), listener, shard, accepting::codec)?
            };
            crew.start(runtime, accepting)?;
        }
        Ok(crew)
    }

    fn start(&mut self, runtime: Runtime, accepting: Accepting<Tokio, impl Serve<Tokio>>) -> io::Result<()> {
        let (end, told): (_, Answer<()>) = promise(());
        let gone = self.gone.0.clone();
        let run = move || {
            runtime.block_on(async {
                accepting.run().await;
                told.await;
            });
            drop(runtime);
            let _ = gone.send(()); // nobody may be left to hear it
        };
        let thread = thread::Builder::new().name(format!("per-core-{}", self.threads.len())).spawn(run)?;
        self.threads.push((end, thread));
        Ok(())
    }

    /// Ends the threads; so many are stuck, and are left behind.
    fn end(self, stuck: u64) {
        let mut handles = Vec::new();
        for (end, thread) in self.threads {
            let _ = end.complete(());
            handles.push(thread);
        }
        let deadline = Instant::now() + if stuck > 0 { Duration::ZERO } else { LAST_GRACE };
        for _ in 0..handles.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Err(RecvTimeoutError::Timeout) = self.gone.1.recv_timeout(left) {
                break;
            }
        }
        for thread in handles.into_iter().filter(JoinHandle::is_finished) {
            let _ = thread.join(); // a panic of a task is the runtime's own
        }
    }
}
