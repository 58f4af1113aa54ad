use super::*;
use crate::compare::turn::Latency;
use crate::launch::{AddressFrom, Launch};

fn contestant(name: &str, role: Role) -> Contestant {
    let launch = Launch { program: "any".into(), args: Vec::new(), env: Vec::new(), address: AddressFrom::Json };
    Contestant::new(name, role, launch)
}

/// A turn at so many requests a second, with a p99 of so many microseconds.
fn turn(speed: f64, p99: u64) -> Turn {
    let mut histogram = Histogram::new_with_bounds(1, 600_000_000_000, 3).unwrap();
    histogram.record_n(p99 * 1000, 1000).unwrap();
    let quantile = p99 as f64;
    Turn {
        answered: speed as u64,
        elapsed_s: 1.0,
        requests_per_s: speed,
        requests_per_cpu_s: Some(speed * 1.25),
        server_cpu_s: Some(0.8),
        client_cpu_s: 0.5,
        server_busy: Some(0.99),
        client_busy: 0.5,
        server_idle_s: Some(0.01),
        client_idle_s: Some(0.5),
        switches_per_request: Some(0.1),
        resident_bytes: Some(1_000_000),
        loaded_bytes: Some(1_640_000),
        retried: 0,
        reconnects: 0,
        latency: Some(Latency {
            rate: 100.0,
            behind: 0,
            p50_us: quantile,
            p99_us: quantile,
            p999_us: quantile,
            lateness_p99_us: 0.0,
            histogram,
        }),
    }
}

fn entry<'a>(contestant: &'a Contestant, turns: impl Iterator<Item = Turn>) -> Entry<'a> {
    Entry { contestant, turns: turns.map(Some).collect() }
}

/// Speeds that move together by a tenth of a per cent from round to round.
fn speeds(speed: f64) -> impl Iterator<Item = f64> {
    (0..12).map(move |round| speed * (1.0 + 0.001 * f64::from(round % 3)))
}

#[test]
fn rows_are_sorted_and_compared_with_the_baseline_of_the_same_round() {
    let [base, same, fast, slow, null] = [
        contestant("base", Role::Baseline),
        contestant("base again", Role::Same),
        contestant("fast", Role::Ranked),
        contestant("slow", Role::Slowed(5.0)),
        contestant("null", Role::Limit),
    ];
    // The machine halves its speed after six rounds; no ratio sees it.
    let drift = |speed: f64| (0..12).map(move |round| turn(if round < 6 { speed } else { speed / 2.0 }, 100));
    let entries = [
        entry(&null, drift(2000.0)),
        entry(&slow, drift(950.0)),
        entry(&same, drift(1000.0)),
        entry(&base, drift(1000.0)),
        entry(&fast, drift(1100.0)),
    ];
    let ranking = Ranking::new(&entries, Some(64), 1);
    let names: Vec<_> = ranking.rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["fast", "base", "slow", "base again", "null"]);
    let said: Vec<_> = ranking.rows.iter().map(|row| row.throughput.unwrap().verdict).collect();
    assert_eq!(said, [Verdict::Faster, Verdict::Tie, Verdict::Slower, Verdict::Tie, Verdict::Faster]);
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
    let (base, fast) = (contestant("base", Role::Baseline), contestant("fast", Role::Ranked));
    let turns = |speed| speeds(speed).map(|speed| turn(speed, 100));
    let ranking = Ranking::new(&[entry(&base, turns(1000.0)), entry(&fast, turns(5000.0))], Some(64), 1);
    assert_eq!(ranking.rows[0].throughput.unwrap().verdict, Verdict::Tie);
    assert!(ranking.bands.throughput.is_none());
}

#[test]
fn rounds_that_one_of_both_has_not_are_left_out() {
    let (base, other) = (contestant("base", Role::Baseline), contestant("other", Role::Ranked));
    let mut entries = [
        entry(&base, speeds(1000.0).map(|speed| turn(speed, 100))),
        entry(&other, speeds(1000.0).map(|speed| turn(speed, 100))),
    ];
    entries[1].turns[3] = None;
    entries[1].turns.truncate(10);
    let ranking = Ranking::new(&entries, Some(64), 1);
    let other = ranking.rows.iter().find(|row| row.name == "other").unwrap().throughput.unwrap();
    assert_eq!((other.estimate.rounds, other.verdict), (9, Verdict::TooFewRounds));
}

/// Of "own" beside "base", each changed.
fn changed(own: &dyn Fn(&mut Turn), base: &dyn Fn(&mut Turn)) -> Row {
    let contestants = [contestant("base", Role::Baseline), contestant("own", Role::Ranked)];
    let turns = |change: &dyn Fn(&mut Turn)| {
        let turns = speeds(1000.0).map(|speed| {
            let mut turn = turn(speed, 100);
            change(&mut turn);
            turn
        });
        turns.collect::<Vec<_>>().into_iter()
    };
    let entries = [entry(&contestants[0], turns(base)), entry(&contestants[1], turns(own))];
    let rows = Ranking::new(&entries, Some(64), 1).rows;
    rows.into_iter().find(|row| row.name == "own").unwrap()
}

fn cheaper(turn: &mut Turn) {
    turn.requests_per_cpu_s = turn.requests_per_cpu_s.map(|cost| cost * 1.5);
}

#[test]
fn a_cost_counts_only_where_nothing_was_won_by_waiting() {
    let void = |change: &dyn Fn(&mut Turn)| changed(change, &|_| {}).cost_void;
    assert_eq!(void(&|_| {}), None);
    let idle = void(&|turn| turn.server_idle_s = Some(0.2));
    assert!(
        matches!(idle, Some(Void::Idle { side: Side::Own, busy: Some(busy) }) if (busy - 0.8).abs() < 1e-9),
        "{idle:?}"
    );
    assert_eq!(void(&|turn| turn.server_cpu_s = None), Some(Void::Idle { side: Side::Own, busy: None }));
    let slow = void(&|turn| turn.requests_per_s *= 0.9);
    assert!(matches!(slow, Some(Void::Throughput { side: Side::Own, low }) if (low - 0.9).abs() < 1e-6), "{slow:?}");
    assert_eq!(void(&|turn| turn.latency = None), Some(Void::NoLatency));
    let overloaded = Some(Void::Overloaded { side: Side::Own });
    assert_eq!(void(&|turn| turn.latency.as_mut().unwrap().behind = 100), overloaded);
    let late = void(&|turn| turn.latency = self::turn(1.0, 130).latency);
    assert!(matches!(late, Some(Void::Latency { side: Side::Own, ratio }) if (ratio - 1.3).abs() < 0.01), "{late:?}");
}

/// A baseline that lets requests pile up, and answers late for it, makes nobody dear.
#[test]
fn nor_is_anybody_dear_beside_one_that_won_by_waiting() {
    let void = |change: &dyn Fn(&mut Turn)| {
        let base = |turn: &mut Turn| {
            cheaper(turn);
            change(turn);
        };
        let row = changed(&|_| {}, &base);
        assert!(row.cost.unwrap().estimate.ratio < 0.7, "{row:?}");
        row.cost_void
    };
    assert_eq!(void(&|_| {}), None);
    let slow = void(&|turn| turn.requests_per_s *= 0.9);
    assert!(matches!(slow, Some(Void::Throughput { side: Side::Other, .. })), "{slow:?}");
    let late = void(&|turn| turn.latency = self::turn(1.0, 130).latency);
    assert!(matches!(late, Some(Void::Latency { side: Side::Other, ratio }) if (ratio - 1.3).abs() < 0.01), "{late:?}");
    // It is the dearer one that is slower and later: that is no reason to doubt that it is dearer.
    let both = |turn: &mut Turn| {
        turn.requests_per_s *= 0.5;
        turn.latency = self::turn(1.0, 200).latency;
    };
    assert_eq!(changed(&both, &cheaper).cost_void, None);
}

/// One p99 of a short slice says little: a few rounds that are late decide nothing.
#[test]
fn a_p99_is_too_much_only_where_it_is_so_surely() {
    let (base, own) = (contestant("base", Role::Baseline), contestant("own", Role::Ranked));
    let late = (0..12).map(|round| turn(1000.0, if round % 2 == 0 { 200 } else { 105 }));
    let entries = [entry(&base, (0..12).map(|_| turn(1000.0, 100))), entry(&own, late)];
    let rows = Ranking::new(&entries, Some(64), 1).rows;
    let row = rows.iter().find(|row| row.name == "own").unwrap();
    let p99 = row.p99.unwrap();
    assert!(p99.ratio > MOST_LATENCY && p99.interval.low < MOST_LATENCY, "{p99:?}");
    assert_eq!(row.cost_void, None);
}

/// A round in which somebody else had the cores is one vote.
#[test]
fn who_is_overloaded_is_so_in_most_rounds() {
    let overloaded = |behind: [u64; 5]| {
        let turns = behind.map(|behind| {
            let mut turn = turn(1000.0, 100);
            turn.latency.as_mut().unwrap().behind = behind;
            turn
        });
        latencies(&turns.iter().collect::<Vec<_>>()).unwrap().overloaded
    };
    assert!(!overloaded([0, 5000, 0, 5000, 5]) && overloaded([0, 20, 0, 20, 20]));
}

/// Where one client core cannot fill a server core, the ratio is there all the same, and so is the reason.
#[test]
fn a_cost_beside_a_saturated_client_is_marked_and_kept() {
    let [base, own, null] =
        [contestant("base", Role::Baseline), contestant("own", Role::Ranked), contestant("null", Role::Limit)];
    let turns = |cheap: f64| {
        speeds(1000.0).map(move |speed| {
            let mut turn = turn(speed, 100);
            turn.requests_per_cpu_s = Some(speed * cheap);
            (turn.server_cpu_s, turn.server_idle_s) = (Some(0.6), Some(0.4));
            (turn.client_cpu_s, turn.client_idle_s) = (0.98, Some(0.02));
            turn
        })
    };
    let entries = [entry(&base, turns(1.0)), entry(&own, turns(1.1)), entry(&null, turns(1.0))];
    let ranking = Ranking::new(&entries, None, 1);
    let row = ranking.rows.iter().find(|row| row.name == "own").unwrap();
    let [share] = row.shares.as_slice() else { panic!("{row:?}") };
    assert!((share.cost.unwrap().ratio - 1.1).abs() < 1e-9 && share.cost.unwrap().interval.contains(1.1));
    for void in [share.cost_void, row.cost_void] {
        assert!(matches!(void, Some(Void::ClientSaturated { side: Side::Own, busy: Some(_) })), "{void:?}");
    }
    assert_eq!(row.bytes_per_connection, None, "connections come and go");
}

/// Others had half of the server's core: the server had the other half, and no time to spare.
#[test]
fn busy_is_who_used_all_that_others_left() {
    let mut turn = turn(1000.0, 100);
    (turn.server_cpu_s, turn.server_busy, turn.server_idle_s) = (Some(0.5), Some(0.5), Some(0.0));
    let share = |turn: &Turn| busy(&[turn], |turn| (turn.server_cpu_s, turn.server_idle_s, turn.server_busy));
    assert_eq!(share(&turn), Some(1.0));
    turn.server_idle_s = Some(0.5);
    assert_eq!(share(&turn), Some(0.5));
    turn.server_idle_s = None;
    assert_eq!(share(&turn), Some(0.5), "what others had is not known");
    turn.server_cpu_s = None;
    assert_eq!((share(&turn), busy(&[], |_| (None, None, None))), (None, None));
}

#[test]
fn who_was_saturated() {
    assert_eq!(saturated(0.96, 0.5), "server");
    assert_eq!(saturated(0.9, 0.99), "client");
    assert_eq!((saturated(0.95, 0.95), saturated(0.5, 0.5)), ("both", "neither"));
}
