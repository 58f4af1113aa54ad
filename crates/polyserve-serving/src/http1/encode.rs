//! The bytes of an answer.
//!
//! Field names are written with capital letters, because `ab` expects `Content-Length`. Cost: copies into the output buffer;
//! no allocation if the buffer is large enough.

use polyserve_core::http::header::ETAG;
use polyserve_core::http::{HeaderName, StatusCode, Version};
use polyserve_core::{Body, Reply, reason_phrase};

use super::date::{Date, JSON_START};

/// The parts of an answer's head that do not come from the reply.
#[derive(Clone, Copy, Debug)]
pub struct AnswerHead<'a> {
    /// The version of the request. In HTTP/1.0 the answer states that the connection stays open.
    pub version: Version,
    /// Whether the connection closes after this answer.
    pub close: bool,
    /// Whether the answer is sent without its body, because the request was HEAD.
    pub head_only: bool,
    /// The `Date` header, which ends the head: [`Date::end_of_head`](super::date::Date::end_of_head).
    pub date: &'a [u8; Date::END],
    /// The value of the `Server` header; `None` omits the header.
    pub server_header: Option<&'a str>,
}

/// The interim answer after which a client sends its body.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Appends an answer to `out`: the head of `reply`, and `body`.
pub fn answer(out: &mut Vec<u8>, reply: &Reply, body: &[u8], head: &AnswerHead<'_>) {
    out.reserve(HEAD_ESTIMATE.saturating_add(body.len()));
    write_status(out, reply.status());
    if !reply.is_bodiless() {
        // The CRLF of a line is appended with the name of the next field: that saves a copy for each line.
        if let Some(content_type) = reply.content_type() {
            out.extend_from_slice(b"\r\nContent-Type: ");
            out.extend_from_slice(content_type.as_bytes());
        }
        let length = match reply.body() {
            Body::Omitted(length) => *length,
            _ => Some(body.len()),
        };
        if let Some(length) = length {
            out.extend_from_slice(b"\r\nContent-Length: ");
            write_number(out, length);
        }
    }
    if let Some(etag) = reply.etag() {
        out.extend_from_slice(b"\r\nETag: ");
        out.extend_from_slice(&etag.text());
    }
    for (name, value) in reply.headers() {
        out.extend_from_slice(b"\r\n");
        write_name(out, name);
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
    }
    if let Some(server_header) = head.server_header {
        out.extend_from_slice(b"\r\nServer: ");
        out.extend_from_slice(server_header.as_bytes());
    }
    if head.close {
        out.extend_from_slice(CLOSE);
    } else if head.version == Version::HTTP_10 {
        out.extend_from_slice(b"\r\nConnection: keep-alive");
    }
    out.extend_from_slice(head.date);
    if !head.head_only && !reply.is_bodiless() {
        out.extend_from_slice(body);
    }
}

const CLOSE: &[u8] = b"\r\nConnection: close";

/// Appends what [`answer`] does for [JSON in place](Reply::is_json_in_place) and a request without anything special: most answers,
/// in two copies. A copy of a known length needs no call.
#[allow(clippy::inline_always)] // for each request
#[inline(always)]
pub(super) fn json(out: &mut Vec<u8>, body: &[u8], close: bool, date: &Date) {
    let length = body.len();
    if matches!(length, 10..100) & !close {
        out.extend_from_slice(date.json_head());
        // The length of the head is known, so its digits are stored without a test.
        let head = out.last_chunk_mut::<{ Date::JSON_HEAD }>();
        if let Some([tens, ones, ..]) = head.and_then(|head| head.get_mut(JSON_START.len()..)) {
            (*tens, *ones) = (last_digit(length / 10), last_digit(length));
        }
    } else {
        out.extend_from_slice(JSON_START);
        write_number(out, length);
        if close {
            out.extend_from_slice(CLOSE);
        }
        out.extend_from_slice(date.end_of_head());
    }
    out.extend_from_slice(body);
}

/// Appends what [`answer`] does for [200 without a body](Reply::is_done) and a request without anything special.
pub(super) fn done(out: &mut Vec<u8>, date: &[u8; Date::END]) {
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Length: 0");
    out.extend_from_slice(date);
}

/// An estimate of a head's length, for one reservation in place of several.
const HEAD_ESTIMATE: usize = 232;

/// Appends a number, such as the length of a body.
#[inline(never)]
fn write_number(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[inline]
fn last_digit(number: usize) -> u8 {
    b'0'.wrapping_add((number % 10) as u8)
}

/// Writes the name of a field with capital letters, as `Retry-After`. A [`HeaderName`] is in lower case.
fn write_name(out: &mut Vec<u8>, name: &HeaderName) {
    if name == ETAG {
        out.extend_from_slice(b"ETag");
        return;
    }
    let mut begins_word = true;
    out.extend(name.as_str().bytes().map(|byte| {
        let capital = begins_word;
        begins_word = byte == b'-';
        if capital { byte.to_ascii_uppercase() } else { byte }
    }));
}

/// Writes the status line, without its end.
fn write_status(out: &mut Vec<u8>, status: StatusCode) {
    match status {
        StatusCode::OK => out.extend_from_slice(b"HTTP/1.1 200 OK"),
        StatusCode::CREATED => out.extend_from_slice(b"HTTP/1.1 201 Created"),
        status => {
            out.extend_from_slice(b"HTTP/1.1 ");
            out.extend_from_slice(status.as_str().as_bytes());
            out.push(b' ');
            out.extend_from_slice(reason_phrase(status).as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use polyserve_core::ETag;

    use super::*;

    const HEAD: AnswerHead<'static> = AnswerHead {
        version: Version::HTTP_11,
        close: false,
        head_only: false,
        date: b"\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n",
        server_header: None,
    };

    fn text(reply: &Reply) -> String {
        let mut out = Vec::new();
        answer(&mut out, reply, reply.body_bytes(b""), &HEAD);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_in_place_has_the_bytes_of_any_answer() {
        for length in [0, 1, 9, 10, 99, 100, 999, 1000, 123_456] {
            let body = vec![b'x'; length];
            for close in [false, true] {
                let (mut expected, mut found) = (Vec::new(), Vec::new());
                answer(&mut expected, &Reply::json_in_place(), &body, &AnswerHead { close, ..HEAD });
                json(&mut found, &body, close, &Date::new(std::time::UNIX_EPOCH));
                assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn done_has_the_bytes_of_any_answer() {
        let mut found = Vec::new();
        done(&mut found, HEAD.date);
        assert_eq!(String::from_utf8(found).unwrap(), text(&Reply::empty(StatusCode::OK)));
        assert!(Reply::empty(StatusCode::OK).is_done());
    }

    /// Regression test: a reply with a tag of both kinds was sent with two `ETag` fields, and a client took either.
    #[test]
    fn the_last_etag_is_sent_and_no_other() {
        let sent = |reply: &Reply| -> Vec<String> {
            let head = text(reply);
            head.lines()
                .filter_map(|line| Some(line.strip_prefix("ETag: ").or(line.strip_prefix("etag: "))?.to_owned()))
                .collect()
        };
        let reply = || Reply::text("hello").with_header("Vary", "Accept").unwrap();
        let tag = ETag::of(b"hello");
        let weak = |reply: Reply| reply.with_header("etag", "W/\"1\"").unwrap();
        assert_eq!(sent(&weak(reply()).with_etag(tag)), [tag.to_string()]);
        assert_eq!(sent(&weak(reply().with_etag(tag))), ["W/\"1\""]);
        assert_eq!(sent(&weak(reply()).with_header("ETag", "\"2\"").unwrap()), ["\"2\""]);
        assert!(text(&weak(reply()).with_etag(tag)).contains("\r\nVary: Accept\r\n"));
    }
}
