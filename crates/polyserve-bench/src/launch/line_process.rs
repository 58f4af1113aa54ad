//! A process, pinned to its cores, that reads lines on its standard input, and writes lines on its standard output.
//!
//! Invariant: no process outlives its [`LineProcess`]: drop kills the process and waits for it. The process has a
//! process group of its own, so a Ctrl-C at the terminal does not reach it. What is left of the group is killed when the process has
//! ended. This program holds its standard input; if this program is killed, a process that exits at the end of its standard input
//! still ends.
//!
//! Cost: two threads, one for standard output and one for standard error.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read, Take, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use polyserve::sync::lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid};

use super::Launch;
use crate::experiment::Absence;
use crate::machine::cores::Cores;

/// The time that a process may take to end after it has closed its outputs.
const EXIT_GRACE: Duration = Duration::from_secs(1);

/// A process that exchanges lines with this program.
#[derive(Debug)]
pub(crate) struct LineProcess {
    pub(super) child: Child,
    /// The process group, until it has been killed.
    group: Option<Pid>,
    pub(super) lines: Receiver<String>,
    pub(super) errors: Tail,
    /// Disconnected when the standard error has ended.
    all_errors: Receiver<()>,
}

impl LineProcess {
    /// Starts `launch` on `cores`. The process need not listen on an address. Returns an absence that is not marked as wrong,
    /// if the process cannot be started.
    pub(crate) fn start(launch: &Launch, cores: &Cores) -> Result<Self, Absence> {
        let mut child = spawn(launch, cores)?;
        let outputs = child.stdout.take().zip(child.stderr.take());
        let (out, err) = outputs.ok_or_else(|| Absence::failed("it has no outputs"))?;
        let (sender, lines) = channel();
        let (errors_open, all_errors) = channel();
        let errors = Tail::default();
        let group = Some(Pid::from_child(&child));
        let process = Self { child, group, lines, errors: errors.clone(), all_errors };
        let keep = move |line| {
            let _open: &std::sync::mpsc::Sender<()> = &errors_open;
            errors.push(line);
        };
        // The receiver is gone if the process is being dropped.
        reader("stdout", out, move |line| drop(sender.send(line)))
            .and_then(|()| reader("stderr", err, keep))
            .map_err(|error| Absence::failed(format!("its output cannot be read: {error}")))?;
        Ok(process)
    }

    /// The process ID.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line to the process. Returns an absence that is marked as wrong, if the process has ended or has closed its
    /// standard input.
    pub(crate) fn send_line(&mut self, line: &str) -> Result<(), Absence> {
        let result = match &mut self.child.stdin {
            Some(stdin) => stdin.write_all(format!("{line}\n").as_bytes()).and_then(|()| stdin.flush()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        result.map_err(|error| {
            Absence::wrong(self.how_it_ended().unwrap_or_else(|| format!("it does not listen: {error}")))
        })
    }

    /// Returns the next line of the process's output, or `None` after `time`. A line of more than 4,096 bytes is split. Returns
    /// an absence that is marked as wrong, with the last lines of the standard error, if the process has closed its output.
    pub(crate) fn next_line(&mut self, time: Duration) -> Result<Option<String>, Absence> {
        match self.lines.recv_timeout(time) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Absence::wrong(
                self.how_it_ended().unwrap_or_else(|| format!("it closed its output{}", self.errors)),
            )),
        }
    }

    /// How the process ended, if it has ended or ends within [`EXIT_GRACE`].
    fn how_it_ended(&mut self) -> Option<String> {
        // The outputs close a moment before the exit status is available.
        let status = self.wait(EXIT_GRACE)?;
        Some(format!("it ended by itself: {}", self.ended_with(status, EXIT_GRACE)))
    }

    /// The exit status and the last lines of the standard error. Waits at most `grace` for the rest of them: they may still be in the
    /// pipe, and a child that left the process group may hold it open.
    pub(super) fn ended_with(&self, status: ExitStatus, grace: Duration) -> String {
        let _ = self.all_errors.recv_timeout(grace);
        format!("{status}{}", self.errors)
    }

    /// Returns the exit status, if the process has ended. Its children are killed then: they would take the time of the next process,
    /// and hold the outputs open.
    pub(super) fn has_ended(&mut self) -> Option<ExitStatus> {
        // Once the status is taken, the system may use the ID of the group again.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if waitid(WaitId::Pid(Pid::from_child(&self.child)), options).is_ok_and(|ended| ended.is_some()) {
            self.kill_group();
        }
        self.child.try_wait().ok().flatten()
    }

    /// Kills the process and its children, and waits for the process.
    pub(super) fn kill(&mut self) {
        if self.has_ended().is_none() {
            self.kill_group();
            let _ = self.child.kill(); // it may have left its group
            let _ = self.child.wait();
        }
    }

    /// Kills the process group, once: later the system may use its ID again.
    fn kill_group(&mut self) {
        if let Some(group) = self.group.take() {
            let _ = kill_process_group(group, Signal::KILL); // fails if the group is empty
        }
    }

    /// Returns the exit status, or `None` if the process does not end within `timeout`.
    pub(super) fn wait(&mut self, timeout: Duration) -> Option<ExitStatus> {
        if let Some(status) = self.has_ended() {
            return Some(status);
        }
        let pidfd = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()).ok()?;
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
            let _ = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&left)); // if interrupted, the loop tries again
            match self.has_ended() {
                None if Instant::now() < deadline => {}
                ended => return ended,
            }
        }
    }
}

impl Drop for LineProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts the program from a thread that is already pinned to the cores, so the program never runs on another core.
fn spawn(launch: &Launch, cores: &Cores) -> Result<Child, Absence> {
    let program = launch.program.display();
    let start = || {
        let mut command = Command::new(&launch.program);
        command.args(&launch.args).envs(launch.env.iter().map(|(name, value)| (name, value))).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map_err(|error| Absence::failed(format!("{program} cannot be started: {error}")))
    };
    let started = cores.run(start);
    started.map_err(|error| Absence::failed(format!("it cannot be pinned to the cores {cores}: {error}")))?
}

/// The maximum length of a line in bytes. The rest of a longer line counts as the next line.
const MAX_LINE_BYTES: u64 = 4096;

/// Starts a thread that passes each line of `out` to `on_line`, until `out` ends.
pub(super) fn reader(
    name: &str,
    out: impl Read + Send + 'static,
    mut on_line: impl FnMut(String) + Send + 'static,
) -> io::Result<()> {
    let mut out = BufReader::new(out);
    let body = move || {
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut bounded: Take<_> = out.by_ref().take(MAX_LINE_BYTES);
            match bounded.read_until(b'\n', &mut line) {
                Ok(count) if count > 0 => on_line(String::from_utf8_lossy(&line).trim_end().to_owned()),
                _ => return,
            }
        }
    };
    thread::Builder::new().name(name.into()).spawn(body).map(drop)
}

/// The last lines of the standard error.
#[derive(Clone, Debug, Default)]
pub(super) struct Tail(Arc<Mutex<VecDeque<String>>>);

impl Tail {
    const MAX_LINES: usize = 5;

    fn push(&self, line: String) {
        let mut lines = lock(&self.0);
        if lines.len() == Self::MAX_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

impl fmt::Display for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        lock(&self.0)
            .iter()
            .enumerate()
            .try_for_each(|(i, line)| write!(f, "{}{line}", if i == 0 { ": " } else { " | " }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::AddressFrom;

    /// A limit for tests that would hang otherwise.
    const MAX_WAIT: Duration = Duration::from_secs(60);

    fn start(script: &str) -> LineProcess {
        let launch = crate::fixtures::script(script, AddressFrom::Json);
        LineProcess::start(&launch, &Cores::available().unwrap()).unwrap()
    }

    #[test]
    fn it_answers_what_it_is_told() {
        let mut process = start("while read line; do echo \"not $line\"; echo more; done");
        assert_eq!(process.next_line(Duration::ZERO), Ok(None), "it was told nothing");
        for word in ["one", "two"] {
            process.send_line(word).unwrap();
            assert_eq!(process.next_line(MAX_WAIT), Ok(Some(format!("not {word}"))));
            assert_eq!(process.next_line(MAX_WAIT), Ok(Some("more".into())));
        }
        let pid = process.pid();
        drop(process);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn one_that_ends_is_named_with_the_last_of_its_standard_error() {
        let mut process = start("read line; echo $line; echo no more >&2; exit 3");
        process.send_line("last").unwrap();
        assert_eq!(process.next_line(MAX_WAIT), Ok(Some("last".into())));
        let absence = process.next_line(MAX_WAIT).unwrap_err();
        assert!(absence.why.contains("no more") && absence.is_wrong(), "{absence:?}");
    }
}
