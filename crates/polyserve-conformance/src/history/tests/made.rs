//! Long histories that are right by construction, and the same histories with one wrong answer.

use polyserve_core::{Put, Removed};

use super::{Action, CheckVerdict, Draws, History, Operation, ReadValue, check, passes};

/// Operations of several clients that took effect in sequence at the instants 100, 200, ... The call and the return of
/// each are up to `reach` before and after. Some answers are lost.
fn made(draws: &mut Draws, count: u64, keys: u64, reach: u64, losses: bool) -> Vec<Operation> {
    let mut states = vec![None; keys as usize];
    let mut operations = Vec::new();
    for n in 1..=count {
        let (at, key) = (reach + n * 100, draws.below(keys));
        let state = &mut states[key as usize];
        let lost = losses && draws.below(200) == 0;
        let mut action = match draws.below(10) {
            0..5 => Action::Get(Some(state.map_or(ReadValue::Absent, ReadValue::Value))),
            5..8 => Action::Put(n, Some(if state.is_some() { Put::Replaced } else { Put::Created })),
            _ => Action::Remove(Some(if state.is_some() { Removed::Removed } else { Removed::Absent })),
        };
        if !lost || draws.below(2) == 0 {
            match action {
                Action::Get(_) => {}
                Action::Put(value, _) => *state = Some(value),
                Action::Remove(_) => *state = None,
            }
        }
        if lost {
            action = match action {
                Action::Get(_) => Action::Get(None),
                Action::Put(value, _) => Action::Put(value, None),
                Action::Remove(_) => Action::Remove(None),
            };
        }
        let (called, returned) = (at - draws.below(reach + 1), at + draws.below(reach + 1));
        operations.push(Operation { process: (n % 8) as u32, key: key as i64, action, called, returned });
    }
    operations
}

/// From operations that rarely overlap to two dozen at a time.
#[test]
fn what_happened_passes() {
    let mut draws = Draws(7);
    for reach in [0, 10, 300, 800, 1_200] {
        for losses in [false, true] {
            for keys in [1, 5] {
                let operations = made(&mut draws, 4_000, keys, reach, losses);
                let history = History::new(operations).unwrap();
                assert!(passes(&history), "reach {reach}, {keys} keys, losses {losses}");
                assert_eq!(history.overlaps() > 0, reach > 50, "reach {reach}");
            }
        }
    }
}

#[test]
fn a_hundred_thousand_of_one_key_pass() {
    let history = History::new(made(&mut Draws(8), 100_000, 1, 400, false)).unwrap();
    assert!(passes(&history));
}

/// A get of a value that was replaced long before is found in a long history, and few other operations are shown.
#[test]
fn one_wrong_answer_is_found() {
    let mut draws = Draws(9);
    for losses in [false, true] {
        for _ in 0..20 {
            let mut operations = made(&mut draws, 5_000, 3, 300, losses);
            let place = 4_000 + draws.below(1_000) as usize;
            let old = operations[..500].iter().find_map(|one| match one.action {
                Action::Put(value, Some(_)) if one.key == operations[place].key => Some(value),
                _ => None,
            });
            let seen = Action::Get(Some(ReadValue::Value(old.unwrap())));
            let (key, returned) = (operations[place].key, operations[place].returned);
            // If a put is replaced by a get, its own value must not be seen elsewhere.
            operations.push(Operation { process: 9, key, action: seen, called: operations[place].called, returned });
            let CheckVerdict::NotLinearizable(violation) = check(&History::new(operations).unwrap()) else {
                panic!("a value of 3 500 operations ago passes")
            };
            assert!(violation.core.iter().any(|one| one.action == seen), "{violation}");
            assert!(violation.core.len() <= 8, "{violation}");
        }
    }
}
