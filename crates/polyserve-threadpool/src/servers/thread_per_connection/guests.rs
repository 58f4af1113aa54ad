//! The connections of a `thread_per_connection` server, and the threads that have ended.

use std::collections::HashMap;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use polyserve_core::sync::lock;

/// The connections that have a thread, and the threads that have ended and wait to be joined.
#[derive(Default)]
pub(super) struct Guests {
    pub(super) present: Mutex<Present>,
    pub(super) gone: Mutex<Vec<u64>>,
    pub(super) ended: Condvar,
}

#[derive(Default)]
pub(super) struct Present {
    pub(super) guests: HashMap<u64, Arc<Guest>>,
    /// How many of them were told to leave for another's sake, and so no longer count.
    pub(super) leaving: usize,
}

pub(super) struct Guest {
    pub(super) stream: TcpStream,
    /// Milliseconds since the server's start when it became idle, plus one; 0 while it is busy.
    pub(super) idle_since: AtomicU64,
    /// Something has been read from it.
    pub(super) spoken: AtomicBool,
    /// The reading side was closed from here, so that an end of input may not be the client's.
    pub(super) told_to_leave: AtomicBool,
    /// It was told so to make room.
    pub(super) replaced: AtomicBool,
}

impl Guest {
    pub(super) fn new(stream: TcpStream) -> Self {
        let [spoken, told_to_leave, replaced] = [const { AtomicBool::new(false) }; 3];
        Self { stream, idle_since: AtomicU64::new(0), spoken, told_to_leave, replaced }
    }

    /// Closes the reading side: a thread that waits for a request wakes up.
    pub(super) fn tell_to_leave(&self) {
        self.told_to_leave.store(true, Ordering::SeqCst);
        let _ = self.stream.shutdown(Shutdown::Read);
    }
}

/// Signs a connection's thread off, however it ends.
pub(super) struct Leave {
    pub(super) name: u64,
    pub(super) guests: Arc<Guests>,
}

impl Drop for Leave {
    fn drop(&mut self) {
        let mut present = lock(&self.guests.present);
        let guest = present.guests.remove(&self.name);
        let replaced = guest.as_ref().is_some_and(|guest| guest.replaced.load(Ordering::SeqCst));
        present.leaving -= usize::from(replaced);
        drop(present);
        drop(guest); // the last handle: the socket closes, outside the lock
        lock(&self.guests.gone).push(self.name);
        self.guests.ended.notify_one();
    }
}

pub(super) fn millis_since(start: Instant) -> u64 {
    as_millis(start.elapsed())
}

pub(super) fn as_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX - 1)
}
