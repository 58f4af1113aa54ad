//! The system calls of a request, counted by `strace` on the real command. A process may trace its own child without
//! privileges. If that is not allowed, or `strace` is missing, the tests print that they are not run.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::super::{Dir, Serving};
use super::{GET, answers, connect, exchange, rest};

const REQUESTS: usize = 1000;

#[test]
fn null_epoll_receives_and_sends_once_for_each_request_of_a_kept_connection() {
    let calls = traced("null_epoll", &[], |addr| {
        let mut stream = connect(addr);
        for _ in 0..REQUESTS {
            exchange(&mut stream, GET);
        }
    });
    let Some(calls) = calls else { return };
    assert_eq!((calls.good("recvfrom"), calls.good("sendto")), (REQUESTS, REQUESTS), "{calls:?}");
    assert_eq!((calls.good("accept4"), calls.refused("accept4")), (1, 1), "{calls:?}");
    // Its wake-ups: the connection, then each request.
    assert_eq!((calls.good("epoll_pwait"), calls.good("epoll_ctl")), (1 + REQUESTS, 1), "{calls:?}");
    calls.nothing_else(&["epoll_pwait", "recvfrom", "sendto", "accept4", "epoll_ctl"]);
}

#[test]
fn null_epoll_answers_what_came_together_in_one_send() {
    const DEPTH: usize = 16;
    const ROUNDS: usize = 10;
    let calls = traced("null_epoll", &[], |addr| {
        let mut stream = connect(addr);
        let mut bytes = vec![0; DEPTH * exchange(&mut stream, GET)];
        for _ in 0..ROUNDS {
            stream.write_all(GET.repeat(DEPTH).as_bytes()).unwrap();
            stream.read_exact(&mut bytes).unwrap();
            assert_eq!(answers(&bytes), DEPTH);
        }
    });
    let Some(calls) = calls else { return };
    let turns = 1 + ROUNDS;
    assert_eq!((calls.good("recvfrom"), calls.good("sendto")), (turns, turns), "{calls:?}");
    calls.nothing_else(&["epoll_pwait", "recvfrom", "sendto", "accept4", "epoll_ctl"]);
}

#[test]
fn null_epoll_accepts_and_closes_once_for_each_connection() {
    let calls = traced("null_epoll", &["--requests-per-connection", "1"], one_each);
    let Some(calls) = calls else { return };
    for name in ["accept4", "epoll_ctl", "recvfrom", "sendto"] {
        assert_eq!(calls.good(name), REQUESTS, "{name}: {calls:?}");
    }
    assert_eq!(calls.good("close"), REQUESTS - 1, "the last comes after what was counted: {calls:?}");
    // After each connection, an `accept4` finds no other. The connection is one wake-up, its request another.
    assert_eq!((calls.refused("accept4"), calls.good("epoll_pwait")), (REQUESTS, 2 * REQUESTS), "{calls:?}");
    calls.nothing_else(&["epoll_pwait", "recvfrom", "sendto", "accept4", "epoll_ctl", "close"]);
}

/// A connection is there with its request, so it is served and closed without a registration.
#[test]
fn null_deferred_registers_no_connection_that_closes() {
    let calls = traced("null_deferred", &["--requests-per-connection", "1"], one_each);
    let Some(calls) = calls else { return };
    for name in ["accept4", "recvfrom", "sendto"] {
        assert_eq!(calls.good(name), REQUESTS, "{name}: {calls:?}");
    }
    assert!(calls.good("epoll_pwait") <= REQUESTS, "a connection has at most one wake-up: {calls:?}");
    calls.nothing_else(&["epoll_pwait", "recvfrom", "sendto", "accept4", "close"]);
}

/// The ring accepts, receives and sends. The kernel is entered at most once for each of these.
#[test]
fn null_uring_makes_no_call_but_enters_and_closes() {
    if let Err(error) = polyserve::percore::IoUring::check() {
        let _ = writeln!(std::io::stderr(), "not run: null_uring_makes_no_call_but_enters_and_closes: {error}");
        return;
    }
    let kept = traced("null_uring", &[], |addr| {
        let mut stream = connect(addr);
        for _ in 0..REQUESTS {
            exchange(&mut stream, GET);
        }
    });
    let Some(kept) = kept else { return };
    kept.nothing_else(&["io_uring_enter", "close"]);
    // A request is one wait and its send another. The connection and the shutdown have some more.
    let count = kept.good("io_uring_enter");
    assert!((REQUESTS..=2 * REQUESTS + 100).contains(&count), "{kept:?}");
    assert!(kept.good("close") < 10, "{kept:?}");
    let Some(once) = traced("null_uring", &["--requests-per-connection", "1"], one_each) else { return };
    once.nothing_else(&["io_uring_enter", "close"]);
}

#[test]
fn null_accept_makes_four_calls_for_each_connection() {
    let calls = traced("null_accept", &[], one_each);
    let Some(calls) = calls else { return };
    for name in ["accept4", "recvfrom", "sendto"] {
        assert_eq!((calls.good(name), calls.refused(name)), (REQUESTS, 0), "{name}: {calls:?}");
    }
    assert_eq!(calls.good("close"), REQUESTS - 1, "the last comes after what was counted: {calls:?}");
    calls.nothing_else(&["accept4", "recvfrom", "sendto", "close"]);
}

fn one_each(addr: SocketAddr) {
    for _ in 0..REQUESTS {
        let mut stream = connect(addr);
        exchange(&mut stream, GET);
        assert_eq!(rest(&mut stream), b"");
    }
}

/// The system calls of one thread: by name, how many succeeded and how many failed.
#[derive(Debug, Default)]
struct Calls(BTreeMap<String, (usize, usize)>);

impl Calls {
    fn good(&self, name: &str) -> usize {
        self.0.get(name).map_or(0, |counts| counts.0)
    }

    fn refused(&self, name: &str) -> usize {
        self.0.get(name).map_or(0, |counts| counts.1)
    }

    fn nothing_else(&self, names: &[&str]) {
        let others: Vec<_> = self.0.iter().filter(|(name, _)| !names.contains(&name.as_str())).collect();
        assert!(others.is_empty(), "{others:?}");
    }
}

/// Returns the system calls of the thread of reference `name`, from its first wait to `load`'s last answer. Prints a
/// note and returns `None` if it cannot be traced.
fn traced(name: &str, args: &[&str], load: impl FnOnce(SocketAddr)) -> Option<Calls> {
    let test = std::thread::current().name().unwrap_or("calls").to_owned();
    if let Err(why) = tracing_works() {
        let _ = writeln!(std::io::stderr(), "not run: {test}: {why}"); // past the harness's capture
        return None;
    }
    let logs = Dir::new(&format!("calls-{test}").replace(':', "-"));
    fs::create_dir_all(logs.path("")).unwrap();
    let mut strace = Command::new("strace");
    strace.args(["-ff", "-qq", "-s", "1", "-o"]).arg(logs.path("t")).arg(env!("CARGO_BIN_EXE_polyserve"));
    strace.args(["serve", "--listen", "127.0.0.1:0", "--server", name]).args(args).stdin(Stdio::null());
    let serving = Serving::start(strace);
    load(serving.addr);
    kill_process(process(&logs), Signal::TERM).unwrap();
    assert!(serving.end().0.success());
    Some(thread(&logs))
}

fn tracing_works() -> Result<(), String> {
    let probe = Command::new("strace").args(["-ff", "-qq", "-o", "/dev/null", "true"]).stdin(Stdio::null()).output();
    match probe {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("strace cannot trace a child here: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(format!("strace cannot be started: {error}")),
    }
}

/// The logs in this directory, one a thread: `t.TID`. Returns each thread's number and log.
fn thread_logs(logs: &Dir) -> Vec<(String, String)> {
    let tid = |path: &std::path::Path| path.extension().unwrap().to_str().unwrap().to_owned();
    logs.files().iter().map(|path| (tid(path), fs::read_to_string(path).unwrap())).collect()
}

/// The traced process: the thread that began with the program.
fn process(logs: &Dir) -> Pid {
    let logs = thread_logs(logs);
    let (pid, _) = logs.iter().find(|(_, log)| log.starts_with("execve(")).expect("the program was started");
    Pid::from_raw(pid.parse().unwrap()).unwrap()
}

/// The system calls of the thread that accepts, from its first wait to its last answer. The shutdown is not counted.
fn thread(logs: &Dir) -> Calls {
    let logs = thread_logs(logs);
    let log = logs.iter().find(|(_, log)| ["accept4(", "io_uring_enter("].iter().any(|call| log.contains(call)));
    let (_, log) = log.expect("a thread accepts");
    let lines = log.lines().take_while(|line| !line.starts_with("--- SIGTERM"));
    // In a debug build the standard library asks before each close whether the descriptor is open.
    let lines: Vec<&str> = lines.filter(|line| !(cfg!(debug_assertions) && line.starts_with("fcntl("))).collect();
    let (waits, answers) = (["epoll_pwait(", "accept4(", "io_uring_enter("], ["sendto(", "io_uring_enter("]);
    let first = lines.iter().position(|line| waits.iter().any(|call| line.starts_with(call)));
    let last = lines.iter().rposition(|line| answers.iter().any(|call| line.starts_with(call)));
    let mut calls = Calls::default();
    for line in &lines[first.expect("it waits")..=last.expect("it answers")] {
        let (name, rest) = line.split_once('(').unwrap_or_else(|| panic!("no call: {line}"));
        let result = rest.rsplit_once(" = ").unwrap_or_else(|| panic!("no result: {line}")).1;
        let (good, refused) = calls.0.entry(name.to_owned()).or_default();
        *(if result.starts_with('-') { refused } else { good }) += 1;
    }
    calls
}
