//! What an engine refuses, has forgotten, or gets through a pooler: no store takes it for success, and each failure says whether
//! the write may have been done.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_cluster::StoreLimits;
use polyserve_core::log::in_one_line;
use polyserve_core::{
    Condition, Conditional, Entity, EntityRepo, EntityRepoExt as _, Put, Removed, RepoAnswer, RepoError, Visit,
};
use polyserve_engines::RunningEngine;
use polyserve_engines::etcd::EtcdCluster;
use polyserve_engines::postgres::{PostgresServer, run_sql};
use polyserve_engines::process::{MAX_WAIT, Missing, program, wait_for, wait_until_closed};
use polyserve_engines::redis::RedisNodes;

use crate::Test;
use crate::faults::OnDrop;
use crate::kind::{Connect as _, Kind, connect_etcd, connect_redis, long_limits};

pub(crate) fn tests(kind: Kind) -> Vec<Test> {
    let mut tests = vec![
        Test::own(kind, "what_was_not_done_is_not_there", move || what_was_not_done_is_not_there(kind)),
        Test::own(kind, "a_read_that_failed_has_done_nothing", move || a_read_that_failed_has_done_nothing(kind)),
    ];
    tests.extend(match kind {
        Kind::Etcd => vec![
            Test::own(kind, "a_token_of_an_old_revision_is_renewed", a_token_of_an_old_revision_is_renewed),
            Test::own(kind, "a_token_that_a_member_lost_is_renewed", a_token_that_a_member_lost_is_renewed),
            Test::own(kind, "a_killed_member_in_use_fails_no_write", a_killed_member_in_use_fails_no_write),
        ],
        Kind::Redis => vec![
            Test::own(kind, "a_full_master_stores_nothing", || a_full_master_stores_nothing(0)),
            Test::own(kind, "a_full_master_stores_nothing_on_replicas", || a_full_master_stores_nothing(1)),
            Test::own(
                kind,
                "a_server_that_refuses_clients_refuses_for_now",
                a_redis_that_refuses_clients_refuses_for_now,
            ),
            Test::own(kind, "a_status_asks_all_masters_at_once", a_status_asks_all_masters_at_once),
            Test::own(kind, "a_missing_permission_is_no_success", a_missing_permission_is_no_success),
            Test::own(kind, "a_key_of_another_type_is_no_success", a_key_of_another_type_is_no_success),
        ],
        Kind::Postgres => vec![
            Test::own(
                kind,
                "an_error_of_the_server_is_judged_by_its_code",
                an_error_of_the_server_is_judged_by_its_code,
            ),
            Test::own(
                kind,
                "a_server_that_refuses_clients_refuses_for_now",
                a_role_without_connections_is_refused_for_now,
            ),
            Test::own(kind, "an_error_shows_no_entity", an_error_shows_no_entity),
            Test::own(kind, "a_locked_row_delays_no_other", a_locked_row_delays_no_other),
            Test::own(kind, "a_changed_table_fails_nothing_that_fits", a_changed_table_fails_nothing_that_fits),
            Test::own(kind, "only_a_direct_connection_uses_prepared_statements", only_direct_connections_prepare),
            Test::own(kind, "a_forgotten_statement_fails_nothing", a_forgotten_statement_fails_nothing),
            Test::own(kind, "a_pooler_of_transactions_is_used", || a_pooler_is_used("transaction")),
            Test::own(kind, "a_pooler_of_sessions_is_used", || a_pooler_is_used("session")),
        ],
    });
    tests
}

/// For operations that are refused for now: they are repeated for three quarters of the timeout. A busy machine still answers in
/// time.
pub(crate) fn short_limits() -> StoreLimits {
    StoreLimits::default().timeout(Duration::from_secs(4))
}

/// Waits for an answer, at most the tests' max wait.
pub(crate) fn settled<T>(answer: RepoAnswer<T>) -> Result<T, RepoError> {
    answer.wait_until(Instant::now() + MAX_WAIT).unwrap_or_else(|_| panic!("not answered within {MAX_WAIT:?}"))
}

/// Waits until a store takes writes. One status is awaited only for a moment, which may be too short on a busy machine.
fn wait_until_healthy(store: &dyn EntityRepo) {
    wait_for("the store takes writes", || match settled(store.status()) {
        Ok(()) => Some(()),
        Err(RepoError::NotDone(_) | RepoError::Unavailable(_)) => None,
        Err(error) => panic!("the store takes no writes: {error:?}"),
    });
}

/// Waits until the status of a store is the failure of what can never be done.
fn wait_until_unfit(store: &dyn EntityRepo) {
    wait_for("the status is a failure for good", || match settled(store.status()) {
        Ok(()) => panic!("the store takes writes"),
        Err(error) => is_for_good(&error).then_some(()),
    });
}

pub(crate) fn first() -> Entity {
    Entity::new(1, "first", 0.5)
}

/// Asserts that a result is a failure of one kind.
#[track_caller]
fn assert_failed<T: std::fmt::Debug>(result: Result<T, RepoError>, is_expected: fn(&RepoError) -> bool) {
    match result {
        Err(error) if is_expected(&error) => {}
        result => panic!("{result:?}"),
    }
}

fn is_not_done(error: &RepoError) -> bool {
    matches!(error, RepoError::NotDone(_))
}

fn is_for_good(error: &RepoError) -> bool {
    matches!(error, RepoError::Other(_))
}

fn is_unknown(error: &RepoError) -> bool {
    matches!(error, RepoError::Unavailable(_))
}

/// Regression test: a put that Redis refused, because its memory is full, was acknowledged.
fn a_full_master_stores_nothing(replicas: u32) -> Result<(), Missing> {
    let redis = RedisNodes::start()?;
    let connect = |limits| connect_redis(&redis.urls(), "full:", replicas, None, limits).expect("it connects");
    let store = connect(long_limits());
    settled(store.put(first())).expect("there is room");
    wait_until_healthy(store.as_ref());
    let impatient = connect(short_limits());
    redis.configure("maxmemory", "1");
    let (present, absent) = (Condition::present(), Condition::absent());
    let mut puts: Vec<_> =
        (1..20).map(|id| impatient.put(Entity::new(id, "lost", 1.0)).map(|put| put.map(drop))).collect();
    puts.push(impatient.put_if(Entity::new(1, "lost", 1.0), &present).map(|put| put.map(drop)));
    puts.push(impatient.put_if(Entity::new(2, "lost", 1.0), &absent).map(|put| put.map(drop)));
    puts.push(impatient.status());
    puts.into_iter().for_each(|put| assert_failed(settled(put), is_not_done));
    assert_eq!(store.fetch(&1).wait().expect("it is read"), Some(first()));
    assert_eq!(settled(store.len()).expect("they are counted"), 1);
    // Redis removes also if it is full.
    assert_eq!(settled(store.remove(&1)).expect("it is removed"), Removed::Removed);
    redis.configure("maxmemory", "0");
    assert_eq!(settled(store.put(first())).expect("there is room"), Put::Created);
    wait_until_healthy(store.as_ref());
    Ok(())
}

/// Regression test: while the nodes had as many clients as they take, a write that was not sent was reported as one that may have
/// been done.
fn a_redis_that_refuses_clients_refuses_for_now() -> Result<(), Missing> {
    let redis = RedisNodes::start()?;
    let connect = |limits| connect_redis(&redis.urls(), "clients:", 0, None, limits);
    let store = connect(short_limits()).expect("it connects");
    settled(store.put(first())).expect("it is stored");
    let refused = redis.refuse_clients();
    all_operations_are_not_done(store.as_ref());
    let limits = short_limits().connect_timeout(Duration::from_secs(1));
    connect(limits).map(drop).expect_err("the nodes refuse it");
    drop(refused);
    assert_eq!(wait_for("the store serves again", || store.fetch(&1).wait().ok()), Some(first()));
    assert_eq!(settled(store.put(first())).expect("it is stored"), Put::Replaced);
    Ok(())
}

/// Regression test: a status asked one slot after the other, each for a round trip, and had no time for the last ones.
fn a_status_asks_all_masters_at_once() -> Result<(), Missing> {
    let mut redis = RedisNodes::start()?;
    let store = connect_redis(&redis.urls(), "status:", 0, None, long_limits()).expect("it connects");
    wait_until_healthy(store.as_ref());
    let before = redis.count_calls("set");
    redis.processes().for_each(|node| node.stop());
    assert_failed(settled(store.status()), is_not_done);
    redis.processes().for_each(|node| node.resume());
    // The masters find the questions that came while they were paused.
    wait_for("all questions of a status are asked", || (redis.count_calls("set") >= before + 16).then_some(()));
    Ok(())
}

/// The code is that of a server with as many connections as it takes.
fn a_role_without_connections_is_refused_for_now() -> Result<(), Missing> {
    let postgres = PostgresServer::start()?;
    postgres.run_sql("CREATE ROLE app LOGIN PASSWORD 'secret'; GRANT ALL ON SCHEMA public TO app");
    let url = postgres.url().replace("polyserve@", "app:secret@");
    let connect = |limits| Kind::Postgres.connect::<Entity>(&url, "limited", limits);
    let store = connect(short_limits()).expect("it connects");
    settled(store.put(first())).expect("it is stored");
    postgres.run_sql("ALTER ROLE app CONNECTION LIMIT 0");
    postgres.end_connections();
    all_operations_are_not_done(store.as_ref());
    let limits = short_limits().connect_timeout(Duration::from_secs(1));
    connect(limits).map(drop).expect_err("the server refuses it");
    postgres.run_sql("ALTER ROLE app CONNECTION LIMIT -1");
    assert_eq!(wait_for("the store serves again", || store.fetch(&1).wait().ok()), Some(first()));
    assert_eq!(settled(store.put(first())).expect("it is stored"), Put::Replaced);
    Ok(())
}

/// Asserts that each operation is refused for now, and certainly not done. The entity 1 is stored, and no other.
pub(crate) fn all_operations_are_not_done(store: &dyn EntityRepo) {
    let (present, absent) = (Condition::present(), Condition::absent());
    let answers = [
        store.put(Entity::new(1, "lost", 1.0)).map(|put| put.map(drop)),
        store.put_if(Entity::new(1, "lost", 1.0), &present).map(|put| put.map(drop)),
        store.put_if(Entity::new(2, "lost", 1.0), &absent).map(|put| put.map(drop)),
        store.remove(&1).map(|removed| removed.map(drop)),
        store.remove_if(&1, &present).map(|removed| removed.map(drop)),
        store.get(&1, Visit::new(&mut |_| ())).map(|found| found.map(drop)),
        store.len().map(|len| len.map(drop)),
        store.status(),
    ];
    let results = answers.map(settled);
    println!("{results:?}");
    results.into_iter().for_each(|result| assert_failed(result, is_not_done));
}

/// Regression test: a missing permission was a success for a put, and "incompatible type" for a get.
fn a_missing_permission_is_no_success() -> Result<(), Missing> {
    let redis = RedisNodes::start()?;
    let writer = connect_redis(&redis.urls(), "acl:", 0, None, long_limits()).expect("it connects");
    settled(writer.put(first())).expect("it is stored");
    let connect = |user: &str, rights: &str| {
        redis.ask_all(&format!("ACL SETUSER {user} on nopass ~* {rights}"));
        let urls = redis.urls().replace("redis://", &format!("redis://{user}:any@"));
        connect_redis(&urls, "acl:", 0, None, long_limits()).expect("it connects")
    };
    let reader = connect("reader", "+@read +@connection +cluster");
    let failures = [
        settled(reader.put(Entity::new(1, "lost", 1.0))).map(drop),
        settled(reader.put(Entity::new(2, "lost", 1.0))).map(drop),
        settled(reader.put_if(Entity::new(1, "lost", 1.0), &Condition::present())).map(drop),
        settled(reader.put_if(Entity::new(2, "lost", 1.0), &Condition::absent())).map(drop),
        settled(reader.remove(&1)).map(drop),
        settled(reader.remove_if(&1, &Condition::present())).map(drop),
    ];
    failures.into_iter().for_each(|failure| assert_failed(failure, is_for_good));
    wait_until_unfit(reader.as_ref());
    assert_eq!(reader.fetch(&1).wait().expect("it is read"), Some(first()));
    // What decides is the right that a put needs.
    wait_until_unfit(connect("ranger", "+@all -set").as_ref());
    wait_until_healthy(connect("setter", "+@all -setrange").as_ref());
    redis.ask_all("ACL SETUSER reader -get -scan");
    assert_failed(reader.fetch(&1).wait(), is_for_good);
    assert_failed(settled(reader.len()), is_for_good);
    assert_eq!(settled(writer.len()).expect("they are counted"), 1);
    Ok(())
}

/// Another program has put a list under the key of an entity.
fn a_key_of_another_type_is_no_success() -> Result<(), Missing> {
    let redis = RedisNodes::start()?;
    let store = connect_redis(&redis.urls(), "{list}:", 0, None, long_limits()).expect("it connects");
    redis.ask_any("RPUSH {list}:1 x");
    let is_named = |error: &RepoError| matches!(error, RepoError::Malformed(what) if what.id == "1");
    assert_failed(store.fetch(&1).wait(), is_named);
    assert_failed(settled(store.put(first())), is_named);
    assert_failed(settled(store.put_if(first(), &Condition::present())), is_named);
    assert_failed(settled(store.remove_if(&1, &Condition::present())), is_named);
    assert_eq!(settled(store.put(Entity::new(2, "second", 1.0))).expect("it is stored"), Put::Created);
    Ok(())
}

/// Regression test: operations waited behind the writes of a row that another program had locked.
fn a_locked_row_delays_no_other() -> Result<(), Missing> {
    let postgres = PostgresServer::start()?;
    let store = Kind::Postgres.connect::<Entity>(&postgres.url(), "locked", short_limits()).expect("it connects");
    let entity = |id, value| Entity::new(id, "locked", value);
    // All sessions are opened.
    (1..40).for_each(|id| _ = settled(store.put(entity(id, 0.5))).expect("it is stored"));
    let mut psql = Command::new(program("psql")?);
    psql.args([&postgres.url(), "-AtXq"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut psql = psql.spawn().expect("psql runs");
    let lock = "BEGIN; SELECT 'it is locked' FROM locked WHERE id = '1' FOR UPDATE;\n";
    psql.stdin.as_mut().expect("it is piped").write_all(lock.as_bytes()).expect("psql reads");
    let mut line = String::new();
    BufReader::new(psql.stdout.take().expect("it is piped")).read_line(&mut line).expect("psql writes");
    assert_eq!(line.trim(), "it is locked");
    let mut waiting: Vec<_> = (0..16).map(|_| store.put(entity(1, 1.0)).map(|put| put.map(drop))).collect();
    waiting.push(store.put_if(entity(1, 1.0), &Condition::present()).map(|put| put.map(drop)));
    waiting.push(store.remove(&1).map(|removed| removed.map(drop)));
    for id in 2..40 {
        assert_eq!(settled(store.put(entity(id, 2.0))).expect("its row is free"), Put::Replaced);
        assert_eq!(store.fetch(&id).wait().expect("a read needs no lock"), Some(entity(id, 2.0)));
    }
    assert_eq!(store.fetch(&1).wait().expect("a read needs no lock"), Some(entity(1, 0.5)));
    waiting
        .into_iter()
        .for_each(|write| assert_failed(settled(write), |error| is_not_done(error) || is_unknown(error)));
    assert!(psql.try_wait().expect("it is a child").is_none(), "the row was not locked");
    drop(psql.stdin.take());
    psql.wait().expect("psql ends");
    wait_for("the row is free", || settled(store.put(entity(1, 3.0))).ok());
    Ok(())
}

/// A trigger of the table fails with the code.
fn an_error_of_the_server_is_judged_by_its_code() -> Result<(), Missing> {
    let postgres = PostgresServer::start()?;
    let store = Kind::Postgres.connect::<Entity>(&postgres.url(), "codes", short_limits()).expect("it connects");
    settled(store.put(first())).expect("it is stored");
    for (code, is_expected) in [
        ("53100", is_not_done as fn(&RepoError) -> bool),
        ("53200", is_not_done),
        ("55P03", is_not_done),
        ("57014", is_not_done),
        ("40001", is_not_done),
        ("40P01", is_not_done),
        // A session has no prepared statement of a name, or has one already.
        ("26000", is_not_done),
        ("42P05", is_not_done),
        ("08006", is_unknown),
        ("42501", is_for_good),
        ("23514", is_for_good),
    ] {
        postgres.run_sql(&format!(
            "CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE EXCEPTION 'it fails' USING ERRCODE = '{code}'; END $$; \
             CREATE OR REPLACE TRIGGER fail BEFORE INSERT OR UPDATE OR DELETE ON codes FOR EACH ROW EXECUTE FUNCTION fail()"
        ));
        println!("{code}");
        let answers = [
            store.put(Entity::new(1, "lost", 1.0)).map(|put| put.map(drop)),
            store.put_if(Entity::new(2, "lost", 1.0), &Condition::absent()).map(|put| put.map(drop)),
            store.remove(&1).map(|removed| removed.map(drop)),
        ];
        answers.map(settled).into_iter().for_each(|result| assert_failed(result, is_expected));
        assert_eq!(store.fetch(&1).wait().expect("it is read"), Some(first()));
    }
    Ok(())
}

/// Regression test: after the type of a column changed, each get was a 500 for the life of the store.
fn a_changed_table_fails_nothing_that_fits() -> Result<(), Missing> {
    let postgres = PostgresServer::start()?;
    let store = Kind::Postgres.connect::<Entity>(&postgres.url(), "changed", long_limits()).expect("it connects");
    let check = |round: u32| {
        // All sessions have used their statements before, and use them now.
        for id in 0..16 {
            let entity = Entity::new(id, "changed", f64::from(round));
            settled(store.put(entity.clone())).expect("it is stored");
            assert_eq!(store.fetch(&id).wait().expect("it is read"), Some(entity.clone()));
            let put = settled(store.put_if(entity, &Condition::present())).expect("it is stored");
            assert_eq!(put, Conditional::Done(Put::Replaced));
        }
    };
    check(0);
    for (round, change) in [
        (1, "ALTER TABLE changed ALTER COLUMN value TYPE varchar"),
        (2, "ALTER TABLE changed ALTER COLUMN value TYPE text, ADD COLUMN more integer"),
        (3, "ALTER TABLE changed RENAME TO old; CREATE TABLE changed (id text PRIMARY KEY, value text NOT NULL)"),
    ] {
        postgres.run_sql(change);
        check(round);
    }
    // No text can be stored in such a column: nothing is done, and no other try would help.
    postgres.run_sql("ALTER TABLE changed ALTER COLUMN value TYPE jsonb USING value::jsonb");
    for _ in 0..8 {
        assert_failed(settled(store.put(first())), is_for_good);
        assert_failed(store.fetch(&1).wait(), is_for_good);
    }
    Ok(())
}

/// Regression test: the server's message has the row that it rejected, in lines of their own, and the log had them.
fn an_error_shows_no_entity() -> Result<(), Missing> {
    let postgres = PostgresServer::start()?;
    let store = Kind::Postgres.connect::<Entity>(&postgres.url(), "checked", long_limits()).expect("it connects");
    let put = || settled(store.put(Entity::new(1, "hidden", 0.5))).expect_err("it is rejected");
    let mut texts = Vec::new();
    postgres.run_sql("ALTER TABLE checked ADD CONSTRAINT short CHECK (length(value) < 9)");
    texts.push(in_one_line(&put()));
    postgres.run_sql(
        "ALTER TABLE checked DROP CONSTRAINT short;
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM NEW.value::int; RETURN NEW; END';
         CREATE TRIGGER refuse BEFORE INSERT ON checked FOR EACH ROW EXECUTE FUNCTION refuse()",
    );
    texts.push(in_one_line(&put()));
    println!("{texts:?}");
    assert!(texts[0].contains("short") && texts[1].contains("invalid input syntax"), "{texts:?}");
    assert!(!texts.iter().any(|text| text.contains("hidden") || text.contains('\n')), "{texts:?}");
    Ok(())
}

/// Stores behind PgBouncer, which has a connection to the server for fewer clients than there are. Another program uses the names
/// of prepared statements that the stores' client library takes, and forgets all statements.
fn a_pooler_is_used(pool_mode: &str) -> Result<(), Missing> {
    let postgres = PostgresServer::start()?;
    // A session keeps its connection for ever.
    let pooler = postgres.start_pooler(pool_mode, if pool_mode == "session" { 32 } else { 2 })?;
    let connect = || Kind::Postgres.connect::<Entity>(&pooler.url(), "pooled", long_limits()).expect("it connects");
    let stores: Vec<_> = (0..3).map(|_| connect()).collect();
    let disturb = || {
        for round in 0..20 {
            let name = round % 4;
            let sql = format!("DEALLOCATE ALL; PREPARE s{name} AS DELETE FROM pooled WHERE id = $1");
            run_sql(&pooler.url(), None, &sql);
        }
    };
    thread::scope(|scope| {
        for client in 0..8 {
            let store = &stores[client % stores.len()];
            scope.spawn(move || use_all(store.as_ref(), client as i64 * 1_000));
        }
        scope.spawn(disturb);
    });
    // Each client has left 50 entities.
    assert_eq!(settled(stores[0].len()).expect("they are counted"), 8 * 50);
    wait_until_healthy(stores[0].as_ref());
    Ok(())
}

/// The server's log has the name of each statement that it executes.
fn only_direct_connections_prepare() -> Result<(), Missing> {
    let postgres = PostgresServer::start()?;
    let pooler = postgres.start_pooler("transaction", 2)?;
    postgres.run_sql("ALTER DATABASE postgres SET log_statement = 'all'");
    let is_in_log = |table: &str, start: &str| {
        postgres.log().lines().any(|line| line.contains(start) && line.contains(&format!("\"{table}\"")))
    };
    let direct = Kind::Postgres.connect::<Entity>(&postgres.url(), "direct", long_limits()).expect("it connects");
    // A connection serves before its statements are prepared.
    wait_for("statements are prepared", || {
        direct.fetch(&1).wait().expect("it is read");
        is_in_log("direct", "execute s").then_some(())
    });
    let pooled = Kind::Postgres.connect::<Entity>(&pooler.url(), "pooled", long_limits()).expect("it connects");
    use_all(pooled.as_ref(), 0);
    assert!(is_in_log("pooled", "execute <unnamed>"), "{}", postgres.log());
    assert!(!is_in_log("pooled", "execute s"), "{}", postgres.log());
    Ok(())
}

/// Each write makes its session forget the prepared statements. A statement that the session lacks has done nothing: it is sent again
/// over a new session.
fn a_forgotten_statement_fails_nothing() -> Result<(), Missing> {
    let postgres = PostgresServer::start()?;
    let store = Kind::Postgres.connect::<Entity>(&postgres.url(), "forgotten", long_limits()).expect("it connects");
    postgres.run_sql(
        "CREATE FUNCTION forget() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN DEALLOCATE ALL; RETURN NULL; END';
         CREATE TRIGGER forget AFTER INSERT OR UPDATE OR DELETE ON forgotten FOR EACH STATEMENT EXECUTE FUNCTION forget()",
    );
    let mut clients = 0;
    // A session serves before its statements are prepared, so the first operations may lack none.
    wait_for("sessions lack statements", || {
        thread::scope(|scope| {
            for client in clients..clients + 2 {
                let store = &store;
                scope.spawn(move || use_all(store.as_ref(), client * 1_000));
            }
        });
        clients += 2;
        wait_until_healthy(store.as_ref());
        let is_missing = |line: &str| line.contains("prepared statement \"s") && line.contains("does not exist");
        postgres.log().lines().any(is_missing).then_some(())
    });
    // Each client has left 50 entities.
    assert_eq!(settled(store.len()).expect("they are counted"), clients.unsigned_abs() * 50);
    Ok(())
}

/// Uses each operation, from one client.
fn use_all(store: &dyn EntityRepo, first_id: i64) {
    for id in first_id..first_id + 100 {
        let (before, after) = (Entity::new(id, "before", 1.0), Entity::new(id, "after", 2.0));
        assert_eq!(settled(store.put(before.clone())).expect("it is stored"), Put::Created);
        assert_eq!(store.fetch(&id).wait().expect("it is read"), Some(before));
        let put = settled(store.put_if(after.clone(), &Condition::present())).expect("it is stored");
        assert_eq!(put, Conditional::Done(Put::Replaced));
        assert_eq!(store.fetch(&id).wait().expect("it is read"), Some(after));
        if id % 2 == 0 {
            let removed = settled(store.remove_if(&id, &Condition::present())).expect("it is removed");
            assert_eq!(removed, Conditional::Done(Removed::Removed));
        }
    }
}

/// Regression test: with JSON Web Tokens, each operation was a 500 after a user was added.
fn a_token_of_an_old_revision_is_renewed() -> Result<(), Missing> {
    let mut etcd = EtcdCluster::prepared([None, None, None])?;
    etcd.use_jwt();
    etcd.run();
    let control = |line: &str| etcd.control(&line.split(' ').collect::<Vec<_>>());
    control("user add root:admin");
    control("user grant-role root root");
    control("auth enable");
    let store = connect_etcd(&etcd.urls(), Some(("root", "admin")), long_limits()).expect("it connects");
    settled(store.put(first())).expect("it is stored");
    for round in 0..3 {
        control(&format!("--user root:admin user add user{round}:secret"));
        let second = Entity::new(2, "second", f64::from(round));
        let put = settled(store.put(second.clone())).expect("it is stored");
        assert_eq!(put, if round == 0 { Put::Created } else { Put::Replaced });
        assert_eq!(store.fetch(&2).wait().expect("it is read"), Some(second));
        wait_until_healthy(store.as_ref());
    }
    Ok(())
}

/// The members keep their simple tokens in memory, and have lost them after a restart.
fn a_token_that_a_member_lost_is_renewed() -> Result<(), Missing> {
    let mut etcd = EtcdCluster::start()?;
    for line in ["user add root:admin", "user grant-role root root", "auth enable"] {
        etcd.control(&line.split(' ').collect::<Vec<_>>());
    }
    let store = connect_etcd(&etcd.urls(), Some(("root", "admin")), long_limits()).expect("it connects");
    settled(store.put(first())).expect("it is stored");
    for round in 0..3 {
        etcd.end_connections();
        // Several requests have the lost token.
        let puts: Vec<_> = (2..10).map(|id| store.put(Entity::new(id, "next", f64::from(round)))).collect();
        for put in puts {
            let put = settled(put).expect("it is stored");
            assert_eq!(put, if round == 0 { Put::Created } else { Put::Replaced });
        }
        assert_eq!(store.fetch(&1).wait().expect("it is read"), Some(first()));
        wait_until_healthy(store.as_ref());
    }
    Ok(())
}

/// Regression test: a write to a member that was killed was reported as one that may have been done, although the member refused
/// the connection.
fn a_killed_member_in_use_fails_no_write() -> Result<(), Missing> {
    let mut etcd = EtcdCluster::start()?;
    // The first member is used. It does not lead, so the others serve on.
    let leader = etcd.leader();
    let mut urls: Vec<String> = etcd.urls().split(',').map(str::to_owned).collect();
    let used = (leader + 1) % urls.len();
    urls.rotate_left(used);
    let store = connect_etcd(&urls.join(","), None, long_limits()).expect("it connects");
    for id in 0..8 {
        settled(store.put(Entity::new(id, "before", 0.5))).expect("it is stored");
    }
    etcd.member(used).kill();
    wait_until_closed(&[etcd.ports()[used].0]);
    for id in 0..8 {
        let put = settled(store.put(Entity::new(id, "after", 0.5))).expect("another member serves");
        assert_eq!(put, Put::Replaced);
    }
    Ok(())
}

/// Regression test: a write with a condition was reported as one that may have been done, although the read before it was not
/// answered. So was a read.
fn a_read_that_failed_has_done_nothing(kind: Kind) -> Result<(), Missing> {
    let mut engine = kind.start()?;
    let store = kind.connect::<Entity>(&engine.urls(), "reads", short_limits()).expect("it connects");
    settled(store.put(first())).expect("it is stored");
    engine.stop();
    let (present, absent) = (Condition::present(), Condition::absent());
    let answers = [
        store.put_if(Entity::new(1, "lost", 1.0), &present).map(|put| put.map(drop)),
        store.put_if(Entity::new(2, "lost", 1.0), &absent).map(|put| put.map(drop)),
        store.remove_if(&1, &present).map(|removed| removed.map(drop)),
        store.get(&1, Visit::new(&mut |_| ())).map(|found| found.map(drop)),
        store.len().map(|len| len.map(drop)),
        store.status(),
    ];
    answers.map(settled).into_iter().for_each(|failure| assert_failed(failure, is_not_done));
    engine.resume();
    let stored = wait_for("the store serves after a pause", || store.fetch(&1).wait().ok());
    assert_eq!(stored, Some(first()));
    Ok(())
}

/// The result of a put of an id that no other put has.
type Outcome = (i64, Result<Put, RepoError>);

/// Clients put new ids while the engine ends their connections. What is acknowledged is there. What was not done is not. A put that
/// was repeated although it was done would have replaced the entity that it made itself.
fn what_was_not_done_is_not_there(kind: Kind) -> Result<(), Missing> {
    const FAULTS: usize = 5;
    let mut engine = kind.start()?;
    let limits = StoreLimits::default().timeout(Duration::from_secs(2));
    let store = kind.connect::<Entity>(&engine.urls(), "outcomes", limits).expect("it connects");
    let (next_id, is_over, outcomes) = (AtomicI64::new(0), AtomicBool::new(false), Mutex::new(Vec::<Outcome>::new()));
    let put = || {
        while !is_over.load(Relaxed) {
            let id = next_id.fetch_add(1, Relaxed);
            let result = settled(store.put(Entity::new(id, "new", 0.5)));
            outcomes.lock().unwrap().push((id, result));
        }
    };
    thread::scope(|scope| {
        // Also if a fault panics.
        let _end = OnDrop(|| is_over.store(true, Relaxed));
        (0..16).for_each(|_| _ = scope.spawn(put));
        for _ in 0..FAULTS {
            let count = || outcomes.lock().unwrap().iter().filter(|(_, result)| result.is_ok()).count();
            let target = count() + 200;
            wait_for("entities are put", || (count() >= target).then_some(()));
            match &mut engine {
                RunningEngine::Postgres(postgres) => {
                    postgres.shut_down();
                    postgres.restart();
                }
                engine => engine.end_connections(),
            }
        }
    });
    let (mut not_done, mut unknown) = (0, 0);
    let outcomes = outcomes.into_inner().unwrap();
    for (id, result) in &outcomes {
        let stored = wait_for("the store serves after a fault", || store.fetch(id).wait().ok());
        match result {
            Ok(put) => assert_eq!((*put, stored.is_some()), (Put::Created, true), "{id}"),
            Err(RepoError::NotDone(_)) => {
                not_done += 1;
                assert_eq!(stored, None, "{id}: {result:?}");
            }
            Err(RepoError::Unavailable(_)) => unknown += 1,
            Err(error) => panic!("{id}: {error:?}"),
        }
    }
    println!("{}: {} puts, {not_done} not done, {unknown} unknown", kind.name(), outcomes.len());
    Ok(())
}
