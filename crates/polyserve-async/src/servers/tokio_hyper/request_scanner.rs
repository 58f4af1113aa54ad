//! The boundaries of requests in the bytes that a connection reads, and checks that hyper omits.
//!
//! hyper does not report the end of a request in the input. It accepts malformed chunked bodies: what another peer reads as
//! the end of a body may be the middle of one to hyper. It also skips any number of empty lines before a request.
//!
//! The scanner reads the same bytes before hyper does. It finds the ends of heads and bodies, checks chunked bodies with
//! the decoder of this project's codec, and counts empty lines.
//!
//! Invariant: for heads that hyper accepts, the scanner and hyper find the same boundaries. A head ends with the first empty
//! line. A line ends with LF or CRLF. With `Transfer-Encoding`, a `Content-Length` is ignored. For heads that hyper refuses,
//! the scanner's state does not matter, because the connection ends.
//!
//! Cost: one `memchr` for each line of a head. A chunked body is copied once into a buffer that is dropped. The scan's share
//! of a request's cost is larger if requests are pipelined.

use memchr::memchr;
use polyserve_core::Status;
use polyserve_serving::http1::chunked::Chunked;
use polyserve_serving::http1::decode::{Limits, Refusal};
use polyserve_serving::http1::session::MAX_EMPTY_LINES;

/// The scanner of one connection.
#[derive(Debug, Default)]
pub(super) struct RequestScanner {
    part: Part,
    /// The head in progress has a request line.
    has_request_line: bool,
    /// The latest request line begins with `HEAD `.
    is_head_method: bool,
    is_chunked: bool,
    /// `u64::MAX` if the number is larger.
    content_length: u64,
    /// The number of empty lines before the request line that is expected.
    empty_lines: u8,
    /// The line in progress, if its end was not in the same read.
    partial: Vec<u8>,
    /// The number of complete heads.
    heads: u64,
    /// The number of the first request with `#` in its request line, counted from 1. hyper drops a fragment.
    with_fragment: Option<u64>,
    /// The number of bytes scanned.
    total: u64,
    /// The value of `total` at the start of the present request.
    start: u64,
    /// The number of bytes of the present body, or of the last one.
    body: u64,
    /// Why the bytes that follow are withheld.
    refusal: Option<Refusal>,
}

/// The first line of HTTP/2's preface.
const PREFACE_LINE: &[u8] = b"PRI * HTTP/2.0";

const TOO_MANY_EMPTY_LINES: Refusal =
    Refusal { status: Status::BAD_REQUEST, detail: "There are too many empty lines before the request." };

/// The part of a request that the next byte belongs to.
#[derive(Debug, Default)]
enum Part {
    #[default]
    Head,
    Body(u64),
    Chunked(Box<Chunked>),
    /// The connection begins with HTTP/2's preface: its bytes are not scanned.
    Http2,
}

/// The position of a scanner.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Position {
    /// The number of complete heads.
    pub(super) heads: u64,
    /// The number of bytes before the present request.
    pub(super) start: u64,
    /// The number of bytes scanned.
    pub(super) total: u64,
    /// The number of bytes of the present body, or of the last one.
    pub(super) body: u64,
    /// No request has begun. Empty lines before the next request may have arrived.
    pub(super) is_between_requests: bool,
}

impl RequestScanner {
    /// Scans bytes that were read. Returns the number of bytes that hyper may read: all, unless a chunked body is malformed
    /// or too large, or too many empty lines come before a request. In these cases [`withheld`](Self::withheld) returns the
    /// reason.
    pub(super) fn scan(&mut self, bytes: &[u8], limits: &Limits) -> usize {
        let mut used = 0_usize;
        while self.refusal.is_none()
            && let Some(rest) = bytes.get(used..).filter(|rest| !rest.is_empty())
        {
            let in_body = matches!(self.part, Part::Body(_) | Part::Chunked(_));
            let count = self.step(rest, limits);
            self.body = self.body.saturating_add(if in_body { count as u64 } else { 0 });
            used = used.saturating_add(count);
            self.total = self.total.saturating_add(count as u64);
            self.end_request_if_complete();
        }
        used
    }

    /// Scans up to the end of a line or a body. Returns the number of bytes used, which is zero only with a refusal.
    fn step(&mut self, bytes: &[u8], limits: &Limits) -> usize {
        match &mut self.part {
            Part::Head => self.scan_line(bytes, limits),
            Part::Http2 => bytes.len(),
            Part::Body(remaining) => {
                let count = usize::try_from(*remaining).unwrap_or(usize::MAX).min(bytes.len());
                *remaining = remaining.saturating_sub(count as u64);
                count
            }
            Part::Chunked(chunked) => chunked.decode(bytes, &mut Vec::new(), limits).unwrap_or_else(|refusal| {
                self.refusal = Some(refusal);
                0
            }),
        }
    }

    fn scan_line(&mut self, bytes: &[u8], limits: &Limits) -> usize {
        let Some(end) = memchr(b'\n', bytes) else {
            // A longer line need not be kept: hyper refuses it.
            if self.partial.len() <= limits.max_head {
                self.partial.extend_from_slice(bytes);
            }
            return bytes.len();
        };
        let line = bytes.get(..end).unwrap_or_default();
        if self.partial.is_empty() {
            self.end_line(line);
        } else {
            let mut joined = std::mem::take(&mut self.partial);
            joined.extend_from_slice(line);
            self.end_line(&joined);
        }
        end.saturating_add(1)
    }

    fn end_line(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match (line.is_empty(), self.has_request_line) {
            (true, false) => {
                self.empty_lines = self.empty_lines.saturating_add(1);
                if self.empty_lines > MAX_EMPTY_LINES {
                    self.refusal = Some(TOO_MANY_EMPTY_LINES);
                }
            }
            (true, true) => self.end_head(),
            (false, false) => {
                if self.heads == 0 && line == PREFACE_LINE {
                    self.part = Part::Http2;
                    return;
                }
                self.has_request_line = true;
                self.empty_lines = 0;
                self.is_head_method = line.starts_with(b"HEAD ");
                if self.with_fragment.is_none() && memchr(b'#', line).is_some() {
                    self.with_fragment = Some(self.heads.saturating_add(1));
                }
            }
            (false, true) => {
                if field(line, b"transfer-encoding:").is_some() {
                    self.is_chunked = true;
                } else if let Some(value) = field(line, b"content-length:") {
                    // hyper refuses a value that is not a number, and two that differ.
                    let value = std::str::from_utf8(value).unwrap_or_default().trim();
                    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
                    self.content_length = value.parse().unwrap_or(if is_number { u64::MAX } else { 0 });
                }
            }
        }
    }

    fn end_head(&mut self) {
        self.heads = self.heads.saturating_add(1);
        self.body = 0;
        self.part = if self.is_chunked { Part::Chunked(Box::default()) } else { Part::Body(self.content_length) };
        (self.has_request_line, self.is_chunked, self.content_length) = (false, false, 0);
    }

    fn end_request_if_complete(&mut self) {
        let is_complete = match &self.part {
            Part::Head | Part::Http2 => false,
            Part::Body(remaining) => *remaining == 0,
            Part::Chunked(chunked) => chunked.is_done(),
        };
        if is_complete {
            self.part = Part::Head;
            self.start = self.total;
        }
    }

    /// Returns the offset of request number `number` in `bytes`, counted from 0. `bytes` must begin with the start of a
    /// request.
    pub(super) fn start_of(bytes: &[u8], number: u64) -> Option<usize> {
        let unlimited = Limits { max_head: usize::MAX, max_headers: usize::MAX, max_body: usize::MAX };
        let mut scanner = Self::default();
        let mut offset = 0_usize;
        while scanner.heads < number || !matches!(scanner.part, Part::Head) {
            let rest = bytes.get(offset..).filter(|rest| !rest.is_empty())?;
            let count = scanner.step(rest, &unlimited);
            offset = offset.saturating_add(count);
            scanner.end_request_if_complete();
            if count == 0 {
                return None;
            }
        }
        Some(offset)
    }

    /// Returns the reason if the bytes that follow are withheld from hyper.
    pub(super) fn withheld(&self) -> Option<Refusal> {
        self.refusal
    }

    /// Whether the present request announces a body of more bytes than hyper can count.
    pub(super) fn awaits_huge_body(&self) -> bool {
        matches!(self.part, Part::Body(remaining) if remaining > u64::MAX / 2)
    }

    /// Whether request number `number`, counted from 1, is the first one with a fragment in its target.
    pub(super) fn has_fragment(&self, number: u64) -> bool {
        self.with_fragment == Some(number)
    }

    /// Returns the present position.
    pub(super) fn position(&self) -> Position {
        let is_blank = !self.has_request_line && matches!(self.partial[..], [] | [b'\r']);
        let is_between_requests = is_blank && matches!(self.part, Part::Head);
        Position { heads: self.heads, start: self.start, total: self.total, body: self.body, is_between_requests }
    }

    /// Whether the method of request number `number`, counted from 1, is HEAD. `None` if it is not the latest request.
    pub(super) fn is_head_method(&self, number: u64) -> Option<bool> {
        let is_in_first_line = !self.has_request_line && !matches!(self.partial[..], [] | [b'\r']);
        let latest = self.heads.saturating_add(u64::from(self.has_request_line || is_in_first_line));
        let is_head = if is_in_first_line { self.partial.starts_with(b"HEAD ") } else { self.is_head_method };
        (latest == number).then_some(is_head)
    }
}

/// The value of a header field, if `line` is the field with the name `name`, which includes the colon.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { max_head: 1024, max_headers: 10, max_body: 1024 };

    const REQUESTS: &[u8] = b"\r\nGET /1 HTTP/1.1\r\nHost: a\r\n\r\n\
        PUT / HTTP/1.1\nhost: a\ncontent-LENGTH:\t5 \n\nhello\
        PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5\r\nhello\r\n0\r\na: b\r\n\r\n\
        HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";

    #[test]
    fn requests_end_at_the_same_places_in_every_split() {
        for split in 0..=REQUESTS.len() {
            let mut scanner = RequestScanner::default();
            let (first, second) = REQUESTS.split_at(split);
            assert_eq!(scanner.scan(first, &LIMITS), first.len());
            let position = scanner.position();
            assert!(
                position.heads < 4 && (split < 3 || !position.is_between_requests) || position.start as usize == split
            );
            assert_eq!(scanner.scan(second, &LIMITS), second.len());
            let position = scanner.position();
            assert_eq!((position.heads, position.start as usize), (4, REQUESTS.len()));
            assert!(position.is_between_requests);
            assert_eq!((scanner.is_head_method(4), scanner.is_head_method(5)), (Some(true), None));
        }
    }

    #[test]
    fn a_malformed_chunked_body_is_withheld() {
        let head = b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        for body in ["0\r\n\n", "0\r\na: b\n\n", "5 \r\nhello\r\n", "0;\x01\r\n\r\n"] {
            let mut scanner = RequestScanner::default();
            let bytes = [head.as_slice(), body.as_bytes()].concat();
            assert_eq!(scanner.scan(&bytes, &LIMITS), head.len(), "{body:?}");
            assert!(scanner.withheld().is_some(), "{body:?}");
        }
    }
}
