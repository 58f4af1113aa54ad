//! Drain on SIGINT and SIGTERM.
//!
//! The first signal starts the drain. The second signal exits at once with 128 plus its number, even if the drain has not
//! ended. The signal handler never exits; it wakes a thread of this module, so the drain runs.
//!
//! Invariant: from [`Signals::register`] on, no signal is lost. A signal that arrives before the server runs takes effect
//! when [`Signals::drain`] is called. The kernel may merge two signals of the same kind into one. Cost: one sleeping thread.
//!
//! ```no_run
//! use polyserve::prelude::*;
//!
//! # fn run(server: &dyn Server, service: impl Service) -> std::io::Result<()> {
//! println!("{}", server.serve_until_signal("127.0.0.1:8001", service)?); // answered 7, cut 0, stuck 0
//! # Ok(())
//! # }
//! ```
//!
//! A program that prints the address that was bound does the same in four lines:
//!
//! ```no_run
//! use polyserve::prelude::*;
//!
//! # fn run(server: &dyn Server, service: impl Service) -> std::io::Result<()> {
//! let signals = Signals::register()?; // first, so that none is lost
//! let running = server.serve("127.0.0.1:0", service)?;
//! println!("listening on http://{}", running.local_addr());
//! println!("{}", signals.drain(running)?);
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::io;
use std::process;
use std::thread;

use polyserve_core::{Answer, Drain, IntoListenOn, Running, Server, ServerExt, Service, promise};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals as Arrivals;

/// The handling of SIGINT and SIGTERM, until the process ends.
///
/// ```
/// use polyserve::signals::Signals;
/// use polyserve::{Drain, Running};
///
/// fn run(running: Running) -> std::io::Result<Drain> {
///     Signals::register()?.drain(running)
/// }
/// ```
pub struct Signals {
    first: Answer<Option<i32>>,
}

impl Signals {
    /// Registers the handlers. If the value is dropped without a drain, the first signal exits the process.
    ///
    /// # Errors
    ///
    /// Returns an error if the system refuses the handlers or the thread.
    pub fn register() -> io::Result<Self> {
        let mut arrivals = Arrivals::new([SIGINT, SIGTERM])?;
        let (completer, first) = promise(None);
        thread::Builder::new().name("polyserve-signals".into()).spawn(move || {
            let mut completer = Some(completer);
            for signal in arrivals.forever() {
                let completed = completer.take().map(|completer| completer.complete(Some(signal)));
                if completed != Some(Ok(())) {
                    process::exit(exit_code(signal));
                }
            }
        })?;
        Ok(Self { first })
    }

    /// Waits for the first signal, and returns its number.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread of this module has ended.
    ///
    /// ```no_run
    /// use polyserve::signals::Signals;
    /// let signal = Signals::register()?.wait()?;
    /// println!("signal {signal}");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn wait(self) -> io::Result<i32> {
        self.first.wait().ok_or_else(|| io::Error::other("the thread that waits for signals has ended"))
    }

    /// Waits for the first signal, then drains `running` with the configured grace.
    ///
    /// # Errors
    ///
    /// Returns an error if the server has failed, or if the thread of this module has ended.
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

/// Serving until a signal arrives, for every [`Server`].
///
/// ```no_run
/// use polyserve::prelude::*;
/// fn run(server: &dyn Server) -> std::io::Result<Drain> {
///     server.serve_until_signal("127.0.0.1:8001", EntityService::new(Sharded::new()))
/// }
/// ```
pub trait ServeUntilSignal: Server {
    /// Serves until SIGINT or SIGTERM arrives, then drains with the configured grace. The arguments are those of
    /// [`ServerExt::serve`]. It prints nothing. Use [`Signals`] if the program prints the address that was bound.
    ///
    /// # Errors
    ///
    /// Returns an error if the handlers cannot be registered, if the server cannot be started, or if it has failed.
    fn serve_until_signal(&self, on: impl IntoListenOn, service: impl Service) -> io::Result<Drain> {
        let signals = Signals::register()?; // first, so that none is lost
        signals.drain(self.serve(on, service)?)
    }
}

impl<S: Server + ?Sized> ServeUntilSignal for S {}

/// Returns the exit code that a shell reports for a process ended by a signal.
fn exit_code(signal: i32) -> i32 {
    128 + signal
}
