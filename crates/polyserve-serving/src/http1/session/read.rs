//! From bytes to requests: decodes heads, collects bodies, and keeps what is incomplete.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use polyserve_core::{Head, Reply};

use super::kept::PendingBody;
use super::{AnswerContext, OUTPUT_BOUND, Phase, Session, SessionState, SessionStep, SessionTurn};
use super::{Following, answer_context, is_head};
use crate::http1::decode::{self, Decoded, EmptyLines, Framing, Limits, Parsed};
use crate::http1::encode;
use crate::http1::refusal::TOO_LARGE;
use crate::http1::repeated::LastHeads;
use crate::memory::{FREE_BYTES, MemoryBudget};

/// How far a session has come with its input.
pub(super) struct RunProgress<'i> {
    /// The bytes that are not used.
    rest: &'i [u8],
    /// The request for which the service is called now.
    pub(super) call: Option<(AnswerContext, Following)>,
}

impl RunProgress<'_> {
    #[inline]
    fn skip(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
    }

    fn skip_all(&mut self) {
        self.rest = &[];
    }
}

impl Session {
    /// Whether `new`, the last of the buffered bytes, can change the result of decoding.
    pub(super) fn may_complete(&self, new: &[u8], limits: &Limits) -> bool {
        !matches!(self.state, SessionState::Head) || decode::may_complete(self.buffered.unused().len(), new, limits)
    }

    pub(super) fn run_buffered(&mut self, turn: &mut SessionTurn<'_>) {
        let mut buffered = std::mem::take(&mut self.buffered);
        let used = self.run(buffered.unused(), turn);
        if !matches!(self.state, SessionState::Closed) {
            buffered.remove(used);
            self.buffered = buffered;
        }
    }

    pub(super) fn keep(&mut self, bytes: &[u8]) {
        if !matches!(self.state, SessionState::Closed) {
            self.buffered.append(bytes);
        }
    }

    /// Answers the requests that are complete in `input`. Returns the number of bytes used.
    pub(super) fn run(&mut self, input: &[u8], turn: &mut SessionTurn<'_>) -> usize {
        let mut progress = RunProgress { rest: input, call: None };
        let mut last_heads = turn.buffers.last_heads.take().unwrap_or_else(|| Box::new(LastHeads::none()));
        // One catch for all requests: for each, what it lends to the service would be moved into a closure.
        while let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.serve(&mut progress, &mut last_heads, turn))) {
            let Some((context, following)) = progress.call.take() else { resume_unwind(panic) };
            let reply = self.panicked(panic);
            self.finish(context, &reply, following, turn);
        }
        turn.buffers.last_heads = Some(last_heads);
        input.len().saturating_sub(progress.rest.len())
    }

    /// Answers the requests that are complete in `progress`. If the service panics, `progress.call` has the request that it was called
    /// for: the caller answers that request, and calls this again.
    fn serve(&mut self, progress: &mut RunProgress<'_>, last_heads: &mut LastHeads, turn: &mut SessionTurn<'_>) {
        loop {
            if !self.serve_known_heads(progress, last_heads, turn) {
                return;
            }
            self.read_other_head(progress, last_heads, turn);
            if matches!(self.step, SessionStep::Read(Phase::Head)) {
                return;
            }
        }
    }

    /// Serves requests of which the heads are known, as those of [`LastHeads`] are. Returns whether a head is not known: the turn goes
    /// on with it. Otherwise the turn is over, or nothing more is complete.
    #[allow(clippy::inline_always)] // called once
    #[inline(always)]
    fn serve_known_heads(
        &mut self,
        progress: &mut RunProgress<'_>,
        last_heads: &mut LastHeads,
        turn: &mut SessionTurn<'_>,
    ) -> bool {
        loop {
            if must_flush(turn.buffers.out.len(), &turn.http.memory) && !matches!(self.state, SessionState::Closed) {
                self.step = SessionStep::Write;
                return false;
            }
            if !matches!(self.state, SessionState::Head) {
                if self.goes_on(progress, turn) {
                    continue;
                }
                return false;
            }
            let rest = progress.rest;
            let skipped = self.empty_lines.skip(rest);
            if skipped > 0 {
                progress.skip(skipped);
                continue;
            }
            if rest.is_empty() || rest == b"\r" {
                self.wait(if rest.is_empty() { Phase::Idle } else { Phase::Head });
                return false;
            }
            if turn.http.on_answer.is_some() {
                self.note_begin(turn.buffers);
            }
            if turn.buffers.turn_is_over() {
                self.step = SessionStep::Yield;
                return false;
            }
            match last_heads.read(rest, &turn.http.limits) {
                Some(parsed) => self.begin(&parsed, progress, turn),
                None => return true,
            }
        }
    }

    /// Goes on with a request that has begun. Returns whether more can be done now.
    #[inline(never)]
    fn goes_on(&mut self, progress: &mut RunProgress<'_>, turn: &mut SessionTurn<'_>) -> bool {
        match &mut self.state {
            SessionState::Head => true,
            SessionState::Closed => {
                progress.skip_all();
                false
            }
            SessionState::Answer(..) => {
                self.step = SessionStep::Answer;
                false
            }
            SessionState::Answered(..) => {
                self.respond(following_deferred(progress.rest, turn), turn);
                true
            }
            SessionState::Body(_) | SessionState::Skip(_) => {
                self.read_body(progress, turn);
                !progress.rest.is_empty() || !matches!(self.step, SessionStep::Read(Phase::Body | Phase::Skip))
            }
        }
    }

    /// Sets the next step: read more bytes, or close if the input has ended.
    fn wait(&mut self, phase: Phase) {
        self.step = SessionStep::Read(phase);
        if self.input_ended {
            self.close(false);
        }
    }

    /// Decodes a head that is not known, and serves its request if the head is complete.
    #[inline(never)]
    fn read_other_head(
        &mut self,
        progress: &mut RunProgress<'_>,
        last_heads: &mut LastHeads,
        turn: &mut SessionTurn<'_>,
    ) {
        let input = progress.rest;
        let mut fields = decode::Fields::new();
        match last_heads.decode(input, &turn.http.limits, &mut fields) {
            Decoded::Partial => self.wait(Phase::Head),
            Decoded::Refused(refusal) => {
                progress.skip_all();
                self.refuse(refusal, is_head(input), turn);
            }
            Decoded::Head(parsed) => self.begin(&parsed, progress, turn),
        }
    }

    /// Serves a request of which the head is complete.
    #[allow(clippy::inline_always)] // `parsed` is then never stored and moved
    #[inline(always)]
    fn begin(&mut self, parsed: &Parsed<'_>, progress: &mut RunProgress<'_>, turn: &mut SessionTurn<'_>) {
        self.empty_lines = EmptyLines::default();
        if let Some(request) = &mut self.reported {
            request.method = Some(parsed.method);
            if turn.http.reports_clients {
                let head = parsed.head; // a copy, so that `parsed` need not be in memory
                request.set_line(&head, turn.http.client(self.peer, head.headers));
                if turn.http.reports_agents {
                    request.set_agent(&head);
                }
            }
        } else if turn.http.on_answer.is_some() {
            turn.buffers.method = Some(parsed.method);
        }
        let input = progress.rest;
        progress.skip(parsed.length);
        let body_and_more = match parsed.framing {
            Framing::Length(length) if length <= turn.http.limits.max_body as u64 => {
                usize::try_from(length).ok().and_then(|length| progress.rest.split_at_checked(length))
            }
            _ => None,
        };
        if let Some((body, more)) = body_and_more {
            progress.rest = more;
            let following = following(more, turn);
            self.call(parsed, body, following, progress, turn);
        } else {
            let parsed = *parsed; // a copy, as above
            self.await_body(&parsed, input.get(..parsed.length).unwrap_or_default(), turn);
        }
    }

    /// Handles a request with an incomplete body: refuses it early, or waits for the body.
    #[inline(never)]
    fn await_body(&mut self, parsed: &Parsed<'_>, head: &[u8], turn: &mut SessionTurn<'_>) {
        turn.buffers.body.clear();
        let is_too_large =
            matches!(parsed.framing, Framing::Length(length) if length > turn.http.limits.max_body as u64);
        let shown = Head { certificate: self.certificate.as_ref(), ..parsed.head };
        let result = catch_unwind(AssertUnwindSafe(|| turn.http.service.head(&shown)));
        let early_reply = match result {
            Ok(None) if is_too_large => Some(Reply::problem(TOO_LARGE.status, TOO_LARGE.detail)),
            Ok(early_reply) => early_reply,
            Err(panic) => Some(self.panicked(panic)),
        };
        let Some(reply) = early_reply else {
            if parsed.expects_continue {
                turn.buffers.out.extend_from_slice(encode::CONTINUE);
            }
            self.set_state(SessionState::Body(Box::new(PendingBody::new(head, parsed.framing))));
            self.step = SessionStep::Read(Phase::Body);
            return;
        };
        // A client that expects `100 Continue` and gets a refusal may or may not send the body. The next bytes could be
        // the body or a request, so the connection closes.
        let keep_alive = parsed.keep_alive && !is_too_large && !parsed.expects_continue;
        let context = AnswerContext { keep_alive, ..answer_context(parsed) };
        if self.encode(context, &reply, Following::Nothing, turn) {
            self.set_state(SessionState::Skip(Box::new(PendingBody::skipped(parsed.framing))));
            self.step = SessionStep::Read(Phase::Skip);
        } else {
            self.close(true);
        }
    }

    /// Reads a part of a body.
    #[inline(never)]
    fn read_body(&mut self, progress: &mut RunProgress<'_>, turn: &mut SessionTurn<'_>) {
        let (pending, skipping) = match &mut self.state {
            SessionState::Body(pending) => (pending.as_mut(), false),
            SessionState::Skip(pending) => (pending.as_mut(), true),
            _ => return,
        };
        let (used, done) = match pending.read(progress.rest, &turn.http.limits) {
            Ok(read) => read,
            Err(refusal) => {
                progress.skip_all();
                if skipping {
                    tracing::debug!(refusal.detail, "a refused body is malformed");
                    self.close(true);
                } else {
                    let head_only = is_head(&pending.head);
                    self.refuse(refusal, head_only, turn);
                }
                return;
            }
        };
        if !done {
            let kept = pending.capacity();
            if !skipping && !self.reservation.try_set(&turn.http.memory, kept) {
                let head_only = is_head(&pending.head);
                progress.skip_all();
                self.refuse_for_memory(head_only, turn);
                return;
            }
            progress.skip(used);
            self.wait(if skipping { Phase::Skip } else { Phase::Body });
            return;
        }
        progress.skip(used);
        let following = following(progress.rest, turn);
        match std::mem::replace(&mut self.state, SessionState::Head) {
            SessionState::Body(pending) => self.call_pending(&pending, following, progress, turn),
            _ => self.step = SessionStep::Read(Phase::Idle),
        }
    }

    #[inline(never)]
    fn call_pending(
        &mut self,
        pending: &PendingBody,
        following: Following,
        progress: &mut RunProgress<'_>,
        turn: &mut SessionTurn<'_>,
    ) {
        let mut fields = decode::Fields::new();
        match decode::head(&pending.head, &turn.http.limits, &mut fields) {
            Decoded::Head(parsed) => self.call(&parsed, &pending.body, following, progress, turn),
            // The head was decoded before, so this does not happen.
            Decoded::Refused(refusal) => self.refuse(refusal, is_head(&pending.head), turn),
            Decoded::Partial => self.close(true),
        }
    }
}

/// Whether output of this length is written before the next request is read. If memory is used up, a few answers are enough.
pub(super) fn must_flush(length: usize, memory: &MemoryBudget) -> bool {
    length >= OUTPUT_BOUND || length > FREE_BYTES && !memory.has_room(length)
}

/// Classifies the bytes after a request that is answered now.
#[inline]
fn following(rest: &[u8], turn: &SessionTurn<'_>) -> Following {
    if is_blank(rest) {
        Following::Nothing
    } else if turn.buffers.others_wait && !begins_with_request(rest, turn) {
        Following::Part
    } else {
        Following::Request
    }
}

/// Classifies the bytes after a request with a deferred answer. If other connections wait, the bytes are not served: the
/// other connections would have to wait for these answers too.
fn following_deferred(rest: &[u8], turn: &SessionTurn<'_>) -> Following {
    match (is_blank(rest), turn.buffers.others_wait) {
        (true, _) => Following::Nothing,
        (false, true) => Following::Part,
        (false, false) => Following::Request,
    }
}

/// Whether `rest` begins with a complete request. Cost: the request is decoded here, and again when it is served.
#[inline(never)]
fn begins_with_request(rest: &[u8], turn: &SessionTurn<'_>) -> bool {
    let limits = &turn.http.limits;
    let blank = rest.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let rest = rest.get(blank..).unwrap_or_default();
    let mut fields = decode::Fields::new();
    let Decoded::Head(parsed) = decode::head(rest, limits, &mut fields) else { return false };
    let body = rest.get(parsed.length..).unwrap_or_default();
    PendingBody::skipped(parsed.framing).read(body, limits).is_ok_and(|(_, is_complete)| is_complete)
        || parsed.framing == Framing::Length(0)
}

/// Whether no request begins in `rest`: it holds at most empty lines.
#[inline]
fn is_blank(rest: &[u8]) -> bool {
    match rest.first() {
        None => true,
        Some(b'\r' | b'\n') => rest.iter().all(|byte| matches!(byte, b'\r' | b'\n')),
        Some(_) => false,
    }
}
