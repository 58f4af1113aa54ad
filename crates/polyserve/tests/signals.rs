//! Signals affect the whole process, so this file has one test.
#![cfg(all(feature = "signals", feature = "threadpool"))]

use polyserve::prelude::*;
use polyserve::service::Echo;

/// Regression test: a SIGTERM during the start of a server was lost, and the process never ended.
#[test]
fn a_signal_before_the_drain_is_not_lost() {
    let signals = Signals::register().unwrap();
    signal_hook::low_level::raise(signal_hook::consts::SIGTERM).unwrap();
    let server = PoolServer::mpsc(ServerConfig::default()).unwrap();
    let running = server.serve(([127, 0, 0, 1], 0), Echo).unwrap();
    assert_eq!(signals.drain(running).unwrap(), Drain::default());
}
