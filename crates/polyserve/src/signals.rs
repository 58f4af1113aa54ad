//! Drain on SIGINT, SIGTERM and SIGHUP.
//!
//! The first signal starts the drain. A signal that arrives at least one second later exits at once with 128 plus its number,
//! even if the drain has not ended. Signals within that second are the same signal: `timeout`, for example, signals a program
//! and then its process group. The signal handler never exits; it wakes a thread of this module, so the drain runs.
//!
//! A signal that the parent has ignored stays ignored: SIGHUP under `nohup`, SIGINT in a background job of a script. Stop such
//! a job with SIGTERM. SIGHUP is left to a program that has its own handler, for example to reload its settings. Such a
//! handler must be there before [`Signals::register`]; [`on_hangup`] is one.
//!
//! A write past the limit of a file's size (`ulimit -f`, `LimitFSIZE=`) sends SIGXFSZ, which would end the program. With a handler, the
//! write fails: a durable store answers 507, and an access log drops lines.
//!
//! Invariant: from [`Signals::register`] on, no signal is lost. A signal that arrives before the server runs takes effect when
//! [`Signals::drain`] is called, or at once in [`Signals::unless_signalled`]. The kernel may merge two signals of the same kind into one.
//! Cost: one sleeping thread.
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
use std::future::IntoFuture as _;
use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::process;
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::{
    Answer, AnswerFuture, Drain, IntoListenOn, Running, Server, ServerExt, Service, park_until, promise,
};
use polyserve_sys::{SignalDisposition, signal_disposition};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals as Arrivals;

/// The handling of SIGINT, SIGTERM and SIGHUP, until the process ends.
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
    first: AnswerFuture<Option<i32>>,
}

impl Signals {
    /// Registers the handlers, also one for SIGXFSZ, except for signals that are ignored, and for SIGHUP if it has a handler. If the
    /// value is dropped without a drain, the first signal exits the process.
    ///
    /// # Errors
    ///
    /// Returns an error if the system refuses the handlers or the thread.
    pub fn register() -> io::Result<Self> {
        if signal_disposition(SIGXFSZ)? == SignalDisposition::Default {
            flag::register(SIGXFSZ, Arc::default())?; // nothing reads the flag
        }
        let mut arrivals = Arrivals::new(taken_over()?)?;
        let (completer, first) = promise(None);
        thread::Builder::new().name("polyserve-signals".into()).spawn(move || {
            let mut arrivals = arrivals.forever();
            let Some(signal) = arrivals.next() else { return };
            let first = Instant::now();
            if completer.complete(Some(signal)).is_err() {
                process::exit(exit_code(signal));
            }
            if let Some(signal) = arrivals.find(|_| is_second(first, Instant::now())) {
                process::exit(exit_code(signal));
            }
        })?;
        Ok(Self { first: first.into_future() })
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
        let first = Answer::later(self.first).wait();
        first.ok_or_else(|| io::Error::other("the thread that waits for signals has ended"))
    }

    /// Runs `work`, for example the load of a store, on a thread of its own. Returns `None` as soon as the first signal arrives. The
    /// work then goes on, and ends with the process at the latest. After `None`, [`wait`](Self::wait) returns at once.
    ///
    /// # Errors
    ///
    /// Returns an error if the system refuses the thread, or if `work` panics.
    ///
    /// ```
    /// use polyserve::signals::Signals;
    /// let mut signals = Signals::register()?;
    /// assert_eq!(signals.unless_signalled(|| 7)?, Some(7));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn unless_signalled<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Option<T>> {
        let (completer, result) = promise(None);
        let run = move || drop(completer.complete(Some(work()))); // after a signal, the result is dropped
        thread::Builder::new().name("polyserve-start".into()).spawn(run)?;
        let mut result = result.into_future();
        let ended = park_until(None, |cx| match Pin::new(&mut self.first).poll(cx) {
            Poll::Ready(signal) => {
                self.first = Answer::Now(signal).into_future();
                Poll::Ready(Ok(None))
            }
            Poll::Pending => Pin::new(&mut result).poll(cx).map(|value| match value {
                Some(value) => Ok(Some(value)),
                None => Err(io::Error::other("it panicked")),
            }),
        });
        ended.expect("a wait without a deadline ends with a value")
    }

    /// Waits for the first signal, then drains `running` with the configured grace.
    ///
    /// # Errors
    ///
    /// Returns an error if the server has failed, or if the thread of this module has ended.
    pub fn drain(self, running: Running) -> io::Result<Drain> {
        self.wait()?;
        Ok(running.shutdown()?)
    }
}

/// Calls `reload` on a thread of its own: with `true` for each SIGHUP, and with `false` whenever none has come for `pause`. To be called
/// before [`Signals::register`], which then leaves SIGHUP alone. If the parent ignored SIGHUP, it stays ignored, and only the calls
/// with `false` are made.
///
/// # Errors
///
/// Returns an error if the system refuses the handler, its pipe or the thread.
///
/// ```
/// use polyserve::signals::{Signals, on_hangup};
/// use std::time::Duration;
///
/// on_hangup(Duration::from_secs(1), |is_asked| println!("reload: {is_asked}"))?;
/// let signals = Signals::register()?;
/// # let _ = signals;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn on_hangup(pause: Duration, mut reload: impl FnMut(bool) + Send + 'static) -> io::Result<()> {
    let (mut arrivals, writer) = UnixStream::pair()?;
    arrivals.set_read_timeout(Some(pause))?;
    let open = writer.try_clone()?; // a stream without a writer would end
    if signal_disposition(SIGHUP)? != SignalDisposition::Ignored {
        signal_hook::low_level::pipe::register(SIGHUP, writer)?;
    }
    thread::Builder::new().name("polyserve-reload".into()).spawn(move || {
        let _open = open;
        loop {
            reload(arrivals.read(&mut [0; 64]).is_ok());
        }
    })?;
    Ok(())
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
    /// Serves until SIGINT, SIGTERM or SIGHUP arrives, then drains with the configured grace. The arguments are those of
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

/// The signals that this module handles.
fn taken_over() -> io::Result<Vec<i32>> {
    let mut signals = Vec::new();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        match signal_disposition(signal)? {
            SignalDisposition::Ignored => {}
            SignalDisposition::Handled if signal == SIGHUP => {}
            SignalDisposition::Handled | SignalDisposition::Default => signals.push(signal),
        }
    }
    Ok(signals)
}

/// The time after the first signal in which other signals are the same signal.
const SAME_SIGNAL: Duration = Duration::from_secs(1);

/// Whether a signal at `now` is a second signal, if the first was at `first`.
fn is_second(first: Instant, now: Instant) -> bool {
    now.saturating_duration_since(first) >= SAME_SIGNAL
}

/// Returns the exit code that a shell reports for a process ended by a signal.
fn exit_code(signal: i32) -> i32 {
    128 + signal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_within_a_second_are_one() {
        let first = Instant::now();
        for (milliseconds, second) in [(0, false), (1, false), (999, false), (1_000, true), (60_000, true)] {
            assert_eq!(is_second(first, first + Duration::from_millis(milliseconds)), second, "{milliseconds} ms");
        }
    }
}
