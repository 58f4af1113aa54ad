//! The `polyserve` command, run as users run it.

mod access;
mod bench;
mod check;
mod compare;
mod config;
mod contestants;
mod crowd;
mod data;
mod drain;
mod durable;
mod experiments;
mod go;
mod handover;
mod list;
mod load;
mod matrix;
mod misuse;
mod overload;
mod page;
#[cfg(target_os = "linux")]
mod percore;
mod recommend;
#[cfg(target_os = "linux")]
mod reference;
mod report;
mod scenario;
mod serve;
mod stores;
mod systemd;
mod tasks;
mod tls;

use std::fmt;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The time limit of a wait. A test that reaches it fails.
const MAX_WAIT: Duration = Duration::from_secs(180);

/// The directory that the commands run in. Its path may have blanks, so command lines have paths relative to it.
const HERE: &str = env!("CARGO_TARGET_TMPDIR");

/// The command with the arguments in `line`, separated by blanks. It inherits no environment variable that it reads, and no
/// ignored signal: tests may run in the background of a script.
fn polyserve(line: &str) -> Command {
    let mut command = Command::new("/usr/bin/env"); // by its path: a test may set another PATH
    command.args(["--default-signal=INT,HUP", env!("CARGO_BIN_EXE_polyserve")]);
    let is_read = |name: &str| name.starts_with("POLYSERVE_") || ["TCP_ADDRESS", "THREAD_POOL_SIZE"].contains(&name);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_read)) {
        command.env_remove(name);
    }
    command.args(line.split_whitespace()).current_dir(HERE).stdin(Stdio::null());
    command
}

/// Runs the command to its end.
fn run(line: &str) -> Output {
    polyserve(line).output().expect("the command runs")
}

/// Runs the command, which must end with this exit code.
fn ended(code: i32, line: &str) -> Output {
    let output = run(line);
    assert_eq!(output.status.code(), Some(code), "{line}: {}", text(&output.stderr));
    output
}

/// Runs the command, which must succeed. Returns its output. Without `--wide`, no line may be longer than 120
/// characters.
fn printed(line: &str) -> String {
    let printed = text(&ended(0, line).stdout);
    if !line.contains("--wide") {
        assert_eq!(long_lines(&printed), NO_LINES, "{line}");
    }
    printed
}

const NO_LINES: [&str; 0] = [];

/// The lines of more than 120 characters.
fn long_lines(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.chars().count() > 120).collect()
}

/// Runs the command with `--json`. It must succeed.
fn json(line: &str) -> Value {
    parsed(&ended(0, &format!("{line} --json")))
}

/// Runs the command, which must fail. Returns its standard error.
fn failed(line: &str) -> String {
    text(&ended(1, line).stderr)
}

/// Runs the command, which must report a misuse. Returns its standard error.
fn misused(line: &str) -> String {
    let output = ended(2, line);
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    text(&output.stderr)
}

/// The JSON that a command printed.
fn parsed(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

/// Checks that `text` has all these parts.
#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("no array: {value}"))
}

/// The texts of a field of objects.
fn texts<'a>(objects: &'a [Value], field: &str) -> Vec<&'a str> {
    objects.iter().map(|object| object[field].as_str().unwrap_or_else(|| panic!("{field}: {object}"))).collect()
}

/// The object with this text in a field.
#[track_caller]
fn one<'a>(objects: &'a Value, field: &str, value: &str) -> &'a Value {
    let found = array(objects).iter().find(|object| object[field] == value);
    found.unwrap_or_else(|| panic!("{value}: {objects}"))
}

/// A directory of one test. It is removed at the end of the test, and does not exist before a command makes it. It is
/// displayed as a path for command lines.
struct Dir(String);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = Self(format!("{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(dir.path(""));
        dir
    }

    /// The path of a file in it.
    fn path(&self, file: &str) -> PathBuf {
        Path::new(HERE).join(&self.0).join(file)
    }

    /// Writes a file, and the directory if it is not there.
    fn write(&self, file: &str, text: impl AsRef<[u8]>) {
        let path = self.path(file);
        fs::create_dir_all(path.parent().expect("it is in the directory")).expect("a directory can be made");
        fs::write(path, text).expect("a file can be written");
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    /// The lines of a record.
    fn lines(&self, record: &str) -> Vec<Value> {
        let text = self.read(record);
        assert!(text.ends_with('\n'), "the last line is whole");
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    }

    /// The lines of this kind of a record.
    fn recorded(&self, record: &str, kind: &str) -> Vec<Value> {
        self.lines(record).into_iter().filter(|line| line["kind"] == kind).collect()
    }

    /// The names of its files, sorted.
    fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> = fs::read_dir(self.path("")).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }
}

impl fmt::Display for Dir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.path(""));
    }
}

/// Runs the command and sends it a SIGINT as soon as `is_under_way`, which takes its process id, is true. It must exit with
/// code 130. Returns its output.
fn interrupted(line: &str, is_under_way: impl Fn(u32) -> bool) -> Output {
    let output = signalled(Signal::INT, line, is_under_way);
    assert_eq!(output.status.code(), Some(130), "{line}: {}", text(&output.stderr));
    output
}

/// [`interrupted`] with any signal.
fn signalled(signal: Signal, line: &str, is_under_way: impl Fn(u32) -> bool) -> Output {
    let mut child = polyserve(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    let deadline = Instant::now() + 5 * MAX_WAIT; // the first sample of a search takes half a minute on an idle machine
    while !is_under_way(child.id()) {
        if Instant::now() >= deadline {
            let _ = child.kill(); // it could run for hours
            panic!("{line}: it gets nowhere");
        }
        if child.try_wait().expect("it is ours").is_some() {
            let Output { status, stderr, .. } = child.wait_with_output().expect("it has ended");
            panic!("{line}: it ended by itself: {status}: {}", text(&stderr));
        }
        thread::sleep(Duration::from_millis(1));
    }
    kill_process(Pid::from_child(&child), signal).expect("the child was not waited for, so its pid is its own");
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    ended.recv_timeout(MAX_WAIT).expect("it ends").expect("it was not waited for")
}

/// The number of open descriptors of process `pid`.
fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// The number of open sockets of process `pid`.
fn sockets(pid: u32) -> usize {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
    let targets = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the command prints text")
}

/// A server on a free port, with these arguments.
fn serve(args: &str) -> Serving {
    Serving::start(polyserve(&format!("serve --listen 127.0.0.1:0 {args}")))
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
        let out = child.stdout.take().expect("it was piped");
        Self::over(child, out)
    }

    /// `out` is the standard output of the child.
    fn over(child: Child, out: ChildStdout) -> Self {
        let mut out = BufReader::new(out);
        let mut line = String::new();
        out.read_line(&mut line).expect("it prints text");
        let addr = line.trim_end().strip_prefix("listening on http");
        let addr = addr.map(|rest| rest.strip_prefix('s').unwrap_or(rest)).and_then(|rest| rest.strip_prefix("://"));
        let addr = addr.and_then(|addr| addr.parse().ok());
        Self { addr: addr.unwrap_or_else(|| panic!("it printed {line:?}")), child, out: Some(out) }
    }

    /// Starts a server, and returns its log too.
    fn logging(mut command: Command) -> (Self, BufReader<ChildStderr>) {
        command.stderr(Stdio::piped());
        let mut serving = Self::start(command);
        let log = serving.child.stderr.take().expect("it was piped");
        (serving, BufReader::new(log))
    }

    /// The admin address, which is the next line of its output.
    fn admin(&mut self) -> SocketAddr {
        let mut line = String::new();
        self.out.as_mut().expect("it runs").read_line(&mut line).expect("it prints text");
        let addr = line.trim_end().strip_prefix("admin on http://").and_then(|addr| addr.parse().ok());
        addr.unwrap_or_else(|| panic!("it printed {line:?}"))
    }

    /// Ends it with a signal. It must succeed. Returns the rest of its output.
    #[track_caller]
    fn drained(self, signal: Signal) -> String {
        self.signal(signal);
        let (status, rest) = self.end();
        assert_eq!(status.code(), Some(0), "{rest}");
        rest
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
        let rest = rest.recv_timeout(MAX_WAIT).expect("it ends");
        (self.child.wait().expect("it was not waited for"), rest)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill(); // fails if it has ended
        let _ = self.child.wait();
    }
}

/// The servers of `names` that the system allows. Prints that `test` is not run on the others, past the capture of the test harness.
fn allowed<'a>(test: &str, names: &[&'a str]) -> Vec<&'a str> {
    let catalog = polyserve::catalog::Catalog::builtin();
    let is_allowed = |name: &&&str| match catalog.servers_not_allowed().find(|(server, _)| server.name == **name) {
        None => true,
        Some((_, reason)) => {
            let _ = writeln!(std::io::stderr(), "not run: {test}: {name}: {reason}");
            false
        }
    };
    names.iter().filter(is_allowed).copied().collect()
}

/// Waits until `is_so`.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + MAX_WAIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A request for a path, which closes the connection.
fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
}

/// Sends `request`, and reads until the server closes the connection.
fn ask(addr: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(addr).expect("the server listens");
    stream.set_read_timeout(Some(MAX_WAIT)).expect("a timeout can be set");
    stream.write_all(request.as_bytes()).expect("the server reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the server answers and closes");
    answer
}
