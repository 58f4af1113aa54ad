//! The built-in entries, one for each strategy of this project.

use std::sync::Arc;

use polyserve_core::service::{Echo, EntityService, Page, Welcome};

use super::{Catalog, Entry};
#[cfg(feature = "threadpool")]
use super::{ExecutorEntry, HOLDS_A_WORKER, ServerEntry};

pub(super) fn catalog() -> Catalog {
    let catalog = Catalog::new();
    #[cfg(feature = "threadpool")]
    let catalog = threadpool(catalog);
    #[cfg(feature = "tokio")]
    let catalog = tokio(catalog);
    #[cfg(feature = "hyper")]
    let catalog = hyper(catalog);
    #[cfg(feature = "smol")]
    let catalog = smol(catalog);
    #[cfg(feature = "futures")]
    let catalog = futures(catalog);
    #[cfg(feature = "memory")]
    let catalog = memory(catalog);
    services(catalog)
}

#[cfg(feature = "threadpool")]
fn threadpool(catalog: Catalog) -> Catalog {
    use polyserve_threadpool::{
        CrossbeamPool, LeaderFollowers, MpscPool, Sequential, StealingPool, ThreadPerConnection,
    };

    catalog
        .with_server(Entry::server(
            "sequential",
            "one thread, one connection at a time: the baseline",
            &["one connection at a time", HOLDS_A_WORKER, "drains"],
            |config| Ok(Box::new(Sequential::new(config.clone())?)),
        ))
        .with_server(Entry::server(
            "thread_per_connection",
            "a new thread for each connection: the textbook server",
            &["one connection a thread", HOLDS_A_WORKER, "drains"],
            |config| Ok(Box::new(ThreadPerConnection::new(config.clone())?)),
        ))
        .with_server(Entry::server(
            "leader_followers",
            "a thread for each connection; the thread that accepts also serves it (Leader/Followers)",
            &["one connection a thread", HOLDS_A_WORKER, "drains"],
            |config| Ok(Box::new(LeaderFollowers::new(config.clone())?)),
        ))
        .with_executor(Entry::executor(
            "mpsc_pool",
            "threads behind one std channel: the textbook pool",
            &["bounded queue", "runs in order", "survives panics"],
            |config| Ok(Arc::new(MpscPool::new(config.into())?)),
        ))
        .with_executor(Entry::executor(
            "crossbeam_pool",
            "threads that receive from one crossbeam channel",
            &["bounded queue", "runs in order", "survives panics"],
            |config| Ok(Arc::new(CrossbeamPool::new(config.into())?)),
        ))
        .with_executor(Entry::executor(
            "stealing_pool",
            "threads with a queue each, which steal from each other",
            &["bounded queue", "survives panics"],
            |config| Ok(Arc::new(StealingPool::new(config.into())?)),
        ))
}

/// The promises of every server on an async runtime.
#[cfg(any(feature = "tokio", feature = "smol"))]
const ASYNC: &[&str] = &["multiplexed connections", super::HOLDS_NO_THREAD, "drains"];

#[cfg(feature = "tokio")]
fn tokio(catalog: Catalog) -> Catalog {
    use polyserve_async::executors::{TokioBlocking, TokioTasks};
    use polyserve_async::servers::{TokioPerCore, TokioTcp};

    catalog
        .with_server(Entry::server(
            "tokio_tcp",
            "tasks on tokio's multi-thread runtime, with this project's codec",
            ASYNC,
            |config| Ok(Box::new(TokioTcp::new(config.clone())?)),
        ))
        .with_server(Entry::server(
            "tokio_per_core",
            "a single-threaded tokio runtime for each core, with its own listener",
            ASYNC,
            |config| Ok(Box::new(TokioPerCore::new(config.clone())?)),
        ))
        .with_executor(Entry::executor(
            "tokio_tasks",
            "tasks that do not yield, on a multi-thread tokio runtime",
            &["bounded queue", "survives panics"],
            |config| Ok(Arc::new(TokioTasks::new(config.into())?)),
        ))
        .with_executor(Entry::executor(
            "tokio_blocking",
            "tokio's blocking pool, which tokio recommends for blocking work",
            &["bounded queue", "runs in order", "survives panics"],
            |config| Ok(Arc::new(TokioBlocking::new(config.into())?)),
        ))
}

#[cfg(feature = "hyper")]
fn hyper(catalog: Catalog) -> Catalog {
    catalog.with_server(Entry::server(
        "tokio_hyper",
        "hyper's codec on tokio's multi-thread runtime, with this project's limits",
        ASYNC,
        |config| Ok(Box::new(polyserve_async::servers::TokioHyper::new(config.clone())?)),
    ))
}

#[cfg(feature = "smol")]
fn smol(catalog: Catalog) -> Catalog {
    use polyserve_async::executors::SmolTasks;
    use polyserve_async::servers::Smol;

    catalog
        .with_server(Entry::server(
            "smol",
            "tasks on async-executor and async-io, the parts of smol",
            ASYNC,
            |config| Ok(Box::new(Smol::new(config.clone())?)),
        ))
        .with_executor(Entry::executor(
            "smol_tasks",
            "tasks that do not yield, on smol's async-executor",
            &["bounded queue", "survives panics"],
            |config| Ok(Arc::new(SmolTasks::new(config.into())?)),
        ))
}

#[cfg(feature = "futures")]
fn futures(catalog: Catalog) -> Catalog {
    use polyserve_async::executors::FuturesTasks;

    use crate::futures_pool::FuturesPool;

    catalog
        .with_server(Entry::server(
            "futures_pool",
            "tasks that block, on the thread pool of the futures crate: as published",
            &["one connection a thread", super::HOLDS_A_WORKER, "bounded queue", "drains"],
            |config| Ok(Box::new(FuturesPool::new(config.clone())?)),
        ))
        .with_executor(Entry::executor(
            "futures_tasks",
            "tasks that do not yield, on the thread pool of the futures crate",
            &["bounded queue", "runs in order", "survives panics"],
            |config| Ok(Arc::new(FuturesTasks::new(config.into())?)),
        ))
}

/// Returns the classic pool server over an executor of the catalog.
#[cfg(feature = "threadpool")]
pub(super) fn pool_classic(executor: &ExecutorEntry) -> ServerEntry {
    let make = Arc::clone(&executor.make);
    Entry::server(
        &format!("pool_classic/{}", executor.name),
        &format!("each connection is one job of {} until it closes: as published", executor.name),
        &["one connection a thread", HOLDS_A_WORKER, "bounded queue", "drains"],
        move |config| {
            let make = Arc::clone(&make);
            Ok(Box::new(polyserve_threadpool::PoolClassic::new(config.clone(), move |config| make(config))?))
        },
    )
}

/// Returns the pool server over an executor of the catalog.
#[cfg(feature = "threadpool")]
pub(super) fn pool_server(executor: &ExecutorEntry) -> ServerEntry {
    let make = Arc::clone(&executor.make);
    Entry::server(
        &format!("pool_server/{}", executor.name),
        &format!("workers of {} share the connections; an idle connection holds no worker", executor.name),
        &["multiplexed connections", HOLDS_A_WORKER, "bounded queue", "drains"],
        move |config| {
            let make = Arc::clone(&make);
            Ok(Box::new(polyserve_threadpool::PoolServer::new(config.clone(), move |config| make(config))?))
        },
    )
}

#[cfg(feature = "memory")]
fn memory(catalog: Catalog) -> Catalog {
    use polyserve_memory::{Actor, CopyOnWrite, Packed, Sharded, StdMutex, StdRwlock, TwoLevel};

    let catalog = catalog
        .with_repo(Entry::repo("std_mutex", "one map behind one mutex: the baseline", REPO, || {
            Ok(Arc::new(StdMutex::default()))
        }))
        .with_repo(Entry::repo("std_rwlock", "one map behind one readers-writer lock", REPO, || {
            Ok(Arc::new(StdRwlock::default()))
        }))
        .with_repo(Entry::repo(
            "two_level",
            "a lock for the map, and a lock for each entity: as published",
            REPO,
            || Ok(Arc::new(TwoLevel::default())),
        ))
        .with_repo(Entry::repo("sharded", "tables in shards, each behind a readers-writer lock", REPO, || {
            Ok(Arc::new(Sharded::default()))
        }))
        .with_repo(Entry::repo("packed", "entities packed in pages, in shards: the smallest", REPO, || {
            Ok(Arc::new(Packed::default()))
        }))
        .with_repo(Entry::repo("copy_on_write", "immutable chunks behind pointers: readers never wait", REPO, || {
            Ok(Arc::new(CopyOnWrite::default()))
        }))
        .with_repo(Entry::repo("actor", "a thread for each shard, messages instead of locks", MESSAGES, || {
            Ok(Arc::new(Actor::start()?))
        }));
    #[cfg(feature = "dashmap")]
    let catalog = catalog.with_repo(Entry::repo("dashmap", "the sharded map of the dashmap crate", REPO, || {
        Ok(Arc::new(polyserve_memory::Dashmap::default()))
    }));
    #[cfg(feature = "papaya")]
    let catalog = catalog.with_repo(Entry::repo("papaya", "the lock-free map of the papaya crate", REPO, || {
        Ok(Arc::new(polyserve_memory::Papaya::default()))
    }));
    #[cfg(feature = "scc")]
    let catalog =
        catalog.with_repo(Entry::repo("scc", "the map of the scc crate, a lock for each bucket", REPO, || {
            Ok(Arc::new(polyserve_memory::Scc::default()))
        }));
    catalog
}

/// The promises of a repo that works on the caller's thread.
#[cfg(feature = "memory")]
const REPO: &[&str] = &["linearizable", "answers now", "volatile"];

/// The promises of a repo that sends operations to its own threads.
#[cfg(feature = "memory")]
const MESSAGES: &[&str] = &["linearizable", "answers later", "bounded mailboxes", "volatile"];

fn services(catalog: Catalog) -> Catalog {
    catalog
        .with_service(Entry::service(
            "entity",
            "the entity store",
            &["answers as its repo does"],
            EntityService::shared,
        ))
        .with_service(Entry::service("echo", "the request's body", &["answers now"], |_| Arc::new(Echo)))
        .with_service(Entry::service(
            "page",
            "GET / is a small page; every 10th request waits 2 s first",
            &["answers now, or later"],
            |_| Arc::new(Page::default()),
        ))
        .with_service(Entry::service("welcome", "GET /welcome is Welcome!", &["answers now"], |_| Arc::new(Welcome)))
}
