//! One connection of a [`ConnectionTable`](super::ConnectionTable): what it does, how other threads wake it, and what it counts as.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::IdleSince;
use super::deadline_clock::NEVER;
use crate::{PeerPlace, net};

/// A connection, as other threads use it: the thread that admits a new one, and the server's main thread.
pub trait ConnectionHandle: Send + Sync + 'static {
    /// Calls `act`, which does not block, with the socket.
    ///
    /// # Errors
    ///
    /// Returns the error of `act`, or that of the runtime to which the socket belongs.
    fn with_fd<T>(&self, act: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T>;

    /// Makes the driver take the next step of the connection: its deadline has passed, or a shutdown has begun. A connection
    /// that holds a thread is woken only if it is idle.
    fn wake(&self);

    /// Makes the driver find out that the connection was evicted. To be overridden if its thread looks for that itself.
    fn evict(&self) {
        self.wake();
    }

    /// Returns the address of the connection's other end.
    fn peer(&self) -> Option<SocketAddr> {
        self.with_fd(|socket| Ok(net::peer(socket))).ok().flatten()
    }

    /// Whether bytes have arrived that were not read yet.
    fn has_input(&self) -> bool {
        self.with_fd(|socket| Ok(net::has_input(socket))).unwrap_or(false)
    }

    /// Shuts the socket down in both directions.
    fn shut_down(&self) {
        let _ = self.with_fd(|socket| net::shutdown(socket, Shutdown::Both)); // an error: the client is gone
    }

    /// The connection was removed from the table. It is woken no more.
    fn removed(&self) {}
}

/// A connection of a [`ConnectionTable`](super::ConnectionTable), with the driver's handle. It dereferences to the handle.
#[derive(Debug)]
pub struct TableEntry<H> {
    /// [`BUSY`], [`QUIET`], [`EVICTED`], or the time since which the connection is idle: the bits of an [`IdleSince`].
    activity: AtomicU64,
    /// A time of the table's clock. [`NEVER`] if there is no deadline, or if the connection was woken for it.
    deadline: AtomicU64,
    /// The connection was evicted. It counts as lingering while its activity is [`EVICTED`].
    evicted: AtomicBool,
    /// The connection counts as lingering, whatever its activity: it has sent its last answer, or was evicted and has then ended.
    lingers: AtomicBool,
    /// A thread runs the service's code for this connection.
    calling: AtomicBool,
    /// The request was counted as cut or as stuck.
    counted: AtomicBool,
    pub(super) shard: usize,
    /// The position in the shard. Changed under the shard's lock.
    pub(super) index: AtomicUsize,
    /// Frees the place when the entry and its socket are dropped.
    _place: PeerPlace,
    handle: H,
}

/// A request has begun and is not completely answered.
const BUSY: u64 = 0;

/// No request has begun, and the connection cannot be evicted: it is new, or it lingers.
const QUIET: u64 = u64::MAX;

/// The connection was idle, and is closed for another.
const EVICTED: u64 = u64::MAX - 1;

impl<H> TableEntry<H> {
    pub(super) fn new(handle: H, shard: usize, index: usize, lingers: bool, place: PeerPlace) -> Self {
        Self {
            activity: AtomicU64::new(QUIET),
            deadline: AtomicU64::new(NEVER),
            evicted: AtomicBool::new(false),
            lingers: AtomicBool::new(lingers),
            calling: AtomicBool::new(false),
            counted: AtomicBool::new(false),
            shard,
            index: AtomicUsize::new(index),
            _place: place,
            handle,
        }
    }

    /// The driver's handle.
    pub fn handle(&self) -> &H {
        &self.handle
    }

    /// Calls `act`, in which the service's code may run.
    pub fn calling<T>(&self, act: impl FnOnce() -> T) -> T {
        self.set_calling(true);
        let result = act();
        self.set_calling(false);
        result
    }

    /// Notes that the service's code is about to be called, or has returned.
    pub fn set_calling(&self, calling: bool) {
        self.calling.store(calling, Ordering::Relaxed);
    }

    pub(super) fn is_calling(&self) -> bool {
        self.calling.load(Ordering::Relaxed)
    }

    /// Notes that a request has begun. Returns whether the connection was evicted while it was idle. If so, the caller counts it
    /// as open again.
    #[inline]
    pub(super) fn begin_request(&self) -> bool {
        if self.activity.load(Ordering::SeqCst) == BUSY {
            return false;
        }
        let was_evicted = self.activity.swap(BUSY, Ordering::SeqCst) == EVICTED;
        if was_evicted {
            self.evicted.store(true, Ordering::SeqCst);
        }
        was_evicted
    }

    /// Whether a request has begun and is not completely answered.
    pub fn is_busy(&self) -> bool {
        self.activity.load(Ordering::Relaxed) == BUSY
    }

    /// Notes that every request is answered, and that the connection may be evicted. If it is idle already, it keeps its
    /// time. To be called before the connection waits, and before its driver checks [`is_evicted`](Self::is_evicted).
    #[inline]
    pub fn set_idle(&self, since: impl FnOnce() -> IdleSince) {
        let activity = self.activity.load(Ordering::SeqCst);
        if activity == BUSY || activity == QUIET {
            let bits = since().bits();
            let _ = self.activity.compare_exchange(activity, bits, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Like [`set_idle`](Self::set_idle), for a connection of a multiplexed server: a shutdown wakes it in any state, so nothing depends
    /// on the order of this store and a load that follows. Only the driver changes an activity that is busy or quiet, so none is lost.
    #[inline]
    pub(super) fn note_idle(&self, since: IdleSince) {
        let activity = self.activity.load(Ordering::Relaxed);
        if activity == BUSY || activity == QUIET {
            self.activity.store(since.bits(), Ordering::Release);
        }
    }

    /// Notes that the connection is about to end, so that it is not evicted. Returns whether it was evicted before.
    pub fn set_quiet(&self) -> bool {
        if self.activity.swap(QUIET, Ordering::SeqCst) == EVICTED {
            self.evicted.store(true, Ordering::SeqCst);
            self.set_lingers();
        }
        self.is_evicted()
    }

    /// Whether the connection is idle, or was and is to be closed.
    pub(super) fn is_idle(&self) -> bool {
        ![BUSY, QUIET].contains(&self.activity.load(Ordering::SeqCst))
    }

    /// The time since which the connection is idle; `None` if it cannot be evicted.
    pub(super) fn idle_since(&self) -> Option<IdleSince> {
        let activity = self.activity.load(Ordering::SeqCst);
        (![BUSY, QUIET, EVICTED].contains(&activity) && !self.is_evicted()).then(|| IdleSince::from_bits(activity))
    }

    /// Whether the connection was evicted: it is closed once its socket is empty, or after the answer to the request that
    /// has arrived.
    pub fn is_evicted(&self) -> bool {
        self.evicted.load(Ordering::SeqCst)
    }

    /// Whether the connection counts as lingering. False while its activity is [`EVICTED`].
    pub(crate) fn lingers(&self) -> bool {
        self.lingers.load(Ordering::SeqCst)
    }

    pub(super) fn set_lingers(&self) {
        self.lingers.store(true, Ordering::SeqCst);
    }

    /// Stores the deadline. The order is sequentially consistent: [`DeadlineClock`](super::DeadlineClock) states why.
    pub(super) fn set_deadline(&self, deadline: u64) {
        self.deadline.store(deadline, Ordering::SeqCst);
    }

    pub(super) fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::SeqCst)
    }

    /// Clears the deadline. Returns false if it is not `deadline` any more.
    pub(super) fn take_deadline(&self, deadline: u64) -> bool {
        self.deadline.compare_exchange(deadline, NEVER, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Returns true for the first call only. The caller that gets true counts the request as cut or as stuck.
    pub(super) fn claim_count(&self) -> bool {
        !self.counted.swap(true, Ordering::Relaxed)
    }
}

impl<H: ConnectionHandle> TableEntry<H> {
    /// Evicts the connection if it is idle since `since` and has no input. Returns whether it did.
    pub(super) fn evict(&self, since: IdleSince) -> bool {
        let is_evicted = !self.handle.has_input()
            && self.activity.compare_exchange(since.bits(), EVICTED, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if is_evicted {
            self.evicted.store(true, Ordering::SeqCst);
        }
        is_evicted
    }
}

impl<H> Deref for TableEntry<H> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.handle
    }
}

/// Returns the stream of a connection that was [removed](super::ConnectionTable::remove) from its table; `None` if the process has
/// no descriptor left.
pub fn into_stream<H: Into<TcpStream> + AsRef<TcpStream>>(entry: Arc<TableEntry<H>>) -> Option<TcpStream> {
    match Arc::try_unwrap(entry) {
        Ok(entry) => Some(entry.handle.into()),
        Err(entry) => entry.handle.as_ref().try_clone().ok(), // another thread looks at it for a moment
    }
}

/// What a connection counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountedAs {
    /// It counts towards the limit.
    Open,
    /// It has sent its last answer or rejection and is not closed yet, or it was evicted and has received nothing since.
    Lingering,
}

/// The numbers of connections by what they count as. Both are in one atomic, so no check whether any is left misses a connection
/// that changes from one to the other. Each is below 2^32.
#[derive(Debug, Default)]
pub(super) struct Counts(AtomicU64);

const HALF: u32 = 32;

impl CountedAs {
    const fn one(self) -> u64 {
        match self {
            Self::Open => 1 << HALF,
            Self::Lingering => 1,
        }
    }

    fn of(self, counts: u64) -> usize {
        let count = match self {
            Self::Open => counts >> HALF,
            Self::Lingering => counts & u64::from(u32::MAX),
        };
        usize::try_from(count).unwrap_or(usize::MAX)
    }
}

impl Counts {
    pub(super) fn get(&self, kind: CountedAs) -> usize {
        kind.of(self.0.load(Ordering::SeqCst))
    }

    /// The number of all connections.
    pub(super) fn all(&self) -> usize {
        let counts = self.0.load(Ordering::SeqCst);
        CountedAs::Open.of(counts).saturating_add(CountedAs::Lingering.of(counts))
    }

    pub(super) fn add(&self, kind: CountedAs) {
        self.0.fetch_add(kind.one(), Ordering::SeqCst);
    }

    pub(super) fn subtract(&self, kind: CountedAs) {
        self.0.fetch_sub(kind.one(), Ordering::SeqCst);
    }

    /// Counts a connection, and returns true, unless the number of its kind has reached `max`. At the limit this number never
    /// exceeds `max`, not even for a moment. Otherwise a concurrent caller could fail although a connection has just ended.
    pub(super) fn add_below(&self, kind: CountedAs, max: usize) -> bool {
        self.update(|counts| (kind.of(counts) < max).then(|| counts.wrapping_add(kind.one())))
    }

    /// Counts an open connection as lingering, and returns true, unless `max` linger.
    pub(super) fn linger_below(&self, max: usize) -> bool {
        let change = CountedAs::Lingering.one().wrapping_sub(CountedAs::Open.one());
        self.update(|counts| (CountedAs::Lingering.of(counts) < max).then(|| counts.wrapping_add(change)))
    }

    /// Counts a lingering connection as open.
    pub(super) fn reopen(&self) {
        let change = CountedAs::Open.one().wrapping_sub(CountedAs::Lingering.one());
        self.0.fetch_add(change, Ordering::SeqCst);
    }

    fn update(&self, change: impl Fn(u64) -> Option<u64>) -> bool {
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    /// Regression test: a rejected connection was in the count for a moment. If a connection ended in that moment, the
    /// next one was rejected as well, although there was room.
    #[test]
    fn a_rejected_connection_takes_no_place() {
        let (counts, done) = (Counts::default(), AtomicBool::new(false));
        let rejected = thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert!(!counts.add_below(CountedAs::Open, 0));
                }
            });
            let rejected = (0..300_000).filter(|_| {
                let admitted = counts.add_below(CountedAs::Open, 1);
                if admitted {
                    counts.subtract(CountedAs::Open);
                }
                !admitted
            });
            let rejected = rejected.count();
            done.store(true, Ordering::Relaxed);
            rejected
        });
        assert_eq!(rejected, 0);
    }

    #[test]
    fn a_connection_counts_as_one_of_two() {
        let counts = Counts::default();
        let both = || (counts.get(CountedAs::Open), counts.get(CountedAs::Lingering));
        assert!(counts.add_below(CountedAs::Open, 1) && !counts.add_below(CountedAs::Open, 1));
        assert!(!counts.linger_below(0) && counts.linger_below(1));
        assert_eq!((both(), counts.all()), ((0, 1), 1));
        counts.add(CountedAs::Open);
        assert!(!counts.linger_below(1));
        counts.reopen();
        assert_eq!((both(), counts.all()), ((2, 0), 2));
        counts.subtract(CountedAs::Open);
        counts.subtract(CountedAs::Open);
        assert_eq!((both(), counts.all()), ((0, 0), 0));
    }
}
