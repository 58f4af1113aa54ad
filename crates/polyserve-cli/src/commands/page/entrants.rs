//! Who is loaded with the page: the published four, and pools of every size.

use std::time::Duration;

use anyhow::Context as _;
use polyserve::Connections;
use polyserve::catalog::{Catalog, Promise, ServerEntry};
use polyserve::env::Settings;
use polyserve_experiments::page::published::{self, SETUPS, Setup};
use polyserve_experiments::page::{Entrant, Experiment, Failed, Part};

use crate::commands::entrants::serve;
use crate::commands::room::{self, roomy};

/// How long a server of the sweep is loaded where the requests are not given.
const FULL: Duration = Duration::from_secs(30);
const QUICK: Duration = Duration::from_secs(1);

/// Who may take part, and how.
pub(super) struct Field<'a> {
    pub(super) catalog: &'a Catalog,
    /// Those who were asked for by name; all where there are none.
    pub(super) servers: &'a [String],
    /// The settings that were given, as flags.
    pub(super) flags: &'a [String],
    pub(super) settings: &'a Settings,
    pub(super) experiment: &'a Experiment,
}

impl Field<'_> {
    /// The published four, or those of them that were asked for; and those who cannot take part.
    pub(super) fn published(&self) -> anyhow::Result<(Vec<Entrant>, Vec<Failed>)> {
        let asked: Vec<&str> = self.named()?.into_iter().map(|entry| entry.name.as_str()).collect();
        let (mut entrants, mut failed) = (Vec::new(), Vec::new());
        for setup in SETUPS {
            let Setup { published_as, workers } = setup;
            let twin = setup.server(self.catalog);
            let server = twin.map_or(published_as, |entry| entry.name.as_str());
            if !asked.is_empty() && !asked.contains(&server) {
                continue;
            }
            let entered = twin
                .with_context(|| format!("the catalog has no server that stands for {published_as}"))
                .and_then(|entry| self.entrant(entry, workers, |_| published::REQUESTS));
            match entered {
                Ok((_, entrant)) => {
                    let published_as = Some(published_as.to_owned());
                    entrants.push(Entrant { part: Part::Published, published_as, ..entrant });
                }
                Err(error) => {
                    let (server, why) = (server.to_owned(), error.to_string());
                    failed.push(Failed { part: Part::Published, server, workers, why, wrong: false });
                }
            }
        }
        Ok((entrants, failed))
    }

    /// Every server with every number of workers; and those who refuse the settings, or whose shape is no pool. One that
    /// was asked for by its name must not refuse them, and takes part once, as it is, where it refuses workers. All servers
    /// of one size come in turn.
    pub(super) fn sweep(
        &self,
        workers: &[usize],
        requests: Option<u64>,
        quick: bool,
    ) -> anyhow::Result<(Vec<Entrant>, Vec<Failed>)> {
        let time = if quick { QUICK } else { FULL };
        let requests = |waiting| requests.unwrap_or_else(|| self.experiment.requests(waiting, time));
        let (mut entrants, mut failed) = (Vec::new(), Vec::new());
        let named = self.named()?;
        let servers = if named.is_empty() { self.catalog.servers().iter().collect() } else { named };
        self.settings.check(servers.iter().copied())?;
        for entry in servers {
            let (shape, alone) = match self.entrant(entry, None, requests) {
                Ok(entered) => entered,
                Err(error) if !self.servers.is_empty() => return Err(error),
                Err(error) => {
                    let (server, why) = (entry.name.clone(), error.to_string());
                    failed.push(Failed { part: Part::Sweep, server, workers: None, why, wrong: false });
                    continue;
                }
            };
            let sized: Vec<Entrant> = (workers.iter())
                .filter_map(|workers| self.entrant(entry, Some(*workers), requests).ok())
                .map(|(_, entrant)| entrant)
                .collect();
            let is_pool = match shape {
                Connections::Multiplexed => true,
                Connections::OnePerThread => !sized.is_empty(),
                Connections::One => false,
            };
            if self.servers.is_empty() && !is_pool {
                failed.push(self.no_pool(alone));
                continue;
            }
            entrants.extend(if sized.is_empty() { vec![alone] } else { sized });
        }
        entrants.sort_by_key(|entrant| entrant.workers); // stable
        Ok((entrants, failed))
    }

    /// One that has nothing to sweep: what its shape alone bounds it to.
    fn no_pool(&self, Entrant { part, name: server, workers, waiting, .. }: Entrant) -> Failed {
        let Experiment { connections, every, wait, .. } = self.experiment;
        let at_once = waiting.unwrap_or(*connections);
        let (wait_s, bound) = (wait.as_secs_f64(), self.experiment.bound(at_once));
        let formula = format!("{at_once} x {every} / {wait_s} s = {bound:.1} requests a second");
        let why = format!("its shape is no pool, and has one bound: {formula}; asked for by name it takes part once");
        Failed { part, server, workers, why, wrong: false }
    }

    /// Those who were asked for.
    fn named(&self) -> anyhow::Result<Vec<&ServerEntry>> {
        let mut servers: Vec<&ServerEntry> = Vec::new();
        for name in self.servers {
            let entry = self.catalog.server(name)?;
            if !servers.iter().any(|known| known.name == entry.name) {
                servers.push(entry);
            }
        }
        Ok(servers)
    }

    /// A server with so many workers, and settings under which nobody is refused for having waited; `requests` says how
    /// many it gets where so many of its workers can wait.
    fn entrant(
        &self,
        entry: &ServerEntry,
        workers: Option<usize>,
        requests: impl Fn(Option<usize>) -> u64,
    ) -> anyhow::Result<(Connections, Entrant)> {
        let repo = &self.catalog.repos().first().context("the catalog has no repo")?.name;
        let Self { flags: given, settings, experiment, .. } = self;
        let Experiment { connections, wait, every, .. } = experiment;
        let config = roomy(settings, &settings.config, *connections).with(|config| {
            if !settings.is_given("answer_timeout") {
                config.answer_timeout = config.answer_timeout.max(*wait * 2);
            }
        });
        let (server, config) = room::fitted(entry, &config, workers)?;
        let shape = server.connections();
        let waiting = match shape {
            _ if !entry.promises(Promise::LaterHoldsWorker) => None,
            Connections::Multiplexed => config.workers,
            Connections::OnePerThread | Connections::One => {
                Some(server.max_concurrent().map_or(*connections, |at_once| at_once.min(*connections)))
            }
        };
        let mut flags = room::flags(&config, given, &["answer_timeout"]);
        flags.extend(workers.map(|workers| format!("--workers={workers}")));
        let wait = humantime::format_duration(*wait);
        let page = ["--service=page".into(), format!("--page-every={every}"), format!("--page-wait={wait}")];
        flags.extend(page);
        let launch = serve(&entry.name, repo, &flags, Vec::new());
        let (part, published_as, name, requests) = (Part::Sweep, None, entry.name.clone(), requests(waiting));
        Ok((shape, Entrant { part, published_as, name, workers, waiting, requests, launch }))
    }
}
