//! The rows as tables for people and for the docs, and as CSV.

use std::fmt;

use crate::experiment::{self, distinct};
use crate::report::figures::count;
use crate::report::{Table, or_empty, shown_claims};

use super::phase_table;
use super::published;
use super::record::{
    PageFigures, PagePart, PageRow, PageSource, Sample, bound, cpu_us, measured_as, medians, origin, peak_mib,
};
use super::report::Report;

/// The columns of a CSV file; the published columns come first.
const COLUMNS: &str = "\
    server,total_s,requests_per_s,mean_ms,p50_ms,p66_ms,p75_ms,p80_ms,p90_ms,p95_ms,p98_ms,p99_ms,max_ms,part,\
    published_as,workers,bound_per_s,connections_bound_per_s,of_bound,requests,connections,every,wait_s,server_busy,\
    page,round,cpu_us_per_request,peak_memory_bytes";

/// The rows as CSV.
fn csv(rows: &[PageRow]) -> anyhow::Result<String> {
    if rows.is_empty() { Ok(String::new()) } else { experiment::csv(COLUMNS, rows) }
}

/// The CSV files: all rows, the phases of their requests, and their bytes.
pub(super) fn csv_files(rows: &[PageRow]) -> anyhow::Result<Vec<(String, String)>> {
    let mut files = vec![(String::new(), csv(rows)?)];
    if rows.iter().any(|row| row.sample.details.phases.is_some()) {
        files.push((String::from("_rows"), phase_table::phases_csv(rows)?));
        files.push((String::from("_bytes"), phase_table::bytes_csv(rows)?));
    }
    Ok(files)
}

/// The tables for the docs: the published figures with the measured figures, and the throughput of every server by its
/// number of workers, below the bound.
pub(super) fn tables(rows: &[PageRow]) -> anyhow::Result<Vec<(String, Table)>> {
    let mut tables = Vec::new();
    let as_published = as_published(rows);
    let mut add = |name: &str, table: Table| tables.push((format!("A page that sometimes waits: {name}"), table));
    if as_published.iter().any(|row| row.sample.published_as.is_some()) {
        add("as published, and here", published_and_measured(&as_published)?);
        add("connect, processing, waiting and total", phase_table::phases(&as_published)?);
        add("bytes", phase_table::bytes(&as_published)?);
    }
    if !as_published.is_empty() {
        add("CPU and memory", resources(&as_published));
    }
    if rows.iter().any(|row| row.key.part == PagePart::Sweep) {
        add("requests a second by workers", throughput_by_workers(rows));
        add("CPU time of a request by workers, in µs", cpu_by_workers(rows));
    }
    Ok(tables)
}

/// The rows of the published set-up: those of the catalog's servers, then the medians of the twins.
pub(super) fn as_published(rows: &[PageRow]) -> Vec<PageRow> {
    [PagePart::Published, PagePart::Twins].into_iter().flat_map(|part| medians(rows, part)).collect()
}

/// The resources of each server.
fn resources(rows: &[PageRow]) -> Table {
    let page = |row: &&PageRow| match row.key.page {
        PageSource::Memory => String::from("memory"),
        PageSource::File => String::from("file"),
    };
    Table::of_columns(
        rows,
        &[
            ("server", &|row| row.key.server.clone()),
            ("page", &page),
            ("workers", &|row| or_empty(row.key.workers.map(|workers| workers.to_string()))),
            ("requests/s", &|row| format!("{:.1}", row.sample.figures.requests_per_s)),
            ("CPU (µs/request)", &|row| or_empty(cpu_us(row).map(|us| format!("{us:.0}")))),
            ("peak memory (MiB)", &|row| or_empty(peak_mib(row).map(|mib| format!("{mib:.1}")))),
        ],
    )
    .with_texts_in(1)
}

/// Each published row, with the measured rows below it.
fn published_and_measured(rows: &[PageRow]) -> anyhow::Result<Table> {
    let columns = [
        "server", "wait", "total", "req/s", "of bound", "mean", "50%", "66%", "75%", "80%", "90%", "95%", "98%", "99%",
    ];
    let mut table = Table::of_numbers(&[&columns[..], &["max"]].concat());
    let published_bound = bound(published::CONNECTIONS, published::REQUESTS_PER_WAIT, published::WAIT.as_secs_f64());
    let cells = |server: String, figures: &PageFigures, wait_s: f64, of_bound: f64, digits: usize| {
        let PageFigures { total_s, requests_per_s, mean_ms, .. } = figures;
        let PageFigures { p50_ms, p66_ms, p75_ms, p80_ms, p90_ms, p95_ms, p98_ms, p99_ms, max_ms, .. } = *figures;
        let quantiles = [p50_ms, p66_ms, p75_ms, p80_ms, p90_ms, p95_ms, p98_ms, p99_ms, max_ms];
        let mut cells = vec![
            server,
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
        let measured_rows: Vec<&PageRow> = measured_as(rows, &published.server).collect();
        if measured_rows.is_empty() {
            continue;
        }
        let figures = &published.figures;
        let (name, of_bound) = (format!("{} (published)", published.server), figures.requests_per_s / published_bound);
        // Quantiles were published in whole milliseconds.
        table.row(cells(name, figures, published::WAIT.as_secs_f64(), of_bound, 0));
        for row in measured_rows {
            let Sample { figures, bounds, .. } = &row.sample;
            table.row(cells(origin(row), figures, bounds.wait_s, bounds.of_bound, 1));
        }
    }
    Ok(table)
}

/// The throughput by workers, with the bound in the first row. A share is of the lower of the two bounds.
fn throughput_by_workers(rows: &[PageRow]) -> Table {
    let size_bound = |size: Option<usize>| {
        let row = rows.iter().find(|row| row.key.part == PagePart::Sweep && row.key.workers == size)?;
        Some(format!("{:.0}", bound(size?, row.sample.bounds.every, row.sample.bounds.wait_s)))
    };
    let share = |row: &PageRow| {
        Some(format!("{:.0} ({:.0} %)", row.sample.figures.requests_per_s, row.sample.bounds.of_bound * 100.0))
    };
    by_workers(rows, Some(("bound, if a wait blocks a worker", &size_bound)), &share)
}

fn cpu_by_workers(rows: &[PageRow]) -> Table {
    by_workers(rows, None, &|row| cpu_us(row).map(|us| format!("{us:.0}")))
}

/// A row, with its cell for a number of workers.
type SizeRow<'a> = (&'a str, &'a dyn Fn(Option<usize>) -> Option<String>);

/// The servers of the sweep: a row for each, below `first`, and a column for each number of workers.
fn by_workers(rows: &[PageRow], first: Option<SizeRow<'_>>, cell: &dyn Fn(&PageRow) -> Option<String>) -> Table {
    let rows: Vec<&PageRow> = rows.iter().filter(|row| row.key.part == PagePart::Sweep).collect();
    let mut sizes: Vec<Option<usize>> = rows.iter().map(|row| row.key.workers).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let titles = sizes.iter().map(|size| size.map_or_else(|| String::from("its own"), |size| size.to_string()));
    let header: Vec<String> = std::iter::once(String::from("workers")).chain(titles).collect();
    let mut table = Table::of_numbers(&header.iter().map(String::as_str).collect::<Vec<_>>());
    let mut add = |(name, cell): SizeRow<'_>| {
        let cells = sizes.iter().map(|size| or_empty(cell(*size)));
        table.row(std::iter::once(name.to_owned()).chain(cells).collect());
    };
    if let Some(first) = first {
        add(first);
    }
    for name in distinct(rows.iter().map(|row| row.key.server.as_str())) {
        let of = |size| rows.iter().find(|row| row.key.server == name && row.key.workers == size);
        add((name, &|size| of(size).and_then(|row| cell(row))));
    }
    table
}

/// All rows, each with its bound.
fn all(rows: &[PageRow]) -> Table {
    let ms = |ms: f64| format!("{ms:.1} ms");
    Table::of_columns(
        rows,
        &[
            ("server", &|row| row.key.server.clone()),
            ("workers", &|row| or_empty(row.key.workers.map(|workers| workers.to_string()))),
            ("requests/s", &|row| format!("{:.1}", row.sample.figures.requests_per_s)),
            ("bound", &|row| or_empty(row.sample.bounds.bound_per_s.map(|bound| format!("{bound:.1}")))),
            ("of bound", &|row| format!("{:.0} %", row.sample.bounds.of_bound * 100.0)),
            ("requests", &|row| count(row.sample.bounds.requests as f64)),
            ("total", &|row| format!("{:.2} s", row.sample.figures.total_s)),
            ("mean", &|row| ms(row.sample.figures.mean_ms)),
            ("p50", &|row| ms(row.sample.figures.p50_ms)),
            ("p90", &|row| ms(row.sample.figures.p90_ms)),
            ("p99", &|row| ms(row.sample.figures.p99_ms)),
            ("max", &|row| ms(row.sample.figures.max_ms)),
            ("CPU", &|row| or_empty(row.sample.bounds.server_busy.map(|busy| format!("{:.0} %", busy * 100.0)))),
        ],
    )
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connections_bound_per_s, rows, failed, .. } = self;
        let of = |part| rows.iter().filter(move |row| row.key.part == part).cloned().collect::<Vec<PageRow>>();
        let (published, sweep) = (as_published(rows), of(PagePart::Sweep));
        if !published.is_empty() {
            writeln!(f, "as published, and here; latencies in closed loop, a connection for each request")?;
            writeln!(f, "{}", published_and_measured(&published).map_err(|_| fmt::Error)?)?;
            writeln!(f, "{}", resources(&published))?;
        }
        if let Some(row) = sweep.first() {
            let (connections, every, wait_s) =
                (row.sample.bounds.connections, row.sample.bounds.every, row.sample.bounds.wait_s);
            write!(f, "{}", all(&sweep))?;
            writeln!(f, "BOUND: workers x {every} / {wait_s} s, if a wait blocks a worker")?;
            writeln!(
                f,
                "{connections} connections ask for at most {connections} x {every} / {wait_s} s = {connections_bound_per_s:.1} a second"
            )?;
            writeln!(
                f,
                "OF BOUND: of the lower of these two; latencies in closed loop, a connection for each request"
            )?;
        }
        for failed in failed {
            writeln!(f, "not run: {}: {}", failed.key, failed.why)?;
        }
        write!(f, "\n{}", shown_claims(&self.claims))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::*;

    #[test]
    fn the_published_columns_come_first() {
        let text = csv(&[row(PagePart::Sweep, "any", Some(8), 40.0)]).unwrap();
        let published = crate::published::PAGE.lines().next().unwrap();
        assert!(text.starts_with(&format!("{published},part,published_as,workers,bound_per_s,")), "{text}");
    }

    #[test]
    fn the_bound_stands_above_every_size_and_the_published_row_above_ours() {
        let mut as_published = row(PagePart::Published, "smol", None, 498.0);
        as_published.sample.published_as = Some("async-std".into());
        let rows =
            [as_published, row(PagePart::Sweep, "pool", Some(8), 39.0), row(PagePart::Sweep, "pool", Some(128), 490.0)];
        let tables = tables(&rows).unwrap();
        let (first, second) = (tables[0].1.to_string(), tables[4].1.to_string());
        let line =
            |text: &str, at: usize| text.lines().nth(at).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(line(&first, 1).starts_with("async-std (published) 2 s 20.19 s 495.4 99.1 %"), "{first}");
        assert!(line(&first, 2).starts_with("smol (here) 2 s"), "{first}");
        assert_eq!(line(&second, 0), "workers 8 128");
        assert!(line(&second, 1).ends_with("a wait blocks a worker 40 640"), "{second}");
        assert_eq!(line(&second, 2), "pool 39 (98 %) 490 (98 %)");
    }
}
