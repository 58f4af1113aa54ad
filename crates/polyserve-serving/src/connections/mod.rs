//! The table of a server's open connections: admission at the limit, eviction, deadlines, drain and counts.
//!
//! A driver admits each connection that it accepts ([`ConnectionTable::admit`]), notes when the connection is idle or busy, and
//! removes it at its end. It gives the table a [`ConnectionHandle`] for each connection, by which other threads wake it.
//!
//! # Multiplexed servers
//!
//! A timer for each connection would take a lock for each request. Instead, a connection stores its deadline in its
//! [`TableEntry`] ([`ConnectionTable::note_wait`]). The server's main thread ([`ConnectionTable::supervise`]) sweeps the entries
//! when the earliest deadline may have passed, and wakes the connections that are late. It also wakes all connections if a
//! shutdown begins.
//!
//! The thread that accepts a connection admits it, or [reserves](ConnectionTable::reserve) its place, before it calls
//! [`ConnectionTable::accept_loop_ended`]; another thread may serve it. A connection that is accepted and not admitted is lost to a drain, which ends when the table is empty and no accept loop is
//! left.
//!
//! # Servers in which a connection holds a thread
//!
//! A thread waits in a system call with a timeout of its own. Only an eviction and a drain must wake it:
//! [`ConnectionTable::wake_idle`], [`ConnectionTable::finish`].
//!
//! # Invariants
//!
//! * A connection is admitted only if its client has fewer than `max_connections_per_peer` in the table, and if fewer than
//!   `max_connections` count as open. At the limit, the one that has been idle for longest (see [`IdleQueue`]) is evicted for it. If none
//!   is idle, the new connection is to be rejected.
//! * A connection that is evicted, or that has sent its last answer, counts as lingering from then on. If an evicted connection
//!   then receives bytes, it counts as open again until its last answer. Only so can more than `max_connections` count as open.
//! * A connection with unread input is not evicted.
//! * A sweep begins when the earliest stored deadline has passed, rounded up to 8 ms, but at least 10 ms after the
//!   last sweep. A connection is woken once for each deadline.
//! * A shutdown wakes all connections of a multiplexed server that are in the table when it begins.
//!
//! # No lost wake-up
//!
//! A thread that waits stores that its connection is idle, and then loads whether a shutdown has begun. A drain begins the
//! shutdown, and then loads the state of the connection. All four are sequentially consistent: one of the two sees the other.
//!
//! # Cost
//!
//! Two uncontended locks and an allocation for a connection. For a wait of a multiplexed server, one sequentially consistent store,
//! unless its deadline falls into the same 8 ms as the last one; for an idle wait an atomic exchange at its end. A sweep of n connections
//! costs n loads, at most 100 times a second. While no deadline passes, the main thread sleeps. An eviction costs O(1) amortised.

mod deadline_clock;
mod entry;
mod idle_queue;
mod serve;

use std::fmt;
use std::net::{IpAddr, Shutdown};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use polyserve_core::sync::{Mutex, lock};
use polyserve_core::{Counters, Drain};

use crate::{
    CROWDED_AFTER, Connection, HasSent, MAX_LINGERING, PeerPlace, SHUTDOWN_SLACK, ServerState, ThreadBuffers, net,
};
pub(crate) use deadline_clock::LastMillis;
use deadline_clock::NEVER;
pub use deadline_clock::{DeadlineClock, millis, nanos};
pub use entry::{ConnectionHandle, TableEntry, into_stream};
use entry::{CountedAs, Counts};
pub use idle_queue::{FoundConnections, IdleQueue, IdleSince};
pub use serve::{EventSocket, TurnEnd, TurnSocket, WriteKind};

/// The open connections of one run of a server. `H` is what the server keeps for each of them.
#[derive(Debug)]
pub struct ConnectionTable<H> {
    /// The run that the connections belong to.
    pub server: Arc<ServerState>,
    shards: Box<[Shard<H>]>,
    counts: Counts,
    max_lingering: usize,
    /// The connections that are evicted next.
    idle: Mutex<IdleQueue<Weak<TableEntry<H>>>>,
    /// The number of accept loops that have not ended.
    accept_loops: AtomicUsize,
    /// Shut down the listeners that are left at the end of the run.
    close_listeners: Mutex<Vec<CloseListener>>,
    clock: DeadlineClock,
    /// Answers say `Connection: close` until this time of the clock; 0 if it has passed.
    crowded_until: AtomicU64,
    /// How often there were more active connections than the limit.
    times_crowded: AtomicU64,
    main: OnceLock<Thread>,
}

/// The place of a connection that counts as open and is not in the table yet. If it is dropped, the connection counts for ever: to be
/// passed to [`ConnectionTable::admit_at`] or [`ConnectionTable::release`].
#[derive(Debug)]
#[must_use]
pub struct ReservedPlace(PeerPlace);

/// Shuts a listener down, which refuses the clients that wait there.
struct CloseListener(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for CloseListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CloseListener(..)")
    }
}

/// A part of the table. Its lock is taken when a connection is added and when it is removed.
type Shard<H> = Mutex<Vec<Arc<TableEntry<H>>>>;

/// The minimum time between two sweeps.
const SWEEP_PAUSE: Duration = Duration::from_millis(10);

/// Returns a deadline in milliseconds as it is stored: rounded up to a multiple of 8 ms. So a connection that is served again and again
/// stores one seldom. A sweep may follow its deadline by more than that anyway.
#[inline]
fn rounded_up(deadline: u64) -> u64 {
    const MASK: u64 = 7;
    deadline.saturating_add(MASK) & !MASK
}

impl<H: ConnectionHandle> ConnectionTable<H> {
    /// An empty table for a server in which a connection holds a thread. A lingering connection may hold its thread too, so at
    /// most `max_connections` linger. `shards`: the number of threads that are expected to add connections at the same time.
    pub fn new(server: Arc<ServerState>, shards: usize) -> Self {
        let max_lingering = server.config.max_connections.min(MAX_LINGERING);
        Self {
            server,
            shards: (0..shards.max(1)).map(|_| Mutex::default()).collect(),
            counts: Counts::default(),
            max_lingering,
            idle: Mutex::default(),
            accept_loops: AtomicUsize::new(0),
            close_listeners: Mutex::default(),
            clock: DeadlineClock::default(),
            crowded_until: AtomicU64::new(0),
            times_crowded: AtomicU64::new(0),
            main: OnceLock::new(),
        }
    }

    /// An empty table for a multiplexed server. The server's main thread calls [`supervise`](Self::supervise). `loops`: the number
    /// of accept loops, each of which calls [`accept_loop_ended`](Self::accept_loop_ended) once. It is also the number of shards.
    pub fn multiplexed(server: Arc<ServerState>, loops: usize) -> Arc<Self> {
        let (max_lingering, accept_loops) = (MAX_LINGERING, AtomicUsize::new(loops));
        let table = Arc::new(Self { max_lingering, accept_loops, ..Self::new(server, loops) });
        let weak = Arc::downgrade(&table);
        table.server.shutdown.on_begin(move || {
            if let Some(table) = weak.upgrade() {
                table.wake_main();
                table.entries().iter().for_each(|entry| entry.handle().wake());
            }
        });
        table
    }

    /// Returns a function that returns the present counters, for [`Running::start`](polyserve_core::Running::start).
    pub fn counters(self: &Arc<Self>) -> impl Fn() -> Counters + Send + Sync + 'static + use<H> {
        let table = Arc::clone(self);
        move || table.server.counters(table.open())
    }

    /// The number of connections that count towards the limit.
    pub fn open(&self) -> usize {
        self.counts.get(CountedAs::Open)
    }

    /// The number of connections in the table, those that linger included.
    pub fn len(&self) -> usize {
        self.counts.all()
    }

    /// Whether no connection is in the table.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a connection. At the limit, it takes the place of the connection that has been idle for longest. `shard`: any
    /// number.
    ///
    /// # Errors
    ///
    /// Returns the handle if `max_connections` are open and none is idle, or if its client has `max_connections_per_peer`. The caller
    /// then rejects the connection.
    pub fn admit(&self, handle: H, shard: usize) -> Result<Arc<TableEntry<H>>, H> {
        self.admit_evicting(handle, shard, || self.evict().is_some())
    }

    /// Like [`admit`](Self::admit). `evict`: evicts a connection, and returns false if none is idle. If more than `max_connections`
    /// are open, it is called more than once.
    pub(crate) fn admit_evicting(
        &self,
        handle: H,
        shard: usize,
        evict: impl FnMut() -> bool,
    ) -> Result<Arc<TableEntry<H>>, H> {
        match self.reserve_evicting(|| Some(handle.peer()?.ip()), evict) {
            Some(place) => Ok(self.insert(handle, shard, Some(place.0))),
            None => Err(handle),
        }
    }

    /// Counts a connection that [`admit_at`](Self::admit_at) adds later, on any thread, under the rules of
    /// [`admit`](Self::admit). `peer` returns the address of its client. Returns `None` if the connection is to be rejected.
    pub fn reserve(&self, peer: impl FnOnce() -> Option<IpAddr>) -> Option<ReservedPlace> {
        self.reserve_evicting(peer, || self.evict().is_some())
    }

    fn reserve_evicting(
        &self,
        peer: impl FnOnce() -> Option<IpAddr>,
        mut evict: impl FnMut() -> bool,
    ) -> Option<ReservedPlace> {
        // Before the eviction: a client past its own limit takes no place of others.
        let place = self.server.peers.admit(peer)?;
        while !self.counts.add_below(CountedAs::Open, self.server.config.max_connections) {
            if !evict() {
                self.set_crowded();
                return None;
            }
        }
        Some(ReservedPlace(place))
    }

    /// Frees the place of a connection that is not added.
    pub fn release(&self, place: ReservedPlace) {
        drop(place);
        self.subtract(CountedAs::Open);
    }

    /// Adds a connection that is rejected and then lingers. It takes no place of its client.
    ///
    /// # Errors
    ///
    /// Returns the handle if too many linger.
    pub fn admit_rejected(&self, handle: H, shard: usize) -> Result<Arc<TableEntry<H>>, H> {
        let may_linger = self.counts.add_below(CountedAs::Lingering, self.max_lingering);
        if may_linger { Ok(self.insert(handle, shard, None)) } else { Err(handle) }
    }

    fn insert(&self, handle: H, shard: usize, place: Option<PeerPlace>) -> Arc<TableEntry<H>> {
        let (shard, lingers) = (shard % self.shards.len(), place.is_none());
        let mut entries = lock(&self.shards[shard]);
        let entry = Arc::new(TableEntry::new(handle, shard, entries.len(), lingers, place.unwrap_or_default()));
        entries.push(Arc::clone(&entry));
        entry
    }

    /// Removes a connection that has ended. Does nothing if it was removed before. Multiplexed servers call
    /// [`close`](Self::close), which counts a request that is cut.
    pub fn remove(&self, entry: &TableEntry<H>) {
        entry.set_quiet();
        {
            let mut entries = lock(&self.shards[entry.shard]);
            let index = entry.index.load(Ordering::Relaxed);
            if !entries.get(index).is_some_and(|open| std::ptr::eq(&raw const **open, entry)) {
                return;
            }
            entries.swap_remove(index);
            if let Some(moved) = entries.get(index) {
                moved.index.store(index, Ordering::Relaxed);
            }
        }
        entry.handle().removed();
        self.subtract(if entry.lingers() { CountedAs::Lingering } else { CountedAs::Open });
    }

    fn subtract(&self, kind: CountedAs) {
        self.counts.subtract(kind);
        self.wake_main_if_done();
    }

    /// Whether `max_connections` are open.
    pub fn is_full(&self) -> bool {
        self.open() >= self.server.config.max_connections
    }

    /// Like [`evict`](Self::evict), for this connection. Returns false if it is not idle any more, or has input.
    pub fn evict_entry(&self, entry: &TableEntry<H>) -> bool {
        entry.idle_since().is_some_and(|since| self.try_evict(entry, since))
    }

    /// Evicts a connection that is idle since `since`.
    fn try_evict(&self, entry: &TableEntry<H>, since: IdleSince) -> bool {
        // It counts as both for a moment, so that its end, or its next request, never finds it uncounted.
        self.counts.add(CountedAs::Lingering);
        let is_evicted = entry.evict(since);
        if is_evicted {
            entry.handle().evict();
        }
        self.subtract(if is_evicted { CountedAs::Open } else { CountedAs::Lingering });
        is_evicted
    }

    /// Evicts the connection that has been idle for longest, so that it counts as lingering. Returns `None` if none is idle.
    pub fn evict(&self) -> Option<Arc<TableEntry<H>>> {
        let search = |found: &mut FoundConnections<_>| {
            for shard in &self.shards {
                for entry in &*lock(shard) {
                    if let Some(since) = entry.idle_since() {
                        found.offer(since, || Arc::downgrade(entry));
                    }
                }
            }
        };
        let mut evicted = None;
        lock(&self.idle).evict_one(self.clock.millis_at(Instant::now()), search, |since, entry| {
            evicted = entry.upgrade().filter(|entry| self.try_evict(entry, since));
            evicted.is_some()
        });
        evicted
    }

    /// The time since which a connection is idle, if that is `instant`. `has_sent`: whether the client has ever sent
    /// anything.
    pub fn idle_since(&self, instant: Instant, has_sent: bool) -> IdleSince {
        IdleSince::new(self.clock.millis_at(instant), has_sent)
    }

    /// Notes what `connection` waits for, and until when. For a multiplexed server, before the connection waits: it is woken at
    /// its deadline, and may be evicted while it is idle.
    pub fn note_wait(&self, entry: &TableEntry<H>, connection: &Connection, buffers: &mut ThreadBuffers) {
        let (began, limit) = connection.present_wait();
        let since = buffers.last_millis.at(&self.clock, began);
        match connection.idle() {
            Some(HasSent(has_sent)) => entry.note_idle(IdleSince::new(since, has_sent)),
            None if connection.is_lingering() => {} // it is quiet
            None => self.set_busy(entry),
        }
        let cut = connection.drain_deadline(&self.server).map(|cut| self.clock.millis_at(cut));
        let deadline = rounded_up(since.saturating_add(limit));
        self.set_deadline_millis(entry, cut.map_or(deadline, |cut| cut.min(deadline)));
    }

    /// Notes that bytes were received on a connection.
    #[inline]
    pub fn note_bytes(&self, entry: &TableEntry<H>) {
        if self.begin_request(entry) {
            self.set_crowded(); // the connection that was evicted is active
        }
    }

    /// Notes that a request has begun. To be called as soon as bytes were received, unless [`note_bytes`](Self::note_bytes) is:
    /// from then on, the connection is not evicted.
    #[inline]
    pub fn set_busy(&self, entry: &TableEntry<H>) {
        let _ = self.begin_request(entry);
    }

    /// Like [`set_busy`](Self::set_busy). Returns whether the connection was evicted while it was idle. It counts as open again.
    #[inline]
    pub(crate) fn begin_request(&self, entry: &TableEntry<H>) -> bool {
        let was_evicted = entry.begin_request();
        if was_evicted {
            self.counts.reopen();
        }
        was_evicted
    }

    /// Counts a connection as lingering from now on: it has sent its last answer. Returns false if too many linger; then a
    /// connection that counts as open goes on doing so.
    pub fn begin_linger(&self, entry: &TableEntry<H>) -> bool {
        if entry.lingers() {
            return true; // it was rejected, or counted before
        }
        entry.set_quiet();
        if entry.lingers() {
            return self.counts.get(CountedAs::Lingering) <= self.max_lingering; // it was evicted
        }
        let may_linger = self.counts.linger_below(self.max_lingering);
        if may_linger {
            entry.set_lingers();
        }
        may_linger
    }

    /// Counts the request of `entry` as cut, unless it was counted.
    pub fn count_cut(&self, entry: &TableEntry<H>) {
        if entry.claim_count() {
            self.server.count_cut();
        }
    }

    /// Whether the next answer must say `Connection: close`: the connection was evicted, or there were more active connections
    /// than the limit in the last [`CROWDED_AFTER`]. Cost: two loads, and a clock read if there were.
    pub fn must_announce_close(&self, entry: &TableEntry<H>) -> bool {
        entry.is_evicted() || self.is_crowded()
    }

    fn is_crowded(&self) -> bool {
        let until = self.crowded_until.load(Ordering::Relaxed);
        if until == 0 {
            return false;
        }
        let is_crowded = self.clock.millis_at(Instant::now()) < until;
        if !is_crowded {
            let _ = self.crowded_until.compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        is_crowded
    }

    /// Notes that there are more active connections than the limit: one was rejected, or an eviction hit an active one.
    pub(crate) fn set_crowded(&self) {
        self.crowded_until.store(self.clock.millis_at(Instant::now() + CROWDED_AFTER), Ordering::Relaxed);
        self.times_crowded.fetch_add(1, Ordering::Relaxed);
    }

    /// How often there were more active connections than the limit since the start.
    pub(crate) fn times_crowded(&self) -> u64 {
        self.times_crowded.load(Ordering::Relaxed)
    }

    fn entries(&self) -> Vec<Arc<TableEntry<H>>> {
        self.shards.iter().flat_map(|shard| lock(shard).clone()).collect()
    }

    /// Wakes the connections that are idle, for a drain. A thread that becomes idle later must look at the shutdown itself, after
    /// [`TableEntry::set_idle`].
    pub fn wake_idle(&self) {
        for entry in self.entries().iter().filter(|entry| entry.is_idle()) {
            entry.handle().wake();
        }
    }

    /// Shuts all connections down, in any state.
    pub fn shut_down(&self) {
        self.entries().iter().for_each(|entry| entry.handle().shut_down());
    }

    /// Waits on the server's main thread until the table is empty and all accept loops have ended, and shuts those connections down that
    /// are open at the shutdown's deadline. Returns the number of connections with a thread that is stuck in the service's code. For the
    /// end of a drain of a server in which a connection holds a thread, after [`wake_idle`](Self::wake_idle).
    ///
    /// Calls `on_wake` at first, each time the thread was [woken](Self::wake_main), at the time that the last call returned, and
    /// after the connections were shut down.
    pub fn finish(&self, mut on_wake: impl FnMut() -> Option<Instant>) -> usize {
        let deadline = self.server.shutdown.deadline().unwrap_or_else(Instant::now);
        if !self.wait_until_done(deadline, &mut on_wake) {
            self.shut_down();
            self.wait_until_done(deadline + SHUTDOWN_SLACK, &mut on_wake);
        }
        self.len()
    }

    /// Waits until the table is empty and all accept loops have ended. Returns false if `deadline` has passed before.
    fn wait_until_done(&self, deadline: Instant, on_wake: &mut impl FnMut() -> Option<Instant>) -> bool {
        let _ = self.main.set(thread::current());
        loop {
            let wake_at = on_wake().map_or(deadline, |wake_at| wake_at.min(deadline));
            let now = Instant::now();
            if self.is_done() || now >= deadline {
                return self.is_done();
            }
            thread::park_timeout(wake_at.saturating_duration_since(now));
        }
    }

    /// Sets the time at which a connection is woken: `deadline`, or the shutdown's deadline if that is earlier.
    ///
    /// No deadline is missed by a concurrent sweep: see [`DeadlineClock`].
    pub fn set_deadline(&self, entry: &TableEntry<H>, deadline: Instant) {
        self.set_deadline_millis(entry, self.clock.millis_at(self.server.within(deadline)));
    }

    fn set_deadline_millis(&self, entry: &TableEntry<H>, deadline: u64) {
        if entry.deadline() == deadline {
            return;
        }
        entry.set_deadline(deadline);
        if self.clock.note(deadline) {
            self.wake_main();
        }
    }

    /// Wakes the server's main thread.
    pub fn wake_main(&self) {
        if let Some(main) = self.main.get() {
            main.unpark();
        }
    }

    fn wake_main_if_done(&self) {
        if self.server.shutdown.is_begun() && self.is_done() {
            self.wake_main();
        }
    }

    fn is_done(&self) -> bool {
        self.accept_loops.load(Ordering::SeqCst) == 0 && self.is_empty()
    }

    /// Adds the listener of an accept loop. It is shut down at the end of the run if the loop has not dropped it, unless the server was
    /// [given](ServerState::listening_on) it. An accept loop over [`Incoming`](crate::Incoming) needs no such call: it serves nothing, so
    /// it ends with the shutdown.
    pub fn register_listener<L: AsFd + Send + Sync + 'static>(&self, listener: &Arc<L>) {
        if self.server.shares_listener() {
            return;
        }
        let listener = Arc::downgrade(listener);
        lock(&self.close_listeners).push(CloseListener(Box::new(move || {
            if let Some(listener) = listener.upgrade() {
                let _ = net::shutdown(&*listener, Shutdown::Both); // an error: it is shut down
            }
        })));
    }

    /// Counts an accept loop that goes on accepting during a drain. [`multiplexed`](Self::multiplexed) counts its own.
    pub fn accept_loop_started(&self) {
        self.accept_loops.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts an accept loop as ended. Its listener is closed.
    pub fn accept_loop_ended(&self) {
        self.accept_loops.fetch_sub(1, Ordering::SeqCst);
        self.wake_main_if_done();
    }

    /// Wakes the connections that are past their deadlines.
    fn sweep(&self) {
        self.clock.begin_sweep();
        let now = self.clock.now();
        let mut earliest = NEVER;
        let mut expired = Vec::new();
        for shard in &self.shards {
            for entry in &*lock(shard) {
                match entry.deadline() {
                    deadline if deadline <= now => expired.push((Arc::clone(entry), deadline)),
                    deadline => earliest = earliest.min(deadline),
                }
            }
        }
        for (entry, deadline) in expired {
            if entry.take_deadline(deadline) {
                entry.handle().wake();
            }
        }
        let _ = self.clock.note(earliest);
    }

    /// Runs on the main thread of a multiplexed server: wakes connections for their deadlines. Returns the counts of the run
    /// when a shutdown has begun and all connections and accept loops have ended, or when the shutdown's deadline has passed.
    /// Then the sockets and the own listeners that are left are shut down, and their requests are counted.
    ///
    /// After it, join the threads of the server: all if [`stuck`](Drain::stuck) is 0, and otherwise those that have ended.
    pub fn supervise(&self) -> Drain {
        let _ = self.main.set(thread::current());
        let mut may_sweep = Instant::now();
        loop {
            let now = Instant::now();
            let end = self.server.shutdown.deadline().map(|deadline| deadline + SHUTDOWN_SLACK);
            if end.is_some_and(|end| now >= end || self.is_done()) {
                return self.close_remaining();
            }
            if self.clock.earliest().is_some_and(|due| due.max(may_sweep) <= now) {
                self.sweep();
                may_sweep = Instant::now() + SWEEP_PAUSE;
            }
            let sweep = self.clock.earliest().map(|due| due.max(may_sweep));
            match [sweep, end].into_iter().flatten().min() {
                Some(wake_at) => thread::park_timeout(wake_at.saturating_duration_since(Instant::now())),
                None => thread::park(),
            }
        }
    }

    /// Shuts the connections down that are left, and counts their requests.
    fn close_remaining(&self) -> Drain {
        let mut stuck = 0;
        for entry in self.entries() {
            // A request counts as stuck or as cut, never as both.
            if entry.is_calling() {
                stuck += usize::from(entry.claim_count());
            } else if entry.is_busy() {
                self.count_cut(&entry);
            }
            entry.handle().shut_down();
        }
        lock(&self.close_listeners).iter().for_each(|close| (close.0)());
        self.server.drained(stuck)
    }
}

#[cfg(test)]
mod tests;
