//! What the kit does not test: limits, and an engine that is not there.

use std::num::NonZeroUsize;
use std::thread;
use std::time::{Duration, Instant};

use polyserve_cluster::StoreLimits;
use polyserve_core::repo::EntityRepoExt as _;
use polyserve_core::{Answer, Condition, Entity, Put, RepoError};
use polyserve_engines::PATIENCE;
use polyserve_engines::process::{free_port, wait_for};
use polyserve_engines::redis::RedisNodes;
use polyserve_engines::slow::SlowPort;

use crate::Test;
use crate::kind::{Connect as _, Engine, Kind, name_space};

pub(crate) fn tests(kind: Kind) -> Vec<Test> {
    let mut tests = vec![
        Test::shared(kind, "too_many_operations_are_overload", move |urls| {
            too_many_operations_are_overload(kind, urls);
        }),
        Test::shared(kind, "a_dropped_store_answers_closed", move |urls| a_dropped_store_answers_closed(kind, urls)),
        Test::shared(kind, "stores_share_an_engine", move |urls| stores_share_an_engine(kind, urls)),
        Test::shared(kind, "a_temporary_store_leaves_nothing", move |urls| {
            a_temporary_store_leaves_nothing(kind, urls);
        }),
        Test::own(kind, "an_absent_engine_is_an_error", move || {
            an_absent_engine_is_an_error(kind);
            Ok(())
        }),
        Test::own(kind, "a_bad_url_is_an_error", move || {
            a_bad_url_is_an_error(kind);
            Ok(())
        }),
        match kind {
            // Its nodes tell clients their ports, so no port can stand between.
            Kind::Redis => Test::own(kind, SLOW, move || {
                let redis = RedisNodes::start()?;
                a_slow_engine_is_waited_for(kind, &redis.urls(), || redis.hold(ANSWER_TIME));
                Ok(())
            }),
            _ => Test::shared(kind, SLOW, move |urls| {
                let (urls, port) = through_slow_port(urls);
                a_slow_engine_is_waited_for(kind, &urls, || port.set_delay(ANSWER_TIME));
            }),
        },
        Test::own(kind, "outages_end", move || {
            let mut engine = kind.start()?;
            a_stopped_engine_is_unavailable(kind, &mut engine);
            an_ended_engine_comes_back(kind, &mut engine);
            Ok(())
        }),
    ];
    if kind != Kind::Redis {
        let run = move |urls: &str| a_slow_engine_is_connected(kind, urls);
        tests.push(Test::shared(kind, "a_slow_engine_is_connected", run));
    }
    tests
}

const ONE: NonZeroUsize = NonZeroUsize::MIN;

/// Waits for an answer, at most the tests' patience.
fn settled<T>(answer: Answer<Result<T, RepoError>>) -> Result<T, RepoError> {
    answer.wait_until(Instant::now() + PATIENCE).unwrap_or_else(|_| panic!("not answered within {PATIENCE:?}"))
}

/// An operation that does not fit is answered with `Overloaded`, and the others are done.
fn too_many_operations_are_overload(kind: Kind, urls: &str) {
    let limits = StoreLimits::default().max_in_flight(ONE).max_waiting(ONE).timeout(PATIENCE);
    let store = kind.connect::<Entity>(urls, &name_space(), limits).expect("it connects");
    assert_eq!(settled(store.put(Entity::new(1, "first", 0.5))).unwrap(), Put::Created);
    let answers: Vec<_> = (0..10_000).map(|_| store.get(&1, &mut |_| ())).collect();
    let (mut done, mut overloaded) = (0, 0);
    for answer in answers {
        match settled(answer) {
            Ok(_) => done += 1,
            Err(RepoError::Overloaded) => overloaded += 1,
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(done > 0 && overloaded > 0, "{done} were done, {overloaded} were too many");
    assert_eq!(store.fetch(&1).unwrap(), Some(Entity::new(1, "first", 0.5)));
}

/// Answers that are outstanding when a store is dropped come, and are results or `Closed`.
fn a_dropped_store_answers_closed(kind: Kind, urls: &str) {
    let limits = StoreLimits::default().max_in_flight(ONE);
    let store = kind.connect::<Entity>(urls, &name_space(), limits).expect("it connects");
    let puts: Vec<_> = (0..1_000).map(|id| store.put(Entity::new(id, "last", 1.0))).collect();
    drop(store);
    let mut closed = 0;
    for put in puts {
        match settled(put) {
            Ok(_) => {}
            Err(RepoError::Closed) => closed += 1,
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(closed > 0, "the drop waited for all operations");
}

/// What one store writes, another store with the same name space sees; a third with another name space does not.
fn stores_share_an_engine(kind: Kind, urls: &str) {
    let (shared, other) = (name_space(), name_space());
    let connect =
        |name_space: &str| kind.connect::<Entity>(urls, name_space, StoreLimits::default()).expect("it connects");
    let (one, two, three) = (connect(&shared), connect(&shared), connect(&other));
    let entity = Entity::new(1, "first", 0.5);
    assert_eq!(settled(one.put(entity.clone())).unwrap(), Put::Created);
    assert_eq!(two.fetch(&1).unwrap(), Some(entity.clone()));
    assert_eq!(settled(two.put_if(entity.clone(), &Condition::absent())).unwrap().done(), None);
    assert_eq!(settled(two.put(entity)).unwrap(), Put::Replaced);
    assert_eq!((settled(one.len()).unwrap(), three.fetch(&1).unwrap()), (1, None));
}

/// A temporary store is empty, and removes its entities when it is dropped.
fn a_temporary_store_leaves_nothing(kind: Kind, urls: &str) {
    let (one, two) = (kind.connect_temporary(urls).expect("it connects"), kind.connect_temporary(urls).unwrap());
    for id in 0..100 {
        assert_eq!(settled(one.put(Entity::new(id, "temporary", 0.5))).unwrap(), Put::Created);
    }
    assert_eq!((settled(one.len()).unwrap(), settled(two.len()).unwrap()), (100, 0));
    assert!(kind.count_temporary(urls) > 0);
    drop((one, two));
    assert_eq!(kind.count_temporary(urls), 0);
}

/// The constructor returns an error that names the engine.
fn an_absent_engine_is_an_error(kind: Kind) {
    let address = format!("127.0.0.1:{}", free_port());
    let url = match kind {
        Kind::Etcd => format!("http://{address}"),
        Kind::Redis => format!("redis://{address}"),
        Kind::Postgres => format!("postgres://user@{address}/none"),
    };
    let limits = StoreLimits::default().connect_timeout(Duration::from_millis(200));
    let error = kind.connect::<Entity>(&url, "absent", limits).expect_err("nothing listens there").to_string();
    assert!(error.starts_with(&format!("cannot connect to {}: ", kind.name())), "{error}");
    println!("{error}");
}

fn a_bad_url_is_an_error(kind: Kind) {
    let urls: &[&str] = match kind {
        Kind::Etcd => {
            &["", "127.0.0.1:2379", "http://", "http://127.0.0.1", "https://127.0.0.1:1", "http://127.0.0.1:1,"]
        }
        Kind::Redis => &["", "127.0.0.1:6379", "http://127.0.0.1", "rediss://127.0.0.1", "redis://127.0.0.1,"],
        Kind::Postgres => &["nonsense", "postgres://127.0.0.1:x", "postgres://127.0.0.1/?sslmode=require"],
    };
    for url in urls {
        let error = kind.connect::<Entity>(url, "bad", StoreLimits::default()).expect_err(url).to_string();
        assert!(!error.starts_with("cannot connect"), "{url:?} was not checked: {error}");
        println!("{error}");
    }
}

const SLOW: &str = "a_slow_engine_is_waited_for";

/// Longer than a read has before its second attempt, and so short that two of them are within the timeout.
const ANSWER_TIME: Duration = Duration::from_millis(3_200);

/// Returns the URL of an engine's first node through a port that can be slow.
fn through_slow_port(urls: &str) -> (String, SlowPort) {
    let url = urls.split(',').next().expect("there is one");
    let (before, rest) = url.split_once("127.0.0.1:").expect("engines listen there");
    let (port, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let port = SlowPort::new(port.parse().expect("it is a port"));
    (format!("{before}127.0.0.1:{}{path}", port.port()), port)
}

/// An engine that takes longer for each answer than a read waits for one connection is waited for. No thread is blocked.
fn a_slow_engine_is_waited_for(kind: Kind, urls: &str, slow_down: impl FnOnce()) {
    let limits = StoreLimits::default().timeout(Duration::from_secs(9)).connect_timeout(PATIENCE);
    let store = kind.connect::<Entity>(urls, &name_space(), limits).expect("it connects");
    let (before, after) = (Entity::new(1, "before", 1.0), Entity::new(1, "after", 2.0));
    // PostgreSQL has some connections, which are opened when they are first needed.
    for id in 1..9 {
        assert_eq!(settled(store.put(Entity { id, ..before.clone() })).unwrap(), Put::Created);
    }
    slow_down();
    let gets: Vec<_> = (1..9).map(|id| store.get(&id, &mut |_| ())).collect();
    let (put, len) = (store.put(Entity::new(9, "new", 3.0)), store.len());
    let conditional = store.put_if(after.clone(), &Condition::present());
    // One thread calls them all, and the engine has not answered.
    assert!(!gets.iter().any(Answer::is_now) && !put.is_now() && !len.is_now() && !conditional.is_now());
    for get in gets {
        settled(get).expect("the engine answers within the timeout");
    }
    assert_eq!(settled(put).expect("the engine answers within the timeout"), Put::Created);
    settled(len).expect("the engine answers within the timeout");
    let done = settled(conditional).expect("the engine answers within the timeout").done();
    assert_eq!((done, store.fetch(&1).unwrap()), (Some(Put::Replaced), Some(after)));
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
    let gets: Vec<_> = (0..4).map(|_| late.get(&1, &mut |_| ())).collect();
    assert!(gets.into_iter().any(|get| settled(get).is_ok()), "no get was answered");
}

/// An engine that stops answering is `Unavailable` after the timeout. It serves again once it goes on.
fn a_stopped_engine_is_unavailable(kind: Kind, engine: &mut Engine) {
    let limits = StoreLimits::default().timeout(Duration::from_secs(1));
    let store = kind.connect::<Entity>(&engine.urls(), &name_space(), limits).expect("it connects");
    let (before, after) = (Entity::new(1, "before", 1.0), Entity::new(1, "after", 2.0));
    assert_eq!(settled(store.put(before.clone())).unwrap(), Put::Created);
    engine.stop();
    let (get, put) = (store.get(&1, &mut |_| ()), store.put(after.clone()));
    let (conditional, len) = (store.put_if(after.clone(), &Condition::absent()), store.len());
    assert!(!get.is_now() && !put.is_now() && !conditional.is_now() && !len.is_now());
    let errors = [settled(get).err(), settled(put).err(), settled(conditional).err(), settled(len).err()];
    engine.resume();
    for error in errors {
        assert!(matches!(error, Some(RepoError::Unavailable(_))), "{error:?}");
    }
    let stored = wait_for("a store serves after its engine went on", || store.fetch(&1).ok());
    // The put may have been done.
    assert!(stored == Some(before) || stored == Some(after), "{stored:?}");
    wait_for("a store writes after its engine went on", || settled(store.put(Entity::new(2, "new", 3.0))).ok());
    assert_eq!(store.fetch(&2).unwrap(), Some(Entity::new(2, "new", 3.0)));
}

/// An engine that has ended is `Unavailable`. A store serves again once it is back, and a constructor waits for it.
fn an_ended_engine_comes_back(kind: Kind, engine: &mut Engine) {
    let limits = StoreLimits::default().timeout(Duration::from_secs(1));
    let (urls, name_space) = (engine.urls(), name_space());
    let store = kind.connect::<Entity>(&urls, &name_space, limits.clone()).expect("it connects");
    let entity = Entity::new(1, "before", 1.0);
    assert_eq!(settled(store.put(entity.clone())).unwrap(), Put::Created);
    engine.kill();
    for _ in 0..3 {
        let error = store.fetch(&1).expect_err("the engine has ended");
        assert!(matches!(error, RepoError::Unavailable(_)), "{error:?}");
    }
    let late = thread::spawn(move || kind.connect::<Entity>(&urls, &name_space, limits.connect_timeout(PATIENCE)));
    engine.restart();
    let late = late.join().expect("the constructor does not panic").expect("it waits for the engine");
    let stored = wait_for("a store serves after its engine came back", || store.fetch(&1).ok());
    // These nodes of Redis keep nothing on disk.
    assert_eq!(stored, (kind != Kind::Redis).then_some(entity));
    assert_eq!(wait_for("a new store serves", || late.fetch(&1).ok()), stored);
}
