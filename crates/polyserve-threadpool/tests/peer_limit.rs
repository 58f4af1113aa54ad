//! The limit on the connections of one client address, at the limit on all connections.

use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::Duration;

use polyserve_conformance::client::Client;
use polyserve_core::{ConfigError, Echo, Server, ServerConfig, ServerExt as _};
use polyserve_serving::EVICTION_GRACE;
use polyserve_threadpool::{LeaderFollowers, PoolClassic, PoolServer, Sequential, ThreadPerConnection};

/// Only matters if something hangs.
const MAX_WAIT: Duration = Duration::from_secs(30);

fn check(make: fn(ServerConfig) -> Result<Box<dyn Server>, ConfigError>) {
    let config = ServerConfig::default().max_connections(2).max_connections_per_peer(1);
    let server = make(config).unwrap();
    println!("{server:?}"); // shown if it fails
    let running = server.serve("127.0.0.1:0", Echo).unwrap();
    let connect = |from| Client::connect_from(Some(IpAddr::V4(from)), running.local_addr(), MAX_WAIT).unwrap();
    let greedy = Ipv4Addr::LOCALHOST;
    // The connection of the other client is silent for longest.
    let mut other = connect(Ipv4Addr::new(127, 0, 0, 2));
    let _first = connect(greedy);
    while running.counters().open < 2 {
        thread::yield_now();
    }
    thread::sleep(EVICTION_GRACE * 3); // both may be closed for another from now on
    connect(greedy).expect(503);
    other.ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200);
    assert_eq!(running.counters().rejected_peers, 1);
    running.shutdown().unwrap();
}

/// Regression test: at the limit on connections, two servers closed the connection of another client before they found out that the
/// client of the new one has as many as it may have. So one client could close all silent connections of others.
#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "only Linux has more than one address of the loopback interface")]
fn a_client_past_its_own_limit_takes_no_place_of_others() {
    check(|config| Ok(Box::new(Sequential::new(config)?)));
    check(|config| Ok(Box::new(PoolClassic::mpsc(config)?)));
    check(|config| Ok(Box::new(PoolServer::mpsc(config)?)));
    check(|config| Ok(Box::new(LeaderFollowers::new(config)?)));
    check(|config| Ok(Box::new(ThreadPerConnection::new(config)?)));
}
