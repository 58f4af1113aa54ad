//! Loads on real servers, and on servers with one fault each.

mod faults;
mod faulty;
mod lost_updates;
mod modes;
mod open_loop;
mod preparing;
mod retries;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyserve_core::{EntityService, Running, ServerConfig, ServerExt as _};
use polyserve_load::data::Data;
use polyserve_load::{Dist, Load, LoadProgress, Report, RunLength, Traffic, run};
use polyserve_memory::StdRwlock;
use polyserve_threadpool::{MpscPool, PoolServer};

/// Only used if a test hangs.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// An entity server.
fn serve(config: ServerConfig) -> Running {
    let pool = Arc::new(MpscPool::for_server(&ServerConfig::default().workers(2)).unwrap());
    let server = PoolServer::with_executor(config, pool).unwrap();
    server.serve(([127, 0, 0, 1], 0), EntityService::new(StdRwlock::new())).unwrap()
}

fn entities(keys: u64, mix: &str) -> Traffic {
    Traffic::entities(&Data::new(1), keys, Dist::Zipf(0.9), mix.parse().unwrap(), 2).unwrap()
}

/// A load of `count` requests to `target` over 8 connections.
fn requests(target: SocketAddr, traffic: &Traffic, count: u64) -> Load {
    Load::new(target, traffic.clone()).with(|load| {
        load.connections = 8;
        load.length = RunLength::Requests(count);
        load.timeout = MAX_WAIT;
    })
}

fn report(load: &Load) -> Report {
    run(load, &mut |_: &LoadProgress| {}).unwrap()
}

/// Repeats a run until its report is as `is_good` says, or until [`MAX_WAIT`] is over. Returns the last report.
///
/// For runs with times so short that a busy machine can spoil them.
fn repeated(run: impl Fn() -> Report, is_good: impl Fn(&Report) -> bool) -> Report {
    let deadline = Instant::now() + MAX_WAIT;
    loop {
        let report = run();
        if is_good(&report) || Instant::now() >= deadline {
            return report;
        }
    }
}

#[track_caller]
fn assert_clean(report: &Report) {
    assert!(report.is_clean(), "{:?}: {:?}", report.failed, report.first_failure);
}
