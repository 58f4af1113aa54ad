//! A server without a socket: it drives a [`Session`] by the contract of `SessionStep`, and keeps its output.
#![allow(dead_code)] // each test binary uses a part

use std::task::{Context, Poll, Waker};
use std::time::{Duration, UNIX_EPOCH};

use polyserve_serving::http1::{HttpState, Session, SessionBuffers, SessionStep};

/// The date of every answer in these tests.
pub(crate) const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// Takes the size of a write, and returns the number of bytes that the client accepts.
pub(crate) type AcceptFn = Box<dyn FnMut(usize) -> usize>;

/// One connection, seen from the client's side.
pub(crate) struct Wire<'e> {
    pub(crate) session: Session,
    server: &'e HttpState,
    buffers: SessionBuffers,
    accept: AcceptFn,
    step: SessionStep,
    /// The bytes that were written.
    pub(crate) out: Vec<u8>,
    /// The number of answers that the session counted as written.
    pub(crate) answered: u64,
}

/// The number of polls of a deferred answer before a call returns.
pub(crate) const POLLS: usize = 3;

impl<'e> Wire<'e> {
    /// Creates a connection to a client that accepts each write completely.
    pub(crate) fn new(server: &'e HttpState) -> Self {
        Self::with_accept(server, Box::new(|count| count))
    }

    /// Creates a connection to a client that accepts as many bytes as `accept` returns, and at least one.
    pub(crate) fn with_accept(server: &'e HttpState, accept: AcceptFn) -> Self {
        let session = Session::new();
        let step = session.next_step();
        let mut wire =
            Self { session, server, buffers: SessionBuffers::new(), accept, step, out: Vec::new(), answered: 0 };
        wire.drain(false);
        wire
    }

    /// Sets whether the server is draining, and the time.
    pub(crate) fn drain(&mut self, draining: bool) {
        self.buffers.refresh(UNIX_EPOCH + Duration::from_secs(784_111_777), draining);
    }

    /// Sets whether other connections wait for the server's thread.
    pub(crate) fn others_wait(&mut self, others_wait: bool) {
        self.drain(false);
        self.buffers.set_others_wait(others_wait);
    }

    /// Sends `bytes` in one piece, and lets the server continue until it waits.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> SessionStep {
        assert!(matches!(self.step, SessionStep::Read(_)), "the server does not read: it wants {:?}", self.step);
        self.step = self.session.receive(bytes, &mut self.server.turn(&mut self.buffers));
        self.settle()
    }

    /// Ends the client's bytes.
    pub(crate) fn end(&mut self) -> SessionStep {
        self.step = self.session.end_of_input();
        self.settle()
    }

    /// Ends the present phase by its timeout.
    pub(crate) fn time_out(&mut self) -> SessionStep {
        self.step = self.session.time_out(&mut self.server.turn(&mut self.buffers));
        self.settle()
    }

    /// Whether the server has closed the connection, or will close it once all output is written.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.step, SessionStep::Close { .. })
    }

    /// Returns the text that was written since the last call.
    pub(crate) fn take_output(&mut self) -> String {
        String::from_utf8(std::mem::take(&mut self.out)).expect("answers here are text")
    }

    /// Continues until the server waits for bytes or for an answer, or has closed the connection.
    pub(crate) fn settle(&mut self) -> SessionStep {
        let mut polls = 0;
        loop {
            self.write();
            assert_eq!(self.session.next_step(), self.step);
            self.step = match self.step {
                SessionStep::Read(_) | SessionStep::Close { .. } => return self.step,
                SessionStep::Write | SessionStep::Yield => {
                    self.session.resume(&mut self.server.turn(&mut self.buffers))
                }
                SessionStep::Answer => match self.session.poll_answer(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(()) => {
                        polls = 0;
                        self.session.resume(&mut self.server.turn(&mut self.buffers))
                    }
                    Poll::Pending if polls == POLLS => return SessionStep::Answer,
                    Poll::Pending => {
                        polls += 1;
                        SessionStep::Answer
                    }
                },
            };
        }
    }

    fn write(&mut self) {
        let out = self.buffers.out();
        if !out.is_empty() {
            let count = (self.accept)(out.len()).min(out.len());
            self.out.extend_from_slice(&out[..count]);
            self.session.written(count, &mut self.buffers);
            assert!(self.buffers.out().is_empty());
        }
        while !self.session.unsent().is_empty() {
            let unsent = self.session.unsent();
            let count = (self.accept)(unsent.len()).clamp(1, unsent.len());
            self.out.extend_from_slice(&unsent[..count]);
            let rest = unsent.len() - count;
            assert_eq!(self.session.advance(count), rest == 0);
        }
        self.answered += self.session.take_answered();
    }
}
