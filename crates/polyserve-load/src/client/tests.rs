//! The allocations of the loop.

use std::sync::Arc;

use polyserve_core::{EntityService, Running, ServerConfig, ServerExt as _};
use polyserve_memory::StdRwlock;
use polyserve_threadpool::{MpscPool, PoolServer};

use super::*;
use crate::data::Data;
use crate::dist::Dist;
use crate::load::{Pace, RunLength};
use crate::traffic::Traffic;

fn serve() -> Running {
    let pool = Arc::new(MpscPool::for_server(&ServerConfig::default().workers(2)).unwrap());
    let server = PoolServer::with_executor(ServerConfig::default(), pool).unwrap();
    server.serve(([127, 0, 0, 1], 0), EntityService::new(StdRwlock::new())).unwrap()
}

/// Returns the number of allocations of this thread for a load of `count` requests.
fn allocations(load: &Load, count: u64) -> u64 {
    let load = load.clone().with(|load| load.length = RunLength::Requests(count));
    let mut client = ClientThread::new(&load, EncodedRequests::new(&load.traffic, "h", false), 0).unwrap();
    client.ramp_up(&load).unwrap();
    let now = clock::now();
    let (times, counters) = (Times { start: now, counted: now, end: u64::MAX }, ThreadCounters::default());
    let context = ThreadContext { thread: 0, counters: &counters, meter: None };
    let mut ended = None;
    let info = allocation_counter::measure(|| ended = Some(client.run(&load, context, times).unwrap()));
    let tally = ended.unwrap().tally;
    assert_eq!((tally.answered, tally.failed.total()), (count, 0), "{:?}", tally.first_failure);
    info.count_total
}

/// Ten times the requests need no more allocations: only growing buffers allocate. (A connection has a buffer for an
/// incomplete head or line, so a connection may allocate once at any time.)
#[test]
fn requests_do_not_allocate() {
    let running = serve();
    let mix = "get=3,put=1".parse().unwrap();
    let traffic = Traffic::entities(&Data::new(0), 100, Dist::Zipf(0.9), mix, 0).unwrap();
    crate::prefill::prefill(running.local_addr(), "h", &traffic).unwrap();
    for (pipeline, pace) in [(1, Pace::Closed), (16, Pace::Closed), (1, Pace::Rate(100_000.0))] {
        let load = Load::new(running.local_addr(), traffic.clone()).with(|load| {
            (load.connections, load.usage, load.pace) = (4, Usage::KeepAlive { pipeline }, pace);
        });
        let (few, many) = (allocations(&load, 2_000), allocations(&load, 20_000));
        // A head that is new after the first 2 000 answers is cached too.
        assert!(many <= few + 16, "{pipeline}, {pace:?}: {few} for 2 000 requests, {many} for 20 000");
    }
}
