//! Drains that leave a thread behind.
#![cfg(all(feature = "hyper", feature = "smol"))]

use std::cell::Cell;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use polyserve_async::{Smol, TokioHyper, TokioPerCore, TokioTcp};
use polyserve_core::http::StatusCode;
use polyserve_core::sync::lock;
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

/// Ends when the sender of its channel is dropped.
struct Endless(Arc<Mutex<mpsc::Receiver<()>>>);

impl Drop for Endless {
    fn drop(&mut self) {
        let _ = lock(&self.0).recv();
    }
}

thread_local! {
    static ENDLESS: Cell<Option<Endless>> = const { Cell::new(None) };
}

/// Regression test: a shutdown joined its threads without a limit. A thread-local of the service, of which the destructor did not
/// return, held it for ever.
#[test]
fn a_thread_that_never_ends_does_not_hold_a_shutdown() {
    const PATIENCE: Duration = Duration::from_secs(30);
    let config = ServerConfig::default().workers(2);
    let servers: [Box<dyn Server>; 4] = [
        Box::new(TokioTcp::new(config.clone()).unwrap()),
        Box::new(TokioPerCore::new(config.clone()).unwrap()),
        Box::new(TokioHyper::new(config.clone()).unwrap()),
        Box::new(Smol::new(config).unwrap()),
    ];
    for server in servers {
        let (end, ends) = mpsc::channel();
        let ends = Arc::new(Mutex::new(ends));
        let service = move |_: Request<'_>| {
            ENDLESS.set(Some(Endless(Arc::clone(&ends))));
            Reply::empty(StatusCode::OK)
        };
        let running = server.serve(([127, 0, 0, 1], 0), service).unwrap();
        let mut client = TcpStream::connect(running.local_addr()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
        drop(client);
        let (sender, drained) = mpsc::channel();
        thread::spawn(move || sender.send(running.shutdown_within(Duration::ZERO).unwrap()));
        let drain = drained.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("the thread holds {server:?}"));
        drop(end);
        assert_eq!((drain.answered, drain.cut), (1, 0), "{server:?}");
    }
}
