//! Heads and bodies of requests, decoded by the codec. A flaw in parsing is canned: other bytes, which the codec takes or refuses,
//! stand in place of the client's.

use polyserve_core::http::{Method, StatusCode, Version};
use polyserve_core::{Head, Header, Headers, ServerConfig, known_method};
use polyserve_serving::http1::chunked::Chunked;
use polyserve_serving::http1::decode::{self, Decoded, Fields, Framing, Limits, Refusal};
use polyserve_serving::memory::MethodClass;

use super::Flaw;

fn refuse<T>(status: StatusCode, detail: &'static str) -> Result<T, Refusal> {
    Err(Refusal { status, detail })
}

/// The bytes that a flaw reads in place of others.
fn canned(flaw: Flaw) -> &'static [(&'static str, &'static str)] {
    match flaw {
        Flaw::TakesTwoHosts => &[("Host: a\r\nHost: a\r\n", "Host: a\r\n"), ("Host: a\r\nhost: b\r\n", "Host: a\r\n")],
        Flaw::TakesBareLf => &[("\r\n", "\n"), ("\n", "\r\n")],
        Flaw::TakesBareLfAfterChunks => &[("0\r\n\n", "0\r\n\r\n")],
        Flaw::TakesSpaceBeforeColon => &[(" :", ":"), ("\t:", ":")],
        Flaw::TakesLengthWithChunked => &[
            ("Content-Length: 0\r\n", ""),
            ("Content-Length: 5\r\nTransfer", "Transfer"),
            ("chunked\r\nContent-Length: 5", "chunked"),
            ("content-length: 15\r\n", ""),
            ("Content-Length: 42\r\nTransfer", "Transfer"),
            ("chunked\r\nContent-Length: 42", "chunked"),
        ],
        Flaw::TakesAnyChunkExtension => &[("5;bad[=x", "5")],
        Flaw::TakesAnyTarget => &[("/\"", "/"), ("/a\"", "/a"), ("/<", "/")],
        Flaw::CutsFragments => &[("#", "")],
        Flaw::TakesOnlyUriQueries => &[("{", "\0")],
        Flaw::AddsASlashToUrls => {
            &[("http://a HTTP", "http://a/ HTTP"), (":80 HTTP", ":80/ HTTP"), ("] HTTP", "]/ HTTP")]
        }
        _ => &[],
    }
}

/// Returns the bytes that a server with this flaw reads in place of `bytes`.
pub(super) fn read_as(bytes: &[u8], flaw: Option<Flaw>) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (from, to) in flaw.map_or(&[][..], canned) {
        let mut at = 0;
        while let Some(found) = bytes[at..].windows(from.len()).position(|window| window == from.as_bytes()) {
            bytes.splice(at + found..at + found + from.len(), to.bytes());
            at += found + to.len();
        }
    }
    bytes
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
}

/// Parses the head at the start of `input`, which is no empty line. Returns `None` if it has not ended.
pub(super) fn parse(input: &[u8], config: &ServerConfig, flaw: Option<Flaw>) -> Result<Option<ParsedHead>, Refusal> {
    let mut fields = Fields::new();
    let parsed = match decode::head(input, &Limits::from(config), &mut fields) {
        _ if input == b"\r" => return Ok(None),
        Decoded::Partial => return Ok(None),
        Decoded::Refused(refusal) => return Err(refusal),
        Decoded::Head(parsed) => parsed,
    };
    if matches!(parsed.framing, Framing::Length(length) if length > config.max_body as u64) {
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, "The body is too large.");
    }
    let field = |(name, value): (&str, &[u8])| (name.to_owned(), value.to_vec());
    let mut head = ParsedHead {
        method: known_method(parsed.head.method.as_str()).expect("the codec knows the same methods"),
        target: parsed.head.target.to_owned(),
        version: parsed.head.version,
        fields: parsed.head.headers.iter().map(field).collect(),
        end: parsed.length,
        framing: parsed.framing,
        keeps: parsed.keep_alive,
        expects: parsed.expects_continue,
    };
    head.keeps &= flaw != Some(Flaw::ClosesAfterChunks) || head.framing != Framing::Chunked;
    let is = |name: &str, others: &[&str]| others.iter().any(|other| other.eq_ignore_ascii_case(name));
    let is_json = |value: &[u8]| value.eq_ignore_ascii_case(b"application/json");
    let is_no_json = head.fields.iter().any(|(name, value)| is(name, &["Content-Type"]) && !is_json(value));
    if flaw == Some(Flaw::TakesOnlyJson) && is_no_json {
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "The body is no JSON.");
    }
    let dropped: &[&str] = match flaw {
        Some(Flaw::DropsConditions) => &["If-Match", "If-None-Match"],
        Some(Flaw::DropsContentType) => &["Content-Type"],
        Some(Flaw::DropsContentRange) => &["Content-Range"],
        _ => &[],
    };
    head.fields.retain(|(name, _)| !is(name, dropped));
    Ok(Some(head))
}

/// A body that is being read.
#[derive(Debug)]
pub(super) struct PartialBody {
    pub(super) body: Vec<u8>,
    /// The missing bytes of a body with a length.
    missing: u64,
    chunks: Option<Chunked>,
}

impl PartialBody {
    pub(super) fn new(framing: Framing) -> Self {
        let (missing, chunks) = match framing {
            Framing::Length(length) => (length, None),
            Framing::Chunked => (0, Some(Chunked::new())),
        };
        Self { body: Vec::new(), missing, chunks }
    }

    /// Reads what it can from `input`. Returns whether the body is complete.
    pub(super) fn take(
        &mut self,
        input: &mut Vec<u8>,
        config: &ServerConfig,
        flaw: Option<Flaw>,
    ) -> Result<bool, Refusal> {
        let mut limits = Limits::from(config);
        if flaw == Some(Flaw::TakesAnyChunkedLength) {
            limits.max_body = usize::MAX;
        }
        let is_complete = match &mut self.chunks {
            Some(chunks) => {
                let used = chunks.decode(input, &mut self.body, &limits)?;
                input.drain(..used);
                chunks.is_done()
            }
            None => {
                let count = input.len().min(usize::try_from(self.missing).unwrap_or(usize::MAX));
                self.body.extend(input.drain(..count));
                self.missing -= count as u64;
                self.missing == 0 || flaw == Some(Flaw::NeedsHeadAndBodyInOneRead)
            }
        };
        if flaw == Some(Flaw::TakesOnlyOneLine) && self.body.contains(&b'\n') {
            return refuse(StatusCode::BAD_REQUEST, "The body has a line break.");
        }
        let levels = || self.body.iter().filter(|b| b"[{".contains(b)).count();
        if flaw == Some(Flaw::LimitsNesting) && levels() > 64 {
            return refuse(StatusCode::BAD_REQUEST, "The body has too many levels.");
        }
        Ok(is_complete)
    }
}
