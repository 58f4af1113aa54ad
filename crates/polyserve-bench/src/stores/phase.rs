//! A phase: threads that use one store, leg by leg. Before a leg, each thread makes a chunk of operations; then all threads
//! start together. A leg ends for all threads if one thread has done its chunk or the time is up. So all threads work during
//! the measured time.
//!
//! Invariant: every answer is checked; a wrong answer or a panic ends the phase for all threads. Cost: a read of a flag for
//! each `BATCH` operations, and a read of the clock in one thread. If latencies are measured, two more reads of the clock
//! for the first operation of each batch; `clock_cost` measures a read.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use hdrhistogram::Histogram;
use polyserve::{EntityRepo, Put, Removed};

use super::entities::Check;
use super::store::MeasuredStore;
use super::window::{OperationWindow, WINDOW, expect, wrong};
use super::workload::{Maker, OperationChunk, OperationKind, OperationPlan};
use crate::machine::proc::thread_cpu_time;

/// The number of operations between two reads of the clock. The latency of one operation in each batch is measured.
pub(crate) const BATCH: u64 = 64;

/// The state of one thread. It outlives a phase: the next phase does the operations that are left.
#[derive(Debug)]
pub(crate) struct Lane {
    number: usize,
    maker: Maker,
    chunk: OperationChunk,
    /// The number of created entities minus the number of removed entities.
    balance: i64,
    operations: u64,
    cpu: Duration,
    latency: Option<Histogram<u64>>,
}

/// The settings of a phase.
#[derive(Clone, Copy, Debug)]
pub struct PhaseSettings {
    /// When it ends.
    pub until: Until,
    /// Whether every entity is checked whole.
    pub whole: bool,
    /// Whether latencies are measured.
    pub latency: bool,
    /// Whether many operations are outstanding, on a repo.
    pub window: bool,
}

/// When a phase ends.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After this time.
    Time(Duration),
    /// After at least this number of operations of all threads.
    Operations(u64),
}

/// The result of a phase.
#[derive(Debug)]
pub struct PhaseResult {
    /// Operations of all threads.
    pub operations: u64,
    /// The time of all legs, each from the first thread's start to the last thread's end.
    pub wall: Duration,
    /// Processor time of the threads in it.
    pub cpu: Duration,
    /// Latencies in nanoseconds, if they were measured.
    pub latency: Option<Histogram<u64>>,
}

impl PhaseResult {
    /// The sum of this result and a later one.
    pub(crate) fn and(mut self, other: &Self) -> anyhow::Result<Self> {
        if let (Some(all), Some(more)) = (&mut self.latency, &other.latency) {
            all.add(more).context("latencies cannot be added up")?;
        }
        self.operations += other.operations;
        self.wall += other.wall;
        self.cpu += other.cpu;
        Ok(self)
    }

    /// The time of `operations` at this throughput.
    pub fn time_of(&self, operations: u64) -> Duration {
        self.wall.mul_f64(operations as f64 / self.operations.max(1) as f64)
    }
}

/// The threads of a plan, and the versions that they have put.
#[derive(Debug)]
pub struct Lanes {
    lanes: Vec<Lane>,
    versions: AtomicU64,
    payload_bytes: usize,
    keys: u64,
}

impl Lanes {
    /// The threads of `plan`. `version` is the last version that was put before.
    pub fn new(plan: &OperationPlan, version: u64) -> Self {
        let lane = |number| Lane {
            number,
            maker: Maker::new(plan, number),
            chunk: OperationChunk::default(),
            balance: 0,
            operations: 0,
            cpu: Duration::ZERO,
            latency: None,
        };
        Self {
            lanes: (0..plan.threads).map(lane).collect(),
            versions: version.into(),
            payload_bytes: plan.payload_bytes,
            keys: plan.keys,
        }
    }

    /// The change of the number of entities.
    pub(crate) fn balance(&self) -> i64 {
        self.lanes.iter().map(|lane| lane.balance).sum()
    }

    /// The last version that may have been put.
    pub(crate) fn version(&self) -> u64 {
        self.versions.load(Ordering::Acquire)
    }

    /// Runs a phase on `store`.
    pub(crate) fn run<S: MeasuredStore>(&mut self, store: &S, settings: PhaseSettings) -> anyhow::Result<PhaseResult> {
        let (lanes, state) = self.begin(settings);
        store.each(lanes, |store, lane| state.lane(lane, &mut |lane, deadline| state.leg(store, lane, deadline)))?;
        let legs = state.legs.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.result(settings, legs)
    }

    /// Begins a phase. Returns its lanes and its shared state.
    fn begin(&mut self, settings: PhaseSettings) -> (&mut [Lane], PhaseState<'_>) {
        for lane in &mut self.lanes {
            (lane.operations, lane.cpu) = (0, Duration::ZERO);
            lane.latency = settings.latency.then(histogram);
        }
        let threads = self.lanes.len();
        let state = PhaseState {
            settings,
            window_capacity: WINDOW.min(usize::try_from(self.keys).unwrap_or(WINDOW) / threads / 4),
            threads,
            payload_bytes: self.payload_bytes,
            versions: &self.versions,
            barrier: Barrier::new(threads),
            over: AtomicBool::new(false),
            done: AtomicBool::new(false),
            legs: Mutex::default(),
        };
        (&mut self.lanes, state)
    }

    /// The result of a phase.
    fn result(&self, settings: PhaseSettings, legs: Legs) -> anyhow::Result<PhaseResult> {
        if let Some(error) = legs.error {
            return Err(error);
        }
        let mut latency = settings.latency.then(histogram);
        for lane in &self.lanes {
            if let (Some(all), Some(own)) = (&mut latency, &lane.latency) {
                all.add(own).context("latencies cannot be added up")?;
            }
        }
        Ok(PhaseResult {
            operations: self.lanes.iter().map(|lane| lane.operations).sum(),
            wall: legs.wall,
            cpu: self.lanes.iter().map(|lane| lane.cpu).sum(),
            latency,
        })
    }
}

/// An empty histogram of latencies: from a nanosecond to a minute, with three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).unwrap_or_else(|_| unreachable!("these bounds are in order"))
}

/// The shared state of the threads of a phase.
struct PhaseState<'a> {
    settings: PhaseSettings,
    window_capacity: usize,
    threads: usize,
    payload_bytes: usize,
    versions: &'a AtomicU64,
    barrier: Barrier,
    /// Whether the leg is over.
    over: AtomicBool,
    /// Whether the phase is over.
    done: AtomicBool,
    legs: Mutex<Legs>,
}

#[derive(Default)]
struct Legs {
    started: Option<Instant>,
    ended: Option<Instant>,
    operations: u64,
    wall: Duration,
    exhausted: bool,
    error: Option<anyhow::Error>,
}

impl PhaseState<'_> {
    fn legs(&self) -> MutexGuard<'_, Legs> {
        self.legs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the legs of one thread. `leg` does the operations of a leg. The thread reaches every barrier, even after a panic,
    /// because the other threads wait there.
    fn lane(&self, lane: &mut Lane, leg: &mut dyn FnMut(&mut Lane, Option<Instant>) -> anyhow::Result<u64>) {
        loop {
            if lane.chunk.codes.len() == 0 {
                lane.chunk = lane.maker.chunk(self.versions);
            }
            let is_empty = lane.chunk.codes.len() == 0;
            let remaining = self.remaining();
            self.barrier.wait();
            let (before, started) = (thread_cpu_time(), Instant::now());
            let deadline = remaining.map(|remaining| started + remaining);
            let result = catch_unwind(AssertUnwindSafe(|| leg(lane, deadline)));
            let ended = Instant::now();
            self.over.store(true, Ordering::Relaxed);
            lane.cpu += thread_cpu_time().saturating_sub(before);
            self.record(lane, result, [started, ended], is_empty);
            if self.barrier.wait().is_leader() {
                self.close();
            }
            self.barrier.wait();
            if self.done.load(Ordering::Acquire) {
                return;
            }
        }
    }

    /// The remaining time of the phase.
    fn remaining(&self) -> Option<Duration> {
        match self.settings.until {
            Until::Time(time) => Some(time.saturating_sub(self.legs().wall)),
            Until::Operations(_) => None,
        }
    }

    fn record(
        &self,
        lane: &mut Lane,
        result: Result<anyhow::Result<u64>, Box<dyn Any + Send>>,
        [started, ended]: [Instant; 2],
        is_empty: bool,
    ) {
        let mut legs = self.legs();
        legs.started = Some(legs.started.map_or(started, |first| first.min(started)));
        legs.ended = Some(legs.ended.map_or(ended, |last| last.max(ended)));
        legs.exhausted |= is_empty;
        let panicked = |_| Err(anyhow!("an operation panicked"));
        match result.unwrap_or_else(panicked) {
            Ok(operations) => {
                (lane.operations, legs.operations) = (lane.operations + operations, legs.operations + operations);
            }
            Err(error) => legs.error = legs.error.take().or(Some(error)),
        }
    }

    /// Ends the leg for all threads.
    fn close(&self) {
        let mut legs = self.legs();
        let leg = legs.started.take().zip(legs.ended.take()).map(|(started, ended)| ended - started);
        legs.wall += leg.unwrap_or_default();
        let is_over = match self.settings.until {
            Until::Time(time) => legs.wall >= time,
            Until::Operations(operations) => legs.operations >= operations,
        };
        self.done.store(is_over || legs.exhausted || legs.error.is_some(), Ordering::Release);
        self.over.store(false, Ordering::Relaxed);
    }

    /// The max number of operations of a thread: its share if the phase ends after a number of operations.
    fn max_operations(&self, lane: &Lane) -> u64 {
        match self.settings.until {
            Until::Time(_) => u64::MAX,
            Until::Operations(operations) => {
                operations.div_ceil(self.threads as u64).saturating_sub(lane.operations).max(1)
            }
        }
    }

    fn leg<S: MeasuredStore>(&self, store: &S, lane: &mut Lane, deadline: Option<Instant>) -> anyhow::Result<u64> {
        let last = self.versions.load(Ordering::Acquire);
        let check = Check::new(last, self.payload_bytes, self.settings.whole);
        let max_operations = self.max_operations(lane);
        match store.repo().filter(|_| self.settings.window) {
            Some(repo) => self.windowed(repo, lane, deadline, max_operations, &check),
            None if self.settings.latency => self.operations(lane, deadline, max_operations, |lane, place| {
                let started = (place == 0).then(Instant::now);
                let is_done = perform(store, lane, &check)?;
                if let (Some(started), Some(latency)) = (started, &mut lane.latency) {
                    latency.saturating_record(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1));
                }
                Ok(is_done)
            }),
            None => self.operations(lane, deadline, max_operations, |lane, _| perform(store, lane, &check)),
        }
    }

    /// A leg with many operations outstanding.
    fn windowed(
        &self,
        repo: &dyn EntityRepo,
        lane: &mut Lane,
        deadline: Option<Instant>,
        max_operations: u64,
        check: &Check,
    ) -> anyhow::Result<u64> {
        let mut window = OperationWindow::new(repo, self.window_capacity);
        let done = self.operations(lane, deadline, max_operations, |lane, _| {
            let Some(code) = lane.chunk.codes.next() else { return Ok(false) };
            let entities = &mut lane.chunk.entities;
            window.ask(code, || entities.next().unwrap_or_default(), check)?;
            lane.balance += balance(code.kind());
            Ok(true)
        });
        window.drain()?;
        done
    }

    /// Calls `operation` until the leg is over. Returns the number of operations.
    #[inline]
    fn operations(
        &self,
        lane: &mut Lane,
        deadline: Option<Instant>,
        max_operations: u64,
        mut operation: impl FnMut(&mut Lane, u64) -> anyhow::Result<bool>,
    ) -> anyhow::Result<u64> {
        let mut done = 0;
        loop {
            for place in 0..BATCH.min(max_operations - done) {
                if !operation(lane, place)? {
                    return Ok(done);
                }
                done += 1;
            }
            let is_late = || lane.number == 0 && deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if done >= max_operations || self.over.load(Ordering::Relaxed) || is_late() {
                return Ok(done);
            }
        }
    }
}

/// Does the lane's next operation. Returns false if there is none.
#[inline]
fn perform<S: MeasuredStore>(store: &S, lane: &mut Lane, check: &Check) -> anyhow::Result<bool> {
    let Some(code) = lane.chunk.codes.next() else { return Ok(false) };
    let id = code.id();
    match code.kind() {
        OperationKind::Get => {
            let mut shown = None;
            store.get(id, &mut |found| shown = Some(check.is_right(id, found)))?;
            if shown != Some(true) {
                return Err(if shown.is_some() { wrong(id) } else { anyhow!("{id} is gone") });
            }
        }
        kind @ (OperationKind::Replace | OperationKind::Create) => {
            let expected = kind.put();
            let entity = lane.chunk.entities.next().unwrap_or_default();
            expect(id, store.put(entity)?, expected)?;
            lane.balance += i64::from(expected == Put::Created);
        }
        OperationKind::Remove => {
            expect(id, store.remove(id)?, Removed::Removed)?;
            lane.balance -= 1;
        }
    }
    Ok(true)
}

fn balance(kind: OperationKind) -> i64 {
    match kind {
        OperationKind::Create => 1,
        OperationKind::Remove => -1,
        OperationKind::Get | OperationKind::Replace => 0,
    }
}

/// Returns the cost of reading the clock, which every latency includes: the median of 10 000 consecutive reads, in
/// nanoseconds.
pub(crate) fn clock_cost() -> u64 {
    let mut costs = histogram();
    for _ in 0..10_000 {
        let started = Instant::now();
        costs.saturating_record(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1));
    }
    costs.value_at_quantile(0.5)
}
