//! The experiment: every target at every point of every axis, in turn, round by round.
//!
//! Before the first round the ends of each axis are measured without latencies. Half of the slowest end's throughput is the
//! rate at which the latencies of that axis are taken.
//!
//! Invariant: a point that failed is not measured again in the same run. Cost: the measurements of the points.

use crate::report::Summary;
use anyhow::Context as _;
use serde_json::Value;

use super::report::{AxisRate, FULL_RATE, Key, RATE, Report, Sample, ScaleFigures};
use super::{Axis, NAME, PointSettings, table};
use crate::experiment::{Absence, Absent, Batch, Experiment, Notebook, Plan, Records, interleaved};
use crate::launch::Launch;

/// A contestant at a point of an axis.
#[derive(Clone, Debug)]
pub struct Target {
    /// The axis.
    pub axis: Axis,
    /// The point.
    pub x: u64,
    /// The contestant's name.
    pub name: String,
    /// The point on all axes.
    pub place: PointSettings,
    /// The contestant's process.
    pub launch: Launch,
}

/// Measures targets.
pub trait ScaleInstrument {
    /// Measures a target in round `round`, 0 for a calibration; the latency at `rate` requests a second, if one is given.
    ///
    /// # Errors
    ///
    /// Returns why there are no figures.
    fn measure(&mut self, target: &Target, round: usize, rate: Option<f64>) -> Result<ScaleFigures, Absence>;

    /// The name of the null server.
    fn limit_name(&self) -> &str;

    /// Measures the requests a second of the null server, over this number of connections.
    ///
    /// # Errors
    ///
    /// Returns why there is no figure.
    fn limit(&mut self, connections: usize) -> Result<f64, Absence>;
}

/// How throughput, CPU time, latency and memory grow along the axes.
#[derive(Debug)]
pub struct Scale<I> {
    /// All contestants at all points.
    pub targets: Vec<Target>,
    /// The points that are left out.
    pub absent: Vec<Absent<Key>>,
    /// The number of rounds.
    pub rounds: usize,
    /// The description of the run, for the record's header.
    pub description: Value,
    /// Measures the targets.
    pub instrument: I,
}

/// The latency is taken at this share of the slowest end's throughput.
const RATE_SHARE: f64 = 0.5;

impl<I> Scale<I> {
    fn key(target: &Target, round: usize) -> Key {
        Key { axis: target.axis, x: target.x, name: target.name.clone(), round }
    }

    fn on(&self, axis: Axis) -> impl Iterator<Item = &Target> {
        self.targets.iter().filter(move |target| target.axis == axis)
    }

    /// The axes that have points.
    fn axes(&self) -> impl Iterator<Item = Axis> {
        Axis::ALL.into_iter().filter(|axis| self.on(*axis).next().is_some())
    }

    /// The first and the last point of every contestant on `axis`.
    fn ends(&self, axis: Axis) -> Vec<Target> {
        let is_end = |target: &&Target| {
            let points = || self.on(axis).filter(|other| other.name == target.name).map(|other| other.x);
            points().min() == Some(target.x) || points().max() == Some(target.x)
        };
        self.on(axis).filter(is_end).cloned().collect()
    }
}

impl<I: ScaleInstrument> Scale<I> {
    /// Measures the throughput of the null server, for the axis of rates.
    fn calibrate_limit(&mut self, notebook: &mut Notebook<'_, Self>) -> anyhow::Result<()> {
        let Some(connections) = self.on(Axis::Rate).map(|target| target.place.connections).max() else { return Ok(()) };
        let limit_name = self.instrument.limit_name().to_owned();
        notebook.progress.begin(format!("calibration: {limit_name}"));
        let requests_per_s = self.instrument.limit(connections);
        if notebook.is_stopped() {
            return Ok(());
        }
        let requests_per_s = requests_per_s.map_err(|absence| anyhow::anyhow!("{limit_name}: {}", absence.why))?;
        notebook.fact(RATE, &AxisRate { axis: Axis::Rate, requests_per_s, half_of: limit_name, x: FULL_RATE })
    }

    /// Measures the rate of `axis`. An end that fails is measured again in the rounds; an end that does wrong is out.
    fn calibrate(&mut self, axis: Axis, notebook: &mut Notebook<'_, Self>) -> anyhow::Result<()> {
        let mut slowest: Option<AxisRate> = None;
        for target in self.ends(axis) {
            let key = Self::key(&target, 0);
            if notebook.is_stopped() {
                return Ok(());
            }
            if notebook.records().absence(&key).is_some() {
                notebook.progress.skip_steps(1);
                continue;
            }
            notebook.progress.begin(key.to_string());
            let result = self.instrument.measure(&target, 0, None);
            if notebook.is_stopped() {
                return Ok(());
            }
            notebook.progress.advance(1);
            let requests_per_s = match result {
                Ok(figures) => figures.per_s * RATE_SHARE,
                Err(absence) if absence.is_wrong() => {
                    notebook.absence(key, absence)?;
                    continue;
                }
                Err(_) => continue,
            };
            if requests_per_s >= 1.0 && slowest.as_ref().is_none_or(|slowest| requests_per_s < slowest.requests_per_s) {
                slowest = Some(AxisRate { axis, requests_per_s, half_of: target.name, x: target.x });
            }
        }
        slowest.map_or(Ok(()), |rate| notebook.fact(RATE, &rate))
    }
}

impl<I: ScaleInstrument> Experiment for Scale<I> {
    const NAME: &'static str = NAME;
    const UNITS: &'static str = "points";
    type Key = Key;
    type Sample = Sample;
    type Report = Report;

    fn describe(&self) -> Value {
        self.description.clone()
    }

    fn prepare(&mut self, notebook: &mut Notebook<'_, Self>) -> anyhow::Result<()> {
        let known: Vec<AxisRate> = notebook.records().facts(RATE)?;
        let mut axes = self.axes().filter(|axis| known.iter().all(|rate| rate.axis != *axis)).collect::<Vec<_>>();
        if axes.contains(&Axis::Rate) {
            self.calibrate_limit(notebook)?;
            axes.retain(|axis| *axis != Axis::Rate);
        }
        notebook.progress.grow(axes.iter().map(|axis| self.ends(*axis).len()).sum());
        axes.into_iter().try_for_each(|axis| self.calibrate(axis, notebook))
    }

    fn plan(&self) -> Plan<Key> {
        let pass = |(round, axis): (usize, Axis)| {
            let keys: Vec<Key> = self.on(axis).map(|target| Self::key(target, round)).collect();
            Batch::series(interleaved(round - 1, &keys))
        };
        let passes = (1..=self.rounds).flat_map(|round| self.axes().map(move |axis| (round, axis)));
        Plan { absent: self.absent.clone(), ..Plan::new(passes.map(pass).collect()) }
    }

    fn measure(&mut self, key: &Key, notebook: &mut Notebook<'_, Self>) -> Result<Sample, Absence> {
        let has_key = |target: &&Target| (target.axis, target.x, &target.name) == (key.axis, key.x, &key.name);
        let target = self.targets.iter().find(has_key).with_context(|| format!("{key} is not planned"));
        let target = target.map_err(|error| Absence::failed(error.to_string()))?;
        let rates: Vec<AxisRate> =
            notebook.records().facts(RATE).map_err(|error| Absence::failed(error.to_string()))?;
        let rate = rates.iter().find(|rate| rate.axis == key.axis).map(|rate| rate.at(key.x));
        if rate.is_none() && key.axis == Axis::Rate {
            let limit = self.instrument.limit_name();
            return Err(Absence::failed(format!("the throughput of {limit} is not known")));
        }
        let figures = self.instrument.measure(target, key.round, rate)?;
        Ok(Sample { place: target.place, figures })
    }

    /// A point that has failed in any round has no figures.
    fn excludes(_: &Absence, of: &Key, key: &Key) -> bool {
        of.is_at(key)
    }

    fn report(records: &Records<Self>) -> anyhow::Result<Report> {
        Report::of(records)
    }

    fn summarize(records: &Records<Self>, report: &Report) -> anyhow::Result<Summary> {
        let csv = [("", table::samples_csv(records)?), ("-growth", table::growth_csv(&report.growth)?)];
        let csv = csv.map(|(suffix, text)| (suffix.to_owned(), text)).into();
        Ok(Summary { tables: table::tables(report), charts: report.charts(), csv, ..Summary::default() })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use polyserve::Shutdown;
    use serde_json::json;

    use super::*;
    use crate::experiment::run;
    use crate::fixtures::{self, TestDir};
    use crate::journal::Journal;

    /// The measured points, with their rates.
    type MeasuredPoints = Vec<(u64, Option<f64>)>;

    /// An instrument that stores its calls. A point can fail in the calibration or in the rounds.
    struct Fake {
        measured: MeasuredPoints,
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

    impl ScaleInstrument for Fake {
        fn limit_name(&self) -> &'static str {
            "null_epoll"
        }

        fn limit(&mut self, _: usize) -> Result<f64, Absence> {
            Ok(5000.0)
        }

        fn measure(&mut self, target: &Target, _: usize, rate: Option<f64>) -> Result<ScaleFigures, Absence> {
            self.measured.push((target.x, rate));
            if self.measured.len() == self.stop_after {
                self.stop.begin(std::time::Instant::now());
            }
            match self.fails {
                Some(Fails { at, calibrating, wrong }) if (at, calibrating) == (target.x, rate.is_none()) => {
                    Err(Absence::new("it was told to", wrong))
                }
                _ => Ok(ScaleFigures { per_s: 1000.0 / target.x as f64, ..ScaleFigures::default() }),
            }
        }
    }

    fn experiment(instrument: Fake) -> Scale<Fake> {
        let launch = fixtures::launch();
        let base = PointSettings { connections: 64, keys: 1000, workers: None, payload_bytes: 15 };
        let (axis, name) = (Axis::Connections, "any");
        let target = |x| Target { axis, x, name: name.into(), place: base.at(axis, x), launch: launch.clone() };
        let targets = [1, 10, 100].map(target).into();
        Scale { targets, absent: Vec::new(), rounds: 2, description: json!({}), instrument }
    }

    fn run_in(dir: &Path, fails: Option<Fails>, stop_after: usize) -> (Records<Scale<Fake>>, MeasuredPoints) {
        let header = fixtures::header("scale", json!({}));
        let mut journal = Journal::open(Some(dir), &header).unwrap();
        let stop = Shutdown::new();
        let mut scale = experiment(Fake { measured: Vec::new(), fails, stop_after, stop: stop.clone() });
        let records = run(&mut scale, &header, &mut journal, &stop).unwrap();
        (records, scale.instrument.measured)
    }

    /// A run calibrates both ends once, and measures latencies at half of the slowest throughput. Only a rerun repeats failed
    /// points.
    #[test]
    fn a_rerun_measures_what_is_missing() {
        let dir = TestDir::new("scale");
        let (records, measured) = run_in(&dir, None, 4);
        assert_eq!(measured[..2], [(1, None), (100, None)]);
        assert_eq!((measured.len(), records.samples().count()), (4, 1), "the one that was under way is not counted");
        assert!(measured[2..].iter().all(|(_, rate)| *rate == Some(5.0)), "half of 10 a second: {measured:?}");
        let (records, measured) = run_in(&dir, Some(Fails { at: 10, calibrating: false, wrong: false }), usize::MAX);
        assert_eq!(measured.iter().filter(|(x, _)| *x == 10).count(), 1, "not twice in one run: {measured:?}");
        assert!(measured.iter().all(|(_, rate)| rate.is_some()), "the rate is recorded: {measured:?}");
        assert_eq!((records.failed().len(), records.samples().count()), (1, 4));
        let (records, measured) = run_in(&dir, None, usize::MAX);
        assert_eq!((records.failed().len(), records.samples().count(), measured.len()), (0, 6, 2), "{measured:?}");
        let (_, measured) = run_in(&dir, None, usize::MAX);
        assert_eq!(measured, []);
    }

    /// The rate of a point is its share of the null server's throughput.
    #[test]
    fn rates_are_shares_of_the_limit() {
        let dir = TestDir::new("scale-rate");
        let stop = Shutdown::new();
        let fake = Fake { measured: Vec::new(), fails: None, stop_after: usize::MAX, stop: stop.clone() };
        let mut scale = experiment(fake);
        for target in &mut scale.targets {
            target.axis = Axis::Rate;
        }
        let header = fixtures::header("scale", json!({}));
        let mut journal = Journal::open(Some(&dir), &header).unwrap();
        let records = run(&mut scale, &header, &mut journal, &stop).unwrap();
        assert_eq!(records.samples().count(), 6);
        let mut measured = scale.instrument.measured.clone();
        measured.sort_by_key(|(x, _)| *x);
        measured.dedup();
        assert_eq!(measured, [(1, Some(50.0)), (10, Some(500.0)), (100, Some(5000.0))]);
        let text = Report::of(&records).unwrap().to_string();
        assert!(text.contains("rate: per cent of null_epoll's 5,000 requests/s, Poisson arrivals"), "{text}");
    }

    /// A contestant that did wrong is not measured again, because a repetition may succeed by chance.
    #[test]
    fn a_wrong_point_stays_out() {
        for (at, calibrating, round) in [(10, false, 1), (100, true, 0)] {
            let dir = TestDir::new("scale-wrong");
            let fails = Fails { at, calibrating, wrong: true };
            let (_, measured) = run_in(&dir, Some(fails), usize::MAX);
            assert_eq!(measured.iter().filter(|(x, _)| *x == at).count(), 1, "{measured:?}");
            let (records, measured) = run_in(&dir, None, usize::MAX);
            assert_eq!(measured, []);
            let failed = records.failed();
            let failed = failed.iter().map(|failed| (failed.key.x, failed.key.round, failed.wrong));
            assert_eq!(failed.collect::<Vec<_>>(), [(at, round, true)]);
            assert_eq!(records.samples().count(), 2 * 2, "the others have both rounds");
        }
    }
}
