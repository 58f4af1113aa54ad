//! A process for each store run, so that no store run shares memory and heap with another one.
//!
//! Invariant: the process has ended when the function returns. Cost: starting the process.

use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use polyserve::Shutdown;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::de::DeserializeOwned;

use crate::experiment::Absence;
use crate::launch::Launch;

/// The settings of the processes.
#[derive(Debug)]
pub struct Processes {
    /// The shutdown that the first signal begins. A running process is then killed.
    pub stop: Shutdown,
    /// The time limit of a process, which includes storing the entities.
    pub patience: Duration,
}

/// The time between two checks of the stop signal.
const STOP_CHECK: Duration = Duration::from_millis(50);

impl Processes {
    /// Returns the value that `launch` prints as JSON.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`output`](Self::output), and an error if the output is not a `T`.
    pub fn value<T: DeserializeOwned>(&self, launch: &Launch) -> Result<T, Absence> {
        let output = self.output(launch)?;
        serde_json::from_str(output.trim()).map_err(|error| Absence::wrong(format!("it printed {output:?}: {error}")))
    }

    /// Returns the output of `launch`.
    ///
    /// # Errors
    ///
    /// Returns an error if the process fails or takes too long, or if the stop signal begins.
    pub fn output(&self, launch: &Launch) -> Result<String, Absence> {
        let start_error = |error: std::io::Error| {
            let why = format!("{} cannot be started: {error}", launch.program.display());
            Absence::failed(why)
        };
        let mut command = Command::new(&launch.program);
        command.args(&launch.args).envs(launch.env.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(start_error)?;
        // A process id is not used again before its process is waited for, so the pidfd is of this process.
        let pidfd =
            pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).map_err(|error| start_error(error.into()))?;
        let (sender, ended) = channel();
        let reading = thread::Builder::new().name("operations".into()).spawn(move || sender.send(read(child)));
        reading.map_err(start_error)?;
        let deadline = Instant::now() + self.patience;
        loop {
            let (why, wrong) = match ended.recv_timeout(STOP_CHECK) {
                Ok(read) => return read,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Absence::failed("its exit status is unknown"));
                }
                Err(RecvTimeoutError::Timeout) if self.stop.is_begun() => ("the run is over", false),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => ("it took too long", true),
                Err(RecvTimeoutError::Timeout) => continue,
            };
            let _ = pidfd_send_signal(&pidfd, Signal::KILL); // it may just have ended
            let _ = ended.recv();
            return Err(Absence::new(why, wrong));
        }
    }
}

fn unreadable(error: impl std::error::Error) -> Absence {
    Absence::failed(format!("its output cannot be read: {error}"))
}

/// Returns the output of a process that succeeds.
fn read(child: Child) -> Result<String, Absence> {
    // It reads both pipes at the same time, so that neither blocks the process.
    let output = child.wait_with_output().map_err(unreadable)?;
    let out = String::from_utf8(output.stdout).map_err(unreadable)?;
    let err = String::from_utf8(output.stderr).map_err(unreadable)?;
    if output.status.success() {
        Ok(out)
    } else {
        Err(Absence::wrong(format!("it ended by itself: {}: {}", output.status, err.trim())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_fails_says_why() {
        let processes = Processes { stop: Shutdown::new(), patience: Duration::from_secs(60) };
        let shell = |text: &str| crate::fixtures::script(text, crate::launch::AddressFrom::Json);
        assert_eq!(processes.output(&shell("echo hello")).unwrap(), "hello\n");
        let many_errors = shell("head -c 1000000 /dev/zero >&2; echo hello");
        assert_eq!(processes.output(&many_errors).unwrap(), "hello\n", "more errors than a pipe holds");
        let absence = processes.output(&shell(r"printf '\377'")).unwrap_err();
        assert!(absence.why.contains("its output cannot be read") && !absence.is_wrong(), "{absence:?}");
        let absence = processes.output(&shell("echo no memory >&2; exit 3")).unwrap_err();
        assert!(absence.why.contains("exit status: 3: no memory") && absence.is_wrong(), "{absence:?}");
        let missing = Launch { program: "/no/such/program".into(), ..shell("") };
        let absence = processes.output(&missing).unwrap_err();
        assert!(absence.why.contains("/no/such/program cannot be started") && !absence.is_wrong(), "{absence:?}");
        let hasty = Processes { patience: Duration::ZERO, ..processes };
        let absence = hasty.output(&shell("exec tail -f /dev/null")).unwrap_err();
        assert!(absence.why.contains("too long") && absence.is_wrong(), "{absence:?}");
    }
}
