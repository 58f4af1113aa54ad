//! Accepting and draining.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{Shutdown as Side, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use polyserve_core::sync::lock;
use polyserve_core::{Drain, ListenOn, Running, ServerConfig, Service, Shutdown};
use polyserve_serving::EVICTION_GRACE;
use polyserve_serving::memory::MemoryBudget;
use polyserve_serving::net;

use super::Flaw;
use super::connection::{reject, serve_connection};
use super::run_context::{RunContext, TICK, TrackedConnection, TrackedState};

/// The pause of the accept loop after a connection. It doubles while no connection comes.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// The number of answers of all runs of all servers, for a flaw.
static ALL_ANSWERS: AtomicU64 = AtomicU64::new(0);

pub(super) fn serve(
    on: ListenOn,
    service: Arc<dyn Service>,
    config: &ServerConfig,
    flaw: Option<Flaw>,
) -> io::Result<Running> {
    let listener = net::listen(on, config)?;
    listener.set_nonblocking(true)?;
    let local_addr = listener.local_addr()?;
    let shutdown = Shutdown::new();
    let server = Arc::new(RunContext {
        config: config.clone(),
        flaw,
        memory: MemoryBudget::new(config.memory_or_default()),
        service,
        shutdown: shutdown.clone(),
        answered: AtomicU64::new(0),
        panics: AtomicU64::new(0),
        over: AtomicBool::new(false),
        stopped: AtomicBool::new(false),
        refused: AtomicU64::new(0),
        one_at_a_time: Mutex::new(()),
        tags: Mutex::default(),
        started: SystemTime::now(),
        connections: Mutex::new(HashMap::new()),
        ended: Condvar::new(),
    });
    let counted = Arc::clone(&server);
    let counters = move || counted.counters();
    Running::start("plain-server", local_addr, config.drain_grace, shutdown, counters, move || {
        let mut acceptor = Acceptor { server, threads: HashMap::new(), next_id: 0 };
        acceptor.accept(&listener);
        let kept = acceptor.close(listener);
        let drain = acceptor.drain();
        if drain.stuck > 0 {
            std::mem::forget(kept);
        }
        drain
    })
}

/// Accepts connections and joins their threads.
struct Acceptor {
    server: Arc<RunContext>,
    threads: HashMap<u64, JoinHandle<()>>,
    next_id: u64,
}

impl Acceptor {
    /// Accepts until a shutdown has begun and no connection waits.
    fn accept(&mut self, listener: &TcpListener) {
        let mut pause = FIRST_PAUSE;
        // The process had no descriptor for the last connection.
        let mut full = false;
        loop {
            self.join_ended();
            let ending = self.server.shutdown.is_begun();
            let stopped = self.server.stopped.load(Ordering::SeqCst);
            let forgets = self.server.has(Flaw::DropsTheBacklog)
                || full && self.server.has(Flaw::DropsTheBacklogWithoutDescriptors);
            if ending && (stopped || forgets) {
                return;
            }
            match listener.accept() {
                Ok(_) if stopped => {}
                Ok((stream, _)) => {
                    (pause, full) = (FIRST_PAUSE, false);
                    self.admit(stream);
                    let pauses = self.server.has(Flaw::DropsTheBacklog)
                        || self.server.has(Flaw::ServesOneAndResetsTimeoutOnEachByte);
                    if pauses && !ending {
                        // On any machine, this is long enough for connections to wait in the queue when a shutdown begins,
                        // and for the thread of this connection to start before that of the next one.
                        thread::sleep(10 * TICK);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock && ending => return,
                Err(error) if net::is_connection_error(&error) => {}
                Err(error) => {
                    full = error.kind() != ErrorKind::WouldBlock;
                    self.server
                        .stopped
                        .fetch_or(full && self.server.has(Flaw::StopsAcceptingWithoutDescriptors), Ordering::SeqCst);
                    if !(full && self.server.has(Flaw::SpinsWithoutDescriptors)) {
                        thread::sleep(pause);
                        pause = (2 * pause).min(TICK);
                    }
                }
            }
            if ending && self.deadline() <= Instant::now() {
                return;
            }
        }
    }

    /// Closes the listener. A flaw keeps it.
    fn close(&self, listener: TcpListener) -> Option<TcpListener> {
        if self.server.has(Flaw::KeepsItsListener) {
            std::mem::forget(listener);
            return None;
        }
        self.server.has(Flaw::KeepsItsListenerWhileStuck).then_some(listener)
    }

    fn admit(&mut self, stream: TcpStream) {
        if stream.set_nonblocking(false).is_err() || net::prepare(&stream).is_err() {
            return;
        }
        let has_room = self.make_room();
        let server = Arc::clone(&self.server);
        let connection = Arc::new(TrackedConnection {
            stream,
            state: Mutex::new(TrackedState::New),
            idle_since: Mutex::new(Instant::now()),
            must_close: AtomicBool::new(false),
        });
        let id = self.next_id;
        self.next_id += 1;
        if self.server.has(Flaw::LeaksDescriptors) {
            std::mem::forget(connection.stream.try_clone());
        }
        if self.server.has(Flaw::LeaksThreads) {
            // The server can end without this thread: it ends with the process.
            thread::spawn(|| {
                loop {
                    thread::park();
                }
            });
        }
        if !has_room {
            *lock(&connection.state) = TrackedState::Leaving;
        }
        lock(&self.server.connections).insert(id, Arc::clone(&connection));
        let removed = RemoveOnDrop { server: Arc::clone(&server), id };
        let thread = thread::Builder::new().name("plain-connection".into()).spawn(move || {
            let _removed = removed;
            if has_room {
                serve_connection(&server, &connection);
            } else {
                reject(&server, &connection);
            }
        });
        match thread {
            Ok(thread) if self.server.has(Flaw::AcceptsOneAtATime) => drop(thread.join()),
            Ok(thread) => drop(self.threads.insert(id, thread)),
            Err(_) => {}
        }
    }

    /// Returns whether there is room for one more connection. Closes an idle connection to make room.
    fn make_room(&self) -> bool {
        let mut connections = lock(&self.server.connections);
        loop {
            let counts = |connection: &&Arc<TrackedConnection>| match *lock(&connection.state) {
                TrackedState::Leaving => self.server.has(Flaw::CountsRejectedConnections),
                TrackedState::New => !self.server.has(Flaw::CountsNoSilentConnections),
                _ => true,
            };
            if connections.values().filter(counts).count() < self.server.config.max_connections {
                return true;
            }
            // A server of one connection also closes a busy one, after its answer.
            let closes_busy = self.server.flaw.is_some_and(Flaw::serves_one) && !self.server.shutdown.is_begun()
                || self.server.has(Flaw::EvictsBusyConnections);
            let closable = connections.values().filter_map(|connection| {
                let since = *lock(&connection.idle_since);
                let is_old = since.elapsed() >= EVICTION_GRACE || self.closes_young();
                match *lock(&connection.state) {
                    TrackedState::New if is_old => Some((self.server.has(Flaw::EvictsKeptConnectionsFirst), since)),
                    TrackedState::Idle if is_old => Some((!self.server.has(Flaw::EvictsKeptConnectionsFirst), since)),
                    TrackedState::Busy | TrackedState::InService if closes_busy => Some((true, since)),
                    _ => None,
                }
                .map(|order| (order, connection))
            });
            match closable.min_by_key(|(order, _)| *order) {
                Some((_, connection)) if !self.server.has(Flaw::KeepsIdleConnections) => {
                    connection.must_close.store(true, Ordering::SeqCst);
                    if self.server.has(Flaw::EvictsBusyConnections) {
                        let _ = connection.stream.shutdown(Side::Both);
                    }
                }
                _ => return false,
            }
            connections = self.wait(connections);
        }
    }

    /// Whether connections are closed for others as soon as they are idle. A server of one connection may do so.
    fn closes_young(&self) -> bool {
        self.server.flaw.is_some_and(Flaw::serves_one)
            || self.server.has(Flaw::EvictsSilentlyAtTheLimit)
            || self.server.has(Flaw::EvictsYoungConnections)
    }

    fn wait<'a>(
        &self,
        connections: std::sync::MutexGuard<'a, HashMap<u64, Arc<TrackedConnection>>>,
    ) -> std::sync::MutexGuard<'a, HashMap<u64, Arc<TrackedConnection>>> {
        self.server.ended.wait_timeout(connections, TICK).unwrap_or_else(PoisonError::into_inner).0
    }

    fn join_ended(&mut self) {
        let ended: Vec<u64> =
            self.threads.iter().filter(|(_, thread)| thread.is_finished()).map(|(id, _)| *id).collect();
        for thread in ended.iter().filter_map(|id| self.threads.remove(id)) {
            let _ = thread.join();
        }
    }

    fn deadline(&self) -> Instant {
        self.server.shutdown.deadline().unwrap_or_else(Instant::now)
    }

    /// Waits for every connection, cuts the rest at the deadline, and joins their threads.
    fn drain(mut self) -> Drain {
        let server = Arc::clone(&self.server);
        let mut connections = lock(&server.connections);
        let patient = server.has(Flaw::EndsOnlyAtTheDeadline);
        while (patient || !connections.is_empty())
            && Instant::now() < self.deadline()
            && !server.has(Flaw::DoesNotDrain)
        {
            connections = self.wait(connections);
        }
        server.over.store(true, Ordering::SeqCst);
        let has_begun = |connection: &TrackedConnection| {
            matches!(*lock(&connection.state), TrackedState::Busy | TrackedState::InService)
        };
        let cut: Vec<u64> =
            connections.iter().filter(|(_, connection)| has_begun(connection)).map(|(id, _)| *id).collect();
        for connection in connections.values() {
            let _ = connection.stream.shutdown(Side::Both);
        }
        // Threads outside the service end soon. Threads inside it get 300 ms.
        let deadline = Instant::now() + Duration::from_millis(300);
        let stuck_count = |connections: &HashMap<u64, Arc<TrackedConnection>>| {
            let in_service = |connection: &&Arc<TrackedConnection>| *lock(&connection.state) == TrackedState::InService;
            connections.values().filter(in_service).count()
        };
        while connections.len() > stuck_count(&connections)
            || (stuck_count(&connections) > 0 && (Instant::now() < deadline || server.has(Flaw::WaitsForStuckThreads)))
        {
            connections = self.wait(connections);
        }
        let stuck: Vec<u64> = connections.keys().copied().collect();
        drop(connections);
        for (_, thread) in self.threads.drain().filter(|(id, _)| !stuck.contains(id)) {
            let _ = thread.join();
        }
        let answered = server.answered.load(Ordering::SeqCst);
        ALL_ANSWERS.fetch_add(answered, Ordering::SeqCst);
        let answered =
            if server.has(Flaw::CountsAllRunsTogether) { ALL_ANSWERS.load(Ordering::SeqCst) } else { answered };
        let cut =
            if server.has(Flaw::DoesNotCountCuts) { 0 } else { cut.iter().filter(|id| !stuck.contains(id)).count() };
        Drain::new(answered, cut as u64, stuck.len() as u64)
    }
}

/// Removes a connection from the list when its thread ends, also by a panic.
struct RemoveOnDrop {
    server: Arc<RunContext>,
    id: u64,
}

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        lock(&self.server.connections).remove(&self.id);
        self.server.ended.notify_all();
    }
}
