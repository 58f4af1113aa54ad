//! `polyserve load`: requests to any HTTP/1.1 server, every answer verified.

mod report;
pub(crate) mod requests;
pub(crate) mod url;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use polyserve::files::{MAX_CONTENT, read_bounded};
use polyserve_load::{CpuSource, Load, LoadProgress, Mix, Pace, RunLength, Traffic, prefill_for, run as run_load};

use super::client_tls::ClientTlsArgs;
use super::session::on_signal;
use super::times::{time, within};
use super::workload::{WorkloadArgs, misuse};
use polyserve_bench::Misuse;
use polyserve_bench::limits;
use polyserve_bench::machine::cores::Cores;
use polyserve_bench::output::{print_json, print_text};
use report::LoadSummary;
use requests::FileServer;
use url::Url;

/// The arguments of `polyserve load`.
#[derive(Debug, clap::Args)]
pub(crate) struct LoadArgs {
    /// The target: http://HOST:PORT/PATH, or https://HOST:PORT/PATH. Several targets on one server are requested in turn. With --keys or --mix, an entity
    /// server; with --file, the server of its requests.
    #[arg(value_name = "URL", required_unless_present = "file")]
    urls: Vec<Url>,
    /// The method. [default: GET, with a body POST]
    #[arg(long, short = 'X', value_name = "METHOD", value_parser = requests::method, conflicts_with_all = ["mix", "keys", "put", "file"])]
    method: Option<String>,
    /// A header field of each request: 'NAME: VALUE', or 'NAME;' without a value. Can be repeated. A Host replaces that of the URL.
    /// A request of --file keeps the fields that it has. With --keys and --mix, there is no Host and no Content-Type of your own.
    #[arg(long, short = 'H', value_name = "FIELD", value_parser = requests::header)]
    header: Vec<(String, String)>,
    /// The body of each request; @FILE for the content of a file, @- for standard input. Several are joined by &. No Content-Type
    /// is added.
    #[arg(long, value_name = "DATA", allow_hyphen_values = true, conflicts_with_all = ["mix", "keys", "put", "file"])]
    data: Vec<String>,
    /// The same as --data; or as --duration, if it is a time with a unit, such as 10s.
    #[arg(short = 'd', value_name = "DATA|TIME", allow_hyphen_values = true)]
    data_or_duration: Vec<String>,
    /// Send the requests of this file. Each line is JSON: {"url": "/1", "method": "PUT", "headers": {"Accept": "*/*"},
    /// "body": "...", "weight": 3, "status": 200}. All fields but url can be left out; body_file names a file with the body. A list
    /// in headers repeats a field. With "id": "1-1000", a number of this range replaces {id} in url and body. Lines that begin
    /// with # are comments.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["mix", "keys", "put"])]
    file: Option<PathBuf>,
    /// A goal: at most this time for 99 % of the requests. The exit code is 0 if it is met, and 1 if not. At a fixed --rate, the
    /// time begins when a request is due; in a closed loop, when it is sent. A load that a signal ended has no verdict.
    #[arg(long, value_name = "TIME", value_parser = time)]
    p99: Option<Duration>,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// The number of client threads.
    #[arg(long, short, value_name = "T", default_value_t = 1)]
    threads: usize,
    /// Open loop: the number of requests a second, independent of the answers. A latency begins when its request is due.
    /// [default: closed loop]
    #[arg(long, value_name = "R")]
    rate: Option<f64>,
    /// Send PUT requests with this file as JSON.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["mix", "keys"])]
    put: Option<PathBuf>,
    /// The duration of the measurement. [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "requests")]
    duration: Option<Duration>,
    /// The number of measured requests.
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// The duration of the same load before the measurement.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0s")]
    warm_up: Duration,
    /// The timeout of an answer and of a connect.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "10s")]
    timeout: Duration,
    /// The cores of the client threads, which are pinned to them in turn: 1, or 0-3,6. [default: none]
    #[arg(long, value_name = "CORES")]
    cores: Option<Cores>,
    #[command(flatten)]
    tls: ClientTlsArgs,
    /// The process id of the server. The report then has its CPU time.
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
}

pub(crate) fn run(args: &LoadArgs, json: bool) -> anyhow::Result<ExitCode> {
    let (mut load, url) = load(args)?;
    load.validate().map_err(misuse)?;
    limits::check_connections(load.connections, limits::connections(2 * load.threads as u64))?;
    load.stop = on_signal()?;
    prefill_for(&load).map_err(misuse)?;
    let progress_line = ProgressLine::new(&load);
    let report = run_load(&load, &mut |progress| progress_line.show(progress)).map_err(misuse)?;
    progress_line.bar.finish_and_clear();
    let is_stopped = load.stop.is_begun();
    let summary = LoadSummary::new(url, &load, &report, args.p99, is_stopped);
    if json { print_json(&summary) } else { print_text(&summary) }?;
    // A load that a signal ended has its exit code.
    let is_right = report.is_clean() || (is_stopped && report.failed.total() == 0);
    Ok(if is_right && !summary.is_goal_missed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);
const NANOSECOND: Duration = Duration::from_nanos(1);

/// The load, and the name of its target.
fn load(args: &LoadArgs) -> anyhow::Result<(Load, String)> {
    let Short { data, duration } = short(args)?;
    within("--warm-up", args.warm_up, Duration::ZERO..=MONTH)?;
    within("--timeout", args.timeout, Duration::from_millis(1)..=MONTH)?;
    args.p99.map_or(Ok(()), |goal| within("--p99", goal, NANOSECOND..=MONTH))?;
    duration.map_or(Ok(()), |time| within("--duration", time, NANOSECOND..=MONTH))?;
    let (server, traffic) = traffic(args, &data)?;
    let traffic = traffic.seed(args.workload.random.seed);
    let name = match &args.file {
        Some(file) => format!("{}, requests of {}", server.origin(), file.display()),
        None => args.urls.iter().map(Url::to_string).collect::<Vec<_>>().join(" "),
    };
    let tls = args.tls.client(&server)?;
    let mut load = Load::new(server.reach(args.timeout)?, traffic);
    load.host = server.host().to_owned();
    load.tls = tls;
    (load.connections, load.threads) = (args.workload.connections, args.threads);
    load.cores = args.cores.as_ref().map_or_else(Vec::new, |cores| cores.numbers().to_vec());
    load.pace = args.rate.map_or(Pace::Closed, Pace::Rate);
    if args.workload.arrivals.is_some() && args.rate.is_none() {
        return Err(Misuse("--arrivals is for a fixed rate: set --rate too".into()).into());
    }
    load.arrivals = args.workload.arrivals.unwrap_or_default();
    load.usage = args.workload.usage();
    load.length = match (args.requests, duration) {
        (Some(requests), _) => RunLength::Requests(requests),
        (None, time) => RunLength::Time(time.unwrap_or(Duration::from_secs(10))),
    };
    (load.warm_up, load.timeout) = (args.warm_up, args.timeout);
    load.cpu = args.server_pid.map_or(CpuSource::Unknown, CpuSource::Process);
    Ok((load, name))
}

/// The parts of the body, and the duration, whether given by their long flags or by `-d`.
struct Short {
    data: Vec<String>,
    duration: Option<Duration>,
}

/// Sorts the values of `-d`, which was the short flag of the duration first: a time with a unit is a duration.
fn short(args: &LoadArgs) -> Result<Short, Misuse> {
    let mut short = Short { data: args.data.clone(), duration: args.duration };
    for text in &args.data_or_duration {
        let time = humantime::parse_duration(text).ok().filter(|_| text.bytes().any(|byte| byte.is_ascii_alphabetic()));
        match time {
            None if !args.data.is_empty() => {
                return Err(Misuse(format!(
                    "-d {text}: the parts of a body have an order: use --data for all of them"
                )));
            }
            None => short.data.push(text.clone()),
            Some(time) if short.duration.replace(time).is_some() => {
                return Err(Misuse(format!("-d {text}: there is another duration")));
            }
            Some(_) => {}
        }
    }
    let Short { data, duration } = &short;
    if duration.is_some() && args.requests.is_some() {
        return Err(Misuse("a load has a duration or a number of requests, not both".into()));
    }
    let others = args.file.is_some() || args.put.is_some() || is_of_entities(args);
    if !data.is_empty() && others {
        return Err(Misuse("-d and --data cannot be used with --file, --put, --keys or --mix".into()));
    }
    Ok(short)
}

fn is_of_entities(args: &LoadArgs) -> bool {
    args.workload.mix.is_some() || args.workload.keys.is_some()
}

/// The server and the requests.
fn traffic(args: &LoadArgs, data: &[String]) -> anyhow::Result<(Url, Traffic)> {
    if !is_of_entities(args) && args.workload.dist.is_some() {
        return Err(Misuse("--dist needs --keys: it is the distribution of the keys".into()).into());
    }
    if let Some(file) = &args.file {
        let mut server = match args.urls.as_slice() {
            [] => None,
            [url] if url.path() == "/" => Some(url.clone()),
            _ => return Err(Misuse("with --file, there is at most one URL, and its path is /".into()).into()),
        };
        let mut requests = requests::of_file(file, FileServer::Named(&mut server))?;
        for request in &mut requests {
            let has = |name: &str| request.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
            let added: Vec<_> = args.header.iter().filter(|(name, _)| !has(name)).cloned().collect();
            request.headers.extend(added);
        }
        let Some(server) = server else {
            let why = format!("{} has no request with http://HOST:PORT: add the URL of the server", file.display());
            return Err(Misuse(why).into());
        };
        return Ok((server, Traffic::discovering(requests).map_err(misuse)?));
    }
    let [url, others @ ..] = args.urls.as_slice() else { return Err(Misuse("there is no URL".into()).into()) };
    if let Some(other) = others.iter().find(|other| other.origin() != url.origin()) {
        return Err(Misuse(format!("{other} is not on the server {}: a load has one", url.origin())).into());
    }
    if is_of_entities(args) {
        if let Some(url) = args.urls.iter().find(|url| url.path() != "/" || !others.is_empty()) {
            let path = url.path();
            let why =
                format!("--keys and --mix request entities at /{{id}}: the path must be /, not {path}, of one URL");
            return Err(Misuse(why).into());
        }
        let entities = args.workload.entities(10_000, Mix { get: 1, put: 0 }).map_err(misuse)?;
        return Ok((url.clone(), entities.with_entity_fields(&args.header).map_err(misuse)?));
    }
    let (mut method, mut headers) = (args.method.as_deref(), args.header.clone());
    let body = match &args.put {
        Some(file) => {
            method = Some("PUT");
            if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
                headers.push(("Content-Type".into(), "application/json".into()));
            }
            Some(read_bounded(file, MAX_CONTENT).map_err(|error| Misuse(format!("{}: {error}", file.display())))?)
        }
        None => requests::body(data)?,
    };
    let requests = requests::of_urls(&args.urls, method, &headers, body.as_deref());
    Ok((url.clone(), Traffic::discovering(requests).map_err(misuse)?))
}

/// The progress line. Nothing is drawn if standard error is no terminal.
struct ProgressLine {
    bar: ProgressBar,
    total: Option<Duration>,
    last: std::cell::Cell<(Duration, u64)>,
}

impl ProgressLine {
    fn new(load: &Load) -> Self {
        let style = ProgressStyle::with_template("{prefix:8} {wide_bar} {msg}");
        let bar = ProgressBar::new(1000).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let total = match load.length {
            RunLength::Time(time) => Some(load.warm_up + time),
            RunLength::Requests(_) => None,
        };
        Self { bar, total, last: std::cell::Cell::new((Duration::ZERO, 0)) }
    }

    fn show(&self, progress: &LoadProgress) {
        let (before, answered) = self.last.replace((progress.elapsed, progress.answered));
        let seconds = progress.elapsed.saturating_sub(before).as_secs_f64();
        let rate = progress.answered.saturating_sub(answered) as f64 / seconds.max(1e-9);
        let remaining = match self.total {
            Some(total) => total.saturating_sub(progress.elapsed),
            None => progress.elapsed.mul_f64((1.0 / progress.share.max(1e-6) - 1.0).min(1e6)),
        };
        self.bar.set_prefix(if progress.warming { "warm-up" } else { "load" });
        self.bar.set_position((progress.share * 1000.0) as u64);
        let remaining = HumanDuration(remaining);
        self.bar.set_message(format!("{rate:.0} requests/s, {} failed, {remaining} left", progress.failed));
    }
}
