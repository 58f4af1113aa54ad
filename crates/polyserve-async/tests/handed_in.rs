//! A server on the runtime of its caller, which awaits the drain.
#![cfg(feature = "tokio")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use polyserve_async::TokioTcp;
use polyserve_core::{Drain, Echo, Running, Server, ServerConfig, ServerExt};
use tokio::runtime::{Builder, Handle};
use tokio::sync::Semaphore;

const CLIENTS: u32 = 3;
const REQUESTS: u32 = 5;

/// Sends requests on one connection, reports that they were answered, and expects the server to close the connection.
fn ask(addr: SocketAddr, asked: &Semaphore) {
    let mut stream = TcpStream::connect(addr).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time that is valid");
    for n in 0..REQUESTS {
        let body = format!("{n:04}");
        write!(stream, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n{body}").expect("it takes the request");
        let (mut answer, mut piece) = (Vec::new(), [0; 1024]);
        while !answer.ends_with(body.as_bytes()) {
            match stream.read(&mut piece).expect("it answers") {
                0 => panic!("it ended after {:?}", String::from_utf8_lossy(&answer)),
                read => answer.extend_from_slice(&piece[..read]),
            }
        }
    }
    asked.add_permits(1);
    assert_eq!(stream.read(&mut [0; 16]).expect("an end is no error"), 0, "the drain closes an idle connection");
}

fn serve() -> Running {
    let server = TokioTcp::with_handle(ServerConfig::default(), Handle::current()).expect("the default is honoured");
    server.serve(([127, 0, 0, 1], 0), Echo).expect("it serves")
}

async fn serve_and_drain() -> Drain {
    let running = serve();
    let (addr, asked) = (running.local_addr(), Arc::new(Semaphore::new(0)));
    let clients = (0..CLIENTS).map(|_| Arc::clone(&asked)).map(|asked| thread::spawn(move || ask(addr, &asked)));
    let clients: Vec<_> = clients.collect();
    asked.acquire_many(CLIENTS).await.expect("it is not closed").forget();
    let drain = running.drained().await.expect("it ends well");
    for client in clients {
        client.join().expect("the client is content");
    }
    drain
}

const ALL: Drain = Drain::new((CLIENTS * REQUESTS) as u64, 0, 0);

#[test]
fn on_a_runtime_of_one_thread_the_drain_is_awaited() {
    assert_eq!(Builder::new_current_thread().enable_all().build().unwrap().block_on(serve_and_drain()), ALL);
}

#[test]
fn on_a_runtime_of_two_threads_the_drain_is_awaited() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    assert_eq!(runtime.block_on(serve_and_drain()), ALL);
}

/// Regression test: the server's main thread waited for tasks that had been dropped with their runtime.
#[test]
fn a_server_ends_with_its_runtime() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let running = runtime.block_on(async { serve() });
    let addr = running.local_addr();
    drop(runtime);
    assert!(TcpStream::connect(addr).is_err(), "the server still listens");
    // The shutdown returns at once: it does not wait for an hour.
    assert_eq!(running.shutdown_within(Duration::from_secs(3600)).expect("it ends well"), Drain::default());
}

#[test]
fn a_number_of_workers_is_the_runtimes_own() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let config = ServerConfig::default().workers(2);
    let error = TokioTcp::with_handle(config, runtime.handle().clone()).unwrap_err();
    assert!(error.to_string().starts_with("workers"), "{error}");
}

/// Regression test: on a runtime without I/O, tokio panicked inside `serve`. `serve` must return an error.
#[test]
fn a_runtime_without_io_is_an_error() {
    for runtime in [Builder::new_current_thread().build(), Builder::new_multi_thread().worker_threads(1).build()] {
        let runtime = runtime.unwrap();
        let (handle, config) = (runtime.handle(), ServerConfig::default());
        let servers: Vec<Box<dyn Server>> = vec![
            Box::new(TokioTcp::with_handle(config.clone(), handle.clone()).expect("the default is honoured")),
            #[cfg(feature = "hyper")]
            Box::new(
                polyserve_async::TokioHyper::with_handle(config, handle.clone()).expect("every setting is supported"),
            ),
        ];
        for server in servers {
            let error = server.serve(([127, 0, 0, 1], 0), Echo).expect_err("it cannot accept");
            assert!(error.to_string().contains("enable_io"), "{error}");
            // A failure inside a runtime drops nothing that panics there.
            let inside = runtime.block_on(async { server.serve(([127, 0, 0, 1], 0), Echo).map(drop) });
            assert!(inside.is_err_and(|error| error.to_string().contains("enable_io")));
        }
    }
}
