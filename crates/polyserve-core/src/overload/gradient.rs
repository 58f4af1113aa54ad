//! A limit on the requests in the server that follows from measured times.
//!
//! The number of requests in the server is those in work, and those that wait for a worker. The second number is not known, but by
//! Little's law a request that has waited for *t* stands behind about *t* times the rate of answers. In each window the limit is
//! multiplied by the *gradient*: the time of a request without a queue by its time now, times a tolerance of two. A small queue is
//! added, so that the limit grows while there is none:
//!
//! ```text
//! gradient = clamp(2 * unloaded / present, 1/2, 1)
//! limit    = 4/5 limit + 1/5 (limit * gradient + sqrt(limit))
//! ```
//!
//! The time without a queue is the mean time in work; it follows smaller values quickly and larger ones very slowly. So it does
//! not count the wait for a worker, whatever the load at the start is.
//!
//! Source: the idea of Netflix's concurrency limits (`Gradient2`), and TCP Vegas (Brakmo and Peterson, 1995). Envoy's adaptive
//! concurrency measures the time without a queue by a pause of the load instead.
//!
//! Invariant: the limit is from 2 to 10 000, and grows only while at least half is used. Writes use nine tenths. Cost: an
//! uncontended lock at the start and at the end of a request.
//!
//! *Wins when* neither the capacity nor a good delay is known, or both change: other requests, other machines.
//!
//! *Loses when* the time of a request changes by itself, as with a few slow requests among many quick ones: a window with more of them
//! looks like a queue. *Loses* also under an overload of minutes in a service that defers its answers: the queue within the service is
//! slowly taken for its usual time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{AnsweredRequest, Arrival, OverloadPolicy, OverloadReason, share};

/// The smallest limit.
const MIN_LIMIT: f64 = 2.0;

/// The largest limit.
const MAX_LIMIT: f64 = 10_000.0;

/// The limit at the start.
const FIRST_LIMIT: f64 = 20.0;

/// A window has at least this number of answers, and this time.
const MIN_ANSWERS: u32 = 50;
const MIN_WINDOW: Duration = Duration::from_millis(20);

/// A window of this time ends with its next answer. A rate that is older than that is not used: all might be refused by a wrong one.
const MAX_WINDOW: Duration = Duration::from_millis(500);

/// A policy with a limit that it finds itself.
#[derive(Debug)]
pub struct Gradient {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    limit: f64,
    /// The mean time in work without a queue, in seconds. `None` until the first window has ended.
    unloaded: Option<f64>,
    /// The answers per second of the last window.
    rate: f64,
    window: Window,
}

/// The measurements since the last change of the limit.
#[derive(Debug, Default)]
struct Window {
    /// `None` before the first answer.
    began: Option<Instant>,
    answers: u32,
    waited: Duration,
    worked: Duration,
    /// The largest number of requests in the server.
    peak: f64,
}

impl Gradient {
    /// A policy that has measured nothing.
    pub fn new() -> Self {
        let (unloaded, window) = (None, Window::default());
        Self { state: Mutex::new(State { limit: FIRST_LIMIT, unloaded, rate: 0.0, window }) }
    }

    /// The present limit on the requests in the server.
    pub fn limit(&self) -> usize {
        self.with_state(|state| state.limit as usize)
    }

    fn with_state<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Default for Gradient {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    /// The answers per second. Zero if that is not known.
    fn rate_at(&self, now: Instant) -> f64 {
        let is_recent = |began| now.saturating_duration_since(began) < MAX_WINDOW;
        if self.window.began.is_some_and(is_recent) { self.rate } else { 0.0 }
    }

    /// Sets the limit by the window that has ended after `elapsed`.
    fn end_window(&mut self, elapsed: Duration) {
        const TOLERANCE: f64 = 2.0;
        let answers = f64::from(self.window.answers);
        let (waited, worked) = (self.window.waited.as_secs_f64() / answers, self.window.worked.as_secs_f64() / answers);
        let before = self.unloaded.unwrap_or(worked);
        let unloaded = before + (worked - before) * if worked < before { 0.1 } else { 0.0005 };
        let present = (waited + worked).max(f64::MIN_POSITIVE);
        let gradient = (TOLERANCE * unloaded / present).clamp(0.5, 1.0);
        let next = 0.8 * self.limit + 0.2 * (self.limit * gradient + self.limit.sqrt());
        if next < self.limit || self.window.peak >= self.limit / 2.0 {
            self.limit = next.clamp(MIN_LIMIT, MAX_LIMIT);
        }
        (self.unloaded, self.rate) = (Some(unloaded), answers / elapsed.as_secs_f64());
    }
}

impl OverloadPolicy for Gradient {
    fn admit(&self, arrival: &Arrival) -> Result<(), OverloadReason> {
        self.with_state(|state| {
            let limit = share(state.limit as usize, arrival.is_write);
            let requests = arrival.in_work as f64 + (arrival.waited.as_secs_f64() * state.rate_at(arrival.now)).round();
            state.window.peak = state.window.peak.max(requests);
            if arrival.in_work > limit {
                return Err(OverloadReason::InWork);
            }
            if requests <= limit as f64 { Ok(()) } else { Err(OverloadReason::Waited) }
        })
    }

    fn answered(&self, served: &AnsweredRequest) {
        self.with_state(|state| {
            let began = *state.window.began.get_or_insert(served.now);
            state.window.answers += 1;
            state.window.waited += served.waited;
            state.window.worked += served.worked;
            let elapsed = served.now.saturating_duration_since(began);
            if elapsed >= MIN_WINDOW && (state.window.answers >= MIN_ANSWERS || elapsed >= MAX_WINDOW) {
                state.end_window(elapsed);
                state.window = Window { began: Some(served.now), ..Window::default() };
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLIS: Duration = Duration::from_millis(1);

    /// A server with a number of workers that each take a millisecond for a request. `queue`: the requests that wait.
    fn run(gradient: &Gradient, now: &mut Instant, millis: u32, workers: u32, mut queue: impl FnMut(usize) -> u32) {
        for _ in 0..millis {
            *now += MILLIS;
            let waited = MILLIS * queue(gradient.limit()) / workers;
            for in_work in 1..=workers as usize {
                let arrival = Arrival { waited, in_work, ..Arrival::new(*now) };
                if gradient.admit(&arrival).is_ok() {
                    gradient.answered(&AnsweredRequest::new(*now, waited, MILLIS));
                }
            }
        }
    }

    #[test]
    fn the_limit_stays_without_load() {
        let (gradient, mut now) = (Gradient::new(), Instant::now());
        run(&gradient, &mut now, 10_000, 2, |_| 0);
        assert_eq!(gradient.limit(), FIRST_LIMIT as usize);
    }

    /// Whatever the load, the queue is about as long as the limit allows. A request then takes about three times as long as
    /// without a queue.
    #[test]
    fn a_queue_settles_at_a_few_times_the_time_of_a_request() {
        for workers in [2, 16, 64] {
            let (gradient, mut now) = (Gradient::new(), Instant::now());
            run(&gradient, &mut now, 20_000, workers, |limit| (limit as u32).saturating_sub(workers));
            let limit = gradient.limit() as u32;
            assert!((2 * workers..=5 * workers).contains(&limit), "{workers} workers: {limit}");
        }
    }

    #[test]
    fn a_request_behind_a_long_queue_is_refused_and_writes_first() {
        let (gradient, mut now) = (Gradient::new(), Instant::now());
        run(&gradient, &mut now, 1_000, 2, |_| 0);
        let admit = |waited: Duration, in_work, is_write| {
            gradient.admit(&Arrival { waited, in_work, is_write, ..Arrival::new(now) })
        };
        // Two answers a millisecond, so ten milliseconds are 20 requests.
        assert_eq!(admit(8 * MILLIS, 2, false), Ok(()));
        assert_eq!(admit(8 * MILLIS, 3, true), Err(OverloadReason::Waited));
        assert_eq!(admit(20 * MILLIS, 2, false), Err(OverloadReason::Waited));
        assert_eq!(admit(Duration::ZERO, 20, false), Ok(()));
        assert_eq!(admit(Duration::ZERO, 20, true), Err(OverloadReason::InWork));
        assert_eq!(admit(Duration::ZERO, 21, false), Err(OverloadReason::InWork));
    }

    /// A service that has become slow must not be judged by its former rate for ever.
    #[test]
    fn a_rate_that_is_old_refuses_nothing() {
        let (gradient, mut now) = (Gradient::new(), Instant::now());
        run(&gradient, &mut now, 1_000, 2, |_| 0);
        let admits = |now| gradient.admit(&Arrival { waited: 20 * MILLIS, ..Arrival::new(now) }).is_ok();
        assert!(!admits(now) && admits(now + MAX_WINDOW));
    }

    #[test]
    fn the_limit_follows_a_slower_service_down() {
        let (gradient, mut now) = (Gradient::new(), Instant::now());
        run(&gradient, &mut now, 1_000, 16, |_| 0);
        for _ in 0..50 {
            for _ in 0..MIN_ANSWERS {
                gradient.answered(&AnsweredRequest::new(now, Duration::ZERO, 20 * MILLIS));
            }
            now += MIN_WINDOW;
        }
        assert!(gradient.limit() < 8, "{}", gradient.limit());
        assert!(gradient.limit() >= MIN_LIMIT as usize);
    }
}
