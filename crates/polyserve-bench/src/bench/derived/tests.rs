//! The claims about tasks on made-up records: a machine with two cores on which every claim holds, and changed copies.

use std::collections::BTreeMap;
use std::path::Path;

use super::*;
use crate::bench::Definition;
use crate::bench::mode::tasks::named;
use crate::bench::published::PublishedLine;
use crate::claim::ClaimSet;
use crate::report::{Claim, ClaimVerdict};
use crate::statistics::median_of;
use crate::tasks::figures::{Alone, Scheduled, TaskFigures};
use crate::tasks::table::STEPS_PER_S;

const RUST: &str = "twin/crossbeam_scope";
const GO_LISTING: &str = "go/listing";
const GO_GC_OFF: &str = "go/listing_gc_off";
/// The number of cores of the published figures.
const PUBLISHED_CORES: usize = 8;
const CORES: usize = 2;
const MAX_TASKS: usize = 40;
/// An eighth of the steps in Rust.
const GO_STEPS: u64 = 125;

/// The behaviour of a simulated contestant.
struct Simulated {
    name: &'static str,
    d1_ms: f64,
    d1_after_ms: f64,
    /// The CPU time of a task alone, as a share of d1.
    work: f64,
    /// Tasks that are done per d1 and core at full load.
    per_core: f64,
    /// The factor by which the CPU time of a task exceeds that of a task alone.
    extra: f64,
    in_steps: bool,
    /// The number of tasks from which the mean duration no longer grows.
    flat_from: usize,
    /// By how much later each task starts.
    later_ms: f64,
    threads: fn(usize) -> u64,
    /// The total with batches divided by the total without.
    batches: f64,
    /// The standard deviation of the durations, as a share of their mean.
    spread: f64,
    /// The share of the cores' time that other processes use.
    others: f64,
}

impl Simulated {
    /// The claims hold except [`REFUTED`]. The overhead is in fact waiting. 40 tasks in Rust take less than 1.54 times the
    /// ideal: at 1.54 times, two cores gain less. Durations are spread as in Go. And starts in order are spread.
    fn fair() -> Vec<Self> {
        let rust = Self {
            name: RUST,
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
        let go = Self { name: GO_LISTING, per_core: 0.9, later_ms: 1.0, threads: |_| 4, flat_from: 99, ..rust.like() };
        let gc_off = Self { name: GO_GC_OFF, later_ms: 0.5, spread: 0.05, ..go.like() };
        vec![rust, go, gc_off]
    }

    fn like(&self) -> Self {
        Self { ..*self }
    }

    fn row(&self, tasks: usize, series: usize) -> ClaimRow {
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
        let seen = (Some((self.threads)(tasks)), Some(self.others));
        let row = ClaimRow { figures: named(&figures, &schedule, alone, CORES, seen), ..ClaimRow::new(self.name, 1) };
        row.at("tasks", tasks as f64).at("series", series as f64)
    }
}

/// The record of contestants.
struct Recorded {
    rows: Vec<ClaimRow>,
    singles: Vec<Single>,
}

/// The record of such contestants, up to [`MAX_TASKS`] tasks.
fn recorded(contestants: &[Simulated]) -> Recorded {
    let mut recorded = Recorded { rows: Vec::new(), singles: Vec::new() };
    for simulated in contestants {
        for (after, duration_ms) in [(false, simulated.d1_ms), (true, simulated.d1_after_ms)] {
            let (contestant, cpu_ms) = (simulated.name.to_owned(), simulated.d1_ms * simulated.work);
            recorded.singles.push(Single { contestant, after, run: 1, duration_ms, cpu_ms });
        }
        recorded.rows.extend((1..=MAX_TASKS).map(|tasks| simulated.row(tasks, 0)));
        recorded.rows.extend([16, 24, 32, 40].map(|tasks| simulated.row(tasks, 8)));
    }
    recorded
}

fn definition() -> Definition {
    Definition::parse(Path::new("tasks.toml"), include_str!("../../../defs/tasks.toml"), &[]).unwrap()
}

/// The verdicts of the command's definition.
fn claims(recorded: &Recorded) -> Vec<Claim> {
    let calibration =
        |contestant: &str, steps| Calibration { steps, measured_ms: 500.0, contestant: contestant.into() };
    let calibrations = [calibration(RUST, 1000), calibration(GO_LISTING, GO_STEPS)];
    let rows = of_tasks(&recorded.rows, &recorded.singles, &calibrations);
    let set = ClaimSet { name: "tasks".into(), baseline: None, claims: definition().claims };
    set.verdicts(&rows, 0)
}

/// A change of a contestant after which its times decide nothing, and why.
type Disturbance = (fn(&mut Simulated), &'static str);
/// The place of a claim, a change of the contestants by a number, and the verdicts at some numbers.
type ClaimCase = (usize, fn(&mut [Simulated], f64), &'static [(f64, ClaimVerdict)]);

/// The number of claims.
const CLAIMS: usize = 18;
/// The claims that [`Simulated::fair`] refutes: the total of 40 tasks in Rust, the overhead, and Rust's predictability.
const REFUTED: [usize; 4] = [2, 3, 13, 14];
/// The claims about numbers of threads, which do not depend on time.
const THREADS: [usize; 2] = [8, 9];

fn verdicts(contestants: &[Simulated]) -> [ClaimVerdict; CLAIMS] {
    verdicts_of(&recorded(contestants))
}

fn verdicts_of(recorded: &Recorded) -> [ClaimVerdict; CLAIMS] {
    let verdicts: Vec<ClaimVerdict> = claims(recorded).iter().map(|claim| claim.verdict).collect();
    verdicts.try_into().unwrap()
}

use ClaimVerdict::{Confirmed, Refuted, Undecided};

#[test]
fn a_record_where_all_is_as_claimed() {
    for (place, claim) in claims(&recorded(&Simulated::fair())).iter().enumerate() {
        assert_eq!(claim.experiment, "tasks");
        assert_eq!(claim.verdict, if REFUTED.contains(&place) { Refuted } else { Confirmed }, "{claim:?}");
        assert!(claim.figure.chars().any(char::is_numeric), "{claim:?}");
    }
}

#[test]
fn a_record_where_nothing_is_as_claimed() {
    let [rust, go, gc_off] = <[Simulated; 3]>::try_from(Simulated::fair()).ok().unwrap();
    let slow = |one: Simulated| Simulated { per_core: 0.5, batches: 0.8, ..one };
    let rust = Simulated { in_steps: true, flat_from: 99, later_ms: -1.0, threads: |_| 2, ..slow(rust) };
    let short = |one: Simulated| Simulated { d1_ms: 125.0, d1_after_ms: 125.0, later_ms: 28.0, ..slow(one) };
    let go = Simulated { flat_from: 20, threads: |_| 9, ..short(go) };
    let gc_off = Simulated { spread: go.spread, ..short(gc_off) };
    for (place, claim) in claims(&recorded(&[rust, go, gc_off])).iter().enumerate() {
        // Rust starts all at once here, in the wrong order.
        assert_eq!(claim.verdict, if place == 14 { Confirmed } else { Refuted }, "{claim:?}");
    }
}

#[test]
fn what_is_too_short_disturbed_drifts_or_is_missing_decides_nothing() {
    let mut but_threads = [Undecided; CLAIMS];
    THREADS.iter().for_each(|place| but_threads[*place] = Confirmed);
    let changes: [Disturbance; 4] = [
        (|one| (one.d1_ms, one.d1_after_ms) = (25.0, 25.0), "a task of 25 ms is too short to tell"),
        (|one| one.work = 0.5, "a task alone worked for 50 % of its time"),
        (|one| one.others = 0.12, "other processes used 12 % of the cores' time"),
        (|one| one.d1_after_ms = one.d1_ms * 1.2, "it drifted by +20.0 %"),
    ];
    for (change, why) in changes {
        let mut contestants = Simulated::fair();
        contestants.iter_mut().for_each(change);
        assert_eq!(verdicts(&contestants), but_threads, "{why}");
        let claims = claims(&recorded(&contestants));
        let undecided = claims.iter().filter(|claim| claim.verdict == Undecided);
        undecided.for_each(|claim| assert!(claim.figure.contains(why), "{claim:?}"));
    }
    let alone = verdicts(&Simulated::fair()[..1]);
    let decided = [(2, Refuted), (3, Refuted), (5, Confirmed), (7, Confirmed), (9, Confirmed)];
    let mut expected = [Undecided; CLAIMS];
    decided.into_iter().for_each(|(place, verdict)| expected[place] = verdict);
    assert_eq!(alone, expected, "without Go");
    assert_eq!(verdicts(&[]), [Undecided; CLAIMS]);
}

/// Each claim that one figure of one contestant decides can come out three ways.
#[test]
fn a_claim_has_three_verdicts() {
    let cases: [ClaimCase; 9] = [
        // The shares of the possible gain of two cores are 0.89, 0.86, 0.80, 0.97 and 1. The published share is 0.91.
        (
            0,
            |all, x| all[1].per_core = x,
            &[(0.9, Confirmed), (0.877, Undecided), (0.833, Refuted), (0.97, Undecided), (1.0, Refuted)],
        ),
        (1, |all, x| all[1].per_core = x, &[(0.95, Confirmed), (0.87, Undecided), (0.8, Refuted)]),
        (2, |all, x| all[0].per_core = x, &[(0.65, Confirmed), (0.69, Undecided), (0.5, Refuted)]),
        (3, |all, x| (all[0].flat_from, all[0].extra) = (4, x), &[(1.75, Confirmed), (1.5, Undecided), (0.9, Refuted)]),
        // The last of Go's tasks starts after 0.3, 4.8 and 9.7 % of the total.
        (6, |all, x| all[1].later_ms = x, &[(1.0, Confirmed), (14.0, Undecided), (28.0, Refuted)]),
        (10, |all, x| all[1].batches = x, &[(1.0, Confirmed), (0.965, Undecided), (0.9, Refuted)]),
        // The ratio of the speeds is 8 times that of the durations alone.
        (
            11,
            |all, x| (all[1].d1_ms, all[1].d1_after_ms) = (500.0 * x, 500.0 * x),
            &[(1.0, Confirmed), (0.5, Refuted), (2.0, Refuted), (0.583, Undecided)],
        ),
        (12, |all, x| all[1].flat_from = x as usize, &[(99.0, Confirmed), (30.0, Undecided), (20.0, Refuted)]),
        (17, |all, x| all[1].per_core = x, &[(0.95, Confirmed), (0.75, Undecided), (0.5, Refuted)]),
    ];
    for (claim, change, verdicts_at) in cases {
        for (x, verdict) in verdicts_at {
            let mut contestants = Simulated::fair();
            change(&mut contestants, *x);
            assert_eq!(verdicts(&contestants)[claim], *verdict, "claim {claim} at {x}");
        }
    }
}

/// The record of such contestants, where `change` was made to the rows of all at once.
fn changed(contestants: &[Simulated], change: impl Fn(&str, usize, &mut BTreeMap<String, f64>)) -> Recorded {
    let mut recorded = recorded(contestants);
    for row in recorded.rows.iter_mut().filter(|row| number(row, "series") == Some(0.0)) {
        let tasks = number(row, "tasks").unwrap() as usize;
        change(&row.contestant, tasks, &mut row.figures);
    }
    recorded
}

/// The record with these numbers of tasks only.
fn only(mut recorded: Recorded, is_kept: impl Fn(usize) -> bool) -> Recorded {
    recorded.rows.retain(|row| is_kept(number(row, "tasks").unwrap() as usize));
    recorded
}

/// At some numbers of tasks the spread is smaller, at others it is larger. Few numbers of tasks decide nothing either.
#[test]
fn spreads_that_differ_by_chance_decide_nothing() {
    let mixed = changed(&Simulated::fair(), |name, tasks, figures| {
        if name == GO_GC_OFF {
            *figures.get_mut("spread_of_durations").unwrap() *= if tasks % 2 == 0 { 1.0 } else { 3.0 };
        }
    });
    assert_eq!(verdicts_of(&mixed)[15..17], [Undecided, Confirmed]);
    let few = only(recorded(&Simulated::fair()), |tasks| tasks < 10);
    let claim = &claims(&few)[15];
    assert!(claim.verdict == Undecided && claim.figure.contains("only 6 rounds"), "{claim:?}");
}

/// Totals half way between a line and steps decide for neither.
#[test]
fn a_line_and_steps_that_fit_alike_decide_nothing() {
    for (share, linear) in [(0.0, Confirmed), (0.5, Undecided), (1.0, Refuted)] {
        let between = changed(&Simulated::fair(), |name, tasks, figures| {
            if name == RUST {
                let rounds = tasks as f64 / 2.0 + if tasks % 2 == 1 && tasks > 1 { share / 2.0 } else { 0.0 };
                figures.insert("total_duration_ms".into(), rounds * 500.0 / 0.95);
            }
        });
        assert_eq!(verdicts_of(&between)[4], linear, "{share}");
    }
}

/// The neighbours of a disturbed run outvote it. A single run decides nothing.
#[test]
fn one_observation_decides_nothing() {
    let mut contestants = Simulated::fair();
    (contestants[0].per_core, contestants[1].per_core) = (0.65, 0.95);
    let disturbed = changed(&contestants, |_, tasks, figures| {
        if [10, 40].contains(&tasks) {
            for figure in ["total_to_ideal", "total_to_single", "overhead_pct", "last_start_pct"] {
                figures.insert(figure.into(), 70.0);
            }
            figures.insert("start_order".into(), -1.0);
        }
    });
    let of_medians = |recorded: &Recorded| [1, 2, 3, 6, 7].map(|place| verdicts_of(recorded)[place]);
    assert_eq!(of_medians(&recorded(&contestants)), [Confirmed, Confirmed, Refuted, Confirmed, Confirmed]);
    assert_eq!(of_medians(&disturbed), [Confirmed, Confirmed, Refuted, Confirmed, Confirmed]);
    let few = only(recorded(&contestants), |tasks| [1, 10, 40].contains(&tasks));
    assert_eq!(of_medians(&few), [Undecided; 5]);
}

/// A curve that did not grow cannot flatten.
#[test]
fn without_growth_before_nothing_is_flat() {
    let means: [fn(usize) -> f64; 3] = [
        |tasks| 5000.0 - 100.0 * tasks.min(20) as f64,
        |_| 1000.0,
        // Up and down, and a little upwards.
        |tasks| 1000.0 + tasks.min(20) as f64 + if tasks % 2 == 0 { 200.0 } else { 0.0 },
    ];
    for mean in means {
        let changed = changed(&Simulated::fair(), |_, tasks, figures| {
            figures.insert("mean_duration_ms".into(), mean(tasks));
        });
        let claims = claims(&changed);
        let [flat, linear] = [&claims[5], &claims[12]];
        assert!(flat.verdict == Undecided && flat.figure.contains("does not grow along a line"), "{flat:?}");
        assert_eq!(linear.verdict, Refuted, "{linear:?}");
    }
}

/// The texts of the definition have the figures of the article's tables.
#[test]
fn the_published_figures_are_those_of_the_tables() {
    let published = definition().published;
    let [rust, go] = [0, 1].map(|place: usize| published[place].rows().unwrap());
    let figure = |rows: &[PublishedLine], tasks: usize, name: &str| rows[tasks - 1].figures[name];
    let total = |rows: &[PublishedLine], tasks| figure(rows, tasks, "total_duration_ms");
    let to_ideal = |rows: &[PublishedLine], tasks: usize| {
        total(rows, tasks) / total(rows, 1) * PUBLISHED_CORES as f64 / tasks as f64
    };
    let nearby = |rows: &[PublishedLine]| median_of((36..=40).map(|tasks| to_ideal(rows, tasks))).unwrap();
    let profit = |rows: &[PublishedLine]| median_of((16..=40).map(|tasks| figure(rows, tasks, "profit_pct"))).unwrap();
    let [rust_steps, go_steps] = STEPS_PER_S;
    let texts = [
        (0, format!("its tables: {:.0} % in Rust and {:.0} % in Go", profit(&rust), profit(&go))),
        (1, format!("{:.2} of the ideal; its median of 36 to 40 tasks: {:.2}", to_ideal(&go, 40), nearby(&go))),
        (2, format!("{:.2} of the ideal; its median of 36 to 40 tasks: {:.2}", to_ideal(&rust, 40), nearby(&rust))),
        (3, format!("its tables: {:.0} % cost at 40 tasks", figure(&rust, 40, "cost_pct"))),
        (11, format!("ratio {:.2}", rust_steps / go_steps)),
    ];
    let claims = claims(&recorded(&[]));
    for (place, text) in texts {
        assert!(claims[place].published.as_ref().unwrap().contains(&text), "{text}: {:?}", claims[place]);
    }
}
