//! The loop of a connection's thread.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown as Side, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use polyserve_core::service::Status;
use polyserve_core::sync::lock;
use polyserve_core::{Answer, Reply, Request};

use super::Flaw;
use super::body::Reading;
use super::head::{Parsed, Refusal, parse};
use super::house::{Guest, House, State, TICK};

/// Serves a connection to its end.
pub(super) fn serve_connection(house: &House, guest: &Guest) {
    let mut connection = Connection { house, guest, input: Vec::new(), held: Vec::new(), served: 0 };
    let end = connection.serve();
    connection.flush_held();
    if matches!(end, Ended::Answered) {
        connection.linger();
    }
}

/// Tells a connection that there is no room.
pub(super) fn turn_away(house: &House, guest: &Guest) {
    let mut connection = Connection { house, guest, input: Vec::new(), held: Vec::new(), served: 0 };
    if !house.has(Flaw::TurnsAwaySilently) {
        let reply = Reply::problem(Status::SERVICE_UNAVAILABLE, "There are too many connections.");
        let again = if house.has(Flaw::TurnsAwayForEver) { "X-Again" } else { "Retry-After" };
        let reply = reply.with_header(again, "1").expect("the field is valid");
        let answer = connection.encode(&reply, &[], false, Some("close"));
        if connection.write(&answer) {
            house.answered.fetch_add(1, Ordering::SeqCst);
            connection.linger();
        }
    }
}

struct Connection<'a> {
    house: &'a House,
    guest: &'a Guest,
    input: Vec<u8>,
    /// A flaw's: answers that are held back until nothing more has arrived.
    held: Vec<Vec<u8>>,
    served: u64,
}

/// How a connection ended.
enum Ended {
    /// The last answer was sent.
    Answered,
    /// The client is gone, was idle, or was cut.
    Gone,
}

/// What a wait for bytes brought.
#[derive(Debug, PartialEq, Eq)]
enum Got {
    Bytes,
    End,
    Late,
    Gone,
}

impl Connection<'_> {
    fn has(&self, flaw: Flaw) -> bool {
        self.house.has(flaw)
    }

    fn set(&self, state: State) {
        *lock(&self.guest.state) = state;
    }

    fn serve(&mut self) -> Ended {
        loop {
            if self.input.is_empty() {
                if self.served > 0 {
                    self.set(State::Idle);
                    self.flush_held();
                }
                match self.fill(Instant::now() + self.house.config.idle_timeout, true) {
                    Got::Bytes => {}
                    Got::Late if self.has(Flaw::ScoldsIdleConnections) => return self.refuse(LATE),
                    Got::End if self.served == 0 && self.has(Flaw::DiesOfAnEmptyConnection) => {
                        self.house.dead.store(true, Ordering::SeqCst);
                        return Ended::Gone;
                    }
                    Got::End | Got::Late | Got::Gone => return Ended::Gone,
                }
            }
            self.set(State::Busy);
            match self.one() {
                Ok(true) => {}
                Ok(false) => return Ended::Answered,
                Err(Stop::Gone) => return Ended::Gone,
                Err(Stop::Refused(refusal)) if self.has(Flaw::GoesOnAfterARefusal) => {
                    // It looks for the next thing that looks like a request.
                    let next = self
                        .input
                        .windows(4)
                        .position(|four| four == b"\r\n\r\n")
                        .map_or(self.input.len(), |at| at + 4);
                    self.input.drain(..next);
                    let reply = Reply::problem(refusal.status, refusal.detail);
                    if !self.answer(&reply, &[], false, Some("close")) {
                        return Ended::Gone;
                    }
                }
                Err(Stop::Refused(refusal)) => return self.refuse(refusal),
            }
        }
    }

    /// Serves one request; says whether the connection goes on.
    fn one(&mut self) -> Result<bool, Stop> {
        let head = self.head()?;
        let early = catch_unwind(AssertUnwindSafe(|| {
            self.in_service(|| head.with_head(|head| self.house.service.head(&head)))
        }));
        let mut reading = Reading::new(head.framing);
        let early = early.unwrap_or_else(|_| Some(panicked()));
        let here = reading.take(&mut self.input, &self.house.config, self.house.flaw).map_err(Stop::Refused)?;
        let asks = head.expects && !here && !self.has(Flaw::NeverContinues);
        if asks && (early.is_none() || self.has(Flaw::AlwaysContinues)) && !self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        {
            return Err(Stop::Gone);
        }
        let (reply, body) = match early {
            // Where its body ends is nobody's business any more, and so is what follows.
            Some(reply) if !here => {
                self.answer(&reply, &[], head.is_head(), Some("close"));
                return Ok(false);
            }
            Some(reply) => (reply, Vec::new()),
            None => {
                self.rest_of_body(&mut reading, here)?;
                self.call(&head, &reading.body)?
            }
        };
        if self.has(Flaw::TakesHalfCloseForClose) && matches!(self.guest.stream.peek(&mut [0]), Ok(0)) {
            return Err(Stop::Gone);
        }
        self.served += 1;
        let most = self.house.config.requests_per_connection + u64::from(self.has(Flaw::MiscountsRequests));
        let last = self.house.config.requests_per_connection > 0 && self.served >= most;
        let draining = self.house.shutdown.is_begun();
        let keeps = (head.keeps || self.has(Flaw::IgnoresConnectionClose)) && !last && !draining;
        let connection = match keeps {
            false if draining && self.has(Flaw::DrainsWithoutSayingSo) => None,
            false => Some("close"),
            true if head.is_1_0() && !self.has(Flaw::KeepsOldConnectionsSilently) => Some("keep-alive"),
            true => None,
        };
        let went = self.answer(&reply, &body, head.is_head(), connection);
        if went { Ok(keeps && !self.has(Flaw::ForgetsKeepAlive)) } else { Err(Stop::Gone) }
    }

    fn head(&mut self) -> Result<Parsed, Stop> {
        let started = Instant::now();
        loop {
            if let Some(head) = parse(&self.input, &self.house.config, self.house.flaw).map_err(Stop::Refused)? {
                self.input.drain(..head.end);
                return Ok(head);
            }
            self.more(started, self.house.config.head_timeout)?;
        }
    }

    fn rest_of_body(&mut self, reading: &mut Reading, here: bool) -> Result<(), Stop> {
        let (started, mut here) = (Instant::now(), here);
        while !here {
            self.more(started, self.house.config.body_timeout)?;
            here = reading.take(&mut self.input, &self.house.config, self.house.flaw).map_err(Stop::Refused)?;
        }
        Ok(())
    }

    /// Waits for more of a request.
    fn more(&mut self, started: Instant, timeout: Duration) -> Result<(), Stop> {
        self.flush_held();
        let started = if self.has(Flaw::DripsKeepItAwake) { Instant::now() } else { started };
        match self.fill(started + timeout, false) {
            Got::Bytes => Ok(()),
            Got::Late => Err(Stop::Refused(LATE)),
            Got::End | Got::Gone => Err(Stop::Gone),
        }
    }

    /// Reads once. An idle connection may be told to leave, or be closed by a shutdown, but not while there is something
    /// to read.
    fn fill(&mut self, deadline: Instant, idle: bool) -> Got {
        let mut buffer = [0; 16 * 1024];
        loop {
            let _ = self.guest.stream.set_read_timeout(Some(TICK));
            match (&self.guest.stream).read(&mut buffer) {
                Ok(0) => return if self.house.is_over() { Got::Gone } else { Got::End },
                Ok(count) => {
                    self.input.extend_from_slice(&buffer[..count]);
                    return Got::Bytes;
                }
                Err(error) if is_tick(&error) => {}
                Err(_) => return Got::Gone,
            }
            let told = self.guest.told_to_leave.load(Ordering::SeqCst) || self.house.shutdown.is_begun();
            if self.house.is_over() || (idle && told) {
                return Got::Gone;
            }
            if Instant::now() >= deadline && !self.has(Flaw::HasNoTimeouts) {
                return Got::Late;
            }
        }
    }

    fn in_service<T>(&self, f: impl FnOnce() -> T) -> T {
        self.set(State::InService);
        let result = f();
        self.set(State::Busy);
        result
    }

    fn call(&self, head: &Parsed, body: &[u8]) -> Result<(Reply, Vec<u8>), Stop> {
        let mut written = Vec::new();
        let call = || head.with_head(|head| self.house.service.call(Request { head, body }, &mut written));
        if self.has(Flaw::LetsPanicsThrough) {
            return match self.in_service(call) {
                Answer::Now(reply) => Ok((reply, written)),
                later @ Answer::Later(_) => Ok((later.wait(), Vec::new())),
            };
        }
        match catch_unwind(AssertUnwindSafe(|| self.in_service(call))) {
            Ok(Answer::Now(reply)) => Ok((reply, written)),
            Ok(later @ Answer::Later(_)) => Ok((self.wait(later)?, Vec::new())),
            Err(_) if self.has(Flaw::KeepsHalfAnAnswer) => Ok((panicked(), written)),
            Err(_) => Ok((panicked(), Vec::new())),
        }
    }

    fn wait(&self, mut answer: Answer<Reply>) -> Result<Reply, Stop> {
        let deadline = Instant::now() + self.house.config.answer_timeout;
        loop {
            let deaf = self.has(Flaw::LosesWakes) && !self.house.is_over();
            let next = if deaf { Instant::now() + Duration::from_secs(1) } else { Instant::now() + TICK };
            match catch_unwind(AssertUnwindSafe(|| if deaf { Err(answer) } else { answer.wait_until(next) })) {
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(later)) => answer = later,
                Err(_) => return Ok(panicked()),
            }
            if deaf {
                std::thread::sleep(TICK);
            }
            if self.house.is_over() {
                return Err(Stop::Gone);
            }
            if Instant::now() >= deadline && !self.has(Flaw::WaitsForEver) {
                return Err(Stop::Refused(Refusal {
                    status: Status::SERVICE_UNAVAILABLE,
                    detail: "The answer did not come in time.",
                }));
            }
        }
    }

    fn refuse(&mut self, refusal: Refusal) -> Ended {
        let reply = Reply::problem(refusal.status, refusal.detail);
        let went = self.answer(&reply, &[], false, Some("close"));
        if went && !self.has(Flaw::DoesNotLinger) { Ended::Answered } else { Ended::Gone }
    }

    /// Sends an answer and counts it; says whether it went.
    fn answer(&mut self, reply: &Reply, in_place: &[u8], to_head: bool, connection: Option<&str>) -> bool {
        let mut bytes = self.encode(reply, in_place, to_head && !self.has(Flaw::AnswersHeadWithABody), connection);
        if self.has(Flaw::KeepsHalfAnAnswer) && reply.status() == Status::INTERNAL_SERVER_ERROR {
            bytes.splice(..0, in_place.iter().copied());
        }
        if self.has(Flaw::TearsAnswers) && self.house.shutdown.is_begun() {
            self.write(&bytes[..bytes.len() / 2]);
            return false;
        }
        if self.has(Flaw::ReorderedPipeline) {
            self.held.push(bytes);
            self.house.answered.fetch_add(1, Ordering::SeqCst);
            return true;
        }
        let went = self.write(&bytes);
        if went && !(to_head && self.has(Flaw::Truthless)) {
            self.house.answered.fetch_add(1, Ordering::SeqCst);
        }
        went
    }

    fn flush_held(&mut self) {
        while let Some(last) = self.held.pop() {
            self.write(&last);
        }
    }

    fn encode(&self, reply: &Reply, in_place: &[u8], to_head: bool, connection: Option<&str>) -> Vec<u8> {
        let (status, body) = (reply.status(), reply.body_bytes(in_place));
        let mut head = format!("HTTP/1.1 {} {}\r\nDate: {}\r\n", status.code(), status.reason(), self.house.date());
        let mut field = |name: &str, value: &str| head.push_str(&format!("{name}: {value}\r\n"));
        if let Some(banner) = &self.house.config.banner {
            field("Server", banner);
        } else if self.has(Flaw::BoastsItsName) {
            field("Server", "plain");
        }
        if !status.is_bodiless() {
            field("Content-Length", &body.len().to_string());
        }
        if let Some(media_type) = reply.content_type() {
            field("Content-Type", media_type);
        }
        for (name, value) in reply.headers() {
            field(name, value);
        }
        if let Some(connection) = connection {
            field("Connection", connection);
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        if !to_head && !status.is_bodiless() {
            bytes.extend_from_slice(body);
        }
        bytes
    }

    /// Writes everything; says whether the kernel took it in time.
    fn write(&self, bytes: &[u8]) -> bool {
        let deadline = Instant::now() + self.house.config.write_timeout;
        let mut stream: &TcpStream = &self.guest.stream;
        if self.has(Flaw::LosesBytesOnAShortWrite) {
            let took = stream.set_nonblocking(true).is_ok() && stream.write(bytes).is_ok();
            return stream.set_nonblocking(false).is_ok() && took;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let _ = stream.set_write_timeout(Some(TICK));
            match stream.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if is_tick(&error) => {}
                Err(_) => return false,
            }
            let late = Instant::now() >= deadline && !self.has(Flaw::NeverCutsReaders);
            if !rest.is_empty() && (late || self.house.is_over()) {
                return false;
            }
        }
        true
    }

    /// Closes the writing side, and reads on until the client closes or the time is up: unread bytes would reset the
    /// connection, and the reset might overtake the answer.
    fn linger(&mut self) {
        self.set(State::Leaving);
        let deadline = Instant::now() + self.house.config.linger_timeout;
        if self.guest.stream.shutdown(Side::Write).is_err() {
            return;
        }
        while Instant::now() < deadline && !self.house.is_over() {
            self.input.clear();
            if !matches!(self.fill(deadline, false), Got::Bytes) {
                return;
            }
        }
    }
}

/// Why a request is not served.
enum Stop {
    Refused(Refusal),
    Gone,
}

const LATE: Refusal = Refusal { status: Status::REQUEST_TIMEOUT, detail: "The request took too long." };

fn panicked() -> Reply {
    Reply::problem(Status::INTERNAL_SERVER_ERROR, "The service failed.")
}

fn is_tick(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
