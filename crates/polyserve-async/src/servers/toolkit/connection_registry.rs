//! All open connections of a run: their number, their deadlines, and how they end.
//!
//! A timer for each connection would take a lock for each request. Instead, a connection stores its deadline in its
//! [`ConnectionEntry`]. The server's main thread sweeps the entries when the earliest deadline may have passed: it compares
//! each deadline with the clock. A busy connection only moves its deadline later, which wakes no thread.
//!
//! Invariants:
//!
//! * A sweep begins when the earliest stored deadline has passed, rounded up to a tick of 1 ms, but at least 10 ms after the
//!   last sweep.
//! * A task is woken once for each deadline.
//! * A shutdown wakes all connections that are registered when it begins.
//!
//! * A connection that is evicted at the limit counts as lingering from then on. Its task is woken, reads once more, and
//!   closes the connection, or serves the request that has arrived as its last one.
//!
//! Cost: two uncontended locks for a connection; one sequentially consistent store for a wait, and two atomic exchanges if it
//! is for a request; n loads for a sweep of n connections, at most 100 sweeps a second. While no deadline passes, the main
//! thread sleeps.

use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use polyserve_core::sync::lock;
use polyserve_core::{Counters, Drain};
use polyserve_serving::net;
use polyserve_serving::{FoundConnections, IdleQueue, IdleSince, MAX_LINGERING, SHUTDOWN_SLACK, ServerState};
use slab::Slab;

use super::async_socket::AsyncSocket;
use super::connection_entry::{ConnectionEntry, NEVER};

/// The open connections of one run of a server.
#[derive(Debug)]
pub(crate) struct ConnectionRegistry<S: AsyncSocket> {
    pub(crate) server: ServerState,
    /// Limits the number of warnings about connections that cannot be accepted or registered.
    shards: Box<[Shard<S>]>,
    /// The number of connections that are served.
    open: AtomicUsize,
    /// The number of connections that have sent their last answer or rejection and are not closed yet, at most
    /// [`MAX_LINGERING`], and of those that were evicted and are not closed yet.
    lingering: AtomicUsize,
    /// The connections that are evicted next.
    idle: Mutex<IdleQueue<Weak<ConnectionEntry<S>>>>,
    /// The number of accept loops that have not ended.
    accept_loops: AtomicUsize,
    listeners: Mutex<Vec<Weak<S>>>,
    start: Instant,
    /// The tick of the next sweep.
    next_sweep: AtomicU64,
    main: OnceLock<Thread>,
}

/// A part of the registry. Its lock is taken when a connection is added and when it is removed.
type Shard<S> = Mutex<Slab<Arc<ConnectionEntry<S>>>>;

/// The minimum time between two sweeps.
const SWEEP_PAUSE: Duration = Duration::from_millis(10);

/// The result of [`ConnectionRegistry::admit`].
pub(crate) enum AdmitResult<S> {
    /// The connection is to be served.
    Serve(Arc<ConnectionEntry<S>>),
    /// `max_connections` are open. The connection is to be rejected, and then lingers.
    Reject(Arc<ConnectionEntry<S>>),
    /// `max_connections` are open, and too many linger. The connection is to be rejected and closed.
    Close(TcpStream),
}

/// Increments `count` and returns true, unless `count` has reached `max`. At the limit `count` never exceeds `max`, not even
/// for a moment. Otherwise a concurrent caller could fail although a connection has just ended.
fn increment_below(count: &AtomicUsize, max: usize) -> bool {
    let increment = |count| (count < max).then_some(count + 1);
    count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, increment).is_ok()
}

impl<S: AsyncSocket> ConnectionRegistry<S> {
    /// An empty registry for `loops` accept loops. Each loop has a shard of its own.
    pub(crate) fn new(server: ServerState, loops: usize) -> Arc<Self> {
        let registry = Arc::new(Self {
            server,
            shards: (0..loops.max(1)).map(|_| Mutex::new(Slab::new())).collect(),
            open: AtomicUsize::new(0),
            lingering: AtomicUsize::new(0),
            idle: Mutex::default(),
            accept_loops: AtomicUsize::new(loops),
            listeners: Mutex::new(Vec::new()),
            start: Instant::now(),
            next_sweep: AtomicU64::new(NEVER),
            main: OnceLock::new(),
        });
        let weak = Arc::downgrade(&registry);
        registry.server.shutdown.on_begin(move || {
            if let Some(registry) = weak.upgrade() {
                registry.wake_main();
                registry.wake_all();
            }
        });
        registry
    }

    /// Returns a function that returns the present counters.
    pub(crate) fn counters(self: &Arc<Self>) -> impl Fn() -> Counters + Send + Sync + 'static + use<S> {
        let registry = Arc::clone(self);
        move || registry.server.counters(registry.open.load(Ordering::SeqCst))
    }

    /// Adds a connection. Its socket must be in non-blocking mode. At the limit, it takes the place of the connection that
    /// has been idle for longest.
    pub(crate) fn admit(&self, socket: TcpStream, shard: usize) -> AdmitResult<S> {
        if increment_below(&self.open, self.server.config.max_connections) || self.evict_one() {
            return AdmitResult::Serve(self.insert(socket, shard));
        }
        if self.reserve_linger() {
            return AdmitResult::Reject(self.insert(socket, shard));
        }
        AdmitResult::Close(socket)
    }

    /// Evicts the connection that has been idle for longest. Returns false if none is idle.
    fn evict_one(&self) -> bool {
        let search = |found: &mut FoundConnections<_>| {
            for shard in &self.shards {
                for (_, entry) in lock(shard).iter() {
                    if let Some(since) = entry.idle_since() {
                        found.offer(since, || Arc::downgrade(entry));
                    }
                }
            }
        };
        lock(&self.idle).evict_one(self.tick(Instant::now()), search, |since, entry| {
            let Some(entry) = entry.upgrade() else { return false };
            // Counted before, so that the entry's end never finds it uncounted.
            self.lingering.fetch_add(1, Ordering::SeqCst);
            if entry.evict(since) {
                entry.wake();
                return true;
            }
            self.lingering.fetch_sub(1, Ordering::SeqCst);
            false
        })
    }

    /// The time since which a connection is idle, if that is `instant`. `has_sent`: whether the client has ever sent
    /// anything.
    pub(crate) fn idle_since(&self, instant: Instant, has_sent: bool) -> IdleSince {
        IdleSince::new(self.tick(instant), has_sent)
    }

    fn insert(&self, socket: TcpStream, shard: usize) -> Arc<ConnectionEntry<S>> {
        let shard = shard % self.shards.len();
        let mut slab = lock(&self.shards[shard]);
        let vacant = slab.vacant_entry();
        let entry = Arc::new(ConnectionEntry::new(socket, shard, vacant.key()));
        vacant.insert(Arc::clone(&entry));
        entry
    }

    /// Counts a connection as lingering. Returns false, and changes no count, if too many linger.
    pub(crate) fn begin_linger(&self, entry: &ConnectionEntry<S>) -> bool {
        if entry.set_quiet() {
            return self.lingering.load(Ordering::SeqCst) <= MAX_LINGERING;
        }
        let may_linger = self.reserve_linger();
        if may_linger {
            self.open.fetch_sub(1, Ordering::SeqCst);
        }
        may_linger
    }

    fn reserve_linger(&self) -> bool {
        increment_below(&self.lingering, MAX_LINGERING)
    }

    /// Registers the socket of `entry` with the runtime, unless it is registered. Logs an error, unless another was logged
    /// a short time ago. To be called inside the runtime.
    pub(crate) fn register(&self, entry: &ConnectionEntry<S>) -> std::io::Result<()> {
        entry.register().inspect_err(|error| {
            polyserve_core::throttled!(warn, %error, "a connection cannot be registered with the runtime");
        })
    }

    /// Removes a connection that has ended.
    pub(crate) fn remove(&self, entry: &ConnectionEntry<S>, was_lingering: bool) {
        let was_evicted = entry.set_quiet();
        drop(lock(&self.shards[entry.shard]).try_remove(entry.key));
        entry.drop_waker();
        let counter = if was_lingering || was_evicted { &self.lingering } else { &self.open };
        counter.fetch_sub(1, Ordering::SeqCst);
        self.wake_main_if_done();
    }

    /// Counts the request of `entry` as cut, unless it was counted.
    pub(crate) fn count_cut(&self, entry: &ConnectionEntry<S>) {
        if entry.claim_count() {
            self.server.count_cut();
        }
    }

    /// Adds a listener. It is shut down at the end of the run if its accept loop has not closed it.
    pub(crate) fn register_listener(&self, listener: &Arc<S>) {
        lock(&self.listeners).push(Arc::downgrade(listener));
    }

    /// Counts an accept loop as ended. Its listener is closed.
    pub(crate) fn accept_loop_ended(&self) {
        self.accept_loops.fetch_sub(1, Ordering::SeqCst);
        self.wake_main_if_done();
    }

    fn wake_main_if_done(&self) {
        if self.server.shutdown.is_begun() && self.is_empty() {
            self.wake_main();
        }
    }

    fn is_empty(&self) -> bool {
        [&self.accept_loops, &self.open, &self.lingering].iter().all(|count| count.load(Ordering::SeqCst) == 0)
    }

    /// Sets the time at which the task of `entry` is woken: `deadline`, or the shutdown's deadline if that is earlier.
    ///
    /// No deadline is missed by a concurrent sweep. A sweep first resets `next_sweep`, and then loads the deadlines.
    /// This call first stores the deadline, and then loads `next_sweep`. All four operations are sequentially
    /// consistent. So the sweep loads the new deadline, or this call finds `next_sweep` reset, lowers it and wakes the
    /// main thread.
    pub(crate) fn set_deadline(&self, entry: &ConnectionEntry<S>, deadline: Instant) {
        let tick = self.tick(self.server.within(deadline));
        if entry.deadline() == tick {
            return;
        }
        entry.set_deadline(tick);
        if tick < self.next_sweep.load(Ordering::SeqCst) && self.next_sweep.fetch_min(tick, Ordering::SeqCst) > tick {
            self.wake_main();
        }
    }

    /// Milliseconds since the start, rounded up.
    fn tick(&self, instant: Instant) -> u64 {
        let nanos = instant.saturating_duration_since(self.start).as_nanos();
        u64::try_from(nanos.div_ceil(1_000_000)).unwrap_or(NEVER - 1)
    }

    fn wake_main(&self) {
        if let Some(main) = self.main.get() {
            main.unpark();
        }
    }

    fn wake_all(&self) {
        for entry in self.entries() {
            entry.wake();
        }
    }

    fn entries(&self) -> Vec<Arc<ConnectionEntry<S>>> {
        let mut entries = Vec::new();
        for shard in &self.shards {
            entries.extend(lock(shard).iter().map(|(_, entry)| Arc::clone(entry)));
        }
        entries
    }

    /// Wakes the tasks that are past their deadlines. Returns the tick of the earliest deadline that is left.
    fn sweep(&self) -> u64 {
        self.next_sweep.store(NEVER, Ordering::SeqCst);
        let now = self.tick(Instant::now());
        let mut earliest = NEVER;
        let mut expired = Vec::new();
        for shard in &self.shards {
            for (_, entry) in lock(shard).iter() {
                match entry.deadline() {
                    tick if tick <= now => expired.push((Arc::clone(entry), tick)),
                    tick => earliest = earliest.min(tick),
                }
            }
        }
        for (entry, tick) in expired {
            if entry.take_deadline(tick) {
                entry.wake();
            }
        }
        self.next_sweep.fetch_min(earliest, Ordering::SeqCst).min(earliest)
    }

    /// Runs on the server's main thread: wakes tasks for their deadlines. Returns the counts of the run when a shutdown has
    /// begun and all connections have ended, or when the shutdown's deadline has passed.
    pub(crate) fn supervise(&self) -> Drain {
        let _ = self.main.set(thread::current());
        let mut may_sweep = Instant::now();
        loop {
            let now = Instant::now();
            let end = self.server.shutdown.deadline().map(|deadline| deadline + SHUTDOWN_SLACK);
            if end.is_some_and(|end| now >= end || self.is_empty()) {
                return self.close_remaining();
            }
            let mut next = self.next_sweep.load(Ordering::SeqCst);
            if self.instant(next).is_some_and(|due| due.max(may_sweep) <= now) {
                next = self.sweep();
                may_sweep = Instant::now() + SWEEP_PAUSE;
            }
            let sweep = self.instant(next).map(|due| due.max(may_sweep));
            match [sweep, end].into_iter().flatten().min() {
                Some(wake_at) => thread::park_timeout(wake_at.saturating_duration_since(Instant::now())),
                None => thread::park(),
            }
        }
    }

    fn instant(&self, tick: u64) -> Option<Instant> {
        (tick != NEVER).then(|| self.start + Duration::from_millis(tick))
    }

    /// Closes the connections and listeners that are left, and counts their requests.
    fn close_remaining(&self) -> Drain {
        let mut stuck = 0;
        for entry in self.entries() {
            // A request counts as stuck or as cut, never as both.
            if entry.is_calling() {
                stuck += usize::from(entry.claim_count());
            } else if entry.is_busy() {
                self.count_cut(&entry);
            }
            let _ = entry.with_socket(|socket| net::shutdown(socket, Shutdown::Both)); // fails if the client is gone
        }
        for listener in lock(&self.listeners).iter().filter_map(Weak::upgrade) {
            let _ = net::shutdown(listener.as_ref(), Shutdown::Both); // refuses the clients that wait there
        }
        self.server.drained(stuck)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// Regression test: a rejected connection was in the count for a moment. If a connection ended in that moment, the
    /// next one was rejected as well, although there was room.
    #[test]
    fn a_rejected_connection_takes_no_place() {
        let (count, done) = (AtomicUsize::new(0), AtomicBool::new(false));
        let rejected = thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert!(!increment_below(&count, 0));
                }
            });
            let rejected = (0..300_000).filter(|_| {
                let admitted = increment_below(&count, 1);
                count.fetch_sub(usize::from(admitted), Ordering::SeqCst);
                !admitted
            });
            let rejected = rejected.count();
            done.store(true, Ordering::Relaxed);
            rejected
        });
        assert_eq!(rejected, 0);
    }
}
