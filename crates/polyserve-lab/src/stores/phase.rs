//! Threads at one store, leg by leg: each makes a chunk of operations, all start together, and the leg is over for all when
//! one of them has come to its chunk's end or the time is up. So all of them are at it for as long as it is counted.
//!
//! Invariant: every answer is checked; one that is wrong, and a panic, end the phase for all. Cost: a look at a flag for
//! each [`BATCH`] operations, and in one thread at the clock; where latencies are taken, two more looks at the clock for the
//! first operation of each batch. What a look at it costs, [`clock_cost`] says.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use hdrhistogram::Histogram;
use polyserve::repo::{Put, Removed};
use rustix::time::{ClockId, clock_gettime};

use super::entities::Check;
use super::store::Store;
use super::window::{WINDOW, Window, expect, wrong};
use super::workload::{Chunk, Kind, Maker, Plan};

/// Operations between two looks at the clock; of latencies one in so many is taken.
pub const BATCH: u64 = 64;

/// One thread's part, which outlives a phase: what was made and not asked yet is asked in the next.
#[derive(Debug)]
pub struct Lane {
    number: usize,
    maker: Maker,
    chunk: Chunk,
    /// Created less removed.
    balance: i64,
    operations: u64,
    cpu: Duration,
    latency: Option<Histogram<u64>>,
}

/// How a phase is run.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// When it ends.
    pub until: Until,
    /// Whether every entity is checked whole.
    pub whole: bool,
    /// Whether latencies are taken.
    pub latency: bool,
    /// Whether many operations are outstanding, on a repo.
    pub window: bool,
}

/// When a phase ends.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After this time.
    Time(Duration),
    /// After at least so many operations of all threads.
    Operations(u64),
}

/// What a phase has come to.
#[derive(Debug)]
pub struct Passed {
    /// Operations of all threads.
    pub operations: u64,
    /// The legs' time, each from the first thread's start to the last one's end.
    pub wall: Duration,
    /// Processor time of the threads in it.
    pub cpu: Duration,
    /// Latencies in nanoseconds, where they were taken.
    pub latency: Option<Histogram<u64>>,
}

impl Passed {
    /// This, and what came after it.
    ///
    /// # Errors
    ///
    /// Where the latencies cannot be added up.
    pub fn and(mut self, other: &Self) -> anyhow::Result<Self> {
        if let (Some(all), Some(more)) = (&mut self.latency, &other.latency) {
            all.add(more).context("latencies cannot be added up")?;
        }
        self.operations += other.operations;
        self.wall += other.wall;
        self.cpu += other.cpu;
        Ok(self)
    }

    /// What `operations` take at this pace.
    pub fn time_of(&self, operations: u64) -> Duration {
        self.wall.mul_f64(operations as f64 / self.operations.max(1) as f64)
    }
}

/// The threads of a plan, and what all of them have put.
#[derive(Debug)]
pub struct Lanes {
    lanes: Vec<Lane>,
    versions: AtomicU64,
    payload_bytes: usize,
    keys: u64,
}

impl Lanes {
    /// Those of a plan. `version` is the last that was put before.
    pub fn new(plan: &Plan, version: u64) -> Self {
        let lane = |number| Lane {
            number,
            maker: Maker::new(plan, number),
            chunk: Chunk::default(),
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

    /// How many entities there are more than before.
    pub fn balance(&self) -> i64 {
        self.lanes.iter().map(|lane| lane.balance).sum()
    }

    /// The last version that may have been put.
    pub fn version(&self) -> u64 {
        self.versions.load(Ordering::Acquire)
    }

    /// Runs a phase on `store`.
    ///
    /// # Errors
    ///
    /// Where the store fails or panics, or shows or answers what cannot be.
    pub fn run<S: Store>(&mut self, store: &S, how: How) -> anyhow::Result<Passed> {
        for lane in &mut self.lanes {
            (lane.operations, lane.cpu) = (0, Duration::ZERO);
            lane.latency = how.latency.then(histogram);
        }
        let threads = self.lanes.len();
        let room = WINDOW.min(usize::try_from(self.keys).unwrap_or(WINDOW) / threads / 4);
        let shared = Shared {
            how,
            room,
            threads,
            payload_bytes: self.payload_bytes,
            versions: &self.versions,
            barrier: Barrier::new(threads),
            over: AtomicBool::new(false),
            done: AtomicBool::new(false),
            legs: Mutex::default(),
        };
        store.each(&mut self.lanes, |store, lane| shared.lane(store, lane))?;
        let legs = shared.legs.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = legs.error {
            return Err(error);
        }
        let mut latency = how.latency.then(histogram);
        for lane in &self.lanes {
            if let (Some(all), Some(own)) = (&mut latency, &lane.latency) {
                all.add(own).context("latencies cannot be added up")?;
            }
        }
        Ok(Passed {
            operations: self.lanes.iter().map(|lane| lane.operations).sum(),
            wall: legs.wall,
            cpu: self.lanes.iter().map(|lane| lane.cpu).sum(),
            latency,
        })
    }
}

/// From a nanosecond to a minute, three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).unwrap_or_else(|_| unreachable!("these bounds are in order"))
}

/// What the threads of a phase share.
struct Shared<'a> {
    how: How,
    room: usize,
    threads: usize,
    payload_bytes: usize,
    versions: &'a AtomicU64,
    barrier: Barrier,
    /// The leg is.
    over: AtomicBool,
    /// The phase is.
    done: AtomicBool,
    legs: Mutex<Legs>,
}

#[derive(Default)]
struct Legs {
    begun: Option<Instant>,
    ended: Option<Instant>,
    operations: u64,
    wall: Duration,
    exhausted: bool,
    error: Option<anyhow::Error>,
}

impl Shared<'_> {
    fn legs(&self) -> MutexGuard<'_, Legs> {
        self.legs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One thread's legs. Whatever happens, it comes to every barrier, for the others wait there.
    fn lane<S: Store>(&self, store: &S, lane: &mut Lane) {
        loop {
            if lane.chunk.codes.len() == 0 {
                lane.chunk = lane.maker.chunk(self.versions);
            }
            let is_empty = lane.chunk.codes.len() == 0;
            let deadline = self.deadline();
            self.barrier.wait();
            let (before, begun) = (cpu(), Instant::now());
            let left = deadline.map(|left| begun + left);
            let result = catch_unwind(AssertUnwindSafe(|| self.leg(store, lane, left)));
            let ended = Instant::now();
            self.over.store(true, Ordering::Relaxed);
            lane.cpu += cpu().saturating_sub(before);
            self.note(lane, result, [begun, ended], is_empty);
            if self.barrier.wait().is_leader() {
                self.close();
            }
            self.barrier.wait();
            if self.done.load(Ordering::Acquire) {
                return;
            }
        }
    }

    /// How much of the time is left.
    fn deadline(&self) -> Option<Duration> {
        match self.how.until {
            Until::Time(time) => Some(time.saturating_sub(self.legs().wall)),
            Until::Operations(_) => None,
        }
    }

    fn note(
        &self,
        lane: &mut Lane,
        result: Result<anyhow::Result<u64>, Box<dyn Any + Send>>,
        [begun, ended]: [Instant; 2],
        is_empty: bool,
    ) {
        let mut legs = self.legs();
        legs.begun = Some(legs.begun.map_or(begun, |first| first.min(begun)));
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

    /// The leg is over for all.
    fn close(&self) {
        let mut legs = self.legs();
        let leg = legs.begun.take().zip(legs.ended.take()).map(|(begun, ended)| ended - begun);
        legs.wall += leg.unwrap_or_default();
        let is_over = match self.how.until {
            Until::Time(time) => legs.wall >= time,
            Until::Operations(operations) => legs.operations >= operations,
        };
        self.done.store(is_over || legs.exhausted || legs.error.is_some(), Ordering::Release);
        self.over.store(false, Ordering::Relaxed);
    }

    /// Where only so many operations are wanted, a thread does its share of them.
    fn most(&self, lane: &Lane) -> u64 {
        match self.how.until {
            Until::Time(_) => u64::MAX,
            Until::Operations(operations) => {
                operations.div_ceil(self.threads as u64).saturating_sub(lane.operations).max(1)
            }
        }
    }

    fn leg<S: Store>(&self, store: &S, lane: &mut Lane, deadline: Option<Instant>) -> anyhow::Result<u64> {
        let last = self.versions.load(Ordering::Acquire);
        let check = Check::new(last, self.payload_bytes, self.how.whole);
        let most = self.most(lane);
        match store.repo().filter(|_| self.how.window) {
            Some(repo) => {
                let mut window = Window::new(repo, self.room);
                let done = self.operations(lane, deadline, most, |lane, _| {
                    let Some(code) = lane.chunk.codes.next() else { return Ok(false) };
                    let entities = &mut lane.chunk.entities;
                    window.ask(code, || entities.next().unwrap_or_default(), &check)?;
                    lane.balance += balance(code.kind());
                    Ok(true)
                });
                window.drain()?;
                done
            }
            None if self.how.latency => self.operations(lane, deadline, most, |lane, place| {
                let begun = (place == 0).then(Instant::now);
                let is_done = perform(store, lane, &check)?;
                if let (Some(begun), Some(latency)) = (begun, &mut lane.latency) {
                    latency.saturating_record(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1));
                }
                Ok(is_done)
            }),
            None => self.operations(lane, deadline, most, |lane, _| perform(store, lane, &check)),
        }
    }

    /// Operations until the leg is over; how many.
    #[inline]
    fn operations(
        &self,
        lane: &mut Lane,
        deadline: Option<Instant>,
        most: u64,
        mut one: impl FnMut(&mut Lane, u64) -> anyhow::Result<bool>,
    ) -> anyhow::Result<u64> {
        let mut done = 0;
        loop {
            for place in 0..BATCH.min(most - done) {
                if !one(lane, place)? {
                    return Ok(done);
                }
                done += 1;
            }
            let is_late = || lane.number == 0 && deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if done >= most || self.over.load(Ordering::Relaxed) || is_late() {
                return Ok(done);
            }
        }
    }
}

/// Does the lane's next operation; whether there was one.
#[inline]
fn perform<S: Store>(store: &S, lane: &mut Lane, check: &Check) -> anyhow::Result<bool> {
    let Some(code) = lane.chunk.codes.next() else { return Ok(false) };
    let id = code.id();
    match code.kind() {
        Kind::Get => {
            let mut shown = None;
            store.get(id, &mut |found| shown = Some(check.is_right(id, found)))?;
            if shown != Some(true) {
                return Err(if shown.is_some() { wrong(id) } else { anyhow!("{id} is gone") });
            }
        }
        kind @ (Kind::Replace | Kind::Create) => {
            let wanted = kind.put();
            let entity = lane.chunk.entities.next().unwrap_or_default();
            expect(id, store.put(entity)?, wanted)?;
            lane.balance += i64::from(wanted == Put::Created);
        }
        Kind::Remove => {
            expect(id, store.remove(id)?, Removed::Removed)?;
            lane.balance -= 1;
        }
    }
    Ok(true)
}

fn balance(kind: Kind) -> i64 {
    match kind {
        Kind::Create => 1,
        Kind::Remove => -1,
        Kind::Get | Kind::Replace => 0,
    }
}

/// Processor time of this thread.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// What a measured latency has of the clock itself: the median of 10 000 looks at it, one after the other, in nanoseconds.
pub fn clock_cost() -> u64 {
    let mut costs = histogram();
    for _ in 0..10_000 {
        let begun = Instant::now();
        costs.saturating_record(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1));
    }
    costs.value_at_quantile(0.5)
}
