//! The operations of one key in the form that the search uses: the state that each needs and leaves, its begin and its
//! end.
//!
//! Invariant: if an order explains the operations, the same order explains the plan. So if the plan has no order, the
//! operations have none. This also holds for the plan of a window, and for a plan with weaker conditions for some
//! operations.
//!
//! Three rules make the search small, and none removes an order:
//!
//! * Values are unique. Once a key has a value, nothing may replace it until the last get that sees it has been
//!   called. A value that no get sees is like any other such value: [`KeyState::Present`].
//! * If no get sees the value of a replacement, the replacement only requires that the key has a value.
//! * An operation that may or may not have taken effect matters only if a key must be present and is absent, or the
//!   reverse. A put is different if a get saw its value: the put took effect before the first such get returned.

use std::collections::HashMap;

use polyserve_core::{Put, Removed};

use super::{Action, Operation, ReadValue};

/// The state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum KeyState {
    /// Nothing is there.
    Absent,
    /// There is a value that no later get sees.
    Present,
    /// The key has the value with this number, an index of [`SearchPlan::last_get`].
    Value(u32),
}

/// What an operation needs to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Any,
    Absent,
    Present,
    Value(u32),
}

/// The effect of an operation in the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It needs this state and changes nothing.
    ReadOnly(Need),
    /// It needs the first state and leaves the second.
    Change(Need, KeyState),
    /// It may have put a value that no get saw.
    MaybePut,
    /// It may have removed the entity.
    MaybeRemove,
}

/// An operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) role: Effect,
    /// When it was called.
    pub(super) called: u64,
    /// The latest time of its effect. `u64::MAX` means at any time, or never.
    pub(super) returned: u64,
    /// Its place among the key's operations.
    pub(super) place: u32,
}

/// The begin or the end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OperationEvent {
    pub(super) at: u64,
    /// At one instant calls come first: operations with equal stamps overlap.
    pub(super) is_return: bool,
    pub(super) item: u32,
}

/// Operations to be ordered.
#[derive(Debug, Default)]
pub(super) struct SearchPlan {
    pub(super) items: Vec<Item>,
    pub(super) events: Vec<OperationEvent>,
    /// For each value, the event that is the call of the last get that sees it.
    pub(super) last_get: Vec<u32>,
    /// The possible states of the key at the start.
    pub(super) starts: Vec<KeyState>,
}

/// The operations of one key, sorted by their calls.
pub(super) struct Register<'a> {
    pub(super) operations: &'a [Operation],
    /// The place of every value's put.
    pub(super) puts: HashMap<u64, u32>,
}

/// A part of a key's operations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// The window excludes operations that ended before this time. The key may have any state at this time. `None` means
    /// from the start, when the key was absent.
    pub(super) from: Option<u64>,
    /// The window excludes operations that begin after this time. Operations that end after it need not have taken
    /// effect.
    pub(super) until: u64,
}

impl Window {
    pub(super) const WHOLE: Self = Self { from: None, until: u64::MAX };

    /// Whether the window has every operation.
    pub(super) fn is_whole(&self) -> bool {
        (self.from, self.until) == (None, u64::MAX)
    }

    /// Whether an operation begins before the window's begin.
    fn begins_before(&self, operation: &Operation) -> bool {
        self.from.is_none_or(|from| from <= operation.called)
    }

    /// Whether a part of an operation is in the window.
    pub(super) fn meets(&self, operation: &Operation) -> bool {
        operation.called <= self.until && self.from.is_none_or(|from| from <= operation.end())
    }
}

/// A value that a get in the window returned.
struct Used {
    number: u32,
    /// When the first of these gets returned.
    first_return: u64,
}

impl<'a> Register<'a> {
    pub(super) fn new(operations: &'a [Operation]) -> Self {
        let mut puts = HashMap::new();
        for (place, operation) in (0..).zip(operations) {
            if let Action::Put(value, _) = operation.action {
                puts.insert(value, place);
            }
        }
        Self { operations, puts }
    }

    /// The plan of a window. A `weak` operation may have taken effect while it ran, and its answer is ignored. A weak
    /// get is left out.
    pub(super) fn plan(&self, window: &Window, weak: impl Fn(usize) -> bool) -> SearchPlan {
        let mut plan = SearchPlan::default();
        let places = || {
            let all = self.operations.iter().enumerate();
            all.filter(|(_, operation)| window.meets(operation))
        };
        let mut used: HashMap<u64, Used> = HashMap::new();
        for (place, operation) in places() {
            let Action::Get(Some(ReadValue::Value(value))) = operation.action else { continue };
            if !weak(place) && is_whole(window, operation) {
                let number = used.len() as u32;
                let used = used.entry(value).or_insert(Used { number, first_return: u64::MAX });
                used.first_return = used.first_return.min(operation.returned);
            }
        }
        for (place, operation) in places() {
            let strict = !weak(place) && !operation.is_unknown() && window.begins_before(operation);
            let Some((role, returned)) = role(window, operation, strict, &used) else { continue };
            let returned = if returned > window.until { u64::MAX } else { returned };
            plan.items.push(Item { role, called: operation.called, returned, place: place as u32 });
        }
        plan.starts = self.starts(window, &used);
        plan.order(used.len());
        plan
    }

    /// The possible states of the key when the window begins.
    fn starts(&self, window: &Window, used: &HashMap<u64, Used>) -> Vec<KeyState> {
        let Some(from) = window.from else { return vec![KeyState::Absent] };
        let put_before =
            |value: &u64| self.puts.get(value).is_some_and(|&put| self.operations[put as usize].called < from);
        let values = used.iter().filter(|(value, _)| put_before(value)).map(|(_, used)| KeyState::Value(used.number));
        [KeyState::Absent, KeyState::Present].into_iter().chain(values).collect()
    }
}

/// Whether the whole of an operation is in the window.
fn is_whole(window: &Window, operation: &Operation) -> bool {
    window.begins_before(operation) && operation.returned <= window.until
}

/// An operation's role in the search and the latest time of its effect. `None` if it restricts no order.
fn role(window: &Window, operation: &Operation, strict: bool, used: &HashMap<u64, Used>) -> Option<(Effect, u64)> {
    let end = operation.end();
    let read_only = |need| Some((Effect::ReadOnly(need), end)).filter(|_| strict && is_whole(window, operation));
    match operation.action {
        Action::Get(None) => None,
        Action::Get(Some(ReadValue::Absent)) | Action::Remove(Some(Removed::Absent)) => read_only(Need::Absent),
        Action::Get(Some(ReadValue::Value(value))) => read_only(Need::Value(used.get(&value)?.number)),
        Action::Put(value, put) => {
            let need = match put {
                Some(Put::Created) if strict => Need::Absent,
                Some(Put::Replaced) if strict => Need::Present,
                _ => Need::Any,
            };
            match (used.get(&value), need) {
                // The put took effect before a get returned its value.
                (Some(used), Need::Any) => {
                    let by = end.min(used.first_return).max(operation.called);
                    Some((Effect::Change(Need::Any, KeyState::Value(used.number)), by))
                }
                (Some(used), _) => Some((Effect::Change(need, KeyState::Value(used.number)), end)),
                (None, Need::Any) => Some((Effect::MaybePut, end)),
                (None, Need::Absent) => Some((Effect::Change(need, KeyState::Present), end)),
                (None, _) => read_only(Need::Present),
            }
        }
        Action::Remove(Some(Removed::Removed)) if strict => {
            Some((Effect::Change(Need::Present, KeyState::Absent), end))
        }
        Action::Remove(_) => Some((Effect::MaybeRemove, end)),
    }
}

impl SearchPlan {
    /// Sorts the events, and finds the last get of each value.
    fn order(&mut self, values: usize) {
        self.events = Vec::with_capacity(self.items.len() * 2);
        for (number, item) in (0..).zip(&self.items) {
            self.events.push(OperationEvent { at: item.called, is_return: false, item: number });
            if item.returned != u64::MAX {
                self.events.push(OperationEvent { at: item.returned, is_return: true, item: number });
            }
        }
        self.events.sort_unstable();
        self.last_get = vec![0; values];
        for (place, event) in (0..).zip(&self.events) {
            if let (false, Effect::ReadOnly(Need::Value(value))) =
                (event.is_return, self.items[event.item as usize].role)
            {
                self.last_get[value as usize] = place;
            }
        }
    }
}
