//! The experiment: all stores in turn at each point, round by round.
//!
//! A batch is one store run: a process that measures all workloads of a store at a point. A run that failed or ran out of
//! time excludes the store at this point from all rounds.
//!
//! Invariant: the cells of a store run are measured in one process. Cost: the store runs.

use crate::report::Summary;
use serde_json::Value;

use super::cell::{StoreReply, StoreRun};
use super::process::Processes;
use super::record::{Key, Sample, StoreFigures, StoreSettings};
use super::report::Report;
use super::workload::{StoreLoad, StoreWorkload};
use super::{NAME, chart, table};
use crate::experiment::{Absence, Absent, Batch, Experiment, Notebook, Plan, Reason, Records, distinct, interleaved};
use crate::launch::Launch;
use crate::scale::Axis;

/// A store at a point of an axis, and the process that measures it.
#[derive(Clone, Debug)]
pub struct StoreJob {
    /// The axis.
    pub axis: Axis,
    /// The point of the axis.
    pub x: u64,
    /// The store's name, or the name of its second entry.
    pub name: String,
    /// The point on all axes.
    pub place: StoreSettings,
    /// The request to the process, without the round.
    pub run: StoreRun,
}

impl StoreJob {
    fn batch(&self, round: usize) -> Batch<Key> {
        let key = |load: &StoreLoad| {
            let (name, load) = (self.name.clone(), Some(load.clone()));
            Key { axis: self.axis, x: self.x, name, round, load }
        };
        Batch::together(self.run.loads.iter().map(key))
    }
}

/// Executes a store run.
pub trait StoreInstrument {
    /// Measures all workloads of a job in round `round`, from 1. Each round has its own random ids.
    ///
    /// # Errors
    ///
    /// Returns why there are no figures.
    fn measure(&mut self, job: &StoreJob, round: usize) -> Result<StoreReply, Absence>;
}

/// Executes each store run in a process of its own.
#[derive(Debug)]
pub struct StoreProcesses {
    /// Runs processes.
    pub processes: Processes,
    /// Returns the process that executes a store run.
    pub launch: fn(&StoreRun) -> serde_json::Result<Launch>,
}

impl StoreInstrument for StoreProcesses {
    fn measure(&mut self, job: &StoreJob, round: usize) -> Result<StoreReply, Absence> {
        let launch = (self.launch)(&StoreRun { round, ..job.run.clone() });
        self.processes.value(&launch.map_err(|error| Absence::failed(error.to_string()))?)
    }
}

/// Throughput, latency and memory of stores along the axes.
#[derive(Debug)]
pub struct Stores<I> {
    /// All stores at all points.
    pub jobs: Vec<StoreJob>,
    /// The stores that are left out at a point.
    pub absent: Vec<Absent<Key>>,
    /// The number of rounds.
    pub rounds: usize,
    /// The description of the run, for the record's header.
    pub description: Value,
    /// Executes the store runs.
    pub instrument: I,
}

impl<I> Stores<I> {
    /// The points of all axes, in the order of the jobs.
    fn places(&self) -> Vec<(Axis, u64)> {
        distinct(self.jobs.iter().map(|job| (job.axis, job.x)))
    }
}

impl<I: StoreInstrument> Experiment for Stores<I> {
    const NAME: &'static str = NAME;
    type Key = Key;
    type Sample = Sample;
    type Report = Report;

    fn describe(&self) -> Value {
        self.description.clone()
    }

    fn plan(&self) -> Plan<Key> {
        let mut batches = Vec::new();
        for round in 1..=self.rounds {
            for place in self.places() {
                let jobs: Vec<&StoreJob> = self.jobs.iter().filter(|job| (job.axis, job.x) == place).collect();
                batches.extend(interleaved(round - 1, &jobs).into_iter().map(|job| job.batch(round)));
            }
        }
        Plan { absent: self.absent.clone(), ..Plan::new(batches) }
    }

    /// Executes one store run. An absence is recorded for the whole run: memory may have been measured before the time limit.
    fn measure_together(&mut self, keys: &[Key], notebook: &mut Notebook<'_, Self>) -> Vec<Result<Sample, Absence>> {
        let fail_all = |absence: Absence| keys.iter().map(|_| Err(absence.clone())).collect();
        let is_of_job = |(key, job): (&Key, &StoreJob)| key.point() == (job.axis, job.x, &*job.name);
        let planned = keys.first().and_then(|key| Some((key, self.jobs.iter().find(|job| is_of_job((key, job)))?)));
        let Some((key, job)) = planned else { return fail_all(Absence::failed("the cell is not planned")) };
        notebook.progress.begin(key.without_load().to_string());
        let (reply, absence) = match self.instrument.measure(job, key.round) {
            Ok(reply) => {
                let late = reply.unfinished.as_ref().map(|step| step.why(&job.name, job.place.keys));
                (reply, late.map(Absence::timed_out))
            }
            Err(absence) => (StoreReply::default(), Some(absence)),
        };
        if let Some(absence) = absence.clone().filter(|_| !notebook.is_stopped())
            && let Err(error) = notebook.absence(key.without_load(), absence)
        {
            return fail_all(Absence::failed(error.to_string()));
        }
        let sample = |key: &Key| {
            let figures = reply.figures(key.load.as_ref()?)?;
            Some(Sample { place: job.place, figures })
        };
        let no_figures = absence.unwrap_or_else(|| Absence::failed("its process did not measure it"));
        keys.iter().map(|key| sample(key).ok_or_else(|| no_figures.clone())).collect()
    }

    /// A store that failed or ran out of time at a point has no figures there. A store that is left out for one workload has
    /// the figures of the others.
    fn excludes(absence: &Absence, of: &Key, key: &Key) -> bool {
        of == key || (absence.reason != Reason::NotAvailable && of.point() == key.point())
    }

    fn report(records: &Records<Self>) -> anyhow::Result<Report> {
        Ok(Report::of(records))
    }

    fn summarize(records: &Records<Self>, report: &Report) -> anyhow::Result<Summary> {
        let csv = vec![(String::new(), table::samples_csv(records)?)];
        let (tables, charts) = (table::tables(report), chart::charts(&report.points));
        Ok(Summary { tables, charts, csv, ..Summary::default() })
    }
}

impl StoreReply {
    /// The figures of a workload; `None` if the process ended before it.
    fn figures(&self, load: &StoreLoad) -> Option<StoreFigures> {
        if load.workload == StoreWorkload::Memory {
            return self.memory.map(StoreFigures::Memory);
        }
        self.throughput.iter().find(|(own, _)| own == load).map(|(_, throughput)| StoreFigures::Operations(*throughput))
    }
}
