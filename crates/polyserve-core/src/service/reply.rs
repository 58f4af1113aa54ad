//! The reply of a service.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use crate::condition::ETag;

/// A status code that a service may answer with: 200 to 599.
///
/// ```
/// use polyserve_core::Status;
/// assert_eq!(Status::new(404), Some(Status::NOT_FOUND));
/// assert_eq!((Status::NOT_FOUND.code(), Status::NOT_FOUND.reason()), (404, "Not Found"));
/// assert!(Status::new(99).is_none() && Status::NO_CONTENT.is_bodiless());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Status(u16);

macro_rules! statuses {
    ($($code:literal $name:ident $reason:literal,)*) => {
        #[allow(missing_docs)]
        impl Status {
            $(pub const $name: Self = Self($code);)*

            /// Returns the reason phrase, or an empty text if the code has no common one.
            pub fn reason(self) -> &'static str {
                match self.0 {
                    $($code => $reason,)*
                    _ => "",
                }
            }
        }
    };
}

statuses! {
    200 OK "OK",
    201 CREATED "Created",
    202 ACCEPTED "Accepted",
    204 NO_CONTENT "No Content",
    206 PARTIAL_CONTENT "Partial Content",
    301 MOVED_PERMANENTLY "Moved Permanently",
    302 FOUND "Found",
    303 SEE_OTHER "See Other",
    304 NOT_MODIFIED "Not Modified",
    307 TEMPORARY_REDIRECT "Temporary Redirect",
    308 PERMANENT_REDIRECT "Permanent Redirect",
    400 BAD_REQUEST "Bad Request",
    401 UNAUTHORIZED "Unauthorized",
    403 FORBIDDEN "Forbidden",
    404 NOT_FOUND "Not Found",
    405 METHOD_NOT_ALLOWED "Method Not Allowed",
    406 NOT_ACCEPTABLE "Not Acceptable",
    408 REQUEST_TIMEOUT "Request Timeout",
    409 CONFLICT "Conflict",
    410 GONE "Gone",
    412 PRECONDITION_FAILED "Precondition Failed",
    413 CONTENT_TOO_LARGE "Content Too Large",
    414 URI_TOO_LONG "URI Too Long",
    415 UNSUPPORTED_MEDIA_TYPE "Unsupported Media Type",
    417 EXPECTATION_FAILED "Expectation Failed",
    422 UNPROCESSABLE_CONTENT "Unprocessable Content",
    429 TOO_MANY_REQUESTS "Too Many Requests",
    431 HEADER_FIELDS_TOO_LARGE "Request Header Fields Too Large",
    500 INTERNAL_SERVER_ERROR "Internal Server Error",
    501 NOT_IMPLEMENTED "Not Implemented",
    502 BAD_GATEWAY "Bad Gateway",
    503 SERVICE_UNAVAILABLE "Service Unavailable",
    504 GATEWAY_TIMEOUT "Gateway Timeout",
    505 VERSION_NOT_SUPPORTED "HTTP Version Not Supported",
    507 INSUFFICIENT_STORAGE "Insufficient Storage",
}

impl Status {
    /// Creates a status from its code. Returns `None` if the code is not in 200 to 599.
    pub fn new(code: u16) -> Option<Self> {
        (200..600).contains(&code).then_some(Self(code))
    }

    /// Returns the numeric code.
    #[inline]
    pub fn code(self) -> u16 {
        self.0
    }

    /// Whether an answer with this status has neither a body nor a `Content-Length` (RFC 9110).
    #[inline]
    pub fn is_bodiless(self) -> bool {
        matches!(self.0, 204 | 304)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, self.reason())
    }
}

/// A reply to a request: status, header fields and body.
///
/// ```
/// use polyserve_core::{Body, Reply, Status};
///
/// let reply = Reply::new(Status::CREATED, "application/json", Body::Owned(b"{}".to_vec()));
/// assert_eq!((reply.status(), reply.body_bytes(&[])), (Status::CREATED, &b"{}"[..]));
/// assert_eq!(Reply::empty(Status::NO_CONTENT).content_type(), None);
/// ```
#[derive(Debug)]
#[must_use]
pub struct Reply {
    pub(crate) status: Status,
    pub(crate) content_type: Option<Cow<'static, str>>,
    pub(crate) etag: Option<ETag>,
    pub(crate) headers: Vec<(Cow<'static, str>, String)>,
    pub(crate) body: Body,
}

/// The body of a reply. More forms may be added. A server takes the bytes of any form from [`Body::into_bytes`] or
/// [`Reply::body_bytes`].
///
/// ```
/// use polyserve_core::Body;
/// assert!(matches!(Body::from("constant"), Body::Static(b"constant")));
/// assert_eq!(&*Body::from(String::from("made")).into_bytes(Vec::new()), b"made");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Body {
    /// The body was appended to the buffer that the service was called with. Valid only in an [`Answer::Now`].
    ///
    /// [`Answer::Now`]: crate::Answer::Now
    InPlace,
    /// A constant.
    Static(&'static [u8]),
    /// Bytes that the reply owns.
    Owned(Vec<u8>),
    /// The number of bytes of a body that was not made. Valid only in the answer to a HEAD, which has no body.
    Omitted(usize),
}

impl Body {
    /// Returns the bytes. `in_place` is the buffer that the service was called with.
    ///
    /// Cost: copies nothing.
    ///
    /// ```
    /// use polyserve_core::Body;
    /// assert_eq!(&*Body::InPlace.into_bytes(b"appended".to_vec()), b"appended");
    /// assert_eq!(&*Body::Static(b"constant").into_bytes(Vec::new()), b"constant");
    /// ```
    pub fn into_bytes(self, in_place: Vec<u8>) -> Cow<'static, [u8]> {
        match self {
            Self::InPlace => Cow::Owned(in_place),
            Self::Static(bytes) => Cow::Borrowed(bytes),
            Self::Owned(bytes) => Cow::Owned(bytes),
            Self::Omitted(_) => Cow::Borrowed(&[]),
        }
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Self::Static(text.as_bytes())
    }
}

impl From<&'static [u8]> for Body {
    fn from(bytes: &'static [u8]) -> Self {
        Self::Static(bytes)
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::Owned(text.into_bytes())
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Owned(bytes)
    }
}

impl Reply {
    /// Creates a reply without a body.
    pub fn empty(status: Status) -> Self {
        Self { status, content_type: None, etag: None, headers: Vec::new(), body: Body::Static(&[]) }
    }

    /// Creates a reply with a body of this media type, which must be a valid field value.
    /// [`with_content_type`](Self::with_content_type) sets a media type that is made at run time.
    pub fn new(status: Status, content_type: &'static str, body: impl Into<Body>) -> Self {
        debug_assert!(is_field_value(content_type));
        let content_type = Some(Cow::Borrowed(content_type));
        Self { status, content_type, etag: None, headers: Vec::new(), body: body.into() }
    }

    /// Creates a reply with status 200 and `value` as JSON.
    ///
    /// # Errors
    ///
    /// Returns the error of the type's own [`Serialize`](serde::Serialize). A derived one fails only for what JSON cannot
    /// express, such as a map with keys that are no strings.
    ///
    /// ```
    /// use polyserve_core::Reply;
    /// let reply = Reply::json(&[1, 2])?;
    /// assert_eq!((reply.content_type(), reply.body_bytes(&[])), (Some("application/json"), &b"[1,2]"[..]));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn json(value: &(impl serde::Serialize + ?Sized)) -> Result<Self, serde_json::Error> {
        Ok(Self::new(Status::OK, "application/json", serde_json::to_vec(value)?))
    }

    /// Sets the media type of the body, which may be made at run time.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidHeader`] if the media type is not printable ASCII, or has white space at an end.
    ///
    /// ```
    /// use polyserve_core::{Reply, Status};
    /// let reply = Reply::new(Status::OK, "text/plain", "a;b").with_content_type(format!("text/{}", "csv"))?;
    /// assert_eq!(reply.content_type(), Some("text/csv"));
    /// assert!(reply.with_content_type("text/csv\r\nEvil: 1").is_err());
    /// # Ok::<(), polyserve_core::InvalidHeader>(())
    /// ```
    pub fn with_content_type(mut self, content_type: impl Into<Cow<'static, str>>) -> Result<Self, InvalidHeader> {
        let content_type = content_type.into();
        if content_type.is_empty() || !is_field_value(&content_type) {
            return Err(InvalidHeader { name: Cow::Borrowed("Content-Type") });
        }
        self.content_type = Some(content_type);
        Ok(self)
    }

    /// Creates a reply with status 200 and a plain text.
    ///
    /// ```
    /// use polyserve_core::{Reply, Status};
    ///
    /// let reply = Reply::text("Hello!");
    /// assert_eq!((reply.status(), reply.content_type()), (Status::OK, Some("text/plain; charset=utf-8")));
    /// ```
    pub fn text(text: impl Into<Cow<'static, str>>) -> Self {
        let body = match text.into() {
            Cow::Borrowed(text) => Body::from(text),
            Cow::Owned(text) => Body::from(text),
        };
        Self::new(Status::OK, "text/plain; charset=utf-8", body)
    }

    /// Creates an error reply. Its body follows RFC 9457; `detail` is one sentence that states what was wrong.
    ///
    /// ```
    /// use polyserve_core::{Reply, Status};
    /// let reply = Reply::problem(Status::CONFLICT, "The name is taken.");
    /// let json = r#"{"type":"about:blank","title":"Conflict","status":409,"detail":"The name is taken."}"#;
    /// assert_eq!(reply.body_bytes(&[]), json.as_bytes());
    /// ```
    pub fn problem(status: Status, detail: impl fmt::Display) -> Self {
        Self::new(status, Problem::<&str>::MEDIA_TYPE, Problem { status, detail }.to_json())
    }

    /// Sets the body, in place of an earlier one. The media type stays as it is.
    ///
    /// ```
    /// use polyserve_core::{Reply, Status};
    /// let reply = Reply::empty(Status::OK).with_body("bytes of no media type");
    /// assert_eq!((reply.content_type(), reply.body_bytes(&[])), (None, &b"bytes of no media type"[..]));
    /// ```
    pub fn with_body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets the `ETag` header field, in place of one that was set before. It needs no allocation.
    ///
    /// ```
    /// use polyserve_core::{ETag, Reply};
    /// let tag = ETag::of(b"hello");
    /// assert_eq!(Reply::text("hello").with_etag(tag).etag(), Some(tag));
    /// ```
    pub fn with_etag(mut self, etag: ETag) -> Self {
        self.remove_etag();
        self.etag = Some(etag);
        self
    }

    /// Adds a header field. A reply has one `ETag`: a new one replaces that of [`with_etag`](Self::with_etag), and an earlier field.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidHeader`] if the name is not a token, if the value is not printable ASCII or has white space at an
    /// end, or if the server sets the field itself: `Connection`, `Content-Length`, `Content-Type`, `Date`, `Keep-Alive`,
    /// `Server`, `Trailer`, `Transfer-Encoding` and `Upgrade`.
    ///
    /// ```
    /// use polyserve_core::Reply;
    /// let reply = Reply::text("hello").with_header("Cache-Control", "no-store")?;
    /// assert_eq!(reply.headers().next(), Some(("Cache-Control", "no-store")));
    /// assert!(Reply::text("hello").with_header("Date", "today").is_err());
    /// # Ok::<(), polyserve_core::InvalidHeader>(())
    /// ```
    pub fn with_header(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<String>,
    ) -> Result<Self, InvalidHeader> {
        let (name, value) = (name.into(), value.into());
        let reserved = RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(&name));
        if reserved || !is_token(&name) || !is_field_value(&value) {
            return Err(InvalidHeader { name });
        }
        if ETAG.eq_ignore_ascii_case(&name) {
            self.remove_etag();
        }
        self.headers.push((name, value));
        Ok(self)
    }

    fn remove_etag(&mut self) {
        self.etag = None;
        self.headers.retain(|(name, _)| !ETAG.eq_ignore_ascii_case(name));
    }

    /// Returns the status.
    #[inline]
    pub fn status(&self) -> Status {
        self.status
    }

    /// Returns the media type of the body, if there is one.
    #[inline]
    pub fn content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// Returns the tag that [`with_etag`](Self::with_etag) has set, if there is one.
    #[inline]
    pub fn etag(&self) -> Option<ETag> {
        self.etag
    }

    /// Returns the header fields that were added, without the `ETag` of [`etag`](Self::etag).
    #[inline]
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, value)| (&**name, value.as_str()))
    }

    /// Returns the body.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// Takes the body out of the reply.
    pub fn into_body(self) -> Body {
        self.body
    }

    /// Returns the bytes of the body. `in_place` is the buffer that the service was called with.
    ///
    /// ```
    /// use polyserve_core::{Body, Reply};
    /// let reply = Reply::text("hello");
    /// assert_eq!(reply.body_bytes(&[]), b"hello");
    /// assert!(matches!(reply.body(), Body::Static(_) | Body::Owned(_)));
    /// assert_eq!(&*reply.into_body().into_bytes(Vec::new()), b"hello");
    /// ```
    #[inline]
    pub fn body_bytes<'a>(&'a self, in_place: &'a [u8]) -> &'a [u8] {
        match &self.body {
            Body::InPlace => in_place,
            Body::Static(body) => body,
            Body::Owned(body) => body,
            Body::Omitted(_) => &[],
        }
    }

    /// Returns the number of bytes of a body that was [omitted](Body::Omitted). A server sends it in `Content-Length`.
    #[inline]
    pub fn omitted_length(&self) -> Option<usize> {
        match self.body {
            Body::Omitted(length) => Some(length),
            _ => None,
        }
    }
}

const ETAG: &str = "ETag";

const RESERVED: [&str; 9] = [
    "Connection",
    "Content-Length",
    "Content-Type",
    "Date",
    "Keep-Alive",
    "Server",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
];

fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

fn is_field_value(value: &str) -> bool {
    value.trim() == value && value.bytes().all(|b| (b' '..=b'~').contains(&b))
}

/// The error for a header field that a reply cannot have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidHeader {
    /// The name of the field.
    pub name: Cow<'static, str>,
}

impl fmt::Display for InvalidHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the header field {:?} is set by the server itself, or its name or value is not valid", self.name)
    }
}

impl Error for InvalidHeader {}

/// The body of an error reply (RFC 9457).
///
/// ```
/// use polyserve_core::{Problem, Status};
/// let problem = Problem { status: Status::NOT_FOUND, detail: "There is no account 7." };
/// assert!(problem.to_json().contains(r#""title":"Not Found","status":404"#));
/// ```
#[derive(Debug)]
pub struct Problem<D> {
    /// The status.
    pub status: Status,
    /// One sentence that states what was wrong.
    pub detail: D,
}

impl<D: fmt::Display> Problem<D> {
    /// The media type.
    pub const MEDIA_TYPE: &'static str = "application/problem+json";

    /// Returns the JSON.
    pub fn to_json(&self) -> String {
        let detail = serde_json::Value::String(self.detail.to_string());
        let (title, status) = (self.status.reason(), self.status.code());
        format!(r#"{{"type":"about:blank","title":"{title}","status":{status},"detail":{detail}}}"#)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_cannot_break_out_of_its_line() {
        for (name, value) in
            [("X-A", "b\r\nEvil: 1"), ("X A", "b"), ("", "b"), ("Content-Length", "3"), ("X", "\u{e9}")]
        {
            let expected = InvalidHeader { name: name.into() };
            assert_eq!(Reply::empty(Status::OK).with_header(name, value).unwrap_err(), expected);
            assert_eq!(Reply::empty(Status::OK).with_header(name.to_owned(), value).unwrap_err(), expected);
        }
        for content_type in ["", "text/plain\r\nEvil: 1", " text/plain", "text/\u{e9}"] {
            assert!(Reply::text("a").with_content_type(content_type.to_owned()).is_err(), "{content_type:?}");
        }
        let reply = Reply::empty(Status::CREATED).with_header("Location", "/1").unwrap();
        assert_eq!(reply.headers().collect::<Vec<_>>(), [("Location", "/1")]);
    }

    #[test]
    fn a_problem_is_json() {
        let reply = Reply::problem(Status::BAD_REQUEST, "a \"quoted\"\nline");
        let body: serde_json::Value = serde_json::from_slice(reply.body_bytes(&[])).unwrap();
        assert_eq!((body["status"].as_u64(), body["detail"].as_str()), (Some(400), Some("a \"quoted\"\nline")));
    }

    #[test]
    fn codes_outside_the_final_ones_are_refused() {
        assert_eq!(Status::new(200), Some(Status::OK));
        assert_eq!((Status::new(100), Status::new(600)), (None, None));
    }
}
