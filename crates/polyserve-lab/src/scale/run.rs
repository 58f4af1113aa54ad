//! All points of all axes, in turn, round by round.
//!
//! Invariant: a point that failed is not measured again in the same run; one that is recorded, or that somebody did wrong
//! at, is not measured again at all. Cost: that of the points.

use std::collections::HashSet;

use polyserve::Shutdown;

use super::report::{CELL, Cell, FAILURE, Failed, Key, Lines, NOT_RUN, NotRun, RATE, Rate, Shown};
use super::{Axis, Place};
use crate::compare::Unfit;
use crate::compare::contestant::order;
use crate::journal::Journal;
use crate::launch::Launch;
use crate::progress::Progress;

/// A point that is to be measured.
#[derive(Clone, Debug)]
pub struct Job {
    /// The axis.
    pub axis: Axis,
    /// Where on it.
    pub x: u64,
    /// The contestant's name.
    pub name: String,
    /// Where on all axes.
    pub place: Place,
    /// Its process.
    pub launch: Launch,
}

/// What measures a point.
pub trait Instrument {
    /// Measures one; the latency at `rate`, where there is one.
    ///
    /// # Errors
    ///
    /// Why there are no figures. It means nothing once the run is to end.
    fn measure(&mut self, job: &Job, rate: Option<f64>) -> Result<Shown, Unfit>;

    /// Whether it takes latencies at a rate.
    fn is_paced(&self) -> bool;
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

/// The latency is taken at this share of what the slowest end of an axis reaches.
const SHARE: f64 = 0.5;

impl Experiment {
    /// Steps of the whole run, those that calibrate included.
    pub fn steps(&self, instrument: &dyn Instrument) -> usize {
        let ends = if instrument.is_paced() { self.axes().iter().map(|axis| self.ends(*axis).len()).sum() } else { 0 };
        self.jobs.len() * self.rounds + ends
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
        if instrument.is_paced() {
            for axis in self.axes() {
                self.calibrate(axis, instrument, &mut lines, journal, progress)?;
            }
        }
        // Who is asked often enough may be lucky.
        let is_wrong = |job: &&Job| lines.did_wrong(job.axis, job.x, &job.name);
        let mut out: HashSet<(Axis, u64, &str)> =
            self.jobs.iter().filter(is_wrong).map(|job| (job.axis, job.x, job.name.as_str())).collect();
        for round in 1..=self.rounds {
            for axis in self.axes() {
                let jobs: Vec<&Job> = self.jobs.iter().filter(|job| job.axis == axis).collect();
                let rate = lines.rates.iter().find(|rate| rate.axis == axis).map(|rate| rate.requests_per_s);
                for place in order(round - 1, jobs.len()) {
                    let job = jobs[place];
                    let key = Key { axis, x: job.x, name: job.name.clone(), round };
                    if self.stop.is_begun() {
                        return Ok(lines);
                    }
                    if lines.cell(&key).is_some() || out.contains(&(axis, job.x, job.name.as_str())) {
                        progress.were_over(1);
                        continue;
                    }
                    progress.begin(format!("round {round}: {}, {} {axis}", job.name, job.x));
                    let result = instrument.measure(job, rate);
                    if self.stop.is_begun() {
                        return Ok(lines); // it was cut short
                    }
                    progress.turn_over();
                    match result {
                        Ok(shown) => {
                            let cell = Cell { key, place: job.place, shown };
                            journal.line(CELL, &cell)?;
                            lines.add(Ok(cell));
                        }
                        Err(unfit) => {
                            lines.add(Err(fail(key, unfit, journal, progress)?));
                            out.insert((axis, job.x, job.name.as_str()));
                        }
                    }
                }
            }
        }
        Ok(lines)
    }

    /// The axes that have points.
    fn axes(&self) -> Vec<Axis> {
        Axis::ALL.into_iter().filter(|axis| self.jobs.iter().any(|job| job.axis == *axis)).collect()
    }

    /// The first and the last point of everybody on `axis`.
    fn ends(&self, axis: Axis) -> Vec<&Job> {
        let on: Vec<&Job> = self.jobs.iter().filter(|job| job.axis == axis).collect();
        let is_end = |job: &&&Job| {
            let own = on.iter().filter(|other| other.name == job.name).map(|other| other.x);
            own.clone().min() == Some(job.x) || own.max() == Some(job.x)
        };
        on.iter().filter(is_end).copied().collect()
    }

    /// Finds the rate of `axis`, unless it is recorded. One that fails is told again when its point is measured; who does
    /// wrong is out already.
    fn calibrate(
        &self,
        axis: Axis,
        instrument: &mut dyn Instrument,
        lines: &mut Lines,
        journal: &mut Journal,
        progress: &mut Progress,
    ) -> anyhow::Result<()> {
        let ends = self.ends(axis);
        if lines.rates.iter().any(|rate| rate.axis == axis) {
            progress.were_over(ends.len());
            return Ok(());
        }
        let mut slowest: Option<Rate> = None;
        for job in ends {
            if lines.did_wrong(axis, job.x, &job.name) {
                progress.were_over(1);
                continue;
            }
            progress.begin(format!("calibration: {}, {} {axis}", job.name, job.x));
            let result = instrument.measure(job, None);
            if self.stop.is_begun() {
                return Ok(());
            }
            progress.turn_over();
            let requests_per_s = match result {
                Ok(shown) => shown.per_s * SHARE,
                Err(unfit) if unfit.wrong => {
                    let key = Key { axis, x: job.x, name: job.name.clone(), round: 0 };
                    lines.add(Err(fail(key, unfit, journal, progress)?));
                    continue;
                }
                Err(_) => continue,
            };
            if requests_per_s >= 1.0 && slowest.as_ref().is_none_or(|slowest| requests_per_s < slowest.requests_per_s) {
                slowest = Some(Rate { axis, requests_per_s, half_of: job.name.clone(), x: job.x });
            }
        }
        if let Some(rate) = slowest {
            journal.line(RATE, &rate)?;
            lines.rates.push(rate);
        }
        Ok(())
    }
}

/// Says and records that a point has no figures.
pub(crate) fn fail(
    key: Key,
    Unfit { why, wrong }: Unfit,
    journal: &mut Journal,
    progress: &Progress,
) -> anyhow::Result<Failed> {
    progress.say(&format!("no figures: {} at {} {}: {why}", key.name, key.x, key.axis));
    let failed = Failed { key, why, wrong };
    journal.line(FAILURE, &failed)?;
    Ok(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Header, of_kind, read};
    use crate::launch::AddressFrom;
    use crate::machine::{Cores, Environment};

    /// Shows what it is told; one place fails once, or does wrong. The calibration's is of no rate.
    struct Told {
        asked: Vec<(u64, Option<f64>)>,
        fails: Option<Fails>,
        stop_after: usize,
        stop: Shutdown,
    }

    #[derive(Clone, Copy)]
    struct Fails {
        at: u64,
        calibrating: bool,
        wrong: bool,
    }

    impl Instrument for Told {
        fn measure(&mut self, job: &Job, rate: Option<f64>) -> Result<Shown, Unfit> {
            self.asked.push((job.x, rate));
            if self.asked.len() == self.stop_after {
                self.stop.begin(std::time::Instant::now());
            }
            match self.fails {
                Some(Fails { at, calibrating, wrong }) if (at, calibrating) == (job.x, rate.is_none()) => {
                    Err(Unfit { why: "it was told to".into(), wrong })
                }
                _ => Ok(Shown { per_s: 1000.0 / job.x as f64, ..Shown::default() }),
            }
        }

        fn is_paced(&self) -> bool {
            true
        }
    }

    fn experiment() -> Experiment {
        let launch = Launch { program: "any".into(), args: Vec::new(), env: Vec::new(), address: AddressFrom::Json };
        let base = Place { connections: 64, keys: 1000, workers: None, payload_bytes: 15 };
        let (axis, name) = (Axis::Connections, "any");
        let job = |x| Job { axis, x, name: name.into(), place: base.at(axis, x), launch: launch.clone() };
        Experiment { jobs: [1, 10, 100].map(job).into(), not_run: Vec::new(), rounds: 2, stop: Shutdown::new() }
    }

    fn run(dir: &std::path::Path, fails: Option<Fails>, stop_after: usize) -> (Lines, Vec<(u64, Option<f64>)>) {
        let one = Cores::from(0);
        let environment = Environment::of(&one, [&one; 2], 1, "any");
        let header = Header::new("scale", serde_json::json!({}), environment);
        let mut journal = Journal::open(Some(dir), &header).unwrap();
        let experiment = experiment();
        let stop = experiment.stop.clone();
        let mut told = Told { asked: Vec::new(), fails, stop_after, stop };
        let mut progress = Progress::of(experiment.steps(&told));
        let lines = experiment.run(&mut told, &mut journal, &mut progress).unwrap();
        (lines, told.asked)
    }

    /// Calibrates at both ends once, takes latencies at half of the slowest, tries what failed again on a rerun only.
    #[test]
    fn a_rerun_measures_what_is_missing() {
        let dir = std::env::temp_dir().join(format!("polyserve-scale-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let (lines, asked) = run(&dir, None, 4);
        assert_eq!(asked[..2], [(1, None), (100, None)]);
        assert_eq!((asked.len(), lines.cells.len()), (4, 1), "the one that was under way is not counted");
        assert!(asked[2..].iter().all(|(_, rate)| *rate == Some(5.0)), "half of 10 a second: {asked:?}");
        let (lines, asked) = run(&dir, Some(Fails { at: 10, calibrating: false, wrong: false }), usize::MAX);
        assert_eq!(asked.iter().filter(|(x, _)| *x == 10).count(), 1, "not twice in one run: {asked:?}");
        assert!(asked.iter().all(|(_, rate)| rate.is_some()), "the rate is recorded: {asked:?}");
        let failed = |lines: &Lines| lines.cells.iter().filter(|(_, cell)| cell.is_err()).count();
        assert_eq!((failed(&lines), lines.cells.len()), (1, 5));
        let (lines, asked) = run(&dir, None, usize::MAX);
        assert_eq!((failed(&lines), lines.cells.len(), asked.len()), (0, 6, 2), "{asked:?}");
        let (_, asked) = run(&dir, None, usize::MAX);
        assert_eq!(asked, []);
        let recorded = read(&dir.join("scale.jsonl")).unwrap();
        assert_eq!(of_kind::<Cell>(&recorded, CELL).unwrap().len(), 6);
        let _ = std::fs::remove_dir_all(&dir);
    }

    /// Who is asked often enough may be lucky: a rerun that would go well asks nobody who did wrong.
    #[test]
    fn who_did_wrong_stays_out() {
        let dir = std::env::temp_dir().join(format!("polyserve-scale-wrong-{}", std::process::id()));
        for (at, calibrating, round) in [(10, false, 1), (100, true, 0)] {
            let _ = std::fs::remove_dir_all(&dir);
            let fails = Fails { at, calibrating, wrong: true };
            let (_, asked) = run(&dir, Some(fails), usize::MAX);
            assert_eq!(asked.iter().filter(|(x, _)| *x == at).count(), 1, "{asked:?}");
            let (lines, asked) = run(&dir, None, usize::MAX);
            assert_eq!(asked, []);
            let failed =
                lines.cells.iter().filter_map(|(key, cell)| Some((key.x, key.round, cell.as_ref().err()?.wrong)));
            assert_eq!(failed.collect::<Vec<_>>(), [(at, round, true)]);
            assert_eq!(lines.cells.len(), 1 + 2 * 2, "the others have both rounds");
        }
        let _ = std::fs::remove_dir_all(&dir);
    }
}
