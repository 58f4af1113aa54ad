//! A load from its first connection to its report: threads, their common start, and what is read at the span's ends.

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::client::{Client, Ended, Seat, Shown, Tally, Times};
use crate::clock::{self, Meter, Reading};
use crate::error::LoadError;
use crate::learn;
use crate::load::{CpuOf, Load, Pace, Span, Usage};
use crate::report::{Failures, Parts, Progress, Report, histogram};
use crate::script::Script;

/// Runs `load`: opens its connections, warms up, measures. Calls `on_progress` about ten times a second.
///
/// It lasts as long as its warm-up and its span, and at most the client's patience before and after. Costs the memory
/// of its connections, about 300 bytes each here and more in the system, and 1 MB a thread.
///
/// # Errors
///
/// Where it cannot be run at all; what goes wrong with single requests is in the report.
pub fn run(load: &Load, on_progress: &mut dyn FnMut(&Progress)) -> Result<Report, LoadError> {
    load.validate()?;
    let load = &*match learn::learned(load)? {
        Some(traffic) => Cow::Owned(load.clone().with(|load| load.traffic = traffic)),
        None => Cow::Borrowed(load),
    };
    let script = Script::new(&load.traffic, &load.host, load.usage == Usage::Close);
    let meter = Meter::new(load.cpu)?;
    let shown: Vec<Shown> = (0..load.threads).map(|_| Shown::default()).collect();
    let (clients, watch) = thread::scope(|scope| {
        let (events, news) = mpsc::channel();
        let (mut threads, mut starts) = (Vec::new(), Vec::new());
        for (thread, shown) in shown.iter().enumerate() {
            let (start, times) = mpsc::channel();
            let (script, events) = (script.clone(), events.clone());
            // The first thread reads the server's clock beside its own. Nobody else need be woken for it, on a core that
            // the client may have to itself.
            let meter = (thread == 0).then_some(meter);
            let body = move || client(load, script, Seat { thread, shown, meter }, &times, &events);
            let builder = thread::Builder::new().name(format!("load-{thread}"));
            threads.push(builder.spawn_scoped(scope, body).map_err(LoadError::system("a client thread"))?);
            starts.push(start);
        }
        drop(events);
        for _ in &threads {
            // A thread that has failed says why when it is joined.
            if news.recv() != Ok(News::Ready) {
                starts.clear();
                break;
            }
        }
        let times = times(load);
        for start in &starts {
            // One that is gone has failed, and says so below.
            let _ = start.send(times);
        }
        let watch = Watch { load, times, shown: &shown, meter, end: None }.until_done(&news, on_progress);
        let clients = threads.into_iter().map(joined).collect::<Result<Vec<_>, LoadError>>()?;
        Ok::<_, LoadError>((clients, watch))
    })?;
    let tallies: Vec<&Tally> = clients.iter().map(|client| &client.tally).collect();
    Ok(watch.report(&tallies))
}

fn times(load: &Load) -> Times {
    let start = clock::now();
    let counted = start.saturating_add(clock::of(load.warm_up));
    let end = match load.span {
        Span::Time(time) => counted.saturating_add(clock::of(time)),
        Span::Requests(_) => u64::MAX,
    };
    Times { start, counted, end }
}

/// What a client thread says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    /// Its connections are open.
    Ready,
}

/// A client thread; without times the load does not take place.
fn client(
    load: &Load,
    script: Script,
    seat: Seat<'_>,
    times: &Receiver<Times>,
    events: &Sender<News>,
) -> Result<Option<Ended>, LoadError> {
    if let Some(&core) = load.cores.get(seat.thread % load.cores.len().max(1)) {
        let mut set = CpuSet::new();
        set.set(core);
        sched_setaffinity(None, &set).map_err(LoadError::system(&format!("core {core}")))?;
    }
    let mut client = Client::new(load, script, seat.thread)?;
    client.ramp_up(load)?;
    // Where nobody listens any more, the load does not take place.
    let _ = events.send(News::Ready);
    let Ok(times) = times.recv() else { return Ok(None) };
    client.run(load, seat, times).map(Some)
}

fn joined(thread: ScopedJoinHandle<'_, Result<Option<Ended>, LoadError>>) -> Result<Ended, LoadError> {
    match thread.join() {
        Ok(Ok(Some(client))) => Ok(client),
        Ok(Err(error)) => Err(error),
        Ok(Ok(None)) => Err(LoadError::setting("another client thread has failed")),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// What the starting thread sees of a load.
#[derive(Debug)]
struct Watch<'a> {
    load: &'a Load,
    times: Times,
    shown: &'a [Shown],
    meter: Meter,
    /// When all is done.
    end: Option<Reading>,
}

/// Between two calls of progress.
const STEP: u64 = 100_000_000;

impl Watch<'_> {
    fn until_done(mut self, news: &Receiver<News>, on_progress: &mut dyn FnMut(&Progress)) -> Self {
        let mut next = self.times.start + STEP;
        loop {
            let patience = Duration::from_nanos(next.saturating_sub(clock::now()));
            let is_done = news.recv_timeout(patience) == Err(RecvTimeoutError::Disconnected);
            let now = clock::now();
            if self.load.stop.is_begun() && now < self.times.end {
                self.times.end = now;
                self.shown.iter().for_each(|shown| shown.stop_at(now));
            }
            if is_done {
                self.end = Some(self.meter.read());
                return self;
            }
            if now >= next {
                next = now + STEP;
                on_progress(&self.progress(now));
            }
        }
    }

    fn progress(&self, now: u64) -> Progress {
        let sum = |count: fn(&Shown) -> u64| self.shown.iter().map(count).sum();
        let (answered, failed) =
            (sum(|shown| shown.answered.load(Ordering::Relaxed)), sum(|shown| shown.failed.load(Ordering::Relaxed)));
        let elapsed = now.saturating_sub(self.times.start);
        let share = match self.load.span {
            Span::Time(time) => elapsed as f64 / clock::of(self.load.warm_up.saturating_add(time)) as f64,
            Span::Requests(_) if now < self.times.counted => 0.0,
            Span::Requests(all) => (answered + failed) as f64 / all as f64,
        };
        let warming = now < self.times.counted;
        let (at, cpu) = self.meter.read();
        let server_cpu = cpu.map(|cpu| (Duration::from_nanos(at), Duration::from_nanos(cpu)));
        let (elapsed, share) = (Duration::from_nanos(elapsed), share.min(1.0));
        Progress { warming, elapsed, share, answered, failed, server_cpu }
    }

    fn report(&self, tallies: &[&Tally]) -> Report {
        let Times { counted, end, .. } = self.times;
        let last = match self.load.span {
            Span::Time(_) => end,
            Span::Requests(_) => tallies.iter().map(|tally| tally.last).max().unwrap_or(counted),
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
            parts: (self.load.usage == Usage::Close).then(Parts::new),
            unsent: 0,
            unfinished: 0,
            client_cpu: Duration::ZERO,
            client_spinning: Duration::ZERO,
            server_cpu: None,
            client_busy: 0.0,
            server_busy: None,
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
        // A span of requests ends with the last thread's.
        let (Some((from, Some(before))), Some((to, Some(after)))) = (from, to.or(self.end)) else { return };
        let own = if self.load.cpu == CpuOf::Own { clock::of(report.client_cpu) } else { 0 };
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
    // All have the same bounds, so that adding cannot fail.
    report.latency.add(&tally.latency).expect("equal bounds");
    if let (Some(sum), Some(lateness)) = (&mut report.lateness, &tally.lateness) {
        sum.add(lateness).expect("equal bounds");
    }
    if let (Some(sum), Some(parts)) = (&mut report.parts, &tally.parts) {
        sum.connect.add(&parts.connect).expect("equal bounds");
        sum.processing.add(&parts.processing).expect("equal bounds");
    }
}
