//! The discovery of an answer that is not known before the load: the request is sent once.
//!
//! Invariant: the discovery ends within the client's patience, however slowly the server reads or writes. Cost: one
//! connection. A stop is noticed within 0.1 s, except while the connection is being established.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::answer::{Heads, Reader, Step};
use crate::encoded_requests::EncodedRequests;
use crate::error::LoadError;
use crate::load::Load;
use crate::request_stream::{PlannedRequest, RequestStream};
use crate::traffic::{Exchange, Traffic};

/// Returns the load's traffic with the discovered answer, or `None` if the answers are known.
pub(crate) fn discovered(load: &Load) -> Result<Option<Traffic>, LoadError> {
    let Some(exchange) = load.traffic.unknown() else { return Ok(None) };
    let requests = EncodedRequests::new(&load.traffic, &load.host, true);
    let planned = RequestStream::next(&mut load.traffic.request_stream(0, 1));
    let (status, body) = exchange_once(load, &requests, planned).map_err(|error| match error {
        DiscoveryError::Stopped => LoadError::Stopped,
        DiscoveryError::Answer(why) => LoadError::Server(format!("{}: {why}", requests.name(planned))),
    })?;
    let statuses = match exchange.method.as_str() {
        // The first PUT creates the entity, the next ones replace it.
        "PUT" if [200, 201, 204].contains(&status) => vec![200, 201, 204],
        _ => vec![status],
    };
    let known = Exchange { statuses, answers: vec![body], ..exchange.clone() };
    Traffic::expecting(vec![known]).map(Some)
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
    let mut stream =
        TcpStream::connect_timeout(&load.target, load.patience).map_err(|error| format!("cannot connect: {error}"))?;
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
            Step::More => {}
            Step::Done { unexpected: Some(status), .. } => {
                return Err(format!("status {status}: {}", reader.excerpt()).into());
            }
            Step::Done { unexpected: None, .. } => return Ok(reader.take_discovered()),
        }
    }
}

/// Whether the call was interrupted or timed out.
fn is_pause(error: &std::io::Error) -> bool {
    [ErrorKind::Interrupted, ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind())
}
