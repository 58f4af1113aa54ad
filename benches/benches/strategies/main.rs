//! All benchmarks, in one program. It prints at its start how long it takes, then its progress, and at its end a ranking of
//! servers and stores.
//!
//! ```sh
//! cargo bench                        # the selection, under 10 minutes on 2 cores, and the ranking
//! POLYSERVE_BENCH=all cargo bench    # every benchmark, with more samples
//! cargo bench -- servers/get         # the benchmarks with matching names
//! ```
//!
//! [`suite`] plans and runs, [`ranking`] prints the table at the end. Each other module is a group of benchmarks.

mod answer;
mod codec;
mod executors;
mod hash;
mod ranking;
mod repos;
mod servers;
mod suite;

use suite::Suite;

/// The groups, in the order in which they run.
const GROUPS: &[fn(&mut Suite)] =
    &[servers::benches, repos::benches, executors::benches, codec::benches, answer::benches, hash::benches];

fn main() {
    let mut suite = Suite::planned(GROUPS);
    suite.run(GROUPS);
    if suite.is_unfiltered() || suite::is_filter(executors::GROUP) {
        executors::print_ratios();
    }
    if suite.is_unfiltered() {
        print!("{}", ranking::ranking(&suite.figures));
    }
}
