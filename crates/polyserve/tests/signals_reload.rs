//! Signals affect the whole process, so this file has one test.
#![cfg(feature = "signals")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use polyserve::prelude::*;
use signal_hook::consts::{SIGHUP, SIGTERM};
use signal_hook::low_level::raise;

#[test]
fn a_program_that_reloads_keeps_its_own_sighup() {
    let reload = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGHUP, Arc::clone(&reload)).unwrap();
    let signals = Signals::register().unwrap();
    raise(SIGHUP).unwrap();
    assert!(reload.load(Ordering::SeqCst), "the handler of the program has run");
    raise(SIGTERM).unwrap();
    assert_eq!(signals.wait().unwrap(), SIGTERM);
}
