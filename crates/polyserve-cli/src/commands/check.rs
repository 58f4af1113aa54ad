//! `polyserve check`: whether the answers to concurrent clients of a server over a repo are linearizable.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use polyserve::catalog::Catalog;
use polyserve_bench::Misuse;
use polyserve_bench::check::{CheckPlan, CheckReport, CheckSubject, check_file, run as record};
use polyserve_bench::output::{print_json, print_text};
use polyserve_bench::progress::Progress;
use polyserve_conformance::history::{HttpTarget, MAX_OPERATIONS};

use super::client_tls::ClientTlsArgs;
use super::entrants::serve;
use super::load::requests::header;
use super::load::url::Url;
use super::names::{ALL, repo_names};
use super::room;
use super::seed::SeedArgs;
use super::session::on_signal;
use crate::config_args::ConfigArgs;

/// The arguments of `polyserve check`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// The servers, separated by commas, or all.
    #[arg(long, visible_alias = "servers", value_name = "S,...", value_delimiter = ',', default_value = "pool_server")]
    server: Vec<String>,
    /// The repos, separated by commas, or all: every server runs over each.
    #[arg(long, visible_alias = "repos", value_name = "R,...", value_delimiter = ',', default_value = "sharded")]
    repo: Vec<String>,
    /// The number of operations of all clients together: 50 % gets, 30 % puts, 20 % removes. Two in three puts and
    /// removes have a condition, except with --url.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=MAX_OPERATIONS as u64))]
    ops: u64,
    /// The number of concurrent clients. Each has one connection.
    #[arg(long, value_name = "C", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100))]
    clients: u32,
    /// The number of keys. With fewer keys, clients use the same key more often.
    #[arg(long, value_name = "K", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    keys: u64,
    #[command(flatten)]
    random: SeedArgs,
    /// Check the repos in this process, without a server.
    #[arg(long, conflicts_with = "server")]
    in_process: bool,
    /// Check the server that listens at http://HOST:PORT or https://HOST:PORT instead; its entities with keys from -9000 on are
    /// removed.
    #[arg(long, value_name = "URL", conflicts_with_all = ["server", "repo", "in_process"])]
    url: Option<Url>,
    /// A header field of each request to --url, such as 'Authorization: Bearer TOKEN'. Can be repeated.
    #[arg(long, short = 'H', value_name = "FIELD", value_parser = header, requires = "url")]
    header: Vec<(String, String)>,
    /// Check the recorded operations in this file, one line of JSON for each. No server is started.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["server", "repo", "in_process", "url", "ops", "clients", "keys", "seed", "out", "ca", "insecure", "cert"])]
    history: Option<PathBuf>,
    /// Write the operations to this file, for --history. Only for one server over one repo.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    tls: ClientTlsArgs,
    #[command(flatten)]
    config: ConfigArgs,
}

/// The header fields that --header cannot set.
const OWN_FIELDS: [&str; 4] = ["Host", "Content-Type", "If-Match", "If-None-Match"];

/// The max time of a try to connect to one of several addresses.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

pub(crate) fn run(catalog: &Catalog, args: &CheckArgs, json: bool) -> anyhow::Result<ExitCode> {
    let report = match &args.history {
        Some(path) => {
            args.takes_no_settings("--history")?;
            let run = check_file(path).map_err(|error| Misuse(format!("{}: {error}", path.display())))?;
            CheckReport::new(vec![run], false)
        }
        None => args.record(catalog)?,
    };
    if json { print_json(&report) } else { print_text(&report) }?;
    Ok(if report.is_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl CheckArgs {
    fn record(&self, catalog: &Catalog) -> anyhow::Result<CheckReport> {
        let subjects = self.subjects(catalog)?;
        if self.out.is_some() && subjects.len() > 1 {
            return Err(Misuse(format!("--out takes one history, and {} would be recorded", subjects.len())).into());
        }
        if let Some(path) = &self.out {
            // Before the recording, which may take minutes. The file keeps its content until the recording ends.
            let opened = OpenOptions::new().append(true).create(true).open(path);
            opened.map_err(|error| Misuse(format!("--out {}: the file cannot be written: {error}", path.display())))?;
        }
        let plan = CheckPlan { operations: self.ops, clients: self.clients, keys: self.keys, seed: self.random.seed };
        let stop = on_signal()?;
        let mut progress = Progress::counting(self.ops as usize * subjects.len(), "operations");
        let mut runs = Vec::new();
        for (subject, before) in subjects.iter().zip((0..).step_by(self.ops as usize)) {
            if stop.is_begun() {
                break;
            }
            runs.push(record(subject, &plan, self.out.as_deref(), &stop, &mut progress, before)?);
        }
        progress.finish();
        let early = runs.len() < subjects.len();
        Ok(CheckReport::new(runs, early))
    }

    fn subjects(&self, catalog: &Catalog) -> anyhow::Result<Vec<CheckSubject>> {
        if let Some(url) = &self.url {
            self.takes_no_settings("--url")?;
            if url.path() != "/" {
                return Err(Misuse(format!(
                    "{url}: the URL must have no path, because the check uses the paths of the entity service"
                ))
                .into());
            }
            let own = self.header.iter().find(|(name, _)| OWN_FIELDS.iter().any(|own| name.eq_ignore_ascii_case(own)));
            if let Some((name, _)) = own {
                return Err(Misuse(format!("--header {name}: the check sets this field itself")).into());
            }
            let tls = self.tls.client(url)?;
            let fields = self.header.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let target = HttpTarget { addr: url.reach(CONNECT_TIMEOUT)?, host: url.host().to_owned(), fields };
            return Ok(vec![CheckSubject::Address { name: url.to_string(), target, tls }]);
        }
        if let Some(flag) = self.tls.given() {
            return Err(Misuse(format!("{flag}: it is for --url https://HOST:PORT")).into());
        }
        let repos = repo_names(catalog, &self.repo)?;
        let repos = repos.iter().map(|name| catalog.repo(name)).collect::<Result<Vec<_>, _>>()?;
        if self.in_process {
            self.takes_no_settings("--in-process")?;
            return Ok(repos.into_iter().map(CheckSubject::Repo).collect());
        }
        let settings = self.config.settings(None)?;
        let mut subjects = Vec::new();
        let servers = match self.server.as_slice() {
            [all] if all == ALL => {
                for (server, reason) in catalog.servers_not_allowed() {
                    eprintln!("not allowed by the system, so left out: {} ({reason})", server.name);
                }
                catalog.servers().to_vec()
            }
            names => names.iter().map(|name| catalog.server(name).cloned()).collect::<Result<_, _>>()?,
        };
        settings.check(&servers)?;
        for server in servers {
            let (_, config) = server.build_with_supported(&settings.with_pool_size())?;
            let mut flags = room::honoured(&config, &self.config.flags());
            flags.push(String::from("--etags=on"));
            subjects.extend(repos.iter().map(|repo| {
                let launch = serve(&server.name, &repo.name, &flags, Vec::new());
                CheckSubject::Server { server: server.name.clone(), repo: repo.name.clone(), launch }
            }));
        }
        Ok(subjects)
    }

    /// Returns an error if a setting was given although no server is started.
    fn takes_no_settings(&self, mode: &str) -> Result<(), Misuse> {
        match self.config.flags().first() {
            None => Ok(()),
            Some(flag) => Err(Misuse(format!("{flag}: with {mode} no server is started"))),
        }
    }
}
