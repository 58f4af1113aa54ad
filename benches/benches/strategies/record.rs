//! Records of benchmarks, in the format of the records of experiments. `polyserve report` shows them.
//!
//! `POLYSERVE_BENCH_OUT=DIR` sets the directory, relative to the workspace. A run without a filter writes
//! `benches.jsonl`: the median of each benchmark with criterion's 95 % interval, and the processor time of servers. The
//! filter `dispatch` writes `executors.jsonl`. An older file is replaced.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::Context as _;
use polyserve_bench::allocator::SYSTEM;
use polyserve_bench::benches::BenchLine;
use polyserve_bench::journal::{Header, Journal};
use polyserve_bench::machine::{Build, Cores, Environment};
use serde_json::Value;

/// The environment variable with the directory of the records.
const RECORD_DIR: &str = "POLYSERVE_BENCH_OUT";
const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The kind of the lines, and the lines.
pub(crate) type RecordLines = (&'static str, Vec<Value>);

/// Writes a record of this name if the directory is set.
pub(crate) fn record(name: &str, plan: Value, lines_by_kind: &[RecordLines]) -> anyhow::Result<()> {
    let Some(dir) = std::env::var_os(RECORD_DIR) else { return Ok(()) };
    let dir = Path::new(WORKSPACE).join(dir);
    let _ = fs::remove_file(dir.join(format!("{name}.jsonl")));
    let output_of = |program: &str, args: &[&str]| -> Option<&'static str> {
        let output = Command::new(program).args(args).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned().leak())
    };
    // The same rule as in the records of the command: the last commit that changed the sources of the build.
    let git = |args: &[&str]| {
        output_of("git", &[&["-C", WORKSPACE], args, &["--", "crates", "Cargo.toml", "Cargo.lock"]].concat())
    };
    let is_changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|files| !files.is_empty());
    let commit = git(&["log", "-1", "--abbrev=12", "--format=%h"]);
    let commit = commit.map(|commit| if is_changed { &*format!("{commit}+").leak() } else { commit });
    Build { rustc: output_of("rustc", &["--version"]), profile: Some("bench"), commit }.set();
    let cores = Cores::available()?;
    let header = Header::new(name, plan, Environment::of(&cores, [&cores; 2], 0, SYSTEM).with_toolchains());
    let mut journal = Journal::open(Some(&dir), &header)?;
    for (kind, lines) in lines_by_kind {
        lines.iter().try_for_each(|line| journal.line(kind, line))?;
    }
    Ok(())
}

/// Returns the benchmarks that criterion has timed since `start`, in the order of their names. Reads criterion's own
/// files.
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
                found.push(serde_json::to_value(bench_line(&new).with_context(|| file.display().to_string())?)?);
            }
        }
    }
    Ok(found)
}

/// Returns the subdirectories of `path`, sorted by name. Returns none if `path` does not exist.
fn directories(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let Ok(entries) = fs::read_dir(path) else { return Ok(Vec::new()) };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    let mut directories: Vec<PathBuf> = paths.into_iter().filter(|path| path.is_dir()).collect();
    directories.sort();
    Ok(directories)
}

fn bench_line(dir: &Path) -> anyhow::Result<BenchLine> {
    let read = |file: &str| -> anyhow::Result<Value> { Ok(serde_json::from_slice(&fs::read(dir.join(file))?)?) };
    let (benchmark, estimates) = (read("benchmark.json")?, read("estimates.json")?);
    let operations = benchmark["throughput"]["Elements"].as_f64().unwrap_or(1.0);
    let median = &estimates["median"];
    let ns = |value: &Value| value.as_f64().map(|ns| (ns / operations * 100.0).round() / 100.0).context("no median");
    let text = |field: &str| benchmark[field].as_str().unwrap_or_default().to_owned();
    Ok(BenchLine {
        group: text("group_id"),
        bench: text("function_id"),
        ns: ns(&median["point_estimate"])?,
        low_ns: ns(&median["confidence_interval"]["lower_bound"])?,
        high_ns: ns(&median["confidence_interval"]["upper_bound"])?,
    })
}
