//! One open connection, as others see it: its socket, its deadline, and how its task is woken.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::task::Waker;

use polyserve_core::sync::lock;

use super::server_runtime::ServerRuntime;

/// A connection's entry on the [`ConnectionRegistry`](super::connection_registry::ConnectionRegistry).
#[derive(Debug)]
pub(crate) struct ConnectionEntry<R: ServerRuntime> {
    /// The socket, until the runtime watches it.
    fresh: Mutex<Option<TcpStream>>,
    watched: OnceLock<R::Socket>,
    /// In the registry's ticks; [`NEVER`] where it has none, or its task was woken for it.
    deadline: AtomicU64,
    waker: Mutex<Option<Waker>>,
    /// A thread is in the service's code for this connection.
    calling: AtomicBool,
    /// A request has begun and is not wholly answered.
    busy: AtomicBool,
    /// Its request was counted as cut or as stuck: by its task or by the main thread, whoever came first.
    counted: AtomicBool,
    /// Where it is on the registry.
    pub(super) shard: usize,
    pub(super) key: usize,
}

/// No deadline.
pub(super) const NEVER: u64 = u64::MAX;

impl<R: ServerRuntime> ConnectionEntry<R> {
    pub(super) fn new(socket: TcpStream, shard: usize, key: usize) -> Self {
        Self {
            fresh: Mutex::new(Some(socket)),
            watched: OnceLock::new(),
            deadline: AtomicU64::new(NEVER),
            waker: Mutex::new(None),
            calling: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            counted: AtomicBool::new(false),
            shard,
            key,
        }
    }

    /// Does something with the socket that does not block.
    pub(crate) fn with_socket<T>(&self, act: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        if let Some(watched) = self.watched.get() {
            return act(watched.as_fd());
        }
        match &*lock(&self.fresh) {
            Some(socket) => act(socket.as_fd()),
            None => Err(io::ErrorKind::NotConnected.into()), // the runtime would not watch it
        }
    }

    /// Has the runtime watch the socket from now on.
    pub(crate) fn register(&self) -> io::Result<()> {
        match lock(&self.fresh).take() {
            Some(socket) => drop(self.watched.set(R::register(socket)?)),
            None if self.watched.get().is_some() => {}
            None => return Err(io::ErrorKind::NotConnected.into()),
        }
        Ok(())
    }

    /// The socket, once it is watched.
    pub(crate) fn socket(&self) -> Option<&R::Socket> {
        self.watched.get()
    }

    /// Says how to wake the connection's task. A task that has said so sees every shutdown that it was not woken for.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        *lock(&self.waker) = Some(waker.clone());
    }

    /// Wakes its task.
    pub(super) fn wake(&self) {
        let waker = lock(&self.waker).clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Forgets the task's waker, which would keep the task's memory.
    pub(super) fn forget_waker(&self) {
        drop(lock(&self.waker).take());
    }

    /// In one order with the sweep's own word of when it comes next.
    pub(super) fn set_deadline(&self, tick: u64) {
        self.deadline.store(tick, Ordering::SeqCst);
    }

    pub(super) fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::SeqCst)
    }

    /// Takes the deadline `tick` away, unless there is another by now.
    pub(super) fn take_deadline(&self, tick: u64) -> bool {
        self.deadline.compare_exchange(tick, NEVER, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// To be said around every call into the service's code.
    pub(crate) fn set_calling(&self, calling: bool) {
        self.calling.store(calling, Ordering::Relaxed);
    }

    pub(super) fn is_calling(&self) -> bool {
        self.calling.load(Ordering::Relaxed)
    }

    /// To be said before the task waits: whether a request has begun and is not wholly answered.
    pub(crate) fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::Relaxed);
    }

    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }

    /// True for the first who asks: he counts what is cut here.
    pub(super) fn claim_count(&self) -> bool {
        !self.counted.swap(true, Ordering::Relaxed)
    }
}
