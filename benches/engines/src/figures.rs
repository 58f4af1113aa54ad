//! The medians of a measurement, as CSV and as text. The lines before the column names are a header: `# key: value`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::Failure;

/// The medians of one kind of request on one repo. NaN means "not measured".
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) repo: String,
    pub(crate) request: String,
    /// Requests per second in a closed loop.
    pub(crate) per_s: f64,
    /// Processor time per request: of the server, and of all processes of the engine.
    pub(crate) server_us: f64,
    pub(crate) engine_us: f64,
    /// Latencies in the closed loop.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// The p99 at 50 % and at 80 % of the closed-loop rate.
    pub(crate) p99_half_ms: f64,
    pub(crate) p99_four_fifths_ms: f64,
    /// Reads per second by the client library without a server. The rate over HTTP as a share of the expected rate.
    pub(crate) alone_per_s: f64,
    pub(crate) share: f64,
    /// Threads of the server with one connection, and with all connections.
    pub(crate) threads_before: f64,
    pub(crate) threads_during: f64,
    /// Bytes per entity, in memory or in the engine.
    pub(crate) bytes_per_entity: f64,
}

pub(crate) const FILE: &str = "cluster.csv";

/// The machine, the commit and the command of a measurement: keys and values.
pub(crate) type Header = Vec<(&'static str, String)>;

/// Returns the lines of a header.
pub(crate) fn header_lines(header: &Header) -> String {
    header.iter().map(|(key, value)| format!("# {key}: {value}\n")).collect()
}

/// A column of numbers: its name, and its field in a row.
type Column = (&'static str, fn(&mut Row) -> &mut f64);

/// The columns after the repo and the request.
const COLUMNS: [Column; 12] = [
    ("requests_per_s", |row| &mut row.per_s),
    ("server_us", |row| &mut row.server_us),
    ("engine_us", |row| &mut row.engine_us),
    ("p50_ms", |row| &mut row.p50_ms),
    ("p99_ms", |row| &mut row.p99_ms),
    ("p99_half_ms", |row| &mut row.p99_half_ms),
    ("p99_four_fifths_ms", |row| &mut row.p99_four_fifths_ms),
    ("alone_per_s", |row| &mut row.alone_per_s),
    ("share_of_expected", |row| &mut row.share),
    ("threads_1", |row| &mut row.threads_before),
    ("threads_256", |row| &mut row.threads_during),
    ("bytes_per_entity", |row| &mut row.bytes_per_entity),
];

fn head() -> String {
    format!("repo,request,{}", COLUMNS.map(|(name, _)| name).join(","))
}

/// Prints the rows, and writes them to the directory `out` if it is set.
pub(crate) fn write(rows: &[Row], header: &Header, out: Option<&Path>) -> Result<(), Failure> {
    let text = text(rows, header)?;
    print!("{text}");
    if let Some(directory) = out {
        fs::create_dir_all(directory)?;
        fs::write(directory.join(FILE), text)?;
    }
    Ok(())
}

fn text(rows: &[Row], header: &Header) -> Result<String, Failure> {
    let mut text = format!("{}{}\n", header_lines(header), head());
    for mut row in rows.iter().cloned() {
        let fields = COLUMNS.map(|(_, field)| match *field(&mut row) {
            number if number.is_nan() => String::new(),
            number => format!("{number:.2}"),
        });
        writeln!(text, "{},{},{}", row.repo, row.request, fields.join(","))?;
    }
    Ok(text)
}

/// Reads the rows from the file in `directory`.
pub(crate) fn read(directory: &Path) -> Result<Vec<Row>, Failure> {
    let path = directory.join(FILE);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    parsed(&text).map_err(|why| format!("{}: {why}", path.display()).into())
}

fn parsed(text: &str) -> Result<Vec<Row>, String> {
    let mut lines = text.lines().skip_while(|line| line.starts_with('#'));
    if lines.next() != Some(&*head()) {
        return Err(format!("the columns are not {}", head()));
    }
    lines.map(|line| row(line).ok_or_else(|| line.to_owned())).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: once, a record named neither the machine nor the commit.
    #[test]
    fn a_record_with_a_header_is_read() {
        let row = Row { repo: "memory".into(), request: "GET".into(), per_s: 7.0, share: f64::NAN, ..Row::default() };
        let header = vec![("cpu", String::from("Some CPU, 2 GHz")), ("commit", String::from("0123456789ab"))];
        let text = text(&[row], &header).expect("it is written");
        assert!(text.starts_with("# cpu: Some CPU, 2 GHz\n# commit: 0123456789ab\nrepo,request,"), "{text}");
        let rows = parsed(&text).expect("it is read");
        assert_eq!((rows.len(), &*rows[0].repo, rows[0].per_s), (1, "memory", 7.0));
        assert!(rows[0].share.is_nan());
        assert!(parsed("# cpu: Some CPU\nother,columns\n").unwrap_err().contains("columns"));
    }
}
