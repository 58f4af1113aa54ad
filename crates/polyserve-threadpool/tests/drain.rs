//! What servers on threads do for one connection in a drain while they serve another.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::http::StatusCode;
use polyserve_core::{ConfigError, Drain, Reply, Request, Server, ServerConfig, ServerExt as _};
use polyserve_threadpool::{LeaderFollowers, PoolClassic, PoolServer, ThreadPerConnection};

const MAX_WAIT: Duration = Duration::from_secs(30);

#[test]
fn pool_classic_closes_it() {
    a_connection_closes_in_a_drain_while_another_is_served(|config| PoolClassic::mpsc(config.workers(2)));
}

#[test]
fn pool_server_closes_it() {
    a_connection_closes_in_a_drain_while_another_is_served(|config| PoolServer::mpsc(config.workers(2)));
}

#[test]
fn leader_followers_closes_it() {
    a_connection_closes_in_a_drain_while_another_is_served(LeaderFollowers::new);
}

#[test]
fn thread_per_connection_closes_it() {
    a_connection_closes_in_a_drain_while_another_is_served(ThreadPerConnection::new);
}

/// Regression test: in a drain, a connection was closed only after the last request of all was answered, or at the end of the grace.
/// Its last answer could wait until then too. Later, the connection lingered at once, but nothing was read from it until then.
fn a_connection_closes_in_a_drain_while_another_is_served<S: Server>(
    make: impl FnOnce(ServerConfig) -> Result<S, ConfigError>,
) {
    let (arrived, arrivals) = mpsc::channel();
    let gates = Arc::new([(); 2].map(|()| Barrier::new(2)));
    let held = Arc::clone(&gates);
    let service = move |request: Request<'_>| {
        let _ = arrived.send(());
        held[usize::from(request.head.target == "/second")].wait();
        Reply::empty(StatusCode::OK)
    };
    let config = ServerConfig::default().drain_grace(MAX_WAIT * 100).linger_timeout(MAX_WAIT * 100);
    let running = make(config).unwrap().serve("127.0.0.1:0", service).unwrap();
    let addr = running.local_addr();
    let [mut first, mut second] = ["/first", "/second"].map(|target| {
        let mut client = TcpStream::connect(addr).unwrap();
        client.set_read_timeout(Some(MAX_WAIT)).unwrap();
        write!(client, "GET {target} HTTP/1.1\r\n").unwrap();
        client
    });
    let drain = thread::spawn(move || running.shutdown().unwrap());
    let deadline = Instant::now() + MAX_WAIT;
    while TcpStream::connect(addr).is_ok() {
        assert!(Instant::now() < deadline, "the listener stays open");
        thread::sleep(Duration::from_millis(1)); // few enough that none is refused
    }
    // The answers announce the close, so the connections linger.
    for client in [&mut first, &mut second] {
        client.write_all(b"Host: a\r\n\r\n").unwrap();
        arrivals.recv_timeout(MAX_WAIT).unwrap();
    }
    for (client, gate) in [(&mut first, &gates[0]), (&mut second, &gates[1])] {
        gate.wait();
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("the connection stays open");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
        if std::ptr::eq(gate, &gates[0]) {
            // More than the buffers of the system hold: the connection lingers, and what it receives is discarded.
            client.set_write_timeout(Some(MAX_WAIT)).unwrap();
            client.write_all(&vec![b'a'; 32 << 20]).expect("nothing is read from a connection that lingers");
        }
    }
    drop((first, second));
    assert_eq!(drain.join().unwrap(), Drain::new(2, 0, 0));
}
