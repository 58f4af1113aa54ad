//! Heads of requests. Each read parses the head again from its start. This is slow, but short and independent of the codec.

use polyserve_core::http::{Method, StatusCode, Version};
use polyserve_core::{Head, Header, Headers, ServerConfig, known_method};
use polyserve_serving::memory::MethodClass;

use super::Flaw;

/// A request that is refused before the service is called. Each refusal ends its connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestError {
    pub(super) status: StatusCode,
    pub(super) detail: &'static str,
}

pub(super) fn refuse<T>(status: StatusCode, detail: &'static str) -> Result<T, RequestError> {
    Err(RequestError { status, detail })
}

/// A valid head.
#[derive(Clone, Debug)]
pub(super) struct ParsedHead {
    method: &'static Method,
    target: String,
    version: Version,
    fields: Vec<(String, Vec<u8>)>,
    /// The offset of its end.
    pub(super) end: usize,
    pub(super) framing: Framing,
    /// Whether the connection stays open after the answer.
    pub(super) keeps: bool,
    /// Whether the client waits for a `100 Continue`.
    pub(super) expects: bool,
}

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length(usize),
    Chunked,
}

impl ParsedHead {
    pub(super) fn is_head(&self) -> bool {
        self.method == Method::HEAD
    }

    /// Returns the head with this method.
    pub(super) fn with_method(&self, method: &'static Method) -> Self {
        Self { method, ..self.clone() }
    }

    pub(super) fn is_patch(&self) -> bool {
        self.method == Method::PATCH
    }

    pub(super) fn method_class(&self) -> MethodClass {
        MethodClass::of(self.method)
    }

    pub(super) fn is_safe(&self) -> bool {
        matches!(*self.method, Method::GET | Method::HEAD | Method::OPTIONS)
    }

    pub(super) fn is_1_0(&self) -> bool {
        self.version == Version::HTTP_10
    }

    /// Calls `f` with the head as services see it.
    pub(super) fn with_head<T>(&self, f: impl FnOnce(Head<'_>) -> T) -> T {
        let fields: Vec<Header<'_>> = self.fields.iter().map(|(name, value)| Header { name, value }).collect();
        let headers = Headers::new(&fields);
        f(Head { method: self.method, target: &self.target, version: self.version, headers })
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.fields.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_slice())
    }

    fn members<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Vec<u8>> {
        let members = self.all(name).flat_map(|value| value.split(|b| *b == b','));
        members.map(|member| member.trim_ascii().to_ascii_lowercase())
    }
}

/// Parses the head at the start of `input`. Returns `None` if it has not ended.
pub(super) fn parse(
    input: &[u8],
    config: &ServerConfig,
    flaw: Option<Flaw>,
) -> Result<Option<ParsedHead>, RequestError> {
    let start = if input.starts_with(b"\r\n") { 2 } else { 0 };
    let mut lines = Vec::new();
    let mut at = start;
    loop {
        let Some(end) = line(input, at, lines.is_empty(), flaw)? else {
            return if input.len() - start > config.max_head {
                too_long(&input[start..], &lines, flaw)
            } else {
                Ok(None)
            };
        };
        if end - start > config.max_head {
            return too_long(&input[start..], &lines, flaw);
        }
        let bytes = &input[at..end];
        at = end;
        match bytes.strip_suffix(b"\r\n").or(bytes.strip_suffix(b"\n")) {
            Some(b"") if lines.is_empty() => return refuse(StatusCode::BAD_REQUEST, "There is no request line."),
            Some(b"") => break,
            Some(bytes) => lines.push(bytes),
            None => return Ok(None),
        }
    }
    let (method, target, version) = request_line(lines[0], flaw)?;
    if lines.len() - 1 > config.max_headers {
        return refuse(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "There are too many header fields.");
    }
    let fields = lines[1..].iter().map(|line| field(line, flaw)).collect::<Result<Vec<_>, RequestError>>()?;
    let framing = Framing::Length(0);
    let mut parsed = ParsedHead { method, target, version, fields, end: at, framing, keeps: false, expects: false };
    if flaw != Some(Flaw::TakesTwoHosts) || parsed.all("Host").count() == 0 {
        check_host(&parsed)?;
    }
    parsed.framing = framing_of(&parsed, config, flaw)?;
    let has_option = |option: &[u8]| parsed.members("Connection").any(|member| member == option);
    parsed.keeps = !has_option(b"close") && (version == Version::HTTP_11 || has_option(b"keep-alive"));
    parsed.keeps &= flaw != Some(Flaw::ClosesAfterChunks) || !matches!(parsed.framing, Framing::Chunked);
    parsed.expects = expects(&parsed)?;
    let is_json = |media_type: &[u8]| media_type.eq_ignore_ascii_case(b"application/json");
    if flaw == Some(Flaw::TakesOnlyJson) && !parsed.all("Content-Type").all(is_json) {
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "The body is no JSON.");
    }
    let dropped: &[&str] = match flaw {
        Some(Flaw::DropsConditions) => &["If-Match", "If-None-Match"],
        Some(Flaw::DropsContentType) => &["Content-Type"],
        Some(Flaw::DropsContentRange) => &["Content-Range"],
        _ => &[],
    };
    parsed.fields.retain(|(name, _)| !dropped.iter().any(|dropped| dropped.eq_ignore_ascii_case(name)));
    Ok(Some(parsed))
}

fn too_long<T>(input: &[u8], lines: &[&[u8]], flaw: Option<Flaw>) -> Result<T, RequestError> {
    let method = input.iter().take_while(|byte| **byte != b' ').count();
    let long = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len()).min(method) > LONG_METHOD;
    if lines.is_empty() && long && is_token(&input[..method]) && flaw != Some(Flaw::Answers414ToLongMethods) {
        refuse(StatusCode::NOT_IMPLEMENTED, "The method is not known here.")
    } else if lines.is_empty() {
        refuse(StatusCode::URI_TOO_LONG, "The target is too long.")
    } else {
        refuse(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "The head is too long.")
    }
}

/// Longer than any known method.
const LONG_METHOD: usize = 16;

/// Returns the end of the line that begins at `from`, after its line end. Refuses a byte that is invalid in a line at once.
fn line(input: &[u8], from: usize, first: bool, flaw: Option<Flaw>) -> Result<Option<usize>, RequestError> {
    for (at, &byte) in input.iter().enumerate().skip(from) {
        let after_cr = at > from && input[at - 1] == b'\r';
        match byte {
            b'\n' if after_cr || flaw == Some(Flaw::TakesBareLf) => return Ok(Some(at + 1)),
            _ if after_cr => return refuse(StatusCode::BAD_REQUEST, "A CR stands alone."),
            b'\r' => {}
            b'\t' if !first => {}
            0..b' ' | 0x7f => return refuse(StatusCode::BAD_REQUEST, "A control byte stands in the head."),
            _ => {}
        }
    }
    Ok(None)
}

fn request_line(line: &[u8], flaw: Option<Flaw>) -> Result<(&'static Method, String, Version), RequestError> {
    let parts: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    let &[method, target, version] = parts.as_slice() else {
        return refuse(StatusCode::BAD_REQUEST, "The request line has not three parts.");
    };
    let (method, Ok(target)) = (String::from_utf8_lossy(method), String::from_utf8(target.to_vec())) else {
        return refuse(StatusCode::BAD_REQUEST, "The target is no text.");
    };
    if !is_token(method.as_bytes()) || target.is_empty() {
        return refuse(StatusCode::BAD_REQUEST, "The method is no token, or there is no target.");
    }
    let target = match (flaw, target.split_once('#')) {
        (Some(Flaw::CutsFragments), Some((before, _))) => before.to_owned(),
        _ => target,
    };
    let (path, query) = target.split_at(target.find('?').unwrap_or(target.len()));
    let is_query = match flaw {
        Some(Flaw::TakesOnlyUriQueries) => is_uri(query.as_bytes()),
        _ => !query.contains(['"', '#', '<', '>']),
    };
    if (!is_uri(path.as_bytes()) || !is_query) && flaw != Some(Flaw::TakesAnyTarget) {
        return refuse(StatusCode::BAD_REQUEST, "The target holds a byte that no URI holds.");
    }
    let version = match version {
        b"HTTP/1.1" => Version::HTTP_11,
        b"HTTP/1.0" => Version::HTTP_10,
        b"HTTP/2.0" if method == "PRI" => return refuse(StatusCode::BAD_REQUEST, "This server speaks HTTP/1.1 only."),
        [b'H', b'T', b'T', b'P', b'/', b'1'..=b'9', b'.', b'0'..=b'9'] => {
            return refuse(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "This server speaks HTTP/1.1.");
        }
        _ => return refuse(StatusCode::BAD_REQUEST, "The version is none."),
    };
    let Some(method) = known_method(&method) else {
        return refuse(StatusCode::NOT_IMPLEMENTED, "The method is not known here.");
    };
    let absolute = ["http://", "https://"]
        .iter()
        .any(|scheme| target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)));
    if !(target.starts_with('/') || absolute || (target == "*" && method == Method::OPTIONS)) {
        return refuse(StatusCode::BAD_REQUEST, "The target has no form that this method allows.");
    }
    if absolute && target.matches('/').count() == 2 && flaw == Some(Flaw::AddsASlashToUrls) {
        return Ok((method, target + "/", version));
    }
    Ok((method, target, version))
}

fn field(line: &[u8], flaw: Option<Flaw>) -> Result<(String, Vec<u8>), RequestError> {
    let Some(colon) = line.iter().position(|b| *b == b':') else {
        return refuse(StatusCode::BAD_REQUEST, "A field has no colon.");
    };
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let name = if flaw == Some(Flaw::TakesSpaceBeforeColon) { name.trim_ascii_end() } else { name };
    if !is_token(name) {
        return refuse(StatusCode::BAD_REQUEST, "A field's name is no token.");
    }
    Ok((String::from_utf8_lossy(name).into_owned(), value.trim_ascii().to_vec()))
}

pub(super) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b))
}

fn check_host(parsed: &ParsedHead) -> Result<(), RequestError> {
    let hosts: Vec<&[u8]> = parsed.all("Host").collect();
    match hosts.as_slice() {
        [] if parsed.is_1_0() => Ok(()),
        [host] if is_host(host) => Ok(()),
        _ => refuse(StatusCode::BAD_REQUEST, "There is not exactly one valid Host."),
    }
}

/// Whether a URI without a fragment may hold these bytes.
fn is_uri(bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(at, byte)| match byte {
        b'%' => matches!(bytes.get(at + 1..at + 3), Some([a, b]) if a.is_ascii_hexdigit() && b.is_ascii_hexdigit()),
        byte => byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?[]".contains(byte),
    })
}

/// `host [ ":" port ]` by RFC 3986.
fn is_host(host: &[u8]) -> bool {
    let name = |b: &u8| b.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(b);
    let (host, port) = match host {
        [b'[', rest @ ..] => {
            let Some(end) = rest.iter().position(|b| *b == b']') else { return false };
            (&b"v6"[..], &rest[end + 1..])
        }
        _ => host.split_at(host.iter().position(|b| *b == b':').unwrap_or(host.len())),
    };
    let port_is_good = match port {
        [] => true,
        [b':', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    host.iter().all(name) && port_is_good
}

fn framing_of(parsed: &ParsedHead, config: &ServerConfig, flaw: Option<Flaw>) -> Result<Framing, RequestError> {
    let lengths: Vec<&[u8]> = parsed.all("Content-Length").collect();
    if parsed.all("Transfer-Encoding").next().is_some() {
        return coding(parsed, lengths.is_empty() || flaw == Some(Flaw::TakesLengthWithChunked));
    }
    let Some(first) = lengths.first() else { return Ok(Framing::Length(0)) };
    let is_number = !first.is_empty() && first.iter().all(u8::is_ascii_digit);
    if !is_number || lengths.iter().any(|length| length != first) {
        return refuse(StatusCode::BAD_REQUEST, "The Content-Length is not one number.");
    }
    let length = std::str::from_utf8(first).ok().and_then(|digits| digits.parse().ok()).unwrap_or(usize::MAX);
    if length > config.max_body {
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, "The body is too large.");
    }
    Ok(Framing::Length(length))
}

fn coding(parsed: &ParsedHead, without_length: bool) -> Result<Framing, RequestError> {
    let codings: Vec<Vec<u8>> = parsed.members("Transfer-Encoding").collect();
    let chunked_count = codings.iter().filter(|coding| *coding == b"chunked").count();
    let is_last = codings.last().is_some_and(|last| last == b"chunked");
    if parsed.is_1_0() || !without_length || !is_last || chunked_count > 1 {
        return refuse(StatusCode::BAD_REQUEST, "Where the body ends is in doubt.");
    }
    if codings.len() > 1 {
        return refuse(StatusCode::NOT_IMPLEMENTED, "The transfer coding is not known here.");
    }
    Ok(Framing::Chunked)
}

fn expects(parsed: &ParsedHead) -> Result<bool, RequestError> {
    let mut expectations = parsed.all("Expect").filter(|_| !parsed.is_1_0());
    match expectations.next() {
        None => Ok(false),
        Some(value) if value.eq_ignore_ascii_case(b"100-continue") && expectations.next().is_none() => Ok(true),
        Some(_) => refuse(StatusCode::EXPECTATION_FAILED, "This expectation cannot be met."),
    }
}
