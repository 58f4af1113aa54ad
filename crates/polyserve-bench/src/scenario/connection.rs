//! A client's connection: a blocking socket, and one answer at a time. It shares no code with the servers' codec.
//!
//! Invariant: an answer is returned whole or not at all. Cost: one buffer for the connection's life.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use socket2::{Domain, Socket, Type};

/// The time limit of a connect, a read and a write.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The maximum length of an answer, in bytes.
const MAX_ANSWER: usize = 1 << 20;

/// The bytes in both directions.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByteCounts {
    /// The bytes that the client wrote.
    pub sent: u64,
    /// The bytes that the client read.
    pub received: u64,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Lost {
    /// The server closed the connection before the answer's first byte.
    Unanswered(String),
    /// Any other reason.
    Failed(String),
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unanswered(why) | Self::Failed(why) => f.write_str(why),
        }
    }
}

/// An open connection.
#[derive(Debug)]
pub struct StressConnection {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
    failed_to_send: Option<io::Error>,
    /// Whether an answer was received on it.
    pub has_answered: bool,
}

impl StressConnection {
    /// Connects, from `source` if it is given. If the server's queue is full, the kernel waits. If this client has no port
    /// or descriptor left, it waits until one is free.
    ///
    /// # Errors
    ///
    /// Returns an error if the server rejects the connection, or after [`PATIENCE`].
    pub fn open(addr: SocketAddr, source: Option<IpAddr>) -> io::Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        let stream = loop {
            match connected(addr, source) {
                Err(error) if is_shortage(&error) && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                result => break result?,
            }
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, buffer: Vec::new(), filled: 0, failed_to_send: None, has_answered: false })
    }

    /// Sends a request. If that fails, [`receive`](Self::receive) returns the error, unless there is an answer.
    pub fn send(&mut self, request: &[u8], traffic: &mut ByteCounts) {
        match self.stream.write_all(request) {
            Ok(()) => traffic.sent += request.len() as u64,
            Err(error) => self.failed_to_send = Some(error),
        }
    }

    /// Receives an answer.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no answer, or if it is torn, late or not HTTP.
    pub fn receive(&mut self, traffic: &mut ByteCounts) -> Result<StressAnswer<'_>, Lost> {
        self.filled = 0;
        let head = loop {
            self.fill(traffic)?;
            if let Some(at) = self.buffer[..self.filled].windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
        };
        let length = StressAnswer::parse(&self.buffer[..head], &[]).and_then(|response| response.length());
        let end = head + length.map_err(Lost::Failed)?;
        while self.filled < end {
            self.fill(traffic)?;
        }
        if self.filled > end {
            return Err(Lost::Failed(format!("{} bytes follow the answer", self.filled - end)));
        }
        self.has_answered = true;
        StressAnswer::parse(&self.buffer[..head], &self.buffer[head..end]).map_err(Lost::Failed)
    }

    /// Waits until the server closes the connection, as the request asked.
    ///
    /// # Errors
    ///
    /// Returns an error if the server sends more bytes, resets the connection, or does not close it.
    pub fn end(mut self, traffic: &mut ByteCounts) -> Result<(), Lost> {
        self.filled = 0;
        match self.read(traffic) {
            Ok(0) => Ok(()),
            Ok(count) => Err(Lost::Failed(format!("{count} bytes follow the answer"))),
            Err(error) => Err(Lost::Failed(format!("after the answer: {}", self.describe(&error)))),
        }
    }

    fn fill(&mut self, traffic: &mut ByteCounts) -> Result<(), Lost> {
        if self.filled > MAX_ANSWER {
            return Err(Lost::Failed(format!("the answer is longer than {MAX_ANSWER} bytes")));
        }
        let why = match self.read(traffic) {
            Ok(0) => match self.failed_to_send.take() {
                None => "closed by the server".into(),
                Some(error) => format!("closed by the server while the request was sent: {error}"),
            },
            Ok(_) => return Ok(()),
            Err(error) if is_timeout(&error) => return Err(Lost::Failed(self.describe(&error))),
            Err(error) => self.describe(&error),
        };
        Err(match self.filled {
            0 => Lost::Unanswered(format!("no answer: {why}")),
            filled => Lost::Failed(format!("a torn answer of {filled} bytes: {why}")),
        })
    }

    fn read(&mut self, traffic: &mut ByteCounts) -> io::Result<usize> {
        const STEP: usize = 1024;
        if self.buffer.len() < self.filled + STEP {
            self.buffer.resize(self.filled + STEP, 0);
        }
        loop {
            match self.stream.read(&mut self.buffer[self.filled..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(count) => {
                    self.filled += count;
                    traffic.received += count as u64;
                    return Ok(count);
                }
            }
        }
    }

    fn describe(&self, error: &io::Error) -> String {
        if is_timeout(error) { format!("nothing came for {} s", PATIENCE.as_secs()) } else { error.to_string() }
    }
}

fn connected(addr: SocketAddr, source: Option<IpAddr>) -> io::Result<TcpStream> {
    let Some(source) = source else { return TcpStream::connect(addr) };
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(source, 0).into())?;
    socket.connect(&addr.into())?;
    Ok(socket.into())
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Returns true if this client's machine lacks a port or a descriptor. That is no error of the server.
fn is_shortage(error: &io::Error) -> bool {
    let code = Errno::from_io_error(error);
    [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL, Errno::ADDRINUSE]
        .into_iter()
        .any(|shortage| code == Some(shortage))
}

/// A whole answer.
#[derive(Debug)]
pub struct StressAnswer<'a> {
    /// The status.
    pub status: u16,
    head: &'a str,
    /// The body.
    pub body: &'a [u8],
}

impl<'a> StressAnswer<'a> {
    pub(super) fn parse(head: &'a [u8], body: &'a [u8]) -> Result<Self, String> {
        let head = std::str::from_utf8(head).map_err(|_| "the answer's head is not text")?;
        let line = head.lines().next().unwrap_or_default();
        let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.split(' ').next()?.parse().ok());
        let status = status.ok_or_else(|| format!("the answer begins with {line:?}"))?;
        Ok(Self { status, head, body })
    }

    /// The value of the field `name`; the case is ignored.
    ///
    /// # Errors
    ///
    /// Returns an error if the field is present twice.
    pub fn field(&self, name: &str) -> Result<Option<&'a str>, String> {
        let fields = self.head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
        let mut values = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim());
        let value = values.next();
        if values.next().is_some() { Err(format!("the header {name} occurs twice")) } else { Ok(value) }
    }

    /// Returns true if the answer announces that the server closes the connection.
    pub fn closes(&self) -> bool {
        matches!(self.field("connection"), Ok(Some(value)) if value.eq_ignore_ascii_case("close"))
    }

    fn length(&self) -> Result<usize, String> {
        if let Some(coding) = self.field("transfer-encoding")? {
            return Err(format!("the answer has the transfer coding {coding} instead of a Content-Length"));
        }
        let text = self.field("content-length")?.ok_or("the answer has no Content-Length")?;
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        let length = text.parse().ok().filter(|length| digits && *length <= MAX_ANSWER);
        length.ok_or_else(|| format!("the answer's Content-Length is {text:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// The result of a client if the server answers with `bytes` and closes.
    fn answered<T>(bytes: &[u8], check: impl FnOnce(Result<StressAnswer<'_>, Lost>) -> T) -> T {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connection = StressConnection::open(listener.local_addr().unwrap(), None).unwrap();
        let mut traffic = ByteCounts::default();
        connection.send(b"request", &mut traffic);
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 7]).unwrap();
        stream.write_all(bytes).unwrap();
        drop(stream);
        check(connection.receive(&mut traffic))
    }

    #[test]
    fn a_whole_answer() {
        answered(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\ncOnnection:close\r\n\r\nhi", |response| {
            let response = response.unwrap();
            assert_eq!((response.status, response.body, response.closes()), (200, &b"hi"[..], true));
            assert_eq!((response.field("CONTENT-LENGTH"), response.field("date")), (Ok(Some("2")), Ok(None)));
        });
    }

    #[test]
    fn what_is_not_a_whole_answer_is_none() {
        for (bytes, expected) in [
            (&b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi"[..], "torn answer of 40 bytes"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nhi", "1 bytes follow"),
            (b"HTTP/1.1 200 OK\r\nContent-Le", "torn answer"),
            (b"HTTP/1.1 200 OK\r\n\r\n", "no Content-Length"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n", "twice"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: +0\r\n\r\n", "Content-Length is \"+0\""),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "chunked"),
            (b"nonsense\r\n\r\n", "begins with \"nonsense\""),
        ] {
            let lost = answered(bytes, |response| response.unwrap_err());
            assert!(matches!(&lost, Lost::Failed(why) if why.contains(expected)), "{lost:?}");
        }
    }

    #[test]
    fn a_close_before_the_first_byte_is_told_apart() {
        assert!(matches!(answered(b"", |response| response.unwrap_err()), Lost::Unanswered(_)));
    }
}
