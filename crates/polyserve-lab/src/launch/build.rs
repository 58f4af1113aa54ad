//! Building what is to be measured and is not this program: a command that takes minutes, and says what it is about.
//!
//! Invariant: none of it is measured, for it is over before anything is.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, IsTerminal as _, Read, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use indicatif::ProgressBar;
use polyserve::Shutdown;

/// How often it is looked whether the run is to end.
const LOOK: Duration = Duration::from_millis(100);
/// Lines of its output that are kept.
const LINES: usize = 50;

/// Runs `command` to its end, and shows `notice` and what it says on standard error meanwhile. It is ended where `stop`
/// begins.
///
/// # Errors
///
/// What it said last, where its end is no good one.
pub fn run(mut command: Command, notice: &str, stop: &Shutdown) -> Result<(), String> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child =
        command.spawn().map_err(|error| format!("{} cannot be started: {error}", command.get_program().display()))?;
    let spinner = ProgressBar::new_spinner(); // draws nothing where standard error is no terminal
    spinner.set_message(notice.to_owned());
    if !std::io::stderr().is_terminal() {
        let _ = writeln!(std::io::stderr(), "{notice}"); // nobody may read it
    }
    let lines = child.stderr.take().map(lines);
    let said = lines.map(|lines| hear(&lines, &mut child, &spinner, notice, stop)).unwrap_or_default();
    let status = child.wait().map_err(|error| format!("it cannot be waited for: {error}"))?;
    spinner.finish_and_clear();
    match status.success() {
        true => Ok(()),
        false if stop.is_begun() => Err(String::from("it was interrupted while it was built")),
        false => Err(reason(&said)),
    }
}

/// What `child` says, until it says no more; it is ended where the run is to end.
fn hear(
    lines: &Receiver<String>,
    child: &mut Child,
    spinner: &ProgressBar,
    notice: &str,
    stop: &Shutdown,
) -> VecDeque<String> {
    let mut said = VecDeque::new();
    loop {
        match lines.recv_timeout(LOOK) {
            Ok(line) => {
                spinner.set_message(format!("{notice}: {}", line.trim()));
                if said.len() == LINES {
                    said.pop_front();
                }
                said.push_back(line);
            }
            Err(RecvTimeoutError::Disconnected) => return said,
            Err(RecvTimeoutError::Timeout) if stop.is_begun() => {
                let _ = child.kill(); // nothing where it has ended
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        spinner.tick();
    }
}

fn lines(out: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    let read = move || {
        // What is no text ends it; the pipe is closed then, and the command writes to nobody.
        BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    };
    // Without a thread nothing is heard: the channel is closed at once.
    let _ = thread::Builder::new().name("build".into()).spawn(read);
    receiver
}

/// The first error that it names as such, or its last line; and what it gives as the last cause.
fn reason(said: &VecDeque<String>) -> String {
    let full = || said.iter().map(|line| line.trim()).filter(|line| !line.is_empty());
    let error = full().find(|line| line.starts_with("error")).or_else(|| full().next_back());
    let cause = full().skip_while(|line| *line != "Caused by:").last();
    match (error, cause) {
        (Some(error), Some(cause)) if cause != error => format!("{error}: {cause}"),
        (Some(error), _) => error.to_owned(),
        (None, _) => String::from("it failed and did not say why"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons() {
        let said = |text: &str| text.lines().map(str::to_owned).collect::<VecDeque<_>>();
        let net = "   Updating index\nerror: failed to get `x`\n\nCaused by:\n  a\n\nCaused by:\n  no network\n";
        assert_eq!(reason(&said(net)), "error: failed to get `x`: no network");
        assert_eq!(reason(&said("")), "it failed and did not say why");
    }
}
