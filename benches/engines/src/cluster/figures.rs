//! The medians of a measurement, as CSV and as text.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::Failure;

/// The medians of one kind of request over one repo. NaN is "not measured".
#[derive(Clone, Debug)]
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

const HEAD: &str = "repo,request,requests_per_s,server_us,engine_us,p50_ms,p99_ms,p99_half_ms,p99_four_fifths_ms,alone_per_s,\
                    share_of_expected,threads_1,threads_256,bytes_per_entity";

impl Row {
    fn numbers(&self) -> [f64; 12] {
        [
            self.per_s,
            self.server_us,
            self.engine_us,
            self.p50_ms,
            self.p99_ms,
            self.p99_half_ms,
            self.p99_most_ms,
            self.alone_per_s,
            self.share,
            self.threads_before,
            self.threads_during,
            self.bytes_per_entity,
        ]
    }
}

/// Prints the rows, and writes them to a directory if there is one.
pub(crate) fn write(rows: &[Row], out: Option<&Path>) -> Result<(), Failure> {
    let mut text = format!("{HEAD}\n");
    for row in rows {
        let fields = row.numbers().map(|number| if number.is_nan() { String::new() } else { format!("{number:.2}") });
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
    if lines.next() != Some(HEAD) {
        return Err(format!("{} has other columns than {HEAD}", path.display()).into());
    }
    lines.map(|line| row(line).ok_or_else(|| format!("{}: {line}", path.display()).into())).collect()
}

fn row(line: &str) -> Option<Row> {
    let mut fields = line.split(',');
    let (repo, request) = (fields.next()?.to_owned(), fields.next()?.to_owned());
    let number = |text: &str| if text.is_empty() { Some(f64::NAN) } else { text.parse().ok() };
    let numbers: Vec<f64> = fields.map(number).collect::<Option<_>>()?;
    let [
        per_s,
        server_us,
        engine_us,
        p50_ms,
        p99_ms,
        p99_half_ms,
        p99_most_ms,
        alone_per_s,
        share,
        threads_before,
        threads_during,
        bytes_per_entity,
    ] = numbers[..]
    else {
        return None;
    };
    Some(Row {
        repo,
        request,
        per_s,
        server_us,
        engine_us,
        p50_ms,
        p99_ms,
        p99_half_ms,
        p99_most_ms,
        alone_per_s,
        share,
        threads_before,
        threads_during,
        bytes_per_entity,
    })
}
