//! Made-up records: a machine with two cores on which every claim holds, and changed copies.

use polyserve_lab::experiment::{Absence, Records};
use polyserve_lab::fixtures;
use polyserve_lab::journal::{Header, as_line};
use polyserve_report::ClaimVerdict;
use serde_json::{Value, json};

use super::cells::in_order;
use super::*;
use crate::tasks::experiment::CpuTasks;
use crate::tasks::figures::{Alone, Scheduled, TaskFigures};
use crate::tasks::measured::{MeasuredCell, MissingFigure, Single, SingleRun};
use crate::tasks::record::{
    Calibration, CellTasks, CpuScope, EXPERIMENT, Key, Observation, Sequence, TaskSettings, When,
};
use crate::tasks::runner::RAYON;
use crate::tasks::sequence::{SequenceLimit, TermOrder};

const CORES: usize = 2;
const MAX_TASKS: usize = 40;
/// An eighth of the steps in Rust.
const GO_STEPS: u64 = 125;

/// The behaviour of a simulated contestant.
pub(in crate::tasks) struct Simulated {
    pub(in crate::tasks) name: &'static str,
    pub(in crate::tasks) d1_ms: f64,
    pub(in crate::tasks) d1_after_ms: f64,
    /// The CPU time of a task alone, as a share of d1.
    pub(in crate::tasks) work: f64,
    /// Tasks that are done per d1 and core at full load.
    pub(in crate::tasks) per_core: f64,
    /// The factor by which the CPU time of a task exceeds that of a task alone.
    pub(in crate::tasks) extra: f64,
    pub(in crate::tasks) in_steps: bool,
    /// The number of tasks from which the mean duration no longer grows.
    pub(in crate::tasks) flat_from: usize,
    /// By how much later each task starts.
    pub(in crate::tasks) later_ms: f64,
    pub(in crate::tasks) threads: fn(usize) -> u64,
    /// The total with batches divided by the total without.
    pub(in crate::tasks) batches: f64,
    /// The standard deviation of the durations, as a share of their mean.
    pub(in crate::tasks) spread: f64,
    /// The share of the cores' time that other processes use.
    pub(in crate::tasks) others: f64,
}

impl Simulated {
    /// All claims hold except three. The overhead is in fact waiting. 40 tasks take less than 1.55 times the ideal: at
    /// 1.55 times, two cores gain nothing. And starts in order, as in Rust, are spread.
    pub(in crate::tasks) fn fair() -> Vec<Self> {
        let rust = Self {
            name: STD_THREADS,
            d1_ms: 500.0,
            d1_after_ms: 505.0,
            work: 1.0,
            per_core: 0.95,
            extra: 0.02,
            in_steps: false,
            flat_from: 20,
            later_ms: 60.0,
            threads: |tasks| tasks as u64 + 1,
            batches: 1.0,
            spread: 0.1,
            others: 0.02,
        };
        let go = Self { name: GO, per_core: 0.9, later_ms: 1.0, threads: |_| 4, flat_from: 99, ..rust.like() };
        let gc_off = Self { name: GO_GC_OFF, later_ms: 0.5, spread: 0.05, ..go.like() };
        vec![rust, go, gc_off]
    }

    fn like(&self) -> Self {
        Self { ..*self }
    }

    fn cell(&self, tasks: usize, series: usize) -> MeasuredCell {
        let rounds = if self.in_steps { tasks.div_ceil(CORES) as f64 } else { (tasks as f64 / CORES as f64).max(1.0) };
        let batches = if series > 0 { self.batches } else { 1.0 };
        let total = self.d1_ms * rounds / if tasks == 1 { 1.0 } else { self.per_core } * batches;
        let mean = self.d1_ms * (tasks.min(self.flat_from) as f64 / CORES as f64).max(1.0);
        let schedule: Vec<Scheduled> = (1..=tasks)
            .map(|task| {
                let started_ms = self.later_ms * (task - 1) as f64;
                let finished_ms = if task == tasks { total } else { started_ms + mean };
                Scheduled { task, submitted_ms: 0.0, started_ms, finished_ms, cpu_ms: None }
            })
            .collect();
        let alone = Alone { d1_ms: self.d1_ms, cpu1_ms: self.d1_ms * self.work };
        let cpu_ms = tasks as f64 * self.d1_ms * (1.0 + self.extra);
        let figures = TaskFigures {
            total_duration_ms: total,
            mean_duration_ms: mean,
            ..TaskFigures::of(&schedule, cpu_ms, alone)
        };
        let figures = TaskFigures { std_dev_ms: self.spread * mean, ..figures };
        let figures = TaskFigures { profit_pct: 100.0 * (1.0 - total / (tasks as f64 * self.d1_ms)), ..figures };
        let (contestant, cpu_of, threads) = (self.name.to_owned(), CpuScope::Process, Some((self.threads)(tasks)));
        let others = Some(self.others);
        let observed = Observation { figures, alone, cpu_of, threads, others, schedule };
        MeasuredCell { tasks, contestant, series, observed }
    }
}

/// The record of such contestants, up to [`MAX_TASKS`] tasks.
pub(in crate::tasks) fn lines(contestants: &[Simulated]) -> Vec<Value> {
    let plan = TaskSettings {
        contestants: contestants.iter().map(|contestant| contestant.name.to_owned()).collect(),
        task_ms: 500.0,
        steps: None,
        check: false,
        counts: (1..=MAX_TASKS).collect(),
        series: 8,
        seed: 0,
        order: TermOrder::AsDescribed,
        cores: "0,1".into(),
        core_count: CORES,
        workers: CORES,
    };
    let plan = serde_json::to_value(plan).unwrap();
    let header = fixtures::header(EXPERIMENT, plan);
    let mut lines = vec![line(Header::KIND, &header)];
    let calibration = Calibration { steps: 1000, measured_ms: 500.0, contestant: STD_THREADS.into() };
    lines.push(line("calibration", &calibration));
    let go = Calibration { steps: GO_STEPS, measured_ms: 500.0, contestant: GO.into() };
    lines.push(line("calibration", &go));
    let limit = Some(SequenceLimit { limit: 0.5, step: 7 });
    lines.push(line("sequence", &Sequence::new(1, 1000, [0.1, 0.2, 0.3], 0.5, limit)));
    lines.push(line("sequence", &Sequence::new(2, 1000, [0.1, 0.2, 0.4], 0.6, None)));
    for simulated in contestants {
        for (when, duration_ms) in [(When::Before, simulated.d1_ms), (When::After, simulated.d1_after_ms)] {
            let contestant = simulated.name.to_owned();
            lines.push(line(
                "cell",
                &Single { contestant, when, run: 1, duration_ms, cpu_ms: simulated.d1_ms * simulated.work },
            ));
        }
        lines.extend((1..=MAX_TASKS).map(|tasks| line("cell", &simulated.cell(tasks, 0))));
        lines.extend([16, 24, 32, 40].map(|tasks| line("cell", &simulated.cell(tasks, 8))));
    }
    let why = String::from("it had no time");
    let failed = MissingFigure { contestant: RAYON.into(), tasks: None, series: 0, single: None, why, wrong: false };
    lines.push(failure_line(failed));
    lines
}

/// The line of a contestant without a figure.
pub(in crate::tasks) fn failure_line(failed: MissingFigure) -> Value {
    let MissingFigure { contestant, tasks, series, single, why, wrong } = failed;
    let step = match (tasks, single) {
        (Some(tasks), _) => CellTasks::Cell { tasks, series },
        (None, Some(SingleRun { when, run })) => CellTasks::Single { when, run },
        (None, None) => CellTasks::All {},
    };
    let absence = if wrong { Absence::wrong(why) } else { Absence::failed(why) };
    let mut line = line("failure", &Key { contestant, step });
    let absence = serde_json::to_value(absence).unwrap();
    line.as_object_mut().unwrap().extend(absence.as_object().unwrap().clone());
    line
}

fn line(kind: &str, value: &impl serde::Serialize) -> Value {
    as_line(kind, value).unwrap()
}

/// Reads a record.
pub(in crate::tasks) fn measured(lines: &[Value]) -> Measured {
    Measured::of(&Records::<CpuTasks>::of(lines).unwrap()).unwrap()
}

fn claims(lines: &[Value]) -> anyhow::Result<Vec<Claim>> {
    super::verdicts(&measured(lines))
}

fn verdicts(contestants: &[Simulated]) -> [ClaimVerdict; 13] {
    let claims = claims(&lines(contestants)).unwrap();
    let verdicts: Vec<ClaimVerdict> = claims.iter().map(|claim| claim.verdict).collect();
    verdicts.try_into().unwrap()
}

use ClaimVerdict::{Confirmed, Refuted, Undecided};

#[test]
fn a_record_where_all_is_as_claimed() {
    let claims = claims(&lines(&Simulated::fair())).unwrap();
    for (place, claim) in claims.iter().enumerate() {
        assert_eq!(claim.experiment, "tasks");
        assert_eq!(claim.verdict, if [1, 2, 10].contains(&place) { Refuted } else { Confirmed }, "{claim:?}");
        assert!(claim.figure.chars().any(char::is_numeric), "{claim:?}");
    }
}

#[test]
fn a_record_where_nothing_is_as_claimed() {
    let [rust, go, gc_off] = <[Simulated; 3]>::try_from(Simulated::fair()).ok().unwrap();
    let rust = Simulated {
        per_core: 0.5,
        extra: 4.0,
        in_steps: true,
        flat_from: 99,
        later_ms: 0.0,
        threads: |_| 2,
        batches: 0.8,
        ..rust
    };
    let go = Simulated { batches: 0.8, flat_from: 20, d1_ms: 62.5 * 2.0, d1_after_ms: 125.0, per_core: 0.5, ..go };
    let gc_off = Simulated {
        later_ms: go.later_ms,
        spread: go.spread,
        per_core: 0.5,
        d1_ms: 125.0,
        d1_after_ms: 125.0,
        ..gc_off
    };
    let all = verdicts(&[rust, go, gc_off]);
    assert_eq!(all[..8], [Refuted, Refuted, Confirmed, Refuted, Refuted, Refuted, Refuted, Refuted]);
    // Rust starts all at once here, and its durations are spread as in Go.
    assert_eq!(all[8..], [Refuted, Refuted, Undecided, Refuted, Refuted]);
}

/// Only the number of threads does not depend on time.
#[test]
fn what_is_too_short_disturbed_drifts_or_is_missing_decides_nothing() {
    let mut but_threads = [Undecided; 13];
    but_threads[6] = Confirmed;
    let mut short = Simulated::fair();
    short.iter_mut().for_each(|contestant| (contestant.d1_ms, contestant.d1_after_ms) = (25.0, 25.0));
    assert_eq!(verdicts(&short), but_threads);
    let mut disturbed = Simulated::fair();
    disturbed.iter_mut().for_each(|contestant| contestant.work = 0.5);
    assert_eq!(verdicts(&disturbed), but_threads);
    let mut shared = Simulated::fair();
    shared.iter_mut().for_each(|contestant| contestant.others = 0.12);
    assert_eq!(verdicts(&shared), but_threads);
    let mut drifted = Simulated::fair();
    drifted.iter_mut().for_each(|contestant| contestant.d1_after_ms = contestant.d1_ms * 1.2);
    assert_eq!(verdicts(&drifted), but_threads);
    for claim in claims(&lines(&drifted)).unwrap().iter().filter(|claim| claim.verdict == Undecided) {
        assert!(claim.figure.contains("drifted by +20.0 %"), "{claim:?}");
    }
    let rust = Simulated::fair().remove(0);
    let alone = verdicts(&[rust]);
    assert_eq!(alone[..8], [Undecided, Undecided, Refuted, Undecided, Confirmed, Undecided, Undecided, Undecided]);
    assert_eq!(alone[8..], [Undecided; 5]);
    let header = &lines(&Simulated::fair())[..1];
    assert!(claims(header).unwrap().iter().all(|claim| claim.verdict == Undecided));
    assert!(super::verdicts(&Measured::default()).unwrap().iter().all(|claim| claim.verdict == Undecided));
}

#[test]
fn a_total_of_40_tasks_as_published() {
    for (go, total) in [(0.95, Confirmed), (0.87, Undecided), (0.8, Refuted), (0.7, Refuted)] {
        let mut contestants = Simulated::fair();
        (contestants[0].per_core, contestants[1].per_core) = (0.644, go);
        assert_eq!(verdicts(&contestants)[..2], [Refuted, total], "{go}");
    }
}

/// Extra work is the claimed overhead only if it takes about as much of the time as claimed.
#[test]
fn an_overhead_has_the_published_size() {
    for (flat_from, extra, verdict) in [(20, 4.0, Confirmed), (4, 0.9, Refuted), (20, 0.0, Refuted)] {
        let mut contestants = Simulated::fair();
        (contestants[0].flat_from, contestants[0].extra) = (flat_from, extra);
        assert_eq!(verdicts(&contestants)[2], verdict, "{flat_from}, {extra}");
    }
}

/// Figures between both bounds are undecided too.
#[test]
fn between_the_bounds_nothing_is_decided() {
    let mut contestants = Simulated::fair();
    contestants.iter_mut().for_each(|contestant| contestant.batches = 0.965);
    contestants[0].extra = 1.5;
    let of_bounds = verdicts(&contestants);
    assert_eq!((of_bounds[2], of_bounds[7]), (Undecided, Undecided));
    // The shares of the possible gain of two cores are 0.89, 0.86, 0.80, 0.97 and 1. The published share is 0.91.
    for (per_core, profit) in
        [(0.9, Confirmed), (0.877, Undecided), (0.833, Refuted), (0.97, Undecided), (1.0, Refuted)]
    {
        let mut contestants = Simulated::fair();
        contestants[1].per_core = per_core;
        assert_eq!(verdicts(&contestants)[0], profit, "{per_core}");
    }
    // The last of Go's tasks starts after 0.3, 4.8 and 9.7 % of the total.
    for (later_ms, starts) in [(1.0, Confirmed), (14.0, Undecided), (28.0, Refuted)] {
        let mut contestants = Simulated::fair();
        contestants[1].later_ms = later_ms;
        assert_eq!(verdicts(&contestants)[5], starts, "{later_ms}");
    }
}

#[test]
fn the_published_speeds_are_judged_from_both_sides() {
    // The ratio of the speeds is 8 times that of the durations alone; published is 8.3.
    for (slower, speed) in [(1.0, Confirmed), (0.5, Refuted), (2.0, Refuted), (0.583, Undecided)] {
        let mut contestants = Simulated::fair();
        (contestants[1].d1_ms, contestants[1].d1_after_ms) = (500.0 * slower, 500.0 * slower);
        assert_eq!(verdicts(&contestants)[8], speed, "{slower}");
    }
}

#[test]
fn a_mean_duration_in_go_that_bends_is_not_linear() {
    for (flat_from, linear) in [(99, Confirmed), (34, Undecided), (20, Refuted)] {
        let mut contestants = Simulated::fair();
        contestants[1].flat_from = flat_from;
        assert_eq!(verdicts(&contestants)[9], linear, "{flat_from}");
    }
    let means: [fn(u64) -> f64; 2] =
        [|_| 1000.0, |tasks| 100.0 * tasks as f64 + if tasks % 2 == 0 { 900.0 } else { 0.0 }];
    for (mean, linear) in means.into_iter().zip([Refuted, Undecided]) {
        let lines = changed(&Simulated::fair(), |name, tasks, line| {
            if name == GO {
                line["mean_duration_ms"] = json!(mean(tasks));
            }
        });
        let claim = &claims(&lines).unwrap()[9];
        assert_eq!(claim.verdict, linear, "{claim:?}");
    }
}

#[test]
fn a_schedule_is_more_predictable_by_both_spreads() {
    let cases = [(0.5, 0.05, Confirmed), (1.0, 0.1, Refuted), (0.5, 0.1, Undecided), (1.0, 0.05, Undecided)];
    for (later_ms, spread, predictable) in cases {
        for (place, claim) in [(0, 10), (2, 11)] {
            let mut contestants = Simulated::fair();
            // All have the same totals.
            (contestants[0].per_core, contestants[place].later_ms, contestants[place].spread) =
                (contestants[1].per_core, later_ms, spread);
            assert_eq!(verdicts(&contestants)[claim], predictable, "{claim}: {later_ms} {spread}");
        }
    }
}

/// At some numbers of tasks the spread is smaller, at others it is larger.
#[test]
fn spreads_that_differ_by_chance_decide_nothing() {
    let mixed = changed(&Simulated::fair(), |name, tasks, line| {
        if name == GO_GC_OFF {
            line["std_dev_ms"] = json!(line["std_dev_ms"].as_f64().unwrap() * if tasks % 2 == 0 { 1.0 } else { 3.0 });
        }
    });
    let claim = &claims(&mixed).unwrap()[11];
    assert!(claim.verdict == Undecided && claim.figure.contains("the spread of durations"), "{claim:?}");
    let mut few = lines(&Simulated::fair());
    few.retain(|line| line["tasks"].as_u64().is_none_or(|tasks| tasks < 10));
    let claim = &claims(&few).unwrap()[11];
    assert!(claim.verdict == Undecided && claim.figure.contains("too few observations of 4 tasks"), "{claim:?}");
}

/// Totals half way between a line and steps decide for neither.
#[test]
fn a_line_and_steps_that_fit_alike_decide_nothing() {
    let between = |share: f64| {
        changed(&Simulated::fair(), |name, tasks, line| {
            if name == STD_THREADS {
                let rounds = tasks as f64 / 2.0 + if tasks % 2 == 1 && tasks > 1 { share / 2.0 } else { 0.0 };
                line["total_duration_ms"] = json!(rounds * 500.0 / 0.95);
            }
        })
    };
    for (share, linear) in [(0.0, Confirmed), (0.5, Undecided), (1.0, Refuted)] {
        let claim = &claims(&between(share)).unwrap()[3];
        assert_eq!(claim.verdict, linear, "{share}: {claim:?}");
    }
}

#[test]
fn two_tasks_on_two_cores_take_as_long_as_one() {
    for (per_core, parallel) in [(0.95, Confirmed), (0.75, Undecided), (0.5, Refuted)] {
        let mut contestants = Simulated::fair();
        (contestants[1].per_core, contestants[2].per_core) = (per_core, per_core);
        assert_eq!(verdicts(&contestants)[12], parallel, "{per_core}");
    }
}

/// The record of such contestants, where `change` was made to the cells of all at once.
fn changed(contestants: &[Simulated], change: impl Fn(&str, u64, &mut Value)) -> Vec<Value> {
    let mut lines = lines(contestants);
    for line in lines.iter_mut().filter(|line| line["kind"] == "cell" && line["series"] == 0) {
        let (name, tasks) = (line["contestant"].as_str().unwrap().to_owned(), line["tasks"].as_u64().unwrap());
        change(&name, tasks, line);
    }
    lines
}

/// The neighbours of a disturbed run outvote it. A single run decides nothing.
#[test]
fn one_observation_decides_nothing() {
    let mut contestants = Simulated::fair();
    (contestants[0].per_core, contestants[1].per_core) = (0.644, 0.95);
    let disturbed = changed(&contestants, |_, tasks, line| {
        if [10, 40].contains(&tasks) {
            line["total_duration_ms"] = json!(99e3);
            line["overhead_pct"] = json!(70.0);
            for task in line["schedule"].as_array_mut().unwrap() {
                task["started_ms"] = json!(50.0 - task["task"].as_f64().unwrap());
            }
        }
    });
    let verdicts = |lines: &[Value]| -> [ClaimVerdict; 3] {
        let claims = claims(lines).unwrap();
        [1, 2, 5].map(|place| claims[place].verdict)
    };
    assert_eq!(verdicts(&lines(&contestants)), [Confirmed, Refuted, Confirmed]);
    assert_eq!(verdicts(&disturbed), [Confirmed, Refuted, Confirmed]);
    let mut few = lines(&contestants);
    few.retain(|line| line["tasks"].as_u64().is_none_or(|tasks| [1, 10, 40].contains(&tasks)));
    assert_eq!(verdicts(&few), [Undecided; 3]);
}

/// A curve that did not grow cannot flatten.
#[test]
fn without_growth_before_nothing_is_flat() {
    let means: [fn(u64) -> f64; 3] = [
        |tasks| 5000.0 - 100.0 * tasks.min(20) as f64,
        |_| 1000.0,
        // Up and down, and a little upwards.
        |tasks| 1000.0 + tasks.min(20) as f64 + if tasks % 2 == 0 { 200.0 } else { 0.0 },
    ];
    for mean in means {
        let lines = changed(&Simulated::fair(), |name, tasks, line| {
            if name == STD_THREADS {
                line["mean_duration_ms"] = json!(mean(tasks));
            }
        });
        let claim = &claims(&lines).unwrap()[4];
        assert!(claim.verdict == Undecided && claim.figure.contains("does not grow along a line"), "{claim:?}");
    }
}

#[test]
fn starts_in_order() {
    let schedule = |starts: &[f64]| -> Vec<Scheduled> {
        let task = |(started_ms, task): (&f64, usize)| Scheduled {
            task,
            submitted_ms: 0.0,
            started_ms: *started_ms,
            finished_ms: 99.0,
            cpu_ms: None,
        };
        starts.iter().zip(1..).map(task).collect()
    };
    assert_eq!(in_order(&schedule(&[1.0, 2.0, 3.0, 4.0])), 1.0);
    assert_eq!(in_order(&schedule(&[4.0, 3.0, 2.0, 1.0])), -1.0);
    assert!((in_order(&schedule(&[2.0, 1.0, 3.0, 4.0])) - 0.8).abs() < 1e-9);
}
