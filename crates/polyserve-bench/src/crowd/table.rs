//! The result as tables: one for each kind of crowd.

use std::fmt::{self, Write as _};

use crate::report::figures::{bytes, count, time_us};
use crate::report::{EMPTY_CELL, Table, or_empty};

use super::CrowdKind;
use super::connection_opener::CrowdCounts;
use super::report::{CrowdOutcome, CrowdRow, Idle, PacedFigures, Report, RowContent};
use crate::compare::contestant::bound_in_words;
use crate::output::{LATE_NOTE, latency_text, rate_text};
use crate::statistics::{Compared, Estimate};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kind in CrowdKind::ALL {
            let rows: Vec<&CrowdRow> = self.rows.iter().filter(|row| row.kind == kind).collect();
            let Some(first) = rows.first() else { continue };
            writeln!(f, "{}: {} connections", kind.name(), first.crowd_of)?;
            match kind {
                CrowdKind::Idle => idle(f, &rows, self.server_cores)?,
                CrowdKind::SlowHeads | CrowdKind::SlowBodies | CrowdKind::SlowReaders => self.slow(f, &rows)?,
            }
            for row in rows {
                if let RowContent::Absence(none) = &row.content {
                    writeln!(f, "no figures: {}: {}", row.name, none.why)?;
                }
                if let Some(why) = row.unserved() {
                    writeln!(f, "the good client was not served: {}: {why}", row.name)?;
                }
            }
            f.write_char('\n')?;
        }
        Ok(())
    }
}

/// A table for each kind of crowd.
pub(super) fn tables(Report { rows, server_cores, .. }: &Report) -> Vec<(String, Table)> {
    let of = |kind: CrowdKind| {
        let rows: Vec<&CrowdRow> = rows.iter().filter(|row| row.kind == kind).collect();
        let name = format!("{}: {} connections", kind.name(), rows.first()?.crowd_of);
        Some((name, if kind == CrowdKind::Idle { idle_table(&rows, *server_cores) } else { slow_table(&rows) }))
    };
    CrowdKind::ALL.into_iter().filter_map(of).collect()
}

fn idle_table(rows: &[&CrowdRow], server_cores: usize) -> Table {
    let mut table = Table::of_numbers(&[
        "server",
        "held",
        "rejected",
        "cut",
        "memory before",
        "memory with",
        "per connection",
        "idle CPU (ms/s)",
        "req/s",
        "ratio",
        "95 %",
        "verdict",
        "A/A",
        "req/CPU s, ratio",
        "95 %",
        "verdict",
        "A/A",
    ]);
    for row in rows {
        let mut cells = vec![row.name.clone()];
        match row.outcome() {
            Some(CrowdOutcome::Idle(idle)) => {
                let Idle { memory, idle_cpu_ms_per_s, crowd, beside: effect, .. } = &**idle;
                cells.extend(
                    [crowd.held, crowd.refused, crowd.cut + crowd.unreachable].map(|number| count(number as f64)),
                );
                cells.extend([memory.before_bytes, memory.with_bytes].map(|size| bytes(size as f64)));
                cells.push(or_empty(memory.bytes_per_connection.map(bytes)));
                cells.push(or_empty(idle_cpu_ms_per_s.map(|cpu| format!("{cpu:.2}"))));
                cells.push(rate_text(effect.with_requests_per_s, effect.with_under_way));
                for (compared, same, doubt) in [
                    (effect.throughput, effect.same_throughput, ""),
                    (effect.cost, effect.same_cost, if effect.is_full(server_cores) { "" } else { "~" }),
                ] {
                    cells.extend(ratio(compared, doubt));
                    cells.push(or_empty(same.map(|same| same.interval.to_string())));
                }
            }
            Some(CrowdOutcome::Bound { bound }) => cells.push(bound_in_words(bound)),
            Some(CrowdOutcome::Slow(_)) | None => continue,
        }
        table.row(cells);
    }
    table
}

fn idle(f: &mut fmt::Formatter<'_>, rows: &[&CrowdRow], server_cores: usize) -> fmt::Result {
    write!(f, "{}", idle_table(rows, server_cores))?;
    writeln!(f, "per connection: growth of the process for each connection held, without the kernel's sockets")?;
    writeln!(f, "idle CPU: the server's CPU time with the crowd and without a request, the median of its seconds")?;
    writeln!(f, "ratio: requests a second, and for each second of the server's CPU time, with to without the crowd;")?;
    writeln!(f, "~: the cost cannot be compared, because a server's cores were not full")?;
    bounds(f, rows)
}

fn ratio(compared: Option<Compared>, doubt: &str) -> [String; 3] {
    let Some(compared) = compared else { return [EMPTY_CELL, "", ""].map(String::from) };
    let Estimate { ratio, interval, .. } = compared.estimate;
    [format!("{doubt}{ratio:.3}"), interval.to_string(), compared.in_words("more", "less")]
}

fn slow_table(rows: &[&CrowdRow]) -> Table {
    let mut table = Table::of_numbers(&[
        "server",
        "crowd",
        "p50",
        "p99",
        "p99.9",
        "max",
        "answered",
        "errors",
        "CPU",
        "memory",
        "descriptors",
        "client late",
        "p99 < 10 ms",
    ])
    .named_by(2);
    for row in rows {
        match row.outcome() {
            Some(CrowdOutcome::Slow(slow)) => {
                for (phase, name) in [(&slow.before, "before"), (&slow.with, "with"), (&slow.after, "after")] {
                    let server = if name == "before" { row.name.clone() } else { String::new() };
                    table.row(cells(phase, slow.before.is_bearable, server, name));
                }
            }
            Some(CrowdOutcome::Bound { bound }) => table.row(vec![row.name.clone(), bound_in_words(bound)]),
            Some(CrowdOutcome::Idle(_)) | None => {}
        }
    }
    table
}

impl Report {
    fn slow(&self, f: &mut fmt::Formatter<'_>, rows: &[&CrowdRow]) -> fmt::Result {
        write!(f, "{}", slow_table(rows))?;
        for row in rows {
            let Some(CrowdOutcome::Slow(slow)) = row.outcome() else { continue };
            let CrowdCounts { opened, held, refused, timed_out, cut, left, unreachable, .. } = slow.crowd;
            let ends = format!(
                "{timed_out} answered 408, {refused} answered 503, {cut} cut, {left} closed by the client, {unreachable} not connected"
            );
            writeln!(f, "{}: crowd: {opened} opened, {held} held at the end, {ends}", row.name)?;
        }
        let Self { rate, connections, .. } = self;
        writeln!(
            f,
            "the good client: {rate} requests/s over {connections} connections; latency from the intended start"
        )?;
        writeln!(
            f,
            "CPU, memory, descriptors: the server's, the last two at the end; client late: the good client's lateness, 99 %"
        )?;
        writeln!(f, "{LATE_NOTE}")?;
        if rows.iter().any(|row| matches!(row.outcome(), Some(CrowdOutcome::Slow(slow)) if !slow.before.is_bearable)) {
            writeln!(f, "no, nor before: the p99 was above 10 ms without a crowd too, so the crowd has no verdict")?;
        }
        bounds(f, rows)
    }
}

fn bounds(f: &mut fmt::Formatter<'_>, rows: &[&CrowdRow]) -> fmt::Result {
    if rows.iter().any(|row| matches!(row.outcome(), Some(CrowdOutcome::Bound { .. }))) {
        writeln!(f, "up to N waits of TIME: an upper bound, not measured: the head timeout for each connection ahead")?;
    }
    Ok(())
}

fn cells(phase: &PacedFigures, is_bearable_before: bool, name: String, when: &str) -> Vec<String> {
    let mut cells = vec![name, when.into()];
    let latencies = [phase.p50_us, phase.p99_us, phase.p999_us, phase.max_us];
    cells.extend(latencies.map(|us| latency_text(us, phase.lateness_p99_us)));
    cells.push(count(phase.answered as f64));
    cells.push(count(phase.errors as f64));
    cells.push(or_empty(phase.server_busy.map(|busy| format!("{:.0} %", busy * 100.0))));
    cells.push(or_empty(phase.resident_bytes.map(|size| bytes(size as f64))));
    cells.push(or_empty(phase.descriptors.map(|number| count(number as f64))));
    cells.push(time_us(phase.lateness_p99_us));
    let answer = match (phase.is_bearable, is_bearable_before) {
        (true, _) => "yes",
        (false, true) => "no",
        (false, false) => "no, nor before",
    };
    cells.push(answer.into());
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_with_a_late_client_is_marked() {
        let phase = PacedFigures {
            p50_us: 100.0,
            p99_us: 1000.0,
            p999_us: 2000.0,
            max_us: 3000.0,
            lateness_p99_us: 150.0,
            ..PacedFigures::default()
        };
        assert_eq!(cells(&phase, true, "a".into(), "with")[2..6], ["~100 us", "~1.0 ms", "2.0 ms", "3.0 ms"]);
    }
}
