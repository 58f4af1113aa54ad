//! One connection that holds a thread, and how another thread evicts it. [`OpenConnections`](super::OpenConnections) is the
//! set of these connections. It explains the three ways in which the thread of an evicted connection is woken.

use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::net;

/// A connection serves a request.
pub(super) const BUSY: u64 = 0;
/// A connection was idle, and must close.
pub(super) const LEAVING: u64 = u64::MAX;

/// The bit of the time since which a connection is idle that is set if it has sent something. So connections that have not
/// come first.
pub(super) const HAS_SENT: u64 = 1 << 63;

/// A connection that holds a thread. The socket closes when the last handle is dropped.
#[derive(Debug)]
pub struct OpenConnection {
    stream: TcpStream,
    /// [`BUSY`], [`LEAVING`], or the time since which it is idle: nanoseconds since the set's start, plus one, and
    /// [`HAS_SENT`].
    pub(super) state: AtomicU64,
    evicted: AtomicBool,
    has_sent: AtomicBool,
    /// The thread of the connection does not check for an eviction itself any more: an eviction must wake it.
    must_be_woken: AtomicBool,
    /// An eviction closed the reading side.
    read_closed: AtomicBool,
    /// Readable once the connection was evicted.
    pub(super) wake: Option<WakePipe>,
    /// The position in the set. Changed under the set's lock.
    pub(super) index: AtomicUsize,
    /// Whether the connection counts as leaving. Changed under the set's lock.
    pub(super) is_leaving: AtomicBool,
    /// Whether the connection counts as lingering. Changed under the set's lock.
    pub(super) lingers: AtomicBool,
}

impl OpenConnection {
    /// A busy connection at position `index` of the set.
    pub(super) fn new(stream: TcpStream, wake: Option<WakePipe>, index: usize) -> Self {
        Self {
            stream,
            state: AtomicU64::new(BUSY),
            evicted: AtomicBool::new(false),
            has_sent: AtomicBool::new(false),
            must_be_woken: AtomicBool::new(false),
            read_closed: AtomicBool::new(false),
            wake,
            index: AtomicUsize::new(index),
            is_leaving: AtomicBool::new(false),
            lingers: AtomicBool::new(false),
        }
    }

    /// Takes the wake pipe and the stream out. The pipe is empty, so that another connection can use it.
    pub(super) fn into_parts(self) -> (Option<WakePipe>, TcpStream) {
        let wake = self.wake.map(|mut wake| {
            let _ = wake.reader.read(&mut [0]); // the byte of an eviction, if there was one
            wake
        });
        (wake, self.stream)
    }

    /// Notes that the connection is idle since `since`. Returns false, and keeps the state, if it was idle already or was
    /// evicted.
    pub(super) fn set_idle(&self, since: u64) -> bool {
        self.must_be_woken.store(false, Ordering::SeqCst);
        self.state.compare_exchange(BUSY, since, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Notes that the connection has sent something.
    pub fn set_has_sent(&self) {
        self.has_sent.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_sent(&self) -> bool {
        self.has_sent.load(Ordering::Relaxed)
    }

    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Whether the connection was evicted. It has to leave once it is idle.
    pub fn is_evicted(&self) -> bool {
        self.evicted.load(Ordering::SeqCst)
    }

    /// Whether an eviction closed the reading side, so that an end of the input may not be the client's.
    pub fn is_read_closed(&self) -> bool {
        self.read_closed.load(Ordering::SeqCst)
    }

    /// A descriptor that is readable once the connection was evicted. `None` if the connection has none: see
    /// [`must_be_woken`](Self::must_be_woken).
    pub fn eviction(&self) -> Option<BorrowedFd<'_>> {
        self.wake.as_ref().map(|wake| wake.reader.as_fd())
    }

    /// Notes that the thread of an idle connection waits until it is woken. From now on, an eviction of a connection without
    /// a descriptor closes the reading side, which makes the socket readable. To be called before a check of
    /// [`is_evicted`](Self::is_evicted).
    pub fn must_be_woken(&self) {
        self.must_be_woken.store(true, Ordering::SeqCst);
    }

    /// Evicts the connection if it has been idle since `since`. Returns false if it is not idle any more.
    pub(super) fn evict(&self, since: u64) -> bool {
        let evicted = self.state.compare_exchange(since, LEAVING, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if evicted && !self.evicted.swap(true, Ordering::SeqCst) {
            match &self.wake {
                Some(wake) => drop((&wake.writer).write(&[1])),
                None if self.must_be_woken.load(Ordering::SeqCst) => self.close_reading(),
                None => {} // its thread looks for the eviction at the end of the grace
            }
        }
        evicted
    }

    pub(super) fn close_reading(&self) {
        self.read_closed.store(true, Ordering::SeqCst);
        let _ = net::shutdown(&self.stream, Shutdown::Read); // an error: the client is gone
    }
}

/// The pipe that wakes a thread of a pool. One connection at a time has it.
#[derive(Debug)]
pub(super) struct WakePipe {
    /// It does not block.
    reader: PipeReader,
    writer: PipeWriter,
}

impl WakePipe {
    pub(super) fn new() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        rustix::io::ioctl_fionbio(&reader, true)?;
        Ok(Self { reader, writer })
    }
}
