//! Nested entities in every store, on a server with small stacks. A stack that overflows ends this program.
#![cfg(all(feature = "threadpool", feature = "memory"))]

use polyserve::memory::{Actor, Sharded, StdMutex, StdRwlock, TwoLevel};
use polyserve::prelude::*;
use polyserve::threadpool::ThreadPerConnection;
use polyserve_conformance::property::Outcome;
use polyserve_conformance::server::{Nested, ServerSubject, nested_entities_are_kept_over};

fn keeps<E: Identifiable>(repo: impl EntityRepo<E>) {
    let subject = ServerSubject::new(ThreadPerConnection::new);
    assert_eq!(nested_entities_are_kept_over(&subject, repo), Outcome::Held);
}

#[test]
fn repos_in_memory_keep_nested_entities() {
    keeps(StdMutex::of::<Nested>());
    keeps(StdRwlock::of::<Nested>());
    keeps(TwoLevel::of::<Nested>());
    keeps(Sharded::of::<Nested>());
    #[cfg(feature = "copy-on-write")]
    keeps(polyserve::memory::CopyOnWrite::of::<Nested>());
    #[cfg(feature = "packed")]
    keeps(polyserve::memory::Packed::of::<Nested>());
    keeps(Actor::of::<Nested>());
    #[cfg(feature = "dashmap")]
    keeps(polyserve::memory::Dashmap::of::<Nested>());
    #[cfg(feature = "papaya")]
    keeps(polyserve::memory::Papaya::of::<Nested>());
    #[cfg(feature = "scc")]
    keeps(polyserve::memory::Scc::of::<Nested>());
    #[cfg(feature = "seqlock")]
    keeps(polyserve::memory::Seqlock::of::<Nested>());
}

/// The store is opened again as well: it reads the entities of its log on the caller's thread.
#[cfg(feature = "durable")]
#[test]
fn a_durable_repo_keeps_nested_entities() {
    use polyserve::durable::Durable;

    let directory = std::env::temp_dir().join(format!("polyserve-nested-{}", std::process::id()));
    let open = || Durable::<_, Nested>::open(&directory, Actor::of::<Nested>()).expect("the store opens");
    let body = format!("{}{}{}", r#"{"name":"b","child":"#.repeat(127), r#"{"name":"b"}"#, "}".repeat(127));
    let store = open();
    let entity = Nested::read_json(body.as_bytes()).expect("it is an entity");
    store.put(entity).wait().expect("the entity is stored");
    keeps(store);
    let store = open();
    assert_eq!(store.len().wait().expect("it answers"), 1);
    keeps(store);
    std::fs::remove_dir_all(&directory).expect("the store can be removed");
}
