//! Ending early, with what there is: the first SIGINT or SIGTERM asks for it, the second ends the process.
//!
//! Invariant: a measurement that is ended early has not failed, unless a contestant did wrong.

use std::process::ExitCode;
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

/// The exit code of a measurement with these failures. A failure is true if a contestant did wrong: a wrong answer, for
/// instance. A rerun tries the other failures again, so they do not count if the run was ended early.
pub(crate) fn exit_code(interrupted: bool, failures: impl IntoIterator<Item = bool>) -> ExitCode {
    let is_bad = failures.into_iter().any(|wrong| wrong || !interrupted);
    if is_bad { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_wrong_fails_a_run_that_was_ended_early() {
        let (good, bad) = (ExitCode::SUCCESS, ExitCode::FAILURE);
        assert_eq!([exit_code(false, []), exit_code(true, [])], [good, good]);
        assert_eq!([exit_code(false, [false]), exit_code(true, [false])], [bad, good]);
        assert_eq!([exit_code(false, [false, true]), exit_code(true, [false, true])], [bad, bad]);
    }
}
