//! Stores without and with faults, and resumed runs: with a few operations each.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use polyserve::catalog::{Catalog, Entry};
use polyserve::{
    Answer, Condition, Conditional, Entity, EntityRef, EntityRepo, Identifiable as _, Lookup, Put, Removed, RepoAnswer,
    Shown, Shutdown, StoredForm, Visit,
};
use polyserve_load::Dist;

use super::bare::{HASH_MAP, NAMES, TYPED};
use super::cell::{StoreReply, StoreRun, memory_estimate};
use super::experiment::{StoreInstrument, StoreJob, Stores};
use super::record::{StoreFigures, StoreMemory, StoreSettings, Throughput, Unfinished};
use super::report::Report;
use super::seam::{self, Seam, SeamGroup, SeamSetup};
use super::store_set::Lookups;
use super::workload::{StoreLoad, StoreWorkload};
use crate::experiment::{self, Absence, Experiment as _, Records, again};
use crate::fixtures::{self, TestDir};
use crate::journal::{Header, Journal};
use crate::scale::Axis;

fn store_run(store: &str, threads: usize, payload_bytes: usize) -> StoreRun {
    let dists = [Dist::Uniform, Dist::Zipf(0.99), Dist::Hot];
    StoreRun {
        store: store.into(),
        threads,
        keys: 50,
        payload_bytes,
        loads: StoreLoad::all(&StoreWorkload::ALL, &dists),
        seed: 1,
        round: 1,
        warm_up_s: 0.001,
        time_s: 0.002,
        limit_s: 60.0,
    }
}

fn stores() -> Vec<String> {
    let repos = Catalog::builtin().repos().iter().map(|entry| entry.name.clone()).collect::<Vec<_>>();
    repos.into_iter().chain(NAMES.map(String::from)).chain(TYPED.map(String::from)).collect()
}

#[test]
fn every_store_gives_every_workload_right_answers() {
    for store in stores() {
        for (threads, payload_bytes) in [(1, 0), (2, 15), (3, 1000)] {
            if threads > 1 && store == HASH_MAP {
                continue;
            }
            let store_run = store_run(&store, threads, payload_bytes);
            let reply =
                store_run.run(&Catalog::builtin()).unwrap_or_else(|error| panic!("{store}, {threads}: {error:#}"));
            // Three workloads with three distributions each, and two without; memory has its own figures.
            assert_eq!((reply.throughput.len(), reply.unfinished), (11, None), "{store}");
            assert!(reply.memory.is_some_and(|memory| memory.emptied_bytes > Some(0) && memory.refill_s.is_some()));
            for (load, shown) in &reply.throughput {
                let latency = shown.latency.unwrap_or_else(|| panic!("{store}: {load} has no latencies"));
                assert!(shown.operations > 0 && latency.sampled > 0, "{store}: {load}: {shown:?}");
            }
        }
    }
}

#[test]
fn a_hash_map_is_for_one_thread() {
    let error = store_run(HASH_MAP, 2, 15).run(&Catalog::builtin()).unwrap_err().to_string();
    assert!(error.contains("for one thread"), "{error}");
}

/// A defect of a repo.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Shows(fn(EntityRef<'_>) -> Entity),
    ForgetsPuts,
    KeepsWhatIsRemoved,
    CountsOneMore,
    Panics,
    HidesFields,
}

/// A form of an entity without fields, as a repo of a user may have it.
struct Opaque(Entity);

impl StoredForm<Entity> for Opaque {
    fn to_entity(&self) -> Entity {
        self.0.clone()
    }

    fn write_json(&self, out: &mut Vec<u8>) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.0.write_json(out)
    }
}

/// A repo with a fault, which may answer later.
#[derive(Debug)]
struct Faulty {
    inner: Arc<dyn EntityRepo>,
    fault: Option<Fault>,
    later: bool,
}

impl Faulty {
    fn answer<T: Send + 'static>(&self, answer: Answer<T>) -> Answer<T> {
        if !self.later {
            return answer;
        }
        let value = answer.wait();
        Answer::later(async move { value })
    }
}

impl EntityRepo for Faulty {
    fn get(&self, &id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
        let mut shown = None;
        let found = self.inner.get(
            &id,
            Visit::new(&mut |found| {
                shown = Some(match self.fault {
                    Some(Fault::Shows(change)) => change(super::store::fields(&found)),
                    Some(Fault::Panics) => panic!("on purpose"),
                    _ => found.to_owned(),
                });
            }),
        );
        match shown {
            Some(entity) if self.later => self.answer(Answer::Now(Ok(Lookup::Fetched(entity)))),
            Some(entity) if matches!(self.fault, Some(Fault::HidesFields)) => {
                Answer::Now(Ok(visit.show(Shown::stored(&Opaque(entity)))))
            }
            Some(entity) => Answer::Now(Ok(visit.show(&entity))),
            None => self.answer(found),
        }
    }

    fn put_if(&self, entity: Entity, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        self.answer(self.inner.put_if(entity, condition))
    }

    fn remove_if(&self, &id: &i64, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        self.answer(self.inner.remove_if(&id, condition))
    }

    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        match self.fault {
            Some(Fault::ForgetsPuts) if entity.value > 0.0 => Answer::Now(Ok(Put::Created)),
            _ => self.answer(self.inner.put(entity)),
        }
    }

    fn remove(&self, &id: &i64) -> RepoAnswer<Removed> {
        match self.fault {
            Some(Fault::KeepsWhatIsRemoved) => Answer::Now(Ok(Removed::Removed)),
            _ => self.answer(self.inner.remove(&id)),
        }
    }

    fn len(&self) -> RepoAnswer<u64> {
        let more = u64::from(matches!(self.fault, Some(Fault::CountsOneMore)));
        self.inner.len().map(move |len| len.map(|len| len + more))
    }
}

fn catalog(fault: Option<Fault>, later: bool) -> Catalog {
    Catalog::builtin().with_repo(Entry::repo("faulty", "one with a fault", &[], move || {
        let inner = Catalog::builtin().repo("two_level").expect("it is there").build()?;
        Ok(Arc::new(Faulty { inner, fault, later }))
    }))
}

fn error_of(fault: Fault, later: bool, workload: StoreWorkload) -> String {
    let store_run = StoreRun { loads: StoreLoad::all(&[workload], &[Dist::Uniform]), ..store_run("faulty", 2, 40) };
    format!("{:#}", store_run.run(&catalog(Some(fault), later)).unwrap_err())
}

#[test]
fn what_is_wrong_is_found() {
    let changes: [fn(EntityRef<'_>) -> Entity; 5] = [
        |found| Entity::new(found.id + 1, found.description, found.value),
        |found| Entity::new(found.id, found.description, found.value + 1e9),
        |found| Entity::new(found.id, found.description, found.value + 0.5),
        |found| Entity::new(found.id, &found.description[..20], found.value),
        |found| Entity::new(found.id, found.description[..39].to_owned() + "x", found.value),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        for later in [false, true] {
            let error = error_of(Fault::Shows(change), later, StoreWorkload::Half);
            assert!(error.contains("was never put"), "{number}: {error}");
        }
    }
    for (fault, workload, why) in [
        (Fault::ForgetsPuts, StoreWorkload::Half, "expected Replaced"),
        (Fault::ForgetsPuts, StoreWorkload::Insert, "it has"),
        (Fault::KeepsWhatIsRemoved, StoreWorkload::Memory, "it has 50 entities, expected 0"),
        (Fault::KeepsWhatIsRemoved, StoreWorkload::Churn, "it has"),
        (Fault::CountsOneMore, StoreWorkload::Read, "it has 51 entities, expected 50"),
        (Fault::Panics, StoreWorkload::Read, "panicked"),
        // Regression test: the measured threads panicked.
        (Fault::HidesFields, StoreWorkload::Read, "implement StoredForm::fields"),
    ] {
        let error = error_of(fault, false, workload);
        assert!(error.contains(why), "{fault:?}: {error}");
    }
}

/// Deferred answers are waited for one by one, and with many operations outstanding.
#[test]
fn a_repo_that_answers_later_is_measured_both_ways() {
    let reply = store_run("faulty", 2, 15).run(&catalog(None, true)).unwrap();
    assert!(
        reply.throughput.iter().all(|(_, shown)| shown.per_s > 0.0 && shown.windowed_per_s > Some(0.0)),
        "{reply:?}"
    );
    let now = store_run("faulty", 2, 15).run(&catalog(None, false)).unwrap();
    assert!(now.throughput.iter().all(|(_, shown)| shown.windowed_per_s.is_none()));
}

#[test]
fn a_store_that_runs_out_of_time_reports_its_progress() {
    let reply = StoreRun { limit_s: 0.0, ..store_run("two_level", 1, 15) }.run(&Catalog::builtin()).unwrap();
    assert_eq!((reply.throughput.len(), reply.memory), (0, None));
    assert_eq!(reply.unfinished, Some(Unfinished { what: "filling".into(), done: 0, limit_s: 0.0 }));
}

#[test]
fn an_estimate_of_memory_is_more_than_entities_take() {
    let place = |keys, payload_bytes| StoreSettings { keys, threads: 1, payload_bytes };
    assert!((1_500_000_000..3_000_000_000).contains(&memory_estimate(&place(10_000_000, 15))));
    assert!(memory_estimate(&place(1_000_000, 16_384)) > 16_400_000_000);
}

/// Replies with fixed figures. A store can fail, or run out of time while its entities are removed.
struct Scripted {
    runs: usize,
    fails: Option<(&'static str, bool)>,
    times_out: Option<&'static str>,
}

impl StoreInstrument for Scripted {
    fn measure(&mut self, job: &StoreJob, _: usize) -> Result<StoreReply, Absence> {
        self.runs += 1;
        if let Some((_, wrong)) = self.fails.filter(|(name, _)| *name == job.name) {
            return Err(Absence::new("the test fails it", wrong));
        }
        let per_s = if job.name == "fast" { 2000.0 } else { 1000.0 } / job.x as f64;
        let memory = StoreMemory { start_bytes: Some(0), filled_bytes: Some(job.x * 100), ..StoreMemory::default() };
        if self.times_out == Some(job.name.as_str()) {
            let unfinished = Some(Unfinished { what: "removing".into(), done: 7, limit_s: 60.0 });
            return Ok(StoreReply { memory: Some(memory), throughput: Vec::new(), unfinished });
        }
        let throughput = Throughput { operations: 10, elapsed_s: 0.1, per_s, ..Throughput::default() };
        Ok(StoreReply { memory: Some(memory), throughput: vec![(read(), throughput)], unfinished: None })
    }
}

fn read() -> StoreLoad {
    StoreLoad { workload: StoreWorkload::Read, dist: Some("uniform".into()) }
}

fn header(experiment: &str) -> Header {
    fixtures::header(experiment, serde_json::json!({"baseline": "slow"}))
}

type Recorded = Records<Stores<Scripted>>;

fn run(dir: &Path, fails: Option<(&'static str, bool)>, times_out: Option<&'static str>) -> (Recorded, usize) {
    let loads = vec![StoreLoad { workload: StoreWorkload::Memory, dist: None }, read()];
    let job = |x: u64, name: &str| {
        let place = StoreSettings { keys: x, threads: 1, payload_bytes: 15 };
        let run = StoreRun { loads: loads.clone(), ..store_run(name, 1, 15) };
        StoreJob { axis: Axis::Keys, x, name: name.into(), place, run }
    };
    let names = ["slow".to_owned(), "fast".to_owned(), again("slow")];
    let jobs = [100_000, 1_000_000].into_iter().flat_map(|x| names.iter().map(move |name| (x, name)));
    let jobs = jobs.map(|(x, name)| job(x, name)).collect();
    let (header, instrument) = (header("stores"), Scripted { runs: 0, fails, times_out });
    let description = header.plan.clone();
    let mut stores = Stores { jobs, absent: Vec::new(), rounds: 10, description, instrument };
    let mut journal = Journal::open(Some(dir), &header).unwrap();
    let records = experiment::run(&mut stores, &header, &mut journal, &Shutdown::new()).unwrap();
    assert_eq!(records.end.unwrap().missing, 0);
    (records, stores.instrument.runs)
}

/// The number of cells of operations, and of memory.
fn counts(records: &Recorded) -> (usize, usize) {
    let is_memory = |figures: StoreFigures| matches!(figures, StoreFigures::Memory(_));
    let memory = records.samples().filter(|(_, sample)| is_memory(sample.figures)).count();
    (records.samples().count() - memory, memory)
}

/// A rerun measures what is missing; a store that did wrong or ran out of time stays out.
#[test]
fn a_rerun_measures_what_is_missing() {
    let dir = TestDir::new("stores-rerun");
    let is_out = |records: &Recorded, name: &str| {
        let report = Report::of(records);
        assert_eq!(
            report,
            Report::of(&Recorded::of(&crate::journal::read(&dir.join("stores.jsonl")).unwrap()).unwrap())
        );
        !report.points.iter().any(|point| point.x == 100_000 && point.name == name)
    };
    let (records, runs) = run(&dir, Some(("fast", false)), None);
    assert_eq!((runs, counts(&records), records.failed().len()), (42, (40, 40), 2), "it fails once at each place");
    assert!(is_out(&records, "fast") && !is_out(&records, "slow") && records.is_failed());
    let (records, runs) = run(&dir, None, None);
    assert_eq!((runs, counts(&records)), (20, (60, 60)));
    assert!(!is_out(&records, "fast") && !records.is_failed());
    let (records, runs) = run(&dir, None, None);
    assert_eq!((runs, counts(&records)), (0, (60, 60)));
    // It was killed between two lines of one point.
    let file = dir.join("stores.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    let lost = text.trim_end().rfind("{\"kind\":\"cell\"").unwrap();
    std::fs::write(&file, &text[..lost]).unwrap();
    let (records, runs) = run(&dir, None, None);
    assert_eq!((runs, counts(&records)), (1, (60, 60)));
    for (fails, times_out) in [(Some(("fast", true)), None), (None, Some("fast"))] {
        let dir = TestDir::new("stores-out");
        assert_eq!(run(&dir, fails, times_out).1, 42);
        let (records, runs) = run(&dir, None, None);
        assert_eq!((runs, counts(&records).0, records.absences().count()), (0, 40, 2));
        assert_eq!(records.is_failed(), fails.is_some());
    }
}

#[test]
fn a_report_has_ratios_memory_and_growth() {
    let dir = TestDir::new("stores-report");
    let (records, _) = run(&dir, None, None);
    let report = Report::of(&records);
    let fast = report.points.iter().find(|point| point.name == "fast" && point.x == 100_000).unwrap();
    assert_eq!(fast.beside.map(|beside| (beside.ratio, beside.rounds)), Some((2.0, 10)));
    let memory = report.memory.iter().find(|point| point.name == "fast").unwrap();
    assert_eq!(memory.filled, Some(100.0));
    assert!(report.growth.iter().all(|growth| (growth.curve.b + 1.0).abs() < 1e-9), "{:?}", report.growth);
    let text = report.to_string();
    for expected in [
        "keys: read uniform",
        "keys: the fastest repo",
        "keys: memory",
        "bytes/entity",
        "of slow",
        "2.000 [2.000, 2.000]",
        "faster",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    let summary = Stores::summarize(&records, &report).unwrap();
    let tails = summary.tables.iter().filter(|(title, _)| title.starts_with("keys: p50, p99, p99.9 at "));
    assert_eq!((summary.tables.len(), tails.count()), (6, 2), "one of tails for each number of keys");
    assert_eq!(summary.csv[0].1.lines().count(), 121, "60 cells, 60 of memory");
}

/// The memory that was measured before the time limit is kept.
#[test]
fn a_store_that_ran_out_of_time_is_named() {
    let dir = TestDir::new("stores-short");
    let (records, _) = run(&dir, None, Some("fast"));
    let report = Report::of(&records);
    let text = report.to_string();
    assert!(text.contains("fast did not finish removing 1000000 keys in 60 s: it got to 7"), "{text}");
    assert_eq!((report.unfinished.len(), report.failed.len()), (2, 0), "one for each store run");
    assert!(report.memory.iter().any(|point| point.name == "fast" && point.filled == Some(100.0)));
}

fn seam(stores: &[&str], rounds: usize, catalog: Catalog) -> Seam {
    let stores = stores.iter().map(|name| (*name).to_owned()).collect();
    let groups = vec![SeamGroup { baseline: "bare/dashmap".into(), stores }];
    let lookups = vec![Lookups::Dependent, Lookups::Independent];
    let threads = vec![1, 2];
    let setup = SeamSetup { groups, threads, lookups, rounds, keys: 100, payload_bytes: 15, gets: 200, seed: 1 };
    let measure =
        move |seam_run: &seam::SeamRun| seam_run.run(&catalog).map_err(|error| Absence::wrong(format!("{error:#}")));
    Seam { setup, at_most: Some(1e9), measure: Box::new(measure) }
}

/// Every store takes its turn in every round. A rerun measures nothing. The baseline's second entry has a ratio in every row.
#[test]
fn stores_take_turns() {
    let dir = TestDir::new("stores-seam");
    let mut stores = stores();
    stores.retain(|name| name != HASH_MAP && name != "bare/dashmap");
    let names: Vec<&str> = stores.iter().map(String::as_str).collect();
    let mut seam = seam(&names, 12, Catalog::builtin());
    let mut header = Header { plan: seam.describe(), ..header("seam") };
    for added in [true, false] {
        let mut journal = Journal::open(Some(&dir), &header).unwrap();
        let before = journal.lines_before().iter().filter(|line| line["kind"] == "turn").count();
        let records = experiment::run(&mut seam, &header, &mut journal, &Shutdown::new()).unwrap();
        let all = (names.len() + 2) * 2 * 2 * 12;
        assert_eq!((records.samples().count(), before), (all, if added { 0 } else { all }));
        let report = seam::Report::of(&records);
        assert_eq!((report.rows.len(), report.above().count()), (names.len() * 4, 0));
        assert!(report.rows.iter().all(|row| row.same.is_some() && row.time.rounds == 6 && row.per_s > 0.0));
    }
    header.plan["at_most"] = 1e-9.into();
    let mut lines = crate::journal::read(&dir.join("seam.jsonl")).unwrap();
    lines[0]["plan"] = header.plan;
    let report = seam::Report::of(&Records::of(&lines).unwrap());
    assert_eq!((report.above().count(), Seam::is_passed(&report)), (names.len() * 4, false));
    assert!(Seam::is_passed(&seam::Report { interrupted: true, ..report }), "an interrupted run decides nothing");
}

/// A rerun does not measure the store set again, and reports the failure.
#[test]
fn a_turn_that_shows_something_else_ends_the_run() {
    let dir = TestDir::new("stores-seam-wrong");
    let wrong: fn(EntityRef<'_>) -> Entity = |found| Entity::new(found.id, "another", found.value);
    let mut seam = seam(&["faulty"], 1, catalog(Some(Fault::Shows(wrong)), false));
    seam.setup.threads = vec![1];
    let mut run = || {
        let mut journal = Journal::open(Some(&dir), &header("seam")).unwrap();
        experiment::run(&mut seam, &header("seam"), &mut journal, &Shutdown::new())
    };
    let error = format!("{:#}", run().unwrap_err());
    assert!(error.contains("faulty") && error.contains("200 of 200 gets"), "{error}");
    let records = run().unwrap();
    assert!(records.is_failed() && seam::Report::of(&records).to_string().contains("200 of 200 gets"));
}
