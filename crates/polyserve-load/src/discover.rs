//! The discovery of answers that are not known before the load: each request is sent twice. If both answers have the same
//! body, and it shows the present time, it is sent once more, a second later.
//!
//! Invariant: an exchange ends within the client's patience, however slowly the server reads or writes. Cost: one
//! connection for each exchange. A stop is noticed within 0.1 s, except while the connection is being established.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::answer::{Heads, ReadStep, Reader};
use crate::encoded_requests::EncodedRequests;
use crate::error::LoadError;
use crate::load::Load;
use crate::report::ChangingAnswer;
use crate::request_stream::PlannedRequest;
use crate::traffic::{AnswerCheck, Exchange, Traffic};

/// Returns the load's traffic with the discovered answers, and the requests with a changing answer; `None` if the answers are
/// known.
pub(crate) fn discovered(load: &Load) -> Result<Option<(Traffic, Vec<ChangingAnswer>)>, LoadError> {
    let Some(unknown) = load.traffic.unknown() else { return Ok(None) };
    let requests = EncodedRequests::new(&load.traffic, &load.host, true);
    let (mut known, mut changing) = (Vec::new(), Vec::new());
    for (exchange, index) in unknown.iter().zip(0..) {
        let planned = PlannedRequest::Fixed(index);
        let name = requests.name(planned);
        let discovered = discover(load, &requests, planned, exchange).map_err(|error| match error {
            DiscoveryError::Stopped => LoadError::Stopped,
            DiscoveryError::Answer(why) => LoadError::Server(format!("{name}: {why}")),
        })?;
        if discovered.judged != AnswerCheck::Body {
            changing.push(ChangingAnswer { request: name, judged: discovered.judged });
        }
        known.push(discovered);
    }
    Ok(Some((Traffic::expecting(known)?, changing)))
}

/// Returns the exchange with its right answer.
fn discover(
    load: &Load,
    requests: &EncodedRequests,
    planned: PlannedRequest,
    exchange: &Exchange,
) -> Result<Exchange, DiscoveryError> {
    let (first_status, first) = exchange_once(load, requests, planned)?;
    let (mut status, mut body) = exchange_once(load, requests, planned)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    if first == body && shows_time(&body, now) {
        wait_a_second(load)?;
        (status, body) = exchange_once(load, requests, planned)?;
    }
    let mut statuses = match exchange.method.as_str() {
        // The first PUT creates the entity, the next ones replace it.
        "PUT" if [200, 201, 204].contains(&status) => vec![200, 201, 204],
        _ => vec![first_status],
    };
    if !statuses.contains(&status) {
        statuses.push(status);
    }
    let judged = match () {
        () if first == body => AnswerCheck::Body,
        () if first.len() == body.len() => AnswerCheck::Length,
        () => AnswerCheck::Status,
    };
    Ok(Exchange { statuses, answers: vec![body], judged, ..exchange.clone() })
}

/// Whether `body` has the time of this second or of the last two, as minutes and seconds or in seconds of Unix. Such a body is
/// the same twice within a second, and changes later.
fn shows_time(body: &[u8], now: u64) -> bool {
    let has = |text: &str| memchr::memmem::find(body, text.as_bytes()).is_some();
    (now.saturating_sub(2)..=now)
        .any(|second| has(&format!(":{:02}:{:02}", second / 60 % 60, second % 60)) || has(&second.to_string()))
}

/// Waits until the second has changed.
fn wait_a_second(load: &Load) -> Result<(), DiscoveryError> {
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(1_050) {
        if load.stop.is_begun() {
            return Err(DiscoveryError::Stopped);
        }
        thread::sleep(STOP_CHECK);
    }
    Ok(())
}

/// Why no answer was discovered.
enum DiscoveryError {
    Stopped,
    Answer(String),
}

impl<S: Into<String>> From<S> for DiscoveryError {
    fn from(why: S) -> Self {
        Self::Answer(why.into())
    }
}

/// The time between two checks for a stop.
const STOP_CHECK: Duration = Duration::from_millis(100);

fn exchange_once(
    load: &Load,
    requests: &EncodedRequests,
    planned: PlannedRequest,
) -> Result<(u16, Vec<u8>), DiscoveryError> {
    let started = Instant::now();
    let mut stream = TcpStream::connect_timeout(&load.target, load.patience)
        .map_err(|error| format!("cannot connect to {}: {error}", load.target))?;
    let step = Some(STOP_CHECK.min(load.patience));
    stream.set_read_timeout(step).and(stream.set_write_timeout(step)).map_err(|error| error.to_string())?;
    let may_go_on = || match started.elapsed() >= load.patience {
        _ if load.stop.is_begun() => Err(DiscoveryError::Stopped),
        true => Err(format!("no answer within {} s", load.patience.as_secs_f64()).into()),
        false => Ok(()),
    };
    let mut request = Vec::new();
    requests.write(planned, &mut request);
    let mut unsent = request.as_slice();
    while !unsent.is_empty() {
        may_go_on()?;
        match stream.write(unsent) {
            Ok(sent) => unsent = unsent.get(sent..).unwrap_or_default(),
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(format!("cannot send: {error}").into()),
        }
    }
    let (expected, mut reader, mut heads) = (requests.expected(planned), Reader::default(), Heads::default());
    let (mut partial, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        may_go_on()?;
        let step = match stream.read(&mut buffer) {
            Ok(0) => reader.end(&expected).map_err(|wrong| wrong.0)?.ok_or("the connection ended before the answer")?,
            Ok(received) => {
                partial.extend_from_slice(buffer.get(..received).unwrap_or_default());
                let (used, step) = reader.feed(&partial, &expected, &mut heads).map_err(|wrong| wrong.0)?;
                partial.drain(..used);
                step
            }
            Err(error) if is_pause(&error) => continue,
            Err(error) => return Err(format!("cannot receive: {error}").into()),
        };
        match step {
            ReadStep::More => {}
            ReadStep::Done { unexpected: Some(status), .. } => {
                return Err(format!("status {status}: {}", reader.excerpt()).into());
            }
            ReadStep::Done { unexpected: None, .. } => return Ok(reader.take_discovered()),
        }
    }
}

/// Whether the call was interrupted or timed out.
fn is_pause(error: &std::io::Error) -> bool {
    [ErrorKind::Interrupted, ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_found_in_its_usual_forms() {
        let now = 1_764_171_279; // 2025-11-26T15:34:39Z
        for text in
            ["Wed, 26 Nov 2025 15:34:39 GMT", "2025-11-26T17:34:38+02:00", "{\"at\":1764171278123}", "x 10:34:37"]
        {
            assert!(shows_time(text.as_bytes(), now), "{text}");
        }
        for text in ["", "15:34", "Wed, 26 Nov 2025 15:34:36 GMT", "{\"id\":1}", "1764171"] {
            assert!(!shows_time(text.as_bytes(), now), "{text}");
        }
    }
}
