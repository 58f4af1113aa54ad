//! `polyserve load`, on servers that `polyserve serve` runs.

use std::io::Write as _;
use std::net::TcpListener;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Serving, misused, polyserve, printed, run, text};

fn serving() -> Serving {
    Serving::start(polyserve(&["serve", "--listen", "127.0.0.1:0"]))
}

fn measured(args: &[&str]) -> Value {
    serde_json::from_str(&printed(args)).unwrap()
}

/// Every mode of the entity workload, and the counts of both sides.
#[test]
fn entities_in_every_mode() {
    let server = serving();
    let (url, pid) = (format!("http://{}/", server.addr), server.child.id().to_string());
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let core = (0..rustix::thread::CpuSet::MAX_CPU).find(|core| allowed.is_set(*core)).unwrap().to_string();
    let modes: [&[&str]; 6] = [
        &[],
        &["--pipeline", "16", "--dist", "zipf:0.99"],
        &["--no-keepalive", "--threads", "2"],
        &["--rate", "5000"],
        &["--warm-up", "50ms", "--cores", &core],
        &["--seed", "0", "--connections", "1"],
    ];
    for mode in modes {
        let args = ["load", &url, "-n", "500", "--keys", "20", "--mix", "get=95,put=5", "--json", "--server-pid", &pid];
        let report = measured(&[&args, mode].concat());
        assert_eq!((&report["answered"], &report["first_failure"]), (&500.into(), &Value::Null), "{mode:?}: {report}");
        assert_eq!(report["latency"]["count"], 500);
        assert!(report["requests_per_server_cpu_s"].as_f64().unwrap() > 0.0, "{report}");
        assert_eq!(report["latency_kind"] == "intended start", mode.contains(&"--rate"));
        assert_eq!(report["lateness"].is_null(), !mode.contains(&"--rate"));
    }
}

#[test]
fn one_path_is_put_and_got() {
    let server = serving();
    let url = format!("http://{}/7", server.addr);
    let file = std::env::temp_dir().join(format!("polyserve-load-{}.json", std::process::id()));
    std::fs::File::create(&file).unwrap().write_all(br#"{"id":7,"description":"seven","value":7}"#).unwrap();
    let put = measured(&["load", &url, "-n", "50", "--put", file.to_str().unwrap(), "--json"]);
    std::fs::remove_file(&file).unwrap();
    assert_eq!((&put["answered"], put["bytes_sent"].as_u64() > Some(50 * 40)), (&50.into(), true), "{put}");
    let people = printed(&["load", &url, "--duration", "100ms", "--connections", "3", "--server-pid", "1"]);
    for part in ["requests/s", "latency (closed loop)", "p99.9", "client:", "server:", "3 connections (kept)"] {
        assert!(people.contains(part), "{part}: {people}");
    }
}

#[test]
fn a_failure_is_shown_and_is_the_end_code() {
    let server = serving();
    let absent = run(&["load", &format!("http://{}/8", server.addr), "-n", "5"]);
    assert_eq!(absent.status.code(), Some(1));
    assert!(text(&absent.stderr).contains("GET /8: status 404"), "{}", text(&absent.stderr));
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = run(&["load", &format!("http://{unused}/"), "-n", "5"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("cannot connect"), "{}", text(&refused.stderr));
}

/// The first SIGINT ends the load: what was measured is shown.
#[test]
fn a_signal_ends_it_early() {
    let server = serving();
    let url = format!("http://{}/", server.addr);
    let mut command = polyserve(&["load", &url, "--keys", "5", "--duration", "1h", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Its signals are taken over before it prepares anything, which takes one connection; the load has 64.
    while std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap().count() < 64 {
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    assert_eq!(report["first_failure"], Value::Null, "{report}");
    assert!(report["elapsed"].as_f64().unwrap() < 3600.0, "{report}");
}

/// A server that accepts and says nothing: neither a signal nor the client's patience was heard of before the load.
#[test]
fn what_comes_before_the_load_ends_too() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    for args in [&["load", &url][..], &["load", &url, "--keys", "5"]] {
        let child = polyserve(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while !is_catching(child.id()) {
            std::thread::yield_now();
        }
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("stopped before the load began"), "{}", text(&output.stderr));
        let output = run(&[args, &["--timeout", "200ms"]].concat());
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("no answer within 0.2 s"), "{}", text(&output.stderr));
    }
}

/// Whether a process has a handler for SIGINT.
fn is_catching(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (Signal::INT.as_raw() - 1)) != 0
}

#[test]
fn what_cannot_be_done_is_a_misuse() {
    for (args, why) in [
        (&["https://localhost/"][..], "https is not spoken here"),
        (&["nonsense"], "no URL"),
        (&["http://no-such-host.invalid/"], "cannot be reached"),
        (&["http://127.0.0.1:1/x", "--keys", "5"], "has no use"),
        (&["http://127.0.0.1:1/", "--dist", "uniform"], "--dist"),
        (&["http://127.0.0.1:1/", "--mix", "get=0"], "get=95,put=5"),
        (&["http://127.0.0.1:1/", "--rate", "0"], "rate 0"),
        (&["http://127.0.0.1:1/", "--connections", "0"], "connections 0"),
        (&["http://127.0.0.1:1/", "--connections", "900000"], "--connections may be"),
        (&["http://127.0.0.1:1/", "--pipeline", "9999"], "pipeline 9999"),
        (&["http://127.0.0.1:1/", "--duration", "0s"], "run length"),
        (&["http://127.0.0.1:1/", "--cores", "1-"], "--cores"),
        (&["http://127.0.0.1:1/", "--put", "/no/such/file"], "/no/such/file"),
    ] {
        let said = misused(&[&["load"], args].concat());
        assert!(said.contains(why), "{args:?}: {said}");
    }
}
