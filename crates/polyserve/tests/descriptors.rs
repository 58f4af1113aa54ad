//! The limit of descriptors belongs to the whole process, so this file has one test.

mod support;

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use polyserve::{Echo, ServerConfig, ServerExt as _};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The time in which a drain without connections ends on a busy machine.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Regression test: without a free descriptor, an accept loop of the async servers could not learn that no connection waits, and held the
/// drain for the whole grace.
#[test]
fn a_drain_ends_without_a_free_descriptor() {
    let config = ServerConfig::default().workers(1).drain_grace(10 * MAX_WAIT);
    let limit = getrlimit(Resource::Nofile);
    for entry in support::servers("a_drain_ends_without_a_free_descriptor") {
        let (server, _) = entry.build_with_supported(&config).unwrap_or_else(|error| panic!("{}: {error}", entry.name));
        let running = server.serve("127.0.0.1:0", Echo).unwrap_or_else(|error| panic!("{}: {error}", entry.name));
        let (ended, end) = channel();
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).unwrap();
        thread::spawn(move || ended.send(running.shutdown().is_ok()));
        let is_drained = end.recv_timeout(MAX_WAIT);
        setrlimit(Resource::Nofile, limit).unwrap();
        assert_eq!(is_drained, Ok(true), "{}", entry.name);
    }
}
