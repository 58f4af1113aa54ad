//! How a connection closes after its last answer.
//!
//! The kernel resets a connection that is closed with unread bytes, and one that receives bytes after its close. A reset drops what the
//! kernel has not sent yet, and a client that gets it may drop what it has not read yet (RFC 9112, section 9.6). To linger prevents
//! both, but costs four more system calls and a wait. So a connection lingers if
//!
//! * the server decides about the close, and the client may be sending;
//! * bytes after the last request are in hand, or in the socket, which is read once more for that;
//! * it has sent an output that may still be on its way, because it does not fit in the [first flight](crate::net::FIRST_FLIGHT).
//!
//! The client may not read before it has sent all of a body, and then a close before that end is an error for it. So a connection lingers
//! for longer while bytes come, but not in a drain.
//!
//! Cost of a connection that does not linger: one read, which finds the socket empty.

use super::{Connection, Step, Turn, WaitKind, nanos};
use crate::Discarded;
use crate::http1::{SessionStep, TimeLimit};
use crate::lingering::{extends_linger, lingers_on};

impl Connection {
    /// Whether the last answer is sent.
    #[inline]
    pub(super) fn is_closing(&self) -> bool {
        self.is_lingering | matches!(self.session_step, SessionStep::Close { .. })
    }

    /// Returns the step after the last answer, if the client has announced that it sends nothing more.
    #[inline(never)]
    pub(super) fn end_last_answer(&mut self) -> Step {
        if self.session.input_ended() {
            Step::Close
        } else if self.has_sent_much {
            Step::Linger
        } else {
            Step::Read { past_report: true }
        }
    }

    /// Returns the next step after `count` bytes that came after the last request.
    #[inline(never)]
    pub(super) fn on_late_bytes(&mut self, turn: &Turn<'_>, count: usize) -> Step {
        if !self.is_lingering {
            return Step::Linger;
        }
        let now = (turn.clock)();
        self.begin_wait(turn, WaitKind::Linger, now);
        if extends_linger(count, turn.server) {
            let sent = now.saturating_duration_since(self.since);
            self.limit = nanos(TimeLimit::Linger { sent }.of(&turn.server.config));
        }
        if lingers_on(Discarded::More, now, self.deadline()) { self.read(turn) } else { Step::Close }
    }
}
