//! Small random histories: the checker agrees with a search that tries every order.

use polyserve_core::{Conditional, Put, Removed};

use super::{
    Action, CheckVerdict, Draws, History, Operation, ReadValue, applied, cases, check, drawn_condition, unanswered,
};

/// Returns whether the operations have an order. Tries every order. An operation that is `sure` takes effect. Other
/// operations may be left out. The answer of a `weak` operation is ignored.
fn has_order(operations: &[Operation], weak: &[bool]) -> bool {
    fn extend(operations: &[Operation], weak: &[bool], taken: u32, state: Option<u64>) -> bool {
        let is_sure = |i: usize| !weak[i] && !operations[i].is_unknown();
        let is_taken = |i: usize| taken & (1 << i) != 0;
        let indices = || 0..operations.len();
        if indices().all(|i| is_taken(i) || !is_sure(i)) {
            return true;
        }
        indices().any(|i| {
            let after = |other: usize| operations[other].end() < operations[i].called;
            let before = |other: usize| operations[i].end() < operations[other].called;
            let may_be_next = !is_taken(i)
                && indices().all(|other| is_taken(other) || other == i || !is_sure(other) || !after(other))
                && indices().all(|other| !is_taken(other) || !before(other));
            may_be_next
                && effect(operations[i].action, is_sure(i), state)
                    .is_some_and(|state| extend(operations, weak, taken | (1 << i), state))
        })
    }
    extend(operations, weak, 0, None)
}

/// The state after an operation. `None` if its answer is impossible. The condition of an operation that is not sure is
/// ignored.
fn effect(action: Action, is_sure: bool, state: Option<u64>) -> Option<Option<u64>> {
    if is_sure {
        let (answered, next_state) = applied(action, state);
        return (answered == action).then_some(next_state);
    }
    Some(match action {
        Action::Get(_) => state,
        // Its answer says that it changed nothing, and no other answer shows it.
        Action::Remove(Some(Removed::Absent))
        | Action::RemoveIf(_, Some(Conditional::Done(Removed::Absent) | Conditional::Refused)) => state,
        Action::Put(value, _) | Action::PutIf(value, ..) => Some(value),
        Action::Remove(_) | Action::RemoveIf(..) => None,
    })
}

/// Random operations of one key, most of which have no order.
fn nonsense(draws: &mut Draws) -> Vec<Operation> {
    let count = 1 + draws.below(7);
    let mut operations = Vec::new();
    for n in 1..=count {
        let called = draws.below(14);
        let returned = called + draws.below(8);
        let is_unknown = draws.below(8) == 0;
        let put = if draws.below(2) == 0 { Put::Created } else { Put::Replaced };
        let removed = if draws.below(2) == 0 { Removed::Removed } else { Removed::Absent };
        let is_refused = draws.below(2) == 0;
        let action = match draws.below(10) {
            0 => Action::Get(Some(ReadValue::Absent)),
            1 | 2 => Action::Get(Some(ReadValue::Value(1 + draws.below(count)))),
            3 | 4 => Action::Put(n, Some(put)),
            5 => Action::Remove(Some(removed)),
            6 | 7 => {
                let put = if is_refused { Conditional::Refused } else { Conditional::Done(put) };
                Action::PutIf(n, drawn_condition(draws, count), Some(put))
            }
            _ => {
                let removed = if is_refused { Conditional::Refused } else { Conditional::Done(removed) };
                Action::RemoveIf(drawn_condition(draws, count), Some(removed))
            }
        };
        let action = if is_unknown { unanswered(action) } else { action };
        operations.push(Operation { process: n as u32, key: 1, action, called, returned });
    }
    operations
}

/// Operations that took effect on one key in sequence. The call and the return of each are around that time.
fn sensible(draws: &mut Draws) -> Vec<Operation> {
    let (mut state, mut operations) = (None, Vec::new());
    for n in 1..=1 + draws.below(7) {
        let at = n * 10;
        let (answered, next_state) = applied(drawn(draws, n), state);
        let is_unknown = draws.below(8) == 0;
        // An operation without an answer may not have happened.
        if !is_unknown || draws.below(2) == 0 {
            state = next_state;
        }
        let action = if is_unknown { unanswered(answered) } else { answered };
        let (called, returned) = (at - draws.below(10).min(at), at + draws.below(40));
        operations.push(Operation { process: n as u32, key: 1, action, called, returned });
    }
    operations
}

/// An operation without its answer. A put has the value `n`.
fn drawn(draws: &mut Draws, n: u64) -> Action {
    match draws.below(8) {
        0 | 1 => Action::Get(None),
        2 | 3 => Action::Put(n, None),
        4 => Action::Remove(None),
        5 | 6 => Action::PutIf(n, drawn_condition(draws, n), None),
        _ => Action::RemoveIf(drawn_condition(draws, n), None),
    }
}

/// Changes one operation.
fn mutate(draws: &mut Draws, operations: &mut [Operation]) {
    let count = operations.len() as u64;
    let op = &mut operations[draws.below(count) as usize];
    match (draws.below(3), op.action) {
        (0, _) => op.returned = op.called + draws.below(5),
        (1, _) => (op.called, op.returned) = (op.called + 15, op.returned.max(op.called + 15)),
        (_, Action::Get(_)) => {
            let seen = draws.below(count + 1);
            op.action = Action::Get(Some(if seen == 0 { ReadValue::Absent } else { ReadValue::Value(seen) }));
        }
        (_, Action::Put(value, put)) => {
            op.action = Action::Put(value, Some(if put == Some(Put::Created) { Put::Replaced } else { Put::Created }));
        }
        (_, Action::Remove(answer)) => {
            let other = if answer == Some(Removed::Absent) { Removed::Removed } else { Removed::Absent };
            op.action = Action::Remove(Some(other));
        }
        (_, Action::PutIf(value, condition, put)) => {
            let other = [Conditional::Refused, Conditional::Done(Put::Created), Conditional::Done(Put::Replaced)];
            let other = other.into_iter().filter(|other| put != Some(*other)).nth(draws.below(2) as usize);
            op.action = Action::PutIf(value, condition, other);
        }
        (_, Action::RemoveIf(condition, removed)) => {
            let other = [Conditional::Refused, Conditional::Done(Removed::Removed), Conditional::Done(Removed::Absent)];
            let other = other.into_iter().filter(|other| removed != Some(*other)).nth(draws.below(2) as usize);
            op.action = Action::RemoveIf(condition, other);
        }
    }
}

/// Asserts that the checker is right about these operations. Returns whether they have an order.
fn compared(operations: &[Operation]) -> bool {
    let is_ordered = has_order(operations, &vec![false; operations.len()]);
    match check(&History::new(operations.to_vec()).unwrap()) {
        CheckVerdict::Linearizable => assert!(is_ordered, "passes, and has no order: {operations:#?}"),
        CheckVerdict::NotLinearizable(violation) => {
            assert!(!is_ordered, "fails, and has an order: {operations:#?}\n{violation}");
            // The operations that are shown have no order, whatever the others did.
            let weak: Vec<bool> = operations.iter().map(|op| !violation.core.contains(op)).collect();
            assert!(!has_order(operations, &weak), "what is shown proves nothing: {operations:#?}\n{violation}");
            assert!(violation.core.iter().all(|op| operations.contains(op)) && !violation.core.is_empty());
        }
        CheckVerdict::Undecided(_, why) => panic!("{why}: {operations:#?}"),
    }
    is_ordered
}

#[test]
fn it_agrees_with_brute_force() {
    let mut draws = Draws(0x5eed);
    let (mut ordered, mut unordered) = (0, 0);
    for _ in 0..cases(10_000) {
        *if compared(&nonsense(&mut draws)) { &mut ordered } else { &mut unordered } += 1;
        let mut operations = sensible(&mut draws);
        assert!(compared(&operations), "it happened: {operations:#?}");
        for _ in 0..2 {
            mutate(&mut draws, &mut operations);
            *if compared(&operations) { &mut ordered } else { &mut unordered } += 1;
        }
    }
    assert!(ordered > 0 && unordered > 0, "both were tried: {ordered} have an order, {unordered} have none");
}
