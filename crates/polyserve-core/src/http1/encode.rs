//! An answer's bytes.
//!
//! Field names are in the case that `ab` looks for. Cost: copies into the output buffer, no allocation once it has
//! grown.

use crate::service::{Reply, Status, Version};

/// What an answer's head says beyond the reply itself.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// The request's version: 1.0 is told that its connection lives on.
    pub version: Version,
    /// Whether the connection closes after this answer.
    pub close: bool,
    /// Whether the request was HEAD: the answer has its head only.
    pub head_only: bool,
    /// The `Date` header's value.
    pub date: &'a str,
    /// The `Server` header's value, if there is one.
    pub server_header: Option<&'a str>,
}

/// The interim answer that lets a client send its body.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Appends the answer `reply`, its body `body`, to `out`.
pub fn answer(out: &mut Vec<u8>, reply: &Reply, body: &[u8], line: &Line<'_>) {
    out.reserve(HEAD_ROOM.saturating_add(body.len()));
    status_line(out, reply.status());
    if !reply.status().is_bodiless() {
        if let Some(content_type) = reply.content_type() {
            out.extend_from_slice(b"Content-Type: ");
            out.extend_from_slice(content_type.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"Content-Length: ");
        out.extend_from_slice(itoa::Buffer::new().format(body.len()).as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    for (name, value) in reply.headers() {
        field(out, name, value);
    }
    if let Some(server_header) = line.server_header {
        field(out, "Server", server_header);
    }
    if line.close {
        out.extend_from_slice(b"Connection: close\r\n");
    } else if line.version == Version::Http10 {
        out.extend_from_slice(b"Connection: keep-alive\r\n");
    }
    out.extend_from_slice(b"Date: ");
    out.extend_from_slice(line.date.as_bytes());
    out.extend_from_slice(b"\r\n\r\n");
    if !line.head_only && !reply.status().is_bodiless() {
        out.extend_from_slice(body);
    }
}

const HEAD_ROOM: usize = 192;

fn field(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn status_line(out: &mut Vec<u8>, status: Status) {
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
    use super::*;
    use crate::service::Body;

    const LINE: Line<'static> =
        Line { version: Version::Http11, close: false, head_only: false, date: "D", server_header: None };

    fn text(reply: &Reply, line: &Line<'_>) -> String {
        let mut out = Vec::new();
        answer(&mut out, reply, reply.body_bytes(b""), line);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_answer_byte_for_byte() {
        let ok = Reply::new(Status::OK, "text/plain", Body::Static(b"hi"));
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n";
        assert_eq!(text(&ok, &LINE), format!("{head}Date: D\r\n\r\nhi"));
        assert_eq!(text(&ok, &Line { head_only: true, ..LINE }), format!("{head}Date: D\r\n\r\n"));
        let closing = Line { close: true, server_header: Some("me"), version: Version::Http10, ..LINE };
        assert_eq!(text(&ok, &closing), format!("{head}Server: me\r\nConnection: close\r\nDate: D\r\n\r\nhi"));
        let old = Line { version: Version::Http10, ..LINE };
        assert_eq!(text(&ok, &old), format!("{head}Connection: keep-alive\r\nDate: D\r\n\r\nhi"));
    }

    #[test]
    fn no_content_has_no_length_and_the_others_do() {
        assert_eq!(text(&Reply::empty(Status::NO_CONTENT), &LINE), "HTTP/1.1 204 No Content\r\nDate: D\r\n\r\n");
        let created = Reply::empty(Status::CREATED).with_header("Location", "/1").unwrap();
        assert_eq!(
            text(&created, &LINE),
            "HTTP/1.1 201 Created\r\nContent-Length: 0\r\nLocation: /1\r\nDate: D\r\n\r\n"
        );
        let odd = Status::new(299).unwrap();
        assert!(text(&Reply::empty(odd), &LINE).starts_with("HTTP/1.1 299 \r\n"));
    }
}
