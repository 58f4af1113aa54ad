//! Drain on SIGINT and SIGTERM.
//!
//! The first of the two begins the drain; the second exits at once with 128 plus its number, whatever the drain is
//! waiting for. Nothing exits inside a signal handler: a handler only wakes a thread of this module, so the drain runs.
//!
//! Invariant: from [`Signals::register`] on, no signal is lost. One that arrives before the server runs drains it as
//! soon as [`Signals::drain`] is called. Two of a kind that arrive as one, because the kernel had not delivered the
//! first yet, are one. Cost: a thread that sleeps.
//!
//! ```no_run
//! use polyserve::prelude::*;
//! use polyserve::signals::Signals;
//!
//! # fn run(server: &dyn Server, service: std::sync::Arc<dyn Service>) -> std::io::Result<()> {
//! let signals = Signals::register()?; // first, so that none is lost
//! let running = server.serve(([127, 0, 0, 1], 8001).into(), service)?;
//! println!("listening on http://{}", running.local_addr());
//! println!("{}", signals.drain(running)?);
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::io;
use std::process;
use std::thread;

use polyserve_core::{Answer, Drain, Running, promise};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals as Arrivals;

/// The signals SIGINT and SIGTERM of this process, taken over for the rest of its life.
pub struct Signals {
    first: Answer<Option<i32>>,
}

impl Signals {
    /// Takes the signals over. Dropped without a drain, it exits at the first signal as it does at the second.
    ///
    /// # Errors
    ///
    /// Where the system refuses the handlers or the thread.
    pub fn register() -> io::Result<Self> {
        let mut arrivals = Arrivals::new([SIGINT, SIGTERM])?;
        let (completer, first) = promise(None);
        thread::Builder::new().name("polyserve-signals".into()).spawn(move || {
            let mut completer = Some(completer);
            for signal in arrivals.forever() {
                let taken = completer.take().map(|completer| completer.complete(Some(signal)));
                if taken != Some(Ok(())) {
                    process::exit(exit_code(signal));
                }
            }
        })?;
        Ok(Self { first })
    }

    /// Waits for the first signal, and answers which it was.
    ///
    /// # Errors
    ///
    /// Where the signals can no longer be heard.
    pub fn wait(self) -> io::Result<i32> {
        self.first.wait().ok_or_else(|| io::Error::other("the thread that listens for signals is gone"))
    }

    /// Waits for the first signal, then drains `running` with its configured grace.
    ///
    /// # Errors
    ///
    /// Where the server itself has failed, or the signals can no longer be heard.
    pub fn drain(self, running: Running) -> io::Result<Drain> {
        self.wait()?;
        running.shutdown()
    }
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signals(..)")
    }
}

/// Serves until SIGINT or SIGTERM arrives, then drains `running`. A signal that comes before this call ends the process
/// as ever; [`Signals::register`] closes that gap.
///
/// # Errors
///
/// Where the signals cannot be taken over, or the server itself has failed.
pub fn run_until_signalled(running: Running) -> io::Result<Drain> {
    Signals::register()?.drain(running)
}

/// What a shell reports for a process that a signal has ended.
fn exit_code(signal: i32) -> i32 {
    128 + signal
}
