//! `thread_per_connection`: each connection has a thread, which blocks in the kernel whenever it waits.
//!
//! The accepting thread starts them, `max_connections` at the most. Past that, the connection that has been idle for
//! longest is closed for the new one; where none is idle, the new one is answered 503.
//!
//! A thread that waits for a request is woken, for a shutdown or to make room, by closing the reading side of its
//! socket: bytes that have arrived are still read, so that no request that had come is lost.
//!
//! Cost: a thread's start and end for each connection, a read and a write for each request, 128 KiB of address space
//! for each stack.
//!
//! # Layout
//!
//! `guests`: who has a thread; `visit`: what the thread does.
//!
//! *Wins when* connections are few and live long: the kernel wakes the right thread at once, nothing is in between.
//! *Loses when* connections are short (a thread's life costs more than a request) or many (memory, switches).

mod guests;
mod visit;

use std::collections::HashMap;
use std::io::{self, ErrorKind, PipeReader, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Instant, SystemTime};

use guests::{Guest, Guests, Leave, as_millis, millis_since};
use polyserve_core::http1::{Scratch, Session};
use polyserve_core::sync::lock;
use polyserve_core::{ConfigError, Connections, Drain, Running, Server, ServerConfig, Service, net};
use rustix::event::PollFlags;
use visit::Visit;

use super::departures::Departures;
use super::desk::House;
use super::waiting::{ACCEPT_REST, LAST_GRACE, last_guests, wait, wake_on_begin};

/// The server of a thread for each connection.
#[derive(Clone, Debug)]
pub struct ThreadPerConnection {
    config: ServerConfig,
}

impl ThreadPerConnection {
    /// A server within the limits of `config`.
    ///
    /// # Errors
    ///
    /// Where a limit is none, or a number of workers is asked for: there are as many as connections.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        match config.workers {
            None => Ok(Self { config }),
            Some(_) => Err(ConfigError::new(
                "workers cannot be set for thread_per_connection, which has one for each connection: set max_connections",
            )),
        }
    }
}

impl Server for ThreadPerConnection {
    fn connections(&self) -> Connections {
        Connections::OnePerThread
    }

    fn serve(&self, addr: SocketAddr, service: Arc<dyn Service>) -> io::Result<Running> {
        let listener = net::listen(addr, &self.config)?;
        listener.set_nonblocking(true)?;
        let local_addr = listener.local_addr()?;
        let house = Arc::new(House::new(service, &self.config));
        let wake = wake_on_begin(&house.shutdown)?;
        let (shutdown, grace) = (house.shutdown.clone(), self.config.drain_grace);
        let departures = Departures::new(self.config.linger_timeout);
        let acceptor = Acceptor { house, wake, guests: Arc::default(), threads: HashMap::new(), next: 0, departures };
        Running::start("thread-per-conn", local_addr, grace, shutdown, move || acceptor.run(listener))
    }
}

/// Room for the loop, `httparse`'s fields and a service that is not greedy.
const STACK: usize = 128 * 1024;

struct Acceptor {
    house: Arc<House>,
    wake: PipeReader,
    guests: Arc<Guests>,
    threads: HashMap<u64, JoinHandle<()>>,
    next: u64,
    departures: Departures,
}

impl Acceptor {
    fn run(mut self, listener: TcpListener) -> Drain {
        let start = Instant::now();
        while !self.house.shutdown.is_begun() {
            match listener.accept() {
                Ok((stream, _)) => self.welcome(stream, start),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.rest(Some(&listener), false, None),
                Err(error) if net::is_connection_error(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept");
                    self.rest(None, false, Some(Instant::now() + ACCEPT_REST));
                }
            }
        }
        for stream in last_guests(listener, &self.house) {
            self.welcome(stream, start);
        }
        self.drain()
    }

    /// Waits for the listener, a departure, the deadline, or a shutdown that the caller does not know of yet.
    fn rest(&mut self, listener: Option<&TcpListener>, draining: bool, deadline: Option<Instant>) {
        self.join_ended();
        let wake = (!draining).then(|| self.wake.as_fd());
        let deadline = [deadline, self.departures.deadline()].into_iter().flatten().min();
        let sockets = wake.into_iter().chain(listener.map(AsFd::as_fd)).chain(self.departures.sockets());
        if let Err(error) = wait(sockets.map(|fd| (fd, PollFlags::IN)), deadline, &mut Vec::new()) {
            tracing::warn!(%error, "cannot wait for connections");
            thread::park_timeout(ACCEPT_REST);
        }
        self.departures.sweep();
    }

    fn join_ended(&mut self) {
        let gone = std::mem::take(&mut *lock(&self.guests.gone));
        for name in gone {
            if let Some(thread) = self.threads.remove(&name) {
                let _ = thread.join(); // it caught what could panic
            }
        }
    }

    fn welcome(&mut self, stream: TcpStream, start: Instant) {
        if self.threads.len() >= self.house.config.max_connections {
            self.join_ended();
            if !self.has_room(start) {
                return self.turn_away(stream);
            }
        }
        if net::prepare(&stream).is_err() {
            return;
        }
        let guest = Arc::new(Guest::new(stream));
        let name = self.next;
        self.next += 1;
        lock(&self.guests.present).guests.insert(name, Arc::clone(&guest));
        let visit = Visit { name, guest: Arc::clone(&guest), house: Arc::clone(&self.house), start };
        let leave = Leave { name, guests: Arc::clone(&self.guests) };
        let thread = thread::Builder::new().name("connection".into()).stack_size(STACK).spawn(move || {
            let _leave = leave;
            visit.run();
        });
        match thread {
            Ok(thread) => drop(self.threads.insert(name, thread)),
            Err(error) => {
                tracing::warn!(%error, "cannot start a thread");
                // The closure is gone, and with it every other handle.
                if let Some(guest) = Arc::into_inner(guest) {
                    self.turn_away(guest.stream);
                }
            }
        }
    }

    /// Whether one more may come; closes the connection that has been idle for longest where that is needed. One that
    /// has not said a word counts as idle only after the head's timeout: its first byte may be on its way.
    fn has_room(&self, start: Instant) -> bool {
        let mut present = lock(&self.guests.present);
        if present.guests.len() - present.leaving < self.house.config.max_connections {
            return true;
        }
        let silent = millis_since(start).saturating_sub(as_millis(self.house.config.head_timeout));
        let idle_since = |guest: &Guest| {
            let since = guest.idle_since.load(Ordering::SeqCst);
            let idle = since > 0 && (guest.spoken.load(Ordering::SeqCst) || since < silent);
            (idle && !guest.replaced.load(Ordering::SeqCst)).then_some(since)
        };
        let idle = present.guests.values().filter_map(|guest| Some((idle_since(guest)?, guest)));
        let Some((_, guest)) = idle.min_by_key(|(since, _)| *since) else { return false };
        guest.replaced.store(true, Ordering::SeqCst);
        guest.tell_to_leave();
        present.leaving += 1;
        true
    }

    fn turn_away(&mut self, stream: TcpStream) {
        let (mut session, mut scratch) = (Session::new(), Scratch::new());
        scratch.refresh(SystemTime::now(), true);
        let _ = session.turn_away(&self.house.env, &mut scratch);
        if stream.set_nonblocking(true).is_ok()
            && let Ok(written) = (&stream).write(scratch.out())
        {
            session.written(written, &mut scratch);
            self.house.give_up(&mut session);
            self.departures.see_off(stream);
        }
    }

    fn drain(mut self) -> Drain {
        for guest in lock(&self.guests.present).guests.values() {
            if guest.idle_since.load(Ordering::SeqCst) > 0 {
                guest.tell_to_leave();
            }
        }
        let deadline = self.house.shutdown.deadline().unwrap_or_else(Instant::now);
        if !self.all_end_until(deadline) {
            for guest in lock(&self.guests.present).guests.values() {
                let _ = guest.stream.shutdown(Shutdown::Both);
            }
            self.all_end_until(deadline + LAST_GRACE);
        }
        while self.departures.deadline().is_some() && !self.house.is_over() {
            self.rest(None, true, Some(deadline));
        }
        self.house.drained(self.threads.len())
    }

    /// Joins threads until all have ended (true) or `deadline` has passed.
    fn all_end_until(&mut self, deadline: Instant) -> bool {
        loop {
            self.join_ended();
            let left = deadline.saturating_duration_since(Instant::now());
            if self.threads.is_empty() || left.is_zero() {
                return self.threads.is_empty();
            }
            let gone = lock(&self.guests.gone);
            if gone.is_empty() {
                let guests = &self.guests;
                drop(guests.ended.wait_timeout(gone, left).unwrap_or_else(PoisonError::into_inner));
            }
        }
    }
}
