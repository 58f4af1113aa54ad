//! The clients: threads with blocking sockets. They send requests, verify the answers and count.
//!
//! A connection is a [`Client`] of the conformance kit, which parses answers strictly and shares no code with the servers' codec.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};
use std::{io, thread};

use anyhow::{Context as _, bail};
use polyserve::Shutdown;
use polyserve::sync::{lock, read, write};
use polyserve_conformance::client::{Client, Ending, ReceiveFailure, Response};
use rustix::io::Errno;

use super::requests::{RequestGroup, Scenario, StressRequest};
use super::verify::{self, Fate, Ledger};

/// The time limit of a connect, a read and a write.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60);
/// The stack of a client's thread, which formats requests and parses answers only.
const STACK: usize = 256 * 1024;

/// The state that all clients of a round share.
#[derive(Debug)]
pub(crate) struct RoundShared<'a> {
    /// The requests.
    pub scenario: &'a Scenario,
    /// The server's address.
    pub addr: SocketAddr,
    /// The fate of every PUT.
    pub ledger: &'a Ledger,
    /// Whether a 503 is a right answer.
    pub may_refuse: bool,
    /// The max number of connections of a burst from one address.
    pub ports: u64,
    /// The errors.
    pub errors: &'a Errors,
}

/// The errors of a round. The clients stop if there are too many, or if the run must end.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    first: Mutex<Vec<String>>,
    count: AtomicU64,
    too_many: AtomicBool,
    stop: Shutdown,
}

impl Errors {
    /// No errors. The clients also stop when `stop` begins.
    pub(crate) fn until(stop: Shutdown) -> Self {
        Self { stop, ..Self::default() }
    }

    const SHOWN: usize = 5;
    const TOO_MANY: u64 = 100;

    /// Counts an error, and keeps the text of the first few.
    pub(crate) fn note(&self, text: impl FnOnce() -> String) {
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        if before + 1 >= Self::TOO_MANY {
            self.too_many.store(true, Ordering::Relaxed);
        }
        let mut first = lock(&self.first);
        if first.len() < Self::SHOWN {
            first.push(text());
        }
    }

    /// Returns true if the clients must stop: there were too many errors, or the run must end.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.too_many.load(Ordering::Relaxed) || self.stop.is_begun()
    }

    /// Returns the number of errors.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The texts of the first few errors.
    pub(crate) fn first(&self) -> Vec<String> {
        lock(&self.first).clone()
    }
}

/// The counts of one client or of several.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClientTally {
    /// The number of requests.
    pub samples: u64,
    /// The number of requests without a right answer.
    pub errors: u64,
    /// The number of requests that were rejected by a right 503.
    pub refused: u64,
    /// The number of whole answers, right or wrong.
    pub answers: u64,
    /// The number of connections.
    pub connections: u64,
    /// The number of kept-alive connections that the server closed while they were idle. Their next request was sent again.
    pub reconnects: u64,
    /// The bytes of the requests.
    pub sent: u64,
    /// The bytes of the answers.
    pub received: u64,
    /// The time from the start to the last answer.
    pub took: Duration,
}

impl ClientTally {
    /// Adds the counts of `other`, which ran at the same time.
    pub(crate) fn add(&mut self, other: &Self) {
        self.samples += other.samples;
        self.errors += other.errors;
        self.refused += other.refused;
        self.answers += other.answers;
        self.connections += other.connections;
        self.reconnects += other.reconnects;
        self.sent += other.sent;
        self.received += other.received;
        self.took = self.took.max(other.took);
    }

    /// Counts the answer to `planned`, or the reason why there is none.
    fn settle(&mut self, shared: &RoundShared<'_>, planned: &StressRequest, result: Result<Fate, String>) {
        self.samples += 1;
        let result = match result {
            Ok(Fate::Refused) if !shared.may_refuse => Err("status 503: refused".into()),
            Ok(fate) => {
                shared.ledger.note(shared.scenario, planned, fate);
                self.refused += u64::from(fate == Fate::Refused);
                Ok(())
            }
            Err(why) => Err(why),
        };
        if let Err(why) = result {
            self.errors += 1;
            shared.errors.note(|| format!("{} of {}: {why}", planned.phase.name(), planned.id));
        }
    }
}

/// Runs one client of one group: it takes the next request until there is none. `keeps_alive`: it keeps its connection until the
/// server closes it.
pub(crate) fn run(
    shared: &RoundShared<'_>,
    phase: RequestGroup,
    next: &AtomicU64,
    keeps_alive: bool,
    start: Instant,
) -> ClientTally {
    let (mut tally, mut reused) = (ClientTally::default(), None);
    while !shared.errors.is_hopeless() {
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= shared.scenario.samples(phase) {
            break;
        }
        let planned = shared.scenario.planned(phase, index);
        let request = shared.scenario.request(&planned, shared.addr, keeps_alive);
        let check = |response: &Response| verify::answer(shared.scenario, &planned, response);
        let mut result = ask(shared.addr, &mut reused, &request, &mut tally, check);
        if !keeps_alive {
            // The server closes, even if it does not announce that.
            result = reused.take().map_or(Ok(()), ended).and(result);
        }
        tally.settle(shared, &planned, result);
        tally.took = start.elapsed();
    }
    tally
}

/// Sends a request on the connection in `reused`, or on a new connection. Stores a connection that stays open there.
///
/// A server can close an idle connection at any time, so a request can meet a closed connection. It is sent again only if
/// the connection had been idle and no byte of an answer was received.
pub(crate) fn ask<T>(
    addr: SocketAddr,
    reused: &mut Option<Client>,
    request: &[u8],
    tally: &mut ClientTally,
    check: impl FnOnce(&Response) -> Result<T, String>,
) -> Result<T, String> {
    let deadline = Instant::now() + MAX_WAIT;
    loop {
        let kept = reused.take();
        let was_idle = kept.is_some();
        let mut client = kept.map_or_else(|| open(addr, None, tally), Ok)?;
        send(&mut client, request, tally);
        match client.receive() {
            Err(failure) if was_idle && failure.is_clean() && Instant::now() < deadline => tally.reconnects += 1,
            received => {
                let response = whole(received, &client, tally)?;
                let checked = check(&response);
                if !response.closes() {
                    *reused = Some(client);
                    return checked;
                }
                return ended(client).and(checked);
            }
        }
    }
}

/// Waits until the server closes the connection, as the request asked.
fn ended(mut client: Client) -> Result<(), String> {
    match client.end() {
        (rest, Ending::Closed) if rest.is_empty() => Ok(()),
        (rest, ending) => Err(format!("after the answer: {} bytes, then {ending:?}", rest.len())),
    }
}

/// Sends a request. If that fails, the receive has the reason, unless there is an answer.
fn send(client: &mut Client, request: &[u8], tally: &mut ClientTally) {
    if client.send(request).is_ok() {
        tally.sent += request.len() as u64;
    }
}

/// Counts an answer. It must be whole, and the last one.
fn whole(
    received: Result<Response, ReceiveFailure>,
    client: &Client,
    tally: &mut ClientTally,
) -> Result<Response, String> {
    // The rest of the text of a failure has the bytes that were exchanged.
    let response = received.map_err(|failure| failure.to_string().lines().next().unwrap_or_default().to_owned())?;
    tally.received += response.length as u64;
    match client.unread().len() {
        0 => {
            tally.answers += 1;
            Ok(response)
        }
        more => Err(format!("{more} bytes follow the answer")),
    }
}

/// Runs one client of a burst: these requests of a group, each on a connection of its own. A second thread connects and
/// sends without waiting for answers, while this one reads them.
pub(crate) fn burst(
    shared: &RoundShared<'_>,
    phase: RequestGroup,
    requests: Range<u64>,
    start: Instant,
) -> io::Result<ClientTally> {
    let (sender, sent) = channel();
    let send = move || {
        let mut tally = ClientTally::default();
        for index in requests {
            if shared.errors.is_hopeless() {
                break;
            }
            let planned = shared.scenario.planned(phase, index);
            match open(shared.addr, Some(source(index, shared.ports)), &mut tally) {
                Ok(mut client) => {
                    let request = shared.scenario.request(&planned, shared.addr, false);
                    send(&mut client, &request, &mut tally);
                    if sender.send((planned, client)).is_err() {
                        break; // the reader has stopped
                    }
                }
                Err(why) => tally.settle(shared, &planned, Err(why)),
            }
        }
        tally
    };
    let read = |tally: &mut ClientTally| {
        for (planned, mut client) in sent {
            if shared.errors.is_hopeless() {
                break;
            }
            let response = whole(client.receive(), &client, tally);
            let result = response.and_then(|response| verify::answer(shared.scenario, &planned, &response));
            tally.settle(shared, &planned, result);
            tally.took = start.elapsed();
        }
    };
    thread::scope(|scope| {
        let sender = thread::Builder::new().name("sender".into()).stack_size(STACK).spawn_scoped(scope, send)?;
        let mut tally = ClientTally::default();
        read(&mut tally);
        tally.add(&sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        Ok(tally)
    })
}

/// The number of source addresses of a burst.
const SOURCES: u64 = 200;

/// The source address of the `index`-th connection of a burst. Each group of `ports` consecutive connections has one
/// address.
fn source(index: u64, ports: u64) -> IpAddr {
    let place = index / ports.max(1) % SOURCES;
    IpAddr::from([127, 0, 0, 1 + place as u8])
}

/// Connects, from `source` if it is given. If the server's queue is full, the kernel waits. If this client has no port or
/// descriptor left, waits until one is free.
fn open(addr: SocketAddr, source: Option<IpAddr>, tally: &mut ClientTally) -> Result<Client, String> {
    let deadline = Instant::now() + MAX_WAIT;
    loop {
        match Client::connect_from(source, addr, MAX_WAIT) {
            Err(error) if is_shortage(&error) && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(format!("cannot connect: {error}")),
            Ok(client) => {
                tally.connections += 1;
                return Ok(client.of_any_server()); // the verification checks them
            }
        }
    }
}

/// Returns true if this client's machine lacks a port or a descriptor. That is no error of the server.
fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL, Errno::ADDRINUSE];
    Errno::from_io_error(error).is_some_and(|code| shortages.contains(&code))
}

/// Runs each of `works` on a thread of its own. All start at the same instant.
pub(super) fn together<T, W>(works: impl Iterator<Item = W>) -> anyhow::Result<Vec<T>>
where
    W: FnOnce(Instant) -> T + Send,
    T: Send,
{
    // Locked for writing until all threads are started. `None` if one could not be started: then no thread works.
    let gate = RwLock::new(None);
    thread::scope(|scope| {
        let mut closed = write(&gate);
        let mut threads = Vec::new();
        let mut failed = None;
        for work in works {
            let gate = &gate;
            let body = move || {
                let start = *read(gate);
                start.map(work)
            };
            match thread::Builder::new().name("client".into()).stack_size(STACK).spawn_scoped(scope, body) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let count = threads.len();
        if let Some(error) = failed {
            drop(closed);
            return Err(error).with_context(|| format!("no more than {count} client threads can be started"));
        }
        *closed = Some(Instant::now());
        drop(closed);
        let mut results = Vec::with_capacity(count);
        for thread in threads {
            match thread.join() {
                Ok(result) => results.extend(result),
                Err(panic) => bail!("a client panicked: {}", polyserve::panics::panic_text(panic.as_ref())),
            }
        }
        Ok(results)
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    const RIGHT: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

    /// Sends requests on one kept connection to a server that gives these answers. It closes the connection after the last answer of
    /// each list, and the next list is for the next connection. Returns the results, and the number of reconnects.
    fn answers(connections: &'static [&[&[u8]]]) -> (Vec<Result<u16, String>>, u64) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        thread::spawn(move || {
            for answers in connections {
                let (mut stream, _) = listener.accept().unwrap();
                for answer in *answers {
                    let _ = stream.read(&mut [0; 1000]).unwrap();
                    stream.write_all(answer).unwrap();
                }
            }
        });
        let (mut reused, mut tally) = (None, ClientTally::default());
        let requests = connections.iter().map(|answers| answers.len()).sum();
        let ask = || ask(addr, &mut reused, b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n", &mut tally, |one| Ok(one.status));
        let results = std::iter::repeat_with(ask).take(requests).collect();
        (results, tally.reconnects) // a failure leaves the thread behind, which then waits for a connection
    }

    /// A server may close an idle connection. A request that met its end is sent again, and no other one is.
    #[test]
    fn a_request_that_meets_an_idle_close_is_sent_again() {
        assert_eq!(answers(&[&[RIGHT, RIGHT], &[RIGHT]]), (vec![Ok(200); 3], 1));
        let (results, reconnects) = answers(&[&[b""]]);
        assert!(results[0].is_err() && reconnects == 0, "the connection was new: {results:?}");
        let (results, reconnects) = answers(&[&[RIGHT, b"HTTP/1.1 200 OK\r\nContent-Le"]]);
        assert!(results[1].is_err() && reconnects == 0, "it had begun to answer: {results:?}");
    }

    #[test]
    fn what_is_not_a_whole_answer_is_an_error() {
        for (answer, why) in [
            (
                &[&[b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi" as &[u8]] as &[&[u8]]]
                    as &'static [&[&[u8]]],
                "",
            ),
            (&[&[b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nhi"]], "1 bytes follow the answer"),
            (&[&[b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 1\r\n\r\n"]], "Content-Length"),
            (&[&[b"HTTP/1.1 200 OK\r\nContent-Length: +0\r\n\r\n"]], "Content-Length"),
            (&[&[b"nonsense\r\n\r\n"]], ""),
        ] {
            let result = &answers(answer).0[0];
            assert!(matches!(result, Err(text) if text.contains(why)), "{result:?}");
        }
    }
}
