//! The mode `overload`: more requests than a server can answer, from clients that retry.
//!
//! Before the first round, the capacity of each server without a policy is measured in closed loop, and its p99 at a tenth of the
//! capacity. A turn starts the server anew, with the policy of its cell. An open loop offers a part of the capacity, or a multiple. After
//! its end a light load probes how long the server takes to be as quick as before. The deadline of an answer, and the timeout of the
//! clients, are those of the definition.
//!
//! Invariant: each answer is checked, and none but 503 and a right one is allowed. Cost: the slice and up to
//! `PROBES` probes for each contestant, cell and round.

use std::iter;
use std::time::{Duration, Instant};

use polyserve_load::{CpuSource, Load, Pace, Report as LoadReport, Retry, RunLength};
use serde::{Deserialize, Serialize};

use super::requests::{self, CellPlan, RequestSettings};
use super::{ReadKeys, Turns, check_times};
use crate::Misuse;
use crate::bench::definition::{Definition, time};
use crate::bench::experiment::{Key, Sample};
use crate::bench::figures::{self, NamedFigures};
use crate::bench::sweep::{CellValue, SweepAxis, SweepCell, without};
use crate::experiment::{Absence, Notebook};
use crate::turn::{Contestant, ContestantSession, Instrument, microseconds, run};

/// The policy of a server that has none.
pub const NO_POLICY: &str = "none";
/// The `kind` of an [`UnloadedServer`]'s line.
pub(crate) const UNLOADED: &str = "unloaded";
/// A server is unloaded at this share of its capacity.
const UNLOADED_SHARE: f64 = 0.1;
/// A probe after the load offers this share of the capacity, for this time, over this number of connections.
const PROBE_SHARE: f64 = 0.2;
const PROBE: Duration = Duration::from_millis(100);
const PROBE_CONNECTIONS: usize = 16;
/// The max number of probes, and the number of normal ones in a row that end them.
const PROBES: u32 = 30;
const NORMAL_PROBES: u32 = 3;
/// A server is normal if the p99 is at most this multiple of the unloaded one.
const NORMAL_P99: f64 = 3.0;
/// The max number of times that a request is sent to verify a server with a policy.
const VERIFYING_ATTEMPTS: u32 = 5;
/// The start of a load that does not count.
const RAMP: Duration = Duration::from_millis(500);

/// A load in per cent of the capacity, and a policy.
pub(super) const READS: ReadKeys =
    ReadKeys { has_sizes: true, axes: &[SweepAxis::LoadPercent, SweepAxis::Overload], ..requests::READS };

/// More requests than a server can answer.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OverloadMode {
    /// The time of the load, besides a start of half a second.
    #[serde(deserialize_with = "time")]
    pub slice: Duration,
    /// The time in which an answer is good.
    #[serde(deserialize_with = "time")]
    pub deadline: Duration,
    /// The time for which a client waits for an answer.
    #[serde(deserialize_with = "time")]
    pub timeout: Duration,
    /// The max number of times that a client sends a request.
    pub attempts: u32,
    /// The mean pause of a client before its second attempt; it doubles with each.
    #[serde(deserialize_with = "time")]
    pub pause: Duration,
}

impl Default for OverloadMode {
    fn default() -> Self {
        let [deadline, timeout, pause] = [50, 100, 20].map(Duration::from_millis);
        Self { slice: Duration::from_secs(1), deadline, timeout, attempts: 3, pause }
    }
}

impl OverloadMode {
    /// The times of the loads.
    pub(crate) fn requests(&self) -> RequestSettings {
        RequestSettings {
            warm_up: Duration::from_millis(200),
            slice: self.slice,
            latency_slice: self.slice,
            rate: None,
            latency: false,
        }
    }

    pub(super) fn check(&self, definition: &Definition) -> Result<(), Misuse> {
        if !definition.sweep.contains_key(&SweepAxis::LoadPercent) {
            return Err(definition.misuse("kind", "an overload needs `load_percent` in the sweep"));
        }
        if !(1..=100).contains(&self.attempts) {
            return Err(definition.misuse("attempts", "it must be from 1 to 100"));
        }
        if definition.workload.close || definition.workload.pipeline > 1 {
            return Err(definition.misuse("workload", "an overload has kept connections without pipelining"));
        }
        let Self { slice, deadline, timeout, pause, .. } = *self;
        check_times(definition, [("slice", slice), ("deadline", deadline), ("timeout", timeout), ("pause", pause)])
    }

    fn retry(&self) -> Retry {
        Retry::default().with(|retry| {
            (retry.attempts, retry.pause, retry.deadline) = (self.attempts, self.pause, self.deadline);
        })
    }

    /// The clients in words.
    pub(super) fn in_words(&self) -> String {
        let Self { deadline, timeout, attempts, .. } = self;
        format!("{attempts} attempts, timeout {timeout:?}, deadline {deadline:?}; clients ignore Retry-After")
    }
}

/// A server without load and without a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct UnloadedServer {
    /// The contestant.
    pub contestant: String,
    /// The cell without the load and the policy.
    pub cell: SweepCell,
    /// Requests a second in closed loop.
    pub capacity_per_s: f64,
    /// The p99 at a tenth of the capacity, in microseconds.
    pub p99_us: f64,
}

/// The overloads at all cells.
#[derive(Debug)]
pub struct OverloadTurns {
    cells: Vec<CellPlan>,
    mode: OverloadMode,
    unloaded: Vec<UnloadedServer>,
    /// The contestants without a measured capacity, with the reason.
    failed: Vec<(String, Absence)>,
}

impl OverloadTurns {
    /// Overloads at these cells.
    pub fn new(cells: Vec<CellPlan>, mode: OverloadMode) -> Self {
        Self { cells, mode, unloaded: Vec::new(), failed: Vec::new() }
    }

    fn unloaded(&self, key: &Key) -> Result<UnloadedServer, Absence> {
        let cell = unloaded_cell(&key.cell);
        let is_of = |one: &&UnloadedServer| one.contestant == key.contestant && one.cell == cell;
        let failed = || self.failed.iter().find(|(name, _)| *name == key.contestant).map(|(_, why)| why.clone());
        let unknown = || failed().unwrap_or_else(|| Absence::failed("its capacity was not measured"));
        self.unloaded.iter().find(is_of).cloned().ok_or_else(unknown)
    }
}

/// Whether this is the form of a policy. The server checks its value.
pub(crate) fn is_policy(word: &str) -> bool {
    matches!(word.split(':').next(), Some(NO_POLICY | "static" | "codel" | "gradient"))
}

/// The part of a cell that the capacity depends on.
fn unloaded_cell(cell: &SweepCell) -> SweepCell {
    without(cell, &[SweepAxis::LoadPercent, SweepAxis::Overload])
}

fn has_policy(cell: &SweepCell) -> bool {
    cell.get(&SweepAxis::Overload).is_some_and(|policy| policy.word() != NO_POLICY)
}

impl Turns for OverloadTurns {
    fn prepare(&mut self, notebook: &mut Notebook<'_>) -> anyhow::Result<()> {
        requests::check_cells(&self.cells, notebook)?;
        self.unloaded = notebook.records.facts(UNLOADED)?;
        for CellPlan { cell, contestants, instrument, .. } in self.cells.iter().filter(|plan| !has_policy(&plan.cell)) {
            for contestant in contestants {
                let (name, cell) = (contestant.name.clone(), unloaded_cell(cell));
                let is_known = self.unloaded.iter().any(|one| one.contestant == name && one.cell == cell)
                    || self.failed.iter().any(|(failed, _)| *failed == name);
                if is_known || notebook.is_stopped() {
                    continue;
                }
                notebook.progress.begin(format!("capacity: {name}"));
                match measure_unloaded(instrument, contestant) {
                    Ok((capacity_per_s, p99_us)) => {
                        let one = UnloadedServer { contestant: name, cell, capacity_per_s, p99_us };
                        notebook.fact(UNLOADED, &one)?;
                        self.unloaded.push(one);
                    }
                    Err(absence) => self.failed.push((name, absence)),
                }
            }
        }
        Ok(())
    }

    fn measure_one(&mut self, key: &Key, _: &mut Notebook<'_>) -> Result<Sample, Absence> {
        let (CellPlan { instrument, .. }, contestant) = requests::planned(&self.cells, key)?;
        let unloaded = self.unloaded(key)?;
        let percent = key.cell.get(&SweepAxis::LoadPercent).and_then(CellValue::number).unwrap_or(100);
        let offered = unloaded.capacity_per_s * percent as f64 / 100.0;
        let retry = has_policy(&key.cell).then(verifying);
        let mut session = start(instrument, contestant, key.round, retry)?;
        let overload = session.next_load().with(|load| {
            load.connections = instrument.connections;
            load.threads = instrument.client_cores.count().min(load.connections);
            (load.pace, load.retry) = (Pace::Rate(offered), Some(self.mode.retry()));
            (load.timeout, load.warm_up, load.length) = (self.mode.timeout, RAMP, RunLength::Time(self.mode.slice));
            load.cpu = CpuSource::Process(session.process.pid());
        });
        let report = session.run(&overload)?;
        let recovery_ms = recovery_ms(&mut session, &unloaded)?;
        instrument.end(session)?;
        Ok(Sample { role: contestant.role, figures: figures_of(&report, &unloaded, recovery_ms) })
    }
}

/// The clients that verify a server with a policy. A policy may refuse even the only request: after a pause of the machine it has
/// waited for long.
fn verifying() -> Retry {
    Retry::default().with(|retry| retry.attempts = VERIFYING_ATTEMPTS)
}

/// Starts a contestant. Its entities are put, and it is verified, over one connection.
fn start<'a>(
    instrument: &Instrument,
    contestant: &'a Contestant,
    round: usize,
    retry: Option<Retry>,
) -> Result<ContestantSession<'a>, Absence> {
    Instrument { connections: 1, ..instrument.clone() }.start_with(contestant, round, retry)
}

/// The capacity of a contestant, and its p99 at a tenth of that rate, in microseconds.
fn measure_unloaded(instrument: &Instrument, contestant: &Contestant) -> Result<(f64, f64), Absence> {
    let mut session = start(instrument, contestant, 0, None)?;
    // A closed loop of few connections: each is answered in time.
    let closed = session.next_load().with(|load| {
        (load.connections, load.threads) = (PROBE_CONNECTIONS, 1);
        (load.warm_up, load.length) = (RAMP, RunLength::Time(instrument.slice * 2));
    });
    let capacity = session.run(&closed)?.per_second();
    let light = session.next_load().with(|load| {
        (load.connections, load.threads) = (PROBE_CONNECTIONS, 1);
        load.pace = Pace::Rate((capacity * UNLOADED_SHARE).max(1.0));
        (load.warm_up, load.length) = (RAMP, RunLength::Time(instrument.slice * 4));
    });
    let p99_us = microseconds(&session.run(&light)?.latency, 0.99);
    instrument.end(session)?;
    Ok((capacity, p99_us))
}

/// The time from the end of the load until the server answers as without load, in milliseconds; `None` if it does not within the probes.
fn recovery_ms(session: &mut ContestantSession<'_>, unloaded: &UnloadedServer) -> Result<Option<f64>, Absence> {
    let (ended, mut normal, mut since) = (Instant::now(), 0, Duration::ZERO);
    for _ in 0..PROBES {
        let began = ended.elapsed();
        let probe = session.next_load().with(|load: &mut Load| {
            (load.connections, load.threads) = (PROBE_CONNECTIONS, 1);
            load.pace = Pace::Rate((unloaded.capacity_per_s * PROBE_SHARE).max(1.0));
            // A refusal is no failure of the run, but the server is not normal.
            load.retry = Some(Retry::default().with(|retry| retry.attempts = 1));
            (load.warm_up, load.length) = (Duration::ZERO, RunLength::Time(PROBE));
        });
        let report = run(&probe)?;
        let is_quick = microseconds(&report.latency, 0.99) <= unloaded.p99_us * NORMAL_P99;
        let is_refused = report.retry.is_some_and(|retry| retry.rejected + retry.timeouts > 0);
        match is_quick && !is_refused {
            true if normal == 0 => (normal, since) = (1, began),
            true => normal += 1,
            false => normal = 0,
        }
        if normal == NORMAL_PROBES {
            return Ok(Some(since.as_secs_f64() * 1e3));
        }
    }
    Ok(None)
}

/// The names of the figures, in the order of [`figures_of`].
const FIGURES: [&str; 16] = [
    figures::GOODPUT_SHARE,
    "goodput_per_s",
    "closed_capacity_per_s",
    "offered_per_s",
    "admitted_p99_us",
    "admitted_p99_to_unloaded",
    "unloaded_p99_us",
    "recovery_ms",
    "retries_per_s",
    "rejected_per_s",
    "timeouts_per_s",
    "late_per_s",
    "given_up_share",
    figures::SERVER_BUSY,
    figures::CLIENT_BUSY,
    figures::LATENESS_P99_US,
];

fn figures_of(report: &LoadReport, unloaded: &UnloadedServer, recovery_ms: Option<f64>) -> NamedFigures {
    let Some(retry) = &report.retry else { return NamedFigures::new() };
    let per_s = |count: u64| Some(count as f64 / report.elapsed.as_secs_f64());
    let goodput = per_s(retry.good);
    // Without an answer no quantile is known.
    let p99_us = (!retry.admitted.is_empty()).then(|| microseconds(&retry.admitted, 0.99));
    let all = [
        goodput.map(|goodput| goodput / unloaded.capacity_per_s),
        goodput,
        Some(unloaded.capacity_per_s),
        per_s(retry.offered),
        p99_us,
        p99_us.map(|p99_us| p99_us / unloaded.p99_us),
        Some(unloaded.p99_us),
        recovery_ms,
        per_s(retry.retries),
        per_s(retry.rejected),
        per_s(retry.timeouts),
        per_s(retry.late),
        Some(retry.given_up as f64 / retry.offered as f64),
        report.server_busy,
        Some(report.client_busy),
        report.lateness.as_ref().map(|late| microseconds(late, 0.99)),
    ];
    figures::known(iter::zip(FIGURES, all)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figures::NamedFigure;

    #[test]
    fn each_figure_is_registered() {
        assert!(FIGURES.iter().all(|name| NamedFigure::named(name).is_some()));
    }

    #[test]
    fn the_capacity_does_not_depend_on_the_load_and_the_policy() {
        let cell = |policy: &str| -> SweepCell {
            [(SweepAxis::LoadPercent, 200.into()), (SweepAxis::Overload, policy.into()), (SweepAxis::Workers, 4.into())]
                .into()
        };
        assert_eq!(unloaded_cell(&cell("gradient")), [(SweepAxis::Workers, 4.into())].into());
        assert!(has_policy(&cell("gradient")) && !has_policy(&cell(NO_POLICY)));
    }
}
