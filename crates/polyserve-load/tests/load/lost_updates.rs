//! A store that loses acknowledged updates.

use std::sync::Arc;

use polyserve_core::{
    Answer, Condition, Conditional, Entity, EntityRepo, EntityRepoExt as _, EntityService, Lookup, Put, Removed,
    RepoAnswer, Running, ServerConfig, ServerExt as _, Visit,
};
use polyserve_load::{Pace, Usage, prefill};
use polyserve_memory::StdRwlock;
use polyserve_threadpool::{MpscPool, PoolServer};

use super::{assert_clean, entities, report, requests};

/// Acknowledges every PUT as a replacement, and keeps the first entity of each key.
#[derive(Debug)]
struct KeepsTheFirst(StdRwlock);

impl EntityRepo for KeepsTheFirst {
    fn get(&self, &id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
        self.0.get(&id, visit)
    }

    fn put_if(&self, entity: Entity, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        self.0.put_if(entity, condition)
    }

    fn remove_if(&self, &id: &i64, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        self.0.remove_if(&id, condition)
    }

    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        match self.0.fetch(&entity.id).wait() {
            Ok(Some(_)) => Answer::Now(Ok(Put::Replaced)),
            Ok(None) | Err(_) => self.0.put(entity),
        }
    }

    fn remove(&self, &id: &i64) -> RepoAnswer<Removed> {
        self.0.remove(&id)
    }

    fn len(&self) -> RepoAnswer<u64> {
        self.0.len()
    }
}

fn serve(repo: impl EntityRepo) -> Running {
    let pool = Arc::new(MpscPool::for_server(&ServerConfig::default().workers(2)).unwrap());
    let server = PoolServer::with_executor(ServerConfig::default(), pool).unwrap();
    server.serve(([127, 0, 0, 1], 0), EntityService::new(repo)).unwrap()
}

/// Regression test: each answer of such a server alone is possible in some order of the operations. So the load once
/// reported no failure.
#[test]
fn an_acknowledged_put_that_is_thrown_away_is_found() {
    let running = serve(KeepsTheFirst(StdRwlock::new()));
    let traffic = entities(20, "get=1,put=1");
    prefill(running.local_addr(), "host", &traffic).unwrap();
    for (threads, usage) in
        [(1, Usage::KeepAlive { pipeline: 1 }), (3, Usage::KeepAlive { pipeline: 4 }), (2, Usage::Close)]
    {
        let load = requests(running.local_addr(), &traffic, 1_000).with(|load| {
            (load.threads, load.usage) = (threads, usage);
        });
        let report = report(&load);
        let first = report.first_failure.clone().unwrap_or_default();
        assert!(
            first.contains(" after an acknowledged PUT of ") && first.contains(": the body is not the expected one"),
            "{report:?}"
        );
        assert_eq!(report.failed.total(), report.failed.wrong);
    }
}

/// A correct store has no failures, with many connections and threads.
#[test]
fn a_store_that_keeps_its_updates_is_clean() {
    let running = serve(StdRwlock::new());
    let traffic = entities(5, "get=1,put=1");
    prefill(running.local_addr(), "host", &traffic).unwrap();
    for (pipeline, pace) in [(1, Pace::Closed), (16, Pace::Closed), (1, Pace::Rate(20_000.0))] {
        let load = requests(running.local_addr(), &traffic, 5_000).with(|load| {
            (load.threads, load.usage, load.pace) = (3, Usage::KeepAlive { pipeline }, pace);
        });
        assert_clean(&report(&load));
    }
}
