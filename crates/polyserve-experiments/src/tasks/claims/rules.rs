//! The rules of the claims, and the thresholds of the rules. Each function states its rule.

use polyserve_lab::statistics::{ERROR_PROBABILITY, Estimate, Interval, MIN_ROUNDS, Resampled, median, median_of};

use super::super::figures::TaskFigures;
use super::super::growth::{MeanGrowth, SPLIT, TotalGrowth};
use super::super::measured::{Measured, MeasuredCell};
use super::super::published::{GO, GO_GC_OFF};
use super::super::runner::{CROSSBEAM_THREADS, STD_THREADS};
use super::cells::{
    MIN_OBSERVATIONS, above, all, in_order, median_figure, spread_of_durations, spread_of_starts, within,
};
use super::published_figures::{
    CLAIMED_COST_PCT, COST_MARGIN_PCT, NEARBY, PROFIT_MARGIN, TASKS, TOTAL_MARGIN, profit_share, speed_ratios,
};

/// The min duration of a task. A shorter task has too few time slices of the scheduler to show how they are divided.
pub const MIN_TASK_MS: f64 = 100.0;
/// The min share of its time that a task alone works. Below this share, other programs use its core.
pub const MIN_WORK_PCT: f64 = 90.0;
/// The max drift of a task alone. A larger drift measures changes of the machine.
pub const MAX_DRIFT_PCT: f64 = 10.0;
/// The max share of the cores' time for other processes. A larger share changes the durations.
pub const MAX_OTHERS_PCT: f64 = 10.0;
/// The undecided margin on both sides of a threshold, as a share of the capacity of the cores.
pub const NEAR: f64 = 0.025;
/// The undecided margin as a share of the possible gain of the cores.
pub const NEAR_SHARE: f64 = 0.01;

/// A spread is smaller than another if it is at most this share of the other spread.
pub const SMALLER: f64 = 0.8;

/// The verdict of a rule, and the figures that decide it.
pub(super) type Judged = (Option<bool>, String);

pub(super) struct Judge<'a> {
    pub(super) measured: &'a Measured,
    pub(super) cores: usize,
    /// The observations of scoped threads without batches, by the number of tasks.
    pub(super) rust: Vec<&'a MeasuredCell>,
    pub(super) go: Vec<&'a MeasuredCell>,
}

impl Judge<'_> {
    /// `holds`, unless the contestants' tasks were too short or the machine changed.
    fn unless_noisy(&self, names: &[&str], holds: Option<bool>, mut figure: String) -> Judged {
        for name in names {
            let cells = self.measured.all_at_once(name);
            let drift = self.measured.drift_pct(name);
            let others_pct = 100.0 * self.measured.others(name).unwrap_or(0.0);
            let why = match (cells.first(), drift) {
                (None, _) => format!("{name} has no figures"),
                (Some(cell), _) if cell.observed.alone.d1_ms < MIN_TASK_MS => {
                    format!("a task of {:.0} ms is too short to tell", cell.observed.alone.d1_ms)
                }
                (Some(cell), _) if 100.0 * cell.observed.alone.cpu1_ms < MIN_WORK_PCT * cell.observed.alone.d1_ms => {
                    let work = 100.0 * cell.observed.alone.cpu1_ms / cell.observed.alone.d1_ms;
                    format!("other processes used the cores: a task alone worked for {work:.0} % of its time")
                }
                _ if others_pct > MAX_OTHERS_PCT => {
                    format!("other processes used {others_pct:.0} % of the cores' time while {name} ran")
                }
                (_, None) => format!("the drift of {name} is not known"),
                (_, Some(drift)) if drift.abs() > MAX_DRIFT_PCT => format!("{name} drifted by {drift:+.1} %"),
                _ => continue,
            };
            figure = if figure.is_empty() { why } else { format!("{figure}; {why}") };
            return (None, figure);
        }
        (holds, figure)
    }

    fn ideal_pct(&self) -> f64 {
        100.0 * (1.0 - 1.0 / self.cores as f64)
    }

    /// The published 80 % are 0.914 of what 8 cores can gain. The equivalence interval is [`PROFIT_MARGIN`] to each side.
    /// The profit of a language is the median over all numbers of tasks from twice the cores on. Confirmed if both languages
    /// are within the interval by more than [`NEAR_SHARE`], refuted if one is outside by more. Undecided otherwise, and on one
    /// core.
    pub(super) fn profit(&self) -> Judged {
        let ideal = self.ideal_pct();
        let gained = |cells: &[&MeasuredCell]| {
            let profit = median_figure(&within(cells, 2 * self.cores..), |cell| cell.observed.figures.profit_pct);
            profit.filter(|_| self.cores > 1)
        };
        let (rust, go) = (gained(&self.rust), gained(&self.go));
        let is_equal_to_published =
            |profit: f64| above(PROFIT_MARGIN, (profit / ideal - profit_share()).abs(), NEAR_SHARE);
        let holds = rust.zip(go).and_then(|(rust, go)| all([is_equal_to_published(rust), is_equal_to_published(go)]));
        let share = |profit: Option<f64>| match profit {
            Some(profit) => format!("{:.3}", profit / ideal),
            None => String::from("unknown"),
        };
        let figure = format!(
            "shares {} in Rust and {} in Go of the possible {ideal:.1} % on {} cores",
            share(rust),
            share(go),
            self.cores
        );
        self.unless_noisy(&[STD_THREADS, GO], holds, figure)
    }

    /// The total of 40 tasks divided by the duration of a single task. It is no speed-up: the ideal is 40 divided by the
    /// number of cores. So the figure is the ratio to the ideal, the median of 36 to 40 tasks, here and in the published
    /// tables (1.05 in Go and 1.54 in Rust; for 40 tasks alone 1.16 and 1.55). The equivalence interval is
    /// [`TOTAL_MARGIN`] to each side. Confirmed if both languages are within it by more than [`NEAR`], refuted if one is
    /// outside by more, else undecided.
    pub(super) fn total_of_40(&self, [published_rust, published_go]: [f64; 2]) -> Judged {
        let to_ideal = |cells: &[&MeasuredCell]| {
            median_figure(&within(cells, NEARBY..=TASKS), |cell| {
                cell.observed.figures.total_duration_ms / cell.observed.alone.d1_ms * self.cores as f64
                    / cell.tasks as f64
            })
        };
        let (rust, go) = (to_ideal(&self.rust), to_ideal(&self.go));
        let is_equal_to_published = |own: f64, published: f64| above(TOTAL_MARGIN, (own - published).abs(), NEAR);
        let holds = rust.zip(go).and_then(|(rust, go)| {
            all([is_equal_to_published(rust, published_rust), is_equal_to_published(go, published_go)])
        });
        let times = |own: Option<f64>| own.map_or_else(|| "not known".into(), |times| format!("{times:.2}"));
        let figure = format!(
            "total to the ideal of {} cores, the medians of {NEARBY} to {TASKS} tasks: {} in Go and {} in Rust",
            self.cores,
            times(go),
            times(rust)
        );
        self.unless_noisy(&[STD_THREADS, GO], holds, figure)
    }

    /// Judges the medians of four to six tasks a core: the published 40 tasks on 8 cores are five. Refuted if waiting
    /// is at least half of the cost and the cores' extra work is less than a quarter of the cost. If the extra work is at
    /// least half of the cost, confirmed if the cost is within [`COST_MARGIN_PCT`] of the published one, else refuted.
    /// Otherwise undecided.
    pub(super) fn overhead(&self) -> Judged {
        let (least, most) = (4 * self.cores, 6 * self.cores);
        let cells = within(&self.rust, least..=most);
        let named: [fn(&TaskFigures) -> f64; 4] = [
            |figures| figures.cost_pct,
            |figures| figures.waiting_pct,
            |figures| figures.overhead_pct,
            |figures| figures.working_pct,
        ];
        let [Some(cost), Some(waiting), Some(overhead), Some(working)] =
            named.map(|figure| median_figure(&cells, |cell| figure(&cell.observed.figures)))
        else {
            return (None, format!("there are {} observations of {least} to {most} tasks", cells.len()));
        };
        let holds = match cost {
            cost if cost <= 0.0 => None,
            cost if overhead >= cost / 2.0 => Some((cost - CLAIMED_COST_PCT).abs() <= COST_MARGIN_PCT),
            cost if waiting >= cost / 2.0 && overhead < cost / 4.0 => Some(false),
            _ => None,
        };
        let overhead = (10.0 * overhead).round() / 10.0 + 0.0; // no negative zero
        let figure = format!(
            "{least} to {most} tasks on {} cores: {working:.0} % of the duration is work, {waiting:.0} % waiting for a core; \
             {overhead:.1} % is work beyond that of as many single tasks; {cost:.0} % is cost as published",
            self.cores
        );
        self.unless_noisy(&[STD_THREADS], holds, figure)
    }

    /// Compares two fits of the totals, from as many tasks as cores on: a line, and steps that rise with every further
    /// round of the cores. Confirmed if the line fits both languages clearly better than the steps, and explains at least
    /// 0.98 of their scatter. Refuted if the steps fit one language clearly better. Otherwise undecided. Needs eight numbers of
    /// tasks, of which four are no multiple of the cores.
    pub(super) fn linear(&self) -> Judged {
        let growth = |cells: &[&MeasuredCell]| {
            let total = |cell: &&MeasuredCell| (cell.tasks, cell.observed.figures.total_duration_ms);
            TotalGrowth::of(&cells.iter().map(total).collect::<Vec<_>>(), self.cores)
        };
        let (rust, go) = (growth(&self.rust), growth(&self.go));
        let holds = rust.as_ref().zip(go.as_ref()).and_then(|(rust, go)| match [rust, go] {
            both if both.iter().any(|growth| growth.is_in_steps()) => Some(false),
            both => both.iter().all(|growth| growth.is_linear() && growth.line.explained >= 0.98).then_some(true),
        });
        let [rust, go] = [rust, go]
            .map(|growth| growth.map_or_else(|| String::from("too few observations"), |growth| growth.to_string()));
        let figure = format!("Rust: {rust}; Go: {go}; {}", self.in_steps(growth));
        self.unless_noisy(&[STD_THREADS, GO], holds, figure)
    }

    /// The contestants that grow in steps: a pool with one worker for each core does.
    fn in_steps(&self, growth: impl Fn(&[&MeasuredCell]) -> Option<TotalGrowth>) -> String {
        let grows_in_steps =
            |name: &&str| growth(&self.measured.all_at_once(name)).is_some_and(|growth| growth.is_in_steps());
        let names: Vec<&str> = self.measured.contestants().into_iter().filter(grows_in_steps).collect();
        if names.is_empty() {
            String::from("no contestant grows in steps")
        } else {
            format!("in steps: {}", names.join(", "))
        }
    }

    /// Compares the growth of the mean duration of scoped threads from 20 tasks on with its growth between the number of
    /// cores and 20 tasks. Confirmed if it grows less than half as fast; refuted if at least 0.8 times as fast; else
    /// undecided. Also undecided if it does not grow up to 20 tasks, or a line explains less than 0.9 of its scatter: then
    /// there is nothing to compare with. Needs four numbers of tasks on each side.
    pub(super) fn flat(&self) -> Judged {
        let Some(growth) = self.mean_growth(&self.rust) else { return (None, too_few_on_one_side()) };
        let MeanGrowth { before, .. } = &growth;
        if before.slope <= 0.0 || before.explained < 0.9 {
            let why = format!("up to {SPLIT} it does not grow along a line, which explains {:.2}", before.explained);
            return self.unless_noisy(&[STD_THREADS], None, format!("{growth}; {why}"));
        }
        let holds = match growth.ratio() {
            ratio if ratio < 0.5 => Some(true),
            ratio if ratio >= 0.8 => Some(false),
            _ => None,
        };
        self.unless_noisy(&[STD_THREADS], holds, growth.to_string())
    }

    /// The growth of the mean duration of these cells.
    fn mean_growth(&self, cells: &[&MeasuredCell]) -> Option<MeanGrowth> {
        let mean = |cell: &&MeasuredCell| (cell.tasks, cell.observed.figures.mean_duration_ms);
        MeanGrowth::of(&cells.iter().map(mean).collect::<Vec<_>>(), self.cores)
    }

    /// The medians over all numbers of tasks from four times the cores on. Confirmed if Go's starts lie within 5 % of
    /// its total duration, and Rust's tasks start one by one: their numbers and starts have a rank correlation of 0.9,
    /// and the starts are spread wider than Go's. Refuted if a condition fails. Undecided if a figure is near its
    /// threshold: within a point of the 5 %, 0.02 of the 0.9, or a fifth of Go's spread.
    pub(super) fn starts(&self) -> Judged {
        let least = 4 * self.cores;
        let spread = |cell: &MeasuredCell| {
            let last = cell.observed.schedule.iter().map(|task| task.started_ms).fold(0.0, f64::max);
            100.0 * last / cell.observed.figures.total_duration_ms
        };
        let seen = |cells: &[&MeasuredCell]| {
            let cells = within(cells, least..);
            median_figure(&cells, spread).zip(median_figure(&cells, |cell| in_order(&cell.observed.schedule)))
        };
        let Some(((wide, order), (narrow, order_of_go))) = seen(&self.rust).zip(seen(&self.go)) else {
            return (None, format!("there are too few observations of {least} tasks or more of both"));
        };
        let holds = all([above(5.0, narrow, 1.0), above(order, 0.9, 0.02), above(wide, narrow, narrow / 5.0)]);
        let figure = format!(
            "from {least} tasks on the last starts after {narrow:.1} % of the total in Go and {wide:.1} % in Rust; rank \
             correlation of number and start {order:.2} in Rust, {order_of_go:.2} in Go"
        );
        self.unless_noisy(&[STD_THREADS, GO], holds, figure)
    }

    /// Go must have one to three threads more than cores, in the median over all observations from as many tasks as
    /// cores on. Rust must have exactly one thread more than tasks, in nine of ten observations of both kinds of scoped
    /// threads. Confirmed if both hold, otherwise refuted; undecided without counts of both languages. The length of a
    /// task and the drift do not matter.
    pub(super) fn threads(&self) -> Judged {
        let counts = |cells: &[&MeasuredCell]| -> Vec<(usize, u64)> {
            cells.iter().filter_map(|cell| Some((cell.tasks, cell.observed.threads?))).collect()
        };
        let go: Vec<(usize, u64)> = counts(&self.go).into_iter().filter(|(tasks, _)| *tasks >= self.cores).collect();
        let mut rust = counts(&self.rust);
        rust.extend(counts(&self.measured.all_at_once(CROSSBEAM_THREADS)));
        if go.len() < 3 || rust.len() < 3 {
            return (None, String::from("too few counts"));
        }
        let one_more = rust.iter().filter(|(tasks, threads)| *threads == *tasks as u64 + 1).count();
        let median = median_of(go.iter().map(|(_, threads)| *threads as f64)).unwrap_or(0.0);
        let (min, max) = (go.iter().map(|count| count.1).min(), go.iter().map(|count| count.1).max());
        let cores = self.cores as f64;
        let holds = (cores + 1.0..=cores + 3.0).contains(&median) && one_more * 10 >= rust.len() * 9;
        let (min, max) = (min.unwrap_or(0), max.unwrap_or(0));
        let range = if min == max { min.to_string() } else { format!("{min} to {max}, {median} in the median,") };
        let figure = format!(
            "Go {range} on {} cores, Rust one more than tasks in {one_more} of {} observations",
            self.cores,
            rust.len()
        );
        (Some(holds), figure)
    }

    /// The ratio of the total in batches to the total without batches, for Go and scoped threads. Confirmed if the
    /// median is at least 0.98, refuted if it is below 0.95, otherwise undecided. Needs four ratios, with batches of
    /// eight.
    pub(super) fn series(&self) -> Judged {
        const BATCH: usize = 8;
        let named = [STD_THREADS, CROSSBEAM_THREADS, GO];
        let cells = self.measured.cells.iter();
        let cells = cells.filter(|cell| cell.series == BATCH && named.contains(&cell.contestant.as_str()));
        let mut ratios: Vec<f64> = cells
            .filter_map(|cell| {
                let once = self.measured.cell(&cell.contestant, cell.tasks, 0)?;
                Some(cell.observed.figures.total_duration_ms / once.observed.figures.total_duration_ms)
            })
            .collect();
        if ratios.len() < 4 {
            return (None, format!("{} observations in batches of 8", ratios.len()));
        }
        let (count, ratio) = (ratios.len(), median(&mut ratios));
        let holds = match ratio {
            ratio if ratio >= 0.98 => Some(true),
            ratio if ratio < 0.95 => Some(false),
            _ => None,
        };
        let figure = format!("in batches of 8 the total is {ratio:.3} of all at once, the median of {count}");
        self.unless_noisy(&[STD_THREADS, GO], holds, figure)
    }

    /// The ratio of the steps per second of a single task in Rust to those in Go. Confirmed if the ratio is within
    /// [`speed_ratios`] by more than [`NEAR`], refuted if it is outside by more.
    pub(super) fn steps_per_second(&self) -> Judged {
        let [Some(rust), Some(go)] = [STD_THREADS, GO].map(|name| self.measured.speed(name)) else {
            return (None, String::from("there are no single runs of both languages"));
        };
        let (rust, go) = (rust.steps_per_s, go.steps_per_s);
        let ratio = rust / go;
        let Interval { low, high } = speed_ratios();
        let holds = all([above(ratio, low, NEAR), above(high, ratio, NEAR)]);
        let check = match self.measured.plan.as_ref().is_some_and(|plan| plan.check) {
            true => "with the check for convergence in each step",
            false => "without the published check for convergence in each step",
        };
        let figure =
            format!("ratio {ratio:.2}; {:.0} million in Rust and {:.0} million in Go, {check}", rust / 1e6, go / 1e6);
        self.unless_noisy(&[STD_THREADS, GO], holds, figure)
    }

    /// Fits a line to Go's mean durations from the number of cores on, and compares its slopes up to 20 tasks and from
    /// there on. Confirmed if the line explains 0.98 of their scatter and the slopes differ by less than a quarter.
    /// Refuted if one slope is twice the other or more, or if the mean duration does not grow. Needs four numbers of
    /// tasks on each side.
    pub(super) fn go_is_linear(&self) -> Judged {
        let Some(growth) = self.mean_growth(&self.go) else { return (None, too_few_on_one_side()) };
        let holds = match (growth.all.explained, growth.ratio()) {
            (explained, ratio) if explained >= 0.98 && (0.8..=1.25).contains(&ratio) => Some(true),
            (_, ratio) if !(0.5..2.0).contains(&ratio) => Some(false),
            _ => None,
        };
        self.unless_noisy(&[GO], holds, growth.to_string())
    }

    /// Compares the spreads of starts and of durations of `name` with the spreads of `other`. A spread is a standard
    /// deviation: of starts relative to the total, of durations relative to the mean duration. The share is the median
    /// of the ratios at each number of tasks from twice the cores on, with its 95 % interval.
    ///
    /// Confirmed if both intervals are below [`SMALLER`], refuted if both are above. Otherwise undecided, also with
    /// fewer than [`MIN_ROUNDS`] ratios. The deciding intervals have the error that Holm's procedure leaves among the
    /// claims of the article. (Starts one after the other, as claimed of Rust, are spread too.)
    pub(super) fn more_predictable<'a>(
        &'a self,
        name: &'static str,
        other: &'static str,
    ) -> Box<dyn Fn(f64) -> Judged + 'a> {
        let own = self.measured.all_at_once(name);
        let ratios = |spread: fn(&MeasuredCell) -> f64| -> Vec<f64> {
            let cells = within(&own, 2 * self.cores..).into_iter();
            cells.filter_map(|cell| Some(spread(cell) / spread(self.measured.cell(other, cell.tasks, 0)?))).collect()
        };
        let resampled = |spread| {
            Resampled::of(&ratios(spread), 0)
                .filter(|resampled| resampled.estimate(ERROR_PROBABILITY).rounds >= MIN_ROUNDS)
        };
        let Some((starts, durations)) = resampled(spread_of_starts).zip(resampled(spread_of_durations)) else {
            let least = 2 * self.cores;
            return Box::new(move |_| {
                (None, format!("too few observations of {least} tasks or more of both {name} and {other}"))
            });
        };
        let is_smaller = |Estimate { interval, .. }: Estimate| match interval {
            Interval { high, .. } if high < SMALLER => Some(true),
            Interval { low, .. } if low > SMALLER => Some(false),
            _ => None,
        };
        Box::new(move |error| {
            let [starts_at, durations_at] =
                [&starts, &durations].map(|resampled| is_smaller(resampled.estimate(error)));
            let holds = starts_at.filter(|smaller| durations_at == Some(*smaller));
            let [starts, durations] = [&starts, &durations].map(|resampled| resampled.estimate(ERROR_PROBABILITY));
            let figure = format!(
                "the spread of durations of {name} is {:.2} {} of that of {other}, the spread of starts {:.2} {}",
                durations.ratio, durations.interval, starts.ratio, starts.interval
            );
            self.unless_noisy(&[name, other], holds, figure)
        })
    }

    /// The total of two tasks or more, up to the number of cores, divided by a single task's duration, on threads and in
    /// Go. Confirmed if the median of both languages is at most 1.2, refuted if that of one is 1.5 or more. Undecided with fewer
    /// than three observations, and on one core.
    pub(super) fn parallel(&self) -> Judged {
        let crossbeam = self.measured.all_at_once(CROSSBEAM_THREADS);
        let to_single = |cells: &[&MeasuredCell]| -> Vec<f64> {
            let cells = within(cells, 2..=self.cores);
            cells.iter().map(|cell| cell.observed.figures.total_duration_ms / cell.observed.alone.d1_ms).collect()
        };
        let mut rust = [to_single(&self.rust), to_single(&crossbeam)].concat();
        let mut go = [to_single(&self.go), to_single(&self.measured.all_at_once(GO_GC_OFF))].concat();
        if rust.len() + go.len() < MIN_OBSERVATIONS || rust.is_empty() || go.is_empty() {
            return (None, format!("too few observations of 2 to {} tasks", self.cores));
        }
        let (rust, go) = (median(&mut rust), median(&mut go));
        let holds = match rust.max(go) {
            worse if worse <= 1.2 => Some(true),
            worse if worse >= 1.5 => Some(false),
            _ => None,
        };
        let tasks = if self.cores > 2 { format!("2 to {} tasks", self.cores) } else { String::from("2 tasks") };
        let figure = format!("{tasks} at once take {rust:.2} single tasks in Rust and {go:.2} in Go, the medians");
        self.unless_noisy(&[STD_THREADS, GO], holds, figure)
    }
}

fn too_few_on_one_side() -> String {
    format!("too few observations on one side of {SPLIT} tasks")
}
