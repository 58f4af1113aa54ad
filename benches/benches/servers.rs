//! Every server of the catalog under load, in process: server and client threads over loopback, each answer checked.
//!
//! Closed loop: a client sends when its last answer is there. So these figures compare servers on one machine; they
//! say nothing about latency under a given load.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use polyserve::prelude::*;
use polyserve_benches::client::Client;

const BODY: &str = r#"{"id":1,"description":"a1B2c3D4e5F6g7H","value":60.750847}"#;
const CLIENTS: usize = 8;
const PIPELINE: usize = 16;

/// What a client does again and again.
struct Load {
    name: &'static str,
    requests: Vec<u8>,
    /// How many requests those are.
    count: usize,
    status: &'static str,
    body: &'static [u8],
    /// Each on a connection of its own.
    reconnect: bool,
}

fn loads() -> Vec<Load> {
    let get = b"GET /1 HTTP/1.1\r\nHost: bench\r\n\r\n".to_vec();
    let last = b"GET /1 HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n".to_vec();
    let put = format!("PUT /1 HTTP/1.1\r\nHost: bench\r\nContent-Length: {}\r\n\r\n{BODY}", BODY.len()).into_bytes();
    let ok = "HTTP/1.1 200 OK";
    let load = |name, requests, count, body, reconnect| Load { name, requests, count, status: ok, body, reconnect };
    vec![
        load("get", get.clone(), 1, BODY.as_bytes(), false),
        load("put", put, 1, b"", false),
        load("get-pipelined-16", get.repeat(PIPELINE), PIPELINE, BODY.as_bytes(), false),
        load("get-connection-each", last, 1, BODY.as_bytes(), true),
    ]
}

/// Runs `times` exchanges from `clients` threads; the time that took.
fn run(addr: SocketAddr, load: &Load, clients: usize, times: u64) -> io::Result<Duration> {
    let share = |client: u64| times / clients as u64 + u64::from(client < times % clients as u64);
    let mut connections = Vec::new();
    for _ in 0..if load.reconnect { 0 } else { clients } {
        connections.push(Client::connect(addr)?);
    }
    let mut connections = connections.into_iter();
    let start = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients as u64)
            .map(|client| {
                let mut kept = connections.next();
                scope.spawn(move || -> io::Result<()> {
                    for _ in 0..share(client) {
                        let mut fresh = if load.reconnect { Some(Client::connect(addr)?) } else { None };
                        if let Some(connection) = fresh.as_mut().or(kept.as_mut()) {
                            connection.exchange(&load.requests, load.count, load.status, load.body)?;
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| io::Error::other("a client panicked"))?)
    })?;
    Ok(start.elapsed())
}

fn bench_server(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, server: &dyn Server, load: &Load) {
    let repo = TwoLevel::default();
    let _ = repo.put(Entity::new(1, "a1B2c3D4e5F6g7H", 60.750847)).wait().expect("the repo takes an entity");
    let running = server.serve(([127, 0, 0, 1], 0).into(), EntityService::shared(repo)).expect("the server starts");
    // One that serves one connection at a time has one client.
    let clients = if server.connections() == Connections::One && !load.reconnect { 1 } else { CLIENTS };
    group.throughput(Throughput::Elements(load.count as u64));
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|times| run(running.local_addr(), load, clients, times).expect("every answer is right"));
    });
    let drain = running.shutdown().expect("the server ends");
    assert_eq!((drain.cut, drain.stuck), (0, 0));
}

fn servers(criterion: &mut Criterion) {
    let catalog = Catalog::builtin();
    let config = ServerConfig::default();
    for load in loads() {
        let mut group = criterion.benchmark_group(format!("servers/{}", load.name));
        group.sample_size(20).warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
        for entry in catalog.servers() {
            let server = (entry.make)(&config).expect("the defaults suit every server");
            bench_server(&mut group, &entry.name, server.as_ref(), &load);
        }
        group.finish();
    }
}

criterion_group!(benches, servers);
criterion_main!(benches);
