//! A request as a service gets it. All its parts are borrowed; none is allocated.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use http::{Method, Version};

use super::{ClientCertificate, KeptFields, RequestNotes, TraceId};

/// Whether a byte may stand in a token (RFC 9110, 5.6.2): a method, a field name, a part of a media type.
///
/// ```
/// use polyserve_core::is_token;
/// assert!(b"merge-patch+json".iter().all(|&byte| is_token(byte)) && !is_token(b'/'));
/// ```
#[inline]
pub fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Returns the method of this name, if it reaches a service: the methods of RFC 9110 except CONNECT and TRACE, and PATCH of
/// RFC 5789. A server answers others with 501. Names are case-sensitive.
///
/// ```
/// use polyserve_core::http::Method;
/// use polyserve_core::known_method;
/// assert_eq!((known_method("PATCH"), known_method("patch")), (Some(&Method::PATCH), None));
/// ```
#[inline]
pub fn known_method(name: &str) -> Option<&'static Method> {
    Some(match name {
        "GET" => &Method::GET,
        "PUT" => &Method::PUT,
        "HEAD" => &Method::HEAD,
        "POST" => &Method::POST,
        "DELETE" => &Method::DELETE,
        "OPTIONS" => &Method::OPTIONS,
        "PATCH" => &Method::PATCH,
        _ => return None,
    })
}

/// A header field of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// The name, in the case in which it was sent.
    pub name: &'a str,
    /// The value, without the space around it.
    pub value: &'a [u8],
}

impl fmt::Debug for Header<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, String::from_utf8_lossy(self.value))
    }
}

/// The header fields of a request, in the order in which they were sent.
///
/// ```
/// use polyserve_core::{Header, Headers};
/// use polyserve_core::http::header::ACCEPT;
///
/// let fields = [Header { name: "Accept", value: b"text/plain" }, Header { name: "accept", value: b"text/html" }];
/// let headers = Headers::new(&fields);
/// assert_eq!(headers.get(&ACCEPT), Some(&b"text/plain"[..]));
/// assert_eq!((headers.all(&ACCEPT).count(), headers.get("X-Request-Id")), (2, None));
/// ```
#[derive(Clone, Copy)]
pub struct Headers<'a>(HeaderList<'a>);

#[derive(Clone, Copy)]
enum HeaderList<'a> {
    Fields(&'a [Header<'a>]),
    Kept(&'a KeptFields),
}

impl<'a> Headers<'a> {
    /// Wraps `fields`. Their names must be tokens.
    #[inline]
    pub fn new(fields: &'a [Header<'a>]) -> Self {
        Self(HeaderList::Fields(fields))
    }

    /// Wraps fields that were kept. Their names must be tokens.
    #[inline]
    pub fn kept(fields: &'a KeptFields) -> Self {
        Self(HeaderList::Kept(fields))
    }

    /// Returns the first value of the field `name`: a [`HeaderName`](http::HeaderName), or a text in any case.
    ///
    /// Cost: a comparison with the names of the fields. No allocation.
    #[inline]
    pub fn get(self, name: &(impl AsRef<str> + ?Sized)) -> Option<&'a [u8]> {
        self.all(name).next()
    }

    /// Returns every value of the field `name`, as [`get`](Self::get) does.
    #[inline]
    pub fn all(self, name: &(impl AsRef<str> + ?Sized)) -> impl Iterator<Item = &'a [u8]> {
        let name = name.as_ref();
        self.iter().filter(move |(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Returns the names and values of all fields.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let (fields, kept): (&[_], _) = match self.0 {
            HeaderList::Fields(fields) => (fields, None),
            HeaderList::Kept(kept) => (&[], Some(kept)),
        };
        fields.iter().map(|field| (field.name, field.value)).chain(kept.into_iter().flat_map(KeptFields::iter))
    }

    /// Returns the lengths of all names as bits: the bit of the number n is set if a name has n bytes, and bit 63 if one has more than 62.
    ///
    /// For a look at once whether fields that are seldom sent may be there. Cost: none if the fields were kept.
    ///
    /// ```
    /// use polyserve_core::{Header, Headers};
    /// assert_eq!(Headers::new(&[Header { name: "Host", value: b"a" }]).name_lengths(), 1 << 4);
    /// ```
    #[inline]
    pub fn name_lengths(self) -> u64 {
        match self.0 {
            HeaderList::Fields(fields) => fields.iter().fold(0, |bits, field| bits | name_length_bit(field.name)),
            HeaderList::Kept(kept) => kept.name_lengths,
        }
    }
}

/// The bit of a name in [`Headers::name_lengths`].
#[inline]
pub(super) const fn name_length_bit(name: &str) -> u64 {
    let length = name.len();
    1 << if length < 63 { length } else { 63 }
}

impl fmt::Debug for Headers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(name, value)| (name, String::from_utf8_lossy(value)))).finish()
    }
}

/// The head of a request.
///
/// ```
/// use polyserve_core::{Head, Headers};
/// use polyserve_core::http::{Method, Version};
/// let head = Head { method: &Method::GET, target: "/a?b=c", version: Version::HTTP_11, headers: Headers::new(&[]), certificate: None };
/// assert_eq!((head.path(), head.query()), ("/a", Some("b=c")));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The method.
    pub method: &'a Method,
    /// The request target as the client sent it: `/path?query`, `http://host/path` or `*`. Up to the query its bytes are those
    /// of a URI, and each `%` is followed by two hexadecimal digits. The query may have other bytes too, as browsers send them.
    pub target: &'a str,
    /// The version.
    pub version: Version,
    /// The header fields.
    pub headers: Headers<'a>,
    /// The certificate of the client, if the server asks for one.
    pub certificate: Option<&'a ClientCertificate>,
}

impl<'a> Head<'a> {
    /// Returns the path of the target, without scheme, authority and query. It is not decoded. `*` is the whole server; OPTIONS
    /// also names it by an URL with neither path nor query (RFC 9112, 3.2.4).
    #[inline]
    pub fn path(&self) -> &'a str {
        // For a short text, a search by blocks costs more.
        const SHORT: usize = 16;
        let path = match self.target.as_bytes().first() {
            Some(b'/' | b'*') | None => self.target,
            Some(_) => after_authority(self.target, self.method),
        };
        let query = match path.as_bytes() {
            short if short.len() <= SHORT => short.iter().position(|&byte| byte == b'?'),
            long => memchr::memchr(b'?', long),
        };
        match query {
            Some(end) => path.get(..end).unwrap_or(path),
            None => path,
        }
    }

    /// Returns the query of the target, if there is one. It is not decoded.
    pub fn query(&self) -> Option<&'a str> {
        self.target.split_once('?').map(|(_, query)| query)
    }
}

/// Returns the path of an absolute-form target. An empty one is `/`, or `*` in OPTIONS without a query.
fn after_authority<'a>(target: &'a str, method: &Method) -> &'a str {
    let rest = target.split_once("://").map_or(target, |(_, rest)| rest);
    match rest.find(['/', '?']) {
        Some(at) if rest.as_bytes().get(at) == Some(&b'/') => rest.get(at..).unwrap_or("/"),
        None if method == Method::OPTIONS => "*",
        _ => "/",
    }
}

/// A request with its complete body.
///
/// ```
/// use polyserve_core::{Head, Headers, Request};
/// use polyserve_core::http::{Method, Version};
/// let head = Head { method: &Method::GET, target: "/", version: Version::HTTP_11, headers: Headers::new(&[]), certificate: None };
/// let request = Request::new(head, b"").with_peer(Some(([127, 0, 0, 1], 40_000).into()));
/// assert_eq!(request.peer.map(|peer| peer.to_string()), Some(String::from("127.0.0.1:40000")));
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Request<'a> {
    /// The head.
    pub head: Head<'a>,
    /// The body; empty if there is none.
    pub body: &'a [u8],
    /// The address of the connection's other end: the client, or a proxy in front of this server. `None` if the client had
    /// left when the server looked, if the request did not come from a socket, or if the service does not
    /// [see it](super::Service::sees_peers).
    pub peer: Option<SocketAddr>,
    /// Whether the server is shutting down. A health check answers 503 then, so that a load balancer sends no more requests.
    pub draining: bool,
    /// `None` unless the server reports its answers.
    notes: Option<&'a RequestNotes>,
    /// `None` unless the server has an overload policy.
    arrived: Option<Instant>,
    max_body: usize,
}

impl<'a> Request<'a> {
    /// A request that did not come from a socket.
    #[inline]
    pub fn new(head: Head<'a>, body: &'a [u8]) -> Self {
        Self { head, body, peer: None, draining: false, notes: None, arrived: None, max_body: usize::MAX }
    }

    /// Sets whether the server is shutting down.
    #[inline]
    #[must_use]
    pub fn with_draining(self, draining: bool) -> Self {
        Self { draining, ..self }
    }

    /// Sets the place in which a service notes what it finds out. For the author of a server.
    #[inline]
    #[must_use]
    pub fn with_notes(self, notes: Option<&'a RequestNotes>) -> Self {
        Self { notes, ..self }
    }

    /// Sets the time since which the server could have begun with the request. For the author of a server.
    #[inline]
    #[must_use]
    pub fn with_arrived(self, arrived: Option<Instant>) -> Self {
        Self { arrived, ..self }
    }

    /// Returns the time since which the server could have begun with the request: when its socket was readable, or its connection was
    /// accepted. `None` if the server does not know, or has no overload policy.
    #[inline]
    pub fn arrived(&self) -> Option<Instant> {
        self.arrived
    }

    /// Sets the limit of the server for the body of a request in bytes. For the author of a server.
    #[inline]
    #[must_use]
    pub fn with_max_body(self, max_body: usize) -> Self {
        Self { max_body, ..self }
    }

    /// Returns the limit of the server for the body of a request in bytes: a service that stores what grows by several requests keeps to
    /// it, so that a client can store it again. It is [`usize::MAX`] if the request did not come from a server.
    #[inline]
    pub fn max_body(&self) -> usize {
        self.max_body
    }

    /// Notes the user that has sent the request, for the access log and other hooks of answers: [`AnswerReport::user`]. A service calls
    /// it before it returns.
    ///
    /// [`AnswerReport::user`]: crate::AnswerReport::user
    #[inline]
    pub fn note_user(&self, user: &Arc<str>) {
        if let Some(notes) = self.notes {
            notes.set_user(user);
        }
    }

    /// Notes the trace that the request belongs to, for the access log and other hooks of answers: [`AnswerReport::trace`]. A service
    /// calls it before it returns.
    ///
    /// [`AnswerReport::trace`]: crate::AnswerReport::trace
    #[inline]
    pub fn note_trace(&self, trace: TraceId) {
        if let Some(notes) = self.notes {
            notes.set_trace(trace);
        }
    }

    /// Whether the server reports its answers, so that notes are read.
    #[inline]
    pub fn is_reported(&self) -> bool {
        self.notes.is_some()
    }

    /// Sets the address of the connection's other end.
    #[inline]
    #[must_use]
    pub fn with_peer(self, peer: Option<SocketAddr>) -> Self {
        Self { peer, ..self }
    }
}

#[cfg(test)]
mod tests {
    use http::header::HOST;

    use super::*;

    fn head(target: &str) -> Head<'_> {
        Head { method: &Method::GET, target, version: Version::HTTP_11, headers: Headers::new(&[]), certificate: None }
    }

    #[test]
    fn paths_and_queries() {
        for (target, path, query) in [
            ("/1", "/1", None),
            ("/1?a=b?c", "/1", Some("a=b?c")),
            ("*", "*", None),
            ("http://a:1/2?x", "/2", Some("x")),
            ("http://a", "/", None),
            ("http://a?q=/3", "/", Some("q=/3")),
        ] {
            assert_eq!((head(target).path(), head(target).query()), (path, query), "{target}");
        }
        for (target, path) in
            [("http://a", "*"), ("http://a:80", "*"), ("http://a/", "/"), ("http://a?q", "/"), ("/1", "/1")]
        {
            let options = Head { method: &Method::OPTIONS, ..head(target) };
            assert_eq!(options.path(), path, "OPTIONS {target}");
        }
    }

    #[test]
    fn methods_are_case_sensitive_and_names_of_fields_are_not() {
        for name in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
            assert_eq!(known_method(name).unwrap().as_str(), name);
        }
        for name in ["get", "TRACE", "CONNECT", "QUERY", "BREW", ""] {
            assert_eq!(known_method(name), None);
        }
        let fields = [Header { name: "HoSt", value: b"a" }, Header { name: "host", value: b"b" }];
        assert_eq!((Headers::new(&fields).all("Host").count(), Headers::new(&fields).all(&HOST).count()), (2, 2));
        assert_eq!(Headers::new(&fields).get("HOST"), Some(&b"a"[..]));
    }
}
