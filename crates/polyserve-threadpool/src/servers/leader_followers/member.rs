//! One thread of the crew: serves a connection, takes the next that waits, leads or rests where none does.

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

use super::crew::{Crew, Order, Rest};
use super::seat::Seat;
use super::visit::Visit;

/// How long a thread rests before it ends.
const REST: Duration = Duration::from_secs(1);

/// A thread. Dropping it signs it off, however it ends.
pub(super) struct Member {
    pub(super) crew: Arc<Crew>,
    pub(super) seat: Arc<Seat>,
    /// It is the one that must see to it that somebody accepts.
    leads: Cell<bool>,
    /// It has not waited for a connection since it had nothing to serve, and is counted so.
    eager: Cell<bool>,
}

impl Member {
    pub(super) fn new(crew: Arc<Crew>, seat: Arc<Seat>) -> Self {
        Self { crew, seat, leads: Cell::new(false), eager: Cell::new(false) }
    }

    pub(super) fn work(self) {
        let mut buffers = ThreadBuffers::new();
        let mut order = lock(&self.seat.order).take();
        while let Some(now) = order {
            self.set_eager(true);
            let mut next = match now {
                Order::Serve(stream) => Some(stream),
                Order::Lead => {
                    self.leads.set(true);
                    self.next()
                }
            };
            while let Some(stream) = next {
                self.serve(stream, &mut buffers);
                next = self.next();
            }
            order = self.rest();
        }
    }

    fn serve(&self, stream: TcpStream, buffers: &mut ThreadBuffers) {
        let stream = self.seat.sit(stream);
        Visit::new(self, &stream).run(buffers);
        let has_place = self.seat.rise();
        drop(stream); // the last handle: the socket closes
        if has_place {
            self.crew.leave_place();
        }
        self.set_eager(true);
        tracing::trace!(thread = self.seat.name, "closed");
    }

    /// The next connection: one that waits already, or, for the leader, one that comes.
    fn next(&self) -> Option<TcpStream> {
        while !self.crew.server.shutdown.is_begun() {
            match self.crew.accept() {
                Ok(Some(stream)) => return Some(stream),
                Ok(None) | Err(_) if !self.leads() => return None,
                Ok(None) => {
                    if let Err(error) = self.crew.watch() {
                        tracing::warn!(%error, "cannot wait for connections");
                        thread::park_timeout(ACCEPT_BACKOFF);
                    }
                }
                Err(_) => {
                    let wake = (self.crew.wake.as_fd(), PollFlags::IN);
                    let _ = wait([wake], Some(Instant::now() + ACCEPT_BACKOFF), &mut Vec::new());
                }
            }
        }
        None
    }

    /// Waits for an order, for a while; `None` where the thread is to end.
    fn rest(&self) -> Option<Order> {
        self.set_eager(false);
        self.leads.set(false); // a leader comes here only at the end
        match self.crew.admit_spare(&self.seat) {
            Rest::Spare => {}
            Rest::Lead => return Some(Order::Lead),
            Rest::End => return None,
        }
        let until = Instant::now() + REST;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                thread::park_timeout(left);
            }
            let order = lock(&self.seat.order).take();
            if order.is_some() {
                return order;
            }
            let mut roll = lock(&self.crew.roll);
            // Orders are given to spares, under this lock: one that is no spare has an order, or is to end.
            let Some(at) = roll.spares.iter().position(|(seat, _)| Arc::ptr_eq(seat, &self.seat)) else {
                return lock(&self.seat.order).take();
            };
            if Instant::now() >= until {
                roll.spares.remove(at);
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
            change(&self.crew.eager, 1, Ordering::Relaxed);
        }
    }

    /// To be called before this thread waits for its connection: a leader makes another thread the leader.
    pub(super) fn step_back(&self) {
        self.set_eager(false);
        if self.leads.replace(false) {
            self.crew.promote();
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.seat.rise() {
            self.crew.leave_place();
        }
        self.step_back();
        lock(&self.crew.roll).gone.push(self.seat.name);
        self.crew.rouse();
    }
}
