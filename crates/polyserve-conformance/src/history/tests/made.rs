//! Long histories that are right by construction, and the same histories with one wrong answer.

use super::{
    Call, CallAnswer, CheckVerdict, Draws, History, Operation, Precondition, applied, check, drawn_condition, passes,
};

/// Operations of several clients that took effect in sequence at the instants 100, 200, ... The call and the return of
/// each are up to `reach` before and after. Some answers are lost.
fn generated(draws: &mut Draws, count: u64, keys: u64, reach: u64, [losses, conditions]: [bool; 2]) -> Vec<Operation> {
    let mut states = vec![None; keys as usize];
    let mut operations = Vec::new();
    for n in 1..=count {
        let (at, key) = (reach + n * 100, draws.below(keys));
        let state = &mut states[key as usize];
        let lost = losses && draws.below(200) == 0;
        let (call, is_conditional) = match draws.below(if conditions { 14 } else { 10 }) {
            0..5 => (Call::Get, false),
            5..8 => (Call::Put(n), false),
            8..10 => (Call::Remove, false),
            10..13 => (Call::Put(n), true),
            _ => (Call::Remove, true),
        };
        // Half of the conditions name the value that is there.
        let condition = is_conditional.then(|| condition(draws, n, *state));
        let (answer, next_state) = applied(call, condition, *state);
        if !lost || draws.below(2) == 0 {
            *state = next_state;
        }
        let answer = Some(answer).filter(|_| !lost);
        let (called, returned) = (at - draws.below(reach + 1), at + draws.below(reach + 1));
        let (process, key) = ((n % 8) as u32, key as i64);
        operations.push(Operation { process, key, call, condition, answer, called, returned });
    }
    operations
}

fn condition(draws: &mut Draws, n: u64, state: Option<u64>) -> Precondition {
    match state {
        Some(value) if draws.below(2) == 0 => Precondition::Value(value),
        _ => drawn_condition(draws, n),
    }
}

/// From operations that rarely overlap to two dozen at a time.
#[test]
fn what_happened_passes() {
    let mut draws = Draws(7);
    for reach in [0, 10, 300, 800, 1_200] {
        for options in [[false, false], [true, false], [false, true], [true, true]] {
            for keys in [1, 5] {
                let operations = generated(&mut draws, 4_000, keys, reach, options);
                let history = History::new(operations).unwrap();
                assert!(passes(&history), "reach {reach}, {keys} keys, losses and conditions {options:?}");
                assert_eq!(history.overlaps() > 0, reach > 50, "reach {reach}");
            }
        }
    }
}

#[test]
fn a_hundred_thousand_of_one_key_pass() {
    let history = History::new(generated(&mut Draws(8), 100_000, 1, 400, [false, true])).unwrap();
    assert!(passes(&history));
}

/// A get of a value that was replaced long before is found in a long history, and few other operations are shown.
#[test]
fn one_wrong_answer_is_found() {
    let mut draws = Draws(9);
    for options in [[false, false], [true, false], [false, true], [true, true]] {
        for _ in 0..20 {
            let mut operations = generated(&mut draws, 5_000, 3, 300, options);
            let place = 4_000 + draws.below(1_000) as usize;
            let Operation { key, called, returned, .. } = operations[place];
            let is_done = |op: &&Operation| op.key == key && op.condition.is_none() && op.answer.is_some();
            let old = operations[..500].iter().filter(is_done).find_map(Operation::put_value);
            // The get comes in addition: a put's own value must stay.
            let answer = Some(CallAnswer::Found(old.unwrap()));
            let stale = Operation { process: 9, key, call: Call::Get, condition: None, answer, called, returned };
            operations.push(stale);
            let CheckVerdict::NotLinearizable(violation) = check(&History::new(operations).unwrap()) else {
                panic!("a value of 3 500 operations ago passes")
            };
            assert!(violation.core.contains(&stale), "{violation}");
            assert!(violation.core.len() <= 8, "{violation}");
        }
    }
}
