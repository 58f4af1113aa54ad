//! The report as text, and its cells and curves as CSV.

use std::fmt::{self, Write as _};

use polyserve_report::figures::{bytes, count, time_us};
use polyserve_report::{NOTHING, Table, or_nothing};
use serde_json::Value;

use super::report::{Growth, Key, Law, Metric, Point, Report, Sample};
use super::{Axis, PointSettings};
use crate::experiment::{Experiment, Records};
use crate::statistics::LEAST_ROUNDS;

/// A curve with an R² below this explains little.
const LITTLE: f64 = 0.5;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for axis in Axis::ALL {
            let points: Vec<&Point> = self.points.iter().filter(|point| point.axis == axis).collect();
            let left_out = self.not_run.iter().filter(|not_run| not_run.axis == axis);
            let failed = self.failed.iter().filter(|failed| failed.key.axis == axis);
            if !points.is_empty() {
                writeln!(f, "{axis}: medians of {} rounds", self.rounds)?;
                write!(f, "{}", points_table(axis, &points))?;
                if let Some(rate) = self.rates.iter().find(|rate| rate.axis == axis) {
                    let (rate, half_of, x) = (rate.requests_per_s, &rate.half_of, rate.x);
                    writeln!(
                        f,
                        "AT RATE, P50, P99: at {} requests/s, from the intended start; half of {half_of}'s at {x}",
                        count(rate)
                    )?;
                }
                let mut own = self.growth.iter().filter(|growth| growth.axis == axis && !is_part_of_a_sum(growth));
                own.try_for_each(|growth| writeln!(f, "{growth}"))?;
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
        if self.rounds < LEAST_ROUNDS && !self.growth.is_empty() {
            let why = format!("intervals of fewer than {LEAST_ROUNDS} rounds are narrower than they should be");
            writeln!(f, "too few rounds: {why}")?;
        }
        Ok(())
    }
}

/// Memory that grows by a constant number of bytes for each unit is not a power, although a power can be fitted.
fn is_part_of_a_sum(growth: &Growth) -> bool {
    growth.metric == Metric::Memory && growth.law == Law::Power && matches!(growth.axis, Axis::Connections | Axis::Keys)
}

/// In words: `CPU per request of tokio_tcp/two_level grows as connections^0.08 [0.05, 0.11] (R² 0.97): 20.1 us at 10, 24.3 us
/// at 10000`.
impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { axis, name, metric, law, curve, ends: [(first, from), (last, to)] } = self;
        let (interval, what) = (curve.interval, in_words(*metric));
        let is_one = curve.rounds < 2;
        let does = match (interval.low > 0.0, interval.high < 0.0) {
            _ if is_one => "goes",
            (true, _) => "grows",
            (_, true) => "falls",
            (false, false) => "is level,",
        };
        let between = |digits: usize| match is_one {
            true => String::from("[one round: no interval]"),
            false => format!("[{:.digits$}, {:.digits$}]", interval.low, interval.high),
        };
        match law {
            Law::Power => write!(f, "{what} of {name} {does} as {axis}^{:.2} {}", curve.b, between(2))?,
            Law::Line => {
                let each = if *axis == Axis::Connections { "connection" } else { "entity" };
                write!(f, "{what} of {name} {does} by {:.0} {} bytes per {each}", curve.b, between(0))?;
            }
        }
        // A curve always fits two points.
        let fits = if curve.points < 3 { String::from("2 points") } else { format!("R² {:.2}", curve.r2) };
        write!(f, " ({fits}): {} at {first}, {} at {last}", shown(*metric, *from), shown(*metric, *to))?;
        let is_odd = curve.r2 < LITTLE && does != "is level,";
        if is_odd { write!(f, "; hardly {}", if *law == Law::Power { "a power" } else { "a line" }) } else { Ok(()) }
    }
}

fn in_words(metric: Metric) -> &'static str {
    match metric {
        Metric::Throughput => "throughput",
        Metric::Cpu => "CPU per request",
        Metric::PacedCpu => "CPU per request at the rate",
        Metric::P99 => "p99",
        Metric::Memory => "memory",
    }
}

fn shown(metric: Metric, value: f64) -> String {
    match metric {
        Metric::Throughput => format!("{}/s", count(value)),
        Metric::Cpu | Metric::PacedCpu => format!("{value:.2} us"),
        Metric::P99 => time_us(value),
        Metric::Memory => bytes(value),
    }
}

fn points_table(axis: Axis, points: &[&Point]) -> Table {
    let axis = axis.name().to_uppercase();
    let mut table = Table::of_numbers(&[
        "SERVER",
        &axis,
        "REQUESTS/S",
        "CPU/REQUEST",
        "AT RATE",
        "P50",
        "P99",
        "MEMORY",
        "SERVER CPU",
        "CLIENT CPU",
    ]);
    for point in points {
        let mut cells = vec![point.name.clone(), count(point.x as f64), count(point.per_s)];
        cells.push(or_nothing(point.cpu_us.map(|cpu| shown(Metric::Cpu, cpu))));
        cells.push(or_nothing(point.paced_cpu_us.map(|cpu| shown(Metric::PacedCpu, cpu))));
        cells.extend(match (point.overloaded, point.p50_us, point.p99_us) {
            (true, ..) => ["overloaded".into(), String::new()],
            (false, p50, p99) => [p50, p99].map(|latency| or_nothing(latency.map(time_us))),
        });
        cells.push(or_nothing(point.loaded_bytes.map(|bytes| shown(Metric::Memory, bytes))));
        let busy = [point.server_busy_pct, point.client_busy_pct];
        cells.extend(busy.map(|busy| or_nothing(busy.map(|busy| format!("{busy:.0} %")))));
        table.row(cells);
    }
    table
}

fn growth_table(growth: &[&Growth]) -> Table {
    let mut table = Table::of_numbers(&[
        "contestant",
        "figure",
        "grows as",
        "95 % interval",
        "R²",
        "points",
        "rounds",
        "from",
        "to",
    ]);
    for Growth { axis, name, metric, law, curve, ends: [(_, from), (_, to)] } in growth.iter().copied() {
        let (digits, law) = match law {
            Law::Power => (2, format!("{axis}^{:.2}", curve.b)),
            Law::Line => (0, format!("{:.0} bytes each", curve.b)),
        };
        table.row(vec![
            name.clone(),
            in_words(*metric).to_owned(),
            law,
            format!("[{:.digits$}, {:.digits$}]", curve.interval.low, curve.interval.high),
            if curve.points < 3 { NOTHING.to_owned() } else { format!("{:.2}", curve.r2) },
            curve.points.to_string(),
            curve.rounds.to_string(),
            shown(*metric, *from),
            shown(*metric, *to),
        ]);
    }
    table
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
        if !growth.is_empty() {
            tables.push((format!("{axis}: growth"), growth_table(&growth)));
        }
    }
    tables
}

/// Every sample as CSV, with a header. A figure that was not measured is empty.
///
/// # Errors
///
/// Returns an error if a row cannot be written.
pub(super) fn samples_csv<E>(records: &Records<E>) -> anyhow::Result<String>
where
    E: Experiment<Key = Key, Sample = Sample>,
{
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record([
        "axis",
        "x",
        "name",
        "round",
        "connections",
        "keys",
        "workers",
        "payload_bytes",
        "answered",
        "elapsed_s",
        "per_s",
        "cpu_us",
        "paced_cpu_us",
        "server_busy_pct",
        "client_busy_pct",
        "rate_per_s",
        "p50_us",
        "p99_us",
        "lateness_p99_us",
        "overloaded",
        "start_bytes",
        "filled_bytes",
        "loaded_bytes",
    ])?;
    for (key, Sample { place, figures }) in records.samples() {
        let PointSettings { connections, keys, workers, payload_bytes } = place;
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        let bytes = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
        csv.write_record([
            key.axis.to_string(),
            key.x.to_string(),
            key.name.clone(),
            key.round.to_string(),
            connections.to_string(),
            keys.to_string(),
            workers.map_or_else(String::new, |workers| workers.to_string()),
            payload_bytes.to_string(),
            figures.answered.to_string(),
            figures.elapsed_s.to_string(),
            figures.per_s.to_string(),
            number(figures.cpu_us),
            number(figures.paced_cpu_us),
            number(figures.server_busy_pct),
            number(figures.client_busy_pct),
            number(figures.rate_per_s),
            number(figures.p50_us),
            number(figures.p99_us),
            number(figures.lateness_p99_us),
            figures.overloaded.to_string(),
            bytes(figures.start_bytes),
            bytes(figures.filled_bytes),
            bytes(figures.loaded_bytes),
        ])?;
    }
    Ok(String::from_utf8(csv.into_inner()?)?)
}

/// Every curve as CSV, with a header.
///
/// # Errors
///
/// Returns an error if a row cannot be written.
pub(super) fn growth_csv(growth: &[Growth]) -> anyhow::Result<String> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record(["axis", "name", "metric", "law", "a", "b", "low", "high", "r2", "points", "rounds"])?;
    for Growth { axis, name, metric, law, curve, .. } in growth {
        // The names that the records give them.
        let named = |value: Value| value.as_str().unwrap_or_default().to_owned();
        csv.write_record([
            axis.to_string(),
            name.clone(),
            named(serde_json::to_value(metric)?),
            named(serde_json::to_value(law)?),
            curve.a.to_string(),
            curve.b.to_string(),
            curve.interval.low.to_string(),
            curve.interval.high.to_string(),
            curve.r2.to_string(),
            curve.points.to_string(),
            curve.rounds.to_string(),
        ])?;
    }
    Ok(String::from_utf8(csv.into_inner()?)?)
}

#[cfg(test)]
mod tests {
    use super::super::growth::Fit;
    use super::*;
    use crate::statistics::Interval;

    fn growth(metric: Metric, law: Law, [b, low, high, r2]: [f64; 4], [points, rounds]: [usize; 2]) -> Growth {
        let fit = Fit { a: 1.0, b, interval: Interval { low, high }, r2, points, rounds };
        let (axis, name) = (Axis::Connections, String::from("any"));
        Growth { axis, name, metric, law, curve: fit, ends: [(10, 20.1), (10_000, 24.3)] }
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
