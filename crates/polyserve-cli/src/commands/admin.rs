//! The admin address of `polyserve serve`, and the time between the first signal and the drain.

use std::env::VarError;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use polyserve::admin::{Admin, Readiness};
use polyserve::env::{ADMIN, LAME_DUCK};
use polyserve::metrics::Metrics;
use polyserve::signals::Signals;
use polyserve::threadpool::PoolServer;
use polyserve::{Drain, EntityRepo, Running, ServerConfig, ServerExt as _, Service, resolve_address};
use polyserve_bench::Misuse;

/// The arguments about the admin address and the end of a server.
#[derive(Debug, clap::Args)]
pub(crate) struct AdminArgs {
    /// The address of health checks and metrics, HOST:PORT: /healthz, /readyz and /metrics (OpenMetrics). It has no
    /// authentication. [env: POLYSERVE_ADMIN] [default: none]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// The time from the first signal to the drain. Meanwhile /readyz answers 503 and requests are served, so a load balancer
    /// notices in time. A second signal ends it. [env: POLYSERVE_LAME_DUCK] [default: 0s]
    #[arg(long, value_name = "TIME")]
    lame_duck: Option<String>,
}

/// The max time from the first signal to the drain.
const LONGEST_LAME_DUCK: Duration = Duration::from_secs(3600);

/// What `serve` has beside its server.
#[derive(Debug)]
pub(crate) struct Operation {
    address: Option<String>,
    lame_duck: Duration,
    metrics: Metrics,
    readiness: Readiness,
    admin: Option<Running>,
}

impl AdminArgs {
    /// What the flags ask for, or else the environment.
    pub(crate) fn operation(&self) -> Result<Operation, Misuse> {
        let address = given("--admin", self.admin.as_deref(), ADMIN)?.map(|(_, address)| address);
        let lame_duck = match given("--lame-duck", self.lame_duck.as_deref(), LAME_DUCK)? {
            None => Duration::ZERO,
            Some((source, text)) => match humantime::parse_duration(&text) {
                Ok(time) if time <= LONGEST_LAME_DUCK => time,
                _ => return Err(Misuse(format!("{source} {text:?} is not a time of at most an hour, such as 5s"))),
            },
        };
        let (metrics, readiness) = (Metrics::new(), Readiness::default());
        Ok(Operation { address, lame_duck, metrics, readiness, admin: None })
    }
}

/// The text of a flag or of its variable, with its source. An empty variable counts as none.
fn given(
    flag: &'static str,
    text: Option<&str>,
    variable: &'static str,
) -> Result<Option<(&'static str, String)>, Misuse> {
    match (text, std::env::var(variable)) {
        (Some(text), _) => Ok(Some((flag, text.to_owned()))),
        (None, Ok(text)) => Ok((!text.is_empty()).then_some((variable, text))),
        (None, Err(VarError::NotPresent)) => Ok(None),
        (None, Err(VarError::NotUnicode(_))) => Err(Misuse(format!("{variable} is not UTF-8 text"))),
    }
}

impl Operation {
    /// The configuration of the server, which is observed if there is an admin address.
    pub(crate) fn observe(&self, config: &ServerConfig) -> ServerConfig {
        if self.address.is_some() { self.metrics.observe(config.clone()) } else { config.clone() }
    }

    /// The service, of which the health check at `path` answers 503 from the first signal on.
    pub(crate) fn ready(&self, path: &str, service: impl Service) -> Arc<dyn Service> {
        self.readiness.over(path, service)
    }

    /// Starts the server of the admin address, if there is one, and returns its URL.
    pub(crate) fn start(&mut self, store: impl EntityRepo) -> anyhow::Result<Option<String>> {
        let Some(address) = &self.address else { return Ok(None) };
        let cannot_serve = || format!("cannot serve on the admin address {address}");
        let addr = resolve_address(address).with_context(cannot_serve)?;
        let mut config = ServerConfig::default();
        (config.workers, config.max_connections) = (Some(WORKERS), MAX_CONNECTIONS);
        let admin = Admin::new(self.metrics.clone(), &self.readiness, store);
        let running = PoolServer::mpsc(config)?.serve(addr, admin).with_context(cannot_serve)?;
        let url = format!("http://{}", running.local_addr());
        self.admin = Some(running);
        Ok(Some(url))
    }

    /// Shows the counters of the server in the metrics.
    pub(crate) fn watch(&self, name: &str, running: &Running) {
        self.metrics.watch(name, running);
    }

    /// Waits for the first signal, then for the time until the drain, and drains. The admin address ends last.
    pub(crate) fn drain(self, signals: Signals, running: Running) -> io::Result<Drain> {
        signals.wait()?;
        self.readiness.end();
        thread::sleep(self.lame_duck); // a second signal ends the process
        let drain = running.shutdown()?;
        if let Some(admin) = self.admin {
            admin.shutdown()?;
        }
        Ok(drain)
    }
}

/// The threads of the admin address.
const WORKERS: usize = 2;
/// A few scrapers and probes.
const MAX_CONNECTIONS: usize = 64;
