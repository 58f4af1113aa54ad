//! `polyserve matrix`: the published matrix of pool sizes and connections.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use polyserve::config::MAX_WORKERS;
use polyserve_experiments::matrix::plan::Grid;
use polyserve_experiments::matrix::{Bench, Candidate, Matrix, Method};
use polyserve_lab::Misuse;
use polyserve_lab::experiment::RecordArgs;
use polyserve_lab::limits;
use serde_json::json;

use super::cores::CoresArgs;
use super::names::once;
use super::session::Context;
use crate::config_args::ConfigArgs;

mod contestants;

use contestants::MatrixContestants;

/// The arguments of `polyserve matrix`. A pool's size is the server's number of workers.
#[derive(Debug, clap::Args)]
#[command(mut_arg("workers", |arg| arg.hide(true)))]
pub(crate) struct MatrixArgs {
    /// The servers, separated by commas; also go/twin-rwmutex, go/twin-syncmap, go/nethttp and go/fasthttp.
    /// [default: all of the catalog and both twins; quick: five]
    #[arg(long, value_name = "S,...", value_delimiter = ',')]
    servers: Vec<String>,
    /// The stores of the servers in Rust, separated by commas.
    #[arg(long, value_name = "R,...", value_delimiter = ',', default_value = "two_level")]
    repos: Vec<String>,
    /// Pool sizes, separated by commas. A server without a setting for its workers is measured once for each number of
    /// connections. [default: 2,4,8,16,32,64; quick: 2,8,32]
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    pools: Vec<usize>,
    /// Numbers of concurrent connections, separated by commas. Each connection serves one request. [default: 10,100,1000]
    #[arg(long, short, value_name = "C,...", value_delimiter = ',')]
    connections: Vec<usize>,
    /// Requests of each cell. [default: 100000, quick: 20000]
    #[arg(long, short = 'n', value_name = "R", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    requests: Option<u64>,
    /// Methods, separated by commas.
    #[arg(long, value_enum, value_name = "M,...", value_delimiter = ',', default_value = "get,put")]
    methods: Vec<Method>,
    /// The number of rounds: each measures the whole matrix.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Fewer contestants, pool sizes and requests: about one minute, less than three.
    #[arg(long)]
    quick: bool,
    /// The sources of the programs in Go. [default: benches/peers/go of this command's sources]
    #[arg(long, value_name = "DIR")]
    peers_dir: Option<PathBuf>,
    #[command(flatten)]
    cores: CoresArgs,
    #[command(flatten)]
    record: RecordArgs,
    #[command(flatten)]
    config: ConfigArgs,
}

/// The published pool sizes.
const POOLS: [usize; 6] = [2, 4, 8, 16, 32, 64];
/// The pool sizes of a quick run.
const QUICK_POOLS: [usize; 3] = [2, 8, 32];
const CONNECTIONS: [usize; 3] = [10, 100, 1000];
const REQUESTS: u64 = 100_000;
const QUICK_REQUESTS: u64 = 20_000;
/// After this time a quick run begins no cell, unless --requests was given.
const QUICK_TIME: Duration = Duration::from_secs(150);

pub(crate) fn run(context: Context<'_>, args: &MatrixArgs) -> anyhow::Result<ExitCode> {
    let session = context.start()?;
    let grid = args.grid()?;
    if args.config.clone().take("workers").is_some() {
        return Err(Misuse("--workers is set by the pool sizes: use --pools 2,4,8".into()).into());
    }
    let settings = args.config.settings(None)?;
    let [server_cores, client_cores] = args.cores.of(&session.available)?;
    let requests = args.requests.unwrap_or(if args.quick { QUICK_REQUESTS } else { REQUESTS });
    let environment = session.environment([&server_cores, &client_cores], 0);
    let profile = environment.profile.clone();
    let most = grid.connections.iter().copied().max().unwrap_or(0);
    let flags = args.config.flags();
    let contestants = MatrixContestants { args, flags: &flags, settings: &settings, profile: &profile, most };
    let candidates = contestants.candidates(session.catalog, &grid.pools)?;
    let description = json!({
        "contestants": candidates.iter().map(Candidate::name).collect::<Vec<_>>(),
        "pools": grid.pools, "connections": grid.connections, "requests": requests,
        "methods": grid.methods, "rounds": grid.rounds, "quick": args.quick, "settings": flags,
    });
    let bench = Bench { server_cores, client_cores, requests, stop: session.stop.clone() };
    let mut matrix = Matrix::new(candidates, grid, description, bench);
    matrix.named.clone_from(&args.servers);
    matrix.peers_dir.clone_from(&args.peers_dir);
    matrix.time_limit = (args.quick && args.requests.is_none()).then_some(QUICK_TIME);
    session.run(&args.record, environment, &mut matrix)
}

impl MatrixArgs {
    fn grid(&self) -> anyhow::Result<Grid> {
        let usual: &[usize] = if self.quick { &QUICK_POOLS } else { &POOLS };
        let or = |given: &[usize], usual: &[usize]| once(if given.is_empty() { usual } else { given }.iter().copied());
        let (pools, connections) = (or(&self.pools, usual), or(&self.connections, &CONNECTIONS));
        if let Some(size) = pools.iter().find(|size| !(1..=MAX_WORKERS).contains(*size)) {
            return Err(Misuse(format!("--pools {size} is not from 1 to {MAX_WORKERS}")).into());
        }
        if connections.contains(&0) {
            return Err(Misuse("--connections 0 is not 1 or more".into()).into());
        }
        let most = connections.iter().copied().max().unwrap_or(0);
        limits::enough(most, limits::connections(0, 1))?;
        Ok(Grid { pools, connections, methods: once(self.methods.iter().copied()), rounds: self.rounds })
    }
}
