//! `polyserve serve`: one server over one repo, until SIGINT or SIGTERM, or until SIGHUP if there is nothing that it could reload.

use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use polyserve::admin::ENTITY_OPENAPI;
use polyserve::catalog::{Catalog, Entry, RepoEntry};
use polyserve::env::{ETAGS, HANDOVER, READY, STRICT_MEDIA_TYPE, switch, warn_of_left_out};
use polyserve::memory::StdMutex;
use polyserve::signals::Signals;
use polyserve::trace::Traced;
use polyserve::{
    Drain, Entity, EntityRepo, Identifiable as _, ListenOn, MAX_STATUS_WAIT, Routes, ServerConfig, ServerExt as _,
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

use super::access::AccessArgs;
use super::admin::{AdminArgs, given};
use super::handover::{Listeners, Offer, PresentProcess, check_path};
use super::reload;
use super::systemd;
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
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
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
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    repo_delay: Option<Duration>,
    /// The time for which each request blocks its thread, like a client library without deferred answers.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
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
    let (tls, access) = (args.tls.config()?, args.access.access()?);
    reload::watch(tls.as_ref(), access.tokens.as_ref())?; // before the other signals, so that SIGHUP reads the files again
    let mut signals = Signals::register().map_err(explained).context("the signals cannot be taken over")?;
    let catalog = with_entity_options(with_page(catalog, args)?, args)?;
    let ready_path = ready_path(args)?;
    let mut operation = args.admin.operation(args.check_config)?;
    let listener = systemd::passed_listener(args.listen.is_some())?;
    let mut settings = args.settings.settings(args.listen.as_deref())?;
    settings.config.tls = tls;
    if let Some(path) = &ready_path {
        settings.config.overload = settings.config.overload.map(|overload| overload.open_path(path.as_str()));
    }
    let addr = listener.as_ref().map_or(Ok(settings.listen), TcpListener::local_addr)?;
    let has_client_ca = args.tls.has_client_ca()?;
    access.check_address(addr, settings.config.tls.is_some(), has_client_ca)?;
    if let Some(admin) = operation.address()? {
        access.check_admin(admin)?;
        if admin == addr && addr.port() != 0 {
            return Err(
                Misuse(format!("the admin address {admin} is the address to serve on: it needs another port")).into()
            );
        }
    }
    access.check_certificates(has_client_ca)?;
    // The error for an unknown name lists the servers.
    let entry = catalog.server(&args.server).or_else(|unknown| catalog.reference(&args.server).map_err(|_| unknown))?;
    if catalog.server(&args.server).is_err() {
        access.check_reference(&args.server)?;
        if settings.config.tls.is_some() {
            return Err(
                Misuse(format!("the reference {} does not speak TLS: leave --tls-cert out", args.server)).into()
            );
        }
    }
    let server = settings.make(|config| entry.build(&operation.observe(config)))?;
    for (flag, time) in [("--repo-delay", args.repo_delay), ("--blocking-wait", args.blocking_wait)] {
        if let Some(time) = time.filter(|time| *time > LONGEST_DELAY) {
            return Err(Misuse(format!("{flag} {time:?} is more than an hour")).into());
        }
    }
    let (entry, service) = (catalog.repo(&args.repo)?, catalog.service(&args.service)?);
    let handover = given("--handover", args.handover.as_deref(), HANDOVER)?;
    if let Some((source, path)) = &handover {
        check_path(source, path.as_ref())?;
    }
    if listener.is_some()
        && let Some((source, _)) = &handover
    {
        return Err(Misuse(format!("the process was given a socket to listen on: leave {source} out")).into());
    }
    if args.check_config {
        if json { print_json(&json!({ "usable": true })) } else { print("the configuration can be used\n") }?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut on = listener.map_or(ListenOn::Addr(settings.listen), ListenOn::Listener);
    let (mut admin_listener, mut present, mut offered) = (None, None, None);
    if let Some((_, path)) = handover {
        let (path, admin) = (PathBuf::from(path), operation.address()?);
        let take = {
            let (path, addr, config) = (path.clone(), settings.listen, settings.config.clone());
            move || Listeners::take(&path, addr, admin, &config)
        };
        // The process before may be stopped, and answers late or never.
        let Some(taken) = signals.unless_signalled(take)? else { return ended(&Drain::default(), None, json) };
        let (listeners, process) = taken?;
        offered = Some((listeners.try_clone()?, path));
        (on, admin_listener, present) =
            (ListenOn::Listener(listeners.entities), listeners.admin, process.map(Arc::new));
    }
    let Some(mut repo) = open_repo(&entry, args, &mut signals, present.as_ref())? else {
        return ended(&Drain::default(), None, json);
    };
    if let Some(delay) = args.repo_delay {
        repo = Arc::new(Delayed::new(repo, delay));
    }
    let repo = operation.observe_store(repo);
    let store = Arc::clone(&repo);
    let mut service = service.build(repo);
    if let Some(path) = &ready_path {
        let ready = Routes::new().ready(path.as_str(), Arc::clone(&store))?;
        service = operation.ready(path, ready.otherwise(service));
    }
    let times = |mean: Duration| match args.times_vary {
        true => ServiceTimes::exponential(mean),
        false => mean.into(),
    };
    if let Some(nanoseconds) = args.spin {
        service = Arc::new(Spin::new(service, times(Duration::from_nanos(nanoseconds))));
    }
    if let Some(time) = args.blocking_wait {
        service = Arc::new(BlockingWait::new(service, times(time)));
    }
    service = access.over(service, ready_path.as_deref(), &operation.refusals())?;
    if operation.needs_traces() {
        let entity_paths = if args.service == ENTITY { ["/", "/{id}"].as_slice() } else { &["/"] };
        service = Arc::new(Traced::new(service, ready_path.as_deref().into_iter().chain(entity_paths.iter().copied())));
    }
    warn_of_descriptors(&settings.config);
    if args.until_stdin_ends {
        end_with_stdin()?;
    }

    let admin =
        operation.start(Arc::clone(&store), admin_listener, (args.service == ENTITY).then_some(ENTITY_OPENAPI))?;
    let running = server.serve(on, service).map_err(explained).with_context(|| format!("cannot serve on {addr}"))?;
    let scheme = if settings.config.tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{}", running.local_addr());
    operation.watch(&args.server, &running);
    let offer = offered.map(|(listeners, path)| Offer::new(&path, listeners, settings.config.drain_grace));
    let offer = match offer.transpose() {
        // The process before has ended, so this one must serve.
        Err(error) if present.is_some() => {
            tracing::error!("{error:#}");
            None
        }
        offer => offer?,
    };
    match (json, admin) {
        (true, None) => print_json(&json!({ "listening": url })),
        (true, Some(admin)) => print_json(&json!({ "listening": url, "admin": admin })),
        (false, None) => print(&format!("listening on {url}\n")),
        (false, Some(admin)) => print(&format!("listening on {url}\nadmin on {admin}\n")),
    }?;

    let drain = operation.drain(signals, running, offer)?;
    // An engine that is away must not hold the end.
    let counted = (args.service == ENTITY).then(|| store.len().wait_until(Instant::now() + MAX_STATUS_WAIT));
    let entities = counted.and_then(Result::ok).and_then(Result::ok);
    ended(&drain, entities, json)
}

/// Names the limits if the system has refused a thread: its own error is "Resource temporarily unavailable".
pub(super) fn explained(error: io::Error) -> io::Error {
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
    if json { print_json(&counts) } else { print(&format!("{drain}\n")) }?;
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
