//! Runs the kit on the custom store. Then tests a custom service, and conditional updates and merge patches by eight
//! threads, on a server of each family, and an axum `Router` on three of them.
use std::{thread, time::Duration};

use axum::{Router, routing::get};
use polyserve::{async_::FromTower, prelude::*};
use polyserve_conformance::{client::Client, repo::RepoSubject, repo_conformance};
use scratch::{Account, Board, Tree};

repo_conformance!(tree, RepoSubject::new(Tree::<Entity>::default));

#[test]
fn eight_threads_lose_no_update_on_a_server_of_each_family() {
    for name in ["sequential", "thread_per_connection", "pool_server", "tokio_tcp", "tokio_hyper", "smol"] {
        let server = Catalog::builtin().server(name).unwrap().build(&ServerConfig::default()).unwrap();
        let accounts = EntityService::new(Tree::<Account>::default()).at("/accounts").unwrap().etags(true);
        let routes = Routes::new().at("/hello", |_: polyserve::Request<'_>| Reply::text("hello")).unwrap();
        let boards = EntityService::new(Tree::<Board>::default()).at("/boards").unwrap();
        let routes = routes.entities(boards).unwrap().otherwise(accounts);
        let running = server.serve("127.0.0.1:0", routes).unwrap();
        let ask = |head: &str, body: &str, statuses: &[u16]| {
            let mut client = Client::connect(running.local_addr(), Duration::from_secs(30)).unwrap();
            let head = format!("{head}\r\nHost: me\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
            client.send((head + body).as_bytes()).unwrap();
            client.expect_one_of(statuses)
        };
        assert_eq!(ask("GET /hello HTTP/1.1", "", &[200]).body, b"hello");
        ask("PUT /accounts HTTP/1.1", r#"{"name":"a","balance":0}"#, &[201]);
        let increment = || {
            let read = ask("GET /accounts/a HTTP/1.1", "", &[200]);
            let balance = Account::read_json(&read.body).unwrap().balance + 1;
            let head = format!("PUT /accounts HTTP/1.1\r\nIf-Match: {}", read.header("ETag").unwrap());
            ask(&head, &format!(r#"{{"name":"a","balance":{balance}}}"#), &[200, 412]).status == 200
        };
        thread::scope(|threads| (0..8).for_each(|_| drop(threads.spawn(|| while !increment() {}))));
        assert_eq!(ask("GET /accounts/a HTTP/1.1", "", &[200]).body, br#"{"name":"a","balance":8}"#);
        ask("PUT /boards HTTP/1.1", r#"{"name":"a","scores":{}}"#, &[201]);
        let patch = |player: u64| {
            for score in 1..=8 {
                let head = "PATCH /boards/a HTTP/1.1\r\nContent-Type: application/merge-patch+json";
                ask(head, &format!(r#"{{"scores":{{"p{player}":{score}}}}}"#), &[200]);
            }
        };
        thread::scope(|threads| (0..8).for_each(|player| drop(threads.spawn(move || patch(player)))));
        let board = Board::read_json(&ask("GET /boards/a HTTP/1.1", "", &[200]).body).unwrap();
        assert_eq!(board.scores, (0..8).map(|player| (format!("p{player}"), 8)).collect());
    }
}

#[test]
fn an_axum_router_sleeps_on_servers_of_three_families() {
    let slow = || async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        "slept"
    };
    for name in ["pool_server", "tokio_tcp", "thread_per_connection"] {
        let server = Catalog::builtin().server(name).unwrap().build(&ServerConfig::default()).unwrap();
        let running = server.serve("127.0.0.1:0", FromTower::new(Router::new().route("/", get(slow))).unwrap()).unwrap();
        let mut client = Client::connect(running.local_addr(), Duration::from_secs(30)).unwrap();
        for _ in 0..2 {
            assert_eq!(client.ask(b"GET / HTTP/1.1\r\nHost: me\r\n\r\n", 200).body, b"slept", "{name}");
        }
        drop(client);
        assert_eq!(running.shutdown().unwrap(), Drain::new(2, 0, 0), "{name}");
    }
}
