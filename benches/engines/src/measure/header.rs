//! The header of a record: the machine, the commit, the command, and the engines.

use std::fs;
use std::process::Command;
use std::thread;

use polyserve_engines::process::program;

use crate::figures::Header;

/// The value of a key that cannot be determined.
const UNKNOWN: &str = "unknown";

/// Returns the header of a measurement that starts now. `args` are the arguments of this program.
pub(super) fn header(args: &[String]) -> Header {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = text("/proc/cpuinfo")
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or_else(|| UNKNOWN.to_owned(), |(_, name)| name.to_owned());
    let cores = thread::available_parallelism().map_or_else(|_| UNKNOWN.to_owned(), |cores| cores.to_string());
    let mut header = vec![
        ("cpu", cpu),
        ("cores", cores),
        ("kernel", text("/proc/sys/kernel/osrelease").trim().to_owned()),
        ("commit", first_line("git", &["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"])),
        ("date", first_line("date", &["-u", "+%FT%TZ"])),
        ("command", format!("ci/engines.sh {}", args.join(" ")).trim_end().to_owned()),
        ("profile", String::from(if cfg!(debug_assertions) { "dev" } else { "release" })),
        ("rustc", first_line("rustc", &["--version"])),
    ];
    if args.first().is_some_and(|part| part == "cluster") {
        for name in ["etcd", "redis-server", "postgres"] {
            let version = program(name).map_or_else(|_| UNKNOWN.to_owned(), |path| first_line(path, &["--version"]));
            header.push((name, version));
        }
    }
    header
}

/// Returns the first line that a program prints.
fn first_line(program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().ok().filter(|output| output.status.success());
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or(UNKNOWN).to_owned()
}
