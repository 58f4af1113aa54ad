//! Output on standard output: text or JSON. It is no error if the reader has closed its end.

use std::fmt;
use std::io::{self, Write as _};
use std::time::Duration;

use crate::report::figures::{count, time_us};
use crate::report::wrapped;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::machine::Environment;

/// The spaces before the rest of a long line.
pub(crate) const INDENT: usize = 3;

/// The max deviation from Little's law without a mark.
pub const MAX_LITTLES_LAW_ERROR: f64 = 0.05;

/// Requests a second, for a table. `under_way` is the mean number of requests under way as a share of the connections; by
/// Little's law it is 1 in a closed loop. A rate that breaks the law is marked: `12,345 (0.94 under way)`.
pub(crate) fn rate_text(per_s: f64, under_way: Option<f64>) -> String {
    match under_way.filter(|share| (share - 1.0).abs() > MAX_LITTLES_LAW_ERROR) {
        Some(share) => format!("{} ({share:.2} under way)", count(per_s)),
        None => count(per_s),
    }
}

/// The max lateness of the load generator without a mark, as a share of a latency or of the goal for a latency.
const MAX_LATE: f64 = 0.1;

/// Whether the load generator's own lateness, 99 %, is a large part of a latency, or of the goal for one.
pub(crate) fn is_client_late(lateness_p99_us: f64, latency_us: f64) -> bool {
    lateness_p99_us > MAX_LATE * latency_us
}

/// A latency in microseconds, for a table. It is marked if the load generator's own lateness, 99 %, is a large part: `~1.2 ms`.
/// It is infinite without an answer.
pub(crate) fn latency_text(us: f64, lateness_p99_us: f64) -> String {
    if us.is_infinite() {
        return NO_ANSWER.to_owned();
    }
    format!("{}{}", if is_client_late(lateness_p99_us, us) { "~" } else { "" }, time_us(us))
}

/// What stands in the place of a figure that needs an answer, without one.
pub(crate) const NO_ANSWER: &str = "no answer";

/// The meaning of the mark of [`latency_text`].
pub(crate) const LATE_NOTE: &str =
    "~ before a latency: the client's own lateness (99 %) was above a tenth of the latency";

/// Prints `text`, and flushes it.
///
/// # Errors
///
/// Returns an error if standard output fails. It is no error if the reader has closed its end.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    ignore_broken_pipe(out.write_all(text.as_bytes()).and_then(|()| out.flush())).map(drop)
}

/// Returns true if standard output is a terminal with colours and `NO_COLOR` is not set.
pub(crate) fn is_coloured() -> bool {
    anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
}

/// Prints `value` as one line of JSON.
///
/// # Errors
///
/// Returns the errors of [`print()`], and an error if the value cannot be JSON.
pub fn print_json(value: &impl Serialize) -> io::Result<()> {
    print(&format!("{}\n", serde_json::to_string(value)?))
}

/// A report as JSON: the environment, then the fields of the report.
#[derive(Serialize)]
pub(crate) struct WithEnvironment<'a, R> {
    pub(crate) environment: &'a Environment,
    #[serde(flatten)]
    pub(crate) report: &'a R,
}

/// Prints a report as text, in lines of at most `WIDTH` characters.
///
/// # Errors
///
/// Returns the errors of [`print()`].
pub fn print_text(report: &impl fmt::Display) -> io::Result<()> {
    print(&wrapped(&report.to_string(), INDENT))
}

/// Prints `report` as text, or as JSON with the environment before the fields of the report.
///
/// # Errors
///
/// Returns the errors of [`print_text`] and [`print_json`].
pub fn print_report(json: bool, environment: &Environment, report: &(impl Serialize + fmt::Display)) -> io::Result<()> {
    if json { print_json(&WithEnvironment { environment, report }) } else { print_text(report) }
}

/// Returns false if the reader has closed its end, so that no more output is needed.
///
/// # Errors
///
/// Returns any other error.
pub fn ignore_broken_pipe(result: io::Result<()>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

/// A progress line with a prefix, a message and the elapsed time. If standard error is no terminal,
/// nothing is drawn.
pub(crate) fn spinner() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {elapsed} {prefix}: {msg}");
    let bar = ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
