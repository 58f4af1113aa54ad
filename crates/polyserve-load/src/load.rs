//! The settings of a load.

use std::net::SocketAddr;
use std::time::Duration;

use polyserve_core::Shutdown;

use crate::arrivals::Arrivals;
use crate::error::LoadError;
use crate::retry::Retry;
use crate::tls::ClientTls;
use crate::traffic::Traffic;

/// The settings of a load, for [`run`](crate::run()).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Load {
    /// The server.
    pub target: SocketAddr,
    /// The `Host` field of every request. Default: the target.
    pub host: String,
    /// Simultaneous connections of all threads. Default 64.
    pub connections: usize,
    /// Client threads, each with its share of the connections. Default 1.
    pub threads: usize,
    /// The cores that threads are pinned to, in turn. Default none: threads are not pinned. In an open loop, a pinned thread
    /// stays awake for the last 50 us before a request is due, because a wake-up takes about as long.
    pub cores: Vec<usize>,
    /// When requests are sent. Default: closed loop.
    pub pace: Pace,
    /// The spacing of an open loop's requests. Default: Poisson.
    pub arrivals: Arrivals,
    /// The clients send refused and unanswered requests again. Such requests are no failures. Needs kept connections with one
    /// request at a time, and a time as the length. Default none.
    pub retry: Option<Retry>,
    /// How connections are used. Default: kept connections, one request at a time.
    pub usage: Usage,
    /// Whether the answer to `Connection: close` must announce the close, and the server must close. An answer without the
    /// announcement then counts as wrong. Default false: the client closes.
    pub must_close: bool,
    /// TLS, if the server speaks it. A handshake is a part of the connect. Default none.
    pub tls: Option<ClientTls>,
    /// The requests.
    pub traffic: Traffic,
    /// The time that the load runs before the measured period. Default none.
    pub warm_up: Duration,
    /// The length of the measured period. Default 10 s.
    pub length: RunLength,
    /// The max time for a connect, an answer or a server's close. After it the request fails and the connection is replaced.
    ///
    /// The client waits as long for an answer after the end of the measured period. In an open loop, it first sends the remaining
    /// due requests, for the same time, but at most 2 s. A load that is stopped waits at most 2 s. Default 10 s.
    pub timeout: Duration,
    /// The source of the server's processor time. Default unknown.
    pub cpu: CpuSource,
    /// Ends the load early. The report has the measurements until then.
    pub stop: Shutdown,
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Closed loop: a connection sends the next requests as soon as it has all answers.
    Closed,
    /// Open loop: this number of requests a second over all connections, whatever the server does. A request without
    /// a free connection waits for one, also after the end of the measured period. Its latency counts from its due time.
    Rate(f64),
}

/// How connections are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// A connection is used until the server closes it.
    KeepAlive {
        /// The number of requests in one write; 1 is no pipelining.
        pipeline: usize,
    },
    /// Every request has its own connection and `Connection: close`. If the answer announces the close, the client waits for
    /// the server's close; else the client closes.
    Close,
}

/// The length of the measured period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunLength {
    /// A time.
    Time(Duration),
    /// A number of requests.
    Requests(u64),
}

/// The source of the server's processor time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuSource {
    /// The processor time is not known.
    Unknown,
    /// The process with this id.
    Process(u32),
    /// This process without the client's threads: the server runs in this process.
    Own,
}

/// The max number of requests in one write.
pub(crate) const MAX_PIPELINED: usize = 1024;
/// The max numbers of connections and threads.
const MAX_CONNECTIONS: usize = 1_000_000;
const MAX_THREADS: usize = 1024;
/// The max value of any time.
const MAX_TIME: Duration = Duration::from_secs(30 * 24 * 3600);

impl Load {
    /// Creates a closed loop of 64 kept connections for 10 seconds.
    pub fn new(target: SocketAddr, traffic: Traffic) -> Self {
        Self {
            target,
            host: target.to_string(),
            connections: 64,
            threads: 1,
            cores: Vec::new(),
            pace: Pace::Closed,
            arrivals: Arrivals::default(),
            retry: None,
            usage: Usage::KeepAlive { pipeline: 1 },
            must_close: false,
            tls: None,
            traffic,
            warm_up: Duration::ZERO,
            length: RunLength::Time(Duration::from_secs(10)),
            timeout: Duration::from_secs(10),
            cpu: CpuSource::Unknown,
            stop: Shutdown::new(),
        }
    }

    /// Returns this load, changed.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Checks the settings. [`run`](crate::run()) checks them too.
    ///
    /// # Errors
    ///
    /// Returns [`LoadError::Setting`], which names the setting and its bounds.
    pub fn validate(&self) -> Result<(), LoadError> {
        within("connections", self.connections, MAX_CONNECTIONS)?;
        within("threads", self.threads, MAX_THREADS)?;
        if self.threads > self.connections {
            let (threads, connections) = (self.threads, self.connections);
            return reject(format!("{threads} threads share {connections} connections: there must be one for each"));
        }
        if let Pace::Rate(rate) = self.pace
            && !(0.001..=1e9).contains(&rate)
        {
            return reject(format!("rate {rate} is not between 0.001 and 1e9 requests a second"));
        }
        if let Usage::KeepAlive { pipeline } = self.usage {
            within("pipeline", pipeline, MAX_PIPELINED)?;
        }
        if let Some(retry) = &self.retry {
            let is_timed = matches!(self.length, RunLength::Time(_));
            let is_suited = self.usage == Usage::KeepAlive { pipeline: 1 } && is_timed;
            let misuse = "clients that retry need kept connections without pipelining, and a time";
            let misuse = if is_suited { retry.misuse() } else { Some(misuse.into()) };
            misuse.map_or(Ok(()), reject)?;
        }
        match self.length {
            RunLength::Time(time) if time.is_zero() || time > MAX_TIME => {
                return reject(format!("run length {time:?} is not above 0 and at most 30 days"));
            }
            RunLength::Requests(0) => return reject("run length 0 requests is not above 0".into()),
            _ => {}
        }
        if self.warm_up > MAX_TIME {
            return reject(format!("a warm-up of {:?} is above 30 days", self.warm_up));
        }
        if self.timeout < Duration::from_millis(1) || self.timeout > MAX_TIME {
            return reject(format!("timeout {:?} is not between 1 ms and 30 days", self.timeout));
        }
        if self.host.is_empty() || !self.host.bytes().all(|byte| byte.is_ascii_graphic()) {
            return reject(format!("{:?} is no host", self.host));
        }
        if let Some(core) = self.cores.iter().find(|core| **core >= rustix::thread::CpuSet::MAX_CPU) {
            return reject(format!("there is no core {core}"));
        }
        Ok(())
    }
}

fn reject(why: String) -> Result<(), LoadError> {
    Err(LoadError::Setting(why))
}

fn within(name: &str, count: usize, max: usize) -> Result<(), LoadError> {
    if (1..=max).contains(&count) { Ok(()) } else { reject(format!("{name} {count} is not between 1 and {max}")) }
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
        refused("retry", |l| (l.length, l.retry) = (RunLength::Requests(1), Some(Retry::default())));
        refused("attempts", |l| {
            (l.pace, l.retry) = (Pace::Rate(1.0), Some(Retry::default().with(|retry| retry.attempts = 0)));
        });
        refused("pipeline", |l| l.usage = Usage::KeepAlive { pipeline: 0 });
        refused("pipeline", |l| l.usage = Usage::KeepAlive { pipeline: 1025 });
        refused("run length", |l| l.length = RunLength::Time(Duration::ZERO));
        refused("run length", |l| l.length = RunLength::Requests(0));
        refused("warm-up", |l| l.warm_up = Duration::MAX);
        refused("timeout", |l| l.timeout = Duration::ZERO);
        refused("host", |l| l.host = "a b".into());
        refused("core", |l| l.cores = vec![1 << 20]);
    }
}
