//! `polyserve serve`: one server over one repo, until SIGINT or SIGTERM, or until SIGHUP if there is nothing that it could reload.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use polyserve::admin::ENTITY_OPENAPI;
use polyserve::catalog::{Catalog, Entry, RepoEntry, ServerEntry, ServiceEntry};
use polyserve::env::{ETAGS, HANDOVER, READY, STRICT_MEDIA_TYPE, Settings, switch, warn_of_left_out};
use polyserve::memory::StdMutex;
use polyserve::signals::Signals;
use polyserve::trace::Traced;
use polyserve::{
    Drain, Entity, EntityRepo, Identifiable as _, ListenOn, MAX_STATUS_WAIT, Routes, Server, ServerConfig,
    ServerExt as _, Service, TlsConfig,
};
use polyserve_bench::Misuse;
use polyserve_bench::delayed::Delayed;
use polyserve_bench::limits::raise_descriptors;
use polyserve_bench::output::{print, print_json};
use polyserve_bench::services::Page;
use polyserve_bench::spin::{BlockingWait, ServiceTimes, Spin};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use serde_json::json;

use super::access::{Access, AccessArgs};
use super::admin::{AdminArgs, ServeOperation, given};
use super::handover::{Listeners, Offer, PresentProcess, check_path};
use super::reload;
use super::systemd;
use super::times::time;
use super::tls::TlsArgs;
use crate::config_args::ConfigArgs;

/// The arguments of `polyserve serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// A file of settings in TOML: each flag is a key, with _ in place of -, such as `max_connections = 1000`. A flag and a
    /// POLYSERVE_ variable take precedence. [env: POLYSERVE_CONFIG] [default: none]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the settings of the flags, the environment and the file, with the files that they name, and end. The repo is not
    /// opened.
    #[arg(long)]
    check_config: bool,
    /// Take over the listeners of the process that serves with this socket, if there is one; it drains and ends, and no
    /// connection is refused. Then offer them at the socket to the next process. Entities in memory are lost, as with any restart.
    /// [env: POLYSERVE_HANDOVER] [default: none]
    #[arg(long, value_name = "SOCKET")]
    handover: Option<String>,
    /// The server: how connections become work; or a reference. See `polyserve list`.
    #[arg(long, value_name = "S", default_value = "pool_server")]
    server: String,
    /// The repo: how data is shared. `durable:PATH` keeps the entities in the directory PATH, which may begin with `~/`; `etcd:URL,...`,
    /// `redis_cluster:URL,...` and `postgres:URL` keep them in an engine, with the password in ETCDCTL_USER (NAME:PASSWORD),
    /// REDISCLI_AUTH or PGPASSWORD. https://, rediss:// and ?sslmode=verify-full&sslrootcert=FILE speak TLS, with the authorities in the
    /// file of ETCDCTL_CACERT or REDISCLI_CACERT, and a certificate in those of ..._CERT and ..._KEY. See `polyserve list`.
    #[arg(long, value_name = "R", default_value = "sharded")]
    repo: String,
    /// The service: how requests are answered.
    #[arg(long, value_name = "NAME", default_value = "entity")]
    service: String,
    /// The address to listen on, HOST:PORT. Port 0 takes a free port. A socket that systemd passes takes its place. Beyond loopback,
    /// it needs TLS with --tokens or client certificates, or --trust-network.
    /// [env: POLYSERVE_LISTEN, then TCP_ADDRESS] [default: 127.0.0.1:8001]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// One request in this number of requests waits; 0 is none. With `--service page`. [default: 10]
    #[arg(long, value_name = "N")]
    page_every: Option<u64>,
    /// The length of a wait. With `--service page`. [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    page_wait: Option<Duration>,
    /// A file that is read for each request, instead of the page in memory. With `--service page`.
    #[arg(long, value_name = "PATH")]
    page_file: Option<PathBuf>,
    /// Answer 415 to a PUT with a Content-Type other than JSON, and to a PATCH with one other than
    /// application/merge-patch+json. With `--service entity`.
    /// [env: POLYSERVE_STRICT_MEDIA_TYPE] [default: false]
    #[arg(long)]
    strict_media_type: bool,
    /// Answer with entity tags. Without tags, a list of tags in If-Match or If-None-Match names no entity. With
    /// `--service entity`. [env: POLYSERVE_ETAGS] [default: off]
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    etags: Option<bool>,
    /// The path of a health check, such as /readyz: it answers 200, or 503 if the repo takes no writes. In a drain, a request on
    /// an open connection gets 503, and a new connection is refused.
    /// [env: POLYSERVE_READY] [default: none]
    #[arg(long, value_name = "PATH")]
    ready: Option<String>,
    /// The time that the repo takes for each answer, like a store in another process. A new entity is stored at once.
    #[arg(long, value_name = "TIME", value_parser = time)]
    repo_delay: Option<Duration>,
    /// The time for which each request blocks its thread, like a client library without deferred answers.
    #[arg(long, value_name = "TIME", value_parser = time)]
    blocking_wait: Option<Duration>,
    /// Make a new, empty repo at the location, and remove it at the end: for measurements.
    #[arg(long, hide = true)]
    temporary_repo: bool,
    /// Waste this number of nanoseconds of CPU time in each request: the positive control of a comparison.
    #[arg(long, value_name = "NS", hide = true)]
    spin: Option<u64>,
    /// The times of --blocking-wait and --spin vary, with an exponential distribution. The given ones are their means.
    #[arg(long, hide = true)]
    times_vary: bool,
    /// Drain when standard input ends too: the server then ends with the process that started it.
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    settings: ConfigArgs,
}

/// The service over the repo.
const ENTITY: &str = "entity";

/// The max delay.
const LONGEST_DELAY: Duration = Duration::from_secs(3600);

pub(crate) fn run(catalog: &Catalog, args: &ServeArgs, json: bool) -> anyhow::Result<ExitCode> {
    let (tls, access) = (args.tls.config()?, args.access.access(args.tls.has_client_ca()?)?);
    reload::watch(tls.as_ref(), access.tokens.as_ref())?; // before the other signals, so that SIGHUP reads the files again
    let mut signals = Signals::register().map_err(explained).context("the signals cannot be taken over")?;
    let mut plan = Plan::checked(catalog, args, tls, access)?;
    if args.check_config {
        if json { print_json(&json!({ "usable": true })) } else { print("the configuration can be used\n") }?;
        return Ok(ExitCode::SUCCESS);
    }
    // A signal ends these two steps: there is nothing to drain yet.
    let Some(sockets) = plan.take_sockets(&mut signals)? else { return ended(&Drain::default(), None, json) };
    let Some(repo) = open_repo(&plan.repo, args, &mut signals, sockets.present.as_ref())? else {
        return ended(&Drain::default(), None, json);
    };
    plan.serve(sockets, repo, signals, json)
}

/// What is to be served. All flags and variables were checked, and no repo is opened.
struct Plan<'a> {
    args: &'a ServeArgs,
    access: Access,
    operation: ServeOperation,
    settings: Settings,
    /// The path of the health check.
    ready_path: Option<String>,
    /// The socket that systemd has passed.
    passed: Option<TcpListener>,
    /// The address of `passed`, or that of the settings.
    addr: SocketAddr,
    server: Box<dyn Server>,
    repo: RepoEntry,
    service: ServiceEntry,
    /// The path of the socket of the handover.
    handover: Option<PathBuf>,
}

/// The sockets of a server that is about to start.
struct Sockets {
    entities: ListenOn,
    /// The listener of the admin address, if it is bound already.
    admin: Option<TcpListener>,
    /// The listeners for the next process.
    offered: Option<Listeners>,
    /// The process that serves until now.
    present: Option<Arc<PresentProcess>>,
}

impl<'a> Plan<'a> {
    fn checked(catalog: &Catalog, args: &'a ServeArgs, tls: Option<TlsConfig>, access: Access) -> anyhow::Result<Self> {
        let catalog = with_entity_options(with_page(catalog, args)?, args)?;
        let ready_path = ready_path(args)?;
        let operation = args.admin.operation(args.check_config)?;
        let passed = systemd::passed_listener(args.listen.is_some())?;
        let mut settings = args.settings.settings(args.listen.as_deref())?;
        settings.config.tls = tls;
        if let Some(path) = &ready_path {
            settings.config.overload = settings.config.overload.map(|overload| overload.open_path(path.as_str()));
        }
        let addr = passed.as_ref().map_or(Ok(settings.listen), TcpListener::local_addr)?;
        let has_tls = settings.config.tls.is_some();
        check_access(args, &access, addr, operation.address()?, has_tls)?;
        let server = checked_server(&catalog, &args.server, &access, has_tls)?;
        let server = settings.make(|config| server.build(&operation.observe(config)))?;
        for (flag, time) in [("--repo-delay", args.repo_delay), ("--blocking-wait", args.blocking_wait)] {
            if let Some(time) = time.filter(|time| *time > LONGEST_DELAY) {
                return Err(Misuse(format!("{flag} {time:?} is more than an hour")).into());
            }
        }
        let (repo, service) = (catalog.repo(&args.repo)?, catalog.service(&args.service)?.clone());
        let handover = handover_path(args, passed.is_some())?;
        Ok(Self { args, access, operation, settings, ready_path, passed, addr, server, repo, service, handover })
    }

    /// Returns the sockets: that of systemd, or those of the process that serves until now. Addresses are bound here only for a handover.
    /// Returns `None` after a signal.
    fn take_sockets(&mut self, signals: &mut Signals) -> anyhow::Result<Option<Sockets>> {
        let Some(path) = self.handover.clone() else {
            let entities = self.passed.take().map_or(ListenOn::Addr(self.settings.listen), ListenOn::Listener);
            return Ok(Some(Sockets { entities, admin: None, offered: None, present: None }));
        };
        let (addr, admin, config) = (self.settings.listen, self.operation.address()?, self.settings.config.clone());
        // The process before may be stopped, and answers late or never.
        let taken = signals.unless_signalled(move || Listeners::take(&path, addr, admin, &config))?;
        let Some((listeners, present)) = taken.transpose()? else { return Ok(None) };
        let offered = Some(listeners.try_clone()?);
        let (entities, admin) = (ListenOn::Listener(listeners.entities), listeners.admin);
        Ok(Some(Sockets { entities, admin, offered, present: present.map(Arc::new) }))
    }

    /// Serves until the end of the drain, and prints what was answered.
    fn serve(
        mut self,
        sockets: Sockets,
        repo: Arc<dyn EntityRepo>,
        signals: Signals,
        json: bool,
    ) -> anyhow::Result<ExitCode> {
        let repo = match self.args.repo_delay {
            Some(delay) => Arc::new(Delayed::new(repo, delay)),
            None => repo,
        };
        let repo = self.operation.observe_store(repo);
        let service = self.service(&repo)?;
        let has_entities = self.args.service == ENTITY;
        warn_of_descriptors(&self.settings.config);
        if self.args.until_stdin_ends {
            end_with_stdin()?;
        }

        let openapi = has_entities.then_some(ENTITY_OPENAPI);
        let admin = self.operation.start(Arc::clone(&repo), sockets.admin, openapi)?;
        let running = self.server.serve(sockets.entities, service).map_err(explained);
        let running = running.with_context(|| format!("cannot serve on {}", self.addr))?;
        self.operation.watch(&self.args.server, &running);
        let offer = match self.handover.as_ref().zip(sockets.offered) {
            Some((path, listeners)) => {
                match Offer::new(path, listeners, self.settings.config.drain_grace) {
                    // The process before has ended, so this one must serve.
                    Err(error) if sockets.present.is_some() => {
                        tracing::error!("{error:#}");
                        None
                    }
                    offer => Some(offer?),
                }
            }
            None => None,
        };
        let has_tls = self.settings.config.tls.is_some();
        let scheme = if has_tls { "https" } else { "http" };
        announce(&format!("{scheme}://{}", running.local_addr()), admin.as_deref(), json)?;

        self.operation.notify_ready(&running, has_tls);
        let drain = self.operation.drain(signals, running, offer)?;
        // An engine that is away must not hold the end.
        let counted = has_entities.then(|| repo.len().wait_until(Instant::now() + MAX_STATUS_WAIT));
        let entities = counted.and_then(Result::ok).and_then(Result::ok);
        ended(&drain, entities, json)
    }

    /// Returns the service over `repo`, with all layers. A request passes first through the layer that is added last.
    fn service(&self, repo: &Arc<dyn EntityRepo>) -> anyhow::Result<Arc<dyn Service>> {
        let ready_path = self.ready_path.as_deref();
        let mut service = self.service.build(Arc::clone(repo));
        if let Some(path) = ready_path {
            let ready = Routes::new().ready(path, Arc::clone(repo))?;
            service = self.operation.ready(path, ready.otherwise(service));
        }
        let times = |mean: Duration| match self.args.times_vary {
            true => ServiceTimes::exponential(mean),
            false => mean.into(),
        };
        if let Some(nanoseconds) = self.args.spin {
            service = Arc::new(Spin::new(service, times(Duration::from_nanos(nanoseconds))));
        }
        if let Some(time) = self.args.blocking_wait {
            service = Arc::new(BlockingWait::new(service, times(time)));
        }
        service = self.access.over(service, ready_path, &self.operation.refusals())?;
        if self.operation.needs_traces() {
            let entity_paths = if self.args.service == ENTITY { ["/", "/{id}"].as_slice() } else { &["/"] };
            service = Arc::new(Traced::new(service, ready_path.into_iter().chain(entity_paths.iter().copied())));
        }
        Ok(self.operation.watched(service))
    }
}

/// Checks that other machines reach only what they may reach, and that the `admin` address has a port of its own.
fn check_access(
    args: &ServeArgs,
    access: &Access,
    addr: SocketAddr,
    admin: Option<SocketAddr>,
    has_tls: bool,
) -> anyhow::Result<()> {
    let has_client_ca = args.tls.has_client_ca()?;
    access.check_address(addr, has_tls, has_client_ca)?;
    if let Some(admin) = admin {
        access.check_admin(admin)?;
        if admin == addr && addr.port() != 0 {
            let why = format!("the admin address {admin} is the address to serve on: it needs another port");
            return Err(Misuse(why).into());
        }
    }
    Ok(())
}

/// Returns the server or the reference `name`, unless it is a reference and cannot do what the settings ask for.
fn checked_server(catalog: &Catalog, name: &str, access: &Access, has_tls: bool) -> anyhow::Result<ServerEntry> {
    let unknown = match catalog.server(name) {
        Ok(server) => return Ok(server.clone()),
        Err(unknown) => unknown, // it lists the servers
    };
    let reference = catalog.reference(name).map_err(|_| unknown)?;
    access.check_reference(name)?;
    if has_tls {
        return Err(Misuse(format!("the reference {name} does not speak TLS: leave --tls-cert out")).into());
    }
    Ok(reference.clone())
}

/// Returns the path of the socket of the handover, if there is one.
fn handover_path(args: &ServeArgs, has_passed_listener: bool) -> Result<Option<PathBuf>, Misuse> {
    let Some((source, path)) = given("--handover", args.handover.as_deref(), HANDOVER)? else { return Ok(None) };
    check_path(source, path.as_ref())?;
    if has_passed_listener {
        return Err(Misuse(format!("the process was given a socket to listen on: leave {source} out")));
    }
    Ok(Some(PathBuf::from(path)))
}

/// Prints that the server answers at `url`, and the admin address at `admin`.
fn announce(url: &str, admin: Option<&str>, json: bool) -> io::Result<()> {
    print_in_time(match (json, admin) {
        (true, None) => format!("{}\n", json!({ "listening": url })),
        (true, Some(admin)) => format!("{}\n", json!({ "listening": url, "admin": admin })),
        (false, None) => format!("listening on {url}\n"),
        (false, Some(admin)) => format!("listening on {url}\nadmin on {admin}\n"),
    })
}

/// The max time in which a text is printed.
const MAX_PRINT: Duration = Duration::from_secs(2);

/// Prints `text`, and goes on after [`MAX_PRINT`]: a pipe that is not read must hold neither the server nor its end.
fn print_in_time(text: String) -> io::Result<()> {
    let (end, ended) = sync_channel(1);
    let work = move || drop(end.send(print(&text))); // an error: nothing waits for it
    thread::Builder::new().name("polyserve-print".into()).spawn(work).map_err(explained)?;
    ended.recv_timeout(MAX_PRINT).unwrap_or_else(|_| {
        tracing::warn!("standard output is not read");
        Ok(())
    })
}

/// Names the limits if the system has refused a thread: its own error is "Resource temporarily unavailable".
pub(crate) fn explained(error: io::Error) -> io::Error {
    if error.raw_os_error() != Some(Errno::AGAIN.raw_os_error()) {
        return error;
    }
    let why = format!(
        "the system refuses to start a thread ({error}). Use fewer --workers, or raise the limit of threads (`ulimit -u`, or TasksMax= \
         and pids.max of the cgroup) or of memory (`ulimit -v`)"
    );
    io::Error::new(error.kind(), why)
}

/// Opens the repo, and then makes the `present` process drain; in the other order if only one process can have the repo. Returns `None`
/// after a signal.
fn open_repo(
    entry: &RepoEntry,
    args: &ServeArgs,
    signals: &mut Signals,
    present: Option<&Arc<PresentProcess>>,
) -> anyhow::Result<Option<Arc<dyn EntityRepo>>> {
    // The location may have a password, so the message does not show it.
    let kind = args.repo.split(':').next().unwrap_or_default();
    let cannot_open = || format!("the repo {kind} cannot be opened");
    // The load of a large store takes seconds, and there is nothing to drain before its end. A temporary repo is empty, and must
    // be removed.
    let open = |signals: &mut Signals| match args.temporary_repo {
        true => Ok(Some(entry.build())),
        false => signals.unless_signalled({
            let entry = entry.clone();
            move || entry.open()
        }),
    };
    let mut opened = open(signals).with_context(cannot_open)?;
    if let Some(present) = present {
        let drain = {
            let present = Arc::clone(present);
            move || present.drain()
        };
        let is_busy = |error: &io::Error| error.kind() == io::ErrorKind::ResourceBusy;
        if opened.as_ref().is_some_and(|opened| opened.as_ref().err().is_none_or(is_busy)) {
            let Some(drained) = signals.unless_signalled(drain)? else { return Ok(None) };
            drained?;
            if matches!(opened, Some(Err(_))) {
                opened = open(signals).with_context(cannot_open)?;
            }
        }
    }
    opened.transpose().with_context(cannot_open)
}

/// Prints what was answered.
fn ended(drain: &Drain, entities: Option<u64>, json: bool) -> anyhow::Result<ExitCode> {
    let Drain { answered, cut, stuck, .. } = drain;
    let counts = json!({ "answered": answered, "cut": cut, "stuck": stuck, "entities": entities });
    print_in_time(if json { format!("{counts}\n") } else { format!("{drain}\n") })?;
    Ok(ExitCode::SUCCESS)
}

/// Sends this process a SIGTERM when standard input has ended.
fn end_with_stdin() -> anyhow::Result<()> {
    let wait = || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink()); // an error is an end
        let _ = kill_process(getpid(), Signal::TERM);
    };
    thread::Builder::new().name("stdin".into()).spawn(wait).context("no thread to wait for the end of input")?;
    Ok(())
}

/// The catalog, with a page that has the options of the arguments.
fn with_page(catalog: &Catalog, args: &ServeArgs) -> Result<Catalog, Misuse> {
    const PAGE: &str = "page";
    if args.page_every.is_none() && args.page_wait.is_none() && args.page_file.is_none() {
        return Ok(catalog.clone());
    }
    if args.service != PAGE {
        return Err(Misuse("--page-every, --page-wait and --page-file are for --service page".into()));
    }
    let (every, wait) = (args.page_every.unwrap_or(10), args.page_wait.unwrap_or(Duration::from_secs(2)));
    let mut page = Page::new(every, wait);
    if let Some(path) = &args.page_file {
        let wrong = |error| Misuse(format!("--page-file {} cannot be read: {error}", path.display()));
        page = page.from_file(path).map_err(wrong)?;
    }
    let page = Arc::new(page);
    let page = Entry::service(PAGE, "GET / is a small page", &[], move |_| page.clone());
    Ok(catalog.clone().with_service(page))
}

/// The catalog, with an entity service that has the options of the arguments and the environment.
fn with_entity_options(catalog: Catalog, args: &ServeArgs) -> anyhow::Result<Catalog> {
    let is_entity = args.service == ENTITY;
    for (flag, is_set) in [("--strict-media-type", args.strict_media_type), ("--etags", args.etags.is_some())] {
        if is_set && !is_entity {
            return Err(Misuse(format!("{flag} is for --service entity")).into());
        }
    }
    let from_environment = |variable: &'static str| -> anyhow::Result<bool> {
        let is_on = switch(variable, std::env::var_os(variable))?;
        if is_on && !is_entity {
            warn_of_left_out(variable, &format!("the service {} does not have this setting", args.service));
        }
        Ok(is_on && is_entity)
    };
    let strict = args.strict_media_type || from_environment(STRICT_MEDIA_TYPE)?;
    let etags = match args.etags {
        Some(etags) => etags,
        None => from_environment(ETAGS)?,
    };
    if !strict && !etags {
        return Ok(catalog);
    }
    Ok(catalog.with_service(Entry::entity(move |service| service.strict_media_type(strict).etags(etags))))
}

/// Returns the path of the health check.
fn ready_path(args: &ServeArgs) -> Result<Option<String>, Misuse> {
    let Some((source, path)) = given("--ready", args.ready.as_deref(), READY)? else { return Ok(None) };
    if args.service == ENTITY
        && let Some(id) = path.strip_prefix('/').and_then(Entity::parse_id)
    {
        return Err(Misuse(format!("{source} {path:?} is the path of entity {id}: use a path such as /readyz")));
    }
    match Routes::new().ready(path.as_str(), StdMutex::<Entity>::new()) {
        Ok(_) => Ok(Some(path)),
        Err(_) => Err(Misuse(format!("{source} {path:?} must be a path such as /readyz"))),
    }
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(String::from("it must be on or off")),
    }
}

fn warn_of_descriptors(config: &ServerConfig) {
    let (limit, wanted) = (raise_descriptors(), config.max_connections as u64);
    if limit <= wanted {
        tracing::warn!(limit, wanted, "the limit on open descriptors is lower than the max number of connections");
    }
}
