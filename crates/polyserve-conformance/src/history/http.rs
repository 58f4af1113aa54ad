//! Recording over HTTP from any server that stores entities, on kept connections.
//!
//! Invariant: an operation without an answer is unknown, never wrong. This includes a broken connection, an expired
//! patience, and a 5xx status. An impossible answer ends the recording.
//!
//! Cost: a thread and a connection for each client, and the cost of the [client](crate::client).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::sync::write;
use polyserve_core::{Conditional, Put, Removed};

use super::entity_form::EntityForm;
use super::record::{Call, CallCondition, Losses, Recording, RecordingControl, RecordingWorkload, WrongAnswer, nanos};
use super::{Action, Operation, Precondition, ReadValue};
use crate::client::{Client, Ending, Response};

/// Records `clients` clients of the server at `addr`, which stores entities of this form. Each client keeps its connection
/// for as long as the server does.
///
/// Every key of the workload is removed first. If the answer to a removal was lost, the removal may take effect later. So
/// the recording has it as an operation of a process of its own, from number `clients` on.
pub fn record_http(
    addr: SocketAddr,
    form: EntityForm,
    workload: &RecordingWorkload,
    clients: u32,
    patience: Duration,
    control: &RecordingControl,
) -> Recording {
    record_http_across(&[addr], form, workload, clients, patience, control)
}

/// Does the same as [`record_http`] with several servers that share their entities. The clients take the servers in turn.
///
/// # Panics
///
/// Panics if `addrs` is empty.
pub fn record_http_across(
    addrs: &[SocketAddr],
    form: EntityForm,
    workload: &RecordingWorkload,
    clients: u32,
    patience: Duration,
    control: &RecordingControl,
) -> Recording {
    assert!(!addrs.is_empty(), "a recording needs a server");
    let mut recording = Recording::default();
    let mut cleaner = HttpClient::new(addrs[0], form, patience);
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
            let action = Action::Remove(None);
            recording.operations.push(Operation { process, key, action, called: 0, returned: u64::MAX });
        }
    }
    drop(cleaner);
    // Locked until all threads have started, so that they begin together.
    let (next_number, start_lock) = (AtomicU64::new(0), RwLock::new(()));
    let start = Instant::now();
    let run = |process: u32| {
        let addr = addrs[process as usize % addrs.len()];
        let (mut client, mut operations) = (HttpClient::new(addr, form, patience), Vec::new());
        if start_lock.read().is_err() {
            return (operations, None); // a client's thread could not be started
        }
        while !control.is_stopped() {
            let number = next_number.fetch_add(1, Relaxed);
            if number >= workload.operations {
                break;
            }
            let (key, call) = workload.step(number);
            match client.operation(process, key, call, start) {
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

/// A client of a server.
struct HttpClient {
    addr: SocketAddr,
    form: EntityForm,
    patience: Duration,
    /// The open connection, if any.
    connection: Option<Client>,
    /// Whether the server has closed a connection on which a request had been sent. From then on the connection is checked
    /// before each request, because a request that was never sent is not unknown.
    checks_connection: bool,
    losses: Losses,
    /// The last value of each key that an answer has named with a tag, and the tag.
    seen: HashMap<i64, (u64, String)>,
}

impl HttpClient {
    fn new(addr: SocketAddr, form: EntityForm, patience: Duration) -> Self {
        let (losses, seen) = (Losses::default(), HashMap::new());
        Self { addr, form, patience, connection: None, checks_connection: false, losses, seen }
    }

    /// Removes a key. Returns the number of removals without an answer.
    fn clean(&mut self, key: i64) -> Result<u32, WrongAnswer> {
        let mut lost = 0;
        loop {
            let client = self.connected()?;
            if let Action::Remove(Some(_)) = self.ask(client, key, Call::Remove)? {
                return Ok(lost);
            }
            lost += 1;
        }
    }

    fn operation(&mut self, process: u32, key: i64, call: Call, start: Instant) -> Result<Operation, WrongAnswer> {
        let client = self.connected()?;
        let called = nanos(start);
        let action = self.ask(client, key, call)?;
        Ok(Operation { process, key, action, called, returned: nanos(start) })
    }

    /// Returns a connection. Retries until the patience is over, because a server may refuse connections for a moment.
    fn connected(&mut self) -> Result<Client, WrongAnswer> {
        let deadline = Instant::now() + self.patience;
        loop {
            if let Some(client) = self.connection.take()
                && !(self.checks_connection && client.has_ended())
            {
                return Ok(client);
            }
            match Client::connect(self.addr, self.patience) {
                Ok(client) => self.connection = Some(client.without_dates()),
                Err(error) if Instant::now() >= deadline => {
                    return Err(WrongAnswer(format!("no connection within {:?}: {error}", self.patience)));
                }
                Err(_) => thread::yield_now(),
            }
        }
    }

    /// Sends a request, and keeps the connection if the server does.
    fn ask(&mut self, mut client: Client, key: i64, call: Call) -> Result<Action, WrongAnswer> {
        let (asked, fields) = self.asked(key, call);
        // A refusal may come before the whole request is sent. What counts is the answer.
        let sent = client.send(&request(self.form, key, asked, &fields));
        let response = match client.receive() {
            Ok(response) if response.status < 500 => response,
            Ok(response) => {
                self.losses.add(&format!("it answers {}", response.status), false)?;
                if !response.closes() {
                    self.connection = Some(client);
                }
                return Ok(asked);
            }
            Err(failure) if failure.ending.is_some() => {
                drop(sent);
                self.checks_connection |= failure.is_clean();
                self.losses.add(&failure.to_string(), failure.ending == Some(Ending::Silent))?;
                return Ok(asked);
            }
            Err(failure) => return Err(WrongAnswer(failure.to_string())),
        };
        self.losses = Losses::default();
        let action = parse_response(self.form, key, asked, &response)
            .map_err(|why| WrongAnswer(format!("{why}\n{}", client.show())))?;
        self.remember(key, action, &response);
        if !response.closes() {
            self.connection = Some(client);
        }
        Ok(action)
    }

    /// The operation without its answer, and the header fields of its condition.
    fn asked(&self, key: i64, call: Call) -> (Action, String) {
        let condition_of = |condition| match (condition, self.seen.get(&key)) {
            (CallCondition::Present, _) => (Precondition::Present, String::from("If-Match: *\r\n")),
            (CallCondition::Seen, Some((value, tag))) => (Precondition::Value(*value), format!("If-Match: {tag}\r\n")),
            (CallCondition::Seen, None) | (CallCondition::Absent, _) => {
                (Precondition::Absent, String::from("If-None-Match: *\r\n"))
            }
        };
        match call {
            Call::Get => (Action::Get(None), String::new()),
            Call::Put(value) => (Action::Put(value, None), String::new()),
            Call::Remove => (Action::Remove(None), String::new()),
            Call::PutIf(value, condition) => {
                let (condition, fields) = condition_of(condition);
                (Action::PutIf(value, condition, None), fields)
            }
            Call::RemoveIf(condition) => {
                let (condition, fields) = condition_of(condition);
                (Action::RemoveIf(condition, None), fields)
            }
        }
    }

    /// Remembers the tag of the entity that the answer names.
    fn remember(&mut self, key: i64, action: Action, response: &Response) {
        let value = match action {
            Action::Get(Some(ReadValue::Value(value)))
            | Action::Put(value, Some(_))
            | Action::PutIf(value, _, Some(Conditional::Done(_))) => value,
            _ => return,
        };
        if let Some(tag) = response.header("ETag") {
            self.seen.insert(key, (value, tag.to_owned()));
        }
    }
}

fn request(form: EntityForm, key: i64, asked: Action, fields: &str) -> Vec<u8> {
    let (method, body) = match asked {
        Action::Get(_) => ("GET", None),
        Action::Remove(_) | Action::RemoveIf(..) => ("DELETE", None),
        Action::Put(value, _) | Action::PutIf(value, ..) => ("PUT", Some(form.json(key, value))),
    };
    let path = form.path(key);
    let head = format!("{method} {path} HTTP/1.1\r\nHost: history\r\n{fields}");
    match body {
        None => format!("{head}\r\n"),
        Some(body) => {
            format!("{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        }
    }
    .into_bytes()
}

/// Returns the operation's result from its answer.
fn parse_response(form: EntityForm, key: i64, asked: Action, response: &Response) -> Result<Action, String> {
    let created = match response.status {
        201 => Some(Put::Created),
        200 => Some(Put::Replaced),
        _ => None,
    };
    let removed = match response.status {
        204 => Some(Removed::Removed),
        404 => Some(Removed::Absent),
        _ => None,
    };
    match (asked, response.status) {
        (Action::Get(_), 404) => Ok(Action::Get(Some(ReadValue::Absent))),
        (Action::Get(_), 200) => Ok(Action::Get(Some(ReadValue::Value(form.value(key, &response.body)?)))),
        (Action::Put(value, _), 200 | 201) => Ok(Action::Put(value, created)),
        (Action::Remove(_), 204 | 404) => Ok(Action::Remove(removed)),
        (Action::PutIf(value, condition, _), 412) => Ok(Action::PutIf(value, condition, Some(Conditional::Refused))),
        (Action::PutIf(value, condition, _), 200 | 201) => {
            Ok(Action::PutIf(value, condition, created.map(Conditional::Done)))
        }
        (Action::RemoveIf(condition, _), 412) => Ok(Action::RemoveIf(condition, Some(Conditional::Refused))),
        (Action::RemoveIf(condition, _), 204 | 404) => Ok(Action::RemoveIf(condition, removed.map(Conditional::Done))),
        (asked, status) => Err(format!("the answer to a {asked} of {key} has the status {status}")),
    }
}
