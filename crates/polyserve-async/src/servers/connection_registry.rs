//! Every open connection of a run: how many there are, when each is late, and how all of them end.
//!
//! A timer for each connection would put a lock on every request. Here a connection writes its deadline into its own
//! [`ConnectionEntry`], and the server's main thread looks through all of them when the earliest may have passed: a deadline that
//! only moves later, as that of a busy connection does, costs nobody anything.
//!
//! Invariants: the main thread looks no later than the earliest deadline that was written, rounded up to a tick, or 10 ms
//! after its last look; a task is woken for its deadline once; who is on the registry when a shutdown begins is woken.
//!
//! Cost: for a connection two uncontended locks; for a request one ordered store; for a look at n connections n loads, at
//! most a hundred times a second.

use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use polyserve_core::serving::{LogThrottle, SHUTDOWN_SLACK, ServerState};
use polyserve_core::sync::lock;
use polyserve_core::{Drain, net};
use slab::Slab;

use super::connection_entry::{ConnectionEntry, NEVER};
use super::server_runtime::ServerRuntime;

/// The registry of one run of a server.
#[derive(Debug)]
pub(crate) struct ConnectionRegistry<R: ServerRuntime> {
    pub(crate) server: ServerState,
    /// What the accept loops have to say.
    pub(crate) log_throttle: LogThrottle,
    shards: Box<[Shard<R>]>,
    /// Connections that are served.
    open: AtomicUsize,
    /// Connections whose last answer is sent, and those that are turned away.
    lingering: AtomicUsize,
    /// Loops that still accept, and their listeners.
    accept_loop: AtomicUsize,
    listeners: Mutex<Vec<Weak<R::Socket>>>,
    start: Instant,
    /// The tick at which the main thread looks next.
    next: AtomicU64,
    main: OnceLock<Thread>,
}

/// A part of the registry. Its lock is taken once when a connection comes, and once when it goes.
type Shard<R> = Mutex<Slab<Arc<ConnectionEntry<R>>>>;

/// More than this depart at once only in a flood; those beyond are closed at once.
const MAX_LINGERING: usize = 256;

/// Between two looks at all deadlines.
const PAUSE: Duration = Duration::from_millis(10);

/// How a newcomer is received.
pub(crate) enum Admission<R: ServerRuntime> {
    /// It is served.
    Served(Arc<ConnectionEntry<R>>),
    /// There are too many: it is told so.
    Rejected(Arc<ConnectionEntry<R>>),
    /// There are far too many: it was closed.
    Closed,
}

/// Counts one more, unless there are `most`. One that is turned away is never in the count, not for a moment: another who
/// looks just then would be turned away from a entry that is free.
fn take_one(count: &AtomicUsize, most: usize) -> bool {
    let more = |count| (count < most).then_some(count + 1);
    count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
}

impl<R: ServerRuntime> ConnectionRegistry<R> {
    /// For connections from `loops` accept loops, each with a part of the registry of its own.
    pub(crate) fn new(server: ServerState, loops: usize) -> Arc<Self> {
        let registry = Arc::new(Self {
            server,
            log_throttle: LogThrottle::new(),
            shards: (0..loops.max(1)).map(|_| Mutex::new(Slab::new())).collect(),
            open: AtomicUsize::new(0),
            lingering: AtomicUsize::new(0),
            accept_loop: AtomicUsize::new(loops),
            listeners: Mutex::new(Vec::new()),
            start: Instant::now(),
            next: AtomicU64::new(NEVER),
            main: OnceLock::new(),
        });
        let weak = Arc::downgrade(&registry);
        registry.server.shutdown.on_begin(move || {
            if let Some(registry) = weak.upgrade() {
                registry.wake_supervisor();
                registry.wake_all();
            }
        });
        registry
    }

    /// Receives a newcomer, who does not block.
    pub(crate) fn admit(&self, socket: TcpStream, shard: usize) -> Admission<R> {
        if take_one(&self.open, self.server.config.max_connections) {
            return Admission::Served(self.insert(socket, shard));
        }
        if !self.reserve_linger() {
            return Admission::Closed;
        }
        Admission::Rejected(self.insert(socket, shard))
    }

    fn insert(&self, socket: TcpStream, shard: usize) -> Arc<ConnectionEntry<R>> {
        let shard = shard % self.shards.len();
        let mut slab = lock(&self.shards[shard]);
        let slot = slab.vacant_entry();
        let entry = Arc::new(ConnectionEntry::new(socket, shard, slot.key()));
        slot.insert(Arc::clone(&entry));
        entry
    }

    /// One that was served departs: its room is free again. False where it is to be closed at once.
    pub(crate) fn begin_linger(&self) -> bool {
        let may = self.reserve_linger();
        if may {
            self.open.fetch_sub(1, Ordering::SeqCst);
        }
        may
    }

    fn reserve_linger(&self) -> bool {
        take_one(&self.lingering, MAX_LINGERING)
    }

    /// A connection is gone.
    pub(crate) fn remove(&self, entry: &ConnectionEntry<R>, was_lingering: bool) {
        drop(lock(&self.shards[entry.shard]).try_remove(entry.key));
        entry.forget_waker();
        let counter = if was_lingering { &self.lingering } else { &self.open };
        counter.fetch_sub(1, Ordering::SeqCst);
        self.wake_supervisor_if_done();
    }

    /// Counts the request of `entry` as cut, once.
    pub(crate) fn count_cut(&self, entry: &ConnectionEntry<R>) {
        if entry.claim_count() {
            self.server.count_cut();
        }
    }

    /// Takes note of a listener, to close it at the end where its loop does not come to it.
    pub(crate) fn register_listener(&self, listener: &Arc<R::Socket>) {
        lock(&self.listeners).push(Arc::downgrade(listener));
    }

    /// An accept loop has ended, and its listener is closed.
    pub(crate) fn accept_loop_ended(&self) {
        self.accept_loop.fetch_sub(1, Ordering::SeqCst);
        self.wake_supervisor_if_done();
    }

    fn wake_supervisor_if_done(&self) {
        if self.server.shutdown.is_begun() && self.is_empty() {
            self.wake_supervisor();
        }
    }

    fn is_empty(&self) -> bool {
        [&self.accept_loop, &self.open, &self.lingering].iter().all(|count| count.load(Ordering::SeqCst) == 0)
    }

    /// Has `entry` woken at `deadline`, or at the shutdown's if that is earlier.
    pub(crate) fn set_deadline(&self, entry: &ConnectionEntry<R>, deadline: Instant) {
        let tick = self.tick(self.server.within(deadline));
        if entry.deadline() == tick {
            return;
        }
        entry.set_deadline(tick);
        if tick < self.next.load(Ordering::SeqCst) && self.next.fetch_min(tick, Ordering::SeqCst) > tick {
            self.wake_supervisor();
        }
    }

    /// Milliseconds since the start, rounded up.
    fn tick(&self, instant: Instant) -> u64 {
        let nanos = instant.saturating_duration_since(self.start).as_nanos();
        u64::try_from(nanos.div_ceil(1_000_000)).unwrap_or(NEVER - 1)
    }

    fn wake_supervisor(&self) {
        if let Some(main) = self.main.get() {
            main.unpark();
        }
    }

    fn wake_all(&self) {
        for entry in self.entries() {
            entry.wake();
        }
    }

    fn entries(&self) -> Vec<Arc<ConnectionEntry<R>>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(lock(shard).iter().map(|(_, entry)| Arc::clone(entry)));
        }
        all
    }

    /// Wakes who is late; says when the next one is.
    fn wake_expired(&self) -> u64 {
        self.next.store(NEVER, Ordering::SeqCst);
        let now = self.tick(Instant::now());
        let mut earliest = NEVER;
        let mut late = Vec::new();
        for shard in &self.shards {
            for (_, entry) in lock(shard).iter() {
                match entry.deadline() {
                    tick if tick <= now => late.push((Arc::clone(entry), tick)),
                    tick => earliest = earliest.min(tick),
                }
            }
        }
        for (entry, tick) in late {
            if entry.take_deadline(tick) {
                entry.wake();
            }
        }
        self.next.fetch_min(earliest, Ordering::SeqCst).min(earliest)
    }

    /// What the server's main thread does: wakes connections for their deadlines, until all have ended after a shutdown,
    /// or should have. Says how the run has ended.
    pub(crate) fn supervise(&self) -> Drain {
        let _ = self.main.set(thread::current());
        let mut may_look = Instant::now();
        loop {
            let now = Instant::now();
            let deadline = self.server.shutdown.deadline();
            if deadline.is_some() && self.is_empty() {
                break;
            }
            if deadline.is_some_and(|deadline| now >= deadline + SHUTDOWN_SLACK) {
                break;
            }
            let next = self.next.load(Ordering::SeqCst);
            let mut wait = self.instant(next).map(|due| due.max(may_look).saturating_duration_since(now));
            if wait.is_some_and(|wait| wait.is_zero()) {
                let next = self.wake_expired();
                may_look = Instant::now() + PAUSE;
                wait = self.instant(next).map(|due| due.max(may_look).saturating_duration_since(now));
            }
            if let Some(deadline) = deadline {
                let rest = (deadline + SHUTDOWN_SLACK).saturating_duration_since(now);
                wait = Some(wait.map_or(rest, |wait| wait.min(rest)));
            }
            match wait {
                Some(wait) => thread::park_timeout(wait),
                None => thread::park(),
            }
        }
        self.close_remaining()
    }

    fn instant(&self, tick: u64) -> Option<Instant> {
        (tick != NEVER).then(|| self.start + Duration::from_millis(tick))
    }

    /// Closes what has not ended, and counts it.
    fn close_remaining(&self) -> Drain {
        let mut stuck = 0;
        for entry in self.entries() {
            // The request of a stuck thread is not counted as cut, too.
            if entry.is_calling() {
                stuck += usize::from(entry.claim_count());
            } else if entry.is_busy() {
                self.count_cut(&entry);
            }
            let _ = entry.with_socket(|socket| net::shut(socket, Shutdown::Both)); // gone already, then
        }
        for listener in lock(&self.listeners).iter().filter_map(Weak::upgrade) {
            let _ = net::shut(listener.as_ref(), Shutdown::Both); // whoever waits there is refused
        }
        self.server.drained(stuck)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// Whoever was turned away was in the count for a moment. Another, who came just then to a entry that had become free,
    /// was turned away as well.
    #[test]
    fn who_is_turned_away_takes_nobodys_place() {
        let (count, done) = (AtomicUsize::new(0), AtomicBool::new(false));
        let rejected = thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert!(!take_one(&count, 0));
                }
            });
            let rejected = (0..300_000).filter(|_| {
                let taken = take_one(&count, 1);
                count.fetch_sub(usize::from(taken), Ordering::SeqCst);
                !taken
            });
            let rejected = rejected.count();
            done.store(true, Ordering::Relaxed);
            rejected
        });
        assert_eq!(rejected, 0);
    }
}
