//! What an operator asks of `polyserve serve`: the admin address, the access log, and the time between the first signal and the drain.

use std::env::VarError;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use polyserve::access::Refusals;
use polyserve::access_log::{AccessLog, LogFormat, Sampling};
use polyserve::admin::{Admin, Readiness};
use polyserve::env::{
    ACCESS_LOG, ACCESS_LOG_FORMAT, ACCESS_LOG_RATE, ACCESS_LOG_SAMPLE, ADMIN, LAME_DUCK, warn_of_left_out,
};
use polyserve::metrics::Metrics;
use polyserve::signals::Signals;
use polyserve::threadpool::PoolServer;
use polyserve::{Drain, EntityRepo, ListenOn, Running, ServerConfig, ServerExt as _, Service, resolve_address};
use polyserve_bench::Misuse;
use rustix::fs::{Access, AtFlags, CWD, OFlags, accessat};
use rustix::io::{Errno, ioctl_fionbio};

use super::handover::Offer;
use super::serve::explained;
use super::systemd;
use super::watchdog::Watchdog;

/// The arguments about the admin address and the end of a server.
#[derive(Debug, clap::Args)]
pub(crate) struct AdminArgs {
    /// The address of health checks and metrics, HOST:PORT: /healthz, /readyz, /metrics (for Prometheus), and
    /// /openapi.json with `--service entity`. It has no authentication, so beyond loopback it needs
    /// --trust-network. [env: POLYSERVE_ADMIN] [default: none]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// The time from the first signal to the drain. Meanwhile /readyz answers 503 and requests are served, so a load balancer
    /// notices in time. A second signal ends it. [env: POLYSERVE_LAME_DUCK] [default: 0s]
    #[arg(long, value_name = "TIME")]
    lame_duck: Option<String>,
    /// A file to which a line is appended for each answer, or `-` for standard error. [env: POLYSERVE_ACCESS_LOG] [default: none]
    #[arg(long, value_name = "PATH")]
    access_log: Option<String>,
    /// The form of a line: `json`; `common`, the common log format; or `combined`, the same with the fields Referer and User-Agent.
    /// [env: POLYSERVE_ACCESS_LOG_FORMAT] [default: json]
    #[arg(long, value_name = "FORMAT")]
    access_log_format: Option<String>,
    /// One in this number of answers has a line; an answer with a status of 400 or more always has one.
    /// [env: POLYSERVE_ACCESS_LOG_SAMPLE] [default: 1]
    #[arg(long, value_name = "N")]
    access_log_sample: Option<String>,
    /// The max number of lines a second. [env: POLYSERVE_ACCESS_LOG_RATE] [default: no limit]
    #[arg(long, value_name = "N")]
    access_log_rate: Option<String>,
}

/// The max time from the first signal to the drain.
const LONGEST_LAME_DUCK: Duration = Duration::from_secs(3600);

/// The admin address, the access log and the end of a server.
#[derive(Debug)]
pub(crate) struct ServeOperation {
    /// The text, and its flag or variable.
    address: Option<(&'static str, String)>,
    lame_duck: Duration,
    metrics: Metrics,
    readiness: Readiness,
    admin: Option<Running>,
    log: Option<AccessLog>,
    watchdog: Option<Watchdog>,
}

impl AdminArgs {
    /// What the flags ask for, or else the environment. If it `is_check`, no file is made.
    pub(crate) fn operation(&self, is_check: bool) -> anyhow::Result<ServeOperation> {
        let address = given("--admin", self.admin.as_deref(), ADMIN)?;
        let lame_duck = match given("--lame-duck", self.lame_duck.as_deref(), LAME_DUCK)? {
            None => Duration::ZERO,
            Some((source, text)) => match humantime::parse_duration(&text) {
                Ok(time) if time <= LONGEST_LAME_DUCK => time,
                _ => {
                    let why = format!("{source} {text:?} is not a time of at most an hour, such as 5s");
                    return Err(Misuse(why).into());
                }
            },
        };
        let (metrics, readiness) = (Metrics::new(), Readiness::default());
        let (log, watchdog) = (self.log(is_check)?, Watchdog::from_env());
        Ok(ServeOperation { address, lame_duck, metrics, readiness, admin: None, log, watchdog })
    }

    /// The access log, if there is one.
    fn log(&self, is_check: bool) -> anyhow::Result<Option<AccessLog>> {
        let log = given("--access-log", self.access_log.as_deref(), ACCESS_LOG)?;
        let format = given("--access-log-format", self.access_log_format.as_deref(), ACCESS_LOG_FORMAT)?;
        let sample = given("--access-log-sample", self.access_log_sample.as_deref(), ACCESS_LOG_SAMPLE)?;
        let rate = given("--access-log-rate", self.access_log_rate.as_deref(), ACCESS_LOG_RATE)?;
        let Some((source, path)) = log else {
            [format, sample, rate].into_iter().flatten().try_for_each(|(source, _)| without_log(source))?;
            return Ok(None);
        };
        let format = match format.as_ref().map(|(source, text)| (source, text.as_str())) {
            None | Some((_, "json")) => LogFormat::Json,
            Some((_, "common")) => LogFormat::Common,
            Some((_, "combined")) => LogFormat::Combined,
            Some((source, text)) => {
                return Err(Misuse(format!("{source} {text:?} must be json, common or combined")).into());
            }
        };
        let mut sampling = Sampling::default();
        if let Some(n) = number(sample)? {
            sampling.one_in = n;
        }
        if let Some(n) = number(rate)? {
            sampling.max_per_s = n;
        }
        let unopened = |error| Misuse(format!("{source} {path} cannot be opened: {error}"));
        if is_check {
            check_log(&path).map_err(unopened)?;
            return Ok(None);
        }
        let writer: Box<dyn Write + Send> =
            if path == "-" { Box::new(io::stderr()) } else { Box::new(opened(&path).map_err(unopened)?) };
        Ok(Some(AccessLog::start(writer, format, sampling).map_err(explained)?))
    }
}

/// Refuses a flag of an access log that there is not, and warns of its variable: it may be meant for another process.
fn without_log(source: &'static str) -> Result<(), Misuse> {
    if source.starts_with("--") {
        let why = format!("{source} needs an access log: add --access-log PATH, or --access-log - for standard error");
        return Err(Misuse(why));
    }
    warn_of_left_out(source, &"there is no access log");
    Ok(())
}

/// Checks that the file of the access log can be opened, and makes none. A pipe or a device is not opened: that could be noticed.
fn check_log(path: &str) -> io::Result<()> {
    match fs::metadata(path) {
        _ if path == "-" => Ok(()),
        Ok(found) if found.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(found) if found.is_file() => OpenOptions::new().append(true).open(path).map(drop),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => check_directory_of(path.as_ref()),
        Err(error) => Err(error),
    }
}

/// Checks that the directory exists in which a file is to be made, and that this user can make one.
pub(super) fn check_directory_of(path: &Path) -> io::Result<()> {
    let parent = path.parent().ok_or(ErrorKind::NotFound)?;
    let directory = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    if !fs::metadata(directory)?.is_dir() {
        return Err(ErrorKind::NotADirectory.into());
    }
    match accessat(CWD, directory, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS) {
        Err(Errno::PERM) => Ok(()), // a container forbids the call, and says nothing about the directory
        checked => Ok(checked?),
    }
}

/// Opens the file of the access log. A named pipe needs a process that reads it: the open would wait for one, without an end.
fn opened(path: &str) -> io::Result<File> {
    const NO_WAIT: i32 = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().create(true).append(true).custom_flags(NO_WAIT).open(path).map_err(|error| {
        let is_unread = error.raw_os_error() == Some(Errno::NXIO.raw_os_error());
        if is_unread { io::Error::new(error.kind(), "no process reads from the pipe") } else { error }
    })?;
    ioctl_fionbio(&file, false)?; // the log's thread waits for its reader
    Ok(file)
}

/// The number of a flag or of its variable, at least 1.
fn number(given: Option<(&'static str, String)>) -> Result<Option<u64>, Misuse> {
    let Some((source, text)) = given else { return Ok(None) };
    let number = text.parse().ok().filter(|number| *number > 0);
    number.map(Some).ok_or_else(|| Misuse(format!("{source} {text:?} is not a number of at least 1")))
}

/// The text of a flag or of its variable, with its source. An empty variable counts as none.
pub(super) fn given(
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

impl ServeOperation {
    /// The configuration of the server, with what the metrics and the access log need.
    pub(crate) fn observe(&self, config: &ServerConfig) -> ServerConfig {
        let mut config = config.clone();
        if self.address.is_some() {
            config = self.metrics.observe(config);
        }
        match &self.log {
            Some(log) => log.observe(config),
            None => config,
        }
    }

    /// Whether requests need traces: for the access log, or for the spans in the log of the program.
    pub(crate) fn needs_traces(&self) -> bool {
        self.log.is_some() || tracing::span_enabled!(target: "polyserve::trace", tracing::Level::DEBUG)
    }

    /// The service, of which the health check at `path` answers 503 from the first signal on.
    pub(crate) fn ready(&self, path: &str, service: impl Service) -> Arc<dyn Service> {
        self.readiness.over(path, service)
    }

    /// The service, with an answer to the watchdog if there is one.
    pub(crate) fn watched(&self, service: Arc<dyn Service>) -> Arc<dyn Service> {
        match &self.watchdog {
            Some(watchdog) => watchdog.over(service),
            None => service,
        }
    }

    /// The repo, of which the metrics show the operations.
    pub(crate) fn observe_store(&self, repo: Arc<dyn EntityRepo>) -> Arc<dyn EntityRepo> {
        if self.address.is_some() { Arc::new(self.metrics.observe_store(repo)) } else { repo }
    }

    /// The admin address, if there is one.
    pub(crate) fn address(&self) -> Result<Option<SocketAddr>, Misuse> {
        let Some((source, text)) = &self.address else { return Ok(None) };
        let unusable = |error| Misuse(format!("{source} {text:?} cannot be used: {error}"));
        resolve_address(text).map(Some).map_err(unusable)
    }

    /// Starts the server of the admin address, if there is one, on `listener` if it is bound already. Returns its URL.
    pub(crate) fn start(
        &mut self,
        store: impl EntityRepo,
        listener: Option<TcpListener>,
        openapi: Option<&'static str>,
    ) -> anyhow::Result<Option<String>> {
        let Some(addr) = self.address()? else { return Ok(None) };
        let on = listener.map_or(ListenOn::Addr(addr), ListenOn::Listener);
        let mut config = ServerConfig::default();
        (config.workers, config.max_connections) = (Some(WORKERS), MAX_CONNECTIONS);
        let mut admin = Admin::new(self.metrics.clone(), &self.readiness, store);
        if let Some(openapi) = openapi {
            admin = admin.openapi(openapi);
        }
        let running = PoolServer::mpsc(config)?
            .serve(on, admin)
            .map_err(explained)
            .with_context(|| format!("cannot serve on the admin address {addr}"))?;
        let url = format!("http://{}", running.local_addr());
        self.admin = Some(running);
        Ok(Some(url))
    }

    /// The counts of refused requests in the metrics.
    pub(crate) fn refusals(&self) -> Refusals {
        self.metrics.refusals()
    }

    /// Shows the counters of the server in the metrics.
    pub(crate) fn watch(&self, name: &str, running: &Running) {
        self.metrics.watch(name, running);
    }

    /// Tells systemd that the server serves, and from now on regularly that it still does, if it asks for that.
    pub(crate) fn notify_ready(&self, running: &Running, is_tls: bool) {
        systemd::notify_ready();
        if let Some(watchdog) = &self.watchdog {
            watchdog.start(running, is_tls);
        }
    }

    /// Waits for the first signal, or until the next process takes over. Drains then: after a signal, when the time until the drain has
    /// passed. The admin address ends last.
    pub(crate) fn drain(self, mut signals: Signals, running: Running, offer: Option<Offer>) -> io::Result<Drain> {
        let is_taken_over = match offer.clone() {
            Some(offer) => signals.unless_signalled(move || offer.wait())?.is_some(),
            None => false,
        };
        // A signal after a handover is the first one, and must not end the process: so `signals` lives until the end.
        let _signals = if is_taken_over { Some(signals) } else { signals.wait().map(|_| None)? };
        systemd::notify_stopping();
        if let Some(watchdog) = &self.watchdog {
            watchdog.end();
        }
        self.readiness.end();
        if !is_taken_over {
            if let Some(offer) = offer {
                offer.withdraw();
            }
            thread::sleep(self.lame_duck); // a second signal ends the process
        }
        let drain = running.shutdown()?;
        if let Some(admin) = self.admin {
            admin.shutdown()?;
        }
        if let Some(dropped) = self.log.as_ref().map(AccessLog::dropped).filter(|dropped| *dropped > 0) {
            tracing::warn!(dropped, "lines of the access log were dropped");
        }
        Ok(drain)
    }
}

/// The threads of the admin address.
const WORKERS: usize = 2;
/// A few scrapers and probes.
const MAX_CONNECTIONS: usize = 64;
