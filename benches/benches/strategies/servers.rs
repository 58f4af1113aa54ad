//! Every server of the catalog and every reference under load. The load generator of `polyserve load` runs in the same
//! process, over loopback. Every answer is checked. At the end, the number of answers shows whether requests were lost.
//!
//! The load is a closed loop: a connection sends the next request after it has received the last answer. So the figures
//! compare servers on one machine, and do not show latency at a given rate.
//!
//! The client uses cores that the server could use. Therefore each result has the processor load of both, and the
//! number of requests per second of the server's processor time.

use std::sync::Arc;
use std::time::Duration;

use polyserve::catalog::ServerEntry;
use polyserve::prelude::*;
use polyserve_bench::reference::{BODY, with_references};
use polyserve_load::data::Data;
use polyserve_load::{CpuSource, Dist, Exchange, Load, Mix, RunLength, Traffic, Usage, prefill, run};

use serde_json::{Value, json};

use crate::suite::{BenchGroup, BenchSettings, Suite};

/// The number of connections. A server with one connection at a time gets 1 if connections are kept alive.
const CONNECTIONS: usize = 8;
const PIPELINE: usize = 16;

/// The number of ids in the mix, and the seed.
const KEYS: u64 = 10_000;
const SEED: u64 = 1;
const MIX: Mix = Mix { get: 95, put: 5 };

/// The load shapes of the selection. The ranking uses them.
pub(crate) const RANKED: [&str; 3] = ["get", "put", "get-connection-each"];

/// A load shape.
struct LoadShape {
    name: &'static str,
    usage: Usage,
    /// The requests for servers.
    traffic: fn() -> Traffic,
    /// The requests for references, which send a fixed answer.
    reference_traffic: fn() -> Traffic,
}

const SHAPES: [LoadShape; 5] = [
    LoadShape { name: "get", usage: keep_alive(1), traffic: get, reference_traffic: get },
    LoadShape { name: "put", usage: keep_alive(1), traffic: || put(b""), reference_traffic: || put(BODY.as_bytes()) },
    LoadShape { name: "get-pipelined-16", usage: keep_alive(PIPELINE), traffic: get, reference_traffic: get },
    LoadShape { name: "get-connection-each", usage: Usage::Close, traffic: get, reference_traffic: get },
    LoadShape { name: "mix-95-5-zipf", usage: keep_alive(1), traffic: mix, reference_traffic: mix_of_one },
];

const fn keep_alive(pipeline: usize) -> Usage {
    Usage::KeepAlive { pipeline }
}

fn one_get() -> Exchange {
    Exchange::new("GET", "/1").with(|exchange| exchange.answers = vec![BODY.into()])
}

fn one_put(answer: &[u8]) -> Exchange {
    Exchange::new("PUT", "/1").with(|exchange| {
        exchange.headers = vec![("Content-Type".into(), "application/json".into())];
        exchange.body = Some(BODY.into());
        exchange.answers = vec![answer.to_vec()];
    })
}

fn get() -> Traffic {
    Traffic::expecting(vec![one_get()]).expect("it is a request")
}

fn put(answer: &[u8]) -> Traffic {
    Traffic::expecting(vec![one_put(answer)]).expect("it is a request")
}

fn mix() -> Traffic {
    Traffic::entities(&Data::new(SEED), KEYS, Dist::Zipf(0.99), MIX, SEED).expect("the mix is valid")
}

/// The reads and writes of [`mix`], all with the same id.
fn mix_of_one() -> Traffic {
    let gets = std::iter::repeat_n(one_get(), MIX.get as usize);
    let puts = std::iter::repeat_n(one_put(BODY.as_bytes()), MIX.put as usize);
    Traffic::expecting(gets.chain(puts).collect()).expect("they are requests")
}

/// A running server, and the load for it.
struct MeasuredServer {
    running: Running,
    load: Load,
    /// The number of requests answered before the load.
    filled: u64,
    cost: Cost,
}

impl MeasuredServer {
    fn start(server: &dyn Server, shape: &LoadShape, is_reference: bool) -> Self {
        let repo = Arc::new(Sharded::new());
        let service = EntityService::new(Arc::clone(&repo) as Arc<dyn EntityRepo>);
        let running = server.serve(([127, 0, 0, 1], 0), service).expect("the server starts");
        let traffic = if is_reference { (shape.reference_traffic)() } else { (shape.traffic)() };
        let is_single = server.shape() == Shape::One && shape.usage != Usage::Close;
        let load = Load::new(running.local_addr(), traffic).with(|load| {
            load.connections = if is_single { 1 } else { CONNECTIONS };
            load.usage = shape.usage;
            load.cpu = CpuSource::Own;
        });
        let mut filled = 0;
        if !is_reference {
            let _ = repo.put(Entity::new(1, "a1B2c3D4e5F6g7H", 60.750847)).wait().expect("the repo takes an entity");
            filled = prefill(load.target, &load.host, &load.traffic).expect("the server takes what is asked for later");
        }
        Self { running, load, filled, cost: Cost::default() }
    }

    /// Shuts down the server and checks its counts. Returns the figures for the record if the runs took long enough.
    fn end(self, shape: &str, name: &str) -> Option<Value> {
        let drain = self.running.shutdown().expect("the server ends");
        assert_eq!((drain.cut, drain.stuck), (0, 0), "{name}");
        let expected = self.filled + self.cost.answered;
        assert!(drain.answered >= expected, "{shape}/{name}: {drain}, but its clients have {expected}");
        self.cost.print(shape, name)
    }
}

fn bench(group: &mut BenchGroup<'_>, shape: &LoadShape, entry: &ServerEntry, is_reference: bool) {
    let close = shape.usage == Usage::Close;
    // A reference ignores the `Connection` header of a request.
    let requests_per_connection = (close && is_reference).then_some(1);
    let config = ServerConfig::default().requests_per_connection(requests_per_connection);
    let server = entry.build(&config).expect("the defaults suit every server");
    if is_reference && !close && server.shape() == Shape::One {
        return; // it closes the connection after every answer
    }
    let name = if is_reference { format!("reference/{}", entry.name) } else { entry.name.clone() };
    let mut subject = None; // started only if the filter selects the bench
    group.timed(&name, |requests| {
        let subject = subject.get_or_insert_with(|| MeasuredServer::start(server.as_ref(), shape, is_reference));
        subject.cost.add(&subject.load, requests)
    });
    if let Some(subject) = subject {
        subject.end(shape.name, &name).into_iter().for_each(|line| group.server(line));
    }
}

/// The min run time for figures of processor time. The clock of processor time has a resolution of a few milliseconds.
const MIN_RUN_TIME: Duration = Duration::from_millis(500);

/// The total times of all runs of one bench.
#[derive(Default)]
struct Cost {
    answered: u64,
    elapsed: Duration,
    client: Duration,
    server: Duration,
}

impl Cost {
    /// Runs `load` for the given number of requests. Returns the time.
    fn add(&mut self, load: &Load, requests: u64) -> Duration {
        let load = load.clone().with(|load| load.length = RunLength::Requests(requests));
        let report = run(&load, &mut |_| {}).expect("the load runs");
        assert!(report.is_clean(), "{:?}: {:?}", report.failed, report.first_failure);
        assert_eq!(report.answered, requests);
        self.answered += report.answered;
        self.elapsed += report.elapsed;
        self.client += report.client_cpu;
        self.server += report.server_cpu.expect("the server is in this process");
        report.elapsed
    }

    /// Prints the figures, and returns them for the record. Returns `None` if the runs were too short.
    fn print(&self, shape: &str, name: &str) -> Option<Value> {
        if self.elapsed < MIN_RUN_TIME || self.server.is_zero() {
            return None;
        }
        let per_s = (self.answered as f64 / self.elapsed.as_secs_f64()).round();
        let [elapsed, client, server] = [self.elapsed, self.client, self.server].map(|time| time.as_secs_f64());
        let per_cpu_s = self.answered as f64 / server;
        let (client, server) = (client / elapsed, server / elapsed);
        eprintln!(
            "{shape}/{name}: {per_cpu_s:.0} requests a server-CPU-second; cores: client {client:.2}, server {server:.2}"
        );
        let rounded = |cores: f64| (cores * 100.0).round() / 100.0;
        Some(json!({
            "shape": shape,
            "server": name,
            "requests_per_s": per_s,
            "requests_per_cpu_s": per_cpu_s.round(),
            "client_cores": rounded(client),
            "server_cores": rounded(server),
        }))
    }
}

pub(crate) fn benches(suite: &mut Suite) {
    let catalog = with_references(Catalog::builtin());
    for shape in &SHAPES {
        let short = RANKED.contains(&shape.name).then_some(BenchSettings::short(2500));
        let mut group = suite.group(format!("servers/{}", shape.name), short, BenchSettings::long(20, 1000, 3000));
        catalog.references().iter().for_each(|entry| bench(&mut group, shape, entry, true));
        catalog.servers().iter().for_each(|entry| bench(&mut group, shape, entry, false));
    }
}
