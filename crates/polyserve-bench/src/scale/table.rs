//! The report as text, and its cells and curves as CSV.

use std::fmt::{self, Write as _};

use crate::report::figures::{bytes, count, counted, time_us};
use crate::report::{EMPTY_CELL, Table, or_empty};

use super::Axis;
use super::report::{Growth, Law, Metric, Point, Report};
use crate::compare::ranking::is_server_full;
use crate::experiment::{Experiment, Records, csv, distinct, with_short_floats};
use crate::output::{LATE_NOTE, latency_text, rate_text};
use crate::statistics::{Interval, MIN_ROUNDS};

/// The min R² of a curve that explains the points.
const MIN_R2: f64 = 0.5;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for axis in Axis::ALL {
            let points: Vec<&Point> = self.points.iter().filter(|point| point.axis == axis).collect();
            let left_out = self.not_run.iter().filter(|not_run| not_run.axis == axis);
            let failed = self.failed.iter().filter(|failed| failed.key.axis == axis);
            if !points.is_empty() {
                writeln!(f, "{axis}: medians of {}", counted(self.rounds as u64, "round"))?;
                write!(f, "{}", points_table(axis, &points))?;
                if let Some(rate) = self.rates.iter().find(|rate| rate.axis == axis) {
                    let (per_s, half_of, x) = (count(rate.requests_per_s), &rate.half_of, rate.x);
                    match axis {
                        Axis::Rate => {
                            let how = if self.connection_each { ", a connection for each request" } else { "" };
                            writeln!(f, "rate: per cent of {half_of}'s {per_s} requests/s, Poisson arrivals{how}")?;
                            writeln!(f, "p50, p99: from the intended start")?;
                        }
                        _ => writeln!(
                            f,
                            "at rate, p50, p99: at {per_s} requests/s, from the intended start; half of {half_of}'s at {x}"
                        )?,
                    }
                    writeln!(f, "{LATE_NOTE}")?;
                }
                if points.iter().any(|point| point.cpu_us.is_some() && !is_full(point)) {
                    writeln!(f, "~ before a cost: the server's cores were not full, or the client's were")?;
                }
                let mut curves = self.growth.iter().filter(|growth| growth.axis == axis && !is_part_of_a_sum(growth));
                curves.try_for_each(|growth| writeln!(f, "{growth}"))?;
            }
            for not_run in left_out {
                let at = not_run.x.map_or_else(String::new, |x| format!(" at {x}"));
                writeln!(f, "not run: {}{at} {axis}: {}", not_run.name, not_run.why)?;
            }
            for failed in failed {
                writeln!(f, "no figures: {} at {} {axis}: {}", failed.key.name, failed.key.x, failed.why)?;
            }
            if !points.is_empty() {
                f.write_char('\n')?;
            }
        }
        if self.rounds < MIN_ROUNDS && !self.growth.is_empty() {
            let why = format!("intervals of fewer than {MIN_ROUNDS} rounds are narrower than they should be");
            writeln!(f, "too few rounds: {why}")?;
        }
        Ok(())
    }
}

/// Returns true for a power curve of memory that grows by a constant number of bytes for each unit. Its line is printed instead.
fn is_part_of_a_sum(growth: &Growth) -> bool {
    growth.metric == Metric::Memory && growth.law == Law::Power && matches!(growth.axis, Axis::Connections | Axis::Keys)
}

/// In words: `CPU per request of tokio_tcp/two_level grows as connections^0.08 [0.05, 0.11] (R² 0.97): 20.1 us at 10, 24.3 us
/// at 10000`.
impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { axis, name, metric, law, curve, ends: [(first, from), (last, to)] } = self;
        let (interval, figure) = (curve.interval, metric_name(*metric));
        let has_one_round = curve.rounds < 2;
        let verb = match (interval.low > 0.0, interval.high < 0.0) {
            _ if has_one_round => "goes",
            (true, _) => "grows",
            (_, true) => "falls",
            (false, false) => "is level,",
        };
        let interval_text = |digits: usize| match has_one_round {
            true => String::from("[one round: no interval]"),
            false => format!("[{:.digits$}, {:.digits$}]", interval.low, interval.high),
        };
        match law {
            Law::Power => write!(f, "{figure} of {name} {verb} as {axis}^{:.2} {}", curve.b, interval_text(2))?,
            Law::Line => {
                let unit = if *axis == Axis::Connections { "connection" } else { "entity" };
                write!(f, "{figure} of {name} {verb} by {:.0} {} bytes per {unit}", curve.b, interval_text(0))?;
            }
        }
        // A curve always fits two points.
        let fits = if curve.points < 3 { String::from("2 points") } else { format!("R² {:.2}", curve.r2) };
        write!(f, " ({fits}): {} at {first}, {} at {last}", value_text(*metric, *from), value_text(*metric, *to))?;
        let is_poor = curve.r2 < MIN_R2 && verb != "is level,";
        if is_poor { write!(f, "; hardly {}", if *law == Law::Power { "a power" } else { "a line" }) } else { Ok(()) }
    }
}

fn metric_name(metric: Metric) -> &'static str {
    match metric {
        Metric::Throughput => "throughput",
        Metric::Cpu => "CPU per request",
        Metric::PacedCpu => "CPU per request at the rate",
        Metric::P99 => "p99",
        Metric::Memory => "memory",
    }
}

fn value_text(metric: Metric, value: f64) -> String {
    match metric {
        Metric::Throughput => format!("{}/s", count(value)),
        Metric::Cpu | Metric::PacedCpu => format!("{value:.2} us"),
        Metric::P99 => time_us(value),
        Metric::Memory => bytes(value),
    }
}

fn points_table(axis: Axis, points: &[&Point]) -> Table {
    let latency = |point: &Point, latency: Option<f64>| match (point.overloaded, latency) {
        (true, _) => String::new(),
        (false, None) => EMPTY_CELL.into(),
        (false, Some(us)) => latency_text(us, point.lateness_p99_us.unwrap_or(0.0)),
    };
    let percent = |share: Option<f64>| or_empty(share.map(|share| format!("{share:.0} %")));
    Table::of_columns(
        points,
        &[
            ("server", &|point| point.name.clone()),
            (if axis == Axis::Rate { "rate (%)" } else { axis.name() }, &|point| count(point.x as f64)),
            ("req/s", &|point| rate_text(point.per_s, point.under_way)),
            ("CPU us/req", &|point| {
                let doubt = if is_full(point) { "" } else { "~" };
                or_empty(point.cpu_us.map(|cpu| format!("{doubt}{cpu:.2}")))
            }),
            ("CPU us/req at rate", &|point| or_empty(point.paced_cpu_us.map(|cpu| format!("{cpu:.2}")))),
            ("p50", &|point| if point.overloaded { "overloaded".into() } else { latency(point, point.p50_us) }),
            ("p99", &|point| latency(point, point.p99_us)),
            ("memory", &|point| or_empty(point.loaded_bytes.map(bytes))),
            ("server CPU", &|point| percent(point.server_busy_pct)),
            ("client CPU", &|point| percent(point.client_busy_pct)),
        ],
    )
    .named_by(2)
}

/// Whether the cost of a point can be compared.
fn is_full(point: &Point) -> bool {
    let share = |pct: Option<f64>| pct.map(|pct| pct / 100.0);
    is_server_full(share(point.server_busy_pct), share(point.client_busy_pct))
}

/// CPU time per request, in microseconds: a row for each server, a column for each rate. The cheapest at the first rate is first.
fn cost_table(points: &[&Point]) -> Table {
    let mut rates: Vec<u64> = points.iter().map(|point| point.x).collect();
    rates.sort_unstable();
    rates.dedup();
    let header = rates.iter().map(|rate| format!("us/req at {rate} %"));
    let header: Vec<String> = [String::from("server")].into_iter().chain(header).collect();
    let point_of = |name: &str, rate: u64| points.iter().find(|point| point.name == name && point.x == rate).copied();
    let first_cost = |name: &str| point_of(name, *rates.first()?)?.paced_cpu_us;
    let mut names = distinct(points.iter().map(|point| point.name.as_str()));
    names.sort_by(|a, b| first_cost(a).unwrap_or(f64::MAX).total_cmp(&first_cost(b).unwrap_or(f64::MAX)));
    let mut table = Table::of_numbers(&header.iter().map(String::as_str).collect::<Vec<_>>());
    for name in names {
        let cell = |rate: &u64| match point_of(name, *rate) {
            Some(point) if point.overloaded => String::from("overloaded"),
            point => or_empty(point.and_then(|point| point.paced_cpu_us).map(|cpu| format!("{cpu:.2}"))),
        };
        table.row([name.to_owned()].into_iter().chain(rates.iter().map(cell)).collect());
    }
    table
}

fn growth_table(growth: &[&Growth]) -> Table {
    let law = |Growth { axis, law, curve, .. }: &Growth| match law {
        Law::Power => format!("{axis}^{:.2}", curve.b),
        Law::Line => format!("{:.0} bytes each", curve.b),
    };
    let interval = |Growth { law, curve, .. }: &Growth| {
        let digits = if *law == Law::Power { 2 } else { 0 };
        let few = if curve.rounds < MIN_ROUNDS { " (too few rounds)" } else { "" };
        format!("[{:.digits$}, {:.digits$}]{few}", curve.interval.low, curve.interval.high)
    };
    Table::of_columns(
        growth,
        &[
            ("contestant", &|growth| growth.name.clone()),
            ("figure", &|growth| metric_name(growth.metric).to_owned()),
            ("grows as", &|growth| law(growth)),
            ("95 % interval", &|growth| interval(growth)),
            ("R²", &|growth| growth.curve.r2_text()),
            ("points", &|growth| growth.curve.points.to_string()),
            ("rounds", &|growth| growth.curve.rounds.to_string()),
            ("from", &|growth| value_text(growth.metric, growth.ends[0].1)),
            ("to", &|growth| value_text(growth.metric, growth.ends[1].1)),
        ],
    )
}

/// The tables of each axis: its points, and how they grow.
pub(super) fn tables(report: &Report) -> Vec<(String, Table)> {
    let mut tables = Vec::new();
    for axis in Axis::ALL {
        let points: Vec<&Point> = report.points.iter().filter(|point| point.axis == axis).collect();
        let growth: Vec<&Growth> = report.growth.iter().filter(|growth| growth.axis == axis).collect();
        if !points.is_empty() {
            tables.push((format!("{axis}: points"), points_table(axis, &points)));
        }
        if axis == Axis::Rate && !points.is_empty() {
            tables.push((format!("{axis}: CPU per request"), cost_table(&points)));
        }
        if !growth.is_empty() {
            tables.push((format!("{axis}: growth"), growth_table(&growth)));
        }
    }
    tables
}

/// The columns of a sample.
const SAMPLE_COLUMNS: &str = "\
    axis,x,name,round,connections,keys,workers,payload_bytes,answered,elapsed_s,per_s,under_way,cpu_us,paced_cpu_us,\
    server_busy_pct,client_busy_pct,rate_per_s,p50_us,p99_us,lateness_p99_us,overloaded,start_bytes,\
    filled_bytes,loaded_bytes";

/// The columns of a curve.
const GROWTH_COLUMNS: &str = "axis,name,metric,law,a,b,low,high,r2,points,rounds";

/// Every sample as CSV.
pub(super) fn samples_csv<E: Experiment>(records: &Records<E>) -> anyhow::Result<String> {
    csv(SAMPLE_COLUMNS, records.rows().iter().map(with_short_floats))
}

/// Every curve as CSV.
pub(super) fn growth_csv(growth: &[Growth]) -> anyhow::Result<String> {
    let row = |growth: &Growth| {
        let mut row = with_short_floats(growth);
        let Interval { low, high } = growth.curve.interval;
        (row["low"], row["high"]) = (low.to_string().into(), high.to_string().into());
        row
    };
    csv(GROWTH_COLUMNS, growth.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::super::growth::Fit;
    use super::*;

    fn growth(metric: Metric, law: Law, [b, low, high, r2]: [f64; 4], [points, rounds]: [usize; 2]) -> Growth {
        let fit = Fit { a: 1.0, b, interval: Interval { low, high }, r2, points, rounds };
        let (axis, name) = (Axis::Connections, String::from("any"));
        Growth { axis, name, metric, law, curve: fit, ends: [(10, 20.1), (10_000, 24.3)] }
    }

    fn usual() -> Point {
        Point {
            axis: Axis::Keys,
            x: 1000,
            name: "any".into(),
            rounds: 10,
            per_s: 1234.0,
            under_way: Some(0.99),
            cpu_us: None,
            paced_cpu_us: None,
            p50_us: Some(100.0),
            p99_us: Some(900.0),
            lateness_p99_us: Some(9.0),
            overloaded: false,
            loaded_bytes: None,
            server_busy_pct: None,
            client_busy_pct: None,
        }
    }

    #[test]
    fn what_the_client_spoils_is_marked() {
        let usual = usual();
        let row = |point: &Point| points_table(Axis::Keys, &[point]).to_string().lines().last().unwrap().to_owned();
        assert!(!row(&usual).contains('~') && !row(&usual).contains("under way"), "{}", row(&usual));
        let late = Point { lateness_p99_us: Some(50.0), ..usual.clone() };
        assert!(row(&late).contains("~100 us") && !row(&late).contains("~900 us"), "{}", row(&late));
        let late = Point { lateness_p99_us: Some(95.0), ..usual.clone() };
        assert!(row(&late).contains("~100 us") && row(&late).contains("~900 us"), "{}", row(&late));
        let replaced = Point { under_way: Some(0.9), ..usual };
        assert!(row(&replaced).contains("1,234 (0.90 under way)"), "{}", row(&replaced));
    }

    /// A cost counts only if the server was full and the client was not.
    #[test]
    fn a_cost_of_idle_cores_is_marked() {
        for (server, client, shown) in
            [(Some(95.0), Some(94.0), " 1.50"), (Some(94.0), Some(50.0), "~1.50"), (Some(99.0), Some(96.0), "~1.50")]
        {
            let point = Point { cpu_us: Some(1.5), server_busy_pct: server, client_busy_pct: client, ..usual() };
            let table = points_table(Axis::Keys, &[&point]).to_string();
            assert!(table.contains(shown), "{table}");
        }
    }

    #[test]
    fn few_rounds_are_named() {
        let interval = |rounds| {
            let growth = growth(Metric::Cpu, Law::Power, [0.08, 0.05, 0.11, 0.97], [4, rounds]);
            growth_table(&[&growth]).rows()[1][3].clone()
        };
        assert_eq!(interval(MIN_ROUNDS), "[0.05, 0.11]");
        assert_eq!(interval(MIN_ROUNDS - 1), "[0.05, 0.11] (too few rounds)");
    }

    #[test]
    fn growth_in_words() {
        for (growth, words) in [
            (
                growth(Metric::Cpu, Law::Power, [0.08, 0.05, 0.11, 0.97], [4, 10]),
                "CPU per request of any grows as connections^0.08 [0.05, 0.11] (R² 0.97): 20.10 us at 10, 24.30 us at 10000",
            ),
            (
                growth(Metric::P99, Law::Power, [-0.01, -0.1, 0.1, 0.02], [4, 10]),
                "p99 of any is level, as connections^-0.01 [-0.10, 0.10] (R² 0.02): 20 us at 10, 24 us at 10000",
            ),
            (
                growth(Metric::Throughput, Law::Power, [-0.2, -0.3, -0.1, 0.3], [4, 10]),
                "throughput of any falls as connections^-0.20 [-0.30, -0.10] (R² 0.30): 20/s at 10, 24/s at 10000; hardly a power",
            ),
            (
                growth(Metric::Memory, Law::Line, [1024.4, 1000.0, 1100.0, 1.0], [2, 1]),
                "memory of any goes by 1024 [one round: no interval] bytes per connection (2 points): 20 B at 10, 24 B at 10000",
            ),
        ] {
            assert_eq!(growth.to_string(), words);
        }
    }
}
