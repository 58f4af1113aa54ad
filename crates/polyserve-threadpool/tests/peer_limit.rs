//! The limit on the connections of one client address, at the limit on all connections.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use polyserve_core::{ConfigError, Echo, Server, ServerConfig, ServerExt as _};
use polyserve_serving::EVICTION_GRACE;
use polyserve_threadpool::{LeaderFollowers, PoolClassic, PoolServer, Sequential, ThreadPerConnection};
use socket2::{Domain, Socket, Type};

/// Only matters if something hangs.
const PATIENCE: Duration = Duration::from_secs(30);
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn connect_from(client: Ipv4Addr, server: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((client, 0)).into()).unwrap();
    socket.connect(&server.into()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.into()
}

/// Reads the head of an answer that has no body.
fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

fn check(make: fn(ServerConfig) -> Result<Box<dyn Server>, ConfigError>) {
    let config = ServerConfig::default().max_connections(2).max_connections_per_peer(1);
    let server = make(config).unwrap();
    let running = server.serve("127.0.0.1:0", Echo).unwrap();
    let greedy = Ipv4Addr::LOCALHOST;
    // The connection of the other client is silent for longest.
    let mut other = connect_from(Ipv4Addr::new(127, 0, 0, 2), running.local_addr());
    let _first = connect_from(greedy, running.local_addr());
    while running.counters().open < 2 {
        thread::yield_now();
    }
    thread::sleep(EVICTION_GRACE * 3); // both may be closed for another from now on
    let mut second = connect_from(greedy, running.local_addr());
    let refusal = head(&mut second);
    assert!(refusal.starts_with("HTTP/1.1 503 "), "{server:?}: {refusal:?}");
    let _ = other.write_all(GET);
    let answer = head(&mut other);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{server:?}: {answer:?}");
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
