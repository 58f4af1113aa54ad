//! The clients: threads with blocking sockets. They send requests, verify the answers and count.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use std::{io, thread};

use polyserve::Shutdown;
use polyserve::sync::lock;

use super::connection::{ByteCounts, Lost, PATIENCE, StressAnswer, StressConnection};
use super::requests::{RequestGroup, Scenario, StressRequest};
use super::threads::STACK;
use super::verify::{self, Fate, Ledger};

/// How connections are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionPolicy {
    /// A connection for every request.
    Close,
    /// A connection for many requests, until the server closes it.
    KeepAlive,
}

/// How a round uses connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionMode {
    /// The three groups at the same time, with this number of connections each.
    Groups(ConnectionPolicy, usize),
    /// One group after the other, as published: bursts of up to this number of connections, until all requests of the
    /// group are sent. The second number is the number of clients.
    Burst(u64, usize),
}

impl ConnectionMode {
    /// The mode's name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Groups(ConnectionPolicy::Close, _) => "close",
            Self::Groups(ConnectionPolicy::KeepAlive, _) => "keep-alive",
            Self::Burst(..) => "burst",
        }
    }
}

/// The state that all clients of a round share.
#[derive(Debug)]
pub struct RoundShared<'a> {
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
pub struct Errors {
    first: Mutex<Vec<String>>,
    count: AtomicU64,
    too_many: AtomicBool,
    stop: Shutdown,
}

impl Errors {
    /// No errors. The clients also stop when `stop` begins.
    pub fn until(stop: Shutdown) -> Self {
        Self { stop, ..Self::default() }
    }

    const SHOWN: usize = 5;
    const TOO_MANY: u64 = 100;

    /// Counts an error, and keeps the text of the first few.
    pub fn note(&self, text: impl FnOnce() -> String) {
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
    pub fn is_hopeless(&self) -> bool {
        self.too_many.load(Ordering::Relaxed) || self.stop.is_begun()
    }

    /// Returns the number of errors.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The texts of the first few errors.
    pub fn first(&self) -> Vec<String> {
        lock(&self.first).clone()
    }
}

/// The counts of one client or of several.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientTally {
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
    /// The bytes in both directions.
    pub traffic: ByteCounts,
    /// The time from the start to the last answer.
    pub took: Duration,
}

impl ClientTally {
    /// Adds the counts of `other`, which ran at the same time.
    pub fn add(&mut self, other: &Self) {
        self.samples += other.samples;
        self.errors += other.errors;
        self.refused += other.refused;
        self.answers += other.answers;
        self.connections += other.connections;
        self.reconnects += other.reconnects;
        self.traffic.sent += other.traffic.sent;
        self.traffic.received += other.traffic.received;
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

/// Runs one client of one group: it takes the next request until there is none.
pub fn run(
    shared: &RoundShared<'_>,
    phase: RequestGroup,
    next: &AtomicU64,
    connections: ConnectionPolicy,
    start: Instant,
) -> ClientTally {
    let (mut tally, mut reused) = (ClientTally::default(), None);
    while !shared.errors.is_hopeless() {
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= shared.scenario.samples(phase) {
            break;
        }
        let planned = shared.scenario.planned(phase, index);
        let request = shared.scenario.request(&planned, shared.addr, connections == ConnectionPolicy::KeepAlive);
        let check = |response: &StressAnswer<'_>| verify::answer(shared.scenario, &planned, response);
        let result = match connections {
            ConnectionPolicy::Close => once(shared.addr, &request, &mut tally, check),
            ConnectionPolicy::KeepAlive => ask(shared.addr, &mut reused, &request, &mut tally, check),
        };
        tally.settle(shared, &planned, result);
        tally.took = start.elapsed();
    }
    tally
}

/// Sends a request on a new connection, which the server closes after the answer.
fn once<T>(
    addr: SocketAddr,
    request: &[u8],
    tally: &mut ClientTally,
    check: impl FnOnce(&StressAnswer<'_>) -> Result<T, String>,
) -> Result<T, String> {
    let mut connection = open(addr, None, tally)?;
    connection.send(request, &mut tally.traffic);
    let checked = check(&connection.receive(&mut tally.traffic).map_err(|lost| lost.to_string())?);
    tally.answers += 1;
    connection.end(&mut tally.traffic).map_err(|lost| lost.to_string())?;
    checked
}

/// Sends a request on the connection in `reused`, or on a new connection. It stores a connection that stays open there.
///
/// A server can close an idle connection at any time, so a request can meet a closed connection. It is sent again only if
/// the connection had been idle and no byte of an answer was received.
///
/// # Errors
///
/// Returns the reason if the answer is wrong or missing.
pub fn ask<T>(
    addr: SocketAddr,
    reused: &mut Option<StressConnection>,
    request: &[u8],
    tally: &mut ClientTally,
    check: impl FnOnce(&StressAnswer<'_>) -> Result<T, String>,
) -> Result<T, String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut connection = match reused.take() {
            Some(connection) => connection,
            None => open(addr, None, tally)?,
        };
        let was_idle = connection.has_answered;
        connection.send(request, &mut tally.traffic);
        let (checked, closes) = match connection.receive(&mut tally.traffic) {
            Ok(response) => (check(&response), response.closes()),
            Err(Lost::Unanswered(_)) if was_idle && Instant::now() < deadline => {
                tally.reconnects += 1;
                continue;
            }
            Err(lost) => return Err(lost.to_string()),
        };
        tally.answers += 1;
        if closes {
            connection.end(&mut tally.traffic).map_err(|lost| lost.to_string())?;
        } else {
            *reused = Some(connection);
        }
        return checked;
    }
}

/// Runs one client of a burst: these requests of a group, each on a connection of its own. A second thread connects and
/// sends without waiting for answers, while this one reads them.
///
/// # Errors
///
/// Returns an error if the second thread cannot be started.
pub fn burst(
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
                Ok(mut connection) => {
                    let request = shared.scenario.request(&planned, shared.addr, false);
                    connection.send(&request, &mut tally.traffic);
                    if sender.send((planned, connection)).is_err() {
                        break; // the reader has stopped
                    }
                }
                Err(why) => tally.settle(shared, &planned, Err(why)),
            }
        }
        tally
    };
    let read = |tally: &mut ClientTally| {
        for (planned, mut connection) in sent {
            if shared.errors.is_hopeless() {
                break;
            }
            let result = match connection.receive(&mut tally.traffic) {
                Ok(response) => {
                    tally.answers += 1;
                    verify::answer(shared.scenario, &planned, &response)
                }
                Err(lost) => Err(lost.to_string()),
            };
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

fn open(addr: SocketAddr, source: Option<IpAddr>, tally: &mut ClientTally) -> Result<StressConnection, String> {
    let connection = StressConnection::open(addr, source).map_err(|error| format!("cannot connect: {error}"))?;
    tally.connections += 1;
    Ok(connection)
}
