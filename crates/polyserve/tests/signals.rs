//! Signals affect the whole process, so this file has one test.
#![cfg(all(feature = "signals", feature = "threadpool"))]

use polyserve::Echo;
use polyserve::prelude::*;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::raise;

/// Regression test: a SIGTERM during the start of a server was lost, and the process never ended. Later, a second signal
/// within microseconds of the first ended the process without a drain.
#[test]
fn a_signal_before_the_drain_is_not_lost_and_signals_at_once_are_one() {
    let signals = Signals::register().unwrap();
    raise(SIGTERM).unwrap();
    let server = PoolServer::mpsc(ServerConfig::default()).unwrap();
    let running = server.serve(([127, 0, 0, 1], 0), Echo).unwrap();
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        raise(signal).unwrap();
    }
    assert_eq!(signals.drain(running).unwrap(), Drain::default());
}
