//! A ranking for people.

use std::fmt::{self, Write as _};

use super::contestant::Role;
use super::ranking::{BUSY, Compared, LEAST_THROUGHPUT, MOST_LATENCY, Ranking, Row, Void};
use super::statistics::{LEAST_ROUNDS, Verdict};
use crate::output::Table;

impl fmt::Display for Ranking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { baseline, rounds, rate, rows, failed, interrupted, .. } = self;
        let ended = if *interrupted { ", ended early" } else { "" };
        writeln!(f, "beside {baseline}, {rounds} rounds{ended}; medians, 95 % intervals\n")?;
        let limits: Vec<&str> =
            rows.iter().filter(|row| row.role == Role::Limit).map(|row| row.name.as_str()).collect();
        let shares: Vec<String> = limits.iter().map(|limit| format!("of {limit}")).collect();
        let latency = rows.iter().any(|row| row.latency.is_some());
        let mut header = vec!["", "throughput", "", "", "req/s"];
        header.extend(shares.iter().map(String::as_str));
        header.extend(["cost", "", ""]);
        if latency {
            header.extend(["p50", "p99", "p99.9"]);
        }
        header.extend(["switches/req", "memory", "B/connection", "saturated"]);
        let mut table = Table::of_numbers(&header);
        for row in rows {
            table.row(cells(row, &limits, latency));
        }
        write!(f, "{table}")?;
        notes(f, self)?;
        if let Some(rate) = rate.filter(|_| latency) {
            writeln!(f, "p50, p99, p99.9: from the intended start at {rate:.0} requests/s, evenly spaced")?;
        }
        if *rounds < LEAST_ROUNDS {
            writeln!(f, "too few rounds for a verdict: {rounds} of {LEAST_ROUNDS}")?;
        }
        failed.iter().try_for_each(|failed| writeln!(f, "not ranked: {}: {}", failed.name, failed.why))
    }
}

/// From this share of the cores' time on, others are worth a line.
const MANY_OTHERS: f64 = 0.05;

/// What stands where there is nothing to be said.
const NOTHING: &str = "-";

fn cells(row: &Row, limits: &[&str], latency: bool) -> Vec<String> {
    let mut cells = vec![row.name.clone()];
    let (faster, cheaper) = (["faster", "slower"], ["cheaper", "dearer"]);
    cells.extend(compared(row, row.throughput, faster));
    cells.push(format!("{:.0}", row.requests_per_s));
    cells.extend(limits.iter().map(|limit| {
        let share = row.shares.iter().find(|share| share.of == *limit);
        share.map_or(NOTHING.to_owned(), |share| format!("{:.2}", share.share))
    }));
    let mut cost = compared(row, row.cost, cheaper);
    if let Some(void) = row.cost_void.filter(|_| matches!(row.role, Role::Ranked | Role::Slowed(_))) {
        cost[2] = why(void);
    }
    cells.extend(cost);
    if latency {
        cells.extend(latencies(row));
    }
    let or_nothing = |figure: Option<String>| figure.unwrap_or_else(|| NOTHING.to_owned());
    cells.push(or_nothing(row.switches_per_request.map(|switches| format!("{switches:.3}"))));
    cells.push(or_nothing(row.loaded_bytes.map(|bytes| format!("{:.1} MB", bytes / 1e6))));
    cells.push(or_nothing(row.bytes_per_connection.map(|bytes| format!("{bytes:.0}"))));
    cells.push(row.saturated.to_owned());
    cells
}

/// The ratio, its interval, and what may be said of it: a limit is no rival, and the baseline is 1.
fn compared(row: &Row, compared: Option<Compared>, [more, less]: [&str; 2]) -> [String; 3] {
    let Some(Compared { estimate, verdict }) = compared else { return [NOTHING, "", ""].map(String::from) };
    let ratio = format!("{:.3}", estimate.ratio);
    let said = match (row.role, verdict) {
        (Role::Baseline, _) => return [ratio, String::new(), String::from("baseline")],
        (Role::Same, _) => "A/A",
        (Role::Limit, _) => "limit",
        (Role::Ranked | Role::Slowed(_), Verdict::Faster) => more,
        (Role::Ranked | Role::Slowed(_), Verdict::Slower) => less,
        (Role::Ranked | Role::Slowed(_), Verdict::Tie) => "tie",
        (Role::Ranked | Role::Slowed(_), Verdict::TooFewRounds) => "too few rounds",
    };
    [ratio, estimate.interval.to_string(), said.to_owned()]
}

fn latencies(row: &Row) -> [String; 3] {
    match (&row.bound, row.latency) {
        (Some(bound), _) => [format!("<= {bound}"), String::new(), String::new()],
        (None, None) => [NOTHING; 3].map(String::from),
        (None, Some(latency)) if latency.overloaded => ["overloaded", "", ""].map(String::from),
        (None, Some(latency)) => [latency.p50_us, latency.p99_us, latency.p999_us].map(time),
    }
}

/// A time given in microseconds.
fn time(microseconds: f64) -> String {
    if microseconds < 1000.0 { format!("{microseconds:.0} us") } else { format!("{:.1} ms", microseconds / 1000.0) }
}

/// Why a cost does not count, in a word or two.
fn why(void: Void) -> String {
    match void {
        Void::Idle(Some(busy)) => format!("no: {:.0} % busy", busy * 100.0),
        Void::BaselineIdle(Some(busy)) => format!("no: baseline {:.0} % busy", busy * 100.0),
        Void::Idle(None) | Void::BaselineIdle(None) => String::from("no: busy?"),
        Void::Throughput(_) => String::from("no: throughput"),
        Void::NoLatency => String::from("no: no p99"),
        Void::Overloaded => String::from("no: overloaded"),
        Void::Latency(ratio) => format!("no: p99 x {ratio:.2}"),
    }
}

fn notes(f: &mut fmt::Formatter<'_>, ranking: &Ranking) -> fmt::Result {
    let Ranking { bands, rows, .. } = ranking;
    f.write_char('\n')?;
    match bands.throughput {
        Some(band) => writeln!(f, "ties: throughput ratios that meet {band}, as the baseline beside itself (A/A)")?,
        None => writeln!(f, "the baseline was not measured beside itself: nothing can be called different")?,
    }
    if let Some(others) = ranking.others.filter(|others| *others > MANY_OTHERS) {
        writeln!(f, "others had {:.0} % of the cores' time: the intervals are wider for it", others * 100.0)?;
    }
    if rows.iter().any(|row| row.cost_void.is_some()) {
        writeln!(
            f,
            "no: a cost that does not count, for server cores less than {:.0} % busy, throughput that may be below {}, or \
             a p99 above {} of the baseline's",
            BUSY * 100.0,
            LEAST_THROUGHPUT,
            MOST_LATENCY
        )?;
    }
    writeln!(f, "cost: requests for each second of the server's CPU time; switches: of threads that live on")?;
    if rows.iter().any(|row| row.bound.is_some()) {
        writeln!(f, "<= TIME x N: no latency but a bound, the head's timeout for each connection ahead")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::ranking::{Bands, Failed, Latencies, Share};
    use crate::compare::statistics::{Estimate, Interval};

    fn row(name: &str, role: Role, ratio: f64, verdict: Verdict) -> Row {
        let interval = Interval { low: ratio - 0.01, high: ratio + 0.01 };
        let compared = Some(Compared { estimate: Estimate { ratio, interval, rounds: 12 }, verdict });
        Row {
            name: name.into(),
            role,
            throughput: compared,
            cost: compared,
            cost_void: None,
            requests_per_s: 1000.0 * ratio,
            requests_per_cpu_s: Some(1200.0),
            shares: vec![Share { of: "null_epoll".into(), share: ratio / 2.0 }],
            latency: Some(Latencies { p50_us: 90.0, p99_us: 1500.0, p999_us: 2500.0, overloaded: false }),
            bound: None,
            switches_per_request: Some(0.25),
            loaded_bytes: Some(4_200_000.0),
            bytes_per_connection: None,
            server_busy: Some(0.99),
            client_busy: Some(0.5),
            saturated: "server",
        }
    }

    #[test]
    fn a_table() {
        let mut slow = row("slow", Role::Ranked, 0.9, Verdict::Slower);
        slow.cost_void = Some(Void::Latency(1.5));
        let mut one = row("one", Role::Ranked, 0.5, Verdict::Slower);
        one.bound = Some("10s x 63".into());
        let mut limit = row("null_epoll", Role::Limit, 2.0, Verdict::Faster);
        limit.shares.clear();
        let band = Some(Interval { low: 0.985, high: 1.012 });
        let ranking = Ranking {
            baseline: "base".into(),
            rounds: 12,
            rate: Some(500.0),
            bands: Bands { throughput: band, cost: band },
            rows: vec![
                row("fast", Role::Ranked, 1.2, Verdict::Faster),
                row("even", Role::Ranked, 1.01, Verdict::Tie),
                row("base", Role::Baseline, 1.0, Verdict::Tie),
                slow,
                one,
                row("base again", Role::Same, 0.999, Verdict::Tie),
                limit,
            ],
            failed: vec![Failed { name: "broken".into(), round: 1, why: "it ended by itself".into() }],
            others: Some(0.25),
            interrupted: false,
        };
        let text = ranking.to_string();
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for wanted in [
            "fast 1.200 [1.190, 1.210] faster 1200 0.60 1.200 [1.190, 1.210] cheaper 90 us 1.5 ms 2.5 ms 0.250 4.2 MB - server",
            "even 1.010 [1.000, 1.020] tie 1010 0.51 1.010 [1.000, 1.020] tie 90 us 1.5 ms 2.5 ms 0.250 4.2 MB - server",
            "base 1.000 baseline 1000 0.50 1.000 baseline 90 us 1.5 ms 2.5 ms 0.250 4.2 MB - server",
            "slow 0.900 [0.890, 0.910] slower 900 0.45 0.900 [0.890, 0.910] no: p99 x 1.50 90 us 1.5 ms 2.5 ms 0.250 4.2 MB - server",
            "one 0.500 [0.490, 0.510] slower 500 0.25 0.500 [0.490, 0.510] dearer <= 10s x 63 0.250 4.2 MB - server",
            "base again 0.999 [0.989, 1.009] A/A 999 0.50 0.999 [0.989, 1.009] A/A 90 us 1.5 ms 2.5 ms 0.250 4.2 MB - server",
            "null_epoll 2.000 [1.990, 2.010] limit 2000 - 2.000 [1.990, 2.010] limit 90 us 1.5 ms 2.5 ms 0.250 4.2 MB - server",
            "ties: throughput ratios that meet [0.985, 1.012], as the baseline beside itself (A/A)",
            "not ranked: broken: it ended by itself",
            "others had 25 % of the cores' time: the intervals are wider for it",
        ] {
            assert!(lines.iter().any(|line| line == wanted), "{wanted}\nis not in\n{text}");
        }
        assert!(!text.contains("too few rounds"), "{text}");
        let text = Ranking { rounds: 9, interrupted: true, ..ranking }.to_string();
        assert!(text.contains("too few rounds for a verdict: 9 of 10") && text.contains("ended early"), "{text}");
    }
}
