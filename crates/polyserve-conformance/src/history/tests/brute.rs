//! Small random histories: the checker agrees with a search that tries every order.

use polyserve_core::{Conditional, Put, Removed};

use super::{
    Action, CheckVerdict, Draws, History, Operation, ReadValue, applied, cases, check, drawn_condition, unanswered,
};

/// Returns whether the operations have an order. Tries every order. An operation that is `sure` takes effect. Other
/// operations may be left out. The answer of a `weak` operation is ignored.
fn has_order(operations: &[Operation], weak: &[bool]) -> bool {
    fn go_on(operations: &[Operation], weak: &[bool], taken: u32, state: Option<u64>) -> bool {
        let is_sure = |i: usize| !weak[i] && !operations[i].is_unknown();
        let is_taken = |i: usize| taken & (1 << i) != 0;
        let all = || 0..operations.len();
        if all().all(|i| is_taken(i) || !is_sure(i)) {
            return true;
        }
        all().any(|i| {
            let after = |other: usize| operations[other].end() < operations[i].called;
            let before = |other: usize| operations[i].end() < operations[other].called;
            let may_be_next = !is_taken(i)
                && all().all(|other| is_taken(other) || other == i || !is_sure(other) || !after(other))
                && all().all(|other| !is_taken(other) || !before(other));
            may_be_next
                && effect(operations[i].action, is_sure(i), state)
                    .is_some_and(|state| go_on(operations, weak, taken | (1 << i), state))
        })
    }
    go_on(operations, weak, 0, None)
}

/// The state after an operation. `None` if its answer is impossible. The condition of an operation that is not sure is
/// ignored.
fn effect(action: Action, is_sure: bool, state: Option<u64>) -> Option<Option<u64>> {
    if is_sure {
        let (right, left) = applied(action, state);
        return (right == action).then_some(left);
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
        let (right, left) = applied(drawn(draws, n), state);
        let is_unknown = draws.below(8) == 0;
        // An operation without an answer may not have happened.
        if !is_unknown || draws.below(2) == 0 {
            state = left;
        }
        let action = if is_unknown { unanswered(right) } else { right };
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
    let one = &mut operations[draws.below(count) as usize];
    match (draws.below(3), one.action) {
        (0, _) => one.returned = one.called + draws.below(5),
        (1, _) => (one.called, one.returned) = (one.called + 15, one.returned.max(one.called + 15)),
        (_, Action::Get(_)) => {
            let seen = draws.below(count + 1);
            one.action = Action::Get(Some(if seen == 0 { ReadValue::Absent } else { ReadValue::Value(seen) }));
        }
        (_, Action::Put(value, put)) => {
            one.action = Action::Put(value, Some(if put == Some(Put::Created) { Put::Replaced } else { Put::Created }));
        }
        (_, Action::Remove(answer)) => {
            let other = if answer == Some(Removed::Absent) { Removed::Removed } else { Removed::Absent };
            one.action = Action::Remove(Some(other));
        }
        (_, Action::PutIf(value, condition, put)) => {
            let other = [Conditional::Refused, Conditional::Done(Put::Created), Conditional::Done(Put::Replaced)];
            let other = other.into_iter().filter(|other| put != Some(*other)).nth(draws.below(2) as usize);
            one.action = Action::PutIf(value, condition, other);
        }
        (_, Action::RemoveIf(condition, removed)) => {
            let other = [Conditional::Refused, Conditional::Done(Removed::Removed), Conditional::Done(Removed::Absent)];
            let other = other.into_iter().filter(|other| removed != Some(*other)).nth(draws.below(2) as usize);
            one.action = Action::RemoveIf(condition, other);
        }
    }
}

/// Asserts that the checker is right about these operations. Returns whether they have an order.
fn compared(operations: &[Operation]) -> bool {
    let has = has_order(operations, &vec![false; operations.len()]);
    match check(&History::new(operations.to_vec()).unwrap()) {
        CheckVerdict::Linearizable => assert!(has, "passes, and has no order: {operations:#?}"),
        CheckVerdict::NotLinearizable(violation) => {
            assert!(!has, "fails, and has an order: {operations:#?}\n{violation}");
            // The operations that are shown have no order, whatever the others did.
            let weak: Vec<bool> = operations.iter().map(|one| !violation.core.contains(one)).collect();
            assert!(!has_order(operations, &weak), "what is shown proves nothing: {operations:#?}\n{violation}");
            assert!(violation.core.iter().all(|one| operations.contains(one)) && !violation.core.is_empty());
        }
        CheckVerdict::Undecided(_, why) => panic!("{why}: {operations:#?}"),
    }
    has
}

#[test]
fn it_agrees_with_brute_force() {
    let mut draws = Draws(0x5eed);
    let (mut right, mut wrong) = (0, 0);
    for _ in 0..cases(10_000) {
        *if compared(&nonsense(&mut draws)) { &mut right } else { &mut wrong } += 1;
        let mut operations = sensible(&mut draws);
        assert!(compared(&operations), "it happened: {operations:#?}");
        for _ in 0..2 {
            mutate(&mut draws, &mut operations);
            *if compared(&operations) { &mut right } else { &mut wrong } += 1;
        }
    }
    assert!(right > 0 && wrong > 0, "both were tried: {right} have an order, {wrong} have none");
}
