use std::path::Path;

use serde_json::json;

use super::*;
use crate::fixtures::latencies;
use crate::journal::read;
use crate::statistics::Verdict;

const FIXED: Intervals = Intervals::FixedRounds { seed: 1 };

/// The figures of a round with this throughput and this p99 in microseconds.
fn measurement(speed: f64, p99: u64) -> NamedFigures {
    let cpu_us = (speed > 0.0).then(|| 1e6 / (speed * 1.25));
    let closed_loop = [
        (figures::ANSWERED, Some(speed.floor())),
        (figures::REQUESTS_PER_S, Some(speed)),
        (figures::CPU_US, cpu_us),
        (figures::SERVER_CPU_S, Some(0.8)),
        (figures::CLIENT_CPU_S, Some(0.5)),
        (figures::SERVER_BUSY, Some(0.99)),
        (figures::CLIENT_BUSY, Some(0.5)),
        (figures::SERVER_IDLE_S, Some(0.01)),
        (figures::CLIENT_IDLE_S, Some(0.5)),
        (figures::SWITCHES, Some(0.1)),
        (figures::UNDER_WAY, Some(1.0)),
        (figures::FILLED_MEMORY, Some(1_000_000.0)),
        (figures::LOADED_MEMORY, Some(1_640_000.0)),
    ];
    figures::known(closed_loop).chain(latencies(p99 as f64)).collect()
}

/// An entry for these rounds. The figures live as long as the test process.
fn entry((name, role): (&str, Role), rounds: impl IntoIterator<Item = NamedFigures>) -> RankingEntry<'static> {
    let leaked = rounds.into_iter().map(|one| Some(&*Box::leak(Box::new(one))));
    RankingEntry { name: name.into(), role, bound: None, rounds: leaked.collect() }
}

/// Changes a figure.
fn set(one: &mut NamedFigures, figure: &str, value: f64) {
    one.insert(figure.to_owned(), value);
}

/// Multiplies a figure.
fn scale(one: &mut NamedFigures, figure: &str, factor: f64) {
    *one.get_mut(figure).unwrap() *= factor;
}

/// Changes the latencies to these.
fn set_p99(one: &mut NamedFigures, p99: u64) {
    one.extend(latencies(p99 as f64));
}

/// No request was answered at the rate, as it is recorded.
fn silence_latency(one: &mut NamedFigures) {
    one.retain(|name, _| ![figures::P50_US, figures::P99_US, figures::P999_US].contains(&name.as_str()));
}

/// Throughputs that vary together by a tenth of a per cent from round to round.
fn speeds(speed: f64) -> impl Iterator<Item = f64> {
    (0..12).map(move |round| speed * (1.0 + 0.001 * f64::from(round % 3)))
}

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../polyserve-cli/tests/fixtures/records/compare.jsonl");

#[test]
fn a_contestant_that_failed_has_no_row() {
    let mut lines = read(Path::new(RECORDED)).unwrap();
    lines.retain(|line| line["round"] != 2);
    let (ours, limit) = ("tokio_tcp/std_rwlock", "null_epoll");
    let failure =
        json!({"kind": "failure", "round": 2, "contestant": ours, "cell": {}, "reason": "failed", "why": "status 500"});
    lines.push(failure);
    let ranking = Ranking::of(&Records::of(&lines).unwrap()).unwrap();
    let failed: Vec<_> = ranking.failed.iter().map(|one| (one.round, one.name.as_str())).collect();
    assert_eq!(failed, [(2, ours), (0, "peer/bare_pool")]);
    let names: Vec<_> = ranking.rows.iter().map(|row| row.name.as_str()).collect();
    assert!(!names.contains(&ours) && names.contains(&limit), "{names:?}");
}

#[test]
fn rows_are_sorted_and_compared_with_the_baseline_of_the_same_round() {
    let [base, same, fast, slow, null] = [
        ("base", Role::Baseline),
        ("base again", Role::Same),
        ("fast", Role::Ranked),
        ("slow", Role::Slowed(5.0)),
        ("null", Role::Limit),
    ];
    // The machine halves its speed after six rounds. No ratio changes.
    let drift = |speed: f64| (0..12).map(move |round| measurement(if round < 6 { speed } else { speed / 2.0 }, 100));
    let entries = [
        entry(null, drift(2000.0)),
        entry(slow, drift(950.0)),
        entry(same, drift(1000.0)),
        entry(base, drift(1000.0)),
        entry(fast, drift(1100.0)),
    ];
    let ranking = Ranking::new(&entries, Some(64), FIXED, None);
    let names: Vec<_> = ranking.rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["fast", "base", "slow", "base again", "null"]);
    let verdicts: Vec<_> = ranking.rows.iter().map(|row| row.throughput.unwrap().verdict).collect();
    assert_eq!(verdicts, [Verdict::Faster, Verdict::Tie, Verdict::Slower, Verdict::Tie, Verdict::Faster]);
    let fast = &ranking.rows[0];
    assert!((fast.ratio() - 1.1).abs() < 1e-9 && (fast.shares[0].throughput.unwrap().ratio - 0.55).abs() < 1e-9);
    assert!((fast.shares[0].cost.unwrap().ratio - 0.55).abs() < 1e-9, "{:?}", fast.shares);
    assert_eq!((fast.shares[0].of.as_str(), fast.bytes_per_connection), ("null", Some(10_000.0)));
    assert_eq!((fast.saturated.as_str(), fast.cost_void), ("server", None));
    assert!(ranking.rows[4].shares.is_empty(), "a limit has no share of itself");
    assert_eq!((ranking.baseline.as_str(), ranking.rounds), ("base", 12));
}

#[test]
fn without_the_second_entry_of_the_baseline_nothing_is_different() {
    let (base, fast) = (("base", Role::Baseline), ("fast", Role::Ranked));
    let rounds = |speed| speeds(speed).map(|speed| measurement(speed, 100));
    let ranking = Ranking::new(&[entry(base, rounds(1000.0)), entry(fast, rounds(5000.0))], Some(64), FIXED, None);
    assert_eq!(ranking.rows[0].throughput.unwrap().verdict, Verdict::TooFewRounds);
    assert_eq!(ranking.rows.iter().map(|row| row.rank).collect::<Vec<_>>(), [Some(1), Some(1)]);
    assert!(ranking.bands.throughput.is_none());
}

#[test]
fn rounds_that_one_of_both_lacks_are_left_out() {
    let (base, other) = (("base", Role::Baseline), ("other", Role::Ranked));
    let mut entries = [
        entry(base, speeds(1000.0).map(|speed| measurement(speed, 100))),
        entry(other, speeds(1000.0).map(|speed| measurement(speed, 100))),
    ];
    entries[1].rounds[3] = None;
    entries[1].rounds.truncate(10);
    let ranking = Ranking::new(&entries, Some(64), FIXED, None);
    let other = ranking.rows.iter().find(|row| row.name == "other").unwrap().throughput.unwrap();
    assert_eq!((other.estimate.rounds, other.verdict), (9, Verdict::TooFewRounds));
}

/// Each entry of the baseline is as far from their mean as the other. A difference needs an interval without 1.
#[test]
fn a_ranking_that_may_end_early_has_both_entries_of_the_baseline_as_its_baseline() {
    let roles = [("base", Role::Baseline), ("same", Role::Same), ("own", Role::Ranked)];
    // The entries differ by 4 % in turn, so neither is faster.
    let noisy = |speed: f64, sign: f64| {
        (0..12).map(move |round| measurement(speed * 1.02_f64.powf(if round % 2 == 0 { sign } else { -sign }), 100))
    };
    let of = |speed: f64, rounds: usize| {
        let speeds = [(1000.0, 1.0), (1000.0, -1.0), (speed, 0.0)];
        let entries =
            roles.iter().zip(speeds).map(|(role, (speed, sign))| entry(*role, noisy(speed, sign).take(rounds)));
        entries.collect::<Vec<_>>()
    };
    let verdict = |entries: &[RankingEntry<'_>]| {
        let ranking = Ranking::new(entries, Some(64), Intervals::AnyRounds, None);
        let own = ranking.rows.iter().find(|row| row.name == "own").unwrap().throughput.unwrap();
        (own.verdict, (own.estimate.ratio * 1000.0).round())
    };
    for (speed, rounds, expected, sure) in [
        (900.0, 12, Verdict::Slower, true),
        (1100.0, 10, Verdict::Faster, true),
        (1100.0, 9, Verdict::TooFewRounds, false),
        (1000.0, 12, Verdict::Tie, false),
    ] {
        let entries = of(speed, rounds);
        assert_eq!(verdict(&entries), (expected, speed), "{speed}");
        assert_eq!(is_sure(&entries), sure, "{speed} in {rounds} rounds");
    }
    // A second entry that is always slower than the first one: nothing is sure.
    let mut entries = of(900.0, 12);
    entries[1] = entry(roles[1], speeds(800.0).map(|speed| measurement(speed, 100)));
    assert!(!verdict(&entries).0.is_different());
    assert!(!is_sure(&entries));
}

/// The row of "own" compared with "base", each changed.
fn changed(own: &dyn Fn(&mut NamedFigures), base: &dyn Fn(&mut NamedFigures)) -> RankingRow {
    let contestants = [("base", Role::Baseline), ("own", Role::Ranked)];
    let rounds = |change: &dyn Fn(&mut NamedFigures)| {
        let rounds = speeds(1000.0).map(|speed| {
            let mut one = measurement(speed, 100);
            change(&mut one);
            one
        });
        rounds.collect::<Vec<_>>().into_iter()
    };
    let entries = [entry(contestants[0], rounds(base)), entry(contestants[1], rounds(own))];
    let rows = Ranking::new(&entries, Some(64), FIXED, None).rows;
    rows.into_iter().find(|row| row.name == "own").unwrap()
}

fn cheaper(one: &mut NamedFigures) {
    scale(one, figures::CPU_US, 1.0 / 1.5);
}

#[test]
fn a_cost_counts_only_if_nothing_was_gained_by_waiting() {
    let void = |change: &dyn Fn(&mut NamedFigures)| changed(change, &|_| {}).cost_void;
    assert_eq!(void(&|_| {}), None);
    let idle = void(&|one| set(one, figures::SERVER_IDLE_S, 0.2));
    assert!(
        matches!(idle, Some(Void::Idle { side: Side::Own, busy: Some(busy) }) if (busy - 0.8).abs() < 1e-9),
        "{idle:?}"
    );
    assert_eq!(
        void(&|one| {
            one.remove(figures::SERVER_CPU_S);
        }),
        Some(Void::Idle { side: Side::Own, busy: None })
    );
    let slow = void(&|one| scale(one, figures::REQUESTS_PER_S, 0.9));
    assert!(matches!(slow, Some(Void::Throughput { side: Side::Own, low }) if (low - 0.9).abs() < 1e-6), "{slow:?}");
    assert_eq!(
        void(&|one| {
            one.remove(figures::RATE_PER_S);
        }),
        Some(Void::NoLatency)
    );
    let overloaded = Some(Void::Overloaded { side: Side::Own });
    assert_eq!(void(&|one| set(one, figures::BEHIND, 0.1)), overloaded);
    let late = void(&|one| set_p99(one, 130));
    assert!(matches!(late, Some(Void::Latency { side: Side::Own, ratio }) if (ratio - 1.3).abs() < 0.01), "{late:?}");
}

/// A baseline that lets requests pile up, and therefore answers late, makes no other contestant look expensive.
#[test]
fn a_baseline_that_gains_by_waiting_makes_no_cost_count() {
    let void = |change: &dyn Fn(&mut NamedFigures)| {
        let base = |one: &mut NamedFigures| {
            cheaper(one);
            change(one);
        };
        let row = changed(&|_| {}, &base);
        assert!(row.cost.unwrap().estimate.ratio < 0.7, "{row:?}");
        row.cost_void
    };
    assert_eq!(void(&|_| {}), None);
    let slow = void(&|one| scale(one, figures::REQUESTS_PER_S, 0.9));
    assert!(matches!(slow, Some(Void::Throughput { side: Side::Other, .. })), "{slow:?}");
    let late = void(&|one| set_p99(one, 130));
    assert!(matches!(late, Some(Void::Latency { side: Side::Other, ratio }) if (ratio - 1.3).abs() < 0.01), "{late:?}");
    // The expensive contestant is slower and later. That is no reason to doubt its cost.
    let both = |one: &mut NamedFigures| {
        scale(one, figures::REQUESTS_PER_S, 0.5);
        set_p99(one, 200);
    };
    assert_eq!(changed(&both, &cheaper).cost_void, None);
}

/// The p99 of a short slice varies: a few late rounds do not show that a server wins by waiting, nor that it does not.
#[test]
fn a_p99_with_an_interval_that_reaches_too_high_is_undecided() {
    let (base, own) = (("base", Role::Baseline), ("own", Role::Ranked));
    let late = (0..12).map(|round| measurement(1000.0, if round % 2 == 0 { 200 } else { 105 }));
    let entries = [entry(base, (0..12).map(|_| measurement(1000.0, 100))), entry(own, late)];
    let rows = Ranking::new(&entries, Some(64), FIXED, None).rows;
    let row = rows.iter().find(|row| row.name == "own").unwrap();
    let p99 = row.p99.unwrap();
    assert!(p99.ratio > MAX_LATENCY && p99.interval.low < MAX_LATENCY, "{p99:?}");
    let undecided = Some(Void::LatencyUndecided { side: Side::Own, high: p99.interval.high });
    assert_eq!(row.cost_void, undecided);
    let early = (0..12).map(|round| measurement(1000.0, if round % 2 == 0 { 115 } else { 105 }));
    let entries = [entry(base, (0..12).map(|_| measurement(1000.0, 100))), entry(own, early)];
    let rows = Ranking::new(&entries, Some(64), FIXED, None).rows;
    assert!(rows.iter().all(|row| row.cost_void.is_none()), "{rows:?}");
}

/// Regression test: a round without an answer was left out, as if it had not been measured.
#[test]
fn rounds_without_an_answer_are_the_worst() {
    let (base, own) = (("base", Role::Baseline), ("own", Role::Ranked));
    let silent = (0..12).map(|round| {
        let mut one = measurement(if round == 0 { 2000.0 } else { 0.0 }, 50);
        if round > 0 {
            silence_latency(&mut one);
        }
        one
    });
    let like_base = || (0..12).map(|_| measurement(1000.0, 100));
    let entries = [entry(base, like_base()), entry(("same", Role::Same), like_base()), entry(own, silent)];
    let rows = Ranking::new(&entries, Some(64), FIXED, None).rows;
    assert_eq!(rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["base", "own", "same"]);
    let (throughput, p99) = (rows[1].throughput.unwrap(), rows[1].p99.unwrap());
    assert_eq!((throughput.estimate.ratio, throughput.estimate.rounds), (0.0, 12));
    assert_eq!(throughput.verdict, Verdict::Slower);
    let cost = rows[1].cost.unwrap();
    assert_eq!((cost.estimate.ratio, cost.estimate.rounds, cost.verdict), (0.0, 12, Verdict::Slower));
    assert!(p99.ratio > 1e3 && p99.rounds == 12, "{p99:?}");
}

/// A round in which another process had the cores counts as one.
#[test]
fn an_overloaded_server_is_so_in_most_rounds() {
    let overloaded = |behind: [f64; 5]| {
        let all = behind.map(|behind| {
            let mut one = measurement(1000.0, 100);
            set(&mut one, figures::BEHIND, behind);
            one
        });
        entry(("any", Role::Ranked), all).usual_latencies().unwrap().overloaded
    };
    assert!(!overloaded([0.0, 5.0, 0.0, 5.0, 0.005]) && overloaded([0.0, 0.02, 0.0, 0.02, 0.02]));
}

/// Regression test: the latencies of all rounds together were shown, so one disturbed round was the p99.
#[test]
fn one_disturbed_round_is_not_the_p99() {
    let all = [100, 110, 54_000, 90, 120].map(|p99_us| measurement(1000.0, p99_us));
    let ranking = Ranking::new(&[entry(("any", Role::Baseline), all)], None, FIXED, None);
    assert_eq!(ranking.rows[0].latency.unwrap().p99_us, 110.0);
}

/// The interval of the p99 decides whether the goal is met. In all rounds together, a twelfth of the requests took 90 ms.
#[test]
fn a_disturbed_round_does_not_miss_the_goal_and_a_p99_may_be_too_near_to_tell() {
    let of = |contestants: &[(&str, f64)], p99_in: &dyn Fn(usize, &str) -> u64| {
        let roles = [Role::Baseline, Role::Ranked];
        let entry = |((name, speed), role): (&(&str, f64), Role)| {
            entry((name, role), (0..12).map(|round| measurement(*speed, p99_in(round, name))))
        };
        let entries: Vec<RankingEntry<'_>> = contestants.iter().zip(roles).map(entry).collect();
        let ranking = Ranking::new(&entries, None, FIXED, Some(5000.0));
        let rows = ranking.rows.iter().map(|row| (row.name.clone(), row.meets_goal)).collect::<Vec<_>>();
        (rows, ranking.goal_met)
    };
    let both = [("a", 1000.0), ("b", 1500.0)];
    let (rows, met) = of(&both, &|round, name| {
        if round == 3 {
            90_000
        } else if name == "a" {
            1000
        } else {
            2000
        }
    });
    assert_eq!((rows, met), (vec![("b".into(), Some(true)), ("a".into(), Some(true))], Some(true)));
    let spread = |round: usize, name: &str| if name == "b" { 9000 } else { 4500 + 100 * (round as u64 % 11) };
    assert_eq!(of(&both, &spread), (vec![("a".into(), None), ("b".into(), Some(false))], None));
    // One that meets the goal precedes one that is too near, although it is slower.
    let (rows, met) =
        of(&[("a", 1000.0), ("c", 500.0)], &|round, name| if name == "c" { 1000 } else { spread(round, name) });
    assert_eq!((rows, met), (vec![("c".into(), Some(true)), ("a".into(), None)], Some(true)));
}

/// Regression test: rounds without an answer had a p99 of 0.
#[test]
fn a_round_without_an_answer_has_no_good_p99() {
    let all = [0, 0, 0].map(|_| {
        let mut one = measurement(1000.0, 0);
        silence_latency(&mut one);
        one
    });
    let latencies = entry(("any", Role::Ranked), all).usual_latencies().unwrap();
    let read: Latencies = serde_json::from_str(&serde_json::to_string(&latencies).unwrap()).unwrap();
    assert_eq!((latencies.p99_us, read.p99_us), (f64::INFINITY, f64::INFINITY));
}

/// If one client core cannot saturate a server core, the ratio is kept, with the reason.
#[test]
fn a_cost_with_a_saturated_client_is_marked_and_kept() {
    let [base, own, null] = [("base", Role::Baseline), ("own", Role::Ranked), ("null", Role::Limit)];
    let rounds = |cheap: f64| {
        speeds(1000.0).map(move |speed| {
            let mut one = measurement(speed, 100);
            let changed = [
                (figures::CPU_US, 1e6 / (speed * cheap)),
                (figures::SERVER_CPU_S, 0.6),
                (figures::SERVER_IDLE_S, 0.4),
                (figures::CLIENT_CPU_S, 0.98),
                (figures::CLIENT_IDLE_S, 0.02),
            ];
            changed.into_iter().for_each(|(figure, value)| set(&mut one, figure, value));
            one
        })
    };
    let entries = [entry(base, rounds(1.0)), entry(own, rounds(1.1)), entry(null, rounds(1.0))];
    let ranking = Ranking::new(&entries, None, FIXED, None);
    let row = ranking.rows.iter().find(|row| row.name == "own").unwrap();
    let [share] = row.shares.as_slice() else { panic!("{row:?}") };
    assert!((share.cost.unwrap().ratio - 1.1).abs() < 1e-9 && share.cost.unwrap().interval.contains(1.1));
    for void in [share.cost_void, row.cost_void] {
        assert!(matches!(void, Some(Void::ClientSaturated { side: Side::Own, busy: Some(_) })), "{void:?}");
    }
    assert_eq!(row.bytes_per_connection, None, "connections come and go");
}

/// Other processes had half of the server's core. The server used the other half, so it was busy.
#[test]
fn a_server_is_busy_if_it_used_all_that_others_left() {
    let mut one = measurement(1000.0, 100);
    let own = [(figures::SERVER_CPU_S, 0.5), (figures::SERVER_BUSY, 0.5), (figures::SERVER_IDLE_S, 0.0)];
    own.into_iter().for_each(|(figure, value)| set(&mut one, figure, value));
    let share = |one: &NamedFigures| busy(&[one], OF_SERVER);
    assert_eq!(share(&one), Some(1.0));
    set(&mut one, figures::SERVER_IDLE_S, 0.5);
    assert_eq!(share(&one), Some(0.5));
    one.remove(figures::SERVER_IDLE_S);
    assert_eq!(share(&one), Some(0.5), "the time of other processes is not known");
    one.remove(figures::SERVER_CPU_S);
    assert_eq!((share(&one), busy(&[], OF_SERVER)), (None, None));
}

#[test]
fn the_saturated_side() {
    assert_eq!(saturated(0.96, 0.5), "server");
    assert_eq!(saturated(0.9, 0.99), "client");
    assert_eq!((saturated(0.95, 0.95), saturated(0.5, 0.5)), ("both", "neither"));
}

/// The contestants, the best first, with the answer.
fn answered(goal_us: Option<f64>, of: &[(&str, f64, u64)]) -> (Vec<(String, usize)>, String) {
    let rounds = |speed, p99| speeds(speed).map(move |speed| measurement(speed, p99));
    let mut entries: Vec<RankingEntry<'_>> =
        of.iter().map(|(name, speed, p99)| entry((name, Role::Ranked), rounds(*speed, *p99))).collect();
    entries[0].role = Role::Baseline;
    entries.push(entry(("again", Role::Same), rounds(of[0].1 * 1.01, of[0].2)));
    let ranking = Ranking::new(&entries, None, FIXED, goal_us);
    let ranks = ranking.rows.iter().filter_map(|row| Some((row.name.clone(), row.rank?))).collect();
    (ranks, ranking.answer())
}

#[test]
fn contestants_without_a_difference_share_a_rank_and_the_answer_is_a_sentence() {
    let ranks = |of: &[(&str, usize)]| of.iter().map(|(name, rank)| ((*name).into(), *rank)).collect::<Vec<_>>();
    let all = [("a", 1000.0, 100), ("b", 1500.0, 100), ("c", 1495.0, 100), ("d", 700.0, 100), ("e", 702.0, 100)];
    let (found, answer) = answered(None, &all);
    assert_eq!(found, ranks(&[("b", 1), ("c", 1), ("a", 3), ("e", 4), ("d", 4)]));
    let served = "`b` serves 1.50 [1.50, 1.50] times the requests of `a` at the same p99";
    assert_eq!(answer, format!("{served}; no difference was found between it and `c`"));
    let (_, answer) = answered(None, &[("a", 1000.0, 100), ("b", 1500.0, 200)]);
    assert!(answer.ends_with(" of `a` at a higher p99 (200 us, not 100 us)"), "{answer}");
    let (_, answer) = answered(None, &[("a", 1000.0, 100), ("b", 1000.5, 100)]);
    assert_eq!(answer, "`b` serves 1,002 req/s; no difference was found between it and `a`");
    let (_, answer) = answered(None, &[("a", 1000.0, 100)]);
    assert_eq!(answer, "`a` serves 1,001 req/s");
}

#[test]
fn a_goal_for_the_p99_comes_before_the_throughput() {
    let of = [("a", 1000.0, 1000), ("b", 1500.0, 9000), ("c", 800.0, 4900)];
    let (ranks, answer) = answered(Some(5000.0), &of);
    assert_eq!(ranks, [("a".into(), 1), ("c".into(), 2), ("b".into(), 3)]);
    assert!(answer.starts_with("of those that keep a p99 of 5ms, `a` serves 1.25 "), "{answer}");
    let (ranks, answer) = answered(Some(500.0), &of);
    assert_eq!(ranks, [("a".into(), 1), ("c".into(), 2), ("b".into(), 3)]);
    assert_eq!(answer, "no contestant keeps a p99 of 500µs; the nearest is `a`, with 1.0 ms");
    let few = [entry(("a", Role::Baseline), speeds(1000.0).take(9).map(|speed| measurement(speed, 100)))];
    let answer = Ranking::new(&few, None, FIXED, None).answer();
    assert_eq!(answer, "too few rounds for a verdict: 9 of 10; the highest throughput so far has `a`, 1,001 req/s");
}

/// Regression test: another band of noise decided the ranks than the verdicts.
#[test]
fn ranks_agree_with_the_verdicts_on_the_baseline() {
    let rounds = |speed: f64| (0..12).map(move |_| measurement(speed, 100));
    for (again, others, expected) in [
        (980.0, &[1010.0][..], &[1, 2][..]),
        (1020.0, &[1010.0], &[1, 1]),
        (980.0, &[990.0], &[1, 1]),
        (1020.0, &[990.0], &[1, 2]),
        (1010.0, &[1005.0, 996.0], &[1, 1, 3]), // the last differs from the baseline, and not from the first
    ] {
        let mut entries =
            vec![entry(("base", Role::Baseline), rounds(1000.0)), entry(("again", Role::Same), rounds(again))];
        entries.extend(others.iter().map(|speed| entry(("other", Role::Ranked), rounds(*speed))));
        (0..).zip(&mut entries).for_each(|(place, entry)| entry.name += &place.to_string());
        let ranking = Ranking::new(&entries, None, FIXED, None);
        let ranked = || ranking.rows.iter().filter(|row| row.rank.is_some());
        let base = ranked().find(|row| row.role == Role::Baseline).unwrap().rank;
        for row in ranked() {
            let is_different = row.throughput.unwrap().verdict.is_different();
            assert!(!is_different || row.rank != base, "{again} {others:?}: {row:?}");
        }
        let claimed = ranking.answer().contains("times the requests");
        assert_eq!(claimed, expected == [1, 2], "{}", ranking.answer());
        assert_eq!(ranked().filter_map(|row| row.rank).collect::<Vec<_>>(), expected, "{again} {others:?}");
    }
}
