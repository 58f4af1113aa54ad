//! Recording over HTTP from any server that stores entities, on kept connections.
//!
//! Invariant: an operation without an answer is unknown, never wrong. This includes a broken connection, an expired
//! max wait, and a 5xx status. An impossible answer ends the recording.
//!
//! Cost: a thread and a connection for each client, and the cost of the [client](crate::client).

use std::collections::HashMap;
use std::net::SocketAddr;
#[cfg(feature = "tls")]
use std::net::TcpStream;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::sync::write;

use super::entities::EntityForm;
use super::record::{CallCondition, Losses, Recording, RecordingControl, RecordingWorkload, WrongAnswer, nanos};
use super::{Call, CallAnswer, Operation, Precondition};
#[cfg(feature = "tls")]
use crate::client::is_timeout;
use crate::client::{Client, Ending, ReceiveFailure, Response};

/// A server that is asked over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpTarget {
    /// Its address.
    pub addr: SocketAddr,
    /// The value of `Host`: a server may answer for some hosts only.
    pub host: String,
    /// More header fields of each request, such as `Authorization`: lines with their ends.
    pub fields: String,
}

impl From<SocketAddr> for HttpTarget {
    fn from(addr: SocketAddr) -> Self {
        Self { addr, host: addr.to_string(), fields: String::new() }
    }
}

/// Records `clients` clients of these servers, which share their entities, of this form. The clients take the servers in turn. Each
/// client keeps its connection for as long as the server does.
///
/// Every key of the workload is removed first. If the answer to a removal was lost, the removal may take effect later. So
/// the recording has it as an operation of a process of its own, from number `clients` on.
///
/// # Panics
///
/// Panics if `targets` is empty.
pub fn record_http(
    targets: &[HttpTarget],
    form: EntityForm,
    workload: &RecordingWorkload,
    clients: u32,
    max_wait: Duration,
    control: &RecordingControl,
) -> Recording {
    assert!(!targets.is_empty(), "a recording needs a server");
    let mut recording = Recording::default();
    let mut cleaner = HttpClient::new(&targets[0], form, max_wait);
    for key in 0..workload.keys {
        if control.is_stopped() {
            return recording;
        }
        let key = workload.first_key.wrapping_add(key.cast_signed());
        let lost = match cleaner.clean(key) {
            Ok(lost) => lost,
            Err(wrong) => {
                recording.wrong.push(wrong);
                return recording;
            }
        };
        for _ in 0..lost {
            let process = clients.saturating_add(recording.operations.len() as u32);
            recording.operations.push(lost_removal(process, key));
        }
    }
    drop(cleaner);
    // Locked until all threads have started, so that they begin together.
    let (next_number, start_lock) = (AtomicU64::new(0), RwLock::new(()));
    let start = Instant::now();
    let run = |process: u32| {
        let target = &targets[process as usize % targets.len()];
        let (mut client, mut operations) = (HttpClient::new(target, form, max_wait), Vec::new());
        if start_lock.read().is_err() {
            return (operations, None); // a client's thread could not be started
        }
        while !control.is_stopped() {
            let number = next_number.fetch_add(1, Relaxed);
            if number >= workload.operations {
                break;
            }
            match client.operation(process, workload.step(number), start) {
                Ok(operation) => operations.push(operation),
                Err(wrong) => {
                    control.stop();
                    return (operations, Some(wrong));
                }
            }
            control.count(1);
        }
        (operations, None)
    };
    thread::scope(|scope| {
        let (run, start_guard) = (&run, write(&start_lock));
        let threads: Vec<_> = (0..clients).map(|process| scope.spawn(move || run(process))).collect();
        drop(start_guard);
        for thread in threads {
            let (operations, wrong) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            recording.operations.extend(operations);
            recording.wrong.extend(wrong);
        }
    });
    recording.took = start.elapsed();
    recording
}

/// Asks a server for one entity, so that a server that cannot be checked is found before a recording: one that does not
/// listen, is silent, or shows a certificate that is not trusted. Any status will do.
///
/// # Errors
///
/// Returns the reason, after `max_wait` for each of the connection, the handshake and the answer at the latest.
pub fn first_answer(target: &HttpTarget, form: EntityForm, key: i64, max_wait: Duration) -> Result<(), String> {
    let HttpTarget { addr, host, fields } = target;
    let addr = *addr;
    #[cfg(feature = "tls")]
    if let Some(trust) = crate::tls::trust_of(addr) {
        let socket = TcpStream::connect_timeout(&addr, max_wait).map_err(|error| format!("no connection: {error}"))?;
        let stream = trust.stream(socket);
        // With TLS 1.3, the server judges the client's certificate after the client has ended its handshake.
        let judged =
            || stream.peek_now().map_or_else(|error| if is_timeout(&error) { Ok(()) } else { Err(error) }, |_| Ok(()));
        match trust.shake_hands(&stream, Instant::now() + max_wait).map(|()| judged()) {
            Err(error) if is_timeout(&error) => return Err(format!("no TLS handshake within {max_wait:?}")),
            Err(error) | Ok(Err(error)) if !crate::tls::is_rejection(&error) => {
                return Err(format!("the TLS handshake fails: {error}"));
            }
            _ => {}
        }
    }
    let client = Client::connect(addr, max_wait).map_err(|error| format!("no connection: {error}"))?;
    let mut client = client.of_any_server();
    // The answer counts, also if the server closes before it reads the request.
    let _ = client.send(format!("GET {} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n", form.path(key)).as_bytes());
    match final_answer(&mut client) {
        Ok(_) => Ok(()),
        Err(failure) if failure.ending == Some(Ending::Silent) => {
            Err(format!("it does not answer one GET within {max_wait:?}"))
        }
        Err(failure) => Err(failure.to_string()),
    }
}

/// The max number of interim answers, such as a 103, before the final one.
const MAX_INTERIM: usize = 8;

/// Returns the next answer that is none of the interim ones, or the last of those if there are too many.
fn final_answer(client: &mut Client) -> Result<Response, ReceiveFailure> {
    for _ in 0..MAX_INTERIM {
        let response = client.receive()?;
        if !response.is_interim() {
            return Ok(response);
        }
    }
    client.receive()
}

/// A client of a server.
struct HttpClient<'a> {
    target: &'a HttpTarget,
    form: EntityForm,
    max_wait: Duration,
    /// The open connection, if any.
    connection: Option<Client>,
    /// Whether the server has closed a connection on which a request had been sent. From then on the connection is checked
    /// before each request, because a request that was never sent is not unknown.
    checks_connection: bool,
    losses: Losses,
    /// The last value of each key that an answer has named with a tag, and the tag.
    seen: HashMap<i64, (u64, String)>,
}

impl<'a> HttpClient<'a> {
    fn new(target: &'a HttpTarget, form: EntityForm, max_wait: Duration) -> Self {
        let (losses, seen) = (Losses::default(), HashMap::new());
        Self { target, form, max_wait, connection: None, checks_connection: false, losses, seen }
    }

    /// Removes a key. Returns the number of removals without an answer.
    fn clean(&mut self, key: i64) -> Result<u32, WrongAnswer> {
        let mut lost = 0;
        loop {
            let client = self.connected()?;
            if self.ask(client, lost_removal(0, key))?.is_some() {
                return Ok(lost);
            }
            lost += 1;
        }
    }

    fn operation(
        &mut self,
        process: u32,
        (key, call, condition): (i64, Call, Option<CallCondition>),
        start: Instant,
    ) -> Result<Operation, WrongAnswer> {
        let client = self.connected()?;
        let condition = condition.map(|condition| condition.of_seen(self.seen.get(&key).map(|(value, _)| *value)));
        let asked = Operation { process, key, call, condition, answer: None, called: nanos(start), returned: u64::MAX };
        let answer = self.ask(client, asked)?;
        Ok(Operation { answer, returned: nanos(start), ..asked })
    }

    /// Returns a connection. Retries until the max wait is over, because a server may refuse connections for a moment.
    fn connected(&mut self) -> Result<Client, WrongAnswer> {
        let deadline = Instant::now() + self.max_wait;
        loop {
            if let Some(client) = self.connection.take()
                && !(self.checks_connection && client.has_ended())
            {
                return Ok(client);
            }
            match Client::connect(self.target.addr, self.max_wait) {
                Ok(client) => self.connection = Some(client.of_any_server()),
                Err(error) if Instant::now() >= deadline => {
                    return Err(WrongAnswer(format!("no connection within {:?}: {error}", self.max_wait)));
                }
                // The next try may succeed, and the error of the last one is returned.
                Err(_) => thread::yield_now(),
            }
        }
    }

    /// Sends a request, and keeps the connection if the server does. Returns `None` if the answer is lost.
    fn ask(&mut self, mut client: Client, asked: Operation) -> Result<Option<CallAnswer>, WrongAnswer> {
        // A refusal may come before the whole request is sent. What counts is the answer.
        let sent = client.send(&self.request(&asked));
        let response = match final_answer(&mut client) {
            Ok(response) if response.status < 500 => response,
            Ok(response) => {
                self.losses.add(&format!("it answers {}", response.status), false)?;
                if !response.is_last() {
                    self.connection = Some(client);
                }
                return Ok(None);
            }
            Err(failure) if failure.ending.is_some() => {
                drop(sent); // why the request could not be sent says less than why no answer came
                self.checks_connection |= failure.is_clean();
                self.losses.add(&failure.to_string(), failure.ending == Some(Ending::Silent))?;
                return Ok(None);
            }
            Err(failure) => return Err(WrongAnswer(failure.to_string())),
        };
        self.losses = Losses::default();
        let answer = parse_response(self.form, &asked, &response)
            .map_err(|why| WrongAnswer(format!("{why}\n{}", client.show())))?;
        let shown = Operation { answer: Some(answer), ..asked }.shown_value();
        if let Some((value, tag)) = shown.zip(response.header("ETag")) {
            self.seen.insert(asked.key, (value, tag.to_owned()));
        }
        if !response.is_last() {
            self.connection = Some(client);
        }
        Ok(Some(answer))
    }

    fn request(&self, asked: &Operation) -> Vec<u8> {
        let (method, body) = match asked.call {
            Call::Get => ("GET", None),
            Call::Remove => ("DELETE", None),
            Call::Put(value) => ("PUT", Some(self.form.json(asked.key, value))),
        };
        let condition = match asked.condition {
            None => String::new(),
            Some(Precondition::Absent) => String::from("If-None-Match: *\r\n"),
            Some(Precondition::Present) => String::from("If-Match: *\r\n"),
            Some(Precondition::Value(_)) => format!("If-Match: {}\r\n", self.seen[&asked.key].1),
        };
        let (path, HttpTarget { host, fields, .. }) = (self.form.path(asked.key), self.target);
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{fields}{condition}");
        match body {
            None => format!("{head}\r\n"),
            Some(body) => {
                format!("{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            }
        }
        .into_bytes()
    }
}

/// A removal without an answer, called before the recording.
fn lost_removal(process: u32, key: i64) -> Operation {
    Operation { process, key, call: Call::Remove, condition: None, answer: None, called: 0, returned: u64::MAX }
}

/// Returns the answer to an operation.
fn parse_response(form: EntityForm, asked: &Operation, response: &Response) -> Result<CallAnswer, String> {
    let key = asked.key;
    Ok(match (asked.call, response.status) {
        (Call::Get | Call::Remove, 404) => CallAnswer::Absent,
        (Call::Get, 200) => CallAnswer::Found(form.value(key, &response.body)?),
        (Call::Put(_), 201) => CallAnswer::Created,
        (Call::Put(_), 200) => CallAnswer::Replaced,
        (Call::Remove, 204) => CallAnswer::Removed,
        (_, 412) if asked.condition.is_some() => CallAnswer::Refused,
        (call, status) => return Err(format!("the answer to a {} of {key} has the status {status}", call.word())),
    })
}
