//! The shared parts of all commands that measure: their context, the cores of this machine, the record, and signals.
//!
//! Invariant: the first SIGINT, SIGTERM or SIGHUP ends the run with its report, and the exit code then is 128 plus the signal's
//! number: 130 after Ctrl-C. A second signal ends the process, see [`polyserve::signals`].

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use polyserve::Shutdown;
use polyserve::catalog::Catalog;
use polyserve::signals::Signals;
use polyserve_bench::bench::DefinedExperiment;
use polyserve_bench::experiment::{Execution, RecordArgs};
use polyserve_bench::machine::Environment;
use polyserve_bench::machine::cores::Cores;

use super::serve::explained;

/// The context of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) catalog: &'a Catalog,
    /// Whether JSON is printed.
    pub(crate) json: bool,
    /// The name of the program's allocator.
    pub(crate) allocator: &'static str,
}

/// A measurement. A signal ends it early.
#[derive(Debug)]
pub(crate) struct MeasurementSession<'a> {
    pub(crate) catalog: &'a Catalog,
    context: Context<'a>,
    /// The cores of this process.
    pub(crate) available: Cores,
    /// Begun by the first signal.
    pub(crate) stop: Shutdown,
}

impl<'a> Context<'a> {
    /// Starts a measurement: takes over the signals.
    pub(crate) fn start(self) -> anyhow::Result<MeasurementSession<'a>> {
        Ok(MeasurementSession {
            catalog: self.catalog,
            context: self,
            available: available_cores()?,
            stop: on_signal()?,
        })
    }
}

impl MeasurementSession<'_> {
    /// The environment of a measurement with the cores of the servers and of the clients.
    pub(crate) fn environment(&self, cores: [&Cores; 2], seed: u64) -> Environment {
        Environment::of(&self.available, cores, seed, self.context.allocator)
    }

    /// The name of the program's allocator.
    pub(crate) fn allocator(&self) -> &'static str {
        self.context.allocator
    }

    /// Runs the experiment, records it, prints its report. `name` is the default name of the record.
    pub(crate) fn run_named(
        &self,
        record: &RecordArgs,
        environment: Environment,
        name: &str,
        experiment: &mut DefinedExperiment,
    ) -> anyhow::Result<ExitCode> {
        let (json, stop) = (self.context.json, &self.stop);
        Execution { environment, record, name, json, stop }.run(experiment)
    }
}

/// The cores of this process.
pub(crate) fn available_cores() -> anyhow::Result<Cores> {
    Cores::available().context("the cores of this machine are not known")
}

/// The number of the signal that has ended the measurement of this process; 0 before.
static ENDED_BY: AtomicI32 = AtomicI32::new(0);

/// Returns the exit code of a measurement that a signal has ended; `None` if none has.
pub(crate) fn signal_code() -> Option<u8> {
    match ENDED_BY.load(Ordering::SeqCst) {
        0 => None,
        signal => u8::try_from(128 + signal).ok(),
    }
}

/// Returns a shutdown that the first signal begins.
pub(crate) fn on_signal() -> anyhow::Result<Shutdown> {
    let signals = Signals::register().map_err(explained).context("the signals cannot be taken over")?;
    let stop = Shutdown::new();
    let shutdown = stop.clone();
    let wait = move || {
        if let Ok(signal) = signals.wait() {
            ENDED_BY.store(signal, Ordering::SeqCst);
            shutdown.begin(Instant::now());
        }
    };
    thread::Builder::new().name("stop".into()).spawn(wait).context("no thread to wait for signals")?;
    Ok(stop)
}

/// Begins `stop` after `time`, unless it has begun before. The returned flag is true if the time was up first.
pub(crate) fn stop_after(time: Duration, stop: &Shutdown) -> anyhow::Result<Arc<AtomicBool>> {
    let (was_first, stop) = (Arc::new(AtomicBool::new(false)), stop.clone());
    let flag = Arc::clone(&was_first);
    let wait = move || {
        thread::sleep(time);
        if !stop.is_begun() {
            flag.store(true, Ordering::Release);
            stop.begin(Instant::now());
        }
    };
    thread::Builder::new().name("deadline".into()).spawn(wait).context("no thread for the deadline")?;
    Ok(was_first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_ends_a_run_and_remembers_it() {
        let stop = Shutdown::new();
        let was_first = stop_after(Duration::from_millis(1), &stop).unwrap();
        while !stop.is_begun() {
            thread::yield_now();
        }
        assert!(was_first.load(Ordering::Acquire));
        assert!(!stop_after(Duration::from_secs(3600), &Shutdown::new()).unwrap().load(Ordering::Acquire));
    }
}
