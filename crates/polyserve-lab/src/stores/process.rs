//! A process of its own for each point, so that its memory and its heap are its own.
//!
//! Invariant: it is over when this returns, one way or another. Cost: starting it, some ms.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use polyserve::Shutdown;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::de::DeserializeOwned;

use crate::experiment::Absence;
use crate::launch::Launch;

/// What starts the processes.
#[derive(Debug)]
pub struct Processes {
    /// Begun where the run is to end now.
    pub stop: Shutdown,
    /// How long one may take, the storing of its entities too.
    pub patience: Duration,
}

/// How often a stop is looked for.
const LOOK: Duration = Duration::from_millis(50);

impl Processes {
    /// What `launch` prints until its good end: one value as JSON.
    ///
    /// # Errors
    ///
    /// As [`said`](Self::said), or where it is no such value.
    pub fn told<T: DeserializeOwned>(&self, launch: &Launch) -> Result<T, Absence> {
        let said = self.said(launch)?;
        serde_json::from_str(said.trim()).map_err(|error| Absence::wrong(format!("it said {said:?}: {error}")))
    }

    /// What `launch` prints until its good end.
    ///
    /// # Errors
    ///
    /// Where it ends otherwise, takes too long, or is not to go on.
    pub fn said(&self, launch: &Launch) -> Result<String, Absence> {
        let cannot = |error: std::io::Error| {
            let why = format!("{} cannot be started: {error}", launch.program.display());
            Absence::failed(why)
        };
        let mut command = Command::new(&launch.program);
        command.args(&launch.args).envs(launch.env.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(cannot)?;
        // Its number is its own until it is waited for, so this is the process itself.
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).map_err(|error| cannot(error.into()))?;
        let (sender, ended) = channel();
        let reading = thread::Builder::new().name("operations".into()).spawn(move || sender.send(read(child)));
        reading.map_err(cannot)?;
        let deadline = Instant::now() + self.patience;
        loop {
            let (why, wrong) = match ended.recv_timeout(LOOK) {
                Ok(read) => return read,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Absence::failed("it is not known how it ended"));
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

/// What the process has printed when it has ended well.
fn read(mut child: Child) -> Result<String, Absence> {
    let (mut out, mut err) = (String::new(), String::new());
    let cannot = |error: std::io::Error| Absence::failed(format!("its output cannot be read: {error}"));
    // One line, and what fits a pipe: neither blocks it.
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut out).map_err(cannot)?;
    }
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut err).map_err(cannot)?;
    }
    let status = child.wait().map_err(cannot)?;
    if status.success() {
        Ok(out)
    } else {
        Err(Absence::wrong(format!("it ended by itself: {status}: {}", err.trim())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_fails_says_why() {
        let processes = Processes { stop: Shutdown::new(), patience: Duration::from_secs(60) };
        let shell = |script: &str| Launch {
            program: "/bin/sh".into(),
            args: ["-c", script].map(Into::into).into(),
            env: Vec::new(),
            address: crate::launch::AddressFrom::Json,
        };
        assert_eq!(processes.said(&shell("echo hello")).unwrap(), "hello\n");
        let absence = processes.said(&shell("echo no memory >&2; exit 3")).unwrap_err();
        assert!(absence.why.contains("exit status: 3: no memory") && absence.is_wrong(), "{absence:?}");
        let missing = Launch { program: "/no/such/program".into(), ..shell("") };
        let absence = processes.said(&missing).unwrap_err();
        assert!(absence.why.contains("/no/such/program cannot be started") && !absence.is_wrong(), "{absence:?}");
        let hasty = Processes { patience: Duration::ZERO, ..processes };
        let absence = hasty.said(&shell("exec tail -f /dev/null")).unwrap_err();
        assert!(absence.why.contains("too long") && absence.is_wrong(), "{absence:?}");
    }
}
