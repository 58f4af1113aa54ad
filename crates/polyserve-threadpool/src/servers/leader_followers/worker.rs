//! One thread of the shared: serves a connection, takes the next that waits, leads or rests where none does.

use std::cell::Cell;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::serving::{ACCEPT_BACKOFF, ThreadBuffers, wait};
use polyserve_core::sync::lock;
use rustix::event::PollFlags;

use super::blocking_io::BlockingIo;
use super::connection_slot::ConnectionSlot;
use super::shared::{Assignment, Rest, Shared};

/// How long a thread rests before it ends.
const REST: Duration = Duration::from_secs(1);

/// A thread. Dropping it signs it off, however it ends.
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) slot: Arc<ConnectionSlot>,
    /// It is the one that must see to it that somebody accepts.
    leads: Cell<bool>,
    /// It has not waited for a connection since it had nothing to serve, and is counted so.
    eager: Cell<bool>,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, slot: Arc<ConnectionSlot>) -> Self {
        Self { shared, slot, leads: Cell::new(false), eager: Cell::new(false) }
    }

    pub(super) fn work(self) {
        let mut buffers = ThreadBuffers::new();
        let mut assignment = lock(&self.slot.assignment).take();
        while let Some(now) = assignment {
            self.set_eager(true);
            let mut next = match now {
                Assignment::Serve(stream) => Some(stream),
                Assignment::Lead => {
                    self.leads.set(true);
                    self.next()
                }
            };
            while let Some(stream) = next {
                self.serve(stream, &mut buffers);
                next = self.next();
            }
            assignment = self.rest();
        }
    }

    fn serve(&self, stream: TcpStream, buffers: &mut ThreadBuffers) {
        let stream = self.slot.attach(stream);
        BlockingIo::new(self, &stream).run(buffers);
        let has_place = self.slot.detach();
        drop(stream); // the last handle: the socket closes
        if has_place {
            self.shared.leave_place();
        }
        self.set_eager(true);
        tracing::trace!(thread = self.slot.name, "closed");
    }

    /// The next connection: one that waits already, or, for the leader, one that comes.
    fn next(&self) -> Option<TcpStream> {
        while !self.shared.server.shutdown.is_begun() {
            match self.shared.accept() {
                Ok(Some(stream)) => return Some(stream),
                Ok(None) | Err(_) if !self.leads() => return None,
                Ok(None) => {
                    if let Err(error) = self.shared.watch() {
                        tracing::warn!(%error, "cannot wait for connections");
                        thread::park_timeout(ACCEPT_BACKOFF);
                    }
                }
                Err(_) => {
                    let wake = (self.shared.wake.as_fd(), PollFlags::IN);
                    let _ = wait([wake], Some(Instant::now() + ACCEPT_BACKOFF), &mut Vec::new());
                }
            }
        }
        None
    }

    /// Waits for an assignment, for a while; `None` where the thread is to end.
    fn rest(&self) -> Option<Assignment> {
        self.set_eager(false);
        self.leads.set(false); // a leader comes here only at the end
        match self.shared.admit_spare(&self.slot) {
            Rest::Spare => {}
            Rest::Lead => return Some(Assignment::Lead),
            Rest::End => return None,
        }
        let until = Instant::now() + REST;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                thread::park_timeout(left);
            }
            let assignment = lock(&self.slot.assignment).take();
            if assignment.is_some() {
                return assignment;
            }
            let mut registry = lock(&self.shared.registry);
            // Orders are given to idle_threads, under this lock: one that is no spare has an assignment, or is to end.
            let Some(at) = registry.idle_threads.iter().position(|(slot, _)| Arc::ptr_eq(slot, &self.slot)) else {
                return lock(&self.slot.assignment).take();
            };
            if Instant::now() >= until {
                registry.idle_threads.remove(at);
                return None;
            }
        }
    }

    pub(super) fn leads(&self) -> bool {
        self.leads.get()
    }

    fn set_eager(&self, eager: bool) {
        if self.eager.replace(eager) != eager {
            let change = if eager { AtomicUsize::fetch_add } else { AtomicUsize::fetch_sub };
            change(&self.shared.eager, 1, Ordering::Relaxed);
        }
    }

    /// To be called before this thread waits for its connection: a leader makes another thread the leader.
    pub(super) fn step_back(&self) {
        self.set_eager(false);
        if self.leads.replace(false) {
            self.shared.promote();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.slot.detach() {
            self.shared.leave_place();
        }
        self.step_back();
        lock(&self.shared.registry).gone.push(self.slot.name);
        self.shared.wake_supervisor();
    }
}
