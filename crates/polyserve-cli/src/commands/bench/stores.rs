//! The contestants of the mode `store`: repos and bare maps, without a server.

use std::process::ExitCode;

use polyserve::catalog::Catalog;
use polyserve_bench::Misuse;
use polyserve_bench::bench::mode::store::StoreMode;
use polyserve_bench::bench::mode::store::{StoreCell, StoreContestant, StoreTurns};
use polyserve_bench::bench::{CellEntries, ContestantOrigin, Pattern, SweepCell};
use polyserve_bench::experiment::{Absent, with_second_entries};
use polyserve_bench::machine::proc;
use polyserve_bench::output::print;
use polyserve_bench::stores::StoreRun;
use polyserve_bench::stores::bare::HASH_MAP;
use polyserve_bench::turn::Role;

use super::super::entrants::part_of;
use super::Run;
use super::run::absent;
use super::select::{Entrant, Selected};

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

pub(super) fn run(run: Run<'_>, mode: &StoreMode) -> anyhow::Result<ExitCode> {
    let (session, definition) = (run.session, run.definition);
    let baseline = run.baseline(|pattern| contestants(run, pattern), |_| true)?.name;
    let all = run.entrants(|pattern| contestants(run, pattern))?;
    let chosen = run.taking_part(all, Some(&baseline), &SweepCell::new(), &mut Vec::new()); // all stores can
    let chosen = with_second_entries(chosen, &baseline, &definition.controls, |one| (&mut one.name, &mut one.role));
    let (cells, left_out) = cells(run, mode, &chosen);
    let entries = |one: &StoreCell| CellEntries {
        cell: one.cell.clone(),
        contestants: one.contestants.iter().map(|contestant| contestant.name.clone()).collect(),
    };
    let entries = cells.iter().map(entries).collect();
    let launch = |store_run: &StoreRun| part_of("bench", "store-run", store_run);
    let turns = StoreTurns { cells, together: mode.together, launch, stop: session.stop.clone() };
    let environment = session.environment([&session.available; 2], run.seed);
    run.measure((entries, baseline), left_out, environment, turns)
}

/// The contestants that a pattern stands for.
fn contestants(run: Run<'_>, pattern: &Pattern) -> anyhow::Result<Vec<Entrant<StoreContestant>>> {
    let role = if pattern.origin == ContestantOrigin::Bare { Role::Limit } else { Role::Ranked };
    let entrant = |selected: Selected<'_>| {
        let Selected::Store(name) = selected else { return None };
        let contestant = StoreContestant { store: name.clone(), name: name.clone(), role };
        Some(Entrant { name, contestant: Ok(contestant), is_excused: false })
    };
    Ok(run.select(pattern, &[], true)?.into_iter().filter_map(entrant).collect())
}

/// The cells with their contestants, and the contestants that are left out.
fn cells(run: Run<'_>, mode: &StoreMode, all: &[StoreContestant]) -> (Vec<StoreCell>, Vec<Absent>) {
    let (mut cells, mut left_out) = (Vec::new(), Vec::new());
    for cell in run.definition.cells() {
        let cores = run.session.available.count();
        let store_run = mode.run_at(&run.definition.workload, &cell, cores, run.seed);
        let (possible, alone): (Vec<&StoreContestant>, Vec<&StoreContestant>) =
            all.iter().partition(|one| store_run.workers == 1 || one.store != HASH_MAP);
        let mut leave_out = |one: &StoreContestant, why: String| left_out.push(absent(&one.name, &cell, why, true));
        alone.iter().for_each(|one| leave_out(one, format!("it is for one thread, of {}", store_run.workers)));
        let in_process = if mode.together { possible.len() } else { 1 };
        let stores = possible.iter().take(in_process).map(|one| one.store.clone()).collect();
        let needs = StoreRun { stores, ..store_run.clone() }.memory_estimate() as f64;
        let available = proc::memory().map_or(f64::INFINITY, |bytes| bytes as f64 * MEMORY_SHARE);
        if needs > available {
            let [needs, available] = [needs, available].map(|bytes| bytes / 1e9);
            let why = format!("its process may need {needs:.1} GB, and there are {available:.1} GB for it");
            possible.iter().for_each(|one| leave_out(one, why.clone()));
        } else {
            let contestants = possible.into_iter().cloned().collect();
            cells.push(StoreCell { cell, run: store_run, contestants });
        }
    }
    (cells, left_out)
}
