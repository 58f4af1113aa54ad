//! The bytes of an answer.
//!
//! Field names are written in the case that `ab` expects. Cost: copies into the output buffer; no allocation if the buffer
//! is large enough.

use polyserve_core::{Reply, Status, Version};

/// The parts of an answer's head that do not come from the reply.
#[derive(Clone, Copy, Debug)]
pub struct AnswerHead<'a> {
    /// The version of the request. In HTTP/1.0 the answer states that the connection stays open.
    pub version: Version,
    /// Whether the connection closes after this answer.
    pub close: bool,
    /// Whether the answer is sent without its body, because the request was HEAD.
    pub head_only: bool,
    /// The `Date` header, with the end of its line.
    pub date: &'a str,
    /// The value of the `Server` header; `None` omits the header.
    pub server_header: Option<&'a str>,
}

/// The interim answer after which a client sends its body.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Appends an answer to `out`: the head of `reply`, and `body`.
pub fn answer(out: &mut Vec<u8>, reply: &Reply, body: &[u8], head: &AnswerHead<'_>) {
    out.reserve(HEAD_ESTIMATE.saturating_add(body.len()));
    write_status_line(out, reply.status());
    if !reply.status().is_bodiless() {
        if let Some(content_type) = reply.content_type() {
            out.extend_from_slice(b"Content-Type: ");
            out.extend_from_slice(content_type.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"Content-Length: ");
        out.extend_from_slice(itoa::Buffer::new().format(reply.omitted_length().unwrap_or(body.len())).as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if let Some(etag) = reply.etag() {
        out.extend_from_slice(b"ETag: ");
        out.extend_from_slice(&etag.text());
        out.extend_from_slice(b"\r\n");
    }
    for (name, value) in reply.headers() {
        write_field(out, name, value);
    }
    if let Some(server_header) = head.server_header {
        write_field(out, "Server", server_header);
    }
    if head.close {
        out.extend_from_slice(b"Connection: close\r\n");
    } else if head.version == Version::Http10 {
        out.extend_from_slice(b"Connection: keep-alive\r\n");
    }
    out.extend_from_slice(head.date.as_bytes());
    out.extend_from_slice(b"\r\n");
    if !head.head_only && !reply.status().is_bodiless() {
        out.extend_from_slice(body);
    }
}

/// An estimate of a head's length, for one reservation in place of several.
const HEAD_ESTIMATE: usize = 232;

fn write_field(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn write_status_line(out: &mut Vec<u8>, status: Status) {
    match status {
        Status::OK => out.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
        Status::CREATED => out.extend_from_slice(b"HTTP/1.1 201 Created\r\n"),
        status => {
            out.extend_from_slice(b"HTTP/1.1 ");
            out.extend_from_slice(itoa::Buffer::new().format(status.code()).as_bytes());
            out.push(b' ');
            out.extend_from_slice(status.reason().as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use polyserve_core::{Body, ETag};

    use super::*;

    const HEAD: AnswerHead<'static> = AnswerHead {
        version: Version::Http11,
        close: false,
        head_only: false,
        date: "Date: D\r\n",
        server_header: None,
    };

    fn text(reply: &Reply, head: &AnswerHead<'_>) -> String {
        let mut out = Vec::new();
        answer(&mut out, reply, reply.body_bytes(b""), head);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_answer_byte_for_byte() {
        let ok = Reply::new(Status::OK, "text/plain", Body::Static(b"hi"));
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n";
        assert_eq!(text(&ok, &HEAD), format!("{head}Date: D\r\n\r\nhi"));
        assert_eq!(text(&ok, &AnswerHead { head_only: true, ..HEAD }), format!("{head}Date: D\r\n\r\n"));
        let closing = AnswerHead { close: true, server_header: Some("me"), version: Version::Http10, ..HEAD };
        assert_eq!(text(&ok, &closing), format!("{head}Server: me\r\nConnection: close\r\nDate: D\r\n\r\nhi"));
        let old = AnswerHead { version: Version::Http10, ..HEAD };
        assert_eq!(text(&ok, &old), format!("{head}Connection: keep-alive\r\nDate: D\r\n\r\nhi"));
    }

    #[test]
    fn no_content_has_no_length_and_the_others_do() {
        assert_eq!(text(&Reply::empty(Status::NO_CONTENT), &HEAD), "HTTP/1.1 204 No Content\r\nDate: D\r\n\r\n");
        let created = Reply::empty(Status::CREATED).with_header("Location", "/1").unwrap();
        assert_eq!(
            text(&created, &HEAD),
            "HTTP/1.1 201 Created\r\nContent-Length: 0\r\nLocation: /1\r\nDate: D\r\n\r\n"
        );
        let odd = Status::new(299).unwrap();
        assert!(text(&Reply::empty(odd), &HEAD).starts_with("HTTP/1.1 299 \r\n"));
    }

    /// Regression test: a reply with a tag of both kinds was sent with two `ETag` fields, and a client took either.
    #[test]
    fn the_last_etag_is_sent_and_no_other() {
        let sent = |reply: &Reply| -> Vec<String> {
            let head = text(reply, &HEAD);
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
        assert!(text(&weak(reply()).with_etag(tag), &HEAD).contains("\r\nVary: Accept\r\n"));
    }
}
