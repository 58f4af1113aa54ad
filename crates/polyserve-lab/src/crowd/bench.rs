//! One server beside a crowd and without it.
//!
//! Idle: three processes of the server, one of which holds the crowd, in slices in turn; the third is the second once
//! more, and what differs between these two is noise. Slow: one process and a good client at a fixed rate, before the
//! crowd, beside it, and after it has gone.
//!
//! Invariant: every process was verified before it was measured, by a PUT and GETs; and every answer is checked while it
//! is measured. Cost: the slices or phases, and the time that a crowd takes to come.

use std::time::Duration;

use polyserve::Shutdown;
use polyserve_load::data::{Data, Draw};
use polyserve_load::{CpuOf, Dist, Exchange, Load, Mix, Pace, Report, Span, Traffic, prefill_for};

use super::Kind;
use super::gathering::{Crowd, Plan};
use super::report::{Beside, Idle, Memory, Phase, Place, Slice, Slow};
use super::script::{LARGE, SMALL};
use crate::compare::Contestant;
use crate::experiment::order;
use crate::launch::process::{Failure, Process};
use crate::machine::cores::Cores;
use crate::machine::proc::{self, Resident};

/// How servers are measured: alike for all.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The servers' cores.
    pub server_cores: Cores,
    /// The cores of the good client, and of the crowd.
    pub client_cores: Cores,
    /// The good client's connections.
    pub connections: usize,
    /// The time of a slice beside an idle crowd.
    pub slice: Duration,
    /// The time in which a server is verified and warmed up.
    pub warm_up: Duration,
    /// Rounds beside an idle crowd.
    pub rounds: usize,
    /// The good client's requests a second beside a slow crowd.
    pub rate: f64,
    /// The time of a phase before, beside and after a slow crowd.
    pub phase: Duration,
    /// Bytes of the large entity's description.
    pub description: usize,
    /// Of data, draws and resamples.
    pub seed: u64,
    /// How many members of a crowd can have one address.
    pub ports: usize,
    /// Begun where the run is to end now.
    pub stop: Shutdown,
}

/// A crowd that is to come to a server.
#[derive(Clone, Copy, Debug)]
pub struct Guests {
    /// What its members do.
    pub kind: Kind,
    /// How many there are.
    pub connections: usize,
    /// The time between two turns of a member.
    pub interval: Duration,
    /// After which time a member leaves and comes back, if it does.
    pub stay: Option<Duration>,
}

/// How long a crowd may take to come.
const ARRIVAL: Duration = Duration::from_secs(60);
/// How long the good client waits for an answer beside a slow crowd.
const PATIENCE: Duration = Duration::from_secs(5);
/// What a slice begins with and does not count: new connections have their first requests.
const RAMP: Duration = Duration::from_millis(5);

/// A server's process, and the load that the good client puts on it.
struct Seat {
    process: Process,
    load: Load,
}

impl Bench {
    /// A server beside an idle crowd. `say` is told how far it is.
    ///
    /// # Errors
    ///
    /// Why there are no figures.
    pub fn idle(&self, server: &Contestant, guests: Guests, say: &mut dyn FnMut(&str)) -> Result<Idle, Failure> {
        let mut seats = Vec::new();
        for _ in Place::ALL {
            seats.push(self.seat(server)?);
        }
        let memory = |seat: &Seat| proc::resident(seat.process.pid()).map_err(|error| Failure(error.to_string()));
        let before = memory(&seats[0])?;
        let crowd = self.gather(&seats[0], guests, say)?;
        let arrived = crowd.counts();
        let memory = Memory::of(before, memory(&seats[0])?, arrived.held);
        let (mut slices, mut unserved) = (Vec::new(), None);
        'rounds: for round in 1..=self.rounds {
            say(&format!("round {round} of {}", self.rounds));
            for place in order(round - 1, seats.len()) {
                if self.stop.is_begun() {
                    break;
                }
                let (seat, place) = (&mut seats[place], Place::ALL[place]);
                match self.slice(seat) {
                    Ok(slice) => slices.push(Slice::new(round, place, &slice)),
                    // That of a full server is what the crowd has come for.
                    Err(Failure(why)) if place == Place::With => {
                        unserved = Some(why);
                        break 'rounds;
                    }
                    Err(failure) => return Err(seat.process.explain(failure)),
                }
            }
        }
        let crowd = dispersed(crowd);
        for Seat { process, .. } in seats {
            process.end()?;
        }
        Ok(Idle { memory, crowd, arrived, unserved, beside: Beside::of(&slices, self.seed), slices })
    }

    /// A server beside a slow crowd.
    ///
    /// # Errors
    ///
    /// Why there are no figures. That the good client was not served beside the crowd or afterwards is none.
    pub fn slow(&self, server: &Contestant, guests: Guests, say: &mut dyn FnMut(&str)) -> Result<Slow, Failure> {
        let mut seat = self.seat(server)?;
        if guests.kind == Kind::SlowReaders {
            self.store_large(&seat)?;
        }
        say("before the crowd");
        let before = self.phase(&mut seat)?;
        if before.errors > 0 {
            let first = before.first_failure.as_deref().unwrap_or("no answer in time");
            return Err(Failure(format!("{} requests failed without a crowd, the first: {first}", before.errors)));
        }
        let crowd = self.gather(&seat, guests, say)?;
        let arrived = crowd.counts();
        say("beside the crowd");
        let with = self.phase(&mut seat)?;
        let crowd = dispersed(crowd);
        say("after the crowd");
        let after = self.phase(&mut seat)?;
        seat.process.end()?;
        Ok(Slow { before, with, after, crowd, arrived })
    }

    /// A process that has stored the small entity, and answers it.
    fn seat(&self, server: &Contestant) -> Result<Seat, Failure> {
        let mut process = Process::start(&server.launch, &self.server_cores)?;
        let traffic = Traffic::entities(&Data::new(self.seed), 1, Dist::Uniform, Mix { get: 1, put: 0 }, self.seed);
        let load = Load::new(process.addr(), traffic.map_err(absence)?).with(|load| {
            load.connections = self.connections;
            load.threads = self.client_cores.count().min(self.connections);
            load.cores = self.client_cores.numbers().to_vec();
            load.cpu = CpuOf::Process(process.pid());
            load.stop = self.stop.clone();
        });
        let verify = || {
            prefill_for(&load).map_err(absence)?;
            clean(&load.clone().with(|load| load.span = Span::Time(self.warm_up)))
        };
        verify().map_err(|failure| process.explain(failure))?;
        Ok(Seat { process, load })
    }

    fn store_large(&self, seat: &Seat) -> Result<(), Failure> {
        let description = "x".repeat(self.description);
        let put = Exchange::new("PUT", "/").with(|put| {
            put.headers = vec![("Content-Type".into(), "application/json".into())];
            put.body = Some(format!(r#"{{"id":{LARGE},"description":"{description}","value":0.5}}"#).into());
            put.statuses = vec![200, 201];
        });
        let traffic = Traffic::expecting(vec![put]).map_err(absence)?;
        let load = seat.load.clone().with(|load| {
            (load.connections, load.threads) = (1, 1);
            (load.span, load.traffic) = (Span::Requests(1), traffic);
        });
        clean(&load).map(drop)
    }

    fn gather(&self, seat: &Seat, guests: Guests, say: &mut dyn FnMut(&str)) -> Result<Crowd, Failure> {
        let Guests { kind, connections, interval, stay } = guests;
        say(&format!("{connections} {} come", kind.name()));
        let plan = Plan {
            kind,
            target: seat.process.addr(),
            body: self.small(),
            connections,
            ports: self.ports,
            interval,
            stay,
            cores: self.client_cores.clone(),
        };
        let crowd = Crowd::gather(plan).map_err(|error| Failure(format!("there can be no crowd: {error}")))?;
        if !crowd.settles(ARRIVAL, &self.stop) && !self.stop.is_begun() {
            let counts = crowd.counts();
            tracing::warn!(?counts, "some of the crowd have not come within {ARRIVAL:?}");
        }
        Ok(crowd)
    }

    /// The small entity, as servers show it.
    fn small(&self) -> String {
        let entity = Data::new(self.seed).row(SMALL, Draw::New).entity;
        let value = serde_json::to_string(&entity.value).unwrap_or_default();
        // The description needs no escaping.
        format!(r#"{{"id":{SMALL},"description":"{}","value":{value}}}"#, entity.description)
    }

    fn slice(&self, seat: &Seat) -> Result<Report, Failure> {
        clean(&seat.load.clone().with(|load| {
            load.warm_up = RAMP;
            load.span = Span::Time(self.slice);
        }))
    }

    fn phase(&self, seat: &mut Seat) -> Result<Phase, Failure> {
        let load = seat.load.clone().with(|load| {
            load.pace = Pace::Rate(self.rate);
            load.warm_up = RAMP;
            load.span = Span::Time(self.phase);
            load.patience = PATIENCE;
        });
        let report = polyserve_load::run(&load, &mut |_| {}).map_err(|error| seat.process.explain(absence(error)))?;
        let pid = seat.process.pid();
        let resident = proc::resident(pid).ok().map(|resident| resident.now);
        Ok(Phase::of(&report, resident, proc::descriptors(pid).ok()))
    }
}

/// Ends a crowd, and how it had fared until then.
fn dispersed(crowd: Crowd) -> super::Counts {
    let counts = crowd.counts();
    crowd.disperse();
    counts
}

/// Runs `load`; a single answer that is not right is a failure.
fn clean(load: &Load) -> Result<Report, Failure> {
    let report = polyserve_load::run(load, &mut |_| {}).map_err(absence)?;
    let (failed, first) = (report.failed.total(), report.first_failure.as_deref().unwrap_or("no reason is known"));
    if failed > 0 {
        return Err(Failure(format!("{failed} of its answers were not right, the first: {first}")));
    }
    Ok(report)
}

#[allow(clippy::needless_pass_by_value)] // for `map_err`
fn absence(error: polyserve_load::LoadError) -> Failure {
    Failure(error.to_string())
}

impl Memory {
    /// By how much a crowd of which so many are held made a process grow.
    fn of(before: Resident, with: Resident, held: u64) -> Self {
        let each = |before: u64, with: u64| {
            let growth = with as f64 - before as f64;
            (held > 0).then(|| growth / held as f64)
        };
        let anonymous = before.anonymous.zip(with.anonymous);
        Self {
            before_bytes: before.now,
            with_bytes: with.now,
            bytes_per_connection: each(before.now, with.now),
            anonymous_bytes_per_connection: anonymous.and_then(|(before, with)| each(before, with)),
        }
    }
}
