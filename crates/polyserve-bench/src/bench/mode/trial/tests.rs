use super::*;
use crate::statistics::{Estimate, Interval};

fn tally(faster: usize, slower: usize, tie: usize, too_few: usize) -> TrialTally {
    let mut tally = TrialTally::default();
    let estimate = Estimate { ratio: 1.0, interval: Interval { low: 0.9, high: 1.1 }, rounds: 10 };
    let mut count = |compared: Option<Compared>| {
        let sample = Sample { role: Role::Ranked, figures: figures_of(compared, None) };
        tally.count(&sample, figures::THROUGHPUT_RATIO, THROUGHPUT_VERDICT);
    };
    let verdicts = [Verdict::Faster, Verdict::Slower, Verdict::Tie, Verdict::TooFewRounds];
    for (times, verdict) in [faster, slower, tie, too_few].into_iter().zip(verdicts) {
        (0..times).for_each(|_| count(Some(Compared { estimate, verdict, min_difference: None })));
    }
    count(None);
    tally
}

fn trial(slowed: Option<f64>, times: usize, throughput: TrialTally) -> Trial {
    let mode = TrialMode { slowed, ..TrialMode::default() };
    let (median_rounds, cost) = (Some(10.0), TrialTally::default());
    Trial { name: "any".into(), times, mode, median_rounds, throughput, cost }
}

const SLOWED: Option<f64> = Some(5.0);

#[test]
fn an_instrument_that_sees_what_is_not_there_or_not_what_is_there_fails() {
    let passed = |slowed, times, [faster, slower, tie]: [usize; 3]| {
        trial(slowed, times, tally(faster, slower, tie, 0)).is_passed()
    };
    assert!(passed(None, 100, [2, 3, 95]) && !passed(None, 100, [3, 3, 94]));
    assert!(passed(SLOWED, 20, [0, 16, 4]) && !passed(SLOWED, 20, [0, 15, 5]));
    assert!(!passed(SLOWED, 20, [20, 0, 0]) && !passed(SLOWED, 20, [0, 0, 0]));
}

/// A comparison that stops when it is sure must not take more than half of the rounds to find a difference.
#[test]
fn an_early_end_that_comes_late_fails() {
    let of = |slowed: Option<f64>, median_rounds, stops_when_sure| {
        let found = if slowed.is_some() { tally(0, 20, 0, 0) } else { tally(0, 0, 20, 0) };
        let mode = TrialMode { slowed, stops_when_sure, comparison_rounds: 50, ..TrialMode::default() };
        Trial { mode, median_rounds: Some(median_rounds), ..trial(slowed, 20, found) }
    };
    assert!(of(SLOWED, 25.0, true).is_passed());
    assert!(!of(SLOWED, 26.0, true).is_passed());
    assert!(of(SLOWED, 50.0, false).is_passed(), "a fixed number of rounds");
    assert!(of(None, 50.0, true).is_passed(), "equal servers take all rounds");
    let late = TrialResult { trials: vec![of(SLOWED, 26.0, true)], interrupted: false }.answer();
    assert!(late.contains("in 25 rounds") && late.contains("FAILED"), "{late}");
}

#[test]
fn an_incomplete_trial_fails() {
    assert!(!trial(None, 10, tally(0, 0, 0, 0)).is_passed(), "nothing was compared");
    assert!(!trial(None, 10, tally(0, 0, 9, 0)).is_passed(), "a comparison is missing");
    assert!(!trial(None, 10, tally(0, 0, 0, 10)).is_passed(), "nothing was decided");
    assert!(trial(SLOWED, 10, tally(0, 9, 0, 1)).is_passed(), "one comparison was not decided");
    assert!(!trial(SLOWED, 10, tally(0, 7, 0, 3)).is_passed(), "three were not decided");
    let result = |interrupted| TrialResult { trials: vec![trial(None, 10, tally(0, 0, 10, 0))], interrupted };
    assert!(result(false).is_passed() && !result(true).is_passed(), "ended early");
    assert!(!TrialResult { trials: Vec::new(), interrupted: false }.is_passed());
    assert_eq!(result(false).table().rows().len(), 1 + 2, "throughput and cost");
}

/// The percentage is of CPU time, so the copy has the same name with the percentage.
#[test]
fn each_figure_of_a_comparison_is_registered() {
    let estimate = Estimate { ratio: 1.0, interval: Interval { low: 0.9, high: 1.1 }, rounds: 10 };
    let compared = Some(Compared { estimate, verdict: Verdict::Tie, min_difference: None });
    let figures = figures_of(compared, compared);
    assert_eq!(figures.len(), 5);
    assert!(figures.keys().all(|name| figures::NamedFigure::named(name).is_some()), "{figures:?}");
}
