//! Made-up values for the tests of experiments.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::bench::figures::{self, NamedFigures};
use crate::experiment::Records;
use crate::journal::{Header, as_line};
use crate::launch::{AddressFrom, Launch};
use crate::machine::{Cores, Environment};

/// A directory that does not exist yet. It is removed with its content.
#[derive(Debug)]
pub(crate) struct TestDir(PathBuf);

impl TestDir {
    /// The directory of the test of this name.
    pub(crate) fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("polyserve-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        Self(dir)
    }
}

impl Deref for TestDir {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The header of a record with this plan.
pub(crate) fn header(experiment: &str, plan: Value) -> Header {
    let core = Cores::from(0);
    Header::new(experiment, plan, Environment::of(&core, [&core; 2], 1, "any"))
}

/// The records of these lines after a header.
pub(crate) fn records(header: &Header, lines: &[Value]) -> anyhow::Result<Records> {
    Records::of(&[&[as_line(Header::KIND, header)?], lines].concat())
}

/// The figures of a load at a fixed rate with latencies of this length, in microseconds.
pub(crate) fn latencies(us: f64) -> NamedFigures {
    let all = [
        (figures::RATE_PER_S, 100.0),
        (figures::P50_US, us),
        (figures::P99_US, us),
        (figures::P999_US, us),
        (figures::LATENESS_P99_US, 0.0),
        (figures::BEHIND, 0.0),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The launch of a process that no test starts.
pub(crate) fn launch() -> Launch {
    Launch { program: "any".into(), args: Vec::new(), env: Vec::new(), address: AddressFrom::Json, files: Vec::new() }
}

/// A shell script as a process.
pub(crate) fn script(text: &str, address: AddressFrom) -> Launch {
    Launch { program: "/bin/sh".into(), args: ["-c", text].map(Into::into).into(), address, ..launch() }
}
