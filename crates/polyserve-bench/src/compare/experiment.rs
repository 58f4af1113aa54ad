//! The experiment: all contestants in every round.
//!
//! The first round determines the rate of the latencies. If a contestant is slowed, the baseline is measured a few times before.
//! These calibrations are cells of round 0. They determine how much CPU time the slowed contestant wastes.
//!
//! Invariants: the samples of one round were measured together; a contestant that failed is excluded from all rounds, and a
//! later run measures all its rounds again unless the contestant did wrong. Cost: the measurements of the cells.

use crate::report::Summary;
use anyhow::{anyhow, bail};
use polyserve_load::Usage;
use serde_json::{Value, json};

use super::lines::{BOUND, BoundFact, Key, OTHERS, OtherProcesses, RATE, Sample};
use super::ranking::{self, GOAL, Ranking, STOPS_WHEN_SURE};
use super::{Comparison, calibration, table};
use crate::contestants;
use crate::experiment::{Absence, Absent, Batch, Experiment, Notebook, Plan, Records};
use crate::machine::Cores;
use crate::machine::proc::Spent;
use crate::turn::{Contestant, Rate, Role, check_contracts, half_of_slowest, measure_round};

/// The name of the experiment, its command and its record.
pub const NAME: &str = "compare";
/// The state of a run.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The contestants that can be started.
    pub(super) contestants: Vec<Contestant>,
    /// The contestants without a program, because the build failed.
    absent: Vec<Absent<Key>>,
    /// The rate of the latencies, once it is known.
    pub(super) rate: Option<f64>,
    /// The rate that this run has determined, until it is recorded.
    found_rate: Option<Rate>,
    /// The cores of the calling thread before the run.
    cores: Option<Cores>,
    /// The times of all cores at the start of the run.
    spent: Option<Spent>,
    /// Whether this run measured a cell.
    pub(super) has_measured: bool,
}

impl Comparison {
    /// Builds our own servers as a variant, if one is selected, and the peers. A peer that cannot be built is absent.
    fn build(&mut self) -> anyhow::Result<()> {
        let Some(peers) = &self.peers else { return Ok(()) };
        let build = |programs| contestants::build(programs, &peers.variant, &self.instrument.stop);
        for own in build(peers.own.as_slice()) {
            let file = own.file.map_err(|why| anyhow!("our servers as {}: {why}", peers.variant))?;
            let ours = self.state.contestants.iter_mut().filter(|one| one.peer.is_none());
            ours.for_each(|one| one.launch.program.clone_from(&file));
        }
        for program in build(&peers.asked) {
            let name = program.program.name();
            let is_peer = |one: &Contestant| one.peer.as_ref() == Some(&program.program);
            match program.launch(peers.workers) {
                Ok(launch) => {
                    let own = self.state.contestants.iter_mut().filter(|one| is_peer(one));
                    own.for_each(|one| one.launch = launch.clone());
                }
                Err(why) if self.state.contestants.iter().any(|one| is_peer(one) && one.role == Role::Baseline) => {
                    bail!("the baseline {name}: {why}");
                }
                Err(why) => {
                    let count = self.state.contestants.len();
                    self.state.contestants.retain(|one| !is_peer(one));
                    if self.state.contestants.len() < count {
                        let excused = peers.excuses(&program.program, program.is_absent);
                        let absence = Absence::not_available(why);
                        self.state.absent.push(Absent { key: Key::new(0, name), absence, excused });
                    }
                }
            }
        }
        Ok(())
    }

    /// Records the bounds of shapes, and checks foreign contestants against the contract.
    fn record_facts(&self, notebook: &mut Notebook<'_, Self>) -> anyhow::Result<()> {
        let bounds: Vec<BoundFact> = notebook.records().facts(BOUND)?;
        for Contestant { name, bound, .. } in &self.contestants {
            if let Some(bound) = bound.clone()
                && !bounds.iter().any(|known| known.name == *name)
            {
                notebook.fact(BOUND, &BoundFact { name: name.clone(), bound })?;
            }
        }
        let server_cores = &self.instrument.server_cores;
        check_contracts(self.state.contestants.iter().map(|one| (one, server_cores)), notebook)
    }

    /// Measures these contestants in a round.
    pub(super) fn measure_round(
        &mut self,
        number: usize,
        contestants: &[&Contestant],
        notebook: &mut Notebook<'_, Self>,
    ) -> Vec<Result<Sample, Absence>> {
        self.state.has_measured = true;
        let begin = |contestant: &Contestant| notebook.progress.begin(Key::new(number, &contestant.name).to_string());
        let mut found: Option<Rate> = None;
        let rate = |throughputs: &[Option<f64>]| match self.state.rate {
            _ if number == 0 || !self.latency => None,
            Some(rate) => Some(rate),
            None => {
                found = half_of_slowest(contestants, throughputs, self.instrument.arrivals);
                Some(found.as_ref()?.requests_per_s)
            }
        };
        let results = measure_round(&self.instrument, contestants, number, rate, begin);
        if let Some(rate) = found.filter(|_| !notebook.is_stopped()) {
            self.state.rate = Some(rate.requests_per_s);
            self.state.found_rate = Some(rate);
        }
        let sample = |(contestant, result): (&&Contestant, Result<_, _>)| {
            result.map(|measurement| Sample { role: contestant.role, measurement })
        };
        contestants.iter().zip(results).map(sample).collect()
    }
}

impl Experiment for Comparison {
    const NAME: &'static str = NAME;
    const SAMPLE: &'static str = "turn";
    const UNITS: &'static str = "measurements";
    type Key = Key;
    type Sample = Sample;
    type Report = Ranking;

    fn describe(&self) -> Value {
        let crate::turn::Instrument { connections, usage, arrivals, asked, warm_up, slice, latency_slice, .. } =
            &self.instrument;
        let contestants = self.contestants.iter().map(|one| json!({"name": one.name, "role": one.role}));
        let mut description = json!({
            "contestants": contestants.collect::<Vec<_>>(),
            "refused": self.absent.iter().map(|absent| &absent.key.name).collect::<Vec<_>>(),
            "asked": asked,
            "connections": connections,
            "pipeline": if let Usage::KeepAlive { pipeline } = usage { Some(pipeline) } else { None },
            "arrivals": arrivals,
            "rounds": self.rounds,
            "warm_up_s": warm_up.as_secs_f64(),
            "slice_s": slice.as_secs_f64(),
            "latency_slice_s": self.latency.then_some(latency_slice.as_secs_f64()),
        });
        if self.stops_when_sure {
            description[STOPS_WHEN_SURE] = json!(true);
        }
        for (name, value) in [("rate", self.rate), (GOAL, self.goal_us)] {
            if let Some(value) = value {
                description[name] = json!(value);
            }
        }
        for (name, value) in &self.details {
            description[*name] = value.clone();
        }
        description
    }

    /// Builds, checks and calibrates. The calling thread is pinned to the client's cores until the end of the run.
    fn prepare(&mut self, notebook: &mut Notebook<'_, Self>) -> anyhow::Result<()> {
        self.state = State { contestants: self.contestants.clone(), ..State::default() };
        self.build()?;
        self.notes.iter().for_each(|note| notebook.progress.print_line(note));
        let crate::turn::Instrument { server_cores, client_cores, .. } = &self.instrument;
        if server_cores.share_one_with(client_cores) {
            notebook.progress.print_line("client and server share a core, and compete for its time");
        }
        self.state.cores = Some(Cores::available()?);
        client_cores.pin()?;
        self.state.spent = Spent::on(&self.instrument.cores());
        self.record_facts(notebook)?;
        calibration::calibrate(self, notebook)
    }

    fn plan(&self) -> Plan<Key> {
        let keys = |round| self.state.contestants.iter().map(move |one| Key::new(round, &one.name));
        let rounds = (1..=self.rounds).map(|round| Batch::together(keys(round)));
        let absent = self.absent.iter().chain(&self.state.absent).cloned().collect();
        Plan { absent, ..Plan::new(rounds.collect()) }
    }

    fn is_decided(&self, records: &Records<Self>) -> bool {
        self.stops_when_sure && ranking::entries(records).is_ok_and(|entries| ranking::is_sure(&entries))
    }

    fn measure_together(&mut self, keys: &[Key], notebook: &mut Notebook<'_, Self>) -> Vec<Result<Sample, Absence>> {
        let number = keys.first().map_or(0, |key| key.round);
        let is_asked = |one: &&Contestant| keys.iter().any(|key| key.name == one.name);
        let contestants: Vec<Contestant> = self.state.contestants.iter().filter(is_asked).cloned().collect();
        let mut results = self.measure_round(number, &contestants.iter().collect::<Vec<_>>(), notebook);
        if let Some(rate) = self.state.found_rate.take()
            && let Err(error) = notebook.fact(RATE, &rate)
        {
            let failed = Absence::failed(format!("the rate of the latencies cannot be recorded: {error:#}"));
            results.iter_mut().for_each(|result| *result = Err(failed.clone()));
        }
        results
    }

    fn finish(&mut self, notebook: &mut Notebook<'_, Self>) -> anyhow::Result<()> {
        if let Some(cores) = self.state.cores.take() {
            cores.pin()?;
        }
        let spent = self.state.spent.take().zip(Spent::on(&self.instrument.cores()));
        if let Some((before, after)) = spent.filter(|_| self.state.has_measured) {
            notebook.fact(OTHERS, &OtherProcesses { share: after.others_since(&before) })?;
        }
        Ok(())
    }

    /// A contestant that failed has no place in the ranking, so it is measured in no round.
    fn excludes(_: &Absence, of: &Key, key: &Key) -> bool {
        of.name == key.name
    }

    fn is_essential(&self, key: &Key) -> bool {
        self.contestants.iter().any(|one| one.role == Role::Baseline && one.name == key.name)
    }

    fn report(records: &Records<Self>) -> anyhow::Result<Ranking> {
        Ranking::of(records)
    }

    fn text(&self, ranking: &Ranking) -> String {
        ranking.text(self.wide, crate::output::is_coloured())
    }

    fn summarize(_: &Records<Self>, ranking: &Ranking) -> anyhow::Result<Summary> {
        let answer = vec![ranking.answer()];
        Ok(Summary { answer, tables: table::tables(ranking), charts: ranking.charts(), ..Summary::default() })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::journal::read;

    const RECORDED: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../polyserve-cli/tests/fixtures/records/compare.jsonl");

    #[test]
    fn a_contestant_that_failed_has_no_row() {
        let mut lines = read(Path::new(RECORDED)).unwrap();
        lines.retain(|line| line["round"] != 2);
        let (ours, limit) = ("tokio_tcp/std_rwlock", "null_epoll");
        let why = "status 500";
        lines.push(
            json!({"kind": "failure", "round": 2, "name": ours, "role": "ranked", "reason": "failed", "why": why}),
        );
        let ranking = Comparison::report(&Records::<Comparison>::of(&lines).unwrap()).unwrap();
        let failed: Vec<_> = ranking.failed.iter().map(|one| (one.key.round, one.key.name.as_str())).collect();
        assert_eq!(failed, [(2, ours), (0, "peer/bare_pool")]);
        let names: Vec<_> = ranking.rows.iter().map(|row| row.name.as_str()).collect();
        assert!(!names.contains(&ours) && names.contains(&limit), "{names:?}");
    }

    #[test]
    fn a_calibration_has_a_number_and_a_round_has_none() {
        assert_eq!(json!(Key::new(3, "a")), json!({"round": 3, "name": "a"}));
        assert_eq!(json!(Key::calibration(2, "a")), json!({"round": 0, "name": "a", "attempt": 2}));
        assert_eq!(Key::calibration(2, "a").to_string(), "calibration 2: a");
        assert_eq!(Key::new(3, "a").to_string(), "round 3: a");
    }
}
