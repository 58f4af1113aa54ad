//! What the loop costs that can be counted.

use std::sync::Arc;

use polyserve_core::service::EntityService;
use polyserve_core::{Running, Server as _, ServerConfig};
use polyserve_memory::StdRwlock;
use polyserve_threadpool::{MpscPool, PoolConfig, PoolServer};

use super::*;
use crate::data::Data;
use crate::dist::Dist;
use crate::load::{Pace, Span};
use crate::traffic::Traffic;

fn serve() -> Running {
    let pool = Arc::new(MpscPool::new(PoolConfig::new(2)).unwrap());
    let server = PoolServer::on(ServerConfig::default(), pool).unwrap();
    server.serve(([127, 0, 0, 1], 0).into(), EntityService::shared(StdRwlock::new())).unwrap()
}

/// How often this thread allocates for a load of `count` requests.
fn allocations(load: &Load, count: u64) -> u64 {
    let load = load.clone().with(|load| load.span = Span::Requests(count));
    let mut client = Client::new(&load, Script::new(&load.traffic, "h", false), 0).unwrap();
    client.ramp_up(&load).unwrap();
    let now = clock::now();
    let (times, shown) = (Times { start: now, counted: now, end: u64::MAX }, Shown::default());
    let seat = Seat { thread: 0, shown: &shown, meter: None };
    let mut ended = None;
    let info = allocation_counter::measure(|| ended = Some(client.run(&load, seat, times).unwrap()));
    let tally = ended.unwrap().tally;
    assert_eq!((tally.answered, tally.failed.total()), (count, 0), "{:?}", tally.first_failure);
    info.count_total
}

/// Ten times the requests take not one allocation more: buffers grow in the beginning, and that is all. (What is torn
/// between two reads is kept in a buffer of its connection, so a connection may allocate once, whenever that is.)
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
        // A head that was not among the first 2 000 is kept too.
        assert!(many <= few + 16, "{pipeline}, {pace:?}: {few} for 2 000 requests, {many} for 20 000");
    }
}
