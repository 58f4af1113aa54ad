//! The servers in Go, which the command builds, and nginx. Without Go or nginx these tests print that they are not run.

use std::io::Write as _;
use std::process::{Command, Stdio};

use polyserve_lab::launch::{go, nginx};
use serde_json::Value;

use super::{misused, polyserve, printed, text};

/// Returns true if Go and the modules are available. Otherwise it prints that the test is not run.
fn is_here(name: &str) -> bool {
    let here = go::is_installed().and_then(|()| {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/peers/go");
        let got = Command::new("go").args(["mod", "download"]).current_dir(dir).stderr(Stdio::null()).status();
        match got.is_ok_and(|status| status.success()) {
            true => Ok(()),
            false => Err(String::from("the modules that its module depends on are not available")),
        }
    });
    if let Err(why) = &here {
        let _ = writeln!(std::io::stderr(), "not run: {name}: {why}"); // past the harness's capture
    }
    here.is_ok()
}

const TINY: [&str; 8] = [
    "--servers=leader_followers",
    "--repos=two_level",
    "--rounds=1",
    "--slice=30ms",
    "--warm-up=20ms",
    "--connections=4",
    "--no-latency",
    "--json",
];

#[test]
fn they_are_compared_and_what_they_keep_of_the_contract_is_told() {
    if !is_here("they_are_compared_and_what_they_keep_of_the_contract_is_told") {
        return;
    }
    let names = go::SERVERS.map(|server| server.name);
    let peers = format!("--peers={}", names.join(","));
    let args = [&["compare", "--mix=get=3,put=1", peers.as_str()], &TINY[..]].concat();
    let ranking: Value = serde_json::from_str(&printed(&args)).unwrap();
    for name in names {
        let row = ranking["rows"].as_array().unwrap().iter().find(|row| row["name"] == name);
        assert!(row.is_some(), "{name}: {ranking}");
        let contract = ranking["contracts"].as_array().unwrap().iter().find(|contract| contract["name"] == name);
        assert!(contract.is_some(), "{name}: {ranking}");
        let twin = name.starts_with("go/twin");
        assert!(!twin || contract.unwrap()["failed"].as_array().unwrap().is_empty(), "{name}: {ranking}");
    }
}

#[test]
fn without_go_they_are_named_as_not_run() {
    let args = [&["compare", "--peers=go/nethttp"], &TINY[..]].concat();
    let output = polyserve(&args).env("PATH", "").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let ranking: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    let failed = &ranking["failed"];
    assert_eq!((&failed[0]["name"], &failed[0]["why"]), (&"go/nethttp".into(), &"go is not installed".into()));
    assert!(ranking["rows"].as_array().unwrap().iter().any(|row| row["name"] == "leader_followers/two_level"));
}

#[test]
fn an_unknown_peer_is_rejected() {
    assert!(misused(&["compare", "--peers=go/gin"]).contains("go/fasthttp"));
    assert!(misused(&["compare", "--baseline=go/gin"]).contains("go/fasthttp"));
}

/// Every answer is verified, and the final state. The report names what a process cannot be asked.
#[test]
fn they_bear_the_stress_scenario() {
    if !is_here("they_bear_the_stress_scenario") {
        return;
    }
    for server in go::SERVERS.map(|server| server.name) {
        let args = ["stress", "--server", server, "--scale=0.01", "--connections=5", "--workers=4", "--json"];
        let report: Value = serde_json::from_str(&printed(&args)).unwrap();
        assert_eq!((&report["passed"], &report["server"]), (&true.into(), &server.into()), "{report}");
        for round in report["rounds"].as_array().unwrap() {
            assert_eq!(round["drain"]["answered"], 700, "100 PUTs before, 400 requests, a look at 200 ids: {round}");
            assert_eq!(
                (&round["store_count"], &round["final_state"]["present"]),
                (&Value::Null, &200.into()),
                "{round}"
            );
        }
    }
    let report = printed(&["stress", "--server=go/twin-rwmutex", "--scale=0.002", "--mode=close"]);
    for part in [
        "go/twin-rwmutex over its own store",
        "not asked: the number of entities in the store",
        "answered 140",
        "passed",
    ] {
        assert!(report.contains(part), "{report}");
    }
}

#[test]
fn a_stress_that_makes_no_sense_is_refused() {
    let refused = |more: &[&str]| misused(&[&["stress", "--server=go/nethttp"], more].concat());
    assert!(refused(&["--repo=dashmap"]).contains("a store of its own"));
    assert!(refused(&["--queue=5"]).contains("--workers, and no other"));
    assert!(misused(&["stress", "--server=nginx"]).contains("a fixed answer"));
    assert!(misused(&["stress", "--server=go/gin"]).contains("go/gin"));
    let output = polyserve(&["stress", "--server=go/nethttp"]).env("PATH", "").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("go/nethttp: go is not installed"), "{}", text(&output.stderr));
}

/// nginx answers reads if it is installed. For writes the ranking says why it takes no part.
#[test]
fn nginx_takes_part_in_reads() {
    let args = [&["compare", "--peers=nginx"], &TINY[..]].concat();
    let output = polyserve(&args).output().unwrap();
    let ranking: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    match nginx::program() {
        Ok(_) => {
            assert!(output.status.success(), "{ranking}");
            assert!(ranking["rows"].as_array().unwrap().iter().any(|row| row["name"] == "nginx"), "{ranking}");
        }
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "nginx_takes_part_in_reads: {why}"); // past the harness's capture
            assert_eq!((output.status.code(), &ranking["failed"][0]["why"]), (Some(1), &why.into()), "{ranking}");
        }
    }
    let output = polyserve(&[&args[..], &["--mix=put=1"]].concat()).output().unwrap();
    let ranking: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    let why = ranking["failed"][0]["why"].as_str().unwrap();
    assert!(output.status.code() == Some(1) && why.contains("keeps nothing that is put"), "{ranking}");
}
