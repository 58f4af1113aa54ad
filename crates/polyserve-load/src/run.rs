//! The run of a load, from its first connection to its report: the threads, their common start, and the readings at the
//! ends of the measured period.

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::client::{ClientThread, FinishedClient, Tally, ThreadContext, ThreadCounters, Times};
use crate::clock::{self, Meter, Reading};
use crate::discover;
use crate::encoded_requests::EncodedRequests;
use crate::error::LoadError;
use crate::load::{CpuSource, Load, Pace, RunLength, Usage};
use crate::report::{Failures, LoadProgress, Report, RequestPhases, histogram};
use crate::retry::RetryReport;

/// Runs `load`: opens the connections, warms up, measures. Calls `on_progress` about ten times a second.
///
/// The run takes the warm-up and the measured period, and at most the client's timeout before them. After them it takes at most the
/// timeout, and in an open loop 2 s more.
///
/// # Errors
///
/// Returns a [`LoadError`] if the load cannot run. Failures of single requests are in the report.
///
/// # Cost
///
/// About 300 bytes a connection in the client, more in the system, and 1 MB a thread.
pub fn run(load: &Load, on_progress: &mut dyn FnMut(&LoadProgress)) -> Result<Report, LoadError> {
    load.validate()?;
    let (load, changing) = match discover::discover(load)? {
        Some(discovered) => {
            (Cow::Owned(load.clone().with(|load| load.traffic = discovered.traffic.clone())), discovered.changing)
        }
        None => (Cow::Borrowed(load), Vec::new()),
    };
    let load = &*load;
    let requests = EncodedRequests::new(&load.traffic, &load.host, load.usage == Usage::Close);
    let meter = Meter::new(load.cpu)?;
    let counters: Vec<ThreadCounters> = (0..load.threads).map(|_| ThreadCounters::default()).collect();
    let (clients, monitor) = thread::scope(|scope| {
        let (sender, events) = mpsc::channel();
        let (mut threads, mut starts) = (Vec::new(), Vec::new());
        for (thread, counters) in counters.iter().enumerate() {
            let (start, times) = mpsc::channel();
            let (requests, sender) = (requests.clone(), sender.clone());
            // The first thread also reads the server's clock: no other thread must wake up for it on the client's core.
            let meter = (thread == 0).then_some(meter);
            let body = move || client(load, requests, ThreadContext { thread, counters, meter }, &times, &sender);
            let builder = thread::Builder::new().name(format!("load-{thread}"));
            threads.push(builder.spawn_scoped(scope, body).map_err(LoadError::system("a client thread"))?);
            starts.push(start);
        }
        drop(sender);
        for _ in &threads {
            // The join returns the error of a failed thread.
            if events.recv() != Ok(ThreadEvent::Ready) {
                starts.clear();
                break;
            }
        }
        let times = times(load);
        for start in &starts {
            // A thread that has ended has failed. Its error is returned below.
            let _ = start.send(times);
        }
        let monitor = Monitor { load, times, counters: &counters, meter, end: None }.until_done(&events, on_progress);
        let clients = threads.into_iter().map(join_client).collect::<Result<Vec<_>, LoadError>>()?;
        Ok::<_, LoadError>((clients, monitor))
    })?;
    let tallies: Vec<&Tally> = clients.iter().map(|client| &client.tally).collect();
    Ok(Report { changing, ..monitor.report(&tallies) })
}

fn times(load: &Load) -> Times {
    let start = clock::now();
    let counted = start.saturating_add(clock::nanos(load.warm_up));
    let end = match load.length {
        RunLength::Time(time) => counted.saturating_add(clock::nanos(time)),
        RunLength::Requests(_) => u64::MAX,
    };
    Times { start, counted, end }
}

/// An event of a client thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadEvent {
    /// The connections are open.
    Ready,
}

/// The body of a client thread. Returns `None` if the start is cancelled.
fn client(
    load: &Load,
    requests: EncodedRequests,
    context: ThreadContext<'_>,
    times: &Receiver<Times>,
    events: &Sender<ThreadEvent>,
) -> Result<Option<FinishedClient>, LoadError> {
    if let Some(&core) = load.cores.get(context.thread % load.cores.len().max(1)) {
        let mut set = CpuSet::new();
        set.set(core);
        sched_setaffinity(None, &set).map_err(LoadError::system(&format!("core {core}")))?;
    }
    let mut client = ClientThread::new(load, requests, context.thread)?;
    client.ramp_up(load)?;
    // An error means that the load is cancelled; then the receive fails too.
    let _ = events.send(ThreadEvent::Ready);
    let Ok(times) = times.recv() else { return Ok(None) };
    client.run(load, context, times).map(Some)
}

fn join_client(
    thread: ScopedJoinHandle<'_, Result<Option<FinishedClient>, LoadError>>,
) -> Result<FinishedClient, LoadError> {
    match thread.join() {
        Ok(Ok(Some(client))) => Ok(client),
        Ok(Err(error)) => Err(error),
        Ok(Ok(None)) => Err(LoadError::setting("another client thread has failed")),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// The starting thread's view of a load.
#[derive(Debug)]
struct Monitor<'a> {
    load: &'a Load,
    times: Times,
    counters: &'a [ThreadCounters],
    meter: Meter,
    /// The reading after the last thread has ended.
    end: Option<Reading>,
}

/// The time between two calls of `on_progress`.
const PROGRESS_INTERVAL: u64 = 100_000_000;

impl Monitor<'_> {
    fn until_done(mut self, events: &Receiver<ThreadEvent>, on_progress: &mut dyn FnMut(&LoadProgress)) -> Self {
        let mut next = self.times.start + PROGRESS_INTERVAL;
        loop {
            let timeout = Duration::from_nanos(next.saturating_sub(clock::now()));
            let is_done = events.recv_timeout(timeout) == Err(RecvTimeoutError::Disconnected);
            let now = clock::now();
            if self.load.stop.is_begun() && now < self.times.end {
                self.times.end = now;
                self.counters.iter().for_each(|counters| counters.stop_at(now));
            }
            if is_done {
                self.end = Some(self.meter.read());
                return self;
            }
            if now >= next {
                next = now + PROGRESS_INTERVAL;
                on_progress(&self.progress(now));
            }
        }
    }

    fn progress(&self, now: u64) -> LoadProgress {
        let sum = |count: fn(&ThreadCounters) -> u64| self.counters.iter().map(count).sum();
        let (answered, failed) = (
            sum(|counters| counters.answered.load(Ordering::Relaxed)),
            sum(|counters| counters.failed.load(Ordering::Relaxed)),
        );
        let elapsed = now.saturating_sub(self.times.start);
        let share = match self.load.length {
            RunLength::Time(time) => elapsed as f64 / clock::nanos(self.load.warm_up.saturating_add(time)) as f64,
            RunLength::Requests(_) if now < self.times.counted => 0.0,
            RunLength::Requests(all) => (answered + failed) as f64 / all as f64,
        };
        let warming = now < self.times.counted;
        let (at, cpu) = self.meter.read();
        let server_cpu = cpu.map(|cpu| (Duration::from_nanos(at), Duration::from_nanos(cpu)));
        let (elapsed, share) = (Duration::from_nanos(elapsed), share.min(1.0));
        LoadProgress { warming, elapsed, share, answered, failed, server_cpu }
    }

    fn report(&self, tallies: &[&Tally]) -> Report {
        let Times { counted, end, .. } = self.times;
        let last = match self.load.length {
            RunLength::Time(_) => end,
            RunLength::Requests(_) => tallies.iter().map(|tally| tally.last).max().unwrap_or(counted),
        };
        let (kind, lateness) = match self.load.pace {
            Pace::Closed => ("closed loop", None),
            Pace::Rate(_) => ("intended start", Some(histogram())),
        };
        let mut report = Report {
            answered: 0,
            answered_late: 0,
            failed: Failures::default(),
            first_failure: None,
            elapsed: Duration::from_nanos(last.saturating_sub(counted)),
            bytes_sent: 0,
            bytes_received: 0,
            connections_opened: 0,
            reconnects: 0,
            retried: 0,
            latency: histogram(),
            latency_kind: kind,
            lateness,
            retry: self.load.retry.map(|_| RetryReport::new()),
            phases: (self.load.usage == Usage::Close).then(RequestPhases::new),
            unsent: 0,
            unfinished: 0,
            client_cpu: Duration::ZERO,
            client_spinning: Duration::ZERO,
            server_cpu: None,
            client_busy: 0.0,
            server_busy: None,
            changing: Vec::new(),
        };
        let first = tallies.iter().filter_map(|tally| tally.first_failure.as_ref()).min();
        report.first_failure = first.map(|(_, why)| why.clone());
        tallies.iter().for_each(|tally| add(&mut report, tally));
        let wall = report.elapsed.as_secs_f64() * self.load.threads as f64;
        let worked = report.client_cpu.saturating_sub(report.client_spinning);
        report.client_busy = if wall > 0.0 { worked.as_secs_f64() / wall } else { 0.0 };
        self.add_server(tallies, &mut report);
        report
    }

    fn add_server(&self, tallies: &[&Tally], report: &mut Report) {
        let [from, to] = tallies.first().map_or([None; 2], |tally| tally.server);
        // A run of a number of requests ends with the last thread.
        let (Some((from, Some(before))), Some((to, Some(after)))) = (from, to.or(self.end)) else { return };
        let own = if self.load.cpu == CpuSource::Own { clock::nanos(report.client_cpu) } else { 0 };
        let cpu = after.saturating_sub(before).saturating_sub(own);
        report.server_cpu = Some(Duration::from_nanos(cpu));
        report.server_busy = Some(cpu as f64 / to.saturating_sub(from).max(1) as f64);
    }
}

fn add(report: &mut Report, tally: &Tally) {
    report.answered += tally.answered;
    report.answered_late += tally.answered_late;
    report.failed.add(&tally.failed);
    report.bytes_sent += tally.sent;
    report.bytes_received += tally.received;
    report.connections_opened += tally.opened;
    report.reconnects += tally.reconnects;
    report.retried += tally.retried;
    report.unsent += tally.unsent;
    report.unfinished += tally.unfinished;
    report.client_cpu += Duration::from_nanos(tally.cpu);
    report.client_spinning += Duration::from_nanos(tally.spinning);
    // All histograms have the same bounds, so `add` cannot fail.
    report.latency.add(&tally.latency).expect("equal bounds");
    if let (Some(sum), Some(lateness)) = (&mut report.lateness, &tally.lateness) {
        sum.add(lateness).expect("equal bounds");
    }
    if let (Some(sum), Some(retry)) = (&mut report.retry, &tally.retry) {
        sum.add(retry);
    }
    if let (Some(sum), Some(phases)) = (&mut report.phases, &tally.phases) {
        sum.connect.add(&phases.connect).expect("equal bounds");
        sum.waiting.add(&phases.waiting).expect("equal bounds");
        sum.processing.add(&phases.processing).expect("equal bounds");
    }
}
