//! What a worker does that accepts: it serves what it accepts, and waits a moment for more.
//!
//! A connection that has not said anything when it is accepted is usually about to: it stays in the lobby, where the
//! worker looks at it together with the listener, and is registered with the poller only when it stays silent. The
//! lobby is shared: where the worker is held up by another connection's service, the poller takes the others over.
//!
//! Invariant: a connection in the lobby is `RUNNING`; who takes it out of the lobby runs it or parks it.

use std::array;
use std::io::{ErrorKind, Read as _};
use std::mem;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use polyserve_core::sync::lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::intake::{ACCEPT, Accepted, Intake};
use super::slots::Slot;
use super::word::{QUEUED, RUNNING};
use super::worker::{Outcome, Shared};

/// After so many connections a seat goes to the end of the executor's queue, for what else it has to do.
const TURN: usize = 1024;

/// So many, where the executor has work that is not this server's.
const SHARED_TURN: usize = 64;

/// And after so many where jobs of this server wait for a worker.
const SHORT_TURN: usize = 4;

/// How long a worker waits for something to come before it leaves its seat.
const STAY: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// While connections keep coming, those in the lobby are looked at after so many.
const LOOK_EVERY: usize = 16;

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

/// One of the jobs that accept, as it runs. Dropping it leaves.
struct Seat<'a> {
    shared: &'a Shared,
    /// Connections may still wait.
    more: bool,
    /// It is a queued job's from now on.
    is_kept: bool,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.shared.intake.leave(&self.shared.registry, self.more);
        }
        self.shared.intake.accepting.fetch_sub(1, Ordering::SeqCst);
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
        let come = !self.others_wait() && self.look(&STAY);
        if self.staying.swap(false, Ordering::SeqCst) {
            return come;
        }
        // Rung: one byte is there, or about to be.
        while (&self.bell.0).read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::Interrupted) {}
        false
    }

    /// Looks who has something to say, for as long as `time` where nobody has.
    fn look(&self, time: &Timespec) -> bool {
        let Some(listener) = self.listener() else { return false };
        let mut lobby = mem::take(&mut *lock(&self.lobby));
        let mut polled: [PollFd<'_>; LOBBY + 2] =
            array::from_fn(|place| match (place, lobby.get(place.wrapping_sub(2))) {
                (1, _) => PollFd::new(&self.bell.0, PollFlags::IN),
                (_, None) => PollFd::new(&*listener, PollFlags::IN),
                (_, Some(guest)) => PollFd::from_borrowed_fd(guest.stream.as_fd(), PollFlags::IN),
            });
        let used = polled.len().min(lobby.len() + 2);
        let some = poll(polled.get_mut(..used).unwrap_or_default(), Some(time)).is_ok_and(|some| some > 0);
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

    fn has_guests(&self) -> bool {
        !lock(&self.lobby).is_empty()
    }

    fn take_guests(&self) -> Vec<Guest> {
        mem::take(&mut *lock(&self.lobby))
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
        let (intake, most) = (&self.intake, self.server.config.max_connections);
        // In this order: either the drain sees that this worker may accept, or the worker sees the drain.
        intake.accepting.fetch_add(1, Ordering::SeqCst);
        let mut seat = Seat { shared: self, more: true, is_kept: false };
        let whole_turn = if intake.is_shared { SHARED_TURN } else { TURN };
        let mut served = 0;
        while !self.server.shutdown.is_begun() && self.slots.used() < most && !intake.is_slow() {
            if served >= SHORT_TURN && (served >= whole_turn || intake.others_wait()) {
                self.leave_lobby();
                seat.is_kept = self.queue(ACCEPT);
                return;
            }
            if served % LOOK_EVERY == LOOK_EVERY - 1 && intake.has_guests() {
                intake.look(&NO_TIME);
                self.serve_lobby();
            }
            match intake.accept() {
                Accepted::Nothing if served > 0 && intake.stay() => self.serve_lobby(),
                Accepted::Nothing => {
                    seat.more = false; // the poller hears of what has come since
                    break;
                }
                Accepted::Failed(_) => {
                    intake.trouble.store(true, Ordering::Relaxed);
                    break;
                }
                Accepted::Gone => {}
                Accepted::Connection(stream) => {
                    intake.count();
                    match self.slots.admit(stream, most) {
                        Ok(name) => self.begin(name),
                        Err(stream) => lock(&intake.surplus).push(stream),
                    }
                }
            }
            served += 1;
        }
        self.leave_lobby();
    }

    /// Serves a connection that was just accepted; one that has not said anything waits in the lobby.
    fn begin(&self, name: usize) {
        let Some(slot) = self.slots.get(name) else { return };
        if !slot.word.move_on(QUEUED, RUNNING) {
            return;
        }
        if let Some(stream) = self.work(name, slot, true)
            && let Err(guest) =
                self.intake.seat_guest(Guest { name, stream, ready: false, since: Instant::now(), late: false })
        {
            self.leave_to_poller(guest.name);
        }
    }

    fn serve_lobby(&self) {
        while let Some(guest) = self.intake.call_guest() {
            let Some(slot) = self.slots.get(guest.name) else { continue };
            drop(guest.stream);
            if guest.ready {
                self.work(guest.name, slot, false);
            } else {
                self.leave_to_poller(guest.name);
            }
        }
    }

    /// Leaves those in the lobby to the poller; for a worker.
    fn leave_lobby(&self) {
        for guest in self.intake.take_guests() {
            self.leave_to_poller(guest.name);
        }
    }

    fn leave_to_poller(&self, name: usize) {
        if let Some(slot) = self.slots.get(name)
            && !self.park(name, slot)
        {
            self.work(name, slot, false);
        }
    }

    /// Parks a connection from the lobby. False where it has something to say and finds no room in the queue: it is
    /// `RUNNING` still.
    fn park(&self, name: usize, slot: &Slot) -> bool {
        !self.settle(name, slot, &mut lock(&slot.connection), Outcome::Park, usize::MAX)
    }

    /// Parks those in the lobby; for the poller. Answers who is `QUEUED` and could not be queued.
    pub(super) fn park_lobby(&self) -> Vec<usize> {
        let mut left = Vec::new();
        for Guest { name, .. } in self.intake.take_guests() {
            let Some(slot) = self.slots.get(name) else { continue };
            if !self.park(name, slot) && slot.word.move_on(RUNNING, QUEUED) {
                left.push(name);
            }
        }
        left
    }
}
