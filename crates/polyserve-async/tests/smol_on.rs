//! `smol` on the executor of its caller.
#![cfg(feature = "smol")]

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use async_executor::Executor;
use polyserve_async::Smol;
use polyserve_core::http::StatusCode;
use polyserve_core::{Answer, Echo, Reply, Request, Running, ServerConfig, ServerExt, Service, promise};

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn ask(addr: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// A service that sends the id of the thread on which it is called.
struct Where(mpsc::Sender<thread::ThreadId>);

impl Service for Where {
    fn call(&self, _: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        let _ = self.0.send(thread::current().id());
        Answer::Now(Reply::empty(StatusCode::OK))
    }
}

/// The tasks of two servers run on the thread that runs their executor. That thread also awaits the ends of the servers.
#[test]
fn tasks_run_where_the_owner_runs_them() {
    let executor = Arc::new(Executor::new());
    let server = Smol::with_executor(ServerConfig::default(), Arc::clone(&executor)).unwrap();
    let (sender, receiver) = mpsc::channel();
    let runs = [(); 2].map(|()| server.serve(any_port(), Arc::new(Where(sender.clone()))).unwrap());
    let addrs = runs.each_ref().map(Running::local_addr);
    let (end, end_signal) = promise(());
    let owner = thread::spawn(move || {
        async_io::block_on(executor.run(async {
            end_signal.await;
            for run in runs {
                let drain = run.drained().await.unwrap();
                assert_eq!((drain.answered, drain.cut, drain.stuck), (3, 0, 0), "{drain}");
            }
        }));
        assert!(executor.is_empty(), "tasks are left");
    });
    for addr in addrs.iter().cycle().take(6) {
        let answer = ask(*addr).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
        assert_eq!(receiver.recv().unwrap(), owner.thread().id());
    }
    end.complete(()).unwrap();
    owner.join().unwrap();
    for addr in addrs {
        assert!(TcpStream::connect(addr).is_err(), "the server still listens");
    }
}

/// If the executor is dropped, its tasks are dropped too, and the run ends at once.
#[test]
fn an_executor_that_is_dropped_ends_its_connections() {
    let executor = Arc::new(Executor::new());
    let server = Smol::with_executor(ServerConfig::default(), Arc::clone(&executor)).unwrap();
    let running = server.serve(any_port(), Echo).unwrap();
    drop((server, executor));
    let drain = running.shutdown_within(Duration::ZERO).unwrap();
    assert_eq!((drain.answered, drain.stuck), (0, 0), "{drain}");
}

#[test]
fn a_number_of_workers_is_refused() {
    let config = ServerConfig::default().workers(2);
    let error = Smol::with_executor(config, Arc::new(Executor::new())).unwrap_err();
    assert!(error.to_string().contains("workers"), "{error}");
}
