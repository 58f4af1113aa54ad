//! The head of a request: its decoding and validation.
//!
//! `httparse` finds the parts. This module is stricter than `httparse`. A line ends in CRLF only. A target holds bytes of
//! a URI only. There is exactly one valid `Host`. The framing of the body is unambiguous (RFC 9112, 3.2 and 6). A refusal
//! closes the connection.
//!
//! Invariant: the result does not depend on how the bytes were split. The result for a prefix is `Partial`, or it is the
//! result for the whole input. It changes only at the end of a line, within the first [`METHOD_CHECK`] bytes, or past the
//! limit. A caller that decodes only at these points gets the same result as one that decodes after each byte.
//!
//! If there are several faults, the first one is reported. Faults of a line come first, in the order of the lines. Then
//! come the faults that only the whole head shows, in the order in which `validate_head` checks them.
//!
//! Cost: one pass of `httparse`, one over the ends of the lines, two over the fields; no allocation. A session reads a head that differs
//! from the last one of its thread only in its method and target by `repeated`, which costs less.

use std::mem::MaybeUninit;

use arrayvec::ArrayVec;
use polyserve_core::http::{Method, StatusCode, Version};
use polyserve_core::{Head, Header, Headers, ServerConfig, is_token, known_method};

use super::connection_fields::ConnectionFields;
pub use super::connection_fields::Framing;
pub use super::refusal::Refusal;
use super::refusal::{bad_request, refusal};
use super::syntax;

/// The limits of a request's size.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of bytes of the request line and the header fields.
    pub max_head: usize,
    /// Maximum number of header fields, at most 100.
    pub max_headers: usize,
    /// Maximum number of bytes of the body.
    pub max_body: usize,
}

impl From<&ServerConfig> for Limits {
    fn from(config: &ServerConfig) -> Self {
        Self {
            max_head: config.max_head,
            max_headers: config.max_headers.min(ServerConfig::MAX_HEADERS),
            max_body: config.max_body,
        }
    }
}

/// Storage for the header fields of one head.
pub type Fields<'b> = ArrayVec<Header<'b>, { ServerConfig::MAX_HEADERS }>;

/// The result of decoding the first bytes of a request.
#[derive(Debug)]
pub enum Decoded<'a> {
    /// The head is incomplete.
    Partial,
    /// The head is complete.
    Head(Parsed<'a>),
    /// The request is answered with an error, and the connection closes.
    Refused(Refusal),
}

/// A complete head.
#[derive(Clone, Copy, Debug)]
pub struct Parsed<'a> {
    /// The head that the service gets.
    pub head: Head<'a>,
    /// The method of the head.
    pub method: &'static Method,
    /// The length of the head in bytes.
    pub length: usize,
    /// The framing of the body.
    pub framing: Framing,
    /// Whether the client allows the connection to stay open.
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
}

/// Number of bytes at the start of a request that are checked before the first line is complete. Most protocols other
/// than HTTP are recognised by these bytes.
pub const METHOD_CHECK: usize = 16;

/// Whether `new`, the last of `length` bytes that begin with a request line, can change the result of decoding them. So a head that
/// arrives byte by byte is decoded once for each line, not once for each byte.
pub fn may_complete(length: usize, new: &[u8], limits: &Limits) -> bool {
    length.saturating_sub(new.len()) < METHOD_CHECK || length > limits.max_head || memchr::memchr(b'\n', new).is_some()
}

/// The empty lines before a request line. Up to 32 are skipped.
#[derive(Debug, Default)]
pub struct EmptyLines(u8);

impl EmptyLines {
    const MAX: u8 = 32;

    /// Whether there was one.
    pub fn were_skipped(&self) -> bool {
        self.0 > 0
    }

    /// Returns the number of bytes of the empty lines at the start of `input`.
    #[inline]
    pub fn skip(&mut self, input: &[u8]) -> usize {
        if input.first() == Some(&b'\r') { self.skip_lines(input) } else { 0 }
    }

    fn skip_lines(&mut self, input: &[u8]) -> usize {
        let mut skipped = 0_usize;
        while self.0 < Self::MAX && input.get(skipped..).is_some_and(|rest| rest.starts_with(b"\r\n")) {
            skipped = skipped.saturating_add(2);
            self.0 = self.0.saturating_add(1);
        }
        skipped
    }
}

/// Decodes the head at the start of `input`, which begins with the request line. The caller skips empty lines before it.
pub fn head<'b: 'a, 'a>(input: &'b [u8], limits: &Limits, fields: &'a mut Fields<'b>) -> Decoded<'a> {
    let within = input.get(..limits.max_head).unwrap_or(input);
    if matches!(within.first(), Some(b'\r' | b'\n')) {
        return Decoded::Refused(bad_request(
            "There is a bare CR, a bare LF or too many empty lines before the request.",
        ));
    }
    let mut found = uninitialised();
    let storage = found.get_mut(..limits.max_headers.min(ServerConfig::MAX_HEADERS)).unwrap_or_default();
    let mut request = httparse::Request::new(&mut []);
    let parsed = request.parse_with_uninit_headers(within, storage);
    if let (Ok(httparse::Status::Complete(length)), Some(target)) = (parsed, request.path)
        && ends_in_crlf(within.get(..length).unwrap_or_default())
    {
        let line = RequestLine {
            method: request.method.unwrap_or_default(),
            target,
            version: if request.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 },
        };
        fields.clear();
        fields.extend(request.headers.iter().map(|field| Header { name: field.name, value: field.value }));
        return match validate_head(length, &line, Headers::new(fields)) {
            Ok(parsed) => Decoded::Head(parsed),
            Err(refusal) => Decoded::Refused(refusal),
        };
    }
    match find_fault(within, input.len() > limits.max_head, limits) {
        Some(refusal) => Decoded::Refused(refusal),
        None => Decoded::Partial,
    }
}

/// Returns storage for the fields that `httparse` finds. This costs nothing.
fn uninitialised<'b>() -> [MaybeUninit<httparse::Header<'b>>; ServerConfig::MAX_HEADERS] {
    [const { MaybeUninit::uninit() }; ServerConfig::MAX_HEADERS]
}

/// Whether all lines of a head that `httparse` accepted end in CRLF: no LF is without a CR before it.
fn ends_in_crlf(head: &[u8]) -> bool {
    const BLOCK: usize = 16;
    // A loop without an early exit is vectorised by the compiler.
    let has_bare_lf = |before: &[u8], bytes: &[u8]| {
        before.iter().zip(bytes).fold(false, |found, (&before, &byte)| found | ((byte == b'\n') & (before != b'\r')))
    };
    let (before, bytes) =
        (head.get(..head.len().saturating_sub(1)).unwrap_or_default(), head.get(1..).unwrap_or_default());
    let (Some(last_before), Some(last)) = (before.last_chunk::<BLOCK>(), bytes.last_chunk::<BLOCK>()) else {
        return !has_bare_lf(before, bytes);
    };
    // The last block overlaps the one before it, so none is shorter.
    let blocks = before.chunks_exact(BLOCK).zip(bytes.chunks_exact(BLOCK));
    !blocks.fold(has_bare_lf(last_before, last), |found, (before, bytes)| found | has_bare_lf(before, bytes))
}

/// Returns the fault of bytes that are not a valid head, or `None` if more bytes can complete them.
#[cold]
fn find_fault(within: &[u8], is_past_limit: bool, limits: &Limits) -> Option<Refusal> {
    let (length, has_bare_lf) = whole_lines(within);
    let lines = within.get(..length).unwrap_or(within);
    let mut found = uninitialised();
    let storage = found.get_mut(..limits.max_headers.min(ServerConfig::MAX_HEADERS)).unwrap_or_default();
    let mut request = httparse::Request::new(&mut []);
    let parsed = request.parse_with_uninit_headers(lines, storage);
    if request.path.is_some_and(|target| !syntax::is_target(target.as_bytes())) {
        return Some(INVALID_TARGET);
    }
    match parsed {
        Err(httparse::Error::Version) => Some(wrong_version(lines)),
        Err(error) => Some(parser_refusal(error)),
        Ok(_) if has_bare_lf => Some(bad_request("A line ends in a bare LF.")),
        Ok(_) if lines.is_empty() && !may_start_with_method(within) => Some(parser_refusal(httparse::Error::Token)),
        Ok(_) if is_past_limit => Some(too_long(lines, within)),
        Ok(_) => None,
    }
}

/// Returns the number of bytes in complete lines, up to the first line that does not end in CRLF, and whether there is
/// such a line.
fn whole_lines(within: &[u8]) -> (usize, bool) {
    let mut length = 0_usize;
    for lf in memchr::memchr_iter(b'\n', within) {
        length = lf.saturating_add(1);
        if within.get(lf.wrapping_sub(1)) != Some(&b'\r') {
            return (length, true);
        }
    }
    (length, false)
}

/// Whether a request line may begin with these bytes.
fn may_start_with_method(line: &[u8]) -> bool {
    match line.iter().take(METHOD_CHECK).position(|&b| !is_token(b)) {
        None => true,
        Some(at) => at > 0 && line.get(at) == Some(&b' '),
    }
}

const INVALID_TARGET: Refusal = bad_request("The request target has a byte that no target may have.");

fn parser_refusal(error: httparse::Error) -> Refusal {
    match error {
        httparse::Error::TooManyHeaders => {
            refusal(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "There are more header fields than this server takes.")
        }
        httparse::Error::HeaderName => bad_request("A header field's name is not valid."),
        httparse::Error::HeaderValue => bad_request("A header field's value is not valid."),
        httparse::Error::NewLine => bad_request("A line does not end in CRLF."),
        _ => bad_request("The request line is not valid."),
    }
}

/// The refusal of a head that exceeds its limit. `within`: the bytes up to the limit. `lines`: the whole lines in these
/// bytes.
fn too_long(lines: &[u8], within: &[u8]) -> Refusal {
    if !lines.is_empty() {
        return refusal(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "The head is longer than this server takes.");
    }
    let method = within.split(|&b| b == b' ').next().unwrap_or_default();
    if !method.iter().all(|&b| is_token(b)) {
        parser_refusal(httparse::Error::Token)
    } else if method.len() == within.len() {
        refusal(StatusCode::NOT_IMPLEMENTED, "The method is longer than any known here.")
    } else {
        refusal(StatusCode::URI_TOO_LONG, "The request line is longer than this server takes.")
    }
}

/// Distinguishes a valid version that the server does not support from an invalid one.
fn wrong_version(lines: &[u8]) -> Refusal {
    let nonsense = bad_request("The request line is not a method, a target and an HTTP version.");
    let line = memchr::memchr(b'\n', lines).and_then(|end| lines.get(..end));
    let Some(line) = line.and_then(|line| line.strip_suffix(b"\r")) else { return nonsense };
    let mut parts = line.split(|&b| b == b' ');
    let (Some(method), Some(target), Some(version), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return nonsense;
    };
    match version {
        [b'H', b'T', b'T', b'P', b'/', major @ b'1'..=b'9', b'.', minor @ b'0'..=b'9'] => {
            if (method, target, *major, *minor) == (b"PRI".as_slice(), b"*".as_slice(), b'2', b'0') {
                bad_request("HTTP/2 is not spoken here.")
            } else {
                refusal(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "This server speaks HTTP/1.1.")
            }
        }
        _ => nonsense,
    }
}

/// The parts of a request line.
#[derive(Clone, Copy, Debug)]
pub struct RequestLine<'a> {
    /// The name of the method.
    pub method: &'a str,
    /// The target as the client sent it.
    pub target: &'a str,
    /// The version.
    pub version: Version,
}

/// Validates a complete head of `length` bytes: its target, host, framing, method and expectation. Returns the first fault. The
/// connection must close after the answer.
fn validate_head<'a>(length: usize, line: &RequestLine<'a>, headers: Headers<'a>) -> Result<Parsed<'a>, Refusal> {
    if !syntax::is_target(line.target.as_bytes()) {
        return Err(INVALID_TARGET);
    }
    let connection = ConnectionFields::read(headers)?;
    match connection.host {
        None if line.version == Version::HTTP_11 => return Err(bad_request("The Host header field is missing.")),
        Some(host) if !syntax::is_host(host) => check_host(host, line.target)?,
        _ => {}
    }
    let framing = connection.framing(line.version)?;
    let Some(method) = known_method(line.method) else {
        return Err(refusal(StatusCode::NOT_IMPLEMENTED, "The method is not known here."));
    };
    check_target(method, line.target)?;
    let expects_continue = connection.expects_continue(line.version)?;
    let keep_alive = connection.keeps_alive(line.version);
    let head = Head { method, target: line.target, version: line.version, headers, certificate: None };
    Ok(Parsed { head, method, length, framing, keep_alive, expects_continue })
}

/// Checks a `Host` that names no host. It is valid only for a target without an authority (RFC 9112, 3.2), and an http URL has
/// one (RFC 9110, 4.2.1).
fn check_host(host: &[u8], target: &str) -> Result<(), Refusal> {
    match syntax::read_authority(host) {
        Some(syntax::Authority::Empty) if target == "*" => Ok(()),
        Some(_) => Err(bad_request("The Host header field names no host.")),
        None => Err(bad_request("The Host header field is not valid.")),
    }
}

/// Applies the rules for a head of HTTP/1.1 to one that was split into its parts by another decoder, such as one of HTTP/2.
///
/// # Errors
///
/// Returns the [`Refusal`] that [`head`] returns for such a head.
pub fn check_parts(line: &RequestLine<'_>, headers: Headers<'_>) -> Result<(), Refusal> {
    validate_head(0, line, headers).map(drop)
}

/// Checks the form of a target (RFC 9112, 3.2): origin form, absolute form, or `*` for OPTIONS. The service interprets
/// the path.
fn check_target(method: &Method, target: &str) -> Result<(), Refusal> {
    if target.starts_with('/') || (target == "*" && method == Method::OPTIONS) {
        return Ok(());
    }
    let absolute = target.split_once("://").is_some_and(|(scheme, rest)| {
        let known = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        known && syntax::read_authority(authority.as_bytes()) == Some(syntax::Authority::Host)
    });
    if absolute { Ok(()) } else { Err(bad_request("The request target is neither a path nor an http URL.")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { max_head: 120, max_headers: 3, max_body: 10 };

    /// The length of the head, or the refusal; `None` if the head is partial.
    fn outcome(input: &[u8], limits: &Limits) -> Option<Result<usize, Refusal>> {
        let mut fields = Fields::new();
        match head(input, limits, &mut fields) {
            Decoded::Partial => None,
            Decoded::Head(parsed) => Some(Ok(parsed.length)),
            Decoded::Refused(refusal) => Some(Err(refusal)),
        }
    }

    /// The result for a prefix changes only at the points that the module header names.
    #[test]
    fn a_prefix_is_partial_or_has_the_result_of_the_whole() {
        let many = "a:\r\n".repeat(4);
        let long = "x".repeat(200);
        for input in [
            "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\nGET / HTTP/1.1\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\nHost: a\r\nX y\r\n\n".to_owned(),
            "GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n".to_owned(),
            "GET /\u{e9} HTTP/7.7\r\nHost: a\r\n\n".to_owned(),
            "GET / HTTP/7.7\r\nHost : a\r\n\r\n".to_owned(),
            format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\n\r\n"),
            format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}\0\r\n\r\n"),
            format!("GET /{long} HTTP/1.1\r\n\r\n"),
            "\u{16}\u{3}\u{1}".to_owned(),
        ] {
            let expected = outcome(input.as_bytes(), &LIMITS);
            assert!(expected.is_some(), "{input:?} is decided");
            let mut before = None;
            for length in 0..=input.len() {
                let now = outcome(&input.as_bytes()[..length], &LIMITS);
                assert!(now.is_none() || now == expected, "{length} bytes of {input:?}: {now:?}, not {expected:?}");
                if now != before {
                    let ends_a_line = input.as_bytes()[length - 1] == b'\n';
                    assert!(
                        ends_a_line || length <= METHOD_CHECK || length == LIMITS.max_head + 1,
                        "at {length} of {input:?}"
                    );
                }
                before = now;
            }
        }
    }

    #[test]
    fn limits_beyond_the_storage_are_capped() {
        let limits = Limits { max_head: usize::MAX, max_headers: usize::MAX, ..LIMITS };
        let head_with = |count: usize| format!("GET / HTTP/1.0\r\n{}\r\n", "a:\r\n".repeat(count));
        assert!(matches!(outcome(head_with(ServerConfig::MAX_HEADERS).as_bytes(), &limits), Some(Ok(_))));
        let refused = outcome(head_with(ServerConfig::MAX_HEADERS + 1).as_bytes(), &limits);
        assert!(matches!(refused, Some(Err(Refusal { status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, .. }))));
    }
}
