//! What a session keeps of the present request for the hook of answers, and the report of each answer.
//!
//! A hook of times needs the time of the first byte of a request, and its method. A thread has both in its buffers while it serves a request
//! without a wait, so the session keeps them only from the first wait on. A hook that sees clients also needs texts of the head, which are gone
//! when the answer comes later, so the session copies them.
//!
//! Invariant: nothing is kept without a hook. Of an answered request, at most [`KEPT_TARGET`] bytes of room are kept.
//!
//! Cost: without a hook, a branch for each read and one for each answer. A hook of times costs a look at the clock for each turn; a hook
//! that sees clients also costs an allocation for each connection, and a copy of the target for each request.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use polyserve_core::http::{Method, StatusCode, Version};
use polyserve_core::{AnswerHook, AnswerReport, AnswerTimes, Head, ReportedRequest, RequestNotes};

use super::Session;
use crate::http1::agent_fields::AgentFields;
use crate::http1::http_state::SessionTurn;
use crate::http1::session_buffers::SessionBuffers;

/// The room for the target of a reported request that an idle connection keeps, in bytes.
const KEPT_TARGET: usize = 128;

/// The present request, for the report of its answer.
pub(super) struct PresentRequest {
    /// The client that the head names, or the connection's other end. `None` until the head is decoded.
    client: Option<SocketAddr>,
    /// When the turn began in which bytes were read last.
    last_read: Instant,
    /// How long the connection has waited for that turn, until an answer has it.
    queued: Option<Duration>,
    /// When the first byte of the request was read.
    begun: Option<Instant>,
    /// `None` until the head is decoded.
    pub(super) method: Option<&'static Method>,
    target: String,
    version: Version,
    /// `None` unless a hook needs them.
    agent: Option<Box<AgentFields>>,
    /// What the service has noted.
    pub(super) notes: RequestNotes,
}

impl PresentRequest {
    #[cold]
    fn read_at(last_read: Instant) -> Box<Self> {
        let (target, version, notes) = (String::new(), Version::HTTP_11, RequestNotes::new());
        let (queued, begun, method, agent, client) = (None, None, None, None, None);
        Box::new(Self { client, last_read, queued, begun, method, target, version, agent, notes })
    }

    /// Notes the request line but the method, for a hook that sees clients.
    #[inline(never)]
    pub(super) fn set_line(&mut self, head: &Head<'_>, client: Option<SocketAddr>) {
        (self.version, self.client) = (head.version, client);
        self.target.clear();
        self.target.push_str(head.target);
    }

    /// Notes the fields of the request that a hook of agents needs.
    #[inline(never)]
    pub(super) fn set_agent(&mut self, head: &Head<'_>) {
        self.agent.get_or_insert_default().set(|name| head.headers.get(name));
    }

    /// Forgets the request: its answer is made.
    fn end(&mut self) {
        (self.begun, self.queued, self.method, self.client) = (None, None, None, None);
        self.notes = RequestNotes::new();
        if self.target.capacity() > KEPT_TARGET {
            self.target = String::new();
        }
        if let Some(agent) = &mut self.agent {
            agent.clear();
        }
    }
}

impl Session {
    /// Notes the time of a read, for the reports of answers.
    #[inline]
    pub(super) fn note_read(&mut self, turn: &mut SessionTurn<'_>) {
        let last_read = *turn.buffers.now.get_or_insert_with(Instant::now);
        (turn.buffers.begun, turn.buffers.method) = (None, None);
        if turn.http.reports_clients || self.reported.is_some() {
            self.keep_read(last_read, turn.buffers);
        }
    }

    #[inline(never)]
    fn keep_read(&mut self, last_read: Instant, buffers: &mut SessionBuffers) {
        let request = self.reported.get_or_insert_with(|| PresentRequest::read_at(last_read));
        request.last_read = last_read;
        if let Some(since) = buffers.queued_since.take() {
            request.queued = Some(last_read.saturating_duration_since(since));
        }
    }

    /// Notes that a request begins. Its first bytes were in the last read.
    #[inline]
    pub(super) fn note_begin(&mut self, buffers: &mut SessionBuffers) {
        match &mut self.reported {
            Some(request) => request.begun = request.begun.or(Some(request.last_read)),
            None => (buffers.begun, buffers.method) = (buffers.now, None),
        }
    }

    /// Keeps the times of a request that is not answered at once, for a hook of times.
    #[inline(never)]
    pub(super) fn keep_times(&mut self, turn: &mut SessionTurn<'_>) {
        if turn.http.on_answer.is_some()
            && self.reported.is_none()
            && let Some(last_read) = turn.buffers.now
        {
            self.keep_read(last_read, turn.buffers);
            if let Some(request) = &mut self.reported {
                (request.begun, request.method) = (turn.buffers.begun.take(), turn.buffers.method.take());
            }
        }
    }

    /// Passes the times of the answer to the present request to `hook`, which sees no more.
    #[inline(never)]
    pub(super) fn report_times(&mut self, hook: &AnswerHook, status: StatusCode, buffers: &mut SessionBuffers) {
        let (method, begun, queued) = match &mut self.reported {
            Some(request) => (request.method.take(), request.begun.take(), request.queued.take()),
            None => buffers.take_times(),
        };
        let mut times = AnswerTimes::new(status, method, begun);
        times.queued = queued;
        hook.call_with_times(&times);
    }

    /// Passes a report of the answer to the present request to `hook`.
    #[inline(never)]
    pub(super) fn report(&mut self, hook: &AnswerHook, status: StatusCode, length: usize) {
        let Some(request) = &mut self.reported else {
            return hook.call(&AnswerReport::new(status, length, None, self.peer));
        };
        let line =
            request.method.map(|method| ReportedRequest { method, target: &request.target, version: request.version });
        let peer = request.client.or(self.peer);
        let mut report = AnswerReport::new(status, length, request.begun, peer);
        (report.queued, report.request) = (request.queued, line); // in its place: a report that is moved stalls the processor
        (report.user, report.trace) = (request.notes.user(), request.notes.trace());
        if let Some(agent) = &request.agent {
            agent.report(&mut report);
        }
        hook.call(&report);
        request.end();
    }
}
