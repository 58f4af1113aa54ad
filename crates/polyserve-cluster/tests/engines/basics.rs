//! What the kit does not test: stores that are dropped, temporary, or share an engine, and URLs.

use std::iter::repeat_with;
use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use polyserve_cluster::StoreLimits;
use polyserve_core::{Condition, Entity, EntityRepoExt as _, Put, RepoAnswer, RepoError, Visit};
use polyserve_engines::etcd::EtcdCluster;
use polyserve_engines::process::{MAX_WAIT, Missing};
use polyserve_engines::slow::SlowPort;

use crate::Test;
use crate::kind::{Connect as _, Kind, long_limits, name_space};

pub(crate) fn tests(kind: Kind) -> Vec<Test> {
    let mut tests = vec![
        Test::own(kind, "a_dropped_store_answers_closed", move || a_dropped_store_answers_closed(kind)),
        Test::shared(kind, "stores_share_an_engine", move |urls| stores_share_an_engine(kind, urls)),
        Test::shared(kind, "a_temporary_store_leaves_nothing", move |urls| {
            a_temporary_store_leaves_nothing(kind, urls);
        }),
        Test::shared(kind, "silent_hosts_leave_time_to_connect", move |urls| {
            silent_hosts_leave_time_to_connect(kind, urls);
        }),
        Test::own(kind, "a_bad_url_is_an_error", move || {
            a_bad_url_is_an_error(kind);
            Ok(())
        }),
    ];
    if kind == Kind::Etcd {
        tests.push(Test::shared(
            kind,
            "a_page_of_large_entities_has_its_limit",
            a_page_of_large_entities_has_its_limit,
        ));
        let run = answers_that_are_larger_than_usual_are_read;
        tests.push(Test::own(kind, "answers_that_are_larger_than_usual_are_read", run));
    }
    // The nodes of Redis tell clients their ports, so no port can stand between.
    if kind != Kind::Redis {
        let run = move |urls: &str| a_slow_engine_is_connected(kind, urls);
        tests.push(Test::shared(kind, "a_slow_engine_is_connected", run));
    }
    tests
}

const SINGLE: NonZeroUsize = NonZeroUsize::MIN;

/// Waits for an answer, at most the tests' max wait.
fn settled<T>(answer: RepoAnswer<T>) -> Result<T, RepoError> {
    answer.wait_until(Instant::now() + MAX_WAIT).unwrap_or_else(|_| panic!("not answered within {MAX_WAIT:?}"))
}

/// Answers that are outstanding when a store is dropped come, and are results or `Closed`. The drop does not wait for the engine,
/// which is paused.
fn a_dropped_store_answers_closed(kind: Kind) -> Result<(), Missing> {
    let mut engine = kind.start()?;
    let limits = long_limits().max_in_flight(SINGLE);
    let store = kind.connect::<Entity>(&engine.urls(), &name_space(), limits).expect("it connects");
    engine.stop();
    let puts: Vec<_> = (0..1_000).map(|id| store.put(Entity::new(id, "last", 1.0))).collect();
    drop(store);
    engine.resume();
    let mut closed = 0;
    for put in puts {
        match settled(put) {
            Ok(_) => {}
            Err(RepoError::Closed) => closed += 1,
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(closed > 0, "the drop waited for all operations");
    Ok(())
}

/// What one store writes, another store with the same name space sees; a third with another name space does not.
fn stores_share_an_engine(kind: Kind, urls: &str) {
    let (shared, other) = (name_space(), name_space());
    let connect = |name_space: &str| kind.connect::<Entity>(urls, name_space, long_limits()).expect("it connects");
    let (first, second, third) = (connect(&shared), connect(&shared), connect(&other));
    let entity = Entity::new(1, "first", 0.5);
    assert_eq!(settled(first.put(entity.clone())).unwrap(), Put::Created);
    assert_eq!(second.fetch(&1).wait().unwrap(), Some(entity.clone()));
    assert_eq!(settled(second.put_if(entity.clone(), &Condition::absent())).unwrap().done(), None);
    assert_eq!(settled(second.put(entity)).unwrap(), Put::Replaced);
    assert_eq!((settled(first.len()).unwrap(), third.fetch(&1).wait().unwrap()), (1, None));
}

/// A temporary store is empty, and removes its entities when it is dropped.
fn a_temporary_store_leaves_nothing(kind: Kind, urls: &str) {
    let (first, second) = (kind.connect_temporary(urls).expect("it connects"), kind.connect_temporary(urls).unwrap());
    for id in 0..100 {
        assert_eq!(settled(first.put(Entity::new(id, "temporary", 0.5))).unwrap(), Put::Created);
    }
    assert_eq!((settled(first.len()).unwrap(), settled(second.len()).unwrap()), (100, 0));
    assert!(kind.count_temporary(urls) > 0);
    drop((first, second));
    assert_eq!(kind.count_temporary(urls), 0);
}

/// Regression test: an answer with three entities was too large, and the next range asked for three quarters of one, which etcd takes
/// for all entities.
fn a_page_of_large_entities_has_its_limit(urls: &str) {
    let store = Kind::Etcd.connect::<Entity>(urls, &name_space(), long_limits()).expect("it connects");
    for id in 1..=5 {
        let large = Entity::new(id, "x".repeat(1_450_000), 0.5);
        assert_eq!(settled(store.put(large)).expect("etcd takes 1.5 MiB"), Put::Created);
    }
    for limit in [0, 1, 2, 3, 4, 5, 100] {
        let page = settled(store.scan(None, limit, &mut |_, _| ControlFlow::Continue(()))).expect("it is read");
        // Two of them are more than a page has.
        assert_eq!((page.entities.len(), page.has_more), (limit.min(1), true), "a page of {limit}");
    }
}

/// Regression test: a put of a known id was answered as one that was not done, if the answer with the replaced entity was larger than
/// the client library takes by default. It was done, and no get could read it.
fn answers_that_are_larger_than_usual_are_read() -> Result<(), Missing> {
    let mut etcd = EtcdCluster::prepared([None, None, None])?;
    etcd.take_requests_of(16 << 20);
    etcd.run();
    let store = Kind::Etcd.connect::<Entity>(&etcd.urls(), &name_space(), long_limits()).expect("it connects");
    for round in 0..3 {
        let large = Entity::new(1, "x".repeat(6 << 20), f64::from(round));
        let put = settled(store.put(large.clone())).expect("it is stored");
        assert_eq!(put, if round == 0 { Put::Created } else { Put::Replaced });
        assert_eq!(store.fetch(&1).wait().expect("it is read"), Some(large));
    }
    let page = settled(store.scan(None, 100, &mut |_, _| ControlFlow::Continue(()))).expect("it is read");
    assert_eq!((page.entities.len(), page.has_more), (1, false));
    // Regression test: an entity that is larger than the engine takes was an error of the store, over HTTP 500.
    for (id, condition) in [(1, Condition::ALWAYS), (1, Condition::present()), (2, Condition::absent())] {
        for mebibytes in [17, 40] {
            let put = settled(store.put_if(Entity::new(id, "x".repeat(mebibytes << 20), 1.0), &condition));
            assert!(matches!(put, Err(RepoError::TooLarge(_))), "{mebibytes} MiB: {put:?}");
        }
    }
    assert_eq!(settled(store.len()).expect("they are counted"), 1);
    Ok(())
}

fn a_bad_url_is_an_error(kind: Kind) {
    let urls: &[&str] = match kind {
        Kind::Etcd => &[
            "",
            "127.0.0.1:2379",
            "http://",
            "http://127.0.0.1",
            "https://127.0.0.1:1",
            "http://127.0.0.1:1,",
            "http://::1:2379",
        ],
        Kind::Redis => &[
            "",
            "127.0.0.1:6379",
            "http://127.0.0.1",
            "rediss://127.0.0.1",
            "redis://127.0.0.1,",
            "redis://a:1,b:2",
            "redis://a,b",
            "redis://::1:6379",
        ],
        Kind::Postgres => {
            &["nonsense", "postgres://127.0.0.1:x", "postgres://127.0.0.1/?sslmode=verify-full", "postgres:///a"]
        }
    };
    for url in urls {
        let error = kind.connect::<Entity>(url, "bad", StoreLimits::default()).expect_err(url).to_string();
        assert!(!error.starts_with("cannot connect"), "{url:?} was not checked: {error}");
        println!("{error}");
    }
}

/// Returns URLs with a number of hosts that are silent: the system accepts their connections, and no program takes them. A host of
/// the engine comes after them, or all hosts of Redis, which has to know them.
pub(crate) fn past_silent_hosts(kind: Kind, urls: &str, count: usize) -> (String, Vec<TcpListener>) {
    let listen = || TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let silent: Vec<_> = repeat_with(listen).take(count).collect();
    let address = |silent: &TcpListener| silent.local_addr().expect("it listens").to_string();
    let addresses: Vec<_> = silent.iter().map(address).collect();
    let urls = match kind {
        Kind::Etcd => {
            format!("http://{},{}", addresses.join(",http://"), urls.split(',').next().expect("there is one"))
        }
        Kind::Redis => format!("redis://{},{urls}", addresses.join(",redis://")),
        Kind::Postgres => urls.replacen("127.0.0.1", &format!("{},127.0.0.1", addresses.join(",")), 1),
    };
    (urls, silent)
}

/// Regression test: a silent host took at least a third of the timeout, and the store did not come to the fourth host.
fn silent_hosts_leave_time_to_connect(kind: Kind, urls: &str) {
    let (urls, _silent) = past_silent_hosts(kind, urls, 3);
    let timeout = Duration::from_secs(20);
    let limits = StoreLimits::default().timeout(timeout).connect_timeout(timeout);
    let store = kind.connect::<Entity>(&urls, &name_space(), limits).expect("it connects");
    assert_eq!(settled(store.put(Entity::new(1, "first", 0.5))).unwrap(), Put::Created);
}

/// Longer than a read has before its second attempt, and so short that two of them are within the timeout.
const ANSWER_TIME: Duration = Duration::from_millis(3_200);

/// Returns the URL of an engine's first node through a port that can be slow.
pub(crate) fn through_slow_port(urls: &str) -> (String, SlowPort) {
    let url = urls.split(',').next().expect("there is one");
    let (before, rest) = url.split_once("127.0.0.1:").expect("engines listen there");
    let (port, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let port = SlowPort::new(port.parse().expect("it is a port"));
    (format!("{before}127.0.0.1:{}{path}", port.port()), port)
}

/// An engine that takes longer for each answer than a read waits for one connection is connected within the timeout.
fn a_slow_engine_is_connected(kind: Kind, urls: &str) {
    let (urls, port) = through_slow_port(urls);
    let timeout = Duration::from_secs(9);
    let limits = StoreLimits::default().timeout(timeout).connect_timeout(timeout + ANSWER_TIME);
    let name_space = name_space();
    let store = kind.connect::<Entity>(&urls, &name_space, limits.clone()).expect("it connects");
    assert_eq!(settled(store.put(Entity::new(1, "first", 0.5))).unwrap(), Put::Created);
    port.set_delay(ANSWER_TIME);
    let late = kind.connect::<Entity>(&urls, &name_space, limits).expect("it connects");
    // PostgreSQL has four connections, and one of them is open.
    let gets: Vec<_> = (0..4).map(|_| late.get(&1, Visit::new(&mut |_| ()))).collect();
    assert!(gets.into_iter().any(|get| settled(get).is_ok()), "no get was answered");
}
