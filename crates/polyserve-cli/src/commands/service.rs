//! The flags of a service of one's own, and its requests. `compare` and `recommend` share them.

use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use polyserve::catalog::Catalog;
use polyserve_bench::Misuse;
use polyserve_bench::bench::{BenchWorkload, Definition};
use polyserve_bench::turn::{Contestant, Instrument, Rehearsal};
use polyserve_load::{AnswerCheck, ChangingAnswer, Exchange, Traffic};
use serde_json::{Value, json};

use super::load::requests::{self, FileServer};
use super::workload::misuse;

/// A service and its requests.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ServiceArgs {
    /// A service of the program's catalog, in place of the entities. It needs --requests.
    #[arg(long, value_name = "NAME", requires = "requests", help_heading = SERVICE)]
    service: Option<String>,
    /// The requests to the service: a file as for `load --file`, with paths as URLs. The right answers are discovered before
    /// the comparison: each request is sent twice to one contestant. Answers to GET, HEAD and OPTIONS are then compared by status
    /// and body, or by what of the body does not change; other answers by status. In a line, "check": "status" compares less.
    #[arg(long, value_name = "FILE", requires = "service", help_heading = SERVICE)]
    requests: Option<PathBuf>,
}

const SERVICE: &str = "A service of your own";

/// The goal of a comparison: `p99=10ms`.
pub(crate) fn goal(text: &str) -> Result<Duration, String> {
    let time = text.strip_prefix("p99=").ok_or("a goal is p99=TIME, such as p99=10ms")?;
    let time = super::times::time(time)?;
    if time.is_zero() { Err(String::from("the p99 must be above 0")) } else { Ok(time) }
}

/// A service with the requests of its file.
#[derive(Clone, Debug)]
pub(crate) struct RequestedService {
    /// The service's name in the catalog.
    pub(crate) name: String,
    /// The file of the requests.
    file: PathBuf,
    lines: Vec<Exchange>,
}

impl ServiceArgs {
    /// The service of a definition, with its requests.
    ///
    /// # Errors
    ///
    /// Returns an error with the line of the definition if the file of the requests cannot be opened.
    pub(crate) fn of(definition: &Definition) -> Result<Self, Misuse> {
        let BenchWorkload { service, requests, .. } = &definition.workload;
        let requests = requests.as_ref().map(|file| definition.path(file));
        if let Some(file) = &requests {
            let wrong = |error| definition.misuse("requests", format!("{}: {error}", file.display()));
            File::open(file).map_err(wrong)?;
        }
        Ok(Self { service: service.clone(), requests })
    }

    /// Whether a service is given.
    pub(crate) fn is_given(&self) -> bool {
        self.service.is_some()
    }

    /// The keys of the workload of a definition: the service and the file of its requests.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (String, toml::Value)> {
        let requests = self.requests.as_ref().map(|file| file.display().to_string());
        let keys = [("service", self.service.clone()), ("requests", requests)];
        keys.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.into())))
    }

    /// Reads the file of the requests; `None` without a service.
    ///
    /// # Errors
    ///
    /// Returns an error if the catalog lacks the service, or if a line of the file is wrong.
    pub(crate) fn read(&self, catalog: &Catalog) -> anyhow::Result<Option<RequestedService>> {
        let Some((name, file)) = self.service.as_ref().zip(self.requests.as_ref()) else { return Ok(None) };
        let name = catalog.service(name)?.name.clone();
        let lines = requests::of_file(file, FileServer::Started)?;
        Ok(Some(RequestedService { name, file: file.clone(), lines }))
    }
}

/// The requests in words.
impl fmt::Display for RequestedService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the requests of {} to the service {}", self.file.display(), self.name)
    }
}

impl RequestedService {
    /// The requests. Their answers are not known yet.
    pub(crate) fn traffic(&self, seed: u64) -> anyhow::Result<Traffic> {
        Traffic::discovering(self.lines.clone())
            .map(|traffic| traffic.seed(seed))
            .map_err(misuse)
            .with_context(|| self.file.display().to_string())
            .map_err(|error| Misuse(format!("{error:#}")).into())
    }

    /// The requests, for the description of the run.
    pub(crate) fn described(&self) -> Value {
        let line = |line: &Exchange| {
            json!({
                "request": format!("{} {}", line.method, line.target),
                "ids": line.ids.as_ref().map(|ids| [ids.start(), ids.end()]),
                "headers": line.headers,
                "body": line.body.as_ref().map(|body| String::from_utf8_lossy(body)),
                "status": line.has_given_status.then_some(&line.statuses),
                "weight": line.weight,
                "check": line.judged,
            })
        };
        json!({"service": self.name, "lines": self.lines.iter().map(line).collect::<Vec<_>>()})
    }

    /// Discovers the right answers on `contestant`. Returns them with the lines to print before the comparison.
    ///
    /// # Errors
    ///
    /// Returns an error if the contestant cannot be started, or if an answer has a wrong status.
    pub(crate) fn rehearse(
        &self,
        instrument: &Instrument,
        contestant: &Contestant,
    ) -> anyhow::Result<(Rehearsal, Vec<String>)> {
        let rehearsal = instrument.rehearse(contestant).map_err(|absence| {
            anyhow!("{}: the answers cannot be discovered on {}: {absence}", self.file.display(), contestant.name)
        })?;
        let judged = |changing: &ChangingAnswer| {
            let by = if changing.judged == AnswerCheck::Length { "its status and its length" } else { "its status" };
            format!("{}: the answer changes, so it is judged by {by}", changing.request)
        };
        let bound = rehearsal.bound.map(|bound| bound.to_string());
        let notes = rehearsal.changing.iter().map(judged).chain(bound).collect();
        Ok((rehearsal, notes))
    }
}
