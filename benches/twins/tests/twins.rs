//! Every twin, started like in an experiment, with requests over a plain socket.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A timeout that only matters if a twin hangs.
const TIMEOUT: Duration = Duration::from_secs(30);

struct Twin {
    child: Child,
    addr: SocketAddr,
    /// Standard output after the first line.
    out: BufReader<ChildStdout>,
}

impl Twin {
    fn start(program: &str, args: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(["--listen", "127.0.0.1:0", "--until-stdin-ends"]).args(args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the twin starts");
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("it was piped"));
        out.read_line(&mut line).expect("it prints text");
        let addr = line.trim_end().strip_prefix("listening on http://").and_then(|addr| addr.parse().ok());
        Self { addr: addr.unwrap_or_else(|| panic!("it printed {line:?}")), child, out }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.addr).expect("it listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout can be set");
        stream
    }

    /// Sends a request on a connection of its own. Returns all that comes until the server closes.
    fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers and closes");
        answer
    }

    /// Interrupts the twin, which must exit with success. Returns its last lines.
    fn interrupt(mut self) -> String {
        kill_process(Pid::from_child(&self.child), Signal::INT).expect("it was not waited for, so its pid is its own");
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).expect("it prints text");
        assert!(self.child.wait().expect("it ends").success());
        rest
    }
}

impl Drop for Twin {
    fn drop(&mut self) {
        let _ = self.child.kill(); // does nothing if the process has ended
        let _ = self.child.wait();
    }
}

fn put(body: &str) -> String {
    format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

const ENTITY: &str = r#"{"id":-5,"description":"a \"b\"","value":60.750847}"#;

#[test]
fn the_entity_server_answers_and_counts() {
    let twin = Twin::start(env!("CARGO_BIN_EXE_entity"), &["--workers=2"]);
    for (request, head) in [
        ("GET /-5 HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "),
        (&put(ENTITY), "HTTP/1.1 201 Created\r\nContent-Length: 0\r\nLocation: /-5\r\n"),
        (&put(ENTITY), "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"),
        ("GET /-5 HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n"),
        (&put("{"), "HTTP/1.1 400 "),
        ("PUT / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "),
        ("GET /x HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "),
        ("GET /1 HTTP/1.1\r\nContent-Length: x\r\n\r\n", "HTTP/1.1 400 "),
        ("POST / HTTP/1.1\r\n\r\n", "HTTP/1.1 501 "),
    ] {
        let answer = twin.ask(request);
        assert!(
            answer.starts_with(head) && answer.contains("\r\nConnection: close\r\n\r\n"),
            "{request:?}: {answer:?}"
        );
    }
    let answer = twin.ask("GET /-5 HTTP/1.1\r\n\r\n");
    assert!(answer.contains("\r\nContent-Type: application/json\r\n") && answer.ends_with(ENTITY), "{answer:?}");
    assert_eq!(twin.interrupt(), "{\"answered\":10,\"cut\":0,\"stuck\":0}\n");
}

/// The channel is unbounded: connections behind a silent one wait in it, and are served after the signal too.
#[test]
fn the_entity_server_runs_what_was_queued() {
    let twin = Twin::start(env!("CARGO_BIN_EXE_entity"), &["--workers=1"]);
    let open = || fs::read_dir(format!("/proc/{}/fd", twin.child.id())).expect("it runs").count();
    let before = open();
    assert!(twin.ask(&put(ENTITY)).starts_with("HTTP/1.1 201"));
    let mut silent = twin.connect();
    let mut queued: Vec<_> = (0..50).map(|_| twin.connect()).collect();
    for stream in &mut queued {
        stream.write_all(b"GET /-5 HTTP/1.1\r\n\r\n").expect("it was accepted by the kernel");
    }
    // The accept loop ends at the first connection after the signal, so all must be in the channel before it.
    let deadline = Instant::now() + TIMEOUT;
    while open() < before + 51 {
        assert!(Instant::now() < deadline, "it has not accepted the connections");
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&twin.child), Signal::INT).expect("it was not waited for, so its pid is its own");
    silent.write_all(b"GET /-5 HTTP/1.1\r\n\r\n").expect("it is still served");
    for mut stream in queued {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers and closes");
        assert!(answer.ends_with(ENTITY), "{answer:?}");
    }
}

/// A PUT that races with another one leaves one of the two values, whole.
#[test]
fn racing_puts_leave_a_whole_value() {
    let twin = Twin::start(env!("CARGO_BIN_EXE_entity"), &["--workers=4"]);
    let entity = |id: u64, client: u64| format!(r#"{{"id":{id},"description":"{client}","value":{client}.5}}"#);
    std::thread::scope(|scope| {
        for client in 0..4 {
            let twin = &twin;
            scope.spawn(move || {
                for id in 0..20 {
                    assert!(twin.ask(&put(&entity(id, client))).starts_with("HTTP/1.1 20"));
                }
            });
        }
    });
    for id in 0..20 {
        let answer = twin.ask(&format!("GET /{id} HTTP/1.1\r\n\r\n"));
        assert!((0..4).any(|client| answer.ends_with(&entity(id, client))), "{answer}");
    }
}

#[test]
fn the_entity_server_prints_a_line_for_each_request() {
    let file = std::env::temp_dir().join(format!("polyserve-twin-lines-{}", std::process::id()));
    let twin = Twin::start(env!("CARGO_BIN_EXE_entity"), &["--workers=1", &format!("--print={}", file.display())]);
    for _ in 0..3 {
        twin.ask("GET /1 HTTP/1.1\r\n\r\n");
    }
    assert_eq!(twin.interrupt(), "{\"answered\":3,\"cut\":0,\"stuck\":0}\n");
    let lines = fs::read_to_string(&file).expect("it was written");
    assert_eq!(lines, "worker 0 runs a job\n".repeat(3) + "worker 0 ends\n");
    fs::remove_file(&file).expect("it is there");
}

#[test]
fn the_tasks_run_by_their_protocol() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tasks"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let requests = [
        r#"{"starts":[[0.125,0.25,0.5],[0.5,0.5,0.5],[0.1,0.2,0.3]],"steps":3,"order":"as_published","batch":2}"#,
        r#"{"starts":[],"steps":3,"order":"as_described","batch":0}"#,
    ];
    child.stdin.take().expect("it was piped").write_all(requests.join("\n").as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("it is text");
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 5, "{text}");
    assert_eq!(lines[0]["bits"], (-0.5_f64).to_bits());
    for (task, ran) in (1..).zip(&lines[..3]) {
        assert_eq!(ran["task"], task);
        let at = |name: &str| ran[name].as_u64().expect("it is a time");
        assert!(at("submitted_ns") <= at("started_ns") && at("started_ns") < at("finished_ns"), "{ran}");
    }
    assert!(lines[3]["process_cpu_ns"].is_i64() && lines[4]["error"].is_string(), "{text}");
}

#[test]
fn the_welcome_page_has_two_headers() {
    let twin = Twin::start(env!("CARGO_BIN_EXE_welcome"), &[]);
    for path in ["/", "/any"] {
        let answer = twin.ask(&format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        let head = answer.to_ascii_lowercase();
        assert!(head.contains("\r\ncontent-type: application/json\r\n") && head.contains("\r\nserver: "), "{answer}");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nWelcome!"), "{answer}");
    }
    twin.interrupt();
}

/// Checks that a page server reads its file for each request, delays the second answer, and counts its answers.
fn serves_the_page(program: &str) {
    const WAIT: Duration = Duration::from_millis(20);
    const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let name = program.rsplit('/').next().unwrap_or(program);
    let file = std::env::temp_dir().join(format!("polyserve-{name}-{}.html", std::process::id()));
    let flag = format!("--page-file={}", file.display());
    let args = [flag.as_str(), "--page-every=2", "--page-wait=20ms", "--workers=2"];
    let missing = Command::new(program).args(args).output().expect("it starts");
    let message = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(!missing.status.success() && message.contains("--page-file"), "{message}");

    fs::write(&file, "first").expect("it can be written");
    let twin = Twin::start(program, &args);
    for (content, waits) in [("first", false), ("second", true)] {
        fs::write(&file, content).expect("it can be written");
        let started = Instant::now();
        let answer = twin.ask(GET);
        let head = answer.to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 200") && head.contains("\r\nconnection: close\r\n"), "{answer}");
        assert!(answer.ends_with(&format!("\r\n\r\n{content}")), "{answer}");
        assert!(!waits || started.elapsed() >= WAIT, "the second request has not waited");
    }
    assert_eq!(twin.interrupt(), "{\"answered\":2,\"cut\":0,\"stuck\":0}\n");
    fs::remove_file(&file).expect("it is there");
}

#[test]
fn the_page_servers() {
    serves_the_page(env!("CARGO_BIN_EXE_page-thread-pool"));
    serves_the_page(env!("CARGO_BIN_EXE_page-async-std"));
    serves_the_page(env!("CARGO_BIN_EXE_page-futures"));
    serves_the_page(env!("CARGO_BIN_EXE_page-tokio"));
}

/// A killed experiment leaves no twin running.
#[test]
fn a_twin_ends_with_its_standard_input() {
    for program in [env!("CARGO_BIN_EXE_entity"), env!("CARGO_BIN_EXE_page-tokio"), env!("CARGO_BIN_EXE_welcome")] {
        let file = std::env::temp_dir().join(format!("polyserve-twin-end-{}", std::process::id()));
        fs::write(&file, "page").expect("it can be written");
        let flag = format!("--page-file={}", file.display());
        let args = if program.ends_with("page-tokio") { vec![flag.as_str()] } else { vec![] };
        let mut twin = Twin::start(program, &args);
        drop(twin.child.stdin.take());
        assert!(twin.child.wait().expect("it ends").success());
        fs::remove_file(&file).expect("it is there");
    }
}
