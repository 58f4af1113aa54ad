//! The loop of a connection's thread.

use std::any::Any;
use std::collections::HashMap;
use std::io::Read as _;
use std::net::Shutdown as Side;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use polyserve_core::http::header::{IF_NONE_MATCH, RETRY_AFTER};
use polyserve_core::http::{HeaderName, HeaderValue, Method, StatusCode};
use polyserve_core::sync::lock;
use polyserve_core::{Answer, Body, Head, Reply, Request};
use polyserve_serving::http1::TimeLimit;
use polyserve_serving::http1::decode::Refusal;
use polyserve_serving::memory::{Reservation, out_of_memory_reply};
use serde_json::{Map, Value};

use super::Flaw;
use super::head::{ParsedHead, PartialBody, parse, read_as};
use super::run_context::{RunContext, TICK, TrackedConnection, TrackedState, is_tick};
use super::sending::AnswerBuffer;

/// Serves a connection to its end.
pub(super) fn serve_connection(server: &RunContext, tracked: &TrackedConnection) {
    let mut connection = PlainConnection::new(server, tracked);
    let end = connection.serve();
    if connection.output.flush() && matches!(end, Ended::Answered) {
        connection.linger();
    }
}

/// Refuses a connection that exceeds the limit.
pub(super) fn reject(server: &RunContext, tracked: &TrackedConnection) {
    let mut connection = PlainConnection::new(server, tracked);
    connection.output.refuses = true;
    let refused = server.refused.fetch_add(1, Ordering::SeqCst);
    if server.has(Flaw::AnswersFewRefusals) && refused >= 256 {
        return;
    }
    if !server.has(Flaw::RejectsWithoutAnAnswer) {
        let reply = Reply::problem(StatusCode::SERVICE_UNAVAILABLE, "There are too many connections.");
        let again = HeaderName::from_static("x-again");
        let name = if server.has(Flaw::RejectsWithoutRetryAfter) { again } else { RETRY_AFTER };
        let reply = reply.with_field(name, HeaderValue::from_static("1"));
        if connection.output.answer(reply, Vec::new(), false, Some("close")) && connection.output.flush() {
            connection.linger();
        }
    }
}

struct PlainConnection<'a> {
    server: &'a RunContext,
    tracked: &'a TrackedConnection,
    input: Vec<u8>,
    output: AnswerBuffer<'a>,
    /// Whether the request is a HEAD. False until the method is known.
    to_head: bool,
    served: u64,
    /// The number of connections that were refused when this one had no request.
    refused: u64,
    /// The number of answers since another connection waits for room.
    crowded_answers: u32,
    /// For a flaw: when the first body began.
    first_body: Option<Instant>,
    /// For a flaw: while it is locked, no other connection is served.
    exclusive: Option<MutexGuard<'a, ()>>,
    /// For a flaw: the last answer to a GET of each target.
    last_bodies: HashMap<String, Vec<u8>>,
}

impl<'a> PlainConnection<'a> {
    fn new(server: &'a RunContext, tracked: &'a TrackedConnection) -> Self {
        Self {
            server,
            tracked,
            input: Vec::new(),
            output: AnswerBuffer::new(server, &tracked.stream),
            to_head: false,
            served: 0,
            refused: 0,
            crowded_answers: 0,
            first_body: None,
            exclusive: None,
            last_bodies: HashMap::new(),
        }
    }
}

/// How a connection ended.
enum Ended {
    /// The last answer was sent, or the connection was closed for another one.
    Answered,
    /// The client is gone, was idle for too long, or was cut off.
    Gone,
}

/// The result of a wait for bytes.
#[derive(Debug, PartialEq, Eq)]
enum Got {
    Bytes,
    End,
    Late,
    /// The connection is closed for another one.
    Evicted,
    Gone,
}

impl PlainConnection<'_> {
    fn has(&self, flaw: Flaw) -> bool {
        self.server.has(flaw)
    }

    /// Whether no other connection is served while this one has a request.
    fn blocks_others(&self) -> bool {
        self.has(Flaw::BlocksOthersDuringARequest) || self.has(Flaw::ServesWholePipelines)
    }

    fn set(&self, state: TrackedState) {
        *lock(&self.tracked.state) = state;
    }

    fn serve(&mut self) -> Ended {
        if self.has(Flaw::ServesOneAtATime) || self.has(Flaw::ServesOneAndResetsTimeoutOnEachByte) {
            self.exclusive = Some(lock(&self.server.one_at_a_time));
        }
        loop {
            if self.input.is_empty() {
                self.refused = self.server.refused.load(Ordering::SeqCst);
                if self.blocks_others() {
                    self.exclusive = None;
                }
                if !self.output.flush() {
                    return Ended::Gone;
                }
                if self.served > 0 {
                    *lock(&self.tracked.idle_since) = Instant::now();
                    self.set(TrackedState::Idle);
                }
                let limit = match self.served {
                    0 if !self.has(Flaw::HasNoFirstByteTimeout) => TimeLimit::FirstByte,
                    _ => TimeLimit::Idle,
                };
                match self.fill_with_request(Instant::now() + limit.of(&self.server.config)) {
                    Got::Bytes => {}
                    Got::Late if self.has(Flaw::AnswersIdleTimeouts) => return self.refuse(TIMED_OUT),
                    Got::End if self.served == 0 && self.has(Flaw::StopsAcceptingAfterAnEmptyConnection) => {
                        self.server.stopped.store(true, Ordering::SeqCst);
                        return Ended::Gone;
                    }
                    Got::Evicted if !self.has(Flaw::ResetsEvictedConnections) => return Ended::Answered,
                    Got::End | Got::Late | Got::Evicted | Got::Gone => return Ended::Gone,
                }
            }
            self.set(TrackedState::Busy);
            self.output.begun = self.output.begun.or_else(|| Some(Instant::now()));
            if self.blocks_others() && self.exclusive.is_none() {
                self.exclusive = Some(lock(&self.server.one_at_a_time));
            }
            match self.serve_request() {
                Ok(true) => {}
                Ok(false) => return Ended::Answered,
                Err(Stop::Gone) => return Ended::Gone,
                Err(Stop::Refused(refusal)) if self.has(Flaw::GoesOnAfterARefusal) => {
                    // Continues with the next bytes that look like a request.
                    let next = self
                        .input
                        .windows(4)
                        .position(|window| window == b"\r\n\r\n")
                        .map_or(self.input.len(), |at| at + 4);
                    self.input.drain(..next);
                    let reply = Reply::problem(refusal.status, refusal.detail);
                    if !self.output.answer(reply, Vec::new(), false, Some("close")) {
                        return Ended::Gone;
                    }
                }
                Err(Stop::Refused(refusal)) => return self.refuse(refusal),
            }
        }
    }

    /// Serves one request. Returns whether the connection goes on.
    fn serve_request(&mut self) -> Result<bool, Stop> {
        let head = self.head()?;
        let early = catch_unwind(AssertUnwindSafe(|| {
            self.in_service(|| head.with_head(|head| self.server.service.head(&head)))
        }));
        let mut reading = PartialBody::new(head.framing);
        let early = early.unwrap_or_else(|panic| Some(self.panicked(panic)));
        let is_complete =
            reading.take(&mut self.input, &self.server.config, self.server.flaw).map_err(Stop::Refused)?;
        let asks_for_body = head.expects && !is_complete && !self.has(Flaw::NeverSends100);
        if asks_for_body && (early.is_none() || self.has(Flaw::Sends100BeforeTheHeadIsChecked)) {
            self.output.hold_continue();
        }
        let (reply, body) = match early {
            // The end of the body is not read, so later requests cannot be read either.
            Some(reply) if !is_complete && self.has(Flaw::DrainsRefusedBodies) => {
                self.output.answer(reply, Vec::new(), head.is_head(), None);
                self.rest_of_body(&mut reading, is_complete)?;
                return Ok(true);
            }
            Some(reply) if !is_complete => {
                self.output.answer(reply, Vec::new(), head.is_head(), Some("close"));
                return Ok(false);
            }
            Some(reply) => (reply, Vec::new()),
            None => {
                self.rest_of_body(&mut reading, is_complete)?;
                self.call(&head, &reading.body)?
            }
        };
        let (reply, body) = match self.output.reserve(&head, reply.body_bytes(&body).len()) {
            true => (reply, body),
            false => (out_of_memory_reply(), Vec::new()),
        };
        if self.has(Flaw::ClosesOnHalfClose) && matches!(self.tracked.stream.peek(&mut [0]), Ok(0)) {
            return Err(Stop::Gone);
        }
        self.served += 1;
        let max_requests = self.server.config.requests_per_connection.unwrap_or(u64::MAX);
        let last = self.served >= max_requests.saturating_add(u64::from(self.has(Flaw::MiscountsRequests)));
        let has_more = !self.input.is_empty() && !self.has(Flaw::DrainsOneAnswer);
        let draining = self.server.shutdown.is_begun() && !has_more;
        let evicted = self.gives_way(reply.body_bytes(&body).len());
        let evicts_silently = self.has(Flaw::EvictsWithoutConnectionClose) || self.has(Flaw::EvictsSilentlyAtTheLimit);
        let keeps = (head.keeps || self.has(Flaw::IgnoresConnectionClose)) && !last && !draining && !evicted;
        let connection = match keeps {
            false if draining && self.has(Flaw::DrainsWithoutConnectionClose) => None,
            false if evicted && evicts_silently => None,
            false => Some("close"),
            true if head.is_1_0() && !self.has(Flaw::OmitsKeepAliveOnHttp10) => Some("keep-alive"),
            true => None,
        };
        let was_sent = self.output.answer(reply, body, head.is_head(), connection);
        if was_sent { Ok(keeps && !self.has(Flaw::ClosesAfterEveryAnswer)) } else { Err(Stop::Gone) }
    }

    /// Whether the connection is closed for another one after an answer of this length: if no request follows, or after a bounded
    /// number of answers or a large one.
    fn gives_way(&mut self, length: usize) -> bool {
        let must_close = self.tracked.must_close.load(Ordering::SeqCst);
        if !must_close && self.server.refused.load(Ordering::SeqCst) == self.refused {
            return false;
        }
        self.crowded_answers += 1;
        let is_bounded = !self.has(Flaw::AnswersAllBeforeItMakesRoom);
        must_close && self.input.is_empty() || is_bounded && (self.crowded_answers > 16 || length > 64 << 10)
    }

    fn head(&mut self) -> Result<ParsedHead, Stop> {
        let started = Instant::now();
        loop {
            self.skip_empty_lines();
            self.to_head = self.input.starts_with(b"HEAD ");
            if let Some(head) = parse(&self.input, &self.server.config, self.server.flaw).map_err(Stop::Refused)? {
                self.input.drain(..head.end);
                return Ok(head);
            }
            self.receive_more(started, self.server.config.head_timeout)?;
        }
    }

    fn rest_of_body(&mut self, reading: &mut PartialBody, is_complete: bool) -> Result<(), Stop> {
        let (mut started, mut is_complete) = (Instant::now(), is_complete);
        if self.has(Flaw::TimesAllBodiesTogether) && !is_complete {
            started = *self.first_body.get_or_insert(started);
        }
        let mut received = reading.body.len();
        let mut kept = Reservation::default();
        while !is_complete {
            if !kept.try_set(&self.server.memory, reading.body.capacity()) && !self.has(Flaw::KeepsAnyBody) {
                return Err(Stop::Refused(OUT_OF_MEMORY));
            }
            let limit = match self.has(Flaw::TakesBodiesAtAnyRate) {
                true => self.server.config.body_timeout,
                false => TimeLimit::Body { received: received as u64 }.of(&self.server.config),
            };
            let before = self.input.len();
            self.receive_more(started, limit)?;
            received += self.input.len() - before;
            is_complete =
                reading.take(&mut self.input, &self.server.config, self.server.flaw).map_err(Stop::Refused)?;
        }
        Ok(())
    }

    /// Waits for more of a request.
    fn receive_more(&mut self, started: Instant, timeout: Duration) -> Result<(), Stop> {
        if !self.output.flush() {
            return Err(Stop::Gone);
        }
        let resets = self.has(Flaw::ResetsTimeoutOnEachByte) || self.has(Flaw::ServesOneAndResetsTimeoutOnEachByte);
        // The next byte may be late on a busy machine.
        let deadline = if resets { Instant::now() + 10 * timeout } else { started + timeout };
        match self.fill(deadline, false) {
            Got::Bytes => Ok(()),
            Got::Late => Err(Stop::Refused(TIMED_OUT)),
            Got::End | Got::Evicted | Got::Gone => Err(Stop::Gone),
        }
    }

    fn skip_empty_lines(&mut self) {
        while self.input.starts_with(b"\r\n") {
            self.input.drain(..2);
        }
    }

    /// Reads until a request begins. An empty line begins none.
    fn fill_with_request(&mut self, deadline: Instant) -> Got {
        loop {
            let got = self.fill(deadline, true);
            self.skip_empty_lines();
            if got != Got::Bytes || !self.input.is_empty() {
                return got;
            }
        }
    }

    /// Reads once. An idle connection may be closed by a shutdown or to make room, but not while there is something to read.
    fn fill(&mut self, deadline: Instant, idle: bool) -> Got {
        let mut buffer = [0; 16 * 1024];
        loop {
            if idle && self.has(Flaw::EvictsBeforeReading) {
                std::thread::sleep(10 * TICK); // long enough for the accept loop to choose this connection
                if self.tracked.must_close.load(Ordering::SeqCst) {
                    return Got::Gone;
                }
            }
            // Notes the reasons to close before it reads, and obeys them after: bytes may have arrived since the last read, even
            // long ago if the process was stopped.
            let mut late = Instant::now() >= deadline;
            let drains = idle && self.server.shutdown.is_begun();
            let must_close = idle && self.tracked.must_close.load(Ordering::SeqCst);
            let _ = self.tracked.stream.set_read_timeout(Some(TICK));
            match (&self.tracked.stream).read(&mut buffer) {
                Ok(0) => return if self.server.is_over() { Got::Gone } else { Got::End },
                Ok(count) => {
                    self.input.extend(read_as(&buffer[..count], self.server.flaw));
                    return Got::Bytes;
                }
                Err(error) if is_tick(&error) => {}
                Err(_) => return Got::Gone,
            }
            if self.server.is_over() || drains {
                return Got::Gone;
            }
            if must_close {
                return Got::Evicted;
            }
            late |= self.has(Flaw::ChecksTimeoutsBeforeReading) && Instant::now() >= deadline;
            if late && !self.has(Flaw::HasNoTimeouts) {
                return Got::Late;
            }
        }
    }

    /// The answer if the service panicked. The drop of the payload is the service's own code, and may panic as well.
    fn panicked(&self, payload: Box<dyn Any + Send>) -> Reply {
        if !self.has(Flaw::CountsNoPanics) {
            self.server.panics.fetch_add(1, Ordering::SeqCst);
        }
        if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            assert!(!self.has(Flaw::DoesNotCatchPanicsOfPayloads), "the payload panicked when it was dropped");
            std::mem::forget(second);
        }
        Reply::problem(StatusCode::INTERNAL_SERVER_ERROR, "The service failed.")
    }

    /// Answers a request that is refused, as the last answer.
    fn refuse(&mut self, refusal: Refusal) -> Ended {
        let unknown = [StatusCode::NOT_IMPLEMENTED, StatusCode::HTTP_VERSION_NOT_SUPPORTED].contains(&refusal.status);
        let status = if unknown && self.has(Flaw::Answers400ToAllUnsupported) {
            StatusCode::BAD_REQUEST
        } else if refusal.status == StatusCode::NOT_IMPLEMENTED && self.has(Flaw::Answers414ToLongMethods) {
            StatusCode::URI_TOO_LONG
        } else {
            refusal.status
        };
        if status == StatusCode::REQUEST_TIMEOUT && self.has(Flaw::ClosesSilentlyOnTimeouts) {
            return Ended::Gone;
        }
        self.output.refuses = true;
        let empty = self.has(Flaw::SendsEmptyErrors);
        let reply = match status {
            _ if empty => Reply::empty(status),
            StatusCode::SERVICE_UNAVAILABLE => out_of_memory_reply(),
            status => Reply::problem(status, refusal.detail),
        };
        let to_head = self.to_head && !self.has(Flaw::RefusesHeadWithABody);
        let was_sent = self.output.answer(reply, Vec::new(), to_head, Some("close"));
        if was_sent && !self.has(Flaw::DoesNotLinger) { Ended::Answered } else { Ended::Gone }
    }

    /// Closes the writing side, and reads until the client closes or the linger timeout passes: unread bytes would reset
    /// the connection, and the reset might overtake the answer.
    fn linger(&mut self) {
        self.set(TrackedState::Leaving);
        self.server.ended.notify_all();
        let deadline = Instant::now() + self.server.config.linger_timeout;
        if self.tracked.stream.shutdown(Side::Write).is_err() {
            return;
        }
        while Instant::now() < deadline && !self.server.is_over() {
            self.input.clear();
            if !matches!(self.fill(deadline, false), Got::Bytes) {
                return;
            }
        }
    }

    fn in_service<T>(&self, f: impl FnOnce() -> T) -> T {
        self.set(TrackedState::InService);
        let result = f();
        self.set(TrackedState::Busy);
        result
    }

    fn call(&mut self, head: &ParsedHead, body: &[u8]) -> Result<(Reply, Vec<u8>), Stop> {
        if !self.server.memory.admits(head.method_class()) && !self.has(Flaw::KeepsAnyAnswerOfAWrite) {
            return Ok((out_of_memory_reply(), Vec::new()));
        }
        let is_get = |head: Head<'_>| (head.method == Method::GET).then(|| head.target.to_owned());
        let target = head.with_head(is_get).filter(|_| self.has(Flaw::RepeatsThePreviousAnswer));
        if let Some(body) = target.as_ref().and_then(|target| self.last_bodies.remove(target)) {
            return Ok((Reply::new(StatusCode::OK, "application/json", Body::Owned(body)), Vec::new()));
        }
        if self.has(Flaw::KeepsTagsByTarget)
            && let Some(unchanged) = head.with_head(|head| self.unchanged_by_kept_tag(head))
        {
            return Ok((unchanged, Vec::new()));
        }
        let answered = if head.is_patch() { self.patch(head, body)? } else { self.ask_service(head, body)? };
        if self.has(Flaw::KeepsTagsByTarget) {
            head.with_head(|head| self.keep_tag(head, &answered.0));
        }
        if let (Some(target), (StatusCode::OK, written)) = (target, (answered.0.status(), &answered.1)) {
            self.last_bodies.insert(target, written.clone());
        }
        Ok(answered)
    }

    /// For a flaw: answers a GET from the tag that its target showed last.
    fn unchanged_by_kept_tag(&self, head: Head<'_>) -> Option<Reply> {
        let tag = *lock(&self.server.tags).get(head.target)?;
        let is_shown = |value: &[u8]| value.trim_ascii() == tag.to_string().as_bytes();
        let unchanged = head.method == Method::GET && head.headers.all(&IF_NONE_MATCH).any(is_shown);
        unchanged.then(|| Reply::empty(StatusCode::NOT_MODIFIED).with_etag(tag))
    }

    /// For a flaw: keeps the tag of an answer to a GET. Any other method removes the tag of its target.
    fn keep_tag(&self, head: Head<'_>, reply: &Reply) {
        let mut tags = lock(&self.server.tags);
        match reply.etag().filter(|_| head.method == Method::GET) {
            Some(tag) => tags.insert(head.target.to_owned(), tag),
            None => tags.remove(head.target),
        };
    }

    fn patch(&mut self, head: &ParsedHead, body: &[u8]) -> Result<(Reply, Vec<u8>), Stop> {
        if self.has(Flaw::PutsPatches) {
            return self.ask_service(&head.with_method(&Method::PUT), body);
        }
        if self.has(Flaw::PatchesWithoutACondition) {
            let (reply, written) = self.ask_service(&head.with_method(&Method::GET), b"")?;
            let read = serde_json::from_slice(reply.body_bytes(&written));
            if let (Ok(mut entity), Ok(patch)) = (read, serde_json::from_slice(body)) {
                merge(&mut entity, patch);
                std::thread::sleep(TICK); // long enough for the write of another client
                let body = entity.to_string();
                let put = self.ask_service(&head.with_method(&Method::PUT), body.as_bytes())?;
                if put.0.status() != StatusCode::OK {
                    return Ok(put);
                }
                return Ok((
                    Reply::new(StatusCode::OK, "application/json", Body::Owned(body.into_bytes())),
                    Vec::new(),
                ));
            }
        }
        let answered = self.ask_service(head, body)?;
        if answered.0.status() == StatusCode::NOT_FOUND && self.has(Flaw::PatchesWhatIsAbsent) {
            return self.ask_service(&head.with_method(&Method::PUT), body);
        }
        Ok(answered)
    }

    fn ask_service(&mut self, head: &ParsedHead, body: &[u8]) -> Result<(Reply, Vec<u8>), Stop> {
        let mut written = Vec::new();
        let stream = &self.tracked.stream;
        let peer = if self.has(Flaw::ShowsItsOwnAddress) { stream.local_addr() } else { stream.peer_addr() }.ok();
        let draining = self.server.shutdown.is_begun() && !self.has(Flaw::HidesTheDrain);
        let call = || {
            head.with_head(|mut head| {
                if head.method == Method::HEAD && self.has(Flaw::AsksForGetInPlaceOfHead) {
                    head.method = &Method::GET;
                }
                let request = Request::new(head, body).with_peer(peer).with_draining(draining);
                self.server.service.call(request, &mut written)
            })
        };
        if self.has(Flaw::DoesNotCatchPanics) {
            return match self.in_service(call) {
                Answer::Now(reply) => Ok((reply, written)),
                later @ Answer::Later(_) => Ok((later.wait(), Vec::new())),
            };
        }
        match catch_unwind(AssertUnwindSafe(|| self.in_service(call))) {
            Ok(Answer::Now(reply)) => Ok((reply, written)),
            Ok(later @ Answer::Later(_)) => Ok((self.wait(later)?, Vec::new())),
            Err(panic) => {
                let written = if self.has(Flaw::SendsPartOfAPanickedAnswer) { written } else { Vec::new() };
                Ok((self.panicked(panic), written))
            }
        }
    }

    fn wait(&mut self, mut answer: Answer<Reply>) -> Result<Reply, Stop> {
        let deadline = Instant::now() + self.server.config.answer_timeout;
        if !self.output.flush() {
            return Err(Stop::Gone);
        }
        loop {
            let spins = self.has(Flaw::SpinsWhileItWaits);
            let no_wakes = self.has(Flaw::IgnoresWakes) && !self.server.is_over();
            let next = Instant::now() + if spins { Duration::ZERO } else { TICK };
            match catch_unwind(AssertUnwindSafe(|| if no_wakes { Err(answer) } else { answer.wait_until(next) })) {
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(later)) => answer = later,
                Err(panic) => return Ok(self.panicked(panic)),
            }
            if no_wakes {
                std::thread::sleep(TICK);
            }
            let late = Instant::now() >= deadline && !self.has(Flaw::HasNoAnswerTimeout);
            if late || self.server.is_over() {
                // The drop of the answer is the service's own code, and may panic as well.
                let dropped = catch_unwind(AssertUnwindSafe(|| drop(answer)));
                if dropped.is_err() && self.has(Flaw::DoesNotCatchPanicsInDrop) {
                    panic!("the answer panicked when it was dropped");
                }
                if !late {
                    return Err(Stop::Gone);
                }
                return Err(Stop::Refused(Refusal {
                    status: StatusCode::SERVICE_UNAVAILABLE,
                    detail: "The answer did not come in time.",
                }));
            }
        }
    }
}

/// Merges the patch into the entity (RFC 7396, section 2).
fn merge(entity: &mut Value, patch: Value) {
    let Value::Object(changes) = patch else {
        *entity = patch;
        return;
    };
    if !entity.is_object() {
        *entity = Value::Object(Map::new());
    }
    let Value::Object(members) = entity else { return };
    for (name, change) in changes {
        if change.is_null() {
            members.remove(&name);
        } else {
            merge(members.entry(name).or_insert(Value::Null), change);
        }
    }
}

/// Why a request is not served.
enum Stop {
    Refused(Refusal),
    Gone,
}

const OUT_OF_MEMORY: Refusal =
    Refusal { status: StatusCode::SERVICE_UNAVAILABLE, detail: "There is no memory for this body." };

const TIMED_OUT: Refusal = Refusal { status: StatusCode::REQUEST_TIMEOUT, detail: "The request took too long." };
