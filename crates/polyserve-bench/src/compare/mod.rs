//! Strategies side by side on this machine: every contestant in its own process, in turn, round by round, with an interval for
//! every ratio.
//!
//! Every contestant has a new process in each round, because the speed of a process depends on its memory layout. A round is
//! measured in [turns](crate::turn).
//!
//! The baseline takes part twice. A difference is real only if it is larger than the difference between the baseline's two
//! entries. The limits (null servers) take part in every round too.
//!
//! Invariant: a contestant with one wrong answer is not ranked. Cost: rounds x contestants x about half a second; the memory
//! of all contestants at once.
//!
//! # Layout
//!
//! * `calibration`: what precedes the first round.
//! * [`experiment`]: the experiment in the framework; `lines`: the lines of its record. [`ranking`]: the result; [`table`]: for
//!   people.

mod calibration;
pub mod experiment;
mod lines;
pub mod ranking;
pub mod table;

use serde_json::Value;

pub use experiment::NAME;
pub use lines::Key;
pub use ranking::Ranking;

use crate::contestants::Program;
use crate::experiment::Absent;
use crate::turn::{Contestant, Instrument};

/// A comparison.
#[derive(Debug)]
pub struct Comparison {
    /// The contestants. One of them is the baseline.
    pub contestants: Vec<Contestant>,
    /// How a contestant is measured.
    pub instrument: Instrument,
    /// The number of rounds; the max number if the comparison stops when it is sure.
    pub rounds: usize,
    /// Whether the comparison ends as soon as each ranked contestant differs from the baseline.
    pub stops_when_sure: bool,
    /// Whether latencies are measured too.
    pub latency: bool,
    /// The rate of the latencies; `None` is half of the throughput of the slowest contestant, of those with at least a quarter of
    /// the best contestant's.
    pub rate: Option<f64>,
    /// The goal for the p99, in microseconds.
    pub goal_us: Option<f64>,
    /// The contestants that cannot take part.
    pub absent: Vec<Absent<Key>>,
    /// The lines to print before the run, for example the reasons for these contestants.
    pub notes: Vec<String>,
    /// Further fields of the description.
    pub details: Vec<(&'static str, Value)>,
    /// The foreign servers among the contestants, which must be built.
    pub peers: Option<Peers>,
    /// Whether all columns are printed.
    pub wide: bool,
    state: experiment::State,
}

/// Programs that must be built.
#[derive(Clone, Debug)]
pub struct Peers {
    /// The servers.
    pub asked: Vec<Program>,
    /// The servers that the command line names: the run fails if one of them is not available.
    pub named: Vec<Program>,
    /// The variant of the builds: an allocator, or `best`.
    pub variant: String,
    /// The program with our own servers, if it must be built as the variant too.
    pub own: Option<Program>,
    /// The number of workers; `None` for the default of each server.
    pub workers: Option<usize>,
}

impl Comparison {
    /// A comparison with latencies.
    pub fn new(contestants: Vec<Contestant>, instrument: Instrument, rounds: usize) -> Self {
        let (absent, notes, details, state) = (Vec::new(), Vec::new(), Vec::new(), experiment::State::default());
        let (latency, rate, goal_us, peers, wide, stops_when_sure) = (true, None, None, None, false, false);
        Self {
            contestants,
            instrument,
            rounds,
            stops_when_sure,
            latency,
            rate,
            goal_us,
            absent,
            notes,
            details,
            peers,
            wide,
            state,
        }
    }
}

impl Peers {
    /// Returns true if the run succeeds without this server: the command line does not name it, and it is not installed or has
    /// one answer only.
    pub fn excuses(&self, server: &Program, is_absent: bool) -> bool {
        (is_absent || !server.keeps_entities()) && !self.named.contains(server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contestants::Registry;

    /// Without Go or nginx on a machine, `--peers all` does not fail. `--peers nginx` does.
    #[test]
    fn only_a_named_server_must_be_there() {
        let server = |name: &str| Registry::repository().named(name).unwrap().clone();
        let servers = [(server("hyper"), false), (server("go/nethttp"), true), (server("nginx"), false)];
        let excused = |named: &[&str]| {
            let named = named.iter().map(|name| server(name)).collect();
            let asked = servers.each_ref().map(|(server, _)| server.clone()).into();
            let peers = Peers { asked, named, variant: "any".into(), own: None, workers: None };
            let excused = servers.iter().filter(|(server, is_absent)| peers.excuses(server, *is_absent));
            excused.map(|(server, _)| server.name().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(excused(&[]), ["go/nethttp", "nginx"]);
        assert_eq!(excused(&["go/nethttp"]), ["nginx"]);
        assert!(excused(&["hyper", "go/nethttp", "nginx"]).is_empty());
    }
}
