//! Ending early, with what there is: the first SIGINT or SIGTERM asks for it, the second ends the process.

use std::thread;
use std::time::Instant;

use anyhow::Context as _;
use polyserve::Shutdown;
use polyserve::signals::Signals;

/// Begins with the first signal.
///
/// # Errors
///
/// Where the signals cannot be taken over.
pub(crate) fn on_signal() -> anyhow::Result<Shutdown> {
    let signals = Signals::register().context("the signals cannot be taken over")?;
    let stop = Shutdown::new();
    let begun = stop.clone();
    let wait = move || {
        if signals.wait().is_ok() {
            begun.begin(Instant::now());
        }
    };
    thread::Builder::new().name("stop".into()).spawn(wait).context("no thread to wait for signals")?;
    Ok(stop)
}
