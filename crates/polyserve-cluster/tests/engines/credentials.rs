//! Passwords that are changed while a store runs: the error names the cause, nothing was done, and the store serves again when the
//! engine accepts its password again.

use std::time::Duration;

use polyserve_core::log::in_one_line;
use polyserve_core::{Entity, EntityRepo, EntityRepoExt as _, Put, RepoError};
use polyserve_engines::etcd::EtcdCluster;
use polyserve_engines::postgres::PostgresServer;
use polyserve_engines::process::{Missing, wait_for};
use polyserve_engines::redis::RedisNodes;

use crate::Test;
use crate::kind::{Connect as _, Kind, connect_etcd, connect_redis};
use crate::refusals::{all_operations_are_not_done, first, settled, short_limits};

pub(crate) fn tests(kind: Kind) -> Vec<Test> {
    let mut tests = vec![Test::own(kind, "a_changed_password_is_named_and_waited_for", move || match kind {
        Kind::Etcd => etcd(),
        Kind::Redis => redis(),
        Kind::Postgres => postgres(),
    })];
    if kind == Kind::Redis {
        tests.push(Test::own(kind, "a_master_with_another_password_is_named", a_master_with_another_password_is_named));
    }
    tests
}

/// Changes the password of the store's user to another one and back.
fn change(store: &dyn EntityRepo, cause: &str, mut set_password: impl FnMut(&str)) {
    assert_eq!(settled(store.put(first())).expect("it is stored"), Put::Created);
    set_password("second");
    wait_for("the engine does not accept the store", || settled(store.status()).err());
    all_operations_are_not_done(store);
    // On a busy machine a login may take longer than the store waits: that refusal names no cause.
    let is_named =
        |result: Result<(), RepoError>| in_one_line(&result.expect_err("it is refused")).contains(cause).then_some(());
    wait_for("a get names the cause", || is_named(settled(store.fetch(&1)).map(drop)));
    wait_for("a put names the cause", || is_named(settled(store.put(Entity::new(2, "lost", 1.0))).map(drop)));
    wait_for("the status names the cause", || is_named(settled(store.status())));
    set_password("first");
    assert_eq!(wait_for("the store serves again", || store.fetch(&1).wait().ok()), Some(first()));
    assert_eq!(settled(store.put(first())).expect("it is stored"), Put::Replaced);
    assert_eq!(settled(store.len()).expect("they are counted"), 1);
}

fn etcd() -> Result<(), Missing> {
    let etcd = EtcdCluster::start()?;
    let control = |line: &str| etcd.control(&line.split(' ').collect::<Vec<_>>());
    for line in [
        "user add root:admin",
        "user grant-role root root",
        "role add app",
        "role grant-permission --prefix=true app readwrite polyserve/",
        "user add app:first",
        "user grant-role app app",
        "auth enable",
    ] {
        control(line);
    }
    let store = connect_etcd(&etcd.urls(), Some(("app", "first")), short_limits()).expect("it connects");
    change(store.as_ref(), "invalid user ID or password", |password| {
        // A user that is removed loses its tokens.
        control("--user root:admin user delete app");
        control(&format!("--user root:admin user add app:{password}"));
        control("--user root:admin user grant-role app app");
    });
    Ok(())
}

/// Regression test: the error was "No connections found", after most of the timeout.
fn redis() -> Result<(), Missing> {
    let redis = RedisNodes::start()?;
    redis.ask_all("ACL SETUSER app on >first ~* &* +@all");
    let urls = redis.urls().replace("redis://", "redis://app:first@");
    let store = connect_redis(&urls, "changed:", 0, None, short_limits()).expect("it connects");
    change(store.as_ref(), "WRONGPASS", |password| {
        redis.ask_all(&format!("ACL SETUSER app resetpass >{password}"));
        redis.end_connections();
    });
    Ok(())
}

/// Regression tests: the error was only that a key had moved, and the entities of this master were not counted.
fn a_master_with_another_password_is_named() -> Result<(), Missing> {
    let redis = RedisNodes::start()?;
    redis.ask_all("ACL SETUSER app on >first ~* &* +@all");
    let urls = redis.urls().replace("redis://", "redis://app:first@");
    let limits = short_limits().timeout(Duration::from_secs(2));
    let store = connect_redis(&urls, "rotated:", 0, None, limits.clone()).expect("it connects");
    let ids = 0..20;
    for id in ids.clone() {
        settled(store.put(Entity::new(id, "stored", 0.5))).expect("it is stored");
    }
    let (master, slots) = redis.a_master();
    redis.ask_node(master, "ACL SETUSER app resetpass >second");
    redis.ask_node(master, "CLIENT KILL USER app");
    let is_there = |id: &i64| {
        let slot = redis.slot(&format!("rotated:{id}"));
        slots.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    };
    let refused = ids.clone().find(is_there).expect("an entity is there");
    let texts = [
        settled(store.fetch(&refused)).map(drop),
        settled(store.put(Entity::new(refused, "lost", 1.0))).map(drop),
        settled(store.len()).map(drop),
        settled(store.status()),
    ]
    .map(|result| match result {
        Err(error @ RepoError::NotDone(_)) => in_one_line(&error),
        result => panic!("{result:?}"),
    });
    assert!(texts.iter().all(|text| text.contains("WRONGPASS")), "{texts:?}");
    let started = connect_redis(&urls, "rotated:", 0, None, limits.connect_timeout(Duration::from_secs(1)));
    // It begins with a read of one key, which may be elsewhere.
    started
        .map(drop)
        .or_else(|error| if error.to_string().contains("WRONGPASS") { Ok(()) } else { Err(error) })
        .unwrap();
    for id in ids.clone().filter(|id| !is_there(id)) {
        assert_eq!(settled(store.fetch(&id)).expect("the others serve"), Some(Entity::new(id, "stored", 0.5)));
    }
    redis.ask_node(master, "ACL SETUSER app resetpass >first");
    assert_eq!(wait_for("all entities are counted", || store.len().wait().ok()), 20);
    assert_eq!(settled(store.fetch(&refused)).expect("it is read"), Some(Entity::new(refused, "stored", 0.5)));
    Ok(())
}

/// Regression test: it was an error of the store, and not an engine that is away.
fn postgres() -> Result<(), Missing> {
    let postgres = PostgresServer::start()?;
    postgres.run_sql("CREATE ROLE app LOGIN PASSWORD 'first'; GRANT ALL ON SCHEMA public TO app");
    let url = postgres.url().replace("polyserve@", "app:first@");
    let store = Kind::Postgres.connect::<Entity>(&url, "changed", short_limits()).expect("it connects");
    change(store.as_ref(), "password authentication failed", |password| {
        postgres.run_sql(&format!("ALTER ROLE app PASSWORD '{password}'"));
        postgres.end_connections();
    });
    Ok(())
}
