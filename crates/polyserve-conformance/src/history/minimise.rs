//! Which few operations of one key cannot be ordered.
//!
//! Invariant: what is left is as strict as it was and still has no order, whatever the others did while they were there; so
//! each of the steps that lead here is right, and none takes a put away that others rely on.
//!
//! The search knows what later gets will see, and so stops sooner than the answers that prove it wrong are there. So first a
//! window around that moment grows until it has no order; of what ended before it nothing is known but that it happened, and
//! the key may be anything at its begin. Then its end and its begin are moved together by halving. Then what half, a quarter,
//! an eighth of the rest answered is left out, as long as what remains has no order. Cost: a search for each such step, of
//! windows that are twice as large as they must be; [`MOST`] operations in all, and as many steps in all as the limits allow to
//! one search. Once that is used up the rest is shown as it is.

use super::plan::{Register, Window};
use super::search::{Found, Limits, search};
use super::{Action, Operation};

/// What was found.
pub(super) struct Core {
    /// The places of operations that cannot be ordered, by their calls.
    pub(super) places: Vec<usize>,
    /// The one that could not come where it did.
    pub(super) stuck: usize,
}

/// Operations that are searched in all, at most: some minutes, where what is wrong reaches over a million operations.
const MOST: usize = 150_000_000;

struct Minimiser<'a> {
    register: &'a Register<'a>,
    /// What is left for all searches together.
    limits: Limits,
    left: usize,
}

/// The few of `register`, of which the search got stuck at the operation at the place `stuck`, when that returned at `at`.
pub(super) fn minimise(register: &Register<'_>, stuck: usize, at: u64, limits: &Limits) -> Core {
    let mut minimiser = Minimiser { register, limits: *limits, left: MOST };
    let window = minimiser.around(at);
    let window = minimiser.earliest_end(window);
    let window = minimiser.latest_begin(window);
    // Those that were on their way at the begin show more than what is known of them there.
    let inside = register.operations.iter().filter(|one| window.meets(one) && !one.is_unknown());
    let window = Window { from: window.from.and(inside.map(|one| one.called).min()), ..window };
    let meets = |place: &usize| window.meets(&register.operations[*place]);
    let mut weak = vec![false; register.operations.len()];
    // What only looks goes first: it is easier seen what cannot be by what changes something.
    let is_get = |place: &usize| matches!(register.operations[*place].action, Action::Get(_));
    let (gets, others): (Vec<usize>, Vec<usize>) = (0..register.operations.len()).filter(meets).partition(is_get);
    let size = gets.len() + others.len();
    let mut strict = minimiser.leave_out(&window, &mut weak, gets, size);
    strict.extend(minimiser.leave_out(&window, &mut weak, others, size));
    // What is pending at the begin, or lost its answer, was never taken strictly.
    let is_strict = |place: &usize| {
        let operation: &Operation = &register.operations[*place];
        !operation.is_unknown() && window.from.is_none_or(|from| from <= operation.called)
    };
    let mut places: Vec<usize> = strict.into_iter().filter(is_strict).collect();
    places.sort_unstable();
    // The last to end is where it shows, unless the search itself says so of one that is left.
    let plan = register.plan(&window, |place| weak[place]);
    let found = match search(&plan, &mut minimiser.limits) {
        Found::Stuck(item) => plan.items[item as usize].place as usize,
        Found::Order | Found::GaveUp(_) => stuck,
    };
    let last = places.iter().copied().max_by_key(|place| register.operations[*place].returned);
    let stuck = if places.contains(&found) { found } else { last.unwrap_or(stuck) };
    Core { places, stuck }
}

impl Minimiser<'_> {
    /// Makes as many of the operations at these places `weak` as leave no order; answers the others.
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

    /// A window around the moment `at` that has no order.
    fn around(&mut self, at: u64) -> Window {
        let operations = self.register.operations;
        let middle = operations.partition_point(|operation| operation.called <= at);
        let mut reach = 32;
        loop {
            let from = middle.checked_sub(reach).map(|place| operations[place].called);
            let until = operations.get(middle + reach).map_or(u64::MAX, |operation| operation.called);
            let window = Window { from, until };
            if window.is_whole() || self.has_no_order(&window, &[], reach * 2) {
                return window;
            }
            reach *= 2;
        }
    }

    /// The same, but for what is not needed at its end.
    fn earliest_end(&mut self, window: Window) -> Window {
        let inside = self.register.operations.iter().filter(|one| window.meets(one) && !one.is_unknown());
        let mut ends: Vec<u64> = inside.map(|one| one.returned).filter(|end| *end < window.until).collect();
        ends.sort_unstable();
        let end = |place: usize| Window { until: ends.get(place).copied().unwrap_or(window.until), ..window };
        let size = ends.len();
        let place = least(ends.len(), |place| self.has_no_order(&end(place), &[], size));
        end(place)
    }

    /// The same, but for what is not needed at its begin.
    fn latest_begin(&mut self, window: Window) -> Window {
        let inside = self.register.operations.iter().map(|one| one.called);
        let begins: Vec<u64> =
            inside.filter(|begin| *begin <= window.until && window.from.is_none_or(|from| from < *begin)).collect();
        // From the last one backwards; past the first is where it is.
        let last = begins.len();
        let begin = |place: usize| match last.checked_sub(place + 1) {
            Some(place) => Window { from: Some(begins[place]), ..window },
            None => window,
        };
        let place = least(last, |place| self.has_no_order(&begin(place), &[], last));
        begin(place)
    }

    /// Whether there is certainly no order. `size`: about how many operations that looks at.
    fn has_no_order(&mut self, window: &Window, weak: &[bool], size: usize) -> bool {
        let Some(left) = self.left.checked_sub(size).filter(|_| self.limits.steps > 0) else { return false };
        self.left = left;
        let plan = self.register.plan(window, |place| weak.get(place).copied().unwrap_or(false));
        matches!(search(&plan, &mut self.limits), Found::Stuck(_))
    }
}

/// The least number below `limit` for which `holds`, which holds for all that are larger; `limit` where it holds for none.
fn least(limit: usize, mut holds: impl FnMut(usize) -> bool) -> usize {
    let (mut least, mut most) = (0, limit);
    while least < most {
        let middle = least + (most - least) / 2;
        if holds(middle) { most = middle } else { least = middle + 1 }
    }
    least
}
