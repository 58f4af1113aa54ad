//! The end of a message. Each message would be a valid PUT but for its framing. A GET follows it, which must not be
//! answered.

use super::probe::{Probe, ProbeResult, brief, get, put_with, request};
use crate::client::Ending;

/// The entity of a property. Each property uses an id of its own, so that it does not see the entities of other properties.
struct TestEntity {
    id: i64,
    entity: String,
}

impl TestEntity {
    fn of(id: i64) -> Self {
        Self { id, entity: format!(r#"{{"id":{id},"description":"d","value":1.5}}"#) }
    }

    /// Its length.
    fn n(&self) -> usize {
        self.entity.len()
    }

    /// In one chunk, and the end.
    fn chunks(&self) -> String {
        format!("{:x}\r\n{}\r\n0\r\n\r\n", self.n(), self.entity)
    }

    fn with_fields(&self, fields: &str) -> Vec<u8> {
        put_with(fields, &self.entity)
    }

    fn with_length(&self, length: &str) -> Vec<u8> {
        self.with_fields(&format!("Content-Length: {length}\r\n"))
    }

    fn with_coding(&self, coding: &str) -> Vec<u8> {
        put_with(&format!("Transfer-Encoding: {coding}\r\n"), &self.chunks())
    }

    /// Each of `messages` is refused and ends its connection, and none is stored.
    fn refused(&self, probe: &Probe, messages: impl IntoIterator<Item = Vec<u8>>) -> Result<(), String> {
        probe.each_ends_with(messages)?;
        match probe.ask(&get(&format!("/{}", self.id)))?.status {
            404 => Ok(()),
            _ => Err(format!("a PUT of {} that got no answer, or was refused, was taken", self.id)),
        }
    }
}

/// A `Content-Length` that is not only digits is refused.
pub(super) fn a_length_is_digits(probe: &Probe) -> Result<(), String> {
    let put = TestEntity::of(-7011);
    let n = put.n();
    let lengths =
        [format!("+{n}"), format!("-{n}"), format!("0x{n:x}"), format!("{n} {n}"), format!("{n}a"), "a".into()];
    put.refused(probe, lengths.iter().map(|length| put.with_length(length)))
}

/// Lengths that differ are refused, on two lines and on one.
pub(super) fn lengths_that_differ_are_refused(probe: &Probe) -> Result<(), String> {
    let put = TestEntity::of(-7012);
    let n = put.n();
    let lines = [(n, 0), (0, n), (n, n + 1)].map(|(a, b)| put.with_length(&format!("{a}\r\nContent-Length: {b}")));
    let lists = [format!("{n}, 0"), format!("0, {n}")].map(|list| put.with_length(&list));
    put.refused(probe, lines.into_iter().chain(lists))
}

/// If `chunked` is not the last coding, the end of the message is unknown.
pub(super) fn codings_that_do_not_end_with_chunked_are_refused(probe: &Probe) -> Result<(), String> {
    let put = TestEntity::of(-7013);
    let codings =
        ["chunked, identity", "chunked, gzip", "xchunked", "chunkedx", "gzip", "chunked\r\nTransfer-Encoding: x"];
    put.refused(probe, codings.into_iter().map(|coding| put.with_coding(coding)))
}

/// White space between a name and its colon is refused: other peers may read another field there.
pub(super) fn a_space_before_the_colon_is_refused(probe: &Probe) -> Result<(), String> {
    let put = TestEntity::of(-7014);
    let n = put.n();
    let messages = [
        put.with_fields(&format!("Content-Length : {n}\r\n")),
        put_with("Transfer-Encoding : chunked\r\n", &put.chunks()),
        put.with_fields(&format!("Content-Length: {n}\r\nTransfer-Encoding\t: chunked\r\n")),
    ];
    put.refused(probe, messages)
}

/// Invalid chunk sizes, sizes beyond 64 bits, and chunks longer than their size are refused.
pub(super) fn broken_chunks_are_refused(probe: &Probe) -> Result<(), String> {
    let put = TestEntity::of(-7015);
    let (n, entity) = (put.n(), &put.entity);
    let sizes = [format!("g{n:x}"), format!("-{n:x}"), format!("0x{n:x}"), format!("+{n:x}"), String::new()];
    let beyond = format!("1{n:016x}"); // the same in 64 bits
    let bodies = sizes.into_iter().chain([beyond]).map(|size| format!("{size}\r\n{entity}\r\n0\r\n\r\n"));
    let torn = [format!("{n:x}\r\n{entity}X\r\n0\r\n\r\n"), format!("{n:x}\r\n{entity}0\r\n\r\n\r\n")];
    put.refused(probe, bodies.chain(torn).map(|body| put_with("Transfer-Encoding: chunked\r\n", &body)))
}

/// If a message has both fields, chunk data is never read as a request, whatever the length is.
pub(super) fn a_length_never_overrides_chunked(probe: &Probe) -> Result<(), String> {
    let hidden = "GET /-7999 HTTP/1.1\r\nHost: a\r\n\r\n";
    let size = format!("{:x}\r\n", hidden.len());
    let body = format!("{size}{hidden}\r\n0\r\n\r\n");
    let length = format!("Content-Length: {}\r\n", size.len());
    for fields in [format!("{length}Transfer-Encoding: chunked\r\n"), format!("Transfer-Encoding: chunked\r\n{length}")]
    {
        let message = put_with(&fields, &body);
        let ProbeResult { statuses, .. } = probe.all(&message)?;
        if statuses.len() > 1 {
            return Err(format!("what a chunk holds is answered after {}: {statuses:?}", brief(&message)));
        }
    }
    Ok(())
}

/// A bare CR ends no line, so no field follows it.
pub(super) fn a_bare_cr_makes_no_field(probe: &Probe) -> Result<(), String> {
    makes_no_field(probe, "X: y\r")
}

/// A line that begins with white space is no field.
pub(super) fn a_folded_line_makes_no_field(probe: &Probe) -> Result<(), String> {
    makes_no_field(probe, "X: y\r\n ")
}

/// Sends a message in which a `Content-Length` follows `before`, and then a GET. If the length counted as a field, the GET
/// would be read as the body. So the message must be refused, or the GET answered.
fn makes_no_field(probe: &Probe, before: &str) -> Result<(), String> {
    let next = request("GET", "/-7999", "Connection: close\r\n");
    let message = request("GET", "/-7998", &format!("{before}Content-Length: {}\r\n", next.len()));
    let ProbeResult { statuses, ending } = probe.all(&[message.as_slice(), &next].concat())?;
    match (statuses.as_slice(), ending) {
        ([] | [400..=403 | 405..=599], Ending::Closed | Ending::Reset) | ([404, 404], _) => Ok(()),
        _ => Err(format!("{statuses:?}, {ending:?} to {}", brief(&message))),
    }
}

/// HTTP/1.0 has no codings, so the answer is the last one.
pub(super) fn chunked_in_1_0_is_the_last(probe: &Probe) -> Result<(), String> {
    let head =
        "PUT / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n";
    let message = format!("{head}\r\n{}", TestEntity::of(-7018).chunks()).into_bytes();
    let ProbeResult { statuses, ending } = probe.all(&[message.as_slice(), &request("GET", "/-7999", "")].concat())?;
    match (statuses.len(), ending) {
        (0 | 1, Ending::Closed | Ending::Reset) => Ok(()),
        _ => Err(format!("{statuses:?}, {ending:?} to {}", brief(&message))),
    }
}

/// Both together are an attempt to smuggle a request. RFC 9112 (6.1) lets a server refuse, or use `chunked` and close.
pub(super) fn a_length_with_chunked_is_refused(probe: &Probe) -> Result<(), String> {
    let put = TestEntity::of(-7016);
    let length = format!("Content-Length: {}\r\n", put.n());
    let both = [format!("{length}Transfer-Encoding: chunked\r\n"), format!("Transfer-Encoding: chunked\r\n{length}")];
    put.refused(probe, both.iter().map(|fields| put_with(fields, &put.chunks())))
}

/// Another coding before `chunked`, or `chunked` twice, is refused.
pub(super) fn chunked_is_the_only_coding(probe: &Probe) -> Result<(), String> {
    let put = TestEntity::of(-7017);
    put.refused(probe, ["gzip, chunked", "chunked, chunked"].map(|coding| put.with_coding(coding)))
}

/// A line ends with CRLF. RFC 9112 (2.2) lets a server accept a bare LF.
pub(super) fn a_bare_lf_ends_no_line(probe: &Probe) -> Result<(), String> {
    probe.each_ends_with([
        b"GET /-7998 HTTP/1.1\nHost: a\n\n".to_vec(),
        b"GET /-7998 HTTP/1.1\r\nHost: a\nX: y\r\n\r\n".to_vec(),
    ])
}

/// CR, NUL and other control bytes in a field are refused. RFC 9110 (5.5) lets a server replace the first two, and
/// keep the others.
pub(super) fn bare_cr_and_control_bytes_are_refused(probe: &Probe) -> Result<(), String> {
    probe.each_ends_with(["X: a\rb\r\n", "X: a\0b\r\n", "X: a\x01b\r\n"].map(|field| request("GET", "/-7998", field)))
}

/// Folded lines are refused. RFC 9112 (5.2) lets a server unfold them.
pub(super) fn folded_lines_are_refused(probe: &Probe) -> Result<(), String> {
    probe.each_ends_with([request("GET", "/-7998", "X: y\r\n folded\r\n")])
}
