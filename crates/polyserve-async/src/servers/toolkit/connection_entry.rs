//! One open connection in the registry: its socket, its deadline, and the waker of its task.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::task::Waker;

use polyserve_core::sync::lock;
use polyserve_serving::IdleSince;
use polyserve_serving::net;

use super::async_socket::AsyncSocket;

/// A connection in the [`ConnectionRegistry`](super::connection_registry::ConnectionRegistry).
#[derive(Debug)]
pub(crate) struct ConnectionEntry<S> {
    /// The socket until it is registered with the runtime.
    unregistered: Mutex<Option<TcpStream>>,
    registered: OnceLock<S>,
    /// A tick of the registry. [`NEVER`] if there is no deadline, or if the task was woken for it.
    deadline: AtomicU64,
    waker: Mutex<Option<Waker>>,
    /// A thread runs the service's code for this connection.
    calling: AtomicBool,
    /// [`BUSY`], [`QUIET`], [`EVICTED`], or the time since which the connection is idle: the bits of an [`IdleSince`].
    activity: AtomicU64,
    /// The connection was evicted, and does not count as open any more.
    evicted: AtomicBool,
    /// The request was counted as cut or as stuck.
    counted: AtomicBool,
    /// The entry's position in the registry.
    pub(super) shard: usize,
    pub(super) key: usize,
}

/// The tick that stands for no deadline.
pub(super) const NEVER: u64 = u64::MAX;

/// A request has begun and is not completely answered.
const BUSY: u64 = 0;

/// No request has begun, and the connection cannot be evicted: it is new, or it lingers.
const QUIET: u64 = u64::MAX;

/// The connection was idle, and is closed for another.
const EVICTED: u64 = u64::MAX - 1;

impl<S: AsyncSocket> ConnectionEntry<S> {
    pub(super) fn new(socket: TcpStream, shard: usize, key: usize) -> Self {
        Self {
            unregistered: Mutex::new(Some(socket)),
            registered: OnceLock::new(),
            deadline: AtomicU64::new(NEVER),
            waker: Mutex::new(None),
            calling: AtomicBool::new(false),
            activity: AtomicU64::new(QUIET),
            evicted: AtomicBool::new(false),
            counted: AtomicBool::new(false),
            shard,
            key,
        }
    }

    /// Calls `act`, which must not block, with the socket.
    ///
    /// # Errors
    ///
    /// Returns the error of `act`. Returns [`NotConnected`](io::ErrorKind::NotConnected) if registering the socket has
    /// failed.
    pub(crate) fn with_socket<T>(&self, act: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        if let Some(socket) = self.registered.get() {
            return act(socket.as_fd());
        }
        match &*lock(&self.unregistered) {
            Some(socket) => act(socket.as_fd()),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Returns the address of the connection's other end.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.with_socket(|socket| Ok(net::peer(socket))).ok().flatten()
    }

    /// Registers the socket with the runtime, unless it is registered. Must be called inside the runtime.
    pub(crate) fn register(&self) -> io::Result<()> {
        match lock(&self.unregistered).take() {
            Some(socket) => drop(self.registered.set(S::register(socket)?)),
            None if self.registered.get().is_some() => {}
            None => return Err(io::ErrorKind::NotConnected.into()),
        }
        Ok(())
    }

    /// Returns the socket if it is registered with the runtime.
    pub(crate) fn socket(&self) -> Option<&S> {
        self.registered.get()
    }

    /// Sets the waker of the connection's task. To be called before the task checks for a shutdown. So the task either sees
    /// the shutdown or is woken for it.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        *lock(&self.waker) = Some(waker.clone());
    }

    /// Wakes the connection's task.
    pub(super) fn wake(&self) {
        let waker = lock(&self.waker).clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Drops the waker, because a waker keeps the memory of its task.
    pub(super) fn drop_waker(&self) {
        drop(lock(&self.waker).take());
    }

    /// Stores the deadline. The order is sequentially consistent: the registry's `set_deadline` says why.
    pub(super) fn set_deadline(&self, tick: u64) {
        self.deadline.store(tick, Ordering::SeqCst);
    }

    pub(super) fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::SeqCst)
    }

    /// Clears the deadline. Returns false if it is not `tick` any more.
    pub(super) fn take_deadline(&self, tick: u64) -> bool {
        self.deadline.compare_exchange(tick, NEVER, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Calls `act`, in which the service's code may run.
    pub(crate) fn calling<T>(&self, act: impl FnOnce() -> T) -> T {
        self.set_calling(true);
        let result = act();
        self.set_calling(false);
        result
    }

    /// Notes that the service's code is about to be called, or has returned.
    pub(crate) fn set_calling(&self, calling: bool) {
        self.calling.store(calling, Ordering::Relaxed);
    }

    pub(super) fn is_calling(&self) -> bool {
        self.calling.load(Ordering::Relaxed)
    }

    /// Notes that a request has begun. To be called as soon as bytes were received: from then on, the connection is not
    /// evicted.
    pub(crate) fn set_busy(&self) {
        if self.activity.load(Ordering::SeqCst) != BUSY && self.activity.swap(BUSY, Ordering::SeqCst) == EVICTED {
            self.evicted.store(true, Ordering::SeqCst);
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.activity.load(Ordering::Relaxed) == BUSY
    }

    /// Notes that every request is answered, and that the connection may be evicted. If it is idle already, it keeps its
    /// time. To be called before the task waits, and before it checks [`is_evicted`](Self::is_evicted).
    pub(crate) fn set_idle(&self, since: impl FnOnce() -> IdleSince) {
        let activity = self.activity.load(Ordering::SeqCst);
        if activity == BUSY || activity == QUIET {
            let bits = since().bits();
            let _ = self.activity.compare_exchange(activity, bits, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Notes that the connection is about to end, so that it is not evicted. Returns whether it was evicted before.
    pub(crate) fn set_quiet(&self) -> bool {
        if self.activity.swap(QUIET, Ordering::SeqCst) == EVICTED {
            self.evicted.store(true, Ordering::SeqCst);
        }
        self.is_evicted()
    }

    /// The time since which the connection is idle; `None` if it cannot be evicted.
    pub(super) fn idle_since(&self) -> Option<IdleSince> {
        let activity = self.activity.load(Ordering::SeqCst);
        (![BUSY, QUIET, EVICTED].contains(&activity) && !self.is_evicted()).then(|| IdleSince::from_bits(activity))
    }

    /// Whether the connection was evicted: it is closed once its socket is empty, or after the answer to the request that
    /// has arrived.
    pub(crate) fn is_evicted(&self) -> bool {
        self.evicted.load(Ordering::SeqCst)
    }

    /// Evicts the connection if it is idle since `since` and has no input. Returns whether it did. The caller wakes the task.
    pub(super) fn evict(&self, since: IdleSince) -> bool {
        let has_input = self.with_socket(|socket| Ok(net::has_input(socket))).unwrap_or(false);
        let is_evicted = !has_input
            && self.activity.compare_exchange(since.bits(), EVICTED, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if is_evicted {
            self.evicted.store(true, Ordering::SeqCst);
        }
        is_evicted
    }

    /// Returns true for the first call only. The caller that gets true counts the request as cut or as stuck.
    pub(super) fn claim_count(&self) -> bool {
        !self.counted.swap(true, Ordering::Relaxed)
    }
}
