//! The workload of a server.

use std::fmt;
use std::time::Duration;

use crate::report::figures::{bytes, count};
use polyserve::catalog::RepoCriteria;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// A workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// A service of the program's own, in place of the entities: its name, and its requests in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<(String, String)>,
    /// The percentage of requests that read; the others write.
    pub reads_pct: u32,
    /// Concurrent connections.
    pub connections: usize,
    /// Whether connections are kept. Otherwise each request has its own.
    pub keep_alive: bool,
    /// How long a request waits for another service, in milliseconds.
    pub wait_ms: f64,
    /// The time for which a request blocks its thread, in milliseconds.
    #[serde(default)]
    pub blocking_wait_ms: f64,
    /// The CPU time that a request takes in addition to the server's, in milliseconds.
    #[serde(default)]
    pub cpu_ms: f64,
    /// Requests per second that the latencies are measured at; `None` is half of the first candidate's throughput.
    pub rate_per_s: Option<f64>,
    /// Characters of an entity's description.
    pub payload_bytes: usize,
    /// The number of entities.
    pub keys: u64,
    /// The number of the server's cores.
    pub cores: usize,
    /// The max p99, in milliseconds.
    pub p99_goal_ms: Option<f64>,
    /// The max bytes of all entities.
    pub memory_limit_bytes: Option<u64>,
    /// Whether an answered write must survive the end of the process.
    #[serde(default)]
    pub durable: bool,
    /// Whether one machine is not enough.
    #[serde(default)]
    pub several_machines: bool,
}

/// The default percentage of reads. The default number of cores depends on the machine.
pub const READS_PCT: u32 = 95;
/// The default number of connections.
pub const CONNECTIONS: usize = 64;
/// Whether connections are kept by default.
pub const KEEP_ALIVE: bool = true;
/// The default length of a description, as published.
pub const PAYLOAD: usize = 15;
/// The default number of entities: enough that a store's structure counts, and soon stored.
pub const KEYS: u64 = 10_000;

/// The longest wait of a request. A comparison of a minute has no time for a longer one.
pub const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// The longest description. A longer one does not fit a body.
pub const LARGEST_PAYLOAD: usize = 1_000_000;

impl Workload {
    /// Returns how long a request waits for another service.
    pub fn wait(&self) -> Duration {
        Duration::from_secs_f64(self.wait_ms / 1000.0)
    }

    /// Returns the longest time of a request: its wait, and the CPU time of the requests before it. A server has a worker for
    /// each request that blocks.
    pub fn longest_request(&self) -> Duration {
        let cpu_ms = self.cpu_ms * (self.connections as f64 / self.cores.max(1) as f64).max(1.0);
        Duration::from_secs_f64((self.wait_ms + self.blocking_wait_ms + cpu_ms) / 1000.0)
    }

    /// Returns the criteria for the choice of repos.
    pub(crate) fn criteria(&self) -> RepoCriteria {
        RepoCriteria {
            reads_pct: self.reads_pct,
            keys: self.keys,
            payload_bytes: self.payload_bytes as u64,
            cores: self.cores,
            waits: self.wait_ms > 0.0,
            memory_limit: self.memory_limit_bytes,
        }
    }

    /// The key `workload` of a definition. Those of a service are its connections only.
    pub fn table(&self) -> Table {
        let number = |number: u64| Value::from(i64::try_from(number).unwrap_or(i64::MAX));
        let time = |ms: f64| humantime::format_duration(Duration::from_secs_f64(ms / 1000.0)).to_string().into();
        let connections = [("connections", number(self.connections as u64)), ("close", Value::from(!self.keep_alive))];
        let entities = [
            ("mix", Value::from(format!("get={},put={}", self.reads_pct, 100 - self.reads_pct))),
            ("keys", number(self.keys)),
            ("payload", number(self.payload_bytes as u64)),
            ("wait", time(self.wait_ms)),
            ("blocking_wait", time(self.blocking_wait_ms)),
            ("cpu", time(self.cpu_ms)),
        ];
        let entities = entities.into_iter().filter(|_| self.service.is_none());
        connections.into_iter().chain(entities).map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reads_pct, connections, keys, payload_bytes, cores, .. } = self;
        let (keys, payload_bytes) = (count(*keys as f64), count(*payload_bytes as f64));
        let how = if self.keep_alive { "kept alive" } else { "one for each request" };
        if let Some((_, requests)) = &self.service {
            write!(f, "{requests}; ")?;
        } else {
            write!(f, "{reads_pct} % reads of {keys} entities with descriptions of {payload_bytes} characters; ")?;
        }
        write!(f, "{connections} connections, {how}; ")?;
        if self.service.is_some() && self.wait_ms > 0.0 {
            write!(f, "a request takes about {:.1} ms; ", self.wait_ms)?;
        } else if self.wait_ms > 0.0 {
            write!(f, "each request waits {} ms for something else; ", self.wait_ms)?;
        }
        if self.blocking_wait_ms > 0.0 {
            write!(f, "each request blocks its thread for {} ms; ", self.blocking_wait_ms)?;
        }
        if self.cpu_ms > 0.0 {
            write!(f, "each request takes {} ms of additional CPU time; ", self.cpu_ms)?;
        }
        if let Some(rate) = self.rate_per_s {
            write!(f, "{} requests per second; ", count(rate))?;
        }
        if let Some(goal) = self.p99_goal_ms {
            write!(f, "99 % of the requests within {:?}; ", Duration::from_secs_f64(goal / 1000.0))?;
        }
        if let Some(limit) = self.memory_limit_bytes {
            write!(f, "at most {} for the entities; ", bytes(limit as f64))?;
        }
        if self.durable {
            f.write_str("writes survive a crash; ")?;
        }
        if self.several_machines {
            f.write_str("several machines; ")?;
        }
        write!(f, "a server with {cores} core{}", if *cores == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use super::*;
    use crate::bench::{BenchWorkload, Definition};

    pub(in super::super) fn workload() -> Workload {
        Workload {
            service: None,
            reads_pct: READS_PCT,
            connections: CONNECTIONS,
            keep_alive: KEEP_ALIVE,
            wait_ms: 0.0,
            blocking_wait_ms: 0.0,
            cpu_ms: 0.0,
            rate_per_s: None,
            payload_bytes: PAYLOAD,
            keys: KEYS,
            cores: 1,
            p99_goal_ms: None,
            memory_limit_bytes: None,
            durable: false,
            several_machines: false,
        }
    }

    #[test]
    fn the_workload_in_words() {
        let text = workload().to_string();
        assert_eq!(
            text,
            "95 % reads of 10,000 entities with descriptions of 15 characters; 64 connections, kept alive; a server with 1 core"
        );
        let waiting = Workload { wait_ms: 2.5, keep_alive: false, cores: 2, ..workload() };
        let text = waiting.to_string();
        assert!(text.contains("one for each request; each request waits 2.5 ms for something else; "), "{text}");
        assert_eq!(waiting.wait(), Duration::from_micros(2500));
        let held = Workload {
            blocking_wait_ms: 1.0,
            cpu_ms: 0.5,
            rate_per_s: Some(2000.0),
            p99_goal_ms: Some(50.0),
            ..waiting
        };
        let text = held.to_string();
        assert!(text.contains("; 99 % of the requests within 50ms; "), "{text}");
        let expected =
            "blocks its thread for 1 ms; each request takes 0.5 ms of additional CPU time; 2,000 requests per second; ";
        assert!(text.contains(expected), "{text}");
        assert_eq!(held.longest_request(), Duration::from_micros(2500 + 1000 + 32 * 500));
    }

    #[test]
    fn every_percentage_of_reads_is_possible() {
        let defined = |workload: Workload| {
            let contestants = vec![String::from("catalog:tokio_tcp/sharded")];
            let parts =
                [("name", "any".into()), ("contestants", contestants.into()), ("workload", workload.table().into())];
            let table: Table = parts.into_iter().map(|(key, value): (&str, Value)| (key.to_owned(), value)).collect();
            Definition::parse(Path::new("any"), &table.to_string(), &[])
        };
        for reads_pct in [0, 1, 50, 100] {
            let BenchWorkload { mix, keys, .. } =
                defined(Workload { reads_pct, keys: 3, ..workload() }).unwrap().workload;
            assert_eq!((mix.get, mix.put, keys), (reads_pct, 100 - reads_pct, 3));
        }
        defined(Workload { keys: 0, ..workload() }).unwrap_err();
        let waiting = Workload { wait_ms: 2.5, blocking_wait_ms: 1.0, cpu_ms: 0.5, cores: 2, ..workload() };
        let defined = defined(waiting.clone()).unwrap().workload;
        assert_eq!(defined.longest_request(2), waiting.longest_request());
        let flags: Vec<String> = defined.time_flags().collect();
        assert_eq!(flags, ["--repo-delay=2ms500us", "--blocking-wait=1ms", "--spin=500000"]);
    }
}
