//! From requests to answers: calls the service and encodes its replies.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use polyserve_core::http::{StatusCode, Version};
use polyserve_core::{Answer, Reply, Request};

use super::kept::BufferedInput;
use super::read::{RunProgress, must_flush};
use super::{
    AnswerContext, CaughtPanics, Following, OUTPUT_BOUND, Phase, Session, SessionState, SessionStep, SessionTurn,
    answer_context, panic_reply,
};
use crate::http1::decode::{Parsed, Refusal};
use crate::http1::encode::{self, AnswerHead};
use crate::http1::turn::MAX_TURN_REQUESTS;
use crate::memory::FREE_BYTES;

/// Room for the head of an answer, in bytes.
const HEAD_ROOM: usize = 1024;

impl Session {
    /// Calls the service. Its answer is encoded where the service has put it: a value that is stored by parts and at once read as a
    /// whole, as in a move, stalls the processor.
    #[allow(clippy::inline_always)] // the same holds for `parsed`
    #[inline(always)]
    pub(super) fn call(
        &mut self,
        parsed: &Parsed<'_>,
        body: &[u8],
        following: Following,
        progress: &mut RunProgress<'_>,
        turn: &mut SessionTurn<'_>,
    ) {
        let context = answer_context(parsed);
        if context.method.is_some_and(|method| !turn.http.memory.admits(method)) {
            return self.finish(context, &turn.http.memory.refuse(), following, turn);
        }
        turn.buffers.note_body(body.len());
        turn.buffers.body.clear();
        progress.call = Some((context, following));
        let mut request = Request::new(parsed.head, body).with_max_body(turn.http.limits.max_body);
        request.head.certificate = self.certificate.as_ref();
        (request.peer, request.draining) = (self.peer, turn.buffers.draining);
        if !turn.http.proxies.is_empty() {
            request.peer = turn.http.client(self.peer, parsed.head.headers);
        }
        if let Some(reported) = self.reported.as_ref().filter(|_| turn.http.reports_clients) {
            request = request.with_notes(Some(&reported.notes));
        }
        if turn.http.admission.is_some() {
            request = request.with_arrived(turn.buffers.arrived);
        }
        let answer = turn.http.service.call(request, &mut turn.buffers.body);
        progress.call = None;
        match answer {
            Answer::Now(ref reply) => self.finish(context, reply, following, turn),
            Answer::Later(future) => {
                self.set_state(SessionState::Answer(context, future));
                self.step = SessionStep::Answer;
            }
        }
    }

    /// Encodes a deferred answer that has arrived.
    pub(super) fn respond(&mut self, following: Following, turn: &mut SessionTurn<'_>) {
        if let SessionState::Answered(answer) = std::mem::replace(&mut self.state, SessionState::Head) {
            let (context, reply) = &*answer;
            turn.buffers.body.clear(); // a deferred answer has a body of its own
            self.finish(*context, reply, following, turn);
        }
    }

    #[inline]
    pub(super) fn finish(
        &mut self,
        context: AnswerContext,
        reply: &Reply,
        following: Following,
        turn: &mut SessionTurn<'_>,
    ) {
        if self.encode_now(context, reply, following, turn) {
            if !matches!(self.state, SessionState::Head) {
                self.set_state(SessionState::Head);
            }
            self.step = SessionStep::Read(Phase::Idle);
        } else {
            // If the client asked for the close and has sent no further request, it sends nothing more.
            self.close(context.keep_alive || following != Following::Nothing);
        }
    }

    /// Appends an answer that the service has not given now. Returns whether the connection stays open.
    #[inline(never)]
    pub(super) fn encode(
        &mut self,
        context: AnswerContext,
        reply: &Reply,
        following: Following,
        turn: &mut SessionTurn<'_>,
    ) -> bool {
        self.encode_now(context, reply, following, turn)
    }

    /// Appends an answer. Returns whether the connection stays open.
    #[allow(clippy::inline_always)] // for each request
    #[inline(always)]
    fn encode_now(
        &mut self,
        context: AnswerContext,
        reply: &Reply,
        following: Following,
        turn: &mut SessionTurn<'_>,
    ) -> bool {
        self.requests = self.requests.saturating_add(1);
        let is_last = self.requests >= turn.http.requests_per_connection;
        let close = !context.keep_alive
            || is_last
            || (turn.buffers.draining && following == Following::Nothing && !self.more_follows)
            || (turn.buffers.others_wait && self.gives_way(reply, following, turn));
        let start = turn.buffers.out.len();
        // One branch: the compiler takes code behind many branches for cold, and inlines nothing there.
        let is_usual = !context.head_only & (context.version == Version::HTTP_11);
        let status = if is_usual & reply.is_json_in_place() & turn.has_usual_head() {
            encode::json(&mut turn.buffers.out, &turn.buffers.body, close, &turn.buffers.date);
            StatusCode::OK
        } else if is_usual & !close & reply.is_done() & turn.has_usual_head() {
            encode::done(&mut turn.buffers.out, turn.buffers.date.end_of_head());
            StatusCode::OK
        } else {
            self.append(context, reply, close, turn)
        };
        self.note_answer(status, start, turn);
        !close
    }

    /// While other connections wait: whether this answer is the last one. It is if no complete request follows, if a turn's number
    /// of answers is reached, or if the answer fills the output: the client, which may read slowly, then has one output to take.
    fn gives_way(&mut self, reply: &Reply, following: Following, turn: &SessionTurn<'_>) -> bool {
        self.crowded_answers = self.crowded_answers.saturating_add(1);
        let length = turn.buffers.out.len().saturating_add(reply.body_bytes(&turn.buffers.body).len());
        following != Following::Request
            || self.crowded_answers >= MAX_TURN_REQUESTS
            || must_flush(length.saturating_add(HEAD_ROOM), &turn.http.memory)
    }

    /// Appends an answer, or that of the server in place of one that cannot be sent. Returns its status. `close`: the connection
    /// closes after it.
    #[inline(never)]
    fn append(&mut self, context: AnswerContext, reply: &Reply, close: bool, turn: &mut SessionTurn<'_>) -> StatusCode {
        let body = reply.body_bytes(&turn.buffers.body).len();
        let length = turn.buffers.out.len().saturating_add(body);
        let other = if length > FREE_BYTES && self.lacks_memory(context, body, length, turn) {
            Some(turn.http.memory.refuse())
        } else {
            reply.correction(context.head_only)
        };
        let reply = other.as_ref().unwrap_or(reply);
        let buffers = &mut *turn.buffers;
        let head = AnswerHead {
            version: context.version,
            close,
            head_only: context.head_only,
            date: buffers.date.end_of_head(),
            server_header: turn.http.server_header.as_deref(),
        };
        encode::answer(&mut buffers.out, reply, reply.body_bytes(&buffers.body), &head);
        reply.status()
    }

    /// Counts an answer that begins at `start` of the output, and reports it.
    #[inline]
    fn note_answer(&mut self, status: StatusCode, start: usize, turn: &mut SessionTurn<'_>) {
        let end = turn.buffers.out.len();
        turn.buffers.ends.push(end);
        let length = end.saturating_sub(start);
        if let Some(hook) = &turn.http.on_answer {
            if turn.http.reports_clients {
                self.report(hook, status, length);
            } else {
                self.report_times(hook, status, turn.buffers);
            }
        }
        turn.buffers.count_request(length);
    }

    /// Whether the request was safe, and there is no memory to keep its answer until the client takes it. If the request was not
    /// safe, it was done, so its answer is sent; notes if there is no memory. `body` and `length`: the length of the answer's body, and
    /// that of the output with it.
    #[inline(never)]
    fn lacks_memory(&mut self, context: AnswerContext, body: usize, length: usize, turn: &SessionTurn<'_>) -> bool {
        let memory = &turn.http.memory;
        let Some(method) = context.method.filter(|_| length > FREE_BYTES && !context.head_only) else { return false };
        if !method.is_safe() {
            match body {
                ..=FREE_BYTES => {} // a small answer always fits
                _ if length > OUTPUT_BOUND => {
                    let kept = self.kept_bytes();
                    self.reservation.set_unsafe(memory, kept.saturating_add(length), method);
                }
                _ if memory.has_room(length) => {}
                _ => memory.note_overrun(method),
            }
            return false;
        }
        // A large answer is reserved before it is known whether the client takes it at once: other threads may encode one too.
        match length {
            ..=OUTPUT_BOUND => !memory.has_room(length),
            length => !self.reservation.try_set(memory, self.kept_bytes().saturating_add(length)),
        }
    }

    /// Refuses a body because there is no memory for it.
    pub(super) fn refuse_for_memory(&mut self, head_only: bool, turn: &mut SessionTurn<'_>) {
        let context = AnswerContext { version: Version::HTTP_11, head_only, keep_alive: false, method: None };
        self.encode(context, &turn.http.memory.refuse(), Following::Nothing, turn);
        self.close(true);
    }

    pub(super) fn refuse(&mut self, refusal: Refusal, head_only: bool, turn: &mut SessionTurn<'_>) {
        let context = AnswerContext { version: Version::HTTP_11, head_only, keep_alive: false, method: None };
        self.encode(context, &Reply::problem(refusal.status, refusal.detail), Following::Nothing, turn);
        self.close(true);
    }

    /// Counts a panic of the service, and returns the answer.
    #[cold]
    pub(super) fn panicked(&mut self, panic: Box<dyn Any + Send>) -> Reply {
        self.note_panic(panic, "a service panicked");
        panic_reply()
    }

    #[cold]
    fn note_panic(&mut self, panic: Box<dyn Any + Send>, what: &'static str) {
        let caught = CaughtPanics::new(panic, what);
        match &mut self.panics {
            Some(panics) => panics.count = panics.count.saturating_add(1),
            none => *none = Some(Box::new(caught)),
        }
    }

    pub(super) fn close(&mut self, linger: bool) {
        self.set_state(SessionState::Closed);
        self.buffered = BufferedInput::default();
        self.step = SessionStep::Close { linger: linger && !self.input_ended };
    }

    pub(super) fn set_answered(&mut self, context: AnswerContext, reply: Reply) {
        self.set_state(SessionState::Answered(Box::new((context, reply))));
    }

    /// Changes the state. The old state may hold a service's future. Dropping it runs foreign code, which may panic.
    #[inline]
    pub(super) fn set_state(&mut self, state: SessionState) {
        if matches!(self.state, SessionState::Answer(..)) {
            self.drop_answer();
        }
        self.state = state;
    }

    #[inline(never)]
    fn drop_answer(&mut self) {
        let old = std::mem::replace(&mut self.state, SessionState::Closed);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(old))) {
            self.note_panic(panic, "an answer panicked as it was dropped");
        }
    }
}
