//! Statements that PostgreSQL does not answer for long: they use up no connections, and reads go on.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use polyserve_cluster::StoreLimits;
use polyserve_core::{Condition, Entity, EntityRepo as _, EntityRepoExt as _, RepoAnswer, RepoError};
use polyserve_engines::postgres::PostgresServer;
use polyserve_engines::process::{Missing, output, wait_for};

use crate::Test;
use crate::kind::{Connect as _, Kind, long_limits};
use crate::refusals::settled;
use crate::starts::{patient, refused};

pub(crate) fn tests(kind: Kind) -> Vec<Test> {
    if kind != Kind::Postgres {
        return Vec::new();
    }
    vec![
        Test::own(kind, "commits_that_hang_use_up_no_connections", commits_that_hang_use_up_no_connections),
        Test::own(kind, "sessions_that_hang_stop_no_writes", sessions_that_hang_stop_no_writes),
        Test::own(kind, "a_commit_that_no_standby_has_is_not_answered", || {
            a_commit_that_no_standby_has_is_not_answered("notice")
        }),
        Test::own(kind, "a_commit_that_no_standby_has_is_not_answered_without_warnings", || {
            a_commit_that_no_standby_has_is_not_answered("error")
        }),
        Test::own(kind, "a_pooler_that_hides_warnings_is_refused", a_pooler_that_hides_warnings_is_refused),
    ]
}

/// The connections that a store has by default.
const CONNECTIONS: usize = 4;

/// Regression test: while commits waited for a standby that was away, the store opened other connections at each timeout, until the server
/// took no more, also from other programs.
fn commits_that_hang_use_up_no_connections() -> Result<(), Missing> {
    let postgres = PostgresServer::start()?;
    let limits = StoreLimits::default().timeout(Duration::from_millis(1_500));
    let store = Kind::Postgres.connect::<Entity>(&postgres.url(), "commits", limits).expect("it connects");
    let entity = |id| Entity::new(id, "commits", 0.5);
    settled(store.put(entity(1))).expect("it is stored");
    // One is that of this question.
    let connections = || {
        let sql = "SELECT count(*) - 1 FROM pg_stat_activity WHERE backend_type = 'client backend'";
        postgres.run_sql(sql).trim().parse::<usize>().expect("it is a number")
    };
    wait_for_standby(&postgres, "away");
    wait_for("a commit hangs", || settled(store.put(entity(2))).is_err().then_some(()));
    let (start, mut ids) = (Instant::now(), 3..);
    while start.elapsed() < Duration::from_secs(12) {
        // A row that is locked is another matter.
        let puts: Vec<_> = ids.by_ref().take(8).map(|id| store.put(entity(id))).collect();
        assert_eq!(store.fetch(&1).wait().expect("a read waits for no commit"), Some(entity(1)));
        for put in puts {
            let error = settled(put).expect_err("the commit hangs");
            assert!(matches!(error, RepoError::Unavailable(_) | RepoError::NotDone(_)), "{error:?}");
        }
    }
    let open = connections();
    assert!(open <= 5 * CONNECTIONS, "the store has {open} connections");
    // Or there is a trial.
    let hung = store.put(entity(0));
    let status = settled(store.status()).expect_err("no write is answered");
    assert!(matches!(status, RepoError::NotDone(_)), "{status:?}");
    drop(hung);
    wait_for_standby(&postgres, "");
    wait_for("the store is healthy", || settled(store.status()).ok());
    settled(store.put(entity(2))).expect("it is stored");
    wait_for("the connections that were left have ended", || (connections() <= 2 * CONNECTIONS).then_some(()));
    Ok(())
}

/// Sets the standby that commits wait for.
fn wait_for_standby(postgres: &PostgresServer, name: &str) {
    postgres.run_sql(&format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'"));
    postgres.run_sql("SELECT pg_reload_conf()");
}

/// Regression test: an operator ended the wait of a commit for a standby that was away. The server answers such a commit as done, with a
/// warning, and the store did too. A failover to the standby loses it. So it was if the settings of the user hid the warning.
fn a_commit_that_no_standby_has_is_not_answered(messages: &str) -> Result<(), Missing> {
    let postgres = PostgresServer::start()?;
    postgres.run_sql(&format!("ALTER ROLE polyserve SET client_min_messages = {messages}"));
    let store = Kind::Postgres.connect::<Entity>(&postgres.url(), "unreplicated", long_limits()).expect("it connects");
    let entity = |id, value| Entity::new(id, "unreplicated", value);
    (1..=3).for_each(|id| _ = settled(store.put(entity(id, 1.0))).expect("it is stored"));
    let waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    wait_for_standby(&postgres, "away");
    let present = Condition::present();
    let cancelled = |write: RepoAnswer<()>| {
        let settled = thread::scope(|scope| {
            let settled = scope.spawn(|| settled(write));
            wait_for("the write is answered", || {
                postgres.run_sql(&format!("SELECT pg_cancel_backend(pid) {waiting}"));
                settled.is_finished().then_some(())
            });
            settled.join().expect("no panic")
        });
        assert!(matches!(settled, Err(RepoError::Unavailable(_))), "{settled:?}");
    };
    // The server may not have read its settings yet.
    wait_for("a commit hangs", || {
        drop(store.put(entity(9, 1.0)));
        (postgres.run_sql(&format!("SELECT count(*) {waiting}")).trim() != "0").then_some(())
    });
    cancelled(store.put(entity(1, 2.0)).map(|put| put.map(drop)));
    cancelled(store.put_if(entity(2, 2.0), &present).map(|put| put.map(drop)));
    cancelled(store.remove(&3).map(|removed| removed.map(drop)));
    wait_for_standby(&postgres, "");
    wait_for("commits do not wait", || settled(store.put(entity(1, 3.0))).ok());
    assert_eq!(store.fetch(&2).wait().expect("it is read"), Some(entity(2, 2.0)), "it is committed here");
    Ok(())
}

/// A store sets nothing for the connections of a pooler, which has other clients.
fn a_pooler_that_hides_warnings_is_refused() -> Result<(), Missing> {
    let postgres = PostgresServer::start()?;
    let pooler = postgres.start_pooler("transaction", 2)?;
    postgres.run_sql("ALTER ROLE polyserve SET client_min_messages = error");
    let url = pooler.url();
    let connect = move || Kind::Postgres.connect::<Entity>(&url, "hidden", patient()).map(drop);
    refused(connect, &["client_min_messages", "ALTER ROLE", "warning"]);
    Ok(())
}

/// Connections may stay without an answer although the server serves others, as behind a proxy after a failover. Writes go on over other
/// connections.
fn sessions_that_hang_stop_no_writes() -> Result<(), Missing> {
    let postgres = PostgresServer::start()?;
    let limits = StoreLimits::default().timeout(Duration::from_millis(1_500));
    let store = Kind::Postgres.connect::<Entity>(&postgres.url(), "hung", limits).expect("it connects");
    let entity = |id| Entity::new(id, "hung", 0.5);
    // All sessions are opened.
    (1..40).for_each(|id| _ = settled(store.put(entity(id))).expect("it is stored"));
    let sql = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    let sessions = postgres.run_sql(sql);
    let signal = |name: &str| _ = output(Command::new("kill").arg(name).args(sessions.split_whitespace()));
    signal("-STOP");
    let hung: Vec<_> = (1..9).map(|id| store.put(entity(id))).collect();
    for put in hung {
        let error = settled(put).expect_err("the sessions are stopped");
        assert!(matches!(error, RepoError::Unavailable(_) | RepoError::NotDone(_)), "{error:?}");
    }
    wait_for("a write is done", || settled(store.put(entity(100))).ok());
    for id in 101..140 {
        settled(store.put(entity(id))).expect("it is stored");
        assert_eq!(store.fetch(&id).wait().expect("it is read"), Some(entity(id)));
    }
    settled(store.status()).expect("writes are done");
    signal("-CONT");
    Ok(())
}
