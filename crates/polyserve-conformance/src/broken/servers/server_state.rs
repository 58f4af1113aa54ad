//! Accepting and draining.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{Shutdown as Side, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use polyserve_core::sync::lock;
use polyserve_core::{Drain, Running, ServerConfig, Service, Shutdown, net};

use super::Flaw;
use super::connection::{reject, serve_connection};
use crate::client::imf_fixdate;

/// How long a thread looks away from what it might have to do.
pub(super) const TICK: Duration = Duration::from_millis(20);

/// How long the door rests after a connection; longer and longer while none comes.
const REST: Duration = Duration::from_millis(1);

/// What all threads of a run share.
pub(super) struct ServerState {
    pub(super) config: ServerConfig,
    pub(super) flaw: Option<Flaw>,
    pub(super) service: Arc<dyn Service>,
    pub(super) shutdown: Shutdown,
    pub(super) answered: AtomicU64,
    /// Work is cut from now on.
    pub(super) over: AtomicBool,
    /// A flaw's: nothing more is accepted.
    pub(super) dead: AtomicBool,
    /// A flaw's: the number of refused connections.
    pub(super) refused: AtomicU64,
    /// A flaw's: held by the connection that is served.
    pub(super) one_at_a_time: Mutex<()>,
    started: SystemTime,
    pub(super) guests: Mutex<HashMap<u64, Arc<Guest>>>,
    left: Condvar,
}

/// A connection, as others see it.
pub(super) struct Guest {
    pub(super) stream: TcpStream,
    pub(super) state: Mutex<State>,
    pub(super) told_to_leave: AtomicBool,
}

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Accepted, and has not said a word.
    New,
    /// Waits for the next request.
    Idle,
    /// Has a request.
    Busy,
    /// Its thread is in the service's own code.
    InService,
    /// Has had its last answer.
    Leaving,
}

impl ServerState {
    pub(super) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    pub(super) fn date(&self) -> String {
        let time = if self.has(Flaw::StaleDate) { self.started } else { SystemTime::now() };
        imf_fixdate(time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }
}

/// Answers of every run of every server, for the flaw of one that cannot tell them apart.
static ALL_ANSWERS: AtomicU64 = AtomicU64::new(0);

pub(super) fn serve(
    addr: SocketAddr,
    service: Arc<dyn Service>,
    config: &ServerConfig,
    flaw: Option<Flaw>,
) -> io::Result<Running> {
    let listener = net::listen(addr, config)?;
    listener.set_nonblocking(true)?;
    let local_addr = listener.local_addr()?;
    let shutdown = Shutdown::new();
    let server = Arc::new(ServerState {
        config: config.clone(),
        flaw,
        service,
        shutdown: shutdown.clone(),
        answered: AtomicU64::new(0),
        over: AtomicBool::new(false),
        dead: AtomicBool::new(false),
        refused: AtomicU64::new(0),
        one_at_a_time: Mutex::new(()),
        started: SystemTime::now(),
        guests: Mutex::new(HashMap::new()),
        left: Condvar::new(),
    });
    Running::start("plain-server", local_addr, config.drain_grace, shutdown, move || {
        let mut door = Door { server, threads: HashMap::new(), next: 0 };
        door.accept(&listener);
        let kept = door.close(listener);
        let drain = door.drain();
        if drain.stuck > 0 {
            std::mem::forget(kept);
        }
        drain
    })
}

/// Who lets connections in, and sees their threads off.
struct Door {
    server: Arc<ServerState>,
    threads: HashMap<u64, JoinHandle<()>>,
    next: u64,
}

impl Door {
    /// Accepts until a shutdown has begun and nobody waits.
    fn accept(&mut self, listener: &TcpListener) {
        let mut rest = REST;
        loop {
            self.join_ended();
            let ending = self.server.shutdown.is_begun();
            let dead = self.server.dead.load(Ordering::SeqCst);
            if ending && (dead || self.server.has(Flaw::ForgetsTheQueue)) {
                return;
            }
            match listener.accept() {
                Ok(_) if dead => {}
                Ok((stream, _)) => {
                    rest = REST;
                    self.admit(stream);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock && ending => return,
                Err(error) if net::is_connection_error(&error) => {}
                Err(error) => {
                    let full = error.kind() != ErrorKind::WouldBlock;
                    if full && ending && self.server.has(Flaw::DropsTheQueueWithoutDescriptors) {
                        return;
                    }
                    self.server.dead.fetch_or(full && self.server.has(Flaw::DiesOfFullTables), Ordering::SeqCst);
                    if !(full && self.server.has(Flaw::SpinsOnFullTables)) {
                        thread::sleep(rest);
                        rest = (2 * rest).min(TICK);
                    }
                }
            }
            if ending && self.deadline() <= Instant::now() {
                return;
            }
        }
    }

    /// Closes the listener; a flaw keeps it.
    fn close(&self, listener: TcpListener) -> Option<TcpListener> {
        if self.server.has(Flaw::KeepsThePort) {
            std::mem::forget(listener);
            return None;
        }
        self.server.has(Flaw::KeepsThePortWhileStuck).then_some(listener)
    }

    fn admit(&mut self, stream: TcpStream) {
        if stream.set_nonblocking(false).is_err() || net::prepare(&stream).is_err() {
            return;
        }
        let room = self.make_room();
        let server = Arc::clone(&self.server);
        let guest = Arc::new(Guest { stream, state: Mutex::new(State::New), told_to_leave: AtomicBool::new(false) });
        let name = self.next;
        self.next += 1;
        if self.server.has(Flaw::LeaksDescriptors) {
            std::mem::forget(guest.stream.try_clone());
        }
        if self.server.has(Flaw::LeaksThreads) {
            // It can still be left: the process's end ends it.
            thread::spawn(|| {
                loop {
                    thread::park();
                }
            });
        }
        if !room {
            *lock(&guest.state) = State::Leaving;
        }
        lock(&self.server.guests).insert(name, Arc::clone(&guest));
        let signed_off = SignOff { server: Arc::clone(&server), name };
        let thread = thread::Builder::new().name("plain-guest".into()).spawn(move || {
            let _signed_off = signed_off;
            if room {
                serve_connection(&server, &guest);
            } else {
                reject(&server, &guest);
            }
        });
        if let Ok(thread) = thread {
            self.threads.insert(name, thread);
        }
    }

    /// Whether there is room for one more; an idle connection is closed to make some.
    fn make_room(&self) -> bool {
        let mut guests = lock(&self.server.guests);
        loop {
            let staying = || guests.values().filter(|guest| *lock(&guest.state) != State::Leaving);
            if staying().count() < self.server.config.max_connections {
                return true;
            }
            let idle = staying().find(|guest| *lock(&guest.state) == State::Idle);
            match idle {
                Some(idle) if !self.server.has(Flaw::KeepsIdleConnections) => {
                    idle.told_to_leave.store(true, Ordering::SeqCst);
                }
                _ => return false,
            }
            guests = self.wait(guests);
        }
    }

    fn wait<'a>(
        &self,
        guests: std::sync::MutexGuard<'a, HashMap<u64, Arc<Guest>>>,
    ) -> std::sync::MutexGuard<'a, HashMap<u64, Arc<Guest>>> {
        self.server.left.wait_timeout(guests, TICK).unwrap_or_else(PoisonError::into_inner).0
    }

    fn join_ended(&mut self) {
        let ended: Vec<u64> =
            self.threads.iter().filter(|(_, thread)| thread.is_finished()).map(|(name, _)| *name).collect();
        for thread in ended.iter().filter_map(|name| self.threads.remove(name)) {
            let _ = thread.join();
        }
    }

    fn deadline(&self) -> Instant {
        self.server.shutdown.deadline().unwrap_or_else(Instant::now)
    }

    /// Waits for every connection, cuts them at the deadline, and joins their threads.
    fn drain(mut self) -> Drain {
        let server = Arc::clone(&self.server);
        let mut guests = lock(&server.guests);
        let patient = server.has(Flaw::SleepsUntilTheDeadline);
        while (patient || !guests.is_empty()) && Instant::now() < self.deadline() && !server.has(Flaw::DoesNotDrain) {
            guests = self.wait(guests);
        }
        server.over.store(true, Ordering::SeqCst);
        let has_begun = |guest: &Guest| matches!(*lock(&guest.state), State::Busy | State::InService);
        let cut: Vec<u64> = guests.iter().filter(|(_, guest)| has_begun(guest)).map(|(name, _)| *name).collect();
        for guest in guests.values() {
            let _ = guest.stream.shutdown(Side::Both);
        }
        // A thread that is not in foreign code ends at once.
        let last = Instant::now() + Duration::from_millis(300);
        let stuck = |guests: &HashMap<u64, Arc<Guest>>| {
            let in_service = |guest: &&Arc<Guest>| *lock(&guest.state) == State::InService;
            guests.values().filter(in_service).count()
        };
        while guests.len() > stuck(&guests)
            || (stuck(&guests) > 0 && (Instant::now() < last || server.has(Flaw::WaitsForTheStuck)))
        {
            guests = self.wait(guests);
        }
        let stuck: Vec<u64> = guests.keys().copied().collect();
        drop(guests);
        for (_, thread) in self.threads.drain().filter(|(name, _)| !stuck.contains(name)) {
            let _ = thread.join();
        }
        let answered = server.answered.load(Ordering::SeqCst);
        ALL_ANSWERS.fetch_add(answered, Ordering::SeqCst);
        let answered = if server.has(Flaw::SharesCounts) { ALL_ANSWERS.load(Ordering::SeqCst) } else { answered };
        let cut = if server.has(Flaw::HidesCuts) { 0 } else { cut.iter().filter(|name| !stuck.contains(name)).count() };
        Drain { answered, cut: cut as u64, stuck: stuck.len() as u64 }
    }
}

/// Takes a connection off the list when its thread ends, however it does.
struct SignOff {
    server: Arc<ServerState>,
    name: u64,
}

impl Drop for SignOff {
    fn drop(&mut self) {
        lock(&self.server.guests).remove(&self.name);
        self.server.left.notify_all();
    }
}
