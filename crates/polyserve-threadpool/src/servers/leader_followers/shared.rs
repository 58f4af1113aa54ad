//! The threads of a run: who leads, who rests, who has a connection; and how many connections there may be.

use std::collections::HashMap;
use std::io::{self, ErrorKind, PipeReader};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::thread::{self, JoinHandle, Thread};
use std::time::Instant;

use polyserve_core::net;
use polyserve_core::serving::{Bound, LingeringSet, LogThrottle, ServerState};
use polyserve_core::sync::{lock, read};
use rustix::event::{PollFd, PollFlags};

use super::blocking_io::set_first_timeouts;
use super::connection_slot::ConnectionSlot;
use super::worker::Worker;

/// Room for the loop, `httparse`'s fields and a service that is not greedy.
const STACK: usize = 128 * 1024;

/// Threads that may rest; one more ends. Each holds its buffers.
const MOST_SPARES: usize = 128;

/// How often room is looked for, where each time the idle connection that was found is not idle any more.
const TRIES: u32 = 8;

/// What a thread is to do.
pub(super) enum Assignment {
    /// Accept, and wait where nothing is to be accepted.
    Lead,
    /// Serve this connection, which has its place.
    Serve(TcpStream),
}

/// What all threads of a run share.
pub(super) struct Shared {
    pub(super) server: Arc<ServerState>,
    pub(super) registry: Mutex<ThreadRegistry>,
    /// Taken at the drain, so that no thread keeps the port. Held while accepting or waiting to, never while serving.
    pub(super) listener: RwLock<Option<TcpListener>>,
    /// Readable once the shutdown has begun.
    pub(super) wake: PipeReader,
    /// Those that were refused, until they have read why.
    pub(super) lingering: Mutex<LingeringSet>,
    pub(super) log_throttle: LogThrottle,
    /// Connections that were ever accepted.
    pub(super) accepted: AtomicU64,
    /// A [`Leader`], as a number.
    leader: AtomicU8,
    /// Threads that have an assignment and have not waited for a connection since.
    pub(super) eager: AtomicUsize,
    /// The newcomer that was heard or given up last did not say anything at once.
    silence: AtomicBool,
    /// The supervisor sleeps until it is woken.
    pub(super) asleep: AtomicBool,
    pub(super) supervisor: OnceLock<Thread>,
    /// Connections that have a place.
    places: AtomicUsize,
    start: Instant,
}

/// The threads, by name.
#[derive(Default)]
pub(super) struct ThreadRegistry {
    pub(super) threads: HashMap<u64, (JoinHandle<()>, Arc<ConnectionSlot>)>,
    /// At rest; the last to come is the first to go, for its caches are warm.
    pub(super) idle_threads: Vec<(Arc<ConnectionSlot>, Thread)>,
    /// They have ended, and can be joined.
    pub(super) gone: Vec<u64>,
    /// There is a leader, or it has its assignment.
    pub(super) led: bool,
    /// The drain has begun: nobody rests.
    pub(super) closed: bool,
    next: u64,
}

impl Shared {
    pub(super) fn new(opening: Bound) -> io::Result<Self> {
        set_first_timeouts(&opening.listener, &opening.server.config)?;
        let lingering = LingeringSet::new(opening.server.config.linger_timeout);
        Ok(Self {
            wake: opening.server.wake_pipe()?,
            server: Arc::new(opening.server),
            registry: Mutex::default(),
            listener: RwLock::new(Some(opening.listener)),
            lingering: Mutex::new(lingering),
            log_throttle: LogThrottle::new(),
            accepted: AtomicU64::new(0),
            leader: AtomicU8::new(Leader::Busy as u8),
            eager: AtomicUsize::new(0),
            silence: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            supervisor: OnceLock::new(),
            places: AtomicUsize::new(0),
            start: Instant::now(),
        })
    }

    /// Makes another thread the leader; the caller was, or nobody is.
    pub(super) fn promote(self: &Arc<Self>) {
        let mut registry = lock(&self.registry);
        registry.led = false;
        if self.server.shutdown.is_begun() {
            return;
        }
        if let Err((error, _)) = self.give(&mut registry, Assignment::Lead) {
            drop(registry);
            self.complain("cannot start a thread", &error);
            self.wake_supervisor(); // it accepts until there is a leader
        }
    }

    /// Has `stream`, which has its place, served by a thread; where none can be started, it is refused.
    pub(super) fn hand_over(self: &Arc<Self>, stream: TcpStream) {
        let refused = self.give(&mut lock(&self.registry), Assignment::Serve(stream));
        if let Err((error, assignment)) = refused {
            self.complain("cannot start a thread", &error);
            self.leave_place();
            if let Some(Assignment::Serve(stream)) = assignment {
                self.reject(stream);
            }
        }
    }

    /// Gives `assignment` to a spare, or to a new thread. In a lock's scope, so that a thread is on the registry before it ends.
    fn give(
        self: &Arc<Self>,
        registry: &mut ThreadRegistry,
        assignment: Assignment,
    ) -> Result<(), (io::Error, Option<Assignment>)> {
        registry.led |= matches!(assignment, Assignment::Lead);
        if let Some((slot, thread)) = registry.idle_threads.pop() {
            *lock(&slot.assignment) = Some(assignment);
            thread.unpark();
            return Ok(());
        }
        let slot = Arc::new(ConnectionSlot::new(registry.next, self.start, assignment));
        let (shared, place) = (Arc::clone(self), Arc::clone(&slot));
        let work = move || Worker::new(shared, place).work();
        match thread::Builder::new().name("connection".into()).stack_size(STACK).spawn(work) {
            Ok(thread) => {
                registry.threads.insert(registry.next, (thread, slot));
                registry.next += 1;
                Ok(())
            }
            Err(error) => {
                let assignment = lock(&slot.assignment).take();
                registry.led &= !matches!(assignment, Some(Assignment::Lead));
                Err((error, assignment))
            }
        }
    }

    /// Where the calling thread may rest, puts it among the idle_threads.
    pub(super) fn admit_spare(&self, slot: &Arc<ConnectionSlot>) -> Rest {
        let mut registry = lock(&self.registry);
        if registry.closed || self.server.shutdown.is_begun() {
            return Rest::End;
        }
        if !registry.led {
            registry.led = true;
            return Rest::Lead;
        }
        if registry.idle_threads.len() >= MOST_SPARES {
            return Rest::End;
        }
        registry.idle_threads.push((Arc::clone(slot), thread::current()));
        Rest::Spare
    }

    /// The next connection that waits and may be served; `None` where none waits.
    pub(super) fn accept(&self) -> io::Result<Option<TcpStream>> {
        loop {
            let accepted = match &*read(&self.listener) {
                Some(listener) => listener.accept(),
                None => return Ok(None),
            };
            match accepted {
                Ok((stream, _)) => {
                    // In this order: either the supervisor sees the new number before it sleeps, or it is woken.
                    self.accepted.fetch_add(1, Ordering::SeqCst);
                    self.wake_supervisor();
                    if let Some(stream) = self.admit(stream) {
                        return Ok(Some(stream));
                    }
                    // While clients come only to be rejected, the drain begins in time all the same.
                    if self.server.shutdown.is_begun() {
                        return Ok(None);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if net::is_connection_error(&error) => {}
                Err(error) => {
                    self.complain("cannot accept", &error);
                    return Err(error);
                }
            }
        }
    }

    /// Waits until a connection waits, or a shutdown begins. For the leader.
    pub(super) fn watch(&self) -> io::Result<()> {
        let listener = read(&self.listener);
        let Some(listener) = &*listener else { return Ok(()) };
        let mut polled = [listener.as_fd(), self.wake.as_fd()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        self.set_leader(Leader::Watches);
        let result = rustix::event::poll(&mut polled, None);
        self.set_leader(Leader::Busy);
        match result {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes note of whether a newcomer was silent at first.
    pub(super) fn note_newcomer(&self, silent: bool) {
        if silent != self.newcomers_are_silent() {
            self.silence.store(silent, Ordering::Relaxed);
        }
    }

    pub(super) fn newcomers_are_silent(&self) -> bool {
        self.silence.load(Ordering::Relaxed)
    }

    pub(super) fn set_leader(&self, leader: Leader) {
        self.leader.store(leader as u8, Ordering::SeqCst);
    }

    pub(super) fn leader_is(&self, leader: Leader) -> bool {
        self.leader.load(Ordering::SeqCst) == leader as u8
    }

    /// Gives a new connection its place, or refuses it.
    pub(super) fn admit(&self, stream: TcpStream) -> Option<TcpStream> {
        if net::prepare(&stream).is_err() {
            return None;
        }
        let most = self.server.config.max_connections;
        let more = |open: usize| (open < most).then_some(open + 1);
        let has_room = self.places.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok();
        if has_room || self.make_room() {
            return Some(stream);
        }
        self.reject(stream);
        None
    }

    pub(super) fn leave_place(&self) {
        self.places.fetch_sub(1, Ordering::SeqCst);
    }

    /// Closes the connection that has been idle for longest, and keeps its place.
    fn make_room(&self) -> bool {
        let registry = lock(&self.registry);
        for _ in 0..TRIES {
            let slots = registry.threads.values().map(|(_, slot)| slot);
            let idle = slots.filter_map(|slot| Some((slot.idle_since(self.server.config.head_timeout)?, slot)));
            match idle.min_by_key(|(since, _)| *since) {
                Some((since, slot)) if slot.replace(since) => return true,
                Some(_) => {} // a request came just then
                None => break,
            }
        }
        false
    }

    fn reject(&self, stream: TcpStream) {
        lock(&self.lingering).reject(stream, &self.server);
        self.wake_supervisor();
    }

    /// Wakes the supervisor where it sleeps.
    pub(super) fn wake_supervisor(&self) {
        if self.asleep.load(Ordering::SeqCst)
            && let Some(supervisor) = self.supervisor.get()
        {
            supervisor.unpark();
        }
    }

    fn complain(&self, what: &str, error: &io::Error) {
        if self.log_throttle.is_due() {
            tracing::warn!(%error, "{what}");
        }
    }
}

/// What the leader is doing.
#[derive(Clone, Copy)]
pub(super) enum Leader {
    /// It accepts, serves, or does not exist.
    Busy,
    /// It waits for the listener.
    Watches,
    /// It waits, shortly, for the first byte of a new connection.
    Expects,
}

/// What a thread that has nothing to serve does.
pub(super) enum Rest {
    /// It waits for an assignment.
    Spare,
    /// There is no leader: it is one.
    Lead,
    /// It ends.
    End,
}
