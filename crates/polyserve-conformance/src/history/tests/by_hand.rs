//! Histories with a known verdict.

use super::{CheckVerdict, History, Operation, check, history, operation, passes};
use crate::history::plan::{Register, Window};
use crate::history::search::search;
use crate::history::{LimitExceeded, SearchLimits, check_within};

#[test]
fn what_has_an_order_passes() {
    let right: &[&[&str]] = &[
        &[],
        &[
            "0 get absent 0..10",
            "0 put 1 created 20..30",
            "0 get 1 40..50",
            "0 put 2 replaced 60..70",
            "0 get 2 80..90",
        ],
        &["0 remove absent 0..10", "0 put 1 created 20..30", "0 remove removed 40..50", "0 get absent 60..70"],
        // Concurrent operations may have either order, and gets during a put see either value.
        &["0 put 1 created 0..10", "0 put 2 replaced 20..40", "1 get 1 25..30", "2 get 2 25..30"],
        &["0 put 1 created 0..100", "1 put 2 replaced 0..100", "2 get 2 200..210"],
        &["0 put 1 created 0..100", "1 put 2 replaced 0..100", "2 get 1 50..60", "2 get 2 200..210"],
        // A get that returned before the put may have seen it.
        &["0 put 1 created 0..100", "1 get 1 10..20", "2 remove removed 30..40", "1 get absent 50..60"],
        // Equal stamps overlap.
        &["0 put 1 created 0..10", "1 get absent 10..10", "2 get 1 10..10"],
        // The operation that ends last may take effect first.
        &[
            "0 put 3 created 0..1000",
            "1 put 4 replaced 10..20",
            "2 get 4 30..40",
            "2 put 5 replaced 50..60",
            "1 get 5 70..80",
        ],
        // Two replacements of a value. No get sees their own values.
        &["0 put 1 created 0..10", "1 put 2 replaced 20..30", "2 put 3 replaced 20..30", "0 remove removed 40..50"],
        // Conditions: each that holds, and each that does not.
        &[
            "0 put 1 if absent created 0..10",
            "0 put 2 if absent refused 20..30",
            "0 put 3 if 1 replaced 40..50",
            "0 put 4 if 1 refused 60..70",
            "0 remove if 1 refused 80..90",
            "0 remove if 3 removed 100..110",
            "0 remove if 3 absent 120..130",
            "0 put 5 if present refused 140..150",
            "0 get absent 160..170",
        ],
        // A racing put decides which of two writes under one condition is done.
        &["0 put 1 created 0..10", "0 put 2 if 1 replaced 20..40", "1 put 3 if 1 refused 20..40", "0 get 2 50..60"],
        // A put without an answer may have replaced the value, and so may a put that no get saw.
        &["0 put 1 created 0..10", "1 put 2 unknown 20..", "0 remove if 1 refused 30..40"],
        &["0 put 1 created 0..10", "1 put 2 replaced 0..100", "0 put 3 if 1 refused 30..40"],
    ];
    right.iter().for_each(|lines| assert!(passes(&history(lines)), "{lines:?}"));
}

#[test]
fn a_history_without_an_order_fails_with_the_reason() {
    let wrong: &[(&[&str], &str)] = &[
        (&["0 get 1 0..10"], "client 0's get saw 1, which no client has put"),
        (&["0 get 1 0..10", "1 put 1 created 20..30"], "returned before client 1's put of 1 began"),
        // A stale read.
        (
            &["0 put 1 created 0..10", "0 put 2 replaced 20..30", "1 get 1 40..50"],
            "client 1's get saw 1, which client 0's put of 2 had replaced before it began",
        ),
        (&["0 put 1 created 0..10", "0 remove removed 20..30", "1 get 1 40..50"], "client 0's remove had removed"),
        (&["0 put 1 created 0..10", "1 get absent 20..30"], "client 1's get saw nothing"),
        // Two puts that both answer `created`, which only one can have done.
        (&["0 put 1 created 0..10", "1 put 2 created 0..10"], "found nothing there, and created"),
        (
            &["0 put 1 created 0..10", "0 remove removed 20..30", "1 remove removed 20..30"],
            "found something there, and removed it",
        ),
        // Two writes under the condition of one value, which both were done: an update is lost.
        (
            &["0 put 1 created 0..10", "0 put 2 if 1 replaced 20..40", "1 put 3 if 1 replaced 20..40"],
            "if 1 found something there, and replaced it",
        ),
        (&["0 put 1 created 0..10", "1 put 2 if 1 refused 20..30"], "client 1's put of 2 if 1 was refused"),
        (&["0 put 1 created 0..10", "1 remove if 1 refused 20..30"], "client 1's remove if 1 was refused"),
        (&["0 put 1 if absent replaced 0..10"], "put of 1 if absent found something there, and replaced it"),
        (&["0 put 1 if absent refused 0..10"], "put of 1 if absent was refused"),
        (&["0 put 1 if present refused 0..10", "1 get 1 20..30"], "client 1's get saw 1"),
        (&["0 put 1 replaced 0..10"], "found something there, and replaced it, which cannot be, by itself"),
        (&["0 remove removed 0..10"], "found something there"),
        (&["0 put 1 created 0..10", "1 remove absent 20..30"], "client 1's remove found nothing there"),
        // A lost update: the second put is gone.
        (
            &["0 put 1 created 0..10", "0 put 2 replaced 20..40", "1 put 3 replaced 50..60", "2 get 2 70..80"],
            "which client 1's put of 3 had replaced",
        ),
        // Two gets in sequence see two concurrent puts in the opposite order.
        (
            &["0 put 1 created 0..5", "0 put 2 replaced 10..99", "1 get 2 20..30", "2 get 1 40..50"],
            "client 2's get saw 1 after client 1's get had seen 2, which was put later.",
        ),
        (
            &[
                "0 put 1 created 0..5",
                "0 put 2 replaced 10..20",
                "1 put 3 replaced 10..20",
                "2 get 2 30..40",
                "3 get 3 50..60",
            ],
            "cannot be",
        ),
    ];
    for (lines, message) in wrong {
        let CheckVerdict::NotLinearizable(violation) = check(&history(lines)) else { panic!("passes: {lines:?}") };
        assert!(violation.to_string().contains(message), "{message:?}\n{violation}");
    }
}

#[test]
fn what_lost_its_answer_may_have_been_or_not() {
    let right: &[&[&str]] = &[
        &["0 put 1 unknown 0..", "1 get absent 10..20"],
        &["0 put 1 unknown 0..", "1 get 1 10..20"],
        // The effect may come long after the call.
        &["0 put 1 unknown 0..", "1 get absent 10..20", "1 put 2 created 30..40", "1 get 1 50..60", "1 get 1 70..80"],
        &["0 put 1 created 0..10", "0 remove unknown 20..", "1 get 1 30..40", "1 get absent 50..60"],
        &["0 put 1 unknown 0..", "1 put 2 replaced 10..20"],
        &["0 put 1 unknown 0..", "0 put 2 unknown 0..", "1 remove removed 10..20", "1 remove removed 30..40"],
        &["0 get unknown 0..", "1 get absent 10..20"],
        &["0 put 1 created 0..10", "0 remove unknown 20..", "1 put 2 created 30..40", "1 get 2 50..60"],
    ];
    right.iter().for_each(|lines| assert!(passes(&history(lines)), "{lines:?}"));
    let wrong: &[&[&str]] = &[
        // The effect does not come before the call, nor twice.
        &["1 get 1 0..10", "0 put 1 unknown 20.."],
        &["0 put 1 unknown 0..", "1 get 1 10..20", "1 get absent 30..40"],
        &["0 put 1 unknown 0..", "1 remove removed 10..20", "1 remove removed 30..40"],
        &["0 put 1 created 0..10", "0 remove unknown 20..", "1 put 2 created 30..40", "1 put 3 created 50..60"],
        &["0 put 1 unknown 0..", "1 get 1 10..20", "1 put 2 replaced 30..40", "1 get 1 50..60"],
    ];
    wrong.iter().for_each(|lines| assert!(!passes(&history(lines)), "{lines:?}"));
}

#[test]
fn keys_are_checked_apart() {
    let of_key = |key: i64, text: &str| Operation { key, ..operation(text) };
    let two_keys = |second: &str| {
        let first = ["0 put 1 created 0..10", "0 get 1 20..30"].map(|text| of_key(1, text));
        let second = ["1 get absent 5..15", second].map(|text| of_key(-7, text));
        History::new([first, second].concat()).unwrap()
    };
    assert!(passes(&two_keys("1 put 1 created 20..30")));
    let CheckVerdict::NotLinearizable(violation) = check(&two_keys("1 get 1 20..30")) else { panic!("it passes") };
    assert_eq!((violation.key, violation.core.len()), (-7, 1), "the value 1 is another key's");
}

/// A violation far into a long history is shown by the few operations that cause it.
#[test]
fn a_violation_is_small() {
    let mut operations = Vec::new();
    for turn in 0..20_000_u64 {
        let at = turn * 100;
        let value = turn + 1;
        let put = if turn == 0 { "created" } else { "replaced" };
        operations.push(operation(&format!("0 put {value} {put} {at}..{}", at + 60)));
        operations.push(operation(&format!("1 get {value} {}..{}", at + 50, at + 90)));
    }
    assert!(passes(&History::new(operations.clone()).unwrap()));
    let stale = operation("2 get 17000 1999980..1999990");
    operations.push(stale);
    let CheckVerdict::NotLinearizable(violation) = check(&History::new(operations).unwrap()) else {
        panic!("it passes")
    };
    assert_eq!((violation.of, violation.core.len()), (40_001, 2), "{violation}");
    assert!(violation.core.contains(&stale), "{violation}");
    let text = violation.to_string();
    assert!(text.contains("saw 17000, which client 0's put of") && text.lines().count() < 10, "{text}");
}

/// The searches of the minimiser share one limit. With a low limit more is shown, and it is still right.
#[test]
fn cutting_down_takes_no_more_than_a_search() {
    let mut operations = vec![operation("0 put 1 created 0..10"), operation("1 get 1 99980..99990")];
    for turn in 1..1_000_u64 {
        operations.push(operation(&format!("0 put {} replaced {}..{}", turn + 1, turn * 100, turn * 100 + 60)));
        operations.push(operation(&format!("2 get {} {}..{}", turn + 1, turn * 100 + 70, turn * 100 + 90)));
    }
    operations.sort_unstable_by_key(|operation| operation.called);
    let mut limits = SearchLimits::default();
    let _ = search(&Register::new(&operations).plan(&Window::WHOLE, |_| false), &mut limits);
    let taken = SearchLimits::default().steps - limits.steps;
    let history = History::new(operations).unwrap();
    let core_size = |steps: u64| match check_within(&history, &SearchLimits { steps, ..SearchLimits::default() }) {
        CheckVerdict::NotLinearizable(violation) => violation.core.len(),
        other => panic!("{other:?}"),
    };
    assert!(taken > 0 && core_size(taken) > 100, "{taken} steps show {}", core_size(taken));
    assert_eq!(core_size(SearchLimits::default().steps), 2);
    assert!(matches!(
        check_within(&history, &SearchLimits { steps: taken - 1, ..SearchLimits::default() }),
        CheckVerdict::Undecided(1, LimitExceeded::TooManySteps)
    ));
}

/// Ten replacements may have any order before a get that has no explanation. There are few sets of them that have
/// taken effect, and many ways to each set.
#[test]
fn what_is_there_twice_counts_once() {
    let mut operations = vec![operation("0 put 99 created 0..10"), operation("1 get absent 40..100")];
    for n in 1..=10 {
        operations.push(operation(&format!("2 put {n} replaced 20..{}", 1_000 + n)));
        operations.push(operation(&format!("3 get {n} 30..{}", 2_000 + n)));
    }
    let history = History::new(operations).unwrap();
    let within = |configurations| check_within(&history, &SearchLimits { configurations, ..SearchLimits::default() });
    // 252 is the number of ways to choose 5 of 10.
    assert!(matches!(within(252), CheckVerdict::NotLinearizable(_)));
    for few in [251, 50, 2] {
        let verdict = within(few);
        assert!(
            matches!(verdict, CheckVerdict::Undecided(1, LimitExceeded::TooManyConfigurations)),
            "{few}: {verdict:?}"
        );
    }
}

#[test]
fn what_is_too_much_is_no_verdict() {
    let put = |value: u64, place: u64| operation(&format!("0 put {value} replaced {place}..1000"));
    let crowd: Vec<Operation> =
        (1..=130).flat_map(|n| [put(n, 0), operation(&format!("1 get {n} {}..{}", 2 * n, 1000 + n))]).collect();
    assert!(matches!(check(&History::new(crowd).unwrap()), CheckVerdict::Undecided(1, LimitExceeded::TooManyAtOnce)));
    // Either put may come first.
    let lines = ["0 put 1 created 0..10", "1 put 2 replaced 20..100", "2 put 3 replaced 20..110"];
    let few = history(&[&lines[..], &["3 get 2 50..200", "4 get 3 50..200"]].concat());
    let limits = SearchLimits { configurations: 1, ..SearchLimits::default() };
    assert!(matches!(check_within(&few, &limits), CheckVerdict::Undecided(1, LimitExceeded::TooManyConfigurations)));
    let limits = SearchLimits { steps: 1, ..SearchLimits::default() };
    assert!(matches!(check_within(&few, &limits), CheckVerdict::Undecided(1, LimitExceeded::TooManySteps)));
    assert!(passes(&few));
}
