//! The contestants of the mode `store`: repos and bare maps, without a server.

use std::process::ExitCode;

use polyserve::catalog::Catalog;
use polyserve_bench::Misuse;
use polyserve_bench::bench::mode::StoreMode;
use polyserve_bench::bench::mode::store::{StoreCell, StoreContestant, StoreTurns};
use polyserve_bench::bench::{CellEntries, ContestantOrigin, DefinedExperiment, Definition, Key, Pattern};
use polyserve_bench::experiment::{Absent, distinct, with_second_entries};
use polyserve_bench::machine::proc;
use polyserve_bench::output::print;
use polyserve_bench::stores::StoreRun;
use polyserve_bench::stores::bare::{HASH_MAP, NAMES, PREFIX, TYPED, TYPED_PREFIX};
use polyserve_bench::turn::Role;

use super::super::entrants::{left_out, part_of};
use super::super::session::MeasurementSession;
use super::{BenchArgs, is_wanted, plan};

/// The share of the machine's memory that stores may need, by estimate.
const MEMORY_SHARE: f64 = 0.8;

/// Measures the stores of one process, and prints each result as a line of JSON.
pub(super) fn one_run(catalog: &Catalog, text: &str) -> anyhow::Result<ExitCode> {
    let run: StoreRun = serde_json::from_str(text)
        .map_err(|error| Misuse(format!("--store-run {text:?} is not a run in JSON: {error}")))?;
    for result in run.run(catalog)? {
        print(&format!("{}\n", serde_json::to_string(&result)?))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn run(
    session: &MeasurementSession<'_>,
    args: &BenchArgs,
    definition: &Definition,
    mode: &StoreMode,
) -> anyhow::Result<ExitCode> {
    let catalog = session.catalog;
    let patterns = definition.contestants.iter().chain(&definition.baseline);
    let all: Vec<Vec<StoreContestant>> =
        patterns.map(|pattern| contestants(definition, pattern, catalog)).collect::<anyhow::Result<_>>()?;
    let baseline = match &definition.baseline {
        Some(_) => all.last(),
        None => all.first(),
    };
    let baseline = baseline.and_then(|found| Some(found.first()?.name.clone()));
    let baseline = baseline.ok_or_else(|| definition.misuse("baseline", "there is no such store"))?;
    let mut chosen: Vec<StoreContestant> = Vec::new();
    for one in all.into_iter().flatten().filter(|one| one.name == baseline || is_wanted(args, &one.name)) {
        if chosen.iter().all(|known| known.name != one.name) {
            chosen.push(one);
        }
    }
    let chosen = with_second_entries(chosen, &baseline, &definition.controls, |one| (&mut one.name, &mut one.role));
    let (cells, absent) = cells(session, args, definition, mode, &chosen);
    let names = distinct(cells.iter().flat_map(|cell| &cell.contestants).map(|one| one.name.clone()));
    let plan = plan(args, definition, (names, baseline), &absent)?;
    let entries = |one: &StoreCell| CellEntries {
        cell: one.cell.clone(),
        contestants: one.contestants.iter().map(|contestant| contestant.name.clone()).collect(),
    };
    let entries = cells.iter().map(entries).collect();
    let launch = |run: &StoreRun| part_of("bench", "store-run", run);
    let turns = Box::new(StoreTurns { cells, together: mode.together, launch, stop: session.stop.clone() });
    let environment = session.environment([&session.available; 2], args.random.seed);
    let mut experiment = DefinedExperiment { plan, cells: entries, absent, turns };
    session.run_named(&args.record, environment, &definition.name, &mut experiment)
}

/// The contestants that a pattern stands for.
fn contestants(definition: &Definition, pattern: &Pattern, catalog: &Catalog) -> anyhow::Result<Vec<StoreContestant>> {
    let (prefix, names) = match pattern.origin {
        ContestantOrigin::Bare => (PREFIX, NAMES.map(String::from).to_vec()),
        ContestantOrigin::Typed => (TYPED_PREFIX, TYPED.map(String::from).to_vec()),
        _ if pattern.has_star() => ("", catalog.repos().iter().map(|entry| entry.name.clone()).collect()),
        _ => ("", vec![catalog.repo(&pattern.name)?.name.clone()]),
    };
    let role = if prefix == PREFIX { Role::Limit } else { Role::Ranked };
    let is_meant = |name: &&String| {
        let own = name.strip_prefix(prefix).unwrap_or(name);
        pattern.matches(own) || (prefix.is_empty() && !pattern.has_star()) // a name of the catalog has short forms
    };
    let found = names.iter().filter(is_meant);
    let found: Vec<StoreContestant> =
        found.map(|name| StoreContestant { name: name.clone(), store: name.clone(), role }).collect();
    if found.is_empty() {
        let known = names.join(", ");
        return Err(definition
            .misuse("contestants", format!("there is no {prefix}{}; there are {known}", pattern.name))
            .into());
    }
    Ok(found)
}

/// The cells with their contestants, and the contestants that are left out.
fn cells(
    session: &MeasurementSession<'_>,
    args: &BenchArgs,
    definition: &Definition,
    mode: &StoreMode,
    all: &[StoreContestant],
) -> (Vec<StoreCell>, Vec<Absent<Key>>) {
    let (mut cells, mut absent) = (Vec::new(), Vec::new());
    for cell in definition.cells() {
        let run = mode.run_at(&definition.workload, &cell, session.available.count(), args.random.seed);
        let (possible, alone): (Vec<&StoreContestant>, Vec<&StoreContestant>) =
            all.iter().partition(|one| run.workers == 1 || one.store != HASH_MAP);
        let mut leave_out = |one: &StoreContestant, why: String| {
            let key = Key { contestant: one.name.clone(), cell: cell.clone(), round: 0 };
            absent.push(left_out(key, why, true));
        };
        alone.iter().for_each(|one| leave_out(one, format!("it is for one thread, of {}", run.workers)));
        let in_process = if mode.together { possible.len() } else { 1 };
        let stores = possible.iter().take(in_process).map(|one| one.store.clone()).collect();
        let needs = StoreRun { stores, ..run.clone() }.memory_estimate() as f64;
        let available = proc::memory().map_or(f64::INFINITY, |bytes| bytes as f64 * MEMORY_SHARE);
        if needs > available {
            let [needs, available] = [needs, available].map(|bytes| bytes / 1e9);
            let why = format!("its process may need {needs:.1} GB, and there are {available:.1} GB for it");
            possible.iter().for_each(|one| leave_out(one, why.clone()));
        } else {
            cells.push(StoreCell { cell, run, contestants: possible.into_iter().cloned().collect() });
        }
    }
    (cells, absent)
}
