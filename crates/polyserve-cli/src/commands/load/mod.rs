//! `polyserve load`: requests to any HTTP/1.1 server, every answer verified.

mod report;
pub(crate) mod url;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use polyserve_load::{CpuSource, Load, LoadProgress, Mix, Pace, RunLength, Traffic, prefill_for, run as run_load};

use super::session::on_signal;
use super::workload::{WorkloadArgs, misuse};
use polyserve_lab::Misuse;
use polyserve_lab::limits;
use polyserve_lab::machine::cores::Cores;
use polyserve_lab::output::{print_json, print_text};
use report::LoadSummary;
use url::Url;

/// The arguments of `polyserve load`.
#[derive(Debug, clap::Args)]
pub(crate) struct LoadArgs {
    /// The target: http://HOST:PORT/PATH. With --keys or --mix, an entity server.
    url: Url,
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
    #[arg(long, short, value_name = "TIME", value_parser = humantime::parse_duration, conflicts_with = "requests")]
    duration: Option<Duration>,
    /// The number of measured requests.
    #[arg(long, short = 'n', value_name = "N")]
    requests: Option<u64>,
    /// The duration of the same load before the measurement.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "0s")]
    warm_up: Duration,
    /// The timeout of an answer and of a connect.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "10s")]
    timeout: Duration,
    /// The cores of the client threads, which are pinned to them in turn: 1, or 0-3,6. [default: none]
    #[arg(long, value_name = "CORES")]
    cores: Option<Cores>,
    /// The process id of the server. The report then has its CPU time.
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
}

pub(crate) fn run(args: &LoadArgs, json: bool) -> anyhow::Result<ExitCode> {
    let mut load = load(args)?;
    load.validate().map_err(misuse)?;
    limits::check_connections(load.connections, limits::connections(2 * load.threads as u64))?;
    load.stop = on_signal()?;
    prefill_for(&load).map_err(misuse)?;
    let progress_line = ProgressLine::new(&load);
    let report = run_load(&load, &mut |progress| progress_line.show(progress)).map_err(misuse)?;
    progress_line.bar.finish_and_clear();
    let summary = LoadSummary::new(args.url.to_string(), &load, &report);
    if json { print_json(&summary) } else { print_text(&summary) }?;
    let is_stopped_early = load.stop.is_begun() && report.failed.total() == 0;
    Ok(if report.is_clean() || is_stopped_early { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn load(args: &LoadArgs) -> anyhow::Result<Load> {
    let target = polyserve::net::resolve(args.url.address())
        .map_err(|error| Misuse(format!("{} cannot be reached: {error}", args.url)))?;
    let mut load = Load::new(target, traffic(args)?);
    load.host = args.url.host().to_owned();
    (load.connections, load.threads) = (args.workload.connections, args.threads);
    load.cores = args.cores.as_ref().map_or_else(Vec::new, |cores| cores.numbers().to_vec());
    load.pace = args.rate.map_or(Pace::Closed, Pace::Rate);
    if args.workload.arrivals.is_some() && args.rate.is_none() {
        return Err(Misuse("--arrivals is for a fixed rate: set --rate too".into()).into());
    }
    load.arrivals = args.workload.arrivals.unwrap_or_default();
    load.usage = args.workload.usage();
    load.length = match (args.requests, args.duration) {
        (Some(requests), _) => RunLength::Requests(requests),
        (None, time) => RunLength::Time(time.unwrap_or(Duration::from_secs(10))),
    };
    (load.warm_up, load.patience) = (args.warm_up, args.timeout);
    load.cpu = args.server_pid.map_or(CpuSource::Unknown, CpuSource::Process);
    Ok(load)
}

fn traffic(args: &LoadArgs) -> anyhow::Result<Traffic> {
    let WorkloadArgs { mix, keys, dist, .. } = &args.workload;
    if mix.is_none() && keys.is_none() {
        if dist.is_some() {
            return Err(Misuse("--dist needs --keys: it is the distribution of the keys".into()).into());
        }
        let traffic = match &args.put {
            None => Traffic::one("GET", args.url.path(), None, None),
            Some(file) => {
                let body = std::fs::read(file).map_err(|error| Misuse(format!("{}: {error}", file.display())))?;
                Traffic::one("PUT", args.url.path(), Some(&body), Some("application/json"))
            }
        };
        return traffic.map_err(misuse);
    }
    if args.url.path() != "/" {
        let path = args.url.path();
        return Err(
            Misuse(format!("--keys and --mix request entities at /{{id}}: the path must be /, not {path}")).into()
        );
    }
    args.workload.entities(10_000, Mix { get: 1, put: 0 }).map_err(misuse)
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
