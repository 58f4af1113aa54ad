//! What a worker does that accepts: it serves what it accepts, and waits a moment for more.
//!
//! A connection that has not said anything when it is accepted is usually about to: it stays in the lobby, where the
//! worker looks at it together with the listener, and is registered with the poller only when it stays silent. The
//! lobby is shared: where the worker is held up by another connection's service, the poller takes the others over.
//!
//! Invariant: a connection in the lobby is `RUNNING`; who takes it out of the lobby runs it or parks it.

use std::array;
use std::io::Read as _;
use std::mem;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use polyserve_core::sync::lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::intake::{ACCEPT, Accepted, Intake};
use super::slots::{QUEUED, RUNNING};
use super::worker::{Outcome, Shared};

/// After so many connections a seat goes to the end of the executor's queue, for what else it has to do.
const TURN: usize = 1024;

/// And after so many where jobs of this server wait for a worker.
const SHORT_TURN: usize = 4;

/// How long a worker waits for something to come before it leaves its seat.
const STAY: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// So many connections have room in the lobby.
const LOBBY: usize = 32;

/// A connection that is silent for so long leaves the lobby.
const PATIENCE: Duration = Duration::from_millis(1);

/// A connection in the lobby.
#[derive(Debug)]
pub(super) struct Guest {
    name: usize,
    stream: Arc<TcpStream>,
    /// It has said something.
    ready: bool,
    since: Instant,
    /// It has been silent for too long.
    late: bool,
}

/// One of the jobs that accept. Dropping it leaves.
struct Seat<'a> {
    shared: &'a Shared,
    /// Connections may still wait.
    more: bool,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.shared.intake.leave(&self.shared.registry, self.more);
    }
}

impl Intake {
    /// Waits a moment for connections, and for those in the lobby; one worker does at a time. False where nothing has
    /// come, or something else is to be done.
    fn stay(&self) -> bool {
        if self.others_wait() || self.staying.swap(true, Ordering::SeqCst) {
            return false;
        }
        // In this order: either who queues a job sees that somebody stays, or the one who stays sees the job.
        let come = !self.others_wait() && self.look();
        if self.staying.swap(false, Ordering::SeqCst) {
            return come;
        }
        let _ = (&self.bell.0).read(&mut [0]); // rung: one byte is there, or about to be
        false
    }

    fn look(&self) -> bool {
        let Some(listener) = self.listener() else { return false };
        let mut lobby = mem::take(&mut *lock(&self.lobby));
        let mut polled: [PollFd<'_>; LOBBY + 2] =
            array::from_fn(|place| match (place, lobby.get(place.wrapping_sub(2))) {
                (1, _) => PollFd::new(&self.bell.0, PollFlags::IN),
                (_, None) => PollFd::new(&*listener, PollFlags::IN),
                (_, Some(guest)) => PollFd::from_borrowed_fd(guest.stream.as_fd(), PollFlags::IN),
            });
        let used = polled.len().min(lobby.len() + 2);
        let some = poll(polled.get_mut(..used).unwrap_or_default(), Some(&STAY)).is_ok_and(|some| some > 0);
        let ready = polled.map(|polled| !polled.revents().is_empty());
        let now = Instant::now();
        for (guest, ready) in lobby.iter_mut().zip(ready.into_iter().skip(2)) {
            guest.ready = ready;
            guest.late = now.saturating_duration_since(guest.since) > PATIENCE;
        }
        // Before one of them is served, which may hold this worker up, the others are where the poller finds them.
        lock(&self.lobby).append(&mut lobby);
        some
    }

    /// Leaves a silent connection in the lobby, if there is room.
    fn seat_guest(&self, guest: Guest) -> Result<(), Guest> {
        let mut lobby = lock(&self.lobby);
        if lobby.len() >= LOBBY {
            return Err(guest);
        }
        lobby.push(guest);
        Ok(())
    }

    /// Takes one out of the lobby that has said something, or was silent for too long.
    fn call_guest(&self) -> Option<Guest> {
        let mut lobby = lock(&self.lobby);
        let next = lobby.iter().position(|guest| guest.ready || guest.late)?;
        Some(lobby.swap_remove(next))
    }
}

impl Shared {
    /// Has a worker accept, where fewer than `most` do. False where none can.
    pub(super) fn give_seat(&self, most: usize) -> bool {
        let taken = self.intake.seats.fetch_add(1, Ordering::SeqCst);
        if taken < most && self.queue(ACCEPT) {
            return true;
        }
        self.intake.leave(&self.registry, false);
        false
    }

    /// What a worker with a seat does: it accepts and serves until nothing comes or its turn is over.
    pub(super) fn take_in(&self) {
        let mut seat = Seat { shared: self, more: true };
        let (intake, most) = (&self.intake, self.house.config.max_connections);
        let mut served = 0;
        while !self.house.shutdown.is_begun() && self.slots.used() < most && !intake.is_slow() {
            if served >= SHORT_TURN && (served >= TURN || intake.others_wait()) {
                self.park_lobby();
                if self.queue(ACCEPT) {
                    mem::forget(seat); // it is the queued job's now
                }
                return;
            }
            match intake.accept() {
                Accepted::Nothing if intake.trouble.load(Ordering::Relaxed) => break,
                Accepted::Nothing if served > 0 && intake.stay() => self.serve_lobby(),
                Accepted::Nothing => {
                    seat.more = false; // the poller hears of what has come since
                    break;
                }
                Accepted::Gone => served += 1,
                Accepted::Connection(stream) => {
                    served += 1;
                    match self.slots.admit(stream, most) {
                        Ok(name) => self.begin(name),
                        Err(stream) => lock(&intake.surplus).push(stream),
                    }
                }
            }
        }
        self.park_lobby();
    }

    /// Serves a connection that was just accepted; one that has not said anything waits in the lobby.
    fn begin(&self, name: usize) {
        let Some(slot) = self.slots.get(name) else { return };
        if !slot.move_on(QUEUED, RUNNING) {
            return;
        }
        if let Some(stream) = self.work(name, slot, true)
            && let Err(guest) =
                self.intake.seat_guest(Guest { name, stream, ready: false, since: Instant::now(), late: false })
        {
            self.park(guest.name);
        }
    }

    fn serve_lobby(&self) {
        while let Some(guest) = self.intake.call_guest() {
            let Some(slot) = self.slots.get(guest.name) else { continue };
            drop(guest.stream);
            if guest.ready {
                self.work(guest.name, slot, false);
            } else {
                self.park(guest.name);
            }
        }
    }

    /// Leaves those in the lobby to the poller.
    pub(super) fn park_lobby(&self) {
        let lobby = mem::take(&mut *lock(&self.intake.lobby));
        for guest in lobby {
            self.park(guest.name);
        }
    }

    fn park(&self, name: usize) {
        let Some(slot) = self.slots.get(name) else { return };
        let runs_on = self.settle(name, slot, &mut lock(&slot.connection), Outcome::Park, usize::MAX);
        if runs_on {
            self.work(name, slot, false);
        }
    }
}
