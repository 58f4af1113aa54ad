//! The slot of a connection, through which other threads evict the connection, close it if it is idle, or cut it.
//!
//! Invariant: another thread uses a connection only under the lock of the connection's slot, and the connection is removed
//! from the slot before it is closed. So a shutdown never hits a file descriptor that was reused. Cost: two uncontended
//! locks for a connection, a few stores for a request.
//!
//! The thread of an idle connection looks for an eviction itself at the end of a grace,
//! [`EVICTION_GRACE`](polyserve_serving::EVICTION_GRACE). After that it must be woken. It stores that and then
//! loads whether the connection was evicted. An eviction stores that and then loads whether the thread must be woken.
//! All four are sequentially consistent: one of the two sees the other.

use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use polyserve_core::sync::lock;
use polyserve_serving::net;
use polyserve_serving::{CROWDED_AFTER, IdleSince};

/// The clock of the idle connections. Also stores whether there were more active connections than the limit a short time ago.
pub(super) struct IdleClock {
    /// The server's start.
    start: Instant,
    /// Answers say `Connection: close` until this time; 0 if the time has passed.
    crowded_until: AtomicU64,
}

impl IdleClock {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), crowded_until: AtomicU64::new(0) }
    }

    /// Notes that there are more active connections than the limit: one was rejected, or an eviction hit an active
    /// connection.
    pub(super) fn set_crowded(&self) {
        self.crowded_until.store(self.now().saturating_add(as_millis(CROWDED_AFTER)), Ordering::Relaxed);
    }

    /// Whether there were more active connections than the limit a short time ago.
    fn is_crowded(&self) -> bool {
        let until = self.crowded_until.load(Ordering::Relaxed);
        if until == 0 {
            return false;
        }
        let is_crowded = self.now() < until;
        if !is_crowded {
            let _ = self.crowded_until.compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        is_crowded
    }

    /// Milliseconds since the start.
    pub(super) fn now(&self) -> u64 {
        as_millis(self.start.elapsed())
    }
}

/// The slot of the connection that a thread serves, for the other threads.
pub(super) struct ConnectionSlot {
    stream: Mutex<Option<Arc<TcpStream>>>,
    clock: Arc<IdleClock>,
    /// The bits of the [`IdleSince`] of the connection; 0 while it is busy.
    idle_since: AtomicU64,
    /// Bytes have been received.
    has_received: AtomicBool,
    /// The thread does not check for an eviction itself any more: an eviction must wake it.
    must_be_woken: AtomicBool,
    /// Another thread closed the reading side, so an end of input may not come from the client.
    read_closed: AtomicBool,
    /// The connection was evicted. A new connection counts in its place.
    evicted: AtomicBool,
}

impl ConnectionSlot {
    pub(super) fn new(clock: Arc<IdleClock>) -> Self {
        let [has_received, must_be_woken, read_closed, evicted] = [const { AtomicBool::new(false) }; 4];
        let (stream, idle_since) = (Mutex::new(None), AtomicU64::new(0));
        Self { stream, clock, idle_since, has_received, must_be_woken, read_closed, evicted }
    }

    /// Puts a connection into the slot.
    pub(super) fn attach(&self, stream: TcpStream) -> Arc<TcpStream> {
        let stream = Arc::new(stream);
        let mut attached = lock(&self.stream);
        self.idle_since.store(0, Ordering::SeqCst);
        for flag in [&self.has_received, &self.read_closed, &self.evicted] {
            flag.store(false, Ordering::SeqCst);
        }
        *attached = Some(Arc::clone(&stream));
        stream
    }

    /// Removes the connection. Returns whether there was one that still counts as open: an evicted one does not.
    pub(super) fn detach(&self) -> bool {
        let mut attached = lock(&self.stream);
        self.idle_since.store(0, Ordering::SeqCst);
        attached.take().is_some() && !self.evicted.load(Ordering::SeqCst)
    }

    /// Notes that the connection is idle, so that it may be evicted. If it is idle already, it keeps its time. Its
    /// thread must look for an eviction until it calls [`must_be_woken`](Self::must_be_woken).
    pub(super) fn set_idle(&self) {
        if self.idle_since.load(Ordering::Relaxed) == 0 {
            self.must_be_woken.store(false, Ordering::SeqCst);
            let since = IdleSince::new(self.clock.now(), self.has_received.load(Ordering::Relaxed));
            self.idle_since.store(since.bits(), Ordering::SeqCst);
        }
    }

    /// Notes that the connection is not idle. If it was evicted, there are more active connections than the limit.
    pub(super) fn set_busy(&self) {
        self.idle_since.store(0, Ordering::SeqCst);
        if self.is_evicted() {
            self.clock.set_crowded();
        }
    }

    /// Notes that the thread of an idle connection waits until it is woken. To be called before a check of
    /// [`is_evicted`](Self::is_evicted).
    pub(super) fn must_be_woken(&self) {
        self.must_be_woken.store(true, Ordering::SeqCst);
    }

    /// Whether the next answer is to say `Connection: close`: the connection was evicted, or there were more active
    /// connections than the limit a short time ago.
    pub(super) fn must_announce_close(&self) -> bool {
        self.is_evicted() || self.clock.is_crowded()
    }

    /// Notes that bytes have been received.
    pub(super) fn set_received(&self) {
        if !self.has_received.load(Ordering::Relaxed) {
            self.has_received.store(true, Ordering::SeqCst);
        }
    }

    /// Whether the connection was evicted. It must end with its next answer, because it does not count any more.
    pub(super) fn is_evicted(&self) -> bool {
        self.evicted.load(Ordering::SeqCst)
    }

    /// Whether another thread has closed the reading side.
    pub(super) fn is_read_closed(&self) -> bool {
        self.read_closed.load(Ordering::SeqCst)
    }

    /// Returns the time since which the connection is idle; `None` if it is not idle, or was evicted.
    pub(super) fn idle_since(&self) -> Option<IdleSince> {
        let since = self.idle_since.load(Ordering::SeqCst);
        (since != 0 && !self.is_evicted()).then(|| IdleSince::from_bits(since))
    }

    /// Evicts the connection if it is idle since `since` and has no input. Returns whether it did.
    pub(super) fn evict(&self, since: IdleSince) -> bool {
        let attached = lock(&self.stream);
        let Some(stream) = &*attached else { return false };
        if net::has_input(&**stream)
            || self.idle_since.load(Ordering::SeqCst) != since.bits()
            || self.evicted.swap(true, Ordering::SeqCst)
        {
            return false;
        }
        if self.must_be_woken.load(Ordering::SeqCst) {
            self.close_reading(stream);
        }
        true
    }

    /// Makes the connection close if it is idle.
    pub(super) fn close_if_idle(&self) {
        if let Some(stream) = &*lock(&self.stream)
            && self.idle_since.load(Ordering::SeqCst) > 0
        {
            self.close_reading(stream);
        }
    }

    /// Closes the reading side, which wakes a thread that waits for a request.
    fn close_reading(&self, stream: &TcpStream) {
        self.read_closed.store(true, Ordering::SeqCst);
        let _ = stream.shutdown(Shutdown::Read);
    }

    /// Closes both sides, so that any wait for the client ends.
    pub(super) fn cut(&self) {
        if let Some(stream) = &*lock(&self.stream) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn as_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: a connection that was evicted while active was closed at once, and its client's next request got no
    /// answer. Other connections' answers did not announce a close.
    #[test]
    fn an_eviction_of_an_active_connection_is_announced_by_all() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _clients = [(); 2].map(|()| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let clock = Arc::new(IdleClock::new());
        let slots = [(); 2].map(|()| ConnectionSlot::new(Arc::clone(&clock)));
        for slot in &slots {
            slot.attach(listener.accept().unwrap().0);
            slot.set_received();
        }
        let evict = |slot: &ConnectionSlot| slot.idle_since().is_some_and(|since| slot.evict(since));
        let [first, second] = &slots;
        first.set_idle();
        assert!(evict(first));
        assert!(first.must_announce_close() && !first.is_read_closed(), "its thread looks for the eviction");
        assert!(!second.must_announce_close());
        first.set_busy();
        assert!(second.must_announce_close());
        second.set_idle();
        second.must_be_woken();
        assert!(evict(second));
        assert!(second.is_read_closed(), "its thread waits until it is woken");
    }
}
