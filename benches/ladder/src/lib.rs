//! The parts that the binaries share: the allocator, the output, and the end of the process.
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

/// Prints a line and flushes standard output.
///
/// # Errors
///
/// Returns an error if standard output cannot be written.
pub fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Sends this process a SIGTERM when standard input ends. So the process always ends with its parent.
///
/// # Errors
///
/// Returns an error if the thread that reads standard input cannot be started.
pub fn end_with_stdin() -> io::Result<()> {
    let wait = || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink()); // an error also ends the input
        let _ = raise(SIGTERM);
    };
    thread::Builder::new().name("stdin".into()).spawn(wait).map(drop)
}
