//! A thread's slot: the connection that it serves, as the other threads see it.
//!
//! Invariant: who touches a connection from outside does so under its slot's lock, and a connection is taken from its
//! slot before it closes: nobody shuts down a descriptor that has become another's. Cost: two uncontended locks for a
//! connection, a store for a request.

use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use polyserve_core::sync::lock;

use super::shared::Assignment;

/// One thread, and what it serves.
pub(super) struct ConnectionSlot {
    pub(super) name: u64,
    /// What the thread is to do next; given only while it rests, or before it starts.
    pub(super) assignment: Mutex<Option<Assignment>>,
    stream: Mutex<Option<Arc<TcpStream>>>,
    start: Instant,
    /// Milliseconds since the server's start when the connection became idle, plus one; 0 while it is busy.
    idle_since: AtomicU64,
    /// Something has been read from it.
    spoken: AtomicBool,
    /// The reading side was closed from here, so that an end of input may not be the client's.
    told_to_leave: AtomicBool,
    /// It was told so to make room: its place is another's already.
    replaced: AtomicBool,
}

impl ConnectionSlot {
    pub(super) fn new(name: u64, start: Instant, assignment: Assignment) -> Self {
        let [spoken, told_to_leave, replaced] = [const { AtomicBool::new(false) }; 3];
        let (assignment, stream) = (Mutex::new(Some(assignment)), Mutex::new(None));
        Self { name, assignment, stream, start, idle_since: AtomicU64::new(0), spoken, told_to_leave, replaced }
    }

    /// Takes a connection.
    pub(super) fn attach(&self, stream: TcpStream) -> Arc<TcpStream> {
        let stream = Arc::new(stream);
        let mut seated = lock(&self.stream);
        self.idle_since.store(0, Ordering::SeqCst);
        for flag in [&self.spoken, &self.told_to_leave, &self.replaced] {
            flag.store(false, Ordering::SeqCst);
        }
        *seated = Some(Arc::clone(&stream));
        stream
    }

    /// Gives the connection up; says whether there was one whose place is still its own.
    pub(super) fn detach(&self) -> bool {
        let mut seated = lock(&self.stream);
        self.idle_since.store(0, Ordering::SeqCst);
        seated.take().is_some() && !self.replaced.load(Ordering::SeqCst)
    }

    pub(super) fn set_idle(&self, idle: bool) {
        let since = if idle { as_millis(self.start.elapsed()) + 1 } else { 0 };
        self.idle_since.store(since, Ordering::SeqCst);
    }

    pub(super) fn set_spoken(&self) {
        if !self.spoken.load(Ordering::Relaxed) {
            self.spoken.store(true, Ordering::SeqCst);
        }
    }

    pub(super) fn is_told_to_leave(&self) -> bool {
        self.told_to_leave.load(Ordering::SeqCst)
    }

    /// Since when its connection may be closed for another's sake. One that has not said a word counts as idle only
    /// after the head's timeout: its first byte may be on its way.
    pub(super) fn idle_since(&self, head_timeout: Duration) -> Option<u64> {
        let since = self.idle_since.load(Ordering::SeqCst);
        let silent = as_millis(self.start.elapsed().saturating_sub(head_timeout));
        let idle = since > 0 && (self.spoken.load(Ordering::SeqCst) || since < silent);
        (idle && !self.replaced.load(Ordering::SeqCst)).then_some(since)
    }

    /// Tells the connection that has been idle `since` then to leave, and takes its place; false where it is not idle
    /// any more.
    pub(super) fn replace(&self, since: u64) -> bool {
        let seated = lock(&self.stream);
        let Some(stream) = &*seated else { return false };
        if self.idle_since.load(Ordering::SeqCst) != since || self.replaced.swap(true, Ordering::SeqCst) {
            return false;
        }
        self.tell(stream);
        true
    }

    /// Tells the connection to leave, if it is idle.
    pub(super) fn leave_if_idle(&self) {
        if let Some(stream) = &*lock(&self.stream)
            && self.idle_since.load(Ordering::SeqCst) > 0
        {
            self.tell(stream);
        }
    }

    /// Closes the reading side: a thread that waits for a request wakes up.
    fn tell(&self, stream: &TcpStream) {
        self.told_to_leave.store(true, Ordering::SeqCst);
        let _ = stream.shutdown(Shutdown::Read);
    }

    /// Ends whatever the connection is doing.
    pub(super) fn cut(&self) {
        if let Some(stream) = &*lock(&self.stream) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn as_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX - 1)
}
