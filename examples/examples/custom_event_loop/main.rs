//! A multiplexed server in its own program: each of its threads serves many connections, with the readiness events of mio.
//! Without arguments, the conformance kit checks the server, including its drains, timeouts and limits:
//!
//! ```sh
//! cargo run --release --example custom_event_loop --features command
//! ```
//!
//! With arguments, the program is the `polyserve` command with this server in its catalog, under the name `event_loop`:
//!
//! ```sh
//! cargo run --release --example custom_event_loop --features command -- compare --quick --servers event_loop,tokio_per_core,pool_server
//! ```
//!
//! The server decides how it waits and in which order connections have their turns. The table of connections serves a turn,
//! admits, evicts, counts, and wakes connections for their deadlines and for a shutdown.
#![forbid(unsafe_code)]

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::Context;
use std::thread;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use polyserve::catalog::{Entry, Promise};
use polyserve::prelude::*;
use polyserve::serving::{
    Connection, ConnectionTable, EventListener, EventSocket, ServerState, TableEntry, TurnEnd, WokenList, net,
    with_buffers,
};
use polyserve::{ConfigError, ListenOn, Supports};
use polyserve_conformance::property;
use polyserve_conformance::server::{self, ServerSubject};

/// A server with an event loop on each of its threads.
#[derive(Debug)]
struct EventLoop {
    config: ServerConfig,
}

impl EventLoop {
    /// Creates a server with the limits of `config`. Returns an error for settings that it does not support.
    fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        Supports::new("this server").check(&config)?;
        Ok(Self { config })
    }
}

impl Server for EventLoop {
    fn shape(&self) -> Shape {
        Shape::Multiplexed
    }

    fn start(&self, on: ListenOn, service: Arc<dyn Service>) -> io::Result<Running> {
        let server = Arc::new(ServerState::new(service, &self.config).listening_on(&on));
        let listeners = net::listen_together(on, self.config.workers_or(1), &self.config)?;
        let local_addr = listeners[0].local_addr()?;
        let table = ConnectionTable::multiplexed(server, listeners.len());
        let loops =
            listeners.into_iter().enumerate().map(|(shard, listener)| EventThread::new(&table, listener, shard));
        let loops = loops.collect::<io::Result<Vec<_>>>()?;
        let (grace, shutdown) = (self.config.drain_grace, table.server.shutdown.clone());
        let threads = loops.into_iter().map(|run| thread::Builder::new().spawn(move || run.main()));
        let threads: io::Result<Vec<_>> = threads.collect();
        let threads = threads.inspect_err(|_| shutdown.begin(Instant::now()))?; // it ends the loops that have begun
        Running::start("event-loop-main", local_addr, grace, shutdown, table.counters(), move || {
            let drain = table.supervise();
            let ended = threads.into_iter().filter(|thread| drain.stuck == 0 || thread.is_finished());
            table.server.join(ended.collect());
            drain
        })
    }
}

const LISTENER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);

/// The max number of connections that are accepted before the others have a turn.
const MAX_ACCEPTED: usize = 64;

/// An event loop.
struct EventThread {
    table: Arc<ConnectionTable<EventSocket>>,
    shard: usize,
    acceptor: EventListener,
    poll: Poll,
    /// The connections that other threads have woken.
    woken: WokenList,
    clients: HashMap<usize, (Arc<TableEntry<EventSocket>>, Connection)>,
    /// The connections that have a turn next, each of them one.
    ready: BTreeSet<usize>,
    /// The number of connections accepted since the start. It is the number of the next one.
    accepted: usize,
}

impl EventThread {
    fn new(table: &Arc<ConnectionTable<EventSocket>>, listener: TcpListener, shard: usize) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (table, listener, poll) = (Arc::clone(table), Arc::new(listener), Poll::new()?);
        poll.registry().register(&mut SourceFd(&listener.as_raw_fd()), LISTENER, Interest::READABLE)?;
        table.register_listener(&listener);
        let waker = Waker::new(poll.registry(), WAKER)?;
        let woken = WokenList::new(move || drop(waker.wake()));
        let of_shutdown = woken.clone();
        table.server.shutdown.on_begin(move || of_shutdown.wake(LISTENER.0));
        let acceptor = EventListener::new(listener, table.server.config.backlog);
        Ok(Self { table, shard, acceptor, poll, woken, clients: HashMap::new(), ready: BTreeSet::new(), accepted: 0 })
    }

    fn main(mut self) {
        let mut events = Events::with_capacity(1024);
        while self.acceptor.is_open() || !self.clients.is_empty() {
            let accept_in = self.acceptor.until_attempt();
            let timeout = if self.ready.is_empty() { accept_in } else { Some(Duration::ZERO) };
            let _ = self.poll.poll(&mut events, timeout); // an error: a signal has interrupted it
            self.ready.extend(events.iter().map(|event| event.token().0));
            self.woken.take(&mut self.ready);
            if self.ready.remove(&LISTENER.0) {
                self.acceptor.notify();
            }
            for _ in 0..MAX_ACCEPTED {
                let Some((stream, peer)) = self.acceptor.accept_from(&self.table.server) else { break };
                self.add(stream, peer);
            }
            for number in std::mem::take(&mut self.ready) {
                self.serve(number);
            }
        }
        self.table.accept_loop_ended();
    }

    /// Adds a connection. It reads before its first event is awaited.
    fn add(&mut self, stream: TcpStream, peer: Option<SocketAddr>) {
        let number = self.accepted;
        let interest = Interest::READABLE | Interest::WRITABLE;
        if self.poll.registry().register(&mut SourceFd(&stream.as_raw_fd()), Token(number), interest).is_err() {
            return; // the system has no memory left, and the connection is closed
        }
        let socket = EventSocket { stream, peer, waker: self.woken.waker(number) };
        if let Some(client) = self.table.admit_or_reject(socket, self.shard) {
            self.clients.insert(number, client);
            self.ready.insert(number);
            self.accepted += 1;
        }
    }

    /// Serves a turn of a connection.
    fn serve(&mut self, number: usize) {
        let Some((entry, connection)) = self.clients.get_mut(&number) else { return };
        let mut cx = Context::from_waker(&entry.waker);
        match with_buffers(|buffers| self.table.serve(entry, connection, &mut entry.handle(), &mut cx, buffers)) {
            TurnEnd::Wait => {}
            TurnEnd::Yield => drop(self.ready.insert(number)),
            TurnEnd::Close => {
                self.table.close(entry, connection);
                self.clients.remove(&number);
            }
        }
    }
}

fn main() -> anyhow::Result<ExitCode> {
    if std::env::args_os().len() > 1 {
        let promises = &[Promise::LaterHoldsNoThread, Promise::Drains];
        return Ok(polyserve_cli::main(Catalog::builtin().with_server(Entry::server(
            "event_loop",
            "an event loop with mio on each thread",
            promises,
            |config| Ok(Box::new(EventLoop::new(config.clone())?)),
        ))));
    }
    // Some properties make a service panic on purpose, so panics are not printed. The report describes the failures.
    std::panic::set_hook(Box::new(|_| {}));
    let report = property::check("event_loop", &ServerSubject::new(EventLoop::new), server::PROPERTIES);
    print!("{report}");
    anyhow::ensure!(report.conforms(), "the server does not keep the contract");
    Ok(ExitCode::SUCCESS)
}

// $ cargo run --release --example custom_event_loop --features command -- serve --server event_loop
//
// $ curl -i -X PUT http://127.0.0.1:8001/ -d '{"id":1,"description":"a first entity","value":60.750847}'
// HTTP/1.1 201 Created
// Content-Length: 0
// Location: /1
// Date: Mon, 23 Nov 2026 16:32:53 GMT
