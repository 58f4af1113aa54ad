//! The capacity of the recommended candidate: the max rate at which it keeps the p99 goal. It is searched after the
//! comparison.

use std::time::Duration;

use polyserve_bench::capacity::{self, Capacity, CapacityBench, NamedLaunch};
use polyserve_bench::compare::Instrument;
use polyserve_bench::experiment::{self, Experiment as _};
use polyserve_bench::journal::{Header, Journal};
use polyserve_bench::launch::Launch;
use polyserve_bench::recommend::choice::CapacityFigure;
use polyserve_bench::recommend::{Recommendation, Workload};
use serde_json::json;

use super::super::entrants::{LIMIT, limit_launch};
use super::RecommendArgs;

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
    launch: Launch,
    header: &Header,
    args: &RecommendArgs,
) {
    let Some(choice) = &recommendation.choice else { return };
    let target = NamedLaunch { name: choice.candidate.name(), launch };
    match search(&recommendation.workload, instrument, target, header, args) {
        Ok(figures) => recommendation.capacity = figures,
        Err(error) => tracing::warn!("the capacity is not known: {error:#}"),
    }
}

fn search(
    workload: &Workload,
    instrument: &Instrument,
    target: NamedLaunch,
    header: &Header,
    args: &RecommendArgs,
) -> anyhow::Result<Vec<CapacityFigure>> {
    let bench = CapacityBench {
        server_cores: instrument.server_cores.clone(),
        client_cores: instrument.client_cores.clone(),
        connections: instrument.connections,
        traffic: instrument.traffic.clone(),
        limit: NamedLaunch { name: LIMIT.into(), launch: limit_launch() },
        limit_traffic: instrument.limit_traffic.clone(),
        slice: SLICE,
        stop: instrument.stop.clone(),
    };
    let mut capacity = Capacity {
        targets: vec![target],
        absent: Vec::new(),
        goals_us: goals(workload),
        rounds: ROUNDS,
        description: json!({"workload": workload, "slice_s": SLICE.as_secs_f64()}),
        instrument: bench,
    };
    let header = Header { experiment: capacity::NAME.to_owned(), plan: capacity.describe(), ..header.clone() };
    let mut record = Journal::named(args.out.as_deref(), RECORD, &header)?;
    let records = experiment::run(&mut capacity, &header, &mut record, &instrument.stop)?;
    Ok(CapacityFigure::of(&records.samples().map(|(key, sample)| (key.goal_us, *sample)).collect::<Vec<_>>()))
}
