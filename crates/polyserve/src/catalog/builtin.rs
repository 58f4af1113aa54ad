//! The built-in entries, one for each strategy of this project.
//!
//! Invariant: the printed code is the compiled code. A macro makes the constructor and its text from the same tokens. The
//! tokens are in a scope with the prelude, and this file imports no strategy.

pub(super) mod schemes;

use polyserve::prelude::*;
use polyserve_core::Echo;

#[cfg(any(feature = "threadpool", feature = "memory", feature = "tokio", feature = "smol", feature = "percore"))]
use super::BuildCode;
#[cfg(feature = "memory")]
use super::RepoRule;
#[cfg(any(feature = "threadpool", feature = "tokio", feature = "percore"))]
use super::Tag;
use super::{Entry, Promise};
#[cfg(feature = "threadpool")]
use super::{ExecutorEntry, ServerEntry};

/// Creates the entry of a server that is built from a configuration alone.
#[cfg(any(feature = "threadpool", feature = "tokio", feature = "smol", feature = "percore"))]
macro_rules! server {
    ($name:literal, $summary:literal, $promises:expr, $feature:expr, $server:ty) => {
        Entry::server($name, $summary, $promises, |config| Ok(Box::new(<$server>::new(config.clone())?)))
            .with_code(BuildCode::new($feature, format!("{}::new({})?", stringify!($server), BuildCode::CONFIG)))
    };
}

/// Creates the entry of an executor that is built from a configuration alone.
#[cfg(any(feature = "threadpool", feature = "tokio", feature = "smol"))]
macro_rules! executor {
    ($name:literal, $summary:literal, $promises:expr, $feature:expr, $executor:ty) => {
        Entry::executor($name, $summary, $promises, |c| Ok(std::sync::Arc::new(<$executor>::for_server(c)?)))
            .with_code(BuildCode::new($feature, concat!(stringify!($executor), "::for_server(c)?")))
    };
}

/// Creates the entry of a repo from its type, which has a constructor `new`, or `start` if it can fail. No repo needs a feature
/// beyond the default ones.
#[cfg(feature = "memory")]
macro_rules! repo {
    ($name:literal, $summary:literal, $promises:expr, $repo:ty) => {
        Entry::repo($name, $summary, $promises, || Ok(std::sync::Arc::new(<$repo>::new())))
            .with_code(BuildCode::new(None, concat!(stringify!($repo), "::new()")))
    };
    ($name:literal, $summary:literal, $promises:expr, $repo:ty, start) => {
        Entry::repo($name, $summary, $promises, || Ok(std::sync::Arc::new(<$repo>::start()?)))
            .with_code(BuildCode::new(None, concat!(stringify!($repo), "::start()?")))
    };
}

/// Creates a repo of entities of a type by the constructor `of`, or by `start_of` if it can fail.
#[cfg(feature = "memory")]
macro_rules! of_type {
    ($repo:ty, $entity:ty) => {
        <$repo>::of::<$entity>()
    };
    ($repo:ty, $entity:ty, start) => {
        <$repo>::start_of::<$entity>()?
    };
}

/// Defines `memory`, which adds the repos to a catalog, and `repo_of`, which builds one of them for entities of any type. The
/// entry of a repo is `repo!` of its arguments, and then the calls after `=>`. The type of a repo has a constructor `of` or `start_of` too.
#[cfg(feature = "memory")]
macro_rules! repos {
    ($(
        $(#[$cfg:meta])*
        $name:literal, $summary:literal, $promises:expr, $repo:ty $(, $start:ident)?
        $(=> $(.$with:ident($($argument:tt)*))+)?;
    )*) => {
        fn memory(catalog: Catalog) -> Catalog {
            $(
                $(#[$cfg])*
                let catalog =
                    catalog.with_repo(repo!($name, $summary, $promises, $repo $(, $start)?)$($(.$with($($argument)*))+)?);
            )*
            catalog
        }

        /// Builds the repo in memory with this name for entities of any type.
        pub(super) fn repo_of<E: Identifiable>(
            name: &str,
        ) -> std::io::Result<Option<std::sync::Arc<dyn EntityRepo<E>>>> {
            Ok(Some(match name {
                $($(#[$cfg])* $name => std::sync::Arc::new(of_type!($repo, E $(, $start)?)),)*
                "ordered" => std::sync::Arc::new(polyserve::memory::Ordered::new(Sharded::of::<E>())),
                _ => return Ok(None),
            }))
        }
    };
}

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
    #[cfg(all(feature = "percore", target_os = "linux"))]
    let catalog = percore(catalog);
    #[cfg(feature = "memory")]
    let catalog = memory(catalog);
    #[cfg(feature = "memory")]
    let catalog = match catalog.repo("sharded") {
        Ok(sharded) => catalog.with_repo(ordered("ordered", &sharded)),
        Err(_) => catalog,
    };
    services(schemes::all().into_iter().fold(catalog, Catalog::with_repo_scheme))
}

#[cfg(feature = "threadpool")]
fn threadpool(catalog: Catalog) -> Catalog {
    const CONNECTION_PER_THREAD: &[Promise] = &[Promise::LaterHoldsWorker, Promise::Drains];

    catalog
        .with_server(server!(
            "sequential",
            "one thread, one connection at a time: the baseline",
            &[Promise::LaterHoldsWorker, Promise::Drains],
            None,
            polyserve::threadpool::Sequential
        ))
        .with_server(server!(
            "thread_per_connection",
            "a new thread for each connection: the textbook server",
            CONNECTION_PER_THREAD,
            None,
            polyserve::threadpool::ThreadPerConnection
        ))
        .with_server(
            server!(
                "leader_followers",
                "a thread for each connection; the thread that accepts also serves it (Leader/Followers)",
                CONNECTION_PER_THREAD,
                None,
                polyserve::threadpool::LeaderFollowers
            )
            .with_tags(&[Tag::Quick, Tag::Recommended]),
        )
        .with_executor(
            executor!(
                "mpsc_pool",
                "threads behind one std channel: the textbook pool",
                &[Promise::BoundedQueue, Promise::RunsInOrder, Promise::SurvivesPanics],
                None,
                MpscPool
            )
            .with_tags(&[Tag::Quick, Tag::Recommended]),
        )
        .with_executor(executor!(
            "crossbeam_pool",
            "threads that receive from one crossbeam channel",
            &[Promise::BoundedQueue, Promise::RunsInOrder, Promise::SurvivesPanics],
            None,
            polyserve::threadpool::CrossbeamPool
        ))
        .with_executor(executor!(
            "stealing_pool",
            "threads with a queue each, which steal from each other",
            &[Promise::BoundedQueue, Promise::SurvivesPanics],
            None,
            polyserve::threadpool::StealingPool
        ))
}

/// The promises of every server on an async runtime, and of those with an event loop on each core.
#[cfg(any(feature = "tokio", feature = "smol", feature = "percore"))]
const ASYNC: &[Promise] = &[Promise::LaterHoldsNoThread, Promise::Drains];

#[cfg(feature = "tokio")]
fn tokio(catalog: Catalog) -> Catalog {
    let feature = Some("tokio");
    catalog
        .with_server(
            server!(
                "tokio_tcp",
                "tasks on tokio's multi-thread runtime, with this project's codec",
                ASYNC,
                feature,
                TokioTcp
            )
            .with_tags(&[Tag::Quick, Tag::Recommended]),
        )
        .with_server(
            server!(
                "tokio_per_core",
                "a single-threaded tokio runtime for each core, with its own listener",
                ASYNC,
                feature,
                TokioPerCore
            )
            .with_tags(&[Tag::Quick, Tag::Recommended]),
        )
        .with_executor(executor!(
            "tokio_tasks",
            "tasks that do not yield, on a multi-thread tokio runtime",
            &[Promise::BoundedQueue, Promise::SurvivesPanics],
            feature,
            polyserve::async_::TokioTasks
        ))
        .with_executor(executor!(
            "tokio_blocking",
            "tokio's blocking pool, which tokio recommends for blocking work",
            &[Promise::BoundedQueue, Promise::RunsInOrder, Promise::SurvivesPanics],
            feature,
            polyserve::async_::TokioBlocking
        ))
}

#[cfg(feature = "hyper")]
fn hyper(catalog: Catalog) -> Catalog {
    catalog.with_server(server!(
        "tokio_hyper",
        "hyper's codec on tokio's multi-thread runtime, with this project's limits",
        ASYNC,
        Some("hyper"),
        TokioHyper
    ))
}

#[cfg(feature = "smol")]
fn smol(catalog: Catalog) -> Catalog {
    catalog
        .with_server(server!(
            "smol",
            "tasks on async-executor and async-io, the parts of smol",
            ASYNC,
            Some("smol"),
            Smol
        ))
        .with_executor(executor!(
            "smol_tasks",
            "tasks that do not yield, on smol's async-executor",
            &[Promise::BoundedQueue, Promise::SurvivesPanics],
            Some("smol"),
            polyserve::async_::SmolTasks
        ))
}

#[cfg(feature = "futures")]
fn futures(catalog: Catalog) -> Catalog {
    catalog
        .with_server(server!(
            "futures_pool",
            "tasks that block, on the thread pool of the futures crate: as published",
            CLASSIC,
            Some("futures"),
            FuturesPool
        ))
        .with_executor(executor!(
            "futures_tasks",
            "tasks that do not yield, on the thread pool of the futures crate",
            &[Promise::BoundedQueue, Promise::RunsInOrder, Promise::SurvivesPanics],
            Some("futures"),
            polyserve::async_::FuturesTasks
        ))
}

#[cfg(all(feature = "percore", target_os = "linux"))]
fn percore(catalog: Catalog) -> Catalog {
    let epoll = server!(
        "epoll",
        "an epoll loop for each core, with its own listener: no runtime, nothing shared",
        ASYNC,
        Some("percore"),
        Epoll
    );
    // Whether the system allows it is found out when the servers are listed. Look-ups say what is missing.
    let io_uring = server!(
        "io_uring",
        "an io_uring for each core, with its own listener and buffers (Linux 6.1)",
        ASYNC,
        Some("percore"),
        IoUring
    );
    let tags = &[Tag::Recommended];
    catalog.with_server(epoll.with_tags(tags)).with_server(io_uring.with_tags(tags))
}

/// The promises of a server that runs each connection as one job of a pool.
#[cfg(feature = "threadpool")]
const CLASSIC: &[Promise] = &[Promise::LaterHoldsWorker, Promise::BoundedQueue, Promise::Drains];

/// Returns the classic pool server over an executor of the catalog.
#[cfg(feature = "threadpool")]
pub(super) fn pool_classic(executor: &ExecutorEntry) -> ServerEntry {
    let factory = executor.clone();
    let entry = Entry::server(
        &format!("pool_classic/{}", executor.name),
        &format!("each connection is one job of {} until it closes: as published", executor.name),
        CLASSIC,
        move |config| {
            let factory = factory.clone();
            Ok(Box::new(polyserve::threadpool::PoolClassic::with_factory(config.clone(), move |config| {
                factory.build(config)
            })?))
        },
    );
    let code = executor.code.as_ref().map(|code| code.over("polyserve::threadpool::PoolClassic", &executor.name));
    ServerEntry { code, ..entry }
}

/// Returns the pool server over an executor of the catalog.
#[cfg(feature = "threadpool")]
pub(super) fn pool_server(executor: &ExecutorEntry) -> ServerEntry {
    let factory = executor.clone();
    let entry = Entry::server(
        &format!("pool_server/{}", executor.name),
        &format!("workers of {} share the connections; an idle connection holds no worker", executor.name),
        &[Promise::LaterHoldsWorker, Promise::BoundedQueue, Promise::Drains],
        move |config| {
            let factory = factory.clone();
            Ok(Box::new(PoolServer::with_factory(config.clone(), move |config| factory.build(config))?))
        },
    );
    let code = executor.code.as_ref().map(|code| code.over("PoolServer", &executor.name));
    ServerEntry { code, tags: executor.tags.clone(), ..entry }
}

/// The number of entities from which `sharded` is ahead of `packed` (record `stores-keys`, half puts).
#[cfg(feature = "packed")]
const PACKED_KEYS: u64 = 1_000_000;

/// The max number of entities with which `papaya` leads (record `stores-keys`: at 100 000 it does, at 1 000 000 not).
#[cfg(feature = "papaya")]
const PAPAYA_KEYS: u64 = 100_000;

#[cfg(feature = "memory")]
repos! {
    "std_mutex", "one map behind one mutex: the baseline", REPO, StdMutex;
    "std_rwlock", "one map behind one readers-writer lock", REPO, StdRwlock
        => .with_rule(RepoRule {
            when: |workload| !workload.waits && workload.cores == 1,
            why: "on one core, one lock is the fastest, unless entities come and go",
            overhead: 99,
            usual: false,
        });
    "two_level", "a lock for the map, and a lock for each entity: as published", REPO, polyserve::memory::TwoLevel
        => .with_rule(RepoRule {
            when: |workload| workload.is_parallel() && workload.writes_much() && workload.is_large(),
            why: "on several cores that write large entities, an entity is copied under its own lock alone",
            overhead: 126,
            usual: false,
        });
    "sharded", "tables in shards, each behind a readers-writer lock", REPO, Sharded
        => .with_rule(RepoRule {
            when: |_| true,
            why: "it is among the first with reads and writes, unless most ids are new",
            overhead: 92,
            usual: true,
        });
    #[cfg(feature = "packed")]
    "packed", "entities packed in pages, in shards: the smallest", REPO, Packed
        => .with_rule(RepoRule {
            when: |workload| {
                let leads = workload.writes_much() && !workload.is_large() && workload.keys < PACKED_KEYS;
                !workload.waits && (leads || workload.memory_limit.is_some())
            },
            why: "it is the smallest, and among the fastest if at least half of the requests write small entities",
            overhead: 30,
            usual: false,
        });
    // No record shows yet for which workloads it leads, so it has no rule.
    #[cfg(feature = "seqlock")]
    "seqlock", "packed entities behind a version for each bucket: readers write nothing", REPO, polyserve::memory::Seqlock;
    #[cfg(feature = "copy-on-write")]
    "copy_on_write", "immutable chunks behind pointers: readers never wait", REPO, polyserve::memory::CopyOnWrite;
    "actor", "a thread for each shard, messages instead of locks", ACTOR, polyserve::memory::Actor, start;
    #[cfg(feature = "dashmap")]
    "dashmap", "the sharded map of the dashmap crate", REPO, polyserve::memory::Dashmap;
    #[cfg(feature = "papaya")]
    "papaya", "the lock-free map of the papaya crate", REPO, polyserve::memory::Papaya
        => .with_rule(RepoRule {
            when: |workload| {
                let leads = workload.hardly_writes() && workload.keys <= PAPAYA_KEYS && !workload.is_large();
                workload.is_parallel() && leads
            },
            why: "on several cores that hardly write, readers without locks lead, up to 100,000 small entities",
            overhead: 111,
            usual: false,
        });
    #[cfg(feature = "scc")]
    "scc", "the map of the scc crate, a lock for each bucket", REPO, polyserve::memory::Scc
        => .with_rule(RepoRule {
            when: |workload| workload.is_parallel() && !workload.writes_much() && !workload.hardly_writes(),
            why: "on several cores that also write, a lock for each bucket leads if ids are new, and ties if not",
            overhead: 101,
            usual: false,
        });
}

/// Creates the entry of an index of ids over another repo.
#[cfg(feature = "memory")]
pub(super) fn ordered(name: &str, over: &super::RepoEntry) -> super::RepoEntry {
    const PROMISES: &[Promise] = &[Promise::Linearizable, Promise::AnswersNow, Promise::Scans, Promise::Volatile];
    let below = over.clone();
    let entry = Entry::repo(name, "an index of ids over a store, for scans", PROMISES, move || {
        Ok(std::sync::Arc::new(polyserve::memory::Ordered::new(below.build()?)))
    });
    let code = over
        .code
        .as_ref()
        .map(|code| BuildCode::new(code.feature, format!("polyserve::memory::Ordered::new({})", code.expression)));
    super::RepoEntry { code, ..entry }
}

/// Builds the repo in memory with this name for entities of any type.
#[cfg(not(feature = "memory"))]
pub(super) fn repo_of<E: Identifiable>(_name: &str) -> std::io::Result<Option<std::sync::Arc<dyn EntityRepo<E>>>> {
    Ok(None)
}

/// The promises of the repo with a thread for each shard.
#[cfg(feature = "memory")]
const ACTOR: &[Promise] = &[Promise::Linearizable, Promise::AnswersLater, Promise::BoundedMailboxes, Promise::Volatile];

/// The promises of a repo that works on the caller's thread.
#[cfg(feature = "memory")]
const REPO: &[Promise] = &[Promise::Linearizable, Promise::AnswersNow, Promise::Volatile];

fn services(catalog: Catalog) -> Catalog {
    catalog.with_service(Entry::entity(|service| service)).with_service(Entry::service(
        "echo",
        "the request's body",
        &[Promise::AnswersNow],
        |_| std::sync::Arc::new(Echo),
    ))
}
