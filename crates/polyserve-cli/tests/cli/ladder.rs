//! `polyserve ladder`: builds and records. The rungs are built from a package of the test. Its programs execute
//! `polyserve serve`, so that a build takes a second.

use std::fs;
use std::path::{Path, PathBuf};

use polyserve_experiments::ladder::Ladder;
use serde_json::Value;

use super::experiments::resumes;
use super::{misused, run, text};

/// A directory with sources, and with the record in `out`.
struct Sources(PathBuf);

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
    command.arg("serve").args(["@FIXED@"].iter().filter(|arg| !arg.is_empty()));
    let is_wanted = |arg: &String| !arg.starts_with("--without=") && !arg.starts_with("--service=");
    command.args(std::env::args().skip(1).filter(is_wanted));
    command.arg(if cfg!(feature = "mimalloc") { "--service=page" } else { "--service=welcome" });
    panic!("{}", command.exec());
}
"#;

impl Sources {
    fn new(name: &str) -> Self {
        let sources =
            Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ladder-{name}-{}", std::process::id())));
        let _ = fs::remove_dir_all(&sources.0);
        let package = sources.0.join("benches/ladder");
        fs::create_dir_all(package.join("src/bin")).unwrap();
        let lock = "version = 4\n\n[[package]]\nname = \"fake\"\nversion = \"0.1.0\"\n";
        let program =
            |fixed: &str| PROGRAM.replace("@POLYSERVE@", env!("CARGO_BIN_EXE_polyserve")).replace("@FIXED@", fixed);
        for (file, text) in [
            ("Cargo.toml", MANIFEST.to_owned()),
            ("Cargo.lock", lock.to_owned()),
            ("src/bin/serve.rs", program("--json")),
            ("src/bin/warp.rs", program("")),
        ] {
            fs::write(package.join(file), text).unwrap();
        }
        sources
    }

    /// The arguments of a tiny run.
    fn args(&self, args: &[&str]) -> Vec<String> {
        let source = format!("--source={}", self.0.display());
        let out = format!("--out={}", self.0.join("out").display());
        let tiny = ["--connections=2", "--pipeline=2", "--slice=20ms", "--warm-up=20ms", "--json"];
        [&["ladder", &source, &out][..], &tiny, args].concat().into_iter().map(String::from).collect()
    }

    /// Runs a tiny ladder, which must end with `code`. Returns what it printed.
    fn measure(&self, code: i32, args: &[&str]) -> Value {
        let args = self.args(&[&["--rounds=2"], args].concat());
        let output = run(&args.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn recorded(&self, kind: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.0.join("out/ladder.jsonl")).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["kind"] == kind).collect()
    }
}

impl Drop for Sources {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn names(lines: &[Value], field: &str) -> Vec<String> {
    lines.iter().map(|line| line[field].as_str().unwrap().to_owned()).collect()
}

const BOTH: [&str; 3] = ["--servers=tokio_per_core", "--peers=warp", "--rungs=lto,pipeline-flush"];

#[test]
fn every_rung_is_built_measured_and_gone_on_with() {
    let sources = Sources::new("whole");
    let args = BOTH;
    let printed = sources.measure(0, &args);
    let ladder =
        |subject: &str| ["", " (again)", "+lto", "+lto+pipeline-flush"].map(|added| format!("{subject}{added}"));
    let wanted = [ladder("tokio_per_core"), ladder("warp")].concat();
    let rungs = printed["rungs"].as_array().unwrap();
    assert_eq!(names(rungs, "rung"), wanted);
    for rung in rungs {
        assert!(
            rung["requests_per_s"].as_f64().unwrap() > 0.0 && rung["answer_bytes"].as_u64().unwrap() > 50,
            "{rung}"
        );
        assert_eq!((rung["ratio"].is_number(), rung["rounds"].as_u64()), (rung["rung"] != rung["subject"], Some(2)));
    }
    assert_eq!(rungs[2]["verdict"], "too_few_rounds");
    let claims = printed["claims"].as_array().unwrap();
    assert!(!claims.is_empty() && claims.iter().all(|claim| claim["verdict"] == "undecided"), "{claims:?}");
    assert!(claims.iter().any(|claim| claim["figure"].as_str().unwrap().contains("2 rounds")), "{claims:?}");
    // These sources have no module in Go. The references were not given by name, so the run succeeds.
    assert_eq!(names(printed["not_run"].as_array().unwrap(), "name"), ["go-fasthttp", "go-nethttp"]);
    assert!(printed["not_run"][0]["why"].as_str().unwrap().contains("holds no module"), "{printed}");

    let csv = fs::read_to_string(sources.0.join("out/ladder.csv")).unwrap();
    assert!(csv.starts_with("rung,requests_per_s,transfer_MB_s,") && csv.lines().count() == 9, "{csv}");
    for (variant, program) in [("base", "warp"), ("lto", "warp"), ("lto", "serve"), ("lto+pipeline-flush", "serve")] {
        let program = sources.0.join("target/ladder").join(variant).join("release").join(program);
        assert!(program.is_file(), "{}", program.display());
    }
    // warp has a flag for its flush, so it is not built again.
    assert!(!sources.0.join("target/ladder/lto+pipeline-flush/release/warp").exists());

    assert_eq!(sources.recorded("cell").len(), 16);
    let built = sources.recorded("contestant");
    sources.measure(0, &args);
    assert_eq!(
        (sources.recorded("cell").len(), sources.recorded("contestant")),
        (16, built),
        "nothing is measured again"
    );

    assert_eq!(names(&sources.recorded("failure"), "name"), ["go-fasthttp", "go-nethttp"], "each is recorded once");
}

#[test]
fn a_run_resumes() {
    let sources = Sources::new("resume");
    let source = format!("--source={}", sources.0.display());
    let tiny = ["--connections=2", "--pipeline=2", "--slice=20ms", "--warm-up=20ms", "--rounds=6"];
    resumes::<Ladder>(&[&["ladder", &source, "--servers=none", "--against=none", "--rungs=lto"][..], &tiny].concat());
}

#[test]
fn a_rung_with_a_wrong_answer_has_no_figures() {
    let sources = Sources::new("wrong");
    let printed = sources.measure(1, &["--servers=none", "--against=none", "--rungs=mimalloc"]);
    assert_eq!(names(printed["rungs"].as_array().unwrap(), "rung"), ["warp", "warp (again)"]);
    assert_eq!(names(printed["failed"].as_array().unwrap(), "name"), ["warp+mimalloc"]);
    assert!(printed["failed"][0]["why"].as_str().unwrap().contains("not the welcome"), "{printed}");
    let failures = sources.recorded("failure");
    assert_eq!((names(&failures, "name"), &failures[0]["reason"]), (vec!["warp+mimalloc".to_owned()], &"wrong".into()));
    assert_eq!((&printed["failed"][0]["wrong"], &printed["failed"][0]["round"]), (&true.into(), &0.into()));
    // A later run does not measure it again, and still fails.
    let again = sources.measure(1, &["--servers=none", "--against=none", "--rungs=mimalloc"]);
    assert_eq!((&again["failed"], sources.recorded("failure")), (&printed["failed"], failures));
}

/// The run fails if a reference that was given by name is not available.
#[test]
fn a_reference_that_was_asked_for_by_name_must_be_there() {
    let sources = Sources::new("named");
    let printed = sources.measure(1, &["--servers=none", "--rungs=lto", "--against=go-fasthttp"]);
    assert_eq!(names(printed["rungs"].as_array().unwrap(), "rung"), ["warp", "warp (again)", "warp+lto"]);
    assert_eq!(names(printed["not_run"].as_array().unwrap(), "name"), ["go-fasthttp"]);
}

#[test]
fn a_rung_that_cannot_be_built_is_named_and_keeps_no_other_out() {
    let sources = Sources::new("unbuilt");
    // The package has no such feature.
    let printed = sources.measure(1, &["--servers=none", "--against=none", "--rungs=jemalloc"]);
    assert_eq!(names(printed["rungs"].as_array().unwrap(), "rung"), ["warp", "warp (again)"]);
    assert_eq!(names(printed["not_run"].as_array().unwrap(), "name"), ["warp+jemalloc"]);
    assert!(printed["not_run"][0]["why"].as_str().unwrap().contains("jemalloc"), "{printed}");

    fs::remove_file(sources.0.join("benches/ladder/Cargo.toml")).unwrap();
    fs::remove_dir_all(sources.0.join("out")).unwrap();
    let printed = sources.measure(1, &["--servers=none", "--against=none", "--rungs=lto"]);
    assert_eq!(printed["rungs"], Value::Array(Vec::new()));
    assert!(printed["not_run"][1]["why"].as_str().unwrap().contains("holds no package"), "{printed}");
}

#[test]
fn what_cannot_be_done_is_a_misuse() {
    for (args, why) in [
        (&["--servers=nothing"][..], "no server \"nothing\""),
        (&["--servers=tokio_hyper"], "warp stands for hyper"),
        (&["--servers=none", "--peers=none"], "no server to measure"),
        (&["--peers=axum"], "no ladder for \"axum\""),
        (&["--against=nginx"], "no \"nginx\""),
        (&["--rungs=pgo"], "no rung \"pgo\""),
        (&["--connections=0"], "connections"),
        (&["--connections=900000"], "--connections may be"),
        (&["--pipeline=0"], "pipeline"),
        (&["--rounds=0"], "--rounds"),
        (&["--slice=1ms"], "--slice"),
        (&["--server-cores=1000"], "there is no core 1000"),
    ] {
        let said = misused(&[&["ladder"], args].concat());
        assert!(said.contains(why), "{args:?}: {said}");
    }
}
