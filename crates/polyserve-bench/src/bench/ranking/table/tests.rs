use super::*;
use crate::bench::ranking::{Bands, Latencies, NotRanked};
use crate::statistics::Estimate;
use crate::turn::{Contract, Rate};
use polyserve_conformance::address::{AddressReport, FailedProperty, Group};
use polyserve_load::Arrivals;

fn row(name: &str, role: Role, ratio: f64, verdict: Verdict) -> RankingRow {
    let interval = Interval { low: ratio - 0.01, high: ratio + 0.01 };
    let estimate = Estimate { ratio, interval, rounds: 12 };
    let compared = Some(Compared { estimate, verdict, min_difference: None });
    let share = Share { of: "null_epoll".into(), throughput: Some(estimate), cost: Some(estimate), cost_void: None };
    RankingRow {
        name: name.into(),
        role,
        rank: matches!(role, Role::Baseline | Role::Ranked).then_some(1),
        throughput: compared,
        cost: compared,
        requests_per_s: 1000.0 * ratio,
        requests_per_cpu_s: Some(1200.0),
        shares: vec![share],
        latency: Some(Latencies {
            p50_us: 90.0,
            p99_us: 1500.0,
            p999_us: 2500.0,
            lateness_p99_us: 5.0,
            overloaded: false,
        }),
        switches_per_request: Some(0.25),
        under_way: Some(0.98),
        loaded_bytes: Some(4_200_000.0),
        server_busy: Some(0.99),
        client_busy: Some(0.5),
        saturated: "server".into(),
        ..RankingRow::default()
    }
}

#[test]
fn a_table() {
    let mut slow = row("slow", Role::Ranked, 0.9, Verdict::Slower);
    slow.cost_void = Some(Void::Latency { side: Side::Own, ratio: 1.5 });
    slow.shares[0].cost_void = Some(Void::Idle { side: Side::Other, busy: Some(0.55) });
    let mut one = row("one", Role::Ranked, 0.5, Verdict::Slower);
    one.bound = Some("10s x 63".into());
    let mut limit = row("null_epoll", Role::Limit, 2.0, Verdict::Faster);
    limit.shares.clear();
    limit.cost_void = Some(Void::ClientSaturated { side: Side::Own, busy: Some(0.6) });
    let failed =
        FailedProperty { property: "two_hosts_are_refused".into(), group: Group::Head, why: "200, not 400".into() };
    let theirs =
        AddressReport { held: vec!["a_length_is_digits".into()], failed: vec![failed], ..AddressReport::default() };
    let rows = vec![
        row("fast", Role::Ranked, 1.2, Verdict::Faster),
        row("even", Role::Ranked, 1.01, Verdict::Tie),
        row("base", Role::Baseline, 1.0, Verdict::Tie),
        slow,
        one,
        row("base again", Role::Same, 0.999, Verdict::Tie),
        limit,
    ];
    let ranking = Ranking {
        rate: Some(Rate { requests_per_s: 500.0, half_of: Some("null_epoll".into()), arrivals: Arrivals::Even }),
        contracts: vec![Contract { name: "peer/theirs".into(), keeps_framing: false, report: theirs }],
        failed: vec![NotRanked { round: 1, name: "broken".into(), why: "it ended by itself".into(), wrong: true }],
        others: Some(0.25),
        ..ranking(rows)
    };
    let text = ranking.text(true, false);
    let lines: Vec<String> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for expected in [
        "fast 1.200 [1.190, 1.210] faster 1,200 1.20 cpu 1.20 [1.190, 1.210] 1.200 [1.190, 1.210] cheaper 90 us 1.5 ms 2.5 ms 0.250 4.0 MiB - server",
        "even 1.010 [1.000, 1.020] tie 1,010 1.01 cpu 1.01 [1.000, 1.020] 1.010 [1.000, 1.020] tie 90 us 1.5 ms 2.5 ms 0.250 4.0 MiB - server",
        "base 1.000 baseline 1,000 1.00 cpu 1.00 [0.990, 1.010] 1.000 baseline 90 us 1.5 ms 2.5 ms 0.250 4.0 MiB - server",
        "slow 0.900 [0.890, 0.910] slower 900 0.90 cpu 0.90 [0.890, 0.910] ~limit 55 % busy 0.900 [0.890, 0.910] ~p99 x 1.50 90 us 1.5 ms 2.5 ms 0.250 4.0 MiB - server",
        "one 0.500 [0.490, 0.510] slower 500 0.50 cpu 0.50 [0.490, 0.510] 0.500 [0.490, 0.510] dearer up to 63 waits of 10s 0.250 4.0 MiB - server",
        "base again 0.999 [0.989, 1.009] A/A 999 1.00 cpu 1.00 [0.989, 1.009] 0.999 [0.989, 1.009] A/A 90 us 1.5 ms 2.5 ms 0.250 4.0 MiB - server",
        "null_epoll 2.000 [1.990, 2.010] limit 2,000 - 2.000 [1.990, 2.010] ~client full 90 us 1.5 ms 2.5 ms 0.250 4.0 MiB - server",
        "workload: GET of one entity",
        "noise: the baseline relative to itself (A/A): throughput [0.985, 1.012], cost [0.985, 1.012]",
        "~client full: the client was saturated: the cost includes the server's wake-ups",
        "p50, p99, p99.9: from the intended start at 500 requests/s, even arrivals, half of null_epoll's throughput",
        "peer/theirs fails 1 of 2; head: two_hosts_are_refused",
        "not ranked: broken: it ended by itself",
        "other processes had 25 % of the cores' time: the intervals are wider",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected}\nis not in\n{text}");
    }
    assert!(!text.contains("too few rounds for a verdict"), "{text}");
    // A ranking that is read back has the same tables.
    let line = serde_json::to_value(&ranking).unwrap();
    let read = tables(&serde_json::from_value(line).unwrap());
    let [(name, narrow), (wide_name, wide)] = read.as_slice() else { panic!("{read:?}") };
    assert_eq!(name, "GET of one entity; baseline base, 12 rounds");
    assert_eq!(wide_name, "GET of one entity; baseline base, 12 rounds; all columns");
    assert!(text.contains(&wide.wide()), "{wide}");
    assert!(ranking.to_string().contains(&narrow.to_string()), "{narrow}");
    let text = Ranking { rounds: 9, interrupted: true, ..ranking }.to_string();
    assert!(text.contains("too few rounds for a verdict: 9 of 10") && text.contains("ended early"), "{text}");
}

fn ranking(mut rows: Vec<RankingRow>) -> Ranking {
    let band = Some(Interval { low: 0.985, high: 1.012 });
    let mut place = 0;
    for row in rows.iter_mut().filter(|row| row.rank.is_some()) {
        place += 1;
        row.rank = Some(place);
    }
    Ranking {
        baseline: "base".into(),
        rounds: 12,
        asked: "GET of one entity".into(),
        rate: Some(Rate { requests_per_s: 50_000.0, half_of: Some("null_epoll".into()), arrivals: Arrivals::Poisson }),
        bands: Bands { throughput: band, cost: band },
        rows,
        ..Ranking::default()
    }
}

#[test]
fn a_narrow_table_ranks_in_120_columns() {
    let mut idle = row("idle", Role::Ranked, 0.9, Verdict::Slower);
    idle.cost_void = Some(Void::Latency { side: Side::Own, ratio: 1.5 });
    let rows = || {
        vec![
            row("fast", Role::Ranked, 1.2, Verdict::Faster),
            row("base", Role::Baseline, 1.0, Verdict::Tie),
            idle.clone(),
            row("base again", Role::Same, 0.999, Verdict::Tie),
            row("null_epoll", Role::Limit, 2.0, Verdict::Faster),
        ]
    };
    let text = ranking(rows()).to_string();
    let lines: Vec<String> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for expected in [
        "# contestant req/s ratio, 95 % verdict of limit CPU us/req p50 p99 memory",
        "1 fast 1,200 1.20 [1.19, 1.21] faster 1.20 833.33 90 us 1.5 ms 4.0 MiB",
        "2 base 1,000 1.00 baseline 1.00 833.33 90 us 1.5 ms 4.0 MiB",
        "3 idle 900 0.90 [0.89, 0.91] slower 0.90 ~833.33 90 us 1.5 ms 4.0 MiB",
        "base again 999 1.00 [0.99, 1.01] A/A 1.00 833.33 90 us 1.5 ms 4.0 MiB",
        "p50, p99: from the intended start at 50,000 req/s (poisson), half of null_epoll's throughput.",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected}\nis not in\n{text}");
    }
    assert_eq!(text.lines().skip_while(|line| !line.starts_with("ratio")).count(), 5, "{text}");
    let mut broken = rows();
    broken[0].under_way = Some(0.94);
    let note = "Little's law: rate x mean latency is this share of the connections: fast 0.94";
    for wide in [false, true] {
        let text = ranking(broken.clone()).text(wide, false);
        assert_eq!(text.lines().filter(|line| *line == note).count(), 1, "{text}");
    }
    for (name, table) in tables(&ranking(broken)) {
        let marked = table.wide().lines().filter(|line| line.contains("1,200 (0.94 under way)")).count();
        assert_eq!(marked, 1, "{name}: a table of the docs has no note below");
    }
    let mut shares = rows();
    for (at, row) in shares.iter_mut().enumerate() {
        (row.name, row.under_way) = (format!("pool_server/mpsc_pool/sharded {at}"), Some(1.5));
    }
    let narrow = ranking(shares.clone()).text(false, false);
    assert!(narrow.lines().all(|line| line.chars().count() <= WIDTH), "{narrow}");
    let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
    let below = |text: &str| words(text.split("Little's law").last().unwrap());
    assert_eq!(below(&narrow), below(&ranking(shares).text(true, false)), "wrapping changes no word");
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    assert!(ranking(rows()).text(false, true).contains("\u{1b}[32mfaster\u{1b}[0m"));
    let mut long = rows();
    long[0].name = "pool_classic/crossbeam_pool/copy_on_write".into();
    let text = ranking(long).to_string();
    let header = text.lines().find(|line| line.starts_with('#')).unwrap();
    assert!(
        header.contains(" req/s ")
            && !header.contains("memory")
            && text.lines().all(|line| line.chars().count() <= WIDTH),
        "{text}"
    );
    let mut longer = rows();
    longer[0].name = "pool_classic/crossbeam_pool/an_index_over_copy_on_write (again)".into();
    longer[0].latency.as_mut().unwrap().overloaded = true;
    longer[2].throughput.as_mut().unwrap().verdict = Verdict::TooFewRounds;
    let text = ranking(longer).to_string();
    assert!(text.contains(" pool_classic/") && text.contains("_write (again) "), "{text}");
    assert!(
        text.contains(" p99\n") && !text.contains(" p50 "),
        "the median is left out before a name is shortened: {text}"
    );
    assert_eq!(text.lines().map(|line| line.chars().count()).max(), Some(WIDTH), "{text}");
}

/// A latency that the client's own lateness may explain is marked, and the mark is explained.
#[test]
fn a_late_client_is_marked() {
    let mut late = row("a/b", Role::Baseline, 1.0, Verdict::Tie);
    assert_eq!(latencies(&late)[1], "1.5 ms");
    late.latency.as_mut().unwrap().lateness_p99_us = 151.0;
    assert_eq!(latencies(&late), ["~90 us", "~1.5 ms", "2.5 ms"].map(String::from));
}
