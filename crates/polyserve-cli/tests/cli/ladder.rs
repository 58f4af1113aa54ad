//! `polyserve ladder`: builds and records. The rungs are built from a package of the test. Its programs execute
//! `polyserve serve`, so that a build takes a second.

use std::fs;

use polyserve_bench::ladder::Ladder;
use serde_json::Value;

use super::experiments::resumes;
use super::{Dir, array, ended, has, parsed, texts};

const MANIFEST: &str = r#"
[package]
name = "fake"
version = "0.1.0"
edition = "2024"
[workspace]
[features]
serve = []
warp = []
mimalloc = []
"#;

/// The program of a rung. With `mimalloc` its answer is another one.
const PROGRAM: &str = r#"
use std::os::unix::process::CommandExt as _;
fn main() {
    let mut command = std::process::Command::new("@POLYSERVE@");
    command.arg("serve").args(["@FIXED@"]);
    let is_wanted = |arg: &String| !arg.starts_with("--without=") && !arg.starts_with("--service=");
    command.args(std::env::args().skip(1).filter(is_wanted));
    command.arg(if cfg!(feature = "mimalloc") { "--service=page" } else { "--service=welcome" });
    panic!("{}", command.exec());
}
"#;

const TINY: &str = "--connections=2 --pipeline=2 --slice=20ms --warm-up=20ms";
const RECORD: &str = "out/ladder.jsonl";

/// A directory with sources. The record is in `out`.
fn sources(name: &str) -> Dir {
    let dir = Dir::new(&format!("ladder-{name}"));
    let program =
        |fixed: &str| PROGRAM.replace("@POLYSERVE@", env!("CARGO_BIN_EXE_polyserve")).replace("@FIXED@", fixed);
    let lock = "version = 4\n\n[[package]]\nname = \"fake\"\nversion = \"0.1.0\"\n";
    dir.write("benches/ladder/Cargo.toml", MANIFEST);
    dir.write("benches/ladder/Cargo.lock", lock);
    dir.write("benches/ladder/src/bin/serve.rs", program("--json"));
    dir.write("benches/ladder/src/bin/warp.rs", program("--server-header=fakewarp"));
    dir.write("Cargo.toml", "");
    dir.write("crates/README.md", "");
    for name in ["without-pipeline-flush", "without-date-cache"] {
        let patch = format!("--- /dev/null\n+++ b/crates/{name}\n@@ -0,0 +1 @@\n+patched\n");
        dir.write(&format!("benches/ladder/patches/{name}.patch"), patch);
    }
    dir
}

/// Runs a tiny ladder, which must end with `code`. Returns what it printed.
fn measure(sources: &Dir, code: i32, args: &str) -> Value {
    parsed(&ended(code, &format!("ladder --rounds=2 {TINY} --json --source={sources} --out={sources}/out {args}")))
}

#[test]
fn every_rung_is_built_measured_and_gone_on_with() {
    let sources = sources("whole");
    let args = "--servers=tokio_per_core --peers=warp --rungs=lto,pipeline-flush";
    let printed = measure(&sources, 0, args);
    let ladder =
        |subject: &str| ["", " (again)", "+lto", "+lto+pipeline-flush"].map(|added| format!("{subject}{added}"));
    let expected = [ladder("tokio_per_core"), ladder("warp")].concat();
    let rungs = array(&printed["rungs"]);
    assert_eq!(texts(rungs, "rung"), expected);
    for rung in rungs {
        assert!(rung["requests_per_s"].as_f64() > Some(0.0) && rung["answer_bytes"].as_u64() > Some(50), "{rung}");
        assert_eq!((rung["ratio"].is_number(), rung["rounds"].as_u64()), (rung["rung"] != rung["subject"], Some(2)));
    }
    assert_eq!(rungs[2]["verdict"], "too_few_rounds");
    let claims = array(&printed["claims"]);
    assert!(!claims.is_empty() && claims.iter().all(|claim| claim["verdict"] == "undecided"), "{claims:?}");
    // The published claims are about other conditions.
    assert_eq!(claims[0]["figure"], "warp+lto was not measured with connections 1000, pipeline 1");
    // These sources have no module in Go. The references were not given by name, so the run succeeds.
    assert_eq!(texts(array(&printed["not_run"]), "name"), ["go-fasthttp", "go-nethttp"]);
    has(printed["not_run"][0]["why"].as_str().unwrap(), &["holds no module"]);

    let csv = sources.read("out/ladder.csv");
    assert!(csv.starts_with("rung,requests_per_s,transfer_MB_s,") && csv.lines().count() == 9, "{csv}");
    for (variant, program) in [("base", "warp"), ("lto", "warp"), ("lto", "serve"), ("lto+pipeline-flush", "serve")] {
        let program = sources.path(&format!("target/ladder/{variant}/release/{program}"));
        assert!(program.is_file(), "{}", program.display());
    }
    assert!(sources.path("target/ladder/patched/without-date-cache/crates/without-date-cache").is_file());
    // warp has a flag for its flush, so it is not built again.
    assert!(!sources.path("target/ladder/lto+pipeline-flush/release/warp").exists());

    let recorded = |kind: &str| sources.recorded(RECORD, kind);
    assert_eq!(recorded("cell").len(), 16);
    let built = recorded("contestant");
    measure(&sources, 0, args);
    assert_eq!((recorded("cell").len(), recorded("contestant")), (16, built), "nothing is measured again");
    assert_eq!(texts(&recorded("failure"), "name"), ["go-fasthttp", "go-nethttp"], "each is recorded once");
}

#[test]
fn a_run_resumes() {
    let sources = sources("resume");
    let args = "--rounds=6 --servers=none --against=none --rungs=lto";
    resumes::<Ladder>(&format!("ladder --source={sources} {TINY} {args}"));
}

#[test]
fn a_rung_with_a_wrong_answer_has_no_figures() {
    let sources = sources("wrong");
    let printed = measure(&sources, 1, "--servers=none --against=none --rungs=mimalloc");
    assert_eq!(texts(array(&printed["rungs"]), "rung"), ["warp", "warp (again)"]);
    assert_eq!(texts(array(&printed["failed"]), "name"), ["warp+mimalloc"]);
    has(printed["failed"][0]["why"].as_str().unwrap(), &["not the welcome"]);
    let failures = sources.recorded(RECORD, "failure");
    assert_eq!((texts(&failures, "name"), &failures[0]["reason"]), (vec!["warp+mimalloc"], &"wrong".into()));
    assert_eq!((&printed["failed"][0]["wrong"], &printed["failed"][0]["round"]), (&true.into(), &0.into()));
    // A later run does not measure it again, and still fails.
    let again = measure(&sources, 1, "--servers=none --against=none --rungs=mimalloc");
    assert_eq!((&again["failed"], sources.recorded(RECORD, "failure")), (&printed["failed"], failures));
}

/// The run fails if a reference that was given by name is not available.
#[test]
fn a_reference_that_was_asked_for_by_name_must_be_there() {
    let printed = measure(&sources("named"), 1, "--servers=none --rungs=lto --against=go-fasthttp");
    assert_eq!(texts(array(&printed["rungs"]), "rung"), ["warp", "warp (again)", "warp+lto"]);
    assert_eq!(texts(array(&printed["not_run"]), "name"), ["go-fasthttp"]);
}

#[test]
fn a_rung_that_cannot_be_built_is_named_and_keeps_no_other_out() {
    let sources = sources("unbuilt");
    // The package has no such feature.
    let printed = measure(&sources, 1, "--servers=none --against=none --rungs=jemalloc");
    assert_eq!(texts(array(&printed["rungs"]), "rung"), ["warp", "warp (again)"]);
    assert_eq!(texts(array(&printed["not_run"]), "name"), ["warp+jemalloc"]);
    has(printed["not_run"][0]["why"].as_str().unwrap(), &["jemalloc"]);

    fs::remove_file(sources.path("benches/ladder/Cargo.toml")).unwrap();
    fs::remove_dir_all(sources.path("out")).unwrap();
    let printed = measure(&sources, 1, "--servers=none --against=none --rungs=lto");
    assert_eq!(printed["rungs"], Value::Array(Vec::new()));
    has(printed["not_run"][1]["why"].as_str().unwrap(), &["has no Cargo.toml"]);
}

#[test]
fn a_patch_that_does_not_apply_keeps_its_rung_out() {
    let sources = sources("misfit");
    let patch = "--- a/Cargo.toml\n+++ b/Cargo.toml\n@@ -1 +1 @@\n-old\n+new\n";
    sources.write("benches/ladder/patches/without-date-cache.patch", patch);
    let printed = measure(&sources, 1, "--servers=tokio_per_core --peers=none --against=none --rungs=date-cache");
    assert_eq!(texts(array(&printed["not_run"]), "name"), ["tokio_per_core"]);
    has(printed["not_run"][0]["why"].as_str().unwrap(), &["without-date-cache.patch does not apply to "]);
    assert_eq!(texts(array(&printed["rungs"]), "rung"), ["tokio_per_core+date-cache"]);
}
