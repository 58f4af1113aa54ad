//! The environment of a measurement: machine, cores, build and command. Every record begins with it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use super::cores::Cores;
use super::proc;

/// The environment of a measurement. Unknown values are named as unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// The processor's model.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// The machine's memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// The server's cores.
    pub server_cores: String,
    /// The client's cores.
    pub client_cores: String,
    /// The kernel's release.
    pub kernel: String,
    /// The compiler.
    pub rustc: String,
    /// The versions of the toolchains of other languages, by name, as they print them. Only a record has them.
    #[serde(default)]
    pub toolchains: BTreeMap<String, String>,
    /// The cargo profile.
    pub profile: String,
    /// The allocator of this program and of its servers, which are this program too.
    pub allocator: String,
    /// The commit that it was built from, followed by `+` if there were uncommitted changes.
    pub commit: String,
    /// The seed of data, draws and resamples.
    pub seed: u64,
    /// The command line.
    pub command: Vec<String>,
    /// The start of the measurement, in UTC.
    pub date: String,
}

const UNKNOWN: &str = "unknown";

/// How the program was built. It is unknown until a program sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Build {
    /// The compiler.
    pub rustc: Option<&'static str>,
    /// The cargo profile.
    pub profile: Option<&'static str>,
    /// The commit, followed by `+` if there were uncommitted changes.
    pub commit: Option<&'static str>,
}

static BUILD: OnceLock<Build> = OnceLock::new();

impl Build {
    /// Sets the build of this program for every later [`Environment`]. The first call counts.
    pub fn set(self) {
        let _ = BUILD.set(self);
    }
}

impl Environment {
    /// The environment of this process, with the cores of the servers and of the client. Only the program knows its `allocator`.
    pub fn of(available: &Cores, [server, client]: [&Cores; 2], seed: u64, allocator: &str) -> Self {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let Build { rustc, profile, commit } = BUILD.get().copied().unwrap_or_default();
        Self {
            cpu: model(&cpu).unwrap_or(UNKNOWN).to_owned(),
            cores: available.count(),
            memory_bytes: proc::memory().ok(),
            server_cores: server.to_string(),
            client_cores: client.to_string(),
            kernel: Some(kernel.trim()).filter(|text| !text.is_empty()).unwrap_or(UNKNOWN).to_owned(),
            rustc: rustc.unwrap_or(UNKNOWN).to_owned(),
            toolchains: BTreeMap::new(),
            profile: profile.unwrap_or(UNKNOWN).to_owned(),
            allocator: allocator.to_owned(),
            commit: commit.unwrap_or(UNKNOWN).to_owned(),
            seed,
            command: command(std::env::args()),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        }
    }
}

impl Environment {
    /// Adds the versions of the installed toolchains. Starts all toolchains, and waits at most five seconds for their output.
    #[must_use]
    pub fn with_toolchains(mut self) -> Self {
        let (sender, receiver) = mpsc::channel();
        for (name, argument) in TOOLCHAINS {
            let sender = sender.clone();
            // Ends with the program, or before.
            thread::spawn(move || {
                let output = Command::new(name).arg(argument).stdin(Stdio::null()).stderr(Stdio::null()).output();
                let printed = output.ok().filter(|output| output.status.success());
                let printed = printed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
                let _ = sender.send((name, printed)); // the receiver is gone after the deadline
            });
        }
        drop(sender);
        let deadline = Instant::now() + Duration::from_secs(5);
        while let Ok((name, printed)) = receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            let version = printed.as_deref().and_then(|text| text.lines().next()).map(str::trim);
            self.toolchains.extend(version.map(|version| (name.to_owned(), version.to_owned())));
        }
        self
    }
}

/// The toolchains of the other languages, each with the argument that prints its version.
const TOOLCHAINS: [(&str, &str); 3] = [("go", "version"), ("node", "--version"), ("java", "--version")];

/// The command line, without the directory of the program.
fn command(args: impl Iterator<Item = String>) -> Vec<String> {
    let mut args: Vec<String> = args.collect();
    if let Some(program) = args.first_mut()
        && let Some(name) = Path::new(program.as_str()).file_name()
    {
        *program = name.to_string_lossy().into_owned();
    }
    args
}

fn model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, model)| model.trim()).filter(|model| !model.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processors_model() {
        assert_eq!(model("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"), Some("Some CPU @ 2 GHz"));
        assert_eq!((model("model name\t:\n"), model("")), (None, None));
    }

    #[test]
    fn where_the_program_lies_is_not_told() {
        let shown = |args: &[&str]| command(args.iter().map(ToString::to_string));
        assert_eq!(shown(&["/somewhere/polyserve", "page", "--out=x/y"]), ["polyserve", "page", "--out=x/y"]);
        assert_eq!(shown(&[]), [] as [&str; 0]);
    }

    #[test]
    fn the_environment_says_unknown_rather_than_nothing() {
        let core = Cores::from(0);
        let line = serde_json::to_value(Environment::of(&core, [&core; 2], 7, "any")).unwrap();
        assert_eq!(line["seed"].as_u64(), Some(7));
        for field in ["cpu", "kernel", "rustc", "profile", "allocator", "commit", "date"] {
            assert!(!line[field].as_str().unwrap().is_empty(), "{field}");
        }
    }
}
