//! `serve` under systemd: its socket, its state and its watchdog.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use polyserve_conformance::client::Client;
use polyserve_conformance::tls::{TestAuthority, forget, trust};
use rustix::process::Signal;

use super::{Dir, MAX_WAIT, Serving, ask, get, has, polyserve, text};

/// `serve` as systemd starts it: with a socket as descriptor 3.
fn with_socket(listener: &TcpListener, args: &str) -> Command {
    let script = "exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" serve \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_polyserve")]).args(args.split_whitespace());
    command.stdin(OwnedFd::from(listener.try_clone().expect("a descriptor is left")));
    command
}

/// A restart with a socket that outlives the process refuses no connection: clients wait in the socket's queue.
#[test]
fn a_passed_socket_outlives_the_process() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let addr = listener.local_addr().expect("it is bound");
    for server in ["pool_server", "tokio_tcp", "thread_per_connection"] {
        let serving = Serving::start(with_socket(&listener, &format!("--server {server}")));
        assert_eq!(serving.addr, addr);
        assert!(ask(addr, &get("/1")).starts_with("HTTP/1.1 404 "));
        serving.drained(Signal::TERM);
        let waiting = thread::spawn(move || ask(addr, &get("/1"))); // no process serves now
        let next = Serving::start(with_socket(&listener, &format!("--server {server}")));
        assert!(waiting.join().expect("it is answered").starts_with("HTTP/1.1 404 "), "{server}");
        drop(next);
    }
    let output = with_socket(&listener, "--listen 127.0.0.1:0").output().expect("the command runs");
    has(&text(&output.stderr), &["leave --listen out"]);
    assert_eq!(output.status.code(), Some(2));
}

/// Regression test: a socket unit with `Accept=yes` passes a connection, and the error was that another address cannot be served.
#[test]
fn a_passed_connection_is_a_misuse() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let connection = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let output = with_socket(&TcpListener::from(OwnedFd::from(connection)), "").output().expect("the command runs");
    has(&text(&output.stderr), &["is a connection", "Accept=no"]);
    assert_eq!(output.status.code(), Some(2));
}

/// The messages that a server has for systemd.
struct Told(UnixDatagram, PathBuf);

impl Told {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // A socket's path must be short.
        let name = format!("polyserve-{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path); // it is seldom there
        let socket = UnixDatagram::bind(&path).expect("a socket is made");
        socket.set_read_timeout(Some(MAX_WAIT)).expect("a timeout can be set");
        Self(socket, path)
    }

    /// A server with a watchdog of this limit.
    fn serving(&self, limit: Duration, args: &str) -> Serving {
        let mut command = polyserve(&format!("serve --listen 127.0.0.1:0 {args}"));
        command.env("NOTIFY_SOCKET", &self.1).env("WATCHDOG_USEC", limit.as_micros().to_string());
        Serving::start(command)
    }

    /// The next message.
    #[track_caller]
    fn next(&self) -> String {
        self.within(MAX_WAIT).expect("it tells something")
    }

    /// The next message, if it comes within this time.
    fn within(&self, limit: Duration) -> Option<String> {
        self.0.set_read_timeout(Some(limit)).expect("a timeout can be set");
        let mut buffer = [0; 100];
        let length = self.0.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..length]).trim().to_owned())
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.1); // an error leaves an empty socket in the directory of temporary files
    }
}

/// Regression test: a socket without a path (`@NAME`) was taken for a file.
#[cfg(target_os = "linux")]
#[test]
fn systemd_is_told_at_an_abstract_socket() {
    let name = format!("polyserve-{}", std::process::id());
    let addr = SocketAddr::from_abstract_name(&name).expect("the name is short");
    let socket = UnixDatagram::bind_addr(&addr).expect("no socket has the name");
    let mut command = polyserve("serve --listen 127.0.0.1:0");
    let serving = Serving::start({
        command.env("NOTIFY_SOCKET", format!("@{name}"));
        command
    });
    let told = Told(socket, PathBuf::new());
    assert_eq!(told.next(), "READY=1");
    serving.drained(Signal::TERM);
    assert_eq!(told.next(), "STOPPING=1");
}

/// Regression test: a limit of zero, which is none, took a core for messages.
#[test]
fn a_watchdog_without_a_time_is_none() {
    tells_systemd(Duration::ZERO, &["READY=1"]);
}

/// systemd is told when requests are answered, that the process is alive, and when the end begins.
#[test]
fn systemd_is_told_the_state() {
    tells_systemd(Duration::from_secs(60), &["READY=1", "WATCHDOG=1"]);
}

/// Starts a server with this limit of its watchdog, and ends it. It must tell systemd `at_start`, and then its end.
fn tells_systemd(watchdog: Duration, at_start: &[&str]) {
    let told = Told::new();
    let serving = told.serving(watchdog, "");
    at_start.iter().for_each(|expected| assert_eq!(told.next(), *expected));
    serving.signal(Signal::TERM);
    assert_eq!(told.next(), "STOPPING=1");
    assert!(serving.end().0.success());
}

/// Long next to the pauses of a busy machine.
const WATCHDOG: Duration = Duration::from_secs(3);

/// Checks that a server is reported as alive again and again, with a client that keeps its connection. `tls`: what the client trusts, and
/// its certificate, if the server speaks TLS.
#[track_caller]
fn stays_alive(args: &str, host: &str, tls: Option<Arc<rustls::ClientConfig>>) {
    let told = Told::new();
    let serving = told.serving(WATCHDOG / 3, &format!("--server {args}"));
    assert_eq!([told.next(), told.next()], ["READY=1", "WATCHDOG=1"], "{args}");
    let has_tls = tls.is_some();
    if let Some(config) = tls {
        trust(serving.addr, config, std::net::IpAddr::from([127, 0, 0, 1]).into());
    }
    let mut kept = Client::connect(serving.addr, MAX_WAIT).expect("it listens, and speaks TLS if the client does");
    kept.send(format!("GET /1 HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).expect("it reads");
    if has_tls {
        kept.expect(404);
    }
    for _ in 0..4 {
        assert_eq!(told.next(), "WATCHDOG=1", "{args}");
    }
    forget(serving.addr); // another server may get the port
}

/// An idle server is alive, also if a client keeps its only worker with a connection, and if it asks for tokens, other hosts, certificates of
/// clients and TLS.
#[test]
fn an_idle_server_is_alive() {
    let (dir, authority) = (Dir::new("systemd-idle"), TestAuthority::new());
    let issued = authority.issue();
    dir.write("ca.pem", authority.pem());
    dir.write("cert.pem", &issued.certificate);
    dir.write("key.pem", &issued.key);
    dir.write("tokens", format!("alice read sha256:{}\n", "0".repeat(64)));
    let tls = format!("--tls-cert {dir}/cert.pem --tls-key {dir}/key.pem --tls-client-ca {dir}/ca.pem");
    let guarded = format!("--tokens {dir}/tokens --hosts example.org --overload static:1");
    let client = authority.client(rustls::DEFAULT_VERSIONS, Some(&issued));
    let kinds = [(String::new(), None), (tls, Some(client)), (guarded, None)];
    thread::scope(|scope| {
        for server in ["sequential", "leader_followers", "pool_server --workers 1", "tokio_hyper", "epoll"] {
            for (args, client) in kinds.clone() {
                scope.spawn(move || stays_alive(&format!("{server} {args}"), "example.org", client));
            }
        }
    });
}

/// Regression test: a limit that refused the request of the watchdog ended a server that was idle.
#[test]
fn a_server_that_refuses_is_alive() {
    for args in [
        "pool_server --max-connections-per-peer 1 --max-head 64",
        "epoll --max-connections-per-peer 1",
        "tokio_tcp --max-head 64",
    ] {
        stays_alive(args, "a", None);
    }
}

/// The watchdog was a thread that did nothing else, so systemd kept a process of which all workers hung.
#[test]
fn a_server_that_hangs_is_not_alive() {
    let servers = [
        "pool_server --workers 2",
        "pool_classic/mpsc_pool --workers 2",
        "tokio_tcp --workers 2",
        "sequential",
        "epoll --workers 1",
    ];
    thread::scope(|scope| {
        for server in servers {
            scope.spawn(move || {
                let told = Told::new();
                let serving = told.serving(WATCHDOG, &format!("--server {server} --blocking-wait 1h"));
                assert_eq!([told.next(), told.next()], ["READY=1", "WATCHDOG=1"], "{server}");
                // Each worker has a request for an hour.
                let clients: Vec<_> = (0..8)
                    .map(|_| {
                        let mut client = TcpStream::connect(serving.addr).expect("it listens");
                        client.write_all(get("/1").as_bytes()).expect("it has room for a request");
                        client
                    })
                    .collect();
                // A message may be on its way.
                let heard = (0..3).take_while(|_| told.within(WATCHDOG).is_some()).count();
                assert!(heard < 3, "{server} hangs, and systemd hears that it is alive");
                drop(clients);
                serving.signal(Signal::KILL);
            });
        }
    });
}

/// A server that is busy with the requests of clients is alive, also if it is full: it has no room for a request of the watchdog.
#[test]
fn a_full_server_that_serves_is_alive() {
    let told = Told::new();
    let serving = told.serving(WATCHDOG, "--server pool_server --workers 1 --max-connections 1 --blocking-wait 20ms");
    assert_eq!(told.next(), "READY=1");
    let mut client = TcpStream::connect(serving.addr).expect("it listens");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut answer = [0; 4096];
            while !is_over.load(Ordering::Relaxed) {
                client.write_all(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").expect("it reads");
                assert!(client.read(&mut answer).expect("it answers") > 0);
            }
        });
        for _ in 0..3 {
            assert_eq!(told.within(WATCHDOG).as_deref(), Some("WATCHDOG=1"));
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
