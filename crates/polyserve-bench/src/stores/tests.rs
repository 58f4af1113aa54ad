//! Stores without and with faults, with a few operations each.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use polyserve::catalog::{Catalog, Entry};
use polyserve::{
    Answer, Condition, Conditional, Entity, EntityRef, EntityRepo, Identifiable as _, Lookup, Put, Removed, RepoAnswer,
    Shown, StoredForm, Visit,
};

use super::bare::{HASH_MAP, NAMES, TYPED};
use super::run::{MIN_KEYS, StoreResult, StoreRun};
use super::workload::StoreOperation;
use crate::bench::figures::{NamedFigure, NamedFigures, OPERATIONS_PER_S, P999_US, WINDOWED_PER_S};
use crate::experiment::Reason;

fn store_run(stores: &[&str], operation: StoreOperation) -> StoreRun {
    StoreRun {
        stores: stores.iter().map(ToString::to_string).collect(),
        operation,
        dist: "uniform".into(),
        workers: 2,
        keys: 50,
        payload_bytes: 40,
        round: 1,
        seed: 1,
        warm_up: Duration::from_millis(1),
        slice: Duration::from_millis(2),
        limit: Duration::from_secs(60),
    }
}

/// The result of a run of one store.
fn result(run: &StoreRun, catalog: &Catalog) -> StoreResult {
    run.run(catalog).unwrap().remove(0)
}

fn figures(run: &StoreRun, catalog: &Catalog) -> NamedFigures {
    result(run, catalog).unwrap_or_else(|absence| panic!("{run:?}: {absence}"))
}

fn stores() -> Vec<String> {
    let repos = Catalog::builtin().repos().iter().map(|entry| entry.name.clone()).collect::<Vec<_>>();
    repos.into_iter().chain(NAMES.map(String::from)).chain(TYPED.map(String::from)).collect()
}

#[test]
fn every_store_gives_every_operation_right_answers() {
    let catalog = Catalog::builtin();
    for store in stores() {
        for (workers, payload_bytes) in [(1, 0), (2, 15), (3, 1000)] {
            if workers > 1 && store == HASH_MAP {
                continue;
            }
            for operation in StoreOperation::ALL {
                let dists = if operation.draws_ids() { &["uniform", "zipf:0.99", "hot"][..] } else { &["uniform"] };
                for dist in dists {
                    let dist = (*dist).to_owned();
                    let run = StoreRun { workers, payload_bytes, dist, ..store_run(&[&store], operation) };
                    let figures = figures(&run, &catalog);
                    assert!(figures.keys().all(|name| NamedFigure::named(name).is_some()), "{figures:?}");
                    match operation {
                        StoreOperation::Memory => assert!(figures["refilled_s"] > 0.0, "{store}: {figures:?}"),
                        _ => assert!(figures[OPERATIONS_PER_S] > 0.0, "{store}: {operation}: {figures:?}"),
                    }
                    let has_latency = operation != StoreOperation::Memory && !operation.is_loop_of_gets();
                    assert_eq!(figures.contains_key(P999_US), has_latency, "{store}: {operation}: {figures:?}");
                }
            }
        }
    }
}

#[test]
fn a_hash_map_is_for_one_thread() {
    let absence = result(&store_run(&[HASH_MAP], StoreOperation::Read), &Catalog::builtin()).unwrap_err();
    assert!(absence.why.contains("for one thread"), "{absence}");
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

fn error_of(fault: Fault, later: bool, operation: StoreOperation) -> String {
    let absence = result(&store_run(&["faulty"], operation), &catalog(Some(fault), later)).unwrap_err();
    assert!(absence.is_wrong(), "{absence:?}");
    absence.why
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
            let error = error_of(Fault::Shows(change), later, StoreOperation::Half);
            assert!(error.contains("was never put"), "{number}: {error}");
            let error = error_of(Fault::Shows(change), later, StoreOperation::DependentGets);
            assert!(error.contains("50 of 50 gets"), "{number}: {error}");
        }
    }
    for (fault, operation, why) in [
        (Fault::ForgetsPuts, StoreOperation::Half, "expected Replaced"),
        (Fault::ForgetsPuts, StoreOperation::Insert, "it has"),
        (Fault::KeepsWhatIsRemoved, StoreOperation::Memory, "it has 50 entities, expected 0"),
        (Fault::KeepsWhatIsRemoved, StoreOperation::Churn, "it has"),
        (Fault::CountsOneMore, StoreOperation::Read, "it has 51 entities, expected 50"),
        (Fault::CountsOneMore, StoreOperation::Insert, "it has 51 entities, expected 50"),
        (Fault::Panics, StoreOperation::Read, "panicked"),
        // Regression test: the measured threads panicked.
        (Fault::HidesFields, StoreOperation::Read, "implement StoredForm::fields"),
    ] {
        let error = error_of(fault, false, operation);
        assert!(error.contains(why), "{fault:?}: {error}");
    }
}

/// Deferred answers are waited for one by one, and with many operations outstanding.
#[test]
fn a_repo_that_answers_later_is_measured_both_ways() {
    for operation in
        StoreOperation::ALL.into_iter().filter(|one| *one != StoreOperation::Memory && !one.is_loop_of_gets())
    {
        let run = store_run(&["faulty"], operation);
        let later = figures(&run, &catalog(None, true));
        assert!(later[OPERATIONS_PER_S] > 0.0 && later[WINDOWED_PER_S] > 0.0, "{operation}: {later:?}");
        assert!(!figures(&run, &catalog(None, false)).contains_key(WINDOWED_PER_S));
    }
}

#[test]
fn a_store_that_runs_out_of_time_reports_its_progress() {
    let run = StoreRun { keys: 100_000, limit: Duration::ZERO, ..store_run(&["two_level"], StoreOperation::Read) };
    let absence = result(&run, &Catalog::builtin()).unwrap_err();
    assert_eq!(absence.why, "two_level did not finish filling 100000 keys in 0s: it got to 4096");
    assert_eq!(absence.reason, Reason::TimedOut);
}

#[test]
fn memory_is_that_of_the_entities() {
    let run = StoreRun { keys: MIN_KEYS * 4, payload_bytes: 200, ..store_run(&["packed"], StoreOperation::Memory) };
    let figures = figures(&run, &Catalog::builtin());
    assert!(figures["filled_s"] > 0.0 && figures["emptied_s"] > 0.0, "{figures:?}");
    // Other tests of this process may free memory at the same time.
    assert!(figures.contains_key("filled_bytes_per_entity") && figures.contains_key("emptied_bytes_per_entity"));
}

#[test]
fn an_estimate_of_memory_is_more_than_entities_take() {
    let estimate = |keys, payload_bytes| {
        StoreRun { keys, payload_bytes, ..store_run(&["sharded"], StoreOperation::Read) }.memory_estimate()
    };
    assert!((1_500_000_000..3_000_000_000).contains(&estimate(10_000_000, 15)));
    assert!(estimate(1_000_000, 16_384) > 16_400_000_000);
}

/// Stores in one process take turns. One that is wrong has no figures, and the others have theirs.
#[test]
fn stores_in_one_process_have_figures_of_their_own() {
    let mut names = stores();
    names.retain(|name| name != HASH_MAP);
    names.insert(1, "faulty".into());
    let shown: fn(EntityRef<'_>) -> Entity = |found| Entity::new(found.id, "another", found.value);
    for operation in [StoreOperation::IndependentGets, StoreOperation::Half] {
        let run = StoreRun { stores: names.clone(), round: 2, ..store_run(&[], operation) };
        let results = run.run(&catalog(Some(Fault::Shows(shown)), false)).unwrap();
        for (name, result) in names.iter().zip(results) {
            match result {
                Ok(figures) => assert!(figures[OPERATIONS_PER_S] > 0.0 && name != "faulty", "{name}: {figures:?}"),
                Err(absence) => assert!(absence.is_wrong() && name == "faulty", "{name}: {absence}"),
            }
        }
    }
}
