//! A run of the plain server: accepting, a thread for each connection, and the drain.

use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use polyserve_core::panics::isolate;
use polyserve_core::sync::lock;
use polyserve_core::{Counters, Drain, ListenOn, Running, ServerConfig, Service};
use polyserve_serving::blocking::{ThreadConnection, ThreadSocket, drive};
use polyserve_serving::{
    Bound, ConnectionHandle as _, ConnectionTable, LingeringSet, TableEntry, bind, into_stream, linger, net,
    with_buffers,
};

use super::Flaw;
use super::socket::FlawedSocket;
use crate::client::imf_fixdate;

/// The longest pause of the accept loop.
pub(super) const TICK: Duration = Duration::from_millis(20);

/// The pause of the accept loop after a connection. It doubles while no connection comes.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// The number of answers of all runs of all servers, for a flaw.
static ALL_ANSWERS: AtomicU64 = AtomicU64::new(0);

/// The state that all threads of a run share.
pub(super) struct FlawedRun {
    flaw: Option<Flaw>,
    pub(super) table: ConnectionTable<ThreadConnection>,
    /// For a flaw: no further connection is accepted.
    pub(super) is_stopped: AtomicBool,
    /// For a flaw: locked by the connection that is served.
    pub(super) one_at_a_time: Mutex<()>,
    /// For a server of one connection: another one waits.
    pub(super) makes_room: AtomicBool,
    pub(super) start_date: String,
}

pub(super) fn serve(
    on: ListenOn,
    service: Arc<dyn Service>,
    config: &ServerConfig,
    flaw: Option<Flaw>,
) -> io::Result<Running> {
    let Bound { listener, local_addr, server } = bind(on, config, service)?;
    let shutdown = server.shutdown.clone();
    let run = Arc::new(FlawedRun {
        flaw,
        table: ConnectionTable::new(Arc::new(server), 1),
        is_stopped: AtomicBool::new(false),
        one_at_a_time: Mutex::new(()),
        makes_room: AtomicBool::new(false),
        start_date: imf_fixdate(SystemTime::now()),
    });
    let counted = Arc::clone(&run);
    let counters = move || counted.counters();
    Running::start("plain-server", local_addr, config.drain_grace, shutdown, counters, move || {
        let lingering = LingeringSet::new(Arc::clone(&run.table.server));
        let mut acceptor = Acceptor { run, threads: Vec::new(), lingering, rejected: 0 };
        acceptor.accept(&listener);
        let kept = acceptor.close(listener);
        let drain = acceptor.drain();
        if drain.stuck > 0 {
            std::mem::forget(kept);
        }
        drain
    })
}

impl FlawedRun {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn counters(&self) -> Counters {
        let mut counters = self.table.server.counters(self.table.open());
        if self.has(Flaw::CountsNoOpenConnections) {
            counters.open = 0;
        }
        if self.has(Flaw::CountsNoPanics) {
            counters.panics = 0;
        }
        counters
    }

    /// Serves a connection to its end.
    fn serve(&self, entry: &TableEntry<ThreadConnection>) {
        let is_alone = self.has(Flaw::ServesOneAtATime) || self.has(Flaw::ServesOneAndResetsTimeoutOnEachByte);
        let alone = is_alone.then(|| lock(&self.one_at_a_time));
        let (server, accepted) = (&self.table.server, Instant::now());
        let _ = isolate(|| {
            with_buffers(|buffers| {
                let lingers = match self.flaw {
                    Some(flaw) => drive(&mut FlawedSocket::new(entry, self, flaw), server, buffers, accepted),
                    None => drive(&mut ThreadSocket::new(entry, &self.table, &()), server, buffers, accepted),
                };
                drop(alone);
                let resets = self.has(Flaw::DoesNotLinger) || self.has(Flaw::ResetsEvictedConnections);
                if lingers && self.has(Flaw::LingersForAFixedTime) {
                    let stream: &TcpStream = entry.handle().as_ref();
                    let _ = net::end_output(stream); // an error: the client is gone
                    std::thread::sleep(server.config.linger_timeout);
                } else if lingers && !resets {
                    self.table.begin_linger(entry);
                    linger(entry.handle().as_ref(), server, &mut buffers.input);
                }
            });
        });
        self.table.remove(entry);
    }
}

/// Accepts connections and joins their threads.
struct Acceptor {
    run: Arc<FlawedRun>,
    /// In the order in which the connections were accepted.
    threads: Vec<(JoinHandle<()>, Weak<TableEntry<ThreadConnection>>)>,
    lingering: LingeringSet,
    rejected: usize,
}

impl Acceptor {
    /// Accepts until a shutdown has begun and no connection waits.
    fn accept(&mut self, listener: &TcpListener) {
        let run = Arc::clone(&self.run);
        let shutdown = &run.table.server.shutdown;
        let mut pause = FIRST_PAUSE;
        // The process had no descriptor for the last connection.
        let mut full = false;
        loop {
            self.threads.retain(|(thread, _)| !thread.is_finished());
            self.lingering.sweep();
            let ending = shutdown.is_begun();
            if ending {
                run.table.wake_idle();
            }
            let stopped = run.is_stopped.load(Ordering::SeqCst);
            let forgets = run.has(Flaw::DropsTheBacklog) || full && run.has(Flaw::DropsTheBacklogWithoutDescriptors);
            if ending && (stopped || forgets) {
                return;
            }
            match net::accept(listener) {
                Ok(_) if stopped => {}
                Ok(stream) => {
                    (pause, full) = (FIRST_PAUSE, false);
                    self.admit(stream);
                    let pauses = run.has(Flaw::DropsTheBacklog) || run.has(Flaw::ServesOneAndResetsTimeoutOnEachByte);
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
                    let stops = full && run.has(Flaw::StopsAcceptingWithoutDescriptors);
                    run.is_stopped.fetch_or(stops, Ordering::SeqCst);
                    if !(full && run.has(Flaw::SpinsWithoutDescriptors)) {
                        thread::sleep(pause);
                        pause = (2 * pause).min(TICK);
                    }
                }
            }
            if run.table.server.is_over() {
                return;
            }
        }
    }

    /// Closes the listener. A flaw keeps it.
    fn close(&self, listener: TcpListener) -> Option<TcpListener> {
        if self.run.has(Flaw::KeepsItsListener) {
            std::mem::forget(listener);
            return None;
        }
        self.run.has(Flaw::KeepsItsListenerWhileStuck).then_some(listener)
    }

    fn admit(&mut self, stream: TcpStream) {
        let run = Arc::clone(&self.run);
        let max = run.table.server.config.max_connections;
        let is_full = match run.flaw {
            Some(Flaw::KeepsIdleConnections) => run.table.is_full(),
            Some(Flaw::CountsRejectedConnections) => self.rejected + run.table.open() >= max,
            Some(Flaw::EvictsTheOldest | Flaw::EvictsBeforeReading) => {
                self.shut_down_the_oldest();
                false
            }
            Some(flaw) if flaw.serves_one() => {
                self.make_room();
                false
            }
            Some(Flaw::LeaksDescriptors) => {
                std::mem::forget(stream.try_clone());
                false
            }
            Some(Flaw::LeaksThreads) => {
                // The server can end without this thread: it ends with the process.
                thread::spawn(|| {
                    loop {
                        thread::park();
                    }
                });
                false
            }
            _ => false,
        };
        if is_full {
            return self.reject(stream);
        }
        let entry = match run.table.admit(ThreadConnection::new(stream), 0) {
            Ok(entry) => entry,
            Err(connection) => return self.reject(connection.into()),
        };
        let of_thread = Arc::clone(&entry);
        match thread::Builder::new().name("plain-connection".into()).spawn(move || run.serve(&of_thread)) {
            Ok(thread) if self.run.has(Flaw::AcceptsOneAtATime) => drop(thread.join()),
            Ok(thread) => self.threads.push((thread, Arc::downgrade(&entry))),
            Err(_) => {
                self.run.table.remove(&entry);
                into_stream(entry).into_iter().for_each(|stream| self.reject(stream));
            }
        }
    }

    /// Waits until the only connection has ended, or is closed for another one.
    fn make_room(&mut self) {
        let run = &self.run;
        run.makes_room.store(true, Ordering::SeqCst);
        while run.table.open() > 0 && run.table.evict().is_none() && !run.table.server.is_over() {
            self.lingering.sweep();
            thread::sleep(FIRST_PAUSE);
        }
        run.makes_room.store(false, Ordering::SeqCst);
    }

    /// At the limit, closes the oldest connection, whatever it does, and waits for its end.
    fn shut_down_the_oldest(&mut self) {
        while self.run.table.is_full() && !self.threads.is_empty() {
            let (thread, entry) = self.threads.remove(0);
            if let Some(entry) = entry.upgrade() {
                entry.handle().shut_down();
            }
            let _ = thread.join();
        }
    }

    fn reject(&mut self, stream: TcpStream) {
        let run = &self.run;
        self.rejected += 1;
        let is_silent =
            run.has(Flaw::RejectsWithoutAnAnswer) || run.has(Flaw::AnswersFewRefusals) && self.rejected > 256;
        let answer =
            |fields| format!("HTTP/1.1 503 Service Unavailable\r\n{fields}Connection: close\r\n\r\n").into_bytes();
        if run.has(Flaw::RejectsWithoutRetryAfter) {
            let _ = net::send(&stream, &answer("Content-Length: 0\r\n"), false);
            self.lingering.add(stream);
        } else if run.has(Flaw::ResetsRejectedConnections) {
            let _ = net::send(&stream, &answer("Retry-After: 1\r\nContent-Length: 0\r\n"), true);
        } else if !is_silent {
            self.lingering.reject(stream, &run.table.server);
        }
    }

    /// Waits for every connection, cuts the rest at the deadline, and joins their threads.
    fn drain(mut self) -> Drain {
        let run = Arc::clone(&self.run);
        let server = &run.table.server;
        let stuck = run.table.finish(|| {
            self.lingering.sweep();
            self.lingering.deadline()
        });
        if run.has(Flaw::EndsOnlyAtTheDeadline) {
            let deadline = server.shutdown.deadline().unwrap_or_else(Instant::now);
            thread::sleep(deadline.saturating_duration_since(Instant::now()));
        }
        let threads = self.threads.into_iter().map(|(thread, _)| thread);
        if run.has(Flaw::WaitsForStuckThreads) {
            threads.for_each(|thread| drop(thread.join()));
        } else {
            server.join(threads.filter(|thread| stuck == 0 || thread.is_finished()).collect());
        }
        self.lingering.finish(server);
        let Drain { answered, cut, stuck, .. } = server.drained(stuck);
        let before = ALL_ANSWERS.fetch_add(answered, Ordering::SeqCst);
        match self.run.flaw {
            Some(Flaw::CountsAllRunsTogether) => Drain::new(before + answered, cut, stuck),
            Some(Flaw::MiscountsAnswers) => Drain::new(answered.saturating_sub(1), cut, stuck),
            Some(Flaw::DoesNotCountCuts) => Drain::new(answered, 0, stuck),
            _ => Drain::new(answered, cut, stuck),
        }
    }
}
