//! Capacity: the max rate of Poisson arrivals at which the p99 meets a goal.
//!
//! Each round starts every server anew. A bisection over the logarithm of the rate finds the capacity. A rate is met if the
//! p99 from the intended start is at most the goal, and the requests that are due are sent. A rate is missed only if two loads
//! miss it. After the search the lowest missed rate is tried again, and the search goes on above it if it is met now. So a
//! stall of the machine does not decide, even if it lasts for some loads.
//!
//! The search is between [`MIN_RATE_SHARE`] and the whole throughput of the null server, which is measured before the first round. All
//! goals are searched in the same process, one after the other.
//!
//! The figure of a contestant is the median over its rounds, with the 95 % interval of a bootstrap over rounds. The first
//! contestant takes part twice: the interval of the second entry's ratio to the first is the band of ties.
//!
//! Invariant: every answer is checked. Cost: for each contestant, round and goal [`STEPS`] and three more rates, each with one
//! load or two; after a stall up to [`MAX_RATES`] and the two ends of the range.

mod bench;
mod report;

use std::fmt;

use crate::report::Summary;
use crate::report::figures::time_us;
use polyserve_load::Arrivals;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use self::bench::CapacityBench;
pub use self::report::{CapacityRow, Goal, Report};
use crate::experiment::{
    Absence, Absent, Batch, Experiment, Notebook, Plan, Records, again, csv, interleaved, with_short_floats,
};
use crate::launch::Launch;

/// The name of the experiment, of its command and of its record.
pub const NAME: &str = "capacity";
/// The steps of a bisection: each halves the interval, which ends at 4 % of a rate.
pub const STEPS: u32 = 7;
/// The max number of rates of a search between its ends, if stalls of the machine lead it astray.
pub const MAX_RATES: u32 = 3 * STEPS;
/// The lowest rate of a search, as a share of the null server's throughput.
pub const MIN_RATE_SHARE: f64 = 0.01;
/// The `kind` of the null server's throughput in a record.
const LIMIT: &str = "limit";

/// A search of a contestant for one goal, in a round.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The contestant: `tokio_tcp/sharded`; the second entry of the first one is `NAME (again)`.
    pub name: String,
    /// The goal: the max p99, in microseconds.
    pub goal_us: u64,
    /// The round, from 1.
    pub round: usize,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, goal_us, round } = self;
        write!(f, "round {round}: {name}, p99 at most {}", time_us(*goal_us as f64))
    }
}

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchEnd {
    /// Between two rates: the capacity is the lower one.
    Between,
    /// The lowest rate was not met: the capacity is below it.
    Below,
    /// The throughput of the null server was met: the capacity is at least that.
    Above,
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The highest rate that was met, in requests a second; the lowest rate of the search if none was.
    pub per_s: f64,
    /// How the search ended.
    pub end: SearchEnd,
    /// The p99 at that rate, in microseconds.
    pub p99_us: f64,
    /// The CPU time of the server for each request at that rate, in microseconds.
    pub cpu_us: Option<f64>,
    /// The client's CPU time as a share of its threads' time, at that rate.
    pub client_busy: f64,
    /// The client's own lateness at that rate, 99 %, in microseconds.
    pub lateness_p99_us: f64,
}

/// The throughput of the null server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// Its name.
    pub name: String,
    /// Requests a second, in closed loop.
    pub per_s: f64,
}

/// A server under test.
#[derive(Clone, Debug)]
pub struct NamedLaunch {
    /// Its name.
    pub name: String,
    /// Its process.
    pub launch: Launch,
}

/// Searches for capacities.
pub trait CapacityInstrument {
    /// Measures the throughput of the null server.
    ///
    /// # Errors
    ///
    /// Returns why there is no figure.
    fn limit(&mut self) -> Result<Limit, Absence>;

    /// Searches the capacity of a target for each goal, in the order of the goals.
    ///
    /// # Errors
    ///
    /// Returns why there are no figures.
    fn search(
        &mut self,
        target: &NamedLaunch,
        goals_us: &[u64],
        round: usize,
        limit: f64,
    ) -> Result<Vec<Sample>, Absence>;
}

/// Bisects between `lowest` and `highest`. `probe` returns a rate's figures, and whether the rate was met. A rate that was not
/// met is probed once more, and again when the search has come down to it.
///
/// # Errors
///
/// Returns the first error of `probe`.
pub fn bisect(
    [lowest, highest]: [f64; 2],
    mut probe: impl FnMut(f64) -> Result<(bool, Sample), Absence>,
) -> Result<Sample, Absence> {
    let mut probe = |rate: f64| match probe(rate)? {
        (false, _) => probe(rate),
        met => Ok(met),
    };
    let (is_met, mut best) = match probe(lowest)? {
        (false, _) => probe(lowest)?,
        met => met,
    };
    if !is_met {
        return Ok(Sample { end: SearchEnd::Below, ..best });
    }
    let (is_met, top) = probe(highest)?;
    if is_met {
        return Ok(Sample { end: SearchEnd::Above, ..top });
    }
    // Half a step more than the last of an undisturbed search, so that rounding does not count.
    let resolution = (highest / lowest).powf(1.5 / f64::from(1_u32 << STEPS));
    let (mut low, mut missed) = (lowest, vec![highest]);
    for _ in 0..MAX_RATES {
        let Some(high) = missed.last().copied() else {
            return Ok(Sample { end: SearchEnd::Above, ..best });
        };
        let is_found = high / low <= resolution;
        let rate = if is_found { high } else { (low * high).sqrt() };
        match probe(rate)? {
            (true, sample) => {
                (low, best) = (rate, sample);
                if is_found {
                    missed.pop();
                }
            }
            (false, _) if is_found => break,
            (false, _) => missed.push(rate),
        }
    }
    Ok(best)
}

/// The capacities of servers.
#[derive(Debug)]
pub struct Capacity<I> {
    /// The servers; the first one takes part twice.
    pub targets: Vec<NamedLaunch>,
    /// The servers that are left out.
    pub absent: Vec<Absent<Key>>,
    /// The goals: max p99, in microseconds.
    pub goals_us: Vec<u64>,
    /// The number of rounds.
    pub rounds: usize,
    /// The description of the run, for the record's header.
    pub description: Value,
    /// The instrument that searches for capacities.
    pub instrument: I,
}

impl<I> Capacity<I> {
    /// The names of all entries.
    fn names(&self) -> Vec<String> {
        let control = self.targets.first().map(|first| again(&first.name));
        self.targets.iter().map(|target| target.name.clone()).chain(control).collect()
    }
}

impl<I: CapacityInstrument> Experiment for Capacity<I> {
    const NAME: &'static str = NAME;
    const UNITS: &'static str = "searches";
    type Key = Key;
    type Sample = Sample;
    type Report = Report;

    fn describe(&self) -> Value {
        let mut description = self.description.clone();
        description["contestants"] = json!(self.names());
        description["goals_us"] = json!(self.goals_us);
        description["rounds"] = json!(self.rounds);
        description["arrivals"] = json!(Arrivals::default());
        description
    }

    fn prepare(&mut self, notebook: &mut Notebook<'_, Self>) -> anyhow::Result<()> {
        if !notebook.records().facts::<Limit>(LIMIT)?.is_empty() {
            return Ok(());
        }
        notebook.progress.begin("calibration: the null server".into());
        let limit = self.instrument.limit();
        if notebook.is_stopped() {
            return Ok(());
        }
        let limit = limit.map_err(|absence| anyhow::anyhow!("the null server: {}", absence.why))?;
        notebook.fact(LIMIT, &limit)
    }

    fn plan(&self) -> Plan<Key> {
        let names = self.names();
        let goals = |name: String, round: usize| {
            Batch::together(self.goals_us.iter().map(move |goal_us| Key {
                name: name.clone(),
                goal_us: *goal_us,
                round,
            }))
        };
        let round = |round: usize| interleaved(round - 1, &names).into_iter().map(move |name| goals(name, round));
        Plan { absent: self.absent.clone(), ..Plan::new((1..=self.rounds).flat_map(round).collect()) }
    }

    fn measure_together(&mut self, keys: &[Key], notebook: &mut Notebook<'_, Self>) -> Vec<Result<Sample, Absence>> {
        let fail_all = |absence: Absence| keys.iter().map(|_| Err(absence.clone())).collect();
        let Some(first) = keys.first() else { return Vec::new() };
        let is_target = |target: &&NamedLaunch| target.name == first.name || again(&target.name) == first.name;
        let Some(target) = self.targets.iter().find(is_target) else {
            return fail_all(Absence::failed(format!("{first} is not planned")));
        };
        let limit = match notebook.records().facts::<Limit>(LIMIT) {
            Ok(limits) => limits.first().map(|limit| limit.per_s),
            Err(error) => return fail_all(Absence::failed(error.to_string())),
        };
        let Some(limit) = limit else { return fail_all(Absence::failed("the null server was not measured")) };
        notebook.progress.begin(format!("round {}: {}", first.round, first.name));
        let goals: Vec<u64> = keys.iter().map(|key| key.goal_us).collect();
        match self.instrument.search(target, &goals, first.round, limit) {
            Ok(samples) => samples.into_iter().map(Ok).collect(),
            Err(absence) => fail_all(absence),
        }
    }

    /// A server that failed once has no capacity.
    fn excludes(_: &Absence, of: &Key, key: &Key) -> bool {
        of.name == key.name
    }

    fn report(records: &Records<Self>) -> anyhow::Result<Report> {
        Report::of(records)
    }

    fn summarize(records: &Records<Self>, report: &Report) -> anyhow::Result<Summary> {
        let text = csv(COLUMNS, records.rows().iter().map(with_short_floats))?;
        let tables = report.goals.iter().map(|goal| (format!("capacity: {goal}"), goal.table())).collect();
        let charts = report.goals.iter().filter_map(Goal::chart).collect();
        Ok(Summary { tables, charts, csv: vec![(String::new(), text)], ..Summary::default() })
    }
}

/// The columns of a sample.
const COLUMNS: &str = "name,goal_us,round,per_s,end,p99_us,cpu_us,client_busy,lateness_p99_us";

#[cfg(test)]
mod tests {
    use crate::report::svg::Chart;
    use polyserve::Shutdown;

    use super::*;
    use crate::fixtures::{self, TestDir};
    use crate::journal::Journal;
    use crate::statistics::Verdict;

    fn sample(per_s: f64) -> Sample {
        let end = SearchEnd::Between;
        Sample { per_s, end, p99_us: 900.0, cpu_us: Some(6.0), client_busy: 0.5, lateness_p99_us: 10.0 }
    }

    #[test]
    fn a_bisection_finds_the_highest_rate_that_is_met() {
        for capacity in [150.0, 1234.5, 9999.0] {
            let (mut met, mut missed) = (0, 0);
            let found = bisect([100.0, 10_000.0], |rate| {
                *if rate <= capacity { &mut met } else { &mut missed } += 1;
                Ok((rate <= capacity, sample(rate)))
            });
            let found = found.unwrap();
            assert!(found.per_s <= capacity && found.per_s > capacity * 0.96, "{capacity}: {found:?}");
            assert_eq!((found.end, met + missed / 2), (SearchEnd::Between, STEPS + 3));
            assert_eq!(missed % 2, 0, "each miss is confirmed");
        }
        let bounded = |capacity: f64| bisect([100.0, 10_000.0], |rate| Ok((rate <= capacity, sample(rate)))).unwrap();
        assert_eq!((bounded(50.0).end, bounded(50.0).per_s), (SearchEnd::Below, 100.0));
        assert_eq!((bounded(20_000.0).end, bounded(20_000.0).per_s), (SearchEnd::Above, 10_000.0));
        let failed = bisect([1.0, 2.0], |_| Err(Absence::failed("why"))).unwrap_err();
        assert_eq!(failed.why, "why");
    }

    #[test]
    fn a_stall_of_the_machine_decides_nothing() {
        let found = |stalled: std::ops::Range<u32>| {
            let mut probes = 0;
            let found = bisect([100.0, 10_000.0], |rate| {
                probes += 1;
                Ok((rate <= 1234.5 && !stalled.contains(&probes), sample(rate)))
            });
            assert!(probes <= 2 * MAX_RATES + 6, "{probes}");
            found.unwrap()
        };
        let undisturbed = found(0..0);
        for stalled in 1..=STEPS + 2 {
            assert_eq!(found(stalled..stalled + 1), undisturbed, "the load {stalled} stalls");
        }
        // A stall of two or three loads misses a rate that the server keeps. The search returns to it.
        for (stalled, loads) in (1..=2 * STEPS).flat_map(|stalled| [(stalled, 2), (stalled, 3)]) {
            let Sample { per_s, end, .. } = found(stalled..stalled + loads);
            assert!(end == SearchEnd::Between && (per_s / undisturbed.per_s - 1.0).abs() < 0.04, "{stalled}: {per_s}");
        }
        assert_eq!(found(1..9).end, SearchEnd::Below, "the search ends");
    }

    /// Servers with fixed capacities. One fails.
    struct Fake {
        searches: usize,
    }

    impl CapacityInstrument for Fake {
        fn limit(&mut self) -> Result<Limit, Absence> {
            Ok(Limit { name: "null".into(), per_s: 1000.0 })
        }

        fn search(
            &mut self,
            target: &NamedLaunch,
            goals: &[u64],
            round: usize,
            _: f64,
        ) -> Result<Vec<Sample>, Absence> {
            self.searches += 1;
            let base = match target.name.as_str() {
                "broken" => return Err(Absence::wrong("a wrong answer")),
                "fast" => 500.0,
                _ => 250.0,
            };
            Ok(goals.iter().map(|goal| sample(base * (1.0 + 0.001 * round as f64) * *goal as f64 / 1000.0)).collect())
        }
    }

    fn ran(dir: &TestDir, rounds: usize) -> (Records<Capacity<Fake>>, usize) {
        let target = |name: &str| NamedLaunch { name: name.into(), launch: fixtures::launch() };
        let targets = ["slow", "fast", "broken"].map(target).into();
        let (goals_us, description) = (vec![1000, 10_000], json!({}));
        let mut capacity =
            Capacity { targets, absent: Vec::new(), goals_us, rounds, description, instrument: Fake { searches: 0 } };
        let header = fixtures::header(NAME, capacity.describe());
        let mut journal = Journal::open(Some(dir), &header).unwrap();
        let records = crate::experiment::run(&mut capacity, &header, &mut journal, &Shutdown::new()).unwrap();
        (records, capacity.instrument.searches)
    }

    #[test]
    fn contestants_are_ranked_for_each_goal() {
        let dir = TestDir::new("capacity");
        let (records, searches) = ran(&dir, 12);
        // The server with a wrong answer is asked once.
        assert_eq!((searches, records.samples().count()), (3 * 12 + 1, 3 * 12 * 2));
        let report = Report::of(&records).unwrap();
        assert_eq!(report.goals.iter().map(|goal| goal.goal_us).collect::<Vec<_>>(), [1000, 10_000]);
        for (goal, times) in report.goals.iter().zip([1.0, 10.0]) {
            let names: Vec<&str> = goal.rows.iter().map(|row| row.name.as_str()).collect();
            assert_eq!(names, ["fast", "slow", "slow (again)"]);
            assert!((goal.rows[0].per_s / times - 503.25).abs() < 0.1, "{goal:?}");
            assert_eq!(goal.rows[0].verdict, Some(Verdict::Faster));
            assert_eq!((goal.rows[1].verdict, goal.rows[2].verdict), (None, None));
        }
        let summary = Capacity::<Fake>::summarize(&records, &report).unwrap();
        let names: Vec<&str> = summary.charts.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["p99 1.0 ms", "p99 10.0 ms"]);
        let Chart::Intervals(chart) = &summary.charts[0].1 else { panic!("{summary:?}") };
        assert!(chart.rows.len() == 3 && (chart.rows[0].ratio - 0.50325).abs() < 0.001, "{chart:?}");
        let text = report.to_string();
        for expected in
            ["max rate of Poisson arrivals with a p99 at most 1.0 ms:", "of limit: share of null's 1,000 req/s"]
        {
            assert!(text.contains(expected), "{text}");
        }
        assert!(text.contains("no figures: ") && text.contains("broken") && text.contains("a wrong answer"), "{text}");
        let (again, searches) = ran(&dir, 12);
        assert_eq!((again.samples().count(), searches), (72, 0), "a rerun searches nothing");
    }

    #[test]
    fn too_few_rounds_have_no_interval_and_no_verdict() {
        let dir = TestDir::new("capacity-few");
        let (records, _) = ran(&dir, 3);
        let report = Report::of(&records).unwrap();
        assert_eq!(report.goals[0].rows[0].verdict, Some(Verdict::TooFewRounds));
        let text = report.to_string();
        assert!(text.contains("too few rounds for a verdict: 10 are needed") && !text.contains("[50"), "{text}");
    }
}
