//! `polyserve load`, on servers that `polyserve serve` runs.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::Signal;
use serde_json::Value;

use super::{Dir, Serving, descriptors, ended, has, interrupted, json, parsed, polyserve, printed, signalled, text};

fn serving() -> Serving {
    Serving::start(polyserve("serve --listen 127.0.0.1:0"))
}

/// Every mode of the entity workload, and the counts of both sides.
#[test]
fn entities_in_every_mode() {
    let server = serving();
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
    let (server, dir) = (serving(), Dir::new("load"));
    dir.write("seven.json", r#"{"id":7,"description":"seven","value":7}"#);
    let put = json(&format!("load http://{}/7 -n 50 --put {dir}/seven.json", server.addr));
    assert_eq!((&put["answered"], put["bytes_sent"].as_u64() > Some(50 * 40)), (&50.into(), true), "{put}");
    let people = printed(&format!("load http://{}/7 --duration 100ms --connections 3 --server-pid 1", server.addr));
    has(&people, &["requests/s", "latency (closed loop)", "p99.9", "client:", "server:", "3 connections (kept)"]);
}

#[test]
fn a_failure_is_shown_and_is_the_end_code() {
    let server = serving();
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (addr, why) in [(server.addr, "GET /8: status 404"), (unused, "cannot connect")] {
        has(&text(&ended(1, &format!("load http://{addr}/8 -n 5")).stderr), &[why]);
    }
}

/// The first SIGINT ends the load: what was measured is shown.
#[test]
fn a_signal_ends_it_early() {
    let server = serving();
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

/// A server that runs until the test process ends. It answers request number `n` of all connections with `answer(n)`, which is
/// everything after `HTTP/1.1 `. Returns its address, and the number of requests that it has received.
fn scripted(answer: impl Fn(usize) -> String + Send + Sync + 'static) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
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
                    let number = count.fetch_add(1, Ordering::SeqCst);
                    if (&stream).write_all(format!("HTTP/1.1 {}", answer(number)).as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (addr, requests)
}

/// A failure counts more than the signal.
#[test]
fn a_signal_does_not_hide_a_failure() {
    let (addr, requests) = scripted(|number| {
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
        has(&text(&ended(1, &format!("{line} --timeout 200ms")).stderr), &["no answer within 0.2 s"]);
    }
}

/// Whether a process has a handler for SIGINT.
fn is_catching(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (Signal::INT.as_raw() - 1)) != 0
}
