//! The capacity of the recommended candidate: the max rate at which it keeps the p99 goal. It is searched after the
//! comparison.

use std::time::Duration;

use polyserve_bench::bench::mode::requests::CellPlan;
use polyserve_bench::bench::mode::search::{SearchMode, SearchTurns};
use polyserve_bench::bench::{self, BenchPlan, CellEntries, DefinedExperiment, Mode, ModeKind, SweepAxis, SweepCell};
use polyserve_bench::experiment::{self, Experiment as _, with_second_entries};
use polyserve_bench::journal::{Header, Journal};
use polyserve_bench::recommend::choice::CapacityFigure;
use polyserve_bench::recommend::{Recommendation, Workload};
use polyserve_bench::turn::{Contestant, Instrument};

use super::super::entrants::{LIMIT, reference_contestant};
use super::RecommendArgs;
use crate::config_args::ConfigArgs;

/// The name of its record.
const RECORD: &str = "recommend-capacity";
/// The goals if the workload has none, in microseconds.
const GOALS_US: [u64; 2] = [1000, 10_000];
const ROUNDS: usize = 3;
const SLICE: Duration = Duration::from_millis(100);
/// The time of a search for one goal, and the time before the first of a round.
const SEARCH_TIME: Duration = Duration::from_millis(2500);
const SETUP_TIME: Duration = Duration::from_millis(800);
/// The max time of a request. A search with longer requests takes too long.
const LONGEST_REQUEST: Duration = Duration::from_millis(5);

/// The goals of the searches; none if the workload is not searched.
fn goals(workload: &Workload) -> Vec<u64> {
    match workload.p99_goal_ms {
        _ if unsuited(workload).is_some() => Vec::new(),
        Some(goal) => vec![(goal * 1000.0) as u64],
        None => GOALS_US.to_vec(),
    }
}

/// The time that the searches take.
pub(super) fn time(workload: &Workload) -> Duration {
    let goals = u32::try_from(goals(workload).len()).unwrap_or(0);
    let round = (SETUP_TIME + SEARCH_TIME * goals) * 2;
    if goals == 0 { Duration::ZERO } else { round * ROUNDS as u32 }
}

/// Why the workload is not searched, if it is not.
fn unsuited(workload: &Workload) -> Option<String> {
    if !workload.keep_alive {
        return Some("it is searched for kept connections only".into());
    }
    (workload.longest_request() > LONGEST_REQUEST)
        .then(|| format!("it is searched for requests of at most {LONGEST_REQUEST:?} only"))
}

/// Why the capacity is not searched, if it is not: `has_time` is false if the comparison leaves no time for it.
pub(super) fn not_searched(workload: &Workload, given: Duration, has_time: bool) -> Option<String> {
    let enough = || format!("--time {}s is enough", (given + time(workload)).as_secs() + 1);
    unsuited(workload).or_else(|| (!has_time).then(enough))
}

/// Adds the capacity of the choice to the recommendation. If it cannot be searched, a warning has the reason.
pub(super) fn add(
    recommendation: &mut Recommendation,
    instrument: &Instrument,
    chosen: &Contestant,
    header: &Header,
    args: &RecommendArgs,
) {
    match search(&recommendation.workload, instrument, chosen, header, args) {
        Ok(figures) => recommendation.capacity = figures,
        Err(error) => tracing::warn!("the capacity is not known: {error:#}"),
    }
}

fn search(
    workload: &Workload,
    instrument: &Instrument,
    chosen: &Contestant,
    header: &Header,
    args: &RecommendArgs,
) -> anyhow::Result<Vec<CapacityFigure>> {
    let instrument = Instrument { slice: SLICE, ..instrument.clone() };
    let contestants =
        with_second_entries(vec![chosen.clone()], &chosen.name, &[], |one| (&mut one.name, &mut one.role));
    let names: Vec<String> = contestants.iter().map(|one| one.name.clone()).collect();
    let plan = |goal: &u64| CellPlan {
        cell: SweepCell::from([(SweepAxis::GoalUs, (*goal).into())]),
        contestants: contestants.clone(),
        instrument: instrument.clone(),
        rate: None,
        latency: false,
    };
    let plans: Vec<CellPlan> = goals(workload).iter().map(plan).collect();
    let entries = |plan: &CellPlan| CellEntries { cell: plan.cell.clone(), contestants: names.clone() };
    let mode = SearchMode { slice: SLICE, p99: None };
    let mut experiment = DefinedExperiment {
        plan: BenchPlan {
            name: RECORD.to_owned(),
            about: String::from("Up to which rate the recommended server keeps a goal for its p99"),
            workload: instrument.asked.clone(),
            mode: ModeKind::Search,
            compared: Mode::Search(mode.clone()).compared().to_owned(),
            axes: vec![SweepAxis::GoalUs],
            contestants: names.clone(),
            baseline: chosen.name.clone(),
            charts: Vec::new(),
            quick: false,
            rounds: ROUNDS,
            definition: serde_json::to_value(workload)?,
            settings: ConfigArgs::default().given()?,
        },
        cells: plans.iter().map(entries).collect(),
        absent: Vec::new(),
        turns: Box::new(SearchTurns::new(plans, mode, reference_contestant(LIMIT))),
    };
    let header = Header { experiment: bench::NAME.to_owned(), plan: experiment.describe(), ..header.clone() };
    let mut record = Journal::named(args.out.as_deref(), RECORD, &header)?;
    let records = experiment::run(&mut experiment, &header, &mut record, &instrument.stop)?;
    Ok(CapacityFigure::of(records.samples()))
}
