//! The properties that are no cases of the wire corpus: their requests are sent in parts, or their answers are compared.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::probe::{Probe, ProbeResult, ask, brief, first_line, get, has_status, put, put_with, request};
use super::{AddressProperty, Group};
use crate::client::Ending;

macro_rules! properties {
    ($($group:ident: $($name:ident),+;)+) => {
        /// The properties of this module, by group.
        pub(super) const PROPERTIES: &[AddressProperty] = &[$($(
            AddressProperty { name: stringify!($name), group: Group::$group, exchange: Some($name) },
        )+)+];
    };
}

properties! {
    Entity: put_creates_and_replaces;
    Connection: pipelined_requests_are_answered_in_order, a_request_may_arrive_byte_by_byte,
        a_half_closed_client_gets_its_answer;
    Head: the_date_is_the_time, half_a_head_is_no_request;
    Framing: a_length_never_overrides_chunked, a_bare_cr_makes_no_field, a_folded_line_makes_no_field,
        chunked_in_1_0_is_the_last;
}

const ENTITY: &str = r#"{"id":-7002,"description":"d","value":1.5}"#;
const PATH: &str = "/-7002";

fn stored(probe: &Probe) -> Result<(), String> {
    probe.expect(&put(ENTITY), &[200, 201]).map(drop)
}

/// A PUT of a new entity is answered with 201 and its `Location`; a PUT of a known entity is answered with 200. The id may be
/// negative.
fn put_creates_and_replaces(probe: &Probe) -> Result<(), String> {
    // An earlier run may have stored the entity.
    let body = |id: u64| format!(r#"{{"id":-{id},"description":"d","value":1.5}}"#);
    let mut client = probe.client()?;
    for id in 7_100..7_200 {
        if ask(&mut client, &get(&format!("/-{id}")))?.status != 404 {
            continue;
        }
        let created = ask(&mut client, &put(&body(id)))?;
        has_status(&put(&body(id)), &created, &[201])?;
        let location = created.header("Location").map(str::to_owned);
        has_status(&put(&body(id)), &ask(&mut client, &put(&body(id)))?, &[200])?;
        return match location {
            Some(path) if path == format!("/-{id}") => Ok(()),
            other => Err(format!("the Location of a 201 is {other:?}")),
        };
    }
    Err(String::from("every entity from -7100 to -7199 is there already"))
}

/// Requests that arrive together are answered in order.
fn pipelined_requests_are_answered_in_order(probe: &Probe) -> Result<(), String> {
    stored(probe)?;
    let mut client = probe.client()?;
    let bytes: Vec<u8> = (0..16).flat_map(|n| if n % 3 == 1 { get(PATH) } else { get("/-7998") }).collect();
    client.send(&bytes).map_err(|error| error.to_string())?;
    for n in 0..16 {
        let answer = client.receive().map_err(|failure| format!("{}, number {n} of 16", first_line(&failure)))?;
        let (status, expected) = (answer.status, if n % 3 == 1 { 200 } else { 404 });
        if status != expected || (status == 200 && answer.text() != ENTITY) {
            return Err(format!("answer {n} of 16 pipelined ones is a {status}, not its {expected}"));
        }
    }
    Ok(())
}

/// A request may be split anywhere. The pause makes it likely that the server reads a byte alone; no result depends on
/// it.
fn a_request_may_arrive_byte_by_byte(probe: &Probe) -> Result<(), String> {
    let mut client = probe.client()?;
    for byte in put(ENTITY) {
        thread::sleep(Duration::from_micros(100));
        client.send(&[byte]).map_err(|error| format!("it does not take a request byte by byte: {error}"))?;
    }
    let answer = client.receive().map_err(|failure| format!("{} to a PUT byte by byte", first_line(&failure)))?;
    has_status(&put(ENTITY), &answer, &[200, 201])
}

/// A client that has half-closed still gets its answer.
fn a_half_closed_client_gets_its_answer(probe: &Probe) -> Result<(), String> {
    stored(probe)?;
    let mut client = probe.client()?;
    client.send(&get(PATH)).and_then(|()| client.half_close()).map_err(|error| error.to_string())?;
    let answer = client.receive().map_err(|failure| format!("{} to a half-closed client", first_line(&failure)))?;
    has_status(&get(PATH), &answer, &[200])
}

/// Every answer has one `Date`, which is the current time.
fn the_date_is_the_time(probe: &Probe) -> Result<(), String> {
    const MAX_SKEW: Duration = Duration::from_secs(5); // clocks here are one; the server's may be of the last second
    stored(probe)?;
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

/// A client sends half a head and half-closes. The server does not answer the half as a request.
fn half_a_head_is_no_request(probe: &Probe) -> Result<(), String> {
    stored(probe)?;
    let mut client = probe.client()?;
    let half = format!("GET {PATH} HTTP/1.1\r\nHost: a\r\n");
    client.send(half.as_bytes()).and_then(|()| client.half_close()).map_err(|error| error.to_string())?;
    let (answer, ending) = client.end();
    match (answer.get(9), ending) {
        (Some(b'1' | b'2' | b'3'), _) => Err(format!("{} to half a head", brief(&answer))),
        (_, Ending::Silent) => Err(String::from("half a head and an end keep a connection open")),
        _ => Ok(()),
    }
}

/// If a message has both fields, chunk data is never read as a request, whatever the length is.
fn a_length_never_overrides_chunked(probe: &Probe) -> Result<(), String> {
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
fn a_bare_cr_makes_no_field(probe: &Probe) -> Result<(), String> {
    makes_no_field(probe, "X: y\r")
}

/// A line that begins with white space is no field.
fn a_folded_line_makes_no_field(probe: &Probe) -> Result<(), String> {
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
fn chunked_in_1_0_is_the_last(probe: &Probe) -> Result<(), String> {
    let head =
        "PUT / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n";
    let message = format!("{head}\r\n{:x}\r\n{ENTITY}\r\n0\r\n\r\n", ENTITY.len()).into_bytes();
    let ProbeResult { statuses, ending } = probe.all(&[message.as_slice(), &request("GET", "/-7999", "")].concat())?;
    match (statuses.len(), ending) {
        (0 | 1, Ending::Closed | Ending::Reset) => Ok(()),
        _ => Err(format!("{statuses:?}, {ending:?} to {}", brief(&message))),
    }
}
