//! The rows as tables for people and for the docs, and as CSV.

use std::fmt;
use std::io;

use polyserve_lab::journal::of_kind;
use polyserve_report::Claim;
use polyserve_report::{Table, or_nothing, shown_claims};
use serde_json::Value;

use super::published::{self, Figures};
use super::{Failed, Measured, Ours, Part, Row};

/// Writes the rows as CSV, with a header; the published columns come first.
///
/// # Errors
///
/// Where `out` fails.
pub fn write_csv(rows: &[Row], out: impl io::Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    for Row { figures, ours } in rows {
        csv.serialize((figures, ours)).map_err(io::Error::other)?;
    }
    csv.flush()
}

/// The rows of a record, in their order.
///
/// # Errors
///
/// Where a line is not what this version records.
pub fn rows(lines: &[Value]) -> anyhow::Result<Vec<Row>> {
    of_kind(lines, Row::KIND)
}

/// The tables worth having in docs: the published set-up beside the published figures, and every server's requests a
/// second by the number of its workers, below the bound.
///
/// # Errors
///
/// Where a line is not what this version records.
pub fn tables(lines: &[Value]) -> anyhow::Result<Vec<(String, Table)>> {
    let rows = rows(lines)?;
    let mut tables = Vec::new();
    if rows.iter().any(|row| row.ours.part == Part::Published) {
        tables.push((String::from("A page that sometimes waits: as published, and here"), beside_published(&rows)?));
    }
    if rows.iter().any(|row| row.ours.part == Part::Sweep) {
        tables.push((String::from("A page that sometimes waits: requests a second by workers"), by_workers(&rows)));
    }
    Ok(tables)
}

/// A published row, and ours below it.
fn beside_published(rows: &[Row]) -> anyhow::Result<Table> {
    let columns =
        ["", "wait", "total", "req/s", "of bound", "mean", "50%", "66%", "75%", "80%", "90%", "95%", "98%", "99%"];
    let mut table = Table::of_numbers(&[&columns[..], &["max"]].concat());
    let bound = published::CONNECTIONS as f64 * published::EVERY as f64 / published::WAIT.as_secs_f64();
    let cells = |whose: &str, figures: &Figures, wait_s: f64, of_bound: f64, digits: usize| {
        let Figures { server, total_s, requests_per_s, mean_ms, .. } = figures;
        let Figures { p50_ms, p66_ms, p75_ms, p80_ms, p90_ms, p95_ms, p98_ms, p99_ms, max_ms, .. } = *figures;
        let quantiles = [p50_ms, p66_ms, p75_ms, p80_ms, p90_ms, p95_ms, p98_ms, p99_ms, max_ms];
        let mut cells = vec![
            format!("{server} ({whose})"),
            format!("{wait_s} s"),
            format!("{total_s:.2} s"),
            format!("{requests_per_s:.1}"),
            format!("{:.1} %", of_bound * 100.0),
            format!("{mean_ms:.1} ms"),
        ];
        cells.extend(quantiles.map(|ms| format!("{ms:.digits$} ms")));
        cells
    };
    for published in published::figures()? {
        let is_it = |row: &&Row| row.ours.published_as.as_ref() == Some(&published.server);
        let Some(Row { figures, ours }) = rows.iter().find(is_it) else { continue };
        let of_bound = published.requests_per_s / bound;
        // Whole milliseconds were published.
        table.row(cells("published", &published, published::WAIT.as_secs_f64(), of_bound, 0));
        table.row(cells("here", figures, ours.wait_s, ours.of_bound, 1));
    }
    Ok(table)
}

/// A column for each number of workers, the bound in the first row; `of it` is the share of the lower of the two bounds.
fn by_workers(rows: &[Row]) -> Table {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.ours.part == Part::Sweep).collect();
    let mut sizes: Vec<Option<usize>> = rows.iter().map(|row| row.ours.workers).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut names: Vec<&str> = Vec::new();
    for row in &rows {
        if !names.contains(&row.figures.server.as_str()) {
            names.push(&row.figures.server);
        }
    }
    let titles = sizes.iter().map(|size| size.map_or_else(|| String::from("its own"), |size| size.to_string()));
    let header: Vec<String> = std::iter::once(String::from("workers")).chain(titles).collect();
    let mut table = Table::of_numbers(&header.iter().map(String::as_str).collect::<Vec<_>>());
    let bound = |size: Option<usize>| {
        let row = rows.iter().find(|row| row.ours.workers == size)?;
        Some(size? as f64 * row.ours.every as f64 / row.ours.wait_s)
    };
    let bounds = sizes.iter().map(|size| or_nothing(bound(*size).map(|bound| format!("{bound:.0}"))));
    table.row(std::iter::once(String::from("bound, where a worker sits through the wait")).chain(bounds).collect());
    for name in names {
        let of = |size: &Option<usize>| rows.iter().find(|row| row.figures.server == name && row.ours.workers == *size);
        let cell = |row: &&Row| format!("{:.0} ({:.0} %)", row.figures.requests_per_s, row.ours.of_bound * 100.0);
        let cells = sizes.iter().map(|size| or_nothing(of(size).map(cell)));
        table.row(std::iter::once(name.to_owned()).chain(cells).collect());
    }
    table
}

/// All rows, with the bound beside each.
fn all(rows: &[Row]) -> Table {
    let mut table = Table::of_numbers(&[
        "SERVER",
        "WORKERS",
        "REQUESTS/S",
        "BOUND",
        "OF IT",
        "REQUESTS",
        "TOTAL",
        "MEAN",
        "P50",
        "P90",
        "P99",
        "MAX",
        "CPU",
    ]);
    for row in rows {
        let mut cells = vec![
            row.figures.server.clone(),
            or_nothing(row.ours.workers.map(|workers| workers.to_string())),
            format!("{:.1}", row.figures.requests_per_s),
            or_nothing(row.ours.bound_per_s.map(|bound| format!("{bound:.1}"))),
            format!("{:.0} %", row.ours.of_bound * 100.0),
            row.ours.requests.to_string(),
            format!("{:.2} s", row.figures.total_s),
        ];
        cells.extend(
            [row.figures.mean_ms, row.figures.p50_ms, row.figures.p90_ms, row.figures.p99_ms, row.figures.max_ms]
                .map(|ms| format!("{ms:.1} ms")),
        );
        cells.push(or_nothing(row.ours.server_busy.map(|busy| format!("{:.0} %", busy * 100.0))));
        table.row(cells);
    }
    table
}

/// What is printed of a run.
#[derive(Debug)]
pub struct Shown<'a> {
    /// What was measured.
    pub measured: &'a Measured,
    /// What is to be said of the published claims.
    pub claims: &'a [Claim],
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Measured { connections_bound_per_s: all_per_s, rows, failed, interrupted } = self.measured;
        let of = |part| rows.iter().filter(move |row| row.ours.part == part).cloned().collect::<Vec<Row>>();
        let (published, sweep) = (of(Part::Published), of(Part::Sweep));
        if !published.is_empty() {
            writeln!(f, "as published, and here; latencies in closed loop, a connection for each request")?;
            writeln!(f, "{}", beside_published(&published).map_err(|_| fmt::Error)?)?;
        }
        if let Some(Ours { connections, every, wait_s, .. }) = sweep.first().map(|row| &row.ours) {
            write!(f, "{}", all(&sweep))?;
            writeln!(f, "BOUND: workers x {every} / {wait_s} s, where a worker sits through the wait")?;
            writeln!(
                f,
                "{connections} connections ask for at most {connections} x {every} / {wait_s} s = {all_per_s:.1} a second"
            )?;
            writeln!(f, "OF IT: of the lower of these two; latencies in closed loop, a connection for each request")?;
        }
        for Failed { server, workers, why, .. } in failed {
            let workers = workers.map_or_else(String::new, |workers| format!(" with {workers} workers"));
            writeln!(f, "not run: {server}{workers}: {why}")?;
        }
        write!(f, "\n{}", shown_claims(self.claims))?;
        if *interrupted { writeln!(f, "ended early") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::*;
    use polyserve_lab::journal::as_line;

    #[test]
    fn the_published_columns_come_first() {
        let mut text = Vec::new();
        write_csv(&[row(Part::Sweep, "any", Some(8), 40.0)], &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let published = crate::published::PAGE.lines().next().unwrap();
        assert!(text.starts_with(&format!("{published},part,published_as,workers,bound_per_s,")), "{text}");
    }

    #[test]
    fn the_bound_stands_above_every_size_and_the_published_row_above_ours() {
        let mut as_published = row(Part::Published, "smol", None, 498.0);
        as_published.ours.published_as = Some("async-std".into());
        let rows = [as_published, row(Part::Sweep, "pool", Some(8), 39.0), row(Part::Sweep, "pool", Some(128), 490.0)];
        let lines: Vec<Value> = rows.iter().map(|row| as_line(Row::KIND, row).unwrap()).collect();
        let tables = tables(&lines).unwrap();
        let (first, second) = (tables[0].1.to_string(), tables[1].1.to_string());
        let line =
            |text: &str, at: usize| text.lines().nth(at).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(line(&first, 1).starts_with("async-std (published) 2 s 20.19 s 495.4 99.1 %"), "{first}");
        assert!(line(&first, 2).starts_with("smol (here) 2 s"), "{first}");
        assert_eq!(line(&second, 0), "workers 8 128");
        assert!(line(&second, 1).ends_with("sits through the wait 40 640"), "{second}");
        assert_eq!(line(&second, 2), "pool 39 (98 %) 490 (98 %)");
    }
}
