//! The minimiser: a few operations of one key that cannot be ordered.
//!
//! Invariant: the remaining operations have no order, whatever the omitted operations did while they ran. Each step
//! weakens the conditions of some operations. A put stays if other operations depend on it.
//!
//! The search uses the values of later gets, so it may get stuck before the answers that prove a violation. The
//! minimiser works in two steps:
//!
//! * A window around that moment grows until it has no order. Of operations that ended before the window, only their
//!   existence is known, and the key may have any value at its begin.
//! * The answers of a half, a quarter, an eighth of the rest are ignored, as long as what remains has no order.
//!
//! Cost: a search for each step, of windows up to twice as large as necessary at each side. All searches together examine at most
//! [`MAX_EXAMINED`] operations, and take at most the steps of one search's limits. After that the remaining operations
//! are shown.

use super::plan::{Register, Window};
use super::search::{SearchLimits, SearchResult, search};
use super::{Call, Operation};

/// The result of the minimiser.
pub(super) struct Core {
    /// The places of operations that cannot be ordered, sorted by their calls.
    pub(super) places: Vec<usize>,
    /// The place of the operation that could not take effect before its return.
    pub(super) stuck: usize,
}

/// The max number of operations in all searches together. They take some minutes if a violation extends over a million
/// operations.
const MAX_EXAMINED: usize = 150_000_000;

struct Minimiser<'a> {
    register: &'a Register<'a>,
    /// The limits for all remaining searches together.
    limits: SearchLimits,
    /// The number of operations that all remaining searches together may examine.
    budget: usize,
}

/// Minimises `register`. The search got stuck at the operation at the place `stuck`, which returned at `at`.
pub(super) fn minimise(register: &Register<'_>, stuck: usize, at: u64, limits: &SearchLimits) -> Core {
    let mut minimiser = Minimiser { register, limits: *limits, budget: MAX_EXAMINED };
    let window = minimiser.around(at);
    // Operations that overlap the begin are known better if the window begins with them.
    let inside = register.operations.iter().filter(|op| window.meets(op) && !op.is_unknown());
    let window = Window { from: window.from.and(inside.map(|op| op.called).min()), ..window };
    let meets = |place: &usize| window.meets(&register.operations[*place]);
    let mut weak = vec![false; register.operations.len()];
    // Gets are left out first: a violation is easier to read from operations that change something.
    let is_get = |place: &usize| register.operations[*place].call == Call::Get;
    let (gets, others): (Vec<usize>, Vec<usize>) = (0..register.operations.len()).filter(meets).partition(is_get);
    let size = gets.len() + others.len();
    let mut strict = minimiser.leave_out(&window, &mut weak, gets, size);
    strict.extend(minimiser.leave_out(&window, &mut weak, others, size));
    // An operation that overlaps the window's begin, or has no answer, is weak already.
    let is_strict = |place: &usize| {
        let operation: &Operation = &register.operations[*place];
        !operation.is_unknown() && window.from.is_none_or(|from| from <= operation.called)
    };
    let mut places: Vec<usize> = strict.into_iter().filter(is_strict).collect();
    places.sort_unstable();
    // The violation shows at the last operation to return, unless the search gets stuck at one of the remaining
    // operations.
    let plan = register.plan(&window, |place| weak[place]);
    let found = match search(&plan, &mut minimiser.limits) {
        SearchResult::Stuck(item) => plan.items[item as usize].place as usize,
        SearchResult::Order | SearchResult::LimitExceeded(_) => stuck,
    };
    let last = places.iter().copied().max_by_key(|place| register.operations[*place].returned);
    let stuck = if places.contains(&found) { found } else { last.unwrap_or(stuck) };
    Core { places, stuck }
}

impl Minimiser<'_> {
    /// Makes as many of these operations `weak` as possible, so that there is still no order. Returns the places of the
    /// others.
    fn leave_out(&mut self, window: &Window, weak: &mut [bool], mut places: Vec<usize>, size: usize) -> Vec<usize> {
        let mut chunk = places.len();
        while chunk > 0 {
            let mut at = 0;
            while at < places.len() {
                let end = (at + chunk).min(places.len());
                places[at..end].iter().for_each(|place| weak[*place] = true);
                if self.has_no_order(window, weak, size) {
                    places.drain(at..end);
                } else {
                    places[at..end].iter().for_each(|place| weak[*place] = false);
                    at = end;
                }
            }
            chunk = if chunk == 1 { 0 } else { chunk.min(places.len()).div_ceil(2) };
        }
        places
    }

    /// Returns a window around the moment `at` that has no order.
    fn around(&mut self, at: u64) -> Window {
        let operations = self.register.operations;
        let center = operations.partition_point(|operation| operation.called <= at);
        let mut reach = 32;
        loop {
            let from = center.checked_sub(reach).map(|place| operations[place].called);
            let until = operations.get(center + reach).map_or(u64::MAX, |operation| operation.called);
            let window = Window { from, until };
            if window.is_whole() || self.has_no_order(&window, &[], reach * 2) {
                return window;
            }
            reach *= 2;
        }
    }

    /// Returns whether there is certainly no order. `size` is about the number of operations that the search examines.
    fn has_no_order(&mut self, window: &Window, weak: &[bool], size: usize) -> bool {
        let Some(budget) = self.budget.checked_sub(size).filter(|_| self.limits.steps > 0) else { return false };
        self.budget = budget;
        let plan = self.register.plan(window, |place| weak.get(place).copied().unwrap_or(false));
        matches!(search(&plan, &mut self.limits), SearchResult::Stuck(_))
    }
}
