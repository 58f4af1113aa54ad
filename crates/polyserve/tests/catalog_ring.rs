//! A catalog makes no `io_uring` until its servers are listed. A process of its own, because it keeps the first answer of the system.
#![cfg(all(feature = "percore", feature = "threadpool", target_os = "linux"))]

use std::io::{Write as _, stderr};

use polyserve::catalog::Catalog;
use polyserve_percore::IoUring;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Regression test: each start of a program made a ring, whatever its server was.
#[test]
fn a_catalog_makes_no_ring() {
    // Without a descriptor, the system would allow no ring.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum: limit.maximum }).unwrap();
    let catalog = Catalog::builtin();
    let found = ["pool_server", "epoll"].map(|name| catalog.server(name).is_ok());
    setrlimit(Resource::Nofile, limit).unwrap();
    assert_eq!(found, [true; 2]);
    let is_listed = catalog.servers().iter().any(|entry| entry.name == "io_uring");
    match IoUring::check() {
        Ok(()) => assert!(is_listed),
        Err(error) => {
            assert!(!is_listed && !error.to_string().contains("open files"), "{error}");
            let _ = writeln!(stderr(), "not run: a_catalog_makes_no_ring: the system allows no io_uring: {error}");
        }
    }
}
