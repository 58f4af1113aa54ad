//! `polyserve load`, on servers that `polyserve serve` runs.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::Value;

use super::{
    Dir, MAX_WAIT, Serving, ask, descriptors, ended, failed, has, interrupted, json, misused, parsed, polyserve,
    printed, serve, signalled, text,
};

/// Every mode of the entity workload, and the counts of both sides.
#[test]
fn entities_in_every_mode() {
    let server = serve("");
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let core = (0..rustix::thread::CpuSet::MAX_CPU).find(|core| allowed.is_set(*core)).unwrap();
    let modes = [
        "",
        "--pipeline 16 --dist zipf:0.99",
        "--no-keepalive --threads 2",
        "--rate 5000",
        &format!("--warm-up 50ms --cores {core}"),
        "--seed 0 --connections 1",
    ];
    for mode in modes {
        let line = format!("load http://{}/ --server-pid {} {mode}", server.addr, server.child.id());
        let report = json(&format!("{line} -n 500 --keys 20 --mix get=95,put=5"));
        assert_eq!((&report["answered"], &report["first_failure"]), (&500.into(), &Value::Null), "{mode}: {report}");
        assert_eq!(report["latency"]["count"], 500);
        assert!(report["requests_per_server_cpu_s"].as_f64().unwrap() > 0.0, "{report}");
        let is_open = mode.contains("--rate");
        assert_eq!((report["latency_kind"] == "intended start", !report["lateness"].is_null()), (is_open, is_open));
    }
}

#[test]
fn one_path_is_put_and_got() {
    let (server, dir) = (serve(""), Dir::new("load"));
    dir.write("seven.json", r#"{"id":7,"description":"seven","value":7}"#);
    let put = json(&format!("load http://{}/7 -n 50 --put {dir}/seven.json", server.addr));
    assert_eq!((&put["answered"], put["bytes_sent"].as_u64() > Some(50 * 40)), (&50.into(), true), "{put}");
    let mut patch = polyserve(&format!("load http://{}/7 -n 50 --json -X PATCH", server.addr));
    patch.args(["-H", "Content-Type: application/merge-patch+json", "-d", r#"{"value":8}"#]);
    let patched = parsed(&patch.output().unwrap());
    assert_eq!((&patched["answered"], &patched["first_failure"]), (&50.into(), &Value::Null), "{patched}");
    assert!(ask(server.addr, "GET /7 HTTP/1.0\r\n\r\n").ends_with(r#"{"id":7,"description":"seven","value":8.0}"#));
    let people = printed(&format!("load http://{}/7 --duration 2s --connections 3 --server-pid 1", server.addr));
    has(&people, &["requests/s", "latency (closed loop)", "p99.9", "client:", "server:", "3 connections (kept)"]);
}

#[test]
fn a_failure_is_shown_and_is_the_end_code() {
    let server = serve("");
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (addr, why) in [(server.addr, "GET /8: status 404"), (unused, "cannot connect")] {
        has(&failed(&format!("load http://{addr}/8 -n 5")), &[why]);
    }
}

/// The first SIGINT ends the load: what was measured is shown.
#[test]
fn a_signal_ends_it_early() {
    let server = serve("");
    // Its signals are taken over before it prepares anything, which takes one connection; the load has 64.
    let line = format!("load http://{}/ --keys 5 --duration 1h --json", server.addr);
    let report = parsed(&interrupted(&line, |pid| descriptors(pid) >= 64));
    assert_eq!(report["first_failure"], Value::Null, "{report}");
    assert!(report["elapsed"].as_f64().unwrap() < 3600.0, "{report}");
    // Any signal ends it, with its own exit code.
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let output = signalled(signal, &line, |pid| descriptors(pid) >= 64);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        assert_eq!(parsed(&output)["first_failure"], Value::Null);
    }
}

/// A server that runs until the test process ends. It answers request number `n` of all connections, with this head and body,
/// with `answer(n, head, body)`, which is everything after `HTTP/1.1 `. Returns its address, and the number of requests that it
/// has received.
fn scripted(
    at: &str,
    answer: impl Fn(usize, &str, &str) -> String + Send + Sync + 'static,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(at).unwrap();
    let (addr, requests) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let (count, answer) = (Arc::clone(&requests), Arc::new(answer));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (count, answer) = (Arc::clone(&count), Arc::clone(&answer));
            std::thread::spawn(move || {
                let mut input = BufReader::new(&stream);
                loop {
                    let mut head = String::new();
                    while !head.ends_with("\r\n\r\n") {
                        if input.read_line(&mut head).is_ok_and(|read| read > 0) { continue } else { return }
                    }
                    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
                    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
                    if input.read_exact(&mut body).is_err() {
                        return;
                    }
                    let number = count.fetch_add(1, Ordering::SeqCst);
                    let answer = answer(number, &head, &text(&body));
                    if (&stream).write_all(format!("HTTP/1.1 {answer}").as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (addr, requests)
}

const ANY_PORT: &str = "127.0.0.1:0";

fn ok(body: &str) -> String {
    format!("200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Runs `load` with `args`, which may have blanks, to its end.
fn load(args: &[&str]) -> std::process::Output {
    polyserve("load").args(args).output().unwrap()
}

/// Regression test: with a server on `[::1]` only, `localhost` was refused if the resolver has only 127.0.0.1 for it.
#[test]
fn every_address_of_a_name_is_tried() {
    if let Err(why) = TcpListener::bind("[::1]:0") {
        let name = "every_address_of_a_name_is_tried";
        let _ = writeln!(std::io::stderr(), "not run: {name}: there is no IPv6 loopback: {why}"); // past the capture
        return;
    }
    let (addr, _) = scripted("[::1]:0", |_, _, _| ok("a"));
    let report = json(&format!("load http://localhost:{}/ -n 5", addr.port()));
    assert_eq!(report["answered"], 5, "{report}");
    let server = Serving::start(polyserve("serve --listen [::1]:0"));
    let report = json(&format!("check --url http://localhost:{} --ops 200", server.addr.port()));
    assert_eq!(report["passed"], true, "{report}");
}

/// A failed connect names the addresses that were tried.
#[test]
fn a_server_that_is_away_is_named_by_its_addresses() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let tried = [format!("127.0.0.1:{port}: "), format!("[::1]:{port}: ")];
    for line in ["load", "check --ops 200 --url"] {
        has(&failed(&format!("{line} http://localhost:{port}/")), &["cannot be reached", &tried[0], &tried[1]]);
    }
    let error = failed(&format!("load http://127.0.0.1:{port}/"));
    has(&error, &[&format!("cannot connect to 127.0.0.1:{port}: ")]);
}

/// The body of answer number `n`.
type Page = fn(usize) -> String;

/// A page that is the same twice within a second.
const CLOCK: Page = |_| {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    format!("12:{:02}:{:02}", now / 60 % 60, now % 60)
};

/// Regression test: each answer of a page that changes was wrong.
#[test]
fn a_page_that_changes_is_judged_by_what_stays() {
    let counter: Page = |number| format!("{number:9}");
    let words: Page = |number| "a".repeat(number);
    for (name, page, judged) in
        [("counter", counter, "status and length"), ("words", words, "status"), ("clock", CLOCK, "status and length")]
    {
        let (addr, _) = scripted(ANY_PORT, move |number, _, _| ok(&page(number)));
        let report = json(&format!("load http://{addr}/{name} -n 20"));
        assert_eq!((&report["answered"], &report["first_failure"]), (&20.into(), &Value::Null), "{report}");
        assert_eq!(report["changing"], serde_json::json!([{"request": format!("GET /{name}"), "judged": judged}]));
        has(&printed(&format!("load http://{addr}/{name} -n 20")), &["the body of the answer changes", "judged"]);
    }
    let (addr, _) = scripted(ANY_PORT, |_, _, _| ok("a"));
    assert_eq!(json(&format!("load http://{addr}/ -n 20"))["changing"], serde_json::json!([]));
}

/// What is judged is still verified.
#[test]
fn a_page_that_changes_may_still_be_wrong() {
    for (judged, kind, answer) in [
        ("status and length", "wrong", ok("1234")),
        ("status and length", "status 500", ok("12345").replace("200", "500")),
        ("status", "status 404", ok("1").replace("200", "404")),
    ] {
        let is_length = judged != "status";
        let (addr, _) = scripted(ANY_PORT, move |number, _, _| match number {
            0..5 if is_length => ok(&format!("{number:5}")),
            0..5 => ok(&"a".repeat(number)),
            _ => answer.clone(),
        });
        has(&text(&ended(1, &format!("load http://{addr}/ -n 9 --connections 1")).stdout), &["FAILED", kind]);
    }
}

/// The method, the fields and the body of curl's flags.
#[test]
fn requests_as_those_of_curl() {
    let dir = Dir::new("load-curl");
    dir.write("body", "from a file");
    let file = format!("@{dir}/body");
    let cases: [(&[&str], &str, &str); 10] = [
        (&[], "GET /a?b=c HTTP/1.1\r\nHost: {addr}\r\n", ""),
        (&["-X", "DELETE"], "DELETE /a?b=c HTTP/1.1\r\n", ""),
        (&["-H", "X-A: 1 2", "-H", "x-b:3"], "\r\nX-A: 1 2\r\nx-b: 3\r\n", ""),
        (&["-H", "Host: other"], " HTTP/1.1\r\nHost: other\r\n", ""),
        (&["-d", "some text"], "POST /a?b=c HTTP/1.1\r\n", "some text"),
        (&["--data", "10s", "-X", "PUT", "-d", "1h"], "PUT /a?b=c HTTP/1.1\r\n", "10s"),
        (&["-d", &file], "\r\nContent-Length: 11\r\n", "from a file"),
        (&["-d", "a=1", "-d", "b=2"], "POST /a?b=c HTTP/1.1\r\n", "a=1&b=2"),
        (&["-d", "@-", "-d", &file], "POST /a?b=c HTTP/1.1\r\n", "from standard input&from a file"),
        (&["-H", "X-A;"], "\r\nX-A: \r\n", ""),
    ];
    for (args, head, body) in cases {
        let (sender, seen) = std::sync::mpsc::channel();
        let (addr, _) = scripted(ANY_PORT, move |_, head, body| {
            sender.send((head.to_owned(), body.to_owned())).unwrap();
            ok("a")
        });
        let url = format!("http://{addr}/a?b=c");
        // Its duration is the default or an hour, so a signal or a number ends it.
        let number: &[&str] = if args.contains(&"1h") { &[] } else { &["-n", "1"] };
        let mut command = polyserve("load");
        command.args([&url]).args(args).args(number).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(b"from standard input"); // fails if it reads none and has ended
        for _ in 0..3 {
            let (seen_head, seen_body) = seen.recv_timeout(MAX_WAIT).unwrap();
            assert!(seen_head.contains(&head.replace("{addr}", &addr.to_string())), "{args:?}: {seen_head}");
            assert_eq!(seen_head.matches("Host:").count(), 1);
            assert_eq!(seen_body, body, "{args:?}");
        }
        if number.is_empty() {
            child.kill().unwrap();
        }
        child.wait().unwrap();
    }
}

#[test]
fn several_urls_and_a_file_of_requests() {
    let dir = Dir::new("load-file");
    let (addr, requests) = scripted(ANY_PORT, |_, head, body| {
        let line = head.lines().next().unwrap();
        assert!(!line.starts_with("PUT") || head.contains("X-A: a\r\nX-A: b\r\n"), "{head}");
        ok(&format!("{line} {body}"))
    });
    let report = json(&format!("load http://{addr}/1 http://{addr}/2 -n 10"));
    assert_eq!((&report["answered"], requests.swap(0, Ordering::SeqCst)), (&10.into(), 10 + 4), "{report}");

    dir.write("body", "from a file");
    let lines = [
        "# a comment".to_owned(),
        "  # another".to_owned(),
        String::new(),
        r#"{"url": "/1"}"#.to_owned(),
        format!(
            r#"{{"url": "http://{addr}/2", "method": "PUT", "headers": {{"X-A": ["a", "b"]}}, "body": "c", "weight": 8}}"#
        ),
        r#"{"url": "/3", "body_file": "body"}"#.to_owned(),
    ];
    dir.write("requests.jsonl", format!("\u{feff}{}", lines.join("\n"))); // with a byte order mark, as some editors add
    for url in [String::new(), format!("http://{addr}")] {
        let report = json(&format!("load {url} --file {dir}/requests.jsonl -n 100"));
        assert_eq!((&report["answered"], &report["first_failure"]), (&100.into(), &Value::Null), "{report}");
    }
}

#[test]
fn requests_that_cannot_be_sent_are_named() {
    let dir = Dir::new("load-wrong");
    let url = "http://127.0.0.1:9/";
    for (line, why) in [
        ("{", "EOF"),
        (r#"{"url": "/", "wait": 1}"#, "unknown field `wait`"),
        (r#"{"method": "GET"}"#, "missing field `url`"),
        (r#"{"url": "/ x"}"#, "is no path"),
        (r#"{"url": "/\r\nX: y"}"#, "is no path"),
        (r#"{"url": "/", "method": "G T"}"#, "is no method"),
        (r#"{"url": "/", "headers": {"X": "a\r\nY: b"}}"#, "is no header field"),
        (r#"{"url": "/", "headers": {"content-length": "1"}}"#, "the load's own"),
        (r#"{"url": "/", "headers": {"X": "a", "x": "b"}}"#, "the field x stands twice"),
        (r#"{"url": "/", "headers": {"X": 1}}"#, "neither a text nor a list"),
        (r#"{"url": "/é"}"#, "'é' is not ASCII"),
        (r#"{"url": "http://127.0.0.1:9/é"}"#, "'é' is not ASCII"),
        (r#"{"url": "/", "weight": 0}"#, "weight 0"),
        (r#"{"url": "/", "body": "a", "body_file": "b"}"#, "not both"),
        (r#"{"url": "/", "body_file": "absent"}"#, "absent"),
        (r#"{"url": "http://127.0.0.1:10/"}"#, "is not on the server http://127.0.0.1:9"),
        (r#"{"url": "https://127.0.0.1:9/"}"#, "https"),
    ] {
        dir.write("wrong.jsonl", format!("# one\n{{\"url\": \"/\"}}\n{line}\n"));
        has(&misused(&format!("load {url} --file {dir}/wrong.jsonl")), &[&format!("{dir}/wrong.jsonl:3: "), why]);
    }
    dir.write("empty.jsonl", "# nothing\n");
    has(&misused(&format!("load {url} --file {dir}/empty.jsonl")), &["has no request"]);
    dir.write("path.jsonl", "{\"url\": \"/\"}");
    has(&misused(&format!("load --file {dir}/path.jsonl")), &["add the URL of the server"]);
    has(&misused(&format!("load {url} http://127.0.0.1:10/")), &["is not on the server http://127.0.0.1:9"]);
    for (args, why) in [
        (&["-H", "X: a\r\nY: b"][..], "for '--header <FIELD>': \"X\": \"a\\r\\nY: b\" is no header field"),
        (&["-H", ": x"], "for '--header <FIELD>': \"\": \"x\" is no header field"),
        (&["-H", "X:"], "'X;' sends the field without a value"),
        (&["-H", "no colon"], "NAME: VALUE"),
        (&["-H", "Host: a b"], "for '--header <FIELD>': a b is not one host"),
        (&["-H", "Host: a", "-H", "host: b"], "is not one host"),
        (&["-X", "GET X"], "for '--method <METHOD>': \"GET X\" is no method"),
        (&["-X", "CONNECT"], "is no method"),
        (&["--data", "a", "-d", "b"], "use --data for all"),
        (&["-d", "10s", "-d", "5s"], "another duration"),
        (&["-d", "10s", "-n", "5"], "not both"),
        (&["-d", "a", "--keys", "5"], "cannot be used with"),
        (&["--data", "@absent"], "--data @absent"),
    ] {
        let output = load(&[&[url], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        has(&text(&output.stderr), &[why]);
    }
}

/// The goal decides the exit code.
#[test]
fn a_goal_for_the_p99() {
    let server = serve("");
    for rate in ["", "--rate 200"] {
        let line = format!("load http://{}/ --keys 5 -n 50 {rate} --p99", server.addr);
        let met = json(&format!("{line} 1h"));
        assert_eq!(
            (&met["p99_goal"]["met"], &met["p99_goal"]["goal_ns"]),
            (&true.into(), &3_600_000_000_000_u64.into())
        );
        assert_eq!(met["p99_goal"]["p99_ns"], met["latency"]["p99_ns"]);
        let missed = ended(1, &format!("{line} 1ns --json"));
        assert_eq!(parsed(&missed)["p99_goal"]["met"], false);
        let since = if rate.is_empty() { "closed loop" } else { "was due" };
        has(&text(&ended(1, &format!("{line} 1ns")).stdout), &["goal: p99 at most 1 ns: NOT MET", since]);
    }
}

/// Regression test: a signal ended a load, and the exit code was that of the missed goal.
#[test]
fn a_stopped_load_has_no_verdict() {
    let (addr, requests) = scripted(ANY_PORT, |_, _, _| ok("a"));
    for (flag, goal) in [("", "no verdict, because the load was stopped"), ("--json", "\"met\":null")] {
        requests.store(0, Ordering::SeqCst);
        let line = format!("load http://{addr}/ --duration 1h --connections 1 --p99 1ns {flag}");
        let output = signalled(Signal::INT, &line, |_| requests.load(Ordering::SeqCst) > 10);
        assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
        has(&text(&output.stdout), &[goal]);
    }
}

/// A failure counts more than the signal.
#[test]
fn a_signal_does_not_hide_a_failure() {
    let (addr, requests) = scripted(ANY_PORT, |number, _, _| {
        let status = if number < 2 { "200 OK" } else { "500 Internal Server Error" };
        format!("{status}\r\nContent-Length: 1\r\n\r\na")
    });
    let line = format!("load http://{addr}/ --duration 1h --connections 1");
    // One connection asks after it has read the answer before.
    let output = signalled(Signal::INT, &line, |_| requests.load(Ordering::SeqCst) > 10);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    has(&text(&output.stdout), &["status 500"]);
}

/// Regression test: if a server accepted and did not answer, signals and the timeout had no effect before the load.
#[test]
fn what_comes_before_the_load_ends_too() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    for line in [format!("load {url}"), format!("load {url} --keys 5")] {
        let output = interrupted(&line, is_catching);
        has(&text(&output.stderr), &["stopped before the load began"]);
        has(&failed(&format!("{line} --timeout 200ms")), &["no answer within 0.2 s"]);
    }
}

/// Whether a process has a handler for SIGINT.
fn is_catching(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (Signal::INT.as_raw() - 1)) != 0
}
