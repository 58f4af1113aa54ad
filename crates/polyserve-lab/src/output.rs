//! What is printed on standard output: for people, or JSON. A reader that has gone away is no error.

use std::fmt;
use std::io::{self, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::machine::Environment;

/// Prints `text`, and sees that it leaves.
///
/// # Errors
///
/// Where standard output fails; that its reader has gone away is none.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    quiet(out.write_all(text.as_bytes()).and_then(|()| out.flush())).map(drop)
}

/// Returns true if standard output shows colours: a terminal, unless `NO_COLOR` is set or it shows none.
pub fn is_coloured() -> bool {
    anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
}

/// Prints `value` as one line of JSON.
///
/// # Errors
///
/// As [`print()`], or where the value is no JSON.
pub fn print_json(value: &impl Serialize) -> io::Result<()> {
    print(&format!("{}\n", serde_json::to_string(value)?))
}

/// Prints `report`: for people, or as JSON with where it was measured before its own fields.
///
/// # Errors
///
/// As [`print()`].
pub fn print_report(json: bool, environment: &Environment, report: &(impl Serialize + fmt::Display)) -> io::Result<()> {
    #[derive(Serialize)]
    struct Printed<'a, R> {
        environment: &'a Environment,
        #[serde(flatten)]
        report: &'a R,
    }
    if json { print_json(&Printed { environment, report }) } else { print(&report.to_string()) }
}

/// Whether to go on: false where the reader has gone away.
///
/// # Errors
///
/// Any other error.
pub fn quiet(result: io::Result<()>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

/// A line that shows what is going on, as its prefix and message, and for how long. Where standard error is no terminal,
/// nothing is drawn.
pub fn spinner() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {elapsed} {prefix}: {msg}");
    let bar = ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
