//! The capacity of the recommended candidate: the max rate at which it keeps the p99 goal. It is searched after the
//! comparison.

use std::path::Path;
use std::time::Duration;

use polyserve_bench::Misuse;
use polyserve_bench::bench::Definition;
use polyserve_bench::recommend::Candidate;
use polyserve_bench::recommend::workload::Workload;
use toml::{Table, Value};

/// The name of the definition, and of its record.
const NAME: &str = "recommend-capacity";
/// The goals if the workload has none, in microseconds.
const GOALS_US: [u64; 2] = [1000, 10_000];
const ROUNDS: u32 = 3;
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
    if goals == 0 { Duration::ZERO } else { round * ROUNDS }
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

/// The search of the capacity of a candidate.
pub(super) fn definition(
    workload: &Workload,
    workload_table: &Table,
    candidate: &Candidate,
) -> Result<Definition, Misuse> {
    let slice = humantime::format_duration(SLICE).to_string();
    let goals: Vec<Value> = goals(workload).into_iter().filter_map(|us| Some(i64::try_from(us).ok()?.into())).collect();
    let table = Table::from_iter([
        ("name".to_owned(), NAME.into()),
        ("about".to_owned(), "Up to which rate the recommended server keeps a goal for its p99".into()),
        ("rounds".to_owned(), ROUNDS.into()),
        ("contestants".to_owned(), vec![candidate.pattern()].into()),
        ("sweep".to_owned(), Table::from_iter([("goal_us".to_owned(), goals.into())]).into()),
        ("workload".to_owned(), workload_table.clone().into()),
        (
            "mode".to_owned(),
            Table::from_iter([("kind".to_owned(), "search".into()), ("slice".to_owned(), slice.into())]).into(),
        ),
    ]);
    Definition::parse(Path::new("the search of the capacity"), &table.to_string(), &[])
}
