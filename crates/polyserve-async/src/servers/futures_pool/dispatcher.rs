//! Who waits for a thread, who has one, and who is told to give his up.
//!
//! # No lost wake-up
//!
//! A connection that becomes idle says so and then looks whether threads are short; who makes them short says so and
//! then looks who is idle. All four are sequentially consistent: one of the two sees the other. One that is told to
//! leave is told by a change of the very number that says it is idle, so that it knows when it comes back from its wait
//! with a request; then it is not counted as leaving any more, and another is told.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use polyserve_core::net;
use polyserve_core::serving::ServerState;
use polyserve_core::sync::lock;
use slab::Slab;

/// A connection that has a thread. It is shut from outside under the dispatcher's lock alone, and closed by the last who has it.
pub(super) struct Seat {
    pub(super) key: usize,
    pub(super) stream: TcpStream,
    /// [`BUSY`], [`TOLD`], or since when it has been idle: milliseconds since the start, plus one.
    idle: AtomicU64,
    /// Its reading side was closed from here, so that an end of input may not be the client's.
    shut: AtomicBool,
}

const BUSY: u64 = 0;
/// It was idle, and is to leave.
const TOLD: u64 = u64::MAX;

impl Seat {
    pub(super) fn is_shut(&self) -> bool {
        self.shut.load(Ordering::SeqCst)
    }

    /// Tells a connection that has been idle `since` then to leave. Bytes that have arrived are still read.
    fn tell(&self, since: u64) -> bool {
        let told = self.idle.compare_exchange(since, TOLD, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if told {
            self.shut.store(true, Ordering::SeqCst);
            let _ = net::shut(&self.stream, Shutdown::Read); // gone already, then
        }
        told
    }
}

/// What the main_loop and the pool's threads share.
pub(super) struct Dispatcher {
    pub(super) server: ServerState,
    threads: usize,
    floor: Mutex<Floor>,
    /// So many connections wait for a thread that no other leaves for.
    short: AtomicUsize,
    /// Wakes the main_loop; written to once until he comes.
    bell: UnixStream,
    rung: AtomicBool,
    start: Instant,
}

#[derive(Default)]
struct Floor {
    /// They have sent something, and have no thread.
    waiting: VecDeque<TcpStream>,
    guests: Slab<Guest>,
    /// Guests that have been told to leave, and have not come back with a request.
    leaving: usize,
    /// Guests whose place is another's already.
    replaced: usize,
    /// Their last answer is sent; the main_loop sees them off.
    departing: Vec<TcpStream>,
}

struct Guest {
    seat: Arc<Seat>,
    leaving: bool,
    replaced: bool,
}

impl Floor {
    /// Of those that `fit`, the one that has been idle for longest, and since when.
    fn longest_idle(&mut self, fit: impl Fn(&Guest) -> bool) -> Option<(&mut Guest, u64)> {
        let idle = self.guests.iter_mut().filter(|(_, guest)| fit(guest));
        let idle = idle.map(|(_, guest)| (guest.seat.idle.load(Ordering::SeqCst), guest));
        let (since, guest) = idle.filter(|(since, _)| *since != BUSY).min_by_key(|(since, _)| *since)?;
        Some((guest, since))
    }
}

impl Dispatcher {
    /// An empty dispatcher for so many threads; also what becomes readable when the main_loop is wanted.
    pub(super) fn new(server: ServerState, threads: usize) -> std::io::Result<(Arc<Self>, UnixStream)> {
        let (bell, heard) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        heard.set_nonblocking(true)?;
        let dispatcher = Arc::new(Self {
            server,
            threads,
            floor: Mutex::default(),
            short: AtomicUsize::new(0),
            bell,
            rung: AtomicBool::new(false),
            start: Instant::now(),
        });
        let weak = Arc::downgrade(&dispatcher);
        dispatcher.server.shutdown.on_begin(move || {
            if let Some(dispatcher) = weak.upgrade() {
                dispatcher.ring();
            }
        });
        Ok((dispatcher, heard))
    }

    fn ring(&self) {
        if !self.rung.swap(true, Ordering::SeqCst) {
            let _ = (&self.bell).write(&[1]); // one that is full is heard
        }
    }

    /// The main_loop has heard the bell, and looks at everything after this.
    pub(super) fn answer_bell(&self, mut heard: &UnixStream) {
        let _ = heard.read(&mut [0; 16]);
        self.rung.store(false, Ordering::SeqCst);
    }

    /// Connections that have a place here.
    pub(super) fn places(&self) -> usize {
        let floor = lock(&self.floor);
        floor.waiting.len() + floor.guests.len() - floor.replaced
    }

    /// Takes a connection whose first byte is there, for which a task is to be spawned now; or hands it back, for too
    /// many wait.
    pub(super) fn enter(&self, stream: TcpStream) -> Result<(), TcpStream> {
        let mut floor = lock(&self.floor);
        if floor.waiting.len() + floor.guests.len() >= self.threads + self.server.config.queue_or_default() {
            return Err(stream);
        }
        floor.waiting.push_back(stream);
        self.settle(&mut floor);
        Ok(())
    }

    /// Seats who has waited for longest; nobody, where all that waited were cut.
    pub(super) fn sit(&self) -> Option<Arc<Seat>> {
        let mut floor = lock(&self.floor);
        let stream = floor.waiting.pop_front()?;
        let entry = floor.guests.vacant_entry();
        let (idle, shut) = (AtomicU64::new(BUSY), AtomicBool::new(false));
        let seat = Arc::new(Seat { key: entry.key(), stream, idle, shut });
        entry.insert(Guest { seat: Arc::clone(&seat), leaving: false, replaced: false });
        Some(seat)
    }

    /// A connection has ended; if it is to linger, the main_loop sees to that.
    pub(super) fn rise(&self, seat: Arc<Seat>, linger: bool) {
        let mut floor = lock(&self.floor);
        let Some(guest) = floor.guests.try_remove(seat.key) else { return };
        floor.leaving -= usize::from(guest.leaving);
        floor.replaced -= usize::from(guest.replaced);
        drop(guest);
        self.settle(&mut floor);
        let stream = Arc::into_inner(seat).map(|seat| seat.stream);
        if linger {
            floor.departing.extend(stream);
        }
        drop(floor);
        if linger || self.server.shutdown.is_begun() {
            self.ring();
        }
    }

    /// Has as many idle connections leave as wait for a thread that is not free, nor will be.
    fn settle(&self, floor: &mut Floor) {
        loop {
            let wanted = floor.waiting.len() + floor.guests.len();
            let short = wanted.saturating_sub(self.threads + floor.leaving);
            self.short.store(short, Ordering::SeqCst);
            if short == 0 {
                return;
            }
            let Some((guest, since)) = floor.longest_idle(|guest| !guest.leaving) else { return };
            if guest.seat.tell(since) {
                guest.leaving = true;
                floor.leaving += 1;
            }
        }
    }

    /// A connection is to wait for its next request; it may be told to leave at once.
    pub(super) fn idle(&self, seat: &Seat) {
        let since = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(BUSY) + 1;
        seat.idle.store(since, Ordering::SeqCst);
        if self.short.load(Ordering::SeqCst) > 0 {
            self.settle(&mut lock(&self.floor));
        }
    }

    /// A connection has its next request.
    pub(super) fn resume(&self, seat: &Seat) {
        if seat.idle.swap(BUSY, Ordering::SeqCst) != TOLD {
            return;
        }
        let mut floor = lock(&self.floor);
        let Some(guest) = floor.guests.get_mut(seat.key) else { return };
        if std::mem::take(&mut guest.leaving) {
            floor.leaving -= 1;
        }
        self.settle(&mut floor);
    }

    /// Tells the connection that has been idle for longest to leave, and takes its place; false where none is idle.
    pub(super) fn make_room(&self) -> bool {
        let mut floor = lock(&self.floor);
        while let Some((guest, since)) = floor.longest_idle(|guest| !guest.replaced) {
            let leaves = guest.leaving;
            if leaves || guest.seat.tell(since) {
                (guest.leaving, guest.replaced) = (true, true);
                floor.replaced += 1;
                floor.leaving += usize::from(!leaves);
                return true;
            }
        }
        false
    }

    /// Tells all that are idle to leave: a shutdown has begun, which those that become idle later see themselves.
    pub(super) fn dismiss_idle(&self) {
        for (_, guest) in &lock(&self.floor).guests {
            let since = guest.seat.idle.load(Ordering::SeqCst);
            if since != BUSY && since != TOLD {
                guest.seat.tell(since);
            }
        }
    }

    /// Ends whatever the connections are doing, and those that wait.
    pub(super) fn cut(&self) {
        let mut floor = lock(&self.floor);
        for stream in floor.waiting.drain(..) {
            self.server.count_cut();
            drop(stream);
        }
        for (_, guest) in &floor.guests {
            let _ = net::shut(&guest.seat.stream, Shutdown::Both);
        }
    }

    /// Connections that have a thread, or wait for one.
    pub(super) fn inside(&self) -> usize {
        let floor = lock(&self.floor);
        floor.waiting.len() + floor.guests.len()
    }

    pub(super) fn take_departing(&self) -> Vec<TcpStream> {
        std::mem::take(&mut lock(&self.floor).departing)
    }
}
