//! The discovery of answers that are not known before the load: all requests are sent in turn, then all once more, so that a write
//! between two reads shows that their answer changes. If both answers to a request have the same body, and it shows the present
//! time, it is sent a third time, a second later.
//!
//! Invariant: an exchange ends within the client's timeout, however slowly the server reads or writes. Cost: one
//! connection for each exchange; of many requests, up to [`MAX_THREADS`] are sent at a time. A stop is noticed within 0.1 s, except
//! while the connection is being established.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustls::StreamOwned;

use crate::answer::{Heads, ReadStep, Reader};
use crate::encoded_requests::EncodedRequests;
use crate::error::LoadError;
use crate::load::Load;
use crate::report::ChangingAnswer;
use crate::request_stream::PlannedRequest;
use crate::traffic::{AnswerCheck, Exchange, ExchangeGroup, Traffic};

/// The requests of a load with their right answers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Discovered {
    /// The requests. Their answers are known.
    pub traffic: Traffic,
    /// The requests with a changing answer.
    pub changing: Vec<ChangingAnswer>,
    /// The time of a request without others: the fastest answer to each request, and their mean by weights. It includes a connect.
    pub time: Duration,
}

/// Discovers the right answers to the requests of a load, as [`Traffic::discovering`] describes. The answers are then compared with
/// those of any server. [`run`](crate::run()) does so too, and forgets them. Returns `None` if they are known.
///
/// # Errors
///
/// Returns [`LoadError::Server`] if a request has no answer, or one with a wrong status, and [`LoadError::Stopped`].
pub fn discover(load: &Load) -> Result<Option<Discovered>, LoadError> {
    let Some(exchanges) = load.traffic.unknown() else { return Ok(None) };
    let requests = EncodedRequests::new(&load.traffic, &load.host, true);
    let places: Vec<u32> = (0..exchanges.all.len() as u32).collect();
    let first = ask(load, &requests, &places)?;
    let mut second = ask(load, &requests, &places)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let is_timed = |place: &u32| {
        let (first, second) = (&first[*place as usize], &second[*place as usize]);
        first.body == second.body && shows_time(&second.body, now)
    };
    let timed: Vec<u32> = places.into_iter().filter(is_timed).collect();
    if !timed.is_empty() {
        wait_a_second(load)?;
        for (place, answer) in timed.iter().zip(ask(load, &requests, &timed)?) {
            second[*place as usize] = answer;
        }
    }
    let mut known: Vec<Exchange> = exchanges
        .all
        .iter()
        .zip(first.iter().zip(&second))
        .map(|(one, (first, second))| known(one, first, second))
        .collect();
    let mut changing = Vec::new();
    for group in exchanges.groups.iter() {
        let own = &mut known[group.places()];
        // The answers of all ids of a group are judged alike.
        let judged = own.iter().map(|one| one.judged).max().unwrap_or_default();
        let mut statuses: Vec<u16> = own.iter().flat_map(|one| one.statuses.clone()).collect();
        statuses.sort_unstable();
        statuses.dedup();
        if judged > exchanges.all[group.first as usize].judged {
            changing.push(ChangingAnswer { request: group.name.clone(), judged });
        }
        own.iter_mut().for_each(|one| (one.judged, one.statuses) = (judged, statuses.clone()));
    }
    let weighted = |group: &ExchangeGroup| {
        let own = first[group.places()].iter().chain(&second[group.places()]);
        own.map(|answer| answer.time).min().unwrap_or_default() * group.weight
    };
    let time = exchanges.groups.iter().map(weighted).sum::<Duration>() / exchanges.order.len() as u32;
    Ok(Some(Discovered { traffic: load.traffic.with_answers(exchanges, known), changing, time }))
}

/// A discovered answer.
#[derive(Debug)]
struct SeenAnswer {
    status: u16,
    body: Vec<u8>,
    time: Duration,
}

/// The max number of threads that ask, and the number of requests for each.
const MAX_THREADS: usize = 16;
const REQUESTS_PER_THREAD: usize = 16;

/// Sends these requests, few of them one after the other, and returns their answers in order.
fn ask(load: &Load, requests: &EncodedRequests, places: &[u32]) -> Result<Vec<SeenAnswer>, LoadError> {
    let ask_one = |place: &u32| {
        let (planned, started) = (PlannedRequest::Fixed(*place), Instant::now());
        match exchange_once(load, requests, planned) {
            Ok((status, body)) => Ok(SeenAnswer { status, body, time: started.elapsed() }),
            Err(DiscoveryError::Stopped) => Err(LoadError::Stopped),
            Err(DiscoveryError::Answer(why)) => Err(LoadError::Server(format!("{}: {why}", requests.name(planned)))),
        }
    };
    let threads = (places.len() / REQUESTS_PER_THREAD).clamp(1, MAX_THREADS);
    let parts = places.chunks(places.len().div_ceil(threads).max(1));
    let ask_part = |part: &[u32]| part.iter().map(ask_one).collect::<Result<Vec<_>, _>>();
    let answers: Result<Vec<Vec<SeenAnswer>>, LoadError> = thread::scope(|scope| {
        let asking: Vec<_> = parts.map(|part| scope.spawn(move || ask_part(part))).collect();
        let joined =
            asking.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect()
    });
    Ok(answers?.into_iter().flatten().collect())
}

/// Returns the exchange with its right answer.
fn known(exchange: &Exchange, first: &SeenAnswer, second: &SeenAnswer) -> Exchange {
    let statuses = match exchange.method.as_str() {
        _ if exchange.has_given_status => exchange.statuses.clone(),
        // The first PUT creates the entity, the next ones replace it.
        "PUT" if [200, 201, 204].contains(&second.status) => vec![200, 201, 204, first.status],
        _ => vec![first.status, second.status],
    };
    let seen = match () {
        () if first.body == second.body => AnswerCheck::Body,
        () if first.body.len() == second.body.len() => AnswerCheck::Length,
        () => AnswerCheck::Status,
    };
    Exchange { statuses, answers: vec![second.body.clone()], judged: seen.max(exchange.judged), ..exchange.clone() }
}

/// Whether `body` has the time of this second or of the last two, as minutes and seconds or in seconds of Unix. Such a body is
/// the same twice within a second, and changes later.
fn shows_time(body: &[u8], now: u64) -> bool {
    let has = |text: &str| memchr::memmem::find(body, text.as_bytes()).is_some();
    (now.saturating_sub(2)..=now)
        .any(|second| has(&format!(":{:02}:{:02}", second / 60 % 60, second % 60)) || has(&second.to_string()))
}

/// Waits until the second has changed.
fn wait_a_second(load: &Load) -> Result<(), LoadError> {
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(1_050) {
        if load.stop.is_begun() {
            return Err(LoadError::Stopped);
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

/// A connection, with TLS or without.
trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// The time between two checks for a stop.
const STOP_CHECK: Duration = Duration::from_millis(100);

fn exchange_once(
    load: &Load,
    requests: &EncodedRequests,
    planned: PlannedRequest,
) -> Result<(u16, Vec<u8>), DiscoveryError> {
    let started = Instant::now();
    let socket = TcpStream::connect_timeout(&load.target, load.timeout)
        .map_err(|error| format!("cannot connect to {}: {error}", load.target))?;
    let step = Some(STOP_CHECK.min(load.timeout));
    socket.set_read_timeout(step).and(socket.set_write_timeout(step)).map_err(|error| error.to_string())?;
    let mut stream: Box<dyn Stream> = match &load.tls {
        None => Box::new(socket),
        Some(tls) => Box::new(StreamOwned::new(tls.connect().map_err(|error| error.to_string())?, socket)),
    };
    let may_go_on = |received: u64| match started.elapsed() >= load.timeout {
        _ if load.stop.is_begun() => Err(DiscoveryError::Stopped),
        true => Err(late_answer(received, load.timeout).into()),
        false => Ok(()),
    };
    let mut request = Vec::new();
    requests.write(planned, &mut request);
    let mut unsent = request.as_slice();
    while !unsent.is_empty() {
        may_go_on(0)?;
        match stream.write(unsent) {
            Ok(sent) => unsent = unsent.get(sent..).unwrap_or_default(),
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(format!("cannot send: {error}").into()),
        }
    }
    let (expected, mut reader, mut heads) = (requests.expected(planned), Reader::default(), Heads::default());
    let (mut partial, mut buffer, mut total) = (Vec::new(), vec![0; 64 << 10], 0);
    loop {
        may_go_on(total)?;
        let received = match stream.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0), // TLS without an announced end
            received => received,
        };
        let step = match received {
            Ok(0) => reader.end(&expected).map_err(|wrong| wrong.0)?.ok_or("the connection ended before the answer")?,
            Ok(received) => {
                total += received as u64;
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

/// The reason why an answer is not there, of which this number of bytes is.
fn late_answer(received: u64, timeout: Duration) -> String {
    let timeout = timeout.as_secs_f64();
    match received {
        0 => format!("no answer within {timeout} s"),
        _ => format!("no end of the answer within {timeout} s: {received} bytes have come"),
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
