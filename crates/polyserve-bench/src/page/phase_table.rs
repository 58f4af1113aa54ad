//! The published phases and bytes next to ours, as tables and as CSV with the published columns.
//!
//! Earlier records have neither phases nor bytes.

use crate::experiment;
use crate::report::Table;
use crate::report::figures::count;
use serde_json::{Value, json};

use super::published::{self, PublishedBytes};
use super::record::{Details, PageRow, PhaseFigures, measured_as, origin};

/// The published columns of the phases, then ours.
const PHASE_COLUMNS: &str = "server,row,min_ms,mean_ms,sd_ms,median_ms,max_ms,part,published_as,workers,page,round";
/// The published columns of the bytes, then ours.
const BYTE_COLUMNS: &str =
    "server,document_bytes,total_bytes,html_bytes,received_kB_s,part,published_as,workers,page,round";

/// The cell of a figure that a record does not have.
const NOT_MEASURED: &str = "not measured";

/// The measured times of the phase `name`; `None` if they were not measured.
fn phase(row: &PageRow, name: &str) -> Option<PhaseFigures> {
    let phases = row.sample.details.phases.as_ref()?;
    match name {
        "connect" => Some(phases.connect),
        "waiting" => Some(phases.waiting),
        "processing" => Some(phases.processing),
        "total" => Some(phases.total),
        _ => None,
    }
}

/// Each published phase, with the measured phases of the `rows` below it.
pub(super) fn phases(rows: &[PageRow]) -> anyhow::Result<Table> {
    let mut table =
        Table::of_numbers(&["server", "row", "min (ms)", "mean (ms)", "sd (ms)", "median (ms)", "max (ms)"]);
    let mut add = |server: String, row: &str, figures: Option<PhaseFigures>, digits: usize| {
        let numbers = match figures {
            Some(PhaseFigures { min_ms, mean_ms, sd_ms, median_ms, max_ms }) => {
                let [min, mean, median, max] = [min_ms, mean_ms, median_ms, max_ms].map(|ms| format!("{ms:.digits$}"));
                [min, mean, format!("{sd_ms:.1}"), median, max]
            }
            None => std::array::from_fn(|_| NOT_MEASURED.to_owned()),
        };
        table.row([server, row.to_owned()].into_iter().chain(numbers).collect());
    };
    for published in published::phases()? {
        let measured_rows: Vec<&PageRow> = measured_as(rows, &published.server).collect();
        if measured_rows.is_empty() {
            continue;
        }
        add(format!("{} (published)", published.server), &published.row, Some(published.figures), 0);
        for row in measured_rows {
            add(origin(row), &published.row, phase(row, &published.row), 1);
        }
    }
    Ok(table.with_texts_in(1))
}

/// The bytes of each published server, with those of the measured `rows` below it.
pub(super) fn bytes(rows: &[PageRow]) -> anyhow::Result<Table> {
    let header = ["server", "page (bytes)", "all pages (bytes)", "received (bytes)", "received (KiB/s)"];
    let mut table = Table::of_numbers(&header);
    let exact = |number: u64| count(number as f64);
    for published in published::bytes()? {
        let measured_rows: Vec<&PageRow> = measured_as(rows, &published.server).collect();
        if measured_rows.is_empty() {
            continue;
        }
        let PublishedBytes { server, document_bytes, total_bytes, html_bytes, received_kib_s } = published;
        let name = format!("{server} (published)");
        let numbers = [document_bytes, html_bytes, total_bytes].map(exact);
        table.row([name].into_iter().chain(numbers).chain([format!("{received_kib_s:.2}")]).collect());
        for row in measured_rows {
            let measured = |figure: Option<String>| figure.unwrap_or_else(|| NOT_MEASURED.to_owned());
            let Details { page_bytes, received_bytes, .. } = row.sample.details;
            let all_pages = page_bytes.map(|length| length * row.sample.bounds.requests);
            let numbers = [page_bytes, all_pages, received_bytes].map(|number| measured(number.map(exact)));
            let rate = measured(kib_s(row).map(|rate| format!("{rate:.2}")));
            table.row([origin(row)].into_iter().chain(numbers).chain([rate]).collect());
        }
    }
    Ok(table)
}

/// The transfer rate, in KiB/s.
fn kib_s(row: &PageRow) -> Option<f64> {
    Some(row.sample.details.received_bytes? as f64 / 1024.0 / row.sample.figures.total_s)
}

/// The phases of all rows as CSV.
pub(super) fn phases_csv(rows: &[PageRow]) -> anyhow::Result<String> {
    let lines = rows.iter().flat_map(|row| {
        let line = |name| Some(with_key(row, &json!(phase(row, name)?), &json!({ "row": name })));
        ["connect", "processing", "waiting", "total"].into_iter().filter_map(line)
    });
    experiment::csv(PHASE_COLUMNS, lines)
}

/// The bytes of all rows as CSV.
pub(super) fn bytes_csv(rows: &[PageRow]) -> anyhow::Result<String> {
    let lines = rows.iter().filter_map(|row| {
        let Details { page_bytes, received_bytes, .. } = row.sample.details;
        let byte_figures = json!({
            "document_bytes": page_bytes?,
            "total_bytes": received_bytes?,
            "html_bytes": page_bytes? * row.sample.bounds.requests,
            "received_kB_s": kib_s(row)?,
        });
        Some(with_key(row, &byte_figures, &Value::Null))
    });
    experiment::csv(BYTE_COLUMNS, lines)
}

/// The fields of two objects, with those of the row's key.
fn with_key(row: &PageRow, figures: &Value, extra: &Value) -> Value {
    let mut line = json!(row.key);
    line["published_as"] = json!(row.sample.published_as);
    for (name, value) in [figures, extra].into_iter().filter_map(Value::as_object).flatten() {
        line[name.as_str()] = value.clone();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::super::record::{PagePart, Phases};
    use super::super::tests::row;
    use super::*;

    fn measured() -> PageRow {
        let figures =
            |mean_ms: f64| PhaseFigures { min_ms: 0.0, mean_ms, sd_ms: 600.0, median_ms: 0.2, max_ms: 2001.0 };
        let mut row = row(PagePart::Twins, "twin/tokio", None, 499.0);
        row.sample.published_as = Some("tokio".into());
        let (connect, waiting) = (figures(0.1), figures(199.9));
        let phases = Phases { connect, waiting, processing: figures(200.0), total: figures(200.1) };
        row.sample.details.phases = Some(phases);
        (row.sample.details.page_bytes, row.sample.details.received_bytes) = (Some(176), Some(2_830_000));
        row
    }

    #[test]
    fn the_published_rows_stand_above_ours() {
        let text = phases(&[measured()]).unwrap().to_string();
        let line = |at: usize| text.lines().nth(at).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(line(1), "tokio (published) connect 0 1 2.4 0 22");
        assert_eq!(line(2), "twin/tokio (here, its listing) connect 0.0 0.1 600.0 0.2 2001.0");
        assert_eq!(line(5), "tokio (published) waiting 0 202 600.3 1 2012");
        assert!(line(6).ends_with("waiting 0.0 199.9 600.0 0.2 2001.0"), "{text}");
        assert_eq!(text.lines().count(), 1 + 2 * 4, "one published server was measured");
        let text = bytes(&[measured()]).unwrap().to_string();
        assert!(text.contains("tokio (published)") && text.contains("143.86"), "{text}");
        let ours = text.lines().find(|line| line.starts_with("twin/tokio")).unwrap();
        assert!(ours.contains("1,760,000") && ours.contains("2,830,000"), "{ours}");
        let mut earlier = measured();
        (earlier.sample.details.phases, earlier.sample.details.received_bytes) = (None, None);
        for table in [phases(&[earlier.clone()]).unwrap(), bytes(&[earlier]).unwrap()] {
            assert!(table.to_string().contains(NOT_MEASURED), "{table}");
        }
    }

    #[test]
    fn the_published_columns_come_first() {
        let text = phases_csv(&[measured()]).unwrap();
        assert!(text.starts_with(crate::published::PAGE_ROWS.lines().next().unwrap()), "{text}");
        assert_eq!((text.lines().count(), text.lines().nth(1).unwrap().split(',').nth(1)), (5, Some("connect")));
        let text = bytes_csv(&[measured()]).unwrap();
        assert!(text.starts_with(crate::published::PAGE_BYTES.lines().next().unwrap()), "{text}");
        assert!(text.lines().nth(1).unwrap().starts_with("twin/tokio,176,2830000,1760000,137"), "{text}");
    }
}
