//! What goes wrong with one connection, and how the load goes on: the failure is counted, the connection replaced.
//!
//! A server may close a kept connection between requests at any time, so a request may meet a closed one: it is sent
//! again where not a byte of its answer has come and the connection had answered before, and at most twice. GET and PUT
//! may be repeated. What follows an announced close was never read, and is no such request.

use std::cmp::Reverse;

use rustix::io::Errno;

use super::connection::{Connection, Pending, State};
use super::desk::Desk;
use super::tally::Kind;
use crate::answer::{Step, Wrong, show};

/// How long a connection rests after its first failure; twice as long after each further one, up to 64 times.
const REST: u64 = 1_000_000;
const MOST_DOUBLINGS: u32 = 6;
/// How often a request is sent again that met a closed connection.
const MOST_RETRIES: u8 = 2;
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
        connection.was_closed = is_proven && !is_torn;
        let (count, what) = match (is_torn, is_proven) {
            (true, _) => (1, "within"),
            (false, false) => (all, "before"),
            // What was sent again most often is first.
            (false, true) => (connection.retry(MOST_RETRIES), "once more before"),
        };
        if count == 0 {
            return self.go_on(connection, index);
        }
        let how = error.map_or_else(|| "closed".to_owned(), |error| error.to_string());
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

    /// An answer to `Connection: close` that does not say so, where it must.
    pub(super) fn unannounced(&mut self, connection: &Connection) {
        self.wrong += 1;
        let ask = connection.pending.get(connection.next.saturating_sub(1)).map(|pending| pending.ask);
        let script = &self.script;
        let name = || ask.map_or_else(String::new, |ask| script.name(ask));
        let why = || format!("{}: the answer to `Connection: close` does not announce the close", name());
        self.tally.fail(self.now, Kind::Wrong, 1, why);
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
            (connection.since, connection.free_since) = (self.now, self.arrived);
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
                self.record_waits(connection);
                if connection.is_connecting {
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

    /// Whether the connection ought to have been closed by now.
    pub(super) fn is_late_to_close(&self, connection: &Connection) -> bool {
        self.now.saturating_sub(connection.since) >= LONG_FOR_A_CLOSE.min(self.schedule.grace)
    }

    /// The client waits no longer: what has no answer now has failed, unless the load was stopped while there was time for
    /// it yet. However short the span was, a server that keeps silent is found out here.
    pub(super) fn give_up(&mut self, connection: &Connection) {
        let Some(&pending) = connection.waiting().first() else { return };
        let (count, seconds) = (connection.waiting().len(), self.schedule.grace as f64 / 1e9);
        self.record_waits(connection);
        if self.schedule.is_stopped() && self.now.saturating_sub(connection.since) <= self.patience {
            self.tally.unfinished += connection.waiting().iter().filter(|pending| pending.counts).count() as u64;
        } else if connection.is_connecting || connection.is_short {
            self.fail(&pending, Kind::Connect, count, || format!("no connection within {seconds} s after the end"));
        } else {
            self.fail(&pending, Kind::Timeout, count, || format!("no answer within {seconds} s after the end"));
        }
    }

    /// What was due and never sent has waited until now at least.
    pub(super) fn give_up_unsent(&mut self) {
        for (wait, count) in self.schedule.unsent_waits(self.now) {
            self.tally.unsent += count;
            self.tally.latency.saturating_record_n(wait.max(1), count);
        }
    }

    /// In open loop, a request without an answer has waited until now at least: to leave it out would make a server that
    /// stands still look fast.
    fn record_waits(&mut self, connection: &Connection) {
        for pending in connection.waiting().iter().filter(|pending| pending.counts && self.is_open_loop) {
            self.tally.latency.saturating_record(self.now.saturating_sub(pending.from).max(1));
        }
    }

    /// The load is over: a server that ought to have closed the connection long ago is found out here, where the span was
    /// shorter than the client's patience.
    pub(super) fn expect_closed(&mut self, connection: &Connection) {
        let waited = self.now.saturating_sub(connection.since);
        if connection.state == State::Closing && self.is_late_to_close(connection) {
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
