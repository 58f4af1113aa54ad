//! What a comparison leaves behind: JSON lines, each on the disk's way as soon as it is there, so that a run that is
//! ended early has left all that it had measured.
//!
//! The first line is the environment, then one for everybody who cannot take part, one for what each peer keeps of the
//! contract, one a turn or failure; the last is the ranking.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::SystemTime;

use anyhow::Context as _;
use serde::Serialize;

use super::contestant::Contestant;
use super::contract::Contract;
use super::cores::Cores;
use super::ranking::Ranking;
use super::turn::Turn;
use crate::Misuse;

/// The name of the file.
pub const FILE: &str = "compare.jsonl";

/// Where lines go.
#[derive(Debug)]
pub struct Record {
    file: Option<File>,
}

/// Where and with what it was measured. What is not known says so.
#[derive(Clone, Debug, Serialize)]
pub struct Environment {
    /// The processor's model.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// The server's cores.
    pub server_cores: String,
    /// The client's cores.
    pub client_cores: String,
    /// The kernel's release.
    pub kernel: String,
    /// The compiler.
    pub rustc: &'static str,
    /// The cargo profile, or the one that it inherits from.
    pub profile: &'static str,
    /// The allocator of this program and of its servers, which are this program too.
    pub allocator: &'static str,
    /// The commit that it was built from; `+` where there were changes beside.
    pub commit: &'static str,
    /// The seed of data, draws and resamples.
    pub seed: u64,
    /// The command line.
    pub command: Vec<String>,
    /// When it began, in UTC.
    pub date: String,
}

const UNKNOWN: &str = "unknown";

impl Environment {
    /// This one, with the cores of the servers and of the client. Only the program knows its `allocator`.
    pub fn of(available: &Cores, [server, client]: [&Cores; 2], seed: u64, allocator: &'static str) -> Self {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            cpu: model(&cpu).unwrap_or(UNKNOWN).to_owned(),
            cores: available.count(),
            server_cores: server.to_string(),
            client_cores: client.to_string(),
            kernel: Some(kernel.trim()).filter(|text| !text.is_empty()).unwrap_or(UNKNOWN).to_owned(),
            rustc: option_env!("POLYSERVE_BUILT_BY").unwrap_or(UNKNOWN),
            profile: option_env!("POLYSERVE_BUILT_AS").unwrap_or(UNKNOWN),
            allocator,
            commit: option_env!("POLYSERVE_BUILT_FROM").unwrap_or(UNKNOWN),
            seed,
            command: std::env::args().collect(),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        }
    }
}

fn model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, model)| model.trim()).filter(|model| !model.is_empty())
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line<'a> {
    Environment(&'a Environment),
    Turn {
        round: usize,
        #[serde(flatten)]
        who: Who<'a>,
        #[serde(flatten)]
        turn: &'a Turn,
    },
    Failure {
        round: usize,
        #[serde(flatten)]
        who: Who<'a>,
        why: &'a str,
    },
    /// Somebody who was to take part and was not started.
    Refusal {
        name: &'a str,
        why: &'a str,
    },
    /// What somebody who is not ours keeps of the contract.
    Contract(&'a Contract),
    Ranking(&'a Ranking),
}

#[derive(Serialize)]
struct Who<'a> {
    name: &'a str,
    role: super::contestant::Role,
}

impl<'a> From<&'a Contestant> for Who<'a> {
    fn from(contestant: &'a Contestant) -> Self {
        Self { name: &contestant.name, role: contestant.role }
    }
}

impl Record {
    /// One that keeps nothing.
    pub fn none() -> Self {
        Self { file: None }
    }

    /// One in `dir`, which is made if need be. What was recorded there before is not written over.
    ///
    /// # Errors
    ///
    /// Where there is a record already, or it cannot be made.
    pub fn within(dir: &Path) -> anyhow::Result<Self> {
        Self::named(dir, FILE)
    }

    /// [`within`](Self::within), in a file of another name: of another kind of measurement.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn named(dir: &Path, file: &str) -> anyhow::Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("{} cannot be made", dir.display()))?;
        let path = dir.join(file);
        match File::create_new(&path) {
            Ok(file) => Ok(Self { file: Some(file) }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(Misuse(format!("{} is there already; it is not written over", path.display())).into())
            }
            Err(error) => Err(error).with_context(|| format!("{} cannot be made", path.display())),
        }
    }

    /// The first line.
    ///
    /// # Errors
    ///
    /// Where it cannot be written; so with all others.
    pub fn environment(&mut self, environment: &Environment) -> io::Result<()> {
        self.line(&Line::Environment(environment))
    }

    /// A turn of a round; those of round 0 only calibrate.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn turn(&mut self, round: usize, contestant: &Contestant, turn: &Turn) -> io::Result<()> {
        self.line(&Line::Turn { round, who: contestant.into(), turn })
    }

    /// A turn that failed.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn failure(&mut self, round: usize, contestant: &Contestant, why: &str) -> io::Result<()> {
        self.line(&Line::Failure { round, who: contestant.into(), why })
    }

    /// Somebody who cannot take part.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn refusal(&mut self, name: &str, why: &str) -> io::Result<()> {
        self.line(&Line::Refusal { name, why })
    }

    /// What a contestant that is not ours keeps of the contract.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn contract(&mut self, contract: &Contract) -> io::Result<()> {
        self.line(&Line::Contract(contract))
    }

    /// The last line.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn ranking(&mut self, ranking: &Ranking) -> io::Result<()> {
        self.line(&Line::Ranking(ranking))
    }

    /// A line of another kind of measurement; it should have a field `kind`.
    ///
    /// # Errors
    ///
    /// Where it cannot be written, or is no JSON.
    pub fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        file.write_all(text.as_bytes()) // whole, in one write, past no buffer of ours
    }
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
    fn the_environment_says_unknown_rather_than_nothing() {
        let one = Cores::from(0);
        let line = serde_json::to_value(Line::Environment(&Environment::of(&one, [&one; 2], 7, "any"))).unwrap();
        assert_eq!((line["kind"].as_str(), line["seed"].as_u64()), (Some("environment"), Some(7)));
        for field in ["cpu", "kernel", "rustc", "profile", "allocator", "commit", "date"] {
            assert!(!line[field].as_str().unwrap().is_empty(), "{field}");
        }
    }
}
