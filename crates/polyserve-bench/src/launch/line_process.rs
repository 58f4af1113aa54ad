//! A process that reads commands as lines on its standard input, and writes answers as lines on its standard output.
//!
//! Invariant: no process outlives its [`LineProcess`]: drop kills the process and waits for it. The process has a
//! process group of its own, so a Ctrl-C at the terminal does not reach it. If this program is killed, a process that
//! exits at the end of its standard input still ends.
//!
//! Cost: two threads, one for standard output and one for standard error.

use std::fmt;
use std::io::Write as _;
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use super::Launch;
use super::process::{Failure, Tail, reader, send, spawn, wait_for};
use crate::machine::cores::Cores;

/// The time that a process may take to end after it has closed its outputs.
const EXIT_GRACE: Duration = Duration::from_secs(1);

/// A process that exchanges lines with this program.
pub struct LineProcess {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    errors: Tail,
    /// Disconnected when the standard error has ended.
    all_errors: Receiver<()>,
}

impl LineProcess {
    /// Starts `launch` on `cores`. The process need not listen on an address.
    ///
    /// # Errors
    ///
    /// Returns [`Failure`] if the process cannot be started.
    pub fn start(launch: &Launch, cores: &Cores) -> Result<Self, Failure> {
        let mut child = spawn(launch, cores)?;
        let outputs = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(out), Some(err)) = outputs else {
            return Err(Failure(String::from("it has no standard input and outputs")));
        };
        let (sender, lines) = channel();
        let (errors_open, all_errors) = channel();
        let errors = Tail::default();
        let process = Self { child, stdin, lines, errors: errors.clone(), all_errors };
        let keep = move |line| {
            let _open: &std::sync::mpsc::Sender<()> = &errors_open;
            errors.push(line);
        };
        reader("stdout", out, move |line| send(&sender, line))
            .and_then(|()| reader("stderr", err, keep))
            .map_err(|error| Failure(format!("its output cannot be read: {error}")))?;
        Ok(process)
    }

    /// The process ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line to the process.
    ///
    /// # Errors
    ///
    /// Returns [`Failure`] if the process has ended or has closed its standard input.
    pub fn send_line(&mut self, line: &str) -> Result<(), Failure> {
        let result = self.stdin.write_all(format!("{line}\n").as_bytes()).and_then(|()| self.stdin.flush());
        result.map_err(|error| match self.exit_failure() {
            Some(failure) => failure,
            None => Failure(format!("it does not listen: {error}")),
        })
    }

    /// Returns the next line of the process's output, or `None` after `time`. A line of more than 4,096 bytes is split.
    ///
    /// # Errors
    ///
    /// Returns [`Failure`] with the last lines of the standard error, if the process has closed its output.
    pub fn next_line(&mut self, time: Duration) -> Result<Option<String>, Failure> {
        match self.lines.recv_timeout(time) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(self.exit_failure().unwrap_or_else(|| Failure(format!("it closed its output{}", self.errors))))
            }
        }
    }

    /// Returns the failure of a process that has ended or ends within [`EXIT_GRACE`].
    fn exit_failure(&mut self) -> Option<Failure> {
        // The last lines may still be in the pipe. A child of the process may hold its standard error open.
        let _ = self.all_errors.recv_timeout(EXIT_GRACE);
        // The outputs close a moment before the exit status is available.
        let status = wait_for(&mut self.child, EXIT_GRACE)?;
        Some(Failure(format!("it ended by itself: {status}{}", self.errors)))
    }
}

impl Drop for LineProcess {
    fn drop(&mut self) {
        let _ = self.child.kill(); // fails if the process has ended
        let _ = self.child.wait();
    }
}

impl fmt::Debug for LineProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineProcess").field("pid", &self.pid()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::AddressFrom;

    /// A limit for tests that would hang otherwise.
    const PATIENCE: Duration = Duration::from_secs(60);

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
            assert_eq!(process.next_line(PATIENCE), Ok(Some(format!("not {word}"))));
            assert_eq!(process.next_line(PATIENCE), Ok(Some("more".into())));
        }
        let pid = process.pid();
        drop(process);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn one_that_ends_is_named_with_the_last_of_its_standard_error() {
        let mut process = start("read line; echo $line; echo no more >&2; exit 3");
        process.send_line("last").unwrap();
        assert_eq!(process.next_line(PATIENCE), Ok(Some("last".into())));
        let Failure(why) = process.next_line(PATIENCE).unwrap_err();
        assert!(why.contains("no more"), "{why}");
    }
}
