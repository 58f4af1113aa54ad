//! Article B, the tasks in Rust: `crossbeam::scope` with a thread for each task. The three terms are one value, which is
//! passed by copy. Each step computes the next triplet, compares all three terms with the last triplet, and so finds
//! out whether the sequence has converged.
//!
//! Deviations from the listing: the tasks come from standard input and the times go to standard output, by the protocol
//! of `polyserve task-runner`; times are in nanoseconds, and the listing has whole milliseconds; the starting
//! terms come from the request, and the listing draws them inside the task, which takes nanoseconds; convergence adds up
//! to a number that is used, and the listing prints a line; the last term is returned, so that it can be verified; the
//! CPU time of a thread is read before and after. crossbeam is 0.8, and the listing has 0.2, in which handles
//! outlive the scope.

use std::io::{self, BufRead as _, Write as _};
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

type Triplet = (f64, f64, f64);

#[derive(Deserialize)]
struct TasksRequest {
    starts: Vec<[f64; 3]>,
    steps: u64,
    order: String,
    batch: usize,
}

#[derive(Clone, Debug, Serialize)]
struct Ran {
    task: usize,
    submitted_ns: u64,
    started_ns: u64,
    finished_ns: u64,
    cpu_ns: i64,
    bits: u64,
}

/// The published order, the only one that this program has.
const ORDER: &str = "as_published";

fn next_triplet(triplet: Triplet) -> Triplet {
    let term = triplet.0 + triplet.1 - triplet.2;
    if term.abs() <= 1.0 { (triplet.1, triplet.2, term) } else { (triplet.1, triplet.2, 1.0 / term) }
}

fn nearly_equal(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-14
}

fn has_converged(triplet: Triplet, next: Triplet) -> bool {
    nearly_equal(triplet.0, next.0) && nearly_equal(triplet.1, next.1) && nearly_equal(triplet.2, next.2)
}

/// Returns the last term, and the step from which the sequence stands still.
fn iterate(first: Triplet, steps: u64) -> (f64, Option<u64>) {
    let (mut triplet, mut converged) = (first, None);
    for step in 0..steps {
        let next = next_triplet(triplet);
        if has_converged(triplet, next) && converged.is_none() {
            converged = Some(step);
        }
        triplet = next;
    }
    (triplet.2, converged)
}

fn run(request: &TasksRequest) -> Vec<Ran> {
    let base = Instant::now();
    let now = || base.elapsed().as_nanos() as u64;
    let count = request.starts.len();
    let series = if request.batch == 0 { count.max(1) } else { request.batch };
    let mut all = Vec::with_capacity(count);
    for first in (0..count).step_by(series) {
        let tasks = first..count.min(first + series);
        let ran = crossbeam::scope(|scope| {
            let spawn = |task: usize| {
                let submitted_ns = now();
                let [a, b, c] = request.starts[task];
                scope.spawn(move |_| {
                    let (started_ns, cpu_before) = (now(), spent(ClockId::ThreadCPUTime));
                    let (last, converged) = iterate((a, b, c), request.steps);
                    std::hint::black_box(converged);
                    let (cpu_ns, finished_ns) = (spent(ClockId::ThreadCPUTime) - cpu_before, now());
                    Ran { task: task + 1, submitted_ns, started_ns, finished_ns, cpu_ns, bits: last.to_bits() }
                })
            };
            let handles: Vec<_> = tasks.map(spawn).collect();
            handles.into_iter().map(|handle| handle.join().expect("a task does not panic")).collect::<Vec<_>>()
        });
        all.extend(ran.expect("a task does not panic"));
    }
    all
}

/// Returns the CPU time of a clock, in nanoseconds.
fn spent(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let request: TasksRequest = serde_json::from_str(&line?)?;
        if request.order != ORDER {
            writeln!(out, "{{\"error\":\"the listing has one order, {ORDER}\"}}")?;
        } else {
            let before = spent(ClockId::ProcessCPUTime);
            let all = run(&request);
            let process_cpu_ns = spent(ClockId::ProcessCPUTime) - before;
            for ran in all {
                writeln!(out, "{}", serde_json::to_string(&ran)?)?;
            }
            writeln!(out, "{{\"process_cpu_ns\":{process_cpu_ns}}}")?;
        }
        out.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_terms_by_hand() {
        // 0.125 + 0.25 - 0.5 = -0.125; 0.25 + 0.5 + 0.125 = 0.875; 0.5 - 0.125 - 0.875 = -0.5.
        for (steps, term) in (1..).zip([-0.125, 0.875, -0.5]) {
            assert_eq!(iterate((0.125, 0.25, 0.5), steps), (term, None), "{steps}");
        }
        // A term of exactly 1 is no reciprocal.
        assert_eq!(next_triplet((0.75, 0.5, 0.25)), (0.5, 0.25, 1.0));
        assert_eq!(next_triplet((1.0, 1.0, -0.5)), (1.0, -0.5, 0.4));
    }

    #[test]
    fn all_three_terms_must_stand_still() {
        assert_eq!(iterate((0.5, 0.5, 0.5), 10).1, Some(0));
        assert!(!has_converged((0.5, 0.5, 0.5), (0.5, 0.5, 0.5 + 1e-13)));
        assert!(has_converged((0.5, 0.5, 0.5), (0.5, 0.5, 0.5 + 1e-15)));
    }
}
