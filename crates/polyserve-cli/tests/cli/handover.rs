//! `polyserve serve --handover SOCKET`.
//!
//! `POLYSERVE_RESTARTS=100 cargo test --release -p polyserve-cli --test cli a_restart_loses_no_request -- --nocapture` is the long form.

use std::fs::Permissions;
use std::io::{self, BufRead as _, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Dir, MAX_WAIT, Serving, allowed, ask, ended, has, misused, polyserve, signalled, text};

/// A client that keeps its connection. A drain closes a kept connection, so a request is sent again, once and on a new connection, if the
/// server closes before any byte of an answer. Every other failure is an error, and so is any failure of a new connection.
struct Client {
    addr: SocketAddr,
    stream: Option<TcpStream>,
    /// The number of requests that were sent again.
    resent: u64,
}

impl Client {
    fn new(addr: SocketAddr) -> Self {
        Self { addr, stream: None, resent: 0 }
    }

    /// Sends a request, and returns its answer.
    fn send(&mut self, request: &str) -> io::Result<String> {
        if let Some(mut kept) = self.stream.take() {
            match answer(&mut kept, request).map_err(|error| (error.kind(), error)) {
                Ok(answered) => {
                    self.stream = Some(kept);
                    return Ok(answered);
                }
                Err((ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe, _)) => {
                    self.resent += 1;
                }
                Err((_, error)) => return Err(error),
            }
        }
        let mut new = TcpStream::connect(self.addr)?;
        new.set_read_timeout(Some(MAX_WAIT))?;
        let answered = answer(&mut new, request)?;
        self.stream = Some(new);
        Ok(answered)
    }
}

/// An answer with its whole body. The error is `UnexpectedEof` if no byte arrives.
fn answer(stream: &mut TcpStream, request: &str) -> io::Result<String> {
    stream.write_all(request.as_bytes())?;
    let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) if read.is_empty() => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(0) => return Err(io::Error::other("a part of an answer")),
            Ok(count) => read.extend_from_slice(&buffer[..count]),
            Err(error) if read.is_empty() => return Err(error),
            Err(error) => return Err(io::Error::other(error)),
        }
        let text = String::from_utf8_lossy(&read).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head
            .to_lowercase()
            .split("\r\ncontent-length: ")
            .nth(1)
            .map_or(0, |rest| rest.lines().next().and_then(|length| length.parse().ok()).expect("a length"));
        if body.len() == length {
            return Ok(text);
        }
    }
}

/// What the load of a client has sent.
#[derive(Clone, Copy, Debug, Default)]
struct SentRequests {
    /// Requests that were answered as they must be.
    right: u64,
    /// Those that were sent twice.
    resent: u64,
}

/// Puts and gets entities until the end, and then gets all of them once more. Checks each answer: a request that is sent again was not
/// served before, so its answer is that of a first one.
fn load(addr: SocketAddr, client: u64, is_over: &AtomicBool) -> SentRequests {
    let mut connection = Client::new(addr);
    let entity = |id: u64| format!(r#"{{"id":{id},"description":"d{id}","value":1.5}}"#);
    let get = |connection: &mut Client, id: u64| {
        let read = connection.send(&format!("GET /{id} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let read = read.unwrap_or_else(|error| panic!("get {id}: {error}"));
        has(&read, &["HTTP/1.1 200 ", &entity(id)]);
    };
    let first = 1_000_000 * (client + 1);
    let mut next = first;
    while !is_over.load(Ordering::Relaxed) {
        let body = entity(next);
        let put = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let stored = connection.send(&put).unwrap_or_else(|error| panic!("put {next}: {error}"));
        assert!(stored.starts_with("HTTP/1.1 201 "), "put {next}: {stored}");
        get(&mut connection, next);
        next += 1;
    }
    (first..next).for_each(|id| get(&mut connection, id));
    SentRequests { right: 3 * (next - first), resent: connection.resent }
}

/// The number of restarts of each server.
fn restarts() -> usize {
    std::env::var("POLYSERVE_RESTARTS").map_or(10, |restarts| restarts.parse().expect("a number"))
}

#[test]
fn a_restart_loses_no_request() {
    let servers =
        ["pool_server", "tokio_tcp", "thread_per_connection", "tokio_per_core", "tokio_hyper", "epoll", "io_uring"];
    for server in allowed("a_restart_loses_no_request", &servers) {
        let dir = Dir::new(&format!("handover-{server}"));
        let args = format!(
            "serve --server {server} --repo durable:{dir}/store --listen 127.0.0.1:0 --admin 127.0.0.1:0 --lame-duck 1h \
             --handover {dir}.sock"
        );
        let mut serving = Serving::start(polyserve(&args));
        let addr = serving.addr;
        let is_over = Arc::new(AtomicBool::new(false));
        let clients: Vec<_> = (0..4)
            .map(|client| {
                thread::spawn({
                    let is_over = Arc::clone(&is_over);
                    move || load(addr, client, &is_over)
                })
            })
            .collect();
        for _ in 0..restarts() {
            let next = Serving::start(polyserve(&args));
            assert_eq!(next.addr, addr, "{server}");
            let (status, rest) = serving.end();
            assert_eq!(status.code(), Some(0), "{server}: {rest}");
            has(&rest, &["answered ", ", cut 0, stuck 0"]);
            serving = next;
        }
        is_over.store(true, Ordering::Relaxed);
        let mut sent = SentRequests::default();
        for client in clients {
            let one = client.join().expect("every answer is right");
            (sent.right, sent.resent) = (sent.right + one.right, sent.resent + one.resent);
        }
        assert!(sent.right > 0, "{server}");
        println!(
            "{server}: {} restarts, {} right answers, {} requests sent twice",
            restarts(),
            sent.right,
            sent.resent
        );
        drop(serving);
        std::fs::remove_file(dir.path("").with_extension("sock")).expect("a process offers its listeners");
    }
}

/// Regression test: a server of one connection never found the queue empty while clients came. It drained up to its grace, accepted what the
/// next process could have served, and cut it.
#[test]
fn a_busy_server_of_one_connection_hands_over() {
    let dir = Dir::new("handover-busy");
    let args = format!(
        "serve --server sequential --blocking-wait 20ms --repo durable:{dir}/store --listen 127.0.0.1:0 --drain-grace 1h \
         --handover {dir}.sock"
    );
    let serving = Serving::start(polyserve(&args));
    let addr = serving.addr;
    let is_over = Arc::new(AtomicBool::new(false));
    let clients = [0, 1, 2, 3].map(|client| {
        let is_over = Arc::clone(&is_over);
        thread::spawn(move || load(addr, client, &is_over))
    });
    while dir.path("store").read_dir().is_ok_and(|mut files| files.next().is_none()) {
        thread::sleep(Duration::from_millis(1));
    }
    let next = Serving::start(polyserve(&args));
    let (status, rest) = serving.end();
    assert_eq!(status.code(), Some(0), "{rest}");
    has(&rest, &["answered ", ", cut 0, stuck 0"]);
    is_over.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| assert!(client.join().expect("every answer is right").right > 0));
    drop(next);
    std::fs::remove_file(dir.path("").with_extension("sock")).expect("a process offers its listeners");
}

/// Regression test: a process that waited for one that is stopped ended 30 s after a signal.
#[test]
fn a_signal_ends_the_wait_for_a_stopped_process() {
    let dir = Dir::new("handover-stopped");
    dir.write("file", "");
    let serving = Serving::start(polyserve(&format!("serve --listen 127.0.0.1:0 --handover {dir}/handover.sock")));
    serving.signal(Signal::STOP);
    // A line such as `SigCgt: 0000000180004003`, with a bit for each signal that has a handler.
    let is_handled = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).map(str::trim);
        mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).is_some_and(|mask| mask & 1 << 14 != 0)
    };
    let next = format!("serve --listen {} --handover {dir}/handover.sock", serving.addr);
    let output = signalled(Signal::TERM, &next, is_handled);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "answered 0, cut 0, stuck 0\n");
    serving.signal(Signal::CONT);
    assert!(ask(serving.addr, "GET /1 HTTP/1.0\r\n\r\n").contains(" 404 "));
}

#[test]
fn a_process_that_cannot_start_takes_nothing_over() {
    let dir = Dir::new("handover-wrong");
    let args = format!("serve --listen 127.0.0.1:0 --handover {dir}/handover.sock");
    dir.write("file", "text");
    let serving = Serving::start(polyserve(&args));
    let mut client = Client::new(serving.addr);
    let is_served = |client: &mut Client| {
        has(&client.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is served"), &["HTTP/1.1 404 "]);
    };
    is_served(&mut client);
    misused(&format!("{args} --server nothing"));
    misused(&format!("{args} --service nothing"));
    misused(&format!("{args} --ready nothing"));
    ended(1, &format!("{args} --repo durable:{dir}/file"));
    is_served(&mut client);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let output =
        ended(1, &format!("{args} --listen {}", taken.local_addr().unwrap()).replacen("--listen 127.0.0.1:0", "", 1));
    has(&text(&output.stderr), &["cannot serve on 127.0.0.1:"]);
    is_served(&mut client);
    has(&misused(&format!("serve --handover {dir}/file")), &["the file is no socket"]);
}

/// What is at the path of the socket and is none is neither used nor removed: a file, and a link to a file or to a socket. A socket that a
/// process has left is replaced.
#[test]
fn only_a_socket_is_replaced() {
    let dir = Dir::new("handover-path");
    dir.write("file", "text");
    symlink("file", dir.path("link")).expect("the directory is ours");
    drop(UnixListener::bind(dir.path("left.sock")).expect("the path is short"));
    symlink("left.sock", dir.path("link.sock")).expect("the directory is ours");
    for path in ["file", "link", "link.sock"] {
        let refused = misused(&format!("serve --listen 127.0.0.1:0 --handover {dir}/{path}"));
        has(&refused, &[path, "the file is no socket"]);
    }
    assert_eq!(std::fs::read_to_string(dir.path("link")).expect("it is there"), "text");
    let serving = Serving::start(polyserve(&format!("serve --listen 127.0.0.1:0 --handover {dir}/left.sock")));
    let next = Serving::start(polyserve(&format!("serve --listen {} --handover {dir}/left.sock", serving.addr)));
    assert!(serving.end().0.success(), "it was handed over");
    drop(next);
}

/// The command as another user. Only root can do that.
pub(super) fn as_user(user: u32, args: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.current_dir(super::HERE).args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups"]);
    command.arg(env!("CARGO_BIN_EXE_polyserve")).args(args.split_whitespace());
    command
}

/// Other users can neither take the listeners nor offer some, also if the file of the socket lets them connect.
#[test]
fn another_user_takes_nothing_and_gives_nothing() {
    let dir = Dir::new("handover-user");
    dir.write("file", "");
    let output = as_user(54321, "--version").output();
    if !output.as_ref().is_ok_and(|output| output.status.success()) {
        let _ = writeln!(io::stderr(), "not run: another_user_takes_nothing_and_gives_nothing: {output:?}");
        return;
    }
    let mode =
        |path: &str, mode| std::fs::set_permissions(dir.path(path), Permissions::from_mode(mode)).expect("it is ours");
    let mut unmasked = Command::new("sh"); // with an umask that lets all users do everything
    unmasked.args([
        "-c",
        "umask 000; exec \"$@\"",
        "sh",
        env!("CARGO_BIN_EXE_polyserve"),
        "serve",
        "--listen",
        "127.0.0.1:0",
    ]);
    unmasked.current_dir(super::HERE).args(["--handover", &format!("{dir}/own.sock")]);
    let (serving, mut log) = Serving::logging(unmasked);
    let taking = format!("serve --listen {} --handover {dir}/own.sock", serving.addr);
    assert_eq!(std::fs::metadata(dir.path("own.sock")).expect("it is there").permissions().mode() & 0o777, 0o600);
    let output = as_user(54321, &taking).output().expect("it runs");
    has(&text(&output.stderr), &["own.sock", "Permission denied"]);
    mode("own.sock", 0o666);
    let output = as_user(54321, &taking).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    has(&text(&output.stderr), &["own.sock does not hand over"]);
    let mut line = String::new();
    log.read_line(&mut line).expect("it logs text");
    has(&line, &["cannot be handed over", "belongs to another user"]);
    assert!(ask(serving.addr, "GET /1 HTTP/1.0\r\n\r\n").contains(" 404 "));

    mode("", 0o777);
    let other = Serving::start(as_user(54321, &format!("serve --listen 127.0.0.1:0 --handover {dir}/other.sock")));
    mode("other.sock", 0o666);
    let output = as_user(54322, &format!("serve --listen {} --handover {dir}/other.sock", other.addr)).output();
    let output = output.expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    has(&text(&output.stderr), &["other.sock does not hand over", "belongs to another user"]);
    assert!(ask(other.addr, "GET /1 HTTP/1.0\r\n\r\n").contains(" 404 "));
}

/// Regression test: each connection that sent nothing held the socket for 30 s, and the next process gave up.
#[test]
fn silent_connections_do_not_keep_the_next_process_out() {
    let dir = Dir::new("handover-silent");
    let args = format!("serve --listen 127.0.0.1:0 --repo durable:{dir}/store --handover {dir}.sock");
    let serving = Serving::start(polyserve(&args));
    let socket = std::path::Path::new(super::HERE).join(format!("{dir}.sock"));
    let silent: Vec<_> = (0..33).map(|_| UnixStream::connect(&socket).expect("the socket is there")).collect();
    let next = Serving::start(polyserve(&args.replace("127.0.0.1:0", &serving.addr.to_string())));
    assert_eq!(next.addr, serving.addr);
    assert!(serving.end().0.success(), "it was handed over");
    let answer = ask(next.addr, "GET /1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    has(&answer, &["HTTP/1.1 404"]);
    drop(silent);
}

/// Regression test: a process that did not go on for 30 s, such as one with a large store, could not take over, and kept the next one out.
#[test]
fn the_process_that_asks_last_takes_over() {
    let dir = Dir::new("handover-last");
    dir.write("file", "");
    let args = format!("serve --listen 127.0.0.1:0 --handover {dir}/handover.sock");
    let serving = Serving::start(polyserve(&args));
    let asked = || {
        let mut socket = UnixStream::connect(dir.path("handover.sock")).expect("the socket is there");
        // Shorter than the 30 s, in which a process that does not go on kept the others out.
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("the timeout is not zero");
        socket.write_all(b"?").expect("it reads");
        socket.read_exact(&mut [0; 9]).expect("it offers its listeners");
        socket
    };
    let (mut hung, _last) = (asked(), asked());
    assert!(hung.write_all(b"!").is_err(), "the process is not waited for any more");
    assert!(ask(serving.addr, "GET /1 HTTP/1.0\r\n\r\n").contains(" 404 "), "it was not handed over");
    let next = Serving::start(polyserve(&args));
    assert_eq!(next.addr, serving.addr);
    assert!(serving.end().0.success(), "it was handed over");
}

/// Regression test: the kernel shows no process id of another namespace, and that was undefined behaviour.
#[test]
fn a_process_in_another_namespace_takes_over() {
    let dir = Dir::new("handover-namespace");
    dir.write("file", "");
    let args = format!("serve --log info --listen 127.0.0.1:0 --handover {dir}/handover.sock");
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child"]).current_dir(super::HERE);
        command
    };
    let output = unshare().arg("true").output();
    if !output.as_ref().is_ok_and(|output| output.status.success()) {
        let _ = writeln!(io::stderr(), "not run: a_process_in_another_namespace_takes_over: {output:?}");
        return;
    }
    let mut command = unshare();
    command.arg(env!("CARGO_BIN_EXE_polyserve")).args(args.split_whitespace());
    let (serving, log) = Serving::logging(command);
    let next = Serving::start(polyserve(&args));
    assert_eq!(next.addr, serving.addr);
    assert!(serving.end().0.success(), "it was handed over");
    let log = io::read_to_string(log).expect("it logs text");
    has(&log, &["the next process takes over"]);
    assert!(!log.contains("pid="), "it has no id here: {log}");
}

#[test]
fn a_process_that_ends_hands_nothing_over() {
    let dir = Dir::new("handover-end");
    dir.write("file", "text");
    let args = format!("--lame-duck 1h --handover {dir}/handover.sock");
    let serving = Serving::start(polyserve(&format!("serve --listen 127.0.0.1:0 {args}")));
    let socket = dir.path("handover.sock");
    let deadline = Instant::now() + MAX_WAIT;
    serving.signal(Signal::TERM);
    while socket.exists() {
        assert!(Instant::now() < deadline, "the offer is not withdrawn");
        thread::sleep(Duration::from_millis(1));
    }
    let output = ended(1, &format!("serve --listen {} {args}", serving.addr));
    has(&text(&output.stderr), &["cannot serve on 127.0.0.1:"]);
    let mut client = Client::new(serving.addr);
    let answer = client.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").expect("it serves until its drain");
    has(&answer, &["HTTP/1.1 404 "]);
}

/// The next process waits for the end of the one before, however long that drains, and a first signal does not cut that.
#[test]
fn the_drain_of_a_handover_is_not_cut() {
    let dir = Dir::new("handover-drain");
    dir.write("file", "text");
    let args = format!(
        "serve --listen 127.0.0.1:0 --admin 127.0.0.1:0 --drain-grace 1h --body-timeout 1h --min-body-rate 0 --handover {dir}/handover.sock"
    );
    let mut serving = Serving::start(polyserve(&args));
    let mut line = String::new();
    serving.out.as_mut().expect("it runs").read_line(&mut line).expect("it prints text");
    let admin =
        line.trim_end().strip_prefix("admin on http://").and_then(|addr| addr.parse().ok()).expect("an address");
    let mut begun = TcpStream::connect(serving.addr).expect("it listens");
    begun.set_read_timeout(Some(MAX_WAIT)).expect("a timeout can be set");
    begun
        .write_all(b"PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 38\r\n\r\n")
        .expect("it reads");
    let mut continued = [0; 25];
    begun.read_exact(&mut continued).expect("it asks for the body");
    let next = thread::spawn({
        let args = args.clone();
        move || Serving::start(polyserve(&args))
    });
    let deadline = Instant::now() + MAX_WAIT;
    while !ask(admin, "GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").starts_with("HTTP/1.1 503 ") {
        assert!(Instant::now() < deadline, "the process is not taken over");
    }
    serving.signal(Signal::TERM);
    let answered = answer(&mut begun, r#"{"id":1,"description":"a","value":1.5}"#).expect("the request is served");
    has(&answered, &["HTTP/1.1 201 ", "onnection: close"]);
    drop(begun);
    let addr = serving.addr;
    assert_eq!(serving.end().0.code(), Some(0));
    assert_eq!(next.join().expect("it starts").addr, addr);
}
