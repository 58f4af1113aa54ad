//! Request lines and fields.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::probe::{Probe, ProbeResult, brief, get, put, request};

const ENTITY: &str = r#"{"id":-7003,"description":"d","value":1.5}"#;
const PATH: &str = "/-7003";

/// Every answer has one `Date`, which is the current time.
pub(super) fn the_date_is_the_time(probe: &Probe) -> Result<(), String> {
    const MAX_SKEW: Duration = Duration::from_secs(5); // clocks here are one; the server's may be of the last second
    probe.expect(&put(ENTITY), &[200, 201])?;
    for (request, status) in [(get(PATH), 200), (get("/-7998"), 404)] {
        let response = probe.expect(&request, &[status])?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let dates: Vec<&str> = response.all("Date").collect();
        match response.date() {
            Some(date) if dates.len() == 1 && now.as_secs().abs_diff(date) <= MAX_SKEW.as_secs() => {}
            _ => return Err(format!("the Date of a {status} is {dates:?}")),
        }
    }
    Ok(())
}

/// HTTP/1.1 without a `Host` is answered with 400.
pub(super) fn a_request_without_a_host_is_refused(probe: &Probe) -> Result<(), String> {
    probe.expect(format!("GET {PATH} HTTP/1.1\r\n\r\n").as_bytes(), &[400]).map(drop)
}

/// Two `Host` fields are answered with 400, equal or not.
pub(super) fn two_hosts_are_refused(probe: &Probe) -> Result<(), String> {
    ["Host: a\r\n", "host: b\r\n"]
        .iter()
        .try_for_each(|second| probe.expect(&request("GET", PATH, second), &[400]).map(drop))
}

/// An invalid `Host` is answered with 400.
pub(super) fn an_invalid_host_is_refused(probe: &Probe) -> Result<(), String> {
    ["a b", "a/b", "user@a", "a:b", "<a>"].iter().try_for_each(|host| {
        probe.expect(format!("GET {PATH} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes(), &[400]).map(drop)
    })
}

/// A head of a million bytes is answered with 431.
pub(super) fn a_head_that_is_too_large_is_refused(probe: &Probe) -> Result<(), String> {
    let field = format!("X: {}\r\n", "x".repeat(1_000));
    let message = request("GET", PATH, &field.repeat(1_000));
    refused(&probe.all(&message)?, &[431], "a head of a million bytes")
}

/// An unknown method is answered with 501.
pub(super) fn unknown_methods_are_not_implemented(probe: &Probe) -> Result<(), String> {
    probe.expect(&request("BREW", PATH, ""), &[501]).map(drop)
}

/// The preface of HTTP/2 is refused.
pub(super) fn the_preface_of_http_2_is_refused(probe: &Probe) -> Result<(), String> {
    // It ends with the empty SETTINGS frame that every client sends.
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    refused(&probe.all(preface)?, &[400, 505], "the preface of HTTP/2")
}

/// Bytes that are not HTTP are answered with 400.
pub(super) fn garbage_is_answered_with_400(probe: &Probe) -> Result<(), String> {
    [&b"hello\r\n\r\n"[..], b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\r\n\r\n", b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n"]
        .iter()
        .try_for_each(|garbage| refused(&probe.all(garbage)?, &[400], &brief(garbage)))
}

fn refused(ProbeResult { statuses, ending }: &ProbeResult, expected: &[u16], what: &str) -> Result<(), String> {
    match statuses.as_slice() {
        [] => Err(format!("no answer to {what}: {ending:?}")),
        [status] if expected.contains(status) => Ok(()),
        statuses => Err(format!("{statuses:?} to {what}")),
    }
}

/// A client sends half a head and half-closes. The server does not answer the half as a request.
pub(super) fn half_a_head_is_no_request(probe: &Probe) -> Result<(), String> {
    probe.expect(&put(ENTITY), &[200, 201])?;
    let mut client = probe.client()?;
    let half = format!("GET {PATH} HTTP/1.1\r\nHost: a\r\n");
    client.send(half.as_bytes()).and_then(|()| client.half_close()).map_err(|error| error.to_string())?;
    let (answer, ending) = client.end();
    match (answer.get(9), ending) {
        (Some(b'1' | b'2' | b'3'), _) => Err(format!("{} to half a head", brief(&answer))),
        (_, crate::client::Ending::Silent) => Err(String::from("half a head and an end keep a connection open")),
        _ => Ok(()),
    }
}
