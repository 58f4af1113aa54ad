//! The receiving of answers.
//!
//! Invariant: every request that was begun is settled exactly once, as right or with a kind of failure.

use rustix::io::Errno;

use super::connection::{ClientConnection, EndHint, Pending, State};
use super::retrying::FailedAttempt;
use super::worker_state::WorkerState;
use crate::answer::ReadStep;
use crate::clock;

impl WorkerState {
    /// Reads the bytes in the socket, and settles the requests that they answer.
    pub(super) fn receive(&mut self, connection: &mut ClientConnection, index: usize, ending: EndHint) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let end = self.receive_into(&mut buffer, connection, index, ending);
        self.buffer = buffer;
        if let Some(error) = end {
            self.set_now(clock::now());
            self.ended(connection, index, error);
        } else if connection.state == State::Leaving {
            connection.close(true);
            self.resume(connection, index);
        }
    }

    /// Returns `Some` if the connection has ended, with the error, if any.
    fn receive_into(
        &mut self,
        buffer: &mut [u8],
        connection: &mut ClientConnection,
        index: usize,
        ending: EndHint,
    ) -> Option<Option<Errno>> {
        let mut is_first = true;
        while connection.socket.is_some() {
            let partial = connection.partial.len();
            let (head, room) = buffer.split_at_mut_checked(partial)?;
            head.copy_from_slice(&connection.partial);
            let result = connection.receive(room);
            if connection.is_connecting && connection.has_tls() && connection.is_established() {
                self.established(connection);
            }
            let received = match result {
                Ok(Some(0)) => return Some(None),
                Ok(Some(received)) => received,
                Ok(None) => return (ending == EndHint::WriteFailed).then_some(Some(Errno::PIPE)),
                Err(error) => return Some(Some(error)),
            };
            if std::mem::take(&mut is_first) {
                self.set_now(clock::now());
                if connection.first_byte == 0 {
                    connection.first_byte = self.now;
                }
            }
            if self.is_counting {
                self.tally.received += received as u64;
            }
            connection.partial.clear();
            let filled = partial + received;
            if !self.digest(connection, index, buffer.get(..filled)?) {
                return None;
            }
            // Fewer bytes than the buffer holds: the socket is empty.
            if filled < buffer.len() {
                match ending {
                    EndHint::None => return None,
                    EndHint::Closed => return Some(None),
                    EndHint::Failed | EndHint::WriteFailed => {}
                }
            }
        }
        None
    }

    /// Settles the requests that `bytes` answer. Returns whether the connection stays open.
    fn digest(&mut self, connection: &mut ClientConnection, index: usize, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        // The latencies of one read are mostly equal: they are recorded together.
        let mut equal_latencies = (0, 0);
        while !rest.is_empty() {
            let (State::Busy, Some(&pending)) = (connection.state, connection.pending.get(connection.next)) else {
                self.record(equal_latencies);
                self.unexpected_bytes(connection, index, rest);
                return false;
            };
            let expected = self.requests.expected(pending.planned);
            match connection.reader.feed(rest, &expected, &mut self.heads) {
                Ok((used, ReadStep::More)) => {
                    connection.partial.extend_from_slice(rest.get(used..).unwrap_or_default());
                    break;
                }
                Ok((used, ReadStep::Done { closes, unexpected })) => {
                    rest = rest.get(used..).unwrap_or_default();
                    match unexpected {
                        None => self.right(&pending, &mut equal_latencies),
                        Some(503) if self.attempt_failed(&pending, FailedAttempt::Rejected) => {}
                        Some(status) => self.fail_status(connection, &pending, status),
                    }
                    self.settled(connection, index, closes, unexpected.is_none());
                }
                Err(wrong) => {
                    self.record(equal_latencies);
                    self.fail_wrong(connection, index, &pending, &wrong);
                    return false;
                }
            }
        }
        self.record(equal_latencies);
        true
    }

    /// Counts a right answer. `equal_latencies` is a latency and the number of times to record it.
    #[inline]
    pub(super) fn right(&mut self, pending: &Pending, equal_latencies: &mut (u64, u64)) {
        self.right += 1;
        self.requests.acknowledged(pending.planned);
        let is_late = self.now >= self.schedule.times.end;
        if let Some(retrying) = self.retrying.as_mut().filter(|_| self.is_counting) {
            retrying.answered(pending, self.now);
        }
        if pending.counts {
            let latency = self.now.saturating_sub(pending.from);
            if equal_latencies.0 != latency {
                self.record(*equal_latencies);
                *equal_latencies = (latency, 0);
            }
            equal_latencies.1 += 1;
            if is_late {
                self.tally.answered_late += 1;
            } else {
                self.tally.answered += 1;
            }
        } else if self.is_counting && self.schedule.is_timed() {
            self.tally.answered += 1; // begun in the warm-up, answered in the measured period
        }
    }

    #[inline]
    pub(super) fn record(&mut self, (latency, count): (u64, u64)) {
        if count > 0 {
            self.tally.latency.saturating_record_n(latency.max(1), count);
        }
    }

    /// Settles a request: the connection continues, becomes free, or is to be closed.
    pub(super) fn settled(&mut self, connection: &mut ClientConnection, index: usize, closes: bool, is_right: bool) {
        connection.next += 1;
        (connection.since, connection.free_since) = (self.now, self.arrived);
        connection.is_proven = true;
        if is_right {
            connection.failures = 0;
            self.last_right = self.now;
        }
        if self.is_counting {
            self.tally.last = self.now;
        }
        let is_answered = connection.is_answered();
        if is_answered {
            self.busy -= 1;
        }
        if closes || self.closes {
            self.last_answer(connection, closes, is_right);
        } else if is_answered {
            connection.state = State::Free;
            self.free.push_back(index as u32);
        }
    }

    /// Handles the last answer of a connection: the server has announced a close, or every request has its own connection.
    fn last_answer(&mut self, connection: &mut ClientConnection, closes: bool, is_right: bool) {
        let last = connection.pending.get(connection.next.saturating_sub(1));
        if let Some(phases) = self.tally.phases.as_mut().filter(|_| is_right && last.is_some_and(|last| last.counts)) {
            let (started, established) = connection.connected;
            phases.connect.saturating_record(established.saturating_sub(started).max(1));
            phases.waiting.saturating_record(connection.first_byte.saturating_sub(established).max(1));
            phases.processing.saturating_record(self.now.saturating_sub(established).max(1));
        }
        if closes {
            connection.state = State::Closing;
        } else {
            connection.state = State::Leaving;
            if self.must_close {
                self.missing_close(connection);
            }
        }
    }
}
