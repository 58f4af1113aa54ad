//! The `polyserve` command, run as users run it.

mod check;
mod compare;
mod crowd;
mod data;
mod drain;
mod experiments;
mod go;
mod ladder;
mod list;
mod load;
mod matrix;
mod page;
mod recommend;
mod report;
mod resume;
mod scale;
mod serve;
mod stores;
mod stress;
mod tasks;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The time limit of a wait. A test that reaches it fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// The command, without the environment variables that it reads.
fn polyserve(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyserve"));
    for (name, _) in std::env::vars_os() {
        let ours = name
            .to_str()
            .is_some_and(|name| name.starts_with("POLYSERVE_") || name == "TCP_ADDRESS" || name == "THREAD_POOL_SIZE");
        if ours {
            command.env_remove(name);
        }
    }
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs the command to its end.
fn run(args: &[&str]) -> Output {
    polyserve(args).output().expect("the command runs")
}

/// Runs the command, which must succeed. Returns what it printed.
fn printed(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}\n{}", output.status, text(&output.stderr));
    text(&output.stdout)
}

/// Runs the command, which must report a misuse. Returns its standard error.
fn misused(args: &[&str]) -> String {
    let output = run(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output.stderr));
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    text(&output.stderr)
}

/// Runs the command and sends it a SIGINT as soon as `is_under_way`, which takes its process id, is true. Returns its output.
fn interrupted(args: &[&str], is_under_way: impl Fn(u32) -> bool) -> Output {
    signalled(Signal::INT, args, is_under_way)
}

/// [`interrupted`] with any signal.
fn signalled(signal: Signal, args: &[&str], is_under_way: impl Fn(u32) -> bool) -> Output {
    let mut child = polyserve(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    let deadline = Instant::now() + PATIENCE;
    while !is_under_way(child.id()) {
        if Instant::now() >= deadline {
            let _ = child.kill(); // it could run for hours
            panic!("{args:?}: it gets nowhere");
        }
        if child.try_wait().expect("it is ours").is_some() {
            let Output { status, stderr, .. } = child.wait_with_output().expect("it has ended");
            panic!("{args:?}: it ended by itself: {status}: {}", text(&stderr));
        }
        thread::yield_now();
    }
    kill_process(Pid::from_child(&child), signal).expect("the child was not waited for, so its pid is its own");
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    ended.recv_timeout(PATIENCE).expect("it ends").expect("it was not waited for")
}

/// The number of open descriptors of process `pid`.
fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the command prints text")
}

/// A `polyserve serve` that listens.
struct Serving {
    child: Child,
    out: Option<BufReader<ChildStdout>>,
    addr: SocketAddr,
}

impl Serving {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the command runs");
        let mut out = BufReader::new(child.stdout.take().expect("it was piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("it prints text");
        let addr = line.trim_end().strip_prefix("listening on http://").and_then(|addr| addr.parse().ok());
        Self { addr: addr.unwrap_or_else(|| panic!("it printed {line:?}")), child, out: Some(out) }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("the child was not waited for, so its pid is its own");
    }

    /// Waits for its end. Returns its status and the rest of its output.
    fn end(mut self) -> (ExitStatus, String) {
        let mut out = self.out.take().expect("it ends once");
        let (sender, rest) = mpsc::channel();
        thread::spawn(move || {
            let mut rest = String::new();
            let _ = out.read_to_string(&mut rest); // until the process is gone
            sender.send(rest)
        });
        let rest = rest.recv_timeout(PATIENCE).expect("it ends");
        (self.child.wait().expect("it was not waited for"), rest)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill(); // fails if it has ended
        let _ = self.child.wait();
    }
}

/// Sends `request`, and reads until the server closes the connection.
fn ask(addr: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(addr).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    stream.write_all(request.as_bytes()).expect("the server reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the server answers and closes");
    answer
}
