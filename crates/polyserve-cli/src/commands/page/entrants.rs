//! The entrants of the page: the catalog's servers for the published four, and pools of every size.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use polyserve::Shape;
use polyserve::catalog::{Catalog, Promise, ServerEntry};
use polyserve::env::Settings;
use polyserve_bench::experiment::{Absent, distinct};
use polyserve_bench::page::published::{self, SETUPS, Setup};
use polyserve_bench::page::record::Key;
use polyserve_bench::page::{Conditions, PagePart, PageServer, PageSource};

use crate::commands::entrants::{left_out, serve};
use crate::commands::names::full_names;
use crate::commands::room::{self, roomy};

/// The time for which a server of the sweep is loaded if the number of requests is not given.
const FULL_TIME: Duration = Duration::from_secs(30);
const QUICK_TIME: Duration = Duration::from_secs(1);

/// Chooses the entrants of a part.
pub(super) struct Selection<'a> {
    pub(super) catalog: &'a Catalog,
    /// The servers that were asked for by name; empty for all.
    pub(super) servers: &'a [String],
    /// The settings that were given, as flags.
    pub(super) flags: &'a [String],
    pub(super) settings: &'a Settings,
    /// How the servers of the part are loaded.
    pub(super) conditions: &'a Conditions,
    /// The file of the servers that read the page.
    pub(super) file: &'a Path,
}

impl Selection<'_> {
    /// Returns the four published servers, each with the page from these sources, and the servers that cannot be
    /// measured. If servers were asked for by name, only these are returned.
    pub(super) fn published(&self, pages: &[PageSource]) -> anyhow::Result<(Vec<PageServer>, Vec<Absent<Key>>)> {
        let named: Vec<&str> = self.named()?.into_iter().map(|entry| entry.name.as_str()).collect();
        let (mut entrants, mut absent) = (Vec::new(), Vec::new());
        for setup in SETUPS {
            let Setup { published_as, workers, .. } = setup;
            let twin = setup.server(self.catalog);
            let server = twin.map_or(published_as, |entry| entry.name.as_str());
            if !named.is_empty() && !named.contains(&server) {
                continue;
            }
            for page in pages {
                let entered = twin
                    .with_context(|| format!("the catalog has no counterpart of {published_as}"))
                    .and_then(|entry| self.entrant(entry, workers, *page, |_| published::REQUESTS));
                match entered {
                    Ok((_, entrant)) => {
                        let published_as = Some(published_as.to_owned());
                        entrants.push(PageServer { part: PagePart::Published, published_as, ..entrant });
                    }
                    Err(error) => {
                        let server = server.to_owned();
                        let key = Key { part: PagePart::Published, server, workers, page: *page, round: 1 };
                        absent.push(self.absent(key, error.to_string()));
                    }
                }
            }
        }
        Ok((entrants, absent))
    }

    /// Returns every server with every number of workers, and the servers that reject the settings or have no pool. A
    /// server that rejects all numbers of workers is measured once. The result is sorted by the number of workers.
    ///
    /// # Errors
    ///
    /// Returns an error if a server that was asked for by name is unknown or rejects the settings.
    pub(super) fn sweep(
        &self,
        workers: &[usize],
        requests: Option<u64>,
        quick: bool,
    ) -> anyhow::Result<(Vec<PageServer>, Vec<Absent<Key>>)> {
        let time = if quick { QUICK_TIME } else { FULL_TIME };
        let requests = |waiting| requests.unwrap_or_else(|| self.conditions.requests(waiting, time));
        let (mut entrants, mut absent) = (Vec::new(), Vec::new());
        let named = self.named()?;
        let servers = if named.is_empty() { self.catalog.servers().iter().collect() } else { named };
        self.settings.check(servers.iter().copied())?;
        for entry in servers {
            let (shape, alone) = match self.entrant(entry, None, PageSource::Memory, requests) {
                Ok(entered) => entered,
                Err(error) if !self.servers.is_empty() => return Err(error),
                Err(error) => {
                    let (server, page) = (entry.name.clone(), PageSource::Memory);
                    let key = Key { part: PagePart::Sweep, server, workers: None, page, round: 1 };
                    absent.push(self.absent(key, error.to_string()));
                    continue;
                }
            };
            let sized: Vec<PageServer> = (workers.iter())
                .filter_map(|workers| self.entrant(entry, Some(*workers), PageSource::Memory, requests).ok())
                .map(|(_, entrant)| entrant)
                .collect();
            let is_pool = match shape {
                Shape::Multiplexed => true,
                Shape::OnePerThread => !sized.is_empty(),
                Shape::One => false,
            };
            if self.servers.is_empty() && !is_pool {
                absent.push(self.no_pool(&alone));
                continue;
            }
            entrants.extend(if sized.is_empty() { vec![alone] } else { sized });
        }
        entrants.sort_by_key(|entrant| entrant.workers); // stable
        Ok((entrants, absent))
    }

    /// A server that cannot be measured here. Only a server that was not asked for by name is excused.
    fn absent(&self, key: Key, why: String) -> Absent<Key> {
        left_out(key, why, self.servers.is_empty())
    }

    /// A server without a pool: its shape alone determines its bound.
    fn no_pool(&self, entrant: &PageServer) -> Absent<Key> {
        let Conditions { connections, every, wait, .. } = self.conditions;
        let max_waiting = entrant.waiting.unwrap_or(*connections);
        let (wait_s, bound) = (wait.as_secs_f64(), self.conditions.bound(max_waiting));
        let formula = format!("{max_waiting} x {every} / {wait_s} s = {bound:.1} requests a second");
        let why = format!("its shape is no pool, and has one bound: {formula}; asked for by name it takes part once");
        self.absent(entrant.key(1), why)
    }

    /// The servers that were asked for by name, each once.
    fn named(&self) -> anyhow::Result<Vec<&ServerEntry>> {
        let names = distinct(full_names(self.servers, |name| self.catalog.server(name))?);
        names.iter().map(|name| Ok(self.catalog.server(name)?)).collect()
    }

    /// Returns a server with a number of workers, and its shape. The settings allow the wait of the page. `requests`
    /// returns the number of requests for a max number of concurrent waits.
    fn entrant(
        &self,
        entry: &ServerEntry,
        workers: Option<usize>,
        page: PageSource,
        requests: impl Fn(Option<usize>) -> u64,
    ) -> anyhow::Result<(Shape, PageServer)> {
        let repo = &self.catalog.repos().first().context("the catalog has no repo")?.name;
        let Self { flags: given, settings, conditions, .. } = self;
        let Conditions { connections, wait, every, .. } = conditions;
        let mut config = roomy(settings, &settings.config, *connections);
        if !settings.is_given("answer_timeout") {
            config.answer_timeout = config.answer_timeout.max(*wait * 2);
        }
        let (server, config) = room::fitted(entry, &config, workers)?;
        let shape = server.shape();
        let waiting = match shape {
            _ if !entry.promises(Promise::LaterHoldsWorker) => None,
            Shape::Multiplexed => config.workers,
            Shape::OnePerThread | Shape::One => {
                Some(server.max_concurrent().map_or(*connections, |max| max.min(*connections)))
            }
        };
        let mut flags = room::flags(&config, given, &["answer_timeout"]);
        flags.extend(workers.map(|workers| format!("--workers={workers}")));
        let wait = humantime::format_duration(*wait);
        flags.extend(["--service=page".into(), format!("--page-every={every}"), format!("--page-wait={wait}")]);
        if page == PageSource::File {
            flags.push(format!("--page-file={}", self.file.display()));
        }
        let launch = serve(&entry.name, repo, &flags, Vec::new());
        let (part, published_as, name, requests) = (PagePart::Sweep, None, entry.name.clone(), requests(waiting));
        let rounds = 1;
        Ok((shape, PageServer { part, published_as, name, workers, waiting, requests, page, rounds, launch }))
    }
}
