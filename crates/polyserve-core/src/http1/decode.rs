//! A request's head, and what it says about the body.
//!
//! `httparse` finds the parts. This module is stricter than it: a line ends in CRLF and nothing else, a target is
//! printable ASCII, `Host` is there once and valid, and a body's framing is beyond doubt (RFC 9112, 3.2 and 6). Whatever
//! is refused here closes the connection.
//!
//! Invariant: the outcome does not depend on how the bytes arrived. For any prefix it is `Partial` or the outcome of the
//! whole. Cost: one pass of `httparse`, one of `memchr`, no allocation.

use std::mem::MaybeUninit;

use crate::config::{MAX_HEADERS, ServerConfig};
use crate::service::{Head, Header, Headers, Method, Status, Version};

/// The limits of a request's size.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of request line and headers.
    pub max_head: usize,
    /// Header fields, 100 at most.
    pub max_headers: usize,
    /// Bytes of body.
    pub max_body: usize,
}

impl From<&ServerConfig> for Limits {
    fn from(config: &ServerConfig) -> Self {
        Self { max_head: config.max_head, max_headers: config.max_headers.min(MAX_HEADERS), max_body: config.max_body }
    }
}

/// Room for the header fields of one head.
pub type Fields<'b> = [MaybeUninit<Header<'b>>; MAX_HEADERS];

/// Empty room for header fields; costs nothing.
pub fn fields<'b>() -> Fields<'b> {
    [const { MaybeUninit::uninit() }; MAX_HEADERS]
}

/// What the first bytes of a request say.
#[derive(Debug)]
pub enum Decoded<'a> {
    /// Not all of the head is there yet.
    Partial,
    /// The head.
    Head(Parsed<'a>),
    /// This is answered with an error, and the connection closed.
    Refused(Refusal),
}

/// A complete head.
#[derive(Clone, Copy, Debug)]
pub struct Parsed<'a> {
    /// What the service sees.
    pub head: Head<'a>,
    /// How many bytes the head took.
    pub length: usize,
    /// How the body is framed.
    pub framing: Framing,
    /// Whether the client lets the connection live on.
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
}

/// How a body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes; 0 where there is no body.
    Length(u64),
    /// Chunked.
    Chunked,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The answer's status.
    pub status: Status,
    /// What was wrong, in one sentence.
    pub detail: &'static str,
}

const fn refusal(status: Status, detail: &'static str) -> Refusal {
    Refusal { status, detail }
}

const fn bad(detail: &'static str) -> Refusal {
    refusal(Status::BAD_REQUEST, detail)
}

/// Looks for a head at the start of `input`, which starts with the request line: empty lines before it are the caller's.
pub fn head<'b: 'a, 'a>(input: &'b [u8], limits: &Limits, fields: &'a mut Fields<'b>) -> Decoded<'a> {
    let within = input.get(..limits.max_head).unwrap_or(input);
    if matches!(within.first(), Some(b'\r' | b'\n')) {
        return Decoded::Refused(bad("There is a bare CR, a bare LF or too many empty lines before the request."));
    }
    let room = fields.get_mut(..limits.max_headers).unwrap_or_default();
    let mut request = httparse::Request::new(&mut []);
    let outcome = match request.parse_with_uninit_headers(within, room) {
        Ok(httparse::Status::Complete(length)) => {
            let line = RequestLine {
                method: request.method.unwrap_or_default(),
                target: request.path.unwrap_or_default(),
                version: if request.version == Some(0) { Version::Http10 } else { Version::Http11 },
            };
            let bytes = within.get(..length).unwrap_or(within);
            return match judge(bytes, &line, Headers::new(request.headers)) {
                Ok(parsed) => Decoded::Head(parsed),
                Err(refusal) => Decoded::Refused(refusal),
            };
        }
        Ok(httparse::Status::Partial) => None,
        Err(httparse::Error::Version) => wrong_version(within),
        Err(error) => Some(refused(error)),
    };
    match outcome {
        Some(refusal) => Decoded::Refused(refusal),
        None if input.len() > limits.max_head => Decoded::Refused(too_long(within)),
        None => Decoded::Partial,
    }
}

const BARE_LF: Refusal = bad("A line ends in a bare LF.");

fn refused(error: httparse::Error) -> Refusal {
    match error {
        httparse::Error::TooManyHeaders => {
            refusal(Status::HEADER_FIELDS_TOO_LARGE, "There are more header fields than this server takes.")
        }
        httparse::Error::HeaderName => bad("A header field's name is not valid."),
        httparse::Error::HeaderValue => bad("A header field's value is not valid."),
        httparse::Error::NewLine => bad("A line does not end in CRLF."),
        _ => bad("The request line is not valid."),
    }
}

fn too_long(within: &[u8]) -> Refusal {
    if memchr::memchr(b'\n', within).is_none() {
        refusal(Status::URI_TOO_LONG, "The request line is longer than this server takes.")
    } else {
        refusal(Status::HEADER_FIELDS_TOO_LARGE, "The head is longer than this server takes.")
    }
}

/// Tells a version that is not spoken here from nonsense, once the line is complete; `None` before.
fn wrong_version(within: &[u8]) -> Option<Refusal> {
    let end = memchr::memchr(b'\n', within)?;
    let nonsense = Some(bad("The request line is not a method, a target and an HTTP version."));
    let Some(line) = within.get(..end).and_then(|line| line.strip_suffix(b"\r")) else { return nonsense };
    let mut parts = line.split(|&b| b == b' ');
    let (Some(method), Some(target), Some(version), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return nonsense;
    };
    match version {
        [b'H', b'T', b'T', b'P', b'/', major @ b'1'..=b'9', b'.', minor @ b'0'..=b'9'] => {
            if (method, target, *major, *minor) == (b"PRI".as_slice(), b"*".as_slice(), b'2', b'0') {
                Some(bad("HTTP/2 is not spoken here."))
            } else {
                Some(refusal(Status::VERSION_NOT_SUPPORTED, "This server speaks HTTP/1.1."))
            }
        }
        _ => nonsense,
    }
}

struct RequestLine<'a> {
    method: &'a str,
    target: &'a str,
    version: Version,
}

/// Everything that RFC 9112 says about a complete head.
fn judge<'a>(bytes: &[u8], line: &RequestLine<'a>, headers: Headers<'a>) -> Result<Parsed<'a>, Refusal> {
    if has_bare_lf(bytes) {
        return Err(BARE_LF);
    }
    if !line.target.bytes().all(|b| b.is_ascii_graphic() && b != b'#') {
        return Err(bad("The request target has a byte that no target may have."));
    }
    let found = Found::in_fields(headers)?;
    match (line.version, found.host) {
        (Version::Http11, None) => return Err(bad("The Host header field is missing.")),
        (_, Some(host)) if !is_authority(host) => return Err(bad("The Host header field is not valid.")),
        _ => {}
    }
    let framing = found.framing(line.version)?;
    let Some(method) = Method::parse(line.method) else {
        return Err(refusal(Status::NOT_IMPLEMENTED, "The method is not known here."));
    };
    check_target(method, line.target)?;
    let expects_continue = match found.expect {
        Some(expect) if line.version == Version::Http11 => {
            if !expect.eq_ignore_ascii_case(b"100-continue") {
                return Err(refusal(Status::EXPECTATION_FAILED, "The expectation is not known here."));
            }
            true
        }
        _ => false,
    };
    let keep_alive = !found.close && (line.version == Version::Http11 || found.keep_alive);
    let head = Head { method, target: line.target, version: line.version, headers };
    Ok(Parsed { head, length: bytes.len(), framing, keep_alive, expects_continue })
}

fn has_bare_lf(bytes: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', bytes).any(|at| at.checked_sub(1).and_then(|before| bytes.get(before)) != Some(&b'\r'))
}

/// RFC 9112, 3.2: origin form, absolute form, or `*` for OPTIONS.
fn check_target(method: Method, target: &str) -> Result<(), Refusal> {
    if target.starts_with('/') || (target == "*" && method == Method::Options) {
        return Ok(());
    }
    let absolute = target.split_once("://").is_some_and(|(scheme, rest)| {
        let authority = rest.split(['/', '?']).next().unwrap_or_default().as_bytes();
        let known = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
        known && !authority.is_empty() && is_authority(authority)
    });
    if absolute { Ok(()) } else { Err(bad("The request target is neither a path nor an http URL.")) }
}

/// `uri-host [ ":" port ]` of RFC 9110, 4.2; empty is valid. No user information.
fn is_authority(text: &[u8]) -> bool {
    let (host_is_valid, rest) = if let Some(literal) = text.strip_prefix(b"[") {
        let Some(end) = memchr::memchr(b']', literal) else { return false };
        let (inside, rest) = literal.split_at(end);
        let valid = !inside.is_empty() && inside.iter().all(|b| b.is_ascii_alphanumeric() || b":.-_~%".contains(b));
        (valid, rest.get(1..).unwrap_or_default())
    } else {
        let end = memchr::memchr(b':', text).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        (name.iter().all(|b| b.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(b)), rest)
    };
    let port_is_valid = match rest {
        [] => true,
        [b':', port @ ..] => port.len() <= 5 && port.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    host_is_valid && port_is_valid
}

/// The header fields that the connection itself obeys.
#[derive(Default)]
struct Found<'a> {
    host: Option<&'a [u8]>,
    length: Option<u64>,
    codings: Option<Codings>,
    expect: Option<&'a [u8]>,
    close: bool,
    keep_alive: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Codings {
    /// `chunked`, once, alone.
    Chunked,
    /// Others, `chunked` the last.
    ThenChunked,
    /// Anything else.
    Unclear,
}

impl<'a> Found<'a> {
    fn in_fields(headers: Headers<'a>) -> Result<Self, Refusal> {
        let mut found = Self::default();
        for (name, value) in headers.iter() {
            match name.len() {
                4 if name.eq_ignore_ascii_case("host") => found.host(value)?,
                6 if name.eq_ignore_ascii_case("expect") => found.expect = Some(value),
                10 if name.eq_ignore_ascii_case("connection") => found.connection(value),
                14 if name.eq_ignore_ascii_case("content-length") => {
                    let length = parse_length(value)?;
                    if found.length.replace(length).is_some_and(|first| first != length) {
                        return Err(bad("There are several Content-Length header fields, and they differ."));
                    }
                }
                17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                    found.codings = Some(match (found.codings, parse_codings(value)) {
                        (None, codings) => codings,
                        // More lines are one list; a list that went on after `chunked` is unclear.
                        (Some(_), _) => Codings::Unclear,
                    });
                }
                _ => {}
            }
        }
        Ok(found)
    }

    fn host(&mut self, value: &'a [u8]) -> Result<(), Refusal> {
        match self.host.replace(value) {
            None => Ok(()),
            Some(_) => Err(bad("There is more than one Host header field.")),
        }
    }

    fn connection(&mut self, value: &[u8]) {
        for option in value.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// RFC 9112, 6.1 and 6.3.
    fn framing(&self, version: Version) -> Result<Framing, Refusal> {
        let Some(codings) = self.codings else { return Ok(Framing::Length(self.length.unwrap_or(0))) };
        if self.length.is_some() {
            return Err(bad("There are both Transfer-Encoding and Content-Length."));
        }
        match codings {
            _ if version == Version::Http10 => Err(bad("HTTP/1.0 has no Transfer-Encoding.")),
            Codings::Chunked => Ok(Framing::Chunked),
            Codings::ThenChunked => {
                Err(refusal(Status::NOT_IMPLEMENTED, "The only transfer coding known here is chunked."))
            }
            Codings::Unclear => Err(bad("The Transfer-Encoding does not end in one chunked.")),
        }
    }
}

/// Digits only. A number past 64 bits is kept as the largest, which is past every limit.
fn parse_length(value: &[u8]) -> Result<u64, Refusal> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(bad("The Content-Length is not a number."));
    }
    let digit = |b: &u8| u64::from(b.wrapping_sub(b'0'));
    Ok(value.iter().fold(0, |sum: u64, b| sum.saturating_mul(10).saturating_add(digit(b))))
}

fn parse_codings(value: &[u8]) -> Codings {
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    if is_chunked(value) {
        return Codings::Chunked;
    }
    let codings = value.split(|&b| b == b',').map(<[u8]>::trim_ascii);
    let (mut count, mut chunked, mut last_is_chunked, mut empty) = (0_usize, 0_usize, false, false);
    for coding in codings {
        count = count.saturating_add(1);
        last_is_chunked = is_chunked(coding);
        chunked = chunked.saturating_add(usize::from(last_is_chunked));
        empty |= coding.is_empty();
    }
    if last_is_chunked && chunked == 1 && count > 1 && !empty { Codings::ThenChunked } else { Codings::Unclear }
}
