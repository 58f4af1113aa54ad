//! Every peer, started like in `polyserve compare`, with requests over a plain socket.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// A timeout that only matters if a peer hangs.
const MAX_WAIT: Duration = Duration::from_secs(30);

struct Peer {
    child: Child,
    addr: SocketAddr,
    /// Standard output, which stays open.
    _out: BufReader<ChildStdout>,
}

impl Peer {
    fn start(program: &str) -> Self {
        let mut command = Command::new(program);
        command.args(["--listen", "127.0.0.1:0", "--until-stdin-ends", "--workers", "1"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the peer starts");
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("it was piped"));
        out.read_line(&mut line).expect("it prints text");
        let addr = line.trim_end().strip_prefix("listening on http://").and_then(|addr| addr.parse().ok());
        Self { addr: addr.unwrap_or_else(|| panic!("it printed {line:?}")), child, _out: out }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.addr).expect("it listens");
        stream.set_read_timeout(Some(MAX_WAIT)).expect("a timeout can be set");
        stream
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill(); // does nothing if the process has ended
        let _ = self.child.wait();
    }
}

/// Sends a request. Returns the head of the answer in lower case, and its body.
fn ask(stream: &mut TcpStream, request: &str) -> (String, String) {
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("it answers");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("a head is ASCII").to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length = length.map_or(0, |length| length.parse().expect("a length is a number"));
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("the body comes");
    (head, String::from_utf8(body).expect("the body is text"))
}

fn put(body: &str) -> String {
    let length = body.len();
    format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// Checks the answers of a peer on one connection. Then it interrupts the peer, which must exit with success.
fn serves(program: &str, has_location: bool) {
    const ENTITY: &str = r#"{"id":-5,"description":"a \"b\"","value":60.750847}"#;
    let mut peer = Peer::start(program);
    let mut stream = peer.connect();
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    let (head, _) = ask(&mut stream, &get("/-5"));
    assert!(head.starts_with("http/1.1 404"), "{head}");
    let (head, body) = ask(&mut stream, &put(ENTITY));
    assert!(head.starts_with("http/1.1 201") && body.is_empty(), "{head}");
    assert_eq!(head.contains("\r\nlocation: /-5\r\n"), has_location, "{head}");
    let (head, body) = ask(&mut stream, &put(ENTITY));
    assert!(head.starts_with("http/1.1 200") && body.is_empty(), "{head}");
    let (head, body) = ask(&mut stream, &get("/-5"));
    assert!(head.starts_with("http/1.1 200") && head.contains("\r\ncontent-type: application/json\r\n"), "{head}");
    assert_eq!(body, ENTITY);
    let (head, _) = ask(&mut stream, &put("{"));
    assert!(head.starts_with("http/1.1 400"), "{head}");
    kill_process(Pid::from_child(&peer.child), Signal::INT).expect("it was not waited for, so its pid is its own");
    assert!(peer.child.wait().expect("it ends").success());
}

macro_rules! peers {
    ($($name:ident: $binary:literal, $has_location:literal;)*) => {
        $(
            #[test]
            fn $name() {
                serves(env!(concat!("CARGO_BIN_EXE_", $binary)), $has_location);
            }
        )*
    };
}

peers! {
    hyper: "hyper", true;
    axum: "axum", true;
    actix_web: "actix-web", true;
    ntex: "ntex", true;
    warp: "warp", true;
    may_minihttp: "may_minihttp", false;
}

/// A killed comparison leaves no peer running.
#[test]
fn a_peer_ends_with_its_standard_input() {
    let mut peer = Peer::start(env!("CARGO_BIN_EXE_hyper"));
    drop(peer.child.stdin.take());
    assert!(peer.child.wait().expect("it ends").success());
}

#[test]
fn what_is_not_known_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_hyper")).arg("--pool").output().expect("it starts");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && message.contains("--pool") && message.contains("usage"), "{message}");
}
