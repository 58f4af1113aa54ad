//! What the binaries of this package share: the allocator that they were built with, and how they begin and end.
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

/// Prints a line of JSON, and sees that it leaves.
///
/// # Errors
///
/// Where standard output is gone.
pub fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Sends this process a SIGTERM when standard input has ended: so it ends with whoever started it, however that one ends.
///
/// # Errors
///
/// Where there is no thread to wait for it.
pub fn end_with_stdin() -> io::Result<()> {
    let wait = || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink()); // an error is an end
        let _ = raise(SIGTERM);
    };
    thread::Builder::new().name("stdin".into()).spawn(wait).map(drop)
}
