//! The sending of a connection's answers.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Instant;

use polyserve_core::http::{HeaderValue, StatusCode};
use polyserve_core::{AnswerReport, Reply, reason_phrase};
use polyserve_serving::http1::TimeLimit;
use polyserve_serving::memory::Reservation;

use super::Flaw;
use super::head::ParsedHead;
use super::run_context::{RunContext, TICK, is_tick};

/// An answer that is not sent yet.
struct Held {
    bytes: Vec<u8>,
    counts: bool,
}

/// Answers that are held back are sent once they are larger than this together.
const MAX_HELD: usize = 64 * 1024;

/// The answers of one connection that wait to be sent together.
pub(super) struct AnswerBuffer<'a> {
    server: &'a RunContext,
    stream: &'a TcpStream,
    held: Vec<Held>,
    /// The memory of these answers.
    reservation: Reservation,
    /// When the first byte of the present request was read.
    pub(super) begun: Option<Instant>,
    /// The server answers in place of the service.
    pub(super) refuses: bool,
}

impl<'a> AnswerBuffer<'a> {
    pub(super) fn new(server: &'a RunContext, stream: &'a TcpStream) -> Self {
        Self { server, stream, held: Vec::new(), reservation: Reservation::default(), begun: None, refuses: false }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.server.has(flaw)
    }

    /// Reserves memory for an answer with a body of this length. Returns false if there is none, and the answer may be refused.
    pub(super) fn reserve(&mut self, head: &ParsedHead, length: usize) -> bool {
        let bytes = length + self.held.iter().map(|held| held.bytes.len()).sum::<usize>();
        if head.is_safe() && !self.has(Flaw::KeepsAnyAnswer) {
            return self.reservation.try_set(&self.server.memory, bytes);
        }
        self.reservation.set_unsafe(&self.server.memory, bytes, head.method_class());
        true
    }

    /// Holds the interim answer that asks for a body.
    pub(super) fn hold_continue(&mut self) {
        self.held.push(Held { bytes: b"HTTP/1.1 100 Continue\r\n\r\n".to_vec(), counts: false });
    }

    /// Sends an answer, or holds it back so that answers to requests that arrived together are sent together. Returns
    /// whether the connection is still open.
    pub(super) fn answer(&mut self, reply: Reply, in_place: Vec<u8>, to_head: bool, connection: Option<&str>) -> bool {
        let mut bytes = self.encode(&reply, &in_place, to_head && !self.has(Flaw::AnswersHeadWithABody), connection);
        self.report(reply.status(), &bytes);
        if self.has(Flaw::SendsPartOfAPanickedAnswer) && reply.status() == StatusCode::INTERNAL_SERVER_ERROR {
            bytes.splice(..0, in_place.iter().copied());
        }
        // Only the bytes are kept while the client takes them.
        drop((reply, in_place));
        if self.has(Flaw::SendsHalfAnswersInTheDrain) && self.server.shutdown.is_begun() {
            self.write(&bytes[..bytes.len() / 2]);
            return false;
        }
        self.held.push(Held { bytes, counts: !(to_head && self.has(Flaw::CountsNoHeadAnswers)) });
        let is_full = self.held.iter().map(|held| held.bytes.len()).sum::<usize>() > MAX_HELD;
        if self.has(Flaw::AnswersOneByOne) {
            std::thread::sleep(TICK / 20);
            return self.flush();
        }
        if is_full && !self.has(Flaw::BuffersWithoutLimit) { self.flush() } else { true }
    }

    /// Reports an answer to the hook.
    fn report(&mut self, status: StatusCode, bytes: &[u8]) {
        let begun = self.begun.take();
        let Some(hook) = &self.server.config.on_answer else { return };
        let peer = self.stream.peer_addr().ok();
        let body = bytes.windows(4).position(|window| window == b"\r\n\r\n").map_or(0, |at| bytes.len() - at - 4);
        let length = if self.has(Flaw::ReportsBytesOfTheBody) { body } else { bytes.len() };
        if !(self.refuses && self.has(Flaw::ReportsNoRefusals)) {
            hook.call(&AnswerReport::new(status, length, begun, peer));
        }
        if self.has(Flaw::ReportsErrorsTwice) && status.as_u16() >= 400 {
            hook.call(&AnswerReport::new(status, length, begun, peer));
        }
    }

    /// Sends the answers that are held back, and counts those that the kernel took. Returns whether it took all.
    pub(super) fn flush(&mut self) -> bool {
        if self.held.is_empty() {
            return true;
        }
        if self.has(Flaw::ReorderedPipeline) {
            self.held.reverse();
        }
        let (mut bytes, mut counted_ends) = (Vec::new(), Vec::new());
        for mut held in self.held.drain(..) {
            bytes.append(&mut held.bytes);
            counted_ends.extend(held.counts.then_some(bytes.len()));
        }
        let written = self.write(&bytes);
        let answered = counted_ends.iter().filter(|end| **end <= written).count();
        self.server.answered.fetch_add(answered as u64, Ordering::SeqCst);
        self.reservation = Reservation::default();
        written == bytes.len()
    }

    fn encode(&self, reply: &Reply, in_place: &[u8], to_head: bool, connection: Option<&str>) -> Vec<u8> {
        let (status, body) = (reply.status(), reply.body_bytes(in_place));
        let mut head =
            format!("HTTP/1.1 {} {}\r\nDate: {}\r\n", status.as_u16(), reason_phrase(status), self.server.date());
        let mut field = |name: &str, value: &str| head.push_str(&format!("{name}: {value}\r\n"));
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        if let Some(server_header) = &self.server.config.server_header {
            field("Server", server_header);
        } else if self.has(Flaw::SendsServerField) {
            field("Server", "plain");
        }
        if !reply.is_bodiless() {
            field("Content-Length", &reply.omitted_length().unwrap_or(body.len()).to_string());
        }
        if let Some(media_type) = reply.content_type() {
            field("Content-Type", &text(media_type));
        }
        if let Some(etag) = reply.etag() {
            field("ETag", &etag.to_string());
        }
        for (name, value) in reply.headers() {
            field(name.as_str(), &text(value));
        }
        if let Some(connection) = connection {
            field("Connection", connection);
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        if !to_head && !reply.is_bodiless() {
            bytes.extend_from_slice(body);
        }
        bytes
    }

    /// Writes `bytes` within the write timeout. Returns the number of bytes that the kernel took.
    fn write(&self, bytes: &[u8]) -> usize {
        let limit = |unsent| TimeLimit::Write { unsent }.of(&self.server.config);
        let mut deadline = None;
        let mut stream = self.stream;
        if self.has(Flaw::LosesBytesOnAShortWrite) {
            let _ = stream.set_nonblocking(true).and_then(|()| stream.write(bytes));
            let _ = stream.set_nonblocking(false);
            return bytes.len();
        }
        let mut unsent = bytes;
        while !unsent.is_empty() {
            let _ = stream.set_write_timeout(Some(TICK));
            match stream.write(unsent) {
                Ok(count) => {
                    unsent = &unsent[count..];
                    if self.has(Flaw::ExtendsWritesOnProgress) {
                        deadline = Some(Instant::now() + 10 * limit(unsent.len())); // the next bytes may be late
                    }
                }
                Err(error) if is_tick(&error) => {}
                Err(_) => break,
            }
            let late = Instant::now() >= *deadline.get_or_insert_with(|| Instant::now() + limit(unsent.len()))
                && !self.has(Flaw::HasNoWriteTimeout);
            if late || self.server.is_over() {
                break;
            }
        }
        bytes.len() - unsent.len()
    }
}
