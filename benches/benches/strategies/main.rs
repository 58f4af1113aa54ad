//! All benchmarks in one program. At the start it prints an estimate of the total time, then its progress, and at the
//! end a ranking of servers and stores.
//!
//! ```sh
//! cargo bench -p polyserve-benches                        # the selection, under 10 minutes on 2 cores, and the ranking
//! POLYSERVE_BENCH=all cargo bench -p polyserve-benches    # every benchmark, with more samples
//! cargo bench -p polyserve-benches -- servers/get         # the benchmarks with matching names
//! ```
//!
//! `POLYSERVE_BENCH_OUT=DIR cargo bench -p polyserve-benches` also records the results.
//!
//! [`suite`] plans and runs the benchmarks, [`record`](mod@record) writes records, and [`ranking`] prints the table at
//! the end. Every other module is a group of benchmarks.

mod answer;
mod codec;
mod executors;
mod hash;
mod ranking;
mod record;
mod repos;
mod servers;
mod suite;

use std::time::SystemTime;

use polyserve_bench::benches::BenchLine;
use serde_json::json;
use suite::Suite;

/// The groups, in the order in which they run.
const GROUPS: &[fn(&mut Suite)] =
    &[servers::benches, repos::benches, executors::benches, codec::benches, answer::benches, hash::benches];

fn main() {
    let start = SystemTime::now();
    let mut suite = Suite::planned(GROUPS);
    suite.run(GROUPS);
    let is_dispatch = suite::is_filter(executors::GROUP);
    if suite.is_unfiltered() || is_dispatch {
        executors::print_ratios(is_dispatch);
    }
    if suite.is_unfiltered() {
        print!("{}", ranking::ranking(&suite.figures));
        let benches = record::timed_since(start).expect("criterion's files can be read");
        let lines = [(BenchLine::KIND, benches), ("server", std::mem::take(&mut suite.servers))];
        record::record("benches", json!({}), &lines).expect("the record can be written");
    }
}
