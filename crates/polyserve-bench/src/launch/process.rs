//! The process of a server: a [`LineProcess`] that listens on an address, and ends within a deadline.
//!
//! Invariant: no process outlives its [`Process`]. It is interrupted, then killed, and always waited for.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::line_process::LineProcess;
use super::{AddressFrom, Launch, StartResources};
use crate::experiment::Absence;
use crate::machine::cores::Cores;

/// The process of a server.
#[derive(Debug)]
pub(crate) struct Process {
    process: LineProcess,
    /// The address that it listens on.
    pub(crate) addr: SocketAddr,
    /// Whether the process may end by the signal that interrupts it.
    may_end_by_signal: bool,
    resources: StartResources,
}

/// The time that a process may take to start, and to end.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(15);
/// The exit code of a process that handles SIGTERM and then reports it, as a virtual machine of Java does: 128 and the signal.
const TERM_EXIT_CODE: i32 = 128 + 15;
/// The interval at which a port is tried until it accepts a connection.
const PORT_CHECK: Duration = Duration::from_millis(20);

impl Process {
    /// Starts `launch` on `cores`, and waits until it prints the address that it listens on. Returns an absence that is not
    /// marked as wrong, with the last lines of the standard error, if the process cannot be started, ends, or prints no address
    /// within [`MAX_WAIT`].
    pub(crate) fn start(launch: &Launch, cores: &Cores) -> Result<Self, Absence> {
        let prepared = launch.prepared();
        let prepared = prepared.map_err(|error| Absence::failed(format!("it has no port or no directory: {error}")));
        let (launch, resources) = prepared?;
        let addr = SocketAddr::from(([0, 0, 0, 0], 0));
        let may_end_by_signal = launch.address != AddressFrom::Json;
        let mut process = Self { process: LineProcess::start(&launch, cores)?, addr, may_end_by_signal, resources };
        let addr = match launch.address {
            AddressFrom::Port => process.wait_for_port(),
            _ => process.wait_for_address(&launch),
        };
        process.addr = addr.map_err(Absence::failed)?;
        Ok(process)
    }

    /// The process ID.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Interrupts the process, and waits for its end. Returns its last line of output. Returns an absence that is marked as
    /// wrong, if the process had ended before, does not end within [`MAX_WAIT`], or exits with a code other than 0. A process
    /// that does not report its address as JSON may end by the signal, or with the exit code that stands for it.
    pub(crate) fn end(mut self) -> Result<Option<String>, Absence> {
        self.end_within(MAX_WAIT)
    }

    fn end_within(&mut self, max_wait: Duration) -> Result<Option<String>, Absence> {
        if let Some(status) = self.has_ended() {
            return Err(Absence::wrong(self.how_it_ended(status)));
        }
        let is_by_signal = |status: &ExitStatus| {
            status.signal() == Some(Signal::TERM.as_raw()) || status.code() == Some(TERM_EXIT_CODE)
        };
        // The process has not been waited for, so its ID has not been reused.
        self.interrupt().map_err(|error| Absence::wrong(format!("it cannot be interrupted: {error}")))?;
        match self.wait(max_wait) {
            Some(status) if status.success() => Ok(self.rest().pop()),
            Some(status) if self.may_end_by_signal && is_by_signal(&status) => Ok(self.rest().pop()),
            Some(status) => {
                let ended = self.process.ended_with(status, MAX_WAIT);
                Err(Absence::wrong(format!("it must end with exit code 0 after SIGTERM, and ended with {ended}")))
            }
            None => {
                self.process.kill();
                Err(Absence::wrong(format!("it did not end within {max_wait:?} of SIGTERM; it was killed")))
            }
        }
    }

    /// Returns the absence after a failed exchange with the process. If the process has ended, that is the reason, and it is wrong,
    /// independent of the client's error.
    pub(crate) fn explain(&mut self, absence: Absence) -> Absence {
        match self.wait(Duration::from_millis(200)) {
            Some(status) => Absence::wrong(format!("{}; {absence}", self.how_it_ended(status))),
            None => absence,
        }
    }

    fn wait_for_address(&mut self, launch: &Launch) -> Result<SocketAddr, String> {
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.process.lines.recv_timeout(left) {
                Ok(line) => match launch.address(&line, self.resources.addr) {
                    Some(Ok(addr)) => return Ok(addr),
                    Some(Err(wrong)) => return Err(wrong),
                    None => {}
                },
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("it printed no address within {MAX_WAIT:?}{}", self.process.errors));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let ended = self.wait(MAX_WAIT);
                    return Err(ended.map_or_else(
                        || format!("it closed its output before it printed an address{}", self.process.errors),
                        |status| self.how_it_ended(status),
                    ));
                }
            }
        }
    }

    /// Waits until the port of the launch accepts a connection.
    fn wait_for_port(&mut self) -> Result<SocketAddr, String> {
        let addr = self.resources.addr.ok_or("its launch has no port")?;
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            let accepts = TcpStream::connect_timeout(&addr, PORT_CHECK).is_ok();
            // If another process has the port, this one ends.
            if let Some(status) = self.wait(PORT_CHECK) {
                return Err(self.how_it_ended(status));
            }
            if accepts {
                return Ok(addr);
            }
            if Instant::now() > deadline {
                return Err(format!("{addr} accepted no connection within {MAX_WAIT:?}{}", self.process.errors));
            }
        }
    }

    /// Sends SIGTERM. SIGINT is ignored if this program was started with SIGINT ignored, as a background job of a script is.
    fn interrupt(&self) -> rustix::io::Result<()> {
        kill_process(Pid::from_child(&self.process.child), Signal::TERM)
    }

    fn has_ended(&mut self) -> Option<ExitStatus> {
        self.process.has_ended()
    }

    /// Waits at most `timeout` for the end of the process.
    fn wait(&mut self, timeout: Duration) -> Option<ExitStatus> {
        self.process.wait(timeout)
    }

    fn how_it_ended(&self, status: ExitStatus) -> String {
        format!("it ended by itself: {}", self.process.ended_with(status, MAX_WAIT))
    }

    /// The remaining lines of output.
    fn rest(&self) -> Vec<String> {
        let mut rest = Vec::new();
        // The output ends with the process, unless a child that left the process group holds it open.
        let deadline = Instant::now() + MAX_WAIT;
        while let Ok(line) = self.process.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            rest.push(line);
        }
        rest
    }
}

impl Drop for Process {
    /// Interrupts the process, so that it removes what it has stored elsewhere. It is killed after a while.
    fn drop(&mut self) {
        if self.has_ended().is_none() {
            let _ = self.interrupt();
            self.wait(MAX_WAIT);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::fixtures::{TestDir, script};

    fn shell(text: &str) -> Launch {
        script(text, AddressFrom::Line("at ".into()))
    }

    fn start(script: &str) -> Result<Process, Absence> {
        Process::start(&shell(script), &Cores::available().unwrap())
    }

    const READ_UNTIL_EOF: &str = "while read line; do :; done";

    /// The file that the process of `interruptible` writes when it is interrupted.
    const MARK_VARIABLE: &str = "POLYSERVE_TEST_MARK";

    /// The process that `interruptible` starts. A shell does not suit: if it was started with interrupts ignored, as in
    /// the background of a script, it cannot enable them again.
    #[test]
    #[ignore = "a process that another test starts"]
    fn a_process_that_waits_for_an_interrupt() {
        if let Some(mark) = std::env::var_os(MARK_VARIABLE) {
            let signals = polyserve::signals::Signals::register().unwrap();
            println!("hello\nat 127.0.0.1:7");
            signals.wait().unwrap();
            std::fs::write(mark, "interrupted").unwrap();
            println!("bye");
            std::process::exit(0);
        }
    }

    /// Starts a process that writes `mark` and ends when it is interrupted.
    fn interruptible(mark: &Path) -> Process {
        let test = "launch::process::tests::a_process_that_waits_for_an_interrupt";
        let launch = Launch {
            program: std::env::current_exe().unwrap(),
            args: ["--exact", test, "--ignored", "--nocapture"].map(Into::into).to_vec(),
            env: vec![(MARK_VARIABLE.into(), mark.into())],
            ..shell("")
        };
        Process::start(&launch, &Cores::available().unwrap()).unwrap()
    }

    #[test]
    fn it_prints_its_address_and_ends_when_interrupted() {
        // SIGTERM ends the process as soon as it has printed its address.
        let dir = TestDir::new("process-ended");
        std::fs::create_dir(&*dir).unwrap();
        let process = interruptible(&dir.join("mark"));
        assert_eq!(process.addr, SocketAddr::from(([127, 0, 0, 1], 7)));
        assert_eq!(process.end().unwrap().as_deref(), Some("bye"));
    }

    #[test]
    fn one_that_dies_is_named_with_the_last_of_its_standard_error() {
        let Absence { why, .. } = start("echo one >&2; echo two >&2; exit 3").unwrap_err();
        assert!(why.contains("exit status: 3") && why.contains("one | two"), "{why}");
        let missing = Launch { program: "/no/such/program".into(), ..shell("") };
        let absence = Process::start(&missing, &Cores::available().unwrap()).unwrap_err();
        assert!(absence.why.contains("/no/such/program cannot be started") && !absence.is_wrong(), "{absence:?}");
    }

    #[test]
    fn one_that_ends_before_its_turn_is_over_has_failed() {
        let process = start("echo at 127.0.0.1:7; read line; echo gone >&2; exit 0").unwrap();
        let mut process = process;
        drop(process.process.child.stdin.take());
        let status = process.wait(MAX_WAIT).expect("its input has ended");
        assert!(status.success());
        let absence = process.end().unwrap_err();
        assert!(absence.why.contains("ended by itself") && absence.is_wrong(), "{absence:?}");
    }

    #[test]
    fn one_that_is_dropped_ends_by_itself_if_it_can() {
        let dir = TestDir::new("process-dropped");
        std::fs::create_dir(&*dir).unwrap();
        let mark = dir.join("mark");
        drop(interruptible(&mark));
        assert_eq!(std::fs::read_to_string(mark).expect("it was interrupted"), "interrupted");
    }

    #[test]
    fn one_that_is_dropped_is_gone() {
        let process = start(&format!("trap '' INT; echo at 127.0.0.1:7; {READ_UNTIL_EOF}")).unwrap();
        let pid = process.pid();
        assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
        drop(process);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    /// Regression test: the children of a process ran on, on the cores of the next one, and held its output open for 15 s.
    #[test]
    fn its_children_end_with_it() {
        let process = start(&format!("sleep 1000 & echo at 127.0.0.1:7; echo $!; {READ_UNTIL_EOF}")).unwrap();
        let child = process.end().unwrap().expect("the ID of its child");
        let deadline = Instant::now() + MAX_WAIT;
        // A process without a parent that waits for it has the state Z.
        let runs = || std::fs::read_to_string(format!("/proc/{child}/stat")).is_ok_and(|stat| !stat.contains(") Z"));
        while runs() {
            assert!(Instant::now() < deadline, "{child} runs on");
        }
    }

    /// Regression test: it was killed only after it had been interrupted and waited for once more.
    #[test]
    fn one_that_does_not_end_is_killed() {
        let mut process = start(&format!("trap '' TERM; echo at 127.0.0.1:7; {READ_UNTIL_EOF}")).unwrap();
        let absence = process.end_within(Duration::from_millis(50)).unwrap_err();
        assert!(absence.why.contains("did not end within 50ms") && absence.is_wrong(), "{absence:?}");
        assert!(process.has_ended().is_some(), "it is gone");
    }

    /// A virtual machine of Java exits with 128 and the number of the signal.
    #[test]
    fn one_that_ends_by_the_signal_may_have_its_exit_code() {
        let end = |code: u8| {
            start(&format!("trap 'exit {code}' TERM; sleep 1000 & echo at 127.0.0.1:7; wait")).unwrap().end()
        };
        assert_eq!((end(0), end(143)), (Ok(None), Ok(None)));
        let Absence { why, .. } = end(3).unwrap_err();
        assert!(why.contains("after SIGTERM, and ended with exit status: 3") && !why.contains("by itself"), "{why}");
    }

    #[test]
    fn an_address_that_is_none_is_an_error() {
        let Absence { why, .. } = start(&format!("echo at nowhere; {READ_UNTIL_EOF}")).unwrap_err();
        assert!(why.contains("nowhere"), "{why}");
    }
}
