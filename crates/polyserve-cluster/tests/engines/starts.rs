//! Starts that can never succeed: they fail at once, and the error names what is wrong.

use std::env;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;

use polyserve_cluster::{ConnectError, StoreLimits};
use polyserve_conformance::log::messages;
use polyserve_core::{Entity, EntityRepoExt as _};
use polyserve_engines::etcd::EtcdCluster;
use polyserve_engines::postgres::PostgresServer;
use polyserve_engines::process::{MAX_WAIT, Missing, output};
use polyserve_engines::redis::{LoneRedis, RedisNodes};

use crate::Test;
use crate::kind::{Connect as _, Kind, connect_etcd, connect_redis, long_limits};

pub(crate) fn tests(kind: Kind) -> Vec<Test> {
    match kind {
        Kind::Etcd => vec![Test::own(kind, "only_a_start_with_rights_for_the_prefix_succeeds", etcd_with_rights)],
        Kind::Redis => vec![
            Test::own(kind, "only_a_start_with_the_password_succeeds", redis_with_a_password),
            Test::own(kind, "a_start_without_a_cluster_fails_at_once", redis_without_a_cluster),
            Test::own(kind, "a_start_over_another_protocol_fails_at_once", redis_of_another_protocol),
        ],
        Kind::Postgres => vec![
            Test::own(kind, "a_start_without_rights_fails_at_once", postgres_without_rights),
            Test::own(kind, "a_table_that_cannot_serve_is_refused", a_table_that_cannot_serve_is_refused),
            Test::own(kind, "a_table_that_can_serve_is_used", a_table_that_can_serve_is_used),
            Test::own(kind, "settings_that_lose_writes_are_logged", settings_that_lose_writes_are_logged),
        ],
    }
}

/// Limits of a store that retries for longer than a test waits.
pub(crate) fn patient() -> StoreLimits {
    StoreLimits::default().connect_timeout(MAX_WAIT * 100)
}

/// Expects that a store is not constructed, and not tried again. The error has all of `texts`.
pub(crate) fn refused<R>(connect: impl FnOnce() -> Result<R, ConnectError> + Send + 'static, texts: &[&str]) {
    let (sender, failed) = channel();
    thread::spawn(move || sender.send(connect().err().map(|error| error.to_string())));
    let error = failed.recv_timeout(MAX_WAIT).unwrap_or_else(|_| panic!("{texts:?}: it is tried again"));
    let error = error.unwrap_or_else(|| panic!("{texts:?}: it is connected"));
    println!("{error}");
    for text in texts {
        assert!(error.contains(text), "{text:?} is missing: {error}");
    }
}

fn etcd_with_rights() -> Result<(), Missing> {
    let etcd = EtcdCluster::start()?;
    let connect = |user: Option<(&'static str, &'static str)>| {
        let urls = etcd.urls();
        move || connect_etcd(&urls, user, patient())
    };
    refused(connect(Some(("app", "secret"))), &["authentication is not enabled"]);
    for line in [
        "user add root:admin",
        "user grant-role root root",
        "role add app",
        "role grant-permission --prefix=true app readwrite other/",
        "user add app:secret",
        "user grant-role app app",
        "auth enable",
    ] {
        etcd.control(&line.split(' ').collect::<Vec<_>>());
    }
    refused(connect(None), &["user name is empty"]);
    refused(connect(Some(("app", "wrong"))), &["invalid user ID or password"]);
    refused(connect(Some(("other", "secret"))), &["invalid user ID or password"]);
    refused(connect(Some(("app", "secret"))), &["permission denied"]);
    let grant = "--user root:admin role grant-permission --prefix=true app readwrite polyserve/";
    etcd.control(&grant.split(' ').collect::<Vec<_>>());
    let store = connect_etcd(&etcd.urls(), Some(("app", "secret")), long_limits()).expect("it has the rights");
    let entity = Entity::new(1, "first", 0.5);
    store.put(entity.clone()).wait().expect("it is stored");
    assert_eq!(store.fetch(&1).wait().expect("it is read"), Some(entity));
    assert_eq!(store.len().wait().expect("they are counted"), 1);
    // The port of the members among themselves.
    let peers: Vec<String> = etcd.ports().iter().map(|(_, peer)| format!("http://127.0.0.1:{peer}")).collect();
    refused(move || connect_etcd(&peers.join(","), None, patient()), &["cannot connect to etcd"]);
    Ok(())
}

fn redis(urls: &str, password: Option<&'static str>) -> impl FnOnce() -> Result<(), ConnectError> + Send + 'static {
    let urls = urls.to_owned();
    move || connect_redis(&urls, "starts:", 0, password, patient()).map(drop)
}

fn redis_with_a_password() -> Result<(), Missing> {
    let nodes = RedisNodes::start()?;
    let urls = nodes.urls();
    // A server without a password accepts any for its default user.
    refused(redis(&urls.replace("redis://", "redis://app:secret@"), None), &["WRONGPASS"]);
    refused(redis(&format!("{}/1", urls.split(',').next().unwrap()), None), &["SELECT is not allowed"]);
    nodes.require_password("secret,more");
    refused(redis(&urls, None), &["NOAUTH"]);
    refused(redis(&urls, Some("wrong")), &["WRONGPASS"]);
    refused(redis(&urls.replace("redis://", "redis://:wrong@"), None), &["WRONGPASS"]);
    let right = Some("secret,more");
    let store = connect_redis(&urls, "starts:", 0, right, long_limits()).expect("the password is right");
    store.put(Entity::new(1, "first", 0.5)).wait().expect("it is stored");
    // Only a comma before a scheme separates URLs.
    for password in ["secret,more", "secret%2Cmore"] {
        let urls = urls.replace("redis://", &format!("redis://:{password}@"));
        connect_redis(&urls, "starts:", 0, None, long_limits()).expect("the password is right");
    }
    Ok(())
}

fn redis_without_a_cluster() -> Result<(), Missing> {
    let lone = LoneRedis::start()?;
    refused(redis(&lone.url(), None), &["cluster support disabled"]);
    let sentinel = LoneRedis::start_sentinel()?;
    refused(redis(&sentinel.url(), None), &["unknown command 'CLUSTER'"]);
    Ok(())
}

/// A server of another protocol: its first answer is none of Redis.
fn redis_of_another_protocol() -> Result<(), Missing> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.expect("a client connects");
            client.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").expect("it is sent");
            let _ = client.read_to_end(&mut Vec::new());
        }
    });
    refused(redis(&format!("redis://127.0.0.1:{port}"), None), &["Parse error"]);
    Ok(())
}

fn postgres(url: &str, table: &str) -> impl FnOnce() -> Result<(), ConnectError> + Send + 'static {
    let (url, table) = (url.to_owned(), table.to_owned());
    move || Kind::Postgres.connect::<Entity>(&url, &table, patient()).map(drop)
}

fn postgres_without_rights() -> Result<(), Missing> {
    let server = PostgresServer::start()?;
    let (url, port) = (server.url(), server.port());
    server.run_sql("CREATE ROLE app LOGIN PASSWORD 'secret'; REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    let database = |user: &str, name: &str| format!("postgres://{user}@127.0.0.1:{port}/{name}");
    refused(postgres(&database("app:wrong", "postgres"), "t"), &["password authentication failed"]);
    refused(postgres(&database("app", "postgres"), "t"), &["password missing"]);
    refused(postgres(&database("app:secret", "postgres"), "t"), &["permission denied for schema public"]);
    refused(postgres(&database("polyserve", "absent"), "t"), &["database \"absent\" does not exist"]);
    refused(postgres(&url, "absent.t"), &["schema \"absent\" does not exist"]);
    refused(postgres("postgres:///postgres?user=a", "t"), &["host"]);
    refused(postgres("postgres://a@127.0.0.1/postgres?port=1,2", "t"), &["invalid number of ports"]);
    server.run_sql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    refused(postgres(&database("polyserve", "latin"), "t"), &["encoding LATIN1", "UTF8"]);
    // Regression test: another program may store what is no text there, and it made each page with it an error.
    server.run_sql("CREATE DATABASE bytes ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0");
    refused(postgres(&database("polyserve", "bytes"), "t"), &["encoding SQL_ASCII", "UTF8"]);
    Ok(())
}

/// What a table has, and what its error has.
const BAD_TABLES: &[(&str, &[&str])] = &[
    ("id int PRIMARY KEY, value text NOT NULL", &["column id", "integer", "text"]),
    ("id varchar(10) PRIMARY KEY, value text NOT NULL", &["column id", "character varying(10)", "text"]),
    ("id text PRIMARY KEY, value jsonb NOT NULL", &["column value", "jsonb", "text"]),
    ("id text PRIMARY KEY, value json NOT NULL", &["column value", "json", "text"]),
    ("id text PRIMARY KEY, value text", &["column value", "NOT NULL"]),
    ("id text PRIMARY KEY, data text NOT NULL", &["no column value"]),
    ("key text PRIMARY KEY, value text NOT NULL", &["no column id"]),
    ("id text NOT NULL, value text NOT NULL", &["column id", "PRIMARY KEY"]),
    ("id text, tenant text DEFAULT 'a', value text NOT NULL, PRIMARY KEY (tenant, id)", &["column id", "PRIMARY KEY"]),
    ("id text PRIMARY KEY DEFERRABLE, value text NOT NULL", &["column id", "PRIMARY KEY"]),
    ("id text PRIMARY KEY, value text NOT NULL, tenant text NOT NULL", &["column tenant", "DEFAULT"]),
    ("id text COLLATE blind PRIMARY KEY, value text NOT NULL", &["column id", "collation"]),
    ("id text PRIMARY KEY, value text COLLATE blind NOT NULL", &["column value", "collation"]),
    ("id text PRIMARY KEY, value text GENERATED ALWAYS AS (id) STORED NOT NULL", &["column value", "generated"]),
];

fn a_table_that_cannot_serve_is_refused() -> Result<(), Missing> {
    let server = PostgresServer::start()?;
    server.run_sql("CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level1', deterministic = false)");
    for (number, (columns, texts)) in BAD_TABLES.iter().enumerate() {
        let table = format!("bad_{number}");
        server.run_sql(&format!("CREATE TABLE {table} ({columns})"));
        refused(postgres(&server.url(), &table), &[texts, &[table.as_str()][..]].concat());
    }
    server.run_sql("CREATE UNLOGGED TABLE bad_unlogged (id text PRIMARY KEY, value text NOT NULL)");
    refused(postgres(&server.url(), "bad_unlogged"), &["bad_unlogged", "UNLOGGED", "SET LOGGED"]);
    server.run_sql(
        "CREATE TABLE bad_rule (id text PRIMARY KEY, value text NOT NULL);
         CREATE RULE drops AS ON DELETE TO bad_rule DO INSTEAD NOTHING",
    );
    refused(postgres(&server.url(), "bad_rule"), &["bad_rule", "rules", "DROP RULE"]);
    server.run_sql("CREATE VIEW bad_view AS SELECT 'a' AS id, 'b' AS value");
    refused(postgres(&server.url(), "bad_view"), &["bad_view", "no table"]);
    server.run_sql("CREATE TABLE bad_parts (id text PRIMARY KEY, value text NOT NULL) PARTITION BY HASH (id)");
    refused(postgres(&server.url(), "bad_parts"), &["bad_parts", "partitioned"]);
    Ok(())
}

fn a_table_that_can_serve_is_used() -> Result<(), Missing> {
    let server = PostgresServer::start()?;
    let tables = [
        r#"CREATE TABLE good_0 (id text COLLATE "C" PRIMARY KEY, value text NOT NULL)"#,
        "CREATE TABLE good_1 (value varchar NOT NULL, at timestamptz NOT NULL DEFAULT now(), id varchar NOT NULL UNIQUE)",
        "CREATE TABLE good_2 (n bigint GENERATED ALWAYS AS IDENTITY, note text, id text PRIMARY KEY, value text NOT NULL)",
        // Words of SQL, and a schema.
        r#"CREATE TABLE "user" (id text PRIMARY KEY, value text NOT NULL)"#,
        "CREATE SCHEMA app; CREATE TABLE app.entities (id text PRIMARY KEY, value text NOT NULL)",
    ];
    tables.iter().for_each(|sql| _ = server.run_sql(sql));
    // The last two are made by the store.
    for table in ["good_0", "good_1", "good_2", "User", "app.entities", "Order", "app.select"] {
        let connect = || Kind::Postgres.connect::<Entity>(&server.url(), table, long_limits());
        let entity = Entity::new(1, "\u{1F600}", 0.5);
        let first = connect().unwrap_or_else(|error| panic!("{table}: {error}"));
        first.put(entity.clone()).wait().unwrap_or_else(|error| panic!("{table}: {error:?}"));
        assert_eq!(connect().expect("it connects again").fetch(&1).wait().unwrap(), Some(entity), "{table}");
    }
    Ok(())
}

/// In this environment variable the child process learns that it is one.
const ALONE: &str = "TEST_ALONE";

/// Regression test: a store acknowledged writes that a crash of the server loses, and nothing told the operator. The test runs in a
/// process of its own, because it collects what its process logs.
fn settings_that_lose_writes_are_logged() -> Result<(), Missing> {
    if env::var_os(ALONE).is_none() {
        let mut child = Command::new(env::current_exe().expect("this program has a path"));
        child.args(["--exact", "postgres::settings_that_lose_writes_are_logged"]);
        let text = output(child.env(ALONE, "1"));
        assert!(text.contains("1 passed"), "{text}");
        return Ok(());
    }
    let server = PostgresServer::start()?;
    let logged = messages();
    let warnings = |table: &str| {
        drop(Kind::Postgres.connect::<Entity>(&server.url(), table, long_limits()).expect("it connects"));
        let warned = logged.try_iter().filter(|(_, text)| text.contains("a crash loses them"));
        warned.map(|(_, text)| text).collect::<Vec<_>>()
    };
    assert!(warnings("kept").is_empty());
    server.run_sql("ALTER ROLE polyserve SET synchronous_commit = off");
    // The table is made by the first store.
    for _ in 0..2 {
        let warned = warnings("lost");
        assert!(warned.len() == 1 && warned[0].contains("off=synchronous_commit "), "{warned:?}");
    }
    Ok(())
}
