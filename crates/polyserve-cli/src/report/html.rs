//! The HTML page: records, tables, claims and the published figures as JSON, and the scripts that draw them.
//!
//! Invariant: the page makes no requests, and its content security policy allows none. Texts of a record are shown as text,
//! never as HTML or code. Cost: the vendored libraries, half a megabyte, and the records.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

use polyserve_experiments::published;
use polyserve_report::{Claim, Summary};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::packing::{latencies_by_name, packed, rounded};
use super::{Record, shown_command};

/// The licences of the libraries in `assets/vendor`.
const LICENCES: &str = include_str!("../../assets/vendor/LICENSES.txt");
const LIBRARIES: [&str; 2] =
    [include_str!("../../assets/vendor/d3.min.js"), include_str!("../../assets/vendor/plot.umd.min.js")];
const STYLE: &str = include_str!("../../assets/report/report.css");
/// The scripts that draw the page, in the order of execution.
const SCRIPTS: [&str; 19] = [
    include_str!("../../assets/report/dom.js"),
    include_str!("../../assets/report/figures.js"),
    include_str!("../../assets/report/tables.js"),
    include_str!("../../assets/report/charts.js"),
    include_str!("../../assets/report/compare.js"),
    include_str!("../../assets/report/matrix.js"),
    include_str!("../../assets/report/tasks.js"),
    include_str!("../../assets/report/gantt.js"),
    include_str!("../../assets/report/waits.js"),
    include_str!("../../assets/report/ladder.js"),
    include_str!("../../assets/report/scale.js"),
    include_str!("../../assets/report/capacity.js"),
    include_str!("../../assets/report/stores.js"),
    include_str!("../../assets/report/crowd.js"),
    include_str!("../../assets/report/recommend.js"),
    include_str!("../../assets/report/stress.js"),
    include_str!("../../assets/report/ranking.js"),
    include_str!("../../assets/report/page.js"),
    include_str!("../../assets/report/selftest.js"),
];

/// The published figures, with their names in the scripts.
const PUBLISHED: [(&str, &str); 7] = [
    ("matrix_get", published::MATRIX_GET),
    ("matrix_put", published::MATRIX_PUT),
    ("stress", published::STRESS),
    ("tasks_go", published::TASKS_GO),
    ("tasks_rust", published::TASKS_RUST),
    ("page", published::PAGE),
    ("ladder", published::LADDER),
];

/// The data that the drawing of an experiment reads: the kinds of lines, and whether it also reads the experiment's
/// result. The page contains this data and tables. For an experiment that is not listed, it contains a table of each
/// kind of line.
const DRAWN: [(&str, &[&str], bool); 13] = [
    ("capacity", &[], true),
    ("compare", &["turn"], true),
    ("crowd", &["row"], false),
    ("ladder", &["rung", "contestant"], true),
    ("matrix", &["cell"], false),
    ("page", &["cell"], false),
    ("recommend", &["recommendation"], true),
    ("scale", &["cell"], true),
    ("seam", &[], true),
    ("stores", &[], true),
    ("stress", &["round"], false),
    ("tasks", &["cell"], false),
    ("trial", &[], false),
];
/// The kinds of lines of contestants without figures; the page lists their reasons.
const WITHOUT_FIGURES: [&str; 3] = ["not_run", "refusal", "failure"];
/// A record, in the form that the page's scripts read.
#[derive(Debug, Serialize)]
struct PageRecord<'a> {
    experiment: &'a str,
    title: &'a str,
    article: Option<&'a str>,
    file: String,
    /// The header of the first run, and one of each run that continued it.
    environments: Vec<Value>,
    /// What the record lacks, if it is not complete.
    short_of: Option<String>,
    claims: Vec<Claim>,
    tables: Vec<Value>,
    /// The derived values that the charts need.
    derived: Value,
    /// The parts that this program cannot show.
    not_shown: Vec<String>,
    /// The lines that are drawn, by their kinds.
    lines: BTreeMap<&'a str, Vec<Value>>,
}

impl<'a> PageRecord<'a> {
    fn of(record: &'a Record) -> Self {
        let mut not_shown = Vec::new();
        let recorded = record.recorded();
        if let Err(error) = &recorded {
            not_shown.push(format!("no tables, claims and charts of its own: {error:#}"));
        }
        let Summary { claims, tables, .. } = recorded.as_ref().map(|result| result.summary.clone()).unwrap_or_default();
        let drawn = DRAWN.iter().find(|(name, ..)| *name == record.name);
        let tables = if drawn.is_some() { tables } else { super::plain::with_plain_tables(tables, &record.lines) };
        let (_, kinds, reads_result) = drawn.unwrap_or(&("", &[], false));
        let mut derived = Value::Null;
        if *reads_result {
            derived = recorded.map(|result| result.report.clone()).unwrap_or_default();
            rounded(&mut derived);
        }
        let mut lines: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for line in &record.lines {
            let kind = line["kind"].as_str().unwrap_or_default();
            if kinds.contains(&kind) || WITHOUT_FIGURES.contains(&kind) {
                let mut line = line.clone();
                rounded(&mut line);
                lines.entry(kind).or_default().push(line);
            }
        }
        if let Some(turns) = lines.get_mut("turn") {
            *turns = latencies_by_name(turns);
        }
        let environment = |header: &Value| {
            let mut header = header.clone();
            header["command"] = Value::String(shown_command(&header));
            header
        };
        let title = if record.experiment.name.is_empty() { &record.name } else { record.experiment.title };
        Self {
            experiment: &record.name,
            title,
            article: record.experiment.article,
            file: short_path(&record.path),
            environments: record.headers().map(environment).collect(),
            short_of: record.incomplete_reason(),
            claims,
            tables: tables.iter().map(|(name, table)| json!({"name": name, "rows": table.rows()})).collect(),
            derived,
            not_shown,
            lines,
        }
    }
}

/// Returns the names of a record's file and its directory, without the rest of the machine's path.
fn short_path(path: &Path) -> String {
    let names: Vec<_> = path.iter().rev().take(2).map(|name| name.to_string_lossy()).collect();
    names.into_iter().rev().collect::<Vec<_>>().join("/")
}

/// Returns the page of these records.
pub(crate) fn page(records: &[Record]) -> anyhow::Result<String> {
    let published: BTreeMap<&str, Vec<Value>> =
        PUBLISHED.iter().map(|(name, text)| Ok((*name, rows(text)?))).collect::<anyhow::Result<_>>()?;
    let records: Vec<PageRecord<'_>> = records.iter().map(PageRecord::of).collect();
    let data = within_script(&serde_json::to_string(&packed(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "records": records,
        "published": published,
    })))?);
    Ok(html_page(&data))
}

fn html_page(data: &str) -> String {
    // The policy allows only scripts with this nonce. It is a hash of the whole page, so no text of a record can contain it.
    let mut hasher = DefaultHasher::new();
    data.hash(&mut hasher);
    let nonce = format!("{:016x}", hasher.finish());
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; \
         form-action 'none'"
    );
    let mut page = String::with_capacity(data.len() + (1 << 20));
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>polyserve: measurements</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <noscript>This page needs JavaScript to draw its tables and charts.</noscript>\n\
         <script type=\"application/json\" id=\"data\">{data}</script>\n<!--\n{LICENCES}-->\n"
    ); // a string takes all
    for library in LIBRARIES {
        let _ = writeln!(page, "<script nonce=\"{nonce}\">{library}</script>");
    }
    let _ =
        writeln!(page, "<script nonce=\"{nonce}\">\n(() => {{\n\"use strict\";\n{}}})();\n</script>", SCRIPTS.concat());
    page.push_str("</body>\n</html>\n");
    page
}

/// Escapes JSON for a script element: the result begins or ends no element and no comment.
fn within_script(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

/// The rows of a CSV file as objects with the names of the columns. Numbers become JSON numbers.
fn rows(text: &str) -> anyhow::Result<Vec<Value>> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers()?.clone();
    let mut rows = Vec::new();
    for record in reader.records() {
        let mut row = Map::new();
        for (name, cell) in header.iter().zip(&record?) {
            let value = cell.parse::<f64>().map_or_else(|_| Value::from(cell), Value::from);
            row.insert(name.to_owned(), value);
        }
        rows.push(Value::Object(row));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::super::packing::unpacked;
    use super::*;
    use std::path::PathBuf;

    fn record(name: &str, lines: Vec<Value>) -> Record {
        Record::new(Path::new("dir/file.jsonl"), name, lines)
    }

    /// What the scripts read, from the page.
    fn data(page: &str) -> Value {
        let (_, rest) = page.split_once("id=\"data\">").unwrap();
        unpacked(serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap())
    }

    #[test]
    fn the_page_does_not_tell_where_its_records_are() {
        let header = json!({"kind": "environment", "command": ["/a/machine/polyserve", "page", "--out", "/a/machine"]});
        let mut record = record("page", vec![header, json!({"kind": "cell", "server": "a"})]);
        record.path = PathBuf::from("/a/machine/results/page.jsonl");
        let page = page(&[record]).unwrap();
        assert_eq!(data(&page)["records"][0]["file"], "results/page.jsonl");
        assert!(!page.contains("/machine"));
    }

    /// A user can choose any name for a server.
    #[test]
    fn a_name_cannot_break_the_page() {
        let name = "</script><script>alert(1)</script><!-- \u{2028} &\"'";
        let lines = vec![
            json!({"kind": "environment", "command": [name], "cpu": name}),
            json!({"kind": name, "server": name, "n": 1}),
        ];
        let page = page(&[record(name, lines)]).unwrap();
        assert_eq!(page.matches("<script").count(), 2 + LIBRARIES.len(), "the data, the libraries, our own");
        assert_eq!(page.matches("</script").count(), 2 + LIBRARIES.len());
        let data = data(&page);
        let shown = &data["records"][0];
        assert_eq!((&shown["experiment"], &shown["environments"][0]["cpu"]), (&json!(name), &json!(name)));
        assert_eq!(shown["tables"][0]["rows"][1][1], "1");
    }

    #[test]
    fn what_is_vendored_or_ours_ends_no_element() {
        for script in LIBRARIES.iter().chain(&SCRIPTS) {
            let lower = script.to_lowercase();
            assert!(!lower.contains("</script") && !lower.contains("<!--"), "{}", &script[..80]);
        }
        assert!(!LICENCES.contains("-->") && !STYLE.to_lowercase().contains("</style"));
    }

    #[test]
    fn the_same_records_give_the_same_page_which_asks_for_nothing() {
        let sample = || record("page", vec![json!({"kind": "environment"}), json!({"kind": "cell", "server": "a"})]);
        let page = page(&[sample()]).unwrap();
        assert_eq!(page, super::page(&[sample()]).unwrap());
        for asking in [" src=", "<link", "@import", "url("] {
            let ours = page.replace(LIBRARIES[0], "").replace(LIBRARIES[1], "");
            assert!(!ours.contains(asking), "{asking}");
        }
        assert!(page.contains("default-src 'none'"));
    }

    #[test]
    fn every_published_figure_is_there() {
        let page = page(&[]).unwrap();
        let data = data(&page);
        for (name, text) in PUBLISHED {
            let rows = data["published"][name].as_array().unwrap();
            assert_eq!(rows.len(), text.lines().count() - 1, "{name}");
        }
        assert_eq!(data["published"]["page"][0]["requests_per_s"], 495.72);
        assert_eq!(data["published"]["matrix_get"][0]["lang"], "go");
    }
}
