//! A blocking client for one connection, as light as checking every answer allows.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
}

/// Nothing measured here takes this long; a server that is silent for it has failed.
const PATIENCE: Duration = Duration::from_secs(30);

impl Client {
    /// Connects.
    ///
    /// # Errors
    ///
    /// Where nobody listens.
    pub fn connect(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, buffer: vec![0; 64 * 1024], filled: 0 })
    }

    /// Sends `requests`, which are `count` requests, and reads as many answers. Each must have this status and this
    /// body.
    ///
    /// # Errors
    ///
    /// Where an answer is another, or does not come.
    pub fn exchange(&mut self, requests: &[u8], count: usize, status: &str, body: &[u8]) -> io::Result<()> {
        self.stream.write_all(requests)?;
        let mut start = 0;
        for _ in 0..count {
            start += self.answer(start, status, body)?;
        }
        if start != self.filled {
            return Err(wrong("there are bytes after the last answer", &self.buffer[start..self.filled]));
        }
        self.filled = 0;
        Ok(())
    }

    /// Reads one answer, which starts at `start` of the buffer; says how long it is.
    fn answer(&mut self, start: usize, status: &str, body: &[u8]) -> io::Result<usize> {
        loop {
            let bytes = &self.buffer[start..self.filled];
            if let Some(end) = find(bytes, b"\r\n\r\n") {
                let (head, length) = (&bytes[..end], end + 4 + body.len());
                if bytes.len() >= length {
                    let right = head.starts_with(status.as_bytes())
                        && content_length(head) == Some(body.len())
                        && &bytes[end + 4..length] == body;
                    return if right { Ok(length) } else { Err(wrong("the answer is wrong", bytes)) };
                }
            }
            match self.stream.read(&mut self.buffer[self.filled..])? {
                0 => return Err(wrong("the answer ends early", &self.buffer[start..self.filled])),
                count => self.filled += count,
            }
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn content_length(head: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"\r\nContent-Length: ";
    let value = &head[find(head, NAME)? + NAME.len()..];
    let end = find(value, b"\r\n").unwrap_or(value.len());
    std::str::from_utf8(&value[..end]).ok()?.parse().ok()
}

fn wrong(what: &str, bytes: &[u8]) -> io::Error {
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
    io::Error::new(io::ErrorKind::InvalidData, format!("{what}: {shown:?}"))
}
