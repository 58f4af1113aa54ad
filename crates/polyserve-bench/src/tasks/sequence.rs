//! The task: the recurrence A(n) = A(n-1) + A(n-2) - A(n-3), which keeps one core busy and nothing else. A term is
//! replaced by its reciprocal if its absolute value is 1 or more.
//!
//! Invariant: the same order, terms and number of steps give the same last term, bit for bit, in every language that
//! computes with IEEE 754 and does not fuse operations. Cost: two additions and a comparison a step, and no memory. Each term needs
//! the ones before it, so no two steps of a task can run at once.

use std::hint::black_box;

use polyserve::Shutdown;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use serde::{Deserialize, Serialize};

/// The three terms that a task starts with.
pub(crate) type Terms = [f64; 3];

/// The order of the operands in the recurrence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TermOrder {
    /// A(n-1) + A(n-2) - A(n-3), as the text of the experiment has it.
    #[default]
    AsDescribed,
    /// A(n-3) + A(n-2) - A(n-1), as its published code has it.
    AsPublished,
}

/// The point at which a sequence stands still.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SequenceLimit {
    /// The term that it ends at.
    pub limit: f64,
    /// The number of the first of three terms in a row that equal their successors. The starting terms have the numbers
    /// 1, 2 and 3.
    pub step: u64,
}

/// The result of a whole sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SequenceEnd {
    /// The last term.
    pub last: f64,
    /// The limit, if the sequence converges.
    pub limit: Option<SequenceLimit>,
}

/// Terms that differ by no more than this are equal.
const TOLERANCE: f64 = 1e-15;
/// The number of terms in a row that equal their successors: they are a limit.
const IN_A_ROW: u64 = 3;
/// The number of steps between two checks of the shutdown: some milliseconds.
const STOP_CHECK_STEPS: u64 = 1 << 22;

#[inline(always)]
fn next<const AS_PUBLISHED: bool>([third, second, first]: Terms) -> Terms {
    let sum = if AS_PUBLISHED { third + second - first } else { first + second - third };
    [second, first, if sum.abs() >= 1.0 { 1.0 / sum } else { sum }]
}

/// The task: returns the last term after `steps` steps. With `check` each step also tests for convergence, as the published
/// code does. Arguments and result are hidden from the compiler, so it cannot skip steps.
pub(crate) fn last(order: TermOrder, start: Terms, steps: u64, check: bool) -> f64 {
    match (order, check) {
        (TermOrder::AsDescribed, false) => walk::<false>(start, steps),
        (TermOrder::AsPublished, false) => walk::<true>(start, steps),
        (TermOrder::AsDescribed, true) => checked::<false>(start, steps),
        (TermOrder::AsPublished, true) => checked::<true>(start, steps),
    }
}

// Never inlined: all contestants run the same instructions.
#[inline(never)]
fn walk<const AS_PUBLISHED: bool>(start: Terms, steps: u64) -> f64 {
    let mut terms = black_box(start);
    for _ in 0..black_box(steps) {
        terms = next::<AS_PUBLISHED>(terms);
    }
    black_box(terms)[2]
}

/// [`walk`] with the published check in every step.
#[inline(never)]
fn checked<const AS_PUBLISHED: bool>(start: Terms, steps: u64) -> f64 {
    let (mut terms, mut equal_in_row, mut limit) = (black_box(start), 0, None);
    for step in 0..black_box(steps) {
        let [_, _, before] = terms;
        terms = next::<AS_PUBLISHED>(terms);
        equal_in_row = if (before - terms[2]).abs() <= TOLERANCE { equal_in_row + 1 } else { 0 };
        if equal_in_row == IN_A_ROW && limit.is_none() {
            limit = Some(step);
        }
    }
    black_box(limit);
    black_box(terms)[2]
}

/// Computes the limit and the right answer of a task's sequence, outside the measured time. Returns `None` if the run
/// ends first.
pub(crate) fn compute(order: TermOrder, start: Terms, steps: u64, stop: &Shutdown) -> Option<SequenceEnd> {
    match order {
        TermOrder::AsDescribed => watch::<false>(start, steps, stop),
        TermOrder::AsPublished => watch::<true>(start, steps, stop),
    }
}

fn watch<const AS_PUBLISHED: bool>(start: Terms, steps: u64, stop: &Shutdown) -> Option<SequenceEnd> {
    let equal = |one: f64, other: f64| (one - other).abs() <= TOLERANCE;
    let mut equal_in_row = match (equal(start[0], start[1]), equal(start[1], start[2])) {
        (true, true) => 2,
        (false, true) => 1,
        (_, false) => 0,
    };
    let (mut terms, mut limit, mut done) = (start, None, 0);
    while done < steps {
        if stop.is_begun() {
            return None;
        }
        let end = steps.min(done + STOP_CHECK_STEPS);
        for step in done..end {
            let [_, _, before] = terms;
            terms = next::<AS_PUBLISHED>(terms);
            equal_in_row = if equal(before, terms[2]) { equal_in_row + 1 } else { 0 };
            if equal_in_row == IN_A_ROW && limit.is_none() {
                // The newest term is number `step + 4`, and the fourth of those that are equal.
                limit = Some(SequenceLimit { limit: terms[2], step: step + 1 });
            }
        }
        done = end;
    }
    Some(SequenceEnd { last: terms[2], limit })
}

/// The starting terms of the tasks 1 to `count`, each above 0 and below 1. A longer list begins with the shorter list.
pub(crate) fn starts(seed: u64, count: usize) -> Vec<Terms> {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut random = ChaCha8Rng::from_seed(key);
    // 52 bits and a half: neither 0 nor, rounded, 1.
    let mut term = || ((random.next_u64() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
    (0..count).map(|_| std::array::from_fn(|_| term())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(order: TermOrder, start: Terms, steps: u64) -> SequenceEnd {
        compute(order, start, steps, &Shutdown::new()).unwrap()
    }

    #[test]
    fn a_few_terms_by_hand() {
        // 0.5 + 0.25 - 0.125 = 0.625; 0.625 + 0.5 - 0.25 = 0.875; 0.875 + 0.625 - 0.5 = 1, its reciprocal.
        let terms = [0.625, 0.875, 1.0, 1.0 / 1.25];
        for (steps, term) in (1..).zip(terms) {
            assert_eq!(last(TermOrder::AsDescribed, [0.125, 0.25, 0.5], steps, false), term, "{steps}");
        }
        // 0.125 + 0.25 - 0.5 = -0.125; 0.25 + 0.5 + 0.125 = 0.875; 0.5 - 0.125 - 0.875 = -0.5.
        for (steps, term) in (1..).zip([-0.125, 0.875, -0.5]) {
            assert_eq!(last(TermOrder::AsPublished, [0.125, 0.25, 0.5], steps, false), term, "{steps}");
        }
        assert_eq!(last(TermOrder::AsDescribed, [0.1, 0.2, 0.3], 0, false), 0.3);
    }

    #[test]
    fn what_is_looked_at_is_what_is_run() {
        for order in [TermOrder::AsDescribed, TermOrder::AsPublished] {
            for start in starts(7, 5) {
                let SequenceEnd { last: computed, .. } = seen(order, start, 100_000);
                for check in [false, true] {
                    let run = last(order, start, 100_000, check);
                    assert_eq!(computed.to_bits(), run.to_bits(), "{order:?} {start:?} {check}");
                }
                assert!(computed.abs() <= 1.0);
            }
        }
    }

    #[test]
    fn limits_are_found_with_their_step() {
        let still = Some(SequenceLimit { limit: 0.5, step: 1 });
        assert_eq!(seen(TermOrder::AsDescribed, [0.5; 3], 10).limit, still, "it stands still from the first term on");
        // The terms are 0.25, 0.5, 0.5, 0.75, 0.75, 1, 1, 1/1.25: never three equal terms in a row.
        assert_eq!(seen(TermOrder::AsDescribed, [0.25, 0.5, 0.5], 6).limit, None);
        // The terms are -0.5, 0.5, 0.5 again and again. Two equal terms in a row are no limit.
        assert_eq!(seen(TermOrder::AsPublished, [-0.5, 0.5, 0.5], 3).limit, None);
        // Three terms that are equal up to rounding are a limit.
        let nearly = [0.5, 0.5 + 4e-16, 0.5];
        assert!(seen(TermOrder::AsDescribed, nearly, 5).limit.is_some_and(|found| found.step == 1));
        assert_eq!(seen(TermOrder::AsDescribed, [0.5; 3], 0).limit, None, "two of three");
    }

    #[test]
    fn a_look_ends_where_the_run_does() {
        let stop = Shutdown::new();
        stop.begin(std::time::Instant::now());
        assert_eq!(compute(TermOrder::AsDescribed, [0.1, 0.2, 0.3], 10, &stop), None);
    }

    #[test]
    fn a_seed_gives_one_list_of_starts() {
        let many = starts(3, 200);
        assert_eq!(starts(3, 50), many[..50]);
        assert_ne!(starts(4, 1), many[..1]);
        assert!(many.iter().flatten().all(|term| *term > 0.0 && *term < 1.0));
        let mean = many.iter().flatten().sum::<f64>() / 600.0;
        assert!((0.4..0.6).contains(&mean), "{mean}");
    }
}
