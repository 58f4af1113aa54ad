//! The search for an order: Lowe's just-in-time linearization of the search of Wing and Gong, breadth first.
//!
//! It goes through calls and returns in the order of time. It keeps every configuration that the answers so far allow:
//! which of the running operations have taken effect, and the state of the key.
//!
//! An operation takes effect as late as possible. When it returns, the search continues from the configurations in
//! which it has not taken effect, by applying running operations, until it has. If no configuration is left, there is
//! no order.
//!
//! Operations that have returned are not kept. At a moment without a running operation the configurations are the
//! possible states, so memory depends on the number of overlapping operations and not on the length of the history.
//!
//! Two rules reduce the configurations, in addition to the rules of the [plan](super::plan). An operation that changes
//! nothing takes effect as soon as the key has the state that it needs. If several operations have the same effect, the one
//! that must end first takes effect first.
//!
//! Invariant: a verdict is right, or there is none. Cost: for n operations of which k overlap, n log n to sort them,
//! and n times the number of configurations, of which k writers make at most 2^k.
//!
//! Sources: Wing and Gong, "Testing and verifying concurrent objects", 1993; Lowe, "Testing for linearizability",
//! 2017.

use std::fmt;

use super::plan::{Effect, KeyState, Need, SearchPlan};

/// The reason for which a search stopped without a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitExceeded {
    /// More than 128 operations of one key overlap.
    TooManyAtOnce,
    /// There are more possibilities at a time than [`SearchLimits::configurations`].
    TooManyConfigurations,
    /// There are more possibilities in total than [`SearchLimits::steps`].
    TooManySteps,
}

impl fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooManyAtOnce => "more than 128 operations overlap",
            Self::TooManyConfigurations => "the number of possible states at one time exceeds the limit",
            Self::TooManySteps => "the number of possible states in total exceeds the limit",
        })
    }
}

/// The limits of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchLimits {
    /// The number of different possibilities that are kept at a time, of 32 bytes each. Up to five times as many exist while
    /// the next ones are collected.
    pub configurations: usize,
    /// The number of possibilities that are examined for one key. The search for the few operations that show a violation
    /// has the same limit once more.
    pub steps: u64,
}

impl Default for SearchLimits {
    /// One million configurations, which is at most about 200 MiB; and 4 000 million steps, which is some minutes.
    fn default() -> Self {
        Self { configurations: 1_000_000, steps: 4_000_000_000 }
    }
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchResult {
    /// There is an order.
    Order,
    /// There is no order in which the item of this number takes effect before its return.
    Stuck(u32),
    /// The search reached a limit.
    LimitExceeded(LimitExceeded),
}

/// One possible state of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Configuration {
    /// The slots of running operations that have taken effect.
    done: u128,
    state: KeyState,
    /// The number of used puts that may take effect at any time. `removes` counts the removes.
    puts: u32,
    removes: u32,
}

/// The number of slots for running operations.
const SLOTS: u32 = u128::BITS;
/// The factor by which the configurations may grow before duplicates are removed.
const MAX_GROWTH: usize = 4;

/// The state of the search.
struct Search<'a> {
    plan: &'a SearchPlan,
    /// The current event.
    now: u32,
    item_at: [u32; SLOTS as usize],
    slot_of: Vec<u8>,
    running: RunningOperations,
    /// The number of operations that may take effect at any time.
    lasting_puts: u32,
    lasting_removes: u32,
    configurations: Vec<Configuration>,
    steps: u64,
    limits: SearchLimits,
}

/// The slots of the operations that run.
#[derive(Default)]
struct RunningOperations {
    taken: u128,
    reads_absent: u128,
    reads_present: u128,
    /// The reads that need a value, or not this value.
    reads_of_value: u128,
    /// The changes that no queue has: to a value, or from a value.
    changes_of_value: u128,
    overwriting: u128,
    /// The slots of operations with the same effect, in the order in which they must end.
    creates: Vec<u8>,
    removes: Vec<u8>,
    overwrites: Vec<u8>,
    may_put: Vec<u8>,
    may_remove: Vec<u8>,
}

impl RunningOperations {
    /// The mask and the queue of the operations with this role, of which it has one or both.
    fn of(&mut self, role: Effect) -> (Option<&mut u128>, Option<&mut Vec<u8>>) {
        match role {
            Effect::ReadOnly(Need::Absent) => (Some(&mut self.reads_absent), None),
            Effect::ReadOnly(Need::Present) => (Some(&mut self.reads_present), None),
            Effect::ReadOnly(_) => (Some(&mut self.reads_of_value), None),
            Effect::Change(Need::Absent, KeyState::Present) => (None, Some(&mut self.creates)),
            Effect::Change(Need::Present, KeyState::Absent) => (None, Some(&mut self.removes)),
            Effect::Change(..) | Effect::MaybePutNamed(_) => (Some(&mut self.changes_of_value), None),
            Effect::Overwrite => (Some(&mut self.overwriting), Some(&mut self.overwrites)),
            Effect::MaybePut => (None, Some(&mut self.may_put)),
            Effect::MaybeRemove => (None, Some(&mut self.may_remove)),
        }
    }
}

/// Searches for an order. Subtracts the steps that it takes from `limits`.
pub(super) fn search(plan: &SearchPlan, limits: &mut SearchLimits) -> SearchResult {
    let start = |&state| Configuration { done: 0, state, puts: 0, removes: 0 };
    let mut search = Search {
        plan,
        now: 0,
        item_at: [0; SLOTS as usize],
        slot_of: vec![0; plan.items.len()],
        running: RunningOperations::default(),
        lasting_puts: 0,
        lasting_removes: 0,
        configurations: plan.starts.iter().map(start).collect(),
        steps: 0,
        limits: *limits,
    };
    let result = search.run().unwrap_or_else(SearchResult::LimitExceeded);
    limits.steps = limits.steps.saturating_sub(search.steps);
    result
}

fn bits(mut mask: u128) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let bit = (mask != 0).then(|| mask.trailing_zeros() as u8);
        mask &= mask.wrapping_sub(1);
        bit
    })
}

impl Search<'_> {
    /// Goes through all events.
    fn run(&mut self) -> Result<SearchResult, LimitExceeded> {
        let plan = self.plan;
        for (now, event) in (0..).zip(&plan.events) {
            self.now = now;
            let result = if event.is_return { self.end(event.item) } else { self.begin(event.item) };
            result?;
            if self.configurations.is_empty() {
                return Ok(SearchResult::Stuck(event.item));
            }
        }
        Ok(SearchResult::Order)
    }

    fn role(&self, slot: u8) -> Effect {
        self.plan.items[self.item_at[usize::from(slot)] as usize].role
    }

    /// An operation is called.
    fn begin(&mut self, item: u32) -> Result<(), LimitExceeded> {
        let plan = self.plan;
        let entry = &plan.items[item as usize];
        match (entry.role, entry.returned) {
            (Effect::MaybePut, u64::MAX) => self.lasting_puts += 1,
            (Effect::MaybeRemove, u64::MAX) => self.lasting_removes += 1,
            (role, _) => {
                let slot = self.running.taken.trailing_ones();
                if slot == SLOTS {
                    return Err(LimitExceeded::TooManyAtOnce);
                }
                self.take(slot as u8, item, role);
                let value = match role {
                    Effect::Change(_, KeyState::Value(value)) | Effect::MaybePutNamed(value) => Some(value),
                    _ => None,
                };
                if let Some(state) = value.map(KeyState::Value) {
                    // A value that exists at the start was put by this operation, before the window.
                    let matching = self.configurations.iter_mut().filter(|configuration| configuration.state == state);
                    matching.for_each(|configuration| configuration.done |= 1 << slot);
                }
                if let Effect::ReadOnly(_) | Effect::Overwrite = role {
                    self.settle_all();
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, slot: u8, item: u32, role: Effect) {
        let bit = 1 << slot;
        self.running.taken |= bit;
        self.item_at[usize::from(slot)] = item;
        self.slot_of[item as usize] = slot;
        let (mask, queue) = self.running.of(role);
        mask.into_iter().for_each(|mask| *mask |= bit);
        let end = |slot: u8| self.plan.items[self.item_at[usize::from(slot)] as usize].returned;
        if let Some(queue) = queue {
            let at = queue.partition_point(|other| end(*other) <= end(slot));
            queue.insert(at, slot);
        }
    }

    /// An operation has returned. It has taken effect, or it may have.
    fn end(&mut self, item: u32) -> Result<(), LimitExceeded> {
        let slot = self.slot_of[item as usize];
        let (bit, role) = (1_u128 << slot, self.role(slot));
        let waiting = self.configurations.iter().copied().filter(|configuration| configuration.done & bit == 0);
        let waiting: Vec<Configuration> = waiting.collect();
        if role.is_sure() {
            self.configurations.retain(|configuration| configuration.done & bit != 0);
        }
        self.advance(waiting, bit)?;
        self.running.taken &= !bit;
        let (mask, queue) = self.running.of(role);
        mask.into_iter().for_each(|mask| *mask &= !bit);
        queue.into_iter().for_each(|queue| queue.retain(|other| *other != slot));
        self.configurations.iter_mut().for_each(|configuration| configuration.done &= !bit);
        self.steps += self.configurations.len() as u64;
        reduce(&mut self.configurations);
        self.within_limits(self.configurations.len())
    }

    /// Continues from `layer` until the operation of `target` has taken effect, and adds the results. Removes
    /// duplicates early, so that they neither use memory nor count.
    fn advance(&mut self, mut layer: Vec<Configuration>, target: u128) -> Result<(), LimitExceeded> {
        let max_configurations = self.limits.configurations.saturating_mul(MAX_GROWTH);
        let (mut moved, mut next) = (Vec::new(), Vec::new());
        while !layer.is_empty() {
            self.steps += 1;
            for configuration in layer.drain(..) {
                self.moves(configuration, target, &mut moved);
                self.steps += moved.len() as u64;
                for configuration in moved.drain(..) {
                    let is_reached = configuration.done & target != 0;
                    if is_reached { &mut self.configurations } else { &mut next }.push(configuration);
                }
                if next.len() + self.configurations.len() > max_configurations {
                    reduce(&mut next);
                    reduce(&mut self.configurations);
                    self.within_limits(next.len().max(self.configurations.len()))?;
                }
            }
            reduce(&mut next);
            self.within_limits(next.len())?;
            std::mem::swap(&mut layer, &mut next);
        }
        Ok(())
    }

    fn within_limits(&self, configurations: usize) -> Result<(), LimitExceeded> {
        if configurations > self.limits.configurations {
            return Err(LimitExceeded::TooManyConfigurations);
        }
        if self.steps > self.limits.steps { Err(LimitExceeded::TooManySteps) } else { Ok(()) }
    }

    /// The configurations after the next effect. An operation that may or may not have happened takes effect only if
    /// another operation then finds the state that it needs.
    fn moves(&self, from: Configuration, target: u128, moved: &mut Vec<Configuration>) {
        if let KeyState::Value(value) = from.state
            && self.plan.last_sight[value as usize] > self.now
        {
            return; // an operation that sees it is still to be called
        }
        self.changes(from, true, moved);
        let RunningOperations { reads_absent, reads_present, reads_of_value, overwriting, .. } = self.running;
        let reads = reads_absent | reads_present | reads_of_value | overwriting;
        // Present becomes absent, and absent becomes present. If a write was refused under a condition with a value, another value may
        // also replace it.
        let turned = if from.state == KeyState::Absent { KeyState::Present } else { KeyState::Absent };
        let is_replaced = matches!(from.state, KeyState::Value(_)) && self.plan.has_refusals;
        let states = [Some(turned), is_replaced.then_some(KeyState::Present)].into_iter().flatten();
        for next in states.filter_map(|state| self.maybe(from, state)) {
            let seen = next.done & !from.done & (reads | target) != 0;
            if seen {
                moved.push(next);
            } else {
                self.changes(next, false, moved);
            }
        }
    }

    /// Adds to `moved` the configurations after every change that finds the state that it needs. Includes changes that need
    /// no state if `include_any` is set.
    fn changes(&self, from: Configuration, include_any: bool, moved: &mut Vec<Configuration>) {
        for slot in bits(self.running.changes_of_value & !from.done) {
            let (needed, to) = match self.role(slot) {
                Effect::Change(needed, to) => (needed, to),
                Effect::MaybePutNamed(value) => (Need::Any, KeyState::Value(value)),
                _ => continue,
            };
            if needed.holds(from.state) && (include_any || needed != Need::Any) {
                moved.push(self.after(from, slot, to));
            }
        }
        let mut push = |queue, to| moved.extend(first(queue, &from).map(|slot| self.after(from, slot, to)));
        match from.state {
            KeyState::Absent => push(&self.running.creates, KeyState::Present),
            KeyState::Present | KeyState::Value(_) => {
                push(&self.running.removes, KeyState::Absent);
                push(&self.running.overwrites, KeyState::Present);
            }
        }
    }

    fn after(&self, mut configuration: Configuration, slot: u8, state: KeyState) -> Configuration {
        configuration.done |= 1 << slot;
        configuration.state = state;
        self.settle(&mut configuration);
        configuration
    }

    /// The configuration after an operation that may have happened, a put or a remove, which leaves this state.
    fn maybe(&self, from: Configuration, state: KeyState) -> Option<Configuration> {
        let is_put = state == KeyState::Present;
        let queue = if is_put { &self.running.may_put } else { &self.running.may_remove };
        if let Some(slot) = first(queue, &from) {
            return Some(self.after(from, slot, state));
        }
        let mut next = Configuration { state, ..from };
        let (used, lasting) =
            if is_put { (&mut next.puts, self.lasting_puts) } else { (&mut next.removes, self.lasting_removes) };
        if *used >= lasting {
            return None;
        }
        *used += 1;
        self.settle(&mut next);
        Some(next)
    }

    fn settle_all(&mut self) {
        let mut configurations = std::mem::take(&mut self.configurations);
        configurations.iter_mut().for_each(|configuration| self.settle(configuration));
        self.configurations = configurations;
    }

    /// Applies every operation that changes nothing and finds what it needs. Merges a value that no later operation names
    /// with other such values.
    fn settle(&self, configuration: &mut Configuration) {
        for slot in bits(self.running.reads_of_value & !configuration.done) {
            if let Effect::ReadOnly(need) = self.role(slot)
                && need.holds(configuration.state)
            {
                configuration.done |= 1 << slot;
            }
        }
        match configuration.state {
            KeyState::Absent => configuration.done |= self.running.reads_absent,
            KeyState::Present | KeyState::Value(_) => configuration.done |= self.running.reads_present,
        }
        if let KeyState::Value(value) = configuration.state
            && !self.is_named(value, configuration.done)
        {
            configuration.state = KeyState::Present;
        }
        // Another overwriting of such a value changes nothing. If writes were refused, it may rather wait for a value.
        if configuration.state == KeyState::Present && !self.plan.has_refusals {
            configuration.done |= self.running.overwriting;
        }
    }

    /// Whether an operation that has not taken effect names the value.
    fn is_named(&self, value: u32, done: u128) -> bool {
        self.plan.last_named[value as usize] > self.now
            || bits((self.running.reads_of_value | self.running.changes_of_value) & !done)
                .any(|slot| self.role(slot).named() == Some(value))
    }
}

/// The first slot of `queue` that has not taken effect.
fn first(queue: &[u8], configuration: &Configuration) -> Option<u8> {
    queue.iter().copied().find(|slot| configuration.done & (1 << slot) == 0)
}

/// Removes duplicates, and configurations that have used more puts or removes than one that is equal otherwise.
fn reduce(configurations: &mut Vec<Configuration>) {
    if configurations.len() < 2 {
        return;
    }
    configurations.sort_unstable();
    let mut last: Option<Configuration> = None;
    configurations.retain(|&next| {
        // Equal configurations are sorted by puts. A later one is worth keeping only if it has used fewer removes.
        let is_redundant =
            last.is_some_and(|last| (last.done, last.state) == (next.done, next.state) && last.removes <= next.removes);
        if !is_redundant {
            last = Some(next);
        }
        !is_redundant
    });
}
