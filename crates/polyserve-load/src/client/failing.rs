//! The failures of a connection: a failure is counted, and the connection is replaced.
//!
//! A server may close a kept connection between requests at any time, so a request may be sent to a closed connection. Such
//! a request is sent again, at most twice, if no byte of its answer has arrived and the connection had answered before. GET
//! and PUT are idempotent. Requests after an announced close were never read by the server, and do not count as retries.

use std::cmp::Reverse;

use rustix::io::Errno;

use super::connection::{ClientConnection, Pending, State};
use super::tally::FailureKind;
use super::worker_state::WorkerState;
use crate::answer::{ReadStep, Wrong, excerpt};

/// The pause after the first failure of a connection. Each further failure doubles it, up to a factor of 64.
const BACKOFF: u64 = 1_000_000;
const MAX_DOUBLINGS: u32 = 6;
/// The max number of times that a request is sent again after a close.
const MAX_RETRIES: u8 = 2;
/// How long a server may take to close a connection after its announcement, when the load ends.
const CLOSE_TIMEOUT: u64 = 500_000_000;

impl WorkerState {
    /// Handles the end of a connection, with `error` if there was one.
    pub(super) fn ended(&mut self, connection: &mut ClientConnection, index: usize, error: Option<Errno>) {
        match connection.state {
            State::Free => {
                // It stays in the queue. Its next use opens a socket.
                connection.close(false);
                connection.was_closed = true;
            }
            State::Opening | State::BackingOff => {
                self.cannot_open(connection, index, error.unwrap_or(Errno::CONNRESET));
            }
            State::Closing | State::Leaving => {
                connection.close(false);
                connection.was_closed = !self.closes;
                self.resume(connection, index);
            }
            State::Busy => self.lost(connection, index, error),
        }
    }

    /// Handles the end of a connection with unanswered requests.
    fn lost(&mut self, connection: &mut ClientConnection, index: usize, error: Option<Errno>) {
        let Some(&pending) = connection.pending.get(connection.next) else { return };
        if connection.is_connecting {
            return self.cannot_open(connection, index, error.unwrap_or(Errno::CONNRESET));
        }
        if error.is_none() {
            match connection.reader.end(&self.requests.expected(pending.planned)) {
                Ok(None) => {}
                Ok(Some(ReadStep::Done { unexpected: Some(status), .. })) => {
                    self.fail_status(connection, &pending, status);
                    return self.answered_by_end(connection, index, false);
                }
                Ok(Some(_)) => {
                    let mut equal_latencies = (0, 0);
                    self.right(&pending, &mut equal_latencies);
                    self.record(equal_latencies);
                    return self.answered_by_end(connection, index, true);
                }
                Err(wrong) => return self.fail_wrong(connection, index, &pending, &wrong),
            }
        }
        let is_torn = !connection.reader.is_between() || !connection.partial.is_empty();
        let (is_proven, all) = (connection.is_proven, connection.waiting().len());
        connection.close(false);
        connection.was_closed = is_proven && !is_torn;
        let (count, what) = match (is_torn, is_proven) {
            (true, _) => (1, "within"),
            (false, false) => (all, "before"),
            // The requests with the most retries are first.
            (false, true) => (connection.retry(MAX_RETRIES), "once more before"),
        };
        if count == 0 {
            return self.resume(connection, index);
        }
        let cause = error.map_or_else(|| "closed".to_owned(), |error| error.to_string());
        self.fail(&pending, FailureKind::Broken, count, || format!("the connection ended {what} the answer: {cause}"));
        connection.next += count;
        self.back_off(connection, index);
    }

    /// Settles an answer that lasts until the end of the connection.
    fn answered_by_end(&mut self, connection: &mut ClientConnection, index: usize, is_right: bool) {
        self.settled(connection, index, true, is_right);
        self.ended(connection, index, None);
    }

    /// Handles bytes that answer no request. A full server may refuse a connection before its first request.
    pub(super) fn unexpected_bytes(&mut self, connection: &mut ClientConnection, index: usize, bytes: &[u8]) {
        self.wrong += 1;
        let is_refusal = bytes.starts_with(b"HTTP/1.1 503 ");
        let kind = if is_refusal { FailureKind::Status(503) } else { FailureKind::Wrong };
        self.tally.fail(self.now, kind, 1, || format!("bytes after the last expected answer: {}", excerpt(bytes)));
        self.replace(connection, index);
    }

    pub(super) fn fail_status(&mut self, connection: &ClientConnection, pending: &Pending, status: u16) {
        self.fail(pending, FailureKind::Status(status), 1, || {
            format!("status {status}: {}", connection.reader.excerpt())
        });
    }

    pub(super) fn fail_wrong(
        &mut self,
        connection: &mut ClientConnection,
        index: usize,
        pending: &Pending,
        wrong: &Wrong,
    ) {
        self.fail(pending, FailureKind::Wrong, 1, || wrong.0.clone());
        connection.next += 1;
        self.replace(connection, index);
    }

    fn fail(&mut self, pending: &Pending, kind: FailureKind, count: usize, why: impl FnOnce() -> String) {
        self.wrong += count as u64;
        let requests = &self.requests;
        self.tally.fail(self.now, kind, count as u64, || format!("{}: {}", requests.name(pending.planned), why()));
        if pending.counts {
            self.tally.last = self.now;
        }
    }

    /// Counts an answer to `Connection: close` that must announce the close and does not.
    pub(super) fn missing_close(&mut self, connection: &ClientConnection) {
        self.wrong += 1;
        let planned = connection.pending.get(connection.next.saturating_sub(1)).map(|pending| pending.planned);
        let requests = &self.requests;
        let name = || planned.map_or_else(String::new, |planned| requests.name(planned));
        let why = || format!("{}: the answer to `Connection: close` does not announce the close", name());
        self.tally.fail(self.now, FailureKind::Wrong, 1, why);
    }

    /// Closes a connection after an invalid answer. Pending requests are sent on a new socket.
    fn replace(&mut self, connection: &mut ClientConnection, index: usize) {
        connection.close(true);
        match connection.state {
            // It stays in the queue.
            State::Free => {}
            // Its request is settled.
            State::Closing | State::Leaving if connection.is_answered() => self.back_off_idle(connection, index),
            _ => self.back_off(connection, index),
        }
    }

    /// Starts the pause of a failed connection. Pending requests are sent again after it.
    fn back_off(&mut self, connection: &mut ClientConnection, index: usize) {
        if connection.is_answered() {
            self.busy -= 1;
        }
        self.back_off_idle(connection, index);
    }

    fn back_off_idle(&mut self, connection: &mut ClientConnection, index: usize) {
        let delay = BACKOFF << connection.failures.min(MAX_DOUBLINGS);
        connection.failures = connection.failures.saturating_add(1);
        connection.state = State::BackingOff;
        self.backing_off.push(Reverse((self.now + delay, index as u32)));
    }

    /// Continues a connection without a socket: sends pending requests again, or frees the connection.
    pub(super) fn resume(&mut self, connection: &mut ClientConnection, index: usize) {
        if connection.is_answered() {
            connection.state = State::Free;
            (connection.since, connection.free_since) = (self.now, self.arrived);
            self.free.push_back(index as u32);
            return;
        }
        let were_sent = !connection.has_shortage;
        if were_sent {
            self.tally.retried += connection.waiting().len() as u64;
        }
        self.resend(connection, index);
    }

    /// Handles a socket that cannot be opened or connected.
    pub(super) fn cannot_open(&mut self, connection: &mut ClientConnection, index: usize, error: Errno) {
        connection.close(true);
        match connection.state {
            State::Opening => {
                connection.state = State::Free;
                self.opening -= 1;
                return;
            }
            State::Free => return,
            State::Busy | State::Closing | State::Leaving | State::BackingOff => {}
        }
        let Some(&pending) = connection.pending.get(connection.next) else { return };
        let since = *connection.shortage_since.get_or_insert(self.now);
        connection.has_shortage = is_shortage(error) && self.now.saturating_sub(since) < self.timeout;
        if !connection.has_shortage {
            connection.shortage_since = None;
            let count = connection.waiting().len();
            let target = self.target;
            self.fail(&pending, FailureKind::Connect, count, || format!("cannot connect to {target}: {error}"));
            connection.next += count;
        }
        self.back_off(connection, index);
    }

    /// Handles a connection that has been in its state for longer than the client's timeout.
    pub(super) fn time_out(&mut self, connection: &mut ClientConnection, index: usize) {
        let seconds = self.timeout as f64 / 1e9;
        match connection.state {
            State::Free | State::Opening | State::Leaving | State::BackingOff => {}
            State::Closing => {
                self.wrong += 1;
                let why = || format!("the server has not closed the connection within {seconds} s");
                self.tally.fail(self.now, FailureKind::Timeout, 1, why);
                connection.close(true);
                self.resume(connection, index);
            }
            State::Busy => {
                if self.attempts_timed_out(connection, index) {
                    return;
                }
                let Some(&pending) = connection.pending.get(connection.next) else { return };
                let count = connection.waiting().len();
                self.record_waits(connection);
                if connection.is_connecting {
                    self.fail(&pending, FailureKind::Connect, count, || format!("no connection within {seconds} s"));
                } else {
                    self.fail(&pending, FailureKind::Timeout, count, || format!("no answer within {seconds} s"));
                }
                connection.next += count;
                connection.close(true);
                self.back_off(connection, index);
            }
        }
    }

    /// Whether the server has exceeded the time for the announced close.
    pub(super) fn is_late_to_close(&self, connection: &ClientConnection) -> bool {
        self.now.saturating_sub(connection.since) >= CLOSE_TIMEOUT.min(self.schedule.grace)
    }

    /// Ends the wait for answers. An unanswered request has failed, unless the load was stopped before the request's timeout
    /// was over. So a silent server is noticed however short the measured period was, and a slow one has not failed.
    pub(super) fn abandon(&mut self, connection: &ClientConnection) {
        let Some(&pending) = connection.waiting().first() else { return };
        let (count, seconds) = (connection.waiting().len(), self.timeout as f64 / 1e9);
        self.record_waits(connection);
        if self.retrying.is_some() {
            return; // no client waits for these answers
        }
        if self.schedule.is_stopped() && self.now.saturating_sub(connection.since) <= self.timeout {
            self.tally.unfinished += connection.waiting().iter().filter(|pending| pending.counts).count() as u64;
        } else if connection.is_connecting || connection.has_shortage {
            self.fail(&pending, FailureKind::Connect, count, || format!("no connection within {seconds} s"));
        } else {
            self.fail(&pending, FailureKind::Timeout, count, || format!("no answer within {seconds} s"));
        }
    }

    /// Records the waits of due requests that were never sent: they have waited at least until now.
    pub(super) fn abandon_unsent(&mut self) {
        for (wait, count) in self.schedule.unsent_waits(self.now) {
            self.tally.unsent += count;
            self.tally.latency.saturating_record_n(wait.max(1), count);
        }
    }

    /// Open loop: records the waits of unanswered requests, which are at least until now. Without them a stalled server would
    /// appear fast.
    fn record_waits(&mut self, connection: &ClientConnection) {
        for pending in connection.waiting().iter().filter(|pending| pending.counts && self.is_open_loop) {
            self.tally.latency.saturating_record(self.now.saturating_sub(pending.from).max(1));
        }
    }

    /// Counts a missing close at the end of the load. It is counted also if the run was shorter than the client's timeout.
    pub(super) fn expect_closed(&mut self, connection: &ClientConnection) {
        let waited = self.now.saturating_sub(connection.since);
        if connection.state == State::Closing && self.is_late_to_close(connection) {
            self.wrong += 1;
            let why = || format!("the server has not closed the connection within {} s", waited as f64 / 1e9);
            self.tally.fail(self.now, FailureKind::Timeout, 1, why);
        }
    }

    /// Ends a run of a number of requests early if all requests have failed for twice the client's timeout. Otherwise
    /// the load would take the timeout for each request.
    pub(super) fn stop_if_hopeless(&mut self) {
        let is_hopeless = self.wrong > 0 && self.now.saturating_sub(self.last_right) / 2 >= self.timeout;
        if is_hopeless && !self.schedule.is_timed() {
            self.schedule.stop(self.now);
        }
    }
}

/// Whether the error is a shortage on this machine, which may pass, and not a failure of the server.
fn is_shortage(error: Errno) -> bool {
    [Errno::ADDRNOTAVAIL, Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::NOSPC].contains(&error)
}
