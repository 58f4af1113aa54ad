//! The end of a body of an answer of any server, after RFC 9112, section 6.3.
//!
//! Invariant: what is read is what the sender meant. A length that is ambiguous is malformed: with a `Transfer-Encoding` too, with
//! several values, or with a coding that the client has not asked for.

use super::response::{MAX_BODY, Response};

/// How the end of a body is found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyEnd {
    /// After this number of bytes.
    Length(usize),
    Chunked(Chunks),
    /// With the connection.
    Close,
}

/// How far a chunked body was read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Chunks {
    /// The number of bytes that were read.
    pub(super) end: usize,
    /// The data of the chunks.
    pub(super) body: Vec<u8>,
    /// The last chunk was read, and trailer fields may follow.
    is_in_trailer: bool,
}

/// The max length of a line with the size of a chunk, or with a trailer field.
const MAX_LINE: usize = 8 * 1024;

impl BodyEnd {
    /// How the body of `response` ends. `to_head`: it answers a HEAD.
    pub(super) fn of(response: &Response, to_head: bool) -> Result<Self, String> {
        if to_head || response.is_interim() || [204, 304].contains(&response.status) {
            return Ok(Self::Length(0));
        }
        let codings: Vec<&str> = response.all("Transfer-Encoding").collect();
        let has_length = response.all("Content-Length").next().is_some();
        match codings.as_slice() {
            [] if has_length => response.body_length(false).map(Self::Length),
            [] => Ok(Self::Close),
            [_, ..] if has_length => Err("it has a Content-Length and a Transfer-Encoding".into()),
            [_, ..] if response.minor == 0 => Err("it is of HTTP/1.0 and has a Transfer-Encoding".into()),
            [coding] if coding.eq_ignore_ascii_case("chunked") => Ok(Self::Chunked(Chunks::default())),
            codings => Err(format!("its Transfer-Encoding is {codings:?}, and only chunked is read")),
        }
    }
}

impl Chunks {
    /// Reads the chunks in `bytes`, which begin with the body. Returns false if more bytes follow.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<bool, String> {
        loop {
            let rest = bytes.get(self.end..).unwrap_or_default();
            let Some(line_end) = rest.windows(2).position(|pair| pair == b"\r\n") else {
                return if rest.len() > MAX_LINE { Err("a line of its chunks does not end".into()) } else { Ok(false) };
            };
            let (line, rest) = (&rest[..line_end], &rest[line_end + 2..]);
            if line.contains(&b'\n') || line.contains(&b'\r') {
                return Err("a CR or an LF stands alone in a line of its chunks".into());
            }
            let after_line = self.end + line_end + 2;
            if self.is_in_trailer {
                self.end = after_line;
                if line.is_empty() {
                    return Ok(true);
                }
                continue;
            }
            let size = chunk_size(line)
                .ok_or_else(|| format!("the size of a chunk is {:?}", line.escape_ascii().to_string()))?;
            if size > MAX_BODY - self.body.len() {
                return Err("its chunks are beyond counting".into());
            }
            if size == 0 {
                (self.end, self.is_in_trailer) = (after_line, true);
                continue;
            }
            match rest.get(size..size + 2) {
                None => return Ok(false),
                Some(b"\r\n") => {}
                Some(_) => return Err(format!("a chunk of {size} bytes does not end after them")),
            }
            self.body.extend_from_slice(&rest[..size]);
            self.end = after_line + size + 2;
        }
    }
}

/// The number at the begin of a line, before the extensions of the chunk.
fn chunk_size(line: &[u8]) -> Option<usize> {
    let digits = line.split(|byte| *byte == b';').next()?.trim_ascii_end();
    let is_size = (1..=16).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    usize::from_str_radix(std::str::from_utf8(digits).ok().filter(|_| is_size)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end_of(head: &str, to_head: bool) -> Result<BodyEnd, String> {
        BodyEnd::of(&Response::parse(format!("HTTP/1.{head}\r\n\r\n").as_bytes()).unwrap(), to_head)
    }

    #[test]
    fn each_end_of_a_body_is_found() {
        for (head, end) in [
            ("1 200 OK\r\nContent-Length: 5", BodyEnd::Length(5)),
            ("1 200 OK\r\nTransfer-Encoding: Chunked", BodyEnd::Chunked(Chunks::default())),
            ("1 200 OK\r\nX: y", BodyEnd::Close),
            ("0 200 OK\r\nX: y", BodyEnd::Close),
            ("1 204 No Content\r\nContent-Length: 0", BodyEnd::Length(0)),
            ("1 304 Not Modified\r\nContent-Length: 5", BodyEnd::Length(0)),
        ] {
            assert_eq!(end_of(head, false), Ok(end), "{head}");
            assert_eq!(end_of(head, true), Ok(BodyEnd::Length(0)), "{head}");
        }
        for (head, why) in [
            ("1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked", "a Content-Length and a"),
            ("0 200 OK\r\nTransfer-Encoding: chunked", "HTTP/1.0"),
            ("1 200 OK\r\nTransfer-Encoding: gzip, chunked", "gzip"),
            ("1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6", "Content-Length is"),
        ] {
            assert!(end_of(head, false).unwrap_err().contains(why), "{head}");
        }
    }

    #[test]
    fn chunks_are_read_at_every_split() {
        let text = b"3;x=y\r\nabc\r\n0a \r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";
        for at in 0..text.len() {
            let mut chunks = Chunks::default();
            assert_eq!(chunks.read(&text[..at]), Ok(false), "{at}");
            assert_eq!(chunks.read(&[text, &b"HTTP/1.1"[..]].concat()), Ok(true), "{at}");
            assert_eq!((chunks.body.as_slice(), chunks.end), (&b"abc0123456789"[..], text.len()), "{at}");
        }
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for text in
            ["x\r\n", "\r\n", "-1\r\n", "1\n1\r\na\r\n", "2\r\nabc\r\n", "11111111111111111\r\n", "7fffffff\r\n"]
        {
            assert!(Chunks::default().read(text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
