//! A repo of which the operations are counted, with the durations of those that take time:
//! [`Metrics::observe_store`](super::Metrics::observe_store).

use std::sync::Arc;
use std::time::{Duration, Instant};

use polyserve_core::figures::StoreFigures;
use polyserve_core::{
    Answer, Condition, Conditional, EntityRepo, Identifiable, Lookup, ManyVisit, Put, Removed, RepoAnswer, ScanPage,
    ScanVisit, Visit,
};

use super::durations::Kind;
use super::operations::{OperationEnd, RepoOperation};
use super::per_thread::ThreadRecords;

/// A repo that is observed.
#[derive(Debug)]
pub struct ObservedStore<R> {
    repo: R,
    records: Arc<ThreadRecords>,
}

impl<R> ObservedStore<R> {
    pub(super) fn new(repo: R, records: Arc<ThreadRecords>) -> Self {
        Self { repo, records }
    }

    #[inline]
    fn observe<T: Send + 'static>(&self, operation: RepoOperation, answer: RepoAnswer<T>) -> RepoAnswer<T> {
        if let Answer::Now(Ok(_)) = &answer {
            self.records.count(operation);
            return answer;
        }
        self.observe_end(operation, answer)
    }

    /// Observes an operation that is not done yet, or has failed.
    #[inline(never)]
    fn observe_end<T: Send + 'static>(&self, operation: RepoOperation, answer: RepoAnswer<T>) -> RepoAnswer<T> {
        match answer {
            Answer::Now(result) => {
                self.records.add_duration(Kind::Store(operation, OperationEnd::of(&result)), Duration::ZERO);
                Answer::Now(result)
            }
            later @ Answer::Later(_) => {
                let pending = PendingOperation {
                    records: Arc::clone(&self.records),
                    operation,
                    begin: Instant::now(),
                    end: OperationEnd::Abandoned,
                };
                later.map(move |result| {
                    pending.end(OperationEnd::of(&result));
                    result
                })
            }
        }
    }
}

/// An operation without an answer yet. Its end is counted, also if the caller has dropped the answer.
struct PendingOperation {
    records: Arc<ThreadRecords>,
    operation: RepoOperation,
    begin: Instant,
    end: OperationEnd,
}

impl PendingOperation {
    fn end(mut self, end: OperationEnd) {
        self.end = end;
    }
}

impl Drop for PendingOperation {
    fn drop(&mut self) {
        self.records.add_duration(Kind::Store(self.operation, self.end), self.begin.elapsed());
    }
}

#[deny(clippy::missing_trait_methods)]
impl<E: Identifiable, R: EntityRepo<E>> EntityRepo<E> for ObservedStore<R> {
    fn get(&self, id: &E::Id, visit: Visit<'_, E>) -> RepoAnswer<Lookup<E>> {
        self.observe(RepoOperation::Get, self.repo.get(id, visit))
    }

    fn get_many(&self, ids: &[E::Id], visit: ManyVisit<'_, E>) -> RepoAnswer<Vec<(usize, E)>> {
        self.observe(RepoOperation::GetMany, self.repo.get_many(ids, visit))
    }

    fn put_if(&self, entity: E, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        self.observe(RepoOperation::Put, self.repo.put_if(entity, condition))
    }

    fn remove_if(&self, id: &E::Id, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        self.observe(RepoOperation::Remove, self.repo.remove_if(id, condition))
    }

    fn put(&self, entity: E) -> RepoAnswer<Put> {
        self.observe(RepoOperation::Put, self.repo.put(entity))
    }

    fn remove(&self, id: &E::Id) -> RepoAnswer<Removed> {
        self.observe(RepoOperation::Remove, self.repo.remove(id))
    }

    fn len(&self) -> RepoAnswer<u64> {
        self.observe(RepoOperation::Len, self.repo.len())
    }

    fn version(&self, id: &E::Id) -> Option<u64> {
        self.repo.version(id)
    }

    fn can_scan(&self) -> bool {
        self.repo.can_scan()
    }

    fn scan(&self, after: Option<&E::Id>, limit: usize, visit: ScanVisit<'_, E>) -> RepoAnswer<ScanPage<E>> {
        self.observe(RepoOperation::Scan, self.repo.scan(after, limit, visit))
    }

    fn status(&self) -> RepoAnswer<()> {
        self.observe(RepoOperation::Status, self.repo.status())
    }

    fn figures(&self) -> Option<Arc<dyn StoreFigures>> {
        self.repo.figures()
    }
}

#[cfg(test)]
mod tests {
    use polyserve_core::figures::{FigureValue, Histogram, StoreFigure};
    use polyserve_core::{Entity, EntityRepoExt as _, RepoError};

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
    fn all_operations_are_counted_and_later_answers_and_errors_are_measured() {
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
        let measured = r#"db_client_operation_duration_seconds_count{db_operation_name="len""#;
        assert!(!text.contains(measured), "it answers at once: {text}");
        for (labels, count) in [
            (r#"db_operation_name="get",error_type="""#, 2),
            (r#"db_operation_name="get",error_type="abandoned""#, 1),
            (r#"db_operation_name="put",error_type="full""#, 1),
            (r#"db_operation_name="remove",error_type="unavailable""#, 1),
            (r#"db_operation_name="len",error_type="""#, 1),
        ] {
            let line = format!("polyserve_store_operations_total{{{labels}}} {count}");
            assert!(text.lines().any(|one| one == line), "no line {line} in {text}");
        }
    }
}
