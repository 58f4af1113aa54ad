//! The shared parts of the binaries: the allocator, the first output line, the end.
#![forbid(unsafe_code)]

use std::io::{self, Write as _};
use std::thread;

use signal_hook::consts::SIGTERM;
use signal_hook::low_level::raise;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[cfg(all(feature = "mimalloc", not(feature = "jemalloc")))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Prints a line of JSON and flushes it.
///
/// # Errors
///
/// Returns an error if standard output is closed.
pub fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Sends this process a SIGTERM when standard input ends. So the process ends with its parent, however the parent ends.
///
/// # Errors
///
/// Returns an error if the waiting thread cannot be started.
pub fn end_with_stdin() -> io::Result<()> {
    let wait = || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink()); // an error is an end
        let _ = raise(SIGTERM);
    };
    thread::Builder::new().name("stdin".into()).spawn(wait).map(drop)
}
