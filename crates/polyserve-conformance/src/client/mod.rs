//! A plain blocking HTTP/1.1 client that shows every byte.
//!
//! It shares no code with the servers' codec but the format of dates, so that both cannot be wrong in the same way. It sends exactly the
//! bytes that it gets, and parses answers strictly: see [`Response`].
//!
//! Invariant: no call lasts longer than the client's max wait. [`Ending`] distinguishes a closed connection, a reset and
//! silence.
//!
//! Cost: two system calls for each read or write, one of them to set the timeout. The start of the exchanged bytes is
//! kept for failure messages.
//!
//! ```
//! use polyserve_conformance::client::Client;
//! use std::io::{Read, Write};
//! use std::time::Duration;
//!
//! let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
//! let mut client = Client::connect(listener.local_addr()?, Duration::from_secs(30))?;
//! client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")?;
//! let (mut server, _) = listener.accept()?;
//! server.write_all(b"HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: 2\r\n\r\nhi")?;
//! assert_eq!(client.expect(200).body, b"hi");
//! # Ok::<(), std::io::Error>(())
//! ```

mod body;
mod date;
mod response;
mod stream;
mod transcript;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use body::BodyEnd;
pub(crate) use date::imf_fixdate;
pub use response::Response;
use response::{MAX_BODY, head_end};
pub(crate) use stream::{Stream, is_timeout};
#[cfg(feature = "tls")]
pub(crate) use stream::{left, read_some, write_some};
use transcript::Transcript;
pub(crate) use transcript::shown;

/// One connection to a server.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    max_wait: Duration,
    unread: Vec<u8>,
    transcript: Transcript,
    /// The answers are those of a server of this project: see [`Response`].
    is_strict: bool,
}

/// How a connection ended, or that it did not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The server closed its side, and everything that it sent arrived.
    Closed,
    /// The connection was reset.
    Reset,
    /// Nothing came within the client's max wait, or it came without end: more than 64 MiB that belong to no answer.
    Silent,
}

/// An answer that is missing, cut off or malformed.
#[derive(Debug)]
pub struct ReceiveFailure {
    /// How the connection ended. `None` if an answer came and is malformed.
    pub ending: Option<Ending>,
    /// The number of bytes of the answer that arrived.
    pub received: usize,
    why: String,
}

impl ReceiveFailure {
    /// Whether the connection ended before the first byte of an answer. A server may close it there.
    pub fn is_clean(&self) -> bool {
        matches!(self.ending, Some(Ending::Closed | Ending::Reset)) && self.received == 0
    }
}

impl fmt::Display for ReceiveFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for ReceiveFailure {}

/// The largest head of an answer, in bytes.
const MAX_HEAD: usize = 64 * 1024;
/// The max number of bytes that wait to be taken. A server that sends without end must not use up the memory.
const MAX_UNREAD: usize = 64 * 1024 * 1024;

impl Client {
    /// Connects. Every later call lasts at most `max_wait`.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection is refused, or is not made within `max_wait`.
    pub fn connect(addr: SocketAddr, max_wait: Duration) -> io::Result<Self> {
        Self::connect_from(None, addr, max_wait)
    }

    /// [`connect`](Self::connect) from this address of the machine, if one is given: each has ports of its own.
    ///
    /// # Errors
    ///
    /// Returns an error as [`connect`](Self::connect) does, and if the address has no free port.
    pub fn connect_from(source: Option<IpAddr>, addr: SocketAddr, max_wait: Duration) -> io::Result<Self> {
        Ok(Self::on(Stream::connect(source, addr, max_wait)?, max_wait))
    }

    /// The client's end of a connection. If it is TLS, its handshake has ended.
    pub(crate) fn on(stream: Stream, max_wait: Duration) -> Self {
        Self { stream, max_wait, unread: Vec::new(), transcript: Transcript::default(), is_strict: true }
    }

    /// Limits what the kernel receives for this client before it is read to about `bytes`. By default it may be tens of MiB.
    ///
    /// # Errors
    ///
    /// Returns the error of `setsockopt(2)`.
    pub fn limit_receive_buffer(&self, bytes: usize) -> io::Result<()> {
        Ok(rustix::net::sockopt::set_socket_recv_buffer_size(self.stream.socket(), bytes)?)
    }

    /// The same client, which reads the answers of any server: the `Date` may be wrong or missing, and the body may be chunked or last
    /// until the end of the connection, as RFC 9112, section 6.3, allows.
    #[must_use]
    pub fn of_any_server(mut self) -> Self {
        self.is_strict = false;
        self
    }

    /// Returns the address of this end of the connection.
    ///
    /// # Errors
    ///
    /// Returns the error of `getsockname(2)`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.socket().local_addr()
    }

    /// Sends `bytes` unchanged.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not read them in time or has closed. It may have answered already.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.transcript.sent(bytes);
        self.stream.send(bytes, Instant::now() + self.max_wait)
    }

    /// A second handle, which sends from another thread.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no descriptor left.
    pub fn write_half(&self) -> io::Result<WriteHalf> {
        Ok(WriteHalf { stream: self.stream.try_clone()?, max_wait: self.max_wait })
    }

    /// Closes the sending side.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection has ended.
    pub fn half_close(&mut self) -> io::Result<()> {
        self.transcript.note("(half-closed)");
        self.stream.half_close(Instant::now() + self.max_wait)
    }

    /// Waits for the first byte of an answer and leaves it in the socket. A client that is dropped then resets the
    /// connection.
    ///
    /// # Errors
    ///
    /// Returns how the connection ended if it ended before.
    pub fn peek(&mut self) -> Result<(), Ending> {
        came(self.stream.peek(Instant::now() + self.max_wait))
    }

    /// Reads at most `count` bytes from the socket, and discards them.
    ///
    /// # Errors
    ///
    /// Returns how the connection ended, or that no byte came.
    pub fn skip(&mut self, count: usize) -> Result<(), Ending> {
        came(self.stream.read(&mut vec![0; count], Instant::now() + self.max_wait))
    }

    /// Whether a byte or the end of the connection can be read now. Does not wait.
    pub fn has_input(&self) -> bool {
        let peeked = self.stream.peek_now();
        !self.unread.is_empty() || peeked.map_or_else(|error| ending(&error) != Ending::Silent, |_| true)
    }

    /// Reads the answers that have arrived, and returns their number. Waits only for the rest of an answer that has
    /// begun.
    pub fn arrived_answers(&mut self) -> usize {
        let mut answers = 0;
        while self.has_input() && self.receive().is_ok() {
            answers += 1;
        }
        answers
    }

    /// Whether the connection has ended already, with nothing left to read. Does not wait.
    pub fn has_ended(&self) -> bool {
        match self.stream.peek_now() {
            Ok(count) => count == 0,
            Err(error) => ending(&error) == Ending::Reset,
        }
    }

    /// Reads the next answer, also an interim one, to a request of any method but HEAD.
    ///
    /// # Errors
    ///
    /// Returns [`ReceiveFailure`] if the answer is missing, cut off or malformed.
    pub fn receive(&mut self) -> Result<Response, ReceiveFailure> {
        self.next(false)
    }

    /// Reads the next answer to a HEAD request, which has no body whatever its `Content-Length`.
    ///
    /// # Errors
    ///
    /// As [`receive`](Self::receive).
    pub fn receive_head(&mut self) -> Result<Response, ReceiveFailure> {
        self.next(true)
    }

    /// Sends `request`, and reads its answer. A refusal may come before all is sent: what counts is the answer.
    ///
    /// # Errors
    ///
    /// As [`receive`](Self::receive).
    pub fn exchange(&mut self, request: &[u8]) -> Result<Response, ReceiveFailure> {
        let sent = self.send(request);
        let response = if request.starts_with(b"HEAD ") { self.receive_head() } else { self.receive() };
        drop(sent);
        response
    }

    fn next(&mut self, to_head: bool) -> Result<Response, ReceiveFailure> {
        let deadline = Instant::now() + self.max_wait;
        let head = loop {
            match head_end(&self.unread) {
                Ok(Some(end)) => break end,
                Ok(None) if self.unread.len() > MAX_HEAD => return Err(self.malformed("the head does not end")),
                Ok(None) => self.fill(deadline).map_err(|ending| self.ended(ending))?,
                Err(why) => return Err(self.malformed(why)),
            }
        };
        let parsed = Response::parse(&self.unread[..head]);
        let parsed = parsed.and_then(|response| Ok((self.body_end(&response, to_head)?, response)));
        let (body_end, mut response) = parsed.map_err(|why| self.malformed(&why))?;
        let end = match body_end {
            BodyEnd::Length(length) => {
                while self.unread.len() < head + length {
                    self.fill(deadline).map_err(|ending| self.ended(ending))?;
                }
                response.body = self.unread[head..head + length].to_vec();
                head + length
            }
            BodyEnd::Chunked(mut chunks) => {
                while !chunks.read(&self.unread[head..]).map_err(|why| self.malformed(&why))? {
                    self.fill(deadline).map_err(|ending| self.ended(ending))?;
                }
                response.body = chunks.body;
                head + chunks.end
            }
            BodyEnd::Close => {
                loop {
                    match self.fill(deadline) {
                        Ok(()) if self.unread.len() - head <= MAX_BODY => {}
                        Ok(()) => return Err(self.malformed("its body is beyond counting")),
                        Err(Ending::Closed) => break,
                        Err(ending) => return Err(self.ended(ending)),
                    }
                }
                response.body = self.unread[head..].to_vec();
                response.lasts_to_end = true;
                self.unread.len()
            }
        };
        response.length = end;
        self.unread.drain(..end);
        Ok(response)
    }

    /// Checks the fields that an answer must have. Returns how its body ends. `to_head`: it answers a HEAD.
    fn body_end(&self, response: &Response, to_head: bool) -> Result<BodyEnd, String> {
        if !self.is_strict {
            return BodyEnd::of(response, to_head);
        }
        let length = response.body_length(to_head)?;
        response.check_date()?;
        Ok(BodyEnd::Length(if to_head { 0 } else { length }))
    }

    /// Reads everything that still comes. Returns it, and how the connection ends.
    pub fn end(&mut self) -> (Vec<u8>, Ending) {
        let deadline = Instant::now() + self.max_wait;
        let ending = loop {
            if let Err(ending) = self.fill(deadline) {
                break ending;
            }
        };
        (std::mem::take(&mut self.unread), ending)
    }

    /// The bytes that have been read and belong to later answers.
    pub fn unread(&self) -> &[u8] {
        &self.unread
    }

    /// Waits up to `pause` for a byte or the end. Returns whether either came.
    pub fn has_input_within(&mut self, pause: Duration) -> bool {
        !self.unread.is_empty() || !matches!(self.fill(Instant::now() + pause), Err(Ending::Silent))
    }

    fn fill(&mut self, deadline: Instant) -> Result<(), Ending> {
        if self.unread.len() > MAX_UNREAD {
            self.transcript.note("(and so on)");
            return Err(Ending::Silent);
        }
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer, deadline) {
            Ok(0) => {
                self.transcript.note("(end)");
                Err(Ending::Closed)
            }
            Ok(n) => {
                self.transcript.received(&buffer[..n]);
                self.unread.extend_from_slice(&buffer[..n]);
                Ok(())
            }
            Err(error) => {
                let ending = ending(&error);
                if ending == Ending::Reset {
                    self.transcript.note("(reset)");
                }
                Err(ending)
            }
        }
    }

    fn ended(&self, ending: Ending) -> ReceiveFailure {
        let received = self.unread.len();
        let how = match ending {
            Ending::Closed => "the connection was closed",
            Ending::Reset => "the connection was reset",
            Ending::Silent => "nothing came within the client's max wait",
        };
        let why = format!("{how}, {received} bytes into an answer\n{}", self.show());
        ReceiveFailure { ending: Some(ending), received, why }
    }

    fn malformed(&self, why: &str) -> ReceiveFailure {
        let why = format!("malformed answer: {why}\n{}", self.show());
        ReceiveFailure { ending: None, received: self.unread.len(), why }
    }

    /// The bytes that were exchanged on this connection, shortened for a failure message.
    pub fn show(&self) -> String {
        self.transcript.to_string()
    }
}

/// Expectations of a test. Each of these functions panics, with the bytes that were exchanged, if what it says does not hold.
impl Client {
    /// The next answer has this status.
    #[track_caller]
    pub fn expect(&mut self, status: u16) -> Response {
        self.expect_one_of(&[status])
    }

    /// The next answer has one of these statuses.
    #[track_caller]
    pub fn expect_one_of(&mut self, statuses: &[u16]) -> Response {
        match self.receive() {
            Ok(response) if statuses.contains(&response.status) => response,
            Ok(response) => panic!("the status is {}, expected {statuses:?}\n{}", response.status, self.show()),
            Err(failure) => panic!("expected a status of {statuses:?}: {failure}"),
        }
    }

    /// The next answer has this status and says `Connection: close`, and the connection ends after it.
    #[track_caller]
    pub fn expect_last(&mut self, status: u16) -> Response {
        let response = self.expect(status);
        let is_announced = response.closes() && !response.contradicts_itself();
        assert!(is_announced, "the last answer does not say Connection: close, or also keep-alive\n{}", self.show());
        self.expect_end();
        response
    }

    /// The connection ends without a further byte and without a reset.
    #[track_caller]
    pub fn expect_end(&mut self) {
        let (rest, ending) = self.end();
        let is_clean = rest.is_empty() && ending == Ending::Closed;
        assert!(is_clean, "the connection has not ended: {} bytes, and then {ending:?}\n{}", rest.len(), self.show());
    }

    /// Sends `request` and reads its answer, which has this status.
    #[track_caller]
    pub fn ask(&mut self, request: &[u8], status: u16) -> Response {
        let _ = self.send(request); // an error: a refusal came before all was sent
        self.expect(status)
    }
}

/// A handle that sends from another thread than the one that reads.
#[derive(Debug)]
pub struct WriteHalf {
    stream: Stream,
    max_wait: Duration,
}

impl WriteHalf {
    /// Sends `bytes` unchanged. They do not appear in the client's transcript.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not read them in time or has closed.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.send(bytes, Instant::now() + self.max_wait)
    }
}

/// Whether bytes came, or how the connection ended.
fn came(count: io::Result<usize>) -> Result<(), Ending> {
    match count {
        Ok(0) => Err(Ending::Closed),
        Ok(_) => Ok(()),
        Err(error) => Err(ending(&error)),
    }
}

fn ending(error: &io::Error) -> Ending {
    if is_timeout(error) { Ending::Silent } else { Ending::Reset }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Regression test: what came was kept until the max wait was over, which took a gigabyte.
    #[test]
    fn a_server_that_sends_without_end_takes_bounded_memory() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("it is bound");
        let sender = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("the client connects");
            let interim = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(10_000);
            while stream.write_all(&interim).is_ok() {}
        });
        let mut client = Client::connect(addr, Duration::from_secs(60)).expect("it listens");
        let (bytes, ending) = client.end();
        assert_eq!((bytes.len() / (1024 * 1024), ending), (64, Ending::Silent));
        drop(client);
        sender.join().expect("it ends");
    }
}
