//! Records of benchmarks, in the form of the records of experiments: `polyserve report` shows them.
//!
//! `POLYSERVE_BENCH_OUT=DIR` is the directory, relative to the workspace. A run without a filter writes `benches.jsonl`: the
//! median of each benchmark with criterion's 95 % interval, and the processor time of servers. The filter `dispatch` writes
//! `executors.jsonl`. An older file is replaced.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::Context as _;
use polyserve_lab::allocator::SYSTEM;
use polyserve_lab::benches::BenchLine;
use polyserve_lab::journal::{Header, Journal};
use polyserve_lab::machine::{Build, Cores, Environment};
use serde_json::Value;

/// The variable with the directory of the records.
const RECORD_IN: &str = "POLYSERVE_BENCH_OUT";
const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Lines of one kind.
pub(crate) type RecordLines = (&'static str, Vec<Value>);

/// Writes a record of this name, if a directory is given.
pub(crate) fn record(name: &str, plan: Value, all: &[RecordLines]) -> anyhow::Result<()> {
    let Some(dir) = std::env::var_os(RECORD_IN) else { return Ok(()) };
    let dir = Path::new(WORKSPACE).join(dir);
    let _ = fs::remove_file(dir.join(format!("{name}.jsonl")));
    let said = |program: &str, args: &[&str]| -> Option<&'static str> {
        let output = Command::new(program).args(args).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned().leak())
    };
    // As in the records of the command: the last commit of what it is built from.
    let git = |args: &[&str]| {
        said("git", &[&["-C", WORKSPACE], args, &["--", "crates", "Cargo.toml", "Cargo.lock"]].concat())
    };
    let is_changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|files| !files.is_empty());
    let commit = git(&["log", "-1", "--abbrev=12", "--format=%h"]);
    let commit = commit.map(|commit| if is_changed { &*format!("{commit}+").leak() } else { commit });
    Build { rustc: said("rustc", &["--version"]), profile: Some("bench"), commit }.set();
    let cores = Cores::available()?;
    let header = Header::new(name, plan, Environment::of(&cores, [&cores; 2], 0, SYSTEM).with_toolchains());
    let mut journal = Journal::open(Some(&dir), &header)?;
    for (kind, lines) in all {
        lines.iter().try_for_each(|line| journal.line(kind, line))?;
    }
    Ok(())
}

/// The benchmarks that criterion has timed since `start`, in the order of their names. They are read from its own files.
pub(crate) fn timed_since(start: SystemTime) -> anyhow::Result<Vec<Value>> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| Path::new(WORKSPACE).join("target"), PathBuf::from);
    let mut found = Vec::new();
    for group in directories(&target.join("criterion"))? {
        for bench in directories(&group)? {
            let new = bench.join("new");
            let file = new.join("estimates.json");
            let is_new = fs::metadata(&file).and_then(|file| file.modified()).is_ok_and(|time| time >= start);
            if is_new {
                found.push(serde_json::to_value(line(&new).with_context(|| file.display().to_string())?)?);
            }
        }
    }
    Ok(found)
}

/// The directories in a directory, by name; none if there is no such directory.
fn directories(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let Ok(entries) = fs::read_dir(path) else { return Ok(Vec::new()) };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    let mut directories: Vec<PathBuf> = paths.into_iter().filter(|path| path.is_dir()).collect();
    directories.sort();
    Ok(directories)
}

fn line(new: &Path) -> anyhow::Result<BenchLine> {
    let read = |file: &str| -> anyhow::Result<Value> { Ok(serde_json::from_slice(&fs::read(new.join(file))?)?) };
    let (named, estimates) = (read("benchmark.json")?, read("estimates.json")?);
    let operations = named["throughput"]["Elements"].as_f64().unwrap_or(1.0);
    let median = &estimates["median"];
    let ns = |value: &Value| value.as_f64().map(|ns| (ns / operations * 100.0).round() / 100.0).context("no median");
    let name = |field: &str| named[field].as_str().unwrap_or_default().to_owned();
    Ok(BenchLine {
        group: name("group_id"),
        bench: name("function_id"),
        ns: ns(&median["point_estimate"])?,
        low_ns: ns(&median["confidence_interval"]["lower_bound"])?,
        high_ns: ns(&median["confidence_interval"]["upper_bound"])?,
    })
}
