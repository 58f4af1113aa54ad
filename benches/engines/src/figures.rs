//! The medians of a measurement, as CSV and as text.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::Failure;

/// The medians of one kind of request over one repo. NaN is "not measured".
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) repo: String,
    pub(crate) request: String,
    /// Requests a second in a closed loop.
    pub(crate) per_s: f64,
    /// Processor time of the server, and of all processes of the engine, for each request.
    pub(crate) server_us: f64,
    pub(crate) engine_us: f64,
    /// Latencies in the closed loop.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// At a half, and at four fifths, of the rate.
    pub(crate) p99_half_ms: f64,
    pub(crate) p99_most_ms: f64,
    /// Reads a second by the client library alone, and the share of what is then expected over HTTP.
    pub(crate) alone_per_s: f64,
    pub(crate) share: f64,
    /// Threads of the server with one connection and with all.
    pub(crate) threads_before: f64,
    pub(crate) threads_during: f64,
    /// Bytes in memory, or in the engine, for each entity.
    pub(crate) bytes_per_entity: f64,
}

pub(crate) const FILE: &str = "cluster.csv";

/// A column of numbers: its name, and its field of a row.
type Column = (&'static str, fn(&mut Row) -> &mut f64);

/// The columns after the repo and the request.
const COLUMNS: [Column; 12] = [
    ("requests_per_s", |row| &mut row.per_s),
    ("server_us", |row| &mut row.server_us),
    ("engine_us", |row| &mut row.engine_us),
    ("p50_ms", |row| &mut row.p50_ms),
    ("p99_ms", |row| &mut row.p99_ms),
    ("p99_half_ms", |row| &mut row.p99_half_ms),
    ("p99_four_fifths_ms", |row| &mut row.p99_most_ms),
    ("alone_per_s", |row| &mut row.alone_per_s),
    ("share_of_expected", |row| &mut row.share),
    ("threads_1", |row| &mut row.threads_before),
    ("threads_256", |row| &mut row.threads_during),
    ("bytes_per_entity", |row| &mut row.bytes_per_entity),
];

fn head() -> String {
    format!("repo,request,{}", COLUMNS.map(|(name, _)| name).join(","))
}

/// Prints the rows, and writes them to a directory if there is one.
pub(crate) fn write(rows: &[Row], out: Option<&Path>) -> Result<(), Failure> {
    let mut text = format!("{}\n", head());
    for mut row in rows.iter().cloned() {
        let fields = COLUMNS.map(|(_, field)| match *field(&mut row) {
            number if number.is_nan() => String::new(),
            number => format!("{number:.2}"),
        });
        writeln!(text, "{},{},{}", row.repo, row.request, fields.join(","))?;
    }
    print!("{text}");
    if let Some(directory) = out {
        fs::create_dir_all(directory)?;
        fs::write(directory.join(FILE), text)?;
    }
    Ok(())
}

/// Reads the rows of a directory.
pub(crate) fn read(directory: &Path) -> Result<Vec<Row>, Failure> {
    let path = directory.join(FILE);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut lines = text.lines();
    if lines.next() != Some(&*head()) {
        return Err(format!("{} has other columns than {}", path.display(), head()).into());
    }
    lines.map(|line| row(line).ok_or_else(|| format!("{}: {line}", path.display()).into())).collect()
}

fn row(line: &str) -> Option<Row> {
    let mut texts = line.split(',').map(String::from);
    let mut row = Row { repo: texts.next()?, request: texts.next()?, ..Row::default() };
    for (_, field) in COLUMNS {
        let text = texts.next()?;
        *field(&mut row) = if text.is_empty() { f64::NAN } else { text.parse().ok()? };
    }
    texts.next().is_none().then_some(row)
}
