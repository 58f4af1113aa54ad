//! The reply of a service.

use std::borrow::Cow;
use std::fmt;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::invalid_header::{InvalidHeader, has_outer_space, is_set_by_the_server};
use super::problem::{Problem, Unavailable};
use crate::condition::ETag;
use crate::throttled;

/// Returns `status` if it is that of a final answer, 200 to 599, and else 500.
#[inline]
fn final_status(status: StatusCode) -> StatusCode {
    if (200..600).contains(&status.as_u16()) { status } else { not_final(status) }
}

#[cold]
fn not_final(status: StatusCode) -> StatusCode {
    throttled!(
        warn,
        status = status.as_u16(),
        "a reply has a status that is not that of a final answer: it is sent as 500"
    );
    StatusCode::INTERNAL_SERVER_ERROR
}

/// A reply to a request: status, header fields and body.
///
/// Its status is that of a final answer, 200 to 599. A reply that is created with another one has the status 500. A body of a reply with
/// the status 204, 205 or 304 is not sent (RFC 9110).
///
/// ```
/// use polyserve_core::{Body, Reply};
/// use polyserve_core::http::StatusCode;
///
/// let reply = Reply::new(StatusCode::CREATED, "application/json", Body::Owned(b"{}".to_vec()));
/// assert_eq!((reply.status(), reply.body_bytes(&[])), (StatusCode::CREATED, &b"{}"[..]));
/// assert_eq!(Reply::empty(StatusCode::NO_CONTENT).content_type(), None);
/// ```
#[derive(Debug)]
#[must_use]
pub struct Reply(ReplyForm);

#[derive(Debug)]
enum ReplyForm {
    /// 200, and JSON in the buffer that the service was called with. This is the usual reply, so its parts are neither stored, nor
    /// compared, nor dropped.
    JsonInPlace,
    /// 200 without a body: the usual reply to a write.
    Done,
    Parts(Parts),
}

#[derive(Debug)]
struct Parts {
    status: StatusCode,
    content_type: Option<HeaderValue>,
    etag: Option<ETag>,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Body,
}

impl Parts {
    /// Whether the status needs an empty body (RFC 9110, 15.3.6). Those without any are [`Reply::is_bodiless`].
    fn is_emptied(&self) -> bool {
        self.status == StatusCode::RESET_CONTENT
    }

    fn into_body(self) -> Body {
        if self.is_emptied() { Body::Static(&[]) } else { self.body }
    }

    fn remove_etag(&mut self) {
        self.etag = None;
        self.headers.retain(|(name, _)| name != ETAG);
    }
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
    /// A body that was not made, and the number of its bytes if that is known. Valid only in the answer to a HEAD, which has no
    /// body. In another answer it is sent as 500: see [`Reply::correction`].
    Omitted(Option<usize>),
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
    #[inline]
    pub fn empty(status: StatusCode) -> Self {
        if status == StatusCode::OK { Self(ReplyForm::Done) } else { Self::of_parts(status, None, Body::Static(&[])) }
    }

    /// Creates a reply with a body of this media type. [`with_header`](Self::with_header) sets a media type that is made at run
    /// time.
    ///
    /// # Panics
    ///
    /// Panics if `content_type` is not printable ASCII.
    #[inline]
    pub fn new(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Self {
        Self::of_type(status, HeaderValue::from_static(content_type), body.into())
    }

    /// Creates a reply with a body of this media type.
    #[inline]
    pub(crate) fn of_type(status: StatusCode, content_type: HeaderValue, body: Body) -> Self {
        Self::of_parts(status, Some(content_type), body)
    }

    #[inline]
    fn of_parts(status: StatusCode, content_type: Option<HeaderValue>, body: Body) -> Self {
        let status = final_status(status);
        Self(ReplyForm::Parts(Parts { status, content_type, etag: None, headers: Vec::new(), body }))
    }

    /// Creates a reply with status 200 and JSON, which was appended to the buffer that the service was called with.
    ///
    /// Cost: none, and least in a server.
    ///
    /// ```
    /// use polyserve_core::{Body, Reply};
    /// let reply = Reply::json_in_place();
    /// assert_eq!(reply.content_type().unwrap(), "application/json");
    /// assert!(matches!(reply.body(), Body::InPlace));
    /// ```
    #[inline]
    pub fn json_in_place() -> Self {
        Self(ReplyForm::JsonInPlace)
    }

    /// Whether this is what [`json_in_place`](Self::json_in_place) returns, and nothing was set since.
    #[inline]
    pub fn is_json_in_place(&self) -> bool {
        matches!(self.0, ReplyForm::JsonInPlace)
    }

    /// Whether this is what [`empty`](Self::empty) returns for the status 200, and nothing was set since.
    #[inline]
    pub fn is_done(&self) -> bool {
        matches!(self.0, ReplyForm::Done)
    }

    fn parts(&self) -> Option<&Parts> {
        match &self.0 {
            ReplyForm::JsonInPlace | ReplyForm::Done => None,
            ReplyForm::Parts(parts) => Some(parts),
        }
    }

    /// Returns the parts. Those of a form without parts are made.
    fn into_parts(self) -> Parts {
        let (content_type, body) = match self.0 {
            ReplyForm::Parts(parts) => return parts,
            ReplyForm::JsonInPlace => (Some(APPLICATION_JSON.clone()), Body::InPlace),
            ReplyForm::Done => (None, Body::Static(&[])),
        };
        Parts { status: StatusCode::OK, content_type, etag: None, headers: Vec::new(), body }
    }

    /// Creates a reply with status 200 and `value` as JSON.
    ///
    /// # Errors
    ///
    /// Returns the error of the type's own [`Serialize`](serde_core::Serialize). A derived one fails only for what JSON cannot
    /// express, such as a map with keys that are no strings.
    ///
    /// ```
    /// use polyserve_core::Reply;
    /// let reply = Reply::json(&[1, 2])?;
    /// assert_eq!(reply.content_type().unwrap(), "application/json");
    /// assert_eq!(reply.body_bytes(&[]), b"[1,2]");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn json(value: &(impl serde_core::Serialize + ?Sized)) -> Result<Self, serde_json::Error> {
        Ok(Self::of_type(StatusCode::OK, APPLICATION_JSON.clone(), serde_json::to_vec(value)?.into()))
    }

    /// Creates a reply with status 200 and a plain text.
    ///
    /// ```
    /// use polyserve_core::Reply;
    /// use polyserve_core::http::StatusCode;
    ///
    /// let reply = Reply::text("Hello!");
    /// assert_eq!(reply.status(), StatusCode::OK);
    /// assert_eq!(reply.content_type().unwrap(), "text/plain; charset=utf-8");
    /// ```
    pub fn text(text: impl Into<Cow<'static, str>>) -> Self {
        let body = match text.into() {
            Cow::Borrowed(text) => Body::from(text),
            Cow::Owned(text) => Body::from(text),
        };
        Self::of_type(StatusCode::OK, const { HeaderValue::from_static("text/plain; charset=utf-8") }, body)
    }

    /// Creates an error reply. Its body follows RFC 9457; `detail` is one sentence that states what was wrong.
    ///
    /// ```
    /// use polyserve_core::Reply;
    /// use polyserve_core::http::StatusCode;
    /// let reply = Reply::problem(StatusCode::CONFLICT, "The name is taken.");
    /// let json = r#"{"type":"about:blank","title":"Conflict","status":409,"detail":"The name is taken."}"#;
    /// assert_eq!(reply.body_bytes(&[]), json.as_bytes());
    /// ```
    pub fn problem(status: StatusCode, detail: impl fmt::Display) -> Self {
        let status = final_status(status);
        let media_type = const { HeaderValue::from_static(Problem::<&str>::MEDIA_TYPE) };
        Self::of_type(status, media_type, Problem { status, detail }.to_json().into())
    }

    /// Creates a reply with the status 503, this body and a field `Retry-After`. Cost: one allocation, and more at the first time.
    pub fn unavailable(why: &'static Unavailable, retry_after: HeaderValue) -> Self {
        let media_type = const { HeaderValue::from_static(Problem::<&str>::MEDIA_TYPE) };
        let reply = Self::of_type(StatusCode::SERVICE_UNAVAILABLE, media_type, why.json().into());
        reply.with_field(RETRY_AFTER, retry_after)
    }

    /// Sets the body, in place of an earlier one. The media type stays as it is.
    ///
    /// ```
    /// use polyserve_core::Reply;
    /// use polyserve_core::http::StatusCode;
    /// let reply = Reply::empty(StatusCode::OK).with_body("bytes of no media type");
    /// assert_eq!((reply.content_type(), reply.body_bytes(&[])), (None, &b"bytes of no media type"[..]));
    /// ```
    pub fn with_body(self, body: impl Into<Body>) -> Self {
        Self(ReplyForm::Parts(Parts { body: body.into(), ..self.into_parts() }))
    }

    /// Sets the `ETag` header field, in place of one that was set before. It needs no allocation.
    ///
    /// ```
    /// use polyserve_core::{ETag, Reply};
    /// let tag = ETag::of(b"hello");
    /// assert_eq!(Reply::text("hello").with_etag(tag).etag(), Some(tag));
    /// ```
    pub fn with_etag(self, etag: ETag) -> Self {
        let mut parts = self.into_parts();
        parts.remove_etag();
        parts.etag = Some(etag);
        Self(ReplyForm::Parts(parts))
    }

    /// Adds a header field. Its name and value are converted, for example from texts. [`with_field`](Self::with_field) takes
    /// a field that needs no conversion.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidHeader`] if the name or the value cannot be converted, if the value has white space at an end, or if the
    /// server sets the field itself: `Connection`, `Content-Length`, `Date`, `Keep-Alive`, `Server`, `Trailer`,
    /// `Transfer-Encoding` and `Upgrade`.
    ///
    /// ```
    /// use polyserve_core::Reply;
    /// use polyserve_core::http::header::{CACHE_CONTROL, CONTENT_TYPE};
    ///
    /// let reply = Reply::text("a;b").with_header("Cache-Control", "no-store")?;
    /// assert_eq!(reply.headers().next().unwrap(), (&CACHE_CONTROL, &"no-store".parse()?));
    /// let reply = reply.with_header(CONTENT_TYPE, format!("text/{}", "csv"))?;
    /// assert_eq!(reply.content_type().unwrap(), "text/csv");
    /// assert!(Reply::text("hello").with_header("Date", "today").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_header(
        self,
        name: impl TryInto<HeaderName>,
        value: impl TryInto<HeaderValue>,
    ) -> Result<Self, InvalidHeader> {
        let name = name.try_into().map_err(|_| InvalidHeader::Name)?;
        if is_set_by_the_server(&name) {
            return Err(InvalidHeader::Reserved { name });
        }
        match value.try_into() {
            Ok(value) if !has_outer_space(&value) => Ok(self.with_field(name, value)),
            _ => Err(InvalidHeader::Value { name }),
        }
    }

    /// Adds a header field. A `Content-Type` and an `ETag` replace an earlier one.
    ///
    /// White space at the ends of the value is removed. A field that the server sets itself is left out: see
    /// [`with_header`](Self::with_header).
    ///
    /// ```
    /// use polyserve_core::http::HeaderValue;
    /// use polyserve_core::http::header::{ALLOW, DATE};
    /// use polyserve_core::Reply;
    ///
    /// let reply = Reply::text("hello").with_field(ALLOW, HeaderValue::from_static("GET"));
    /// assert_eq!(reply.with_field(DATE, HeaderValue::from_static("today")).headers().count(), 1);
    /// ```
    pub fn with_field(self, name: HeaderName, value: HeaderValue) -> Self {
        if is_set_by_the_server(&name) {
            return self;
        }
        let value = if has_outer_space(&value) {
            HeaderValue::from_bytes(value.as_bytes().trim_ascii()).unwrap_or(value)
        } else {
            value
        };
        let mut parts = self.into_parts();
        if name == CONTENT_TYPE {
            parts.content_type = Some(value);
        } else {
            if name == ETAG {
                parts.remove_etag();
            }
            parts.headers.push((name, value));
        }
        Self(ReplyForm::Parts(parts))
    }

    /// Returns the status.
    #[inline]
    pub fn status(&self) -> StatusCode {
        self.parts().map_or(StatusCode::OK, |parts| parts.status)
    }

    /// Whether an answer with this status has neither a body nor a `Content-Length` (RFC 9110): 204 and 304.
    #[inline]
    pub fn is_bodiless(&self) -> bool {
        matches!(self.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
    }

    /// Returns the media type of the body, if there is one.
    #[inline]
    pub fn content_type(&self) -> Option<&HeaderValue> {
        match &self.0 {
            ReplyForm::JsonInPlace => Some(&APPLICATION_JSON),
            ReplyForm::Done => None,
            ReplyForm::Parts(parts) => parts.content_type.as_ref(),
        }
    }

    /// Returns the tag that [`with_etag`](Self::with_etag) has set, if there is one.
    #[inline]
    pub fn etag(&self) -> Option<ETag> {
        self.parts().and_then(|parts| parts.etag)
    }

    /// Returns the header fields that were added, without the `Content-Type` and without the `ETag` of [`etag`](Self::etag).
    #[inline]
    pub fn headers(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.parts().into_iter().flat_map(|parts| &parts.headers).map(|(name, value)| (name, value))
    }

    /// Moves all header fields into `headers`, and returns the body. The length of a body that was
    /// [omitted](Body::Omitted) is one of them.
    ///
    /// Cost: an allocation for an [`etag`](Self::etag) and for a length, and what the map allocates.
    ///
    /// ```
    /// use polyserve_core::http::HeaderMap;
    /// use polyserve_core::Reply;
    ///
    /// let mut headers = HeaderMap::new();
    /// let body = Reply::text("hello").move_headers(&mut headers);
    /// assert_eq!(headers["content-type"], "text/plain; charset=utf-8");
    /// assert_eq!(&*body.into_bytes(Vec::new()), b"hello");
    /// ```
    pub fn move_headers(self, headers: &mut HeaderMap) -> Body {
        let is_bodiless = self.is_bodiless();
        let mut parts = self.into_parts();
        if let Some(content_type) = parts.content_type.take().filter(|_| !is_bodiless) {
            headers.insert(CONTENT_TYPE, content_type);
        }
        if let Some(etag) = parts.etag
            && let Ok(etag) = HeaderValue::from_bytes(&etag.text())
        {
            headers.insert(ETAG, etag);
        }
        for (name, value) in parts.headers.drain(..) {
            headers.append(name, value);
        }
        let body = parts.into_body();
        if let Body::Omitted(Some(length)) = body
            && !is_bodiless
        {
            headers.insert(CONTENT_LENGTH, length.into());
        }
        body
    }

    /// Returns the body.
    pub fn body(&self) -> &Body {
        static IN_PLACE: Body = Body::InPlace;
        static EMPTY: Body = Body::Static(&[]);
        match &self.0 {
            ReplyForm::JsonInPlace => &IN_PLACE,
            ReplyForm::Done => &EMPTY,
            ReplyForm::Parts(parts) if parts.is_emptied() => &EMPTY,
            ReplyForm::Parts(parts) => &parts.body,
        }
    }

    /// Takes the body out of the reply.
    pub fn into_body(self) -> Body {
        self.into_parts().into_body()
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
        match self.body() {
            Body::InPlace => in_place,
            Body::Static(body) => body,
            Body::Owned(body) => body,
            Body::Omitted(_) => &[],
        }
    }

    /// Returns the answer that a server sends in place of this one, if this one cannot be sent: its body was
    /// [omitted](Body::Omitted), although the request was not a HEAD. A client would wait for that body.
    ///
    /// ```
    /// use polyserve_core::http::StatusCode;
    /// use polyserve_core::{Body, Reply};
    ///
    /// let reply = Reply::text("").with_body(Body::Omitted(Some(7)));
    /// assert!(reply.correction(true).is_none());
    /// assert_eq!(reply.correction(false).unwrap().status(), StatusCode::INTERNAL_SERVER_ERROR);
    /// ```
    #[inline]
    pub fn correction(&self, is_head: bool) -> Option<Self> {
        if is_head || !matches!(self.body(), Body::Omitted(_)) { None } else { Some(body_is_missing()) }
    }
}

#[cold]
fn body_is_missing() -> Reply {
    throttled!(warn, "a reply to a request other than HEAD has no body: it is sent as 500");
    Reply::problem(StatusCode::INTERNAL_SERVER_ERROR, "The service made no body.")
}

/// The media type of JSON.
pub(super) static APPLICATION_JSON: HeaderValue = HeaderValue::from_static("application/json");

#[cfg(test)]
mod tests {
    use http::header::LOCATION;

    use super::*;

    #[test]
    fn a_header_cannot_break_out_of_its_line() {
        let x_a = || HeaderName::from_static("x-a");
        for (name, value, expected) in [
            ("X-A", "b\r\nEvil: 1", InvalidHeader::Value { name: x_a() }),
            ("X-A", "b\0", InvalidHeader::Value { name: x_a() }),
            ("X-A", " b", InvalidHeader::Value { name: x_a() }),
            ("X A", "b", InvalidHeader::Name),
            ("X-A: b\r\nEvil", "1", InvalidHeader::Name),
            ("", "b", InvalidHeader::Name),
            ("Content-Length", "3", InvalidHeader::Reserved { name: CONTENT_LENGTH }),
        ] {
            assert_eq!(Reply::empty(StatusCode::OK).with_header(name, value).unwrap_err(), expected);
            assert_eq!(Reply::empty(StatusCode::OK).with_header(name.to_owned(), value).unwrap_err(), expected);
        }
        for content_type in ["text/plain\r\nEvil: 1", " text/plain"] {
            assert!(Reply::text("a").with_header(CONTENT_TYPE, content_type).is_err(), "{content_type:?}");
        }
        let reply = Reply::empty(StatusCode::CREATED).with_header("Location", "/1").unwrap();
        assert_eq!(reply.headers().collect::<Vec<_>>(), [(&LOCATION, &HeaderValue::from_static("/1"))]);
    }

    /// A value is any that the `http` crate takes, also one that is not ASCII.
    #[test]
    fn a_field_replaces_is_added_or_is_left_out() {
        let value = |bytes: &[u8]| HeaderValue::from_bytes(bytes).unwrap();
        let reply = Reply::text("a").with_field(CONTENT_TYPE, value(b"text/\xe9"));
        assert_eq!(reply.content_type(), Some(&value(b"text/\xe9")));
        let x_a = HeaderName::from_static("x-a");
        let reply = reply.with_field(x_a.clone(), value(b" \xff\t")).with_header("X-A", "\u{e9}").unwrap();
        assert_eq!(reply.headers().collect::<Vec<_>>(), [(&x_a, &value(b"\xff")), (&x_a, &value(b"\xc3\xa9"))]);
        for name in ["connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"] {
            assert_eq!(Reply::text("a").with_field(HeaderName::from_static(name), value(b"1")).headers().count(), 0);
        }
    }

    #[test]
    fn the_header_fields_of_a_reply_become_a_map() {
        let tag = ETag::of(b"hello");
        let reply =
            Reply::text("hello").with_etag(tag).with_header("Vary", "a").unwrap().with_header("vary", "b").unwrap();
        let mut headers = HeaderMap::new();
        assert_eq!(&*reply.move_headers(&mut headers).into_bytes(Vec::new()), b"hello");
        let shown: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        let tag = tag.to_string();
        let expected = [("content-type", "text/plain; charset=utf-8"), ("etag", &*tag), ("vary", "a"), ("vary", "b")];
        assert_eq!(shown, expected);
        headers.clear();
        Reply::text("").with_body(Body::Omitted(Some(7))).move_headers(&mut headers);
        assert_eq!((headers.len(), &headers["content-length"]), (2, &HeaderValue::from(7)));
        headers.clear();
        for status in [StatusCode::NOT_MODIFIED, StatusCode::NO_CONTENT] {
            let _ = Reply::new(status, "text/plain", Body::Omitted(Some(7))).move_headers(&mut headers);
            assert!(headers.is_empty(), "{headers:?}");
        }
    }

    #[test]
    fn a_status_that_is_not_final_becomes_500() {
        for code in [100, 101, 199, 600, 999] {
            let status = StatusCode::from_u16(code).unwrap();
            let problem = Reply::problem(status, "a detail");
            for reply in [&Reply::empty(status), &Reply::new(status, "text/plain", "a"), &problem] {
                assert_eq!(reply.status(), StatusCode::INTERNAL_SERVER_ERROR, "{code}");
            }
            let body: serde_json::Value = serde_json::from_slice(problem.body_bytes(&[])).unwrap();
            assert_eq!((body["status"].as_u64(), body["title"].as_str()), (Some(500), Some("Internal Server Error")));
        }
        for code in [200, 299, 418, 599] {
            let status = StatusCode::from_u16(code).unwrap();
            assert_eq!(Reply::empty(status).status(), status);
        }
    }
}
