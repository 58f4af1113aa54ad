//! Measures one server with a crowd and without it.
//!
//! Idle crowd: three processes of the server are measured in slices in turn. The first holds the crowd. The second and the
//! third do not; their difference is noise. Slow crowd: one process and a good client at a fixed rate, before, during and
//! after the crowd.
//!
//! Invariant: every process is verified by a PUT and GETs before it is measured, and every answer is checked while it is
//! measured. Cost: the slices or phases, and the time to open a crowd.

use std::thread;
use std::time::{Duration, Instant};

use polyserve::Shutdown;
use polyserve_load::data::{Data, EntityVersion};
use polyserve_load::{
    CpuSource, Dist, Exchange, Load, Mix, Pace, ProcessCpuTime, Report, RunLength, Traffic, prefill_for,
};

use super::CrowdKind;
use super::connection_opener::{Crowd, CrowdCounts, CrowdPlan};
use super::report::{CrowdEffect, CrowdMemory, CrowdOutcome, CrowdProcess, Idle, PacedFigures, Sample, Slice, Slow};
use super::steps::{LARGE_ID, SMALL_ID};
use crate::compare::Contestant;
use crate::experiment::{Absence, order};
use crate::launch::process::{Failure, Process};
use crate::machine::cores::Cores;
use crate::machine::proc::{self, Resident};
use crate::statistics::median_of;

/// How servers are measured; the same for all servers.
#[derive(Clone, Debug)]
pub struct CrowdBench {
    /// The servers' cores.
    pub server_cores: Cores,
    /// The cores of the good client, and of the crowd.
    pub client_cores: Cores,
    /// The good client's connections.
    pub connections: usize,
    /// The time of a slice with an idle crowd.
    pub slice: Duration,
    /// The time in which a server is verified and warmed up.
    pub warm_up: Duration,
    /// The number of rounds with an idle crowd, and the number of idle windows of a second each.
    pub rounds: usize,
    /// The good client's requests a second with a slow crowd.
    pub rate: f64,
    /// The time of a phase before, during and after a slow crowd.
    pub phase: Duration,
    /// The length of the large entity's description, in bytes.
    pub description: usize,
    /// The seed of data, draws and resamples.
    pub seed: u64,
    /// The max number of a crowd's connections from one address.
    pub ports: usize,
    /// The shutdown that begins when the run must end.
    pub stop: Shutdown,
}

/// The crowd of a cell.
#[derive(Clone, Copy, Debug)]
pub struct CrowdSpec {
    /// The behaviour of its connections.
    pub kind: CrowdKind,
    /// The number of connections.
    pub connections: usize,
    /// The time between two turns of a connection.
    pub interval: Duration,
    /// The time after which a connection is closed and opened again; `None` for never.
    pub stay: Option<Duration>,
}

/// The max time to open a crowd.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);
/// The good client's timeout for an answer with a slow crowd.
const PATIENCE: Duration = Duration::from_secs(5);
/// The uncounted start of a slice: the first requests of new connections.
const RAMP: Duration = Duration::from_millis(5);

/// The time after the crowd was opened that does not count as idle.
const SETTLE: Duration = Duration::from_secs(1);
/// The length of a window without a request. A window contains all work that the server does every second. The median over
/// the windows excludes rarer work.
const IDLE_WINDOW: Duration = Duration::from_secs(1);
const STOP_CHECK: Duration = Duration::from_millis(50);

/// A server's process, and the good client's load.
struct Instance {
    process: Process,
    load: Load,
}

impl CrowdBench {
    /// Measures a server with a crowd. Each step is passed to `on_step`.
    ///
    /// # Errors
    ///
    /// Returns why there is no sample.
    pub fn measure(
        &self,
        server: &Contestant,
        crowd: CrowdSpec,
        on_step: &mut dyn FnMut(&str),
    ) -> Result<Sample, Absence> {
        let crowd_of = crowd.connections;
        match crowd.kind {
            CrowdKind::Idle => {
                let (idle, slices) = self.idle(server, crowd, on_step)?;
                Ok(Sample { crowd_of, outcome: CrowdOutcome::Idle(Box::new(idle)), slices })
            }
            CrowdKind::SlowHeads | CrowdKind::SlowBodies | CrowdKind::SlowReaders => {
                let slow = self.slow(server, crowd, on_step)?;
                Ok(Sample { crowd_of, outcome: CrowdOutcome::Slow(Box::new(slow)), slices: Vec::new() })
            }
        }
    }

    fn idle(
        &self,
        server: &Contestant,
        spec: CrowdSpec,
        on_step: &mut dyn FnMut(&str),
    ) -> Result<(Idle, Vec<Slice>), Absence> {
        let mut instances = Vec::new();
        for _ in CrowdProcess::ALL {
            instances.push(self.instance(server)?);
        }
        let memory = |instance: &Instance| {
            proc::resident(instance.process.pid()).map_err(|error| Absence::failed(error.to_string()))
        };
        let before = memory(&instances[0])?;
        let crowd = self.open_crowd(&instances[0], spec, on_step)?;
        let arrived = crowd.counts();
        let memory = CrowdMemory::of(before, memory(&instances[0])?, arrived.held);
        let idle_cpu_windows = self.idle_cpu(&instances[0], on_step);
        let idle_cpu_ms_per_s = median_of(idle_cpu_windows.iter().copied());
        let (mut slices, mut unserved) = (Vec::new(), None);
        'rounds: for round in 1..=self.rounds {
            on_step(&format!("round {round} of {}", self.rounds));
            for place in order(round - 1, instances.len()) {
                if self.stop.is_begun() {
                    break;
                }
                let (instance, place) = (&mut instances[place], CrowdProcess::ALL[place]);
                match self.slice(instance) {
                    Ok(slice) => slices.push(Slice::new(round, place, &slice, self.connections)),
                    // If a full server does not serve the good client, that is a result.
                    Err(absence) if place == CrowdProcess::With => {
                        unserved = Some(absence.why);
                        break 'rounds;
                    }
                    Err(absence) => return Err(absence.explained(&mut instance.process)),
                }
            }
        }
        let crowd = close(crowd);
        for Instance { process, .. } in instances {
            process.end().map_err(|Failure(why)| Absence::wrong(why))?;
        }
        let effect = CrowdEffect::of(&slices, self.seed);
        let idle = Idle { memory, idle_cpu_ms_per_s, idle_cpu_windows, crowd, arrived, unserved, beside: effect };
        Ok((idle, slices))
    }

    /// The CPU time of the server in each window without a request, in milliseconds a second. Empty if the run ends.
    fn idle_cpu(&self, instance: &Instance, on_step: &mut dyn FnMut(&str)) -> Vec<f64> {
        on_step("without a request");
        let window = |clock: &ProcessCpuTime| {
            let (start, before) = (Instant::now(), clock.read()?);
            self.sleep(IDLE_WINDOW)?;
            let (spent, elapsed) = (clock.read()?.saturating_sub(before), start.elapsed());
            Some(spent as f64 / 1e6 / elapsed.as_secs_f64())
        };
        let windows = || -> Option<Vec<f64>> {
            let clock = ProcessCpuTime::new(instance.process.pid()).ok()?;
            self.sleep(SETTLE)?;
            (0..self.rounds).map(|_| window(&clock)).collect()
        };
        windows().unwrap_or_default()
    }

    /// Waits. `None` if the run ends meanwhile.
    fn sleep(&self, time: Duration) -> Option<()> {
        let start = Instant::now();
        while start.elapsed() < time {
            if self.stop.is_begun() {
                return None;
            }
            thread::sleep(STOP_CHECK);
        }
        Some(())
    }

    /// Measures a server with a slow crowd. If the good client is not served during or after the crowd, that is a result.
    fn slow(&self, server: &Contestant, spec: CrowdSpec, on_step: &mut dyn FnMut(&str)) -> Result<Slow, Absence> {
        let mut instance = self.instance(server)?;
        if spec.kind == CrowdKind::SlowReaders {
            self.store_large(&instance)?;
        }
        on_step("before the crowd");
        let before = self.phase(&mut instance)?;
        if before.errors > 0 {
            let first = before.first_failure.as_deref().unwrap_or("no answer in time");
            let why = format!("{} requests failed without a crowd, the first: {first}", before.errors);
            return Err(Absence::failed(why));
        }
        let crowd = self.open_crowd(&instance, spec, on_step)?;
        let arrived = crowd.counts();
        on_step("during the crowd");
        let with = self.phase(&mut instance)?;
        let crowd = close(crowd);
        on_step("after the crowd");
        let after = self.phase(&mut instance)?;
        instance.process.end().map_err(|Failure(why)| Absence::wrong(why))?;
        Ok(Slow { before, with, after, crowd, arrived })
    }

    /// Starts a process, stores the small entity, and verifies its answers.
    fn instance(&self, server: &Contestant) -> Result<Instance, Absence> {
        let mut process = Process::start(&server.launch, &self.server_cores)?;
        let traffic = Traffic::entities(&Data::new(self.seed), 1, Dist::Uniform, Mix { get: 1, put: 0 }, self.seed);
        let load = Load::new(process.addr(), traffic?).with(|load| {
            load.connections = self.connections;
            load.threads = self.client_cores.count().min(self.connections);
            load.cores = self.client_cores.numbers().to_vec();
            load.cpu = CpuSource::Process(process.pid());
            load.stop = self.stop.clone();
        });
        let verify = || {
            prefill_for(&load)?;
            run_verified(&load.clone().with(|load| load.length = RunLength::Time(self.warm_up)))
        };
        verify().map_err(|absence: Absence| absence.explained(&mut process))?;
        Ok(Instance { process, load })
    }

    fn store_large(&self, instance: &Instance) -> Result<(), Absence> {
        let description = "x".repeat(self.description);
        let put = Exchange::new("PUT", "/").with(|put| {
            put.headers = vec![("Content-Type".into(), "application/json".into())];
            put.body = Some(format!(r#"{{"id":{LARGE_ID},"description":"{description}","value":0.5}}"#).into());
            put.statuses = vec![200, 201];
        });
        let traffic = Traffic::expecting(vec![put])?;
        let load = instance.load.clone().with(|load| {
            (load.connections, load.threads) = (1, 1);
            (load.length, load.traffic) = (RunLength::Requests(1), traffic);
        });
        run_verified(&load).map(drop)
    }

    fn open_crowd(
        &self,
        instance: &Instance,
        spec: CrowdSpec,
        on_step: &mut dyn FnMut(&str),
    ) -> Result<Crowd, Absence> {
        let CrowdSpec { kind, connections, interval, stay } = spec;
        on_step(&format!("opens {connections} connections: {}", kind.name()));
        let plan = CrowdPlan {
            kind,
            target: instance.process.addr(),
            body: self.small_entity(),
            connections,
            ports: self.ports,
            interval,
            stay,
            cores: self.client_cores.clone(),
        };
        let crowd =
            Crowd::open(plan).map_err(|error| Absence::failed(format!("the crowd cannot be opened: {error}")))?;
        if !crowd.wait_settled(OPEN_TIMEOUT, &self.stop) && !self.stop.is_begun() {
            let counts = crowd.counts();
            tracing::warn!(?counts, "some connections of the crowd were not opened within {OPEN_TIMEOUT:?}");
        }
        Ok(crowd)
    }

    /// The small entity, as servers answer it.
    fn small_entity(&self) -> String {
        let entity = Data::new(self.seed).row(SMALL_ID, EntityVersion::New).entity;
        let value = serde_json::to_string(&entity.value).unwrap_or_default();
        // The description needs no escaping.
        format!(r#"{{"id":{SMALL_ID},"description":"{}","value":{value}}}"#, entity.description)
    }

    fn slice(&self, instance: &Instance) -> Result<Report, Absence> {
        run_verified(&instance.load.clone().with(|load| {
            load.warm_up = RAMP;
            load.length = RunLength::Time(self.slice);
        }))
    }

    fn phase(&self, instance: &mut Instance) -> Result<PacedFigures, Absence> {
        let load = instance.load.clone().with(|load| {
            load.pace = Pace::Rate(self.rate);
            load.warm_up = RAMP;
            load.length = RunLength::Time(self.phase);
            load.patience = PATIENCE;
        });
        let report = polyserve_load::run(&load, &mut |_| {});
        let report = report.map_err(|error| Absence::from(error).explained(&mut instance.process))?;
        let pid = instance.process.pid();
        let resident = proc::resident(pid).ok().map(|resident| resident.now);
        Ok(PacedFigures::of(&report, resident, proc::descriptors(pid).ok()))
    }
}

/// Closes a crowd. Returns its state before.
fn close(crowd: Crowd) -> CrowdCounts {
    let counts = crowd.counts();
    crowd.close();
    counts
}

/// Runs `load`. A single wrong answer is an absence.
fn run_verified(load: &Load) -> Result<Report, Absence> {
    Absence::unless_right(polyserve_load::run(load, &mut |_| {})?)
}

impl CrowdMemory {
    /// The growth of a process by `held` connections.
    fn of(before: Resident, with: Resident, held: u64) -> Self {
        let per_connection = |before: u64, with: u64| {
            let growth = with as f64 - before as f64;
            (held > 0).then(|| growth / held as f64)
        };
        let anonymous = before.anonymous.zip(with.anonymous);
        Self {
            before_bytes: before.now,
            with_bytes: with.now,
            bytes_per_connection: per_connection(before.now, with.now),
            anonymous_bytes_per_connection: anonymous.and_then(|(before, with)| per_connection(before, with)),
        }
    }
}
