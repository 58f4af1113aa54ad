//! The result of an experiment: the capacities for each goal, the highest first.

use std::fmt;

use crate::report::figures::{count, time_us};
use crate::report::svg::{COLOURS, Chart, GREY, IntervalChart, IntervalRow};
use crate::report::{Table, or_empty};
use serde::Serialize;

use super::{Capacity, CapacityInstrument, Key, LIMIT, Limit, Sample, SearchEnd};
use crate::experiment::{Failed, Records, again, distinct};
use crate::output::is_client_late;
use crate::statistics::{Estimate, Interval, MIN_ROUNDS, Verdict, median_of, tie_band};

/// The min share of the client's time at which the client may be the limit.
const CLIENT_FULL: f64 = 0.95;

/// The capacity of a contestant for a goal.
#[derive(Clone, Debug, Serialize)]
pub struct CapacityRow {
    /// The contestant.
    pub name: String,
    /// Requests a second: the median over rounds.
    pub per_s: f64,
    /// The 95 % interval of the median; none for fewer rounds than an interval needs.
    pub interval: Option<Interval>,
    /// The number of rounds.
    pub rounds: usize,
    /// The ratio to the first contestant.
    pub ratio: Option<Estimate>,
    /// The verdict on that ratio.
    pub verdict: Option<Verdict>,
    /// CPU time of the server for each request at that rate, in microseconds.
    pub cpu_us: Option<f64>,
    /// How most of the searches ended, if not between two rates.
    pub end: Option<SearchEnd>,
    /// Whether the client was full at that rate in most rounds: it may be the limit.
    pub client_full: bool,
    /// Whether the client's own lateness was above a tenth of the goal in most rounds.
    pub client_late: bool,
}

/// The capacities for a goal, the highest first.
#[derive(Clone, Debug, Serialize)]
pub struct Goal {
    /// The max p99, in microseconds.
    pub goal_us: u64,
    /// The throughput of the null server, in requests a second.
    pub limit_per_s: Option<f64>,
    /// The contestants; the second entry of the first one is last.
    pub rows: Vec<CapacityRow>,
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p99 at most {}", time_us(self.goal_us as f64))
    }
}

/// The result of the experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The throughput of the null server.
    pub limit: Option<Limit>,
    /// The capacities for each goal.
    pub goals: Vec<Goal>,
    /// The contestants without a capacity.
    pub failed: Vec<Failed<Key>>,
    /// Whether it was ended early.
    pub interrupted: bool,
}

impl Report {
    /// The result of these records.
    ///
    /// # Errors
    ///
    /// Returns an error if the throughput of the null server does not have its fields.
    pub fn of<I: CapacityInstrument>(records: &Records<Capacity<I>>) -> anyhow::Result<Self> {
        let failed = records.failed();
        let is_out = |key: &Key| failed.iter().any(|failed| failed.key.name == key.name);
        let samples: Vec<(&Key, &Sample)> = records.samples().filter(|(key, _)| !is_out(key)).collect();
        let limit = records.facts::<Limit>(LIMIT)?.pop();
        let seed = records.header.environment.seed;
        let planned: Vec<String> = serde_json::from_value(records.header.plan["contestants"].clone())?;
        let goals = distinct(samples.iter().map(|(key, _)| key.goal_us));
        let limit_per_s = limit.as_ref().map(|limit| limit.per_s);
        let goal = |goal_us: u64| Goal { goal_us, limit_per_s, rows: rows(&samples, goal_us, &planned, seed) };
        let goals = goals.into_iter().map(goal).collect();
        Ok(Self { limit, goals, failed, interrupted: records.is_interrupted() })
    }
}

/// The rows of a goal, ranked.
fn rows(samples: &[(&Key, &Sample)], goal_us: u64, planned: &[String], seed: u64) -> Vec<CapacityRow> {
    let samples_of = |name: &str| -> Vec<(usize, &Sample)> {
        let own = samples.iter().filter(|(key, _)| key.name == name && key.goal_us == goal_us);
        own.map(|(key, sample)| (key.round, *sample)).collect()
    };
    let first = planned.first().map_or("", String::as_str);
    let control = again(first);
    let ratio = |name: &str| {
        let baseline = samples_of(first);
        let ratios = samples_of(name).into_iter().filter_map(|(round, sample)| {
            let (_, base) = baseline.iter().find(|(base_round, _)| *base_round == round)?;
            Some(sample.per_s / base.per_s)
        });
        Estimate::of(&ratios.collect::<Vec<_>>(), seed)
    };
    let same = ratio(&control);
    let band = tie_band(same.as_ref());
    let row = |name: &String| {
        let own: Vec<&Sample> = samples_of(name).into_iter().map(|(_, sample)| sample).collect();
        let in_most_rounds =
            |is_so: &dyn Fn(&Sample) -> bool| own.iter().filter(|sample| is_so(sample)).count() * 2 > own.len();
        let Estimate { ratio: per_s, interval, rounds } =
            Estimate::of(&own.iter().map(|sample| sample.per_s).collect::<Vec<_>>(), seed)?;
        let ratio = ratio(name).filter(|_| name != first);
        let ends = [SearchEnd::Below, SearchEnd::Above];
        Some(CapacityRow {
            name: name.clone(),
            per_s,
            interval: (rounds >= MIN_ROUNDS).then_some(interval),
            rounds,
            verdict: ratio.filter(|_| *name != control).map(|ratio| ratio.verdict(&band)),
            ratio,
            cpu_us: median_of(own.iter().filter_map(|sample| sample.cpu_us)),
            end: ends.into_iter().find(|end| in_most_rounds(&|sample| sample.end == *end)),
            client_full: in_most_rounds(&|sample| sample.client_busy >= CLIENT_FULL),
            client_late: in_most_rounds(&|sample| is_client_late(sample.lateness_p99_us, goal_us as f64)),
        })
    };
    let mut rows: Vec<CapacityRow> = planned.iter().filter_map(row).collect();
    rows.sort_by(|a, b| {
        let is_control = |row: &CapacityRow| row.name == control;
        is_control(a).cmp(&is_control(b)).then(b.per_s.total_cmp(&a.per_s))
    });
    rows
}

impl Goal {
    pub(super) fn table(&self) -> Table {
        let header = [
            "#",
            "contestant",
            "req/s",
            "95 %",
            "ratio, 95 %",
            "verdict",
            "of limit",
            "CPU us/req at that rate",
            "notes",
        ];
        let mut table = Table::of_numbers(&header).with_texts_in(1).with_texts_in(5).with_texts_in(8);
        for (place, row) in self.rows.iter().enumerate() {
            let interval_text = |Interval { low, high }| format!("[{}, {}]", count(low), count(high));
            let interval = row.interval.map_or_else(|| "too few rounds".into(), interval_text);
            let bound = match row.end {
                Some(SearchEnd::Below) => "< ",
                Some(SearchEnd::Above) => ">= ",
                _ => "",
            };
            let ratio = row.ratio.map(|ratio| match row.interval {
                Some(_) => format!("{:.2} {}", ratio.ratio, ratio.interval),
                None => format!("{:.2}", ratio.ratio),
            });
            let verdict = match (row.verdict, row.ratio) {
                (Some(verdict), _) => verdict.in_words("more", "less"),
                (None, Some(_)) => "A/A",
                (None, None) => "baseline",
            };
            let notes = [(row.client_full, "client full"), (row.client_late, "client late")];
            let notes: Vec<&str> = notes.into_iter().filter_map(|(is_so, note)| is_so.then_some(note)).collect();
            let share = self.limit_per_s.map(|limit| format!("{:.2}", row.per_s / limit));
            table.row(vec![
                if verdict == "A/A" { String::new() } else { (place + 1).to_string() },
                row.name.clone(),
                format!("{bound}{}", count(row.per_s)),
                interval,
                or_empty(ratio),
                verdict.to_owned(),
                or_empty(share),
                or_empty(row.cpu_us.map(|cpu_us| format!("{cpu_us:.2}"))),
                notes.join(", "),
            ]);
        }
        table
    }

    /// The chart `p99 1.0 ms`: each capacity as a share of the null server's throughput; none if that is unknown. A contestant
    /// with too few rounds for an interval is left out.
    pub(super) fn chart(&self) -> Option<(String, Chart)> {
        let limit = self.limit_per_s.filter(|limit| *limit > 0.0)?;
        let row = |row: &CapacityRow| {
            let Interval { low, high } = row.interval?;
            let [ratio, low, high] = [row.per_s, low, high].map(|per_s| per_s / limit);
            let colour = if row.client_full { GREY } else { COLOURS[2] };
            let end = match row.end {
                Some(SearchEnd::Below) => " (less)",
                Some(SearchEnd::Above) => " (or more)",
                _ => "",
            };
            let name = format!("{}{end}", row.name);
            (low > 0.0).then_some(IntervalRow { name, colour, ratio, low, high, published: None })
        };
        let rows: Vec<IntervalRow> = self.rows.iter().filter_map(row).collect();
        let title = format!("Max rate of Poisson arrivals, {self}");
        let about = format!(
            "Chart: the max rate of Poisson arrivals with a {self} of {} contestants, as a share of the null server's throughput",
            rows.len()
        );
        let axis = format!("share of the null server's {} requests/s; grey: the client was full", count(limit));
        let name = format!("p99 {}", time_us(self.goal_us as f64));
        (!rows.is_empty()).then_some((name, Chart::Intervals(IntervalChart { title, about, axis, band: None, rows })))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for goal in &self.goals {
            writeln!(f, "max rate of Poisson arrivals with a {goal}:\n{}", goal.table())?;
        }
        if let Some(Limit { name, per_s }) = &self.limit {
            writeln!(f, "of limit: share of {name}'s {} req/s in closed loop", count(*per_s))?;
        }
        let rows = || self.goals.iter().flat_map(|goal| &goal.rows);
        if rows().any(|row| row.client_full) {
            writeln!(f, "client full: the client had no time left at that rate, so the server may be able to do more")?;
        }
        if rows().any(|row| row.client_late) {
            writeln!(f, "client late: the client's own lateness (p99) was above a tenth of the goal")?;
        }
        if rows().any(|row| row.interval.is_none()) {
            writeln!(f, "too few rounds for a verdict: {MIN_ROUNDS} are needed")?;
        }
        self.failed.iter().try_for_each(|failed| writeln!(f, "no figures: {}: {}", failed.key, failed.why))
    }
}
