//! Who accepts: a worker does, while connections wait; the poller only calls one.
//!
//! A worker that serves the connections that it has itself accepted saves, for each of them, the dispatch: a wake-up
//! and a switch of threads, which cost more than a small request. It holds a *seat*. Where nothing waits it stays for a
//! millisecond and waits for the next connection itself (`seat.rs`); a job that is queued meanwhile and finds no other
//! worker rings, and it leaves. While a seat is taken the poller is deaf to the listener, and looks at it every 5 ms
//! (`lending.rs`): where connections wait it gives more seats, up to the number of workers; where none was accepted since the last look, because all who have seats are
//! held up in the service, it accepts by itself, and queues or refuses. A service that is not quick is not worth any
//! of this: then the poller accepts, and each connection is a job.
//!
//! Invariant: while a connection waits, somebody is going to look: the poller hears of it, or a seat is taken and its
//! holder accepts once more before it leaves; the last one to leave gives the poller its hearing back, which reports
//! what has come meanwhile.

use std::io::{self, PipeReader, PipeWriter, Write as _};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use mio::net::{TcpListener, TcpStream};
use mio::unix::SourceFd;
use mio::{Interest, Registry};
use polyserve_core::net;
use polyserve_core::sync::lock;

use super::poller::LISTENER;
use super::seat::Guest;

/// The name of the job that accepts; no slot has it.
pub(super) const ACCEPT: usize = usize::MAX;

/// Where first answers take longer than that on average, in microseconds, they are not quick.
const QUICK: u64 = 200;

/// One that took longer counts as so many microseconds: its thread may only have been kept from running.
const LONGEST: u64 = 1_000;

/// The listener, and who accepts from it.
#[derive(Debug)]
pub(super) struct Intake {
    /// None once the drain has closed it. Held for no longer than a handle is copied.
    listener: Mutex<Option<Arc<TcpListener>>>,
    /// Jobs that accept, queued and running.
    pub(super) seats: AtomicUsize,
    /// The poller does not hear of connections. Held while that is changed, so that the flag is what the system knows.
    deaf: Mutex<bool>,
    /// A worker could not accept: the poller is to see for itself.
    pub(super) trouble: AtomicBool,
    /// Jobs of this server that are queued or run, and how many can run at a time.
    jobs: CachePadded<AtomicUsize>,
    workers: usize,
    /// Whether the executor may have other work.
    pub(super) is_shared: bool,
    /// A worker waits for connections, and is to be rung for other jobs.
    pub(super) staying: AtomicBool,
    pub(super) bell: (PipeReader, PipeWriter),
    /// Connections that have not said anything yet, while a worker stays with them.
    pub(super) lobby: Mutex<Vec<Guest>>,
    /// Workers that may be about to accept.
    pub(super) accepting: AtomicUsize,
    /// Connections that workers have accepted.
    accepted: AtomicU64,
    /// Connections that workers have accepted and found no room for.
    pub(super) surplus: Mutex<Vec<TcpStream>>,
    /// How long first answers took of late, in microseconds: a moving average over about eight.
    time: AtomicU64,
}

/// What came of an attempt to accept.
pub(super) enum Accepted {
    Connection(TcpStream),
    /// That one is gone already.
    Gone,
    /// Nothing waits, or the listener is closed.
    Nothing,
    /// The system has nothing left.
    Failed(io::Error),
}

impl Intake {
    /// Registers `listener` as [`LISTENER`]. `workers`: so many jobs can run at a time; where the executor is shared,
    /// others' are among them.
    pub(super) fn new(listener: TcpListener, registry: &Registry, workers: usize, is_shared: bool) -> io::Result<Self> {
        registry.register(&mut SourceFd(&listener.as_raw_fd()), LISTENER, Interest::READABLE)?;
        Ok(Self {
            listener: Mutex::new(Some(Arc::new(listener))),
            seats: AtomicUsize::new(0),
            deaf: Mutex::new(false),
            trouble: AtomicBool::new(false),
            jobs: CachePadded::new(AtomicUsize::new(0)),
            workers,
            is_shared,
            staying: AtomicBool::new(false),
            bell: io::pipe()?,
            lobby: Mutex::new(Vec::new()),
            accepting: AtomicUsize::new(0),
            accepted: AtomicU64::new(0),
            surplus: Mutex::new(Vec::new()),
            time: AtomicU64::new(0),
        })
    }

    /// The listener, while there is one. The handle is to be dropped before a connection is served.
    pub(super) fn listener(&self) -> Option<Arc<TcpListener>> {
        lock(&self.listener).clone()
    }

    /// Closes the listener, for the drain.
    pub(super) fn close(&self, registry: &Registry) {
        let deaf = lock(&self.deaf);
        if let Some(listener) = lock(&self.listener).take() {
            let _ = registry.deregister(&mut SourceFd(&listener.as_raw_fd()));
        }
        drop(deaf);
        self.ring();
    }

    /// How many connections workers have accepted.
    pub(super) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// How many jobs accept.
    pub(super) fn seats(&self) -> usize {
        self.seats.load(Ordering::SeqCst)
    }

    /// Whether somebody else may be accepting, so that the poller has to look now and then.
    pub(super) fn is_lent(&self) -> bool {
        self.seats() > 0 || *lock(&self.deaf)
    }

    /// Whether workers had trouble since the last time this was asked.
    pub(super) fn take_trouble(&self) -> bool {
        self.trouble.swap(false, Ordering::Relaxed)
    }

    /// Whether workers have accepted what they found no room for. Exact where no seat is taken.
    pub(super) fn has_surplus(&self) -> bool {
        !lock(&self.surplus).is_empty()
    }

    /// What workers have accepted and found no room for.
    pub(super) fn take_surplus(&self) -> Vec<TcpStream> {
        std::mem::take(&mut *lock(&self.surplus))
    }

    /// A job is about to be queued. Where no worker is left for it, one that only waits for connections makes room.
    pub(super) fn job_comes(&self) {
        self.jobs.fetch_add(1, Ordering::SeqCst);
        if self.others_wait() {
            self.ring();
        }
    }

    /// A job was run, or could not be queued.
    pub(super) fn job_ends(&self) {
        self.jobs.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether jobs wait for a worker.
    pub(super) fn others_wait(&self) -> bool {
        self.jobs.load(Ordering::SeqCst) > if self.is_shared { 1 } else { self.workers }
    }

    fn ring(&self) {
        if self.staying.swap(false, Ordering::SeqCst) {
            let _ = (&self.bell.1).write(&[1]);
        }
    }

    /// Stops telling the poller of connections, while a seat is taken.
    pub(super) fn deafen(&self, registry: &Registry) {
        let mut deaf = lock(&self.deaf);
        *deaf = true;
        // A listener is never writable.
        self.listen_for(registry, Interest::WRITABLE);
        drop(deaf);
        if self.seats() == 0 {
            self.hear(registry, false); // the last one left at this moment
        }
    }

    /// Tells the poller of connections again, and of those that have come meanwhile; with `anew`, even where it was told.
    pub(super) fn hear(&self, registry: &Registry, anew: bool) {
        let mut deaf = lock(&self.deaf);
        if std::mem::take(&mut *deaf) || anew {
            self.listen_for(registry, Interest::READABLE);
        }
    }

    fn listen_for(&self, registry: &Registry, interest: Interest) {
        if let Some(listener) = self.listener() {
            let fd = listener.as_raw_fd();
            if let Err(error) = registry.reregister(&mut SourceFd(&fd), LISTENER, interest) {
                tracing::error!(%error, "cannot watch the listener");
            }
        }
    }

    /// Gives a seat up. `more`: connections may still wait, and the poller is to be told.
    pub(super) fn leave(&self, registry: &Registry, more: bool) {
        let last = self.seats.fetch_sub(1, Ordering::SeqCst) == 1;
        if last || more {
            self.hear(registry, more);
        }
    }

    /// Accepts, without waiting; for the poller and for workers.
    pub(super) fn accept(&self) -> Accepted {
        let Some(listener) = self.listener() else { return Accepted::Nothing };
        match listener.accept() {
            // Elsewhere it is not inherited from the listener.
            Ok((stream, _)) if cfg!(not(target_os = "linux")) && stream.set_nodelay(true).is_err() => Accepted::Gone,
            Ok((stream, _)) => Accepted::Connection(stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Accepted::Nothing,
            Err(error) if net::is_connection_error(&error) => Accepted::Gone,
            Err(error) => Accepted::Failed(error),
        }
    }

    /// A worker has accepted one.
    pub(super) fn count(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes note of how long a connection's first turn took.
    pub(super) fn note_time(&self, time: Duration) {
        let time = u64::try_from(time.as_micros()).unwrap_or(LONGEST).min(LONGEST);
        let before = self.time.load(Ordering::Relaxed);
        self.time.store((before * 7 + time) / 8, Ordering::Relaxed);
    }

    /// Whether the service was slow of late.
    pub(super) fn is_slow(&self) -> bool {
        self.time.load(Ordering::Relaxed) > QUICK
    }
}
