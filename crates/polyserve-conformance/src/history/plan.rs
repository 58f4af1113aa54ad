//! The operations of one key in the form that the search uses: the state that each needs and leaves, its begin and its
//! end.
//!
//! Invariant: if an order explains the operations, the same order explains the plan. So if the plan has no order, the
//! operations have none. This also holds for the plan of a window, and for a plan with weaker conditions for some
//! operations.
//!
//! An operation sees a value if it is a get that returned it, or a write that was done under a condition with it. An
//! operation names a value if it sees it, or was refused under a condition with it.
//!
//! Three rules make the search small, and none removes an order:
//!
//! * Values are unique. Once a key has a value, nothing may replace it until the last operation that sees it has been
//!   called. A value that no operation names is like any other such value: [`KeyState::Present`].
//! * If no operation names the value of a replacement, the replacement only requires that the key has a value. It matters
//!   only if it takes away a value under which a write was refused: [`Effect::Overwrite`].
//! * An operation that may or may not have taken effect matters only if a key must be present and is absent, or the
//!   reverse, or has a value under which a write was refused. A put is different if an operation saw its value: the put
//!   took effect before the first such operation returned.
//!
//! A condition counts if the operation was answered and is whole in the window. Otherwise the operation counts as one
//! without a condition, which has more orders.

use std::collections::HashMap;

use super::{Call, CallAnswer, Operation, Precondition};

/// The state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum KeyState {
    /// Nothing is there.
    Absent,
    /// There is a value that no later operation names.
    Present,
    /// The key has the value with this number, an index of [`SearchPlan::last_sight`].
    Value(u32),
}

/// What an operation needs to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Any,
    Absent,
    Present,
    Value(u32),
    /// Nothing, or another value than this.
    NotValue(u32),
    /// Another value than this.
    OtherValue(u32),
    /// The answer is impossible.
    Never,
}

impl Need {
    /// Whether an operation with this need may take effect in this state.
    pub(super) fn holds(self, state: KeyState) -> bool {
        match self {
            Self::Any => true,
            Self::Absent => state == KeyState::Absent,
            Self::Present => state != KeyState::Absent,
            Self::Value(value) => state == KeyState::Value(value),
            Self::NotValue(value) => state != KeyState::Value(value),
            Self::OtherValue(value) => state != KeyState::Absent && state != KeyState::Value(value),
            Self::Never => false,
        }
    }

    /// The value that an operation with this need sees.
    fn sight(self) -> Option<u32> {
        if let Self::Value(value) = self { Some(value) } else { None }
    }

    /// The value that an operation with this need names.
    fn named(self) -> Option<u32> {
        match self {
            Self::Value(value) | Self::NotValue(value) | Self::OtherValue(value) => Some(value),
            Self::Any | Self::Absent | Self::Present | Self::Never => None,
        }
    }
}

/// The effect of an operation in the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It needs this state and changes nothing.
    ReadOnly(Need),
    /// It needs the first state and leaves the second.
    Change(Need, KeyState),
    /// It needs a value, and leaves one that no operation names.
    Overwrite,
    /// It may have put a value that no operation names.
    MaybePut,
    /// It may have put this value, which no operation saw.
    MaybePutNamed(u32),
    /// It may have removed the entity.
    MaybeRemove,
}

impl Effect {
    /// Whether the operation certainly takes effect.
    pub(super) fn is_sure(self) -> bool {
        matches!(self, Self::ReadOnly(_) | Self::Change(..) | Self::Overwrite)
    }

    fn need(self) -> Option<Need> {
        if let Self::ReadOnly(need) | Self::Change(need, _) = self { Some(need) } else { None }
    }

    /// The value that the operation names.
    pub(super) fn named(self) -> Option<u32> {
        self.need().and_then(Need::named)
    }
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
    /// For each value, the event that is the call of the last operation that sees it.
    pub(super) last_sight: Vec<u32>,
    /// For each value, the event that is the call of the last operation that names it.
    pub(super) last_named: Vec<u32>,
    /// Whether a write was refused under a condition with a value.
    pub(super) has_refusals: bool,
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

/// A value that an operation in the window names.
struct NamedValue {
    number: u32,
    /// When the first operation that sees it returned. `u64::MAX` if no operation does.
    first_return: u64,
}

impl NamedValue {
    fn is_seen(&self) -> bool {
        self.first_return != u64::MAX
    }
}

type NamedValues = HashMap<u64, NamedValue>;

impl<'a> Register<'a> {
    pub(super) fn new(operations: &'a [Operation]) -> Self {
        let mut puts = HashMap::new();
        for (place, operation) in (0..).zip(operations) {
            if let Some(value) = operation.put_value() {
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
        let mut named = NamedValues::new();
        for (place, operation) in places() {
            let Some((value, is_seen)) = named_by_answer(operation) else { continue };
            if !weak(place) && is_whole(window, operation) {
                let number = named.len() as u32;
                let value = named.entry(value).or_insert(NamedValue { number, first_return: u64::MAX });
                let sight = if is_seen { operation.returned } else { u64::MAX };
                value.first_return = value.first_return.min(sight);
            }
        }
        for (place, operation) in places() {
            let is_strict = !weak(place) && !operation.is_unknown() && window.begins_before(operation);
            let context = RoleContext { named: &named, is_strict, is_whole: is_strict && is_whole(window, operation) };
            let Some((role, returned)) = context.role(operation) else { continue };
            let returned = if returned > window.until { u64::MAX } else { returned };
            plan.items.push(Item { role, called: operation.called, returned, place: place as u32 });
        }
        plan.starts = self.starts(window, &named);
        plan.order(named.len());
        plan
    }

    /// The possible states of the key when the window begins.
    fn starts(&self, window: &Window, named: &NamedValues) -> Vec<KeyState> {
        let Some(from) = window.from else { return vec![KeyState::Absent] };
        let put_before =
            |value: &u64| self.puts.get(value).is_some_and(|&put| self.operations[put as usize].called < from);
        let values = named.iter().filter(|(value, _)| put_before(value));
        let values = values.map(|(_, named)| KeyState::Value(named.number));
        [KeyState::Absent, KeyState::Present].into_iter().chain(values).collect()
    }
}

/// Whether the whole of an operation is in the window.
fn is_whole(window: &Window, operation: &Operation) -> bool {
    window.begins_before(operation) && operation.returned <= window.until
}

/// The value that the answer to an operation names, and whether the operation sees the value.
fn named_by_answer(operation: &Operation) -> Option<(u64, bool)> {
    match (operation.answer?, operation.condition) {
        (CallAnswer::Found(value), _)
        | (CallAnswer::Replaced | CallAnswer::Removed, Some(Precondition::Value(value))) => Some((value, true)),
        (CallAnswer::Refused, Some(Precondition::Value(value))) => Some((value, false)),
        _ => None,
    }
}

/// What determines the role of an operation, besides the operation.
struct RoleContext<'a> {
    named: &'a NamedValues,
    /// Whether its answer counts.
    is_strict: bool,
    /// Whether its answer counts and it took effect in the window.
    is_whole: bool,
}

impl RoleContext<'_> {
    /// An operation's role in the search and the latest time of its effect. `None` if it restricts no order.
    fn role(&self, operation: &Operation) -> Option<(Effect, u64)> {
        let end = operation.end();
        match (operation.call, operation.answer) {
            (Call::Put(value), _) => self.put(operation, value),
            (Call::Remove, _) => self.remove(operation),
            (Call::Get, Some(CallAnswer::Found(value))) => self.read_only(Need::Value(self.number(value)?), end),
            (Call::Get, Some(_)) => self.read_only(Need::Absent, end),
            (Call::Get, None) => None,
        }
    }

    fn put(&self, operation: &Operation, value: u64) -> Option<(Effect, u64)> {
        let end = operation.end();
        let need = match (operation.answer, operation.condition) {
            _ if !self.is_strict => Need::Any,
            (None, _) => Need::Any,
            (Some(CallAnswer::Refused), Some(Precondition::Absent)) => return self.read_only(Need::Present, end),
            (Some(CallAnswer::Refused), Some(Precondition::Present)) => return self.read_only(Need::Absent, end),
            (Some(CallAnswer::Refused), Some(Precondition::Value(value))) => {
                return self.read_only(Need::NotValue(self.number(value)?), end);
            }
            (Some(CallAnswer::Created), None | Some(Precondition::Absent)) => Need::Absent,
            (Some(CallAnswer::Replaced), None | Some(Precondition::Present)) => Need::Present,
            (Some(CallAnswer::Replaced), Some(Precondition::Value(value))) => self.seen(value),
            (Some(_), _) => Need::Never,
        };
        let named = self.named.get(&value);
        let role = match (named, need) {
            // The put took effect before an operation that saw its value returned.
            (Some(named), Need::Any) if named.is_seen() => {
                let by = end.min(named.first_return).max(operation.called);
                return Some((Effect::Change(Need::Any, KeyState::Value(named.number)), by));
            }
            (Some(named), Need::Any) => Effect::MaybePutNamed(named.number),
            (None, Need::Any) => Effect::MaybePut,
            (Some(named), _) => Effect::Change(need, KeyState::Value(named.number)),
            (None, Need::Present) => Effect::Overwrite,
            (None, _) => Effect::Change(need, KeyState::Present),
        };
        Some((role, end))
    }

    fn remove(&self, operation: &Operation) -> Option<(Effect, u64)> {
        let end = operation.end();
        let need = match (operation.answer, operation.condition) {
            (Some(CallAnswer::Absent), _) => return self.read_only(Need::Absent, end),
            (Some(CallAnswer::Refused), Some(Precondition::Absent)) => return self.read_only(Need::Present, end),
            (Some(CallAnswer::Refused), Some(Precondition::Value(value))) => {
                return self.read_only(self.number(value).map_or(Need::Any, Need::OtherValue), end);
            }
            (Some(CallAnswer::Refused), _) => return self.read_only(Need::Never, end),
            (None, _) => return Some((Effect::MaybeRemove, end)),
            (Some(_), _) if !self.is_strict => return Some((Effect::MaybeRemove, end)),
            (Some(_), None | Some(Precondition::Present)) => Need::Present,
            (Some(_), Some(Precondition::Absent)) => Need::Never,
            (Some(_), Some(Precondition::Value(value))) => self.seen(value),
        };
        Some((Effect::Change(need, KeyState::Absent), end))
    }

    /// The role of an operation that changed nothing. It restricts no order unless it is whole.
    fn read_only(&self, need: Need, end: u64) -> Option<(Effect, u64)> {
        self.is_whole.then_some((Effect::ReadOnly(need), end))
    }

    /// What a write that was done under a condition with this value needs.
    fn seen(&self, value: u64) -> Need {
        let number = self.number(value).filter(|_| self.is_whole);
        number.map_or(Need::Present, Need::Value)
    }

    fn number(&self, value: u64) -> Option<u32> {
        self.named.get(&value).map(|named| named.number)
    }
}

impl SearchPlan {
    /// Sorts the events, and finds the last operations that see and name each value.
    fn order(&mut self, values: usize) {
        self.events = Vec::with_capacity(self.items.len() * 2);
        for (number, item) in (0..).zip(&self.items) {
            self.events.push(OperationEvent { at: item.called, is_return: false, item: number });
            if item.returned != u64::MAX {
                self.events.push(OperationEvent { at: item.returned, is_return: true, item: number });
            }
        }
        self.events.sort_unstable();
        (self.last_sight, self.last_named) = (vec![0; values], vec![0; values]);
        for (place, event) in (0..).zip(&self.events).filter(|(_, event)| !event.is_return) {
            let Some(need) = self.items[event.item as usize].role.need() else { continue };
            if let Some(value) = need.sight() {
                self.last_sight[value as usize] = place;
            }
            if let Some(value) = need.named() {
                self.last_named[value as usize] = place;
                self.has_refusals |= need.sight().is_none();
            }
        }
    }
}
