//! Runs a build command, and shows its progress. A build of contestants takes minutes.
//!
//! Invariant: no build is part of a measurement. All builds end before the measurements begin.

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use polyserve::Shutdown;

use super::line_process::reader;

/// The interval at which the stop signal is checked.
const STOP_CHECK: Duration = Duration::from_millis(100);
/// The time in which the last lines of a build that has ended are read.
const LAST_LINES: Duration = Duration::from_secs(1);
/// The number of output lines that are kept.
const MAX_LINES: usize = 50;

/// Runs `command` to its end. Meanwhile it shows `notice` and the command's standard error. If `stop` begins, the command is
/// killed. Returns the reason that the command printed, if the command does not exit with code 0.
pub(crate) fn run(mut command: Command, notice: &str, stop: &Shutdown) -> Result<(), String> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child =
        command.spawn().map_err(|error| format!("{} cannot be started: {error}", command.get_program().display()))?;
    let spinner = ProgressBar::new_spinner(); // draws nothing if standard error is no terminal
    spinner.set_message(notice.to_owned());
    if !std::io::stderr().is_terminal() {
        let _ = writeln!(std::io::stderr(), "{notice}"); // standard error may be closed
    }
    let (sender, lines) = channel();
    match child.stderr.take() {
        // If no thread can be started, the channel closes at once and no line is received.
        Some(err) => drop(reader("build", err, move |line| drop(sender.send(line)))),
        None => drop(sender),
    }
    let output = collect(&lines, &mut child, &spinner, notice, stop);
    let status = child.wait().map_err(|error| format!("it cannot be waited for: {error}"))?;
    spinner.finish_and_clear();
    match status.success() {
        true => Ok(()),
        false if stop.is_begun() => Err(String::from("it was interrupted while it was built")),
        false => Err(reason(&output)),
    }
}

/// Checks that `program` is installed: it exits with code 0 if it is called with `argument`, which prints its version. Returns
/// the reason, as tables print it, if the program is not installed or does not run.
pub(crate) fn is_installed(program: &str, argument: &str) -> Result<(), String> {
    let mut command = Command::new(program);
    match command.arg(argument).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program} does not print its version: {status}")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!("{program} is not installed")),
        Err(error) => Err(format!("{program} cannot be started: {error}")),
    }
}

/// Collects the last lines of the child's standard error until the child ends: a process that it leaves may hold the standard error open.
/// If `stop` begins, the child is killed.
fn collect(
    lines: &Receiver<String>,
    child: &mut Child,
    spinner: &ProgressBar,
    notice: &str,
    stop: &Shutdown,
) -> VecDeque<String> {
    let mut output = VecDeque::new();
    let mut read_until = None;
    while read_until.is_none_or(|until| Instant::now() < until) {
        match lines.recv_timeout(STOP_CHECK) {
            Ok(line) => {
                spinner.set_message(format!("{notice}: {}", line.trim()));
                if output.len() == MAX_LINES {
                    output.pop_front();
                }
                output.push_back(line);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if stop.is_begun() {
            let _ = child.kill(); // fails if the child has ended
        }
        if read_until.is_none() && child.try_wait().is_ok_and(|ended| ended.is_some()) {
            read_until = Some(Instant::now() + LAST_LINES);
        }
        spinner.tick();
    }
    output
}

/// Returns the first line that begins with `error`, or else the last line. The last line of the causes is appended.
fn reason(output: &VecDeque<String>) -> String {
    let non_empty = || output.iter().map(|line| line.trim()).filter(|line| !line.is_empty());
    let error = non_empty().find(|line| line.starts_with("error")).or_else(|| non_empty().next_back());
    let cause = non_empty().skip_while(|line| *line != "Caused by:").last();
    match (error, cause) {
        (Some(error), Some(cause)) if cause != error => format!("{error}: {cause}"),
        (Some(error), _) => error.to_owned(),
        (None, _) => String::from("it failed without an error message"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: a build that started a daemon ended with the daemon.
    #[test]
    fn a_process_that_a_build_leaves_is_not_waited_for() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 30 & echo $! >&2; exit 1"]);
        let left = run(command, "building a daemon", &Shutdown::new()).unwrap_err();
        let runs =
            std::path::Path::new("/proc").join(&left).join("fd").read_dir().is_ok_and(|mut fds| fds.next().is_some());
        assert!(runs, "{left} has ended");
        let left = rustix::process::Pid::from_raw(left.parse().unwrap()).unwrap();
        rustix::process::kill_process(left, rustix::process::Signal::KILL).unwrap();
    }

    #[test]
    fn reasons() {
        let output = |text: &str| text.lines().map(str::to_owned).collect::<VecDeque<_>>();
        let net = "   Updating index\nerror: failed to get `x`\n\nCaused by:\n  a\n\nCaused by:\n  no network\n";
        assert_eq!(reason(&output(net)), "error: failed to get `x`: no network");
        assert_eq!(reason(&output("")), "it failed without an error message");
    }
}
