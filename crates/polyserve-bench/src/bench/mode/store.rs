//! The mode `store`: threads use a store in their process, without a server.
//!
//! A contestant has a new process at each cell in each round. With `together` the contestants of a cell share a process, in which
//! they are filled together and take turns: small differences show there, such as the cost of the repo trait.

use std::time::Duration;

use polyserve::{ServerConfig, Shutdown};
use serde::Deserialize;

use super::{ReadKeys, Turns, check_times};
use crate::Misuse;
use crate::bench::definition::{Definition, time};
use crate::bench::experiment::{Key, Sample};
use crate::bench::figures::{FILLED_BYTES, OPERATIONS_PER_S};
use crate::bench::pattern::ContestantOrigin;
use crate::bench::sweep::{self, CellValue, Sweep, SweepAxis, SweepCell};
use crate::bench::workload::BenchWorkload;
use crate::experiment::{Absence, Notebook, order};
use crate::launch::Launch;
use crate::stores::{StoreOperation, StoreRun, process};
use crate::turn::Role;

/// Threads use a store in their process.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreMode {
    /// The operation, unless the sweep has it.
    pub operation: StoreOperation,
    /// The measured time of a contestant at a cell in a round. Latencies take half of that time.
    #[serde(deserialize_with = "time")]
    pub slice: Duration,
    /// The time for warm-up, which checks the entities whole.
    #[serde(deserialize_with = "time")]
    pub warm_up: Duration,
    /// The time limit of filling a store. A store that exceeds it has no figures at the cell.
    #[serde(deserialize_with = "time")]
    pub limit: Duration,
    /// Whether the contestants of a cell share a process.
    pub together: bool,
}

impl Default for StoreMode {
    fn default() -> Self {
        let (slice, warm_up) = (Duration::from_millis(100), Duration::from_millis(25));
        Self { operation: StoreOperation::Read, slice, warm_up, limit: Duration::from_secs(60), together: false }
    }
}

/// What the mode reads of a definition.
pub(super) const READS: ReadKeys = ReadKeys {
    origins: &[ContestantOrigin::Repo, ContestantOrigin::Typed, ContestantOrigin::Bare],
    has_sizes: false,
    axes: &[SweepAxis::Keys, SweepAxis::Workers, SweepAxis::Payload, SweepAxis::Dist, SweepAxis::Operation],
    workload: &["keys", "payload", "dist", "workers"],
};

/// The entities in words, with all values of the settings that vary.
pub(super) fn in_words(workload: &BenchWorkload, sweep: &Sweep) -> String {
    let BenchWorkload { keys, payload, dist, .. } = workload;
    let keys = sweep::in_words(sweep, SweepAxis::Keys, *keys);
    let payload = sweep::in_words(sweep, SweepAxis::Payload, *payload as u64);
    format!(
        "{keys} entities of {payload} bytes, {}",
        sweep::in_words(sweep, SweepAxis::Dist, dist.to_string().as_str())
    )
}

impl StoreMode {
    pub(super) fn compared(&self) -> &'static str {
        if self.operation == StoreOperation::Memory { FILLED_BYTES } else { OPERATIONS_PER_S }
    }

    pub(super) fn check(&self, definition: &Definition) -> Result<(), Misuse> {
        check_times(definition, [("slice", self.slice), ("warm_up", self.warm_up), ("limit", self.limit)])?;
        let swept = [&definition.sweep, &definition.quick.sweep].map(|sweep| sweep.get(&SweepAxis::Operation));
        let mut operations = vec![self.operation];
        for word in swept.into_iter().flatten().flatten() {
            let operation = word.word().parse().map_err(|why: String| definition.misuse("operation", why))?;
            if operation == StoreOperation::Memory {
                let why = "memory is not compared with operations: set mode.operation, without the sweep";
                return Err(definition.misuse("operation", why));
            }
            operations.push(operation);
        }
        if swept.iter().any(Option::is_some) {
            operations.remove(0); // the sweep has it
        }
        if definition.sweep.contains_key(&SweepAxis::Dist)
            && let Some(operation) = operations.iter().find(|operation| !operation.draws_ids())
        {
            return Err(definition.misuse("dist", format!("{operation} uses every id once")));
        }
        if self.together && operations.contains(&StoreOperation::Memory) {
            return Err(definition.misuse("together", "the memory of a store is that of its process"));
        }
        let own = |axis: SweepAxis, own: Option<u64>| {
            let swept = definition.sweep.get(&axis).into_iter().flatten().filter_map(CellValue::number);
            swept.chain(own).max().unwrap_or(0)
        };
        let BenchWorkload { keys, workers, .. } = definition.workload;
        if own(SweepAxis::Keys, Some(keys)) > u64::from(u32::MAX) {
            return Err(definition.misuse("keys", format!("there are {} at most", u32::MAX)));
        }
        let max = ServerConfig::MAX_WORKERS as u64;
        if own(SweepAxis::Workers, workers.map(|workers| workers as u64)) > max {
            return Err(definition.misuse("workers", format!("there are {max} at most")));
        }
        Ok(())
    }

    /// What the process of a store at a cell measures, without the stores and the round. `cores` is the default number of threads.
    pub fn run_at(&self, workload: &BenchWorkload, cell: &SweepCell, cores: usize, seed: u64) -> StoreRun {
        let workload = workload.at(cell);
        let swept = cell.get(&SweepAxis::Operation).and_then(|operation| operation.word().parse().ok());
        StoreRun {
            stores: Vec::new(),
            operation: swept.unwrap_or(self.operation),
            dist: workload.dist.to_string(),
            workers: workload.workers.unwrap_or(cores),
            keys: workload.keys,
            payload_bytes: workload.payload,
            round: 0,
            seed,
            warm_up: self.warm_up,
            slice: self.slice,
            limit: self.limit,
        }
    }
}

/// Stores at cells.
#[derive(Debug)]
pub struct StoreTurns {
    /// The cells.
    pub cells: Vec<StoreCell>,
    /// Whether the contestants of a cell share a process.
    pub together: bool,
    /// Returns the process that prints the results of a run, each as a line of JSON.
    pub launch: fn(&StoreRun) -> serde_json::Result<Launch>,
    /// The shutdown that the first signal begins. A running process is then killed.
    pub stop: Shutdown,
}

/// A cell and its stores.
#[derive(Debug)]
pub struct StoreCell {
    /// The values of the sweep.
    pub cell: SweepCell,
    /// What a process measures, without the stores and the round.
    pub run: StoreRun,
    /// The contestants, the baseline first.
    pub contestants: Vec<StoreContestant>,
}

/// A contestant.
#[derive(Clone, Debug)]
pub struct StoreContestant {
    /// Its name in the table.
    pub name: String,
    /// The name of the store.
    pub store: String,
    /// Its role.
    pub role: Role,
}

impl StoreTurns {
    /// Measures contestants in one process.
    fn results(&self, run: &StoreRun, contestants: &[&StoreContestant]) -> Vec<Result<Sample, Absence>> {
        let stores = contestants.iter().map(|one| one.store.clone()).collect();
        let run = StoreRun { stores, ..run.clone() };
        let launch = (self.launch)(&run).map_err(|error| Absence::failed(error.to_string()));
        let results =
            launch.and_then(|launch| process::results(&launch, contestants.len(), run.time_limit(), &self.stop));
        match results {
            Ok(results) => {
                let sample = |(result, one): (_, &&StoreContestant)| {
                    let figures = result?;
                    Ok(Sample { role: one.role, figures })
                };
                results.into_iter().zip(contestants).map(sample).collect()
            }
            Err(absence) => vec![Err(absence); contestants.len()],
        }
    }
}

impl Turns for StoreTurns {
    fn measure(&mut self, keys: &[Key], notebook: &mut Notebook<'_>) -> Vec<Result<Sample, Absence>> {
        let is_at = |cell: &&StoreCell| keys.first().is_some_and(|key| key.cell == cell.cell);
        let unplanned = || Err(Absence::failed("it is not planned"));
        let mut results: Vec<Result<Sample, Absence>> = keys.iter().map(|_| unplanned()).collect();
        let Some(StoreCell { run, contestants, .. }) = self.cells.iter().find(is_at) else { return results };
        let known: Vec<(usize, &StoreContestant)> = keys
            .iter()
            .enumerate()
            .filter_map(|(place, key)| Some((place, contestants.iter().find(|one| one.name == key.contestant)?)))
            .collect();
        let round = keys[0].round;
        let run = StoreRun { round, ..run.clone() };
        let size = if self.together { known.len() } else { 1 };
        let processes: Vec<&[(usize, &StoreContestant)]> = known.chunks(size.max(1)).collect();
        for place in order(round.saturating_sub(1), processes.len()) {
            let process = processes[place];
            if notebook.is_stopped() {
                break;
            }
            notebook.progress.begin(keys[process[0].0].to_string());
            let contestants: Vec<&StoreContestant> = process.iter().map(|(_, one)| *one).collect();
            for ((place, _), result) in process.iter().zip(self.results(&run, &contestants)) {
                results[*place] = result;
            }
        }
        results
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::bench::mode::Mode;

    const TEXT: &str = "name = \"tiny\"\ncontestants = [\"repo:sharded\", \"bare:dashmap\"]\n\
                        sweep = { workers = [1, 2], operation = [\"read\", \"50/50\"] }\n\
                        mode = { kind = \"store\" }\n";

    fn parsed(text: &str) -> Result<Definition, String> {
        Definition::parse(Path::new("tiny.toml"), text, &[]).map_err(|Misuse(why)| why)
    }

    #[test]
    fn a_cell_is_a_run() {
        let definition = parsed(TEXT).unwrap();
        let Mode::Store(mode) = &definition.mode else { panic!("{:?}", definition.mode) };
        let runs: Vec<StoreRun> =
            definition.cells().iter().map(|cell| mode.run_at(&definition.workload, cell, 4, 1)).collect();
        let settings: Vec<_> = runs.iter().map(|run| (run.workers, run.operation)).collect();
        let (read, half) = (StoreOperation::Read, StoreOperation::Half);
        assert_eq!(settings, [(1, read), (1, half), (2, read), (2, half)]);
    }

    #[test]
    fn what_a_store_does_not_have_is_refused_with_its_line() {
        for (old, new, why) in [
            ("50/50", "51/49", "tiny.toml:3: operation: there is no operation \"51/49\"; there are read, 95/5, 50/50"),
            ("50/50", "memory", "tiny.toml:3: operation: memory is not compared"),
            (
                "workers",
                "connections",
                "tiny.toml:3: connections: the mode store does not sweep it, only keys, workers",
            ),
            ("50/50\"]", "churn\"], dist = [\"hot\"]", "tiny.toml:3: dist: churn uses every id once"),
            ("[1, 2]", "[1, 100000]", "tiny.toml:3: workers: there are 4096 at most"),
            ("repo:", "peer:", "tiny.toml:2: contestants: the contestants of this mode are repo:"),
            ("\"store\"", "\"closed\"", "tiny.toml:2: contestants: the contestants of this mode are catalog:"),
            ("\"store\"", "\"store\", slice = \"1ms\"", "tiny.toml:4: slice: it must be from 10ms"),
        ] {
            let error = parsed(&TEXT.replace(old, new)).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
        let memory = "name = \"m\"\ncontestants = [\"repo:packed\"]\n\
                      mode = { kind = \"store\", operation = \"memory\", together = true }";
        assert!(parsed(memory).unwrap_err().starts_with("tiny.toml:3: together: the memory of a store"));
    }
}
