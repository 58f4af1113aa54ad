//! What a load is: where, how much, in what way, for how long.

use std::net::SocketAddr;
use std::time::Duration;

use polyserve_core::Shutdown;

use crate::error::LoadError;
use crate::traffic::Traffic;

/// A load, as [`run`](crate::run()) takes it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Load {
    /// The server.
    pub target: SocketAddr,
    /// The `Host` field of every request. Default: the target.
    pub host: String,
    /// Connections at a time, over all threads. Default 64.
    pub connections: usize,
    /// Client threads, each with its share of the connections. Default 1.
    pub threads: usize,
    /// The cores that threads are pinned to, in turn. Default none: they are not pinned. A thread that has a core does
    /// not sleep through the last 50 us before a request is due, in an open loop: to be woken takes about as long.
    pub cores: Vec<usize>,
    /// When requests are sent. Default: closed loop.
    pub pace: Pace,
    /// How connections are used. Default: kept, one request at a time.
    pub usage: Usage,
    /// Whether a server that was told `Connection: close` must say in its answer that it closes, and close: an answer that
    /// does not say so counts as wrong too. Default: no, this end closes then.
    pub must_close: bool,
    /// What is asked.
    pub traffic: Traffic,
    /// How long the same load runs before it counts. Default none.
    pub warm_up: Duration,
    /// What counts. Default 10 s.
    pub span: Span,
    /// How long a connect, an answer or a server's close may take; then it is a failure, and the connection is replaced. After
    /// a span's end it is waited so long too, but at most 2 s; in open loop so long for what is yet to be sent, and then
    /// for its answers. Default 10 s.
    pub patience: Duration,
    /// Whose processor time is reported as the server's. Default nobody's.
    pub cpu: CpuOf,
    /// Ends the load early, once it has begun: the report has what was measured until then.
    pub stop: Shutdown,
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Closed loop: a connection asks again as soon as it has its answers.
    Closed,
    /// Open loop: so many requests a second over all connections, evenly spaced, whatever the server does. One that
    /// finds no free connection waits for one, after the end of the span too, and its latency counts from when it was due.
    Rate(f64),
}

/// How connections are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// A connection for as many requests as the server lets it.
    KeepAlive {
        /// How many requests are sent at once, in one write; 1 is one at a time.
        pipeline: usize,
    },
    /// Every request on a connection of its own; it says `Connection: close`. A server whose answer says so too is waited
    /// for to close; where it does not say so, this end closes.
    Close,
}

/// What counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// So long.
    Time(Duration),
    /// So many requests.
    Requests(u64),
}

/// Whose processor time is the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuOf {
    /// It is not known.
    Nobody,
    /// That of the process of this id.
    Process(u32),
    /// That of this process, without the client's threads: the server runs in it.
    Own,
}

/// The most requests that are sent at once.
pub(crate) const MOST_PIPELINED: usize = 1024;
/// The most connections, and the most threads.
const MOST_CONNECTIONS: usize = 1_000_000;
const MOST_THREADS: usize = 1024;
/// The longest time of any kind.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

impl Load {
    /// A closed loop of 64 kept connections for 10 seconds.
    pub fn new(target: SocketAddr, traffic: Traffic) -> Self {
        Self {
            target,
            host: target.to_string(),
            connections: 64,
            threads: 1,
            cores: Vec::new(),
            pace: Pace::Closed,
            usage: Usage::KeepAlive { pipeline: 1 },
            must_close: false,
            traffic,
            warm_up: Duration::ZERO,
            span: Span::Time(Duration::from_secs(10)),
            patience: Duration::from_secs(10),
            cpu: CpuOf::Nobody,
            stop: Shutdown::new(),
        }
    }

    /// This load, changed.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Whether it can be run; [`run`](crate::run()) asks this too.
    ///
    /// # Errors
    ///
    /// [`LoadError::Setting`], which names the setting and its bounds.
    pub fn validate(&self) -> Result<(), LoadError> {
        within("connections", self.connections, MOST_CONNECTIONS)?;
        within("threads", self.threads, MOST_THREADS)?;
        if self.threads > self.connections {
            let (threads, connections) = (self.threads, self.connections);
            return no(format!("{threads} threads share {connections} connections: there must be one for each"));
        }
        if let Pace::Rate(rate) = self.pace
            && !(0.001..=1e9).contains(&rate)
        {
            return no(format!("rate {rate} is not between 0.001 and 1e9 requests a second"));
        }
        if let Usage::KeepAlive { pipeline } = self.usage {
            within("pipeline", pipeline, MOST_PIPELINED)?;
        }
        match self.span {
            Span::Time(time) if time.is_zero() || time > LONGEST => {
                return no(format!("a span of {time:?} is not above 0 and at most 30 days"));
            }
            Span::Requests(0) => return no("a span of no requests measures nothing".into()),
            _ => {}
        }
        if self.warm_up > LONGEST {
            return no(format!("a warm-up of {:?} is above 30 days", self.warm_up));
        }
        if self.patience < Duration::from_millis(1) || self.patience > LONGEST {
            return no(format!("patience {:?} is not between 1 ms and 30 days", self.patience));
        }
        if self.host.is_empty() || !self.host.bytes().all(|byte| byte.is_ascii_graphic()) {
            return no(format!("{:?} is no host", self.host));
        }
        if let Some(core) = self.cores.iter().find(|core| **core >= rustix::thread::CpuSet::MAX_CPU) {
            return no(format!("there is no core {core}"));
        }
        Ok(())
    }
}

fn no(why: String) -> Result<(), LoadError> {
    Err(LoadError::Setting(why))
}

fn within(name: &str, count: usize, most: usize) -> Result<(), LoadError> {
    if (1..=most).contains(&count) { Ok(()) } else { no(format!("{name} {count} is not between 1 and {most}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_done_is_refused_by_name() {
        let traffic = Traffic::one("GET", "/", None, None).unwrap();
        let load = Load::new(([127, 0, 0, 1], 1).into(), traffic);
        load.validate().unwrap();
        let refused = |name: &str, change: fn(&mut Load)| {
            let text = load.clone().with(change).validate().unwrap_err().to_string();
            assert!(text.contains(name), "{name}: {text}");
        };
        refused("connections", |l| l.connections = 0);
        refused("threads", |l| l.threads = 0);
        refused("65 threads", |l| l.threads = 65);
        refused("rate", |l| l.pace = Pace::Rate(f64::NAN));
        refused("rate", |l| l.pace = Pace::Rate(0.0));
        refused("pipeline", |l| l.usage = Usage::KeepAlive { pipeline: 0 });
        refused("pipeline", |l| l.usage = Usage::KeepAlive { pipeline: 1025 });
        refused("span", |l| l.span = Span::Time(Duration::ZERO));
        refused("span", |l| l.span = Span::Requests(0));
        refused("warm-up", |l| l.warm_up = Duration::MAX);
        refused("patience", |l| l.patience = Duration::ZERO);
        refused("host", |l| l.host = "a b".into());
        refused("core", |l| l.cores = vec![1 << 20]);
    }
}
