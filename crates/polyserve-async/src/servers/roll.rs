//! Every open connection of a run: how many there are, when each is late, and how all of them end.
//!
//! A timer for each connection would put a lock on every request. Here a connection writes its deadline into its own
//! [`Place`], and the server's main thread looks through all of them when the earliest may have passed: a deadline that
//! only moves later, as that of a busy connection does, costs nobody anything.
//!
//! Invariants: the main thread looks no later than the earliest deadline that was written, rounded up to a tick, or 10 ms
//! after its last look; a task is woken for its deadline once; who is on the roll when a shutdown begins is woken.
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

use super::place::{NEVER, Place};
use super::runtime::Runtime;

/// The roll of one run of a server.
#[derive(Debug)]
pub(crate) struct Roll<R: Runtime> {
    pub(crate) server: ServerState,
    /// What the accept loops have to say.
    pub(crate) log_throttle: LogThrottle,
    shards: Box<[Shard<R>]>,
    /// Connections that are served.
    open: AtomicUsize,
    /// Connections whose last answer is sent, and those that are turned away.
    departing: AtomicUsize,
    /// Loops that still accept, and their listeners.
    accepting: AtomicUsize,
    listeners: Mutex<Vec<Weak<R::Watched>>>,
    start: Instant,
    /// The tick at which the main thread looks next.
    next: AtomicU64,
    main: OnceLock<Thread>,
}

/// A part of the roll. Its lock is taken once when a connection comes, and once when it goes.
type Shard<R> = Mutex<Slab<Arc<Place<R>>>>;

/// More than this depart at once only in a flood; those beyond are closed at once.
const MOST_DEPARTING: usize = 256;

/// Between two looks at all deadlines.
const PAUSE: Duration = Duration::from_millis(10);

/// How a newcomer is received.
pub(crate) enum Admission<R: Runtime> {
    /// It is served.
    Served(Arc<Place<R>>),
    /// There are too many: it is told so.
    Rejected(Arc<Place<R>>),
    /// There are far too many: it was closed.
    Closed,
}

/// Counts one more, unless there are `most`. One that is turned away is never in the count, not for a moment: another who
/// looks just then would be turned away from a place that is free.
fn take_one(count: &AtomicUsize, most: usize) -> bool {
    let more = |count| (count < most).then_some(count + 1);
    count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
}

impl<R: Runtime> Roll<R> {
    /// For connections from `loops` accept loops, each with a part of the roll of its own.
    pub(crate) fn new(server: ServerState, loops: usize) -> Arc<Self> {
        let roll = Arc::new(Self {
            server,
            log_throttle: LogThrottle::new(),
            shards: (0..loops.max(1)).map(|_| Mutex::new(Slab::new())).collect(),
            open: AtomicUsize::new(0),
            departing: AtomicUsize::new(0),
            accepting: AtomicUsize::new(loops),
            listeners: Mutex::new(Vec::new()),
            start: Instant::now(),
            next: AtomicU64::new(NEVER),
            main: OnceLock::new(),
        });
        let weak = Arc::downgrade(&roll);
        roll.server.shutdown.on_begin(move || {
            if let Some(roll) = weak.upgrade() {
                roll.rouse();
                roll.wake_all();
            }
        });
        roll
    }

    /// Receives a newcomer, who does not block.
    pub(crate) fn admit(&self, socket: TcpStream, shard: usize) -> Admission<R> {
        if take_one(&self.open, self.server.config.max_connections) {
            return Admission::Served(self.enter(socket, shard));
        }
        if !self.begin_departing() {
            return Admission::Closed;
        }
        Admission::Rejected(self.enter(socket, shard))
    }

    fn enter(&self, socket: TcpStream, shard: usize) -> Arc<Place<R>> {
        let shard = shard % self.shards.len();
        let mut slab = lock(&self.shards[shard]);
        let entry = slab.vacant_entry();
        let place = Arc::new(Place::new(socket, shard, entry.key()));
        entry.insert(Arc::clone(&place));
        place
    }

    /// One that was served departs: its room is free again. False where it is to be closed at once.
    pub(crate) fn depart(&self) -> bool {
        let may = self.begin_departing();
        if may {
            self.open.fetch_sub(1, Ordering::SeqCst);
        }
        may
    }

    fn begin_departing(&self) -> bool {
        take_one(&self.departing, MOST_DEPARTING)
    }

    /// A connection is gone.
    pub(crate) fn leave(&self, place: &Place<R>, was_departing: bool) {
        drop(lock(&self.shards[place.shard]).try_remove(place.key));
        place.forget_waker();
        let counter = if was_departing { &self.departing } else { &self.open };
        counter.fetch_sub(1, Ordering::SeqCst);
        self.rouse_if_ending();
    }

    /// Counts the request of `place` as cut, once.
    pub(crate) fn count_cut(&self, place: &Place<R>) {
        if place.is_to_be_counted() {
            self.server.count_cut();
        }
    }

    /// Takes note of a listener, to close it at the end where its loop does not come to it.
    pub(crate) fn note_listener(&self, listener: &Arc<R::Watched>) {
        lock(&self.listeners).push(Arc::downgrade(listener));
    }

    /// An accept loop has ended, and its listener is closed.
    pub(crate) fn end_accepting(&self) {
        self.accepting.fetch_sub(1, Ordering::SeqCst);
        self.rouse_if_ending();
    }

    fn rouse_if_ending(&self) {
        if self.server.shutdown.is_begun() && self.is_empty() {
            self.rouse();
        }
    }

    fn is_empty(&self) -> bool {
        [&self.accepting, &self.open, &self.departing].iter().all(|count| count.load(Ordering::SeqCst) == 0)
    }

    /// Has `place` woken at `deadline`, or at the shutdown's if that is earlier.
    pub(crate) fn watch(&self, place: &Place<R>, deadline: Instant) {
        let tick = self.tick(self.server.within(deadline));
        if place.deadline() == tick {
            return;
        }
        place.set_deadline(tick);
        if tick < self.next.load(Ordering::SeqCst) && self.next.fetch_min(tick, Ordering::SeqCst) > tick {
            self.rouse();
        }
    }

    /// Milliseconds since the start, rounded up.
    fn tick(&self, instant: Instant) -> u64 {
        let nanos = instant.saturating_duration_since(self.start).as_nanos();
        u64::try_from(nanos.div_ceil(1_000_000)).unwrap_or(NEVER - 1)
    }

    fn rouse(&self) {
        if let Some(main) = self.main.get() {
            main.unpark();
        }
    }

    fn wake_all(&self) {
        for place in self.places() {
            place.wake();
        }
    }

    fn places(&self) -> Vec<Arc<Place<R>>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(lock(shard).iter().map(|(_, place)| Arc::clone(place)));
        }
        all
    }

    /// Wakes who is late; says when the next one is.
    fn sweep(&self) -> u64 {
        self.next.store(NEVER, Ordering::SeqCst);
        let now = self.tick(Instant::now());
        let mut earliest = NEVER;
        let mut late = Vec::new();
        for shard in &self.shards {
            for (_, place) in lock(shard).iter() {
                match place.deadline() {
                    tick if tick <= now => late.push((Arc::clone(place), tick)),
                    tick => earliest = earliest.min(tick),
                }
            }
        }
        for (place, tick) in late {
            if place.take_deadline(tick) {
                place.wake();
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
                let next = self.sweep();
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
        self.finish()
    }

    fn instant(&self, tick: u64) -> Option<Instant> {
        (tick != NEVER).then(|| self.start + Duration::from_millis(tick))
    }

    /// Closes what has not ended, and counts it.
    fn finish(&self) -> Drain {
        let mut stuck = 0;
        for place in self.places() {
            // The request of a stuck thread is not counted as cut, too.
            if place.is_calling() {
                stuck += usize::from(place.is_to_be_counted());
            } else if place.is_busy() {
                self.count_cut(&place);
            }
            let _ = place.with_socket(|socket| net::shut(socket, Shutdown::Both)); // gone already, then
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

    /// Whoever was turned away was in the count for a moment. Another, who came just then to a place that had become free,
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
