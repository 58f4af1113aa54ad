//! Each tokio runtime that this crate starts has timers and I/O, for the code of its users.
#![cfg(all(feature = "hyper", feature = "http2"))]

use std::sync::mpsc;
use std::time::Duration;

use polyserve_async::{TokioHyper, TokioPerCore, TokioTasks, TokioTcp};
use polyserve_conformance::client::Client;
use polyserve_core::{Answer, Executor, Job, Reply, Request, Server, ServerConfig, ServerExt, Service};
use polyserve_serving::executor::PoolConfig;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

const MAX_WAIT: Duration = Duration::from_secs(60);

/// Sleeps, and accepts a connection of its own.
async fn use_the_runtime() -> std::io::Result<()> {
    sleep(Duration::from_millis(1)).await;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    let (connected, accepted) = (tokio::net::TcpStream::connect(addr).await, listener.accept().await);
    timeout(MAX_WAIT, async { connected.and(accepted.map(drop)) }).await?
}

/// A service of futures that need tokio's runtime. The contract allows that on servers on tokio only.
struct OnTokio;

impl Service for OnTokio {
    fn call(&self, _: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        Answer::later(async {
            match use_the_runtime().await {
                Ok(()) => Reply::text("done"),
                Err(error) => Reply::text(error.to_string()),
            }
        })
    }
}

/// Regression test: the runtimes had no timers, so a future that slept panicked, and the answer was 500.
#[test]
fn a_service_may_use_the_runtime_of_its_server() {
    let config = ServerConfig::default().workers(1);
    let servers: [Box<dyn Server>; 4] = [
        Box::new(TokioTcp::new(config.clone()).unwrap()),
        Box::new(TokioPerCore::new(config.clone()).unwrap()),
        Box::new(TokioHyper::new(config.clone()).unwrap()),
        Box::new(TokioHyper::new(config.http2(true)).unwrap()),
    ];
    for server in servers {
        let running = server.serve("127.0.0.1:0", OnTokio).unwrap();
        let mut client = Client::connect(running.local_addr(), MAX_WAIT).unwrap();
        assert_eq!(client.ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200).text(), "done", "{server:?}");
        drop(client);
        assert_eq!(running.counters().panics, 0, "{server:?}");
    }
}

#[test]
fn a_job_may_spawn_a_future_on_its_runtime() {
    let tasks = TokioTasks::new(PoolConfig::new(1)).unwrap();
    let (sender, done) = mpsc::channel();
    tasks
        .execute(Job::new(move || {
            drop(Handle::current().spawn(async move { sender.send(use_the_runtime().await) }));
        }))
        .unwrap();
    done.recv_timeout(MAX_WAIT).expect("the future ends").expect("it used the runtime");
    assert_eq!(tasks.close(None), 0);
}
