//! A custom server in its own program: a thread for each connection. Without arguments, the conformance kit checks the
//! server, including its drains, timeouts and limits:
//!
//! ```sh
//! cargo run --release --example custom_server --features command
//! ```
//!
//! With arguments, the program is the `polyserve` command with this server in its catalog, under the name `custom`: the
//! command serves it, runs the stress scenario against it, and ranks it among the others.
//!
//! ```sh
//! cargo run --release --example custom_server --features command -- compare --quick --servers custom,sequential,pool_server
//! ```
#![forbid(unsafe_code)]

use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use polyserve::catalog::{Entry, Promise};
use polyserve::prelude::*;
use polyserve::serving::blocking::{self, ThreadConnection};
use polyserve::serving::{Bound, ConnectionTable, Incoming, bind, into_stream};
use polyserve::{ConfigError, ListenOn, Supports};
use polyserve_conformance::property;
use polyserve_conformance::server::{self, ServerSubject};

/// A server with a thread for each connection.
#[derive(Debug)]
struct PerThread {
    config: ServerConfig,
}

impl PerThread {
    /// Creates a server with the limits of `config`. Returns an error for settings that it does not support.
    fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        Supports::new("this server")
            .no_workers("one thread for each connection: set max_connections")
            .check(&config)?;
        Ok(Self { config })
    }
}

impl Server for PerThread {
    fn shape(&self) -> Shape {
        Shape::OnePerThread
    }

    fn max_concurrent(&self) -> Option<usize> {
        Some(self.config.max_connections)
    }

    fn start(&self, on: ListenOn, service: Arc<dyn Service>) -> std::io::Result<Running> {
        let Bound { listener, local_addr, server } = bind(on, &self.config, service)?;
        let shutdown = server.shutdown.clone();
        let server = Arc::new(server);
        let incoming = Incoming::new(listener, Arc::clone(&server))?;
        let connections = Arc::new(ConnectionTable::new(server, 1));
        let counters = connections.counters();
        let run = Run { connections, incoming, threads: Vec::new() };
        Running::start("per-thread", local_addr, self.config.drain_grace, shutdown, counters, move || run.main())
    }
}

/// The state of a run, on its main thread. The main thread serves no connections, so it can end the run even if every
/// other thread is stuck in the service.
struct Run {
    connections: Arc<ConnectionTable<ThreadConnection>>,
    incoming: Incoming,
    threads: Vec<JoinHandle<()>>,
}

impl Run {
    fn main(mut self) -> Drain {
        while let Some(stream) = self.incoming.accept() {
            self.start(stream);
        }
        self.connections.wake_idle();
        while let Some(stream) = self.incoming.accept_waiting() {
            self.start(stream);
        }
        let stuck = self.connections.finish(|| self.incoming.sweep());
        let ended = self.threads.into_iter().filter(|thread| stuck == 0 || thread.is_finished());
        self.connections.server.join(ended.collect());
        self.incoming.finish();
        self.connections.server.drained(stuck)
    }

    /// Starts the thread of a connection.
    fn start(&mut self, stream: TcpStream) {
        let connection = match self.connections.admit(ThreadConnection::new(stream), 0) {
            Ok(connection) => connection,
            Err(connection) => return self.incoming.reject(connection.into()), // every connection is busy
        };
        let (connections, of_thread) = (Arc::clone(&self.connections), Arc::clone(&connection));
        let accepted = Instant::now();
        match thread::Builder::new().spawn(move || blocking::serve(of_thread, &connections, accepted)) {
            Ok(thread) => self.threads.push(thread),
            Err(_) => {
                // The thread cannot be started.
                self.connections.remove(&connection);
                into_stream(connection).into_iter().for_each(|stream| self.incoming.reject(stream));
            }
        }
        if self.threads.len() > 2 * self.connections.len() + 64 {
            self.threads.retain(|thread| !thread.is_finished());
        }
    }
}

fn main() -> anyhow::Result<ExitCode> {
    if std::env::args_os().len() > 1 {
        return Ok(polyserve_cli::main(catalog()));
    }
    // Some properties make a service panic on purpose, so panics are not printed. The report describes the failures.
    std::panic::set_hook(Box::new(|_| {}));
    let report = property::check("per_thread", &ServerSubject::new(PerThread::new), server::PROPERTIES);
    drop(std::panic::take_hook());
    print!("{report}");
    anyhow::ensure!(report.conforms(), "the server does not keep the contract");

    let running =
        PerThread::new(ServerConfig::default())?.serve(([127, 0, 0, 1], 0), EntityService::new(Sharded::new()))?;
    println!("it conforms, and listened on http://{}: {}", running.local_addr(), running.shutdown()?);
    Ok(ExitCode::SUCCESS)
}

/// The strategies of polyserve and this server.
fn catalog() -> Catalog {
    let promises = &[Promise::LaterHoldsWorker, Promise::Drains];
    Catalog::builtin().with_server(Entry::server("custom", "a thread for each connection", promises, |config| {
        Ok(Box::new(PerThread::new(config.clone())?))
    }))
}

// $ cargo run --release --example custom_server --features command -- serve --server custom
//
// $ curl -i -X PUT http://127.0.0.1:8001/ -d '{"id":1,"description":"a first entity","value":60.750847}'
// HTTP/1.1 201 Created
// Content-Length: 0
// Location: /1
// Date: Mon, 23 Nov 2026 16:32:53 GMT
//
// $ curl -i http://127.0.0.1:8001/1
// HTTP/1.1 200 OK
// Content-Type: application/json
// Content-Length: 57
// Date: Mon, 23 Nov 2026 16:32:53 GMT
//
// {"id":1,"description":"a first entity","value":60.750847}
