//! What goes wrong with one connection, and how the load goes on: the failure is counted, the connection replaced.
//!
//! A server may close a kept connection between requests at any time, so a request may meet a closed one: it is sent
//! again where not a byte of its answer has come and the connection had answered before. GET and PUT may be repeated.

use std::cmp::Reverse;

use rustix::io::Errno;

use super::connection::{Connection, Pending, State};
use super::desk::Desk;
use super::tally::Kind;
use crate::answer::{Step, Wrong, show};

/// How long a connection rests after its first failure; twice as long after each further one, up to 64 times.
const REST: u64 = 1_000_000;
const MOST_DOUBLINGS: u32 = 6;
/// A server closes right after its answer; half a second later it is not going to.
const LONG_FOR_A_CLOSE: u64 = 500_000_000;

impl Desk {
    /// The connection has ended, with `error` or as it should.
    pub(super) fn ended(&mut self, connection: &mut Connection, index: usize, error: Option<Errno>) {
        match connection.state {
            State::Free => {
                // It stays in the queue, and is opened anew when it is to be used.
                connection.close(false);
                connection.was_closed = true;
            }
            State::Opening | State::Resting => self.cannot_open(connection, index, error.unwrap_or(Errno::CONNRESET)),
            State::Closing | State::Leaving => {
                connection.close(false);
                connection.was_closed = !self.closes;
                self.go_on(connection, index);
            }
            State::Busy => self.lost(connection, index, error),
        }
    }

    /// The connection has ended while answers were awaited.
    fn lost(&mut self, connection: &mut Connection, index: usize, error: Option<Errno>) {
        let Some(&pending) = connection.pending.get(connection.next) else { return };
        if connection.is_connecting {
            return self.cannot_open(connection, index, error.unwrap_or(Errno::CONNRESET));
        }
        if error.is_none() {
            match connection.reader.end(&self.script.expected(pending.ask)) {
                Ok(None) => {}
                Ok(Some(Step::Done { unexpected: Some(status), .. })) => {
                    self.fail_status(connection, &pending, status);
                    return self.answered_by_end(connection, index, false);
                }
                Ok(Some(_)) => {
                    let mut same = (0, 0);
                    self.right(&pending, &mut same);
                    self.record(same);
                    return self.answered_by_end(connection, index, true);
                }
                Err(wrong) => return self.fail_wrong(connection, index, &pending, &wrong),
            }
        }
        let is_torn = !connection.reader.is_between() || !connection.kept.is_empty();
        let (is_proven, all) = (connection.is_proven, connection.waiting().len());
        connection.close(false);
        if is_proven && !is_torn {
            connection.was_closed = true;
            return self.go_on(connection, index);
        }
        let how = error.map_or_else(|| "closed".to_owned(), |error| error.to_string());
        let (count, what) = if is_torn { (1, "within") } else { (all, "before") };
        self.fail(&pending, Kind::Broken, count, || format!("the connection ended {what} the answer: {how}"));
        connection.next += count;
        self.rest(connection, index);
    }

    /// An answer that lasts until the connection's end was the last on it.
    fn answered_by_end(&mut self, connection: &mut Connection, index: usize, is_right: bool) {
        self.settled(connection, index, true, is_right);
        self.ended(connection, index, None);
    }

    /// Bytes that belong to no request.
    pub(super) fn unasked(&mut self, connection: &mut Connection, index: usize, bytes: &[u8]) {
        self.wrong += 1;
        self.tally.fail(self.now, Kind::Wrong, 1, || format!("bytes after the last expected answer: {}", show(bytes)));
        self.replace(connection, index);
    }

    pub(super) fn fail_status(&mut self, connection: &Connection, pending: &Pending, status: u16) {
        self.fail(pending, Kind::Status(status), 1, || format!("status {status}: {}", connection.reader.shown()));
    }

    pub(super) fn fail_wrong(&mut self, connection: &mut Connection, index: usize, pending: &Pending, wrong: &Wrong) {
        self.fail(pending, Kind::Wrong, 1, || wrong.0.clone());
        connection.next += 1;
        self.replace(connection, index);
    }

    fn fail(&mut self, pending: &Pending, kind: Kind, count: usize, why: impl FnOnce() -> String) {
        self.wrong += count as u64;
        let script = &self.script;
        self.tally.fail(self.now, kind, count as u64, || format!("{}: {}", script.name(pending.ask), why()));
        if pending.counts {
            self.tally.last = self.now;
        }
    }

    /// Closes a connection that cannot be trusted any more.
    fn replace(&mut self, connection: &mut Connection, index: usize) {
        connection.close(true);
        match connection.state {
            // It stays in the queue.
            State::Free => {}
            // Its request was settled before.
            State::Closing | State::Leaving if connection.is_answered() => self.rest_idle(connection, index),
            _ => self.rest(connection, index),
        }
    }

    /// A connection that had something pending has failed: it rests, and goes on with what is pending still.
    fn rest(&mut self, connection: &mut Connection, index: usize) {
        if connection.is_answered() {
            self.busy -= 1;
        }
        self.rest_idle(connection, index);
    }

    fn rest_idle(&mut self, connection: &mut Connection, index: usize) {
        let delay = REST << connection.failures.min(MOST_DOUBLINGS);
        connection.failures = connection.failures.saturating_add(1);
        connection.state = State::Resting;
        self.resting.push(Reverse((self.now + delay, index as u32)));
    }

    /// A connection has rested.
    pub(super) fn wake(&mut self, connection: &mut Connection, index: usize) {
        self.go_on(connection, index);
    }

    /// A connection without a socket: what is pending is sent again, or it is free.
    pub(super) fn go_on(&mut self, connection: &mut Connection, index: usize) {
        if connection.is_answered() {
            connection.state = State::Free;
            connection.since = self.now;
            self.free.push_back(index as u32);
            return;
        }
        if connection.is_short {
            // It has not been sent yet.
        } else {
            self.tally.retried += connection.waiting().len() as u64;
        }
        self.again(connection, index);
    }

    /// A socket cannot be had, or not connected.
    pub(super) fn cannot_open(&mut self, connection: &mut Connection, index: usize, error: Errno) {
        connection.close(true);
        match connection.state {
            State::Opening => {
                connection.state = State::Free;
                self.opening -= 1;
                return;
            }
            State::Free => return,
            State::Busy | State::Closing | State::Leaving | State::Resting => {}
        }
        let Some(&pending) = connection.pending.get(connection.next) else { return };
        let since = *connection.short_since.get_or_insert(self.now);
        connection.is_short = is_shortage(error) && self.now.saturating_sub(since) < self.patience;
        if !connection.is_short {
            connection.short_since = None;
            let count = connection.waiting().len();
            self.fail(&pending, Kind::Connect, count, || format!("cannot connect: {error}"));
            connection.next += count;
        }
        self.rest(connection, index);
    }

    /// A connection has been as it is for longer than the client's patience.
    pub(super) fn time_out(&mut self, connection: &mut Connection, index: usize) {
        let seconds = self.patience as f64 / 1e9;
        match connection.state {
            State::Free | State::Opening | State::Leaving | State::Resting => {}
            State::Closing => {
                self.wrong += 1;
                let why = || format!("the server has not closed the connection within {seconds} s");
                self.tally.fail(self.now, Kind::Timeout, 1, why);
                connection.close(true);
                self.go_on(connection, index);
            }
            State::Busy => {
                let Some(&pending) = connection.pending.get(connection.next) else { return };
                let count = connection.waiting().len();
                if self.now >= self.schedule.times.end {
                    let counted = connection.waiting().iter().filter(|pending| pending.counts).count();
                    self.tally.unfinished += counted as u64;
                } else if connection.is_connecting {
                    self.fail(&pending, Kind::Connect, count, || format!("no connection within {seconds} s"));
                } else {
                    self.fail(&pending, Kind::Timeout, count, || format!("no answer within {seconds} s"));
                }
                connection.next += count;
                connection.close(true);
                self.rest(connection, index);
            }
        }
    }

    /// The load is over: a server that ought to have closed the connection long ago is found out here, where the span was
    /// shorter than the client's patience.
    pub(super) fn expect_closed(&mut self, connection: &Connection) {
        let waited = self.now.saturating_sub(connection.since);
        if connection.state == State::Closing && waited > LONG_FOR_A_CLOSE {
            self.wrong += 1;
            let why = || format!("the server has not closed the connection within {} s", waited as f64 / 1e9);
            self.tally.fail(self.now, Kind::Timeout, 1, why);
        }
    }

    /// A span of requests ends early where nothing but failures has come for twice the client's patience: it would last
    /// as long as they are many.
    pub(super) fn despair(&mut self) {
        let is_hopeless = self.wrong > 0 && self.now.saturating_sub(self.last_right) / 2 >= self.patience;
        if is_hopeless && !self.schedule.is_timed() {
            self.schedule.stop(self.now);
        }
    }
}

/// Whether this machine, and not the server, is what lacks something; it may be there a moment later.
fn is_shortage(error: Errno) -> bool {
    [Errno::ADDRNOTAVAIL, Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::NOSPC].contains(&error)
}
