//! The mode `hold`: what many idle or slow connections cost a server, and how it serves a good client meanwhile.
//!
//! An idle crowd behaves like browsers. Three processes of the server are measured in slices in turn, and the first holds the
//! crowd. The ratio of the other two is the noise. A slow crowd behaves like attackers. One process serves a good client at a fixed rate, before, during and after the
//! crowd.
//!
//! Invariant: every process is verified before it is measured, and every answer is checked while it is measured. Cost: for each
//! contestant, cell and round the slices or phases, and the time to open a crowd. A held connection takes a descriptor and a port.

use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use polyserve::ServerConfig;
use polyserve_load::data::{Data, EntityVersion};
use polyserve_load::{
    CpuSource, Exchange, Failures, Load, Pace, ProcessCpuTime, Report as LoadReport, RunLength, Traffic,
};
use serde::Deserialize;

use super::requests::{self, CellPlan, RequestSettings};
use super::{ReadKeys, Turns, check_rate, check_times};
use crate::Misuse;
use crate::bench::definition::{Definition, optional_time, time};
use crate::bench::experiment::{Key, Sample};
use crate::bench::figures::{self, NamedFigures};
use crate::bench::report::{BenchRow, ratio_text};
use crate::bench::sweep::{CellValue, SweepAxis, SweepCell};
use crate::bench::workload::BenchWorkload;
use crate::crowd::{Crowd, CrowdCounts, CrowdKind, CrowdPlan, LARGE_ID, SMALL_ID};
use crate::experiment::{Absence, Notebook, Records, order};
use crate::limits;
use crate::machine::proc;
use crate::report::{Table, or_empty};
use crate::statistics::{Compared, Estimate, median_of, tie_band};
use crate::turn::{Contestant, ContestantSession, Instrument, microseconds, run};

/// The throughput next to an idle crowd, as a share of that of a process without one.
const KEPT_SHARE: &str = "kept_share";
/// The throughput of the second process without a crowd, as a share of that of the first.
const CONTROL_SHARE: &str = "control_share";
/// The max time to open a crowd.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);
/// The good client's timeout for an answer with a slow crowd.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The uncounted start of a phase: the first requests of new connections.
const RAMP: Duration = Duration::from_millis(5);
/// The time after the crowd was opened that does not count as idle.
const SETTLE: Duration = Duration::from_secs(1);
/// The length of a window without a request. A window contains all work that the server does every second.
const IDLE_WINDOW: Duration = Duration::from_secs(1);
/// The status with which a server refuses a request because it is full.
const FULL: u16 = 503;
const STOP_CHECK: Duration = Duration::from_millis(50);
/// The length of the description that slow readers request, in bytes, unless the limit of a body is lower.
const DESCRIPTION_BYTES: usize = 64 * 1024;

/// Many connections that do nothing useful, next to a good client.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HoldMode {
    /// The behaviour of the crowd, unless the sweep has it.
    pub behaviour: CrowdKind,
    /// The number of the crowd's connections; less if the limit on descriptors is lower.
    pub held: usize,
    /// The measured time of the good client with an idle crowd, and without.
    #[serde(deserialize_with = "time")]
    pub slice: Duration,
    /// The time for verification and warm-up.
    #[serde(deserialize_with = "time")]
    pub warm_up: Duration,
    /// The number of windows of a second without a request, with an idle crowd.
    pub windows: usize,
    /// The good client's requests a second with a slow crowd.
    pub rate: f64,
    /// The measured time of the good client before, during and after a slow crowd.
    #[serde(deserialize_with = "time")]
    pub phase: Duration,
    /// The time between two bytes of a slow connection, or two reads of a slow reader. By default a twentieth of the server's
    /// timeout for it, from 10 ms to 1 s.
    #[serde(deserialize_with = "optional_time")]
    pub interval: Option<Duration>,
}

impl Default for HoldMode {
    fn default() -> Self {
        Self {
            behaviour: CrowdKind::Idle,
            held: 10_000,
            slice: Duration::from_millis(200),
            warm_up: Duration::from_millis(200),
            windows: 1,
            rate: 1000.0,
            phase: Duration::from_secs(12),
            interval: None,
        }
    }
}

impl HoldMode {
    /// The times of the good client.
    pub(crate) fn requests(&self) -> RequestSettings {
        let Self { slice, warm_up, phase, rate, .. } = *self;
        RequestSettings { warm_up, slice, latency_slice: phase, rate: Some(rate), latency: false }
    }

    /// The name of the figure that is compared.
    pub(super) fn compared(&self) -> &'static str {
        if self.behaviour == CrowdKind::Idle { figures::BYTES_PER_CONNECTION } else { figures::P99_US }
    }

    /// What the mode reads of a definition: its good client gets one entity. Only a slow crowd has a fixed rate.
    pub(super) fn reads(&self) -> ReadKeys {
        const AXES: [SweepAxis; 8] = [
            SweepAxis::Connections,
            SweepAxis::Workers,
            SweepAxis::Payload,
            SweepAxis::Pipeline,
            SweepAxis::ServerCores,
            SweepAxis::Held,
            SweepAxis::Behaviour,
            SweepAxis::Rate,
        ];
        let axes: &[SweepAxis] = if self.behaviour == CrowdKind::Idle { &AXES[..7] } else { &AXES };
        const WORKLOAD: &[&str] =
            &["mix", "keys", "payload", "connections", "pipeline", "close", "workers", "arrivals"];
        ReadKeys { axes, workload: WORKLOAD, ..requests::READS }
    }

    fn asked_at(&self, cell: &SweepCell) -> u64 {
        cell.get(&SweepAxis::Held).and_then(CellValue::number).unwrap_or(self.held as u64)
    }

    /// The number of the crowd's connections at a cell, next to this number of the good client's.
    pub fn held_at(&self, cell: &SweepCell, connections: usize) -> usize {
        // The servers' ends are in other processes, each with a limit that it inherits.
        let held = self.asked_at(cell).min(limits::connections(2 * connections as u64));
        usize::try_from(held).unwrap_or(usize::MAX)
    }

    /// The crowd at a cell, next to a server with this configuration. A crowd that exceeds the limit on descriptors is reduced,
    /// with a warning.
    ///
    /// # Errors
    ///
    /// Returns an error if the limit on descriptors allows no crowd.
    pub fn crowd(&self, cell: &SweepCell, config: &ServerConfig, connections: usize) -> Result<CrowdSpec, Misuse> {
        let behaviour = cell.get(&SweepAxis::Behaviour).and_then(CellValue::word_as);
        let kind = behaviour.unwrap_or(self.behaviour);
        let asked = self.asked_at(cell);
        let held = self.held_at(cell, connections);
        if held == 0 {
            return Err(Misuse("the limit on open descriptors allows no crowd".into()));
        }
        if (held as u64) < asked {
            let why = "the limit on open descriptors allows no more";
            tracing::warn!("{kind}: {held} connections in place of {asked}: {why}");
        }
        let timeout = match kind {
            CrowdKind::Idle | CrowdKind::SlowHeads => config.head_timeout,
            // A body below the minimum rate has 5 s.
            CrowdKind::SlowBodies => config.body_timeout.min(Duration::from_secs(5)),
            CrowdKind::SlowReaders => config.write_timeout,
        };
        let shortest = || (timeout / 20).clamp(Duration::from_millis(10), Duration::from_secs(1));
        Ok(CrowdSpec {
            kind,
            held,
            interval: self.interval.unwrap_or_else(shortest),
            // A slow reader cannot notice that the server has closed: it opens a new connection after the write timeout.
            stay: (kind == CrowdKind::SlowReaders).then(|| config.write_timeout.saturating_mul(11) / 10),
            description: DESCRIPTION_BYTES.min(config.max_body / 2),
        })
    }

    pub(super) fn check(&self, definition: &Definition) -> Result<(), Misuse> {
        check_rate(definition, Some(self.rate))?;
        let interval = self.interval.unwrap_or(self.slice);
        let times = [("slice", self.slice), ("warm_up", self.warm_up), ("phase", self.phase), ("interval", interval)];
        check_times(definition, times)?;
        let BenchWorkload { mix, keys, .. } = &definition.workload;
        if mix.put > 0 || *keys != 1 {
            return Err(definition.misuse("workload", "the good client gets one entity: mix = \"get=1\", keys = 1"));
        }
        let swept = definition.sweep.get(&SweepAxis::Behaviour).into_iter().flatten();
        let kinds: Vec<Option<CrowdKind>> = swept.map(CellValue::word_as).collect();
        if kinds.contains(&None) || kinds.contains(&Some(CrowdKind::Idle)) || self.held == 0 || self.windows == 0 {
            let known =
                "a sweep of `behaviour` has slow-heads, slow-bodies and slow-readers; `held` and `windows` are not 0";
            return Err(definition.misuse("behaviour", known));
        }
        if !kinds.is_empty() && self.behaviour == CrowdKind::Idle {
            return Err(definition.misuse("behaviour", "an idle crowd has other figures than the swept ones"));
        }
        Ok(())
    }
}

/// The crowd of a cell.
#[derive(Clone, Copy, Debug)]
pub struct CrowdSpec {
    /// The behaviour of its connections.
    pub kind: CrowdKind,
    /// The number of connections.
    pub held: usize,
    /// The time between two turns of a connection.
    pub interval: Duration,
    /// The time after which a connection is closed and opened again; `None` for never.
    pub stay: Option<Duration>,
    /// The length of the large entity's description, in bytes.
    pub description: usize,
}

/// A cell with its crowd.
#[derive(Debug)]
pub struct HoldCell {
    /// The good client, and the contestants.
    pub plan: CellPlan,
    /// The crowd.
    pub crowd: CrowdSpec,
    /// The first entity of the good client's requests, as servers answer it. An idle crowd reads it.
    entity: String,
}

impl HoldCell {
    /// The cell of a plan. Its good client has the requests of `data`.
    pub fn new(plan: CellPlan, crowd: CrowdSpec, data: &Data) -> Self {
        let entity = data.row(SMALL_ID, EntityVersion::New).entity;
        let value = serde_json::to_string(&entity.value).unwrap_or_default();
        // The description needs no escaping.
        let entity = format!(r#"{{"id":{SMALL_ID},"description":"{}","value":{value}}}"#, entity.description);
        Self { plan, crowd, entity }
    }
}

impl AsRef<CellPlan> for HoldCell {
    fn as_ref(&self) -> &CellPlan {
        &self.plan
    }
}

/// Servers with crowds.
#[derive(Debug)]
pub struct HoldTurns {
    cells: Vec<HoldCell>,
    windows: usize,
}

impl HoldTurns {
    /// The turns at these cells.
    pub fn new(cells: Vec<HoldCell>, mode: &HoldMode) -> Self {
        Self { cells, windows: mode.windows }
    }
}

impl Turns for HoldTurns {
    fn prepare(&mut self, notebook: &mut Notebook<'_>) -> anyhow::Result<()> {
        requests::check_cells(self.cells.iter().map(|cell| &cell.plan), notebook)
    }

    fn measure_one(&mut self, key: &Key, notebook: &mut Notebook<'_>) -> Result<Sample, Absence> {
        let (cell, contestant) = requests::planned(&self.cells, key)?;
        let HoldCell { plan: CellPlan { instrument, rate, .. }, crowd, entity } = cell;
        let turn = HoldTurn { instrument, contestant, round: key.round, crowd, entity, windows: self.windows };
        let mut on_step = |step: &str| notebook.progress.begin(format!("{key}: {step}"));
        let figures = match crowd.kind {
            CrowdKind::Idle => turn.idle(&mut on_step),
            CrowdKind::SlowHeads | CrowdKind::SlowBodies | CrowdKind::SlowReaders => {
                turn.slow(rate.unwrap_or_default(), &mut on_step)
            }
        };
        Ok(Sample { role: contestant.role, figures: figures? })
    }
}

/// A measurement of a server with a crowd.
#[derive(Clone, Copy)]
struct HoldTurn<'a> {
    instrument: &'a Instrument,
    contestant: &'a Contestant,
    round: usize,
    crowd: &'a CrowdSpec,
    entity: &'a str,
    windows: usize,
}

impl<'a> HoldTurn<'a> {
    fn start(&self) -> Result<ContestantSession<'a>, Absence> {
        self.instrument.start(self.contestant, self.round)
    }

    fn idle(&self, on_step: &mut dyn FnMut(&str)) -> Result<NamedFigures, Absence> {
        let Self { instrument, contestant, .. } = *self;
        let mut sessions = [self.start()?, self.start()?, self.start()?];
        let pid = sessions[0].process.pid();
        let resident = || proc::resident(pid).map_err(|error| Absence::failed(error.to_string()));
        let before = resident()?;
        let crowd = self.open_crowd(&sessions[0], on_step)?;
        let (arrived, with) = (crowd.counts(), resident()?);
        on_step("without a request");
        let idle_cpu = self.idle_cpu(pid);
        on_step("next to the crowd");
        for pass in 0..instrument.slices(contestant.wait) {
            for place in order(self.round + pass, sessions.len()) {
                instrument.measure(&mut sessions[place])?;
            }
        }
        let counts = close(crowd);
        let ends = sessions.map(|session| instrument.end(session));
        let [Ok(held), Ok(free), Ok(control)] = ends else {
            let failed = ends.into_iter().find_map(Result::err);
            return Err(failed.unwrap_or_else(|| Absence::failed("a process did not end")));
        };
        let per_connection =
            |before: u64, with: u64| (arrived.held > 0).then(|| (with as f64 - before as f64) / arrived.held as f64);
        let anonymous = before.anonymous.zip(with.anonymous);
        let [held_per_s, free_per_s, control_per_s] =
            [&held, &free, &control].map(|one| one.get(figures::REQUESTS_PER_S).copied().unwrap_or_default());
        Ok(with_counts(held, &counts, &arrived)
            .into_iter()
            .chain(figures::known([
                (figures::BYTES_PER_CONNECTION, per_connection(before.now, with.now)),
                ("anonymous_bytes_per_connection", anonymous.and_then(|(before, with)| per_connection(before, with))),
                ("held_bytes", Some(with.now as f64)),
                ("idle_cpu_ms_per_s", idle_cpu),
                ("free_requests_per_s", Some(free_per_s)),
                (KEPT_SHARE, Some(held_per_s / free_per_s)),
                (CONTROL_SHARE, Some(control_per_s / free_per_s)),
            ]))
            .collect())
    }

    /// The CPU time of a process in a window without a request, in milliseconds a second; the median of the windows. `None` if
    /// the run ends.
    fn idle_cpu(&self, pid: u32) -> Option<f64> {
        let clock = ProcessCpuTime::new(pid).ok()?;
        self.sleep(SETTLE)?;
        let window = |_| {
            let (start, before) = (Instant::now(), clock.read()?);
            self.sleep(IDLE_WINDOW)?;
            let (spent, elapsed) = (clock.read()?.saturating_sub(before), start.elapsed());
            Some(spent as f64 / 1e6 / elapsed.as_secs_f64())
        };
        median_of((0..self.windows).map_while(window))
    }

    /// Waits. `None` if the run ends meanwhile.
    fn sleep(&self, time: Duration) -> Option<()> {
        let start = Instant::now();
        while start.elapsed() < time {
            if self.instrument.stop.is_begun() {
                return None;
            }
            thread::sleep(STOP_CHECK);
        }
        Some(())
    }

    /// Measures a server with a slow crowd. If the good client is not served during or after the crowd, that is a result: each
    /// request without an answer is an error, and slower than every request with one.
    fn slow(&self, rate: f64, on_step: &mut dyn FnMut(&str)) -> Result<NamedFigures, Absence> {
        let mut session = self.start()?;
        if self.crowd.kind == CrowdKind::SlowReaders {
            self.store_large(&mut session)?;
        }
        on_step("before the crowd");
        let before = self.phase(&mut session, rate)?;
        if errors(&before) > 0 {
            let first = before.first_failure.as_deref().unwrap_or("no answer in time");
            let why = format!("{} requests failed without a crowd, the first: {first}", errors(&before));
            return Err(Absence::failed(why));
        }
        let crowd = self.open_crowd(&session, on_step)?;
        let arrived = crowd.counts();
        on_step("during the crowd");
        let with = self.phase(&mut session, rate)?;
        let pid = session.process.pid();
        let resident = proc::resident(pid).ok().map(|resident| resident.now as f64);
        let descriptors = proc::descriptors(pid).ok().map(|count| count as f64);
        let counts = close(crowd);
        on_step("after the crowd");
        let after = self.phase(&mut session, rate)?;
        let ended = self.instrument.end(session)?;
        let during = |quantile| Some(quantile_us(&with.latency, refused(&with), quantile));
        let busy = with.server_busy.map(|cores| cores / self.instrument.server_cores.count() as f64);
        Ok(with_counts(ended, &counts, &arrived)
            .into_iter()
            .chain(figures::known([
                (figures::RATE_PER_S, Some(rate)),
                (figures::P50_US, during(0.5)),
                (figures::P99_US, during(0.99)),
                (figures::P999_US, during(0.999)),
                (figures::LATENESS_P99_US, with.lateness.as_ref().map(|late| microseconds(late, 0.99))),
                (figures::BEHIND, Some(self.instrument.behind_share(&with))),
                (figures::SERVER_BUSY, busy),
                ("before_p99_us", Some(microseconds(&before.latency, 0.99))),
                ("after_p99_us", Some(quantile_us(&after.latency, refused(&after), 0.99))),
                ("errors", Some(errors(&with) as f64)),
                ("errors_after", Some(errors(&after) as f64)),
                ("held_bytes", resident),
                ("descriptors", descriptors),
            ]))
            .collect())
    }

    fn store_large(&self, session: &mut ContestantSession<'_>) -> Result<(), Absence> {
        let description = "x".repeat(self.crowd.description);
        let put = Exchange::new("PUT", "/").with(|put| {
            put.headers = vec![("Content-Type".into(), "application/json".into())];
            put.body = Some(format!(r#"{{"id":{LARGE_ID},"description":"{description}","value":0.5}}"#).into());
            put.statuses = vec![200, 201];
        });
        let traffic = Traffic::expecting(vec![put])?;
        let load = session.next_load().with(|load| {
            (load.connections, load.threads) = (1, 1);
            (load.length, load.traffic) = (RunLength::Requests(1), traffic);
        });
        run(&load).map(drop)
    }

    fn open_crowd(&self, session: &ContestantSession<'_>, on_step: &mut dyn FnMut(&str)) -> Result<Crowd, Absence> {
        let CrowdSpec { kind, held, interval, stay, .. } = *self.crowd;
        on_step(&format!("opens {held} connections: {kind}"));
        let plan = CrowdPlan {
            kind,
            target: session.process.addr,
            body: self.entity.to_owned(),
            connections: held,
            ports: usize::try_from(limits::ports()).unwrap_or(usize::MAX),
            interval,
            stay,
            cores: self.instrument.client_cores.clone(),
        };
        let crowd =
            Crowd::open(plan).map_err(|error| Absence::failed(format!("the crowd cannot be opened: {error}")))?;
        let stop = &self.instrument.stop;
        if !crowd.wait_settled(OPEN_TIMEOUT, stop) && !stop.is_begun() {
            let counts = crowd.counts();
            tracing::warn!(?counts, "some connections of the crowd were not opened within {OPEN_TIMEOUT:?}");
        }
        Ok(crowd)
    }

    /// The good client at the fixed rate. A wrong answer disqualifies the server. A request without an answer is counted, and so
    /// is one that a full server refuses.
    fn phase(&self, session: &mut ContestantSession<'_>, rate: f64) -> Result<LoadReport, Absence> {
        let pid = session.process.pid();
        let load: Load = session.next_load().with(|load| {
            load.pace = Pace::Rate(rate);
            load.warm_up = RAMP;
            load.length = RunLength::Time(self.instrument.latency_slice);
            load.timeout = ANSWER_TIMEOUT;
            load.cpu = CpuSource::Process(pid);
        });
        let report = polyserve_load::run(&load, &mut |_| {}).map_err(Absence::from);
        let right = report.and_then(|report| match &report.failed {
            Failures { wrong: 0, status, .. } if status.keys().all(|status| *status == FULL) => Ok(report),
            _ => Absence::unless_right(report),
        });
        right.map_err(|absence| session.process.explain(absence))
    }
}

/// The requests without a latency: the server refused them, or ended their connection.
fn refused(report: &LoadReport) -> u64 {
    let Failures { status, connect, broken, .. } = &report.failed;
    status.values().sum::<u64>() + connect + broken
}

/// A quantile of the good client's latencies, in microseconds: infinite if it is of a refused request.
fn quantile_us(latencies: &Histogram<u64>, refused: u64, quantile: f64) -> f64 {
    let (answered, all) = (latencies.len() as f64, (latencies.len() + refused) as f64);
    let share = quantile * all / answered;
    if share <= 1.0 { microseconds(latencies, share) } else { f64::INFINITY }
}

/// All requests without a right answer.
fn errors(report: &LoadReport) -> u64 {
    report.failed.total() + report.unsent + report.unfinished
}

/// Closes a crowd. Returns its state before.
fn close(crowd: Crowd) -> CrowdCounts {
    let counts = crowd.counts();
    crowd.close();
    counts
}

/// `figures` with the state of the crowd at its end, and after all connections were opened.
fn with_counts(mut figures: NamedFigures, counts: &CrowdCounts, arrived: &CrowdCounts) -> NamedFigures {
    let CrowdCounts { held, answered, refused, timed_out, cut, unreachable, opened, .. } = *counts;
    let all = [
        (figures::HELD, held),
        ("crowd_arrived", arrived.held),
        ("crowd_opened", opened),
        ("crowd_answered", answered),
        ("crowd_refused", refused),
        ("crowd_timed_out", timed_out),
        ("crowd_cut", cut),
        ("crowd_unreachable", unreachable),
    ];
    figures.extend(all.map(|(name, count)| (name.to_owned(), count as f64)));
    figures
}

/// The shares of all servers, with a verdict for each; `None` if no server was measured next to an idle crowd. A record without
/// the control decides nothing.
pub(crate) fn kept_table(records: &Records, rows: &[BenchRow], axes: &[SweepAxis]) -> Option<Table> {
    let seed = records.header.environment.seed;
    let names = axes.iter().map(ToString::to_string);
    let header: Vec<String> =
        names.chain(["contestant", "kept, 95 %", "control, 95 %", "verdict"].map(String::from)).collect();
    let mut table = Table::of_numbers(&header).named_by(axes.len() + 1).with_texts_in(axes.len());
    table = table.with_texts_in(axes.len() + 3);
    for row in rows {
        let share = |name: &str| {
            let own = records.samples().filter(|(key, _)| key.contestant == row.contestant && key.cell == row.cell);
            Estimate::of(&own.filter_map(|(_, sample)| sample.figures.get(name).copied()).collect::<Vec<_>>(), seed)
        };
        let (Some(kept), control) = (share(KEPT_SHARE), share(CONTROL_SHARE)) else { continue };
        let place = axes.iter().map(|axis| or_empty(row.cell.get(axis).map(CellValue::to_string)));
        let verdict = match &control {
            Some(control) => Compared::of(kept, &tie_band(Some(control))).in_words("faster", "slower"),
            None => String::from("no control"),
        };
        let shares = [ratio_text(&kept), or_empty(control.as_ref().map(ratio_text))];
        table.row(place.chain([row.contestant.clone()]).chain(shares).chain([verdict]).collect());
    }
    table.if_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that refused all requests had a p99 of 0, and the first rank.
    #[test]
    fn a_refused_request_is_slower_than_all_answers() {
        let mut latencies = Histogram::<u64>::new(3).unwrap();
        assert_eq!(quantile_us(&latencies, 10, 0.5), f64::INFINITY);
        latencies.record_n(1000, 99).unwrap();
        assert_eq!((quantile_us(&latencies, 1, 0.99), quantile_us(&latencies, 0, 0.999)), (1.0, 1.0));
        assert_eq!((quantile_us(&latencies, 2, 0.99), quantile_us(&latencies, 2, 0.5)), (f64::INFINITY, 1.0));
    }
}
