//! Keeping, closing, pipelining.

use std::thread;
use std::time::Duration;

use super::probe::{Probe, ProbeResult, ask, brief, first_line, get, has_status, put, put_with, request};
use crate::client::{Client, Ending, Response};

const ENTITY: &str = r#"{"id":-7002,"description":"d","value":1.5}"#;
const PATH: &str = "/-7002";

fn stored(probe: &Probe) -> Result<(), String> {
    probe.expect(&put(ENTITY), &[200, 201]).map(drop)
}

/// A connection of HTTP/1.1 is kept: it serves several requests.
pub(super) fn a_connection_is_kept_by_default(probe: &Probe) -> Result<(), String> {
    stored(probe)?;
    let mut client = probe.client()?;
    for _ in 0..3 {
        let response = ask(&mut client, &get(PATH))?;
        has_status(&get(PATH), &response, &[200])?;
        if response.closes() {
            return Err(String::from("the answer says Connection: close without a request for it"));
        }
    }
    Ok(())
}

/// The answer to a request with `Connection: close` has it too, and the connection ends.
pub(super) fn a_client_may_ask_to_close(probe: &Probe) -> Result<(), String> {
    stored(probe)?;
    for field in ["Connection: close\r\n", "connection: x, CLOSE\r\n"] {
        let message = request("GET", PATH, field);
        let mut client = probe.client()?;
        let response = ask(&mut client, &message)?;
        has_status(&message, &response, &[200])?;
        ends(&mut client, &message, &response, true)?;
    }
    Ok(())
}

/// A connection of HTTP/1.0 ends after its answer.
pub(super) fn a_connection_of_1_0_closes_by_default(probe: &Probe) -> Result<(), String> {
    stored(probe)?;
    let message = format!("GET {PATH} HTTP/1.0\r\n\r\n").into_bytes();
    let mut client = probe.client()?;
    let response = ask(&mut client, &message)?;
    has_status(&message, &response, &[200])?;
    ends(&mut client, &message, &response, false)
}

fn ends(client: &mut Client, message: &[u8], response: &Response, announces: bool) -> Result<(), String> {
    if announces && !response.closes() {
        return Err(format!("no Connection: close in the answer to {}", brief(message)));
    }
    match client.end() {
        (rest, Ending::Closed) if rest.is_empty() => Ok(()),
        (rest, Ending::Closed) => Err(format!("{} bytes follow the answer to {}", rest.len(), brief(message))),
        (_, Ending::Reset) => Err(format!("a reset after {}", brief(message))),
        (_, Ending::Silent) => Err(format!("the connection lives on after {}", brief(message))),
    }
}

/// HTTP/1.0 keeps a connection on request, and the answer says so.
pub(super) fn a_connection_of_1_0_is_kept_on_request(probe: &Probe) -> Result<(), String> {
    stored(probe)?;
    let message = format!("GET {PATH} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").into_bytes();
    let mut client = probe.client()?;
    for _ in 0..2 {
        let response = ask(&mut client, &message)?;
        has_status(&message, &response, &[200])?;
        if !response.lists("Connection", "keep-alive") {
            return Err(format!("no Connection: keep-alive in the answer to {}", brief(&message)));
        }
    }
    Ok(())
}

/// Requests that arrive together are answered in order.
pub(super) fn pipelined_requests_are_answered_in_order(probe: &Probe) -> Result<(), String> {
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

/// An answer arrives, though the request after it is refused.
pub(super) fn an_answer_arrives_though_what_follows_is_refused(probe: &Probe) -> Result<(), String> {
    stored(probe)?;
    let ProbeResult { statuses, ending } = probe.all(&[get(PATH), b"hello\r\n\r\n".to_vec()].concat())?;
    match statuses.first() {
        Some(200) => Ok(()),
        _ => Err(format!("{statuses:?}, {ending:?} to a good request with garbage behind it")),
    }
}

/// A request may be split anywhere. The pause makes it likely that the server reads a byte alone; no result depends on
/// it.
pub(super) fn a_request_may_arrive_byte_by_byte(probe: &Probe) -> Result<(), String> {
    let mut client = probe.client()?;
    for byte in put(ENTITY) {
        thread::sleep(Duration::from_micros(100));
        client.send(&[byte]).map_err(|error| format!("it does not take a request byte by byte: {error}"))?;
    }
    let answer = client.receive().map_err(|failure| format!("{} to a PUT byte by byte", first_line(&failure)))?;
    has_status(&put(ENTITY), &answer, &[200, 201])
}

/// A client that has half-closed still gets its answer.
pub(super) fn a_half_closed_client_gets_its_answer(probe: &Probe) -> Result<(), String> {
    stored(probe)?;
    let mut client = probe.client()?;
    client.send(&get(PATH)).and_then(|()| client.half_close()).map_err(|error| error.to_string())?;
    let answer = client.receive().map_err(|failure| format!("{} to a half-closed client", first_line(&failure)))?;
    has_status(&get(PATH), &answer, &[200])
}

/// A client that sends `Expect: 100-continue` gets a 100, or a final status, before its body.
pub(super) fn an_expected_continue_comes_before_the_body(probe: &Probe) -> Result<(), String> {
    let fields = format!("Content-Length: {}\r\nExpect: 100-continue\r\n", ENTITY.len());
    let head = put_with(&fields, "");
    let mut client = probe.client()?;
    has_status(&head, &ask(&mut client, &head)?, &[100])?;
    let answer = ask(&mut client, ENTITY.as_bytes())?;
    has_status(ENTITY.as_bytes(), &answer, &[200, 201])
}
