//! The experiment: every rung of every ladder, the controls and the references, in turn, round by round.
//!
//! Invariant: a contestant always runs the program that was recorded first. Cost: the rounds and the builds.

use std::path::PathBuf;

use crate::Misuse;
use crate::compare::{Contestant, Instrument, Measurement, round};
use crate::experiment::{Absence, Absent, Batch, Experiment, Notebook, Plan, Records};
use crate::report::Summary;
use polyserve_load::Usage;
use serde_json::Value;

use super::entry::{self, LadderSubject, Participant, RungBuild};
use super::record::{ENTRY, Key, RungEntry, Sample};
use super::report::{RUNG, Report};
use super::rung::RungStep;
use super::variant::LadderSources;
use super::{NAME, chart, probe, table};

/// A megabyte, as wrk counts it.
const MEGABYTE: f64 = 1_048_576.0;

/// The experiment.
#[derive(Debug)]
pub struct Ladder {
    /// The subjects.
    pub subjects: Vec<LadderSubject>,
    /// The steps of each subject, as far as they apply to it.
    pub steps: Vec<RungStep>,
    /// The numbers of pipelined requests of a connection.
    pub pipelines: Vec<usize>,
    /// The names of the references.
    pub references: Vec<String>,
    /// The references that the command line names: the run fails if one of them is not available.
    pub named: Vec<String>,
    /// The sources of rungs and references; `None` for this build's own.
    pub source: Option<PathBuf>,
    /// The number of workers of the references; `None` for their default.
    pub workers: Option<usize>,
    /// The number of rounds.
    pub rounds: usize,
    /// The description of the run, for the record's header.
    pub description: Value,
    /// Measures the rounds.
    pub instrument: Instrument,
    participants: Vec<Participant>,
    absent: Vec<Absent<Key>>,
}

impl Ladder {
    /// The experiment without references. It has no cells before [`prepare`](Experiment::prepare).
    pub fn new(
        subjects: Vec<LadderSubject>,
        steps: Vec<RungStep>,
        pipelines: Vec<usize>,
        rounds: usize,
        description: Value,
        instrument: Instrument,
    ) -> Self {
        let (references, named, participants, absent) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (source, workers) = (None, None);
        Self {
            subjects,
            steps,
            pipelines,
            references,
            named,
            source,
            workers,
            rounds,
            description,
            instrument,
            participants,
            absent,
        }
    }

    /// Builds the rungs and the references.
    fn build(&mut self) {
        let (root, stop) = (self.source.as_deref(), &self.instrument.stop);
        let rungs = entry::rungs(&self.subjects, &self.steps, &LadderSources::new(root), stop);
        let references = entry::references(&self.references, root, self.workers, stop);
        for RungBuild { name, result } in rungs.into_iter().chain(references) {
            match result {
                Ok(participants) => self.participants.extend(participants),
                Err(why) => {
                    let excused = entry::server(&name).is_some() && !self.named.contains(&name);
                    let (key, absence) = (Key::before_rounds(name), Absence::not_available(why));
                    self.absent.push(Absent { key, absence, excused });
                }
            }
        }
    }

    /// Probes a contestant that is not recorded yet, and records it.
    fn enter(&self, place: usize, notebook: &mut Notebook<'_, Self>) -> anyhow::Result<u64> {
        let Participant { entry, contestant } = &self.participants[place];
        let known: Vec<RungEntry> = notebook.records().facts(ENTRY)?;
        if let Some(known) = known.iter().rfind(|known| known.name == entry.name) {
            if known.program_hash != entry.program_hash {
                let why = "has been built again since it was measured: record into another directory";
                return Err(Misuse(format!("{} {why}", entry.name)).into());
            }
            return Ok(known.answer_bytes);
        }
        let key = Key::before_rounds(entry.name.clone());
        if notebook.is_stopped() || notebook.records().absence(&key).is_some() {
            return Ok(0);
        }
        notebook.progress.begin(key.to_string());
        let probed = probe::probe(&contestant.launch, &self.instrument.server_cores);
        if notebook.is_stopped() {
            return Ok(0);
        }
        match probed {
            Ok(answer_bytes) => {
                notebook.fact(ENTRY, &RungEntry { answer_bytes, ..entry.clone() })?;
                Ok(answer_bytes)
            }
            Err(absence) => notebook.absence(key, absence).map(|()| 0),
        }
    }
}

impl Experiment for Ladder {
    const NAME: &'static str = NAME;
    const UNITS: &'static str = "turns";
    type Key = Key;
    type Sample = Sample;
    type Report = Report;

    fn describe(&self) -> Value {
        self.description.clone()
    }

    /// Builds all contestants, pins the calling thread to the client's cores, then probes and records each contestant.
    fn prepare(&mut self, notebook: &mut Notebook<'_, Self>) -> anyhow::Result<()> {
        self.build();
        let Instrument { server_cores, client_cores, .. } = &self.instrument;
        if server_cores.share_one_with(client_cores) {
            notebook.progress.print_line("client and server share a core: each takes time from the other");
        }
        client_cores.pin()?;
        for place in 0..self.participants.len() {
            self.participants[place].entry.answer_bytes = self.enter(place, notebook)?;
        }
        Ok(())
    }

    fn plan(&self) -> Plan<Key> {
        let turns = |round: usize, pipeline: usize| {
            let key = move |participant: &Participant| {
                let name = participant.entry.name.clone();
                Key { name, round, pipeline }
            };
            Batch::together(self.participants.iter().map(key))
        };
        let rounds = (1..=self.rounds).flat_map(|round| self.pipelines.iter().map(move |pipeline| (round, *pipeline)));
        let batches = rounds.map(|(round, pipeline)| turns(round, pipeline));
        Plan { absent: self.absent.clone(), ..Plan::new(batches.collect()) }
    }

    fn measure_together(&mut self, keys: &[Key], notebook: &mut Notebook<'_, Self>) -> Vec<Result<Sample, Absence>> {
        let Some(Key { round, pipeline, .. }) = keys.first() else { return Vec::new() };
        let instrument = Instrument { usage: Usage::KeepAlive { pipeline: *pipeline }, ..self.instrument.clone() };
        let of = |key: &Key| self.participants.iter().find(|participant| participant.entry.name == key.name);
        let participants: Vec<&Participant> = keys.iter().filter_map(of).collect();
        let contestants: Vec<&Contestant> = participants.iter().map(|participant| &participant.contestant).collect();
        let begin = |contestant: &Contestant| {
            notebook
                .progress
                .begin(Key { name: contestant.name.clone(), round: *round, pipeline: *pipeline }.to_string());
        };
        let results = round::measure(&instrument, &contestants, *round, |_| None, begin);
        let sample = |(participant, result): (&&Participant, Result<Measurement, Absence>)| {
            result.map(|measurement| sample(&measurement, participant.entry.answer_bytes))
        };
        participants.iter().zip(results).map(sample).collect()
    }

    /// Records the rows of the report.
    fn finish(&mut self, notebook: &mut Notebook<'_, Self>) -> anyhow::Result<()> {
        let rows = Report::of(notebook.records())?.rungs;
        rows.iter().try_for_each(|row| notebook.fact(RUNG, row))
    }

    /// A contestant that fails in a round is not measured in later rounds of the run.
    fn excludes(_: &Absence, of: &Key, key: &Key) -> bool {
        of.name == key.name
    }

    fn report(records: &Records<Self>) -> anyhow::Result<Report> {
        Report::of(records)
    }

    fn summarize(_: &Records<Self>, report: &Report) -> anyhow::Result<Summary> {
        let csv = vec![(String::new(), table::csv(&report.rungs)?)];
        let mut tables = table::tables(&report.rungs, &report.results)?;
        tables.extend(report.flush.clone().map(|flush| (String::from("flush"), table::flush(&flush))));
        let charts = chart::charts(&report.rungs, &report.results)?;
        Ok(Summary { tables, charts, claims: report.claims.clone(), csv, ..Summary::default() })
    }
}

fn sample(measurement: &Measurement, answer_bytes: u64) -> Sample {
    Sample {
        requests_per_s: measurement.requests_per_s,
        transfer_mb_s: measurement.requests_per_s * answer_bytes as f64 / MEGABYTE,
        under_way: measurement.under_way,
        requests_per_cpu_s: measurement.requests_per_cpu_s,
        answered: measurement.answered,
        elapsed_s: measurement.elapsed_s,
        server_cpu_s: measurement.server_cpu_s,
        client_cpu_s: measurement.client_cpu_s,
        server_busy: measurement.server_busy,
        client_busy: Some(measurement.client_busy),
        server_idle_s: measurement.server_idle_s,
        client_idle_s: measurement.client_idle_s,
        switches_per_request: measurement.switches_per_request,
        loaded_kb: measurement.loaded_bytes.map(|bytes| bytes as f64 / 1024.0),
    }
}
