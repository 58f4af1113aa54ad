//! Drains that leave a thread behind.
#![cfg(all(feature = "hyper", feature = "smol"))]

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use polyserve_async::{Smol, TokioPerCore, TokioTcp};
use polyserve_core::http::StatusCode;
use polyserve_core::{Answer, Reply, Request, Server, ServerConfig, ServerExt, Service};

/// A service that blocks its thread between two barriers.
struct Blocking([Barrier; 2]);

impl Service for Blocking {
    fn call(&self, _: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        for barrier in &self.0 {
            barrier.wait();
        }
        Answer::Now(Reply::empty(StatusCode::OK))
    }
}

/// Regression test: the request of a stuck thread was counted twice: as stuck and as cut.
#[test]
fn a_stuck_request_is_not_cut_too() {
    let config = ServerConfig::default().workers(2);
    let servers: [Box<dyn Server>; 3] = [
        Box::new(TokioTcp::new(config.clone()).unwrap()),
        Box::new(TokioPerCore::new(config.clone()).unwrap()),
        Box::new(Smol::new(config).unwrap()),
    ];
    for server in servers {
        let service = Arc::new(Blocking([(); 2].map(|()| Barrier::new(2))));
        let running = server.serve(([127, 0, 0, 1], 0), service.clone()).unwrap();
        let mut client = TcpStream::connect(running.local_addr()).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        service.0[0].wait();
        let drain = running.shutdown_within(Duration::ZERO).unwrap();
        service.0[1].wait();
        assert_eq!((drain.answered, drain.cut, drain.stuck), (0, 0, 1), "{server:?}");
    }
}
