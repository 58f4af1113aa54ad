//! What precedes the comparison of a service: its right answers are discovered on one contestant, and it is found out whether the
//! number of connections bounds all contestants.
//!
//! The connections are the bound if a request takes as long as without other requests, and neither the server nor the client is
//! busy: more connections would then be served as fast.
//!
//! Invariant: all contestants are compared with the same answers. Cost: one process, each request twice, and a warm-up.

use std::fmt;
use std::time::Duration;

use crate::report::figures::count;
use polyserve_load::{ChangingAnswer, CpuSource, Discovered, RunLength, Traffic, discover};

use super::contestant::Contestant;
use super::measure::{Instrument, run};
use crate::experiment::Absence;
use crate::launch::process::Process;
use crate::recommend::budget::{LATENCY_WAITS, WARM_UP_WAITS};

/// A request that takes less counts as one without a wait.
const MIN_WAIT: Duration = Duration::from_millis(1);
/// The connections are the bound if the busier side is busy for less than this share of its time.
const MAX_BUSY: f64 = 0.5;
/// The connections are the bound if a request takes at most this number of times as long as alone.
const MAX_SLOWER: f64 = 2.0;
/// The load has at least this number of requests on each connection.
const MIN_REQUESTS: u32 = 4;

/// The result of a rehearsal.
#[derive(Clone, Debug)]
pub struct Rehearsal {
    /// The requests with their right answers.
    pub traffic: Traffic,
    /// The requests with a changing answer.
    pub changing: Vec<ChangingAnswer>,
    /// The time of a request without others, zero if it is short. A slice must be long compared with it.
    pub wait: Duration,
    /// The bound of the connections, if they are the bound.
    pub bound: Option<ConnectionBound>,
}

impl Rehearsal {
    /// Gives `contestants` the right answers, and slices that are long enough for the requests.
    pub fn apply<'a>(&self, instrument: &mut Instrument, contestants: impl IntoIterator<Item = &'a mut Contestant>) {
        instrument.traffic = self.traffic.clone();
        instrument.warm_up = instrument.warm_up.max(self.wait * WARM_UP_WAITS);
        instrument.latency_slice = instrument.latency_slice.max(self.wait * LATENCY_WAITS);
        if !instrument.slice.is_zero() {
            instrument.slice = instrument.slice.max(instrument.shortest_slice(self.wait));
        }
        contestants.into_iter().for_each(|one| one.wait = self.wait);
    }
}

/// The throughput that the number of connections allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConnectionBound {
    /// The connections.
    pub connections: usize,
    /// The time of a request.
    pub request: Duration,
    /// The share of its time in which the busier of server and client was busy.
    pub busy: f64,
}

impl ConnectionBound {
    /// The bound of a load, if it is one: a request takes `alone` without others, and `loaded` with those of all connections.
    fn of(connections: usize, [alone, loaded]: [Duration; 2], busy: f64) -> Option<Self> {
        let is_bound = busy < MAX_BUSY && loaded <= alone.mul_f64(MAX_SLOWER).max(MIN_WAIT);
        (is_bound && alone >= MIN_WAIT).then_some(Self { connections, request: alone, busy })
    }

    /// The number of connections at which the busier side is full: two digits, rounded up.
    fn enough(&self) -> f64 {
        let exact = self.connections as f64 / self.busy.max(0.001);
        let unit = 10_f64.powf(exact.log10().floor() - 1.0).max(1.0);
        (exact / unit).ceil() * unit
    }
}

impl fmt::Display for ConnectionBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connections, request, busy } = self;
        let per_s = *connections as f64 / request.as_secs_f64();
        let (ms, max, enough) = (request.as_secs_f64() * 1000.0, count(per_s), self.enough());
        write!(
            f,
            "the {connections} connections are the bound, not the servers: a request takes {ms:.1} ms, so they send at "
        )?;
        write!(
            f,
            "most {max} requests/s, and the cores are {:.0} % busy. About {enough:.0} fill them (-c, or connections in a definition).",
            busy * 100.0
        )
    }
}

impl Instrument {
    /// Starts `contestant`, discovers the right answers, and loads it.
    ///
    /// # Errors
    ///
    /// Returns why the requests cannot be measured, such as a request with a wrong status.
    pub fn rehearse(&self, contestant: &Contestant) -> Result<Rehearsal, Absence> {
        let mut process = Process::start(&contestant.launch, &self.server_cores)?;
        let rehearsed = self.rehearse_with(contestant, &process);
        let rehearsal = rehearsed.map_err(|absence| process.explain(absence))?;
        process.end()?;
        Ok(rehearsal)
    }

    fn rehearse_with(&self, contestant: &Contestant, process: &Process) -> Result<Rehearsal, Absence> {
        let load = self.load(contestant, process);
        let Some(Discovered { traffic, changing, time, .. }) = discover(&load)? else {
            return Ok(Rehearsal { traffic: load.traffic, changing: Vec::new(), wait: Duration::ZERO, bound: None });
        };
        let report = run(&load.with(|load| {
            load.traffic = traffic.clone();
            load.length = RunLength::Time(self.warm_up.max(time * MIN_REQUESTS));
            load.cpu = CpuSource::Process(process.pid());
        }))?;
        // Of the whole time: on a shared machine, the time that other processes leave is always used up.
        let server_busy = report.server_busy.unwrap_or_default() / self.server_cores.count() as f64;
        let busy = server_busy.max(report.client_busy);
        let loaded = Duration::from_secs_f64((self.connections as f64 / report.per_second()).clamp(0.0, 3600.0));
        let bound = ConnectionBound::of(self.connections, [time, loaded], busy);
        Ok(Rehearsal { traffic, changing, wait: about(time), bound })
    }
}

/// The nearest of a few times, zero if it is short. A rerun of a recorded comparison must find the same time.
fn about(time: Duration) -> Duration {
    if time < MIN_WAIT {
        return Duration::ZERO;
    }
    let steps = (0..5).flat_map(|power| [1.0, 1.5, 2.0, 3.0, 5.0, 7.0].map(|digit: f64| digit * 10_f64.powi(power)));
    let distance = |ms: &f64| (ms / 1000.0 / time.as_secs_f64()).ln().abs();
    let nearest = steps.min_by(|a, b| distance(a).total_cmp(&distance(b)));
    nearest.map_or(time, |ms| Duration::from_secs_f64(ms / 1000.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn connections_that_wait_are_the_bound_and_the_right_number_is_named() {
        let bound = ConnectionBound::of(64, [MS * 20, MS * 21], 0.04).unwrap();
        let said = "the 64 connections are the bound, not the servers: a request takes 20.0 ms, so they send at most 3,200 \
                    requests/s, and the cores are 4 % busy. About 1600 fill them (-c, or connections in a definition).";
        assert_eq!(bound.to_string(), said);
        assert_eq!(ConnectionBound { busy: 0.037, ..bound }.enough(), 1800.0);
        assert_eq!(
            [999, 20_300, 21_700, 99_000].map(|us| about(Duration::from_micros(us))),
            [0, 20, 20, 100].map(|ms| MS * ms)
        );
        // A pool with too few workers makes requests wait for each other, and a busy server needs no more connections.
        for (alone, loaded, busy) in [(20, 160, 0.04), (20, 21, 0.9), (0, 1, 0.04)] {
            assert_eq!(ConnectionBound::of(64, [MS * alone, MS * loaded], busy), None);
        }
    }
}
