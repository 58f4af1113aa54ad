//! What a job does: it serves one connection for as long as there is something to do, then parks or closes it.

use std::cell::Cell;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use polyserve_core::http1::{Phase, Session, Want};
use polyserve_core::net;
use polyserve_core::serving::{ServerState, ThreadBuffers, WaitOutcome, discard, wait_for_answer, with_buffers};
use polyserve_core::sync::lock;
use polyserve_core::{Executor, Job};
use rustix::io::Errno;

use super::intake::{ACCEPT, Intake};
use super::slots::{Connection, Slot, Slots};
use super::word::{AGAIN, LINGERING, PARKED, QUEUED, RUNNING};

/// What a job calls, with its connection's name.
pub(super) type Jobs = dyn Fn(usize) + Send + Sync;

/// What the poller and the workers of one run share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) server: ServerState,
    pub(super) slots: Slots,
    pub(super) intake: Intake,
    pub(super) registry: Registry,
    pub(super) executor: Arc<dyn Executor>,
    start: Instant,
    jobs: OnceLock<Weak<Jobs>>,
}

/// What is to become of a connection that was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It waits for bytes, or to be written to.
    Park,
    /// It had its turn and has more to do.
    Yield,
    /// It is over; `true`: it lingers.
    Close(bool),
}

/// After so many full reads, or so many wake-ups, in a row the others have their turn.
const TURN: usize = 2;

impl Shared {
    pub(super) fn new(
        server: ServerState,
        intake: Intake,
        registry: Registry,
        executor: Arc<dyn Executor>,
        most: usize,
    ) -> Self {
        Self {
            server,
            slots: Slots::new(most),
            intake,
            registry,
            executor,
            start: Instant::now(),
            jobs: OnceLock::new(),
        }
    }

    /// The function that jobs call. The caller keeps it alive; afterwards jobs find nothing to do.
    pub(super) fn jobs(self: &Arc<Self>) -> Arc<Jobs> {
        let shared = Arc::clone(self);
        let jobs: Arc<Jobs> = Arc::new(move |name| shared.run(name));
        let _ = self.jobs.set(Arc::downgrade(&jobs));
        jobs
    }

    /// An instant as slots keep it: in milliseconds since the start, rounded up.
    pub(super) fn millis_at(&self, instant: Instant) -> u64 {
        let nanos = instant.saturating_duration_since(self.start).as_nanos();
        u64::try_from(nanos.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }

    /// Queues a job for the connection `name`, whose slot is `QUEUED`. False where there is no room; an executor that
    /// would run it here and now, on the caller's thread, has none either.
    pub(super) fn queue(&self, name: usize) -> bool {
        let Some(jobs) = self.jobs.get().and_then(Weak::upgrade) else {
            return true; // the run is over, and every slot has been taken care of
        };
        self.intake.job_comes();
        let outer = QUEUEING.replace(Queueing::Yes);
        let queued = self.executor.execute(Job::indexed(jobs, name)).is_ok();
        queued && QUEUEING.replace(outer) == Queueing::Yes || {
            QUEUEING.set(outer);
            self.intake.job_ends();
            false
        }
    }

    /// Runs the connection that a job names.
    pub(super) fn run(&self, name: usize) {
        if QUEUEING.get() != Queueing::No {
            // Inside `queue`: whoever queues may hold this very connection, and the poller must never serve one.
            return QUEUEING.set(Queueing::RanHere);
        }
        let _job = Begun(&self.intake);
        if name == ACCEPT {
            self.take_in();
        } else if let Some(slot) = self.slots.get(name)
            && slot.word.move_on(QUEUED, RUNNING)
        {
            self.work(name, slot, false);
        } // else the shutdown's deadline took it from the queue
    }

    /// Serves a connection whose slot was moved to `RUNNING`, and settles it. With `hold`, one that has not said
    /// anything yet is left `RUNNING`, and its socket handed out.
    pub(super) fn work(&self, name: usize, slot: &Slot, hold: bool) -> Option<Arc<TcpStream>> {
        let mut connection = lock(&slot.connection);
        let fresh = connection.as_ref().is_some_and(|open| open.stage.is_none()).then(Instant::now);
        let ran = catch_unwind(AssertUnwindSafe(|| {
            with_buffers(|buffers| {
                for turn in 1.. {
                    let Some(open) = connection.as_mut() else { break };
                    let outcome = self.serve(open, slot, buffers);
                    if hold && outcome == Outcome::Park && open.is_silent() && !self.server.shutdown.is_begun() {
                        return Some(Arc::clone(&open.stream));
                    }
                    if !self.settle(name, slot, &mut connection, outcome, turn) {
                        break;
                    }
                }
                None
            })
        }));
        let held = ran.unwrap_or_else(|_| {
            tracing::error!("a connection's job panicked; the connection is closed");
            self.slots.release(name, &mut connection);
            None
        });
        let is_silent = connection.as_ref().is_some_and(|open| open.session.stage() == (0, Phase::Idle));
        if let Some(start) = fresh.filter(|_| !is_silent) {
            self.intake.note_time(start.elapsed());
        }
        held
    }

    /// Moves a connection that was run to where it belongs. True where it is to run on: bytes have come meanwhile.
    pub(super) fn settle(
        &self,
        name: usize,
        slot: &Slot,
        connection: &mut Option<Connection>,
        outcome: Outcome,
        turn: usize,
    ) -> bool {
        let Some(open) = connection.as_mut() else { return false };
        self.server.count(&mut open.session);
        match outcome {
            Outcome::Close(true) if self.linger(name, slot, open) => false,
            Outcome::Close(_) => {
                self.slots.release(name, connection);
                false
            }
            Outcome::Yield => !self.yield_turn(name, slot),
            Outcome::Park => {
                let writing = !open.session.unsent().is_empty();
                self.set_deadline(slot, open, writing);
                if self.register(name, open, writing).is_err() {
                    self.server.abandon(&mut open.session);
                    self.slots.release(name, connection);
                    return false;
                }
                !slot.word.rest(PARKED) && (turn < TURN || !self.yield_turn(name, slot))
            }
        }
    }

    /// Queues a connection that has more to do behind the others. False where there is no room: then it goes on.
    fn yield_turn(&self, name: usize, slot: &Slot) -> bool {
        // In whichever of the two states; both mean that it is to run again.
        if !slot.word.move_on(RUNNING, QUEUED) && !slot.word.move_on(AGAIN, QUEUED) {
            return false;
        }
        self.queue(name) || !slot.word.move_on(QUEUED, RUNNING)
    }

    fn set_deadline(&self, slot: &Slot, open: &mut Connection, writing: bool) {
        let (request, phase) = open.session.stage();
        slot.idle.store(!writing && phase == Phase::Idle, Ordering::Relaxed);
        if open.stage.replace((request, phase, writing)) == Some((request, phase, writing)) {
            return;
        }
        let config = &self.server.config;
        let timeout = if writing { config.write_timeout } else { phase.timeout(config) };
        slot.deadline.store(self.millis_at(Instant::now() + timeout), Ordering::Relaxed);
    }

    /// Registers a connection with the poller, once; and once more where it must be told when it can write.
    fn register(&self, name: usize, open: &mut Connection, writing: bool) -> io::Result<()> {
        let fd = open.stream.as_raw_fd();
        let interest = if writing { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        if !open.registered {
            self.registry.register(&mut SourceFd(&fd), Token(name), interest)?;
        } else if writing && !open.writable {
            self.registry.reregister(&mut SourceFd(&fd), Token(name), interest)?;
        }
        open.registered = true;
        open.writable |= writing;
        Ok(())
    }

    /// Closes the writing side and leaves the reading to the poller. False where it can be closed at once.
    fn linger(&self, name: usize, slot: &Slot, open: &mut Connection) -> bool {
        let timeout = self.server.config.linger_timeout;
        if timeout.is_zero() || open.stream.shutdown(std::net::Shutdown::Write).is_err() {
            return false;
        }
        slot.deadline.store(self.millis_at(Instant::now() + timeout), Ordering::Relaxed);
        loop {
            if !self.waste(open) || self.register(name, open, false).is_err() {
                return false;
            }
            if slot.word.rest(LINGERING) {
                return true;
            }
        }
    }

    /// Throws away what a lingering connection still sends. False where nothing more will come.
    pub(super) fn waste(&self, open: &Connection) -> bool {
        with_buffers(|buffers| discard(&*open.stream, &mut buffers.input))
    }

    /// Serves a connection until it has to wait.
    fn serve(&self, open: &mut Connection, slot: &Slot, buffers: &mut ThreadBuffers) -> Outcome {
        let (server, session) = (&self.server, &mut open.session);
        let mut want = session.want();
        let (mut reads, mut empty) = (0, false);
        loop {
            match flush(&open.stream, session, matches!(want, Want::Close { .. }), buffers) {
                Flushed::All => {}
                Flushed::Blocked => return Outcome::Park,
                Flushed::Broken => {
                    server.abandon(session);
                    return Outcome::Close(false);
                }
            }
            match want {
                Want::Close { linger } => return Outcome::Close(linger),
                Want::Write => {}
                Want::Answer => match wait_for_answer(session, server) {
                    WaitOutcome::Here => {}
                    WaitOutcome::TimedOut => {
                        buffers.refresh(server);
                        want = session.time_out(&server.env, &mut buffers.scratch);
                        continue;
                    }
                    WaitOutcome::Cut => {
                        server.abandon(session);
                        return Outcome::Close(false);
                    }
                },
                Want::Read(phase) => {
                    // A read that did not fill the buffer emptied the socket, and what comes later is an event; only
                    // the other side's end may have been reported together with the bytes.
                    let draining = server.shutdown.is_begun();
                    if empty && !draining && !slot.ended.load(Ordering::Relaxed) {
                        return Outcome::Park;
                    }
                    if reads == TURN {
                        return Outcome::Yield;
                    }
                    reads += 1;
                    match (&*open.stream).read(&mut buffers.input) {
                        Ok(0) => want = session.end_of_input(),
                        Ok(count) => {
                            empty = count < buffers.input.len();
                            want = buffers.receive(count, session, server, false);
                        }
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {
                            let leave = draining && phase == Phase::Idle;
                            return if leave { Outcome::Close(false) } else { Outcome::Park };
                        }
                        Err(_) => {
                            server.abandon(session);
                            return Outcome::Close(false);
                        }
                    }
                    continue;
                }
            }
            buffers.refresh(server);
            want = session.resume(&server.env, &mut buffers.scratch);
        }
    }
}

/// A job that runs; it has ended when this is dropped.
struct Begun<'a>(&'a Intake);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.0.job_ends();
    }
}

/// How a write went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flushed {
    All,
    /// The socket takes no more for now; the session keeps the rest.
    Blocked,
    /// The client is gone.
    Broken,
}

/// Writes what a session has to say. `last`: the connection is closed next.
pub(super) fn flush(stream: &TcpStream, session: &mut Session, last: bool, buffers: &mut ThreadBuffers) -> Flushed {
    if !buffers.scratch.out().is_empty() {
        match write(stream, buffers.scratch.out(), last) {
            Ok(count) => session.written(count, &mut buffers.scratch),
            Err(_) => {
                session.written(0, &mut buffers.scratch);
                return Flushed::Broken;
            }
        }
    }
    while !session.unsent().is_empty() {
        match write(stream, session.unsent(), last) {
            Ok(0) => return Flushed::Blocked,
            Ok(count) => drop(session.advance(count)),
            Err(_) => return Flushed::Broken,
        }
    }
    Flushed::All
}

/// One write; 0 where the socket takes nothing for now.
fn write(stream: &TcpStream, bytes: &[u8], last: bool) -> io::Result<usize> {
    loop {
        match rustix::net::send(stream, bytes, net::send_flags(last)) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(0),
            written => return Ok(written?),
        }
    }
}

/// Whether this thread is handing a connection to the executor, and what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queueing {
    No,
    Yes,
    /// The executor called the job at once.
    RanHere,
}

thread_local! {
    static QUEUEING: Cell<Queueing> = const { Cell::new(Queueing::No) };
}
