//! What another program has written under the keys of a store: it is named, and no other entity waits for it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Stdio};

use polyserve_async::TokioTcp;
use polyserve_cluster::StoreLimits;
use polyserve_conformance::client::Client;
use polyserve_core::{Entity, EntityRepo, EntityService, MAX_PAGE_BYTES, ServerConfig, ServerExt as _, identifiable};
use polyserve_engines::postgres::run_sql;
use polyserve_engines::process::{MAX_WAIT, output, program};
use serde::{Deserialize, Serialize};

use crate::Test;
use crate::kind::{Connect as _, Kind, long_limits, name_space};

pub(crate) fn tests(kind: Kind) -> Vec<Test> {
    let mut tests = vec![
        Test::shared(kind, "what_is_no_entity_is_named_and_passed", move |urls| {
            what_is_no_entity_is_named_and_passed(kind, urls);
        }),
        Test::shared(kind, "keys_that_no_store_writes_end_no_list", move |urls| {
            keys_that_no_store_writes_end_no_list(kind, urls);
        }),
    ];
    if kind == Kind::Postgres {
        tests.push(Test::shared(kind, "a_short_list_passes_many_keys", a_short_list_passes_many_keys));
    }
    tests
}

/// A value of another program. Its key is no number, or its JSON is no entity, or that of another id.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Foreign {
    key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<i64>,
    description: String,
    value: f64,
}

identifiable!(Foreign, key: String);

fn foreign(key: &str, id: Option<i64>) -> Foreign {
    Foreign { key: key.into(), id, description: "of another program".into(), value: 0.5 }
}

/// The ids of a list, and those of the errors that it meets. Each page is asked for after the `next` of the one before, or of the error.
fn listed(client: &mut Client) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut shown, mut faults, mut after) = (BTreeSet::new(), BTreeSet::new(), String::new());
    let text_after = |body: &str, start: &str| {
        let (_, rest) = body.split_once(start)?;
        rest.split_once([',', '"', '}']).map(|(text, _)| text.to_owned())
    };
    for _ in 0..100 {
        let request = format!("GET /?limit=2{after} HTTP/1.1\r\nHost: test\r\n\r\n");
        let page = client.exchange(request.as_bytes()).expect("it answers");
        let (status, body) = (page.status, page.text());
        let next = text_after(&body, r#""next":""#);
        match status {
            200 => body.split(r#"{"id":"#).skip(1).for_each(|item| {
                let id = item.split(',').next().unwrap_or_default().to_owned();
                assert!(shown.insert(id), "{body} has an entity again");
            }),
            500 => {
                let id = next.clone().expect("the error has a way on");
                assert!(body.contains(&format!("what is stored under the id {id} is no entity")), "{body}");
                assert!(faults.insert(id), "{body} came again");
            }
            _ => panic!("{status}: {body}"),
        }
        match next {
            Some(next) => after = format!("&after={next}"),
            None => return (shown, faults),
        }
    }
    panic!("the list has no end: {shown:?} {faults:?}");
}

/// Regression test: one value that was no entity made its page an error, for ever, so no list came past it. A value with the id of
/// another entity sent a list back to that entity, and a key that is no id ended it. A key of Redis that is a list was an error of its page
/// too.
fn what_is_no_entity_is_named_and_passed(kind: Kind, urls: &str) {
    let name_space = name_space();
    let store = kind.connect::<Entity>(urls, &name_space, long_limits()).expect("it connects");
    let other = kind.connect::<Foreign>(urls, &name_space, long_limits()).expect("it connects");
    for id in [1, 3, 5, 7] {
        store.put(Entity::new(id, "ours", 0.5)).wait().expect("it is stored");
    }
    for value in [foreign("2", None), foreign("6", Some(1)), foreign("x", Some(1)), foreign("007", Some(7))] {
        other.put(value).wait().expect("it is stored");
    }
    let mut expected: Vec<&str> = vec!["2", "6"];
    if kind == Kind::Redis {
        let first = urls.split(',').next().expect("there is a URL");
        let mut push = Command::new(program("redis-cli").expect("it comes with Redis"));
        output(push.args(["-c", "-u", first, "RPUSH", &format!("{name_space}:8"), "of another program"]));
        expected.push("8");
    }
    let expected: BTreeSet<String> = expected.into_iter().map(str::to_owned).collect();
    let entities: BTreeSet<String> = ["1", "3", "5", "7"].map(str::to_owned).into();

    let server = TokioTcp::new(ServerConfig::default().workers(1)).expect("the settings are valid");
    let running = server.serve("127.0.0.1:0", EntityService::new(store)).expect("it listens");
    let mut client = Client::connect(running.local_addr(), MAX_WAIT).expect("it connects");
    assert_eq!(listed(&mut client), (entities, expected.clone()));

    for id in &expected {
        let named = format!("what is stored under the id {id} is no entity");
        for request in [
            format!("GET /{id} HTTP/1.1\r\nHost: test\r\n\r\n"),
            format!("DELETE /{id} HTTP/1.1\r\nHost: test\r\nIf-Match: *\r\n\r\n"),
            format!("PATCH /{id} HTTP/1.1\r\nHost: test\r\nContent-Length: 11\r\n\r\n{{\"value\":1}}"),
        ] {
            let answer = client.ask(request.as_bytes(), 500).text().to_string();
            assert!(answer.contains(&named), "{request}: {answer}");
        }
        client.ask(format!("DELETE /{id} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes(), 204);
    }
    let body = r#"{"id":2,"description":"ours","value":0.5}"#;
    let put = format!("PUT /2 HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    client.ask(put.as_bytes(), 201);
    let entities: BTreeSet<String> = ["1", "2", "3", "5", "7"].map(str::to_owned).into();
    assert_eq!(listed(&mut client), (entities, BTreeSet::new()));
}

/// Regression test: two large values under keys of etcd that are no text ended a list, as if there were no entities. A list of PostgreSQL came
/// again and again to a key with a backslash, until the timeout.
fn keys_that_no_store_writes_end_no_list(kind: Kind, urls: &str) {
    const KEYS: u8 = 5;
    let name_space = name_space();
    let store = kind.connect::<Entity>(urls, &name_space, long_limits()).expect("it connects");
    for id in [1, 2, 3] {
        store.put(Entity::new(id, "ours", 0.5)).wait().expect("it is stored");
    }
    let large = "x".repeat(MAX_PAGE_BYTES);
    for number in 0..KEYS {
        // They are before all numbers.
        match kind {
            Kind::Etcd => {
                let mut etcdctl = Command::new(program("etcdctl").expect("it comes with etcd"));
                let endpoints = format!("--endpoints={urls}");
                let key = [name_space.as_bytes(), b"/-", &[0xf0 + number]].concat();
                let etcdctl =
                    etcdctl.env("ETCDCTL_API", "3").args([&endpoints, "put", "--"]).arg(OsStr::from_bytes(&key));
                given(etcdctl, &large);
            }
            Kind::Redis => {
                let first = urls.split(',').next().expect("there is a URL");
                let mut redis = Command::new(program("redis-cli").expect("it comes with Redis"));
                let key = [name_space.as_bytes(), b":-", &[0xf0 + number]].concat();
                given(redis.args(["-c", "-u", first, "-x", "SET"]).arg(OsStr::from_bytes(&key)), &large);
            }
            Kind::Postgres => {
                run_sql(
                    urls,
                    None,
                    &format!(r"INSERT INTO {name_space} VALUES ('-\x{number}', repeat('x', {MAX_PAGE_BYTES}))"),
                );
            }
        }
    }
    let server = TokioTcp::new(ServerConfig::default().workers(1)).expect("the settings are valid");
    let running = server.serve("127.0.0.1:0", EntityService::new(store)).expect("it listens");
    let mut client = Client::connect(running.local_addr(), MAX_WAIT).expect("it connects");
    assert_eq!(listed(&mut client), (["1", "2", "3"].map(str::to_owned).into(), BTreeSet::new()));
}

/// Regression test: a list read as many keys at a time as its limit, so a list with a small limit behind many keys of another program
/// found nothing in its time. Half of these keys are no ids of any store.
fn a_short_list_passes_many_keys(urls: &str) {
    let name_space = name_space();
    let store = Kind::Postgres.connect::<Entity>(urls, &name_space, StoreLimits::default()).expect("it connects");
    for id in [1, 2] {
        store.put(Entity::new(id, "ours", 0.5)).wait().expect("it is stored");
    }
    let keys = "generate_series(1, 60000) AS key";
    run_sql(urls, None, &format!(r"INSERT INTO {name_space} SELECT '!' || key, '' FROM {keys}"));
    run_sql(urls, None, &format!(r"INSERT INTO {name_space} SELECT '-\x' || key, '' FROM {keys}"));
    let mut after = None;
    for (id, has_more) in [(1, true), (2, false)] {
        let page = store.scan(after.as_ref(), 1, &mut |_, _| ControlFlow::Continue(()));
        let page = page.wait().expect("it is in time");
        assert_eq!((page.entities, page.has_more), (vec![Entity::new(id, "ours", 0.5)], has_more));
        after = Some(id);
    }
}

/// Runs a command that reads this text.
fn given(command: &mut Command, text: &str) {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it can be started");
    child.stdin.take().expect("it is piped").write_all(text.as_bytes()).expect("it reads");
    assert!(child.wait().expect("it ends").success());
}
