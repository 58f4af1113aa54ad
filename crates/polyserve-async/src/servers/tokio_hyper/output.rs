//! Answers that are to be sent, and the position at which each of them ends.
//!
//! Invariant: an answer counts as answered once the kernel has its last byte. An interim answer (100) is no part of an answer.
//! Cost: a copy of each answer into the buffer.

use std::task::{Context, Poll};

use polyserve_serving::http1::encode::CONTINUE;
use polyserve_serving::memory::Reservation;
use polyserve_serving::tls::TlsSession;
use polyserve_serving::{ConnectionHandle as _, ServerState, TableEntry, WriteKind, net};

use super::tls::with_buffers;
use crate::servers::toolkit::{AsyncConnection, TokioSocket};

/// A buffer with a larger capacity is freed after use.
const KEPT_CAPACITY: usize = 16 * 1024;

/// Names HTTP/1.1 in a status line in which hyper names the version of the client. A server names its own (RFC 9110, 2.5).
fn name_own_version(status_line: &mut [u8]) {
    if let [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ b'0', b' ', ..] = status_line {
        *minor = b'1';
    }
}

/// The output of a connection.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) bytes: Vec<u8>,
    ends: Vec<usize>,
    /// The start of the present answer's bytes.
    start: usize,
    /// A part of the present answer was sent, so the answer cannot be replaced.
    pub(super) is_partly_sent: bool,
    /// The memory of output that waits for the client.
    reservation: Reservation,
    /// Of a server that speaks TLS, from the first byte of the connection on. It has the output that is encrypted.
    pub(super) tls: Option<TlsSession>,
    /// The output was once larger than the client may have received before a close.
    pub(super) has_sent_much: bool,
    /// Bytes could not be encrypted, so the connection is closed.
    has_failed: bool,
}

impl Output {
    /// Appends bytes of the present answer, or an interim answer before it. Returns the number of bytes of the present answer.
    pub(super) fn push(&mut self, bytes: &[u8]) -> usize {
        let (is_begun, interim) = (self.is_begun(), self.interim_length(bytes));
        self.bytes.extend_from_slice(bytes);
        self.start += interim;
        if !is_begun && let Some(status_line) = self.bytes.get_mut(self.start..) {
            name_own_version(status_line);
        }
        bytes.len() - interim
    }

    /// The number of bytes of the interim answer that `bytes` begin with, if they are the next ones.
    pub(super) fn interim_length(&self, bytes: &[u8]) -> usize {
        if !self.is_begun() && bytes.starts_with(CONTINUE) { CONTINUE.len() } else { 0 }
    }

    /// Whether there are bytes of the present answer.
    fn is_begun(&self) -> bool {
        self.is_partly_sent || self.bytes.len() > self.start
    }

    /// Marks the end of `answers` answers.
    pub(super) fn mark_ends(&mut self, answers: u32) {
        for _ in 0..answers {
            self.ends.push(self.bytes.len());
        }
        (self.start, self.is_partly_sent) = (self.bytes.len(), false);
    }

    /// Removes the bytes of the present answer. If they begin with a status line, returns its status.
    pub(super) fn discard_present(&mut self) -> Option<u16> {
        let answer = self.bytes.get(self.start..).unwrap_or_default();
        let code = answer.get(9..12).and_then(|code| std::str::from_utf8(code).ok()?.parse().ok());
        self.bytes.truncate(self.start);
        code
    }

    /// Whether nothing is to be sent, and the connection goes on.
    pub(super) fn is_empty(&self) -> bool {
        self.unsent() == 0 && !self.has_failed
    }

    /// Removes what is not encrypted.
    pub(super) fn clear(&mut self) {
        self.advance(self.bytes.len());
    }

    /// The number of bytes that the kernel has not taken.
    pub(super) fn unsent(&self) -> usize {
        self.bytes.len() + self.tls.as_ref().map_or(0, TlsSession::unsent)
    }

    /// Frees the buffers of an output that is empty.
    pub(super) fn release(&mut self) {
        *self = Self { tls: self.tls.take(), has_sent_much: self.has_sent_much, ..Self::default() };
    }

    /// The bytes to write next.
    fn next_bytes(&self) -> &[u8] {
        self.tls.as_ref().map_or(&self.bytes, TlsSession::kept)
    }

    /// Encrypts the output, if the connection has TLS. `last`: the end of the connection follows it.
    fn seal(&mut self, server: &ServerState, last: bool) {
        let Some(mut tls) = self.tls.take() else { return };
        with_buffers(|buffers| {
            if !self.bytes.is_empty() {
                let is_sealed = tls.seal(&self.bytes, buffers, &server.http.memory);
                let answers = self.advance(self.bytes.len());
                tls.note_answers(if is_sealed { answers } else { 0 });
                self.has_failed |= !is_sealed;
            }
            if last {
                tls.end(buffers);
            }
            tls.keep(buffers, &server.http.memory);
        });
        self.tls = Some(tls);
    }

    /// The kernel has taken the first `count` bytes. Returns the number of answers that are complete with them.
    fn written(&mut self, count: usize, server: &ServerState) -> u64 {
        match &mut self.tls {
            Some(tls) => with_buffers(|buffers| tls.written(count, buffers, &server.http.memory)).unwrap_or_default(),
            None => self.advance(count),
        }
    }

    /// Sends the bytes that the kernel takes, and counts the answers that are complete with them. The rest waits for the client,
    /// and counts towards the server's memory. Ignores an error: sending the rest returns an error too.
    pub(super) fn try_send(
        &mut self,
        entry: &TableEntry<AsyncConnection<TokioSocket>>,
        server: &ServerState,
        last: bool,
    ) {
        self.seal(server, last);
        if self.unsent() == 0 {
            return;
        }
        self.has_sent_much |= self.unsent() > net::FIRST_FLIGHT;
        if let Ok(count) = entry.with_fd(|socket| net::send(socket, self.next_bytes(), last)) {
            server.count_answered(self.written(count, server));
        }
        if !self.bytes.is_empty() {
            self.reservation.set(&server.http.memory, self.bytes.capacity());
        }
    }

    /// Sends all bytes. Waits while the kernel takes no more. Returns false if the client is gone, or if bytes could not be encrypted.
    pub(super) fn poll_send(
        &mut self,
        entry: &TableEntry<AsyncConnection<TokioSocket>>,
        server: &ServerState,
        cx: &mut Context<'_>,
        last: bool,
    ) -> Poll<bool> {
        let how = WriteKind { is_new: false, last, past_report: false };
        self.seal(server, last);
        while self.unsent() > 0 {
            match entry.handle().write(cx, self.next_bytes(), how) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(count)) if count > 0 => server.count_answered(self.written(count, server)),
                Poll::Ready(_) => return Poll::Ready(false),
            }
        }
        Poll::Ready(!self.has_failed)
    }

    /// Removes the first `count` bytes. Returns the number of answers that end in them.
    fn advance(&mut self, count: usize) -> u64 {
        let complete = self.ends.partition_point(|end| *end <= count);
        self.is_partly_sent |= count > self.start;
        self.start = self.start.saturating_sub(count);
        if count >= self.bytes.len() {
            self.bytes.clear();
            self.ends.clear();
            self.reservation = Reservation::default();
            if self.bytes.capacity() > KEPT_CAPACITY {
                self.bytes = Vec::new();
            }
        } else {
            self.bytes.drain(..count);
            self.ends.drain(..complete);
            for end in &mut self.ends {
                *end -= count;
            }
        }
        complete as u64
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;

    use polyserve_conformance::tls::TestAuthority;
    use polyserve_core::{Echo, ServerConfig};
    use polyserve_serving::ConnectionTable;

    use super::*;

    #[test]
    fn answers_count_when_their_last_byte_is_gone() {
        let mut output = Output::default();
        for length in [3, 0, 4] {
            assert_eq!(output.push(&b"xxxx"[..length]), length);
            output.mark_ends(1);
        }
        let error = b"HTTP/1.1 400 Bad Request\r\n";
        assert_eq!(output.push(error), error.len());
        assert_eq!(output.discard_present(), Some(400));
        assert_eq!(output.bytes.len(), 7);
        assert_eq!(output.advance(2), 0);
        assert_eq!(output.advance(1), 2);
        assert_eq!(output.advance(3), 0);
        assert_eq!(output.advance(1), 1);
        assert!(output.is_empty());
    }

    /// Regression test: bytes that could not be encrypted were dropped, and the connection went on without them.
    #[test]
    fn a_failure_to_encrypt_closes_the_connection() {
        let config = ServerConfig::default().tls(TestAuthority::new().issue().server());
        let table = ConnectionTable::multiplexed(Arc::new(ServerState::new(Arc::new(Echo), &config)), 0);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let entry = table.admit(AsyncConnection::new(listener.accept().unwrap().0), 0).unwrap();
        // It has no keys before its handshake.
        let mut output = Output { tls: TlsSession::new(&table.server, false), ..Output::default() };
        output.push(b"HTTP/1.1 200 OK\r\n");
        output.try_send(&entry, &table.server, false);
        assert!(!output.is_empty(), "the task goes on with the output");
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        assert_eq!(output.poll_send(&entry, &table.server, cx, false), Poll::Ready(false));
    }

    #[test]
    fn an_interim_answer_is_no_part_of_an_answer() {
        let mut output = Output::default();
        assert_eq!(output.push(CONTINUE), 0);
        output.advance(1);
        assert!(!output.is_partly_sent);
        assert_eq!(output.push(b"HTTP/1.1 200 OK\r\n"), 17);
        assert_eq!((output.discard_present(), output.bytes.len()), (Some(200), CONTINUE.len() - 1));
        assert_eq!(output.push(b"HTTP/1.1 413 Content Too Large\r\n"), 32);
        output.advance(CONTINUE.len());
        assert!(output.is_partly_sent);
        // A body may have such bytes.
        output.advance(31);
        assert_eq!(output.interim_length(CONTINUE), 0);
        assert_eq!(output.push(CONTINUE), CONTINUE.len());
        output.mark_ends(1);
        assert!(!output.is_partly_sent);
    }
}
