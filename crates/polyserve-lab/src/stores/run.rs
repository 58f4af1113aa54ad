//! All points of all axes, round by round: at each place all stores in turn.
//!
//! Invariant: a point that failed or ran out of time is not measured again in the same run; one that is recorded, or where a
//! store did wrong, is not measured again at all. Cost: that of the points.

use std::collections::{HashMap, HashSet};

use polyserve::Shutdown;

use super::cell::Told;
use super::process::Processes;
use super::record::{CELL, Cell, FAILURE, Failed, Kept, Key, Lines, MEMORY, NOT_RUN, NotRun, Place, Short, UNFINISHED};
use crate::experiment::Absence;
use crate::experiment::order;
use crate::journal::Journal;
use crate::launch::Launch;
use crate::progress::Progress;
use crate::scale::Axis;

/// A point that is to be measured.
#[derive(Clone, Debug)]
pub struct Job {
    /// The axis.
    pub axis: Axis,
    /// Where on it.
    pub x: u64,
    /// The store's name, or that of its second entry.
    pub name: String,
    /// Where on all axes.
    pub place: Place,
    /// Figures that it gives: one for each workload.
    pub figures: usize,
    /// Its process.
    pub launch: Launch,
}

/// What measures a point.
pub trait Instrument {
    /// Measures one.
    ///
    /// # Errors
    ///
    /// Why there are no figures. It means nothing once the run is to end.
    fn measure(&mut self, job: &Job) -> Result<Told, Absence>;
}

impl Instrument for Processes {
    fn measure(&mut self, job: &Job) -> Result<Told, Absence> {
        self.told(&job.launch)
    }
}

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Every point.
    pub jobs: Vec<Job>,
    /// Who is left out.
    pub not_run: Vec<NotRun>,
    /// How often.
    pub rounds: usize,
    /// Begun where the run is to end now.
    pub stop: Shutdown,
}

type At = (Axis, u64);

impl Experiment {
    /// Points of all rounds.
    pub fn steps(&self) -> usize {
        self.jobs.len() * self.rounds
    }

    /// Measures what `journal` has not yet; answers all that there is then.
    ///
    /// # Errors
    ///
    /// Where the journal cannot be read or written. Points that fail are in the lines.
    pub fn run(
        &self,
        instrument: &mut dyn Instrument,
        journal: &mut Journal,
        progress: &mut Progress,
    ) -> anyhow::Result<Lines> {
        let mut lines = Lines::of(journal.lines_before())?;
        for not_run in &self.not_run {
            if !lines.not_run.contains(not_run) {
                journal.line(NOT_RUN, not_run)?;
                lines.not_run.push(not_run.clone());
            }
        }
        // A run that was killed may have written some of a point's lines.
        let mut there: HashMap<Key, usize> = HashMap::new();
        let keys = lines.cells.iter().map(|cell| &cell.key).chain(lines.kept.iter().map(|kept| &kept.key));
        keys.for_each(|key| *there.entry(key.clone()).or_default() += 1);
        let wrong = lines.failed.iter().filter(|failed| failed.wrong).map(|failed| &failed.key);
        let mut out: HashSet<(At, String)> = wrong
            .chain(lines.short.iter().map(|short| &short.key))
            .map(|key| ((key.axis, key.x), key.name.clone()))
            .collect();
        for round in 1..=self.rounds {
            for at in self.places() {
                let jobs: Vec<&Job> = self.jobs.iter().filter(|job| (job.axis, job.x) == at).collect();
                for number in order(round - 1, jobs.len()) {
                    let job = jobs[number];
                    let key = Key { axis: job.axis, x: job.x, name: job.name.clone(), round };
                    if self.stop.is_begun() {
                        return Ok(lines);
                    }
                    if there.get(&key) >= Some(&job.figures) || out.contains(&(at, job.name.clone())) {
                        progress.were_over(1);
                        continue;
                    }
                    progress.begin(format!("round {round}: {}, {} {}", job.name, job.x, job.axis));
                    let result = instrument.measure(job);
                    if self.stop.is_begun() {
                        return Ok(lines); // it was cut short
                    }
                    progress.turn_over();
                    let is_whole = note(&key, job.place, result, &mut lines, journal, progress)?;
                    if !is_whole {
                        out.insert((at, key.name));
                    }
                }
            }
        }
        Ok(lines)
    }

    /// The places of all axes, in the order in which they were given.
    fn places(&self) -> Vec<At> {
        let mut places: Vec<At> = Vec::new();
        for job in &self.jobs {
            if !places.contains(&(job.axis, job.x)) {
                places.push((job.axis, job.x));
            }
        }
        places
    }
}

/// Records what a point came to; whether it did all that it was told.
fn note(
    key: &Key,
    place: Place,
    result: Result<Told, Absence>,
    lines: &mut Lines,
    journal: &mut Journal,
    progress: &Progress,
) -> anyhow::Result<bool> {
    let told = match result {
        Ok(told) => told,
        Err(absence) => {
            lines.failed.push(fail(key.clone(), absence, journal, progress)?);
            return Ok(false);
        }
    };
    lines.cells.retain(|cell| cell.key != *key);
    lines.kept.retain(|kept| kept.key != *key);
    if let Some(memory) = told.memory {
        let kept = Kept { key: key.clone(), place, memory };
        journal.line(MEMORY, &kept)?;
        lines.kept.push(kept);
    }
    for (load, shown) in told.shown {
        let cell = Cell { key: key.clone(), place, load, shown };
        journal.line(CELL, &cell)?;
        lines.cells.push(cell);
    }
    for unfinished in &told.unfinished {
        let short = Short { key: key.clone(), place, unfinished: unfinished.clone() };
        progress.say(&short.to_string());
        journal.line(UNFINISHED, &short)?;
        lines.short.push(short);
    }
    Ok(told.unfinished.is_empty())
}

/// Says and records that a point has no figures.
fn fail(key: Key, absence: Absence, journal: &mut Journal, progress: &Progress) -> anyhow::Result<Failed> {
    progress.say(&format!("no figures: {} at {} {}: {absence}", key.name, key.x, key.axis));
    let (wrong, why) = (absence.is_wrong(), absence.why);
    let failed = Failed { key, why, wrong };
    journal.line(FAILURE, &failed)?;
    Ok(failed)
}
