//! A repo with the durations of its operations: [`Metrics::observe_store`](super::Metrics::observe_store).

use std::sync::Arc;
use std::time::{Duration, Instant};

use polyserve_core::figures::StoreFigures;
use polyserve_core::{
    Answer, Condition, Conditional, EntityRepo, Identifiable, Lookup, ManyVisit, Put, Removed, RepoAnswer, RepoError,
    ScanPage, ScanVisit, Visit,
};

use super::durations::{Durations, Kind};

/// A repo that is observed.
#[derive(Debug)]
pub struct ObservedStore<R> {
    repo: R,
    durations: Arc<Durations>,
}

impl<R> ObservedStore<R> {
    pub(super) fn new(repo: R, durations: Arc<Durations>) -> Self {
        Self { repo, durations }
    }

    fn observe<T: Send + 'static>(&self, operation: &'static str, answer: RepoAnswer<T>) -> RepoAnswer<T> {
        match answer {
            Answer::Now(Ok(value)) => Answer::Now(Ok(value)),
            Answer::Now(Err(error)) => {
                self.durations.add(Kind::Store(operation, error_type(&error)), Duration::ZERO);
                Answer::Now(Err(error))
            }
            later @ Answer::Later(_) => {
                let pending = Pending {
                    durations: Arc::clone(&self.durations),
                    operation,
                    begin: Instant::now(),
                    error_type: ABANDONED,
                };
                later.map(move |result| {
                    pending.end(result.as_ref().err().map_or(NO_ERROR, error_type));
                    result
                })
            }
        }
    }
}

/// An operation without an answer yet. Its end is counted, also if the caller has dropped the answer.
struct Pending {
    durations: Arc<Durations>,
    operation: &'static str,
    begin: Instant,
    error_type: &'static str,
}

impl Pending {
    fn end(mut self, error_type: &'static str) {
        self.error_type = error_type;
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.durations.add(Kind::Store(self.operation, self.error_type), self.begin.elapsed());
    }
}

/// The caller has given the answer up: its time is over, or its client is gone.
const ABANDONED: &str = "abandoned";

/// For Prometheus, an empty label is an absent one.
const NO_ERROR: &str = "";

/// The kind of an error as a label.
fn error_type(error: &RepoError) -> &'static str {
    match error {
        RepoError::Closed => "closed",
        RepoError::Overloaded => "overloaded",
        RepoError::NotDone(_) => "not_done",
        RepoError::Full(_) => "full",
        RepoError::TooLarge(_) => "too_large",
        RepoError::Unavailable(_) => "unavailable",
        RepoError::ReadOnly(_) => "read_only",
        RepoError::Malformed(_) => "malformed",
        _ => "_OTHER",
    }
}

#[deny(clippy::missing_trait_methods)]
impl<E: Identifiable, R: EntityRepo<E>> EntityRepo<E> for ObservedStore<R> {
    fn get(&self, id: &E::Id, visit: Visit<'_, E>) -> RepoAnswer<Lookup<E>> {
        self.observe("get", self.repo.get(id, visit))
    }

    fn get_many(&self, ids: &[E::Id], visit: ManyVisit<'_, E>) -> RepoAnswer<Vec<(usize, E)>> {
        self.observe("get_many", self.repo.get_many(ids, visit))
    }

    fn put_if(&self, entity: E, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        self.observe("put", self.repo.put_if(entity, condition))
    }

    fn remove_if(&self, id: &E::Id, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        self.observe("remove", self.repo.remove_if(id, condition))
    }

    fn put(&self, entity: E) -> RepoAnswer<Put> {
        self.observe("put", self.repo.put(entity))
    }

    fn remove(&self, id: &E::Id) -> RepoAnswer<Removed> {
        self.observe("remove", self.repo.remove(id))
    }

    fn len(&self) -> RepoAnswer<u64> {
        self.observe("len", self.repo.len())
    }

    fn version(&self, id: &E::Id) -> Option<u64> {
        self.repo.version(id)
    }

    fn can_scan(&self) -> bool {
        self.repo.can_scan()
    }

    fn scan(&self, after: Option<&E::Id>, limit: usize, visit: ScanVisit<'_, E>) -> RepoAnswer<ScanPage<E>> {
        self.observe("scan", self.repo.scan(after, limit, visit))
    }

    fn status(&self) -> RepoAnswer<()> {
        self.observe("status", self.repo.status())
    }

    fn figures(&self) -> Option<Arc<dyn StoreFigures>> {
        self.repo.figures()
    }
}

#[cfg(test)]
mod tests {
    use polyserve_core::figures::{FigureValue, Histogram, StoreFigure};
    use polyserve_core::{Entity, EntityRepoExt as _};

    use crate::metrics::Metrics;

    use super::*;

    /// A store that looks up later, and refuses writes at once.
    #[derive(Debug)]
    struct Remote;

    impl EntityRepo for Remote {
        fn get(&self, _id: &i64, _visit: Visit<'_>) -> RepoAnswer<Lookup> {
            Answer::later(async { Ok(Lookup::Absent) })
        }

        fn put_if(&self, _entity: Entity, _condition: &Condition) -> RepoAnswer<Conditional<Put>> {
            Answer::Now(Err(RepoError::Full("no room".into())))
        }

        fn remove_if(&self, _id: &i64, _condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
            Answer::later(async { Err(RepoError::Unavailable("no host".into())) })
        }

        fn len(&self) -> RepoAnswer<u64> {
            Answer::Now(Ok(0))
        }

        fn figures(&self) -> Option<Arc<dyn StoreFigures>> {
            Some(Arc::new(Rotations))
        }
    }

    /// The figures of a store.
    #[derive(Debug)]
    struct Rotations;

    impl StoreFigures for Rotations {
        fn read(&self) -> Vec<StoreFigure> {
            let sizes = Histogram::new(&[1, 10]);
            sizes.add(2);
            vec![
                StoreFigure::new("polyserve_tree_rotations", "Rotations", FigureValue::Count(3)),
                StoreFigure::new("polyserve_tree_cached", "Nodes in memory", FigureValue::Bytes(4096)),
                StoreFigure::new("polyserve_tree_depth", "Depths of leaves", FigureValue::Sizes(sizes.read())),
                StoreFigure::new("polyserve_tree_write", "Of a node", FigureValue::Durations(sizes.read())),
            ]
        }
    }

    #[test]
    fn what_stores_count_is_shown_after_their_end() {
        let metrics = Metrics::new();
        for _ in 0..2 {
            drop(metrics.observe_store(Remote));
        }
        let text = metrics.text();
        for line in [
            "# TYPE polyserve_tree_rotations counter",
            "polyserve_tree_rotations_total 6",
            "polyserve_tree_cached_bytes 8192",
            r#"polyserve_tree_depth_bucket{le="10.0"} 2"#,
            "polyserve_tree_depth_sum 4.0",
            r#"polyserve_tree_write_seconds_bucket{le="1e-8"} 2"#,
        ] {
            assert!(text.lines().any(|one| one == line), "no line {line} in {text}");
        }
    }

    #[test]
    fn later_answers_and_errors_are_counted() {
        let metrics = Metrics::new();
        let store = metrics.observe_store(Remote);
        for _ in 0..2 {
            assert_eq!(store.fetch(&1).wait().unwrap(), None);
        }
        store.put(Entity::new(1, "a", 0.5)).wait().unwrap_err();
        store.remove(&1).wait().unwrap_err();
        assert_eq!(store.len().wait().unwrap(), 0);
        drop(store.get(&1, Visit::new(&mut |_| {})));
        let text = metrics.text();
        for (labels, count) in [
            (r#"db_operation_name="get",error_type="""#, 2),
            (r#"db_operation_name="get",error_type="abandoned""#, 1),
            (r#"db_operation_name="put",error_type="full""#, 1),
            (r#"db_operation_name="remove",error_type="unavailable""#, 1),
        ] {
            let line = format!("db_client_operation_duration_seconds_count{{{labels}}} {count}");
            assert!(text.lines().any(|one| one == line), "no line {line} in {text}");
        }
        assert!(!text.contains(r#"db_operation_name="len""#), "it answers at once: {text}");
    }
}
