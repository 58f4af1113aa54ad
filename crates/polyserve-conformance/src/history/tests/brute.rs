//! Small random histories: the checker agrees with a search that tries every order.

use super::{
    Call, CallAnswer, CheckVerdict, Draws, History, Operation, Precondition, applied, cases, check, drawn_condition,
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
                && effect(&operations[i], is_sure(i), state)
                    .is_some_and(|state| extend(operations, weak, taken | (1 << i), state))
        })
    }
    extend(operations, weak, 0, None)
}

/// The state after an operation. `None` if its answer is impossible. The condition of an operation that is not sure is
/// ignored.
fn effect(operation: &Operation, is_sure: bool, state: Option<u64>) -> Option<Option<u64>> {
    let &Operation { call, condition, answer, .. } = operation;
    if is_sure {
        let (right, next_state) = applied(call, condition, state);
        return (answer == Some(right)).then_some(next_state);
    }
    Some(match (call, answer) {
        (Call::Get, _) => state,
        // Its answer says that it changed nothing, and no other answer shows it.
        (Call::Remove, Some(CallAnswer::Absent | CallAnswer::Refused)) => state,
        (Call::Put(value), _) => Some(value),
        (Call::Remove, _) => None,
    })
}

/// A call, and its condition if it has one. A put has the value `n`; a condition names a value up to `values`.
fn drawn(draws: &mut Draws, n: u64, values: u64) -> (Call, Option<Precondition>) {
    match draws.below(8) {
        0 | 1 => (Call::Get, None),
        2 | 3 => (Call::Put(n), None),
        4 => (Call::Remove, None),
        5 | 6 => (Call::Put(n), Some(drawn_condition(draws, values))),
        _ => (Call::Remove, Some(drawn_condition(draws, values))),
    }
}

/// An answer that the operation may have, other than the one that it has.
fn other_answer(draws: &mut Draws, operation: &Operation, values: u64) -> CallAnswer {
    let found = CallAnswer::Found(1 + draws.below(values));
    let mut answers = match operation.call {
        Call::Get => vec![CallAnswer::Absent, found, found],
        Call::Put(_) => vec![CallAnswer::Created, CallAnswer::Replaced],
        Call::Remove => vec![CallAnswer::Removed, CallAnswer::Absent],
    };
    if operation.condition.is_some() {
        answers.push(CallAnswer::Refused);
    }
    answers.retain(|other| operation.answer != Some(*other));
    let count = answers.len() as u64;
    if count == 0 { CallAnswer::Absent } else { answers[draws.below(count) as usize] }
}

/// Random operations of one key, most of which have no order.
fn nonsense(draws: &mut Draws) -> Vec<Operation> {
    let count = 1 + draws.below(7);
    let mut operations = Vec::new();
    for n in 1..=count {
        let called = draws.below(14);
        let (returned, (call, condition)) = (called + draws.below(8), drawn(draws, n, count));
        let mut operation = Operation { process: n as u32, key: 1, call, condition, answer: None, called, returned };
        if draws.below(8) > 0 {
            operation.answer = Some(other_answer(draws, &operation, count));
        }
        operations.push(operation);
    }
    operations
}

/// Operations that took effect on one key in sequence. The call and the return of each are around that time.
fn sensible(draws: &mut Draws) -> Vec<Operation> {
    let (mut state, mut operations) = (None, Vec::new());
    for n in 1..=1 + draws.below(7) {
        let at = n * 10;
        let (call, condition) = drawn(draws, n, n);
        let (answer, next_state) = applied(call, condition, state);
        let is_unknown = draws.below(8) == 0;
        // An operation without an answer may not have happened.
        if !is_unknown || draws.below(2) == 0 {
            state = next_state;
        }
        let answer = Some(answer).filter(|_| !is_unknown);
        let (called, returned) = (at - draws.below(10).min(at), at + draws.below(40));
        operations.push(Operation { process: n as u32, key: 1, call, condition, answer, called, returned });
    }
    operations
}

/// Changes one operation.
fn mutate(draws: &mut Draws, operations: &mut [Operation]) {
    let count = operations.len() as u64;
    let op = &mut operations[draws.below(count) as usize];
    match draws.below(3) {
        0 => op.returned = op.called + draws.below(5),
        1 => (op.called, op.returned) = (op.called + 15, op.returned.max(op.called + 15)),
        _ => op.answer = Some(other_answer(draws, op, count)),
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
